"""What must hold in every state that is reached, judged from what an observer remembers of the nodes.

Memories only grow, so that whatever two nodes ever did is still there when the later one of them has done it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

from isocast.simulation.exploration.bounds import Bounds
from isocast.simulation.exploration.node import Memory
from isocast.terms.ids import Epoch, describe

__all__ = ["AGREEMENT", "CERTIFIED", "Properties"]

AGREEMENT = "agreement"
"""S1: no two sites release different messages under one sequence number."""
CERTIFIED = "certified is kept"
"""S9: what a majority held in one epoch is part of every ring that is decided above it."""


class Properties:
    """Judges tuples of memories; each distinct one once."""

    def __init__(self, bounds: Bounds, chain: Mapping[bytes, bytes], *, stories_only: bool = False) -> None:
        """`chain` gives the digest before a token's; `stories_only`: look for two different stories alone."""
        self._stories_only = stories_only
        self._chain = chain
        self._need = bounds.sites // 2 + 1
        self._memories: list[Memory] = []
        self._numbers: dict[str, int] = {}
        self._judged: dict[tuple[int, ...], tuple[str, str] | None] = {}

    def number(self, memory: Memory) -> int:
        """One number for equal memories."""
        key = repr(memory)
        known = self._numbers.get(key)
        if known is None:
            known = self._numbers[key] = len(self._memories)
            self._memories.append(memory)
        return known

    def broken(self, numbers: tuple[int, ...]) -> tuple[str, str] | None:
        """The first property that these memories, one for each node, break together; and how."""
        try:
            return self._judged[numbers]
        except KeyError:
            verdict = self._judged[numbers] = self._judge([self._memories[number] for number in numbers])
            return verdict

    def _judge(self, memories: list[Memory]) -> tuple[str, str] | None:
        stories = _two_stories(memories)
        if stories is not None or self._stories_only:
            return stories
        for memory in memories:
            if memory.flaw is not None:
                return memory.flaw
        return self._forgotten(memories)

    def _forgotten(self, memories: list[Memory]) -> tuple[str, str] | None:
        """A ring that lacks what a majority held in an epoch below it."""
        held: dict[Epoch, list[tuple[int, bytes]]] = {}
        for memory in memories:
            for epoch, number, digest in memory.holdings:
                held.setdefault(epoch, []).append((number, digest))
        for memory in memories:
            for ballot, _, cut, digest in memory.rings:
                for epoch, holdings in held.items():
                    level = sorted([number for number, _ in holdings], reverse=True)[self._need - 1 : self._need]
                    if epoch < ballot and level and not self._covers(cut, digest, level[0], holdings):
                        what = f"the ring of {ballot} begins after token {cut} and lacks token {level[0]}"
                        return CERTIFIED, f"{what}, which a majority held in epoch {epoch}"
        return None

    def _covers(self, cut: int, digest: bytes, level: int, holdings: list[tuple[int, bytes]]) -> bool:
        """Whether the log that ends with the cut has token `level` as its holders have it."""
        if cut < level:
            return False
        wanted = {self._down(number, end, level) for number, end in holdings if number >= level}
        return self._down(cut, digest, level) in wanted

    def _down(self, number: int, digest: bytes, level: int) -> bytes:
        """The chained digest at `level` of the log that ends with this one."""
        while number > level:
            number, digest = number - 1, self._chain[digest]
        return digest


def _two_stories(memories: list[Memory]) -> tuple[str, str] | None:
    told = [(place + 1, journal) for place, memory in enumerate(memories) for journal in memory.journals if journal]
    for (one, first), (other, second) in combinations(told, 2):
        for sequence, (here, there) in enumerate(zip(first, second, strict=False), 1):
            if here != there:
                what = f"sequence {sequence} is {here} at {describe(one)} and {there} at {describe(other)}"
                return AGREEMENT, what
    return None
