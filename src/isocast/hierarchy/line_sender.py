"""The sending end of a line: released messages as REL, and heartbeats that tell where the line stands.

A heartbeat is a REL that carries no message: `count` is 0, `sequence` and `number` are the *next* ones that the line
will send, `instant` is the sender's clock as it sends, `epoch` and `token_number` are of the newest token that the
receiver holds. It lets a customer see that the last message of all was lost on every line, that a line lives, that the
ring behind it turns, and how long it leaves packets in its own sockets. Where a market has several stripes it has a
payload: the instant (8 bytes) of the newest token that is released whole, so that everything of tokens up to it comes
before `sequence`. Whoever hears several stripes knows by it what existed when.

The first heartbeat follows a burst quickly, each next one after twice the time, up to `heartbeat_ns`: the end of a
burst is where a loss cannot be seen otherwise. However busy the line is, there is one every `heartbeat_ns`.

Where nodes sign, the digests of a burst go before it, in PROOF, and a heartbeat carries a signature.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, assert_never

from isocast.hierarchy.edge import MessagesReleased, SendLine
from isocast.hierarchy.proving import LineProver
from isocast.ring.inputs import TimerFired
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import NO_EPOCH, Epoch, NodeId
from isocast.wire.packets import ReleasedPacket
from isocast.wire.proofs import proof_salt

__all__ = ["INSTANT_BYTES", "Heartbeat", "LineSender", "LineSenderSnapshot"]

INSTANT_BYTES = 8
QUICK = 8
"""The first heartbeat after a burst comes an eighth of `heartbeat_ns` after it."""


class Heartbeat:
    """When a line's next heartbeat is due, and what it says."""

    def __init__(self, sender: NodeId, stripe: int, heartbeat_ns: int, prover: LineProver | None = None) -> None:
        """At once after a start: customers learn where the line stands."""
        self._prover = prover
        self.due = 0
        self.epoch: Epoch = NO_EPOCH
        self.token_number = 0
        self._sender = sender
        self._stripe = stripe
        self._longest_ns = heartbeat_ns
        self._quick_ns = max(heartbeat_ns // QUICK, 1)
        self._wait_ns = heartbeat_ns
        self._beat_at = 0
        self._passed = b""

    def busy(self, last: ReleasedPacket, now: int) -> None:
        """Messages went out, `last` at the end: heartbeats are quick again, and never rarer than the longest wait."""
        self.hold(last.epoch, last.token_number)
        self._wait_ns = self._quick_ns
        self.due = min(now + self._quick_ns, self._beat_at + self._longest_ns)

    def hold(self, epoch: Epoch, token_number: int) -> None:
        """The newest token that is here: what was released is older."""
        self.epoch, self.token_number = max((self.epoch, self.token_number), (epoch, token_number))

    def beat(self, next_sequence: int, now: int) -> ReleasedPacket:
        """The heartbeat that is due."""
        self._beat_at = now
        self.due = now + self._wait_ns
        self._wait_ns = min(2 * self._wait_ns, self._longest_ns)
        packet = ReleasedPacket(
            self._stripe,
            self.epoch,
            self._sender,
            self.token_number,
            next_sequence,
            now,
            self._stripe,
            next_sequence,
            0,
            self._passed,
            b"",
        )
        return packet if self._prover is None else self._prover.sign(packet)

    def passed(self, instant: int, now: int) -> None:
        """A token of this instant is released whole: said soon."""
        told = instant.to_bytes(INSTANT_BYTES, "little", signed=True)
        if told != self._passed:
            self._passed = told
            self._wait_ns = self._quick_ns
            self.due = min(self.due, now + self._quick_ns)

    def set_back(self, now: int) -> None:
        """The clock was set back: the next heartbeat does not wait for the difference."""
        self.due = min(self.due, now + self._longest_ns)
        self._beat_at = min(self._beat_at, now)


@dataclass(frozen=True, slots=True)
class LineSenderSnapshot:
    """A line's sending end for checkers and console."""

    site: NodeId
    next_sequence: int
    messages: int
    heartbeats: int


LineSenderInput: TypeAlias = MessagesReleased | TimerFired


class LineSender:
    """Turns a receiver's releases into what its customers hear."""

    def __init__(
        self, site: NodeId, stripe: int, heartbeat_ns: int, next_sequence: int = 1, prover: LineProver | None = None
    ) -> None:
        """`next_sequence` is what the site's journal says: the first that it has not released."""
        if heartbeat_ns <= 0 or next_sequence < 1:
            raise LocalProtocolError("a line needs a positive heartbeat_ns and a next_sequence from 1 on")
        self.site = site
        self.next_sequence = next_sequence
        self._stripe = stripe
        self._prover = prover
        self._heartbeat = Heartbeat(site, stripe, heartbeat_ns, prover)
        self._messages = 0
        self._heartbeats = 0
        self._last_now = 0

    def step(self, event: LineSenderInput, now: int) -> tuple[SendLine, ...]:
        """Take one input at local time `now`."""
        if now < self._last_now:
            self._heartbeat.set_back(now)
        self._last_now = now
        match event:
            case MessagesReleased():
                return self._on_released(event, now)
            case TimerFired():
                if now < self._heartbeat.due:
                    return ()
                self._heartbeats += 1
                return (SendLine((self._heartbeat.beat(self.next_sequence, now),)),)
            case _:
                assert_never(event)

    def hold(self, epoch: Epoch, token_number: int) -> None:
        """The newest token that the receiver holds: told with the next heartbeat."""
        self._heartbeat.hold(epoch, token_number)

    def passed(self, instant: int, now: int) -> None:
        """Everything of tokens up to this instant is on the line: told with the next heartbeat."""
        self._heartbeat.passed(instant, now)

    def next_deadline(self) -> int:
        """When the next heartbeat is due."""
        return self._heartbeat.due

    def snapshot(self) -> LineSenderSnapshot:
        """The state, for checkers and status pages."""
        return LineSenderSnapshot(self.site, self.next_sequence, self._messages, self._heartbeats)

    def _on_released(self, event: MessagesReleased, now: int) -> tuple[SendLine, ...]:
        release, payloads = event.release, event.payloads
        if len(payloads) != len(release.messages):
            raise LocalProtocolError(f"{len(payloads)} opened payloads for {len(release.messages)} messages")
        if not payloads:
            return ()
        token, first, stripe = release.entry.token, release.first_sequence, self._stripe
        epoch, number, instant, site = token.epoch, token.token_number, token.instant, self.site
        marked, key = release.uncertified, release.entry.shuffle_key
        packets = tuple(
            [
                ReleasedPacket(
                    stripe, epoch, site, number, sequence, instant, stripe, sequence, 1, payload, b"", marked, key
                )
                for sequence, payload in enumerate(payloads, first)
            ]
        )
        self.next_sequence = first + len(packets)
        self._messages += len(packets)
        self._heartbeat.busy(packets[-1], now)
        if self._prover is None:
            return (SendLine(packets),)
        proofs = self._prover.prove_release(packets, proof_salt(token.reveal, token.prev_digest))
        return (SendLine(packets, proofs),)
