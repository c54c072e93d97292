"""What every role is given: the market, its own place in it, its clock, its keys and who hears of trouble."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from structlog.typing import FilteringBoundLogger

from isocast.ring.effects import Record
from isocast.runtime.disk.store_marker import StoreIdentity
from isocast.runtime.disk.store_settings import StoreSettings
from isocast.runtime.hosts.driver import Driver, Machine
from isocast.runtime.market.key_files import MarketKeys
from isocast.runtime.market.model import DelayModel, Market, NodePlan
from isocast.runtime.net.channels import Channels, NodeKeys
from isocast.runtime.net.clock import SystemClock
from isocast.runtime.net.door_keys import core_door_key, edge_door_key, publish_door_key
from isocast.runtime.net.faults import FaultyChannels, allows_faults
from isocast.runtime.net.impairment import Impairment
from isocast.runtime.operate.operator_door import Operation
from isocast.runtime.watch.counters import NodeCounters, NodeGauges
from isocast.terms.ids import NodeId
from isocast.terms.instants import MILLISECOND

if TYPE_CHECKING:
    from isocast.runtime.disk.journal import JournalSettings

__all__ = ["Context", "RoleHost"]


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

    def store_settings(self) -> StoreSettings:
        """How the protocol's state is kept."""
        kept = self.market.log
        return StoreSettings(self.market.durability, kept.segment_bytes, kept.keep_bytes)

    def journal_settings(self) -> JournalSettings:
        """How the journal is kept."""
        # Here, because journals need numpy, and roles without one start in three quarters of the time.
        from isocast.runtime.disk.journal import JournalSettings  # noqa: PLC0415

        kept = self.market.journal
        return JournalSettings(
            kept.segment_bytes,
            self.market.durability.value,
            kept.keep_bytes,
            kept.keep_seconds,
            self.market.timing.release_delay_ns,
        )

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
    def stripe(self) -> int:
        """The stripe that this process serves."""
        return self.plan.stripes[0]

    def channels(self, own: NodeId, keys: NodeKeys) -> Channels:
        """This node's sockets, with a demo's delays and losses if the market has them."""
        impairment = self._impairment if self.market.impairment.enabled else None
        kind = FaultyChannels if allows_faults(self.market) else Channels
        return kind(self.market, self.plan, own, keys, self.counters, impairment)

    def driver(self, machine: Machine, host: RoleHost, channels: Channels) -> Driver:
        """The machine's place in the event loop."""
        return Driver(machine, host, channels, self.clock, self.loop, self.counters)

    def _impairment(self, channel: str) -> Impairment:
        settings, market, name = self.market.impairment, self.market, self.plan.name

        def delay_ns(sender: NodeId) -> int:
            there = market.find(sender)
            if there is None or settings.delay is DelayModel.NONE:
                return 0
            return market.delay_ns(there.name, name)

        return Impairment(
            delay_ns, jitter_ns=settings.jitter_ns, loss=settings.loss, seed=settings.seed, place=f"{name}/{channel}"
        )


class RoleHost(Protocol):
    """A running role."""

    driver: Driver

    def persist(self, records: list[Record]) -> None:
        """Write records; return when they are as durable as the market promises."""

    def perform(self, effect: object, now: int) -> None:
        """Do one effect that is the role's own."""

    def next_deadline(self) -> int:
        """When the role wants `wake`, or NEVER."""

    def wake(self, now: int) -> None:
        """The role's own deadline has come, or the clock was set."""

    async def start(self) -> None:
        """Open doors, and begin."""

    def tick(self, now: int) -> None:
        """Once a second: judge the clock, trim the past."""

    def gauges(self) -> NodeGauges:
        """For whoever watches."""

    async def stop(self) -> None:
        """End in order: nothing that was promised is lost."""
