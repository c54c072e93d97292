"""Named sets of times: what to start from on a kind of network, each with the reason for its figures.

δ_N is a little more than the slowest packet that is worth waiting for; P is how late a busy process may run its
timers and answers, and an owner later than that stays silent; the rest follows by the formulas of `timing`.
"""

from __future__ import annotations

from dataclasses import dataclass

from isocast.terms.instants import MICROSECOND, MILLISECOND
from isocast.terms.timing import Timing

__all__ = ["PROFILES", "Profile"]


@dataclass(frozen=True, slots=True)
class Profile:
    """The times that a kind of network is given; all others are derived from them."""

    name: str
    meaning: str
    """For which network, and why these figures."""
    detect_ns: int
    """δ_N."""
    process_ns: int
    """P."""
    retries_max: int
    """k_r."""
    clock_error_ns: int
    """ε, where the configuration names no bound."""
    secondary_detect_ns: int
    """δ_S: from a secondary receiver to its parent, which is near."""
    one_way_delay_ns: int
    """d: what a packet usually takes, for the mean latency."""
    transmit_ns: int = 0
    """X: negligible at today's rates."""

    @property
    def secondary_retry_ns(self) -> int:
        """τ_{r,S} = 2δ_S+X+P: a request to the parent and its answer must have had time to arrive."""
        return 2 * self.secondary_detect_ns + self.transmit_ns + self.process_ns

    def timing(self, ring_size: int, layers: int = 1) -> Timing:
        """The times of a ring of this size, with so many layers of receivers."""
        lower = layers - 1
        return Timing(
            detect_ns=self.detect_ns,
            transmit_ns=self.transmit_ns,
            process_ns=self.process_ns,
            retries_max=self.retries_max,
            clock_error_ns=self.clock_error_ns,
            ring_size=ring_size,
            secondary_detect_ns=self.secondary_detect_ns if lower else 0,
            secondary_retry_ns=self.secondary_retry_ns if lower else 0,
            secondary_layers=max(lower, 1),
        )


_ALL = (
    Profile(
        "lan",
        "One building or one machine with cores to spare: packets take microseconds, so that the timers of a"
        " process decide. Clocks by PTP, or one clock for all.",
        detect_ns=3 * MILLISECOND,
        process_ns=5 * MILLISECOND,
        retries_max=4,
        clock_error_ns=100 * MICROSECOND,
        secondary_detect_ns=3 * MILLISECOND,
        one_way_delay_ns=100 * MICROSECOND,
    ),
    Profile(
        "continent",
        "Sites up to 5,000 km apart: 25 ms in fibre, half as much again for detours, and room for jitter.",
        detect_ns=50 * MILLISECOND,
        process_ns=20 * MILLISECOND,
        retries_max=4,
        clock_error_ns=1 * MILLISECOND,
        secondary_detect_ns=30 * MILLISECOND,
        one_way_delay_ns=25 * MILLISECOND,
    ),
    Profile(
        "world",
        "Sites anywhere: half-way round the earth is 100 ms in fibre, and half as much again for detours and jitter."
        " P is the paper's, a few tens of milliseconds.",
        detect_ns=150 * MILLISECOND,
        process_ns=50 * MILLISECOND,
        retries_max=4,
        clock_error_ns=2 * MILLISECOND,
        secondary_detect_ns=50 * MILLISECOND,
        one_way_delay_ns=75 * MILLISECOND,
    ),
    Profile(
        "ci",
        "Many processes on few busy cores, as in tests: a process may wait long for its turn, but nothing is far and"
        " little is lost, so that three requests are enough.",
        detect_ns=50 * MILLISECOND,
        process_ns=100 * MILLISECOND,
        retries_max=3,
        clock_error_ns=1 * MILLISECOND,
        secondary_detect_ns=50 * MILLISECOND,
        one_way_delay_ns=1 * MILLISECOND,
    ),
)

PROFILES: dict[str, Profile] = {profile.name: profile for profile in _ALL}
"""By name, the fastest first."""
