"""How a secondary receiver gets from one ring to the next (protocol §5, §7): it obeys the cut as everybody does.

It votes for nothing, so a NEWRING binds it at once: it takes no more of the old ring, finds the common prefix of its
log with the cut by the chained digest, fetches what follows from its support, and installs all of it in one record.
"""

from __future__ import annotations

from isocast.hierarchy.follower import Follower
from isocast.reformation.reconciliation import Reconciliation, WantedMessages, WantedTokens, lacking, moved_on
from isocast.ring.answers import holdings
from isocast.ring.inputs import CheckpointFetched
from isocast.ring.rejoin import Rejoin
from isocast.terms.ids import Epoch
from isocast.terms.instants import NEVER
from isocast.wire.packets import Nack, NewRing, RangeReply, RangeRequest, Repair

__all__ = ["RingFollowing"]


class RingFollowing:
    """Brings a follower's log to the cut of each new ring. Effects gather in the follower's `out`."""

    reconciliation_class = Reconciliation

    def __init__(self, receiver: Follower) -> None:
        """On the ring that the disk knows, or in search of one."""
        self._receiver = receiver
        self._retry_ns = receiver.timing.secondary_retry_ns or receiver.timing.retry_ns
        self._reconciliation: Reconciliation | None = None
        self._asked: WantedTokens | WantedMessages | None = None
        self._silences = 0
        self._next_at = 0
        self._rejoin = Rejoin(receiver.timing)

    @property
    def target(self) -> Epoch | None:
        """The ring whose cut is being fetched; then repairs are for this machine."""
        return self._reconciliation.target.ballot if self._reconciliation else None

    def next_deadline(self) -> int:
        """When to ask again."""
        waits = self._reconciliation is not None or self._receiver.ring is None
        return self._next_at if waits else NEVER

    def on_new_ring(self, ring: NewRing, now: int) -> None:
        """Work towards the newest ring that is known."""
        receiver = self._receiver
        if ring.ballot <= max(receiver.accepted, self.target or receiver.accepted):
            return
        receiver.follow(ring.ballot)
        receiver.support.others = ring.holders
        self._reconciliation = self.reconciliation_class(ring, receiver.ledger)
        self._silences = 0
        self._rejoin.reset()
        self._reconcile(now)

    def on_range_reply(self, reply: RangeReply, now: int) -> None:
        """Whoever is asked has let go what lies between this site's log and the cut."""
        reconciliation = self._reconciliation
        if reconciliation is None:
            return
        if self._rejoin.gone(reply, lacking(self._asked), self._receiver.asked(), now) and self._rejoin.wanting:
            reconciliation.refuse()
            self._reconcile(now)

    def on_checkpoint(self, fetched: CheckpointFetched, now: int) -> None:
        """A checkpoint instead of the common prefix, if it can be one; the chain will tell."""
        if self._reconciliation is None:
            return
        if self._reconciliation.adopt(fetched.checkpoint):
            self._rejoin.reset()
        elif self._rejoin.wanting:
            self._rejoin.refuse(now)
        self._reconcile(now)

    def on_repair(self, repair: Repair, now: int) -> None:
        """Something of the common prefix's continuation."""
        reconciliation = self._reconciliation
        if reconciliation is None:
            return
        before = reconciliation.progress
        reconciliation.offer(repair.item)
        if not self._install(now) and reconciliation.progress > before:
            self._silences = 0
            if moved_on(self._asked, reconciliation.wanted()):
                self._reconcile(now)

    def on_timer(self, now: int) -> None:
        """Ask again, for what follows the common prefix or for a ring."""
        if now < self._next_at <= now + self._retry_ns:
            return
        if self._reconciliation is not None:
            self._reconcile(now)
        elif self._receiver.ring is None:
            self._next_at = now + self._retry_ns
            self._receiver.ask_for_ring(now)

    def _install(self, now: int) -> bool:
        """Enter the ring once everything up to its cut is here."""
        reconciliation = self._reconciliation
        result = reconciliation.result() if reconciliation else None
        if reconciliation is None or result is None:
            return False
        self._reconciliation = None
        self._rejoin.reset()
        self._receiver.install(reconciliation.target, result.keep, result.suffix, now, result.checkpoint)
        if result.proof is not None:
            self._receiver.on_token(result.proof, now)
        return True

    def _reconcile(self, now: int) -> None:
        """Install, or ask whoever is asked at present: it may be on its way to the same ring."""
        reconciliation, receiver = self._reconciliation, self._receiver
        if reconciliation is None or self._install(now):
            return
        self._next_at = now + self._retry_ns
        if reconciliation.lost and not self._rejoin.active:
            self._rejoin.want(now)
        if self._rejoin.active:
            givers = (*receiver.givers(), *reconciliation.target.holders)
            wish = self._rejoin.due(tuple(dict.fromkeys(givers)), reconciliation.above, now)
            if wish is not None:
                receiver.out.append(wish)
            return
        if self._silences == receiver.timing.retries_max:
            receiver.turn_to_another(now)
            self._silences = 0
        self._silences += 1
        receiver.ask(receiver.support.asked(now), self._request(reconciliation))

    def _request(self, reconciliation: Reconciliation) -> Nack | RangeRequest:
        stripe, site, ballot = self._receiver.settings.stripe, self._receiver.site, reconciliation.target.ballot
        self._asked = reconciliation.wanted()
        match self._asked:
            case WantedTokens(kind, first, last):
                return RangeRequest(stripe, ballot, site, kind, first, last)
            case WantedMessages(number, labels):
                return Nack(stripe, ballot, site, number, has_token=True, parts_held=0, listed=holdings(labels))
