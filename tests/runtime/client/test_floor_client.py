"""isocast.Floor: events in any form, trades out."""

from __future__ import annotations

import doctest
import tracemalloc
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import isocast
from isocast.runtime.client import floor_client

SYMBOLS = {"ISO": {"tick": "0.01"}}
ROWS = [
    {"kind": "order", "id": 1, "symbol": "ISO", "side": "sell", "quantity": 100, "price": 10.02},
    {"kind": "order", "id": 2, "symbol": "ISO", "side": "sell", "quantity": 50, "price": 10.03},
    {"kind": "order", "id": 3, "symbol": "ISO", "side": "buy", "quantity": 120, "price": 10.05},
    {"kind": "cancel", "id": 2, "symbol": "ISO", "side": "sell", "quantity": 10, "price": 0.0},
]


def as_array(rows: list[dict[str, Any]]) -> np.ndarray[Any, Any]:
    kinds = [("kind", "U7"), ("id", "i8"), ("symbol", "U3"), ("side", "U4"), ("quantity", "i8"), ("price", "f8")]
    return np.array([tuple(row[name] for name, _ in kinds) for row in rows], kinds)


FORMS = {
    "dicts": list,
    "numpy": as_array,
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "arrow": pa.Table.from_pylist,
}


def test_the_example_of_the_docstring_is_true() -> None:
    assert doctest.testmod(floor_client).attempted >= 5
    assert not doctest.testmod(floor_client).failed


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("book", ["fast", "readable"])
def test_every_form_of_a_table_gives_the_same(form: str, book: str) -> None:
    floor = isocast.Floor(SYMBOLS, book=book)
    result = floor.apply(FORMS[form](ROWS))
    assert [(one.price, one.quantity, one.buy, one.sell) for one in result.trades] == [
        (Decimal("10.0200"), 100, 3, 1),
        (Decimal("10.0300"), 20, 3, 2),
    ]
    assert [(one["report"], one["id"]) for one in result.reports] == [("cancelled", 2)]
    assert floor.book("ISO").sells == (isocast.FloorLevel(Decimal("10.0300"), 20, 1),)
    assert floor.book("ISO").reference == Decimal("10.0300")
    plain = isocast.Floor(SYMBOLS)
    plain.apply(ROWS)
    assert floor.state_hash() == plain.state_hash()


def test_trades_as_tables() -> None:
    result = isocast.Floor(SYMBOLS).apply(ROWS)
    assert isinstance(result, isocast.FloorResult)
    assert all(isinstance(one, isocast.FloorTrade) for one in result.trades)
    assert [type(one).__name__ for one in result.raw_reports()] == ["Trade", "Trade", "Cancelled"]
    assert result.to_arrow().column("price").to_pylist() == [Decimal("10.0200"), Decimal("10.0300")]
    assert result.to_pandas()["price"].tolist() == [10.02, 10.03]
    assert result.to_polars()["quantity"].to_list() == [100, 20]
    assert result.rows()[0]["symbol"] == "ISO"
    assert isocast.Floor(SYMBOLS).apply([]).to_arrow().num_rows == 0


def test_tokens_cut_a_table_and_a_batch_trades_at_their_ends() -> None:
    floor = isocast.Floor({"ISO": {"tick": "0.01", "market": "batch"}})
    rows = [{**row, "token": token} for row, token in zip(ROWS[:3], (5, 5, 7), strict=True)]
    result = floor.apply(rows)
    assert [(one.token, one.is_auction) for one in result.trades] == [(7, True), (7, True)]
    assert floor.token == 7
    with pytest.raises(isocast.RowError, match="column token: 7 does not rise"):
        floor.apply(rows[2])


def test_times_make_orders_end() -> None:
    floor = isocast.Floor(SYMBOLS)
    floor.apply({"id": 1, "symbol": "ISO", "side": "buy", "quantity": 1, "price": 1, "until": "1970-01-01T00:00:05Z"})
    assert floor.apply([], time_ns=4_999_999_999).reports == []
    assert [one["report"] for one in floor.apply([], time_ns=5_000_000_000).reports] == ["expired"]


def test_every_kind_of_event_and_scales_of_their_own() -> None:
    floor = isocast.Floor({"BTC": {"tick": "0.00000001", "lot": "0.001"}, "ISO": {}})
    result = floor.apply(
        [
            {"id": 1, "symbol": "BTC", "side": "sell", "quantity": "1.5", "price": "0.00000003"},
            {"id": 2, "symbol": "BTC", "side": "buy", "quantity": "0.25", "price": "0.00000004", "immediate": True},
            {"kind": "replace", "id": 1, "price": "0.00000002"},
            {"kind": "status", "symbol": "ISO", "phase": "pre-open"},
            {
                "kind": "lot",
                "id": 5,
                "symbol": "ISO",
                "auction": "dutch",
                "quantity": 3,
                "reserve": 1,
                "start": 2,
                "step": 1,
            },
            {"kind": "bid", "id": 6, "lot": 5, "quantity": 3, "ceiling": "2"},
        ]
    )
    assert [(one.symbol, one.price, one.quantity) for one in result.trades] == [
        ("BTC", Decimal("3E-8"), Decimal("0.250")),
        ("ISO", Decimal("2.0000"), 3),
    ]
    assert floor.book("BTC").sells == (isocast.FloorLevel(Decimal("2E-8"), Decimal("1.250"), 1),)
    assert floor.book("ISO") == isocast.FloorBook("ISO", "pre-open", None, (), ())


def test_a_replace_that_leaves_something_out_keeps_it_by_either_way() -> None:
    """The short way of plain columns, and the way of all others."""
    for extra in ({}, {"owner": 0, "trigger": None, "display": None}):
        floor = isocast.Floor(SYMBOLS)
        floor.apply({"id": 1, "symbol": "ISO", "side": "buy", "quantity": 10, "price": "1.00"})
        floor.apply([{"kind": "replace", "id": 1, "price": "1.01", **extra}])
        floor.apply([{"kind": "replace", "id": 1, "quantity": 7, **extra}])
        assert floor.book("ISO").buys == (isocast.FloorLevel(Decimal("1.0100"), 7, 1),)


@pytest.mark.parametrize(
    "row, said",
    [
        ({"side": "by"}, "column side: 'by' is not one of"),
        ({"prise": 3}, 'column prise: unknown column; did you mean "price"'),
        ({"quantity": 1.5}, "column quantity: 1.5 is finer"),
        ({"price": "1.00001"}, "column price: 1.00001 is finer"),
        ({"price": "ten"}, "column price: 'ten' is not a number"),
        ({"id": -4}, "column id: -4 is not a whole number"),
        ({"id": None}, "column id: must be given"),
        ({"immediate": "perhaps"}, "column immediate: 'perhaps' is neither true nor false"),
        ({"kind": "ordr"}, "column kind: 'ordr' is not one of"),
        ({"trigger": "soon"}, "column trigger: 'soon' is not a number"),
        ({"until": "soon"}, "column until: "),
        ({"kind": "lot", "auction": "english"}, "column auction: auction must be one of"),
        ({"side": None}, "column side: "),
    ],
)
def test_a_row_that_is_no_event_is_named_and_nothing_is_applied(row: dict[str, object], said: str) -> None:
    floor = isocast.Floor(SYMBOLS)
    before = floor.state_hash()
    with pytest.raises(isocast.RowError) as found:
        floor.apply([ROWS[0], {**ROWS[1], **row}])
    assert f"row 1 (from 0), {said}" in str(found.value) or (
        str(found.value).startswith("row 1") and said in str(found.value)
    )
    assert floor.state_hash() == before


def test_a_floor_and_a_result_say_what_they_are() -> None:
    floor = isocast.Floor("ISO")
    assert repr(floor) == "<Floor of ISO, token 1>"
    assert repr(floor.apply(ROWS[0])) == "<FloorResult of 0 trades, 0 other reports>"
    assert repr(floor.apply(ROWS[2])) == "<FloorResult of 1 trade, 0 other reports>"
    assert repr(isocast.Floor(["ISO", "CAST"])) == "<Floor of ISO, CAST, token 1>"


@pytest.mark.parametrize("time_ns", ["yesterday", -1, "1970-01-01T00:00:04Z"])
def test_a_time_that_is_none_or_goes_back_is_refused_and_nothing_is_applied(time_ns: Any) -> None:  # noqa: ANN401
    floor = isocast.Floor("ISO")
    floor.apply([], time_ns="1970-01-01T00:00:05Z")
    before = floor.state_hash()
    with pytest.raises(isocast.RowError, match="column time_ns: "):
        floor.apply(ROWS[0], time_ns=time_ns)
    with pytest.raises(isocast.RowError, match="4000000000 is before the token in front of it, at 5000000000"):
        floor.apply([{**ROWS[0], "time_ns": 5 * 10**9, "token": 7}, {**ROWS[2], "time_ns": 4 * 10**9, "token": 8}])
    assert floor.state_hash() == before


def test_what_a_symbol_cannot_have_is_named() -> None:
    with pytest.raises(isocast.RowError, match="tik: is no rule of a symbol"):
        isocast.Floor({"ISO": {"tik": "0.01"}})
    with pytest.raises(isocast.RowError, match="tick: tick must be 1 or more"):
        isocast.Floor({"ISO": {"tick": 0}})
    with pytest.raises(isocast.ConfigurationError, match="is not one of fast, readable"):
        isocast.Floor(book="slow")
    with pytest.raises(isocast.ConfigurationError, match="is not one of its symbols"):
        isocast.Floor(SYMBOLS).book("OSI")
    with pytest.raises(isocast.RowError, match="str is not a table"):
        isocast.Floor(SYMBOLS).apply("buy")


def test_an_array_gives_what_the_same_table_gives() -> None:
    rows = [
        {"id": 1, "account": 1, "symbol": "ISO", "side": "sell", "quantity": 100, "price": "10.02"},
        {"id": 2, "account": 2, "symbol": "ISO", "side": "buy", "quantity": 40, "price": "10.05"},
        {"kind": "replace", "id": 1, "account": 1, "quantity": 80},
        {"kind": "cancel", "id": 1, "account": 1},
        {"kind": "cancel", "id": 9, "account": 9},
    ]
    events = np.zeros(5, isocast.Floor.EVENTS)
    events["kind"], events["id"], events["side"] = (0, 0, 2, 1, 1), (1, 2, 1, 1, 9), (2, 1, 0, 0, 0)
    events["account"] = events["id"]
    events["quantity"], events["price"] = (100, 40, 80, 0, 0), (100_200, 100_500, -1, 0, 0)
    for book in ("fast", "readable"):
        floor, other = (isocast.Floor({"ISO": {"tick": "0.01"}}, book=book) for _ in range(2))
        told, reports = other.apply(rows), floor.run(events)
        assert floor.scale("ISO") == (4, 0)
        assert [floor.KINDS[kind] for kind in reports["kind"]] == ["trade", "replaced", "cancelled", "refused"]
        assert reports["event"].tolist() == [1, 2, 3, 4]
        assert reports["quantity"].tolist() == [40, 80, 40, 0]
        assert floor.REASONS[reports["reason"][-1]] == "unknown order"
        assert [(one.number, one.buy, one.sell) for one in told.trades] == [(1, 2, 1)]
        assert floor.state_hash() == other.state_hash()


@pytest.mark.parametrize(
    "field, kind, value",
    [("kind", "u1", 4), ("quantity", "<u8", 1 << 63), ("price", "<f8", 1.0), ("day", "u1", 1), ("prise", "<i8", 1)],
)
def test_an_array_that_says_something_else_is_refused_whole(field: str, kind: str, value: float) -> None:
    floor = isocast.Floor(["ISO"])
    before = floor.state_hash()
    events = np.zeros(2, [("id", "<u8"), *([] if field == "kind" else [("kind", "u1")]), (field, kind)])
    events[field][1] = value
    with pytest.raises(isocast.RowError, match=field):
        floor.run(events)
    assert floor.state_hash() == before


def test_a_symbol_far_beyond_the_directory_is_unknown_and_costs_no_memory() -> None:
    floor = isocast.Floor("ISO")
    events = np.zeros(2, floor.EVENTS)
    events["id"], events["side"], events["quantity"], events["price"] = (1, 2), 1, 100, 100_000
    events["symbol"] = np.iinfo(np.uint32).max, 0
    tracemalloc.start()
    found = floor.run(events)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [floor.REASONS[one["reason"]] for one in found] == ["unknown symbol"]
    assert most < 1 << 20
