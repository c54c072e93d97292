"""Which events of the sequence bind an exchange, in which order; and whether it kept that order.

Orders, cancels and replaces of the exchange's topic are delivered. What no exchange that speaks FIX could take is
*declined* by the delivery itself, which says so in the sequence: a cancel or a replace of an order that is not there or
has ended, a cancel of a part, lots and bids. What an operator says of a floor, and open offers, are nobody's orders.

The audit believes a refusal by the delivery only where the sequence itself shows the reason.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from isocast.floor.codec import decode_event, floor_topic
from isocast.floor.events import (
    Bid,
    Cancel,
    Commit,
    Directory,
    Event,
    Lot,
    Order,
    Replace,
    Reveal,
    Schedule,
    Status,
    Take,
    Wake,
)
from isocast.orders.delivery import Delivery, DirectedOrder, ExchangeReport, Place, audit_delivery
from isocast.orders.exchange import ExchangeAnswer, answers_topic, decode_answer
from isocast.terms.errors import RemoteProtocolError

__all__ = ["Declined", "Directed", "Entered", "ExchangeFollower", "Request", "direct", "replaced"]

Request: TypeAlias = Order | Cancel | Replace


class Entered(NamedTuple):
    """An order that an exchange has, or will have."""

    place: Place
    order: Order
    """With the total, price and trigger that were sent last."""
    latest: Place
    """Of the order, or of the replace that was sent last: what FIX calls the order by."""


class Directed(NamedTuple):
    """A request that an exchange has to take."""

    place: Place
    request: Request
    entered: Entered
    """The order that it is about, as it was before."""


class Declined(NamedTuple):
    """A request that no exchange is asked."""

    place: Place
    reason: str


def direct(place: Place, event: Event, known: Entered | None) -> Directed | Declined | None:
    """What an event of an exchange's topic is to it; `known` is the order of the event's id, if it lives there."""
    match event:
        case Order(is_offer=True) | Directory() | Status() | Schedule() | Wake():
            return None
        case Order():
            return Directed(place, event, Entered(place, event, place))
        case Cancel() | Replace():
            if known is None or known.order.account != event.account:
                return Declined(place, "unknown order")
            if isinstance(event, Cancel) and event.quantity:
                return Declined(place, "FIX 4.4 cancels orders whole: replace the order by a smaller total")
            return Directed(place, event, known)
        case Lot() | Commit() | Reveal() | Bid() | Take():
            return Declined(place, "lots, bids and takes are not for an exchange that is reached by FIX")


def replaced(entered: Entered, place: Place, change: Replace) -> Entered:
    """The order as a replace makes it."""
    order = entered.order
    changed = order._replace(
        quantity=order.quantity if change.quantity is None else change.quantity,
        price=order.price if change.price is None else change.price,
        trigger=order.trigger if change.trigger is None else change.trigger,
    )
    return entered._replace(order=changed, latest=place)


class ExchangeFollower:
    """The requests to an exchange and its reports, from the sequence."""

    def __init__(self, code: str) -> None:
        """Nothing was heard yet; the sequence comes from its beginning."""
        self.topics = floor_topic(code), answers_topic(code)
        self.unreadable = 0
        """Messages of either topic that are nothing of the kind: everybody drops the same."""
        self.declined = 0
        """Requests that the exchange was not asked, for a reason that the sequence shows."""
        self._entered: dict[int, Entered] = {}
        self._ended: set[Place] = set()
        """Orders of which the exchange has said that they have ended."""
        self._order_of: dict[Place, Place] = {}
        """The order that a request is about."""
        self._orders: dict[Place, DirectedOrder] = {}
        self._unanswerable: set[Place] = set()
        self._reports: list[ExchangeReport] = []

    def hear(self, place: Place, topic: str, payload: bytes) -> ExchangeAnswer | None:
        """The next message of the sequence, of whatever topic; the report, if it is one of the exchange's."""
        try:
            if topic == self.topics[0]:
                self._take(place, decode_event(payload))
            elif topic == self.topics[1]:
                answer = decode_answer(payload)
                self._hear(place, answer)
                return answer
        except RemoteProtocolError:
            self.unreadable += 1
        return None

    def _take(self, place: Place, event: Event) -> None:
        known = self._entered.get(getattr(event, "id", 0))
        match direct(place, event, known):
            case Directed(_, request, entered):
                self._entered.setdefault(request.id, entered)  # Nobody gets hold of another's order by its id.
                self._order_of[place] = entered.place
                self._orders[place] = DirectedOrder(place, entered.order.symbol)
            case Declined():
                self._unanswerable.add(place)
            case None:
                pass

    def _hear(self, place: Place, answer: ExchangeAnswer) -> None:
        order = answer.order
        if answer.is_declined:
            about = self._order_of.get(order)
            has_ended = about in self._ended and about != order
            if order in self._unanswerable or has_ended:
                self.declined += 1
                self._orders.pop(order, None)
                return
        self._reports.append(ExchangeReport(place, order))
        if answer.status.is_final and not answer.is_declined:
            self._ended.add(self._order_of.get(order, order))

    def audit(self) -> Delivery:
        """Where the exchange departed from the sequence, as far as it was heard."""
        return audit_delivery(self._orders.values(), self._reports)
