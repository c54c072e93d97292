"""Isocast: one sequence of market messages, released everywhere at the same instant.

    async for batch in isocast.listen("market.toml"):
        print(batch.last_sequence, batch.events["price"])

    async with isocast.Source("market.toml", "nyse") as source:
        await source.publish(events)

The public names are loaded when they are first used, so that `import isocast` costs nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # As `typing` has it, which takes some milliseconds to import.

if TYPE_CHECKING:
    from isocast.runtime.client.listener import Listener, listen
    from isocast.runtime.client.publisher import Publisher as Source
    from isocast.runtime.client.publisher import PublishRefusedError
    from isocast.runtime.client.received import BatchKind, ReceivedBatch
    from isocast.terms.errors import IsocastError
    from isocast.wire.events import EVENT_DTYPE

__all__ = [
    "EVENT_DTYPE",
    "BatchKind",
    "IsocastError",
    "Listener",
    "PublishRefusedError",
    "ReceivedBatch",
    "Source",
    "__version__",
    "listen",
]

__version__ = "0.1.0"

_HOMES = {
    "EVENT_DTYPE": ("isocast.wire.events", "EVENT_DTYPE"),
    "BatchKind": ("isocast.runtime.client.received", "BatchKind"),
    "IsocastError": ("isocast.terms.errors", "IsocastError"),
    "Listener": ("isocast.runtime.client.listener", "Listener"),
    "PublishRefusedError": ("isocast.runtime.client.publisher", "PublishRefusedError"),
    "ReceivedBatch": ("isocast.runtime.client.received", "ReceivedBatch"),
    "Source": ("isocast.runtime.client.publisher", "Publisher"),
    "listen": ("isocast.runtime.client.listener", "listen"),
}


if not TYPE_CHECKING:
    # Whoever checks types sees the names above, and no others.

    def __getattr__(name: str) -> object:
        """Load a public name on its first use."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module  # noqa: PLC0415 - not before it is needed

        module, attribute = _HOMES[name]
        value = getattr(import_module(module), attribute)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
