"""What a tape says, in rows: each symbol now, the trades, and the end-of-day summary."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from isocast.terms.conditions import left_out_reason
from isocast.terms.instruments import scale_of
from isocast.terms.market import SYMBOL_BYTES, EventFlag, MarketStatus, Side
from isocast.ticker.books import FollowedBook
from isocast.ticker.quotes import CROSSED, LOCKED, floor_name, symbol_name
from isocast.ticker.records import NO_ROW, NOT_COUNTED, Indices, Records, TradeState
from isocast.ticker.tape import Tape

__all__ = [
    "Best",
    "DayRow",
    "Depth",
    "DepthLevel",
    "Sale",
    "SymbolView",
    "busiest",
    "codes_of",
    "day_rows",
    "depth_of",
    "depth_views",
    "left_out",
    "symbol_views",
    "tentative",
    "unlisted",
]

_CONDITIONS_AT = 8
"""The flags of conditions are the upper byte of an event's."""
_MARKETS = {0: "", LOCKED: "locked", CROSSED: "crossed"}
_STOPPED = (MarketStatus.HALTED, MarketStatus.PAUSED)
_RUNNING = (MarketStatus.TRADING, MarketStatus.QUOTING, MarketStatus.CLOSED)


@dataclass(frozen=True, slots=True)
class Sale:
    """A trade that stands."""

    price: int
    quantity: int
    floor: str
    time: int
    sequence: int
    id: int


@dataclass(frozen=True, slots=True)
class Best:
    """The best price of one side over all floors: who has it, and how much together."""

    price: int
    size: int
    floors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SymbolView:
    """A symbol now, across floors."""

    symbol: str
    last: Sale | None
    change: int | None
    """From the floor's last price of the day before, or from the day's first where that is not known."""
    bid: Best | None
    ask: Best | None
    market: str
    """locked, crossed, or nothing."""
    incomplete: tuple[str, ...]
    """The floors whose books have missed something."""
    volume: int
    trades: int
    status: MarketStatus | None
    """Halted or paused if any floor says so."""
    status_floors: tuple[str, ...]
    """The floors that say so."""
    status_time: int
    name: str
    """The full name of the instrument, or the symbol where that is not known."""


@dataclass(frozen=True, slots=True)
class DepthLevel:
    """A price, and how much is there in the books of all floors."""

    price: int
    size: int
    orders: int
    floors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Depth:
    """The books of a symbol, put together by price; the best price comes first."""

    symbol: str
    bids: tuple[DepthLevel, ...]
    asks: tuple[DepthLevel, ...]
    market: str
    """locked, crossed, or nothing."""
    incomplete: tuple[str, ...]
    """The floors whose books have missed something."""
    name: str
    """The full name of the instrument, or the symbol where that is not known."""


@dataclass(frozen=True, slots=True)
class DayRow:
    """The day of a symbol on one floor, or on all: floor is empty then."""

    symbol: str
    floor: str
    open: int | None
    high: int | None
    low: int | None
    close: int | None
    volume: int
    vwap: Decimal | None
    trades: int
    cancelled: int
    corrected: int
    status: MarketStatus | None
    listed: bool
    name: str
    """The full name of the instrument, or the symbol where that is not known."""


def codes_of(tape: Tape, symbols: Collection[str]) -> list[str]:
    """The symbols under which instruments travel that are called by their symbols or by their full names."""
    return [
        code
        for name in symbols
        for code in (name, *tape.names.symbols_of(name))
        if code.isascii() and len(code) <= SYMBOL_BYTES
    ]


def symbol_views(
    tape: Tape, symbols: Collection[str] | None = None, floors: Collection[str] | None = None
) -> list[SymbolView]:
    """Symbols by name, of some floors; all if none are named. A name may be the full one of an instrument."""
    tape.trades.clean()
    return [_symbol_view(tape, number, lines, floors) for number, lines in _chosen(tape, symbols, floors)]


def depth_views(
    tape: Tape, levels: int, symbols: Collection[str] | None = None, floors: Collection[str] | None = None
) -> list[Depth]:
    """The books of symbols by name, at most so many levels of each side; symbols without a book are left out."""
    wanted = None if floors is None else {_word(name) for name in floors}
    names = None if symbols is None else {_word(code) for code in codes_of(tape, symbols)}
    together: dict[int, list[FollowedBook]] = {}
    for book in tape.books.books:
        if (wanted is None or book.floor in wanted) and (names is None or book.symbol in names):
            together.setdefault(book.symbol, []).append(book)
    coded = [(symbol_name(symbol), books) for symbol, books in together.items()]
    found = [depth_of(code, books, levels, tape.names.names_of(code)) for code, books in coded]
    return sorted(found, key=lambda depth: depth.symbol)


def depth_of(symbol: str, books: list[FollowedBook], levels: int, name: str | None = None) -> Depth:
    """Books of one symbol, put together by price."""
    bids, asks = (_levels(books, side, levels) for side in (Side.BUY, Side.SELL))
    gap = asks[0].price - bids[0].price if bids and asks else 1
    market = _MARKETS[CROSSED if gap < 0 else LOCKED if gap == 0 else 0]
    return Depth(symbol, bids, asks, market, _incomplete(books), name or symbol)


def _levels(books: list[FollowedBook], side: Side, levels: int) -> tuple[DepthLevel, ...]:
    together: dict[int, tuple[int, int, tuple[str, ...]]] = {}
    for book in books:
        for price, size, orders in book.depth(side, levels):
            known = together.get(price, (0, 0, ()))
            together[price] = known[0] + size, known[1] + orders, (*known[2], floor_name(book.floor))
    best = sorted(together, reverse=side == Side.BUY)[:levels]
    return tuple(DepthLevel(price, *together[price]) for price in best)


def _incomplete(books: list[FollowedBook]) -> tuple[str, ...]:
    return tuple(floor_name(book.floor) for book in books if not book.is_sound)


def busiest(tape: Tape, count: int, floors: Collection[str] | None = None) -> list[str]:
    """The names of the symbols with the largest volume, at most so many; equal ones by name."""
    lines, symbols = tape.lines.all, tape.lines.symbols
    is_wanted = np.ones(len(lines), np.bool_) if floors is None else tape.lines.of_floors(map(_word, floors))
    volume = np.zeros(len(symbols), np.int64)
    np.add.at(volume, lines["symbol_number"][is_wanted], lines["volume"][is_wanted])
    is_there = np.zeros(len(symbols), np.bool_)
    is_there[lines["symbol_number"][is_wanted]] = True
    # Read from the other end, the eight bytes of a symbol sort as its text does.
    order = np.lexsort((symbols["symbol"].byteswap(), -volume))
    chosen = order[is_there[order]][:count]
    return [symbol_name(word) for word in symbols["symbol"][chosen].tolist()]


def day_rows(tape: Tape, symbols: Collection[str] | None = None, floors: Collection[str] | None = None) -> list[DayRow]:
    """The summary: for each symbol its floors, and behind them all of them together if there are several."""
    tape.trades.clean()
    rows = []
    for _, lines in _chosen(tape, symbols, floors):
        rows += [_day_row(tape, lines[place : place + 1]) for place in range(len(lines))]
        if len(lines) > 1:
            rows.append(_day_row(tape, lines))
    return rows


def left_out(tape: Tape) -> dict[str, tuple[int, int]]:
    """Trades of the day that do not change all figures: how many and how many shares, by the reason."""
    trades = tape.trades.all
    today = trades[(trades["state"] & (TradeState.CANCELLED | TradeState.FLAWED | TradeState.PAST)) == 0]
    flags = today["conditions"].astype(np.int64) << _CONDITIONS_AT
    for state, flag in ((TradeState.UNPRINTED, EventFlag.UNPRINTED), (TradeState.TENTATIVE, EventFlag.TENTATIVE)):
        flags |= np.where(today["state"] & state, int(flag), 0)
    found: dict[str, tuple[int, int]] = {}
    for value in np.unique(flags).tolist():
        reason = left_out_reason(value)
        if reason:
            own = today["quantity"][flags == value]
            count, shares = found.get(reason, (0, 0))
            found[reason] = count + len(own), shares + int(own.sum(dtype=np.int64))
    return found


def unlisted(tape: Tape) -> int:
    """Lines with trades or quotes of which no floor's directory has told."""
    lines = tape.lines.all
    is_used = (lines["largest_id"] > 0) | (lines["trades"] > 0) | (lines["bid_time"] > 0) | (lines["ask_time"] > 0)
    return int((is_used & (lines["listed"] == 0)).sum())


def tentative(tape: Tape) -> int:
    """Trades that wait to be confirmed."""
    return int(((tape.trades.all["state"] & NOT_COUNTED) == TradeState.TENTATIVE).sum())


# ---- one symbol


def _chosen(
    tape: Tape, symbols: Collection[str] | None, floors: Collection[str] | None
) -> Iterator[tuple[int, Indices]]:
    """Numbers of symbols by name, each with its lines."""
    chosen = None if symbols is None else dict.fromkeys(map(_word, codes_of(tape, symbols)))
    words = tape.lines.symbols["symbol"].tolist() if chosen is None else list(chosen)
    numbers = [number for word in words if (number := tape.lines.symbol_number(word)) >= 0]
    numbers.sort(key=lambda number: symbol_name(int(tape.lines.symbols["symbol"][number])))
    if not numbers:
        return
    members, begins = tape.lines.of_symbols(np.array(numbers, np.int64))
    is_wanted = None if floors is None else tape.lines.of_floors(map(_word, floors))
    for number, lines in zip(numbers, np.split(members, begins[1:]), strict=True):
        own = lines if is_wanted is None else lines[is_wanted[lines]]
        if len(own):
            yield number, own


def _word(name: str) -> int:
    return int.from_bytes(name.encode("ascii", "replace"), "little")


def _symbol_view(tape: Tape, number: int, lines: Indices, floors: Collection[str] | None) -> SymbolView:
    rows, symbol = tape.lines.all[lines], tape.lines.symbols[number]
    last, change = _last(tape, rows)
    status, names, moment = _status(tape, rows)
    books = _books(tape, rows)
    bid, ask = _best(rows, "bid", books), _best(rows, "ask", books)
    if floors is None and not books:
        market = _MARKETS[int(symbol["market"])]
    else:
        market = "" if bid is None or ask is None or bid.price < ask.price else _MARKETS[_market(bid, ask)]
    code = symbol_name(int(symbol["symbol"]))
    return SymbolView(
        code,
        last,
        change,
        bid,
        ask,
        market,
        _incomplete(books),
        int(rows["volume"].sum()),
        int(rows["trades"].sum()),
        status,
        names,
        moment,
        tape.names.names_of(code),
    )


def _market(bid: Best, ask: Best) -> int:
    return LOCKED if bid.price == ask.price else CROSSED


def _last(tape: Tape, rows: Records) -> tuple[Sale | None, int | None]:
    """The newest sale of some lines, and how the price has changed."""
    row = _end(tape, rows["last_row"], newest=True)
    if row == NO_ROW:
        return None, None
    trade, line = tape.trades.all[row], rows[int(np.flatnonzero(rows["last_row"] == row)[0])]
    first = _end(tape, rows["first_row"], newest=False)
    before = int(line["previous"] if line["has_previous"] else tape.trades.all["price"][first])
    price = int(trade["price"])
    sale = Sale(
        price,
        int(trade["quantity"]),
        floor_name(int(line["floor"])),
        int(trade["time"]),
        int(trade["sequence"]),
        int(trade["id"]),
    )
    return sale, price - before


def _end(tape: Tape, ends: Indices, *, newest: bool) -> int:
    """The newest or oldest of the trades at an end of several lines; one that is NOT_LAST only if all are."""
    there = ends[ends != NO_ROW]
    if not len(there):
        return NO_ROW
    is_spare = (tape.trades.all["state"][there] & TradeState.NOT_LAST) > 0
    if is_spare.all():
        return int(there.min())
    plain = there[~is_spare]
    return int(plain.max() if newest else plain.min())


def _books(tape: Tape, rows: Records) -> list[FollowedBook]:
    """The books of some lines; a floor that quotes is believed by its quotes."""
    if not tape.books.books:
        return []
    silent = rows[(rows["bid_time"] == 0) & (rows["ask_time"] == 0)]
    found = (tape.books.of(int(row["symbol"]), int(row["floor"])) for row in silent)
    return [book for book in found if book is not None]


def _best(rows: Records, side: str, books: list[FollowedBook]) -> Best | None:
    there = rows[rows[f"{side}_size"] > 0]
    ways = [*zip(there[side].tolist(), there[f"{side}_size"].tolist(), there["floor"].tolist(), strict=True)]
    for book in books:
        own = book.depth(Side.BUY if side == "bid" else Side.SELL, 1)
        ways += [(level.price, level.size, book.floor) for level in own]
    if not ways:
        return None
    price = (max if side == "bid" else min)(way[0] for way in ways)
    at = [way for way in ways if way[0] == price]
    return Best(price, sum(way[1] for way in at), tuple(floor_name(way[2]) for way in at))


def _status(tape: Tape, rows: Records) -> tuple[MarketStatus | None, tuple[str, ...], int]:
    """What floors say now; of a symbol's status and its whole floor's, the newer one counts."""
    floors = tape.lines.floors[rows["floor_number"]]
    is_whole = floors["status_event"] > rows["status_event"]
    statuses = np.where(is_whole, floors["status"], rows["status"])
    times = np.where(is_whole, floors["status_time"], rows["status_time"])
    for status in (*_STOPPED, *_RUNNING):
        said = np.flatnonzero(statuses == status)
        if len(said):
            names = tuple(floor_name(word) for word in rows["floor"][said].tolist())
            return status, names, int(times[said].max())
    return None, (), 0


def _day_row(tape: Tape, lines: Indices) -> DayRow:
    rows, trades = tape.lines.all[lines], tape.trades.all
    is_traded = rows["last_row"] != NO_ROW
    traded = rows[is_traded]
    volume = int(rows["volume"].sum())
    has = len(traded) > 0
    status, _, _ = _status(tape, rows)
    code = symbol_name(int(rows["symbol"][0]))
    return DayRow(
        code,
        floor_name(int(rows["floor"][0])) if len(rows) == 1 else "",
        int(trades["price"][_end(tape, rows["first_row"], newest=False)]) if has else None,
        int(traded["high"].max()) if has else None,
        int(traded["low"].min()) if has else None,
        int(trades["price"][_end(tape, rows["last_row"], newest=True)]) if has else None,
        volume,
        _vwap(rows, volume),
        int(rows["trades"].sum()),
        int(rows["cancelled"].sum()),
        int(rows["corrected"].sum()),
        status,
        bool(rows["listed"].any()),
        tape.names.names_of(code),
    )


def _vwap(rows: Records, volume: int) -> Decimal | None:
    """The mean price by volume, exact before it is rounded to a hundredth of a tick."""
    if volume <= 0:
        return None
    high, low = (sum(map(int, rows[name])) for name in ("notional_high", "notional_low"))
    decimals = scale_of(symbol_name(int(rows["symbol"][0]))).price
    mean: Decimal = (Decimal((high << 32) + low) / volume).scaleb(-decimals)
    return mean.quantize(Decimal(1).scaleb(-decimals - 2))
