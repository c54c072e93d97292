"""A source's window finds what the ring carries, stays there, and is shared fairly; all in rounds of one token."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import pytest

from isocast.ring.source import FIRST_WINDOW, LEAST_WINDOW, SendWindow

MOST = 8_192


@dataclass
class FullRing:
    """Takes so many messages in a token, first come first served; what is beyond costs it work, so that it takes less.

    With a slope of 0.08 five times too much brings seven tenths of the most, as was measured over real sockets.
    """

    capacity: int
    slope: float = 0.08
    carried: list[float] = field(default_factory=list)

    def token(self, windows: Sequence[SendWindow]) -> None:
        offered = sum(window.size for window in windows)
        excess = max(offered / self.capacity - 1, 0)
        taken = min(offered, self.capacity * max(1 - self.slope * excess, 0.2))
        for window in windows:
            acknowledged = int(window.size * taken / offered)
            window.token(acknowledged, limited=True, overloaded=excess > 2)
        self.carried.append(taken)


def run(ring: FullRing, windows: Sequence[SendWindow], tokens: int) -> float:
    """The share of what the ring can carry that it carried, in the second half."""
    for _ in range(tokens):
        ring.token(windows)
    second = ring.carried[tokens // 2 :]
    return sum(second) / len(second) / ring.capacity


@pytest.mark.parametrize("capacity", [100, 700, 2_000, 6_000, 20_000])
def test_a_window_reaches_what_the_ring_carries(capacity: int) -> None:
    """Too small a window starves, too large a one collapses; a fixed one is one of them somewhere."""
    assert run(FullRing(capacity), [SendWindow(MOST)], 100) >= 0.85 * min(1, MOST / capacity)


def test_it_is_there_within_ten_tokens() -> None:
    ring, window = FullRing(4_000), SendWindow(MOST)
    for _ in range(10):
        ring.token([window])
    assert 3_000 <= window.size <= 8_000


@pytest.mark.parametrize("sources", [2, 3, 7])
def test_several_sources_do_not_push_each_other_into_collapse(sources: int) -> None:
    assert run(FullRing(3_000), [SendWindow(MOST) for _ in range(sources)], 300) >= 0.85


def test_a_source_that_comes_later_gets_its_share() -> None:
    """Steps up are the same for all, cuts are in proportion: what one has more becomes less."""
    ring, first, second = FullRing(4_000), SendWindow(MOST), SendWindow(MOST)
    run(ring, [first], 60)
    assert first.size > 3 * FIRST_WINDOW
    sizes = []
    for _ in range(400):
        ring.token([first, second])
        sizes.append((first.size, second.size))
    shares = [one / (one + other) for one, other in sizes[200:]]
    assert 0.35 <= sum(shares) / len(shares) <= 0.65


def test_it_follows_a_ring_that_becomes_slower_and_faster_again() -> None:
    ring, window = FullRing(4_000), SendWindow(MOST)
    run(ring, [window], 60)
    ring.capacity = 500
    for _ in range(40):
        ring.token([window])
    assert window.size <= 1_500
    ring.capacity = 4_000
    for _ in range(100):
        ring.token([window])
    assert window.size >= 3_000


def test_random_losses_do_not_shrink_it() -> None:
    """A token names each source's messages up to the first that its owner lacks; the rest is sent again.

    With a window of 512 that would be 291 messages a token, at a loss of 1 %.
    """
    random, window = Random(7), SendWindow(4_096)
    again, total = 0, 0
    for _ in range(300):
        fresh = max(window.size - again, 0)
        named = next((place for place in range(again) if random.random() < 0.01**2), again)
        if named == again:
            named += next((place for place in range(fresh) if random.random() < 0.01), fresh)
        left = max(window.size - named, 0)
        window.token(named, limited=True, overloaded=False)
        again = min(left, window.size)
        total += named
    assert total / 300 >= 500


def test_a_source_that_has_little_to_say_keeps_its_window() -> None:
    window = SendWindow(MOST)
    for _ in range(100):
        window.token(3, limited=False, overloaded=True)
    assert window.size == FIRST_WINDOW


def test_overload_cuts_once_for_what_is_under_way() -> None:
    """The tokens that follow still suffer from what was sent before the cut."""
    window = SendWindow(MOST)
    window.token(100, limited=True, overloaded=True)
    cut = window.size
    window.token(100, limited=True, overloaded=True)
    assert cut == int(0.7 * FIRST_WINDOW) == window.size


def test_overload_never_cuts_below_what_tokens_acknowledge() -> None:
    """One late token of a busy machine, while everything that was sent is acknowledged, only stops growth."""
    window = SendWindow(MOST)
    window.token(FIRST_WINDOW, limited=True, overloaded=True)
    assert window.size == FIRST_WINDOW
    for _ in range(4):
        window.token(window.size, limited=True, overloaded=False)
    assert window.size == 4 * FIRST_WINDOW, "it goes on to double"


def test_a_reformation_makes_it_careful() -> None:
    window = SendWindow(MOST)
    window.reformed()
    assert window.size == int(0.7 * FIRST_WINDOW)
    for _ in range(100):
        window.reformed()
    assert window.size == LEAST_WINDOW


@pytest.mark.parametrize("most", [1, 2, 63, 64, 1_000])
def test_it_never_exceeds_the_markets_window(most: int) -> None:
    window = SendWindow(most)
    sizes = set()
    for place in range(200):
        window.token(window.size, limited=True, overloaded=place % 50 == 49)
        sizes.add(window.size)
    assert max(sizes) == most
    assert min(sizes) >= 1
