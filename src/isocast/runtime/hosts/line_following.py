"""A listener's groups where the plan has them: it hears the notices, joins and leaves, and tells its machine (§4.3).

It believes the newest plan that a receiver tells it, and keeps it for its next start. Without one it listens to the
groups of its receivers' numbers, which it never leaves: a receiver that has no plan speaks there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from isocast.hierarchy.edge import LinesPlanned
from isocast.reformation.scopes.line_keeper import LineState, hearing, sources
from isocast.runtime.disk.server_store import LineStore
from isocast.runtime.hosts.driver import Driver
from isocast.runtime.hosts.process import Context
from isocast.runtime.market.model import NetworkMode, NodePlan, line_receivers
from isocast.runtime.net.channels import Channels
from isocast.runtime.net.sockets import SOURCES_MAX
from isocast.runtime.watch.counters import NodeGauges
from isocast.runtime.watch.line_gauges import line_gauges
from isocast.terms.errors import StoreError, TransportError
from isocast.terms.ids import NodeId, is_site
from isocast.terms.topology import City, great_circle_km
from isocast.wire.codec import PacketKind
from isocast.wire.packets import Lines, Packet

__all__ = ["LineFollowing"]


class LineFollowing:
    """What a customer or retransmit server does beside its lines; nothing where the market's file plans none."""

    def __init__(
        self,
        context: Context,
        channels: Channels,
        driver: Driver[LinesPlanned, Any],
        planned: Callable[[tuple[NodeId, ...]], None],
        *,
        keeps: bool = True,
    ) -> None:
        """`planned` is told which receivers' lines there are from now on; `keeps` says that there is a disk."""
        self._context = context
        self._market = context.market
        self._table = context.market.coverage
        self._channels = channels
        self._driver = driver
        self._planned = planned
        self._store = LineStore(context.directory) if keeps else None
        self._ears: dict[str, object] = {}
        self._joined: dict[str, tuple[NodeId, ...]] = {}
        self.lines: Lines | None = None
        self._place: City | None = context.plan.place
        self._pending = False
        self._heard_any = False
        """A plan of the disk counts until the first that is heard: the market may have begun anew."""
        if self._table.enabled and self._place is not None:
            channels.tap = self._take
            if self._market.network.mode is NetworkMode.MULTICAST:
                channels.hear_line(self._table.notice_group(context.stripe), self._nearest(), (PacketKind.LINES,))

    def _nearest(self) -> list[NodePlan]:
        """Whose notices are heard: everybody's, or as many as a source-specific group may have, the nearest first."""
        place = self._place
        if not self._market.network.source_specific or place is None:
            return list(line_receivers(self._market))
        known = [plan for plan in line_receivers(self._market) if plan.place is not None]
        near = sorted(known, key=lambda plan: great_circle_km(plan.place or place, place))
        return near[:SOURCES_MAX]

    def start(self) -> None:
        """The driver runs: begin with the plan of the disk, if there is one."""
        if not self._table.enabled or self._store is None:
            return
        try:
            lines = self._store.read().held
        except StoreError as reason:
            self._context.log.warning("the plan of lines on disk is left alone", what=str(reason))
            return
        if lines is not None:
            self._adopt(lines)

    # Notices ------------------------------------------------------------------------------------

    def _take(self, packets: list[Packet]) -> list[Packet]:
        """Plans are for us, everything else for the machine."""
        plans = [packet for packet in packets if isinstance(packet, Lines)]
        if not plans:
            return packets
        newest = max(plans, key=lambda lines: lines.version)
        if is_site(newest.sender) and self._is_news(newest) and not self._pending:
            # Not now: the sockets are being read.
            self._pending = True
            self._context.loop.call_soon(self._news, newest)
        return [packet for packet in packets if not isinstance(packet, Lines)]

    def _is_news(self, lines: Lines) -> bool:
        known = self.lines
        return known is None or not self._heard_any or lines.version > known.version

    def _news(self, lines: Lines) -> None:
        self._pending = False
        if self._driver.running and self._is_news(lines):
            self._heard_any = True
            self._adopt(lines)
            if self._store is not None:
                self._store.keep(LineState(held=lines))

    def _adopt(self, lines: Lines) -> None:
        context, place = self._context, self._place
        if place is None:
            return
        self.lines = lines
        self._tune(context.clock.now())
        heard = [site for site in sources(lines, place) if context.market.find(site) is not None]
        names = [context.market.name_of(site) for site in heard]
        context.log.info("follows the lines of a plan", version=str(lines.version), lines=", ".join(names))
        if len(heard) < self._table.lines:
            context.alarm(
                "coverage-short",
                f"plan {lines.version} gives this node {len(heard)} of {self._table.lines} lines",
                "bring receivers back, or put one nearer; coverage.delay_max bounds how wide a scope may be",
            )
        if heard:
            self._planned(tuple(heard))
            self._driver.feed(LinesPlanned(tuple(heard)))

    # Groups -------------------------------------------------------------------------------------

    def _tune(self, now: int) -> None:
        """Join what the plan has in reach now, leave the rest."""
        lines, place = self.lines, self._place
        if lines is None or place is None or self._market.network.mode is not NetworkMode.MULTICAST:
            return
        wanted = hearing(lines, place, now, self._table.drain_ns)
        if wanted != self._joined:
            self._driver.retune(lambda: self._change(wanted))

    def _change(self, wanted: dict[str, tuple[NodeId, ...]]) -> None:
        specific = self._market.network.source_specific
        for group, sites in wanted.items():
            owners = self._owners(sites)
            if not owners:
                continue
            known = self._ears.get(group)
            if known is not None and not specific:
                self._channels.reach(known, owners)
                continue
            if known is not None and self._joined.get(group) == sites:
                continue
            try:
                self._ears[group] = self._channels.hear_line(group, owners)
            except TransportError as reason:
                self._context.alarm("line-join", str(reason), "its other lines go on; see `isocast doctor`")
                continue
            if known is not None:
                self._channels.leave(known)
        for group in [group for group in self._ears if group not in wanted]:
            self._channels.leave(self._ears.pop(group))
        self._joined = dict(wanted)

    def _owners(self, sites: Sequence[NodeId]) -> list[NodePlan]:
        found = [self._market.find(site) for site in sites]
        return [plan for plan in found if plan is not None]

    # Life ---------------------------------------------------------------------------------------

    def tick(self, now: int) -> None:
        """Once a second: follow lines that have moved, and leave their former groups."""
        self._tune(now)

    def fill(self, gauges: NodeGauges) -> None:
        """The state, for checkers and status pages."""
        if self.lines is not None:
            context = self._context
            gauges.line_plan = line_gauges(context.market, context.plan, self.lines, context.clock.now())
