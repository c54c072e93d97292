"""Every trade of the day as it stands, and the figures of each line that follow from them.

Volume, turnover and counts are kept as trades come, and change with each correction or cancel. Open, high, low and
last of a line are found anew, from all of its trades, when one of them was corrected or cancelled and somebody asks.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from isocast.terms.market import EventFlag, EventKind
from isocast.ticker.quotes import QuoteLines
from isocast.ticker.records import (
    NO_ASK,
    NO_BID,
    NO_ROW,
    NOT_COUNTED,
    PRICE_LIMIT,
    PRICED,
    TRADE_DTYPE,
    FaultBook,
    Indices,
    KeyTable,
    Records,
    RecordTable,
    TapeFault,
    TapePiece,
    TradeState,
    Words,
    stable_order,
)
from isocast.wire.events import EventArray

__all__ = ["ORIGINAL_DTYPE", "Trades"]

ORIGINAL_DTYPE = np.dtype([("row", "<u8"), ("price", "<i8"), ("quantity", "<u8")])
"""What a corrected trade was at first, by which its repetition is known."""

_WORD_BITS = 32
_WORD_MASK = (1 << _WORD_BITS) - 1
_SAFE_SUM = 1 << 62
_FLAG_STATES = (
    (EventFlag.UNPRINTED, TradeState.UNPRINTED),
    (EventFlag.TENTATIVE, TradeState.TENTATIVE),
    (EventFlag.NOT_LAST, TradeState.NOT_LAST),
    (EventFlag.NOT_HIGH_LOW, TradeState.NOT_HIGH_LOW),
)
_CONDITIONS_AT = 8
_NO_FIRST = 1 << 62
"""Behind every row."""
_Mask = npt.NDArray[np.bool_]


class Trades:
    """The trades of all lines, in sequence order."""

    def __init__(self, lines: QuoteLines, faults: FaultBook) -> None:
        """Nothing was traded."""
        self._lines = lines
        self._faults = faults
        self._rows = RecordTable(TRADE_DTYPE)
        self._originals: dict[int, tuple[int, int]] = {}
        self._index = KeyTable()
        self._indexed = 0
        self._piece_row = 0
        self._piece_places: Indices = np.empty(0, np.int64)

    def __len__(self) -> int:
        """How many are remembered, counted or not."""
        return len(self._rows)

    @property
    def all(self) -> Records:
        """Every trade as it stands, valid until the next one."""
        return self._rows.all

    # Trades -------------------------------------------------------------------------------------

    def take(self, piece: TapePiece, places: Indices) -> None:
        """The trades of a piece."""
        events, lines = piece.events[places], piece.lines[places]
        ids = np.where(events["kind"] == EventKind.EXECUTION, events["reference"], events["id"])
        state = self._state(events, places)
        order = stable_order(lines, len(self._lines))
        is_new, earlier = self._compare(events, lines, ids, order)
        if not is_new.all():
            self._faults.note(TapeFault.DUPLICATE_TRADE, places[~is_new])
        if (earlier != NO_ROW).any():
            self._faults.note(TapeFault.REUSED_ID, places[earlier != NO_ROW])
        rows = len(self._rows) + np.cumsum(is_new) - 1
        self._piece_row, self._piece_places = len(self._rows), places[is_new]
        kept = self._rows.extend(int(is_new.sum()))
        for name, column in (
            ("line", lines),
            ("quantity", events["quantity"]),
            ("price", events["price"]),
            ("time", events["time"]),
            ("id", ids),
            ("sequence", piece.sequences[places]),
            ("earlier", earlier),
            ("state", state),
            ("conditions", events["flags"] >> _CONDITIONS_AT),
        ):
            kept[name] = column if len(kept) == len(column) else column[is_new]
        is_counted = is_new & ((state & NOT_COUNTED) == 0)
        if is_counted.any():
            chosen = order if is_counted.all() else order[is_counted[order]]
            self._count(lines[chosen], events["price"][chosen], events["quantity"][chosen], rows[chosen])

    def _state(self, events: EventArray, places: Indices) -> npt.NDArray[np.uint8]:
        state = np.zeros(len(events), np.uint8)
        flags = events["flags"]
        for flag, bit in _FLAG_STATES:
            state |= np.where(flags & int(flag), np.uint8(bit), np.uint8(0))
        price = events["price"]
        for fault, is_wrong in (
            (TapeFault.NO_PRICE, price == 0),
            (TapeFault.WILD_PRICE, (price > PRICE_LIMIT) | (price < -PRICE_LIMIT)),
            (TapeFault.NO_QUANTITY, events["quantity"] == 0),
        ):
            if is_wrong.any():
                self._faults.note(fault, places[is_wrong])
                state[is_wrong] |= np.uint8(TradeState.FLAWED)
        return state

    def _count(
        self, lines: Indices, prices: npt.NDArray[np.int64], quantities: npt.NDArray[np.uint32], rows: Indices
    ) -> None:
        """Add trades that stand to the figures of their lines; they are given line by line."""
        starts = np.flatnonzero(np.concatenate([[True], lines[1:] != lines[:-1]]))
        ends = np.append(starts[1:], len(lines)) - 1
        table, which = self._lines.all, lines[starts]
        table["volume"][which] += np.add.reduceat(quantities, starts, dtype=np.int64)
        table["trades"][which] += (ends - starts + 1).astype(np.uint64)
        high, low = _turnover(prices, quantities, starts)
        low += table["notional_low"][which]
        table["notional_high"][which] += high + (low >> _WORD_BITS)
        table["notional_low"][which] = low & _WORD_MASK
        self._reach(which, prices, rows, starts, ends)

    def _reach(
        self, which: Indices, prices: npt.NDArray[np.int64], rows: Indices, starts: Indices, ends: Indices
    ) -> None:
        """First, last, high and low of lines take account of trades that came after all others."""
        table = self._lines.all
        state = self._rows.all["state"]
        own = state[rows]
        first = table["first_row"][which]
        if not (own & PRICED).any() and not (state[first] & TradeState.NOT_LAST).any():
            table["high"][which] = np.maximum(table["high"][which], np.maximum.reduceat(prices, starts))
            table["low"][which] = np.minimum(table["low"][which], np.minimum.reduceat(prices, starts))
            table["first_row"][which] = np.where(first == NO_ROW, rows[starts], first)
            table["last_row"][which] = rows[ends]
            return
        is_high_low = (own & TradeState.NOT_HIGH_LOW) == 0
        highs = np.maximum.reduceat(np.where(is_high_low, prices, NO_BID), starts)
        lows = np.minimum.reduceat(np.where(is_high_low, prices, NO_ASK), starts)
        table["high"][which] = np.maximum(table["high"][which], highs)
        table["low"][which] = np.minimum(table["low"][which], lows)
        self._reach_ends(which, rows, own, starts)

    def _reach_ends(self, which: Indices, rows: Indices, own: npt.NDArray[np.uint8], starts: Indices) -> None:
        """First and last are trades that may be; of a line without any, its first one that is NOT_LAST alone."""
        table = self._lines.all
        is_plain = (own & PRICED) == 0
        is_spare = (own & PRICED) == TradeState.NOT_LAST
        firsts = np.minimum.reduceat(np.where(is_plain, rows, _NO_FIRST), starts)
        lasts = np.maximum.reduceat(np.where(is_plain, rows, NO_ROW), starts)
        spares = np.minimum.reduceat(np.where(is_spare, rows, _NO_FIRST), starts)
        first, last = table["first_row"][which], table["last_row"][which]
        had_spare = (first != NO_ROW) & ((self._rows.all["state"][first] & TradeState.NOT_LAST) > 0)
        has = lasts != NO_ROW
        takes_spare = ~has & (first == NO_ROW) & (spares != _NO_FIRST)
        table["first_row"][which] = np.where(
            has & ((first == NO_ROW) | had_spare), firsts, np.where(takes_spare, spares, first)
        )
        table["last_row"][which] = np.where(has, lasts, np.where(takes_spare, spares, last))

    # Repetitions --------------------------------------------------------------------------------

    def _compare(self, events: EventArray, lines: Indices, ids: Words, order: Indices) -> tuple[_Mask, Indices]:
        """Which trades are new, and the row of an earlier one of the same line and id for those that have one.

        An id above all before it on its line is new; only where a line's ids do not rise is the index asked.
        """
        is_new, earlier = np.ones(len(lines), np.bool_), np.full(len(lines), NO_ROW, np.int64)
        order = order if ids.all() else order[ids[order] != 0]
        if not len(order):
            return is_new, earlier
        line, number = lines[order], ids[order]
        begins = np.concatenate([[True], line[1:] != line[:-1]])
        starts = np.flatnonzero(begins)
        largest = self._lines.all["largest_id"]
        before = largest[line[starts]]
        rises = np.ones(len(order), np.bool_)
        rises[1:] = begins[1:] | (number[1:] > number[:-1])
        rises[starts] = number[starts] > before
        largest[line[starts]] = np.maximum(before, np.maximum.reduceat(number, starts))
        if not rises.all():
            is_doubtful = np.zeros(len(self._lines), np.bool_)
            is_doubtful[line[~rises]] = True
            doubtful = np.sort(order[is_doubtful[line]])
            self._look_up(events, lines, ids, doubtful, is_new, earlier)
        return is_new, earlier

    def _look_up(
        self, events: EventArray, lines: Indices, ids: Words, doubtful: Indices, is_new: _Mask, earlier: Indices
    ) -> None:
        """Compare trades with what the index knows and with each other; says what it finds in the last two."""
        order = doubtful[np.lexsort((ids[doubtful], lines[doubtful]))]
        line, number = lines[order], ids[order]
        begins = np.concatenate([[True], (line[1:] != line[:-1]) | (number[1:] != number[:-1])])
        starts = np.flatnonzero(begins)
        group = np.cumsum(begins) - 1
        self._catch_up()
        known = self._index.find(line[starts].astype(np.uint64), number[starts])
        contents = np.stack([events["price"][order], events["quantity"][order], events["time"][order].view(np.int64)])
        same = np.zeros(len(order), np.bool_)
        # Whatever came before in the piece under this id has the contents of the newest trade of that id.
        same[1:] = ~begins[1:] & (contents[:, 1:] == contents[:, :-1]).all(axis=0)
        hits = np.flatnonzero(known != NO_ROW)
        same[starts[hits]] = (contents[:, starts[hits]] == self._contents(known[hits])).all(axis=0)
        is_new[order[same]] = False
        rows = len(self._rows) + np.cumsum(is_new) - 1
        newest = np.maximum.accumulate(np.where(same, NO_ROW, np.arange(len(order))))
        before = np.concatenate([[NO_ROW], newest[:-1]])
        linked = np.where(before >= starts[group], rows[order[before]], known[group])
        earlier[order] = np.where(same, NO_ROW, linked)

    def _contents(self, rows: Indices) -> npt.NDArray[np.int64]:
        """Price, quantity and time of trades as they were reported at first."""
        trades = self._rows.all[rows]
        contents = np.stack([trades["price"], trades["quantity"], trades["time"].view(np.int64)])
        for place in np.flatnonzero(trades["state"] & TradeState.CORRECTED).tolist():
            contents[:2, place] = self._originals[int(rows[place])]
        return contents

    def _catch_up(self) -> None:
        """Bring the index up to the newest trade."""
        rows = self._rows.all[self._indexed :]
        places = np.flatnonzero(rows["id"])
        earlier = rows["earlier"]
        if (earlier >= self._indexed).any():
            is_superseded = np.zeros(len(rows), np.bool_)
            is_superseded[earlier[earlier >= self._indexed] - self._indexed] = True
            places = places[~is_superseded[places]]
        if len(places):
            self._index.put(rows["line"][places].astype(np.uint64), rows["id"][places], places + self._indexed)
        self._indexed = len(self._rows)

    # Corrections and cancels --------------------------------------------------------------------

    def refer(self, piece: TapePiece, places: Indices) -> None:
        """The corrections and cancels of a piece, one by one: they are a thousandth of the trades."""
        self._catch_up()
        events = piece.events[places]
        found = self._index.find(piece.lines[places].astype(np.uint64), events["id"].astype(np.uint64))
        for place, row, event in zip(places.tolist(), found.tolist(), events, strict=True):
            fault = self._apply(self._newest_before(row, place), event) if event["id"] else TapeFault.UNKNOWN_REFERENCE
            if fault is not None:
                self._faults.note(fault, [place])

    def end_piece(self) -> None:
        """The piece is over: trades of later pieces stand behind its trades."""
        self._piece_row, self._piece_places = len(self._rows), self._piece_places[:0]

    def _newest_before(self, row: int, place: int) -> int:
        """The newest trade of the same id that the sequence had when the event at a place came."""
        while row >= self._piece_row and self._piece_places[row - self._piece_row] > place:
            row = int(self._rows.all["earlier"][row])
        return row

    def _apply(self, row: int, event: np.void) -> TapeFault | None:
        if row == NO_ROW:
            return TapeFault.UNKNOWN_REFERENCE
        trade = self._rows.all[row]
        state = int(trade["state"])
        is_cancel = event["kind"] == EventKind.TRADE_CANCEL
        if state & TradeState.PAST:
            return TapeFault.LATE_REFERENCE
        if state & TradeState.CANCELLED:
            return TapeFault.DUPLICATE_REFERENCE if is_cancel else TapeFault.CANCELLED_REFERENCE
        line = self._lines.all[int(trade["line"])]
        if is_cancel:
            self._change(row, state | TradeState.CANCELLED, int(trade["price"]), int(trade["quantity"]))
            line["cancelled"] += 1
            return None
        price, quantity = int(event["price"]), int(event["quantity"])
        if price == 0 or abs(price) > PRICE_LIMIT or quantity == 0:
            return TapeFault.BAD_CORRECTION
        new_state = (state & ~(TradeState.FLAWED | TradeState.TENTATIVE)) | TradeState.CORRECTED
        if event["flags"] & EventFlag.TENTATIVE:
            new_state |= TradeState.TENTATIVE
        is_same = price == trade["price"] and quantity == trade["quantity"]
        if is_same and new_state == state | TradeState.CORRECTED:
            return TapeFault.DUPLICATE_REFERENCE
        self._originals.setdefault(row, (int(trade["price"]), int(trade["quantity"])))
        self._change(row, new_state, price, quantity)
        line["corrected"] += 1
        return None

    def _change(self, row: int, state: int, price: int, quantity: int) -> None:
        """A trade becomes another; the figures of its line follow."""
        trade = self._rows.all[row]
        line = self._lines.all[int(trade["line"])]
        turnover = (int(line["notional_high"]) << _WORD_BITS) + int(line["notional_low"])
        if not trade["state"] & NOT_COUNTED:
            turnover -= int(trade["price"]) * int(trade["quantity"])
            line["volume"] -= int(trade["quantity"])
            line["trades"] -= np.uint64(1)
        trade["state"], trade["price"], trade["quantity"] = state, price, quantity
        if not state & NOT_COUNTED:
            turnover += price * quantity
            line["volume"] += quantity
            line["trades"] += np.uint64(1)
        line["notional_high"], line["notional_low"] = turnover >> _WORD_BITS, turnover & _WORD_MASK
        line["dirty"] = 1

    def clean(self) -> None:
        """Find open, high, low and last anew for lines of which a trade has changed."""
        table = self._lines.all
        dirty = np.flatnonzero(table["dirty"])
        if not len(dirty):
            return
        table["first_row"][dirty] = table["last_row"][dirty] = NO_ROW
        table["high"][dirty], table["low"][dirty] = NO_BID, NO_ASK
        trades = self._rows.all
        rows = np.flatnonzero(table["dirty"][trades["line"]].astype(np.bool_) & ((trades["state"] & NOT_COUNTED) == 0))
        if len(rows):
            rows = rows[stable_order(trades["line"][rows], len(table))]
            lines = trades["line"][rows].astype(np.int64)
            starts = np.flatnonzero(np.concatenate([[True], lines[1:] != lines[:-1]]))
            ends = np.append(starts[1:], len(lines)) - 1
            self._reach(lines[starts], trades["price"][rows], rows, starts, ends)
        table["dirty"][dirty] = 0

    # Days ---------------------------------------------------------------------------------------

    def begin_day(self, floor_number: int) -> None:
        """Another day of a floor: its figures start anew, yesterday's trades are past, older ones are forgotten."""
        self.clean()
        table, trades = self._lines.all, self._rows.all
        own = np.flatnonzero(table["floor_number"] == floor_number)
        traded = own[table["last_row"][own] != NO_ROW]
        table["previous"][traded] = trades["price"][table["last_row"][traded]]
        table["has_previous"][traded] = 1
        table["first_row"][own] = table["last_row"][own] = NO_ROW
        table["high"][own], table["low"][own] = NO_BID, NO_ASK
        for name in ("volume", "notional_high", "notional_low", "trades", "cancelled", "corrected"):
            table[name][own] = 0
        is_own = table["floor_number"][trades["line"]] == floor_number
        was_past = is_own & ((trades["state"] & TradeState.PAST) != 0)
        trades["state"][is_own] |= np.uint8(TradeState.PAST)
        if was_past.any():
            self._forget(was_past)

    def _forget(self, gone: _Mask) -> None:
        """Leave trades out; the others move up."""
        moved = np.where(gone, NO_ROW, np.cumsum(~gone) - 1)
        trades, table = self._rows.all[~gone].copy(), self._lines.all
        for records, names in ((trades, ("earlier",)), (table, ("first_row", "last_row"))):
            for name in names:
                rows = records[name]
                records[name] = np.where(rows == NO_ROW, NO_ROW, moved[rows])
        self._originals = {int(moved[row]): first for row, first in self._originals.items() if not gone[row]}
        self._rows.replace(trades)
        self._index, self._indexed = KeyTable(), 0
        self.end_piece()

    # Snapshots ----------------------------------------------------------------------------------

    def originals(self) -> Records:
        """What corrected trades were at first, by their rows."""
        rows = [(row, price, quantity) for row, (price, quantity) in sorted(self._originals.items())]
        return np.array(rows, ORIGINAL_DTYPE)

    def restore(self, trades: Records, originals: Records) -> None:
        """Take everything over from a snapshot."""
        self._rows.replace(trades)
        self._originals = {row: (price, quantity) for row, price, quantity in originals.tolist()}
        self._index, self._indexed = KeyTable(), 0
        self.end_piece()


def _turnover(
    prices: npt.NDArray[np.int64], quantities: npt.NDArray[np.uint32], starts: Indices
) -> tuple[Indices, Indices]:
    """The sums of price times quantity from each start to the next, in two words of 32 bits and more."""
    largest = max(int(prices.max()), -int(prices.min())) * int(quantities.max()) * len(prices)
    if largest < _SAFE_SUM:
        sums = np.add.reduceat(prices * quantities.astype(np.int64), starts)
        return sums >> _WORD_BITS, sums & _WORD_MASK
    exact = np.add.reduceat(prices.astype(object) * quantities.astype(object), starts)
    return (exact >> _WORD_BITS).astype(np.int64), (exact & _WORD_MASK).astype(np.int64)
