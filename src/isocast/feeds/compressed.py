"""gzip, bzip2, xz and zstd as streams of chunks, told by their first bytes and never by a name.

What is whole comes out, and a cut or damaged end is a named fault. Memory stays bounded whatever a file claims, and a
file that expands beyond all reason is given up with a fault.
"""

from __future__ import annotations

import bz2
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Protocol

from isocast.feeds.outcomes import FeedFault, FeedLog
from isocast.terms.errors import IsocastError

__all__ = ["HEAD_BYTES", "compression_of", "expand", "is_bomb", "plain_name"]

HEAD_BYTES = 16
"""As many are needed to tell."""
_MAGICS = {
    "gzip": re.compile(rb"\x1f\x8b\x08"),
    "bzip2": re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"),
    "xz": re.compile(rb"\xfd7zXZ\0"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
}
_STARTS = {
    "gzip": (b"\x1f\x8b",),
    "bzip2": (b"BZh",),
    "xz": (b"\xfd7zXZ\0",),
    "zstd": (b"\x28\xb5\x2f\xfd", *(bytes([code]) + b"\x2a\x4d\x18" for code in range(0x50, 0x60))),
}
"""How another member begins."""
_SUFFIXES = re.compile(r"\.(?:gz|bz2|xz|zst)$", re.IGNORECASE)
_GZIP = 31
"""zlib's number for: 32 kB of window, with the header and trailer of gzip."""
_MEMORY_MAX = 1 << 28
"""xz says itself how much memory it wants, at most 65 MB with its usual options."""
_WINDOW_MAX = 1 << 27
"""As much as the command line of zstd accepts by default."""
_ZSTD_SLICE = 1 << 10
"""Four bytes of zstd can become 128 kB, and its Python interface cannot stop in between."""
_RATIO_MAX, _SURE_BYTES = 2_000, 1 << 30
"""Real feeds shrink to a fifth or a fiftieth. gzip cannot shrink anything beyond 1,032."""


def compression_of(head: bytes) -> str | None:
    """What a file is compressed by, if it is; HEAD_BYTES of it are needed."""
    return next((name for name, magic in _MAGICS.items() if magic.match(head)), None)


def is_bomb(read: int, given: int) -> bool:
    """Whether so much came out of so little that no feed is in it."""
    return given > _SURE_BYTES and given > _RATIO_MAX * read


def plain_name(name: str) -> str:
    """A file's name without the ending that its compression gave it."""
    return _SUFFIXES.sub("", name)


class _Stream(Protocol):
    """One member, frame or stream."""

    ended: bool
    rest: bytes
    """What was given and not used: behind the end, what follows it."""

    def take(self, raw: bytes, at_most: int) -> bytes: ...


class _Gzip:
    def __init__(self) -> None:
        self._inflater = zlib.decompressobj(_GZIP)
        self.ended, self.rest = False, b""

    def take(self, raw: bytes, at_most: int) -> bytes:
        content = self._inflater.decompress(raw, at_most)
        self.ended = self._inflater.eof
        self.rest = self._inflater.unused_data if self.ended else self._inflater.unconsumed_tail
        return content


class _Buffered:
    """bzip2 and xz, which keep for themselves what they could not put out yet."""

    def __init__(self, decompressor: bz2.BZ2Decompressor | lzma.LZMADecompressor) -> None:
        self._decompressor = decompressor
        self.ended, self.rest = False, b""

    def take(self, raw: bytes, at_most: int) -> bytes:
        content = self._decompressor.decompress(raw, at_most)
        while not (self._decompressor.eof or self._decompressor.needs_input or content):
            content = self._decompressor.decompress(b"", at_most)
        self.ended = self._decompressor.eof
        self.rest = self._decompressor.unused_data
        return content

    @property
    def pending(self) -> bool:
        """Whether more can be had without more input."""
        return not (self._decompressor.eof or self._decompressor.needs_input)


class _Zstd:
    def __init__(self) -> None:
        try:
            import zstandard  # noqa: PLC0415 - many never meet it
        except ImportError as reason:
            raise IsocastError("zstd needs the package zstandard: pip install 'isocast[zstd]'") from reason

        self._inflater = zstandard.ZstdDecompressor(max_window_size=_WINDOW_MAX).decompressobj()
        self.ended, self.rest = False, b""

    def take(self, raw: bytes, at_most: int) -> bytes:  # noqa: ARG002 - it is given slices instead
        content: bytes = self._inflater.decompress(raw)
        self.ended = bool(self._inflater.eof)
        self.rest = self._inflater.unused_data if self.ended else b""
        return content


_STREAMS: dict[str, Callable[[], _Stream]] = {
    "gzip": _Gzip,
    "bzip2": lambda: _Buffered(bz2.BZ2Decompressor()),
    "xz": lambda: _Buffered(lzma.LZMADecompressor(lzma.FORMAT_XZ, _MEMORY_MAX)),
    "zstd": _Zstd,
}


def expand(chunks: Iterable[bytes], log: FeedLog, *, at_most: int = 1 << 22) -> Iterator[bytes]:
    """The contents, in chunks of at most so many bytes; what is not compressed passes as it is."""
    source = iter(chunks)
    head = b""
    while len(head) < HEAD_BYTES and (more := next(source, b"")):
        head += more
    name = compression_of(head)
    whole = chain([head] if head else [], source)
    if name is None:
        return whole
    if name == "zstd":
        return _gathered(_expand(_slices(whole), log, name, at_most), at_most)
    return _expand(whole, log, name, at_most)


def _slices(chunks: Iterable[bytes]) -> Iterator[bytes]:
    return (chunk[at : at + _ZSTD_SLICE] for chunk in chunks for at in range(0, len(chunk), _ZSTD_SLICE))


def _gathered(pieces: Iterable[bytes], at_most: int) -> Iterator[bytes]:
    """Small pieces joined, so that their reader has few blocks."""
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        if held and size + len(piece) > at_most:
            yield b"".join(held)
            held, size = [], 0
        held.append(piece)
        size += len(piece)
    if held:
        yield b"".join(held)


def _expand(chunks: Iterable[bytes], log: FeedLog, name: str, at_most: int) -> Iterator[bytes]:
    """Several members one after another are one content."""
    stream = _STREAMS[name]()
    read = given = members = 0
    begun = False
    for chunk in chunks:
        read += len(chunk)
        left = chunk
        while left or getattr(stream, "pending", False):
            if members and not begun:
                left = left.lstrip(b"\0")
                if left and not _may_begin(name, left):
                    log.notes.append(f"{len(left):,} bytes or more after the end of the {name} stream were not read")
                    return
            begun = begun or bool(left)
            try:
                content = stream.take(left, at_most)
            except Exception as reason:  # noqa: BLE001 - each of the four libraries has an error of its own
                log.fault(FeedFault.DAMAGED_COMPRESSION, read - len(left), f"not what {name} writes: {reason}")
                return
            for at in range(0, len(content), at_most):
                yield content[at : at + at_most]
            given += len(content)
            if is_bomb(read, given):
                what = f"{read:,} bytes of {name} became {given:,}: more than {_RATIO_MAX:,} times as many are not read"
                log.fault(FeedFault.DAMAGED_COMPRESSION, read, what)
                return
            left = stream.rest
            if stream.ended:
                stream = _STREAMS[name]()
                members, begun = members + 1, False
    if begun:
        log.fault(FeedFault.TRUNCATED, read, f"the {name} stream ends too early")


def _may_begin(name: str, left: bytes) -> bool:
    """Whether another member begins here; a few bytes alone may still become one."""
    return any(left[: len(start)] == start[: len(left)] for start in _STARTS[name])
