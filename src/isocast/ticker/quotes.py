"""The best prices of each line, and whether those of all floors together are locked or crossed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from isocast.terms.market import EventFlag, Side
from isocast.ticker.faults import FaultBook, TapeFault
from isocast.ticker.keys import Indices, stable_order
from isocast.ticker.lines import Lines
from isocast.ticker.pieces import PRICE_LIMIT, Piece
from isocast.ticker.records import NO_ASK, NO_BID
from isocast.wire.events import EventArray

__all__ = ["CROSSED", "LOCKED", "take_quotes"]

LOCKED, CROSSED = 1, 2
"""What `market` of a symbol says."""

_Prices = npt.NDArray[np.int64]


def take_quotes(piece: Piece, places: Indices, lines: Lines, faults: FaultBook) -> None:
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


def _watch_markets(quotes: EventArray, line: Indices, places: Indices, lines: Lines, faults: FaultBook) -> None:
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
    quotes: EventArray, ranks: npt.NDArray[np.uint32], group: Indices, symbols: Indices, lines: Lines
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
    lines: Lines,
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
