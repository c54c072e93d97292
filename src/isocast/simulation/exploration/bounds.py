"""How much of a market is explored: the bounds that make "all interleavings" a finite number."""

from __future__ import annotations

from dataclasses import dataclass

from isocast.terms.timing import Timing

__all__ = ["Bounds", "HastyTiming"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """One configuration of the model checker."""

    sites: int = 3
    """Primary receivers: U."""
    servers: int = 2
    """Reformation servers, whose ballots race."""
    tokens: int = 1
    """The highest token number that anybody issues, in any epoch."""
    ballots: int = 1
    """Ballots that each server begins, beside the one that formed the first ring."""
    restarts: int = 0
    """How often, over all nodes, a process dies and comes back from its disk."""
    shorter_logs: int = 0
    """How often one comes back with a log that lost its newest token."""
    lost_disks: int = 0
    """How often one comes back without its disk."""
    more_votes: bool = True
    """Whether a server may also wait for more votes than a majority of U."""
    flying: bool = False
    """Whether messages still travel when the search begins, instead of waiting at every site in another order."""
    requests: bool = False
    """Whether receivers also ask for what is late; without, whatever was sent may simply come later."""
    rivals: bool = False
    """Whether servers hear tokens, refusals and one another; without, each only counts the votes for its ballots."""
    sources: bool = False
    """Whether sources hear tokens and rings and send again; without, what they sent may come at any time, and again."""
    eager: bool = True
    """Whether receipts and requests that are of use arrive at once (a reduction; see `market`)."""
    gathered_votes: bool = True
    """Whether a server counts its votes at the moment of its decision (a reduction; see `market`)."""
    dead_votes: bool = True
    """Whether states are one that differ in nothing but votes to servers which count none any more (see `sweep`)."""


class HastyTiming(Timing):
    """Times of a ring that releases as soon as its gate allows: whatever is unsafe at any Δ_A is unsafe at 0."""

    __slots__ = ()

    @property
    def minimum_release_delay_ns(self) -> int:
        """Nothing."""
        return 0
