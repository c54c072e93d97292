"""LOBSTER message files: time, type, order, size, price, direction; a symbol and a day in the file's name.

    1 submission            ORDER
    2, 3 cancel, deletion   CANCEL
    4 visible execution     EXECUTION; trades have no numbers there: the row's
    5 hidden execution      TRADE
    6 cross                 TRADE in an AUCTION
    7 halt                  STATUS: price -1 halted, 0 quoting, 1 trading

The direction of a hidden execution is that of the order which was hit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from isocast.feeds.cells import Cells, read_cells
from isocast.feeds.days import NEW_YORK, SKIPPED_TIME, ClockWatch, WallClock, read_day
from isocast.feeds.outcomes import FeedFault, FeedLog, ListedSymbol
from isocast.terms.market import EventFlag, EventKind, MarketStatus, Mic, Side, Symbol
from isocast.terms.zones import DAY_NS, day_number, zone_of
from isocast.wire.events import EVENT_DTYPE, EventArray

__all__ = ["LobsterDecoder", "LobsterName", "lobster_name"]

_NAME = re.compile(r"([A-Z.\-]{1,8})_(\d{4}-\d{2}-\d{2})_\d+_\d+_message_\d+\.csv")
_COLUMNS = 6
_TIME, _TYPE, _ORDER, _SIZE, _PRICE, _DIRECTION = range(_COLUMNS)
_U32 = (1 << 32) - 1
_NAMES = {
    1: "submission",
    2: "cancellation",
    3: "deletion",
    4: "visible execution",
    5: "hidden execution",
    6: "cross",
    7: "halt",
}
_KINDS = {
    1: EventKind.ORDER,
    2: EventKind.CANCEL,
    3: EventKind.CANCEL,
    4: EventKind.EXECUTION,
    5: EventKind.TRADE,
    6: EventKind.TRADE,
    7: EventKind.STATUS,
}
_SUBMIT, _DELETE, _EXECUTE, _HIDDEN, _CROSS, _HALT = 1, 3, 4, 5, 6, 7
_UNNUMBERED = (_HIDDEN, _CROSS, _HALT)
"""Types that are about no order: 0 or -1 stands in its place."""
_HALTS = {-1: MarketStatus.HALTED, 0: MarketStatus.QUOTING, 1: MarketStatus.TRADING}


class LobsterName(NamedTuple):
    """What the name of a message file says."""

    symbol: Symbol
    day: str


def lobster_name(name: str) -> LobsterName | None:
    """AAPL_2012-06-21_34200000_57600000_message_1.csv; None for any other name."""
    found = _NAME.search(name)
    return None if found is None else LobsterName(Symbol(found[1]), found[2])


class LobsterDecoder:
    """Reads one message file."""

    def __init__(self, floor: Mic, symbol: Symbol, day: str, log: FeedLog) -> None:
        """Times of a LOBSTER file are those of New York's clocks."""
        self.log = log
        self.directory = [ListedSymbol(str(floor), str(symbol))]
        self._floor = floor
        self._symbol = symbol
        self._midnight = day_number(read_day(day)) * DAY_NS
        self._wall = WallClock(zone_of(NEW_YORK), log)
        self._rows = 0
        self._clock = ClockWatch(log)

    def blocks(self, chunks: Iterable[bytes]) -> Iterator[EventArray]:
        """The events of the file, a block for each chunk."""
        for cells in read_cells(chunks, self.log, _COLUMNS, b","):
            events = self._decode(cells)
            if len(events):
                yield events

    def _decode(self, cells: Cells) -> EventArray:
        time = cells.decimal(_TIME, 9, cut=True)
        kind, order, size = (cells.integer(place) for place in (_TYPE, _ORDER, _SIZE))
        price, direction = cells.integer(_PRICE), cells.integer(_DIRECTION)
        good = np.ones(len(cells), np.bool_)
        sides = np.isin(direction.values, (-1, 1)) | (kind.values == _HALT)
        for name, right in (
            ("time", time.good & (time.values >= 0) & (time.values < 2 * DAY_NS)),
            ("type", kind.good),
            ("order", order.good & ((order.values >= 0) | np.isin(kind.values, _UNNUMBERED))),
            ("size", size.good & (size.values >= 0) & (size.values <= _U32)),
            ("price", price.good),
            ("direction", direction.good & sides),
        ):
            self._refuse(cells, good & ~right, f"{name}: not what LOBSTER writes")
            good &= right
        instants = self._instants(time.values, good, cells)
        known = np.isin(kind.values, list(_KINDS))
        unknown = np.flatnonzero(good & ~known)
        if len(unknown):
            what = f"a message of type {kind.values[unknown[0]]}"
            self.log.fault(FeedFault.UNKNOWN_TYPE, int(cells.offsets[unknown[0]]), what, len(unknown))
        number = np.arange(self._rows + 1, self._rows + len(cells) + 1)
        self._rows += len(cells)
        kept = np.flatnonzero(good & known)
        codes = kind.values[kept]
        for code, name in _NAMES.items():
            self.log.took(name, int(np.count_nonzero(codes == code)))
        events = np.zeros(len(kept), EVENT_DTYPE)
        events["kind"] = np.array([_KINDS.get(code, 0) for code in range(8)], np.uint8)[codes]
        events["floor"] = self._floor.fixed
        events["symbol"] = self._symbol
        events["time"] = instants[kept]
        events["price"] = price.values[kept]
        events["quantity"] = np.where(codes == _DELETE, 0, size.values[kept])
        events["id"] = order.values[kept].astype(np.uint64)
        events["side"] = np.where(direction.values[kept] > 0, int(Side.BUY), int(Side.SELL))
        self._special(events, codes, number[kept])
        self._clock.see(events["time"], cells.offsets[kept])
        return events

    def _instants(
        self, clock: npt.NDArray[np.int64], good: npt.NDArray[np.bool_], cells: Cells
    ) -> npt.NDArray[np.int64]:
        """Instants of times since midnight; rows whose time does not exist are not good any more."""
        found = np.flatnonzero(good)
        instants, exists = self._wall.instants(clock[found] + self._midnight)
        skipped = np.zeros(len(good), np.bool_)
        skipped[found[~exists]] = True
        self._refuse(cells, skipped, SKIPPED_TIME)
        good &= ~skipped
        times = np.zeros(len(clock), np.int64)
        times[found] = instants
        return times

    def _refuse(self, cells: Cells, bad: npt.NDArray[np.bool_], what: str) -> None:
        rows = np.flatnonzero(bad)
        if len(rows):
            row = int(cells.lines[rows[0]])
            self.log.fault(FeedFault.BAD_ROW, int(cells.offsets[rows[0]]), what, len(rows), row=row)

    @staticmethod
    def _special(events: EventArray, codes: npt.NDArray[Any], number: npt.NDArray[Any]) -> None:
        """What differs from type to type."""
        cancels = events["kind"] == EventKind.CANCEL
        events["side"][cancels] = 0
        events["price"][cancels] = 0
        events["reference"] = np.where(codes == _EXECUTE, number & _U32, 0)
        unnumbered = np.isin(codes, _UNNUMBERED[:2])
        events["id"][unnumbered] = number[unnumbered]
        events["flags"][codes == _CROSS] = EventFlag.AUCTION
        halts = codes == _HALT
        if halts.any():
            states = events["price"][halts]
            status = np.full(len(states), int(MarketStatus.HALTED))
            for code, state in _HALTS.items():
                status[states == code] = state
            events["reference"][halts] = status
            for field in ("price", "quantity", "id", "side"):
                events[field][halts] = 0
