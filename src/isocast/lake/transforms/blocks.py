"""Arrow batches put together to tables that numpy works on: each of one stripe, in the order of the sequence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from isocast.lake.transforms.standing import Block, Coded

__all__ = ["BLOCK_ROWS", "block_of", "coded", "end_of", "is_in_order", "ordered_blocks"]

BLOCK_ROWS = 1 << 18
"""Rows that are worked on together: enough for numpy, few enough for a worker's memory."""


def ordered_blocks(batches: Iterable[pa.RecordBatch], rows: int = BLOCK_ROWS) -> Iterator[pa.Table]:
    """Batches put together to larger tables, each of one stripe."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(map(len, waiting)) >= rows:
            yield from _by_stripe(pa.Table.from_batches(waiting))
            waiting.clear()
    if waiting:
        yield from _by_stripe(pa.Table.from_batches(waiting))


def _by_stripe(table: pa.Table) -> Iterator[pa.Table]:
    stripe = table["stripe"].to_numpy()
    cuts = [0, *(np.flatnonzero(stripe[1:] != stripe[:-1]) + 1).tolist(), len(stripe)]
    for start, stop in pairwise(cuts):
        if stop > start:
            yield table.slice(start, stop - start)


def coded(column: pa.ChunkedArray) -> Coded:
    """A column of text as numbers."""
    is_coded = pa.types.is_dictionary(column.type)
    encoded = (column.unify_dictionaries() if is_coded else column).combine_chunks()
    encoded = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
    encoded = encoded if is_coded else encoded.dictionary_encode()
    return Coded(encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_pylist())


def block_of(table: pa.Table) -> Block:
    """The columns that standing quotes need."""
    return Block(
        symbol=coded(table["symbol"]),
        floor=coded(table["floor"]),
        **{name: table[name].to_numpy() for name in ("kind", "side", "price", "quantity")},
    )


def is_in_order(table: pa.Table, last: tuple[int, int]) -> bool:
    """Whether rows of one stripe are in order, and behind what came before."""
    sequence, index = table["sequence"].to_numpy(), table["index"].to_numpy()
    if (int(sequence[0]), int(index[0])) <= last:
        return False
    rises = (sequence[1:] > sequence[:-1]) | ((sequence[1:] == sequence[:-1]) & (index[1:] > index[:-1]))
    return bool(rises.all())


def end_of(table: pa.Table) -> tuple[int, int]:
    """The last row's place in the sequence."""
    return table["sequence"][-1].as_py(), table["index"][-1].as_py()
