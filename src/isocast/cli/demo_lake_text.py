"""What the demo says of its tables at the end: bars, skew and the audit's verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from isocast.checks.skew import ReleaseSkew
from isocast.cli.demo_lake import LakeBeside, LakeStage
from isocast.cli.skew_text import skew_words
from isocast.terms.instants import SECOND
from isocast.terms.market import from_ticks
from isocast.terms.quantities import counted

__all__ = ["lake_lines"]

_ROWS = (("tape", "trade"), ("quotes", "quote"), ("bars", "bar"))
"""Tables, and what a row of each is."""

_LABEL = 12
_BARS_SHOWN = 3
"""Of each symbol, the newest."""
_FINDINGS_SHOWN = 5
_BAR_NAMES = ("symbol", "from", "open", "high", "low", "close", "volume", "trades", "VWAP")


def lake_lines(lake: LakeBeside) -> Iterator[str]:
    """Lines of at most 100 characters, below those of the market."""
    if lake.stage is not LakeStage.DONE:
        yield from _entry("tables", [_why(lake)])
        yield ""
        return
    found = lake.found
    yield "The same by Spark, from the tables that followed the market, and from the journals of all"
    yield ""
    yield from _entry("tables", _tables(lake))
    if found["bars"]:
        yield from _entry("bars", _bars(found["bars"], found["interval"]))
    yield from _entry("skew", skew_words(ReleaseSkew(**found["skew"])))
    yield from _entry("audit", _audit(found["audit"]))
    if lake.faults:
        yield from _entry("WRONG", lake.faults[:_FINDINGS_SHOWN])
    yield ""


def _entry(name: str, texts: Sequence[str]) -> Iterator[str]:
    for place, text in enumerate(texts):
        yield f"  {'' if place else name:<{_LABEL}}{text}"


def _why(lake: LakeBeside) -> str:
    match lake.stage:
        case LakeStage.MISSING:
            return f"none: {lake.reason}"
        case LakeStage.LEFT:
            return f"left behind with {counted(lake.events, 'event')}: {lake.reason}"
        case _:
            return f"none, Spark failed: {lake.reason}"


def _tables(lake: LakeBeside) -> list[str]:
    rows = {name.rpartition("/")[2]: count for name, count in lake.found["tables"].items()}
    after = "" if lake.caught_up_s is None else f"; complete {lake.caught_up_s:.1f} s after its end"
    return [
        f"{lake.events:,} of {lake.expected or 0:,} events, {lake.followed:,} while the market ran{after}",
        ", ".join([counted(rows.get(table, 0), row) for table, row in _ROWS]),
    ]


def _bars(bars: Sequence[dict[str, Any]], interval: str) -> list[str]:
    """The newest of each symbol, in columns."""
    by_symbol: dict[str, list[dict[str, Any]]] = {}
    for bar in bars:
        by_symbol.setdefault(bar["symbol"], []).append(bar)
    table = [list(_BAR_NAMES)]
    for own in by_symbol.values():
        for place, bar in enumerate(own[-_BARS_SHOWN:]):
            start = datetime.fromtimestamp(bar["start_ns"] // SECOND, tz=UTC)
            prices = [_price(bar[name]) for name in ("open", "high", "low", "close")]
            counts = [f"{bar['volume']:,}", f"{bar['trades']:,}"]
            table.append(["" if place else bar["symbol"], f"{start:%H:%M:%S}", *prices, *counts, _price(bar["vwap"])])
    widths = [max(len(row[place]) for row in table) for place in range(len(_BAR_NAMES))]
    made = ["  ".join(_cell(*each) for each in zip(range(len(row)), row, widths, strict=True)) for row in table]
    return [f"of {interval}, the busiest symbols:", *[text.rstrip() for text in made]]


def _cell(place: int, text: str, width: int) -> str:
    return text.ljust(width) if place < 2 else text.rjust(width)  # noqa: PLR2004 - names left, figures right


def _price(ticks: int | str) -> str:
    return f"{from_ticks(1) * Decimal(ticks):,.2f}"


def _audit(audit: dict[str, Any]) -> list[str]:
    compared = f"{counted(audit['journals'], 'journal')}, {counted(audit['messages_compared'], 'message')} compared"
    if audit["verdict"] == "clean":
        return [f"clean: {compared}: one sequence everywhere, nothing early"]
    if audit["verdict"] == "unjudged":
        return [audit["sentence"]]
    counts = ", ".join(f"{count} {kind}" for kind, count in audit["counts"].items())
    shown = audit["findings"][:_FINDINGS_SHOWN] if audit["verdict"] != "findings" else []
    return [f"{audit['verdict']} ({counts}): {compared}", *shown]
