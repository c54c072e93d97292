"""The one place that makes a Spark session: Java, Python, memory and the settings that measurements chose.

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
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from isocast.lake.session_java import java_home
from isocast.lake.session_jvm import ARROW, jvm_options
from isocast.lake.worker_daemon import worker_python
from isocast.runtime.disk.scratch import new_directory
from isocast.terms.errors import ConfigurationError

__all__ = ["QUICK_START", "cores_of", "settings_for", "spark_session"]

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For short jobs and tests: half the CPU time until the first answer, and slower in the long run."""

_LOCAL = re.compile(r"local(?:\[([0-9]+|\*)(?:,[0-9]+)?\])?")
_MASTER = re.compile(r"local(\[.*\])?|(spark|k8s)://\S+|yarn")
_GIB = 1 << 30
_LEAST_MEMORY = 1
_MOST_MEMORY = 8
_PARTITIONS = (2, 64)
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
    # By this key options of whoever calls follow ours and do not replace them.
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
        # From Python to the JVM by a Unix socket: a tenth less CPU time than by TCP.
        chosen["spark.python.unix.domain.socket.enabled"] = "true"
        chosen["spark.python.unix.domain.socket.dir"] = str(sockets)
    return chosen


def _memory_gib() -> int:
    """A quarter of the machine's memory, within reason: the Python workers and the page cache want theirs."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(max(total // 4 // _GIB, _LEAST_MEMORY), _MOST_MEMORY)
