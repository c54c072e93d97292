"""Tables of trades and quotes by a mapping."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pytest

from isocast.feeds.days import day_in_name, midnight_ns
from isocast.feeds.mappings import BUILT_IN, TableMapping, TimeForm, read_mapping
from isocast.feeds.outcomes import FeedFault, FeedLog
from isocast.feeds.tables import TableDecoder
from isocast.terms.errors import ConfigurationError, FeedError
from isocast.terms.market import EventFlag, EventKind, Mic, Side, Symbol
from isocast.wire.events import EVENT_DTYPE, EventArray

DAY = date(2013, 10, 7)
MIDNIGHT = midnight_ns(DAY, "America/New_York")
MS = 1_000_000


def decode(mapping: TableMapping, text: str, *, strict: bool = False, **given: Any) -> tuple[EventArray, FeedLog]:  # noqa: ANN401
    log = FeedLog("t.csv", strict=strict)
    decoder = TableDecoder(mapping, log, **{"day": DAY, **given})
    events = np.concatenate([np.empty(0, EVENT_DTYPE), *decoder.blocks([text.encode()])])
    return events, log


def test_midnight_in_new_york_knows_summer_and_winter() -> None:
    assert MIDNIGHT == 1_381_118_400_000_000_000
    assert midnight_ns(date(2019, 1, 30), "America/New_York") == 1_548_824_400_000_000_000


@pytest.mark.parametrize(
    "name, day",
    [
        ("01302019.NASDAQ_ITCH50.gz", date(2019, 1, 30)),
        ("S013019-v50.txt.gz", date(2019, 1, 30)),
        ("ex20101224.TEST_ITCH_50", date(2010, 12, 24)),
        ("20131007_aig_Trade_Tick.csv", DAY),
        ("AAPL_2012-06-21_34200000_57600000_message_1.csv", date(2012, 6, 21)),
        ("EQY_US_ALL_TRADE_20180730", date(2018, 7, 30)),
        ("sample.itch", None),
        ("99999999.itch", None),
    ],
)
def test_the_day_in_a_name(name: str, day: date | None) -> None:
    assert day_in_name(name) == day


def test_us_tape_trades() -> None:
    text = "14400688,491800,300,P,2000,0\n14581540,488700,2000,Q,20002020,0\n"
    events, log = decode(BUILT_IN["us-tape-trades"], text, symbol=Symbol("AIG"), strict=True)
    extended = EventFlag.NOT_LAST | EventFlag.NOT_HIGH_LOW | EventFlag.EXTENDED
    assert events.tolist() == [
        (1, 0, extended, b"ARCX", b"AIG", 491_800, 300, 0x2000, MIDNIGHT + 14_400_688 * MS, 1),
        (1, 0, extended, b"XNAS", b"AIG", 488_700, 2000, 0x20002020, MIDNIGHT + 14_581_540 * MS, 2),
    ]
    assert log.messages == {"trade": 2}
    assert log.conditions == {"extended hours": 2, "intermarket sweep": 1, "trade-through exempt": 1}


OFFICIAL = EventFlag.UNPRINTED | EventFlag.NOT_LAST | EventFlag.NOT_HIGH_LOW


@pytest.mark.parametrize(
    "bits, letters, flags",
    [
        ("1", "@", 0),
        ("0", "", 0),
        ("20", "@F", 0),
        ("40", "O", EventFlag.OPENING | EventFlag.AUCTION),
        ("80", "6", EventFlag.CLOSING | EventFlag.AUCTION),
        ("1000000", "M", OFFICIAL | EventFlag.CLOSING),
        ("1000001", "@  M", OFFICIAL | EventFlag.CLOSING),
        ("4000000", "Q", OFFICIAL | EventFlag.OPENING),
        ("80000000", "@  I", EventFlag.NOT_LAST | EventFlag.NOT_HIGH_LOW | EventFlag.ODD_LOT),
        ("4800", "LZ", EventFlag.NOT_LAST | EventFlag.LATE),
        ("2000000", "P", EventFlag.NOT_LAST | EventFlag.LATE),
        ("200", "4", EventFlag.NOT_LAST),
        ("100000", "W", EventFlag.NOT_LAST | EventFlag.NOT_HIGH_LOW),
        ("40000", "V", EventFlag.NOT_LAST | EventFlag.NOT_HIGH_LOW),
        ("10020000", "E", 0),
    ],
)
def test_sale_conditions_take_away_what_the_tapes_say(bits: str, letters: str, flags: int) -> None:
    ticks, _ = decode(BUILT_IN["us-tape-trades"], f"1,1,1,P,{bits},0\n", symbol=Symbol("A"), strict=True)
    assert ticks["flags"].tolist() == [flags]
    taq, _ = decode(BUILT_IN["taq-trades"], "\n".join(TAQ.splitlines()[:2]).replace("@  O", letters), strict=True)
    assert taq["flags"].tolist() == [flags]


def test_a_table_without_its_column_of_conditions_is_read_and_that_is_noted() -> None:
    text = "\n".join(TAQ.splitlines()[:2]).replace("Sale Condition", "Something")
    events, log = decode(BUILT_IN["taq-trades"], text, strict=True)
    assert (len(events), log.conditions) == (1, {})
    assert log.notes == ['there is no column "Sale Condition": all trades are taken as regular ones']


def test_a_condition_that_nobody_knows_is_counted_and_takes_nothing_away() -> None:
    text = "\n".join(TAQ.splitlines()[:2]).replace("@  O", "@ ?J")
    events, log = decode(BUILT_IN["taq-trades"], text, strict=True)
    assert events["flags"].tolist() == [0]
    assert log.conditions == {"regular": 1, "unknown '?'": 1, "unknown 'J'": 1}


def test_us_tape_quotes_tell_the_sides_that_changed() -> None:
    text = "1000,0,0,1836300,100,Q,1,0\n1001,1800100,300,0,0,P,1,0\n1002,10,1,20,2,P,1,0\n1003,0,0,0,0,P,1,0\n"
    events, log = decode(BUILT_IN["us-tape-quotes"], text, symbol=Symbol("IBM"), strict=True)
    assert events[["side", "flags", "price", "quantity"]].tolist() == [
        (Side.SELL, 0, 1_836_300, 100),
        (Side.BUY, 0, 1_800_100, 300),
        (Side.BUY, EventFlag.LINKED, 10, 1),
        (Side.SELL, 0, 20, 2),
    ]
    assert log.skipped == {"quotes without a price on either side": 1}


TAQ = """Time|Exchange|Symbol|Sale Condition|Trade Volume|Trade Price|Trade Correction Indicator|Sequence Number
093000123456789|N|IBM|@  O|100|181.25|00|7
093000.5|T|BRK A|@   |5|130000.1|00|8
09:31:00|K|IBM||10|181.5|12|7
093101|Q|IBM||0|0|10|7
"""


def test_taq_trades_with_corrections_and_cancels() -> None:
    text = TAQ.replace("09:31:00", "093100")
    events, log = decode(BUILT_IN["taq-trades"], text, strict=True)
    assert events[["kind", "floor", "symbol", "price", "quantity", "id"]].tolist() == [
        (EventKind.TRADE, b"XNYS", b"IBM", 1_812_500, 100, 7),
        (EventKind.TRADE, b"XNAS", b"BRK.A", 1_300_001_000, 5, 8),
        (EventKind.CORRECTION, b"EDGX", b"IBM", 1_815_000, 10, 7),
        (EventKind.TRADE_CANCEL, b"XNAS", b"IBM", 0, 0, 7),
    ]
    nine_thirty = MIDNIGHT + 34_200 * 10**9
    assert (events["time"] - np.uint64(nine_thirty)).tolist() == [123_456_789, 500_000_000, 60 * 10**9, 61 * 10**9]
    assert log.messages == {"trade": 2, "correction": 1, "trade_cancel": 1}


@pytest.mark.parametrize("end", ["END|20131007|000000004||||||", "END|20131007|4\n", "END|20131007|4|||||\r\n\n"])
def test_the_last_line_of_taq_counts_the_rows(end: str) -> None:
    events, log = decode(BUILT_IN["taq-trades"], TAQ.replace("09:31:00", "093100") + end, strict=True)
    assert (len(events), log.faults) == (4, {})


@pytest.mark.parametrize(
    "end, what, count",
    [
        ("END|20131007|6", "the last line says 6 rows, there are 4", 2),
        ("END|20131007|", "the last line says no number of rows", 1),
    ],
)
def test_a_last_line_that_does_not_fit_the_rows_is_a_fault(end: str, what: str, count: int) -> None:
    text = TAQ.replace("09:31:00", "093100")
    events, log = decode(BUILT_IN["taq-trades"], text + end)
    assert len(events) == 4
    assert log.faults == {FeedFault.ROW_COUNT: {"count": count, "first_offset": len(text), "first": what}}


def test_rows_behind_the_last_line_are_bad() -> None:
    text = TAQ.replace("09:31:00", "093100")
    _, log = decode(BUILT_IN["taq-trades"], text + "END|20131007|4\n" + text.splitlines()[1] + "\n")
    assert log.reasons[FeedFault.BAD_ROW] == {
        "a row after the line that ends the table": {
            "count": 1,
            "first_offset": len(text) + 15,
            "first_row": 7,
            "example": "",
        }
    }


def test_every_reason_for_bad_rows_is_counted_with_its_first_row() -> None:
    mapping = TableMapping("trade", "t", TimeForm.MIDNIGHT_MS, ("t", "p", "q"), price="p", quantity="q")
    text = "1,1,1\n1,x,1\n1,1\n1,1,-1\n1,y,1\nz,1,1\n1,2,3,4,5\n2,2,2\n"
    events, log = decode(mapping, text, symbol=Symbol("A"), floor=Mic("XNYS"))
    assert len(events) == 2
    assert log.faults[FeedFault.BAD_ROW]["count"] == 6
    found = {
        what: (each["count"], each["first_row"], each["example"])
        for what, each in log.reasons[FeedFault.BAD_ROW].items()
    }
    assert found == {
        "a row of 2 cells where 3 are wanted": (1, 3, ""),
        "a row of 5 cells where 3 are wanted": (1, 7, ""),
        "t: not what the mapping says it is": (1, 6, "z"),
        "p: not what the mapping says it is": (2, 2, "x"),
        "q: not what the mapping says it is": (1, 4, "-1"),
    }


def test_reasons_are_bounded() -> None:
    log = FeedLog("t.csv")
    for number in range(100):
        log.fault(FeedFault.BAD_ROW, number, f"reason {number}")
    assert len(log.reasons[FeedFault.BAD_ROW]) == 33
    assert log.reasons[FeedFault.BAD_ROW]["other reasons"]["count"] == 68


def test_taq_quotes_withdraw_a_side_and_count_in_lots() -> None:
    text = "Time|Exchange|Symbol|Bid_Price|Bid_Size|Offer_Price|Offer_Size\n093000|N|IBM|181.2|3|0|0\n"
    events, _ = decode(BUILT_IN["taq-quotes"], text, strict=True)
    assert events[["side", "flags", "price", "quantity"]].tolist() == [
        (Side.BUY, EventFlag.LINKED, 1_812_000, 300),
        (Side.SELL, 0, 0, 0),
    ]


@pytest.mark.parametrize(
    "form, text, time",
    [
        ("midnight-s", "34200.5", MIDNIGHT + 34_200_500_000_000),
        ("midnight-us", "34200000001", MIDNIGHT + 34_200_000_001_000),
        ("epoch-ms", "1381152600123", 1_381_152_600_123_000_000),
        ("epoch-ns", "1381152600123456789", 1_381_152_600_123_456_789),
        ("clock", "09:30:00.000001", MIDNIGHT + 34_200_000_001_000),
        ("iso", "2013-10-07T09:30:00.123456789", MIDNIGHT + 34_200_123_456_789),
        ("iso", "2013-10-07 13:30:00Z", MIDNIGHT + 34_200 * 10**9),
    ],
)
def test_times_as_tables_write_them(form: str, text: str, time: int) -> None:
    mapping = TableMapping("trade", "t", TimeForm(form), ("t", "p", "q"), price="p", quantity="q")
    events, _ = decode(mapping, f"{text},1,1\n", symbol=Symbol("A"), floor=Mic("XNYS"), strict=True)
    assert events["time"].tolist() == [time]


@pytest.mark.parametrize(
    "row",
    ["x,1,1", "1,x,1", "1,1,x", "1,1,-1", "1,1,4294967296", "-1,1,1", "1,1.23456,1", "999999999999999,1,1", "1,,1"],
)
def test_a_bad_row_is_named_and_the_others_are_read(row: str) -> None:
    mapping = TableMapping("trade", "t", TimeForm.MIDNIGHT_MS, ("t", "p", "q"), price="p", quantity="q")
    events, log = decode(mapping, f"1,1,1\n{row}\n2,2,2\n", symbol=Symbol("A"), floor=Mic("XNYS"))
    assert events["id"].tolist() == [1, 3]
    assert log.faults[FeedFault.BAD_ROW]["first_offset"] == 6
    with pytest.raises(FeedError, match=r"t\.csv: byte 6: bad-row"):
        decode(mapping, f"1,1,1\n{row}\n2,2,2\n", symbol=Symbol("A"), floor=Mic("XNYS"), strict=True)


def test_a_venue_that_nobody_knows_is_a_bad_row() -> None:
    events, log = decode(BUILT_IN["us-tape-trades"], "1,1,1,?,0,0\n2,2,2,XLON,0,0\n", symbol=Symbol("A"))
    assert events["floor"].tolist() == [b"XLON"], "a market identifier code stands for itself"
    assert log.faults[FeedFault.BAD_ROW]["first"] == "venue: not what the mapping says it is"


def test_time_that_steps_back_is_counted() -> None:
    events, log = decode(BUILT_IN["us-tape-trades"], "2,1,1,Q,0,0\n1,1,1,Q,0,0\n", symbol=Symbol("A"))
    assert len(events) == 2
    assert log.faults[FeedFault.BACKWARD_TIME]["first"] == "time steps back by 1,000,000 ns"


def test_a_missing_column_is_named() -> None:
    with pytest.raises(FeedError, match='there is no column "Exchange" for floor; the table has Time, Symbol'):
        decode(BUILT_IN["taq-trades"], "Time|Symbol\n")


@pytest.mark.parametrize("key, given", [("day", {"day": None}), ("symbol", {})])
def test_what_a_table_does_not_say_is_asked_for(key: str, given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        decode(BUILT_IN["us-tape-trades"], "", **given)
    assert caught.value.key == key


# ---- mappings in files

MAPPING = """
kind = "trade"
time = "when"
time_form = "iso"
zone = "UTC"
floor = "where"
codes = { L = "XLON", T = "XTKS" }
symbol = "what"
price = "price"
quantity = "size"
"""


def test_a_mapping_from_a_file() -> None:
    mapping = read_mapping(MAPPING, "m.toml")
    text = 'what,when,where,price,size\n"VOD",2024-05-03T08:00:00,L,72.5,100\nSONY,2024-05-03T08:00:01,T,"12.5",7\n'
    events, _ = decode(mapping, text, strict=True)
    assert events[["floor", "symbol", "price", "quantity"]].tolist() == [
        (b"XLON", b"VOD", 725_000, 100),
        (b"XTKS", b"SONY", 125_000, 7),
    ]


def test_a_mapping_may_begin_with_one_that_is_built_in() -> None:
    mapping = read_mapping('like = "taq-trades"\ndelimiter = ","\n', "m.toml")
    assert (mapping.delimiter, mapping.price) == (",", "Trade Price")


@pytest.mark.parametrize(
    "change, key, rule",
    [
        (("kind", "kynd"), "kynd", 'unknown key; did you mean "kind"'),
        (('"trade"', '"tirade"'), "kind", 'none of "trade", "quote", "order"'),
        (('"iso"', '"noon"'), "time_form", "is not one of midnight-ns"),
        (('"UTC"', '"Mars/Base"'), "zone", "is no time zone"),
        (('"XLON"', '"LSE"'), "codes.L", "a code of four capital letters"),
        (('price = "price"', ""), "price", "a table of trades needs this column"),
        (('quantity = "size"', "quantity = 5"), "quantity", "must be text, not 5"),
        (('kind = "trade"', 'kind = "trade"\nlot = 0'), "lot", "must be 1 to 1,000,000"),
        (('kind = "trade"', 'kind = "trade"\ndelimiter = "ab"'), "delimiter", "not one character"),
        (('kind = "trade"', 'kind = "trade"\ncolumns = ["a"]'), "time", '"when" is not one of the columns'),
        (('kind = "trade"', 'like = "nothing"'), "like", "is not one of us-tape-trades"),
        (('kind = "trade"', "kind = "), "mapping", "is not TOML"),
    ],
)
def test_a_wrong_mapping_names_its_key(change: tuple[str, str], key: str, rule: str) -> None:
    with pytest.raises(ConfigurationError, match=rule) as caught:
        read_mapping(MAPPING.replace(*change, 1), "m.toml")
    assert caught.value.key == key


@pytest.mark.parametrize(
    "row, reason, example",
    [
        ("1,1844674407370956,1", "p: times 10,000, it is beyond what a record holds", "1844674407370956"),
        ("1,922337203685478,1", "p: times 10,000, it is beyond what a record holds", "922337203685478"),
        ("1,-922337203685478,1", "p: times 10,000, it is beyond what a record holds", "-922337203685478"),
        ("1,1,18446744073710", "q: times 1,000,000, it is beyond what a record holds", "18446744073710"),
        ("1,1,4295", "q: is beyond what a record holds", "4295000000"),
        ("1,99999999999999999999,1", "p: is beyond what a record holds", "99999999999999999999"),
        ("9999999999999,1,1", "t: is beyond what a record holds", "9999999999999"),
    ],
)
def test_a_product_beyond_64_bits_is_a_bad_row_with_its_reason(row: str, reason: str, example: str) -> None:
    mapping = TableMapping(
        "trade", "t", TimeForm.EPOCH_S, ("t", "p", "q"), price="p", quantity="q", price_decimals=0, lot=1_000_000
    )
    events, log = decode(mapping, f"1,1,1\n{row}\n2,2,2\n", symbol=Symbol("A"), floor=Mic("XNYS"))
    assert events[["price", "quantity"]].tolist() == [(10_000, 1_000_000), (20_000, 2_000_000)]
    told = {"count": 1, "first_offset": 6, "first_row": 2, "example": example}
    assert log.reasons[FeedFault.BAD_ROW] == {reason: told}


def test_a_price_with_its_point_that_has_no_room_is_a_bad_row() -> None:
    mapping = TableMapping("trade", "t", TimeForm.EPOCH_S, ("t", "p", "q"), price="p", quantity="q")
    text = "1,922337203685477.5807,1\n1,922337203685477.5808,1\n1,9223372036854770.7,1\n"
    events, log = decode(mapping, text, symbol=Symbol("A"), floor=Mic("XNYS"))
    assert events["price"].tolist() == [(1 << 63) - 1]
    assert log.faults[FeedFault.BAD_ROW]["count"] == 2
    (reason,) = log.reasons[FeedFault.BAD_ROW].values()
    assert (reason["first_row"], reason["example"]) == (2, "922337203685477.5808")
