"""Best bids and offers across floors, and trades joined as-of to the quotes that stood when they came.

Both are functions of the sequence alone: a quote counts for whatever comes behind it, by (sequence, index), however
the floors' clocks stand. Nothing is shuffled (`transforms.slices`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame

from isocast.lake.transforms.slices import (
    QuoteCarry,
    Sliced,
    block_of,
    coded,
    end_of,
    is_in_order,
    ordered_blocks,
    sliced,
)
from isocast.lake.transforms.standing import SideAt
from isocast.terms.errors import LocalProtocolError
from isocast.terms.market import EventFlag, EventKind

__all__ = ["STANDING_COLUMNS", "quotes_across_floors", "trades_with_quotes"]

STANDING_COLUMNS = (
    "bid",
    "bid_size",
    "ask",
    "ask_size",
    "best_bid",
    "best_bid_size",
    "best_ask",
    "best_ask_size",
)
"""What stands: of the row's own floor, and of all floors together; NULL where nobody quotes."""

_Mask = npt.NDArray[np.bool_]
_TRADES = (int(EventKind.TRADE), int(EventKind.EXECUTION))
_QUOTE_COLUMNS = ("stripe", "sequence", "index", "floor", "symbol", "event_ns", "due_ns")


def quotes_across_floors(market: DataFrame | Sliced) -> DataFrame:
    """One row for each change of a quote: both sides of its floor behind it, and the best of all floors.

    The first of two LINKED quotes has no row of its own: both sides change together. A quote of no symbol is none, as
    for the ticker, and so are its copies in other stripes.
    """
    return _followed(market, _QUOTE_COLUMNS, _is_whole_quote)


def trades_with_quotes(market: DataFrame | Sliced, columns: Sequence[str] | None = None) -> DataFrame:
    """Every reported trade with the quotes that stood before it; `columns` of the frame are kept, or all."""
    names = (market.source.schema if isinstance(market, Sliced) else market.schema).names
    return _followed(market, names if columns is None else columns, _is_trade)


def _is_whole_quote(table: pa.Table) -> _Mask:
    kind, flags = table["kind"].to_numpy(), table["flags"].to_numpy()
    symbol = coded(table["symbol"])
    is_named = np.array([name != "" for name in symbol.names], np.bool_)[symbol.codes]
    chosen: _Mask = (kind == EventKind.QUOTE) & ((flags & int(EventFlag.LINKED)) == 0) & is_named
    return chosen


def _is_trade(table: pa.Table) -> _Mask:
    return np.isin(table["kind"].to_numpy(), _TRADES)


def _followed(market: DataFrame | Sliced, columns: Sequence[str], chosen: Callable[[pa.Table], _Mask]) -> DataFrame:
    """Chosen rows with what stands behind them."""
    known = market if isinstance(market, Sliced) else sliced(market)
    needed = ("stripe", "sequence", "index", "kind", "side", "flags", "floor", "symbol", "price", "quantity")
    wanted = list(columns)
    types = {field.name: field.dataType.simpleString() for field in known.source.schema}
    fields = [*(f"`{name}` {types[name]}" for name in wanted), *(f"{name} BIGINT" for name in STANDING_COLUMNS)]
    read = [*wanted, *(name for name in needed if name not in wanted)]
    return known.source.apply(_follower(known.carry, wanted, chosen), read, ", ".join(fields))


def _follower(
    carry: QuoteCarry, columns: list[str], chosen: Callable[[pa.Table], _Mask]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a worker does with its slice."""

    def follow(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        standing, at, last = None, None, (-1, -1)
        for table in ordered_blocks(batches):
            stripe = table["stripe"][0].as_py()
            if standing is None or stripe != at:
                at, last = stripe, (-1, -1)
                standing = carry.before(stripe, table["sequence"][0].as_py(), table["index"][0].as_py())
            if not is_in_order(table, last):
                raise LocalProtocolError(f"stripe {stripe}: rows after sequence {last[0]} are out of order")
            last = end_of(table)
            bid, ask = standing.follow(block_of(table))
            rows = chosen(table)
            kept = table.select(columns).filter(pa.array(rows))
            arrays = [_plain(column) for column in kept.columns] + _standing_arrays(bid, ask, rows)
            yield pa.RecordBatch.from_arrays(arrays, [*columns, *STANDING_COLUMNS])

    return follow


def _plain(column: pa.ChunkedArray) -> pa.Array:
    """A column as Spark takes it: in one piece, text as text."""
    is_coded = pa.types.is_dictionary(column.type)
    return (column.cast(column.type.value_type) if is_coded else column).combine_chunks()


def _standing_arrays(bid: SideAt, ask: SideAt, rows: _Mask) -> list[pa.Array]:
    arrays = []
    for price, size in (
        (bid.price, bid.size),
        (ask.price, ask.size),
        (bid.best, bid.best_size),
        (ask.best, ask.best_size),
    ):
        chosen = size[rows]
        arrays += [pa.array(price[rows], mask=chosen == 0), pa.array(chosen, mask=chosen == 0)]
    return arrays
