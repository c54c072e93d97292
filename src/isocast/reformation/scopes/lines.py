"""Which receivers a customer may hear: those within reach, and those whose path was measured and is good enough."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isocast.reformation.scopes.nearest import nearest, within
from isocast.reformation.scopes.world import CoverageWorld, Floats, Ints, MeasuredPath

__all__ = ["LinePairs", "LinkTable", "links_of", "possible_lines"]

_SPARE = 4
"""Receivers beyond the k nearest that a customer may be handed over to."""
_NOBODY = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0))


@dataclass(frozen=True, eq=False)
class LinePairs:
    """Pairs of a customer and a receiver, sorted by receiver, then by distance.

    A scope takes a receiver's first pairs, so that it is one number; pair p of receiver i is `start[i]+p`.
    """

    start: Ints
    customer: Ints
    receiver: Ints
    km: Floats
    """The distance that counts: by measured delay, where there is one."""
    needed: Ints
    """For each customer: k, or less where fewer receivers can be heard at all."""

    @property
    def receivers(self) -> int:
        """How many there are."""
        return len(self.start) - 1


@dataclass(frozen=True, eq=False)
class LinkTable:
    """Measured links by number, with the distance that counts, and whether the rules allow to rely on them."""

    receiver: Ints
    customer: Ints
    km: Floats
    """Infinite for one that is cut."""
    fit: np.typing.NDArray[np.bool_]


def links_of(world: CoverageWorld) -> LinkTable:
    """The links of receivers and customers that there are; a receiver that failed takes its links with it."""
    receiver_of = {name: place for place, name in enumerate(world.receivers.names)}
    customer_of = {name: place for place, name in enumerate(world.customers.names)}
    links = [link for link in world.links if link.receiver in receiver_of and link.customer in customer_of]
    receiver = np.array([receiver_of[link.receiver] for link in links], dtype=np.int64)
    customer = np.array([customer_of[link.customer] for link in links], dtype=np.int64)
    away = world.distances(world.receivers.where[receiver], world.customers.where[customer])
    km = np.array([_counting_km(world, link, far) for link, far in zip(links, away.tolist(), strict=True)])
    fit = np.array([_fit(world, link, far) for link, far in zip(links, km.tolist(), strict=True)], dtype=np.bool_)
    return LinkTable(receiver, customer, km.astype(np.float64), fit)


def _counting_km(world: CoverageWorld, link: MeasuredPath, away: float) -> float:
    if link.cut:
        return float("inf")
    return away if link.delay_ns is None else max(world.paths.km_of_delay(link.delay_ns), 0.0)


def _fit(world: CoverageWorld, link: MeasuredPath, km: float) -> bool:
    rules, margin = world.rules, world.rules.margin_km
    if link.cut or km + margin > rules.radius_max_km or world.paths.delay_ns(km + margin) > rules.delay_max_ns:
        return False
    return (world.paths.loss_at(km + margin) if link.loss is None else link.loss) <= rules.loss_max


def possible_lines(world: CoverageWorld) -> LinePairs:
    """For each customer the nearest receivers that it could hear: k and some to spare."""
    return LineFinder(world).lines()


class LineFinder:
    """LinePairs of one world, for several sets of scopes: the nearest pairs are found once."""

    def __init__(self, world: CoverageWorld) -> None:
        """Find the nearest."""
        self._world = world
        self._links = links_of(world)
        surface, reach = world.surface, world.reach_km
        self._receivers = surface.to_space(world.receivers.where)
        self._customers = surface.to_space(world.customers.where)
        # Every measured link may take the place of one that the distance allows.
        count = world.rules.lines + _SPARE + _most_links(self._links, len(world.customers))
        self._near = _NOBODY
        if reach >= 0:
            count = min(count, max(len(self._receivers), 1))
            found, km = nearest(surface, self._receivers, self._customers, count, reach)
            there = found >= 0
            self._near = (np.nonzero(there)[0], found[there], km[there])

    def lines(self, heard: Floats | None = None) -> LinePairs:
        """The nearest, and with `heard`, the radii of scopes, all that are heard, however many are nearer."""
        world, links, total = self._world, self._links, len(self._receivers)
        customer, receiver, km = self._near if heard is None else self._with(heard)
        kept = ~np.isin(customer * total + receiver, links.customer * total + links.receiver)
        customer = np.concatenate((customer[kept], links.customer[links.fit]))
        receiver = np.concatenate((receiver[kept], links.receiver[links.fit]))
        km = np.concatenate((km[kept], links.km[links.fit]))
        order = np.lexsort((customer, km, receiver))
        start = np.searchsorted(receiver[order], np.arange(total + 1)).astype(np.int64)
        lines = np.bincount(customer, minlength=len(world.customers))
        needed = np.minimum(lines, world.rules.lines).astype(np.int64)
        return LinePairs(start, customer[order], receiver[order], km[order], needed)

    def _with(self, heard: Floats) -> tuple[Ints, Ints, Floats]:
        radii = np.minimum(heard, max(self._world.reach_km, 0.0))
        receiver, customer, km = within(self._world.surface, self._receivers, radii, self._customers)
        total = len(self._receivers)
        customers = np.concatenate((self._near[0], customer))
        receivers = np.concatenate((self._near[1], receiver))
        _, first = np.unique(customers * total + receivers, return_index=True)
        return customers[first], receivers[first], np.concatenate((self._near[2], km))[first]


def _most_links(links: LinkTable, customers: int) -> int:
    return int(np.bincount(links.customer, minlength=customers).max(initial=0)) if len(links.customer) else 0
