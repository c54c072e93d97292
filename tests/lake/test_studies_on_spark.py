"""Studies spread by Spark: the same bits as without it, under any number of partitions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.studies.planet.test_study import assert_same
from tests.studies.planet.worlds import small
from tests.studies.sweeps.test_running import SMALL

from isocast.cli.main import main
from isocast.studies.planet import study
from isocast.studies.planet.study import run_planet
from isocast.studies.spreading import Engine, Spreading, spread
from isocast.studies.sweeps.sweep import run_sweep
from isocast.terms.errors import NodeFailedError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def place_of(base: int, part: int) -> tuple[int, int]:
    """The part, and the process that did it."""
    import os  # noqa: PLC0415

    return base + part, os.getpid()


def test_parts_come_back_in_their_order_from_workers(spark: SparkSession) -> None:
    import os  # noqa: PLC0415

    assert spark.version
    reached: list[int] = []
    results = spread(place_of, 100, range(10), Spreading(Engine.SPARK, partitions=3), reached.append)
    assert [value for value, _ in results] == list(range(100, 110))
    assert os.getpid() not in [process for _, process in results]
    assert reached[-1] == 10


def broken(_: None, part: int) -> int:
    """A part that cannot be done."""
    raise ZeroDivisionError(f"part {part} of all things")


def test_a_part_that_fails_is_one_line(spark: SparkSession) -> None:
    assert spark.version
    with pytest.raises(NodeFailedError, match=r"^Spark gave up: .{1,500}$"):
        spread(broken, None, [1], Spreading(Engine.SPARK, partitions=1))


@pytest.mark.parametrize("several", [(2, 7), pytest.param((1, 37), marks=pytest.mark.long)])
def test_a_planet_is_the_same_under_any_partitioning(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, several: tuple[int, ...]
) -> None:
    """And without Spark at all."""
    assert spark.version
    monkeypatch.setattr(study, "_SERVERS_OF_PART", 1)
    monkeypatch.setattr(study, "_TOKENS_OF_PART", 1)
    whole = run_planet(small(core={"tokens": 40}), Spreading(jobs=1))
    for partitions in several:
        assert_same(whole, run_planet(small(core={"tokens": 40}), Spreading(Engine.SPARK, partitions=partitions)))


def test_a_sweep_is_the_same_by_spark(spark: SparkSession) -> None:
    assert spark.version
    whole = run_sweep(SMALL, Spreading(jobs=1))
    assert run_sweep(SMALL, Spreading(Engine.SPARK, partitions=3)).rows == whole.rows


def test_the_command_by_spark(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert spark.version
    file = tmp_path / "small.toml"
    file.write_text("receivers = 3\nmessages = 40\nservers = 1\n", encoding="utf-8")
    found = []
    for engine in (["local"], ["spark", "--partitions", "2"]):
        assert main(["sim", "sweep", str(file), "--vary", "loss=0,0.1", "--json", "--engine", *engine]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1]
