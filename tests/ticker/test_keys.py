"""The table of pairs against a dictionary."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from isocast.ticker.records import KeyTable, stable_order

_WORD = st.one_of(st.integers(0, 3), st.sampled_from([1 << 63, (1 << 64) - 1, 1 << 32]))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.tuples(_WORD, _WORD), max_size=20, unique=True), max_size=5))
def test_a_table_finds_what_a_dictionary_finds(calls: list[list[tuple[int, int]]]) -> None:
    table, known, number = KeyTable(), dict[tuple[int, int], int](), 0
    everything = [(first, second) for first in (0, 1, 2, 3, 1 << 32) for second in (0, 1, 2, 3, 1 << 63)]
    for pairs in calls:
        words = np.array(pairs, np.uint64).reshape(-1, 2)
        numbers = np.arange(number, number + len(pairs))
        table.put(words[:, 0], words[:, 1], numbers)
        known.update(zip(pairs, numbers.tolist(), strict=True))
        number += len(pairs)
    asked = np.array(everything, np.uint64)
    found = table.find(asked[:, 0], asked[:, 1]).tolist()
    assert found == [known.get(pair, -1) for pair in everything]
    assert len(table) == len(known)


def test_a_table_grows_and_forgets_nothing() -> None:
    table, first = KeyTable(), np.arange(50_000, dtype=np.uint64)
    for start in range(0, 50_000, 7_000):
        part = first[start : start + 7_000]
        table.put(part, part * np.uint64(1 << 40), part.view(np.int64))
    assert (table.find(first, first * np.uint64(1 << 40)) == np.arange(50_000)).all()
    assert (table.find(first + np.uint64(50_000), first) == -1).all()


def test_order_is_stable_for_few_numbers_and_for_many() -> None:
    numbers = np.random.default_rng(1).integers(0, 50, 1_000)
    expected = sorted(range(1_000), key=lambda place: numbers[place])
    assert stable_order(numbers, 50).tolist() == expected
    assert stable_order(numbers + 70_000, 70_050).tolist() == expected
