"""The search visits what there is, once, and finds the shortest way to what is broken."""

from __future__ import annotations

from isocast.simulation.exploration.search import SearchProgress, search


class Counters:
    """`count` counters that each run from 0 to `top`: every state, transition and depth is known in closed form."""

    def __init__(self, count: int, top: int, broken_at: tuple[int, ...] | None = None) -> None:
        self._count = count
        self._base = top + 1
        self._broken_at = broken_at

    def start(self) -> int:
        return 0

    def digits(self, state: int) -> tuple[int, ...]:
        return tuple([state // self._base**place % self._base for place in range(self._count)])

    def moves(self, state: int) -> list[tuple[int, int]]:
        return [
            (place, state + self._base**place)
            for place, digit in enumerate(self.digits(state))
            if digit < self._base - 1
        ]

    def broken(self, state: int) -> tuple[str, str] | None:
        return ("sum", str(state)) if self.digits(state) == self._broken_at else None


def test_counters_are_explored_completely() -> None:
    found = search(Counters(4, 3))
    assert found.states == 4**4
    assert found.transitions == 4 * 3 * 4**3
    assert found.depth == 4 * 3
    assert found.ends == 1
    assert found.exhausted
    assert found.broken is None


def test_every_state_is_visited_once() -> None:
    visited: list[int] = []
    search(Counters(3, 2), visit=lambda state, _: visited.append(state))
    assert sorted(visited) == list(range(27))


def test_the_first_violation_has_a_shortest_trace() -> None:
    system = Counters(3, 4, broken_at=(1, 0, 3))
    found = search(system)
    assert found.broken == ("sum", str(1 + 3 * 25))
    assert sorted(found.trace) == [0, 2, 2, 2]
    assert found.depth == 4
    assert not found.exhausted


def test_a_trace_leads_to_the_violation() -> None:
    system = Counters(3, 4, broken_at=(2, 1, 2))
    state = system.start()
    for move in search(system).trace:
        state = dict(system.moves(state))[move]
    assert system.broken(state)


def test_a_beginning_that_is_broken_needs_no_trace() -> None:
    found = search(Counters(2, 2, broken_at=(0, 0)))
    assert found.broken
    assert found.trace == ()


def test_a_limit_ends_the_search_and_says_so() -> None:
    found = search(Counters(4, 9), states_max=500)
    assert 500 <= found.states < 510
    assert not found.exhausted


def test_progress_is_told() -> None:
    told: list[SearchProgress] = []
    search(Counters(4, 9), progress=told.append)
    assert [progress.states for progress in told] == sorted([progress.states for progress in told])
    assert len(told) == 10
