"""Changing over to another core key: who is heard when, and by which key a node speaks."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import pytest
from tests.wire.samples import SAMPLES

from isocast.runtime.market.core_keys import FORMER_S, CoreKeys
from isocast.runtime.net.channels import Reception
from isocast.runtime.watch.counters import Channel, NodeCounters
from isocast.security.keys import CoreKeyring, SecretKey
from isocast.security.sealing import Opener, Sealer
from isocast.terms.errors import ForgeryError
from isocast.terms.ids import Label
from isocast.wire.codec import encode
from isocast.wire.frame import PacketKind

OLD, NEW, NEWEST = (SecretKey(bytes([number]) * 32) for number in (1, 2, 3))
NACK = SAMPLES[PacketKind.NACK]
MARKET = bytes(4)


class Node:
    """One that hears and speaks, at an instant."""

    def __init__(self, current: SecretKey = OLD, former: SecretKey | None = None) -> None:
        self.now = 1_000.0
        self.keys = CoreKeys(current, former, lambda: self.now)
        self.ring = self.keys.ring((NACK.sender,), {})
        self.counters = NodeCounters()
        self._reception = Reception(
            Channel.CONTROL, NACK.stripe, NACK.sender + 1, (PacketKind.NACK,), self.ring, self.counters, MARKET
        )

    def hears(self, key: SecretKey) -> bool:
        frame = encode(NACK, CoreKeyring(key, (NACK.sender,), {}), MARKET)
        return self._reception.packets([frame]) == [NACK]

    @property
    def speaks(self) -> SecretKey:
        said = encode(NACK, self.ring, MARKET)
        keys: Sequence[SecretKey] = (OLD, NEW, NEWEST)
        return next(key for key in keys if said == encode(NACK, CoreKeyring(key, (NACK.sender,), {}), MARKET))


def test_without_another_key_one_counts() -> None:
    node = Node()
    assert node.hears(OLD)
    assert not node.hears(NEW)
    assert node.counters.authentication_failures == 1
    assert (node.speaks, node.keys.newest) == (OLD, OLD)


def test_a_node_that_knows_the_roster_hears_both_and_speaks_as_before() -> None:
    node = Node()
    assert node.keys.expect(NEW)
    assert not node.keys.expect(NEW), "it is no news"
    assert node.speaks == OLD
    assert node.keys.newest == NEW
    node.now += 100 * FORMER_S
    assert node.hears(OLD)
    assert node.speaks == OLD
    assert not node.hears(NEWEST)


@pytest.mark.parametrize("by_others", [False, True])
def test_it_turns_when_the_roster_is_in_force_or_others_have_turned(by_others: bool) -> None:  # noqa: FBT001
    node = Node()
    node.keys.expect(NEW)
    if by_others:
        assert node.hears(NEW)
    else:
        node.keys.turn()
    assert node.speaks == NEW
    assert node.hears(NEW)
    assert node.hears(OLD), "what is under way, and whoever has yet to turn"
    assert node.speaks == NEW, "nobody turns back"
    node.now += FORMER_S
    assert not node.hears(OLD)
    assert node.hears(NEW)
    assert node.counters.authentication_failures == 1


def test_a_node_that_starts_anew_speaks_by_the_newest_and_hears_the_one_before_for_a_while() -> None:
    node = Node(NEW, OLD)
    assert node.speaks == NEW
    assert node.hears(OLD)
    assert node.speaks == NEW
    node.now += FORMER_S
    assert not node.hears(OLD)


def test_two_rosters_at_once_leave_nobody_unheard_who_has_the_first() -> None:
    node = Node()
    node.keys.expect(NEW)
    node.keys.expect(NEWEST)
    assert (node.speaks, node.keys.newest) == (NEW, NEWEST)
    assert node.hears(NEWEST)
    assert node.hears(NEW)
    assert node.speaks == NEWEST


# ---- the tag keys of sources follow the core key


DATA = SAMPLES[PacketKind.DATA]
NUMBER = DATA.sender >> 32
FLOOR = SecretKey(bytes([9]) * 32)


class Receiver:
    """Hears one source; began with the core key OLD."""

    def __init__(self, current: SecretKey = OLD, former: SecretKey | None = None) -> None:
        self.now = 1_000.0
        self.keys = CoreKeys(current, former, lambda: self.now, first=OLD)
        self.ring = self.keys.ring((), {NUMBER: FLOOR})
        self.counters = NodeCounters()
        self._reception = Reception(
            Channel.DATA, DATA.stripe, DATA.sender + 1, (PacketKind.DATA,), self.ring, self.counters, MARKET
        )

    def hears(self, generation: SecretKey | None, key: SecretKey = FLOOR) -> bool:
        frame = encode(DATA, CoreKeyring(None, (), {NUMBER: key}, generation), MARKET)
        return self._reception.packets([frame]) == [DATA]


def test_a_market_whose_rosters_brought_no_core_key_knows_sources_by_their_own_keys() -> None:
    here = Receiver()
    assert here.hears(None)
    assert not here.hears(OLD)
    assert not here.hears(NEW)


def test_a_source_that_has_turned_and_one_that_has_not_are_heard_while_the_market_changes_over() -> None:
    here = Receiver()
    here.keys.expect(NEW)
    assert here.hears(None), "it has not turned"
    assert here.hears(NEW), "it has, and so does this node"
    assert here.keys.current == NEW
    assert here.hears(None), "under way"
    here.now += FORMER_S
    assert here.hears(NEW)
    assert not here.hears(None)
    assert here.counters.authentication_failures == 1


def test_a_receiver_that_was_removed_and_kept_the_sources_keys_tags_nothing_any_more() -> None:
    """It has the source's key and every core key but the newest."""
    here = Receiver(NEWEST, NEW)
    assert here.hears(NEW), "for a while"
    here.now += FORMER_S
    assert not any(here.hears(generation) for generation in (None, OLD, NEW))
    assert here.hears(NEWEST)


def test_the_newest_core_key_alone_makes_no_sources_tag() -> None:
    here = Receiver(NEWEST)
    assert not here.hears(NEWEST, key=OLD)
    assert not here.hears(NEWEST, key=NEWEST)


def test_what_a_source_says_after_it_turned_is_of_the_new_generation() -> None:
    source = Receiver()
    before = encode(DATA, source.ring, MARKET)
    source.keys.expect(NEW)
    assert encode(DATA, source.ring, MARKET) == before
    source.keys.turn()
    assert encode(DATA, source.ring, MARKET) == encode(DATA, CoreKeyring(None, (), {NUMBER: FLOOR}, NEW), MARKET)


# ---- the seals of sources' payloads follow too


LABEL = Label(DATA.sender, 1)


def seal_of(keys: CoreKeys) -> bytes:
    return Sealer(FLOOR, NUMBER, bytes(16), keys.seals).seal(0, LABEL, b"a secret")


def opens(keys: CoreKeys, sealed: bytes) -> bool:
    opener = Opener({NUMBER: FLOOR}, keys.seals)
    try:
        return opener.knows(0, LABEL, sealed) and opener.open(0, LABEL, sealed).payload == b"a secret"
    except ForgeryError:
        return False


def test_while_the_market_changes_over_everybody_opens_both_and_each_seals_by_what_it_speaks_by() -> None:
    source, receiver, removed = (CoreKeys(OLD, first=OLD) for _ in range(3))
    before = seal_of(source)
    source.expect(NEW)
    receiver.expect(NEW)
    assert seal_of(source) == before, "it has not turned"
    source.turn()
    assert opens(receiver, seal_of(source)), "who has turned is understood by who has not"
    receiver.turn()
    assert opens(receiver, before)
    assert opens(removed, before)
    assert not opens(removed, seal_of(source))


def test_what_a_source_sends_again_opens_however_long_it_was_away() -> None:
    clock = [0.0]
    away = seal_of(CoreKeys(NEW, first=OLD))
    receiver = CoreKeys(NEW, None, lambda: clock[0], first=OLD)
    receiver.expect(NEWEST, (NEW,))
    receiver.turn()
    clock[0] += 2 * FORMER_S
    assert receiver.other() is None, "nobody speaks by it any more"
    assert opens(receiver, away)
    assert opens(receiver, seal_of(CoreKeys(OLD, first=OLD)))


def test_a_receiver_that_starts_or_is_new_opens_by_what_its_roster_hands_on() -> None:
    away = seal_of(CoreKeys(NEW, first=OLD))
    assert opens(CoreKeys(NEWEST, NEW, handed_on=(NEW,)), away)
    assert not opens(CoreKeys(NEWEST), away)


def test_core_keys_show_fingerprints_and_are_not_copied() -> None:
    assert OLD.fingerprint in repr(CoreKeys(OLD))
    with pytest.raises(TypeError):
        copy.deepcopy(CoreKeys(OLD))
