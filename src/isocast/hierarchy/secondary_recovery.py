"""Whom a secondary receiver asks for what it lacks, and when (§4.1; protocol §1, §7).

Its parent, never the token site: a thousand secondary receivers must not add to the requests on the global tree. The
parent is whoever heads the group now (`allegiance`). One that is silent is given up for the backup of the market's
file, and a silent backup for a member of the ring, for a while. None of this is a suspicion: rings are judged by those
who are on them.

A parent may be asking itself. It says so (PENDING), and the count of attempts starts anew, until the instant by which
it must have had an answer; after that parent and backup are asked in turn, in case only one of them is cut off.
Requests lie on a grid that ends at T_t+Δ_A less the gate's share: k_r of them come after the last moment at which a
parent that recovers becomes complete.
"""

from __future__ import annotations

from isocast.ring.recovery import Recovery
from isocast.ring.schedule import Schedule
from isocast.terms.ids import NodeId
from isocast.terms.instants import NEVER
from isocast.terms.timing import Timing

__all__ = ["SecondaryRecovery", "Support"]

PATIENT_TURNS = 4
"""Turns of parents and backups that answer without helping, until a member of the ring is asked once."""
AWAY_PERIODS = 8
"""Token periods for which a silent parent is spared: asking it again costs k_r retries, once in this time."""


class Support:
    """The parent, the backup and the ring: one of them is asked at a time."""

    def __init__(self, parent: NodeId, backup: NodeId | None, timing: Timing) -> None:
        """Ask the parent first."""
        self.parent = parent
        self.backup = backup
        self._configured = backup
        self.others: tuple[NodeId, ...] = ()
        """The last resort: members of the ring, or holders of a ring's cut."""
        self._away_ns = AWAY_PERIODS * timing.token_period_ns
        self._place = 0
        self._turn = 0
        self._resorts = 0
        self._return_at = 0
        self._round_ns = timing.retries_max * (timing.secondary_retry_ns or timing.retry_ns)
        self._answered_at = -NEVER

    def asked(self, now: int) -> NodeId:
        """Who is asked now."""
        if self._place and not 0 < self._return_at - now <= self._away_ns:
            # The time is over, or the clock was set back: the parent gets another chance.
            self._place = 0
        chain = self._chain()
        # A new ring may leave nobody else to turn to.
        self._place = min(self._place, len(chain) - 1)
        return chain[self._place]

    @property
    def last_resort(self) -> bool:
        """Whether parent and backup are both given up for now."""
        return self._place > (self.backup is not None)

    def follow(self, parent: NodeId) -> None:
        """Somebody else heads the group: ask that one first, and at once. A backup that heads it is not asked twice."""
        self.parent = parent
        self.backup = self._configured if parent != self._configured else None
        self._place = 0
        self._answered_at = -NEVER

    def heard(self, sender: NodeId, now: int) -> None:
        """An answer came: if it is from whoever is asked, that one is alive, whatever it lacks."""
        chain = self._chain()
        if sender == chain[min(self._place, len(chain) - 1)]:
            self._answered_at = now

    def move_on(self, now: int) -> NodeId | None:
        """Turn to the next, k_r requests being in vain. Returns whoever was silent, None if it had answered.

        The last resort is for those whose parent and backup are both silent, or have nothing to give for long: they
        may have lost their disks.
        """
        asked = self.asked(now)
        answered = now - self._round_ns < self._answered_at <= now
        self._resorts += self.last_resort
        chain = self._chain()
        patient = answered and self._turn % PATIENT_TURNS < PATIENT_TURNS - 1
        own = 1 if self.backup is None else 2
        self._place = (self._place + 1) % (own if patient else len(chain))
        self._turn += self._place == 0
        self._return_at = now + self._away_ns
        self._answered_at = -NEVER
        return None if answered else asked

    def _chain(self) -> list[NodeId]:
        chain = [self.parent]
        if self.backup is not None:
            chain.append(self.backup)
        rest = [site for site in self.others if site not in chain]
        if rest:
            chain.append(rest[self._resorts % len(rest)])
        return chain


class SecondaryRecovery(Recovery):
    """The request timers of one secondary receiver in one epoch."""

    def __init__(self, site: NodeId, schedule: Schedule, timing: Timing, support: Support) -> None:
        """Nothing is missing yet."""
        super().__init__(site, schedule, timing)
        self._support = support
        self._retry_ns = timing.secondary_retry_ns or timing.retry_ns
        self._complete_ns = timing.completion_ns + timing.secondary_ns
        first_ns = timing.late_ns + timing.secondary_detect_ns
        self._first_ns = first_ns + (self._complete_ns - first_ns) % self._retry_ns

    def ask_from(self, token_number: int) -> int:
        """T_t+δ_N+2ε+δ_S, or a little later: on the grid of requests."""
        return self._schedule.instant(token_number) + self._first_ns

    def pending(self, token_number: int, now: int) -> None:
        """Whoever was asked lacks the token too, and is alive: that counts as no silence while it may yet get it."""
        attempts = self._attempts.get(token_number)
        if attempts is not None and now < self._schedule.instant(token_number) + self._complete_ns:
            attempts.made = 0

    def _gave_up_on(self, number: int, now: int) -> NodeId | None:  # noqa: ARG002
        """The silent one; when nobody answers single requests, ranges catch up with what there is."""
        silent = self._support.move_on(now)
        self.behind = self.behind or self._support.last_resort
        for attempts in self._attempts.values():
            # Whoever comes next has not been silent about anything.
            attempts.made = 0
        return silent

    def _target(self, number: int, rounds: int, now: int) -> NodeId:  # noqa: ARG002
        return self._support.asked(now)

    def _range_target(self, held: int, rounds: int, now: int) -> NodeId:  # noqa: ARG002
        return self._support.asked(now)
