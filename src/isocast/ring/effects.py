"""What a machine asks of its driver: one closed union, performed in order.

A driver performs `Persist` before any later effect of the same step: what is sent may be relied on by
others, so it must be as durable as the site promises. The effects are also the trace that checkers watch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from isocast.ring.entries import LogEntry
from isocast.terms.ids import Epoch, Label, NodeId
from isocast.wire.packets import Data, NewRing, Packet, Suspicion

__all__ = [
    "BallotChosen",
    "Collect",
    "Effect",
    "EntryAppended",
    "EntryCompleted",
    "FairnessFaulted",
    "Multicast",
    "OutboxAppended",
    "OutboxFreed",
    "Persist",
    "PromiseMade",
    "PublishAccepted",
    "PublishRejected",
    "ReadJournal",
    "Record",
    "Release",
    "RingDecided",
    "RingInstalled",
    "RingSuspected",
    "SecondaryReturned",
    "SecondaryStalled",
    "SupportSilent",
    "Unicast",
]


@dataclass(frozen=True, slots=True)
class PromiseMade:
    """prom: the member is sealed below this ballot (protocol §5)."""

    ballot: Epoch


@dataclass(frozen=True, slots=True)
class EntryAppended:
    """log: a token with all its messages, complete."""

    entry: LogEntry


@dataclass(frozen=True, slots=True)
class RingInstalled:
    """prom = e_acc = ring.ballot, the log cut back to `keep` and continued by `suffix`, in one atomic record."""

    ring: NewRing
    keep: int
    suffix: tuple[LogEntry, ...]


@dataclass(frozen=True, slots=True)
class OutboxAppended:
    """A source's promise to its client: this batch will be in the sequence."""

    key: bytes
    number: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class OutboxFreed:
    """Everything below `base` is stable."""

    base: int


@dataclass(frozen=True, slots=True)
class BallotChosen:
    """A server never uses a ballot twice."""

    ballot: Epoch


@dataclass(frozen=True, slots=True)
class RingDecided:
    """One NEWRING per ballot."""

    ring: NewRing


Record: TypeAlias = (
    PromiseMade | EntryAppended | RingInstalled | OutboxAppended | OutboxFreed | BallotChosen | RingDecided
)


@dataclass(frozen=True, slots=True)
class Persist:
    """Make the record durable before performing what follows."""

    record: Record


@dataclass(frozen=True, slots=True)
class Multicast:
    """Send to the stripe's group (`wire.audience` says whose sockets take it)."""

    packet: Packet


@dataclass(frozen=True, slots=True)
class Unicast:
    """Send to one node."""

    to: NodeId
    packet: Packet


@dataclass(frozen=True, slots=True)
class ReadJournal:
    """Read tokens `first` to `last` from the journal and answer with `JournalRead` for `to`."""

    to: NodeId
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class EntryCompleted:
    """h = token_number: the site holds this token, its messages and everything before."""

    epoch: Epoch
    entry: LogEntry
    digest: bytes


@dataclass(frozen=True, slots=True)
class Release:
    """Hand these messages to the application and to the customers: sequences first_sequence onwards.

    `epoch` is the site's own at this moment, `due` the instant that all sites share. The entry's shuffle key
    travels along so that an application can shuffle events as the ring shuffled packets.
    """

    epoch: Epoch
    entry: LogEntry
    first_sequence: int
    messages: tuple[Data, ...]
    due: int


@dataclass(frozen=True, slots=True)
class FairnessFaulted:
    """Token t could not be released at its instant: held until it may be."""

    token_number: int


@dataclass(frozen=True, slots=True)
class Collect:
    """Everything up to token t may leave memory: every member holds it, and the journal has it."""

    token_number: int


@dataclass(frozen=True, slots=True)
class RingSuspected:
    """The machine gave up on something; the node tells the reformation servers."""

    token_number: int
    suspect: NodeId
    reason: Suspicion


@dataclass(frozen=True, slots=True)
class SupportSilent:
    """k_r requests of a secondary receiver to `asked` were in vain: it turns to another. The ring is not suspected."""

    token_number: int
    asked: NodeId


@dataclass(frozen=True, slots=True)
class SecondaryStalled:
    """A member of a secondary group is G tokens overdue: memory no longer waits for it, and it must catch up."""

    group: NodeId
    member: NodeId
    token_number: int
    """The newest token that it was known to hold."""


@dataclass(frozen=True, slots=True)
class SecondaryReturned:
    """A member that had stalled holds everything that anybody may have dropped meanwhile."""

    group: NodeId
    member: NodeId
    token_number: int


@dataclass(frozen=True, slots=True)
class PublishAccepted:
    """The batch is in the outbox under this label."""

    key: bytes
    label: Label


@dataclass(frozen=True, slots=True)
class PublishRejected:
    """The batch was not taken, and why; the client may try again."""

    key: bytes
    reason: str


Effect: TypeAlias = (
    Persist
    | Multicast
    | Unicast
    | ReadJournal
    | EntryCompleted
    | Release
    | FairnessFaulted
    | Collect
    | RingSuspected
    | SupportSilent
    | SecondaryStalled
    | SecondaryReturned
    | PublishAccepted
    | PublishRejected
)
