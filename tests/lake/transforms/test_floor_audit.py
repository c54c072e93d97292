"""A floor audited on Spark: books at chosen moments, rule by rule, and journals that somebody has tampered with."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.lake.transforms.test_floors import CODE, SELL, frame, journal

from isocast.floor.codec import encode_event, floor_topic
from isocast.floor.events import Order
from isocast.floor.reporting import decode_report, encode_report, report_topic
from isocast.lake.transforms.floor_audit import (
    audit_rows,
    book_rows,
    floor_audit,
    floor_books,
    floor_delays,
    floor_rules,
    rule_rows,
)
from isocast.lake.transforms.floors import floor_trades
from isocast.terms.market import Side

NAMES = ("stripe", "sequence", "index", "token", "shuffle_key", "instant_ns", "topic", "payload", "ends_token")


def rows(**other: Any) -> list[dict[Any, Any]]:  # noqa: ANN401 - of the journal
    return [dict(zip(NAMES, row, strict=True)) for row in journal(**other)]


def tampered(change: Any) -> list[dict[Any, Any]]:  # noqa: ANN401 - of a report
    """The journal with another report in it."""
    return [
        {**row, "payload": encode_report(change(decode_report(row["payload"])))}
        if row["topic"] == report_topic(CODE)
        else row
        for row in rows()
    ]


def test_an_honest_journal_has_nothing_to_tell(spark: SparkSession) -> None:
    messages = frame(spark, journal())
    assert floor_audit(messages, CODE).collect() == []
    assert [tuple(row) for row in floor_rules(messages, CODE).collect()] == [(CODE, "continuous, resting", 2, 0)]
    books = [tuple(row) for row in floor_books(messages, CODE, tokens=[2]).collect()]
    assert books == [(CODE, 2, 20, "ISO", "sell", 1, 1_002, 40, 40, 1)]
    (delays,) = floor_delays(floor_trades(messages, CODE)).collect()
    assert (delays["trades"], delays["confirmed"], delays["tokens_median"], delays["confirmed_ns_p99"]) == (2, 1, 2, 20)


def test_a_token_of_which_a_part_may_be_missing_is_not_judged() -> None:
    begun = [{**row, "ends_token": row["token"] < 3} for row in rows() if row["token"] <= 3]
    assert rule_rows(begun, CODE) == [(CODE, "continuous, resting", 1, 0)]
    assert list(book_rows(begun, CODE, tokens=[99])) == [(CODE, 2, 20, "ISO", "sell", 1, 1_002, 40, 40, 1)]
    assert audit_rows(begun, CODE) == []


def test_books_are_those_of_the_newest_token_that_is_not_later() -> None:
    assert list(book_rows(rows(), CODE, tokens=[1])) == []
    at_two = [(CODE, 2, 20, "ISO", "sell", 1, 1_002, 40, 40, 1)]
    assert list(book_rows(rows(), CODE, tokens=[2])) == at_two
    assert list(book_rows(rows(), CODE, instants=[29])) == at_two
    assert list(book_rows(rows(), CODE, tokens=[0], instants=[0, 20, 29, 30])) == at_two
    assert list(book_rows(rows(), CODE, tokens=[99])) == []
    with pytest.raises(ValueError, match="tokens or instants"):
        floor_books(None, CODE)  # type: ignore[arg-type]


def test_a_report_with_another_price_is_told_with_the_rule_that_it_breaks() -> None:
    def dearer(report: Any) -> Any:  # noqa: ANN401
        return report._replace(trades=(report.trades[0]._replace(price=1_004),))

    first, second = audit_rows(tampered(dearer), CODE)
    assert first[1:6] == ("T1", "", "report", 2, 1)
    assert "60 at 1004" in str(first[6])
    assert second[1:6] == ("T4", "continuous, resting", "report", 2, 1)
    assert "at 1004, and the rule gives 1002" in str(second[6])


def test_a_report_with_another_state_or_of_no_token_is_told() -> None:
    (other,) = audit_rows(tampered(lambda report: report._replace(state=b"?" * 32)), CODE)
    assert other[1:5] == ("T1", "", "report", 2)
    (nowhere,) = audit_rows(tampered(lambda report: report._replace(token=3_000)), CODE)
    assert nowhere[4] == 3_000


def test_an_order_that_somebody_changed_in_the_journal_no_longer_fits_the_report() -> None:
    better = Order(3 << 32 | 1, 3, "ISO", Side.SELL, 100, 1_001)
    changed = [
        {**row, "payload": encode_event(better)} if bytes(row["payload"]) == encode_event(SELL) else row
        for row in rows()
    ]
    found = audit_rows(changed, CODE)
    assert {row[1] for row in found} >= {"T1", "T4"}
    assert rule_rows(changed, CODE) == [(CODE, "continuous, resting", 2, 0)]


def test_what_is_no_event_is_passed_over() -> None:
    assert floor_topic(CODE) in {row["topic"] for row in rows() if row["payload"] == b"no event"}
    assert audit_rows(rows(), CODE) == []
