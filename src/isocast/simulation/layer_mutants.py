"""Mutants of what lies below the ring: secondary groups, their heads and orphans, each with one rule switched off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from isocast.hierarchy.heads import GroupPlan
from isocast.hierarchy.headship import Headship, Orphans
from isocast.hierarchy.secondary_ring import SecondaryRing
from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.nodes.secondary_receiver import SecondaryReceiver
from isocast.ring.entries import LogEntry
from isocast.ring.receiver import Receiver
from isocast.ring.schedule import Schedule
from isocast.simulation.build import Build
from isocast.simulation.mutant import Mutant
from isocast.terms.ids import NodeId
from isocast.wire.packets import NO_LIMIT

__all__ = ["LAYER_MUTANTS"]

LAYER_MUTANTS: list[Mutant] = []


def _switch_off(name: str, rule: str, **build: Any) -> None:  # noqa: ANN401 (fields of Build)
    LAYER_MUTANTS.append(Mutant(name, rule, 0, Build(**build)))


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
        self._secstable = entry.token.secstable


class _ShortSightedHead(PrimaryReceiver):
    receiver_class = _ShortSightedReceiver


_switch_off(
    "one-group-for-all",
    "memory waits for the group that is furthest behind, not for that of the newest token",
    receiver=_ShortSightedHead,
)
