"""When each token's messages were released, place by place: what skew, lateness and latency are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from isocast.checks.skew import OwnReleases, Quantiles, ReleaseSkew, release_skew
from isocast.runtime.market.model import Market, NodeRole
from isocast.terms.ids import Epoch, NodeId
from isocast.wire.journal import BlockHeader
from isocast.wire.journal_blocks import BlockView

__all__ = ["Absence", "Chunk", "ReleaseFigures", "Releases", "one_way_ns"]


@dataclass(slots=True)
class Chunk:
    """Messages of one token that are due at one instant, and who released them when."""

    token_number: int
    epoch: Epoch
    instant: int
    due: int
    messages: int
    submitted: int
    """Mean instant at which its messages were given to their sources, by the events' own time; 0 without events."""
    released: dict[str, int] = field(default_factory=dict)

    @property
    def skew_ns(self) -> int:
        """Between the first and the last place."""
        return max(self.released.values()) - min(self.released.values()) if self.released else 0


@dataclass(frozen=True, slots=True)
class Absence:
    """A place was down, or outside the ring."""

    name: str
    since: int
    until: int


@dataclass(frozen=True, slots=True)
class ReleaseFigures:
    """What the releases of a show come to."""

    skew: ReleaseSkew
    """Of messages, between places, and what is left out."""
    lateness: Quantiles
    """Of every release, against its instant."""
    latency_ns: float
    """Mean submit to release of messages that no broken ring held up, over all places that were there."""
    latency_all_ns: float
    """The same for all messages, at the first place that released them."""
    measured: int
    """Releases of messages that `latency_ns` is the mean of."""
    disturbed: int
    """Those that are not: of places that were away, and of messages that waited for a ring."""


class Releases:
    """Takes the blocks of journals as they come, in any order of places."""

    def __init__(self, market: Market) -> None:
        """Nothing is out yet."""
        self._timing = market.timing
        self._places = len(market.receivers)
        self.chunks: dict[int, Chunk] = {}
        """By first sequence."""
        self.first_tokens: dict[Epoch, int] = {}
        """The first token with messages of each ring."""
        self._own: dict[str, list[BlockHeader]] = {}
        self.sources: dict[NodeId, int] = {}
        """Messages of each source, as the first place released them."""

    def add(self, name: str, block: BlockView) -> Chunk:
        """A place released a block."""
        header = block.header
        chunk = self.chunks.get(header.first_sequence)
        if chunk is None:
            chunk = self.chunks[header.first_sequence] = self._begin(block)
        chunk.released[name] = header.released_at
        if not header.fetched:
            self._own.setdefault(name, []).append(header)
        return chunk

    def _begin(self, block: BlockView) -> Chunk:
        header = block.header
        directory = block.directory
        for source, count in zip(*np.unique(directory["source"], return_counts=True), strict=True):
            self.sources[int(source)] = self.sources.get(int(source), 0) + int(count)
        with_events = directory["first_event"][directory["events"] > 0]
        times = block.events["time"][with_events].astype(np.int64)
        first = self.first_tokens.get(header.epoch, header.token_number)
        self.first_tokens[header.epoch] = min(first, header.token_number)
        return Chunk(
            token_number=header.token_number,
            epoch=header.epoch,
            instant=header.instant,
            due=header.due,
            messages=header.messages,
            submitted=round(float((times - header.instant).mean())) + header.instant if len(times) else 0,
        )

    def is_unbroken(self, chunk: Chunk) -> bool:
        """Acknowledged and released by one ring, on its timetable; a ring's first token has what waited for it."""
        on_timetable = chunk.due == chunk.instant + self._timing.release_delay_ns
        return on_timetable and chunk.token_number > self.first_tokens[chunk.epoch]

    def figures(self, absences: Sequence[Absence] = ()) -> ReleaseFigures:
        """The whole; of latency, what falls into an absence is counted apart."""
        disturbed = measured = 0
        waited = waited_all = 0.0
        for chunk in self.chunks.values():
            unbroken = self.is_unbroken(chunk)
            there = {name: at for name, at in chunk.released.items() if unbroken and not _away(name, chunk, absences)}
            if chunk.submitted:
                disturbed += chunk.messages * (len(chunk.released) - len(there))
                waited += chunk.messages * sum([at - chunk.submitted for at in there.values()])
                measured += chunk.messages * len(there)
                waited_all += chunk.messages * (min(chunk.released.values()) - chunk.submitted)
        messages = sum([chunk.messages for chunk in self.chunks.values() if chunk.submitted])
        own = [OwnReleases.of(headers) for headers in self._own.values()]
        return ReleaseFigures(
            skew=release_skew(own, self._timing.process_ns, self._places),
            lateness=Quantiles.of([header.lateness_ns for some in self._own.values() for header in some]),
            latency_ns=waited / max(measured, 1),
            latency_all_ns=waited_all / max(messages, 1),
            measured=measured,
            disturbed=disturbed,
        )


def _away(name: str, chunk: Chunk, absences: Sequence[Absence]) -> bool:
    return any(absence.name == name and absence.since <= chunk.due <= absence.until for absence in absences)


def one_way_ns(market: Market, messages: Mapping[NodeId, int]) -> int:
    """d: from sources to owners, each source weighted by its messages, each primary receiver alike."""
    ring = market.by_role(NodeRole.PRIMARY_RECEIVER)
    total = weights = 0
    for source, count in messages.items():
        plan = market.find(source)
        if plan is not None:
            total += count * sum([market.delay_ns(plan.name, owner.name) for owner in ring])
            weights += count * len(ring)
    return total // max(weights, 1) + market.impairment.jitter_ns
