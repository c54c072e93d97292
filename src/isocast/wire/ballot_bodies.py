"""The bodies of suspicion and reformation: SUSPECT, INVITE, REFUSE, JOIN and NEWRING (protocol §5).

Sites and servers take 4 bytes, sources 8. JOIN and NEWRING end in lists whose counts stand before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import pack as pack_values
from struct import unpack as unpack_values
from typing import Any

from isocast.terms.errors import RemoteProtocolError
from isocast.terms.ids import Epoch, NodeId
from isocast.wire.frame import Header, Layout, PacketKind, digest_fault, nonce_fault
from isocast.wire.limits import (
    JOIN_BYTES,
    MAX_NEXT_NUMBERS,
    MAX_RING,
    MAX_UDP,
    MAX_VOTES,
    NEW_RING_BYTES,
    NEXT_NUMBER_BYTES,
    NODE_BYTES,
    ORDER_BYTES,
    SIGNATURE_BYTES,
    VOTE_BYTES,
)
from isocast.wire.orders import order_fault
from isocast.wire.packets import (
    SHORT_DIGEST_BYTES,
    Invite,
    Join,
    NewRing,
    NextNumber,
    Refuse,
    Suspect,
    Suspicion,
    Vote,
)
from isocast.wire.signing import signature_fault

__all__ = ["BALLOTS", "REASONS", "join_body", "new_ring_body"]

_SUSPECT = Struct("<QQHII")
_INVITE = Struct("<II")
_REFUSE = Struct("<IIIIQ")
_JOIN = Struct("<IIQ32sqQq16sHHH")
_NEW_RING = Struct("<IIQQqIIQ32s5H")
_NEXT_NUMBER = Struct("<QQ")
_VOTE = Struct("<IIIQ32s32s72s")

REASONS: dict[Suspicion, int] = {
    Suspicion.UNRECOVERED: 1,
    Suspicion.NO_RECEIPTS: 2,
    Suspicion.BEHIND: 3,
    Suspicion.LATE: 4,
    Suspicion.CLOCK: 5,
    Suspicion.SEALED: 6,
    Suspicion.OUTSIDE: 7,
    Suspicion.LOST: 8,
    Suspicion.STRANDED: 9,
    Suspicion.LEAVING: 10,
}
"""The number of each reason on the wire."""
_SUSPICIONS = {number: reason for reason, number in REASONS.items()}


def _write_suspect(packet: Suspect) -> bytes:
    return _SUSPECT.pack(packet.token_number, packet.suspect, REASONS[packet.reason], *packet.promised)


def _read_suspect(header: Header, body: bytes) -> Suspect:
    token_number, suspect, code, number, server = _SUSPECT.unpack(body)
    reason = _SUSPICIONS.get(code)
    if reason is None:
        raise RemoteProtocolError(f"SUSPECT: reason {code} is unknown")
    return Suspect(*header, token_number, suspect, reason, Epoch(number, server))


def _write_invite(packet: Invite) -> bytes:
    return _INVITE.pack(*packet.ballot) + packet.signature


def _read_invite(header: Header, body: bytes) -> Invite:
    end = _INVITE.size
    return Invite(*header, Epoch._make(_INVITE.unpack(body[:end])), body[end:])


def _invite_fault(packet: Invite) -> str | None:
    return signature_fault(packet.signature)


def _write_refuse(packet: Refuse) -> bytes:
    return _REFUSE.pack(*packet.ballot, *packet.promised, packet.held)


def _read_refuse(header: Header, body: bytes) -> Refuse:
    number, server, promised_number, promised_server, held = _REFUSE.unpack(body)
    return Refuse(*header, Epoch(number, server), Epoch(promised_number, promised_server), held)


class _Lists:
    """Reads one list after another from the end of a body; `signature` is what is left."""

    __slots__ = ("_at", "_body")

    def __init__(self, body: bytes, at: int) -> None:
        self._body = body
        self._at = at

    def _take(self, length: int) -> bytes:
        start, self._at = self._at, self._at + length
        return self._body[start : self._at]

    def nodes(self, count: int) -> tuple[NodeId, ...]:
        return unpack_values(f"<{count}I", self._take(count * NODE_BYTES))

    def nonces(self, count: int) -> tuple[bytes, ...]:
        raw = self._take(count * SHORT_DIGEST_BYTES)
        return tuple(raw[at : at + SHORT_DIGEST_BYTES] for at in range(0, len(raw), SHORT_DIGEST_BYTES))

    def next_numbers(self, count: int) -> tuple[NextNumber, ...]:
        return tuple(map(NextNumber._make, _NEXT_NUMBER.iter_unpack(self._take(count * NEXT_NUMBER_BYTES))))

    def votes(self, count: int) -> tuple[Vote, ...]:
        rows = _VOTE.iter_unpack(self._take(count * VOTE_BYTES))
        return tuple([Vote(site, Epoch(number, server), *rest) for site, number, server, *rest in rows])

    def order(self) -> bytes:
        """Its length and that of a signature tell what is left."""
        left = len(self._body) - self._at
        return self._take(ORDER_BYTES) if left in (ORDER_BYTES, ORDER_BYTES + SIGNATURE_BYTES) else b""

    def signature(self) -> bytes:
        if len(self._body) not in (self._at, self._at + SIGNATURE_BYTES):
            raise RemoteProtocolError(f"{len(self._body)} bytes, {self._at} expected")
        return self._body[self._at :]


def _write_nodes(nodes: Sequence[NodeId]) -> bytes:
    return pack_values(f"<{len(nodes)}I", *nodes)


def _write_next_numbers(numbers: Sequence[NextNumber]) -> bytes:
    return b"".join([_NEXT_NUMBER.pack(*entry) for entry in numbers])


def _node_fault(name: str, nodes: Sequence[NodeId]) -> str | None:
    if len(nodes) > MAX_RING or len(set(nodes)) != len(nodes):
        return f"{name} of {len(nodes)} nodes, at most {MAX_RING}, or a node twice"
    return None


def _next_number_fault(numbers: Sequence[NextNumber]) -> str | None:
    if len(numbers) > MAX_NEXT_NUMBERS or len({entry.source for entry in numbers}) != len(numbers):
        return f"{len(numbers)} next numbers, at most {MAX_NEXT_NUMBERS}, or a source twice"
    return None


def _write_join(packet: Join) -> bytes:
    return join_body(packet) + packet.signature


def join_body(packet: Join) -> bytes:
    """A JOIN's body without its signature."""
    fixed = _JOIN.pack(
        *packet.ballot,
        packet.held,
        packet.digest,
        packet.instant,
        packet.next_sequence,
        packet.now,
        packet.commit,
        len(packet.heard),
        len(packet.universe),
        len(packet.next_numbers),
    )
    nodes = _write_nodes(packet.heard) + _write_nodes(packet.universe)
    return fixed + nodes + _write_next_numbers(packet.next_numbers)


def _read_join(header: Header, body: bytes) -> Join:
    number, server, held, digest, instant, sequence, now, commit, heard, universe, numbers = _JOIN.unpack_from(body)
    lists = _Lists(body, JOIN_BYTES)
    packet = Join(
        *header,
        Epoch(number, server),
        held,
        digest,
        instant,
        sequence,
        now,
        lists.nodes(heard),
        commit,
        lists.nodes(universe),
        lists.next_numbers(numbers),
    )
    return packet._replace(signature=lists.signature())


def _join_fault(packet: Join) -> str | None:
    return (
        digest_fault(packet.digest)
        or nonce_fault(packet.commit)
        or _node_fault("JOIN: heard", packet.heard)
        or _node_fault("JOIN: U", packet.universe)
        or _next_number_fault(packet.next_numbers)
        or signature_fault(packet.signature)
    )


def _write_new_ring(packet: NewRing) -> bytes:
    return new_ring_body(packet) + packet.signature


def new_ring_body(packet: NewRing) -> bytes:
    """A NEWRING's body without its signature."""
    fixed = _NEW_RING.pack(
        *packet.ballot,
        packet.first_token,
        packet.first_sequence,
        packet.start,
        *packet.cut_epoch,
        packet.cut_token,
        packet.cut_digest,
        len(packet.ring),
        len(packet.holders),
        len(packet.universe),
        len(packet.next_numbers),
        len(packet.votes),
    )
    nodes = _write_nodes(packet.ring) + b"".join(packet.commits)
    others = _write_nodes(packet.holders) + _write_nodes(packet.universe)
    votes = b"".join([_VOTE.pack(vote.site, *vote.epoch, *vote[2:]) for vote in packet.votes])
    return fixed + nodes + others + _write_next_numbers(packet.next_numbers) + votes + packet.order


def _read_new_ring(header: Header, body: bytes) -> NewRing:
    fields = _NEW_RING.unpack_from(body)
    number, server, first_token, first_sequence, start, cut_number, cut_server, cut_token, cut_digest = fields[:9]
    members, holder_count, universe, numbers, votes = fields[9:]
    lists = _Lists(body, NEW_RING_BYTES)
    ring = lists.nodes(members)
    commits = lists.nonces(members)
    holders = lists.nodes(holder_count)
    packet = NewRing(
        *header,
        Epoch(number, server),
        ring,
        first_token,
        first_sequence,
        start,
        Epoch(cut_number, cut_server),
        cut_token,
        cut_digest,
        holders,
        commits,
        lists.nodes(universe),
        lists.next_numbers(numbers),
        votes=lists.votes(votes),
        order=lists.order(),
    )
    return packet._replace(signature=lists.signature())


def _new_ring_fault(packet: NewRing) -> str | None:
    if not packet.ring:
        return "NEWRING: an empty ring"
    if len(packet.commits) != len(packet.ring):
        return f"NEWRING: {len(packet.commits)} commits for {len(packet.ring)} members"
    return (
        digest_fault(packet.cut_digest)
        or nonce_fault(*packet.commits)
        or _node_fault("NEWRING: ring", packet.ring)
        or _node_fault("NEWRING: holders", packet.holders)
        or _node_fault("NEWRING: U", packet.universe)
        or _next_number_fault(packet.next_numbers)
        or _vote_fault(packet.votes)
        or order_fault(packet.order)
        or signature_fault(packet.signature)
    )


def _vote_fault(votes: Sequence[Vote]) -> str | None:
    if len(votes) > MAX_VOTES or len({vote.site for vote in votes}) != len(votes):
        return f"NEWRING: {len(votes)} votes, at most {MAX_VOTES}, or a site twice"
    for vote in votes:
        if len(vote.signature) != SIGNATURE_BYTES:
            return f"NEWRING: a vote with a signature of {len(vote.signature)} bytes"
    return digest_fault(*[digest for vote in votes for digest in (vote.digest, vote.rest)])


BALLOTS: dict[type, Layout[Any]] = {
    Suspect: Layout(PacketKind.SUSPECT, _write_suspect, _read_suspect),
    Invite: Layout(PacketKind.INVITE, _write_invite, _read_invite, _invite_fault),
    Refuse: Layout(PacketKind.REFUSE, _write_refuse, _read_refuse),
    Join: Layout(PacketKind.JOIN, _write_join, _read_join, _join_fault, MAX_UDP, ("leaving",)),
    NewRing: Layout(
        PacketKind.NEWRING, _write_new_ring, _read_new_ring, _new_ring_fault, MAX_UDP, ("uncertified", "forced")
    ),
}
"""How each of these packets is written and read."""
