"""The search of `search`, a hundred thousand states at a time: hash tables and successors as arrays.

Of a state that was visited, 64 bits are remembered, and where it was reached from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import permutations
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from isocast.simulation.exploration.market import TransitionSystem
from isocast.simulation.exploration.search import Found, SearchProgress

__all__ = [
    "Columns",
    "Grown",
    "Integers",
    "Lookup",
    "Merging",
    "Moving",
    "Numbers",
    "Rows",
    "Seen",
    "Settling",
    "Targets",
    "Words",
    "mixed",
    "pair",
    "sweep",
]


# Hash tables of 64-bit keys that take and answer whole arrays of them at a time.


Words = NDArray[np.uint64]
Integers = NDArray[np.int64]

_SLOTS = 1 << 12
_FULL = 0.7
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))


def mixed(words: Words) -> Words:
    """A permutation of the 64-bit numbers in which every bit depends on every bit."""
    words = words ^ words >> _SHIFTS[0]
    words *= _MULTIPLIERS[0]
    words ^= words >> _SHIFTS[1]
    words *= _MULTIPLIERS[1]
    words ^= words >> _SHIFTS[2]
    return words


class Seen:
    """A set of keys other than 0, open addressing, a key next to where it belongs."""

    def __init__(self) -> None:
        """Nothing was seen."""
        self._slots = np.zeros(_SLOTS, np.uint64)
        self.count = 0

    def add(self, keys: Words) -> Integers:
        """Where in `keys` those stand that are new, each once, at its first place."""
        fresh = np.flatnonzero(~self._holds(keys))
        if not fresh.size:
            return fresh
        _, first = np.unique(keys[fresh], return_index=True)
        fresh = fresh[np.sort(first)]
        while self.count + fresh.size > _FULL * self._slots.size:
            self._grow()
        self._insert(keys[fresh])
        self.count += fresh.size
        return fresh

    def _mask(self) -> np.uint64:
        return np.uint64(self._slots.size - 1)

    def _holds(self, keys: Words) -> NDArray[np.bool_]:
        found = np.zeros(keys.size, np.bool_)
        places, rest = keys & self._mask(), np.arange(keys.size)
        while rest.size:
            there = self._slots[places]
            same = there == keys[rest]
            found[rest[same]] = True
            on = (there != 0) & ~same
            rest, places = rest[on], places[on] + np.uint64(1) & self._mask()
        return found

    def _insert(self, keys: Words) -> None:
        """Insert distinct new keys: a key that loses a free slot to another goes on to the next."""
        places = keys & self._mask()
        while keys.size:
            free = self._slots[places] == 0
            self._slots[places[free]] = keys[free]
            on = self._slots[places] != keys
            keys, places = keys[on], places[on] + np.uint64(1) & self._mask()

    def _grow(self) -> None:
        old = self._slots
        self._slots = np.zeros(2 * old.size, np.uint64)
        step = 1 << 20
        for first in range(0, old.size, step):
            part = old[first : first + step]
            self._insert(part[part != 0])


class Lookup:
    """Numbers by key; a key is below 2^63."""

    def __init__(self) -> None:
        """Empty."""
        self._keys = np.zeros(_SLOTS, np.uint64)
        self._values = np.zeros(_SLOTS, np.int32)
        self._count = 0

    def get(self, keys: Words) -> NDArray[np.int32]:
        """The number of each key; -1 where there is none."""
        marked = keys + np.uint64(1)
        values = np.full(keys.size, -1, np.int32)
        mask = np.uint64(self._keys.size - 1)
        places = mixed(marked) & mask
        there = self._keys[places]
        same = there == marked
        values[same] = self._values[places[same]]
        rest = np.flatnonzero(~same & (there != 0))
        places = places[rest] + np.uint64(1) & mask
        while rest.size:
            there = self._keys[places]
            same = there == marked[rest]
            values[rest[same]] = self._values[places[same]]
            on = (there != 0) & ~same
            rest, places = rest[on], places[on] + np.uint64(1) & mask
        return values

    def put(self, keys: Words, values: NDArray[np.int32]) -> None:
        """Keys that differ and are not there yet."""
        while self._count + keys.size > _FULL * self._keys.size:
            self._grow()
        self._count += keys.size
        self._insert(keys + np.uint64(1), values)

    def _insert(self, marked: Words, values: NDArray[np.int32]) -> None:
        mask = np.uint64(self._keys.size - 1)
        places = mixed(marked) & mask
        while marked.size:
            free = self._keys[places] == 0
            self._keys[places[free]] = marked[free]
            mine = self._keys[places] == marked
            self._values[places[mine]] = values[mine]
            on = ~mine
            marked, values, places = marked[on], values[on], places[on] + np.uint64(1) & mask

    def _grow(self) -> None:
        keys, values = self._keys, self._values
        self._keys = np.zeros(2 * keys.size, np.uint64)
        self._values = np.zeros(2 * keys.size, np.int32)
        there = keys != 0
        self._insert(keys[there], values[there])


# What follows from what, as arrays: computed once for each key, and looked up for a million keys at a time.


Targets = NDArray[np.int32]

_HALF = np.uint64(32)
_FIRST_SIZE = 1 << 10


def pair(first: NDArray[Any], second: NDArray[Any]) -> Words:
    """One key for two numbers below 2^31."""
    return first.astype(np.uint64) << _HALF | second.astype(np.uint64)


def _missing(keys: Words, found: Targets) -> Words:
    return np.unique(keys[found < 0])


class Grown:
    """An array that follows a list which only grows."""

    def __init__(self, number: Callable[[int], int], length: Callable[[], int]) -> None:
        """`number` of each place, of which there are `length`."""
        self._number = number
        self._length = length
        self._values = np.zeros(_FIRST_SIZE, np.int32)
        self._count = 0

    def __call__(self, places: Targets) -> Targets:
        """The numbers of these places."""
        if self._count < self._length():
            self._follow(self._length())
        return self._values[places]

    def _follow(self, count: int) -> None:
        while count > self._values.size:
            self._values = np.concatenate([self._values, np.zeros_like(self._values)])
        self._values[self._count : count] = [self._number(place) for place in range(self._count, count)]
        self._count = count


class Numbers:
    """One number for each key."""

    def __init__(self, compute: Callable[[int, int], int]) -> None:
        """`compute` says it, from both halves of a key."""
        self._compute = compute
        self._known = Lookup()

    def __call__(self, keys: Words) -> Targets:
        """The numbers of these keys."""
        found = self._known.get(keys)
        if found.size and found.min() < 0:
            missing = _missing(keys, found)
            made = [self._compute(key >> 32, key & 0xFFFFFFFF) for key in missing.tolist()]
            self._known.put(missing, np.array(made, np.int32))
            found = self._known.get(keys)
        return found


class Rows:
    """Several numbers for each key."""

    def __init__(self, compute: Callable[[int, int], Sequence[int]]) -> None:
        """`compute` says them, from both halves of a key."""
        self._numbers = Numbers(self._row)
        self._compute = compute
        self._starts: list[int] = [0]
        self._targets: list[int] = []
        self._arrays = (np.zeros(1, np.int64), np.zeros(0, np.int32))
        self._ids: dict[tuple[int, ...], int] = {}

    def _row(self, first: int, second: int) -> int:
        """The number of a row; equal rows are one."""
        row = tuple(self._compute(first, second))
        known = self._ids.get(row)
        if known is None:
            known = self._ids[row] = len(self._ids)
            self._targets.extend(row)
            self._starts.append(len(self._targets))
        return known

    def __call__(self, keys: Words) -> tuple[Integers, Targets]:
        """(which of the keys, a number of it) for all numbers of all keys, in the order of the keys."""
        ids = self._numbers(keys)
        if self._arrays[0].size < len(self._starts):
            self._arrays = (np.array(self._starts, np.int64), np.array(self._targets, np.int32))
        starts, targets = self._arrays
        begin = starts[ids]
        counts = starts[ids + 1] - begin
        origins = np.repeat(np.arange(keys.size), counts)
        ends = np.cumsum(counts)
        within = np.arange(origins.size) - np.repeat(ends - counts, counts)
        return origins, targets[begin[origins] + within]


# What happens to many states at once: a state is a row, and there is a column of places for each node.
#
# Which letters of one node change another depends on the places of these two alone. So it is looked up pair by pair,
# for all states of a batch together, and Python runs only for pairs that were never met.


Columns: TypeAlias = list[Targets]


class _Classes:
    """What each place of a node has sent to another, by number; 0 is nothing."""

    def __init__(self, market: TransitionSystem, sender: int, to: int, kinds: Callable[[], int]) -> None:
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

    def __init__(self, market: TransitionSystem) -> None:
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

    def __init__(self, market: TransitionSystem, node: int) -> None:
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


# States that need not be told apart: they differ in nothing but votes which nobody will ever count.
#
# A server that has no ballot open and may begin none counts no vote again. Two states with the same machines, disks,
# clocks and memories, and with the same letters under way but for votes to such servers, have the same future: what one
# can do, the other can, and both lead to states that are alike in the same way. So one of them is explored.


class Merging:
    """One number for places that differ in nothing but votes which nobody will ever count."""

    def __init__(self, market: TransitionSystem) -> None:
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


_BATCH = 1 << 17
_SALT = np.uint64(0x9E3779B97F4A7C15)


def sweep(
    market: TransitionSystem, states_max: int = 0, progress: Callable[[SearchProgress], None] | None = None
) -> Found:
    """Search until a property breaks, all states are visited, or `states_max` is reached (0: no limit)."""
    return _Sweep(market, states_max, progress).run()


class _Sweep:
    """One search."""

    def __init__(
        self, market: TransitionSystem, states_max: int, progress: Callable[[SearchProgress], None] | None
    ) -> None:
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
