"""Events cut into messages: the one rule for publishers, replays and Spark's sink.

Where a message ends depends on the events and on one number: it is full, or an event is more than so much market time
after its first. How the events come in blocks makes no difference, so a repeat has the same messages. A change of
several events (LINKED) stays in one message where that is possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from isocast.terms.market import EventFlag
from isocast.wire.events import EVENT_DTYPE, EventArray
from isocast.wire.limits import EVENT_BYTES

__all__ = ["FULL", "GATHER_NS", "MessageCutter", "Times", "cut_messages", "with_times"]

Times: TypeAlias = npt.NDArray[np.uint64]

GATHER_NS = 20_000_000
"""Market time that one message may span in a replay at its own speed."""
FULL: int = 1 << 62
"""Market time without end: every message is full."""
_TIME_MAX = (1 << 64) - 1
_LINKED = int(EventFlag.LINKED)


def with_times(blocks: Iterable[EventArray]) -> Iterator[tuple[EventArray, Times]]:
    """Each block with the times of its events, a clock that steps back standing still; at the end of all, nothing."""
    latest = np.uint64(0)
    for block in blocks:
        if len(block):
            times = np.maximum.accumulate(np.maximum(block["time"], latest))
            latest = times[-1]
            yield block, times
    yield np.empty(0, EVENT_DTYPE), np.empty(0, np.uint64)


def cut_messages(
    blocks: Iterable[EventArray], per_message: int, gather_ns: int = GATHER_NS
) -> Iterator[tuple[int, EventArray]]:
    """(time of the last event, events) of each message; a clock that steps back counts as standing still."""
    cutter = MessageCutter(per_message, gather_ns)
    for block, times in with_times(blocks):
        cutter.put(block, times)
        for due, payload in cutter.cut(int(times[-1]) if len(times) else None):
            yield due, np.frombuffer(payload, EVENT_DTYPE)


class MessageCutter:
    """Cuts a row of events where the events alone say, however it comes in blocks."""

    def __init__(self, per_message: int, gather_ns: int = GATHER_NS) -> None:
        """At most so many events, and so much market time, in one message."""
        self._per_message = per_message
        self._gather_ns = gather_ns
        self._events: EventArray = np.empty(0, EVENT_DTYPE)
        self._times: Times = np.empty(0, np.uint64)

    @property
    def waiting(self) -> int:
        """Events that are in no message yet."""
        return len(self._events)

    def put(self, events: EventArray, times: Times | None = None) -> None:
        """Add events, with their times in ascending order; FULL messages need no times."""
        own = events["time"] if times is None else times
        self._events, self._times = np.concatenate([self._events, events]), np.concatenate([self._times, own])

    def cut(self, until: int | None) -> list[tuple[int, bytes]]:
        """(time of the last event, records) of the messages that are certain.

        All that follows is from `until` or later; None: nothing follows.
        """
        ends = _ends(self._events, self._times, self._per_message, until, self._gather_ns)
        if not ends:
            return []
        done = ends[-1]
        whole = self._events[:done].tobytes()
        dues = self._times[np.array(ends) - 1].tolist()
        self._events, self._times = self._events[done:], self._times[done:]
        starts = [0, *ends[:-1]]
        return [
            (due, whole[start * EVENT_BYTES : stop * EVENT_BYTES])
            for due, start, stop in zip(dues, starts, ends, strict=True)
        ]


def _ends(events: EventArray, times: Times, per_message: int, until: int | None, gather_ns: int) -> list[int]:
    """Where messages end, as far as what is here decides it; without `until` nothing follows."""
    # As bytes: one look at an element of an array costs more than all the rest of a turn of the loop.
    is_linked = (events["flags"] & _LINKED) > 0
    at, total = 0, len(events)
    if gather_ns >= FULL and not is_linked.any():
        full = list(range(per_message, total + 1, per_message))
        return [*full, total] if until is None and total % per_message else full
    linked = is_linked.tobytes()
    horizon: npt.NDArray[np.int64] | None = None
    if gather_ns < FULL:
        # A time of the last moments that 64 bits count must not wrap to the first ones.
        last = np.minimum(times, np.uint64(_TIME_MAX - gather_ns)) + np.uint64(gather_ns)
        horizon = np.searchsorted(times, last, side="right")
    ends: list[int] = []
    while at < total:
        stop = min(at + per_message, total if horizon is None else int(horizon[at]))
        if stop == total:
            if until is None:
                ends.append(total)
                break
            # What follows may still belong to it, unless it is full or the time for it is over.
            if stop - at < per_message and (horizon is None or until <= int(times[at]) + gather_ns):
                break
        inner = stop
        while inner > at and linked[inner - 1]:
            inner -= 1
        at = inner if inner > at else stop
        ends.append(at)
    return ends
