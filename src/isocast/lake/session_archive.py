"""What a JVM learns while Spark starts, kept in a file for the next one, which starts in 60 % of the time.

    isocast lake prepare      # once after an installation

Java calls it an archive of class data, or from version 25 on a cache made ahead of time. It is some 190 MB beside other
things that can be made again. A JVM leaves aside what does not fit its version or Spark's files; a file that was cut
off it would stumble over, so that the size is written down beside it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

import pyarrow as pa
import pyspark
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from isocast.lake.session_java import version_of
from isocast.lake.session_scripts import cache_directory
from isocast.runtime.disk.scratch import scratch_directory
from isocast.terms.errors import NodeFailedError

__all__ = ["archive_file", "archive_options", "learn", "made_options", "store"]

_SELF_CONTAINED = 25
"""From this version on one file holds everything, and needs no archive that came with the runtime."""
_STOP_S = 600.0
_OTHERS_WRITE = 0o022


def archive_file(home: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """Where the archive of this runtime and this Spark is, or would be."""
    jars = Path(pyspark.__file__).parent / "jars"
    place = blake2b(f"{jars} {home}".encode(), digest_size=4).hexdigest()
    try:
        java = (home / "release").read_bytes()
    except OSError:
        java = str(version_of(home)).encode()
    versions = blake2b(f"{pyspark.__version__} ".encode() + java, digest_size=6).hexdigest()
    return cache_directory(environment) / f"spark-{place}-{versions}.archive"


def archive_options(home: Path, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """What a JVM needs to start from the archive; nothing if there is none that is whole and ours."""
    file = archive_file(home, environment)
    try:
        status = file.stat()
        whole = int(_size_file(file).read_text(encoding="ascii")) == status.st_size
    except (OSError, ValueError):
        return ()
    if not whole or status.st_uid != os.geteuid() or status.st_mode & _OTHERS_WRITE:
        return ()
    return (f"-XX:AOTCache={file}" if _is_self_contained(home) else f"-XX:SharedArchiveFile={file}",)


def made_options(home: Path, file: Path) -> str:
    """What a JVM needs to write an archive when it ends."""
    return f"-XX:AOTCacheOutput={file}" if _is_self_contained(home) else f"-XX:ArchiveClassesAtExit={file}"


def _is_self_contained(home: Path) -> bool:
    return (version_of(home) or 0) >= _SELF_CONTAINED


def _size_file(file: Path) -> Path:
    return file.with_suffix(".size")


# Making one ---------------------------------------------------------------------------------------


def learn(spark: SparkSession) -> None:
    """Some of everything that the pipeline does; then the session and its JVM end, which writes what it has learnt."""
    with scratch_directory("learn") as place:
        spark.dataSource.register(_Numbers)
        numbers = spark.read.format("isocast-numbers").load()
        kinds = numbers.groupBy("kind").agg(F.sum("id").alias("total"), F.max("id").alias("last"))
        numbers.join(F.broadcast(kinds), "kind").orderBy("id").write.partitionBy("kind").parquet(f"{place}/table")
        table = spark.read.parquet(f"{place}/table").repartition(2, "kind")
        table.mapInArrow(lambda batches: batches, table.schema).groupBy("kind").count().collect()

        def take(batch: DataFrame, number: int) -> None:
            batch.withColumn("batch", F.lit(number)).write.parquet(f"{place}/batches/{number}")

        stream = spark.readStream.schema(table.schema).parquet(f"{place}/table").writeStream.foreachBatch(take)
        stream.option("checkpointLocation", f"{place}/checkpoint").trigger(availableNow=True).start().awaitTermination()
        spark.stop()
        _end_jvm()


def _end_jvm() -> None:
    """Close its input and wait: pyspark itself leaves it to the end of this process."""
    gateway = SparkContext._gateway  # noqa: SLF001 - nobody else knows the process
    process: Any = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return
    gateway.shutdown()
    process.stdin.close()
    try:
        process.wait(_STOP_S)
    except TimeoutExpired:
        process.kill()
        process.wait()


def store(made: Path, file: Path) -> int:
    """Put what a JVM has made in its place, in one step, and remove those it replaces; its size."""
    try:
        size = made.stat().st_size
        made.chmod(0o600)
        for old in file.parent.glob(f"{file.name.rpartition('-')[0]}-*"):
            old.unlink(missing_ok=True)
        made.replace(file)
        _size_file(file).write_text(str(size), encoding="ascii")
    except OSError as reason:
        with suppress(OSError):
            made.unlink(missing_ok=True)
        raise NodeFailedError(f"{file}: Java made no archive ({reason.strerror})") from reason
    return size


class _Numbers(DataSource):
    """Some rows by way of Python, as journals come."""

    @classmethod
    def name(cls) -> str:
        return "isocast-numbers"

    def schema(self) -> str:
        return "id bigint, kind int"

    def reader(self, schema: object) -> DataSourceReader:
        del schema
        return _NumbersReader()


class _NumbersReader(DataSourceReader):
    def read(self, partition: InputPartition) -> Any:  # noqa: ANN401 - as the base says
        del partition
        yield pa.RecordBatch.from_pydict(
            {"id": list(range(1_000)), "kind": [each % 3 for each in range(1_000)]},
            schema=pa.schema([("id", pa.int64()), ("kind", pa.int32())]),
        )
