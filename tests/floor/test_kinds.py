"""Orders for a date, for the opening, for the close, and icebergs."""

from __future__ import annotations

from typing import Any

import pytest
from tests.floor.cases import BUY, SELL, SYMBOL, Case, cancel, order, refusals, replace, trades

from isocast.floor.events import (
    Cancelled,
    Crossing,
    Expired,
    Indicative,
    MarketKind,
    OwnRule,
    Phase,
    Refusal,
    Replaced,
    Status,
)
from isocast.floor.machine import PARTS_MAX
from isocast.floor.state import state_hash, state_lines

pytestmark = pytest.mark.usefixtures("both_floors")

AT_OPEN: dict[str, Any] = {"at": Crossing.OPEN}
AT_CLOSE: dict[str, Any] = {"at": Crossing.CLOSE}


def enter(phase: Phase) -> Status:
    return Status(SYMBOL, phase)


# Until a date -------------------------------------------------------------------------------------------------------


def test_an_order_until_a_date_expires_before_anything_else_happens_then() -> None:
    case = Case()
    case.token(order(1, BUY, 10, 100, until=50), order(2, BUY, 5, 100, until=40), order(3, BUY, 5, 100), at=10)
    assert case.token(order(4, SELL, 3, 100), at=39)
    assert case.waiting(BUY)[0] == (1, 100, 7)
    reports = case.token(order(5, SELL, 20, 100), at=50)
    assert reports[:2] == [Expired(2, 5), Expired(1, 7)]
    assert trades(reports) == [(100, 5, 3, 5)]
    assert refusals(case.token(order(6, BUY, 1, 1, until=51), at=51)) == {6: Refusal.TOO_LATE}


def test_a_date_follows_an_order_through_replaces_and_ends_with_it() -> None:
    case = Case()
    case.token(order(1, BUY, 10, 100, until=50), order(2, BUY, 10, 100, until=50), at=10)
    case.token(replace(1, 20, price=101), cancel(2), at=11)
    assert case.token(at=60) == [Expired(1, 20)]
    assert case.waiting(BUY) == []


def test_a_stop_until_a_date_expires_too() -> None:
    case = Case()
    case.token(order(1, SELL, 10, 90, trigger=95, until=20), at=10)
    assert case.token(at=20) == [Expired(1, 10)]
    assert not case.state.stops


# At the open --------------------------------------------------------------------------------------------------------


def test_an_order_for_the_opening_trades_there_or_expires() -> None:
    case = Case(phase=Phase.PRE_OPEN)
    case.token(
        order(1, BUY, 10, 100), order(2, SELL, 15, 99, **AT_OPEN), order(3, SELL, 5, 120, **AT_OPEN),
        order(4, SELL, 4, is_market=True, **AT_OPEN), order(5, BUY, 2, 50, **AT_OPEN),
    )  # fmt: skip
    reports = case.token(enter(Phase.OPEN))
    assert trades(reports) == [(99, 4, 1, 4), (99, 6, 1, 2)]
    assert [one for one in reports if isinstance(one, Expired)] == [Expired(5, 2), Expired(2, 9), Expired(3, 5)]
    assert case.waiting(SELL) == []
    assert refusals(case.token(order(6, BUY, 1, 1, **AT_OPEN))) == {6: Refusal.WRONG_PHASE}


def test_a_market_order_for_the_opening_that_finds_nobody_expires() -> None:
    case = Case(phase=Phase.PRE_OPEN)
    case.token(order(1, SELL, 4, is_market=True, **AT_OPEN))
    assert case.token(enter(Phase.OPEN)) == [Expired(1, 4)]


def test_what_the_opening_wakes_does_not_meet_orders_for_the_opening() -> None:
    case = Case(phase=Phase.PRE_OPEN, reference=100)
    case.token(order(1, BUY, 10, 100), order(2, SELL, 10, 100), order(3, SELL, 5, 101, **AT_OPEN))
    case.token(order(4, BUY, 5, 102, trigger=100))
    reports = case.token(enter(Phase.OPEN))
    assert trades(reports) == [(100, 10, 1, 2)]
    assert case.waiting(BUY) == [(4, 102, 5)]


def test_a_day_without_an_opening_ends_orders_for_it() -> None:
    case = Case(phase=Phase.PRE_OPEN)
    case.token(order(1, BUY, 10, 100, **AT_OPEN))
    assert case.token(enter(Phase.HALTED)) == []
    assert case.token(enter(Phase.CLOSED)) == [Expired(1, 10)]


# At the close -------------------------------------------------------------------------------------------------------


def test_an_order_for_the_close_waits_outside_the_book_and_trades_there_or_expires() -> None:
    case = Case()
    case.token(order(1, BUY, 10, 105, **AT_CLOSE), order(2, BUY, 3, is_market=True, **AT_CLOSE))
    assert case.token(order(3, SELL, 8, 100)) == []
    assert case.waiting(SELL) == [(3, 100, 8)]
    case.token(enter(Phase.CLOSING))
    assert case.waiting(BUY) == [(2, 0, 3), (1, 105, 10)]
    reports = case.token(enter(Phase.CLOSED))
    # Buys are left over at 100 and at 105 alike, so the highest price counts.
    assert trades(reports) == [(105, 3, 2, 3), (105, 5, 1, 3)]
    assert [one for one in reports if isinstance(one, Expired)] == [Expired(1, 5)]
    assert not case.floor.orders


def test_an_order_for_the_close_gets_its_time_when_the_call_begins() -> None:
    case = Case()
    case.token(order(1, BUY, 10, 105, **AT_CLOSE))
    case.token(order(2, BUY, 10, 105))
    case.token(enter(Phase.CLOSING))
    assert case.waiting(BUY) == [(2, 105, 10), (1, 105, 10)]
    assert [one.token for one in case.state.book.buys] == [3, 4]


def test_an_order_for_the_close_can_be_cancelled_and_replaced_while_it_waits() -> None:
    case = Case()
    case.token(
        order(1, BUY, 10, 105, **AT_CLOSE), order(2, BUY, 10, 105, **AT_CLOSE), order(3, BUY, 5, 105, **AT_CLOSE)
    )
    assert case.token(cancel(3)) == [Cancelled(3, 5)]
    assert case.token(replace(1, 20)) == [Replaced(1, 20)]
    assert case.token(replace(2, 4)) == [Replaced(2, 4)]
    case.token(enter(Phase.CLOSING))
    assert case.waiting(BUY) == [(2, 105, 4), (1, 105, 20)]


def test_a_closing_call_that_is_called_off_lets_orders_for_the_close_wait_again() -> None:
    case = Case()
    case.token(order(1, BUY, 10, 105, **AT_CLOSE), enter(Phase.CLOSING), order(2, BUY, 7, 106, **AT_CLOSE))
    reports = case.token(order(3, SELL, 20, 100), enter(Phase.OPEN))
    assert trades(reports) == []
    assert case.waiting(SELL) == [(3, 100, 20)]
    case.token(enter(Phase.CLOSING))
    assert case.waiting(BUY) == [(2, 106, 7), (1, 105, 10)]


def test_a_day_without_a_closing_call_ends_orders_for_the_close() -> None:
    case = Case()
    case.token(order(1, BUY, 10, 105, **AT_CLOSE))
    assert case.token(enter(Phase.CLOSED)) == [Expired(1, 10)]


# Icebergs -----------------------------------------------------------------------------------------------------------


def test_an_iceberg_shows_a_part_and_the_next_one_goes_behind() -> None:
    case = Case()
    case.token(order(1, SELL, 25, 100, display=10), order(2, SELL, 10, 100))
    assert trades(case.token(order(3, BUY, 15, 100))) == [(100, 10, 3, 1), (100, 5, 3, 2)]
    assert case.waiting(SELL) == [(2, 100, 5), (1, 100, 15)]
    assert trades(case.token(order(4, BUY, 30, 100))) == [(100, 5, 4, 2), (100, 10, 4, 1), (100, 5, 4, 1)]
    assert case.waiting(BUY) == [(4, 100, 10)]


def test_an_iceberg_that_comes_trades_with_all_of_itself() -> None:
    case = Case()
    case.token(order(1, SELL, 30, 100))
    assert trades(case.token(order(2, BUY, 50, 100, display=10))) == [(100, 30, 2, 1)]
    assert [one.shown for one in case.state.book.buys] == [10]


def test_an_auction_takes_all_of_an_iceberg_at_its_place() -> None:
    case = Case(phase=Phase.PRE_OPEN)
    case.token(order(1, SELL, 25, 100, display=10), order(2, SELL, 10, 100), order(3, BUY, 20, 100))
    assert trades(case.token(enter(Phase.OPEN))) == [(100, 20, 3, 1)]
    assert [(one.id, one.shown) for one in case.state.book.sells] == [(1, 5), (2, 10)]


def test_a_part_cancel_and_a_smaller_total_keep_an_icebergs_place() -> None:
    case = Case()
    case.token(order(1, SELL, 25, 100, display=10), order(2, SELL, 10, 100))
    case.token(cancel(1, 18))
    assert [(one.id, one.shown) for one in case.state.book.sells] == [(1, 7), (2, 10)]
    case.token(replace(1, 5))
    assert [(one.id, one.shown) for one in case.state.book.sells] == [(1, 5), (2, 10)]


def test_all_or_nothing_counts_what_is_hidden_only_where_it_would_come_first() -> None:
    """Behind an own order at the same price nothing trades, the next part of an iceberg neither."""
    case = Case(own_rule=OwnRule.CANCEL_NEWEST)
    case.token(order(1, SELL, 30, 100, display=10))
    all_or_nothing = {"is_immediate": True, "is_all": True}
    assert trades(case.token(order(2, BUY, 25, 100, **all_or_nothing))) == [
        (100, 10, 2, 1),
        (100, 10, 2, 1),
        (100, 5, 2, 1),
    ]
    case.token(order(3, SELL, 30, 101, display=10), order(4, SELL, 1, 101, account=9))
    assert case.token(order(5, BUY, 20, 101, account=9, **all_or_nothing)) == [Cancelled(5, 20)]


@pytest.mark.parametrize("display, reason", [(3, Refusal.LOT), (-5, Refusal.FLAGS)])
def test_a_part_is_of_whole_lots(display: int, reason: Refusal) -> None:
    assert refusals(Case(lot=5).token(order(1, BUY, 20, 1, display=display))) == {1: reason}


def test_an_iceberg_has_a_bounded_number_of_parts() -> None:
    """Each is a trade: a million of them in one event would hold up every site."""
    case, most = Case(), 5 * PARTS_MAX
    assert refusals(case.token(order(1, BUY, most + 1, 100, display=5), order(2, BUY, most, 100, display=5))) == {
        1: Refusal.FLAGS
    }
    assert refusals(case.token(replace(2, most + 1))) == {2: Refusal.FLAGS}
    assert refusals(case.token(replace(2, most))) == {}
    assert len(trades(case.token(order(3, SELL, most, 100)))) == PARTS_MAX


def test_an_iceberg_that_shows_all_is_a_plain_order() -> None:
    case, plain = Case(), Case()
    case.token(order(1, BUY, 20, 100, display=20))
    plain.token(order(1, BUY, 20, 100))
    assert state_hash(case.floor) == state_hash(plain.floor)


# Flags, and the state ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flags",
    [
        {"until": 99, "is_day": True},
        {"until": 99, "is_immediate": True},
        {"until": 99, **AT_CLOSE},
        {"is_day": True, **AT_OPEN},
        {"is_immediate": True, **AT_OPEN},
        {"is_post_only": True, **AT_CLOSE},
        {"trigger": 1, **AT_CLOSE},
        {"display": 5, **AT_CLOSE},
        {"display": 5, "is_market": True},
        {"display": 5, "is_immediate": True},
        {"display": 5, "trigger": 1},
        {"display": 5, "is_offer": True},
        {"until": 99, "is_offer": True},
        {"is_offer": True, **AT_OPEN},
    ],
)
def test_flags_that_exclude_each_other(flags: dict[str, object]) -> None:
    assert refusals(Case(phase=Phase.PRE_OPEN).token(order(1, BUY, 10, 100, **flags))) == {1: Refusal.FLAGS}


def test_the_state_tells_them_apart_and_leaves_other_orders_as_they_were() -> None:
    case = Case(market=MarketKind.CONTINUOUS)
    case.token(
        order(1, BUY, 10, 100), order(2, BUY, 10, 100, until=99), order(3, BUY, 10, 100, display=4),
        order(4, BUY, 10, 100, **AT_CLOSE),
    )  # fmt: skip
    lines = [line for line in state_lines(case.floor) if line.startswith(("order", "close"))]
    assert lines == [
        "order ISO 1 1 0 BUY 100 - 10 0 2 1",
        "order ISO 2 2 0 BUY 100 - 10 0 2 2 until 99",
        "order ISO 3 3 0 BUY 100 - 10 0 2 3 shows 4 4",
        "close ISO 4 4 0 BUY 100 - 10 0 2 4 at close",
    ]


def test_an_order_that_ends_by_its_date_in_a_call_renews_the_indicative_price() -> None:
    """Settlement 57: at the end of each token of a call that changed the book."""
    case = Case(phase=Phase.PRE_OPEN)
    case.token(order(1, BUY, 5, 10, until=9), order(2, SELL, 5, 10), at=5)
    assert Indicative(SYMBOL, None, 0, 0) in case.token(at=9)
    assert not case.token(at=10)
