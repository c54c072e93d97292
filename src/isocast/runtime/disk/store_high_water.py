"""How much of a store was acknowledged: a mark beside the segments, moved after each write, before its caller goes on.

A process that is killed leaves its last write whole, in part or not at all, and nobody was told of it. Bytes below the
mark are another matter: somebody was told of them, so a store that ends before its mark has lost what was accepted,
promised or numbered.

    high-water:   slot at byte 0, slot at byte 512, written in turn, so that one of them is always whole
    slot:         "ISOW" 4 | zero 4 | segment 8 | bytes 8 | crc 4, little-endian

The mark is handed to the kernel, not to the disk: after a power failure it may be too low, and never too high, because
what it speaks of was on the disk first.
"""

from __future__ import annotations

import os
from pathlib import Path
from struct import Struct
from zlib import crc32

from isocast.runtime.disk.store_segments import Location

__all__ = ["HIGH_WATER_NAME", "HighWater", "read_high_water"]

HIGH_WATER_NAME = "high-water"
_MAGIC = b"ISOW"
_SLOT = Struct("<4s4xQQ")
_CRC = Struct("<I")
_PLACES = (0, 512)
"""Two sectors: a disk writes each of them whole or not at all."""


class HighWater:
    """The mark of a store that is open."""

    def __init__(self, directory: Path, end: Location) -> None:
        """Write a new mark, or take the old one over; OSError if the disk does not let us."""
        self.path = directory / HIGH_WATER_NAME
        existed = self.path.exists()
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._turn = 0
        self.move(end)
        self.move(end)
        if not existed:
            os.fsync(self._fd)

    def fileno(self) -> int:
        """For whoever looks after the file."""
        return self._fd

    def move(self, end: Location) -> None:
        """Everything before this place has been acknowledged, as soon as this returns."""
        fields = _SLOT.pack(_MAGIC, end.segment, end.offset)
        os.pwrite(self._fd, fields + _CRC.pack(crc32(fields)), _PLACES[self._turn])
        self._turn ^= 1

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def read_high_water(directory: Path) -> Location | None:
    """Up to where the store was acknowledged; None where nobody can tell any more."""
    try:
        content = (directory / HIGH_WATER_NAME).read_bytes()
    except OSError:
        return None
    found: list[Location] = []
    for place in _PLACES:
        slot = content[place : place + _SLOT.size + _CRC.size]
        if len(slot) < _SLOT.size + _CRC.size:
            continue
        magic, segment, offset = _SLOT.unpack_from(slot)
        if magic == _MAGIC and _CRC.unpack_from(slot, _SLOT.size)[0] == crc32(slot[: _SLOT.size]):
            found.append(Location(segment, offset))
    return max(found, default=None)
