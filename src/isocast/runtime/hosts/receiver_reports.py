"""What a receiver tells people: of the groups that it heads, and of changes that are more than a new ring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, assert_never

from isocast.nodes.primary_receiver import PrimaryReceiverSnapshot
from isocast.nodes.secondary_receiver import SecondaryReceiverSnapshot
from isocast.ring.effects import (
    ControlOutcome,
    ControlSettled,
    Diverged,
    GroupLeft,
    HeadshipAssumed,
    HeadSwitched,
    SecondaryHandedBack,
    SecondaryReturned,
    SecondaryStalled,
    SupportSilent,
    UniverseForced,
)
from isocast.ring.ledger import CHANGES
from isocast.runtime.hosts.process import Context
from isocast.runtime.market.founding import LeftOutSites
from isocast.runtime.watch.counters import NodeGauges
from isocast.terms.ids import NodeId
from isocast.terms.instants import NEVER, SECOND
from isocast.wire.packets import NO_LIMIT

__all__ = ["GroupReport", "RingReport"]


_GroupEffect: TypeAlias = (
    SecondaryStalled
    | SecondaryReturned
    | SecondaryHandedBack
    | SupportSilent
    | HeadshipAssumed
    | GroupLeft
    | HeadSwitched
)


class GroupReport:
    """Log lines, alarms, counts and gauges of one receiver's place among the layers."""

    def __init__(self, context: Context) -> None:
        """Heads nothing yet."""
        self._context = context
        self._own = context.plan.node
        self._adopted: dict[NodeId, None] = {}

    def tell(self, effect: _GroupEffect) -> None:
        """Report one effect."""
        match effect:
            case SecondaryStalled():
                self._stalled(effect)
            case SecondaryReturned():
                self._returned(effect)
            case SecondaryHandedBack():
                self._handed_back(effect)
            case SupportSilent():
                self._unanswered(effect)
            case HeadshipAssumed():
                self._headed(effect)
            case GroupLeft():
                self._left(effect)
            case HeadSwitched():
                self._head_changed(effect)
            case _:
                assert_never(effect)

    def _name(self, node: NodeId) -> str:
        return self._context.market.name_of(node)

    # Members ------------------------------------------------------------------------------------

    def _stalled(self, effect: SecondaryStalled) -> None:
        name = self._name(effect.member)
        self._context.alarm(
            f"stalled-{name}",
            f"{name} does not pass the secondary token: the ring no longer waits for it",
            "look at that node; when it comes back it catches up from this one",
        )

    def _returned(self, effect: SecondaryReturned) -> None:
        self._context.log.info(
            "secondary receiver counts", name=self._name(effect.member), group=self._name(effect.group)
        )

    def _handed_back(self, effect: SecondaryHandedBack) -> None:
        name, head = self._name(effect.member), self._name(effect.group)
        self._context.log.info("secondary receiver has its head again", name=name, head=head)

    def _unanswered(self, effect: SupportSilent) -> None:
        # Not an alarm: while a market starts, those above are often the last to come.
        self._context.log.info("silent, another is asked", name=self._name(effect.asked), token=effect.token_number)

    # Heads --------------------------------------------------------------------------------------

    def _headed(self, effect: HeadshipAssumed) -> None:
        if effect.group == self._own or effect.group in self._adopted:
            return
        self._adopted[effect.group] = None
        self._context.counters.head_changes += 1
        self._context.log.warning("heads another's group", group=self._name(effect.group), epoch=str(effect.epoch))

    def _left(self, effect: GroupLeft) -> None:
        self._adopted.pop(effect.group, None)
        self._context.counters.head_changes += 1
        group, head = self._name(effect.group), self._name(effect.head)
        self._context.log.info("hands a group over", group=group, head=head, epoch=str(effect.epoch))

    def _head_changed(self, effect: HeadSwitched) -> None:
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


_ANSWER_NS = 5 * SECOND
"""A market that runs answers sooner: tokens come every period, and checkpoints take a second."""


class RingReport:
    """Logs, alarms and counts; and what became of an operator's requests."""

    def __init__(self, context: Context) -> None:
        """Nothing has happened yet."""
        self._context = context
        self.outcomes: dict[tuple[str, int], ControlOutcome] = {}
        """By kind and subject: what became of the newest request."""
        self.left_out = LeftOutSites(context.directory)
        self._alone_since = NEVER
        self._told_alone = False

    def tick(self, universe: Sequence[NodeId], now: int) -> None:
        """Who joins a market that does not run waits for ever: say so, once, and not before it could have answered."""
        self._alone_since = NEVER if universe else min(self._alone_since, now)
        if now - self._alone_since > _ANSWER_NS and not self._told_alone:
            self._told_alone = True
            self._context.alarm(
                "join-waits",
                "this site waits to join: no other receiver has answered with its log",
                "start the market's other nodes; a market that has never run begins with --new, not with --join",
            )

    def tell(self, effect: ControlSettled | UniverseForced | Diverged) -> None:
        """Report one effect."""
        match effect:
            case ControlSettled():
                self._settled(effect)
            case UniverseForced():
                self._forced(effect)
            case Diverged():
                self._diverged(effect)
            case _:
                assert_never(effect)

    def _settled(self, effect: ControlSettled) -> None:
        entry = effect.entry
        is_site = entry.kind in CHANGES
        name = self._context.market.name_of(entry.subject) if is_site else str(entry.subject)
        self.outcomes[entry.kind.name, entry.subject] = effect.outcome
        self._context.log.info("an operator's entry", kind=entry.kind.name, name=name, outcome=effect.outcome.value)

    def _forced(self, effect: UniverseForced) -> None:
        self.left_out.note(effect.left_out)
        names = ", ".join([self._context.market.name_of(site) for site in effect.universe])
        self._context.alarm(
            "forced",
            f"U is {names} by an operator's word alone, from token {effect.token_number} on",
            "a node that was left out must never run again under its number",
        )

    def _diverged(self, effect: Diverged) -> None:
        self._context.counters.divergences += 1
        self._context.counters.sequences_diverged += effect.next_sequence - effect.first_sequence
        self._context.alarm(
            "diverged",
            f"sequences {effect.first_sequence} to {effect.next_sequence - 1} went out here, and the ring of epoch"
            f" {effect.epoch} has others: customers may have received two different sequences",
            'compare the journals; the policy "majority" cannot lead here',
        )
