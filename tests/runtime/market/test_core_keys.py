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


def test_core_keys_show_fingerprints_and_are_not_copied() -> None:
    assert OLD.fingerprint in repr(CoreKeys(OLD))
    with pytest.raises(TypeError):
        copy.deepcopy(CoreKeys(OLD))
