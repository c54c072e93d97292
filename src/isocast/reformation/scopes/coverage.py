"""What customers hear under a plan, and why some hear too little."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isocast.reformation.scopes.lines import LinkTable, links_of
from isocast.reformation.scopes.nearest import nearest, within
from isocast.reformation.scopes.plan import Plan
from isocast.reformation.scopes.world import CoverageWorld, Floats, Ints
from isocast.terms.instants import MILLISECOND

__all__ = ["Coverage", "Short", "cover"]


@dataclass(frozen=True, slots=True)
class Short:
    """A customer who hears fewer than k sources."""

    customer: str
    lines: int
    reason: str


@dataclass(frozen=True, eq=False)
class Coverage:
    """Who hears whom: pairs of numbers, sorted by receiver, nearest customer first."""

    receiver: Ints
    customer: Ints
    km: Floats
    customers_of: Ints
    """For each receiver the customers who hear it."""
    lines_of: Ints
    """For each customer the receivers that it hears."""
    short: tuple[Short, ...]

    def by_lines(self) -> dict[int, int]:
        """How many customers hear so many sources."""
        values, counts = np.unique(self.lines_of, return_counts=True)
        return dict(zip(values.tolist(), counts.tolist(), strict=True))


def cover(world: CoverageWorld, plan: Plan) -> Coverage:
    """Judge a plan by the world's rules; its receivers must be the world's, in the same order."""
    if tuple([scope.receiver for scope in plan.scopes]) != world.receivers.names:
        raise ValueError("the plan is for other receivers")
    radii = np.array([scope.radius_km for scope in plan.scopes])
    links = links_of(world)
    receiver, customer, km = _heard(world, radii, links)
    customers_of = np.bincount(receiver, minlength=len(world.receivers)).astype(np.int64)
    lines_of = np.bincount(customer, minlength=len(world.customers)).astype(np.int64)
    return Coverage(receiver, customer, km, customers_of, lines_of, _short(world, lines_of, links))


def _heard(world: CoverageWorld, radii: Floats, links: LinkTable) -> tuple[Ints, Ints, Floats]:
    surface = world.surface
    receivers, customers = surface.to_space(world.receivers.where), surface.to_space(world.customers.where)
    receiver, customer, km = within(surface, receivers, radii, customers)
    measured = np.isin(customer * len(receivers) + receiver, links.customer * len(receivers) + links.receiver)
    allowed = ~measured & (km <= world.reach_km + world.rules.margin_km + 1e-9)
    linked = links.fit & (links.km <= radii[links.receiver]) & (radii[links.receiver] > 0)
    receiver = np.concatenate((receiver[allowed], links.receiver[linked]))
    customer = np.concatenate((customer[allowed], links.customer[linked]))
    km = np.concatenate((km[allowed], links.km[linked]))
    order = np.lexsort((customer, km, receiver))
    return receiver[order], customer[order], km[order]


def _short(world: CoverageWorld, lines_of: Ints, links: LinkTable) -> tuple[Short, ...]:
    """Those who hear too little, each with what keeps the next nearest receiver from being heard."""
    wanting = np.flatnonzero(lines_of < world.rules.lines)
    if not len(wanting):
        return ()
    names = world.customers.names
    total = len(world.receivers)
    if total < world.rules.lines:
        rule = f"there {'is' if total == 1 else 'are'} only {total or 'no'} receiver{'' if total == 1 else 's'}"
        return tuple([Short(names[who], int(lines_of[who]), rule) for who in wanting.tolist()])
    surface = world.surface
    receivers = surface.to_space(world.receivers.where)
    places = surface.to_space(world.customers.where[wanting])
    widest = int(lines_of[wanting].max()) + 1
    linked = int(np.bincount(links.customer, minlength=len(names)).max(initial=0)) if len(links.customer) else 0
    found, km = nearest(surface, receivers, places, min(widest + linked, total), np.inf)
    by_pair = {
        (who, whom): number
        for number, (who, whom) in enumerate(zip(links.customer.tolist(), links.receiver.tolist(), strict=True))
    }
    shorts = []
    for row, who in enumerate(wanting.tolist()):
        refused = [
            reason
            for whom, far in zip(found[row].tolist(), km[row].tolist(), strict=True)
            if (reason := _refusal(world, links, by_pair.get((who, whom)), whom, far))
        ]
        shorts.append(Short(names[who], int(lines_of[who]), refused[0] if refused else "no scope was widened to it"))
    return tuple(shorts)


def _refusal(world: CoverageWorld, links: LinkTable, link: int | None, receiver: int, km: float) -> str:
    """Why a receiver cannot be relied on; empty if it can."""
    rules, paths, name = world.rules, world.paths, world.receivers.names[receiver]
    loss = None
    if link is not None:
        if links.fit[link]:
            return ""
        km = float(links.km[link])
        if km == np.inf:
            return f"{name}: the link is cut"
        loss = _measured_loss(world, name, int(links.customer[link]))
    far = km + rules.margin_km
    if far > rules.radius_max_km:
        return f"{name}: {far:,.0f} km away, {rules.radius_max_km:,.0f} km allowed"
    if (delay := paths.delay_ns(far)) > rules.delay_max_ns:
        return f"{name}: {delay / MILLISECOND:.1f} ms away, {rules.delay_max_ns / MILLISECOND:g} ms allowed"
    lost = paths.loss_at(far) if loss is None else loss
    if lost > rules.loss_max:
        return f"{name}: {lost:.2%} lost on the way, {rules.loss_max:.2%} allowed"
    return ""


def _measured_loss(world: CoverageWorld, receiver: str, customer: int) -> float | None:
    name = world.customers.names[customer]
    for link in world.links:
        if (link.receiver, link.customer) == (receiver, name):
            return link.loss
    return None
