"""Gaps of one message in one region, and how its retransmit server fills them (§7.1; protocol §7).

Whoever lacks the message asks when its patience is over, and again every retry. The server answers the first request
that arrives with one multicast for all, and none of the others that come before the next retry. A customer that the
repair reaches before its own patience is over never asks: that is what keeps a wide loss from becoming a flood.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isocast.reformation.scopes.surface import Floats, Ints
from isocast.studies.planet.settings import EdgeSettings

__all__ = ["Gaps", "Repairs", "repair"]


@dataclass(frozen=True, eq=False)
class Gaps:
    """Customers who lack one message: when each asks first, how far the server is, and where each lives."""

    ask_ns: Floats
    way_ns: Floats
    cell: Ints

    def __len__(self) -> int:
        return len(self.ask_ns)

    @classmethod
    def joined(cls, parts: Sequence[Gaps]) -> Gaps:
        """All of some blocks."""
        return cls(
            np.concatenate([part.ask_ns for part in parts]),
            np.concatenate([part.way_ns for part in parts]),
            np.concatenate([part.cell for part in parts]),
        )


@dataclass(frozen=True, eq=False)
class Repairs:
    """What came of it."""

    requests: int
    repairs: int
    """Multicasts of the server."""
    got_ns: Floats
    """When each customer got the message; infinite for those who did not."""


def repair(random: np.random.Generator, gaps: Gaps, settings: EdgeSettings, each: float, cells: int) -> Repairs:
    """All rounds; `each` is the loss of an edge, of which there are two to a customer under tree loss."""
    got = np.full(len(gaps), np.inf)
    requests = repairs = 0
    for attempt in range(settings.retries_max):
        lacking = np.flatnonzero(np.isinf(got))
        if not len(lacking):
            break
        ask = gaps.ask_ns[lacking] + attempt * settings.retry_ns
        way = gaps.way_ns[lacking]
        heard = random.random(len(lacking)) >= settings.loss
        reached = np.where(heard, ask + way + _jitter(random, settings, len(lacking)), np.inf)
        first = float(reached.min())
        # The first request that arrives is answered; what it asked for serves whoever else lacks it.
        back = first + way + _jitter(random, settings, len(lacking))
        passed = random.random(len(lacking)) >= each
        if settings.tree:
            passed &= ~(random.random(cells) < each)[gaps.cell[lacking]]
        served = passed & np.isfinite(back)
        requests += int((ask < np.where(served, back, np.inf)).sum())
        repairs += int(np.isfinite(first))
        got[lacking[served]] = back[served]
    return Repairs(requests, repairs, got)


def _jitter(random: np.random.Generator, settings: EdgeSettings, count: int) -> Floats:
    return random.exponential(settings.jitter_ns, count) if settings.jitter_ns else np.zeros(count)
