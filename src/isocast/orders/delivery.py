"""Whether an exchange took the orders directed to it in the order of the sequence (§7.2).

For an order that is directed to one exchange the sequence is binding. The exchange publishes reports, each of which
names the sequence of its order; an order counts as taken with the first report of it. The audit needs nothing but the
sequence: the orders directed to the exchange, and its reports in the order in which it published them.

Orders of one book must be taken in their order; books are independent of one another, since no order of one can be
hurt by another's. Departures:

    overtaken    an order was taken after a later one of its book
    skipped      an order was never taken, although a later one of its book was
    unknown      a report names a sequence at which no order was directed to this exchange
    foreseen     a report stands in the sequence before the order that it names

What follows the last order taken of a book waits, and is no departure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from isocast.terms.errors import LocalProtocolError

__all__ = ["Delivery", "Departure", "DepartureKind", "DirectedOrder", "ExchangeReport", "audit_delivery"]


@dataclass(frozen=True, slots=True)
class DirectedOrder:
    """An order in the sequence that binds one exchange."""

    sequence: int
    book: str
    """What it competes in: the symbol."""


@dataclass(frozen=True, slots=True)
class ExchangeReport:
    """What an exchange says of an order: accepted, refused, filled, cancelled."""

    sequence: int
    """Of the report itself."""
    order: int
    """The sequence of its order, as the exchange names it."""


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
    order: int
    """The sequence of the order that it concerns."""
    report: int | None = None
    """The report that shows it; none of an order that was never taken."""
    before: int | None = None
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

    LocalProtocolError unless sequences of orders, and of reports, ascend.
    """
    books: dict[str, list[int]] = {}
    book_of: dict[int, str] = {}
    last = -1
    for order in orders:
        last = _ascending(order.sequence, last, "orders")
        books.setdefault(order.book, []).append(order.sequence)
        book_of[order.sequence] = order.book
    departures: list[Departure] = []
    taken: dict[str, dict[int, int]] = {book: {} for book in books}
    last = -1
    for report in reports:
        last = _ascending(report.sequence, last, "reports")
        book = book_of.get(report.order)
        if book is None:
            departures.append(Departure(DepartureKind.UNKNOWN, report.order, report.sequence))
        elif report.order not in taken[book]:
            taken[book][report.order] = report.sequence
            if report.sequence <= report.order:
                departures.append(Departure(DepartureKind.FORESEEN, report.order, report.sequence))
    waiting = 0
    for book, sequences in books.items():
        found, left = _departures(sequences, taken[book])
        departures += found
        waiting += left
    departures.sort(key=lambda departure: (departure.order, departure.report or 0))
    return Delivery(len(book_of), sum(map(len, taken.values())), waiting, tuple(departures))


def _ascending(sequence: int, last: int, what: str) -> int:
    if sequence <= last:
        raise LocalProtocolError(f"the sequences of {what} ascend: {sequence} follows {last}")
    return sequence


def _departures(orders: Sequence[int], taken: dict[int, int]) -> tuple[list[Departure], int]:
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
