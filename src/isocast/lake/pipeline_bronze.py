"""Journals to bronze: each batch of the stream is one commit, made once however often Spark brings it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from isocast.lake.pipeline_silver import date_of
from isocast.lake.tables import DataFile, Lake
from isocast.terms.quantities import counted

__all__ = ["BronzeSink", "Report", "StoppedError", "Tell"]

Tell = Callable[[str], None]
"""Progress, a line at a time."""


@dataclass
class Report:
    """What a job did."""

    events: int = 0
    """That came into bronze."""
    batches: int = 0
    tables: dict[str, dict[str, int]] = field(default_factory=dict)
    """Of each table behind it: version, rows, files and bytes, and replaced files that stay for readers."""
    spreads: dict[str, int] = field(default_factory=dict)
    """Trades with a spread, and those without one, by reason."""
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "events": self.events,
            "batches": self.batches,
            "seconds": round(self.seconds, 3),
            "tables": self.tables,
            "spreads": self.spreads,
        }


class StoppedError(Exception):
    """A batch came after the end: the next job does it."""


class BronzeSink:
    """Writes each batch of the stream once."""

    def __init__(self, lake: Lake, report: Report, tell: Tell, after: Callable[[], None] = lambda: None) -> None:
        """`after` is called behind each commit."""
        self.error: BaseException | None = None
        self._lake = lake
        self._report = report
        self._tell = tell
        self._after = after
        self._at_work = Lock()
        self._is_closed = False

    def close(self) -> None:
        """No batch from now on; the one at hand is finished first, for Spark would break it off."""
        with self._at_work:
            self._is_closed = True

    def take(self, batch: DataFrame, number: int) -> None:
        """What Spark calls for each batch, again after a restart if it does not know how it ended."""
        try:
            with self._at_work:
                if self._is_closed:
                    # Not silently: Spark would believe that it was written.
                    raise StoppedError  # noqa: TRY301 - kept as the error of this sink
                self._take(batch, number)
        except BaseException as error:
            self.error = error
            raise

    def _take(self, batch: DataFrame, number: int) -> None:
        query = json.loads((self._lake.checkpoint / "metadata").read_text(encoding="utf-8"))["id"]
        table = self._lake.released
        before = table.snapshot()
        notes = before.notes
        if notes.get("query") == query and notes.get("batch", -1) >= number:
            return
        offsets: dict[str, int] = dict(notes.get("offsets", {}))
        if notes.get("query", query) != query:
            # The checkpoint is another one: what bronze has already must not come twice.
            known = F.create_map(*[F.lit(part) for pair in offsets.items() for part in (int(pair[0]), pair[1])])
            batch = batch.where(F.col("sequence") >= F.coalesce(known[F.col("stripe")], F.lit(0)))
        came = 0

        def said(added: list[DataFile]) -> dict[str, Any]:
            nonlocal came
            came = sum(file.rows for file in added)
            for file in added:
                stripe = file.partition["stripe"]
                offsets[stripe] = max(offsets.get(stripe, 0), _last_sequence(table.path / file.path) + 1)
            return {"offsets": offsets, "query": query, "batch": number}

        table.commit(batch.withColumn("date", date_of(F.col("due_ns"))), said)
        self._report.events += came
        self._report.batches += 1
        self._tell(f"{table.name}: {counted(came, 'event')}, {table.snapshot().rows:,} in all")
        self._after()


def _last_sequence(path: Path) -> int:
    """The greatest sequence of a file, from its statistics."""
    metadata = pq.read_metadata(path)
    column = metadata.schema.names.index("sequence")
    groups = [metadata.row_group(group).column(column).statistics for group in range(metadata.num_row_groups)]
    return int(max(group.max for group in groups))
