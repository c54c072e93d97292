"""A secondary ring (§4.1; protocol §7): a receiver and those below it pass a token that says what they hold.

Secondary token v is due at T_v+Δ_A from members[v mod b], and says: this site, and everybody below it, holds
everything up to v. It passes when that is true: late if need be, and then the newest one that is true at once.

    members    head a b        what the head knows after hearing v:
    v     12   13   14         of b 14, of a 13, of itself 12: all hold 12 = v-b+1

Each token speaks for its sender alone, so a lost one delays the inference by one cycle and never stops it. What was
said in one epoch says nothing in the next.

The head reports what it infers as `secstable` in its next primary token. A member whose token is overdue by G tokens
no longer counts and is named. It counts again when its tokens come in time again, and is named as returned when it
holds everything that may have been dropped meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from isocast.ring.effects import SecondaryReturned, SecondaryStalled, Unicast
from isocast.ring.receiver import Mode, Receiver
from isocast.ring.schedule import Schedule
from isocast.terms.ids import NO_EPOCH, NodeId
from isocast.terms.instants import NEVER
from isocast.wire.packets import NO_LIMIT, SecondaryToken

__all__ = ["SecondaryRing", "SecondaryRingSnapshot"]


@dataclass(frozen=True, slots=True)
class SecondaryRingSnapshot:
    """A group's state, as one member sees it, for checkers and console."""

    group: NodeId
    members: tuple[NodeId, ...]
    floor: int
    """Everybody who counts holds everything up to here; NO_LIMIT when nobody below counts."""
    passed: tuple[tuple[NodeId, int], ...]
    """The newest secondary token of each member in this epoch."""
    stalled: tuple[NodeId, ...]


def _nobody_below() -> int:
    return NO_LIMIT


class SecondaryRing:
    """One site's part in one group, as its head or as a member. Effects gather in the receiver's `out`."""

    def __init__(
        self,
        receiver: Receiver,
        members: tuple[NodeId, ...],
        stall_tokens: int,
        below: Callable[[], int] = _nobody_below,
    ) -> None:
        """`members` in the order of the group, its head first; `below` says what is held below this site."""
        self.group = members[0]
        self.members = members
        self.floor = 0
        self.conflicts = 0
        """Secondary tokens of somebody who does not own them."""
        self._receiver = receiver
        self._place = members.index(receiver.site)
        self._heads = receiver.site == self.group
        self._below = below
        timing = receiver.timing
        self._delay_ns = timing.release_delay_ns
        # Tokens between the newest and the one whose secondary token should have arrived.
        self._lag = -(-(timing.release_delay_ns + timing.late_ns) // timing.token_period_ns)
        # One lost token must not look like a stall, however large the group.
        self._stall_tokens = max(stall_tokens, 2 * len(members))
        self._epoch = NO_EPOCH
        self._since = 0
        self._counted_from = 0
        """Whoever is silent since this token is waited for from here on."""
        self._passed: dict[NodeId, int] = {}
        self._stalled: dict[NodeId, None] = {}
        self._returning: dict[NodeId, None] = {}
        self._claimed = 0
        """What may have been dropped on this head's word, in this epoch."""

    # The contract -------------------------------------------------------------------------------

    def settle(self, now: int) -> None:
        """Pass what is due, watch for those who do not, and infer."""
        receiver, schedule = self._receiver, self._receiver.schedule
        if schedule is None or receiver.mode is Mode.SEALED:
            return
        if receiver.accepted != self._epoch:
            self._enter(schedule)
        self._pass(schedule, now)
        if self._heads:
            self._watch()
        self.floor = self.infer(schedule)
        # Without a limit, this site's next token lets others drop what they will, up to that token.
        self._claimed = max(self._claimed, receiver.held + 1 if self.floor == NO_LIMIT else self.floor)

    def next_deadline(self) -> int:
        """When this site's next secondary token is due; what is lacking for it wakes the site by arriving."""
        receiver, schedule = self._receiver, self._receiver.schedule
        if schedule is None or receiver.mode is Mode.SEALED or receiver.accepted != self._epoch:
            return NEVER
        last = self._passed.get(receiver.site, self._since)
        slot = last + 1 + (self._place - last - 1) % len(self.members)
        return schedule.instant(slot) + self._delay_ns if slot <= min(receiver.held, self._below()) else NEVER

    def snapshot(self) -> SecondaryRingSnapshot:
        """For whoever watches."""
        return SecondaryRingSnapshot(
            self.group, self.members, self.floor, tuple(sorted(self._passed.items())), tuple(self._stalled)
        )

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
        if self.members[number % len(self.members)] != sender:
            self.conflicts += 1
            return
        if number <= self._passed.get(sender, self._since):
            return
        self._passed[sender] = number
        if sender in self._stalled:
            self._come_back(sender, number)

    def _enter(self, schedule: Schedule) -> None:
        """A new epoch, or a restart: nobody has said anything yet. Who had stalled must come back by itself."""
        receiver = self._receiver
        self._epoch = receiver.accepted
        self._since = schedule.first_token - 1
        self._passed.clear()
        self._returning.clear()
        self._claimed = 0
        self.floor = 0
        self._counted_from = max(self._since, receiver.held)

    def due(self, schedule: Schedule, now: int) -> int:
        """The newest token that this site and all below it hold, and whose release is due."""
        return min(self._receiver.held, self._below(), schedule.last_due(now - self._delay_ns))

    def _pass(self, schedule: Schedule, now: int) -> None:
        receiver = self._receiver
        due = self.due(schedule, now)
        slot = due - (due - self._place) % len(self.members)
        if slot <= self._passed.get(receiver.site, self._since):
            return
        self._passed[receiver.site] = slot
        token = SecondaryToken(receiver.settings.stripe, receiver.accepted, receiver.site, self.group, slot)
        receiver.out.extend([Unicast(member, token) for member in self.members if member != receiver.site])

    # Inference ----------------------------------------------------------------------------------

    def infer(self, schedule: Schedule) -> int:
        """Everybody who counts holds everything up to here: v-b+1 after hearing v, if nothing was lost."""
        counted = [member for member in self.members if member not in self._stalled or member in self._returning]
        if self._heads and len(counted) == 1:
            return NO_LIMIT
        floor = min([self._passed.get(member, 0) for member in counted])
        return floor if floor >= schedule.first_token else 0

    def _watch(self) -> None:
        """Name a member whose token is overdue by G tokens, and wait for it no longer."""
        if self._receiver.mode is Mode.CATCHUP:
            # This site was away itself, and heard nobody meanwhile.
            self._counted_from = self._receiver.held
        overdue = self._receiver.held - self._lag - len(self.members) - self._stall_tokens
        for member in self.members[1:]:
            last = max(self._passed.get(member, 0), self._counted_from)
            if last > overdue:
                continue
            self._returning.pop(member, None)
            if member not in self._stalled:
                self._stalled[member] = None
                self._receiver.out.append(SecondaryStalled(self.group, member, self._passed.get(member, 0)))

    def _come_back(self, member: NodeId, number: int) -> None:
        """Count a member whose tokens come in time again; it is back when nothing may be dropped that it lacks."""
        if number >= self._claimed:
            del self._stalled[member]
            self._returning.pop(member, None)
            self._receiver.out.append(SecondaryReturned(self.group, member, number))
        elif number >= self._receiver.held - self._lag - 2 * len(self.members):
            self._returning[member] = None
