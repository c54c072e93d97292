"""Whatever the bytes: a packet that keeps every rule, or RemoteProtocolError."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.hostile import WAYS_IN, examine, seeds
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
    at = data.draw(st.integers(24, len(frame) - 17)) if len(frame) > 41 else 23
    frame[at] ^= 1 << bit
    examine(b"\1" + bytes(frame[3:6]) + bytes(frame[8:-16]))


def test_many_mutations_of_every_seed() -> None:
    """The same as the fuzz target does, for a few seconds: numbers at their limits are the likely mistakes."""
    random = Random(20)
    starts = seeds()
    edges = (b"\0", b"\xff", b"\1", b"\x7f", b"\x80", b"\xff\xff", b"\0\1", b"\xff" * 4, b"\0" * 8, b"\xff" * 8)
    accepted = 0
    for _ in range(_MUTATIONS):
        raw = bytearray(random.choice(starts))
        for _ in range(random.randint(1, 3)):
            at = random.randrange(1, len(raw) + 1)
            edge = random.choice(edges)
            raw[at : at + random.choice((0, len(edge), len(edge), random.randrange(20)))] = edge
        accepted += examine(bytes(raw))
    assert 0 < accepted < _MUTATIONS
