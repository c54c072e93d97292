"""What people see of drills: the releases of every site over time, a table, and the bound in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from isocast.cli.render import show_table
from isocast.terms.instants import SECOND
from isocast.trials.drill.cast import SITES, TIMINGS, DrillSettings
from isocast.trials.drill.drills import Drill
from isocast.trials.drill.report import Outcome, Picture

__all__ = ["bound_lines", "outcome_lines", "picture_lines", "show_outcomes"]

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
