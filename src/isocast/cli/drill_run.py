"""Runs drills one after the other, and shows them: progress, releases of every site over time, tables, the verdict."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Self

from isocast.cli.demo_run import COMMANDS, kept_directory
from isocast.cli.render import line, note, show_json, show_table
from isocast.runtime.operate import shutdown
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import SECOND
from isocast.terms.quantities import suggestion
from isocast.trials.demo.cast import DemoNetwork, own_place
from isocast.trials.demo.staging import new_nursery
from isocast.trials.drill.cast import SITES, TIMINGS, DrillSettings
from isocast.trials.drill.run import DRILLS, Drill, run_drill
from isocast.trials.drill.safety import Outcome, Picture

if TYPE_CHECKING:
    from rich.status import Status

__all__ = [
    "DrillOptions",
    "bound_lines",
    "list_drills",
    "outcome_lines",
    "picture_lines",
    "run_drills",
    "show_outcomes",
]


# What people see of drills: the releases of every site over time, a table, and the bound in numbers.


_BARS = "▁▂▃▄▅▆▇█"
_NOTHING = "·"
_FAULT, _WHOLE = "▼", "△"
_NONE = "–"


def outcome_lines(drill: Drill, outcome: Outcome) -> list[str]:
    """One drill as it ends: what it did, what it cost, and the picture."""
    verdict = "passed" if outcome.passed else "FAILED"
    what = f"{drill.name}: {drill.what}"
    costs = f"{verdict}; detected in {_span(outcome.detected_ns)}, outage {_span(outcome.outage_ns)}"
    why = [f"  {outcome.why}"] if outcome.why else []
    return [what, f"  {costs}", *why, *picture_lines(outcome.picture), ""]


def picture_lines(picture: Picture) -> list[str]:
    """A row for each site: how much it released, part by part; the marks are the fault, and the end of it all."""
    if not picture.rows:
        return []
    wide = max(map(len, picture.rows)) + 2
    parts = max(map(len, picture.rows.values()))
    top = max([1, *[count for row in picture.rows.values() for count in row]])
    marks = [" "] * parts
    for instant, mark in ((picture.whole_at, _WHOLE), (picture.fault_at, _FAULT)):
        if instant:
            marks[min(max((instant - picture.start) // picture.part_ns, 0), parts - 1)] = mark
    lines = [f"  {'':{wide}}{''.join(marks)}".rstrip()]
    for name, row in picture.rows.items():
        lines.append(f"  {name:{wide}}{''.join([_bar(count, top) for count in row])}")
    scale = f"{_FAULT} fault  {_WHOLE} whole again; {picture.part_ns / SECOND:.2g} s for each sign, {_NOTHING} nothing"
    return [*lines, f"  {'':{wide}}{scale}"]


def _bar(count: int, top: int) -> str:
    """By the square root, so that an ordinary token is seen beside a backlog that goes out at once."""
    return _BARS[round(sqrt(count / top) * (len(_BARS) - 1))] if count else _NOTHING


def show_outcomes(outcomes: Sequence[Outcome]) -> None:
    """The table."""
    headers = ("drill", "", "detected in", "outage", "lost", "repeated", "divergent", "ballot to token", "bound", "")
    rows = [
        (
            outcome.drill,
            "passed" if outcome.passed else "FAILED",
            _span(outcome.detected_ns),
            _span(outcome.outage_ns),
            str(outcome.safety.lost),
            str(outcome.safety.repeated),
            str(outcome.safety.divergent),
            _span(outcome.ballot_to_token_ns),
            _span(outcome.bound_ns),
            {True: "✓", False: "✗", None: ""}[outcome.within_bound],
        )
        for outcome in outcomes
    ]
    show_table("Drills", headers, rows)


def bound_lines(outcomes: Sequence[Outcome], settings: DrillSettings) -> list[str]:
    """The bound in symbols, and what a lost site cost at most."""
    bounds = {outcome.bound: outcome.bound_ns for outcome in outcomes}
    times = ", ".join([f"{name} {value}" for name, value in TIMINGS[settings.profile].items()])
    lines = [f"Bound, from ballot to first new token ({times}):"]
    for formula, bound_ns in bounds.items():
        names = ", ".join([outcome.drill for outcome in outcomes if outcome.bound == formula])
        lines.append(f"  {_span(bound_ns)} = {formula}: {names}")
    lines.append("  Detection is apart. ✗ on a machine that others use too is a measurement, not a failure.")
    single = [outcome.outage_ns for outcome in outcomes if outcome.victims == 1 and outcome.outage_ns is not None]
    if single:
        lines.append(f"A market of {len(SITES)} sites that lost one went on after at most {_span(max(single))}.")
    return lines


def _span(span_ns: int | None) -> str:
    return _NONE if span_ns is None else f"{span_ns / SECOND:.3f} s"


@dataclass(frozen=True, slots=True)
class DrillOptions:
    """What the command line says."""

    names: Sequence[str]
    settings: DrillSettings
    keep: Path | None = None
    as_json: bool = False


def list_drills(*, as_json: bool) -> int:
    """Their names, and what they do."""
    if as_json:
        show_json([{"drill": drill.name, "what": drill.what} for drill in DRILLS])
    else:
        show_table("", ("drill", "what it does"), [(drill.name, drill.what) for drill in DRILLS])
    return 0


def run_drills(options: DrillOptions) -> int:
    """All that were named; 1 if one did not pass."""
    drills = _chosen(options.names)
    with kept_directory(options.keep, "drill") as directory, own_place() as place:
        outcomes = shutdown.run(_run(drills, options, directory, place))
    if options.as_json:
        show_json([outcome.as_json() for outcome in outcomes])
    else:
        show_outcomes(outcomes)
        for text in bound_lines(outcomes, options.settings):
            line(text)
        if options.keep is not None:
            line(f"Every market is in {options.keep}: its file, its journals, its logs, and the ledger of its load.")
    return 0 if all(outcome.passed for outcome in outcomes) else 1


def _chosen(names: Sequence[str]) -> list[Drill]:
    known = {drill.name: drill for drill in DRILLS}
    for name in names:
        if name not in known:
            hint = suggestion(name, known) or f"; there are {', '.join(known)}"
            raise ConfigurationError("command line", "NAME", f"there is no drill {name}{hint}")
    return [drill for drill in DRILLS if not names or drill.name in names]


async def _run(drills: Sequence[Drill], options: DrillOptions, directory: Path, place: DemoNetwork) -> list[Outcome]:
    outcomes: list[Outcome] = []
    with _Steps(options) as steps:
        async with new_nursery(COMMANDS) as nursery:
            for place_number, drill in enumerate(drills, 1):
                steps.begin(f"{place_number} of {len(drills)}: {drill.name}")
                where = directory / drill.name
                where.mkdir()
                outcome = await run_drill(drill, where, place, options.settings, nursery, steps.tell)
                outcomes.append(outcome)
                steps.end(drill, outcome)
    return outcomes


class _Steps:
    """What is going on: a spinner on a terminal, lines elsewhere; to programs nothing but the end is said."""

    def __init__(self, options: DrillOptions) -> None:
        self._quiet = options.as_json
        self._status: Status | None = None
        self._name = ""
        self._began = monotonic()

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console

            self._status = Console(stderr=True).status("")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def begin(self, name: str) -> None:
        """The next drill."""
        self._name, self._began = name, monotonic()
        if not self._quiet and self._status is None:
            note(name)

    def tell(self, step: str) -> None:
        """Where it is."""
        if self._status is not None:
            self._status.update(f"{self._name}, {monotonic() - self._began:.0f} s: {step}")

    def end(self, drill: Drill, outcome: Outcome) -> None:
        """What it showed, with its picture."""
        if self._quiet:
            return
        if self._status is not None:
            self._status.stop()
        for text in outcome_lines(drill, outcome):
            line(text)
        with suppress(OSError):
            sys.stdout.flush()
        if self._status is not None:
            self._status.start()
