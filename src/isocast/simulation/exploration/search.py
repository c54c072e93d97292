"""Breadth-first search of a transition system, every state once: the first violation has a shortest trace."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Found", "SearchProgress", "System", "search"]


class System(Protocol):
    """What can be searched: states and moves are integers."""

    def start(self) -> int:
        """The first state."""

    def moves(self, state: int) -> list[tuple[int, int]]:
        """(what happens, the state after it), for everything that can happen."""

    def broken(self, state: int) -> tuple[str, str] | None:
        """The property that a state breaks, and how; None where all is well."""


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """How far a search is."""

    states: int
    transitions: int
    depth: int


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found."""

    states: int
    """Distinct states that were reached."""
    transitions: int
    depth: int
    """The length of the longest shortest trace."""
    exhausted: bool
    """Whether every state within the bounds was visited."""
    broken: tuple[str, str] | None
    """The first property that was broken, and how."""
    trace: tuple[int, ...]
    """What happened on a shortest way to it."""
    ends: int
    """States in which nothing more can happen."""


def search(
    system: System,
    states_max: int = 0,
    progress: Callable[[SearchProgress], None] | None = None,
    visit: Callable[[int, bool], None] | None = None,
) -> Found:
    """Search until a property breaks, all states are visited, or `states_max` is reached (0: no limit).

    `visit` is told of each state, and whether it is an end.
    """
    first = system.start()
    seen = {first}
    parents, moves = array("q", [-1]), array("q", [0])
    transitions = ends = depth = 0
    broken = system.broken(first)
    layer = [(0, first)]
    last = 0
    while layer and broken is None:
        following: list[tuple[int, int]] = []
        for origin, state in layer:
            found = system.moves(state)
            transitions += len(found)
            ends += not found
            if visit is not None:
                visit(state, not found)
            for move, after in found:
                if after in seen:
                    continue
                seen.add(after)
                parents.append(origin)
                moves.append(move)
                last = len(parents) - 1
                following.append((last, after))
                broken = system.broken(after)
                if broken is not None:
                    break
            if broken is not None or (states_max and len(seen) >= states_max):
                break
            if progress is not None and not origin % 1024:
                progress(SearchProgress(len(seen), transitions, depth))
        else:
            depth += bool(following)
            layer = following
            continue
        break
    exhausted = broken is None and not layer
    trace: list[int] = []
    while broken is not None and last > 0:
        trace.append(moves[last])
        last = parents[last]
    return Found(len(seen), transitions, depth + (broken is not None), exhausted, broken, tuple(reversed(trace)), ends)
