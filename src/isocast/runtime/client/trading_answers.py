"""What a trading service answers, as values for programs: reports of orders, offers, lots, balances and symbols."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from isocast.orders.desk import OrderStatus
from isocast.orders.json_forms import read_until, report_of
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.market import from_ticks

__all__ = [
    "Balance",
    "OpenLot",
    "OpenOffer",
    "OrderReport",
    "ReadingAnswer",
    "TradedSymbol",
    "read_lot",
    "read_offer",
    "read_report",
    "whole_number",
]


@dataclass(frozen=True, slots=True)
class OrderReport:
    """One step of an order's life, as the gateway tells it; also an order as it is at this moment."""

    number: int
    """From 1, without gaps, for each account; 0: an answer that is not told again."""
    kind: str
    """accepted, working, refused, traded, confirmed, busted, restored, cancelled, replaced, revealed, expired, status
    and others."""
    status: str
    """pending, working, part filled, filled, cancelled, expired or refused."""
    client_id: str
    """Of the request that is answered; of the order where nobody asked."""
    original_id: str
    """Of a cancel or a replace: the order that it meant."""
    order: int
    """The order's id in the sequence; 0 for one that never got there."""
    symbol: str
    """What is bought or sold."""
    side: str
    """buy or sell."""
    order_kind: str
    """limit, market, stop, stop-limit, offer, take, lot, sealed bid or bid."""
    lifetime: str
    """day, gtc, gtd, ioc, fok, open or close."""
    quantity: int
    """Of the whole order."""
    filled: int
    """How much of it has traded."""
    filled_value: Decimal
    """The sum of price times quantity of what is filled."""
    left: int
    """How much of it can still trade."""
    price: Decimal | None
    """The limit."""
    trigger: Decimal | None
    """Of a stop."""
    at_ns: int
    """When it became so, in nanoseconds since 1970."""
    sequence: int
    """Of the message that made it so; 0: none."""
    trade: int
    """The floor's number of a trade; 0: none."""
    last_quantity: int
    """Of this trade."""
    last_price: Decimal
    """Of this trade."""
    reason: str
    """Of a refusal; empty without one."""
    text: str
    """The same for people."""

    @property
    def is_final(self) -> bool:
        """Whether nothing happens to the order any more, but that its trades are confirmed."""
        return OrderStatus(self.status).is_final

    @property
    def average_price(self) -> Decimal | None:
        """Of what is filled; None if nothing is."""
        return self.filled_value / self.filled if self.filled else None


@dataclass(frozen=True, slots=True)
class OpenOffer:
    """An open offer, as everybody sees it."""

    offer: int
    """Its id in the sequence."""
    account: int
    """Whose it is."""
    symbol: str
    """What is offered or wanted."""
    side: str
    """Of the offerer, buy or sell: who takes an offer to sell buys."""
    price: Decimal
    """Of a unit."""
    quantity: int
    """At first."""
    left: int
    """What can be taken."""
    taken: tuple[tuple[int, int], ...]
    """Account and quantity of each part that was taken, in the order of the sequence."""


@dataclass(frozen=True, slots=True)
class OpenLot:
    """A lot for sale, as everybody sees it."""

    lot: int
    """Its id in the sequence."""
    account: int
    """Of the seller."""
    symbol: str
    """What is sold."""
    auction: str
    """second-price or dutch."""
    quantity: int
    """At first."""
    left: int
    """What is not sold."""
    reserve: Decimal
    """The lowest price of a unit."""
    closes_at: int | None
    """Second price: when bids end, in nanoseconds since 1970."""
    reveal_until: int | None
    """Second price: when it is decided."""
    forfeit: Decimal
    """Second price: what an unrevealed bid loses."""
    bids: int
    """Second price: how many there are."""
    price: Decimal | None
    """Dutch: on the clock, as far as the gateway knows."""


@dataclass(frozen=True, slots=True)
class Balance:
    """What an account has of a currency or of a symbol's shares."""

    asset: str
    """The currency or the symbol."""
    kind: str
    """cash or shares."""
    available: Decimal
    """What can be spent or sold now."""
    reserved: Decimal
    """What live orders and unconfirmed trades hold."""


@dataclass(frozen=True, slots=True)
class TradedSymbol:
    """What can be traded, and how."""

    symbol: str
    """Its name."""
    currency: str
    """Of its prices."""
    tick: Decimal
    """Prices are whole multiples of it."""
    lot: int
    """Quantities are whole multiples of it."""
    phase: str
    """Of its session now."""
    reference: Decimal | None
    """The last trade's price; None before the first."""


class ReadingAnswer:
    """Turns what is missing in an answer into one error."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, KeyError | TypeError | ValueError | ArithmeticError):
            raise RemoteProtocolError("the trading service answers in another way than this version reads") from error


def _maybe(units: int | None) -> Decimal | None:
    return None if units is None else from_ticks(units)


def read_report(said: Mapping[str, Any]) -> OrderReport:
    """One report."""
    report = report_of(said)
    return OrderReport(
        number=report.number,
        kind=report.kind.value,
        status=report.status.value,
        client_id=report.client_id,
        original_id=report.original_id,
        order=report.order,
        symbol=report.symbol,
        side=report.side.value,
        order_kind=report.kind_of_order.value,
        lifetime=report.lifetime.value,
        quantity=report.quantity,
        filled=report.filled,
        filled_value=from_ticks(report.filled_value),
        left=report.left,
        price=_maybe(report.price),
        trigger=_maybe(report.trigger),
        at_ns=report.at,
        sequence=report.sequence,
        trade=report.trade,
        last_quantity=report.last_quantity,
        last_price=from_ticks(report.last_price),
        reason="" if report.reason is None else report.reason.value,
        text=report.text,
    )


def read_offer(said: dict[str, Any]) -> OpenOffer:
    """One open offer."""
    taken = tuple([(int(part["account"]), int(part["quantity"])) for part in said["taken"]])
    return OpenOffer(
        int(said["offer"]),
        int(said["account"]),
        str(said["symbol"]),
        str(said["side"]),
        Decimal(said["price"]),
        int(said["quantity"]),
        int(said["left"]),
        taken,
    )


def read_lot(said: dict[str, Any]) -> OpenLot:
    """One lot."""
    return OpenLot(
        int(said["lot"]),
        int(said["account"]),
        str(said["symbol"]),
        str(said["auction"]),
        int(said["quantity"]),
        int(said["left"]),
        Decimal(said["reserve"]),
        None if said["closes_at"] is None else read_until(said["closes_at"]),
        None if said["reveal_until"] is None else read_until(said["reveal_until"]),
        Decimal(said["forfeit"]),
        int(said["bids"]),
        None if said["price"] is None else Decimal(said["price"]),
    )


def whole_number(value: object) -> int:
    """An int, and nothing else."""
    if not isinstance(value, int):
        raise RemoteProtocolError("the trading service answers in another way than this version reads")
    return value
