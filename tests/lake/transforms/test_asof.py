"""As-of joins, as workers do them, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from isocast.lake.transforms import asof

LEFT = pa.schema([("symbol", pa.string()), ("floor", pa.string()), ("time", pa.int64())])
RIGHT = pa.schema([*LEFT, ("sequence", pa.int64()), ("bid", pa.int64())])
_Row = Sequence[Any]


def joined(left: Sequence[_Row], right: Sequence[_Row], by: Sequence[str] = ("symbol", "floor")) -> list[int | None]:
    """The bid that each row on the left finds."""
    work = asof._Join(LEFT.names, ["time"], ["time", "sequence"], list(by), ["bid"], ["bid"])  # noqa: SLF001
    tables = [
        pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
        for schema, rows in ((LEFT, left), (RIGHT, right))
    ]
    # What slices before this one hand down goes the same way.
    newest = list(
        work.last_of_slice([*tables[1].append_column("isocast_slice", pa.array([0] * len(right))).to_batches()])
    )
    assert sum(map(len, newest)) == len({(row[0], row[1]) for row in right if None not in row})
    found = work._join(*tables)  # noqa: SLF001
    assert found.select(LEFT.names).to_pylist() == tables[0].to_pylist(), "every row stays as it was"
    bids: list[int | None] = found["bid"].to_pylist()
    return bids


def test_the_newest_that_is_not_behind_is_found() -> None:
    right = [("A", "X", 10, 1, 100), ("A", "X", 10, 2, 101), ("A", "X", 20, 3, 102), ("B", "X", 5, 4, 200)]
    left = [("A", "X", 9), ("A", "X", 10), ("A", "X", 19), ("A", "X", 20), ("B", "X", 99), ("A", "Y", 99)]
    assert joined(left, right) == [None, 101, 101, 102, 200, None]


@pytest.mark.parametrize("null", [("symbol",), ("floor",), ("symbol", "floor")])
def test_a_null_key_equals_nothing(null: Sequence[str]) -> None:
    key = [None if name in null else value for name, value in (("symbol", "A"), ("floor", "X"))]
    right = [(*key, 10, 1, 100), ("A", "X", 10, 2, 200)]
    left = [(*key, 50), ("A", "X", 50)]
    assert joined(left, right) == [None, 200]


def test_a_null_time_is_not_before_anything() -> None:
    moment = 1_772_442_000_123_456_789
    right = [("A", "X", None, 1, 100), ("A", "X", moment, None, 150), ("A", "X", moment, 2, 200)]
    left = [("A", "X", None), ("A", "X", moment - 1), ("A", "X", moment)]
    assert joined(left, right) == [None, None, 200], "to the nanosecond, whatever is NULL beside it"


def test_a_null_value_is_taken_as_it_is() -> None:
    assert joined([("A", "X", 5)], [("A", "X", 1, 1, 7), ("A", "X", 2, 2, None)]) == [None]
