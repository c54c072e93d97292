"""Make the formats known on a cluster whose workers do not have this package."""

from __future__ import annotations

import zipfile
from pathlib import Path

from pyspark.sql import SparkSession

import isocast
from isocast.lake.source.feed import IsocastFeedSource
from isocast.lake.source.journal import IsocastSource
from isocast.runtime.disk.scratch import new_directory

__all__ = ["register_isocast"]


_ARCHIVE = "isocast.zip"


def register_isocast(spark: SparkSession, *, ship: bool = True) -> None:
    """Register `isocast` and `isocast-feed` in a session, and send this package along to its workers.

    The workers' Python needs what the package needs: numpy, pyarrow, pyspark, and cryptography to ask servers. Where
    the package is installed for them, `ship=False` leaves it at home. Once more in the same session changes nothing.
    """
    context = spark.sparkContext
    # Spark keeps files by their names, and refuses a second one of a name.
    if ship and not any(file.rpartition("/")[2] == _ARCHIVE for file in context.listFiles):
        context.addPyFile(str(_package()))
    for source in (IsocastSource, IsocastFeedSource):
        spark.dataSource.register(source)


def _package() -> Path:
    """This package as a zip file that Python imports from; it goes when the process ends."""
    place = new_directory("ship")
    root = Path(isocast.__file__).parent
    target = place / _ARCHIVE
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(root.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, Path("isocast") / path.relative_to(root))
    return target
