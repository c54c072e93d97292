"""One node as a process: from its market file, and what every role is given, to a clean end.

    the file → clock, keys, counters → the role with its disk and sockets → status pages → work → SIGTERM

Errors of the configuration come up before anything is opened. What a role cannot go on with (a full disk, a damaged
store, a mistake of ours) ends the process with a reason; whoever supervises it decides what follows.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from structlog.typing import FilteringBoundLogger

from isocast.ring.effects import DriverEffect
from isocast.ring.inputs import DriverInput, Machine
from isocast.ring.notary import Notary
from isocast.runtime.disk.store_marker import StoreIdentity
from isocast.runtime.hosts.driver import Driver, Host
from isocast.runtime.hosts.roster_following import RosterFollowing, RosterPlace
from isocast.runtime.market.key_files import BroughtKeys, MarketKeys, brought_core_keys, load_keys
from isocast.runtime.market.model import ClockSource, DelayModel, Market, NodePlan, NodeRole
from isocast.runtime.market.roster_files import KeysCounting, NewsReader, load_identity
from isocast.runtime.market.tls_files import read_status_token
from isocast.runtime.net.channels import Channels, NodeKeys
from isocast.runtime.net.clock import SystemClock, become_punctual
from isocast.runtime.net.door import CertificateRefusedError, Doorway, Visit, visit_node
from isocast.runtime.net.door_keys import core_door_key, door_hand, edge_door_key, listed_visitor, publish_door_key
from isocast.runtime.net.faults import FaultyChannels, allows_faults, fault_operations
from isocast.runtime.net.impairment import InboundImpairment
from isocast.runtime.net.kernel import forbid_dumps
from isocast.runtime.net.tls import ServerTls, server_tls
from isocast.runtime.operate import shutdown
from isocast.runtime.operate.operator_door import Operation, OperatorDoor
from isocast.runtime.operate.supervisor import end_with_supervisor
from isocast.runtime.watch.counters import NodeCounters, NodeGauges
from isocast.runtime.watch.http import StatusServer, monitor_pages
from isocast.runtime.watch.logs import get_log, is_watched, notify
from isocast.runtime.watch.measurements import Measurements, TokenEar
from isocast.runtime.watch.metrics import NodeIdentity
from isocast.runtime.watch.status import Monitor
from isocast.security.door_identities import DoorHand
from isocast.security.signing import IdentitySigner, RosterVerifier
from isocast.terms.errors import IsocastError, JournalFull, NodeFailedError, StoreFull, StoreGone
from isocast.terms.ids import NodeId
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.terms.quantities import counted

if TYPE_CHECKING:
    from isocast.runtime.disk.journal import Journal

__all__ = ["RESTART", "Context", "NodeProcess", "RoleHost", "run_node"]

Event = TypeVar("Event")
HostEffect = TypeVar("HostEffect")


# What every role is given: the market, its own place in it, its clock, its keys and who hears of trouble.


@dataclass(slots=True)
class Context:
    """One process's surroundings."""

    market: Market
    plan: NodePlan
    clock: SystemClock
    keys: MarketKeys
    counters: NodeCounters
    loop: AbstractEventLoop
    alarm: Callable[[str, str, str], None]
    """(code, what happened, what to do)."""

    log: FilteringBoundLogger
    operations: dict[str, Operation] = field(default_factory=dict)
    """What an operator may ask of this node; a role adds its own."""

    @property
    def heartbeat_ns(self) -> int:
        """Of a line: often enough to see its end within a retry."""
        return max(self.market.timing.retry_ns, 20 * MILLISECOND)

    @property
    def directory(self) -> Path:
        """Where this node keeps what must survive it."""
        return self.market.directory_of(self.plan.name)

    def store_identity(self) -> StoreIdentity:
        """Whose disk it is."""
        return StoreIdentity(self.market.name, self.plan.name, self.plan.node)

    def maintain_journal(self, journal: Journal, now: int) -> bool:
        """Check and sync the journal, apply retention and update the counters: whether segments were removed."""
        journal.check()
        journal.sync()
        pruned = journal.prune(now)
        self.counters.journal_bytes = journal.counters.bytes
        self.counters.journal_prune_failures = journal.counters.prune_failures
        return bool(pruned)

    def roster_place(self) -> RosterPlace | None:
        """Where this node follows rosters; None where nobody signs."""
        book = self.keys.book
        if book is None:
            return None
        return RosterPlace(
            self.market,
            book,
            self.log,
            self.alarm,
            self.operations,
            self.directory,
            take_key=self._take_keys,
            turn_core=self._turn_core,
        )

    def _take_keys(self) -> None:
        """Know what new rosters bring: another key of this node, other keys of the core, one after the other."""
        self._take_key()
        core, book = self.keys.core_keys, self.keys.book
        if core is None or book is None:
            return
        news: list[BroughtKeys] = []
        for serial in range(book.newest.serial, book.entries[-1][1].serial - 1, -1):
            roster = book.of_serial(serial)
            brought = None if roster is None else brought_core_keys(self.market, self.plan, roster)
            if brought is not None and brought.newest == core.newest:
                break
            news += () if brought is None else (brought,)
        for brought in reversed(news):
            if core.expect(brought.newest, brought.before):
                self.log.warning("hears another core key", key=brought.newest.fingerprint)

    def _turn_core(self) -> None:
        """A roster is in force: speak by the core key that it brought."""
        if self.keys.core_keys is not None:
            self.keys.core_keys.turn()

    def _take_key(self) -> None:
        """Sign with the key that follows this node's, once the newest roster lists it."""
        keys, book = self.keys, self.keys.book
        member = None if book is None else book.newest.member(self.plan.node)
        if keys.identity is None or member is None:
            return
        identity = load_identity(self.market, self.plan.origin, member.public)
        known = [keys.identity.public, *(follower.public for follower in keys.followers)]
        if identity.public == member.public and identity.public not in known:
            keys.followers.append(identity)
            self.log.warning("has another key", key=identity.fingerprint)

    def edge_door_key(self, visitor: str) -> bytes | None:
        """The key by which `edge/NAME` comes in for ranges: any node of the edge."""
        return edge_door_key(self.market, self.keys, visitor)

    def archive_door_key(self, visitor: str) -> bytes | None:
        """The key at a receiver's archive: `edge/NAME` comes for ranges, `core/NAME` for checkpoints."""
        return core_door_key(self.market, self.keys, visitor) or edge_door_key(self.market, self.keys, visitor)

    def publish_door_key(self, visitor: str) -> bytes | None:
        """The key by which `source/NAME` comes in to publish: this source's own floor, or a secondary source."""
        return publish_door_key(self.market, self.keys, visitor)

    @property
    def door_hand(self) -> DoorHand | None:
        """How this node proves itself at doors, its own and others'; None where the key is all that counts."""
        return door_hand(self.market, self.keys, self.counters.refused_signatures)

    @property
    def doorway(self) -> Doorway | None:
        """What this node's own doors ask besides the key; None where that is all that counts."""
        hand, plan = self.door_hand, self.plan
        if hand is None:
            return None
        return Doorway(hand, plan.node, plan.stripe, lambda visitor: listed_visitor(self.market, visitor))

    async def visit(self, there: NodePlan, name: str, key: bytes) -> Visit:
        """Come in at another node's door under a visitor's name; DoorError says why not, an alarm a bad certificate."""
        try:
            return await visit_node(self.market, there, name, key, self.door_hand, self.counters.refused_certificates)
        except CertificateRefusedError as reason:
            self.alarm(f"certificate-{there.name}", str(reason), "nothing was said there; the rest says what to do")
            raise

    @property
    def tls(self) -> ServerTls | None:
        """What this node's doors and pages present; None where they stay on this machine."""
        remedy = "isocast certs show tells what is here and what the roster pins"
        return server_tls(self.market, self.plan, lambda text: self.alarm("own-certificate", text, remedy))

    @property
    def stripe(self) -> int:
        """The stripe that this process serves."""
        return self.plan.stripes[0]

    def notary(self, counting: KeysCounting = KeysCounting.AT_TOKEN) -> Notary:
        """Signs as this node, and judges what others signed; a market without identities has none of it."""
        keys, market = self.keys, self.market
        book = keys.book
        if book is None:
            return Notary()
        name = book.newest.market
        signer = None if keys.identity is None else IdentitySigner(keys.identity, name, book, keys.followers)
        verifier = RosterVerifier(name, NewsReader(market, book, counting))
        receipts = market.signs_receipts(self.stripe)
        return Notary(signer, verifier, receipts=receipts, refused=self.counters.refused_signatures)

    def channels(self, own: NodeId, keys: NodeKeys) -> Channels:
        """This node's sockets, with a demo's delays and losses if the market has them."""
        impairment = self._impairment if self.market.impairment.enabled else None
        kind = FaultyChannels if allows_faults(self.market) else Channels
        return kind(self.market, self.plan, own, keys, self.counters, impairment)

    def driver(
        self,
        machine: Machine[Event | DriverInput, HostEffect | DriverEffect],
        host: Host[HostEffect],
        channels: Channels,
    ) -> Driver[Event, HostEffect]:
        """The machine's place in the event loop."""
        return Driver(machine, host, channels, self.clock, self.loop, self.counters)

    def _impairment(self, channel: str) -> InboundImpairment:
        settings, market, name = self.market.impairment, self.market, self.plan.name

        def delay_ns(sender: NodeId) -> int:
            there = market.find(sender)
            if there is None or settings.delay is DelayModel.NONE:
                return 0
            return market.delay_ns(there.name, name)

        return InboundImpairment(
            delay_ns, jitter_ns=settings.jitter_ns, loss=settings.loss, seed=settings.seed, place=f"{name}/{channel}"
        )


class RoleHost(Host[Any], Protocol):
    """A running role."""

    driver: Driver[Any, Any]

    async def start(self) -> None:
        """Open doors, and begin."""

    def tick(self, now: int) -> None:
        """Once a second: judge the clock, trim the past."""

    def gauges(self) -> NodeGauges:
        """The state, for checkers and status pages."""

    async def stop(self) -> None:
        """End in order: nothing that was promised is lost."""


RESTART = 75
"""The exit code of a node that an operator asked to start anew: its supervisor does so."""
_TICK_S = 1.0
_STOP_S = 60.0
"""From a signal to a forced end; supervisors are less patient."""
_LAST_WORD_S = 0.05
"""For the answer to an operator who asks a node to end."""
_EAGER_TICK_S = 0.05
"""Until the node is ready, so that no other site waits a second to hear of it."""


class NodeProcess:
    """A node that lives in this event loop; `isocast node` has one, tests may have several."""

    def __init__(self, market: Market, plan: NodePlan) -> None:
        """Nothing is opened yet."""
        self.market = market = market.of_stripe(plan.stripe)
        self.plan = plan
        self.counters = NodeCounters()
        self.host: RoleHost | None = None
        self.measurements: Measurements | None = None
        self.failure: BaseException | None = None
        self.restarting = False
        """Whether an operator wants it to end and begin anew."""
        self.stopping = asyncio.Event()
        self.each_second: Callable[[], None] = lambda: None
        self._log = get_log(node=plan.name, role=plan.role.value)
        self._opened = AsyncExitStack()
        identity = NodeIdentity(
            name=plan.name,
            role=plan.role,
            node_id=plan.node,
            stripe=plan.stripes[0],
            city=plan.place.name if plan.place else "",
        )
        patience_ns = 2 * len(market.universe) * market.timing.token_period_ns
        self.monitor = Monitor(identity, self.counters, self._gauges, patience_ns=max(patience_ns, SECOND))

    async def start(self) -> None:
        """Open everything and begin, or raise and leave nothing open."""
        async with AsyncExitStack() as opened:
            market, plan = self.market, self.plan
            clock = SystemClock(
                plan.clock_error_ns or market.clock.bound_ns or None,
                watch_kernel=market.clock.source is ClockSource.KERNEL,
                file=market.file,
            )
            loop = asyncio.get_running_loop()
            context = Context(market, plan, clock, load_keys(market, plan), self.counters, loop, self.alarm, self._log)
            place = context.roster_place()
            if place is not None:
                RosterFollowing(place)
            self.host = build_role(context)
            opened.push_async_callback(self.host.stop)
            self.host.driver.failed = self._failed
            await self.host.start()
            context.operations.update(status=self._tell_status, restart=self._restart)
            context.operations.update(fault_operations(market, self.host.driver))
            door = OperatorDoor(context.directory, context.operations)
            await door.open()
            opened.push_async_callback(door.close)
            if plan.http_port:
                tls = context.tls
                token = "" if tls is None else read_status_token(market)
                server = StatusServer(monitor_pages(self.monitor), self.counters, tls=tls, token=token)
                await server.start(plan.address, plan.http_port)
                opened.push_async_callback(server.stop)
            self._measure(opened, context)
            ticking = asyncio.create_task(self._tick(clock), name=f"tick {plan.name}")
            opened.push_async_callback(_cancelled, ticking)
            self._opened = opened.pop_all()
        self._log.info("started", address=self.plan.address, port=self.plan.port)

    def _measure(self, opened: AsyncExitStack, context: Context) -> None:
        """Write down what the network does, unless the market wants none of it."""
        keep_bytes = self.market.measurements.keep_bytes
        if keep_bytes and self.host is not None and context.directory.is_dir():
            ear = TokenEar() if self.plan.role.is_receiver else None
            self.host.driver.heard = None if ear is None else ear.hear
            self.measurements = Measurements(context.directory, self.monitor.identity, self.counters, keep_bytes, ear)
            opened.callback(self.measurements.close)

    async def stop(self) -> None:
        """End in order; what goes wrong on the way is a failure too, but never hides the first."""
        try:
            await self._opened.aclose()
        except Exception as error:  # noqa: BLE001 - whatever it is, the process ends and says why
            self._failed(error)
        self._log.info("stopped")

    async def _tell_status(self, _: Mapping[str, object]) -> Mapping[str, object]:
        return {"status": self.monitor.status().as_json()}

    async def _restart(self, _: Mapping[str, object]) -> None:
        """End in order, once the answer is on its way; what was promised is on disk."""
        self._log.info("an operator asks for a new start")
        self.restarting = True
        asyncio.get_running_loop().call_later(_LAST_WORD_S, self.stopping.set)

    def alarm(self, code: str, text: str, remedy: str) -> None:
        """Something went wrong that a person should know of; logged the first time, counted always."""
        if self.monitor.alarm(code, text, remedy):
            self._log.warning(code, what=text, remedy=remedy)

    def _failed(self, error: BaseException) -> None:
        """The role cannot go on."""
        if self.failure is None:
            self.failure = error
            # A traceback helps with mistakes of ours only; what the machine did is said in words.
            trace = None if isinstance(error, IsocastError) else error
            self._log.error("failed", error=type(error).__name__, what=str(error), exc_info=trace)
            if isinstance(error, JournalFull):
                self.counters.journal_alarms += 1
            elif isinstance(error, StoreFull):
                self.counters.store_alarms += 1
            elif isinstance(error, StoreGone):
                self.counters.store_alarms += 1
                self.alarm("disk-gone", str(error), "see the how-to 'operate': find out who removed the data")
            if isinstance(error, JournalFull | StoreFull):
                self.alarm("disk-full", str(error), "make room; the node goes on where it stopped when it is started")
        self.stopping.set()

    def _name_noisy(self) -> None:
        """An alarm for each address that floods this node with what it refuses."""
        if self.host is None:
            return
        for address, count in self.host.driver.channels.noise.fresh().items():
            self.alarm(
                f"noisy-{address}",
                f"{address} sends what is refused: {counted(count, 'datagram')} in a second",
                "nothing is lost by it; find out who is there (the address may be forged), and block it in the network",
            )

    def _gauges(self) -> NodeGauges:
        return NodeGauges() if self.host is None else self.host.gauges()

    async def _tick(self, clock: SystemClock) -> None:
        """Once a second: the clock, the counters, the rates; what changes in readiness is told to the supervisor."""
        told, ready = "", False
        while True:
            pause_s = _TICK_S if ready else _EAGER_TICK_S
            wanted_ns = monotonic_ns() + round(pause_s * SECOND)
            await asyncio.sleep(pause_s)
            if self.host is None or self.failure is not None:
                return
            try:
                self.host.tick(clock.now())
                self.monitor.tick(max(monotonic_ns() - wanted_ns, 0))
                self._name_noisy()
                if self.measurements is not None:
                    self.measurements.tick(clock.now())
                self.each_second()
                reasons = self.monitor.not_ready()
            except Exception as error:  # noqa: BLE001 - a clock that nobody judges any more must not go unnoticed
                self._failed(error)
                return
            if is_watched():
                notify("WATCHDOG=1")
            status = reasons[0] if reasons else "ready"
            if status != told:
                told = status
                notify(f"STATUS={status}")
            if not ready and not reasons:
                ready = True
                notify("READY=1")
                self._log.info("ready")


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def build_role(context: Context) -> RoleHost:
    """The host of a role; each is imported when it is needed."""
    match context.plan.role:
        case NodeRole.PRIMARY_RECEIVER | NodeRole.SECONDARY_RECEIVER:
            from isocast.runtime.hosts.receiver import ReceiverHost  # noqa: PLC0415

            return ReceiverHost(context)
        case NodeRole.PRIMARY_SOURCE:
            from isocast.runtime.hosts.source import SourceHost  # noqa: PLC0415

            return SourceHost(context)
        case NodeRole.REFORMATION_SERVER:
            from isocast.runtime.hosts.reformation import ReformationHost  # noqa: PLC0415

            return ReformationHost(context)
        case NodeRole.SECONDARY_SOURCE:
            from isocast.runtime.hosts.secondary_source import SecondarySourceHost  # noqa: PLC0415

            return SecondarySourceHost(context)
        case NodeRole.RETRANSMIT_SERVER:
            from isocast.runtime.hosts.retransmit import RetransmitHost  # noqa: PLC0415

            return RetransmitHost(context)
        case NodeRole.CUSTOMER:
            from isocast.runtime.hosts.customer import CustomerHost  # noqa: PLC0415

            return CustomerHost(context)


async def run_node(market: Market, plan: NodePlan, each_second: Callable[[], None] = lambda: None) -> int:
    """Run one node until SIGTERM or SIGINT, or until it fails: NodeFailedError says why. Returns its exit code."""
    end_with_supervisor()
    if not market.dumpable:
        forbid_dumps()  # Before a key is read.
    process = NodeProcess(market, plan)
    process.each_second = each_second
    # Whoever reads its log may leave: a node is no command whose output somebody waits for.
    with shutdown.stopping(process.stopping.set, seconds=_STOP_S, waits_for="the node stops", unread=False):
        await process.start()
        try:
            # What it needed to start is imported and made: none of it is garbage, and nothing was due yet.
            get_log().info("priority", detail=become_punctual(realtime=market.clock.realtime).detail)
            await process.stopping.wait()
        finally:
            notify("STOPPING=1")
            await process.stop()
    if process.failure is not None:
        failure = process.failure
        text = str(failure) if isinstance(failure, IsocastError) else f"{type(failure).__name__}: {failure}"
        raise NodeFailedError(f"{plan.name}: {text}") from failure
    return RESTART if process.restarting else 0
