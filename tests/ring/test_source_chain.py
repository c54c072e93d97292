"""A source signs, once in a token period, for what is its own; and tells what is not (§6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from tests.ring.makers import EPOCH, S1, S2, START, Chain, T, arrive, following, message, packets, settings
from tests.ring.test_notary import WORLD, notary, receiver, signed_by
from tests.ring.test_source import publish

from isocast.ring.effects import ChainHeard, Effect, NameForged, OutboxFreed, Persist, PublishRejected
from isocast.ring.notary import Notary
from isocast.ring.receiver import Receiver
from isocast.ring.source import REPEATS_MAX, OutboxState, PrimarySource
from isocast.ring.source_chains import CHAINS_VERIFIED, SourceChains
from isocast.simulation.signatures import KeyedVerifier
from isocast.terms.ids import Epoch, NodeId, source_id
from isocast.wire.codec import decode, encode
from isocast.wire.packets import NO_DIGEST, Data, SourceChain, Token, chained, payload_digest
from isocast.wire.signing import SignedKind


def source(published: int = 0, state: OutboxState | None = None, signer: Notary | None = None) -> PrimarySource:
    machine = PrimarySource(S1, settings(), state, notary=signer or notary(S1))
    for number in range(1, published + 1):
        publish(machine, number)
    return machine


def hear(machine: PrimarySource, token: Token, now: int | None = None) -> tuple[Effect, ...]:
    signed = signed_by(token.sender, token)
    return machine.step(arrive(signed), token.instant if now is None else now)


def said(effects: tuple[Effect, ...]) -> list[SourceChain]:
    return [packet for packet in packets(effects) if isinstance(packet, SourceChain)]


def chain_of(*numbers: int) -> bytes:
    chain = NO_DIGEST
    for number in numbers:
        chain = chained(chain, payload_digest(message(number).payload))
    return chain


def test_what_a_token_acknowledges_is_signed_once() -> None:
    machine, chain = source(4), Chain()
    [first] = said(hear(machine, chain.add(message(1), message(2)).token))
    assert first[3:7] == (0, NO_DIGEST, 2, chain_of(1, 2))
    assert notary(3).is_genuine(first)
    [second] = said(hear(machine, chain.add(message(3)).token))
    assert second[3:7] == (2, first.digest, 3, chain_of(1, 2, 3))


def test_nothing_is_signed_for_messages_that_no_token_has_named() -> None:
    machine = source(2)
    assert said(hear(machine, Chain().add(message(1, S2)).token)) == []


def test_a_source_without_an_identity_signs_nothing() -> None:
    machine = source(1, signer=Notary(None, KeyedVerifier(WORLD)))
    assert said(hear(machine, Chain().add(message(1)).token)) == []


def test_the_newest_statement_is_said_again_ever_more_seldom() -> None:
    """Whoever was away when it came hears it again, and nobody has to ask for it."""
    machine, chain = source(1), Chain()
    hear(machine, chain.add(message(1)).token)
    again = [place for place in range(1, 80) if said(hear(machine, chain.add().token))]
    assert again[:5] == [2, 6, 14, 30, 46]
    assert {later - earlier for earlier, later in pairwise(again[3:])} == {REPEATS_MAX}


def test_a_restarted_source_goes_on_with_its_chain() -> None:
    machine, chain, state = source(), Chain(), OutboxState()
    for number in (1, 2):
        for effect in publish(machine, number):
            if isinstance(effect, Persist):
                state.apply(effect.record)
    tokens = [chain.add(message(1)).token, chain.add(message(2)).token, *[chain.add().token for _ in range(2)]]
    freed = [effect for token in tokens for effect in hear(machine, token) if isinstance(effect, Persist)]
    assert freed[:1] == [Persist(OutboxFreed(2, chain_of(1)))]
    state.apply(freed[0].record)
    again = source(state=state)
    publish(again, 3)
    [statement] = said(hear(again, chain.add(message(3)).token))
    assert statement[3:7] == (1, chain_of(1), 3, chain_of(1, 2, 3))


def test_a_restarted_source_says_where_its_chain_stands() -> None:
    """Its last statement may have been lost, and it may have nothing more to send."""
    machine, chain = source(state=OutboxState(next_number=3, chain=chain_of(1, 2))), Chain()
    [word] = said(hear(machine, chain.add().token))
    assert word[3:7] == (2, chain_of(1, 2), 2, chain_of(1, 2))
    assert notary(3).is_genuine(word)
    assert decode(encode(word)) == word


def test_what_an_old_token_acknowledges_is_signed_with_the_next() -> None:
    """Nothing more has to be sent for that."""
    machine, chain = source(1), Chain()
    tokens = [chain.add(message(1)).token, chain.add().token, chain.add().token]
    assert [said(hear(machine, tokens[place])) for place in (1, 0)] == [[], []]
    [word] = said(hear(machine, tokens[2]))
    assert word[3:7] == (0, NO_DIGEST, 1, chain_of(1))


def test_a_ring_that_is_cut_back_changes_no_link_of_the_chain() -> None:
    machine, chain = source(2), Chain()
    chain.grow(1)
    [first] = said(hear(machine, chain.add(message(1), message(2)).token))
    other = chain.fork()
    ring = following(chain)
    machine.step(arrive(notary(ring.sender).sign(ring)), T(9))
    publish(machine, 3)
    entered = other.enter(ring)
    [second] = said(hear(machine, entered.add(message(3)).token))
    assert (second.since, second.before, second.number) == (2, first.digest, 3)


# ---- what is not its own


def forged_names(effects: Sequence[Effect]) -> list[NameForged]:
    return [effect for effect in effects if isinstance(effect, NameForged)]


def forged(number: int) -> Data:
    return replace(message(number), payload=b"bought by somebody else")


def test_a_content_that_it_never_sent_is_told_and_ends_the_incarnation() -> None:
    """Once every member holds it: then it is in the sequence for good."""
    machine, chain = source(3), Chain()
    assert forged_names(hear(machine, chain.add(message(1), forged(2)).token)) == []
    heard = [hear(machine, chain.add(message(3)).token), *[hear(machine, chain.add().token) for _ in range(4)]]
    assert [one for effects in heard for one in forged_names(effects)] == [NameForged(S1, 1, 2, 1)]
    assert [one for effects in heard for one in said(effects)] == []
    [refusal] = publish(machine, 4)
    assert isinstance(refusal, PublishRejected)


def test_a_forged_content_is_not_taken_for_its_own() -> None:
    """It is neither signed for nor freed, whatever later tokens acknowledge behind it."""
    machine, chain = source(3), Chain()
    [word] = said(hear(machine, chain.add(message(1)).token))
    hear(machine, chain.add(forged(2)).token)
    hear(machine, chain.add(message(3)).token)
    assert (word.number, machine.snapshot().acknowledged) == (1, 2)


def test_a_forged_content_that_a_new_ring_cuts_off_is_forgotten() -> None:
    """One owner cannot end a source: what the ring does not keep never happened."""
    machine, chain = source(2), Chain()
    chain.grow(1)
    hear(machine, chain.entries[0].token)
    honest = chain.fork()
    ring = following(chain)
    hear(machine, chain.add(message(1), forged(2)).token)
    machine.step(arrive(notary(ring.sender).sign(ring)), T(9))
    entered = honest.enter(ring)
    heard = [hear(machine, entered.add(message(1), message(2)).token)]
    heard += [hear(machine, entered.add().token) for _ in range(4)]
    assert [one for effects in heard for one in forged_names(effects)] == []
    assert [one.number for one in said(heard[0])] == [2]
    assert machine.snapshot().base == 3


def test_a_forged_content_that_a_new_ring_keeps_ends_the_incarnation() -> None:
    machine, chain = source(2), Chain()
    hear(machine, chain.add(message(1), forged(2)).token)
    ring = following(chain)
    effects = machine.step(arrive(notary(ring.sender).sign(ring)), T(9))
    assert forged_names(effects) == [NameForged(S1, 1, 2, 1)]


@pytest.mark.parametrize("late", [False, True])
def test_a_token_that_its_owner_showed_to_the_source_alone_is_not_believed(late: bool) -> None:  # noqa: FBT001
    """The next token names another one before it."""
    machine, chain = source(2), Chain()
    lie = chain.fork().add(message(1), forged(2)).token
    tokens = [chain.add(message(1), message(2)).token, chain.add().token]
    heard = [hear(machine, token) for token in ((tokens[1], lie) if late else (lie, tokens[1]))]
    assert machine.notary.refused == {SignedKind.TOKEN: 1}
    publish(machine, 3)
    heard.append(hear(machine, chain.add(message(3)).token))
    heard += [hear(machine, chain.add().token) for _ in range(4)]
    assert [one for effects in heard for one in forged_names(effects)] == []
    assert machine.snapshot().acknowledged == 4


def test_what_is_its_own_is_not_told() -> None:
    machine, chain = source(3), Chain()
    for effects in [hear(machine, chain.add(message(number)).token) for number in (1, 2, 3)]:
        assert not [effect for effect in effects if isinstance(effect, NameForged)]


# ---- receivers


def statement(number: int = 1, sender: int = S1, since: int = 0) -> SourceChain:
    return SourceChain(0, EPOCH, sender, since, NO_DIGEST, number, chain_of(number))


def heard(machine: Receiver, *words: SourceChain) -> list[int]:
    """One in a token period."""
    for place, word in enumerate(words):
        machine.on_chain(word, T(place))
    return [effect.statement.number for effect in machine.take(START) if isinstance(effect, ChainHeard)]


def test_a_receiver_hands_on_what_a_source_signed_once() -> None:
    machine = receiver(2)
    word = notary(S1).sign(statement())
    assert heard(machine, word, word, notary(S1).sign(statement(2)), word) == [1, 2]
    assert machine.notary.refused == {}


@pytest.mark.parametrize("forger", [1, 3, S2])
def test_a_statement_that_its_source_did_not_sign_is_refused_and_counted(forger: int) -> None:
    machine = receiver(2)
    machine.on_chain(notary(forger).sign(statement()), START)
    machine.on_chain(statement(), START)
    assert not [effect for effect in machine.take(START) if isinstance(effect, ChainHeard)]
    assert machine.notary.refused == {SignedKind.SOURCE_CHAIN: 2}


def test_a_new_incarnation_begins_anew() -> None:
    machine = receiver(2)
    later = source_id(S1 >> 32, (S1 & 0xFFFFFFFF) + 1)
    words = [notary(S1).sign(statement(9)), notary(later).sign(statement(1, later)), notary(S1).sign(statement(10))]
    assert heard(machine, *words) == [9, 1]


class CountingVerifier(KeyedVerifier):
    """Counts what it is asked."""

    asked = 0

    def is_from(self, node: NodeId, kind: SignedKind, stripe: int, epoch: Epoch, body: bytes, signature: bytes) -> bool:
        self.asked += 1
        return super().is_from(node, kind, stripe, epoch, body, signature)


def test_a_flood_of_forged_statements_costs_few_verifications() -> None:
    """Whoever holds the tag key can send them; what was not verified is counted like what is false."""
    verifier = CountingVerifier(WORLD)
    judge = Notary(None, verifier)
    chains = SourceChains(judge, 100)
    forged_one = notary(3).sign(statement())
    assert not any(chains.is_news(forged_one._replace(number=number), 500) for number in range(1, 1_000))
    assert (verifier.asked, judge.refused) == (CHAINS_VERIFIED, {SignedKind.SOURCE_CHAIN: 999})
    genuine = notary(S1).sign(statement(7))
    assert not chains.is_news(genuine, 574)
    assert chains.is_news(genuine, 575)
    assert not chains.is_news(genuine, 700)
    assert verifier.asked == CHAINS_VERIFIED + 1


def test_many_sources_take_a_twentieth_of_a_processor() -> None:
    """A verification takes some 125 µs; a source that is passed over is heard with its next statement."""
    period_ns, count = 10_000_000, 20
    verifier = CountingVerifier(WORLD)
    chains = SourceChains(Notary(None, verifier), period_ns)
    sources = [source_id(number, 1) for number in range(1, count + 1)]
    newest: dict[NodeId, int] = {}
    for period in range(1, 101):
        for each in sources:
            word = statement(period, each)
            if chains.is_news(notary(each).sign(word), period * period_ns):
                newest[each] = period
    assert verifier.asked * 125_000 <= 100 * period_ns / 20 + count * 125_000
    assert set(newest) == set(sources)
    assert min(newest.values()) > 100 - count * 125_000 * 20 // period_ns - 1


def test_no_source_waits_longer_than_it_repeats_its_newest() -> None:
    chains = SourceChains(Notary(None, KeyedVerifier(WORLD)), 1_000)
    for number in range(1, 100):
        each = source_id(number, 1)
        assert chains.is_news(notary(each).sign(statement(1, each)), 0)
    assert not chains.is_news(notary(S1).sign(statement(2)), REPEATS_MAX * 1_000 - 1)
    assert chains.is_news(notary(S1).sign(statement(2)), REPEATS_MAX * 1_000)
