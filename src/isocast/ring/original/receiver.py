"""A receiver of §2.1: orders messages by acknowledgements, and acknowledges when it has the token.

The law of this file, in the paper's words:

    "a single receiver acknowledge[s] messages. The acknowledgement assign[s] the message a sequence number"
    "As soon as r sends acknowledgement t it gives up the right to acknowledge new source messages"
    "Receiver r+1 does not accept the token transferred by acknowledgement t until it has all of the
     acknowledgements and source messages that were acknowledged up to and including t"

t_r is `next_token`, M_{s,r} is one more than the number in the last acknowledgement of s. An acknowledgement
and its message are kept for repairs until every receiver is known to have them (`possession_floor`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import assert_never

from isocast.ring.original.packets import (
    Ack,
    AckItem,
    AckOfItem,
    Item,
    MessageItem,
    MessageSubmitted,
    OriginalAcknowledged,
    OriginalData,
    OriginalEffect,
    OriginalMulticast,
    OriginalNack,
    OriginalPacketsArrived,
    OriginalReceiverInput,
    OriginalRepair,
    OriginalRingSuspected,
    OriginalSuspicion,
    OriginalUnicast,
    Placed,
    SourceInput,
    TimerFired,
    Timers,
    TokenAck,
)
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import Label, NodeId
from isocast.terms.instants import NEVER

__all__ = [
    "OriginalReceiver",
    "OriginalReceiverSnapshot",
    "Requests",
    "Source",
    "SourceSnapshot",
    "possession_floor",
]


# What a receiver is missing and keeps asking for (§2.1).
#
# "When a receiver detects a missing message, it periodically requests the message until it receives the
# message or decides that the retransmit server is inoperable": at once, then every R_n, k_r times in all.


class Requests:
    """One timer and one count for each missing item; one item in each NACK (protocol §9)."""

    __slots__ = ("_attempts_max", "_open", "_resend_ns", "_site", "due")

    def __init__(self, site: NodeId, resend_ns: int, attempts_max: int) -> None:
        """Nothing is missing yet."""
        self.due = NEVER
        """When the next NACK is sent."""
        self._site = site
        self._resend_ns = resend_ns
        self._attempts_max = attempts_max
        self._open: dict[Item, tuple[int, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def items(self) -> tuple[Item, ...]:
        """What is missing, in the order in which it was missed."""
        return tuple(self._open)

    def ask(self, item: Item, server: NodeId, now: int) -> tuple[OriginalEffect, ...]:
        """Ask for an item at once; one that is already asked for waits for its timer."""
        if item in self._open:
            return ()
        self._open[item] = (now + self._resend_ns, 1)
        self.due = min(self.due, now + self._resend_ns)
        return (OriginalUnicast(server, OriginalNack(self._site, item)),)

    def settle(self, item: Item) -> None:
        """The item is here, from whomever it came."""
        if self._open.pop(item, None) is not None:
            self._set_due()

    def on_timer(self, server: NodeId, now: int) -> list[OriginalEffect]:
        """Ask again for everything that is due."""
        effects: list[OriginalEffect] = []
        if now < self.due:
            return effects
        for item, (due, attempts) in self._open.items():
            if due > now:
                continue
            used = attempts
            if used >= self._attempts_max:
                effects.append(OriginalRingSuspected(OriginalSuspicion.REQUEST))
                used = 0
            # Same key: the size of the table does not change under the loop.
            self._open[item] = (now + self._resend_ns, used + 1)
            effects.append(OriginalUnicast(server, OriginalNack(self._site, item)))
        self._set_due()
        return effects

    def _set_due(self) -> None:
        self.due = min((due for due, _ in self._open.values()), default=NEVER)


def possession_floor(token_number: int, ring_size: int) -> int:
    """t-m+1: who sends or hears acknowledgement t knows that every receiver has all up to here (§2.1)."""
    return token_number - ring_size + 1


@dataclass(frozen=True, slots=True)
class OriginalReceiverSnapshot:
    """What checkers and people see of a receiver."""

    next_token: int
    """t_r."""
    next_numbers: tuple[tuple[NodeId, int], ...]
    """(s, M_{s,r}) for every source heard of, by source."""
    waiting: tuple[Label, ...]
    """Messages without a position, in the order of their arrival."""
    kept: tuple[tuple[int, Label], ...]
    """The end of the receive list: what some other receiver may still lack."""
    ahead: tuple[int, ...]
    """Acknowledgements that came too early to be processed."""
    missing: tuple[Item, ...]
    """What is being asked for."""
    highest_ack: int
    holds: bool
    """Has the token and the right to acknowledge."""
    pending: int | None
    """The own acknowledgement whose pass is not confirmed yet."""
    all_have: int
    """Every receiver is known to have everything up to here."""


class OriginalReceiver:
    """One of m receivers on a ring; the first of the ring has the token at the start."""

    def __init__(self, site: NodeId, ring: tuple[NodeId, ...], timers: Timers) -> None:
        """An empty receive list; `ring` in the order in which the token travels."""
        if len(ring) < 2 or len(set(ring)) != len(ring) or site not in ring:  # noqa: PLR2004  (a pass needs two)
            raise LocalProtocolError("a ring has two or more different receivers, this one among them")
        place = ring.index(site)
        self.site = site
        self._predecessor = ring[place - 1]
        self._successor = ring[(place + 1) % len(ring)]
        self._ring_size = len(ring)
        self._timers = timers
        self._next_token = 1
        self._last_acks: dict[NodeId, Ack] = {}
        self._waiting: dict[Label, OriginalData] = {}
        self._received: dict[int, tuple[Ack, OriginalData]] = {}
        self._ahead: dict[int, Ack] = {}
        self._requests = Requests(site, timers.nack_resend_ns, timers.retries_max)
        self._highest = 0
        self._server = ring[0]
        self._collected = 0
        self._holds = place == 0
        self._pending: Ack | None = None
        self._pass_attempts = 0
        self._token_due = NEVER

    def step(self, event: OriginalReceiverInput, now: int) -> tuple[OriginalEffect, ...]:
        """Take one input; return what to do, in order."""
        effects: list[OriginalEffect] = []
        match event:
            case OriginalPacketsArrived():
                for packet in event.packets:
                    match packet:
                        case OriginalData():
                            self._on_data(packet, now, effects)
                        case Ack():
                            self._on_ack(packet, now, effects)
                        case OriginalNack():
                            self._on_nack(packet, effects)
                        case OriginalRepair():
                            self._on_repair(packet, now, effects)
                        case TokenAck():
                            self._on_token_ack(packet)
                        case _:
                            assert_never(packet)
            case TimerFired():
                self._on_timer(now, effects)
            case _:
                assert_never(event)
        return tuple(effects)

    def next_deadline(self) -> int:
        """When something must be sent again or confirmed, or NEVER."""
        return min(self._token_due, self._requests.due)

    def snapshot(self) -> OriginalReceiverSnapshot:
        """The state, frozen."""
        return OriginalReceiverSnapshot(
            next_token=self._next_token,
            next_numbers=tuple(sorted((source, ack.label.number + 1) for source, ack in self._last_acks.items())),
            waiting=tuple(self._waiting),
            kept=tuple((number, ack.label) for number, (ack, _) in self._received.items()),
            ahead=tuple(sorted(self._ahead)),
            missing=self._requests.items(),
            highest_ack=self._highest,
            holds=self._holds,
            pending=None if self._pending is None else self._pending.token_number,
            all_have=max(possession_floor(self._highest, self._ring_size), 0),
        )

    # ---- source messages

    def _on_data(self, data: OriginalData, now: int, effects: list[OriginalEffect]) -> None:
        """§2.1, "When r receives source message (s, M_s)"."""
        source, number = data.label
        last = self._last_acks.get(source)
        expected = 1 if last is None else last.label.number + 1
        if number < expected:
            # "If a source retransmits a message that has been acknowledged, the retransmission server assumes
            # that the source failed to receive the acknowledgement."
            if (self._holds or self._pending is not None) and last is not None and last.label.number == number:
                effects.append(OriginalUnicast(source, last))
            return
        if number > expected:
            previous = Label(source, number - 1)
            if all(ack.label != previous for ack in self._ahead.values()):
                effects += self._ask(AckOfItem(previous), now)
        self._store(data, now, effects)

    def _store(self, data: OriginalData, now: int, effects: list[OriginalEffect]) -> None:
        """Keep a message that has no position here yet; it may be what everything was waiting for."""
        self._waiting.setdefault(data.label, data)
        if self._ahead:
            self._process(now, effects)
        elif self._holds:
            self._acknowledge(now, effects)

    # ---- acknowledgements

    def _on_ack(self, ack: Ack, now: int, effects: list[OriginalEffect]) -> None:
        """§2.1, "When r receives acknowledgement t for (s, M_s)"."""
        number = ack.token_number
        if number < self._next_token:
            if ack.next == self.site and ack.receiver == self._predecessor:
                self._confirm_again(number, effects)
            return
        self._take(ack, now, effects)

    def _take(self, ack: Ack, now: int, effects: list[OriginalEffect]) -> None:
        """Note an acknowledgement from t_r on; process what can be; ask for what is missing before it."""
        number = ack.token_number
        if number > self._highest:
            self._highest = number
            self._server = ack.receiver
            # It took our successor's acceptance, or a later one, to send this.
            if self._pending is not None and number > self._pending.token_number:
                self._pending = None
                self._token_due = NEVER
            self._collect()
        if self._requests:
            self._requests.settle(AckItem(number))
            self._requests.settle(AckOfItem(ack.label))
        self._ahead[number] = ack
        self._process(now, effects)
        for missing in range(self._next_token, number):
            if missing not in self._ahead:
                effects += self._ask(AckItem(missing), now)

    def _process(self, now: int, effects: list[OriginalEffect]) -> None:
        """Place messages while acknowledgement t_r and its message are here."""
        ahead = self._ahead
        while (ack := ahead.get(self._next_token)) is not None:
            data = self._waiting.get(ack.label)
            if data is None:
                effects += self._ask(MessageItem(ack.token_number, ack.label), now)
                return
            if self._requests:
                self._requests.settle(MessageItem(ack.token_number, ack.label))
            del ahead[ack.token_number]
            self._place(ack, data, effects)
            if ack.next == self.site:
                self._accept(now, effects)

    def _place(self, ack: Ack, data: OriginalData, effects: list[OriginalEffect]) -> None:
        """Put the message "in position t in the receive list"; "t_r and M_{s,r} are incremented" (§2.1)."""
        del self._waiting[ack.label]
        self._received[ack.token_number] = (ack, data)
        self._last_acks[ack.label.source] = ack
        self._next_token = ack.token_number + 1
        effects.append(Placed(ack.token_number, ack.label))

    def _collect(self) -> None:
        """Forget what every receiver has: nobody can ask for it any more (§2.1)."""
        floor = possession_floor(self._highest, self._ring_size)
        while self._collected < floor:
            self._collected += 1
            self._received.pop(self._collected, None)

    # ---- the token

    def _accept(self, now: int, effects: list[OriginalEffect]) -> None:
        """Named next, and complete up to and including t: the token is here."""
        self._holds = True
        self._token_due = now + self._timers.token_ack_ns
        self._acknowledge(now, effects)

    def _acknowledge(self, now: int, effects: list[OriginalEffect]) -> None:
        """Give the message that has waited longest the next position, and the token to the successor."""
        data = self._first_waiting()
        if data is None:
            return
        ack = Ack(self._next_token, data.label, self.site, self._successor)
        self._place(ack, data, effects)
        self._highest = ack.token_number
        self._server = self._successor
        self._holds = False
        self._pending = ack
        self._pass_attempts = 1
        self._token_due = now + self._timers.token_resend_ns
        self._collect()
        effects.append(OriginalMulticast(ack))

    def _first_waiting(self) -> OriginalData | None:
        """The oldest message that is its source's next: a source that skips a number gets no position."""
        for label, data in self._waiting.items():
            last = self._last_acks.get(label.source)
            if label.number == (1 if last is None else last.label.number + 1):
                return data
        return None

    def _confirm_again(self, number: int, effects: list[OriginalEffect]) -> None:
        """The previous token site repeats its pass: "it failed to receive the token passing acknowledgement"."""
        if self._holds and number == self._next_token - 1:
            effects.append(OriginalUnicast(self._predecessor, TokenAck(number)))
        elif (confirming := self._received.get(number + 1)) is not None:
            # As a repair: in a ring of two, our acknowledgement would itself look like a repeated pass.
            effects.append(OriginalUnicast(self._predecessor, OriginalRepair(confirming[0])))

    def _on_token_ack(self, token_ack: TokenAck) -> None:
        """The successor has accepted, though it has nothing to acknowledge."""
        if self._pending is not None and token_ack.token_number == self._pending.token_number:
            self._pending = None
            self._token_due = NEVER

    # ---- requests and repairs

    def _ask(self, item: Item, now: int) -> tuple[OriginalEffect, ...]:
        return self._requests.ask(item, self._server, now)

    def _on_nack(self, nack: OriginalNack, effects: list[OriginalEffect]) -> None:
        """Answer from the receive list, token or not: the asker may not know yet who serves now."""
        found: Ack | OriginalData | None = None
        match nack.item:
            case AckItem(number):
                if (entry := self._received.get(number)) is not None:
                    found = entry[0]
            case MessageItem(number, label):
                if (entry := self._received.get(number)) is not None and entry[1].label == label:
                    found = entry[1]
            case AckOfItem(label):
                found = next((ack for ack, data in self._received.values() if data.label == label), None)
            case _:
                assert_never(nack.item)
        if found is not None:
            effects.append(OriginalUnicast(nack.receiver, OriginalRepair(found)))

    def _on_repair(self, repair: OriginalRepair, now: int, effects: list[OriginalEffect]) -> None:
        """A repair is no repetition by its first sender: it asks for nothing."""
        item = repair.item
        if isinstance(item, Ack):
            if item.token_number >= self._next_token:
                self._take(item, now, effects)
            return
        last = self._last_acks.get(item.label.source)
        if last is None or item.label.number > last.label.number:
            self._store(item, now, effects)

    # ---- time

    def _on_timer(self, now: int, effects: list[OriginalEffect]) -> None:
        if self._token_due <= now:
            if self._pending is not None:
                self._pass_again(self._pending, now, effects)
            else:
                self._token_due = NEVER
                effects.append(OriginalUnicast(self._predecessor, TokenAck(self._next_token - 1)))
        effects += self._requests.on_timer(self._server, now)

    def _pass_again(self, pending: Ack, now: int, effects: list[OriginalEffect]) -> None:
        """Repeat: "Token site r periodically sends acknowledgement t until it receives acknowledgement t+1" (§2.1)."""
        self._token_due = now + self._timers.token_resend_ns
        if self._pass_attempts >= self._timers.retries_max:
            self._pass_attempts = 0
            effects.append(OriginalRingSuspected(OriginalSuspicion.PASS))
        self._pass_attempts += 1
        effects.append(OriginalMulticast(pending))


# A source of §2.1: stop and wait. One message at a time, repeated until it is acknowledged.


@dataclass(frozen=True, slots=True)
class SourceSnapshot:
    """What checkers and people see of a source."""

    next_number: int
    outstanding: Label | None
    queued: int
    attempts: int


class Source:
    """Source s: "transmits message M_s at regular intervals until it receives an acknowledgement" (§2.1)."""

    def __init__(self, source: NodeId, timers: Timers) -> None:
        """A source that has sent nothing yet; its first message is number 1."""
        self.source = source
        self._timers = timers
        self._next_number = 1
        self._queue: deque[bytes] = deque()
        self._outstanding: OriginalData | None = None
        self._attempts = 0
        self._resend_due = NEVER

    @property
    def idle(self) -> bool:
        """Whether everything submitted is acknowledged."""
        return self._outstanding is None

    def step(self, event: SourceInput, now: int) -> tuple[OriginalEffect, ...]:
        """Take one input; return what to do."""
        match event:
            case OriginalPacketsArrived():
                effects: list[OriginalEffect] = []
                for packet in event.packets:
                    if isinstance(packet, Ack):
                        effects += self._on_ack(packet, now)
                return tuple(effects)
            case MessageSubmitted():
                self._queue.append(event.payload)
                return self._send_next(now) if self._outstanding is None else ()
            case TimerFired():
                return self._on_timer(now)
            case _:
                assert_never(event)

    def next_deadline(self) -> int:
        """When the outstanding message is sent again, or NEVER."""
        return self._resend_due

    def snapshot(self) -> SourceSnapshot:
        """The state, frozen."""
        outstanding = self._outstanding
        return SourceSnapshot(
            next_number=self._next_number,
            outstanding=None if outstanding is None else outstanding.label,
            queued=len(self._queue),
            attempts=self._attempts,
        )

    def _on_ack(self, ack: Ack, now: int) -> tuple[OriginalEffect, ...]:
        outstanding = self._outstanding
        if outstanding is None or ack.label != outstanding.label:
            return ()
        self._outstanding = None
        self._resend_due = NEVER
        return (OriginalAcknowledged(ack.token_number, ack.label), *self._send_next(now))

    def _send_next(self, now: int) -> tuple[OriginalEffect, ...]:
        if not self._queue:
            return ()
        self._outstanding = data = OriginalData(Label(self.source, self._next_number), self._queue.popleft())
        self._next_number += 1
        self._attempts = 1
        self._resend_due = now + self._timers.source_resend_ns
        return (OriginalMulticast(data),)

    def _on_timer(self, now: int) -> tuple[OriginalEffect, ...]:
        outstanding = self._outstanding
        if outstanding is None or now < self._resend_due:
            return ()
        self._resend_due = now + self._timers.source_resend_ns
        if self._attempts < self._timers.retries_max:
            self._attempts += 1
            return (OriginalMulticast(outstanding),)
        self._attempts = 1
        return (OriginalRingSuspected(OriginalSuspicion.SOURCE), OriginalMulticast(outstanding))
