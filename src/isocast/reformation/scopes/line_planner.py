"""A reformation server's second task: it makes the plan of lines for a ring, and turns it into LINES and back (§4.3).

    resting ──a new ring──▶ waiting ──its turn──▶ asking ──all answer, or a majority──▶ telling ──all hold it──▶ resting
                               ▲                    └──a rival is ahead──┐
                               └─────────────────────────────────────────┘

The server that decided a ring has the first turn; another steps in when no plan comes. Before it plans it asks the
ring's receivers what they hold, and they promise to take nothing below its version: so it goes on from the newest plan
that anybody may follow, whoever made it. A plan is on disk before anybody hears of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from ipaddress import IPv4Address
from typing import TypeAlias, assert_never

from isocast.reformation.scopes.adjustment import adjust, plan_scopes
from isocast.reformation.scopes.coverage import cover
from isocast.reformation.scopes.line_keeper import (
    REPEAT_LEAST_NS,
    KeepLines,
    LineInput,
    LinePacket,
    LineState,
    PlanFailed,
    PlanMade,
    PlannerHostEffect,
    majority_of,
)
from isocast.reformation.scopes.plan import Draining, Plan, Scope, What, changes
from isocast.reformation.scopes.world import AddressPool, CoverageWorld, Surface
from isocast.ring.effects import Multicast, Unicast
from isocast.ring.inputs import PacketsArrived, TimerFired
from isocast.terms.errors import ConfigurationError
from isocast.terms.ids import NO_EPOCH, NodeId, is_server
from isocast.terms.instants import NEVER
from isocast.terms.timing import Timing
from isocast.wire.limits import MAX_LINE_RESTS, MAX_LINE_SCOPES
from isocast.wire.packets import (
    NO_ADDRESS,
    NO_VERSION,
    LineAck,
    LineAsk,
    LineRest,
    Lines,
    LineScope,
    NewRing,
    PlanVersion,
)

__all__ = ["LinePlanner", "PlannerEffect", "PlanningStage", "next_plan", "same_scopes", "to_lines", "to_plan"]


# A coverage plan as the packet LINES and back, and the plan that follows another at a reformation (§4.3).
#
# Receivers are called by their ids, in digits, so that a plan needs no names; a place is degrees on the earth.


_METRES = 1000
_UNCHANGED = (What.KEPT, What.SILENT)


def to_plan(lines: Lines, wanted: int) -> Plan:
    """The plan of a packet; `wanted` is k, which travels in the market's file."""
    scopes = [
        Scope(
            str(scope.site),
            (scope.latitude, scope.longitude),
            scope.radius_m / _METRES,
            scope.settled_m / _METRES,
            None if scope.address == NO_ADDRESS else scope.address,
        )
        for scope in lines.scopes
    ]
    rests = [
        Draining(
            str(rest.site),
            (rest.latitude, rest.longitude),
            rest.radius_m / _METRES,
            rest.settled_m / _METRES,
            rest.address,
            rest.free_at,
        )
        for rest in lines.rests
    ]
    first = IPv4Address(lines.first_group)
    return Plan(Surface.EARTH, wanted, lines.made_at, first, lines.stripes, tuple(scopes), tuple(rests))


def to_lines(plan: Plan, version: PlanVersion, stripe: int, sender: NodeId) -> Lines:
    """The packet of a plan; ConfigurationError if it is larger than a packet."""
    rests = _compact(plan.draining)
    if len(plan.scopes) > MAX_LINE_SCOPES or len(rests) > MAX_LINE_RESTS:
        rule = f"a plan has at most {MAX_LINE_SCOPES} receivers, and {MAX_LINE_RESTS:,} addresses that rest"
        raise ConfigurationError("<plan>", "coverage", f"{rule}; this one {len(plan.scopes)} and {len(rests):,}")
    return Lines(
        stripe,
        version.ballot,
        sender,
        version,
        plan.made_at_ns,
        int(plan.first),
        plan.stripes,
        tuple(
            [
                LineScope(
                    int(scope.receiver),
                    *scope.place,
                    _metres(scope.radius_km),
                    _metres(scope.settled_km),
                    NO_ADDRESS if scope.address is None else scope.address,
                )
                for scope in plan.scopes
            ]
        ),
        tuple(
            [
                LineRest(
                    int(rest.receiver),
                    *rest.place,
                    _metres(rest.radius_km),
                    _metres(rest.settled_km),
                    rest.address,
                    rest.free_at_ns,
                )
                for rest in rests
            ]
        ),
    )


def next_plan(before: Lines | None, world: CoverageWorld, now: int, version: PlanVersion, stripe: int) -> PlanMade:
    """The plan for this world, with few changes against the one in force; ConfigurationError if there is none.

    A pure function of its arguments. `version.author` made it.
    """
    was = to_plan(before, world.rules.lines) if before is not None else None
    if was is None:
        plan = plan_scopes(world, now)
        difference = changes(replace(plan, scopes=()), plan)
    else:
        plan = adjust(_in_pool(was, world.pool, now), world, now)
        difference = changes(was, plan)
    short = tuple([(one.customer, one.lines, one.reason) for one in cover(world, plan).short])
    return PlanMade(
        to_lines(plan, version, stripe, version.author),
        sum(change.what not in _UNCHANGED for change in difference),
        sum(change.what is What.MOVED for change in difference),
        short,
    )


def same_scopes(a: Lines, b: Lines) -> bool:
    """Whether nobody would have to do anything; what rests only expires."""
    return (a.first_group, a.stripes, a.scopes) == (b.first_group, b.stripes, b.scopes)


def _in_pool(plan: Plan, pool: AddressPool, now: int) -> Plan:
    """A plan whose groups are those of another pool: everybody leaves, and what the pools share rests."""
    if (plan.first, plan.stripes) == (pool.first, pool.stripes):
        return plan
    free_at = now + pool.drain_ns
    left = [
        Draining(scope.receiver, scope.place, scope.radius_km, scope.settled_km, scope.address, free_at)
        for scope in plan.scopes
        if scope.address is not None
    ]
    rests = []
    for rest in (*plan.draining, *left):
        low = int(plan.group(rest.address)) - int(pool.first)
        taken = {group // pool.stripes for group in range(low, low + plan.stripes)}
        rests += [replace(rest, address=address) for address in sorted(taken) if 0 <= address < pool.usable]
    return replace(plan, first=pool.first, stripes=pool.stripes, scopes=(), draining=tuple(rests))


def _compact(rests: Iterable[Draining]) -> list[Draining]:
    """Without those that another one covers: the same address of the same place, as wide and as long."""
    kept: list[Draining] = []
    for rest in sorted(rests, key=lambda one: (-one.free_at_ns, -one.radius_km)):
        same = (rest.receiver, rest.place, rest.address)
        if not any((one.receiver, one.place, one.address) == same and one.radius_km >= rest.radius_km for one in kept):
            kept.append(rest)
    return sorted(kept, key=lambda one: (one.free_at_ns, one.receiver, one.address))


def _metres(km: float) -> int:
    return round(km * _METRES)


PlannerEffect: TypeAlias = PlannerHostEffect | Multicast | Unicast
_TELLS_MAX = 20
"""Bounds: who has not acknowledged a plan by then asks for it when it is back."""


class PlanningStage(StrEnum):
    """What a server does about the plan."""

    RESTING = "resting"
    WAITING = "waiting"
    ASKING = "asking"
    TELLING = "telling"


class LinePlanner:
    """The machine of one server."""

    def __init__(
        self,
        server: NodeId,
        servers: Sequence[NodeId],
        stripe: int,
        timing: Timing,
        world_of: Callable[[tuple[NodeId, ...]], CoverageWorld],
        state: LineState | None = None,
    ) -> None:
        """Start, or restart, from what the disk says; `world_of` gives the world in which these sites are receivers."""
        self.server = server
        self.state = state or LineState()
        self.stage = PlanningStage.RESTING
        self._servers = tuple(servers)
        self._stripe = stripe
        self._timing = timing
        self._world_of = world_of
        self._every_ns = max(timing.retry_ns, REPEAT_LEAST_NS)
        self._ring: NewRing | None = None
        self._asked = NO_VERSION
        self._stood_back = NO_VERSION
        self._attempts = 0
        self._answers: dict[NodeId, LineAck] = {}
        self._holders: dict[NodeId, None] = {}
        self._told_at: dict[NodeId, int] = {}
        self._at = NEVER
        self._last_now = -NEVER
        self._out: list[PlannerEffect] = []

    def step(self, event: LineInput, now: int, ring: NewRing | None) -> tuple[PlannerEffect, ...]:
        """Take one input at local time `now`, with the newest ring that this server knows."""
        if now < self._last_now:
            self._told_at.clear()
            self._at = min(self._at, now + self._every_ns) if self._at < NEVER else NEVER
        self._last_now = now
        if ring is not None and (self._ring is None or ring.ballot > self._ring.ballot):
            self._on_ring(ring, now)
        match event:
            case PacketsArrived(packets):
                for packet in packets:
                    if isinstance(packet, LinePacket):
                        self._on_packet(packet, now)
            case TimerFired():
                pass
            case _:
                assert_never(event)
        if now >= self._at:
            self._on_timer(now)
        effects = tuple(self._out)
        self._out.clear()
        return effects

    def next_deadline(self) -> int:
        """When the machine must be woken."""
        return self._at

    def _on_ring(self, ring: NewRing, now: int) -> None:
        """The server that decided the ring plans first; a ring known since the start is planned for by rank."""
        self._ring = ring
        self._wait(now, first=ring.ballot.server == self.server and self.state.version.ballot < ring.ballot)

    def _wait(self, now: int, *, first: bool = False) -> None:
        self.stage = PlanningStage.WAITING
        if first:
            # A ring that has just been formed has enough to do: its first token goes first.
            self._at = now + self._timing.reformation_ns
            return
        decider = self._ring.ballot.server if self._ring is not None else self.server
        at = self._servers.index(decider) if decider in self._servers else 0
        turn = (self._servers.index(self.server) - at) % len(self._servers) or len(self._servers)
        self._at = now + (1 + turn) * (self._timing.reformation_ns + 4 * self._every_ns)

    # Packets ------------------------------------------------------------------------------------

    def _on_packet(self, packet: LinePacket, now: int) -> None:
        match packet:
            case LineAck():
                self._on_ack(packet, now)
            case Lines():
                self._on_lines(packet, now)
            case LineAsk() if packet.sender != self.server and is_server(packet.sender):
                self._on_rival(packet, now)
            case LineAsk():
                pass
            case _:
                assert_never(packet)

    def _on_lines(self, lines: Lines, now: int) -> None:
        """Another server's plan: the newest of all is the one to go on from."""
        if lines.version <= self.state.version:
            return
        self._keep(lines)
        if self.stage is PlanningStage.ASKING and lines.version < self._asked:
            self._decide_if_enough(now)
        elif self._ring is None or lines.version.ballot >= self._ring.ballot:
            self._rest()

    def _on_rival(self, ask: LineAsk, now: int) -> None:
        """Another server asks: it gets what we hold; and if it is ahead of us, the plan is its business."""
        if ask.held < self.state.version:
            self._give(ask.sender, now)
        ahead = max(self._asked, self._stood_back)
        if self.stage in (PlanningStage.WAITING, PlanningStage.ASKING) and ask.version > ahead:
            # Once for each version: copies of what a dead server asked must not hold us up for ever.
            self._stood_back = ask.version
            self._wait(now)

    def _on_ack(self, ack: LineAck, now: int) -> None:
        held = self.state.version
        if ack.held < held:
            self._give(ack.sender, now)
        elif ack.held > held and self._may_tell(ack.sender, now):
            self._out.append(Unicast(ack.sender, self._ask(NO_VERSION)))
        if self.stage is PlanningStage.ASKING:
            if ack.promised > self._asked:
                self._wait(now)
            elif ack.promised == self._asked:
                self._answers[ack.sender] = ack
                self._decide_if_enough(now)
        elif self.stage is PlanningStage.TELLING and ack.held == held:
            self._holders[ack.sender] = None
            if self._ring is None or all(site in self._holders for site in self._ring.ring):
                self._rest()

    def _give(self, to: NodeId, now: int) -> None:
        held = self.state.held
        if held is not None and self._may_tell(to, now):
            self._out.append(Unicast(to, held._replace(sender=self.server)))

    def _may_tell(self, to: NodeId, now: int) -> bool:
        """Not for every copy of what it said."""
        told_at = self._told_at.get(to, -NEVER)
        if told_at <= now < told_at + self._every_ns // 2:
            return False
        self._told_at[to] = now
        return True

    # Turns --------------------------------------------------------------------------------------

    def _on_timer(self, now: int) -> None:
        match self.stage:
            case PlanningStage.WAITING:
                self._begin(now)
            case PlanningStage.ASKING:
                self._attempts += 1
                self._decide_if_enough(now)
                if self.stage is PlanningStage.ASKING:
                    self._send_ask(now)
            case PlanningStage.TELLING:
                self._tell(now)
            case PlanningStage.RESTING:
                self._at = NEVER

    def _begin(self, now: int) -> None:
        """Ask, unless the plan in force is one for this ring and this world."""
        ring, held = self._ring, self.state.held
        if ring is None or (held is not None and held.version.ballot > ring.ballot):
            self._rest()
            return
        revision = 1
        if held is not None and held.version.ballot == ring.ballot:
            revision = held.version.revision + 1
            made = self._plan(PlanVersion(ring.ballot, revision, self.server), now)
            if made is None or same_scopes(made.lines, held):
                self._rest()
                return
        if self._asked.ballot == ring.ballot:
            revision = max(revision, self._asked.revision + 1)
        self._asked = PlanVersion(ring.ballot, revision, self.server)
        self._answers, self._attempts = {}, 0
        self.stage = PlanningStage.ASKING
        self._send_ask(now)

    def _send_ask(self, now: int) -> None:
        self._out.append(Multicast(self._ask(self._asked)))
        self._at = now + self._every_ns

    def _decide_if_enough(self, now: int) -> None:
        """All of the ring have answered, or after a while a majority; and nobody holds what we do not."""
        ring = self._ring
        if ring is None:
            return
        counted = ring.ring if ring.uncertified else ring.universe
        answered = [site for site in counted if site in self._answers]
        every = all(site in self._answers for site in ring.ring)
        patient = self._attempts > self._timing.retries_max
        if not every and not (patient and len(answered) >= majority_of(ring)):
            return
        if any(ack.held > self.state.version for ack in self._answers.values()):
            return
        made = self._plan(self._asked, now)
        if made is None:
            self._rest()
            return
        self._keep(made.lines)
        self._out.append(made)
        self._holders, self._attempts = {}, 0
        self.stage = PlanningStage.TELLING
        self._tell(now)

    def _plan(self, version: PlanVersion, now: int) -> PlanMade | None:
        ring = self._ring
        if ring is None:
            return None
        try:
            return next_plan(self.state.held, self._world_of(ring.ring), now, version, self._stripe)
        except ConfigurationError as reason:
            self._out.append(PlanFailed(f"{reason.key}: {reason.rule}"))
            return None

    def _tell(self, now: int) -> None:
        held = self.state.held
        self._attempts += 1
        if held is None or self._attempts > _TELLS_MAX:
            self._rest()
            return
        self._out.append(Multicast(held._replace(sender=self.server)))
        self._at = now + self._every_ns

    def _rest(self) -> None:
        self.stage, self._at = PlanningStage.RESTING, NEVER

    def _ask(self, version: PlanVersion) -> LineAsk:
        epoch = NO_EPOCH if self._ring is None else self._ring.ballot
        return LineAsk(self._stripe, epoch, self.server, version, self.state.version)

    def _keep(self, lines: Lines) -> None:
        self.state = LineState(held=lines)
        self._out.append(KeepLines(self.state))
