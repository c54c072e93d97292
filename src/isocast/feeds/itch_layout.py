"""Nasdaq TotalView-ITCH 5.0: the bytes of every message, as numpy record types.

Integers are big-endian and unsigned, text is ASCII padded with blanks, a price has four decimals in four bytes, and
a message of a file has its length before it in two bytes. Every message begins with

    type 1 | stock locate 2 | tracking number 2 | nanoseconds since midnight 6
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "CROSS_TYPES",
    "HEADER_BYTES",
    "LAYOUTS",
    "LENGTHS",
    "LENGTH_OF_TYPE",
    "NAMES",
    "PREFIX_BYTES",
    "SYSTEM_EVENTS",
    "Bytes",
    "Indices",
    "framed",
    "records_at",
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
