"""Proofs of narrow stripes: what a sender signs, a customer believes, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.feeds.mold import MoldPacket, end_of_session, heartbeat, packet_of, parse_packet
from isocast.simulation.signatures import KeyedSigner, KeyedVerifier
from isocast.striping.edge import EdgeSettings
from isocast.striping.engine import StripePacket
from isocast.striping.proving import (
    FRESH_NS,
    Genuine,
    SentSession,
    StripeProofCheck,
    StripeProver,
    stripe_of_session,
)
from isocast.striping.sizes import FEED_SIZES, feed_sizes
from isocast.terms.errors import LocalProtocolError, RemoteProtocolError
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.wire.stripe_proofs import read_stripe_proof, write_stripe_proof

MARKET = bytes(range(32))
NOW = 1_800_000_000 * SECOND
DAY = b"261116"
A, B, LIAR = 65_537, 65_538, 9
FULL = 1_400


def session(stripe: int = 1, day: bytes = DAY) -> bytes:
    return day + f"{stripe:04d}".encode()


def raw_of(number: int, count: int = 1, stripe: int = 1, fill: int = 0, day: bytes = DAY) -> bytes:
    body = b"".join((12).to_bytes(2) + bytes([fill]) * 8 + place.to_bytes(4) for place in range(number, number + count))
    return packet_of(session(stripe, day), number, count, body)


def made(number: int, count: int = 1, stripe: int = 1, fill: int = 0, day: bytes = DAY) -> StripePacket:
    raw = raw_of(number, count, stripe, fill, day)
    return StripePacket(stripe, session(stripe, day), number, count, NOW, 7_000, raw)


def prover_of(node: int = A, core: int = 0) -> StripeProver:
    return StripeProver(KeyedSigner(1, node), node, MARKET, core, bytes(16))


def proofs_of(
    packets: Sequence[StripePacket],
    states: Sequence[SentSession] = (),
    node: int = A,
    now: int = NOW,
    room: int = FULL,
) -> list[tuple[int, bytes]]:
    prover = prover_of(node)
    for packet in packets:
        prover.note(packet)
    return [(made.stripe, made.raw) for made in prover.prove(states, now, lambda _: room)]


def check_of() -> StripeProofCheck:
    check = StripeProofCheck(MARKET, KeyedVerifier(1), {1: 0, 2: 0, 3: 0}, 4 * SECOND)
    check.signers = (A, B)
    return check


def hear(check: StripeProofCheck, raw: bytes, sender: int = A, at: int = NOW) -> list[Genuine]:
    return check.heard(raw, parse_packet(raw), sender, at)


def numbers(found: Sequence[Genuine]) -> list[int]:
    return [one.packet.sequence for one in found if one.packet.messages]


def test_one_signature_is_for_all_stripes_and_is_verified_once() -> None:
    stripes = (1, 2, 3)
    proofs = proofs_of([made(1, stripe=stripe) for stripe in stripes])
    assert [stripe for stripe, _ in proofs] == list(stripes)
    assert len({read_stripe_proof(raw).signature for _, raw in proofs}) == 1
    check = check_of()
    for stripe, raw in proofs:
        assert check.proof(raw, NOW) == []
        assert numbers(hear(check, raw_of(1, stripe=stripe))) == [1]
    assert (check.counts.proofs, check.counts.verified, check.counts.forged) == (3, 1, 0)


def test_a_packet_waits_for_its_proof_and_one_behind_it_does_not() -> None:
    check = check_of()
    assert hear(check, raw_of(1, 3)) == []
    assert check.waiting == 1
    ((_, raw),) = proofs_of([made(1, 3), made(4)])
    (first,) = check.proof(raw, NOW + SECOND)
    assert (first.packet.sequence, first.at, first.sender) == (1, NOW, A)
    assert numbers(hear(check, raw_of(4))) == [4]
    assert check.waiting == 0


@pytest.mark.parametrize("order", ["forged first", "forged last", "proof first"])
def test_a_forgery_is_dropped_by_itself_before_and_behind_the_genuine_packet(order: str) -> None:
    check, forged, genuine = check_of(), raw_of(1, fill=7), raw_of(1)
    ((_, proof),) = proofs_of([made(1)])
    found: list[Genuine] = []
    if order == "proof first":
        found += check.proof(proof, NOW)
    for raw in (genuine, forged) if order == "forged last" else (forged, genuine):
        found += hear(check, raw)
    if order != "proof first":
        found += check.proof(proof, NOW)
    assert [one.packet for one in found] == [parse_packet(genuine)]
    assert check.counts.forged == 1
    assert [(one.sender, one.session, one.number) for one in check.news()] == [(A, session(), 1)]
    assert check.news() == []


def test_messages_that_are_cut_into_other_packets_are_not_believed() -> None:
    check = check_of()
    ((_, proof),) = proofs_of([made(1, 3)])
    check.proof(proof, NOW)
    assert hear(check, raw_of(1, 2)) == []
    assert check.counts.forged == 1
    assert hear(check, raw_of(2, 2)) == []
    check.expire(NOW + 5 * SECOND)
    assert check.counts.unproven == 1


def test_a_path_of_another_stripe_proves_nothing() -> None:
    own, other = (read_stripe_proof(raw) for _, raw in proofs_of([made(1, stripe=1), made(1, stripe=2, fill=9)]))
    check = check_of()
    lies = [
        own._replace(blocks=other.blocks),
        own._replace(session=other.session),
        own._replace(place=other.place),
        own._replace(path=other.path),
        own._replace(following=99),
        own._replace(ended=True),
        own._replace(instant=own.instant + 1),
    ]
    for lie in lies:
        assert check.proof(write_stripe_proof(lie), NOW) == []
    assert check.counts.forged == len(lies)
    assert check.counts.proofs == 0
    assert hear(check, raw_of(1, stripe=1, fill=9)) == []


def test_a_proof_of_another_core_or_of_somebody_else_proves_nothing() -> None:
    check = check_of()
    prover = prover_of(core=1)
    prover.note(made(1))
    (proven,) = prover.prove((), NOW, lambda _: FULL)
    raw = proven.raw
    assert check.proof(raw, NOW) == []
    assert check.counts.forged == 1
    ((_, raw),) = proofs_of([made(1)], node=LIAR)
    assert check.proof(raw, NOW) == []
    assert check.counts.strange == 1
    ((_, raw),) = proofs_of([made(1)], node=LIAR)
    stolen = read_stripe_proof(raw)._replace(signer=A)
    assert check.proof(write_stripe_proof(stolen), NOW) == []
    assert check.counts.forged == 2
    ((_, raw),) = proofs_of([made(1, stripe=7)])
    assert check.proof(raw, NOW) == []
    assert check.counts.strange == 2


def test_a_heartbeat_acts_only_when_a_proof_says_the_same() -> None:
    check = check_of()
    assert hear(check, heartbeat(session(), 5)) == []
    ((_, raw),) = proofs_of([], [SentSession(1, session(), 5)], now=NOW + SECOND)
    (beat,) = check.proof(raw, NOW + SECOND)
    assert (beat.packet, beat.at) == (MoldPacket(session(), 5, 0), NOW + SECOND)
    assert check.counts.forged == 0
    assert check.proof(raw, NOW + SECOND) == [], "a recording says nothing new"


@pytest.mark.parametrize(
    "false",
    [
        heartbeat(session(), 500),
        heartbeat(session(day=b"261117"), 1),
        end_of_session(session(), 5),
        end_of_session(session(), 3),
    ],
)
def test_a_forged_heartbeat_or_end_does_nothing_is_counted_and_named(false: bytes) -> None:
    check = check_of()
    assert hear(check, false) == []
    ((_, raw),) = proofs_of([], [SentSession(1, session(), 5)], now=NOW + 3 * SECOND)
    (beat,) = check.proof(raw, NOW + 3 * SECOND)
    assert beat.packet == MoldPacket(session(), 5, 0)
    assert check.counts.forged == 1
    assert [one.sender for one in check.news()] == [A]


def test_the_end_of_a_session_acts_when_a_proof_confirms_it() -> None:
    check = check_of()
    hear(check, end_of_session(session(), 5))
    states = [SentSession(1, session(), 5, ended=True), SentSession(1, session(day=b"261117"), 1)]
    found = [check.proof(raw, NOW + 3 * SECOND) for _, raw in proofs_of([], states, now=NOW + 3 * SECOND)]
    assert [one[0].packet.is_end for one in found] == [True, False]
    assert check.counts.forged == 0


def test_a_recording_is_no_beginning_and_a_recorded_heartbeat_is_none() -> None:
    check = check_of()
    ((_, old),) = proofs_of([made(1)], [SentSession(1, session(), 2)])
    assert check.proof(old, NOW + FRESH_NS + 1) == []
    assert check.counts.stale == 1
    ((_, new),) = proofs_of([], [SentSession(1, session(), 9)], now=NOW + FRESH_NS)
    assert check.proof(new, NOW + FRESH_NS)
    assert check.proof(old, NOW + FRESH_NS + 1) == [], "its digests count, its heartbeat does not"
    assert numbers(hear(check, raw_of(1))) == [1]


def test_a_recording_of_another_stripe_is_no_beginning_either() -> None:
    """Who has just come knows that its sender is there, and nothing of most stripes: old prices would be new to it."""
    check = check_of()
    ((_, new),) = proofs_of([], [SentSession(1, session(), 9)], now=NOW + 2 * FRESH_NS)
    assert check.proof(new, NOW + 2 * FRESH_NS)
    ((_, old),) = proofs_of([made(1, stripe=2)], [SentSession(2, session(2), 2)])
    assert check.proof(old, NOW + 2 * FRESH_NS) == []
    assert hear(check, raw_of(1, stripe=2), at=NOW + 2 * FRESH_NS) == []
    assert check.counts.stale == 1


def test_whose_clock_is_wrong_later_still_believes_its_sender() -> None:
    check = check_of()
    for instant, clock in ((NOW, NOW), (NOW + SECOND, NOW + 10 * FRESH_NS)):
        ((_, raw),) = proofs_of([], [SentSession(1, session(), 9)], now=instant)
        assert check.proof(raw, clock)
    assert check.counts.stale == 0


def test_two_senders_that_sign_different_packets_are_both_named() -> None:
    check = check_of()
    for node, fill in ((A, 0), (B, 9)):
        ((_, raw),) = proofs_of([made(1, fill=fill)], node=node)
        check.proof(raw, NOW)
    assert numbers(hear(check, raw_of(1))) == [1]
    (told,) = check.news()
    assert {told.sender, told.other} == {A, B}
    assert check.counts.differing == 1
    assert check.counts.forged == 0


def test_another_senders_proof_stands_for_one_that_was_lost() -> None:
    check = check_of()
    assert hear(check, raw_of(1), sender=A) == []
    ((_, raw),) = proofs_of([made(1)], node=B)
    assert numbers(check.proof(raw, NOW)) == [1]


def test_who_is_asked_signs_anew() -> None:
    check = check_of()
    raw = prover_of(B).prove_packets([raw_of(1, 3), raw_of(4)], NOW)
    assert check.proof(raw, NOW, repair=True) == [], "it says nothing of what was sent"
    assert numbers(hear(check, raw_of(4))) == [4]


def test_false_signatures_are_verified_so_often_a_second() -> None:
    check = check_of()
    ((_, raw),) = proofs_of([made(1)])
    proof = read_stripe_proof(raw)
    for number in range(1_000):
        check.proof(write_stripe_proof(proof._replace(following=number + 1)), NOW)
    assert check.counts.verified == 200
    assert check.counts.unverified == 800
    assert check.proof(raw, NOW + SECOND) == []
    assert check.counts.proofs == 1


def test_packets_without_proofs_are_bounded() -> None:
    check = check_of()
    for number in range(1, 5_001):
        hear(check, raw_of(number))
    assert check.waiting <= 4_096
    assert check.counts.unproven == 5_000 - check.waiting
    for fill in range(1, 9):
        hear(check, raw_of(5_000, fill=fill))
    assert check.waiting <= 4_096 + 3


def test_who_floods_in_one_name_pushes_out_nothing_of_another() -> None:
    check = check_of()
    assert hear(check, raw_of(1), sender=B) == []
    assert hear(check, raw_of(1, stripe=2), sender=A) == []
    for number in range(2, 10_000):
        hear(check, raw_of(number, fill=9), sender=A)
    assert check.waiting <= 4_096
    for stripe, node in ((1, B), (2, A)):
        for _, raw in proofs_of([made(1, stripe=stripe)], node=node):
            assert numbers(check.proof(raw, NOW)) == [1]


def test_what_is_longer_than_any_packet_does_not_wait() -> None:
    check = check_of()
    raw = raw_of(1, 150)
    assert len(raw) > 1_500
    assert hear(check, raw) == []
    assert hear(check, raw_of(1), sender=LIAR) == []
    assert (check.waiting, check.counts.strange) == (0, 2)


def test_a_proof_is_of_one_period() -> None:
    """Who bought the one reads the proofs of that, and no digests of the other."""
    prover = StripeProver(KeyedSigner(1, A), A, MARKET, 0, bytes(16), lambda due: due // (10 * SECOND))
    for number in range(1, 7):
        prover.note(made(number)._replace(due=NOW + (number - 4) * SECOND))
    proofs = prover.prove([SentSession(1, session(), 1)], NOW - 3 * SECOND, lambda _: FULL)
    assert [read_stripe_proof(one.raw).first for one in proofs] == [1, 4]
    assert [one.instant for one in proofs] == [NOW - 3 * SECOND, NOW]
    check = check_of()
    for one in proofs:
        check.proof(one.raw, NOW)
    assert [numbers(hear(check, raw_of(number))) for number in range(1, 7)] == [[number] for number in range(1, 7)]
    (beat,) = prover.prove([SentSession(1, session(), 7)], NOW + SECOND, lambda _: FULL)
    assert beat.instant == NOW + SECOND


@given(st.lists(st.integers(1, 30), min_size=1, max_size=60), st.integers(260, 1_400), st.integers(0, 400))
def test_parts_fit_their_room_and_prove_every_packet(counts: list[int], room: int, sent: int) -> None:
    packets, number = [], 1
    for count in counts:
        packets.append(made(number, count))
        number += count
    check, found = check_of(), []
    following = min(sent + 1, number)
    states = [SentSession(1, session(), following), SentSession(2, session(2), 1)]
    for _, raw in proofs_of(packets, states, room=room):
        assert len(raw) <= room
        proof = read_stripe_proof(raw)
        assert proof.following <= following
        found += check.proof(raw, NOW)
    for packet in packets:
        found += hear(check, packet.raw)
    assert numbers(found) == [packet.number for packet in packets]
    assert check.counts.forged == 0


@given(st.binary(max_size=300))
def test_whatever_comes_is_refused_or_counted(raw: bytes) -> None:
    check = check_of()
    try:
        check.proof(raw, NOW)
    except RemoteProtocolError:
        return
    assert check.counts.proofs == 0


def test_where_nobody_signs_and_nothing_is_sealed_stripes_are_packed_as_ever() -> None:
    assert feed_sizes() == FEED_SIZES
    plain = EdgeSettings(200 * MILLISECOND, SECOND, 1_000)
    assert plain.reserved(26) == plain.reserve_bytes
    assert plain.digest != replace(plain, proof_ns=SECOND).digest != replace(plain, seal_bytes=48).digest


def test_names_that_are_none() -> None:
    with pytest.raises(RemoteProtocolError):
        stripe_of_session(b"261116\xff\xff\xff\xff")
    with pytest.raises(LocalProtocolError):
        StripeProver(KeyedSigner(1, A), A, MARKET, 0, b"short")
