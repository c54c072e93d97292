"""What a running node counts: plain integers that its driver raises, and that are read on demand.

The driver owns one `NodeCounters` and does `counters.x += 1`; nothing here locks, formats or allocates on the way of a
packet. `NodeGauges` is made afresh from the machine's snapshot for each scrape.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import accumulate

from isocast.nodes.primary_receiver import PrimaryReceiverSnapshot
from isocast.nodes.secondary_receiver import SecondaryReceiverSnapshot
from isocast.reformation.forming import ServerSnapshot
from isocast.ring.receiver import ReceiverSnapshot
from isocast.ring.source import PrimarySourceSnapshot
from isocast.runtime.market.pins import CertificateFault
from isocast.runtime.net.clock import ClockStatus
from isocast.runtime.watch.line_gauges import LineGauges
from isocast.terms.ids import Epoch
from isocast.wire.frame import PacketKind
from isocast.wire.packets import Suspicion
from isocast.wire.signing import SignedKind

__all__ = [
    "LATENCY_BOUNDS_NS",
    "LATENESS_BOUNDS_NS",
    "Channel",
    "Histogram",
    "NodeCounters",
    "NodeGauges",
    "ReleaseMark",
    "gauges_from",
    "packet_slot",
]

_KIND_BITS = 5
"""Room for 31 kinds of packets; the wire has fewer than 20."""
_MARKS_KEPT = 64
"""Tokens whose release is remembered: at least some seconds, so that watchers of several nodes see the same ones."""


class Channel(IntEnum):
    """The sockets of a node, in the order of a fan-out node's ports."""

    DIRECT = 0
    CONTROL = 1
    DATA = 2
    LINE = 3


def packet_slot(channel: Channel, kind: PacketKind) -> int:
    """The place of a kind of packet on a channel in `packets_received` and `packets_sent`."""
    return channel << _KIND_BITS | kind


def _steps(first_ns: int, decades: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, … times `first_ns`, over so many powers of ten, the last included."""
    return (*(first_ns * step * 10**power for power in range(decades) for step in (1, 2, 5)), first_ns * 10**decades)


LATENESS_BOUNDS_NS = _steps(10_000, 6)
"""10 µs to 10 s: from a spinning release to a process that was stopped."""
LATENCY_BOUNDS_NS = _steps(1_000_000, 5)
"""1 ms to 100 s: from a local network's formula to a ring that had to re-form."""


class Histogram:
    """Counts in fixed buckets of nanoseconds: a value costs one bisection and two additions."""

    __slots__ = ("bounds_ns", "counts", "total_ns")

    def __init__(self, bounds_ns: tuple[int, ...]) -> None:
        """`bounds_ns` are the inclusive upper bounds, rising; one bucket more takes what lies above."""
        self.bounds_ns = bounds_ns
        self.counts = [0] * (len(bounds_ns) + 1)
        self.total_ns = 0

    def observe(self, value_ns: int, count: int = 1) -> None:
        """Take `count` equal values: the messages of one release share their lateness."""
        self.counts[bisect_left(self.bounds_ns, value_ns)] += count
        self.total_ns += value_ns * count

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)

    def cumulative(self) -> list[int]:
        """How many values lie at or below each bound, and at last all."""
        return list(accumulate(self.counts))

    def quantile_ns(self, share: float, since: Sequence[int] = ()) -> int | None:
        """The upper bound of the bucket that holds the quantile, of all values or of those after `since`.

        What lies above every bound is given as twice the last. None without values.
        """
        counts = [now - then for now, then in zip(self.counts, since, strict=True)] if since else self.counts
        total = sum(counts)
        if total <= 0:
            return None
        wanted = share * total
        for bound_ns, reached in zip((*self.bounds_ns, 2 * self.bounds_ns[-1]), accumulate(counts), strict=True):
            if reached >= wanted:
                return bound_ns
        return 2 * self.bounds_ns[-1]


@dataclass(frozen=True, slots=True)
class ReleaseMark:
    """When this node began to release a token, so that a watcher of several nodes can tell their skew."""

    token_number: int
    sequence: int
    at_ns: int


def _per_slot() -> list[int]:
    return [0] * (len(Channel) << _KIND_BITS)


def _per_channel() -> list[int]:
    return [0] * len(Channel)


@dataclass(slots=True)
class NodeCounters:
    """Everything that one node of one stripe counts. All start at zero and never fall."""

    packets_received: list[int] = field(default_factory=_per_slot)
    """Accepted packets, by `packet_slot`."""
    packets_sent: list[int] = field(default_factory=_per_slot)
    bytes_received: list[int] = field(default_factory=_per_channel)
    """Of everything that a socket gave, accepted or not; by channel."""
    bytes_sent: list[int] = field(default_factory=_per_channel)
    kernel_drops: list[int] = field(default_factory=_per_channel)
    """Datagrams for which the socket's buffer had no room, by channel."""
    filtered: int = 0
    """Datagrams that the kernel's filters dropped."""
    authentication_failures: int = 0
    refused_signatures: dict[SignedKind, int] = field(default_factory=dict)
    """Packets whose signature is not that of the node that they name, by purpose."""
    refused_certificates: dict[CertificateFault, int] = field(default_factory=dict)
    """Certificates of doors that do not count, by what is wrong with them."""
    convictions: int = 0
    """Sites that were proven to have broken a promise."""
    malformed: int = 0
    unknown_senders: int = 0
    another_market: int = 0
    """Packets of a market that uses the same group or port."""
    unpaid: int = 0
    """Packets of sealed lines, of a service or period that was not bought."""
    unaddressed: int = 0
    """Well-formed packets that are not for this role or stripe."""
    out_of_reach: int = 0
    """Packets of lines whose scope does not come here."""
    unsent: int = 0
    """Datagrams that the kernel refused to take."""
    injected_losses: int = 0
    tokens_sent: int = 0
    tokens_accepted: int = 0
    messages_released: int = 0
    events_released: int = 0
    late_releases: int = 0
    early_releases: int = 0
    """Messages that went out before their instant: a mistake of this program."""
    fairness_faults: int = 0
    divergences: int = 0
    """How often this site found that it had released what the ring's log does not say: policy `availability` only."""
    sequences_diverged: int = 0
    suspicions: dict[Suspicion, int] = field(default_factory=lambda: dict.fromkeys(Suspicion, 0))
    reformations: int = 0
    """Rings that this node installed or, as a server, decided."""
    head_changes: int = 0
    """Secondary groups that this node took over or handed on; of a secondary receiver, changes of its head."""
    publishes_accepted: int = 0
    publishes_rejected: int = 0
    events_published: int = 0
    void_messages: int = 0
    """Messages released with nothing in their place: their source disclosed no key in time."""
    unopened_payloads: int = 0
    """Payloads whose seal did not fit at release."""
    forged_messages: int = 0
    """Messages in a source's name, in the sequence, that it never sent."""
    floor_messages_refused: int = 0
    """Messages of floors released with nothing in their place: their source may not send them."""
    floor_trades: int = 0
    """Trades of the market's floors that this site computed since it started."""
    floor_trades_confirmed: int = 0
    floor_trades_busted: int = 0
    floor_reports: int = 0
    """Reports of its arbiters that a source took."""
    floor_prints: int = 0
    """Batches of confirmed trades, as market events, that a source took."""
    journal_bytes: int = 0
    journal_alarms: int = 0
    journal_prune_failures: int = 0
    """Times that retention could not remove old segments of the journal."""
    store_bytes: int = 0
    store_alarms: int = 0
    ranges_served: int = 0
    ranges_refused: int = 0
    refused_by_address: dict[tuple[str, ...], int] = field(default_factory=dict)
    """Datagrams that were refused, of the noisiest addresses."""
    guest_throttles: dict[tuple[str, ...], int] = field(default_factory=dict)
    """How often a guest's share was used up, by address and key; the loudest few."""
    messages_received: int = 0
    """By a customer, in sequence and once each."""
    events_received: int = 0
    duplicates: int = 0
    """Copies from a second line that came after the first."""
    gaps_seen: int = 0
    gaps_repaired: int = 0
    conflicts: int = 0
    """Copies with other content than the first."""
    forged: int = 0
    """Packets in the name of a line whose owner did not sign them."""
    proofs_differing: int = 0
    """Tokens for which two lines signed different messages."""
    unproven: int = 0
    """Messages that waited for a proof in vain."""
    unverified: int = 0
    """Proofs and heartbeats beyond what is verified of one line."""
    line_switches: int = 0
    """Times that a customer followed another line than before."""
    messages_skipped: int = 0
    """That a customer of the grade "latest only" passed over."""
    http_requests: int = 0
    http_refused: int = 0
    release_lateness: Histogram = field(default_factory=lambda: Histogram(LATENESS_BOUNDS_NS))
    submit_to_release: Histogram = field(default_factory=lambda: Histogram(LATENCY_BOUNDS_NS))
    timer_lateness: Histogram = field(default_factory=lambda: Histogram(LATENESS_BOUNDS_NS))
    release_marks: deque[ReleaseMark] = field(default_factory=lambda: deque(maxlen=_MARKS_KEPT))

    def released(
        self,
        *,
        token_number: int,
        first_sequence: int,
        messages: int,
        events: int,
        due_ns: int,
        now_ns: int,
        late_after_ns: int,
    ) -> None:
        """Count one chunk of a token that went out at `now_ns`: late from `due_ns`+`late_after_ns` on."""
        lateness_ns = now_ns - due_ns
        self.messages_released += messages
        self.events_released += events
        if lateness_ns > late_after_ns:
            self.late_releases += messages
        elif lateness_ns < 0:
            self.early_releases += messages
            lateness_ns = 0
        self.release_lateness.observe(lateness_ns, messages)
        marks = self.release_marks
        if not marks or marks[-1].token_number != token_number:
            marks.append(ReleaseMark(token_number, first_sequence, now_ns))

    def received_of(self, kind: PacketKind) -> int:
        """Packets of a kind that came, on whichever channel."""
        return sum([self.packets_received[packet_slot(channel, kind)] for channel in Channel])

    def sent_of(self, kind: PacketKind) -> int:
        """Packets of a kind that went out, on whichever channel."""
        return sum([self.packets_sent[packet_slot(channel, kind)] for channel in Channel])


@dataclass(slots=True)
class NodeGauges:
    """A node's state at one moment. None means that it does not apply to the role, or is not known yet."""

    epoch: str | None = None
    epoch_number: int | None = None
    mode: str | None = None
    """A receiver's: normal, sealed or catchup; a reformation server's stage."""
    ring: tuple[str, ...] | None = None
    """The members by name, in the order of the token."""
    universe: tuple[str, ...] | None = None
    """U by name: whose majority counts."""
    ring_configured: int | None = None
    """How many receivers the market has: |U|."""
    uncertified: bool | None = None
    """Whether the ring was started without a majority of U."""
    leaving: bool | None = None
    """Whether an operator asked this receiver to leave the ring."""
    ring_first_token: int | None = None
    """t0: with `ring` it says whose token is whose."""
    ring_start_ns: int | None = None
    """T0: when that token was due."""
    owns_token: bool = False
    token_age_ns: int | None = None
    """Since the newest token was heard or sent."""
    held_token: int | None = None
    certified_token: int | None = None
    released_token: int | None = None
    collected_token: int | None = None
    next_sequence: int | None = None
    waiting_messages: int | None = None
    dropped_messages: int | None = None
    """Outside a source's window: a total that the machine keeps."""
    clock_source: str | None = None
    """Who vouches for the bound: the kernel or the configuration."""
    clock_synchronised: bool | None = None
    clock_trusted: bool | None = None
    """False once the clock is proven outside its bound: releases stop."""
    clock_bound_ns: int | None = None
    outbox_unacknowledged: int | None = None
    outbox_unstable: int | None = None
    outbox_window: int | None = None
    parent_answers: bool | None = None
    """Whether a secondary source's parent took, or would take, what it is offered."""
    ballot_number: int | None = None
    ballot_votes: int | None = None
    secondary_stable_token: int | None = None
    """What a head's secondary groups are known to hold."""
    heads: tuple[str, ...] | None = None
    """The secondary groups that a receiver heads, by the names of their own heads."""
    adopted: tuple[str, ...] | None = None
    """Secondary receivers of other groups that count here while their head is silent to them."""
    head: str | None = None
    """To whom a secondary receiver belongs."""
    head_configured: str | None = None
    """To whom it would, by the market's file."""
    archive_first_sequence: int | None = None
    archive_next_sequence: int | None = None
    clients: int | None = None
    """Connections that are open: customers of a retransmit server, publishers of a source."""
    guests: int | None = None
    """Of those connections: listeners without a seat."""
    guests_throttled: tuple[str, ...] | None = None
    """Whose share was used up, by address and key; the loudest few."""
    sequence_gaps: int | None = None
    """Gaps that are open now."""
    lines_heard: int | None = None
    """A customer's lines that carried something lately."""
    lines_configured: int | None = None
    line_followed: str | None = None
    """By name: the first of a customer's lines that speaks in time."""
    stripe_plan: int | None = None
    """The version of the stripe plan that a receiver's narrow stripes follow."""
    stripe_packets: int | None = None
    """Packets of narrow stripes since their process began."""
    stripe_waiting: int | None = None
    """Packets that are not sent yet."""
    stripe_conflated: int | None = None
    """Events that were left out because a newer one came."""
    stripe_late_ns: int | None = None
    """How long behind its instant a packet left, in the mean."""
    edge_waits: str | None = None
    """Why a receiver does not send its narrow stripes yet, or any more; None where it sends them, or has none."""
    line_plan: LineGauges | None = None
    """Where lines are, if the market plans them."""
    waiting: str | None = None
    """Why nothing can come to a customer now: "ring is reforming since …", "no line is heard since …"."""

    def read_clock(self, status: ClockStatus) -> None:
        """What the node's clock is worth."""
        self.clock_source = status.bound_source.value
        self.clock_synchronised = status.kernel_synchronised
        self.clock_trusted = status.trusted
        self.clock_bound_ns = status.bound_ns


def gauges_from(snapshot: object) -> NodeGauges:
    """What a machine's snapshot says; the driver adds what only it knows (names, clock, ages)."""
    match snapshot:
        case PrimaryReceiverSnapshot(receiver=receiver) | SecondaryReceiverSnapshot(receiver=receiver):
            return gauges_from(receiver)
        case ReceiverSnapshot():
            return NodeGauges(
                epoch=_name(snapshot.accepted),
                epoch_number=snapshot.accepted.number,
                mode=snapshot.mode.value,
                held_token=snapshot.held,
                certified_token=snapshot.certified,
                released_token=snapshot.released,
                collected_token=snapshot.collected,
                waiting_messages=snapshot.waiting,
                dropped_messages=snapshot.dropped,
            )
        case PrimarySourceSnapshot():
            return NodeGauges(
                outbox_unacknowledged=snapshot.unacknowledged,
                outbox_unstable=snapshot.unstable,
                outbox_window=snapshot.window,
            )
        case ServerSnapshot():
            ring = snapshot.ring
            return NodeGauges(
                epoch=_name(ring),
                epoch_number=ring.number if ring else 0,
                mode=snapshot.stage.value,
                ballot_number=snapshot.ballot.number,
                ballot_votes=snapshot.votes,
            )
        case _:
            return NodeGauges()


def _name(epoch: Epoch | None) -> str | None:
    """None before the first ring."""
    return str(epoch) if epoch is not None and epoch.number else None
