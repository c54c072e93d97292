"""A trusted receiver as a process: R_P or R_S with its log, its journal, its line and its door.

A release is opened, journalled and then sent to the line, in this order: what a customer heard is always in the
journal, and what the journal has after a crash is never released again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack

from isocast.hierarchy.edge import MessagesReleased, SendLine
from isocast.hierarchy.line_sender import LineSender
from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.nodes.secondary_receiver import SecondaryReceiver
from isocast.ring.effects import (
    Collect,
    EntryCompleted,
    FairnessFaulted,
    ReadJournal,
    Record,
    Release,
    RingInstalled,
    RingSuspected,
    SecondaryReturned,
    SecondaryStalled,
    SupportSilent,
)
from isocast.ring.inputs import JournalRead, TimerFired
from isocast.ring.ledger import Checkpoint
from isocast.ring.schedule import Schedule
from isocast.ring.storage import SiteState
from isocast.runtime.channels import NodeKeys
from isocast.runtime.clock import ClockStatus
from isocast.runtime.counters import NodeGauges, gauges_from
from isocast.runtime.founding import begun, is_new
from isocast.runtime.journal import Journal, released_block
from isocast.runtime.market import NodePlan, NodeRole
from isocast.runtime.roles.archive_door import ArchiveDoor
from isocast.runtime.roles.context import Context
from isocast.runtime.site_secret import site_secret
from isocast.runtime.site_store import SiteStore, open_site_store
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.ids import Label, NodeId
from isocast.terms.instants import NEVER
from isocast.wire.limits import EVENT_BYTES
from isocast.wire.packets import Data, Suspicion

__all__ = ["ReceiverHost"]

_TIMER_FIRED = TimerFired()
_ASKING_TO_COME_IN = (Suspicion.LOST, Suspicion.OUTSIDE)
"""What a site says of itself when it starts: nothing is wrong with anybody."""


class ReceiverHost:
    """What surrounds the machine of one receiver."""

    def __init__(self, context: Context) -> None:
        """Open disk and sockets; nothing is heard before `start`."""
        self._context = context
        self._stripe = context.stripe
        self._counters = context.counters
        self._clock = context.clock
        self._late_ns = context.market.timing.process_ns
        self._opener = context.keys.opener() if context.market.seal else None
        with ExitStack() as opened:
            self._open(opened)
            self._closing = opened.pop_all()
        self._token_at = 0
        self._performers = {
            Release: self._release,
            EntryCompleted: self._completed,
            ReadJournal: self._read_journal,
            Collect: self._collect,
            RingSuspected: self._suspected,
            FairnessFaulted: self._faulted,
            SecondaryStalled: self._stalled,
            SecondaryReturned: self._returned,
            SupportSilent: self._unanswered,
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
        self.door = ArchiveDoor(context, past)
        self.driver = context.driver(self.machine, self, self._channels)
        self.driver.clock_judged = self._clock_judged

    # From the disk ------------------------------------------------------------------------------

    def _open_store(self) -> SiteStore:
        context = self._context
        market = context.market
        return open_site_store(
            context.directory / "log",
            context.store_identity(),
            lambda: SiteState(Checkpoint(universe=market.universe)),
            context.store_settings(),
            fresh=is_new(context.directory),
            votes=context.plan.role is NodeRole.PRIMARY_RECEIVER,
            next_sequence=self.journal.position.next_sequence,
        )

    def _restore_released(self, state: SiteState) -> None:
        """The journal says what is out. What the log no longer has was released before it could go."""
        position = self.journal.position
        state.released, state.offset = position.released, position.offset
        if state.released < state.checkpoint.token_number:
            state.released, state.offset = state.checkpoint.token_number, 0

    def _machine(self, state: SiteState) -> PrimaryReceiver | SecondaryReceiver:
        context = self._context
        market, plan = context.market, context.plan
        settings = market.ring_settings(self._stripe)
        secret = site_secret(context.directory)
        children = _ids(market.children(plan.name))
        if plan.role is NodeRole.PRIMARY_RECEIVER:
            return PrimaryReceiver(plan.node, settings, secret, state, forgot=self.store.forgot, children=children)
        return SecondaryReceiver(
            plan.node,
            settings,
            parent=market.node(plan.parent).node,
            siblings=_ids(market.children(plan.parent)),
            backup=market.node(plan.backup).node if plan.backup else None,
            state=state,
            secret=secret,
            children=children,
        )

    # The driver's side --------------------------------------------------------------------------

    def persist(self, records: list[Record]) -> None:
        """Write to the log before anything is sent."""
        self.store.append_many(records)
        for record in records:
            if isinstance(record, RingInstalled):
                self._counters.reformations += 1

    def perform(self, effect: object, now: int) -> None:
        """Do one effect of a receiver."""
        performer = self._performers.get(type(effect))
        if performer is not None:
            performer(effect, now)  # type: ignore[operator]

    def next_deadline(self) -> int:
        """The line's next heartbeat."""
        return self.line.next_deadline() if self._context.plan.line else NEVER

    def wake(self, now: int) -> None:
        """A heartbeat is due."""
        self._send_line(self.line.step(_TIMER_FIRED, now))

    # Effects ------------------------------------------------------------------------------------

    def _release(self, effect: Release, _: int) -> None:
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
        if effect.entry.token.sender == self._context.plan.node:
            self._counters.tokens_sent += 1
        else:
            self._counters.tokens_accepted += 1

    def _read_journal(self, effect: ReadJournal, _: int) -> None:
        entries = self.store.read(effect.first, effect.last)
        self._context.loop.call_soon(self.driver.feed, JournalRead(effect.to, entries))

    def _collect(self, effect: Collect, _: int) -> None:
        self.store.collected(effect.token_number)

    def _suspected(self, effect: RingSuspected, _: int) -> None:
        self._counters.suspicions[effect.reason] += 1
        if effect.suspect == self._context.plan.node and effect.reason in _ASKING_TO_COME_IN:
            self._context.log.debug("asks to join a ring", reason=effect.reason.value)
            return
        suspect = self._context.market.name_of(effect.suspect)
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

    def _stalled(self, effect: SecondaryStalled, _: int) -> None:
        name = self._context.market.name_of(effect.member)
        self._context.alarm(
            f"stalled-{name}",
            f"{name} does not pass the secondary token: nobody waits for it any more",
            "look at that node; when it comes back it catches up from this one",
        )

    def _returned(self, effect: SecondaryReturned, _: int) -> None:
        self._context.log.info("secondary receiver is back", name=self._context.market.name_of(effect.member))

    def _unanswered(self, effect: SupportSilent, _: int) -> None:
        # Not an alarm: while a market starts, those above are often the last to come.
        name = self._context.market.name_of(effect.asked)
        self._context.log.info("silent, another is asked", name=name, token=effect.token_number)

    # Life ---------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the door and begin."""
        begun(self._context.directory)
        if self.journal.cut is not None:
            self._context.log.warning("journal cut back to its last whole block", cut=str(self.journal.cut))
        if self.store.forgot:
            self._context.alarm(
                "forgot",
                "this site's log was lost, and with it the promises that it made; it takes no part in any ring",
                "see the how-to 'operate': it comes back under a new number",
            )
        await self.door.open()
        self.driver.start()

    def tick(self, now: int) -> None:
        """Judge the clock, bring counts up to date, trim the past."""
        self.driver.judge_clock()
        self._channels.collect()
        self._counters.journal_bytes = self.journal.counters.bytes
        self._counters.store_bytes = self.store.counters.bytes
        self.journal.prune(now)

    def gauges(self) -> NodeGauges:
        """The machine's state, and what only the host knows."""
        gauges = gauges_from(self.machine.snapshot())
        market, status = self._context.market, self._clock.status
        ring = self.machine.receiver.ring
        if ring is not None:
            schedule = Schedule(ring, market.timing.token_period_ns)
            gauges.ring = tuple([market.name_of(site) for site in ring.ring])
            gauges.ring_first_token, gauges.ring_start_ns = ring.first_token, ring.start
            due = schedule.last_due(self._clock.now())
            gauges.owns_token = due >= ring.first_token and schedule.owner(due) == self._context.plan.node
        gauges.ring_configured = len(market.universe)
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
        await self.door.close()
        self._closing.close()


def _ids(plans: Iterable[NodePlan]) -> tuple[NodeId, ...]:
    return tuple([plan.node for plan in plans])
