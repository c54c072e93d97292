"""What an observer from outside sees of a run. `at` is true time where it is known, else the writer's clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from isocast.checks.floor_acts import FloorTranscript
from isocast.checks.properties import PROPERTIES
from isocast.terms.ids import Epoch, NodeId, describe
from isocast.terms.timing import Timing
from isocast.wire import packets as wire
from isocast.wire.packets import ControlEntry, Data, NewRing, Suspicion, Token

__all__ = [
    "Acknowledged",
    "AgreedTrade",
    "BatchTaken",
    "Certified",
    "ClockStepped",
    "Collected",
    "Completed",
    "Convicted",
    "Crashed",
    "Cut",
    "Delivered",
    "Disclosed",
    "EndOfRun",
    "Entrusted",
    "Fact",
    "Faulted",
    "FloorBusted",
    "FloorConfirmed",
    "FloorCut",
    "FloorDiffered",
    "FloorReported",
    "FloorStepped",
    "FloorTold",
    "Forced",
    "Freed",
    "Given",
    "GroupHeaded",
    "HandedBack",
    "HeadChanged",
    "Healed",
    "Installed",
    "Invited",
    "LatestDelivered",
    "Law",
    "LeftOut",
    "Opens",
    "Paused",
    "Promised",
    "ReceiptHeard",
    "ReceiptSent",
    "Released",
    "Replaced",
    "Report",
    "Restarted",
    "Resumed",
    "Returned",
    "RingFormed",
    "Sealed",
    "SecondaryTokenPassed",
    "Settled",
    "SnapshotTaken",
    "StabilityClaimed",
    "Stalled",
    "Strayed",
    "StripeArchived",
    "StripeDatagramSent",
    "StripeDelivered",
    "StripeLeftOut",
    "Submitted",
    "Suspected",
    "TokenMade",
    "TokenSent",
    "Unanswered",
    "Violation",
    "Voted",
    "label",
    "milliseconds",
]


class Submitted(NamedTuple):
    """A source took a message from its client."""

    at: int
    source: NodeId
    number: int
    digest: bytes


class Sealed(NamedTuple):
    """A source sealed a message with a key that it will disclose."""

    at: int
    source: NodeId
    number: int
    link: bytes
    """Of the key chain: it, or any later link of the chain, opens the message."""


class Disclosed(NamedTuple):
    """A source showed links of its key chain."""

    at: int
    source: NodeId
    links: tuple[tuple[int, bytes], ...]


class TokenSent(NamedTuple):
    """A site multicast a token of its own."""

    at: int
    site: NodeId
    epoch: Epoch
    token_number: int
    instant: int
    digest: bytes
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls


class TokenMade(NamedTuple):
    """A site wrote a token of its own to its disk: from now on others may get it, sent or not."""

    at: int
    site: NodeId
    digest: bytes
    token: Token


class BatchTaken(NamedTuple):
    """What the owner of a token took of what waited there, in order, and what it left."""

    at: int
    site: NodeId
    epoch: Epoch
    token_number: int
    taken: tuple[tuple[NodeId, int, int], ...]
    """(source, number, place among all arrivals at this site; negative where it is not known)."""
    left: tuple[tuple[NodeId, int], ...]
    """(source, messages that could have been taken next)."""


class ReceiptSent(NamedTuple):
    """A site claimed to hold everything up to a token."""

    at: int
    site: NodeId
    epoch: Epoch
    held: int


class ReceiptHeard(NamedTuple):
    """A site got another's receipt."""

    at: int
    site: NodeId
    sender: NodeId
    epoch: Epoch
    held: int


class Certified(NamedTuple):
    """A site counts everything up to a token as held by a majority."""

    at: int
    site: NodeId
    epoch: Epoch
    token_number: int


class Completed(NamedTuple):
    """A site's log grew by a token; `messages` counts those that are really there."""

    at: int
    site: NodeId
    epoch: Epoch
    token_number: int
    digest: bytes
    expected: int
    messages: int
    control: tuple[ControlEntry, ...] = ()


class Released(NamedTuple):
    """A site released messages: sequences `first_sequence` onwards."""

    at: int
    site: NodeId
    epoch: Epoch
    token_number: int
    instant: int
    first_sequence: int
    messages: tuple[Data, ...]
    due: int
    clock_kept: bool
    """Whether the site's clock was within its bound."""
    uncertified: bool = False
    """Whether the site said that no majority stands behind it."""
    links: tuple[bytes, ...] = ()
    """Where keys are disclosed: what opened each message, or nothing for one that is void."""


class Promised(NamedTuple):
    """A site promised a ballot."""

    at: int
    site: NodeId
    ballot: Epoch


class Voted(NamedTuple):
    """A site voted for a ballot."""

    at: int
    site: NodeId
    ballot: Epoch


class Invited(NamedTuple):
    """A server invited to a ballot of its own."""

    at: int
    server: NodeId
    ballot: Epoch


class RingFormed(NamedTuple):
    """A server decided on the ring of a ballot."""

    at: int
    server: NodeId
    ring: NewRing


class Freed(NamedTuple):
    """A source let go of everything below a number."""

    at: int
    source: NodeId
    base: int


class Acknowledged(NamedTuple):
    """A source believes that the log of an epoch names all its messages below a number."""

    at: int
    source: NodeId
    epoch: Epoch
    below: int


class Installed(NamedTuple):
    """A site entered the epoch of a ring, with its log kept up to `keep` and continued up to the cut."""

    at: int
    site: NodeId
    ring: NewRing
    keep: int


class Replaced(NamedTuple):
    """A site took another's checkpoint over in its epoch: its log begins anew there, and so do its releases."""

    at: int
    site: NodeId
    epoch: Epoch
    """Of the token at which the checkpoint lies."""
    token_number: int
    digest: bytes
    next_sequence: int


class Collected(NamedTuple):
    """A site dropped everything up to a token from memory."""

    at: int
    site: NodeId
    token_number: int


class Suspected(NamedTuple):
    """A site gave up on something."""

    at: int
    site: NodeId
    token_number: int
    suspect: NodeId
    reason: Suspicion


class Faulted(NamedTuple):
    """A site could not release a token at its instant."""

    at: int
    site: NodeId
    token_number: int


class Settled(NamedTuple):
    """An operator's entry waits no more at a site."""

    at: int
    site: NodeId
    entry: ControlEntry
    outcome: str


class Ordered(NamedTuple):
    """An operator signed an order."""

    at: int
    entry: ControlEntry


class Forced(NamedTuple):
    """U was replaced on an operator's word alone: a server decided so, or a site's log has it."""

    at: int
    node: NodeId
    epoch: Epoch
    token_number: int
    universe: tuple[NodeId, ...]


class Strayed(NamedTuple):
    """A site said that what it released is not what the log of its new ring has there."""

    at: int
    site: NodeId
    epoch: Epoch
    first_sequence: int
    next_sequence: int


class Convicted(NamedTuple):
    """A node holds two contents that one site signed for one token, or for one receipt."""

    at: int
    node: NodeId
    author: NodeId
    epoch: Epoch
    token_number: int


class StabilityClaimed(NamedTuple):
    """A token said what everybody holds, and what the secondary group of its sender holds."""

    at: int
    site: NodeId
    epoch: Epoch
    token_number: int
    stable: int
    secstable: int
    """NO_LIMIT: the sender waits for nobody below it."""


class SecondaryTokenPassed(NamedTuple):
    """A member of a secondary group said that it, and everybody below it, holds everything up to a token."""

    at: int
    site: NodeId
    epoch: Epoch
    group: NodeId
    token_number: int


class Unanswered(NamedTuple):
    """A secondary receiver asked one site in vain, and turned to another."""

    at: int
    site: NodeId
    token_number: int
    asked: NodeId


class Stalled(NamedTuple):
    """The head of a secondary group no longer waits for a member."""

    at: int
    site: NodeId
    member: NodeId
    token_number: int


class Returned(NamedTuple):
    """The head of a secondary group waits for a member again."""

    at: int
    site: NodeId
    member: NodeId
    token_number: int


class GroupHeaded(NamedTuple):
    """A site heads a secondary group in an epoch."""

    at: int
    site: NodeId
    epoch: Epoch
    group: NodeId
    anew: bool
    """Whether it counts every member, those too that it had given up."""


class HandedBack(NamedTuple):
    """A site waits no longer for a member of another's group, which that one counts again."""

    at: int
    site: NodeId
    member: NodeId


class HeadChanged(NamedTuple):
    """A secondary receiver belongs to another head."""

    at: int
    site: NodeId
    group: NodeId
    head: NodeId
    silent: bool
    """Whether the group's own head is silent, and this one has adopted the site."""


class Crashed(NamedTuple):
    """A node went down."""

    at: int
    node: NodeId


class Restarted(NamedTuple):
    """A node came back; for a site, with what its disk says."""

    at: int
    node: NodeId
    disk_kept: bool
    promised: Epoch
    accepted: Epoch
    held: int


class ClockStepped(NamedTuple):
    """A site's clock was set; `kept` says whether it is now within its bound."""

    at: int
    site: NodeId
    kept: bool


class Paused(NamedTuple):
    """A site's process stopped running without losing anything."""

    at: int
    site: NodeId


class Resumed(NamedTuple):
    """A paused process runs again."""

    at: int
    site: NodeId


class Cut(NamedTuple):
    """Some nodes stopped hearing others, in one direction or both."""

    at: int


class Healed(NamedTuple):
    """One cut is over: there is one of these for every `Cut`."""

    at: int


# The edge of the network: archives, customers and secondary sources.


class Delivered(NamedTuple):
    """A complete customer handed messages to its application, or an archive wrote them to its disk."""

    at: int
    node: NodeId
    packets: tuple[wire.ReleasedPacket, ...]


class SnapshotTaken(NamedTuple):
    """A complete customer begins with a snapshot: the latest event of each key before `next_sequence`."""

    at: int
    node: NodeId
    next_sequence: int
    payload: bytes


class LatestDelivered(NamedTuple):
    """A customer of grade latest handed on events, each with the sequence that it is of; it has heard of `newest`."""

    at: int
    node: NodeId
    newest: int
    payload: bytes
    sequences: tuple[int, ...]


class LeftOut(NamedTuple):
    """A customer or an archive said that sequences will not come; `kept`: a server that it may ask has some of them."""

    at: int
    node: NodeId
    first: int
    last: int
    kept: bool


class Given(NamedTuple):
    """An archive sent messages again, and said up to which sequence it has everything."""

    at: int
    node: NodeId
    packets: tuple[wire.ReleasedPacket, ...]
    newest: int


class Entrusted(NamedTuple):
    """A secondary source took a message from its client."""

    at: int
    source: NodeId
    number: int
    digest: bytes


class StripeArchived(NamedTuple):
    """A sender of narrow stripes made a packet, and wrote it to its disk."""

    at: int
    node: NodeId
    stripe: int
    session: bytes
    number: int
    """Of its first message."""
    messages: tuple[bytes, ...]
    events: bytes | None
    """As a decoder reads them, if nobody made the packet before."""


class StripeDatagramSent(NamedTuple):
    """A sender of narrow stripes sent a packet, or a heartbeat of count 0."""

    at: int
    node: NodeId
    clock: int
    """What its clock showed."""
    stripe: int
    session: bytes
    number: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls
    ip_bytes: int
    budget: int
    """IP bytes that its stripe may have in any token period."""


class StripeDelivered(NamedTuple):
    """A customer of narrow stripes got messages of one session, in order."""

    at: int
    node: NodeId
    stripe: int
    session: bytes
    first: int
    messages: tuple[bytes, ...]


class StripeLeftOut(NamedTuple):
    """A customer of narrow stripes went on without some numbers; `kept`: a sender that it can ask has some of them."""

    at: int
    node: NodeId
    stripe: int
    session: bytes
    first: int
    last: int
    kept: bool


class AgreedTrade(NamedTuple):
    """A trade of the distributed floor, as far as it must be the same everywhere (§7.3)."""

    number: int
    symbol: str
    price: int
    quantity: int
    buy: int
    sell: int


class FloorStepped(NamedTuple):
    """A site applied a token to the floor; after a restart it may do so again."""

    at: int
    site: NodeId
    epoch: Epoch
    token_number: int
    state: bytes
    """The hash of the floor's state after it."""
    trades: tuple[AgreedTrade, ...]
    orders: tuple[tuple[int, int], ...]
    """Id and quantity of every order in it."""
    again: bool = False
    """Read from a journal: released before, here or where the site took its log from."""
    transcript: FloorTranscript | None = None
    """What was done in it, and what came of it, event by event."""


class FloorReported(NamedTuple):
    """A site hands an arbiter's report to its source."""

    at: int
    site: NodeId
    token_number: int
    state: bytes
    trades: tuple[AgreedTrade, ...]
    """Empty also where it only says what is confirmed."""
    confirmed: int


class FloorConfirmed(NamedTuple):
    """A site takes trades for confirmed."""

    at: int
    site: NodeId
    epoch: Epoch
    token_number: int
    """At whose release."""
    reported: int
    """The token with their report."""
    trades: tuple[AgreedTrade, ...]


class FloorBusted(NamedTuple):
    """A site takes tentative trades back."""

    at: int
    site: NodeId
    trades: tuple[AgreedTrade, ...]


class FloorCut(NamedTuple):
    """The floor of a site goes back to what it was after a token: its log was cut, or its disk is gone."""

    at: int
    site: NodeId
    token_number: int


class FloorDiffered(NamedTuple):
    """A site finds that another has another state of the floor, or that it has a wrong one itself."""

    at: int
    site: NodeId
    token_number: int
    text: str


class FloorTold(NamedTuple):
    """A customer who has only the sequence takes trades for confirmed."""

    at: int
    trades: tuple[AgreedTrade, ...]


Fact: TypeAlias = (
    Submitted
    | Sealed
    | Disclosed
    | TokenSent
    | TokenMade
    | BatchTaken
    | ReceiptSent
    | ReceiptHeard
    | Certified
    | Completed
    | Released
    | Promised
    | Voted
    | Invited
    | RingFormed
    | Freed
    | Acknowledged
    | Installed
    | Replaced
    | Collected
    | Suspected
    | Faulted
    | Settled
    | Ordered
    | Forced
    | Strayed
    | Convicted
    | StabilityClaimed
    | SecondaryTokenPassed
    | Unanswered
    | Stalled
    | Returned
    | GroupHeaded
    | HandedBack
    | HeadChanged
    | Crashed
    | Restarted
    | ClockStepped
    | Paused
    | Resumed
    | Cut
    | Healed
    | Delivered
    | SnapshotTaken
    | LatestDelivered
    | LeftOut
    | Given
    | Entrusted
    | StripeArchived
    | StripeDatagramSent
    | StripeDelivered
    | StripeLeftOut
    | FloorStepped
    | FloorReported
    | FloorConfirmed
    | FloorBusted
    | FloorCut
    | FloorDiffered
    | FloorTold
)


# What a run is held to, and how a breach of it is told.


VIOLATIONS_MAX = 100
"""Violations kept in all: more than anybody reads."""
PER_PROPERTY_MAX = 10
"""Violations kept of one property: the first ones say why, the rest only how often."""


Opens: TypeAlias = Callable[[tuple[NodeId, int], tuple[int, bytes], bytes], bool]
"""(label of a message, number and link that were shown, sealed payload) → whether the link leads to the message's."""


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
    opens: Opens | None = None
    """Who knows the seals, where keys are disclosed."""
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
    orders: bool = False
    """Whether operators sign: then `Ordered` tells of every order, and U changes by nothing else."""
    byzantine: frozenset[NodeId] = frozenset()
    """Members that lie about what others rely on. Then only what holds for the others all the same is judged."""
    slandered: bool = False
    """Nothing happens but words in others' names that nobody signed, and nothing is lost: then all goes out in time."""
    latest: frozenset[NodeId] = frozenset()
    """Customers of grade latest."""
    complete: frozenset[NodeId] = frozenset()
    """Customers of grade complete, and archives."""
    forwarders: frozenset[NodeId] = frozenset()
    """Secondary sources whose parent never loses its outbox: what that had taken might be lost, or come twice."""
    outboxes_kept: bool = True
    """No source loses its outbox: else what its earlier start had sent may stand behind what the next one sends."""
    stripe_senders: frozenset[NodeId] = frozenset()
    """Senders of narrow stripes."""
    narrow_complete: frozenset[NodeId] = frozenset()
    """Customers of narrow stripes that want everything."""
    stripes: Mapping[bytes, int] = field(default_factory=dict)
    """The narrow stripe of each symbol, as events have it; of all others, that of the empty one."""
    floor: bool = False
    """Whether the sites are a trading floor."""


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
    edge: Mapping[NodeId, int] = MappingProxyType({})
    """Archives, customers and secondary sources that run, and can go on; with the sequence that each waits for."""
    floor: Mapping[NodeId, tuple[int, int]] = MappingProxyType({})
    """How many trades each correct site's floor has made, and up to which they are confirmed; 0: at a customer."""


class Report:
    """Collects violations, not more than a person can use."""

    def __init__(self, only: frozenset[str] | None = None) -> None:
        """A clean sheet. `only`: breaches of other properties are not noted."""
        self._only = only
        self.violations: list[Violation] = []
        self._per_property: dict[str, int] = {}

    def __call__(self, name: str, at: int, text: str) -> None:
        """Note a breach of property `name`, one of `PROPERTIES`."""
        if self._only is not None and name not in self._only:
            return
        seen = self._per_property[name] = self._per_property.get(name, 0) + 1
        if seen <= PER_PROPERTY_MAX and len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(Violation(PROPERTIES[name].name, at, text))


def label(source: NodeId, number: int) -> str:
    """A message as a person would name it: ``source1/17``."""
    return f"{describe(source)}/{number}"


def milliseconds(span_ns: int) -> str:
    """A span of time, for people."""
    return f"{span_ns / 1e6:.6g} ms"
