"""A tape that looks at one event after the other, with lists and dictionaries: slow, and plainly right.

It keeps every trade that it was ever given and finds each figure anew from all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from isocast.terms.market import EventFlag, EventKind, MarketStatus, Side
from isocast.ticker.records import TapeFault
from isocast.wire.events import EventArray

__all__ = ["SlowTape", "ends_of"]

LIMIT = 1 << 44
TWELVE_HOURS = 12 * 3_600 * 10**9
STATUSES = {int(status) for status in MarketStatus}

Line = tuple[str, str]


@dataclass
class SlowTrade:
    line: Line
    id: int
    price: int
    quantity: int
    time: int
    day: int
    first: tuple[int, int, int]
    cancelled: bool = False
    hidden: bool = False
    tentative: bool = False
    corrections: int = 0
    flags: int = 0

    @property
    def counts(self) -> bool:
        flawed = self.price == 0 or abs(self.price) > LIMIT or self.quantity == 0
        return not (self.cancelled or self.hidden or self.tentative or flawed)


def ends_of(trades: list[SlowTrade]) -> list[SlowTrade]:
    """Trades that may be open or last; if there is none, the first of those that are only not last."""
    plain = [trade for trade in trades if not trade.flags & (EventFlag.NOT_LAST | EventFlag.NOT_HIGH_LOW)]
    spare = [trade for trade in trades if not trade.flags & EventFlag.NOT_HIGH_LOW]
    return plain or spare[:1]


@dataclass
class SlowOrder:
    id: int
    side: int
    price: int | None
    quantity: int


@dataclass
class SlowBook:
    """A list of orders; whatever is asked is found anew from all of them."""

    orders: list[SlowOrder] = field(default_factory=list)
    market: str = ""
    sound: bool = True

    def depth(self, side: int) -> list[tuple[int, int, int]]:
        """Price, size and orders, the best first."""
        own = [order for order in self.orders if order.side == side and order.price is not None]
        prices = sorted({order.price for order in own if order.price is not None}, reverse=side == Side.BUY)
        at = [(price, [order.quantity for order in own if order.price == price]) for price in prices]
        return [(price, sum(sizes), len(sizes)) for price, sizes in at]


@dataclass
class SlowTape:
    trades: list[SlowTrade] = field(default_factory=list)
    quotes: dict[Line, dict[int, tuple[int, int]]] = field(default_factory=dict)
    statuses: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    listed: dict[Line, tuple[int, int]] = field(default_factory=dict)
    markets: dict[str, str] = field(default_factory=dict)
    opened: dict[str, int] = field(default_factory=dict)
    days: dict[str, int] = field(default_factory=dict)
    faults: list[tuple[TapeFault, int]] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    previous: dict[Line, int] = field(default_factory=dict)
    books: dict[Line, SlowBook] = field(default_factory=dict)
    events: int = 0

    def take(self, events: EventArray) -> None:  # noqa: PLR0912 - a case for each kind
        for kind, side, flags, floor, symbol, price, quantity, reference, time, number in events.tolist():
            self.events += 1
            line = symbol.decode(), floor.decode()
            if symbol and line not in self.lines:
                self.lines.append(line)
            match kind:
                case EventKind.MARK:
                    if reference == ord("O"):
                        self.mark(line[1], time)
                    elif reference == ord("R") and symbol:
                        self.books[line] = SlowBook()
                case EventKind.STATUS:
                    if reference in STATUSES:
                        self.statuses[line] = reference, self.events
                    else:
                        self.wrong(TapeFault.UNKNOWN_STATUS)
                case _ if not symbol:
                    self.wrong(TapeFault.NO_SYMBOL)
                case EventKind.ORDER | EventKind.CANCEL | EventKind.REPLACE:
                    self.order(line, kind, side, flags, price, quantity, number)
                case EventKind.TRADE:
                    self.trade(line, number, price, quantity, time, flags)
                case EventKind.EXECUTION:
                    self.trade(line, reference, price, quantity, time, flags)
                    self.order(line, kind, side, flags, price, quantity, number)
                case EventKind.CORRECTION | EventKind.TRADE_CANCEL:
                    self.refer(line, number, price, quantity, flags, cancel=kind == EventKind.TRADE_CANCEL)
                case EventKind.QUOTE:
                    self.quote(line, side, price, quantity, flags)
                case EventKind.DIRECTORY:
                    self.listed[line] = price, quantity
                case _:
                    raise AssertionError(kind)

    def wrong(self, fault: TapeFault) -> None:
        self.faults.append((fault, self.events))

    def mark(self, floor: str, time: int) -> None:
        opened = self.opened.get(floor, 0)
        if opened and time < opened + TWELVE_HOURS:
            return
        if opened:
            for line in self.lines:
                if line[1] == floor and (ends := ends_of(self.standing(line))):
                    self.previous[line] = ends[-1].price
            self.days[floor] = self.days.get(floor, 0) + 1
        self.opened[floor] = time
        self.books = {line: book if line[1] != floor else SlowBook() for line, book in self.books.items()}

    def trade(self, line: Line, number: int, price: int, quantity: int, time: int, flags: int) -> None:
        day = self.days.get(line[1], 0)
        same_id = self.known(line, number)
        if same_id and same_id[-1].first == (price, quantity, time):
            self.wrong(TapeFault.DUPLICATE_TRADE)
        else:
            if same_id:
                self.wrong(TapeFault.REUSED_ID)
            trade = SlowTrade(line, number, price, quantity, time, day, (price, quantity, time))
            trade.flags = flags
            trade.hidden = bool(flags & EventFlag.UNPRINTED)
            trade.tentative = bool(flags & EventFlag.TENTATIVE)
            self.trades.append(trade)
        if price == 0:
            self.wrong(TapeFault.NO_PRICE)
        if abs(price) > LIMIT:
            self.wrong(TapeFault.WILD_PRICE)
        if quantity == 0:
            self.wrong(TapeFault.NO_QUANTITY)

    def known(self, line: Line, number: int) -> list[SlowTrade]:
        """Trades of an id, of this day and the one before."""
        since = self.days.get(line[1], 0) - 1
        return [trade for trade in self.trades if trade.line == line and trade.id == number != 0 and trade.day >= since]

    def refer(self, line: Line, number: int, price: int, quantity: int, flags: int, *, cancel: bool) -> None:
        found = self.known(line, number)
        if not found:
            return self.wrong(TapeFault.UNKNOWN_REFERENCE)
        trade = found[-1]
        if trade.day < self.days.get(line[1], 0):
            return self.wrong(TapeFault.LATE_REFERENCE)
        if trade.cancelled:
            return self.wrong(TapeFault.DUPLICATE_REFERENCE if cancel else TapeFault.CANCELLED_REFERENCE)
        if cancel:
            trade.cancelled = True
            return None
        if price == 0 or abs(price) > LIMIT or quantity == 0:
            return self.wrong(TapeFault.BAD_CORRECTION)
        tentative = bool(flags & EventFlag.TENTATIVE)
        if (trade.price, trade.quantity, trade.tentative) == (price, quantity, tentative):
            return self.wrong(TapeFault.DUPLICATE_REFERENCE)
        trade.price, trade.quantity, trade.tentative = price, quantity, tentative
        trade.corrections += 1
        return None

    def quote(self, line: Line, side: int, price: int, quantity: int, flags: int) -> None:
        is_wrong = side == Side.NONE
        if side == Side.NONE:
            self.wrong(TapeFault.NO_SIDE)
        if quantity and price == 0:
            self.wrong(TapeFault.NO_PRICE)
            is_wrong = True
        if quantity and abs(price) > LIMIT:
            self.wrong(TapeFault.WILD_PRICE)
            is_wrong = True
        if is_wrong:
            return
        self.quotes.setdefault(line, {})[side] = price, quantity
        if flags & EventFlag.LINKED:
            return
        bid, ask = self.best(line[0], Side.BUY), self.best(line[0], Side.SELL)
        market = ""
        if bid and ask and bid[0] >= ask[0]:
            market = "locked" if bid[0] == ask[0] else "crossed"
        if market and market != self.markets.get(line[0], ""):
            self.wrong(TapeFault.LOCKED_MARKET if market == "locked" else TapeFault.CROSSED_MARKET)
        self.markets[line[0]] = market

    def order(self, line: Line, kind: int, side: int, flags: int, price: int, quantity: int, number: int) -> None:
        hidden = bool(flags & (EventFlag.MARKET | EventFlag.IMMEDIATE))
        if kind in (EventKind.ORDER, EventKind.REPLACE):
            if kind == EventKind.ORDER and side == Side.NONE:
                return self.wrong(TapeFault.NO_SIDE)
            if price == 0 and not (hidden and kind == EventKind.ORDER):
                return self.wrong(TapeFault.NO_PRICE)
            if abs(price) > LIMIT and not (hidden and kind == EventKind.ORDER):
                return self.wrong(TapeFault.WILD_PRICE)
            if kind == EventKind.ORDER and quantity == 0:
                return self.wrong(TapeFault.NO_QUANTITY)
        if kind == EventKind.EXECUTION and line not in self.books:
            return None
        book = self.books.setdefault(line, SlowBook())
        found = [order for order in book.orders if order.id == number]
        if kind == EventKind.ORDER and found:
            self.wrong(TapeFault.REUSED_ORDER)
        elif kind != EventKind.ORDER and not found:
            self.wrong(TapeFault.UNKNOWN_ORDER)
        book.sound = book.sound and bool(found) == (kind != EventKind.ORDER)
        if kind in (EventKind.ORDER, EventKind.REPLACE):
            own = found[0].side if found and kind == EventKind.REPLACE else side
            book.orders = [order for order in book.orders if order.id != number]
            if own and quantity:
                book.orders.append(SlowOrder(number, own, None if hidden else price, quantity))
        for order in found if kind in (EventKind.CANCEL, EventKind.EXECUTION) else ():
            gone = order.quantity if kind == EventKind.CANCEL and not quantity else quantity
            if gone > order.quantity:
                self.wrong(TapeFault.BEYOND_REST)
                book.sound = False
            order.quantity -= min(gone, order.quantity)
        book.orders = [order for order in book.orders if order.quantity]
        if not flags & EventFlag.LINKED:
            self.judge(book)
        return None

    def judge(self, book: SlowBook) -> None:
        bids, asks = book.depth(Side.BUY), book.depth(Side.SELL)
        market = ""
        if bids and asks and bids[0][0] >= asks[0][0]:
            market = "locked" if bids[0][0] == asks[0][0] else "crossed"
        if market and market != book.market:
            self.wrong(TapeFault.LOCKED_BOOK if market == "locked" else TapeFault.CROSSED_BOOK)
        book.market = market

    # What it says -------------------------------------------------------------------------------

    def best(self, symbol: str, side: Side, *, books: bool = False) -> tuple[int, int, tuple[str, ...]] | None:
        """Price, size together, floors."""
        there = [(*self.quotes.get(line, {}).get(side, (0, 0)), line[1]) for line in self.lines if line[0] == symbol]
        there = [quote for quote in there if quote[1]]
        for line in [line for line in self.lines if line[0] == symbol and books and not self.quotes.get(line)]:
            levels = self.books[line].depth(side) if line in self.books else []
            there += [(*level[:2], line[1]) for level in levels[:1]]
        if not there:
            return None
        price = (max if side is Side.BUY else min)(quote[0] for quote in there)
        at = [quote for quote in there if quote[0] == price]
        return price, sum(quote[1] for quote in at), tuple(quote[2] for quote in at)

    def of_today(self, *lines: Line) -> list[SlowTrade]:
        return [trade for trade in self.trades if trade.line in lines and trade.day == self.days.get(trade.line[1], 0)]

    def standing(self, *lines: Line) -> list[SlowTrade]:
        return [trade for trade in self.of_today(*lines) if trade.counts]

    def day(self, *lines: Line) -> tuple[object, ...]:
        """Open, high, low, close, volume, vwap, trades, cancelled, corrected."""
        trades = self.standing(*lines)
        prices = [trade.price for trade in trades if not trade.flags & EventFlag.NOT_HIGH_LOW]
        ends = [trade.price for trade in ends_of(trades)]
        volume = sum(trade.quantity for trade in trades)
        turnover = sum(trade.price * trade.quantity for trade in trades)
        has = bool(prices)
        return (
            ends[0] if has else None,
            max(prices) if has else None,
            min(prices) if has else None,
            ends[-1] if has else None,
            volume,
            (Decimal(turnover) / volume / 10_000).quantize(Decimal("0.000001")) if volume else None,
            len(trades),
            sum(trade.cancelled for trade in self.of_today(*lines)),
            sum(trade.corrections for trade in self.of_today(*lines)),
        )

    def status(self, line: Line) -> int | None:
        said = [self.statuses[key] for key in (line, ("", line[1])) if key in self.statuses]
        return max(said, key=lambda entry: entry[1])[0] if said else None
