"""How far each receiver remulticasts: every customer hears k sources, over as little ground as can be had.

Two moves on a plan that already serves everybody, until neither helps: a scope gives up customers at its rim who hear
enough others; and it hands its outermost customers over to neighbours, if these widen by less ground than it saves.
To find the best plan of all is NP-hard; `bounds` says how far this one may be from it.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

import numpy as np

from isocast.reformation.scopes.lines import LinePairs
from isocast.reformation.scopes.surface import Floats, Ints, Surface

__all__ = ["Choice", "choose", "choose_one"]

_ROUNDS_MAX = 12
"""Bounds: the gain of later rounds is under a thousandth."""
_PEEL_MAX = 4
"""Customers that a scope hands over in one move."""
_WORTH_KM2 = 1e-6
"""A smaller gain is rounding."""


class Choice:
    """How many of its lines each receiver takes, with the number of lines that each customer hears."""

    def __init__(self, lines: LinePairs, surface: Surface, margin_km: float) -> None:
        """Nobody is served yet."""
        self._lines = lines
        self.taken = np.zeros(lines.receivers, dtype=np.int64)
        self.heard = np.zeros(len(lines.needed), dtype=np.int64)
        self._ground = surface.area(lines.km + margin_km)
        self._by_customer = np.argsort(lines.customer, kind="stable")
        self._of_customer = np.searchsorted(lines.customer[self._by_customer], np.arange(len(lines.needed) + 1))

    def serve_by_nearest(self) -> None:
        """Every customer is in the scopes of its k nearest receivers."""
        lines = self._lines
        order = np.lexsort((lines.receiver, lines.km, lines.customer))
        rank = np.arange(len(order)) - self._of_customer[lines.customer[order]]
        chosen = order[rank < lines.needed[lines.customer[order]]]
        place = chosen - lines.start[lines.receiver[chosen]]
        np.maximum.at(self.taken, lines.receiver[chosen], place + 1)
        self.recount()

    def take(self, taken: Ints) -> None:
        """Begin with these scopes."""
        self.taken = taken.copy()
        self.recount()

    def recount(self) -> None:
        """The lines that each customer hears, from the scopes."""
        lines = self._lines
        inside = np.arange(len(lines.customer)) - lines.start[lines.receiver] < self.taken[lines.receiver]
        self.heard = np.bincount(lines.customer[inside], minlength=len(lines.needed)).astype(np.int64)

    def radii(self) -> Floats:
        """The distance of each scope's farthest customer; -1 for a scope of nobody, since 0 may be somebody's."""
        if not len(self._lines.km):
            return np.full(len(self.taken), -1.0)
        last = self._lines.start[:-1] + self.taken - 1
        return np.where(self.taken > 0, self._lines.km[np.maximum(last, 0)], -1.0)

    def improve(
        self, among: Ints | None = None, takers: Container[int] | None = None, least: Ints | None = None
    ) -> None:
        """Both moves, widest scopes first, until a round changes nothing.

        Only scopes `among` give, not below their `least` lines, and only `takers` take; None means everybody, nothing.
        """
        floor = np.zeros_like(self.taken) if least is None else least
        for _ in range(_ROUNDS_MAX):
            changed = False
            for receiver in self._widest_first(among):
                self.narrow(receiver, int(floor[receiver]))
                while self._hand_over(receiver, int(floor[receiver]), takers):
                    changed = True
            if not changed:
                break
        for receiver in self._widest_first(among):
            self.narrow(receiver, int(floor[receiver]))

    def narrow_all(self) -> None:
        """The first move alone."""
        for receiver in self._widest_first(None):
            self.narrow(receiver)

    def _widest_first(self, among: Ints | None) -> list[int]:
        serving = np.flatnonzero(self.taken) if among is None else among[self.taken[among] > 0]
        widest: list[int] = serving[np.argsort(-self.radii()[serving], kind="stable")].tolist()
        return widest

    def narrow(self, receiver: int, least: int = 0) -> None:
        """Give up the customers at the rim who hear enough others; the first `least` lines stay."""
        inside, bound = self._inside(receiver)
        keep = max(int(bound[-1]) + 1 if len(bound) else 0, least)
        if keep < len(inside):
            self.heard[inside[keep:]] -= 1
            self.taken[receiver] = keep

    def widen(self, receiver: int, taken: int) -> None:
        """Take at least so many lines."""
        begin, now = int(self._lines.start[receiver]), int(self.taken[receiver])
        if taken > now:
            self.heard[self._lines.customer[begin + now : begin + taken]] += 1
            self.taken[receiver] = taken

    def added_ground(self, receiver: int, taken: int) -> float:
        """What it costs in km² to take so many lines instead of those now."""
        return self._cost(receiver, taken) - self._cost(receiver, int(self.taken[receiver]))

    def ways_to(self, customer: int) -> list[tuple[int, int]]:
        """Each receiver that does not serve a customer and could, with the lines it would have to take."""
        pairs = self._by_customer[self._of_customer[customer] : self._of_customer[customer + 1]]
        receivers = self._lines.receiver[pairs]
        wanted = pairs - self._lines.start[receivers] + 1
        free = wanted > self.taken[receivers]
        return list(zip(receivers[free].tolist(), wanted[free].tolist(), strict=True))

    def _inside(self, receiver: int) -> tuple[Ints, Ints]:
        """A scope's customers, and the places among them of those who hear no more than they need."""
        begin = int(self._lines.start[receiver])
        inside = self._lines.customer[begin : begin + int(self.taken[receiver])]
        return inside, np.flatnonzero(self.heard[inside] <= self._lines.needed[inside])

    def _cost(self, receiver: int, taken: int) -> float:
        return float(self._ground[int(self._lines.start[receiver]) + taken - 1]) if taken else 0.0

    def _hand_over(self, receiver: int, least: int, takers: Container[int] | None) -> bool:
        """Whether it was worth while to give up to `_PEEL_MAX` of the outermost customers to neighbours."""
        inside, bound = self._inside(receiver)
        growth = _Growth({}, 0.0)
        now = self._cost(receiver, len(inside))
        keeps = [max(int(place) + 1, least) for place in bound[-2 : -_PEEL_MAX - 2 : -1]]
        if len(keeps) < min(_PEEL_MAX, len(bound)):
            keeps.append(least)
        gains = [now - self._cost(receiver, keep) - _WORTH_KM2 for keep in keeps]
        for place, keep, gain in zip(bound[::-1].tolist(), keeps, gains, strict=False):
            if place < least or not self._add_way(growth, receiver, int(inside[place]), takers):
                return False
            if growth.ground < gain:
                for other, taken in growth.taken.items():
                    self.widen(other, taken)
                self.heard[inside[keep:]] -= 1
                self.taken[receiver] = keep
                return True
            if growth.ground >= gains[-1]:
                return False
        return False

    def _add_way(self, growth: _Growth, giver: int, customer: int, takers: Container[int] | None) -> bool:
        """Add the cheapest way to serve one more customer from elsewhere; whether there is one."""
        best: tuple[float, int, int] | None = None
        for other, taken in self.ways_to(customer):
            if other == giver or (takers is not None and other not in takers):
                continue
            planned = growth.taken.get(other, int(self.taken[other]))
            more = self._cost(other, max(taken, planned)) - self._cost(other, planned)
            if best is None or more < best[0]:
                best = (more, other, max(taken, planned))
        if best is None:
            return False
        growth.ground += best[0]
        growth.taken[best[1]] = best[2]
        return True


@dataclass
class _Growth:
    """How neighbours would widen, and over how much more ground."""

    taken: dict[int, int]
    ground: float


def choose(lines: LinePairs, surface: Surface, margin_km: float) -> Floats:
    """For a world without a plan, how far each receiver serves; -1 for one that serves nobody."""
    choice = Choice(lines, surface, margin_km)
    choice.serve_by_nearest()
    choice.narrow_all()
    choice.improve()
    return choice.radii()


def choose_one(lines: LinePairs, surface: Surface) -> Floats:
    """The same with one radius for all: the least that serves everybody."""
    choice = Choice(lines, surface, 0.0)
    choice.serve_by_nearest()
    return np.full(lines.receivers, choice.radii().max(initial=-1.0))
