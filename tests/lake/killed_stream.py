"""A streaming job in a process of its own, to be killed: events from journals to Parquet, until a file appears.

Either a query with Spark's own sink (`query`), or the pipeline into all tables of a lake (`pipeline`).
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from isocast.lake.pipeline import Origin, stream
from isocast.lake.session import QUICK_START, spark_session
from isocast.lake.tables import Lake


def session(place: Path) -> SparkSession:
    """Starts quickly, says nothing."""
    spark = spark_session(
        "killed",
        master="local[2]",
        warehouse=place / "warehouse",
        settings={"spark.driver.extraJavaOptions": QUICK_START, "spark.driver.memory": "1g"},
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def run_query(journals: str, place: Path) -> None:
    """Run until `place/enough` is there and everything has been read."""
    spark = session(place)
    query = (
        spark.readStream.format("isocast")
        .option("maxRowsPerTrigger", 1_500)
        .load(journals)
        .select("stripe", "sequence", "index", "price")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(place / "checkpoint"))
        .start(str(place / "out"))
    )
    while not (place / "enough").exists():
        if query.awaitTermination(1):
            return
    query.processAllAvailable()
    query.stop()
    spark.stop()


def run_pipeline(journals: str, place: Path) -> None:
    """The same, into a lake."""
    spark, lake, enough = session(place), Lake.create(place / "lake"), place / "enough"
    origin = Origin(Path(journals))
    stream(spark, lake, origin, every_s=0.1, max_rows=1_500, go_on=lambda _: not enough.exists())
    stream(spark, lake, origin, available_now=True)
    spark.stop()


if __name__ == "__main__":
    {"query": run_query, "pipeline": run_pipeline}[sys.argv[1]](sys.argv[2], Path(sys.argv[3]))
