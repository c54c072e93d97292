"""What the bodies and queries of the trading service hold, field by field, and what its answers look like.

The rows of `ROUTES` in `web` refer to these; the description as OpenAPI and the page for people are made of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, Final, TypeVar

from isocast.orders.desk import CLIENT_ID_MAX, Lifetime, LotKind, OrderKind, ReportKind
from isocast.orders.json_forms import QUANTITY_MAX, check_client_id, read_price, read_until
from isocast.orders.needs import Side
from isocast.runtime.net.json_service import FLAG, TEXT, WHOLE, Field, Fields, Kind, object_schema
from isocast.terms.quantities import suggestion

__all__ = [
    "ACCOUNT",
    "AFTER",
    "BALANCES",
    "BATCH",
    "BATCH_MAX",
    "BID",
    "CANCEL",
    "CANCELLED",
    "CANCEL_ALL",
    "LIVE",
    "LOGIN",
    "LOGOUT",
    "LOT",
    "LOTS",
    "OFFERS",
    "ORDER",
    "ORDERS",
    "PAST",
    "REPLACE",
    "REPORT",
    "REPORTS",
    "REPORT_SCHEMA",
    "RESULTS",
    "REVEAL",
    "SEALED_BID",
    "SESSION",
    "STATUS",
    "SYMBOLS",
    "TAKE",
    "WATCH",
]

_REPORTS_MAX: Final = 1_000
"""In one answer."""

BATCH_MAX: Final = 256
"""Orders of one request: some 64 kB."""

ResultT = TypeVar("ResultT")


def _price(value: object) -> int:
    if not isinstance(value, str):
        raise ValueError('must be a text: give prices as strings, such as "10.05", because JSON numbers are inexact')  # noqa: TRY004
    return read_price(value)


def _bounded(least: int, most: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        number = WHOLE.read(value)
        if not isinstance(number, int) or not least <= number <= most:
            raise ValueError
        return number

    return read


def _number(least: int, most: int) -> Kind:
    schema = {"type": "integer", "minimum": least, "maximum": most}
    return Kind(schema, f"a whole number from {least:,} to {most:,}", _bounded(least, most))


def _choice(kinds: type[StrEnum], some: Iterable[StrEnum] = ()) -> Kind:
    choices = {one.value: one for one in some or kinds}
    names = list(choices)

    def read(value: object) -> StrEnum:
        found = choices.get(value) if isinstance(value, str) else None
        if found is None:
            near = suggestion(value[:40], names) if isinstance(value, str) else ""
            raise ValueError(f"must be one of {', '.join(names)}{near}")
        return found

    return Kind({"type": "string", "enum": names}, f"one of {', '.join(names)}", read)


def _named(value: object, read: Callable[[str], ResultT]) -> ResultT:
    if not isinstance(value, str):
        raise ValueError  # noqa: TRY004 - one error for whatever a field may not be
    return read(value)


_PRICE = Kind({"type": "string", "pattern": r"^[0-9]{1,11}(\.[0-9]{1,4})?$", "examples": ["10.05"]},
              'a price as a text, such as "10.05"', _price)  # fmt: skip
_QUANTITY = _number(1, QUANTITY_MAX)
_CLIENT_ID = Kind(
    {"type": "string", "minLength": 1, "maxLength": CLIENT_ID_MAX, "pattern": "^[ -~]+$"},
    f"1 to {CLIENT_ID_MAX} printable ASCII characters",
    lambda value: _named(value, check_client_id),
)
_INSTANT = Kind(
    {"type": "string", "format": "date-time"},
    "an instant of ISO 8601 with its offset, such as 2026-03-31T16:00:00Z",
    lambda value: _named(value, read_until),
)


def _symbol_text(text: str) -> str:
    if not 1 <= len(text) <= 32 or not text.isascii() or not text.isprintable():  # noqa: PLR2004 - longer than any
        raise ValueError
    return text


_SYMBOL = Kind(
    {"type": "string", "minLength": 1, "maxLength": 32, "pattern": "^[ -~]+$"},
    "a symbol, such as ISO",
    lambda value: _named(value, _symbol_text),
)

_ORDERED: Final = (OrderKind.LIMIT, OrderKind.MARKET, OrderKind.STOP, OrderKind.STOP_LIMIT)


def _id_number(text: str) -> int:
    if not re.fullmatch("[0-9]{1,20}", text):
        raise ValueError
    return int(text)


def _hexadecimal(size: int) -> Kind:
    pattern = f"^[0-9a-f]{{{2 * size}}}$"

    def read(text: str) -> str:
        if not re.match(pattern, text):
            raise ValueError
        return text

    schema = {"type": "string", "pattern": pattern}
    return Kind(schema, f"{size} bytes in hexadecimal", lambda value: _named(value, read))


_ID = Kind(
    {"type": "string", "pattern": "^[0-9]{1,20}$"},
    "an order's id in the sequence, as a text",
    lambda value: _named(value, _id_number),
)
_OWN_ID = Field(_CLIENT_ID, says="Your own id of this request, used once and never again: sent twice, it is done once.")
_ORIGINAL = Field(_CLIENT_ID, says="The client_id of the order, or of the last replace that changed it.")
LOGIN: Fields = {
    "name": Field(TEXT, None, "Of the trader."),
    "password": Field(TEXT, None, "Of the trader."),
    "token": Field(TEXT, None, "An API token, in place of both."),
}
LOGOUT: Fields = {"cancel_orders": Field(FLAG, default=False, says="Cancel all live orders that this session entered.")}
ORDER: Fields = {
    "client_id": _OWN_ID,
    "symbol": Field(_SYMBOL),
    "side": Field(_choice(Side)),
    "quantity": Field(_QUANTITY, says="Whole units, in lots of the symbol."),
    "kind": Field(_choice(OrderKind, _ORDERED), OrderKind.LIMIT, "A stop waits for a trade at its trigger."),
    "price": Field(_PRICE, None, "The limit: of limit and stop-limit orders."),
    "trigger": Field(_PRICE, None, "Of stop and stop-limit orders."),
    "lifetime": Field(_choice(Lifetime), Lifetime.DAY, "How long it lives; ioc and fok trade at once or not at all."),
    "until": Field(_INSTANT, None, "With lifetime gtd."),
    "post_only": Field(FLAG, default=False, says="Refuse it rather than trade at once."),
    "display": Field(_number(0, QUANTITY_MAX), 0, "An iceberg shows so much at a time, 10,000 times at most; 0: all."),
    "open_offer": Field(FLAG, default=False, says="Open to all exchanges, in no book."),
    "owner": Field(_number(0, 2**32 - 1), 0, "A broker's customer, who never trades with himself; 0: none."),
}


def _several(value: object) -> list[object]:
    """Each is read later, by itself."""
    if not isinstance(value, list) or not 1 <= len(value) <= BATCH_MAX:
        raise ValueError
    return value


BATCH: Fields = {
    "orders": Field(
        Kind(
            {"type": "array", "minItems": 1, "maxItems": BATCH_MAX, "items": object_schema(ORDER)},
            f"a list of 1 to {BATCH_MAX} orders, each as in POST /v1/orders",
            _several,
        ),
        says="Judged one by one, in this order.",
    )
}
CANCEL: Fields = {
    "client_id": _OWN_ID,
    "original_id": _ORIGINAL,
    "quantity": Field(_number(0, QUANTITY_MAX), 0, "Cancel only so much; 0: all that is left."),
}
REPLACE: Fields = {
    "client_id": _OWN_ID,
    "original_id": _ORIGINAL,
    "quantity": Field(_number(0, QUANTITY_MAX), None, "The new total, what is filled included; left out: as it is."),
    "price": Field(_PRICE, None, "Left out: as it is."),
    "trigger": Field(_PRICE, None, "Left out: as it is."),
}
TAKE: Fields = {
    "client_id": _OWN_ID,
    "offer": Field(_ID, says="Of the open offer, as GET /v1/offers lists it."),
    "quantity": Field(_QUANTITY, says="What is left of the offer at most; the rest of yours is cancelled."),
}
LOT: Fields = {
    "client_id": _OWN_ID,
    "symbol": Field(_SYMBOL),
    "auction": Field(_choice(LotKind), says="Sealed bids and the second price, or a Dutch clock."),
    "quantity": Field(_QUANTITY),
    "reserve": Field(_PRICE, says="The lowest price of a unit."),
    "closes_at": Field(_INSTANT, None, "Second price: bids count before it, and are revealed from it on."),
    "reveal_until": Field(_INSTANT, None, "Second price: then it is decided."),
    "forfeit": Field(_PRICE, None, "Second price: money that a bid loses to you if it is not revealed."),
    "start": Field(_PRICE, None, "Dutch: the first price."),
    "step": Field(_PRICE, None, "Dutch: by how much it falls with every token."),
}
SEALED_BID: Fields = {
    "client_id": _OWN_ID,
    "lot": Field(_ID),
    "ceiling": Field(_PRICE, says="Of a unit: at it your money is reserved. Your price may be lower, and is not told."),
    "commitment": Field(_hexadecimal(32), says="BLAKE2b-256 of price, nonce, account and lot."),
}
REVEAL: Fields = {
    "client_id": _OWN_ID,
    "original_id": Field(_CLIENT_ID, says="The client_id of the bid."),
    "price": Field(_PRICE),
    "nonce": Field(_hexadecimal(16)),
}
BID: Fields = {
    "client_id": _OWN_ID,
    "lot": Field(_ID),
    "quantity": Field(_QUANTITY),
    "ceiling": Field(_PRICE, says="Refused where the clock stands above it."),
}
CANCEL_ALL: Fields = {"client_id": _OWN_ID, "symbol": Field(_SYMBOL, None, "Only orders of this one.")}
AFTER: Fields = {"after": Field(_number(0, 2**63 - 1), 0, "The number of the last report that you have; 0: none.")}
_LIMIT: Fields = {"limit": Field(_number(1, _REPORTS_MAX), _REPORTS_MAX, "At most so many.")}
PAST: Fields = {**AFTER, **_LIMIT}
LIVE: Fields = {"live": Field(FLAG, default=True, says="Only those that can still trade; false: all."), **_LIMIT}
WATCH: Fields = {
    **AFTER,
    "cancel_on_disconnect": Field(
        FLAG, default=False, says="When this connection ends, the session ends and its live orders are cancelled."
    ),
}


# ---- answers

_TEXT_SCHEMA, _WHOLE_SCHEMA = {"type": "string"}, {"type": "integer"}
_MAYBE = {"type": ["string", "null"]}
REPORT_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "description": "One step of an order's life.",
    "properties": {
        "number": {**_WHOLE_SCHEMA, "description": "From 1, without gaps, for each account; 0: no reconnect tells it."},
        "account": _WHOLE_SCHEMA,
        "kind": {**_TEXT_SCHEMA, "enum": [one.value for one in ReportKind]},
        "status": {**_TEXT_SCHEMA, "description": "Where the order is in its life."},
        "client_id": {**_TEXT_SCHEMA, "description": "Of the request that is answered, or else of the order."},
        "original_id": {**_TEXT_SCHEMA, "description": "Of a cancel or a replace: the order that it meant."},
        "order": {**_TEXT_SCHEMA, "description": "The order's id in the sequence; 0: it never got there."},
        "symbol": _TEXT_SCHEMA,
        "side": {**_TEXT_SCHEMA, "enum": [one.value for one in Side]},
        "order_kind": {**_TEXT_SCHEMA, "enum": [one.value for one in OrderKind]},
        "lifetime": {**_TEXT_SCHEMA, "enum": [one.value for one in Lifetime]},
        "quantity": {**_WHOLE_SCHEMA, "description": "Of the whole order."},
        "filled": _WHOLE_SCHEMA,
        "filled_value": {**_TEXT_SCHEMA, "description": "The sum of price times quantity of what is filled."},
        "left": _WHOLE_SCHEMA,
        "price": _MAYBE,
        "trigger": _MAYBE,
        "at": {**_TEXT_SCHEMA, "format": "date-time", "description": "UTC, to the nanosecond."},
        "sequence": {**_WHOLE_SCHEMA, "description": "Of the message that made it so; 0: none."},
        "trade": {**_WHOLE_SCHEMA, "description": "The floor's number of a trade; 0: none."},
        "last_quantity": {**_WHOLE_SCHEMA, "description": "Of this trade."},
        "last_price": {**_TEXT_SCHEMA, "description": "Of this trade."},
        "reason": {**_MAYBE, "description": "Of a refusal."},
        "text": {**_TEXT_SCHEMA, "description": "The same for people."},
    },
}
"""A report, described; the WebSocket sends one in each message."""
REPORT: Final = {"$ref": "#/components/schemas/Report"}
_REPORTS = {"type": "array", "items": REPORT}


def _object(**properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties}


SESSION = _object(
    token={"type": "string"},
    account=_WHOLE_SCHEMA,
    name=_TEXT_SCHEMA,
    scopes={"type": "array", "items": _TEXT_SCHEMA},
    seconds=_WHOLE_SCHEMA,
)
_BALANCE = _object(
    asset=_TEXT_SCHEMA,
    kind={"type": "string", "enum": ["cash", "shares"]},
    available={"type": ["string", "integer"]},
    reserved={"type": ["string", "integer"]},
)
_TERMS = _object(
    symbol=_TEXT_SCHEMA,
    currency=_TEXT_SCHEMA,
    tick=_TEXT_SCHEMA,
    lot=_WHOLE_SCHEMA,
    phase=_TEXT_SCHEMA,
    reference=_MAYBE,
)
CANCELLED: Final = _object(cancelled=_WHOLE_SCHEMA)
RESULTS: Final = _object(
    results={
        "type": "array",
        "description": "One for each order, in their order: a report, or why this one is refused.",
        "items": _object(
            index={**_WHOLE_SCHEMA, "description": "Of the order in the request, from 0."},
            report=REPORT,
            error=_object(reason=_TEXT_SCHEMA, message=_TEXT_SCHEMA, field=_MAYBE),
        ),
    },
    refused={**_WHOLE_SCHEMA, "description": "How many are."},
)
ORDERS: Final = _object(orders=_REPORTS)
REPORTS: Final = _object(reports=_REPORTS, last=_WHOLE_SCHEMA)
BALANCES: Final = _object(balances={"type": "array", "items": _BALANCE})
ACCOUNT: Final = _object(account=_WHOLE_SCHEMA, name=_TEXT_SCHEMA, scopes={"type": "array", "items": _TEXT_SCHEMA})
_TAKEN = _object(account=_WHOLE_SCHEMA, quantity=_WHOLE_SCHEMA, trade=_WHOLE_SCHEMA)
_OFFER = _object(
    offer={**_TEXT_SCHEMA, "description": "Its id in the sequence."},
    account={**_WHOLE_SCHEMA, "description": "Whose it is."},
    symbol=_TEXT_SCHEMA,
    side={**_TEXT_SCHEMA, "enum": [one.value for one in Side], "description": "Of the offerer."},
    price=_TEXT_SCHEMA,
    quantity=_WHOLE_SCHEMA,
    left=_WHOLE_SCHEMA,
    taken={"type": "array", "items": _TAKEN, "description": "By whom, in the order of the sequence."},
)
_LOT = _object(
    lot={**_TEXT_SCHEMA, "description": "Its id in the sequence."},
    account={**_WHOLE_SCHEMA, "description": "Of the seller."},
    symbol=_TEXT_SCHEMA,
    auction={**_TEXT_SCHEMA, "enum": [one.value for one in LotKind]},
    quantity=_WHOLE_SCHEMA,
    left=_WHOLE_SCHEMA,
    reserve=_TEXT_SCHEMA,
    closes_at=_MAYBE,
    reveal_until=_MAYBE,
    forfeit=_TEXT_SCHEMA,
    bids={**_WHOLE_SCHEMA, "description": "Sealed bids so far."},
    price={**_MAYBE, "description": "On a Dutch clock, with the newest token that the gateway has heard."},
    step=_MAYBE,
)
OFFERS: Final = _object(offers={"type": "array", "items": _OFFER})
LOTS: Final = _object(lots={"type": "array", "items": _LOT})
STATUS: Final = _object(
    floor=_TEXT_SCHEMA,
    token={**_WHOLE_SCHEMA, "description": "Up to which the sequence is in the gateway's books."},
    confirmed={**_WHOLE_SCHEMA, "description": "All trades of the floor up to this number are confirmed."},
    busted={**_WHOLE_SCHEMA, "description": "Trades of the gateway's accounts that became void since it started."},
    alarms={"type": "array", "items": _TEXT_SCHEMA, "description": "What its operator should look at."},
)
SYMBOLS: Final = _object(symbols={"type": "array", "items": _TERMS})
