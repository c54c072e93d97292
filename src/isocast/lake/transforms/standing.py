"""The quotes that stand at each event, whole blocks at a time: of its own floor, and the best of all floors.

A quote speaks of one side; with a quantity of 0 it withdraws it. A block is sorted by symbol, events of a symbol keep
their order, and floor after floor of all symbols at once the newest quote up to each row is found: nothing is done
event by event. What stands at the end of a block is where the next one begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from isocast.terms.market import EventKind, Side
from isocast.ticker.records import NO_ASK, NO_BID, PRICE_LIMIT, stable_order

__all__ = ["Coded", "EventBlock", "SideAt", "StandingQuotes", "code_pairs"]

Integers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Coded:
    """A column of names as numbers: `names[codes]` is the column."""

    codes: Integers
    names: list[str]


@dataclass(frozen=True, slots=True)
class EventBlock:
    """Events of one stripe, in order."""

    symbol: Coded
    floor: Coded
    kind: npt.NDArray[np.int8]
    side: npt.NDArray[np.int8]
    price: Integers
    quantity: Integers


@dataclass(frozen=True, slots=True)
class SideAt:
    """One side of the market at each event of a block; a size of 0 means that nobody quotes it."""

    price: Integers
    size: Integers
    """Of the event's own floor."""
    best: Integers
    best_size: Integers
    """Of all floors: the best price, and how much there is at it together."""


@dataclass(slots=True)
class _Side:
    """What stands on one side of each line."""

    number: Side
    worst: int
    price: Integers
    size: Integers
    is_known: Mask
    """Whether anybody spoke of the side, if only to withdraw it."""

    def best(self, one: Integers, other: Integers) -> Integers:
        return np.maximum(one, other) if self.number is Side.BUY else np.minimum(one, other)

    def grow(self, count: int) -> None:
        more = count - len(self.price)
        self.price = np.concatenate([self.price, np.full(more, self.worst)])
        self.size = np.concatenate([self.size, np.zeros(more, np.int64)])
        self.is_known = np.concatenate([self.is_known, np.zeros(more, np.bool_)])


class StandingQuotes:
    """Quotes of every line, a symbol on a floor, as they stand."""

    def __init__(self) -> None:
        """Nobody quotes anything."""
        empty = np.empty(0, np.int64)
        unknown = np.empty(0, np.bool_)
        self.bid = _Side(Side.BUY, NO_BID, empty, empty, unknown)
        self.ask = _Side(Side.SELL, NO_ASK, empty, empty, unknown)
        self.lines: list[tuple[str, str]] = []
        """Symbol and floor of each line."""
        self._numbers: dict[tuple[str, str], int] = {}
        self._symbols: dict[str, int] = {}
        self._members: list[list[int]] = []
        self._rank: Integers = empty

    def line_numbers(self, pairs: list[tuple[str, str]]) -> Integers:
        """The lines of some pairs of symbol and floor; new ones are added."""
        found = [self._numbers.get(pair, -1) for pair in pairs]
        for place, number in enumerate(found):
            if number < 0:
                found[place] = self._add(pairs[place])
        if len(self.lines) > len(self._rank):
            self._rank = np.empty(len(self.lines), np.int64)
            for members in self._members:
                self._rank[members] = np.arange(len(members))
            for side in (self.bid, self.ask):
                side.grow(len(self.lines))
        return np.array(found, np.int64)

    def _add(self, pair: tuple[str, str]) -> int:
        number = self._numbers.setdefault(pair, len(self.lines))
        if number == len(self.lines):
            self.lines.append(pair)
            symbol = self._symbols.setdefault(pair[0], len(self._members))
            if symbol == len(self._members):
                self._members.append([])
            self._members[symbol].append(number)
        return number

    def set(self, side: Side, lines: Integers, price: Integers, size: Integers) -> None:
        """Quotes that stand from before."""
        to = self.bid if side is Side.BUY else self.ask
        to.size[lines] = size
        to.price[lines] = np.where(size > 0, price, to.worst)
        to.is_known[lines] = True

    def take(self, block: EventBlock) -> None:
        """Quotes of a block, when nobody asks what stood in between."""
        line = self._lines_of(block)
        believed = _believed(block)
        for side in (self.bid, self.ask):
            at = np.flatnonzero(believed & (block.side == side.number))
            # Of several quotes of a line numpy keeps the last one, which is the newest.
            self.set(side.number, line[at], block.price[at], block.quantity[at])

    def follow(self, block: EventBlock) -> tuple[SideAt, SideAt]:
        """Bid and ask behind each event of a block, which is taken."""
        line = self._lines_of(block)
        order = stable_order(block.symbol.codes, max(len(block.symbol.names), 1))
        line = line[order]
        symbol = block.symbol.codes[order]
        believed = _believed(block)[order]
        sides = block.side[order]
        made = []
        for side in (self.bid, self.ask):
            quotes = np.flatnonzero(believed & (sides == side.number))
            chosen = order[quotes]
            size = block.quantity[chosen]
            price = np.where(size > 0, block.price[chosen], side.worst)
            made.append(self._follow_side(side, _Sorted(order, line, symbol, quotes, price, size)))
        return made[0], made[1]

    def _lines_of(self, block: EventBlock) -> Integers:
        codes, pairs = code_pairs(block.symbol, block.floor)
        return self.line_numbers(pairs)[codes]

    def _follow_side(self, side: _Side, rows: _Sorted) -> SideAt:
        """Of all rows, in their own order: what stands on a side of their line, and the best of their symbol."""
        starts = rows.symbol_starts()
        members = [self._members[self._symbols[self.lines[number][0]]] for number in rows.line[starts].tolist()]
        counts = np.array([len(each) for each in members], np.int64)
        group = rows.groups(starts)
        quote_group = group[rows.quotes]
        quote_first = np.searchsorted(quote_group, np.arange(len(starts)))
        rank = self._rank[rows.line]
        # Row 0 stands for what stood before: a quote's number is one more than its place.
        newest = _newest(rank[rows.quotes], quote_first[quote_group], int(counts.max(initial=0)))
        last = rows.last_quote(quote_first[group])
        at_line = np.where(last > 0, newest[rank, last], 0)
        before_price, before_size = side.price[rows.line], side.size[rows.line]
        price = np.where(at_line > 0, np.append(0, rows.price)[at_line], before_price)
        size = np.where(at_line > 0, np.append(0, rows.size)[at_line], before_size)
        best, best_size = _best_of(side, rows, newest, quote_group, members)
        first_best, first_size = _standing_best(side, members)
        best = np.where(last > 0, np.append(0, best)[last], first_best[group])
        best_size = np.where(last > 0, np.append(0, best_size)[last], first_size[group])
        self._keep(side, rows)
        return SideAt(*(rows.restored(column) for column in (price, size, best, best_size)))

    def _keep(self, side: _Side, rows: _Sorted) -> None:
        lines = rows.line[rows.quotes]
        side.price[lines] = rows.price
        side.size[lines] = rows.size
        side.is_known[lines] = True


@dataclass(frozen=True, slots=True)
class _Sorted:
    """Rows of a block by symbol, and which of them are believed quotes of one side."""

    order: Integers
    line: Integers
    symbol: Integers
    quotes: Integers
    price: Integers
    size: Integers

    def symbol_starts(self) -> Integers:
        if not len(self.symbol):
            return np.empty(0, np.int64)
        return np.flatnonzero(np.concatenate([[True], self.symbol[1:] != self.symbol[:-1]]))

    def groups(self, starts: Integers) -> Integers:
        """Which symbol of the block each row is of, from 0 on."""
        return np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(self.symbol))))

    def last_quote(self, first: Integers) -> Integers:
        """One more than the number of the newest quote of its symbol at each row; 0 where there is none yet."""
        marks = np.zeros(len(self.symbol), np.int64)
        marks[self.quotes] = np.arange(1, len(self.quotes) + 1)
        last = np.maximum.accumulate(marks)
        return np.where(last > first, last, 0)

    def restored(self, column: Integers) -> Integers:
        """Rows in the block's own order."""
        out = np.empty_like(column)
        out[self.order] = column
        return out


def _newest(rank: Integers, first: Integers, ranks: int) -> npt.NDArray[np.int32]:
    """[floor, quote + 1]: one more than the newest quote of each floor of the symbol, 0 if none of this block."""
    numbers = np.arange(1, len(rank) + 1, dtype=np.int32)
    newest = np.zeros((ranks, len(rank) + 1), np.int32)
    for floor in range(ranks):
        last = np.maximum.accumulate(np.where(rank == floor, numbers, np.int32(0)))
        newest[floor, 1:] = np.where(last > first, last, 0)
    return newest


def _best_of(
    side: _Side, rows: _Sorted, newest: npt.NDArray[np.int32], group: Integers, members: list[list[int]]
) -> tuple[Integers, Integers]:
    """The best of all floors behind each quote, and the size at it."""
    price, size = np.append(0, rows.price), np.append(0, rows.size)
    floors = []
    for floor in range(len(newest)):
        own = np.array([each[floor] if floor < len(each) else -1 for each in members], np.int64)
        has = own >= 0
        standing = np.where(has, side.price[own], side.worst)[group]
        standing_size = np.where(has, side.size[own], 0)[group]
        at = newest[floor, 1:]
        floors.append((np.where(at > 0, price[at], standing), np.where(at > 0, size[at], standing_size)))
    best = np.full(len(rows.price), side.worst)
    for prices, _ in floors:
        best = side.best(best, prices)
    total = np.zeros(len(rows.price), np.int64)
    for prices, sizes in floors:
        total += np.where(prices == best, sizes, 0)
    return best, total


def _standing_best(side: _Side, members: list[list[int]]) -> tuple[Integers, Integers]:
    """The best of each symbol before the block."""
    if not members:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    lines = np.concatenate([np.array(each, np.int64) for each in members])
    counts = np.array([len(each) for each in members])
    starts = np.cumsum(counts) - counts
    price = side.price[lines]
    reduce = np.maximum if side.number is Side.BUY else np.minimum
    best = reduce.reduceat(price, starts)
    at_best = np.where(price == np.repeat(best, counts), side.size[lines], 0)
    return best, np.add.reduceat(at_best, starts)


def _believed(block: EventBlock) -> Mask:
    """Quotes of a side and a symbol, at a price that can be; a side that is withdrawn needs no price."""
    nameless = np.array([not name for name in block.symbol.names], np.bool_)
    good = (block.kind == EventKind.QUOTE) & (block.side != Side.NONE)
    if nameless.any():
        good &= ~nameless[block.symbol.codes]
    price = block.price
    believed: Mask = good & ((block.quantity == 0) | ((price != 0) & (price <= PRICE_LIMIT) & (price >= -PRICE_LIMIT)))
    return believed


def code_pairs(one: Coded, other: Coded) -> tuple[Integers, list[tuple[str, str]]]:
    """Pairs of names as numbers, and the pairs that occur."""
    width = max(len(other.names), 1)
    codes = one.codes * width + other.codes
    occurs = np.zeros(max(len(one.names), 1) * width, np.bool_)
    occurs[codes] = True
    places = np.flatnonzero(occurs)
    numbers = np.cumsum(occurs) - 1
    pairs = [(one.names[place // width], other.names[place % width]) for place in places.tolist()]
    return numbers[codes], pairs
