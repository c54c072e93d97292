"""Chance by counter: streams that depend on nothing but their names, and losses with the right share."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from isocast.studies.planet.settings import StreamPurpose, generator, lost_places


def test_a_stream_depends_on_its_names_alone() -> None:
    first = generator(7, StreamPurpose.TOKEN, 3).random(5)
    generator(7, StreamPurpose.TOKEN, 4).random(100)
    assert np.array_equal(generator(7, StreamPurpose.TOKEN, 3).random(5), first)


@pytest.mark.parametrize(
    "other", [(8, StreamPurpose.TOKEN, 3), (7, StreamPurpose.SERVER, 3), (7, StreamPurpose.TOKEN, 4)]
)
def test_streams_of_other_names_are_others(other: tuple[int, StreamPurpose, int]) -> None:
    assert not np.array_equal(generator(*other).random(5), generator(7, StreamPurpose.TOKEN, 3).random(5))


@pytest.mark.parametrize("loss", [0.0005, 0.01, 0.3, 0.97])
def test_so_many_are_lost_as_the_probability_says(loss: float) -> None:
    total = 400_000
    lost = lost_places(generator(1, StreamPurpose.TOKEN, 0), total, loss)
    assert len(lost) == pytest.approx(total * loss, abs=4 * sqrt(total * loss * (1 - loss)))
    assert lost[0] >= 0
    assert lost[-1] < total
    assert (np.diff(lost) > 0).all()


def test_every_place_is_lost_alike() -> None:
    random = generator(1, StreamPurpose.TOKEN, 0)
    counts = np.zeros(10, dtype=np.int64)
    for _ in range(20_000):
        counts[lost_places(random, 10, 0.1)] += 1
    assert counts == pytest.approx(np.full(10, 2_000), abs=4 * sqrt(2_000))


@pytest.mark.parametrize("total, loss, expected", [(0, 0.5, 0), (5, 0.0, 0), (5, 1.0, 5), (3, 1e-18, 0)])
def test_nothing_everything_and_next_to_nothing(total: int, loss: float, expected: int) -> None:
    assert len(lost_places(generator(1, StreamPurpose.TOKEN, 0), total, loss)) == expected
