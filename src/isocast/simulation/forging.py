"""Customers that forge (§6, concern 4): they hear what all do, and send in the names of senders.

Whoever pays for a line has its key, so nothing but signatures tells a forger's packets from the owner's; it signs with
its own key, having no other. What it tries, in turn by chance:

- On a line: another content for what was sent, or for what will be sent next; the same with a PROOF of its own; a
  heartbeat that announces what does not exist.
- In a narrow stripe: another content under a number that was sent, or that comes next; a heartbeat that announces what
  does not exist, or tomorrow's session; an end of a session that goes on; the same content with a PROOF that it signed
  itself, or with a genuine PROOF whose digests it replaced; packets with their PROOF, as another stripe's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, timedelta
from random import Random
from typing import NamedTuple

from isocast.feeds.mold import END_OF_SESSION, MoldPacket, end_of_session, heartbeat, packet_of, parse_packet
from isocast.hierarchy.proving import LineProver
from isocast.simulation.network import stream
from isocast.terms.ids import NO_EPOCH, NodeId
from isocast.wire.packets import Packet, ReleasedPacket
from isocast.wire.signing import SignedKind, Signer
from isocast.wire.stripe_proofs import (
    STRIPE_PROOF_MAGIC,
    ProvenBlock,
    StripeProof,
    block_digest,
    paths_of,
    proof_leaf,
    read_stripe_proof,
    root_statement,
    write_stripe_proof,
)

__all__ = ["LineForger", "StripeForger"]

_OFTEN = 0.5
_FAR = 400
"""How far ahead a false heartbeat announces."""


class LineForger:
    """What one forging customer sends into a line."""

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


_SELDOM = 0.2
_MESSAGE_BYTES = 12
_STRIPE = slice(6, 10)
_DAY = slice(0, 6)


class _Remembered(NamedTuple):
    proof: StripeProof
    owner: NodeId


class StripeForger:
    """What one forging customer sends into narrow stripes."""

    def __init__(self, seed: int, node: NodeId, signer: Signer, market: bytes, sessions: tuple[bytes, ...]) -> None:
        """`sessions`: the ends of the names of all stripes' sessions."""
        self.node = node
        self._random: Random = stream(seed, "stripe forger", node)
        self._signer = signer
        self._market = market
        self._ends = sessions
        self._proofs: dict[tuple[NodeId, bytes], _Remembered] = {}
        self._lies = 0

    def hear(self, raw: bytes, owner: NodeId, now: int) -> tuple[bytes, ...]:
        """A datagram of a sender went out: what it sends in the name of that sender."""
        if raw.startswith(STRIPE_PROOF_MAGIC):
            return self._after_proof(read_stripe_proof(raw), owner)
        packet = parse_packet(raw)
        if self._random.random() > _OFTEN:
            return ()
        if not packet.messages or self._random.random() < _SELDOM:
            return (self._beat(packet),)
        return self._content(raw, packet, owner, now)

    def _after_proof(self, proof: StripeProof, owner: NodeId) -> tuple[bytes, ...]:
        if not proof.blocks:
            return ()
        self._proofs[owner, proof.session] = _Remembered(proof, owner)
        if self._random.random() > _OFTEN:
            return ()
        false = self._lie(proof.session, proof.first, proof.blocks[0].messages)
        block = ProvenBlock(proof.blocks[0].messages, block_digest(self._market, proof.salt, false))
        return write_stripe_proof(proof._replace(blocks=(block, *proof.blocks[1:]))), false

    def _beat(self, packet: MoldPacket) -> bytes:
        year, month, today = [int(packet.session[at : at + 2]) for at in (0, 2, 4)]
        day = date(2_000 + year, month, today) + timedelta(days=1)
        tomorrow = f"{day:%y%m%d}".encode() + packet.session[_STRIPE]
        far = packet.sequence + self._random.randrange(1, _FAR)
        lies = (heartbeat(packet.session, far), heartbeat(tomorrow, 1), end_of_session(packet.session, far))
        return self._random.choice(lies)

    def _content(self, raw: bytes, packet: MoldPacket, owner: NodeId, now: int) -> tuple[bytes, ...]:
        remembered = self._proofs.get((owner, packet.session))
        proven = {} if remembered is None else _numbers(remembered.proof)
        if remembered is not None and packet.sequence in proven and self._random.random() < _OFTEN:
            other = packet.session[_DAY] + self._random.choice(
                [end for end in self._ends if end != packet.session[_STRIPE]]
            )
            return write_stripe_proof(remembered.proof._replace(session=other)), other + raw[len(other) :]
        number = packet.sequence + packet.count * self._random.randrange(2)
        false = self._lie(packet.session, number, packet.count)
        return (self._signed(false, number, packet, owner, now), false) if self._random.random() < _OFTEN else (false,)

    def _signed(self, false: bytes, number: int, packet: MoldPacket, owner: NodeId, now: int) -> bytes:
        """In the name of the sender, by its own key: it has no other."""
        salt = bytes(8)
        block = ProvenBlock(packet.count, block_digest(self._market, salt, false))
        made = StripeProof(owner, packet.session, now, 0, number, ended=False, salt=salt, blocks=(block,))
        root, _ = paths_of([proof_leaf(made)])
        said = root_statement(owner, now, root)
        signature = self._signer.sign(SignedKind.STRIPE_PROOF, 0, NO_EPOCH, said)
        return write_stripe_proof(made._replace(signature=signature))

    def _lie(self, session: bytes, number: int, count: int) -> bytes:
        """Messages that are like the genuine ones and are none of them."""
        self._lies += 1
        message = _MESSAGE_BYTES.to_bytes(2) + b"FORGED" + self._lies.to_bytes(_MESSAGE_BYTES - 6)
        return packet_of(session, number, min(count, END_OF_SESSION - 1), message * count)


def _numbers(proof: StripeProof) -> dict[int, None]:
    """The numbers with which its blocks begin."""
    found: dict[int, None] = {}
    number = proof.first
    for block in proof.blocks:
        found[number] = None
        number += block.messages
    return found
