"""Orders and trades of a floor from the messages of journals, against the floor itself."""

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.floor.keys import KEY, key_in_order

from isocast.floor.codec import encode_event, floor_topic
from isocast.floor.corrections import Correction, correction_topic, encode_correction
from isocast.floor.events import Cancel, Directory, Event, Order, Phase, Trade
from isocast.floor.following import FloorFollower, FloorMessage
from isocast.floor.reporting import FloorReport, encode_report, report_topic
from isocast.lake.transforms.floors import floor_orders, floor_reports, floor_trades, trade_rows
from isocast.terms.market import Side

CODE = "XISO"
OPEN = Directory("ISO", phase=Phase.OPEN)
SELL = Order(1 << 32 | 1, 1, "ISO", Side.SELL, 100, 1_002)
BUY = Order(2 << 32 | 1, 2, "ISO", Side.BUY, 60, 1_005)
MORE = Order(2 << 32 | 2, 2, "ISO", Side.BUY, 10, 1_005)
SCHEMA = (
    "stripe long, sequence long, index long, token long, shuffle_key binary, instant_ns long, topic string,"
    " payload binary, ends_token boolean, receiver long"
)
TOKENS: list[tuple[Event, ...]] = [(OPEN,), (SELL, BUY), (MORE, Cancel(SELL.id, 1))]


def journal(*, confirmed: int = 1, state: bytes | None = None) -> list[tuple[Any, ...]]:
    """Three tokens of events and, in the fourth, the report of the second; each is a block."""
    rows, follower, sequence = [], FloorFollower(CODE), 0
    reported: bytes = b""
    trades: tuple[Trade, ...] = ()
    for token, events in enumerate(TOKENS, 1):
        messages = []
        key = key_in_order(floor_topic(CODE), [(floor_topic(CODE), encode_event(event)) for event in events])
        for event in events:
            sequence += 1
            messages.append(FloorMessage(sequence, floor_topic(CODE), encode_event(event), key))
            rows.append((0, sequence, 0, token, key, token * 10, *messages[-1][1:3], True))
        step = follower.follow(token, token * 10, messages)
        if token == 2 and step is not None:
            reported = step.state_hash()
            trades = step.trades
    report = FloorReport(2, reported if state is None else state, confirmed, trades)
    rows.append((0, sequence + 1, 0, 4, KEY, 40, report_topic(CODE), encode_report(report), True))
    rows.append((0, sequence + 2, 0, 4, KEY, 40, floor_topic(CODE), b"no event", True))
    rows.append((0, sequence + 3, 0, 4, KEY, 40, "quiz", b"pressed", True))
    return rows


def frame(spark: SparkSession, rows: list[tuple[Any, ...]]) -> DataFrame:
    """As two receivers released it."""
    return spark.createDataFrame([(*row, receiver) for receiver in (1, 2) for row in rows], SCHEMA)


def test_every_trade_has_what_became_of_it(spark: SparkSession) -> None:
    found = [row.asDict() for row in floor_trades(frame(spark, journal()), CODE).orderBy("trade").collect()]
    assert [(row["trade"], row["token"], row["price"], row["quantity"], row["state"]) for row in found] == [
        (1, 2, 1_002, 60, "confirmed"),
        (2, 3, 1_002, 10, "tentative"),
    ]
    assert [(row["confirmed_token"], row["confirmed_ns"]) for row in found] == [(4, 40), (None, None)]
    assert (found[0]["buy"], found[0]["sell"], found[0]["floor"]) == (str(BUY.id), str(SELL.id), CODE)
    assert {row["differing_reports"] for row in found} == {0}


def test_a_token_of_which_a_part_may_be_missing_makes_nothing_yet(spark: SparkSession) -> None:
    """Its block is not the last of its token, or a line was written down, which does not say which is."""
    begun = [(*row[:-1], False) if row[3] == 3 else row for row in journal() if row[3] <= 3]
    trades = floor_trades(frame(spark, begun), CODE).collect()
    assert [row["trade"] for row in trades] == [1]
    reports = floor_reports(frame(spark, begun), CODE).collect()
    assert {row["token"] for row in reports} == {2}
    late = (0, 9, 0, 9, KEY, 90, report_topic(CODE), b"no report", False)
    assert floor_trades(frame(spark, [*begun, late]), CODE).count() == 2, "a later token says that it is over"
    told = [(*row, 3) for row in begun[:-1]] + [(*begun[-1][:-1], True, 3)]
    several = frame(spark, begun).union(spark.createDataFrame(told, SCHEMA))
    assert floor_trades(several, CODE).count() == 2, "a receiver says so, and a customer does not know"


@pytest.mark.parametrize("confirmed", [0, 1])
def test_a_report_that_differs_confirms_nothing_and_is_counted(confirmed: int) -> None:
    names = ("stripe", "sequence", "index", "token", "shuffle_key", "instant_ns", "topic", "payload", "ends_token")
    rows = [dict(zip(names, row, strict=True)) for row in journal(confirmed=confirmed, state=b"?" * 32)]
    found = trade_rows(rows, CODE)
    assert [(row[-4], row[-1]) for row in found] == [("tentative", 1), ("tentative", 1)]


def test_a_trade_that_operators_corrected_has_its_right_price_and_quantity_or_is_void() -> None:
    names = ("stripe", "sequence", "index", "token", "shuffle_key", "instant_ns", "topic", "payload", "ends_token")
    trade = Trade(1, "ISO", 1_002, 60, BUY.id, SELL.id)
    first = Correction(trade, 1, 1_000, 50, 10**18)
    void = Correction(first.corrected, 2, 0, 0, 10**18)
    states = []
    for papers in ((first,), (first, void), (first, first)):
        rows = journal()
        for number, paper in enumerate(papers, 5):
            said = correction_topic(CODE), encode_correction(paper)
            rows.append((0, 90 + number, 0, number, KEY, 10 * number, *said, True))
        (found, _) = trade_rows([dict(zip(names, row, strict=True)) for row in rows], CODE)
        states.append((*found[5:7], found[-4]))
    assert states == [(1_000, 50, "corrected"), (1_002, 60, "void"), (1_000, 50, "corrected")]


def test_every_order_is_a_row(spark: SparkSession) -> None:
    found = [tuple(row) for row in floor_orders(frame(spark, journal()), CODE).orderBy("sequence").collect()]
    assert found == [
        (2, 0, 2, 20, "order", "1", str(SELL.id), "ISO", "sell", 100, 1_002, None),
        (3, 0, 2, 20, "order", "2", str(BUY.id), "ISO", "buy", 60, 1_005, None),
        (4, 0, 3, 30, "order", "2", str(MORE.id), "ISO", "buy", 10, 1_005, None),
        (5, 0, 3, 30, "cancel", "1", str(SELL.id), None, None, 0, None, None),
    ]


def test_accounts_may_have_pseudonyms(spark: SparkSession) -> None:
    messages = frame(spark, journal())
    found = floor_orders(messages, CODE, b"a secret of 16 or more bytes").orderBy("sequence").collect()
    one, two, again, cancelled = [row["account"] for row in found]
    assert one == cancelled != two == again
    assert {len(account) for account in (one, two)} == {16}
    assert found[0]["order"] == found[3]["order"] != str(SELL.id)
    assert floor_orders(messages, CODE, b"another secret of 16 bytes").first() != found[0]
    with pytest.raises(ValueError, match="at least 16 bytes"):
        floor_orders(messages, CODE, b"short")


def test_every_order_has_what_the_floor_made_of_it(spark: SparkSession) -> None:
    unknown = Order(3 << 32 | 1, 3, "NONE", Side.BUY, 1, 1)
    refused = [(0, 9, 0, 9, KEY, 90, floor_topic(CODE), encode_event(unknown), True)]
    found = floor_reports(frame(spark, [*journal(), *refused]), CODE).collect()
    rows = [(row["sequence"], row["order"], row["kind"], row["quantity"], row["trade"]) for row in found]
    buy, sell, more = map(str, (BUY.id, SELL.id, MORE.id))
    assert rows == [
        (2, sell, "working", 100, None),
        (3, buy, "working", 60, None),
        (3, buy, "traded", 60, 1),
        (3, sell, "traded", 60, 1),
        (4, more, "working", 10, None),
        (4, more, "traded", 10, 2),
        (4, sell, "traded", 10, 2),
        (5, sell, "cancelled", 30, None),
        (9, str(unknown.id), "refused", None, None),
    ]
    assert found[-1]["reason"] == "unknown symbol"
    assert (found[-1]["account"], found[-1]["instant_ns"], found[-1]["floor"]) == ("3", 90, CODE)
    secret = b"a secret of 16 or more bytes"
    hidden = floor_reports(frame(spark, journal()), CODE, secret).first()
    orders = floor_orders(frame(spark, journal()), CODE, secret).orderBy("sequence").first()
    assert hidden is not None
    assert orders is not None
    assert (hidden["account"], hidden["order"]) == (orders["account"], orders["order"]), "frames join"
