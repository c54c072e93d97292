"""The owner's part: when it sends, what, and when it stays silent (§5; protocol §2, §3)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.ring.makers import (
    EPOCH,
    MS,
    S1,
    S2,
    Chain,
    T,
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

from isocast.ring.effects import EntryAppended, Multicast, Persist, RingSuspected
from isocast.ring.receiver import Receiver
from isocast.ring.settings import OrderRule
from isocast.ring.storage import SiteState
from isocast.ring.token import nonce
from isocast.wire.packets import NO_LIMIT, ControlEntry, ControlKind, Data, Grant, Suspicion, Token, short_digest_of

PROCESS = 4 * MS


def issued(machine: Receiver, now: int) -> list[Token]:
    """The tokens that a receiver sends at an instant."""
    return [packet for packet in packets(machine.take(now)) if isinstance(packet, Token)]


def fed(machine: Receiver, *messages: Data, now: int = 0) -> Receiver:
    for held in messages:
        machine.on_data(held, now)
    return machine


# When


def test_at_its_instant_the_owner_persists_sends_and_holds_its_token() -> None:
    """Protocol §3: orders it; persists; multicasts; h = t."""
    machine = fed(receiver(1), message(1), message(1, S2))
    entry = Chain().add(message(1), message(1, S2))
    assert machine.take(T(1) - 1) == ()
    assert machine.take(T(1)) == (*completed(entry), Multicast(entry.token), told(1, entry))
    assert machine.held == 1


@pytest.mark.parametrize("cycles", [1, 2, 40])
def test_an_owner_whose_clock_was_ahead_for_a_moment_sends_what_is_still_to_come(cycles: int) -> None:
    """F3: what its clock made it give up is not lost when the clock is right again. Swarm seeds 6, 59, 70 and 118."""
    machine = receiver(1)
    assert RingSuspected(1, 1, Suspicion.LATE) in machine.take(T(1 + 3 * cycles) + PROCESS + 1)
    machine.take(T(1) - MS)
    assert machine.next_deadline() == T(1)
    [token] = issued(machine, T(1))
    assert (token.token_number, machine.held) == (1, 1)


def test_an_owner_that_sent_its_token_does_not_send_another_when_its_clock_is_set_back() -> None:
    """S5: at most one content for each (e, t), whatever the clock does."""
    machine = receiver(1)
    assert len(issued(machine, T(1))) == 1
    machine.take(T(1) - 10 * MS)
    fed(machine, message(1))
    assert issued(machine, T(1)) == []
    assert machine.snapshot().next_slot == 4


def test_an_owner_whose_slot_has_passed_when_its_clock_is_right_again_says_so() -> None:
    machine = receiver(1)
    machine.take(T(10))
    assert RingSuspected(1, 1, Suspicion.LATE) in machine.take(T(2))
    assert machine.snapshot().next_slot == 4


def test_an_empty_token_is_sent_too() -> None:
    """Protocol §12, mistake 10: skipping empty tokens."""
    assert issued(receiver(1), T(1)) == [Chain().add().token]


def test_nobody_sends_out_of_turn() -> None:
    assert issued(receiver(2), T(1)) == []
    assert [token.token_number for token in issued(receiver(2, Chain().grow(1)), T(2))] == [2]


def test_an_owner_that_lacks_the_token_before_stays_silent_and_says_so() -> None:
    """Protocol §3: requires h = t-1, else suspects itself and stays silent."""
    machine = receiver(2)
    assert issued(machine, T(2)) == []
    assert issued(machine, T(2) + PROCESS) == []
    effects = machine.take(T(2) + PROCESS + 1)
    assert RingSuspected(2, 2, Suspicion.BEHIND) in effects
    assert machine.issuer.slot == 5


def test_an_owner_that_completes_within_p_still_sends() -> None:
    machine = receiver(2)
    machine.take(T(2))
    machine.on_token(Chain().add().token, T(2) + PROCESS)
    [token] = issued(machine, T(2) + PROCESS)
    assert (token.token_number, token.instant) == (2, T(2))


def test_an_owner_whose_clock_is_past_p_stays_silent_and_says_so() -> None:
    """Protocol §3: a clock not past T_t+P. Mistake 10: a late owner sending anyway."""
    machine = receiver(1)
    assert machine.take(T(1) + PROCESS + 1) == (RingSuspected(1, 1, Suspicion.LATE),)
    assert machine.held == 0


def test_the_stamp_is_the_scheduled_instant_however_late() -> None:
    """Protocol §12, mistake 7: stamping the actual send time."""
    [token] = issued(receiver(1), T(1) + PROCESS)
    assert token.instant == T(1)


def test_never_two_contents_for_one_token() -> None:
    """Protocol §3; S5: not even after a restart in between."""
    machine = receiver(1)
    [first] = issued(machine, T(1))
    fed(machine, message(1), now=T(1) + 1)
    assert issued(machine, T(1) + 2) == []
    chain = Chain()
    chain.add()
    again = Receiver(1, settings(), secret(1), chain.state())
    fed(again, message(1))
    assert issued(again, T(1) + 1) == []
    assert first == chain.entries[0].token


def test_the_token_is_on_disk_before_anybody_hears_of_it() -> None:
    effects = receiver(1).take(T(1))
    kinds = [type(effect.record) if isinstance(effect, Persist) else type(effect) for effect in effects]
    assert kinds.index(EntryAppended) < kinds.index(Multicast)


def test_a_sealed_owner_sends_nothing() -> None:
    machine = receiver(1)
    machine.seal(following(Chain()).ballot)
    assert packets(machine.take(T(1))) == []


# What


def test_a_token_takes_at_most_k_max_and_grants_windows() -> None:
    """Protocol §7: `grants` sets each source's window by max-min share."""
    machine = receiver(1, rules=settings(batch_max=4))
    [token] = issued(fed(machine, *[message(number) for number in range(1, 7)], message(1, S2)), T(1))
    assert [(run.source, run.count) for run in token.runs] == [(S1, 3), (S2, 1)]
    assert token.grants == (Grant(S1, 3),)


def test_stable_is_what_every_member_holds() -> None:
    """Protocol §6: when t is sent, every member has ≤ t-m+1."""
    stable = []
    for tokens in range(6):
        owner = founding().ring[tokens % 3]
        [token] = issued(receiver(owner, Chain().grow(tokens)), T(tokens + 1))
        stable.append(token.stable)
    assert stable == [0, 0, 1, 2, 3, 4]


def reporting(*secstable: int) -> Chain:
    """Tokens of three heads, one after the other."""
    chain = Chain()
    for floor in secstable:
        chain.add(secstable=floor)
    return chain


def test_stable_is_what_every_group_holds_too() -> None:
    """Protocol §6: sources drop on TOKEN.stable, so it waits for the group that is furthest behind."""
    [token] = issued(receiver(1, reporting(9, 9, 9, 9, 2, 9)), T(7))
    assert (token.stable, token.secstable) == (2, NO_LIMIT)
    [token] = issued(receiver(1, reporting(9, 9, 9, 9, 9, 9)), T(7))
    assert token.stable == 5


def test_a_head_reports_its_group_and_heeds_it_at_once() -> None:
    machine = receiver(1, reporting(9, 9, 9, 9, 9, 9))
    machine.reports.own = 3
    [token] = issued(machine, T(7))
    assert (token.stable, token.secstable) == (3, 3)


def test_without_every_heads_report_nothing_is_stable() -> None:
    machine = receiver(1, reporting(9, 9, 9, 9, 9, 9))
    del machine.reports.by_head[2]
    [token] = issued(machine, T(7))
    assert token.stable == 0


def test_what_only_this_sites_disk_let_go_is_not_stable() -> None:
    """S8: a disk lets go what was released; a site that is away may lack it still. Swarm seed 3743."""
    chain = Chain().grow(6)
    disk = SiteState(chain.state().checkpoint, retain=1, released=6)
    for entry in chain.entries:
        disk.apply(EntryAppended(entry))
    disk.ring, disk.promised = chain.ring, chain.ring.ballot
    machine = Receiver(1, settings(), secret(1), disk)
    assert (machine.ledger.collected, chain.entries[-1].token.stable) == (5, 4)
    [token] = issued(machine, T(7))
    assert token.stable == 4


def test_a_source_that_was_acknowledged_goes_on_at_its_next_number() -> None:
    chain = Chain()
    chain.add(message(1))
    [token] = issued(fed(receiver(2, chain), message(1), message(2)), T(2))
    assert [(run.first, run.count) for run in token.runs] == [(2, 1)]
    assert token.first_sequence == 2


# Commit and reveal


def test_an_owner_reveals_what_it_committed_to_one_cycle_before() -> None:
    """Protocol §2: committed in its previous token; for the first cycle of a ring in its JOIN."""
    rules = settings(order=OrderRule.SHUFFLE)
    chain = Chain(order=OrderRule.SHUFFLE)
    [first] = issued(receiver(1, rules=rules), T(1))
    assert founding().commits[0] == short_digest_of(first.reveal)
    [second] = issued(receiver(1, chain.grow(3), rules), T(4))
    assert first.commit == short_digest_of(second.reveal)
    assert first.reveal != second.reveal


def test_what_a_site_commits_to_when_it_joins_is_what_it_reveals_first() -> None:
    machine = receiver(1, rules=settings(order=OrderRule.SHUFFLE))
    assert machine.issuer.commit_for(EPOCH) == short_digest_of(nonce(secret(1), EPOCH, 0)) == founding().commits[0]


@pytest.mark.parametrize("cycle", [0, 1])
def test_a_token_that_reveals_something_else_is_refused(cycle: int) -> None:
    """Protocol §2: everybody can check it afterwards."""
    rules, chain = settings(order=OrderRule.SHUFFLE), Chain(order=OrderRule.SHUFFLE)
    chain.grow(3 * cycle)
    machine = receiver(2, chain, rules)
    honest = chain.add().token
    machine.on_token(replace(honest, reveal=b"\x07" * 16), honest.instant)
    assert (machine.held, machine.conflicts) == (3 * cycle, 1)
    machine.on_token(honest, honest.instant)
    assert machine.held == 3 * cycle + 1


def test_a_restart_knows_what_was_committed() -> None:
    rules, chain = settings(order=OrderRule.SHUFFLE), Chain(order=OrderRule.SHUFFLE)
    machine = Receiver(2, rules, secret(2), chain.grow(4).state())
    assert not machine.issuer.honest(replace(chain.entries[3].token, reveal=chain.entries[0].token.reveal))
    assert machine.issuer.honest(chain.fork().add().token)


# Control


def entry(kind: ControlKind, subject: int) -> ControlEntry:
    return ControlEntry(kind, subject, b"")


ADD4, ADD5 = entry(ControlKind.ADD_SITE, 4), entry(ControlKind.ADD_SITE, 5)
MARK = entry(ControlKind.MARK, 7)


def owner_of_4(*, certified: bool) -> Receiver:
    """Site 1, about to send token 4; a majority has certified token 3, or nobody anything."""
    chain = Chain().grow(3)
    machine = receiver(1, chain)
    if certified:
        machine.on_receipt(receipt(2, chain), T(4) - 1)
        machine.take(T(4) - 1)
    return machine


def test_an_operators_mark_travels_in_the_next_token_once() -> None:
    machine = receiver(1)
    machine.membership.request(MARK, machine.ring)
    [token] = issued(machine, T(1))
    assert token.control == (MARK,)
    assert machine.membership.waiting == []


def test_u_changes_only_on_top_of_a_certified_token_of_the_epoch() -> None:
    """Protocol §5: certified before the next change begins; an uncertified epoch may be cut back."""
    machine = owner_of_4(certified=False)
    machine.membership.request(ADD4, machine.ring)
    machine.membership.request(MARK, machine.ring)
    [token] = issued(machine, T(4))
    assert token.control == (MARK,)
    assert machine.membership.waiting == [ADD4]


def test_u_changes_by_one_site_at_a_time() -> None:
    machine = owner_of_4(certified=True)
    machine.membership.request(ADD4, machine.ring)
    machine.membership.request(ADD5, machine.ring)
    [token] = issued(machine, T(4))
    assert token.control == (ADD4,)
    assert (machine.membership.waiting, machine.ledger.universe) == ([ADD5], (1, 2, 3, 4))


def test_the_next_change_waits_until_the_last_is_certified_by_the_old_u() -> None:
    chain = Chain().grow(3)
    chain.add(control=(ADD4,))
    for certifier, allowed in ((4, False), (3, True)):
        machine = receiver(2, chain)
        machine.on_receipt(receipt(certifier, chain), T(5) - 1)
        machine.membership.request(ADD5, machine.ring)
        [token] = issued(machine, T(5))
        assert token.control == ((ADD5,) if allowed else ())


def test_what_was_certified_in_an_earlier_epoch_does_not_allow_a_change_in_this_one() -> None:
    machine = owner_of_4(certified=True)
    chain = Chain().grow(3)
    ring = following(chain)
    machine.install(ring, 3, (), T(4))
    machine.membership.request(ADD4, machine.ring)
    machine.take(T(4))
    [token] = issued(machine, ring.start)
    assert token.control == ()


def test_an_entry_whose_token_is_cut_off_waits_for_the_next() -> None:
    """An operator's entry is like a source's message: sent is not yet ordered."""
    machine = receiver(1)
    machine.membership.request(MARK, machine.ring)
    assert issued(machine, T(1))[0].control == (MARK,)
    ring = following(Chain())
    machine.install(ring, 0, (), T(2))
    machine.take(T(2))
    assert issued(machine, ring.start)[0].control == (MARK,)
