"""A receiver of the timed protocol (§5), rule by rule of protocol §3."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.ring.makers import (
    EPOCH,
    LATE,
    MS,
    NEXT_EPOCH,
    PERIOD,
    RETRY,
    S1,
    S2,
    Chain,
    T,
    blank,
    completed,
    following,
    founding,
    message,
    packets,
    receipt,
    receiver,
    secret,
    settings,
    told,
)

from isocast.ring.answers import holdings
from isocast.ring.effects import (
    Collect,
    EntryCompleted,
    Multicast,
    Persist,
    PromiseMade,
    ReadJournal,
    ReceiverEffect,
    Release,
    RingInstalled,
    RingSuspected,
    Unicast,
)
from isocast.ring.inputs import JournalRead
from isocast.ring.receiver import Mode, Receiver, RingPacket
from isocast.ring.release import RECEIPTS_AHEAD
from isocast.terms.ids import NO_EPOCH
from isocast.terms.instants import NEVER
from isocast.terms.timing import Gate
from isocast.wire.packets import (
    ControlEntry,
    ControlKind,
    Nack,
    Pending,
    Range,
    RangeReply,
    RangeRequest,
    Receipt,
    Repair,
    Standing,
    Suspicion,
)
from isocast.wire.token_body import split_token, token_digest

DELAY = settings().timing.release_delay_ns


def hear(machine: Receiver, now: int, *burst: RingPacket) -> tuple[ReceiverEffect, ...]:
    """What a receiver does about a burst of packets."""
    for packet in burst:
        machine.on_event(packet, now)
    return machine.take(now)


def nack(number: int, *, to_token: bool = False, listed: tuple[int, ...] = ()) -> Nack:
    return Nack(0, EPOCH, 3, number, to_token, 0, holdings([(S1, number) for number in listed]))


# DATA


def test_a_message_waits_in_silence() -> None:
    machine = receiver(2)
    assert hear(machine, T(1), message(1), message(3), message(1)) == ()
    assert machine.snapshot().waiting == 2


def test_the_newest_owner_sends_the_acknowledging_token_again_to_a_source_that_repeats_itself() -> None:
    """Protocol §3: M < nextM is a duplicate (the newest token's owner re-sends the acknowledging token)."""
    chain = Chain()
    entry = chain.add(message(1))
    assert hear(receiver(1, chain), T(1) + 1, message(1)) == (Unicast(S1, entry.token),)
    assert hear(receiver(2, chain), T(1) + 1, message(1)) == ()


def test_a_source_is_reminded_once_per_token() -> None:
    chain = Chain()
    chain.add(message(1), message(2))
    machine = receiver(1, chain)
    assert len(hear(machine, T(1) + 1, message(1), message(2), message(1))) == 1


def test_a_token_of_an_earlier_epoch_is_no_answer_so_the_source_hears_where_it_stands() -> None:
    chain = Chain()
    chain.add(message(1))
    ring = following(chain)
    later = chain.enter(ring)
    machine = receiver(1, chain)
    machine.install(ring, 1, (), T(2))
    entry = later.add()
    assert Multicast(entry.token) in machine.take(entry.token.instant)
    assert hear(machine, entry.token.instant + 1, message(1)) == (Unicast(S1, Standing(0, NEXT_EPOCH, 1, S1, 2, 2)),)


def test_data_outside_the_window_is_dropped_and_counted() -> None:
    machine = receiver(2)
    assert hear(machine, T(1), message(8), message(9)) == ()
    assert (machine.snapshot().waiting, machine.snapshot().dropped) == (1, 1)


def test_a_site_behind_its_sources_asks_for_a_range_instead_of_a_token() -> None:
    """Protocol §3: base > nextM means that the site is behind `stable`: it goes to CATCHUP."""
    machine = receiver(2)
    effects = hear(machine, T(1) + LATE, message(4, base=4))
    assert effects == (Unicast(1, RangeRequest(0, EPOCH, 2, Range.TOKENS, 1, 1)),)
    assert machine.mode is Mode.CATCHUP


# TOKEN


def test_a_token_with_all_its_messages_is_persisted_and_then_receipted() -> None:
    """Protocol §3: a RECEIPT is sent only when the log is as durable as the site promises."""
    entry = Chain().add(message(1), message(1, S2))
    machine = receiver(2)
    hear(machine, T(1), *entry.messages)
    assert hear(machine, T(1) + MS, entry.token) == (*completed(entry), told(2, entry))


def test_a_token_waits_for_its_messages() -> None:
    """Protocol §12, mistake 2: accepting a token without its payloads."""
    entry = Chain().add(message(1), message(2))
    machine = receiver(2)
    assert hear(machine, T(1) + MS, message(2), entry.token) == ()
    assert machine.held == 0
    assert hear(machine, T(1) + 2 * MS, message(1)) == (*completed(entry), told(2, entry))


def test_tokens_that_overtake_one_another_complete_in_order_with_one_receipt() -> None:
    chain = Chain()
    first, second = chain.add(), chain.add()
    machine = receiver(3)
    hear(machine, T(2), second.token)
    assert machine.held == 0
    assert hear(machine, T(2) + MS, first.token) == (*completed(first), *completed(second), told(3, second))


def test_a_token_in_parts_is_put_together() -> None:
    entry = Chain().add(control=(ControlEntry(ControlKind.MARK, 1, bytes(3_000)),))
    machine = receiver(2)
    for part in split_token(entry.token):
        machine.on_part(part, T(1) + MS)
    assert machine.take(T(1) + MS) == (*completed(entry), told(2, entry))


@pytest.mark.parametrize(
    "wrong",
    [
        {"sender": 3},
        {"instant": T(1) + 1},
        {"prev_digest": b"\x01" * 16},
        {"first_sequence": 2},
    ],
    ids=str,
)
def test_a_token_is_refused_unless_owner_instant_chain_and_sequence_are_right(wrong: dict[str, int]) -> None:
    """Protocol §3: accepted iff e = e_acc = prom, the sender is the owner, prev_digest matches."""
    token = Chain().add().token
    machine = receiver(2)
    assert hear(machine, T(1) + MS, replace(token, **wrong)) == ()  # type: ignore[arg-type]
    assert (machine.held, machine.conflicts) == (0, 1)
    assert hear(machine, T(1) + MS, token) != ()


def test_two_contents_for_one_token_raise_an_alarm() -> None:
    """S5 at most one content per (e,t)."""
    chain = Chain()
    entry, other = chain.fork().add(), chain.fork().add(message(1))
    machine = receiver(2)
    hear(machine, T(1), entry.token, other.token)
    assert machine.conflicts == 1


def test_a_token_of_an_old_epoch_is_answered_with_the_ring() -> None:
    """Protocol §3: a stale epoch gets NEWRING."""
    chain = Chain()
    token = chain.add().token
    ring = following(Chain())
    machine = receiver(2, ring=ring)
    assert hear(machine, T(2), token) == (Unicast(1, ring),)
    assert hear(machine, T(2) + RETRY - 1, token) == ()
    assert hear(machine, T(2) + RETRY, token) == (Unicast(1, ring),)


def test_a_token_of_a_later_epoch_makes_a_site_ask_for_its_ring() -> None:
    """By a request that the sender finds stale."""
    ring = following(Chain())
    token = Chain(ring).add().token
    asked = Nack(0, EPOCH, 3, 1, has_token=False, parts_held=0, listed=())
    assert hear(receiver(3), T(1), token) == (Unicast(1, asked),)


def test_a_sealed_site_neither_accepts_nor_sends() -> None:
    """Protocol §5, step 2: send and accept no TOKEN or RECEIPT below b."""
    entry = Chain().add(message(1))
    machine = receiver(2)
    hear(machine, T(1), entry.token)
    machine.seal(NEXT_EPOCH)
    assert machine.take(T(1)) == (Persist(PromiseMade(NEXT_EPOCH)),)
    assert hear(machine, T(1) + MS, message(1), entry.token, receipt(1, Chain().grow(1))) == ()
    assert (machine.held, machine.mode, machine.certificates.receipts.get(1)) == (0, Mode.SEALED, None)
    assert packets(machine.take(T(2))) == []


# The clock


def test_a_token_before_its_instant_proves_a_bad_clock() -> None:
    """Protocol §3: a TOKEN that arrives before local T_t-2ε proves a bad clock: stop releasing, SUSPECT(clock)."""
    chain = Chain()
    entry = chain.add(message(1))
    machine = receiver(2, rules=settings(Gate.TIMED))
    hear(machine, T(1) - 3 * MS, message(1))
    assert RingSuspected(1, 1, Suspicion.CLOCK) in hear(machine, T(1) - 2 * MS - 1, entry.token)
    assert not machine.may_release(1)


@pytest.mark.parametrize("site, told", [(3, [1, 2]), (4, [1])], ids=["member", "outsider"])
def test_a_member_tells_of_every_token_before_its_instant(site: int, told: list[int]) -> None:
    """Seed 887: of the two words that would have told whose clock it was one was lost, and there was no other."""
    chain = Chain()
    machine = receiver(site)
    effects = [effect for number in (1, 2) for effect in hear(machine, T(number) - 5 * MS, chain.add().token)]
    assert [effect.token_number for effect in effects if isinstance(effect, RingSuspected)] == told


def test_within_twice_the_bound_nothing_is_proven() -> None:
    entry = Chain().add()
    machine = receiver(2, rules=settings(Gate.TIMED))
    assert hear(machine, T(1) - 2 * MS, entry.token) == completed(entry)
    assert machine.may_release(1)


def test_the_doubt_ends_after_a_cycle() -> None:
    chain = Chain()
    machine = receiver(2, rules=settings(Gate.TIMED))
    hear(machine, T(1) - 5 * MS, chain.add().token)
    for _ in range(3):
        entry = chain.add()
        hear(machine, entry.token.instant, entry.token)
    assert machine.held == 4
    assert machine.may_release(4)


def test_a_clock_that_was_set_back_does_not_stop_requests() -> None:
    """Seed 443."""
    machine = receiver(3)
    assert len(machine.take(T(1) + LATE)) == 1
    machine.take(T(1) - PERIOD)
    [effect] = machine.take(T(1) + LATE)
    assert isinstance(effect, Unicast)


def test_a_clock_that_was_ahead_does_not_stop_audits() -> None:
    """A member that is silent is named, though the tokens up to then seemed audited when the clock was ahead."""
    chain = Chain()
    machine = receiver(2)
    machine.take(T(1_000))
    machine.take(T(1) - PERIOD)
    for _ in range(3):
        entry = chain.add()
        hear(machine, entry.token.instant, entry.token, receipt(1, chain))
    assert RingSuspected(3, 3, Suspicion.NO_RECEIPTS) in machine.take(T(3) + PERIOD)


def test_a_clock_that_was_ahead_does_not_stop_paced_releases() -> None:
    machine = receiver(1, rules=settings(Gate.TIMED, release_rate=1))
    for number in range(1, 4):
        machine.on_data(message(number), 0)
    entries = machine.take(T(1))
    assert entries
    hour = 3_600_000 * MS
    assert len([effect for effect in machine.take(T(1) + hour) if isinstance(effect, Release)]) == 1
    machine.take(T(1) + PERIOD)
    released = [effect for late in range(1, 9) for effect in machine.take(T(1) + PERIOD + late * MS)]
    assert len([effect for effect in released if isinstance(effect, Release)]) == 2


# Requests


def test_at_the_instant_one_request_names_what_is_held() -> None:
    """Protocol §3: one aggregated NACK (the token and every missing message) to owner(t)."""
    machine = receiver(2)
    hear(machine, T(1), message(1), message(3))
    assert machine.take(T(1) + LATE - 1) == ()
    assert machine.take(T(1) + LATE) == (Unicast(1, nack(1, listed=(1, 3))._replace(sender=2)),)


def test_with_the_token_the_request_names_what_is_missing() -> None:
    machine = receiver(2)
    hear(machine, T(1), Chain().add(message(1), message(2), message(3)).token, message(2))
    assert machine.take(T(1) + LATE) == (Unicast(1, nack(1, to_token=True, listed=(1, 3))._replace(sender=2)),)


def test_k_r_requests_in_vain_raise_suspicion_of_the_owner() -> None:
    """Protocol §3: still unfinished after the last: SUSPECT. F2 at Δ_A: h ≥ t or SUSPECT."""
    machine = receiver(3)
    suspicions = [
        (now, effect)
        for now in (T(1) + LATE, T(1) + LATE + RETRY, T(1) + LATE + 2 * RETRY)
        for effect in machine.take(now)
        if isinstance(effect, RingSuspected)
    ]
    assert suspicions == [(T(1) + LATE + 2 * RETRY, RingSuspected(1, 1, Suspicion.UNRECOVERED))]


def test_a_request_is_answered_with_token_and_messages_in_one_phase() -> None:
    """Protocol §12, mistake 1."""
    chain = Chain()
    entry = chain.add(message(1), message(2))
    answers = hear(receiver(1, chain), T(1) + LATE, nack(1, listed=(1,)))
    assert [effect.packet for effect in answers if isinstance(effect, Unicast)] == [
        Repair(0, EPOCH, 1, entry.token),
        Repair(0, EPOCH, 1, message(2)),
    ]


def repairs_in(effects: tuple[ReceiverEffect, ...]) -> int:
    return sum(isinstance(effect, Unicast) and isinstance(effect.packet, Repair) for effect in effects)


def test_a_recorded_request_is_answered_once_until_its_sender_may_ask_again() -> None:
    """A request of a hundred bytes can have megabytes for an answer: copies of it must not have one each."""
    chain = Chain()
    chain.add(message(1))
    machine = receiver(1, chain)
    asked_at = T(1) + LATE
    assert repairs_in(hear(machine, asked_at, *[nack(1)] * 10)) == 2
    assert repairs_in(hear(machine, asked_at + RETRY, nack(1))) == 2


def test_a_recorded_range_request_is_answered_once_too() -> None:
    chain = Chain().grow(6)
    machine = receiver(1, chain)
    wanted = RangeRequest(0, EPOCH, 3, Range.TOKENS, 1, 6)
    assert repairs_in(hear(machine, T(6) + 1, *[wanted] * 10)) == 6


def test_nobody_gets_what_it_has_receipted() -> None:
    """Protocol §3: a RECEIPT says that the log is durable, so a request for the same is somebody else's copy."""
    chain = Chain().grow(2)
    machine = receiver(1, chain)
    hear(machine, T(2) + MS, receipt(3, chain, 1))
    assert repairs_in(hear(machine, T(2) + LATE, nack(1), RangeRequest(0, EPOCH, 3, Range.TOKENS, 1, 1))) == 0
    assert repairs_in(hear(machine, T(2) + LATE, nack(2))) == 1


def test_repairs_are_taken_like_the_packets_themselves() -> None:
    entry = Chain().add(message(1))
    repairs = [Repair(0, EPOCH, 1, entry.token), Repair(0, EPOCH, 1, message(1))]
    assert hear(receiver(2), T(1) + LATE + MS, *repairs)[:2] == completed(entry)


def test_what_is_lacking_here_too_is_pending() -> None:
    """Protocol §3: lacking gets PENDING."""
    assert hear(receiver(2), T(1), nack(1)) == (Unicast(3, Pending(0, EPOCH, 2, 1)),)


def test_a_request_of_a_stale_epoch_gets_the_ring() -> None:
    ring = following(Chain())
    assert hear(receiver(2, ring=ring), T(1), nack(1)) == (Unicast(3, ring),)


def test_what_left_memory_is_read_from_the_journal() -> None:
    chain = Chain().grow(6)
    machine = receiver(1, chain)
    machine.ledger.collect(2)
    assert hear(machine, T(6) + 1, nack(2)) == (ReadJournal(3, 2, 2),)
    machine.answering.on_journal(JournalRead(3, (chain.entries[1],)))
    assert machine.take(T(6) + 1) == (Unicast(3, Repair(0, EPOCH, 1, chain.entries[1].token)),)


def test_a_range_is_answered_from_memory_and_journal() -> None:
    chain = Chain()
    for number in range(1, 7):
        chain.add(message(number))
    machine = receiver(1, chain)
    machine.ledger.collect(2)
    effects = hear(machine, T(6) + 1, RangeRequest(0, EPOCH, 3, Range.TOKENS, 2, 3))
    token = chain.entries[2].token
    assert effects == (
        ReadJournal(3, 2, 2), Unicast(3, Repair(0, EPOCH, 1, token)), Unicast(3, Repair(0, EPOCH, 1, message(3))),
    )  # fmt: skip


def test_a_range_beyond_the_log_is_answered_with_what_there_is() -> None:
    effects = hear(receiver(1, Chain().grow(2)), T(2) + 1, RangeRequest(0, EPOCH, 3, Range.TOKENS, 3, 9))
    assert effects == (Unicast(3, RangeReply(0, EPOCH, 1, Range.TOKENS, 3, 2, 1)),)


# RECEIPT


def test_a_receipt_is_repeated_until_the_release() -> None:
    """Protocol §3: multicast RECEIPT(h), repeated every τ_r until T_t+Δ_A."""
    entry = Chain().add()
    machine = receiver(3)
    hear(machine, T(1), entry.token)
    repeats = [now for now in range(T(1), T(1) + DELAY + 2 * RETRY, MS) if told(3, entry) in machine.take(now)]
    assert repeats == [T(1) + RETRY, T(1) + 2 * RETRY, T(1) + 3 * RETRY]
    assert repeats[-1] <= T(1) + DELAY < repeats[-1] + RETRY


def test_no_receipts_are_sent_where_no_gate_counts_them() -> None:
    entry = Chain().add()
    machine = receiver(2, rules=settings(Gate.TIMED))
    assert hear(machine, T(1), entry.token) == completed(entry)


def test_a_receipt_for_another_log_is_an_alarm_and_counts_for_nothing() -> None:
    chain = Chain().grow(1)
    machine = receiver(2, chain)
    hear(machine, T(1), receipt(1, chain)._replace(digest=b"\x09" * 16))
    assert (machine.conflicts, machine.certificates.certified) == (1, 0)


def test_a_receipt_of_another_epoch_counts_for_nothing() -> None:
    chain = Chain().grow(1)
    machine = receiver(2, chain)
    hear(machine, T(1), receipt(1, chain)._replace(epoch=NEXT_EPOCH), receipt(3, chain)._replace(epoch=NO_EPOCH))
    assert machine.certificates.certified == 0


def test_two_tokens_without_a_members_receipt_raise_suspicion() -> None:
    """Protocol §5, step 1: two tokens without a site's RECEIPT."""
    chain = Chain()
    machine = receiver(2)
    found: list[ReceiverEffect] = []
    for _ in range(2):
        entry = chain.add()
        hear(machine, entry.token.instant, entry.token, receipt(1, chain))
    hear(machine, T(2), receipt(1, chain))
    found.extend(machine.take(T(2) + PERIOD - 1))
    assert not [effect for effect in found if isinstance(effect, RingSuspected)]
    found.extend(machine.take(T(2) + PERIOD))
    assert RingSuspected(2, 3, Suspicion.NO_RECEIPTS) in found
    assert RingSuspected(2, 1, Suspicion.NO_RECEIPTS) not in found


def test_a_healthy_site_off_the_ring_asks_to_come_in() -> None:
    """Protocol §5, rejoin: follow tokens passively, then a planned ballot. L6."""
    chain = Chain(founding()._replace(ring=(1, 2), commits=founding().commits[:2]))
    machine = receiver(3, chain.grow(1))
    hear(machine, T(2), chain.add().token)
    assert RingSuspected(2, 3, Suspicion.OUTSIDE) in machine.take(T(2) + PERIOD)


# Release


def released(effects: tuple[ReceiverEffect, ...]) -> list[int]:
    return [effect.first_sequence for effect in effects if isinstance(effect, Release)]


@pytest.mark.parametrize("certifier, out", [(1, [1]), (None, [])])
def test_under_majority_a_release_waits_for_receipts(certifier: int | None, out: list[int]) -> None:
    """Protocol §4, §12 mistake 4: RECEIPT_e(≥ t) from a majority of U."""
    chain = Chain()
    chain.add(message(1))
    machine = receiver(3, chain)
    if certifier:
        hear(machine, T(1) + MS, receipt(certifier, chain))
    machine.take(T(1) + PERIOD)
    assert released(machine.take(T(1) + DELAY)) == out


@pytest.mark.parametrize("gate, tokens", [(Gate.TIMED, 1), (Gate.NEXT, 2), (Gate.TOTAL, 3)])
def test_the_other_gates_count_tokens(gate: Gate, tokens: int) -> None:
    """Protocol §4: timed: NORMAL suffices; next-L: token t+L accepted; total: token t+m-1 accepted."""
    for held in (1, 2, 3):
        assert receiver(3, Chain().grow(held), settings(gate)).may_release(1) == (held >= tokens)


def test_a_sealed_site_releases_what_is_certified_and_under_timed_nothing() -> None:
    """Protocol §5, step 2: releases already certified go on."""
    chain = Chain()
    chain.add(message(1))
    for gate, out in ((Gate.MAJORITY, True), (Gate.TIMED, False)):
        machine = receiver(3, chain, settings(gate))
        hear(machine, T(1) + MS, receipt(1, chain))
        machine.seal(NEXT_EPOCH)
        assert machine.may_release(1) == out


def test_receipts_of_two_epochs_do_not_add_up_to_a_release() -> None:
    chain = Chain().grow(1)
    machine = receiver(3, chain)
    ring = following(chain)
    machine.install(ring, 1, (), T(1) + MS)
    assert not machine.may_release(1)
    hear(machine, T(1) + MS, Receipt(0, NEXT_EPOCH, 2, 1, chain.head.digest))
    assert machine.may_release(1)


@pytest.mark.parametrize("log", ["same", "other"])
def test_a_receipt_for_a_token_that_is_not_here_counts_when_it_can_be_compared(log: str) -> None:
    """Its site may hold another content of what came before: of two tokens that one owner signed."""
    chain, other = Chain().grow(1), Chain()
    other.add(message(1))
    other.grow(1)
    machine = receiver(3, chain)
    following_token = chain.add().token
    hear(machine, T(2) + MS, receipt(1, chain if log == "same" else other))
    assert machine.certificates.said(1) == 2, "its site is not suspected of silence"
    assert not machine.may_release(1)
    hear(machine, T(2) + MS, following_token)
    assert machine.may_release(1) == (log == "same")
    assert machine.conflicts == (log == "other")


def test_receipts_that_wait_are_bounded() -> None:
    machine = receiver(3, Chain().grow(1))
    far = [
        Receipt(0, EPOCH, site, held, bytes(32)) for site in (1, 2, 777) for held in range(2, 2 + 4 * RECEIPTS_AHEAD)
    ]
    hear(machine, T(1) + MS, *far)
    waiting = {site: sorted(receipts) for site, receipts in machine.certificates.ahead.items()}
    assert waiting == {site: list(range(2, 2 + RECEIPTS_AHEAD)) for site in (1, 2)}


# Stability


def test_what_everybody_holds_and_is_released_leaves_memory() -> None:
    """Protocol §6: u ≤ min(t-m+1, secstable) for an accepted t of the same epoch, released, in the journal."""
    chain = Chain().grow(2)
    machine = receiver(1, chain)
    hear(machine, T(3), chain.add().token)
    assert machine.stability_floor() == 1
    assert not [effect for effect in machine.take(T(3) + 1) if isinstance(effect, Collect)]
    effects = hear(machine, T(3) + 2, receipt(2, chain), receipt(3, chain))
    assert [effect for effect in effects if isinstance(effect, Collect)] == [Collect(1)]
    assert machine.ledger.collected == 1


def collected(machine: Receiver, chain: Chain, now: int) -> int:
    """What leaves memory once everything is certified and released."""
    hear(machine, now, receipt(2, chain), receipt(3, chain))
    machine.take(now + PERIOD)
    return machine.ledger.collected


def test_memory_waits_for_the_group_that_is_furthest_behind() -> None:
    """Protocol §6: u ≤ min(t-m+1, secstable); §7: the minimum over heads, whoever spoke last."""
    chain = Chain()
    machine = receiver(9)
    for secstable in (9, 2, 7, 9, 2, 7):
        token = chain.add(secstable=secstable).token
        hear(machine, token.instant, token)
    assert machine.stability_floor() == 4
    assert collected(machine, chain, T(6) + PERIOD) == 2


def test_the_newest_report_of_each_head_counts() -> None:
    chain = Chain()
    machine = receiver(9)
    for secstable in (9, 0, 9, 9, 3, 9):
        token = chain.add(secstable=secstable).token
        hear(machine, token.instant, token)
    assert collected(machine, chain, T(6) + PERIOD) == 3


def test_a_new_epoch_waits_for_every_heads_report_anew() -> None:
    """Protocol §6: a new epoch restarts the count."""
    chain = Chain().grow(3)
    machine = receiver(1, chain)
    assert set(machine.reports.by_head) == {1, 2, 3}
    machine.install(following(chain), 3, (), T(4))
    assert machine.reports.by_head == {}


def test_a_restart_knows_what_the_heads_reported_in_its_log() -> None:
    chain = Chain()
    for secstable in (1, 2, 3):
        chain.add(secstable=secstable)
    machine = Receiver(1, settings(), secret(1), chain.state())
    assert machine.reports.by_head == {1: 1, 2: 2, 3: 3}


def test_repairs_for_secondary_receivers_are_their_own() -> None:
    """§5.2 lets primary receivers take turns and hear each other's repairs; who is not in U is answered alone."""
    rules = settings()
    rules = replace(rules, timing=replace(rules.timing, nack_sets=2, release_delay_ns=0))
    chain = Chain().grow(1)
    machine = receiver(1, chain, rules)
    [to_member] = hear(machine, T(1) + LATE, Nack(0, EPOCH, 3, 1, has_token=False, parts_held=0, listed=()))
    [to_child] = hear(machine, T(1) + LATE, Nack(0, EPOCH, 4, 1, has_token=False, parts_held=0, listed=()))
    repair = Repair(0, EPOCH, 1, chain.entries[0].token)
    assert (to_member, to_child) == (Multicast(repair), Unicast(4, repair))


# Orders from the reformation


def test_installing_is_one_record_and_then_a_receipt_in_the_new_epoch() -> None:
    """Protocol §5, step 4: install suffix, prom = e_acc = b, h and nextM in one atomic record; RECEIPT, NORMAL."""
    chain = Chain().grow(1)
    machine = receiver(2, chain)
    suffix = chain.add(message(1))
    ring = following(chain)
    machine.install(ring, 1, (suffix,), T(2))
    digest = token_digest(suffix.token)
    assert machine.take(T(2)) == (
        Persist(RingInstalled(ring, 1, (suffix,))),
        EntryCompleted(NEXT_EPOCH, suffix, digest),
        Multicast(Receipt(0, NEXT_EPOCH, 2, 2, digest)),
    )
    assert (machine.mode, machine.promised, machine.accepted) == (Mode.NORMAL, NEXT_EPOCH, NEXT_EPOCH)


def test_a_site_without_a_ring_is_sealed_and_waits_for_nothing() -> None:
    machine = Receiver(1, settings(), secret(1), blank())
    assert machine.take(T(1)) == ()
    assert (machine.mode, machine.next_deadline()) == (Mode.SEALED, NEVER)


def test_a_restart_resumes_where_the_disk_says() -> None:
    chain = Chain().grow(4)
    machine = Receiver(2, settings(), secret(2), chain.state(released=2))
    state = machine.snapshot()
    assert (state.mode, state.held, state.released, state.next_slot) == (Mode.NORMAL, 4, 2, 5)
    assert (state.promised, state.accepted) == (EPOCH, EPOCH)


def test_a_site_that_was_away_suspects_itself_once() -> None:
    """One SUSPECT says it; one for each missed slot is a flood that grows with the absence."""
    machine = Receiver(2, settings(), secret(2), Chain().grow(1).state())
    found: list[ReceiverEffect] = []
    now = T(1_000)
    for _ in range(9):
        found.extend(machine.take(now))
        now = max(now, min(machine.next_deadline(), now + 1))
    assert len([effect for effect in found if isinstance(effect, RingSuspected)]) == 1
