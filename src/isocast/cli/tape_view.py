"""What `isocast tape` prints: symbols now, live and once, and the end-of-day summary."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import asdict
from typing import TYPE_CHECKING

from isocast.cli.render import figure, line, show_table
from isocast.feeds.tape_digest import TapeDigest
from isocast.terms.instruments import Scale, scale_of
from isocast.terms.market import EventKind, MarketStatus
from isocast.terms.quantities import counted
from isocast.ticker.quotes import floor_name
from isocast.ticker.records import FaultName
from isocast.ticker.tape import Tape, state_digest
from isocast.ticker.views import (
    Best,
    DayRow,
    Depth,
    DepthLevel,
    SymbolView,
    busiest,
    codes_of,
    day_rows,
    depth_views,
    left_out,
    symbol_views,
    tentative,
    unlisted,
)

if TYPE_CHECKING:
    from rich.table import Table

__all__ = [
    "depth_frame",
    "live_frame",
    "show_depth",
    "show_summary",
    "show_symbols",
    "summary_as_json",
    "view_as_json",
]

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


def _price(ticks: int | None, scale: Scale) -> str:
    return "" if ticks is None else f"{scale.to_price(ticks):,f}"


def _change(ticks: int | None, scale: Scale) -> str:
    return "" if ticks is None else f"{scale.to_price(ticks):+,f}"


def _quantity(whole: int, scale: Scale) -> str:
    return f"{scale.to_quantity(whole):,}"


def _best(best: Best | None, scale: Scale) -> str:
    return "" if best is None else f"{_price(best.price, scale)} × {_quantity(best.size, scale)}"


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
    if view.incomplete:
        parts.append(f"incomplete {','.join(view.incomplete)}")
    return " ".join([*parts, view.market.upper()]).strip()


def _cells(view: SymbolView) -> tuple[str, ...]:
    last, scale = view.last, scale_of(view.symbol)
    return (
        view.name,
        _price(last.price, scale) if last else "",
        last.floor if last else "",
        _clock(last.time) if last else "",
        _change(view.change, scale),
        _best(view.bid, scale),
        _best(view.ask, scale),
        _quantity(view.volume, scale),
        _status(view),
    )


# ---- symbols


def view_as_json(view: SymbolView, sequence: int) -> dict[str, object]:
    """A symbol for programs: prices as text, exactly, and so are quantities with fractions."""
    last, scale = view.last, scale_of(view.symbol)
    sale = None
    if last is not None:
        sale = {**asdict(last), "price": _plain(last.price, scale), "quantity": _whole(last.quantity, scale)}
    return {
        "symbol": view.name,
        "sequence": sequence,
        "last": sale,
        "change": None if view.change is None else _plain(view.change, scale),
        "bid": _best_as_json(view.bid, scale),
        "ask": _best_as_json(view.ask, scale),
        "market": view.market or "normal",
        "incomplete": list(view.incomplete),
        "volume": _whole(view.volume, scale),
        "trades": view.trades,
        "status": None if view.status is None else view.status.name.lower(),
        "status_floors": list(view.status_floors),
        "status_time": view.status_time,
    }


def _plain(ticks: int, scale: Scale) -> str:
    return f"{scale.to_price(ticks):f}"


def _whole(quantity: int, scale: Scale) -> int | str:
    units = scale.to_quantity(quantity)
    return units if isinstance(units, int) else f"{units:f}"


def _best_as_json(best: Best | None, scale: Scale) -> dict[str, object] | None:
    if best is None:
        return None
    return {**asdict(best), "price": _plain(best.price, scale), "size": _whole(best.size, scale)}


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
    chosen = None if symbols is None else codes_of(tape, symbols)
    names = names if chosen is None else [name for name in names if name in chosen]
    views = {view.symbol: view for view in symbol_views(tape, names[:room], floors)}
    title = f"{market}: {counted(tape.events, 'event')}, sequence {figure(tape.sequence)}"
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


# ---- books


_DEPTH_HEADERS = ("symbol", "orders", "size", "bid", "ask", "size", "orders", "book")


def _depth_rows(depths: list[Depth]) -> list[tuple[str, ...]]:
    """A row for each level: bids to the left, offers to the right."""
    rows = []
    for depth in depths:
        scale = scale_of(depth.symbol)
        state = depth.market.upper() + (f" incomplete {','.join(depth.incomplete)}" if depth.incomplete else "")
        for place in range(max(len(depth.bids), len(depth.asks), 1)):
            bid, ask = (_level_cells(side[place : place + 1], scale) for side in (depth.bids, depth.asks))
            first = place == 0
            rows.append((depth.name if first else "", *reversed(bid), *ask, state.strip() if first else ""))
    return rows


def _level_cells(level: tuple[DepthLevel, ...], scale: Scale) -> tuple[str, str, str]:
    cells = ((_price(one.price, scale), f"{scale.to_quantity(one.size):,}", f"{one.orders:,}") for one in level)
    return next(cells, ("", "", ""))


def show_depth(tape: Tape, levels: int, symbols: _Names, floors: _Names) -> None:
    """The books of all symbols once, by name."""
    depths = depth_views(tape, levels, symbols, floors)
    show_table(f"Books at sequence {figure(tape.sequence)}", _DEPTH_HEADERS, _depth_rows(depths))


def depth_frame(
    levels: int, market: str, tape: Tape, symbols: _Names, floors: _Names, width: int, height: int
) -> Table:
    """Books as far as there is room, those of the busiest symbols first."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    room = max(height - _FRAME_LINES, 1)
    depths = {depth.symbol: depth for depth in depth_views(tape, levels, symbols, floors)}
    names = [name for name in busiest(tape, len(tape.lines.symbols), floors) if name in depths]
    rows = _depth_rows([depths[name] for name in names[:room]])[:room]
    title = f"{market}: {figure(len(depths))} books, sequence {figure(tape.sequence)}"
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for header in _DEPTH_HEADERS:
        text = header in ("symbol", "book")
        table.add_column(header, justify="left" if text else "right", no_wrap=True, max_width=max(width // 2, 8))
    for row in rows:
        table.add_row(*map(Text, row))
    return table


# ---- the day


def _day_cells(row: DayRow) -> tuple[str, ...]:
    scale = scale_of(row.symbol)
    return (
        row.name,
        row.floor or "all",
        *(_price(price, scale) for price in (row.open, row.high, row.low, row.close)),
        _quantity(row.volume, scale),
        "" if row.vwap is None else f"{row.vwap:,f}",
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
    prices, scale = {name: getattr(row, name) for name in ("open", "high", "low", "close")}, scale_of(row.symbol)
    return {
        **{key: value for key, value in asdict(row).items() if key != "name"},
        "symbol": row.name,
        "floor": row.floor or None,
        **{name: None if price is None else _plain(price, scale) for name, price in prices.items()},
        "volume": _whole(row.volume, scale),
        "vwap": None if row.vwap is None else str(row.vwap),
        "status": None if row.status is None else row.status.name.lower(),
    }
