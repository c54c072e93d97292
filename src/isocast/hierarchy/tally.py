"""What the members of a secondary group have said in one epoch, and who of them counts.

A member whose token is overdue by G tokens has stalled: it counts no longer. It counts again when its tokens come in
time again (it is *returning*), and can be relied on when it holds everything that may have been dropped meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable

from isocast.ring.receiver import Mode, Receiver
from isocast.terms.ids import NodeId
from isocast.wire.packets import NO_LIMIT

__all__ = ["Tally"]


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
        """Whoever is silent since this token is waited for from here on."""
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
        """What all of some members hold; 0 while somebody has said nothing in this epoch."""
        floor = min([self.passed.get(member, 0) for member in counted], default=NO_LIMIT)
        return floor if floor >= first_token else 0

    def claim(self, floor: int) -> None:
        """This site's word is `floor` from here on. Without a limit, it lets others drop up to its next token."""
        self._claimed = max(self._claimed, self._receiver.held + 1 if floor == NO_LIMIT else floor)
