"""Whatever the bytes: events, counted faults, or FeedError."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.feeds.hostile_feeds import WAYS_IN, examine, seeds

_MUTATIONS = 1_500


@pytest.mark.parametrize("seed", seeds(), ids=lambda seed: WAYS_IN[seed[0]].__name__)
def test_every_seed_is_sound(seed: bytes) -> None:
    assert examine(seed)


@settings(max_examples=100)
@given(way=st.integers(0, 3 * len(WAYS_IN) - 1), data=st.binary(max_size=300))
def test_random_bytes(way: int, data: bytes) -> None:
    examine(bytes([way]) + data)


@settings(max_examples=100)
@given(seed=st.sampled_from(seeds()), at=st.integers(1, 900), patch=st.binary(max_size=12), cut=st.integers(0, 12))
def test_patched_seeds(seed: bytes, at: int, patch: bytes, cut: int) -> None:
    examine(seed[:at] + patch + seed[at + cut :])


def test_many_mutations_of_every_seed() -> None:
    """The same as the fuzz target does, for a few seconds: numbers at their limits are the likely mistakes."""
    random = Random(7)
    starts = seeds()
    edges = [b"\0", b"\xff", b"\1", b"\x7f", b"\x80", b"\xff\xff", b"\0\x24A", b"\xff" * 8, b"\0" * 8]
    edges += [b",", b"\n", b'"', b"|", b"-", b".", b"9" * 19, b"1e9", b"\0\0"]
    sound = 0
    for _ in range(_MUTATIONS):
        raw = bytearray(random.choice(starts))
        raw[0] += len(WAYS_IN) * random.randrange(3)
        for _ in range(random.randint(1, 3)):
            at = random.randrange(1, len(raw) + 1)
            edge = random.choice(edges)
            raw[at : at + random.choice([0, len(edge)])] = edge
        sound += examine(bytes(raw))
    assert 0 < sound < _MUTATIONS
