"""Counts that add up: whole numbers only, so that any order of adding gives the same bits."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from isocast.reformation.scopes.surface import Floats, Ints

__all__ = ["DELAYS", "DISTANCES", "OFFSETS", "Bins", "Column", "EdgeTally"]


@dataclass(frozen=True, slots=True)
class Bins:
    """Equal steps from `low` on; what lies below or above is counted in the first or the last."""

    low: float
    step: float
    count: int

    def tally(self, values: Floats) -> Ints:
        """How many values fall into each bin."""
        places = np.clip(np.floor((values - self.low) / self.step), 0, self.count - 1).astype(np.int64)
        return np.bincount(places, minlength=self.count)

    def quantile(self, counts: Ints, share: float) -> float:
        """The upper end of the bin in which a share of all values is reached; nan for none."""
        total = int(counts.sum())
        if not total:
            return float("nan")
        wanted = max(int(np.ceil(share * total)), 1)
        return self.low + (int(np.searchsorted(np.cumsum(counts), wanted)) + 1) * self.step

    def middles(self) -> Floats:
        """Of all bins, for plots."""
        middles: Floats = self.low + (np.arange(self.count, dtype=np.float64) + 0.5) * self.step
        return middles


DELAYS = Bins(low=-400e6, step=0.1e6, count=12_000)
"""Delivery after the common instant: tenths of a millisecond up to 0.8 s."""
OFFSETS = Bins(low=-400e6, step=0.05e6, count=16_000)
"""A receiver's release against the common instant: any clock error that δ_N = .375 allows."""
DISTANCES = Bins(low=0.0, step=1.0, count=4_000)
"""In km."""


class Column(IntEnum):
    """What is counted for each server, over its customers and all messages."""

    CUSTOMERS = 0
    HEAR_NONE = 1
    HEAR_ONE = 2
    HEAR_TWO = 3
    """Or more."""
    EXPECTED = 4
    """Deliveries that there should be: messages times customers who hear a line."""
    LOST_NEAREST = 5
    """Copies of the nearest line that did not come."""
    LOST_ALL = 6
    """Messages of which no line brought a copy."""
    REQUESTS = 7
    """RXREQ that the server was sent."""
    REPAIRS = 8
    """Messages that the server multicast again."""
    REPAIRED = 9
    NEVER = 10
    """Messages that a customer had not got after k_r requests."""
    IN_TIME = 11
    """Deliveries by the deadline."""
    IN_TIME_DIRECT = 12
    """Of these, by the lines themselves."""
    EXPECTED_DIRECT = 13
    """What the formula expects for the row above, in millionths."""
    DELAY_SUM = 14
    """Of all deliveries, in ns after the common instant."""
    DELAY_MAX = 15
    """Not added: the greatest."""
    WAVE_MAX = 16
    """The most requests for one message. Not added: the greatest."""


@dataclass(eq=False)
class EdgeTally:
    """The counts of some servers, and the distributions over all their customers."""

    servers: Ints
    table: Ints
    """A row for each server, a column for each `Column`."""
    listeners: Ints
    """Customers who hear the line of each receiver of the planet."""
    delays: Ints = field(default_factory=lambda: np.zeros(DELAYS.count, dtype=np.int64))
    nearest: Ints = field(default_factory=lambda: np.zeros(DISTANCES.count, dtype=np.int64))
    """How far customers are from the nearest receiver, heard or not ..."""
    second: Ints = field(default_factory=lambda: np.zeros(DISTANCES.count, dtype=np.int64))
    """... and from the second nearest."""

    @classmethod
    def empty(cls, servers: Ints, receivers: int) -> EdgeTally:
        """Nothing counted yet."""
        table = np.zeros((len(servers), len(Column)), dtype=np.int64)
        return cls(servers, table, np.zeros(receivers, dtype=np.int64))

    def total(self, column: Column) -> int:
        """Over all servers."""
        values = self.table[:, column]
        return int(values.max(initial=0)) if column in (Column.DELAY_MAX, Column.WAVE_MAX) else int(values.sum())

    def add(self, other: EdgeTally) -> EdgeTally:
        """Both together, servers in the order of their numbers."""
        servers = np.concatenate((self.servers, other.servers))
        order = np.argsort(servers, kind="stable")
        return EdgeTally(
            servers[order],
            np.concatenate((self.table, other.table))[order],
            self.listeners + other.listeners,
            self.delays + other.delays,
            self.nearest + other.nearest,
            self.second + other.second,
        )
