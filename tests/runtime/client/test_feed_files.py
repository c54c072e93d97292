"""Files of every format, opened by what they are; generated here, and real ones where ISOCAST_DATA says where they are.

ISOCAST_DATA=/path/to/data pytest tests/runtime/client/test_feed_files.py
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zipfile
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from tests.feeds import itch_samples as itch
from tests.feeds.itch_samples import DAY, frame
from tests.feeds.test_tables import TAQ

from isocast.feeds.days import read_day
from isocast.feeds.mappings import TableMapping, TimeForm
from isocast.feeds.merge import merge_feeds
from isocast.feeds.outcomes import FeedFault, FeedLog
from isocast.feeds.synthetic import SyntheticDay, SyntheticPlan
from isocast.feeds.tape_digest import TapeDigest
from isocast.runtime.client.arrow import to_arrow
from isocast.runtime.client.feed_files import FeedFile, FeedFormat, FeedOptions, load_mapping
from isocast.runtime.client.feed_sinks import open_sink
from isocast.terms.errors import ConfigurationError, FeedError
from isocast.terms.market import EventFlag, EventKind, Mic, Side, Symbol
from isocast.ticker.tape import Tape
from isocast.ticker.views import left_out, symbol_views
from isocast.wire.events import EVENT_DTYPE, EventArray, MarketEvent, build_events

RAW = frame(*itch.day())


def read(path: Path, **options: object) -> tuple[EventArray, FeedFile]:
    feed = FeedFile(path, FeedOptions(**options))  # type: ignore[arg-type]
    return np.concatenate([np.empty(0, EVENT_DTYPE), *feed.blocks()]), feed


def digest(events: EventArray) -> str:
    made = TapeDigest()
    made.update(events)
    return made.hex


@pytest.fixture
def day_file(tmp_path: Path) -> Path:
    path = tmp_path / "01302019.NASDAQ_ITCH50"
    path.write_bytes(RAW)
    return path


# ---- recognised by what they are


def test_plain_and_compressed_itch_are_the_same(tmp_path: Path, day_file: Path) -> None:
    plain, feed = read(day_file, strict=True)
    assert feed.format is FeedFormat.ITCH
    assert plain["time"][0] == itch.MIDNIGHT + itch.OPEN, "the day is that of the name, in New York"
    packed = tmp_path / "01302019.NASDAQ_ITCH50.gz"
    packed.write_bytes(gzip.compress(RAW))
    again, feed = read(packed, strict=True)
    assert again.tobytes() == plain.tobytes()
    assert feed.position == feed.size
    assert [listing.symbol for listing in feed.directory] == ["ISO", "CAST"]
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("01302019.ITCH50", RAW)
        archive.writestr("readme.txt", "nothing")
    assert read(tmp_path / "x.zip", strict=True)[0].tobytes() == plain.tobytes()


@pytest.mark.parametrize("name", ["day.parquet", "day.itch", "day.itch.gz", "day.pcap", "day.events", "day.events.gz"])
def test_what_is_written_is_read_again(tmp_path: Path, day_file: Path, name: str) -> None:
    events, _ = read(day_file)
    target, log = tmp_path / name, FeedLog(name)
    with open_sink(target, log, "America/New_York") as sink:
        for part in np.split(events, [5, 11]):
            sink.write(part)
        sink.finish(digest(events))
        assert not target.exists(), "it appears when it is whole"
    again, feed = read(target, day=read_day(DAY), strict=True)
    assert digest(again) == digest(events)
    assert not log.skipped
    assert len(feed.directory) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([day_file.name, name])


def test_a_writer_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), open_sink(tmp_path / "x.itch", FeedLog("x"), "UTC"):
        raise RuntimeError
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["x.itch", "x.pcap"])
def test_several_floors_fit_one_itch_feed(tmp_path: Path, name: str) -> None:
    """Orders with equal numbers on two floors, marks of each, and the same symbol: all come back as they were."""
    rows = []
    for floor, side, price in (("XNAS", Side.BUY, 100), ("XNYS", Side.SELL, 900)):
        base = MarketEvent(EventKind.ORDER, Mic(floor), Symbol("ISO"), side, price, 10, itch.MIDNIGHT + price, 7)
        rows += [
            base._replace(kind=EventKind.MARK, symbol=None, side=Side.NONE, price=0, quantity=0, id=0, reference=79),
            base,
            base._replace(kind=EventKind.EXECUTION, quantity=4, reference=price),
            base._replace(kind=EventKind.TRADE, side=Side.NONE, quantity=5, id=price),
        ]
    events = build_events(sorted(rows, key=lambda row: row.time))
    with open_sink(tmp_path / name, FeedLog(name), "America/New_York") as sink:
        sink.write(events[:3])
        sink.write(events[3:])
        sink.finish("")
    again, feed = read(tmp_path / name, day=read_day(DAY), strict=True)
    assert again[again["kind"] != EventKind.DIRECTORY].tobytes() == events.tobytes()
    assert [(listing.floor, listing.symbol) for listing in feed.directory] == [("XNAS", "ISO"), ("XNYS", "ISO")]
    only, feed = read(tmp_path / name, day=read_day(DAY), floor=Mic("XNYS"))
    assert set(only["floor"]) == {b"XNYS"}
    assert len(only) == 5


def test_the_same_events_give_the_same_bytes(tmp_path: Path, day_file: Path) -> None:
    events, _ = read(day_file)
    for name in ("a.itch.gz", "b.itch.gz"):
        with open_sink(tmp_path / name, FeedLog(name), "UTC") as sink:
            sink.write(events)
            sink.finish("")
    assert (tmp_path / "a.itch.gz").read_bytes() == (tmp_path / "b.itch.gz").read_bytes()


def test_ticks_say_symbol_day_and_columns_by_their_name(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "aig.zip", "w") as archive:
        archive.writestr("20131007_aig_Trade_Tick.csv", "14400688,491800,300,P,2000,0\n14400689,491800,5,Q,0,0\n")
    events, feed = read(tmp_path / "aig.zip", strict=True)
    assert feed.format is FeedFormat.TABLE
    assert events["symbol"].tolist() == [b"AIG", b"AIG"]
    only, feed = read(tmp_path / "aig.zip", floor=Mic("XNAS"))
    assert only["id"].tolist() == [2], "a table that names its floors gives the one that is asked for"
    assert feed.log.skipped == {"events of other floors": 1}


def test_taq_is_known_by_its_header(tmp_path: Path) -> None:
    path = tmp_path / "EQY_US_ALL_TRADE_20180730.csv"
    path.write_text(TAQ.replace("09:31:00", "093100"))
    events, _ = read(path, strict=True)
    assert len(events) == 4
    assert len({(row["floor"], row["symbol"]) for row in events}) == 4


def test_lobster_is_known_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "AAPL_2012-06-21_34200000_57600000_message_1.csv"
    path.write_text("34200.004241176,1,16113575,18,5853300,1\n")
    events, feed = read(path, strict=True)
    assert feed.format is FeedFormat.LOBSTER
    assert (events["symbol"][0], events["floor"][0]) == (b"AAPL", b"XNAS")


EVERY_TYPE = """34200.1,1,11,18,5853300,1
34200.2,1,12,20,5859100,-1
34200.3,2,12,5,5859100,-1
34200.4,4,11,10,5853300,1
34200.5,5,0,7,5855000,-1
34200.6,5,0,7,5855000,1
34200.7,3,12,15,5859100,-1
34200.8,6,-1,500,5856000,-1
34200.9,7,0,0,-1,-1
34201.0,7,0,0,0,-1
34201.1,7,0,0,1,-1
34201.2,3,7,9,5859100,1
34201.3,2,8,4,5859100,-1
34201.4,4,9,3,5859100,-1
"""
"""The last three are about orders from before the file begins."""


@pytest.mark.parametrize("name", ["back.itch", "back.itch.gz", "back.pcap"])
def test_every_event_of_lobster_comes_back_from_itch(tmp_path: Path, name: str) -> None:
    path = tmp_path / "AAPL_2012-06-21_34200000_57600000_message_1.csv"
    path.write_text(EVERY_TYPE)
    events, _ = read(path, strict=True)
    assert len(events) == 14
    log = FeedLog(name)
    with open_sink(tmp_path / name, log, "America/New_York") as sink:
        sink.write(events)
        sink.finish("")
    again, feed = read(tmp_path / name, day=date(2012, 6, 21))
    events["reference"][events["flags"] == EventFlag.AUCTION] = ord("I")
    assert again[again["kind"] != EventKind.DIRECTORY].tolist() == events.tolist()
    assert not log.skipped
    assert log.lacking == {
        "an order that was entered before it is cancelled: readers of ITCH call that a fault": 2,
        "the reference of a trade in an auction: it comes back as the letter of a cross": 1,
    }
    assert feed.log.faults[FeedFault.UNKNOWN_ORDER]["count"] == 2


def test_parquet_of_others_by_a_mapping(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet  # noqa: PLC0415

    table = pa.table(
        {
            "when": pa.array([1_381_152_600_123_456_789, 1_381_152_601_000_000_000], pa.timestamp("ns")),
            "venue": ["N", "Q"],
            "sym": ["IBM", "IBM"],
            "px": [181.25, 181.3],
            "sz": [100, None],
        }
    )
    path = tmp_path / "others.parquet"
    parquet.write_table(table, path)
    mapping = tmp_path / "m.toml"
    mapping.write_text(
        'kind = "trade"\ntime = "when"\ntime_form = "epoch-ns"\nfloor = "venue"\ncodes = "us-tape"\n'
        'symbol = "sym"\nprice = "px"\nquantity = "sz"\n'
    )
    with pytest.raises(ConfigurationError, match="its columns are when, venue, sym"):
        read(path)
    events, feed = read(path, mapping=load_mapping(str(mapping)))
    assert events.tolist() == [(1, 0, 0, b"XNYS", b"IBM", 1_812_500, 100, 0, 1_381_152_600_123_456_789, 1)]
    assert feed.log.faults[FeedFault.BAD_ROW]["first"] == "sz: not what the mapping says it is"
    assert [(listing.floor, listing.symbol) for listing in feed.directory] == [("XNYS", "IBM")]


def parquet_times(path: Path, column: Any, form: str, zone: str) -> tuple[list[int], FeedFile]:  # noqa: ANN401
    """The times of a Parquet file whose other columns are ones."""
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet  # noqa: PLC0415

    ones = pa.array([1] * len(column))
    parquet.write_table(pa.table({"t": column, "p": ones, "q": ones}), path)
    mapping = TableMapping("trade", "t", TimeForm(form), price="p", quantity="q", zone=zone)
    events, feed = read(path, mapping=mapping, day=date(2024, 3, 10), floor=Mic("XNYS"), symbol=Symbol("A"))
    return events["time"].tolist(), feed


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("form", ["epoch-ns", "iso"])
def test_timestamps_of_parquet_with_a_zone_are_instants(tmp_path: Path, unit: str, form: str) -> None:
    pa = pytest.importorskip("pyarrow")
    seconds = 1_710_077_400  # 09:30 in New York on a day on which clocks change.
    per = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    column = pa.array([seconds * per + per - 1, seconds * per, None], pa.timestamp(unit, "America/New_York"))
    found, feed = parquet_times(tmp_path / "z.parquet", column, form, "Asia/Tokyo")  # Where no clock shows UTC.
    assert found == [seconds * 10**9 + 10**9 - 10**9 // per, seconds * 10**9]
    assert feed.log.faults[FeedFault.BAD_ROW]["count"] == 1


def test_timestamps_of_parquet_without_a_zone_are_what_a_clock_shows(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    walls = [1_710_063_000_123_456_789, 1_710_034_200_000_000_000]
    column = pa.array(walls, pa.timestamp("ns"))
    found, _ = parquet_times(tmp_path / "w.parquet", column, "iso", "America/New_York")
    assert found == [walls[0] + 4 * 3_600 * 10**9, walls[1] + 5 * 3_600 * 10**9]
    clock = pa.array([34_200 * 10**9 + 1, 9_000 * 10**9], pa.time64("ns"))
    found, feed = parquet_times(tmp_path / "c.parquet", clock, "clock", "America/New_York")
    assert found == [1_710_077_400 * 10**9 + 1]
    assert "clocks skip it" in feed.log.faults[FeedFault.BAD_ROW]["first"]
    milliseconds = pa.array([34_200_001], pa.time32("ms"))
    found, _ = parquet_times(tmp_path / "m.parquet", milliseconds, "clock", "America/New_York")
    assert found == [1_710_077_400 * 10**9 + 10**6]


def test_numbers_of_parquet_that_have_no_room_are_bad_rows(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet  # noqa: PLC0415

    rows = {
        "t": pa.array([1, 1, 1, (1 << 63) // 1000 + 1], pa.timestamp("us", "UTC")),
        "p": pa.array([(1 << 64) - 1, 5, 5, 5], pa.uint64()),
        "q": pa.array([1, (1 << 64) - 1, 7, 1], pa.uint64()),
        "r": ["1", "2", "3", "FFFFFFFFFFFFFFFF"],
    }
    parquet.write_table(pa.table(rows), tmp_path / "n.parquet")
    mapping = TableMapping(
        "trade", "t", TimeForm.EPOCH_NS, price="p", quantity="q", price_decimals=4, reference="r", reference_base=16
    )
    events, feed = read(tmp_path / "n.parquet", mapping=mapping, floor=Mic("XNYS"), symbol=Symbol("A"))
    assert events[["price", "quantity", "reference"]].tolist() == [(5, 7, 3)]
    assert feed.log.faults[FeedFault.BAD_ROW]["count"] == 3
    assert "is beyond what a record holds" in feed.log.faults[FeedFault.BAD_ROW]["first"]


def test_texts_of_parquet_that_are_no_number_of_64_bits_are_bad_rows(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet  # noqa: PLC0415

    texts = ["1e999999999", "1e999990", "nan", "inf", "none", "12.34"]
    rows = {"t": pa.array(range(1, 7), pa.int64()), "p": texts, "q": pa.array([1] * 6, pa.int64())}
    parquet.write_table(pa.table(rows), tmp_path / "n.parquet")
    mapping = TableMapping("trade", "t", TimeForm.EPOCH_NS, price="p", quantity="q")
    events, feed = read(tmp_path / "n.parquet", mapping=mapping, floor=Mic("XNYS"), symbol=Symbol("A"))
    assert events["price"].tolist() == [123_400]
    assert feed.log.faults[FeedFault.BAD_ROW]["count"] == 5


def test_parquet_of_ours_is_checked(tmp_path: Path, day_file: Path) -> None:
    pytest.importorskip("pyarrow")
    from pyarrow import parquet  # noqa: PLC0415

    events, _ = read(day_file)
    damaged = events.copy()
    damaged["kind"][3] = 77
    parquet.write_table(__import__("pyarrow").Table.from_batches([to_arrow(damaged)]), tmp_path / "d.parquet")
    found, feed = read(tmp_path / "d.parquet")
    assert len(found) == len(events) - 1
    assert feed.log.faults[FeedFault.BAD_VALUE] == {"count": 1, "first_offset": 3, "first": "a record that is no event"}


# ---- known by what is in them, and read whatever is around them


def zstd(raw: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(raw)


@pytest.mark.parametrize(
    "pack", [gzip.compress, bz2.compress, lzma.compress, zstd, lambda raw: gzip.compress(zstd(raw))]
)
def test_compression_is_known_by_its_bytes_whatever_the_name(
    tmp_path: Path, day_file: Path, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "20190130.bin"
    path.write_bytes(pack(RAW))
    found, feed = read(path, strict=True)
    assert feed.format is FeedFormat.ITCH
    assert found.tobytes() == read(day_file)[0].tobytes()


def test_compressed_tables_lose_the_ending_of_their_name(tmp_path: Path) -> None:
    path = tmp_path / "20131007_aig_Trade_Tick.csv.zst"
    path.write_bytes(zstd(b"14400688,491800,300,P,2000,0\n"))
    assert read(path, strict=True)[0]["symbol"].tolist() == [b"AIG"]


def test_a_table_called_itch_is_a_table(tmp_path: Path) -> None:
    path = tmp_path / "nasdaq_itch_trades_20180730.csv"
    path.write_text(TAQ.replace("09:31:00", "093100"))
    found, feed = read(path, strict=True)
    assert (feed.format, len(found)) == (FeedFormat.TABLE, 4)
    path.write_text("time,price\n1,2\n")
    with pytest.raises(FeedError, match="its columns with --mapping"):
        read(path)


def test_itch_and_records_need_no_name(tmp_path: Path, day_file: Path) -> None:
    events, _ = read(day_file)
    (tmp_path / "20190130.csv").write_bytes(RAW)
    assert read(tmp_path / "20190130.csv", strict=True)[0].tobytes() == events.tobytes()
    (tmp_path / "anything").write_bytes(events.tobytes())
    found, feed = read(tmp_path / "anything", strict=True)
    assert (feed.format, found.tobytes()) == (FeedFormat.EVENTS, events.tobytes())


def test_lobster_needs_no_name_but_asks_for_symbol_and_day(tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text("34200.004241176,1,16113575,18,5853300,1\n34200.1,6,-1,18,5853300,-1\n")
    with pytest.raises(ConfigurationError, match="give --symbol"):
        read(path)
    found, feed = read(path, symbol=Symbol("AAPL"), day=date(2012, 6, 21), strict=True)
    assert (feed.format, len(found)) == (FeedFormat.LOBSTER, 2)


@pytest.mark.parametrize(
    "name, text",
    [
        ("20131007_aig_Trade_Tick.csv", "14400688,491800,300,P,2000,0\n"),
        ("AAPL_2012-06-21_34200000_57600000_message_1.csv", "34200.1,1,16113575,18,5853300,1\n"),
        ("EQY_US_ALL_TRADE_20180730.csv", TAQ.replace("09:31:00", "093100")),
    ],
)
def test_the_mark_before_utf_8_text_is_dropped(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    plain, _ = read(path, strict=True)
    path.write_text(text, encoding="utf-8-sig")
    assert read(path, strict=True)[0].tobytes() == plain.tobytes()


def test_a_mapping_with_a_mark_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    path.write_text('like = "taq-trades"\n', encoding="utf-8-sig")
    assert load_mapping(str(path)) == load_mapping("taq-trades")


def test_an_encrypted_zip_file_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("01302019.ITCH50", RAW)
    raw = bytearray(path.read_bytes())
    for start in (b"PK\x03\x04", b"PK\x01\x02"):
        raw[raw.index(start) + (6 if start.endswith(b"\x04") else 8)] |= 1  # The bit that says so.
    path.write_bytes(bytes(raw))
    with pytest.raises(FeedError, match="is an encrypted zip file; unpack it first"):
        read(path)


def test_a_compressed_parquet_file_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet.gz"
    path.write_bytes(gzip.compress(b"PAR1" + bytes(100) + b"PAR1"))
    with pytest.raises(FeedError, match="unpack it first"):
        read(path)


@pytest.mark.parametrize("kind", ["float", "halffloat"])
def test_prices_of_small_floating_point_are_read_by_their_shortest_decimal(tmp_path: Path, kind: str) -> None:
    pa = pytest.importorskip("pyarrow")
    texts = ["12.34", "0.5", "3"] if kind == "halffloat" else PRICES
    prices = np.array([float(text) for text in texts], np.float16 if kind == "halffloat" else np.float32)
    found, feed = read_prices(tmp_path, pa.array(prices))
    assert found["price"].tolist() == [round(float(text) * 10_000) for text in texts]
    assert not feed.log.faults


PRICES = ["12.34", "181.25", "0.0001", "1234.56", "65535.99", "101.2345", "3", "130000.01"]


@pytest.mark.parametrize("price", [131_072.01, 200_000.0, 12.34567, 1500.1234, float("nan"), 1e30])
def test_a_price_that_small_floating_point_does_not_hold_is_refused_by_its_row(tmp_path: Path, price: float) -> None:
    pa = pytest.importorskip("pyarrow")
    found, feed = read_prices(tmp_path, pa.array(np.array([1.5, price], np.float32)))
    assert found["price"].tolist() == [15_000]
    (reason,) = feed.log.reasons[FeedFault.BAD_ROW].values()
    assert (reason["count"], reason["first_row"]) == (1, 2)


def read_prices(tmp_path: Path, prices: object) -> tuple[EventArray, FeedFile]:
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import parquet  # noqa: PLC0415

    rows = len(prices)  # type: ignore[arg-type]
    table = pa.table({"t": list(range(rows)), "p": prices, "q": [1] * rows})
    parquet.write_table(table, tmp_path / "p.parquet")
    mapping = TableMapping("trade", "t", TimeForm.EPOCH_NS, price="p", quantity="q")
    return read(tmp_path / "p.parquet", mapping=mapping, symbol=Symbol("A"), floor=Mic("XNYS"))


# ---- malformed


def test_a_truncated_gzip_file_gives_what_is_whole(tmp_path: Path) -> None:
    many = frame(*(itch.trade(1, clock, 1, "ISO", clock, clock) for clock in range(1, 5_000)))
    path = tmp_path / "20190130.itch.gz"
    path.write_bytes(gzip.compress(many)[:-3_000])
    events, feed = read(path)
    assert 1_000 < len(events) < 4_999
    assert events["id"].tolist() == list(range(1, len(events) + 1))
    assert FeedFault.TRUNCATED in feed.log.faults
    with pytest.raises(FeedError, match=r"20190130\.itch\.gz: byte \d+: truncated"):
        read(path, strict=True)


def test_bad_records_of_ours_are_left_out(tmp_path: Path, day_file: Path) -> None:
    events, _ = read(day_file)
    raw = bytearray(events.tobytes())
    raw[48 * 4] = 99
    path = tmp_path / "x.events"
    path.write_bytes(bytes(raw) + b"!")
    found, feed = read(path)
    assert len(found) == len(events) - 1
    assert feed.log.faults[FeedFault.BAD_VALUE]["first_offset"] == 192
    assert feed.log.faults[FeedFault.TRUNCATED]["first_offset"] == len(raw)


@pytest.mark.parametrize(
    "name, content, rule",
    [
        ("missing", None, "cannot be read: No such file"),
        ("empty.bin", b"", "is empty"),
        ("words.txt", b"once upon a time\n", "is text that no built-in mapping fits"),
        ("noise.bin", bytes(range(9)) * 99, "has an unknown format"),
        ("wide.csv", "time,price\n1,2\n".encode("utf-16"), "save it as UTF-8"),
        ("broken.zip", b"PK\x03\x04 and no more", "is a damaged zip file"),
        ("x.parquet", b"PAR1 and no more", "is not a valid Parquet file"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(tmp_path: Path, name: str, content: bytes | None, rule: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(FeedError, match=rule):
        read(tmp_path / name)


def test_a_day_that_nobody_says_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "x.itch").write_bytes(RAW)
    with pytest.raises(ConfigurationError, match="give one, such as --day 2019-01-30"):
        read(tmp_path / "x.itch")
    assert len(read(tmp_path / "x.itch", day=date(2019, 1, 30))[0]) == 21


def test_a_mapping_that_is_nowhere_is_named() -> None:
    with pytest.raises(ConfigurationError, match='did you mean "taq-trades"'):
        load_mapping("taq-trade")
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        load_mapping("nowhere.toml")


# ---- a whole day of several floors


def test_files_of_several_floors_merge_to_the_day_that_they_came_from(tmp_path: Path) -> None:
    """Each floor's trades through its own ITCH file, merged again: every floor's digest is that of the day."""
    day = SyntheticDay(
        SyntheticPlan(seed=2, floors=6, symbols=30, trades=3_000, quotes_per_trade=0, correction_share=0)
    )
    events = np.concatenate(list(day.blocks()))
    events["side"] = 0  # ITCH says no side of a trade.
    directory = events["kind"] == EventKind.DIRECTORY
    feeds = []
    for name in np.unique(events["floor"]).tolist():
        own = events[events["floor"] == name].copy()
        path = tmp_path / f"{name.decode()}.itch.gz"
        with open_sink(path, FeedLog(path.name), "UTC") as sink:
            sink.write(own)
            sink.finish("")
        began = datetime.fromtimestamp(int(own["time"][0]) // 10**9, UTC).date()
        feeds.append(FeedFile(path, FeedOptions(floor=Mic(name.decode()), day=began, zone="UTC", strict=True)))
    events["id"][directory] = 0
    merged = np.concatenate(list(merge_feeds([feed.blocks() for feed in feeds])))
    merged["id"][merged["kind"] == EventKind.DIRECTORY] = 0
    ours, theirs = TapeDigest(), TapeDigest()
    ours.update(events)
    theirs.update(merged)
    assert theirs.floors == ours.floors


# ---- real files

DATA = os.environ.get("ISOCAST_DATA", "")
real = pytest.mark.skipif(not DATA, reason="ISOCAST_DATA does not say where the real files are")


@real
@pytest.mark.parametrize(
    "name, events, messages",
    [
        ("itch_nasdaq_head1000/sample.itch", 997, {"S": 1, "R": 993, "H": 3, "Y": 3}),
        (
            "itch_ritch_artificial/ex20101224.framed.ITCH50.gz",
            12_024,
            {"A": 4997, "D": 1745, "E": 198, "F": 3, "H": 3, "P": 5000, "R": 3, "S": 6, "U": 12, "X": 45},
        ),
    ],
)
def test_real_itch_files(name: str, events: int, messages: dict[str, int]) -> None:
    found, feed = read(Path(DATA) / name, day=date(2020, 1, 30), strict=True)
    assert len(found) == events
    assert feed.log.messages == messages


@real
def test_a_real_file_is_the_same_day_in_any_framing(tmp_path: Path) -> None:
    path = Path(DATA) / "itch_ritch_artificial" / "ex20101224.framed.ITCH50.gz"
    raw, messages = gzip.decompress(path.read_bytes()), []
    while raw:
        size = 2 + int.from_bytes(raw[:2])
        messages.append(raw[2:size])
        raw = raw[size:]
    (tmp_path / "a.bin").write_bytes(b"".join(messages))
    (tmp_path / "b.bin").write_bytes(b"".join((len(each) + 1).to_bytes(2) + b"S" + each for each in messages))
    framed, _ = read(path)
    for name, form in (("a.bin", FeedFormat.UNFRAMED), ("b.bin", FeedFormat.SOUP)):
        events, feed = read(tmp_path / name, day=date(2010, 12, 24), strict=True)
        assert feed.format is form
        assert digest(events) == digest(framed)


@real
def test_a_real_file_whose_lengths_are_zero_is_the_same_day() -> None:
    folder = Path(DATA) / "itch_ritch_artificial"
    lacking, feed = read(folder / "ex20101224.TEST_ITCH_50.gz")
    framed, _ = read(folder / "ex20101224.framed.ITCH50.gz")
    assert digest(lacking) == digest(framed)
    assert feed.log.faults[FeedFault.MISSING_LENGTH]["count"] == 12_012


@real
def test_real_captures_of_three_nasdaq_markets() -> None:
    messages: dict[str, int] = {}
    for path in sorted((Path(DATA) / "omi_pcap" / "Nasdaq").glob("*TotalView*/*.pcap")):
        _, feed = read(path)
        assert not {FeedFault.BAD_PACKET, FeedFault.UNKNOWN_TYPE, FeedFault.BAD_LENGTH} & set(feed.log.faults), path
        for kind, count in feed.log.messages.items():
            messages[kind] = messages.get(kind, 0) + count
    assert sum(messages.values()) == 227
    assert set(messages) == set("FAPXDECUYNHSQJLI")


@real
def test_official_prints_of_the_real_tape_do_not_count_again(tmp_path: Path) -> None:
    """From the feed through ITCH to the tape: every share once."""
    path = Path(DATA) / "lean_us_tick" / "spy_20131007_trade.zip"
    events, feed = read(path, strict=True)
    official = (events["reference"] & np.uint32(0x05000000)) > 0
    assert (
        feed.log.conditions["official close"] + feed.log.conditions["official open"] == np.count_nonzero(official) == 4
    )
    with open_sink(tmp_path / "x.itch", FeedLog("x"), "America/New_York") as sink:
        sink.write(events)
        sink.finish("")
    again, _ = read(tmp_path / "x.itch", day=date(2013, 10, 7), strict=True)
    volumes = []
    for each in (events, again):
        tape = Tape()
        tape.take(each)
        volumes.append(symbol_views(tape)[0].volume)
        assert left_out(tape)["official close"] == (2, 3_182_818)
    assert volumes == [int(events["quantity"][~official].sum())] * 2


@real
def test_a_real_day_of_lobster_comes_back_from_itch(tmp_path: Path) -> None:
    events, _ = read(Path(DATA) / "lobster" / "AAPL_2012-06-21_34200000_37800000_message_50.csv.gz", strict=True)
    log = FeedLog("x.itch")
    with open_sink(tmp_path / "x.itch", log, "America/New_York") as sink:
        sink.write(events)
        sink.finish("")
    again, feed = read(tmp_path / "x.itch", day=date(2012, 6, 21))
    assert again[again["kind"] != EventKind.DIRECTORY].tobytes() == events.tobytes()
    assert sum(log.lacking.values()) == feed.log.total_faults == 72


@real
def test_the_real_us_tape_of_thirteen_venues() -> None:
    folder = Path(DATA) / "lean_us_tick"
    total, floors = 0, set()
    for path in sorted(folder.glob("*_trade.zip")):
        events, feed = read(path, strict=True)
        total += len(events)
        floors |= set(np.unique(events["floor"]).tolist())
        assert feed.log.total_messages == len(events)
    assert (total, len(floors)) == (1_042_557, 13)
    quotes, feed = read(folder / "ibm_20131007_quote.zip", strict=True)
    assert feed.log.messages == {"quote": 109_067}
    assert set(quotes["kind"]) == {EventKind.QUOTE}


@real
@pytest.mark.parametrize(
    "name, rows",
    [
        ("LOBSTER_SampleFile_AAPL_2012-06-21_1.zip", 118_497),
        ("LOBSTER_SampleFile_AMZN_2012-06-21_5.zip", 155_935),
        ("AAPL_2012-06-21_34200000_37800000_message_50.csv.gz", 91_997),
    ],
)
def test_real_lobster_files(name: str, rows: int) -> None:
    events, feed = read(Path(DATA) / "lobster" / name, strict=True)
    assert len(events) == rows == feed.log.total_messages


def test_symbols_are_given_where_a_table_has_none(tmp_path: Path) -> None:
    path = tmp_path / "20131007.csv"
    path.write_text("14400688,491800,300,P,2000,0\n")
    with pytest.raises(ConfigurationError, match="give --symbol"):
        read(path, mapping=load_mapping("us-tape-trades"))
    events, _ = read(path, mapping=load_mapping("us-tape-trades"), symbol=Symbol("AIG"))
    assert events["symbol"].tolist() == [b"AIG"]


def test_a_capture_refuses_times_that_its_seconds_cannot_say(tmp_path: Path) -> None:
    events = build_events(
        [MarketEvent(EventKind.TRADE, Mic("XNYS"), Symbol("A"), price=1, quantity=1, time=(1 << 32) * 10**9, id=1)]
    )
    log = FeedLog("far.events")
    with pytest.raises(FeedError, match="times after 2106"), open_sink(tmp_path / "far.pcap", log, "UTC") as sink:
        sink.write(events)
    assert not list(tmp_path.iterdir())
