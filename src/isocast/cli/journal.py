"""`isocast journal`: look into the journals of a site: what they hold, whether they are sound, what was released."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import App, Parameter
from cyclopts.validators import Number

from isocast.cli.options import Count, Flag, Rosters
from isocast.cli.render import Progress, figure, line, note, show_json, show_table
from isocast.terms.quantities import counted

if TYPE_CHECKING:
    from isocast.checks.shuffles import Shuffles
    from isocast.checks.vouchers import Vouched
    from isocast.runtime.disk.journal_reader import SegmentSummary
    from isocast.runtime.disk.journal_record import JournalRecord
    from isocast.runtime.disk.journal_verify import Prover, VerifyReport

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
                fetched = counted(segment.fetched_messages, "message")
                line(f"{segment.path.name} has {fetched} fetched from another archive.")
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
        totals = ", ".join(counted(value, name.removesuffix("s")) for name, value in _totals(segments).items())
        line(f"{counted(len(segments), 'segment')}: {totals}.")
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

    isocast journal verify data/london/journal --roster keys/roster.bin

Two sites that released the same have the same digests. An unfinished block at the very end is no fault: the site cuts
it off when it starts. With --roster, tokens and messages at the end may wait for vouchers that come with the next
blocks.

Exit code: 0 sound, and with --roster proven; 1 something is wrong, or not proven; 2 there is no journal or roster.
"""
)
def verify(directory: Path, /, *, roster: Rosters = (), json: Flag = False) -> int:
    """Read every byte of a journal and name what is wrong: damage, gaps, overlaps, disorder, early releases.

    Parameters
    ----------
    directory
        A site's journal, or one segment of it. It may be in use.
    roster
        Prove by this roster, offline, that a majority of the sites signed exactly this sequence (S17), and each source
        what is in its name (S21). Repeat it where the journal was signed under several; the oldest says whose majority
        counts.
    json
        Print one JSON object instead of a table.
    """
    from isocast.runtime.disk.journal_verify import verify as verify_journal

    _insist_on_segments(directory)
    prover, told = _prover(roster)
    with _patiently(quiet=json) as progress:
        report = verify_journal(directory, progress, prover=prover)
    if json:
        show_json(_report_as_json(report))
    else:
        _show_report(directory, report)
        if report.vouched is not None:
            _show_vouched(report.vouched, told)
    return 0 if report.is_sound and (report.vouched is None or report.vouched.is_whole) else 1


def _prover(paths: tuple[Path, ...]) -> tuple[Prover | None, str]:
    """The judge of S17 by some rosters, and whose they are."""
    from isocast.checks.vouchers import VoucherWalk
    from isocast.runtime.market.roster_files import read_roster_file
    from isocast.security.identities import fingerprint_of
    from isocast.security.witness import RosterWitness, resealed
    from isocast.terms.errors import ConfigurationError, RosterError

    if not paths:
        return None, ""
    rosters = [read_roster_file(path) for path in paths]
    try:
        witness = RosterWitness(rosters)
    except RosterError as error:
        raise ConfigurationError(str(paths[0]), "roster", str(error)) from None
    serials = ", ".join(str(one.serial) for one in witness.rosters)
    told = f"Roster {serials} of the market {rosters[0].name}, root {fingerprint_of(rosters[0].root)}."
    return lambda stripe: VoucherWalk(stripe, witness.voters(stripe), witness, resealed), told


def _show_vouched(vouched: Vouched, told: str) -> None:
    """Which tokens are proven, by whom, which are not and why."""
    from isocast.terms.ids import describe

    line(f"{told} Compare the root with what its operator says: everything below rests on it.")
    until = vouched.proven_until
    line(
        f"PROVEN: {figure(vouched.proven_tokens)} of {counted(vouched.tokens, 'token')}"
        f" ({counted(vouched.proven_messages, 'message')})"
        + (f", everything before sequence {figure(until)}." if until is not None else ".")
    )
    for site, count in sorted(vouched.signed.items()):
        line(f"  {describe(site)} vouched for {counted(count, 'token')}")
    if vouched.waiting_tokens:
        line(f"  waiting at the end: {counted(vouched.waiting_tokens, 'token')}; vouchers come with the next blocks")
    if vouched.keyed_tokens:
        line(
            f"  shuffle keys: {figure(vouched.keyed_tokens)} made again from the nonces that owners revealed,"
            f" {figure(vouched.committed_tokens)} of these nonces as committed to before"
        )
        line(
            f"  shuffles: {figure(vouched.shuffled_tokens)} of {counted(vouched.mixed_tokens, 'token')} with messages"
            " of several sources stand where these keys put them"
        )
    sources = vouched.sources
    for source, count in sorted(sources.signed.items()):
        line(f"  {describe(source)} signed for {counted(count, 'message')} in its name")
    if sources.waiting:
        line(f"  waiting at the end: {counted(sources.waiting, 'message')} that their sources have yet to sign for")
    if sources.before:
        line(f"  at the beginning: {counted(sources.before, 'message')} whose sources signed before the journal begins")
    if vouched.unopened_messages:
        line(f"  without content: {counted(vouched.unopened_messages, 'message')} that no site could open, or might")
    for source, count in sorted(sources.unsigned.items()):
        line(f"NOT SIGNED: {counted(count, 'message')} in the name of {describe(source)}")
    for run in sources.listed[:_FAULTS_SHOWN]:
        name = describe(run.source)
        line(f"  messages {run.first} to {run.last} of {name}, from sequence {run.sequence} on: {run.reason}")
    for reason, count in vouched.reasons.most_common():
        line(f"NOT PROVEN: {counted(count, 'token')}: {reason}")
    for one in vouched.unproven[:_FAULTS_SHOWN]:
        line(f"  token {one.token_number} of epoch {one.epoch}, sequences {one.sequence} to {one.last_sequence}")


def _vouched_as_json(vouched: Vouched) -> dict[str, object]:
    return {
        "whole": vouched.is_whole,
        "universe": list(vouched.universe),
        "tokens": vouched.tokens,
        "proven_tokens": vouched.proven_tokens,
        "proven_messages": vouched.proven_messages,
        "proven_until": vouched.proven_until,
        "waiting_tokens": vouched.waiting_tokens,
        "unopened_messages": vouched.unopened_messages,
        "signed": {str(site): count for site, count in sorted(vouched.signed.items())},
        "unproven": dict(vouched.reasons),
        "first_unproven": [{**one._asdict(), "epoch": str(one.epoch)} for one in vouched.unproven],
        "shuffles": {
            "mixed_tokens": vouched.mixed_tokens,
            "shuffled_tokens": vouched.shuffled_tokens,
            "keyed_tokens": vouched.keyed_tokens,
            "committed_tokens": vouched.committed_tokens,
        },
        "sources": {
            "signed": {str(source): count for source, count in sorted(vouched.sources.signed.items())},
            "unsigned": {str(source): count for source, count in sorted(vouched.sources.unsigned.items())},
            "first_unsigned": [run._asdict() for run in vouched.sources.listed],
            "waiting_messages": vouched.sources.waiting,
            "messages_before": vouched.sources.before,
        },
    }


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
        "shuffles": {**asdict(report.shuffles), "is_shuffled": report.shuffles.is_shuffled},
        "proof": None if report.vouched is None else _vouched_as_json(report.vouched),
        "faults": {kind.value: report.counts[kind] for kind in FaultKind},
        "first_faults": [fault._asdict() for fault in report.faults],
    }


def _shuffle_rows(shuffles: Shuffles) -> list[tuple[str, str]]:
    """Tokens of several sources, and whether their messages stand where the token's key puts them."""
    mixed = shuffles.verified + shuffles.other
    if not mixed:
        return [("shuffles verified", "none: no token has messages of several sources")]
    told = f"{figure(shuffles.verified)} of {figure(mixed)} tokens with messages of several sources"
    if shuffles.first_other is not None:
        told += f"; from token {shuffles.first_other} on not in the order of the key: by arrival, or changed"
    return [("shuffles verified", told)]


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
    rows += _shuffle_rows(report.shuffles)
    rows += [(f"faults: {kind}", figure(count)) for kind, count in sorted(report.counts.items())]
    show_table(f"Journal {directory}", ("", "value"), rows)
    if report.unfinished_bytes:
        line(_unfinished("The newest segment", report.unfinished_bytes))
    if report.record is not None and (report.first_sequence or 0) > 1:
        line(_begins(report.record, report.first_sequence or 0))
    if report.unjudged_delays:
        count = counted(report.unjudged_delays, "block")
        line(f"Not checked against T_t + Δ_A: {count}; the journal does not record Δ_A for them.")
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
    from isocast.runtime.disk.journal_reader import JournalReader, read_blocks

    _insist_on_segments(directory)
    blocks = read_blocks(directory, from_, to)
    rows = islice((row for block in blocks for row in rows_of(block, from_, to)), limit)
    if json:
        show_json_rows(rows)
    elif not show_rows(rows):
        span = JournalReader(directory).span()
        has = f"it has {span[0]:,} to {span[1] - 1:,}" if span else "it is empty"
        note(f"isocast: no event in these sequences of {directory}: {has}")
    return 0
