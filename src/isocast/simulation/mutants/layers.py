"""Mutants of what lies below the ring: secondary groups, the edge (§4.1, §4.2, §7.1) and narrow stripes (§4.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from isocast.hierarchy.archive import Archive, GiveRange, ServerEffect, ServerInput
from isocast.hierarchy.complete import Complete, Repairs
from isocast.hierarchy.customer import Customer, Newest
from isocast.hierarchy.forwarding import ForwardEffect, SecondarySource, SecondarySourceInput
from isocast.hierarchy.headship import GroupPlan, Headship, Orphans
from isocast.hierarchy.latest import LatestTable, News
from isocast.hierarchy.secondary_ring import SecondaryRing
from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.nodes.retransmit_server import RetransmitServer
from isocast.nodes.secondary_receiver import SecondaryReceiver
from isocast.nodes.stripe_sender import StripeSender
from isocast.ring.effects import Persist, SourceEffect
from isocast.ring.ledger import LogEntry
from isocast.ring.receiver import Receiver
from isocast.ring.settings import Schedule
from isocast.ring.source import PrimarySource, PrimarySourceInput
from isocast.simulation.mutants.ring import Mutant, switch_off
from isocast.striping.edge import EdgeStriper
from isocast.striping.edge_queue import EdgeQueue
from isocast.striping.engine import EngineState, StripeEngine, StripePacket
from isocast.striping.pacing import PacedSender
from isocast.striping.rates import RateGate
from isocast.striping.sequencer import Ask, StripeSequencer
from isocast.terms.ids import NodeId
from isocast.wire.packets import (
    NO_LIMIT,
    Packet,
    ReleasedPacket,
    short_digest_of,
)

__all__ = ["EDGE_MUTANTS", "LAYER_MUTANTS"]


# Mutants of what lies below the ring: secondary groups, their heads and orphans, each with one rule switched
# off.


LAYER_MUTANTS: list[Mutant] = []
_switch_off = partial(switch_off, LAYER_MUTANTS)


class _HastyRing(SecondaryRing):
    def infer(self, schedule: Schedule) -> int:
        floor = super().infer(schedule)
        return floor if floor == NO_LIMIT else max([floor, *self.tally.passed.values()])


class _HastyHead(PrimaryReceiver):
    group_class = _HastyRing


_switch_off("infer-the-newest", "a head that hears v knows of v-b+1, not of v", receiver=_HastyHead)


class _BoastingRing(SecondaryRing):
    def due(self, schedule: Schedule, now: int) -> int:
        return schedule.last_due(now - self._delay_ns)


class _BoastingSecondary(SecondaryReceiver):
    group_class = _BoastingRing


_switch_off(
    "pass-without-holding", "a secondary token passes only from a site that holds as much", secondary=_BoastingSecondary
)


class _SelfishHeadship(Headship):
    @property
    def floor(self) -> int:
        own = self.rings.get(self._receiver.site)
        return own.floor if own is not None else NO_LIMIT


class _SelfishHead(PrimaryReceiver):
    headship_class = _SelfishHeadship


_switch_off(
    "own-group-only", "a site reports the least of all groups that it heads, not its own", receiver=_SelfishHead
)


class _HeartlessOrphans(Orphans):
    def settle(self, others: int) -> None:
        super().settle(others)
        self.floor = NO_LIMIT


class _HeartlessHeadship(Headship):
    orphans_class = _HeartlessOrphans


class _HeartlessHead(PrimaryReceiver):
    headship_class = _HeartlessHeadship


_switch_off("orphans-forgotten", "memory waits for an orphan as for any member", receiver=_HeartlessHead)


class _FaithfulPlan(GroupPlan):
    def heads(self, ring: Sequence[NodeId]) -> dict[NodeId, NodeId]:  # noqa: ARG002
        return {group: group for group in self.groups}


_switch_off("heads-for-life", "a group whose head is off the ring gets another", groups=_FaithfulPlan)


class _GrudgingRing(SecondaryRing):
    def _enter(self, schedule: Schedule) -> None:
        stalled = dict(self.tally.stalled)
        super()._enter(schedule)
        self.tally.stalled.update(stalled)


class _GrudgingHeadship(Headship):
    def _assign(self) -> None:
        self.__dict__.setdefault("known", {}).update(self.rings)
        super()._assign()
        for group, ring in self.rings.items():
            ring.tally.stalled.update(self.__dict__["known"].get(group, ring).tally.stalled)


class _GrudgingHead(PrimaryReceiver):
    group_class = _GrudgingRing
    headship_class = _GrudgingHeadship


_switch_off(
    "given-up-for-good",
    "a head that missed an epoch counts everybody anew: another may have counted whom it gave up",
    receiver=_GrudgingHead,
)


class _ShortSightedReceiver(Receiver):
    def _append(self, entry: LogEntry) -> None:
        super()._append(entry)
        self.reports.floor = entry.token.secstable


class _ShortSightedHead(PrimaryReceiver):
    receiver_class = _ShortSightedReceiver


_switch_off(
    "one-group-for-all",
    "memory waits for the group that is furthest behind, not for that of the newest token",
    receiver=_ShortSightedHead,
)


# Rules of the edge: customers, archives, secondary sources and their parents (§4.1, §4.2, §7.1).


EDGE_MUTANTS: list[Mutant] = []
_at_the_edge = partial(switch_off, EDGE_MUTANTS)


def _customer(complete: type[Complete] = Complete, newest: type[Newest] = Newest) -> type[Customer]:
    return type("MutantCustomer", (Customer,), {"complete_class": complete, "newest_class": newest})


class _HastyComplete(Complete):
    def take(self, packets: Sequence[Packet], now: int, *, door: bool = False) -> None:
        super().take(packets, now, door=door)
        if self.held:
            run: list[ReleasedPacket] = []
            self._advance(self._drain(min(self.held), run, now), run, now)


_at_the_edge(
    "deliver-over-a-gap",
    "a complete customer delivers nothing before what precedes it",
    customer=_customer(_HastyComplete),
)


class _DoorlessRepairs(Repairs):
    def _go_on(self, following: int, overflown: int, now: int) -> None:  # noqa: ARG002
        self.reconsider(overflown)


class _DoorlessComplete(Complete):
    repairs_class = _DoorlessRepairs


_at_the_edge(
    "repair-asked-once",
    "what requests do not bring is fetched at doors, for ever",
    customer=_customer(_DoorlessComplete),
)


class _ForgetfulCustomer(Customer):
    def _begin(self, next_sequence: int) -> None:  # noqa: ARG002
        super()._begin(0)


_at_the_edge("position-forgotten", "a complete customer goes on where it stopped", customer=_ForgetfulCustomer)


class _CarelessTable(LatestTable):
    def apply(self, sequences: Sequence[int], payloads: Sequence[bytes]) -> News:
        self._sequences[:] = 0
        return super().apply(sequences, payloads)


class _CarelessNewest(Newest):
    table_class = _CarelessTable


_at_the_edge(
    "older-after-newer", "grade latest never gives an older event of a key after a newer one",
    customer=_customer(newest=_CarelessNewest),
)  # fmt: skip


class _WriteBehindArchive(RetransmitServer):
    unwritten: tuple[ServerEffect, ...] = ()

    def step(self, event: ServerInput, now: int) -> tuple[ServerEffect, ...]:
        effects = super().step(event, now)
        self.unwritten += tuple([effect for effect in effects if isinstance(effect, Archive)])
        others = tuple([effect for effect in effects if not isinstance(effect, Archive)])
        if len(self.unwritten) < _BLOCK:
            return others
        written, self.unwritten = self.unwritten, ()
        return (*written, *others)


_BLOCK = 4


_at_the_edge("archive-writes-behind", "an archive answers from what is on its disk alone", archive=_WriteBehindArchive)


class _FrozenArchive(RetransmitServer):
    def _give(self, customer: NodeId, packets: Sequence[ReleasedPacket]) -> None:
        super()._give(customer, packets)
        given = self._out[-1]
        if isinstance(given, GiveRange):
            self._out[-1] = replace(given, packets=given.packets[:1], newest=max(given.low_water, given.newest - 1))


_at_the_edge("archive-denies-the-newest", "an archive says truly how far its messages go", archive=_FrozenArchive)


class _VolatileForwarder(SecondarySource):
    def step(self, event: SecondarySourceInput, now: int) -> tuple[ForwardEffect, ...]:
        return tuple([effect for effect in super().step(event, now) if not isinstance(effect, Persist)])


_at_the_edge("outbox-in-memory", "what a secondary source accepted survives its restart", forwarder=_VolatileForwarder)


class _RenamingForwarder(SecondarySource):
    def _offer(self, now: int) -> None:
        before = self._offered
        super()._offer(now)
        offered = self._offered
        if offered is not None and offered is not before:
            batches = tuple([(short_digest_of(key, b"%d" % now), payload) for key, payload in offered.batches])
            self._out[-1] = self._offered = replace(offered, batches=batches)


_at_the_edge(
    "forwarded-anew", "a batch is offered to the parent under the same key each time", forwarder=_RenamingForwarder
)


class _KeylessSource(PrimarySource):
    def step(self, event: PrimarySourceInput, now: int) -> tuple[SourceEffect, ...]:
        self._keys.clear()
        return super().step(event, now)


_at_the_edge("parent-repeats", "a source takes a key once, whoever forwards it", source=_KeylessSource)


# Narrow stripes (§4.4) ---------------------------------------------------------------------------


class _ForgetfulSender(StripeSender):
    def is_archived(self, packet: StripePacket) -> bool:  # noqa: ARG002
        return False


_at_the_edge(
    "archived-is-sent-again", "a packet that was archived before a restart is not sent again",
    stripe_sender=_ForgetfulSender,
)  # fmt: skip


class _EagerGate(RateGate):
    def room_at(self, size: int, budget: int, now: int) -> int:  # noqa: ARG002
        return now


class _EagerPacer(PacedSender):
    gate_class = _EagerGate


class _EagerSender(StripeSender):
    pacer_class = _EagerPacer


_at_the_edge(
    "rate-by-schedule-alone", "a stripe's rate holds by what was really sent, in every life of its sender",
    stripe_sender=_EagerSender,
)  # fmt: skip


class _GreedyQueue(EdgeQueue):
    def _conflate(self) -> None:
        keep = min(len(self.events), 2)
        self.events, self.sequences = self.events[-keep:], self.sequences[-keep:]


class _GreedyStriper(EdgeStriper):
    queue_class = _GreedyQueue


class _GreedyEngine(StripeEngine):
    striper_class = _GreedyStriper


_at_the_edge(
    "conflates-anything", "an overfull stripe leaves out older prices, and nothing else", stripe_engine=_GreedyEngine
)


class _AnewEngine(StripeEngine):
    def restore(self, state: EngineState) -> None:
        super().restore(state)
        self._sessions = {stripe: (day, following, following) for stripe, (day, _, following) in self._sessions.items()}


_at_the_edge("numbers-begin-anew", "a sender goes on with the numbers of its snapshot", stripe_engine=_AnewEngine)


class _NeverAsks(StripeSequencer):
    def _poll(self, now: int) -> list[Ask]:
        if super()._poll(now):
            self._pass_over(now)
        return []


_at_the_edge("stripe-gap-given-up", "a customer who wants everything asks for what it lacks", sequencer=_NeverAsks)
