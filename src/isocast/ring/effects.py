"""What a machine asks of its driver: a closed union for each role, performed in order.

A driver performs `Persist` before any later effect of the same step: what is sent may be relied on by
others, so it must be as durable as the site promises. The effects are also the trace that checkers watch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from isocast.ring.court import Evidence
from isocast.ring.ledger import Checkpoint, LogEntry
from isocast.terms.ids import Epoch, Label, NodeId
from isocast.wire.packets import NO_DIGEST, ControlEntry, Data, NewRing, Packet, SourceChain, Suspicion

__all__ = [
    "BallotChosen",
    "ChainHeard",
    "Collect",
    "ControlOutcome",
    "ControlSettled",
    "Diverged",
    "DriverEffect",
    "Effect",
    "EntryAppended",
    "EntryCompleted",
    "FairnessFaulted",
    "FetchCheckpoint",
    "LieProven",
    "LogReplaced",
    "Multicast",
    "NameForged",
    "NumbersForgotten",
    "OrderMissed",
    "OutboxAppended",
    "OutboxFreed",
    "Persist",
    "PromiseMade",
    "PublishAccepted",
    "PublishRejected",
    "ReadJournal",
    "ReceiverEffect",
    "ReceiverHostEffect",
    "Record",
    "Release",
    "RingDecided",
    "RingInstalled",
    "RingSuspected",
    "SecondaryHandedBack",
    "SecondaryReturned",
    "SecondaryStalled",
    "SourceEffect",
    "SourceHostEffect",
    "SupportSilent",
    "Unicast",
    "UniverseForced",
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
class LogReplaced:
    """The log begins anew behind a checkpoint of another site's, and goes on with `suffix`: one atomic record.

    With `ring`, prom = e_acc = ring.ballot: the log is that of the ring's epoch, and nothing is left of the one before.
    Without, the checkpoint lies in the epoch that the site is in, ahead of everything that it held there. Either way
    (e_acc, h) is what the site holds, as if it had held everything and let the past go. Promises never go back.
    """

    checkpoint: Checkpoint
    ring: NewRing | None = None
    suffix: tuple[LogEntry, ...] = ()


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
    chain: bytes = NO_DIGEST
    """Of a primary source that signs: its chain behind the last message that is stable."""


@dataclass(frozen=True, slots=True)
class BallotChosen:
    """A server never uses a ballot twice."""

    ballot: Epoch


@dataclass(frozen=True, slots=True)
class RingDecided:
    """One NEWRING per ballot."""

    ring: NewRing


Record: TypeAlias = (
    PromiseMade
    | EntryAppended
    | RingInstalled
    | LogReplaced
    | OutboxAppended
    | OutboxFreed
    | BallotChosen
    | RingDecided
)


@dataclass(frozen=True, slots=True)
class Persist:
    """Make the record durable before performing what follows."""

    record: Record


@dataclass(frozen=True, slots=True)
class Multicast:
    """Send to the stripe's group (`wire.frame` says whose sockets take it)."""

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
class FetchCheckpoint:
    """What this site lacks is gone where it asked: fetch a checkpoint from one of `ask`, in this order.

    It must lie above token `above`. The driver answers with `CheckpointFetched`, after it has brought what was released
    up to the checkpoint into its journal; while it is busy with that, the same wish may be repeated.
    """

    ask: tuple[NodeId, ...]
    above: int


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
    uncertified: bool = False
    """Released in an epoch that no majority of U stands behind: another site may have released something else."""
    links: tuple[bytes, ...] = ()
    """Where keys are disclosed: of each message the link that opens it, or none if it is void at every site."""


@dataclass(frozen=True, slots=True)
class FairnessFaulted:
    """Token t could not be released at its instant: held until it may be."""

    token_number: int


@dataclass(frozen=True, slots=True)
class Collect:
    """Everything up to token t may leave memory: every member holds it, and the journal has it."""

    token_number: int


class ControlOutcome(StrEnum):
    """What became of an operator's entry."""

    DONE = "done"
    """It is in the sequence, and certified."""
    ALREADY = "already"
    """U is so already: nothing was done."""
    TOO_FEW = "too-few"
    """U would fall below two sites: nothing was done."""
    OFF_RING = "off-ring"
    """This site has no token to put it into: another must be asked."""
    NOT_HERE = "not-here"
    """It is not for a site to put such an entry into the sequence."""
    NOT_ORDERED = "not-ordered"
    """The operator did not sign it: nothing was done."""
    STALE = "stale"
    """A newer order came first, or its time is over: it must be signed again."""


@dataclass(frozen=True, slots=True)
class ControlSettled:
    """An entry that an operator gave to this site waits no more."""

    entry: ControlEntry
    outcome: ControlOutcome


@dataclass(frozen=True, slots=True)
class UniverseForced:
    """U was replaced on an operator's word alone: loud, and recorded in the sequence at `token_number`."""

    epoch: Epoch
    token_number: int
    universe: tuple[NodeId, ...]
    left_out: tuple[NodeId, ...] = field(default=(), compare=False)
    """Those of the U before that are not in it: their numbers must never vote again."""


@dataclass(frozen=True, slots=True)
class Diverged:
    """This site's log was cut back, for a ring's, below what it had released: an alarm.

    Sequences `first_sequence` to `next_sequence`-1 went out here, and others may have other messages there. None of
    them goes out twice. Only the policy `availability` can lead here.
    """

    epoch: Epoch
    first_sequence: int
    next_sequence: int


@dataclass(frozen=True, slots=True)
class LieProven:
    """A site signed two contents for one token, or for one receipt: an alarm, and a proof to keep."""

    evidence: Evidence


@dataclass(frozen=True, slots=True)
class OrderMissed:
    """A token, or a forced ring, says of the market what no operator ordered: an alarm, and nobody follows it."""

    author: NodeId
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
class SecondaryHandedBack:
    """A secondary receiver that counted here while its own head was silent has that one again."""

    group: NodeId
    member: NodeId


@dataclass(frozen=True, slots=True)
class HeadshipAssumed:
    """This site heads a secondary group in this epoch."""

    epoch: Epoch
    group: NodeId
    """The head that the market's file gives it."""
    anew: bool
    """Whether it counts every member, those too that had stalled."""


@dataclass(frozen=True, slots=True)
class GroupLeft:
    """The ring of this epoch gives a group that this site headed to another, or back."""

    epoch: Epoch
    group: NodeId
    head: NodeId


@dataclass(frozen=True, slots=True)
class HeadSwitched:
    """A secondary receiver belongs to another head now: by a new ring, or as its own is silent or heard again."""

    group: NodeId
    head: NodeId
    silent: bool
    """Whether the group's head is silent, and this is an adopter."""


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


@dataclass(frozen=True, slots=True)
class NumbersForgotten:
    """The ring has numbers of this source, below `next_number`, that its outbox does not know: it was cut, or is old.

    They were sealed under nonces that must not meet other payloads, so nothing more is numbered in this incarnation.
    """

    source: NodeId
    known: int
    """The first number that the outbox does not know."""
    next_number: int


@dataclass(frozen=True, slots=True)
class NameForged:
    """The ring ordered, under this source's name and numbers, contents that are not in its outbox: an alarm.

    Somebody else holds its tag key, or its outbox is an older copy. Nothing more is numbered in this incarnation.
    """

    source: NodeId
    first: int
    last: int
    token_number: int


@dataclass(frozen=True, slots=True)
class ChainHeard:
    """A source signed for what it sent: the journal keeps it, so that everybody can tell what is the source's."""

    statement: SourceChain


DriverEffect: TypeAlias = Persist | Multicast | Unicast
"""What every driver performs itself; all else is for the host of the machine's role."""
ReceiverHostEffect: TypeAlias = (
    ReadJournal
    | FetchCheckpoint
    | EntryCompleted
    | Release
    | FairnessFaulted
    | Collect
    | ControlSettled
    | UniverseForced
    | Diverged
    | LieProven
    | ChainHeard
    | OrderMissed
    | RingSuspected
    | SupportSilent
    | SecondaryStalled
    | SecondaryReturned
    | SecondaryHandedBack
    | HeadshipAssumed
    | GroupLeft
    | HeadSwitched
)
ReceiverEffect: TypeAlias = DriverEffect | ReceiverHostEffect
"""Of a primary or a secondary receiver."""
SourceHostEffect: TypeAlias = PublishAccepted | PublishRejected | NumbersForgotten | NameForged
SourceEffect: TypeAlias = DriverEffect | SourceHostEffect
"""Of a primary source."""
Effect: TypeAlias = ReceiverEffect | SourceEffect
