"""`isocast journal`: look into the journals of a site: what they hold, whether they are sound, what was released."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import App, Parameter
from cyclopts.validators import Number

from isocast.cli.options import Count, Flag
from isocast.cli.render import Progress, figure, line, show_json, show_table

if TYPE_CHECKING:
    from isocast.runtime.disk.journal_reader import SegmentSummary
    from isocast.runtime.disk.journal_record import JournalRecord
    from isocast.runtime.disk.journal_verify import VerifyReport

__all__ = ["app"]

app = App(
    name="journal",
    help="Look into journals: what a site released, when, and whether every byte of it is sound.",
    help_epilogue="Start with:\n\n    isocast journal verify data/london/journal\n",
)

_Sequence: TypeAlias = Annotated[int, Parameter(validator=Number(gte=0, lt=2**64))]

_FAULTS_SHOWN = 20
_PATIENCE_S = 2.0
"""A command that takes longer shows how far it has come."""


@app.command(
    help_epilogue="""Examples:

    isocast journal inspect data/london/journal

    isocast journal inspect data/london/journal --json

Exit code: 0 every header is sound, 1 one is damaged, 2 there is no journal.
"""
)
def inspect(directory: Path, /, *, json: Flag = False) -> int:
    """List the segments of a journal by their headers: sequences, tokens, epochs, times, events, bytes.

    Parameters
    ----------
    directory
        A site's journal, or one segment of it. It may be in use.
    json
        Print one JSON object instead of a table.
    """
    from isocast.cli.journal_text import segment_as_json, segment_row
    from isocast.runtime.disk.journal_reader import summarise

    _insist_on_segments(directory)
    segments = summarise(directory)
    if json:
        show_json({"segments": [segment_as_json(segment) for segment in segments], **_totals(segments)})
    else:
        headers = ("segment", "sequences", "tokens", "epochs", "released", "blocks", "messages", "events", "bytes")
        show_table(f"Journal {directory}", headers, [segment_row(segment) for segment in segments])
        for segment in segments:
            if segment.fetched_messages:
                line(
                    f"{segment.path.name} has {figure(segment.fetched_messages)} messages fetched from another archive."
                )
            if segment.damage is not None:
                line(f"DAMAGED {segment.damage}")
            if segment.unfinished_bytes:
                line(_unfinished(segment.path.name, segment.unfinished_bytes))
        for before, after in pairwise(segments):
            if (before.last_sequence or 0) + 1 < (after.first_sequence or 0):
                line(
                    f"GAP: sequences {(before.last_sequence or 0) + 1} to {(after.first_sequence or 0) - 1} are missing"
                )
        if directory.is_dir() and (told := _beginning(segments)):
            line(told)
        totals = ", ".join(f"{figure(value)} {name}" for name, value in _totals(segments).items())
        line(f"{figure(len(segments))} segment{'s' * (len(segments) != 1)}: {totals}.")
    return 1 if any(segment.damage for segment in segments) else 0


def _beginning(segments: list[SegmentSummary]) -> str:
    """Where a journal begins, if not with the first sequence, and whether that is where it should."""
    from isocast.runtime.disk.journal_record import missing_beginning, read_record
    from isocast.terms.errors import JournalError

    first = segments[0]
    sequence = first.first_sequence or 0
    try:
        record = read_record(first.path.parent, first.stripe, first.site)
    except JournalError as damage:
        return f"DAMAGED {damage}"
    fault = missing_beginning(record, sequence)
    if fault is not None:
        return f"GAP: {fault}"
    return "" if record is None or sequence <= 1 else _begins(record, sequence)


def _begins(record: JournalRecord, sequence: int) -> str:
    return f"Begins with sequence {figure(sequence)}: messages before it {record.why.text}."


def _insist_on_segments(directory: Path) -> None:
    """A mistyped path is not a sound journal."""
    from isocast.runtime.disk.journal_segments import segment_files
    from isocast.terms.errors import JournalError

    if not segment_files(directory):
        raise JournalError(str(directory), "there is no segment of a journal here")


def _totals(segments: list[SegmentSummary]) -> dict[str, int]:
    return {
        "blocks": sum(segment.blocks for segment in segments),
        "messages": sum(segment.messages for segment in segments),
        "events": sum(segment.events for segment in segments),
        "bytes": sum(segment.bytes for segment in segments),
    }


def _unfinished(name: str, count: int) -> str:
    return f"{name} ends in {figure(count)} bytes of an unfinished block: a writer is at work there, or was killed."


@app.command(
    help_epilogue="""Examples:

    isocast journal verify data/london/journal

    isocast journal verify data/london/journal --json

Two sites that released the same have the same digests. An unfinished block at the very end is no fault: the site cuts
it off when it starts. Exit code: 0 sound, 1 something is wrong, 2 there is no journal.
"""
)
def verify(directory: Path, /, *, json: Flag = False) -> int:
    """Read every byte of a journal and name what is wrong: damage, gaps, overlaps, disorder, early releases.

    Parameters
    ----------
    directory
        A site's journal, or one segment of it. It may be in use.
    json
        Print one JSON object instead of a table.
    """
    from isocast.runtime.disk.journal_verify import verify as verify_journal

    _insist_on_segments(directory)
    with _patiently(quiet=json) as progress:
        report = verify_journal(directory, progress)
    if json:
        show_json(_report_as_json(report))
    else:
        _show_report(directory, report)
    return 0 if report.is_sound else 1


@contextmanager
def _patiently(*, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Progress in bytes, from the moment on when it has taken two seconds."""
    began = monotonic()
    with ExitStack() as stack:
        shown: list[Progress] = []

        def reach(done: int, total: int) -> None:
            if not shown and monotonic() - began >= _PATIENCE_S:
                shown.append(stack.enter_context(Progress("bytes", total, quiet=quiet)))
            for progress in shown:
                progress.reach(done)

        yield reach


def _report_as_json(report: VerifyReport) -> dict[str, object]:
    from isocast.checks.journals import FaultKind

    return {
        "sound": report.is_sound,
        "segments": report.segments,
        "blocks": report.blocks,
        "messages": report.messages,
        "events": report.events,
        "bytes": report.bytes,
        "first_sequence": report.first_sequence,
        "next_sequence": report.next_sequence,
        "fetched_messages": report.fetched_messages,
        "unfinished_bytes": report.unfinished_bytes,
        "begins": None if report.record is None else report.record.why.value,
        "not_judged": {"release_delay_blocks": report.unjudged_delays},
        "labels_digest": report.labels_digest,
        "events_digest": report.events_digest,
        "faults": {kind.value: report.counts[kind] for kind in FaultKind},
        "first_faults": [fault._asdict() for fault in report.faults],
    }


def _show_report(directory: Path, report: VerifyReport) -> None:
    from isocast.checks.properties import explained

    last = None if report.next_sequence is None else report.next_sequence - 1
    rows = [
        ("segments", figure(report.segments)),
        ("blocks", figure(report.blocks)),
        ("messages", figure(report.messages)),
        ("events", figure(report.events)),
        ("fetched from others", figure(report.fetched_messages)),
        ("bytes", figure(report.bytes)),
        ("first sequence", figure(report.first_sequence)),
        ("last sequence", figure(last)),
        ("digest of all labels", report.labels_digest),
        ("digest of all events", report.events_digest),
    ]
    rows += [(f"faults: {kind}", figure(count)) for kind, count in sorted(report.counts.items())]
    show_table(f"Journal {directory}", ("", "value"), rows)
    if report.unfinished_bytes:
        line(_unfinished("The newest segment", report.unfinished_bytes))
    if report.record is not None and (report.first_sequence or 0) > 1:
        line(_begins(report.record, report.first_sequence or 0))
    if report.unjudged_delays:
        count = figure(report.unjudged_delays)
        line(f"Not checked: whether {count} blocks were due at T_t + Δ_A; the journal does not record Δ_A for them.")
    if report.is_sound:
        line("Sound: nothing is wrong. Whether it ends too soon, other sites tell: isocast lake audit.")
        return
    line(f"WRONG: {figure(report.counts.total())}, the first of them {report.faults[0]}")
    for fault in report.faults[1:_FAULTS_SHOWN]:
        line(f"  {fault}")
    if report.counts.total() > _FAULTS_SHOWN:
        line(f"  … and {figure(report.counts.total() - _FAULTS_SHOWN)} more (--json lists a thousand)")
    for text in explained(fault.law for fault in report.faults):
        line(text)


@app.command(
    help_epilogue="""Examples:

    isocast journal repair data/london/journal

Nothing is thrown away: files that are set aside keep their bytes under another name. Start the node afterwards: it
takes what is whole from them and what is damaged from other archives, and releases nothing before that.
Exit code: 0 nothing is damaged any more, 2 there is no journal, or it is in use.
"""
)
def repair(directory: Path, /, *, json: Flag = False) -> int:
    """Set damaged segments of a journal aside, so that its node fills it from other archives. Stop the node first.

    Parameters
    ----------
    directory
        A site's journal.
    json
        Print one JSON object instead of sentences.
    """
    from isocast.runtime.disk.journal_verify import set_damage_aside

    _insist_on_segments(directory)
    done = set_damage_aside(directory)
    files = [] if done is None else [str(path) for path in done.files]
    if json:
        show_json({"damage": None if done is None else str(done.damage), "set_aside": files})
    elif done is None:
        line("Nothing is damaged.")
    else:
        line(f"DAMAGED {done.damage}")
        for file in files:
            line(f"  set aside: {file}")
        line("Start the node: it fills its journal from these and from other archives.")
    return 0


@app.command(
    help_epilogue="""Examples:

    isocast journal cat data/london/journal --limit 20

    isocast journal cat data/london/journal --from 5000 --to 5010

    isocast journal cat data/london/journal --from 5000 --limit 1000 --json

Exit code: 0 fine, 2 there is no journal, or it is damaged where it is read.
"""
)
def cat(
    directory: Path,
    /,
    *,
    from_: Annotated[_Sequence | None, Parameter(name="--from")] = None,
    to: _Sequence | None = None,
    limit: Count | None = None,
    json: Flag = False,
) -> int:
    """Print what was released, a row for each event, in sequence order.

    Parameters
    ----------
    directory
        A site's journal, or one segment of it. It may be in use.
    from_
        The first sequence; the oldest that is kept if left out.
    to
        The last sequence; the newest if left out.
    limit
        How many rows at most.
    json
        Print one JSON list instead of rows.
    """
    from itertools import islice

    from isocast.cli.journal_text import rows_of, show_json_rows, show_rows
    from isocast.runtime.disk.journal_reader import read_blocks

    _insist_on_segments(directory)
    blocks = read_blocks(directory, from_, to)
    rows = islice((row for block in blocks for row in rows_of(block, from_, to)), limit)
    if json:
        show_json_rows(rows)
    else:
        show_rows(rows)
    return 0
