"""From the votes to a ring: cut, members, order (protocol §5, step 3); and what a server remembers of ballots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple, assert_never

from isocast.ring.effects import (
    BallotChosen,
    EntryAppended,
    LogReplaced,
    OutboxAppended,
    OutboxFreed,
    PromiseMade,
    Record,
    RingDecided,
    RingInstalled,
)
from isocast.ring.release import majority
from isocast.terms.ids import NO_EPOCH, Epoch, NodeId
from isocast.terms.instants import NEVER
from isocast.wire.orders import NO_ORDER
from isocast.wire.packets import Join, NewRing

__all__ = [
    "EXACT_MAX",
    "Ballot",
    "Bar",
    "Excuse",
    "Forcing",
    "Formation",
    "Planned",
    "Probe",
    "ServerSnapshot",
    "ServerState",
    "Stage",
    "cut_key",
    "enough",
    "form",
    "form_forced",
    "form_uncertified",
    "hearing_group",
    "spread",
]


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
    universe: tuple[NodeId, ...]
    """U as of the cut; of a forced ring, U from its first token on."""
    voters: tuple[NodeId, ...]
    """Whose votes count: of U, and not ahead of the cut."""
    wanted: tuple[NodeId, ...]
    """The voters that want a place on the ring."""
    uncertified: bool = False
    forced: bool = False

    @property
    def unanimous(self) -> bool:
        """Whether everybody who voted for a place has one."""
        return all(site in self.ring for site in self.wanted)

    @property
    def whole(self) -> bool:
        """Whether no other vote could make the ring any better."""
        return self.unanimous and len(self.voters) == len(self.universe)


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

    Sites in `barred`, and those that are leaving, stay off the ring if it can do without them.
    """
    best = _best(votes, key)
    if best is None:
        return None
    voters = _voters(votes, best, best.universe, key)
    holders = _holders(votes, best)
    for candidates in _candidates(votes, voters, best, barred):
        found = _form_from(votes, candidates, best.universe, holders, suffices)
        if found is not None:
            return _formation(votes, best, found, best.universe, voters, regions)
    # Any majority of votes is a quorum of its own: whom the others do not hear need not hold them up.
    group = hearing_group(votes, [site for site in sorted(votes) if site in votes[site].universe])
    best = _best({site: votes[site] for site in group}, key)
    if best is None:
        return None
    group = [site for site in group if site in best.universe]
    if not suffices(len(group), best.universe) or best.sender not in group:
        return None
    return _formation(votes, best, group, best.universe, group, regions)


def form_uncertified(
    votes: Mapping[NodeId, Join],
    regions: Mapping[NodeId, str],
    key: Callable[[Join], tuple[Any, ...]] = cut_key,
) -> Formation | None:
    """A ring from the votes of U that came, without a majority (policy `availability`): it may diverge from another."""
    best = _best(votes, key)
    if best is None:
        return None
    voters = _voters(votes, best, best.universe, key)
    holders = _holders(votes, best)
    for candidates in ([site for site in voters if not votes[site].leaving], voters):
        group = hearing_group(votes, candidates, holders)
        if group:
            return replace(_formation(votes, best, group, best.universe, voters, regions), uncertified=True)
    return None


def form_forced(
    votes: Mapping[NodeId, Join],
    universe: tuple[NodeId, ...],
    regions: Mapping[NodeId, str],
    key: Callable[[Join], tuple[Any, ...]] = cut_key,
) -> Formation | None:
    """A ring from the votes of all those whom an operator names, and of nobody else: they are U from now on."""
    if not universe or any(site not in votes for site in universe):
        return None
    best = max([votes[site] for site in universe], key=key)
    group = _form_from(votes, list(universe), universe, _holders(votes, best), enough)
    if group is None:
        return None
    return replace(_formation(votes, best, group, universe, universe, regions), forced=True)


def _best(votes: Mapping[NodeId, Join], key: Callable[[Join], tuple[Any, ...]]) -> Join | None:
    """The greatest vote of a site that is in U by its own log: a site that left, or joins, founds no ring."""
    return max([vote for vote in votes.values() if vote.sender in vote.universe], key=key, default=None)


def _voters(
    votes: Mapping[NodeId, Join],
    best: Join,
    universe: tuple[NodeId, ...],
    key: Callable[[Join], tuple[Any, ...]],
) -> list[NodeId]:
    """Voters in U as of the cut whose logs end there or before: a longer log does not witness the cut."""
    return [site for site in universe if site in votes and key(votes[site]) <= key(best)]


def _formation(
    votes: Mapping[NodeId, Join],
    best: Join,
    group: list[NodeId],
    universe: tuple[NodeId, ...],
    voters: Sequence[NodeId],
    regions: Mapping[NodeId, str],
) -> Formation:
    holders = _holders(votes, best)
    wanted = [site for site in voters if not votes[site].leaving]
    return Formation(best, spread(group, regions, holders), holders, universe, tuple(voters), tuple(wanted))


def _candidates(
    votes: Mapping[NodeId, Join], voters: list[NodeId], best: Join, barred: Mapping[NodeId, int]
) -> list[list[NodeId]]:
    """Who may be on the ring: first without those that leave, are barred, or so far behind that it would wait."""
    near = [site for site in voters if votes[site].held >= best.held - FAR_BEHIND]
    staying = [site for site in near if not votes[site].leaving]
    leaving = [site for site in near if votes[site].leaving]
    # Where not all who leave can go, as many go as the ring can do without.
    some = [[site for site in near if site in staying or site in leaving[:kept]] for kept in range(1, len(leaving))]
    return [
        [site for site in staying if site not in barred],
        staying,
        *some,
        [site for site in near if site not in barred],
        near,
        voters,
    ]


def _form_from(
    votes: Mapping[NodeId, Join],
    candidates: list[NodeId],
    universe: tuple[NodeId, ...],
    holders: tuple[NodeId, ...],
    suffices: Callable[[int, tuple[NodeId, ...]], bool],
) -> list[NodeId] | None:
    """A group that hears itself, is large enough and has a holder of the cut."""
    if not suffices(len(candidates), universe):
        return None
    group = hearing_group(votes, candidates, holders)
    if not suffices(len(group), universe) or not any(site in holders for site in group):
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
    heard = {site: frozenset(votes[site].heard) for site in candidates}
    hears = {
        site: frozenset([other for other in candidates if other in heard[site] and site in heard[other]])
        for site in candidates
    }
    if len(candidates) <= EXACT_MAX:
        return _largest(candidates, hears, wanted)
    group = list(candidates)
    broken = {site: len(group) - 1 - len(hears[site]) for site in group}
    while True:
        worst = max(group, key=lambda site: (broken[site], site not in wanted, site), default=None)
        if worst is None or not broken[worst]:
            return group
        group.remove(worst)
        for site in group:
            broken[site] -= worst not in hears[site]


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


# What a reformation server remembers of probes and ballots, in memory and on disk.


class Stage(StrEnum):
    """What a server is doing."""

    IDLE = "idle"
    PROBING = "probing"
    WAITING = "waiting"
    INVITING = "inviting"


@dataclass(slots=True)
class ServerState:
    """What a server's disk says: the highest ballot it used, and the newest ring it decided."""

    ballot: Epoch = NO_EPOCH
    ring: NewRing | None = None

    def apply(self, record: Record) -> None:
        """Take one record."""
        match record:
            case BallotChosen(ballot):
                self.ballot = ballot
            case RingDecided(ring):
                self.ring = ring
            case PromiseMade() | EntryAppended() | RingInstalled() | LogReplaced() | OutboxAppended() | OutboxFreed():
                pass  # Of a site's or a source's disk.
            case _:
                assert_never(record)


@dataclass(frozen=True, slots=True)
class ServerSnapshot:
    """A server's state for checkers and console."""

    server: NodeId
    stage: Stage
    ballot: Epoch
    ring: Epoch | None
    votes: int
    forcing: bool = False
    """Whether it holds ballots for a forced U."""
    clock_ahead_ns: int = 0
    """How far its clock was ahead of most voters' in the last ballot, beyond what bounds and delays explain."""


@dataclass(slots=True)
class Probe:
    """A suspect that is being asked whether it lives."""

    suspect: NodeId
    token_number: int
    accuser: NodeId
    attempts: int = 0


class Excuse(NamedTuple):
    """A suspect that was found alive and ahead: when, and of which token the complaint was."""

    at: int
    token_number: int


class Bar(NamedTuple):
    """A site that stays off the ring: until when, for how long, and how often it did shortly before.

    If its clock was wrong by a vote, the next vote may tell that it is right again.
    """

    until: int
    span_ns: int
    times: int
    by_vote: bool = False


@dataclass(slots=True)
class Planned:
    """When a ballot may be held only to let healthy sites in, or to let others go."""

    not_before: int = 0
    in_vain: int = 0


@dataclass(slots=True)
class Forcing:
    """An operator's word that these sites are U; it does not hold for ever."""

    universe: tuple[NodeId, ...]
    until: int
    order: bytes = NO_ORDER


@dataclass(slots=True)
class Ballot:
    """A ballot under way, and its votes."""

    epoch: Epoch
    attempts: int = 0
    repeated: bool = False
    """Whether the first invitation went out a second time."""
    votes: dict[NodeId, Join] = field(default_factory=dict)
    decide_at: int = NEVER
    forced: tuple[NodeId, ...] = ()
    """The sites whose votes suffice, and are needed, on an operator's word."""
    order: bytes = NO_ORDER
    """That word, signed."""
    patient: bool = False
    """Whether voters that not all others have heard were given another round of votes."""
