"""Products that do not fit are seen, of every type of whole number."""

import numpy as np
import pytest

from isocast.feeds.tables import LARGEST, times, within


@pytest.mark.parametrize("factor", [1, 2, 10, 100, 10**9, LARGEST])
def test_a_product_is_exact_or_does_not_fit(factor: int) -> None:
    near = [LARGEST // factor + step for step in (-1, 0, 1)]
    numbers = [number for number in (0, 1, -1, *near, *(-each for each in near), -LARGEST) if abs(number) <= LARGEST]
    products, fits = times(np.array(numbers, np.int64), factor)
    assert fits.tolist() == [abs(number * factor) <= LARGEST for number in numbers]
    assert products.tolist() == [number * factor if abs(number * factor) <= LARGEST else 0 for number in numbers]


@pytest.mark.parametrize("kind", ["u1", "i1", "u4", "i8", "u8"])
def test_bounds_are_compared_as_they_are(kind: str) -> None:
    ends = np.iinfo(kind)
    values = np.array([ends.min, ends.max, 5], kind)
    assert within(values, -LARGEST, LARGEST).tolist() == [abs(int(value)) <= LARGEST for value in values]
    assert within(values, 0, 4).tolist() == [0 <= int(value) <= 4 for value in values]
    assert within(values, 1 << 64, 1 << 65).tolist() == [False] * 3
    products, fits = times(values, 3)
    assert [int(product) for product, fit in zip(products, fits, strict=True) if fit] == [
        int(value) * 3 for value in values if abs(int(value) * 3) <= LARGEST
    ]
