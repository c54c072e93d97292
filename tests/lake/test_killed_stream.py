"""The driver and its JVM killed by -9 and started again, while a writer appends: every event exactly once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn
from tests.lake.markets import Market, write_market
from tests.lake.test_pipeline import rows

from isocast.lake.pipeline import Origin, run
from isocast.lake.tables import Lake

KILLS = 5
PATIENCE_S = 240


def start(what: str, market: Market, place: Path) -> subprocess.Popen[bytes]:
    """A session of its own, so that the JVM, which belongs to it, dies with it."""
    script = Path(__file__).with_name("killed_stream.py")
    with (place / "said").open("ab") as said:
        return subprocess.Popen(
            [sys.executable, str(script), what, str(market.path), str(place)],
            stdout=said,
            stderr=said,
            start_new_session=True,
        )


def numbered(place: Path, kind: str) -> set[str]:
    """What has a number so far: batches that were planned (`offsets`) or finished (`commits`), entries of a log."""
    folder = place / kind
    return {path.name for path in folder.iterdir() if path.stem.isdecimal()} if folder.exists() else set()


def wait_for_more(child: subprocess.Popen[bytes], place: Path, kind: str, than: int) -> None:
    until = time.monotonic() + PATIENCE_S
    while len(numbered(place, kind)) <= than:
        assert child.poll() is None, (place / "said").read_text(errors="replace")[-3_000:]
        assert time.monotonic() < until, f"no new {kind} in {PATIENCE_S} s"
        time.sleep(0.005)


@pytest.mark.long
def test_five_kills_lose_nothing_and_repeat_nothing(spark: SparkSession, tmp_path: Path) -> None:
    market = write_market(tmp_path / "market", receivers=2, stripes=(0, 1), events=4_000, segment_bytes=100_000)
    place = tmp_path / "place"
    place.mkdir()
    unfinished = 0
    for kill in range(KILLS):
        child = start("query", market, place)
        try:
            # Once in the middle of a batch, once just after one.
            kind = "checkpoint/offsets" if kill % 2 else "checkpoint/commits"
            seen = len(numbered(place, kind))
            for stripe in market.stripes:
                market.append(stripe, 3_000, seed=100 + kill)
            wait_for_more(child, place, kind, seen)
        finally:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        unfinished += len(numbered(place, "checkpoint/offsets") - numbered(place, "checkpoint/commits"))
    (place / "enough").touch()
    child = start("query", market, place)
    assert child.wait(PATIENCE_S) == 0, (place / "said").read_text(errors="replace")[-3_000:]
    assert unfinished, "no kill met a batch under way"
    got = spark.read.parquet(str(place / "out"))
    whole = spark.read.format("isocast").load(str(market.path))
    keys = ("stripe", "sequence", "index")
    assert got.groupBy(*keys).count().where("count > 1").count() == 0
    assert got.count() == whole.count()
    assert whole.select(*keys, "price").exceptAll(got).count() == 0
    assert got.agg(fn.sum("price")).first() == whole.agg(fn.sum("price")).first()


@pytest.mark.long
def test_a_pipeline_that_is_killed_ends_with_the_tables_of_one_that_was_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Killed as soon as a table has one version more: the others do not have it yet."""
    market = write_market(tmp_path / "market", receivers=1, stripes=(0, 1), events=1_500, symbols=3)
    place = tmp_path / "place"
    place.mkdir()
    for kill, table in enumerate(("bronze/released", "silver/tape", "silver/quotes", "gold/bars", "bronze/released")):
        child = start("pipeline", market, place)
        log = f"lake/{table}/_log"
        try:
            seen = len(numbered(place, log))
            market.append(kill % 2, 900, seed=100 + kill)
            wait_for_more(child, place, log, seen)
        finally:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    (place / "enough").touch()
    child = start("pipeline", market, place)
    assert child.wait(PATIENCE_S) == 0, (place / "said").read_text(errors="replace")[-3_000:]
    killed, whole = Lake.open(place / "lake"), Lake.create(tmp_path / "whole")
    for lake in (killed, whole):
        run(spark, lake, Origin(market.path))
    assert rows(killed) == rows(whole)
