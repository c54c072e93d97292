"""`isocast sim`: run scenarios and swarms of random worlds, and explain keys and mutants."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import App, Parameter
from cyclopts.validators import Number

from isocast.cli.render import Progress, figure, line, show_json, show_table, showed_whole, working
from isocast.cli.sim_explore import EXPLORE_EXAMPLES, explore
from isocast.cli.sim_sweep import SWEEP_EXAMPLES, sweep
from isocast.terms.errors import ConfigurationError

if TYPE_CHECKING:
    from isocast.checks.facts import Fact
    from isocast.simulation.swarm import SwarmReport

__all__ = ["app"]

app = App(
    name="sim",
    help="Simulate: the protocol's own machines in virtual time, every run a function of one seed.",
    help_epilogue="Start with:\n\n    isocast sim run scenarios/quiet.toml\n",
)

app.command(explore, help_epilogue=EXPLORE_EXAMPLES)
app.command(sweep, help_epilogue=SWEEP_EXAMPLES)

_Flag: TypeAlias = Annotated[bool, Parameter(negative="")]
_Seed: TypeAlias = Annotated[int, Parameter(validator=Number(gte=0, lt=2**63))]
_Count: TypeAlias = Annotated[int, Parameter(validator=Number(gte=1))]

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

    isocast sim run scenarios/lossy-world.toml

    isocast sim run scenarios/paper/recovery-k30.toml --seed 7 --json

Exit code: 0 safe, 1 a property was violated, 2 bad input. `isocast sim keys` explains what a scenario may say.
"""
)
def run(scenario: Path, /, *, seed: _Seed | None = None, json: _Flag = False, transcript: Path | None = None) -> int:
    """Run one scenario under the checkers and report its figures.

    Parameters
    ----------
    scenario
        A TOML file, such as those in scenarios/.
    seed
        The seed, if not the scenario's own. The same seed gives the same run.
    json
        Print one JSON object instead of a table.
    transcript
        Write what happened to this file, a line for each event.
    """
    from isocast.simulation.scenario import load_scenario

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
        _show_some("VIOLATED", [str(violation) for violation in violations])
    else:
        line("Safe: no property was violated.")


def _show_some(heading: str, lines: list[str]) -> None:
    line(f"{heading}: {len(lines)}")
    for text in lines[:_LINES_SHOWN]:
        line(f"  {text}")
    if len(lines) > _LINES_SHOWN:
        line(f"  … and {len(lines) - _LINES_SHOWN} more (--json lists all)")


def _shown(name: str, value: object) -> str:
    return str(value) if name == "seed" else figure(value)


@app.command(
    help_epilogue="""Examples:

    isocast sim show

    isocast sim show scenarios/partition.toml --speed 5

Exit code: 0 safe, 1 a checker found a violation. Ctrl-C ends it with its summary.
"""
)
def show(
    scenario: Path | None = None,
    /,
    *,
    seed: _Seed | None = None,
    speed: Annotated[float | None, Parameter(validator=Number(gt=0, lte=1000))] = None,
    headless: _Flag = False,
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

Exit code: 0 no seed failed, 1 one did. With --mutant the other way round: 0 the mutant was caught, 1 it lives.
"""
)
def swarm(
    *,
    seeds: _Count = 100,
    first_seed: _Seed = 1,
    jobs: _Count | None = None,
    mutant: str | None = None,
    json: _Flag = False,
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
    json
        Print one JSON object instead of tables.
    """
    from isocast.simulation.swarm import run_swarm

    if mutant is not None:
        _check_mutant(mutant)
    workers = jobs or os.cpu_count() or 1
    with Progress("seeds", seeds, quiet=json) as progress:
        report = run_swarm(
            range(first_seed, first_seed + seeds), workers, mutant, lambda state: progress.reach(state.done)
        )
    if json:
        show_json(report.as_json())
    else:
        _show_swarm(report)
    failed = bool(report.failures)
    return int(failed if mutant is None else not failed)


def _show_swarm(report: SwarmReport) -> None:
    """Totals, the seeds that failed, and the first of them made small."""
    from isocast.cli.scenario_text import scenario_text

    totals = ("first_seed", "seeds", "tokens", "messages", "rings", "deliveries")
    title = f"Swarm with mutant {report.mutant}" if report.mutant else "Swarm"
    show_table(title, ("", "value"), [(name.replace("_", " "), figure(getattr(report, name))) for name in totals])
    if not report.failures:
        line("The mutant lives: no seed caught it." if report.mutant else "Safe: no seed failed.")
        return
    if report.mutant:
        line(f"Caught by {report.caught_by} at seed {report.failures[0].seed}.")
    lines = [f"seed {result.seed}: {violation}" for result in report.failures for violation in result.violations]
    _show_some("VIOLATED", lines)
    rule = f" --mutant {report.mutant}" if report.mutant else ""
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
    from isocast.simulation.scenario_values import suggestion

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
def keys(*, json: _Flag = False, markdown: _Flag = False) -> int:
    """List and explain the keys of a scenario file.

    Parameters
    ----------
    json
        Print one JSON object instead of tables.
    markdown
        Print the reference page.
    """
    from isocast.cli.keys_page import keys_as_json, keys_page
    from isocast.simulation.fault_keys import FAULT_KEYS, FAULT_KINDS
    from isocast.simulation.scenario_keys import KEYS

    if showed_whole(keys_as_json if json else None, keys_page if markdown else None):
        return 0
    headers = ("key", "symbol", "value", "default", "meaning")
    for title, table in (("Keys of a scenario file; times in seconds", KEYS), ("Keys of [[faults]]", FAULT_KEYS)):
        rows = [(key.name, key.symbol, key.type_text, key.default, key.meaning) for key in table]
        show_table(title, headers, rows)
    show_table("Kinds of faults", ("kind", "what happens"), list(FAULT_KINDS.items()))
    return 0


@app.command(
    help_epilogue="""Example:

    isocast sim mutants
"""
)
def mutants(*, json: _Flag = False) -> int:
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
