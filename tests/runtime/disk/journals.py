"""Journals in a folder, for the tests that write, damage and read them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.wire.journal_samples import SITE, STRIPE

from isocast.runtime.disk.journal import Journal
from isocast.runtime.market.model import JournalSettings
from isocast.terms.ids import NodeId
from isocast.wire.journal import SEGMENT_HEADER_BYTES
from isocast.wire.journal_blocks import ReleasedBlock, encode_block

__all__ = ["TINY", "journal", "segments", "starts", "write", "write_of"]

TINY = JournalSettings(segment_bytes=1)
"""A segment for each block."""


def journal(folder: Path, settings: JournalSettings | None = None) -> Journal:
    """The journal of the samples' site."""
    return Journal.open(folder, STRIPE, SITE, settings)


def write(folder: Path, released: Sequence[ReleasedBlock], settings: JournalSettings | None = None) -> None:
    """Append all of it and close."""
    write_of(folder, STRIPE, SITE, released, settings)


def write_of(
    folder: Path, stripe: int, site: NodeId, released: Sequence[ReleasedBlock], settings: JournalSettings | None = None
) -> None:
    """The same for the journal of any site."""
    with Journal.open(folder, stripe, site, settings) as opened:
        for one in released:
            opened.append(one)


def segments(folder: Path) -> list[Path]:
    """The files, oldest first."""
    return sorted(folder.glob("*.isoj"))


def starts(released: Sequence[ReleasedBlock]) -> list[int]:
    """Where each block begins when all are in one segment, and where the last ends."""
    found = [SEGMENT_HEADER_BYTES]
    for one in released:
        found.append(found[-1] + encode_block(one).header.block_bytes)
    return found
