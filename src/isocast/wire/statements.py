"""What the signature of each packet covers, so that one signature never counts for another purpose.

    TOKEN     its canonical body, all of it
    RECEIPT   held 8 | digest 32
    INVITE    the epoch that its server knows 4 + 4; under the ballot's epoch, as JOIN and NEWRING
    JOIN      e_acc 4 + 4 | h 8 | digest 32 | digest of flags and body 32: NEWRING repeats what checks it
    NEWRING   uncertified 1 | forced 1 | its body, the votes and the order included
    SRCCHAIN  source with its incarnation 8 | since 8 | before 32 | number 8 | digest 32; under no epoch, since numbers
              continue across epochs

Around these stand the purpose, market, stripe, epoch and the roster's serial (`security.identities`).
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple, TypeAlias, TypeVar

from isocast.terms.errors import RemoteProtocolError
from isocast.terms.ids import NO_EPOCH, Epoch, NodeId
from isocast.wire.ballot_bodies import join_body, new_ring_body
from isocast.wire.packets import Invite, Join, NewRing, Receipt, SourceChain, Token, Vote, digest_of
from isocast.wire.signing import SignedKind
from isocast.wire.token_body import token_body

__all__ = [
    "Signed",
    "SignedPacket",
    "SignedT",
    "read_chain_statement",
    "signed",
    "signed_vote",
    "vote_of",
    "with_signature",
]

SignedPacket: TypeAlias = Token | Receipt | Invite | Join | NewRing | SourceChain
"""What carries a signature."""
SignedT = TypeVar("SignedT", Token, Receipt, Invite, Join, NewRing, SourceChain)
_HELD = Struct("<Q32s")
_EPOCH = Struct("<II")
_WORD = Struct("<IIQ32s32s")
_CHAIN = Struct("<QQ32sQ32s")


class Signed(NamedTuple):
    """What one packet's signature is for, and covers."""

    kind: SignedKind
    epoch: Epoch
    body: bytes


def signed(packet: SignedPacket) -> Signed:
    """What the signature of a packet covers. Ballots are signed under the epoch that they are to begin."""
    match packet:
        case Token():
            return Signed(SignedKind.TOKEN, packet.epoch, token_body(packet))
        case Receipt():
            return Signed(SignedKind.RECEIPT, packet.epoch, _HELD.pack(packet.held, packet.digest))
        case Invite():
            return Signed(SignedKind.INVITE, packet.ballot, _EPOCH.pack(*packet.epoch))
        case Join():
            return signed_vote(vote_of(packet), packet.ballot)
        case NewRing():
            flags = bytes((packet.uncertified, packet.forced))
            return Signed(SignedKind.NEWRING, packet.ballot, flags + new_ring_body(packet))
        case SourceChain():
            body = _CHAIN.pack(packet.sender, packet.since, packet.before, packet.number, packet.digest)
            return Signed(SignedKind.SOURCE_CHAIN, NO_EPOCH, body)


def read_chain_statement(stripe: int, sender: NodeId, body: bytes) -> SourceChain:
    """What a source signed, back from the body of a statement; RemoteProtocolError if it says nothing of that kind."""
    if len(body) != _CHAIN.size:
        raise RemoteProtocolError(f"{len(body)} bytes, {_CHAIN.size} expected")
    source, since, before, number, digest = _CHAIN.unpack(body)
    if source != sender or not (since < number or (since, before) == (number, digest)):
        raise RemoteProtocolError(f"source {source}, from {since} to {number}")
    return SourceChain(stripe, NO_EPOCH, source, since, before, number, digest)


def vote_of(vote: Join) -> Vote:
    """What a NEWRING repeats of a JOIN."""
    rest = digest_of(bytes((vote.leaving,)), join_body(vote))
    return Vote(vote.sender, vote.epoch, vote.held, vote.digest, rest, vote.signature)


def signed_vote(vote: Vote, ballot: Epoch) -> Signed:
    """What the signature of a vote covers: what decides the cut, and the digest of the rest."""
    return Signed(SignedKind.JOIN, ballot, _WORD.pack(*vote.epoch, vote.held, vote.digest, vote.rest))


def with_signature(packet: SignedT, signature: bytes) -> SignedT:
    """The packet as it travels."""
    if isinstance(packet, Token):
        packet.signature = signature
        return packet
    return packet._replace(signature=signature)
