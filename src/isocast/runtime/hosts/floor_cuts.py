"""What a reformation cut off after a site's floor had applied it, and what stands there instead.

Under the timed gate, or by an operator's force, a ring may begin behind a token that was released here. What went out
stays out: the journal keeps the lost messages under their sequences, and the ring's own messages of those sequences go
out elsewhere. The floor needs the ring's, so it takes them from the log as its tokens are released, and keeps them
beside its state: a restart reads them in the place of what the journal has, until its state is behind all of them.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from isocast.floor.following import FloorMessage
from isocast.ring.ledger import LogEntry
from isocast.runtime.market.secret_files import replace_file

__all__ = ["FloorCuts", "TokenAgain"]


class TokenAgain(NamedTuple):
    """A token of the ring whose messages, or the first of them, have sequences that went out with others."""

    token: int
    instant: int
    following: int
    """The sequence behind its last message."""
    messages: tuple[FloorMessage, ...]
    """Of the floor, with sequences of the lost part."""


class FloorCuts:
    """The lost parts of one site's journal that its floor still has to read otherwise."""

    def __init__(self, path: Path) -> None:
        """As the file says; without one, nothing was lost. OSError or ValueError for a file that cannot be used."""
        self._path = path
        self._lost: list[tuple[int, int]] = []
        """First sequence and the one behind the last, of each part, ascending."""
        self._again: dict[int, TokenAgain] = {}
        """Tokens that the floor has applied, by number."""
        self._entries: dict[int, LogEntry] = {}
        """Tokens of the log that are not released."""
        self.keep = 0
        """The last token that the newest cut left."""
        self._reached = 0
        """The first sequence of the lost part of which the ring's message is not known."""
        with suppress(FileNotFoundError):
            self._read(json.loads(path.read_bytes()))

    @property
    def is_open(self) -> bool:
        """Whether tokens are still to come whose messages the journal does not have."""
        return bool(self._lost) and self._reached < self._lost[-1][1]

    def has_lost(self, sequence: int) -> bool:
        """Whether what the journal has under a sequence is not the ring's."""
        return any(first <= sequence < following for first, following in self._lost)

    def cut(self, keep: int, first: int, following: int) -> None:
        """The log is cut back to a token; the journal goes on, from `first` on, to before `following`, without it."""
        self._again = {number: one for number, one in self._again.items() if number <= keep}
        self._entries = {}
        self.keep, self._reached = keep, first
        if following > first:
            self._lost = [part for part in self._lost if part[0] < first]
            self._lost.append((first, following))
        self._write()

    def completed(self, entry: LogEntry) -> None:
        """A token of the log: kept until it is released, where the journal will not have it."""
        token = entry.token
        if self._lost and token.token_number > self.keep and token.first_sequence < self._lost[-1][1]:
            self._entries[token.token_number] = entry

    def entry(self, number: int) -> tuple[LogEntry, int] | None:
        """A token that is released, and how many of its messages the journal does not have; None: it is not known."""
        found = self._entries.pop(number, None)
        if found is None:
            return None
        return found, min(len(found.messages), self._lost[-1][1] - found.token.first_sequence)

    def applied(self, token: TokenAgain) -> None:
        """The floor has applied it: kept for a restart."""
        self._again[token.token] = token
        self._reached = max(self._reached, token.following)
        self._write()

    def tokens(self) -> tuple[TokenAgain, ...]:
        """What was applied before a restart, in order."""
        return tuple([self._again[number] for number in sorted(self._again)])

    def is_whole(self, token: TokenAgain) -> bool:
        """Whether the journal has nothing more of a token."""
        return not self._lost or token.following <= self._lost[-1][1]

    def forget(self, sequence: int) -> None:
        """The state that is kept is behind this sequence: lost parts before it are never read again."""
        if self._lost and not self.is_open and self._lost[-1][1] <= sequence + 1:
            self._lost, self._again = [], {}
            self._path.unlink(missing_ok=True)

    # The file ---------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        rows = [
            [
                again.token,
                again.instant,
                again.following,
                [
                    [one.sequence, one.topic, one.payload.hex(), one.shuffle_key.hex(), one.site]
                    for one in again.messages
                ],
            ]
            for again in self._again.values()
        ]
        record = {"keep": self.keep, "reached": self._reached, "lost": self._lost, "again": rows}
        replace_file(self._path, json.dumps(record).encode())

    def _read(self, rows: dict[str, Any]) -> None:
        try:
            self.keep, self._reached = rows["keep"], rows["reached"]
            self._lost = [(first, following) for first, following in rows["lost"]]
            for token, instant, following, messages in rows["again"]:
                kept = [
                    FloorMessage(at, topic, bytes.fromhex(raw), bytes.fromhex(key), site)
                    for at, topic, raw, key, site in messages
                ]
                self._again[token] = TokenAgain(token, instant, following, tuple(kept))
        except (KeyError, TypeError, AttributeError) as reason:
            raise ValueError("no record of what a floor lost") from reason
