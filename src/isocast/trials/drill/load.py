"""The load of a drill: floors that publish all the time, and a ledger of what they were promised.

`publish` returns once a message is in its source's outbox, on disk. From then on it is the market's to deliver; the
ledger says which messages these are, by label and digest, in a file that outlives whatever a drill does.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import time_ns
from types import TracebackType
from typing import Self

import numpy as np

from isocast.runtime.client.publisher import Publisher
from isocast.runtime.market.model import Market, NodeRole
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.terms.market import EventKind
from isocast.wire.events import EVENT_DTYPE, EventArray
from isocast.wire.packets import payload_digest

__all__ = ["Accepted", "Load", "read_ledger"]

_PER_TOKEN = 3
"""Messages of each floor to a token, so that every token has something to release."""
_PAUSE_LEAST_NS = 15 * MILLISECOND
_EVENTS = 2
_PATIENCE_S = 120.0
"""A drill may keep a source down for some time."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A message that a source took, and so must be in the sequence, once."""

    source: int
    number: int
    digest: bytes
    at: int
    """When it was taken."""


class Load:
    """Publishes at every source of a market until it is told to stop; an `async with` block."""

    def __init__(self, market: Market, ledger: Path) -> None:
        """Nothing is published yet."""
        self.accepted: list[Accepted] = []
        self._market = market
        self._ledger = ledger
        self._going = True
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        sources = self._market.by_role(NodeRole.PRIMARY_SOURCE)
        self._tasks = [asyncio.create_task(self._publish(plan.name), name=f"floor {plan.name}") for plan in sources]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._going = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def stop(self) -> None:
        """Publish no more; every floor waits for the answer that is due to it."""
        self._going = False
        await asyncio.gather(*self._tasks)

    async def _publish(self, source: str) -> None:
        pause_s = max(self._market.timing.token_period_ns // _PER_TOKEN, _PAUSE_LEAST_NS) / SECOND
        async with Publisher(self._market, source, patience_s=_PATIENCE_S) as publisher:
            count = 0
            while self._going:
                batch = _events(source, count)
                (label,) = await publisher.publish(batch, f"drill/{count}".encode())
                self._note(Accepted(label.source, label.number, payload_digest(batch.tobytes()), time_ns()))
                count += 1
                await asyncio.sleep(pause_s)

    def _note(self, accepted: Accepted) -> None:
        self.accepted.append(accepted)
        row = {"source": accepted.source, "number": accepted.number, "digest": accepted.digest.hex(), "at": accepted.at}
        with self._ledger.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(row)}\n")


def _events(source: str, count: int) -> EventArray:
    """Numbered without holes: no two messages of a drill have the same content."""
    events = np.zeros(_EVENTS, EVENT_DTYPE)
    events["kind"], events["floor"], events["symbol"] = EventKind.TRADE, b"XDRL", source.encode()[:8]
    events["id"] = 1 + count * _EVENTS + np.arange(_EVENTS)
    events["time"] = time_ns()
    return events


def read_ledger(path: Path) -> Sequence[Accepted]:
    """What was promised, from the file."""
    if not path.exists():
        return []
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [Accepted(row["source"], row["number"], bytes.fromhex(row["digest"]), row["at"]) for row in rows]
