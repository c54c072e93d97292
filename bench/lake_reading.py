"""Reading a tape into Spark: `format("isocast")` over journals against Parquet of the same rows and columns.

    python bench/lake_reading.py [--json] [--events N]

Both are read in one run, one after the other, several times; the best of each counts. Walls are noisy on a busy
machine: the CPU time of the JVM and its Python workers together says more.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from isocast.lake.schemas import RELEASED_COLUMNS, RELEASED_SCHEMA, ddl_of
from isocast.lake.session import spark_session
from isocast.runtime.journal import Journal, JournalSettings
from isocast.terms.ids import Epoch, server_id, source_id
from isocast.wire.events import EVENT_DTYPE
from isocast.wire.journal_blocks import ReleasedBlock
from isocast.wire.packets import payload_digest

EVENTS = 2_000_000
"""What `make bench` has time for; the figures of the pages are for 20 million."""
EVENTS_PER_MESSAGE = 27
MESSAGES_PER_TOKEN = 8
SYMBOLS = 500
START = 1_767_623_400_000_000_000
DAY_NS = 6 * 3_600_000_000_000
REPETITIONS = 3

COLUMNS = {
    "4 columns": ("symbol", "price", "quantity", "event_ns"),
    "10 columns": (
        "stripe", "sequence", "index", "kind", "floor", "symbol", "price", "quantity", "event_ns", "released_ns",
    ),
    f"all {len(RELEASED_COLUMNS)} columns": RELEASED_COLUMNS,
}  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """One way of reading, in seconds."""

    wall: float
    cpu: float


def write_journals(place: Path, events: int, stripes: int = 2) -> None:
    """So many events, shared by stripes, in journals of one receiver: a third bids, asks and trades each."""
    per_token = EVENTS_PER_MESSAGE * MESSAGES_PER_TOKEN
    names = np.array([f"S{at:04}".encode() for at in range(SYMBOLS)], "S8")
    tokens = events // stripes // per_token
    for stripe in range(stripes):
        random = np.random.default_rng(stripe)
        with Journal.open(place / f"site-{stripe}" / "journal", stripe, 1, JournalSettings()) as journal:
            for token in range(1, tokens + 1):
                table = np.zeros(per_token, EVENT_DTYPE)
                table["kind"] = np.resize([2, 2, 1], per_token)
                table["side"] = np.resize([1, 2, 0], per_token)
                table["floor"] = b"XNYS"
                table["symbol"] = np.repeat(names[random.integers(0, SYMBOLS, per_token // 3)], 3)
                table["price"] = random.integers(100_000, 200_000, per_token)
                table["quantity"] = random.integers(1, 1_000, per_token)
                first = (token - 1) * per_token
                table["time"] = START + (first + np.arange(per_token)) * (DAY_NS // max(events // stripes, 1))
                table["id"] = first + np.arange(per_token)
                raw = table.tobytes()
                size = EVENTS_PER_MESSAGE * EVENT_DTYPE.itemsize
                payloads = [raw[at : at + size] for at in range(0, len(raw), size)]
                sequence = (token - 1) * MESSAGES_PER_TOKEN + 1
                instant = int(table["time"][-1]) + 1_000_000
                journal.append(
                    ReleasedBlock(
                        Epoch(1, server_id(1)), token, MESSAGES_PER_TOKEN, 0, sequence, instant,
                        instant + 250_000_000, instant + 250_040_000, 100_000, bytes(16),
                        [(source_id(1), sequence + at, payload_digest(p), p) for at, p in enumerate(payloads)],
                    )
                )  # fmt: skip


def journals_as_frame(spark: SparkSession, place: Path, columns: tuple[str, ...]) -> DataFrame:
    """The journals, only these columns."""
    wanted = ddl_of(pa.schema([RELEASED_SCHEMA.field(name) for name in columns]))
    return spark.read.format("isocast").schema(wanted).load(str(place))


def use(frame: DataFrame) -> None:
    """Read every value: into Spark's sink that keeps nothing."""
    frame.write.format("noop").mode("overwrite").save()


def best_of(job: Callable[[], object], repetitions: int = REPETITIONS) -> Reading:
    """The best wall and the best CPU time of a job, over its repetitions."""
    walls, cpus = [], []
    for _ in range(repetitions):
        begun, used = time.perf_counter(), cpu_seconds()
        job()
        walls.append(time.perf_counter() - begun)
        # A worker that ended meanwhile takes its time along: that repetition does not count.
        cpus += [spent] if (spent := cpu_seconds() - used) > 0 else []
    return Reading(min(walls), min(cpus, default=0.0))


def cpu_seconds() -> float:
    """CPU time of this process and of everything below it, the ended ones included."""
    parents: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            fields = (entry / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(entry.name))
        used[int(entry.name)] = sum(int(field) for field in fields[11:15])
    total, waiting = 0, [os.getpid()]
    while waiting:
        process = waiting.pop()
        total += used.get(process, 0)
        waiting += parents.get(process, [])
    return total / os.sysconf("SC_CLK_TCK")


def measure_reading(spark: SparkSession, journals: Path, parquet: Path) -> dict[str, tuple[Reading, Reading]]:
    """For each set of columns: reading by format("isocast"), and reading the same from Parquet."""
    if not parquet.exists():
        frame = spark.read.format("isocast").load(str(journals))
        frame.write.option("compression", "snappy").parquet(str(parquet))
    found = {}
    for name, columns in COLUMNS.items():
        ours = best_of(lambda columns=columns: use(journals_as_frame(spark, journals, columns)))  # type: ignore[misc]
        theirs = best_of(lambda columns=columns: use(spark.read.parquet(str(parquet)).select(*columns)))  # type: ignore[misc]
        found[name] = ours, theirs
    return found


def main(events: int, *, as_json: bool) -> None:
    """Write, read and print."""
    place = Path(tempfile.mkdtemp(prefix="isocast-bench-"))
    try:
        write_journals(place / "journals", events)
        spark = spark_session("bench reading", warehouse=place / "spark")
        spark.sparkContext.setLogLevel("ERROR")
        count = spark.read.format("isocast").schema("price BIGINT").load(str(place / "journals")).count()
        found = measure_reading(spark, place / "journals", place / "parquet")
        rows = {name: {"isocast": asdict(ours), "parquet": asdict(theirs)} for name, (ours, theirs) in found.items()}
        spark.stop()
    finally:
        shutil.rmtree(place, ignore_errors=True)
    if as_json:
        print(json.dumps({"events": count, "reading": rows}))
        return
    print(f"{count:,} events, best of {REPETITIONS}; seconds of wall and of CPU")
    for name, (ours, theirs) in found.items():
        print(
            f"{name:15} isocast {ours.wall:6.2f} {ours.cpu:6.2f}   parquet {theirs.wall:6.2f} {theirs.cpu:6.2f}"
            f"   times as long: {ours.wall / theirs.wall:.2f} {ours.cpu / max(theirs.cpu, 0.01):.2f}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    main(given.events, as_json=given.json)
