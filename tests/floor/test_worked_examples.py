"""The worked examples of the rules, as they stand in the docstrings and on the pages."""

from __future__ import annotations

import pytest
from tests.floor.cases import BUY, SELL, SYMBOL, Case, cancel, order, refusals, replace, trades

from isocast.floor.events import (
    AuctionKind,
    Bid,
    Cancelled,
    Commit,
    Forfeited,
    Lot,
    Phase,
    PriceRule,
    Refusal,
    Replaced,
    Reveal,
    Share,
    Status,
    Unsold,
)
from isocast.floor.rules.second_price import commitment

pytestmark = pytest.mark.usefixtures("both_floors")

TWO_SELLS = (order(1, SELL, 100, 1002), order(2, SELL, 50, 1003))
NONCE = bytes(range(16))


@pytest.mark.parametrize(
    "rule, prices",
    [
        (PriceRule.RESTING, (1002, 1003)),
        (PriceRule.BUYER, (1005, 1005)),
        (PriceRule.SELLER, (1002, 1003)),
        (PriceRule.MIDPOINT, (1003, 1004)),
    ],
)
def test_whose_price_a_trade_gets(rule: PriceRule, prices: tuple[int, int]) -> None:
    case = Case(price_rule=rule)
    case.token(*TWO_SELLS)
    assert trades(case.token(order(3, BUY, 120, 1005))) == [(prices[0], 100, 3, 1), (prices[1], 20, 3, 2)]


def test_all_or_nothing_immediate_and_post_only() -> None:
    case = Case()
    case.token(*TWO_SELLS)
    assert case.token(order(3, BUY, 200, 1003, is_immediate=True, is_all=True)) == [Cancelled(3, 200)]
    assert refusals(case.token(order(4, BUY, 10, 1002, is_post_only=True))) == {4: Refusal.WOULD_TRADE}
    reports = case.token(order(5, BUY, 200, 1003, is_immediate=True))
    assert trades(reports) == [(1002, 100, 5, 1), (1003, 50, 5, 2)]
    assert reports[-1] == Cancelled(5, 50)


def test_replace_keeps_or_loses_its_place() -> None:
    case = Case()
    case.token(*TWO_SELLS, order(3, SELL, 10, 1002), order(4, BUY, 40, 1002))
    assert case.token(replace(1, 60)) == [Replaced(1, 60)]
    assert case.waiting(SELL) == [(1, 1002, 20), (3, 1002, 10), (2, 1003, 50)]
    case.token(replace(1, 150, price=1002))
    assert case.waiting(SELL) == [(3, 1002, 10), (1, 1002, 110), (2, 1003, 50)]
    assert case.token(replace(1, 40)) == [Replaced(1, 40)]
    assert case.waiting(SELL) == [(3, 1002, 10), (2, 1003, 50)]
    assert refusals(case.token(cancel(1))) == {1: Refusal.UNKNOWN_ORDER}


def test_uniform_price() -> None:
    case = Case(phase=Phase.PRE_OPEN)
    case.token(
        *(order(1, BUY, 100, 1005), order(2, BUY, 50, 1003), order(3, BUY, 80, 1000)),
        *(order(4, SELL, 70, 998), order(5, SELL, 60, 1001), order(6, SELL, 100, 1004)),
    )
    reports = case.token(Status(SYMBOL, Phase.OPEN))
    assert trades(reports) == [(1003, 70, 1, 4), (1003, 30, 1, 5), (1003, 30, 2, 5)]
    assert case.waiting(BUY) == [(2, 1003, 20), (3, 1000, 80)]
    assert case.waiting(SELL) == [(6, 1004, 100)]
    assert case.state.reference == 1003


def test_sharing_by_time_and_in_proportion() -> None:
    for share, expected in ((Share.TIME, [90, 10]), (Share.PRO_RATA, [60, 40])):
        case = Case(phase=Phase.PRE_OPEN, share=share)
        case.token(order(1, BUY, 90, 10), order(2, BUY, 60, 10), order(3, SELL, 100, 10))
        found = trades(case.token(Status(SYMBOL, Phase.OPEN)))
        assert [quantity for _, quantity, _, _ in found] == expected, share


def test_a_trade_wakes_a_stop() -> None:
    case = Case(reference=1000)
    case.token(
        order(1, SELL, 40, 0, is_market=True, trigger=995),
        order(2, BUY, 10, 995),
        order(3, BUY, 100, 990),
    )
    assert trades(case.token(order(4, SELL, 10, 995))) == [(995, 10, 2, 4), (990, 40, 3, 1)]


@pytest.mark.parametrize(
    "bids, revealed, winner, price, forfeits",
    [
        ((80, 95, 95, 60), (0, 1, 2, 3), 1, 95, []),
        ((80, 60), (0, 1), 0, 60, []),
        ((80,), (0,), 0, 50, []),
        ((95, 80, 60), (1, 2), 1, 60, [0]),
        ((40, 30), (0, 1), None, None, []),
    ],
)
def test_second_price(
    bids: tuple[int, ...], revealed: tuple[int, ...], winner: int | None, price: int | None, forfeits: list[int]
) -> None:
    case = Case(phase=Phase.CLOSED)
    lot = Lot(1, 1, SYMBOL, AuctionKind.SECOND_PRICE, 10, reserve=50, closes_at=100, window_ns=50, forfeit=7)
    case.token(lot)
    for place, bid in enumerate(bids):
        number = 10 + place
        assert case.token(Commit(number, number, 1, 100, commitment(bid, NONCE, number, 1))) == []
    reveals = [Reveal(10 + place, 10 + place, bids[place], NONCE) for place in revealed]
    assert refusals(case.token(*reveals[:1], at=99)) == {reveals[0].id: Refusal.WRONG_PHASE}
    assert case.token(*reveals, at=100) == []
    assert case.token(at=149) == []
    reports = case.token(at=150)
    expected = [] if winner is None else [(price, 10, 10 + winner, 1)]
    assert trades(reports) == expected
    assert [one for one in reports if isinstance(one, Unsold)] == ([Unsold(1, 10)] if winner is None else [])
    assert [one for one in reports if isinstance(one, Forfeited)] == [Forfeited(10 + place, 7) for place in forfeits]
    assert not case.floor.lots


def test_dutch_clock() -> None:
    case = Case()
    for _ in range(8):
        case.token()
    assert case.floor.token == 9
    case.token(Lot(1, 1, SYMBOL, AuctionKind.DUTCH, 30, reserve=70, start=100, step=5))
    case.token()
    reports = case.token(Bid(2, 2, 1, 10, 100), Bid(3, 3, 1, 25, 85))
    assert case.floor.token == 12
    assert trades(reports) == [(90, 10, 2, 1)]
    assert refusals(reports) == {3: Refusal.PRICE}
    reports = case.token(Bid(4, 3, 1, 25, 85))
    assert trades(reports) == [(85, 20, 4, 1)]
    assert reports[-1] == Cancelled(4, 5)
    assert not case.floor.lots
