"""States that need not be told apart: they differ in nothing but votes which nobody will ever count.

A server that has no ballot open and may begin none counts no vote again. Two states with the same machines, disks,
clocks and memories, and with the same letters under way but for votes to such servers, have the same future: what one
can do, the other can, and both lead to states that are alike in the same way. So one of them is explored.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from isocast.simulation.exploration.market import Market
from isocast.simulation.exploration.moving import Columns
from isocast.simulation.exploration.rows import Grown, Numbers, pair

__all__ = ["Merging"]


class Merging:
    """One number for places that differ in nothing but votes which nobody will ever count."""

    def __init__(self, market: Market) -> None:
        """For the states of one market; idle unless its bounds ask for it."""
        self._market = market
        self._closed = [
            Grown(partial(self._closed_bit, bit, node), market.places[node].__len__)
            for bit, node in enumerate(market.servers)
        ]
        self._known: list[dict[tuple[int, int], int]] = [{} for _ in market.sites]
        self._merged = [Numbers(partial(self._number, site)) for site in market.sites]
        self._on = market.bounds.dead_votes and market.bounds.gathered_votes

    def _closed_bit(self, bit: int, node: int, place: int) -> int:
        return self._market.places[node].closed(place) << bit

    def _number(self, site: int, place: int, closed: int) -> int:
        market, dead = self._market, 0
        for bit, node in enumerate(market.servers):
            if closed >> bit & 1:
                dead |= market.mail.addressed[node] & market.mail.votes
        known = self._known[site]
        return known.setdefault(market.places[site].but(place, dead), len(known))

    def merged(self, columns: Columns) -> Columns:
        """The same columns, with one number for places that need not be told apart."""
        if not self._on:
            return columns
        closed = np.zeros(columns[0].size, np.int32)
        for node, of in zip(self._market.servers, self._closed, strict=True):
            closed |= of(columns[node])
        sites = [merge(pair(columns[site], closed)) for site, merge in enumerate(self._merged)]
        return [*sites, *columns[len(sites) :]]

    def verify(self) -> None:
        """Let every vote that was ever cast arrive at every closed server: none may heed it."""
        for node in self._market.servers if self._on else ():
            table, votes = self._market.places[node], self._market.mail.addressed[node] & self._market.mail.votes
            for place in range(len(table)):
                if table.closed(place) and table.heeds(place, votes):
                    raise RuntimeError("a server that was taken to count no more votes does: the reduction is wrong")
