"""Whom a secondary receiver belongs to (§4.1, §4.3): the head of its group, or an adopter while that one is silent.

A new ring says who heads the group, and is obeyed when it is heard: from then on that head is asked for what lacks,
before anybody has been silent k_r times. A head whose secondary tokens are overdue by G/4 tokens, and by two cycles at
least, is silent: then this site's tokens go to an adopter as well, who is asked first meanwhile. When the head is heard
in time again it is asked again at once, and after two cycles the adopter gets secondary token 0, twice in case one is
lost. Nobody else is told.
"""

from __future__ import annotations

from collections.abc import Sequence

from isocast.hierarchy.follower import Follower
from isocast.hierarchy.heads import Group, GroupPlan
from isocast.hierarchy.secondary_ring import SecondaryRing
from isocast.ring.effects import HeadChanged, Unicast
from isocast.ring.receiver import Mode
from isocast.terms.ids import NO_EPOCH, NodeId
from isocast.wire.packets import SecondaryToken

__all__ = ["Allegiance"]


class Allegiance:
    """One secondary receiver's side of it. Effects gather in the receiver's `out`."""

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
        """A new ring was heard of: ask whoever heads the group on it."""
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
            receiver.out.append(HeadChanged(self._group.head, head, silent=orphaned))

    def _leave(self) -> None:
        """Tell an adopter, twice, that somebody else counts this site now."""
        receiver = self._receiver
        for adopter, at in list(self._leaving.items()):
            if receiver.held < at:
                continue
            token = SecondaryToken(
                receiver.settings.stripe, receiver.accepted, receiver.site, self._group.head, token_number=0
            )
            receiver.out.append(Unicast(adopter, token))
            if self._ring.adopter == adopter:
                self._ring.adopter = None
            if adopter in self._told:
                del self._leaving[adopter], self._told[adopter]
            else:
                self._told[adopter] = None
                self._leaving[adopter] = receiver.held + self._group.size
