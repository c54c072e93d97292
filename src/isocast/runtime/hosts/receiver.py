"""A trusted receiver as a process: R_P or R_S with log, journal, line, door, checkpoints, groups and operations.

A release is opened, journalled and then sent to the line, in this order: what a customer heard is always in the
journal, and what the journal has after a crash is never released again.
"""

from __future__ import annotations

from asyncio import Task
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never

from isocast.hierarchy.edge import MessagesReleased, SendLine
from isocast.hierarchy.headship import GroupPlan
from isocast.hierarchy.line_sender import LineSender
from isocast.nodes.primary_receiver import PrimaryReceiver, PrimaryReceiverInput, PrimaryReceiverSnapshot
from isocast.nodes.secondary_receiver import SecondaryReceiver, SecondaryReceiverInput, SecondaryReceiverSnapshot
from isocast.reformation.scopes.line_keeper import KeepLines, LineHostEffect, LinesSettled
from isocast.ring.effects import (
    ChainHeard,
    Collect,
    ControlOutcome,
    ControlSettled,
    Diverged,
    EntryCompleted,
    FairnessFaulted,
    FetchCheckpoint,
    GroupLeft,
    HeadshipAssumed,
    HeadSwitched,
    LieProven,
    LogReplaced,
    OrderMissed,
    ReadJournal,
    ReceiverHostEffect,
    Record,
    Release,
    RingInstalled,
    RingSuspected,
    SecondaryHandedBack,
    SecondaryReturned,
    SecondaryStalled,
    SupportSilent,
    UniverseForced,
)
from isocast.ring.inputs import ControlRequested, DrainRequested, JournalRead, TimerFired
from isocast.ring.ledger import CHANGES, UNIVERSE_MIN, Checkpoint, LogEntry
from isocast.ring.receiver import Receiver
from isocast.ring.settings import Schedule, StartPolicy
from isocast.ring.storage import SiteState
from isocast.runtime.disk.journal import Journal, released_block
from isocast.runtime.disk.journal_verify import set_aside_end
from isocast.runtime.disk.journal_vouchers import Vouchers
from isocast.runtime.disk.site_store import SiteStore, open_site_store, site_secret
from isocast.runtime.edge.narrow.plans import PlanFolder
from isocast.runtime.hosts.checkpoint_fetcher import CheckpointFetcher
from isocast.runtime.hosts.convictions import convicted_before, note_conviction, note_missed_order
from isocast.runtime.hosts.driver import Driver
from isocast.runtime.hosts.edge_process import edge_process
from isocast.runtime.hosts.line_keys import line_prover, node_keys
from isocast.runtime.hosts.lines import LineSpeaking
from isocast.runtime.hosts.order_checks import insist_on_order, listed_at, order_in
from isocast.runtime.hosts.process import Context
from isocast.runtime.hosts.retransmit import ArchiveDoor
from isocast.runtime.hosts.roster_following import NoFollower, RosterFollower
from isocast.runtime.market.founding import LeftOutSites, begun, is_new, joins
from isocast.runtime.market.model import Market, NodeRole, Reveal
from isocast.runtime.net.clock import ClockStatus
from isocast.runtime.watch.counters import NodeGauges, gauges_from
from isocast.security.chains import ChainOpener
from isocast.security.sealing import Opened
from isocast.striping.plan import plan_entry
from isocast.terms.errors import LocalProtocolError, RemoteProtocolError
from isocast.terms.ids import NodeId, is_site
from isocast.terms.instants import NEVER, SECOND
from isocast.terms.timing import Gate
from isocast.wire.journal_proofs import BlockProof, MessageSeal
from isocast.wire.opaque import count_events
from isocast.wire.packets import NO_LIMIT, ControlEntry, ControlKind, Data, Suspicion, Token

if TYPE_CHECKING:
    from isocast.floor.rights import SourceRights
    from isocast.runtime.hosts.floor_site import FloorSite

__all__ = [
    "GroupReport",
    "ReceiverHost",
    "RingOperations",
    "RingReport",
    "group_plan",
]


# ---- The secondary groups of a market for the machines of its receivers, and what a person hears of their heads.


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


# ---- What an operator may ask of a primary receiver: to leave the ring for a while, to change U (protocol §5), and to
# announce a stripe plan (§4.4).
#
# Nothing here is obeyed at once. To drain is to ask for a ring without this site; to add or remove a site is to put a
# control entry into this site's next token, which a majority of the U before must certify. `ring` says how far it is.
# The operator signed what is asked for: the door only carries the order.
# Every receiver's narrow stripes follow a plan behind the token that announces it.


class RingOperations:
    """The operator's hands on one primary receiver."""

    def __init__(
        self,
        context: Context,
        machine: PrimaryReceiver,
        driver: Driver[PrimaryReceiverInput, Any],
        outcomes: MutableMapping[tuple[str, int], ControlOutcome],
        left_out: LeftOutSites,
    ) -> None:
        """Offers itself at the operator's door; `outcomes` say what became of requests."""
        self._left_out = left_out
        self._context = context
        self._outcomes = outcomes
        self._machine = machine
        self._driver = driver
        context.operations.update(
            {"ring": self._ring, "drain": self._drain, "add-site": self._add, "remove-site": self._remove}
        )
        if context.market.edge is not None:
            self._plans = PlanFolder(context.market.edge)
            context.operations["stripe-plan"] = self._announce

    async def _ring(self, _: Mapping[str, Any]) -> Mapping[str, object]:
        """How this site sees the ring, and U."""
        receiver, market = self._machine.receiver, self._context.market
        ring, book = receiver.ring, self._context.keys.book
        certified = receiver.certificates.certified
        return {
            "site": receiver.site,
            "epoch": str(receiver.accepted),
            "mode": receiver.mode.value,
            "ring": list(ring.ring) if ring is not None else [],
            "universe": list(receiver.ledger.universe),
            "settled": not receiver.ledger.uncertified_change(certified)[0],
            "uncertified": ring is not None and ring.uncertified,
            "leaving": self._machine.leaving,
            "held": receiver.held,
            "certified": certified,
            "order": receiver.ledger.head.order,
            "roster": 0 if book is None else book.entries[-1][1].serial,
            "left_out": list(self._left_out.sites),
            "knows": [plan.node for plan in market.nodes],
            "outcomes": {f"{kind} {site}": outcome.value for (kind, site), outcome in self._outcomes.items()},
        }

    async def _drain(self, request: Mapping[str, Any]) -> None:
        """Ask for a ring without this site, or take that back."""
        leaving = request.get("leaving", True)
        if not isinstance(leaving, bool):
            raise LocalProtocolError('"leaving" is true, or false to come back')
        if self._machine.leaving != leaving:
            self._context.log.info("leaves the ring" if leaving else "comes back to the ring", by="operator")
        self._driver.feed(DrainRequested(leaving))

    async def _add(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        """U plus one site."""
        site = self._site_in(request)
        if site in self._machine.receiver.ledger.universe:
            return {"already": True}
        if self._context.market.find(site) is None:
            raise LocalProtocolError(f"the market file that this node was started with has no site {site}: restart it")
        if site in self._left_out.sites:
            raise LocalProtocolError(f"site {site} was removed from U by force, and its number must not vote again")
        self._request(ControlEntry(ControlKind.ADD_SITE, site, b"", order_in(request)))
        return {"already": False}

    async def _remove(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        """U less one site."""
        site = self._site_in(request)
        universe = self._machine.receiver.ledger.universe
        if site not in universe:
            return {"already": True}
        if len(universe) <= UNIVERSE_MIN:
            raise LocalProtocolError(f"U has {len(universe)} sites, and a market needs {UNIVERSE_MIN}: add one first")
        self._request(ControlEntry(ControlKind.REMOVE_SITE, site, b"", order_in(request)))
        return {"already": False}

    def _site_in(self, request: Mapping[str, Any]) -> NodeId:
        site = request.get("site")
        if not isinstance(site, int) or isinstance(site, bool) or not is_site(site):
            raise LocalProtocolError('"site" is the id of a receiver')
        self._insist_on_tokens()
        return site

    def _insist_on_tokens(self) -> None:
        receiver = self._machine.receiver
        ring = receiver.ring
        if ring is None or receiver.site not in ring.ring:
            raise LocalProtocolError("this site is not on the ring and sends no token: ask another site")

    async def _announce(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        """A stripe plan in this site's next token."""
        try:
            digest = bytes.fromhex(request.get("digest", ""))
        except (TypeError, ValueError):
            digest = b""
        plan = self._plans.find(digest)
        if plan is None:
            raise LocalProtocolError('this node has no plan file with this "digest"')
        self._insist_on_tokens()
        entry = plan_entry(plan)._replace(order=order_in(request))
        self._insist_on_order(entry)
        self._context.log.warning(
            "a stripe plan is announced", by="operator", version=plan.version, digest=digest.hex()
        )
        self._driver.feed(ControlRequested(entry))
        return {"version": plan.version}

    def _request(self, entry: ControlEntry) -> None:
        self._insist_on_order(entry)
        kind, site = entry.kind, entry.subject
        name = self._context.market.name_of(site)
        self._context.log.warning("U changes", by="operator", kind=kind.name, site=site, name=name)
        self._outcomes.pop((kind.name, site), None)
        self._driver.feed(ControlRequested(entry))

    def _insist_on_order(self, entry: ControlEntry) -> None:
        receiver = self._machine.receiver
        last, following = receiver.ledger.head.order, receiver.held + 1
        insist_on_order(receiver.notary, entry, self._context.stripe, following, last, self._context.clock.now())


# ---- What a receiver tells people of changes that are more than a new ring: of U, by force, and two stories.


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


_TIMER_FIRED = TimerFired()
_ASKING_TO_COME_IN = (Suspicion.LOST, Suspicion.OUTSIDE)
"""What a site says of itself when it starts: nothing is wrong with anybody."""


def _because(loss: str) -> str:
    return f" ({loss})" if loss else ""


_HostEffect: TypeAlias = ReceiverHostEffect | LineHostEffect


class ReceiverHost:
    """What surrounds the machine of one receiver."""

    def __init__(self, context: Context) -> None:
        """Open disk and sockets; nothing is heard before `start`."""
        self._context = context
        self._stripe = context.stripe
        self._is_striped = len(context.market.all_stripes) > 1
        self._counters = context.counters
        self._clock = context.clock
        self._late_ns = context.market.timing.process_ns
        self._opener = context.keys.opener() if context.market.seal else None
        self._rights = context.market.source_rights
        self._chain: ChainOpener | None = None
        if context.market.reveal is Reveal.CHAIN:
            self._chain = context.keys.chain_opener(context.stripe)
        self._vouchers = Vouchers()
        self.report = RingReport(context)
        with ExitStack() as opened:
            self._open(opened)
            self._closing = opened.pop_all()
        self._token_at = 0
        self._replaced = Checkpoint()
        """Where the log began anew last: at a cut, or at another site's checkpoint."""
        self._collectable = 0
        self._refilling: Task[None] | None = None
        self.groups = GroupReport(context)

    def _open(self, opened: ExitStack) -> None:
        """Everything, or nothing: the next attempt must not meet the locks of this one."""
        context, plan = self._context, self._context.plan
        past = context.directory / "journal"
        self.journal = Journal.open(past, self._stripe, plan.node, context.market.journal)
        opened.callback(self.journal.close)
        self.store = self._open_store()
        opened.callback(self.store.close)
        self._restore_released(self.store.state)
        following, prover = self.journal.position.next_sequence, line_prover(context)
        self.line = LineSender(plan.node, self._stripe, context.heartbeat_ns, following, prover)
        self._channels = context.channels(plan.node, node_keys(context, core=True))
        opened.callback(self._channels.close)
        self.machine = self._machine(self.store.state)
        for site in convicted_before(context, self.machine.receiver.court):
            self.machine.receiver.convict(site)
        self.door = ArchiveDoor(context, past, self._checkpoint)
        self.speaking = LineSpeaking(context, self._channels, forgot=self.store.forgot)
        self.driver = self._drive(self.machine)
        self.fetcher = CheckpointFetcher(context, self.journal, self.driver.feed)
        self.driver.clock_judged = self._clock_judged
        self.edge = edge_process(context, self.machine.receiver)
        self.floors = self._floors(past)
        self.driver.after_step = self._after_step

    def _floors(self, past: Path) -> tuple[FloorSite, ...]:
        """Those of the market; a secondary receiver runs none."""
        if not isinstance(self.machine, PrimaryReceiver) or not self._context.market.floors:
            return ()
        # Most markets have no floor, and do without what it takes.
        from isocast.runtime.hosts.floor_site import FloorSite  # noqa: PLC0415

        floors = self._context.market.floors
        return tuple([FloorSite(self._context, table, past, self._opened_again) for table in floors])

    def _drive(self, machine: PrimaryReceiver | SecondaryReceiver) -> Driver[SecondaryReceiverInput, _HostEffect]:
        """The machine's driver; an operator's requests are for the machine of a primary receiver alone."""
        context = self._context
        if isinstance(machine, SecondaryReceiver):
            follower = self.speaking.accompany(machine, lambda: machine.receiver.ring)
            self.rosters = self._follow_rosters(machine.receiver, None)
            return context.driver(follower, self, self._channels)
        member = self.speaking.accompany(machine, lambda: machine.receiver.ring)
        driver: Driver[PrimaryReceiverInput, _HostEffect] = context.driver(member, self, self._channels)
        RingOperations(context, machine, driver, self.report.outcomes, self.report.left_out)
        self.rosters = self._follow_rosters(machine.receiver, driver.feed)
        return driver

    def _follow_rosters(self, receiver: Receiver, feed: Callable[[ControlRequested], None] | None) -> NoFollower:
        place = self._context.roster_place()
        return NoFollower() if place is None else RosterFollower(place, receiver, feed)

    # From the disk ------------------------------------------------------------------------------

    def _open_store(self) -> SiteStore:
        context = self._context
        # Who joins a market that runs knows no U, and so can found nothing: it takes a checkpoint over.
        universe = () if joins(context.directory) else context.market.universe
        return open_site_store(
            context.directory / "log",
            context.store_identity(),
            lambda: SiteState(Checkpoint(universe=universe)),
            context.market.log,
            fresh=is_new(context.directory),
            votes=context.plan.role is NodeRole.PRIMARY_RECEIVER,
            next_sequence=self.journal.position.next_sequence,
            released_token=self._released_token(),
        )

    def _released_token(self) -> int:
        """What the log must hold, since this site released it; 0 where releases may outlive a log that is cut back."""
        market, position = self._context.market, self.journal.position
        certified = market.timing.gate is Gate.MAJORITY and market.policy is StartPolicy.MAJORITY
        return position.token_number if certified and not position.fetched else 0

    def _restore_released(self, state: SiteState) -> None:
        """The journal says what is out. What the log no longer has was released before it could go."""
        position = self.journal.position
        state.released, state.offset = position.released, position.offset
        # Nothing that the journal has goes out again, whatever token of a log taken over has it.
        state.next_sequence = state.skip_below = max(position.next_sequence, state.checkpoint.next_sequence)
        if state.released < state.checkpoint.token_number:
            state.released, state.offset = state.checkpoint.token_number, 0

    def _machine(self, state: SiteState) -> PrimaryReceiver | SecondaryReceiver:
        context = self._context
        market, plan = context.market, context.plan
        settings = market.ring_settings(self._stripe)
        secret = site_secret(context.directory)
        groups, notary = group_plan(market), context.notary()
        fits = None if self._chain is None else self._chain.fits
        if plan.role is NodeRole.PRIMARY_RECEIVER:
            return PrimaryReceiver(
                plan.node, settings, secret, state, forgot=self.store.forgot, groups=groups, notary=notary, fits=fits
            )
        return SecondaryReceiver(
            plan.node, settings, groups=groups, state=state, secret=secret, notary=notary, fits=fits
        )

    # The driver's side --------------------------------------------------------------------------

    def persist(self, records: list[Record]) -> None:
        """Write to the log before anything is sent."""
        if any(isinstance(record, LogReplaced) for record in records):
            # The log will not have what it skips: the journal must.
            self.journal.sync()
        self.store.append_many(records)
        for record in records:
            if isinstance(record, RingInstalled):
                self._counters.reformations += 1
            elif isinstance(record, LogReplaced):
                self._replaced = record.checkpoint
                self._counters.reformations += record.ring is not None
                self.line.next_sequence = max(self.line.next_sequence, self.journal.position.next_sequence)

    def perform(self, effect: _HostEffect, now: int) -> None:
        """Do one effect of a receiver."""
        match effect:
            case Release():
                self._release(effect)
            case EntryCompleted():
                self._completed(effect, now)
            case Collect(token_number):
                self._collectable = token_number
            case ReadJournal():
                self._read_journal(effect)
            case FetchCheckpoint():
                self._checkpoint_wanted(effect)
            case RingSuspected():
                self._suspected(effect)
            case FairnessFaulted():
                self._counters.fairness_faults += 1
            case Diverged():
                self.report.tell(effect)
                self._cut_floors(effect)
            case ControlSettled() | UniverseForced():
                self.report.tell(effect)
            case LieProven(evidence):
                note_conviction(self._context, evidence)
            case ChainHeard(statement):
                self._vouchers.heard(statement)
            case OrderMissed(author, token_number):
                note_missed_order(self._context, author, token_number)
            case KeepLines() | LinesSettled():
                self.speaking.perform(effect, now)
            case _:
                self.groups.tell(effect)

    def next_deadline(self) -> int:
        """The line's next heartbeat."""
        if self._is_striped:
            self._tell_passed(self._clock.now())
        return self.line.next_deadline() if self._context.plan.line else NEVER

    def wake(self, now: int) -> None:
        """A heartbeat is due: it says which token is here, so that customers see the ring turn."""
        receiver = self.machine.receiver
        self.line.hold(receiver.accepted, receiver.announced)
        self._tell_passed(now)
        self._send_line(self.line.step(_TIMER_FIRED, now))

    def _tell_passed(self, now: int) -> None:
        """With several stripes, which token went out whole last: whoever hears them all waits for it."""
        releaser = self.machine.receiver.releaser
        if self._is_striped and releaser.passed and releaser.next_sequence == self.line.next_sequence:
            self.line.passed(releaser.passed, now)

    # Effects ------------------------------------------------------------------------------------

    def _release(self, effect: Release) -> None:
        known = self.fetcher.filled - effect.first_sequence
        if known >= len(effect.messages) > 0:
            # It came into the journal from elsewhere while this site was behind: customers have it from others.
            return
        if known > 0:
            first, rest = effect.first_sequence + known, effect.messages[known:]
            effect = replace(effect, first_sequence=first, messages=rest, links=effect.links[known:])
        self.edge.releasing(effect.entry.token.token_number)
        now = self._clock.now()
        opened = self._opened(effect.messages) if self._chain is None else self._disclosed(self._chain, effect)
        if self._rights is not None:
            opened = self._rightful(self._rights, effect.entry.token, effect.messages, opened)
        payloads = [one.payload for one in opened]
        bound_ns = self._clock.status.bound_ns or 0
        self.journal.append(released_block(effect, now, bound_ns, payloads, self._proof(effect, opened)))
        if self._context.plan.line:
            self._send_line(self.line.step(MessagesReleased(effect, tuple(payloads)), now))
        self._counters.released(
            token_number=effect.entry.token.token_number,
            first_sequence=effect.first_sequence,
            messages=len(payloads),
            events=count_events(payloads),
            due_ns=effect.due,
            now_ns=now,
            late_after_ns=self._late_ns,
        )
        if now - effect.due > self._late_ns:
            # Of a late release one wants to know whether it was held, or whether this process came late to it.
            self._context.log.warning(
                "released late",
                token=effect.entry.token.token_number,
                sequence=effect.first_sequence,
                late_ns=now - effect.due,
                behind_ns=self.driver.behind_ns,
            )

    def _proof(self, release: Release, opened: Sequence[Opened]) -> BlockProof | None:
        """What the journal keeps of a release for whoever wants to prove it."""
        seals = [] if self._opener is None else [MessageSeal(salt, key) for _, salt, key in opened]
        ledger = self.machine.receiver.ledger
        return self._vouchers.proof(release.entry.token, ledger.entries, ledger.universe, seals)

    def _opened(self, messages: Sequence[Data]) -> list[Opened]:
        """The payloads in the clear: from here on they are public, and so are their seal keys."""
        if self._opener is None:
            return [Opened(message.payload, b"", b"") for message in messages]
        stripe, opener = self._stripe, self._opener
        found: list[Opened] = []
        for message in messages:
            try:
                found.append(opener.open(stripe, message.label, message.payload))
            except RemoteProtocolError as reason:
                # Its source sealed it wrongly; every site finds the same, so the place stays, with nothing in it.
                found.append(Opened(b"", b"", b""))
                self._counters.unopened_payloads += 1
                self._context.alarm("unopened", str(reason), "look at the source: its key file is not this market's")
        return found

    def _disclosed(self, chain: ChainOpener, release: Release) -> list[Opened]:
        """The payloads in the clear by the keys that their sources disclosed; nothing in the place of a void one."""
        found: list[Opened] = []
        for message, link in zip(release.messages, release.links, strict=True):
            try:
                found.append(chain.open(message.label, link, message.payload))
            except RemoteProtocolError as reason:
                found.append(Opened(b"", b"", b""))
                self._counters.void_messages += not link
                self._counters.unopened_payloads += bool(link)
                name = self._context.market.name_of(message.sender)
                advice = "look at that source: it was away, or slow, or keeps its keys back; have it publish this again"
                self._context.alarm(f"void-{name}", str(reason), advice)
        return found

    def _opened_again(self, entry: LogEntry, count: int) -> list[bytes]:
        """The first payloads of a token, for a floor: what went out here under their sequences was cut off."""
        if self._chain is not None:
            raise LocalProtocolError("the log was cut, and keys that sources disclosed are known of released tokens")
        messages = entry.messages[:count]
        opened = self._opened(messages)
        if self._rights is not None:
            opened = self._rightful(self._rights, entry.token, messages, opened)
        return [one.payload for one in opened]

    def _cut_floors(self, effect: Diverged) -> None:
        """What was released here is not in the ring's log: trades in it are void."""
        point = self._replaced
        for floor in self.floors:
            if effect.first_sequence < point.next_sequence:
                floor.strayed()
            else:
                floor.cut(point.token_number, point.next_sequence)

    def _rightful(
        self, rights: SourceRights, token: Token, messages: Sequence[Data], opened: Sequence[Opened]
    ) -> list[Opened]:
        """The same, with nothing in the place of what its source may not send; every site finds the same."""
        found: list[Opened] = []
        listed = listed_at(self._context.keys.book, token)
        for message, one in zip(messages, opened, strict=True):
            refusal = rights.refusal(message.sender, one.payload, listed)
            found.append(Opened(b"", b"", b"") if refusal else one)
            if refusal:
                self._counters.floor_messages_refused += 1
                name = self._context.market.name_of(message.sender)
                advice = "its own door should have refused it: look at that source, and at who holds its key"
                self._context.alarm(f"floor-refused-{name}", f"{name} may not send {refusal}: it is void", advice)
        return found

    def _send_line(self, effects: tuple[SendLine, ...]) -> None:
        for effect in effects:
            self._channels.to_line((*effect.proofs, *effect.packets))

    def _completed(self, effect: EntryCompleted, now: int) -> None:
        self._token_at = now
        self._vouchers.completed(effect.entry.token, self.machine.receiver.ledger.universe)
        self.edge.completed(effect.entry.token)
        self.rosters.completed(effect.entry.token)
        ring = self.machine.receiver.ring
        for floor in self.floors:
            floor.completed(effect.entry, len(ring.ring) if ring is not None else 1)
        if effect.entry.token.sender == self._context.plan.node:
            self._counters.tokens_sent += 1
            if ring is not None and effect.entry.token.token_number == ring.first_token:
                self._context.log.info("first token of a ring", epoch=str(ring.ballot), token=ring.first_token)
        else:
            self._counters.tokens_accepted += 1

    def _read_journal(self, effect: ReadJournal) -> None:
        entries = self.store.read(effect.first, effect.last)
        read = JournalRead(effect.to, entries, effect.first, self.store.first)
        self._context.loop.call_soon(self.driver.feed, read)

    def _checkpoint_wanted(self, effect: FetchCheckpoint) -> None:
        if not self.fetcher.busy:
            self._context.log.info(
                "other sites no longer hold what this site lacks: fetches a checkpoint", above=effect.above
            )
            self.fetcher.want(effect)

    def _checkpoint(self) -> Checkpoint | None:
        """For another receiver: the log at a token that is stable, released and in this journal."""
        floor = self.machine.receiver.ledger.floor
        usable = not self.store.forgot and floor.universe and self.machine.receiver.ring is not None
        return floor if usable else None

    def _after_step(self, now: int) -> None:
        """What was released is on its way. What the log forgets now the journal has, even when the power fails."""
        if self._collectable:
            self.journal.sync()
            self.store.collected(self._collectable)
            self._collectable = 0
        self.edge.passed(now)
        self.rosters.passed()
        for floor in self.floors:
            floor.settle(self.machine.receiver)

    def _suspected(self, effect: RingSuspected) -> None:
        self._counters.suspicions[effect.reason] += 1
        if effect.suspect == self._context.plan.node and effect.reason in _ASKING_TO_COME_IN:
            self._context.log.debug("asks to join a ring", reason=effect.reason.value)
            return
        suspect = self._context.market.name_of(effect.suspect)
        if effect.reason is Suspicion.LEAVING:
            self._context.log.info("asks for a ring without a site that leaves", site=suspect)
            return
        self._context.log.info("suspects", suspect=suspect, reason=effect.reason.value, token=effect.token_number)
        if not self._token_at:
            # The ring of before this start is over, as it must be: suspicion is how a new one is asked for.
            return
        self._context.alarm(
            f"suspect-{effect.reason}-{suspect}",
            f"{suspect} is suspected ({effect.reason}) at token {effect.token_number}",
            "look at that node; the ring re-forms without it if it does not answer",
        )

    def _clock_judged(self, status: ClockStatus) -> None:
        if status.trusted:
            self._context.log.info("clock is within its bound again; releases go on", detail=status.detail)
        else:
            self._context.alarm("clock", status.detail, "releases have stopped until the clock is right")

    # Life ---------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the door and begin."""
        begun(self._context.directory)
        if self.journal.cut is not None:
            self._context.log.warning("journal cut back to its last whole block", cut=str(self.journal.cut))
        if self.store.forgot:
            self._context.alarm(
                "forgot",
                f"this site's log was lost, and with it the promises that it made{_because(self.store.loss)};"
                " it takes no part in any ring",
                "see the how-to 'operate': it comes back under a new number",
            )
        elif self.store.loss:
            self._context.alarm(
                "log-short",
                f"a part of this site's log is missing: {self.store.loss}",
                "it promised nothing and asks its parent for the rest; find out who, or which disk, cut the file",
            )
        await self.door.open()
        self.edge.start()
        for floor in self.floors:
            floor.start()
        until = max(self.store.refill, set_aside_end(self.journal.directory))
        if until > self.journal.position.next_sequence and not self.store.forgot:
            self._refilling = self._context.loop.create_task(self._refill(until))
        else:
            self.driver.start()

    async def _refill(self, until: int) -> None:
        """The journal was cut back, or lost, and the log is whole: nothing is released before it is filled again."""
        first = self.journal.position.next_sequence
        self._context.alarm(
            "journal-cut-back",
            f"the journal ends before sequence {first}, and this site had released everything before {until}",
            "it is being filled from what was set aside and from other archives; nothing is released here meanwhile",
        )
        try:
            await self.fetcher.fill(until)
        except Exception as reason:  # noqa: BLE001 (whatever it is, the process ends in order, with the reason)
            if self.driver.failed is not None:
                self.driver.failed(reason)
            return
        self.line.next_sequence = max(self.line.next_sequence, self.journal.position.next_sequence)
        self.driver.start()

    def tick(self, now: int) -> None:
        """Judge the clock, bring counts up to date, trim the past."""
        self.driver.judge_clock()
        self._channels.collect()
        self._counters.store_bytes = self.store.counters.bytes
        self.store.check()
        self._context.maintain_journal(self.journal, now)
        self.speaking.tick(now)
        self.report.tick(self.machine.receiver.ledger.universe, now)
        for floor in self.floors:
            floor.tick()

    def gauges(self) -> NodeGauges:
        """The machine's state, and what only the host knows."""
        snapshot = self.machine.snapshot()
        gauges = gauges_from(snapshot)
        self.groups.fill(gauges, snapshot)
        self.edge.fill(gauges)
        self.speaking.fill(gauges)
        market = self._context.market
        ring = self.machine.receiver.ring
        if ring is not None:
            schedule = Schedule(ring, market.timing.token_period_ns)
            gauges.ring = tuple([market.name_of(site) for site in ring.ring])
            gauges.ring_first_token, gauges.ring_start_ns = ring.first_token, ring.start
            due = schedule.last_due(self._clock.now())
            gauges.owns_token = due >= ring.first_token and schedule.owner(due) == self._context.plan.node
            gauges.uncertified = ring.uncertified
        universe = self.machine.receiver.ledger.universe
        gauges.universe = tuple([market.name_of(site) for site in universe])
        gauges.ring_configured = len(universe)
        if isinstance(self.machine, PrimaryReceiver):
            gauges.leaving = self.machine.leaving
        gauges.token_age_ns = self._clock.now() - self._token_at if self._token_at else None
        gauges.next_sequence = self.journal.position.next_sequence
        gauges.read_clock(self._clock.status)
        self.door.fill(gauges)
        return gauges

    async def stop(self) -> None:
        """Stop hearing, then close what is open; everything promised is on disk already."""
        self.driver.stop()
        self.fetcher.stop()
        if self._refilling is not None:
            self._refilling.cancel()
        await self.edge.stop()
        for floor in self.floors:
            await floor.stop()
        await self.door.close()
        self._closing.close()
