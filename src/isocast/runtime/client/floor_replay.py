"""Recorded order flow through a rule of the floor, offline: what would have traded, and how the recording traded.

A feed of order messages shows the orders that rested, and executions of them; the orders that executed them are hidden.
For each execution of a known order an order for immediate execution enters, on the other side, of the same price and
quantity: under the rule of the recorded floor it hits the same order. Beside the floor runs a book that does exactly
what the recording says: it tells how often an execution hit the best price, and the head of its queue.
"""

from __future__ import annotations

import csv
import gzip
import lzma
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from io import TextIOWrapper
from itertools import islice
from operator import mul
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from isocast.floor.arrays import EVENT_DTYPE, REASONS, REPORT_KINDS, ArrayKind, Events, Reports, run
from isocast.floor.book import WorkingOrder
from isocast.floor.events import (
    Cancel,
    Directory,
    MarketKind,
    Order,
    OwnRule,
    Phase,
    PriceRule,
    Refused,
    Replace,
    Report,
    Share,
    Trade,
)
from isocast.floor.fast import FastFloor
from isocast.floor.fast_book import FastBook
from isocast.runtime.client.floor_client import Floor, FloorResult
from isocast.runtime.client.rows import is_missing, read_time
from isocast.terms.errors import FeedError, RowError
from isocast.terms.market import EventFlag, EventKind, Side
from isocast.wire.events import EventArray

__all__ = [
    "RULES",
    "FloorReplay",
    "OrderFileReplay",
    "ReplayStats",
    "is_benchmark_flow",
    "is_order_file",
    "read_benchmark_flow",
    "read_order_file",
]

RULES: Final[dict[str, dict[str, Any]]] = {
    "resting": {"price_rule": PriceRule.RESTING},
    "buyer": {"price_rule": PriceRule.BUYER},
    "seller": {"price_rule": PriceRule.SELLER},
    "midpoint": {"price_rule": PriceRule.MIDPOINT},
    "batch": {"market": MarketKind.BATCH, "share": Share.PRO_RATA},
}
"""By name: what a symbol's directory says beside tick and lot."""

_TAKERS_FROM: Final = 1 << 63
"""Ids of orders that stand for hidden ones; those of feeds are smaller."""
_IMMEDIATE, _MARKET = int(EventFlag.IMMEDIATE), int(EventFlag.MARKET)
_FLOW_MAGIC: Final = b"100_WBEM"
_FLOW_DTYPE: Final = np.dtype(
    [
        ("kind", "u1"),
        ("side", "u1"),
        ("ioc", "u1"),
        ("pad", "u1"),
        ("quantity", "<u4"),
        ("sequence", "<u8"),
        ("id", "<u8"),
        ("price", "<i8"),
        ("reserved", "<i8"),
    ]
)
_FLOW_HEADER_BYTES: Final = 16
_FLOW_MODIFY: Final = 2
_FLOW_EVENT_DTYPE: Final = np.dtype(
    [(name, EVENT_DTYPE[name]) for name in ("kind", "side", "immediate", "id", "quantity", "price")]
)
"""One symbol, and every order its own account's."""
_FLOW_BLOCK: Final = 65_536


@dataclass(slots=True)
class ReplayStats:
    """What a replay came to."""

    events: int = 0
    tokens: int = 0
    orders: int = 0
    cancels: int = 0
    replaces: int = 0
    executions: int = 0
    """Of orders that the recording shows."""
    at_best: int = 0
    """Of these, at the best price of the recorded book."""
    at_head: int = 0
    """At the head of the queue there."""
    as_recorded: int = 0
    """Of these, how many the rule gave to the same order, whole, at the same price."""
    unknown_executions: int = 0
    """Of orders from before the recording."""
    trades: int = 0
    volume: int = 0
    value: int = 0
    """Price units times quantity."""
    refused: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    """Events of a kind that a book does not have."""

    def count(self, reports: Iterable[Report]) -> None:
        """Add what a floor says."""
        for one in reports:
            if isinstance(one, Trade):
                self.trades += 1
                self.volume += one.quantity
                self.value += one.price * one.quantity
            elif isinstance(one, Refused):
                self.refused[str(one.reason)] += 1

    def count_array(self, reports: Reports) -> None:
        """The same of an array."""
        kind = reports["kind"]
        trades = reports[kind == REPORT_KINDS.index(Trade)]
        self.trades += len(trades)
        self.volume += sum(trades["quantity"].tolist())
        self.value += sum(map(mul, trades["price"].tolist(), trades["quantity"].tolist()))
        reasons = np.bincount(reports["reason"][kind == REPORT_KINDS.index(Refused)])
        self.refused.update({str(REASONS[at]): count for at, count in enumerate(reasons.tolist()) if count})


class FloorReplay:
    """A floor under one rule, and the recorded book beside it."""

    def __init__(self, rule: str, *, tick: int = 1, lot: int = 1, token_ns: int = 20_000_000) -> None:
        self.stats = ReplayStats()
        self.floor = FastFloor()
        self._terms = {"own_rule": OwnRule.NONE, "phase": Phase.OPEN, "tick": tick, "lot": lot, **RULES[rule]}
        self._token_ns = token_ns
        self._begun: int | None = None
        """Which period of time the token is."""
        self._books: dict[str, FastBook] = {}
        """The recorded ones."""
        self._known: dict[int, tuple[FastBook, WorkingOrder]] = {}
        self._takers = 0
        self._places = 0

    # ---- feeds

    def take(self, events: EventArray) -> None:
        """The next events of a feed."""
        fields = ("kind", "side", "flags", "symbol", "price", "quantity", "time", "id")
        for kind, side, flags, symbol, price, quantity, time, number in zip(
            *(events[name].tolist() for name in fields), strict=True
        ):
            self.stats.events += 1
            name = symbol.decode("ascii")
            if name not in self._books and kind in {EventKind.ORDER, EventKind.EXECUTION}:
                self._open_token(time)
                self._books[name] = FastBook()
                self.stats.count(self.floor.apply(Directory(name, **self._terms)))
            if kind == EventKind.ORDER:
                self._open_token(time)
                self._on_order(name, side, flags, price, quantity, number)
            elif kind == EventKind.CANCEL:
                self._open_token(time)
                self._on_cancel(number, quantity)
            elif kind == EventKind.REPLACE:
                self._open_token(time)
                self._on_replace(number, price, quantity)
            elif kind == EventKind.EXECUTION:
                self._open_token(time)
                self._on_execution(name, price, quantity, number)
            else:
                self.stats.skipped[EventKind(kind).name.lower()] += 1

    def finish(self) -> ReplayStats:
        """The last token ends."""
        if self._begun is not None:
            self.stats.count(self.floor.end())
            self._begun = None
        return self.stats

    def _open_token(self, time: int) -> None:
        period = max(time // self._token_ns, self._begun or 0)
        if period == self._begun:
            return
        if self._begun is not None:
            self.stats.count(self.floor.end())
        self._begun = period
        self.stats.tokens += 1
        self.stats.count(self.floor.begin(self.floor.token + 1, period * self._token_ns))

    def _on_order(self, symbol: str, side: int, flags: int, price: int, quantity: int, number: int) -> None:
        self.stats.orders += 1
        order = Order(number, number, symbol, Side(side), quantity, price)
        if flags & (_IMMEDIATE | _MARKET):
            order = order._replace(is_immediate=bool(flags & _IMMEDIATE), is_market=bool(flags & _MARKET))
        else:
            book = self._books[symbol]
            self._places += 1
            working = WorkingOrder(number, number, 0, order.side, price, quantity, 0, 0, self._places)
            if number in self._known:  # An id that is used again: the feed has forgotten to say that it went.
                self._leave(number)
            self._known[number] = book, working
            book.side(order.side).add(working)
        self.stats.count(self.floor.apply(order))

    def _leave(self, number: int) -> None:
        book, order = self._known.pop(number)
        book.side(order.side).remove(order)

    def _on_cancel(self, number: int, quantity: int) -> None:
        self.stats.cancels += 1
        found = self._known.get(number)
        if found is not None:
            if quantity and quantity < found[1].left:
                found[1].total -= quantity
            else:
                self._leave(number)
        self.stats.count(self.floor.apply(Cancel(number, number, quantity)))

    def _on_replace(self, number: int, price: int, quantity: int) -> None:
        """An order keeps its id and gets another price and quantity; the feed says what is open then."""
        self.stats.replaces += 1
        found = self._known.get(number)
        if found is not None:
            book, order = found
            book.side(order.side).remove(order)
            order.price, order.total = price, order.filled + quantity
            book.side(order.side).add(order)
        live = self.floor.peek(number)
        total = quantity + (0 if live is None else live[1].filled)
        self.stats.count(self.floor.apply(Replace(number, number, total, price)))

    def _on_execution(self, symbol: str, price: int, quantity: int, number: int) -> None:
        found = self._known.get(number)
        if found is None:
            self.stats.unknown_executions += 1
            return
        book, order = found
        side = order.side
        self.stats.executions += 1
        best = book.side(side).best
        self.stats.at_best += best is not None and best.price == order.price
        self.stats.at_head += best is order
        order.filled += quantity
        if order.left <= 0:
            self._leave(number)
        self._takers += 1
        taker = _TAKERS_FROM + self._takers
        facing = Side.SELL if side is Side.BUY else Side.BUY
        told = self.floor.apply(Order(taker, taker, symbol, facing, quantity, price, is_immediate=True))
        if len(told) == 1 and isinstance(told[0], Trade):
            hit = told[0].buy if side is Side.BUY else told[0].sell
            self.stats.as_recorded += hit == number and told[0].price == price
        self.stats.count(told)

    # ---- arrays

    def take_array(self, events: Events, symbol: str) -> None:
        """Orders, cancels and replaces that nobody executes but the rule."""
        if symbol not in self.floor.symbols:
            self._open_token(0)
            self.stats.count(self.floor.apply(Directory(symbol, **self._terms)))
        orders, cancels, replaces, reopened = np.bincount(events["kind"], minlength=4).tolist()
        self.stats.events += len(events)
        self.stats.orders += orders
        self.stats.cancels += cancels
        self.stats.replaces += replaces + reopened
        self.stats.count_array(run(self.floor, events))


class OrderFileReplay:
    """A table of orders through a rule, as `isocast.Floor` reads it: prices in units, tokens by a column or by time."""

    def __init__(
        self, rule: str, *, tick: str = "0.0001", lot: str = "1", token_ns: int = 20_000_000, symbol: str = "X"
    ) -> None:
        self.stats = ReplayStats()
        self.floor = Floor()
        self._is_batch = "market" in RULES[rule]
        self._terms = {
            "own_rule": "none",
            "tick": tick,
            "lot": lot,
            **{name: str(one) for name, one in RULES[rule].items()},
        }
        self._token_ns = token_ns
        self._symbol = symbol
        self._listed: set[str] = set()
        self._period = -1
        self._held: list[dict[str, object]] = []
        """Rows of the token that has begun: it may go on in the next block."""

    def take(self, rows: list[dict[str, object]]) -> None:
        """The next rows, as text or as a file of columns has them; RowError counts within them."""
        for row in rows:
            row.setdefault("symbol", self._symbol)
            kind = str(row.get("kind") or "order").strip().lower()
            self.stats.orders += kind == "order"
            self.stats.cancels += kind == "cancel"
            self.stats.replaces += kind == "replace"
        self.stats.events += len(rows)
        for symbol in dict.fromkeys(str(row["symbol"]) for row in rows):
            if symbol not in self._listed:
                self._listed.add(symbol)
                self._add(self.floor.apply({"kind": "directory", "symbol": symbol, **self._terms}))
        if not self._is_batch:
            self._add(self.floor.apply(_without_token(rows)))
            return
        for row in rows:
            period = self._period_of(row)
            if period > self._period:
                self._flush()
                self._period = period
            self._held.append(row)

    def finish(self) -> ReplayStats:
        """The last token ends."""
        self._flush()
        return self.stats

    def _period_of(self, row: Mapping[str, object]) -> int:
        try:
            if not is_missing(row.get("token")):
                return int(str(row["token"]))
            return read_time(row["time_ns"]) // self._token_ns
        except (KeyError, ValueError):
            rule = "is needed by the rule batch: a column token, or time_ns"
            raise RowError(self.stats.events - 1, "token", rule) from None

    def _flush(self) -> None:
        if self._held:
            held, self._held = self._held, []
            self._add(self.floor.apply(_without_token(held)))

    def _add(self, result: FloorResult) -> None:
        self.stats.tokens += 1
        self.stats.count(result.raw_reports())


def _without_token(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{name: value for name, value in row.items() if name != "token"} for row in rows]


def read_order_file(path: Path) -> Iterator[list[dict[str, object]]]:
    """The rows of a CSV file (also in gzip) or of Parquet, block by block; FeedError if it cannot be read."""
    try:
        if path.suffix == ".parquet":
            from pyarrow.parquet import ParquetFile  # noqa: PLC0415 - an extra

            for batch in ParquetFile(path).iter_batches(_FLOW_BLOCK):
                yield batch.to_pylist()
            return
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as raw:
            reader = csv.DictReader(TextIOWrapper(raw, encoding="utf-8-sig", newline=""))
            while rows := [dict(row) for row in islice(reader, _FLOW_BLOCK)]:
                yield rows
    except ImportError as reason:
        raise FeedError(str(path), "Parquet needs pyarrow: pip install 'isocast[arrow]'") from reason
    except (OSError, UnicodeDecodeError, csv.Error, EOFError) as reason:
        raise FeedError(str(path), f"cannot be read: {reason}") from reason


def is_order_file(path: Path) -> bool:
    """Whether a table has columns of orders, and not those of our own events, which say their floor."""
    try:
        first = next(read_order_file(path), [])
    except (FeedError, StopIteration):
        return False
    names = {str(name).strip().lower() for name in (first[0] if first else ())}
    return {"id", "side", "price"} <= names and "floor" not in names


# ---- the flow of the matching-engine benchmark


def is_benchmark_flow(path: Path) -> bool:
    """Whether a file is order flow of the matching-engine benchmark, plain or in xz."""
    try:
        with _opened(path) as file:
            return file.read(len(_FLOW_MAGIC)) == _FLOW_MAGIC
    except (OSError, EOFError, lzma.LZMAError):
        return False


def _opened(path: Path) -> IO[bytes]:
    return lzma.open(path) if path.suffix == ".xz" else path.open("rb")


def read_benchmark_flow(path: Path) -> Iterator[Events]:
    """Its messages as a floor's events, block by block."""
    with _opened(path) as file:
        if len(file.read(_FLOW_HEADER_BYTES)) != _FLOW_HEADER_BYTES:
            raise FeedError(str(path), "ends in its header")
        while raw := file.read(_FLOW_BLOCK * _FLOW_DTYPE.itemsize):
            if len(raw) % _FLOW_DTYPE.itemsize:
                raise FeedError(str(path), "ends inside a message")
            yield _flow_events(np.frombuffer(raw, _FLOW_DTYPE))


def _flow_events(messages: npt.NDArray[Any]) -> Events:
    found = np.zeros(len(messages), _FLOW_EVENT_DTYPE)
    kind = messages["kind"]
    found["kind"] = np.where(kind >= _FLOW_MODIFY, ArrayKind.REOPEN, kind)  # It says what shall be open.
    found["side"], found["immediate"] = messages["side"] + 1, messages["ioc"]
    found["id"], found["price"] = messages["id"], messages["price"]
    found["quantity"] = np.where(kind == ArrayKind.CANCEL, 0, messages["quantity"])
    return found
