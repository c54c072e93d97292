"""What happens to many states at once: a state is a row, and there is a column of places for each node.

Which letters of one node change another depends on the places of these two alone. So it is looked up pair by pair, for
all states of a batch together, and Python runs only for pairs that were never met.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import permutations
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from isocast.simulation.exploration.lookup import Integers
from isocast.simulation.exploration.market import Market
from isocast.simulation.exploration.rows import Grown, Numbers, Rows, Targets, pair

__all__ = ["Columns", "Moving", "Settling"]

Columns: TypeAlias = list[Targets]


class _Classes:
    """What each place of a node has sent to another, by number; 0 is nothing."""

    def __init__(self, market: Market, sender: int, to: int, kinds: Callable[[], int]) -> None:
        self._market = market
        self._table = market.places[sender]
        self._to = to
        self._kinds = kinds
        self._numbers = {0: 0}
        self.letters = [0]
        self.of = Grown(self._number, self._table.__len__)

    def _number(self, place: int) -> int:
        letters = self._table.sent[place] & self._market.mail.addressed[self._to] & self._kinds()
        known = self._numbers.get(letters)
        if known is None:
            known = self._numbers[letters] = len(self.letters)
            self.letters.append(letters)
        return known


class Settling:
    """Lets receipts and requests arrive at once, and ballots begin."""

    def __init__(self, market: Market) -> None:
        """For the states of one market."""
        self._market = market
        self._kinds = []
        for site, sender in permutations(market.sites, 2):
            for name in ("requests", "receipts"):
                classes = _Classes(market, sender, site, partial(getattr, market.mail, name))
                after = partial(self._after, site, classes)
                self._kinds.append((site, sender, classes.of, Numbers(after)))
        self._ballots = [
            (node, Grown(market.places[node].ballot, market.places[node].__len__)) for node in market.servers
        ]

    def _after(self, site: int, classes: _Classes, place: int, number: int) -> int:
        return self._market.places[site].receipted(place, classes.letters[number])

    def settle(self, columns: Columns, moved: int) -> None:
        """Of states that were settled until one node moved, in place."""
        if not self._market.bounds.eager:
            return
        if moved in self._market.sites:
            rows = self._round(columns, None, moved)
            while rows.size:
                rows = self._round(columns, rows, None)
        for node, after in self._ballots:
            if node == moved:
                columns[node] = after(columns[node])

    def _round(self, columns: Columns, among: Integers | None, moved: int | None) -> Integers:
        """One arrival of everything that the moved node said or hears; the rows that it changed."""
        changed = []
        for site, sender, of, after in self._kinds:
            if moved is not None and moved not in (site, sender):
                continue
            said = of(columns[sender] if among is None else columns[sender][among])
            rows = np.flatnonzero(said)
            if not rows.size:
                continue
            said = said[rows]
            if among is not None:
                rows = among[rows]
            before = columns[site][rows]
            reached = after(pair(before, said))
            different = np.flatnonzero(reached != before)
            if different.size:
                columns[site][rows[different]] = reached[different]
                changed.append(rows[different])
        return np.unique(np.concatenate(changed)) if changed else np.zeros(0, np.int64)


class Moving:
    """Everything that can happen to one node of many states at once."""

    def __init__(self, market: Market, node: int) -> None:
        """`node`: its place among the nodes."""
        table = market.places[node]
        self._node = node
        self._market = market
        self._table = table
        self._alone = Rows(lambda place, _: [after for _, after, kind in table.others(place) if kind is None])
        self._restarts = [
            Rows(partial(self._restarted, kind)) if limit else None for kind, limit in enumerate(market.limits)
        ]
        self._gathered = market.bounds.gathered_votes and node in market.servers
        everything = -1
        self._heard = [
            (sender, _Classes(market, sender, node, lambda: everything))
            for sender in range(len(market.nodes))
            if sender != node
        ]
        self._arrivals = [Rows(partial(self._arrived, classes)) for _, classes in self._heard]
        self._letters = [0]
        self._letter_numbers = {0: 0}
        self._unions = [Numbers(partial(self._union, classes)) for _, classes in self._heard]
        self._decisions = Rows(self._decided)

    def _restarted(self, kind: int, place: int, _: int) -> list[int]:
        return [after for _, after, other in self._table.others(place) if other == kind]

    def _arrived(self, classes: _Classes, place: int, number: int) -> list[int]:
        return [after for _, after in self._table.arrivals(place, classes.letters[number])]

    def _union(self, classes: _Classes, letters: int, number: int) -> int:
        both = self._letters[letters] | classes.letters[number]
        known = self._letter_numbers.get(both)
        if known is None:
            known = self._letter_numbers[both] = len(self._letters)
            self._letters.append(both)
        return known

    def _decided(self, place: int, letters: int) -> list[int]:
        return [after for _, after in self._table.decisions(place, self._letters[letters])]

    def moves(self, columns: Columns, left: list[NDArray[np.bool_]]) -> Iterator[tuple[Integers, Targets]]:
        """(which state, where the node goes)."""
        mine = columns[self._node]
        nothing = np.zeros(mine.size, np.int32)
        yield self._alone(pair(mine, nothing))
        for rows, allowed in zip(self._restarts, left, strict=True):
            if rows is not None:
                may = np.flatnonzero(allowed)
                origins, after = rows(pair(mine[may], nothing[may]))
                yield may[origins], after
        if self._gathered:
            letters = nothing
            for (sender, classes), union in zip(self._heard, self._unions, strict=True):
                if self._market.mail.addressed[self._node]:
                    letters = union(pair(letters, classes.of(columns[sender])))
            yield self._decisions(pair(mine, letters))
            return
        if not self._market.mail.addressed[self._node]:
            return
        for (sender, classes), arrivals in zip(self._heard, self._arrivals, strict=True):
            said = classes.of(columns[sender])
            some = np.flatnonzero(said)
            if some.size:
                origins, after = arrivals(pair(mine[some], said[some]))
                yield some[origins], after
