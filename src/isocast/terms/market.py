"""What markets talk about: kinds of events, sides, symbols, floors, statuses, and prices as integer ticks.

A price is a whole number of ticks of 10^-4 of the currency's unit, the resolution of the feeds that we read,
in 64 bits: 32 bits would end at 429,496.7295, and a share has been dearer than that.
"""

from __future__ import annotations

from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from enum import IntEnum, IntFlag, StrEnum
from typing import Self

from isocast.terms.errors import LocalProtocolError

__all__ = [
    "MAX_TICKS",
    "MIC_BYTES",
    "PRICE_DECIMALS",
    "SYMBOL_BYTES",
    "TICKS_PER_UNIT",
    "EventFlag",
    "EventKind",
    "Grade",
    "MarketStatus",
    "Mic",
    "Side",
    "Symbol",
    "from_ticks",
    "to_ticks",
]

SYMBOL_BYTES = 8
MIC_BYTES = 4

PRICE_DECIMALS = 4
TICKS_PER_UNIT = 10**PRICE_DECIMALS
"""1.0000 is 10,000 ticks."""
MAX_TICKS = (1 << 63) - 1

_EXACT = Context(traps=[Inexact, InvalidOperation, Overflow])
"""Raises where the usual context would round."""
_UPPER_ALPHANUMERIC = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")


class EventKind(IntEnum):
    """What happened. Beside each: what its price, quantity, id and reference mean."""

    TRADE = 1
    """A trade without a displayed order: price, quantity, id of the trade."""
    QUOTE = 2
    """The best price of one side: price, quantity there. Both sides are two events, the first LINKED."""
    ORDER = 3
    """An order is entered: limit price, quantity, id of the order; reference: whose it is."""
    CANCEL = 4
    """An order shrinks by `quantity`, or goes when that is 0: id of the order; reference: whose it is."""
    REPLACE = 5
    """An order keeps its id and gets a new price and quantity; with a new id it is a LINKED CANCEL and an ORDER."""
    EXECUTION = 6
    """A displayed order trades: price, quantity, id of the order; reference: number of the trade."""
    CORRECTION = 7
    """A trade had another price or quantity: the right ones, id of the trade."""
    TRADE_CANCEL = 8
    """A trade is broken: id of the trade."""
    STATUS = 9
    """Trading in a symbol changes; reference: a `MarketStatus`."""
    DIRECTORY = 10
    """A symbol exists on a floor: price is its smallest step in ticks, quantity its round lot."""
    MARK = 11
    """An operator's or a session's mark; reference: its code, id: its number."""


class Side(IntEnum):
    """Which side of the market; NONE where the event has no side, or hides it."""

    NONE = 0
    BUY = 1
    SELL = 2


class EventFlag(IntFlag):
    """What else is true of an event. The top bit of neither byte is used: checks of whole blocks need it."""

    LINKED = 1
    """One change together with the event that follows."""
    MARKET = 2
    """An order at any price: `price` is 0."""
    IMMEDIATE = 4
    """An order that trades at once or not at all."""
    AUCTION = 8
    """A trade in an opening, closing or halt auction."""
    UNPRINTED = 16
    """A trade that volume must not count again."""
    TENTATIVE = 32
    """A trade that is not confirmed yet (protocol §4)."""
    COPIED = 64
    """An event of no symbol, which another stripe of the core has too and counts (§4.4)."""
    NOT_LAST = 256
    """A trade that sets the last price only while there is none (`terms.conditions`)."""
    NOT_HIGH_LOW = 512
    """A trade that sets neither high nor low nor last; volume counts it."""
    OPENING = 1024
    """A trade of an opening or reopening; with UNPRINTED, the price that a floor declares its open."""
    CLOSING = 2048
    """A trade of a close; with UNPRINTED, the price that a floor declares its close."""
    EXTENDED = 4096
    """A trade outside the regular hours."""
    ODD_LOT = 8192
    """A trade of less than a round lot."""
    LATE = 16384
    """A trade that is reported late or out of sequence."""


class MarketStatus(IntEnum):
    """Whether a symbol trades."""

    CLOSED = 1
    HALTED = 2
    PAUSED = 3
    QUOTING = 4
    TRADING = 5


class Symbol(str):
    """A traded thing on its floor: 1 to 8 printable ASCII characters without spaces."""

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        """Check the form."""
        if not (0 < len(text) <= SYMBOL_BYTES and text.isascii() and text.isprintable() and " " not in text):
            raise LocalProtocolError(f"symbol {text!r}: 1 to {SYMBOL_BYTES} printable ASCII characters are allowed")
        return super().__new__(cls, text)

    @property
    def fixed(self) -> bytes:
        """Eight bytes, zeros at the end."""
        return self.encode("ascii").ljust(SYMBOL_BYTES, b"\0")


class Mic(str):
    """A floor by its ISO 10383 market identifier code: four capital letters or digits, such as XNYS."""

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        """Check the form; whether the code is assigned is for reference data to say."""
        if len(text) != MIC_BYTES or not _UPPER_ALPHANUMERIC.issuperset(text):
            raise LocalProtocolError(f"floor {text!r}: must be a code of four capital letters or digits")
        return super().__new__(cls, text)

    @property
    def fixed(self) -> bytes:
        """Four bytes."""
        return self.encode("ascii")


def to_ticks(price: Decimal | int | str) -> int:
    """A price as people write it, to ticks, exactly: "12.34" is 123,400. Floats are refused by type."""
    try:
        ticks = _EXACT.multiply(Decimal(price), TICKS_PER_UNIT)
        fits, whole = abs(ticks) <= MAX_TICKS, ticks == ticks.to_integral_value()
    except (ArithmeticError, ValueError) as reason:
        raise LocalProtocolError(f"price {price!r} is not a number that ticks can carry") from reason
    if not fits:
        raise LocalProtocolError(f"price {price} is too large: the limit is {from_ticks(MAX_TICKS):f}")
    if not whole:
        raise LocalProtocolError(f"price {price} has more than {PRICE_DECIMALS} decimals")
    return int(ticks)


def from_ticks(ticks: int) -> Decimal:
    """Ticks to a price, for people: 123,400 is 12.3400."""
    return Decimal(ticks).scaleb(-PRICE_DECIMALS)


class Grade(StrEnum):
    """The two grades of service (§4.1, §7.1)."""

    COMPLETE = "complete"
    """Guaranteed delivery: every message, in order."""
    LATEST = "latest"
    """Best effort: the newest event of each key at once, and nothing that is stale."""
