"""The tables of whole arrays agree with Python's own."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from isocast.simulation.exploration.sweep import Lookup, Seen, Words, mixed

KEYS = st.lists(st.integers(1, 1 << 63), max_size=60)


def words(numbers: Iterable[int]) -> Words:
    return np.array(list(numbers), np.uint64)


@given(st.lists(st.one_of(KEYS, st.lists(st.integers(1, 9), max_size=20)), max_size=6))
def test_each_key_is_new_once(batches: list[list[int]]) -> None:
    seen, known = Seen(), set[int]()
    for batch in batches:
        fresh = seen.add(words(batch)).tolist()
        expected = [place for place, key in enumerate(batch) if key not in known and key not in batch[:place]]
        assert fresh == expected
        known.update(batch)
    assert seen.count == len(known)


def test_keys_that_belong_to_one_slot_and_a_table_that_grows() -> None:
    seen = Seen()
    crowd = words(range(1 << 20, 9000 << 20, 1 << 20))
    assert seen.add(crowd[:2000]).size == 2000
    assert seen.add(crowd).size == crowd.size - 2000
    assert not seen.add(crowd[::-1]).size


@given(st.dictionaries(st.integers(0, (1 << 63) - 1), st.integers(0, 1 << 30), max_size=50), KEYS)
def test_numbers_are_found_by_key(table: dict[int, int], others: list[int]) -> None:
    lookup = Lookup()
    lookup.put(words(table), np.array(list(table.values()), np.int32))
    asked = [*table, *[key for key in others if key < 1 << 63]]
    assert lookup.get(words(asked)).tolist() == [table.get(key, -1) for key in asked]


def test_numbers_survive_growth() -> None:
    lookup = Lookup()
    for first in range(0, 20_000, 500):
        lookup.put(words(range(first, first + 500)), np.arange(first, first + 500, dtype=np.int32))
    assert lookup.get(words(range(20_000))).tolist() == list(range(20_000))
    assert lookup.get(words([20_000])).tolist() == [-1]


def test_mixing_keeps_numbers_apart() -> None:
    assert np.unique(mixed(words(range(100_000)))).size == 100_000
