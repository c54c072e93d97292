"""Exchanges in the lake (§7.2): what they reported of orders that were directed to them, and where they departed.

    messages = spark.read.format("isocast").option("frame", "messages").load("data")
    departures = exchange_departures(messages, "XLON")

Reports are decoded one by one, in any number of tasks. Departures are a function of the whole sequence, so one task
finds an exchange's, by the same rules as `isocast exchange audit`. What several receivers released counts once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from isocast.floor.codec import floor_topic
from isocast.lake.transforms.floors import messages_once
from isocast.orders.delivery import Place
from isocast.orders.exchange import answers_topic, decode_answer
from isocast.runtime.exchange.directing import ExchangeFollower
from isocast.terms.errors import RemoteProtocolError

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "ANSWERS_SCHEMA",
    "DEPARTURES_SCHEMA",
    "answer_rows",
    "departure_rows",
    "exchange_departures",
    "exchange_reports",
]

ANSWERS_SCHEMA: Final = StructType(
    [
        StructField("sequence", LongType(), nullable=False),
        StructField("index", LongType(), nullable=False),
        StructField("token", LongType(), nullable=False),
        StructField("instant_ns", LongType(), nullable=False),
        StructField("order_sequence", LongType(), nullable=False),
        StructField("order_index", LongType(), nullable=False),
        StructField("kind", StringType(), nullable=False),
        StructField("status", StringType(), nullable=False),
        StructField("filled", LongType(), nullable=False),
        StructField("left", LongType(), nullable=False),
        StructField("last_quantity", LongType()),
        StructField("last_price", LongType()),
        StructField("execution", StringType()),
        StructField("text", StringType()),
        StructField("declined", BooleanType(), nullable=False),
    ]
)
"""`order_sequence` and `order_index` are the place of the request that a report is about: `floor_orders` has both."""

DEPARTURES_SCHEMA: Final = StructType(
    [
        StructField("exchange", StringType(), nullable=False),
        StructField("kind", StringType(), nullable=False),
        StructField("order_sequence", LongType(), nullable=False),
        StructField("order_index", LongType(), nullable=False),
        StructField("report_sequence", LongType()),
        StructField("before_sequence", LongType()),
        StructField("text", StringType(), nullable=False),
    ]
)
"""`kind` is overtaken, skipped, unknown or foreseen."""


def exchange_reports(messages: DataFrame, exchange: str) -> DataFrame:
    """One row for each report of an exchange; bytes that are none have no row."""

    def decoded(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        import pandas as pd  # noqa: PLC0415 - on the worker

        for frame in frames:
            rows = list(answer_rows(frame.to_dict("records")))
            yield pd.DataFrame(rows, columns=ANSWERS_SCHEMA.names).astype(object)

    return messages_once(messages, [answers_topic(exchange)]).mapInPandas(decoded, ANSWERS_SCHEMA)


def exchange_departures(messages: DataFrame, exchange: str) -> DataFrame:
    """One row for each place where an exchange departed from the order of the sequence; none is right."""

    def audited(frame: pd.DataFrame) -> pd.DataFrame:
        import pandas as pd  # noqa: PLC0415 - on the worker

        ordered = frame.sort_values(["stripe", "sequence", "index"]).to_dict("records")
        return pd.DataFrame(departure_rows(ordered, exchange), columns=DEPARTURES_SCHEMA.names).astype(object)

    sequence = messages_once(messages, [floor_topic(exchange), answers_topic(exchange)])
    return sequence.groupBy(F.lit(exchange)).applyInPandas(audited, DEPARTURES_SCHEMA)


# One task -----------------------------------------------------------------------------------------------------------


def answer_rows(rows: Iterable[dict[Any, Any]]) -> Iterator[tuple[object, ...]]:
    """The rows of `exchange_reports` for some messages."""
    for row in rows:
        try:
            answer = decode_answer(bytes(row["payload"]))
        except RemoteProtocolError:
            continue
        where = int(row["sequence"]), int(row["index"]), int(row["token"]), int(row["instant_ns"])
        yield (
            *where,
            *answer.order,
            answer.kind.value,
            answer.status.value,
            answer.filled,
            answer.left,
            answer.last_quantity or None,
            answer.last_price or None,
            answer.execution or None,
            answer.text or None,
            answer.is_declined,
        )


def departure_rows(rows: Iterable[dict[Any, Any]], exchange: str) -> list[tuple[object, ...]]:
    """The rows of `exchange_departures` for the messages of one exchange, in the order of the sequence."""
    follower = ExchangeFollower(exchange)
    for row in rows:
        follower.hear(Place(int(row["sequence"]), int(row["index"])), row["topic"], bytes(row["payload"]))
    return [
        (
            exchange,
            one.kind.value,
            *one.order,
            None if one.report is None else one.report.sequence,
            None if one.before is None else one.before.sequence,
            str(one),
        )
        for one in follower.audit().departures
    ]
