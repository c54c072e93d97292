"""What the journals of a market prove: when each site released, how far apart, in which order, and what is missing.

    evidence = gather(market)
    evidence.is_sound, evidence.skew, evidence.differences

Nothing here trusts what a process says of itself: every figure is computed from the blocks that receivers, retransmit
servers and complete customers wrote, by the rules of `isocast.checks.journals`. Instants are those of each node's own
clock, so a skew between two machines is known as well as their clocks are; on one machine all clocks are one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from isocast.checks.journals import Copy, Difference, JournalWalk, differences, repeated
from isocast.checks.skew import Nanoseconds, OwnReleases, Quantiles, ReleaseSkew, release_skew
from isocast.runtime.disk.journal_reader import read_blocks
from isocast.runtime.market.model import Market, NodePlan, NodeRole
from isocast.terms.errors import JournalError
from isocast.terms.market import Grade
from isocast.wire.journal_blocks import BlockView

__all__ = [
    "FollowerEvidence",
    "Journals",
    "LateRelease",
    "MarketEvidence",
    "gather",
    "is_follower",
    "journal_of",
    "late_releases",
    "lateness_ns",
    "read_journals",
    "skew_of",
    "weigh",
]

# Reading ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Journals:
    """Everything that the nodes of a market wrote down."""

    sites: dict[str, Copy] = field(default_factory=dict)
    """Of trusted receivers, primary and secondary."""
    followers: dict[str, Copy] = field(default_factory=dict)
    """Of retransmit servers and complete customers: they know no labels."""
    damaged: dict[str, JournalError] = field(default_factory=dict)
    """By node: where its journal cannot be read, and why; its copy ends before that."""

    @property
    def copies(self) -> dict[str, Copy]:
        """All of them, those of sites first."""
        return {**self.sites, **self.followers}


def read_journals(
    market: Market,
    walk: Callable[[], JournalWalk] = JournalWalk,
    watch: Callable[[NodePlan, BlockView], None] | None = None,
) -> Journals:
    """From the disk, checksums included, those of sites first; empty copies where there is no journal yet.

    `walk` makes the rules that each journal is held to by itself; `watch` is shown every block.
    """
    found = Journals()

    def blocks(plan: NodePlan) -> Iterator[BlockView]:
        where = journal_of(market, plan.name)
        try:
            for block in read_blocks(where) if where.is_dir() else ():
                if watch is not None:
                    watch(plan, block)
                yield block
        except JournalError as reason:
            found.damaged[plan.name] = reason

    for plan in market.receivers:
        found.sites[plan.name] = Copy.of(plan.name, blocks(plan), walk())
    for plan in filter(is_follower, market.nodes):
        found.followers[plan.name] = Copy.of(plan.name, blocks(plan), walk())
    return found


def journal_of(market: Market, name: str) -> Path:
    """Where a receiver, retransmit server or complete customer writes down what it released or got."""
    return market.directory_of(name) / "journal"


def is_follower(plan: NodePlan) -> bool:
    """Whether a node is started with the market, and writes down everything that lines bring it."""
    complete = plan.role is NodeRole.CUSTOMER and plan.grade is Grade.COMPLETE
    return plan.start and (complete or plan.role is NodeRole.RETRANSMIT_SERVER)


# Instants -----------------------------------------------------------------------------------------


def lateness_ns(copies: Mapping[str, Copy]) -> Nanoseconds:
    """Of every block that a site released itself: how long after its instant it went out."""
    blocks = [header for copy in copies.values() for header in copy.headers if not header.fetched]
    return np.array([header.lateness_ns for header in blocks], np.int64)


def skew_of(copies: Mapping[str, Copy], late_after_ns: int, stripes: Mapping[str, int] | None = None) -> ReleaseSkew:
    """How far apart these sites released each message, by the one definition; `stripes` are their own."""
    own = [OwnReleases.of(copy.headers, (stripes or {}).get(name, 0)) for name, copy in copies.items()]
    return release_skew(own, late_after_ns, len(copies))


@dataclass(frozen=True, slots=True)
class LateRelease:
    """A block that a site released later than its instant by more than is allowed."""

    site: str
    token_number: int
    first_sequence: int
    last_sequence: int
    instant: int
    """T_t of its token."""
    due: int
    released_at: int

    @property
    def late_ns(self) -> int:
        """By how much."""
        return self.released_at - self.due


def late_releases(copies: Mapping[str, Copy], late_after_ns: int) -> list[LateRelease]:
    """In the order in which they were due; `late_after_ns` is P, what a process may take."""
    found = [
        LateRelease(
            name,
            header.token_number,
            header.first_sequence,
            header.next_sequence - 1,
            header.instant,
            header.due,
            header.released_at,
        )
        for name, copy in copies.items()
        for header in copy.headers
        if header.lateness_ns > late_after_ns and not header.fetched
    ]
    return sorted(found, key=lambda late: (late.due, late.first_sequence, late.site))


# All of it ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FollowerEvidence:
    """What a retransmit server or complete customer got."""

    name: str
    role: str
    messages: int
    last_sequence: int
    missing: int
    """Sequences between its first and its last that it does not have: none, if its service is what it is called."""
    repeated: int
    behind: int
    """Sequences that sites have released and it has not yet got."""


@dataclass(frozen=True, slots=True)
class MarketEvidence:
    """The journals of a market in figures."""

    sites: int
    messages: int
    """Of the site that released most."""
    tokens: int
    early: int
    """Messages, over all sites, and those that a follower had before any site might release them."""
    lateness: Quantiles
    """Of blocks."""
    late: tuple[LateRelease, ...]
    late_after_ns: int
    skew: ReleaseSkew
    """Of messages that two or more sites released, and what is left out."""
    skew_bound_ns: int
    """2ε, as the market's file has it."""
    missing: int
    """Sequences that a site skipped."""
    repeated: int
    """Messages that a site released twice."""
    differences: tuple[Difference, ...]
    followers: tuple[FollowerEvidence, ...]

    @property
    def gaps(self) -> int:
        """Sequences that followers lack, or got twice."""
        return sum(follower.missing + follower.repeated for follower in self.followers)

    @property
    def is_sound(self) -> bool:
        """Whether nothing is early, lost, repeated or different: what holds on the slowest machine too."""
        return not (self.early or self.missing or self.repeated or self.differences or self.gaps)

    @property
    def is_simultaneous(self) -> bool:
        """Whether the median skew is within 2ε."""
        return self.skew.p50_ns <= self.skew_bound_ns

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        own = {"is_sound": self.is_sound, "is_simultaneous": self.is_simultaneous, "gaps": self.gaps}
        differing = [
            {"name": one.name, "other": one.other, "sequence": one.sequences[0], "count": len(one.sequences)}
            for one in self.differences
        ]
        return own | asdict(self) | {"differences": differing}


def gather(market: Market, since_ns: int = 0) -> MarketEvidence:
    """Everything, from the disk."""
    return weigh(market, read_journals(market), since_ns)


def weigh(market: Market, journals: Journals, since_ns: int = 0) -> MarketEvidence:
    """Instants of what was released from `since_ns` on, order and gaps of whole journals. JournalError if damaged."""
    for damage in journals.damaged.values():
        raise damage
    sites, followers = journals.sites, journals.followers
    recent = {name: copy.since(since_ns) for name, copy in sites.items()}
    newest = max((copy.last_sequence for copy in sites.values()), default=0)
    late_after_ns, delay_ns = market.timing.process_ns, market.timing.release_delay_ns
    return MarketEvidence(
        sites=len(sites),
        messages=max((copy.messages for copy in recent.values()), default=0),
        tokens=len({header.token_number for copy in recent.values() for header in copy.headers}),
        early=sum(copy.early(delay_ns) for copy in (*recent.values(), *followers.values())),
        lateness=Quantiles.of(lateness_ns(recent)),
        late=tuple(late_releases(recent, late_after_ns)),
        late_after_ns=late_after_ns,
        skew=skew_of(recent, late_after_ns, {name: market.node(name).stripe for name in recent}),
        skew_bound_ns=market.timing.skew_bound_ns,
        missing=sum(copy.missing() for copy in sites.values()),
        repeated=sum(len(repeated(copy)) for copy in sites.values()),
        differences=tuple(differences(list(sites.values()), list(followers.values()))),
        followers=tuple(_follower(market.node(name), copy, newest) for name, copy in followers.items()),
    )


def _follower(plan: NodePlan, copy: Copy, newest: int) -> FollowerEvidence:
    return FollowerEvidence(
        plan.name,
        plan.role.value,
        copy.messages,
        copy.last_sequence,
        copy.missing(),
        len(repeated(copy)),
        max(newest - copy.last_sequence, 0),
    )
