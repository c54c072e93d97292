"""The same pipeline on `local[2]` and on a standalone cluster of a master and two workers: equal tables.

docs/how-to/lake.md says how to start such a cluster; what is started here is what it says.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from tests.lake.markets import write_market

from isocast.lake.session_java import java_home

DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "lake.md"
pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark")]


def spark_class(*arguments: str, log: Path) -> subprocess.Popen[bytes]:
    """A process of Spark's, as `spark-class` of the package starts it."""
    import pyspark  # noqa: PLC0415 - Spark loads when a test needs it

    home = Path(pyspark.__file__).parent
    environment = {**os.environ, "JAVA_HOME": str(java_home()), "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    with log.open("wb") as out:
        command = [str(home / "bin" / "spark-class"), *arguments]
        return subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT)


def wait_for(log: Path, pattern: str, process: subprocess.Popen[bytes]) -> str:
    """What a process says when it is ready."""
    for _ in range(1_200):
        found = re.search(pattern, log.read_text(encoding="utf-8", errors="replace"))
        if found:
            return found[1]
        assert process.poll() is None, log.read_text(encoding="utf-8", errors="replace")[-2_000:]
        time.sleep(0.1)
    pytest.fail(f"{log.name} does not say {pattern}")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """A master and two workers on loopback, ended by their ids."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        log = tmp_path / "master.log"
        master = "org.apache.spark.deploy.master.Master"
        started.append(spark_class(master, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0", log=log))
        address = wait_for(log, r"Starting Spark master at (spark://127\.0\.0\.1:\d+)", started[0])
        for number in (1, 2):
            log = tmp_path / f"worker-{number}.log"
            place = ["--work-dir", str(tmp_path / f"worker-{number}"), "--webui-port", "0", "--host", "127.0.0.1"]
            worker = "org.apache.spark.deploy.worker.Worker"
            started.append(spark_class(worker, "--cores", "1", "--memory", "1g", *place, address, log=log))
            wait_for(log, r"(Successfully registered with master)", started[-1])
        yield address
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(60)


def run(lake: Path, journals: Path, master: str) -> dict[str, object]:
    command = [sys.executable, "-m", "isocast", "lake", "run", "--journals", str(journals), "--lake", str(lake)]
    done = subprocess.run([*command, "--master", master, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    report: dict[str, object] = json.loads(done.stdout)
    return report


def rows(lake: Path) -> dict[str, list[str]]:
    found = {}
    for table in ("bronze/released", "silver/tape", "silver/quotes", "gold/bars", "gold/vwap", "gold/spreads"):
        frame = ds.dataset(lake / table, format="parquet", partitioning="hive", exclude_invalid_files=True).to_table()
        found[table] = sorted(map(repr, frame.select(sorted(frame.column_names)).to_pylist()))
    return found


def test_a_cluster_of_two_workers_makes_the_same_tables(cluster: str, tmp_path: Path) -> None:
    market = write_market(tmp_path / "data", receivers=2, events=3_000, symbols=6, span_s=5_000)
    there = run(tmp_path / "there", market.path, cluster)
    here = run(tmp_path / "here", market.path, "local[2]")
    assert here["events"] == there["events"] == sum(len(market.events(stripe)) for stripe in market.stripes)
    assert rows(tmp_path / "here") == rows(tmp_path / "there")
    assert all(rows(tmp_path / "here").values())


def test_the_page_starts_a_cluster_as_this_test_does() -> None:
    page = DOCS.read_text(encoding="utf-8")
    for part in ("org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker", "--master spark://"):
        assert part in page
