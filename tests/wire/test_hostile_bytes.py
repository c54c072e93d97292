"""Whatever the bytes: a packet that keeps every rule, or RemoteProtocolError."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.hostile import WAYS_IN, examine, seeds
from tests.wire.mutations import miscast, mutated
from tests.wire.strategies import packets

from isocast.wire.codec import encode
from isocast.wire.packets import Packet

_MUTATIONS = 20_000


@pytest.mark.parametrize("seed", seeds(), ids=lambda seed: f"way{seed[0]}-{seed[1]}")
def test_every_seed_is_accepted(seed: bytes) -> None:
    assert examine(seed)


@settings(max_examples=300)
@given(way=st.integers(0, len(WAYS_IN) - 1), data=st.binary(max_size=400))
def test_random_bytes(way: int, data: bytes) -> None:
    examine(bytes((way,)) + data)


@settings(max_examples=300)
@given(seed=st.sampled_from(seeds()), at=st.integers(1, 400), patch=st.binary(max_size=12), cut=st.integers(0, 12))
def test_patched_seeds(seed: bytes, at: int, patch: bytes, cut: int) -> None:
    examine(seed[:at] + patch + seed[at + cut :])


@settings(max_examples=100)
@given(packet=packets(), bit=st.integers(0, 7), data=st.data())
def test_patched_packets_behind_a_right_tag(packet: Packet, bit: int, data: st.DataObject) -> None:
    frame = bytearray(encode(packet))
    at = data.draw(st.integers(28, len(frame) - 17)) if len(frame) > 45 else 27
    frame[at] ^= 1 << bit
    examine(b"\1" + bytes(frame[3:6]) + bytes(frame[8:-16]))


def test_many_mutations_of_every_seed() -> None:
    """The same as the fuzz target does, for a few seconds: numbers at their limits are the likely mistakes."""
    accepted = sum([examine(raw) for raw in mutated(seeds(), _MUTATIONS, 20)])
    assert 0 < accepted < _MUTATIONS


@pytest.mark.parametrize("seed", [seed for seed in seeds() if seed[1:2] == b"{"], ids=lambda seed: f"way{seed[0]}")
def test_values_of_another_kind_in_json(seed: bytes) -> None:
    """Behind a right digest nobody expects them: what is parsed is not yet what was written."""
    text, zero, rest = seed[1:].partition(b"\0")
    accepted = [examine(seed[:1] + other + zero + rest) for other in miscast(text)]
    assert not all(accepted)
