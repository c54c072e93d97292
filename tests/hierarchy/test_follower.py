"""A receiver that follows the ring without being on it (§4.1)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.hierarchy.layer_makers import DELAY, FAMILY, LAYERED, RETRY_S, certify, due, follower, give, head
from tests.ring.makers import (
    EPOCH,
    LATE,
    MS,
    NEXT_EPOCH,
    PERIOD,
    Chain,
    T,
    blank,
    following,
    message,
    packets,
    receipt,
    secret,
)

from isocast.hierarchy.follower import Follower, Support
from isocast.ring.effects import (
    Effect,
    EntryCompleted,
    FairnessFaulted,
    FetchCheckpoint,
    Multicast,
    Release,
    RingSuspected,
    SupportSilent,
    Unicast,
)
from isocast.ring.receiver import Mode
from isocast.terms.ids import NO_EPOCH
from isocast.terms.timing import Gate
from isocast.wire.packets import Nack, NewRing, Pending, Range, RangeReply, Receipt, Suspicion, Token


def chain_of(tokens: int) -> Chain:
    """Each token acknowledges one message of the first source."""
    chain = Chain()
    for number in range(1, tokens + 1):
        chain.add(message(number))
    return chain


# What it hears and releases


def test_it_takes_the_same_tokens_as_the_ring() -> None:
    """§4.1: "They receive the same source messages and acknowledgements as the R_P"."""
    chain = chain_of(2)
    machine, other = follower(), head()
    for receiver in (machine, other):
        give(receiver, chain)
    assert (machine.held, machine.ledger.digest) == (other.held, other.ledger.digest)


def test_it_releases_at_the_same_instant_behind_the_same_gate() -> None:
    """§4.1: "and remulticast the same sequence of messages"."""
    chain = chain_of(1)
    machine, other = follower(), head()
    for receiver in (machine, other):
        give(receiver, chain)
        certify(receiver, chain, T(1) + MS, 2, 3)
        assert [effect for effect in receiver.take(due(1) - 1) if isinstance(effect, Release)] == []
    [release] = [effect for effect in machine.take(due(1)) if isinstance(effect, Release)]
    [same] = [effect for effect in other.take(due(1)) if isinstance(effect, Release)]
    assert release == same
    assert release.due == due(1)


def test_the_layers_share_is_part_of_the_delay() -> None:
    assert LAYERED.timing.release_delay_ns == DELAY == (110 + 22 + 10 + 2 * 24) * MS


def test_it_sends_no_receipt() -> None:
    chain = chain_of(2)
    machine = follower()
    for entry in chain.entries:
        machine.on_data(entry.messages[0], entry.token.instant)
        machine.on_token(entry.token, entry.token.instant)
    effects = machine.take(T(2) + MS)
    assert [effect for effect in effects if isinstance(effect, EntryCompleted)]
    assert packets(effects) == []


def test_only_receipts_of_u_count() -> None:
    """Protocol §7: R_S count in no quorum."""
    chain = chain_of(1)
    machine = follower()
    give(machine, chain)
    certify(machine, chain, T(1) + MS, 1, 4, 5, 6)
    assert machine.certificates.certified == 0
    certify(machine, chain, T(1) + MS, 3)
    assert machine.certificates.certified == 1


def test_a_lost_receipt_is_made_good_by_the_next() -> None:
    chain = chain_of(2)
    machine = follower()
    give(machine, chain)
    assert FairnessFaulted(1) in machine.take(due(1))
    certify(machine, chain, due(1) + MS, 2, 3)
    released = [effect for effect in machine.take(due(1) + MS) if isinstance(effect, Release)]
    assert [effect.entry.token.token_number for effect in released] == [1]


def test_receipts_that_come_before_the_token_count_when_it_is_here() -> None:
    chain = chain_of(1)
    machine = follower()
    certify(machine, chain, T(1), 2, 3)
    assert machine.certificates.certified == 0
    give(machine, chain)
    assert machine.certificates.certified == 1


def test_it_owns_no_token() -> None:
    machine = follower()
    assert machine.issuer.slot is None
    assert not [packet for packet in packets(machine.take(T(9))) if isinstance(packet, Token)]


def test_it_drops_what_everybody_is_known_to_hold() -> None:
    chain = chain_of(5)
    machine = follower()
    give(machine, chain)
    certify(machine, chain, T(5), 2, 3)
    machine.take(due(5))
    assert machine.ledger.collected == 3


# What it lacks


def test_what_is_missing_is_asked_of_the_parent() -> None:
    """§4.1: "rather than from the token site": token 2 is site 2's, and its backup is site 2 as well."""
    chain = chain_of(2)
    machine = follower(5, Chain())
    machine.on_token(chain.entries[0].token, T(1))
    machine.on_data(message(1), T(1))
    effects = machine.take(T(2) + LATE + 40 * MS)
    asked = [(effect.to, effect.packet) for effect in effects if isinstance(effect, Unicast)]
    assert asked == [(1, Nack(0, EPOCH, 5, 2, has_token=False, parts_held=0, listed=()))]


def test_silence_is_the_supports_fault_and_no_suspicion() -> None:
    machine = follower()
    effects: list[Effect] = []
    for step in range(4):
        effects.extend(machine.take(T(1) + 48 * MS + step * RETRY_S))
    assert [effect for effect in effects if isinstance(effect, SupportSilent)] == [SupportSilent(1, 1)]
    assert not [effect for effect in effects if isinstance(effect, RingSuspected)]
    assert machine.unanswered == 1
    assert [effect.to for effect in effects if isinstance(effect, Unicast)] == [1, 1, 2, 2]


def test_a_parent_that_is_asking_too_is_not_given_up() -> None:
    machine = follower()
    for step in range(5):
        effects = machine.take(T(1) + 48 * MS + step * RETRY_S)
        assert 1 in [effect.to for effect in effects if isinstance(effect, Unicast)]
        machine.on_pending(Pending(0, EPOCH, 1, 1), T(1) + 48 * MS + step * RETRY_S + MS)
    assert machine.unanswered == 0


def test_pending_of_another_epoch_says_nothing() -> None:
    machine = follower()
    for step in range(3):
        machine.take(T(1) + 48 * MS + step * RETRY_S)
        machine.on_pending(Pending(0, NEXT_EPOCH, 1, 1), T(1) + 48 * MS + step * RETRY_S + MS)
    assert machine.unanswered == 1


def test_while_it_searches_for_a_checkpoint_nobody_counts_as_silent() -> None:
    """Whoever was asked has answered that it let go what is missing."""
    machine, now = follower(), T(1) + MS
    for sender in (1, 2):
        machine.on_range_reply(RangeReply(0, EPOCH, sender, Range.TOKENS, 1, 19, 9), now)
    effects = machine.take(now)
    assert [effect for effect in effects if isinstance(effect, FetchCheckpoint)]
    assert not [effect for effect in effects if isinstance(effect, RingSuspected | SupportSilent)]
    assert machine.unanswered == 0


def test_members_without_receipts_are_not_its_affair() -> None:
    machine = follower()
    give(machine, chain_of(4))
    effects = [effect for step in range(40) for effect in machine.take(T(4) + step * PERIOD // 8)]
    assert not [effect for effect in effects if isinstance(effect, RingSuspected)]


def test_an_early_token_stops_its_releases_as_everybodys() -> None:
    """Protocol §3: a token before local T_t-2ε proves a bad clock: stop releasing."""
    chain = chain_of(1)
    machine = follower()
    machine.on_token(chain.entries[0].token, T(1) - 3 * MS)
    machine.on_data(message(1), T(1) - 3 * MS)
    certify(machine, chain, T(1), 2, 3)
    effects = machine.take(due(1))
    assert RingSuspected(1, 1, Suspicion.CLOCK) in effects
    assert not [effect for effect in effects if isinstance(effect, Release)]


@pytest.mark.parametrize("gate", [Gate.TIMED, Gate.NEXT, Gate.TOTAL])
def test_the_other_gates_open_for_it_as_for_the_ring(gate: Gate) -> None:
    rules = replace(LAYERED, timing=replace(LAYERED.timing, gate=gate, release_delay_ns=0))
    chain = chain_of(4)
    machine, other = follower(rules=rules), head(rules=rules)
    for receiver in (machine, other):
        give(receiver, chain)
        receiver.take(T(4) + rules.timing.release_delay_ns)
    assert machine.releaser.released == other.releaser.released > 0


# Other epochs


def test_a_newer_epoch_is_asked_of_the_parent_and_not_of_whoever_speaks() -> None:
    chain = Chain().grow(1)
    later = chain.enter(following(chain)).grow(1)
    machine = follower(chain=chain)
    machine.on_token(later.entries[-1].token, T(2))
    machine.on_receipt(receipt(3, later), T(2) + 1)
    [effect] = machine.take(T(2) + 1)
    assert effect == Unicast(1, Nack(0, EPOCH, 4, 2, has_token=False, parts_held=0, listed=()))


def test_the_ring_is_asked_for_once_each_retry_then_elsewhere() -> None:
    machine = follower()
    asked = []
    for step in range(3):
        machine.ask_for_ring(T(1) + step * RETRY_S)
        machine.ask_for_ring(T(1) + step * RETRY_S + MS)
        asked.extend([effect.to for effect in machine.flush() if isinstance(effect, Unicast)])
    assert asked == [1, 1, 2]
    assert machine.unanswered == 1


def test_a_stale_stranger_is_not_told_of_the_ring_but_the_family_is() -> None:
    """A thousand secondary receivers hear a stale member: one answer is enough."""
    chain = Chain().grow(1)
    later = chain.enter(following(chain))
    machine = follower(chain=later)
    machine.flush()
    machine.on_receipt(receipt(3, chain), T(2))
    assert machine.take(T(2)) == ()
    machine.on_nack(Nack(0, EPOCH, 5, 1, has_token=False, parts_held=0, listed=()), T(2))
    [effect] = machine.take(T(2))
    assert isinstance(effect, Unicast)
    assert (effect.to, type(effect.packet)) == (5, NewRing)


def test_while_it_follows_a_newer_ring_it_takes_nothing_of_the_old() -> None:
    machine = follower()
    machine.follow(NEXT_EPOCH)
    give(machine, Chain().grow(1))
    assert (machine.held, machine.mode) == (0, Mode.SEALED)
    assert machine.take(T(1)) == ()


def test_it_promises_nothing_on_disk() -> None:
    """Protocol §3: R_S is as R_P without prom and sent."""
    machine = follower()
    machine.follow(NEXT_EPOCH)
    assert not machine.out


# As a parent


def test_it_answers_from_its_log_and_says_what_it_lacks() -> None:
    """Three layers: a secondary receiver supports others."""
    chain = chain_of(1)
    machine = follower()
    give(machine, chain)
    machine.on_nack(Nack(0, EPOCH, 9, 1, has_token=True, parts_held=0, listed=()), T(1) + MS)
    machine.on_nack(Nack(0, EPOCH, 9, 2, has_token=False, parts_held=0, listed=()), T(1) + MS)
    assert packets(machine.take(T(1) + MS)) == [Pending(0, EPOCH, 4, 2)]


def test_one_without_a_ring_may_ask_all_of_u_in_the_end() -> None:
    machine = Follower(4, LAYERED, secret(4), blank(), Support(1, 2, LAYERED.timing), FAMILY)
    asked = []
    for step in range(2 * LAYERED.timing.retries_max + 1):
        machine.ask_for_ring(T(1) + step * RETRY_S)
        asked.extend([(effect.to, effect.packet.epoch) for effect in machine.flush() if isinstance(effect, Unicast)])
    assert asked == [(site, NO_EPOCH) for site in (1, 1, 2, 2, 3)]


def test_a_multicast_is_never_sent() -> None:
    chain = chain_of(3)
    machine = follower()
    give(machine, chain)
    effects = [effect for step in range(50) for effect in machine.take(T(3) + step * 10 * MS)]
    assert not [effect for effect in effects if isinstance(effect, Multicast)]
    assert not [packet for packet in packets(effects) if isinstance(packet, Receipt)]
