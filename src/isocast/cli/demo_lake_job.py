"""The demo's pipeline, a process of its own: `python -m isocast.cli.demo_lake_job MARKET LAKE INTERVAL`.

It follows the journals of a running market into tables. On standard input it hears `give way`: from now on there is a
market, whose timers come first. Then `finish EVENTS`: the market has stopped, and so many events were released. It
catches up, judges, and says what came of it. An end of the input before that ends it at once. On standard output it
says one JSON object in a line, each with its `stage`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from isocast.lake.pipeline import Origin
    from isocast.lake.tables import Lake
    from isocast.runtime.market.model import Market

__all__ = ["NICENESS", "SESSION_NICENESS", "Orders", "lower_priority", "main"]

NICENESS = 10
"""Of its processes, below the market's: their timers do not wait for a JVM."""
SESSION_NICENESS = 2
"""Where the kernel weighs sessions, niceness counts only within one. With 10 a busy machine never let Spark start."""
_AUTOGROUP = Path("/proc/self/autogroup")
_EVERY_S = 1.0
_LOOK_S = 0.25
_IDLE_TIMES = 3
"""Looks at a stream that has nothing to do although events are missing."""
_MEMORY = "1g"
_SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""For some thousand events: to compile a plan costs more than to run it."""
_SYMBOLS_SHOWN = 3
_FINDINGS_SHOWN = 20
_TRADES_SHOWN = 5


def lower_priority() -> None:
    """Give way to the market, with all processes of this one's group."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PGRP, 0, NICENESS)
    with suppress(OSError):
        _AUTOGROUP.write_text(f"{SESSION_NICENESS}\n", encoding="ascii")


def _usual_priority() -> None:
    """Take the usual priority once the market is gone; without privilege a session may, a process may not."""
    with suppress(OSError):
        _AUTOGROUP.write_text("0\n", encoding="ascii")
    with suppress(OSError):
        os.setpriority(os.PRIO_PGRP, 0, 0)


class Orders:
    """What the demo asks for."""

    def __init__(self, gone: Callable[[], None]) -> None:
        """`gone` is called when the demo has closed the connection."""
        self.finish = threading.Event()
        self.events = 0
        """That were released in all, once `finish` is set."""
        self._gone = gone

    def hear(self, lines: Iterable[str]) -> None:
        """Until the input ends."""
        for line in lines:
            word, _, count = line.strip().partition(" ")
            if word == "give":
                lower_priority()
            if word == "finish" and count.isdigit():
                self.events = int(count)
                _usual_priority()
                self.finish.set()
        self._gone()


def _say(stage: str, **further: object) -> None:
    sys.stdout.write(json.dumps({"stage": stage, **further}) + "\n")
    sys.stdout.flush()


def _leave() -> None:
    """The JVM ends when its parent does."""
    os._exit(1)


def main(arguments: list[str]) -> int:
    """Follow, catch up, judge; 1 with a reason if it cannot."""
    from isocast.runtime.market.file import load_market
    from isocast.terms.errors import IsocastError

    orders = Orders(_leave)
    threading.Thread(target=orders.hear, args=(sys.stdin,), daemon=True).start()
    try:
        market, root = load_market(Path(arguments[0])), Path(arguments[1])
        _say("starting")
        with_spark = _session()
        try:
            _work(with_spark, market, root, arguments[2], orders)
        finally:
            with_spark.stop()
    except IsocastError as error:
        _say("failed", reason=str(error))
        return 1
    except Exception as error:  # noqa: BLE001 - Spark's own errors are many; the demo says the first line and goes on
        said = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        _say("failed", reason=f"{type(error).__name__}: {said}"[:200])
        return 1
    return 0


def _session() -> SparkSession:
    """A quick start is worth more than a fast hour, and everything that Java leaves goes where the demo tidies up."""
    from isocast.lake.session import QUICK_START, spark_session

    settings = {"spark.driver.extraJavaOptions": QUICK_START, "spark.driver.memory": _MEMORY, **_SMALL}
    # In the same group, whose priority is one; and its session is no terminal's.
    return spark_session("isocast demo", master="local[2]", settings=settings, apart=False)


def _work(spark: SparkSession, market: Market, root: Path, interval: str, orders: Orders) -> None:
    from isocast.lake import pipeline
    from isocast.lake.tables import Lake, LakeSettings

    lake = Lake.create(root, LakeSettings(intervals=(interval,)))
    _warm_up(spark, market)
    _say("ready")
    while not _all_journals(market) and not orders.finish.wait(_LOOK_S):
        pass
    _fill(spark, lake, pipeline.Origin(market.data_directory), orders)
    _say("judging", events=lake.released.snapshot().rows)
    _say("done", **_results(spark, lake, market, interval))


def _warm_up(spark: SparkSession, market: Market) -> None:
    """Workers and writers that the first batch needs, before there is a market that needs the time."""
    from isocast.runtime.disk.scratch import scratch_directory

    few = spark.range(1).mapInArrow(lambda batches: batches, "id bigint")
    with scratch_directory("warm") as place:
        few.selectExpr("id", "id AS part").write.partitionBy("part").parquet(f"{place}/table")
    with suppress(Exception):  # There is nothing to read yet, and nobody minds.
        spark.readStream.format("isocast").load(str(market.data_directory))


def _all_journals(market: Market) -> bool:
    """Whether there is something to follow everywhere."""
    from isocast.trials.evidence import journal_of
    from isocast.wire.journal import SEGMENT_SUFFIX

    return all(any(journal_of(market, plan.name).glob(f"*{SEGMENT_SUFFIX}")) for plan in market.receivers)


def _fill(spark: SparkSession, lake: Lake, origin: Origin, orders: Orders) -> None:
    """Follow while the market runs, and then to the last event."""
    from isocast.lake.pipeline import stream

    idle = 0

    def tell() -> int:
        rows, through_ns = _reach(lake)
        _say("catching up" if orders.finish.is_set() else "following", events=rows, through_ns=through_ns)
        return rows

    def goes_on(query: StreamingQuery) -> bool:
        nonlocal idle
        rows = tell()
        # A batch is in all tables only when its trigger has ended.
        idle = 0 if query.status["isTriggerActive"] else idle + 1
        return not orders.finish.is_set() or idle < (1 if rows >= orders.events else _IDLE_TIMES)

    if not orders.finish.is_set():
        stream(spark, lake, origin, every_s=_EVERY_S, go_on=goes_on)
    if tell() < orders.events:
        stream(spark, lake, origin, available_now=True, go_on=lambda _: tell() >= 0)


def _reach(lake: Lake) -> tuple[int, int]:
    """Events in bronze, and the release instant of the newest."""
    import pyarrow.parquet as pq

    found = lake.released.snapshot()
    if not found.files:
        return 0, 0
    metadata = pq.read_metadata(lake.released.path / found.files[-1].path)
    column = metadata.schema.names.index("due_ns")
    groups = [metadata.row_group(group).column(column).statistics for group in range(metadata.num_row_groups)]
    return found.rows, int(max(group.max for group in groups))


# What came of it ----------------------------------------------------------------------------------


def _results(spark: SparkSession, lake: Lake, market: Market, interval: str) -> dict[str, Any]:
    return {
        "events": lake.released.snapshot().rows,
        "tables": {table.name: table.snapshot().rows for table in lake.tables},
        "interval": interval,
        "bars": _bars(spark, lake),
        "skew": _skew(spark, market),
        "audit": _audit(spark, market),
        "trades": _trades(spark, market),
    }


def _bars(spark: SparkSession, lake: Lake) -> list[dict[str, Any]]:
    """Those of the symbols that traded most; prices in ticks, as everywhere in tables."""
    from pyspark.sql.functions import broadcast, desc
    from pyspark.sql.functions import sum as total

    table = lake.bars.read(spark)
    if table is None:
        return []
    busiest = table.groupBy("symbol").agg(total("trades").alias("all")).orderBy(desc("all"), "symbol")
    chosen = busiest.limit(_SYMBOLS_SHOWN).select("symbol", "all")
    names = ("symbol", "start_ns", "open", "high", "low", "close", "volume", "trades", "vwap")
    rows = table.join(broadcast(chosen), "symbol").orderBy(desc("all"), "symbol", "start_ns").select(*names)
    return [{**row.asDict(), "vwap": str(row.vwap)} for row in rows.collect()]


def _skew(spark: SparkSession, market: Market) -> dict[str, Any]:
    """As the market's own summary has it, by Spark."""
    from isocast.lake.transforms.skew import MESSAGE_COLUMNS, message_releases, skew_totals, with_opaque

    data = str(market.data_directory)
    released = spark.read.format("isocast").options(columns=",".join(MESSAGE_COLUMNS), receiver="all").load(data)
    if market.floors:
        # Orders and reports are messages of the sequence, too, and no events.
        opaque = spark.read.format("isocast").options(frame="messages", receiver="all")
        released = with_opaque(released, opaque.load(data))
    messages = message_releases(released)
    return asdict(skew_totals(messages, market.timing.process_ns, len(market.receivers)))


def _trades(spark: SparkSession, market: Market) -> dict[str, Any] | None:
    """The market's floor as tables: what was ordered, and every trade, computed anew, with its state."""
    if not market.floors:
        return None
    from pyspark.sql.functions import desc

    from isocast.lake.transforms.floors import floor_orders, floor_trades

    code = market.floors[0].code
    messages = spark.read.format("isocast").option("frame", "messages").load(str(market.data_directory))
    orders, trades = floor_orders(messages, code), floor_trades(messages, code).cache()
    made = trades.selectExpr(
        "count(*) AS trades",
        "coalesce(sum(quantity), 0) AS volume",
        "count_if(state = 'confirmed') AS confirmed",
        "coalesce(max(differing_reports), 0) AS differing",
    )
    names = ("trade", "symbol", "price", "quantity", "buy", "sell", "state")
    newest = trades.orderBy(desc("trade")).limit(_TRADES_SHOWN).select(*names).collect()
    return {
        "floor": code,
        "orders": orders.where(orders.kind == "order").count(),
        **made.collect()[0].asDict(),
        "newest": [row.asDict() for row in newest],
    }


def _audit(spark: SparkSession, market: Market) -> dict[str, Any]:
    from isocast.lake.audit import audit, run_on

    found = audit(market.data_directory, run_on(spark), release_delay_ns=market.timing.release_delay_ns)
    told = found.as_json()
    names = ("verdict", "sentence", "messages_compared", "counts")
    findings = [f"{finding.kind}: {finding.place}: {finding.text}" for finding in found.findings[:_FINDINGS_SHOWN]]
    return {**{name: told[name] for name in names}, "journals": len(found.covers), "findings": findings}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
