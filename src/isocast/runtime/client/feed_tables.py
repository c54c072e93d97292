"""Parquet files: our own columns as they are, any others by a mapping. pyarrow comes with `isocast[arrow]`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from isocast.feeds.cells import Column
from isocast.feeds.directories import MetSymbols, sound_events
from isocast.feeds.mappings import TableMapping
from isocast.feeds.outcomes import FeedLog, Listing
from isocast.feeds.tables import TableDecoder, scaled
from isocast.runtime.client.arrow import from_arrow, to_arrow
from isocast.terms.errors import ConfigurationError, FeedError, IsocastError, LocalProtocolError
from isocast.wire.events import EVENT_DTYPE, EventArray

__all__ = ["ParquetFeed", "ParquetOut"]

_ROWS = 1 << 17
_CENT = 0.01
_DIGEST_KEY = b"isocast.digest"
_UNIT_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def _parquet() -> Any:  # noqa: ANN401 - a module, which has no better type
    try:
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as reason:
        raise IsocastError("Parquet files need pyarrow: pip install 'isocast[arrow]'") from reason
    return parquet


class ParquetFeed:
    """Reads one file, a block for each batch of rows."""

    def __init__(
        self,
        path: Path,
        log: FeedLog,
        mapping: TableMapping | None,
        make: Callable[[TableMapping], TableDecoder],
    ) -> None:
        """Without a mapping the columns must be ours. `make` makes the decoder of another table."""
        self._log = log
        self._met = MetSymbols()
        parquet = _parquet()
        try:
            self._file = parquet.ParquetFile(path)
        except (OSError, ValueError) as reason:
            raise FeedError(str(path), f"is no sound Parquet file: {reason}") from None
        self.part = 0.0
        """How much of it was read, 0 to 1."""
        names = self._file.schema_arrow.names
        ours = EVENT_DTYPE.names or ()
        if mapping is None and not set(names) <= set(ours):
            rule = f"its columns are {', '.join(names[:12])}; name them with --mapping"
            self._file.close()
            raise ConfigurationError(str(path), "mapping", rule)
        self._decoder = None if mapping is None else make(mapping)
        if self._decoder is not None:
            self._decoder.check_columns(names)

    @property
    def directory(self) -> list[Listing]:
        """Every floor and symbol that was met; those of a mapped table are its decoder's."""
        return self._met.directory if self._decoder is None else []

    def blocks(self) -> Iterator[EventArray]:
        """All events."""
        row = 0
        with self._file:
            for batch in self._file.iter_batches(_ROWS):
                if self._decoder is None:
                    events = self._own(batch, row)
                else:
                    events = self._decoder.decode(_ArrowColumns(batch, row))
                row += batch.num_rows
                self.part = row / max(self._file.metadata.num_rows, 1)
                if len(events):
                    yield events

    def _own(self, batch: Any, row: int) -> EventArray:  # noqa: ANN401 - a record batch
        try:
            events = from_arrow(batch)
        except LocalProtocolError as reason:
            raise FeedError(self._log.file, f"rows from {row}: {reason}") from None
        events = sound_events(events.tobytes(), self._log, row, 1)
        self._met.meet(events)
        return events


class _ArrowColumns:
    """Columns of a record batch, as the decoder of tables asks for them; a row's place is its number."""

    def __init__(self, batch: Any, row: int) -> None:  # noqa: ANN401 - a record batch
        self.offsets = np.arange(row, row + batch.num_rows)
        self.lines = self.offsets + 1
        self._batch = batch

    def __len__(self) -> int:
        return len(self.offsets)

    def _values(self, name: str) -> tuple[Any, npt.NDArray[np.bool_]]:
        column = self._batch.column(name)
        present = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), np.bool_)
        return column, present

    def text(self, name: str, width: int) -> Column:
        """Whatever it is, as text."""
        column, present = self._values(name)
        texts = [
            ("" if value is None else str(value)).strip().encode("ascii", "replace") for value in column.to_pylist()
        ]
        short = np.array([len(text) <= width for text in texts], np.bool_)
        return Column(np.array(texts, f"S{width}"), present & short)

    def decimal(self, name: str, places: int, *, cut: bool = False) -> Column:
        """Integers exactly, floating point by its nearest decimal, text by its digits."""
        column, present = self._values(name)
        kind = str(column.type)
        if kind in ("float", "halffloat") and not cut:
            return _shortest(column, present, places)
        if kind in ("float", "double", "halffloat"):
            reals = np.asarray(column.cast("double").fill_null(0.0).to_numpy(zero_copy_only=False)) * 10.0**places
            finite = np.isfinite(reals) & (np.abs(reals) < 9e18)  # noqa: PLR2004 - 64 bits
            values = np.rint(np.where(finite, reals, 0)).astype(np.int64)
            near = finite if cut else finite & (np.abs(reals - values) < 1e-3)  # noqa: PLR2004
            return Column(values, present & near)
        if "int" in kind:
            return scaled(Column(np.asarray(column.fill_null(0).to_numpy(zero_copy_only=False)), present), 10**places)
        return self._decimal_text(column, present, places)

    def moments(self, name: str) -> tuple[str, Column] | None:
        """Timestamps with a zone are instants, those without are what a clock shows, and times are of a day."""
        column, present = self._values(name)
        kind, _, rest = str(column.type).partition("[")
        if kind not in ("timestamp", "time32", "time64"):
            return None
        unit = _UNIT_NS[rest.partition(",")[0].rstrip("]")]
        whole = column.cast("int32").cast("int64") if kind == "time32" else column.cast("int64")
        values = np.asarray(whole.fill_null(0).to_numpy(zero_copy_only=False))
        told = scaled(Column(values, present), unit)
        return ("clock" if kind != "timestamp" else "instant" if "tz=" in rest else "wall"), told

    def hexadecimal(self, name: str) -> Column:
        """Text of at most 15 digits in base 16."""
        values, good = [], []
        for text in self.text(name, 16).values.tolist():
            try:
                values.append(int(text, 16))
                good.append(0 <= values[-1] < 1 << 60)
            except ValueError:
                values.append(0)
                good.append(False)
        fits = np.array(good, np.bool_)
        return Column(np.array(np.where(fits, np.array(values, object), 0), np.int64), fits)

    @staticmethod
    def _decimal_text(column: Any, present: npt.NDArray[np.bool_], places: int) -> Column:  # noqa: ANN401
        from decimal import Decimal, InvalidOperation  # noqa: PLC0415

        values, good = np.zeros(len(present), np.int64), present.copy()
        for place, value in enumerate(column.to_pylist()):
            try:
                scaled = Decimal(str(value)).scaleb(places) if value is not None else Decimal(0)
                values[place] = int(scaled)
                good[place] &= scaled == int(scaled)
            except (InvalidOperation, OverflowError, ValueError):
                good[place] = False
        return Column(values, good)


def _shortest(column: Any, present: npt.NDArray[np.bool_], places: int) -> Column:  # noqa: ANN401
    """Floating point of 32 or 16 bits by its shortest decimal: 12.34 is kept as 12.340000152587890625 there.

    Bad where the neighbours of a number are further away than its last decimal, or than a hundredth: whoever wrote it
    may have meant another one.
    """
    reals = np.asarray(column.fill_null(0.0).to_numpy(zero_copy_only=False))
    exact = reals.astype(np.float64)
    apart = np.abs(np.spacing(reals).astype(np.float64))
    values, good = np.zeros(len(reals), np.int64), np.zeros(len(reals), np.bool_)
    for digits in range(places + 1):
        scale = 10.0**digits
        nearest = np.rint(np.where(np.isfinite(exact), exact, 0) * scale)
        found = (
            ~good & ((nearest / scale).astype(reals.dtype) == reals) & (apart < min(1 / scale, _CENT if places else 1))
        )
        found &= np.abs(nearest) * 10.0 ** (places - digits) < 9e18  # noqa: PLR2004 - 64 bits
        values = np.where(found, np.where(found, nearest, 0).astype(np.int64) * 10 ** (places - digits), values)
        good |= found
    return Column(values, present & good)


class ParquetOut:
    """Writes events as a Parquet file with the columns of `wire.events.EVENT_DTYPE`."""

    def __init__(self, path: Path) -> None:
        """Nothing is on disk before the first events."""
        self._path = path
        self._writer: Any = None

    def __enter__(self) -> Self:
        parquet = _parquet()
        schema = to_arrow(np.zeros(0, EVENT_DTYPE)).schema
        self._writer = parquet.ParquetWriter(self._path, schema, compression="zstd")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    def write(self, events: EventArray) -> None:
        """Some events more."""
        self._writer.write_batch(to_arrow(events))

    def finish(self, digest: str) -> None:
        """Say in the file's metadata what its events' digest is."""
        self._writer.add_key_value_metadata({_DIGEST_KEY: digest})
