"""Plans of scopes and addresses: made from nothing, and adjusted at a reformation with as few changes as can be (§4.3).

1. Scopes of receivers that are still there stay as they are. One that returns while its address rests gets back what
   it had.
2. Customers who hear too little are served by whoever needs the least new ground for it; a scope that has to change
   anyway is preferred to one that would not.
3. What an earlier reformation had added is given back, as far as others serve those customers now.
4. A scope keeps its address unless its new ground meets another scope with that address, or ground where it rests.
   Whoever widened moves; who did not, never does.
5. What an address leaves, a whole scope or its rim, rests for the drain time: until then nobody else uses the address
   there.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

import numpy as np

from isocast.reformation.scopes.addresses import Neighbours, assign, clique, fewer, neighbours, overlaps
from isocast.reformation.scopes.lines import LineFinder, LinePairs, possible_lines
from isocast.reformation.scopes.nearest import overlapping
from isocast.reformation.scopes.plan import Draining, Plan, Scope
from isocast.reformation.scopes.world import CoverageWorld, Floats, Ints, Surface
from isocast.terms.errors import ConfigurationError

__all__ = ["Choice", "adjust", "check_pool", "choose", "choose_one", "plan_scopes", "up_to_the_metre"]


# How far each receiver remulticasts: every customer hears k sources, over as little ground as can be had.
#
# Two moves on a plan that already serves everybody, until neither helps: a scope gives up customers at its rim who hear
# enough others; and it hands its outermost customers over to neighbours, if these widen by less ground than it saves.
# To find the best plan of all is NP-hard; `bounds` says how far this one may be from it.


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
        """The distance of each scope's farthest customer; -1 for a scope without customers."""
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


# A plan from nothing: scopes, then addresses.


_METRES = 1000


def plan_scopes(world: CoverageWorld, now: int = 0) -> Plan:
    """Scopes so that every customer hears k sources where the rules allow it, and addresses so that none overlap.

    A pure function of the world; `now`, in nanoseconds, only stands in the plan. ConfigurationError if the pool has
    too few addresses.
    """
    lines, rules = possible_lines(world), world.rules
    core = choose_one(lines, world.surface) if rules.uniform else choose(lines, world.surface, rules.margin_km)
    radii = np.where(core >= 0, up_to_the_metre(core + rules.margin_km), 0.0)
    near = neighbours(len(world.receivers), *overlaps(world, radii))
    speaking = np.flatnonzero(radii).tolist()
    given = assign(near, speaking, {}, {})
    if len(set(given.values())) > len(clique(near, speaking)):
        given = fewer(near, given)
    check_pool(world, list(given.values()))
    scopes = tuple(
        [
            Scope(name, (place[0], place[1]), radius, radius, given.get(number))
            for number, (name, place, radius) in enumerate(
                zip(world.receivers.names, world.receivers.where.tolist(), radii.tolist(), strict=True)
            )
        ]
    )
    return Plan(world.surface, world.rules.lines, now, world.pool.first, world.pool.stripes, scopes)


def up_to_the_metre(km: Floats) -> Floats:
    """Rounded up, and never 0: a customer may stand where its receiver stands."""
    return np.maximum(np.ceil(km * _METRES - 1e-7), 1.0) / _METRES


def check_pool(world: CoverageWorld, addresses: Sequence[int]) -> None:
    """ConfigurationError unless the pool has all of these."""
    wanted = max(addresses, default=-1) + 1
    if wanted > world.pool.usable:
        each = f" of {world.pool.stripes} groups each" if world.pool.stripes > 1 else ""
        rule = f"the plan needs {wanted} addresses{each}, and the pool has {world.pool.usable}"
        raise ConfigurationError(world.file, "addresses.count", rule)


_DISTURBED = 2.0
"""Ground of a scope that need not have changed counts so many times ..."""
_MOVED = 3.0
"""... and so many times if it would need another address: its customers would have to join anew."""
_REPAIR_ROUNDS_MAX = 8
"""Bounds: two rounds are the rule."""


def adjust(plan: Plan, world: CoverageWorld, now: int) -> Plan:
    """The plan for a changed world, with few changes: a pure function of the plan in force, the world and the instant.

    Receivers are the same if name and place are. ConfigurationError if plan and world do not go together, or if the
    pool has too few addresses.
    """
    _check(plan, world)
    resting = tuple([rest for rest in plan.draining if rest.free_at_ns > now])
    in_force = _in_force(plan, world, resting)
    radii = _radii(world, in_force)
    return _addressed(plan, world, now, resting, in_force, radii)


def _check(plan: Plan, world: CoverageWorld) -> None:
    if plan.surface is not world.surface:
        rule = f"the plan in force is for the {plan.surface.value}"
        raise ConfigurationError(world.file, "surface", rule)
    if (plan.first, plan.stripes) != (world.pool.first, world.pool.stripes):
        rule = f"the plan in force counts from {plan.first} by {plan.stripes}: make a new plan, and rest the old groups"
        raise ConfigurationError(world.file, "addresses.first", rule)


@dataclass(frozen=True, slots=True)
class _InForce:
    """What a receiver of the world has at the moment."""

    scope: Scope
    stays: bool
    """It had this scope until now; otherwise it is new, or returns to it."""


def _in_force(plan: Plan, world: CoverageWorld, resting: tuple[Draining, ...]) -> list[_InForce]:
    old = {scope.receiver: scope for scope in plan.scopes}
    # The latest that rests counts, and of a rim that was given back nothing returns.
    left = {rest.receiver: rest for rest in resting if rest.receiver not in old}
    found = []
    for name, row in zip(world.receivers.names, world.receivers.where.tolist(), strict=True):
        place = (row[0], row[1])
        scope, rest = old.get(name), left.get(name)
        if scope is not None and scope.place == place:
            found.append(_InForce(scope, stays=True))
        elif rest is not None and rest.place == place:
            found.append(_InForce(Scope(name, place, rest.radius_km, rest.settled_km, rest.address), stays=False))
        else:
            found.append(_InForce(Scope(name, place, 0.0, 0.0, None), stays=False))
    return found


def _radii(world: CoverageWorld, in_force: list[_InForce]) -> Floats:
    """The radius of every scope: as before, unless customers need it otherwise."""
    limit = min(world.rules.radius_max_km, world.paths.km_of_delay(world.rules.delay_max_ns))
    before = np.minimum(np.array([entry.scope.radius_km for entry in in_force], dtype=np.float64), max(limit, 0.0))
    settled = np.minimum(before, np.array([entry.scope.settled_km for entry in in_force], dtype=np.float64))
    free = {place for place, entry in enumerate(in_force) if not entry.stays}
    finder, company = LineFinder(world), _Company(world, in_force, before)
    radii, takers = before, free
    # What widened serves more than was looked at: the next round gives that back, and what the last one left stays.
    for _ in range(_REPAIR_ROUNDS_MAX):
        lines = finder.lines(radii)
        choice = Choice(lines, world.surface, world.rules.margin_km)
        held = _taken(lines, radii, world.rules.margin_km)
        choice.take(held)
        _serve(choice, lines, takers, company)
        takers = takers | set(np.flatnonzero(choice.taken > held).tolist())
        least = _taken(lines, settled, world.rules.margin_km)
        choice.improve(np.flatnonzero(choice.taken > least), takers, least)
        after = _after(choice, held, radii, settled, world.rules.margin_km)
        if np.array_equal(after, radii):
            break
        radii = after
    return radii


def _after(choice: Choice, held: Ints, before: Floats, settled: Floats, margin: float) -> Floats:
    """Radii by lines: as many lines as before, the same radius; and nobody goes below what it was planned with."""
    core = up_to_the_metre(np.maximum(choice.radii(), 0.0) + margin)
    wider, narrower = choice.taken > held, choice.taken < held
    radii = np.where(wider, core, np.where(narrower, np.maximum(core, settled), before))
    return np.where((choice.taken == 0) & narrower & (settled == 0), 0.0, radii)


def _taken(lines: LinePairs, radii: Floats, margin: float) -> Ints:
    """How many lines each scope of this radius takes; a silent one takes nobody, not even where it stands."""
    core = np.where(radii > 0, radii - margin, -1.0)
    inside = lines.km <= core[lines.receiver] + 1e-9
    return np.bincount(lines.receiver[inside], minlength=lines.receivers).astype(np.int64)


class _Company:
    """Scopes by address: who would meet another of its own address."""

    def __init__(self, world: CoverageWorld, in_force: list[_InForce], radii: Floats) -> None:
        self._surface, self._margin = world.surface, world.rules.margin_km
        self._centres = world.surface.to_space(world.receivers.where)
        self._radii = radii
        self._address = [entry.scope.address for entry in in_force]
        self._same: dict[int, list[int]] = {}
        for number, address in enumerate(self._address):
            if address is not None:
                self._same.setdefault(address, []).append(number)

    def moves(self, receiver: int, km: float) -> bool:
        """Whether a scope that serves so far needs another address, as things are."""
        address = self._address[receiver]
        if address is None:
            return False
        same = np.array([number for number in self._same[address] if number != receiver], dtype=np.int64)
        away = self._surface.to_arc(np.linalg.norm(self._centres[same] - self._centres[receiver], axis=1))
        return bool((away <= self._radii[same] + km + self._margin).any())


def _serve(choice: Choice, lines: LinePairs, free: set[int], company: _Company) -> None:
    """Widen scopes until everybody hears what they can: the hardest to reach first, since that serves others too."""
    wanting = np.flatnonzero(choice.heard < lines.needed).tolist()
    ways = {who: choice.ways_to(who) for who in wanting}
    ground = {who: min([choice.added_ground(*way) for way in ways[who]], default=0.0) for who in wanting}
    changed = set(free)
    for who in sorted(wanting, key=lambda place: (-ground[place], place)):
        while choice.heard[who] < lines.needed[who]:
            costs = []
            for receiver, taken in choice.ways_to(who):
                weight = 1.0 if receiver in changed else _DISTURBED
                if company.moves(receiver, float(lines.km[lines.start[receiver] + taken - 1])):
                    weight *= _MOVED
                costs.append((choice.added_ground(receiver, taken) * weight, receiver, taken))
            _, receiver, taken = min(costs)
            choice.widen(receiver, taken)
            changed.add(receiver)


def _addressed(
    plan: Plan, world: CoverageWorld, now: int, resting: tuple[Draining, ...], in_force: list[_InForce], radii: Floats
) -> Plan:
    near = neighbours(len(radii), *overlaps(world, radii))
    free_at = now + world.pool.drain_ns
    kept = {
        number: entry.scope.address
        for number, entry in enumerate(in_force)
        if entry.scope.address is not None and radii[number] > 0
    }
    rests = [*resting, *_left(plan, world, radii, free_at)]
    while True:
        moving = _movers(world, radii, near, kept, in_force, rests)
        if not moving:
            break
        for number in moving:
            scope = in_force[number].scope
            if in_force[number].stays:
                rests.append(_rest(scope, kept[number], free_at))
            del kept[number]
    wanting = [number for number in np.flatnonzero(radii).tolist() if number not in kept]
    everywhere = world.pool.drain_everywhere
    barred = _barred_everywhere(world, rests, wanting) if everywhere else _barred(world, radii, rests, wanting)
    given = kept | assign(near, wanting, kept, barred)
    check_pool(world, list(given.values()))
    scopes = tuple(
        [
            _settled(entry, float(radius), given.get(number))
            for number, (entry, radius) in enumerate(zip(in_force, radii, strict=True))
        ]
    )
    back = {scope.receiver: scope for scope in scopes}
    rests = [rest for rest in rests if not _covered(rest, back.get(rest.receiver))]
    return Plan(plan.surface, world.rules.lines, now, plan.first, plan.stripes, scopes, tuple(rests))


def _settled(entry: _InForce, radius: float, address: int | None) -> Scope:
    scope = entry.scope
    new = scope.address is None and not entry.stays
    settled = radius if new else min(scope.settled_km, radius)
    return replace(scope, radius_km=radius, settled_km=settled, address=address)


def _covered(rest: Draining, scope: Scope | None) -> bool:
    """Whether its own scope uses the address there again."""
    return (
        scope is not None
        and (scope.place, scope.address) == (rest.place, rest.address)
        and scope.radius_km >= rest.radius_km
    )


def _rest(scope: Scope, address: int, free_at: int) -> Draining:
    return Draining(scope.receiver, scope.place, scope.radius_km, scope.settled_km, address, free_at)


def _left(plan: Plan, world: CoverageWorld, radii: Floats, free_at: int) -> list[Draining]:
    """What scopes leave by failing, by falling silent or by narrowing."""
    now = {
        (name, (row[0], row[1])): radius
        for name, row, radius in zip(world.receivers.names, world.receivers.where.tolist(), radii.tolist(), strict=True)
    }
    return [
        _rest(scope, scope.address, free_at)
        for scope in plan.scopes
        if scope.address is not None and now.get((scope.receiver, scope.place), 0.0) < scope.radius_km
    ]


def _movers(
    world: CoverageWorld,
    radii: Floats,
    near: Neighbours,
    kept: dict[int, int],
    in_force: list[_InForce],
    rests: list[Draining],
) -> list[int]:
    """Scopes that cannot keep their address: they share it with a neighbour, or it rests where they are now."""
    grown = {
        number for number in kept if not in_force[number].stays or radii[number] > in_force[number].scope.radius_km
    }
    barred = _barred(world, radii, rests, sorted(grown))
    moving = {number for number in grown if barred[number] >> kept[number] & 1}
    # Two that did not grow meet only by a link that is new.
    for number in sorted(kept, key=lambda place: (place not in grown, -len(near[place]), place)):
        if number not in moving and any(
            kept.get(other) == kept[number] and other not in moving for other in near[number]
        ):
            moving.add(number)
    return sorted(moving)


def _barred(world: CoverageWorld, radii: Floats, rests: list[Draining], scopes: list[int]) -> dict[int, int]:
    """Bits of the addresses that rest where a scope is; its own do not bar it."""
    barred = dict.fromkeys(scopes, 0)
    if not rests or not scopes:
        return barred
    names = [world.receivers.names[number] for number in scopes]
    places = np.vstack((world.receivers.where[scopes], np.array([rest.place for rest in rests])))
    sizes = np.concatenate((radii[scopes], np.array([rest.radius_km for rest in rests])))
    first, second = overlapping(world.surface, world.surface.to_space(places), sizes)
    # The lower number of a pair is a scope, the higher one rests; pairs of a kind do not matter here.
    mixed = (first < len(scopes)) & (second >= len(scopes))
    for a, b in zip(first[mixed].tolist(), (second[mixed] - len(scopes)).tolist(), strict=True):
        if rests[b].receiver != names[a]:
            barred[scopes[a]] |= 1 << rests[b].address
    return barred


def _barred_everywhere(world: CoverageWorld, rests: list[Draining], scopes: list[int]) -> dict[int, int]:
    """Bits of all addresses that rest; a scope's own do not bar it."""
    every = {rest.address: {other.receiver for other in rests if other.address == rest.address} for rest in rests}
    return {
        number: sum([1 << address for address, owners in every.items() if owners != {world.receivers.names[number]}])
        for number in scopes
    }
