from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from isocast.lake.session import cores_of, settings_for, spark_session
from isocast.lake.session_java import bundled_home, java_home, system_home, version_of
from isocast.terms.errors import ConfigurationError


def fake_java(home: Path, version: str) -> Path:
    """A runtime that says its version, in the way of those without a file `release`."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n", encoding="ascii")
    java.chmod(0o755)
    return home


@pytest.mark.parametrize("said, version", [("1.8.0_402", 8), ("17.0.15", 17), ("25", 25)])
def test_a_runtime_says_its_version(tmp_path: Path, said: str, version: int) -> None:
    assert version_of(fake_java(tmp_path / "java", said)) == version


def test_an_old_java_is_passed_over_for_the_bundled_one(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    environment = {"JAVA_HOME": str(old), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert system_home(environment) is None
    assert java_home(environment) == bundled_home(environment)
    with pytest.raises(ConfigurationError, match="no Java 17"):
        java_home({**environment, "ISOCAST_JAVA": "system"})


def test_a_new_java_is_used_unless_the_bundled_one_is_asked_for(tmp_path: Path) -> None:
    new = fake_java(tmp_path / "new", "21.0.1")
    environment = {"PATH": str(new / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert java_home(environment) == new
    assert java_home({**environment, "ISOCAST_JAVA": "bundled"}) == bundled_home(environment)
    with pytest.raises(ConfigurationError, match="auto, bundled or system"):
        java_home({**environment, "ISOCAST_JAVA": "mine"})


def test_the_wrapper_is_written_again_when_it_is_not_ours(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    java = bundled_home(environment) / "bin" / "java"
    script = java.read_text(encoding="utf-8")
    java.write_text("#!/bin/sh\necho hello\n", encoding="ascii")
    java.chmod(0o777)
    assert bundled_home(environment) / "bin" / "java" == java
    assert java.read_text(encoding="utf-8") == script
    assert java.stat().st_mode & 0o777 == 0o755


def test_the_bundled_runtime_starts_with_what_the_launcher_asks_for(tmp_path: Path) -> None:
    home = bundled_home({"XDG_CACHE_HOME": str(tmp_path / "a dir")})
    command = [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "version" in said.stderr


@pytest.mark.parametrize("master, cores", [("local", 1), ("local[3]", 3), ("local[2,4]", 2), ("spark://h:7077", None)])
def test_a_master_says_its_cores(master: str, cores: int | None) -> None:
    assert cores_of(master) == cores


def test_partitions_follow_the_cores(tmp_path: Path) -> None:
    key = "spark.sql.shuffle.partitions"
    assert [settings_for(f"local[{n}]", tmp_path, tmp_path)[key] for n in (1, 8, 400)] == ["2", "8", "64"]


def test_a_master_that_spark_would_not_understand_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="--master"):
        spark_session("x", master="http://somewhere")


def test_workers_run_the_same_python(spark: SparkSession) -> None:
    def executables(batches):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        import pyarrow as pa  # noqa: PLC0415

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"python": [sys.executable]})

    found = {row.python for row in spark.range(2).mapInArrow(executables, "python string").collect()}
    assert found == {sys.executable}


def test_spark_leaves_nothing_where_it_was_started(spark: SparkSession) -> None:
    before = set(Path.cwd().iterdir())
    spark.range(10).write.saveAsTable("leaves_nothing")
    assert spark.table("leaves_nothing").count() == 10
    spark.sql("DROP TABLE leaves_nothing")
    assert set(Path.cwd().iterdir()) == before
    assert not {"spark-warehouse", "metastore_db", "derby.log", "artifacts"} & {path.name for path in before}
