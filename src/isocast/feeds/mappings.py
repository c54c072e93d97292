"""Which column of a table is what of an event: mappings by name or from a TOML file; US venues as ISO 10383."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from isocast.feeds.days import NEW_YORK
from isocast.terms.errors import ConfigurationError, LocalProtocolError
from isocast.terms.market import EventKind, Mic
from isocast.terms.quantities import suggestion
from isocast.terms.zones import zone_of

__all__ = [
    "BUILT_IN",
    "ORDER_KINDS",
    "SIDES",
    "US_TAPE",
    "TableMapping",
    "TimeForm",
    "clock_ns",
    "column_keys",
    "read_mapping",
]


# Letters of the US consolidated tapes to market identifier codes (ISO 10383).


US_TAPE = MappingProxyType(
    {
        "A": "XASE",
        "B": "XBOS",
        "C": "XCIS",
        "D": "XADF",
        "F": "TXSE",
        "G": "24EQ",
        "H": "EPRL",
        "I": "XISX",
        "J": "EDGA",
        "K": "EDGX",
        "L": "LTSE",
        "M": "XCHI",
        "N": "XNYS",
        "P": "ARCX",
        "Q": "XNAS",
        "T": "XNAS",
        "U": "MEMX",
        "V": "IEXG",
        "W": "CBSX",
        "X": "XPSX",
        "Y": "BATY",
        "Z": "BATS",
    }
)
"""D is FINRA: trades off the exchanges. W was the CBOE Stock Exchange until 2014."""


class TimeForm(StrEnum):
    """How a table writes times."""

    MIDNIGHT_NS = "midnight-ns"
    MIDNIGHT_US = "midnight-us"
    MIDNIGHT_MS = "midnight-ms"
    MIDNIGHT_S = "midnight-s"
    EPOCH_NS = "epoch-ns"
    EPOCH_US = "epoch-us"
    EPOCH_MS = "epoch-ms"
    EPOCH_S = "epoch-s"
    CLOCK = "clock"
    """093000.123456789 or 09:30:00.123456789; the point may be missing in the first."""
    ISO = "iso"
    """2019-01-30T09:30:00.123456789, in the table's zone, or in UTC with a Z at the end."""


@dataclass(frozen=True, slots=True)
class TableMapping:
    """Names of columns, and how to read them. An empty name: the table has no such column."""

    kind: str
    """"trade", "quote" or "order"."""
    time: str
    time_form: TimeForm
    columns: tuple[str, ...] = ()
    """Of a table without a header, in order; empty for one that has a header."""
    delimiter: str = ","
    zone: str = NEW_YORK
    day_begins: str = ""
    """Clock at which a trading day begins, on the evening before it, such as 18:00; empty: at midnight.

    Of times of day: the table is of one trading day, and times from then on are of the evening before."""
    floor: str = ""
    """Column of the venue; without one the floor is given from outside."""
    codes: Mapping[str, str] = field(default_factory=dict)
    """From the table's venues to market identifier codes; a code stands for itself."""
    symbol: str = ""
    price: str = ""
    quantity: str = ""
    id: str = ""
    """Without such a column trades are numbered by their rows, from 1 on."""
    reference: str = ""
    reference_base: int = 10
    kinds: str = ""
    """Column whose values in `kind_codes` make a row something else than a trade; of orders, what happens."""
    kind_codes: Mapping[str, str] = field(default_factory=dict)
    """Of orders: without any, the kinds are written by their own names."""
    side: str = ""
    """Of orders: column of the side."""
    side_codes: Mapping[str, str] = field(default_factory=dict)
    """From the table's sides to "buy" and "sell"; without any, those of `SIDES`."""
    new_id: str = ""
    """Of orders: column of the number that a replaced order gets; where it is empty, it keeps its own."""
    execution_price: str = ""
    """Of orders: column of the price of an execution; where it is empty, `price` has it."""
    conditions: str = ""
    """Column of sale conditions; a table with a header may lack it, which is noted."""
    condition_form: str = "letters"
    """"letters" of the US tapes, several in a cell; or "lean": one number in base 16, a bit for each."""
    bid: str = ""
    bid_quantity: str = ""
    ask: str = ""
    ask_quantity: str = ""
    price_decimals: int = -1
    """Prices are integers of 10^-n; -1: they are written with their point."""
    lot: int = 1
    """Shares for each unit of the quantity columns."""
    zero_side: str = "withdrawn"
    """A quote of price 0: the side is "withdrawn", or "absent" from this row and as it was."""
    trailer: str = ""
    """First cell of a last line that says, in its third one, how many rows there are."""


BUILT_IN: Mapping[str, TableMapping] = MappingProxyType(
    {
        "us-tape-trades": TableMapping(
            kind="trade",
            columns=("time", "price", "quantity", "venue", "condition", "suspicious"),
            time="time",
            time_form=TimeForm.MIDNIGHT_MS,
            floor="venue",
            codes=US_TAPE,
            price="price",
            quantity="quantity",
            reference="condition",
            reference_base=16,
            conditions="condition",
            condition_form="lean",
            price_decimals=4,
        ),
        "us-tape-quotes": TableMapping(
            kind="quote",
            columns=("time", "bid", "bid_quantity", "ask", "ask_quantity", "venue", "condition", "suspicious"),
            time="time",
            time_form=TimeForm.MIDNIGHT_MS,
            floor="venue",
            codes=US_TAPE,
            bid="bid",
            bid_quantity="bid_quantity",
            ask="ask",
            ask_quantity="ask_quantity",
            price_decimals=4,
            zero_side="absent",
        ),
        "taq-trades": TableMapping(
            kind="trade",
            delimiter="|",
            time="Time",
            time_form=TimeForm.CLOCK,
            floor="Exchange",
            codes=US_TAPE,
            symbol="Symbol",
            price="Trade Price",
            quantity="Trade Volume",
            id="Sequence Number",
            conditions="Sale Condition",
            kinds="Trade Correction Indicator",
            kind_codes={"10": "trade_cancel", "11": "trade_cancel", "12": "correction"},
            trailer="END",
        ),
        "taq-quotes": TableMapping(
            kind="quote",
            delimiter="|",
            time="Time",
            time_form=TimeForm.CLOCK,
            floor="Exchange",
            codes=US_TAPE,
            symbol="Symbol",
            bid="Bid_Price",
            bid_quantity="Bid_Size",
            ask="Offer_Price",
            ask_quantity="Offer_Size",
            lot=100,
            trailer="END",
        ),
    }
)
"""Tables that many people have: ticks of the US tape as QuantConnect's Lean keeps them, and NYSE's daily TAQ."""

_NAMES = tuple(item.name for item in fields(TableMapping))
_KINDS = ("trade", "quote", "order")
_NEEDED = {
    "trade": ("price", "quantity"),
    "quote": ("bid", "bid_quantity", "ask", "ask_quantity"),
    "order": ("kinds", "id", "side", "price", "quantity"),
}
_ORDER_COLUMNS = ("side", "new_id", "execution_price")
_TRADE_COLUMNS = ("time", "floor", "symbol", "price", "quantity", "id", "reference", "kinds")
_COLUMN_KEYS = (*_TRADE_COLUMNS, *_NEEDED["quote"], *_ORDER_COLUMNS)
SIDES = MappingProxyType(
    {
        name: side
        for side, names in (("buy", "B BUY BID 1"), ("sell", "S SELL ASK A -1"))
        for word in names.split()
        for name in (word, word.lower(), word.capitalize())
    }
)
"""How tables write sides."""
ORDER_KINDS = ("order", "cancel", "replace", "execution", "trade", "trade_cancel")
"""What can happen in a table of orders."""
_BASES = (10, 16)
_CLOCK = re.compile("([01][0-9]|2[0-3]):([0-5][0-9])")
_DECIMALS_MAX = 9
_LOT_MAX = 1_000_000


def read_mapping(text: str, file: str) -> TableMapping:
    """A mapping from TOML: the names of `TableMapping` are its keys; ConfigurationError names a wrong one."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as reason:
        raise ConfigurationError(file, "mapping", f"is not TOML: {reason}") from None
    base = table.pop("like", None)
    if base is not None and base not in BUILT_IN:
        raise ConfigurationError(
            file, "like", f'"{base}" is not one of {", ".join(BUILT_IN)}{suggestion(str(base), BUILT_IN)}'
        )
    values: dict[str, Any] = {} if base is None else {name: getattr(BUILT_IN[base], name) for name in _NAMES}
    for key, value in table.items():
        if key not in _NAMES:
            raise ConfigurationError(file, key, f"unknown key{suggestion(key, _NAMES)}; there are {', '.join(_NAMES)}")
        values[key] = _value(key, value, file)
    for key in ("kind", "time", "time_form"):
        if key not in values:
            raise ConfigurationError(file, key, "must be given")
    mapping = TableMapping(**values)
    _check(mapping, file)
    return mapping


def _value(key: str, value: object, file: str) -> object:
    """One value, of the type that its key wants."""
    wanted: type
    if key == "columns":
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise ConfigurationError(file, key, "must be a list of names")
        return tuple(value)
    if key == "time_form":
        if value not in list(TimeForm):
            raise ConfigurationError(file, key, f"{value!r} is not one of {', '.join(TimeForm)}")
        return TimeForm(str(value))
    if key == "codes" and value == "us-tape":
        return US_TAPE
    if key in ("codes", "kind_codes", "side_codes"):
        if not isinstance(value, dict) or not all(isinstance(code, str) for code in value.values()):
            raise ConfigurationError(file, key, "must be a table that maps texts of the file to names of ours")
        return value
    wanted = int if key in ("reference_base", "price_decimals", "lot") else str
    if not isinstance(value, wanted) or isinstance(value, bool):
        raise ConfigurationError(file, key, f"must be {'a whole number' if wanted is int else 'text'}, not {value!r}")
    return value


def _check(mapping: TableMapping, file: str) -> None:
    """Values that must fit each other."""

    def insist(*, right: bool, key: str, rule: str) -> None:
        if not right:
            raise ConfigurationError(file, key, rule)

    insist(right=mapping.kind in _KINDS, key="kind", rule=f'"{mapping.kind}" is none of "trade", "quote", "order"')
    for key in _NEEDED[mapping.kind]:
        insist(right=bool(getattr(mapping, key)), key=key, rule=f"a table of {mapping.kind}s needs this column")
    one = len(mapping.delimiter) == 1 and mapping.delimiter.isascii() and mapping.delimiter not in '"\r\n'
    insist(right=one, key="delimiter", rule=f"{mapping.delimiter!r} is not one character that can separate cells")
    insist(right=mapping.reference_base in _BASES, key="reference_base", rule="must be 10 or 16")
    insist(right=-1 <= mapping.price_decimals <= _DECIMALS_MAX, key="price_decimals", rule="must be -1 to 9")
    insist(right=1 <= mapping.lot <= _LOT_MAX, key="lot", rule=f"must be 1 to {_LOT_MAX:,}")
    insist(right=mapping.zero_side in ("withdrawn", "absent"), key="zero_side", rule='must be "withdrawn" or "absent"')
    insist(
        right=mapping.condition_form in ("letters", "lean"), key="condition_form", rule='must be "letters" or "lean"'
    )
    insist(right=mapping.trailer.isascii(), key="trailer", rule="must be ASCII")
    insist(right=len(set(mapping.columns)) == len(mapping.columns), key="columns", rule="has a name twice")
    if mapping.columns:
        for key in [*column_keys(mapping), *(["conditions"] if mapping.conditions else [])]:
            name = getattr(mapping, key)
            insist(right=name in mapping.columns, key=key, rule=f'"{name}" is not one of the columns')
    for text, code in mapping.codes.items():
        try:
            Mic(code)
        except LocalProtocolError as reason:
            raise ConfigurationError(file, f"codes.{text}", str(reason)) from None
    for text, kind in mapping.kind_codes.items():
        insist(
            right=kind.upper() in EventKind.__members__, key=f"kind_codes.{text}", rule=f'"{kind}" is no kind of event'
        )
        is_order = mapping.kind != "order" or kind.lower() in ORDER_KINDS
        insist(right=is_order, key=f"kind_codes.{text}", rule=f'"{kind}" is none of {", ".join(ORDER_KINDS)}')
    for text, side in mapping.side_codes.items():
        insist(right=side in ("buy", "sell"), key=f"side_codes.{text}", rule=f'"{side}" is neither "buy" nor "sell"')
    for key in _ORDER_COLUMNS:
        is_own = mapping.kind == "order" or not getattr(mapping, key)
        insist(right=is_own, key=key, rule='only a table of kind "order" has this column')
    zone_of(mapping.zone)
    clock_ns(mapping.day_begins, file, "day_begins")


def clock_ns(text: str, file: str, key: str) -> int:
    """Nanoseconds since midnight of a clock such as 18:00; 0 if nothing is said."""
    if not text:
        return 0
    found = _CLOCK.fullmatch(text)
    if found is None:
        raise ConfigurationError(file, key, f'"{text}" is not a clock such as 18:00')
    return (int(found[1]) * 60 + int(found[2])) * 60 * 10**9


def column_keys(mapping: TableMapping) -> list[str]:
    """The keys of a mapping that name columns which must be there."""
    return [key for key in _COLUMN_KEYS if getattr(mapping, key)]
