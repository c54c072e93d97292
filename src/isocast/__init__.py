"""Isocast: one sequence of market messages, released everywhere at the same instant.

    with isocast.connect() as market:
        market.publish({"kind": "trade", "floor": "XLON", "symbol": "VOD", "price": "72.5", "quantity": 100})
        for batch in market.listen(start="beginning", timeout_s=5):
            print(batch.to_pandas())

`help(isocast.Connection)` lists what a market can be asked, and `help(isocast.ReceivedBatch)` what is heard of it.
`connect_async` is the same for programs with an event loop. `help(isocast.Trader)` says how to trade at a gateway. The
public names are loaded when they are first used, so that `import isocast` costs nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # As `typing` has it, which takes some milliseconds to import.

if TYPE_CHECKING:
    from isocast.runtime.client.blocking import Connection, Listening, LiveTape, connect
    from isocast.runtime.client.blocking_trader import BlockingOrder, BlockingTrader
    from isocast.runtime.client.connection import (
        AsyncConnection,
        AsyncListening,
        AsyncTape,
        Published,
        connect_async,
    )
    from isocast.runtime.client.floor_client import Floor, FloorBook, FloorLevel, FloorResult, FloorTrade
    from isocast.runtime.client.live_tape import BookLevel, BookRow, TapeRow
    from isocast.runtime.client.publisher import PublishRefusedError
    from isocast.runtime.client.received import BatchKind, ReceivedBatch, ReceivedMessage
    from isocast.runtime.client.replay import ReplayReport
    from isocast.runtime.client.sealed_bids import KeptBid
    from isocast.runtime.client.trader import Trader, TraderOrder
    from isocast.runtime.client.trading_answers import Balance, OpenLot, OpenOffer, OrderReport, TradedSymbol
    from isocast.terms.errors import (
        ConfigurationError,
        IsocastError,
        RowError,
        TraderLostError,
        TraderRefusedError,
    )
    from isocast.terms.instruments import Instrument
    from isocast.wire.events import EVENT_DTYPE
    from isocast.wire.opaque import OpaqueMessage

__all__ = [
    "EVENT_DTYPE",
    "AsyncConnection",
    "AsyncListening",
    "AsyncTape",
    "Balance",
    "BatchKind",
    "BlockingOrder",
    "BlockingTrader",
    "BookLevel",
    "BookRow",
    "ConfigurationError",
    "Connection",
    "Floor",
    "FloorBook",
    "FloorLevel",
    "FloorResult",
    "FloorTrade",
    "Instrument",
    "IsocastError",
    "KeptBid",
    "Listening",
    "LiveTape",
    "OpaqueMessage",
    "OpenLot",
    "OpenOffer",
    "OrderReport",
    "PublishRefusedError",
    "Published",
    "ReceivedBatch",
    "ReceivedMessage",
    "ReplayReport",
    "RowError",
    "TapeRow",
    "TradedSymbol",
    "Trader",
    "TraderLostError",
    "TraderOrder",
    "TraderRefusedError",
    "__version__",
    "connect",
    "connect_async",
]

__version__ = "0.1.0"

_HOMES = {
    "KeptBid": "isocast.runtime.client.sealed_bids",
    "Balance": "isocast.runtime.client.trading_answers",
    "BlockingOrder": "isocast.runtime.client.blocking_trader",
    "BlockingTrader": "isocast.runtime.client.blocking_trader",
    "OpenLot": "isocast.runtime.client.trading_answers",
    "OpenOffer": "isocast.runtime.client.trading_answers",
    "OrderReport": "isocast.runtime.client.trading_answers",
    "TradedSymbol": "isocast.runtime.client.trading_answers",
    "Trader": "isocast.runtime.client.trader",
    "TraderOrder": "isocast.runtime.client.trader",
    "TraderLostError": "isocast.terms.errors",
    "TraderRefusedError": "isocast.terms.errors",
    "EVENT_DTYPE": "isocast.wire.events",
    "AsyncConnection": "isocast.runtime.client.connection",
    "AsyncListening": "isocast.runtime.client.connection",
    "AsyncTape": "isocast.runtime.client.connection",
    "BatchKind": "isocast.runtime.client.received",
    "BookLevel": "isocast.runtime.client.live_tape",
    "BookRow": "isocast.runtime.client.live_tape",
    "ConfigurationError": "isocast.terms.errors",
    "Connection": "isocast.runtime.client.blocking",
    **dict.fromkeys(
        ("Floor", "FloorBook", "FloorLevel", "FloorResult", "FloorTrade"), "isocast.runtime.client.floor_client"
    ),
    "Instrument": "isocast.terms.instruments",
    "IsocastError": "isocast.terms.errors",
    "Listening": "isocast.runtime.client.blocking",
    "LiveTape": "isocast.runtime.client.blocking",
    "PublishRefusedError": "isocast.runtime.client.publisher",
    "Published": "isocast.runtime.client.connection",
    "OpaqueMessage": "isocast.wire.opaque",
    "ReceivedBatch": "isocast.runtime.client.received",
    "ReceivedMessage": "isocast.runtime.client.received",
    "ReplayReport": "isocast.runtime.client.replay",
    "RowError": "isocast.terms.errors",
    "TapeRow": "isocast.runtime.client.live_tape",
    "connect": "isocast.runtime.client.blocking",
    "connect_async": "isocast.runtime.client.connection",
}


if not TYPE_CHECKING:
    # Whoever checks types sees the names above, and no others.

    def __getattr__(name: str) -> object:
        """Load a public name on its first use."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module  # noqa: PLC0415 - not before it is needed

        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
