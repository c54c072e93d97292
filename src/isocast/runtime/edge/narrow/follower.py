"""Follows a receiver's journal: what it released, token by token, with the plans that its tokens announced.

The journal has no empty tokens. That one has passed is worth knowing, because what waits for a stripe may then leave;
the receiver says so while it runs (`TokenPassed`), and nothing is lost if it does not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from isocast.runtime.disk.journal_reader import JournalCursor
from isocast.runtime.edge.narrow.plans import PLAN_NOTES, PlanNote, PlanNotes
from isocast.striping.released import ReleasedPart, part_of_block
from isocast.wire.events import EVENT_DTYPE
from isocast.wire.journal_blocks import BlockView
from isocast.wire.limits import MAX_MESSAGES_PER_TOKEN
from isocast.wire.packets import ControlEntry

__all__ = ["HistoryGapError", "JournalFollower", "TokenPassed"]

_EMPTY = np.empty(0, EVENT_DTYPE)
_NO_COUNTS = np.empty(0, np.int64)


class HistoryGapError(Exception):
    """The journal does not say all that happened behind a sequence: another edge must be asked."""


class TokenPassed(NamedTuple):
    """Everything up to this token is out."""

    token_number: int
    instant: int
    next_sequence: int


class JournalFollower:
    """The parts of a sequence, from a place on."""

    def __init__(self, directory: Path, next_sequence: int, token_number: int = 0) -> None:
        """`directory` is the receiver's; everything up to `token_number` is known, and what is before the sequence."""
        self._where = directory / "journal"
        self._notes = PlanNotes(directory / PLAN_NOTES)
        self._waiting: deque[PlanNote] = deque()
        self._token = token_number
        self._next = next_sequence
        self._cursor = JournalCursor(self._where, next_sequence)

    def close(self) -> None:
        """Let go of the journal."""
        self._cursor.close()

    def read(self) -> Iterator[ReleasedPart]:
        """What is there and was not read yet; HistoryGapError where something is missing before it."""
        while blocks := self._cursor.read() if self._where.exists() else []:
            # Notes are written before the blocks of their tokens, so those of the blocks that were read are there.
            self._learn()
            for block in blocks:
                yield from self._parts(block)

    def passed(self, token: TokenPassed) -> Iterator[ReleasedPart]:
        """The receiver says that everything up to a token is out: so are the empty ones among them."""
        yield from self.read()
        if token.next_sequence != self._next or token.token_number <= self._token:
            return
        self._learn()
        yield from self._announced(token.token_number)
        if token.token_number > self._token:
            yield self._empty(token.token_number, token.instant)

    def _learn(self) -> None:
        self._waiting.extend([note for note in self._notes.read() if note.token_number > self._token])

    def _parts(self, block: BlockView) -> Iterator[ReleasedPart]:
        header = block.header
        if header.next_sequence <= self._next:
            return
        if header.first_sequence > self._next:
            raise HistoryGapError(f"sequences {self._next} to {header.first_sequence - 1} are not in {self._where}")
        if header.fetched or header.token_count >= MAX_MESSAGES_PER_TOKEN:
            raise HistoryGapError(
                f"sequence {header.first_sequence} of {self._where} came from another archive, which does not say"
                " which plans were announced"
            )
        yield from self._announced(header.token_number - 1)
        control = self._entries(header.token_number)
        part = part_of_block(block, control)
        skip = self._next - header.first_sequence
        if skip:
            part = _behind(part, skip)
        self._token = header.token_number
        self._next = header.next_sequence
        yield part

    def _announced(self, upto: int) -> Iterator[ReleasedPart]:
        """Tokens without messages that announce a plan."""
        while self._waiting and self._waiting[0].token_number <= upto:
            note = self._waiting.popleft()
            yield self._empty(note.token_number, note.instant, (note.entry,))

    def _entries(self, token: int) -> tuple[ControlEntry, ...]:
        found: list[ControlEntry] = []
        while self._waiting and self._waiting[0].token_number <= token:
            found.append(self._waiting.popleft().entry)
        return tuple(found)

    def _empty(self, token: int, instant: int, control: tuple[ControlEntry, ...] = ()) -> ReleasedPart:
        self._token = max(self._token, token)
        return ReleasedPart(token, instant, 0, 0, self._next, _EMPTY, _NO_COUNTS, control)


def _behind(part: ReleasedPart, skip: int) -> ReleasedPart:
    """The part without its first messages."""
    events = int(part.counts[:skip].sum())
    return ReleasedPart(
        part.token_number,
        part.instant,
        part.token_count,
        part.place + skip,
        part.first_sequence + skip,
        part.events[events:],
        part.counts[skip:],
        part.control,
    )
