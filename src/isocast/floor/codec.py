"""Floor events as bytes: what an opaque message of a floor's topic carries, one event in each message.

    0      1
    | kind | fields of the kind |     little-endian, without padding; text is a length and ASCII

An optional field is there where its bit is set. An event has one spelling: bytes behind it, unknown bits and text that
is not printable are refused, so that no two sites read the same bytes in two ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum, IntFlag
from functools import lru_cache
from itertools import pairwise
from struct import Struct, error
from typing import Any, Final, TypeVar, assert_never

from isocast.floor.events import (
    AuctionKind,
    Bid,
    Cancel,
    Commit,
    Crossing,
    Directory,
    Event,
    Lot,
    MarketKind,
    Order,
    OwnRule,
    Phase,
    PriceRule,
    Replace,
    Reveal,
    Schedule,
    Share,
    Status,
    Take,
    Wake,
)
from isocast.terms.errors import LocalProtocolError, RemoteProtocolError
from isocast.terms.market import Side

__all__ = [
    "CHANGES_MAX",
    "DIGEST_BYTES",
    "NONCE_BYTES",
    "SYMBOL_MAX",
    "account_of",
    "decode_event",
    "encode_event",
    "floor_topic",
    "is_cancel",
    "is_order",
    "symbol_of",
]

SYMBOL_MAX: Final = 12
DIGEST_BYTES: Final = 32
NONCE_BYTES: Final = 16
_SYMBOL_CHARACTERS: Final = bytes(range(0x21, 0x7F))


class _Kind(IntEnum):
    DIRECTORY = 1
    STATUS = 2
    ORDER = 3
    CANCEL = 4
    REPLACE = 5
    LOT = 6
    COMMIT = 7
    REVEAL = 8
    BID = 9
    TAKE = 10
    SCHEDULE = 11
    WAKE = 12


class _Bit(IntFlag):
    MARKET = 1
    IMMEDIATE = 2
    ALL = 4
    POST_ONLY = 8
    DAY = 16
    OFFER = 32
    TRIGGER = 64
    DEADLINE = 128
    UNTIL = 256
    AT_OPEN = 512
    AT_CLOSE = 1024
    DISPLAY = 2048


_ORDER_BITS: Final = int(sum(_Bit))
_ORDER_KIND: Final = bytes([_Kind.ORDER])
_ORDER_NUMBER: Final = int(_Kind.ORDER)
_CANCEL_NUMBER: Final = int(_Kind.CANCEL)
_FLAG_BITS: Final = tuple(
    int(bit) for bit in (_Bit.MARKET, _Bit.IMMEDIATE, _Bit.ALL, _Bit.POST_ONLY, _Bit.DAY, _Bit.OFFER)
)
_VALUE_BITS: Final = tuple(int(bit) for bit in (_Bit.TRIGGER, _Bit.DEADLINE, _Bit.UNTIL, _Bit.DISPLAY))
"""Of the flags of an order, and of the values that follow it, in the order of their fields. Whole numbers: a flag's own
`&` makes an object, and takes longer than all else that is done to an order."""
_FURTHER_BITS: Final = sum(_VALUE_BITS)
_CROSSING_BITS: Final = {Crossing.OPEN: int(_Bit.AT_OPEN), Crossing.CLOSE: int(_Bit.AT_CLOSE)}
_CROSSINGS: Final = {0: None, **{bit: at for at, bit in _CROSSING_BITS.items()}}
_CROSSING: Final = sum(_CROSSING_BITS.values())
_FLAGS: Final = tuple(tuple(bool(flags & bit) for bit in _FLAG_BITS) for flags in range(1 << len(_FLAG_BITS)))
"""Of every value of the lowest bits: the flags of an order."""
_ALL_FLAGS: Final = sum(_FLAG_BITS)
_SIDES: Final = {int(side): side for side in Side}
_REPLACE_QUANTITY, _REPLACE_PRICE, _REPLACE_TRIGGER = 1, 2, 4

_DIRECTORY = Struct("<qqBBBBIIqBqB")
_STATUS = Struct("<B")
_CHANGE = Struct("<qB")
_ORDER = Struct("<QIIBHqq")
_CANCEL = Struct("<QIq")
_REPLACE = Struct("<QIB")
_LOT = Struct("<QIBqqqqqqq")
_COMMIT = Struct(f"<QIQq{DIGEST_BYTES}s")
_REVEAL = Struct(f"<QIq{NONCE_BYTES}s")
_BID = Struct("<QIQqq")
_TAKE = Struct("<QIQq")
_WHOLE = Struct("<q")
_WHOSE = Struct("<BQI")
_OF_ACCOUNTS: Final = frozenset(
    int(kind) for kind in (_Kind.ORDER, _Kind.CANCEL, _Kind.REPLACE, _Kind.COMMIT, _Kind.REVEAL, _Kind.BID, _Kind.TAKE)
)
"""Kinds that begin with an id and its account."""

_MARKETS: Final = tuple(MarketKind)
_PRICES: Final = tuple(PriceRule)
_OWN: Final = tuple(OwnRule)
_SHARES: Final = tuple(Share)
_PHASES: Final = tuple(Phase)
_SCHEDULED: Final = (Phase.CLOSED, Phase.PRE_OPEN, Phase.OPEN, Phase.CLOSING)
CHANGES_MAX: Final = 32
"""Of one schedule: a day has four, and some floors a pause for lunch."""
_AUCTIONS: Final = tuple(AuctionKind)

T = TypeVar("T")


def floor_topic(floor: str) -> str:
    """The topic of a floor's events: orders, what its operator says, lots and bids."""
    return f"floor/{floor}"


def encode_event(event: Event) -> bytes:
    """The bytes of an event; LocalProtocolError for one that does not fit."""
    try:
        return _ORDER_KIND + _order(event) if isinstance(event, Order) else _encoded(event)
    except (error, UnicodeEncodeError) as reason:
        raise LocalProtocolError(f"an event that does not fit: {event}") from reason


def _encoded(event: Event) -> bytes:
    match event:
        case Directory():
            fixed = _DIRECTORY.pack(
                event.tick,
                event.lot,
                _MARKETS.index(event.market),
                _PRICES.index(event.price_rule),
                _OWN.index(event.own_rule),
                _SHARES.index(event.share),
                event.collar_bp,
                event.band_bp,
                event.pause_ns,
                event.reference is not None,
                event.reference or 0,
                _PHASES.index(event.phase),
            )
            return bytes([_Kind.DIRECTORY]) + _text(event.symbol) + fixed
        case Status():
            return bytes([_Kind.STATUS]) + _text(event.symbol or "") + _STATUS.pack(_PHASES.index(event.phase))
        case Schedule():
            changes = b"".join([_CHANGE.pack(at, _PHASES.index(phase)) for at, phase in event.changes])
            _insist_on_schedule(event.changes, LocalProtocolError)
            return bytes([_Kind.SCHEDULE, len(event.changes)]) + changes
        case Wake():
            return bytes([_Kind.WAKE])
        case Order():
            return _ORDER_KIND + _order(event)
        case Cancel():
            return bytes([_Kind.CANCEL]) + _CANCEL.pack(*event)
        case Replace():
            given = (event.quantity, event.price, event.trigger)
            bits = sum(1 << place for place, value in enumerate(given) if value is not None)
            values = b"".join(_WHOLE.pack(value) for value in given if value is not None)
            return bytes([_Kind.REPLACE]) + _REPLACE.pack(event.id, event.account, bits) + values
        case Lot():
            numbers = event.quantity, event.reserve, event.closes_at, event.window_ns, event.forfeit
            fixed = _LOT.pack(
                event.id, event.account, _AUCTIONS.index(event.auction), *numbers, event.start, event.step
            )
            return bytes([_Kind.LOT]) + _text(event.symbol) + fixed
        case Commit():
            if len(event.digest) != DIGEST_BYTES:
                raise LocalProtocolError(f"a commitment of {len(event.digest)} bytes")
            return bytes([_Kind.COMMIT]) + _COMMIT.pack(*event)
        case Reveal():
            if len(event.nonce) != NONCE_BYTES:
                raise LocalProtocolError(f"a nonce of {len(event.nonce)} bytes")
            return bytes([_Kind.REVEAL]) + _REVEAL.pack(*event)
        case Bid():
            return bytes([_Kind.BID]) + _BID.pack(*event)
        case Take():
            return bytes([_Kind.TAKE]) + _TAKE.pack(*event)
        case _:
            assert_never(event)


def _insist_on_schedule(
    changes: Sequence[tuple[int, Phase]], refusal: type[LocalProtocolError | RemoteProtocolError]
) -> None:
    """Not too many, ascending, and of phases that a day has."""
    instants = [at for at, _ in changes]
    rises = all(one < two for one, two in pairwise(instants))
    if len(changes) > CHANGES_MAX or not rises or any(phase not in _SCHEDULED for _, phase in changes):
        raise refusal(f"a schedule of {len(changes)} changes that do not rise, or with a phase that no day has")


@lru_cache(4_096)
def _text(text: str) -> bytes:
    if len(text) > SYMBOL_MAX or not text.isascii() or not (text.isprintable() or not text) or " " in text:
        raise LocalProtocolError(f"symbol {text!r}: 1 to {SYMBOL_MAX} printable ASCII characters are allowed")
    return bytes([len(text)]) + text.encode("ascii")


def _order(order: Order) -> bytes:
    number, account, symbol, side, quantity, price, owner, *flags, trigger, deadline, until, at, display = order
    bits = sum([bit for bit, is_set in zip(_FLAG_BITS, flags, strict=True) if is_set])
    further = b""
    for bit, value in zip(_VALUE_BITS, (trigger, deadline, until, display or None), strict=True):
        if value is not None:
            bits |= bit
            further += _WHOLE.pack(value)
    if at is not None:
        bits |= _CROSSING_BITS[at]
    return _ORDER.pack(number, account, owner, side, bits, quantity, price) + _text(symbol) + further


# Reading ------------------------------------------------------------------------------------------------------------


class _Reader:
    """Takes an event's bytes apart, front to back."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._at = 1

    def take(self, fields: Struct) -> tuple[Any, ...]:
        found = fields.unpack_from(self.data, self._at)
        self._at += fields.size
        return found

    def whole(self) -> int:
        return int(self.take(_WHOLE)[0])

    def text(self, *, may_be_empty: bool = False) -> str:
        if may_be_empty and self.data[self._at : self._at + 1] == b"\0":
            self._at += 1
            return ""
        found, self._at = _symbol_at(self.data, self._at)
        return found

    def end(self) -> None:
        if self._at != len(self.data):
            raise RemoteProtocolError(f"{len(self.data) - self._at} bytes behind an event")


def _symbol_at(data: bytes, at: int) -> tuple[str, int]:
    """A symbol, and where it ends."""
    if at >= len(data):
        raise RemoteProtocolError("an event of a floor ends too early")
    end = at + 1 + data[at]
    if end > len(data):
        raise RemoteProtocolError(f"the symbol of an event is {data[at + 1 :]!r}")
    return symbol_of(data[at + 1 : end]), end


@lru_cache(4_096)
def symbol_of(raw: bytes) -> str:
    """The symbol that some bytes of an event are; RemoteProtocolError for what is none."""
    if len(raw) > SYMBOL_MAX or raw.translate(None, _SYMBOL_CHARACTERS):
        raise RemoteProtocolError(f"the symbol of an event is {raw!r}")
    if not raw:
        raise RemoteProtocolError("an event without its symbol")
    return raw.decode("ascii")


def is_order(data: bytes) -> bool:
    """Whether bytes say that they are an order; whether they are one, `decode_event` says."""
    return data[0] == _ORDER_NUMBER


def is_cancel(data: bytes) -> bool:
    """The same of a cancel."""
    return data[0] == _CANCEL_NUMBER


def account_of(data: bytes) -> int | None:
    """Whose event it is, from its first bytes alone; None: a kind that does not begin with it, or no event at all."""
    if len(data) < _WHOSE.size or data[0] not in _OF_ACCOUNTS:
        return None
    account: int = _WHOSE.unpack_from(data)[2]
    return account


def decode_event(data: bytes) -> Event:
    """The event; RemoteProtocolError for anything that `encode_event` would not have made."""
    if not data:
        raise RemoteProtocolError("an event without bytes")
    try:
        if data[0] == _ORDER_NUMBER:
            return _read_order(data)
        reader = _Reader(data)
        event = _decoded(_Kind(data[0]), reader)
    except (error, LookupError, ValueError) as reason:
        raise RemoteProtocolError(f"no event of a floor: kind {data[0]}, {len(data)} bytes") from reason
    reader.end()
    return event


def _decoded(kind: _Kind, reader: _Reader) -> Event:
    match kind:
        case _Kind.DIRECTORY:
            return _read_directory(reader)
        case _Kind.STATUS:
            symbol = reader.text(may_be_empty=True) or None
            return Status(symbol, _one_of(_PHASES, reader.take(_STATUS)[0]))
        case _Kind.SCHEDULE:
            (count,) = reader.take(_STATUS)
            found = [reader.take(_CHANGE) for _ in range(count)]
            changes = tuple([(at, _one_of(_PHASES, phase)) for at, phase in found])
            _insist_on_schedule(changes, RemoteProtocolError)
            return Schedule(changes)
        case _Kind.WAKE:
            return Wake()
        case _Kind.ORDER:
            return _read_order(reader.data)
        case _Kind.CANCEL:
            return Cancel(*reader.take(_CANCEL))
        case _Kind.REPLACE:
            number, account, bits = reader.take(_REPLACE)
            if bits > _REPLACE_QUANTITY | _REPLACE_PRICE | _REPLACE_TRIGGER:
                raise RemoteProtocolError(f"a replace with unknown bits {bits}")
            quantity, price, trigger = [reader.whole() if bits & 1 << place else None for place in range(3)]
            return Replace(number, account, quantity, price, trigger)
        case _Kind.LOT:
            symbol = reader.text()
            number, account, auction, *numbers = reader.take(_LOT)
            return Lot(number, account, symbol, _one_of(_AUCTIONS, auction), *numbers)
        case _Kind.COMMIT:
            return Commit(*reader.take(_COMMIT))
        case _Kind.REVEAL:
            return Reveal(*reader.take(_REVEAL))
        case _Kind.BID:
            return Bid(*reader.take(_BID))
        case _Kind.TAKE:
            return Take(*reader.take(_TAKE))
        case _:
            assert_never(kind)


def _one_of(values: tuple[T, ...], index: int) -> T:
    if not 0 <= index < len(values):
        raise RemoteProtocolError(f"an event with an unknown choice {index}")
    return values[index]


def _read_directory(reader: _Reader) -> Directory:
    symbol = reader.text()
    tick, lot, market, price_rule, own, share, collar, band, pause, has_reference, reference, phase = reader.take(
        _DIRECTORY
    )
    if has_reference > 1 or (reference and not has_reference):
        raise RemoteProtocolError("a directory with a reference that it does not have")
    if tick <= 0 or lot <= 0 or pause < 0:
        raise RemoteProtocolError(f"a directory with tick {tick}, lot {lot}, pause {pause}")
    return Directory(
        symbol,
        tick,
        lot,
        _one_of(_MARKETS, market),
        _one_of(_PRICES, price_rule),
        _one_of(_OWN, own),
        _one_of(_SHARES, share),
        collar,
        band,
        pause,
        reference if has_reference else None,
        _one_of(_PHASES, phase),
    )


def _read_order(data: bytes) -> Order:
    """Most of what a floor hears: taken apart in place."""
    number, account, owner, side, bits, quantity, price = _ORDER.unpack_from(data, 1)
    crossing = bits & _CROSSING
    if bits & ~_ORDER_BITS or crossing == _CROSSING:
        raise RemoteProtocolError(f"an order with unknown bits {bits:#x}")
    symbol, at = _symbol_at(data, 1 + _ORDER.size)
    further: list[int | None] = [None] * len(_VALUE_BITS)
    for place, bit in enumerate(_VALUE_BITS if bits & _FURTHER_BITS else ()):
        if bits & bit:
            (further[place],) = _WHOLE.unpack_from(data, at)
            at += _WHOLE.size
    trigger, deadline, until, display = further
    if display == 0:
        raise RemoteProtocolError("an order that shows nothing")
    if at != len(data):
        raise RemoteProtocolError(f"{len(data) - at} bytes behind an event")
    fields = number, account, symbol, _SIDES[side], quantity, price, owner
    rest = trigger, deadline, until, _CROSSINGS[crossing], display or 0
    return Order._make((*fields, *_FLAGS[bits & _ALL_FLAGS], *rest))
