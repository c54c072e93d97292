"""Reports of exchanges and their departures from the messages of journals, as the audit on one machine has them."""

from __future__ import annotations

from pyspark.sql import SparkSession
from tests.floor.keys import KEY
from tests.runtime.exchange.halls import CODE, order
from tests.runtime.exchange.test_directing import ended, working

from isocast.floor.codec import encode_event, floor_topic
from isocast.floor.events import Cancel, Event
from isocast.lake.transforms.deliveries import exchange_departures, exchange_reports
from isocast.orders.exchange import ExchangeAnswer, answers_topic, encode_answer
from isocast.terms.market import Side

SCHEMA = (
    "stripe long, sequence long, index long, token long, shuffle_key binary, instant_ns long, topic string,"
    " payload binary, ends_token boolean, receiver long"
)
FIRST = order(1, Side.BUY, 100, 10)
SAID: list[Event | ExchangeAnswer] = [
    FIRST,
    order(2, Side.BUY, 1, 10),
    Cancel(FIRST.id, 1),
    working(2)._replace(filled=1, left=0, last_quantity=1, last_price=100_000, execution="x-1"),
    working(1),
    ended(3),
    working(77),
]


def test_reports_and_departures(spark: SparkSession) -> None:
    rows = []
    for sequence, one in enumerate(SAID, 1):
        is_answer = isinstance(one, ExchangeAnswer)
        topic = answers_topic(CODE) if is_answer else floor_topic(CODE)
        payload = encode_answer(one) if isinstance(one, ExchangeAnswer) else encode_event(one)
        rows += [(0, sequence, 0, sequence, KEY, 10 * sequence, topic, payload, True, receiver) for receiver in (1, 2)]
    rows.append((0, 8, 0, 8, KEY, 80, answers_topic(CODE), b"no report", True, 1))
    messages = spark.createDataFrame(rows, SCHEMA)
    reports = [tuple(row) for row in exchange_reports(messages, CODE).orderBy("sequence").collect()]
    assert len(reports) == 4
    assert reports[0] == (4, 0, 4, 40, 2, 0, "working", "working", 1, 0, 1, 100_000, "x-1", None, False)
    assert [row[4] for row in reports] == [2, 1, 3, 77]
    found = exchange_departures(messages, CODE).orderBy("order_sequence").collect()
    assert [(row["kind"], row["order_sequence"], row["report_sequence"], row["before_sequence"]) for row in found] == [
        ("overtaken", 1, 5, 2),
        ("unknown", 77, 7, None),
    ]
    assert found[0]["text"] == "order 1 was taken at report 5, after the later order 2"
