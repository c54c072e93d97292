"""`isocast floor open`, `session` and `phase`: what an operator says to the floors of a running market."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from isocast.cli.options import Config, Flag
from isocast.cli.render import line, show_json, show_table
from isocast.runtime.operate import shutdown
from isocast.terms.instants import SECOND
from isocast.terms.quantities import counted

if TYPE_CHECKING:
    import datetime as dt

    from isocast.floor.events import Phase
    from isocast.runtime.market.floors import FloorTable
    from isocast.runtime.market.model import Market

__all__ = ["PHASES", "open_floor", "phase", "session"]

PHASES = ("closed", "pre-open", "open", "closing", "halted")
"""What an operator may say; a pause comes and goes by itself."""
Symbols = Annotated[tuple[str, ...], Parameter(name="--symbol", negative="")]


def open_floor(
    code: str | None = None, /, *, phase: str | None = None, config: Config = None, json: Flag = False
) -> int:
    """Publish what trades at a floor, with the rules of the market file, and open it.

    Every receiver learns it at the same token. It may be said again at any time: rules that have changed in the file
    count from then on, and orders stay. A floor with sessions gets those of today, as by `isocast floor session`.

    Parameters
    ----------
    code
        Of the floor, such as XISO; the only one, if left out.
    phase
        In which everything is to be then: open, or pre-open for an opening auction; if left out, what the floor's
        sessions say, or open where it has none.
    json
        Print one JSON object instead of text.
    """
    from isocast.runtime.market.file import open_market
    from isocast.runtime.operate.floor_change import find_floor, opening, publish_events

    market = open_market(config)
    floor = find_floor(market, code)
    if phase is None and floor.hours.has_sessions:
        return _publish_session(market, floor, None, lists=True, json=json)
    chosen = _phase(phase or "open")
    labels = shutdown.run(publish_events(market, floor, opening(floor, chosen)))
    if json:
        symbols = [symbol.symbol for symbol in floor.symbols]
        show_json({"floor": floor.code, "symbols": symbols, "phase": chosen.value, "messages": len(labels)})
    else:
        line(f"{floor.code}: {counted(len(floor.symbols), 'symbol')} published, {chosen.value} from the next token on.")
    return 0


def session(date: str, code: str | None = None, /, *, config: Config = None, json: Flag = False) -> int:
    """Publish the instants of a day's session: pre-open, opening auction, trading, closing auction, closed.

    They are worked out from the floor's calendar, or its hours, in the market file, and travel in the sequence, so that
    every receiver changes phase at the same token. On a holiday nothing is due. They take the place of those before.

    Parameters
    ----------
    date
        The day at the floor's place, as 2026-11-27, or today.
    code
        Of the floor; the only one, if left out.
    json
        Print one JSON object instead of a table.
    """
    from isocast.runtime.market.file import open_market
    from isocast.runtime.operate.floor_change import find_floor

    market = open_market(config)
    return _publish_session(market, find_floor(market, code), _day(date), lists=False, json=json)


def _day(text: str) -> dt.date | None:
    """The day that was named; None: today."""
    from datetime import date

    from isocast.terms.errors import ConfigurationError

    if text == "today":
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ConfigurationError("command line", "DATE", f'"{text}" is no day such as 2026-11-27, or today') from None


def _publish_session(market: Market, floor: FloorTable, day: dt.date | None, *, lists: bool, json: bool) -> int:
    from time import time_ns

    from isocast.runtime.operate.floor_change import listing, publish_events
    from isocast.runtime.operate.floor_sessions import session_day, today

    found = session_day(floor, today(floor, time_ns()) if day is None else day)
    listed = listing(floor) if lists else []
    shutdown.run(publish_events(market, floor, [*listed, found.schedule]))
    rows = [(phase.value, _told(at), at) for at, phase in found.schedule.changes]
    if json:
        changes = [{"phase": name, "at": text, "instant_ns": at} for name, text, at in rows]
        show_json({"floor": floor.code, "day": found.day.isoformat(), "symbols": len(listed), "changes": changes})
    elif rows:
        show_table(f"{floor.code} on {found.day}", ("phase", "from (UTC)"), [row[:2] for row in rows])
    else:
        line(f"{floor.code}: {found.day} is no trading day. Nothing is due.")
    return 0


def _told(instant: int) -> str:
    from datetime import UTC, datetime

    return f"{datetime.fromtimestamp(instant // SECOND, UTC):%Y-%m-%dT%H:%M:%SZ}"


def phase(
    name: str, code: str | None = None, /, *, symbol: Symbols = (), config: Config = None, json: Flag = False
) -> int:
    """Change the phase of a floor, or of some of its symbols: open, halted, closing, closed or pre-open.

    Parameters
    ----------
    name
        The phase.
    code
        Of the floor; the only one, if left out.
    symbol
        Only this one; may be given several times.
    json
        Print one JSON object instead of text.
    """
    from isocast.runtime.market.file import open_market
    from isocast.runtime.operate.floor_change import find_floor, phase_change, publish_events

    chosen = _phase(name)
    market = open_market(config)
    floor = find_floor(market, code)
    shutdown.run(publish_events(market, floor, phase_change(floor, chosen, symbol)))
    if json:
        show_json({"floor": floor.code, "symbols": list(symbol) or None, "phase": chosen.value})
    else:
        line(f"{floor.code}: {', '.join(symbol) or 'all symbols'} {chosen.value} from the next token on.")
    return 0


def _phase(name: str) -> Phase:
    from isocast.floor.events import Phase
    from isocast.terms.errors import ConfigurationError
    from isocast.terms.quantities import suggestion

    if name not in PHASES:
        rule = f"must be one of {', '.join(PHASES)}{suggestion(name, PHASES)}"
        raise ConfigurationError("command line", "phase", rule)
    return Phase(name)
