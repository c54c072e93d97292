"""Whether an exchange took the orders directed to it in the order of the sequence (§7.2).

For an order that is directed to one exchange the sequence is binding. The exchange publishes reports, each of which
names the place of its order in the sequence; an order counts as taken with the first report of it. The audit needs
nothing but the sequence: the orders directed to the exchange, and its reports in the order in which it published them.

Orders of one book must be taken in their order; books are independent of one another, since no order of one can be
hurt by another's. Departures:

    overtaken    an order was taken after a later one of its book
    skipped      an order was never taken, although a later one of its book was
    unknown      a report names a place at which no order was directed to this exchange
    foreseen     a report stands in the sequence before the order that it names

What follows the last order taken of a book waits, and is no departure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from isocast.terms.errors import LocalProtocolError

__all__ = ["Delivery", "Departure", "DepartureKind", "DirectedOrder", "ExchangeReport", "Place", "audit_delivery"]

_INDEX_BITS = 16
_SEQUENCE_DIGITS = 14


class Place(NamedTuple):
    """Where a message stands in the sequence: messages that share a packet share its sequence."""

    sequence: int
    index: int = 0  # type: ignore[assignment]  # hides tuple.index, which nobody calls

    def __str__(self) -> str:
        """Without the index of the first: 7, 7.1, 7.2.

        >>> str(Place(7)), str(Place(7, 2))
        ('7', '7.2')
        """
        return f"{self.sequence}.{self.index}" if self.index else str(self.sequence)

    @classmethod
    def parse(cls, text: str) -> Place | None:
        """What `str` made; None for anything else.

        >>> Place.parse("7.2"), Place.parse("7.0"), Place.parse("o-1")
        (Place(sequence=7, index=2), None, None)
        """
        sequence, dot, index = text.partition(".")
        parts = (sequence, index) if dot else (sequence,)
        if not all(part.isascii() and part.isdigit() and len(part) <= _SEQUENCE_DIGITS for part in parts):
            return None
        place = cls(*map(int, parts))
        return place if str(place) == text and place.index < 1 << _INDEX_BITS else None

    @property
    def number(self) -> int:
        """As one number, which ascends as places do."""
        return self.sequence << _INDEX_BITS | self.index

    @classmethod
    def of_number(cls, number: int) -> Place:
        """The place of `number`."""
        return cls(number >> _INDEX_BITS, number & (1 << _INDEX_BITS) - 1)


_BEFORE_ALL = Place(-1)


@dataclass(frozen=True, slots=True)
class DirectedOrder:
    """An order in the sequence that binds one exchange."""

    place: Place
    book: str
    """What it competes in: the symbol."""


@dataclass(frozen=True, slots=True)
class ExchangeReport:
    """What an exchange says of an order: accepted, refused, filled, cancelled."""

    place: Place
    """Of the report itself."""
    order: Place
    """Where its order is, as the exchange names it."""


class DepartureKind(StrEnum):
    """How an exchange departed from the sequence."""

    OVERTAKEN = "overtaken"
    SKIPPED = "skipped"
    UNKNOWN = "unknown"
    FORESEEN = "foreseen"


@dataclass(frozen=True, slots=True)
class Departure:
    """One place at which the order of the sequence was not kept."""

    kind: DepartureKind
    order: Place
    """That it concerns."""
    report: Place | None = None
    """The report that shows it; none of an order that was never taken."""
    before: Place | None = None
    """The later order that was taken first."""

    def __str__(self) -> str:
        """One line."""
        match self.kind:
            case DepartureKind.OVERTAKEN:
                return f"order {self.order} was taken at report {self.report}, after the later order {self.before}"
            case DepartureKind.SKIPPED:
                return f"order {self.order} was never taken, although the later order {self.before} was"
            case DepartureKind.UNKNOWN:
                return f"report {self.report} names {self.order}, and no order was directed to the exchange there"
            case DepartureKind.FORESEEN:
                return f"report {self.report} stands before the order {self.order} that it names"


@dataclass(frozen=True, slots=True)
class Delivery:
    """What an audit found."""

    orders: int
    taken: int
    """Orders with a report."""
    waiting: int
    """Orders behind the last one taken of their book."""
    departures: tuple[Departure, ...]
    """By the order that they concern."""

    @property
    def is_kept(self) -> bool:
        """Whether the exchange kept the order of the sequence."""
        return not self.departures


def audit_delivery(orders: Iterable[DirectedOrder], reports: Iterable[ExchangeReport]) -> Delivery:
    """Compare the order in which an exchange took its orders with that of the sequence.

    LocalProtocolError unless places of orders, and of reports, ascend.
    """
    books: dict[str, list[Place]] = {}
    book_of: dict[Place, str] = {}
    last = _BEFORE_ALL
    for order in orders:
        last = _ascending(order.place, last, "orders")
        books.setdefault(order.book, []).append(order.place)
        book_of[order.place] = order.book
    departures: list[Departure] = []
    taken: dict[str, dict[Place, Place]] = {book: {} for book in books}
    last = _BEFORE_ALL
    for report in reports:
        last = _ascending(report.place, last, "reports")
        book = book_of.get(report.order)
        if book is None:
            departures.append(Departure(DepartureKind.UNKNOWN, report.order, report.place))
        elif report.order not in taken[book]:
            taken[book][report.order] = report.place
            if report.place <= report.order:
                departures.append(Departure(DepartureKind.FORESEEN, report.order, report.place))
    waiting = 0
    for book, sequences in books.items():
        found, left = _departures(sequences, taken[book])
        departures += found
        waiting += left
    departures.sort(key=lambda departure: (departure.order, departure.report or _BEFORE_ALL))
    return Delivery(len(book_of), sum(map(len, taken.values())), waiting, tuple(departures))


def _ascending(place: Place, last: Place, what: str) -> Place:
    if place <= last:
        raise LocalProtocolError(f"the places of {what} ascend: {place} follows {last}")
    return place


def _departures(orders: Sequence[Place], taken: dict[Place, Place]) -> tuple[list[Departure], int]:
    """Of one book; `taken` has the first report of each order, in the order of reports. And how many orders wait.

    From the last order back: `earliest` is the order behind the current one that was taken soonest.
    """
    found: list[Departure] = []
    waiting, earliest = 0, None
    for order in reversed(orders):
        report = taken.get(order)
        if report is None and earliest is None:
            waiting += 1
        elif report is None:
            found.append(Departure(DepartureKind.SKIPPED, order, before=earliest))
        elif earliest is not None and taken[earliest] < report:
            found.append(Departure(DepartureKind.OVERTAKEN, order, report, earliest))
        else:
            earliest = order
    return found, waiting
