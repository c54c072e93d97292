"""An exchange's reports against the sequence: where it departed from the order of its orders."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.orders.delivery import (
    Delivery,
    Departure,
    DepartureKind,
    DirectedOrder,
    ExchangeReport,
    Place,
    audit_delivery,
)
from isocast.terms.errors import LocalProtocolError


def directed(*sequences: int, book: str = "ISO") -> list[DirectedOrder]:
    return [DirectedOrder(Place(sequence), book) for sequence in sequences]


def reports(*orders: int, first: int = 100) -> list[ExchangeReport]:
    """One after the other, of these orders."""
    return [ExchangeReport(Place(first + place), Place(order)) for place, order in enumerate(orders)]


def test_an_exchange_that_keeps_the_order_departs_nowhere() -> None:
    """Part fills are reports too: only the first of an order takes it."""
    found = audit_delivery(directed(1, 5, 9), reports(1, 1, 5, 1, 9, 5))
    assert found == Delivery(3, 3, 0, ())
    assert found.is_kept


def test_what_follows_the_last_order_taken_waits() -> None:
    assert audit_delivery(directed(1, 5, 9, 12), reports(1, 5)) == Delivery(4, 2, 2, ())
    assert audit_delivery(directed(1, 5), []) == Delivery(2, 0, 2, ())


def test_an_order_that_was_overtaken_is_named_with_who_was_first() -> None:
    found = audit_delivery(directed(1, 5, 9), reports(5, 9, 1))
    assert found.departures == (Departure(DepartureKind.OVERTAKEN, Place(1), Place(102), Place(5)),)
    assert str(found.departures[0]) == "order 1 was taken at report 102, after the later order 5"
    assert not found.is_kept


def test_an_order_that_was_skipped_is_named() -> None:
    found = audit_delivery(directed(1, 5, 9, 12), reports(1, 9))
    assert found == Delivery(4, 2, 1, (Departure(DepartureKind.SKIPPED, Place(5), None, Place(9)),))
    assert str(found.departures[0]) == "order 5 was never taken, although the later order 9 was"


def test_books_are_independent() -> None:
    orders = sorted([*directed(1, 5), *directed(2, 6, book="OIL")], key=lambda order: order.place)
    assert audit_delivery(orders, reports(2, 6, 1, 5)).is_kept
    assert [one.order for one in audit_delivery(orders, reports(6, 1, 2, 5)).departures] == [Place(2)]


def test_a_report_of_no_order_is_named() -> None:
    found = audit_delivery(directed(1), reports(1, 7))
    assert found.departures == (Departure(DepartureKind.UNKNOWN, Place(7), Place(101)),)
    assert "no order was directed" in str(found.departures[0])


def test_nobody_reports_an_order_before_it_is_there() -> None:
    found = audit_delivery(directed(50), [ExchangeReport(Place(40), Place(50))])
    assert found.departures == (Departure(DepartureKind.FORESEEN, Place(50), Place(40)),)
    assert "stands before the order 50" in str(found.departures[0])


def test_messages_that_share_a_packet_have_an_order_too() -> None:
    orders = [DirectedOrder(Place(7, index), "ISO") for index in range(3)]
    said = [ExchangeReport(Place(9, place), Place(7, index)) for place, index in enumerate((0, 2, 1))]
    found = audit_delivery(orders, said)
    assert [str(one) for one in found.departures] == ["order 7.1 was taken at report 9.2, after the later order 7.2"]


@pytest.mark.parametrize(
    "text", ["", "7.0", "07", "7.", ".7", "7.1.1", "-7", "+7", "7 ", "\u0661", "o-1", "9" * 15, "7.65536"]
)
def test_a_place_has_one_spelling(text: str) -> None:
    assert Place.parse(text) is None


@given(st.integers(0, 1 << 46), st.integers(0, 65_535))
def test_a_place_is_read_as_it_was_written(sequence: int, index: int) -> None:
    place = Place(sequence, index)
    assert Place.parse(str(place)) == Place.of_number(place.number) == place


@pytest.mark.parametrize("sequences", [(5, 1), (5, 5)])
def test_sequences_ascend(sequences: tuple[int, int]) -> None:
    with pytest.raises(LocalProtocolError, match="orders ascend"):
        audit_delivery(directed(*sequences), [])
    with pytest.raises(LocalProtocolError, match="reports ascend"):
        audit_delivery(directed(1), [ExchangeReport(Place(sequence), Place(1)) for sequence in sequences])


@given(st.permutations(range(1, 8)), st.integers(0, 7))
def test_the_overtaken_are_those_that_a_later_order_was_before(order: list[int], count: int) -> None:
    """Against the definition, pair by pair."""
    said = order[:count]
    found = audit_delivery(directed(*range(1, 8)), reports(*said))
    at = {sequence: place for place, sequence in enumerate(said)}
    overtaken = {one for one, two in combinations(range(1, 8), 2) if one in at and two in at and at[two] < at[one]}
    skipped = {one for one, two in combinations(range(1, 8), 2) if one not in at and two in at}
    assert {one.order.sequence for one in found.departures if one.kind is DepartureKind.OVERTAKEN} == overtaken
    assert {one.order.sequence for one in found.departures if one.kind is DepartureKind.SKIPPED} == skipped
    assert found.waiting == 7 - len(said) - len(skipped)
    for departure in found.departures:
        later = [two for two in range(departure.order.sequence + 1, 8) if two in at]
        assert departure.before == Place(min(later, key=at.__getitem__)), "who was taken first of those behind"
