"""What a lab says about itself at its end, or when asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from isocast.terms.instants import MICROSECOND, MILLISECOND
from isocast.trials.lab.lateness import Distribution, Episode

__all__ = ["LabReport", "LinkState", "report_rows", "short_time"]


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
        """For `--json` and for the way from the switch to whoever asked."""
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
