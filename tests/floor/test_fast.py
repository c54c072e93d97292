"""The fast floor is the readable one: the same reports and the same state after every token, whatever enters."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.floor.cases import BUY, SELL, SYMBOL, order
from tests.floor.test_following import OTHERS
from tests.floor.test_rules import PRICES, QUANTITIES, SIDES, TERMS, events

from isocast.floor.book import WorkingOrder
from isocast.floor.events import Cancel, Directory, Event, MarketKind, Order, OwnRule, Phase, Replace, Status, Trade
from isocast.floor.fast import FastFloor
from isocast.floor.fast_book import FastBook, FastSide
from isocast.floor.machine import Floor
from isocast.floor.snapshot import floor_of, rows_of
from isocast.floor.state import state_hash
from isocast.terms.market import Side

SECOND = "OSI"
BOUNDS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "collar_bp": st.sampled_from((0, 0, 2_000, 5_000)),
        "band_bp": st.sampled_from((0, 0, 1_500, 4_000)),
        "pause_ns": st.sampled_from((1, 2)),
        "reference": st.none() | PRICES,
    }
)
"""Often none."""


@st.composite
def flows(draw: st.DrawFn) -> list[list[Event]]:
    """All kinds of events of two symbols, whose rules may change on the way."""
    tokens: list[list[Event]] = [[Directory(SYMBOL, **draw(TERMS)), Directory(SECOND, **draw(TERMS))]]
    for one in draw(events()):
        token = [*one, *draw(st.lists(st.sampled_from(OTHERS), max_size=2))]
        token = [
            event._replace(symbol=SECOND) if isinstance(event, Order) and event.id % 3 == 0 else event
            for event in token
        ]
        if draw(st.integers(0, 9)) == 0:
            token.append(Directory(draw(st.sampled_from((SYMBOL, SECOND))), **draw(TERMS)))
        tokens.append(draw(st.permutations(token)) if draw(st.booleans()) else token)
    return tokens


@st.composite
def common_flows(draw: st.DrawFn) -> list[list[Event]]:
    """What the short way is for: limit orders, cancels, replaces; and now and then something else."""
    rule = draw(st.sampled_from(OwnRule))
    tokens: list[list[Event]] = [
        [Directory(SYMBOL, own_rule=rule, phase=Phase.OPEN, tick=draw(st.sampled_from((1, 2))), **draw(BOUNDS))]
    ]
    number = 0
    for _ in range(draw(st.integers(1, 5))):
        token: list[Event] = []
        for kind in draw(st.lists(st.sampled_from("oooddliicrrst"), max_size=12)):
            number += kind in "odlist"
            account = draw(st.integers(1, 3))
            if kind in "cr":
                old = draw(st.integers(1, number + 1))
                whole = draw(st.none() | QUANTITIES)
                token.append(
                    Cancel(old, account, draw(st.integers(0, 3)))
                    if kind == "c"
                    else Replace(old, account, whole, draw(st.none() | PRICES))
                )
                continue
            kinds: dict[str, dict[str, Any]] = {
                "d": {"is_day": True},
                "l": {"is_day": draw(st.booleans()), "deadline": draw(st.integers(1, 7))},
                "i": {"is_immediate": True},
                "s": {"trigger": draw(PRICES)},
                "t": {"display": 2},
            }
            token.append(
                order(
                    draw(st.sampled_from((number, number, number, 1))),
                    draw(SIDES),
                    draw(QUANTITIES),
                    draw(PRICES),
                    account=account,
                    **kinds.get(kind, {}),
                )
            )
        tokens.append(token)
    # Orders of a day go, and no others.
    return [*tokens, [Status(SYMBOL, Phase.CLOSED)]]


def compare(tokens: list[list[Event]]) -> None:
    readable, fast = Floor(), FastFloor()
    with_fast_book = Floor(FastBook)
    for number, token in enumerate(tokens, 1):
        told = readable.step(number, number, token)
        assert fast.step(number, number, token) == told
        assert with_fast_book.step(number, number, token) == told
        assert state_hash(fast) == state_hash(with_fast_book) == state_hash(readable)


@given(flows())
def test_both_floors_are_equal_after_every_token(tokens: list[list[Event]]) -> None:
    compare(tokens)


@given(common_flows())
def test_the_short_way_leads_to_the_same_place(tokens: list[list[Event]]) -> None:
    compare(tokens)


@given(flows(), st.integers(0, 8))
def test_a_fast_floor_goes_on_from_a_snapshot_of_either(tokens: list[list[Event]], cut: int) -> None:
    readable = Floor()
    for number, token in enumerate(tokens[: cut + 1], 1):
        readable.step(number, number, token)
    fast = floor_of(rows_of(readable), FastFloor)
    assert rows_of(fast) == rows_of(readable)
    for number, token in enumerate(tokens[cut + 1 :], cut + 2):
        assert fast.step(number, number, token) == readable.step(number, number, token)
        assert state_hash(fast) == state_hash(readable)


def resting(number: int, side: Side, price: int, *, market: bool = False) -> WorkingOrder:
    return WorkingOrder(number, number, 0, side, price, 1, 0, 1, number, is_market=market)


@pytest.mark.parametrize("side", [BUY, SELL])
def test_a_market_order_that_waits_for_a_batch_meets_what_comes_under_new_rules(side: Side) -> None:
    """It names no price, and its level has none."""
    batch = Directory(SYMBOL, phase=Phase.OPEN, market=MarketKind.BATCH)
    waiting, coming = order(1, side, 10, 0, is_market=True), order(2, BUY if side is SELL else SELL, 5, 100)
    compare([[batch, waiting, Directory(SYMBOL, phase=Phase.OPEN), coming], [order(3, SELL, 5, 100)]])


@pytest.mark.parametrize("side", [BUY, SELL])
def test_a_side_keeps_its_order_while_levels_come_and_go(side: Side) -> None:
    """Enough empty levels that they are sorted out several times."""
    book = FastSide()
    live = [resting(number, side, number * 7 % 1009 + 1) for number in range(1, 1001)]
    for one in live:
        book.add(one)
    for one in live[100:]:
        book.remove(one)
    for number in range(2000, 4000):
        late = resting(number, side, number)
        book.add(late)
        book.remove(late)
    assert [one.id for one in book] == [one.id for one in sorted(live[:100], key=lambda one: one.rank)]
    assert len(book.heap) < 500
    assert all(earlier < later for earlier, later in pairwise(sorted(book.heap)))
    market = resting(5000, side, 0, market=True)
    protected = resting(5001, side, live[0].price, market=True)
    for one in (protected, market):
        book.add(one)
    assert book.best is market
    assert [one.rank for one in book] == sorted(one.rank for one in book)


@pytest.mark.parametrize("new_floor", [Floor, FastFloor])
def test_the_order_in_the_middle_of_a_deep_level_leaves_alone(new_floor: type[Floor]) -> None:
    floor = new_floor()
    floor.step(1, 0, [Directory(SYMBOL, phase=Phase.OPEN)])
    floor.step(2, 0, [order(number, SELL, 1, 10) for number in range(1, 2001)])
    floor.step(3, 0, [Cancel(number, number) for number in range(2, 2000)])
    floor.step(4, 0, [order(number, SELL, 1, 10) for number in range(2001, 2021)])
    told = floor.step(5, 0, [order(3000, BUY, 22, 10)])
    assert [one.sell for one in told if isinstance(one, Trade)] == [1, *range(2000, 2021)]
    assert not floor.orders
