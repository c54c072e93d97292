"""A receiver that follows the ring without being on it: what a secondary receiver holds and releases (§4.1).

It hears the same messages, tokens and receipts as the primary receivers, orders them by the same rules and releases
them at the same instants behind the same gate. It owns no token, sends no receipt, promises nothing and is in no
quorum. What it lacks it asks of its support; whom it cannot reach it names, and suspects nobody.

A lost receipt costs nothing: the next token's receipts say all that it said, and more.
"""

from __future__ import annotations

from isocast.hierarchy.secondary_recovery import SecondaryRecovery, Support
from isocast.ring.effects import SupportSilent
from isocast.ring.receiver import Receiver
from isocast.ring.recovery import Recovery
from isocast.ring.schedule import Schedule
from isocast.ring.settings import RingSettings
from isocast.ring.storage import SiteState
from isocast.terms.ids import Epoch, NodeId
from isocast.terms.instants import NEVER
from isocast.wire.packets import Nack, NewRing, Pending, RangeRequest

__all__ = ["Follower"]


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
    ) -> None:
        """Start, or restart, from what the disk says; `family` are those who may ask this site for the ring."""
        self.support = support
        self.unanswered = 0
        """How often somebody asked stayed silent k_r times."""
        self._family = family
        self._ring_asked_at = -NEVER
        self._ring_asked = 0
        super().__init__(site, settings, secret, state)
        if self.ring is None:
            support.others = self.ledger.universe

    # What it does not do ------------------------------------------------------------------------

    def _receipt(self, now: int) -> None:  # noqa: ARG002
        """Nothing is sent: only receipts of U count, and this site's log may have grown up to some of them."""
        self._certify()

    def _audit_at(self, schedule: Schedule) -> int:  # noqa: ARG002
        """Whether members send receipts is the members' affair."""
        return NEVER

    def turn_to_another(self, now: int) -> None:
        """k_r requests were in vain: ask somebody else, and name whoever was silent."""
        silent = self.support.move_on(now)
        if silent is not None:
            self.give_up(self.held + 1, silent)

    def give_up(self, number: int, suspect: NodeId) -> None:
        """A fault of the support, not of the ring."""
        self.unanswered += 1
        self.out.append(SupportSilent(number, suspect))

    def _still_lacks(self) -> None:
        """Whoever is asked has answered that it let go what is missing: nobody is silent."""

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
        """Whoever was asked is asking too."""
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
        """By a request that whoever knows a newer ring finds stale; at most one each τ_{r,S}."""
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
        """Send a request that somebody else composed."""
        self._send(to, request)
