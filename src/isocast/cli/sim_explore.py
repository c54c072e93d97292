"""`isocast sim explore`: every interleaving of a small market, with the product's own machines."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import Parameter
from cyclopts.validators import Number

from isocast.cli.render import figure, line, note, show_json, show_table
from isocast.terms.errors import ConfigurationError

if TYPE_CHECKING:
    from isocast.simulation.exploration.bounds import Bounds
    from isocast.simulation.exploration.search import SearchProgress
    from isocast.simulation.exploration.verdict import Verdict

__all__ = ["EXPLORE_EXAMPLES", "explore"]

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

_Flag: TypeAlias = Annotated[bool, Parameter(negative="")]
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
    majorities_only: _Flag = False,
    flying: _Flag = False,
    requests: _Flag = False,
    rivals: _Flag = False,
    sources: _Flag = False,
    unreduced: _Flag = False,
    states_max: Annotated[int, Parameter(validator=Number(gte=0))] = 0,
    mutant: str | None = None,
    all_mutants: _Flag = False,
    json: _Flag = False,
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
    from isocast.simulation.exploration.bounds import Bounds
    from isocast.simulation.exploration.rules import RULES
    from isocast.simulation.scenario_values import suggestion

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


def _explored(bounds: Bounds, mutant: str | None, states_max: int, *, quiet: bool) -> Verdict:
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


def _show(verdict: Verdict) -> None:
    figures = verdict.as_json()
    names = ("states", "transitions", "depth", "exhausted", "machine_steps", "node_states")
    rows = [(name.replace("_", " "), figure(figures[name])) for name in names]
    title = f"All interleavings, mutant {verdict.mutant}" if verdict.mutant else "All interleavings, full rules"
    show_table(title, ("", "value"), [*rows, ("memory, MiB", figure(_memory_mib()))])
    _show_trace(verdict)


def _show_trace(verdict: Verdict) -> None:
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
    from isocast.simulation.exploration.rules import FOUND_AT, RULES

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


def _length(verdict: Verdict) -> str:
    return figure(len(verdict.found.trace)) if verdict.found.broken is not None else "–"


def _judged(verdict: Verdict) -> str:
    if verdict.found.broken is not None:
        return verdict.found.broken[1]
    return "nothing is broken" if verdict.found.exhausted else "nothing is broken so far"
