"""A receiver that follows the ring without being on it: what it holds and releases, and whom it asks (§4.1).

It hears the same messages, tokens and receipts as the primary receivers, orders them by the same rules and releases
them at the same instants behind the same gate. It owns no token, sends no receipt, promises nothing and is in no
quorum. What it lacks it asks of its support; whom it cannot reach it names, and suspects nobody.

A lost receipt costs nothing: the next token's receipts say all that it said, and more.
"""

from __future__ import annotations

from collections.abc import Sequence

from isocast.hierarchy.headship import Group, GroupPlan
from isocast.hierarchy.secondary_ring import SecondaryRing
from isocast.ring.disclosures import Fits
from isocast.ring.effects import HeadSwitched, SupportSilent, Unicast
from isocast.ring.notary import Notary
from isocast.ring.receiver import Mode, Receiver
from isocast.ring.recovery import Recovery
from isocast.ring.settings import RingSettings, Schedule
from isocast.ring.storage import SiteState
from isocast.terms.ids import NO_EPOCH, Epoch, NodeId
from isocast.terms.instants import NEVER
from isocast.terms.timing import Timing
from isocast.wire.packets import Nack, NewRing, Pending, RangeRequest, SecondaryToken

__all__ = ["Allegiance", "Follower", "SecondaryRecovery", "Support"]


# Whom a secondary receiver asks for what it lacks, and when (§4.1; protocol §1, §7).
#
# Its parent, never the token site: a thousand secondary receivers must not add to the requests on the global tree. The
# parent is whoever heads the group now (`allegiance`). One that is silent is given up for the backup of the market's
# file, and a silent backup for a member of the ring, for a while. None of this is a suspicion: rings are judged by
# those who are on them.
#
# A parent may be asking itself. It says so (PENDING), and the count of attempts starts anew, until the instant by which
# it must have had an answer; after that parent and backup are asked in turn, in case only one of them is cut off.
# Requests lie on a grid that ends at T_t+Δ_A less the gate's share: k_r of them come after the last moment at which a
# parent that recovers becomes complete.


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
        """The group has another head: ask it first, and at once. A backup that is the head is not asked twice."""
        self.parent = parent
        self.backup = self._configured if parent != self._configured else None
        self._place = 0
        self._answered_at = -NEVER

    def heard(self, sender: NodeId, now: int) -> None:
        """An answer came: its sender, if it is the one that is asked, is alive even if it lacks the token."""
        chain = self._chain()
        if sender == chain[min(self._place, len(chain) - 1)]:
            self._answered_at = now

    def move_on(self, now: int) -> NodeId | None:
        """Turn to the next site after k_r requests in vain. Returns the silent one, None if it had answered.

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
        """The site that was asked lacks the token too: while it may yet get it, that counts as no silence."""
        attempts = self._attempts.get(token_number)
        if attempts is not None and now < self._schedule.instant(token_number) + self._complete_ns:
            attempts.made = 0

    def _gave_up_on(self, number: int, now: int) -> NodeId | None:  # noqa: ARG002
        """The silent one; when nobody answers single requests, ranges catch up with what there is."""
        silent = self._support.move_on(now)
        self.behind = self.behind or self._support.last_resort
        for attempts in self._attempts.values():
            # The next site to be asked has not been silent yet.
            attempts.made = 0
        return silent

    def _target(self, number: int, rounds: int, now: int) -> NodeId:  # noqa: ARG002
        return self._support.asked(now)

    def _range_target(self, held: int, rounds: int, now: int) -> NodeId:  # noqa: ARG002
        return self._support.asked(now)


class Follower(Receiver):
    """As `Receiver`, with the rights of a secondary receiver."""

    def __init__(
        self,
        site: NodeId,
        settings: RingSettings,
        secret: bytes,
        state: SiteState,
        support: Support,
        family: tuple[NodeId, ...],
        notary: Notary | None = None,
        fits: Fits | None = None,
    ) -> None:
        """Start, or restart, from what the disk says; `family` are those who may ask this site for the ring."""
        self.support = support
        self.unanswered = 0
        """How often somebody asked stayed silent k_r times."""
        self._family = family
        self._ring_asked_at = -NEVER
        self._ring_asked = 0
        super().__init__(site, settings, secret, state, notary, fits)
        if self.ring is None:
            support.others = self.ledger.universe

    # What it does not do ------------------------------------------------------------------------

    def _receipt(self, now: int) -> None:
        """Nothing is sent: only receipts of U count, and this site's log may have grown up to some of them."""
        self._count_comparable(now)
        self._certify()

    def _audit_at(self, schedule: Schedule) -> int:  # noqa: ARG002
        """Whether members send receipts is the members' affair."""
        return NEVER

    def turn_to_another(self, now: int) -> None:
        """After k_r requests in vain, ask another site, and report the silent one."""
        silent = self.support.move_on(now)
        if silent is not None:
            self.give_up(self.held + 1, silent)

    def give_up(self, number: int, suspect: NodeId) -> None:
        """A fault of the support, not of the ring."""
        self.unanswered += 1
        self.emit(SupportSilent(number, suspect))

    def still_lacks(self, number: int, owner: NodeId) -> None:
        """The site that is asked no longer keeps what is missing: it has answered, so nothing is reported."""

    def asked(self) -> tuple[NodeId, ...]:
        """Those above it."""
        support = self.support
        return (support.parent,) if support.backup is None else (support.parent, support.backup)

    def givers(self) -> tuple[NodeId, ...]:
        """Those above it, and as the last resort the ring."""
        return tuple(dict.fromkeys((*self.asked(), *self.support.others)))

    # What it does differently -------------------------------------------------------------------

    def recovery_in(self, schedule: Schedule) -> Recovery:
        """Ask the support."""
        return SecondaryRecovery(self.site, schedule, self.timing, self.support)

    def on_pending(self, pending: Pending, now: int) -> None:
        """The site that was asked is waiting for the token itself."""
        if pending.epoch == self.accepted and isinstance(self._recovery, SecondaryRecovery):
            self._recovery.pending(pending.token_number, now)

    def follow(self, ballot: Epoch) -> None:
        """A newer ring exists: take nothing of the old one while its log is being brought to the cut."""
        self.promised = ballot

    def _enter(self, ring: NewRing) -> None:
        super()._enter(ring)
        self.support.others = ring.ring
        self._ring_asked = 0

    def on_other_epoch(self, epoch: Epoch, sender: NodeId, now: int) -> None:
        """Only the family is told of the ring, and only the support is asked for it: everybody hears every packet."""
        if epoch > max(self.accepted, self.promised):
            self.ask_for_ring(now)
        elif epoch < self.accepted and sender in self._family:
            super().on_other_epoch(epoch, sender, now)

    def ask_for_ring(self, now: int) -> None:
        """Ask for a newer ring, by a request that its members find stale; at most once each τ_{r,S}."""
        retry_ns = self.timing.secondary_retry_ns or self.timing.retry_ns
        if self._ring_asked_at <= now < self._ring_asked_at + retry_ns:
            return
        self._ring_asked_at = now
        if self._ring_asked == self.timing.retries_max:
            self.turn_to_another(now)
            self._ring_asked = 0
        self._ring_asked += 1
        nack = Nack(
            self.settings.stripe, self.accepted, self.site, self.held + 1, has_token=False, parts_held=0, listed=()
        )
        self._send(self.support.asked(now), nack)

    def ask(self, to: NodeId, request: Nack | RangeRequest) -> None:
        """Send a request that another machine of this site composed."""
        self._send(to, request)


# Whom a secondary receiver belongs to (§4.1, §4.3): the head of its group, or an adopter while that one is
# silent.
#
# A new ring says who heads the group, and is obeyed when it is heard: from then on that head is asked for what lacks,
# before anybody has been silent k_r times. A head whose secondary tokens are overdue by G/4 tokens, and by two cycles
# at least, is silent: then this site's tokens go to an adopter as well, who is asked first meanwhile. When the head is
# heard in time again it is asked again at once, and after two cycles the adopter gets secondary token 0, twice in case
# one is lost. Nobody else is told.


class Allegiance:
    """One secondary receiver's side of it. Effects leave through the receiver."""

    def __init__(self, receiver: Follower, group: Group, plan: GroupPlan, ring: SecondaryRing) -> None:
        """To the head that the market's file gives, or that the ring on the disk does."""
        self.head = group.head
        """Whom it belongs to now."""
        self._receiver = receiver
        self._group = group
        self._plan = plan
        self._ring = ring
        self._epoch = NO_EPOCH
        self._adopter: NodeId | None = None
        self._leaving: dict[NodeId, int] = {}
        """Adopters that are needed no longer, each with the token at which it is told next."""
        self._told: dict[NodeId, None] = {}
        if receiver.ring is not None:
            self.turn(receiver.ring.ring)

    def turn(self, ring: Sequence[NodeId]) -> None:
        """A new ring was heard of: ask the head of the group on it."""
        head = self._plan.heads(ring).get(self._group.head, self._group.head)
        self._ring.lead_by(head)
        self._adopter = self._plan.adopter(self._group.head, ring)
        self._follow()

    def settle(self) -> None:
        """After the group: belong to an adopter while the head is silent, and no longer."""
        receiver = self._receiver
        if receiver.ring is None or receiver.mode is Mode.SEALED:
            return
        if receiver.accepted != self._epoch:
            self._epoch = receiver.accepted
            self.turn(receiver.ring.ring)
        self._follow()
        self._leave()

    def _follow(self) -> None:
        ring, receiver = self._ring, self._receiver
        orphaned = ring.head_silent and self._adopter is not None
        adopter = self._adopter if orphaned else None
        if adopter is not None:
            self._leaving.pop(adopter, None)
            self._told.pop(adopter, None)
        if ring.adopter is not None and ring.adopter != adopter and ring.adopter not in self._leaving:
            self._leaving[ring.adopter] = receiver.held + 2 * self._group.size
        if adopter is not None or not self._leaving:
            ring.adopter = adopter
        head = adopter or ring.members[0]
        if head != self.head:
            self.head = head
            receiver.support.follow(head)
            receiver.emit(HeadSwitched(self._group.head, head, silent=orphaned))

    def _leave(self) -> None:
        """Tell an adopter, twice, that this site has another head now."""
        receiver = self._receiver
        for adopter, at in list(self._leaving.items()):
            if receiver.held < at:
                continue
            token = SecondaryToken(
                receiver.settings.stripe, receiver.accepted, receiver.site, self._group.head, token_number=0
            )
            receiver.emit(Unicast(adopter, token))
            if self._ring.adopter == adopter:
                self._ring.adopter = None
            if adopter in self._told:
                del self._leaving[adopter], self._told[adopter]
            else:
                self._told[adopter] = None
                self._leaving[adopter] = receiver.held + self._group.size
