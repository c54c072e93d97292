"""The stripe plan, in memory and as a file: which symbol travels on which narrow stripe, at which rate (§4.4).

Every symbol is in exactly one stripe. A symbol that no stripe names travels on the spare stripe of the core stripe in
which it was published. All receivers follow the same plan, told by its digest; a new one has a higher version and takes
effect by an ordered entry of the network's own.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from struct import Struct, error
from typing import Any

import numpy as np
import numpy.typing as npt

from isocast.striping.rates import RATE_MAX, parse_rate, rate_text
from isocast.terms.errors import ConfigurationError, LocalProtocolError, RemoteProtocolError
from isocast.terms.instants import SECOND
from isocast.terms.market import SYMBOL_BYTES, Symbol
from isocast.terms.quantities import duration_text, parse_duration, suggestion
from isocast.wire.limits import MAX_STRIPE
from isocast.wire.packets import SHORT_DIGEST_BYTES, ControlEntry, ControlKind, short_digest_of

__all__ = [
    "NAME_MAX",
    "NUMBER_MAX",
    "PLAN_BYTES_MAX",
    "STRIPES_MAX",
    "SYMBOLS_MAX",
    "VERSION_MAX",
    "EdgeStripe",
    "PlanNotice",
    "StripePlan",
    "plan_as_json",
    "plan_entry",
    "plan_from_mapping",
    "plan_text",
    "read_plan",
    "read_plan_entry",
]


NUMBER_MAX = (1 << 32) - 1
"""Follows: the edge stripe of a REL packet is 4 bytes."""
VERSION_MAX = (1 << 32) - 1
"""Follows: a snapshot for late joiners carries it in 4 bytes."""
STRIPES_MAX = 65_536
"""Bounds: eighty times the paper's largest figure (§4.4)."""
SYMBOLS_MAX = 1_000_000
"""Bounds: fourteen times the equities of the whole world."""
NAME_MAX = 64
PERIOD_MAX_NS = 3_600 * SECOND

_HEAD = Struct("<IQI")
_STRIPE = Struct("<IHQBHI")
_ENTRY = Struct(f"<{SHORT_DIGEST_BYTES}sII")

Symbols = npt.NDArray[np.bytes_]
Numbers = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class EdgeStripe:
    """One narrow stripe: a group of its own, and numbers of its own without holes."""

    number: int
    core: int
    """The core stripe whose messages it carries."""
    name: str
    rate: int
    """Bits a second, IP headers included, over any token period."""
    symbols: tuple[str, ...] = ()
    spare: bool = False
    """It takes what no stripe names."""
    conflated: bool = False
    """A single symbol that exceeds the rate at its peaks: it is conflated then."""


@dataclass(frozen=True)
class StripePlan:
    """All narrow stripes of a market, in the order of their numbers; symbols in alphabetical order."""

    version: int
    stripes: tuple[EdgeStripe, ...]
    token_period_ns: int = SECOND
    """τ_t for which it was made."""
    file: str = "stripe plan"
    """Where it came from, for messages about it; no part of the plan itself."""

    def __post_init__(self) -> None:
        """Put it into its one order, and refuse what breaks a rule."""
        ordered = sorted(
            [_sorted_symbols(stripe) for stripe in self.stripes], key=lambda stripe: (stripe.number, stripe.core)
        )
        object.__setattr__(self, "stripes", tuple(ordered))
        _check(self)

    def __eq__(self, other: object) -> bool:
        """Plans are equal by their content, not by the name of their file."""
        return isinstance(other, StripePlan) and self.digest == other.digest

    def __hash__(self) -> int:
        return int.from_bytes(self.digest[:8])

    @cached_property
    def digest(self) -> bytes:
        """16 bytes over everything that receivers must agree on."""
        parts = [_HEAD.pack(self.version, self.token_period_ns, len(self.stripes))]
        for stripe in self.stripes:
            name = stripe.name.encode()
            flags = stripe.spare | stripe.conflated << 1
            parts.append(
                _STRIPE.pack(stripe.number, stripe.core, stripe.rate, flags, len(name), len(stripe.symbols)) + name
            )
            parts += [Symbol(symbol).fixed for symbol in stripe.symbols]
        return short_digest_of(*parts)

    @cached_property
    def by_number(self) -> Mapping[int, EdgeStripe]:
        """Every stripe under its number."""
        return {stripe.number: stripe for stripe in self.stripes}

    @cached_property
    def cores(self) -> tuple[int, ...]:
        """The core stripes that it divides, ascending."""
        return tuple(sorted({stripe.core for stripe in self.stripes}))

    @cached_property
    def symbols(self) -> int:
        """How many symbols it names."""
        return sum(len(stripe.symbols) for stripe in self.stripes)

    def of_core(self, core: int) -> tuple[EdgeStripe, ...]:
        """The narrow stripes of one core stripe, in the order of their numbers."""
        return tuple(stripe for stripe in self.stripes if stripe.core == core)

    def spare_of(self, core: int) -> EdgeStripe:
        """Where unknown symbols of a core stripe travel; LocalProtocolError for a core stripe that is not planned."""
        for stripe in self.stripes:
            if stripe.core == core and stripe.spare:
                return stripe
        raise LocalProtocolError(f"{self.file}: nothing is planned for core stripe {core}")

    @cached_property
    def _table(self) -> tuple[npt.NDArray[np.uint64], Numbers, npt.NDArray[np.uint16]]:
        names = np.array([s for stripe in self.stripes for s in stripe.symbols], f"S{SYMBOL_BYTES}").view("<u8")
        counts = [len(stripe.symbols) for stripe in self.stripes]
        numbers = np.repeat(np.array([stripe.number for stripe in self.stripes], np.uint32), counts)
        cores = np.repeat(np.array([stripe.core for stripe in self.stripes], np.uint16), counts)
        order = np.argsort(names, kind="stable")
        return names[order], numbers[order], cores[order]

    def stripes_of(self, symbols: Symbols, core: int | None = None) -> Numbers:
        """The number of each symbol's stripe; what is not named is on the spare stripe of the core stripe.

        With `core`, a symbol that the plan has elsewhere is a stranger here and is on the spare stripe too. Without
        it, strangers belong to the plan's first core stripe.
        """
        names, numbers, cores = self._table
        spare = self.spare_of(self.cores[0] if core is None else core).number
        wanted = np.ascontiguousarray(symbols, f"S{SYMBOL_BYTES}").view("<u8")
        if not len(names):
            return np.full(len(wanted), spare, np.uint32)
        places = np.minimum(np.searchsorted(names, wanted), len(names) - 1)
        known = names[places] == wanted
        if core is not None:
            known &= cores[places] == core
        return np.where(known, numbers[places], np.uint32(spare)).astype(np.uint32)

    def cores_of(self, symbols: Symbols) -> npt.NDArray[np.uint16]:
        """The core stripe in which a floor publishes each symbol; strangers in the first."""
        table = np.array([stripe.number for stripe in self.stripes], np.uint32)
        cores = np.array([stripe.core for stripe in self.stripes], np.uint16)
        return cores[np.searchsorted(table, self.stripes_of(symbols))]


def _sorted_symbols(stripe: EdgeStripe) -> EdgeStripe:
    symbols = tuple(sorted(stripe.symbols))
    if symbols == stripe.symbols:
        return stripe
    return EdgeStripe(stripe.number, stripe.core, stripe.name, stripe.rate, symbols, stripe.spare, stripe.conflated)


def _check(plan: StripePlan) -> None:
    file = plan.file
    if not 1 <= plan.version <= VERSION_MAX:
        raise ConfigurationError(file, "version", f"must be from 1 to {VERSION_MAX:,}, not {plan.version}")
    if not 0 < plan.token_period_ns <= PERIOD_MAX_NS:
        raise ConfigurationError(file, "token_period", "must be above 0 and at most an hour")
    if not 1 <= len(plan.stripes) <= STRIPES_MAX:
        raise ConfigurationError(file, "stripe", f"there must be from 1 to {STRIPES_MAX:,}, not {len(plan.stripes)}")
    for stripe in plan.stripes:
        _check_stripe(file, stripe)
    _insist_on_one(file, "number", [str(stripe.number) for stripe in plan.stripes])
    _insist_on_one(file, "name", [stripe.name for stripe in plan.stripes])
    if plan.symbols > SYMBOLS_MAX:
        raise ConfigurationError(file, "symbols", f"there are {plan.symbols:,}, more than {SYMBOLS_MAX:,}")
    _insist_on_one(file, "symbols", [symbol for stripe in plan.stripes for symbol in stripe.symbols])
    for core in sorted({stripe.core for stripe in plan.stripes}):
        spares = [stripe.name for stripe in plan.stripes if stripe.core == core and stripe.spare]
        if len(spares) != 1:
            rule = f"core stripe {core} has {len(spares)} spare stripes; exactly one takes what no stripe names"
            raise ConfigurationError(file, "spare", rule)


def _check_stripe(file: str, stripe: EdgeStripe) -> None:
    key = f'stripe "{stripe.name}"'
    if not 1 <= stripe.number <= NUMBER_MAX:
        raise ConfigurationError(file, f"{key}.number", f"must be from 1 to {NUMBER_MAX:,}, not {stripe.number}")
    if not 0 <= stripe.core <= MAX_STRIPE:
        raise ConfigurationError(file, f"{key}.core", f"must be from 0 to {MAX_STRIPE:,}, not {stripe.core}")
    if not 1 <= stripe.rate <= RATE_MAX:
        raise ConfigurationError(file, f"{key}.rate", f"must be from 1 b/s to {RATE_MAX:,} b/s, not {stripe.rate}")
    if not (1 <= len(stripe.name) <= NAME_MAX and stripe.name.isprintable() and stripe.name.isascii()):
        raise ConfigurationError(file, f"{key}.name", f"must be 1 to {NAME_MAX} printable ASCII characters")
    if stripe.spare and stripe.symbols:
        raise ConfigurationError(file, f"{key}.symbols", "a spare stripe names none: it takes what no stripe names")
    for symbol in stripe.symbols:
        try:
            Symbol(symbol)
        except LocalProtocolError as reason:
            raise ConfigurationError(file, f"{key}.symbols", str(reason)) from None


def _insist_on_one(file: str, key: str, values: Iterable[str]) -> None:
    met: set[str] = set()
    for value in values:
        if value in met:
            raise ConfigurationError(file, key, f"{value} occurs twice; each is in exactly one stripe")
        met.add(value)


@dataclass(frozen=True, slots=True)
class PlanNotice:
    """What a control entry says of a plan: enough to know it by, not the plan itself."""

    version: int
    digest: bytes
    stripes: int
    symbols: int


def plan_entry(plan: StripePlan) -> ControlEntry:
    """The entry that puts a plan into force behind the token that carries it."""
    body = _ENTRY.pack(plan.digest, len(plan.stripes), plan.symbols)
    return ControlEntry(ControlKind.STRIPE_PLAN, plan.version, body)


def read_plan_entry(entry: ControlEntry) -> PlanNotice:
    """What an entry announces; RemoteProtocolError for one that announces no plan of this form."""
    if entry.kind is not ControlKind.STRIPE_PLAN:
        raise RemoteProtocolError(f"an entry of kind {entry.kind.name} is not a stripe plan")
    try:
        digest, stripes, symbols = _ENTRY.unpack(entry.body)
    except error as reason:
        raise RemoteProtocolError(f"a stripe plan's entry of {len(entry.body)} bytes") from reason
    if not (1 <= entry.subject <= VERSION_MAX and 1 <= stripes <= STRIPES_MAX and symbols <= SYMBOLS_MAX):
        raise RemoteProtocolError("an entry of a stripe plan with invalid figures")
    return PlanNotice(entry.subject, digest, stripes, symbols)


# A stripe plan as a file, TOML or JSON: every key checked, a mistyped one answered with the nearest.


PLAN_BYTES_MAX = 64 << 20
"""Bounds: a million symbols with some 12 bytes each, and 65,536 stripes."""

_TOP = ("version", "token_period", "stripe")
_STRIPE_FIELDS = ("number", "core", "name", "rate", "symbols", "spare", "conflated")
_WIDTH = 110


def read_plan(text: str, file: str) -> StripePlan:
    """The plan in a file's text, JSON if it begins with a brace; ConfigurationError names file, key and rule."""
    if len(text) > PLAN_BYTES_MAX:
        raise ConfigurationError(file, "file", f"is longer than {PLAN_BYTES_MAX:,} bytes")
    try:
        value = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except (ValueError, RecursionError) as reason:
        raise ConfigurationError(file, "file", f"is neither TOML nor JSON: {reason}") from None
    if isinstance(value, dict) and isinstance(value.get("plan"), dict):
        value = value["plan"]
    return plan_from_mapping(value, file)


def plan_from_mapping(value: object, file: str) -> StripePlan:
    """A plan from what a reader of TOML or JSON made of it."""
    top = _table(file, "", value, _TOP)
    rows = top.get("stripe", [])
    if not isinstance(rows, list):
        raise ConfigurationError(file, "stripe", "must be a list of tables: [[stripe]]")
    stripes = tuple(_stripe(file, f"stripe[{place}]", row) for place, row in enumerate(rows, 1))
    period = top.get("token_period", "1s")
    try:
        period_ns = parse_duration(period) if isinstance(period, str) else -1
    except ValueError:
        period_ns = -1
    if period_ns <= 0:
        raise ConfigurationError(file, "token_period", 'must be a time above 0 such as "1s" or "50ms"')
    return StripePlan(_whole(file, "version", top, None), stripes, period_ns, file)


def _table(file: str, key: str, value: object, known: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ConfigurationError(file, key or "file", "must be a table")
    for name in value:
        if name not in known:
            where = f"{key}.{name}" if key else str(name)
            rule = f"is not a key here; the keys are {', '.join(known)}{suggestion(str(name), known)}"
            raise ConfigurationError(file, where, rule)
    return value


def _stripe(file: str, key: str, value: object) -> EdgeStripe:
    row = _table(file, key, value, _STRIPE_FIELDS)
    symbols = row.get("symbols", [])
    if not (isinstance(symbols, list) and all(isinstance(symbol, str) for symbol in symbols)):
        raise ConfigurationError(file, f"{key}.symbols", "must be a list of symbols in quotes")
    name = row.get("name", "")
    if not isinstance(name, str) or not name:
        raise ConfigurationError(file, f"{key}.name", "must be a text that is not empty")
    return EdgeStripe(
        number=_whole(file, f"{key}.number", row, None),
        core=_whole(file, f"{key}.core", row, 0),
        name=name,
        rate=_rate(file, f"{key}.rate", row),
        symbols=tuple(symbols),
        spare=_flag(file, f"{key}.spare", row),
        conflated=_flag(file, f"{key}.conflated", row),
    )


def _whole(file: str, key: str, row: Mapping[str, Any], default: int | None) -> int:
    value = row.get(key.rpartition(".")[2], default)
    if isinstance(value, bool) or not isinstance(value, int):
        missing = "is missing: " if value is None else ""
        raise ConfigurationError(file, key, f"{missing}must be a whole number")
    return value


def _rate(file: str, key: str, row: Mapping[str, Any]) -> int:
    value = row.get("rate")
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    try:
        return parse_rate(value if isinstance(value, str) else "")
    except ValueError:
        raise ConfigurationError(file, key, 'must be a bit-rate such as "56k", "1.5M" or 56000') from None


def _flag(file: str, key: str, row: Mapping[str, Any]) -> bool:
    value = row.get(key.rpartition(".")[2], False)
    if not isinstance(value, bool):
        raise ConfigurationError(file, key, "must be true or false")
    return value


def plan_as_json(plan: StripePlan) -> dict[str, object]:
    """The same as a JSON object, which `plan_from_mapping` reads."""
    return {
        "version": plan.version,
        "token_period": duration_text(plan.token_period_ns),
        "stripe": [
            {"number": stripe.number, "core": stripe.core, "name": stripe.name, "rate": stripe.rate}
            | ({"spare": True} if stripe.spare else {"symbols": list(stripe.symbols)})
            | ({"conflated": True} if stripe.conflated else {})
            for stripe in plan.stripes
        ],
    }


def plan_text(plan: StripePlan) -> str:
    """The same as TOML."""
    lines = [
        "# A stripe plan: every symbol in exactly one narrow stripe; what none names is on the spare one.",
        f"# digest {plan.digest.hex()}",
        f"version = {plan.version}",
        f'token_period = "{duration_text(plan.token_period_ns)}"',
    ]
    for stripe in plan.stripes:
        lines += [
            "",
            "[[stripe]]",
            f"number = {stripe.number}",
            f"core = {stripe.core}",
            f"name = {json.dumps(stripe.name)}",
            f"rate = {stripe.rate}  # {rate_text(stripe.rate)}",
        ]
        if stripe.spare:
            lines.append("spare = true")
        if stripe.conflated:
            lines.append("conflated = true")
        if stripe.symbols:
            lines += ["symbols = [", *_wrapped(stripe.symbols), "]"]
    return "\n".join(lines) + "\n"


def _wrapped(symbols: tuple[str, ...]) -> list[str]:
    """Symbols in lines of readable length."""
    lines, line = [], " "
    for symbol in symbols:
        part = f" {json.dumps(symbol)},"
        if len(line) + len(part) > _WIDTH:
            lines.append(line)
            line = " "
        line += part
    return [*lines, line]
