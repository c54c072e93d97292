"""What is compressed, by its bytes; what ends too early, or is damaged, gives what is whole and a named fault."""

import bz2
import gzip
import lzma
from collections.abc import Callable
from random import Random

import pytest
import zstandard

from isocast.feeds import compressed
from isocast.feeds.compressed import compression_of, expand
from isocast.feeds.outcomes import FeedFault, FeedLog
from isocast.terms.errors import FeedError

CONTENT = Random(1).randbytes(50_000) + bytes(200_000)
WHOLE = gzip.compress(CONTENT, mtime=0)


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda raw: gzip.compress(raw, mtime=0),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda raw: zstandard.ZstdCompressor(write_checksum=True).compress(raw),
}


def read(raw: bytes, size: int = 1_000, *, strict: bool = False) -> tuple[bytes, FeedLog]:
    log = FeedLog("x.gz", strict=strict)
    chunks = [raw[at : at + size] for at in range(0, len(raw), size)]
    pieces = list(expand(chunks, log, at_most=4_096))
    assert all(0 < len(piece) <= 40_000 for piece in pieces)
    return b"".join(pieces), log


@pytest.mark.parametrize("size", [1, 7, 1_000, 1 << 20])
@pytest.mark.parametrize("name", PACKERS)
def test_a_whole_file(name: str, size: int) -> None:
    whole = PACKERS[name](CONTENT)
    assert compression_of(whole) == name
    content, log = read(whole, size, strict=True)
    assert content == CONTENT
    assert not log.notes


@pytest.mark.parametrize("name", PACKERS)
def test_several_members_are_one_content(name: str) -> None:
    pack = PACKERS[name]
    for size in (1, 1_000, 1 << 20):
        assert read(pack(CONTENT) + pack(b"more") + bytes(32), size, strict=True)[0] == CONTENT + b"more"


@pytest.mark.parametrize("raw", [b"", b"t", b"BZh is a header,price\n", b"plain text\n" * 10])
def test_what_is_not_compressed_passes_as_it_is(raw: bytes) -> None:
    assert compression_of(raw) is None
    assert read(raw, 3, strict=True)[0] == raw


@pytest.mark.parametrize("name", PACKERS)
def test_a_file_of_any_compression_that_is_cut_or_damaged_is_a_fault(name: str) -> None:
    whole = PACKERS[name](CONTENT)
    content, log = read(whole[:-20])
    assert CONTENT.startswith(content)
    assert log.faults[FeedFault.TRUNCATED]["first"] == f"the {name} stream ends too early"
    raw = bytearray(whole)
    raw[20_000] ^= 0xFF
    content, log = read(bytes(raw))
    assert FeedFault.DAMAGED_COMPRESSION in log.faults


@pytest.mark.parametrize("name", PACKERS)
def test_a_bomb_is_given_up(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "_SURE_BYTES", 1 << 20)
    monkeypatch.setattr(compressed, "_RATIO_MAX", 50)
    content, log = read(PACKERS[name](bytes(20_000_000)), 64)
    assert len(content) < 20_000_000
    assert "times as many are not read" in log.faults[FeedFault.DAMAGED_COMPRESSION]["first"]


@pytest.mark.parametrize("cut", [1, 8, 9, 100, 30_000])
def test_a_cut_file_gives_what_is_whole(cut: int) -> None:
    content, log = read(WHOLE[:-cut])
    assert CONTENT.startswith(content)
    assert log.faults == {
        FeedFault.TRUNCATED: {"count": 1, "first_offset": len(WHOLE) - cut, "first": "the gzip stream ends too early"}
    }
    with pytest.raises(FeedError, match="truncated: the gzip stream ends too early"):
        read(WHOLE[:-cut], strict=True)


def test_a_damaged_file_gives_what_is_before_and_a_fault() -> None:
    raw = bytearray(WHOLE)
    raw[-6] ^= 1  # Of the checksum.
    content, log = read(bytes(raw))
    assert CONTENT.startswith(content)
    assert FeedFault.DAMAGED_COMPRESSION in log.faults


def test_what_stands_behind_the_end_is_noted() -> None:
    content, log = read(WHOLE + b"something else", 1 << 20)
    assert content == CONTENT
    assert log.notes == ["14 bytes or more after the end of the gzip stream were not read"]


def test_a_bomb_comes_out_in_small_pieces() -> None:
    content, _ = read(gzip.compress(bytes(10_000_000)), strict=True)
    assert len(content) == 10_000_000


def test_zstd_comes_in_few_pieces_however_well_it_is_packed() -> None:
    """Its input is cut small, so that memory stays bounded; whoever reads it has large blocks."""
    raw = Random(2).randbytes(3_000_000)
    pieces = list(expand([PACKERS["zstd"](raw)], FeedLog("x"), at_most=1 << 20))
    assert b"".join(pieces) == raw
    assert len(pieces) <= 4
