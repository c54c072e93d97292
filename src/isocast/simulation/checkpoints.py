"""A simulated driver's part in rejoining: a checkpoint travels from one site's memory to another, by a call that waits.

Whoever is down, stopped or cut off does not answer. What was released meanwhile needs no fetching here: nobody reads a
simulated journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.nodes.secondary_receiver import SecondaryReceiver
from isocast.ring.inputs import CheckpointFetched
from isocast.terms.ids import NodeId

if TYPE_CHECKING:
    from isocast.ring.effects import CheckpointWanted
    from isocast.simulation.host import Host
    from isocast.simulation.world import World

__all__ = ["fetch_checkpoint"]


def fetch_checkpoint(world: World, host: Host, wish: CheckpointWanted) -> None:
    """Ask the first that was named; a site that is left without an answer asks another."""
    giver = wish.ask[0]
    delay_ns = world.network.delay_ns(host.node, giver)
    if world.network.reaches(host.node, giver):
        world.agenda.put(world.agenda.now + delay_ns, lambda _: _give(world, host, giver), None)


def _give(world: World, host: Host, giver: NodeId) -> None:
    there = world.hosts.get(giver)
    if there is None or not there.running or not world.network.reaches(giver, host.node):
        return
    if isinstance(there.machine, PrimaryReceiver | SecondaryReceiver):
        fetched = CheckpointFetched(there.machine.receiver.ledger.floor.copy(), giver)
        world.agenda.put(world.agenda.now + world.network.delay_ns(giver, host.node), host.feed, fetched)
