"""Events as Arrow: `to_arrow` and `from_arrow` have the fields of a record as they are, `readable` what people read.

pyarrow comes with the extra `isocast[arrow]`, and is imported when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from isocast.terms.errors import IsocastError, LocalProtocolError
from isocast.terms.instruments import MAX_PRICE_DECIMALS, MAX_QUANTITY_DECIMALS
from isocast.terms.market import PRICE_DECIMALS, EventKind, Side
from isocast.wire.events import EVENT_DTYPE, EventArray
from isocast.wire.names import InstrumentNames, are_coded, decimals_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["from_arrow", "import_pandas", "import_polars", "import_pyarrow", "readable", "to_arrow"]

_TEXT = ("floor", "symbol")
_TIME = "time"
_NAMES = EVENT_DTYPE.names or ()
_MOST_DIGITS = 38
"""Of 128 bits."""
_TICK_DIGITS = 19
"""Of 64 bits."""


def import_pyarrow() -> Any:  # noqa: ANN401 - a module, which has no better type
    """The library; IsocastError says how to get it."""
    try:
        import pyarrow as pa  # noqa: PLC0415
    except ImportError as reason:
        raise IsocastError("Arrow batches need pyarrow: pip install 'isocast[arrow]'") from reason
    return pa


def import_pandas() -> Any:  # noqa: ANN401
    """The library, after seconds; IsocastError says how to get it."""
    try:
        import pandas as pd  # noqa: PLC0415
    except ImportError as reason:
        raise IsocastError("to_pandas needs pandas: pip install 'isocast[pandas]'") from reason
    return pd


def import_polars() -> Any:  # noqa: ANN401
    """The library; IsocastError says how to get it."""
    try:
        import polars as pl  # noqa: PLC0415
    except ImportError as reason:
        raise IsocastError("to_polars needs polars: pip install 'isocast[polars]'") from reason
    return pl


def to_arrow(events: EventArray, **more: npt.NDArray[Any]) -> pa.RecordBatch:
    """The events as a record batch; `more` are further columns of the same length."""
    pa = import_pyarrow()
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


# ---- as people read them


def readable(
    events: EventArray, flags: Callable[[int], str], names: InstrumentNames | None = None, **more: npt.NDArray[Any]
) -> pa.RecordBatch:
    """Kinds, sides and flags by name, prices as decimals in units, times in UTC; `more` are further columns.

    `names` are full names of instruments. Where there are coded symbols, prices have 18 and quantities 9 decimals.
    """
    pa = import_pyarrow()
    columns = dict(zip(_NAMES, to_arrow(events).columns, strict=True))
    columns["kind"] = _named_column(pa, events["kind"], {int(kind): kind.name.lower() for kind in EventKind})
    columns["side"] = _named_column(pa, events["side"], {int(side): side.name.lower() for side in Side})
    found = np.unique(events["flags"]).tolist()
    columns["flags"] = _named_column(pa, events["flags"], {value: flags(value) for value in found})
    columns["price"] = _decimals(pa, events["price"])
    if are_coded(events["symbol"]).any():
        prices, quantities = decimals_of(events["symbol"])
        columns["price"] = _scaled_decimals(pa, events["price"], prices, MAX_PRICE_DECIMALS)
        columns["quantity"] = _scaled_decimals(pa, events["quantity"], quantities, MAX_QUANTITY_DECIMALS)
        columns["symbol"] = _full_names(pa, events, names)
    times = {"time": events["time"].astype("<i8"), **{n: v for n, v in more.items() if v.dtype.kind == "M"}}
    columns.update({name: _column(pa, values) for name, values in more.items()})
    utc = pa.timestamp("ns", "UTC")
    columns.update({name: _column(pa, values.view("<i8")).view(utc) for name, values in times.items()})
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _named_column(pa: Any, values: npt.NDArray[Any], names: dict[int, str]) -> Any:  # noqa: ANN401
    known = np.array(sorted(names), values.dtype)
    words = _text_column(pa, np.array([names[code] for code in known.tolist()], "S"))
    return pa.DictionaryArray.from_arrays(_column(pa, np.searchsorted(known, values).astype(np.int32)), words)


def _decimals(pa: Any, ticks: npt.NDArray[Any]) -> Any:  # noqa: ANN401
    """Whole ticks are the digits of decimals: 128 bits, of which the upper half has the sign."""
    words = np.empty((len(ticks), 2), np.int64)
    words[:, 0], words[:, 1] = ticks, ticks.astype(np.int64) >> 63
    kind = pa.decimal128(_TICK_DIGITS, PRICE_DECIMALS)
    return pa.Array.from_buffers(kind, len(ticks), [None, pa.py_buffer(words.reshape(-1).view(np.uint8))])


def _scaled_decimals(pa: Any, whole: npt.NDArray[Any], decimals: npt.NDArray[np.int64], most: int) -> Any:  # noqa: ANN401
    """Whole numbers of several scales as decimals of one."""
    pairs = zip(whole.tolist(), decimals.tolist(), strict=True)
    raw = b"".join([(value * 10 ** (most - places)).to_bytes(16, "little", signed=True) for value, places in pairs])
    return pa.Array.from_buffers(pa.decimal128(_MOST_DIGITS, most), len(whole), [None, pa.py_buffer(raw)])


def _full_names(pa: Any, events: EventArray, names: InstrumentNames | None) -> Any:  # noqa: ANN401
    pairs = zip(events["floor"].tolist(), events["symbol"].tolist(), strict=True)
    texts = [(floor.decode("ascii"), symbol.decode("ascii")) for floor, symbol in pairs]
    called = [(symbol if names is None else names.name_of(floor, symbol)).encode() for floor, symbol in texts]
    ends = np.cumsum([0, *map(len, called)], dtype=np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(called) or b"\0")]
    return pa.Array.from_buffers(pa.string(), len(called), buffers)


# ---- as records have them


def from_arrow(batch: Any) -> EventArray:  # noqa: ANN401 - a RecordBatch or a Table, known only at run time
    """Events from a record batch or table; a column that is missing is zero, one that nobody knows is an error.

    Nothing is rounded, cut or wrapped to make it fit: LocalProtocolError names the column. An event of the whole floor
    has no symbol, which may be null; everything else has a value.
    """
    pa = import_pyarrow()
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
