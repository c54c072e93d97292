"""What an observer's memories of the nodes prove."""

from __future__ import annotations

from isocast.simulation.exploration.node import Memory
from isocast.simulation.exploration.properties import AGREEMENT, CERTIFIED, Bounds, Properties
from isocast.terms.ids import Epoch, server_id

FIRST, SECOND = Epoch(1, server_id(1)), Epoch(2, server_id(1))
CHAIN = {b"one": b"zero", b"two": b"one", b"other": b"zero"}


def verdict(*memories: Memory, stories_only: bool = False) -> str | None:
    properties = Properties(Bounds(), CHAIN, stories_only=stories_only)
    broken = properties.broken(tuple([properties.number(memory) for memory in memories]))
    return None if broken is None else broken[0]


def told(*labels: str) -> Memory:
    return Memory(journals=(labels,))


def held(number: int, digest: bytes) -> Memory:
    return Memory(holdings=((FIRST, number, digest),))


def decided(cut: int, digest: bytes) -> Memory:
    return Memory(rings=((SECOND, FIRST, cut, digest),))


def test_a_shorter_story_is_no_other_story() -> None:
    assert verdict(told("a", "b"), told("a"), told()) is None


def test_two_messages_under_one_number_are_two_stories() -> None:
    assert verdict(told("a", "b"), told("a"), told("a", "c")) == AGREEMENT


def test_what_a_site_told_before_it_lost_its_disk_counts() -> None:
    assert verdict(Memory(journals=(("a",), ())), told("b")) == AGREEMENT


def test_a_ring_keeps_what_a_majority_held() -> None:
    assert verdict(held(2, b"two"), held(1, b"one"), held(0, b"zero"), decided(1, b"one")) is None
    assert verdict(held(2, b"two"), held(1, b"one"), held(0, b"zero"), decided(2, b"two")) is None


def test_a_ring_that_is_too_short_is_reported() -> None:
    assert verdict(held(1, b"one"), held(1, b"one"), held(0, b"zero"), decided(0, b"zero")) == CERTIFIED


def test_a_ring_with_another_token_of_that_number_is_reported() -> None:
    assert verdict(held(1, b"one"), held(2, b"two"), held(0, b"zero"), decided(1, b"other")) == CERTIFIED


def test_what_a_minority_held_may_go() -> None:
    assert verdict(held(1, b"one"), held(0, b"zero"), held(0, b"zero"), decided(0, b"zero")) is None


def test_a_flaw_of_one_node_is_reported() -> None:
    flawed = Memory(flaw=("promises only rise", "site1 went back"))
    assert verdict(flawed, told()) == "promises only rise"
    assert verdict(flawed, told(), stories_only=True) is None
