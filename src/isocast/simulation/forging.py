"""A customer that forges (§6, concern 4): it hears the lines as all do, and sends in the names of their owners.

Whoever pays for a line has its key, so nothing but signatures tells its packets from the owner's. It tries, in turn by
chance: another content for what was sent, or for what will be sent next; the same with a PROOF of its own; and a
heartbeat that announces what does not exist. It signs with its own key, having no other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from isocast.hierarchy.proving import LineProver
from isocast.simulation.network import stream
from isocast.terms.ids import NodeId
from isocast.wire.packets import Packet, ReleasedPacket
from isocast.wire.signing import Signer

__all__ = ["LineForger"]

_OFTEN = 0.5
_FAR = 400
"""Sequences that a false heartbeat announces."""


class LineForger:
    """What one forging customer sends."""

    def __init__(self, seed: int, node: NodeId, signer: Signer, market: bytes, lie: Callable[[int], bytes]) -> None:
        """`lie` gives a content for a number, which is like the genuine ones and is none of them."""
        self.node = node
        self._random: Random = stream(seed, "forger", node)
        self._prover = LineProver(signer, market, bytes(16))
        self._lie = lie
        self._lies = 0

    def hear(self, packets: Sequence[ReleasedPacket]) -> tuple[Packet, ...]:
        """A burst of a line went out: what it sends into the same line."""
        if not packets or self._random.random() > _OFTEN:
            return ()
        genuine = packets[self._random.randrange(len(packets))]
        if not genuine.count:
            far = genuine.sequence + self._random.randrange(1, _FAR)
            return (self._prover.sign(genuine._replace(sequence=far, number=far, instant=genuine.instant + 1)),)
        self._lies += 1
        forged = genuine._replace(payload=self._lie(self._lies))
        if self._random.random() < _OFTEN:
            following = packets[-1].sequence + 1
            forged = forged._replace(sequence=following, number=following)
        return (*self._prover.prove([forged]), forged) if self._random.random() < _OFTEN else (forged,)
