"""Events of a narrow stripe as ITCH 5.0: a fixed number of messages for each kind, and nothing remembered.

`ItchWriter` looks back: it announces what is new and knows which orders stand. A narrow stripe is cut to a bit-rate
before it is written, so its messages must be counted beforehand, and two writers that began at different places must
say the same. Hence each event is written by itself:

    DIRECTORY     L floor, L stock on the floor, R
    MARK          L floor, and S or W
    CORRECTION    B, and P
    EXECUTION     C, always with its price
    all others    one message; a CANCEL and the ORDER that it is linked to are two
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from isocast.feeds.days import DayClock
from isocast.feeds.directories import pairs_of
from isocast.feeds.itch_layout import LENGTHS, PREFIX_BYTES, SYSTEM_EVENTS, Indices, are_letters, framed
from isocast.feeds.itch_writer import ItchWriter
from isocast.feeds.outcomes import FeedLog
from isocast.terms.market import EventFlag, EventKind, MarketStatus, Side
from isocast.wire.events import EventArray
from isocast.wire.names import are_names

__all__ = ["KIND_MESSAGES", "Numbers", "StripeWriter", "are_sayable", "plan_version_of"]

Numbers = Mapping[tuple[bytes, bytes], int]
"""Of each floor and symbol; of a whole floor with an empty symbol."""

KIND_MESSAGES: dict[EventKind, tuple[int, ...]] = {
    EventKind.TRADE: (LENGTHS["P"],),
    EventKind.ORDER: (LENGTHS["F"],),
    EventKind.CANCEL: (LENGTHS["X"],),
    EventKind.EXECUTION: (LENGTHS["C"],),
    EventKind.CORRECTION: (LENGTHS["B"], LENGTHS["P"]),
    EventKind.TRADE_CANCEL: (LENGTHS["B"],),
    EventKind.STATUS: (LENGTHS["H"],),
    EventKind.DIRECTORY: (LENGTHS["L"], LENGTHS["L"], LENGTHS["R"]),
    EventKind.MARK: (LENGTHS["L"], LENGTHS["S"]),
}
"""The messages of each kind that is carried, each with the most bytes that it can have."""

_U32 = (1 << 32) - 1
_CARRIED = np.zeros(256, np.bool_)
_CARRIED[[int(kind) for kind in KIND_MESSAGES]] = True
_POSITION = framed("L")
_FRAMED = np.zeros(256, np.int64)
for _name, _size in LENGTHS.items():
    _FRAMED[ord(_name)] = PREFIX_BYTES + _size
_BREAKER = ord("W") << 8
_VERSION_AT = PREFIX_BYTES + 34
_LETTER = {
    EventKind.TRADE: "P",
    EventKind.EXECUTION: "C",
    EventKind.CORRECTION: "B",
    EventKind.TRADE_CANCEL: "B",
    EventKind.STATUS: "H",
    EventKind.DIRECTORY: "R",
}


def are_sayable(events: EventArray) -> npt.NDArray[np.bool_]:
    """Which events have a message: what is not among them must not be given to a writer."""
    kind, reference = events["kind"], events["reference"]
    mark = kind == EventKind.MARK
    good: npt.NDArray[np.bool_] = _CARRIED[kind] & (mark | (events["symbol"] != b""))
    good &= (events["price"] >= 0) & (events["price"] <= _U32)
    good &= ~are_names(events)
    good &= ~mark | _system_events(reference) | _breakers(reference)
    good &= (kind != EventKind.ORDER) | (events["side"] != Side.NONE)
    good &= (kind != EventKind.STATUS) | ((reference >= min(MarketStatus)) & (reference <= max(MarketStatus)))
    return good


def _system_events(reference: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    return np.isin(reference, np.frombuffer(SYSTEM_EVENTS, np.uint8))


def _breakers(reference: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    levels: npt.NDArray[np.bool_] = ((reference & np.uint32(0xFFFF_FF00)) == _BREAKER) & ((reference & 0xFF) > 0)
    return levels


class StripeWriter(ItchWriter):
    """Writes the packets of narrow stripes on one day."""

    def __init__(self, midnight: int | DayClock) -> None:
        """`midnight` is the clock of the session's day; an event of another day keeps its hour."""
        super().__init__(midnight, FeedLog("stripe"), keep_hour=True)

    def messages(self, events: EventArray, numbers: Numbers, version: int = 0) -> bytes:
        """The messages of these events, each with its length before it; `numbers` are those of their stocks.

        `version` is that of the stripe plan. It stands in R as the leverage of a fund, which no stock of ours is.
        """
        pairs, _, pair_of = pairs_of(events)
        own = np.array([numbers.get(pair, 0) for pair in pairs], np.int64)[pair_of]
        floors = np.array([numbers.get((floor, b""), 0) for floor, _ in pairs], np.int64)[pair_of]
        types = _types_of(events)
        kind = events["kind"]
        before = np.where(kind == EventKind.DIRECTORY, 2, np.where(kind == EventKind.MARK, 1, 0)) * _POSITION.itemsize
        behind = np.where(kind == EventKind.CORRECTION, _FRAMED[ord("P")], 0)
        ends = np.cumsum(before + _FRAMED[types] + behind)
        begins = np.concatenate([[0], ends[:-1]])
        raw = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
        for code in np.unique(types).tolist():
            chosen = np.flatnonzero(types == code)
            records = self._records(chr(code), events, own, chosen)
            if chr(code) == "R":
                records["leverage"] = version
            self._put(raw, (begins + before)[chosen], chr(code), records)
        told = np.flatnonzero(before > 0)
        self._put_positions(raw, begins[told], events[told], floors[told], named=False)
        listed = np.flatnonzero(kind == EventKind.DIRECTORY)
        self._put_positions(raw, begins[listed] + _POSITION.itemsize, events[listed], own[listed], named=True)
        again = np.flatnonzero(behind > 0)
        if len(again):
            self._put(raw, begins[again] + _FRAMED[ord("B")], "P", self._records("P", events, own, again))
        return raw.tobytes()

    def _put_positions(
        self, raw: npt.NDArray[np.uint8], places: Indices, events: EventArray, numbers: Indices, *, named: bool
    ) -> None:
        """L: the floor of a stock, or without a stock the floor itself."""
        if not len(events):
            return
        records = np.zeros(len(events), _POSITION)
        clock = self.clock(events)
        records["length"], records["type"] = LENGTHS["L"], b"L"
        records["locate"] = numbers
        records["clock_high"], records["clock_low"] = clock >> 32, clock & _U32
        records["mpid"] = events["floor"]
        records["stock"] = np.char.ljust(events["symbol"] if named else np.zeros(len(events), "S8"), 8, b" ")
        records["primary"], records["mode"], records["state"] = b"Y", b"N", b"A"
        self._put(raw, places, "L", records)


def plan_version_of(message: bytes) -> int:
    """The version of the stripe plan that a message with its length tells; 0 for any other message."""
    if len(message) != _FRAMED[ord("R")] or message[PREFIX_BYTES : PREFIX_BYTES + 1] != b"R":
        return 0
    return int.from_bytes(message[_VERSION_AT : _VERSION_AT + 4])


def _types_of(events: EventArray) -> npt.NDArray[np.uint8]:
    """The message of each event by its letter: the last one, of those that have several before it."""
    kind, reference = events["kind"], events["reference"]
    types = np.zeros(len(events), np.uint8)
    for name, letter in _LETTER.items():
        types[kind == name] = ord(letter)
    auction = (events["flags"] & int(EventFlag.AUCTION)) > 0
    types[(kind == EventKind.TRADE) & auction] = ord("Q")
    order = kind == EventKind.ORDER
    types[order] = np.where(are_letters(reference[order]), ord("F"), ord("A"))
    cancel = kind == EventKind.CANCEL
    types[cancel] = np.where(events["quantity"][cancel] > 0, ord("X"), ord("D"))
    mark = kind == EventKind.MARK
    types[mark] = np.where(_system_events(reference[mark]), ord("S"), ord("W"))
    return types
