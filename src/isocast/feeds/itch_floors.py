"""Floors in an ITCH feed, which has no place for them: participant positions that name a floor for each stock.

    L, stock blank      the participant is a floor, and this number is the whole floor's
    L, stock            this number is the stock on that floor

In a feed of ours that is kept in a file, the tracking number of a message is the flags of its event, and its side in
the two bits that flags do not use; the order's number of P is the trade's reference. A position without a stock says
so by its mode, `P`. In a feed that is sent, tracking numbers are instants of release (`release_stamps`).

Other decoders see positions of participants, as in any feed. A real feed never has one without a stock, so that its
participants are not taken for floors. Order numbers of several floors may be equal: each floor's are salted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from isocast.feeds.itch_layout import Indices, framed
from isocast.terms.market import EventFlag, Mic, Side
from isocast.wire.events import EventArray

__all__ = ["FloorTable", "floor_messages", "salt_of", "told_by", "tracking_of"]

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


class FloorTable:
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
