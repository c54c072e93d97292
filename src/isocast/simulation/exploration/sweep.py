"""The search of `search`, a hundred thousand states at a time.

Of a state that was visited, 64 bits are remembered, and where it was reached from.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from isocast.simulation.exploration.lookup import Integers, Seen, Words, mixed
from isocast.simulation.exploration.market import Market
from isocast.simulation.exploration.merging import Merging
from isocast.simulation.exploration.moving import Columns, Moving, Settling
from isocast.simulation.exploration.rows import Grown, Numbers, pair
from isocast.simulation.exploration.search import Found, SearchProgress

__all__ = ["sweep"]

_BATCH = 1 << 17
_SALT = np.uint64(0x9E3779B97F4A7C15)


def sweep(market: Market, states_max: int = 0, progress: Callable[[SearchProgress], None] | None = None) -> Found:
    """Search until a property breaks, all states are visited, or `states_max` is reached (0: no limit)."""
    return _Sweep(market, states_max, progress).run()


class _Sweep:
    """One search."""

    def __init__(self, market: Market, states_max: int, progress: Callable[[SearchProgress], None] | None) -> None:
        self._market = market
        self._states_max = states_max
        self._progress = progress
        self._nodes = range(len(market.nodes))
        self._settling = Settling(market)
        self._merging = Merging(market)
        self._moving = [Moving(market, node) for node in self._nodes]
        self._spent = [
            [Grown(partial(self._spent_of, node, kind), market.places[node].__len__) for node in self._nodes]
            for kind in range(len(market.limits))
        ]
        self._memories = [Grown(table.memories.__getitem__, table.__len__) for table in market.places]
        self._folded: list[tuple[int, ...]] = [()]
        self._fold_numbers: dict[tuple[int, ...], int] = {(): 0}
        self._folds = [Numbers(self._fold) for _ in self._nodes]
        self._seen = Seen()
        self._parents: list[NDArray[np.uint32]] = []
        self._transitions = self._ends = 0
        self._broken: tuple[int, tuple[str, str]] | None = None
        self._wanted: dict[int, int] = {}
        """Numbers of states that are looked for, and what they are."""

    # Layers -------------------------------------------------------------------------------------

    def run(self) -> Found:
        first = self._market.start()
        layer = [np.array([place], np.int32) for place in self._market.unpacked(first)]
        self._seen.add(self._fingerprints(layer))
        broken = self._market.broken(first)
        depth, base = 0, 0
        whole = broken is None
        while broken is None and layer[0].size:
            layer, done = self._next_layer(layer, base, depth)
            if self._broken is not None:
                broken = self._broken[1]
            if broken is not None or not done:
                whole = False
                depth += broken is not None
                break
            base = self._seen.count - layer[0].size
            depth += bool(layer[0].size)
        self._merging.verify()
        trace = self._trace(self._broken[0]) if self._broken is not None else ()
        return Found(self._seen.count, self._transitions, depth, whole, broken, trace, self._ends)

    def _next_layer(self, layer: Columns, base: int, depth: int) -> tuple[Columns, bool]:
        """The states that follow, and whether all were looked at."""
        found: list[Columns] = []
        done = True
        for first in range(0, layer[0].size, _BATCH):
            part = [column[first : first + _BATCH] for column in layer]
            new, parents = self._followers(part)
            self._parents.append((parents + (base + first)).astype(np.uint32))
            found.append(new)
            if self._wanted:
                self._keep(new)
            else:
                self._judge(new)
            if self._progress is not None:
                self._progress(SearchProgress(self._seen.count, self._transitions, depth))
            if self._broken is not None or (self._states_max and self._seen.count >= self._states_max):
                done = False
                break
        return [np.concatenate([new[node] for new in found]) for node in self._nodes], done

    def _followers(self, part: Columns) -> tuple[Columns, Integers]:
        """The new states that one event makes of these, and which of these each came from."""
        left = self._left(part)
        reached: list[Columns] = []
        origins: list[Integers] = []
        for node in self._nodes:
            moved = list(self._moving[node].moves(part, left))
            origin = np.concatenate([rows for rows, _ in moved])
            columns = [column[origin] for column in part]
            columns[node] = np.concatenate([after for _, after in moved])
            self._settling.settle(columns, node)
            reached.append(columns)
            origins.append(origin)
        parents = np.concatenate(origins)
        columns = [np.concatenate([some[node] for some in reached]) for node in self._nodes]
        self._transitions += parents.size
        self._ends += part[0].size - np.unique(parents).size
        # In the order of the states that they come from, as a plain search meets them: its traces are found here too.
        order = np.argsort(parents, kind="stable")
        fresh = order[self._seen.add(self._fingerprints(columns)[order])]
        return [column[fresh] for column in columns], parents[fresh]

    def _left(self, part: Columns) -> list[NDArray[np.bool_]]:
        """For each kind of restart, in which of the states one more may happen."""
        return [
            sum([of(column) for of, column in zip(spent, part, strict=True)], np.zeros(part[0].size, np.int32)) < limit
            for spent, limit in zip(self._spent, self._market.limits, strict=True)
        ]

    def _spent_of(self, node: int, kind: int, place: int) -> int:
        return self._market.places[node].spent[place][kind]

    def _fingerprints(self, columns: Columns) -> Words:
        words = np.full(columns[0].size, _SALT)
        for column in self._merging.merged(columns):
            words = mixed(words + column.astype(np.uint64) * _SALT)
        words[words == 0] = 1
        return words

    # Traces -------------------------------------------------------------------------------------

    def _trace(self, last: int) -> tuple[int, ...]:
        """What happened on the way to a state: the same search once more, which looks out for those on the way."""
        parents = np.concatenate(self._parents)
        chain = [last]
        while chain[-1]:
            chain.append(int(parents[chain[-1] - 1]))
        again = _Sweep(self._market, last + 1, None)
        again._wanted = dict.fromkeys(chain, -1)
        again.run()
        states = [again._wanted[number] for number in reversed(chain)]
        steps = zip([self._market.start(), *states[1:]], states[1:], strict=False)
        return tuple([next(move for move, to in self._market.moves(here) if to == there) for here, there in steps])

    def _keep(self, columns: Columns) -> None:
        count = columns[0].size
        first = self._seen.count - count
        for number in self._wanted:
            if first <= number < first + count:
                self._wanted[number] = self._market.packed([int(column[number - first]) for column in columns])

    # Properties ---------------------------------------------------------------------------------

    def _fold(self, number: int, memory: int) -> int:
        memories = (*self._folded[number], memory)
        known = self._fold_numbers.get(memories)
        if known is None:
            known = self._fold_numbers[memories] = len(self._folded)
            self._folded.append(memories)
        return known

    def _judge(self, columns: Columns) -> None:
        """Look at the memories of new states; the first that breaks a property ends the search."""
        numbers = np.zeros(columns[0].size, np.int32)
        for of, column, fold in zip(self._memories, columns, self._folds, strict=True):
            numbers = fold(pair(numbers, of(column)))
        distinct, firsts = np.unique(numbers, return_index=True)
        verdicts = [
            (first, broken)
            for number, first in zip(distinct.tolist(), firsts.tolist(), strict=True)
            if (broken := self._market.properties.broken(self._folded[number])) is not None
        ]
        if verdicts:
            first, broken = min(verdicts)
            self._broken = (self._seen.count - columns[0].size + first, broken)
