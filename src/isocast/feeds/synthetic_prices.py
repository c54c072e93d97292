"""Prices of a synthetic day: each follows its region, its sector and itself, so that sectors move together."""

from __future__ import annotations

import numpy as np

from isocast.feeds.synthetic_world import Integers, Reals, World, draws

__all__ = ["STEP_TICKS", "Prices"]

STEP_TICKS = 100
_GRID_NS = 5_000_000_000
_DAY_NS = 86_400_000_000_000
_REGION, _SECTOR, _OWN = 0.009, 0.012, 0.010
"""Standard deviations of a day's logarithmic return, by cause."""


class Prices:
    """Middles between bid and offer at any time, asked for slice by slice in order."""

    def __init__(self, world: World) -> None:
        """Every symbol at its first price."""
        self._world = world
        self._random = draws(world.plan.seed, "prices")
        steps = _DAY_NS // _GRID_NS + 1
        scale = np.sqrt(_GRID_NS / _DAY_NS)
        shared = draws(world.plan.seed, "factors")
        regions = np.cumsum(shared.normal(0, _REGION * scale, (len(world.sessions), steps)), axis=1)
        sectors = np.cumsum(shared.normal(0, _SECTOR * scale, (world.sectors, steps)), axis=1)
        self._factors = sectors + np.repeat(regions, world.sectors // len(world.sessions), axis=0)
        self._log_first = np.log(world.first_price)
        self._own: Reals = np.zeros(world.plan.symbols)
        self._own_before: Reals = self._own
        self._start, self._end = world.midnight, world.midnight

    def advance(self, start: int, end: int) -> None:
        """The next slice of time."""
        self._start, self._end = start, end
        self._own_before = self._own
        scale = _OWN * np.sqrt((end - start) / _DAY_NS)
        self._own = self._own + self._random.normal(0, scale, len(self._own))

    def middle(self, times: Integers, symbols: Integers) -> Integers:
        """In ticks, a multiple of the smallest step."""
        since = np.clip((times - self._world.midnight) / _GRID_NS, 0, self._factors.shape[1] - 1.001)
        grid = since.astype(np.int64)
        part = since - grid
        sector = self._world.symbol_sector[symbols]
        shared = self._factors[sector, grid] * (1 - part) + self._factors[sector, grid + 1] * part
        here = (times - self._start) / max(self._end - self._start, 1)
        own = self._own_before[symbols] * (1 - here) + self._own[symbols] * here
        price = np.exp(self._log_first[symbols] + shared + own) * 10_000
        return np.maximum(np.rint(price / STEP_TICKS).astype(np.int64), 2) * STEP_TICKS
