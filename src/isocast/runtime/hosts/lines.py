"""Lines of a receiver where the plan has them, and a reformation server's plan of lines as a part of its process.

A line without a plan speaks in the group of its number, and goes on there for half a drain time once it has one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar, assert_never

from isocast.nodes.accompanied import Accompanied
from isocast.reformation.scopes.line_keeper import (
    KeepLines,
    LineEffect,
    LineHostEffect,
    LineKeeper,
    LinesSettled,
    PlanFailed,
    PlanMade,
    PlannerHostEffect,
    group_of,
    hearing,
    radius_of,
    scope_of,
    speaking,
)
from isocast.reformation.server import ReformationServerEffect, ReformationServerInput
from isocast.ring.inputs import DriverInput, Machine
from isocast.runtime.disk.server_store import LineStore
from isocast.runtime.hosts.process import Context
from isocast.runtime.market.model import Durability, NetworkMode, NodePlan, line_listeners
from isocast.runtime.net.channels import Channels, LineOutlet
from isocast.runtime.net.sockets import Endpoint, Outlet, open_group_outlet
from isocast.runtime.watch.counters import Channel, NodeGauges, packet_slot
from isocast.runtime.watch.line_gauges import line_gauges
from isocast.terms.errors import ConfigurationError, TransportError
from isocast.terms.instants import SECOND
from isocast.wire.codec import PacketKind, encode
from isocast.wire.packets import NO_VERSION, Lines, NewRing

if TYPE_CHECKING:
    from isocast.reformation.scopes.line_planner import LinePlanner, PlannerEffect
    from isocast.reformation.server import ReformationServer

__all__ = ["LinePlanning", "LineSpeaking"]

Event = TypeVar("Event")
Effect = TypeVar("Effect")


_AGAIN_S = (0.05, 0.2, 0.5)
"""A notice of a new plan goes out again after so many seconds: it may be lost, and the next is a second away."""


_NOTICES_PER_S = 20
"""Of all receivers together, as long as nothing changes."""


class _Outlets:
    """One line in several groups."""

    def __init__(self, outlets: Sequence[LineOutlet], unsent_before: int) -> None:
        self._outlets = tuple(outlets)
        self._unsent_before = unsent_before - sum([outlet.unsent for outlet in outlets])

    @property
    def unsent(self) -> int:
        """Datagrams that were given up, in all of them and in those before."""
        return self._unsent_before + sum([outlet.unsent for outlet in self._outlets])

    def send(self, frames: Sequence[bytes]) -> None:
        """The same everywhere."""
        for outlet in self._outlets:
            outlet.send(frames)


class LineSpeaking:
    """What a receiver does beside the ring; nothing where the market's file plans no lines."""

    def __init__(self, context: Context, channels: Channels, *, forgot: bool = False) -> None:
        """Speak where the plan of the disk says; who `forgot` what it promised takes no part.

        Its own sockets are closed with the channels.
        """
        self._context = context
        self._market = context.market
        self._table = context.market.coverage
        self._store = LineStore(context.directory, context.market.durability)
        self.keeper: LineKeeper | None = None
        self._channels = channels
        self._home = channels.line_outlet
        """Where the line speaks without a plan."""
        self._home_until = 0
        self._spoken: tuple[dict[str, int], bool] | None = None
        self._outlets: list[Outlet] = []
        self._notices: Outlet | None = None
        if self._table.enabled and not forgot:
            retry_ns = self._market.timing.retry_ns
            self.keeper = LineKeeper(context.plan.node, context.stripe, retry_ns, self._store.read())
        channels.closing.callback(self.close)
        if self.keeper is not None and context.plan.line:
            self._open_notices()
            self._move(context.clock.now())

    def accompany(
        self, machine: Machine[Event | DriverInput, Effect], ring: Callable[[], NewRing | None]
    ) -> Machine[Event | DriverInput, Effect | LineEffect]:
        """The machine to drive: with the plan beside it, or alone."""
        return machine if self.keeper is None else Accompanied(machine, self.keeper, ring)

    @property
    def _lines(self) -> Lines | None:
        return None if self.keeper is None else self.keeper.state.settled

    # Effects ------------------------------------------------------------------------------------

    def perform(self, effect: LineHostEffect, now: int) -> None:
        """Do one effect of the keeper."""
        match effect:
            case KeepLines():
                self._keep(effect, now)
            case LinesSettled():
                self._settled(effect, now)
            case _:
                assert_never(effect)

    def _keep(self, effect: KeepLines, now: int) -> None:
        self._store.keep(effect.state)
        if effect.state.settled is not None and self._spoken is None:
            # Listeners that know no plan yet listen to the group of our number.
            self._home_until = now + self._table.drain_ns // 2

    def _settled(self, effect: LinesSettled, now: int) -> None:
        context, lines = self._context, effect.lines
        scope = scope_of(lines, context.plan.node)
        context.log.info(
            "line follows a plan",
            version=str(lines.version),
            group=group_of(lines, scope.address) if scope is not None and scope.radius_m else "none",
            radius_m=radius_of(lines, context.plan.node),
        )
        if not context.plan.line:
            return
        self._open_notices()
        self._move(now)
        self._tell()
        for delay_s in _AGAIN_S:
            context.loop.call_later(delay_s, self._tell)

    # Moving -------------------------------------------------------------------------------------

    def _move(self, now: int) -> None:
        """Speak where the plan says now, and nowhere else."""
        lines, channels = self._lines, self._channels
        if lines is None:
            return
        at_home = now < self._home_until
        wanted = speaking(lines, self._context.plan.node, now, self._table.drain_ns)
        if (wanted, at_home) == self._spoken:
            return
        try:
            fresh = self._opened(lines, wanted, now, at_home=at_home)
        except TransportError as reason:
            # It stays where it is, and tries again in a second.
            self._context.alarm("line-move", str(reason), "customers hear it where it was; see `isocast doctor`")
            return
        before = channels.line_outlet
        both: list[LineOutlet] = [*fresh]
        if at_home and self._home is not None and self._market.network.mode is NetworkMode.MULTICAST:
            both.append(self._home)
        channels.speak_line(_Outlets(both, 0 if before is None else before.unsent))
        for outlet in self._outlets:
            outlet.close()
        self._outlets, self._spoken = fresh, (wanted, at_home)

    def _opened(self, lines: Lines, wanted: dict[str, int], now: int, *, at_home: bool) -> list[Outlet]:
        """An outlet for each group, or none at all."""
        if self._market.network.mode is NetworkMode.FANOUT:
            return [self._outlet("", 1, self._members(lines, now, at_home=at_home))]
        with ExitStack() as opened:
            fresh: list[Outlet] = []
            for group, radius_m in wanted.items():
                fresh.append(self._outlet(group, self._table.ttl(radius_m)))
                opened.callback(fresh[-1].close)
            opened.pop_all()
        return fresh

    def _members(self, lines: Lines, now: int, *, at_home: bool) -> list[NodePlan]:
        """Of a line by fan-out: who hears it by the plan, and at first who would without one."""
        own, drain_ns = self._context.plan.node, self._table.drain_ns
        found = [
            plan
            for plan in line_listeners(self._market)
            if plan.place is not None
            and any(own in sites for sites in hearing(lines, plan.place, now, drain_ns).values())
        ]
        if at_home:
            found += [plan for plan in self._market.line_listeners(self._context.plan.name) if plan not in found]
        return found

    def _outlet(self, group: str, ttl: int, members: Sequence[NodePlan] = ()) -> Outlet:
        network, plan = self._market.network, self._context.plan
        return open_group_outlet(
            network.mode,
            group,
            network.port,
            interface=plan.address,
            members=[Endpoint(node.address, node.line_port) for node in members],
            alone=not any(node.address == plan.address for node in self._market.nodes if node.name != plan.name),
            ttl=ttl,
        )

    # Notices ------------------------------------------------------------------------------------

    def _open_notices(self) -> None:
        network = self._market.network
        ttl = max(network.ttl, self._table.ttl(radius_of(self._lines, self._context.plan.node)))
        group = self._table.notice_group(self._context.stripe)
        if self._notices is not None:
            self._notices.close()
        self._notices = self._outlet(group, ttl, line_listeners(self._market))

    def _tell(self) -> None:
        """Tell listeners where lines are."""
        lines, outlet = self._lines, self._notices
        if lines is None or outlet is None:
            return
        packet = lines._replace(sender=self._context.plan.node)
        outlet.send([encode(packet, self._context.keys.edge_ring(), self._market.id)])
        self._context.counters.packets_sent[packet_slot(Channel.LINE, PacketKind.LINES)] += 1

    # Life ---------------------------------------------------------------------------------------

    def tick(self, now: int) -> None:
        """Once a second: leave what was spoken long enough, and say where lines are."""
        if self._notices is None or self._lines is None:
            return
        self._move(now)
        # All receivers together say it so often that notices are a trickle, however many they are.
        seconds = max(len(self._lines.scopes) // _NOTICES_PER_S, 1)
        if (now // SECOND + self._context.plan.node) % seconds == 0:
            self._tell()

    def fill(self, gauges: NodeGauges) -> None:
        """The state, for checkers and status pages."""
        if self._lines is not None:
            context = self._context
            gauges.line_plan = line_gauges(context.market, context.plan, self._lines, context.clock.now())

    def close(self) -> None:
        """Give the sockets back."""
        for outlet in (*self._outlets, *([self._notices] if self._notices is not None else [])):
            outlet.close()
        self._outlets, self._notices = [], None


# A reformation server's plan of lines as a part of its process: disk, alarms, log and status (§4.3).


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
            from isocast.reformation.scopes.line_planner import LinePlanner as Planner  # noqa: PLC0415
            from isocast.reformation.scopes.line_planner import next_plan  # noqa: PLC0415
            from isocast.runtime.market.coverage_world import coverage_world  # noqa: PLC0415

            market = context.market
            world_of = partial(coverage_world, market, context.stripe)
            state = self._store.read()
            self.planner = Planner(context.plan.node, market.servers, context.stripe, market.timing, world_of, state)
            # The first plan takes ten times as long as any other, and ballots wait while it is made: so it is made now.
            with suppress(ConfigurationError):
                next_plan(state.held, world_of(market.universe), context.clock.now(), NO_VERSION, context.stripe)

    def accompany(
        self, machine: ReformationServer
    ) -> Machine[ReformationServerInput, ReformationServerEffect | PlannerEffect]:
        """The machine to drive: with the plan beside it, or alone."""
        return machine if self.planner is None else Accompanied(machine, self.planner, lambda: machine.ring)

    def perform(self, effect: PlannerHostEffect) -> None:
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
                assert_never(effect)

    def _made(self, effect: PlanMade) -> None:
        version = str(effect.lines.version)
        self._context.log.info("lines planned", version=version, changed=effect.changed, moved=effect.moved)
        self._short = tuple([customer for customer, _, _ in effect.short])
        for customer, lines, reason in effect.short:
            self._context.alarm(
                f"coverage-short-{customer}",
                f"plan {version} gives {customer} {lines} of {self._context.market.coverage.lines} lines: {reason}",
                "bring receivers back, or put one nearer; coverage.delay_max bounds how wide a scope may be",
            )

    def fill(self, gauges: NodeGauges) -> None:
        """The state, for checkers and status pages."""
        held = self.planner.state.held if self.planner is not None else None
        if held is not None:
            context = self._context
            gauges.line_plan = line_gauges(context.market, context.plan, held, context.clock.now(), self._short)
