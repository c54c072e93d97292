"""Addresses for scopes: which scopes overlap, and no two of those share an address (protocol §7).

Scopes that overlap are joined by an edge, addresses are colours, and DSATUR colours the scope next that has the
fewest addresses left to choose from. Addresses are numbers from 0; `AddressPool` turns them into groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import combinations
from typing import TypeAlias

import numpy as np

from isocast.reformation.scopes.lines import links_of
from isocast.reformation.scopes.nearest import overlapping, within
from isocast.reformation.scopes.world import CoverageWorld, Floats, Ints

__all__ = ["Neighbours", "assign", "clique", "fewer", "neighbours", "overlaps"]


Neighbours: TypeAlias = Sequence[Sequence[int]]
"""For each scope those that overlap it."""

_ROUNDS_MAX = 24
"""Bounds: what so many rounds of `fewer` did not find, hours may not."""
_MOVED_MAX = 2
"""Neighbours that move for one scope."""


def neighbours(count: int, first: Ints, second: Ints) -> Neighbours:
    """Of each scope, in order, from the pairs that overlap."""
    ends = np.concatenate((first, second))
    others = np.concatenate((second, first))
    order = np.lexsort((others, ends))
    start = np.searchsorted(ends[order], np.arange(count + 1)).tolist()
    listed = others[order].tolist()
    return [listed[start[place] : start[place + 1]] for place in range(count)]


def assign(
    near: Neighbours, wanting: Sequence[int], kept: Mapping[int, int], barred: Mapping[int, int]
) -> dict[int, int]:
    """An address for each scope that wants one, beside those that are kept; `barred` has bits of those it may not."""
    given = dict(kept)
    taken = {scope: barred.get(scope, 0) | _seen(near[scope], given) for scope in wanting}
    heap = [(-taken[scope].bit_count(), -len(near[scope]), scope) for scope in wanting]
    heapify(heap)
    while heap:
        saturation, _, scope = heappop(heap)
        if scope in given or -saturation != taken[scope].bit_count():
            continue
        address = _lowest_free(taken[scope])
        given[scope] = address
        bit = 1 << address
        for other in near[scope]:
            if other in taken and other not in given and not taken[other] & bit:
                taken[other] |= bit
                heappush(heap, (-taken[other].bit_count(), -len(near[other]), other))
    return {scope: given[scope] for scope in wanting}


def fewer(near: Neighbours, given: Mapping[int, int]) -> dict[int, int]:
    """The same scopes with as many addresses or fewer.

    Scopes that share an address do not overlap, so handing out the lowest free address group by group, in another
    order, never needs more than before, and often less. Then the highest address goes, if everybody who has it finds
    another one from which one or two neighbours can move away.
    """
    best = dict(given)
    current = best
    for number in range(_ROUNDS_MAX):
        current = _again(near, _reordered(current, number))
        if len(set(current.values())) < len(set(best.values())):
            best = current
    while (eased := _without_highest(near, best)) is not None:
        best = eased
    return best


def _without_highest(near: Neighbours, given: Mapping[int, int]) -> dict[int, int] | None:
    """The same with one address less; None if a scope cannot be moved to another address."""
    highest = max(given.values(), default=0)
    eased = dict(given)
    for scope in [scope for scope, address in given.items() if address == highest]:
        if not any(_takes(near, eased, scope, address, highest) for address in range(highest)):
            return None
    return eased if highest else None


def _takes(near: Neighbours, given: dict[int, int], scope: int, address: int, below: int) -> bool:
    """Whether a scope got this address, after the neighbours who have it moved to others below a limit."""
    holders = [other for other in near[scope] if given.get(other) == address]
    if len(holders) > _MOVED_MAX:
        return False
    before = {other: given[other] for other in (*holders, scope)}
    for other in holders:
        free = _lowest_free(_seen(near[other], given) | 1 << address)
        if free >= below:
            given.update(before)
            return False
        given[other] = free
    given[scope] = address
    return True


def _reordered(given: Mapping[int, int], number: int) -> list[int]:
    groups: dict[int, list[int]] = {}
    for scope, address in given.items():
        groups.setdefault(address, []).append(scope)
    ordered = [groups[address] for address in sorted(groups)]
    match number % 3:
        case 0:
            ordered.reverse()
        case 1:
            ordered.sort(key=len, reverse=True)
        case _:
            ordered = ordered[1::2] + ordered[::2]
    return [scope for group in ordered for scope in group]


def _again(near: Neighbours, order: Sequence[int]) -> dict[int, int]:
    given: dict[int, int] = {}
    for scope in order:
        given[scope] = _lowest_free(_seen(near[scope], given))
    return given


def clique(near: Neighbours, scopes: Sequence[int]) -> list[int]:
    """Scopes that all overlap one another, as many as a greedy search finds: no plan needs fewer addresses."""
    best: list[int] = []
    sets = {scope: frozenset(near[scope]) for scope in scopes}
    for scope in sorted(scopes, key=lambda place: (-len(near[place]), place)):
        if len(near[scope]) < len(best):
            break
        found, open_to = [scope], sets[scope]
        while open_to:
            chosen = max(sorted(open_to), key=lambda place: len(open_to & sets[place]))
            found.append(chosen)
            open_to = open_to & sets[chosen]
        if len(found) > len(best):
            best = sorted(found)
    return best


def _seen(near: Sequence[int], given: Mapping[int, int]) -> int:
    mask = 0
    for other in near:
        address = given.get(other)
        if address is not None:
            mask |= 1 << address
    return mask


def _lowest_free(mask: int) -> int:
    return (~mask & (mask + 1)).bit_length() - 1


# Which scopes overlap: those that share ground, and those that share a customer by a measured link.


def overlaps(world: CoverageWorld, radii: Floats) -> tuple[Ints, Ints]:
    """All pairs of receivers whose scopes some customer could hear both, the lower number first.

    Ground counts whether a customer stands there or not: one may come. A measured link can reach beyond the ground
    of a scope; then the customers who are there decide.
    """
    centres = world.surface.to_space(world.receivers.where)
    first, second = overlapping(world.surface, centres, radii)
    linked = _by_links(world, centres, radii)
    if not linked:
        return first, second
    keys = np.unique(np.concatenate((first * len(centres) + second, [a * len(centres) + b for a, b in linked])))
    return keys // len(centres), keys % len(centres)


def _by_links(world: CoverageWorld, centres: Floats, radii: Floats) -> list[tuple[int, int]]:
    links = links_of(world)
    if not len(links.customer):
        return []
    customers = np.unique(links.customer)
    places = world.surface.to_space(world.customers.where[customers])
    receiver, customer, _ = within(world.surface, centres, radii, places)
    hears: dict[int, set[int]] = {}
    for who, whom in zip(customers[customer].tolist(), receiver.tolist(), strict=True):
        hears.setdefault(who, set()).add(whom)
    for who, whom, km in zip(links.customer.tolist(), links.receiver.tolist(), links.km.tolist(), strict=True):
        # A link that is too lossy to rely on still brings packets.
        if 0 < radii[whom] >= km:
            hears.setdefault(who, set()).add(whom)
    pairs = {pair for heard in hears.values() for pair in combinations(sorted(heard), 2)}
    return sorted(pairs)
