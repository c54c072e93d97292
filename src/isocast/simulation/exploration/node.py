"""One node of the explored market: its machine, its disk, its clock, and what an observer remembers of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.reformation.server import ReformationServer, ServerState
from isocast.ring.source import OutboxState, PrimarySource
from isocast.ring.storage import SiteState
from isocast.simulation.exploration.freezing import Freezer, clone
from isocast.terms.ids import Epoch, NodeId

__all__ = ["Local", "Memory"]


@dataclass(slots=True)
class Memory:
    """What an observer from outside remembers of one node, restarts and lost disks included. It only grows."""

    journals: tuple[tuple[str, ...], ...] = ((),)
    """Labels in the order of their release; a site without its disk begins a new journal."""
    holdings: tuple[tuple[Epoch, int, bytes], ...] = ()
    """Of each epoch in which the site took part: how far it held the log there, and its digest."""
    issued: tuple[tuple[Epoch, int, bytes], ...] = ()
    """Epoch, number and digest of every token that the site sent as its own."""
    rings: tuple[tuple[Epoch, Epoch, int, bytes], ...] = ()
    """Of each ring that a server decided: ballot, and the cut (epoch, token, digest)."""
    flaw: tuple[str, str] | None = None
    """The property that the node broke by itself, and how."""
    restarts: int = 0
    lost_disks: int = 0
    shorter_logs: int = 0
    ballots: int = 0
    forgot: bool = False


@dataclass(slots=True)
class Local:
    """The whole state of one node."""

    node: NodeId
    machine: PrimaryReceiver | ReformationServer | PrimarySource
    disk: SiteState | ServerState | OutboxState
    now: int = 0
    sent: int = 0
    """Every letter that it ever sent."""
    memory: Memory = field(default_factory=Memory)

    def copy(self) -> Local:
        """An independent one; machine and disk share nothing that changes."""
        pair: list[Any] = clone([self.machine, self.disk])
        return Local(self.node, pair[0], pair[1], self.now, self.sent, clone(self.memory))

    def digest(self, freezer: Freezer) -> bytes:
        """Equal for equal states; what was sent does not count."""
        return freezer.digest(self.machine, self.disk, self.now, self.memory)
