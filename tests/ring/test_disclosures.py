"""Keys that sources disclose (§6): whom a source believes before it shows one, and what makes a message count."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ring.makers import (
    EPOCH,
    PERIOD,
    RETRY,
    S1,
    S2,
    START,
    TIMING,
    Chain,
    T,
    arrive,
    blank,
    following,
    founding,
    ledger_of,
    message,
    packets,
    receipt,
    secret,
    settings,
)

from isocast.ring.disclosures import CHAIN_LENGTH, NO_LINK, Discloser, DisclosureBook, chain_of, link_before, links
from isocast.ring.effects import OutboxFreed, Persist
from isocast.ring.inputs import PublishRequested
from isocast.ring.notary import Notary
from isocast.ring.receiver import Receiver
from isocast.ring.settings import RingSettings
from isocast.ring.source import PrimarySource
from isocast.terms.ids import NodeId
from isocast.terms.instants import NEVER
from isocast.wire.limits import MAX_LINKS
from isocast.wire.packets import (
    ControlEntry,
    ControlKind,
    Data,
    Disclose,
    Disclosure,
    Grant,
    NextNumber,
    Packet,
    Receipt,
    Standing,
)
from isocast.wire.signing import SignedKind

TOKENS = 2
SHOWS = PERIOD
"""From T_t until a link may be shown: V·τ_t-(δ_N+2ε+k_r·τ_r)."""
TIMES = replace(TIMING, reveal_tokens=TOKENS, release_delay_ns=0)
RULES: RingSettings = replace(settings(), timing=TIMES)
FORGED = b"\7" * 32


class Keys:
    """A source's chain of which the tests know every link."""

    def __init__(self, seed: bytes = b"seed") -> None:
        last = Disclosure(S1, CHAIN_LENGTH, blake2b(seed, digest_size=32).digest())
        self.all = links(last, 1)

    def links(self, first: int, last: int) -> list[tuple[int, bytes]]:
        return [(last, self.all[last])] if first <= last else []


KEYS = Keys()


def link(number: int) -> bytes:
    return KEYS.all[number]


def commitment(key: bytes) -> bytes:
    return blake2b(key, digest_size=16).digest()


def fits(_: tuple[NodeId, int], key: bytes, sealed: bytes) -> bool:
    return commitment(key) == sealed


def sealed(number: int, source: NodeId = S1, keys: Keys = KEYS) -> Data:
    return replace(message(number, source), payload=commitment(keys.all[number]))


def shown(number: int, key: bytes | None = None) -> Disclosure:
    return Disclosure(S1, number, link(number) if key is None else key)


# The chain


def test_a_link_leads_back_to_the_beginning_of_its_chain_and_no_further() -> None:
    walk = links(shown(5), 2)
    assert walk == {number: link(number) for number in (2, 3, 4, 5)}
    assert [chain_of(number) for number in (1, CHAIN_LENGTH, CHAIN_LENGTH + 1)] == [0, 0, 1]
    assert list(links(Disclosure(S1, CHAIN_LENGTH + 2, FORGED), 1)) == [CHAIN_LENGTH + 2, CHAIN_LENGTH + 1]
    assert link_before(link(5)) == link(4)


# What a source shows


def discloser(chain: Chain | None = None) -> Discloser:
    """Of a source that knows the ring, and has seen the tokens of a chain."""
    machine = Discloser(S1, TIMES, KEYS)
    machine.entered(founding())
    for entry in chain.entries if chain else ():
        machine.on_token(entry.token)
    return machine


def two_tokens() -> Chain:
    """Token 1 acknowledges messages 1 and 2, token 2 message 3."""
    chain = Chain()
    chain.add(sealed(1), sealed(2))
    chain.add(sealed(3))
    return chain


LATER = T(1) + SHOWS


def test_a_key_is_shown_when_a_majority_has_receipted_its_token_and_no_earlier_than_it_must() -> None:
    chain = two_tokens()
    machine = discloser(chain)
    assert machine.due(NEVER - 1) == (), "nobody has receipted anything"
    machine.on_receipt(receipt(1, chain, 1))
    machine.on_receipt(receipt(1, chain, 1))
    assert machine.due(LATER) == ()
    machine.on_receipt(receipt(3, chain, 1))
    assert machine.due(LATER - 1) == ()
    assert machine.next_deadline() == LATER
    assert machine.due(LATER) == ((2, link(2)),)
    machine.on_receipt(receipt(2, chain))
    machine.on_receipt(receipt(3, chain))
    assert machine.due(LATER + PERIOD) == ((3, link(3)),)


def test_a_receipt_for_a_token_is_one_for_all_before_it() -> None:
    chain = two_tokens()
    machine = discloser(chain)
    machine.on_receipt(receipt(1, chain, 1))
    machine.on_receipt(receipt(2, chain, 2))
    assert machine.due(NEVER - 1) == ((2, link(2)),)


@pytest.mark.parametrize("site", [4, S2])
def test_who_is_not_of_u_certifies_nothing(site: NodeId) -> None:
    chain = two_tokens()
    machine = discloser(chain)
    machine.on_receipt(receipt(1, chain))
    machine.on_receipt(receipt(site, chain))
    assert machine.due(NEVER - 1) == ()


def test_receipts_for_another_log_certify_nothing() -> None:
    chain, other = two_tokens(), Chain()
    other.add(sealed(1), sealed(2), sealed(3))
    machine = discloser(other)
    for site in (1, 2, 3):
        machine.on_receipt(receipt(site, chain, 1))
    assert machine.due(NEVER - 1) == ()


def test_a_token_that_nobody_receipts_opens_nothing_however_many_messages_it_claims() -> None:
    """An owner that wants to read early signs what no other site would take."""
    chain = Chain()
    chain.add(sealed(1))
    lie = chain.fork()
    lie.head.next_number[S1] = 9
    claim = lie.add(sealed(9))
    machine = discloser(chain)
    machine.on_token(claim.token)
    for site in (1, 2, 3):
        machine.on_receipt(receipt(site, chain, 1))
    assert machine.due(NEVER - 1) == ((1, link(1)),)


def test_a_liar_that_signs_and_receipts_without_end_displaces_nobody_else() -> None:
    chain = two_tokens()
    machine = discloser()
    for number in range(1, 400):
        fake = replace(chain.entries[0].token, token_number=number, sender=3, prev_digest=FORGED)
        machine.on_token(fake)
        machine.on_receipt(Receipt(0, EPOCH, 3, number, FORGED))
    for entry in chain.entries:
        machine.on_token(entry.token)
    machine.on_receipt(receipt(1, chain))
    machine.on_receipt(receipt(2, chain))
    assert machine.due(NEVER - 1) == ((3, link(3)),)


def test_a_source_that_missed_a_token_learns_from_the_next_one() -> None:
    """Whatever lies below a run is in tokens before it, once a majority has taken that token."""
    chain = two_tokens()
    machine = discloser()
    machine.on_token(chain.entries[1].token)
    machine.on_receipt(receipt(1, chain, 1))
    machine.on_receipt(receipt(2, chain, 1))
    assert machine.due(NEVER - 1) == ()
    machine.on_receipt(receipt(1, chain, 2))
    machine.on_receipt(receipt(2, chain, 2))
    assert machine.due(LATER) == ((2, link(2)),)
    assert machine.due(LATER + PERIOD) == ((3, link(3)),)


def test_a_token_that_is_sent_again_counts_by_the_receipts_for_one_behind_it() -> None:
    chain = Chain()
    chain.add(sealed(1))
    chain.add()
    machine = discloser()
    machine.on_token(chain.entries[1].token)
    machine.on_receipt(receipt(1, chain))
    machine.on_receipt(receipt(2, chain))
    assert machine.due(NEVER - 1) == ()
    machine.on_token(chain.entries[0].token)
    assert machine.due(NEVER - 1) == ((1, link(1)),)


def test_keys_are_shown_again_until_a_token_carries_them() -> None:
    chain = two_tokens()
    machine = discloser(chain)
    for site in (1, 2):
        machine.on_receipt(receipt(site, chain, 1))
    assert machine.due(LATER) == ((2, link(2)),)
    assert machine.due(LATER + RETRY - 1) == ()
    assert machine.due(LATER + RETRY) == ((2, link(2)),)
    lie = chain.fork()
    machine.on_token(lie.add(disclosures=(shown(2, FORGED), shown(900, FORGED))).token)
    assert machine.due(LATER + 2 * RETRY) == ((2, link(2)),), "not its links"
    machine.on_token(chain.add(disclosures=(shown(2),)).token)
    assert machine.due(LATER + 3 * RETRY) == ()


def test_what_a_reformation_cuts_off_is_shown_again_under_receipts_of_the_new_epoch() -> None:
    chain = Chain()
    chain.add(sealed(1))
    machine = discloser(chain)
    machine.on_receipt(receipt(1, chain))
    machine.on_receipt(receipt(2, chain))
    carrying = chain.fork()
    machine.on_token(carrying.add(disclosures=(shown(1),)).token)
    assert machine.due(NEVER - 1) == ()
    machine.entered(following(chain))
    assert machine.due(NEVER - 1) == ((1, link(1)),), "it was certified, for good"
    again = chain.fork()
    machine.on_token(again.add(disclosures=(shown(1),), grants=(Grant(S1, 1),)).token, is_old=True)
    machine.learn(following(chain))
    assert machine.due(NEVER) == ((1, link(1)),), "nobody has receipted what comes late from before the cut"


def test_receipts_of_two_epochs_are_not_added_up() -> None:
    chain = Chain()
    chain.add(sealed(1))
    machine = discloser(chain)
    machine.on_receipt(receipt(1, chain))
    ring = following(chain)
    machine.entered(ring)
    later = chain.enter(ring)
    machine.on_receipt(receipt(2, later))
    assert machine.due(NEVER - 1) == ()
    machine.on_receipt(receipt(3, later))
    assert machine.due(NEVER - 1) == ((1, link(1)),)


def test_nothing_is_shown_before_it_is_known_who_certifies() -> None:
    chain = two_tokens()
    machine = Discloser(S1, TIMES, KEYS)
    machine.entered(None)
    for entry in chain.entries:
        machine.on_token(entry.token)
    for site in (1, 2, 3):
        machine.on_receipt(receipt(site, chain, 1))
    assert machine.due(NEVER - 1) == ()
    machine.learn(founding())
    assert machine.due(NEVER - 1) == ((2, link(2)),)


def test_a_site_that_joins_u_counts_from_its_token_on() -> None:
    chain = Chain()
    chain.add(control=(ControlEntry(ControlKind.ADD_SITE, 4, b""),))
    chain.add(sealed(1))
    machine = discloser(chain)
    for site in (1, 2):
        machine.on_receipt(receipt(site, chain))
    assert machine.due(NEVER - 1) == (), "two of four"
    machine.on_receipt(receipt(4, chain))
    assert machine.due(NEVER - 1) == ((1, link(1)),)


def test_what_v_tokens_did_not_carry_is_void_and_no_longer_shown() -> None:
    chain = two_tokens()
    chain.add()
    machine = discloser(chain)
    for site in (1, 2):
        machine.on_receipt(receipt(site, chain, 2))
    assert machine.settled == 1
    for site in (1, 2):
        machine.on_receipt(receipt(site, chain, 3))
    assert machine.settled == 3
    assert machine.due(NEVER - 1) == ((3, link(3)),)


# The source's machine


def source(published: int = 2) -> PrimarySource:
    """A source that has sent messages, whose payloads commit to its links, and knows the ring."""

    def seal(_: int, label: tuple[NodeId, int], __: bytes) -> bytes:
        return commitment(link(label[1]))

    machine = PrimarySource(S1, RULES, None, seal, None, KEYS)
    machine.step(arrive(founding()), 0)
    for number in range(1, published + 1):
        machine.step(PublishRequested(f"key {number}".encode(), b"payload"), 0)
    return machine


def disclosed(machine: PrimarySource, now: int, *burst: object) -> list[tuple[tuple[int, bytes], ...]]:
    found = packets(machine.step(arrive(*burst), now))  # type: ignore[arg-type]
    return [packet.links for packet in found if isinstance(packet, Disclose)]


def test_a_source_asks_for_the_ring_until_it_knows_it() -> None:
    machine = PrimarySource(S1, RULES, None, None, None, KEYS)
    assert disclosed(machine, 0) == [()]
    assert disclosed(machine, RETRY - 1) == []
    assert machine.next_deadline() == RETRY
    assert disclosed(machine, RETRY) == [()]
    assert disclosed(machine, RETRY + 1, founding()) == []
    assert disclosed(machine, 9 * RETRY) == []


def test_no_single_receiver_makes_a_source_disclose() -> None:
    """What a STANDING says, or a vote that a NEWRING repeats, is the word of one."""
    machine, chain = source(), Chain()
    chain.add()
    told = [receipt(site, chain) for site in (1, 2, 3)]
    assert disclosed(machine, START, chain.entries[0].token, *told, Standing(0, EPOCH, 2, S1, 3, 1)) == []
    ring = following(chain)._replace(next_numbers=(NextNumber(S1, 3),))
    later = chain.enter(ring)
    assert disclosed(machine, NEVER // 2, ring, *[receipt(site, later) for site in (1, 2, 3)]) == []
    acknowledging = later.add(sealed(1), sealed(2))
    told = [receipt(site, later) for site in (1, 2, 3)]
    assert disclosed(machine, NEVER // 2, acknowledging.token, *told) == [((2, link(2)),)]


def test_an_outbox_keeps_what_is_stable_until_its_key_is_settled() -> None:
    machine, chain = source(), Chain()
    chain.add(sealed(1), sealed(2))
    chain.grow(2)
    stable = replace(chain.entries[2].token, stable=1)
    burst: list[Packet] = [
        chain.entries[0].token,
        chain.entries[1].token,
        stable,
        *[receipt(site, chain, 2) for site in (1, 2)],
    ]
    assert not [effect for effect in machine.step(arrive(*burst), START) if isinstance(effect, Persist)]
    carrying = Chain()
    carrying.add(sealed(1), sealed(2))
    carrying.grow(1)
    carrying.add(disclosures=(shown(2),))
    carrying.add()
    told = [receipt(site, carrying) for site in (1, 2)]
    machine.step(arrive(*[entry.token for entry in carrying.entries], *told), START)
    carrying.add()
    effects = machine.step(arrive(replace(carrying.entries[4].token, stable=1)), START)
    assert Persist(OutboxFreed(3)) in effects


class _Anybody:
    """Takes every signature."""

    def is_from(self, *_: object) -> bool:
        return True

    def is_order(self, *_: object, **__: object) -> bool:
        return True


def test_a_ring_is_believed_of_the_server_of_its_ballot_alone() -> None:
    notary = Notary(None, _Anybody())
    machine = PrimarySource(S1, RULES, None, None, notary, KEYS)
    ring = founding()._replace(signature=b"signed")
    machine.step(arrive(ring._replace(sender=2)), 0)
    assert (machine.snapshot().epoch, notary.refused) == ((0, 0), {SignedKind.NEWRING: 1})
    machine.step(arrive(ring), 0)
    assert machine.snapshot().epoch == EPOCH


# What a receiver keeps, carries and opens


def book(chain: Chain, tokens: int = TOKENS) -> DisclosureBook:
    return DisclosureBook(ledger_of(chain), tokens, fits)


def disclose(*shown: tuple[int, bytes], sender: NodeId = S1) -> Disclose:
    return Disclose(0, EPOCH, sender, shown)


def test_an_owner_carries_the_fewest_links_that_open_what_it_can_still_make_count() -> None:
    chain = two_tokens()
    machine = book(chain)
    assert machine.due(3) == ()
    machine.hear(disclose((1, link(1))))
    machine.hear(disclose((2, link(2)), (3, link(3))))
    assert machine.due(3) == (shown(3),)
    chain.add(disclosures=(shown(3),))
    machine = book(chain)
    machine.hear(disclose((2, link(2)), (3, link(3))))
    assert machine.due(4) == (), "a token carries it, and message 2 is void or opened"


def test_a_forged_link_takes_nobodys_place() -> None:
    machine = book(two_tokens())
    machine.hear(disclose((2, link(2))))
    machine.hear(disclose((2, FORGED), (3, FORGED)))
    assert (machine.due(3), machine.refused) == ((shown(2),), 2)


def test_an_owner_that_lies_about_a_key_keeps_no_other_owner_from_carrying_it() -> None:
    chain = two_tokens()
    chain.add(disclosures=(shown(3, FORGED),))
    machine = book(chain)
    machine.hear(disclose((3, link(3))))
    assert machine.due(4) == (shown(3),)


def test_a_link_may_come_before_its_message() -> None:
    chain = Chain()
    chain.add(sealed(1))
    machine = book(chain)
    machine.hear(disclose((2, FORGED)))
    machine.hear(disclose((2, link(2))))
    assert machine.due(2) == ()
    ledger = machine._ledger  # noqa: SLF001
    ledger.append(chain.add(sealed(2)))
    assert (machine.due(3), machine.refused) == ((shown(2),), 1)


def test_a_link_of_another_chain_is_carried_beside() -> None:
    """A source that started again hangs new messages on a chain of its own."""
    again, chain = Keys(b"another start"), Chain()
    chain.add(sealed(1), sealed(2, keys=again))
    machine = book(chain)
    machine.hear(disclose((1, link(1)), (2, again.all[2])))
    assert machine.due(2) == (shown(1), shown(2, again.all[2]))
    entry = chain.entries[0]
    chain.add(disclosures=(shown(1), shown(2, again.all[2])))
    chain.add()
    assert book(chain).links_of(entry, entry.messages) == (link(1), again.all[2])


@given(st.lists(st.tuples(st.integers(0, 1 << 64), st.binary(max_size=40)), max_size=200))
def test_no_flood_makes_a_book_grow_or_fail(flood: list[tuple[int, bytes]]) -> None:
    machine = book(two_tokens())
    machine.hear(disclose((3, link(3))))
    for one in flood:
        machine.hear(disclose(one))
    assert len(machine._early.get(S1, {})) <= 64  # noqa: SLF001
    assert machine.due(3) == (shown(3),)


@pytest.mark.parametrize("place", [1, 2, 3])
def test_a_message_counts_if_one_of_the_next_v_tokens_opens_it(place: int) -> None:
    chain = two_tokens()
    entry = chain.entries[0]
    if place == 1:
        chain = Chain()
        entry = chain.add(sealed(1), sealed(2))
    for _ in range(place - 2):
        chain.add()
    chain.add(disclosures=(shown(2),))
    chain.grow(2)
    expected = (link(1), link(2)) if place <= TOKENS else (NO_LINK, NO_LINK)
    assert book(chain).links_of(entry, entry.messages) == expected
    assert book(chain).links_of(entry, entry.messages[1:]) == expected[1:]


@pytest.mark.parametrize(
    "lie", [shown(2, FORGED), shown(3), shown(9, FORGED), Disclosure(S2, 2, link(2))], ids=["key", "name", "far", "who"]
)
def test_a_link_that_does_not_open_the_message_that_it_names_opens_nothing(lie: Disclosure) -> None:
    """Message 3 is not in the log before the token that names it: nobody walks from there."""
    chain = Chain()
    entry = chain.add(sealed(1), sealed(2))
    chain.add(disclosures=(lie,))
    chain.grow(2)
    assert book(chain).links_of(entry, entry.messages) == (NO_LINK, NO_LINK)


def test_a_token_names_at_most_so_many_links_of_a_source() -> None:
    keys = [Keys(str(number).encode()) for number in range(MAX_LINKS + 2)]
    chain = Chain()
    chain.add(*[sealed(place + 1, keys=one) for place, one in enumerate(keys)])
    machine = book(chain)
    for place, one in enumerate(keys):
        machine.hear(disclose((place + 1, one.all[place + 1])))
    assert [one.number for one in machine.due(2)] == list(range(3, MAX_LINKS + 3))


# The receiver's machine


def site(number: NodeId, chain: Chain, *, discloses: bool = True) -> Receiver:
    rules = RULES if discloses else settings()
    machine = Receiver(number, rules, secret(number), blank(), None, fits if discloses else None)
    machine.install(chain.ring, 0, tuple(chain.entries), chain.entries[-1].token.instant)
    machine.take(chain.entries[-1].token.instant)
    return machine


def sent(machine: Receiver, packet: Data | Disclose, now: int) -> list[object]:
    machine.on_event(packet, now)
    return list(packets(machine.take(now)))


def test_a_source_that_asks_is_told_of_the_ring() -> None:
    chain = two_tokens()
    asks = Disclose(0, EPOCH._replace(number=0), S1, ())
    assert founding() in sent(site(2, chain), asks, T(2))
    assert sent(site(2, chain, discloses=False), asks, T(2)) == []


def test_a_source_that_missed_tokens_is_sent_those_that_lead_to_the_newest() -> None:
    chain = two_tokens()
    again = sent(site(2, chain), sealed(1), T(2))
    assert again == [chain.entries[0].token, chain.entries[1].token, Standing(0, EPOCH, 2, S1, 4, 2)]
    assert sent(site(2, chain, discloses=False), sealed(1), T(2)) == [chain.entries[0].token]
