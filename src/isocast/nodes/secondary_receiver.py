"""A secondary receiver, R_S (§4.1): follows the ring from one to the next, takes part in its group, may head one."""

from __future__ import annotations

from dataclasses import dataclass

from isocast.hierarchy.follower import Allegiance, Follower, Support
from isocast.hierarchy.headship import GroupPlan
from isocast.hierarchy.secondary_ring import SecondaryRing, SecondaryRingSnapshot
from isocast.reformation.reconciliation import Reconciliation, WantedMessages, WantedTokens, lacking, moved_on
from isocast.ring.answers import holdings
from isocast.ring.effects import Effect
from isocast.ring.inputs import CheckpointFetched, ClockJudged, JournalRead, PacketsArrived, TimerFired
from isocast.ring.receiver import ReceiverSnapshot
from isocast.ring.rejoin import Rejoin
from isocast.ring.settings import RingSettings
from isocast.ring.storage import SiteState
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import Epoch, NodeId
from isocast.terms.instants import NEVER
from isocast.wire.packets import (
    NO_LIMIT,
    Data,
    Nack,
    NewRing,
    Packet,
    Pending,
    RangeReply,
    RangeRequest,
    Receipt,
    Repair,
    SecondaryToken,
    Token,
    TokenPart,
)

__all__ = ["RingFollowing", "SecondaryReceiver", "SecondaryReceiverSnapshot"]


# ---- How a secondary receiver gets from one ring to the next (protocol §5, §7): it obeys the cut as everybody does.
#
# It votes for nothing, so a NEWRING binds it at once: it takes no more of the old ring, finds the common prefix of its
# log with the cut by the chained digest, fetches what follows from its support, and installs all of it in one record.


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


@dataclass(frozen=True, slots=True)
class SecondaryReceiverSnapshot:
    """What it holds, whom it asks, and how its groups stand."""

    receiver: ReceiverSnapshot
    following: Epoch | None
    """The ring whose cut it is fetching."""
    asked: NodeId
    """Whom it asks at present: its head, unless that one is silent."""
    unanswered: int
    """How often somebody stayed silent."""
    head: NodeId
    """Whom it belongs to: the head of its group on this ring, or an adopter while that one is silent."""
    group: SecondaryRingSnapshot
    """In which it is a member."""
    below: SecondaryRingSnapshot | None
    """Its own, with three layers."""


class SecondaryReceiver:
    """Drives a follower, its way from ring to ring, and one or two secondary rings with the packets of one site."""

    receiver_class = Follower
    group_class = SecondaryRing

    def __init__(
        self,
        site: NodeId,
        settings: RingSettings,
        *,
        groups: GroupPlan,
        state: SiteState,
        secret: bytes,
    ) -> None:
        """Start, or restart, from what the disk says; `groups` are those of the whole market."""
        group, below, backup = groups.group_of(site), groups.groups.get(site), groups.backup_of(site)
        if group is None:
            raise LocalProtocolError(f"site {site} must be a member of a secondary group")
        support = Support(group.head, backup, settings.timing)
        family = (group.head, *group.members, *groups.askers_of(site), *([] if backup is None else [backup]))
        self.receiver = self.receiver_class(site, settings, secret, state, support, family)
        self.following = RingFollowing(self.receiver)
        self.below: SecondaryRing | None = None
        if below is not None:
            # Half of what its own head waits: a leaf that stalls is named before everybody above it is.
            self.below = self.group_class(self.receiver, site, (site, *below.members), settings.stall_tokens // 2)
        members = (group.head, *group.members)
        self.group = self.group_class(self.receiver, group.head, members, settings.stall_tokens, self.held_below)
        self.allegiance = Allegiance(self.receiver, group, groups, self.group)
        self._now = 0
        self._deadline = 0

    def held_below(self) -> int:
        """What everybody below this site holds; no limit where nobody is."""
        return self.below.floor if self.below is not None else NO_LIMIT

    def step(self, event: object, now: int) -> tuple[Effect, ...]:
        """Take one input at local time `now`."""
        receiver = self.receiver
        self._now = now
        match event:
            case PacketsArrived(packets):
                quiet = True
                on_data = receiver.on_data
                for packet in packets:
                    if type(packet) is Data:
                        on_data(packet, now)
                    else:
                        quiet = False
                        self._on_packet(packet, now)
                if quiet and not receiver.out:
                    return ()
            case TimerFired():
                self.following.on_timer(now)
            case JournalRead():
                receiver.on_journal(event)
            case CheckpointFetched() if self.following.target is not None:
                self.following.on_checkpoint(event, now)
            case CheckpointFetched():
                receiver.on_checkpoint(event, now)
            case ClockJudged(trusted):
                receiver.judge_clock(trusted=trusted)
            case _:
                pass
        effects = receiver.take(now)
        if self.below is not None:
            self.below.settle(now)
        self.group.settle(now)
        self.allegiance.settle()
        if receiver.out:
            effects += tuple(receiver.out)
            receiver.out.clear()
        self._deadline = min(
            receiver.next_deadline(),
            self.following.next_deadline(),
            self.group.next_deadline(),
            *([] if self.below is None else [self.below.next_deadline()]),
        )
        return effects

    def next_deadline(self) -> int:
        """When the site must be woken: at once after a start."""
        return self._deadline

    def snapshot(self) -> SecondaryReceiverSnapshot:
        """For whoever watches."""
        receiver = self.receiver
        return SecondaryReceiverSnapshot(
            receiver.snapshot(),
            self.following.target,
            receiver.support.asked(self._now),
            receiver.unanswered,
            self.allegiance.head,
            self.group.snapshot(),
            self.below.snapshot() if self.below is not None else None,
        )

    def _on_packet(self, packet: Packet, now: int) -> None:
        receiver, following = self.receiver, self.following
        if isinstance(packet, Repair | Pending | RangeReply | Nack):
            receiver.support.heard(packet.sender, now)
        match packet:
            case Token():
                receiver.on_token(packet, now)
            case Receipt():
                receiver.on_receipt(packet, now)
            case Repair() if following.target is not None:
                following.on_repair(packet, now)
            case Repair():
                receiver.on_repair(packet, now)
            case Nack():
                receiver.on_nack(packet, now)
            case TokenPart():
                receiver.on_part(packet, now)
            case RangeRequest():
                receiver.on_range_request(packet, now)
            case RangeReply() if following.target is not None:
                following.on_range_reply(packet, now)
            case RangeReply():
                receiver.on_range_reply(packet, now)
            case Pending():
                receiver.on_pending(packet, now)
            case NewRing():
                if packet.ballot > max(receiver.accepted, following.target or receiver.accepted):
                    # Whoever heads the group on that ring is asked for what lies before it.
                    self.allegiance.turn(packet.ring)
                following.on_new_ring(packet, now)
            case SecondaryToken():
                self._on_secondary_token(packet, now)
            case _:
                pass

    def _on_secondary_token(self, token: SecondaryToken, now: int) -> None:
        for ring in (self.group, self.below):
            if ring is not None and ring.group == token.group:
                ring.on_token(token, now)
