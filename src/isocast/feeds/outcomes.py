"""What became of a feed's bytes: read, skipped, or faulty; nothing is lost without a count and a first place."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypedDict

from isocast.terms.errors import FeedError

__all__ = ["ADVICE", "FaultReason", "FaultRecord", "FeedFault", "FeedLog", "ListedSymbol"]

_REASONS_MAX = 32
"""Different reasons of one kind of fault that are kept apart."""
_OTHERS = "other reasons"


class FeedFault(StrEnum):
    """What can be wrong with a feed. Each has a way on, or ends the feed where it stands."""

    BAD_LENGTH = "bad-length"
    MISSING_LENGTH = "missing-length"
    UNKNOWN_TYPE = "unknown-type"
    GARBAGE = "garbage"
    TRUNCATED = "truncated"
    DAMAGED_COMPRESSION = "damaged-compression"
    BACKWARD_TIME = "backward-time"
    UNKNOWN_ORDER = "unknown-order"
    REUSED_ORDER = "reused-order"
    UNKNOWN_SYMBOL = "unknown-symbol"
    BAD_VALUE = "bad-value"
    BAD_ROW = "bad-row"
    ROW_COUNT = "row-count"
    BAD_PACKET = "bad-packet"
    GAP = "gap"
    SESSION_CHANGED = "session-changed"


ADVICE: dict[FeedFault, str] = {
    FeedFault.BAD_LENGTH: "the file is damaged here; without --strict the message is skipped",
    FeedFault.MISSING_LENGTH: "lengths are zero in this file; without --strict the length of the type is taken",
    FeedFault.UNKNOWN_TYPE: "is it ITCH 5.0? Without --strict the message is skipped by its length",
    FeedFault.GARBAGE: "is it ITCH 5.0? Without --strict reading goes on at the next run of sound messages",
    FeedFault.TRUNCATED: "fetch the file again; without --strict everything before this place is read",
    FeedFault.DAMAGED_COMPRESSION: "fetch the file again; without --strict everything before this place is read",
    FeedFault.BACKWARD_TIME: "without --strict the file's own order is kept",
    FeedFault.UNKNOWN_ORDER: "does the file begin in the middle of a day? Without --strict the message is skipped",
    FeedFault.REUSED_ORDER: "without --strict the newest order of this number counts",
    FeedFault.UNKNOWN_SYMBOL: "does the file begin in the middle of a day? Without --strict the message is skipped",
    FeedFault.BAD_VALUE: "without --strict the message is skipped",
    FeedFault.BAD_ROW: "does the mapping fit the file? Without --strict the row is skipped",
    FeedFault.ROW_COUNT: "rows are missing or were added: fetch the file again; without --strict what is there is read",
    FeedFault.BAD_PACKET: "choose the feed's port with --port; without --strict the packet is skipped",
    FeedFault.GAP: "packets are missing in the capture; without --strict the messages are counted and reading goes on",
    FeedFault.SESSION_CHANGED: "the end of the first may be lost; without --strict each session is read for itself",
}
"""What a reader can do about a fault."""


class FaultRecord(TypedDict):
    """One kind of fault in one feed."""

    count: int
    first_offset: int
    first: str


class FaultReason(TypedDict):
    """One reason of a fault: how often, and where first."""

    count: int
    first_offset: int
    first_row: int
    """Of a table: the line in the file, 1 for the first one (of Parquet: the row); 0 where there are no rows."""
    example: str
    """What stood there, if that can be shown."""


@dataclass(frozen=True, slots=True)
class ListedSymbol:
    """A symbol as its floor announced it; `number` is the floor's own for it, 0 if it has none."""

    floor: str
    symbol: str
    number: int = 0
    round_lot: int = 0
    category: str = ""
    issue: str = ""


@dataclass(slots=True)
class FeedLog:
    """Counts of one feed, filled while its blocks are read. A strict one raises FeedError at the first fault."""

    file: str
    strict: bool = False
    messages: dict[str, int] = field(default_factory=dict)
    """Messages or rows by the feed's own names of types."""
    skipped: dict[str, int] = field(default_factory=dict)
    """Sound messages that no event carries, by reason."""
    faults: dict[FeedFault, FaultRecord] = field(default_factory=dict)
    reasons: dict[FeedFault, dict[str, FaultReason]] = field(default_factory=dict)
    """The same faults by what was wrong."""
    lacking: dict[str, int] = field(default_factory=dict)
    """Of a feed that is written: events that are in it, but without something."""
    conditions: dict[str, int] = field(default_factory=dict)
    """Sale conditions of trades by their names; one that nobody knows is named as it stands there."""
    quote_conditions: dict[str, int] = field(default_factory=dict)
    """Conditions of quotes likewise; no event carries them."""
    bytes_read: int = 0
    notes: list[str] = field(default_factory=list)

    def took(self, name: str, count: int = 1) -> None:
        """So many messages of one type were read."""
        if count:
            self.messages[name] = self.messages.get(name, 0) + count

    def skip(self, reason: str, count: int = 1) -> None:
        """So many sound messages have no event."""
        if count:
            self.skipped[reason] = self.skipped.get(reason, 0) + count

    def lack(self, what: str, count: int = 1) -> None:
        """So many events are written without something of theirs."""
        if count:
            self.lacking[what] = self.lacking.get(what, 0) + count

    def fault(
        self, kind: FeedFault, offset: int, what: str, count: int = 1, *, row: int = 0, example: str = ""
    ) -> None:
        """Something is wrong at a byte of the file; raises FeedError if the reader insists on a sound feed."""
        if not count:
            return
        if self.strict:
            place = f"row {row}: " if row else ""
            shown = f", it is {example!r}" if example else ""
            raise FeedError(self.file, f"{kind}: {place}{what}{shown} ({ADVICE[kind]})", offset)
        record = self.faults.get(kind)
        if record is None:
            self.faults[kind] = FaultRecord(count=count, first_offset=offset, first=what)
        else:
            record["count"] += count
        reasons = self.reasons.setdefault(kind, {})
        known = what if what in reasons or len(reasons) < _REASONS_MAX else _OTHERS
        reason = reasons.setdefault(known, FaultReason(count=0, first_offset=offset, first_row=row, example=example))
        reason["count"] += count

    @property
    def total_messages(self) -> int:
        """Everything that was read, faulty or not."""
        return sum(self.messages.values())

    @property
    def total_faults(self) -> int:
        """How often something was wrong."""
        return sum(record["count"] for record in self.faults.values())
