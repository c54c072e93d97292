"""A standalone master and two workers, started from the PySpark package: the same rows as without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from tests.lake.clusters import standalone
from tests.lake.direct import read_table
from tests.lake.markets import write_market

from isocast.lake.source.register import _package, register_isocast

ROOT = Path(__file__).parents[2]


def test_what_is_sent_along_can_be_imported() -> None:
    package = _package()
    with zipfile.ZipFile(package) as archive:
        assert not [name for name in archive.namelist() if "__pycache__" in name]
    code = (
        f"import sys; sys.path.insert(0, {str(package)!r}); import isocast.lake.source.journal as m; print(m.__file__)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.startswith(str(package))


def test_it_is_sent_along_once() -> None:
    """No session that other tests use: its workers would import what was sent from now on."""
    spark, sent = MagicMock(), ["file:/tmp/other.zip"]
    spark.sparkContext.listFiles = sent
    spark.sparkContext.addPyFile = lambda path: sent.append(f"spark://127.0.0.1:1/files/{Path(path).name}")
    for _ in range(2):
        register_isocast(spark)
    assert sent[1:] == ["spark://127.0.0.1:1/files/isocast.zip"]
    assert spark.dataSource.register.call_count == 4


@pytest.mark.long
@pytest.mark.xdist_group("spark")
def test_workers_without_the_package_read_the_same_rows(tmp_path: Path) -> None:
    market = write_market(tmp_path / "market", receivers=2, stripes=(0, 1), events=3_000, segment_bytes=60_000)
    with standalone(tmp_path, workers=2) as master:
        said = subprocess.run(
            [sys.executable, "-m", "tests.lake.on_cluster", master, str(market.path), str(tmp_path)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=280,
        )
    assert said.returncode == 0, said.stderr[-3_000:]
    found = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert found["nodes"] == 3, "the driver and two workers"
    expected = read_table(market.path).to_pylist()
    assert found["batch"] == expected
    assert found["stream"] == expected
