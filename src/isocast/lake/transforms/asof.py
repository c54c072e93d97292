"""As-of joins of any two frames, and spreads in ticks: quoted, effective and realised.

Both are cut into slices by the first column that orders them, so that no symbol, however busy, makes one task longer
than the others; one aggregate says what each slice inherits from those before it, and numpy joins inside a slice.

Where rows on the right have the same time, the one with the greatest place wins: name the sequence, or (time,
sequence, index), and the answer is one. With a time alone ties are broken by nothing that everybody agrees on.
Events that are one frame already need none of this: `transforms.quotes` joins them without a shuffle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from isocast.lake.transforms.bars import ALWAYS, VWAP_TYPE, Calendar, Interval, counted, read_interval
from isocast.terms.errors import LocalProtocolError

__all__ = ["HORIZON", "LEFT_OUT", "NOTED", "STALE", "asof_join", "spreads", "trade_spreads"]


_SLICE = "isocast_slice"
_SLICE_ROWS = 1_000_000
_MOST_SLICES = 4_096
_Integers = npt.NDArray[np.int64]


def asof_join(
    left: DataFrame,
    right: DataFrame,
    *,
    left_on: str | Sequence[str],
    right_on: str | Sequence[str],
    by: Sequence[str],
    take: Sequence[str],
    prefix: str = "",
) -> DataFrame:
    """The left frame with the columns `take` of the newest row on the right of the same `by`, NULL if there is none.

    A row on the right counts if its `right_on`, as far as `left_on` has columns, is not greater. All of them are
    integers; `prefix` goes before the names that are taken. The right frame's rows may come in any order.
    As in SQL, NULL equals nothing: a row on the left whose `by` or `left_on` is NULL finds nothing and stays, and a row
    on the right whose `by` or `right_on` is NULL is found by nobody.
    """
    left_keys, right_keys = _names(left_on), _names(right_on)
    if not left_keys or len(left_keys) > len(right_keys):
        raise LocalProtocolError(f"{left_on!r} cannot be compared with {right_on!r}")
    taken = [f"{prefix}{name}" for name in take]
    clash = sorted(set(taken) & set(left.columns))
    if clash:
        raise LocalProtocolError(f"the left frame has {', '.join(clash)} already: give a prefix")
    bounds = _bounds(right, right_keys[0])
    later = right.select(*dict.fromkeys([*by, *right_keys, *take]))
    later = later.withColumn(_SLICE, _slice_of(F.col(right_keys[0]), bounds))
    work = _Join(list(left.columns), left_keys, right_keys, list(by), list(take), taken)
    carried = later.mapInArrow(work.last_of_slice, later.schema)
    inherited = pa.Table.from_batches(carried.toArrow().to_batches(), _arrow_schema(later))
    types = {field.name: field.dataType.simpleString() for field in right.schema}
    fields = [f"`{field.name}` {field.dataType.simpleString()}" for field in left.schema]
    fields += [f"`{name}` {types[source]}" for name, source in zip(taken, take, strict=True)]
    sliced = left.withColumn(_SLICE, _slice_of(F.col(left_keys[0]), bounds))
    return sliced.groupBy(_SLICE).cogroup(later.groupBy(_SLICE)).applyInArrow(work.joined(inherited), ", ".join(fields))


def _names(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def _arrow_schema(frame: DataFrame) -> pa.Schema:
    return frame.limit(0).toArrow().schema


def _bounds(right: DataFrame, key: str) -> list[int]:
    """Where slices begin, so that they hold about as many rows each."""
    rows = right.count()
    parts = min(-(-rows // _SLICE_ROWS), _MOST_SLICES)
    if parts <= 1:
        return []
    shares = [part / parts for part in range(1, parts)]
    found = right.agg(F.percentile_approx(key, shares, 10_000)).collect()[0][0]
    return sorted(set(found))


def _slice_of(key: Column, bounds: list[int]) -> Column:
    """How many bounds are not above a key."""
    if not bounds:
        return F.lit(0)
    return _search(key, bounds, 0, len(bounds))


def _search(key: Column, bounds: list[int], low: int, high: int) -> Column:
    if low == high:
        return F.lit(low)
    middle = (low + high) // 2
    return F.when(key < bounds[middle], _search(key, bounds, low, middle)).otherwise(
        _search(key, bounds, middle + 1, high)
    )


class _Join:
    """What workers do; it travels to them."""

    def __init__(
        self,
        columns: list[str],
        left_on: list[str],
        right_on: list[str],
        by: list[str],
        take: list[str],
        names: list[str],
    ) -> None:
        self._columns = columns
        self._left_on = left_on
        self._right_on = right_on
        self._by = by
        self._take = take
        self._names = names

    def last_of_slice(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The newest row of each key in each slice, as far as this partition knows."""
        kept: pa.Table | None = None
        for batch in batches:
            if len(batch):
                table = pa.Table.from_batches([batch])
                kept = self._newest(table if kept is None else pa.concat_tables([kept, table]))
        if kept is not None:
            yield from kept.combine_chunks().to_batches()

    def _newest(self, table: pa.Table) -> pa.Table:
        table = table.filter(_are_known(table, [*self._by, *self._right_on]))
        keys = _codes([table], [*self._by, _SLICE])[0]
        order = np.lexsort((*(_numbers(table, name) for name in reversed(self._right_on)), keys))
        is_last = np.append(keys[order[1:]] != keys[order[:-1]], [True])[: len(order)]
        return table.take(pa.array(order[is_last]))

    def joined(self, inherited: pa.Table) -> Callable[[pa.Table, pa.Table], pa.Table]:
        """Joins one slice."""

        def join(left: pa.Table, right: pa.Table) -> pa.Table:
            number = int((left if len(left) else right)[_SLICE][0].as_py())
            is_before = inherited[_SLICE].to_numpy() < number
            right = pa.concat_tables([inherited.filter(pa.array(is_before)).cast(right.schema), right])
            return self._join(left, right)

        return join

    def _join(self, left: pa.Table, right: pa.Table) -> pa.Table:
        """Rows of both by key and time; at the same time those of the right come first."""
        right = right.filter(_are_known(right, [*self._by, *self._right_on]))
        right_codes, left_codes = _codes([right, left], self._by)
        codes = np.concatenate([right_codes, left_codes])
        is_left = np.concatenate([np.zeros(len(right), np.bool_), np.ones(len(left), np.bool_)])
        shared = [
            np.concatenate([_numbers(right, theirs), _numbers(left, ours)])
            for ours, theirs in zip(self._left_on, self._right_on, strict=False)
        ]
        rest = [
            np.concatenate([_numbers(right, name), np.zeros(len(left), np.int64)])
            for name in self._right_on[len(self._left_on) :]
        ]
        order = np.lexsort((*reversed(rest), is_left, *reversed(shared), codes))
        places = np.where(is_left[order], -1, np.arange(len(order)))
        newest = np.maximum.accumulate(places)
        sorted_codes = codes[order]
        starts = np.searchsorted(sorted_codes, sorted_codes)
        found = np.where(newest >= starts, order[np.maximum(newest, 0)], -1)
        match = np.empty(len(left), np.int64)
        match[order[is_left[order]] - len(right)] = found[is_left[order]]
        is_known = _are_known(left, [*self._by, *self._left_on]).to_numpy(zero_copy_only=False)
        chosen = pa.array(match, mask=(match < 0) | ~is_known)
        arrays = [left[name] for name in self._columns] + [right[name].take(chosen) for name in self._take]
        return pa.Table.from_arrays(arrays, [*self._columns, *self._names])


def _are_known(table: pa.Table, names: Sequence[str]) -> pa.BooleanArray:
    """Which rows have no NULL in some columns."""
    known: npt.NDArray[np.bool_] = np.ones(len(table), np.bool_)
    for name in names:
        if table[name].null_count:
            known &= table[name].is_valid().to_numpy()
    return pa.array(known)


def _numbers(table: pa.Table, name: str) -> _Integers:
    """Whole numbers, 0 for NULL; `_are_known` tells which are NULL: with NULLs numpy would have floats."""
    column = table[name].fill_null(0) if table[name].null_count else table[name]
    numbers: _Integers = column.to_numpy().astype(np.int64, copy=False)
    return numbers


def _codes(tables: Sequence[pa.Table], names: Sequence[str]) -> list[_Integers]:
    """Rows of equal values have equal numbers, in all tables."""
    total: Any = np.zeros(sum(map(len, tables)), np.int64)
    for name in names:
        column = pa.chunked_array([chunk for table in tables for chunk in table[name].chunks], tables[0][name].type)
        coded = column.combine_chunks().dictionary_encode()
        coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
        # NULL is a value of its own here; comparisons leave it out.
        indices = coded.indices.fill_null(len(coded.dictionary)).to_numpy(zero_copy_only=False).astype(np.int64)
        total = total * (len(coded.dictionary) + 1) + indices
        # Numbers close up again, so that many columns do not overflow.
        total = np.unique(total, return_inverse=True)[1] if name != names[0] else total
    return np.split(total, np.cumsum([len(table) for table in tables])[:-1])


# Spreads in ticks: quoted, effective, and realised some time later.
#
# quoted     best ask − best bid, as the trade found them
# effective  2·d·(price − mid), d = +1 for a buyer's trade, −1 for a seller's: what trading at once cost
# realised   2·d·(price − mid some time later): what of that the other side could keep
#
# A trade above the middle of the best bid and ask was a buyer's, one below it a seller's; one in the middle has an
# effective and a realised spread of 0. Twice the middle is bid + ask, so that all of them are whole ticks.
#
# A trade has a spread where both sides were quoted and the bid was not above the ask. What has none is counted beside
# the figures, by reason, and so is what has one of little worth:
#
# crossed      no spread: the bid was above the ask
# one-sided    no spread: only one side was quoted
# unquoted     no spread: nobody quoted
# locked       a spread of 0: the bid was the ask
# stale        a spread, of quotes that did not change from a minute before the trade until the horizon behind it
# unrealised   a spread, and none realised: later one side or both were not quoted


HORIZON = read_interval("5s")
"""After which a realised spread is taken, if nobody says otherwise."""
STALE = read_interval("1m")
"""Before a trade: quotes that are older, and did not change behind it, are stale."""
LEFT_OUT = ("crossed", "one_sided", "unquoted")
"""Why a trade has no spread: columns of `spreads`."""
NOTED = ("locked", "stale", "unrealised")
"""What is said of trades that have one: columns of `spreads` too."""
_LAST_NS = (1 << 63) - 1


def trade_spreads(tape: DataFrame, quotes: DataFrame | None = None, horizon: Interval = HORIZON) -> DataFrame:
    """Every trade that stands, with its spreads, NULL where it has none; realised if `quotes` are given.

    `market` says how the trade found the quotes: normal, locked, crossed, one_sided or unquoted. The later middle is
    that of the last quote, by the floors' clocks and then by the sequence, up to `horizon` after the trade.
    """
    bid, ask = F.col("best_bid"), F.col("best_ask")
    has_spread = bid <= ask
    over_mid = 2 * F.col("price") - bid - ask
    trades = counted(tape).select(
        "stripe",
        "sequence",
        "index",
        "symbol",
        "floor",
        "price",
        "quantity",
        "event_ns",
        _market(bid, ask).alias("market"),
        F.when(has_spread, ask - bid).alias("quoted"),
        F.when(has_spread, F.signum(over_mid.cast("double")).cast("int")).alias("direction"),
        F.when(has_spread, F.abs(over_mid)).alias("effective"),
    )
    if quotes is None:
        return trades
    later = quotes.select(
        "symbol",
        "event_ns",
        "stripe",
        "sequence",
        "index",
        "best_bid",
        "best_ask",
        F.col("event_ns").alias("quoted_ns"),
    )
    # A time so late that the horizon is beyond 64 bits has nothing behind it.
    until = F.least(F.col("event_ns"), F.lit(_LAST_NS - horizon.ns)) + F.lit(horizon.ns)
    joined = asof_join(
        trades.withColumn("until_ns", until),
        later,
        left_on="until_ns",
        right_on=("event_ns", "sequence", "index"),
        by=("stripe", "symbol"),
        take=("best_bid", "best_ask", "quoted_ns"),
    )
    realised = F.col("direction") * (2 * F.col("price") - bid - ask)
    # Both are times since 1970: their difference fits 64 bits.
    is_stale = F.greatest(F.col("event_ns"), F.lit(0)) - F.greatest(F.col("quoted_ns"), F.lit(0)) > F.lit(STALE.ns)
    return joined.select(
        *trades.columns,
        F.when(F.col("quoted").isNotNull(), is_stale).alias("is_stale"),
        realised.alias("realised"),
    )


def _market(bid: Column, ask: Column) -> Column:
    return (
        F.when(bid.isNull() & ask.isNull(), "unquoted")
        .when(bid.isNull() | ask.isNull(), "one_sided")
        .when(bid > ask, "crossed")
        .when(bid == ask, "locked")
        .otherwise("normal")
    )


def spreads(trades: DataFrame, interval: Interval, calendar: Calendar = ALWAYS) -> DataFrame:
    """Means of each symbol and interval, weighted by shares; `trades` as `trade_spreads` makes them.

    `trades` and `volume` are of what has a spread; the others are counted in the columns of LEFT_OUT, and of those that
    have one some in the columns of NOTED. An interval in which no trade has a spread has its counts, and no means.
    """
    if calendar.has_session:
        trades = trades.where(calendar.is_open(F.col("event_ns")))
    names = [name for name in ("quoted", "effective", "realised") if name in trades.columns]
    start = calendar.start_of(F.col("event_ns"), interval)
    quantity = F.col("quantity").cast("DECIMAL(10,0)")
    has_spread = F.col("quoted").isNotNull()
    sums = []
    for name in names:
        weight = F.when(F.col(name).isNotNull(), quantity)
        total = F.sum(F.col(name).cast("DECIMAL(19,0)") * quantity).cast("DECIMAL(38,0)")
        sums.append((total / F.sum(weight)).cast(VWAP_TYPE).alias(name))
    counts = [F.count_if(F.col("market") == reason).alias(reason) for reason in (*LEFT_OUT, "locked")]
    if "realised" in names:
        counts.append(F.count_if(F.col("is_stale")).alias("stale"))
        counts.append(F.count_if(has_spread & F.col("realised").isNull()).alias("unrealised"))
    return trades.groupBy("symbol", start.alias("start_ns")).agg(
        F.count("quoted").alias("trades"),
        F.coalesce(F.sum(F.when(has_spread, F.col("quantity"))), F.lit(0)).alias("volume"),
        *sums,
        *counts,
    )
