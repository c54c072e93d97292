"""What the machines of a plan of lines want done, or told (§4.3; protocol §7)."""

from __future__ import annotations

from dataclasses import dataclass

from isocast.wire.line_packets import NO_VERSION, Lines, PlanVersion

__all__ = ["KeepLines", "LineState", "LinesSettled", "PlanFailed", "PlanMade"]


@dataclass(frozen=True, slots=True)
class LineState:
    """What a server or a receiver must not forget of plans."""

    promised: PlanVersion = NO_VERSION
    """A receiver's: it takes no plan below."""
    held: Lines | None = None
    """The newest plan that it took, or made."""
    settled: Lines | None = None
    """A receiver's: the newest that a majority is known to hold, which its line follows."""

    @property
    def version(self) -> PlanVersion:
        """Of the plan that is held."""
        return NO_VERSION if self.held is None else self.held.version


@dataclass(frozen=True, slots=True)
class KeepLines:
    """Bring this to the disk before anything is sent."""

    state: LineState


@dataclass(frozen=True, slots=True)
class LinesSettled:
    """A majority holds this plan: lines follow it from now on."""

    lines: Lines


@dataclass(frozen=True, slots=True)
class PlanMade:
    """A server made this plan; `short` are customers who hear too little by it, each with the reason."""

    lines: Lines
    changed: int
    """Scopes that are not as they were."""
    moved: int
    """Of those, the ones that have another address."""
    short: tuple[tuple[str, int, str], ...]


@dataclass(frozen=True, slots=True)
class PlanFailed:
    """No plan can be made: the one in force stands."""

    rule: str
