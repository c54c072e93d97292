"""The US consolidated tapes as they are multicast: CTS and CQS of the CTA, UTDF and UQDF of the UTP.

    CTA  block:   version u8 | size u16 | T or Q | O or V | number u32 | messages u8 | time u32 s, u32 ns | checksum
         message: length u16 | category | type | participant | time u32 s, u32 ns | u8 | u32 | reference u64 | ...
    UTP  in MoldUDP64, each message: version | category | type | participant | u8 | SIP time, its own time, token: u64

    T trades            TRADE; its sale conditions as flags; id: the participant's reference, or the trade's number
    T corrections       CORRECTION, T cancels TRADE_CANCEL: id of the original
    TS, AH statuses     STATUS, where it changes trading
    Q quotes            QUOTE of both sides, the first LINKED; their conditions are counted, price bands left out

Integers are big-endian. Every other message is counted. Times are the participants' own and may step back.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from isocast.feeds.mappings import US_TAPE
from isocast.feeds.outcomes import FeedFault
from isocast.feeds.packet_lines import EventRow, Line, PacketReader
from isocast.terms.conditions import quote_condition
from isocast.terms.market import PRICE_DECIMALS, SYMBOL_BYTES, EventFlag, EventKind, MarketStatus, Side

__all__ = ["TapeReader", "is_cta_block", "is_utp_message"]

_BLOCK = Struct(">BHccIBIIH")
_UNIT_NS = 10**9
_SHARES_FROM = 1_762_128_000
"""Quotes count round lots of 100 until 2025-11-03, and shares from then on."""
_LOT = 100
_LONG, _SHORT = 6, 2
"""Decimals of prices."""
_U32 = (1 << 32) - 1
_SIP = (ord("S"), ord("E"))
"""Participants that stand for the processor itself."""
_STATUSES = {"1": MarketStatus.HALTED, "2": MarketStatus.HALTED, "3": MarketStatus.TRADING, "4": MarketStatus.CLOSED}
_PAUSE = "M"
_ACTIONS = {
    "H": MarketStatus.HALTED,
    "P": MarketStatus.PAUSED,
    "Q": MarketStatus.QUOTING,
    "T": MarketStatus.TRADING,
}
"""Of all markets of the UTP."""
_NO_QUOTES = b"09G"
"""Security statuses of a long quote whose prices are limits: price bands, new and again, and trading ranges."""


class _Form(NamedTuple):
    """Where the fields of a message stand behind its header."""

    kind: EventKind
    fields: Struct
    names: tuple[str, ...]
    decimals: int = _LONG
    divisor: int = 1
    """Units of a quantity for each share."""


def _form(kind: EventKind, layout: str, names: str, decimals: int = _LONG, divisor: int = 1) -> _Form:
    return _Form(kind, Struct(">" + layout), tuple(names.split()), decimals, divisor)


_FRACTIONAL = 10**6
_LONG_TRADE = "symbol conditions price quantity"
_ORIGINAL = f"{_LONG_TRADE} original"
_REPORT = "symbol id price quantity conditions"
_REVISED = "symbol original price quantity conditions"
_QUOTE = "symbol bid bid_size ask ask_size"
_CONDITIONED = f"{_QUOTE} condition"
_CTA_HEAD, _UTP_HEAD = Struct(">HccBIIBIQ"), Struct(">cccBBQQQ")
_CTA = {
    "TL": _form(EventKind.TRADE, "11sx4sQI", _LONG_TRADE),
    "TT": _form(EventKind.TRADE, "5ssxHH", _LONG_TRADE, _SHORT),
    "TR": _form(EventKind.TRADE, "11sx4sQQ", _LONG_TRADE, _LONG, _FRACTIONAL),
    "TH": _form(EventKind.TRADE, "5ssxHI", _LONG_TRADE, _SHORT, _FRACTIONAL),
    "TX": _form(EventKind.TRADE_CANCEL, "11sx4sQI4xQ", _ORIGINAL),
    "TE": _form(EventKind.TRADE_CANCEL, "11sx4sQQ4xQ", _ORIGINAL, _LONG, _FRACTIONAL),
    "TC": _form(EventKind.CORRECTION, "11sx4sQI4xx8xQ", _ORIGINAL),
    "TO": _form(EventKind.CORRECTION, "11sx4sQQ4xx8xQ", _ORIGINAL, _LONG, _FRACTIONAL),
    "TS": _form(EventKind.STATUS, "11sx32xcc", "symbol status reason"),
    "QL": _form(EventKind.QUOTE, "11sxccQIQI", "symbol condition security bid bid_size ask ask_size"),
    "QQ": _form(EventKind.QUOTE, "5sHHHH", _QUOTE, _SHORT),
}
_WIDE_QUOTE = _form(EventKind.QUOTE, "11sHHHH", _QUOTE, _SHORT)
_WIDE_SIZES = frozenset(21 + best for best in (0, 5, 10, 18, 36))
"""A short quote of CQS 2.10 has a symbol of 11 bytes, not 5: its size, with or without best quotes behind it, tells."""
_UTP = {
    **dict.fromkeys(("QE", "QC"), _form(EventKind.QUOTE, "5sHHHHc", _CONDITIONED, _SHORT)),
    **dict.fromkeys(("QF", "QD"), _form(EventKind.QUOTE, "8x11sQIQIc", _CONDITIONED)),
    "TA": _form(EventKind.TRADE, "8x5sQHH4s", _REPORT, _SHORT),
    "TW": _form(EventKind.TRADE, "8x11sQQI4s", _REPORT),
    "TM": _form(EventKind.TRADE, "8x5sQHQ4s", _REPORT, _SHORT, _FRACTIONAL),
    "TN": _form(EventKind.TRADE, "8x11sQQQ4s", _REPORT, _LONG, _FRACTIONAL),
    **dict.fromkeys(("TZ", "TO"), _form(EventKind.TRADE_CANCEL, "8x11sxQ", "symbol original")),
    "TY": _form(EventKind.CORRECTION, "8x11sQ19x8xQI4s", _REVISED),
    "TP": _form(EventKind.CORRECTION, "8x11sQ23x8xQQ4s", _REVISED, _LONG, _FRACTIONAL),
    "AH": _form(EventKind.STATUS, "11sc", "symbol action"),
}
_UTP_CATEGORIES = b"QTCAV"


def is_cta_block(raw: bytes) -> bool:
    """Whether a datagram is a block of CTS or CQS."""
    return len(raw) >= _BLOCK.size and int.from_bytes(raw[1:3]) == len(raw) and raw[3] in b"TQ" and raw[4] in b"OV"


def is_utp_message(raw: bytes) -> bool:
    """Whether a message of a MoldUDP64 packet is one of UTDF or UQDF: no message of ITCH begins so."""
    return len(raw) >= _UTP_HEAD.size and raw[0] == ord("1") and raw[1] in _UTP_CATEGORIES


class TapeReader(PacketReader):
    """Reads blocks of the CTA and messages of the UTP."""

    def receive_block(self, raw: bytes, where: int, line: Line) -> None:
        """One block of the CTA."""
        _, _, _, _, number, count, seconds, nanos, _ = _BLOCK.unpack_from(raw)
        if not self._lines.is_fresh(raw, line, number, count, where):
            return
        at = _BLOCK.size
        for _ in range(count):
            size = int.from_bytes(raw[at : at + 2])
            if size < _CTA_HEAD.size or at + size > len(raw):
                what = f"a message of {size} bytes in a block of {len(raw)}: the rest of the block is not read"
                self._log.fault(FeedFault.BAD_LENGTH, where, what)
                return
            message = raw[at : at + size]
            _, category, kind, participant, own_s, own_ns, _, _, reference = _CTA_HEAD.unpack_from(message)
            time = own_s * _UNIT_NS + own_ns or seconds * _UNIT_NS + nanos
            self._read(_CTA, category + kind, message[_CTA_HEAD.size :], participant, time, reference, where)
            at += size

    def receive_packet(self, messages: list[bytes], raw: bytes, number: int, where: int, line: Line) -> None:
        """The messages of one MoldUDP64 packet of the UTP; a heartbeat and the end of a session have none."""
        if not messages:
            self._lines.reached(line, number, where)
            return
        if not self._lines.is_fresh(raw, line, number, len(messages), where):
            return
        for message in messages:
            if not is_utp_message(message):
                self._log.fault(FeedFault.BAD_LENGTH, where, f"{len(message)} bytes that are no message of the UTP")
                continue
            _, category, kind, participant, _, sip, own, _ = _UTP_HEAD.unpack_from(message)
            self._read(_UTP, category + kind, message[_UTP_HEAD.size :], participant, own or sip, 0, where)

    def _read(
        self, forms: dict[str, _Form], code: bytes, body: bytes, participant: int, time: int, number: int, where: int
    ) -> None:
        name = code.decode("latin-1")
        form = _WIDE_QUOTE if forms is _CTA and name == "QQ" and len(body) in _WIDE_SIZES else forms.get(name)
        shown = name if name.isascii() and name.isprintable() else code.hex()
        self._log.took(f"{'CTA' if forms is _CTA else 'UTP'} {shown}")
        if form is None:
            self._log.skip(f"{'CTA' if forms is _CTA else 'UTP'} {shown}: no event carries it")
            return
        if len(body) < form.fields.size:
            self._log.fault(FeedFault.BAD_LENGTH, where, f"a message of type {shown} is cut")
            return
        if participant in _SIP:
            self._log.skip("messages of the processor itself: they are of no floor")
            return
        values = dict(zip(form.names, form.fields.unpack_from(body), strict=True))
        floor, symbol = US_TAPE.get(chr(participant), "").encode(), _symbol(values["symbol"])
        if not floor or not symbol or not 0 < time < 1 << 63:
            what = "participant" if not floor else "symbol" if not symbol else "time"
            self._log.fault(FeedFault.BAD_VALUE, where, f"a {what} that no event can have")
            return
        self._fill(form, values, (floor, symbol), time, int(values.get("id", number)), where)

    def _fill(
        self,
        form: _Form,
        values: dict[str, bytes | int],
        place: tuple[bytes, bytes],
        time: int,
        number: int,
        where: int,
    ) -> None:
        match form.kind:
            case EventKind.QUOTE:
                self._quote(form, values, place, time, where)
            case EventKind.STATUS:
                self._status(values, place, time)
            case EventKind.TRADE_CANCEL:
                self._rows.append((EventKind.TRADE_CANCEL, 0, 0, *place, 0, 0, 0, time, int(values["original"])))
            case _:
                self._trade(form, values, place, time, int(values.get("original", number)), where)

    def _status(self, values: dict[str, bytes | int], place: tuple[bytes, bytes], time: int) -> None:
        status, reason, action = (
            bytes(values.get(name, b"")).decode("latin-1") for name in ("status", "reason", "action")
        )
        state = _STATUSES.get(status) or _ACTIONS.get(action)
        if state is None:
            self._log.skip("trading status that changes no trading")
            return
        if state is MarketStatus.HALTED and reason == _PAUSE:
            state = MarketStatus.PAUSED
        self._rows.append((EventKind.STATUS, 0, 0, *place, 0, 0, state, time, 0))

    def _trade(
        self,
        form: _Form,
        values: dict[str, bytes | int],
        place: tuple[bytes, bytes],
        time: int,
        number: int,
        where: int,
    ) -> None:
        price = self._ticks(int(values["price"]), form.decimals, where)
        quantity, fraction = divmod(int(values["quantity"]), form.divisor)
        if fraction:
            self._log.skip("fractions of shares beyond the whole ones of a trade")
        if price is None:
            return
        if not 0 < quantity <= _U32:
            if fraction:
                self._log.skip("trades of less than a share: no event carries them")
            else:
                self._log.fault(FeedFault.BAD_VALUE, where, f"a trade of {quantity} shares")
            return
        flags = self._sale_flags(bytes(values["conditions"]).decode("latin-1"))
        self._rows.append((form.kind, 0, int(flags), *place, price, quantity, 0, time, number))

    def _quote(
        self, form: _Form, values: dict[str, bytes | int], place: tuple[bytes, bytes], time: int, where: int
    ) -> None:
        if bytes(values.get("security", b" ")) in _NO_QUOTES:
            self._log.skip("price bands and ranges in the place of quotes: no event carries them")
            return
        lot = 1 if time >= _SHARES_FROM * _UNIT_NS else _LOT
        rows: list[EventRow] = []
        for side, name in ((Side.BUY, "bid"), (Side.SELL, "ask")):
            price = self._ticks(int(values[name]), form.decimals, where)
            size = int(values[f"{name}_size"]) * lot if price else 0
            if price is None or size > _U32:
                if price is not None:
                    self._log.fault(FeedFault.BAD_VALUE, where, f"a quote of {size} shares")
                return
            flags = int(EventFlag.LINKED) if side is Side.BUY else 0
            rows.append((EventKind.QUOTE, side, flags, *place, price, size, 0, time, 0))
        self._rows += rows
        # A short quote of the CTA has no place for a condition: it is regular.
        name = quote_condition(bytes(values.get("condition", b"R")).decode("latin-1"))
        self._log.quote_conditions[name] = self._log.quote_conditions.get(name, 0) + 1

    def _ticks(self, price: int, decimals: int, where: int) -> int | None:
        """A price in ticks; None, and a fault, if it is finer or beyond what an event has."""
        if decimals < PRICE_DECIMALS:
            return price * int(10 ** (PRICE_DECIMALS - decimals))
        ticks, finer = divmod(price, 10 ** (decimals - PRICE_DECIMALS))
        if finer or ticks >= 1 << 63:
            self._log.fault(FeedFault.BAD_VALUE, where, f"a price finer than 10^-{PRICE_DECIMALS}, or too large")
            return None
        return int(ticks)


def _symbol(raw: bytes | int) -> bytes:
    """Without its padding; empty if an event cannot have it."""
    text = bytes(raw).rstrip(b" \0") if isinstance(raw, bytes) else b""
    good = len(text) <= SYMBOL_BYTES and all(0x20 < code < 0x7F for code in text)  # noqa: PLR2004 - printable
    return text if good else b""
