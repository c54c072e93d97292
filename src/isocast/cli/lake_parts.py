"""What several commands of `isocast lake` share: a session that ends, and errors of Spark in one line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from isocast.runtime.operate import shutdown
from isocast.terms.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["insist_on_spark", "lake_session"]

_OURS = re.compile(r"isocast\.terms\.errors\.(?:\w+): (.+)")


def insist_on_spark() -> None:
    """ConfigurationError that says what to install, where Spark is not."""
    try:
        import isocast.lake.session  # noqa: F401 - whether it can be
    except ImportError as reason:
        package = (reason.name or "pyspark").partition(".")[0]
        rule = f"Spark is missing ({package}): pip install 'isocast[spark]'"
        raise ConfigurationError("isocast lake", "spark", rule) from None


@contextmanager
def lake_session(app: str, master: str | None) -> Iterator[SparkSession]:
    """A session for one command, or the one that runs; what goes wrong in a worker is said as it would be said here."""
    insist_on_spark()
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from isocast.lake.session import spark_session

    running = SparkSession.getActiveSession()
    spark = running or spark_session(app, master=master)
    try:
        yield spark
    except PySparkException as error:
        found = _OURS.search(str(error))
        said = found[1] if found else str(error).partition("\n")[0]
        raise ConfigurationError("isocast lake", app, said) from error
    finally:
        if running is None and not shutdown.cause():  # Else Java ends with this process, without last words.
            spark.stop()
