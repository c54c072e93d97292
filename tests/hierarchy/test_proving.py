"""Which packets of a line a customer believes: what its owner signed, and nothing else (§6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.hierarchy.edge_makers import (
    EPOCH,
    FIRE,
    GAP,
    MS,
    NOW,
    RETRY,
    X1,
    C,
    arrive,
    asked,
    beat,
    of,
    rel,
    rels,
    settings,
)

from isocast.hierarchy.customer import Customer
from isocast.hierarchy.customer_settings import CustomerState, Grade, JoinPoint
from isocast.hierarchy.edge import (
    ConflictFound,
    Deliver,
    DeliverLatest,
    ForgeryDropped,
    ProofsDiffer,
    ProofStale,
    RangeArrived,
)
from isocast.hierarchy.proving import FRESH_NS, LineProver, ProofTerms
from isocast.security.identities import Identity, is_signed, statement
from isocast.terms.ids import Epoch, NodeId
from isocast.terms.instants import SECOND
from isocast.wire.limits import MAX_PROOF_DIGESTS, SIGNATURE_BYTES
from isocast.wire.packets import Proof, ReleasedPacket
from isocast.wire.signing import SignedKind

MARKET = b"m" * 32
SALT = b"a salt of tokens"
NODES = (1, 2, X1)
IDENTITIES = {node: Identity(node.to_bytes(32, "big")) for node in NODES}


class Pen:
    """Signs as one node, with serial 1 of the roster."""

    def __init__(self, node: NodeId, market: bytes = MARKET) -> None:
        self.node, self.market = node, market

    def sign(self, kind: SignedKind, stripe: int, epoch: Epoch, body: bytes) -> bytes:
        signed = statement(kind, self.market, body, stripe=stripe, epoch=epoch, serial=1)
        return (1).to_bytes(8, "little") + IDENTITIES[self.node].sign(signed)


class Eye:
    """Knows the public keys, and counts how often it is asked."""

    def __init__(self) -> None:
        self.calls = 0

    def is_from(self, node: NodeId, kind: SignedKind, stripe: int, epoch: Epoch, body: bytes, signature: bytes) -> bool:
        self.calls += 1
        if node not in IDENTITIES or len(signature) != SIGNATURE_BYTES:
            return False
        serial = int.from_bytes(signature[:8], "little")
        signed = statement(kind, MARKET, body, stripe=stripe, epoch=epoch, serial=serial)
        return is_signed(IDENTITIES[node].public, signature[8:], signed)


TERMS = ProofTerms(MARKET, Eye())


def prover(node: NodeId = 1, market: bytes = MARKET) -> LineProver:
    return LineProver(Pen(node, market), market, b"d" * 16)


def proofs(packets: Sequence[ReleasedPacket], salt: bytes | None = SALT) -> tuple[Proof, ...]:
    return prover(packets[0].sender).prove(packets, salt)


def signed_beat(following: int, line: NodeId = 1, sent_at: int = NOW) -> ReleasedPacket:
    return prover(line).sign(beat(following, line, sent_at))


def customer(next_sequence: int = 1, **changes: Any) -> Customer:  # noqa: ANN401 (any field)
    machine = Customer(C, settings(**changes), CustomerState(next_sequence), TERMS)
    machine.step(FIRE, NOW)
    return machine


def delivered(effects: Sequence[object]) -> list[tuple[int, bytes]]:
    return [(packet.sequence, packet.payload) for one in of(effects, Deliver) for packet in one.packets]


def genuine(first: int, last: int) -> list[tuple[int, bytes]]:
    return [(packet.sequence, packet.payload) for packet in rels(first, last)]


FORGED = rel(1, payload=b"forged")


@pytest.mark.parametrize("last", [1, MAX_PROOF_DIGESTS, 2 * MAX_PROOF_DIGESTS + 1])
def test_a_release_is_proven_as_any_messages_of_a_token_are(last: int) -> None:
    packets = tuple([packet._replace(token_number=7) for packet in rels(1, last)])
    assert prover().prove_release(packets, SALT) == prover().prove(packets, SALT)


def test_what_is_proven_is_delivered() -> None:
    machine, sent = customer(), rels(1, 9)
    assert delivered(machine.step(arrive(*proofs(sent), *sent), NOW)) == genuine(1, 9)


def test_a_forgery_before_the_genuine_message_waits_and_is_dropped() -> None:
    machine, sent = customer(), rels(1, 9)
    assert delivered(machine.step(arrive(FORGED), NOW)) == []
    effects = machine.step(arrive(*proofs(sent), *sent), NOW + MS)
    assert delivered(effects) == genuine(1, 9)
    assert of(effects, ForgeryDropped) == [ForgeryDropped(1, 1)]
    assert machine.snapshot().counters.forged == 1
    assert [line.forged for line in machine.snapshot().lines if line.line == 1] == [1]


def test_a_forgery_after_the_genuine_message_is_no_conflict_of_lines() -> None:
    machine, sent = customer(), rels(1, 9)
    machine.step(arrive(*proofs(sent), *sent), NOW)
    effects = machine.step(arrive(FORGED), NOW + MS)
    assert of(effects, ConflictFound) == []
    assert of(effects, ForgeryDropped) == [ForgeryDropped(1, 1)]


def test_without_proofs_the_forgery_is_delivered_and_the_genuine_message_is_the_conflict() -> None:
    machine = Customer(C, settings(), CustomerState(1))
    machine.step(FIRE, NOW)
    assert delivered(machine.step(arrive(FORGED), NOW)) == [(1, b"forged")]
    assert of(machine.step(arrive(rel(1)), NOW), ConflictFound)


@pytest.mark.parametrize(
    "change",
    [
        {"payload": b"x"},
        {"epoch": Epoch(2, EPOCH.server)},
        {"token_number": 99},
        {"instant": NOW + 1},
        {"number": 2},
        {"uncertified": True},
        {"shuffle_key": b"another key 1234"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_digest_covers_all_that_a_message_says(change: dict[str, Any]) -> None:
    machine, sent = customer(), rels(1, 1)
    effects = machine.step(arrive(*proofs(sent), sent[0]._replace(**change)), NOW)
    assert delivered(effects) == []
    assert of(effects, ForgeryDropped) == [ForgeryDropped(1, 1)]


def test_a_message_waits_for_its_proof() -> None:
    machine, sent = customer(), rels(1, 3)
    assert delivered(machine.step(arrive(*sent), NOW)) == []
    assert delivered(machine.step(arrive(*proofs(sent)), NOW + MS)) == genuine(1, 3)


def test_a_proof_of_another_line_and_of_a_repair_counts_as_well() -> None:
    for other in (2, X1):
        machine, sent = customer(), rels(1, 3)
        machine.step(arrive(*sent), NOW)
        salt = None if other == X1 else SALT
        assert delivered(machine.step(arrive(*proofs(rels(1, 3, other), salt)), NOW + MS)) == genuine(1, 3)


def test_a_lost_proof_is_asked_for_as_if_the_messages_were_lost() -> None:
    machine, sent = customer(), rels(1, 3)
    machine.step(arrive(*sent, signed_beat(4)), NOW)
    assert asked(machine.step(FIRE, NOW + GAP)) == [(X1, 1, 3)]
    again = rels(1, 3, X1)
    assert delivered(machine.step(arrive(*proofs(again, None), *again), NOW + GAP + RETRY // 2)) == genuine(1, 3)


def unsigned(proof: Proof) -> Proof:
    return proof._replace(signature=bytes(72))


def another_epoch(proof: Proof) -> Proof:
    return proof._replace(epoch=Epoch(9, EPOCH.server))


def another_sender(proof: Proof) -> Proof:
    return proof._replace(sender=2)


def more_numbers(proof: Proof) -> Proof:
    return proof._replace(first=proof.first + 1)


def another_serial(proof: Proof) -> Proof:
    return proof._replace(signature=b"\7" + proof.signature[1:])


@pytest.mark.parametrize("forge", [unsigned, another_epoch, another_sender, more_numbers, another_serial])
def test_a_proof_that_its_sender_did_not_sign_as_it_is_proves_nothing(forge: Callable[[Proof], Proof]) -> None:
    machine, lie = customer(), [rel(1, payload=b"forged")]
    effects = machine.step(arrive(*map(forge, proofs(lie)), *lie), NOW)
    assert delivered(effects) == []
    assert [one.line for one in of(effects, ForgeryDropped)] == [2 if forge is another_sender else 1]


def test_a_proof_of_another_market_or_stripe_proves_nothing() -> None:
    machine, lie = customer(), [rel(1, payload=b"forged")]
    assert delivered(machine.step(arrive(*prover(1, b"M" * 32).prove(lie, SALT), *lie), NOW)) == []
    other = [one._replace(stripe=1, edge_stripe=1) for one in lie]
    moved = [one._replace(stripe=0, edge_stripe=0) for one in prover().prove(other, SALT)]
    assert delivered(machine.step(arrive(*moved, *lie), NOW)) == []
    assert machine.snapshot().counters.forged == 2


def test_two_lines_that_sign_different_messages_are_both_named() -> None:
    machine, sent, lie = customer(), rels(1, 3), [rel(1, 2, b"a lie"), *rels(2, 3, 2)]
    machine.step(arrive(*proofs(sent), *sent), NOW)
    [told] = of(machine.step(arrive(*proofs(lie), *lie), NOW), ProofsDiffer)
    assert (told.sequence, told.first_line, told.other_line) == (1, 1, 2)
    assert told.first_digest != told.other_digest
    assert machine.snapshot().counters.differing == 1
    assert machine.snapshot().counters.forged == 0


def test_a_repair_that_contradicts_a_line_names_both() -> None:
    machine, sent, lie = customer(), rels(1, 1), [rel(1, X1, b"a lie")]
    machine.step(arrive(*proofs(sent), *sent), NOW)
    effects = machine.step(arrive(*proofs(lie, None), *lie), NOW)
    assert [(told.first_line, told.other_line) for told in of(effects, ProofsDiffer)] == [(X1, 1)]


def test_what_a_door_gives_must_not_contradict_a_line() -> None:
    machine, sent = customer(), rels(1, 2)
    machine.step(arrive(*proofs(sent), sent[1]), NOW)
    effects = machine.step(RangeArrived(X1, [rel(1, X1, b"a lie")], 1, 2), NOW)
    assert delivered(effects) == []
    assert of(effects, ForgeryDropped) == [ForgeryDropped(X1, 1)]
    assert delivered(machine.step(RangeArrived(X1, [rel(1, X1)], 1, 2), NOW)) == genuine(1, 2)


def counting(**changes: Any) -> tuple[Customer, Eye]:  # noqa: ANN401 (any field)
    verify = Eye()
    return Customer(C, settings(**changes), CustomerState(1), ProofTerms(MARKET, verify)), verify


def test_a_second_line_that_says_the_same_is_not_verified() -> None:
    machine, verify = counting()
    for line in (1, 2, 1):
        sent = rels(1, 200, line)
        machine.step(arrive(*proofs(sent), *sent), NOW)
    # Ten messages have one token, so 200 from 1 on are of 21.
    assert verify.calls == 21


def test_one_line_gets_no_more_verifications_than_its_share() -> None:
    machine, verify = counting()
    [proof] = proofs([rel(1)])
    flood = [proof._replace(first=number, signature=bytes(72)) for number in range(2, 2_002)]
    effects = machine.step(arrive(*flood), NOW)
    assert verify.calls == 1_000
    assert machine.snapshot().counters.unverified == 1_000
    assert len(of(effects, ForgeryDropped)) == 16
    sent = rels(1, 3, 2)
    assert delivered(machine.step(arrive(*proofs(sent), *sent), NOW)) == genuine(1, 3)
    machine.step(arrive(proof), NOW + SECOND)
    assert verify.calls == 1_001


def test_what_waits_is_bounded() -> None:
    machine = customer()
    for start in range(1, 20_001, 1_000):
        machine.step(arrive(*rels(start, start + 999)), NOW)
    assert machine._proofs is not None  # noqa: SLF001
    assert machine._proofs.snapshot()["waiting"] == 4_096  # noqa: SLF001
    assert machine.snapshot().counters.unproven == 20_000 - 4_096
    machine.step(arrive(*[rel(20_000, payload=bytes([number])) for number in range(100)]), NOW)
    assert machine._proofs.snapshot()["waiting"] <= 4_096  # noqa: SLF001


def test_what_waited_too_long_is_forgotten() -> None:
    machine = customer()
    machine.step(arrive(*rels(1, 100)), NOW)
    machine.step(arrive(rel(200)), NOW + 10 * SECOND)
    assert machine.snapshot().counters.unproven == 100


# ---- heartbeats


def test_a_heartbeat_counts_once_and_only_signed() -> None:
    machine = customer()
    machine.step(arrive(signed_beat(4)), NOW)
    assert asked(machine.step(FIRE, NOW + GAP)) == [(X1, 1, 3)]
    before = [line.heartbeats for line in machine.snapshot().lines if line.line == 1]
    effects = machine.step(
        arrive(
            beat(1_000, sent_at=NOW + MS),
            signed_beat(4),
            signed_beat(9, sent_at=NOW - MS),
            signed_beat(7, sent_at=NOW + MS)._replace(sequence=1_000),
        ),
        NOW + 2 * MS,
    )
    assert [line.heartbeats for line in machine.snapshot().lines if line.line == 1] == before
    assert of(effects, ForgeryDropped) == [ForgeryDropped(1, 0), ForgeryDropped(1, 0)]
    assert machine.snapshot().counters.stale == 2
    assert machine.snapshot().newest == 3


def test_a_signature_of_a_heartbeat_is_none_of_a_proof() -> None:
    [proof] = proofs([rel(1)])
    assert TERMS.is_genuine(proof)
    assert TERMS.is_genuine(signed_beat(1))
    assert not TERMS.is_genuine(signed_beat(1)._replace(proof=proof.signature))
    assert not TERMS.is_genuine(proof._replace(signature=signed_beat(1).proof))


# ---- a fresh customer


def test_a_recording_does_not_start_a_customer() -> None:
    late = NOW + FRESH_NS + 2 * SECOND
    machine = Customer(C, settings(join=JoinPoint.NOW), None, TERMS)
    sent = rels(1, 3)
    effects = machine.step(arrive(signed_beat(1), signed_beat(1, 2), *proofs(sent), *sent), late)
    assert [told.line for told in of(effects, ProofStale)] == [1, 2]
    machine.step(FIRE, late + SECOND)
    assert not machine.snapshot().joined
    machine.step(arrive(signed_beat(5, 1, late), signed_beat(5, 2, late)), late + SECOND)
    assert machine.snapshot().joined
    assert machine.snapshot().next_sequence == 5


def test_who_has_begun_takes_old_repairs() -> None:
    machine = customer()
    machine.step(arrive(signed_beat(4)), NOW)
    old = [one._replace(instant=NOW - 10 * FRESH_NS) for one in rels(1, 3, X1)]
    assert [one for one, _ in delivered(machine.step(arrive(*proofs(old, None), *old), NOW))] == [1, 2, 3]


def test_grade_latest_believes_no_forgery_either() -> None:
    machine = Customer(C, settings(Grade.LATEST, join=JoinPoint.NOW), None, TERMS)
    machine.step(arrive(signed_beat(1), signed_beat(1, 2)), NOW)
    sent = rels(1, 2)
    effects = machine.step(arrive(rel(1, payload=rel(7).payload), *proofs(sent), *sent), NOW)
    assert [one.sequences for one in of(effects, DeliverLatest)] == [(2,)]
    assert of(effects, ForgeryDropped) == [ForgeryDropped(1, 1)]


def test_a_stranger_gets_no_place() -> None:
    machine = customer()
    stranger = rel(1, 77)
    machine.step(arrive(stranger, beat(5, 77), *[one._replace(sender=77) for one in proofs([rel(1)])]), NOW)
    assert machine.snapshot().counters.strange == 3
    assert machine.snapshot().counters.forged == 0
