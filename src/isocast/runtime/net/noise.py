"""Who sends what is refused: a count for each address, of which the noisiest are named.

An address is what the network says, and can be forged where routers do not check it: it tells people where to look, and
decides nothing. Counting is bounded: of more addresses than are remembered, the quietest is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest

__all__ = ["ADDRESSES_MAX", "LOUD", "Noise"]

ADDRESSES_MAX = 256
"""Addresses that are remembered at once, some 50 kB."""
NAMED_MAX = 8
"""Addresses that status and metrics name."""
LOUD = 1_000
"""Refused datagrams in a second for which an address is worth an alarm; mistakes and restarts make a few."""


class Noise:
    """The refused datagrams of one node, by the address that they came from."""

    def __init__(self) -> None:
        """Nobody was refused yet."""
        self._counts: dict[str, int] = {}
        self._told: dict[str, int] = {}

    def note(self, origins: Sequence[tuple[str, int]], refused: Sequence[int]) -> None:
        """Of a burst, what came from where, as (address, how many) in order; and which of it was refused, by place."""
        counts = self._counts
        at, end = -1, 0
        address = ""
        for place in refused:
            while place >= end and at + 1 < len(origins):
                at += 1
                address, count = origins[at]
                end += count
            counts[address] = counts.get(address, 0) + 1
        while len(counts) > ADDRESSES_MAX:
            del counts[min(counts, key=counts.__getitem__)]

    def loudest(self) -> dict[str, int]:
        """The noisiest addresses, with all that was refused of them."""
        return dict(nlargest(NAMED_MAX, self._counts.items(), key=lambda entry: entry[1]))

    def fresh(self) -> dict[str, int]:
        """Addresses of which many datagrams were refused since this was last asked; once a second is meant."""
        grown = {address: count - self._told.get(address, 0) for address, count in self._counts.items()}
        self._told = dict(self._counts)
        return {address: count for address, count in grown.items() if count >= LOUD}
