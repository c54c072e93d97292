"""A primary receiver, R_P (§4.1): the ring's receiver and the reformation's member in one site."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, assert_never

from isocast.hierarchy.headship import NO_GROUPS, GroupPlan, Headship
from isocast.hierarchy.secondary_ring import SecondaryRing, SecondaryRingSnapshot
from isocast.reformation.member import Member, MemberSnapshot
from isocast.ring.disclosures import Fits
from isocast.ring.effects import Multicast, ReceiverEffect, RingSuspected
from isocast.ring.inputs import (
    CheckpointFetched,
    ClockJudged,
    ControlRequested,
    DrainRequested,
    DriverInput,
    JournalRead,
    PacketsArrived,
    TimerFired,
)
from isocast.ring.notary import Notary
from isocast.ring.receiver import Receiver, ReceiverSnapshot
from isocast.ring.settings import RingSettings
from isocast.ring.storage import SiteState
from isocast.terms.ids import NodeId
from isocast.wire.packets import (
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

__all__ = ["PrimaryReceiver", "PrimaryReceiverSnapshot"]


@dataclass(frozen=True, slots=True)
class PrimaryReceiverSnapshot:
    """Both halves, and what is below."""

    receiver: ReceiverSnapshot
    member: MemberSnapshot
    groups: tuple[SecondaryRingSnapshot, ...] = ()
    """The secondary groups that it heads on this ring: its own, and those of sites that are off the ring."""
    orphans: tuple[tuple[NodeId, NodeId], ...] = ()
    """(member, group) of secondary receivers that count here because their head is silent."""


PrimaryReceiverInput: TypeAlias = DriverInput | JournalRead | CheckpointFetched | DrainRequested | ControlRequested


class PrimaryReceiver:
    """Drives a receiver and a member with the packets of one site."""

    receiver_class = Receiver
    member_class = Member
    group_class = SecondaryRing
    headship_class = Headship

    def __init__(
        self,
        site: NodeId,
        settings: RingSettings,
        secret: bytes,
        state: SiteState,
        *,
        forgot: bool = False,
        groups: GroupPlan = NO_GROUPS,
        notary: Notary | None = None,
        fits: Fits | None = None,
    ) -> None:
        """Start, or restart, from what the disk says; `forgot` says that the disk was lost.

        `groups` are those of the whole market: whose head is off the ring may be this site's to head. `fits` judges the
        keys that sources disclose, where they do.
        """
        self.receiver = self.receiver_class(site, settings, secret, state, notary, fits)
        self.member = self.member_class(self.receiver, forgot=forgot)
        self.headship: Headship | None = None
        if groups.groups:
            self.headship = self.headship_class(self.receiver, groups, settings.stall_tokens, self.group_class)
        self._stripe = settings.stripe
        self._deadline = 0

    def step(self, event: PrimaryReceiverInput, now: int) -> tuple[ReceiverEffect, ...]:
        """Take one input at local time `now`."""
        receiver = self.receiver
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
                receiver.emit(*self.member.on_timer(now))
            case CheckpointFetched() if self.member.reconciling:
                receiver.emit(*self.member.on_checkpoint(event, now))
            case JournalRead() | CheckpointFetched() | ClockJudged() | DrainRequested() | ControlRequested():
                receiver.on_event(event, now)
            case _:
                assert_never(event)
        headship = self.headship
        if headship is not None:
            # Before this site's token goes out, which reports what the groups are known to hold.
            headship.settle(now)
            receiver.reports.own = headship.floor
        effects = receiver.take(now)
        self._deadline = min(receiver.next_deadline(), self.member.next_deadline())
        if headship is not None:
            self._deadline = min(self._deadline, headship.next_deadline())
        return self._told(effects)

    @property
    def leaving(self) -> bool:
        """Whether an operator wants this site off the ring."""
        return self.receiver.membership.leaving

    def next_deadline(self) -> int:
        """When the site must be woken: at once after a start."""
        return self._deadline

    def snapshot(self) -> PrimaryReceiverSnapshot:
        """The state, for checkers and status pages."""
        headship = self.headship
        if headship is None:
            return PrimaryReceiverSnapshot(self.receiver.snapshot(), self.member.snapshot())
        orphans = tuple([(member, headship.orphans.groups[member]) for member in headship.orphans.counted])
        return PrimaryReceiverSnapshot(self.receiver.snapshot(), self.member.snapshot(), headship.snapshot(), orphans)

    def _on_packet(self, packet: Packet, now: int) -> None:
        receiver, member = self.receiver, self.member
        if packet.sender in receiver.ledger.universe or type(packet) is Join:
            # Votes name the members that are heard: secondary receivers would only fill them. Whoever votes may be of U
            # by now, though this site's log does not say so yet.
            member.heard(packet.sender, now)
        match packet:
            case Repair() if member.reconciling:
                receiver.emit(*member.on_repair(packet, now))
            case RangeReply() if member.reconciling:
                receiver.emit(*member.on_range_reply(packet, now))
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
            case Invite():
                receiver.emit(*member.on_invite(packet, now))
            case SourceChain():
                receiver.on_chain(packet, now)
            case NewRing():
                receiver.emit(*member.on_new_ring(packet, now))
            case SecondaryToken() if self.headship is not None:
                self.headship.on_token(packet, now)
            case (
                Pending() | Standing() | Suspect() | Refuse() | Join() | SecondaryToken() | ReleasedPacket() | Proof()
                | LineAsk() | LineAck() | Lines()
            ):  # fmt: skip
                pass
            case _:
                assert_never(packet)

    def _told(self, effects: tuple[ReceiverEffect, ...]) -> tuple[ReceiverEffect, ...]:
        """Each suspicion stays an effect, and is also sent to the reformation servers."""
        if not any(isinstance(effect, RingSuspected) for effect in effects):
            return effects
        told: list[ReceiverEffect] = []
        for effect in effects:
            told.append(effect)
            if isinstance(effect, RingSuspected):
                receiver = self.receiver
                packet = Suspect(
                    self._stripe,
                    receiver.accepted,
                    receiver.site,
                    effect.token_number,
                    effect.suspect,
                    effect.reason,
                    receiver.promised,
                )
                told.append(Multicast(packet))
        return tuple(told)
