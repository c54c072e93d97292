"""Colouring: never a clash, few colours, and what is kept is kept."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from isocast.reformation.scopes.addresses import Neighbours, assign, clique, fewer, neighbours

Edges = list[tuple[int, int]]
GRAPHS = st.lists(
    st.tuples(st.integers(0, 11), st.integers(0, 11)).filter(lambda pair: pair[0] < pair[1]), unique=True, max_size=45
)
EVERYBODY = range(12)


def graph(edges: Edges, count: int = 12) -> Neighbours:
    first, second = (np.array([edge[end] for edge in edges], dtype=np.int64) for end in (0, 1))
    return neighbours(count, first, second)


def ring(count: int) -> Edges:
    return [(place, (place + 1) % count) for place in range(count)]


@given(GRAPHS)
def test_no_neighbours_share_and_none_has_more_than_it_needs(edges: Edges) -> None:
    near = graph(edges)
    given_out = assign(near, EVERYBODY, {}, {})
    assert all(given_out[a] != given_out[b] for a, b in edges)
    assert max(given_out.values()) <= max(len(others) for others in near)
    again = fewer(near, given_out)
    assert all(again[a] != again[b] for a, b in edges)
    assert len(set(again.values())) <= len(set(given_out.values()))
    assert set(again) == set(EVERYBODY)


@given(GRAPHS)
def test_a_clique_is_one_and_bounds_the_addresses(edges: Edges) -> None:
    near = graph(edges)
    found = clique(near, EVERYBODY)
    assert all(b in near[a] for a, b in combinations(found, 2))
    assert len(found) <= len(set(assign(near, EVERYBODY, {}, {}).values()))


@given(GRAPHS, st.dictionaries(st.integers(0, 11), st.integers(0, 2**4 - 1)))
def test_what_is_barred_is_not_given(edges: Edges, barred: dict[int, int]) -> None:
    given_out = assign(graph(edges), EVERYBODY, {}, barred)
    assert not any(barred.get(scope, 0) >> address & 1 for scope, address in given_out.items())
    assert all(given_out[a] != given_out[b] for a, b in edges)


def test_even_rings_take_two_and_odd_ones_three() -> None:
    assert len(set(assign(graph(ring(8), 8), range(8), {}, {}).values())) == 2
    assert len(set(assign(graph(ring(7), 7), range(7), {}, {}).values())) == 3


def test_kept_addresses_stand_and_others_keep_clear_of_them() -> None:
    near = graph([(0, 1), (1, 2)], 3)
    assert assign(near, [1], {0: 0, 2: 1}, {}) == {1: 2}
    assert assign(near, [1], {0: 0, 2: 0}, {1: 0b10}) == {1: 2}
