"""A simulated operator: drains sites, changes U, and forces it when a majority will never come back (protocol §5).

An operator sees what a person would: who runs, and what the newest log says of U. It asks one member of the ring, waits
for a few cycles, and asks another if nothing came of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.ring.inputs import ControlRequested, DrainRequested, ForceRequested
from isocast.terms.ids import NodeId
from isocast.wire.packets import ControlEntry, ControlKind

if TYPE_CHECKING:
    from isocast.simulation.world import World

__all__ = ["Operator"]

_PATIENCE_CYCLES = 3
"""Cycles for one request to show in U: a token, its certificate, and a reformation in between."""


class Operator:
    """Asks until it is done."""

    def __init__(self, world: World) -> None:
        """Nothing is wanted."""
        self.world = world
        self.wishes: dict[str, None] = {}
        """What is not done yet, for people."""
        self._turn = 0

    def drain(self, site: NodeId, *, leaving: bool) -> None:
        """Ask a site to leave the ring, or to come back; one that is down has left, and comes back by itself."""
        self.world.hosts[site].feed(DrainRequested(leaving))

    def add(self, site: NodeId) -> None:
        """Start a site that knows nothing, and make it part of U."""
        if site not in self.world.hosts:
            self.world.join(site)
        self._want(ControlEntry(ControlKind.ADD_SITE, site, b""))

    def remove(self, site: NodeId) -> None:
        """Take a site out of U, be it alive or not."""
        self._want(ControlEntry(ControlKind.REMOVE_SITE, site, b""))

    def force(self, universe: tuple[NodeId, ...]) -> None:
        """Tell a server that these sites are U."""
        self.wishes[f"force U to {universe}"] = None
        self._force(universe)

    # Until it is done ---------------------------------------------------------------------------

    def _want(self, entry: ControlEntry) -> None:
        self.wishes[_told(entry)] = None
        self._ask(entry)

    def _ask(self, entry: ControlEntry) -> None:
        """Ask the next member of the ring, unless U is as wanted."""
        world = self.world
        if (entry.subject in world.universe()) == (entry.kind is ControlKind.ADD_SITE):
            self.wishes.pop(_told(entry), None)
            return
        members = [site for site in self._ring() if self._serves(site)]
        if members:
            world.hosts[members[self._turn % len(members)]].feed(ControlRequested(entry))
        world.agenda.put(world.agenda.now + self._patience_ns(), self._ask_another, entry)

    def _ask_another(self, entry: ControlEntry) -> None:
        self._turn += 1
        self._ask(entry)

    def _force(self, universe: tuple[NodeId, ...]) -> None:
        world = self.world
        if self._is_forced(tuple(sorted(universe))):
            self.wishes.pop(f"force U to {universe}", None)
            return
        servers = [server for server in world.servers if world.hosts[server].running]
        if servers:
            self._turn += 1
            world.hosts[servers[self._turn % len(servers)]].feed(ForceRequested(universe))
        world.agenda.put(world.agenda.now + self._patience_ns(), self._force, universe)

    def _is_forced(self, universe: tuple[NodeId, ...]) -> bool:
        """Whether the newest log has the token that forces U so."""
        newest = self.world.newest()
        if newest is None:
            return False
        accepted, held = newest.receiver.accepted, newest.receiver.held
        rings = [ring for ring in self.world.rings if ring.forced and ring.universe == universe]
        return any(ring.ballot <= accepted and ring.first_token <= held for ring in rings)

    def _patience_ns(self) -> int:
        timing = self.world.settings.timing
        cycle_ns = (len(self.world.universe()) + 1) * timing.token_period_ns
        return _PATIENCE_CYCLES * cycle_ns + 4 * timing.reformation_ns

    def _ring(self) -> tuple[NodeId, ...]:
        newest = self.world.newest()
        return newest.receiver.ring.ring if newest is not None and newest.receiver.ring is not None else ()

    def _serves(self, site: NodeId) -> bool:
        host = self.world.hosts[site]
        return host.running and isinstance(host.machine, PrimaryReceiver)


def _told(entry: ControlEntry) -> str:
    return f"{entry.kind.name.lower().replace('_', ' ')} {entry.subject}"
