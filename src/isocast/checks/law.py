"""What a run is held to, and how a breach of it is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from isocast.terms.ids import Epoch, NodeId, describe
from isocast.terms.timing import Timing

__all__ = ["EndOfRun", "Law", "Report", "Violation", "label", "milliseconds"]

VIOLATIONS_MAX = 100
"""Violations kept in all: whoever reads them stops long before."""
PER_PROPERTY_MAX = 10
"""Violations kept of one property: the first ones say why, the rest only how often."""


@dataclass(frozen=True)
class Law:
    """Which promises hold for a run."""

    timing: Timing
    """The times that all sites of the ring use, and their gate."""
    universe: tuple[NodeId, ...]
    """The sites of the ring at the start."""
    margin_ns: int
    """Allowance for processes that wake up late; added to every upper bound of time."""
    agreement: bool
    """Whether S1 holds: for majority, total and next-L with L+1 > |U|/2 always, else only without partitions."""
    may_diverge: bool = False
    """Rings without a majority of U are allowed, by policy or by force: divergence is counted, not blamed."""
    faultless: bool = False
    """No crash, pause, cut or bad clock, only lost packets: then no clock may come into doubt."""
    backlog_bounded: bool = True
    """Sources offer less than the tokens can take (λ·τ_t < K_max)."""
    parents: Mapping[NodeId, NodeId] = field(default_factory=dict)
    """Of each secondary receiver: the head of its group."""
    hears: bool = False
    """Whether facts tell what sites hear of receipts: then they are held to that."""
    batch_max: int = 0
    """K_max; 0: not known."""
    shuffled: bool = False
    """Whether messages inside a token are shuffled by a key that two owners reveal."""
    liars: frozenset[NodeId] = frozenset()
    """Sites that reveal, at times, another nonce than they committed to."""
    lies_alone: bool = False
    """Nothing else goes wrong: then a majority without the liar is always there."""


class Violation(NamedTuple):
    """One breach of a property, told for a person."""

    property: str
    at: int
    text: str

    def __str__(self) -> str:
        return f"{self.property} at {self.at / 1e9:.6f} s: {self.text}"


class EndOfRun(NamedTuple):
    """What is true when a run ends, after its faults have stopped for long enough."""

    now: int
    correct: tuple[NodeId, ...]
    """Sites that are up, have their disk, and whose clock is right."""
    submissions_due: int
    """Every submission before this instant must be released at every correct site."""
    epochs: Mapping[NodeId, tuple[Epoch, Epoch, bool]]
    """(promised, accepted, sealed) of each site."""
    unacknowledged: int
    """Messages of all sources that no token has named."""
    wishes: tuple[str, ...] = ()
    """What an operator asked for in vain."""
    lasting: tuple[NodeId, ...] = ()
    """Nodes that stay down, or whose clock stays wrong: everybody else must go on while they do (L7)."""


class Report:
    """Collects violations, not more than a person can use."""

    def __init__(self) -> None:
        """A clean sheet."""
        self.violations: list[Violation] = []
        self._per_property: dict[str, int] = {}

    def __call__(self, name: str, at: int, text: str) -> None:
        """Note a breach of property `name`."""
        seen = self._per_property[name] = self._per_property.get(name, 0) + 1
        if seen <= PER_PROPERTY_MAX and len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(Violation(name, at, text))


def label(source: NodeId, number: int) -> str:
    """A message as a person would name it: ``source1/17``."""
    return f"{describe(source)}/{number}"


def milliseconds(span_ns: int) -> str:
    """A span of time, for people."""
    return f"{span_ns / 1e6:.6g} ms"
