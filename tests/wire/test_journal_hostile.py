"""Whatever the bytes: a segment that keeps every rule, or RemoteProtocolError."""

from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.hostile_journal import WAYS_IN, examine, seeds
from tests.wire.mutations import mutated

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
    ways = cycle(range(len(WAYS_IN)))
    accepted = sum([examine(bytes((next(ways),)) + raw[1:]) for raw in mutated(seeds(), _MUTATIONS, 7)])
    assert 0 < accepted < _MUTATIONS
