"""A floor as a filter over JSON lines: events in, trades and reports out.

`docs/reference/floor-lines.md` has the fields of every line. A line that is no event is refused with its reason, and
changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from isocast.floor.book import WorkingOrder
from isocast.floor.events import (
    AuctionKind,
    Bid,
    Cancel,
    Cancelled,
    Commit,
    Crossing,
    Directory,
    Event,
    Expired,
    Forfeited,
    Indicative,
    Lot,
    MarketKind,
    Order,
    OwnRule,
    Phase,
    PriceRule,
    Refused,
    Replace,
    Replaced,
    Report,
    Reveal,
    Share,
    Status,
    Take,
    Trade,
    Unsold,
)
from isocast.floor.machine import Floor
from isocast.floor.rules.dutch_clock import DutchLot
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.market import Side

__all__ = ["EVENT_FIELDS", "FloorLines", "book_line", "read_event"]

EVENT_FIELDS = (
    *("id", "account", "owner", "symbol", "side", "quantity", "price"),
    *("market", "immediate", "all", "post_only", "day", "open", "trigger", "deadline", "until", "at", "display"),
    *("tick", "lot", "price_rule", "own_rule", "share", "collar_bp", "band_bp", "pause_ns", "reference", "phase"),
    *("auction", "reserve", "T_close", "window_ns", "forfeit", "start", "step"),
    *("ceiling", "hash", "nonce", "offer"),
)
"""Of all kinds of events, beside `kind`."""

_Choice = TypeVar("_Choice", bound=StrEnum)
_SIDES = {"buy": Side.BUY, "sell": Side.SELL}
_PHASES = tuple(phase for phase in Phase if phase is not Phase.PAUSE)
"""A pause comes of a trade: one that somebody ordered would have no end."""
_WHOLE_MAX = 1 << 63
_TEXT_MAX = 64


class FloorLines:
    """Reads lines, keeps one floor, and says what came of each."""

    def __init__(self) -> None:
        self._floor = Floor()
        self._is_begun = False
        self._has_token = False

    def read(self, line: str) -> Iterator[dict[str, Any]]:
        """What one line brings about; RemoteProtocolError for one that is no event."""
        fields = _object(line)
        match fields.get("kind"):
            case "case":
                yield from self.end()
                self._floor, self._has_token, self._is_begun = Floor(), False, True
                yield {"case": fields.get("name")}
            case "token":
                token, at = _whole(fields, "t"), _whole(fields, "T")
                self._is_begun = True
                if self._has_token:
                    yield from _told(self._floor.end())
                self._has_token = True
                yield from _told(self._floor.begin(token, at))
            case _:
                event = read_event(fields)
                self._is_begun = True
                yield from _told(self._floor.apply(event))

    def end(self) -> Iterator[dict[str, Any]]:
        """The last token ends; then the books, if anything was read."""
        if self._is_begun:
            yield from _told(self._floor.end())
            yield book_line(self._floor)


def book_line(floor: Floor) -> dict[str, Any]:
    """All books, lots and offers."""

    def waiting(side: Iterable[WorkingOrder]) -> list[list[int | None]]:
        return [[order.id, None if order.is_market else order.price, order.left] for order in side]

    symbols = {
        name: {
            "phase": state.phase,
            "reference": state.reference,
            "buy": waiting(state.book.buys),
            "sell": waiting(state.book.sells),
            "stops": [[stop.id, stop.side.name.lower(), stop.trigger, stop.left] for stop in state.stops.values()],
            **({"close": waiting(state.for_close.values())} if state.for_close else {}),
        }
        for name, state in floor.symbols.items()
    }
    lots = [[number, lot.left if isinstance(lot, DutchLot) else lot.lot.quantity] for number, lot in floor.lots.items()]
    offers = [[number, offer.left] for number, offer in floor.offers.items()]
    return {"book": {"symbols": symbols, "lots": lots, "offers": offers}}


def _told(reports: list[Report]) -> Iterator[dict[str, Any]]:
    for report in reports:
        match report:
            case Trade(number, symbol, price, quantity, buy, sell, is_own, _):
                line = {"trade": number, "symbol": symbol, "price": price, "quantity": quantity}
                yield {**line, "buy": buy, "sell": sell, **({"own": True} if is_own else {})}
            case Refused(number, reason):
                yield {"report": "refused", "id": number, "detail": reason}
            case Cancelled(number, quantity):
                yield {"report": "cancelled", "id": number, "detail": quantity}
            case Expired(number, quantity):
                yield {"report": "expired", "id": number, "detail": quantity}
            case Replaced(number, total):
                yield {"report": "replaced", "id": number, "detail": total}
            case Unsold(number, quantity):
                yield {"report": "unsold", "id": number, "detail": quantity}
            case Forfeited(number, money):
                yield {"report": "forfeit", "id": number, "detail": money}
            case Indicative():
                pass  # The lines are about what happens, not about what would.


def _object(line: str) -> dict[str, Any]:
    try:
        fields = json.loads(line, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise RemoteProtocolError("not a JSON object") from None
    if not isinstance(fields, dict):
        raise RemoteProtocolError("not a JSON object")
    return fields


def _no_number(constant: str) -> None:
    """Python reads NaN and Infinity, which are no JSON, and would write them again."""
    raise ValueError(constant)


def read_event(fields: Mapping[str, Any]) -> Event:
    """An event from its fields; RemoteProtocolError names the one that is wrong."""
    kind = fields.get("kind")
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    if reader is None:
        raise RemoteProtocolError(f"kind must be one of case, token, {', '.join(_READERS)}")
    return reader(fields)


def _directory(fields: Mapping[str, Any]) -> Directory:
    return Directory(
        symbol=_text(fields, "symbol"),
        tick=_whole(fields, "tick", 1, least=1),
        lot=_whole(fields, "lot", 1, least=1),
        market=_choice(fields, "market", MarketKind, MarketKind.CONTINUOUS),
        price_rule=_choice(fields, "price_rule", PriceRule, PriceRule.RESTING),
        own_rule=_choice(fields, "own_rule", OwnRule, OwnRule.CANCEL_NEWEST),
        share=_choice(fields, "share", Share, Share.TIME),
        collar_bp=_whole(fields, "collar_bp", 0, least=0),
        band_bp=_whole(fields, "band_bp", 0, least=0),
        pause_ns=_whole(fields, "pause_ns", 0, least=0),
        reference=None if fields.get("reference") is None else _whole(fields, "reference", least=1),
        phase=_phase(fields, Phase.CLOSED),
    )


def _status(fields: Mapping[str, Any]) -> Status:
    symbol = None if fields.get("symbol") is None else _text(fields, "symbol")
    return Status(symbol, _phase(fields))


def _order(fields: Mapping[str, Any]) -> Order:
    side = fields.get("side")
    if not isinstance(side, str) or side not in _SIDES:
        raise RemoteProtocolError("side must be buy or sell")
    return Order(
        id=_id(fields, "id"),
        account=_account(fields),
        symbol=_text(fields, "symbol"),
        side=_SIDES[side],
        quantity=_whole(fields, "quantity"),
        price=_whole(fields, "price", 0),
        owner=_whole(fields, "owner", 0),
        is_market=_flag(fields, "market"),
        is_immediate=_flag(fields, "immediate"),
        is_all=_flag(fields, "all"),
        is_post_only=_flag(fields, "post_only"),
        is_day=_flag(fields, "day"),
        is_offer=_flag(fields, "open"),
        trigger=None if fields.get("trigger") is None else _whole(fields, "trigger"),
        deadline=None if fields.get("deadline") is None else _whole(fields, "deadline"),
        until=None if fields.get("until") is None else _whole(fields, "until"),
        at=None if fields.get("at") is None else _choice(fields, "at", Crossing),
        display=_whole(fields, "display", 0, least=0),
    )


def _cancel(fields: Mapping[str, Any]) -> Cancel:
    return Cancel(_id(fields, "id"), _account(fields), _whole(fields, "quantity", 0))


def _replace(fields: Mapping[str, Any]) -> Replace:
    quantity, price, trigger = (
        None if fields.get(name) is None else _whole(fields, name) for name in ("quantity", "price", "trigger")
    )
    return Replace(_id(fields, "id"), _account(fields), quantity, price, trigger)


def _lot(fields: Mapping[str, Any]) -> Lot:
    return Lot(
        id=_id(fields, "id"),
        account=_account(fields),
        symbol=_text(fields, "symbol"),
        auction=_choice(fields, "auction", AuctionKind),
        quantity=_whole(fields, "quantity"),
        reserve=_whole(fields, "reserve", 0),
        closes_at=_whole(fields, "T_close", 0),
        window_ns=_whole(fields, "window_ns", 0, least=0),
        forfeit=_whole(fields, "forfeit", 0, least=0),
        start=_whole(fields, "start", 0),
        step=_whole(fields, "step", 0),
    )


def _commit(fields: Mapping[str, Any]) -> Commit:
    account = _account(fields)
    ceiling = _whole(fields, "ceiling")
    return Commit(_id(fields, "id"), account, _id(fields, "lot"), ceiling, _hex(fields, "hash", 32))


def _reveal(fields: Mapping[str, Any]) -> Reveal:
    return Reveal(_id(fields, "id"), _account(fields), _whole(fields, "price"), _hex(fields, "nonce", 16))


def _bid(fields: Mapping[str, Any]) -> Bid:
    number, account, lot = _id(fields, "id"), _account(fields), _id(fields, "lot")
    return Bid(number, account, lot, _whole(fields, "quantity"), _whole(fields, "ceiling"))


def _take(fields: Mapping[str, Any]) -> Take:
    return Take(_id(fields, "id"), _account(fields), _id(fields, "offer"), _whole(fields, "quantity"))


_READERS: dict[str, Callable[[Mapping[str, Any]], Event]] = {
    "directory": _directory,
    "status": _status,
    "order": _order,
    "cancel": _cancel,
    "replace": _replace,
    "lot": _lot,
    "commit": _commit,
    "reveal": _reveal,
    "bid": _bid,
    "take": _take,
}


def _whole(fields: Mapping[str, Any], name: str, default: int | None = None, *, least: int | None = None) -> int:
    value = fields.get(name)
    if value is None:
        value = default
    if isinstance(value, bool) or not isinstance(value, int) or not -_WHOLE_MAX <= value < _WHOLE_MAX:
        raise RemoteProtocolError(f"{name} must be a whole number of 64 bits")
    if least is not None and value < least:
        raise RemoteProtocolError(f"{name} must be {least} or more")
    return value


def _id(fields: Mapping[str, Any], name: str) -> int:
    return _unsigned(fields, name, 64)


def _account(fields: Mapping[str, Any]) -> int:
    return _unsigned(fields, "account", 32)


def _unsigned(fields: Mapping[str, Any], name: str, bits: int) -> int:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << bits:
        raise RemoteProtocolError(f"{name} must be a whole number of {bits} bits, not negative")
    return value


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= _TEXT_MAX or not value.isascii() or not value.isprintable():
        raise RemoteProtocolError(f"{name} must be 1 to {_TEXT_MAX} printable ASCII characters")
    return value


def _flag(fields: Mapping[str, Any], name: str) -> bool:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise RemoteProtocolError(f"{name} must be true or false")
    return value is True


def _choice(fields: Mapping[str, Any], name: str, kind: type[_Choice], default: _Choice | None = None) -> _Choice:
    value: Any = default if fields.get(name) is None else fields[name]
    try:
        return kind(value)
    except ValueError:
        raise RemoteProtocolError(f"{name} must be one of {', '.join(kind)}") from None


def _phase(fields: Mapping[str, Any], default: Phase | None = None) -> Phase:
    value = default if fields.get("phase") is None else fields["phase"]
    if value not in _PHASES:
        raise RemoteProtocolError(f"phase must be one of {', '.join(_PHASES)}")
    return Phase(value)


def _hex(fields: Mapping[str, Any], name: str, size: int) -> bytes:
    try:
        value = bytes.fromhex(fields.get(name, ""))
    except (TypeError, ValueError):
        value = b""
    if len(value) != size:
        raise RemoteProtocolError(f"{name} must be {2 * size} hexadecimal digits")
    return value
