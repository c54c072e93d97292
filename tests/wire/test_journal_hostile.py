"""Whatever the bytes: a segment that keeps every rule, or RemoteProtocolError."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.hostile_journal import WAYS_IN, examine, seeds

_MUTATIONS = 20_000


@pytest.mark.parametrize("seed", seeds(), ids=lambda seed: f"way{seed[0]}-{len(seed)}")
def test_every_seed_is_accepted(seed: bytes) -> None:
    assert examine(seed)


@settings(max_examples=200)
@given(way=st.integers(0, len(WAYS_IN) - 1), data=st.binary(max_size=400))
def test_random_bytes(way: int, data: bytes) -> None:
    examine(bytes((way,)) + data)


@settings(max_examples=200)
@given(seed=st.sampled_from(seeds()), at=st.integers(1, 700), patch=st.binary(max_size=12), cut=st.integers(0, 12))
def test_patched_seeds(seed: bytes, at: int, patch: bytes, cut: int) -> None:
    examine(seed[:at] + patch + seed[at + cut :])


def test_many_mutations_of_every_seed() -> None:
    """The same as the fuzz target does, for a few seconds: numbers at their limits are the likely mistakes."""
    random = Random(7)
    starts = seeds()
    edges = (b"\0", b"\xff", b"\1", b"\x7f", b"\x80", b"\xff\xff", b"\0\1", b"\xff" * 4, b"\0" * 8, b"\xff" * 8)
    accepted = 0
    for _ in range(_MUTATIONS):
        raw = bytearray(random.choice(starts))
        for _ in range(random.randint(1, 3)):
            at = random.randrange(1, len(raw) + 1)
            edge = random.choice(edges)
            raw[at : at + random.choice((0, len(edge), len(edge), random.randrange(20)))] = edge
        raw[0] = random.randrange(len(WAYS_IN))
        accepted += examine(bytes(raw))
    assert 0 < accepted < _MUTATIONS
