"""A receiver's part in the plan of lines: it promises, keeps and follows it; and what it means for each node (§4.3).

A plan is taken if it is not below what was promised and not of a ring before ours; it is on disk before it is
acknowledged. Nobody moves its line before a majority of U holds the plan: so whichever server plans next meets
somebody who knows where every line is, or has just been, and no address is given away before its time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from typing import TypeAlias, assert_never

from isocast.ring.effects import Multicast, Unicast
from isocast.ring.inputs import PacketsArrived, TimerFired
from isocast.terms.ids import NO_EPOCH, NodeId, is_server
from isocast.terms.instants import MILLISECOND, NEVER, SECOND
from isocast.terms.topology import City, great_circle_km
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

__all__ = [
    "REPEAT_LEAST_NS",
    "KeepLines",
    "LineEffect",
    "LineHostEffect",
    "LineKeeper",
    "LineState",
    "LinesSettled",
    "PlanFailed",
    "PlanMade",
    "PlannerHostEffect",
    "group_of",
    "hearing",
    "majority_of",
    "radius_of",
    "reaches",
    "scope_of",
    "sources",
    "speaking",
]


# What the machines of a plan of lines want done, or told (§4.3; protocol §7).


@dataclass(frozen=True, slots=True)
class LineState:
    """What a server or a receiver must not forget of plans."""

    promised: PlanVersion = NO_VERSION
    """A receiver's: it takes no plan below."""
    held: Lines | None = None
    """The newest plan that it took, or made."""
    settled: Lines | None = None
    """A receiver's: the newest that a majority is known to hold, which its line follows."""

    @property
    def version(self) -> PlanVersion:
        """Of the plan that is held."""
        return NO_VERSION if self.held is None else self.held.version


@dataclass(frozen=True, slots=True)
class KeepLines:
    """Bring this to the disk before anything is sent."""

    state: LineState


@dataclass(frozen=True, slots=True)
class LinesSettled:
    """A majority holds this plan: lines follow it from now on."""

    lines: Lines


@dataclass(frozen=True, slots=True)
class PlanMade:
    """A server made this plan; `short` are customers who hear too little by it, each with the reason."""

    lines: Lines
    changed: int
    """Scopes that are not as they were."""
    moved: int
    """Of those, the ones that have another address."""
    short: tuple[tuple[str, int, str], ...]


@dataclass(frozen=True, slots=True)
class PlanFailed:
    """No plan can be made: the one in force stands."""

    rule: str


REPEAT_LEAST_NS = 50 * MILLISECOND
_REPEAT_MOST_NS = 2 * SECOND

LinePacket: TypeAlias = LineAsk | LineAck | Lines
"""The packets about lines."""
LineInput: TypeAlias = PacketsArrived | TimerFired
LineHostEffect: TypeAlias = KeepLines | LinesSettled
"""What the host of a receiver performs; that of a server: `PlannerHostEffect`."""
PlannerHostEffect: TypeAlias = KeepLines | PlanMade | PlanFailed
LineEffect: TypeAlias = LineHostEffect | Multicast | Unicast


def majority_of(ring: NewRing) -> int:
    """Receivers that must hold a plan before lines follow it: of U, or of a ring that began without its majority."""
    return len(ring.ring if ring.uncertified else ring.universe) // 2 + 1


class LineKeeper:
    """The machine of one receiver."""

    def __init__(self, site: NodeId, stripe: int, retry_ns: int, state: LineState | None = None) -> None:
        """Start, or restart, from what the disk says."""
        self.site = site
        self.state = state or LineState()
        self._stripe = stripe
        self._least_ns = max(retry_ns, REPEAT_LEAST_NS)
        self._wait_ns = self._least_ns
        self._ring: NewRing | None = None
        self._holders: dict[NodeId, None] = {}
        self._told_at = -NEVER
        self._at = 0
        self._last_now = -NEVER
        self._out: list[LineEffect] = []

    def step(self, event: LineInput, now: int, ring: NewRing | None) -> tuple[LineEffect, ...]:
        """Take one input at local time `now`, on the ring that this site has installed."""
        if now < self._last_now:
            self._at, self._told_at = min(self._at, now), -NEVER
        self._last_now = now
        if ring is not None and (self._ring is None or ring.ballot != self._ring.ballot):
            self._ring = ring
            self._hurry(now)
        match event:
            case PacketsArrived(packets):
                for packet in packets:
                    if isinstance(packet, LinePacket):
                        self._on_packet(packet, now)
            case TimerFired():
                pass
            case _:
                assert_never(event)
        self._settle(now)
        if now >= self._at:
            self._repeat(now)
        effects = tuple(self._out)
        self._out.clear()
        return effects

    def next_deadline(self) -> int:
        """When the machine must be woken."""
        return self._at

    # Packets ------------------------------------------------------------------------------------

    def _on_packet(self, packet: LinePacket, now: int) -> None:
        match packet:
            case LineAsk() if is_server(packet.sender):
                self._on_ask(packet, now)
            case Lines() if is_server(packet.sender):
                self._on_lines(packet, now)
            case LineAck():
                self._on_ack(packet, now)
            case LineAsk() | Lines():
                # Only servers ask and plan.
                pass
            case _:
                assert_never(packet)

    def _on_ask(self, ask: LineAsk, now: int) -> None:
        """Promise, and answer with the plan that is held; a server with an older one gets it."""
        if ask.version > self.state.promised:
            self._keep(replace(self.state, promised=ask.version))
        if self.state.held is not None and ask.held < self.state.version:
            self._out.append(Unicast(ask.sender, self._own(self.state.held)))
        self._acknowledge(now)

    def _on_lines(self, lines: Lines, now: int) -> None:
        """A plan: taken if it is the newest, promised or more, and not of a ring that is gone."""
        ours = NO_EPOCH if self._ring is None else self._ring.ballot
        state = self.state
        if lines.version > state.version and lines.version >= state.promised and lines.version.ballot >= ours:
            self._keep(replace(state, promised=lines.version, held=lines))
            self._holders = {}
            self._hurry(now)
        self._acknowledge(now)

    def _on_ack(self, ack: LineAck, now: int) -> None:
        """Another receiver holds something: count it, or help it to know that it is settled."""
        held = self.state.version
        if not held.revision or ack.held != held:
            return
        self._holders[ack.sender] = None
        if ack.settled:
            self._follow()
        elif self._settled and not self._told_at <= now < self._told_at + self._least_ns:
            self._acknowledge(now)

    # Settling -----------------------------------------------------------------------------------

    @property
    def _settled(self) -> bool:
        held, settled = self.state.held, self.state.settled
        return held is not None and settled is not None and held.version == settled.version

    def _settle(self, now: int) -> None:
        """A majority holds what we hold: the line follows it."""
        ring = self._ring
        if ring is None or self.state.held is None or self._settled:
            return
        counted = ring.ring if ring.uncertified else ring.universe
        holders = [site for site in counted if site == self.site or site in self._holders]
        if len(holders) >= majority_of(ring):
            self._follow()
            self._acknowledge(now)

    def _follow(self) -> None:
        held = self.state.held
        if held is not None and not self._settled:
            self._keep(replace(self.state, settled=held))
            self._out.append(LinesSettled(held))

    # Telling ------------------------------------------------------------------------------------

    def _repeat(self, now: int) -> None:
        """As long as something is missing: what a server or another receiver hears, it answers."""
        ring = self._ring
        if ring is None or (self._settled and self.state.version.ballot >= ring.ballot):
            self._at = NEVER
            return
        self._acknowledge(now)
        self._at = now + self._wait_ns
        self._wait_ns = min(2 * self._wait_ns, _REPEAT_MOST_NS)

    def _hurry(self, now: int) -> None:
        self._wait_ns = self._least_ns
        self._at = min(self._at, now + self._least_ns)

    def _acknowledge(self, now: int) -> None:
        self._told_at = now
        state, epoch = self.state, NO_EPOCH if self._ring is None else self._ring.ballot
        self._out.append(
            Multicast(
                LineAck(self._stripe, epoch, self.site, state.promised, state.version, settled=self._settled),
            )
        )

    def _own(self, lines: Lines) -> Lines:
        """The same plan, as said by this node."""
        return lines._replace(sender=self.site)

    def _keep(self, state: LineState) -> None:
        self.state = state
        self._out.append(KeepLines(state))


# What a plan of lines means for one node: where a receiver speaks, and what a listener hears, at an instant.
#
# Pure functions of the plan and the time. A receiver that left an address speaks there as well for the first half of
# the address's drain time, so that whoever listens comes along without a gap; the second half is silence.


_METRES = 1000
_SLACK_M = 1
"""Radii are rounded up to the metre, and two ways of computing a distance differ by less than that."""


def group_of(lines: Lines, address: int) -> str:
    """The first group of an address."""
    return str(IPv4Address(lines.first_group + address * lines.stripes))


def scope_of(lines: Lines | None, site: NodeId) -> LineScope | None:
    """The scope of one receiver; None if the plan does not have it."""
    if lines is None:
        return None
    return next((scope for scope in lines.scopes if scope.site == site), None)


def reaches(one: LineScope | LineRest, place: City) -> bool:
    """Whether who stands there hears it."""
    away_m = great_circle_km(City("", "", one.latitude, one.longitude), place) * _METRES
    return one.radius_m > 0 and away_m <= one.radius_m + _SLACK_M


def sources(lines: Lines, place: City) -> tuple[NodeId, ...]:
    """The receivers that a listener hears by the plan, the nearest first."""
    near = [
        (great_circle_km(City("", "", scope.latitude, scope.longitude), place), scope.site)
        for scope in lines.scopes
        if reaches(scope, place)
    ]
    return tuple([site for _, site in sorted(near)])


def hearing(lines: Lines, place: City, now: int, drain_ns: int) -> dict[str, tuple[NodeId, ...]]:
    """The groups that a listener joins, and of each the receivers that it means: others there are out of reach."""
    found: dict[str, dict[NodeId, None]] = {}
    heard: list[LineScope | LineRest] = [scope for scope in lines.scopes if scope.address != NO_ADDRESS]
    heard += [rest for rest in lines.rests if _still_spoken(rest, now, drain_ns)]
    for one in heard:
        if reaches(one, place):
            found.setdefault(group_of(lines, one.address), {})[one.site] = None
    return {group: tuple(sites) for group, sites in found.items()}


def speaking(lines: Lines, site: NodeId, now: int, drain_ns: int) -> dict[str, int]:
    """The groups on which a receiver speaks now, and how many metres far."""
    found: dict[str, int] = {}
    scope = scope_of(lines, site)
    mine: list[LineScope | LineRest] = [scope] if scope is not None and scope.address != NO_ADDRESS else []
    mine += [rest for rest in lines.rests if rest.site == site and _still_spoken(rest, now, drain_ns)]
    for one in mine:
        group = group_of(lines, one.address)
        found[group] = max(found.get(group, 0), one.radius_m)
    return found


def radius_of(lines: Lines | None, site: NodeId) -> int:
    """In metres; 0 for a silent scope."""
    scope = scope_of(lines, site)
    return 0 if scope is None else scope.radius_m


def _still_spoken(rest: LineRest, now: int, drain_ns: int) -> bool:
    return now < _spoken_until(rest, drain_ns)


def _spoken_until(rest: LineRest, drain_ns: int) -> int:
    return rest.free_at - drain_ns // 2
