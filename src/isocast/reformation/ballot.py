"""What a reformation server remembers of probes and ballots, in memory and on disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from isocast.ring.effects import BallotChosen, Record, RingDecided
from isocast.terms.ids import NO_EPOCH, Epoch, NodeId
from isocast.terms.instants import NEVER
from isocast.wire.packets import Join, NewRing

__all__ = ["Ballot", "Bar", "Excuse", "Forcing", "Planned", "Probe", "ServerSnapshot", "ServerState", "Stage"]


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
            case _:
                pass


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
    patient: bool = False
    """Whether voters that not all others have heard were given another round of votes."""
