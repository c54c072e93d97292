"""`isocast sim`: run scenarios and swarms, explore every interleaving, explain keys and mutants."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import App, Parameter
from cyclopts.validators import Number

from isocast.cli.options import Count, Flag, Seed
from isocast.cli.render import Progress, figure, line, note, show_json, show_table, showed_whole, working
from isocast.cli.sim_sweep import SWEEP_EXAMPLES, sweep
from isocast.terms.errors import ConfigurationError

if TYPE_CHECKING:
    from isocast.checks.facts import Fact
    from isocast.simulation.exploration.properties import Bounds
    from isocast.simulation.exploration.search import SearchProgress
    from isocast.simulation.exploration.verdict import SearchVerdict
    from isocast.simulation.swarm import SwarmReport

__all__ = ["EXPLORE_EXAMPLES", "app", "explore", "keys_page"]


# ---- `isocast sim explore`: every interleaving of a small market, with the product's own machines.


EXPLORE_EXAMPLES = """Examples:

    isocast sim explore

    isocast sim explore --servers 1 --tokens 2 --restarts 1

    isocast sim explore --tokens 2 --shorter-logs 1 --majorities-only

    isocast sim explore --servers 1 --mutant release-on-time-alone

    isocast sim explore --all-mutants

The first takes a minute or two of one core; with one server it takes seconds, with two tokens and two servers many
minutes.

Exit code: 0 nothing is broken, 1 a property is. With --all-mutants: 0 every mutant was found and the full rules hold.
"""

_Some: TypeAlias = Annotated[int, Parameter(validator=Number(gte=1, lte=5))]
_Few: TypeAlias = Annotated[int, Parameter(validator=Number(gte=0, lte=5))]

_TOLD_EVERY_S = 5.0
_KIB = 1024


def explore(  # noqa: PLR0913 (one for each bound)
    *,
    sites: _Some = 3,
    servers: _Some = 2,
    tokens: _Some = 1,
    ballots: _Some = 1,
    restarts: _Few = 0,
    shorter_logs: _Few = 0,
    lost_disks: _Few = 0,
    majorities_only: Flag = False,
    flying: Flag = False,
    requests: Flag = False,
    rivals: Flag = False,
    sources: Flag = False,
    unreduced: Flag = False,
    states_max: Annotated[int, Parameter(validator=Number(gte=0))] = 0,
    mutant: str | None = None,
    all_mutants: Flag = False,
    json: Flag = False,
) -> int:
    """Search all interleavings of a small market, breadth first: the first violation has a shortest trace.

    Parameters
    ----------
    sites
        Primary receivers.
    servers
        Reformation servers, whose ballots race.
    tokens
        The highest token number, in any epoch.
    ballots
        Ballots of each server, beside the one that formed the first ring.
    restarts
        How often a process dies and comes back from its disk; one that dies for good needs no mention.
    shorter_logs
        How often one comes back with a log that lost its newest token.
    lost_disks
        How often one comes back without its disk.
    majorities_only
        A server decides as soon as it has a majority of votes, and never waits for more.
    flying
        Messages are under way when the search begins, instead of waiting at every site in another order.
    requests
        Receivers also ask for what is late, instead of only waiting for it.
    rivals
        Servers also hear one another, and tokens.
    sources
        Sources also hear tokens and rings, and send again by themselves.
    unreduced
        Let receipts travel like everything else, votes be counted one by one, and dead ones be told apart.
    states_max
        Give up after so many states; 0 goes on to the end.
    mutant
        Switch rules of the reformation off; with --all-mutants the table shows the names.
    all_mutants
        Find every mutant, and print the full rules' verdict below them.
    json
        Print JSON instead of text.
    """
    from isocast.simulation.exploration.properties import RULES, Bounds
    from isocast.terms.quantities import suggestion

    if mutant is not None and mutant not in RULES:
        rule = f'unknown mutant "{mutant}"{suggestion(mutant, RULES)}: one of {", ".join(RULES)}'
        raise ConfigurationError("command line", "--mutant", rule)
    bounds = Bounds(
        sites,
        servers,
        tokens,
        ballots,
        restarts,
        shorter_logs,
        lost_disks,
        more_votes=not majorities_only,
        flying=flying,
        requests=requests,
        rivals=rivals,
        sources=sources,
        eager=not unreduced,
        gathered_votes=not unreduced and not rivals,
        dead_votes=not unreduced,
    )
    if all_mutants:
        return _all_mutants(bounds, states_max, json=json)
    verdict = _explored(bounds, mutant, states_max, quiet=json)
    if json:
        show_json(verdict.as_json())
    else:
        _show(verdict)
    return int(verdict.found.broken is not None)


def _explored(bounds: Bounds, mutant: str | None, states_max: int, *, quiet: bool) -> SearchVerdict:
    """One search; a mutant is held to agreement alone, so that its trace ends with two stories."""
    from isocast.simulation.exploration.verdict import explore as search

    return search(
        bounds, mutant, states_max=states_max, stories_only=mutant is not None, progress=None if quiet else _teller()
    )


def _teller() -> Callable[[SearchProgress], None]:
    """Tells now and then, beside the output, how far a search is."""
    began = told = time.monotonic()

    def tell(progress: SearchProgress) -> None:
        nonlocal told
        now = time.monotonic()
        if now - told >= _TOLD_EVERY_S:
            told = now
            rate = progress.states / (now - began)
            states = f"{progress.states:,} states at depth {progress.depth}, {rate:,.0f} a second"
            note(f"{states}, {_memory_mib():,} MiB")

    return tell


def _memory_mib() -> int:
    """The most memory that this process ever had."""
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used // _KIB if sys.platform != "darwin" else used // _KIB // _KIB


def _show(verdict: SearchVerdict) -> None:
    figures = verdict.as_json()
    names = ("states", "transitions", "depth", "exhausted", "machine_steps", "node_states")
    rows = [(name.replace("_", " "), figure(figures[name])) for name in names]
    title = f"All interleavings, mutant {verdict.mutant}" if verdict.mutant else "All interleavings, full rules"
    show_table(title, ("", "value"), [*rows, ("memory, MiB", figure(_memory_mib()))])
    _show_trace(verdict)


def _show_trace(verdict: SearchVerdict) -> None:
    if verdict.found.broken is None:
        whole = "in all of them" if verdict.found.exhausted else "so far; not all were visited"
        line(f"Safe: nothing is broken {whole}.")
        return
    name, how = verdict.found.broken
    line(f"BROKEN: {name}: {how}. A shortest trace, {len(verdict.trace) - 1} steps:\n")
    for number, text in enumerate(verdict.trace):
        line(f"{number:4}. {text}.")
    line()


def _all_mutants(bounds: Bounds, states_max: int, *, json: bool) -> int:
    from isocast.simulation.exploration.properties import FOUND_AT, RULES

    verdicts = []
    for name in RULES:
        verdicts.append(_explored(FOUND_AT[name], name, states_max, quiet=json))
        if not json:
            line(f"{name}, without the rule that {RULES[name].rule}.")
            _show_trace(verdicts[-1])
    product = _explored(bounds, None, states_max, quiet=json)
    if json:
        show_json([verdict.as_json() for verdict in (*verdicts, product)])
    else:
        rows = [
            (verdict.mutant or "full rules", figure(verdict.found.states), _length(verdict), _judged(verdict))
            for verdict in (*verdicts, product)
        ]
        show_table("Every mutant, and the full rules", ("rules", "states", "steps of the trace", "verdict"), rows)
    found = all(verdict.found.broken is not None for verdict in verdicts)
    return int(not found or product.found.broken is not None)


def _length(verdict: SearchVerdict) -> str:
    return figure(len(verdict.found.trace)) if verdict.found.broken is not None else "–"


def _judged(verdict: SearchVerdict) -> str:
    if verdict.found.broken is not None:
        return verdict.found.broken[1]
    return "nothing is broken" if verdict.found.exhausted else "nothing is broken so far"


app = App(
    name="sim",
    help="Simulate: the protocol's own machines in virtual time, every run a function of one seed.",
    help_epilogue="Start with:\n\n    isocast sim show\n",
)

app.command(explore, help_epilogue=EXPLORE_EXAMPLES)
app.command(sweep, help_epilogue=SWEEP_EXAMPLES)


_LINES_SHOWN = 20

_FIGURES = {
    "seed": "seed",
    "trace_digest": "digest of the trace",
    "protocol": "protocol",
    "receivers": "receivers",
    "messages": "messages",
    "tokens": "tokens",
    "control_per_message": "control packets per message",
    "nacks_per_token": "NACKs per token",
    "repairs_per_token": "repairs per token",
    "receipts_per_token": "receipts per token",
    "nacks_per_loss_p99": "NACKs per lost packet, 99th percentile",
    "false_reformations_per_token": "false reformations per token",
    "false_reformations_weighed_per_token": "the same, by the chances of last requests",
    "latency_s_mean": "mean latency, s",
    "release_skew_ns_max": "largest release skew, ns",
    "fairness_faults": "fairness faults",
    "first_wins": "share of pairs won",
}
"""The figures of a report as people call them."""


@app.command(
    help_epilogue="""Examples:

    isocast sim run scenario.toml

    isocast sim run scenario.toml --seed 7 --json

Exit code: 0 safe, 1 a property was violated, 2 bad input. `isocast sim keys` explains what a scenario may say.
"""
)
def run(scenario: Path, /, *, seed: Seed | None = None, json: Flag = False, transcript: Path | None = None) -> int:
    """Run one scenario under the checkers and report its figures.

    Parameters
    ----------
    scenario
        A TOML file; those of the repository are in scenarios/.
    seed
        The seed, if not the scenario's own. The same seed gives the same run.
    json
        Print one JSON object instead of a table.
    transcript
        Write what happened to this file, a line for each event.
    """
    from isocast.cli.shipped import shipped
    from isocast.simulation.scenario import load_scenario

    scenario = shipped(scenario)
    loaded = load_scenario(scenario)  # Before the heavy modules: bad input is named at once.
    from isocast.simulation.run import run_scenario

    if transcript is not None and (loaded.protocol != "timed" or loaded.exchange is not None):
        raise ConfigurationError("command line", "--transcript", "is written by the timed protocol only")
    if transcript is not None and transcript.exists() and transcript.samefile(scenario):
        raise ConfigurationError("command line", "--transcript", "would overwrite the scenario itself")
    seed = loaded.seed if seed is None else seed
    with ExitStack() as stack:
        write = stack.enter_context(_lines_to(transcript)) if transcript else None
        stack.enter_context(working(f"{scenario}, seed {seed}", quiet=json))
        report = run_scenario(loaded, seed, transcript=write) if write else run_scenario(loaded, seed)
    figures = report.as_json()
    if json:
        show_json(figures)
    else:
        _show_figures(loaded.title or str(scenario), figures)
    return 1 if figures["violations"] else 0


@contextmanager
def _lines_to(path: Path) -> Iterator[Callable[[Fact], None]]:
    """Write facts to a file, opened before the run: a wrong path is found at once."""
    from isocast.simulation.transcript import describe_fact

    try:
        out = path.open("w", encoding="utf-8")
    except OSError as error:
        raise ConfigurationError("command line", "--transcript", f"cannot write {path}: {error.strerror}") from error
    with out:
        yield lambda fact: print(describe_fact(fact), file=out)


def _show_figures(title: str, figures: Mapping[str, object]) -> None:
    """A table of all figures, then what was violated."""
    rows = [(_FIGURES.get(name, name), _shown(name, value)) for name, value in figures.items() if name != "violations"]
    show_table(title, ("", "value"), rows)
    violations = figures.get("violations")
    if isinstance(violations, list) and violations:
        _show_violated([str(violation) for violation in violations])
        _explain(violations)
    else:
        line("Safe: no property was violated.")


def _show_violated(lines: list[str]) -> None:
    line(f"VIOLATED: {len(lines)}")
    for text in lines[:_LINES_SHOWN]:
        line(f"  {text}")
    if len(lines) > _LINES_SHOWN:
        line(f"  … and {len(lines) - _LINES_SHOWN} more (--json lists all)")


def _explain(violations: Iterable[str]) -> None:
    """What the violated properties are."""
    from isocast.checks.properties import explained

    for text in explained(violation.partition(":")[0] for violation in violations):
        line(text)


def _shown(name: str, value: object) -> str:
    return str(value) if name == "seed" else figure(value)


@app.command(
    help_epilogue="""Examples:

    isocast sim show

    isocast sim show scenario.toml --speed 5

Exit code: 0 safe, 1 a checker found a violation. Ctrl-C ends it with its summary.
"""
)
def show(
    scenario: Path | None = None,
    /,
    *,
    seed: Seed | None = None,
    speed: Annotated[float | None, Parameter(validator=Number(gt=0, lte=1000))] = None,
    headless: Flag = False,
) -> int:
    """Show a scenario live: cities, token, losses, repairs, releases and their skew, under the checkers.

    Parameters
    ----------
    scenario
        A TOML file; without one, ten cities through losses, a crash and a return.
    seed
        The seed, if not the scenario's own. The same seed gives the same run.
    speed
        Seconds of the market for each second on the wall; 1 if left out, and without a live view as fast as it goes.
    headless
        Print lines instead of a live view, as happens anyway where there is no terminal.
    """
    from isocast.cli.sim_show import show_scenario

    return show_scenario(scenario, seed, speed, headless=headless)


@app.command(
    help_epilogue="""Examples:

    isocast sim swarm --seeds 500

    isocast sim swarm --seeds 500 --mutant collect-one-early

    isocast sim swarm --first-seed 2 --seeds 1 --mutant collect-one-early

    isocast sim swarm --liars --seeds 100

    isocast sim swarm --floor --seeds 100

Exit code: 0 no seed failed, 1 one did. With --mutant the other way round: 0 the mutant was caught, 1 it lives.
"""
)
def swarm(
    *,
    seeds: Count = 100,
    first_seed: Seed = 1,
    jobs: Count | None = None,
    mutant: str | None = None,
    liars: Flag = False,
    floor: Flag = False,
    json: Flag = False,
) -> int:
    """Run random worlds with faults, one for each seed, each under the checkers.

    In each world faults come first, and every safety property must hold; then they stop, but for wrong clocks and dead
    nodes that stay in some worlds, and everything must be delivered. A seed that fails is shrunk to a short transcript,
    and the command that runs it again is named.

    Parameters
    ----------
    seeds
        How many seeds.
    first_seed
        The first of them.
    jobs
        Processes; one for each core if left out.
    mutant
        Switch one rule of the protocol off: the checkers must catch it. `isocast sim mutants` lists them.
    liars
        Only worlds in which somebody lies, forges, replays, comes with an old roster or has stolen a key. Other
        worlds have liars too, one in 25, but neither replays nor changing rosters.
    floor
        Only worlds whose receivers are a trading floor. Other worlds have none.
    json
        Print one JSON object instead of tables.
    """
    from isocast.simulation.swarm import run_swarm

    if mutant is not None:
        _check_mutant(mutant)
    workers = jobs or os.cpu_count() or 1
    with Progress("seeds", seeds, quiet=json) as progress:
        chosen = range(first_seed, first_seed + seeds)
        report = run_swarm(chosen, workers, mutant, lambda state: progress.reach(state.done), lying=liars, floor=floor)
    if json:
        show_json(report.as_json())
    else:
        _show_swarm(report, " --liars" * liars + " --floor" * floor)
    failed = bool(report.failures)
    return int(failed if mutant is None else not failed)


def _show_swarm(report: SwarmReport, worlds: str = "") -> None:
    """Totals, the seeds that failed, and the first of them made small; `worlds`: options that chose them."""
    from isocast.simulation.scenario import scenario_text

    totals = ("first_seed", "seeds", "tokens", "messages", "rings", "deliveries")
    title = f"Swarm with mutant {report.mutant}" if report.mutant else "Swarm"
    show_table(title, ("", "value"), [(name.replace("_", " "), figure(getattr(report, name))) for name in totals])
    if not report.failures:
        line("The mutant lives: no seed caught it." if report.mutant else "Safe: no seed failed.")
        return
    if report.mutant:
        line(f"Caught by {report.caught_by} at seed {report.failures[0].seed}.")
    lines = [f"seed {result.seed}: {violation}" for result in report.failures for violation in result.violations]
    _show_violated(lines)
    _explain([violation for result in report.failures for violation in result.violations])
    rule = f" --mutant {report.mutant}" if report.mutant else ""
    rule += worlds
    line(f"Again: isocast sim swarm --first-seed {report.failures[0].seed} --seeds 1{rule}")
    if report.shrunk is not None:
        # `sim run` knows the full rules only: a mutant's world is found again by its swarm.
        how = (
            "" if report.mutant else f"; as FILE.toml, `isocast sim run FILE.toml --seed {report.shrunk.seed}` runs it"
        )
        line(f"\nThe smallest world found that fails so{how}:\n")
        line(scenario_text(report.shrunk.scenario))
        line("What happened in it:\n")
        for text in report.shrunk.transcript:
            line(text)


def _check_mutant(name: str) -> None:
    from isocast.simulation.mutants import MUTANTS
    from isocast.terms.quantities import suggestion

    if name not in MUTANTS:
        rule = f'unknown mutant "{name}"{suggestion(name, MUTANTS)} (isocast sim mutants lists them)'
        raise ConfigurationError("command line", "--mutant", rule)


@app.command(
    help_epilogue="""Examples:

    isocast sim keys

    isocast sim keys --json

    isocast sim keys --markdown > docs/reference/scenarios.md
"""
)
def keys(*, json: Flag = False, markdown: Flag = False) -> int:
    """List and explain the keys of a scenario file.

    Parameters
    ----------
    json
        Print one JSON object instead of tables.
    markdown
        Print the reference page.
    """
    from isocast.cli.key_page import key_headers, key_rows
    from isocast.simulation.scenario_keys import FAULT_KEYS, FAULT_KINDS, KEYS

    if showed_whole(keys_as_json if json else None, keys_page if markdown else None):
        return 0
    for title, table in (("Keys of a scenario file; times in seconds", KEYS), ("Keys of [[faults]]", FAULT_KEYS)):
        rows = key_rows(table)
        show_table(title, key_headers(rows), rows)
    show_table("Kinds of faults", ("kind", "what happens"), list(FAULT_KINDS.items()))
    return 0


_HEAD = """# Scenario files

A scenario is a flat TOML file: every key at the top level, times in seconds, and a `[[faults]]` table for each fault. A
key that is left out takes the paper's value or is derived. An unknown key, a value of the wrong kind or one that the
protocol does not allow is refused: the message names file, key and rule, and the exit code is 2.
[Write a scenario](../how-to/write-a-scenario.md) shows how.

This page is printed by `isocast sim keys --markdown`; `isocast sim keys` shows the same in the terminal.
"""

_CITIES = """## Cities

By name or code, in any case. The delay between two of them is the great-circle distance at 200 km per ms.
"""


def keys_page() -> str:
    """The whole of docs/reference/scenarios.md."""
    from isocast.cli.key_page import key_table, markdown_table
    from isocast.simulation.scenario_keys import FAULT_KEYS, FAULT_KINDS, KEYS
    from isocast.terms.topology import CITIES

    kinds = [(f'`"{kind}"`', text) for kind, text in FAULT_KINDS.items()]
    cities = [(place.name, f"`{place.code}`") for place in CITIES]
    return "\n".join(
        [
            _HEAD,
            "## Keys\n",
            key_table(KEYS),
            "## Faults\n",
            "A fault begins `at` an instant and lasts for `duration`, or `until` another, or to the end of the run.\n",
            markdown_table(("`kind`", "what happens"), kinds),
            key_table(FAULT_KEYS),
            _CITIES,
            markdown_table(("city", "code"), cities).rstrip("\n"),
            "",
        ]
    )


def keys_as_json() -> dict[str, object]:
    """The same for programs."""
    from isocast.cli.key_page import key_as_json
    from isocast.simulation.scenario_keys import FAULT_KEYS, FAULT_KINDS, KEYS
    from isocast.terms.topology import CITIES

    return {
        "keys": [key_as_json(key) for key in KEYS],
        "fault_keys": [key_as_json(key) for key in FAULT_KEYS],
        "fault_kinds": FAULT_KINDS,
        "cities": [{"name": place.name, "code": place.code} for place in CITIES],
    }


@app.command(
    help_epilogue="""Example:

    isocast sim mutants
"""
)
def mutants(*, json: Flag = False) -> int:
    """List the mutants: rules of the protocol that a swarm can switch off to see that the checkers notice.

    Parameters
    ----------
    json
        Print a JSON list instead of a table.
    """
    from isocast.simulation.mutants import MUTANTS

    known = list(MUTANTS.values())
    if json:
        show_json([{"name": mutant.name, "rule": mutant.rule, "mistake": mutant.mistake} for mutant in known])
    else:
        rows = [(mutant.name, str(mutant.mistake or ""), mutant.rule) for mutant in known]
        show_table("Mutants; mistakes 1 to 10 are those that the design expects", ("name", "mistake", "rule"), rows)
    return 0
