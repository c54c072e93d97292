"""Rows of any form become equal records, and a wrong one is named by row and column."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.worlds import trades

import isocast
from isocast.runtime.client.received import BatchKind, ReceivedBatch
from isocast.runtime.client.rows import events_of
from isocast.terms.errors import IsocastError, RowError
from isocast.terms.market import EventFlag, EventKind, MarketStatus, Side
from isocast.wire.events import EVENT_DTYPE, EventArray

ROW = {"kind": "trade", "floor": "XLON", "symbol": "VOD", "price": "72.5", "quantity": 100, "id": 7}
MOMENT = datetime(2026, 3, 2, 14, 30, 0, 250, tzinfo=UTC)
MOMENT_NS = 1_772_461_800_000_250_000


def batch_of(events: EventArray) -> ReceivedBatch:
    sequences = np.arange(1, len(events) + 1, dtype=np.uint64)
    return ReceivedBatch(BatchKind.MESSAGES, 1, len(events), events, sequences, sequences.astype(np.int64), 0, 0)


@st.composite
def arrays(draw: st.DrawFn) -> EventArray:
    """Events with prices that a float has exactly, so that pandas can carry them."""
    row = st.tuples(
        st.sampled_from(EventKind),
        st.sampled_from(Side),
        st.integers(0, 0xFFFF).map(lambda bits: bits & sum(EventFlag)),
        st.sampled_from(["XNYS", "XLON"]),
        st.text("ABCXYZ019", max_size=8),
        st.integers(-(1 << 52), 1 << 52),
        st.integers(0, (1 << 32) - 1),
        st.sampled_from(list(MarketStatus)),
        st.integers(1, (1 << 63) - 1),
        st.integers(0, (1 << 64) - 1),
    )
    return np.array(draw(st.lists(row, min_size=1, max_size=6)), EVENT_DTYPE)


@given(arrays())
def test_what_a_batch_gives_in_any_form_can_be_published_again(events: EventArray) -> None:
    batch = batch_of(events)
    for form in (batch.rows(), batch.to_arrow(), batch.to_pandas(), batch.to_polars(), batch.events):
        assert events_of(form).tobytes() == events.tobytes(), type(form)


def test_a_batch_of_some_symbols_and_topics() -> None:
    batch = batch_of(events_of([ROW, ROW | {"symbol": "BP"}]))
    assert batch.only(None, None) is batch
    assert [row["symbol"] for row in batch.only(["BP"], None).rows()] == ["BP"]
    assert len(batch.only(None, ["quiz"])) == 0


@dataclass
class Trade:
    kind: str
    floor: str
    symbol: str
    price: Decimal
    quantity: int
    id: int


def test_one_row_many_rows_and_a_generator_are_rows() -> None:
    one = events_of(ROW)
    (values,) = one.tolist()
    assert values == (1, 0, 0, b"XLON", b"VOD", 725_000, 100, 0, 0, 7)
    trade = Trade("trade", "XLON", "VOD", Decimal("72.5"), 100, 7)
    for rows in ([ROW], (row for row in [ROW]), trade, [trade]):
        assert events_of(rows).tobytes() == one.tobytes()
    assert len(events_of([])) == len(events_of(pd.DataFrame())) == len(events_of(pa.table({"kind": []}))) == 0


@pytest.mark.parametrize(
    "field, forms, value",
    [
        ("kind", ["trade", "TRADE", 1, "1", EventKind.TRADE, b"trade"], 1),
        ("kind", ["trade_cancel", "trade-cancel", "Trade Cancel"], 8),
        ("side", ["buy", "B", "b", Side.BUY, 1, np.uint8(1)], 1),
        ("side", [None, "", "none", float("nan"), pd.NA], 0),
        ("flags", ["auction|late", "late, auction", ["late", "auction"], ("auction", "late"), 16392], 16392),
        ("price", ["72.5", 72.5, Decimal("72.5"), np.float64(72.5), np.float32(72.5)], 725_000),
        ("price", [3, "3", 3.0, np.int32(3)], 30_000),
        ("quantity", [100, 100.0, "100", np.int64(100)], 100),
        ("symbol", ["VOD", b"VOD", " VOD "], b"VOD"),
        (
            "time",
            [
                MOMENT_NS,
                MOMENT,
                MOMENT.astimezone(timezone(timedelta(hours=9))),
                MOMENT.replace(tzinfo=None),
                "2026-03-02T14:30:00.000250Z",
                np.datetime64(MOMENT_NS, "ns"),
                pd.Timestamp(MOMENT_NS, tz="UTC"),
            ],
            MOMENT_NS,
        ),
    ],
)
def test_a_value_may_be_written_in_many_ways(field: str, forms: list[Any], value: object) -> None:
    for form in forms:
        (row,) = events_of({**ROW, field: form})
        assert row[field] == value, repr(form)


def test_a_column_may_have_many_types() -> None:
    base = {"kind": ["trade", "trade"], "floor": ["XLON", "XLON"]}
    times = pd.to_datetime([MOMENT_NS, MOMENT_NS + 1])
    frames: list[Any] = [
        pd.DataFrame({**base, "time": times}),
        pd.DataFrame({**base, "time": times.tz_localize("UTC").tz_convert("Asia/Tokyo")}),
        pd.DataFrame(base, index=pd.Index(times, name="time")),
        pd.DataFrame({**base, "time": times}).astype({"kind": "category", "floor": "string"}),
        pl.DataFrame({**base, "time": times}).with_columns(pl.col("kind").cast(pl.Categorical)),
        pl.DataFrame({**base, "time": times}).lazy(),
        pa.table({**base, "time": pa.array(times)}),
        pa.table({**base, "time": pa.array([MOMENT_NS, MOMENT_NS + 1])}),
    ]
    for frame in frames:
        assert events_of(frame)["time"].tolist() == [MOMENT_NS, MOMENT_NS + 1]
    base["kind"] = ["quote", "quote"]
    gaps = pd.DataFrame({**base, "quantity": [5.0, None], "price": pd.array([None, 7], "Int64"), "side": [None, "buy"]})
    assert [tuple(row) for row in events_of(gaps)[["quantity", "price", "side"]].tolist()] == [
        (5, 0, 0),
        (0, 70_000, 1),
    ]
    tokens = pa.table(
        {**base, "price": pa.array([Decimal("1.50"), Decimal("-0.0001")]), "quantity": pa.array([None, 1])}
    )
    assert events_of(tokens)["price"].tolist() == [15_000, -1]


def test_what_no_row_says_may_be_given_for_all() -> None:
    events = events_of({"price": [1], **ROW} | {"kind": None}, kind="order", symbol="OTHER")
    assert (events["kind"][0], events["symbol"][0]) == (3, b"VOD")
    prices = pd.DataFrame({"price": [1.5, 2.5], "qty": [1, 2]})
    assert events_of(prices, kind="trade", floor="XLON", symbol="VOD")["symbol"].tolist() == [b"VOD", b"VOD"]
    with pytest.raises(RowError, match=r'column kind: "trad" is not one of .*did you mean'):
        events_of(prices, kind="trad", floor="XLON")


def test_a_status_goes_by_name_and_a_reference_of_anything_else_by_number() -> None:
    rows = [{**ROW, "kind": "status", "reference": "halted"}, {**ROW, "reference": 7}]
    assert events_of(rows)["reference"].tolist() == events_of(pd.DataFrame(rows))["reference"].tolist() == [2, 7]
    with pytest.raises(RowError, match=r"row 1 .*, column reference: "):
        events_of([ROW, {**ROW, "reference": "halted"}])


WRONG = [
    ("price", 72.12345, "72.12345 is not a whole number of ticks of 0.0001"),
    ("price", 0.1 + 0.2, "0.30000000000000004 is not a whole number"),
    ("price", float("inf"), "inf is not exact"),
    ("price", 1e15, "not exact as a float: give a Decimal"),
    ("price", Decimal("0.00001"), "has more than 4 decimals"),
    ("price", Decimal(10**15), "is too large"),
    ("time", 1763532000, "1763532000 ns since 1970 is 1970-01-01T00:00:01.763: give a datetime"),
    ("quantity", -1, "-1 is not a whole number"),
    ("quantity", 1.5, "1.5 is not a whole number"),
    ("quantity", 1 << 32, "does not fit 32 bits"),
    ("time", -1, "neither nanoseconds"),
    ("time", "yesterday", "neither nanoseconds"),
    ("kind", "trad", 'did you mean "trade"'),
    ("kind", None, "must be given"),
    ("price", None, "is empty in a trade"),
    ("price", float("nan"), "is empty in a trade"),
    ("quantity", None, "is empty in a trade"),
    ("symbol", None, "is empty in a trade: name what was traded"),
    ("floor", "London", "four capital letters"),
    ("symbol", "NINELETTERS", "1 to 8"),
    ("side", "bye", 'did you mean "buy"'),
    ("flags", "aucton", 'did you mean "auction"'),
    ("volume", 1, "unknown column"),
]


@pytest.mark.parametrize("column, value, rule", WRONG, ids=str)
def test_a_wrong_value_is_named_in_every_form(column: str, value: object, rule: str) -> None:
    rows: list[dict[str, Any]] = [{**ROW, "price": 1.5, "time": 5, "side": "buy", "flags": "late"} for _ in range(3)]
    rows[2][column] = value
    forms: list[Any] = [rows, pd.DataFrame(rows)]
    if not isinstance(value, Decimal | str) or column not in {"price", "time"}:  # Else a column of mixed types.
        forms += [pl.DataFrame(rows, strict=False, infer_schema_length=None), pa.table(pd.DataFrame(rows))]
    for form in forms:
        with pytest.raises(RowError) as caught:
            events_of(form)
        assert rule in str(caught.value), type(form)
        assert caught.value.column == column
        if column != "volume":
            assert caught.value.row == 2, type(form)


@pytest.mark.parametrize(
    "moment",
    [np.datetime64("2600-01-01"), np.datetime64("2600-01-01", "s"), np.datetime64(10**15 + 1, "ps")],
    ids=str,
)
def test_a_time_that_nanoseconds_do_not_hold_is_refused(moment: np.datetime64) -> None:
    """In 64 bits 2600 would be 2015."""
    forms: list[Any] = [{**ROW, "time": moment}, [{**ROW, "time": moment}]]
    if moment.dtype != "datetime64[ps]":  # Pandas has no such column.
        forms.append(pd.DataFrame({**ROW, "time": np.array([moment], "datetime64[s]")}))
    for form in forms:
        with pytest.raises(RowError, match=r"column time: .* does not fit"):
            events_of(form)


@pytest.mark.parametrize("seconds", [1763532000, 1763532000.0, "1763532000", 1763532000_123, np.uint64(1763532000)])
def test_a_time_in_seconds_is_not_taken_for_nanoseconds(seconds: object) -> None:
    """It would be in the first days of 1970. `time_ns` says its unit: there it is what it says."""
    for form in (ROW | {"time": seconds}, pd.DataFrame([ROW]).assign(time=seconds)):
        with pytest.raises(RowError, match=r"row 0 .*column time: .* is 1970-01-.*give a datetime"):
            events_of(form)
    assert events_of(ROW | {"time_ns": 1763532000})["time"].tolist() == [1763532000]
    assert events_of(ROW | {"time": np.datetime64(1763532000, "ns")})["time"].tolist() == [1763532000]


def test_prices_in_ticks_are_not_taken_for_units() -> None:
    """Records, and files of feeds, have kinds by number and prices in ticks: 72.5 would become 725,000."""
    part = events_of([ROW, ROW])[["kind", "floor", "symbol", "price", "quantity"]]
    text = {"floor": ["XLON", "XLON"], "symbol": ["VOD", "VOD"]}
    frame = pd.DataFrame({**text, **{name: part[name] for name in ("kind", "price", "quantity")}})
    for form in (part, frame, pl.DataFrame(frame), pa.table(frame)):
        with pytest.raises(RowError, match=r"column price: .*ticks of 0.0001: give units, which are price / 10000"):
            events_of(form)
    assert events_of(frame.assign(price=frame.price / 10_000))["price"].tolist() == [725_000, 725_000]
    assert events_of({**ROW, "kind": EventKind.TRADE, "price": 72})["price"].tolist() == [720_000]


@pytest.mark.parametrize("name", [None, "time", "timestamp", "Date"])
@pytest.mark.parametrize("zone", [None, "Asia/Tokyo"])
def test_an_index_of_times_is_the_time_of_the_rows(name: str | None, zone: str | None) -> None:
    times = pd.to_datetime([MOMENT_NS, MOMENT_NS + 1], utc=True).tz_convert(zone)
    frame = pd.DataFrame([ROW, ROW], index=pd.Index(times, name=name))
    assert events_of(frame)["time"].tolist() == [MOMENT_NS, MOMENT_NS + 1]
    if name != "time":
        assert events_of(frame.assign(time_ns=5))["time"].tolist() == [5, 5]
    both = frame.set_index("symbol", append=True)
    assert events_of(both)[["symbol", "time"]].tolist() == [(b"VOD", MOMENT_NS), (b"VOD", MOMENT_NS + 1)]


def test_what_a_library_cannot_carry_is_a_row_error() -> None:
    far = datetime(3000, 1, 1)  # noqa: DTZ001 - as a column of a table has it
    for form in (pa.Table.from_pylist([ROW | {"time": far}]), pl.DataFrame([ROW | {"time": far}])):
        with pytest.raises(RowError, match=r"row 0 .*column time: .* does not fit"):
            events_of(form)
    for coded in (
        pa.Table.from_pylist([ROW])
        .drop("id")
        .append_column("id", pa.array([1 << 63], pa.uint64()).dictionary_encode()),
        pd.DataFrame([ROW]).assign(id=pd.Categorical([1 << 63])),
    ):
        assert events_of(coded)["id"].tolist() == [1 << 63]
    with pytest.raises(RowError, match="Arrow cannot carry"):
        events_of(pl.DataFrame([ROW]).with_columns(pl.col("id").cast(pl.Int128)))
    two = np.zeros(1, [("kind", "U8"), ("floor", "U4"), ("price", "f8", 2)])
    with pytest.raises(RowError, match=r"column price: has \(2,\) values in each row"):
        events_of(two)
    for masked in (np.ma.array(two[["kind"]], mask=[True]), np.ma.array(events_of(ROW), mask=[True])):
        with pytest.raises(RowError, match="masked array"):
            events_of(masked)


def test_a_refusal_says_what_to_give() -> None:
    with pytest.raises(RowError, match=r"72\.51 is a float of 32 bits.*float64 and round it to 4 places"):
        events_of(pd.DataFrame([ROW]).assign(price=np.float32(72.51)))
    with pytest.raises(RowError, match=r"a dict of columns is not a row: give pandas\.DataFrame"):
        events_of({name: [value] for name, value in ROW.items()})
    with pytest.raises(RowError, match=r"str is not a table of rows.*`replay` publishes files"):
        events_of("trades.csv")


def test_the_first_wrong_row_is_named_whatever_its_column() -> None:
    with pytest.raises(RowError, match=r"^row 1 \(from 0\), column id: "):
        events_of([ROW, {**ROW, "id": "x"}, {**ROW, "kind": "x"}])
    bad = trades(3)
    bad["kind"][1] = 99
    with pytest.raises(RowError, match=r"^row 1 \(from 0\), column kind: "):
        events_of(bad)


@pytest.mark.parametrize(
    "thing", [7, "text", b"bytes", None, [7], np.zeros(3), pd.Series([1]), pl.Series([1])], ids=str
)
def test_what_is_no_rows_is_refused(thing: object) -> None:
    with pytest.raises(RowError, match="give "):
        events_of(thing)


def test_two_columns_for_one_field_are_refused() -> None:
    with pytest.raises(RowError, match="column qty: says the same as"):
        events_of([{**ROW, "qty": 1}])
    with pytest.raises(RowError, match="column qty: says the same as"):
        events_of(pd.DataFrame([{**ROW, "qty": 1}]))


def test_no_library_is_imported_before_it_is_asked_for() -> None:
    program = """
import sys
from isocast.runtime.client.blocking import connect
from isocast.runtime.client.rows import events_of
events_of({"kind": "trade", "floor": "XLON", "price": 1.5})
assert not {"pandas", "polars", "pyarrow"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


@pytest.mark.parametrize("library, method", [("pandas", "to_pandas"), ("polars", "to_polars"), ("pyarrow", "to_arrow")])
def test_a_library_that_is_missing_is_named(library: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(IsocastError, match="pip install 'isocast"):
        getattr(batch_of(trades(1)), method)()


def test_a_batch_says_what_it_is() -> None:
    assert (isocast.ReceivedBatch, isocast.EVENT_DTYPE) == (ReceivedBatch, EVENT_DTYPE)
    assert repr(batch_of(trades(2))) == "<ReceivedBatch of 2 events, messages, sequences 1 to 2>"
    assert [row["id"] for row in batch_of(trades(2, symbols=(b"A", b"B"))).of_symbols(["B"]).rows()] == [2]
