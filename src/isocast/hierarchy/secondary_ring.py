"""A secondary ring (§4.1; protocol §7): its members pass a token that says what they hold, and the tally of that.

Secondary token v is due at T_v+Δ_A from order[v mod b], and says: this site, and everybody below it, holds
everything up to v. It passes when that is true: late if need be, and then the newest one that is true at once.

    order      head a b        what the head knows after hearing v:
    v     12   13   14         of b 14, of a 13, of itself 12: all hold 12 = v-b+1

Each token speaks for its sender alone, so a lost one delays the inference by one cycle and never stops it. What was
said in one epoch says nothing in the next.

The head reports what it infers as `secstable` in its next primary token. A member whose token is overdue by G tokens
no longer counts and is named. It counts again when its tokens come in time again, and is named as returned when it
holds everything that may have been dropped meanwhile.

The group re-forms on its own: every member skips in its order whoever has fallen silent, and the round is shorter by
one. Orders that differ for a while do no harm, since nobody speaks for another. Neither ballot nor ring is touched.

A head that entered an epoch from another than the one whose log it continues may have missed another head's time. It
counts everybody anew, and says so; so does one that restarts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from isocast.ring.effects import HeadshipAssumed, SecondaryReturned, SecondaryStalled, Unicast
from isocast.ring.receiver import Mode, Receiver
from isocast.ring.settings import Schedule
from isocast.terms.ids import NO_EPOCH, NodeId
from isocast.terms.instants import NEVER
from isocast.wire.packets import NO_LIMIT, SecondaryToken

__all__ = ["SecondaryRing", "SecondaryRingSnapshot", "Tally"]


# What the members of a secondary group have said in one epoch, and who of them counts.
#
# A member whose token is overdue by G tokens has stalled: it counts no longer. It counts again when its tokens come in
# time again (it is *returning*), and can be relied on when it holds everything that may have been dropped meanwhile.


class Tally:
    """One site's account of a group."""

    def __init__(self, receiver: Receiver) -> None:
        """Nobody has said anything."""
        self.passed: dict[NodeId, int] = {}
        """The newest secondary token of each."""
        self.stalled: dict[NodeId, None] = {}
        self.returning: dict[NodeId, None] = {}
        """Stalled ones that count already, and cannot be relied on yet."""
        self._receiver = receiver
        timing = receiver.timing
        # Tokens between the newest and the one whose secondary token should have arrived.
        self._lag = -(-(timing.release_delay_ns + timing.late_ns) // timing.token_period_ns)
        self._since = 0
        self._counted_from = 0
        """Members that are silent since this token are waited for again from it on."""
        self._was_away = False
        self._claimed = 0
        """What may have been dropped on this site's word, in this epoch."""

    def enter(self, since: int) -> None:
        """A new epoch, or a restart: nobody has said anything yet. Who had stalled must come back by itself."""
        self._since = since
        self.passed.clear()
        self.returning.clear()
        self._claimed = 0
        self._counted_from = max(since, self._receiver.held)

    def said(self, member: NodeId) -> int:
        """What a member said last, or what it need not say any more."""
        return self.passed.get(member, self._since)

    def hear(self, member: NodeId, number: int, size: int) -> bool:
        """Take a token of a member of a group of `size`. True when a stalled one can be relied on again."""
        if number <= self.said(member):
            return False
        self.passed[member] = number
        if member not in self.stalled:
            return False
        if number >= self._claimed:
            self.forgive(member)
            return True
        if self.in_time(number, size):
            self.returning[member] = None
        return False

    def in_time(self, number: int, size: int) -> bool:
        """Whether a token is at most two cycles behind."""
        return number >= self._receiver.held - self._lag - 2 * size

    def overdue(self, member: NodeId, size: int, patience: int) -> bool:
        """Whether a member of a group of `size` has been silent for so many tokens after its token was due."""
        last = max(self.passed.get(member, 0), self._counted_from)
        return last <= self._receiver.held - self._lag - size - patience

    def look_away(self) -> None:
        """This site was away itself, and heard nobody meanwhile."""
        catching_up = self._receiver.mode is Mode.CATCHUP
        if catching_up or self._was_away:
            # The step that ends it may bring all that was missing at once.
            self._counted_from = self._receiver.held
        self._was_away = catching_up

    def stall(self, member: NodeId) -> bool:
        """Count a member no longer. False if it did not count for longer already."""
        self.returning.pop(member, None)
        if member in self.stalled:
            return False
        self.stalled[member] = None
        return True

    def forgive(self, member: NodeId) -> None:
        """Count a member as any other."""
        self.stalled.pop(member, None)
        self.returning.pop(member, None)

    def counts(self, member: NodeId) -> bool:
        """Whether memory waits for it."""
        return member not in self.stalled or member in self.returning

    def floor(self, counted: Iterable[NodeId], first_token: int) -> int:
        """What all of these members hold; 0 while one of them has said nothing in this epoch."""
        floor = min([self.passed.get(member, 0) for member in counted], default=NO_LIMIT)
        return floor if floor >= first_token else 0

    def claim(self, floor: int) -> None:
        """This site's word is `floor` from here on. Without a limit, it lets others drop up to its next token."""
        self._claimed = max(self._claimed, self._receiver.held + 1 if floor == NO_LIMIT else floor)


HEAD_PATIENCE = 4
"""Members wait G/4 tokens for a silent head: its own head gives it up after G, and should count them by then."""


@dataclass(frozen=True, slots=True)
class SecondaryRingSnapshot:
    """A group's state, as one member sees it, for checkers and console."""

    group: NodeId
    """The head that the market's file gives it."""
    members: tuple[NodeId, ...]
    """The present head first."""
    floor: int
    """Everybody who counts holds everything up to here; NO_LIMIT when nobody below counts."""
    passed: tuple[tuple[NodeId, int], ...]
    """The newest secondary token of each member in this epoch."""
    stalled: tuple[NodeId, ...]


def _nobody_below() -> int:
    return NO_LIMIT


class SecondaryRing:
    """One site's part in one group, as its head or as a member. Effects leave through the receiver."""

    def __init__(
        self,
        receiver: Receiver,
        group: NodeId,
        members: tuple[NodeId, ...],
        stall_tokens: int,
        below: Callable[[], int] = _nobody_below,
    ) -> None:
        """`members` in the order of the group, its head first; `below` says what is held below this site."""
        self.group = group
        self.members = members
        self.floor = 0
        self.conflicts = 0
        """Secondary tokens of strangers."""
        self.tally = Tally(receiver)
        self.adopter: NodeId | None = None
        """Who hears this site's tokens besides the group, while its head is silent."""
        self._receiver = receiver
        self._heads = receiver.site == members[0]
        self._below = below
        self._delay_ns = receiver.timing.release_delay_ns
        # One lost token must not look like a stall, however large the group.
        self._stall_tokens = max(stall_tokens, 2 * len(members))
        self._patience = max(stall_tokens // HEAD_PATIENCE, 2 * len(members))
        self._epoch = NO_EPOCH

    # The contract -------------------------------------------------------------------------------

    def settle(self, now: int) -> None:
        """Pass what is due, watch for those who do not, and infer."""
        receiver, schedule = self._receiver, self._receiver.schedule
        if schedule is None or receiver.mode is Mode.SEALED:
            return
        if receiver.accepted != self._epoch:
            self._enter(schedule)
        self._pass(schedule, now)
        self._watch()
        self.floor = self.infer(schedule)
        self.tally.claim(self.floor)

    def next_deadline(self) -> int:
        """When this site's next secondary token is due; what is lacking for it wakes the site by arriving."""
        receiver, schedule = self._receiver, self._receiver.schedule
        if schedule is None or receiver.mode is Mode.SEALED or receiver.accepted != self._epoch:
            return NEVER
        last = self.tally.said(receiver.site)
        order = self.order()
        slot = last + 1 + (order.index(receiver.site) - last - 1) % len(order)
        return schedule.instant(slot) + self._delay_ns if slot <= min(receiver.held, self._below()) else NEVER

    def snapshot(self) -> SecondaryRingSnapshot:
        """The state, for checkers and status pages."""
        tally = self.tally
        return SecondaryRingSnapshot(
            self.group, self.members, self.floor, tuple(sorted(tally.passed.items())), tuple(tally.stalled)
        )

    # Heads --------------------------------------------------------------------------------------

    def lead_by(self, head: NodeId) -> None:
        """A new ring gives the group another head; what was said to the old one counts for nothing there."""
        if head != self.members[0]:
            self.members = (head, *self.members[1:])
            self.tally.forgive(head)

    @property
    def head_silent(self) -> bool:
        """Whether this member no longer hears its head."""
        return self.members[0] in self.tally.stalled

    # Tokens -------------------------------------------------------------------------------------

    def on_token(self, token: SecondaryToken, now: int) -> None:
        """What another member says of itself, in this epoch; one of another epoch is told, or asked, for the ring."""
        receiver, number, sender = self._receiver, token.token_number, token.sender
        if token.epoch != receiver.accepted:
            receiver.on_other_epoch(token.epoch, sender, now)
            return
        if receiver.mode is Mode.SEALED or receiver.schedule is None:
            return
        if receiver.accepted != self._epoch:
            self._enter(receiver.schedule)
        if sender not in self.members:
            self.conflicts += 1
            return
        size = len(self.members)
        returned = self.tally.hear(sender, number, size)
        if returned and self._heads:
            receiver.emit(SecondaryReturned(self.group, sender, number))
        elif not self._heads and self.tally.in_time(number, size):
            # A member only wants to know who takes part in the round.
            self.tally.forgive(sender)

    def order(self) -> Sequence[NodeId]:
        """Who takes part in the round, as far as this site knows."""
        tally = self.tally
        if not tally.stalled:
            return self.members
        site = self._receiver.site
        return [member for member in self.members if member == site or tally.counts(member)]

    def _enter(self, schedule: Schedule) -> None:
        """A new epoch, or a restart: nobody has said anything yet."""
        receiver = self._receiver
        continues = receiver.ring is not None and receiver.ring.cut_epoch == self._epoch != NO_EPOCH
        self._epoch = receiver.accepted
        if not continues:
            self.tally.stalled.clear()
        self.tally.enter(schedule.first_token - 1)
        self.floor = 0
        if self._heads:
            receiver.emit(HeadshipAssumed(receiver.accepted, self.group, anew=not continues))

    def due(self, schedule: Schedule, now: int) -> int:
        """The newest token that this site and all below it hold, and whose release is due."""
        return min(self._receiver.held, self._below(), schedule.last_due(now - self._delay_ns))

    def _pass(self, schedule: Schedule, now: int) -> None:
        receiver = self._receiver
        due = self.due(schedule, now)
        order = self.order()
        slot = due - (due - order.index(receiver.site)) % len(order)
        if slot <= self.tally.said(receiver.site):
            return
        self.tally.passed[receiver.site] = slot
        token = SecondaryToken(receiver.settings.stripe, receiver.accepted, receiver.site, self.group, slot)
        # Those who are silent too: they may be coming back.
        receiver.emit(*[Unicast(member, token) for member in self.members if member != receiver.site])
        if self.adopter is not None:
            receiver.emit(Unicast(self.adopter, token))

    # Inference ----------------------------------------------------------------------------------

    def infer(self, schedule: Schedule) -> int:
        """Everybody who counts holds everything up to here: v-b+1 after hearing v, if nothing was lost."""
        counted = [member for member in self.members if self.tally.counts(member)]
        if self._heads and len(counted) == 1:
            return NO_LIMIT
        return self.tally.floor(counted, schedule.first_token)

    def _watch(self) -> None:
        """Name a member whose token is overdue by G tokens, and wait for it no longer; a member names nobody."""
        receiver, tally, size = self._receiver, self.tally, len(self.members)
        tally.look_away()
        for member in self.members:
            patience = self._patience if member == self.members[0] else self._stall_tokens
            if member == receiver.site or not tally.overdue(member, size, patience):
                continue
            if tally.stall(member) and self._heads:
                receiver.emit(SecondaryStalled(self.group, member, tally.passed.get(member, 0)))
