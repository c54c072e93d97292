"""What traders say and hear, as JSON has it: the one spelling that the HTTPS service and its clients share.

Prices and sums are texts with up to four decimals, because a JSON number is a binary fraction in most programs.
Quantities are whole numbers. Instants are ISO 8601 in UTC with nine decimals. An order's id has 64 bits, more than a
browser's numbers have, and is a text.

>>> price_text(100_500), read_price("10.05")
('10.05', 100500)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from math import isfinite
from typing import Any, Final

from isocast.orders.accounts import UNITS
from isocast.orders.desk import (
    CLIENT_ID_MAX,
    BalanceLine,
    BidRequest,
    CancelRequest,
    GatewayStatus,
    Lifetime,
    LotKind,
    LotLine,
    LotRequest,
    NewOrder,
    OfferLine,
    OrderKind,
    OrderStatus,
    Reason,
    ReplaceRequest,
    ReportKind,
    RevealRequest,
    SealedBidRequest,
    SymbolTerms,
    TakeRequest,
    TradeReport,
    TradingRequest,
)
from isocast.orders.needs import Side
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.instants import instant_text, read_instant

__all__ = [
    "PRICE_MAX",
    "QUANTITY_MAX",
    "balance_fields",
    "bid_of",
    "cancel_of",
    "check_client_id",
    "lot_fields",
    "lot_of",
    "offer_fields",
    "order_of",
    "price_text",
    "price_units",
    "read_price",
    "read_until",
    "replace_of",
    "report_fields",
    "report_of",
    "request_fields",
    "reveal_of",
    "sealed_bid_of",
    "status_fields",
    "symbol_fields",
    "take_of",
]

PRICE_MAX: Final = 10**15 - 1
"""Price units: a hundred billion of a currency. A price times a quantity is checked by whoever reserves it."""
QUANTITY_MAX: Final = 2**53 - 1
"""The largest whole number that every reader of JSON keeps."""
_DECIMALS: Final = 4
_PRICE: Final = re.compile(r"([0-9]{1,11})(?:\.([0-9]{1,18}))?")
_SUM: Final = re.compile(r"(-?)([0-9]{1,40})(?:\.([0-9]{1,4}))?")
_OFFSET: Final = re.compile(r"(?:[zZ]|[+-][0-9]{2}:?[0-9]{2})$")
_EXACT_MAX: Final = 1 << 53
_TEXTS_KEPT: Final = 4_096
"""Prices and their texts that are known without reading or writing them again: most orders are at a few prices."""


# ---- prices, sums and instants


@lru_cache(_TEXTS_KEPT)
def price_text(units: int) -> str:
    """Price units as people write them, with two decimals or four."""
    whole, part = divmod(abs(units), UNITS)
    decimals = f"{part:04}"
    return f"{'-' if units < 0 else ''}{whole}.{decimals.removesuffix('00')}"


@lru_cache(_TEXTS_KEPT)
def read_price(text: str) -> int:
    """The price units of a text such as 10.05; ValueError, which says what is wanted, for anything else."""
    found = _PRICE.fullmatch(text)
    if found is None:
        raise ValueError(f"must be a price such as 10.05, not {text[:40]!r}")
    part = (found[2] or "").rstrip("0")
    if len(part) > _DECIMALS:
        raise ValueError(f"{text[:40]} is finer than 0.0001, the smallest price unit")
    return int(found[1]) * UNITS + int(part.ljust(_DECIMALS, "0"))


def price_units(price: Decimal | str | float) -> int:
    """The price units of what a program gives; ValueError, which names it, for what is no exact price.

    A float must be the nearest one to a whole number of price units: 10.05 is, and 0.1 + 0.2 is not.
    """
    if isinstance(price, bool) or not isinstance(price, Decimal | str | int | float):
        raise ValueError(f"{price!r} is no price: give a Decimal, a text or an int")  # noqa: TRY004 - one error
    if isinstance(price, str):
        return read_price(price.strip())
    if isinstance(price, float):
        units = round(price * UNITS) if isfinite(price) and 0 <= price < _EXACT_MAX / UNITS else -1
        if units < 0 or units / UNITS != price:
            raise ValueError(f"{price!r} is not an exact price: give a Decimal or a text such as '10.05'")
        return units
    exact = Decimal(price)
    if not exact.is_finite() or not 0 <= exact <= Decimal(PRICE_MAX).scaleb(-_DECIMALS):
        raise ValueError(f"{price} is no price: it must be from 0 to {price_text(PRICE_MAX)}")
    units = int(exact.scaleb(_DECIMALS))
    if Decimal(units).scaleb(-_DECIMALS) != exact:  # Comparing is exact, whatever the precision of the context.
        raise ValueError(f"{price} is finer than 0.0001, the smallest price unit")
    return units


def read_until(text: str) -> int:
    """An instant with its offset, as nanoseconds since 1970; ValueError for anything else."""
    example = "2026-03-31T16:00:00Z"
    try:
        found = read_instant(text) if _OFFSET.search(text) else -1
    except (ValueError, OverflowError):
        found = -1
    if not 0 <= found < 1 << 63:
        form = f"an instant of ISO 8601 with its offset, from 1970 to 2262, such as {example}"
        raise ValueError(f"must be {form}, not {text[:40]!r}")
    return found


def check_client_id(text: str) -> str:
    """A trader's own id; ValueError for one that is none."""
    if not 1 <= len(text) <= CLIENT_ID_MAX or not text.isascii() or not text.isprintable():
        raise ValueError(f"must have 1 to {CLIENT_ID_MAX} printable ASCII characters")
    return text


# ---- requests


def request_fields(request: TradingRequest) -> dict[str, Any]:
    """A request as its body: what is left out is as it would be without it."""
    said: dict[str, Any] = request._asdict()
    said.pop("unchanged", None)  # A word of FIX alone: a body has nothing to say twice.
    match request:
        case CancelRequest():
            return said
        case TakeRequest():
            return said | {"offer": str(request.offer)}
        case SealedBidRequest() | BidRequest():
            return said | {"lot": str(request.lot), "ceiling": price_text(request.ceiling)}
        case RevealRequest():
            return said | {"price": price_text(request.price)}
        case LotRequest():
            return _lot_request_fields(request)
        case _:
            pass
    said |= {"price": _priced(request.price), "trigger": _priced(request.trigger)}
    if isinstance(request, NewOrder):
        until = None if request.until is None else instant_text(request.until)
        said |= {"until": until, "post_only": request.is_post_only, "open_offer": request.is_open_offer}
        del said["is_post_only"], said["is_open_offer"]
        for name in ("post_only", "display", "open_offer", "owner"):
            said[name] = said[name] or None
    return {name: value for name, value in said.items() if value is not None}


def _lot_request_fields(request: LotRequest) -> dict[str, Any]:
    said = {
        "client_id": request.client_id,
        "symbol": request.symbol,
        "auction": request.auction.value,
        "quantity": request.quantity,
        "reserve": price_text(request.reserve),
    }
    if request.auction is LotKind.DUTCH:
        return said | {"start": price_text(request.start), "step": price_text(request.step)}
    until = request.closes_at + request.window_ns
    return said | {
        "closes_at": instant_text(request.closes_at),
        "reveal_until": instant_text(until),
        "forfeit": price_text(request.forfeit),
    }


def _priced(units: int | None) -> str | None:
    return None if units is None else price_text(units)


def order_of(body: Mapping[str, Any]) -> NewOrder:
    """An order of a body whose fields were read: prices in units, instants in nanoseconds, choices as they are here."""
    return NewOrder(
        client_id=body["client_id"],
        symbol=body["symbol"],
        side=body["side"],
        quantity=body["quantity"],
        kind=body["kind"],
        price=body["price"],
        trigger=body["trigger"],
        lifetime=body["lifetime"],
        until=body["until"],
        is_post_only=body["post_only"],
        display=body["display"],
        is_open_offer=body["open_offer"],
        owner=body["owner"],
    )


def cancel_of(body: Mapping[str, Any]) -> CancelRequest:
    """A cancel, likewise."""
    return CancelRequest(body["client_id"], body["original_id"], body["quantity"])


def replace_of(body: Mapping[str, Any]) -> ReplaceRequest:
    """A replace, likewise."""
    return ReplaceRequest(body["client_id"], body["original_id"], body["quantity"], body["price"], body["trigger"])


def take_of(body: Mapping[str, Any]) -> TakeRequest:
    """A TAKE, likewise."""
    return TakeRequest(body["client_id"], body["offer"], body["quantity"])


def lot_of(body: Mapping[str, Any]) -> LotRequest:
    """A lot, likewise."""
    closes, until = body["closes_at"] or 0, body["reveal_until"] or 0
    return LotRequest(
        body["client_id"],
        body["symbol"],
        LotKind(body["auction"]),
        body["quantity"],
        body["reserve"],
        closes,
        until - closes,
        body["forfeit"] or 0,
        body["start"] or 0,
        body["step"] or 0,
    )


def sealed_bid_of(body: Mapping[str, Any]) -> SealedBidRequest:
    """A sealed bid, likewise."""
    return SealedBidRequest(body["client_id"], body["lot"], body["ceiling"], body["commitment"])


def reveal_of(body: Mapping[str, Any]) -> RevealRequest:
    """The opening of a sealed bid, likewise."""
    return RevealRequest(body["client_id"], body["original_id"], body["price"], body["nonce"])


def bid_of(body: Mapping[str, Any]) -> BidRequest:
    """A call at a Dutch clock, likewise."""
    return BidRequest(body["client_id"], body["lot"], body["quantity"], body["ceiling"])


# ---- answers


def report_fields(report: TradeReport) -> dict[str, Any]:
    """A report, all of it."""
    return {
        "number": report.number,
        "account": report.account,
        "kind": str(report.kind),
        "status": str(report.status),
        "client_id": report.client_id,
        "original_id": report.original_id,
        "order": str(report.order),
        "symbol": report.symbol,
        "side": str(report.side),
        "order_kind": str(report.kind_of_order),
        "lifetime": str(report.lifetime),
        "quantity": report.quantity,
        "filled": report.filled,
        "filled_value": price_text(report.filled_value),
        "left": report.left,
        "price": _priced(report.price),
        "trigger": _priced(report.trigger),
        "at": instant_text(report.at),
        "sequence": report.sequence,
        "trade": report.trade,
        "last_quantity": report.last_quantity,
        "last_price": price_text(report.last_price),
        "reason": None if report.reason is None else report.reason.value,
        "text": report.text,
    }


def report_of(said: Mapping[str, Any]) -> TradeReport:
    """A report as a client reads it; RemoteProtocolError for what is none."""
    try:
        return TradeReport(
            number=_whole(said["number"]),
            account=_whole(said["account"]),
            kind=ReportKind(said["kind"]),
            status=OrderStatus(said["status"]),
            client_id=_text(said["client_id"]),
            original_id=_text(said["original_id"]),
            order=int(_text(said["order"])[:20]),
            symbol=_text(said["symbol"]),
            side=Side(said["side"]),
            kind_of_order=OrderKind(said["order_kind"]),
            lifetime=Lifetime(said["lifetime"]),
            quantity=_whole(said["quantity"]),
            filled=_whole(said["filled"]),
            filled_value=_sum(said["filled_value"]),
            left=_whole(said["left"]),
            price=None if said["price"] is None else _sum(said["price"]),
            trigger=None if said["trigger"] is None else _sum(said["trigger"]),
            at=read_instant(_text(said["at"])),
            sequence=_whole(said["sequence"]),
            trade=_whole(said["trade"]),
            last_quantity=_whole(said["last_quantity"]),
            last_price=_sum(said["last_price"]),
            reason=None if said["reason"] is None else Reason(said["reason"]),
            text=_text(said["text"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise RemoteProtocolError("this is no report of a trading service of this version") from error


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _sum(value: object) -> int:
    """The units of a sum, which may be larger than a price."""
    found = _SUM.fullmatch(_text(value))
    if found is None:
        raise ValueError
    units = int(found[2]) * UNITS + int((found[3] or "").ljust(_DECIMALS, "0"))
    return -units if found[1] else units


def balance_fields(line: BalanceLine) -> dict[str, Any]:
    """A balance: a currency's sums as texts, a symbol's shares as whole numbers."""
    kind, _, name = line.asset.partition(":")
    shown = price_text if kind == "cash" else int
    return {"asset": name, "kind": kind, "available": shown(line.available), "reserved": shown(line.reserved)}


def offer_fields(offer: OfferLine) -> dict[str, Any]:
    """An open offer, and who took what of it."""
    return {
        **offer._asdict(),
        "offer": str(offer.offer),
        "side": offer.side.value,
        "price": price_text(offer.price),
        "taken": [part._asdict() for part in offer.taken],
    }


def lot_fields(lot: LotLine) -> dict[str, Any]:
    """A lot for sale."""
    is_dutch = lot.auction is LotKind.DUTCH
    said = lot._asdict()
    del said["window_ns"]
    return {
        **said,
        "lot": str(lot.lot),
        "auction": lot.auction.value,
        "reserve": price_text(lot.reserve),
        "closes_at": None if is_dutch else instant_text(lot.closes_at),
        "reveal_until": None if is_dutch else instant_text(lot.closes_at + lot.window_ns),
        "forfeit": price_text(lot.forfeit),
        "price": _priced(lot.price),
        "step": price_text(lot.step) if is_dutch else None,
    }


def status_fields(status: GatewayStatus) -> dict[str, Any]:
    """How a gateway is."""
    return {**status._asdict(), "alarms": list(status.alarms)}


def symbol_fields(terms: SymbolTerms) -> dict[str, Any]:
    """What can be traded, and how."""
    return {**terms._asdict(), "tick": price_text(terms.tick), "reference": _priced(terms.reference)}
