"""`isocast lake prepare`: let Spark start faster from now on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cyclopts import App

from isocast.cli.lake_tables import insist_on_spark
from isocast.cli.render import line
from isocast.runtime.disk.scratch import scratch_directory

__all__ = ["prepare"]


prepare = App(name="prepare", help_epilogue="Example:\n\n    isocast lake prepare\n")


@prepare.default
def _prepare() -> int:
    """Keep what Java learns while Spark starts, once after an installation; later starts take 60 % of the time.

    It costs a minute of a processor and some 190 MB in the user's cache, which may be removed at any time.
    """
    insist_on_spark()
    from isocast.lake.session import (
        QUICK_START,
        archive_file,
        archive_options,
        learn,
        made_options,
        spark_session,
        store,
    )
    from isocast.lake.session_java import java_home

    home = java_home()
    file = archive_file(home)
    if archive_options(home):
        line(f"Spark is prepared already: {file}")
        return 0
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with scratch_directory("making", file.parent) as place:
        made = place / "archive"
        java = f"{QUICK_START} {made_options(home, made)}"
        settings = {"spark.driver.extraJavaOptions": java, "spark.driver.memory": "1g"}
        with _elsewhere(place / "said"):
            learn(spark_session("isocast prepare", master="local[2]", settings=settings))
        size = store(made, file)
    line(f"Spark starts faster from now on: {file}, {size / 1e6:.0f} MB")
    return 0


@contextmanager
def _elsewhere(log: Path) -> Iterator[None]:
    """What this process and those that it starts would say on the terminal; Java tells all that it leaves out."""
    kept = {number: os.dup(number) for number in (1, 2)}
    try:
        with log.open("wb") as file:
            for number in kept:
                os.dup2(file.fileno(), number)
        yield
    finally:
        for number, own in kept.items():
            os.dup2(own, number)
            os.close(own)
