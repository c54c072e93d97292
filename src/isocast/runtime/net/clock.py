"""The clock of a node, how far it may be from true time, and what proves that it is further.

Nothing on one machine can prove that its clock is right; two things can prove that it is wrong. The kernel says that
its error exceeds the bound that the market counts on. Or the clock moved, against the machine's own oscillator, by
more than any clock within its bound could: from one end of the bound to the other, 2ε, while the oscillator itself
drifts by at most 500 ppm. Releases stop then, because they would no longer be simultaneous.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from isocast.runtime.net.kernel import KernelClock, read_kernel_clock
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import MILLISECOND

__all__ = ["DRIFT_PPM", "BoundSource", "ClockState", "ClockStatus", "Readings", "SystemClock"]

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


class BoundSource(StrEnum):
    """Whose bound counts."""

    KERNEL = "kernel"
    CONFIGURED = "configured"


@dataclass(frozen=True, slots=True)
class ClockStatus:
    """One judgement."""

    state: ClockState
    bound_ns: int | None
    """ε; None once neither the kernel nor the configuration gives one."""
    bound_source: BoundSource
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
            raise ConfigurationError(file, "clock.bound", "an error bound is not negative")
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
        """Whether somebody set the clock since the last judgement, so that another is due before anything is done.

        Cheap enough for every step of a machine: a clock set forward must not release what a judgement would stop.
        """
        return abs(self.now() - self._readings.steady() - self._standing_ns) > self._jump_ns

    def check(self) -> ClockStatus:
        """Judge the clock anew."""
        self._standing_ns = self.now() - self._readings.steady()
        kernel = self._readings.kernel()
        synchronised = kernel is not None and kernel.synchronised
        error_ns = kernel.max_error_ns if kernel is not None else None
        bound_ns, source = self._configured_ns, BoundSource.CONFIGURED
        if bound_ns is None and synchronised:
            bound_ns, source = error_ns, BoundSource.KERNEL
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
