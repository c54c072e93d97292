"""Events as Arrow: the columns of `wire.events.EVENT_DTYPE`, for whoever reads with pandas, Polars, DuckDB or Spark.

pyarrow comes with the extra `isocast[arrow]`, and is imported when somebody asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from isocast.terms.errors import IsocastError, LocalProtocolError
from isocast.wire.events import EVENT_DTYPE, EventArray

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["from_arrow", "to_arrow"]

_TEXT = ("floor", "symbol")
_TIME = "time"
_NAMES = EVENT_DTYPE.names or ()


def _pyarrow() -> Any:  # noqa: ANN401 - a module, which has no better type
    try:
        import pyarrow as pa  # noqa: PLC0415
    except ImportError as reason:
        raise IsocastError("Arrow batches need pyarrow: pip install 'isocast[arrow]'") from reason
    return pa


def to_arrow(events: EventArray, **more: npt.NDArray[Any]) -> pa.RecordBatch:
    """The events as a record batch; `more` are further columns of the same length."""
    pa = _pyarrow()
    columns: dict[str, object] = {}
    for name in _NAMES:
        column = events[name]
        if name in _TEXT:
            columns[name] = _text_column(pa, column)
        elif name == _TIME:
            columns[name] = _column(pa, column.astype("<i8").view("datetime64[ns]"))
        else:
            columns[name] = _column(pa, column)
    columns.update({name: _column(pa, values) for name, values in more.items()})
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


# `pyarrow.array` imports pandas, if it is there, when it is first called: seconds in which a listener hears nothing.


def _column(pa: Any, values: npt.NDArray[Any]) -> Any:  # noqa: ANN401 - pyarrow and its array
    whole = np.ascontiguousarray(values)
    return pa.Array.from_buffers(
        pa.from_numpy_dtype(whole.dtype), len(whole), [None, pa.py_buffer(whole.view(np.uint8))]
    )


def _text_column(pa: Any, values: npt.NDArray[np.bytes_]) -> Any:  # noqa: ANN401
    characters = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), values.dtype.itemsize)
    is_there = characters != 0
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(is_there.sum(axis=1), out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(characters[is_there])]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def from_arrow(batch: Any) -> EventArray:  # noqa: ANN401 - a RecordBatch or a Table, known only at run time
    """Events from a record batch or table; a column that is missing is zero, one that nobody knows is an error.

    Nothing is rounded, cut or wrapped to make it fit: LocalProtocolError names the column. An event of the whole floor
    has no symbol, which may be null; everything else has a value.
    """
    pa = _pyarrow()
    if not isinstance(batch, pa.RecordBatch | pa.Table):
        raise LocalProtocolError(f"{type(batch).__name__} is neither an array of events nor an Arrow batch")
    names = batch.schema.names
    strangers = [name for name in names if name not in _NAMES]
    if strangers:
        raise LocalProtocolError(f"columns {', '.join(strangers)}: an event has {', '.join(_NAMES)}")
    if len(set(names)) < len(names):
        raise LocalProtocolError(f"columns {', '.join(names)}: one occurs more than once")
    events = np.zeros(batch.num_rows, EVENT_DTYPE)
    for name in names:
        try:
            events[name] = _values(pa, name, batch.column(name))
        except (TypeError, ValueError, NotImplementedError) as reason:
            raise LocalProtocolError(f"column {name}: {reason}") from reason
    return events


def _values(pa: Any, name: str, column: Any) -> npt.NDArray[Any]:  # noqa: ANN401 - pyarrow and its column
    """The values as the field of an event has them; ValueError or TypeError where one does not fit."""
    if name == "symbol":
        column = column.cast(pa.string()).fill_null("")
    if column.null_count:
        raise ValueError(f"{column.null_count} values are null")
    if name in _TEXT:
        texts = np.char.encode(column.cast(pa.string()).to_numpy(zero_copy_only=False).astype(str), "ascii")
        room = EVENT_DTYPE[name].itemsize
        lengths = np.char.str_len(texts)
        if lengths.max(initial=0) > room:
            raise ValueError(f"{texts[lengths.argmax()].decode()!r} is longer than {room} characters")
        return texts
    if name == _TIME and pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ns", column.type.tz)).cast(pa.int64())
    return column.cast(pa.from_numpy_dtype(EVENT_DTYPE[name])).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
