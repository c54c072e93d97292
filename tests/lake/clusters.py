"""A standalone cluster of this machine: a master and workers started from the PySpark package.

with standalone(tmp_path, workers=2) as master:
    session = spark_session("x", master=master, settings=CLUSTER_SETTINGS)
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from isocast.lake.session import QUICK_START
from isocast.lake.session_java import java_home

__all__ = ["CLUSTER_SETTINGS", "standalone"]

CLUSTER_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "800m",
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": QUICK_START,
    "spark.executor.extraJavaOptions": QUICK_START,
}
"""What a session needs beside the master's address to live on loopback."""
PATIENCE_S = 120


@contextmanager
def standalone(place: Path, workers: int = 2) -> Iterator[str]:
    """The address of a master with so many workers of one core each; all end with the block."""
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "JAVA_HOME": str(java_home()),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(place / "work"),
        "SPARK_DAEMON_JAVA_OPTS": QUICK_START,
        "PYSPARK_PYTHON": sys.executable,
    }
    said = place / "cluster.log"
    started: list[subprocess.Popen[bytes]] = []

    def start(kind: str, *arguments: str) -> None:
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1"]
        command += ["--webui-port", str(_free_port()), *arguments]
        with said.open("ab") as log:
            started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True))

    port = _free_port()
    master = f"spark://127.0.0.1:{port}"
    try:
        start("master.Master", "--port", str(port))
        for _ in range(workers):
            start("worker.Worker", "--cores", "1", "--memory", "1g", master)
        until = time.monotonic() + PATIENCE_S
        while said.read_text(errors="replace").count("Successfully registered with master") < workers:
            assert time.monotonic() < until, said.read_text(errors="replace")[-2_000:]
            time.sleep(0.1)
        yield master
    finally:
        for process in reversed(started):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])
