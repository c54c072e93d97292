"""How fast the lake is: each figure beside that of other engines on the same files, in the same run.

    python bench/lake.py [--json] [--events N[,N…]] [--rounds N] [--only PART[,PART…]]
                         [--stream-seconds S] [--stream-rate N] [--alone] [--directory DIR]
                         [--master local[2]]

A market's journal is written: two thirds quotes, one third trades, 500 symbols of which a few are most busy, four
floors. From it, for each number of events:

read    `format("isocast")` against `spark.read.parquet` of the same rows and columns: four, ten and all of them, thrown
        away and added up
bars    one-minute bars: Spark, DuckDB, Polars, dbl-tempo
vwap    one-minute VWAP, and that of the 30 minutes before
asof    every trade with bid and ask of its floor as they stood: ordered slices, which also give the best of all
        floors; Spark's union and last; DuckDB; Polars; dbl-tempo
stream  journal to bronze, silver and gold in batches: events a second; then behind a writer: seconds from release
        until the event is in all tables

Engines that are not installed are left out. Time is that of the whole process tree: seconds on the wall and of CPU, the
best of the rounds after one that warms up; the ratio is that of CPU. Memory is the highest that each took: Java, whose
heap grows up to `spark.driver.memory` before it is cleaned, Spark's Python workers, and this process, in which DuckDB
and Polars run and which gives little back. All answers are compared: exit code 1 if they differ.

`--events 2000000,20000000,100000000` shows growth; the files of one number are gone before the next. A hundred million
events are 4.8 GB of journal and half as much Parquet, and `stream` makes its tables besides.

Few columns of journals cost more than the same of Parquet. Spark's Parquet reader hands whole columns to the query. A
Python source gives Arrow columns too, but Spark 4.3 takes them apart on the way: a projection copies each row, about a
tenth of a microsecond of CPU time before anything is done with it, and that is half of what four columns cost. With
more columns decoding counts for more, and records of a fixed size need none.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import gettempdir
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from lake_engines import (
    MINUTE,
    PLACE,
    asof_query,
    asof_sums,
    duck,
    has,
    polars_asof,
    polars_bars,
    polars_vwap,
    spark_vwap,
    tempo_asof,
    tempo_bars,
    union_and_last,
    vwap_query,
    whole,
)
from lake_market import Figures, Memory, events_of, make_market, measured, say, write_journal
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as Spark is written
from scratch import folder

from isocast.lake.pipeline import Origin, stream
from isocast.lake.session import spark_session
from isocast.lake.tables import Lake
from isocast.lake.transforms.bars import bars
from isocast.lake.transforms.quotes import trades_with_quotes
from isocast.lake.transforms.slices import Sliced, sliced_files
from isocast.runtime.disk.journal import Journal

OTHERS = ("bars", "vwap", "asof")
"""Parts in which other engines, and other plans, are beside ours."""
PARTS = ("read", "bars", "vwap", "asof", "stream")
BYTES_PER_EVENT = 140
"""On disk: journal and Parquet file, and as much again for the tables of `stream`."""
FOUR = ("symbol", "price", "quantity", "kind")
TEN = (*FOUR, "sequence", "index", "floor", "side", "event_ns", "id")

# ---- what is compared


class Bench:
    """One number of events."""

    def __init__(self, spark: SparkSession, place: Path, count: int, rounds: int, memory: Memory) -> None:
        """Write the journal, and the same rows as Parquet."""
        self.spark, self.rounds, self.count, self.memory = spark, rounds, count, memory
        self.journals, self.parquet = make_market(place, count)
        self.place = place
        self.wrong: list[str] = []
        self.alone = False
        frame = spark.read.format("isocast").load(str(self.journals))
        frame.drop("stripe").write.parquet(str(self.parquet))
        say(f"journal {_megabytes(self.journals):,} MB, Parquet {_megabytes(self.parquet):,} MB")
        self.files = sorted(str(path) for path in self.parquet.glob("*.parquet") if pq.read_metadata(path).num_rows)
        self.schema = frame.schema

    def released(self) -> DataFrame:
        """All rows, from Parquet."""
        return self.spark.read.parquet(*self.files).withColumn("stripe", F.lit(0))

    def slices(self) -> Sliced:
        """The files as ordered slices; the pass that says how each ends is part of what is measured."""
        return sliced_files(self.spark, [(path, 0) for path in self.files], self.schema)

    def compare(self, part: str, ways: dict[str, Callable[[], Any]]) -> Figures:
        """Run each way; all must answer the same."""
        figures: Figures = {}
        expected = None
        self.memory.lap()
        for name, way in list(ways.items())[: 1 if self.alone and part in OTHERS else None]:
            answer, figures[name] = measured(way, self.rounds)
            figures[name]["memory_mb"] = self.memory.lap()
            expected = answer if expected is None else expected
            # dbl-tempo's bars have no volume, which is what comes last.
            if answer != (expected[: len(answer)] if name == "dbl-tempo" else expected):
                self.wrong.append(f"{part}: {name} answers {answer}, not {expected}")
            say(f"{part:24} {name:15} {_line(figures[name])}")
        first = next(iter(figures.values()))["cpu_s"]
        for of in figures.values():
            of["cpu_to_first"] = round(of["cpu_s"] / first, 3)
        return figures

    def read(self) -> Figures:
        """The source against Parquet, the same columns and the same work."""
        made: Figures = {}
        every = tuple(name for name in self.schema.names if name != "stripe")
        for columns in (FOUR, TEN, every):
            for work in (thrown_away, added_up):
                ways = {
                    "parquet": partial(self._from_parquet, columns, work),
                    "isocast": partial(self._from_journals, columns, work),
                }
                group = f"{len(columns)} {work.__name__.replace('_', ' ')}"
                made[group] = self.compare(f"read {group}", ways)
        return made

    def _from_parquet(self, columns: tuple[str, ...], work: Callable[[DataFrame], Any]) -> Any:  # noqa: ANN401 - sums
        return work(self.spark.read.parquet(*self.files).select(*columns))

    def _from_journals(self, columns: tuple[str, ...], work: Callable[[DataFrame], Any]) -> Any:  # noqa: ANN401
        return work(self.spark.read.format("isocast").option("columns", ",".join(columns)).load(str(self.journals)))

    def bars(self) -> Figures:
        """Open, high, low, close, volume, trades and VWAP of each minute."""
        tape = self.released().where("kind = 1").withColumn("state", F.lit(0))
        query = f"""select count(*), sum(open), sum(high), sum(low), sum(close), sum(volume) from (
            select symbol, event_ns // {MINUTE.ns} m, arg_min(price, {PLACE}) open, max(price) high, min(price) low,
            arg_max(price, {PLACE}) as close, sum(quantity) volume, count(*) n, sum(price * quantity) / sum(quantity) v
            from '{self.parquet}/*.parquet' where kind = 1 group by all)"""  # noqa: S608 - our own files
        names = ("open", "high", "low", "close", "volume")
        ways: dict[str, Callable[[], Any]] = {
            "spark": lambda: whole(bars(tape, MINUTE).agg(F.count("*"), *map(F.sum, names)).collect()[0])
        }
        if has("duckdb"):
            ways["duckdb"] = lambda: whole(duck(query))
        if has("polars"):
            ways["polars"] = lambda: whole(polars_bars(self.files))
        if has("tempo"):
            ways["dbl-tempo"] = lambda: whole(tempo_bars(tape))
        return self.compare("bars", ways)

    def vwap(self) -> Figures:
        """Of each minute, and of the half hour before."""
        tape = self.released().where("kind = 1").withColumn("state", F.lit(0))
        ways: dict[str, Callable[[], Any]] = {"spark": lambda: whole(spark_vwap(tape))}
        if has("duckdb"):
            ways["duckdb"] = lambda: whole(duck(vwap_query(self.parquet)))
        if has("polars"):
            ways["polars"] = lambda: whole(polars_vwap(self.files))
        return self.compare("vwap", ways)

    def asof(self) -> Figures:
        """Bid and ask of its floor at each trade."""
        columns = ["sequence", "index", "symbol", "floor", "price", "quantity"]
        ways: dict[str, Callable[[], Any]] = {
            "ordered slices": lambda: asof_sums(trades_with_quotes(self.slices(), columns)),
            "union and last": lambda: asof_sums(union_and_last(self.released())),
        }
        if has("duckdb"):
            ways["duckdb"] = lambda: whole(duck(asof_query(self.parquet)))
        if has("polars"):
            ways["polars"] = lambda: whole(polars_asof(self.files))
        if has("tempo"):
            ways["dbl-tempo"] = lambda: asof_sums(tempo_asof(self.released()))
        return self.compare("asof", ways)

    def stream(self, seconds: float, rate: int) -> Figures:
        """Through all tables: what is there, and then behind a writer."""
        lake = Lake.create(self.place / "lake")
        batch = max(self.count // 10, 100_000)
        done: list[tuple[float, int]] = []

        def told(text: str) -> None:
            if text.startswith("gold/vwap"):
                done.append((time.perf_counter(), lake.tape.snapshot().rows))

        began = time.perf_counter()
        report = stream(self.spark, lake, Origin(self.journals), available_now=True, max_rows=batch, tell=told)
        wall = time.perf_counter() - began
        if report.events != self.count:
            self.wrong.append(f"stream: {report.events} events, not {self.count}")
        figures: Figures = {"events_per_s": round(report.events / wall), "batches": report.batches}
        if len(done) > 1:
            # The first step of a new JVM is slower than all others: what comes behind it goes on like that.
            share = (done[-1][1] - done[0][1]) / done[-1][1]
            figures["warm_events_per_s"] = round(self.count * share / (done[-1][0] - done[0][0]))
        print(f"  stream through all tables: {figures}", file=sys.stderr)
        if seconds:
            figures.update(self._behind(lake, seconds, rate))
        return figures

    def _behind(self, lake: Lake, seconds: float, rate: int) -> Figures:
        """A writer releases events all the time; how old they are when all tables have them."""
        lags: list[float] = []
        ends: dict[int, int] = {}
        until = time.monotonic() + seconds
        over = threading.Event()
        random = np.random.default_rng(2)

        def write() -> None:
            first = self.count
            with Journal.open(self.journals / "tokyo" / "journal", 0, 1) as journal:
                while not over.wait(0.25):
                    events = events_of(rate // 4, first, random, self.count)
                    first += len(events)
                    write_journal(journal, events, max(time.time_ns(), journal.position.instant + 1))

        def told(text: str) -> None:
            if text.startswith("bronze/released"):
                now = lake.released.snapshot()
                ends[now.version] = now.notes["offsets"]["0"]
            elif text.startswith("gold/vwap"):
                newest = ends.get(lake.tape.snapshot().notes["released_version"], 0)
                if newest in released:
                    lags.append(time.time() - released[newest])

        released: dict[int, float] = _Instants(self.journals)
        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        report = stream(
            self.spark, lake, Origin(self.journals), every_s=1, go_on=lambda _: time.monotonic() < until, tell=told
        )
        over.set()
        writer.join()
        later = sorted(lags[len(lags) // 2 :])
        figures = {
            "writer_events_per_s": rate,
            "live_events": report.events,
            "steps": len(lags),
            "seconds_behind_p50": round(median(later), 2) if later else None,
            "seconds_behind_max": round(later[-1], 2) if later else None,
        }
        print(f"  stream behind a writer: {figures}", file=sys.stderr)
        return figures


class _Instants(dict[int, float]):
    """When the message before a sequence was released."""

    def __init__(self, journals: Path) -> None:
        super().__init__()
        self._journals = journals

    def __contains__(self, sequence: object) -> bool:
        return isinstance(sequence, int) and self[sequence] > 0

    def __missing__(self, sequence: int) -> float:
        from isocast.runtime.disk.journal_reader import read_blocks  # noqa: PLC0415 - asked for a few times

        for block in read_blocks(self._journals / "tokyo" / "journal", sequence - 1, sequence - 1, check=False):
            return block.header.released_at / 1e9
        return 0.0


def thrown_away(frame: DataFrame) -> None:
    """Read every value, into the sink that keeps nothing."""
    frame.write.format("noop").mode("overwrite").save()


def added_up(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Sums of each symbol, exact whatever their length."""
    long = [field.name for field in frame.schema if field.dataType.typeName() == "long"]
    # Sums of nanoseconds are longer than 64 bits.
    sums = [F.sum(F.col(name).cast("decimal(38,0)") if name.endswith("_ns") else name) for name in long]
    return sorted(map(tuple, frame.groupBy("symbol").agg(*sums).collect()))


# ---- the program


def _megabytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) >> 20


def _line(of: Figures) -> str:
    """Time and memory of one way."""
    return f"{of['wall_s']:8.2f} s {of['cpu_s']:8.2f} CPU-s  {_memory(of['memory_mb'])}"


def _memory(of: dict[str, int]) -> str:
    return " ".join(f"{owner} {most:>6,}" for owner, most in of.items()) + " MB"


def measure(spark: SparkSession, place: Path, count: int, options: argparse.Namespace) -> tuple[Figures, list[str]]:
    """All parts for one number of events."""
    memory = Memory()
    say(f"{count:,} events; heap of Java at most {spark.sparkContext.getConf().get('spark.driver.memory', '1g')}")
    bench = Bench(spark, place, count, options.rounds, memory)
    bench.alone = options.alone
    found: Figures = {"events": count, "memory_mb": {"making": memory.part()}}
    say(f"making: {_memory(found['memory_mb']['making'])}")
    for part in options.only:
        found[part] = (
            bench.stream(options.stream_seconds, options.stream_rate) if part == "stream" else getattr(bench, part)()
        )
        found["memory_mb"][part] = memory.part()
        say(f"{part}: {_memory(found['memory_mb'][part])}")
    memory.end()
    return found, bench.wrong


def show(found: list[Figures]) -> None:
    """For people."""
    for of in found:
        print(f"{of['events']:,} events")
        for part, most in of["memory_mb"].items():
            print(f"  memory {part:37} {_memory(most)}")
        for part in PARTS:
            if part == "stream" and part in of:
                print(f"  stream {of[part]}")
            elif part in of:
                groups = of[part] if part == "read" else {"": of[part]}
                for group, ways in groups.items():
                    for name, each in ways.items():
                        print(
                            f"  {part:5} {group:15} {name:15} {each['cpu_to_first']:6.2f} times the first {_line(each)}"
                        )


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--events", default="1000000", help="how many, with commas between several")
    parser.add_argument("--rounds", type=int, default=1, help="of each, after one to warm up")
    parser.add_argument("--only", default=",".join(PARTS), help="some of the parts")
    parser.add_argument("--stream-seconds", type=float, default=20.0, help="behind a writer; 0 leaves it out")
    parser.add_argument("--stream-rate", type=int, default=20_000, help="events a second of that writer")
    parser.add_argument("--alone", action="store_true", help="without other engines, some of which need much memory")
    parser.add_argument("--directory", type=Path, help="for the files, instead of the temporary one")
    parser.add_argument("--master", default="local[2]", help="of Spark")
    options = parser.parse_args()
    options.only = [part for part in options.only.split(",") if part]
    if options.directory is not None and not options.directory.is_dir():
        parser.error(f"{options.directory} is no directory")
    if not set(options.only) <= set(PARTS):
        parser.error(f"--only takes some of {', '.join(PARTS)}")
    spark = spark_session("bench", master=options.master)
    spark.sparkContext.setLogLevel("OFF")
    found, wrong = [], []
    for count in (int(float(text)) for text in options.events.split(",")):
        with folder(needed=count * BYTES_PER_EVENT, within=options.directory or Path(gettempdir())) as place:
            figures, bad = measure(spark, place, count, options)
        found.append(figures)
        wrong += bad
    spark.stop()
    if options.json:
        print(json.dumps({"sizes": found, "wrong": wrong}, indent=2))
    else:
        show(found)
    for text in wrong:
        print(f"WRONG: {text}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
