"""What a lab says about itself at its end, or when asked; and how late it was itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from isocast.terms.instants import MICROSECOND, MILLISECOND

__all__ = [
    "LATE_NS",
    "Distribution",
    "Episode",
    "LabReport",
    "LatenessHistogram",
    "LatenessRecord",
    "LinkState",
    "report_rows",
    "short_time",
]


# How late the lab itself was, so that a starved emulator is not blamed on the protocol.
#
# Lateness is the instant at which a frame left less the instant at which it was due. A frame that waits unread at its
# TAP device is not seen by that, so the switch also wakes itself at fixed intervals and measures the same of those.


LATE_NS = 2 * MILLISECOND
"""From here on lateness is worth an episode: twenty times what an idle machine shows at p99."""
_SUB_BITS = 5
_SUB_BUCKETS = 1 << _SUB_BITS
"""Buckets for each power of two: a percentile is at most 1/32 above the true value."""
_QUIET_NS = 50 * MILLISECOND
"""An episode ends when nothing was late for so long."""
_EPISODES_MAX = 1000
"""The newest are kept: at 20 a second those of the last 50 s at least."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram's summary; an upper bound within 1/32 for the percentiles, exact for the largest."""

    count: int = 0
    p50_ns: int = 0
    p99_ns: int = 0
    max_ns: int = 0


class LatenessHistogram:
    """Counts in buckets whose width grows with the value."""

    __slots__ = ("_buckets", "count", "max_ns")

    def __init__(self) -> None:
        """Nothing recorded."""
        self._buckets: dict[int, int] = {}
        self.count = 0
        self.max_ns = 0

    def record(self, value_ns: int) -> None:
        """One value, 0 or more."""
        bucket = _bucket_of(value_ns)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1
        self.count += 1
        self.max_ns = max(self.max_ns, value_ns)

    def percentile(self, share: float) -> int:
        """The value that `share` of all do not exceed: 0.99 for p99; 0 while nothing was recorded."""
        wanted = share * self.count
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                return min(_bucket_top(bucket), self.max_ns)
        return 0

    def summary(self) -> Distribution:
        """Count, median, p99 and maximum."""
        return Distribution(self.count, self.percentile(0.5), self.percentile(0.99), self.max_ns)


def _bucket_of(value: int) -> int:
    """Values below 32 have a bucket each; above, 32 for each power of two."""
    shift = value.bit_length() - _SUB_BITS - 1
    if shift <= 0:
        return value
    return (shift << _SUB_BITS) + (value >> shift)


def _bucket_top(bucket: int) -> int:
    """The largest value of a bucket."""
    if bucket < 2 * _SUB_BUCKETS:
        return bucket
    shift = (bucket >> _SUB_BITS) - 1
    return ((bucket - (shift << _SUB_BITS) + 1) << shift) - 1


@dataclass(frozen=True, slots=True)
class Episode:
    """A time during which the lab was late; instants of CLOCK_REALTIME, like those in journals."""

    from_ns: int
    """When the first of its frames or wake-ups was due."""
    to_ns: int
    """When the last of them was done."""
    worst_ns: int
    count: int

    def covers(self, from_ns: int, to_ns: int) -> bool:
        """Whether it touches that span."""
        return self.from_ns <= to_ns and from_ns <= self.to_ns


class LatenessRecord:
    """What the switch keeps about itself."""

    def __init__(self, late_ns: int = LATE_NS) -> None:
        """Nothing was late yet."""
        self._late_ns = late_ns
        self.forwards = LatenessHistogram()
        self.wakeups = LatenessHistogram()
        self._episodes: deque[Episode] = deque(maxlen=_EPISODES_MAX)

    def forwarded(self, due: int, now: int, realtime_offset: int) -> None:
        """A frame left; `realtime_offset` turns the switch's clock into CLOCK_REALTIME."""
        self.forwards.record(now - due)
        if now - due >= self._late_ns:
            self._late(due + realtime_offset, now + realtime_offset)

    def woke(self, due: int, now: int, realtime_offset: int) -> None:
        """The switch woke up for nothing but to see how late it is."""
        self.wakeups.record(now - due)
        if now - due >= self._late_ns:
            self._late(due + realtime_offset, now + realtime_offset)

    def episodes(self) -> tuple[Episode, ...]:
        """The newest episodes, oldest first."""
        return tuple(self._episodes)

    def _late(self, due: int, done: int) -> None:
        """Extend the running episode, or begin one."""
        if self._episodes and due - self._episodes[-1].to_ns < _QUIET_NS:
            running = self._episodes.pop()
            self._episodes.append(
                Episode(
                    min(running.from_ns, due),
                    max(running.to_ns, done),
                    max(running.worst_ns, done - due),
                    running.count + 1,
                )
            )
        else:
            self._episodes.append(Episode(due, done, done - due, 1))


@dataclass(frozen=True, slots=True)
class LinkState:
    """One direction as it is now, and what it did so far."""

    here: str
    there: str
    delay_ns: int
    jitter_ns: int
    loss: float
    cut: bool
    frames_taken: int
    frames_lost: int
    frames_cut: int


@dataclass(frozen=True, slots=True)
class LabReport:
    """The switch's own account since it began, or since its lateness was last reset."""

    forwards: Distribution
    """Frames: when each left less when it was due."""
    wakeups: Distribution
    """The switch's own clockwork: the same, whether or not there were frames."""
    episodes: tuple[Episode, ...]
    """When it was late by 2 ms or more."""
    frames_in: int
    frames_out: int
    frames_lost: int
    """By chance, as the world wants it."""
    frames_cut: int
    frames_ignored: int
    frames_refused: int
    """Dropped for want of room: the lab's fault."""
    device_drops: int
    """Dropped by the kernel at a TAP device that the switch did not empty in time: the lab's fault."""
    on_the_way: int
    real_time: bool
    """Whether the switch runs with a real-time priority."""
    user_namespace: bool
    """Whether it works without root, in a user namespace."""

    @property
    def at_fault(self) -> bool:
        """Whether the lab itself disturbed what ran in it."""
        return bool(self.episodes or self.frames_refused or self.device_drops)

    def late_within(self, from_ns: int, to_ns: int) -> tuple[Episode, ...]:
        """The episodes that touch a span of CLOCK_REALTIME, such as that of a release that was late."""
        return tuple(episode for episode in self.episodes if episode.covers(from_ns, to_ns))

    def as_json(self) -> dict[str, Any]:
        """For `--json`, and for the way from the switch to its clients."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """What `as_json` made of it."""
        parts = {field.name: value[field.name] for field in fields(cls)}
        parts["forwards"] = Distribution(**value["forwards"])
        parts["wakeups"] = Distribution(**value["wakeups"])
        parts["episodes"] = tuple(Episode(**episode) for episode in value["episodes"])
        return cls(**parts)


def short_time(nanoseconds: int) -> str:
    """A short time as people write it."""
    if nanoseconds < MILLISECOND:
        return f"{nanoseconds / MICROSECOND:.0f} µs"
    return f"{nanoseconds / MILLISECOND:.3g} ms" if nanoseconds < 1000 * MILLISECOND else f"{nanoseconds / 1e9:.3g} s"


def report_rows(report: LabReport) -> list[tuple[str, str]]:
    """The report as a table of two columns."""
    return [
        ("frames in", f"{report.frames_in:,}"),
        ("frames forwarded", f"{report.frames_out:,}"),
        ("frames lost as the world wants", f"{report.frames_lost:,}"),
        ("frames sent into cut links", f"{report.frames_cut:,}"),
        ("frames dropped by the lab's own fault", f"{report.frames_refused + report.device_drops:,}"),
        ("forwarding late: p50 / p99 / max", _distribution_text(report.forwards)),
        ("wake-ups late: p50 / p99 / max", _distribution_text(report.wakeups)),
        ("times late by 2 ms or more", f"{len(report.episodes):,}"),
        ("real-time priority", "yes" if report.real_time else "no"),
        ("user namespace", "yes" if report.user_namespace else "no, as root"),
    ]


def _distribution_text(distribution: Distribution) -> str:
    if not distribution.count:
        return "–"
    return " / ".join(map(short_time, (distribution.p50_ns, distribution.p99_ns, distribution.max_ns)))
