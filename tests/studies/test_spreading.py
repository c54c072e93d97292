"""Parts of a study, done here or by processes: results in the order of the parts, errors at once."""

from __future__ import annotations

import pytest

from isocast.studies import spreading
from isocast.studies.spreading import Engine, Spreading, spread
from isocast.terms.errors import ConfigurationError


def times(factor: int, part: int) -> int:
    if part < 0:
        raise ValueError(part)
    return factor * part


@pytest.mark.parametrize("jobs", [1, 2, 9])
def test_results_come_in_the_order_of_the_parts(jobs: int) -> None:
    reached: list[int] = []
    assert spread(times, 3, range(20), Spreading(jobs=jobs), reached.append) == [3 * part for part in range(20)]
    assert reached == list(range(1, 21))


def test_no_parts_no_results() -> None:
    assert spread(times, 3, [], Spreading(jobs=2)) == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_of_a_part_is_raised(jobs: int) -> None:
    with pytest.raises(ValueError, match="-1"):
        spread(times, 3, [1, -1, 2], Spreading(jobs=jobs))


@pytest.mark.parametrize(
    "how, key",
    [
        (Spreading(jobs=-1), "--jobs"),
        (Spreading(jobs=1_000), "--jobs"),
        (Spreading(Engine.SPARK, partitions=-1), "--partitions"),
        (Spreading(partitions=2), "--partitions"),
        (Spreading(master="local[2]"), "--master"),
    ],
)
def test_what_cannot_work_is_named(how: Spreading, key: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        spread(times, 3, [1], how)
    assert caught.value.key == key


def test_without_spark_the_way_without_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spreading, "find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match=r"isocast\[spark\].*--engine local gives the same"):
        spread(times, 3, [1], Spreading(Engine.SPARK))
