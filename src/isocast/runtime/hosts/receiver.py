"""A trusted receiver as a process: R_P or R_S with log, journal, line, door, checkpoints, groups and operations.

A release is opened, journalled and then sent to the line, in this order: what a customer heard is always in the
journal, and what the journal has after a crash is never released again.
"""

from __future__ import annotations

from asyncio import Task
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from isocast.hierarchy.edge import MessagesReleased, SendLine
from isocast.hierarchy.headship import GroupPlan
from isocast.hierarchy.line_sender import LineSender
from isocast.nodes.primary_receiver import PrimaryReceiver, PrimaryReceiverInput
from isocast.nodes.secondary_receiver import SecondaryReceiver, SecondaryReceiverInput
from isocast.reformation.scopes.line_keeper import KeepLines, LineHostEffect, LinesSettled
from isocast.ring.effects import (
    ChainHeard,
    Collect,
    ControlSettled,
    Diverged,
    EntryCompleted,
    FairnessFaulted,
    FetchCheckpoint,
    LieProven,
    LogReplaced,
    OrderMissed,
    ReadJournal,
    ReceiverHostEffect,
    Record,
    Release,
    RingInstalled,
    RingSuspected,
    UniverseForced,
)
from isocast.ring.inputs import ControlRequested, JournalRead, TimerFired
from isocast.ring.ledger import Checkpoint, LogEntry
from isocast.ring.receiver import Receiver
from isocast.ring.settings import Schedule, StartPolicy
from isocast.ring.storage import SiteState
from isocast.runtime.disk.journal import Journal, ReleasedPosition, released_block
from isocast.runtime.disk.journal_verify import set_aside_end
from isocast.runtime.disk.journal_vouchers import Vouchers
from isocast.runtime.disk.site_store import SiteStore, open_site_store, site_secret
from isocast.runtime.hosts.checkpoint_fetcher import CheckpointFetcher
from isocast.runtime.hosts.convictions import convicted_before, note_conviction, note_missed_order
from isocast.runtime.hosts.driver import Driver
from isocast.runtime.hosts.edge_process import edge_process
from isocast.runtime.hosts.line_keys import line_prover, node_keys
from isocast.runtime.hosts.lines import LineSpeaking
from isocast.runtime.hosts.order_checks import listed_at
from isocast.runtime.hosts.process import Context
from isocast.runtime.hosts.receiver_reports import GroupReport, RingReport
from isocast.runtime.hosts.retransmit import ArchiveDoor
from isocast.runtime.hosts.ring_operations import RingOperations
from isocast.runtime.hosts.roster_following import NoFollower, RosterFollower
from isocast.runtime.market.founding import begun, is_new, joins
from isocast.runtime.market.model import Market, NodeRole, Reveal
from isocast.runtime.net.clock import ClockStatus
from isocast.runtime.watch.counters import NodeGauges, gauges_from
from isocast.security.chains import ChainOpener
from isocast.security.sealing import Opened, Opener
from isocast.terms.errors import LocalProtocolError, RemoteProtocolError, StoreError
from isocast.terms.ids import NodeId
from isocast.terms.instants import NEVER
from isocast.terms.timing import Gate
from isocast.wire.journal_proofs import BlockProof, MessageSeal
from isocast.wire.opaque import count_events
from isocast.wire.packets import Data, Suspicion, Token

if TYPE_CHECKING:
    from isocast.floor.rights import SourceRights
    from isocast.runtime.hosts.floor_site import FloorSite

__all__ = ["ReceiverHost", "group_plan"]


_TIMER_FIRED = TimerFired()
_ASKING_TO_COME_IN = (Suspicion.LOST, Suspicion.OUTSIDE)
"""What a site says of itself when it starts: nothing is wrong with anybody."""


def _because(loss: str) -> str:
    return f" ({loss})" if loss else ""


_HostEffect: TypeAlias = ReceiverHostEffect | LineHostEffect


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


def _is_cut_off(position: ReleasedPosition, state: SiteState) -> bool:
    """Whether a journal ends with a token that its site's log has not, but perhaps another of that number.

    A ring began behind what was released here, and nothing of its own is out yet: the number says nothing of its log.
    """
    entry = state.entries.get(position.token_number)
    if position.fetched or entry is None:
        is_over = state.ring is not None and position.epoch < state.ring.ballot
        return is_over and not position.fetched and position.token_number > state.held
    out = len(entry.messages) if position.released == position.token_number else position.offset
    token = entry.token
    return (token.instant, token.first_sequence + out) != (position.instant, position.next_sequence)


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
        self._was_cut = False
        """Whether, at the start, the journal ended with what the log had been cut off before."""
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
        keys = replace(node_keys(context, core=True), seals=self._chain or self._opener)
        self._channels = context.channels(plan.node, keys)
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

        sites = [FloorSite(self._context, table, past, self._opened_again) for table in self._context.market.floors]
        state, following = self.store.state, self.journal.position.next_sequence
        for site in sites:
            site.restore(state.entries.values(), state.checkpoint if self._was_cut else None, following)
        return tuple(sites)

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
            released_epoch=self.journal.position.epoch,
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
        self._was_cut = _is_cut_off(position, state)
        if state.released < state.checkpoint.token_number or self._was_cut:
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
        """With several stripes, tell which token went out whole last: listeners to all of them wait for it."""
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
        """What the journal keeps of a release as its proof."""
        seals = [] if self._opener is None else [MessageSeal(salt, key) for _, salt, key in opened]
        ledger = self.machine.receiver.ledger
        return self._vouchers.proof(release.entry.token, ledger.entries, ledger.universe, seals)

    def _opened(self, messages: Sequence[Data]) -> list[Opened]:
        """The payloads in the clear: from here on they are public, and so are their seal keys."""
        if self._opener is None:
            return [Opened(message.payload, b"", b"") for message in messages]
        return self._opener.open_all(self._stripe, messages, self._not_opened)

    def _not_opened(self, message: Data, reason: RemoteProtocolError) -> None:
        """Its source sealed it wrongly; every site finds the same, so the place stays, with nothing in it."""
        if self._opener is not None:
            self._insist_on_generation(self._opener, message)
        self._counters.unopened_payloads += 1
        self._context.alarm("unopened", str(reason), "look at the source: its key file is not this market's")

    def _insist_on_generation(self, opener: Opener | ChainOpener, message: Data) -> None:
        """A message that opens at other sites must not be released as nothing here: this site ends instead."""
        if opener.lacks(self._stripe, message.label, message.payload):
            name = self._context.market.name_of(message.sender)
            what = f"message {message.number} of {name} waits here, sealed with a core key that this site never had"
            rule = f"{what}: bring all rosters into the keys directory, or let it come back under a new number"
            raise StoreError(str(self._context.directory / "log"), rule)

    def _disclosed(self, chain: ChainOpener, release: Release) -> list[Opened]:
        """The payloads in the clear by the keys that their sources disclosed; nothing in the place of a void one."""
        found: list[Opened] = []
        for message, link in zip(release.messages, release.links, strict=True):
            try:
                found.append(chain.open(message.label, link, message.payload))
            except RemoteProtocolError as reason:
                self._insist_on_generation(chain, message)
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
