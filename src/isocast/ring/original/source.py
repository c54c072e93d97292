"""A source of §2.1: stop and wait. One message at a time, repeated until it is acknowledged."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import assert_never

from isocast.ring.original.effects import Acknowledged, Effect, Multicast, RingSuspected, Suspicion
from isocast.ring.original.inputs import MessageSubmitted, PacketsArrived, SourceInput, TimerFired
from isocast.ring.original.packets import Ack, Data
from isocast.ring.original.timers import Timers
from isocast.terms.ids import Label, NodeId
from isocast.terms.instants import NEVER

__all__ = ["Source", "SourceSnapshot"]


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
        self._outstanding: Data | None = None
        self._attempts = 0
        self._resend_due = NEVER

    @property
    def idle(self) -> bool:
        """Whether everything submitted is acknowledged."""
        return self._outstanding is None

    def step(self, event: SourceInput, now: int) -> tuple[Effect, ...]:
        """Take one input; return what to do."""
        match event:
            case PacketsArrived():
                effects: list[Effect] = []
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

    def _on_ack(self, ack: Ack, now: int) -> tuple[Effect, ...]:
        outstanding = self._outstanding
        if outstanding is None or ack.label != outstanding.label:
            return ()
        self._outstanding = None
        self._resend_due = NEVER
        return (Acknowledged(ack.token_number, ack.label), *self._send_next(now))

    def _send_next(self, now: int) -> tuple[Effect, ...]:
        if not self._queue:
            return ()
        self._outstanding = data = Data(Label(self.source, self._next_number), self._queue.popleft())
        self._next_number += 1
        self._attempts = 1
        self._resend_due = now + self._timers.source_resend_ns
        return (Multicast(data),)

    def _on_timer(self, now: int) -> tuple[Effect, ...]:
        outstanding = self._outstanding
        if outstanding is None or now < self._resend_due:
            return ()
        self._resend_due = now + self._timers.source_resend_ns
        if self._attempts < self._timers.retries_max:
            self._attempts += 1
            return (Multicast(outstanding),)
        self._attempts = 1
        return (RingSuspected(Suspicion.SOURCE), Multicast(outstanding))
