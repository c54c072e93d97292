"""What an exchange says of the orders that are directed to it: reports as opaque messages of a topic of its own.

    {"order": "1042.3", "kind": "traded", "status": "part filled", "filled": 60, "left": 40, "last_quantity": 60,
     "last_price": 100200, "execution": "x-77"}

`order` is the place in the sequence of the request that the report is about, by which everybody can audit the exchange
(`delivery`). Prices are whole price units. A report has one spelling: keys in this order, none without a value.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from isocast.orders.delivery import Place
from isocast.orders.desk import OrderStatus, ReportKind
from isocast.terms.errors import LocalProtocolError, RemoteProtocolError

__all__ = ["ANSWER_BYTES_MAX", "ExchangeAnswer", "answers_topic", "decode_answer", "encode_answer"]

ANSWER_BYTES_MAX: Final = 1_024
"""Of a report: three texts of 200 characters at most, and some numbers. It fits every packet."""
_TEXT_MAX: Final = 200
_NUMBER_MAX: Final = (1 << 63) - 1
_NUMBERS: Final = ("filled", "left", "last_quantity", "last_price")
_TEXTS: Final = ("execution", "text")
_DECLINED: Final = "declined"


class ExchangeAnswer(NamedTuple):
    """One report of an exchange."""

    order: Place
    """Of the request that it is about: an order, a cancel, a replace."""
    kind: ReportKind
    status: OrderStatus
    """Of the order, after it."""
    original: Place | None = None
    """Of a cancel or a replace: the order that it was about."""
    filled: int = 0
    left: int = 0
    last_quantity: int = 0
    last_price: int = 0
    execution: str = ""
    """The exchange's own name of the report (FIX: ExecID)."""
    text: str = ""
    """For people: why something is refused."""
    is_declined: bool = False
    """The exchange was not asked: the request was none that it could have taken, and `text` says why."""


def answers_topic(code: str) -> str:
    """The topic of what an exchange of this code says."""
    return f"exchange/{code}"


def encode_answer(answer: ExchangeAnswer) -> bytes:
    """The bytes of a report; LocalProtocolError for what does not fit."""
    fields: dict[str, object] = {"order": str(answer.order), "kind": answer.kind.value, "status": answer.status.value}
    if answer.original is not None:
        fields["original"] = str(answer.original)
    given = answer._asdict()
    fields |= {name: given[name] for name in (*_NUMBERS, *_TEXTS) if given[name]}
    if answer.is_declined:
        fields[_DECLINED] = True
    raw = json.dumps(fields, separators=(",", ":"), ensure_ascii=True).encode("ascii")
    try:
        is_sound = decode_answer(raw) == answer
    except RemoteProtocolError as reason:
        raise LocalProtocolError(f"a report that does not fit: {reason}") from None
    if not is_sound:
        raise LocalProtocolError(f"a report that would be read as another: {answer}")
    return raw


def decode_answer(raw: bytes) -> ExchangeAnswer:
    """The report; RemoteProtocolError for anything that `encode_answer` would not have made."""
    if len(raw) > ANSWER_BYTES_MAX:
        raise RemoteProtocolError(f"a report of {len(raw)} bytes: at most {ANSWER_BYTES_MAX} are read")
    try:
        fields = json.loads(raw)
        answer = _read(fields)
    except (ValueError, KeyError, TypeError, RecursionError) as reason:
        raise RemoteProtocolError(f"no report of an exchange: {len(raw)} bytes") from reason
    if json.dumps(fields, separators=(",", ":"), ensure_ascii=True).encode("ascii") != raw:
        raise RemoteProtocolError("a report of an exchange in another spelling")
    return answer


def _read(fields: object) -> ExchangeAnswer:
    """ValueError, KeyError or TypeError for what is none."""
    if not isinstance(fields, dict):
        raise TypeError("an object is wanted")
    allowed = ("order", "kind", "status", "original", *_NUMBERS, *_TEXTS, _DECLINED)
    if list(fields) != [name for name in allowed if name in fields]:
        raise ValueError("fields that are unknown, or in another order")
    numbers = {name: _number(fields[name]) for name in _NUMBERS if name in fields}
    texts = {name: _text(fields[name]) for name in _TEXTS if name in fields}
    if fields.get(_DECLINED, True) is not True:
        raise ValueError("declined or not")
    return ExchangeAnswer(
        _place(fields["order"]),
        ReportKind(fields["kind"]),
        OrderStatus(fields["status"]),
        _place(fields["original"]) if "original" in fields else None,
        numbers.get("filled", 0),
        numbers.get("left", 0),
        numbers.get("last_quantity", 0),
        numbers.get("last_price", 0),
        texts.get("execution", ""),
        texts.get("text", ""),
        _DECLINED in fields,
    )


def _place(value: object) -> Place:
    place = Place.parse(value) if isinstance(value, str) else None
    if place is None:
        raise ValueError("a place in the sequence is wanted")
    return place


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= _NUMBER_MAX:
        raise ValueError("a number above zero is wanted")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _TEXT_MAX or not (value.isascii() and value.isprintable()):
        raise ValueError("a printable text is wanted")
    return value
