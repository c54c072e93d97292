"""A reformation server's plan of lines as a part of its process: disk, alarms, log and status (§4.3)."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from isocast.nodes.accompanied import Accompanied
from isocast.reformation.scopes.line_effects import KeepLines, PlanFailed, PlanMade
from isocast.runtime.disk.line_store import LineStore
from isocast.runtime.hosts.context import Context
from isocast.runtime.hosts.driver import Machine
from isocast.runtime.market.model import Durability
from isocast.runtime.watch.counters import NodeGauges
from isocast.runtime.watch.line_gauges import line_gauges
from isocast.terms.errors import ConfigurationError
from isocast.wire.line_packets import NO_VERSION

if TYPE_CHECKING:
    from isocast.reformation.scopes.line_planner import LinePlanner
    from isocast.reformation.server import ReformationServer

__all__ = ["LinePlanning"]


class LinePlanning:
    """What a server does beside its ballots; nothing where the market's file plans no lines."""

    def __init__(self, context: Context) -> None:
        """Read what the disk has."""
        self._context = context
        self._short: tuple[str, ...] = ()
        self._store = LineStore(context.directory, Durability.POWER)
        self.planner: LinePlanner | None = None
        if context.market.coverage.enabled:
            # Here, because plans need numpy, and servers without one start sooner.
            from isocast.reformation.scopes.line_plan import next_plan  # noqa: PLC0415
            from isocast.reformation.scopes.line_planner import LinePlanner as Planner  # noqa: PLC0415
            from isocast.runtime.market.coverage_world import coverage_world  # noqa: PLC0415

            market = context.market
            world_of = partial(coverage_world, market, context.stripe)
            state = self._store.read()
            self.planner = Planner(context.plan.node, market.servers, context.stripe, market.timing, world_of, state)
            # The first plan takes ten times as long as any other, and ballots wait while it is made: so it is made now.
            with suppress(ConfigurationError):
                next_plan(state.held, world_of(market.universe), context.clock.now(), NO_VERSION, context.stripe)

    def accompany(self, machine: ReformationServer) -> Machine:
        """The machine to drive: with the plan beside it, or alone."""
        return machine if self.planner is None else Accompanied(machine, self.planner, lambda: machine.ring)

    def perform(self, effect: object) -> None:
        """Do one effect of the planner."""
        match effect:
            case KeepLines(state):
                self._store.keep(state)
            case PlanMade():
                self._made(effect)
            case PlanFailed(rule):
                self._context.alarm(
                    "coverage-failed",
                    f"no plan of lines can be made: {rule}",
                    "lines stay where they are; see [coverage] of the market's file",
                )
            case _:
                pass

    def _made(self, effect: PlanMade) -> None:
        version = str(effect.lines.version)
        self._context.log.info("lines planned", version=version, changed=effect.changed, moved=effect.moved)
        self._short = tuple([customer for customer, _, _ in effect.short])
        for customer, lines, reason in effect.short:
            self._context.alarm(
                f"coverage-short-{customer}",
                f"by plan {version} {customer} hears {lines} of {self._context.market.coverage.lines} lines: {reason}",
                "bring receivers back, or put one nearer; coverage.delay_max bounds how wide a scope may be",
            )

    def fill(self, gauges: NodeGauges) -> None:
        """For whoever watches."""
        held = self.planner.state.held if self.planner is not None else None
        if held is not None:
            context = self._context
            gauges.line_plan = line_gauges(context.market, context.plan, held, context.clock.now(), self._short)
