"""From the votes to a ring: the cut, who is on it, and in which order (protocol §5, step 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from isocast.ring.certificate import majority
from isocast.terms.ids import NodeId
from isocast.wire.packets import Join

__all__ = ["EXACT_MAX", "Formation", "cut_key", "enough", "form", "hearing_group", "spread"]


FAR_BEHIND = 64
"""Tokens behind the cut from which a site first catches up off the ring: two range requests."""
EXACT_MAX = 16
"""Voters up to which the largest group is searched exactly: at worst 2^16 steps."""


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
    for candidates in _candidates(votes, best, barred):
        found = _form_from(votes, candidates, best, suffices)
        if found is not None:
            return Formation(best, spread(found, regions, _holders(votes, best)), _holders(votes, best))
    # Any majority of votes is a quorum of its own: whom the others do not hear need not hold them up.
    group = hearing_group(votes, sorted(votes))
    if not group:
        return None
    best = max([votes[site] for site in group], key=key)
    group = [site for site in group if site in best.universe]
    if not suffices(len(group), best.universe) or best.sender not in group:
        return None
    return Formation(best, spread(group, regions, _holders(votes, best)), _holders(votes, best))


def _candidates(votes: Mapping[NodeId, Join], best: Join, barred: Mapping[NodeId, int]) -> list[list[NodeId]]:
    """Voters of U as of the cut, first without those barred, or so far behind that the ring would wait for them."""
    voters = [site for site in best.universe if site in votes]
    near = [site for site in voters if votes[site].held >= best.held - FAR_BEHIND]
    return [[site for site in near if site not in barred], near, voters]


def _form_from(
    votes: Mapping[NodeId, Join],
    candidates: list[NodeId],
    best: Join,
    suffices: Callable[[int, tuple[NodeId, ...]], bool],
) -> list[NodeId] | None:
    """A group that hears itself, is large enough and has a holder of the cut."""
    if not suffices(len(candidates), best.universe):
        return None
    holders = _holders(votes, best)
    group = hearing_group(votes, candidates, holders)
    if not suffices(len(group), best.universe) or not any(site in holders for site in group):
        return None
    return group


def _holders(votes: Mapping[NodeId, Join], best: Join) -> tuple[NodeId, ...]:
    return tuple([site for site in sorted(votes) if _same_log(votes[site], best)])


def _same_log(vote: Join, best: Join) -> bool:
    return (vote.epoch, vote.held, vote.digest) == (best.epoch, best.held, best.digest)


def hearing_group(
    votes: Mapping[NodeId, Join], candidates: list[NodeId], wanted: tuple[NodeId, ...] = ()
) -> list[NodeId]:
    """The largest group of voters that all hear one another, one of `wanted` among them if there are any.

    That is the clique problem: up to `EXACT_MAX` sites it is searched exactly. Beyond, the site with the most
    broken pairs leaves until none is broken, which for the few broken pairs of real networks is the same.
    """
    hears = {
        site: frozenset([other for other in candidates if other in votes[site].heard and site in votes[other].heard])
        for site in candidates
    }
    if len(candidates) <= EXACT_MAX:
        return _largest(candidates, hears, wanted)
    group = list(candidates)
    while True:
        broken = {site: len(group) - 1 - sum([other in hears[site] for other in group]) for site in group}
        worst = max(group, key=lambda site: (broken[site], site not in wanted, site), default=None)
        if worst is None or not broken[worst]:
            return group
        group.remove(worst)


def _largest(
    candidates: list[NodeId], hears: Mapping[NodeId, frozenset[NodeId]], wanted: tuple[NodeId, ...]
) -> list[NodeId]:
    """Exact search, branch and bound: each site is in or out, the larger group wins, the first found on a tie."""
    best: list[NodeId] = []

    def search(group: list[NodeId], rest: list[NodeId]) -> None:
        nonlocal best
        if len(group) + len(rest) <= len(best):
            return
        if not rest:
            if not wanted or any(site in wanted for site in group):
                best = list(group)
            return
        site, *others = rest
        search([*group, site], [other for other in others if other in hears[site]])
        search(group, others)

    search([], list(candidates))
    return best


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
