"""A rare event, weighed instead of awaited: how often a receiver's last request for a token is in vain (§5.1).

After k_r requests a receiver gives up. The last of them fails if it is lost itself, or if anything is that answers it:
with independent losses, with probability 1-(1-p)^(j+1) for j items that the receiver still lacks. In a ring of 100
there are some fifty last requests for each that fails, so that the sum of these chances is far steadier than a count.
"""

from __future__ import annotations

from isocast.checks.view import trim
from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.ring.receiver import Receiver
from isocast.simulation.world import World
from isocast.terms.ids import Epoch, NodeId
from isocast.wire.packets import Nack

__all__ = ["LastRequests"]

_MADE_MAX = 65_536
"""Of the largest ring, the requests of a hundred tokens."""


class LastRequests:
    """Watches a world for primary receivers' k_r-th requests, and weighs each."""

    def __init__(self, world: World) -> None:
        """Nobody has asked."""
        self.count = 0
        self.failing = 0.0
        """The sum of their chances to fail."""
        self._world = world
        self._made: dict[tuple[NodeId, Epoch, int], int] = {}
        """How often each receiver asked for each token, of those that were asked for lately."""

    def asked(self, node: NodeId, request: Nack) -> None:
        """A node sends a request."""
        key = (node, request.epoch, request.token_number)
        made = self._made[key] = self._made.get(key, 0) + 1
        trim(self._made, _MADE_MAX)
        if made == self._world.scenario.timing.retries_max:
            receiver = self._receiver(node)
            if receiver is not None:
                self._weigh(receiver, request)

    def _weigh(self, receiver: Receiver, request: Nack) -> None:
        if receiver.schedule is None:
            return
        owner = self._receiver(receiver.schedule.owner(request.token_number))
        entry = None if owner is None else owner.ledger.entries.get(request.token_number)
        if entry is None or entry.token.epoch != request.epoch:
            # The ring was reformed before its owner sent it: there is nothing to lose on the way.
            return
        lacking = len(receiver.ledger.missing(entry.token)) + (not request.has_token)
        self.count += 1
        self.failing += 1 - (1 - self._world.scenario.loss) ** (lacking + 1)

    def _receiver(self, node: NodeId) -> Receiver | None:
        host = self._world.hosts.get(node)
        machine = None if host is None else host.machine
        return machine.receiver if isinstance(machine, PrimaryReceiver) else None
