"""Hold until the token's instant + Δ_A and the gate, then release in order, paced (§5; protocol §4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from isocast.ring.effects import Effect, FairnessFaulted, Release
from isocast.ring.entries import LogEntry
from isocast.ring.schedule import Schedule
from isocast.ring.settings import RingSettings
from isocast.terms.ids import Epoch
from isocast.terms.instants import MILLISECOND, NEVER

__all__ = ["Releaser"]


class Releaser:
    """The queue between what is held and what customers may see."""

    def __init__(
        self, settings: RingSettings, entries: Callable[[], Mapping[int, LogEntry]], gate: Callable[[int], bool]
    ) -> None:
        """`entries` gives what is held, `gate` says whether a token may be released as far as knowledge goes."""
        self.released = 0
        """Everything up to this token is out."""
        self.offset = 0
        """Messages of the next token that are out."""
        self.next_sequence = 1
        """The first sequence that is not out."""
        self.passed = 0
        """The instant of the newest token that went out whole since the start; 0: none has."""
        self._skip_below = 0
        """Sequences that are out already, whatever token of a log taken over has them."""
        self._rate = settings.release_rate
        self._delay_ns = settings.timing.release_delay_ns
        self._process_ns = settings.timing.process_ns
        self._entries = entries
        self._gate = gate
        self._faulted = 0
        self._uncertified = False
        self._not_before = 0
        """While the site is late, the next step's instant."""

    def restore(self, released: int, offset: int, next_sequence: int = 1, skip_below: int = 0) -> None:
        """Go on where a restart left off."""
        self.released, self.offset, self._faulted = released, offset, released
        self.next_sequence, self._skip_below = next_sequence, skip_below

    def take_over(self, token_number: int, next_sequence: int) -> None:
        """Go on behind another site's checkpoint. What is out stays out: no sequence goes out twice."""
        self.next_sequence = max(self.next_sequence, next_sequence)
        self.restore(token_number, 0, self.next_sequence, self.next_sequence)

    def enter(self, first_token: int) -> None:
        """A new ring issues its tokens anew: a fault of an old token of that number was another's."""
        self._faulted = min(self._faulted, first_token - 1)

    def set_back(self, span_ns: int) -> None:
        """The clock was set back: the next step does not wait for the difference."""
        self._not_before = max(self._not_before - span_ns, 0)

    def due(self, entry: LogEntry, place: int, schedule: Schedule) -> int:
        """The instant, shared by all sites, of the message at `place` of a token.

        T_t+Δ_A plus the place over the stripe's release rate, in steps of a millisecond. What was ordered
        before the present ring and is still unreleased goes out from the ring's start on.
        """
        instant = entry.token.instant + self._delay_ns
        if entry.token.token_number < schedule.first_token:
            instant = max(instant, schedule.start)
        return instant + (place // self._rate * MILLISECOND if self._rate else 0)

    def next_deadline(self, schedule: Schedule) -> int:
        """When the next release, or the next fairness fault, is due."""
        number = self.released + 1
        entry = self._entries().get(number)
        if entry is None:
            at = schedule.instant(number) + self._delay_ns
            return NEVER if self._faulted >= number or number < schedule.first_token else at
        if self._faulted >= number and not self._gate(number):
            return NEVER
        due = self.due(entry, self.offset, schedule)
        return due if self._faulted < number else max(due, self._not_before)

    def poll(self, schedule: Schedule, epoch: Epoch, now: int, *, uncertified: bool = False) -> list[Effect]:
        """Everything that may go out at `now`, marked if no majority stands behind it; the faults of what may not."""
        self._uncertified = uncertified
        effects: list[Effect] = []
        while True:
            number = self.released + 1
            entry = self._entries().get(number)
            if entry is None:
                missed = number >= schedule.first_token and now >= schedule.instant(number) + self._delay_ns
                if missed:
                    self._fault(number, effects)
                return effects
            if now < self.due(entry, self.offset, schedule):
                return effects
            if now < self._not_before or not self._gate(number):
                self._fault(number, effects)
                return effects
            if self._is_late(entry, schedule, now):
                self._fault(number, effects)
            if not self._release(entry, schedule, epoch, now, effects):
                return effects

    def _is_late(self, entry: LogEntry, schedule: Schedule, now: int) -> bool:
        """Backlog of an earlier ring, or a site that was down or stopped when its instant came."""
        return self._is_backlog(entry, schedule) or now > self.due(entry, self.offset, schedule) + self._process_ns

    def _is_backlog(self, entry: LogEntry, schedule: Schedule) -> bool:
        """Whether a token's own instant of release lies before the start of the present ring."""
        return self.due(entry, 0, schedule) > entry.token.instant + self._delay_ns

    def _release(self, entry: LogEntry, schedule: Schedule, epoch: Epoch, now: int, effects: list[Effect]) -> bool:
        """Release what is due of one token; whether all of it is out."""
        total = len(entry.messages)
        if entry.token.first_sequence + self.offset < self._skip_below:
            self.offset = min(self._skip_below - entry.token.first_sequence, total)
        while self.offset < total:
            due = self.due(entry, self.offset, schedule)
            if now < max(due, self._not_before):
                return False
            step = min(self._rate or total, total - self.offset)
            first = entry.token.first_sequence + self.offset
            messages = entry.messages[self.offset : self.offset + step]
            effects.append(Release(epoch, entry, first, messages, due, self._uncertified))
            self.offset += step
            self.next_sequence = first + step
            # What is owed, from an earlier ring or by a site that is late, goes out step after step from now on.
            owed = now > due + self._process_ns or self._is_backlog(entry, schedule)
            self._not_before = now + MILLISECOND if owed and self._rate else 0
        self.released, self.offset = entry.token.token_number, 0
        self.passed = entry.token.instant
        return True

    def _fault(self, number: int, effects: list[Effect]) -> None:
        if self._faulted < number:
            self._faulted = number
            effects.append(FairnessFaulted(number))
