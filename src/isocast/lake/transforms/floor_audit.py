"""Trading floors audited in the lake (§7.3): books at any moment, price then time rule by rule, and delays.

    messages = spark.read.format("isocast").option("frame", "messages").load("data")
    floor_books(messages, "XISO", tokens=[5_000]).show()
    floor_audit(messages, "XISO").show()

A floor is a function of the whole sequence, so one task computes a floor's, by the same rules as a receiver; several
floors are several tasks. A last token of which a part may be missing is left out. The judges are those of
`isocast floor verify` (T4, T6, T7, T8), who match nothing themselves. A report of an arbiter that says something else
than the sequence is told as T1, and its trades are judged as if they had been made: whether they would break price and
time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from isocast.checks.entered_order import EnteredOrder
from isocast.checks.floor_acts import FloorTranscript, FloorWrong
from isocast.checks.order_paths import OrderPaths
from isocast.checks.price_time import PriceTime
from isocast.checks.sealed_bids import SealedBids
from isocast.floor.codec import floor_topic
from isocast.floor.confirming import Comparison, OwnResult, ReportParts
from isocast.floor.following import FloorFollower, FloorMessage, FloorStep
from isocast.floor.machine import Floor
from isocast.floor.reporting import FloorReport, report_topic
from isocast.floor.transcripts import transcript_of_step
from isocast.lake.transforms.floors import floor_message, is_whole, messages_once
from isocast.terms.market import Side

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "AUDIT_SCHEMA",
    "BOOKS_SCHEMA",
    "RULES_SCHEMA",
    "audit_rows",
    "book_rows",
    "floor_audit",
    "floor_books",
    "floor_delays",
    "floor_rules",
    "rule_rows",
]

_IDENTITY: Final = ["stripe", "sequence", "index"]

BOOKS_SCHEMA: Final = StructType(
    [
        StructField("floor", StringType(), nullable=False),
        StructField("token", LongType(), nullable=False),
        StructField("instant_ns", LongType(), nullable=False),
        StructField("symbol", StringType(), nullable=False),
        StructField("side", StringType(), nullable=False),
        StructField("level", LongType(), nullable=False),
        StructField("price", LongType()),
        StructField("quantity", LongType(), nullable=False),
        StructField("shown", LongType(), nullable=False),
        StructField("orders", LongType(), nullable=False),
    ]
)
"""`token` is the newest of the floor at the moment that was asked for; moments with the same one share its rows.
`level` counts from 1, the best; the price is null for market orders without a bound. `shown` leaves out what icebergs
hide."""

AUDIT_SCHEMA: Final = StructType(
    [
        StructField("floor", StringType(), nullable=False),
        StructField("property", StringType(), nullable=False),
        StructField("rule", StringType(), nullable=False),
        StructField("said_by", StringType(), nullable=False),
        StructField("token", LongType(), nullable=False),
        StructField("trade", LongType()),
        StructField("text", StringType(), nullable=False),
    ]
)
"""`said_by` is "sequence" for what the sequence gives, "report" for what an arbiter said. No row is right."""

RULES_SCHEMA: Final = StructType(
    [
        StructField("floor", StringType(), nullable=False),
        StructField("rule", StringType(), nullable=False),
        StructField("trades", LongType(), nullable=False),
        StructField("wrong", LongType(), nullable=False),
    ]
)


def floor_books(
    messages: DataFrame, floor: str, *, tokens: Sequence[int] = (), instants: Sequence[int] = ()
) -> DataFrame:
    """The price levels of a floor's books after some tokens, or at some instants: each the newest state not later."""
    if not tokens and not instants:
        raise ValueError("say at which tokens or instants the books are wanted")
    return _computed(messages, floor, BOOKS_SCHEMA, lambda rows: book_rows(rows, floor, tokens, instants))


def floor_audit(messages: DataFrame, floor: str) -> DataFrame:
    """Everything that breaks a rule: trades out of price and time, illegal paths, early bids, reports that differ."""
    return _computed(messages, floor, AUDIT_SCHEMA, lambda rows: audit_rows(rows, floor))


def floor_rules(messages: DataFrame, floor: str) -> DataFrame:
    """Rule by rule, how many trades of the sequence were judged, and how many break it."""
    return _computed(messages, floor, RULES_SCHEMA, lambda rows: rule_rows(rows, floor))


def floor_delays(trades: DataFrame) -> DataFrame:
    """By symbol, how long trades of `floor_trades` took from their token, where they are tentative, to confirmation.

    In tokens and in time, median and 99 of 100. On an unchanged ring of m whose next owner reports at once it is m
    tokens: the report is in token r = t+1, confirmed at r+m-1, and a customer hears of it with the next report.
    """
    tokens = F.col("confirmed_token") - F.col("token")
    waited_ns = F.col("confirmed_ns") - F.col("instant_ns")
    return trades.groupBy("floor", "symbol").agg(
        F.count("*").alias("trades"),
        F.count("confirmed_token").alias("confirmed"),
        F.percentile_approx(tokens, 0.5).alias("tokens_median"),
        F.percentile_approx(tokens, 0.99).alias("tokens_p99"),
        F.percentile_approx(waited_ns, 0.5).alias("confirmed_ns_median"),
        F.percentile_approx(waited_ns, 0.99).alias("confirmed_ns_p99"),
    )


def _computed(messages: DataFrame, floor: str, schema: StructType, rows_of: Any) -> DataFrame:  # noqa: ANN401
    """A frame that one task computes from all messages of a floor, in the order of the sequence."""

    def task(frame: pd.DataFrame) -> pd.DataFrame:
        import pandas as pd  # noqa: PLC0415 - on the worker

        ordered = frame.sort_values(_IDENTITY).to_dict("records")
        return pd.DataFrame(list(rows_of(ordered)), columns=schema.names).astype(object)

    topics = [floor_topic(floor), report_topic(floor)]
    return messages_once(messages, topics).groupBy(F.lit(floor)).applyInPandas(task, schema)


# One task -----------------------------------------------------------------------------------------------------------

_Rows = Sequence[dict[Any, Any]]


def _heard(rows: _Rows, follower: FloorFollower) -> Iterator[tuple[FloorMessage | None, FloorStep | None]]:
    """Each message with the step that it ends; at the end the last step, if all of it is there."""
    for row in rows:
        message = floor_message(row)
        yield message, follower.hear(int(row["token"]), int(row["instant_ns"]), message)
    if is_whole(rows):
        yield None, follower.finish()


def book_rows(
    rows: _Rows, floor: str, tokens: Sequence[int] = (), instants: Sequence[int] = ()
) -> Iterator[tuple[object, ...]]:
    """The rows of `floor_books` for the messages of one floor, in the order of the sequence."""
    follower = FloorFollower(floor)
    asked_tokens, asked_instants = sorted(tokens), sorted(instants)
    for row in rows:
        token, instant = int(row["token"]), int(row["instant_ns"])
        is_asked = False
        while asked_tokens and asked_tokens[0] < token:
            del asked_tokens[0]
            is_asked = True
        while asked_instants and asked_instants[0] < instant:
            del asked_instants[0]
            is_asked = True
        if is_asked:
            follower.finish()
            yield from _books(floor, follower.floor)
        follower.hear(token, instant, floor_message(row))
    if is_whole(rows):
        follower.finish()
    if asked_tokens or asked_instants:
        yield from _books(floor, follower.floor)


def _books(code: str, floor: Floor) -> Iterator[tuple[object, ...]]:
    for symbol, state in floor.symbols.items():
        for side in (Side.BUY, Side.SELL):
            for place, level in enumerate(state.book.side(side).levels(), 1):
                price = level[0].price or None
                left, shown = sum(one.left for one in level), sum(one.shown for one in level)
                where = code, floor.token, floor.at, symbol, side.name.lower()
                yield (*where, place, price, left, shown, len(level))


def audit_rows(rows: _Rows, floor: str) -> list[tuple[object, ...]]:
    """The rows of `floor_audit` for the messages of one floor, in the order of the sequence."""
    differing = _differing(rows, floor)
    found: list[tuple[object, ...]] = []
    price_time, others = PriceTime(), (OrderPaths(), SealedBids(), EnteredOrder())
    for _, step in _heard(rows, FloorFollower(floor)):
        if step is None:
            continue
        transcript = transcript_of_step(step)
        for report in differing.pop(step.token, ()):
            found += _told(floor, [_difference(step, report)], "report")
            found += _told(floor, deepcopy(price_time).step(_as_reported(transcript, report)), "report")
        found += _told(floor, price_time.step(transcript), "sequence")
        found += _told(floor, [wrong for judge in others for wrong in judge.step(transcript)], "sequence")
    for token, reports in differing.items():
        wrong = FloorWrong("T1", token, "a report of a token that has nothing to report, or does not exist")
        found += _told(floor, [wrong] * len(reports), "report")
    return found


def rule_rows(rows: _Rows, floor: str) -> list[tuple[object, ...]]:
    """The rows of `floor_rules` for the messages of one floor."""
    judge, wrong = PriceTime(), dict[str, dict[int | None, None]]()
    for _, step in _heard(rows, FloorFollower(floor)):
        for one in judge.step(transcript_of_step(step)) if step is not None else ():
            wrong.setdefault(one.rule, {})[one.trade] = None
    return [(floor, rule, trades, len(wrong.get(rule, ()))) for rule, trades in sorted(judge.judged.items())]


def _told(floor: str, wrongs: Iterable[FloorWrong], said_by: str) -> list[tuple[object, ...]]:
    return [(floor, one.property, one.rule, said_by, one.token, one.trade, one.text) for one in wrongs]


def _differing(rows: _Rows, floor: str) -> dict[int, list[FloorReport]]:
    """Reports that say something else than the sequence, by the token that they are about."""
    results: dict[int, OwnResult] = {}
    parts, topic = ReportParts(), report_topic(floor)
    found: dict[int, list[FloorReport]] = {}
    for message, step in _heard(rows, FloorFollower(floor)):
        if step is not None and step.is_reported:
            results[step.token] = OwnResult.of(step)
        report = parts.take(message.payload, None) if message is not None and message.topic == topic else None
        if report is not None:
            own = results.get(report.token)
            if own is None or own.compare(report) is Comparison.DIFFERENT:
                found.setdefault(report.token, []).append(report)
    return found


def _difference(step: FloorStep, report: FloorReport) -> FloorWrong:
    for here, said in zip(step.trades, report.trades, strict=False):
        if here != said:
            what = f"trade {here.number}: {said.quantity} at {said.price}, buy {said.buy}, sell {said.sell} is reported"
            made = f"and {here.quantity} at {here.price}, buy {here.buy}, sell {here.sell} was made"
            return FloorWrong("T1", step.token, f"{what}, {made}", trade=here.number)
    if report.trades and len(report.trades) != len(step.trades):
        text = f"{len(report.trades)} trades are reported, and {len(step.trades)} were made"
        return FloorWrong("T1", step.token, text)
    return FloorWrong("T1", step.token, "another state is reported than the sequence gives")


def _as_reported(transcript: FloorTranscript, report: FloorReport) -> FloorTranscript:
    """The token as if it had made the trades that were reported."""
    said: Mapping[int, dict[str, Any]] = {trade.number: trade._asdict() for trade in report.trades}
    acts = [
        act._replace(
            reports=tuple(
                [
                    one._replace(fields=said.get(one.fields["number"], one.fields)) if one.kind == "trade" else one
                    for one in act.reports
                ]
            )
        )
        for act in transcript.acts
    ]
    return transcript._replace(acts=tuple(acts))
