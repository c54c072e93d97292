"""The page of columns says what frames and files of trading have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from isocast.lake.transforms.deliveries import ANSWERS_SCHEMA, DEPARTURES_SCHEMA
from isocast.lake.transforms.floors import ORDERS_SCHEMA, REPORTS_SCHEMA, TRADES_SCHEMA
from isocast.runtime.accounts.export import EXPORT_COLUMNS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "lake-schema.md"
TYPES = {"string": "STRING", "int64": "BIGINT", "bool": "BOOLEAN"}


def columns_of(name: str) -> list[tuple[str, str]]:
    """The table behind the paragraph that begins with a name."""
    text = PAGE.read_text(encoding="utf-8").partition(f"\n`{name}")[2]
    table = text[text.index("|---|") :].partition("\n\n")[0]
    return re.findall(r"^\| `(\w+)` \| (\w+) \|", table, flags=re.MULTILINE)


@pytest.mark.parametrize(
    "name, schema",
    [
        ("floor_orders(", ORDERS_SCHEMA),
        ("floor_reports(", REPORTS_SCHEMA),
        ("floor_trades(", TRADES_SCHEMA),
        ("exchange_reports(", ANSWERS_SCHEMA),
        ("exchange_departures(", DEPARTURES_SCHEMA),
    ],
)
def test_frames(name: str, schema: StructType) -> None:
    assert columns_of(name) == [(field.name, field.dataType.simpleString().upper()) for field in schema]


@pytest.mark.parametrize("name", EXPORT_COLUMNS)
def test_files(name: str) -> None:
    columns = EXPORT_COLUMNS[name]
    assert columns_of(f"books/{name}.parquet") == [(column, TYPES[kind]) for column, kind in columns.items()]
