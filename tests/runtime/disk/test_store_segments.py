"""Frames on a disk: found whole, found torn, found damaged."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.disk.disks import quick_directory

from isocast.runtime.disk.store_segments import (
    FILE_BYTES,
    Frame,
    StoreSegment,
    TornSegment,
    WrongBytesError,
    frame_buffers,
    write_all,
)

ROLE, NODE, NUMBER, SALT = 1, 7, 3, 0xDEAD_BEEF
GROUPS = [
    [Frame(1, b"one")],
    [Frame(2, b"two", [b"loose ", b"bytes"], 11), Frame(3, b"")],
    [Frame(4, b"begin", more=True), Frame(5, b"middle", [b"IF" * 20], 40, more=True), Frame(6, b"end")],
]


@pytest.fixture
def quick_path() -> Iterator[Path]:
    with quick_directory() as name:
        yield Path(name) / "s"


def segment_of(path: Path, groups: Sequence[Sequence[Frame]], tail: bytes = b"") -> StoreSegment:
    segment = StoreSegment(path, ROLE, NODE, NUMBER, SALT)
    parts = [segment.file_header()]
    for group in groups:
        parts += frame_buffers(group, SALT)[0]
    path.write_bytes(b"".join(parts) + tail)
    found = StoreSegment.find(path, ROLE, NODE, NUMBER)
    assert found == segment
    return segment


def kinds(segment: StoreSegment) -> list[list[int] | TornSegment]:
    return [
        found if isinstance(found, TornSegment) else [stored.kind for stored in found]
        for found in list(segment.records())
    ]


def test_records_are_found_with_their_frames(tmp_path: Path) -> None:
    segment = segment_of(tmp_path / "s", GROUPS)
    assert kinds(segment) == [[1], [2], [3], [4, 5, 6]]
    (_,), (second,), (third,), last = [found for found in segment.records() if not isinstance(found, TornSegment)]
    assert (second.first, third.first, [stored.first for stored in last]) == (True, False, [True, False, False])
    assert segment.read(second.offset) == (2, b"two", b"loose bytes")


def test_a_file_that_ends_anywhere_keeps_its_whole_records(quick_path: Path) -> None:
    path = quick_path
    segment = segment_of(path, GROUPS)
    whole = path.read_bytes()
    ends = [FILE_BYTES]
    for group in ([GROUPS[0][0]], [GROUPS[1][0]], [GROUPS[1][1]], GROUPS[2]):
        ends.append(ends[-1] + frame_buffers(group, SALT)[2])
    for length in range(FILE_BYTES, len(whole)):
        path.write_bytes(whole[:length])
        *records, last = [*kinds(segment), None] if length in ends else kinds(segment)
        kept = sum(end <= length for end in ends) - 1
        assert len(records) == kept
        if last is not None:
            assert isinstance(last, TornSegment)
            assert (last.torn, last.acknowledged, last.whole) == (True, False, ends[kept])


def test_every_bit_that_flips_is_found(quick_path: Path) -> None:
    """Except in loose bytes, which their token vouches for."""
    path = quick_path
    segment = segment_of(path, [GROUPS[0], [Frame(4, b"begin", more=True), Frame(6, b"end")], [Frame(1, b"last")]])
    whole = path.read_bytes()
    last_at = len(whole) - frame_buffers([Frame(1, b"last")], SALT)[2]
    for bit in range(8 * FILE_BYTES, 8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        fault = kinds(segment)[-1]
        assert isinstance(fault, TornSegment)
        assert not fault.torn
        assert fault.acknowledged == (bit // 8 < last_at)
        assert fault.offset <= bit // 8


@pytest.mark.parametrize("bit", range(0, 8 * FILE_BYTES, 5))
def test_a_damaged_file_header_is_no_segment(tmp_path: Path, bit: int) -> None:
    path = tmp_path / "s"
    segment_of(path, GROUPS)
    flipped = bytearray(path.read_bytes())
    flipped[bit // 8] ^= 1 << bit % 8
    path.write_bytes(flipped)
    with pytest.raises(WrongBytesError):
        StoreSegment.find(path, ROLE, NODE, NUMBER)


@pytest.mark.parametrize("other", [(2, NODE, NUMBER), (ROLE, 8, NUMBER), (ROLE, NODE, 4)])
def test_a_segment_of_another_store_is_refused(tmp_path: Path, other: tuple[int, int, int]) -> None:
    segment_of(tmp_path / "s", GROUPS)
    with pytest.raises(WrongBytesError, match="segment 3 of node 7"):
        StoreSegment.find(tmp_path / "s", *other)


def test_a_file_that_ends_within_its_header_is_none(tmp_path: Path) -> None:
    path = tmp_path / "s"
    segment_of(path, [])
    path.write_bytes(path.read_bytes()[: FILE_BYTES - 1])
    assert StoreSegment.find(path, ROLE, NODE, NUMBER) is None


def test_a_payload_that_looks_like_a_frame_is_none(tmp_path: Path) -> None:
    """Behind damage, only a frame with this file's salt shows that something followed."""
    forged = b"".join(frame_buffers([Frame(1, b"forged")], SALT + 1)[0])
    path = tmp_path / "s"
    segment = segment_of(path, [[Frame(2, b"x", [forged], len(forged))]])
    data = bytearray(path.read_bytes())
    data[FILE_BYTES + 5] ^= 1
    path.write_bytes(data)
    (fault,) = kinds(segment)
    assert isinstance(fault, TornSegment)
    assert not fault.acknowledged


def test_after_a_power_failure_the_last_groups_loose_bytes_are_looked_at(tmp_path: Path) -> None:
    def verify(_kind: int, checked: bytes, loose: bytes) -> None:
        if checked != loose:
            raise ValueError("differs")

    same, missing = Frame(1, b"abc", [b"abc"], 3), Frame(1, b"abc", [bytes(3)], 3)
    segment = segment_of(tmp_path / "a", [[same], [same, missing, same]])
    found = list(segment.verified(verify))
    assert [isinstance(record, TornSegment) for record in found] == [False, False, True]
    assert isinstance(found[-1], TornSegment)
    assert (found[-1].torn, found[-1].acknowledged, found[-1].rule) == (False, False, "differs")
    segment = segment_of(tmp_path / "b", [[missing], [same]], tail=b"IF")
    found = list(segment.verified(verify))
    assert [isinstance(record, TornSegment) for record in found] == [False, False, True]
    assert isinstance(found[-1], TornSegment)
    assert found[-1].torn


def test_more_buffers_than_one_writev_takes_are_written(tmp_path: Path) -> None:
    pieces = [bytes([number % 256]) * (number % 7) for number in range(5_000)]
    fd = os.open(tmp_path / "x", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    write_all(fd, pieces)
    os.close(fd)
    assert (tmp_path / "x").read_bytes() == b"".join(pieces)


@given(st.lists(st.binary(max_size=9), max_size=30), st.lists(st.integers(1, 20), max_size=60))
def test_short_writes_are_continued(pieces: list[bytes], takes: list[int]) -> None:
    """As a signal or a nearly full disk makes them: every call takes some of the bytes it is given."""
    left = iter(takes)
    real_writev, real_write = os.writev, os.write

    def short_writev(fd: int, buffers: Sequence[bytes]) -> int:
        joined = b"".join(buffers)
        return real_write(fd, joined[: next(left, len(joined))])

    def short_write(fd: int, data: memoryview) -> int:
        return real_write(fd, data[: next(left, len(data))])

    with quick_directory() as name, pytest.MonkeyPatch.context() as patch:
        fd = os.open(Path(name) / "x", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        patch.setattr(os, "writev", short_writev)
        patch.setattr(os, "write", short_write)
        write_all(fd, pieces)
        os.close(fd)
        assert (Path(name) / "x").read_bytes() == b"".join(pieces)
    assert os.writev is real_writev
