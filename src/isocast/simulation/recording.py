"""What happened in a run: facts for the checkers, figures for the report, a digest for reproduction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from typing import Protocol

from isocast.checks.facts import (
    Completed,
    Convicted,
    Delivered,
    Fact,
    Faulted,
    Forced,
    Given,
    GroupHeaded,
    HandedBack,
    HeadChanged,
    Installed,
    Released,
    Returned,
    Settled,
    Stalled,
    Strayed,
    Submitted,
    Suspected,
    TokenSent,
    Unanswered,
)
from isocast.ring import effects
from isocast.ring.effects import (
    ControlSettled,
    Diverged,
    LieProven,
    OrderMissed,
    UniverseForced,
)
from isocast.simulation.network import LossLedger
from isocast.terms.ids import NodeId
from isocast.wire.packets import (
    Data,
    Nack,
    NewRing,
    Packet,
    Suspicion,
)

__all__ = ["CHANGE_EFFECTS", "LAYER_EFFECTS", "Judge", "Recorder", "change_fact", "layer_fact"]


_REMEMBERED = 1_024
"""Tokens that some receiver gave up on: each is counted once, within this many."""


class Judge(Protocol):
    """Watches facts for violations."""

    def observe(self, fact: Fact) -> None:
        """Take one fact."""


class Recorder:
    """Counts, sums and hashes; everything it remembers is bounded."""

    def __init__(
        self, judge: Judge | None, receivers: int, *, transcript: Callable[[Fact], None] | None = None
    ) -> None:
        """`transcript` gets every fact too, for a person to read."""
        self.judge = judge
        self.receivers = receivers
        self.transcript = transcript
        self.sent: Counter[type] = Counter()
        """Packets by kind, one per transmission."""
        self.rejected = 0
        """Submissions that a source's window did not allow."""
        self.submitted = 0
        self.tokens = 0
        self.messages = 0
        """In the sequence: acknowledged by some token that was released."""
        self.releases = 0
        """Messages released, summed over sites."""
        self.latency_ns = 0
        """Submit to release, summed like `releases`."""
        self.fairness_faults = 0
        self.suspicions: Counter[Suspicion] = Counter()
        self.unanswered = 0
        """How often somebody whom a secondary receiver asked stayed silent k_r times."""
        self.stalled = 0
        """Secondary receivers that their head gave up, each time."""
        self.rings = 0
        self.last_sequence: dict[NodeId, int] = {}
        """The newest sequence that each site released."""
        self.losses = LossLedger()
        self.on_sequence: Callable[[Data, int], None] | None = None
        """Called once per message, in sequence order, when its first site releases it."""
        self.on_request: Callable[[NodeId, Nack], None] | None = None
        """Called for every request."""
        self._digest = blake2b(digest_size=16)
        self._submitted_at: dict[tuple[NodeId, int], int] = {}
        self._chunks: dict[int, list[int]] = {}
        self._unrecovered: dict[int, None] = {}
        self._newest_token = 0
        self.false_reformations = 0
        self._next_sequence = 1

    @property
    def trace_digest(self) -> str:
        """Over every fact of the run."""
        return self._digest.hexdigest()

    def fact(self, fact: Fact) -> None:
        """Take one fact."""
        kind = type(fact)
        if kind is Submitted:
            self._on_submitted(fact)  # type: ignore[arg-type]
        elif kind is Released:
            self._on_released(fact)  # type: ignore[arg-type]
        else:
            self._on_other(fact)
        if self.judge is not None:
            self.judge.observe(fact)
        if self.transcript is not None:
            self.transcript(fact)

    def heard(self, fact: Fact) -> None:
        """Take a fact of what a node knows: for checkers alone."""
        if self.judge is not None:
            self.judge.observe(fact)

    def unicast(self, node: NodeId, packet: Packet) -> None:
        """A node sends to one other."""
        kind = type(packet)
        self.sent[kind] += 1
        if kind is Nack:
            self.losses.asked(node, packet)  # type: ignore[arg-type]
            if self.on_request is not None:
                self.on_request(node, packet)  # type: ignore[arg-type]

    def ring_decided(self, at: int, ring: NewRing) -> None:
        """A server formed a ring."""
        self.rings += 1
        self._digest.update(f"ring {at} {ring.ballot} {ring.ring} {ring.first_token} {ring.start}".encode())

    def _on_submitted(self, fact: Submitted) -> None:
        self.submitted += 1
        self._submitted_at[fact.source, fact.number] = fact.at
        self._digest.update(b"s%d %d %d" % (fact.at, fact.source, fact.number))

    def _on_released(self, fact: Released) -> None:
        self._digest.update(
            b"r%d %d %d %d %d" % (fact.at, fact.site, fact.token_number, fact.first_sequence, len(fact.messages))
        )
        chunk = self._chunks.get(fact.first_sequence)
        if chunk is None:
            chunk = self._first_release(fact)
        chunk[0] += 1
        count = len(fact.messages)
        self.last_sequence[fact.site] = fact.first_sequence + count - 1
        self.releases += count
        self.latency_ns += count * fact.at - chunk[1]
        if chunk[0] == self.receivers or len(self._chunks) > 4 * self.receivers * 256:
            self._chunks.pop(fact.first_sequence if chunk[0] == self.receivers else next(iter(self._chunks)))

    def _first_release(self, fact: Released) -> list[int]:
        """[sites that released, sum of submission instants]."""
        total = 0
        submitted_at = self._submitted_at
        fresh = fact.first_sequence >= self._next_sequence
        for message in fact.messages:
            label = (message.sender, message.number)
            self._digest.update(message.digest)
            total += submitted_at.pop(label, fact.at)
            if fresh and self.on_sequence is not None:
                self.on_sequence(message, fact.at)
        if fresh:
            self.messages += len(fact.messages)
            self._next_sequence = fact.first_sequence + len(fact.messages)
        chunk = self._chunks[fact.first_sequence] = [0, total]
        return chunk

    def _on_other(self, fact: Fact) -> None:
        match fact:
            case Completed():
                self._digest.update(b"c%d %d %d" % (fact.at, fact.site, fact.token_number))
                self.losses.completed(fact.site, fact.at)
                return
            case TokenSent():
                self.tokens += 1
                self._newest_token = fact.token_number
            case Delivered() | Given():
                sequences = b" ".join([b"%d" % packet.sequence for packet in fact.packets])
                self._digest.update(b"d%d %d %b" % (fact.at, fact.node, sequences))
                return
            case Faulted():
                self.fairness_faults += 1
            case Suspected():
                self.suspicions[fact.reason] += 1
                if fact.reason is Suspicion.UNRECOVERED:
                    self._given_up(fact.token_number)
            case Unanswered():
                self.unanswered += 1
            case Stalled():
                self.stalled += 1
            case Installed():
                self._digest.update(f"i{fact.at} {fact.site} {fact.ring.ballot} {fact.keep}".encode())
                return
            case _:
                pass
        self._digest.update(repr(fact).encode())

    def _given_up(self, token_number: int) -> None:
        """Count a token that was sent and that a receiver gave up on; once, however many did."""
        if token_number <= self._newest_token and token_number not in self._unrecovered:
            self._unrecovered[token_number] = None
            self.false_reformations += 1
            if len(self._unrecovered) > _REMEMBERED:
                del self._unrecovered[next(iter(self._unrecovered))]


# What machines say of planned, forced and lost changes, as facts for the checkers.


CHANGE_EFFECTS = (ControlSettled, UniverseForced, Diverged, LieProven, OrderMissed)
"""Effects that only tell."""


def change_fact(now: int, node: NodeId, effect: object) -> Fact | None:
    """The fact of an effect."""
    match effect:
        case ControlSettled(entry, outcome):
            return Settled(now, node, entry, str(outcome))
        case UniverseForced(epoch, token_number, universe):
            return Forced(now, node, epoch, token_number, universe)
        case Diverged(epoch, first_sequence, next_sequence):
            return Strayed(now, node, epoch, first_sequence, next_sequence)
        case LieProven(evidence):
            return Convicted(now, node, evidence.author, evidence.epoch, evidence.number)
        case _:
            return None


# What the machines say of the layers below the ring, as facts.


LAYER_EFFECTS = (
    effects.SupportSilent,
    effects.SecondaryStalled,
    effects.SecondaryReturned,
    effects.SecondaryHandedBack,
    effects.HeadshipAssumed,
    effects.GroupLeft,
    effects.HeadSwitched,
)


def layer_fact(at: int, site: NodeId, effect: object) -> Fact | None:
    """One of `LAYER_EFFECTS`; None where another site tells of the same."""
    match effect:
        case effects.SupportSilent(number, asked):
            return Unanswered(at, site, number, asked)
        case effects.SecondaryStalled(_, member, number):
            return Stalled(at, site, member, number)
        case effects.SecondaryReturned(_, member, number):
            return Returned(at, site, member, number)
        case effects.SecondaryHandedBack(_, member):
            return HandedBack(at, site, member)
        case effects.HeadshipAssumed(epoch, group, anew):
            return GroupHeaded(at, site, epoch, group, anew)
        case effects.HeadSwitched(group, head, silent):
            return HeadChanged(at, site, group, head, silent)
        case _:
            return None
