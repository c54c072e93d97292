"""One alarm for one process: it rings at an absolute instant of the system clock, never before it.

On Linux it is a timerfd on CLOCK_REALTIME, which rings some 50 µs late on an idle machine, follows the clock when that
is slewed, and reports when somebody sets it. Elsewhere the event loop's own timer stands in, checked and set again
until the instant has come: never early either, but later, and a clock that was set is noticed within a second.
"""

from __future__ import annotations

import errno
import os
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from time import monotonic_ns, time_ns
from typing import Protocol

from isocast.runtime.net import kernel
from isocast.terms.instants import MILLISECOND, NEVER, SECOND

__all__ = ["Alarm", "Bell", "DescriptorBell", "LoopBell", "open_bell"]

_EXPIRATIONS_BYTES = 8
_HOP_NS = SECOND
"""Without a timerfd, how long a set clock may go unnoticed."""
_STEP_NS = MILLISECOND
"""Without a timerfd, what two readings of two clocks may differ by without a step between them."""


class Bell(Protocol):
    """What wakes the alarm: at the instant or later, or earlier with `stepped` when the clock was set."""

    def arm(self, instant_ns: int) -> None:
        """Ring at this instant of the system clock instead of any other; NEVER only if the clock is set."""

    def close(self) -> None:
        """Ring no more."""


Woken = Callable[[bool], None]
"""Told whether the clock was set."""


class Alarm:
    """Calls back once, at the instant that was set last."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        rang: Callable[[], None],
        stepped: Callable[[], None] | None = None,
        *,
        offset_ns: int = 0,
        now: Callable[[], int] = time_ns,
        bell: Callable[[AbstractEventLoop, Woken], Bell] | None = None,
    ) -> None:
        """Make it after a fork, not before. `stepped` is called when the clock was set; the alarm stays set then.

        Instants are of a clock that is `offset_ns` ahead of the system's, which `now` reads.
        """
        self._rang = rang
        self._stepped = stepped
        self._offset_ns = offset_ns
        self._now = now
        self._instant = NEVER
        self._bell = (bell or open_bell)(loop, self._woken)
        self._bell.arm(NEVER)

    @property
    def instant(self) -> int:
        """When it will ring, or NEVER."""
        return self._instant

    def follow(self, offset_ns: int) -> None:
        """Instants are of a clock that is so far ahead of the system's from now on."""
        self._offset_ns = offset_ns
        self._arm()

    def set(self, instant_ns: int) -> None:
        """Ring at this instant instead of any other; at once, from the event loop, if it is past."""
        self._instant = min(instant_ns, NEVER)
        self._arm()

    def clear(self) -> None:
        """Do not ring."""
        self.set(NEVER)

    def close(self) -> None:
        """Ring no more, and give back what the bell holds."""
        self._instant = NEVER
        self._bell.close()

    def _arm(self) -> None:
        # Zero would disarm a timerfd; one nanosecond after 1970 is past just as well.
        self._bell.arm(max(self._instant - self._offset_ns, 1) if self._instant < NEVER else NEVER)

    def _woken(self, stepped: bool) -> None:  # noqa: FBT001 - the one thing that a bell has to say
        if stepped:
            self._arm()
            if self._stepped is not None:
                self._stepped()
            return
        if self._now() + self._offset_ns < self._instant:
            self._arm()
            return
        self._instant = NEVER
        self._rang()


class DescriptorBell:
    """A timerfd, watched by the event loop."""

    def __init__(self, loop: AbstractEventLoop, woken: Woken, descriptor: int) -> None:
        """Take over the descriptor."""
        self._loop = loop
        self._woken = woken
        self._descriptor = descriptor
        loop.add_reader(descriptor, self._readable)

    def arm(self, instant_ns: int) -> None:
        """One system call; a ring that was due but not heard yet is forgotten."""
        try:
            kernel.arm_timer(self._descriptor, instant_ns)
        except OSError as reason:
            if reason.errno != errno.ECANCELED:
                raise
            # Armed all the same; the clock was set since the last time.
            self._loop.call_soon(self._woken, True)  # noqa: FBT003 - as `Woken` wants it

    def _readable(self) -> None:
        try:
            os.read(self._descriptor, _EXPIRATIONS_BYTES)
        except BlockingIOError:
            return
        except OSError as reason:
            if reason.errno != errno.ECANCELED:
                raise
            self._woken(True)  # noqa: FBT003 - as `Woken` wants it
            return
        self._woken(False)  # noqa: FBT003 - as `Woken` wants it

    def close(self) -> None:
        """Close the descriptor, once."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1


class LoopBell:
    """The event loop's timer, in hops of at most a second."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        woken: Woken,
        now: Callable[[], int] = time_ns,
        monotonic: Callable[[], int] = monotonic_ns,
    ) -> None:
        """Remember how the two clocks stand to each other."""
        self._loop = loop
        self._woken = woken
        self._now = now
        self._monotonic = monotonic
        self._apart = now() - monotonic()
        self._instant = NEVER
        self._handle: TimerHandle | None = None

    def arm(self, instant_ns: int) -> None:
        """Hop towards the instant, or on the spot."""
        self._instant = instant_ns
        if self._handle is not None:
            self._handle.cancel()
        wait_ns = min(max(instant_ns - self._now(), 0), _HOP_NS)
        self._handle = self._loop.call_later(wait_ns / SECOND, self._hopped)

    def _hopped(self) -> None:
        apart = self._now() - self._monotonic()
        stepped = abs(apart - self._apart) > _STEP_NS
        self._apart = apart
        if stepped or self._now() >= self._instant:
            # Whoever is woken arms it again; until then it keeps hopping, to see the clock being set.
            self.arm(NEVER)
            self._woken(stepped)
            return
        self.arm(self._instant)

    def close(self) -> None:
        """Hop no more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


def open_bell(loop: AbstractEventLoop, woken: Woken) -> Bell:
    """A timerfd where there is one."""
    descriptor = kernel.create_timer()
    return LoopBell(loop, woken) if descriptor is None else DescriptorBell(loop, woken, descriptor)
