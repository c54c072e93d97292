"""A stripe plan as a file, TOML or JSON: every key checked, a mistyped one answered with the nearest."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from typing import Any

from isocast.striping.plan import EdgeStripe, StripePlan
from isocast.striping.rates import parse_rate, rate_text
from isocast.terms.errors import ConfigurationError
from isocast.terms.quantities import duration_text, parse_duration
from isocast.terms.suggestion import suggestion

__all__ = ["PLAN_BYTES_MAX", "plan_as_json", "plan_from_mapping", "plan_text", "read_plan"]

PLAN_BYTES_MAX = 64 << 20
"""Bounds: a million symbols with some 12 bytes each, and 65,536 stripes."""

_TOP = ("version", "token_period", "stripe")
_STRIPE = ("number", "core", "name", "rate", "symbols", "spare", "conflated")
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
            rule = f"is no key here; known are {', '.join(known)}{suggestion(str(name), known)}"
            raise ConfigurationError(file, where, rule)
    return value


def _stripe(file: str, key: str, value: object) -> EdgeStripe:
    row = _table(file, key, value, _STRIPE)
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


# ---- out


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
