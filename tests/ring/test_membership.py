"""One site's part in planned changes (protocol §5)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.ring.makers import (
    EPOCH,
    NEXT_EPOCH,
    Chain,
    T,
    blank,
    following,
    founding,
    message,
    packets,
    receipt,
    receiver,
    secret,
    settings,
)

from isocast.ring.effects import (
    ControlOutcome,
    ControlSettled,
    Diverged,
    EntryAppended,
    LogReplaced,
    Persist,
    ReceiverEffect,
    Release,
    RingInstalled,
    RingSuspected,
    UniverseForced,
)
from isocast.ring.membership import forced_rightly
from isocast.ring.receiver import Mode, Receiver
from isocast.ring.storage import SiteState
from isocast.terms.ids import server_id
from isocast.terms.timing import Gate
from isocast.wire.orders import force_entry
from isocast.wire.packets import ControlEntry, ControlKind, NewRing, Suspicion, Token

ADD4, ADD2 = ControlEntry(ControlKind.ADD_SITE, 4, b""), ControlEntry(ControlKind.ADD_SITE, 2, b"")
REMOVE3, REMOVE9 = [ControlEntry(ControlKind.REMOVE_SITE, site, b"") for site in (3, 9)]
COMPLETION = settings().timing.completion_ns


def suspicions(effects: tuple[ReceiverEffect, ...], reason: Suspicion) -> list[int]:
    return [e.suspect for e in effects if isinstance(e, RingSuspected) and e.reason is reason]


def audited(machine: Receiver, chain: Chain) -> tuple[ReceiverEffect, ...]:
    """What a site says when it audits the next token, which it holds."""
    token = chain.add().token
    machine.on_token(token, token.instant)
    return machine.take(token.instant + COMPLETION)


def settled(effects: tuple[ReceiverEffect, ...]) -> list[tuple[ControlEntry, ControlOutcome]]:
    return [(e.entry, e.outcome) for e in effects if isinstance(e, ControlSettled)]


# Leaving


def test_a_site_that_drains_asks_at_once_and_again_while_it_is_on_the_ring() -> None:
    chain = Chain().grow(3)
    machine = receiver(2, chain)
    machine.drain(leaving=True)
    assert suspicions(machine.take(T(3) + 1), Suspicion.LEAVING) == [2]
    assert suspicions(audited(machine, chain), Suspicion.LEAVING) == [2]
    machine.drain(leaving=False)
    assert suspicions(machine.take(T(4) + COMPLETION + 1), Suspicion.LEAVING) == []


@pytest.mark.parametrize("leaving", [False, True])
def test_a_leaving_site_off_the_ring_stays_off(leaving: bool) -> None:  # noqa: FBT001
    chain = Chain(founding(1, 3)._replace(universe=(1, 2, 3))).grow(3)
    machine = receiver(2, chain)
    machine.membership.leaving = leaving
    assert suspicions(audited(machine, chain), Suspicion.OUTSIDE) == ([] if leaving else [2])


def test_a_sealed_site_asks_for_nothing_until_it_has_a_ring() -> None:
    machine = receiver(2, Chain().grow(3))
    machine.seal(NEXT_EPOCH)
    machine.drain(leaving=True)
    assert suspicions(machine.take(T(3) + 1), Suspicion.LEAVING) == []


@pytest.mark.parametrize("certified", [False, True])
def test_members_name_whoever_u_has_no_more_once_that_is_certified(certified: bool) -> None:  # noqa: FBT001
    chain = Chain().grow(2)
    chain.add(control=(REMOVE3,))
    machine = receiver(2, chain)
    if certified:
        machine.on_receipt(receipt(1, chain), T(3))
    assert suspicions(audited(machine, chain), Suspicion.LEAVING) == ([3] if certified else [])


# What an operator asks for


@pytest.mark.parametrize(
    "entry, outcome",
    [
        (ADD2, ControlOutcome.ALREADY),
        (REMOVE9, ControlOutcome.ALREADY),
        (force_entry(server_id(1), (1, 2)), ControlOutcome.NOT_HERE),
    ],
)
def test_a_change_that_changes_nothing_is_told_and_not_issued(entry: ControlEntry, outcome: ControlOutcome) -> None:
    chain = Chain().grow(3)
    machine = receiver(1, chain)
    machine.on_receipt(receipt(2, chain), T(4) - 1)
    machine.membership.request(entry, machine.ring)
    effects = machine.take(T(4))
    assert settled(effects) == [(entry, outcome)]
    assert [packet.control for packet in packets(effects) if isinstance(packet, Token)] == [()]


def test_u_never_falls_below_two() -> None:
    chain = Chain(founding(1, 2)).grow(2)
    machine = receiver(1, chain)
    machine.on_receipt(receipt(2, chain), T(3) - 1)
    machine.membership.request(ControlEntry(ControlKind.REMOVE_SITE, 2, b""), machine.ring)
    assert [outcome for _, outcome in settled(machine.take(T(3)))] == [ControlOutcome.TOO_FEW]


def test_a_site_off_the_ring_has_no_token_and_says_so() -> None:
    chain = Chain(founding(1, 3)._replace(universe=(1, 2, 3))).grow(3)
    machine = receiver(2, chain)
    machine.membership.request(ADD4, machine.ring)
    assert settled(machine.take(T(3) + 1)) == [(ADD4, ControlOutcome.OFF_RING)]
    waiting = receiver(1, Chain().grow(3))
    waiting.membership.request(ADD4, waiting.ring)
    waiting.install(following(Chain().grow(3), 2, 3), 3, (), T(4))
    assert settled(waiting.take(T(4))) == [(ADD4, ControlOutcome.OFF_RING)]


def test_a_change_is_done_when_the_u_before_has_certified_it() -> None:
    chain = Chain().grow(3)
    machine = receiver(1, chain)
    machine.on_receipt(receipt(2, chain), T(4) - 1)
    machine.membership.request(ADD4, machine.ring)
    assert settled(machine.take(T(4))) == []
    chain.add(control=(ADD4,))
    machine.on_receipt(receipt(4, chain), T(4) + 1)
    assert settled(machine.take(T(4) + 1)) == []
    machine.on_receipt(receipt(3, chain), T(4) + 2)
    assert settled(machine.take(T(4) + 2)) == [(ADD4, ControlOutcome.DONE)]


def test_without_receipts_what_every_member_holds_is_certified() -> None:
    """U changes under every gate; the ring is a majority of U."""
    chain = Chain().grow(6)
    machine = receiver(1, chain, settings(Gate.TIMED))
    assert machine.certificates.certified == 4


# Forced changes


def forced(chain: Chain, *survivors: int) -> NewRing:
    return following(chain, *survivors, holders=survivors)._replace(universe=survivors, forced=True)


def test_the_first_token_of_a_forced_ring_says_so_and_no_other_may() -> None:
    ring = forced(Chain().grow(3), 1, 2)
    right = force_entry(ring.ballot.server, (1, 2))
    first = Chain().grow(3).enter(ring)
    assert forced_rightly(first.fork().add(control=(right,)).token, ring)
    assert not forced_rightly(first.fork().add().token, ring)
    assert not forced_rightly(first.fork().add(control=(force_entry(ring.ballot.server, (1, 3)),)).token, ring)
    assert not forced_rightly(first.fork().add(control=(right,)).token, ring._replace(forced=False))


def test_a_site_refuses_a_first_token_that_does_not_force_u() -> None:
    chain = Chain().grow(3)
    ring = forced(chain, 1, 2)
    machine = receiver(2, chain)
    machine.install(ring, 3, (), T(4))
    machine.take(T(4))
    machine.on_token(chain.enter(ring).add().token, ring.start)
    assert (machine.held, machine.conflicts) == (3, 1)


def test_its_owner_adds_the_entry_and_everybody_says_it_aloud() -> None:
    chain = Chain().grow(3)
    ring = forced(chain, 1, 2)
    machine = receiver(1, chain)
    machine.install(ring, 3, (), T(4))
    machine.take(T(4))
    effects = machine.take(ring.start)
    [token] = [packet for packet in packets(effects) if isinstance(packet, Token)]
    assert token.control == (force_entry(ring.ballot.server, (1, 2)),)
    assert UniverseForced(ring.ballot, 4, (1, 2)) in effects
    assert machine.ledger.universe == (1, 2)


# Rings without a majority


def alone(chain: Chain, *members: int) -> NewRing:
    return following(chain, *members, holders=members)._replace(uncertified=True)


def test_a_majority_of_an_uncertified_ring_opens_the_gate_and_releases_are_marked() -> None:
    chain = Chain()
    chain.add(message(1))
    ring = alone(chain, 1)
    machine = receiver(1, chain)
    machine.install(ring, 1, (), T(2))
    effects = machine.take(max(ring.start, T(1) + settings().timing.release_delay_ns))
    assert [(e.first_sequence, e.uncertified) for e in effects if isinstance(e, Release)] == [(1, True)]


def test_nothing_of_an_uncertified_epoch_is_stable() -> None:
    """Its log may lose to another's: sources and sites keep what is in it."""
    chain = Chain().grow(1)
    ring = alone(chain, 1)
    grown = chain.enter(ring).grow(4)
    machine = receiver(1, chain)
    machine.install(ring, 1, tuple(grown.entries[1:]), T(2))
    assert machine.stability_floor() == 0


def test_what_only_an_uncertified_ring_vouched_for_needs_a_certificate_in_the_next() -> None:
    chain = Chain().grow(1)
    ring = alone(chain, 1)
    machine = receiver(1, chain)
    machine.install(ring, 1, (), T(2))
    assert machine.certificates.certified == 1
    machine.install(following(chain, epoch=EPOCH._replace(number=3)), 1, (), T(3))
    assert machine.certificates.certified == 0


def test_a_vote_names_the_last_epoch_that_a_majority_stood_behind() -> None:
    chain = Chain().grow(1)
    machine = receiver(1, chain)
    machine.install(alone(chain, 1), 1, (), T(2))
    assert (machine.accepted.number, machine.lineage) == (2, EPOCH)


def test_a_site_whose_history_lost_says_so_and_releases_no_sequence_twice() -> None:
    common = Chain()
    common.add(message(1))
    mine, theirs = common.fork(), common.fork()
    mine.add(message(2), message(3))
    theirs.add(message(1, source=2 << 32 | 1))
    theirs.add(message(2), message(3), message(4))
    state = mine.state(released=2)
    state.next_sequence = 4
    machine = Receiver(1, settings(), secret(1), state)
    ring = following(theirs)
    machine.install(ring, 1, tuple(theirs.entries[1:]), T(4))
    effects = machine.take(T(4))
    assert Diverged(ring.ballot, 2, 4) in effects
    [replaced] = [e.record for e in effects if isinstance(e, Persist)]
    assert isinstance(replaced, LogReplaced)
    assert (replaced.checkpoint.token_number, replaced.suffix) == (1, tuple(theirs.entries[1:]))
    for other in (2, 3):
        machine.on_receipt(receipt(other, theirs)._replace(epoch=ring.ballot), ring.start)
    out = [e for e in machine.take(ring.start + settings().timing.release_delay_ns) if isinstance(e, Release)]
    assert [(e.first_sequence, len(e.messages)) for e in out] == [(4, 2)]


@pytest.mark.parametrize("parted, alarm", [(1, True), (2, False)])
def test_a_checkpoint_in_place_of_a_released_history_is_an_alarm_too(parted: int, alarm: bool) -> None:  # noqa: FBT001
    mine = Chain()
    mine.add(message(1))
    mine.add(message(2))
    mine.add()
    state = mine.state(released=2)
    state.next_sequence = 3
    machine = Receiver(1, settings(), secret(1), state)
    machine.stray(following(mine), parted)
    said = [e for e in machine.take(T(4)) if isinstance(e, Diverged)]
    assert said == ([Diverged(NEXT_EPOCH, 2, 3)] if alarm else [])


def test_the_disk_remembers_what_was_released_before_a_history_lost() -> None:
    state = SiteState(blank().checkpoint)
    mine = Chain()
    mine.add(message(1), message(2))
    entry = mine.entries[0]
    state.apply(EntryAppended(entry))
    state.release(Release(EPOCH, entry, 1, entry.messages, 0))
    state.apply(RingInstalled(following(Chain()), 0, ()))
    assert (state.released, state.next_sequence, state.skip_below) == (0, 3, 3)
    assert Receiver(1, settings(), secret(1), state).mode is Mode.NORMAL


def test_settings_of_both_policies() -> None:
    rules = settings()
    assert rules.patience_ns == 2 * rules.timing.reformation_ns
    assert replace(rules, start_wait_ns=7).patience_ns == 7
