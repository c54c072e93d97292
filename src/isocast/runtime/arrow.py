"""Events as Arrow: the columns of `wire.events.EVENT_DTYPE`, for whoever reads with pandas, Polars, DuckDB or Spark.

pyarrow comes with the extra `isocast[arrow]`, and is imported when somebody asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from isocast.terms.errors import IsocastError, LocalProtocolError
from isocast.wire.events import EVENT_DTYPE, EventArray

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["from_arrow", "to_arrow"]

_TEXT = ("floor", "symbol")
_NAMES = EVENT_DTYPE.names or ()


def _pyarrow() -> Any:  # noqa: ANN401 - a module, which has no better type
    try:
        import pyarrow as pa  # noqa: PLC0415
    except ImportError as reason:
        raise IsocastError("Arrow batches need pyarrow: pip install 'isocast[arrow]'") from reason
    return pa


def to_arrow(events: EventArray, **more: object) -> pa.RecordBatch:
    """The events as a record batch; `more` are further columns of the same length."""
    pa = _pyarrow()
    columns: dict[str, object] = {}
    for name in _NAMES:
        column = events[name]
        if name in _TEXT:
            columns[name] = pa.array(column.astype(f"U{column.dtype.itemsize}"), pa.string())
        elif name == "time":
            columns[name] = pa.array(column.astype("<i8").view("datetime64[ns]"))
        else:
            columns[name] = pa.array(np.ascontiguousarray(column))
    columns.update({name: pa.array(values) for name, values in more.items()})
    return pa.RecordBatch.from_pydict(columns)


def from_arrow(batch: Any) -> EventArray:  # noqa: ANN401 - a RecordBatch or a Table, known only at run time
    """Events from a record batch or table; a column that is missing is zero, one that nobody knows is an error."""
    pa = _pyarrow()
    if not isinstance(batch, pa.RecordBatch | pa.Table):
        raise LocalProtocolError(f"{type(batch).__name__} is neither an array of events nor an Arrow batch")
    strangers = [name for name in batch.schema.names if name not in _NAMES]
    if strangers:
        raise LocalProtocolError(f"columns {', '.join(strangers)}: an event has {', '.join(_NAMES)}")
    events = np.zeros(batch.num_rows, EVENT_DTYPE)
    for name in batch.schema.names:
        values = batch.column(name).to_numpy(zero_copy_only=False)
        try:
            if name in _TEXT:
                events[name] = np.char.encode(values.astype(str), "ascii")
            elif np.issubdtype(values.dtype, np.datetime64):
                events[name] = values.astype("datetime64[ns]").astype("<i8")
            else:
                events[name] = values
        except (TypeError, ValueError, UnicodeError) as reason:
            raise LocalProtocolError(f"column {name}: {reason}") from reason
    return events
