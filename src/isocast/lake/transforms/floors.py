"""Trading floors in the lake (§7.2, §7.3): their orders, what became of each, and their trades.

    messages = spark.read.format("isocast").option("frame", "messages").load("data")
    trades = floor_trades(messages, "XISO")

All start from the opaque messages of journals. Orders are decoded one by one, in any number of tasks. Trades and
reports are a function of the whole sequence, so one task computes a floor's, by the same rules as a receiver; several
floors are several tasks. What several receivers released counts once. A last token of which a part may be missing makes
no trades: its events would enter in another order (`is_whole`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from isocast.floor.codec import decode_event, floor_topic
from isocast.floor.confirming import ConfirmationFollower, Confirmed, ReportDiffers, Tentative
from isocast.floor.corrections import Correction, correction_topic
from isocast.floor.events import (
    Bid,
    Cancel,
    Cancelled,
    Commit,
    Event,
    Expired,
    Lot,
    Order,
    Refused,
    Replace,
    Replaced,
    Report,
    Reveal,
    Take,
    Trade,
)
from isocast.floor.following import FloorFollower, FloorMessage
from isocast.floor.reporting import report_topic
from isocast.orders.accounts import PSEUDONYM_SECRET_MIN, pseudonym
from isocast.orders.desk import ReportKind
from isocast.runtime.accounts.floor_view import FloorView, TokenOutcome
from isocast.terms.errors import RemoteProtocolError

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "ORDERS_SCHEMA",
    "REPORTS_SCHEMA",
    "TRADES_SCHEMA",
    "floor_message",
    "floor_orders",
    "floor_reports",
    "floor_trades",
    "is_whole",
    "messages_once",
    "order_rows",
    "report_rows",
    "trade_rows",
]

_NUMBER_BITS: Final = 32
"""Below them an order's id has its number, above them its account."""
_IDENTITY: Final = ["stripe", "sequence", "index"]
_NEEDED: Final = [*_IDENTITY, "token", "shuffle_key", "instant_ns", "topic", "payload"]

ORDERS_SCHEMA: Final = StructType(
    [
        StructField("sequence", LongType(), nullable=False),
        StructField("index", LongType(), nullable=False),
        StructField("token", LongType(), nullable=False),
        StructField("instant_ns", LongType(), nullable=False),
        StructField("kind", StringType(), nullable=False),
        StructField("account", StringType(), nullable=False),
        StructField("order", StringType(), nullable=False),
        StructField("symbol", StringType()),
        StructField("side", StringType()),
        StructField("quantity", LongType()),
        StructField("price", LongType()),
        StructField("trigger", LongType()),
    ]
)
"""Account and order are texts: numbers of 64 bits without a sign, or pseudonyms."""

REPORTS_SCHEMA: Final = StructType(
    [
        StructField("floor", StringType(), nullable=False),
        StructField("token", LongType(), nullable=False),
        StructField("instant_ns", LongType(), nullable=False),
        StructField("sequence", LongType()),
        StructField("account", StringType(), nullable=False),
        StructField("order", StringType(), nullable=False),
        StructField("kind", StringType(), nullable=False),
        StructField("reason", StringType()),
        StructField("quantity", LongType()),
        StructField("price", LongType()),
        StructField("trade", LongType()),
    ]
)
"""`kind` is a word of `ReportKind`; `sequence` is that of the event that made it so, and null where the token did."""

TRADES_SCHEMA: Final = StructType(
    [
        StructField("floor", StringType(), nullable=False),
        StructField("trade", LongType(), nullable=False),
        StructField("token", LongType(), nullable=False),
        StructField("instant_ns", LongType(), nullable=False),
        StructField("symbol", StringType(), nullable=False),
        StructField("price", LongType(), nullable=False),
        StructField("quantity", LongType(), nullable=False),
        StructField("buy", StringType(), nullable=False),
        StructField("sell", StringType(), nullable=False),
        StructField("auction", BooleanType(), nullable=False),
        StructField("own", BooleanType(), nullable=False),
        StructField("state", StringType(), nullable=False),
        StructField("confirmed_token", LongType()),
        StructField("confirmed_ns", LongType()),
        StructField("differing_reports", LongType(), nullable=False),
    ]
)
"""`state` is tentative, confirmed, corrected (price and quantity are the right ones) or void. `differing_reports` is
one figure for the floor, in every row: 0 is right."""


def floor_orders(messages: DataFrame, floor: str, pseudonyms: bytes = b"") -> DataFrame:
    """What traders entered, one row for each event that an account sent; bytes that are no event have no row.

    With a secret of at least 16 bytes as `pseudonyms`, accounts and orders appear as keyed hashes: the same account is
    the same text everywhere, and nobody without the secret learns whose it is.
    """
    _check(pseudonyms)

    def decoded(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        import pandas as pd  # noqa: PLC0415 - on the worker

        for frame in frames:
            rows = list(order_rows(frame.to_dict("records"), pseudonyms))
            yield pd.DataFrame(rows, columns=ORDERS_SCHEMA.names).astype(object)

    return messages_once(messages, [floor_topic(floor)]).mapInPandas(decoded, ORDERS_SCHEMA)


def floor_trades(messages: DataFrame, floor: str) -> DataFrame:
    """Every trade of a floor, computed anew from the sequence, with the state that arbiters' reports gave it."""

    def traded(frame: pd.DataFrame) -> pd.DataFrame:
        import pandas as pd  # noqa: PLC0415 - on the worker

        ordered = frame.sort_values(_IDENTITY).to_dict("records")
        return pd.DataFrame(trade_rows(ordered, floor), columns=TRADES_SCHEMA.names).astype(object)

    sequence = messages_once(messages, [floor_topic(floor), report_topic(floor), correction_topic(floor)])
    return sequence.groupBy(F.lit(floor)).applyInPandas(traded, TRADES_SCHEMA)


def floor_reports(messages: DataFrame, floor: str, pseudonyms: bytes = b"") -> DataFrame:
    """What the floor makes of every order, computed anew from the sequence.

    An order is working, refused with its reason, traded, cancelled, expired or replaced. A trade is two rows, one for
    each order.
    """
    _check(pseudonyms)

    def reported(frame: pd.DataFrame) -> pd.DataFrame:
        import pandas as pd  # noqa: PLC0415 - on the worker

        ordered = frame.sort_values(_IDENTITY).to_dict("records")
        return pd.DataFrame(report_rows(ordered, floor, pseudonyms), columns=REPORTS_SCHEMA.names).astype(object)

    return messages_once(messages, [floor_topic(floor)]).groupBy(F.lit(floor)).applyInPandas(reported, REPORTS_SCHEMA)


def _check(pseudonyms: bytes) -> None:
    if 0 < len(pseudonyms) < PSEUDONYM_SECRET_MIN:
        raise ValueError(f"a secret for pseudonyms has at least {PSEUDONYM_SECRET_MIN} bytes")


def messages_once(messages: DataFrame, topics: list[str]) -> DataFrame:
    """Each message of these topics once, however many released it; `ends_token` if any receiver says so."""
    same = [F.any_value(name).alias(name) for name in _NEEDED if name not in _IDENTITY]
    ours = messages.where(F.col("topic").isin(topics)).groupBy(*_IDENTITY)
    return ours.agg(*same, F.bool_or("ends_token").alias("ends_token"))


# One task -----------------------------------------------------------------------------------------------------------


def floor_message(row: dict[Any, Any]) -> FloorMessage:
    """A row of `messages` as a follower of its floor hears it."""
    return FloorMessage(int(row["sequence"]), row["topic"], bytes(row["payload"]), bytes(row["shuffle_key"]))


def is_whole(rows: Sequence[dict[Any, Any]]) -> bool:
    """Whether nothing of the last token of some messages, in sequence, can be missing behind them."""
    return bool(rows) and any(row["ends_token"] for row in rows if row["token"] == rows[-1]["token"])


def order_rows(rows: Iterable[dict[Any, Any]], pseudonyms: bytes = b"") -> Iterator[tuple[object, ...]]:
    """The rows of `floor_orders` for some messages."""
    for row in rows:
        try:
            event = decode_event(bytes(row["payload"]))
        except RemoteProtocolError:
            continue
        fields = _fields(event)
        if fields is None:
            continue
        kind, number, account, *rest = fields
        where = int(row["sequence"]), int(row["index"]), int(row["token"]), int(row["instant_ns"])
        yield (*where, kind, pseudonym(account, pseudonyms), pseudonym(number, pseudonyms), *rest)


def _fields(event: Event) -> tuple[Any, ...] | None:
    """Kind, id, account, symbol, side, quantity, price and trigger; None for what an operator says."""
    match event:
        case Order():
            kind = "offer" if event.is_offer else "order"
            side = event.side.name.lower()
            return kind, event.id, event.account, event.symbol, side, event.quantity, event.price, event.trigger
        case Cancel():
            return "cancel", event.id, event.account, None, None, event.quantity, None, None
        case Replace():
            return "replace", event.id, event.account, None, None, event.quantity, event.price, event.trigger
        case Lot():
            return "lot", event.id, event.account, event.symbol, "sell", event.quantity, event.reserve, None
        case Commit():
            return "commit", event.id, event.account, None, "buy", None, None, None
        case Reveal():
            return "reveal", event.id, event.account, None, "buy", None, event.price, None
        case Bid():
            return "bid", event.id, event.account, None, "buy", event.quantity, event.ceiling, None
        case Take():
            return "take", event.id, event.account, None, None, event.quantity, None, None
        case _:
            return None


def report_rows(rows: Sequence[dict[Any, Any]], floor: str, pseudonyms: bytes = b"") -> list[tuple[object, ...]]:
    """The rows of `floor_reports` for the messages of one floor, in the order of the sequence."""
    view = FloorView(floor)
    outcomes: list[TokenOutcome | None] = []
    for row in rows:
        message = floor_message(row)
        outcomes.append(view.hear(int(row["token"]), int(row["instant_ns"]), message))
    if is_whole(rows):
        outcomes.append(view.finish())
    found: list[tuple[object, ...]] = []
    for outcome in filter(None, outcomes):
        for step in outcome.steps:
            told = [one for report in step.reports for one in _told(report)]
            if isinstance(step.event, Order) and not any(isinstance(one, Refused) for one in step.reports):
                order = step.event
                told.insert(0, (order.id, ReportKind.WORKING, None, order.quantity, order.price, None))
            for number, kind, *rest in told:
                names = pseudonym(number >> _NUMBER_BITS, pseudonyms), pseudonym(number, pseudonyms)
                where = floor, outcome.token, outcome.instant, step.sequence or None
                found.append((*where, *names, kind.value, *rest))
    return found


def _told(report: Report) -> list[tuple[int, ReportKind, str | None, int | None, int | None, int | None]]:
    """Order, kind, reason, quantity, price and trade of what a floor says; nothing of what is about no order."""
    match report:
        case Trade():
            deal = ReportKind.TRADED, None, report.quantity, report.price, report.number
            return [(report.buy, *deal), (report.sell, *deal)]
        case Refused(number, reason):
            return [(number, ReportKind.REFUSED, str(reason), None, None, None)]
        case Cancelled(number, quantity):
            return [(number, ReportKind.CANCELLED, None, quantity, None, None)]
        case Expired(number, quantity):
            return [(number, ReportKind.EXPIRED, None, quantity, None, None)]
        case Replaced(number, total):
            return [(number, ReportKind.REPLACED, None, total, None, None)]
        case _:
            return []


def trade_rows(rows: Sequence[dict[Any, Any]], floor: str) -> list[tuple[object, ...]]:
    """The rows of `floor_trades` for the messages of one floor, in the order of the sequence."""
    follower = ConfirmationFollower(FloorFollower(floor))
    made: dict[int, tuple[object, ...]] = {}
    confirmed: dict[int, tuple[int, int]] = {}
    differing = 0
    news: list[object] = []
    instant = 0
    for row in rows:
        instant = int(row["instant_ns"])
        message = floor_message(row)
        news = [*follower.hear(int(row["token"]), instant, message)]
        differing += _note(news, instant, made, confirmed)
    if is_whole(rows):
        differing += _note(follower.finish(), instant, made, confirmed)
    corrections = follower.corrections.standing
    return [
        (
            floor,
            *_right(fields, corrections.get(number)),
            _state(corrections.get(number), is_confirmed=number in confirmed),
            *confirmed.get(number, (None, None)),
            differing,
        )
        for number, fields in made.items()
    ]


def _state(correction: Correction | None, *, is_confirmed: bool) -> str:
    if correction is not None:
        return "void" if correction.is_void else "corrected"
    return "confirmed" if is_confirmed else "tentative"


def _right(fields: tuple[object, ...], correction: Correction | None) -> tuple[object, ...]:
    """The fields of a trade, with the price and the quantity that operators have corrected."""
    if correction is None or correction.is_void:
        return fields
    before, after = TRADES_SCHEMA.names.index("price") - 1, TRADES_SCHEMA.names.index("quantity")
    return (*fields[:before], correction.price, correction.quantity, *fields[after:])


def _note(
    news: Iterable[object], instant: int, made: dict[int, tuple[object, ...]], confirmed: dict[int, tuple[int, int]]
) -> int:
    """Keep what is new; how many reports differ."""
    differing = 0
    for one in news:
        match one:
            case Tentative(step):
                for trade in step.trades:
                    places = trade.number, step.token, step.instant
                    deal = trade.symbol, trade.price, trade.quantity, str(trade.buy), str(trade.sell)
                    made[trade.number] = (*places, *deal, trade.is_auction, trade.is_own)
            case Confirmed(trades, token):
                confirmed.update({trade.number: (token, instant) for trade in trades})
            case ReportDiffers():
                differing += 1
            case _:
                pass
    return differing
