"""When what a site lacks is gone: it says so, and takes a checkpoint over that the chain confirms (protocol §5, §6)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.ring.makers import (
    EPOCH,
    MS,
    NEXT_EPOCH,
    PERIOD,
    RETRY,
    TIMING,
    Chain,
    T,
    founding,
    message,
    point_at,
    receiver,
    secret,
    settings,
)

from isocast.ring.effects import (
    EntryAppended,
    FetchCheckpoint,
    LogReplaced,
    Multicast,
    Persist,
    PromiseMade,
    ReadJournal,
    ReceiverEffect,
    Release,
    RingSuspected,
    Unicast,
)
from isocast.ring.inputs import CheckpointFetched, JournalRead
from isocast.ring.ledger import Checkpoint, Ledger
from isocast.ring.receiver import Mode, Receiver
from isocast.ring.rejoin import Rejoin, continues
from isocast.ring.settings import OrderRule
from isocast.ring.storage import SiteState
from isocast.ring.token import nonce
from isocast.wire.packets import Range, RangeReply, RangeRequest, Receipt, Repair, Suspicion, short_digest_of

PATIENCE = TIMING.retries_max * RETRY


def chain_of(count: int) -> Chain:
    chain = Chain()
    for number in range(1, count + 1):
        chain.add(message(number))
    return chain


def gone(sender: int, first: int, low_water: int, kind: Range = Range.TOKENS) -> RangeReply:
    return RangeReply(0, EPOCH, sender, kind, first, low_water + 10, low_water)


def wishes(effects: tuple[ReceiverEffect, ...]) -> list[FetchCheckpoint]:
    return [effect for effect in effects if isinstance(effect, FetchCheckpoint)]


def records(effects: tuple[ReceiverEffect, ...]) -> list[object]:
    return [effect.record for effect in effects if isinstance(effect, Persist)]


def offer(machine: Receiver, now: int, *items: object) -> tuple[ReceiverEffect, ...]:
    for item in items:
        machine.on_event(Repair(0, EPOCH, 1, item), now)  # type: ignore[arg-type]
    return machine.take(now)


def behind(chain: Chain) -> tuple[Receiver, int]:
    """Site 3 holds two tokens of the chain; both others have let the third go."""
    machine = receiver(3, chain_of(2), settings(window=32))
    now = T(len(chain.entries)) + MS
    machine.take(now)
    machine.on_range_reply(gone(1, 3, 9), now)
    assert not wishes(machine.take(now)), "another may still have it"
    machine.on_range_reply(gone(2, 3, 8), now)
    return machine, now


# Those who are asked


def test_a_member_says_that_a_token_has_left_its_log() -> None:
    """An answer, not silence: who asks must know that asking again is of no use."""
    machine = receiver(1, chain_of(6))
    machine.ledger.collect(4)
    machine.answering.on_journal(JournalRead(3, (), first=2, oldest=5))
    assert Unicast(3, RangeReply(0, EPOCH, 1, Range.TOKENS, 2, 6, 5)) in machine.take(T(6))


def test_it_sends_what_it_has_and_says_what_it_lacks() -> None:
    chain = chain_of(6)
    machine = receiver(1, chain)
    machine.answering.on_journal(JournalRead(3, tuple(chain.entries[3:4]), first=2, oldest=4))
    sent = [effect.packet for effect in machine.take(T(6)) if isinstance(effect, Unicast)]
    assert sent[0] == RangeReply(0, EPOCH, 1, Range.TOKENS, 2, 6, 4)
    assert sent[1] == Repair(0, EPOCH, 1, chain.entries[3].token)


def test_what_the_log_has_is_sent_without_a_word() -> None:
    chain = chain_of(6)
    machine = receiver(1, chain)
    machine.answering.on_journal(JournalRead(3, tuple(chain.entries[1:2]), first=2, oldest=1))
    assert not [effect for effect in machine.take(T(6)) if isinstance(getattr(effect, "packet", None), RangeReply)]


def test_a_request_for_a_token_that_left_memory_is_read_from_the_log() -> None:
    machine = receiver(1, chain_of(6))
    machine.ledger.collect(4)
    machine.answering.on_range_request(RangeRequest(0, EPOCH, 3, Range.TOKENS, 2, 6), T(6))
    assert ReadJournal(3, 2, 4) in machine.take(T(6))


# Those who ask


def test_a_checkpoint_is_wanted_when_all_have_let_it_go() -> None:
    machine, now = behind(chain_of(12))
    assert wishes(machine.take(now)) == [FetchCheckpoint((1, 2), 2)]
    assert wishes(machine.take(now + PATIENCE - 1)) == []
    assert wishes(machine.take(now + PATIENCE)) == [FetchCheckpoint((2, 1), 2)], "silence: another is asked first"


def test_whoever_searches_for_a_checkpoint_says_what_it_lacks_as_often_as_it_asks() -> None:
    """F2: it holds no token meanwhile, and must not be silent about it. Swarm seed 432."""
    machine, now = behind(chain_of(12))
    lacks = RingSuspected(3, 3, Suspicion.UNRECOVERED)
    assert lacks in machine.take(now)
    assert lacks not in machine.take(now + PATIENCE - 1)
    assert lacks in machine.take(now + PATIENCE)


def test_one_that_says_so_for_long_suffices() -> None:
    """The other may be down."""
    machine = receiver(3, chain_of(2))
    now = T(12)
    machine.take(now)
    machine.on_range_reply(gone(1, 3, 9), now)
    machine.on_range_reply(gone(1, 3, 9), now + PATIENCE - 1)
    assert not wishes(machine.take(now + PATIENCE - 1))
    machine.on_range_reply(gone(1, 3, 9), now + PATIENCE)
    assert wishes(machine.take(now + PATIENCE))


@pytest.mark.parametrize(
    "reply",
    [gone(2, 3, 3), gone(2, 3, 2), gone(2, 4, 9), gone(2, 2, 9), gone(2, 3, 9, Range.SEQUENCES)],
    ids=["it is there", "it is there, and more", "of another token", "of one that is held", "of sequences"],
)
def test_other_answers_say_nothing_about_what_is_lacking(reply: RangeReply) -> None:
    machine = receiver(3, chain_of(2))
    machine.on_range_reply(gone(1, 3, 9), T(12))
    machine.on_range_reply(reply, T(12))
    assert not machine.rejoin.wanting


def test_whoever_gets_on_by_itself_wants_no_checkpoint_any_more() -> None:
    chain = chain_of(12)
    machine, now = behind(chain)
    offer(machine, now, chain.entries[2].token, *chain.entries[2].messages)
    assert machine.held == 3
    assert not machine.rejoin.active


# Taking it over


def test_a_checkpoint_is_taken_over_when_the_next_token_continues_it() -> None:
    chain = chain_of(12)
    machine, now = behind(chain)
    machine.take(now)
    machine.on_checkpoint(CheckpointFetched(point_at(chain, 8), 1), now)
    effects = machine.take(now)
    assert Unicast(1, RangeRequest(0, EPOCH, 3, Range.TOKENS, 9, 40)) in effects
    assert not records(effects), "nothing is believed yet"
    effects = offer(machine, now, chain.entries[8].token)
    assert records(effects) == [LogReplaced(point_at(chain, 8))]
    assert machine.held == 8
    assert Multicast(Receipt(0, EPOCH, 3, 8, machine.ledger.digest)) in effects
    effects = offer(machine, now, *chain.entries[8].messages)
    assert records(effects) == [EntryAppended(chain.entries[8])], "and the log goes on from there"


def test_tokens_that_came_before_the_checkpoint_count() -> None:
    chain = chain_of(12)
    machine, now = behind(chain)
    for entry in chain.entries[8:]:
        offer(machine, now, entry.token, *entry.messages)
    machine.on_checkpoint(CheckpointFetched(point_at(chain, 8), 1), now)
    offer(machine, now, chain.entries[8].token)
    assert machine.held == 12


def test_releases_go_on_behind_the_checkpoint() -> None:
    chain = chain_of(12)
    machine, now = behind(chain)
    machine.on_checkpoint(CheckpointFetched(point_at(chain, 8), 1), now)
    offer(machine, now, chain.entries[8].token, *chain.entries[8].messages)
    now = T(12) + PERIOD
    for site in (1, 2):
        machine.on_receipt(Receipt(0, EPOCH, site, 9, chain.head.digest), now)
    machine.on_receipt(Receipt(0, EPOCH, 2, 9, machine.ledger.digest), now)
    released = [effect for effect in machine.take(now) if isinstance(effect, Release)]
    assert [effect.first_sequence for effect in released] == [9]


def test_no_sequence_goes_out_twice_whatever_the_log_says() -> None:
    """A site that had released another history up to sequence 10 takes one over that is at 9."""
    chain = chain_of(12)
    machine, now = behind(chain)
    machine.releaser.next_sequence = 11
    machine.on_checkpoint(CheckpointFetched(point_at(chain, 8), 1), now)
    for entry in chain.entries[8:11]:
        offer(machine, now, entry.token, *entry.messages)
    now = T(12) + 2 * PERIOD
    machine.on_receipt(Receipt(0, EPOCH, 2, 11, machine.ledger.digest_at(11) or b""), now)
    released = [effect.first_sequence for effect in machine.take(now) if isinstance(effect, Release)]
    assert released == [11]


@pytest.mark.parametrize("field", ["digest", "next_sequence", "next_number"])
def test_a_checkpoint_that_the_next_token_does_not_continue_is_refused(field: str) -> None:
    chain = chain_of(12)
    machine, now = behind(chain)
    machine.take(now)
    wrong: dict[str, Any] = {"digest": bytes(32), "next_sequence": 7, "next_number": {}}
    machine.on_checkpoint(CheckpointFetched(replace(point_at(chain, 8), **{field: wrong[field]}), 1), now)
    effects = offer(machine, now, chain.entries[8].token)
    assert not records(effects)
    assert (machine.held, machine.rejoin.refused) == (2, 1)
    assert wishes(machine.take(now + RETRY)) == [FetchCheckpoint((2, 1), 2)]


def test_a_checkpoint_that_nobody_continues_is_given_up() -> None:
    chain = chain_of(12)
    machine, now = behind(chain)
    machine.take(now)
    machine.on_checkpoint(CheckpointFetched(point_at(chain, 8), 1), now)
    suspected = []
    for _ in range(TIMING.retries_max + 1):
        suspected.append(any(isinstance(effect, RingSuspected) for effect in machine.take(now)))
        now += RETRY
    assert machine.rejoin.refused == 1
    assert all(suspected), "F2: it holds no token meanwhile, and says so at every step"
    assert wishes(machine.take(now + RETRY))


@pytest.mark.parametrize("count", [1, 2])
def test_a_checkpoint_that_is_not_ahead_is_refused(count: int) -> None:
    chain = chain_of(12)
    machine, now = behind(chain)
    machine.take(now)
    machine.on_checkpoint(CheckpointFetched(point_at(chain, count), 1), now)
    assert machine.rejoin.checkpoint is None
    assert machine.rejoin.refused == 1


def test_a_checkpoint_of_another_epoch_is_refused() -> None:
    """(e_acc, h) must name a log that the site holds."""
    chain = chain_of(12)
    machine, now = behind(chain)
    machine.take(now)
    machine.on_checkpoint(CheckpointFetched(replace(point_at(chain, 8), epoch=NEXT_EPOCH), 1), now)
    assert machine.rejoin.checkpoint is None


def test_a_sealed_site_takes_nothing_over() -> None:
    """The log that a vote reported must not grow."""
    chain = chain_of(12)
    machine, now = behind(chain)
    machine.on_checkpoint(CheckpointFetched(point_at(chain, 8), 1), now)
    machine.seal(NEXT_EPOCH)
    assert records(machine.take(now)) == [PromiseMade(NEXT_EPOCH)]
    assert machine.mode is Mode.SEALED
    assert not records(offer(machine, now, chain.entries[8].token))
    assert machine.held == 2


def test_the_proof_comes_from_the_owner_of_its_token() -> None:
    chain = chain_of(12)
    machine, now = behind(chain)
    machine.on_checkpoint(CheckpointFetched(point_at(chain, 8), 1), now)
    stranger = replace(chain.entries[8].token, sender=1 + chain.entries[8].token.sender % 3)
    assert not records(offer(machine, now, stranger))
    assert machine.rejoin.checkpoint is not None


def test_what_owners_committed_to_before_the_checkpoint_is_not_held_against_them() -> None:
    """With shuffling, a token reveals what its owner's token before committed to, and that one is not here."""
    ring = founding()
    chain = Chain(ring, OrderRule.SHUFFLE)
    for number in range(1, 13):
        chain.add(message(number))
    point = point_at(chain, 8)
    state = SiteState(point, ring=ring, promised=EPOCH, released=8)
    machine = Receiver(3, settings(order=OrderRule.SHUFFLE, window=32), secret(3), state)
    now = T(11) + MS
    for entry in chain.entries[8:11]:
        offer(machine, now, entry.token, *entry.messages)
    assert machine.held == 11
    assert machine.conflicts == 0
    liar = chain.entries[11].token
    assert not machine.issuer.honest(replace(liar, reveal=short_digest_of(nonce(b"x" * 16, EPOCH, 99))))


# Its parts


def test_a_log_begins_anew_behind_a_checkpoint_and_messages_wait_again() -> None:
    chain = chain_of(3)
    ledger = Ledger(OrderRule.ARRIVAL, 8, Checkpoint(universe=(1, 2, 3)))
    for entry in chain.entries:
        ledger.append(entry)
    ledger.store(message(4))
    other = Chain()
    other.add(message(1))
    ledger.replace(point_at(other, 1))
    assert (ledger.held, ledger.collected, ledger.digest) == (1, 1, other.head.digest)
    assert sorted(number for _, number in ledger.waiting) == [2, 3, 4]
    assert ledger.next_number == {message(1).sender: 2}


def test_the_disk_begins_anew_in_one_record() -> None:
    chain = chain_of(12)
    state = SiteState(Checkpoint(universe=(1, 2, 3)), promised=EPOCH)
    for entry in chain.entries[:2]:
        state.apply(EntryAppended(entry))
    state.apply(LogReplaced(point_at(chain, 8), suffix=tuple(chain.entries[8:10])))
    assert (state.held, state.released, state.promised, sorted(state.entries)) == (10, 8, EPOCH, [9, 10])
    assert (state.next_sequence, state.skip_below) == (9, 9)
    ring = founding(epoch=NEXT_EPOCH)
    state.apply(LogReplaced(point_at(chain, 4), ring))
    assert (state.held, state.promised, state.ring) == (4, NEXT_EPOCH, ring)
    assert state.skip_below == 9, "what is out stays out"


def test_a_token_continues_a_checkpoint_or_not() -> None:
    chain = chain_of(3)
    assert continues(chain.entries[2].token, point_at(chain, 2))
    assert not continues(chain.entries[1].token, point_at(chain, 2))
    assert not continues(chain.entries[2].token, point_at(chain, 1))


def test_a_clock_that_was_set_back_does_not_stop_the_search() -> None:
    rejoin = Rejoin(TIMING)
    rejoin.want(T(50))
    assert rejoin.due((1, 2), 0, T(50))
    assert rejoin.due((1, 2), 0, T(1)) == FetchCheckpoint((2, 1), 0)
