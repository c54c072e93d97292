"""What every role is given: the market, its own place in it, its clock, its keys and who hears of trouble."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from isocast.ring.effects import Record
from isocast.runtime.channels import Channels, NodeKeys
from isocast.runtime.clock import SystemClock
from isocast.runtime.counters import NodeCounters, NodeGauges
from isocast.runtime.driver import Driver, Machine
from isocast.runtime.impairment import Impairment
from isocast.runtime.key_files import MarketKeys
from isocast.runtime.market import DelayModel, Market, NodePlan
from isocast.terms.ids import NodeId

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

    @property
    def stripe(self) -> int:
        """The stripe that this process serves."""
        return self.plan.stripes[0]

    def channels(self, own: NodeId, keys: NodeKeys) -> Channels:
        """This node's sockets, with a demo's delays and losses if the market has them."""
        impairment = self._impairment if self.market.impairment.enabled else None
        return Channels(self.market, self.plan, own, keys, self.counters, impairment)

    def driver(self, machine: Machine, host: RoleHost, channels: Channels) -> Driver:
        """The machine's place in the event loop."""
        return Driver(machine, host, channels, self.clock, self.loop, self.counters)

    def _impairment(self) -> Impairment:
        settings, market, name = self.market.impairment, self.market, self.plan.name

        def delay_ns(sender: NodeId) -> int:
            there = market.find(sender)
            if there is None or settings.delay is DelayModel.NONE:
                return 0
            return market.delay_ns(there.name, name)

        return Impairment(delay_ns, settings.jitter_ns, settings.loss, f"{settings.seed}/{name}")


class RoleHost(Protocol):
    """A running role."""

    driver: Driver

    def persist(self, records: list[Record]) -> None:
        """Write records; return when they are as durable as the market promises."""

    def perform(self, effect: object, now: int) -> None:
        """Do one effect that is the role's own."""

    async def start(self) -> None:
        """Open doors, and begin."""

    def tick(self, now: int) -> None:
        """Once a second: judge the clock, trim the past."""

    def gauges(self) -> NodeGauges:
        """For whoever watches."""

    async def stop(self) -> None:
        """End in order: nothing that was promised is lost."""
