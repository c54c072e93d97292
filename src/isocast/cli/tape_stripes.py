"""A tape of several stripes: one sequence, ordered by (token instant, stripe, sequence), numbered from 1 on."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from pathlib import Path

import numpy as np

from isocast.cli.render import note
from isocast.cli.tape_sources import Moment, Sequences, Wanted, messages_of
from isocast.feeds.tape_digest import TapeDigest
from isocast.runtime.client.received import BatchKind, ReceivedBatch
from isocast.runtime.disk.journal_reader import read_blocks
from isocast.runtime.disk.journal_segments import segment_files
from isocast.striping.routing import heard_once
from isocast.terms.errors import ConfigurationError, JournalError
from isocast.ticker.tape import Tape
from isocast.wire.events import EventArray
from isocast.wire.journal_blocks import BlockView

__all__ = ["read_journals", "take_batch"]


def take_batch(tape: Tape, batch: ReceivedBatch, part: int) -> None:
    """The first events of what a listener heard of one stripe; the whole of it if those are all."""
    if batch.kind is BatchKind.MESSAGES:
        last = batch.last_sequence if part == len(batch) else int(batch.sequences[part - 1]) if part else 0
        if last:
            _take(tape, batch.stripe, batch.events[:part], batch.sequences[:part], batch.first_sequence, last)
        return
    # The newest of each key: it has the place of the last message that it takes account of, whatever that is.
    places = np.full(part, tape.sequence, np.uint64)
    tape.take(batch.events[:part], places, tape.sequence)
    tape.positions[batch.stripe] = batch.last_sequence


def _take(tape: Tape, stripe: int, events: EventArray, sequences: Sequences, first: int, last: int) -> None:
    known = tape.positions.get(stripe)
    if known is not None and first > known + 1:
        missing = f"sequences {known + 1:,} to {first - 1:,} of stripe {stripe} are not here"
        note(f"isocast: {missing}: the tape lacks what they say")
    places = sequences - np.uint64(first) + np.uint64(tape.sequence + 1)
    tape.take(events, places, tape.sequence + last - first + 1)
    tape.positions[stripe] = last


def read_journals(where: list[Path], tape: Tape, moment: Moment, wanted: Wanted, digest: TapeDigest | None) -> None:
    """What journals of several stripes have behind the tape's positions, merged, up to a time of release."""
    if moment.sequence is not None:
        raise ConfigurationError("command line", "--at", "several stripes have no common sequence: give a time")
    stripes: dict[int, Path] = {}
    for path in where:
        files = segment_files(path)
        if not files:
            raise JournalError(str(path), "there is no segment of a journal here")
        other = stripes.setdefault(files[0].stripe, path)
        if other is not path:
            rule = f"{other} and {path} are both of stripe {files[0].stripe}: give one journal of each stripe"
            raise ConfigurationError("command line", "--journal", rule)
    began = tape.events
    streams = [_blocks(stripe, path, tape.positions.get(stripe, 0) + 1) for stripe, path in stripes.items()]
    for stripe, block in merge(*streams, key=lambda one: (one[1].header.instant, one[0], one[1].header.first_sequence)):
        if moment.time_ns is not None and block.header.due > moment.time_ns:
            continue
        behind = tape.positions.get(stripe, 0) + 1
        events, sequences, last = messages_of(block, behind, None)
        first = max(block.header.first_sequence, behind)
        kept = heard_once(events, stripe, stripes.keys())
        if kept is not None:
            events, sequences = events[kept], sequences[kept]
        part = wanted.part(sequences, tape.events - began)
        if part < len(events):
            last = int(sequences[part - 1]) if part else 0
        if last:
            _take(tape, stripe, events[:part], sequences[:part], first, last)
        if digest is not None:
            digest.update(events[:part])
        if wanted.is_enough(tape.events - began):
            return


def _blocks(stripe: int, path: Path, first: int) -> Iterator[tuple[int, BlockView]]:
    for block in read_blocks(path, first, None):
        yield stripe, block
