"""An array of events is the same events: reports and state are those of the readable floor, whatever it holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.floor.cases import BUY, SELL, SYMBOL, order, replace
from tests.floor.test_fast import BOUNDS, SECOND, flows

from isocast.floor import arrays, fast_book
from isocast.floor.arrays import EVENT_DTYPE, ArrayKind, as_array, as_reports, run
from isocast.floor.book import WorkingOrder
from isocast.floor.events import (
    AuctionKind,
    Cancel,
    Crossing,
    Directory,
    Event,
    Indicative,
    Lot,
    MarketKind,
    Order,
    OwnRule,
    Phase,
    PriceRule,
    Refusal,
    Refused,
    Replace,
    Status,
    Trade,
)
from isocast.floor.fast import AS_IT_IS, FastFloor
from isocast.floor.fast_book import as_order
from isocast.floor.machine import Floor
from isocast.floor.snapshot import rows_of
from isocast.floor.state import state_hash

Plain = Order | Cancel | Replace
NAMES = [SYMBOL, SECOND, "BATCH", "BAND", "SHUT"]
TERMS: list[dict[str, Any]] = [
    {},
    {"tick": 2, "lot": 2},
    {"market": MarketKind.BATCH},
    {"band_bp": 2000, "reference": 6},
    {},
]
KINDS: tuple[dict[str, Any], ...] = (
    {"trigger": 5},
    {"display": 2},
    {"until": 4},
    {"is_post_only": True},
    {"is_immediate": True, "is_all": True},
    {"is_market": True, "price": 0},
    {"at": Crossing.CLOSE},
    {"is_offer": True},
)
"""Orders that leave what the loop may meet."""


def as_events(found: Sequence[Plain]) -> arrays.Events:
    rows = np.zeros(len(found), EVENT_DTYPE)
    for row, one in zip(rows, found, strict=True):
        row["id"], row["account"] = one.id, one.account
        if isinstance(one, Order):
            row["symbol"] = NAMES.index(one.symbol) if one.symbol in NAMES else 99
            row["side"], row["owner"], row["quantity"], row["price"] = one.side, one.owner, one.quantity, one.price
            row["immediate"], row["day"] = one.is_immediate, one.is_day
        elif isinstance(one, Cancel):
            row["kind"], row["quantity"] = ArrayKind.CANCEL, one.quantity
        else:
            row["kind"] = ArrayKind.REPLACE
            row["quantity"] = AS_IT_IS if one.quantity is None else one.quantity
            row["price"] = AS_IT_IS if one.price is None else one.price
    return rows


@dataclass
class Parts:
    """Tokens: some events as objects, then some that an array can hold."""

    tokens: list[tuple[list[Event], list[Plain]]]


@st.composite
def parts(draw: st.DrawFn) -> Parts:
    rule = draw(st.sampled_from(OwnRule))
    most = draw(st.sampled_from((1, 3, 3, 60)))  # Of accounts; with many, most ids rise.
    number = 0
    tokens: list[tuple[list[Event], list[Plain]]] = [
        (
            [
                Directory(name, **{"own_rule": rule, "phase": Phase.CLOSED if name == "SHUT" else Phase.OPEN, **terms})
                for name, terms in zip(NAMES, [draw(BOUNDS), *TERMS[1:]], strict=True)
            ],
            [],
        )
    ]
    for _ in range(draw(st.integers(1, 4))):
        before: list[Event] = []
        for terms in draw(st.lists(st.sampled_from(KINDS), max_size=2)):
            number += 1
            one = order(number, draw(st.sampled_from((BUY, SELL))), 4, 6, account=draw(st.integers(1, most)))
            before.append(one._replace(**terms))
        if draw(st.integers(0, 5)) == 0:
            number += 1
            before.append(Lot(number, 1, SYMBOL, AuctionKind.DUTCH, 4, 1, start=9, step=1))
        if draw(st.integers(0, 5)) == 0:
            before.append(Status(draw(st.sampled_from(NAMES)), draw(st.sampled_from((Phase.OPEN, Phase.CLOSING)))))
        if draw(st.integers(0, 5)) == 0:
            name = draw(st.sampled_from(NAMES))
            price_rule = draw(st.sampled_from(PriceRule))
            before.append(Directory(name, price_rule=price_rule, own_rule=rule, phase=Phase.OPEN))
        found: list[Plain] = []
        for kind in draw(st.lists(st.sampled_from("oooooooccrr"), max_size=16)):
            account = draw(st.integers(1, most))
            if kind == "o":
                number += 1
                strange = draw(st.integers(0, 11)) == 0
                found.append(
                    Order(
                        draw(st.integers(1, number)) if strange else number,
                        account,
                        draw(st.sampled_from([SYMBOL, SYMBOL, SYMBOL, *NAMES, *(["NONE"] if strange else [])])),
                        draw(st.sampled_from((BUY, SELL))),
                        draw(st.sampled_from((2, 4, 6, 6, *((0, -1, 3) if strange else ())))),
                        draw(st.sampled_from((2, 4, 6, 8, *((0, -1, 5, 1 << 61) if strange else ())))),
                        draw(st.sampled_from((0, 0, 1))),
                        is_immediate=draw(st.integers(0, 5)) == 0,
                        is_day=draw(st.integers(0, 5)) == 0,
                    )
                )
                continue
            old: int = draw(st.integers(1, number + 1))
            # Mostly of the account that has it.
            owners = [one.account for _, rest in [*tokens, (before, found)] for one in rest if one.id == old]
            is_its_own: bool = draw(st.integers(0, 3)) > 0
            account = owners[0] if owners and is_its_own else account
            if kind == "c":
                found.append(Cancel(old, account, draw(st.sampled_from((0, 0, 0, 2, 3)))))
            else:
                quantity = draw(st.none() | st.sampled_from((2, 4, 6, 8, 0, 3)))
                found.append(Replace(old, account, quantity, draw(st.none() | st.sampled_from((2, 4, 6, 8, 0, 5)))))
        tokens.append((before, found))
    return Parts([*tokens, ([Status(None, Phase.CLOSED)], [])])


@given(parts(), st.sets(st.integers(1, 6)), st.sampled_from((1, 2, 5, 1 << 16)))
def test_an_array_is_the_same_events(flow: Parts, hashed: set[int], block: int) -> None:
    readable, fast = Floor(), FastFloor()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "_BLOCK", block)
        for number, (before, found) in enumerate(flow.tokens, 1):
            told = readable.begin(number, number)
            assert fast.begin(number, number) == told
            for event in before:
                assert fast.apply(event) == readable.apply(event)
            by_event = [readable.apply(one) for one in found]
            said = run(fast, as_events(found))
            assert as_reports(said, NAMES) == [report for told in by_event for report in told]
            assert said["event"].tolist() == [place for place, told in enumerate(by_event) for _ in told]
            assert fast.end() == readable.end()
            if number in hashed:
                assert state_hash(fast) == state_hash(readable)
    assert rows_of(fast) == rows_of(readable)
    assert state_hash(fast) == state_hash(readable)


@given(flows())
def test_every_report_is_a_row_and_comes_back(tokens: list[list[Event]]) -> None:
    floor = Floor()
    for number, token in enumerate(tokens, 1):
        told = floor.step(number, number, token)
        assert as_reports(as_array(told, list(floor.symbols)), list(floor.symbols)) == told


def opened() -> FastFloor:
    floor = FastFloor()
    floor.step(1, 1, [Directory(SYMBOL, phase=Phase.OPEN)])
    return floor


def test_events_without_accounts_are_each_its_own_accounts() -> None:
    floor = opened()
    rows = np.zeros(3, [("kind", "u1"), ("side", "u1"), ("id", "<u8"), ("quantity", "<i8"), ("price", "<i8")])
    rows["side"], rows["id"], rows["quantity"], rows["price"] = (2, 1, 1), ((1 << 64) - 1, 7, 7), 5, 10
    said = run(floor, rows)
    assert as_reports(said, [SYMBOL])[0] == Trade(1, SYMBOL, 10, 5, 7, (1 << 64) - 1)
    assert arrays.REASONS[said["reason"][1]] == "duplicate id"
    assert floor.highest == {7: 7, (1 << 64) - 1: (1 << 64) - 1}


def test_a_symbol_that_the_floor_does_not_have_may_be_any_number() -> None:
    """Nothing is as long as that number."""
    floor, rows = opened(), as_events([order(1, SELL, 5, 10), order(2, BUY, 5, 10)])
    rows["symbol"][0] = (1 << 32) - 1
    said = run(floor, rows)
    assert [(int(one["id"]), arrays.REASONS[one["reason"]]) for one in said] == [(1, "unknown symbol")]
    assert list(floor.orders) == [2]


@pytest.mark.parametrize("price", [1 << 61, 1 << 62, (1 << 62) + 1, (1 << 63) - 1])
def test_an_order_of_an_array_trades_at_any_price_that_waits(price: int) -> None:
    floor = opened()
    floor.apply(order(1, BUY, 5, price))
    said = run(floor, as_events([order(2, SELL, 5, 10)]))
    assert as_reports(said, [SYMBOL]) == [Trade(1, SYMBOL, price, 5, 1, 2)]


def test_sums_without_bound_are_rows_as_far_as_they_have_room() -> None:
    most = (1 << 63) - 1
    said = as_array([Indicative(SYMBOL, 10, most + 1, -most - 5)], [SYMBOL])
    assert as_reports(said, [SYMBOL]) == [Indicative(SYMBOL, 10, most, -most)]


@pytest.mark.parametrize("new_floor", [Floor, FastFloor])
def test_a_total_that_no_record_has_room_for_is_refused(new_floor: type[Floor]) -> None:
    floor, most = new_floor(), (1 << 63) - 1
    floor.step(1, 1, [Directory(SYMBOL, phase=Phase.OPEN)])
    rows = as_events([order(1, BUY, 9, 10), order(2, SELL, 5, 10), replace(1, most)])
    rows["kind"][2] = ArrayKind.REOPEN
    assert as_reports(run(floor, rows), [SYMBOL])[1:] == [Refused(1, Refusal.LOT)]
    assert floor.orders[1][1].left == 4


def test_plain_orders_are_objects_only_when_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an array, nor an event, a state's hash or a snapshot leaves an object behind."""
    floor = opened()
    many = [order(number, SELL, 4, 10 + number % 5) for number in range(1, 101)]
    run(floor, as_events(many[:50]))
    for one in many[50:]:
        floor.apply(one)
    state_hash(floor)
    rows_of(floor)
    run(floor, as_events([order(500, BUY, 30, 12), Cancel(7, 7), Replace(9, 9, 2)]))
    assert not floor.orders.objects
    made: list[int] = []

    def counted(number: int, resting: Iterable[Any]) -> WorkingOrder:
        made.append(number)
        return as_order(number, resting)

    monkeypatch.setattr(fast_book, "as_order", counted)
    floor.apply(Cancel(24, 24, 1))
    assert made == list(floor.orders.objects) == [24]
