"""Lines of a tape, the best prices of each, and whether those of all floors together are locked or crossed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from isocast.terms.market import EventFlag, Side
from isocast.ticker.records import (
    FLOOR_DTYPE,
    LINE_DTYPE,
    NO_ASK,
    NO_BID,
    NO_ROW,
    PRICE_LIMIT,
    SYMBOL_DTYPE,
    FaultBook,
    Indices,
    KeyTable,
    Records,
    RecordTable,
    TapeFault,
    TapePiece,
    Words,
    stable_order,
)
from isocast.wire.events import EventArray

__all__ = ["CROSSED", "LINES_MAX", "LOCKED", "QuoteLines", "floor_name", "symbol_name", "take_quotes"]


# Lines of a tape: each symbol on each floor, numbered in the order in which they appear in the sequence.


LINES_MAX = 1 << 20
"""A quarter of a gigabyte: all listings of the world are a tenth of it; a floor that invents symbols ends here."""

_PAIR = np.dtype([("symbol", "<u8"), ("floor", "<u8")])


def symbol_name(word: int) -> str:
    """The text in the eight bytes of a symbol."""
    return word.to_bytes(8, "little").rstrip(b"\0").decode("ascii")


def floor_name(word: int) -> str:
    """The text in the four bytes of a floor."""
    return word.to_bytes(4, "little").rstrip(b"\0").decode("ascii")


class QuoteLines:
    """Every line, symbol and floor that was met."""

    def __init__(self) -> None:
        """Nothing was met."""
        self._lines = RecordTable(LINE_DTYPE)
        self._symbols = RecordTable(SYMBOL_DTYPE)
        self._floors = RecordTable(FLOOR_DTYPE)
        self._keys = KeyTable()
        self._symbol_numbers: dict[int, int] = {}
        self._floor_numbers: dict[int, int] = {}
        self._grouped: tuple[Indices, Indices] | None = None

    @property
    def all(self) -> Records:
        """The lines, valid until another is met."""
        return self._lines.all

    @property
    def symbols(self) -> Records:
        """The symbols, valid until another is met."""
        return self._symbols.all

    @property
    def floors(self) -> Records:
        """The floors, valid until another is met."""
        return self._floors.all

    def __len__(self) -> int:
        """How many lines there are."""
        return len(self._lines)

    def numbers(self, symbols: Words, floors: Words) -> Indices:
        """The line of each event; new ones are made. -1 where there is no symbol, or no room for another line."""
        found = self._keys.find(symbols, floors)
        missing = np.flatnonzero((found < 0) & (symbols != 0))
        if len(missing):
            pairs = np.empty(len(missing), _PAIR)
            pairs["symbol"], pairs["floor"] = symbols[missing], floors[missing]
            _, places = np.unique(pairs, return_index=True)
            self._add(pairs[np.sort(places)[: LINES_MAX - len(self)]])
            found[missing] = self._keys.find(symbols[missing], floors[missing])
        return found

    def symbol_number(self, word: int) -> int:
        """The number of a symbol; -1 if it was not met."""
        return self._symbol_numbers.get(word, -1)

    def floor_number(self, word: int) -> int:
        """The number of a floor, which is made if it is new."""
        number = self._floor_numbers.get(word)
        if number is None:
            number = self._floor_numbers[word] = len(self._floors)
            self._floors.extend(1)["floor"] = word
        return number

    def knows_floors(self, words: Iterable[int]) -> bool:
        """Whether all of these were met."""
        return self._floor_numbers.keys() >= set(words)

    def of_symbols(self, symbols: Indices) -> tuple[Indices, Indices]:
        """The lines of some symbols one after the other, each symbol's in their ranks, and where each symbol starts."""
        order, starts = self._groups()
        counts = self.symbols["lines"][symbols].astype(np.int64)
        ends = np.cumsum(counts)
        begins = ends - counts
        places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts[symbols] - begins, counts)
        return order[places], begins

    def restore(self, lines: Records, symbols: Records, floors: Records) -> None:
        """Take everything over from a snapshot."""
        self._lines.replace(lines)
        self._symbols.replace(symbols)
        self._floors.replace(floors)
        self._symbol_numbers = {word: number for number, word in enumerate(symbols["symbol"].tolist())}
        self._floor_numbers = {word: number for number, word in enumerate(floors["floor"].tolist())}
        self._keys = KeyTable()
        self._keys.put(lines["symbol"].astype(np.uint64), lines["floor"].astype(np.uint64), np.arange(len(lines)))
        self._grouped = None

    def _add(self, pairs: npt.NDArray[np.void]) -> None:
        first = len(self._lines)
        rows = self._lines.extend(len(pairs))
        rows["symbol"], rows["floor"] = pairs["symbol"], pairs["floor"]
        rows["first_row"] = rows["last_row"] = NO_ROW
        rows["high"], rows["low"] = NO_BID, NO_ASK
        numbers = [self._symbol_rank(word) for word in pairs["symbol"].tolist()]
        rows["symbol_number"] = [number for number, _ in numbers]
        rows["rank"] = [rank for _, rank in numbers]
        rows["floor_number"] = [self.floor_number(word) for word in pairs["floor"].tolist()]
        self._keys.put(pairs["symbol"].copy(), pairs["floor"].copy(), np.arange(first, first + len(pairs)))
        self._grouped = None

    def _symbol_rank(self, word: int) -> tuple[int, int]:
        """The number of a symbol, and which of its lines the new one is."""
        number = self._symbol_numbers.get(word)
        if number is None:
            number = self._symbol_numbers[word] = len(self._symbols)
            self._symbols.extend(1)["symbol"] = word
        rank = int(self.symbols["lines"][number])
        self.symbols["lines"][number] = rank + 1
        return number, rank

    def _groups(self) -> tuple[Indices, Indices]:
        """All lines by symbol, and where each symbol starts."""
        if self._grouped is None:
            order = np.argsort(self.all["symbol_number"], kind="stable")
            counts = self.symbols["lines"].astype(np.int64)
            self._grouped = order, np.cumsum(counts) - counts
        return self._grouped

    def of_floors(self, words: Iterable[int]) -> npt.NDArray[np.bool_]:
        """Which lines are of these floors."""
        return np.isin(self.all["floor"], np.array(list(words), np.uint32))


LOCKED, CROSSED = 1, 2
"""What `market` of a symbol says."""

_Prices = npt.NDArray[np.int64]


def take_quotes(piece: TapePiece, places: Indices, lines: QuoteLines, faults: FaultBook) -> None:
    """The quotes of a piece. A quantity of 0 withdraws a side."""
    places = _believed(piece.events, places, faults)
    if not len(places):
        return
    quotes, line = piece.events[places], piece.lines[places]
    _watch_markets(quotes, line, places, lines, faults)
    keys = 2 * line + (quotes["side"] == Side.SELL)
    order = stable_order(keys, 2 * len(lines))
    is_last = np.append(keys[order[1:]] != keys[order[:-1]], [True])
    newest = order[is_last]
    is_bid = quotes["side"][newest] == Side.BUY
    table = lines.all
    for name, chosen in (("bid", newest[is_bid]), ("ask", newest[~is_bid])):
        to = line[chosen]
        size = quotes["quantity"][chosen]
        table[name][to] = np.where(size > 0, quotes["price"][chosen], 0)
        table[f"{name}_size"][to] = size
        table[f"{name}_time"][to] = quotes["time"][chosen]


def _believed(events: EventArray, places: Indices, faults: FaultBook) -> Indices:
    """Quotes of a side, at a price that can be; a side that is withdrawn needs no price."""
    side, price = events["side"][places], events["price"][places]
    is_there = events["quantity"][places] > 0
    is_good = np.ones(len(places), np.bool_)
    for fault, is_wrong in (
        (TapeFault.NO_SIDE, side == Side.NONE),
        (TapeFault.NO_PRICE, is_there & (price == 0)),
        (TapeFault.WILD_PRICE, is_there & ((price > PRICE_LIMIT) | (price < -PRICE_LIMIT))),
    ):
        if is_wrong.any():
            faults.note(fault, places[is_wrong])
            is_good &= ~is_wrong
    return places[is_good]


def _watch_markets(quotes: EventArray, line: Indices, places: Indices, lines: QuoteLines, faults: FaultBook) -> None:
    """Note every quote that locks or crosses the market of its symbol. Before the quotes are in their lines.

    A symbol whose highest bid of the piece, the standing ones included, stays below its lowest offer cannot be
    either: only the others are followed from quote to quote.
    """
    table = lines.all
    symbol = table["symbol_number"][line].astype(np.int64)
    order = stable_order(symbol, len(lines.symbols))
    sorted_symbol = symbol[order]
    starts = np.flatnonzero(np.concatenate([[True], sorted_symbol[1:] != sorted_symbol[:-1]]))
    symbols = sorted_symbol[starts]
    bids, asks = _active(quotes[order])
    members, begins = lines.of_symbols(symbols)
    standing_bids = np.where(table["bid_size"][members] > 0, table["bid"][members], NO_BID)
    standing_asks = np.where(table["ask_size"][members] > 0, table["ask"][members], NO_ASK)
    highest = np.maximum(np.maximum.reduceat(bids, starts), np.maximum.reduceat(standing_bids, begins))
    lowest = np.minimum(np.minimum.reduceat(asks, starts), np.minimum.reduceat(standing_asks, begins))
    is_close = (highest >= lowest) | (lines.symbols["market"][symbols] != 0)
    if not is_close.any():
        return
    group = np.repeat(np.cumsum(is_close) - 1, np.diff(np.append(starts, len(order))))
    chosen = np.repeat(is_close, np.diff(np.append(starts, len(order))))
    at = order[chosen]
    codes = _follow(quotes[at], table["rank"][line[at]], group[chosen], symbols[is_close], lines)
    _note_changes(codes, quotes["flags"][at], group[chosen], places[at], symbols[is_close], lines, faults)


def _active(quotes: EventArray) -> tuple[_Prices, _Prices]:
    """The bid or offer that each quote makes; none where it is of the other side, or withdraws."""
    is_there, is_bid = quotes["quantity"] > 0, quotes["side"] == Side.BUY
    price = quotes["price"]
    return np.where(is_there & is_bid, price, NO_BID), np.where(is_there & ~is_bid, price, NO_ASK)


def _follow(
    quotes: EventArray, ranks: npt.NDArray[np.uint32], group: Indices, symbols: Indices, lines: QuoteLines
) -> npt.NDArray[np.uint8]:
    """What the market of its symbol is after each quote; quotes are given symbol by symbol.

    Line after line of every symbol at once: its newest price up to each quote, and the best of all lines so far.
    """
    table = lines.all
    count = len(quotes)
    first = np.searchsorted(group, np.arange(len(symbols)))[group]
    counts = lines.symbols["lines"][symbols].astype(np.int64)
    members, begins = lines.of_symbols(symbols)
    bids, asks = _active(quotes)
    is_bid = quotes["side"] == Side.BUY
    numbers = np.arange(count)
    best_bid, best_ask = np.full(count, NO_BID), np.full(count, NO_ASK)
    for rank in range(int(counts.max())):
        own = members[np.minimum(begins + rank, len(members) - 1)]
        is_own = ranks == rank
        has = counts > rank
        bid = np.where(has & (table["bid_size"][own] > 0), table["bid"][own], NO_BID)[group]
        ask = np.where(has & (table["ask_size"][own] > 0), table["ask"][own], NO_ASK)[group]
        newest = np.maximum.accumulate(np.where(is_own & is_bid, numbers, -1))
        best_bid = np.maximum(best_bid, np.where(newest >= first, bids[newest], bid))
        newest = np.maximum.accumulate(np.where(is_own & ~is_bid, numbers, -1))
        best_ask = np.minimum(best_ask, np.where(newest >= first, asks[newest], ask))
    return np.where(best_bid > best_ask, CROSSED, np.where(best_bid == best_ask, LOCKED, 0)).astype(np.uint8)


def _note_changes(
    codes: npt.NDArray[np.uint8],
    flags: npt.NDArray[np.uint16],
    group: Indices,
    places: Indices,
    symbols: Indices,
    lines: QuoteLines,
    faults: FaultBook,
) -> None:
    """Name the quotes that changed a market for the worse. A LINKED quote is judged with the one that follows."""
    judged = np.flatnonzero((flags & int(EventFlag.LINKED)) == 0)
    if not len(judged):
        return
    code, group, places = codes[judged], group[judged], places[judged]
    market = lines.symbols["market"]
    begins = np.concatenate([[True], group[1:] != group[:-1]])
    before = np.concatenate([[0], code[:-1]])
    before[begins] = market[symbols[group[begins]]]
    for fault, bad in ((TapeFault.LOCKED_MARKET, LOCKED), (TapeFault.CROSSED_MARKET, CROSSED)):
        faults.note(fault, places[(code == bad) & (before != bad)])
    is_last = np.append(begins[1:], [True])
    market[symbols[group[is_last]]] = code[is_last]
