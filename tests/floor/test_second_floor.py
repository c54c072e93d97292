"""The floor against a second one that was written from the rules alone: random days, the same trades and books."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from tests.floor.second_floor import SecondFloor, commitment

from isocast.floor.lines import FloorLines

DAYS = 60
"""For each kind; thousands were compared once."""
REPORTS = ("refused", "cancelled", "expired", "replaced", "unsold", "forfeit")
Event = dict[str, Any]


class Day:
    """Random events of one symbol."""

    def __init__(self, kind: str, seed: int) -> None:
        self.draw = Random(f"{kind} {seed}")
        self.kind = kind
        self.tick, self.lot = self.draw.choice((1, 1, 5)), self.draw.choice((1, 1, 10))
        self._numbers: dict[int, int] = {}
        self._orders: list[Event] = []
        self._lots: list[Event] = []
        self._bids: list[tuple[int, int, int, str]] = []
        self.instant = 1_000

    def events(self) -> Iterator[Event]:
        draw = self.draw
        yield {"kind": "token", "t": 1, "T": self.instant}
        yield self._directory()
        token = 1
        for _ in range(draw.randint(5, 40)):
            if draw.random() < 0.25:
                token, self.instant = token + 1, self.instant + draw.choice((500, 1_000))
                yield {"kind": "token", "t": token, "T": self.instant}
            event = self._sale() if self.kind == "lots" else self._trading()
            if event is not None:
                yield event

    def _directory(self) -> Event:
        draw, kind = self.draw, self.kind
        return {
            "kind": "directory",
            "symbol": "X",
            "tick": self.tick,
            "lot": self.lot,
            "market": "batch" if kind == "batch" or (kind == "mixed" and draw.random() < 0.5) else "continuous",
            "price_rule": draw.choice(("resting", "buyer", "seller", "midpoint")),
            "own_rule": draw.choice(("cancel-newest", "cancel-oldest", "both", "none")),
            "share": draw.choice(("time", "pro-rata")),
            "collar_bp": draw.choice((0, 300)) if kind in ("mixed", "plain") else 0,
            "band_bp": draw.choice((0, 100, 200)) if kind in ("mixed", "bands") else 0,
            "pause_ns": draw.choice((0, 1_500, 3_000)),
            "reference": draw.choice((None, 100 * self.tick, 100 * self.tick)),
            "phase": draw.choice(("pre-open", "open")) if kind != "plain" else "open",
        }

    def _number(self, account: int) -> int:
        self._numbers[account] = self._numbers.get(account, account * 1_000) + 1
        return self._numbers[account]

    def _price(self) -> int:
        return (100 + self.draw.randint(-4, 4)) * self.tick

    def _quantity(self) -> int:
        return self.draw.randint(1, 6) * self.lot

    def _trading(self) -> Event:
        draw, choice = self.draw, self.draw.random()
        if choice < 0.65 or not self._orders:
            return self._order()
        order = draw.choice(self._orders[-10:])
        own = {"id": order["id"], "account": order["account"] if draw.random() < 0.97 else draw.randint(1, 4)}
        if choice < 0.75:
            return {"kind": "cancel", **own, "quantity": draw.choice((0, self.lot, 2 * self.lot))}
        if choice < 0.92 or self.kind == "plain":
            change: Event = {"kind": "replace", **own, "quantity": self._quantity()}
            if draw.random() < 0.5 and not order.get("market"):
                change["price"] = self._price()
            if "trigger" in order and draw.random() < 0.4:
                change["trigger"] = self._price()
            return change
        phases = ("closed", "pre-open", "open", "open", "closing", "halted")
        return {"kind": "status", "symbol": "X", "phase": draw.choice(phases)}

    def _order(self) -> Event:
        draw = self.draw
        account = draw.randint(1, 4)
        order: Event = {"kind": "order", "id": self._number(account), "account": account, "symbol": "X"}
        order |= {"side": draw.choice(("buy", "sell")), "quantity": self._quantity(), "price": self._price()}
        if draw.random() < 0.1:
            order["owner"] = draw.randint(1, 2)
        if draw.random() < 0.12:
            order["market"], order["price"] = True, draw.choice((0, order["price"]))
        flags = (("immediate", 0.1), ("all", 0.05), ("post_only", 0.06), ("day", 0.15))
        order |= {name: True for name, chance in flags if draw.random() < chance}
        if self.kind in ("stops", "bands", "batch", "mixed") and draw.random() < 0.3:
            order["trigger"] = self._price()
        self._orders.append(order)
        return order

    def _sale(self) -> Event | None:
        draw, choice = self.draw, self.draw.random()
        ways: list[tuple[float, Callable[[int], Event | None]]] = [
            (0.2, self._lot),
            (0.5, self._bid),
            (0.8, self._reveal),
            (0.85, self._withdraw),
            (0.93, self._offer),
            (1.0, self._take),
        ]
        way = next(way for bound, way in ways if choice <= bound)
        return way(draw.randint(1, 4))

    def _lot(self, account: int) -> Event:
        draw = self.draw
        lot: Event = {"kind": "lot", "id": self._number(account), "account": account, "symbol": "X"}
        lot |= {"quantity": self._quantity(), "reserve": draw.randint(3, 8) * self.tick}
        if draw.random() < 0.5:
            lot |= {
                "auction": "dutch",
                "start": draw.randint(8, 15) * self.tick,
                "step": draw.randint(1, 3) * self.tick,
            }
        else:
            closes, window = self.instant + draw.choice((500, 1_500)), draw.choice((1_000, 2_000))
            lot |= {"auction": "second-price", "T_close": closes, "window_ns": window, "forfeit": draw.randint(0, 60)}
        self._lots.append(lot)
        return lot

    def _bid(self, account: int) -> Event | None:
        if not self._lots:
            return None
        draw, lot = self.draw, self.draw.choice(self._lots)
        own = {"id": self._number(account), "account": account, "lot": lot["id"]}
        if lot["auction"] == "dutch":
            return {"kind": "bid", **own, "quantity": self._quantity(), "ceiling": draw.randint(3, 15) * self.tick}
        price, nonce = draw.randint(2, 14) * self.tick, draw.randbytes(16)
        self._bids.append((own["id"], account, price, nonce.hex()))
        ceiling = price + draw.choice((0, 0, 3, -1)) * self.tick
        return {"kind": "commit", **own, "ceiling": ceiling, "hash": commitment(price, nonce, account, lot["id"])}

    def _reveal(self, _: int) -> Event | None:
        if not self._bids:
            return None
        number, account, price, nonce = self.draw.choice(self._bids)
        price += self.draw.choice((0, 0, 0, 0, 1))
        return {"kind": "reveal", "id": number, "account": account, "price": price, "nonce": nonce}

    def _withdraw(self, _: int) -> Event | None:
        own = [(one["id"], one["account"]) for one in [*self._lots, *self._orders]] + [one[:2] for one in self._bids]
        if not own:
            return None
        number, account = self.draw.choice(own)
        return {"kind": "cancel", "id": number, "account": account, "quantity": self.draw.choice((0, self.lot))}

    def _offer(self, account: int) -> Event:
        order = {"kind": "order", "id": self._number(account), "account": account, "symbol": "X", "open": True}
        order |= {"side": self.draw.choice(("buy", "sell")), "quantity": self._quantity(), "price": self._price()}
        self._orders.append(order)
        return order

    def _take(self, account: int) -> Event | None:
        if not self._orders:
            return None
        offer = self.draw.choice(self._orders)["id"]
        own = {"id": self._number(account), "account": account}
        return {"kind": "take", **own, "offer": offer, "quantity": self._quantity()}


def first_floor(events: list[Event]) -> tuple[list[Event], Event]:
    """What the product says."""
    floor = FloorLines()
    out = [line for event in events for line in floor.read(json.dumps(event))]
    out += list(floor.end())
    return [line for line in out if "book" not in line], next(line["book"] for line in out if "book" in line)


def trades(lines: list[Event]) -> list[Event]:
    names = ("trade", "symbol", "price", "quantity", "buy", "sell", "own")
    return [{name: line[name] for name in names if name in line} for line in lines if "trade" in line]


def reports(lines: list[Event]) -> list[tuple[str, int, object]]:
    """Without order; reasons for a refusal are those of the settlements' own tests."""
    found = [line for line in lines if line.get("report") in REPORTS]
    rows = [(row["report"], row["id"], 0 if row["report"] == "refused" else row["detail"]) for row in found]
    return sorted(rows)


@pytest.mark.parametrize("kind", ["plain", "calls", "stops", "bands", "batch", "mixed", "lots"])
def test_two_floors_written_apart_say_the_same(kind: str) -> None:
    for seed in range(DAYS):
        events = list(Day(kind, seed).events())
        second = SecondFloor()
        for event in events:
            second.apply(event)
        second.end_token()
        said, book = first_floor(events)
        for phases in book["symbols"].values():
            phases["phase"] = "pre-open" if phases["phase"] == "pause" else phases["phase"]
        assert trades(said) == trades(second.out), seed
        assert reports(said) == reports(second.out), seed
        assert book == second.book(), seed
