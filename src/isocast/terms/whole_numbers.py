"""Products of whole numbers that came from outside: numpy wraps around 64 bits without a word, this does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["LARGEST", "times", "within"]

LARGEST = (1 << 63) - 1

Flags = npt.NDArray[np.bool_]


def within(values: npt.NDArray[Any], least: int, most: int) -> Flags:
    """Which whole numbers, signed or not, are of a range: bounds are compared as they are, not as the array's type."""
    kind = np.iinfo(values.dtype)
    good = np.ones(len(values), np.bool_)
    if least > kind.min:
        good &= values >= min(least, kind.max) if least <= kind.max else False
    if most < kind.max:
        good &= values <= max(most, kind.min) if most >= kind.min else False
    return good


def times(values: npt.NDArray[Any], factor: int) -> tuple[npt.NDArray[np.int64], Flags]:
    """Each value times a factor above 0, and which products fit 64 bits with a sign; the others are 0."""
    bound = LARGEST // factor
    good = within(values, -bound, bound)
    return np.where(good, values, 0).astype(np.int64) * np.int64(factor), good
