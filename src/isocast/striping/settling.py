"""Symbols find their kin: stripes that are full enough exchange symbols until each is where it moves with the others.

Filling stripes gives few of them, and the first takes whatever fits. Here nobody joins a stripe that has no room, and
no stripe is added or emptied: related stocks come together at no cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from isocast.striping.kinship import Kinship
from isocast.striping.loads import Limits, Load

__all__ = ["settle"]

_ROUNDS = 6
_GAIN = 0.01
"""Of a correlation: less is no reason to move."""
_MISSES = 200
"""Symbols in a row that do not fit before a stripe counts as full."""
_CELLS = 20_000_000
"""Bounds: symbols times stripes, 80 MB; larger plans stay as they were filled."""

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


class _Stripe(Protocol):
    symbols: list[int]
    sector: str
    oversized: bool


def settle(load: Load, stripes: Sequence[_Stripe], sector_of: Sequence[str], limits: Limits, kinship: Kinship) -> None:
    """Move symbols of no sector to the stripe with whose middle they move most; a sector binds its own more closely."""
    shared = [stripe for stripe in stripes if not stripe.oversized]
    symbols = np.array(sorted([symbol for stripe in shared for symbol in stripe.symbols]), np.int64)
    if len(shared) < 2 or len(symbols) * len(shared) > _CELLS:  # noqa: PLR2004 (nowhere to go)
        return
    place_of = {symbol: place for place, symbol in enumerate(symbols.tolist())}
    free = np.array([not sector_of[symbol] for symbol in symbols.tolist()])
    if not free.any():
        return
    for _ in range(_ROUNDS):
        at = np.zeros(len(symbols), np.int64)
        for number, stripe in enumerate(shared):
            at[[place_of[symbol] for symbol in stripe.symbols]] = number
        nearness = np.stack([kinship.along(np.array(stripe.symbols), symbols) for stripe in shared], axis=1)
        moved = 0
        for number, stripe in enumerate(shared):
            wanted = _candidates(number, at, nearness, free)
            moved += _take(stripe, shared, load, limits, symbols, wanted, at, number) if len(wanted) else 0
        if not moved:
            break
    for stripe in shared:
        found = {sector_of[symbol] for symbol in stripe.symbols}
        stripe.sector = found.pop() if len(found) == 1 else "mixed"


def _candidates(number: int, at: Integers, nearness: Floats, free: npt.NDArray[np.bool_]) -> Integers:
    """Who would rather be on a stripe, and may: those who gain most first."""
    gain = nearness[:, number] - nearness[np.arange(len(at)), at]
    wanted = np.flatnonzero((gain > _GAIN) & (at != number) & free)
    return wanted[np.argsort(-gain[wanted], kind="stable")]


def _take(
    stripe: _Stripe,
    shared: Sequence[_Stripe],
    load: Load,
    limits: Limits,
    symbols: Integers,
    wanted: Integers,
    at: Integers,
    number: int,
) -> int:
    """Those for whom there is room; how many there were."""
    load.clear()
    for symbol in stripe.symbols:
        load.add(symbol)
    own = limits.raised(int(load.prices.max()))
    moved = misses = 0
    for place in wanted.tolist():
        symbol, before = int(symbols[place]), shared[int(at[place])]
        if len(before.symbols) == 1:
            continue
        if load.add_if_fits(symbol, own):
            before.symbols.remove(symbol)
            stripe.symbols.append(symbol)
            at[place] = number
            moved, misses = moved + 1, 0
        else:
            misses += 1
            if misses > _MISSES:
                break
    return moved
