"""`isocast lab`: build a world of network namespaces, run something in it, command it, and show what it proved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from cyclopts import App, Parameter
from cyclopts.validators import Number

from isocast.cli.options import Flag, MarketFile, Seconds, Seed, duration_of
from isocast.cli.render import figure, line, note, show_json, show_table
from isocast.cli.skew_text import left_out_words
from isocast.terms.errors import ConfigurationError, JournalError
from isocast.terms.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from isocast.checks.skew import Quantiles, ReleaseSkew
    from isocast.trials.lab.nodes import LabNode
    from isocast.trials.lab.report import Episode
    from isocast.trials.lab.session import LabSession, SessionReport
    from isocast.trials.lab.verdict import LabVerdict, LateInLab
    from isocast.trials.lab.world import LabWorld

__all__ = ["app", "show_verdict"]


# ---- What the commands of a lab print for people.


_EPISODES_SHOWN = 10


def show_nodes(nodes: Sequence[Mapping[str, Any]]) -> None:
    """A row for each node."""
    rows = [
        (
            node["name"],
            node["site"],
            node["state"],
            str(node["process"] or "–"),
            figure(node["starts"]),
            figure(node["exit_code"]),
        )
        for node in nodes
    ]
    show_table("Nodes", ("name", "site", "state", "process", "starts", "exit code"), rows)


def show_links(links: Sequence[Mapping[str, Any]]) -> None:
    """A row for each direction."""
    from isocast.trials.lab.report import short_time

    rows = [
        (
            f"{link['here']} → {link['there']}",
            "CUT" if link["cut"] else short_time(link["delay_ns"]),
            short_time(link["jitter_ns"]),
            figure(link["loss"]),
            figure(link["frames_taken"]),
            figure(link["frames_lost"]),
            figure(link["frames_cut"]),
        )
        for link in links
    ]
    show_table("Links", ("", "delay", "jitter", "loss", "frames", "lost", "cut"), rows)


def show_lab(parts: Mapping[str, Any]) -> None:
    """The lab's own account, and a plain word when it was at fault."""
    from isocast.trials.lab.report import LabReport, report_rows, short_time

    report = LabReport.from_json(parts)
    show_table("The lab itself", ("", "value"), report_rows(report))
    if not report.at_fault:
        line("The lab was punctual: what was late inside it was late by itself.")
        return
    line("The lab itself was late, or dropped frames: compare its times before you blame what ran inside.")
    for episode in report.episodes[-_EPISODES_SHOWN:]:
        began = datetime.fromtimestamp(episode.from_ns / 1e9, UTC).isoformat(timespec="milliseconds")
        lasted = short_time(episode.to_ns - episode.from_ns)
        line(f"  {began} for {lasted}: {counted(episode.count, 'time')}, by up to {short_time(episode.worst_ns)}")
    if len(report.episodes) > _EPISODES_SHOWN:
        line(f"  … and {len(report.episodes) - _EPISODES_SHOWN} before (--json lists all)")


def one_line(report: SessionReport) -> str:
    """What a command in the foreground leaves room for."""
    from isocast.trials.lab.report import report_rows

    return "; ".join(f"{name} {value}" for name, value in report_rows(report.lab)[1:6])


# ---- Commands to a lab that runs, by its control socket.


app = App(
    name="lab",
    help="A world on one machine: a network namespace for each city, with delay, jitter and loss between them.",
    help_epilogue="""Start with:

    isocast lab check

    isocast lab up --config market.toml --loss 0.01 --seconds 60
""",
)

_CommandWords: TypeAlias = Annotated[str, Parameter(allow_leading_hyphen=True)]
_Share: TypeAlias = Annotated[float, Parameter(validator=Number(gte=0, lte=1))]
_Run: TypeAlias = Annotated[
    Path | None, Parameter(help="The directory of the lab, if not the one that a lab takes by itself.")
]


def _time(text: str | None, option: str) -> int | None:
    return None if text is None else duration_of(text, option)


def _ask(run: Path | None, command: str, **parts: object) -> Any:  # noqa: ANN401  # JSON
    from isocast.trials.lab.lab import default_run_directory
    from isocast.trials.lab.session import ask_lab

    return ask_lab(run or default_run_directory(), command, **parts)


# ---- how is it?


@app.command(
    help_epilogue="""Examples:

    isocast lab status

    isocast lab status --links --json
"""
)
def status(*, links: Flag = False, run: _Run = None, json: Flag = False) -> int:
    """Show the sites and nodes of a running lab.

    Parameters
    ----------
    links
        Show every direction between two sites too.
    json
        Print one JSON object instead of tables.
    """
    state = _ask(run, "status", links=links)
    if json:
        show_json(state)
        return 0
    sites = [(site["name"], site["city"] or "–", ", ".join(site["addresses"])) for site in state["sites"]]
    show_table(f"Sites, since {state['seconds']:.0f} s", ("name", "city", "addresses"), sites)
    if state["nodes"]:
        show_nodes(state["nodes"])
    if links:
        show_links(state["links"])
    return 0


@app.command(
    help_epilogue="""Examples:

    isocast lab lateness

    isocast lab lateness --reset --json
"""
)
def lateness(*, reset: Flag = False, run: _Run = None, json: Flag = False) -> int:
    """Show how late the lab itself was, so that it is not blamed on what runs inside.

    Parameters
    ----------
    reset
        Begin the lateness anew after this.
    json
        Print one JSON object instead of a table.
    """
    report = _ask(run, "lateness", reset=reset)
    if json:
        show_json(report)
    else:
        show_lab(report)
    return 0


# ---- links


@app.command(
    help_epilogue="""Examples:

    isocast lab cut london tokyo

    isocast lab cut london tokyo --one-way
"""
)
def cut(here: str, there: str, /, *, one_way: Flag = False, run: _Run = None) -> int:
    """Cut a link: nothing passes any more; what is on its way arrives.

    Parameters
    ----------
    here
        A site, its city, or a node at it.
    there
        Another one.
    one_way
        Only from the first to the second.
    """
    _ask(run, "cut", here=here, there=there, one_way=one_way)
    return 0


@app.command(
    help_epilogue="""Examples:

    isocast lab heal london tokyo

    isocast lab heal --all
"""
)
def heal(
    here: str | None = None,
    there: str | None = None,
    /,
    *,
    one_way: Flag = False,
    all_links: Annotated[bool, Parameter(name="--all", negative="")] = False,
    run: _Run = None,
) -> int:
    """Let frames pass again where a link was cut.

    Parameters
    ----------
    here
        A site, its city, or a node at it.
    there
        Another one.
    one_way
        Only from the first to the second.
    all_links
        Everywhere.
    """
    if all_links == (here is not None) or (here is None) != (there is None):
        raise ConfigurationError("command line", "isocast lab heal", "needs two sites, or --all")
    _ask(run, "heal", here=here or "", there=there or "", one_way=one_way, all=all_links)
    return 0


@app.command(
    name="set",
    help_epilogue="""Examples:

    isocast lab set london tokyo --loss 0.05

    isocast lab set london tokyo --delay 120ms --jitter 5ms --one-way
""",
)
def set_link(
    here: str,
    there: str,
    /,
    *,
    delay: str | None = None,
    jitter: str | None = None,
    loss: _Share | None = None,
    one_way: Flag = False,
    run: _Run = None,
) -> int:
    """Change what a link does to frames that are sent from now on.

    Parameters
    ----------
    here
        A site, its city, or a node at it.
    there
        Another one.
    delay
        How long a frame takes, such as 120ms.
    jitter
        Mean of an exponential delay on top.
    loss
        Share of the frames that are lost.
    one_way
        Only from the first to the second.
    """
    delay_ns, jitter_ns = _time(delay, "--delay"), _time(jitter, "--jitter")
    if delay_ns is None and jitter_ns is None and loss is None:
        raise ConfigurationError("command line", "isocast lab set", "needs --delay, --jitter or --loss")
    _ask(run, "change", here=here, there=there, delay_ns=delay_ns, jitter_ns=jitter_ns, loss=loss, one_way=one_way)
    return 0


# ---- nodes


def _add_node_command(name: str, purpose: str) -> None:
    """A command that asks the lab to do to a node what its name says."""

    def command(node: str, /, *, run: _Run = None) -> int:
        _ask(run, name, node=node)
        return 0

    command.__doc__ = f"{purpose}\n\nParameters\n----------\nnode\n    Its name.\n"
    app.command(command, name=name, help_epilogue=f"Example:\n\n    isocast lab {name} london\n")


_add_node_command("kill", "Kill a node by SIGKILL: it has no chance to tidy up.")
_add_node_command("start", "Start a node again that was killed, or ended.")
_add_node_command("stop", "Stop a node by SIGSTOP: nothing happens in it until `isocast lab continue`.")
_add_node_command("continue", "Let a stopped node go on.")


# ---- inside, and the end


@app.command(
    name="exec",
    help_epilogue="""Examples:

    isocast lab exec london -- ping -c 3 10.77.1.1

    isocast lab exec london -- tcpdump -ni wan0

Exit code: that of COMMAND.
""",
)
def execute(site: str, /, *command: _CommandWords, run: _Run = None) -> int:
    """Run COMMAND at a site of a running lab, as if one sat there.

    Parameters
    ----------
    site
        A site, its city, or a node at it.
    command
        What to run, after `--`.
    """
    import os
    import sys

    if not command:
        raise ConfigurationError("command line", "COMMAND", "is missing: give the command to run")
    prefix: list[str] = _ask(run, "enter", site=site)
    sys.stdout.flush()
    os.execv(prefix[0], [*prefix, *command])  # noqa: S606  # the user's own command, without a shell


@app.command(help_epilogue="Example:\n\n    isocast lab down\n")
def down(*, run: _Run = None) -> int:
    """End a running lab: its nodes are asked to end, its namespaces vanish, and it gives its report."""
    _ask(run, "down")
    line("The lab is ending.")
    return 0


# ---- What the journals of a market in the lab prove, for people.


_LATE_SHOWN = 20


def show_verdict(verdict: LabVerdict) -> None:
    """Tables, and one sentence."""
    if not verdict.evidence.messages:
        line("The journals say nothing: no message was released. --publish 100 lets a floor publish at each source.")
        return
    show_table("What the journals prove", ("", "found", "wanted"), _rows(verdict))
    _show_late(verdict)
    _show_followers(verdict)
    for difference in verdict.evidence.differences:
        first, often = difference.sequences[0], counted(len(difference.sequences), "time")
        line(f"{difference.name} and {difference.other} differ (S1) from sequence {first} on, {often}.")
    line(_sentence(verdict))


def _sentence(verdict: LabVerdict) -> str:
    if not verdict.is_sound:
        return "NOT as it should be: see the table."
    if not verdict.evidence.is_simultaneous:
        return "Nothing was early, lost, repeated or different; but sites released further apart than their clocks are."
    return "As it should be: nothing was early, lost, repeated or different, and sites released together."


def _rows(verdict: LabVerdict) -> list[tuple[str, str, str]]:
    from isocast.trials.lab.report import short_time

    found = verdict.evidence
    lost = figure(verdict.lost) if verdict.promised else "–"
    where = f"{counted(found.tokens, 'token')}, at {counted(found.sites, 'site')}"
    return [
        ("messages released", f"{figure(found.messages)} in {where}", ""),
        ("early releases (S12)", figure(found.early), "0"),
        (
            "skew between sites (F1): p50 / p99 / max",
            _times(found.skew),
            f"p50 ≤ 2ε = {short_time(found.skew_bound_ns)}",
        ),
        ("… left out", left_out_words(found.skew) or "nothing", ""),
        ("releases late: p50 / p99 / max", _times(found.lateness), ""),
        (f"later than P = {short_time(found.late_after_ns)}", figure(len(verdict.late)), ""),
        ("… that neither process nor lab explains", figure(len(verdict.unexplained)), "0"),
        ("sequences missing or repeated at a site (S2)", figure(found.missing + found.repeated), "0"),
        ("journals that differ (S1)", figure(len(found.differences)), "0"),
        ("published, and not released everywhere (L1)", lost, "0"),
        ("gaps of customers and retransmit servers (L5)", figure(found.gaps), "0"),
        ("… that did not catch up", figure(verdict.stalled), "none"),
    ]


def _times(quantiles: Quantiles | ReleaseSkew) -> str:
    from isocast.trials.lab.report import short_time

    if not quantiles.count:
        return "–"
    return " / ".join(map(short_time, (quantiles.p50_ns, quantiles.p99_ns, quantiles.max_ns)))


def _show_late(verdict: LabVerdict) -> None:
    if not verdict.late:
        return
    rows = [_late_row(late) for late in verdict.late[-_LATE_SHOWN:]]
    title = f"Releases later than P, beside the lab's own lateness (the last {len(rows)} of {len(verdict.late)})"
    show_table(title, ("due", "site", "token", "sequences", "late", "its process", "the lab meanwhile"), rows)


def _late_row(late: LateInLab) -> tuple[str, ...]:
    from isocast.trials.lab.report import short_time

    release = late.release
    due = datetime.fromtimestamp(release.due / 1e9, UTC).strftime("%H:%M:%S.%f")[:-3]
    if late.behind_ns is None:
        process = "not known"
    else:
        process = f"{short_time(late.behind_ns)} late" if late.behind_ns else "in time"
    sequences = f"{release.first_sequence}–{release.last_sequence}"
    lag = short_time(release.late_ns)
    return due, release.site, str(release.token_number), sequences, lag, process, _episodes(late.episodes)


def _episodes(episodes: Sequence[Episode]) -> str:
    from isocast.trials.lab.report import short_time

    if not episodes:
        return "punctual"
    worst = max(episode.worst_ns for episode in episodes)
    return f"{counted(len(episodes), 'time')} late, by up to {short_time(worst)}"


def _show_followers(verdict: LabVerdict) -> None:
    rows = [
        (
            follower.name,
            follower.role,
            figure(follower.messages),
            figure(follower.missing),
            figure(follower.repeated),
            figure(follower.behind),
        )
        for follower in verdict.evidence.followers
    ]
    if rows:
        headers = ("", "role", "messages", "missing", "repeated", "behind at the end")
        show_table("Who must have everything", headers, rows)


_Scale: TypeAlias = Annotated[float, Parameter(validator=Number(gte=0, lte=100))]
_Rate: TypeAlias = Annotated[float, Parameter(validator=Number(gte=0, lte=100_000))]

_SIGNAL_EXIT = 128
"""What shells add to the number of the signal that ended a command."""


@app.command(
    help_epilogue="""Examples:

    isocast lab check

    isocast lab check --without-root --json

Exit code: 0 a lab can run here, 1 something is missing; the table says what to change.
"""
)
def check(*, without_root: Flag = False, json: Flag = False) -> int:
    """Try everything that a lab needs of this machine, and say what to change.

    Neither `ip` nor `unshare` is needed: the kernel is asked directly.

    Parameters
    ----------
    without_root
        Try as if we were not root, in a user namespace.
    json
        Print a JSON list instead of a table.
    """
    from dataclasses import asdict

    from isocast.trials.lab.readiness import check_machine, missing

    checks = check_machine(user_namespace=without_root or None)
    if json:
        show_json([asdict(entry) for entry in checks])
        return 1 if missing(checks) else 0
    verdicts = {(True, True): "yes", (True, False): "yes", (False, True): "NO", (False, False): "no"}
    rows = [(entry.name, verdicts[entry.passed, entry.needed], entry.found, entry.remedy) for entry in checks]
    show_table("What a lab needs", ("", "", "found", "what to change"), rows)
    line("A lab cannot run here yet." if missing(checks) else "A lab can run here.")
    return 1 if missing(checks) else 0


@app.command(
    help_epilogue="""Examples:

    isocast lab up --config market.toml

    isocast lab up --config market.toml --publish 100 --loss 0.01 --jitter 2ms --seconds 60 --json

Meanwhile, in another terminal: `isocast lab status`, `isocast lab cut london tokyo`, `isocast lab down`.

Exit code: 0 fine, 1 a node ended badly or the journals show something early, lost, repeated or different, 2 bad input,
3 the machine refused.
"""
)
def up(  # noqa: PLR0913  # a market, and what its world is like
    *,
    config: MarketFile = None,
    loss: _Share | None = None,
    jitter: str | None = None,
    scale: _Scale = 1.0,
    seed: Seed | None = None,
    publish: _Rate = 0.0,
    seconds: Seconds | None = None,
    run: Path | None = None,
    without_root: Flag = False,
    json: Flag = False,
) -> int:
    """Run a market in a world of its own: a network namespace for each city of its nodes.

    It ends after --seconds, by `isocast lab down`, by Ctrl-C, or when all nodes have ended; then the lab reports how
    late it was itself, and what the market's journals prove: nothing early, one order, how far apart the sites
    released, what was late and whether the lab was late then, no gap at any customer. Nothing of the lab is left.

    Parameters
    ----------
    config
        The market's file; if left out, that of ISOCAST_MARKET or ./market.toml. Addresses on loopback are fine: each is
        as far away in the lab as its city.
    loss
        Share of the frames that are lost, for each receiver by itself; what [impairment] of the file says if left out.
    jitter
        Mean of an exponential delay on top of each frame's, such as 2ms; as above.
    scale
        Times the delay of light in fibre: 0.1 is an earth a tenth as large.
    seed
        Of loss and jitter; as above.
    publish
        About how many events a second a floor publishes at each primary source. Left out, nobody publishes by itself.
    seconds
        End after so long.
    run
        Directory of the control socket and of what the nodes print, if not the one that a lab takes by itself.
    without_root
        Do without root's powers even as root, in a user namespace.
    json
        Print one JSON object at the end instead of tables.
    """
    from isocast.runtime.market.file import load_market
    from isocast.runtime.market.finding import find_market
    from isocast.runtime.market.founding import found_market
    from isocast.runtime.operate.supervisor import node_command
    from isocast.trials.lab.lab import default_run_directory
    from isocast.trials.lab.market_session import MarketSession
    from isocast.trials.lab.world_file import market_settings, market_world

    config = find_market(config, running=False)
    market = load_market(config)
    jitter_ns = _time(jitter, "--jitter")
    settings = market_settings(market, loss=loss, jitter_ns=jitter_ns, seed=seed, scale=scale)
    world, nodes = market_world(market, settings, lambda name: node_command(config, name, "--without-impairment"))
    if found_market(market):
        note(f"{market.name}: a new market, in {market.data_directory}")
    judged = MarketSession(market, config, nodes, events_per_s=publish, seed=settings.seed)
    directory = run or default_run_directory()
    everybody = (*nodes, *judged.floors)
    report = _session(world, everybody, directory, seconds, without_root=without_root, ending=judged.settle)
    try:
        verdict = judged.verdict(report.lab, directory)
    except JournalError as damage:
        verdict = None
        note(f"lab: the journals cannot be judged: {damage}")
    _show(report, verdict, json=json)
    return 0 if verdict is not None and verdict.is_sound and not report.failed else 1


@app.command(
    help_epilogue="""Examples:

    isocast lab run world.toml --seconds 60

    isocast lab run world.toml --site london -- ping -c 3 10.77.1.1

The file names its sites under `[sites]`, such as `london = "London"`; the first has the addresses 10.77.1.1 to
10.77.1.8, the second 10.77.2.1 to 10.77.2.8, and so on.

Exit code: that of COMMAND; without one, 0 fine, 1 a node ended badly, 2 bad input, 3 the machine refused.
"""
)
def run(
    world: Path,
    /,
    *command: _CommandWords,
    site: str | None = None,
    seconds: Seconds | None = None,
    run: Path | None = None,
    without_root: Flag = False,
    json: Flag = False,
) -> int:
    """Build the world of a file, start its nodes, and run COMMAND at one of its sites.

    Without COMMAND it ends as `isocast lab up` does.

    Parameters
    ----------
    world
        A TOML file with sites, links and nodes.
    command
        What to run at --site, after `--`; the lab ends with it.
    site
        Where; the first of the file if left out.
    seconds
        End after so long.
    run
        Directory of the control socket and of what the nodes print, if not the one that a lab takes by itself.
    without_root
        Do without root's powers even as root, in a user namespace.
    json
        Print one JSON object at the end instead of tables.
    """
    from isocast.trials.lab.lab import default_run_directory
    from isocast.trials.lab.world_file import load_world

    described, nodes = load_world(world)
    where = described.sites[described.place_of(site) if site is not None else 0].name
    front = (where, command) if command else None
    directory = run or default_run_directory()
    report = _session(described, nodes, directory, seconds, without_root=without_root, front=front)
    if front is None or json:
        _show(report, json=json)
    else:
        note(f"lab: {one_line(report)}")
    if report.exit_code is None:
        return 1 if report.failed else 0
    return report.exit_code if report.exit_code >= 0 else _SIGNAL_EXIT - report.exit_code


def _session(
    world: LabWorld,
    nodes: Sequence[LabNode],
    directory: Path,
    seconds: float | None,
    *,
    without_root: bool,
    front: tuple[str, Sequence[str]] | None = None,
    ending: Callable[[LabSession], None] | None = None,
) -> SessionReport:
    """What `up` and `run` share."""
    from isocast.trials.lab.session import run_session

    def began(session: LabSession) -> None:
        parts = f"{counted(len(world.sites), 'site')}, {counted(len(session.nodes), 'node')}"
        note(f"lab: {parts}; control socket and output in {directory}")

    return run_session(
        world,
        nodes,
        directory,
        seconds=seconds,
        foreground=front,
        began=began,
        ending=ending,
        user_namespace=without_root or None,
    )


def _show(report: SessionReport, verdict: LabVerdict | None = None, *, json: bool) -> None:
    """The whole report."""
    parts = report.as_json() | ({} if verdict is None else {"journals": verdict.as_json()})
    if json:
        show_json(parts)
        return
    if report.nodes:
        show_nodes(parts["nodes"])
    show_lab(parts["lab"])
    if verdict is not None:
        show_verdict(verdict)
