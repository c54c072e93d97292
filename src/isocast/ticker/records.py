"""What a tape remembers, as arrays of fixed records, with the hash table, the faults and the pieces that fill them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntFlag, StrEnum
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from isocast.wire.events import EventArray

__all__ = [
    "FLOOR_DTYPE",
    "LINE_DTYPE",
    "NAMES_KEPT",
    "NOT_COUNTED",
    "NO_ASK",
    "NO_BID",
    "NO_ROW",
    "PRICED",
    "PRICE_LIMIT",
    "SYMBOL_DTYPE",
    "TRADE_DTYPE",
    "FaultBook",
    "FaultName",
    "Indices",
    "KeyTable",
    "RecordTable",
    "Records",
    "TapeFault",
    "TapePiece",
    "TradeState",
    "Words",
    "stable_order",
]


Records: TypeAlias = npt.NDArray[np.void]

NO_ROW = -1
NO_BID = -(1 << 62)
"""Below every price."""
NO_ASK = 1 << 62
"""Above every price."""


class TradeState(IntFlag):
    """What is true of a trade; the first five keep it out of every figure."""

    CANCELLED = 1
    UNPRINTED = 2
    TENTATIVE = 4
    FLAWED = 8
    """Without a price or quantity that can be; a correction may mend it."""
    PAST = 16
    """Of the floor's day before."""
    CORRECTED = 32
    NOT_LAST = 64
    """Open and last are another trade, if there is one (`terms.conditions`)."""
    NOT_HIGH_LOW = 128
    """It has no part in open, high, low and last; volume, turnover and number of trades have it."""


NOT_COUNTED = int(
    TradeState.CANCELLED | TradeState.UNPRINTED | TradeState.TENTATIVE | TradeState.FLAWED | TradeState.PAST
)

PRICED = int(TradeState.NOT_LAST | TradeState.NOT_HIGH_LOW)
"""A trade with neither may be open, high, low and last."""

TRADE_DTYPE = np.dtype(
    [
        ("line", "<u4"),
        ("quantity", "<u4"),
        ("price", "<i8"),
        ("time", "<u8"),
        ("id", "<u8"),
        ("sequence", "<u8"),
        ("earlier", "<i4"),
        ("state", "u1"),
        ("conditions", "u1"),
        ("unused", "V2"),
    ]
)
"""A trade as it stands now, corrections applied; `earlier` is the row of one with the same line and id, or -1.

`conditions` are the flags of its event from NOT_LAST on, which tell why it may not set a price.
"""

LINE_DTYPE = np.dtype(
    [
        ("symbol", "<u8"),
        ("floor", "<u4"),
        ("symbol_number", "<u4"),
        ("floor_number", "<u4"),
        ("rank", "<u4"),
        ("status", "u1"),
        ("listed", "u1"),
        ("dirty", "u1"),
        ("has_previous", "u1"),
        ("lot", "<u4"),
        ("step", "<i8"),
        ("status_event", "<u8"),
        ("status_time", "<u8"),
        ("bid", "<i8"),
        ("ask", "<i8"),
        ("bid_size", "<u4"),
        ("ask_size", "<u4"),
        ("bid_time", "<u8"),
        ("ask_time", "<u8"),
        ("first_row", "<i8"),
        ("last_row", "<i8"),
        ("high", "<i8"),
        ("low", "<i8"),
        ("volume", "<i8"),
        ("notional_high", "<i8"),
        ("notional_low", "<i8"),
        ("trades", "<u8"),
        ("cancelled", "<u4"),
        ("corrected", "<u4"),
        ("largest_id", "<u8"),
        ("previous", "<i8"),
    ]
)
"""A symbol on a floor. The sum of price times quantity is notional_high * 2^32 + notional_low, exactly."""

SYMBOL_DTYPE = np.dtype([("symbol", "<u8"), ("lines", "<u4"), ("market", "u1"), ("unused", "V3")])
"""`market` is 0 for a sound market, 1 for a locked one, 2 for a crossed one."""

FLOOR_DTYPE = np.dtype(
    [
        ("floor", "<u4"),
        ("status", "u1"),
        ("unused", "V3"),
        ("status_event", "<u8"),
        ("status_time", "<u8"),
        ("opened", "<u8"),
        ("events", "<u8"),
    ]
)
"""`opened` is when the floor's day began by its own mark; 0 if it gave none."""

_LEAST_ROOM = 256


class RecordTable:
    """Records that are added at the end."""

    def __init__(self, dtype: np.dtype[np.void]) -> None:
        """Nothing is in it."""
        self._room: Records = np.zeros(_LEAST_ROOM, dtype)
        self._count = 0

    def __len__(self) -> int:
        """How many there are."""
        return self._count

    @property
    def all(self) -> Records:
        """Everything, as a view that is valid until something is added."""
        return self._room[: self._count]

    def extend(self, count: int) -> Records:
        """So many new ones, zero, to be filled in."""
        wanted = self._count + count
        if wanted > len(self._room):
            room = np.zeros(max(wanted, 2 * len(self._room)), self._room.dtype)
            room[: self._count] = self._room[: self._count]
            self._room = room
        self._count = wanted
        return self._room[wanted - count : wanted]

    def replace(self, records: Records) -> None:
        """These, and no others."""
        self._count = 0
        self._room = np.zeros(max(len(records), _LEAST_ROOM), self._room.dtype)
        self.extend(len(records))[:] = records


# ---- Pairs of numbers to one number, for whole arrays at once: a hash table with open addressing, in numpy.
#
# The tape finds the line of every event by (symbol, floor), and trades that are referred to by (line, id).


Words: TypeAlias = npt.NDArray[np.uint64]
Indices: TypeAlias = npt.NDArray[np.int64]

_FIRST_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SECOND_FACTOR = np.uint64(0xC2B2AE3D27D4EB4F)
_LAST_FACTOR = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)
_LEAST_BITS = 10
_RADIX = 1 << 16


def stable_order(numbers: npt.NDArray[np.integer], below: int) -> Indices:
    """The order of small numbers, all less than `below`; equal ones keep theirs."""
    # numpy sorts 16 bits by their digits, in a tenth of the time that it needs for more.
    if below <= _RADIX:
        return np.argsort(numbers.astype(np.uint16), kind="stable")
    return np.argsort(numbers, kind="stable")


class KeyTable:
    """A number from 0 on for each pair that was put in."""

    def __init__(self) -> None:
        """Nothing is in it."""
        self._count = 0
        self._allocate(_LEAST_BITS)

    def _allocate(self, bits: int) -> None:
        self._bits = bits
        self._mask = (1 << bits) - 1
        self._first = np.zeros(1 << bits, np.uint64)
        self._second = np.zeros(1 << bits, np.uint64)
        self._values = np.full(1 << bits, -1, np.int64)

    def __len__(self) -> int:
        """How many pairs there are."""
        return self._count

    def find(self, first: Words, second: Words) -> Indices:
        """The number of each pair; -1 where there is none."""
        slots = self._slots(first, second)
        values = self._values[slots]
        same = (self._first[slots] == first) & (self._second[slots] == second)
        found = np.where(same, values, -1)
        left = np.flatnonzero(~same & (values >= 0))
        while len(left):
            at = slots[left] = (slots[left] + 1) & self._mask
            values = self._values[at]
            same = (self._first[at] == first[left]) & (self._second[at] == second[left])
            found[left[same]] = values[same]
            left = left[~same & (values >= 0)]
        return found

    def put(self, first: Words, second: Words, values: Indices) -> None:
        """Give pairs their numbers, instead of older ones; in one call no pair and no number comes twice."""
        while 2 * (self._count + len(first)) > len(self._values):
            self._grow()
        slots = self._slots(first, second)
        left = np.arange(len(first))
        while len(left):
            at = slots[left]
            is_free = self._values[at] < 0
            same = ~is_free & (self._first[at] == first[left]) & (self._second[at] == second[left])
            self._values[at[same]] = values[left[same]]
            claim, place = left[is_free], at[is_free]
            self._values[place] = values[claim]
            # Several may claim one place: whoever reads its own number there has it.
            has_won = self._values[place] == values[claim]
            self._first[place[has_won]] = first[claim[has_won]]
            self._second[place[has_won]] = second[claim[has_won]]
            self._count += int(has_won.sum())
            is_done = same
            is_done[np.flatnonzero(is_free)[has_won]] = True
            left = left[~is_done]
            slots[left] = (slots[left] + 1) & self._mask

    def _grow(self) -> None:
        used = np.flatnonzero(self._values >= 0)
        first, second, values = self._first[used], self._second[used], self._values[used]
        self._allocate(self._bits + 1)
        self._count = 0
        self.put(first, second, values)

    def _slots(self, first: Words, second: Words) -> Indices:
        mixed = first * _FIRST_FACTOR + second * _SECOND_FACTOR
        mixed ^= mixed >> _HALF
        mixed *= _LAST_FACTOR
        mixed >>= np.uint64(64 - self._bits)
        return mixed.view(np.int64)


# ---- What floors publish that a tape cannot believe: counted by kind, the first of each kind by name, never raised.


NAMES_KEPT = 20
"""Of each kind: enough to see what is wrong; a floor that is wrong all day costs no memory."""


class TapeFault(StrEnum):
    """What can be wrong, and what the tape does about it."""

    NO_SYMBOL = "no-symbol"
    """An event that needs a symbol has none: left out."""
    TOO_MANY_LINES = "too-many-lines"
    """A new symbol on a floor when there are as many as the tape has room for: left out."""
    NO_PRICE = "no-price"
    """A trade or quote at price 0: the trade is kept and not counted until it is corrected, the quote is left out."""
    WILD_PRICE = "wild-price"
    """A price beyond what any market asks: likewise."""
    NO_QUANTITY = "no-quantity"
    """A trade of nothing: likewise."""
    NO_SIDE = "no-side"
    """A quote of neither side: left out."""
    UNKNOWN_STATUS = "unknown-status"
    """A status that nobody knows: left out."""
    DUPLICATE_TRADE = "duplicate-trade"
    """The same trade once more, as when a floor repeats itself after a restart: left out."""
    REUSED_ID = "reused-id"
    """Another trade under an id that was used: counted; references mean the newer one."""
    UNKNOWN_REFERENCE = "unknown-reference"
    """A correction or cancel of a trade that was not on the tape: left out."""
    LATE_REFERENCE = "late-reference"
    """A correction or cancel of a trade of the floor's day before: left out."""
    DUPLICATE_REFERENCE = "duplicate-reference"
    """A correction that changes nothing, or a second cancel: left out."""
    CANCELLED_REFERENCE = "cancelled-reference"
    """A correction of a trade that was cancelled: left out."""
    BAD_CORRECTION = "bad-correction"
    """A correction to a price or quantity that cannot be: left out."""
    LOCKED_MARKET = "locked-market"
    """The best bid of all floors has become equal to the best offer."""
    CROSSED_MARKET = "crossed-market"
    """The best bid of all floors has risen above the best offer."""
    UNKNOWN_ORDER = "unknown-order"
    """A cancel, execution or replacement of an order that is not in the book: left out, the book is not sound."""
    REUSED_ORDER = "reused-order"
    """An order under the id of one that stands: it takes its place, the book is not sound."""
    BEYOND_REST = "beyond-rest"
    """More is executed or cancelled than an order has left: the order goes, the book is not sound."""
    LOCKED_BOOK = "locked-book"
    """The best bid of a floor's book has become equal to its best offer."""
    CROSSED_BOOK = "crossed-book"
    """The best bid of a floor's book has risen above its best offer."""
    GAP = "gap"
    """Messages are missing: no book is sound before its floor begins another day."""


class FaultName(NamedTuple):
    """Which event it was."""

    sequence: int
    kind: int
    floor: str
    symbol: str
    id: int
    price: int


class FaultBook:
    """Counts and names; names do not depend on how events were cut into blocks."""

    def __init__(self) -> None:
        """Nothing is wrong."""
        self.counts: dict[TapeFault, int] = {}
        self.names: dict[TapeFault, list[FaultName]] = {}
        self._pending: list[tuple[TapeFault, Indices]] = []

    def note(self, fault: TapeFault, places: Indices | Iterable[int]) -> None:
        """Events of the block at hand, by their places in it."""
        found = np.asarray(places if isinstance(places, np.ndarray) else list(places), np.int64)
        if len(found):
            self._pending.append((fault, found))

    def settle(self, events: EventArray, sequences: Words) -> None:
        """The block is done: count and name what was noted."""
        if not self._pending:
            return
        together: dict[TapeFault, list[Indices]] = {}
        for fault, places in self._pending:
            together.setdefault(fault, []).append(places)
        self._pending.clear()
        for fault, parts in together.items():
            places = np.sort(np.concatenate(parts))
            self.counts[fault] = self.counts.get(fault, 0) + len(places)
            names = self.names.setdefault(fault, [])
            names += [
                FaultName(
                    int(sequences[place]),
                    int(events["kind"][place]),
                    events["floor"][place].decode("ascii"),
                    events["symbol"][place].decode("ascii"),
                    int(events["id"][place]),
                    int(events["price"][place]),
                )
                for place in places[: NAMES_KEPT - len(names)].tolist()
            ]

    @property
    def total(self) -> int:
        """Everything together."""
        return sum(self.counts.values())


# ---- A piece of the sequence as the parts of a tape see it.


PRICE_LIMIT = 1 << 44
"""1.7 thousand million units a share: half a million trades at this price, of 2^32 shares each, still sum exactly."""


@dataclass(frozen=True, slots=True)
class TapePiece:
    """Consecutive events; each part of the tape takes those of its kinds, by their places."""

    events: EventArray
    sequences: Words
    lines: Indices
    """The line of each event, -1 where it has no symbol."""
    first_event: int
    """How many events came before."""
