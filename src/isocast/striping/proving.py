"""Proofs of narrow stripes (§6, concern 4): a sender signs what it packed, a customer tells what is genuine.

A packet of MoldUDP64 has no place for a proof, and at 56 kb/s a signature for each would be more than the prices. So a
sender signs once in max(τ_t, `edge.prove_every`), over the root of a tree of all its stripes. Each stripe's PROOF goes
to a group beside the stripe, with its path. Packets are made a token at a time, before they are due: a PROOF leaves
before the packets that it proves wherever it is made for every token.

    PROOF      → of a signer that we hear? → path → root known, or budget and signature → digests by session and number
    packet     → its digest is known? → equal: on; other: dropped, counted, told
                                      → not known: waits; who wants everything asks as if it were lost
    heartbeat, end of session → nothing, until a PROOF of the same sender says the same

Whoever repairs signs what it repairs, at the moment at which it is asked. Weighed in ADR 25. Pure: callers say what
time it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby
from typing import NamedTuple

from isocast.feeds.mold import END_OF_SESSION, HEADER_BYTES, MoldPacket, parse_packet
from isocast.striping.engine import StripePacket
from isocast.terms.errors import LocalProtocolError, RemoteProtocolError
from isocast.terms.ids import NO_EPOCH, NodeId
from isocast.terms.instants import NEVER, SECOND
from isocast.wire.limits import STANDARD_MTU
from isocast.wire.signing import SignedKind, Signer, Verifier
from isocast.wire.stripe_proofs import (
    BLOCK_BYTES,
    SALT_BYTES,
    ProvenBlock,
    StripeProof,
    block_digest,
    paths_of,
    proof_leaf,
    proof_root,
    read_stripe_proof,
    root_statement,
    stripe_proof_bytes,
    write_stripe_proof,
)

__all__ = [
    "FRESH_NS",
    "PACKETS_A_PROOF",
    "PROOF_ROOM",
    "Forgery",
    "Genuine",
    "MadeProof",
    "ProofCounts",
    "SentSession",
    "StripeProofCheck",
    "StripeProver",
    "stripe_of_session",
]

FRESH_NS = 60 * SECOND
"""How old a PROOF may be that a customer believes: by its own clock, or behind the newest of the same sender."""
PROOF_ROOM = 1_400
"""Bytes of a PROOF at most: some seventy packets."""
PACKETS_A_PROOF = 40
"""At most, of those that somebody asks for."""
_DRAWN_BYTES = 16
_PENDING_MAX = 65_536
"""Bounds: packets of a stripe that wait to be proven."""
_DIGESTS_MAX = 131_072
_WAITING_MAX = 4_096
"""Bounds: packets that wait for their proof, of all senders and stripes together: 6 MB. Beyond it, whoever has the most
loses its oldest: who floods in the name of one sender pushes out nothing of another."""
_TOLD_SESSIONS_MAX = 4_096
_COPIES_MAX = 4
"""Of one number: two lines, a repair and a forgery."""
_BEATS_MAX = 4
"""Heartbeats of one sender and stripe that wait to be confirmed."""
_SKEW_NS = 2 * SECOND
"""Of two clocks, with the way of a datagram between them."""
_ROOTS_MAX = 256
"""Bounds: signatures that are remembered, so that each is verified once for all stripes."""
_VERIFIED_MAX = 200
"""Verifications of one sender in a second: 2.5 % of a processor."""
_TOLD_MAX = 16
_STRIPE_AT = 6


def stripe_of_session(session: bytes) -> int:
    """The narrow stripe of a session's name; RemoteProtocolError for a name that is none."""
    try:
        return int(session[_STRIPE_AT:], 36)
    except ValueError:
        raise RemoteProtocolError(f"session {session!r} is of no stripe") from None


# ---- senders


class SentSession(NamedTuple):
    """How far a sender is with a session."""

    stripe: int
    session: bytes
    following: int
    """The number behind what was sent."""
    ended: bool = False


class MadeProof(NamedTuple):
    """A PROOF that is to be sent."""

    stripe: int
    raw: bytes
    instant: int
    """When the first of its packets is due; without packets, when it was signed."""


class StripeProver:
    """Signs the narrow stripes of one sender."""

    def __init__(
        self,
        signer: Signer,
        node: NodeId,
        market: bytes,
        core: int,
        drawn: bytes,
        period_at: Callable[[int], int] = lambda _: 0,
    ) -> None:
        """`market` as signatures name it; `drawn`: 16 random bytes, new at each start, for salts.

        `period_at`: the period that is paid for of what is due at an instant. No PROOF is of two of them, so that who
        bought one of them reads the proofs of exactly that.
        """
        if len(drawn) != _DRAWN_BYTES:
            raise LocalProtocolError(f"{len(drawn)} bytes are drawn for salts, not {_DRAWN_BYTES}")
        self.signer = signer
        """Replaced when the sender has another key."""
        self._node = node
        self._market = market
        self._core = core
        self._drawn = drawn
        self._period_at = period_at
        self._salts = 0
        self._pending: dict[int, list[StripePacket]] = {}

    def note(self, packet: StripePacket) -> None:
        """A packet was made: the next PROOF of its stripe is of it too."""
        pending = self._pending.setdefault(packet.stripe, [])
        if len(pending) < _PENDING_MAX:
            pending.append(packet)

    def prove(self, states: Iterable[SentSession], now: int, room: Callable[[int], int]) -> list[MadeProof]:
        """Proofs of everything that was made since, and of how far each session is; one signature.

        `room`: bytes that a PROOF of a stripe may have.
        """
        known = {(state.stripe, state.session): state for state in states}
        runs: dict[tuple[int, bytes], list[StripePacket]] = {key: [] for key in known}
        for stripe, pending in self._pending.items():
            for session, packets in groupby(pending, lambda packet: packet.session):
                runs.setdefault((stripe, session), []).extend(packets)
        self._pending.clear()
        levels = max((len(runs) - 1).bit_length(), 0)
        while True:
            parts = [
                part
                for (stripe, session), packets in runs.items()
                for part in self._parts(known.get((stripe, session)), session, packets, now, room(stripe), levels)
            ]
            if len(parts) <= 1 << levels:
                return self._signed(parts, now) if parts else []
            levels = (len(parts) - 1).bit_length()

    def prove_packets(self, packets: Sequence[bytes], now: int) -> bytes:
        """A PROOF of consecutive packets of one session, in answer to a request."""
        first = parse_packet(packets[0])
        salt = self._salt()
        blocks = tuple([self._block(salt, raw) for raw in packets])
        made = StripeProof(self._node, first.session, now, 0, first.sequence, ended=False, salt=salt, blocks=blocks)
        return self._signed([(made, now)], now)[0].raw

    def _parts(
        self, state: SentSession | None, session: bytes, packets: list[StripePacket], now: int, room: int, levels: int
    ) -> list[tuple[StripeProof, int]]:
        """(PROOF, when the first of its packets is due)."""
        most = max((min(room, PROOF_ROOM) - stripe_proof_bytes(0, levels)) // BLOCK_BYTES, 1)
        following = 0 if state is None else state.following
        runs: list[list[StripePacket]] = []
        for packet in packets:
            last = runs[-1] if runs else []
            if last and len(last) < most and self._continues(last[-1], packet):
                last.append(packet)
            else:
                runs.append([packet])
        made = []
        for place, run in enumerate(runs or [[]], 1):
            last_part = place >= len(runs)
            # The last part alone says how far the session is: what it counts is proven by then.
            told = following if last_part else 0
            ended = last_part and state is not None and state.ended
            salt = self._salt()
            blocks = tuple([self._block(salt, packet.raw) for packet in run])
            proof = StripeProof(self._node, session, now, told, run[0].number if run else 0, ended, salt, blocks)
            made.append((proof, run[0].due if run else now))
        return made

    def _continues(self, last: StripePacket, packet: StripePacket) -> bool:
        follows = packet.number == last.number + last.count
        return follows and self._period_at(packet.due) == self._period_at(last.due)

    def _block(self, salt: bytes, raw: bytes) -> ProvenBlock:
        return ProvenBlock(int.from_bytes(raw[HEADER_BYTES - 2 : HEADER_BYTES]), block_digest(self._market, salt, raw))

    def _signed(self, parts: Sequence[tuple[StripeProof, int]], now: int) -> list[MadeProof]:
        root, paths = paths_of([proof_leaf(part) for part, _ in parts])
        said = root_statement(self._node, now, root)
        signature = self.signer.sign(SignedKind.STRIPE_PROOF, self._core, NO_EPOCH, said)
        return [
            MadeProof(
                stripe_of_session(part.session),
                write_stripe_proof(part._replace(place=place, path=paths[place], signature=signature)),
                due,
            )
            for place, (part, due) in enumerate(parts)
        ]

    def _salt(self) -> bytes:
        """Nobody who chooses what is in a packet knows it then: so 16 bytes of a digest are enough."""
        self._salts += 1
        return blake2b(self._salts.to_bytes(8), digest_size=SALT_BYTES, key=self._drawn).digest()


# ---- customers


@dataclass(slots=True)
class ProofCounts:
    """What happened so far."""

    proofs: int = 0
    """That were believed."""
    verified: int = 0
    """Signatures."""
    forged: int = 0
    """Packets, heartbeats and proofs that their sender did not sign."""
    unproven: int = 0
    """Packets whose proof never came."""
    unverified: int = 0
    """Proofs beyond what is verified of one sender in a second."""
    stale: int = 0
    strange: int = 0
    """Proofs of others than we hear."""
    differing: int = 0
    """Numbers for which two senders signed different packets."""


class Genuine(NamedTuple):
    """A packet that its sender signed; of a heartbeat or an end, the PROOF that says the same."""

    packet: MoldPacket
    sender: NodeId
    at: int
    """When it came; of a heartbeat, when its sender signed."""
    repair: bool = False


class Forgery(NamedTuple):
    """Something that was dropped; or two senders that contradict each other."""

    sender: NodeId
    session: bytes
    number: int
    other: NodeId | None = None


class _Witness(NamedTuple):
    digest: bytes
    salt: bytes
    signer: NodeId


class _Waiting(NamedTuple):
    raw: bytes
    packet: MoldPacket
    sender: NodeId
    at: int
    repair: bool


class StripeProofCheck:
    """Lets through what is proven."""

    def __init__(self, market: bytes, verifier: Verifier, cores: Mapping[int, int], wait_ns: int) -> None:
        """`cores`: of each stripe, that of the core; `wait_ns`: how long a packet waits for its proof."""
        self.counts = ProofCounts()
        self.cores = cores
        self.signers: Collection[NodeId] = ()
        """Whom this customer hears."""
        self._market = market
        self._verifier = verifier
        self._wait_ns = wait_ns
        self._digests: dict[tuple[bytes, int], tuple[_Witness, ...]] = {}
        self._waiting: dict[tuple[NodeId, int], dict[tuple[bytes, int], list[_Waiting]]] = {}
        """By sender and stripe, then by session and number; the oldest first."""
        self._held = 0
        self._beats: dict[tuple[NodeId, int], list[tuple[MoldPacket, int]]] = {}
        """What senders said that no PROOF has confirmed yet, and when."""
        self._told: dict[tuple[NodeId, bytes], tuple[int, int]] = {}
        """Of each sender and session the newest word: instant, and the number behind what was sent."""
        self._newest: dict[NodeId, int] = {}
        """When each sender signed last, by its own clock."""
        self._roots: dict[tuple[NodeId, int, int, bytes], None] = {}
        self._spent: dict[NodeId, tuple[int, int]] = {}
        self._news: list[Forgery] = []
        self._liars: dict[tuple[NodeId, NodeId], None] = {}

    def news(self) -> list[Forgery]:
        """What was dropped since the last call, as far as it is told; all is counted."""
        news, self._news = self._news, []
        return news

    # What comes ---------------------------------------------------------------------------------

    def heard(self, raw: bytes, packet: MoldPacket, sender: NodeId, at: int, *, repair: bool = False) -> list[Genuine]:
        """A packet of a stripe: it itself, if it is proven; later, if a proof comes."""
        stripe = self._stripe_of(packet, sender)
        if stripe is None or len(raw) > STANDARD_MTU:
            self.counts.strange += 1
            return []
        if not packet.messages:
            self._remember(packet, sender, stripe, at)
            return []
        one = _Waiting(raw, packet, sender, at, repair)
        place = packet.session, packet.sequence
        known = self._digests.get(place)
        if known is not None:
            return self._judged(one, known)
        queue = self._waiting.setdefault((sender, stripe), {})
        copies = queue.setdefault(place, [])
        if any(raw == other.raw for other in copies):
            return []
        if len(copies) >= _COPIES_MAX:
            self.counts.unproven += 1
            return []
        copies.append(one)
        self._held += 1
        if self._held > _WAITING_MAX:
            self._give_up(max(self._waiting.values(), key=len))
        return []

    def proof(self, raw: bytes, now: int, *, repair: bool = False) -> list[Genuine]:
        """A PROOF: what waited for it; RemoteProtocolError for what is none."""
        proof = read_stripe_proof(raw)
        stripe = stripe_of_session(proof.session)
        core = self.cores.get(stripe)
        if core is None or proof.signer not in self.signers:
            self.counts.strange += 1
            return []
        if not self._is_fresh(proof, now) or not self.is_signed(proof, core, now):
            return []
        self._newest[proof.signer] = max(proof.instant, self._newest.get(proof.signer, 0))
        self.counts.proofs += 1
        found = self._learn(proof, stripe)
        word = proof.instant, proof.following
        if proof.following and word > self._told.get((proof.signer, proof.session), (-1, 0)):
            while len(self._told) >= _TOLD_SESSIONS_MAX:
                del self._told[next(iter(self._told))]
            self._told[proof.signer, proof.session] = word
            self._judge_beats(proof, stripe)
            count = END_OF_SESSION if proof.ended else 0
            beat = MoldPacket(proof.session, proof.following, count)
            found.append(Genuine(beat, proof.signer, proof.instant, repair))
        return found

    def expire(self, now: int) -> None:
        """Packets that waited too long are as good as lost."""
        for queue in self._waiting.values():
            while queue and now - next(iter(queue.values()))[0].at > self._wait_ns:
                self._give_up(queue)

    @property
    def waiting(self) -> int:
        """Packets without a proof yet."""
        return self._held

    # Packets ------------------------------------------------------------------------------------

    def _judged(self, one: _Waiting, known: tuple[_Witness, ...]) -> list[Genuine]:
        agree = [each for each in known if block_digest(self._market, each.salt, one.raw) == each.digest]
        if not agree:
            self._forged(one.sender, one.packet.session, one.packet.sequence)
            return []
        for other in known:
            if other not in agree and other.signer != agree[0].signer:
                self._differ(agree[0].signer, other.signer, one.packet)
        return [Genuine(one.packet, one.sender, one.at, one.repair)]

    def _stripe_of(self, packet: MoldPacket, sender: NodeId) -> int | None:
        """None for what nobody whom we hear sends."""
        try:
            stripe = stripe_of_session(packet.session)
        except RemoteProtocolError:
            return None
        return stripe if stripe in self.cores and sender in self.signers else None

    def _give_up(self, queue: dict[tuple[bytes, int], list[_Waiting]]) -> None:
        """What waited longest in one queue."""
        gone = len(queue.pop(next(iter(queue))))
        self._held -= gone
        self.counts.unproven += gone

    def _forged(self, sender: NodeId, session: bytes, number: int) -> None:
        self.counts.forged += 1
        if len(self._news) < _TOLD_MAX:
            self._news.append(Forgery(sender, session, number))

    def _differ(self, one: NodeId, other: NodeId, packet: MoldPacket) -> None:
        """Two senders signed different packets under one number: one of them lies. Each pair is told once."""
        self.counts.differing += 1
        pair = min(one, other), max(one, other)
        if pair not in self._liars and len(self._news) < _TOLD_MAX:
            self._liars[pair] = None
            self._news.append(Forgery(one, packet.session, packet.sequence, other))

    # Heartbeats ---------------------------------------------------------------------------------

    def _remember(self, packet: MoldPacket, sender: NodeId, stripe: int, at: int) -> None:
        beats = self._beats.setdefault((sender, stripe), [])
        if packet not in [known for known, _ in beats]:
            beats.append((packet, at))
            del beats[:-_BEATS_MAX]

    def _judge_beats(self, proof: StripeProof, stripe: int) -> None:
        """Which of its sender's heartbeats and ends a PROOF contradicts that was signed well behind them."""
        beats = self._beats.get((proof.signer, stripe), [])
        for beat, at in [one for one in beats if proof.instant > one[1] + _SKEW_NS]:
            if beat.session == proof.session:
                false = beat.sequence > proof.following or (beat.is_end and not proof.ended)
            else:
                false = beat.session > proof.session and not proof.ended
            if false:
                self._forged(proof.signer, beat.session, beat.sequence)
            if false or beat.session <= proof.session:
                beats.remove((beat, at))

    # Proofs -------------------------------------------------------------------------------------

    def _is_fresh(self, proof: StripeProof, now: int) -> bool:
        """Whether a proof is of this time: a recording that is replayed would show old prices to a late joiner."""
        newest = self._newest.get(proof.signer)
        if abs(now - proof.instant) <= FRESH_NS or (newest is not None and proof.instant >= newest - FRESH_NS):
            return True
        self.counts.stale += 1
        return False

    def is_signed(self, proof: StripeProof, core: int, now: int) -> bool:
        """Whether the root to which the path leads is signed; each signature is verified once."""
        root = proof_root(proof)
        key = proof.signer, core, proof.instant, root
        if key in self._roots:
            return True
        second, spent = self._spent.get(proof.signer, (-NEVER, 0))
        spent = spent if abs(now - second) < SECOND else 0
        if spent >= _VERIFIED_MAX:
            self.counts.unverified += 1
            return False
        self._spent[proof.signer] = second if spent else now, spent + 1
        self.counts.verified += 1
        said = root_statement(proof.signer, proof.instant, root)
        if not self._verifier.is_from(proof.signer, SignedKind.STRIPE_PROOF, core, NO_EPOCH, said, proof.signature):
            self._forged(proof.signer, proof.session, proof.first)
            return False
        while len(self._roots) >= _ROOTS_MAX:
            del self._roots[next(iter(self._roots))]
        self._roots[key] = None
        return True

    def _learn(self, proof: StripeProof, stripe: int) -> list[Genuine]:
        found: list[Genuine] = []
        number = proof.first
        queues = [queue for (_, other), queue in self._waiting.items() if other == stripe and queue]
        for block in proof.blocks:
            place = proof.session, number
            known = self._digests.get(place, ())
            if proof.signer not in [each.signer for each in known]:
                # One of each sender: nobody who lies takes the place of somebody else.
                known = self._digests[place] = (*known, _Witness(block.digest, proof.salt, proof.signer))
            for waiting in [one for queue in queues for one in queue.pop(place, [])]:
                self._held -= 1
                found += self._judged(waiting, known)
            number += block.messages
        while len(self._digests) > _DIGESTS_MAX:
            del self._digests[next(iter(self._digests))]
        return found
