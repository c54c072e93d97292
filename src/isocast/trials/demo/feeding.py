"""A floor that publishes: its events, in small batches, at the door of its source."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field

from isocast.runtime.client.publisher import Publisher
from isocast.runtime.market.model import Market
from isocast.trials.demo.floors import FloorPlan, SyntheticFloor

__all__ = ["Feed"]

_STEP_S = 0.1
"""Between two batches: seven or eight to a token, so that they fall anywhere between two of them."""
_KEY = "demo"
_RATE_STEPS = 50
"""Batches over which the rate is taken: five seconds."""


@dataclass(slots=True)
class Feed:
    """One floor, and what it was promised."""

    plan: FloorPlan
    seed: int
    events: int = 0
    """In the source's outbox, on its disk: numbers 1 to this."""
    messages: int = 0
    _recent: deque[int] = field(default_factory=lambda: deque(maxlen=_RATE_STEPS))

    @property
    def rate(self) -> float:
        """Events a second, lately."""
        return sum(self._recent) / (len(self._recent) * _STEP_S) if self._recent else 0.0

    async def run(self, market: Market, going: asyncio.Event, offset_s: float) -> None:
        """Publish in step with the clock while `going` is set; then have the last answer, and end."""
        floor = SyntheticFloor(self.plan, self.seed)
        async with Publisher(market, self.plan.source) as publisher:
            began = time.monotonic() + offset_s
            step = 0
            while going.is_set():
                step += 1
                await asyncio.sleep(max(began + step * _STEP_S - time.monotonic(), 0))
                batch = floor.until(step * _STEP_S)
                self._recent.append(len(batch))
                if not len(batch) or not going.is_set():
                    continue
                batch["time"] = time.time_ns()
                labels = await publisher.publish(batch, f"{_KEY}/{step}".encode())
                self.events += len(batch)
                self.messages += len(labels)
