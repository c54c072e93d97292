"""The one place that makes a Spark session: Java, Python, memory, the JVM's settings and its archive of classes.

    spark = spark_session("bars")                                   # all cores of this machine
    spark = spark_session("bars", master="spark://10.0.0.1:7077")   # a cluster

Nothing is written beside the caller: without a warehouse Spark's own files go to a temporary directory.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from isocast.lake.session_java import java_home, version_of
from isocast.lake.worker_daemon import cache_directory, worker_python
from isocast.runtime.disk.scratch import new_directory, scratch_directory
from isocast.runtime.operate.shutdown import kill_family
from isocast.terms.errors import ConfigurationError, NodeFailedError

__all__ = [
    "ARROW",
    "LOG",
    "QUICK_START",
    "archive_file",
    "archive_options",
    "cores_of",
    "end_java",
    "jvm_options",
    "kill_java",
    "learn",
    "made_options",
    "settings_for",
    "spark_session",
    "store",
]


# What a JVM learns while Spark starts, kept in a file for the next one, which starts in 60 % of the time.
#
# isocast lake prepare      # once after an installation
#
# Java calls it an archive of class data, or from version 25 on a cache made ahead of time. It is some 190 MB beside
# other things that can be made again. A JVM leaves aside what does not fit its version or Spark's files; a file that
# was cut off it would stumble over, so that the size is written down beside it.


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
        end_java()


def end_java() -> None:
    """Let it end in order, and wait; pyspark leaves that to the end of this process. The next session has another."""
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
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001


def kill_java() -> None:
    """Kill Java at once, with its children; a call that waits for its answer raises an exception."""
    process: Any = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 - nobody else knows the process
    if process is not None:
        kill_family(process.pid)
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


# What Spark's JVM is started with: how it collects garbage, reads Arrow and says what is wrong.


ARROW = ("-Darrow.enable_unsafe_memory_access=true", "-Darrow.enable_null_check_for_get=false")
"""Arrow checks each access of each value, twice: a tenth of the CPU time of reading. What it reads is pyarrow's."""
LOG = "ISOCAST_SPARK_LOG"
"""A level of Spark's log, to see more than its errors."""

_LEVELS = ("off", "fatal", "error", "warn", "info", "debug", "trace")
_LOG_FILE = Path(__file__).with_name("spark_log.properties")
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
_ARCHIVE = re.compile(r"-XX:(?:Archive|AOT|Shared)")
_TRACE_LINES = "100"


def jvm_options(home: Path, given: str = "", environment: Mapping[str, str] = os.environ) -> str:
    """Options of a driver; those that are `given` follow, and their choice of a collector holds."""
    # Java's own log goes to standard output, amid what we print there.
    chosen = [*ARROW, f"-Dlog4j2.configurationFile={_LOG_FILE}", "-Xlog:disable"]
    level = environment.get(LOG)
    if level:
        if level not in _LEVELS:
            raise ConfigurationError(LOG, level, f"one of {', '.join(_LEVELS)}")
        chosen += [f"-Disocast.spark.log={level}", f"-Disocast.spark.trace={_TRACE_LINES}"]
    if not _COLLECTOR.search(given):
        # Nobody waits for a single row: less work in all is worth more than short pauses.
        chosen.append("-XX:+UseParallelGC")
    if not _ARCHIVE.search(given):
        chosen += archive_options(home, environment)
    return shlex.join(chosen)


QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For short jobs and tests: half the CPU time until the first answer, and slower in the long run."""

_LOCAL = re.compile(r"local(?:\[([0-9]+|\*)(?:,[0-9]+)?\])?")
_MASTER = re.compile(r"local(\[.*\])?|(spark|k8s)://\S+|yarn")
_GIB = 1 << 30
_LEAST_MEMORY = 1
_MOST_MEMORY = 8
_PARTITIONS = (2, 64)
_SOCKET = f".{UUID(int=0)}.sock"
"""As long as Spark's own names of sockets."""
_SOCKET_PATH = 107
"""Bytes of a socket's path, at most."""
_ELSEWHERE = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE")
"""There is a Java already that somebody else has started."""


def spark_session(
    app: str,
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    warehouse: Path | None = None,
    apart: bool = True,
) -> SparkSession:
    """A session; `settings` are Spark's own keys and win over what is chosen here.

    `master` is `local[N]`, by default every core, or a cluster's address. A session that exists already is given again,
    with those settings that may change while it runs. Java is a process `apart`, in a session of its own: what a
    terminal sends to everybody is for this process, which ends Java, and has nothing of Java's last words shown.
    """
    chosen = master or "local[*]"
    if not _MASTER.fullmatch(chosen):
        raise ConfigurationError("--master", chosen, "local, local[N], local[*], spark://HOST:PORT, k8s://… or yarn")
    home = java_home()
    os.environ["JAVA_HOME"] = str(home)
    # Otherwise workers run whatever python3 is on the path, which knows nothing of this package.
    python = sys.executable if cores_of(chosen) is None else worker_python()
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(name, python)
    builder = SparkSession.builder.appName(app).master(chosen)
    scratch = new_directory("spark")
    given = settings or {}
    # By this key the caller's options follow ours and do not replace them.
    java = jvm_options(home, given.get("spark.driver.extraJavaOptions", ""))
    java += f" -XX:-UsePerfData {shlex.quote(f'-Djava.io.tmpdir={scratch}')}"  # Nothing of it stays elsewhere.
    options = {
        **settings_for(chosen, warehouse or scratch, scratch),
        "spark.driver.defaultJavaOptions": java,
        **given,
    }
    for key, value in options.items():
        builder = builder.config(key, value)
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        _start_java(options, scratch, apart=apart)
        return builder.getOrCreate()
    finally:
        with suppress(ValueError):  # In a thread Spark has left it alone.
            # Spark's own handler asks Java for something while it may be in the middle of an answer.
            signal.signal(signal.SIGINT, interrupt)


def _start_java(options: Mapping[str, str], scratch: Path, *, apart: bool) -> None:
    """As a session does it by itself, if there is no Java yet; but `apart`, and with nothing left in /tmp."""
    # Nobody else can be asked for the gateway, nor told of it.
    if SparkContext._gateway is not None or any(name in os.environ for name in _ELSEWHERE):  # noqa: SLF001
        return
    usual, tempfile.tempdir = tempfile.tempdir, str(scratch)
    try:
        conf = SparkConf().setAll(list(options.items()))
        gateway = launch_gateway(conf, {"start_new_session": apart})  # type: ignore[no-untyped-call]
    finally:
        tempfile.tempdir = usual
    SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001


def cores_of(master: str) -> int | None:
    """Cores that a local master uses; None for a cluster, whose size nobody knows beforehand."""
    found = _LOCAL.fullmatch(master)
    if found is None:
        return None
    named = found[1]
    if named is None:
        return 1
    return len(os.sched_getaffinity(0)) if named == "*" else int(named)


def settings_for(master: str, warehouse: Path, sockets: Path) -> dict[str, str]:
    """What suits the pipeline on this master; Spark's own files go to `warehouse`, its sockets to a short path."""
    cores = cores_of(master)
    least, most = _PARTITIONS
    partitions = 16 if cores is None else min(max(cores, least), most)
    chosen = {
        # Each partition of a shuffle costs a task, and in a stream a state store too: the default of 200 cost 7 times.
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.adaptive.enabled": "true",
        # Frames of a moving window: without it each row adds up its whole window again.
        "spark.sql.window.segmentTree.enabled": "true",
        # Filters that Spark hands to a Python source stay on it for later queries: wrong answers in 4.1 to 4.3.
        "spark.sql.python.filterPushdown.enabled": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "131072",
        "spark.sql.session.timeZone": "UTC",
        # Timestamps of Parquet as other engines and table formats expect them.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(warehouse / "warehouse"),
        "spark.local.dir": str(warehouse / "scratch"),
        "spark.ui.showConsoleProgress": "false",
    }
    if cores is None:
        chosen["spark.executor.defaultJavaOptions"] = " ".join(ARROW)
    else:
        chosen["spark.driver.memory"] = f"{_memory_gib()}g"
        chosen["spark.driver.host"] = "127.0.0.1"
        chosen["spark.driver.bindAddress"] = "127.0.0.1"
        chosen["spark.ui.enabled"] = "false"
        # From Python to the JVM by a Unix socket, if its path has room: a tenth less CPU time than by TCP.
        if len(os.fsencode(sockets / _SOCKET)) <= _SOCKET_PATH:
            chosen["spark.python.unix.domain.socket.enabled"] = "true"
            chosen["spark.python.unix.domain.socket.dir"] = str(sockets)
    return chosen


def _memory_gib() -> int:
    """A quarter of the machine's memory, within reason: the Python workers and the page cache want theirs."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(max(total // 4 // _GIB, _LEAST_MEMORY), _MOST_MEMORY)
