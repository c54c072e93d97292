"""What both grades of service share: the first copy of a sequence wins, later copies are compared with it."""

from __future__ import annotations

from dataclasses import dataclass

from isocast.hierarchy.customer_settings import CustomerSettings
from isocast.hierarchy.edge import ConflictFound, CustomerEffect
from isocast.hierarchy.lines import Line, Lines, Recent
from isocast.terms.ids import NodeId
from isocast.wire.packets import Released, digest_of

__all__ = ["Arbitration", "Counters"]

_CONFLICTS_TOLD = 16
"""Conflicts told in one step; all are counted. A line that lies about everything must not flood the log."""


@dataclass(slots=True)
class Counters:
    """What a customer counts, since it started."""

    delivered: int = 0
    """Messages handed on; by grade latest, messages looked at."""
    events: int = 0
    """Events handed on by grade latest."""
    strange: int = 0
    """Packets of unknown lines, other stripes, or that carry neither one message nor a heartbeat."""
    unreadable: int = 0
    """Messages that are no market events, where grade latest must look inside."""
    old: int = 0
    """Copies that came too late to be compared."""
    beyond: int = 0
    """Packets further ahead than the buffer reaches, dropped."""
    conflicts: int = 0
    """Copies with other content."""
    gaps: int = 0
    """Gaps that outlived the lines' difference."""
    requests: int = 0
    """RXREQ packets sent."""
    asked: int = 0
    """Messages asked for by them."""
    fetches: int = 0
    """Ranges and snapshots fetched at doors."""
    repaired: int = 0
    """Messages whose first copy came from a retransmit server."""
    abandoned: int = 0
    """Messages that were never delivered."""
    slow: int = 0
    """Times that this customer named itself slow."""


class Arbitration:
    """One customer's lines, its memory of recent messages, its counters, and its effects so far."""

    def __init__(self, node: NodeId, settings: CustomerSettings) -> None:
        """Nothing was heard yet."""
        self.node = node
        self.settings = settings
        self.lines = Lines(settings)
        self.recent = Recent(settings.recent_max)
        self.counters = Counters()
        self.out: list[CustomerEffect] = []
        self._told = 0

    def flush(self) -> tuple[CustomerEffect, ...]:
        """The effects of one step."""
        effects = tuple(self.out)
        self.out.clear()
        self._told = 0
        return effects

    def conflict(self, kept: Released, other: Released, line: Line) -> None:
        """Two contents for one sequence: the first copy stands, and people must know."""
        self.counters.conflicts += 1
        line.conflicts += 1
        if self._told < _CONFLICTS_TOLD:
            self._told += 1
            digests = digest_of(kept.payload), digest_of(other.payload)
            self.out.append(ConflictFound(kept.sequence, kept.sender, other.sender, *digests))

    def burst_over(self, line: Line, wins: int, duplicates: int, duplicate: int, now: int) -> None:
        """Account for a burst of one line; `duplicate` is the sequence of its last duplicate, or not positive."""
        recent, lag_ns = self.recent, 0
        if duplicate > 0 and recent.find(duplicate) is not None:
            lag_ns = max(now - recent.came[duplicate & recent.mask], 0)
        line.burst(wins, duplicates, lag_ns, now)
        if line.repairs:
            self.counters.repaired += wins
