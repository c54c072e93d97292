"""`isocast lab`: build a world of network namespaces on this machine, and run something in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import Parameter
from cyclopts.validators import Number

from isocast.cli.lab_control import Flag, Words, app, parse_option
from isocast.cli.lab_verdict import show_verdict
from isocast.cli.lab_view import one_line, show_lab, show_nodes
from isocast.cli.render import line, note, show_json, show_table
from isocast.terms.errors import JournalError
from isocast.terms.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from isocast.trials.lab.nodes import LabNode
    from isocast.trials.lab.session import Session, SessionReport
    from isocast.trials.lab.verdict import Verdict
    from isocast.trials.lab.world import World

__all__ = ["app"]

_Seconds: TypeAlias = Annotated[float, Parameter(validator=Number(gt=0))]
_Share: TypeAlias = Annotated[float, Parameter(validator=Number(gte=0, lte=1))]
_Scale: TypeAlias = Annotated[float, Parameter(validator=Number(gte=0, lte=100))]
_Rate: TypeAlias = Annotated[float, Parameter(validator=Number(gte=0, lte=100_000))]
_Seed: TypeAlias = Annotated[int, Parameter(validator=Number(gte=0, lt=2**63))]

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
    config: Path,
    loss: _Share | None = None,
    jitter: str | None = None,
    scale: _Scale = 1.0,
    seed: _Seed | None = None,
    publish: _Rate = 0.0,
    seconds: _Seconds | None = None,
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
        The market's file. Addresses on loopback are fine: each is as far away in the lab as its city.
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
    from isocast.runtime.market.founding import found_market
    from isocast.runtime.operate.supervisor import node_command
    from isocast.trials.lab.market_session import MarketSession
    from isocast.trials.lab.market_world import market_settings, market_world
    from isocast.trials.lab.run_directory import default_run_directory

    market = load_market(config)
    jitter_ns = parse_option(jitter, "--jitter")
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
    *command: Words,
    site: str | None = None,
    seconds: _Seconds | None = None,
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
    from isocast.trials.lab.run_directory import default_run_directory
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
    world: World,
    nodes: Sequence[LabNode],
    directory: Path,
    seconds: float | None,
    *,
    without_root: bool,
    front: tuple[str, Sequence[str]] | None = None,
    ending: Callable[[Session], None] | None = None,
) -> SessionReport:
    """What `up` and `run` share."""
    from isocast.trials.lab.session import run_session

    def began(session: Session) -> None:
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


def _show(report: SessionReport, verdict: Verdict | None = None, *, json: bool) -> None:
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
