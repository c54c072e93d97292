"""What `isocast tape` prints: symbols now, live and once, and the end-of-day summary."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import asdict
from typing import TYPE_CHECKING

from isocast.cli.render import figure, line, show_table
from isocast.feeds.tape_digest import TapeDigest
from isocast.terms.market import EventKind, MarketStatus, from_ticks
from isocast.ticker.quotes import floor_name
from isocast.ticker.records import FaultName
from isocast.ticker.tape import Tape, state_digest
from isocast.ticker.views import (
    Best,
    DayRow,
    SymbolView,
    busiest,
    day_rows,
    left_out,
    symbol_views,
    tentative,
    unlisted,
)

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["live_frame", "show_summary", "show_symbols", "summary_as_json", "view_as_json"]

_Names = Collection[str] | None

_HEADERS = ("symbol", "last", "floor", "time", "change", "bid × size", "ask × size", "volume", "status")
_DAY_HEADERS = (
    "symbol",
    "floor",
    "open",
    "high",
    "low",
    "close",
    "volume",
    "vwap",
    "trades",
    "cancelled",
    "corrected",
    "status",
)
_STOPPED = (MarketStatus.HALTED, MarketStatus.PAUSED)
_NAMES_SHOWN = 3
_LEFT_OUT = ((118, ()), (96, ("floor", "time")), (0, ("floor", "time", "bid × size", "ask × size")))
"""From a width of the terminal on, the columns for which there is no room."""
_FRAME_LINES = 5
"""Of a live frame: title, header, rules."""


# ---- cells


def _price(ticks: int | None) -> str:
    return "" if ticks is None else f"{from_ticks(ticks):,.4f}"


def _change(ticks: int | None) -> str:
    return "" if ticks is None else f"{from_ticks(ticks):+,.4f}"


def _best(best: Best | None) -> str:
    return "" if best is None else f"{_price(best.price)} × {best.size:,}"


def _clock(instant: int) -> str:
    """Hours to milliseconds, in UTC."""
    seconds, nanoseconds = divmod(instant, 1_000_000_000)
    minutes, second = divmod(seconds % 86_400, 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour:02}:{minute:02}:{second:02}.{nanoseconds // 1_000_000:03}"


def _status(view: SymbolView) -> str:
    parts = [] if view.status is None else [view.status.name.lower()]
    if view.status in _STOPPED:
        parts.append(",".join(view.status_floors))
    return " ".join([*parts, view.market.upper()]).strip()


def _cells(view: SymbolView) -> tuple[str, ...]:
    last = view.last
    return (
        view.symbol,
        _price(last.price) if last else "",
        last.floor if last else "",
        _clock(last.time) if last else "",
        _change(view.change),
        _best(view.bid),
        _best(view.ask),
        f"{view.volume:,}",
        _status(view),
    )


# ---- symbols


def view_as_json(view: SymbolView, sequence: int) -> dict[str, object]:
    """A symbol for programs: prices as text, exactly."""
    last = view.last
    return {
        "symbol": view.symbol,
        "sequence": sequence,
        "last": None if last is None else {**asdict(last), "price": str(from_ticks(last.price))},
        "change": None if view.change is None else str(from_ticks(view.change)),
        "bid": _best_as_json(view.bid),
        "ask": _best_as_json(view.ask),
        "market": view.market or "normal",
        "volume": view.volume,
        "trades": view.trades,
        "status": None if view.status is None else view.status.name.lower(),
        "status_floors": list(view.status_floors),
        "status_time": view.status_time,
    }


def _best_as_json(best: Best | None) -> dict[str, object] | None:
    return None if best is None else {**asdict(best), "price": str(from_ticks(best.price))}


def show_symbols(tape: Tape, symbols: _Names, floors: _Names) -> None:
    """All symbols once, by name."""
    views = symbol_views(tape, symbols, floors)
    title = f"Tape at sequence {figure(tape.sequence)}"
    if not sys.stdout.isatty():
        show_table(title, _HEADERS, [_cells(view) for view in views])
        return
    from rich.console import Console

    console = Console()
    console.print(_drawn(title, views, console.width))


def live_frame(market: str, tape: Tape, symbols: _Names, floors: _Names, width: int, height: int) -> Table:
    """As many symbols as there is room for, the busiest first."""
    room = max(height - _FRAME_LINES, 1)
    names = busiest(tape, len(tape.lines.symbols), floors)
    names = names if symbols is None else [name for name in names if name in symbols]
    views = {view.symbol: view for view in symbol_views(tape, names[:room], floors)}
    title = f"{market}: {figure(tape.events)} events, sequence {figure(tape.sequence)}"
    if len(names) > room:
        title += f"; {room} of {figure(len(names))} symbols"
    return _drawn(title, [views[name] for name in names[:room]], width)


def _drawn(title: str, views: list[SymbolView], width: int) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    left_out = next(names for least, names in _LEFT_OUT if width >= least)
    shown = [place for place, header in enumerate(_HEADERS) if header not in left_out]
    for place in shown:
        header = _HEADERS[place]
        text = header in ("symbol", "floor", "status")
        table.add_column(header, style="bold" if place == 0 else "", justify="left" if text else "right", no_wrap=True)
    for view in views:
        cells = [Text(cell) for cell in _cells(view)]
        change = view.change or 0
        cells[4].stylize("green" if change > 0 else "red" if change < 0 else "")
        if view.market:
            cells[-1].stylize("bold magenta")
        table.add_row(*[cells[place] for place in shown], style="bold white on red" if view.status in _STOPPED else "")
    return table


# ---- the day


def _day_cells(row: DayRow) -> tuple[str, ...]:
    return (
        row.symbol,
        row.floor or "all",
        *(_price(price) for price in (row.open, row.high, row.low, row.close)),
        f"{row.volume:,}",
        "" if row.vwap is None else f"{row.vwap:,.6f}",
        f"{row.trades:,}",
        f"{row.cancelled:,}",
        f"{row.corrected:,}",
        "" if row.status is None else row.status.name.lower(),
    )


def show_summary(tape: Tape, symbols: _Names, floors: _Names, digest: TapeDigest | None) -> None:
    """The day of each symbol and floor, and what was wrong."""
    title = f"Day at sequence {figure(tape.sequence)}"
    show_table(title, _DAY_HEADERS, [_day_cells(row) for row in day_rows(tape, symbols, floors)])
    facts = [
        ("events", figure(tape.events)),
        *((kind.name.lower(), figure(int(tape.kinds[kind]))) for kind in EventKind if tape.kinds[kind]),
        ("symbols", figure(len(tape.lines.symbols))),
        ("not in any directory", figure(unlisted(tape))),
        ("trades to be confirmed", figure(tentative(tape))),
        *(() if digest is None else (("digest of the events", digest.hex),)),
        ("digest of the tape", state_digest(tape)),
    ]
    show_table("Tape", ("", "value"), facts)
    aside = [(figure(trades), figure(shares), reason) for reason, (trades, shares) in sorted(left_out(tape).items())]
    if aside:
        show_table("Not in all figures, by their sale conditions", ("trades", "shares", "reason"), aside)
    digests = {} if digest is None else digest.floors
    floor_rows = [
        (name, figure(count), digests.get(name, (0, ""))[1]) for name, count in sorted(_floor_events(tape).items())
    ]
    show_table("Floors", ("floor", "events", "digest"), floor_rows)
    if not tape.faults.total:
        line("Sound: nothing that floors published is in doubt.")
        return
    rows = [
        (fault.value, figure(count), "; ".join(map(_name, tape.faults.names[fault][:_NAMES_SHOWN])))
        for fault, count in sorted(tape.faults.counts.items())
    ]
    show_table("In doubt", ("what", "count", "first"), rows)


def _name(name: FaultName) -> str:
    where = f"{name.floor} {name.symbol}".strip()
    number = f" id {name.id}" if name.id else ""
    return f"{where} {EventKind(name.kind).name.lower()}{number} at sequence {name.sequence}"


def _floor_events(tape: Tape) -> dict[str, int]:
    floors = tape.lines.floors
    return {
        floor_name(word): count for word, count in zip(floors["floor"].tolist(), floors["events"].tolist(), strict=True)
    }


def summary_as_json(tape: Tape, symbols: _Names, floors: _Names, digest: TapeDigest | None) -> dict[str, object]:
    """Everything that the summary says, for programs."""
    digests = {} if digest is None else digest.floors
    return {
        "sequence": tape.sequence,
        "events": tape.events,
        "kinds": {kind.name.lower(): int(tape.kinds[kind]) for kind in EventKind if tape.kinds[kind]},
        "events_digest": None if digest is None else digest.hex,
        "state_digest": state_digest(tape),
        "floors": {
            name: {"events": count, "digest": digests[name][1] if name in digests else None}
            for name, count in sorted(_floor_events(tape).items())
        },
        "symbols": len(tape.lines.symbols),
        "left_out": {
            reason: {"trades": trades, "shares": shares} for reason, (trades, shares) in sorted(left_out(tape).items())
        },
        "unlisted": unlisted(tape),
        "tentative": tentative(tape),
        "faults": {fault.value: count for fault, count in sorted(tape.faults.counts.items())},
        "first_faults": {
            fault.value: [{**name._asdict(), "kind": EventKind(name.kind).name.lower()} for name in names]
            for fault, names in sorted(tape.faults.names.items())
        },
        "rows": [_day_as_json(row) for row in day_rows(tape, symbols, floors)],
    }


def _day_as_json(row: DayRow) -> dict[str, object]:
    prices = {name: getattr(row, name) for name in ("open", "high", "low", "close")}
    return {
        **asdict(row),
        "floor": row.floor or None,
        **{name: None if price is None else str(from_ticks(price)) for name, price in prices.items()},
        "vwap": None if row.vwap is None else str(row.vwap),
        "status": None if row.status is None else row.status.name.lower(),
    }
