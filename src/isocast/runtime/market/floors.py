"""The floors of a market file (§7.3): who reports their trades, what trades there, and by which rules.

    [floor.XISO]
    currency = "USD"
    sources = ["xiso"]

    [[floor.XISO.symbols]]
    symbol = "ISO"
    tick = "0.01"

Every primary receiver runs every floor. What the file says of symbols becomes part of the sequence, and so of the
floor, when an operator publishes it: `isocast floor open`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import time
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import operator_id
from isocast.terms.instants import SECOND
from isocast.terms.market import Mic, to_ticks
from isocast.terms.quantities import suggestion
from isocast.terms.toml_files import Faults, Key, Kind, Table, Values, read_list, shown

__all__ = [
    "FLOOR_TABLE",
    "GATEWAY_TABLE",
    "SYMBOL_TABLE",
    "FloorHours",
    "FloorSymbol",
    "FloorTable",
    "floor_state_file",
    "read_floors",
]

_BASIS_MAX: Final = 10_000
_SYMBOL: Final = re.compile(r"[A-Z0-9][A-Z0-9.+=/^-]{0,11}")
_CURRENCY: Final = re.compile(r"[A-Z]{3}")
_SYMBOLS: Final = "symbols"
_GATEWAYS: Final = "gateways"
_GATEWAY_MAX: Final = (1 << 12) - 1
_PERSON: Final = re.compile(r"[a-z][a-z0-9-]{0,31}")
_NOT_PEOPLE: Final = ("box-office", "root", "revoke")
_SIGNERS: Final = 2

FLOOR_TABLE: Final = Table(
    "floor.CODE",
    "A trading floor that the primary receivers run together (§7.3), under its market identifier code: four capital"
    " letters or digits. It needs a core of one stripe.",
    (
        Key("currency", Kind.TEXT, "In which its prices are: three capital letters.", "USD", maximum=3),
        Key(
            "sources",
            Kind.NAMES,
            "The primary sources through which receivers publish its reports, and an operator what trades there. With"
            " several, each receiver has one to begin with and goes to the next when that is silent.",
            required=True,
        ),
        Key(
            "operators",
            Kind.NAMES,
            "Further primary sources through which an operator may say what trades there, halt it and open it.",
            [],
        ),
        Key(
            "correctors",
            Kind.NAMES,
            "Operators who may correct a confirmed trade, two together (`isocast floor correct`): `operator`, or names"
            " of people, whose keys `isocast keys init` makes and the roster lists. Empty: nobody corrects a trade.",
            [],
        ),
        Key(
            "maker_fee_bp",
            Kind.COUNT,
            "Of a trade's value, in basis points, for the order that was there first; in auctions for both.",
            0,
            maximum=_BASIS_MAX,
        ),
        Key("taker_fee_bp", Kind.COUNT, "The same for the order that came.", 0, maximum=_BASIS_MAX),
        Key(
            "calendar",
            Kind.TEXT,
            "Whose days and hours are its sessions, by the package exchange-calendars: such as XNYS. Empty: `opens` and"
            " `closes`.",
            "",
            maximum=20,
        ),
        Key("opens", Kind.TEXT, "When trading begins, without a calendar, as HH:MM or HH:MM:SS.", "", maximum=8),
        Key("closes", Kind.TEXT, "When it ends; before `opens`: on the next day.", "", maximum=8),
        Key("zone", Kind.TEXT, "By the clock of which place, such as Europe/London.", "UTC", maximum=40),
        Key("weekdays", Kind.COUNTS, "On which days, 0 is Monday.", [0, 1, 2, 3, 4], maximum=6),
        Key("pre_open", Kind.TIME, "How long orders are collected before the opening auction.", "30min", minimum=0),
        Key("closing", Kind.TIME, "How long they are before the closing auction.", "5min", minimum=0),
    ),
)

GATEWAY_TABLE: Final = Table(
    "floor.CODE.gateways",
    "Which gateway's accounts a primary source may speak for, one line each: `NAME = NUMBER`, the number of"
    " `isocast accounts`. Orders of other accounts through it are void, and so are those through sources that have no"
    " line. Without this table every source may carry every account's orders.",
    (Key("SOURCE", Kind.COUNT, "The gateway's number.", 0, maximum=_GATEWAY_MAX),),
)

SYMBOL_TABLE: Final = Table(
    "floor.CODE.symbols",
    "A list, `[[floor.CODE.symbols]]`: what trades on a floor.",
    (
        Key("symbol", Kind.TEXT, "1 to 12 capital letters, digits and .+-=/^.", required=True, minimum=1, maximum=12),
        Key("tick", Kind.TEXT, "The smallest step of its price, as a decimal.", "0.01", maximum=20),
        Key("lot", Kind.COUNT, "Quantities are whole multiples of it.", 1, minimum=1, maximum=1 << 31),
        Key(
            "market",
            Kind.CHOICE,
            "How it trades while it is open: order by order, or in an auction after every token.",
            "continuous",
            choices=("continuous", "batch"),
        ),
        Key(
            "price_rule",
            Kind.CHOICE,
            "Whose price a trade gets; `isocast floor rules` explains each.",
            "resting",
            choices=("resting", "buyer", "seller", "midpoint"),
        ),
        Key(
            "own_rule",
            Kind.CHOICE,
            "What happens where an order meets one of its own owner's.",
            "cancel-newest",
            choices=("cancel-newest", "cancel-oldest", "both", "none"),
        ),
        Key(
            "share",
            Kind.CHOICE,
            "Who fills at the last price level of an auction.",
            "time",
            choices=("time", "pro-rata"),
        ),
        Key(
            "collar_bp",
            Kind.COUNT,
            "How far from the reference a price may be on its aggressive side, in basis points; 0: anywhere.",
            0,
            maximum=_BASIS_MAX,
        ),
        Key(
            "band_bp",
            Kind.COUNT,
            "How far from the reference a trade may be before the symbol pauses, in basis points; 0: anywhere.",
            0,
            maximum=_BASIS_MAX,
        ),
        Key("pause", Kind.TIME, "How long it pauses then.", "5min", minimum=0, maximum=86_400 * SECOND),
        Key("reference", Kind.TEXT, "The price that counts as its last until it trades; empty: none.", "", maximum=20),
    ),
)


@dataclass(frozen=True, slots=True)
class FloorSymbol:
    """What trades on a floor. Prices are in price units, 10⁻⁴ of the currency."""

    symbol: str
    tick: int
    lot: int
    market: str
    price_rule: str
    own_rule: str
    share: str
    collar_bp: int
    band_bp: int
    pause_ns: int
    reference: int | None


@dataclass(frozen=True, slots=True)
class FloorHours:
    """The sessions of a floor's days; without calendar and hours it has none."""

    calendar: str = ""
    opens_ns: int | None = None
    """Since midnight, by the clock of the zone."""
    closes_ns: int | None = None
    zone: str = "UTC"
    weekdays: tuple[int, ...] = (0, 1, 2, 3, 4)
    pre_open_ns: int = 1_800 * SECOND
    closing_ns: int = 300 * SECOND

    @property
    def has_sessions(self) -> bool:
        """Whether days have instants."""
        return bool(self.calendar) or self.opens_ns is not None


@dataclass(frozen=True, slots=True)
class FloorTable:
    """One floor of a market."""

    code: str
    currency: str
    sources: tuple[str, ...]
    maker_fee_bp: int
    taker_fee_bp: int
    symbols: tuple[FloorSymbol, ...]
    operators: tuple[str, ...] = ()
    gateways: tuple[tuple[str, int], ...] = ()
    """Sources, and the gateway whose accounts each may speak for; none: every source for every account."""
    hours: FloorHours = FloorHours()
    correctors: tuple[str, ...] = ()
    """Operators who may correct a confirmed trade, two together."""


def read_floors(
    table: object, sources: Iterable[str], stripes: tuple[int, ...], faults: Faults
) -> tuple[FloorTable, ...]:
    """The floors of a file; what is wrong is among the faults. `sources` are the market's primary sources."""
    if not isinstance(table, Mapping):
        faults.add("floor", f"must be tables, [floor.CODE], not {shown(table)}")
        return ()
    if table and len(stripes) > 1:
        faults.add("floor", "needs ring.stripes of one: the orders of a floor and its reports are one sequence")
    known = list(sources)
    return tuple([_floor(code, entry, known, faults) for code, entry in table.items()])


def _floor(code: str, entry: object, sources: list[str], faults: Faults) -> FloorTable:
    name = f"floor.{code}"
    try:
        Mic(code)
    except LocalProtocolError:
        faults.add(name, "must have a code of four capital letters or digits, such as [floor.XISO]")
    if not isinstance(entry, Mapping):
        faults.add(name, f"must be a table, [{name}], not {shown(entry)}")
        entry = {}
    own = {key: value for key, value in entry.items() if key not in (_SYMBOLS, _GATEWAYS)}
    values = Values(own, FLOOR_TABLE.keys, faults, f"{name}.", others=(SYMBOL_TABLE,), known=[_SYMBOLS, _GATEWAYS])
    if not _CURRENCY.fullmatch(values.text("currency")):
        values.fault("currency", f"must be three capital letters, such as USD, not {shown(values.text('currency'))}")
    for key in ("sources", "operators"):
        for source in values.names(key):
            if source not in sources:
                values.fault(key, f"{source} is no primary source of this market{suggestion(source, sources)}")
    if "sources" in values and not values.names("sources"):
        values.fault("sources", "must name a primary source, through which reports enter the sequence")
    return FloorTable(
        code,
        values.text("currency"),
        values.names("sources"),
        values.count("maker_fee_bp"),
        values.count("taker_fee_bp"),
        _symbols(entry, name, faults),
        values.names("operators"),
        _gateways(entry.get(_GATEWAYS, {}), f"{name}.{_GATEWAYS}", sources, faults),
        _hours(values),
        _correctors(values),
    )


def _correctors(values: Values) -> tuple[str, ...]:
    names = values.names("correctors")
    for name in names:
        if not _PERSON.fullmatch(name) or name in _NOT_PEOPLE:
            values.fault("correctors", f"{shown(name)}: a person has up to 32 small letters, digits and hyphens")
    if names and len({operator_id(name) for name in names}) < _SIGNERS:
        values.fault("correctors", "must name two operators or more: a correction has the signatures of two")
    return names


def _hours(values: Values) -> FloorHours:
    opens, closes = _clock(values, "opens"), _clock(values, "closes")
    if (opens is None) != (closes is None) or (opens is not None and opens == closes):
        values.fault("closes", "must be given with opens, and be another time")
    if opens is not None and values.text("calendar"):
        values.fault("opens", "must be empty where there is a calendar")
    try:
        ZoneInfo(values.text("zone"))
    except (KeyError, ValueError, OSError):
        values.fault("zone", f"must be a place such as Europe/London, not {shown(values.text('zone'))}")
    return FloorHours(
        values.text("calendar"),
        opens,
        closes,
        values.text("zone"),
        values.counts("weekdays"),
        values.count("pre_open"),
        values.count("closing"),
    )


def _clock(values: Values, key: str) -> int | None:
    """Nanoseconds since midnight of a time of the day; None where there is none."""
    text = values.text(key)
    if not text:
        return None
    try:
        found = time.fromisoformat(text)
    except ValueError:
        values.fault(key, f"must be a time of the day such as 09:30, not {shown(text)}")
        return None
    return (found.hour * 3600 + found.minute * 60 + found.second) * SECOND


def _gateways(table: object, name: str, sources: list[str], faults: Faults) -> tuple[tuple[str, int], ...]:
    if not isinstance(table, Mapping):
        faults.add(name, f"must be a table, [{name}], not {shown(table)}")
        return ()
    found: list[tuple[str, int]] = []
    for source, number in table.items():
        if source not in sources:
            faults.add(f"{name}.{source}", f"is no primary source of this market{suggestion(source, sources)}")
        elif not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= _GATEWAY_MAX:
            faults.add(f"{name}.{source}", f"must be a gateway's number, 0 to {_GATEWAY_MAX:,}, not {shown(number)}")
        else:
            found.append((source, number))
    return tuple(found)


def _symbols(entry: Mapping[str, object], name: str, faults: Faults) -> tuple[FloorSymbol, ...]:
    listed = read_list({f"{name}.{_SYMBOLS}": entry.get(_SYMBOLS, [])}, _named(f"{name}.{_SYMBOLS}"), faults)
    found: dict[str, FloorSymbol] = {}
    for values in listed:
        symbol = values.text("symbol")
        if symbol and not _SYMBOL.fullmatch(symbol):
            values.fault("symbol", f"must be 1 to 12 capital letters, digits and .+-=/^, not {shown(symbol)}")
        if symbol in found:
            values.fault("symbol", f"{symbol} is there twice")
        reference = _price(values, "reference") if values.text("reference") else None
        found[symbol] = values.into(FloorSymbol, tick=_price(values, "tick"), reference=reference)
        if reference is not None and found[symbol].tick and reference % found[symbol].tick:
            values.fault("reference", f"must be whole ticks of {values.text('tick')}")
    if not listed and not faults.touch(name):
        faults.add(f"{name}.{_SYMBOLS}", f"nothing trades there: add a table [[{name}.{_SYMBOLS}]]")
    return tuple(found.values())


def _named(name: str) -> Table:
    return Table(name, SYMBOL_TABLE.explanation, SYMBOL_TABLE.keys)


def _price(values: Values, key: str) -> int:
    """A price above zero, in price units; 0, which is then among the faults, for anything else."""
    text = values.text(key)
    try:
        units = to_ticks(Decimal(text))
    except (InvalidOperation, LocalProtocolError):
        units = 0
    if units <= 0:
        values.fault(key, f"must be a decimal above 0 with at most four decimals, such as 0.01, not {shown(text)}")
        return 0
    return units


def floor_state_file(directory: Path, code: str) -> Path:
    """Where a site keeps the last state of a floor that all agree on, beside its journal."""
    return directory / f"floor-{code}.state"
