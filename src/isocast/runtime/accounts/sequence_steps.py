"""What the sequence says of a gateway's orders, step by step; and the money that moves once it cannot be taken back.

Entries, refusals, fills, cancels, expiries, replaces, lots that end, forfeits: each changes an order, tells its trader,
and leaves what is to be posted as *due*. What is due is posted when it is stable (settlement 14).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from isocast.floor.corrections import Correction
from isocast.floor.events import (
    Bid,
    Cancel,
    Cancelled,
    Commit,
    Event,
    Expired,
    Forfeited,
    Lot,
    Order,
    Refused,
    Replace,
    Replaced,
    Report,
    Reveal,
    Take,
    Trade,
    Unsold,
)
from isocast.orders.accounts import gateway_of, shares
from isocast.orders.desk import OrderKind, OrderStatus, Reason, ReportKind, TradeReport
from isocast.orders.json_forms import price_text
from isocast.orders.ledger import (
    Fill,
    forfeit_gained,
    forfeit_paid,
    free,
    reversal,
    settle_buy,
    settle_corrected,
    settle_sell,
    settled_fill,
)
from isocast.orders.life import Change, ChangeKind
from isocast.orders.needs import Side, corrected_fee, fee
from isocast.runtime.accounts.entering import EnteringEvent, is_sent
from isocast.runtime.accounts.floor_view import EventOutcome, TokenOutcome
from isocast.runtime.accounts.order_store import Due, OpenOrder, Work, holder_of
from isocast.runtime.accounts.requests import REASONS
from isocast.terms.errors import LocalProtocolError

__all__ = ["SequenceSteps"]

_ENTERING: Final = (Order, Take, Lot, Commit, Bid)
_CHANGING: Final = (Cancel, Replace, Reveal)


class SequenceSteps:
    """One gateway's orders, as one floor decides them."""

    def __init__(self, gateway: int, floor: str, stable_tokens: int, unknown: Callable[[Work, int], None]) -> None:
        """`stable_tokens`: a token so much later says that one is stable; 0: only arbiters' reports do.

        `unknown` is told of an order of this gateway that is none of its open ones.
        """
        self.foreign = 0
        """Events about this gateway's accounts that it has not sent, and steps that contradict its books: an alarm."""
        self._gateway = gateway
        self._floor = floor
        self._stable_tokens = stable_tokens
        self._unknown = unknown

    def apply(self, work: Work, outcome: TokenOutcome, highest: int) -> None:
        """One token; `highest` is the floor's last trade after it."""
        for correction in outcome.corrections:
            self._corrected(work, outcome.token, correction)
        for step in outcome.steps:
            self._step(work, outcome, step)
        if self._stable_tokens:
            stable = max(work.position.stable_token, outcome.token - self._stable_tokens)
            work.position = work.position._replace(stable_token=stable)
        for report in outcome.believed:
            position = work.position
            work.position = position._replace(confirmed=max(position.confirmed, min(report.confirmed, highest)))
            if not self._stable_tokens:
                stable = max(position.stable_token, min(report.token, outcome.token))
                work.position = work.position._replace(stable_token=stable)

    def _own(self, work: Work, order: int) -> OpenOrder | None:
        """An order of this gateway that is open."""
        return work.order(order) if gateway_of(order >> 32) == self._gateway else None

    def _step(self, work: Work, outcome: TokenOutcome, step: EventOutcome) -> None:
        """One event; what contradicts the books is counted: somebody has sent in this gateway's name.

        What is bound for such an order stays bound.
        """
        place = _Place(outcome.token, outcome.instant, step.sequence)
        try:
            if isinstance(step.event, _ENTERING):
                self._entered(work, place, step.event, step.reports)
        except LocalProtocolError:
            self.foreign += 1
        change = self._change_of(work, step.event)
        for report in step.reports:
            try:
                self._hear(work, place, report, change, step.takers)
            except LocalProtocolError:
                self.foreign += 1
        try:
            if isinstance(step.event, Reveal) and change is not None and not step.reports:
                self._revealed(work, place, *change)
            elif step.event is None:
                self._lots_ended(work, place, step.reports)
        except LocalProtocolError:
            self.foreign += 1

    def _hear(
        self,
        work: Work,
        place: _Place,
        report: Report,
        change: tuple[OpenOrder, Change] | None,
        takers: Mapping[int, int],
    ) -> None:
        match report:
            case Trade():
                for number in (report.buy, report.sell):
                    self._traded(work, place, report, number, is_taker=takers.get(report.number) == number)
            case Cancelled(number, quantity):
                self._cancelled(work, place, number, quantity, change)
            case Expired(number) | Unsold(number):
                if (order := self._own(work, number)) is not None:
                    self._expired(work, place, order, "the lot is not sold" if isinstance(report, Unsold) else "")
            case Replaced():
                self._replaced(work, place, change)
            case Refused():
                if change is not None:
                    self._change_refused(work, place, change, REASONS[report.reason])
            case _:
                pass

    def _expired(self, work: Work, place: _Place, order: OpenOrder, text: str) -> None:
        order.add_due(place.token, order.life.expire())
        work.tell(self._report(place, order, ReportKind.EXPIRED)._replace(text=text))

    # Lots -------------------------------------------------------------------------------------------------------

    def _revealed(self, work: Work, place: _Place, order: OpenOrder, change: Change) -> None:
        order.life.end_change(change, is_taken=True)
        work.answer(order.life.account, change.client_id)
        report = self._report(place, order, ReportKind.REVEALED)
        work.tell(report._replace(client_id=change.client_id, original_id=order.life.client_id))

    def _sealed_bids(self, work: Work, lot: int, account: int | None = None) -> list[OpenOrder]:
        """Bids of this gateway's accounts, or of one, that the floor has for a lot."""
        found = [
            one.life.id
            for one in work.live_orders(account)
            if one.target == lot and one.life.kind is OrderKind.SEALED_BID and one.life.status is OrderStatus.WORKING
        ]
        return [order for number in found if (order := work.order(number)) is not None]

    def _lots_ended(self, work: Work, place: _Place, reports: Sequence[Report]) -> None:
        """Sealed lots that a token decided: forfeits of those who did not reveal, and what losers get back."""
        lot = 0
        ended: dict[int, str] = {}
        for report in reports:
            if isinstance(report, Trade) and not report.is_auction:
                lot = report.sell
                ended[lot] = f"the lot is sold at {price_text(report.price)}"
            elif isinstance(report, Unsold):
                lot = report.id
                ended[lot] = "the lot is not sold"
            elif isinstance(report, Forfeited):
                self._forfeited(work, place, report, lot)
        for number, text in ended.items():
            for bid in self._sealed_bids(work, number):
                self._expired(work, place, bid, text)

    def _forfeited(self, work: Work, place: _Place, report: Forfeited, lot: int) -> None:
        """A deposit's part goes to the seller, each at his own gateway."""
        money = report.money
        if (bid := self._own(work, report.id)) is not None:
            bound = bid.life.expire()
            if money:
                bid.add_forfeit(place.token, money, money, report.id)
            bid.add_due(place.token, bound - money)
            text = f"not revealed: {price_text(money)} goes to the seller"
            work.tell(self._report(place, bid, ReportKind.EXPIRED)._replace(text=text))
        if money and (seller := self._own(work, lot)) is not None:
            seller.add_forfeit(place.token, 0, -money, report.id)

    def _entered(self, work: Work, place: _Place, event: EnteringEvent, reports: Iterable[Report]) -> None:
        """The floor has an order: it works, or is refused."""
        order = self._own(work, event.id)
        if order is None or order.life.status is not OrderStatus.PENDING:
            if gateway_of(event.account) == self._gateway and order is None:
                self.foreign += 1
                self._unknown(work, event.id)
            return  # A duplicate of one that stands in the sequence changes nothing (settlement 21).
        life = order.life
        if not is_sent(order, event):
            raise LocalProtocolError(f"order {event.id} is not what this gateway has sent")
        refused = next((report for report in reports if isinstance(report, Refused)), None)
        if refused is None:
            earlier = self._sealed_bids(work, event.lot, event.account) if isinstance(event, Commit) else ()
            life.work()
            self._tell(work, place, order, ReportKind.WORKING)
            for bid in earlier:  # A second bid of an account takes the place of its first (settlement 60).
                bid.add_due(place.token, bid.life.cancel(bid.life.left))
                text = "a later bid takes its place"
                work.tell(self._report(place, bid, ReportKind.CANCELLED)._replace(text=text))
        else:
            order.add_due(place.token, life.refuse())
            self._tell(work, place, order, ReportKind.REFUSED, reason=REASONS[refused.reason])

    def _change_of(self, work: Work, event: Event | None) -> tuple[OpenOrder, Change] | None:
        """The change that an event is, among those that its order has under way, oldest first."""
        if not isinstance(event, _CHANGING) or (order := self._own(work, event.id)) is None:
            return None
        for change in order.life.changes:
            if isinstance(event, Cancel):
                is_same = change.kind is ChangeKind.CANCEL and (change.quantity or 0) == event.quantity
            elif isinstance(event, Reveal):
                is_same = change.kind is ChangeKind.REVEAL and change.price == event.price
            else:
                given = change.quantity, change.bound_price, change.trigger
                is_same = change.kind is ChangeKind.REPLACE and given == event[2:]
            if is_same:
                return order, change
        return None

    def _traded(self, work: Work, place: _Place, trade: Trade, number: int, *, is_taker: bool) -> None:
        order = self._own(work, number)
        if order is None:
            return
        life, quantity = order.life, trade.quantity
        bound = life.trade(quantity, trade.price)
        cost = fee(quantity * trade.price, order.taker_bp if is_taker else order.maker_bp)
        spent = bound if life.side is Side.BUY else quantity
        order.add_due(place.token, spent, trade=trade.number, quantity=quantity, price=trade.price, fee=cost)
        order.add_due(place.token, bound - spent)
        last, number = (trade.number, quantity, trade.price), work.next_report(life.account)
        work.tell(life.report(ReportKind.TRADED, place.instant, number, place.sequence, last))

    def _cancelled(
        self, work: Work, place: _Place, number: int, quantity: int, asked: tuple[OpenOrder, Change] | None
    ) -> None:
        order = self._own(work, number)
        if order is None:
            return
        client_id = original = ""
        if asked is not None and asked[0] is order and asked[1].kind is ChangeKind.CANCEL:
            client_id, original = asked[1].client_id, order.life.client_id
            order.life.end_change(asked[1], is_taken=True)
            work.answer(order.life.account, client_id)
        order.add_due(place.token, order.life.cancel(quantity))
        # What is left of an order that only shrank goes on: that is a replace to its trader.
        kind = ReportKind.REPLACED if order.life.is_live else ReportKind.CANCELLED
        report = self._report(place, order, kind)
        work.tell(report._replace(client_id=client_id or report.client_id, original_id=original))

    def _replaced(self, work: Work, place: _Place, asked: tuple[OpenOrder, Change] | None) -> None:
        if asked is None:
            return
        order, change = asked
        original = order.life.client_id
        order.add_due(place.token, order.life.end_change(change, is_taken=True))
        work.answer(order.life.account, change.client_id)
        work.tell(self._report(place, order, ReportKind.REPLACED)._replace(original_id=original))

    def _change_refused(self, work: Work, place: _Place, asked: tuple[OpenOrder, Change], reason: Reason) -> None:
        order, change = asked
        order.add_due(place.token, order.life.end_change(change, is_taken=False))
        work.answer(order.life.account, change.client_id)
        report = self._report(place, order, ReportKind.CHANGE_REFUSED)
        work.tell(report._replace(client_id=change.client_id, original_id=order.life.client_id, reason=reason))

    def _report(self, place: _Place, order: OpenOrder, kind: ReportKind) -> TradeReport:
        return order.life.report(kind, place.instant, sequence=place.sequence)

    def _tell(
        self, work: Work, place: _Place, order: OpenOrder, kind: ReportKind, reason: Reason | None = None
    ) -> None:
        number = work.next_report(order.life.account)
        report = order.life.report(kind, place.instant, number, place.sequence)
        work.tell(report if reason is None else report._replace(reason=reason))

    def _corrected(self, work: Work, token: int, correction: Correction) -> None:
        """Two operators correct a trade: at the gateway of each side, once the token is stable."""
        trade, right = correction.trade, correction.corrected
        for number in [one for one in (trade.buy, trade.sell) if gateway_of(one >> 32) == self._gateway]:
            order = self._own(work, number) or work.closed_order(number)
            if order is None:
                self.foreign += 1
                continue
            order.add_correction(token, trade.number, correction.version, right.quantity, right.price)

    # Settlement -------------------------------------------------------------------------------------------------

    def settle(self, work: Work, instant: int) -> None:
        """Post what is stable: trades that are confirmed, and what is no longer needed."""
        for order in work.with_stable_dues():
            confirmed, stable_token = work.position.confirmed, work.position.stable_token
            stable = [due for due in order.dues if due.is_stable(confirmed, stable_token)]
            order.dues = tuple([due for due in order.dues if due not in stable])
            for due in stable:
                if due.version:
                    self._correct(work, order, due, instant)
                    continue
                if due.amount or due.trade or due.forfeit:
                    self._post(work, order, due)
                if due.trade:
                    # A trade that is confirmed cannot be lost, and nothing before it.
                    if due.token > work.position.stable_token:
                        work.position = work.position._replace(stable_token=due.token)
                    last, number = (due.trade, due.quantity, due.price), work.next_report(order.life.account)
                    work.tell(order.life.report(ReportKind.CONFIRMED, instant, number, trade=last))

    def _correct(self, work: Work, order: OpenOrder, due: Due, instant: int) -> None:
        """Reverse what was settled, and settle the trade as it is now; nothing where that is not this order's trade."""
        life, stock = order.life, shares(order.life.symbol)
        before = f"{self._floor}/{due.trade}{f'v{due.version - 1}' if due.version > 1 else ''}/{life.side}"
        key = f"{self._floor}/{due.trade}v{due.version}/{life.side}"
        legs = work.legs_of(before)
        quantity, value, paid = settled_fill(legs, order.currency, stock)
        if not quantity or due.quantity > quantity or life.account not in [leg.account for leg in legs]:
            self.foreign += 1
            return
        text = f"trade {due.trade} is void"
        if due.quantity:
            text = f"trade {due.trade} is {due.quantity:,} at {price_text(due.price)}"
        work.post(reversal(f"{key}-reversed", legs, f"{text}, by two operators"))
        if due.quantity:
            right = due.quantity * due.price
            cost = corrected_fee(paid, value, (order.maker_bp, order.taker_bp), right)
            fill = Fill(due.quantity, due.price, cost)
            work.post(settle_corrected(key, life.side, life.account, order.currency, stock, fill, text))
        report = life.report(ReportKind.CORRECTED, instant)
        told = report._replace(trade=due.trade, last_quantity=due.quantity, last_price=due.price)
        work.tell(told._replace(text=f"{text}, by two operators"))

    def _post(self, work: Work, order: OpenOrder, due: Due) -> None:
        life = order.life
        holder, stock = holder_of(life.id), shares(life.symbol)
        fill = Fill(due.quantity, due.price, due.fee)
        key = f"{self._floor}/{due.trade}/{life.side}"
        if due.forfeit > 0:
            key = f"{self._floor}/forfeit/{due.bid}/paid"
            work.post(forfeit_paid(key, holder, life.account, order.currency, due.forfeit))
        elif due.forfeit:
            key = f"{self._floor}/forfeit/{due.bid}/gained"
            work.post(forfeit_gained(key, life.account, order.currency, -due.forfeit))
        elif not due.trade:
            key = f"free/{life.id}/{due.token}/{due.place}"
            work.post(free(key, holder, life.account, order.asset, due.amount))
        elif life.side is Side.BUY:
            work.post(settle_buy(key, holder, life.account, order.currency, stock, fill, due.amount))
        else:
            work.post(settle_sell(key, holder, life.account, order.currency, stock, fill))


class _Place(NamedTuple):
    token: int
    instant: int
    sequence: int
