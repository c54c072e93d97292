"""gzip as a stream of chunks: what is whole comes out, and a cut or damaged end is a named fault."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

from isocast.feeds.outcomes import Fault, FeedLog

__all__ = ["GZIP_MAGIC", "gunzip"]

GZIP_MAGIC = b"\x1f\x8b"
_GZIP = 31
"""zlib's number for: 32 kB of window, with the header and trailer of gzip."""


def gunzip(chunks: Iterable[bytes], log: FeedLog, *, at_most: int = 1 << 22) -> Iterator[bytes]:
    """The contents, in chunks of at most so many bytes; several members one after another are one content."""
    inflater = zlib.decompressobj(_GZIP)
    read = members = 0
    begun = False
    for chunk in chunks:
        read += len(chunk)
        left = chunk
        while left:
            if members and not begun:
                left = left.lstrip(b"\0")
                if not GZIP_MAGIC.startswith(left[:2]):
                    log.notes.append(f"{len(left):,} bytes or more behind the end of the gzip stream were not read")
                    return
            try:
                content = inflater.decompress(left, at_most)
            except zlib.error as reason:
                log.fault(Fault.DAMAGED_COMPRESSION, read - len(left), f"not what gzip writes: {reason}")
                return
            begun = begun or bool(left)
            if content:
                yield content
            left = inflater.unconsumed_tail
            if inflater.eof:
                left = inflater.unused_data
                inflater = zlib.decompressobj(_GZIP)
                members, begun = members + 1, False
    if begun:
        content = inflater.flush()
        if content:
            yield content
        if not inflater.eof:
            log.fault(Fault.TRUNCATED, read, "the gzip stream ends too early")
