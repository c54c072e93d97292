"""What a tape remembers, as arrays of fixed records: they grow, are saved as they are, and compared by their bytes."""

from __future__ import annotations

from enum import IntFlag
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "FLOOR_DTYPE",
    "LINE_DTYPE",
    "NOT_COUNTED",
    "NO_ASK",
    "NO_BID",
    "NO_ROW",
    "PRICED",
    "SYMBOL_DTYPE",
    "TRADE_DTYPE",
    "RecordTable",
    "Records",
    "TradeState",
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
