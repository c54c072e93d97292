"""Who is first by city, how far from ½ each pair of cities is, and how much is out of its true order in time.

**First place.** Of the orders of one contest the one that enters first; those that enter at the same time share it. Of
n cities that are all alike each has 1/n.

**A pair.** The share of the contests in which the first order of one city enters before that of the other; at the same
time counts half. With n contests chance alone is off by 1/(2√n), its standard error.

**Out of sequence.** CloudEx (Ghalayini et al., HotOS 2021) calls an order *out of sequence* if it enters after an order
with a later timestamp: its time is earlier than that of the order processed just before it. Its inbound unfairness
ratio is the share of such orders. Here the time is the true one, at which the trader decided; orders that enter at the
same time are in no order, hence none of them is out of it.

The two measures ask different things. A die is fair to every city, and puts nearly half of the orders out of sequence;
a clock that is always ahead in one city puts few out of sequence, and always the same city's.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import sqrt

import numpy as np

from isocast.reformation.scopes.world import Floats, Ints
from isocast.studies.entry.stream import OrderStream
from isocast.terms.topology import City, delay_ns

__all__ = ["EntryFigures", "Pair", "arrival_share", "entry_figures", "shuffle_share"]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two cities, and how often the first was before the second."""

    first: str
    second: str
    contests: int
    share: float

    @property
    def distance(self) -> float:
        """From ½."""
        return self.share - 0.5

    @property
    def standard_errors(self) -> float:
        """The distance as chance measures it."""
        return self.distance * 2 * sqrt(self.contests)

    def as_json(self) -> dict[str, object]:
        """One entry of a list."""
        return {
            "first": self.first,
            "second": self.second,
            "contests": self.contests,
            "share": self.share,
            "distance": self.distance,
            "standard_errors": self.standard_errors,
        }


@dataclass(frozen=True, slots=True)
class EntryFigures:
    """What came of one stream under one rule."""

    rule: str
    orders: int
    contests: int
    """In which at least two cities compete."""
    first: dict[str, float]
    """Share of first places, by city."""
    pairs: tuple[Pair, ...]
    out_of_sequence: float
    """Share of the orders."""

    @property
    def worst(self) -> Pair | None:
        """The pair that is furthest from ½; None if no two cities ever competed."""
        return max(self.pairs, key=lambda pair: abs(pair.distance), default=None)

    def pair(self, first: str, second: str) -> Pair | None:
        """These two, in this order; None if they never competed."""
        for found in self.pairs:
            if (found.first, found.second) == (first, second):
                return found
            if (found.first, found.second) == (second, first):
                return Pair(first, second, found.contests, 1 - found.share)
        return None

    def as_json(self) -> dict[str, object]:
        """One object."""
        worst = self.worst
        return {
            "rule": self.rule,
            "orders": self.orders,
            "contests": self.contests,
            "first": self.first,
            "worst": None if worst is None else worst.as_json(),
            "out_of_sequence": self.out_of_sequence,
            "pairs": [pair.as_json() for pair in self.pairs],
        }


def entry_figures(stream: OrderStream, ranks: Ints | Floats, rule: str) -> EntryFigures:
    """Judge the order in which a stream's orders entered."""
    best = np.full((stream.contests, len(stream.names)), np.inf)
    np.minimum.at(best, (stream.contest, stream.city), ranks)
    there = np.isfinite(best)
    best, there = best[there.sum(1) > 1], there[there.sum(1) > 1]
    won = best == best.min(1, keepdims=True, initial=np.inf)
    shares = (won / won.sum(1, keepdims=True)).mean(0) if len(best) else np.zeros(len(stream.names))
    pairs = []
    for one, two in combinations(range(len(stream.names)), 2):
        both = there[:, one] & there[:, two]
        count = int(both.sum())
        if count:
            before = (best[both, one] < best[both, two]).mean() + (best[both, one] == best[both, two]).mean() / 2
            pairs.append(Pair(stream.names[one], stream.names[two], count, float(before)))
    return EntryFigures(
        rule,
        stream.orders,
        len(best),
        dict(zip(stream.names, shares.tolist(), strict=True)),
        tuple(pairs),
        _out_of_sequence(stream.instants, ranks),
    )


def _out_of_sequence(instants: Ints, ranks: Ints | Floats) -> float:
    """Orders whose true time is before that of the order just before them; those of one rank stand as they happened."""
    if not len(instants):
        return 0.0
    entered = instants[np.lexsort((instants, ranks))]
    return float((np.diff(entered) < 0).sum()) / len(instants)


# What the shares must be where two traders decide at one instant, delays are constant and nothing is lost (protocol
# §11).


def arrival_share(ring: tuple[City, ...], first: City, second: City, token_period_ns: int) -> float:
    """The share of owners that are nearer to the first, each weighed by the time in which its token decides a pair."""
    near = [min(delay_ns(first, owner), delay_ns(second, owner)) for owner in ring]
    won = 0
    for place, owner in enumerate(ring):
        if delay_ns(first, owner) < delay_ns(second, owner):
            won += token_period_ns - near[place] + near[place - 1]
    return won / (len(ring) * token_period_ns)


def shuffle_share(ring: tuple[City, ...], first: City, second: City, token_period_ns: int) -> float:
    """½+mean(d_B-d_A)/(2τ_t): being nearer helps only where the token's cut falls between the two arrivals."""
    ahead = sum(delay_ns(second, owner) - delay_ns(first, owner) for owner in ring)
    return 0.5 + ahead / len(ring) / (2 * token_period_ns)
