"""When things happen on a synthetic day: a Hawkes process over a U-shaped day, as the clusters that it is made of.

Trades that nothing set off arrive as a Poisson process, dense at the opening and the close. Some of them are news of
a whole sector and touch many of its symbols within a second. Every trade sets off further ones of its symbol,
`branching` in the mean, soon after; those set off others, generation by generation. What falls behind the slice of
time that is being made waits for its own slice.
"""

from __future__ import annotations

import numpy as np

from isocast.feeds.synthetic_world import Integers, Reals, World, draws

__all__ = ["Arrivals", "day_shape"]

_GRID = 2_048
_OPENING, _CLOSING = 6.0, 7.0
"""How many times denser than at noon the first and the last minutes are."""
_OPENING_PART, _CLOSING_PART = 0.04, 0.035
_NEWS_SHARE = 0.08
_NEWS_SYMBOLS = 6.0
_NEWS_NS = 400_000_000
_FAST_NS, _SLOW_NS = 30_000_000, 4_000_000_000
_FAST_SHARE = 0.65


def day_shape(part: Reals) -> Reals:
    """Intensity at a part of the session, 0 to 1: high at both ends, lowest after the middle."""
    opening = _OPENING * np.exp(-part / _OPENING_PART)
    closing = _CLOSING * np.exp(-(1 - part) / _CLOSING_PART)
    return 1.0 + 1.2 * (2 * part - 1.1) ** 2 + opening + closing


class Arrivals:
    """Times and symbols of the trades of one day, slice by slice."""

    def __init__(self, world: World) -> None:
        """Nothing has happened."""
        self._world = world
        self._random = draws(world.plan.seed, "arrivals")
        self._waiting_time: Integers = np.empty(0, np.int64)
        self._waiting_symbol: Integers = np.empty(0, np.int64)
        part = np.linspace(0.0, 1.0, _GRID)
        shape = day_shape(part)
        steps = (shape[1:] + shape[:-1]) / 2
        self._part = part
        self._cumulative = np.concatenate([[0.0], np.cumsum(steps)]) / steps.sum()
        self._regions = [np.flatnonzero(world.symbol_region == region) for region in range(len(world.sessions))]
        self._choices = [np.cumsum(world.activity[mine]) for mine in self._regions]
        self._sector_members = [np.flatnonzero(world.symbol_sector == sector) for sector in range(world.sectors)]
        plan = world.plan
        seeds = plan.trades * (1 - plan.branching) / (1 - _NEWS_SHARE + _NEWS_SHARE * (1 + _NEWS_SYMBOLS))
        self._seeds_of_region = seeds * np.array([len(mine) for mine in self._regions]) / plan.symbols

    def until(self, start: int, end: int) -> tuple[Integers, Integers]:
        """Times and symbols of all trades from `start` to before `end`, unsorted."""
        due = self._waiting_time < end
        times, symbols = [self._waiting_time[due]], [self._waiting_symbol[due]]
        self._waiting_time, self._waiting_symbol = self._waiting_time[~due], self._waiting_symbol[~due]
        for region in range(len(self._regions)):
            for found_times, found_symbols in self._seeds(region, start, end):
                now_times, now_symbols = self._keep(found_times, found_symbols, end)
                times.append(now_times)
                symbols.append(now_symbols)
        frontier = np.concatenate(times), np.concatenate(symbols)
        all_times, all_symbols = [frontier[0]], [frontier[1]]
        while len(frontier[0]):
            frontier = self._keep(*self._children(*frontier), end)
            all_times.append(frontier[0])
            all_symbols.append(frontier[1])
        return self._in_hours(np.concatenate(all_times), np.concatenate(all_symbols))

    def _keep(self, times: Integers, symbols: Integers, end: int) -> tuple[Integers, Integers]:
        """What is of this slice; the rest waits."""
        later = times >= end
        self._waiting_time = np.concatenate([self._waiting_time, times[later]])
        self._waiting_symbol = np.concatenate([self._waiting_symbol, symbols[later]])
        return times[~later], symbols[~later]

    def _seeds(self, region: int, start: int, end: int) -> list[tuple[Integers, Integers]]:
        """Trades that nothing set off, and those of sector news."""
        session = self._world.sessions[region]
        length = session.closes - session.opens
        parts = np.clip([(start - session.opens) / length, (end - session.opens) / length], 0.0, 1.0)
        low, high = np.interp(parts, self._part, self._cumulative)
        if high <= low or not len(self._regions[region]):
            return []
        random = self._random
        count = int(random.poisson(self._seeds_of_region[region] * (high - low)))
        part = np.interp(random.uniform(low, high, count), self._cumulative, self._part)
        times = (session.opens + part * length).astype(np.int64)
        symbols = self._regions[region][
            np.minimum(np.searchsorted(self._choices[region], random.random(count)), len(self._regions[region]) - 1)
        ]
        news = np.flatnonzero(random.random(count) < _NEWS_SHARE)
        touched = random.poisson(_NEWS_SYMBOLS, len(news))
        about = np.repeat(news, touched)
        after = random.exponential(_NEWS_NS, len(about)).astype(np.int64)
        return [(times, symbols), (times[about] + after, self._neighbours(symbols[about]))]

    def _neighbours(self, symbols: Integers) -> Integers:
        """Other symbols of the same sectors."""
        chosen = symbols.copy()
        chance = self._random.random(len(symbols))
        sectors = self._world.symbol_sector[symbols]
        for sector in np.unique(sectors).tolist():
            members = self._sector_members[sector]
            here = sectors == sector
            chosen[here] = members[(chance[here] * len(members)).astype(np.int64)]
        return chosen

    def _children(self, times: Integers, symbols: Integers) -> tuple[Integers, Integers]:
        """The next generation."""
        random = self._random
        about = np.repeat(np.arange(len(times)), random.poisson(self._world.plan.branching, len(times)))
        scale = np.where(random.random(len(about)) < _FAST_SHARE, _FAST_NS, _SLOW_NS)
        after = (random.exponential(1.0, len(about)) * scale).astype(np.int64) + 1
        return times[about] + after, symbols[about]

    def _in_hours(self, times: Integers, symbols: Integers) -> tuple[Integers, Integers]:
        """Nothing trades after its floor has closed."""
        closes = np.array([session.closes for session in self._world.sessions])
        inside = times < closes[self._world.symbol_region[symbols]]
        return times[inside], symbols[inside]
