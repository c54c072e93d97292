"""Market events as bytes: one fixed record, viewed and checked by numpy, never parsed event by event.

    0      1      2       4       8        16      24         28          32     40   48
    | kind | side | flags | floor | symbol | price | quantity | reference | time | id |

Little-endian, every field on its own alignment. `terms.market.EventKind` says what price, quantity, id and
reference mean for each kind. Text ends in zeros; an event of the whole floor (STATUS, MARK) has no symbol.
`time` is when it happened, in nanoseconds since 1970, by the floor's clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from isocast.terms.errors import LocalProtocolError, RemoteProtocolError
from isocast.terms.market import MIC_BYTES, SYMBOL_BYTES, EventFlag, EventKind, Mic, Side, Symbol
from isocast.wire.limits import EVENT_BYTES, SEAL_BYTES, STANDARD_PAYLOAD

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "EVENTS_PER_PAYLOAD",
    "EVENT_DTYPE",
    "EventArray",
    "MarketEvent",
    "are_events",
    "build_events",
    "events_view",
    "pack_events",
]


EventArray: TypeAlias = npt.NDArray[np.void]
"""An array of EVENT_DTYPE: `events["price"]` is a column without a copy."""

EVENT_DTYPE = np.dtype(
    [
        ("kind", "u1"),
        ("side", "u1"),
        ("flags", "<u2"),
        ("floor", f"S{MIC_BYTES}"),
        ("symbol", f"S{SYMBOL_BYTES}"),
        ("price", "<i8"),
        ("quantity", "<u4"),
        ("reference", "<u4"),
        ("time", "<u8"),
        ("id", "<u8"),
    ]
)

EVENTS_PER_PAYLOAD = (STANDARD_PAYLOAD - SEAL_BYTES) // EVENT_BYTES
"""(1,368 - 64) / 48 = 27: what fits beside a seal."""

_FLOOR_AT = 4
_SYMBOL_AT = 8
_SYMBOL_END = 16

_KINDS = bytes(EventKind)
_SIDES = bytes(Side)
_FLAGS = [bytes(byte for byte in range(256) if not byte & ~mask) for mask in sum(EventFlag).to_bytes(2, "little")]
"""What each of their two bytes may be."""
_FLOOR_CHARACTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_SYMBOL_CHARACTERS = bytes(range(0x21, 0x7F)) + b"\0"


class MarketEvent(NamedTuple):
    """One event as a row, for tests, demos and slow sources; what is left out is zero."""

    kind: EventKind
    floor: Mic
    symbol: Symbol | None = None
    side: Side = Side.NONE
    price: int = 0
    quantity: int = 0
    time: int = 0
    id: int = 0
    reference: int = 0
    flags: EventFlag = EventFlag(0)


def events_view(payload: bytes) -> EventArray:
    """The events of an unsealed payload, without a copy and read-only.

    Raises RemoteProtocolError for a broken record, an unknown kind, side or flag, or a floor or symbol
    of forbidden characters. The checks look at whole columns of bytes, whatever the number of events.
    """
    if len(payload) % EVENT_BYTES:
        raise RemoteProtocolError(f"{len(payload)} bytes are not a number of events of {EVENT_BYTES}")
    count = len(payload) // EVENT_BYTES
    if payload[::EVENT_BYTES].translate(None, _KINDS):
        raise RemoteProtocolError("an event of unknown kind")
    if payload[1::EVENT_BYTES].translate(None, _SIDES):
        raise RemoteProtocolError("an event of unknown side")
    low, high = (payload[2 + place :: EVENT_BYTES].translate(None, allowed) for place, allowed in enumerate(_FLAGS))
    if low or high:
        raise RemoteProtocolError("an event with unknown flags")
    table = np.ndarray((count, EVENT_BYTES), np.uint8, payload)
    if table[:, _FLOOR_AT:_SYMBOL_AT].tobytes().translate(None, _FLOOR_CHARACTERS):
        raise RemoteProtocolError("the floor of an event is not a market identifier code")
    if table[:, _SYMBOL_AT:_SYMBOL_END].tobytes().translate(None, _SYMBOL_CHARACTERS):
        raise RemoteProtocolError("the symbol of an event is not printable ASCII")
    return np.ndarray((count,), EVENT_DTYPE, payload)


def pack_events(events: EventArray) -> bytes:
    """A payload of at most EVENTS_PER_PAYLOAD events, checked as a reader will check it."""
    if events.dtype != EVENT_DTYPE or events.ndim != 1:
        raise LocalProtocolError(f"not a row of events: {events.dtype} in {events.ndim} dimensions")
    if len(events) > EVENTS_PER_PAYLOAD:
        raise LocalProtocolError(f"{len(events)} events, more than {EVENTS_PER_PAYLOAD} in one payload")
    payload = events.tobytes()
    try:
        events_view(payload)
    except RemoteProtocolError as reason:
        raise LocalProtocolError(str(reason)) from reason
    return payload


def build_events(rows: Iterable[MarketEvent]) -> EventArray:
    """An array from rows; LocalProtocolError when a value does not fit its field."""
    tuples = [
        (
            row.kind,
            row.side,
            row.flags,
            Mic(row.floor),
            "" if row.symbol is None else Symbol(row.symbol),
            row.price,
            row.quantity,
            row.reference,
            row.time,
            row.id,
        )
        for row in rows
    ]
    try:
        return np.array(tuples, EVENT_DTYPE)
    except OverflowError as reason:
        raise LocalProtocolError(f"an event's value does not fit its field: {reason}") from reason


# Whether bytes are market events, for many thousands at once: `events.events_view` without its explanations.
#
# The first sixteen bytes of a record decide: kind, side, flags and floor, then the symbol. They are looked at as two
# 64-bit words of eight lanes. While a lane is below 0x80, adding 0x80-m sets its top bit exactly when the lane is at
# least m, and taking it from 0x80+m when it is at most m; no lane carries into the next. A lane that is not below 0x80
# is wrong anyway.


_WORD = np.dtype("<u8")
_WORDS = EVENT_BYTES // _WORD.itemsize
_TOP = int.from_bytes(b"\x80" * _WORD.itemsize, "little")
_ANY = 0x7F


def _lanes(head: Sequence[int], symbol: int) -> npt.NDArray[np.uint64]:
    """A constant for each of the two words: kind, side and two bytes of flags, four times the floor; the symbol."""
    *parts, floor = head
    lanes = bytes([*parts, *[floor] * MIC_BYTES]), bytes([symbol] * SYMBOL_BYTES)
    return np.array([[int.from_bytes(word, "little")] for word in lanes], _WORD)


def _at_least(head: Sequence[int], symbol: int) -> npt.NDArray[np.uint64]:
    return _lanes([0x80 - value for value in head], 0x80 - symbol)


def _at_most(head: Sequence[int], symbol: int) -> npt.NDArray[np.uint64]:
    return _lanes([0x80 + value for value in head], 0x80 + symbol)


_LEAST = _at_least((min(EventKind), min(Side), 0, 0, ord("0")), 0)
_MOST = _at_most((max(EventKind), max(Side), *sum(EventFlag).to_bytes(2, "little"), ord("Z")), ord("~"))
# Between the two characters that are named here nothing is allowed: floors lack ":" to "@", symbols have no blanks.
_BEFORE_GAP = _at_most((_ANY, _ANY, _ANY, _ANY, ord("9")), 0)
_AFTER_GAP = _at_least((_ANY, _ANY, _ANY, _ANY, ord("A")), ord("!"))


def are_events(raw: bytes | memoryview) -> bool:
    """Whether `events_view` would accept the bytes; several times as fast, and silent about the reason."""
    if len(raw) % EVENT_BYTES:
        return False
    words = np.frombuffer(raw, _WORD).reshape(-1, _WORDS)[:, :2].T.copy()
    good = words + _LEAST
    good &= _MOST - words
    good &= (_BEFORE_GAP - words) | (words + _AFTER_GAP)
    every = int(np.bitwise_and.reduce(good, axis=None))
    some = int(np.bitwise_or.reduce(words, axis=None))
    return every & ~some & _TOP == _TOP
