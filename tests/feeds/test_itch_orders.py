"""The table of orders, against a dictionary."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from isocast.feeds.itch_layout import OrderTable

STEPS = st.lists(
    st.tuples(st.sampled_from(["enter", "drop", "shrink"]), st.lists(st.integers(0, 60), min_size=1, max_size=30)),
    max_size=30,
)


def enter(table: OrderTable, numbers: list[int], price: int) -> list[bool]:
    count = len(numbers)
    found: list[bool] = table.enter(
        np.array(numbers, np.uint64),
        np.full(count, price),
        np.ones(count),
        np.array(numbers) % 7,
        np.full(count, 10),
    ).tolist()
    return found


@settings(max_examples=60)
@given(steps=STEPS, spread=st.sampled_from([1, 1 << 20, (1 << 58) + 1]))
def test_it_says_what_a_dictionary_says(steps: list[tuple[str, list[int]]], spread: int) -> None:
    table = OrderTable()
    model: dict[int, list[int]] = {}
    for price, (what, chosen) in enumerate(steps):
        numbers = sorted({number * spread for number in chosen})
        if what == "enter":
            stood = enter(table, numbers, price)
            assert stood == [number in model for number in numbers]
            model.update({number: [price, 10] for number in numbers})
        else:
            slots = table.find(np.array(numbers, np.uint64))
            known = slots[slots >= 0]
            if what == "drop":
                table.drop(known)
            else:
                table.shrink(known, np.full(len(known), 4))
            for number in numbers:
                if number in model:
                    model[number][1] -= 10 if what == "drop" else 4
                    if model[number][1] <= 0:
                        del model[number]
        everything = np.array([number * spread for number in range(61)], np.uint64)
        slots = table.find(everything)
        found = {
            int(number): int(table.price[slot]) for number, slot in zip(everything, slots, strict=True) if slot >= 0
        }
        assert found == {number: values[0] for number, values in model.items()}


def test_it_grows_and_forgets_what_has_gone() -> None:
    table = OrderTable()
    for start in range(0, 100_000, 1_000):
        numbers = list(range(start, start + 1_000))
        enter(table, numbers, start)
        table.drop(table.find(np.array(numbers[100:], np.uint64)))
    kept = table.find(np.arange(100_000, dtype=np.uint64)) >= 0
    assert kept.sum() == 10_000
    assert table.count < 60_000


def test_a_number_twice_in_one_step_is_one_order() -> None:
    table = OrderTable()
    enter(table, [5, 5], 1)
    assert (table.find(np.array([5], np.uint64)) >= 0).all()
    table.drop(table.find(np.array([5], np.uint64)))
    assert (table.find(np.array([5], np.uint64)) < 0).all()
