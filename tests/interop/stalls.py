"""How long this machine kept a thread from running that had nothing to do but wake up.

What a processor that is shared, or taken away, does to a market is no fault of the market. The load of a machine says
little of it: a core may be gone for half a second while nothing else runs here.
"""

import os
from collections import deque
from threading import Event, Thread
from time import monotonic_ns, sleep, time_ns
from typing import Self

__all__ = ["Stalls"]

_EVERY_NS = 5_000_000
_KEPT_NS = 20_000_000
"""What came less late than that is nobody's trouble."""
_KEPT = 10_000


class Stalls:
    """A thread for each core wakes every few milliseconds, and notes when it came late, and by how much."""

    def __init__(self) -> None:
        self._late: deque[tuple[int, int]] = deque(maxlen=_KEPT)
        self._enough = Event()
        cores = sorted(os.sched_getaffinity(0))
        self._threads = [Thread(target=self._run, args=(core,), name="stalls", daemon=True) for core in cores]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        for thread in self._threads:
            thread.join()

    def longest_ns(self, since: int, until: int) -> int:
        """The longest between two instants of the wall clock."""
        return max([late for at, late in list(self._late) if since <= at and at - late <= until], default=0)

    def _run(self, core: int) -> None:
        os.sched_setaffinity(0, {core})  # Of this thread alone.
        while not self._enough.is_set():
            began = monotonic_ns()
            sleep(_EVERY_NS / 1e9)
            late = monotonic_ns() - began - _EVERY_NS
            if late > _KEPT_NS:
                self._late.append((time_ns(), late))
