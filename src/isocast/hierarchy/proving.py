"""Proofs on the lines: owners sign what they send, customers tell what is genuine (§6, concern 4; protocol §7).

Whoever pays for a line has its key, and could send in its owner's name. So the owner signs: before the messages of a
token it sends their digests, in PROOF. A customer checks each message by one hash, and knows a forgery by itself: the
paper could only know that one of two copies is false.

    PROOF → is it new? → is there budget? → signature → digests by sequence
    REL   → its digest is known? → equal: on; other: dropped, counted, told
                                 → not known: waits, and is asked for again as if it were lost
    heartbeat → newer than the last of its line? → budget → signature → on

A retransmit server signs what it repairs, with a salt of its own. Weighed against a signature in every packet and
against TESLA in ADR 20.

What is kept is bounded: digests by sequence, packets that wait, and verifications of one line in a second. A PROOF
that says nothing new is not verified at all, so a second line costs hashes, and no signatures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby
from typing import NamedTuple

from isocast.hierarchy.archive import Bucket
from isocast.hierarchy.edge import ForgeryDropped, ProofsDiffer, ProofStale
from isocast.hierarchy.lines import Arbitration, Line
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import NodeId
from isocast.terms.instants import NEVER, SECOND
from isocast.wire.limits import MAX_PROOF_DIGESTS, PROOF_DIGEST_BYTES
from isocast.wire.packets import Packet, Proof, ReleasedPacket
from isocast.wire.proofs import heartbeat_statement, proof_statement, released_digest, released_digests
from isocast.wire.signing import MARKET_BYTES, UNSIGNED, SignedKind, Signer, Verifier

__all__ = ["FRESH_NS", "LineProver", "ProofCheck", "ProofTerms"]

FRESH_NS = 60 * SECOND
"""How old, by its own clock, what a customer starts with may be: beyond it somebody plays back an old recording."""
_RATE, _BURST = 1_000, 1_000
"""Verifications of one line in a second: a million events a second take 463, an eighth of a processor takes 1,000."""
_DIGESTS_MAX = 131_072
"""Sequences whose digests are kept: 3.5 s of a million events a second, some 30 MB."""
_WAITING_MAX = 4_096
"""Messages that wait for their proof, of all lines together: 6 MB."""
_COPIES_MAX = 4
"""Of one sequence: two lines, a repair and a forgery."""
_WITNESSES_MAX = 4
"""Who is remembered to have signed something else for a sequence."""
_TOLD_MAX = 16
"""Forgeries told in one step; all are counted."""


class LineProver:
    """Signs one line."""

    def __init__(self, signer: Signer, market: bytes, drawn: bytes) -> None:
        """`market` as signatures name it; `drawn`: 16 random bytes, for salts of its own."""
        if len(market) != MARKET_BYTES or len(drawn) != PROOF_DIGEST_BYTES:
            raise LocalProtocolError(f"a market has {MARKET_BYTES} bytes, and {PROOF_DIGEST_BYTES} are drawn")
        self._signer = signer
        self._market = market
        self._drawn = drawn
        self._salts = 0

    def prove(self, packets: Sequence[ReleasedPacket], salt: bytes | None = None) -> tuple[Proof, ...]:
        """Proofs of messages in the order of their numbers, for each token its own.

        Without a salt of the token each gets one that nobody can know before.
        """
        found: list[Proof] = []
        for _, group in groupby(packets, lambda packet: (packet.epoch, packet.token_number, packet.edge_stripe)):
            found += self._of_token(group, salt or self._own_salt())
        return tuple(found)

    def prove_release(self, packets: Sequence[ReleasedPacket], salt: bytes) -> tuple[Proof, ...]:
        """The same for what one token releases at once: its numbers follow one another, so nobody looks for gaps."""
        runs = [packets[at : at + MAX_PROOF_DIGESTS] for at in range(0, len(packets), MAX_PROOF_DIGESTS)]
        return tuple([self._part(run, salt, part, len(runs)) for part, run in enumerate(runs)])

    def sign(self, heartbeat: ReleasedPacket) -> ReleasedPacket:
        """The heartbeat with its signature."""
        return heartbeat._replace(proof=self._signature(heartbeat_statement(heartbeat), heartbeat))

    def _of_token(self, packets: Iterable[ReleasedPacket], salt: bytes) -> list[Proof]:
        runs: list[list[ReleasedPacket]] = []
        for packet in packets:
            if runs and packet.number == runs[-1][-1].number + 1 and len(runs[-1]) < MAX_PROOF_DIGESTS:
                runs[-1].append(packet)
            else:
                runs.append([packet])
        return [self._part(run, salt, part, len(runs)) for part, run in enumerate(runs)]

    def _part(self, run: Sequence[ReleasedPacket], salt: bytes, part: int, parts: int) -> Proof:
        first = run[0]
        proof = Proof(
            first.stripe,
            first.epoch,
            first.sender,
            first.token_number,
            first.instant,
            first.edge_stripe,
            0,
            first.number,
            part,
            parts,
            salt,
            released_digests(self._market, salt, run),
            UNSIGNED,
        )
        return proof._replace(signature=self._signature(proof_statement(proof), proof))

    def _signature(self, body: bytes, packet: Proof | ReleasedPacket) -> bytes:
        return self._signer.sign(SignedKind.LINE_PROOF, packet.stripe, packet.epoch, body)

    def _own_salt(self) -> bytes:
        self._salts += 1
        return blake2b(self._salts.to_bytes(8, "big"), digest_size=PROOF_DIGEST_BYTES, key=self._drawn).digest()


@dataclass(frozen=True, slots=True)
class ProofTerms:
    """By what a customer judges."""

    market: bytes
    """As signatures name it."""
    verifier: Verifier
    """Knows the public key of every line's owner."""
    fresh_ns: int = FRESH_NS

    def is_genuine(self, packet: Proof | ReleasedPacket) -> bool:
        """Whether the owner of its line signed a PROOF or a heartbeat."""
        if isinstance(packet, Proof):
            body, signature = proof_statement(packet), packet.signature
        else:
            body, signature = heartbeat_statement(packet), packet.proof
        kind = SignedKind.LINE_PROOF
        return self.verifier.is_from(packet.sender, kind, packet.stripe, packet.epoch, body, signature)


class _Witness(NamedTuple):
    """What one signer said of one sequence."""

    digest: bytes
    salt: bytes
    signer: NodeId


class _Waiting(NamedTuple):
    packet: ReleasedPacket
    since: int


class ProofCheck:
    """Lets through what is proven."""

    def __init__(self, arbitration: Arbitration, terms: ProofTerms) -> None:
        """Nothing is proven yet."""
        self._arbitration = arbitration
        self._terms = terms
        settings = arbitration.settings
        self._stripe = settings.stripe
        self._wait_ns = 2 * settings.retries_max * settings.retry_ns
        self._digests: dict[int, tuple[_Witness, ...]] = {}
        self._seen: dict[tuple[NodeId, int], Proof] = {}
        """The last PROOF of each line for each first number: a copy of it is not looked at again."""
        self._waiting: dict[int, list[_Waiting]] = {}
        self._waiting_count = 0
        self._budgets: dict[NodeId, Bucket] = {}
        self._heard: dict[NodeId, int] = {}
        """The instant of each line's newest heartbeat: what is not newer is a recording."""
        self._begun = False
        self._too_old: dict[NodeId, None] = {}
        self._told = 0
        self._differ: dict[tuple[int, NodeId, NodeId], None] = {}

    # Lines --------------------------------------------------------------------------------------

    def admit(self, packets: Sequence[Packet], now: int) -> list[Packet]:
        """What of a burst is genuine, and what waited for a proof that it brought."""
        self._told = 0
        digests, stripe = self._digests, self._stripe
        genuine: list[Packet] = []
        for packet in packets:
            if type(packet) is ReleasedPacket and packet.stripe == stripe:
                if packet.count == 0:
                    if self._is_heartbeat(packet, now):
                        genuine.append(packet)
                    continue
                known = digests.get(packet.sequence)
                if known is None:
                    self._wait(packet, now)
                elif self._is_proven(packet, known):
                    genuine.append(packet)
            elif type(packet) is Proof:
                genuine += self._on_proof(packet, now)
            else:
                genuine.append(packet)
        return genuine

    def fetched(self, packets: Sequence[ReleasedPacket]) -> list[ReleasedPacket]:
        """What a door gave, without what a signed digest contradicts. A door has proven itself; lines know better."""
        self._told = 0
        digests = self._digests
        return [
            packet
            for packet in packets
            if (known := digests.get(packet.sequence)) is None or self._is_proven(packet, known)
        ]

    def _is_proven(self, packet: ReleasedPacket, known: tuple[_Witness, ...]) -> bool:
        """Whether anybody signed this message; who signed another is told."""
        market = self._terms.market
        if len(known) == 1 and released_digest(market, known[0].salt, packet) == known[0].digest:
            return True
        agree = [one for one in known if released_digest(market, one.salt, packet) == one.digest]
        if not agree:
            self._forged(packet.sender, packet.sequence)
            return False
        for other in known:
            if other not in agree:
                self._tell_liars(packet.token_number, packet.sequence, agree[0], other)
        return True

    def _forged(self, sender: NodeId, sequence: int) -> None:
        arbitration = self._arbitration
        arbitration.counters.forged += 1
        line = arbitration.lines.by_owner.get(sender)
        if line is not None:
            line.forged += 1
        if self._told < _TOLD_MAX:
            self._told += 1
            arbitration.out.append(ForgeryDropped(sender, sequence))

    # Messages that came before their proof ------------------------------------------------------

    def _wait(self, packet: ReleasedPacket, now: int) -> None:
        """Hold it, if there is room: without its proof it is as good as lost."""
        counters = self._arbitration.counters
        if packet.sender not in self._arbitration.lines.by_owner:
            counters.strange += packet.sender != self._arbitration.node
            return
        self._forget_waiting(now)
        copies = self._waiting.setdefault(packet.sequence, [])
        if len(copies) >= _COPIES_MAX or packet in [one.packet for one in copies]:
            counters.unproven += 1
            return
        copies.append(_Waiting(packet, now))
        self._waiting_count += 1
        if self._waiting_count > _WAITING_MAX:
            self._drop_oldest()

    def _forget_waiting(self, now: int) -> None:
        while self._waiting:
            oldest = self._waiting[next(iter(self._waiting))]
            if not oldest or now - oldest[0].since > self._wait_ns:
                self._drop_oldest()
            else:
                return

    def _drop_oldest(self) -> None:
        dropped = self._waiting.pop(next(iter(self._waiting)))
        self._waiting_count -= len(dropped)
        self._arbitration.counters.unproven += len(dropped)

    def _released(self, proof: Proof) -> list[Packet]:
        """What waited for this proof and is genuine."""
        if not self._waiting_count:
            return []
        found: list[Packet] = []
        for sequence in range(proof.first, proof.next_number):
            copies = self._waiting.pop(sequence, ())
            self._waiting_count -= len(copies)
            found += [one.packet for one in copies if self._is_proven(one.packet, self._digests[sequence])]
        return found

    # Proofs -------------------------------------------------------------------------------------

    def _on_proof(self, proof: Proof, now: int) -> list[Packet]:
        """Believe a PROOF that is signed, and has something to say."""
        arbitration = self._arbitration
        line = arbitration.lines.by_owner.get(proof.sender)
        if line is None or proof.stripe != self._stripe or proof.edge_stripe != self._stripe:
            arbitration.counters.strange += proof.sender != arbitration.node
            return []
        if self._seen.get((proof.sender, proof.first)) == proof or self._says_nothing_new(proof):
            line.heard_at = now
            return []
        if not self._is_fresh(proof, now, begun=self._begun) or not self._is_signed(proof, line, now):
            return []
        line.heard_at = now
        while len(self._seen) >= _WAITING_MAX:
            del self._seen[next(iter(self._seen))]
        self._seen[proof.sender, proof.first] = proof
        for sequence, digest in enumerate(proof.digests, proof.first):
            self._note(sequence, _Witness(digest, proof.salt, proof.sender), proof.token_number)
        while len(self._digests) > _DIGESTS_MAX:
            del self._digests[next(iter(self._digests))]
        return self._released(proof)

    def _says_nothing_new(self, proof: Proof) -> bool:
        """Whether another line's proof, which was verified, has every digest of it: then nobody need sign it."""
        digests, salt = self._digests, proof.salt
        for sequence, digest in enumerate(proof.digests, proof.first):
            known = digests.get(sequence)
            if known is None or known[0].digest != digest or known[0].salt != salt:
                return False
        return True

    def _note(self, sequence: int, one: _Witness, token_number: int) -> None:
        known = self._digests.get(sequence)
        if known is None:
            self._digests[sequence] = (one,)
            return
        if any(other.digest == one.digest and other.salt == one.salt for other in known):
            return
        if len(known) < _WITNESSES_MAX:
            self._digests[sequence] = (*known, one)
        for other in known:
            if other.salt == one.salt and other.signer != one.signer:
                self._tell_liars(token_number, sequence, other, one)

    def _tell_liars(self, token_number: int, sequence: int, one: _Witness, other: _Witness) -> None:
        """Two signers vouch for different messages: one of them lies. Told once for a token."""
        pair = min(one.signer, other.signer), max(one.signer, other.signer)
        if one.signer == other.signer or (token_number, *pair) in self._differ:
            return
        while len(self._differ) >= _WAITING_MAX:
            del self._differ[next(iter(self._differ))]
        self._differ[token_number, *pair] = None
        self._arbitration.counters.differing += 1
        told = ProofsDiffer(token_number, sequence, one.signer, other.signer, one.digest, other.digest)
        self._arbitration.out.append(told)

    # Signatures ---------------------------------------------------------------------------------

    def _is_heartbeat(self, packet: ReleasedPacket, now: int) -> bool:
        """Whether a line's owner says so, and says it now."""
        line = self._arbitration.lines.by_owner.get(packet.sender)
        if line is None:
            self._arbitration.counters.strange += packet.sender != self._arbitration.node
            return False
        if packet.instant <= self._heard.get(packet.sender, -NEVER):
            self._arbitration.counters.stale += 1
            return False
        if not self._is_fresh(packet, now, begun=packet.sender in self._heard):
            return False
        if not self._is_signed(packet, line, now):
            return False
        self._heard[packet.sender] = packet.instant
        return True

    def _is_signed(self, packet: Proof | ReleasedPacket, line: Line, now: int) -> bool:
        budget = self._budgets.get(packet.sender)
        if budget is None:
            budget = self._budgets[packet.sender] = Bucket(_RATE, _BURST)
        if not budget.room(now):
            self._arbitration.counters.unverified += 1
            return False
        budget.take(1, now)
        if not self._terms.is_genuine(packet):
            line.forged += 1
            self._arbitration.counters.forged += 1
            if self._told < _TOLD_MAX:
                self._told += 1
                sequence = packet.first if type(packet) is Proof else 0
                self._arbitration.out.append(ForgeryDropped(packet.sender, sequence))
            return False
        self._begun = True
        return True

    def _is_fresh(self, packet: Proof | ReleasedPacket, now: int, *, begun: bool) -> bool:
        """Whether a customer may begin with this, if it has not begun."""
        age_ns = now - packet.instant
        if begun or abs(age_ns) <= self._terms.fresh_ns:
            return True
        self._arbitration.counters.stale += 1
        if not self._begun and packet.sender not in self._too_old:
            self._too_old[packet.sender] = None
            self._arbitration.out.append(ProofStale(packet.sender, age_ns))
        return False

    def set_back(self, span_ns: int) -> None:
        """The clock was set back: budgets do not wait for the difference."""
        for budget in self._budgets.values():
            budget.set_back(span_ns)

    def snapshot(self) -> Mapping[str, int]:
        """How much is kept, for checkers and status pages."""
        return {"digests": len(self._digests), "waiting": self._waiting_count}
