"""An arbiter's report as bytes: the trades of one token, the floor's state after it, and what is confirmed.

    | token | state | confirmed | part | parts | trades |   then for each trade
    | number | price | quantity | buy | sell | bits | symbol n | symbol |

Little-endian, without padding. A report that does not fit one message has parts, each whole in itself: token, state and
`confirmed` are in all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct, error
from typing import Final, NamedTuple

from isocast.floor.codec import SYMBOL_MAX
from isocast.floor.events import Trade
from isocast.floor.state import STATE_HASH_BYTES
from isocast.terms.errors import LocalProtocolError, RemoteProtocolError

__all__ = ["FloorReport", "cut_report", "decode_report", "encode_report", "joined", "report_topic", "reported_state"]

_HEAD: Final = Struct(f"<Q{STATE_HASH_BYTES}sQHHH")
_TRADE: Final = Struct("<QqqQQBB")
_OWN, _AUCTION, _OFF_BOOK = 1, 2, 4
_ALL_BITS: Final = _OWN | _AUCTION | _OFF_BOOK
_FLAGS: Final = tuple(tuple(bool(bits & bit) for bit in (_OWN, _AUCTION, _OFF_BOOK)) for bits in range(_ALL_BITS + 1))
_PARTS_MAX: Final = 0xFFFF
_SYMBOL_CHARACTERS: Final = bytes(range(0x21, 0x7F))


class FloorReport(NamedTuple):
    """What the arbiter of a token says of it (trading rules §3)."""

    token: int
    """Which it is about: t."""
    state: bytes
    """The state hash after t."""
    confirmed: int
    """All trades up to this number are confirmed; 0: none."""
    trades: tuple[Trade, ...] = ()
    """Those of t, in order; of this part, where there are several."""
    part: int = 0
    parts: int = 1


def report_topic(floor: str) -> str:
    """The topic of what a floor's arbiters say."""
    return f"floor/{floor}/report"


def reported_state(floor: str, token: int, topic: str, payload: bytes) -> bytes | None:
    """The hash of a floor's state behind a token, if this message is a report that names it."""
    if topic != report_topic(floor):
        return None
    try:
        found = decode_report(payload)
    except RemoteProtocolError:
        return None
    return found.state if found.token == token else None


def cut_report(report: FloorReport, most: int) -> list[FloorReport]:
    """Parts of at most `most` bytes that carry the same together."""
    room = most - _HEAD.size
    groups: list[list[Trade]] = [[]]
    used = 0
    for trade in report.trades:
        size = _TRADE.size + len(trade.symbol)
        if groups[-1] and used + size > room:
            groups.append([])
            used = 0
        groups[-1].append(trade)
        used += size
    return [report._replace(trades=tuple(trades), part=part, parts=len(groups)) for part, trades in enumerate(groups)]


def encode_report(report: FloorReport) -> bytes:
    """The bytes of one part; LocalProtocolError for what does not fit."""
    if len(report.state) != STATE_HASH_BYTES or not 0 <= report.part < report.parts <= _PARTS_MAX:
        raise LocalProtocolError(
            f"a report of {len(report.state)} bytes of state, part {report.part} of {report.parts}"
        )
    try:
        return _HEAD.pack(
            report.token, report.state, report.confirmed, report.part, report.parts, len(report.trades)
        ) + b"".join(map(_trade, report.trades))
    except (error, UnicodeEncodeError) as reason:
        raise LocalProtocolError(f"a report that does not fit: {report}") from reason


def _trade(trade: Trade) -> bytes:
    symbol = trade.symbol.encode("ascii")
    if not 0 < len(symbol) <= SYMBOL_MAX:
        raise LocalProtocolError(f"symbol {trade.symbol!r}: 1 to {SYMBOL_MAX} characters are allowed")
    bits = trade.is_own * _OWN | trade.is_auction * _AUCTION | trade.is_off_book * _OFF_BOOK
    fixed = _TRADE.pack(trade.number, trade.price, trade.quantity, trade.buy, trade.sell, bits, len(symbol))
    return fixed + symbol


def decode_report(data: bytes) -> FloorReport:
    """One part; RemoteProtocolError for anything that `encode_report` would not have made."""
    try:
        token, state, confirmed, part, parts, count = _HEAD.unpack_from(data)
        at = _HEAD.size
        trades: list[Trade] = []
        for _ in range(count):
            number, price, quantity, buy, sell, bits, length = _TRADE.unpack_from(data, at)
            at += _TRADE.size + length
            if bits > _ALL_BITS:
                raise RemoteProtocolError(f"a trade of a report with bits {bits}")
            trades.append(Trade(number, _symbol(data[at - length : at]), price, quantity, buy, sell, *_FLAGS[bits]))
    except error as reason:
        raise RemoteProtocolError(f"no report of a floor: {len(data)} bytes") from reason
    if at != len(data) or not part < parts:
        raise RemoteProtocolError(f"no report of a floor: {len(data)} bytes, part {part} of {parts}")
    return FloorReport(token, state, confirmed, tuple(trades), part, parts)


@lru_cache(4_096)
def _symbol(raw: bytes) -> str:
    if not 0 < len(raw) <= SYMBOL_MAX or raw.translate(None, _SYMBOL_CHARACTERS):
        raise RemoteProtocolError(f"a trade of a report with the symbol {raw!r}")
    return raw.decode("ascii")


def joined(parts: Sequence[FloorReport]) -> FloorReport:
    """The whole report of all its parts, in order."""
    first = parts[0]
    return first._replace(trades=tuple([trade for part in parts for trade in part.trades]), part=0, parts=1)
