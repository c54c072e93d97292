"""A secondary receiver, R_S (§4.1): follows the ring, takes part in its parent's group, and may head one of its own."""

from __future__ import annotations

from dataclasses import dataclass

from isocast.hierarchy.allegiance import Allegiance
from isocast.hierarchy.follower import Follower
from isocast.hierarchy.heads import GroupPlan
from isocast.hierarchy.secondary_recovery import Support
from isocast.hierarchy.secondary_ring import SecondaryRing, SecondaryRingSnapshot
from isocast.nodes.ring_following import RingFollowing
from isocast.ring.effects import Effect
from isocast.ring.inputs import CheckpointFetched, ClockJudged, JournalRead, PacketsArrived, TimerFired
from isocast.ring.receiver import ReceiverSnapshot
from isocast.ring.settings import RingSettings
from isocast.ring.storage import SiteState
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import Epoch, NodeId
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

__all__ = ["SecondaryReceiver", "SecondaryReceiverSnapshot"]


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
