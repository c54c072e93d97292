"""One Spark session for all tests of the lake."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with the session run in one process, so that one JVM starts for all of them."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """`local[2]`, UTC, two shuffle partitions; what it writes goes to pytest's temporary directory.

    Java ends with it: a second attempt has another.
    """
    from isocast.lake.session import QUICK_START, end_java, spark_session  # noqa: PLC0415 - Spark loads when needed

    place = tmp_path_factory.mktemp("spark")
    session = spark_session(
        "isocast tests",
        master="local[2]",
        warehouse=place,
        settings={
            "spark.driver.extraJavaOptions": f"{QUICK_START} -Djava.io.tmpdir={place}",
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
        },
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
    end_java()
