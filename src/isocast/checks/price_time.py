"""T4: price, then time, for each rule of trading, from what a floor was told and what it said.

The judge matches nothing. It keeps what waits, as entries and reports tell, and asks of every trade whether somebody
else should have had it:

    continuous      whoever waited is the best of its side: no better price, and none of that price that came before;
                    the price is the one that the symbol's rule gives, and within both limits
    uniform         one price, at which most trades and least is left over; whoever stands before the last price level
                    is filled whole, whoever stands behind gets nothing, and in it the share is by time, in proportion,
                    or token by token
    second price    no revealed bid is higher, or as high and earlier; the price is the larger of the next bid and the
                    reserve
    dutch           the price on the clock in this token, not above the bid's ceiling
    offer           the offer's price

Time is the order in which orders came, were woken, lost their place by a replace, or showed the next part of an
iceberg. Stops of a symbol with a band that enter at once are left out: whether it is paused is said nowhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import groupby
from typing import Any, TypeAlias

from isocast.checks.floor_acts import FloorAct, FloorMoment, FloorTranscript, FloorWrong

__all__ = ["PriceTime"]

_BUY = 1
_Fields: TypeAlias = Mapping[str, Any]


@dataclass(slots=True, eq=False)
class _Order:
    """An order, as far as it is known from outside."""

    id: int
    is_buy: bool
    price: int
    total: int
    is_market: bool
    display: int
    trigger: int | None
    for_close: bool
    place: int = 0
    token: int = 0
    filled: int = 0
    part: int = 0
    is_waiting: bool = False
    """In the book."""
    is_in_doubt: bool = False

    @property
    def left(self) -> int:
        return self.total - self.filled

    @property
    def shown(self) -> int:
        return min(self.part, self.left) if self.display else self.left

    @property
    def level(self) -> tuple[int, int, int]:
        """Smaller is better: market orders without a bound, then by price, market orders of that price first."""
        if self.is_market and not self.price:
            return (0, 0, 0)
        return (1, -self.price if self.is_buy else self.price, 0 if self.is_market else 1)

    def accepts(self, price: int) -> bool:
        """Whether its limit allows a price."""
        if self.is_market and not self.price:
            return True
        return price <= self.price if self.is_buy else price >= self.price


@dataclass(slots=True, eq=False)
class _Symbol:
    """What is known of a symbol."""

    terms: _Fields
    phase: str
    reference: int | None
    earlier: _Fields = field(default_factory=dict)
    """The terms before these."""
    waiting: dict[int, _Order] = field(default_factory=dict)
    stops: dict[int, _Order] = field(default_factory=dict)
    """In the order of their places."""
    for_close: dict[int, _Order] = field(default_factory=dict)
    doubtful: dict[int, _Order] = field(default_factory=dict)
    """Of which nobody says whether they wait in the book or outside it."""
    heaps: dict[bool, list[tuple[tuple[int, int, int], int, int]]] = field(
        default_factory=lambda: {True: [], False: []}
    )
    """(level, place, id) of buys and of sells; some have gone."""

    def best(self, *, is_buy: bool) -> _Order | None:
        """Who should trade next of a side."""
        heap = self.heaps[is_buy]
        while heap:
            level, place, number = heap[0]
            found = self.waiting.get(number)
            if found is not None and (found.level, found.place, found.is_buy) == (level, place, is_buy):
                return found
            heappop(heap)
        return None


@dataclass(slots=True)
class _Lot:
    """A lot that is open, and its bids by account: id, price once it is revealed."""

    fields: _Fields
    opened: int
    bids: dict[int, tuple[int, int | None]] = field(default_factory=dict)


class PriceTime:
    """Judges the trades of one floor."""

    def __init__(self) -> None:
        """Nothing waits."""
        self._symbols: dict[str, _Symbol] = {}
        self._orders: dict[int, tuple[_Symbol, _Order]] = {}
        self._offers: dict[int, _Fields] = {}
        self._lots: dict[int, _Lot] = {}
        self._places = 0
        self._token = 0
        self._woken: deque[tuple[_Symbol, _Order]] = deque()
        self._incoming: tuple[_Symbol, _Order] | None = None
        """The order that trades now."""
        self._prices: list[int] = []
        """Of its trades."""
        self._auction: list[_Fields] = []
        """Trades of the auction that is under way."""
        self._wrong: list[FloorWrong] = []
        self.judged: dict[str, int] = {}
        """Trades by rule."""

    def step(self, transcript: FloorTranscript) -> list[FloorWrong]:
        """The next token; what is wrong in it."""
        self._token = transcript.token
        self._wrong = []
        for act in transcript.acts:
            self._enter(act)
            for said in act.reports:
                self._said(act, said.kind, said.fields)
            self._settle(act)
        return self._wrong

    def _count(self, rule: str, trades: int = 1) -> None:
        self.judged[rule] = self.judged.get(rule, 0) + trades

    def _tell(self, rule: str, trade: _Fields, text: str) -> None:
        number = trade["number"]
        self._wrong.append(FloorWrong("T4", self._token, f"trade {number}: {text}", rule, number))

    # What enters -----------------------------------------------------------------------------------------------

    def _enter(self, act: FloorAct) -> None:
        if act.is_refused:
            return
        fields = act.fields
        match act.kind:
            case "directory":
                known = self._symbols.get(fields["symbol"])
                if known is None:
                    self._symbols[fields["symbol"]] = _Symbol(fields, fields["phase"], fields["reference"])
                else:
                    known.earlier, known.terms = known.terms, fields
            case "status":
                self._change(fields, self._put_off_close)
            case "order":
                self._enter_order(fields)
            case "lot":
                self._lots[fields["id"]] = _Lot(fields, self._token)
            case "commit":
                bids = self._lots[fields["lot"]].bids
                bids.pop(fields["account"], None)
                bids[fields["account"]] = (fields["id"], None)
            case "reveal":
                for lot in self._lots.values():
                    if lot.bids.get(fields["account"], (None,))[0] == fields["id"]:
                        lot.bids[fields["account"]] = (fields["id"], fields["price"])
            case _:
                pass

    def _enter_order(self, fields: _Fields) -> None:
        if fields["is_offer"]:
            self._offers[fields["id"]] = fields
            return
        symbol = self._symbols[fields["symbol"]]
        display = fields["display"] if fields["display"] < fields["quantity"] else 0
        order = _Order(
            fields["id"], fields["side"] == _BUY, fields["price"], fields["quantity"], fields["is_market"], display,
            fields["trigger"], fields["at"] == "close",
        )  # fmt: skip
        self._orders[order.id] = (symbol, order)
        self._arrive(symbol, order)

    def _arrive(self, symbol: _Symbol, order: _Order) -> None:
        """An order comes, or comes again: it trades now, or waits outside the book."""
        self._places += 1
        order.place, order.token = self._places, self._token
        if order.trigger is not None:
            if symbol.phase == "open" and _has_reached(order, symbol.reference):
                order.trigger = None
                order.is_in_doubt = bool(symbol.terms["band_bp"])
            else:
                symbol.stops[order.id] = order
                return
        if order.is_in_doubt:
            symbol.doubtful[order.id] = order
        if order.for_close and symbol.phase != "closing":
            symbol.for_close[order.id] = order
            return
        self._incoming = (symbol, order)

    def _rest(self, symbol: _Symbol, order: _Order) -> None:
        if order.is_in_doubt:
            return
        order.is_waiting = True
        order.part = min(order.display, order.left)
        symbol.waiting[order.id] = order
        heappush(symbol.heaps[order.is_buy], (order.level, order.place, order.id))

    def _leave(self, symbol: _Symbol, order: _Order) -> None:
        order.is_waiting = False
        for where in (symbol.waiting, symbol.stops, symbol.for_close, symbol.doubtful):
            where.pop(order.id, None)

    def _forget(self, symbol: _Symbol, order: _Order) -> None:
        self._leave(symbol, order)
        self._orders.pop(order.id, None)

    def _change(self, fields: _Fields, what: Callable[[_Symbol, str], None]) -> None:
        named = [*self._symbols] if fields["symbol"] is None else [fields["symbol"]]
        for name in named:
            symbol = self._symbols.get(name)
            if symbol is not None and symbol.phase != fields["phase"]:
                what(symbol, fields["phase"])

    def _put_off_close(self, symbol: _Symbol, phase: str) -> None:
        """A closing call that ends without its auction."""
        if symbol.phase == "closing" and phase != "closed":
            ranked = sorted(symbol.waiting.values(), key=lambda one: (not one.is_buy, one.level, one.place))
            for order in [one for one in ranked if one.for_close]:
                self._leave(symbol, order)
                symbol.for_close[order.id] = order

    def _enter_phase(self, symbol: _Symbol, phase: str) -> None:
        symbol.phase = phase
        if phase == "closing":
            for order in list(symbol.for_close.values()):
                self._leave(symbol, order)
                self._places += 1
                order.place, order.token = self._places, self._token
                self._rest(symbol, order)

    # What comes of it ------------------------------------------------------------------------------------------

    def _said(self, act: FloorAct, kind: str, fields: _Fields) -> None:
        if kind == "trade":
            self._traded(act, fields)
            return
        if self._auction:
            self._judge_auction(act)
        found = self._orders.get(fields.get("id", -1))
        if found is None or kind == "refused":
            if kind in {"cancelled", "unsold"}:
                self._drop_other(fields["id"])
            return
        self._turn(*found)
        symbol, order = found
        if kind == "replaced":
            self._replaced(act, symbol, order, fields["total"])
        elif kind == "cancelled":
            order.total -= fields["quantity"]
        elif kind == "expired":
            order.total = order.filled
        if order.left <= 0:
            self._forget(symbol, order)

    def _drop_other(self, number: int) -> None:
        self._lots.pop(number, None)
        for lot in self._lots.values():
            for account in [account for account, bid in lot.bids.items() if bid[0] == number]:
                del lot.bids[account]

    def _replaced(self, act: FloorAct, symbol: _Symbol, order: _Order, total: int) -> None:
        price = order.price if act.fields["price"] is None else act.fields["price"]
        trigger = order.trigger if act.fields["trigger"] is None else act.fields["trigger"]
        keeps = (price, trigger) == (order.price, order.trigger) and total <= order.total
        order.total = total
        if not keeps and order.left > 0:
            self._leave(symbol, order)
            order.price, order.trigger = price, trigger
            self._arrive(symbol, order)

    def _turn(self, symbol: _Symbol, order: _Order) -> None:
        """A report speaks of an order: if it waits in none of its places, it is its turn now."""
        if self._incoming is not None and self._incoming[1] is order:
            return
        if order.id in symbol.waiting or order.id in symbol.for_close or order.is_in_doubt:
            return
        self._flush()
        while any(woken is order for _, woken in self._woken):
            self._flush()
            following, stop = self._woken.popleft()
            stop.trigger = None
            self._places += 1
            stop.place, stop.token = self._places, self._token
            self._incoming = (following, stop)

    def _flush(self) -> None:
        """The order that traded is done: it rests, and what its trades wake joins the queue."""
        incoming, self._incoming = self._incoming, None
        prices, self._prices = self._prices, []
        if incoming is None:
            return
        symbol, order = incoming
        if order.left > 0 and self._orders.get(order.id, (None, None))[1] is order:
            self._rest(symbol, order)
        self._wake(symbol, prices)

    def _wake(self, symbol: _Symbol, prices: Sequence[int]) -> None:
        if not prices:
            return
        symbol.reference = prices[-1]
        low, high = min(prices), max(prices)
        for stop in list(symbol.stops.values()):
            if _has_reached(stop, high if stop.is_buy else low):
                del symbol.stops[stop.id]
                self._woken.append((symbol, stop))

    def _settle(self, act: FloorAct) -> None:
        """An event is over: a stop that it woke, and of which nothing was reported, rests."""
        if self._auction:
            self._judge_auction(act)
        self._flush()
        while self._woken:
            symbol, stop = self._woken.popleft()
            stop.trigger = None
            self._places += 1
            stop.place, stop.token = self._places, self._token
            if self._orders.get(stop.id, (None, None))[1] is stop and stop.left > 0:
                self._rest(symbol, stop)
        if act.kind == "status":
            self._change(act.fields, self._enter_phase)
        if act.moment is FloorMoment.BEGIN:
            decided = [number for number, lot in self._lots.items() if _is_decided(lot.fields, act.fields["at"])]
            for number in decided:
                del self._lots[number]

    # Trades ----------------------------------------------------------------------------------------------------

    def _traded(self, act: FloorAct, trade: _Fields) -> None:
        if trade["is_auction"]:
            if self._auction and self._auction[0]["symbol"] != trade["symbol"]:
                self._judge_auction(act)
            self._flush()
            self._auction.append(trade)
            return
        if self._auction:
            self._judge_auction(act)
        if act.kind == "take":
            self._judge_offer(act.fields["offer"], trade)
        elif trade["sell"] in self._lots:
            self._judge_lot(act, self._lots[trade["sell"]], trade)
        else:
            self._judge_continuous(trade)

    def _judge_continuous(self, trade: _Fields) -> None:
        rule, pair = "continuous", [self._orders.get(trade[side]) for side in ("buy", "sell")]
        if pair[0] is None or pair[1] is None:
            self._tell(rule, trade, "of an order that does not work")
            return
        for symbol, order in (pair[0], pair[1]):
            self._turn(symbol, order)
        symbol = pair[0][0]
        buy, sell = pair[0][1], pair[1][1]
        is_in_doubt = buy.is_in_doubt or sell.is_in_doubt
        if self._incoming is None or self._incoming[1] not in (buy, sell):
            if not is_in_doubt:
                self._tell(rule, trade, "both orders waited, and nobody came")
            self._flush()
            self._incoming = (symbol, buy if buy.is_in_doubt else sell)
        incoming = self._incoming[1]
        resting = sell if incoming is buy else buy
        if not is_in_doubt:
            self._judge_pair(symbol, resting, incoming, trade)
        self._prices.append(trade["price"])
        self._fill(symbol, resting, trade["quantity"])
        self._fill(symbol, incoming, trade["quantity"])

    def _judge_pair(self, symbol: _Symbol, resting: _Order, incoming: _Order, trade: _Fields) -> None:
        rule = f"continuous, {symbol.terms['price_rule']}"
        self._count(rule)
        best = symbol.best(is_buy=resting.is_buy)
        if best is not resting and (best is None or best.level <= resting.level):
            better = "nobody" if best is None else f"order {best.id} at {best.price}"
            self._tell(rule, trade, f"with order {resting.id} at {resting.price}, and {better} comes first")
        if trade["quantity"] > resting.shown:
            self._tell(rule, trade, f"{trade['quantity']} of order {resting.id}, which shows {resting.shown}")
        expected = _rule_price(symbol.terms, resting, incoming)
        if trade["price"] != expected or not (incoming.accepts(expected) and resting.accepts(expected)):
            self._tell(rule, trade, f"at {trade['price']}, and the rule gives {expected}")

    def _fill(self, symbol: _Symbol, order: _Order, quantity: int) -> None:
        order.filled += quantity
        if order.left <= 0:
            self._forget(symbol, order)
            return
        if order.display and order.is_waiting:
            order.part -= min(quantity, order.part)
            if order.shown <= 0:
                self._places += 1
                order.place, order.token = self._places, self._token
                self._rest(symbol, order)

    # Auctions --------------------------------------------------------------------------------------------------

    def _judge_auction(self, act: FloorAct) -> None:
        trades, self._auction = self._auction, []
        symbol = self._symbols[trades[0]["symbol"]]
        price, volume = trades[0]["price"], sum(trade["quantity"] for trade in trades)
        # A batch that its symbol's new terms do away with is held at once, by those before.
        is_last = act.kind == "directory"
        terms = symbol.earlier if is_last else symbol.terms
        share = "batch" if is_last or act.moment is FloorMoment.END else terms["share"]
        rule = f"uniform price, {share}"
        self._count(rule, len(trades))
        if any(trade["price"] != price for trade in trades):
            self._tell(rule, trades[0], "an auction at several prices")
        if not symbol.doubtful:
            self._judge_price(rule, symbol, trades[0], price, volume)
        for side, is_buy in (("buy", True), ("sell", False)):
            got: dict[int, int] = {}
            for trade in trades:
                got[trade[side]] = got.get(trade[side], 0) + trade["quantity"]
            ranked = sorted(
                [one for one in symbol.waiting.values() if one.is_buy == is_buy], key=lambda one: (one.level, one.place)
            )
            due = dict(_shares(ranked, volume, share, terms["lot"], price))
            unjust = [one for one in {**due, **got} if got.get(one, 0) != due.get(one, 0)]
            for number in unjust[:1] if not symbol.doubtful else ():
                blamed = next((one for one in trades if one[side] == number), trades[0])
                what = f"{got.get(number, 0)} of {volume} at {price}, and is due {due.get(number, 0)}"
                self._tell(rule, blamed, f"order {number} gets {what}")
            for number, quantity in got.items():
                found = self._orders.get(number)
                if found is not None:
                    found[1].filled += quantity
                    if found[1].left <= 0:
                        self._forget(*found)
        self._wake(symbol, [price])

    def _judge_price(self, rule: str, symbol: _Symbol, trade: _Fields, price: int, volume: int) -> None:
        """The largest volume, then the smallest surplus, of all prices that an order names."""

        def traded(at: int) -> tuple[int, int]:
            bought, sold = (
                sum(one.left for one in symbol.waiting.values() if one.is_buy == is_buy and one.accepts(at))
                for is_buy in (True, False)
            )
            return -min(bought, sold), abs(bought - sold)

        named = {one.price for one in symbol.waiting.values() if not one.is_market}
        best = min((traded(at), at) for at in {*named, price})
        here = traded(price)
        if here[0] != -volume:
            self._tell(rule, trade, f"an auction of {volume} at {price}, where {-here[0]} could trade")
        elif here != best[0]:
            what = f"{-best[0][0]} would trade with {best[0][1]} left over at {best[1]}"
            self._tell(rule, trade, f"an auction of {volume} with {here[1]} left over at {price}, and {what}")

    # Offers and lots -------------------------------------------------------------------------------------------

    def _judge_offer(self, number: int, trade: _Fields) -> None:
        self._count("offer")
        offer = self._offers.get(number)
        if offer is None or trade["price"] != offer["price"]:
            self._tell("offer", trade, f"of offer {number}, not at its price")

    def _judge_lot(self, act: FloorAct, lot: _Lot, trade: _Fields) -> None:
        fields, number = lot.fields, trade["sell"]
        self._count("dutch" if fields["auction"] == "dutch" else "second price")
        if fields["auction"] == "dutch":
            price = max(fields["reserve"], fields["start"] - fields["step"] * (self._token - lot.opened))
            if trade["price"] != price or act.fields.get("ceiling", 0) < price:
                self._tell("dutch", trade, f"of lot {number} at {trade['price']}, and the clock stands at {price}")
            return
        ranked = sorted(
            [(-price, place, bid) for place, (bid, price) in enumerate(lot.bids.values())
             if price is not None and price >= fields["reserve"]]
        )  # fmt: skip
        second = -ranked[1][0] if len(ranked) > 1 else fields["reserve"]
        if not ranked or ranked[0][2] != trade["buy"]:
            winner = f"bid {ranked[0][2]}" if ranked else "nobody"
            self._tell("second price", trade, f"lot {number} goes to bid {trade['buy']}, and {winner} bid the most")
        elif trade["price"] != second:
            self._tell("second price", trade, f"lot {number} at {trade['price']}, and the second price is {second}")


def _has_reached(stop: _Order, price: int | None) -> bool:
    if price is None or stop.trigger is None:
        return False
    return stop.trigger <= price if stop.is_buy else stop.trigger >= price


def _is_decided(lot: _Fields, at: int) -> bool:
    return bool(lot["auction"] != "dutch" and at >= lot["closes_at"] + lot["window_ns"])


def _rule_price(terms: _Fields, resting: _Order, incoming: _Order) -> int:
    rule, tick = terms["price_rule"], int(terms["tick"])
    if rule == "resting" or incoming.is_market:
        return resting.price
    if rule == "midpoint":
        ticks = abs(incoming.price - resting.price) // (2 * tick)
        return resting.price + (ticks if incoming.price > resting.price else -ticks) * tick
    return incoming.price if incoming.is_buy == (rule == "buyer") else resting.price


def _shares(ranked: Iterable[_Order], volume: int, share: str, lot: int, price: int) -> Iterator[tuple[int, int]]:
    """What each order of a side is due, in the order in which they fill."""
    for _, group in groupby([one for one in ranked if one.accepts(price)], lambda one: one.level):
        level = list(group)
        # Orders of one token are equal in a batch, all of a level are where it is shared in proportion.
        keys = {"batch": lambda one: one.token, "pro-rata": lambda _: 0}
        for _, among in groupby(level, keys.get(share, lambda one: one.place)):
            equals = list(among)
            wanted = sum(one.left for one in equals)
            given = min(wanted, volume)
            parts = [one.left * given // wanted // lot * lot if given < wanted else one.left for one in equals]
            rest = given - sum(parts)
            for one, part in zip(equals, parts, strict=True):
                more = min(one.left - part, rest)
                rest -= more
                yield one.id, part + more
            volume -= given
