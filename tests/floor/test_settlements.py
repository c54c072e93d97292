"""Places where two competent people would decide differently, each decided once."""

from __future__ import annotations

import pytest
from tests.floor.cases import BUY, SELL, SYMBOL, Case, cancel, order, refusals, replace, trades

from isocast.floor.events import (
    AuctionKind,
    Bid,
    Cancelled,
    Commit,
    Directory,
    Expired,
    Forfeited,
    Indicative,
    Lot,
    MarketKind,
    OwnRule,
    Phase,
    PriceRule,
    Refusal,
    Replaced,
    Reveal,
    Share,
    Status,
    Take,
    Trade,
    Unsold,
)
from isocast.floor.rules.second_price import commitment
from isocast.floor.state import state_hash, state_lines

pytestmark = pytest.mark.usefixtures("both_floors")

NONCE = bytes(16)

# Checks -------------------------------------------------------------------------------------------------------------


def test_the_first_reason_is_given_and_an_id_is_used_up_whatever_becomes_of_it() -> None:
    case = Case(tick=5, lot=10, collar_bp=1000, reference=100)
    bad = order(5, BUY, 7, 500, is_all=True)
    assert refusals(case.token(bad._replace(symbol="NONE"))) == {5: Refusal.UNKNOWN_SYMBOL}
    assert refusals(case.token(bad)) == {5: Refusal.DUPLICATE_ID}
    assert refusals(case.token(bad._replace(id=6, account=5))) == {6: Refusal.FLAGS}
    case.token(Status(SYMBOL, Phase.HALTED))
    assert refusals(case.token(bad._replace(id=7, is_all=False))) == {7: Refusal.WRONG_PHASE}
    case.token(Status(SYMBOL, Phase.OPEN))
    assert refusals(case.token(bad._replace(id=8, is_all=False))) == {8: Refusal.LOT}
    assert refusals(case.token(bad._replace(id=9, is_all=False, quantity=10, price=501))) == {9: Refusal.TICK}
    assert refusals(case.token(bad._replace(id=10, is_all=False, quantity=10))) == {10: Refusal.COLLAR}
    assert refusals(case.token(order(4, BUY, 10, 110, account=5))) == {4: Refusal.DUPLICATE_ID}
    assert refusals(case.token(order(11, BUY, 10, 110, account=5))) == {}


@pytest.mark.parametrize(
    "flags",
    [
        {"is_all": True},
        {"is_post_only": True, "is_market": True},
        {"is_post_only": True, "is_immediate": True},
        {"is_post_only": True, "trigger": 10},
        {"is_immediate": True, "trigger": 10},
        {"is_offer": True, "is_day": True},
        {"is_offer": True, "is_market": True},
        {"is_offer": True, "trigger": 10},
    ],
)
def test_flags_that_exclude_each_other(flags: dict[str, object]) -> None:
    assert refusals(Case().token(order(1, BUY, 1, 10, **flags))) == {1: Refusal.FLAGS}


def test_a_collar_asks_the_aggressive_side_alone_and_is_rounded_inwards() -> None:
    case = Case(collar_bp=100, reference=150)  # 148.5 to 151.5
    reports = case.token(
        *(order(1, BUY, 1, 151), order(2, BUY, 1, 152), order(3, BUY, 1, 1)),
        *(order(4, SELL, 1, 149, account=1), order(5, SELL, 1, 148), order(6, SELL, 1, 9999)),
        order(7, BUY, 1, 0, is_market=True),
    )
    assert refusals(reports) == {2: Refusal.COLLAR, 5: Refusal.COLLAR}
    assert refusals(Case(collar_bp=100).token(order(1, BUY, 1, 9999))) == {}


def test_a_stop_has_its_collar_around_its_trigger() -> None:
    case = Case(collar_bp=100, reference=100)
    reports = case.token(order(1, BUY, 1, 202, trigger=200), order(2, BUY, 1, 203, trigger=200))
    assert refusals(reports) == {2: Refusal.COLLAR}


def test_an_order_that_enters_after_its_deadline_is_too_late() -> None:
    case = Case()
    assert refusals(case.token(order(1, BUY, 1, 5, deadline=10), at=10)) == {}
    assert refusals(case.token(order(2, BUY, 1, 5, deadline=10), at=11)) == {2: Refusal.TOO_LATE}


# Continuous ---------------------------------------------------------------------------------------------------------


def test_a_market_order_never_rests_and_never_trades_beyond_its_protection_price() -> None:
    case = Case()
    case.token(order(1, SELL, 10, 100), order(2, SELL, 10, 105))
    reports = case.token(order(3, BUY, 30, 104, is_market=True))
    assert trades(reports) == [(100, 10, 3, 1)]
    assert reports[-1] == Cancelled(3, 20)
    assert case.token(order(4, SELL, 5, 0, is_market=True)) == [Cancelled(4, 5)]


def test_a_market_orders_trade_has_the_resting_price_under_every_rule() -> None:
    for rule in PriceRule:
        case = Case(price_rule=rule)
        case.token(order(1, SELL, 10, 100))
        assert trades(case.token(order(2, BUY, 10, 200, is_market=True))) == [(100, 10, 2, 1)], rule


@pytest.mark.parametrize(
    "rule, traded, buys, sells",
    [
        (OwnRule.CANCEL_NEWEST, [(100, 5, 9, 1)], [], [(2, 100, 5), (3, 100, 5)]),
        (OwnRule.CANCEL_OLDEST, [(100, 5, 9, 1), (100, 5, 9, 3)], [(9, 100, 2)], []),
        (OwnRule.BOTH, [(100, 5, 9, 1)], [], [(3, 100, 5)]),
        (OwnRule.NONE, [(100, 5, 9, 1), (100, 5, 9, 2), (100, 2, 9, 3)], [], [(3, 100, 3)]),
    ],
)
def test_what_happens_where_an_order_meets_its_owners(
    rule: OwnRule, traded: list[object], buys: list[object], sells: list[object]
) -> None:
    case = Case(own_rule=rule)
    case.token(order(1, SELL, 5, 100), order(2, SELL, 5, 100, account=9), order(3, SELL, 5, 100))
    reports = case.token(order(9, BUY, 12, 100))
    assert trades(reports) == traded
    assert (case.waiting(BUY), case.waiting(SELL)) == (buys, sells)
    assert [one.is_own for one in reports if isinstance(one, Trade)].count(True) == (rule is OwnRule.NONE)


def test_own_is_an_account_and_a_brokers_customer() -> None:
    case = Case()
    case.token(order(1, SELL, 5, 100, account=7, owner=1))
    assert trades(case.token(order(2, BUY, 5, 100, account=7, owner=2))) == [(100, 5, 2, 1)]


@pytest.mark.parametrize(
    "rule, fills", [(OwnRule.CANCEL_NEWEST, 0), (OwnRule.BOTH, 0), (OwnRule.CANCEL_OLDEST, 2), (OwnRule.NONE, 2)]
)
def test_all_or_nothing_counts_own_orders_as_the_rule_says_and_cancels_nothing_else(rule: OwnRule, fills: int) -> None:
    case = Case(own_rule=rule)
    case.token(order(1, SELL, 5, 100), order(2, SELL, 5, 100, account=9), order(3, SELL, 5, 100))
    reports = case.token(order(9, BUY, 10, 100, is_immediate=True, is_all=True))
    assert len(trades(reports)) == fills
    if not fills:
        assert reports == [Cancelled(9, 10)]
        assert len(case.waiting(SELL)) == 3


def test_post_only_is_refused_for_own_orders_too() -> None:
    case = Case()
    case.token(order(1, SELL, 5, 100))
    assert refusals(case.token(order(2, BUY, 5, 100, account=1, is_post_only=True))) == {2: Refusal.WOULD_TRADE}


# Stops --------------------------------------------------------------------------------------------------------------


def test_woken_stops_form_one_queue_in_the_order_of_their_sequence() -> None:
    case = Case(reference=100)
    case.token(
        order(1, BUY, 1, 110, trigger=103),
        order(2, BUY, 1, 110, trigger=102),
        order(3, BUY, 1, 110, trigger=106),
        *(order(10 + step, SELL, 1, 103 + step) for step in range(5)),
    )
    # The trade at 103 wakes 1 and 2, which enter in their own order before the next event; the one at 106 wakes 3.
    reports = case.token(order(30, BUY, 1, 103), order(31, BUY, 1, 106))
    assert trades(reports) == [(103, 1, 30, 10), (104, 1, 1, 11), (105, 1, 2, 12), (106, 1, 31, 13), (107, 1, 3, 14)]


def test_a_stop_whose_trigger_is_reached_enters_at_once_while_it_trades() -> None:
    case = Case(reference=100)
    case.token(order(1, SELL, 5, 100))
    assert trades(case.token(order(2, BUY, 5, 100, trigger=100))) == [(100, 5, 2, 1)]
    case.token(Status(SYMBOL, Phase.PRE_OPEN))
    case.token(order(3, BUY, 5, 100, trigger=100))
    assert list(case.state.stops) == [3]


def test_a_stop_that_wakes_where_nothing_trades_rests_as_what_it_has_become() -> None:
    case = Case(phase=Phase.CLOSING, reference=100)
    case.token(order(1, BUY, 5, 101, trigger=101), order(2, BUY, 5, 101, trigger=101, is_day=True))
    case.token(order(3, BUY, 1, 101), order(4, SELL, 1, 101))
    reports = case.token(Status(SYMBOL, Phase.CLOSED))
    assert trades(reports) == [(101, 1, 3, 4)]
    assert Expired(2, 5) in reports
    assert case.waiting(BUY) == [(1, 101, 5)]


def test_replacing_a_stop() -> None:
    case = Case(reference=100)
    case.token(*(order(number, BUY, 5, 120, trigger=110) for number in (1, 2, 3)))
    case.token(replace(1, 4))
    assert list(case.state.stops) == [1, 2, 3]
    case.token(replace(1, trigger=111))
    assert list(case.state.stops) == [2, 3, 1]
    case.token(replace(2, 6))
    assert list(case.state.stops) == [3, 1, 2]
    assert refusals(case.token(order(9, BUY, 1, 90), replace(9, trigger=95))) == {9: Refusal.FLAGS}


# Cancel and replace -------------------------------------------------------------------------------------------------


def test_a_part_cancel_keeps_its_place_and_one_not_smaller_than_the_rest_cancels_all() -> None:
    case = Case(lot=10)
    case.token(order(1, BUY, 100, 10), order(2, BUY, 100, 10))
    assert case.token(cancel(1, 30)) == [Cancelled(1, 30)]
    assert case.waiting(BUY) == [(1, 10, 70), (2, 10, 100)]
    assert refusals(case.token(cancel(1, 5))) == {1: Refusal.LOT}
    assert refusals(case.token(cancel(1, account=2))) == {1: Refusal.UNKNOWN_ORDER}
    assert case.token(cancel(1, 80)) == [Cancelled(1, 70)]
    assert case.waiting(BUY) == [(2, 10, 100)]


def test_a_replace_that_changes_nothing_keeps_its_place() -> None:
    case = Case()
    case.token(order(1, BUY, 10, 10), order(2, BUY, 10, 10))
    assert case.token(replace(1, 10, price=10)) == [Replaced(1, 10)]
    assert case.waiting(BUY) == [(1, 10, 10), (2, 10, 10)]


def test_a_replace_may_trade_and_a_refused_one_leaves_the_order_as_it_was() -> None:
    case = Case(collar_bp=1000, reference=100)
    case.token(order(1, BUY, 10, 90), order(2, SELL, 10, 100), order(3, BUY, 10, 90, is_post_only=True))
    assert refusals(case.token(replace(1, price=111))) == {1: Refusal.COLLAR}
    assert refusals(case.token(replace(3, price=100))) == {3: Refusal.WOULD_TRADE}
    case.token(Status(SYMBOL, Phase.HALTED))
    assert refusals(case.token(replace(1, price=91))) == {1: Refusal.WRONG_PHASE}
    case.token(Status(SYMBOL, Phase.OPEN))
    assert case.waiting(BUY) == [(1, 90, 10), (3, 90, 10)]
    assert trades(case.token(replace(1, price=100))) == [(100, 10, 1, 2)]


def test_the_collar_is_asked_only_when_a_price_changes() -> None:
    case = Case(collar_bp=1000, reference=100)
    case.token(order(1, BUY, 10, 110), order(2, SELL, 1, 91))  # They trade: the reference is 110 now.
    case.token(order(3, SELL, 9, 100), order(4, BUY, 5, 88), order(5, SELL, 5, 88, account=4))
    case.token(Directory(SYMBOL, collar_bp=1))
    case.state.reference = 50
    assert refusals(case.token(replace(4, 3))) == {}


def test_a_total_not_above_what_is_filled_ends_the_order() -> None:
    case = Case()
    case.token(order(1, BUY, 10, 10), order(2, SELL, 6, 10))
    assert case.token(replace(1, 4)) == [Replaced(1, 6)]
    assert case.waiting(BUY) == []


# Phases -------------------------------------------------------------------------------------------------------------


def test_what_each_phase_takes() -> None:
    for phase in Phase:
        case = Case(phase=phase)
        wrong = refusals(
            case.token(
                order(1, BUY, 1, 10),
                order(2, BUY, 1, 10, is_immediate=True),
                order(3, BUY, 1, 10, is_post_only=True),
                order(4, BUY, 1, 0, is_market=True),
            )
        )
        expected = {1, 2, 3, 4} if phase in (Phase.CLOSED, Phase.HALTED) else {2, 3} if phase.is_call else set()
        assert wrong.keys() == expected, phase
        assert set(wrong.values()) <= {Refusal.WRONG_PHASE}


@pytest.mark.parametrize("before", list(Phase))
@pytest.mark.parametrize("after", [phase for phase in Phase if phase is not Phase.PAUSE])
def test_trading_and_the_end_of_a_closing_call_begin_with_an_auction_and_nothing_else_does(
    before: Phase, after: Phase
) -> None:
    case = Case(phase=Phase.PRE_OPEN)
    case.token(order(1, BUY, 1, 10), order(2, SELL, 1, 10))
    case.state.phase = before
    traded = trades(case.token(Status(SYMBOL, after)))
    is_auction = (after is Phase.OPEN and before is not Phase.OPEN) or (before, after) == (Phase.CLOSING, Phase.CLOSED)
    assert bool(traded) == is_auction


def test_day_orders_expire_when_their_symbol_closes_and_not_in_halts() -> None:
    case = Case()
    case.token(order(1, BUY, 5, 10, is_day=True), order(2, BUY, 5, 10), order(3, BUY, 5, 30, trigger=20, is_day=True))
    assert case.token(Status(SYMBOL, Phase.HALTED)) == []
    assert case.token(Status(None, Phase.CLOSED)) == [Expired(1, 5), Expired(3, 5)]
    assert (case.waiting(BUY), list(case.state.stops)) == ([(2, 10, 5)], [])


def test_a_trade_that_would_leave_the_band_pauses_the_symbol_and_an_auction_reopens_it() -> None:
    case = Case(reference=100, band_bp=500, pause_ns=50)  # 95 to 105
    case.token(order(1, SELL, 5, 105), order(2, SELL, 5, 106), at=10)
    reports = case.token(order(3, BUY, 10, 110), at=20)
    assert trades(reports) == [(105, 5, 3, 1)]
    assert (case.state.phase, case.state.reopens_at) == (Phase.PAUSE, 70)
    assert case.waiting(BUY) == [(3, 110, 5)]
    assert trades(case.token(order(4, SELL, 1, 110), at=69)) == []
    assert trades(case.token(at=70)) == [(106, 5, 3, 2)]
    assert case.state.phase is Phase.OPEN


def test_the_band_is_measured_from_the_reference_at_the_beginning_of_the_event() -> None:
    case = Case(reference=100, band_bp=500, pause_ns=50)
    case.token(*(order(number, SELL, 1, price) for number, price in ((1, 104), (2, 105), (3, 109))))
    assert trades(case.token(order(9, BUY, 3, 200))) == [(104, 1, 9, 1), (105, 1, 9, 2)]
    assert case.state.phase is Phase.PAUSE


def test_what_is_immediate_is_cancelled_at_the_band_and_all_or_nothing_halts_nothing() -> None:
    case = Case(reference=100, band_bp=500, pause_ns=50)
    case.token(order(1, SELL, 5, 106))
    assert case.token(order(2, BUY, 5, 110, is_immediate=True, is_all=True)) == [Cancelled(2, 5)]
    assert case.state.reopens_at is None
    assert Cancelled(3, 5) in case.token(order(3, BUY, 5, 0, is_market=True))
    assert case.state.phase is Phase.PAUSE


def test_the_end_of_a_call_is_told_before_it_comes() -> None:
    case = Case(phase=Phase.PRE_OPEN, reference=10)
    assert case.token(order(1, BUY, 9, 10)) == [Indicative(SYMBOL, None, 0, 0)]
    assert case.token(order(2, SELL, 4, 10)) == [Indicative(SYMBOL, 10, 4, 5)]
    assert case.token() == []


# Auctions -----------------------------------------------------------------------------------------------------------


def test_market_orders_stand_before_limits_at_their_protection_price_and_end_with_the_auction() -> None:
    case = Case(phase=Phase.PRE_OPEN)
    case.token(
        order(1, BUY, 5, 100),
        order(2, BUY, 5, 100, is_market=True),
        order(3, BUY, 5, 0, is_market=True),
        order(4, BUY, 5, 99, is_market=True),
        order(5, SELL, 12, 100),
    )
    reports = case.token(Status(SYMBOL, Phase.OPEN))
    assert trades(reports) == [(100, 5, 3, 5), (100, 5, 2, 5), (100, 2, 1, 5)]
    assert Cancelled(4, 5) in reports


def test_with_market_orders_alone_and_no_reference_nothing_trades() -> None:
    case = Case(phase=Phase.PRE_OPEN)
    case.token(order(1, BUY, 5, 0, is_market=True), order(2, SELL, 5, 0, is_market=True))
    assert case.token(Status(SYMBOL, Phase.OPEN)) == [Cancelled(1, 5), Cancelled(2, 5)]
    case = Case(phase=Phase.PRE_OPEN, reference=77)
    case.token(order(1, BUY, 5, 0, is_market=True), order(2, SELL, 5, 0, is_market=True))
    assert trades(case.token(Status(SYMBOL, Phase.OPEN))) == [(77, 5, 1, 2)]


@pytest.mark.parametrize("reference, price", [(None, 10), (5, 8), (20, 12), (11, 11)])
def test_of_equal_prices_the_reference_decides_and_without_one_the_middle(reference: int | None, price: int) -> None:
    case = Case(phase=Phase.PRE_OPEN, reference=reference)
    case.token(order(1, BUY, 5, 12), order(2, SELL, 5, 8))
    assert trades(case.token(Status(SYMBOL, Phase.OPEN))) == [(price, 5, 1, 2)]


def test_own_orders_may_meet_in_an_auction_and_the_trade_says_so() -> None:
    case = Case(phase=Phase.PRE_OPEN)
    case.token(order(1, BUY, 5, 10), order(2, SELL, 5, 10, account=1))
    (trade,) = (one for one in case.token(Status(SYMBOL, Phase.OPEN)) if isinstance(one, Trade))
    assert (trade.is_own, trade.is_auction) == (True, True)


def test_an_auctions_price_wakes_stops_which_enter_the_following_phase() -> None:
    case = Case(phase=Phase.PRE_OPEN)
    case.token(order(1, BUY, 5, 10), order(2, SELL, 5, 10), order(3, SELL, 2, 12), order(4, BUY, 2, 12, trigger=10))
    assert trades(case.token(Status(SYMBOL, Phase.OPEN))) == [(10, 5, 1, 2), (12, 2, 4, 3)]


def test_in_proportion_means_whole_lots_and_the_rest_goes_by_priority() -> None:
    case = Case(phase=Phase.PRE_OPEN, share=Share.PRO_RATA, lot=10)
    case.token(order(1, BUY, 30, 10), order(2, BUY, 30, 10), order(3, BUY, 30, 10), order(4, SELL, 50, 10))
    found = trades(case.token(Status(SYMBOL, Phase.OPEN)))
    assert [(buy, quantity) for _, quantity, buy, _ in found] == [(1, 30), (2, 10), (3, 10)]


# Batches ------------------------------------------------------------------------------------------------------------


def test_a_batch_trades_after_the_token_at_one_price_token_by_token() -> None:
    case = Case(market=MarketKind.BATCH)
    case.token(order(1, BUY, 30, 10))
    case.token(order(2, BUY, 60, 10), order(3, BUY, 20, 10))
    found = trades(case.token(order(4, SELL, 70, 10), order(5, BUY, 99, 10)))
    assert [(buy, quantity) for _, quantity, buy, _ in found] == [(1, 30), (2, 30), (3, 10)]


def test_a_batch_takes_neither_all_or_nothing_nor_post_only_and_what_is_immediate_lives_for_one_auction() -> None:
    case = Case(market=MarketKind.BATCH)
    reports = case.token(
        order(1, BUY, 5, 10, is_immediate=True, is_all=True),
        order(2, BUY, 5, 10, is_post_only=True),
        order(3, BUY, 5, 10, is_immediate=True),
        order(4, SELL, 2, 10),
    )
    assert refusals(reports) == {1: Refusal.WRONG_PHASE, 2: Refusal.WRONG_PHASE}
    assert trades(reports) == [(10, 2, 3, 4)]
    assert Cancelled(3, 3) in reports


def test_stops_that_a_batch_wakes_join_the_next_tokens_auction() -> None:
    case = Case(market=MarketKind.BATCH)
    case.token(order(1, BUY, 3, 10, trigger=10), order(2, SELL, 9, 10))
    assert trades(case.token(order(3, BUY, 4, 10))) == [(10, 4, 3, 2)]
    assert trades(case.token()) == [(10, 3, 1, 2)]


# Offers -------------------------------------------------------------------------------------------------------------


def test_an_open_offer_goes_to_the_first_take_whatever_the_phase_and_moves_no_reference() -> None:
    case = Case(phase=Phase.CLOSED, reference=50)
    assert case.token(order(1, SELL, 100, 60, is_offer=True)) == []
    reports = case.token(Take(2, 2, 1, 70), Take(3, 3, 1, 70), Take(4, 4, 1, 1))
    assert trades(reports) == [(60, 70, 2, 1), (60, 30, 3, 1)]
    assert Cancelled(3, 40) in reports
    assert refusals(reports) == {4: Refusal.UNKNOWN_ORDER}
    assert case.state.reference == 50


def test_an_offer_can_be_cancelled_in_part_not_replaced_and_not_taken_by_its_own() -> None:
    case = Case()
    case.token(order(1, BUY, 100, 60, is_offer=True))
    assert case.token(cancel(1, 40)) == [Cancelled(1, 40)]
    assert refusals(case.token(replace(1, 10))) == {1: Refusal.UNKNOWN_ORDER}
    assert refusals(case.token(Take(2, 1, 1, 5))) == {2: Refusal.OWN}
    assert trades(case.token(Take(5, 5, 1, 60))) == [(60, 60, 1, 5)]
    assert refusals(case.token(cancel(1))) == {1: Refusal.UNKNOWN_ORDER}


# Lots ---------------------------------------------------------------------------------------------------------------

SALE = Lot(1, 1, SYMBOL, AuctionKind.SECOND_PRICE, 1, reserve=5, closes_at=100, window_ns=50, forfeit=1000)
CLOCK = Lot(1, 1, SYMBOL, AuctionKind.DUTCH, 10, reserve=8, start=10, step=1)


def commit(number: int, price: int, account: int | None = None, ceiling: int = 100) -> Commit:
    who = number if account is None else account
    return Commit(number, who, 1, ceiling, commitment(price, NONCE, who, 1))


def test_commitments_count_before_the_close_and_a_second_one_takes_the_place_of_the_first() -> None:
    case = Case()
    case.token(SALE, commit(2, 20), commit(3, 20), at=10)
    case.token(commit(4, 20, account=2), at=20)  # The same price, later: 3 was earlier now.
    assert refusals(case.token(commit(5, 90), at=100)) == {5: Refusal.WRONG_PHASE}
    reveals = [Reveal(4, 2, 20, NONCE), Reveal(3, 3, 20, NONCE)]
    assert refusals(case.token(*reveals, Reveal(2, 2, 20, NONCE), at=149)) == {2: Refusal.UNKNOWN_ORDER}
    assert trades(case.token(at=150)) == [(20, 1, 3, 1)]


def test_a_wrong_reveal_is_refused_and_may_be_repeated_in_time() -> None:
    case = Case()
    case.token(SALE, commit(2, 20, ceiling=20), commit(3, 30, ceiling=20))
    assert refusals(case.token(Reveal(2, 2, 19, NONCE), at=100)) == {2: Refusal.COMMITMENT}
    assert refusals(case.token(Reveal(2, 2, 20, NONCE[:15]), at=101)) == {2: Refusal.COMMITMENT}
    assert refusals(case.token(Reveal(3, 3, 30, NONCE), at=101)) == {3: Refusal.COMMITMENT}
    assert case.token(Reveal(2, 2, 20, NONCE), at=102) == []
    reports = case.token(at=150)
    assert trades(reports) == [(5, 1, 2, 1)]
    assert [one.money for one in reports if isinstance(one, Forfeited)] == [20], "as far as the deposit reaches"


def test_a_lot_is_taken_back_only_while_it_has_no_bids_and_its_seller_does_not_bid() -> None:
    case = Case()
    assert refusals(case.token(SALE, commit(2, 20, account=1))) == {2: Refusal.OWN}
    case.token(commit(3, 20))
    assert refusals(case.token(cancel(1))) == {1: Refusal.WRONG_PHASE}
    assert case.token(cancel(3)) == [Cancelled(3, 1)]
    assert case.token(cancel(1)) == [Cancelled(1, 1)]
    assert not case.floor.lots


def test_a_bid_cannot_be_withdrawn_after_the_close() -> None:
    case = Case()
    case.token(SALE, commit(3, 20))
    assert refusals(case.token(cancel(3), at=100)) == {3: Refusal.WRONG_PHASE}


def test_a_dutch_lot_ends_with_the_first_token_at_its_reserve() -> None:
    case = Case()
    assert trades(case.token(CLOCK, Bid(2, 2, 1, 1, 10))) == [(10, 1, 2, 1)]
    assert case.token() == []
    assert case.token(Bid(3, 3, 1, 1, 8))[-1] == Unsold(1, 8)
    assert refusals(case.token(Bid(4, 4, 1, 1, 8))) == {4: Refusal.UNKNOWN_ORDER}


def test_a_dutch_lot_whose_start_is_its_reserve_ends_with_the_token_after_its_opening() -> None:
    case = Case()
    assert case.token(CLOCK._replace(start=8)) == []
    assert case.token() == [Unsold(1, 10)]


def test_a_dutch_seller_may_take_back_what_is_left_and_may_not_bid() -> None:
    case = Case()
    case.token(CLOCK, Bid(2, 2, 1, 4, 10))
    assert refusals(case.token(Bid(3, 1, 1, 4, 10))) == {3: Refusal.OWN}
    assert case.token(cancel(1)) == [Cancelled(1, 6)]


def test_lots_trade_whatever_the_phase_and_wake_no_stops() -> None:
    case = Case(phase=Phase.PRE_OPEN, reference=9)
    case.token(order(5, BUY, 1, 20, trigger=10))
    case.token(CLOCK, Bid(2, 2, 1, 4, 10))
    assert (list(case.state.stops), case.state.reference) == ([5], 9)


# State --------------------------------------------------------------------------------------------------------------


def test_every_part_of_a_floor_changes_its_hash() -> None:
    case = Case(reference=100)
    seen = {state_hash(case.floor)}
    for events in (
        (order(1, BUY, 5, 90),),
        (order(2, BUY, 5, 120, trigger=110),),
        (order(3, SELL, 5, 100, is_offer=True),),
        (Lot(4, 4, SYMBOL, AuctionKind.DUTCH, 10, reserve=8, start=1000, step=1),),
        (Lot(5, 5, SYMBOL, AuctionKind.SECOND_PRICE, 1, reserve=5, closes_at=1000, window_ns=50),),
        (Commit(6, 6, 5, 10, bytes(32)),),
        (cancel(1, 2),),
        (order(7, SELL, 1, 90),),
        (Status(SYMBOL, Phase.HALTED),),
        (),
    ):
        case.token(*events)
        seen.add(state_hash(case.floor))
    assert len(seen) == 11


def test_the_state_is_lines_that_people_can_compare() -> None:
    case = Case(reference=100)
    case.token(order(1, BUY, 5, 90, is_day=True))
    assert "order ISO 1 1 0 BUY 90 D 5 0 2 1" in list(state_lines(case.floor))
