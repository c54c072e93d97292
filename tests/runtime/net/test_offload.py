"""Bursts: what the kernel may cut, and what comes out again."""

import errno
import os
import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.runtime.net.sockets import (
    MAX_SEGMENTS,
    SOL_UDP,
    UDP_GRO,
    UDP_SEGMENT,
    Segmentation,
    bursts_of,
    cut,
    segment_control,
    segment_of,
)
from isocast.terms.errors import LocalProtocolError
from isocast.wire.limits import MAX_UDP

lengths = st.one_of(
    st.lists(st.integers(0, 40), max_size=200),
    st.lists(st.sampled_from([0, 1, 900, 1400, 9000, MAX_UDP]), max_size=150),
)


def shapes(*sizes: int) -> list[tuple[int, ...]]:
    return [tuple(map(len, burst.frames)) for burst in bursts_of([bytes(size) for size in sizes])]


@given(lengths)
def test_bursts_keep_every_frame_in_order_and_obey_the_kernel(sizes: list[int]) -> None:
    frames = [bytes([place % 251]) * size for place, size in enumerate(sizes)]
    bursts = bursts_of(frames)
    assert [frame for burst in bursts for frame in burst.frames] == frames
    for burst in bursts:
        assert 1 <= len(burst.frames) <= MAX_SEGMENTS
        assert sum(map(len, burst.frames)) <= MAX_UDP
        assert {len(frame) for frame in burst.frames[:-1]} <= {burst.segment}
        assert len(burst.frames) == 1 or 0 < len(burst.frames[-1]) <= burst.segment


@given(lengths)
def test_no_burst_could_have_been_longer(sizes: list[int]) -> None:
    bursts = bursts_of([bytes(size) for size in sizes])
    for burst, following in pairwise(bursts):
        is_full = len(burst.frames) == MAX_SEGMENTS or (len(burst.frames) + 1) * burst.segment > MAX_UDP
        is_closed = len(burst.frames[-1]) < burst.segment or not burst.segment
        assert is_full or is_closed or not 0 < following.segment <= burst.segment


@given(lengths)
def test_what_is_put_together_comes_apart_again(sizes: list[int]) -> None:
    for burst in bursts_of([os.urandom(size) for size in sizes]):
        whole = b"".join(burst.frames)
        buffer = bytearray(whole).ljust(1 << 16, b"?")
        assert cut(buffer, len(whole), burst.segment) == tuple(burst.frames)


def test_a_shorter_frame_ends_its_burst_and_a_longer_one_begins_the_next() -> None:
    assert shapes(9, 9, 9, 5, 9, 9, 12, 12) == [(9, 9, 9, 5), (9, 9), (12, 12)]


def test_an_empty_frame_travels_alone() -> None:
    assert shapes(9, 0, 9, 0, 0) == [(9,), (0,), (9,), (0,), (0,)]


def test_a_frame_that_no_datagram_holds_is_refused_before_anything_is_cut() -> None:
    with pytest.raises(LocalProtocolError, match=r"65508 bytes; .* at most 65507"):
        bursts_of([b"fits", bytes(MAX_UDP + 1)])


def test_the_kernel_is_told_the_segment_and_tells_it() -> None:
    assert segment_control(1400) == ((SOL_UDP, UDP_SEGMENT, struct.pack("=H", 1400)),)
    assert segment_of([(SOL_UDP, UDP_GRO, struct.pack("=i", 1400))], 3000) == 1400


@pytest.mark.parametrize(
    "control",
    [
        [],
        [(1, UDP_GRO, struct.pack("=i", 7))],
        [(SOL_UDP, UDP_GRO, b"\7")],
        [(SOL_UDP, UDP_GRO, struct.pack("=i", 0))],
        [(SOL_UDP, UDP_GRO, struct.pack("=i", -7))],
        [(SOL_UDP, UDP_GRO, struct.pack("=i", 9000))],
    ],
)
def test_without_a_sound_segment_a_buffer_is_one_datagram(control: list[tuple[int, int, bytes]]) -> None:
    assert segment_of(control, 3000) == 3000


def test_a_path_that_cannot_checksum_ends_segmentation() -> None:
    learnt = Segmentation()
    assert learnt.refused(OSError(errno.EIO, "Input/output error"), 1400)
    assert learnt.limit == 0
    assert learnt.state == "off: Input/output error for segments of 1400 bytes"


def test_a_segment_beyond_the_mtu_leaves_shorter_ones() -> None:
    learnt = Segmentation()
    assert learnt.state == "on"
    assert learnt.refused(OSError(errno.EMSGSIZE, "Message too long"), 9000)
    assert learnt.refused(OSError(errno.EINVAL, "Invalid argument"), 1600)
    assert learnt.limit == 1599
    assert learnt.state.startswith("on, up to 1599 bytes: ")


def test_a_full_queue_is_no_refusal() -> None:
    learnt = Segmentation()
    assert not learnt.refused(OSError(errno.ENOBUFS, "No buffer space available"), 1400)
    assert learnt.state == "on"
