"""Make this process punctual, as far as the machine allows, and say what was granted.

A release is late when the scheduler, the allocator or the collector comes first. Real-time priority answers the first
and needs permission; the rest needs none.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from isocast.runtime.net import kernel

__all__ = ["FIFO_PRIORITY", "KEPT_BYTES", "Granted", "become_punctual", "collector_paused"]

FIFO_PRIORITY = 10
"""Above every ordinary process, below the kernel's interrupt threads at 50."""
KEPT_BYTES = 256 << 20
"""Freed memory that the allocator keeps. Giving it back after each burst costs several times the burst: every page
has to be zeroed and mapped again."""
_TIMER_SLACK_NS = 1
_COLLECTIONS = (50_000, 20, 100)
"""Packets are many and make no cycles: the collector looks for some a hundred times less often than it would."""


@dataclass(frozen=True, slots=True)
class Granted:
    """What the machine allowed."""

    realtime: bool
    timer_slack: bool
    memory_kept: bool
    detail: str
    """One line for a person: what was refused, and what would allow it."""


def become_punctual(*, realtime: bool) -> Granted:
    """Ask for everything that helps; to be called once, after all imports and before the first packet.

    Real-time priority is not passed on to child processes.
    """
    slack = kernel.set_timer_slack(_TIMER_SLACK_NS)
    kept = kernel.keep_freed_memory(KEPT_BYTES)
    granted, detail = _ask_for_realtime() if realtime else (False, "real-time priority is not asked for")
    gc.collect()
    # What lives since the start lives to the end: the collector need not look at it again.
    gc.freeze()
    gc.set_threshold(*_COLLECTIONS)
    return Granted(granted, slack, kept, detail)


def _ask_for_realtime() -> tuple[bool, str]:
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(FIFO_PRIORITY))
    except AttributeError:
        return False, "this system has no real-time priority"
    except OSError as reason:
        return False, (
            f"real-time priority {FIFO_PRIORITY} is refused ({reason.strerror}), so releases are later: allow it by"
            f" `ulimit -r {FIFO_PRIORITY}`, LimitRTPRIO={FIFO_PRIORITY} in the unit, or the capability CAP_SYS_NICE"
        )
    return True, f"real-time priority {FIFO_PRIORITY} (SCHED_FIFO)"


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the collector away from what must not be late."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
