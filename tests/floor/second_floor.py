"""A second floor, written from the rules alone and without a look at the first: lists, sorting, and no care for speed.

It reads events of `isocast floor lines` and gives trades, reports and the book in the same form. Where both agree on
random days, a mistake would have to be made twice. Left out: deadlines, orders for the opening and the close, icebergs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal, TypeAlias

Side: TypeAlias = Literal["buy", "sell"]
Fields: TypeAlias = Mapping[str, Any]
OPEN = "open"
CALLS = ("pre-open", "closing", "pause")
WHOLE = 10_000
"""Basis points."""


@dataclass(eq=False)
class Live:
    """An order, in the book or outside."""

    id: int
    account: int
    owner: int
    side: Side
    total: int
    price: int
    entered: int
    """Priority: lower is earlier."""
    token: int
    symbol: str
    flags: frozenset[str]
    trigger: int | None = None
    filled: int = 0
    is_over: bool = False

    @property
    def left(self) -> int:
        return self.total - self.filled

    @property
    def is_market(self) -> bool:
        return "market" in self.flags

    @property
    def is_boundless(self) -> bool:
        return self.is_market and not self.price

    def meets(self, price: int) -> bool:
        """Whether it trades at a price."""
        return self.is_boundless or (self.price >= price if self.side == "buy" else self.price <= price)

    def is_reached(self, price: int | None) -> bool:
        """Whether a trade at a price wakes it."""
        if price is None or self.trigger is None:
            return False
        return self.trigger <= price if self.side == "buy" else self.trigger >= price

    def is_own(self, other: Live) -> bool:
        return (self.account, self.owner) == (other.account, other.owner)

    @property
    def place(self) -> tuple[int, int, int, int]:
        """Where it is in its side: without a price first, then by price, at a price market orders first."""
        if self.is_boundless:
            return 0, 0, 0, self.entered
        return 1, -self.price if self.side == "buy" else self.price, 0 if self.is_market else 1, self.entered


@dataclass
class Listed:
    """A symbol."""

    name: str
    terms: Fields
    phase: str
    reference: int | None
    book: list[Live] = field(default_factory=list)
    stops: list[Live] = field(default_factory=list)
    woken: list[Live] = field(default_factory=list)
    pause_ends: int | None = None

    def side(self, side: Side) -> list[Live]:
        """In the order in which they fill."""
        return sorted([one for one in self.book if one.side == side], key=lambda one: one.place)

    def wanted(self, side: Side, price: int) -> int:
        return sum(one.left for one in self.side(side) if one.meets(price))

    @property
    def is_batch(self) -> bool:
        return self.phase == OPEN and self.terms["market"] == "batch"

    def remove(self, order: Live) -> None:
        for place in (self.book, self.stops, self.woken):
            if order in place:
                place.remove(order)


@dataclass
class SaleLot:
    """A lot, with the last bid of each account."""

    said: Fields
    opened: int
    left: int
    bids: dict[int, tuple[Fields, int]] = field(default_factory=dict)
    """With when it came."""
    revealed: dict[int, int] = field(default_factory=dict)

    def price_at(self, token: int) -> int:
        said = self.said
        return int(max(said["reserve"], said["start"] - said["step"] * (token - self.opened)))


class SecondFloor:
    """Applies events one by one; `out` is what came of them."""

    def __init__(self) -> None:
        self.out: list[dict[str, Any]] = []
        self.symbols: dict[str, Listed] = {}
        self.lots: dict[int, SaleLot] = {}
        self.offers: dict[int, Live] = {}
        self._highest: dict[int, int] = {}
        self._trades = self._entries = self._token = self._instant = 0
        self._is_begun = False

    def apply(self, event: Fields) -> None:
        getattr(self, f"_on_{event['kind']}")(event)

    def book(self) -> dict[str, Any]:
        def rows(one: Listed, side: Side) -> list[list[int | None]]:
            return [[order.id, None if order.is_market else order.price, order.left] for order in one.side(side)]

        def stops(one: Listed) -> list[list[object]]:
            waiting = sorted(one.stops, key=lambda order: order.entered)
            return [[order.id, order.side, order.trigger, order.left] for order in waiting]

        symbols = {
            name: {
                "phase": "pre-open" if one.phase == "pause" else one.phase,
                "reference": one.reference,
                "buy": rows(one, "buy"),
                "sell": rows(one, "sell"),
                "stops": stops(one),
            }
            for name, one in self.symbols.items()
        }
        lots = [[number, lot.left] for number, lot in self.lots.items()]
        return {"symbols": symbols, "lots": lots, "offers": [[one.id, one.left] for one in self.offers.values()]}

    # ---- what is said

    def _trade(self, symbol: str, price: int, quantity: int, buy: int, sell: int, *, own: bool = False) -> None:
        self._trades += 1
        line = {"trade": self._trades, "symbol": symbol, "price": price, "quantity": quantity, "buy": buy, "sell": sell}
        self.out.append({**line, "own": True} if own else line)

    def _report(self, what: str, number: int, detail: object = None) -> None:
        self.out.append({"report": what, "id": number, "detail": detail})

    def _cancelled(self, order: Live) -> None:
        order.is_over = True
        self._report("cancelled", order.id, order.left)

    # ---- tokens and phases (settlements 28, 53 to 56)

    def _on_token(self, event: Fields) -> None:
        self.end_token()
        self._token, self._instant, self._is_begun = event["t"], event["T"], True
        for one in self.symbols.values():
            if one.pause_ends is not None and self._instant >= one.pause_ends:
                one.pause_ends = None
                self._change(one, OPEN)
        for number, lot in list(self.lots.items()):
            said = lot.said
            if said["auction"] == "second-price" and self._instant >= said["T_close"] + said["window_ns"]:
                self._decide(number, lot)

    def end_token(self) -> None:
        if not self._is_begun:
            return
        self._is_begun = False
        for one in self.symbols.values():
            if one.is_batch:
                self._uncross(one, by_token=True)
                woken, one.woken = sorted(one.woken, key=lambda order: order.entered), []
                for order in woken:
                    self._enter_anew(one, order)
        for number, lot in list(self.lots.items()):
            is_last = self._token > lot.opened and lot.said["auction"] == "dutch"
            if is_last and lot.price_at(self._token) == lot.said["reserve"]:
                del self.lots[number]
                self._report("unsold", number, lot.left)

    def _on_directory(self, event: Fields) -> None:
        known = self.symbols.get(event["symbol"])
        if known is None:
            self.symbols[event["symbol"]] = Listed(event["symbol"], event, event["phase"], event["reference"])
        else:
            known.terms = event

    def _on_status(self, event: Fields) -> None:
        one = self.symbols[event["symbol"]]
        one.pause_ends = None
        self._change(one, event["phase"])

    def _change(self, one: Listed, phase: str) -> None:
        if (phase == OPEN and one.phase != OPEN) or (phase == "closed" and one.phase == "closing"):
            self._uncross(one, by_token=False)
        one.phase = phase
        if phase == "closed":
            for order in [*one.book, *one.stops, *one.woken]:
                if "day" in order.flags:
                    one.remove(order)
                    self._report("expired", order.id, order.left)
        self._wake_all(one)

    # ---- orders (settlements 11, 32 to 36)

    def _is_used(self, event: Fields) -> bool:
        highest = self._highest.get(event["account"], 0)
        self._highest[event["account"]] = max(highest, event["id"])
        return bool(event["id"] <= highest)

    def _next(self) -> int:
        self._entries += 1
        return self._entries

    def _on_order(self, event: Fields) -> None:
        is_used = self._is_used(event)
        one = self.symbols.get(event["symbol"])
        names = ("market", "immediate", "all", "post_only", "day", "open")
        order = Live(
            event["id"],
            event["account"],
            event.get("owner", 0),
            event["side"],
            event["quantity"],
            event["price"],
            self._next(),
            self._token,
            event["symbol"],
            frozenset(name for name in names if event.get(name)),
            event.get("trigger"),
        )
        if one is None or is_used or self._is_refused(one, order):
            self._report("refused", order.id)
        elif "open" in order.flags:
            self.offers[order.id] = order
        elif order.trigger is None or (one.phase == OPEN and order.is_reached(one.reference)):
            self._enter(one, order)
            self._wake_all(one)
        else:
            one.stops.append(order)

    def _is_refused(self, one: Listed, order: Live) -> bool:
        flags, is_stop = order.flags, order.trigger is not None
        has_bad_flags = (
            flags & {"all", "immediate"} == {"all"}
            or ("post_only" in flags and (is_stop or bool(flags & {"market", "immediate"})))
            or (is_stop and "immediate" in flags)
            or ("open" in flags and (is_stop or flags != {"open"}))
        )
        if has_bad_flags:
            return True
        if "open" not in flags:
            in_wrong_call = one.phase in CALLS and bool(flags & {"immediate", "post_only"})
            in_wrong_batch = one.is_batch and bool(flags & {"all", "post_only"})
            if one.phase in ("closed", "halted") or in_wrong_call or in_wrong_batch:
                return True
            if self._is_beyond_collar(one, order, order.price, order.trigger):
                return True
        if order.total <= 0 or order.total % one.terms["lot"]:
            return True
        if not self._is_ticked(one, order, order.price, order.trigger):
            return True
        return "post_only" in flags and self._would_trade(one, order)

    def _is_ticked(self, one: Listed, order: Live, price: int, trigger: int | None) -> bool:
        prices = [] if order.is_market and not price else [price]
        prices += [] if trigger is None else [trigger]
        return all(value > 0 and value % one.terms["tick"] == 0 for value in prices)

    def _is_beyond_collar(self, one: Listed, order: Live, price: int, trigger: int | None) -> bool:
        around, collar = one.reference if trigger is None else trigger, one.terms["collar_bp"]
        if not collar or order.is_market or around is None:
            return False
        if order.side == "buy":
            return bool(price * WHOLE > around * (WHOLE + collar))
        return bool(price * WHOLE < around * (WHOLE - collar))

    def _opposite(self, one: Listed, order: Live) -> list[Live]:
        return one.side("sell" if order.side == "buy" else "buy")

    def _would_trade(self, one: Listed, order: Live) -> bool:
        return any(order.meets(other.price) for other in self._opposite(one, order))

    # ---- continuous (settlements 37 to 43)

    def _enter(self, one: Listed, order: Live) -> None:
        order.trigger, order.token = None, self._token
        if one.phase == OPEN and not one.is_batch:
            self._match(one, order)
            if not order.is_over and order.left and order.flags & {"market", "immediate"}:
                self._cancelled(order)
        if not order.is_over and order.left:
            one.book.append(order)

    def _enter_anew(self, one: Listed, order: Live) -> None:
        order.entered = self._next()
        self._enter(one, order)

    def _match(self, one: Listed, order: Live) -> None:
        start, rule = one.reference, one.terms["own_rule"]
        if "all" in order.flags and not self._is_enough(one, order):
            self._cancelled(order)
        while order.left and not order.is_over:
            other = next(iter(self._opposite(one, order)), None)
            if other is None or not order.meets(other.price):
                return
            if order.is_own(other) and rule != "none":
                if rule in ("cancel-oldest", "both"):
                    one.remove(other)
                    self._cancelled(other)
                if rule in ("cancel-newest", "both"):
                    self._cancelled(order)
                continue
            price = self._price(one, order, other)
            if self._is_outside(one, start, price):
                one.phase, one.pause_ends = "pause", self._instant + one.terms["pause_ns"]
                return
            self._fill(one, order, other, min(order.left, other.left), price)

    def _fill(self, one: Listed, order: Live, other: Live, quantity: int, price: int) -> None:
        order.filled += quantity
        other.filled += quantity
        buy, sell = (order, other) if order.side == "buy" else (other, order)
        self._trade(one.name, price, quantity, buy.id, sell.id, own=order.is_own(other))
        if not other.left:
            one.remove(other)
        self._printed(one, price)

    def _printed(self, one: Listed, price: int) -> None:
        """A trade of the book: the reference moves, and stops wake."""
        one.reference = price
        for stop in [stop for stop in one.stops if stop.is_reached(price)]:
            one.stops.remove(stop)
            one.woken.append(stop)

    def _is_enough(self, one: Listed, order: Live) -> bool:
        there = 0
        for other in self._opposite(one, order):
            if not order.meets(other.price) or self._is_outside(one, one.reference, self._price(one, order, other)):
                break
            if order.is_own(other) and one.terms["own_rule"] in ("cancel-newest", "both"):
                break
            if not order.is_own(other) or one.terms["own_rule"] == "none":
                there += other.left
            if there >= order.left:
                return True
        return False

    def _price(self, one: Listed, order: Live, other: Live) -> int:
        """Of an incoming and a resting order."""
        buy, sell = (order, other) if order.side == "buy" else (other, order)
        rule, tick = one.terms["price_rule"], one.terms["tick"]
        if rule == "midpoint" and not order.is_market:
            down = (order.price + other.price) // 2 // tick * tick
            is_even = 2 * down == order.price + other.price
            return int(down if is_even or other.price < order.price else down + tick)
        chosen = {"buyer": buy, "seller": sell}.get(rule, other)
        return other.price if chosen.is_market else chosen.price

    def _is_outside(self, one: Listed, start: int | None, price: int) -> bool:
        band = one.terms["band_bp"]
        if not band or start is None:
            return False
        return bool(abs(price - start) * WHOLE > start * band)

    def _wake_all(self, one: Listed) -> None:
        queue: list[Live] = []
        while one.woken or queue:
            queue += sorted(one.woken, key=lambda order: order.entered)
            one.woken = []
            self._enter_anew(one, queue.pop(0))

    # ---- uniform price (settlements 48 to 52)

    def _clearing(self, one: Listed) -> tuple[int, int] | None:
        prices = {order.price for order in one.book if not order.is_market}
        prices |= set() if one.reference is None else {one.reference}
        volume = max((min(one.wanted("buy", price), one.wanted("sell", price)) for price in prices), default=0)
        if not volume:
            return None
        surplus = {price: one.wanted("buy", price) - one.wanted("sell", price) for price in prices}
        best = [price for price in prices if min(one.wanted("buy", price), one.wanted("sell", price)) == volume]
        least = min(abs(surplus[price]) for price in best)
        best = sorted([price for price in best if abs(surplus[price]) == least])
        if all(surplus[price] > 0 for price in best):
            return best[-1], volume
        if all(surplus[price] < 0 for price in best):
            return best[0], volume
        if one.reference is not None:
            return min(max(one.reference, best[0]), best[-1]), volume
        return (best[0] + best[-1]) // 2 // one.terms["tick"] * one.terms["tick"], volume

    def _shares(self, one: Listed, side: Side, price: int, volume: int, *, by_token: bool) -> list[tuple[Live, int]]:
        """What each order of a side gets, in the order in which they fill."""
        levels: dict[tuple[object, ...], list[Live]] = {}
        for order in one.side(side):
            if order.meets(price):
                level = order.is_market, order.price, order.token if by_token else 0
                levels.setdefault(level, []).append(order)
        given: list[tuple[Live, int]] = []
        for orders in levels.values():
            there = sum(order.left for order in orders)
            gets = min(volume, there)
            volume -= gets
            is_shared = by_token or one.terms["share"] == "pro-rata"
            lot = one.terms["lot"]
            parts = [gets * order.left // there // lot * lot if is_shared else 0 for order in orders]
            rest = gets - sum(parts)
            for number, order in enumerate(orders):
                more = min(rest, order.left - parts[number])
                parts[number] += more
                rest -= more
            given += [(order, part) for order, part in zip(orders, parts, strict=True) if part]
        return given

    def _uncross(self, one: Listed, *, by_token: bool) -> None:
        cleared = self._clearing(one)
        if cleared is not None:
            price, volume = cleared
            buys = self._shares(one, "buy", price, volume, by_token=by_token)
            sells = self._shares(one, "sell", price, volume, by_token=by_token)
            while buys and sells:
                (buy, wanted), (sell, had) = buys.pop(0), sells.pop(0)
                quantity = min(wanted, had)
                buy.filled += quantity
                sell.filled += quantity
                self._trade(one.name, price, quantity, buy.id, sell.id, own=buy.is_own(sell))
                if wanted > quantity:
                    buys.insert(0, (buy, wanted - quantity))
                if had > quantity:
                    sells.insert(0, (sell, had - quantity))
            one.book = [order for order in one.book if order.left]
            self._printed(one, price)
        for order in [order for order in one.book if order.flags & {"market", "immediate"}]:
            one.remove(order)
            self._cancelled(order)

    # ---- cancels and replaces (settlements 44 to 47)

    def _find(self, event: Fields) -> tuple[Listed | None, Live | None]:
        for one in self.symbols.values():
            for order in [*one.book, *one.stops]:
                if (order.id, order.account) == (event["id"], event["account"]):
                    return one, order
        offer = self.offers.get(event["id"])
        if event["kind"] == "cancel" and offer is not None and offer.account == event["account"]:
            return self.symbols[offer.symbol], offer
        return None, None

    def _on_cancel(self, event: Fields) -> None:
        if self._withdraws(event):
            return
        one, order = self._find(event)
        quantity = event["quantity"]
        if one is None or order is None or quantity % one.terms["lot"]:
            self._report("refused", event["id"])
        elif 0 < quantity < order.left:
            order.total -= quantity
            self._report("cancelled", order.id, quantity)
        else:
            one.remove(order)
            self.offers.pop(order.id, None)
            self._cancelled(order)

    def _on_replace(self, event: Fields) -> None:
        one, order = self._find(event)
        if one is None or order is None or one.phase in ("closed", "halted"):
            self._report("refused", event["id"])
            return
        total, price = event["quantity"], event.get("price", order.price)
        trigger = event.get("trigger", order.trigger)
        has_moved = (price, trigger) != (order.price, order.trigger)
        is_bad = (
            (trigger is None) != (order.trigger is None)
            or total <= 0
            or total % one.terms["lot"] != 0
            or not self._is_ticked(one, order, price, trigger)
            or (has_moved and self._is_beyond_collar(one, order, price, trigger))
        )
        if is_bad:
            self._report("refused", order.id)
        elif total <= order.filled:
            one.remove(order)
            self._report("replaced", order.id, order.filled)
        elif not has_moved and total <= order.total:
            order.total = total
            self._report("replaced", order.id, total)
        else:
            self._enter_changed(one, order, total, price, trigger)

    def _enter_changed(self, one: Listed, order: Live, total: int, price: int, trigger: int | None) -> None:
        before, order.price = order.price, price
        if "post_only" in order.flags and one.phase == OPEN and not one.is_batch and self._would_trade(one, order):
            order.price = before
            self._report("refused", order.id)
            return
        self._report("replaced", order.id, total)
        one.remove(order)
        order.total, order.trigger, order.entered = total, trigger, self._next()
        if trigger is not None and not (one.phase == OPEN and order.is_reached(one.reference)):
            one.stops.append(order)
            return
        self._enter(one, order)
        self._wake_all(one)

    # ---- offers and lots (settlements 27, 58 to 64)

    def _on_take(self, event: Fields) -> None:
        is_used = self._is_used(event)
        offer = self.offers.get(event["offer"])
        if is_used or offer is None or offer.account == event["account"]:
            self._report("refused", event["id"])
            return
        quantity = min(offer.left, event["quantity"])
        offer.filled += quantity
        pair = (offer.id, event["id"]) if offer.side == "buy" else (event["id"], offer.id)
        self._trade(offer.symbol, offer.price, quantity, *pair)
        if not offer.left:
            del self.offers[offer.id]
        if event["quantity"] > quantity:
            self._report("cancelled", event["id"], event["quantity"] - quantity)

    def _on_lot(self, event: Fields) -> None:
        if self._is_used(event):
            self._report("refused", event["id"])
        else:
            self.lots[event["id"]] = SaleLot(event, self._token, event["quantity"])

    def _withdraws(self, event: Fields) -> bool:
        """A cancel of a lot or of a sealed bid."""
        lot = self.lots.get(event["id"])
        if lot is not None and lot.said["account"] == event["account"]:
            if lot.bids:
                self._report("refused", event["id"])
            else:
                del self.lots[event["id"]]
                self._report("cancelled", event["id"], lot.left)
            return True
        for lot in self.lots.values():
            bid = lot.bids.get(event["account"])
            if bid is not None and bid[0]["id"] == event["id"]:
                if self._instant < lot.said["T_close"]:
                    del lot.bids[event["account"]]
                    self._report("cancelled", event["id"], lot.said["quantity"])
                else:
                    self._report("refused", event["id"])
                return True
        return False

    def _on_commit(self, event: Fields) -> None:
        is_used = self._is_used(event)
        lot = self.lots.get(event["lot"])
        is_open = lot is not None and lot.said["auction"] == "second-price" and self._instant < lot.said["T_close"]
        if is_used or lot is None or not is_open or lot.said["account"] == event["account"]:
            self._report("refused", event["id"])
        else:
            lot.bids[event["account"]] = event, self._next()

    def _on_reveal(self, event: Fields) -> None:
        for number, lot in self.lots.items():
            bid, _ = lot.bids.get(event["account"], ({}, 0))
            if bid.get("id") != event["id"]:
                continue
            closes = lot.said["T_close"]
            digest = commitment(event["price"], bytes.fromhex(event["nonce"]), event["account"], number)
            in_time = closes <= self._instant < closes + lot.said["window_ns"]
            if in_time and digest == bid["hash"] and event["price"] <= bid["ceiling"]:
                lot.revealed[event["account"]] = event["price"]
                return
        self._report("refused", event["id"])

    def _decide(self, number: int, lot: SaleLot) -> None:
        del self.lots[number]
        said = lot.said
        for account, (bid, _) in lot.bids.items():
            if account not in lot.revealed:
                self._report("forfeit", bid["id"], min(said["forfeit"], bid["ceiling"] * said["quantity"]))
        valid = [(-lot.revealed[one], lot.bids[one][1], lot.bids[one][0]["id"]) for one in lot.revealed]
        valid = sorted([bid for bid in valid if -bid[0] >= said["reserve"]])
        if not valid:
            self._report("unsold", number, said["quantity"])
            return
        price = max(said["reserve"], *[-bid[0] for bid in valid[1:2]], said["reserve"])
        self._trade(said["symbol"], price, said["quantity"], valid[0][2], number)

    def _on_bid(self, event: Fields) -> None:
        is_used = self._is_used(event)
        lot = self.lots.get(event["lot"])
        if is_used or lot is None or lot.said["auction"] != "dutch" or lot.said["account"] == event["account"]:
            self._report("refused", event["id"])
            return
        price = lot.price_at(self._token)
        if price > event["ceiling"]:
            self._report("refused", event["id"])
            return
        quantity = min(lot.left, event["quantity"])
        lot.left -= quantity
        self._trade(lot.said["symbol"], price, quantity, event["id"], lot.said["id"])
        if not lot.left:
            del self.lots[event["lot"]]
        if event["quantity"] > quantity:
            self._report("cancelled", event["id"], event["quantity"] - quantity)


def commitment(price: int, nonce: bytes, account: int, lot: int) -> str:
    """What a bidder says before the close."""
    said = price.to_bytes(8, "little", signed=True) + nonce + account.to_bytes(4, "little") + lot.to_bytes(8, "little")
    return blake2b(said, digest_size=32).hexdigest()
