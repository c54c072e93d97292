"""Many tokens: counted in parts, each a function of its tokens' numbers, and added up in whole numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from isocast.reformation.scopes.surface import Floats, Ints
from isocast.studies.planet.core import TokenOutcome, run_token, with_sets
from isocast.studies.planet.core_net import CoreNet
from isocast.studies.planet.settings import CoreSettings
from isocast.studies.planet.tallies import OFFSETS, Bins

__all__ = ["COMPLETIONS", "CorePart", "CoreTally", "CoreWorld", "RingTally", "joined", "run_tokens"]

COMPLETIONS = Bins(low=0.0, step=5e6, count=4_000)
"""When receivers are complete after a token's instant: steps of 5 ms up to 20 s."""


@dataclass(frozen=True, eq=False)
class CoreWorld:
    """All that the computation of tokens needs."""

    net: CoreNet
    settings: CoreSettings
    run: int
    kept: int = 0
    """Tokens whose releases are kept, receiver by receiver: those that customers follow."""
    reduced: bool = True
    """Whether every token is also run with NACK sets."""
    batches: Ints | None = None
    """Messages of each token, where they differ."""


@dataclass(frozen=True, slots=True)
class CorePart:
    """Tokens `first` to `last`-1."""

    first: int
    last: int


@dataclass(eq=False)
class RingTally:
    """What the ring's recovery took."""

    nacks: int
    repairs: int
    gave_up: int
    """Tokens on which some primary receiver gave up."""
    wave_max: int
    per_lost: Ints
    """How many packets that somebody lacked were named in so many NACKs."""

    def add(self, other: RingTally) -> RingTally:
        """Both together."""
        return RingTally(
            self.nacks + other.nacks,
            self.repairs + other.repairs,
            self.gave_up + other.gave_up,
            max(self.wave_max, other.wave_max),
            _longer(self.per_lost, other.per_lost),
        )

    def per_lost_quantile(self, share: float) -> int:
        """NACKs per lost packet that a share of these packets do not exceed."""
        total = int(self.per_lost.sum())
        return int(np.searchsorted(np.cumsum(self.per_lost), max(np.ceil(share * total), 1))) if total else 0


@dataclass(eq=False)
class CoreTally:
    """What the tokens took."""

    tokens: int
    messages: int
    ring: RingTally
    reduced: RingTally | None
    """The same tokens with NACK sets."""
    lower_nacks: int
    lower_repairs: int
    unfinished: int
    late: int
    """Releases after the common instant: fairness faults."""
    asked: Ints
    """NACKs that each receiver was sent."""
    skews: Ints
    """The widest spread of the releases of each token, in ns, late ones apart."""
    offsets: Ints
    completions: Ints
    releases_ns: Floats
    """For each token that is kept: releases after the common instant."""

    def add(self, other: CoreTally) -> CoreTally:
        """Both together; `other` has the later tokens."""
        reduced = self.reduced
        if reduced is not None and other.reduced is not None:
            reduced = reduced.add(other.reduced)
        return CoreTally(
            self.tokens + other.tokens,
            self.messages + other.messages,
            self.ring.add(other.ring),
            reduced,
            self.lower_nacks + other.lower_nacks,
            self.lower_repairs + other.lower_repairs,
            self.unfinished + other.unfinished,
            self.late + other.late,
            self.asked + other.asked,
            np.concatenate((self.skews, other.skews)),
            self.offsets + other.offsets,
            self.completions + other.completions,
            np.concatenate((self.releases_ns, other.releases_ns)),
        )


def joined(parts: list[CoreTally]) -> CoreTally:
    """All parts, in the order of their tokens."""
    return reduce(CoreTally.add, parts)


def _longer(one: Ints, other: Ints) -> Ints:
    total = np.zeros(max(len(one), len(other)), dtype=np.int64)
    total[: len(one)] += one
    total[: len(other)] += other
    return total


def run_tokens(world: CoreWorld, part: CorePart) -> CoreTally:
    """The counts of some tokens."""
    return reduce(CoreTally.add, (_one(world, number) for number in range(part.first, part.last)))


def _one(world: CoreWorld, number: int) -> CoreTally:
    net, settings = world.net, world.settings
    batch = settings.batch if world.batches is None else int(world.batches[number])
    outcome = run_token(net, settings, world.run, number, batch)
    sets = settings.reduction_sets
    reduced = None
    if world.reduced and sets > 1:
        reduced = _ring(run_token(net, with_sets(settings, sets), world.run, number, batch))
    due = settings.timing.release_delay_ns
    after = outcome.release_ns - due
    spread = after[outcome.punctual]
    return CoreTally(
        1,
        batch,
        _ring(outcome),
        reduced,
        outcome.lower_nacks,
        outcome.lower_repairs,
        outcome.unfinished,
        int((~outcome.punctual).sum()),
        outcome.asked,
        np.array([round(float(spread.max() - spread.min())) if len(spread) else 0], dtype=np.int64),
        OFFSETS.tally(spread),
        COMPLETIONS.tally(np.where(np.isfinite(outcome.complete_ns), outcome.complete_ns, 1e18)),
        after[None, :] if number < world.kept else np.zeros((0, net.size)),
    )


def _ring(outcome: TokenOutcome) -> RingTally:
    return RingTally(
        outcome.ring_nacks,
        outcome.ring_repairs,
        int(outcome.gave_up > 0),
        outcome.wave,
        np.bincount(outcome.per_lost, minlength=1),
    )
