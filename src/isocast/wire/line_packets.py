"""The packets that say where receivers remulticast (§4.3; protocol §7), as values: LINEASK, LINEACK and LINES."""

from __future__ import annotations

from typing import NamedTuple

from isocast.terms.ids import FIRST_SERVER, NO_EPOCH, Epoch, NodeId

__all__ = ["NO_ADDRESS", "NO_VERSION", "LineAck", "LineAsk", "LineRest", "LineScope", "Lines", "PlanVersion"]

NO_ADDRESS = 0xFFFF
"""Of a scope that is silent."""


class PlanVersion(NamedTuple):
    """Which of two plans is newer: that of the higher ballot, of the higher revision, of the higher server."""

    ballot: Epoch
    revision: int
    author: NodeId

    def __str__(self) -> str:
        """As people see it: the epoch, which plan of it, and whose plan if the ring was another server's."""
        if not self.ballot.number:
            return "none"
        by = "" if self.author == self.ballot.server else f"@{max(self.author - FIRST_SERVER, 0)}"
        return f"{self.ballot}/{self.revision}{by}"


NO_VERSION = PlanVersion(NO_EPOCH, 0, 0)


class LineAsk(NamedTuple):
    """LINEASK: a server that holds plan `held` asks for promises to take nothing below `version`.

    With no version it only asks for a plan that is newer than its own.
    """

    stripe: int
    epoch: Epoch
    sender: NodeId
    version: PlanVersion
    held: PlanVersion


class LineAck(NamedTuple):
    """LINEACK: what a receiver promised, and the plan that it holds on its disk.

    `settled` says that a majority is known to hold that plan, so that lines may follow it.
    """

    stripe: int
    epoch: Epoch
    sender: NodeId
    promised: PlanVersion
    held: PlanVersion
    settled: bool = False


class LineScope(NamedTuple):
    """How far one receiver remulticasts, and on which address: metres around its place, in degrees."""

    site: NodeId
    latitude: float
    longitude: float
    radius_m: int
    settled_m: int
    """What it was planned with; what a reformation added beyond is given back when that is possible."""
    address: int
    """NO_ADDRESS if it is silent."""


class LineRest(NamedTuple):
    """An address that was taken from a scope: until an instant nobody else uses it where it was heard."""

    site: NodeId
    latitude: float
    longitude: float
    radius_m: int
    settled_m: int
    address: int
    free_at: int


class Lines(NamedTuple):
    """LINES: the plan. Address n stands for `stripes` groups from `first_group`+n·`stripes` on, an IPv4 as a number."""

    stripe: int
    epoch: Epoch
    sender: NodeId
    version: PlanVersion
    made_at: int
    first_group: int
    stripes: int
    scopes: tuple[LineScope, ...]
    rests: tuple[LineRest, ...]
