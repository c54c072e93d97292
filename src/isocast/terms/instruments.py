"""Instruments whose names or numbers do not fit a record as they are: each has a symbol that says its scale.

A record has eight characters for the symbol, 64 bits for the price and 32 for the quantity. An instrument with a longer
name, finer prices than 10^-4 or fractions of a unit travels under a coded symbol:

    ~ P Q c c c c c     P, Q: decimals of price and quantity, in the digits 0-9A-I and 0-9; c: a hash of the name

So whoever sees a record knows its numbers exactly, whatever else it has heard; and one symbol never has two scales. The
full name is in the directory of the market: DIRECTORY records with a side (`wire.names`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from hashlib import blake2b
from typing import NamedTuple

from isocast.terms.errors import LocalProtocolError
from isocast.terms.market import MAX_TICKS, PRICE_DECIMALS, Mic, Symbol

__all__ = [
    "CODE_MARK",
    "MAX_NAME",
    "MAX_PRICE_DECIMALS",
    "MAX_QUANTITY_DECIMALS",
    "PLAIN",
    "Instrument",
    "Scale",
    "check_name",
    "has_name",
    "scale_of",
    "to_whole",
]

MAX_NAME = 48
"""Bytes of UTF-8: two records carry them."""
MAX_PRICE_DECIMALS = 18
"""Follows: 64 bits with a sign have 18 whole digits."""
MAX_QUANTITY_DECIMALS = 9
"""Follows: 32 bits have 9 whole digits."""
CODE_MARK = "~"
_DIGITS = "0123456789ABCDEFGHI"
_HASHED = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_HASH_CHARACTERS = 5
_CODE = re.compile(rf"{CODE_MARK}[{_DIGITS}][0-9][0-9A-Za-z]{{{_HASH_CHARACTERS}}}")


class Scale(NamedTuple):
    """How many decimals the whole numbers of a record have."""

    price: int
    quantity: int

    def to_price(self, ticks: int) -> Decimal:
        """In units."""
        return Decimal(ticks).scaleb(-self.price)

    def to_quantity(self, whole: int) -> int | Decimal:
        """In units; whole ones are int."""
        return Decimal(whole).scaleb(-self.quantity) if self.quantity else whole


PLAIN = Scale(PRICE_DECIMALS, 0)
"""Of every symbol that is no code."""


def scale_of(symbol: str) -> Scale:
    """The scale that a symbol says."""
    if not symbol.startswith(CODE_MARK) or not _CODE.fullmatch(symbol):
        return PLAIN
    return Scale(_DIGITS.index(symbol[1]), int(symbol[2]))


def has_name(symbol: str, name: str) -> bool:
    """Whether a coded symbol may stand for a name: the directory of a market is other people's bytes."""
    return _CODE.fullmatch(symbol) is not None and symbol[3:] == _hashed(name)


def to_whole(value: Decimal | int | str, decimals: int, bits_most: int = MAX_TICKS) -> int:
    """A number in units as a whole number of 10^-decimals, exactly; ValueError if it is finer or too large."""
    try:
        number = Decimal(value)
        whole = number.scaleb(decimals) if number.is_finite() else None
    except (ArithmeticError, ValueError):
        raise ValueError(f"{value!r} is not a number") from None
    if whole is None or abs(whole) > bits_most:
        raise ValueError(
            f"{value} is too large for {decimals} decimals: at most {Decimal(bits_most).scaleb(-decimals)}"
        )
    if whole != whole.to_integral_value() or Decimal(int(whole)).scaleb(-decimals) != number:
        raise ValueError(f"{value} is finer than 10^-{decimals}, the scale of this instrument")
    return int(whole)


def _hashed(name: str) -> str:
    number = int.from_bytes(blake2b(name.encode(), digest_size=8, person=b"instrument").digest())
    text = ""
    for _ in range(_HASH_CHARACTERS):
        number, digit = divmod(number, len(_HASHED))
        text += _HASHED[digit]
    return text


def check_name(name: str) -> str:
    """A full name as it is; LocalProtocolError for what cannot be one."""
    if not (name.isprintable() and " " not in name and 0 < len(name.encode()) <= MAX_NAME):
        rule = f"1 to {MAX_NAME} bytes of UTF-8 without blanks and control characters are allowed"
        raise LocalProtocolError(f"instrument {name!r}: {rule}")
    return name


@dataclass(frozen=True, slots=True)
class Instrument:
    """A traded thing with its full name, and how fine its prices and quantities are.

    Instrument("XBIN", "BTC-USDT-PERPETUAL", price_decimals=8, quantity_decimals=3)
    """

    floor: str
    name: str
    """Up to 48 bytes of UTF-8 without blanks and control characters."""
    price_decimals: int = PRICE_DECIMALS
    """0 to 18."""
    quantity_decimals: int = 0
    """0 to 9; the largest quantity is 4,294,967,295 of the last decimal."""

    def __post_init__(self) -> None:
        Mic(self.floor)
        check_name(self.name)
        if not 0 <= self.price_decimals <= MAX_PRICE_DECIMALS:
            rule = f"price_decimals {self.price_decimals}: 0 to {MAX_PRICE_DECIMALS} are allowed"
            raise LocalProtocolError(f"instrument {self.name}: {rule}")
        if not 0 <= self.quantity_decimals <= MAX_QUANTITY_DECIMALS:
            rule = f"quantity_decimals {self.quantity_decimals}: 0 to {MAX_QUANTITY_DECIMALS} are allowed"
            raise LocalProtocolError(f"instrument {self.name}: {rule}")

    @property
    def scale(self) -> Scale:
        """Its decimals."""
        return Scale(self.price_decimals, self.quantity_decimals)

    @property
    def symbol(self) -> Symbol:
        """Under which it travels: its name, if that fits and has the usual scale; a code otherwise."""
        fits = len(self.name) <= 8 and self.name.isascii() and not self.name.startswith(CODE_MARK)  # noqa: PLR2004
        if fits and self.scale == PLAIN:
            return Symbol(self.name)
        return Symbol(f"{CODE_MARK}{_DIGITS[self.price_decimals]}{self.quantity_decimals}{_hashed(self.name)}")
