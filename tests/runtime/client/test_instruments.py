"""Full names, fine prices and fractions from rows to rows: through a whole market, in every form."""

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests.runtime.worlds import SMALL, World, market_file, running, wait_until

import isocast
from isocast.cli.main import main
from isocast.runtime.client.rows import events_of, fields_of, read_row
from isocast.wire.names import InstrumentNames

COIN = isocast.Instrument("XBIN", "BTC-USDT-PERPETUAL", price_decimals=8, quantity_decimals=3)
LONG = isocast.Instrument("XLON", "A-VERY-LONG-NAME")
ROWS = [
    {"kind": "trade", "floor": "XBIN", "symbol": COIN.name, "price": "0.00000123", "quantity": "0.125", "id": 1},
    {"kind": "trade", "floor": "XLON", "symbol": LONG.name, "price": "72.5", "quantity": 100, "id": 2},
    {"kind": "trade", "floor": "XLON", "symbol": "VOD", "price": "72.6", "quantity": 200, "id": 3},
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    nodes = {
        **{name: SMALL[name] for name in ("a", "b", "c", "x", "archive", "floor")},
        "desk": {"role": "customer", "lines": ["a", "b"], "retransmit": ["archive"], "start": False},
    }
    with running(market_file(tmp_path_factory.mktemp("market"), nodes)) as found:
        yield found


@pytest.fixture
def names() -> InstrumentNames:
    found = InstrumentNames()
    found.add(COIN)
    found.add(LONG)
    return found


def test_every_form_of_the_same_rows_gives_the_same_records(names: InstrumentNames) -> None:
    expected = events_of(ROWS, names=names)
    assert expected["price"].tolist() == [123, 725_000, 726_000]
    assert expected["quantity"].tolist() == [125, 100, 200]
    assert expected["symbol"].tolist() == [COIN.symbol.encode(), LONG.symbol.encode(), b"VOD"]
    exact = [{**row, "price": Decimal(str(row["price"])), "quantity": Decimal(str(row["quantity"]))} for row in ROWS]
    floats = [{**row, "price": float(str(row["price"])), "quantity": float(str(row["quantity"]))} for row in ROWS]
    fine = pa.table(
        {
            **{name: [row[name] for row in ROWS] for name in ("kind", "floor", "symbol", "id")},
            "price": pa.array([row["price"] for row in exact], pa.decimal128(30, 10)),
            "quantity": pa.array([row["quantity"] for row in exact], pa.decimal128(20, 3)),
        }
    )
    for rows in (exact, floats, pd.DataFrame(floats), pl.DataFrame(floats), fine, pd.DataFrame(exact)):
        assert events_of(rows, names=names).tolist() == expected.tolist()


@pytest.mark.parametrize(
    "change, column, rule",
    [
        ({"price": "0.000000001"}, "price", "0.000000001 is finer than 10^-8, the scale of this instrument"),
        ({"price": 1e-9}, "price", "is finer than 10^-8"),
        ({"price": "1e12"}, "price", "is too large for 8 decimals"),
        ({"quantity": "0.0001"}, "quantity", "0.0001 is finer than 10^-3"),
        ({"quantity": "4294968"}, "quantity", "too large for 3 decimals: at most 4294967.295"),
        ({"quantity": -1}, "quantity", "-1 is negative"),
        ({"price": True}, "price", "true is not a number"),
        ({"symbol": "BTC-USDT-PERPETUUM"}, "symbol", "1 to 8 printable ASCII"),
        ({"floor": "XLON"}, "symbol", "1 to 8 printable ASCII"),
    ],
)
def test_what_does_not_fit_is_named_by_row_and_column(
    names: InstrumentNames, change: dict[str, object], column: str, rule: str
) -> None:
    with pytest.raises(isocast.RowError) as found:
        events_of([ROWS[2], {**ROWS[0], **change}], names=names)
    assert (found.value.row, found.value.column) == (1, column)
    assert rule in str(found.value)


def test_a_coded_symbol_has_its_scale_wherever_it_is_written() -> None:
    row = {**ROWS[0], "symbol": COIN.symbol}
    event = events_of([row])[0]
    assert (int(event["price"]), int(event["quantity"])) == (123, 125)
    told = fields_of(event.tolist())
    assert (told["symbol"], told["price"], told["quantity"]) == (COIN.symbol, "0.00000123", "0.125")
    assert read_row(told)[5:7] == (123, 125)


def test_names_and_decimals_travel_through_a_market(world: World) -> None:
    with isocast.connect(world.path) as market:
        done = market.define([COIN, LONG])
        assert (done.events, done.messages) == (6, 1)
        market.publish(ROWS)
        with market.listen(start="beginning", timeout_s=60) as listening:
            batch = next(one for one in listening if len(one) >= 3 and one.rows()[-1]["id"] == 3)
        wait_until(lambda: world.holds("VOD"))
        assert market.instruments() == [COIN, LONG]
    rows = batch.rows()[-3:]
    assert [row["symbol"] for row in rows] == [COIN.name, LONG.name, "VOD"]
    assert [row["price"] for row in rows] == [Decimal("0.00000123"), Decimal("72.5"), Decimal("72.6")]
    assert [row["quantity"] for row in rows] == [Decimal("0.125"), 100, 200]
    table = batch.to_arrow()
    assert table.column("symbol").to_pylist()[-3:] == [COIN.name, LONG.name, "VOD"]
    assert table.column("price").to_pylist()[-3:] == [row["price"] for row in rows]
    assert table.column("quantity").to_pylist()[-3:] == [row["quantity"] for row in rows]
    frame = batch.to_pandas().tail(3)
    assert frame["price"].tolist() == [0.00000123, 72.5, 72.6]
    assert frame["quantity"].tolist() == [0.125, 100.0, 200.0]
    assert batch.to_polars()["symbol"].to_list()[-1] == "VOD"
    with isocast.connect(world.path) as other:
        with pytest.raises(isocast.IsocastError, match=r"BTC-USDT-PERPETUAL is no symbol, .* instruments\(\)"):
            other.listen(COIN.name)
        with other.tape() as tape:
            row = tape[COIN.name]
            assert (row.symbol, str(row.last), str(row.volume)) == (COIN.name, "0.00000123", "0.125")
            assert (tape["VOD"].volume, tape.opaque) == (200, 0)
        with other.listen(COIN.name, start="beginning") as listening:
            heard = [row for row in next(listening).rows() if row["kind"] == "trade"]
        assert [(row["symbol"], row["price"]) for row in heard] == [(COIN.name, Decimal("0.00000123"))]
        other.publish({**ROWS[0], "price": "0.00000124", "id": 4})


def test_the_command_publishes_by_full_names_and_shows_them(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with isocast.connect(world.path) as market:
        market.define([COIN, LONG])
        wait_until(lambda: market.instruments() == [COIN, LONG])
    file, kept = tmp_path / "rows.csv", tmp_path / "tape"
    head = "kind,floor,symbol,price,quantity,id\n"
    file.write_text(f"{head}trade,XBIN,{COIN.name},0.00000125,0.5,71\n", encoding="utf-8")
    assert main(["publish", "--config", str(world.path), str(file)]) == 0
    wait_until(lambda: 71 in world.ids("a"))
    capsys.readouterr()
    shown = ["tape", "--journal", str(world.market.directory_of("a") / "journal"), "--symbols", COIN.name, "--json"]
    again = [*shown, "--snapshot", str(kept)]  # The second time nothing is new, and nothing spells the name.
    for words in (again, again, [*shown, "--summary"]):
        assert main(words) == 0
        said = json.loads(capsys.readouterr().out)
        row = said["rows"][0] if "rows" in said else said
        assert (row["symbol"], row["close"] if "rows" in said else row["last"]["price"]) == (COIN.name, "0.00000125")
    file.write_text(f"{head}trade,XBIN,{COIN.name},0.000000001,1,72\n", encoding="utf-8")
    assert main(["publish", "--config", str(world.path), str(file)]) == 2
    assert "line 2, price: 0.000000001 is finer than 10^-8" in capsys.readouterr().err
    file.write_text(f"{head}trade,XBIN,{COIN.name}-2,1,1,72\n", encoding="utf-8")
    assert main(["publish", "--config", str(world.path), str(file)]) == 2
    assert "line 2, symbol: symbol 'BTC-USDT-PERPETUAL-2': 1 to 8 printable ASCII" in capsys.readouterr().err
