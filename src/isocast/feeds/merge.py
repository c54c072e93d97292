"""Several feeds as one, in the order of time; each feed keeps its own order, and ties go to the feed named first.

A feed's clock may step back. So that its order stays, an event counts from the latest time that its feed has shown.
What comes out does not depend on how the feeds were cut into blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from isocast.wire.events import EVENT_DTYPE, EventArray

__all__ = ["merge_feeds"]


class _Head:
    """The part of one feed that was read and is not out yet."""

    def __init__(self, blocks: Iterable[EventArray]) -> None:
        self._blocks = iter(blocks)
        self._latest = np.uint64(0)
        self.events: EventArray = np.empty(0, EVENT_DTYPE)
        self.keys: npt.NDArray[np.uint64] = np.empty(0, np.uint64)
        self.ended = False
        self.fill()

    def fill(self) -> None:
        """One more block behind what is here, or the end."""
        for block in self._blocks:
            if len(block):
                keys = np.maximum.accumulate(np.maximum(block["time"], self._latest))
                self._latest = keys[-1]
                self.events = np.concatenate([self.events, block]) if len(self.events) else block
                self.keys = np.concatenate([self.keys, keys]) if len(self.keys) else keys
                return
        self.ended = True

    def take(self, before: np.uint64 | None) -> tuple[EventArray, npt.NDArray[np.uint64]]:
        """Everything before a time; all of it without one."""
        cut = len(self.keys) if before is None else int(np.searchsorted(self.keys, before, side="left"))
        taken = self.events[:cut], self.keys[:cut]
        self.events, self.keys = self.events[cut:], self.keys[cut:]
        return taken


def merge_feeds(feeds: Sequence[Iterable[EventArray]]) -> Iterator[EventArray]:
    """Blocks of all feeds in the order of time."""
    heads = [_Head(feed) for feed in feeds]
    while True:
        heads = [head for head in heads if len(head.keys) or not head.ended]
        if not heads:
            return
        open_heads = [head for head in heads if not head.ended]
        # More events of the last time that a feed has shown may follow: only what is before is complete.
        horizon = min((head.keys[-1] for head in open_heads), default=None)
        parts = [head.take(horizon) for head in heads]
        if any(len(keys) for _, keys in parts):
            yield _interleave(parts)
        for head in open_heads:
            if horizon is not None and (not len(head.keys) or head.keys[-1] == horizon):
                head.fill()


def _interleave(parts: list[tuple[EventArray, npt.NDArray[np.uint64]]]) -> EventArray:
    filled = [part for part in parts if len(part[1])]
    if len(filled) == 1:
        return filled[0][0]
    keys = np.concatenate([keys for _, keys in filled])
    order = np.argsort(keys, kind="stable")
    return np.concatenate([events for events, _ in filled])[order]
