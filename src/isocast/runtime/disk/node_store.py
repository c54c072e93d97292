"""What the stores of sites, sources and servers have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from isocast.ring.effects import Record
from isocast.runtime.disk.store import Store
from isocast.runtime.disk.store_segments import Frame
from isocast.runtime.disk.store_settings import StoreCounters

__all__ = ["NodeStore", "nothing_loose"]


class NodeStore(ABC):
    """A node's state on disk. When `append` returns, the record is as durable as the settings say."""

    def __init__(self, store: Store) -> None:
        """On top of an open directory."""
        self._store = store

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    @property
    def counters(self) -> StoreCounters:
        """What the store did."""
        return self._store.counters

    @property
    def loss(self) -> str:
        """What was missing, when the store was opened, of what it had acknowledged; empty if nothing was."""
        return self._store.loss

    def append(self, record: Record) -> None:
        """Make one record durable."""
        self.append_many((record,))

    @abstractmethod
    def append_many(self, records: Sequence[Record]) -> None:
        """Make records durable together: one write, and one fdatasync where power failures count."""

    @abstractmethod
    def snapshot(self) -> Frame:
        """What a segment begins with now."""

    def check(self) -> None:
        """StoreGone if its files were removed, replaced or cut while it was open; about once a second."""
        self._store.check()

    def close(self) -> None:
        """Bring everything to the disk, note where it ends, and let go of the directory."""
        self._store.close()

    def abandon(self) -> None:
        """Let go of the directory as the end of the process would."""
        self._store.abandon()


def nothing_loose(_kind: int, _checked: bytes, loose: bytes) -> None:
    """For stores whose frames are checked whole."""
    if loose:
        raise ValueError("bytes without a checksum")
