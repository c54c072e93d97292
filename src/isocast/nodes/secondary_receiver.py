"""A secondary receiver, R_S (§4.1): follows the ring from one to the next, takes part in its group, may head one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, assert_never

from isocast.hierarchy.follower import Allegiance, Follower, Support
from isocast.hierarchy.headship import GroupPlan
from isocast.hierarchy.secondary_ring import SecondaryRing, SecondaryRingSnapshot
from isocast.reformation.reconciliation import CutFetch, Reconciliation
from isocast.reformation.votes import is_voted
from isocast.ring.disclosures import Fits
from isocast.ring.effects import ReceiverEffect
from isocast.ring.inputs import CheckpointFetched, ClockJudged, DriverInput, JournalRead, PacketsArrived, TimerFired
from isocast.ring.notary import Notary
from isocast.ring.receiver import ReceiverSnapshot
from isocast.ring.settings import RingSettings
from isocast.ring.storage import SiteState
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import Epoch, NodeId
from isocast.terms.instants import NEVER
from isocast.wire.packets import (
    NO_LIMIT,
    Data,
    Disclose,
    Invite,
    Join,
    LineAck,
    LineAsk,
    Lines,
    Nack,
    NewRing,
    Packet,
    Pending,
    Proof,
    RangeReply,
    RangeRequest,
    Receipt,
    Refuse,
    ReleasedPacket,
    Repair,
    SecondaryToken,
    SourceChain,
    Standing,
    Suspect,
    Token,
    TokenPart,
)

__all__ = ["RingFollowing", "SecondaryReceiver", "SecondaryReceiverSnapshot"]


# How a secondary receiver gets from one ring to the next (protocol §5, §7): it obeys the cut as everybody does.
#
# It votes for nothing, so a NEWRING binds it at once: it takes no more of the old ring, finds the common prefix of its
# log with the cut by the chained digest, fetches what follows from its support, and installs all of it in one record.


class RingFollowing:
    """Brings a follower's log to the cut of each new ring. Effects leave through the follower."""

    reconciliation_class = Reconciliation

    def __init__(self, receiver: Follower) -> None:
        """On the ring that the disk knows, or in search of one."""
        self._receiver = receiver
        self._retry_ns = receiver.timing.secondary_retry_ns or receiver.timing.retry_ns
        self._fetch = CutFetch(receiver.site, receiver.settings, self.reconciliation_class, receiver.notary)
        self._silences = 0
        self._next_at = 0

    @property
    def target(self) -> Epoch | None:
        """The ring whose cut is being fetched; then repairs are for this machine."""
        return self._fetch.target

    def next_deadline(self) -> int:
        """When to ask again."""
        waits = self.target is not None or self._receiver.ring is None
        return self._next_at if waits else NEVER

    def on_new_ring(self, ring: NewRing, now: int) -> None:
        """Work towards the newest ring that is known."""
        receiver = self._receiver
        if ring.ballot <= max(receiver.accepted, self.target or receiver.accepted):
            return
        receiver.follow(ring.ballot)
        receiver.support.others = ring.holders
        self._fetch.begin(ring, receiver.ledger)
        self._silences = 0
        self._reconcile(now)

    def on_range_reply(self, reply: RangeReply, now: int) -> None:
        """The site that is asked no longer keeps what lies between this site's log and the cut."""
        if self._fetch.gone(reply, self._receiver.asked(), now) and self._fetch.rejoin.wanting:
            self._reconcile(now)

    def on_checkpoint(self, fetched: CheckpointFetched, now: int) -> None:
        """A checkpoint instead of the common prefix, if it can be one; the chain will tell."""
        if self.target is not None:
            self._fetch.adopt(fetched, now)
            self._reconcile(now)

    def on_repair(self, repair: Repair, now: int) -> None:
        """Something of the common prefix's continuation."""
        fetch, reconciliation = self._fetch, self._fetch.reconciliation
        if reconciliation is None:
            return
        result = fetch.offer(repair.item)
        if result is not None:
            fetch.install(reconciliation.target, result, self._receiver, now)
        elif fetch.progressed:
            self._silences = 0
            if fetch.moved_on:
                self._reconcile(now)

    def on_timer(self, now: int) -> None:
        """Ask again, for what follows the common prefix or for a ring."""
        if now < self._next_at <= now + self._retry_ns:
            return
        if self.target is not None:
            self._reconcile(now)
        elif self._receiver.ring is None:
            self._next_at = now + self._retry_ns
            self._receiver.ask_for_ring(now)

    def _reconcile(self, now: int) -> None:
        """Install the ring, or ask the present parent, which may be on its way to the same ring."""
        fetch, reconciliation, receiver = self._fetch, self._fetch.reconciliation, self._receiver
        if reconciliation is None:
            return
        result = reconciliation.result()
        if result is not None:
            fetch.install(reconciliation.target, result, receiver, now)
            return
        self._next_at = now + self._retry_ns
        if fetch.needs_checkpoint(reconciliation, now):
            givers = tuple(dict.fromkeys((*receiver.givers(), *reconciliation.target.holders)))
            receiver.emit(*fetch.wish(givers, reconciliation, now))
            return
        if self._silences == receiver.timing.retries_max:
            receiver.turn_to_another(now)
            self._silences = 0
        self._silences += 1
        receiver.ask(receiver.support.asked(now), fetch.request(reconciliation))


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


SecondaryReceiverInput: TypeAlias = DriverInput | JournalRead | CheckpointFetched


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
        notary: Notary | None = None,
        fits: Fits | None = None,
    ) -> None:
        """Start, or restart, from what the disk says; `groups` are those of the whole market.

        `fits` judges the keys that sources disclose, where they do.
        """
        group, below, backup = groups.group_of(site), groups.groups.get(site), groups.backup_of(site)
        if group is None:
            raise LocalProtocolError(f"site {site} must be a member of a secondary group")
        support = Support(group.head, backup, settings.timing)
        family = (group.head, *group.members, *groups.askers_of(site), *([] if backup is None else [backup]))
        self.receiver = self.receiver_class(site, settings, secret, state, support, family, notary, fits)
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

    def step(self, event: SecondaryReceiverInput, now: int) -> tuple[ReceiverEffect, ...]:
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
            case CheckpointFetched() if self.following.target is not None:
                self.following.on_checkpoint(event, now)
            case JournalRead() | CheckpointFetched() | ClockJudged():
                receiver.on_event(event, now)
            case _:
                assert_never(event)
        effects = receiver.take(now)
        if self.below is not None:
            self.below.settle(now)
        self.group.settle(now)
        self.allegiance.settle()
        effects += receiver.flush()
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
        """The state, for checkers and status pages."""
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
            case Repair() if following.target is not None:
                following.on_repair(packet, now)
            case RangeReply() if following.target is not None:
                following.on_range_reply(packet, now)
            case (
                Data()
                | Token()
                | TokenPart()
                | Receipt()
                | Repair()
                | Nack()
                | RangeRequest()
                | RangeReply()
                | Disclose()
            ):
                receiver.on_event(packet, now)
            case Pending():
                receiver.on_pending(packet, now)
            case SourceChain():
                receiver.on_chain(packet, now)
            case NewRing():
                self._on_new_ring(packet, now)
            case SecondaryToken():
                self._on_secondary_token(packet, now)
            case (
                Standing() | Suspect() | Invite() | Refuse() | Join()
                | ReleasedPacket() | Proof() | LineAsk() | LineAck() | Lines()
            ):  # fmt: skip
                pass
            case _:
                assert_never(packet)

    def _on_new_ring(self, ring: NewRing, now: int) -> None:
        """Follow a ring that is newer, and that a majority voted for."""
        receiver, following = self.receiver, self.following
        if ring.ballot <= max(receiver.accepted, following.target or receiver.accepted):
            return
        if not is_voted(ring, receiver.notary, receiver.settings.policy):
            return
        # The head of the group on that ring is asked for what lies before it.
        self.allegiance.turn(ring.ring)
        following.on_new_ring(ring, now)

    def _on_secondary_token(self, token: SecondaryToken, now: int) -> None:
        for ring in (self.group, self.below):
            if ring is not None and ring.group == token.group:
                ring.on_token(token, now)
