"""A session on a cluster whose workers lack this package: what it reads, as JSON; a process of its own for one test."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.lake.clusters import CLUSTER_SETTINGS

import isocast
from isocast.lake.session import spark_session
from isocast.lake.source.register import register_isocast

HIDING = """
import os, sys
if os.environ.get("SPARK_EXECUTOR_DIRS"):
    sys.path[:] = [path for path in sys.path if path.rstrip("/") != {root!r}]
"""
"""An executor's Python does not find the package of the driver's environment."""


def main(master: str, journals: str, place: Path) -> None:
    """Read as a batch and as a stream."""
    root = str(Path(isocast.__file__).parents[1])
    hiding = place / "hiding"
    hiding.mkdir()
    (hiding / "sitecustomize.py").write_text(HIDING.format(root=root), encoding="utf-8")
    spark = spark_session(
        "cluster",
        master=master,
        warehouse=place / "warehouse",
        settings={**CLUSTER_SETTINGS, "spark.executorEnv.PYTHONPATH": str(hiding)},
    )
    spark.sparkContext.setLogLevel("ERROR")
    # Twice, as somebody does who runs a cell of a notebook again.
    register_isocast(spark)
    register_isocast(spark)
    batch = spark.read.format("isocast").load(journals).orderBy("stripe", "sequence", "index").toArrow().to_pylist()
    query = (
        spark.readStream.format("isocast")
        .option("maxRowsPerTrigger", 2_500)
        .load(journals)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(place / "out"))
    )
    query.awaitTermination()
    stream = spark.read.parquet(str(place / "out")).orderBy("stripe", "sequence", "index").toArrow().to_pylist()
    hosts = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()  # noqa: SLF001
    (place / "result.json").write_text(json.dumps({"batch": batch, "stream": stream, "nodes": hosts}))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
