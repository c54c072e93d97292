"""Release skew, the one definition (§5, F1): how far apart receivers released the same message, and what is left out.

- A receiver *releases* a message when it gives it to its customers itself. What it fetched after an absence, others
  released.
- The *skew* of a message is the time from its first release to its last, among the receivers that released it. What one
  receiver alone released has none (`alone`); what some receivers did not release, but two or more did, has the skew of
  those (`partly`).
- A message has a *fairness fault* if a receiver released it later than P after its instant (`late`), or if receivers
  had different instants for it because one still owed it to an earlier ring (`backlog`). It is counted (`faulted`),
  held to no bound, and in no quantile.
- All other messages are held to 2ε, twice the widest bound that a releasing clock had; some may still be beyond it
  (`exceeding`). The quantiles are of these messages, each once.

Spark computes the same in `isocast.lake.transforms.skew`; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from isocast.wire.journal import BlockHeader

__all__ = ["Nanoseconds", "OwnReleases", "Quantiles", "ReleaseSkew", "release_skew"]

Nanoseconds: TypeAlias = npt.NDArray[np.int64]

_SHARES = (0.5, 0.99)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Of spans of time in nanoseconds, each one that occurred; all zero without any."""

    count: int = 0
    p50_ns: int = 0
    p99_ns: int = 0
    max_ns: int = 0

    @classmethod
    def of(cls, values: Sequence[int] | Nanoseconds) -> Quantiles:
        """The smallest value that a share of them does not exceed, as Spark has it."""
        if not len(values):
            return cls()
        middle, high = np.quantile(values, _SHARES, method="inverted_cdf").tolist()
        return cls(len(values), int(middle), int(high), int(max(values)))


@dataclass(frozen=True, slots=True)
class OwnReleases:
    """What one receiver of one stripe released itself: a value for each message."""

    sequences: npt.NDArray[np.int64]
    due_ns: Nanoseconds
    released_ns: Nanoseconds
    bound_ns: Nanoseconds
    """ε of its clock at that moment."""
    stripe: int = 0

    @classmethod
    def of(cls, headers: Sequence[BlockHeader], stripe: int = 0) -> OwnReleases:
        """From the blocks of its journal."""
        own = [header for header in headers if not header.fetched]
        counts = np.array([header.messages for header in own], np.int64)
        names = ("first_sequence", "due", "released_at", "clock_bound_ns")
        first, due, released, bound = (
            np.repeat(np.array([getattr(header, name) for header in own], np.int64), counts) for name in names
        )
        within = np.arange(len(first)) - np.repeat(counts.cumsum() - counts, counts)
        return cls(first + within, due, released, bound, stripe)


@dataclass(frozen=True, slots=True)
class ReleaseSkew:
    """The skew of a market's messages, and how many messages are left out of it."""

    count: int = 0
    """Messages that the quantiles are of: two or more receivers released them, without a fairness fault."""
    p50_ns: int = 0
    p99_ns: int = 0
    max_ns: int = 0
    bound_ns: int = 0
    """2ε, the widest."""
    exceeding: int = 0
    """Of `count`: beyond their 2ε."""
    partly: int = 0
    """Of `count`: not every receiver released them."""
    faulted: int = 0
    """Left out: messages with a fairness fault."""
    late: int = 0
    """Of `faulted`: a receiver released them later than P after their instant."""
    backlog: int = 0
    """Of `faulted`: a receiver still owed them to an earlier ring."""
    alone: int = 0
    """Left out: messages that one receiver alone released."""

    @property
    def messages(self) -> int:
        """All of them."""
        return self.count + self.faulted + self.alone

    @property
    def within(self) -> int:
        """Messages without a fault whose skew is at most 2ε."""
        return self.count - self.exceeding


def release_skew(releases: Sequence[OwnReleases], late_after_ns: int, receivers: int | None = None) -> ReleaseSkew:
    """Of one entry for each receiver; `late_after_ns` is P, `receivers` how many should have released each message."""
    some = [one for one in releases if len(one.sequences)]
    if not some:
        return ReleaseSkew()
    wanted = len(some) if receivers is None else receivers
    stripes = np.concatenate([np.full(len(one.sequences), one.stripe, np.int64) for one in some])
    sequences = np.concatenate([one.sequences for one in some])
    order = np.lexsort((sequences, stripes))
    sequences, stripes = sequences[order], stripes[order]
    changes = (np.diff(sequences) != 0) | (np.diff(stripes) != 0)
    starts = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(changes) + 1])
    due, released, bound = (
        np.concatenate([getattr(one, name) for one in some])[order] for name in ("due_ns", "released_ns", "bound_ns")
    )
    sites = np.diff(np.append(starts, len(sequences)))
    skew = np.maximum.reduceat(released, starts) - np.minimum.reduceat(released, starts)
    bounds = 2 * np.maximum.reduceat(bound, starts)
    several = sites > 1
    late = several & (np.maximum.reduceat(released - due, starts) > late_after_ns)
    backlog = several & (np.maximum.reduceat(due, starts) > np.minimum.reduceat(due, starts))
    fair = several & ~late & ~backlog
    quantiles = Quantiles.of(skew[fair])
    return ReleaseSkew(
        count=quantiles.count,
        p50_ns=quantiles.p50_ns,
        p99_ns=quantiles.p99_ns,
        max_ns=quantiles.max_ns,
        bound_ns=int(bounds.max()),
        exceeding=int(np.count_nonzero(fair & (skew > bounds))),
        partly=int(np.count_nonzero(fair & (sites < wanted))),
        faulted=int(np.count_nonzero(late | backlog)),
        late=int(np.count_nonzero(late)),
        backlog=int(np.count_nonzero(backlog)),
        alone=int(np.count_nonzero(~several)),
    )
