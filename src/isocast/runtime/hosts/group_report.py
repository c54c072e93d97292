"""The secondary groups of a market for the machines of its receivers, and what a person hears of their heads."""

from __future__ import annotations

from isocast.hierarchy.heads import GroupPlan
from isocast.nodes.primary_receiver import PrimaryReceiverSnapshot
from isocast.nodes.secondary_receiver import SecondaryReceiverSnapshot
from isocast.ring.effects import (
    GroupHeaded,
    GroupLeft,
    HeadChanged,
    SecondaryHandedBack,
    SecondaryReturned,
    SecondaryStalled,
    SupportSilent,
)
from isocast.runtime.hosts.context import Context
from isocast.runtime.market.model import Market
from isocast.runtime.watch.counters import NodeGauges
from isocast.terms.ids import NodeId
from isocast.wire.packets import NO_LIMIT

__all__ = ["GroupReport", "group_plan"]


def group_plan(market: Market) -> GroupPlan:
    """Who asks whom first and second, by the market's file; the distance is that of the places in it."""
    below = [plan for plan in market.receivers if plan.parent]
    parents = {plan.node: market.node(plan.parent).node for plan in below}
    backups = {plan.node: market.node(plan.backup).node for plan in below if plan.backup}

    def distance(group: NodeId, site: NodeId) -> int:
        here, there = market.find(group), market.find(site)
        # A site that came later than the file is nobody's neighbour.
        return market.delay_ns(here.name, there.name) if here is not None and there is not None else 1 << 62

    return GroupPlan.below(parents, backups, distance)


class GroupReport:
    """Log lines, alarms, counts and gauges of one receiver's place among the layers."""

    def __init__(self, context: Context) -> None:
        """Heads nothing yet."""
        self._context = context
        self._own = context.plan.node
        self._adopted: dict[NodeId, None] = {}
        self.performers = {
            SecondaryStalled: self._stalled,
            SecondaryReturned: self._returned,
            SecondaryHandedBack: self._handed_back,
            SupportSilent: self._unanswered,
            GroupHeaded: self._headed,
            GroupLeft: self._left,
            HeadChanged: self._head_changed,
        }

    def _name(self, node: NodeId) -> str:
        return self._context.market.name_of(node)

    # Members ------------------------------------------------------------------------------------

    def _stalled(self, effect: SecondaryStalled, _: int) -> None:
        name = self._name(effect.member)
        self._context.alarm(
            f"stalled-{name}",
            f"{name} does not pass the secondary token: nobody waits for it any more",
            "look at that node; when it comes back it catches up from this one",
        )

    def _returned(self, effect: SecondaryReturned, _: int) -> None:
        self._context.log.info(
            "secondary receiver counts", name=self._name(effect.member), group=self._name(effect.group)
        )

    def _handed_back(self, effect: SecondaryHandedBack, _: int) -> None:
        name, head = self._name(effect.member), self._name(effect.group)
        self._context.log.info("secondary receiver has its head again", name=name, head=head)

    def _unanswered(self, effect: SupportSilent, _: int) -> None:
        # Not an alarm: while a market starts, those above are often the last to come.
        self._context.log.info("silent, another is asked", name=self._name(effect.asked), token=effect.token_number)

    # Heads --------------------------------------------------------------------------------------

    def _headed(self, effect: GroupHeaded, _: int) -> None:
        if effect.group == self._own or effect.group in self._adopted:
            return
        self._adopted[effect.group] = None
        self._context.counters.head_changes += 1
        self._context.log.warning("heads another's group", group=self._name(effect.group), epoch=str(effect.epoch))

    def _left(self, effect: GroupLeft, _: int) -> None:
        self._adopted.pop(effect.group, None)
        self._context.counters.head_changes += 1
        group, head = self._name(effect.group), self._name(effect.head)
        self._context.log.info("hands a group over", group=group, head=head, epoch=str(effect.epoch))

    def _head_changed(self, effect: HeadChanged, _: int) -> None:
        self._context.counters.head_changes += 1
        group, head = self._name(effect.group), self._name(effect.head)
        if effect.silent:
            self._context.log.warning("its head is silent, another counts it", group=group, head=head)
        else:
            self._context.log.info("has another head", group=group, head=head)

    # For whoever watches ------------------------------------------------------------------------

    def fill(self, gauges: NodeGauges, snapshot: PrimaryReceiverSnapshot | SecondaryReceiverSnapshot) -> None:
        """Which groups a receiver heads, and who heads a secondary one."""
        if isinstance(snapshot, PrimaryReceiverSnapshot):
            headed = snapshot.groups
            gauges.adopted = tuple([self._name(member) for member, _ in snapshot.orphans])
        else:
            headed = () if snapshot.below is None else (snapshot.below,)
            gauges.head, gauges.head_configured = self._name(snapshot.head), self._name(snapshot.group.group)
        gauges.heads = tuple([self._name(group.group) for group in headed])
        known = [group.floor for group in headed if group.floor != NO_LIMIT]
        gauges.secondary_stable_token = min(known, default=None)
