"""Asking for what is missing, and giving up (§5.1; protocol §3).

Messages are never requested before their token is late: at T_t+δ_N+2ε one request names the token and
everything that is missing of it, so one phase recovers both. After k_r requests the ring is suspected; asking
goes on, with other members, until the token comes or the ring is reformed.

A receiver that is several tokens behind was away, not unlucky: it asks for ranges instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from isocast.ring.settings import Schedule
from isocast.terms.ids import NodeId
from isocast.terms.instants import NEVER
from isocast.terms.timing import Timing

__all__ = ["AskForRange", "AskForToken", "GiveUp", "Recovery", "nack_sets", "turn"]


# Who may ask when: the sets of receivers that take turns (§5.2; protocol §8).


def nack_sets(size: int, sets: int, owner: int = 0) -> list[list[int]]:
    """S_{i,t} = {(r+i+1+j·k_p) mod m : 0 ≤ j ≤ ⌊(m-i-2)/k_p⌋}, for a token sent by place r of m."""
    return [
        [(owner + turn_number + 1 + step * sets) % size for step in range((size - turn_number - 2) // sets + 1)]
        for turn_number in range(sets)
    ]


def turn(size: int, sets: int, owner: int, place: int) -> int:
    """I of the set that `place` belongs to for a token of `owner`: it may ask from T_{t+i}+δ_N+2ε on.

    The next owner has turn 0, so that nobody must send a token before it could ask for what it lacks.
    """
    return (place - owner - 1) % size % sets


RANGE_FROM = 3
"""Tokens behind from which ranges are requested: at most one token is ever in ordinary recovery, two by a hair."""
RANGE_TOKENS = 32
"""Tokens in one range request: with 30 messages each, about a thousand repairs."""


@dataclass(frozen=True, slots=True)
class AskForToken:
    """Send one aggregated NACK."""

    token_number: int
    to: NodeId


@dataclass(frozen=True, slots=True)
class AskForRange:
    """Send one range request."""

    first: int
    last: int
    to: NodeId


@dataclass(frozen=True, slots=True)
class GiveUp:
    """k_r requests were in vain."""

    token_number: int
    suspect: NodeId


@dataclass(slots=True)
class _Attempts:
    made: int
    next_at: int
    rounds: int = 0

    def wait(self, now: int, retry_ns: int) -> None:
        """Until τ_r after this attempt was due: late wake-ups do not add up."""
        self.next_at += retry_ns
        if self.next_at <= now:
            self.next_at = now + retry_ns


class Recovery:
    """The request timers of one receiver in one epoch."""

    def __init__(self, site: NodeId, schedule: Schedule, timing: Timing) -> None:
        """Nothing is missing yet."""
        self.behind = False
        """A source no longer holds what this site lacks: single tokens will not do."""
        self._site = site
        self._schedule = schedule
        self._timing = timing
        self._retry_ns = timing.retry_ns
        self._attempts: dict[int, _Attempts] = {}
        self._range: _Attempts | None = None
        self._range_held = -1

    @property
    def catching_up(self) -> bool:
        """Whether ranges are being requested."""
        return self._range is not None

    def ask_from(self, token_number: int) -> int:
        """When this receiver may first ask for token t: T_{t+i}+δ_N+2ε, i its turn among the NACK sets."""
        schedule, timing = self._schedule, self._timing
        instant = schedule.instant(token_number) + timing.late_ns
        if timing.nack_sets > 1 and self._site in schedule.ring:
            owner = (token_number - schedule.first_token) % schedule.size
            place = schedule.ring.index(self._site)
            instant += turn(schedule.size, timing.nack_sets, owner, place) * schedule.period_ns
        return instant

    def next_deadline(self, held: int) -> int:
        """When something is to be asked for next."""
        if self._range is not None:
            return self._range.next_at
        deadline = NEVER
        first = max(held + 1, self._schedule.first_token)
        for number in range(first, first + RANGE_FROM + self._timing.nack_sets - 1):
            attempts = self._attempts.get(number)
            at = attempts.next_at if attempts else self.ask_from(number)
            deadline = min(deadline, at)
        return deadline

    def due(self, held: int, now: int) -> list[AskForToken | AskForRange | GiveUp]:
        """What is to be done at `now` by a receiver that holds everything up to `held`."""
        for number in [number for number in self._attempts if number <= held]:
            del self._attempts[number]
        last_late = self._schedule.last_due(now - self._timing.late_ns)
        gap = last_late - held
        if gap >= RANGE_FROM + self._timing.nack_sets - 1 or (self.behind and gap > 0):
            return self._due_range(held, last_late, now)
        self._range = None
        self.behind = False
        actions: list[AskForToken | AskForRange | GiveUp] = []
        for number in range(max(held + 1, self._schedule.first_token), last_late + 1):
            if now >= self.ask_from(number):
                actions.extend(self._due_token(number, now))
        return actions

    def _due_token(self, number: int, now: int) -> list[AskForToken | AskForRange | GiveUp]:
        attempts = self._attempts.get(number)
        if attempts is None:
            attempts = self._attempts[number] = _Attempts(0, self.ask_from(number))
        if now < attempts.next_at:
            return []
        actions: list[AskForToken | AskForRange | GiveUp] = []
        if attempts.made == self._timing.retries_max:
            actions.extend(self._give_up(number, now))
            attempts.made = 0
            attempts.rounds += 1
        target = self._target(number, attempts.rounds, now)
        if target != self._site:
            actions.append(AskForToken(number, target))
        attempts.made += 1
        attempts.wait(now, self._retry_ns)
        return actions

    def _give_up(self, number: int, now: int) -> list[GiveUp]:
        silent = self._gave_up_on(number, now)
        return [] if silent is None else [GiveUp(number, silent)]

    def _gave_up_on(self, number: int, now: int) -> NodeId | None:  # noqa: ARG002 (other machines look at the clock)
        """Whose silence it was."""
        return self._schedule.owner(max(number, self._schedule.first_token))

    def _target(self, number: int, rounds: int, now: int) -> NodeId:  # noqa: ARG002
        """The owner holds all of its token; once it stayed silent, any member may."""
        schedule = self._schedule
        return schedule.ring[(number - schedule.first_token + rounds) % schedule.size]

    def _range_target(self, held: int, rounds: int, now: int) -> NodeId:  # noqa: ARG002
        """Every member has what is old."""
        return self._schedule.ring[(held + rounds) % self._schedule.size]

    def _due_range(self, held: int, last_late: int, now: int) -> list[AskForToken | AskForRange | GiveUp]:
        attempts = self._range
        if attempts is None:
            # What was asked for token by token counts: k_r silences are k_r silences.
            attempts = self._range = self._attempts.pop(held + 1, None) or _Attempts(0, now)
            self._range_held = held
        if held > self._range_held:
            attempts.made = 0
        if now < attempts.next_at:
            return []
        actions: list[AskForToken | AskForRange | GiveUp] = []
        if attempts.made == self._timing.retries_max:
            actions.extend(self._give_up(held + 1, now))
            attempts.made = 0
        self._range_held = held
        target = self._range_target(held, attempts.rounds, now)
        attempts.rounds += 1
        if target != self._site:
            actions.append(AskForRange(held + 1, min(held + RANGE_TOKENS, last_late), target))
        attempts.made += 1
        attempts.wait(now, self._retry_ns)
        return actions

    def restart(self) -> None:
        """The clock was set back: what is late by the right time will be asked for anew."""
        self._attempts.clear()
        self._range = None

    def progressed(self, held: int, now: int) -> None:
        """A range was answered: go on with the next at once."""
        if self._range is not None and held >= self._range_held + RANGE_TOKENS:
            self._range.next_at = now
