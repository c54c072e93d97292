"""What the demo says at its end: what was promised, what the journals prove, and what to try next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from isocast.cli.demo_lake import LakeBeside, LakeStage
from isocast.cli.skew_text import skew_words
from isocast.runtime.market.model import Grade, Market, NodeRole
from isocast.terms.instants import SECOND
from isocast.terms.quantities import counted
from isocast.trials.demo.summary import CustomerLine, Summary
from isocast.trials.evidence import journal_of

__all__ = ["next_steps", "summary_lines"]

_LABEL = 12
_FAULTS_SHOWN = 12


def summary_lines(summary: Summary) -> Iterator[str]:
    """Lines of at most 100 characters."""
    figures = summary.figures
    interrupted = ", interrupted" if summary.interrupted else ""
    yield ""
    yield f"{summary.seconds:.1f} s of a market of {summary.nodes} processes, from the journals of all{interrupted}"
    yield ""
    floors = ", ".join([f"{mic} {count:,}" for mic, count in sorted(summary.by_floor.items())])
    yield from _entry(
        "messages",
        f"{summary.messages:,} in one sequence with {counted(summary.events, 'event')}"
        f" of {summary.published:,} published",
        f"{floors}; the same in the journals of {summary.places} receivers",
    )
    yield from _entry(
        "latency",
        f"{figures.latency_ns / SECOND:.3f} s submit to release, formula {summary.formula.value:.3f} s:"
        f" {summary.ratio:.2f} of it",
        f"{summary.formula.symbols} = {_short(summary.formula.numbers)}",
        *_left_out(summary),
    )
    lateness = figures.lateness
    busy = "there is one clock here: what is beyond 2ε was released by a process that waited for its turn"
    yield from _entry(
        "skew",
        *skew_words(figures.skew),
        f"releases were late by {_ms(lateness.p50_ns)} median, {_ms(lateness.p99_ns)} p99;"
        f" too late is more than P = {summary.late_after_ns / 1e6:g} ms",
        *([busy] if figures.skew.exceeding else []),
    )
    yield from _entry(
        "losses",
        f"{counted(summary.lost, 'packet')} lost on purpose, {summary.lost_at_receivers:,} of them at receivers;"
        f" {summary.kernel_drops or 'none'} by the kernel",
        f"{counted(summary.nacks, 'NACK')}, {counted(summary.repairs, 'repair')}; nothing is missing"
        if not summary.gaps
        else f"{counted(summary.nacks, 'NACK')}, {counted(summary.repairs, 'repair')};"
        f" {counted(summary.gaps, 'message')} missing",
    )
    yield from _entry("rings", *_rings(summary))
    for place, customer in enumerate(summary.customers):
        yield from _entry("" if place else "customers", _customer(customer))
    yield from _entry("gaps", f"{summary.gaps:,}" if summary.gaps else "none: every receiver has every sequence, once")
    yield from _entry("early", f"{summary.early:,}" if summary.early else "none: nothing was out before its instant")
    if summary.faults:
        more = len(summary.faults) - _FAULTS_SHOWN
        rest = [f"and {more} more"] if more > 0 else []
        yield from _entry("WRONG", *summary.faults[:_FAULTS_SHOWN], *rest)
    yield ""


def _left_out(summary: Summary) -> Iterator[str]:
    """Of the latency: the formula knows no time without a ring."""
    figures = summary.figures
    if figures.disturbed:
        share = f"{figures.disturbed:,} of {figures.measured + figures.disturbed:,} releases"
        yield f"left out: {share}, which waited for a ring or were a city's that was away"
    if summary.rings > 1:
        yield f"{figures.latency_all_ns / SECOND:.3f} s with the time without a ring"


def _entry(name: str, *texts: str) -> Iterator[str]:
    for place, text in enumerate(texts):
        yield f"  {'' if place else name:<{_LABEL}}{text}"


def _ms(span_ns: int) -> str:
    return f"{span_ns / 1e6:.1f} ms"


def _short(numbers: str) -> str:
    """The formula's numbers to the millisecond."""
    parts = numbers.replace("+", " + ").split(" ")
    return "".join([f"{float(part):.3f}" if part.replace(".", "", 1).isdigit() else part for part in parts])


def _rings(summary: Summary) -> Iterator[str]:
    story = summary.story
    again = summary.rings - 1
    formed = f"{summary.rings} formed, {again} of them again" if again > 0 else f"{summary.rings} formed"
    held = f"; {summary.fairness_faults} times a token was held up, and said so" if summary.fairness_faults else ""
    yield formed + held
    if story.killed_at:
        without = f"ring without it after {_since(summary, story.reformed_at)}"
        back = f"on the ring again after {_since(summary, story.whole_at)}"
        yield f"{summary.victim} killed before its token {story.token_number}: {without}, {back}"


def _since(summary: Summary, instant: int) -> str:
    return f"{(instant - summary.story.killed_at) / SECOND:.1f} s" if instant else "… not yet"


def _customer(line: CustomerLine) -> str:
    who = f"{line.name}, {line.city}, {line.grade}: "
    if line.grade is Grade.COMPLETE:
        gaps = f"{line.gaps:,} MISSING" if line.gaps else "gaps: none"
        closed = f"; {line.gaps_repaired} of {line.gaps_seen} closed by the archive" if line.gaps_seen else ""
        return f"{who}{counted(line.messages, 'message')}, {gaps}{closed}"
    return f"{who}{counted(line.messages, 'message')}, {line.skipped:,} skipped"


def next_steps(kept: Market | None, lake: LakeBeside | None = None) -> Iterator[str]:
    """Commands to copy; `kept` is a market that was left where it is, `lake` its tables."""
    here = Path(".venv/bin/isocast")
    command = str(here) if here.exists() else "isocast"
    yield "Next:"
    if kept is None:
        yield f"  {command} demo --keep /tmp/market   # and go on with its market by hand"
        yield f"  {command} demo --seconds 60 --loss 0.1"
        yield f"  {command} sim show                  # ten cities in virtual time"
        return
    journal = journal_of(kept, kept.receivers[0].name)
    floor = kept.by_role(NodeRole.PRIMARY_SOURCE)[0].name
    config = f"--config {kept.file}"
    event = """'{"kind": "trade", "floor": "XNYS", "symbol": "IBM", "price": "120.00", "quantity": 100, "id": 1}'"""
    yield f"  {command} journal verify {journal}"
    yield f"  {command} journal cat {journal} --limit 20"
    if lake is not None and lake.stage is LakeStage.DONE:
        yield f"  {command} lake bars --lake {lake.root} --interval 5s"
        yield f"  {command} lake fairness {config}"
    yield f"  {command} up {config}   # the same market again"
    yield "and while it runs, in other terminals:"
    yield f"  {command} top {config}"
    yield f"  {command} listen {config}"
    yield f"  echo {event} | {command} publish {config} --source {floor}"
