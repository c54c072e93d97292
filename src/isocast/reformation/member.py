"""A member's part in a reformation: promise, join, reconcile, install (protocol §5).

1. INVITE b > prom: promise b on disk, seal, and JOIN every τ_r until the ring of b, or a higher ballot, comes.
2. NEWRING b ≥ prom, b > e_acc: promise b, find the longest common prefix with the cut by the chained digest,
   fetch what follows it from the holders, and install everything in one record. A place on a ring that cannot begin
   when it says is refused.
3. Until then every JOIN reports the old (e_acc, h): half a reconciliation is worth nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from isocast.reformation.reconciliation import CutFetch, Reconciled, Reconciliation, RingSite
from isocast.reformation.votes import is_voted
from isocast.ring.effects import Multicast, OrderMissed, ReceiverEffect, RingSuspected, Unicast
from isocast.ring.inputs import CheckpointFetched
from isocast.terms.ids import Epoch, NodeId, is_site
from isocast.terms.instants import NEVER
from isocast.wire.packets import Invite, Join, NewRing, RangeReply, Refuse, Repair, Suspicion
from isocast.wire.signing import SignedKind

__all__ = ["Member", "MemberSnapshot"]

FAR_START = 8
"""Reformations ahead from which a ring's start is refused: an honest server is at most one ahead."""
FETCH_PATIENCE = 8
"""How much longer than for a range a site waits for a checkpoint before it complains: a journal comes with it."""


@dataclass(frozen=True, slots=True)
class MemberSnapshot:
    """A member's state for checkers and console."""

    joining: Epoch | None
    reconciling: Epoch | None


class Member:
    """Votes for its site, and tells the receiver when to seal and what to install."""

    reconciliation_class = Reconciliation

    def __init__(self, receiver: RingSite, *, forgot: bool = False) -> None:
        """`forgot`: the disk was lost, so promises may be forgotten: this site must never vote again."""
        self.forgot = forgot
        self._receiver = receiver
        self._timing = receiver.settings.timing
        self._stripe = receiver.settings.stripe
        self._heard: dict[NodeId, int] = {}
        self._joining: Epoch | None = None
        self._joined_at = -NEVER
        """When this site first voted for that ballot."""
        self._silences = 0
        self._repeated = False
        self._invited = 0
        self._refused_at: dict[NodeId, int] = {}
        self._next_at = 0
        self._fetch = CutFetch(receiver.site, receiver.settings, self.reconciliation_class, receiver.notary)
        self._asked_turn = 0
        self._complained_at = -NEVER
        self._refused: Epoch | None = None
        """The newest ring that this site knew better than: to hear of it again does not make it a voter."""
        if receiver.ring is None or receiver.promised > receiver.accepted:
            self._joining = receiver.promised if receiver.promised > receiver.accepted else None

    def next_deadline(self) -> int:
        """When to JOIN again, to ask holders again, or to look for a ring."""
        return NEVER if self._settled else self._next_at

    @property
    def _settled(self) -> bool:
        receiver = self._receiver
        return self.forgot or (receiver.ring is not None and receiver.promised == receiver.accepted)

    def snapshot(self) -> MemberSnapshot:
        """The state, for checkers and console."""
        return MemberSnapshot(self._joining, self._fetch.target)

    def heard(self, site: NodeId, now: int) -> None:
        """A packet came from this site: JOIN says so, and broken pairs end up on different sides of no ring."""
        self._heard[site] = now

    def on_invite(self, invite: Invite, now: int) -> list[ReceiverEffect]:
        """Promise a higher ballot; refuse a lower one, and let a probe see how far we are."""
        receiver, ballot = self._receiver, invite.ballot
        if self.forgot or not self._is_servers(invite):
            return []
        if self.may_promise(ballot):
            receiver.seal(ballot)
            self._fetch.drop()
            return self._join(ballot, now)
        if ballot == receiver.promised > receiver.accepted:
            # An invitation goes out k_r+2 times; more are copies, and do not show that the server lives.
            self._invited += 1
            if self._invited > self._timing.retries_max + 1:
                return []
            self._silences = 0
            return [] if self.reconciling else self._join(ballot, now)
        refused_at = self._refused_at.get(invite.sender, -NEVER)
        if refused_at <= now < refused_at + self._timing.grace_ns // 2:
            return []
        self._refused_at[invite.sender] = now
        refuse = Refuse(self._stripe, receiver.accepted, receiver.site, ballot, receiver.promised, receiver.held)
        return [Unicast(invite.sender, refuse)]

    def _is_servers(self, invite: Invite) -> bool:
        """Whether the ballot's own server sent an invitation; where nothing is signed, every sender is believed."""
        notary = self._receiver.notary
        return not notary.verifies or (invite.sender == invite.ballot.server and notary.is_genuine(invite))

    def may_promise(self, ballot: Epoch) -> bool:
        """Promises only rise."""
        return ballot > self._receiver.promised

    def on_new_ring(self, ring: NewRing, now: int) -> list[ReceiverEffect]:
        """Work towards the ring of a ballot that we have not promised against."""
        receiver = self._receiver
        if self.forgot or ring.ballot < receiver.promised or ring.ballot <= receiver.accepted:
            return []
        if self._fetch.target is not None and self._fetch.target >= ring.ballot:
            return []
        missed = receiver.notary.refused.get(SignedKind.CONTROL, 0)
        if not self.is_voted(ring):
            without_order = receiver.notary.refused.get(SignedKind.CONTROL, 0) > missed
            return [OrderMissed(ring.sender, ring.first_token)] if without_order else []
        if ring.ballot > receiver.promised:
            receiver.seal(ring.ballot)
        if self._absurd(ring, now) or self._knows_better(ring):
            return self._refuse(ring, now)
        self._joining = None
        self._silences = 0
        self._fetch.begin(ring, receiver.ledger)
        return self._reconcile(now)

    def is_voted(self, ring: NewRing) -> bool:
        """Nothing is installed that cannot be verified."""
        receiver = self._receiver
        return is_voted(ring, receiver.notary, receiver.settings.policy, receiver.court.convicted)

    def _absurd(self, ring: NewRing, now: int) -> bool:
        """Whether a ring that needs this site begins before the site voted for it, or far ahead: a clock is wrong.

        A site off the ring follows it whenever it begins, and so does one that hears of an old ring.
        """
        if self._receiver.site not in ring.ring:
            return False
        voted = ring.ballot == self._joining and ring.start < min(self._joined_at, now)
        return voted or ring.start > now + FAR_START * self._timing.reformation_ns

    def _knows_better(self, ring: NewRing) -> bool:
        """Whether a ring without a majority of U began with less than this site holds, and without its vote."""
        if not ring.uncertified or ring.ballot == self._joining != self._refused:
            return False
        return (self._receiver.lineage, self._receiver.held) > (ring.cut_epoch, ring.cut_token)

    def _refuse(self, ring: NewRing, now: int) -> list[ReceiverEffect]:
        """Ask for another ballot instead.

        A ring that starts far in the future would stop the market until then, and one that started in the past has
        missed its tokens: its server's clock is wrong, or ours. One that was started without a majority, and with less
        than is known here, would lose what is: both must vote.
        """
        self._joining = self._refused = ring.ballot
        if self._complained_at <= now < self._complained_at + self._timing.retry_ns:
            return []
        self._complained_at = now
        return [RingSuspected(self._receiver.held, ring.ballot.server, Suspicion.STRANDED)]

    def on_repair(self, repair: Repair, now: int) -> list[ReceiverEffect]:
        """While reconciling, repairs belong to the common prefix's continuation."""
        if not self.reconciling:
            return []
        result = self._fetch.offer(repair.item)
        if result is not None:
            return self._install(result, now)
        if not self._fetch.progressed:
            return []
        self._silences = 0
        return self._reconcile(now) if self._fetch.moved_on else []

    def on_range_reply(self, reply: RangeReply, now: int) -> list[ReceiverEffect]:
        """A holder has let go what lies between this site's log and the cut: when all have, a checkpoint helps."""
        reconciliation = self._fetch.reconciliation
        if reconciliation is None or not self._fetch.gone(reply, self._holders(reconciliation.target), now):
            return []
        # An answer is no silence, though it does not help.
        self._silences = 0
        return self._reconcile(now) if self._fetch.rejoin.wanting else []

    def on_checkpoint(self, fetched: CheckpointFetched, now: int) -> list[ReceiverEffect]:
        """A checkpoint instead of the common prefix, if it can be one; the chain will tell."""
        if not self.reconciling or self.forgot:
            return []
        if self._fetch.adopt(fetched, now):
            self._silences = 0
        return self._reconcile(now)

    def _holders(self, ring: NewRing) -> list[NodeId]:
        return [site for site in ring.holders if site != self._receiver.site]

    @property
    def reconciling(self) -> bool:
        """Whether repairs are for us rather than for the receiver."""
        return self._fetch.target is not None

    def on_timer(self, now: int) -> list[ReceiverEffect]:
        """JOIN again, ask again, or look for a ring."""
        if self._next_at > now + self._timing.retry_ns:
            # Nothing waits longer than this: the clock was set back.
            self._next_at = now
            self._heard = dict.fromkeys(self._heard, now)
        if self._settled or now < self._next_at:
            return []
        if self.reconciling:
            return self._reconcile(now)
        if self._joining is not None:
            return self._join(self._joining, now)
        # No ring, no ballot: a site that just came up asks the servers.
        self._next_at = now + self._timing.retry_ns
        return [RingSuspected(self._receiver.held, self._receiver.site, Suspicion.LOST)]

    def _join(self, ballot: Epoch, now: int) -> list[ReceiverEffect]:
        effects: list[ReceiverEffect] = []
        if ballot != self._joining:
            self._joining, self._silences, self._repeated, self._invited = ballot, 0, False, 0
            self._joined_at = now
        elif self._silences == self._timing.retries_max:
            # The server of this ballot is silent: let another one start a higher ballot.
            effects.append(RingSuspected(self._receiver.held, ballot.server, Suspicion.SEALED))
            self._silences = 0
        # The first vote goes out twice, within the server's grace: a lost packet should not cost a healthy
        # site its place on the ring.
        again = self._silences == 0 and not self._repeated
        self._repeated = again
        self._silences += not again
        self._next_at = now + (self._timing.grace_ns // 2 if again else self._timing.retry_ns)
        effects.append(Multicast(self._receiver.notary.sign(self._vote(ballot, now))))
        return effects

    def _vote(self, ballot: Epoch, now: int) -> Join:
        said = self._receiver.testify(ballot, now)
        head = said.head
        since = now - self._timing.retries_max * self._timing.retry_ns
        # By a clock that was set back, nobody was heard in the future.
        self._heard = {site: min(at, now) for site, at in self._heard.items()}
        believed = [site for site in sorted(self._heard) if site not in said.distrusted]
        heard = tuple([site for site in believed if self._heard[site] >= since and is_site(site)])
        return Join(
            self._stripe,
            said.lineage,
            self._receiver.site,
            ballot,
            head.token_number,
            head.digest,
            head.instant,
            head.next_sequence,
            now,
            heard,
            said.commit,
            head.universe,
            said.next_numbers,
            said.leaving,
        )

    def _reconcile(self, now: int) -> list[ReceiverEffect]:
        """Install once everything up to the cut is here; else ask a holder, or for a checkpoint."""
        fetch, reconciliation = self._fetch, self._fetch.reconciliation
        if reconciliation is None:
            return []
        result = reconciliation.result()
        if result is not None:
            return self._install(result, now)
        self._next_at = now + self._timing.retry_ns
        self._silences += 1
        ring = reconciliation.target
        others = self._holders(ring)
        effects: list[ReceiverEffect] = []
        checkpoint = fetch.needs_checkpoint(reconciliation, now)
        patience = FETCH_PATIENCE if checkpoint else 1
        if self._silences > patience * self._timing.retries_max * max(len(others), 1):
            self._silences = 0
            effects.append(RingSuspected(self._receiver.held, ring.ballot.server, Suspicion.STRANDED))
        if checkpoint:
            # From a holder, or from whoever else is on the ring.
            givers = [giver for giver in dict.fromkeys((*ring.holders, *ring.ring)) if giver != self._receiver.site]
            effects.extend(fetch.wish(givers, reconciliation, now))
        elif others:
            self._asked_turn += 1
            effects.append(Unicast(others[self._asked_turn % len(others)], fetch.request(reconciliation)))
        return effects

    def _install(self, result: Reconciled, now: int) -> list[ReceiverEffect]:
        """Enter the ring, unless it begins with a lie."""
        fetch, reconciliation, receiver = self._fetch, self._fetch.reconciliation, self._receiver
        if reconciliation is None:
            return []
        ring = reconciliation.target
        if (receiver.notary.verifies and not reconciliation.agrees()) or self._lies(ring, result, now):
            fetch.drop()
            return self._refuse(ring, now)
        if result.checkpoint is not None:
            receiver.stray(ring, reconciliation.parted)
        fetch.install(ring, result, receiver, now)
        return []

    def _lies(self, ring: NewRing, result: Reconciled, now: int) -> bool:
        """Whether a new ring begins with what only a liar holds: a ballot without that one comes first.

        What somebody else holds as well, who could not know better, may have been released: there is no way back.
        """
        receiver = self._receiver
        liar = receiver.catch_liar(result.suffix)
        if liar is None:
            return False
        until = receiver.distrusted.get(liar)
        if any(holder != liar for holder in ring.holders) or (until is not None and until <= now):
            # Or there was time enough for a ring without the liar, and there is none.
            return False
        if until is None:
            receiver.distrust(liar, now)
        return True
