"""From the votes to a ring: the cut, who is on it, and in which order (protocol §5, step 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from isocast.ring.certificate import majority
from isocast.terms.ids import NodeId
from isocast.wire.packets import Join

__all__ = ["Formation", "cut_key", "enough", "form", "hearing_group", "spread"]


@dataclass(frozen=True, slots=True)
class Formation:
    """What the votes allow."""

    best: Join
    """The vote with the greatest (e_acc, h): its log is the cut."""
    ring: tuple[NodeId, ...]
    """In order; the first holds the cut."""
    holders: tuple[NodeId, ...]
    """Everybody who voted with exactly the cut's log."""


def cut_key(vote: Join) -> tuple[Any, ...]:
    """(e_acc, h), compared lexicographically, never h alone.

    A stale site may hold higher numbers that a later epoch has issued anew.
    """
    return (vote.epoch, vote.held)


def enough(count: int, universe: tuple[NodeId, ...]) -> bool:
    """Only a majority of U may start an epoch: any two of them share a site."""
    return count >= majority(universe)


def form(
    votes: Mapping[NodeId, Join],
    regions: Mapping[NodeId, str],
    barred: Mapping[NodeId, int],
    key: Callable[[Join], tuple[Any, ...]] = cut_key,
    suffices: Callable[[int, tuple[NodeId, ...]], bool] = enough,
) -> Formation | None:
    """A ring from the votes, or None while they do not suffice: voters and ring must each be a majority of U.

    Sites in `barred` stay off the ring if it can do without them.
    """
    if not votes:
        return None
    best = max(votes.values(), key=key)
    universe = best.universe
    voters = [site for site in universe if site in votes]
    if not suffices(len(voters), universe):
        return None
    holders = tuple([site for site in sorted(votes) if _same_log(votes[site], best)])
    able = [site for site in voters if site not in barred]
    for candidates in (able, voters):
        group = hearing_group(votes, candidates)
        if suffices(len(group), universe) and any(site in holders for site in group):
            return Formation(best, spread(group, regions, holders), holders)
    return None


def _same_log(vote: Join, best: Join) -> bool:
    return (vote.epoch, vote.held, vote.digest) == (best.epoch, best.held, best.digest)


def hearing_group(votes: Mapping[NodeId, Join], candidates: list[NodeId]) -> list[NodeId]:
    """A large group of voters that all hear one another.

    Starting from everybody, the site with the most broken pairs leaves until none is broken. For the few broken
    pairs of real networks that is the largest such group; finding it in general is the clique problem.
    """
    group = list(candidates)
    heard = {site: frozenset(votes[site].heard) for site in group}
    while True:
        broken = {
            site: sum([other not in heard[site] or site not in heard[other] for other in group if other != site])
            for site in group
        }
        worst = max(group, key=lambda site: (broken[site], site), default=None)
        if worst is None or not broken[worst]:
            return group
        group.remove(worst)


def spread(group: list[NodeId], regions: Mapping[NodeId, str], holders: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
    """Ring order: neighbours from different regions where possible, a holder of the cut first."""
    by_region: dict[str, list[NodeId]] = {}
    for site in sorted(group):
        by_region.setdefault(regions.get(site, ""), []).append(site)
    # Each site at the middle of its share of its region: regions interleave in proportion to their size.
    places = [
        ((2 * rank + 1) / (2 * len(sites)), region, site)
        for region, sites in sorted(by_region.items())
        for rank, site in enumerate(sites)
    ]
    order = [site for _, _, site in sorted(places)]
    first = next(place for place, site in enumerate(order) if site in holders)
    return tuple(order[first:] + order[:first])
