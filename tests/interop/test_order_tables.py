"""Tables of orders against other readers: DuckDB, which reads the same CSV and Parquet; and our own reader of LOBSTER.

ISOCAST_DATA=/path/to/data pytest tests/interop/test_order_tables.py
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from tests.feeds.test_order_tables import MAPPING

from isocast.feeds.mappings import TableMapping, TimeForm
from isocast.runtime.client.feed_files import FeedFile, FeedOptions
from isocast.terms.market import EventFlag, EventKind, Mic, Side, Symbol
from isocast.wire.events import EVENT_DTYPE, EventArray

duckdb: Any = pytest.importorskip("duckdb", reason="duckdb is not installed: pip install duckdb")
pyarrow: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install pyarrow")

FIELDS = ["kind", "side", "flags", "price", "quantity", "id"]
EPOCH_MS = 1_381_150_000_000


def read(path: Path, mapping: TableMapping, **options: Any) -> EventArray:  # noqa: ANN401
    feed = FeedFile(path, FeedOptions(mapping=mapping, floor=Mic("XNYS"), strict=True, **options))
    return np.concatenate([np.empty(0, EVENT_DTYPE), *feed.blocks()])


def order_flow(seed: int, count: int) -> str:
    """Random rows of every kind, with cells left empty where they may be."""
    random = Random(seed)
    lines = ["time,symbol,what,order,new,side,price,done_at,shares"]
    for place in range(count):
        what = random.choice(["order", "replace", "cancel", "execution", "trade"])
        side = random.choice(["B", "S"]) if what in ("order", "replace") else random.choice(["B", "S", ""])
        new = random.choice(["", str(10_000 + place)]) if what == "replace" else ""
        price = "" if what == "cancel" else f"{random.randrange(1, 10**6) / 100:.2f}"
        done = random.choice(["", f"{random.randrange(1, 10**8) / 10_000:.4f}"]) if what == "execution" else ""
        shares = random.choice(["", "5"]) if what == "cancel" else str(random.randint(1, 900))
        lines.append(f"{EPOCH_MS + place},IBM,{what},{place + 1},{new},{side},{price},{done},{shares}")
    return "\n".join(lines) + "\n"


def by_duckdb(source: str) -> list[tuple[int, ...]]:
    """The events in SQL: price in ticks by exact decimals, replacements as two rows."""
    query = f"""
        with cells as (
            select time, what, "order"::bigint as id, try_cast(new::varchar as bigint) as new_id,
                coalesce(side, '') as side, try_cast(done_at::varchar as decimal(18, 4)) as done,
                try_cast(price::varchar as decimal(18, 4)) as asked,
                cast(coalesce(done, asked, 0) * 10000 as bigint) as ticks,
                coalesce(try_cast(shares::varchar as bigint), 0) as shares
            from {source}
        ), parts as (
            select *, unnest(case when what = 'replace' and new_id is not null then [1, 2] else [0] end) as part
            from cells
        )
        select case when part = 1 then 4 when part = 2 then 3 when what = 'order' then 3 when what = 'cancel' then 4
                when what = 'replace' then 5 when what = 'execution' then 6 else 1 end as kind,
            case when part = 1 or what = 'cancel' then 0 when side = 'B' then 1 when side = 'S' then 2 else 0 end,
            case when part = 1 then 1 else 0 end as flags,
            case when part = 1 or what = 'cancel' then 0 else ticks end as price,
            case when part = 1 then 0 else shares end as quantity,
            case when part = 2 then new_id else id end as id
        from parts order by time, part
    """  # noqa: S608 - the source is a path of this test
    return [tuple(map(int, row)) for row in duckdb.sql(query).fetchall()]


@pytest.mark.parametrize("seed", [1, 2])
def test_duckdb_reads_the_same_events_from_csv_parquet_and_its_own_zstd(seed: int, tmp_path: Path) -> None:
    from pyarrow import csv, parquet  # noqa: PLC0415

    mapping = TableMapping(
        **{name: getattr(MAPPING, name) for name in MAPPING.__slots__} | {"time_form": TimeForm.EPOCH_MS}
    )
    plain, columns, packed = (tmp_path / f"orders.{ending}" for ending in ("csv", "parquet", "csv.zst"))
    plain.write_text(order_flow(seed, 800))
    duckdb.sql(f"copy (from read_csv('{plain}', all_varchar = true)) to '{packed}' (header, compression zstd)")
    assert packed.read_bytes().startswith(b"\x28\xb5\x2f\xfd")
    parquet.write_table(csv.read_csv(plain), columns)
    expected = by_duckdb(f"read_csv('{plain}', all_varchar = true)")
    assert {row[0] for row in expected} == {1, 3, 4, 5, 6}
    assert by_duckdb(f"'{columns}'") == expected
    for path in (plain, columns, packed):
        events = read(path, mapping)
        assert [tuple(map(int, row)) for row in events[FIELDS].tolist()] == expected


DATA = os.environ.get("ISOCAST_DATA", "")


@pytest.mark.skipif(not DATA, reason="ISOCAST_DATA does not say where the real files are")
def test_a_real_lobster_file_as_a_table_of_orders() -> None:
    """LOBSTER's own reader and a mapping agree on every order, cancel and execution of an hour of Apple."""
    mapping = TableMapping(
        kind="order",
        columns=("time", "type", "order", "size", "price", "direction"),
        time="time",
        time_form=TimeForm.MIDNIGHT_S,
        kinds="type",
        kind_codes={"1": "order", "2": "cancel", "3": "cancel", "4": "execution", "5": "trade"},
        id="order",
        side="direction",
        price="price",
        price_decimals=4,
        quantity="size",
    )
    path = Path(DATA) / "lobster" / "AAPL_2012-06-21_34200000_37800000_message_50.csv.gz"
    mapped = read(path, mapping, symbol=Symbol("AAPL"))
    lobster = FeedFile(path, FeedOptions(floor=Mic("XNYS"), strict=True))
    other = np.concatenate(list(lobster.blocks()))
    assert len(mapped) == len(other) == 91_997
    for events in (mapped, other):
        events["quantity"][events["kind"] == EventKind.CANCEL] = 0  # LOBSTER says how much is deleted; we delete all.
        events["id"][events["kind"] == EventKind.TRADE] = 0  # LOBSTER numbers hidden trades by rows.
        events["reference"] = 0
    assert mapped.tobytes() == other.tobytes()
    assert set(mapped["side"][mapped["kind"] == EventKind.ORDER].tolist()) == {Side.BUY, Side.SELL}
    assert not (mapped["flags"] & EventFlag.LINKED).any()
