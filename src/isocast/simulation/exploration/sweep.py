"""The search of `search`, a hundred thousand states at a time.

A state is a column of places, one for each node. Which letters of one node change another depends on the places of
these two alone, so it is looked up pair by pair for all states of a batch, and Python runs only for pairs that were
never met. Of a state that was visited, 64 bits are remembered, and where it was reached from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from isocast.simulation.exploration.lookup import Integers, Seen, Words, mixed
from isocast.simulation.exploration.market import Market
from isocast.simulation.exploration.rows import Grown, Numbers, Rows, Targets, pair
from isocast.simulation.exploration.search import Found, Progress

__all__ = ["sweep"]

_BATCH = 1 << 17
_SALT = np.uint64(0x9E3779B97F4A7C15)
_LIMIT = 1 << 31

_Columns = list[Targets]


def sweep(market: Market, states_max: int = 0, progress: Callable[[Progress], None] | None = None) -> Found:
    """Search until a property breaks, all states are visited, or `states_max` is reached (0: no limit)."""
    return _Sweep(market, states_max, progress).run()


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


class _Settling:
    """Lets receipts and requests arrive at once, and ballots begin."""

    def __init__(self, market: Market) -> None:
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

    def settle(self, columns: _Columns, moved: int) -> None:
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

    def _round(self, columns: _Columns, among: Integers | None, moved: int | None) -> Integers:
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


class _Merging:
    """One number for places that differ in nothing but votes which nobody will ever count."""

    def __init__(self, market: Market) -> None:
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

    def merged(self, columns: _Columns) -> _Columns:
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


class _Moving:
    """Everything that can happen to one node of many states at once."""

    def __init__(self, market: Market, node: int) -> None:
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

    def moves(self, columns: _Columns, left: list[NDArray[np.bool_]]) -> Iterator[tuple[Integers, Targets]]:
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


class _Sweep:
    """One search."""

    def __init__(self, market: Market, states_max: int, progress: Callable[[Progress], None] | None) -> None:
        self._market = market
        self._states_max = states_max
        self._progress = progress
        self._nodes = range(len(market.nodes))
        self._settling = _Settling(market)
        self._merging = _Merging(market)
        self._moving = [_Moving(market, node) for node in self._nodes]
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

    def _next_layer(self, layer: _Columns, base: int, depth: int) -> tuple[_Columns, bool]:
        """The states that follow, and whether all were looked at."""
        found: list[_Columns] = []
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
                self._progress(Progress(self._seen.count, self._transitions, depth))
            if self._broken is not None or (self._states_max and self._seen.count >= self._states_max):
                done = False
                break
        return [np.concatenate([new[node] for new in found]) for node in self._nodes], done

    def _followers(self, part: _Columns) -> tuple[_Columns, Integers]:
        """The new states that one event makes of these, and which of these each came from."""
        left = self._left(part)
        ends = np.ones(part[0].size, np.bool_)
        new: list[_Columns] = []
        origins: list[Integers] = []
        for node in self._nodes:
            moved = list(self._moving[node].moves(part, left))
            origin = np.concatenate([rows for rows, _ in moved])
            if not origin.size:
                continue
            columns = [column[origin] for column in part]
            columns[node] = np.concatenate([after for _, after in moved])
            self._settling.settle(columns, node)
            self._transitions += origin.size
            ends[origin] = False
            fresh = self._seen.add(self._fingerprints(columns))
            new.append([column[fresh] for column in columns])
            origins.append(origin[fresh])
        self._ends += int(ends.sum())
        if not new:
            return [column[:0] for column in part], np.zeros(0, np.int64)
        return [np.concatenate([some[node] for some in new]) for node in self._nodes], np.concatenate(origins)

    def _left(self, part: _Columns) -> list[NDArray[np.bool_]]:
        """For each kind of restart, in which of the states one more may happen."""
        return [
            sum([of(column) for of, column in zip(spent, part, strict=True)], np.zeros(part[0].size, np.int32)) < limit
            for spent, limit in zip(self._spent, self._market.limits, strict=True)
        ]

    def _spent_of(self, node: int, kind: int, place: int) -> int:
        return self._market.places[node].spent[place][kind]

    def _fingerprints(self, columns: _Columns) -> Words:
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
        again._wanted = dict.fromkeys(chain, -1)  # noqa: SLF001 (one of its own kind)
        again.run()
        states = [again._wanted[number] for number in reversed(chain)]  # noqa: SLF001
        steps = zip([self._market.start(), *states[1:]], states[1:], strict=False)
        return tuple([next(move for move, to in self._market.moves(here) if to == there) for here, there in steps])

    def _keep(self, columns: _Columns) -> None:
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

    def _judge(self, columns: _Columns) -> None:
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
