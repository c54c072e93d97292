"""A node of the ring together with its part in the plan of lines (§4.3): one machine for drivers, two inside.

Packets about lines go to the companion alone; everything else, and the time, to both. The companion sees the ring that
the node is on after each step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from isocast.reformation.scopes.line_keeper import LineInput, LinePacket
from isocast.ring.inputs import DriverInput, Machine, PacketsArrived, TimerFired
from isocast.wire.packets import NewRing

__all__ = ["Accompanied"]

Event = TypeVar("Event")
Effect = TypeVar("Effect")
LinesEffect = TypeVar("LinesEffect")
LinesEffect_co = TypeVar("LinesEffect_co", covariant=True)
_TIMER_FIRED = TimerFired()


class _Companion(Protocol[LinesEffect_co]):
    def step(self, event: LineInput, now: int, ring: NewRing | None) -> Sequence[LinesEffect_co]: ...

    def next_deadline(self) -> int: ...


class Accompanied(Generic[Event, Effect, LinesEffect]):
    """Steps the node, then its companion."""

    def __init__(
        self,
        machine: Machine[Event | DriverInput, Effect],
        companion: _Companion[LinesEffect],
        ring: Callable[[], NewRing | None],
    ) -> None:
        """`ring` tells the ring that the machine is on."""
        self._machine = machine
        self._companion = companion
        self._ring = ring

    def step(self, event: Event | DriverInput, now: int) -> tuple[Effect | LinesEffect, ...]:
        """Take one input at local time `now`; the node's effects come first."""
        mine: LineInput = _TIMER_FIRED
        others = event
        if isinstance(event, PacketsArrived):
            about = [packet for packet in event.packets if isinstance(packet, LinePacket)]
            mine = PacketsArrived(about)
            if about:
                others = PacketsArrived([packet for packet in event.packets if not isinstance(packet, LinePacket)])
        effects = tuple(self._machine.step(others, now))
        return (*effects, *self._companion.step(mine, now, self._ring()))

    def next_deadline(self) -> int:
        """When either must be woken."""
        return min(self._machine.next_deadline(), self._companion.next_deadline())
