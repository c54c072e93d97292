"""Whether a feed's time steps back."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from isocast.feeds.outcomes import Fault, FeedLog

__all__ = ["ClockWatch"]


class ClockWatch:
    """Sees the times of a feed, block after block, and counts those before the latest one."""

    def __init__(self, log: FeedLog) -> None:
        """Nothing was seen."""
        self._log = log
        self._latest = np.uint64(0)

    def see(self, times: npt.NDArray[Any], where: npt.NDArray[np.int64]) -> None:
        """Times in the feed's order, and where in the feed each stands."""
        if not len(times):
            return
        latest = np.maximum.accumulate(np.concatenate([[self._latest], times]))
        back = np.flatnonzero(times < latest[:-1])
        if len(back):
            step = int((latest[back] - times[back]).max())
            self._log.fault(Fault.BACKWARD_TIME, int(where[back[0]]), f"time steps back by {step:,} ns", len(back))
        self._latest = latest[-1]
