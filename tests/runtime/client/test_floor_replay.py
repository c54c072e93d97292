"""Recorded order flow through the rules of the floor."""

from __future__ import annotations

import gzip
import lzma
import os
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isocast.runtime.client.feed_files import FeedFile
from isocast.runtime.client.floor_replay import (
    FloorReplay,
    OrderFileReplay,
    ReplayStats,
    is_benchmark_flow,
    is_order_file,
    read_benchmark_flow,
    read_order_file,
)
from isocast.terms.errors import FeedError, RowError

DATA = os.environ.get("ISOCAST_DATA", "")
needs_data = pytest.mark.skipif(not DATA, reason="ISOCAST_DATA does not say where the published files are")

LOBSTER = """\
34200.1,1,11,100,100200,-1
34200.2,1,12,50,100200,-1
34200.3,1,13,80,100000,1
34200.4,4,12,20,100200,-1
34200.5,4,11,100,100200,-1
34200.6,2,12,10,100200,-1
34200.7,3,13,80,100000,1
34200.8,4,99,10,100200,-1
34200.9,5,0,10,100100,1
"""


def lobster(folder: Path, text: str = LOBSTER) -> FeedFile:
    path = folder / "ISO_2012-06-21_34200000_37800000_message_10.csv"
    path.write_text(text)
    return FeedFile(path)


def replayed(feed: FeedFile, rule: str = "resting", token_ns: int = 1_000_000) -> ReplayStats:
    replay = FloorReplay(rule, token_ns=token_ns)
    for events in feed.blocks():
        replay.take(events)
    return replay.finish()


def test_a_recording_is_followed_and_matched_beside(tmp_path: Path) -> None:
    """The recording fills order 12 although 11 came earlier; the rule gives that part to 11."""
    stats = replayed(lobster(tmp_path))
    assert (stats.events, stats.orders, stats.cancels, stats.executions) == (9, 3, 2, 2)
    assert (stats.at_best, stats.at_head, stats.as_recorded, stats.unknown_executions) == (2, 1, 0, 1)
    assert (stats.trades, stats.volume) == (3, 120)
    assert stats.skipped == {"trade": 1}
    assert not stats.refused


def test_an_execution_of_the_earliest_order_is_at_the_head(tmp_path: Path) -> None:
    first, second, *_ = LOBSTER.splitlines()
    stats = replayed(lobster(tmp_path, f"{first}\n{second}\n34200.4,4,11,20,100200,-1\n"))
    assert (stats.executions, stats.at_best, stats.at_head, stats.as_recorded) == (1, 1, 1, 1)


def test_a_batch_trades_between_tokens(tmp_path: Path) -> None:
    apart, together = (replayed(lobster(tmp_path), "batch", token_ns) for token_ns in (1_000_000, 10**18))
    assert (apart.trades, apart.volume) == (3, 120)
    assert together.tokens == 1
    assert together.volume == 120


def test_a_table_of_orders_in_every_form(tmp_path: Path) -> None:
    text = "id,side,price,quantity,kind,time_ns\n1,sell,10.02,100,,1\n2,buy,10.05,40,,2\n1,,,,cancel,3\n"
    (tmp_path / "orders.csv").write_text(text)
    (tmp_path / "orders.csv.gz").write_bytes(gzip.compress(text.encode()))
    rows = [
        {**dict.fromkeys(("side", "price", "quantity")), **row}
        for row in (
            {"id": 1, "side": "sell", "price": "10.02", "quantity": 100, "kind": "order"},
            {"id": 2, "side": "buy", "price": "10.05", "quantity": 40, "kind": "order"},
            {"id": 1, "kind": "cancel"},
        )
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "orders.parquet")
    for name in ("orders.csv", "orders.csv.gz", "orders.parquet"):
        assert is_order_file(tmp_path / name)
        replay = OrderFileReplay("resting", tick="0.01")
        for block in read_order_file(tmp_path / name):
            replay.take(block)
        stats = replay.finish()
        assert (stats.orders, stats.cancels, stats.trades, stats.volume) == (2, 1, 1, 40)
        assert not stats.refused


def test_a_batch_of_a_table_needs_tokens_or_times() -> None:
    row: dict[str, object] = {"id": 1, "side": "sell", "price": "10", "quantity": 1}
    replay = OrderFileReplay("batch")
    with pytest.raises(RowError, match="a column token, or time_ns"):
        replay.take([row])
    timed = OrderFileReplay("batch", token_ns=10)
    buy: dict[str, object] = {**row, "id": 2, "side": "buy"}
    timed.take([{**row, "time_ns": 1}, {**buy, "time_ns": 9}, {**buy, "id": 3, "time_ns": 11}])
    assert timed.finish().trades == 1


def flow(path: Path, messages: list[tuple[int, int, int, int, int, int]]) -> Path:
    record = struct.Struct("<BBBBIQQqq")
    raw = (
        b"100_WBEM"
        + bytes(8)
        + b"".join(
            [
                record.pack(kind, side, ioc, 0, quantity, place, number, price, 0)
                for place, (kind, side, ioc, quantity, number, price) in enumerate(messages)
            ]
        )
    )
    path.write_bytes(lzma.compress(raw) if path.suffix == ".xz" else raw)
    return path


@pytest.mark.parametrize("name", ["flow.bin", "flow.bin.xz"])
def test_the_flow_of_the_benchmark_says_what_shall_be_open(tmp_path: Path, name: str) -> None:
    path = flow(
        tmp_path / name,
        [(0, 1, 0, 10, 1, 5), (0, 0, 0, 4, 2, 5), (2, 1, 0, 8, 1, 5), (0, 0, 1, 20, 3, 5), (1, 1, 0, 0, 1, 0)],
    )
    assert is_benchmark_flow(path)
    replay = FloorReplay("resting")
    for events in read_benchmark_flow(path):
        replay.take_array(events, "X")
    stats = replay.finish()
    assert (stats.events, stats.orders, stats.cancels, stats.replaces) == (5, 3, 1, 1)
    assert (stats.trades, stats.volume) == (2, 12)
    assert stats.refused == {"unknown order": 1}
    assert not is_benchmark_flow(tmp_path / "none.bin")


def test_a_flow_that_ends_in_a_message_is_refused(tmp_path: Path) -> None:
    path = flow(tmp_path / "flow.bin", [(0, 1, 0, 10, 1, 5)])
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FeedError, match="ends inside a message"):
        list(read_benchmark_flow(path))


@needs_data
def test_a_real_hour_keeps_price_and_almost_always_time() -> None:
    stats = replayed(FeedFile(Path(DATA, "lobster", "AAPL_2012-06-21_34200000_37800000_message_50.csv.gz")))
    assert stats.executions == 4_055
    assert stats.at_best == stats.executions
    assert np.round(stats.at_head / stats.executions, 4) == 0.9941
