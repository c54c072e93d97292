"""What a plan is worth beside a hash of the symbols, for people and as JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from isocast.cli.render import figure, show_table
from isocast.striping.comparing import Comparison, PlanWorth

__all__ = ["against_json", "show_against"]


def show_against(found: Comparison, rows: int) -> None:
    """Two tables: lines and listeners, and each sector where sectors are known."""
    needs = "more than symbols" if found.hashed_needs is None else figure(found.hashed_needs)
    both = [
        ("stripes", *_each(found, lambda worth: figure(worth.stripes))),
        ("stripes above their rate at the peak", *_each(found, lambda worth: figure(worth.too_busy))),
        ("stripes until none is above it", figure(found.planned.stripes) if not found.planned.too_busy else "", needs),
        ("peak of the busiest, of its rate", *_each(found, lambda worth: f"{worth.highest:.0%}")),
    ]
    if found.planned.kin_stripes:
        both += [
            ("joined for ten that move together, mean", *_each(found, lambda worth: f"{worth.kin_stripes:.1f}")),
            ("  of their traffic, on one stripe", *_each(found, lambda worth: f"{worth.kin_on_one:.0%}")),
            ("  of what these stripes carry, theirs", *_each(found, lambda worth: f"{worth.kin_wanted:.1%}")),
            ("joined for any ten, mean", *_each(found, lambda worth: f"{worth.any_stripes:.1f}")),
            ("  of their traffic, on one stripe", *_each(found, lambda worth: f"{worth.any_on_one:.0%}")),
            ("  of what these stripes carry, theirs", *_each(found, lambda worth: f"{worth.any_wanted:.1%}")),
        ]
    show_table("Beside a hash of the symbols", ("", "this plan", "hash"), both)
    if found.sectors:
        shown = sorted(found.sectors, key=lambda row: (-row.symbols, row.sector))[:rows]
        more = f", {len(shown)} of {len(found.sectors):,}" if len(shown) < len(found.sectors) else ""
        table = [
            (row.sector, figure(row.symbols), figure(row.stripes), f"{row.wanted:.0%}", figure(row.hashed_stripes),
             f"{row.hashed_wanted:.0%}")
            for row in shown
        ]  # fmt: skip
        headers = ("sector", "symbols", "stripes to join", "of it wanted", "by hash", "of it wanted")
        show_table(f"Whoever wants one sector{more}", headers, table)


def _each(found: Comparison, text: Callable[[PlanWorth], str]) -> tuple[str, str]:
    return text(found.planned), text(found.hashed)


def against_json(found: Comparison) -> dict[str, object]:
    """All of it; shares from 0 to 1."""
    return {
        "planned": _rounded(asdict(found.planned)),
        "hashed": _rounded(asdict(found.hashed)),
        "hashed_needs": found.hashed_needs,
        "sectors": [_rounded(asdict(row)) for row in found.sectors],
    }


def _rounded(values: dict[str, object]) -> dict[str, object]:
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in values.items()}
