"""A floor's confirmed trades as market events: how they come onto the tape, under the floor's own code.

    kind TRADE | flags | floor | symbol | price | quantity | time: T_t of the trade's token | id: the trade's number

A trade of an auction has the flag AUCTION; one of a lot or an open offer is none of the book's, and changes volume
alone (NOT_LAST, NOT_HIGH_LOW). The record has 32 bits for a quantity: a larger trade is not on the tape.

A trade that two operators have corrected is followed by a CORRECTION with the right price and quantity, or by a
TRADE_CANCEL, under the same id; its time is T_t of the token that carries the correction.

Trades of one token are printed together, under a key that is a function of them. A print may still be in the sequence
twice, where one source took it without an answer and another took it again: a trade counts where its number is first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final

import numpy as np
import numpy.typing as npt

from isocast.floor.corrections import Correction
from isocast.floor.events import Trade
from isocast.terms.instruments import Instrument
from isocast.terms.market import EventFlag, EventKind
from isocast.wire.events import EVENT_DTYPE, EventArray, are_events
from isocast.wire.names import name_events

__all__ = [
    "FirstPrints",
    "amend_key",
    "amended",
    "amends",
    "is_on_tape",
    "is_printable",
    "print_key",
    "printed",
    "prints",
    "tape_topic",
]

_QUANTITY_MAX: Final = (1 << 32) - 1
_AUCTION: Final = int(EventFlag.AUCTION)
_OFF_BOOK: Final = int(EventFlag.NOT_LAST | EventFlag.NOT_HIGH_LOW)
_KEY_BYTES: Final = 16
_AMENDMENTS: Final = (EventKind.CORRECTION, EventKind.TRADE_CANCEL)
_PRINTED: Final = (EventKind.TRADE, *_AMENDMENTS)
_IS_ONE: Final[dict[tuple[EventKind, ...], npt.NDArray[np.bool_]]] = {
    kinds: np.isin(np.arange(256), kinds) for kinds in ((EventKind.TRADE,), _AMENDMENTS, _PRINTED)
}
"""Of some kinds, whether each value of a byte is one of them."""
_AMENDED_MAX: Final = 10_000
"""Corrections that are remembered to print none twice: they come again within some tokens, or not at all."""


def tape_topic(floor: str) -> str:
    """What an arbiter calls messages with market events of a floor; nothing is published under it."""
    return f"floor/{floor}/tape"


def is_printable(trade: Trade) -> bool:
    """Whether the record has room for a trade."""
    return trade.quantity <= _QUANTITY_MAX


def prints(floor: str, instant: int, trades: Iterable[Trade]) -> EventArray:
    """The market events of some trades of one token, in order; full names of their symbols go before."""
    chosen = [trade for trade in trades if is_printable(trade)]
    named = {symbol: Instrument(floor, symbol) for symbol in dict.fromkeys([trade.symbol for trade in chosen])}
    names = name_events([one for one in named.values() if one.symbol != one.name])
    names["time"] = instant
    events = np.zeros(len(chosen), EVENT_DTYPE)
    events["kind"], events["floor"], events["time"] = EventKind.TRADE, floor.encode("ascii"), instant
    symbols = {name: one.symbol.encode("ascii") for name, one in named.items()}
    events["symbol"] = [symbols[trade.symbol] for trade in chosen]
    events["price"] = [trade.price for trade in chosen]
    events["quantity"] = [trade.quantity for trade in chosen]
    events["id"] = [trade.number for trade in chosen]
    events["flags"] = [trade.is_auction * _AUCTION | trade.is_off_book * _OFF_BOOK for trade in chosen]
    return np.concatenate([names, events]) if len(names) else events


def amends(floor: str, instant: int, corrections: Sequence[Correction]) -> EventArray:
    """The market events of corrections in one token, in order; full names of their symbols go before.

    The tape has no more of a trade than was printed of it: of one that is too large, nothing is amended.
    """
    chosen = [one for one in corrections if is_printable(one.trade)]
    events = prints(floor, instant, [one.corrected for one in chosen])
    for event, one in zip(events[len(events) - len(chosen) :], chosen, strict=True):
        event["kind"] = EventKind.TRADE_CANCEL if one.is_void else EventKind.CORRECTION
    return events


def printed(floor: str, payload: bytes | memoryview) -> EventArray:
    """The trades of a floor in a block of the sequence; empty where there are none, or the block is no events."""
    return _ours(floor, payload, EventKind.TRADE)


def amended(floor: str, payload: bytes | memoryview) -> EventArray:
    """The same of corrections and cancels."""
    return _ours(floor, payload, *_AMENDMENTS)


def is_on_tape(floor: str, payload: bytes | memoryview) -> bool:
    """Whether a block has any of them: asked of every message of a market, and most have none."""
    return bool(len(_ours(floor, payload, *_PRINTED)))


def _ours(floor: str, payload: bytes | memoryview, *kinds: EventKind) -> EventArray:
    code = floor.encode("ascii")
    raw = bytes(payload)
    if code not in raw or not are_events(raw):
        return np.empty(0, EVENT_DTYPE)
    events = np.frombuffer(raw, EVENT_DTYPE)
    found: EventArray = events[_IS_ONE[kinds][events["kind"]] & (events["floor"] == code)]
    return found


def print_key(floor: str, trades: Sequence[Trade]) -> bytes:
    """Under which the trades of one token are printed, whoever does it."""
    said = b"%b %d %d" % (floor.encode("ascii"), trades[0].number, trades[-1].number)
    return blake2b(said, digest_size=_KEY_BYTES, person=b"isocast tape").digest()


def amend_key(floor: str, correction: Correction) -> bytes:
    """Under which a correction is printed, whoever does it."""
    said = b"%b %d %d" % (floor.encode("ascii"), correction.trade.number, correction.version)
    return blake2b(said, digest_size=_KEY_BYTES, person=b"isocast amend").digest()


class FirstPrints:
    """Which prints of some floors are the first of their trades: for readers who count nothing twice."""

    def __init__(self, floors: Iterable[str]) -> None:
        """Nothing was printed."""
        self._runs: dict[bytes, tuple[list[int], list[int]]] = {floor.encode("ascii"): ([], []) for floor in floors}
        """Of each floor, the first and the last numbers of what was printed without a hole: mostly one run."""
        self._amended: dict[bytes, None] = {}
        """The newest corrections and cancels, as records."""

    def first(self, events: EventArray) -> EventArray:
        """The events without prints of trades, and corrections of some, that were printed before."""
        if not self._runs:
            return events
        ours = np.isin(events["floor"], list(self._runs)) & np.isin(events["kind"], _PRINTED)
        if not ours.any():
            return events
        kept = np.ones(len(events), np.bool_)
        for place in np.flatnonzero(ours).tolist():
            event = events[place]
            if event["kind"] == EventKind.TRADE:
                kept[place] = self._is_first(event["floor"].item(), int(event["id"]))
            else:
                kept[place] = self._is_first_amendment(event.tobytes())
        return events if kept.all() else events[kept]

    def _is_first_amendment(self, record: bytes) -> bool:
        """A correction has the instant of its token: the same record again is the same correction."""
        if record in self._amended:
            return False
        self._amended[record] = None
        if len(self._amended) > _AMENDED_MAX:
            del self._amended[next(iter(self._amended))]
        return True

    def _is_first(self, floor: bytes, number: int) -> bool:
        firsts, lasts = self._runs[floor]
        at = bisect_right(firsts, number) - 1
        if at >= 0 and number <= lasts[at]:
            return False
        joins_next = at + 1 < len(firsts) and firsts[at + 1] == number + 1
        if at >= 0 and lasts[at] == number - 1:
            lasts[at] = lasts.pop(at + 1) if joins_next else number
            if joins_next:
                del firsts[at + 1]
        elif joins_next:
            firsts[at + 1] = number
        else:
            firsts.insert(at + 1, number)
            lasts.insert(at + 1, number)
        return True
