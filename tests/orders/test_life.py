"""An order's life: legal steps, and enough bound for whatever comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.orders.report_paths import path_faults

from isocast.orders.desk import OrderStatus, ReportKind
from isocast.orders.life import CHANGES_MAX, Change, ChangeKind, OrderLife
from isocast.orders.needs import Side, fee, need
from isocast.terms.errors import LocalProtocolError


def order(side: Side = Side.BUY, total: int = 100, price: int = 10, fee_bp: int = 0) -> OrderLife:
    return OrderLife(7, 1, "a", "IBM", side, total, price, price=price, fee_bp=fee_bp)


def working(side: Side = Side.BUY, total: int = 100, price: int = 10, fee_bp: int = 0) -> OrderLife:
    made = order(side, total, price, fee_bp)
    made.work()
    return made


def replaced(quantity: int | None, price: int | None = None) -> Change:
    return Change("b", ChangeKind.REPLACE, quantity, price, price)


def test_an_order_is_filled_in_parts() -> None:
    life = working()
    assert life.bound == 1_000
    assert life.trade(40, 9) == 400
    assert (life.status, life.left, life.bound, life.filled_value) == (OrderStatus.PART_FILLED, 60, 600, 360)
    assert life.trade(60, 10) == 600
    assert (life.status, life.left, life.bound) == (OrderStatus.FILLED, 0, 0)


def test_a_part_cancel_lowers_the_total_and_the_rest_ends_the_order() -> None:
    life = working()
    assert life.cancel(30) == 300
    assert (life.total, life.left, life.status) == (70, 70, OrderStatus.WORKING)
    assert life.cancel(70) == 700
    assert (life.total, life.left, life.status, life.bound) == (70, 0, OrderStatus.CANCELLED, 0)


def test_the_floor_refuses_and_all_comes_back() -> None:
    life = order(fee_bp=10)
    assert life.refuse() == 1_001
    assert life.status is OrderStatus.REFUSED


@pytest.mark.parametrize(
    "total, price, bound",
    [
        (50, 15, 1_000),  # Settlement 17: the larger of 1,000 and 750.
        (100, 15, 1_500),
        (200, None, 2_000),
        (200, 4, 1_000 + 400),  # All of the old first, then 100 more at 4.
        (10, None, 1_000),
    ],
)
def test_while_a_replace_is_under_way_the_worst_case_is_bound(total: int, price: int | None, bound: int) -> None:
    life = working()
    change = replaced(total, price)
    assert life.begin_change(change) == bound - 1_000
    assert life.bound == bound
    assert life.end_change(change, is_taken=False) == bound - 1_000
    assert life.bound == 1_000


def test_a_replace_that_is_taken_frees_the_difference() -> None:
    life = working()
    change = replaced(50, 15)
    life.begin_change(change)
    assert life.end_change(change, is_taken=True) == 250
    assert (life.total, life.price, life.bound, life.client_id) == (50, 15, 750, "b")


def test_a_total_not_above_what_is_filled_ends_the_order() -> None:
    """Settlement 46: Replaced, Filled, quantity = what is filled."""
    life = working()
    life.trade(60, 10)
    change = replaced(40)
    life.begin_change(change)
    assert life.end_change(change, is_taken=True) == 400
    report = life.report(ReportKind.REPLACED, 1)
    assert (report.status, report.quantity, report.filled, report.left) == (OrderStatus.FILLED, 60, 60, 0)


def test_what_cannot_follow_is_refused_and_changes_nothing() -> None:
    life = order()
    too_early: list[Callable[[], object]] = [lambda: life.trade(1, 10), lambda: life.cancel(1), life.expire]
    for step in too_early:
        with pytest.raises(LocalProtocolError):
            step()
    life.work()
    before = replace(life)
    never: list[Callable[[], object]] = [
        life.work,
        life.refuse,
        lambda: life.trade(101, 10),
        lambda: life.trade(1, 11),
        lambda: life.cancel(0),
        lambda: life.end_change(replaced(5), is_taken=True),
    ]
    for step in never:
        with pytest.raises(LocalProtocolError):
            step()
        assert life == before
    for _ in range(CHANGES_MAX):
        life.begin_change(replaced(5))
    with pytest.raises(LocalProtocolError, match="under way"):
        life.begin_change(replaced(6))


@given(
    side=st.sampled_from(Side),
    fee_bp=st.integers(0, 50),
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("trade"), st.integers(1, 200), st.integers(0, 20)),
            st.tuples(st.just("cancel"), st.integers(1, 50), st.just(0)),
            st.tuples(st.just("ask"), st.none() | st.integers(1, 200), st.none() | st.integers(1, 30)),
            st.tuples(st.just("take"), st.just(0), st.just(0)),
            st.tuples(st.just("turn down"), st.just(0), st.just(0)),
        ),
        max_size=20,
    ),
)
def test_what_is_bound_pays_for_whatever_comes(
    side: Side, fee_bp: int, steps: list[tuple[str, int | None, int | None]]
) -> None:
    """Each trade has at least its cost and largest fee bound; what lives has at least its need; nothing is lost."""
    life = working(side, fee_bp=fee_bp)
    reserved = life.bound
    for name, quantity, price in steps:
        if not life.is_live:
            break
        match name:
            case "trade":
                part = min(quantity or 1, life.left)
                at = max(1, life.bound_price - (price or 0))
                bound = life.trade(part, at)
                assert bound >= (part if side is Side.SELL else part * at + fee(part * at, fee_bp))
                assert side is Side.BUY or bound == part or not life.is_live
                reserved -= bound
            case "cancel":
                reserved -= life.cancel(min(quantity or 1, life.left))
            case "ask":
                if len(life.changes) < CHANGES_MAX:
                    reserved += life.begin_change(replaced(quantity, price))
            case _:
                if life.changes:
                    freed = life.end_change(life.changes[0], is_taken=name == "take")
                    assert freed >= 0
                    reserved -= freed
        assert reserved == life.bound == life.need()
        assert life.bound >= need(side, price=life.bound_price, quantity=life.left, fee_bp=fee_bp)


def test_a_path_that_is_legal_and_some_that_are_not() -> None:
    life = order()
    told = [life.report(ReportKind.ACCEPTED, 1, 1)]
    life.work()
    told.append(life.report(ReportKind.WORKING, 2, 2))
    life.trade(100, 10)
    traded = life.report(ReportKind.TRADED, 3, 3)._replace(trade=5, last_quantity=100, last_price=10)
    confirmed = traded._replace(kind=ReportKind.CONFIRMED, number=4)
    assert list(path_faults([*told, traded, confirmed])) == []
    assert any("twice" in fault for fault in path_faults([*told, traded, confirmed, confirmed]))
    assert any("from pending" in fault for fault in path_faults([told[0], traded]))
    assert any("its trades say" in fault for fault in path_faults([*told, traded._replace(last_quantity=99)]))
    assert any("left" in fault for fault in path_faults([*told, traded._replace(left=1)]))
    assert any("from nothing" in fault for fault in path_faults(told[1:]))
