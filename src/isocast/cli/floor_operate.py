"""`isocast floor open` and `phase`: what an operator says to the floors of a running market."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from isocast.cli.options import Config, Flag
from isocast.cli.render import line, show_json
from isocast.runtime.operate import shutdown
from isocast.terms.quantities import counted

if TYPE_CHECKING:
    from isocast.floor.events import Phase

__all__ = ["PHASES", "open_floor", "phase"]

PHASES = ("closed", "pre-open", "open", "closing", "halted")
"""What an operator may say; a pause comes and goes by itself."""
Symbols = Annotated[tuple[str, ...], Parameter(name="--symbol", negative="")]


def open_floor(code: str | None = None, /, *, phase: str = "open", config: Config = None, json: Flag = False) -> int:
    """Publish what trades at a floor, with the rules of the market file, and open it.

    Every receiver learns it at the same token. It may be said again at any time: rules that have changed in the file
    count from then on, and orders stay.

    Parameters
    ----------
    code
        Of the floor, such as XISO; the only one, if left out.
    phase
        In which everything is to be then: open, or pre-open for an opening auction.
    config
        The market's file; if left out, that of ISOCAST_MARKET, ./market.toml, or the only market that runs here.
    json
        Print one JSON object instead of text.
    """
    from isocast.runtime.market.file import load_market
    from isocast.runtime.market.finding import find_market
    from isocast.runtime.operate.floor_change import find_floor, opening, publish_events

    chosen = _phase(phase)
    market = load_market(find_market(config))
    floor = find_floor(market, code)
    labels = shutdown.run(publish_events(market, floor, opening(floor, chosen)))
    if json:
        symbols = [symbol.symbol for symbol in floor.symbols]
        show_json({"floor": floor.code, "symbols": symbols, "phase": chosen.value, "messages": len(labels)})
    else:
        line(f"{floor.code}: {counted(len(floor.symbols), 'symbol')} published, {chosen.value} from the next token on.")
    return 0


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
    config
        The market's file; if left out, that of ISOCAST_MARKET, ./market.toml, or the only market that runs here.
    json
        Print one JSON object instead of text.
    """
    from isocast.runtime.market.file import load_market
    from isocast.runtime.market.finding import find_market
    from isocast.runtime.operate.floor_change import find_floor, phase_change, publish_events

    chosen = _phase(name)
    market = load_market(find_market(config))
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
