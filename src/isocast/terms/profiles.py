"""Named sets of times: what to start from on a kind of network, each with the reason for its figures.

δ_N is a little more than the slowest packet that is worth waiting for; P is how late a busy process may run its
timers and answers, and an owner later than that stays silent; the rest follows by the formulas of `timing`.
"""

from __future__ import annotations

from dataclasses import dataclass

from isocast.terms.instants import MICROSECOND
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


_MEANING = {
    "lan": "One building or one machine with cores to spare: packets take microseconds, so that the timers of a process"
    " decide. Clocks by PTP, or one clock for all.",
    "continent": "Sites up to 5,000 km apart: 25 ms in fibre, half as much again for detours, and room for jitter.",
    "world": "Sites anywhere: half-way round the earth is 100 ms in fibre, and half as much again for detours and"
    " jitter. P is the paper's, a few tens of milliseconds.",
    "ci": "Many processes on few busy cores, as in tests: a process may wait long for its turn, but nothing is far and"
    " little is lost, so that three requests are enough.",
}
_FIGURES = (
    # In microseconds, but for k_r:
    # name, δ_N, P, k_r, ε, δ_S, d
    ("lan", 3_000, 5_000, 4, 100, 3_000, 100),
    ("continent", 50_000, 20_000, 4, 1_000, 30_000, 25_000),
    ("world", 150_000, 50_000, 4, 2_000, 50_000, 75_000),
    ("ci", 50_000, 100_000, 3, 1_000, 50_000, 1_000),
)

PROFILES: dict[str, Profile] = {
    name: Profile(
        name,
        _MEANING[name],
        detect_ns=detect * MICROSECOND,
        process_ns=process * MICROSECOND,
        retries_max=retries_max,
        clock_error_ns=clock_error * MICROSECOND,
        secondary_detect_ns=secondary_detect * MICROSECOND,
        one_way_delay_ns=one_way_delay * MICROSECOND,
    )
    for name, detect, process, retries_max, clock_error, secondary_detect, one_way_delay in _FIGURES
}
"""By name, the fastest first."""
