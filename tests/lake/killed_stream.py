"""A streaming query in a process of its own, to be killed: events from journals to Parquet, until a file appears."""

from __future__ import annotations

import sys
from pathlib import Path

from isocast.lake.session import QUICK_START, spark_session


def main(journals: str, place: Path) -> None:
    """Run until `place/enough` is there and everything has been read."""
    spark = spark_session(
        "killed",
        master="local[2]",
        warehouse=place / "warehouse",
        settings={"spark.driver.extraJavaOptions": QUICK_START, "spark.driver.memory": "1g"},
    )
    spark.sparkContext.setLogLevel("OFF")
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


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
