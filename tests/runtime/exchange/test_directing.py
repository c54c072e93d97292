"""Which events bind an exchange, and where it departed from their order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.exchange.halls import CODE, UNIT, flow, order

from isocast.floor.codec import encode_event, floor_topic
from isocast.floor.events import AuctionKind as Auction
from isocast.floor.events import Cancel, Directory, Event, Lot, Phase, Replace, Status
from isocast.orders.delivery import Delivery, DepartureKind, Place
from isocast.orders.desk import OrderStatus, ReportKind
from isocast.orders.exchange import ExchangeAnswer, answers_topic, encode_answer
from isocast.runtime.exchange.directing import Declined, Directed, Entered, ExchangeFollower, direct, replaced
from isocast.terms.market import Side

FIRST = order(1, Side.BUY, 100, 10)
WORKING = ExchangeAnswer(Place(1), ReportKind.WORKING, OrderStatus.WORKING)


def audit(*said: Event | ExchangeAnswer) -> tuple[Delivery, ExchangeFollower]:
    """A sequence of orders and reports, one in each place."""
    follower = ExchangeFollower(CODE)
    for number, one in enumerate(said, 1):
        if isinstance(one, ExchangeAnswer):
            follower.hear(Place(number), answers_topic(CODE), encode_answer(one))
        else:
            follower.hear(Place(number), floor_topic(CODE), encode_event(one))
    return follower.audit(), follower


def working(order: int) -> ExchangeAnswer:
    return WORKING._replace(order=Place(order))


def ended(order: int) -> ExchangeAnswer:
    return ExchangeAnswer(Place(order), ReportKind.CANCELLED, OrderStatus.CANCELLED)


def declined(order: int) -> ExchangeAnswer:
    return ExchangeAnswer(Place(order), ReportKind.CHANGE_REFUSED, OrderStatus.REFUSED, text="no", is_declined=True)


def test_what_is_directed_declined_and_nobodys() -> None:
    place, entered = Place(9), Entered(Place(3), FIRST, Place(5))
    assert direct(place, FIRST, None) == Directed(place, FIRST, Entered(place, FIRST, place))
    assert direct(place, FIRST._replace(is_offer=True), None) is None
    assert direct(place, Directory("ISO"), None) is None
    assert direct(place, Status("ISO", Phase.OPEN), None) is None
    for request in (Cancel(FIRST.id, 1), Replace(FIRST.id, 1, 50)):
        assert direct(place, request, entered) == Directed(place, request, entered)
        assert isinstance(direct(place, request, None), Declined)
        assert isinstance(direct(place, request._replace(account=2), entered), Declined), "another's order"
    assert isinstance(direct(place, Cancel(FIRST.id, 1, 5), entered), Declined)
    assert isinstance(direct(place, Lot(1, 1, "ISO", Auction.DUTCH, 1, 1), None), Declined)


def test_a_replace_changes_what_it_names() -> None:
    entered = Entered(Place(3), FIRST, Place(3))
    changed = replaced(entered, Place(9), Replace(FIRST.id, 1, 40, None))
    assert changed == Entered(Place(3), FIRST._replace(quantity=40), Place(9))
    assert replaced(changed, Place(10), Replace(FIRST.id, 1, None, 7)).order == FIRST._replace(quantity=40, price=7)


def test_an_exchange_that_keeps_the_order() -> None:
    found, follower = audit(FIRST, order(2, Side.BUY, 1, 10), Cancel(FIRST.id, 1), working(1), working(2), ended(3))
    assert found == Delivery(3, 3, 0, ())
    assert (follower.declined, follower.unreadable) == (0, 0)


def test_an_exchange_that_overtakes_skips_foresees_and_invents() -> None:
    found, _ = audit(
        FIRST,  # 1: overtaken
        order(2, Side.BUY, 1, 10),  # 2
        order(3, Side.BUY, 1, 10),  # 3: skipped
        order(4, Side.BUY, 1, 10),  # 4
        working(2),
        working(1),
        working(4),
        working(9),  # 8: foreseen
        order(5, Side.BUY, 1, 10),
        working(77),  # 10: invented
    )
    assert [(one.kind, str(one.order)) for one in found.departures] == [
        (DepartureKind.OVERTAKEN, "1"),
        (DepartureKind.SKIPPED, "3"),
        (DepartureKind.FORESEEN, "9"),
        (DepartureKind.UNKNOWN, "77"),
    ]
    assert not found.is_kept


def test_a_cancel_that_is_overtaken_counts_as_any_order() -> None:
    found, _ = audit(FIRST, Cancel(FIRST.id, 1), order(2, Side.SELL, 1, 10), working(1), working(3), ended(2))
    assert [(one.kind, str(one.order)) for one in found.departures] == [(DepartureKind.OVERTAKEN, "2")]


def test_a_decline_is_believed_where_the_sequence_shows_why() -> None:
    found, follower = audit(FIRST, Cancel(77, 1), declined(2), working(1), ended(1), Cancel(FIRST.id, 1), declined(6))
    assert found == Delivery(1, 1, 0, ())
    assert follower.declined == 2


@pytest.mark.parametrize("order_of_it", [1, 2])
def test_nobody_declines_what_the_exchange_could_have_taken(order_of_it: int) -> None:
    """An order, and a cancel of one that lives: who declines these passes others by."""
    found, follower = audit(FIRST, Cancel(FIRST.id, 1), order(2, Side.BUY, 1, 10), working(3), declined(order_of_it))
    assert follower.declined == 0
    assert not found.is_kept


def test_nobody_gets_hold_of_anothers_order_by_its_id() -> None:
    stolen = FIRST._replace(account=2)
    found, follower = audit(
        FIRST, stolen, Cancel(FIRST.id, 2), declined(3), working(1), working(2), Cancel(FIRST.id, 1)
    )
    assert (found.orders, found.waiting, follower.declined) == (3, 1, 1)


def test_nonsense_is_counted_and_other_topics_are_not() -> None:
    follower = ExchangeFollower(CODE)
    for topic in (floor_topic(CODE), answers_topic(CODE), floor_topic("XPAR"), "news"):
        follower.hear(Place(1), topic, b"\xff")
    assert follower.unreadable == 2


@given(st.data())
def test_any_order_of_first_reports_departs_exactly_where_it_differs(data: st.DataObject) -> None:
    """One book, and reports in any order: kept only if that is the order of the sequence."""
    count = data.draw(st.integers(1, 6))
    said = data.draw(st.permutations(range(1, count + 1)))
    orders = [order(number, Side.BUY, 1, 10) for number in range(1, count + 1)]
    found, _ = audit(*orders, *map(working, said))
    assert found.is_kept == (list(said) == sorted(said))


def test_the_flow_of_the_other_tests_is_what_it_says() -> None:
    found, follower = audit(*flow())
    assert (found.orders, found.waiting) == (12, 12)
    assert UNIT == 10_000
    assert follower.unreadable == 0
