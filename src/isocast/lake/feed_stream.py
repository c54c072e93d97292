"""`readStream.format("isocast-feed")`: feed files as they are put into a folder, each of them once.

    spark.readStream.format("isocast-feed").option("maxFilesPerTrigger", 4).load("arriving")

An offset names the files that were read, as `{path: 1}`: it does not matter in which order they come, or what they are
called. A file must be whole when it gets its name: write it elsewhere, or under a name that begins with a dot, and
rename it. What was read may be removed once its batch is finished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

from isocast.lake.source_options import Offsets
from isocast.terms.errors import ConfigurationError

__all__ = ["FeedPartition", "FeedStreamReader"]

_FILES_MAX = 100_000
"""Names in one offset, which a checkpoint writes down for every batch."""


class FeedPartition(InputPartition):
    """One file."""

    def __init__(self, path: str) -> None:
        """Where it is."""
        super().__init__(None)
        self.path = path


class FeedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads files that are new."""

    def __init__(
        self,
        files: Callable[[], Sequence[str]],
        read: Callable[[InputPartition], Iterator[pa.RecordBatch]],
        max_files: int = 0,
    ) -> None:
        """`files` are those that are there now; `read` reads one; at most `max_files` make a batch, 0: all."""
        self._files = files
        self._read = read
        self._max_files = max_files
        self._target: frozenset[str] | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's names
        """Nothing was read."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What the option `maxFilesPerTrigger` says."""
        return ReadMaxFiles(self._max_files) if self._max_files else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What comes later is for the next query."""
        self._target = frozenset(self._files())

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        """What was read, and what the next batch reads."""
        new = [path for path in self._files() if path not in start and self._is_wanted(path)]
        new = new[: limit.max_files] if isinstance(limit, ReadMaxFiles) else new
        if len(start) + len(new) > _FILES_MAX:
            rule = f"more than {_FILES_MAX:,} files: begin another query, with a folder or a pattern for what is new"
            raise ConfigurationError("format isocast-feed", "path", rule)
        return {**start, **dict.fromkeys(new, 1)}

    def _is_wanted(self, path: str) -> bool:
        return self._target is None or path in self._target

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """A task for each file."""
        return [FeedPartition(path) for path in sorted(set(end) - set(start))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One file."""
        return self._read(partition)
