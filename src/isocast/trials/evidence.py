"""What the journals of a market prove: when each site released, how far apart, in which order, and what is missing.

    sites = releases_by_site(market)
    early_releases(sites), skew_of(sites, market.timing.process_ns), disagreements(sites)

Nothing here trusts what a process says of itself: every figure is computed from the blocks that receivers, retransmit
servers and complete customers wrote. Instants are those of each node's own clock, so a skew between two machines is
known as well as their clocks are; on one machine all clocks are one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from isocast.checks.skew import Nanoseconds, OwnReleases, Quantiles, ReleaseSkew, release_skew
from isocast.runtime.disk.journal_reader import read_blocks
from isocast.runtime.market.model import Market, NodePlan, NodeRole
from isocast.terms.ids import Label
from isocast.terms.market import Grade
from isocast.wire.journal import BlockHeader
from isocast.wire.journal_blocks import BlockView
from isocast.wire.packets import DIGEST_BYTES, payload_digest

__all__ = [
    "Difference",
    "Evidence",
    "Follower",
    "LateRelease",
    "Quantiles",
    "Record",
    "ReleaseSkew",
    "disagreements",
    "early_releases",
    "followers_by_name",
    "gather",
    "is_follower",
    "journal_of",
    "late_releases",
    "lateness_ns",
    "read_record",
    "record_of",
    "releases_by_site",
    "skew_of",
    "weigh",
]

_CONTENT = np.dtype([("source", "<u8"), ("number", "<u8"), ("digest", f"V{DIGEST_BYTES}")])


@dataclass(frozen=True, slots=True)
class Record:
    """One node's journal: its blocks by their headers, its messages by label and digest of what they carried."""

    name: str
    headers: tuple[BlockHeader, ...]
    contents: npt.NDArray[np.void]
    """Source, number and digest of the opened payload, in the order of the file; customers know no labels."""

    @property
    def messages(self) -> int:
        """How many there are."""
        return len(self.contents)

    @property
    def sequences(self) -> npt.NDArray[np.int64]:
        """Of every message, in the order of the file."""
        return self._spread([header.first_sequence for header in self.headers], rising=True)

    @property
    def released_at(self) -> Nanoseconds:
        """Of every message, by the node's clock."""
        return self._spread([header.released_at for header in self.headers])

    @property
    def last_sequence(self) -> int:
        """The highest; 0 in an empty journal."""
        return self.headers[-1].next_sequence - 1 if self.headers else 0

    def labels(self) -> set[Label]:
        """Everything that was released, by source and number."""
        pairs = zip(self.contents["source"].tolist(), self.contents["number"].tolist(), strict=True)
        return {Label(source, number) for source, number in pairs}

    def holes(self) -> list[tuple[int, int]]:
        """Ranges of sequences that lie between two messages of the journal, both ends included, and are not there."""
        ordered = np.unique(self.sequences)
        at = np.flatnonzero(np.diff(ordered) > 1)
        return [(int(ordered[place]) + 1, int(ordered[place + 1]) - 1) for place in at]

    def repeated(self) -> int:
        """How many messages are there more than once, or out of order."""
        return int(np.count_nonzero(np.diff(self.sequences) <= 0))

    def since(self, instant_ns: int) -> Record:
        """What was released from an instant on."""
        kept = [header.released_at >= instant_ns for header in self.headers]
        counts = [header.messages for header in self.headers]
        headers = tuple(header for header, keep in zip(self.headers, kept, strict=True) if keep)
        return Record(self.name, headers, self.contents[np.repeat(np.array(kept, np.bool_), counts)])

    def _spread(self, values: Iterable[int], *, rising: bool = False) -> npt.NDArray[np.int64]:
        """A block's value for each of its messages."""
        counts = np.array([header.messages for header in self.headers], np.int64)
        spread = np.repeat(np.fromiter(values, np.int64, len(counts)), counts)
        if rising and len(counts):
            spread += np.arange(len(spread)) - np.repeat(counts.cumsum() - counts, counts)
        return spread


# Reading ------------------------------------------------------------------------------------------


def journal_of(market: Market, name: str) -> Path:
    """Where a receiver, retransmit server or complete customer writes down what it released or got."""
    return market.directory_of(name) / "journal"


def read_record(name: str, where: Path) -> Record:
    """A node's journal; an empty record where there is none."""
    return record_of(name, read_blocks(where) if where.exists() else ())


def record_of(name: str, blocks: Iterable[BlockView]) -> Record:
    """The record of some blocks of a node's journal."""
    headers: list[BlockHeader] = []
    contents: list[npt.NDArray[np.void]] = [np.zeros(0, _CONTENT)]
    for block in blocks:
        rows = block.directory
        part = np.zeros(len(rows), _CONTENT)
        part["source"], part["number"] = rows["source"], rows["number"]
        digests = b"".join([payload_digest(payload) for _, _, _, payload in block.messages()])
        part["digest"] = np.frombuffer(digests, _CONTENT["digest"])
        headers.append(block.header)
        contents.append(part)
    return Record(name, tuple(headers), np.concatenate(contents))


def releases_by_site(market: Market) -> dict[str, Record]:
    """What every trusted receiver, primary and secondary, released."""
    return {plan.name: read_record(plan.name, journal_of(market, plan.name)) for plan in market.receivers}


def followers_by_name(market: Market) -> dict[str, Record]:
    """What every retransmit server and complete customer got."""
    return {
        plan.name: read_record(plan.name, journal_of(market, plan.name)) for plan in market.nodes if is_follower(plan)
    }


def is_follower(plan: NodePlan) -> bool:
    """Whether a node is started with the market, and writes down everything that lines bring it."""
    complete = plan.role is NodeRole.CUSTOMER and plan.grade is Grade.COMPLETE
    return plan.start and (complete or plan.role is NodeRole.RETRANSMIT_SERVER)


# Instants -----------------------------------------------------------------------------------------


def lateness_ns(records: Mapping[str, Record]) -> Nanoseconds:
    """Of every block that a site released itself: how long after its instant it went out."""
    blocks = [header for record in records.values() for header in record.headers if not header.fetched]
    return np.array([header.lateness_ns for header in blocks], np.int64)


def early_releases(records: Mapping[str, Record], release_delay_ns: int = 0) -> int:
    """Messages that somebody had before the instant agreed for them, or before T_t+Δ_A: none, ever (S12)."""
    return sum(
        header.messages
        for record in records.values()
        for header in record.headers
        if header.released_at < max(header.due, header.instant + release_delay_ns)
    )


def skew_of(records: Mapping[str, Record], late_after_ns: int, stripes: Mapping[str, int] | None = None) -> ReleaseSkew:
    """How far apart these sites released each message, by the one definition; `stripes` are their own."""
    own = [OwnReleases.of(record.headers, (stripes or {}).get(name, 0)) for name, record in records.items()]
    return release_skew(own, late_after_ns, len(records))


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


def late_releases(records: Mapping[str, Record], late_after_ns: int) -> list[LateRelease]:
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
        for name, record in records.items()
        for header in record.headers
        if header.lateness_ns > late_after_ns and not header.fetched
    ]
    return sorted(found, key=lambda late: (late.due, late.first_sequence, late.site))


# Order --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Difference:
    """Two journals that say different things: an alarm, whatever the reason."""

    name: str
    other: str
    sequence: int
    """The first at which they differ."""
    count: int


def disagreements(records: Mapping[str, Record], followers: Mapping[str, Record] | None = None) -> list[Difference]:
    """Journals that differ where they overlap (S1): sites by label and content, followers by content.

    Each is compared with the longest journal of a site.
    """
    longest = max(records.values(), key=lambda record: record.messages, default=None)
    if longest is None:
        return []
    others = [(record, True) for record in records.values() if record is not longest]
    others += [(record, False) for record in (followers or {}).values()]
    found = []
    for record, by_label in others:
        differing = _differing(longest, record, by_label=by_label)
        if len(differing):
            found.append(Difference(record.name, longest.name, int(differing[0]), len(differing)))
    return found


def _differing(one: Record, other: Record, *, by_label: bool) -> npt.NDArray[np.int64]:
    """The sequences that both have, with different content."""
    common, here, there = np.intersect1d(one.sequences, other.sequences, return_indices=True)
    left, right = one.contents[here], other.contents[there]
    same = left["digest"] == right["digest"]
    if by_label:
        same &= (left["source"] == right["source"]) & (left["number"] == right["number"])
    return np.asarray(common[~same], np.int64)


# All of it ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Follower:
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
class Evidence:
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
    """Messages that a site released twice, or out of order."""
    differences: tuple[Difference, ...]
    followers: tuple[Follower, ...]

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
        return own | asdict(self)


def gather(market: Market, since_ns: int = 0) -> Evidence:
    """Everything, from the disk."""
    return weigh(market, releases_by_site(market), followers_by_name(market), since_ns)


def weigh(
    market: Market, records: Mapping[str, Record], followers: Mapping[str, Record], since_ns: int = 0
) -> Evidence:
    """Instants of what was released from `since_ns` on, order and gaps of whole journals."""
    recent = {name: record.since(since_ns) for name, record in records.items()}
    newest = max((record.last_sequence for record in records.values()), default=0)
    tokens = {header.token_number for record in recent.values() for header in record.headers}
    late_after_ns = market.timing.process_ns
    return Evidence(
        sites=len(records),
        messages=max((record.messages for record in recent.values()), default=0),
        tokens=len(tokens),
        early=early_releases({**recent, **followers}, market.timing.release_delay_ns),
        lateness=Quantiles.of(lateness_ns(recent)),
        late=tuple(late_releases(recent, late_after_ns)),
        late_after_ns=late_after_ns,
        skew=skew_of(recent, late_after_ns, {name: market.node(name).stripe for name in recent}),
        skew_bound_ns=market.timing.skew_bound_ns,
        missing=sum(_missing(record) for record in records.values()),
        repeated=sum(record.repeated() for record in records.values()),
        differences=tuple(disagreements(records, followers)),
        followers=tuple(_follower(market.node(name), record, newest) for name, record in followers.items()),
    )


def _follower(plan: NodePlan, record: Record, newest: int) -> Follower:
    return Follower(
        plan.name,
        plan.role.value,
        record.messages,
        record.last_sequence,
        _missing(record),
        record.repeated(),
        max(newest - record.last_sequence, 0),
    )


def _missing(record: Record) -> int:
    return sum(last - first + 1 for first, last in record.holes())
