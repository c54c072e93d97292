"""What an operator says to a floor, through the sequence: what trades there, and the phases of a day.

A floor is a function of the sequence, so nothing that it knows comes from a file: the market file says what to publish,
and every receiver learns it at the same token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from isocast.floor.codec import encode_event, floor_topic
from isocast.floor.events import Directory, Event, MarketKind, OwnRule, Phase, PriceRule, Share, Status
from isocast.runtime.client.publisher import Publisher
from isocast.runtime.market.floors import FloorSymbol, FloorTable
from isocast.runtime.market.model import Market
from isocast.terms.errors import ConfigurationError
from isocast.terms.ids import Label
from isocast.terms.quantities import suggestion
from isocast.wire.opaque import OpaqueMessage

__all__ = ["directory", "find_floor", "listing", "opening", "phase_change", "publish_events"]


def find_floor(market: Market, code: str | None) -> FloorTable:
    """The floor of this code, or the only one; ConfigurationError names those that there are."""
    codes = [floor.code for floor in market.floors]
    if not codes:
        raise ConfigurationError(market.file, "floor", "this market has no floor: add a table [floor.CODE]")
    if code is None and len(codes) > 1:
        raise ConfigurationError("command line", "CODE", f"must say which floor: {', '.join(codes)}")
    found = next((floor for floor in market.floors if code in (None, floor.code)), None)
    if found is None:
        raise ConfigurationError("command line", "CODE", f"{code} is no floor of it{suggestion(str(code), codes)}")
    return found


def directory(symbol: FloorSymbol, phase: Phase = Phase.CLOSED) -> Directory:
    """A symbol of the market file as the floor hears of it."""
    return Directory(
        symbol.symbol,
        symbol.tick,
        symbol.lot,
        MarketKind(symbol.market),
        PriceRule(symbol.price_rule),
        OwnRule(symbol.own_rule),
        Share(symbol.share),
        symbol.collar_bp,
        symbol.band_bp,
        symbol.pause_ns,
        symbol.reference,
        phase,
    )


def opening(floor: FloorTable, phase: Phase = Phase.OPEN) -> list[Event]:
    """Everything that trades there, with the rules of the file, and then the phase for all of it."""
    return [*listing(floor), Status(None, phase)]


def listing(floor: FloorTable) -> list[Event]:
    """Everything that trades there, with the rules of the file; what is new begins closed."""
    return [directory(symbol) for symbol in floor.symbols]


def phase_change(floor: FloorTable, phase: Phase, symbols: Sequence[str] = ()) -> list[Event]:
    """A phase for some symbols, or for the whole floor; ConfigurationError for a symbol that is not there."""
    known = [symbol.symbol for symbol in floor.symbols]
    for name in symbols:
        if name not in known:
            rule = f"{name} does not trade at {floor.code}{suggestion(name, known)}"
            raise ConfigurationError("command line", "--symbol", rule)
    return [Status(name, phase) for name in symbols] or [Status(None, phase)]


async def publish_events(market: Market, floor: FloorTable, events: Iterable[Event]) -> tuple[Label, ...]:
    """Put what an operator says into the sequence, through a source of the floor."""
    topic = floor_topic(floor.code)
    async with Publisher(market, floor.sources[0]) as publisher:
        return await publisher.send([OpaqueMessage(topic, encode_event(event)) for event in events])
