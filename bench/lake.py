"""How fast the lake is: each figure beside that of other engines on the same files, in the same run.

    python bench/lake.py [--json] [--events N[,N…]] [--rounds N] [--only PART[,PART…]] [--stream-seconds S]
                         [--directory DIR] [--master local[2]]

A market's journal is written: two thirds quotes, one third trades, 500 symbols of which a few are most busy, four
floors. From it, for each number of events:

read    `format("isocast")` against `spark.read.parquet` of the same rows and columns: four and ten columns
bars    one-minute bars: Spark, DuckDB, Polars, dbl-tempo
vwap    one-minute VWAP, and that of the 30 minutes before
asof    every trade with bid and ask of its floor as they stood: ordered slices, which also give the best of all
        floors; Spark's union and last; DuckDB; Polars; dbl-tempo
stream  journal to bronze, silver and gold in batches: events a second; then behind a writer: seconds from release
        until the event is in all tables

Engines that are not installed are left out. Time is that of the whole process tree: seconds on the wall and of CPU, the
best of the rounds after one that warms up; the ratio is that of CPU. Memory is the highest that the tree took
together. `--events 2000000,20000000,100000000` shows growth. All answers are compared: exit code 1 if they differ.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as Spark is written

from isocast.lake.pipeline import Origin, stream
from isocast.lake.session import spark_session
from isocast.lake.tables import Lake
from isocast.lake.transforms.bars import bars
from isocast.lake.transforms.calendars import read_interval
from isocast.lake.transforms.quotes import trades_with_quotes
from isocast.lake.transforms.slices import Sliced, sliced_files
from isocast.lake.transforms.vwap import rolling_vwap, vwap
from isocast.runtime.journal import Journal
from isocast.terms.ids import Epoch, server_id, source_id
from isocast.wire.events import EVENT_DTYPE, EVENTS_PER_PAYLOAD, EventArray
from isocast.wire.journal_blocks import ReleasedBlock
from isocast.wire.packets import payload_digest

SYMBOLS = 500
FLOORS = (b"XNYS", b"XNAS", b"ARCX", b"BATS")
START = 1_767_623_400_000_000_000
DAY_NS = int(6.5 * 3_600e9)
PARTS = ("read", "bars", "vwap", "asof", "stream")
PER_TOKEN = 200
MINUTE = read_interval("1m")
WINDOW = read_interval("30m")
PLACE = "sequence * 65536 + index"
FOUR = "symbol STRING, price BIGINT, quantity BIGINT, kind TINYINT"
TEN = FOUR + ", sequence BIGINT, index INT, floor STRING, side TINYINT, event_ns BIGINT, id BIGINT"

Figures = dict[str, Any]


# ---- measuring


def tree() -> dict[int, tuple[float, int]]:
    """CPU seconds, those of ended children too, and resident bytes of this process and all below it."""
    parents, found = {}, {}
    tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        number = int(entry.name)
        parents[number] = int(fields[1])
        found[number] = (sum(map(int, fields[11:15])) / tick, int(fields[21]) * page)
    own = {os.getpid()}
    while True:
        more = {number for number, parent in parents.items() if parent in own} - own
        if not more:
            return {number: found[number] for number in own if number in found}
        own |= more


class Memory:
    """The most that the tree took, looked at four times a second."""

    def __init__(self) -> None:
        """Starts at once."""
        self.peak = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.25):
            self.peak = max(self.peak, sum(memory for _, memory in tree().values()))

    def end(self) -> int:
        """The most until now."""
        self._over.set()
        self._thread.join()
        return self.peak


def measured(work: Callable[[], Any], rounds: int) -> tuple[Any, Figures]:
    """The answer, and the best of some rounds after one to warm up."""
    answer = work()
    best: Figures = {"wall_s": float("inf"), "cpu_s": float("inf")}
    for _ in range(rounds):
        cpu, began = sum(used for used, _ in tree().values()), time.perf_counter()
        answer = work()
        wall = time.perf_counter() - began
        used = sum(used for used, _ in tree().values()) - cpu
        if used < best["cpu_s"]:
            best = {"wall_s": round(wall, 3), "cpu_s": round(used, 3)}
    return answer, best


# ---- the market


def events_of(count: int, first: int, random: np.random.Generator, total: int) -> EventArray:
    """A part of the day."""
    table = np.zeros(count, EVENT_DTYPE)
    weights = 1 / np.arange(1, SYMBOLS + 1)
    chosen = random.choice(SYMBOLS, count, p=weights / weights.sum())
    is_trade = random.random(count) < 1 / 3
    side = np.where(is_trade, 0, random.integers(1, 3, count))
    middle = 100_000 + 7_919 * (chosen + 1) % 4_900_000 + random.integers(-20, 21, count) * 100
    table["symbol"] = np.array([f"SY{number:04}".encode() for number in range(SYMBOLS)])[chosen]
    table["floor"] = np.array(FLOORS)[random.integers(0, len(FLOORS), count)]
    table["kind"], table["side"] = np.where(is_trade, 1, 2), side
    table["price"] = middle + np.choose(side, [0, -500, 500])
    table["quantity"] = random.integers(1, 500, count)
    table["quantity"][~is_trade & (random.random(count) < 0.01)] = 0  # noqa: PLR2004 - one in a hundred withdraws
    places = np.arange(first, first + count)
    table["id"] = np.where(is_trade, places + 1, 0)
    table["time"] = START + places * (DAY_NS // total)
    return table


def write_journal(journal: Journal, events: EventArray, released_at: int | None = None) -> None:
    """Tokens of some hundred messages, as a receiver released them."""
    raw = events.tobytes()
    size = EVENTS_PER_PAYLOAD * EVENT_DTYPE.itemsize
    payloads = [raw[at : at + size] for at in range(0, len(raw), size)]
    for first in range(0, len(payloads), PER_TOKEN):
        chosen = payloads[first : first + PER_TOKEN]
        at = journal.position
        number = at.next_sequence
        instant = int(events["time"][min((first + len(chosen)) * EVENTS_PER_PAYLOAD, len(events)) - 1])
        instant = released_at or max(instant, at.instant + 1)
        messages = [(source_id(1), number + place, payload_digest(raw), raw) for place, raw in enumerate(chosen)]
        journal.append(
            ReleasedBlock(
                epoch=Epoch(2, server_id(1)),
                token_number=at.released + 1,
                token_count=len(messages),
                place=0,
                first_sequence=number,
                instant=instant,
                due=instant + 1,
                released_at=instant + 1,
                clock_bound_ns=100_000,
                shuffle_key=payload_digest(b"key"),
                messages=messages,
            )
        )


def make_market(place: Path, count: int) -> tuple[Path, Path]:
    """The journal of one receiver."""
    random = np.random.default_rng(1)
    journals = place / "data"
    with Journal.open(journals / "tokyo" / "journal", 0, 1) as journal:
        for first in range(0, count, 540_000):
            write_journal(journal, events_of(min(540_000, count - first), first, random, count))
    return journals, place / "released"


# ---- what is compared


class Bench:
    """One number of events."""

    def __init__(self, spark: SparkSession, place: Path, count: int, rounds: int) -> None:
        """Write the journal, and the same rows as Parquet."""
        self.spark, self.rounds, self.count = spark, rounds, count
        self.journals, self.parquet = make_market(place, count)
        self.place = place
        self.wrong: list[str] = []
        frame = spark.read.format("isocast").load(str(self.journals))
        frame.drop("stripe").write.parquet(str(self.parquet))
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
        for name, way in ways.items():
            answer, figures[name] = measured(way, self.rounds)
            expected = answer if expected is None else expected
            if answer != expected:
                self.wrong.append(f"{part}: {name} answers {answer}, not {expected}")
            print(
                f"  {part:6} {name:22} {figures[name]['wall_s']:8.2f} s {figures[name]['cpu_s']:8.2f} CPU-s",
                file=sys.stderr,
            )
        first = next(iter(figures.values()))["cpu_s"]
        for of in figures.values():
            of["cpu_to_first"] = round(of["cpu_s"] / first, 3)
        return figures

    def read(self) -> Figures:
        """The source against Parquet, the same columns and the same work."""
        made: Figures = {}
        for name, columns in (("4 columns", FOUR), ("10 columns", TEN)):
            numbers = [part.split()[0] for part in columns.split(", ") if "BIGINT" in part]

            def total(frame: DataFrame, numbers: list[str] = numbers) -> list[tuple[Any, ...]]:
                sums = [
                    F.sum(F.col(number).cast("decimal(38,0)") if number == "event_ns" else number) for number in numbers
                ]
                return sorted(map(tuple, frame.groupBy("symbol").agg(*sums).collect()))

            names = [part.split()[0] for part in columns.split(", ")]
            ways = {
                "parquet": lambda names=names, total=total: total(self.spark.read.parquet(*self.files).select(*names)),
                "isocast": lambda columns=columns, total=total: total(
                    self.spark.read.format("isocast").schema(columns).load(str(self.journals))
                ),
            }
            made[name] = self.compare("read", ways)
        return made

    def bars(self) -> Figures:
        """Open, high, low, close, volume, trades and VWAP of each minute."""
        tape = self.released().where("kind = 1").withColumn("state", F.lit(0))
        query = f"""select count(*), sum(open), sum(high), sum(low), sum(close), sum(volume) from (
            select symbol, event_ns // {MINUTE.ns} m, arg_min(price, {PLACE}) open, max(price) high, min(price) low,
            arg_max(price, {PLACE}) as close, sum(quantity) volume, count(*) n, sum(price * quantity) / sum(quantity) v
            from '{self.parquet}/*.parquet' where kind = 1 group by all)"""  # noqa: S608 - our own files
        names = ("open", "high", "low", "close", "volume")
        ways: dict[str, Callable[[], Any]] = {
            "spark": lambda: _whole(bars(tape, MINUTE).agg(F.count("*"), *map(F.sum, names)).collect()[0])
        }
        if has("duckdb"):
            ways["duckdb"] = lambda: _whole(duck(query))
        if has("polars"):
            ways["polars"] = lambda: _whole(polars_bars(self.files))
        if has("tempo"):
            ways["dbl-tempo"] = lambda: _whole(tempo_bars(tape))
        return self.compare("bars", ways)

    def vwap(self) -> Figures:
        """Of each minute, and of the half hour before."""
        tape = self.released().where("kind = 1").withColumn("state", F.lit(0))
        query = f"""with bars as (select symbol, event_ns // {MINUTE.ns} m, sum(quantity) volume, sum(price * quantity)
            turnover from '{self.parquet}/*.parquet' where kind = 1 group by all) select count(*), sum(rv), sum(rt) from
            (select sum(volume) over w rv, sum(turnover) over w rt from bars window w as
            (partition by symbol order by m range between 29 preceding and current row))"""  # noqa: S608
        ways: dict[str, Callable[[], Any]] = {"spark": lambda: _whole(spark_vwap(tape))}
        if has("duckdb"):
            ways["duckdb"] = lambda: _whole(duck(query))
        if has("polars"):
            ways["polars"] = lambda: _whole(polars_vwap(self.files))
        return self.compare("vwap", ways)

    def asof(self) -> Figures:
        """Bid and ask of its floor at each trade."""
        columns = ["sequence", "index", "symbol", "floor", "price", "quantity"]
        ways: dict[str, Callable[[], Any]] = {
            "ordered slices": lambda: _asof_sums(trades_with_quotes(self.slices(), columns)),
            "union and last": lambda: _asof_sums(union_and_last(self.released())),
        }
        if has("duckdb"):
            ways["duckdb"] = lambda: _whole(duck(asof_query(self.parquet)))
        if has("polars"):
            ways["polars"] = lambda: _whole(polars_asof(self.files))
        if has("tempo"):
            ways["dbl-tempo"] = lambda: _asof_sums(tempo_asof(self.released()))
        return self.compare("asof", ways)

    def stream(self, seconds: float) -> Figures:
        """Through all tables: what is there, and then behind a writer."""
        lake = Lake.create(self.place / "lake")
        batch = max(self.count // 4, 100_000)
        began = time.perf_counter()
        report = stream(self.spark, lake, Origin(self.journals), available_now=True, max_rows=batch)
        wall = time.perf_counter() - began
        if report.events != self.count:
            self.wrong.append(f"stream: {report.events} events, not {self.count}")
        figures: Figures = {"events_per_s": round(report.events / wall), "batches": report.batches}
        print(f"  stream {figures['events_per_s']:,} events a second through all tables", file=sys.stderr)
        if seconds:
            figures.update(self._behind(lake, seconds))
        return figures

    def _behind(self, lake: Lake, seconds: float) -> Figures:
        """A writer releases events all the time; how old they are when all tables have them."""
        lags: list[float] = []
        until, rate = time.monotonic() + seconds, 20_000
        over = threading.Event()
        random = np.random.default_rng(2)

        def write() -> None:
            with Journal.open(self.journals / "tokyo" / "journal", 0, 1) as journal:
                while not over.wait(0.25):
                    events = events_of(rate // 4, self.count, random, self.count)
                    write_journal(journal, events, max(time.time_ns(), journal.position.instant + 1))

        def told(text: str) -> None:
            if text.startswith("gold/vwap"):
                newest = lake.released.snapshot().notes["offsets"]["0"]
                lags.append(time.time() - released[newest] if newest in released else float("nan"))

        released: dict[int, float] = _Instants(self.journals)
        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        report = stream(
            self.spark, lake, Origin(self.journals), every_s=1, go_on=lambda _: time.monotonic() < until, tell=told
        )
        over.set()
        writer.join()
        known = [lag for lag in lags if lag == lag]  # noqa: PLR0124 - not a number is not itself
        behind = round(median(known), 2) if known else None
        print(f"  stream behind a writer of {rate:,} a second: {behind} s in the median", file=sys.stderr)
        return {"writer_events_per_s": rate, "live_events": report.events, "seconds_behind": behind}


class _Instants(dict[int, float]):
    """When the message before a sequence was released."""

    def __init__(self, journals: Path) -> None:
        super().__init__()
        self._journals = journals

    def __contains__(self, sequence: object) -> bool:
        return isinstance(sequence, int) and self[sequence] > 0

    def __missing__(self, sequence: int) -> float:
        from isocast.runtime.journal_reader import read_blocks  # noqa: PLC0415 - asked for a few times

        for block in read_blocks(self._journals / "tokyo" / "journal", sequence - 1, sequence - 1, check=False):
            return block.header.released_at / 1e9
        return 0.0


def has(package: str) -> bool:
    """Whether an engine is installed."""
    return importlib.util.find_spec(package) is not None


def _whole(row: Any) -> tuple[int, ...]:  # noqa: ANN401 - a row of any engine
    return tuple(int(value) for value in row)


def _asof_sums(joined: DataFrame) -> tuple[int, ...]:
    names = ("bid", "bid_size", "ask", "ask_size")
    return _whole(joined.agg(F.count("*"), *map(F.sum, names)).collect()[0])


def duck(query: str) -> Any:  # noqa: ANN401 - a row
    """One row from DuckDB, on as many threads as Spark has."""
    import duckdb  # noqa: PLC0415 - may be missing

    with duckdb.connect(config={"threads": len(os.sched_getaffinity(0))}) as other:
        return other.execute(query).fetchone()


def asof_query(parquet: Path) -> str:
    """Two ASOF joins by the sequence."""
    side = "select {place} place, symbol, floor, price, quantity from '{files}' where kind = 2 and side = {side}"
    files = f"{parquet}/*.parquet"
    bid, ask = (side.format(place=PLACE, files=files, side=number) for number in (1, 2))
    return f"""select count(*), sum(case when b.quantity > 0 then b.price end), sum(b.quantity),
        sum(case when a.quantity > 0 then a.price end), sum(a.quantity)
        from (select {PLACE} place, symbol, floor, price from '{files}' where kind = 1) t
        asof left join ({bid}) b on t.symbol = b.symbol and t.floor = b.floor and t.place >= b.place
        asof left join ({ask}) a on t.symbol = a.symbol and t.floor = a.floor and t.place >= a.place"""  # noqa: S608


def union_and_last(released: DataFrame) -> DataFrame:
    """What everybody writes first: a window over each line, and the last value that is there."""
    is_bid, is_ask = F.expr("kind = 2 and side = 1"), F.expr("kind = 2 and side = 2")
    window = Window.partitionBy("symbol", "floor").orderBy("sequence", "index")
    pair = F.struct("price", "quantity")
    bid = F.last(F.when(is_bid, pair), ignorenulls=True).over(window)
    ask = F.last(F.when(is_ask, pair), ignorenulls=True).over(window)
    columns = ("sequence", "index", "symbol", "floor", "price", "quantity", "kind", "side")
    joined = released.select(*columns).withColumn("b", bid).withColumn("a", ask).where("kind = 1")
    return joined.select(
        F.expr("case when b.quantity > 0 then b.price end").alias("bid"),
        F.expr("b.quantity").alias("bid_size"),
        F.expr("case when a.quantity > 0 then a.price end").alias("ask"),
        F.expr("a.quantity").alias("ask_size"),
    )


def spark_vwap(tape: DataFrame) -> Any:  # noqa: ANN401 - a row
    """Rows, and sums that an error would change."""
    made = rolling_vwap(vwap(tape, MINUTE), WINDOW)
    turnover = F.sum(F.round(F.col("rolling_vwap") * F.col("rolling_volume")))
    return made.agg(F.count("*"), F.sum("rolling_volume"), turnover).collect()[0]


def polars_bars(files: list[str]) -> Any:  # noqa: ANN401 - a row
    """The same by Polars."""
    import polars as pl  # noqa: PLC0415 - may be missing

    trades = pl.scan_parquet(files).filter(pl.col("kind") == 1)
    ordered = trades.with_columns(m=pl.col("event_ns") // MINUTE.ns, place=pl.col("sequence") * 65536 + pl.col("index"))
    made = ordered.group_by("symbol", "m").agg(
        open=pl.col("price").get(pl.col("place").arg_min()),
        high=pl.col("price").max(),
        low=pl.col("price").min(),
        close=pl.col("price").get(pl.col("place").arg_max()),
        volume=pl.col("quantity").sum(),
        n=pl.len(),
        v=(pl.col("price") * pl.col("quantity")).sum() / pl.col("quantity").sum(),
    )
    names = ("open", "high", "low", "close", "volume")
    return made.select(pl.len(), *(pl.col(name).sum() for name in names)).collect(engine="streaming").row(0)


def polars_vwap(files: list[str]) -> Any:  # noqa: ANN401 - a row
    """The same by Polars."""
    import polars as pl  # noqa: PLC0415 - may be missing

    trades = pl.scan_parquet(files).filter(pl.col("kind") == 1)
    made = trades.group_by("symbol", m=pl.col("event_ns") // MINUTE.ns).agg(
        volume=pl.col("quantity").sum(), turnover=(pl.col("price") * pl.col("quantity")).sum()
    )
    rolled = (
        made.sort("symbol", "m")
        .rolling("m", period="30i", group_by="symbol")
        .agg(rv=pl.col("volume").sum(), rt=pl.col("turnover").sum())
    )
    return rolled.select(pl.len(), pl.col("rv").sum(), pl.col("rt").sum()).collect().row(0)


def polars_asof(files: list[str]) -> Any:  # noqa: ANN401 - a row
    """The same by Polars."""
    import polars as pl  # noqa: PLC0415 - may be missing

    events = pl.scan_parquet(files).select(
        "symbol", "floor", "kind", "side", "price", "quantity", place=pl.col("sequence") * 65536 + pl.col("index")
    )
    joined = events.filter(pl.col("kind") == 1).select("symbol", "floor", "place").sort("place")
    for side, name in ((1, "bid"), (2, "ask")):
        quotes = events.filter((pl.col("kind") == 2) & (pl.col("side") == side)).select(  # noqa: PLR2004 - a quote
            "symbol", "floor", "place", pl.col("price").alias(name), pl.col("quantity").alias(f"{name}_size")
        )
        joined = joined.join_asof(
            quotes.sort("place"), on="place", by=["symbol", "floor"], strategy="backward", check_sortedness=False
        )

    def price(name: str) -> pl.Expr:
        return pl.when(pl.col(f"{name}_size") > 0).then(pl.col(name)).sum().alias(name)

    sums = [each for name in ("bid", "ask") for each in (price(name), pl.col(f"{name}_size").sum())]
    return joined.select(pl.len(), *sums).collect().row(0)


def tempo_bars(tape: DataFrame) -> Any:  # noqa: ANN401 - a row
    """The same by dbl-tempo."""
    from tempo import TSDF  # noqa: PLC0415 - may be missing

    frame = tape.select(
        "symbol", "price", "quantity", "sequence", F.expr("timestamp_micros(event_ns div 1000)").alias("ts")
    )
    made = TSDF(frame, ts_col="ts", partition_cols=["symbol"], sequence_col="sequence")
    calc = made.calc_bars(freq="1 minute", func=None, metricCols=["price"])
    names = ("open_price", "high_price", "low_price", "close_price")
    return calc.df.agg(F.count("*"), *map(F.sum, names)).collect()[0]


def tempo_asof(released: DataFrame) -> DataFrame:
    """Two as-of joins by dbl-tempo."""
    from tempo import TSDF  # noqa: PLC0415 - may be missing

    base = released.withColumn("ts", F.expr(f"timestamp_micros({PLACE})"))
    made = TSDF(base.where("kind = 1").select("ts", "symbol", "floor"), ts_col="ts", partition_cols=["symbol", "floor"])
    for side, name in ((1, "b"), (2, "a")):
        quotes = base.where(f"kind = 2 and side = {side}").select("ts", "symbol", "floor", "price", "quantity")
        made = made.asofJoin(TSDF(quotes, ts_col="ts", partition_cols=["symbol", "floor"]), right_prefix=name)
    return made.df.select(
        F.expr("case when b_quantity > 0 then b_price end").alias("bid"),
        F.col("b_quantity").alias("bid_size"),
        F.expr("case when a_quantity > 0 then a_price end").alias("ask"),
        F.col("a_quantity").alias("ask_size"),
    )


# ---- the program


@contextmanager
def place_of(directory: Path | None) -> Iterator[Path]:
    """Somewhere with room."""
    with TemporaryDirectory(prefix="isocast-bench-", dir=directory) as made:
        yield Path(made)


def measure(spark: SparkSession, place: Path, count: int, options: argparse.Namespace) -> tuple[Figures, list[str]]:
    """All parts for one number of events."""
    memory = Memory()
    print(f"{count:,} events", file=sys.stderr)
    bench = Bench(spark, place, count, options.rounds)
    found: Figures = {"events": count}
    for part in options.only:
        found[part] = bench.stream(options.stream_seconds) if part == "stream" else getattr(bench, part)()
    found["peak_memory_mb"] = memory.end() >> 20
    return found, bench.wrong


def show(found: list[Figures]) -> None:
    """For people."""
    for of in found:
        print(f"{of['events']:,} events; memory of all processes at most {of['peak_memory_mb']:,} MB")
        for part in PARTS:
            if part == "stream" and part in of:
                print(f"  stream {of[part]}")
            elif part in of:
                groups = of[part] if part == "read" else {"": of[part]}
                for group, ways in groups.items():
                    for name, each in ways.items():
                        print(
                            f"  {part:5} {group:11} {name:15} {each['wall_s']:8.2f} s {each['cpu_s']:8.2f} CPU-s"
                            f"  {each['cpu_to_first']:6.2f} times the first"
                        )


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--events", default="1000000", help="how many, with commas between several")
    parser.add_argument("--rounds", type=int, default=1, help="of each, after one to warm up")
    parser.add_argument("--only", default=",".join(PARTS), help="some of the parts")
    parser.add_argument("--stream-seconds", type=float, default=20.0, help="behind a writer; 0 leaves it out")
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
        with place_of(options.directory) as place:
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
