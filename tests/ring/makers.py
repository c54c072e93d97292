"""A ring of three with round numbers, and the packets that its sites would send, for tests of single machines.

δ_N = 20 ms, P = 4 ms, k_r = 2 and ε = 1 ms, so τ_r = 44 ms, δ_N+2ε = 22 ms, τ_t = 110 ms, and Δ_A = 110 ms by
the timed gate or 132 ms by majority. Token 1 is due at 1 s from site 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from isocast.ring.effects import Effect, EntryAppended, EntryCompleted, Multicast, Persist, Unicast
from isocast.ring.inputs import PacketsArrived
from isocast.ring.ledger import Checkpoint, Ledger, LogEntry
from isocast.ring.receiver import Receiver
from isocast.ring.settings import OrderRule, RingSettings, Schedule
from isocast.ring.storage import SiteState
from isocast.ring.token import label_order, nonce, runs_of, shuffle_key
from isocast.terms.ids import NO_EPOCH, Epoch, NodeId, server_id, source_id
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.terms.timing import Gate, Timing
from isocast.wire.packets import (
    NO_DIGEST,
    NO_LIMIT,
    ControlEntry,
    Data,
    Disclosure,
    Grant,
    NewRing,
    NextNumber,
    Packet,
    Receipt,
    Token,
    short_digest_of,
)
from isocast.wire.token_body import token_digest

__all__ = [
    "EPOCH",
    "LATE",
    "MS",
    "NEXT_EPOCH",
    "PERIOD",
    "RETRY",
    "S1",
    "S2",
    "SERVER",
    "SETTINGS",
    "START",
    "TIMING",
    "Chain",
    "T",
    "arrive",
    "blank",
    "completed",
    "following",
    "founding",
    "instant",
    "ledger_of",
    "message",
    "packets",
    "receipt",
    "receiver",
    "secret",
    "settings",
    "told",
]

MS = MILLISECOND
S1, S2 = source_id(1), source_id(2)
SERVER = server_id(1)
EPOCH = Epoch(1, SERVER)
NEXT_EPOCH = Epoch(2, SERVER)
START = SECOND
TIMING = Timing(detect_ns=20 * MS, process_ns=4 * MS, retries_max=2, clock_error_ns=MS, ring_size=3)
LATE = 22 * MS
"""δ_N+2ε."""
RETRY = 44 * MS
"""τ_r."""
PERIOD = 110 * MS
"""τ_t."""


def settings(
    gate: Gate = Gate.MAJORITY,
    order: OrderRule = OrderRule.ARRIVAL,
    *,
    window: int = 8,
    batch_max: int = 16,
    release_rate: int = 0,
) -> RingSettings:
    """The ring's settings under another gate, order, window or release rate."""
    timing = replace(TIMING, gate=gate, release_delay_ns=0)
    return RingSettings(timing, order=order, window=window, batch_max=batch_max, release_rate=release_rate)


SETTINGS = settings()


def secret(site: NodeId) -> bytes:
    """What makes a site's nonces."""
    return short_digest_of(b"secret", site.to_bytes(8))


def founding(*ring: NodeId, epoch: Epoch = EPOCH) -> NewRing:
    """The first ring."""
    members = ring or (1, 2, 3)
    commits = tuple([short_digest_of(nonce(secret(site), epoch, 0)) for site in members])
    return NewRing(
        0, epoch, SERVER, epoch, members, 1, 1, START, NO_EPOCH, 0, NO_DIGEST, members, commits, members, ()
    )  # fmt: skip


def following(
    chain: Chain,
    *ring: NodeId,
    holders: tuple[NodeId, ...] = (1, 2, 3),
    start: int = 2 * SECOND,
    epoch: Epoch = NEXT_EPOCH,
) -> NewRing:
    """The ring after `chain`, whose end is the cut."""
    head, members = chain.head, ring or (1, 2, 3)
    commits = tuple([short_digest_of(nonce(secret(site), epoch, 0)) for site in members])
    numbers = tuple([NextNumber(source, number) for source, number in sorted(head.next_number.items())])
    return NewRing(
        0, epoch, SERVER, epoch, members, head.token_number + 1, head.next_sequence, start, head.epoch,
        head.token_number, head.digest, holders, commits, head.universe, numbers,
    )  # fmt: skip


def T(token_number: int) -> int:  # noqa: N802 (T_t of the paper)
    """When a token of the first ring is due."""
    return START + (token_number - 1) * PERIOD


def instant(token_number: int, ring: NewRing) -> int:
    """When a token of some ring is due."""
    return ring.start + (token_number - ring.first_token) * PERIOD


def message(number: int, source: NodeId = S1, base: int = 1) -> Data:
    """A message whose payload says which it is."""
    return Data(0, EPOCH, source, number, base, f"{source >> 32}/{number}".encode())


class Chain:
    """Tokens as the owners of a ring would send them, one after the other."""

    def __init__(self, ring: NewRing | None = None, order: OrderRule = OrderRule.ARRIVAL) -> None:
        """Nothing is sent yet."""
        ring = ring or founding()
        self.order = order
        self.head = Checkpoint(universe=ring.universe)
        self.entries: list[LogEntry] = []
        self.ring, self.schedule = ring, Schedule(ring, PERIOD)

    def enter(self, ring: NewRing) -> Chain:
        """Another chain that goes on in the next ring."""
        other = self.fork()
        other.ring, other.schedule = ring, Schedule(ring, PERIOD)
        return other

    def fork(self) -> Chain:
        """Another chain with the same past."""
        other = Chain(self.ring, self.order)
        other.head = self.head.copy()
        other.entries = list(self.entries)
        return other

    def add(
        self,
        *messages: Data,
        control: tuple[ControlEntry, ...] = (),
        grants: tuple[Grant, ...] = (),
        secstable: int = NO_LIMIT,
        disclosures: tuple[Disclosure, ...] = (),
    ) -> LogEntry:
        """The next token, acknowledging these messages."""
        number = self.head.token_number + 1
        owner, place = self.schedule.owner(number), (number - self.ring.first_token) // self.schedule.size
        runs, interleave = runs_of(messages)
        stable = number - self.schedule.size + 1
        token = Token(
            0, self.ring.ballot, owner, number, self.schedule.instant(number), self.head.next_sequence, runs,
            () if self.order is OrderRule.SHUFFLE else interleave, control,
            short_digest_of(nonce(secret(owner), self.ring.ballot, place + 1)),
            nonce(secret(owner), self.ring.ballot, place),
            stable if stable >= self.ring.first_token else 0, secstable, grants, self.head.digest,
            disclosures=disclosures,
        )  # fmt: skip
        key = shuffle_key(token, self.head.reveal)
        found = {(held.sender, held.number): held for held in messages}
        entry = LogEntry(token, tuple([found[label] for label in label_order(token, self.order, key)]), key)
        self.head.advance(entry)
        self.entries.append(entry)
        return entry

    def grow(self, tokens: int) -> Chain:
        """So many empty tokens more."""
        for _ in range(tokens):
            self.add()
        return self

    def state(self, released: int = 0) -> SiteState:
        """The disk of a site that holds this chain."""
        state = SiteState(Checkpoint(universe=founding(*self.ring.universe).universe))
        for entry in self.entries:
            state.apply(EntryAppended(entry))
        state.ring, state.promised, state.released = self.ring, self.ring.ballot, released
        return state


def blank(universe: tuple[NodeId, ...] = (1, 2, 3)) -> SiteState:
    """A disk on which nothing is written yet."""
    return SiteState(Checkpoint(universe=universe))


def receiver(
    site: NodeId, chain: Chain | None = None, rules: RingSettings = SETTINGS, ring: NewRing | None = None
) -> Receiver:
    """A receiver on the first ring that holds a chain already, its receipts told."""
    ring = ring or (chain.ring if chain else founding())
    machine = Receiver(site, rules, secret(site), blank(ring.universe))
    entries = tuple(chain.entries) if chain else ()
    now = entries[-1].token.instant if entries else START // 2
    machine.install(ring, 0, entries, now)
    machine.take(now)
    return machine


def receipt(site: NodeId, chain: Chain, held: int | None = None) -> Receipt:
    """What a site says that holds a chain, up to a token or all of it."""
    number = chain.head.token_number if held is None else held
    digest = token_digest(chain.entries[number - 1].token) if number else NO_DIGEST
    return Receipt(0, chain.ring.ballot, site, number, digest)


def completed(entry: LogEntry) -> tuple[Effect, ...]:
    """What a receiver does when a token is complete, up to its receipt."""
    digest = token_digest(entry.token)
    return (Persist(EntryAppended(entry)), EntryCompleted(entry.token.epoch, entry, digest))


def told(site: NodeId, entry: LogEntry) -> Multicast:
    """The receipt for a token."""
    token = entry.token
    return Multicast(Receipt(0, token.epoch, site, token.token_number, token_digest(token)))


def arrive(*burst: Packet) -> PacketsArrived:
    """A burst of packets."""
    return PacketsArrived(burst)


def packets(effects: Sequence[Effect]) -> list[Packet]:
    """Everything that is sent."""
    return [effect.packet for effect in effects if isinstance(effect, Multicast | Unicast)]


def ledger_of(chain: Chain) -> Ledger:
    """The log of a site that holds a chain."""
    found = Ledger(OrderRule.ARRIVAL, 8, Checkpoint(universe=(1, 2, 3)))
    for entry in chain.entries:
        found.append(entry)
    return found


def point_at(chain: Chain, count: int) -> Checkpoint:
    """Behind the first `count` tokens of a chain."""
    point = Checkpoint(universe=(1, 2, 3))
    for entry in chain.entries[:count]:
        point.advance(entry)
    return point
