"""Nasdaq TotalView-ITCH 5.0: the bytes of every message as numpy record types, floors in a feed, and standing orders.

Integers are big-endian and unsigned, text is ASCII padded with blanks, a price has four decimals in four bytes, and
a message of a file has its length before it in two bytes. Every message begins with

    type 1 | stock locate 2 | tracking number 2 | nanoseconds since midnight 6
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from isocast.terms.market import EventFlag, Mic, Side
from isocast.wire.events import EventArray

__all__ = [
    "CROSS_TYPES",
    "HEADER_BYTES",
    "LAYOUTS",
    "LENGTHS",
    "LENGTH_OF_TYPE",
    "NAMES",
    "PREFIX_BYTES",
    "STANDING",
    "SYSTEM_EVENTS",
    "Bytes",
    "Indices",
    "ItchFloors",
    "OrderTable",
    "Standing",
    "are_letters",
    "floor_messages",
    "framed",
    "records_at",
    "salt_of",
    "told_by",
    "tracking_of",
]


Bytes: TypeAlias = npt.NDArray[np.uint8]
Indices: TypeAlias = npt.NDArray[np.int64]

PREFIX_BYTES = 2
HEADER_BYTES = 11
SYSTEM_EVENTS = b"OSQMEC"
"""Start of messages, of system hours, of market hours; end of market hours, of system hours, of messages."""
CROSS_TYPES = b"OCHI"
"""Opening, closing, halted or new, intraday."""

_HEADER = [("type", "S1"), ("locate", ">u2"), ("tracking", ">u2"), ("clock_high", ">u2"), ("clock_low", ">u4")]


def _layout(*fields: tuple[str, str]) -> np.dtype[np.void]:
    return np.dtype([*_HEADER, *fields])


_ADD = (("order", ">u8"), ("side", "u1"), ("shares", ">u4"), ("stock", "S8"), ("price", ">u4"))
_EXECUTED = (("order", ">u8"), ("shares", ">u4"), ("match", ">u8"))

LAYOUTS = MappingProxyType(
    {
        "S": _layout(("event", "u1")),
        "R": _layout(
            ("stock", "S8"),
            ("category", "S1"),
            ("financial", "S1"),
            ("round_lot", ">u4"),
            ("lots_only", "S1"),
            ("issue", "S1"),
            ("subtype", "S2"),
            ("authenticity", "S1"),
            ("short_sale", "S1"),
            ("ipo", "S1"),
            ("tier", "S1"),
            ("etp", "S1"),
            ("leverage", ">u4"),
            ("inverse", "S1"),
        ),
        "H": _layout(("stock", "S8"), ("state", "u1"), ("reserved", "S1"), ("reason", "S4")),
        "Y": _layout(("stock", "S8"), ("action", "S1")),
        "L": _layout(("mpid", "S4"), ("stock", "S8"), ("primary", "S1"), ("mode", "S1"), ("state", "S1")),
        "V": _layout(("level_1", ">u8"), ("level_2", ">u8"), ("level_3", ">u8")),
        "W": _layout(("level", "u1")),
        "K": _layout(("stock", "S8"), ("release", ">u4"), ("qualifier", "S1"), ("price", ">u4")),
        "J": _layout(("stock", "S8"), ("reference", ">u4"), ("upper", ">u4"), ("lower", ">u4"), ("extension", ">u4")),
        "h": _layout(("stock", "S8"), ("market", "S1"), ("state", "u1")),
        "A": _layout(*_ADD),
        "F": _layout(*_ADD, ("owner", ">u4")),
        "E": _layout(*_EXECUTED),
        "C": _layout(*_EXECUTED, ("printable", "u1"), ("price", ">u4")),
        "X": _layout(("order", ">u8"), ("shares", ">u4")),
        "D": _layout(("order", ">u8")),
        "U": _layout(("order", ">u8"), ("new_order", ">u8"), ("shares", ">u4"), ("price", ">u4")),
        "P": _layout(*_ADD, ("match", ">u8")),
        "Q": _layout(("shares", ">u8"), ("stock", "S8"), ("price", ">u4"), ("match", ">u8"), ("cross", "u1")),
        "B": _layout(("match", ">u8")),
        "I": _layout(
            ("paired", ">u8"),
            ("imbalance", ">u8"),
            ("direction", "S1"),
            ("stock", "S8"),
            ("far", ">u4"),
            ("near", ">u4"),
            ("reference", ">u4"),
            ("cross", "S1"),
            ("variation", "S1"),
        ),
        "N": _layout(("stock", "S8"), ("interest", "S1")),
        "O": _layout(
            ("stock", "S8"),
            ("open_eligible", "S1"),
            ("minimum", ">u4"),
            ("maximum", ">u4"),
            ("near", ">u4"),
            ("near_time", ">u8"),
            ("lower", ">u4"),
            ("upper", ">u4"),
        ),
    }
)
"""Every message, without its length prefix. A side is B or S, an owner the four letters of a participant."""

NAMES = MappingProxyType(
    {
        "S": "system event",
        "R": "stock directory",
        "H": "trading action",
        "Y": "short sale restriction",
        "L": "participant position",
        "V": "circuit breaker levels",
        "W": "circuit breaker breached",
        "K": "IPO quoting period",
        "J": "auction collar",
        "h": "operational halt",
        "A": "add order",
        "F": "add order with participant",
        "E": "order executed",
        "C": "order executed at a price",
        "X": "order cancelled in part",
        "D": "order deleted",
        "U": "order replaced",
        "P": "trade of hidden orders",
        "Q": "cross trade",
        "B": "broken trade",
        "I": "imbalance",
        "N": "retail interest",
        "O": "direct listing price",
    }
)

LENGTHS = MappingProxyType({name: layout.itemsize for name, layout in LAYOUTS.items()})

LENGTH_OF_TYPE = bytes(LENGTHS.get(chr(code), 0xFF) for code in range(256))
"""By a type's code: 255 for types that nobody knows, and no message is that long."""


def framed(name: str) -> np.dtype[np.void]:
    """The message with its length prefix, as files and MoldUDP64 packets have it."""
    layout = LAYOUTS[name]
    return np.dtype([("length", ">u2"), *((field, layout[field]) for field in layout.names or ())])


def records_at(block: Bytes, places: Indices, layout: np.dtype[np.void]) -> npt.NDArray[Any]:
    """Copies of the records that begin at these bytes of the block: one gather of whole records.

    The block is viewed as overlapping records, one at each byte, so that no field is touched alone.
    """
    windows = len(block) - layout.itemsize + 1
    if not len(places) or windows <= 0:
        return np.empty(0, layout)
    overlapping = np.ndarray((windows,), f"V{layout.itemsize}", block, strides=(1,))
    return overlapping[places].view(layout)


# Floors in an ITCH feed, which has no place for them: participant positions that name a floor for each stock.
#
# L, stock blank      the participant is a floor, and this number is the whole floor's
# L, stock            this number is the stock on that floor
#
# In a feed of ours that is kept in a file, the tracking number of a message is the flags of its event, and its side in
# the two bits that flags do not use; the order's number of P is the trade's reference. A position without a stock says
# so by its mode, `P`. In a feed that is sent, tracking numbers are instants of release (`release_stamps`).
#
# Other decoders see positions of participants, as in any feed. A real feed never has one without a stock, so that its
# participants are not taken for floors. Order numbers of several floors may be equal: each floor's are salted.


TELLING = b"P"
"""The mode of a position in a feed whose tracking numbers are flags."""
_BUY_BIT, _SELL_BIT = 0x80, 0x8000
_SIDE_BITS = np.array([0, _BUY_BIT, _SELL_BIT], np.uint16)

_LOCATES = 1 << 16
_BLANK = b" " * 8
_FRAMED = framed("L")
_SPREAD = np.uint64(0xD6E8FEB86659FD93)
"""Odd, and without a pattern: floors differ in all bits of their salts."""
_LETTERS = np.zeros(256, np.bool_)
_LETTERS[list(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")] = True


def salt_of(floors: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """What makes order numbers of different floors different."""
    return np.ascontiguousarray(floors).view(np.uint32).astype(np.uint64) * _SPREAD


class ItchFloors:
    """Which floor each number is of."""

    def __init__(self, floor: Mic) -> None:
        """All are of one floor until the feed says otherwise."""
        self.floors = np.full(_LOCATES, floor.fixed, "S4")
        self.named = False
        """Whether the feed names floors ..."""
        self.tells_flags = False
        """... and flags."""
        self._known: list[bytes] = []

    def learn(self, records: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Participant positions: says which of them name a floor."""
        codes = np.ascontiguousarray(records["mpid"]).view(np.uint8).reshape(-1, 4)
        is_code = np.logical_and.reduce(_LETTERS[codes], axis=1)
        whole = (np.char.rstrip(records["stock"]) == b"") & is_code
        if whole.any():
            self._known = sorted({*self._known, *records["mpid"][whole].tolist()})
            self.named = True
            self.tells_flags |= bool((records["mode"][whole] == TELLING).any())
        if not self.named:
            return np.zeros(len(records), np.bool_)
        names: npt.NDArray[np.bool_] = np.isin(records["mpid"], np.array(self._known, "S4"))
        self.floors[records["locate"][names].astype(np.int64)] = records["mpid"][names]
        return names


def tracking_of(events: EventArray) -> npt.NDArray[np.uint16]:
    """Flags and side as a tracking number."""
    tracking: npt.NDArray[np.uint16] = events["flags"] | _SIDE_BITS[events["side"]]
    return tracking


def told_by(tracking: npt.NDArray[Any]) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint8]]:
    """The flags and the side in tracking numbers."""
    sides = np.where(tracking & _SELL_BIT, int(Side.SELL), np.where(tracking & _BUY_BIT, int(Side.BUY), 0))
    return tracking.astype(np.uint16) & np.uint16(sum(EventFlag)), sides.astype(np.uint8)


def floor_messages(
    pairs: list[tuple[bytes, bytes]], numbers: Indices, clock: int, *, tells_flags: bool = False
) -> bytes:
    """A position for each pair of floor and symbol; those without a symbol first."""
    records = np.zeros(len(pairs), _FRAMED)
    records["length"] = _FRAMED.itemsize - 2
    records["type"] = b"L"
    records["locate"] = numbers
    records["clock_high"], records["clock_low"] = clock >> 32, clock & 0xFFFFFFFF
    records["mpid"] = [floor for floor, _ in pairs]
    records["stock"] = [symbol.ljust(8) or _BLANK for _, symbol in pairs]
    records["primary"], records["mode"], records["state"] = b"Y", TELLING if tells_flags else b"N", b"A"
    return records[np.argsort([symbol != b"" for _, symbol in pairs], kind="stable")].tobytes()


# The orders that stand, by number: a hash table in numpy arrays, asked and changed for a whole block at once.
#
# An execution of ITCH names an order and no price, a replacement no side: both stand in the message that entered the
# order, perhaps hours before. Numbers are never used twice in a day, so that within a block no order of the steps
# matters: everything is entered, everything is looked up, and what has gone is dropped at the end.


_NUMBER_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio: neighbouring numbers land far apart."""
_LEAST_BITS = 12
_EMPTY, _STANDS, _GONE = 0, 1, 2

STANDING = np.dtype([("number", "<u8"), ("shares", "<i8"), ("price", "<u4"), ("owner", "<u4"), ("side", "u1")])
"""One order that stands."""

Standing = npt.NDArray[np.void]
Numbers = npt.NDArray[np.uint64]
Slots = npt.NDArray[np.int64]


class OrderTable:
    """Open addressing with linear probing, never more than half full."""

    def __init__(self) -> None:
        """No order stands."""
        self.count = 0
        """Slots in use, by orders that stand or that have gone."""
        self._make(_LEAST_BITS)

    def _make(self, bits: int) -> None:
        self._bits = bits
        self._shift = np.uint64(64 - bits)
        size = 1 << bits
        self._numbers = np.zeros(size, np.uint64)
        self._state = np.zeros(size, np.uint8)
        self.price = np.zeros(size, np.uint32)
        self.owner = np.zeros(size, np.uint32)
        self.side = np.zeros(size, np.uint8)
        self._shares = np.zeros(size, np.int64)
        self.count = 0

    def find(self, numbers: npt.NDArray[Any]) -> Slots:
        """The slot of each order that stands, or -1."""
        found = np.full(len(numbers), -1, np.int64)
        waiting = np.arange(len(numbers))
        wanted = numbers.astype(np.uint64)
        slots = ((wanted * _NUMBER_SPREAD) >> self._shift).astype(np.int64)
        mask = (1 << self._bits) - 1
        while len(waiting):
            state = self._state[slots]
            here = (self._numbers[slots] == wanted) & (state != _EMPTY)
            found[waiting[here]] = np.where(state[here] == _STANDS, slots[here], -1)
            on = np.flatnonzero(~here & (state != _EMPTY))
            waiting, wanted = waiting[on], wanted[on]
            slots = (slots[on] + 1) & mask
        return found

    def enter(
        self,
        numbers: npt.NDArray[Any],
        price: npt.NDArray[Any],
        side: npt.NDArray[Any],
        owner: npt.NDArray[Any],
        shares: npt.NDArray[Any],
    ) -> npt.NDArray[np.bool_]:
        """Orders are entered; says which of them stood already. Of equal numbers the last one counts."""
        if not len(numbers):
            return np.zeros(0, np.bool_)
        self._reserve(len(numbers))
        slots, stood = self._claim(numbers.astype(np.uint64))
        self._state[slots] = _STANDS
        self.price[slots] = price
        self.side[slots] = side
        self.owner[slots] = owner
        self._shares[slots] = shares
        return stood

    def shrink(self, slots: Slots, shares: npt.NDArray[Any]) -> None:
        """Orders lose shares; those with none left go."""
        np.subtract.at(self._shares, slots, shares.astype(np.int64))
        self._state[slots[self._shares[slots] <= 0]] = _GONE

    def drop(self, slots: Slots) -> None:
        """Orders go."""
        self._state[slots] = _GONE

    def _claim(self, wanted: Numbers) -> tuple[Slots, npt.NDArray[np.bool_]]:
        """A slot for each number: its own, or the next that is empty."""
        taken = np.empty(len(wanted), np.int64)
        stood = np.zeros(len(wanted), np.bool_)
        waiting = np.arange(len(wanted))
        slots = ((wanted * _NUMBER_SPREAD) >> self._shift).astype(np.int64)
        mask = (1 << self._bits) - 1
        while len(waiting):
            state = self._state[slots]
            empty = state == _EMPTY
            free = slots[empty]
            # Of several that meet in one empty slot the last writer has it; the others see that and go on.
            self._numbers[free] = wanted[empty]
            self._state[free] = _GONE
            here = self._numbers[slots] == wanted
            stood[waiting[here]] = state[here] == _STANDS
            taken[waiting[here]] = slots[here]
            self.count += int(np.count_nonzero(here & empty))
            on = np.flatnonzero(~here)
            waiting, wanted = waiting[on], wanted[on]
            slots = (slots[on] + 1) & mask
        return taken, stood

    def standing(self) -> Standing:
        """A row for each order that stands: all that matters of the table."""
        kept = np.flatnonzero(self._state == _STANDS)
        rows = np.zeros(len(kept), STANDING)
        rows["number"], rows["shares"] = self._numbers[kept], self._shares[kept]
        rows["price"], rows["owner"], rows["side"] = self.price[kept], self.owner[kept], self.side[kept]
        return rows

    def restore(self, rows: Standing, more: int = 0) -> None:
        """Begin with these orders, and room for so many more."""
        bits = _LEAST_BITS
        while 1 << bits < 4 * (len(rows) + more):
            bits += 1
        self._make(bits)
        slots, _ = self._claim(rows["number"].astype(np.uint64))
        self._state[slots] = _STANDS
        self.price[slots], self.owner[slots] = rows["price"], rows["owner"]
        self.side[slots], self._shares[slots] = rows["side"], rows["shares"]

    def _reserve(self, more: int) -> None:
        """Room for so many more: rebuild with what stands when half would be passed."""
        if 2 * (self.count + more) > 1 << self._bits:
            self.restore(self.standing(), more)


def are_letters(references: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Whether a reference is four printable characters."""
    table = references.astype(">u4").view(np.uint8).reshape(-1, 4)
    printable: npt.NDArray[np.bool_] = np.logical_and.reduce((table >= 0x20) & (table < 0x7F), axis=1)  # noqa: PLR2004
    return printable
