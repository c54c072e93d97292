"""Whose money it is: numbers of accounts, names of assets, and sums.

An account belongs to one gateway, which is in the upper 12 bits of its number, so no two gateways ever give out the
same one (settlement 11). Money is counted in price units, 10⁻⁴ of a currency, and shares one by one: always integers.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from isocast.terms.ids import GATEWAY_SHIFT

__all__ = [
    "AMOUNT_MAX",
    "CLEARING",
    "FEES",
    "FIRST_TRADER",
    "GATEWAYS_MAX",
    "PSEUDONYM_SECRET_MIN",
    "TRADERS_MAX",
    "UNITS",
    "WORLD",
    "account_number",
    "amount_text",
    "cash",
    "gateway_of",
    "house_name",
    "is_house",
    "name_of",
    "parse_amount",
    "parse_sum",
    "pseudonym",
    "shares",
]

GATEWAYS_MAX: Final = 1 << 12
TRADERS_MAX: Final = 1 << GATEWAY_SHIFT
WORLD, CLEARING, FEES = 0, 1, 2
"""A gateway's own accounts: where deposits come from, what passes to other gateways, what trading costs."""
_HOUSE: Final = {WORLD: "world", CLEARING: "clearing", FEES: "fees"}
FIRST_TRADER: Final = 16
UNITS: Final = 10_000
"""Price units in one of a currency."""
AMOUNT_MAX: Final = 1 << 62
"""No balance and no amount goes beyond it: a database's integers have 64 bits."""

PSEUDONYM_SECRET_MIN: Final = 16
"""Bytes: nobody tries all secrets, and without the secret nobody tries all accounts."""
_PSEUDONYM_BYTES: Final = 8
_CURRENCY: Final = re.compile(r"[A-Z]{3}")
_SYMBOL: Final = re.compile(r"[A-Z0-9][A-Z0-9.+=/^-]{0,11}")
# Commas group thousands and nothing else: half of the world writes "5,00" for five.
_SUM: Final = re.compile(r"(-?)([0-9]{1,15}|[0-9]{1,3}(?:,[0-9]{3}){1,4})(?:\.([0-9]{1,4}))? ?([A-Z]{3})")
_COUNT: Final = re.compile(r"[0-9]{1,18}|[0-9]{1,3}(?:,[0-9]{3}){1,5}")
_CASH, _SHARES = "cash:", "shares:"


@lru_cache(4_096)
def account_number(gateway: int, local: int) -> int:
    """The number, over all gateways, of an account of one."""
    if not 0 <= gateway < GATEWAYS_MAX or not 0 <= local < TRADERS_MAX:
        raise ValueError(f"gateway {gateway} of {GATEWAYS_MAX:,}, account {local} of {TRADERS_MAX:,}")
    return gateway << GATEWAY_SHIFT | local


def pseudonym(name: int | str, secret: bytes) -> str:
    """What stands for an account, an order or an id where others read: a keyed hash; without a secret, itself.

    The same everywhere under one secret, so that tables join. ValueError for a secret that could be guessed.
    """
    if not secret:
        return str(name)
    if len(secret) < PSEUDONYM_SECRET_MIN:
        raise ValueError(f"a secret for pseudonyms has at least {PSEUDONYM_SECRET_MIN} bytes")
    return blake2b(str(name).encode(), digest_size=_PSEUDONYM_BYTES, key=secret[:64]).hexdigest()


def gateway_of(account: int) -> int:
    """Whose account it is."""
    return account >> GATEWAY_SHIFT


def is_house(account: int) -> bool:
    """Whether an account is the gateway's own, without limits."""
    return account & TRADERS_MAX - 1 < FIRST_TRADER


def house_name(account: int) -> str:
    """`world`, `clearing` or `fees`."""
    return _HOUSE[account & TRADERS_MAX - 1]


def cash(currency: str) -> str:
    """The asset that a currency is; ValueError for what is none."""
    if not _CURRENCY.fullmatch(currency):
        raise ValueError(f"a currency has three capital letters, such as USD, not {currency!r}")
    return _CASH + currency


@lru_cache(4_096)
def shares(symbol: str) -> str:
    """The asset that a symbol's shares are; ValueError for what is none."""
    if not _SYMBOL.fullmatch(symbol):
        raise ValueError(f"a symbol has up to 12 capital letters, digits and .+-=/^, not {symbol!r}")
    return _SHARES + symbol


def name_of(asset: str) -> str:
    """The currency or the symbol."""
    return asset.partition(":")[2]


def parse_sum(text: str) -> tuple[str, int]:
    """The asset and the price units of a sum such as 1250.50 USD; ValueError with what is wrong."""
    found = _SUM.fullmatch(text)
    if found is None:
        raise ValueError(f"a sum has up to four decimals and a currency, such as '1250.50 USD', not {text!r}")
    sign, whole, part, currency = found.groups()
    units = int(whole.replace(",", "")) * UNITS + int((part or "").ljust(4, "0"))
    return cash(currency), -units if sign else units


def parse_amount(text: str, asset: str) -> int:
    """An amount of an asset: price units of a currency, or a number of shares; ValueError with what is wrong."""
    if asset.startswith(_CASH):
        other, units = parse_sum(text if text.endswith(name_of(asset)) else f"{text} {name_of(asset)}")
        if other != asset:
            raise ValueError(f"{text} is no sum of {name_of(asset)}")
        return units
    if not _COUNT.fullmatch(text):
        raise ValueError(f"a number of shares is a whole number, not {text!r}")
    return int(text.replace(",", ""))


def amount_text(asset: str, amount: int) -> str:
    """As people write it: 1,250.50 USD, 300 IBM."""
    if not asset.startswith(_CASH):
        return f"{amount:,} {name_of(asset)}"
    whole, part = divmod(abs(amount), UNITS)
    decimals = f"{part:04}"
    decimals = decimals[:2] if decimals.endswith("00") else decimals
    return f"{'-' if amount < 0 else ''}{whole:,}.{decimals} {name_of(asset)}"
