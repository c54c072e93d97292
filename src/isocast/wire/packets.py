"""Every packet of the protocol (protocol §2), as values. `codec` turns them into bytes and back.

Each carries the stripe it belongs to, the epoch its sender lives in, and the sender's id; version and
authentication tag exist only in the bytes. `frame` says which roles a multicast packet is for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from hashlib import blake2b, sha256
from typing import NamedTuple, TypeAlias

from isocast.terms.ids import FIRST_SERVER, NO_EPOCH, Epoch, NodeId

__all__ = [
    "DIGEST_BYTES",
    "NO_ADDRESS",
    "NO_DIGEST",
    "NO_NONCE",
    "NO_SHUFFLE_KEY",
    "NO_VERSION",
    "SHORT_DIGEST_BYTES",
    "ControlEntry",
    "ControlKind",
    "Data",
    "Disclose",
    "Disclosure",
    "Grant",
    "Holding",
    "Invite",
    "Join",
    "LineAck",
    "LineAsk",
    "LineRest",
    "LineScope",
    "Lines",
    "Nack",
    "NewRing",
    "NextNumber",
    "Packet",
    "Pending",
    "PlanVersion",
    "Proof",
    "Range",
    "RangeReply",
    "RangeRequest",
    "Receipt",
    "Refuse",
    "ReleasedPacket",
    "Repair",
    "Repairable",
    "Run",
    "SecondaryToken",
    "SourceChain",
    "Standing",
    "Suspect",
    "Suspicion",
    "Token",
    "TokenPart",
    "Vote",
    "chained",
    "digest_of",
    "payload_digest",
    "short_digest_of",
]


# The packets of suspicion and reformation (protocol §5), as values: SUSPECT, INVITE, REFUSE, JOIN and NEWRING.


class Suspicion(StrEnum):
    """Why a site asks for attention."""

    UNRECOVERED = "unrecovered"
    """k_r requests for a token or its messages stayed unanswered."""
    NO_RECEIPTS = "no-receipts"
    """A member sent no receipt for two tokens."""
    BEHIND = "behind"
    """The sender is the owner, and does not hold everything before its token."""
    LATE = "late"
    """The sender is the owner, and its clock is past T_t+P."""
    CLOCK = "clock"
    """A token came before its instant: somebody's clock is out of its bound."""
    SEALED = "sealed"
    """The sender promised a ballot whose server went silent."""
    OUTSIDE = "outside"
    """The sender is healthy, complete, of U, and not on the ring."""
    LOST = "lost"
    """The sender knows no ring that is alive."""
    STRANDED = "stranded"
    """The sender knows the new ring, and nobody gives it what the ring begins with."""
    LEAVING = "leaving"
    """The suspect is on the ring and shall not be: it drains, or U has it no more."""


class Suspect(NamedTuple):
    """SUSPECT: informs the reformation servers; nobody seals because of it."""

    stripe: int
    epoch: Epoch
    sender: NodeId
    token_number: int
    suspect: NodeId
    reason: Suspicion
    promised: Epoch


class Invite(NamedTuple):
    """INVITE: a server's ballot. At the current epoch it is a probe, answered by REFUSE."""

    stripe: int
    epoch: Epoch
    sender: NodeId
    ballot: Epoch
    signature: bytes = b""


class Refuse(NamedTuple):
    """REFUSE: the sender has promised `promised` already; `held` lets a probe see that it is alive and how far."""

    stripe: int
    epoch: Epoch
    sender: NodeId
    ballot: Epoch
    promised: Epoch
    held: int


class NextNumber(NamedTuple):
    """nextM of one source."""

    source: NodeId
    number: int


class Join(NamedTuple):
    """JOIN: a promise for `ballot`, and what the member brings.

    (`epoch`, `held`) is (e_acc, h); `instant` and `next_sequence` belong to token h; `now` is what the sender's clock
    shows; `universe` is U as of h; `next_numbers` covers the sources of the tokens that are not stable yet. Who is
    `leaving` votes, and wants no place on the ring.
    """

    stripe: int
    epoch: Epoch
    sender: NodeId
    ballot: Epoch
    held: int
    digest: bytes
    instant: int
    next_sequence: int
    now: int
    heard: tuple[NodeId, ...]
    commit: bytes
    universe: tuple[NodeId, ...]
    next_numbers: tuple[NextNumber, ...]
    leaving: bool = False
    signature: bytes = b""


class Vote(NamedTuple):
    """What a NEWRING repeats of a JOIN, so that everybody can check it: all that decides the cut, and its signature."""

    site: NodeId
    epoch: Epoch
    held: int
    digest: bytes
    rest: bytes
    """The digest of the JOIN's body, which says the rest."""
    signature: bytes


class NewRing(NamedTuple):
    """NEWRING: the ring of epoch `ballot`, from token `first_token` at instant `start` on.

    cut = (`cut_epoch`, `cut_token`, `cut_digest`); `holders` hold the cut; `commits` belong to `ring`
    position by position. A source that `next_numbers` does not name resends all it holds. An `uncertified` ring was
    started without a majority of U, as the policy `availability` allows; a `forced` one by an operator's word, and
    `universe` is U from its first token on. `votes` are those of a bare majority of U, the highest among them: whoever
    is to enter the ring checks them, and the `order` of the operator for a forced one.
    """

    stripe: int
    epoch: Epoch
    sender: NodeId
    ballot: Epoch
    ring: tuple[NodeId, ...]
    first_token: int
    first_sequence: int
    start: int
    cut_epoch: Epoch
    cut_token: int
    cut_digest: bytes
    holders: tuple[NodeId, ...]
    commits: tuple[bytes, ...]
    universe: tuple[NodeId, ...]
    next_numbers: tuple[NextNumber, ...]
    uncertified: bool = False
    forced: bool = False
    votes: tuple[Vote, ...] = ()
    order: bytes = b""
    signature: bytes = b""


# The packets that say where receivers remulticast (§4.3; protocol §7), as values: LINEASK, LINEACK and LINES.


NO_ADDRESS = 0xFFFF
"""Of a scope that is silent."""


class PlanVersion(NamedTuple):
    """Which of two plans is newer: that of the higher ballot, of the higher revision, of the higher server."""

    ballot: Epoch
    revision: int
    author: NodeId

    def __str__(self) -> str:
        """As people see it: the epoch, which plan of it, and whose plan if the ring was another server's."""
        if not self.ballot.number:
            return "none"
        by = "" if self.author == self.ballot.server else f"@{max(self.author - FIRST_SERVER, 0)}"
        return f"{self.ballot}/{self.revision}{by}"


NO_VERSION = PlanVersion(NO_EPOCH, 0, 0)


class LineAsk(NamedTuple):
    """LINEASK: a server that holds plan `held` asks for promises to take nothing below `version`.

    With no version it only asks for a plan that is newer than its own.
    """

    stripe: int
    epoch: Epoch
    sender: NodeId
    version: PlanVersion
    held: PlanVersion


class LineAck(NamedTuple):
    """LINEACK: what a receiver promised, and the plan that it holds on its disk.

    `settled` says that a majority is known to hold that plan, so that lines may follow it.
    """

    stripe: int
    epoch: Epoch
    sender: NodeId
    promised: PlanVersion
    held: PlanVersion
    settled: bool = False


class LineScope(NamedTuple):
    """How far one receiver remulticasts, and on which address: metres around its place, in degrees."""

    site: NodeId
    latitude: float
    longitude: float
    radius_m: int
    settled_m: int
    """What it was planned with; what a reformation added beyond is given back when that is possible."""
    address: int
    """NO_ADDRESS if it is silent."""


class LineRest(NamedTuple):
    """An address that was taken from a scope: until an instant nobody else uses it where it was heard."""

    site: NodeId
    latitude: float
    longitude: float
    radius_m: int
    settled_m: int
    address: int
    free_at: int


class Lines(NamedTuple):
    """LINES: the plan. Address n stands for `stripes` groups from `first_group`+n·`stripes` on, an IPv4 as a number."""

    stripe: int
    epoch: Epoch
    sender: NodeId
    version: PlanVersion
    made_at: int
    first_group: int
    stripes: int
    scopes: tuple[LineScope, ...]
    rests: tuple[LineRest, ...]


DIGEST_BYTES = 32
"""Of messages, runs, tokens, receipts and cuts: with 16, whoever chooses contents finds two with one digest in 2^64
steps, and two sites would hold different sequences under equal receipts."""
NO_DIGEST = bytes(DIGEST_BYTES)
"""The chained digest before token 1."""
SHORT_DIGEST_BYTES = 16
"""Of nonces, the commitments to them, shuffle keys and checksums, where two contents of one digest split nothing."""
NO_NONCE = bytes(SHORT_DIGEST_BYTES)
NO_SHUFFLE_KEY = bytes(SHORT_DIGEST_BYTES)
NO_LIMIT = (1 << 64) - 1
"""`secstable` of a ring without secondary groups."""


def digest_of(*parts: bytes) -> bytes:
    """The digest of what the ring orders, payloads apart: BLAKE2b, 32 bytes."""
    return blake2b(b"".join(parts), digest_size=DIGEST_BYTES).digest()


def short_digest_of(*parts: bytes) -> bytes:
    """BLAKE2b, 16 bytes: nonces, commitments, shuffle keys, and checksums of state that one site keeps."""
    return blake2b(b"".join(parts), digest_size=SHORT_DIGEST_BYTES).digest()


def payload_digest(payload: bytes) -> bytes:
    """Of one message: SHA-256. The only hash over bulk; processors have instructions for it."""
    return sha256(payload).digest()


def chained(before: bytes, digest: bytes) -> bytes:
    """A source's chain after one more message, of this digest; it begins with NO_DIGEST before number 1."""
    return sha256(before + digest).digest()


@dataclass(slots=True)
class Data:
    """DATA: one batch of market events from one source; `base` is the lowest number it still holds."""

    stripe: int
    epoch: Epoch
    sender: NodeId
    number: int
    base: int
    payload: bytes
    known_digest: bytes | None = field(default=None, compare=False, repr=False)
    """What the reader computed already, to authenticate the packet."""
    label: tuple[NodeId, int] = field(init=False, compare=False, repr=False)
    """Sender and number: what stores are keyed by."""

    def __post_init__(self) -> None:
        """Make the label once: every step from arrival to release looks something up by it."""
        self.label = (self.sender, self.number)

    @property
    def digest(self) -> bytes:
        """Of the payload; computed once, since the tag and every token that names this packet need it."""
        known = self.known_digest
        if known is None:
            known = self.known_digest = payload_digest(self.payload)
        return known


class Run(NamedTuple):
    """`count` messages of one source from number `first`; `digest` over their payload digests in order."""

    source: NodeId
    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls
    digest: bytes


class ControlKind(IntEnum):
    """What the network itself puts into the sequence."""

    ADD_SITE = 1
    REMOVE_SITE = 2
    STRIPE_PLAN = 3
    MARK = 4
    FORCE_UNIVERSE = 5
    """U becomes what the body lists, on an operator's word alone: a majority will never come back."""
    ROSTER = 6
    """A roster counts from a token on: its serial is the subject, digest and token are the body."""


class ControlEntry(NamedTuple):
    """One ordered entry of the network's own: U plus or minus one site, a stripe plan, a roster, an operator's mark."""

    kind: ControlKind
    subject: int
    body: bytes
    order: bytes = b""
    """The operator's signed word for it (`orders`); empty where nothing is signed, and of kinds that need none."""


class Grant(NamedTuple):
    """How many unacknowledged messages a source may have from now on."""

    source: NodeId
    window: int


class Disclosure(NamedTuple):
    """The link of a source's key chain at one of its numbers: it opens that message and those before it in the chain.

    Where keys are disclosed (`reveal = "chain"`), tokens carry them.
    """

    source: NodeId
    number: int
    key: bytes


@dataclass(slots=True)
class Token:
    """TOKEN t: acknowledges the messages of its runs, all with the scheduled instant T_t (§5).

    `interleave` gives the order of arrival as (index of a run, how many of it) steps; it is empty when
    the runs simply follow one another or when the ring shuffles by key.
    """

    stripe: int
    epoch: Epoch
    sender: NodeId
    token_number: int
    instant: int
    first_sequence: int
    runs: tuple[Run, ...]
    interleave: tuple[tuple[int, int], ...]
    control: tuple[ControlEntry, ...]
    commit: bytes
    reveal: bytes
    stable: int
    secstable: int
    grants: tuple[Grant, ...]
    prev_digest: bytes
    signature: bytes = b""
    """Its owner's, over the body: made once, kept with the token, and sent again unchanged."""
    disclosures: tuple[Disclosure, ...] = ()
    """Keys of messages that earlier tokens acknowledge, by source and number; none unless keys are disclosed."""
    _body: bytes | None = field(default=None, init=False, compare=False, repr=False)
    _digest: bytes | None = field(default=None, init=False, compare=False, repr=False)
    _labels: tuple[tuple[tuple[NodeId, int], ...], ...] | None = field(
        default=None, init=False, compare=False, repr=False
    )

    @property
    def labels(self) -> tuple[tuple[tuple[NodeId, int], ...], ...]:
        """(source, number) of every message, run by run; computed once."""
        known = self._labels
        if known is None:
            known = self._labels = tuple(
                [
                    tuple([(run.source, number) for number in range(run.first, run.first + run.count)])
                    for run in self.runs
                ]
            )
        return known

    @property
    def count(self) -> int:
        """k: how many messages this token acknowledges."""
        return sum([run.count for run in self.runs])


class TokenPart(NamedTuple):
    """One fragment of a token too large for a datagram; `part` of `parts`, requested individually."""

    stripe: int
    epoch: Epoch
    sender: NodeId
    token_number: int
    part: int
    parts: int
    body: bytes


class Receipt(NamedTuple):
    """RECEIPT: the sender durably holds everything up to `held`, whose chained digest is `digest`."""

    stripe: int
    epoch: Epoch
    sender: NodeId
    held: int
    digest: bytes
    signature: bytes = b""


class Disclose(NamedTuple):
    """DISCLOSE: a source shows keys of messages whose order is certified; without keys it asks for the NEWRING."""

    stripe: int
    epoch: Epoch
    sender: NodeId
    links: tuple[tuple[int, bytes], ...]
    """(number, link of the key chain), in rising order."""


class Holding(NamedTuple):
    """Numbers of one source: bit i of `bitmap` (least significant first) stands for `first`+i."""

    source: NodeId
    first: int
    bitmap: int


class Nack(NamedTuple):
    """NACK: one aggregated request for token t and its messages.

    With the token in hand (`has_token`), `listed` names what is missing. Without it the sender cannot
    know, so `listed` names what it holds above its next numbers, and the owner answers with the
    difference; `parts_held` is a bitmap of the token's fragments that did arrive.
    """

    stripe: int
    epoch: Epoch
    sender: NodeId
    token_number: int
    has_token: bool
    parts_held: int
    listed: tuple[Holding, ...]


Repairable: TypeAlias = Data | Token | TokenPart


class Repair(NamedTuple):
    """REPAIR: one packet again, exactly as it was first sent."""

    stripe: int
    epoch: Epoch
    sender: NodeId
    item: Repairable


class Pending(NamedTuple):
    """PENDING: asked for token t, but the sender does not have it either."""

    stripe: int
    epoch: Epoch
    sender: NodeId
    token_number: int


class Standing(NamedTuple):
    """STANDING: to a source that repeats itself: all below `next_number` is acknowledged at or before token t."""

    stripe: int
    epoch: Epoch
    sender: NodeId
    source: NodeId
    next_number: int
    token_number: int


class SourceChain(NamedTuple):
    """SRCCHAIN: a source's own signature for what it sent, since all receivers hold its tag key.

    The chain of its messages (`chained`) is `before` behind number `since`, and `digest` behind `number`. Two
    statements prove everything between them, so whoever missed some needs no repair of them. A source that has just
    started knows one point alone: then both are the same.
    """

    stripe: int
    epoch: Epoch
    sender: NodeId
    since: int
    before: bytes
    number: int
    digest: bytes
    signature: bytes = b""


class SecondaryToken(NamedTuple):
    """SECTOKEN: passes through a secondary group, numbered like the primary tokens (§4.1)."""

    stripe: int
    epoch: Epoch
    sender: NodeId
    group: int
    token_number: int


class _Released(NamedTuple):
    """The fields of a REL."""

    stripe: int
    epoch: Epoch
    sender: NodeId
    token_number: int
    sequence: int
    instant: int
    edge_stripe: int
    number: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls
    payload: bytes
    proof: bytes
    uncertified: bool = False
    shuffle_key: bytes = NO_SHUFFLE_KEY


class ReleasedPacket(_Released):
    """REL: one released message on its way to the customers; `epoch` is that whose token assigned it.

    `uncertified`: released in an epoch without a majority; another site may have released something else.
    `shuffle_key`: of its token, by which whoever matches orders shuffles their events; a heartbeat has none.
    """

    known_digest: bytes | None = None
    """What the reader computed already, to authenticate the packet."""

    @property
    def digest(self) -> bytes:
        """Of the payload; computed once, since the tag and the proof both cover it."""
        known = self.known_digest
        if known is None:
            known = self.known_digest = payload_digest(self.payload)
        return known


class Proof(NamedTuple):
    """PROOF: the line's owner signs what it is about to send, so that a customer can tell each REL from a forgery (§6).

    One digest for each message from number `first` of an edge stripe on, all of one token; `wire.proofs` says of what.
    """

    stripe: int
    epoch: Epoch
    sender: NodeId
    token_number: int
    instant: int
    """T_t of the token."""
    edge_stripe: int
    version: int
    """Of the stripe plan that numbers the messages; 0 on a line of the core."""
    first: int
    part: int
    parts: int
    salt: bytes
    digests: tuple[bytes, ...]
    signature: bytes

    @property
    def next_number(self) -> int:
        """The number after the last message that it covers."""
        return self.first + len(self.digests)


class Range(IntEnum):
    """What a range request counts in."""

    TOKENS = 1
    """Tokens with all their messages."""
    SEQUENCES = 2
    """Messages by their place in the sequence."""
    HEADS = 3
    """Tokens alone: whoever asks holds most of the messages already."""


class RangeRequest(NamedTuple):
    """RXREQ: everything from `first` to `last`, both included."""

    stripe: int
    epoch: Epoch
    sender: NodeId
    kind: Range
    first: int
    last: int


class RangeReply(NamedTuple):
    """RXREP: what the sender can give of a range; tokens and messages themselves follow as REPAIR."""

    stripe: int
    epoch: Epoch
    sender: NodeId
    kind: Range
    first: int
    last: int
    low_water: int


Packet: TypeAlias = (
    Data
    | Token
    | TokenPart
    | Receipt
    | Nack
    | Repair
    | Pending
    | Standing
    | Suspect
    | Invite
    | Refuse
    | Join
    | NewRing
    | SourceChain
    | SecondaryToken
    | ReleasedPacket
    | Proof
    | RangeRequest
    | RangeReply
    | LineAsk
    | LineAck
    | Lines
    | Disclose
)
