"""Synthetic days of one world: the same symbols and sectors, other trades."""

from dataclasses import replace
from functools import cache

import numpy as np

from isocast.feeds.synthetic import SyntheticDay, SyntheticPlan
from isocast.wire.events import EventArray


def day_of(seed: int, symbols: int, trades: int) -> SyntheticDay:
    """A day of world 1; another seed is another day there."""
    day = SyntheticDay(SyntheticPlan(seed=1, symbols=symbols, trades=trades))
    day.world = replace(day.world, plan=replace(day.world.plan, seed=seed))
    return day


@cache
def events_of(seed: int, symbols: int, trades: int) -> EventArray:
    return np.concatenate(list(day_of(seed, symbols, trades).blocks()))


def sectors_of(symbols: int) -> dict[str, str]:
    world = day_of(1, symbols, 0).world
    names = [name.decode() for name in world.symbol_names.tolist()]
    return {name: f"Sector {sector}" for name, sector in zip(names, world.symbol_sector.tolist(), strict=True)}
