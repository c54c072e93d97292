"""NYSE's integrated feed, XDP and Pillar: every order of NYSE, Arca, American, National and Chicago.

    packet:  size u16 | delivery u8 | messages u8 | number u32 | time u32 s, u32 ns
    message: size u16 | type u16 | nanoseconds u32 | symbol index u32 | number of the symbol u32 | ...

      2 source time         no event; the second from which a system counts nanoseconds
      3 symbol mapping      DIRECTORY; says the symbol, floor, system and decimals of an index
     34 security status     STATUS, where it changes trading
    100 add                 ORDER
    101 modify              REPLACE
    102 delete              CANCEL
    103 execution           EXECUTION; UNPRINTED if not printed; sale conditions as flags; reference: the trade's number
    104 replace             CANCEL, LINKED to the ORDER with the new number
    110 hidden trade        TRADE; UNPRINTED if not printed; sale conditions as flags
    111 cross               TRADE in an AUCTION
    112 trade cancel        TRADE_CANCEL

Integers are little-endian. Messages say nanoseconds only: the second is the packet's, or the one before. On a day that
is sent again, which shows when a system announces a second, it is the one that the symbol's system announced last. A
feed that was joined behind its mappings names no symbols: its messages are faults, and left out. Sale conditions are
Pillar's; XDP has another number in their place, which is not taken for some.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, NamedTuple

from isocast.feeds.mappings import US_TAPE
from isocast.feeds.outcomes import FeedFault, FeedLog
from isocast.feeds.packet_lines import Line, PacketReader
from isocast.terms.conditions import TAPE_CONDITIONS
from isocast.terms.market import PRICE_DECIMALS, SYMBOL_BYTES, EventFlag, EventKind, MarketStatus, Side

__all__ = ["PillarReader", "is_pillar_packet"]

_HEADER = Struct("<HBBIII")
_HEAD = Struct("<HH")
_UNIT_NS = 10**9
_DELIVERY = (1, *range(10, 22))
_RESET, _REFRESHES = 12, (17, 18, 19, 20)
_SCALE_MAX = 8
_SYSTEMS = 256
_SECOND, _MAPPING, _STATUS = 2, 3, 34
_ADD, _MODIFY, _DELETE, _EXECUTE, _REPLACE = 100, 101, 102, 103, 104
_HIDDEN, _CROSS, _CANCEL = 110, 111, 112
_LAYOUTS = {
    _SECOND: Struct("<III"),
    _MAPPING: Struct("<I11sxHBcBcH10xHH2x"),
    _STATUS: Struct("<IIIIcc"),
    _ADD: Struct("<IIIQIIc"),
    _MODIFY: Struct("<IIIQII"),
    _DELETE: Struct("<IIIQ"),
    _EXECUTE: Struct("<IIIQIIIB"),
    _REPLACE: Struct("<IIIQQII"),
    _HIDDEN: Struct("<IIIIIIB"),
    _CROSS: Struct("<IIIIIIc"),
    _CANCEL: Struct("<IIII"),
}
_SIDES = {b"B": Side.BUY, b"S": Side.SELL}
_STATES = {
    b"3": MarketStatus.HALTED,
    b"4": MarketStatus.HALTED,
    b"5": MarketStatus.TRADING,
    b"6": MarketStatus.CLOSED,
    b"P": MarketStatus.QUOTING,
    b"E": MarketStatus.TRADING,
    b"O": MarketStatus.TRADING,
    b"L": MarketStatus.TRADING,
    b"X": MarketStatus.CLOSED,
}
_PAUSE = b"M"
_PRINTED = 1
_SALES = {_EXECUTE: 34, _HIDDEN: 25}
"""Where in a body the four letters of sale conditions stand."""
_SALE_BYTES = 4
_SETTLEMENTS = b"@CNR"
"""What the first of them is."""
_LETTERS = {" ", *TAPE_CONDITIONS}
_CROSSES = {b"E": EventFlag.OPENING, b"O": EventFlag.OPENING, b"5": EventFlag.OPENING, b"6": EventFlag.CLOSING}
_MARKETS = {1: "XNYS", 3: "ARCX", 9: "XASE", 10: "XCIS", 11: "XCHI"}


class _Security(NamedTuple):
    floor: bytes
    symbol: bytes
    scale: int
    """Decimals of its prices."""
    system: int
    """Which of the exchange's systems it trades on."""


def is_pillar_packet(raw: bytes) -> bool:
    """Whether a datagram is a packet of this feed: its size, and messages that fill it exactly."""
    if len(raw) < _HEADER.size or int.from_bytes(raw[:2], "little") != len(raw) or raw[2] not in _DELIVERY:
        return False
    at = _HEADER.size
    for _ in range(raw[3]):
        at += max(int.from_bytes(raw[at : at + 2], "little"), 1)
    return at == len(raw)


class PillarReader(PacketReader):
    """Reads packets of NYSE Pillar."""

    def __init__(self, log: FeedLog) -> None:
        """No security is known."""
        super().__init__(log)
        self._securities: dict[int, _Security] = {}
        self._sides: dict[tuple[int, int], Side] = {}
        """Of the orders that stand, by index and number."""
        self._seconds: dict[int, int] = {}
        """What each system announced last, where that is not the time at which it is sent."""

    def receive(self, raw: bytes, where: int, line: Line) -> None:
        """One packet."""
        _, delivery, count, number, seconds, nanos = _HEADER.unpack_from(raw)
        if delivery == _RESET:
            self._lines.restart(line)
        if delivery in _REFRESHES:
            self._log.skip("messages of a refresh: they repeat what was said", count)
            return
        if not self._lines.is_fresh(raw, line, number, count, where):
            return
        at = _HEADER.size
        for _ in range(count):
            size, kind = _HEAD.unpack_from(raw, at) if at + _HEAD.size <= len(raw) else (0, 0)
            if size < _HEAD.size or at + size > len(raw):
                what = f"a message of {size} bytes in a packet of {len(raw)}: the rest of the packet is not read"
                self._log.fault(FeedFault.BAD_LENGTH, where, what)
                return
            self._message(kind, raw[at + _HEAD.size : at + size], (seconds, nanos), where)
            at += size

    def _message(self, kind: int, body: bytes, sent: tuple[int, int], where: int) -> None:
        self._log.took(f"NYSE {kind}")
        layout = _LAYOUTS.get(kind)
        if layout is None:
            self._log.skip(f"NYSE {kind}: no event carries it")
            return
        if len(body) < layout.size:
            self._log.fault(FeedFault.BAD_LENGTH, where, f"a message of type {kind} has {len(body)} bytes")
            return
        values = layout.unpack_from(body)
        if kind == _SECOND:
            self._announced(values[0], values[2], sent[0])
            return
        if kind == _MAPPING:
            self._learn(values, sent, where)
            return
        stamped = kind == _STATUS  # It says its second, before the nanoseconds.
        index, rest = (values[2], values[4:]) if stamped else (values[1], values[3:])
        security = self._securities.get(index)
        if security is None:
            self._log.fault(FeedFault.UNKNOWN_SYMBOL, where, "a symbol index that no mapping has named")
            return
        time = values[0] * _UNIT_NS + values[1] if stamped else self._time(security, values[0], sent)
        if not 0 < time < 1 << 63:
            self._log.fault(FeedFault.BAD_VALUE, where, "a time that no event can have")
        elif stamped:
            self._status(security, time, *rest)
        elif kind in (_HIDDEN, _CROSS, _CANCEL):
            self._trade(kind, security, (*rest, self._sold(kind, body)), time, where)
        else:
            self._order(kind, index, security, (*rest, self._sold(kind, body)), time, where)

    def _announced(self, system: int, second: int, sent: int) -> None:
        """Kept only for a day that is sent again: in a live feed the packets' own seconds survive a lost message."""
        if abs(second - sent) <= 1:
            self._seconds.pop(system, None)
        elif system < _SYSTEMS:
            self._seconds[system] = second

    def _time(self, security: _Security, nanos: int, sent: tuple[int, int]) -> int:
        """Of a message that says nanoseconds only."""
        second = self._seconds.get(security.system, sent[0] - (nanos > sent[1]))
        return second * _UNIT_NS + nanos

    def _sold(self, kind: int, body: bytes) -> EventFlag:
        """What the sale conditions of a trade say of it."""
        at = _SALES.get(kind)
        letters = body[at : at + _SALE_BYTES] if at else b""
        if len(letters) < _SALE_BYTES or letters[0] not in _SETTLEMENTS:
            return EventFlag(0)
        text = letters.decode("latin-1")
        return self._sale_flags(text) if set(text) <= _LETTERS else EventFlag(0)

    def _learn(self, values: tuple[Any, ...], sent: tuple[int, int], where: int) -> None:
        index, raw, market, system, exchange, scale, _, lot, step, _ = values
        symbol = raw.rstrip(b" \0")
        floor = _MARKETS.get(market) or US_TAPE.get(exchange.decode("latin-1"), "")
        good = 0 < len(symbol) <= SYMBOL_BYTES and all(0x20 < code < 0x7F for code in symbol)  # noqa: PLR2004
        if not good or not floor or scale > _SCALE_MAX:
            self._log.fault(FeedFault.BAD_VALUE, where, "a symbol, market or scale that no event can have")
            return
        known = self._securities[index] = _Security(floor.encode(), symbol, scale, system)
        time = sent[0] * _UNIT_NS + sent[1]
        self._put(EventKind.DIRECTORY, known, time, index, self._ticks(known, step, where) or 0, lot)

    def _put(
        self, kind: EventKind, security: _Security, time: int, number: int, price: int = 0, size: int = 0, **more: int
    ) -> None:
        """One event; `more` are side, flags and reference."""
        side, flags, reference = (more.get(name, 0) for name in ("side", "flags", "reference"))
        self._rows.append((kind, side, flags, security.floor, security.symbol, price, size, reference, time, number))

    def _ticks(self, security: _Security, price: int, where: int) -> int | None:
        """A price in ticks; None, and a fault, if it is finer."""
        if security.scale <= PRICE_DECIMALS:
            return price * int(10 ** (PRICE_DECIMALS - security.scale))
        ticks, finer = divmod(price, 10 ** (security.scale - PRICE_DECIMALS))
        if finer:
            self._log.fault(FeedFault.BAD_VALUE, where, f"a price finer than 10^-{PRICE_DECIMALS}")
            return None
        return int(ticks)

    def _status(self, security: _Security, time: int, status: bytes, reason: bytes) -> None:
        state = _STATES.get(status)
        if state is None:
            self._log.skip("security status that changes no trading")
            return
        if state is MarketStatus.HALTED and reason == _PAUSE:
            state = MarketStatus.PAUSED
        self._put(EventKind.STATUS, security, time, 0, reference=state)

    def _trade(self, kind: int, security: _Security, values: tuple[Any, ...], time: int, where: int) -> None:
        """Trades of no displayed order: a number, a price, a volume, and how they came about."""
        if kind == _CANCEL:
            self._put(EventKind.TRADE_CANCEL, security, time, values[0])
            return
        number, raw, size, how, sold = values
        price = self._ticks(security, raw, where)
        if kind == _CROSS:
            flags = EventFlag.AUCTION | _CROSSES.get(how, EventFlag(0))
        else:
            flags = sold if how == _PRINTED else EventFlag.UNPRINTED
        if price is None:
            return
        if not size:
            self._log.skip("trades of no shares")
            return
        reference = how[0] if kind == _CROSS else 0
        self._put(EventKind.TRADE, security, time, number, price, size, flags=flags, reference=reference)

    def _order(
        self, kind: int, index: int, security: _Security, values: tuple[Any, ...], time: int, where: int
    ) -> None:
        """What happens to a displayed order; its side is in the message that entered it."""
        order, *rest = values
        if kind == _DELETE:
            if self._sides.pop((index, order), None) is None:
                self._log.fault(FeedFault.UNKNOWN_ORDER, where, f"NYSE {kind}: an order that was not entered")
            self._put(EventKind.CANCEL, security, time, order)
            return
        raw = rest[0] if kind in (_ADD, _MODIFY) else rest[1]
        price = self._ticks(security, raw, where)
        side = _SIDES.get(rest[2]) if kind == _ADD else self._sides.get((index, order))
        if price is None:
            return
        if side is None and kind == _ADD:
            self._log.fault(FeedFault.BAD_VALUE, where, "an order whose side is neither B nor S")
            return
        if side is None:
            self._log.fault(FeedFault.UNKNOWN_ORDER, where, f"NYSE {kind}: an order that was not entered")
        own = side or Side.NONE
        if kind == _EXECUTE:
            trade, _, size, printed, sold = rest
            flags = sold if printed == _PRINTED else EventFlag.UNPRINTED
            self._put(EventKind.EXECUTION, security, time, order, price, size, side=own, flags=flags, reference=trade)
        elif kind == _ADD:
            self._sides[index, order] = own
            self._put(EventKind.ORDER, security, time, order, price, rest[1], side=own)
        elif kind == _MODIFY:
            self._put(EventKind.REPLACE, security, time, order, price, rest[1], side=own)
        elif side is not None:
            new, _, size, _ = rest
            self._sides[index, new] = self._sides.pop((index, order))
            self._put(EventKind.CANCEL, security, time, order, flags=EventFlag.LINKED)
            self._put(EventKind.ORDER, security, time, new, price, size, side=own)
