"""The clock of a node and its bound, one alarm at an absolute instant, and a process made punctual.

Nothing on one machine can prove that its clock is right; two things can prove that it is wrong. The kernel says that
its error exceeds the bound that the market counts on. Or the clock moved, against the machine's own oscillator, by
more than any clock within its bound could: from one end of the bound to the other, 2ε, while the oscillator itself
drifts by at most 500 ppm. Releases stop then, because they would no longer be simultaneous.
"""

from __future__ import annotations

import errno
import gc
import os
import time
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from time import monotonic_ns, time_ns
from typing import Protocol

from isocast.runtime.market.model import ClockSource
from isocast.runtime.net import kernel
from isocast.runtime.net.kernel import KernelClock, read_kernel_clock
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import MILLISECOND, NEVER, SECOND

__all__ = [
    "DRIFT_PPM",
    "FIFO_PRIORITY",
    "KEPT_BYTES",
    "AlarmClock",
    "Bell",
    "ClockState",
    "ClockStatus",
    "DescriptorBell",
    "Granted",
    "LoopBell",
    "Readings",
    "SystemClock",
    "become_punctual",
    "open_bell",
]


DRIFT_PPM = 500
"""What NTP allows the worst oscillator, and the rate at which Linux lets its own error estimate grow."""

_MILLION = 1_000_000
_JUMP_NS = MILLISECOND
"""What two readings may be apart because the process had to wait in between."""
_READINGS = 3
"""A reading of two clocks that was interrupted is repeated; the quickest counts."""


class ClockState(StrEnum):
    """What is known of the clock."""

    SYNCHRONISED = "synchronised"
    """The kernel says that somebody steers it, and nothing speaks against the bound."""
    UNSYNCHRONISED = "unsynchronised"
    """The kernel says that nobody does, as in most containers: the configuration vouches for it."""
    STEPPED = "stepped"
    """It moved by more than its bound allows."""
    OUTSIDE = "outside"
    """The kernel's own error estimate exceeds the bound."""


@dataclass(frozen=True, slots=True)
class ClockStatus:
    """One judgement."""

    state: ClockState
    bound_ns: int | None
    """ε; None once neither the kernel nor the configuration gives one."""
    bound_source: ClockSource
    kernel_synchronised: bool
    kernel_max_error_ns: int | None
    """None where the kernel does not say."""
    detail: str
    """What is the matter and what to do, in one line."""

    @property
    def trusted(self) -> bool:
        """Whether releases may go on."""
        return self.bound_ns is not None and self.state in (ClockState.SYNCHRONISED, ClockState.UNSYNCHRONISED)


@dataclass(frozen=True, slots=True)
class Readings:
    """Where the times come from; tests give their own."""

    wall: Callable[[], int] = time.time_ns
    oscillator: Callable[[], int] = lambda: time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    """Runs freely: shows steps and slews alike."""
    steady: Callable[[], int] = time.monotonic_ns
    """Is slewed with the wall clock: shows steps only, and those exactly."""
    kernel: Callable[[], KernelClock | None] = read_kernel_clock


class SystemClock:
    """CLOCK_REALTIME with a bound. `check` judges it, about once a second and whenever it was set."""

    def __init__(
        self,
        configured_bound_ns: int | None,
        *,
        offset_ns: int = 0,
        watch_kernel: bool = True,
        file: str = "configuration",
        readings: Readings | None = None,
    ) -> None:
        """`offset_ns` makes a wrong clock for experiments; without `watch_kernel` the configured bound counts alone.

        Refuses to start without any bound: the protocol's times rest on one.
        """
        self.offset_ns = offset_ns
        self._readings = readings or Readings()
        self._wall = self._readings.wall
        self._configured_ns = configured_bound_ns
        self._watch_kernel = watch_kernel
        _, self._anchor_ns, self._anchored_at = self._apart()
        self._widest_ns = 0
        self._stepped = False
        if configured_bound_ns is not None and configured_bound_ns < 0:
            raise ConfigurationError(file, "clock.bound", "must not be negative")
        self.status = self.check()
        """The last judgement."""
        if self.status.bound_ns is None:
            raise ConfigurationError(
                file,
                "clock.bound",
                "the kernel does not call its clock synchronised, so set a bound here that you can vouch for, or run an"
                " NTP or PTP daemon",
            )

    def now(self) -> int:
        """Nanoseconds since 1970 on this node's clock."""
        return self._wall() + self.offset_ns

    def jumped(self) -> bool:
        """Whether the clock was set since the last judgement, so that another is due before anything is done.

        Cheap enough for every step of a machine: a clock set forward must not release what a judgement would stop.
        """
        return abs(self.now() - self._readings.steady() - self._standing_ns) > self._jump_ns

    def check(self) -> ClockStatus:
        """Judge the clock anew."""
        self._standing_ns = self.now() - self._readings.steady()
        kernel = self._readings.kernel()
        synchronised = kernel is not None and kernel.synchronised
        error_ns = kernel.max_error_ns if kernel is not None else None
        bound_ns, source = self._configured_ns, ClockSource.CONFIGURED
        if bound_ns is None and synchronised:
            bound_ns, source = error_ns, ClockSource.KERNEL
        state = ClockState.SYNCHRONISED if synchronised else ClockState.UNSYNCHRONISED
        moved_ns = 0
        self._jump_ns = max(bound_ns or 0, _JUMP_NS)
        if bound_ns is not None:
            moved_ns = self._follow(bound_ns)
            if self._stepped:
                state = ClockState.STEPPED
            elif self._watch_kernel and synchronised and error_ns is not None and error_ns > bound_ns:
                state = ClockState.OUTSIDE
        detail = _detail(state, bound_ns, error_ns, moved_ns)
        self.status = ClockStatus(state, bound_ns, source, synchronised, error_ns, detail)
        return self.status

    def _apart(self) -> tuple[int, int, int]:
        """How uncertain the difference is, wall clock minus oscillator, and the oscillator's instant."""
        return min([self._reading() for _ in range(_READINGS)])

    def _reading(self) -> tuple[int, int, int]:
        before = self._readings.oscillator()
        wall = self.now()
        after = self._readings.oscillator()
        middle = (before + after) // 2
        return after - before, wall - middle, middle

    def _follow(self, bound_ns: int) -> int:
        """How far the clock is from where its past puts it; decides whether it was stepped.

        The anchor follows the clock no faster than the oscillator may drift, so many small steps add up.
        """
        uncertain_ns, apart_ns, at = self._apart()
        # The kernel's bound shrinks when its daemon corrects the clock; the correction is no proof of anything.
        self._widest_ns = max(self._widest_ns, bound_ns)
        moved_ns = apart_ns - self._anchor_ns
        if self._stepped:
            # The anchor stays where the clock was; only coming back there clears it, not the mere passing of time.
            self._stepped = abs(moved_ns) > bound_ns + uncertain_ns
            if not self._stepped:
                self._anchored_at = at
            return moved_ns
        # Elapsed by the oscillator itself, which may be slow; rounded up.
        drift_ns = -(DRIFT_PPM * min(self._anchored_at - at, 0) // (_MILLION - DRIFT_PPM))
        excess_ns = max(abs(moved_ns) - drift_ns - uncertain_ns, 0)
        if excess_ns > self._widest_ns + bound_ns:
            self._stepped = True
            return moved_ns
        followed = min(abs(moved_ns), drift_ns)
        self._anchor_ns += followed if moved_ns > 0 else -followed
        self._anchored_at = at
        return moved_ns


def _milliseconds(nanoseconds: int) -> str:
    return f"{nanoseconds / MILLISECOND:.3f} ms"


def _detail(state: ClockState, bound_ns: int | None, error_ns: int | None, moved_ns: int) -> str:
    if bound_ns is None:
        return "no bound: the kernel's clock is not synchronised; start an NTP or PTP daemon, or set clock.bound"
    bound = _milliseconds(bound_ns)
    match state:
        case ClockState.SYNCHRONISED:
            return f"synchronised; the kernel puts its error at {_milliseconds(error_ns or 0)}, {bound} counts"
        case ClockState.UNSYNCHRONISED:
            return f"the kernel's clock is not synchronised; the configured {bound} counts (clock.bound)"
        case ClockState.STEPPED:
            return (
                f"the clock moved by {_milliseconds(moved_ns)}, which no clock within {bound} does: set it back, or"
                " synchronise it and restart this node"
            )
        case ClockState.OUTSIDE:
            return (
                f"the kernel puts its error at {_milliseconds(error_ns or 0)}, above the {bound} that the market"
                " counts on: see to the NTP or PTP daemon, or raise clock.bound everywhere"
            )


# Make this process punctual, as far as the machine allows, and say what was granted.
#
# A release is late when the scheduler, the allocator or the collector comes first. Real-time priority answers the first
# and needs permission; the rest needs none.


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


# One alarm for one process: it rings at an absolute instant of the system clock, never before it.
#
# On Linux it is a timerfd on CLOCK_REALTIME, which rings some 50 µs late on an idle machine, follows the clock when
# that is slewed, and reports when somebody sets it. Elsewhere the event loop's own timer stands in, checked and set
# again until the instant has come: never early either, but later, and a clock that was set is noticed within a second.


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


class AlarmClock:
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
            # Its owner arms it again when woken; until then it keeps hopping, to see the clock being set.
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
