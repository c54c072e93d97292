"""gzip that ends too early, or is damaged, gives what is whole and a named fault."""

import gzip
from random import Random

import pytest

from isocast.feeds.compressed import gunzip
from isocast.feeds.outcomes import Fault, FeedLog
from isocast.terms.errors import FeedError

CONTENT = Random(1).randbytes(50_000) + bytes(200_000)
WHOLE = gzip.compress(CONTENT, mtime=0)


def read(raw: bytes, size: int = 1_000, *, strict: bool = False) -> tuple[bytes, FeedLog]:
    log = FeedLog("x.gz", strict=strict)
    chunks = [raw[at : at + size] for at in range(0, len(raw), size)]
    pieces = list(gunzip(chunks, log, at_most=4_096))
    assert all(0 < len(piece) <= 40_000 for piece in pieces)
    return b"".join(pieces), log


@pytest.mark.parametrize("size", [1, 7, 1_000, 1 << 20])
def test_a_whole_file(size: int) -> None:
    content, log = read(WHOLE, size, strict=True)
    assert content == CONTENT
    assert not log.notes


def test_several_members_are_one_content() -> None:
    for size in (1, 1_000, 1 << 20):
        assert read(WHOLE + gzip.compress(b"more") + bytes(30), size, strict=True)[0] == CONTENT + b"more"


@pytest.mark.parametrize("cut", [1, 8, 9, 100, 30_000])
def test_a_cut_file_gives_what_is_whole(cut: int) -> None:
    content, log = read(WHOLE[:-cut])
    assert CONTENT.startswith(content)
    assert log.faults == {
        Fault.TRUNCATED: {"count": 1, "first_offset": len(WHOLE) - cut, "first": "the gzip stream ends too early"}
    }
    with pytest.raises(FeedError, match="truncated: the gzip stream ends too early"):
        read(WHOLE[:-cut], strict=True)


def test_a_damaged_file_gives_what_is_before_and_a_fault() -> None:
    raw = bytearray(WHOLE)
    raw[-6] ^= 1  # Of the checksum.
    content, log = read(bytes(raw))
    assert CONTENT.startswith(content)
    assert Fault.DAMAGED_COMPRESSION in log.faults


def test_what_stands_behind_the_end_is_noted() -> None:
    content, log = read(WHOLE + b"something else", 1 << 20)
    assert content == CONTENT
    assert log.notes == ["14 bytes or more behind the end of the gzip stream were not read"]


def test_a_bomb_comes_out_in_small_pieces() -> None:
    content, _ = read(gzip.compress(bytes(10_000_000)), strict=True)
    assert len(content) == 10_000_000
