"""How long a market needed: from the fault to its detection, from the ballot to the new token, between two releases.

    fault ──detected in──▶ first suspicion … ballot begins ──ballot to token──▶ first token of the new ring

Every instant is one that a node logged or journalled, on the one clock of the machine.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from isocast.terms.timing import Timing
from isocast.trials.drill.logbook import LogBook, LogLine
from isocast.trials.evidence import Record

__all__ = [
    "ALARMS",
    "BALLOT",
    "DECIDED",
    "FIRST_TOKEN",
    "SUSPECTS",
    "Reformation",
    "detected_at",
    "first_span_ns",
    "outage_ns",
    "reformations",
    "release_instants",
    "releases_by_part",
]

SUSPECTS = "suspects"
BALLOT = "ballot begins"
DECIDED = "ring decided"
FIRST_TOKEN = "first token of a ring"  # noqa: S105  A token of the ring, no secret.
ALARMS = ("clock", "disk-full", "failed", "forgot")
"""By which a node says that something is wrong with itself."""


@dataclass(frozen=True, slots=True)
class Reformation:
    """A ballot that came to a ring, and the ring to its first token."""

    epoch: str
    members: tuple[str, ...]
    ballot_at: int
    decided_at: int
    token_at: int

    @property
    def span_ns(self) -> int:
        """From the ballot to the first new token."""
        return self.token_at - self.ballot_at


def reformations(book: LogBook, since: int) -> list[Reformation]:
    """Those whose ring was decided from an instant on and sent a token, in the order of their tokens."""
    begun = {line.text("epoch"): line.at for line in reversed(book.since(0, BALLOT))}
    tokens = {line.text("epoch"): line.at for line in reversed(book.since(since, FIRST_TOKEN))}
    found = [
        Reformation(epoch, _members(line), begun.get(epoch, line.at), line.at, tokens[epoch])
        for line in book.since(since, DECIDED)
        if (epoch := line.text("epoch")) in tokens
    ]
    return sorted(found, key=lambda one: one.token_at)


def _members(line: LogLine) -> tuple[str, ...]:
    return tuple([name.strip() for name in line.text("members").split(",")])


def first_span_ns(rings: Sequence[Reformation], returned_at: int = 0, ballots: Iterable[int] = ()) -> int | None:
    """From ballot to first new token, of the first ring; None if there was none.

    A majority that was lost counts from its return, whatever ballots were held in vain before. `ballots` are those of
    servers that may have died: then the first of them counts.
    """
    ring = next((ring for ring in rings if ring.token_at >= returned_at), None)
    if ring is None:
        return None
    return ring.token_at - max(min([ring.ballot_at, *ballots]), returned_at)


def detected_at(book: LogBook, since: int) -> int | None:
    """When anybody first suspected, said that something is wrong with itself, or began a ballot."""
    found = book.first(since, lambda line: line.event in (SUSPECTS, BALLOT, *ALARMS))
    return None if found is None else found.at


def outage_ns(sites: Iterable[Sequence[int]], since: int, until: int, timing: Timing) -> int | None:
    """The longest time without a release at any of these sites, less the ordinary time between two; None without any.

    `sites` are the instants at which each released, in order. What counts is every interval that reaches into the
    time from `since` to `until`.
    """
    spans: list[int] = []
    for instants in sites:
        first = max(bisect_left(instants, since) - 1, 0)
        marks = instants[first : bisect_right(instants, until) + 1]
        spans += [late - early for early, late in pairwise(marks)]
    return max(max(spans) - timing.token_period_ns, 0) if spans else None


def release_instants(records: Iterable[Record]) -> list[int]:
    """When any of these sites released something, in order."""
    return sorted({header.released_at for record in records for header in record.headers})


def releases_by_part(records: Mapping[str, Record], start: int, part_ns: int, parts: int) -> dict[str, list[int]]:
    """For a picture: how many messages each site released in each of so many parts of a time."""
    found = {}
    for name, record in records.items():
        counts = [0] * parts
        for header in record.headers:
            part = (header.released_at - start) // part_ns
            if 0 <= part < parts:
                counts[part] += header.messages
        found[name] = counts
    return found
