from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from isocast.lake.session import (
    ARROW,
    archive_file,
    archive_options,
    cores_of,
    jvm_options,
    made_options,
    settings_for,
    spark_session,
    store,
)
from isocast.lake.session_java import bundled_home, java_home, system_home, version_of
from isocast.lake.worker_daemon import worker_python
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
    home = java_home(environment)
    assert f"exec {new}/bin/java" in (home / "bin" / "java").read_text(encoding="utf-8")
    assert version_of(home) == 21
    assert java_home({**environment, "JAVA_HOME": str(home)}) == home, "a script does not run a script"
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


def test_a_java_of_the_system_runs_where_nothing_can_be_written(tmp_path: Path) -> None:
    new = fake_java(tmp_path / "new", "21.0.1")
    (tmp_path / "file").touch()
    environment = {"PATH": str(new / "bin"), "XDG_CACHE_HOME": str(tmp_path / "file")}
    assert java_home(environment) == new
    with pytest.raises(ConfigurationError, match="cannot be written"):
        bundled_home(environment)


def test_the_bundled_runtime_starts_with_what_the_launcher_asks_for(tmp_path: Path) -> None:
    home = bundled_home({"XDG_CACHE_HOME": str(tmp_path / "a dir")})
    command = [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"]
    command.insert(1, "--add-opens=java.base/sun.security.action=ALL-UNNAMED")
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "version" in said.stderr
    assert "WARNING" not in said.stderr + said.stdout


# ---- what the JVM is given


def test_the_collector_of_whoever_calls_holds(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    assert jvm_options(tmp_path, "-Xss4m", environment).endswith("-XX:+UseParallelGC")
    assert "GC" not in jvm_options(tmp_path, "-XX:+UseSerialGC -Xss4m", environment)
    assert set(ARROW) < set(jvm_options(tmp_path, "-XX:+UseSerialGC", environment).split())


def test_whoever_wants_it_sees_everything(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path), "ISOCAST_SPARK_LOG": "info"}
    assert "-Disocast.spark.log=info" in jvm_options(tmp_path, "", environment).split()
    with pytest.raises(ConfigurationError, match="ISOCAST_SPARK_LOG"):
        jvm_options(tmp_path, "", {**environment, "ISOCAST_SPARK_LOG": "all"})


def test_clusters_read_arrow_without_checks_too(tmp_path: Path) -> None:
    assert settings_for("spark://h:7077", tmp_path, tmp_path)["spark.executor.defaultJavaOptions"] == " ".join(ARROW)
    assert "spark.executor.defaultJavaOptions" not in settings_for("local[2]", tmp_path, tmp_path)


@pytest.mark.parametrize("version, used", [("21.0.1", "-XX:SharedArchiveFile="), ("25", "-XX:AOTCache=")])
def test_an_archive_is_used_while_it_is_whole_and_ours(tmp_path: Path, version: str, used: str) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    home = fake_java(tmp_path / "java", version)
    file = archive_file(home, environment)
    file.parent.mkdir(parents=True)
    assert archive_options(home, environment) == ()
    older = file.with_name(f"{file.stem.rpartition('-')[0]}-0.archive")
    older.touch()
    made = tmp_path / "made"
    made.write_bytes(bytes(1_000))
    assert store(made, file) == 1_000
    assert archive_options(home, environment) == (f"{used}{file}",)
    assert f"{used}{file}" in jvm_options(home, "", environment).split()
    assert f"{used}{file}" not in jvm_options(home, made_options(home, made), environment).split()
    assert not older.exists()
    file.chmod(0o620)
    assert archive_options(home, environment) == (), "others could write it"
    file.chmod(0o600)
    file.write_bytes(bytes(999))
    assert archive_options(home, environment) == (), "Java 17 dies of an archive that was cut off"


def test_java_leaves_an_archive_aside_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "made").write_bytes(b"what is this" * 1_000)
    for home in {java_home(), bundled_home()}:
        file = archive_file(home, {"XDG_CACHE_HOME": str(tmp_path)})
        file.parent.mkdir(exist_ok=True)
        made = tmp_path / file.name
        made.write_bytes((tmp_path / "made").read_bytes())
        store(made, file)
        options = jvm_options(home, "", {"XDG_CACHE_HOME": str(tmp_path)}).split()
        said = subprocess.run([home / "bin" / "java", *options, "-version"], capture_output=True, text=True, check=True)
        assert said.stdout == ""
        assert "archive" not in said.stderr
        assert "AOT" not in said.stderr


@pytest.mark.parametrize("master, cores", [("local", 1), ("local[3]", 3), ("local[2,4]", 2), ("spark://h:7077", None)])
def test_a_master_says_its_cores(master: str, cores: int | None) -> None:
    assert cores_of(master) == cores


def test_partitions_follow_the_cores(tmp_path: Path) -> None:
    key = "spark.sql.shuffle.partitions"
    assert [settings_for(f"local[{n}]", tmp_path, tmp_path)[key] for n in (1, 8, 400)] == ["2", "8", "64"]


@pytest.mark.parametrize("length, fits", [(64, True), (65, False)])
def test_sockets_whose_paths_have_no_room_give_way_to_tcp(length: int, fits: bool) -> None:  # noqa: FBT001
    """With a long TMPDIR Spark failed: AF_UNIX path too long."""
    place = Path("/" + "x" * (length - 1))
    assert len(f"{place}/.{uuid4()}.sock") <= 107 or not fits
    assert ("spark.python.unix.domain.socket.enabled" in settings_for("local[2]", place, place)) == fits


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


def test_options_reach_the_jvm(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm  # noqa: SLF001 - there is no other way to ask
    assert jvm is not None
    given = set(jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments())
    assert set(ARROW) | {"-XX:+UseSerialGC", "-Xlog:disable"} < given
    assert not [option for option in given if "incubator" in option]


QUIET = """
import pyspark.sql.datasource as source
from isocast.lake.session import QUICK_START, spark_session

spark = spark_session("q", master="local[2]", settings={"spark.driver.extraJavaOptions": QUICK_START})

def many(batches):
    import pyarrow as pa
    for _ in batches:
        for first in range(1_000):
            yield pa.RecordBatch.from_pydict({"x": list(range(first, first + 10_000))})

print(len(spark.range(2).mapInArrow(many, "x bigint").limit(5).collect()))

class Ticks(source.DataSource):
    name = classmethod(lambda cls: "ticks")
    schema = lambda self: "x int"
    streamReader = lambda self, schema: TicksReader()

class TicksReader(source.DataSourceStreamReader):
    offset = 0
    initialOffset = lambda self: {"at": 0}
    partitions = lambda self, start, end: [source.InputPartition(end["at"])]
    read = lambda self, partition: iter([(partition.value,)])
    def latestOffset(self):
        self.offset += 1
        return {"at": self.offset}

spark.dataSource.register(Ticks)
query = spark.readStream.format("ticks").load().writeStream.format("noop").start()
while query.lastProgress is None:
    query.awaitTermination(0.2)
query.stop()

def bad(batches):
    raise ValueError("planted")

try:
    spark.range(1).mapInArrow(bad, "x bigint").collect()
except Exception as error:
    print("ValueError: planted" in str(error))
log = spark.sparkContext._jvm.org.apache.logging.log4j.LogManager
log.getLogger("org.apache.spark.Some").error("something is broken")
spark.stop()
"""


@pytest.mark.long
@pytest.mark.xdist_group("spark")
def test_only_errors_that_nobody_else_tells_reach_the_terminal() -> None:
    done = subprocess.run([sys.executable, "-c", QUIET], capture_output=True, text=True, check=True, timeout=280)
    assert done.stdout == "5\nTrue\n"
    assert [line.split(" ", 1)[1] for line in done.stderr.splitlines()] == ["Spark ERROR Some: something is broken"]


@pytest.mark.parametrize(
    "module, said", [("pyspark.sql.streaming.python_streaming_source_runner", ""), ("pyspark.no", "ImportError")]
)
def test_a_worker_that_comes_too_late_says_nothing(tmp_path: Path, module: str, said: str) -> None:
    place = {"PYTHON_UNIX_DOMAIN_ENABLED": "true", "PYTHON_WORKER_FACTORY_SOCK_PATH": str(tmp_path / "gone")}
    done = subprocess.run(
        [worker_python(), "-m", module], capture_output=True, text=True, check=False, env={**os.environ, **place}
    )
    assert (done.returncode, said in done.stderr, bool(done.stderr)) == (1, True, bool(said))


SHARING = """
from isocast.lake.session import QUICK_START, spark_session

spark = spark_session("s", master="local[2]", settings={"spark.driver.extraJavaOptions": QUICK_START})
arguments = spark.sparkContext._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
print([each.partition("=")[0] for each in arguments if each.endswith(".archive")], spark.range(9).count())
print(spark.sparkContext._jvm.System.getProperty("java.vm.info"))
"""


@pytest.mark.long
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("java", ["auto", "bundled"])
def test_what_was_prepared_is_used(tmp_path: Path, java: str) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "ISOCAST_JAVA": java}

    def said(*words: str) -> str:
        command = [sys.executable, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=900, env=environment)
        assert done.stderr == ""
        return done.stdout

    assert said("-m", "isocast", "lake", "prepare").startswith("Spark starts faster from now on")
    assert said("-m", "isocast", "lake", "prepare").startswith("Spark is prepared already")
    arguments, info = said("-c", SHARING).splitlines()
    assert arguments in {"['-XX:SharedArchiveFile'] 9", "['-XX:AOTCache'] 9"}
    assert "sharing" in info


def test_spark_leaves_nothing_where_it_was_started(spark: SparkSession) -> None:
    before = set(Path.cwd().iterdir())
    spark.range(10).write.saveAsTable("leaves_nothing")
    assert spark.table("leaves_nothing").count() == 10
    spark.sql("DROP TABLE leaves_nothing")
    assert set(Path.cwd().iterdir()) == before
    assert not {"spark-warehouse", "metastore_db", "derby.log", "artifacts"} & {path.name for path in before}
