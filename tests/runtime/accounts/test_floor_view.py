"""The floor as a gateway sees it: who is a taker, which reports are believed, and a restart."""

from __future__ import annotations

import pytest
from tests.floor.keys import KEY
from tests.runtime.accounts.sequence import FLOOR, LISTED

from isocast.floor.codec import encode_event, floor_topic
from isocast.floor.events import Event, Order, Replace, Status, Trade
from isocast.floor.events import Phase as FloorPhase
from isocast.floor.following import FloorMessage
from isocast.floor.reporting import FloorReport, encode_report, report_topic
from isocast.floor.state import state_hash
from isocast.orders.accounts import UNITS
from isocast.runtime.accounts.floor_view import FloorView, TokenOutcome, tick_topic
from isocast.terms.errors import LocalProtocolError, RemoteProtocolError
from isocast.terms.market import Side

BUY, SELL = Side.BUY, Side.SELL


def apply(view: FloorView, token: int, *events: Event) -> TokenOutcome:
    for event in events:
        view.hear(token, token, FloorMessage(token, floor_topic(FLOOR), encode_event(event), KEY))
    outcome = view.finish()
    assert outcome is not None
    return outcome


def order(number: int, side: Side, quantity: int, price: int, trigger: int | None = None) -> Order:
    return Order(
        number, number, "IBM", side, quantity, price * UNITS, trigger=None if trigger is None else trigger * UNITS
    )


@pytest.fixture
def view() -> FloorView:
    made = FloorView(FLOOR)
    apply(made, 1, LISTED)
    return made


def takers(outcome: TokenOutcome) -> list[tuple[int, int, int]]:
    """Buyer, seller and taker of each trade."""
    return [
        (trade.buy, trade.sell, step.takers.get(trade.number, 0))
        for step in outcome.steps
        for trade in step.reports
        if isinstance(trade, Trade)
    ]


def test_who_comes_to_a_resting_order_is_the_taker(view: FloorView) -> None:
    assert takers(apply(view, 2, order(1, BUY, 10, 10), order(2, SELL, 4, 10))) == [(1, 2, 2)]
    assert takers(apply(view, 3, order(3, SELL, 6, 9))) == [(1, 3, 3)]


def test_a_stop_that_a_trade_wakes_is_the_taker_of_its_own_trades(view: FloorView) -> None:
    apply(view, 2, order(1, SELL, 5, 9, trigger=9), order(2, BUY, 10, 9))
    # 3 trades with 2 at 9, and wakes 1, which trades with what is left of 2.
    assert takers(apply(view, 3, order(3, SELL, 5, 9))) == [(2, 3, 3), (2, 1, 1)]


def test_a_stop_that_meets_the_order_that_woke_it_is_the_taker(view: FloorView) -> None:
    apply(view, 2, order(1, SELL, 5, 9, trigger=9), order(2, SELL, 5, 9))
    # 4 buys from 2 and rests with what is left; 1 wakes and comes to it.
    assert takers(apply(view, 3, order(4, BUY, 10, 9))) == [(4, 2, 4), (4, 1, 1)]


def one_by_one(view: FloorView, *events: Event) -> None:
    """Each in a token of its own: they enter in this order."""
    for event in events:
        apply(view, view.newest + 1, event)


def test_of_two_stops_that_an_event_wakes_the_one_that_enters_later_is_the_taker(view: FloorView) -> None:
    one_by_one(view, order(1, BUY, 1, 12), order(2, BUY, 1, 8))
    one_by_one(view, order(3, BUY, 5, 13, trigger=12), order(4, SELL, 6, 7, trigger=8), Replace(3, 3, 6))
    # 3 became larger, and is behind 4 from then on.
    body, state = view.snapshot()
    again = FloorView(FLOOR)
    again.restore(body, view.newest, state)
    for each in (view, again):
        assert takers(apply(each, 9, order(5, SELL, 2, 8))) == [(1, 5, 5), (2, 5, 5), (3, 4, 3)]


def test_of_a_stop_and_one_that_its_trade_wakes_the_second_is_the_taker(view: FloorView) -> None:
    one_by_one(view, order(1, SELL, 5, 7, trigger=8), order(2, BUY, 10, 13, trigger=12), order(3, BUY, 1, 12))
    # 4 trades with 3 at 12, which wakes 2; that buys what is left of 4 at 8, which wakes 1.
    assert takers(apply(view, 9, order(4, SELL, 5, 8))) == [(3, 4, 4), (2, 4, 2), (2, 1, 1)]


def test_a_stop_that_an_auction_woke_rests_like_any_other_order(view: FloorView) -> None:
    one_by_one(view, order(1, SELL, 5, 11, trigger=9), Status("IBM", FloorPhase.PRE_OPEN))
    one_by_one(view, order(2, BUY, 5, 9), order(3, SELL, 5, 9))
    assert takers(apply(view, 8, Status("IBM", FloorPhase.OPEN))) == [(2, 3, 0)]
    assert takers(apply(view, 9, order(4, BUY, 5, 11))) == [(4, 1, 4)]


def test_an_auction_has_no_taker(view: FloorView) -> None:
    apply(view, 2, Status("IBM", FloorPhase.PRE_OPEN), order(1, BUY, 5, 10), order(2, SELL, 5, 10))
    assert takers(apply(view, 3, Status("IBM", FloorPhase.OPEN))) == [(1, 2, 0)]


def test_a_report_is_believed_that_names_the_same_state_and_trades(view: FloorView) -> None:
    outcome = apply(view, 2, order(1, BUY, 5, 10), order(2, SELL, 5, 10))
    [trade] = [report for step in outcome.steps for report in step.reports if isinstance(report, Trade)]
    right = FloorReport(2, state_hash(view.floor), 1, (trade,))

    def heard(token: int, report: FloorReport) -> tuple[FloorReport, ...]:
        view.hear(token, token, FloorMessage(token, report_topic(FLOOR), encode_report(report), KEY))
        found = view.finish()
        assert found is not None
        return found.believed

    assert heard(3, right) == (right,)
    assert heard(4, right._replace(trades=())) == (right._replace(trades=()),)
    assert heard(5, right._replace(state=bytes(32))) == ()
    assert heard(6, right._replace(trades=(trade._replace(price=1),))) == ()
    assert heard(7, right._replace(token=4)) == ()
    assert view.differing == 3
    view.hear(8, 8, FloorMessage(8, report_topic(FLOOR), b"nonsense", KEY))
    view.hear(8, 8, FloorMessage(8, floor_topic(FLOOR), b"nonsense", KEY))
    found = view.finish()
    assert found is not None
    assert (found.believed, view.unreadable) == ((), 1)


def test_a_later_message_of_any_topic_says_that_a_token_is_over(view: FloorView) -> None:
    view.hear(2, 2, FloorMessage(5, floor_topic(FLOOR), encode_event(order(1, BUY, 5, 10)), KEY))
    assert view.open_token == 2
    outcome = view.hear(4, 4, FloorMessage(6, "something/else", b"", KEY))
    assert outcome is not None
    assert (outcome.token, outcome.sequence) == (2, 5)
    assert view.open_token is None
    assert view.hear(5, 5, FloorMessage(7, tick_topic(FLOOR), b"", KEY)) is None
    with pytest.raises(LocalProtocolError):
        view.hear(2, 2, FloorMessage(8, floor_topic(FLOOR), b"", KEY))


def test_a_restart_goes_on_from_a_snapshot_and_notices_one_that_was_changed(view: FloorView) -> None:
    apply(view, 2, order(1, SELL, 5, 9, trigger=9), order(2, BUY, 10, 9))
    body, state = view.snapshot()
    other = FloorView(FLOOR)
    other.restore(body, 2, state)
    assert takers(apply(other, 3, order(3, SELL, 5, 9))) == takers(apply(view, 3, order(3, SELL, 5, 9)))
    assert state_hash(other.floor) == state_hash(view.floor)
    for wrong in (body[:-3], b"", body.replace(b"IBM", b"IBN")):
        with pytest.raises(RemoteProtocolError):
            FloorView(FLOOR).restore(wrong, 2, state)
    with pytest.raises(RemoteProtocolError, match="another state"):
        FloorView(FLOOR).restore(body, 2, bytes(32))


def test_a_token_of_two_keys_is_an_alarm_and_heard_again(view: FloorView) -> None:
    """Two lines, one of which lies: the desk hears the sequence again (`doubts`)."""
    sell, buy = (encode_event(order(number, side, 5, 10)) for number, side in ((1, SELL), (2, BUY)))
    view.hear(2, 2, FloorMessage(5, floor_topic(FLOOR), sell, KEY))
    assert view.differing == 0
    view.hear(2, 2, FloorMessage(6, floor_topic(FLOOR), buy, KEY[::-1]))
    assert view.differing == 1
    with pytest.raises(LocalProtocolError, match="token 3 has no shuffle key"):
        view.hear(3, 3, FloorMessage(7, floor_topic(FLOOR), sell, bytes(16)))
