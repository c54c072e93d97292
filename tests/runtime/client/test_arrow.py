"""Events as Arrow and back: nothing is lost, and nothing is bent to make it fit."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.runtime.client.arrow import from_arrow, to_arrow
from isocast.terms.errors import IsocastError, LocalProtocolError
from isocast.wire.events import EVENT_DTYPE, EventArray, events_view

TEXT = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", min_size=4, max_size=4)
SYMBOL = st.text([chr(code) for code in range(0x21, 0x7F)], max_size=8)

rows = st.tuples(
    st.integers(1, 5),
    st.integers(0, 2),
    st.integers(0, 3),
    TEXT,
    SYMBOL,
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(0, (1 << 32) - 1),
    st.integers(0, (1 << 32) - 1),
    st.integers(0, (1 << 63) - 1),
    st.integers(0, (1 << 64) - 1),
)


def events_of(*values: tuple[Any, ...]) -> EventArray:
    return np.array(list(values), EVENT_DTYPE)


ONE = events_of((1, 1, 0, "XNYS", "ISO", -5, 100, 7, 1_700_000_000_000_000_001, 42))


@given(st.lists(rows, max_size=20))
def test_what_goes_into_arrow_comes_back_the_same(values: list[tuple[Any, ...]]) -> None:
    events = events_of(*values)
    batch = to_arrow(events)
    assert batch.num_rows == len(events)
    assert from_arrow(batch).tobytes() == events.tobytes()
    table = pa.Table.from_batches([batch, batch.slice(0, len(events) // 2)])
    assert from_arrow(table).tobytes() == events.tobytes() + events[: len(events) // 2].tobytes()


def test_columns_have_the_types_that_people_expect() -> None:
    batch = to_arrow(ONE, sequence=np.array([9]))
    row = batch.select(["floor", "symbol", "price", "sequence"]).to_pylist()[0]
    assert (row["floor"], row["symbol"], row["price"], row["sequence"]) == ("XNYS", "ISO", -5, 9)
    assert pa.types.is_timestamp(batch.schema.field("time").type)
    assert batch.schema.names == [*(EVENT_DTYPE.names or ()), "sequence"]


def test_what_arrow_libraries_hand_over_is_understood() -> None:
    """Other widths, dictionaries, coarser times with a zone, columns left out, no symbol for a whole floor."""
    moment = datetime(2026, 11, 15, 12, 0, 0, 250, tzinfo=UTC)
    batch = pa.table(
        {
            "kind": pa.array([1, 2], pa.int64()),
            "floor": pa.array(["XLON", "XLON"]).dictionary_encode(),
            "symbol": pa.array(["ISO", None], pa.large_string()),
            "price": pa.array([10, 20], pa.int16()),
            "time": pa.array([moment, moment], pa.timestamp("us", "UTC")),
        }
    )
    events = from_arrow(batch)
    assert events["symbol"].tolist() == [b"ISO", b""]
    assert events["time"].tolist() == [round(moment.timestamp() * 1_000_000) * 1_000] * 2
    assert events["quantity"].tolist() == [0, 0]
    assert len(events_view(events.tobytes())) == 2
    numbers = pa.table({"time": pa.array([5], pa.int32()), "id": pa.array([1.0])})
    assert from_arrow(numbers)["time"].tolist() == [5]


@pytest.mark.parametrize(
    "column, values",
    [
        ("symbol", pa.array(["ABCDEFGHI"])),
        ("floor", pa.array(["XNYSE"])),
        ("symbol", pa.array(["Zürich"])),
        ("floor", pa.array([None], pa.string())),
        ("price", pa.array([None], pa.int64())),
        ("time", pa.array([None], pa.timestamp("ns"))),
        ("price", pa.array([1.5])),
        ("price", pa.array(["ten"])),
        ("price", pa.array([1 << 63], pa.uint64())),
        ("quantity", pa.array([1 << 32])),
        ("quantity", pa.array([-1])),
        ("time", pa.array([-1])),
        ("time", pa.array([-1], pa.timestamp("ns"))),
        ("kind", pa.array([256])),
        ("id", pa.array([[1, 2]])),
        ("symbol", pa.array([[b"x"]])),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_is_refused_by_the_name_of_its_column(column: str, values: Any) -> None:  # noqa: ANN401
    with pytest.raises(LocalProtocolError, match=f"^column {column}: "):
        from_arrow(pa.table({column: values}))


def test_columns_that_nobody_knows_and_columns_twice_are_refused() -> None:
    with pytest.raises(LocalProtocolError, match="columns volume, venue: an event has kind, side"):
        from_arrow(pa.table({"price": [1], "volume": [2], "venue": ["x"]}))
    with pytest.raises(LocalProtocolError, match="more than once"):
        from_arrow(pa.table([pa.array([1]), pa.array([2])], names=["price", "price"]))


@pytest.mark.parametrize("thing", [None, 7, "text", [1, 2], {"price": [1]}])
def test_what_is_no_batch_is_refused(thing: object) -> None:
    with pytest.raises(LocalProtocolError, match="is neither an array of events nor an Arrow batch"):
        from_arrow(thing)


def test_without_pyarrow_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(IsocastError, match=r"pip install 'isocast\[arrow\]'"):
        to_arrow(ONE)


def test_nothing_heavy_is_imported_while_a_listener_listens() -> None:
    program = """
import sys
import numpy as np
from isocast.runtime.client.arrow import to_arrow
from isocast.wire.events import EVENT_DTYPE
to_arrow(np.zeros(3, EVENT_DTYPE), sequence=np.arange(3, dtype="u8")).validate(full=True)
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
