"""Instruments of a lake: full names and exact decimals, beside symbols as they always were."""

from decimal import Decimal

from pyspark.sql import SparkSession
from tests.runtime.worlds import trades

from isocast.lake.schemas import EVENT_SCHEMA
from isocast.lake.source.columns import event_batch
from isocast.lake.transforms.instruments import in_units, instrument_names, with_names
from isocast.terms.instruments import Instrument
from isocast.wire.names import name_events

COIN = Instrument("XBIN", "BTC-USDT-PERPETUAL", 18, 9)
COARSE = Instrument("XBIN", "ÜBERLANDWERK-AKTIE-OHNE-STIMME", 0, 0)
MOST = (1 << 63) - 1


def test_names_and_units(spark: SparkSession) -> None:
    deals = trades(3, symbols=(COIN.symbol.encode(), COARSE.symbol.encode(), b"VOD"))
    deals["floor"] = b"XBIN"
    deals["price"], deals["quantity"] = [MOST, -MOST, 726_000], [1, 2, (1 << 32) - 1]
    tables = [event_batch(events, EVENT_SCHEMA).to_pandas() for events in (name_events([COIN, COARSE]), deals)]
    spelled, released = map(spark.createDataFrame, tables)
    names = instrument_names(spelled)
    assert [tuple(row) for row in names.orderBy("name").collect()] == [
        ("XBIN", str(COIN.symbol), COIN.name, 18, 9),
        ("XBIN", str(COARSE.symbol), COARSE.name, 0, 0),
    ]
    rows = with_names(in_units(released), names).orderBy("id").collect()
    assert [row["name"] for row in rows] == [COIN.name, COARSE.name, "VOD"]
    assert [row["price_units"] for row in rows] == [Decimal(MOST).scaleb(-18), Decimal(-MOST), Decimal("72.6")]
    assert [row["quantity_units"] for row in rows] == [Decimal("1e-9"), Decimal(2), Decimal((1 << 32) - 1)]
    assert dict(in_units(released).dtypes)["price_units"] == "decimal(38,18)"
