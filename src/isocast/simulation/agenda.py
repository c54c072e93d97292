"""Virtual time: what happens next, in an order that depends on nothing but the instants and the insertions."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

__all__ = ["Agenda"]


class Agenda:
    """Actions by instant. Actions of one instant happen in the order in which they were put down."""

    def __init__(self) -> None:
        """Start at instant zero."""
        self.now = 0
        self._instants: list[int] = []
        self._actions: dict[int, list[tuple[Callable[..., None], object]]] = {}

    def put(self, instant: int, action: Callable[..., None], argument: object) -> None:
        """Call action(argument) at `instant`; an instant already past means now."""
        instant = max(instant, self.now)
        actions = self._actions.get(instant)
        if actions is None:
            self._actions[instant] = [(action, argument)]
            heappush(self._instants, instant)
        else:
            actions.append((action, argument))

    def run(self, until: int) -> None:
        """Let everything happen that is due before or at `until`."""
        instants, waiting = self._instants, self._actions
        while instants and instants[0] <= until:
            self.now = instant = heappop(instants)
            for action, argument in waiting.pop(instant):
                action(argument)
        self.now = max(self.now, until)

    @property
    def next_instant(self) -> int | None:
        """When the next action is due."""
        return self._instants[0] if self._instants else None
