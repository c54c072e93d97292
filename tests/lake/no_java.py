"""A batch and a streaming job in a process that finds no Java of the system; says which one Spark runs on."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from isocast.lake.session import QUICK_START, spark_session


def main(journals: str, place: Path) -> None:
    """Print Java's version, and two counts that must agree."""
    assert shutil.which("java") is None
    spark = spark_session(
        "no java",
        master="local[2]",
        warehouse=place / "warehouse",
        settings={"spark.driver.extraJavaOptions": QUICK_START, "spark.driver.memory": "1g"},
    )
    spark.sparkContext.setLogLevel("ERROR")
    frame = spark.read.format("isocast").load(journals)
    batch = frame.groupBy("symbol").count().agg({"count": "sum"}).first()
    assert batch is not None
    query = (
        spark.readStream.format("isocast")
        .load(journals)
        .groupBy("symbol")
        .count()
        .writeStream.format("memory")
        .queryName("counts")
        .outputMode("complete")
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    stream = spark.table("counts").agg({"count": "sum"}).first()
    assert stream is not None
    jvm = spark.sparkContext._jvm  # noqa: SLF001 - there is no other way to ask
    assert jvm is not None
    print(jvm.System.getProperty("java.home"), batch[0], stream[0])  # noqa: T201 - what the test reads
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
