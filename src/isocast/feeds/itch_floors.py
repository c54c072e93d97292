"""Floors in an ITCH feed, which has no place for them: participant positions that name a floor for each stock.

    L, stock blank      the participant is a floor, and this number is the whole floor's
    L, stock            this number is the stock on that floor

Other decoders see positions of participants, as in any feed. A real feed never has one without a stock, so that its
participants are not taken for floors. Order numbers of several floors may be equal: each floor's are salted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from isocast.feeds.itch_layout import Indices, framed
from isocast.terms.market import Mic

__all__ = ["FloorTable", "floor_messages", "salt_of"]

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
        """Whether the feed names floors."""
        self._known: list[bytes] = []

    def learn(self, records: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Participant positions: says which of them name a floor."""
        codes = np.ascontiguousarray(records["mpid"]).view(np.uint8).reshape(-1, 4)
        is_code = np.logical_and.reduce(_LETTERS[codes], axis=1)
        whole = (np.char.rstrip(records["stock"]) == b"") & is_code
        if whole.any():
            self._known = sorted({*self._known, *records["mpid"][whole].tolist()})
            self.named = True
        if not self.named:
            return np.zeros(len(records), np.bool_)
        names: npt.NDArray[np.bool_] = np.isin(records["mpid"], np.array(self._known, "S4"))
        self.floors[records["locate"][names].astype(np.int64)] = records["mpid"][names]
        return names


def floor_messages(pairs: list[tuple[bytes, bytes]], numbers: Indices, clock: int) -> bytes:
    """A position for each pair of floor and symbol; those without a symbol first."""
    records = np.zeros(len(pairs), _FRAMED)
    records["length"] = _FRAMED.itemsize - 2
    records["type"] = b"L"
    records["locate"] = numbers
    records["clock_high"], records["clock_low"] = clock >> 32, clock & 0xFFFFFFFF
    records["mpid"] = [floor for floor, _ in pairs]
    records["stock"] = [symbol.ljust(8) or _BLANK for _, symbol in pairs]
    records["primary"], records["mode"], records["state"] = b"Y", b"N", b"A"
    return records[np.argsort([symbol != b"" for _, symbol in pairs], kind="stable")].tobytes()
