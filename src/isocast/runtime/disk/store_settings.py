"""How a store writes and what it counts."""

from __future__ import annotations

from dataclasses import dataclass

from isocast.runtime.market.model import Durability

__all__ = ["StoreCounters", "StoreSettings"]


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """How a store writes, and how much of the past it keeps."""

    durability: Durability = Durability.PROCESS
    segment_bytes: int = 64 << 20
    """A new segment begins once one is as long."""
    keep_bytes: int = 512 << 20
    """How much of a site's log is kept, for peers that were away, beyond what it needs itself."""

    @property
    def keep_segments(self) -> int:
        """`keep_bytes` in segments, the one that grows included."""
        return max(1, self.keep_bytes // self.segment_bytes)


@dataclass(slots=True)
class StoreCounters:
    """What a store did since it was opened; `torn_bytes` at its opening."""

    records: int = 0
    bytes: int = 0
    syncs: int = 0
    segments_begun: int = 0
    segments_removed: int = 0
    torn_bytes: int = 0
    """Cut off the end: a write that the last process did not come to finish."""
    entries_read: int = 0
