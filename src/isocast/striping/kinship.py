"""Which symbols belong together: those of one sector, and those that are busy at the same moments (§4.4).

Activity is compared in frames of the day. What the whole market does, openings and closes, says nothing about kinship
and is taken off; what is left of two symbols is correlated.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from isocast.striping.history import History

__all__ = ["Kinship"]

_CELLS = 24_000_000
"""Bounds: 96 MB of activity."""
_FRAMES_MAX, _FRAMES_MIN = 2_048, 32


class Kinship:
    """How alike the activity of symbols is, from -1 to 1."""

    def __init__(self, history: History) -> None:
        """Look at the whole history."""
        count = len(history.names)
        frames = int(np.clip(_CELLS // max(count, 1), _FRAMES_MIN, _FRAMES_MAX))
        owners = np.repeat(np.arange(count), np.diff(history.begins))
        frame = history.slices * frames // history.length
        activity = np.bincount(owners * frames + frame, history.prices, count * frames).reshape(count, frames)
        roots = np.sqrt(activity).astype(np.float32)
        means = roots.mean(axis=1, keepdims=True)
        market = roots.mean(axis=0, keepdims=True)
        # What a symbol would do if it did its share of what everybody does.
        roots -= means * market / max(float(market.mean()), 1e-9)
        norms = np.sqrt(np.einsum("ij,ij->i", roots, roots))
        roots /= np.maximum(norms, 1e-9)[:, None]
        self._activity = roots

    def to(self, symbols: npt.NDArray[np.int64], others: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """How near each of `others` is to the middle of `symbols`."""
        middle = self._activity[symbols].mean(axis=0)
        scores: npt.NDArray[np.float32] = self._activity[others] @ middle
        return scores

    def along(self, symbols: npt.NDArray[np.int64], others: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """The same as a correlation, however much the symbols differ among themselves: what many do together counts."""
        middle = self._activity[symbols].mean(axis=0)
        middle /= max(float(np.sqrt(middle @ middle)), 1e-9)
        scores: npt.NDArray[np.float32] = self._activity[others] @ middle
        return scores
