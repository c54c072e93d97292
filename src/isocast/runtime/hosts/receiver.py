"""A trusted receiver as a process: R_P or R_S with its log, its journal, its line and its door.

A release is opened, journalled and then sent to the line, in this order: what a customer heard is always in the
journal, and what the journal has after a crash is never released again.
"""

from __future__ import annotations

from asyncio import Task
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from isocast.hierarchy.edge import MessagesReleased, SendLine
from isocast.hierarchy.line_sender import LineSender
from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.nodes.secondary_receiver import SecondaryReceiver
from isocast.ring.effects import (
    CheckpointWanted,
    Collect,
    EntryCompleted,
    FairnessFaulted,
    LogReplaced,
    ReadJournal,
    Record,
    Release,
    RingInstalled,
    RingSuspected,
)
from isocast.ring.inputs import JournalRead, TimerFired
from isocast.ring.ledger import Checkpoint
from isocast.ring.schedule import Schedule
from isocast.ring.settings import StartPolicy
from isocast.ring.storage import SiteState
from isocast.runtime.disk.journal import Journal, released_block
from isocast.runtime.disk.journal_damage import set_aside_end
from isocast.runtime.disk.site_secret import site_secret
from isocast.runtime.disk.site_store import SiteStore, open_site_store
from isocast.runtime.hosts.archive_door import ArchiveDoor
from isocast.runtime.hosts.context import Context
from isocast.runtime.hosts.edge_process import edge_process
from isocast.runtime.hosts.group_report import GroupReport, group_plan
from isocast.runtime.hosts.line_speaking import LineSpeaking
from isocast.runtime.hosts.plan_operations import offer_plan_operations
from isocast.runtime.hosts.rejoining import CheckpointFetcher
from isocast.runtime.hosts.ring_operations import RingOperations
from isocast.runtime.hosts.ring_report import RingReport
from isocast.runtime.market.founding import begun, is_new, joins
from isocast.runtime.market.model import NodeRole
from isocast.runtime.net.channels import NodeKeys
from isocast.runtime.net.clock import ClockStatus
from isocast.runtime.watch.counters import NodeGauges, gauges_from
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.ids import Label
from isocast.terms.instants import NEVER
from isocast.terms.timing import Gate
from isocast.wire.limits import EVENT_BYTES
from isocast.wire.packets import Data, Suspicion

__all__ = ["ReceiverHost"]

_TIMER_FIRED = TimerFired()
_ASKING_TO_COME_IN = (Suspicion.LOST, Suspicion.OUTSIDE)
"""What a site says of itself when it starts: nothing is wrong with anybody."""


def _because(loss: str) -> str:
    return f" ({loss})" if loss else ""


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
        self.report = RingReport(context)
        with ExitStack() as opened:
            self._open(opened)
            self._closing = opened.pop_all()
        self._token_at = 0
        self._collectable = 0
        self._refilling: Task[None] | None = None
        self.groups = GroupReport(context)
        self._performers = {
            Release: self._release,
            EntryCompleted: self._completed,
            ReadJournal: self._read_journal,
            CheckpointWanted: self._checkpoint_wanted,
            Collect: self._collect,
            RingSuspected: self._suspected,
            FairnessFaulted: self._faulted,
            **self.groups.performers,
            **self.report.performers,
            **self.speaking.performers,
        }

    def _open(self, opened: ExitStack) -> None:
        """Everything, or nothing: the next attempt must not meet the locks of this one."""
        context, plan = self._context, self._context.plan
        past = context.directory / "journal"
        self.journal = Journal.open(past, self._stripe, plan.node, context.journal_settings())
        opened.callback(self.journal.close)
        self.store = self._open_store()
        opened.callback(self.store.close)
        self._restore_released(self.store.state)
        self.line = LineSender(plan.node, self._stripe, context.heartbeat_ns, self.journal.position.next_sequence)
        self._channels = context.channels(plan.node, NodeKeys(context.keys.core_ring(), context.keys.edge_ring()))
        opened.callback(self._channels.close)
        self.machine = self._machine(self.store.state)
        self.door = ArchiveDoor(context, past, self._checkpoint)
        self.speaking = LineSpeaking(context, self._channels, forgot=self.store.forgot)
        self.driver = context.driver(self.speaking.accompany(self.machine), self, self._channels)
        self.fetcher = CheckpointFetcher(context, self.journal, self.driver.feed)
        self.driver.clock_judged = self._clock_judged
        if isinstance(self.machine, PrimaryReceiver):
            RingOperations(context, self.machine, self.driver, self.report.outcomes, self.report.left_out)
            offer_plan_operations(context, self.machine, self.driver)
        self.edge = edge_process(context, self.machine.receiver)
        self.driver.after_step = self._after_step

    # From the disk ------------------------------------------------------------------------------

    def _open_store(self) -> SiteStore:
        context = self._context
        # Who joins a market that runs knows no U, and so can found nothing: it takes a checkpoint over.
        universe = () if joins(context.directory) else context.market.universe
        return open_site_store(
            context.directory / "log",
            context.store_identity(),
            lambda: SiteState(Checkpoint(universe=universe)),
            context.store_settings(),
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
        groups = group_plan(market)
        if plan.role is NodeRole.PRIMARY_RECEIVER:
            return PrimaryReceiver(plan.node, settings, secret, state, forgot=self.store.forgot, groups=groups)
        return SecondaryReceiver(plan.node, settings, groups=groups, state=state, secret=secret)

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
                self._counters.reformations += record.ring is not None
                self.line.next_sequence = max(self.line.next_sequence, self.journal.position.next_sequence)

    def perform(self, effect: object, now: int) -> None:
        """Do one effect of a receiver."""
        performer = self._performers.get(type(effect))
        if performer is not None:
            performer(effect, now)  # type: ignore[operator]

    def next_deadline(self) -> int:
        """The line's next heartbeat."""
        if self._is_striped:
            self._tell_passed(self._clock.now())
        return self.line.next_deadline() if self._context.plan.line else NEVER

    def wake(self, now: int) -> None:
        """A heartbeat is due: it says which token is here, so that customers see the ring turn."""
        receiver = self.machine.receiver
        self.line.hold(receiver.accepted, receiver.held)
        self._tell_passed(now)
        self._send_line(self.line.step(_TIMER_FIRED, now))

    def _tell_passed(self, now: int) -> None:
        """With several stripes, which token went out whole last: whoever hears them all waits for it."""
        releaser = self.machine.receiver.releaser
        if self._is_striped and releaser.passed and releaser.next_sequence == self.line.next_sequence:
            self.line.passed(releaser.passed, now)

    # Effects ------------------------------------------------------------------------------------

    def _release(self, effect: Release, _: int) -> None:
        known = self.fetcher.filled - effect.first_sequence
        if known >= len(effect.messages) > 0:
            # It came into the journal from elsewhere while this site was behind: customers have it from others.
            return
        if known > 0:
            first, rest = effect.first_sequence + known, effect.messages[known:]
            effect = replace(effect, first_sequence=first, messages=rest)
        self.edge.releasing(effect.entry.token.token_number)
        now = self._clock.now()
        payloads = self._opened(effect.messages)
        bound_ns = self._clock.status.bound_ns or 0
        self.journal.append(released_block(effect, now, bound_ns, payloads))
        if self._context.plan.line:
            self._send_line(self.line.step(MessagesReleased(effect, tuple(payloads)), now))
        self._counters.released(
            token_number=effect.entry.token.token_number,
            first_sequence=effect.first_sequence,
            messages=len(payloads),
            events=sum(map(len, payloads)) // EVENT_BYTES,
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

    def _opened(self, messages: Sequence[Data]) -> list[bytes]:
        """The payloads in the clear: from here on they are public."""
        if self._opener is None:
            return [message.payload for message in messages]
        stripe, opener = self._stripe, self._opener
        payloads: list[bytes] = []
        for message in messages:
            try:
                payloads.append(opener.open(stripe, Label(message.sender, message.number), message.payload))
            except RemoteProtocolError as reason:
                # Its source sealed it wrongly; every site finds the same, so the place stays, with nothing in it.
                payloads.append(b"")
                self._counters.unopened_payloads += 1
                self._context.alarm("unopened", str(reason), "look at the source: its key file is not this market's")
        return payloads

    def _send_line(self, effects: tuple[SendLine, ...]) -> None:
        for effect in effects:
            self._channels.to_line(effect.packets)

    def _completed(self, effect: EntryCompleted, now: int) -> None:
        self._token_at = now
        self.edge.completed(effect.entry.token)
        if effect.entry.token.sender == self._context.plan.node:
            self._counters.tokens_sent += 1
            ring = self.machine.receiver.ring
            if ring is not None and effect.entry.token.token_number == ring.first_token:
                self._context.log.info("first token of a ring", epoch=str(ring.ballot), token=ring.first_token)
        else:
            self._counters.tokens_accepted += 1

    def _read_journal(self, effect: ReadJournal, _: int) -> None:
        entries = self.store.read(effect.first, effect.last)
        read = JournalRead(effect.to, entries, effect.first, self.store.first)
        self._context.loop.call_soon(self.driver.feed, read)

    def _checkpoint_wanted(self, effect: CheckpointWanted, _: int) -> None:
        if not self.fetcher.busy:
            self._context.log.info("what it lacks is gone at others: wants a checkpoint", above=effect.above)
            self.fetcher.want(effect)

    def _checkpoint(self) -> Checkpoint | None:
        """For another receiver: the log at a token that is stable, released and in this journal."""
        floor = self.machine.receiver.ledger.floor
        usable = not self.store.forgot and floor.universe and self.machine.receiver.ring is not None
        return floor if usable else None

    def _collect(self, effect: Collect, _: int) -> None:
        self._collectable = effect.token_number

    def _after_step(self, now: int) -> None:
        """What was released is on its way. What the log forgets now the journal has, even when the power fails."""
        if self._collectable:
            self.journal.sync()
            self.store.collected(self._collectable)
            self._collectable = 0
        self.edge.passed(now)

    def _suspected(self, effect: RingSuspected, _: int) -> None:
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

    def _faulted(self, _: FairnessFaulted, __: int) -> None:
        self._counters.fairness_faults += 1

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
        self._counters.journal_bytes = self.journal.counters.bytes
        self._counters.store_bytes = self.store.counters.bytes
        self.store.check()
        self.journal.check()
        self.journal.sync()
        self.journal.prune(now)
        self.speaking.tick(now)
        self.report.tick(self.machine.receiver.ledger.universe, now)

    def gauges(self) -> NodeGauges:
        """The machine's state, and what only the host knows."""
        snapshot = self.machine.snapshot()
        gauges = gauges_from(snapshot)
        self.groups.fill(gauges, snapshot)
        self.edge.fill(gauges)
        self.speaking.fill(gauges)
        market, status = self._context.market, self._clock.status
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
        gauges.clock_source = status.bound_source.value
        gauges.clock_synchronised = status.kernel_synchronised
        gauges.clock_trusted = status.trusted
        gauges.clock_bound_ns = status.bound_ns
        gauges.clients = self.door.visitors
        return gauges

    async def stop(self) -> None:
        """Stop hearing, then close what is open; everything promised is on disk already."""
        self.driver.stop()
        self.fetcher.stop()
        if self._refilling is not None:
            self._refilling.cancel()
        await self.edge.stop()
        await self.door.close()
        self._closing.close()
