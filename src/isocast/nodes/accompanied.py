"""A node of the ring together with its part in the plan of lines (§4.3): one machine for drivers, two inside.

Packets about lines go to the companion alone; everything else, and the time, to both. The companion sees the ring that
the node is on after each step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from isocast.ring.inputs import PacketsArrived
from isocast.wire.packets import LineAck, LineAsk, Lines, NewRing

__all__ = ["Accompanied"]

_ABOUT_LINES = (LineAsk, LineAck, Lines)


class _Machine(Protocol):
    def step(self, event: object, now: int) -> Sequence[object]: ...

    def next_deadline(self) -> int: ...


class _Companion(Protocol):
    def step(self, event: object, now: int, ring: NewRing | None) -> Sequence[object]: ...

    def next_deadline(self) -> int: ...


class Accompanied:
    """Steps the node, then its companion."""

    def __init__(self, machine: _Machine, companion: _Companion, ring: Callable[[], NewRing | None]) -> None:
        """`ring` tells the ring that the machine is on."""
        self._machine = machine
        self._companion = companion
        self._ring = ring

    def step(self, event: object, now: int) -> tuple[object, ...]:
        """Take one input at local time `now`; the node's effects come first."""
        mine, others = event, event
        if isinstance(event, PacketsArrived):
            about = [packet for packet in event.packets if isinstance(packet, _ABOUT_LINES)]
            mine = PacketsArrived(about)
            if about:
                others = PacketsArrived([packet for packet in event.packets if not isinstance(packet, _ABOUT_LINES)])
        effects = tuple(self._machine.step(others, now))
        return (*effects, *self._companion.step(mine, now, self._ring()))

    def next_deadline(self) -> int:
        """When either must be woken."""
        return min(self._machine.next_deadline(), self._companion.next_deadline())
