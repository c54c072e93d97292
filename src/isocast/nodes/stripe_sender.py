"""A receiver's narrow stripes (§4.4): what it released becomes packets, each archived and then sent at its instant.

The receiver's journal is all that it needs, and its own snapshot with the journal behind it is all that it needs after
a restart. A packet is archived before it is sent, and one that was archived before a restart is not sent again: whoever
lacks it asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from isocast.feeds.days import day_at
from isocast.feeds.mold import SessionEnd, session_name
from isocast.ring.inputs import ClockJudged, DriverInput, PacketsArrived, TimerFired
from isocast.striping.engine import StripeEngine, StripePacket
from isocast.striping.pacing import LATE_NS, PacedSender, SendStripe
from isocast.striping.proving import SentSession, StripeProver
from isocast.striping.rates import budget_bytes
from isocast.striping.released import ReleasedPart
from isocast.terms.instants import NEVER, SECOND

__all__ = ["ArchiveStripe", "PartReleased", "StripeSender", "StripeSenderEffect", "StripeSenderInput", "StripeSent"]

_FOLLOW_NS = 5 * SECOND
"""Between two looks at the day: a stripe that said nothing yet speaks in the session of the day."""


@dataclass(frozen=True, slots=True)
class PartReleased:
    """The receiver released the next messages of the sequence, or an empty token."""

    part: ReleasedPart


@dataclass(frozen=True, slots=True)
class StripeSent:
    """The sending of a stripe's datagram is over; `taken`: by the network."""

    stripe: int
    taken: bool = True


@dataclass(frozen=True, slots=True)
class ArchiveStripe:
    """Write a packet to the disk, before it is sent."""

    packet: StripePacket


StripeSenderInput: TypeAlias = DriverInput | PartReleased | StripeSent
StripeSenderEffect: TypeAlias = ArchiveStripe | SendStripe


class StripeSender:
    """Sends the narrow stripes of one core stripe."""

    pacer_class: type[PacedSender] = PacedSender

    def __init__(
        self,
        engine: StripeEngine,
        archived: Mapping[int, tuple[bytes, int]],
        now: int,
        prover: StripeProver | None = None,
    ) -> None:
        """`engine` is where its snapshot says; `archived`: of each stripe the newest session, and its next number.

        `prover` signs, where stripes are proven.
        """
        self.engine = engine
        self.prover = prover
        own = engine.settings
        self.pacer = self.pacer_class(own.token_period_ns, now, made_to=0, overhead=own.seal_bytes)
        self._tokens_a_proof = max(-(-own.proof_ns // own.token_period_ns), 1)
        self._proven_token = 0
        self._proven_at = now
        self._archived = dict(archived)
        self._looked_at = now
        self._follow(now)

    def step(self, event: StripeSenderInput, now: int) -> tuple[StripeSenderEffect, ...]:
        """Take one input; LocalProtocolError, and nothing has changed, for a part that does not continue the last."""
        match event:
            case PartReleased(part):
                return self._on_part(part, now)
            case StripeSent(stripe, taken):
                return self.pacer.sent(stripe, now, taken=taken)
            case TimerFired():
                if now >= self._looked_at + _FOLLOW_NS:
                    self._follow(now)
                if now >= self._prove_at():
                    self._prove(now)
                return self.pacer.poll(now)
            case PacketsArrived() | ClockJudged():
                # Requests are answered from the archive; and what leaves when was decided by the ring's clock.
                return ()
            case _:
                assert_never(event)

    def next_deadline(self) -> int:
        """When it has something to send, or to sign."""
        return min(self.pacer.next_deadline(), self._prove_at())

    def take_over(self, engine: StripeEngine, now: int) -> None:
        """Go on where another receiver's stripes are; what waits is still sent."""
        self.engine = engine
        self._follow(now)

    def _on_part(self, part: ReleasedPart, now: int) -> tuple[ArchiveStripe, ...]:
        engine, plan = self.engine, self.engine.striper.plan
        effects: list[ArchiveStripe] = []
        for made in engine.step(part):
            if isinstance(made, SessionEnd):
                today = session_name(day_at(now, engine.settings.zone), made.stripe)
                self.pacer.end(made, today.encode("ascii"), now)
                continue
            if self.prover is not None and made.due > now - LATE_NS:
                # What was archived before a restart, too: perhaps its proof was not sent.
                self.prover.note(made)
            if not self.is_archived(made):
                self._archived[made.stripe] = made.session, made.number + made.count
                self.pacer.take(made)
                effects.append(ArchiveStripe(made))
        if part.ends_token:
            own = engine.settings
            self.pacer.made(part.instant + own.release_delay_ns + own.token_period_ns + engine.delay_ns)
        if engine.striper.plan is not plan:
            self._follow(now)
        if part.ends_token and part.token_number // self._tokens_a_proof > self._proven_token // self._tokens_a_proof:
            self._proven_token = part.token_number
            self._prove(now)
        return tuple(effects)

    # Proofs -------------------------------------------------------------------------------------

    def _prove_at(self) -> int:
        """Without tokens: heartbeats must be confirmed, too."""
        if self.prover is None:
            return NEVER
        own = self.engine.settings
        return self._proven_at + max(own.proof_ns, own.token_period_ns) + own.token_period_ns

    def _prove(self, now: int) -> None:
        """Sign what was made since the last time, and how far each stripe is."""
        prover, pacer = self.prover, self.pacer
        if prover is None:
            return
        self._proven_at = now
        states = [SentSession(stripe, *line) for stripe, line in pacer.lines.items()]
        over = [SentSession(stripe, session, number, ended=True) for stripe, session, number in pacer.ending]
        known = [state for state in states if pacer.may_beat and (state.stripe, state.session) not in _places(over)]
        for made in prover.prove([*known, *over], now, pacer.room):
            pacer.prove(*made)

    def is_archived(self, packet: StripePacket) -> bool:
        """Whether a packet was archived, in this life or in one before; then it was sent, or is too old."""
        known = self._archived.get(packet.stripe)
        return known is not None and (packet.session, packet.number) < known

    def _follow(self, now: int) -> None:
        """Send the stripes of the plan that is in force, and no others."""
        self._looked_at = now
        striper, settings = self.engine.striper, self.engine.settings
        day = day_at(now, settings.zone)
        rows = []
        for stripe in striper.plan.of_core(striper.core):
            today = session_name(day, stripe.number).encode("ascii"), 1
            budget = budget_bytes(stripe.rate, settings.token_period_ns)
            rows.append((stripe.number, budget, *self._archived.get(stripe.number, today)))
        self.pacer.follow(rows, now)


def _places(states: list[SentSession]) -> set[tuple[int, bytes]]:
    return {(state.stripe, state.session) for state in states}
