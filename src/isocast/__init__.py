"""Isocast: one sequence of market messages, released everywhere at the same instant.

    with isocast.connect() as market:
        market.publish({"kind": "trade", "floor": "XLON", "symbol": "VOD", "price": "72.5", "quantity": 100})
        for batch in market.listen(start="beginning", timeout_s=5):
            print(batch.to_pandas())

`connect_async` is the same for programs with an event loop. The public names are loaded when they are first used, so
that `import isocast` costs nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # As `typing` has it, which takes some milliseconds to import.

if TYPE_CHECKING:
    from isocast.runtime.client.blocking import Connection, Listening, LiveTape, connect
    from isocast.runtime.client.connection import (
        AsyncConnection,
        AsyncListening,
        AsyncTape,
        Published,
        connect_async,
    )
    from isocast.runtime.client.live_tape import TapeRow
    from isocast.runtime.client.publisher import PublishRefusedError
    from isocast.runtime.client.received import BatchKind, ReceivedBatch
    from isocast.runtime.client.replay import ReplayReport
    from isocast.terms.errors import ConfigurationError, IsocastError, RowError
    from isocast.wire.events import EVENT_DTYPE

__all__ = [
    "EVENT_DTYPE",
    "AsyncConnection",
    "AsyncListening",
    "AsyncTape",
    "BatchKind",
    "ConfigurationError",
    "Connection",
    "IsocastError",
    "Listening",
    "LiveTape",
    "PublishRefusedError",
    "Published",
    "ReceivedBatch",
    "ReplayReport",
    "RowError",
    "TapeRow",
    "__version__",
    "connect",
    "connect_async",
]

__version__ = "0.1.0"

_HOMES = {
    "EVENT_DTYPE": "isocast.wire.events",
    "AsyncConnection": "isocast.runtime.client.connection",
    "AsyncListening": "isocast.runtime.client.connection",
    "AsyncTape": "isocast.runtime.client.connection",
    "BatchKind": "isocast.runtime.client.received",
    "ConfigurationError": "isocast.terms.errors",
    "Connection": "isocast.runtime.client.blocking",
    "IsocastError": "isocast.terms.errors",
    "Listening": "isocast.runtime.client.blocking",
    "LiveTape": "isocast.runtime.client.blocking",
    "PublishRefusedError": "isocast.runtime.client.publisher",
    "Published": "isocast.runtime.client.connection",
    "ReceivedBatch": "isocast.runtime.client.received",
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
