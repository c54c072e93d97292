"""A market from Python: what is published is heard, in every form, and a `with` block leaves nothing behind."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest
from tests.runtime.worlds import BUSY, SMALL, World, eventually, market_file, running, trades, wait_until

import isocast
from isocast.runtime.client.rows import events_of
from isocast.runtime.market.key_files import init_keys
from isocast.terms.instants import SECOND
from isocast.wire.events import events_view

NODES = {
    **{name: SMALL[name] for name in ("a", "b", "c", "x", "archive", "floor")},
    "desk": {"role": "customer", "lines": ["a", "b"], "retransmit": ["archive"], "start": False},
    "desk-2": {"role": "customer", "lines": ["b", "c"], "retransmit": ["archive"], "start": False},
}
ROWS = [
    {"kind": "trade", "floor": "XLON", "symbol": "VOD", "price": "72.5", "quantity": 100, "id": 1},
    {"kind": "quote", "floor": "XLON", "symbol": "VOD", "side": "buy", "price": 72.4, "quantity": 500},
    {"kind": "quote", "floor": "XLON", "symbol": "VOD", "side": "sell", "price": Decimal("72.6"), "quantity": 300},
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running(market_file(tmp_path_factory.mktemp("market"), NODES)) as found:
        yield found


LEAVES_NOTHING = """
import os, subprocess, sys, threading
import isocast

with isocast.connect(sys.argv[1]):
    pass  # What Python itself opens on first use is open from here on.
before = sorted(os.listdir("/proc/self/fd")), threading.active_count()
with isocast.connect(sys.argv[1]) as market:
    market.publish({"kind": "trade", "floor": "XLON", "symbol": "GONE", "price": 1, "quantity": 1})
    for batch in market.listen("GONE", start="beginning"):
        break
    left_open = market.listen(start="beginning")
assert (sorted(os.listdir("/proc/self/fd")), threading.active_count()) == before
assert not subprocess.run(["pgrep", "-P", str(os.getpid())], stdout=subprocess.PIPE).stdout.split()[1:]
assert next(left_open, None) is None
"""


def test_what_is_published_is_heard(world: World) -> None:
    with isocast.connect(world.path) as market:
        assert market.sources == ("floor",)
        with market.listen(timeout_s=60) as listening:
            assert isinstance(listening, isocast.Listening)
            done = market.publish(ROWS)
            assert isinstance(done, isocast.Published)
            assert (done.source, done.events, done.messages) == ("floor", 3, 1)
            batch = next(listening)
        assert [row["price"] for row in batch.rows()] == [Decimal("72.5"), Decimal("72.4"), Decimal("72.6")]
        assert [row["side"] for row in batch.rows()] == ["none", "buy", "sell"]
        assert all(row["time_ns"] > 1_600_000_000 * SECOND for row in batch.rows())
    with pytest.raises(isocast.IsocastError, match="closed: connect again"):
        market.publish(ROWS)


def test_a_with_block_leaves_no_thread_socket_or_process(world: World) -> None:
    words = [sys.executable, "-W", "error", "-c", LEAVES_NOTHING, str(world.path)]
    done = subprocess.run(words, capture_output=True, encoding="utf-8", timeout=100, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if not BUSY.search(line)]) == (0, [])


def test_ctrl_c_ends_a_loop_that_waits(world: World) -> None:
    program = (
        "import isocast, sys\nwith isocast.connect(sys.argv[1]) as market:\n    listening = market.listen('NONE')\n"
    )
    program += "    print('listening', flush=True)\n    for batch in listening:\n        print(batch)\n"
    words = [sys.executable, "-W", "error", "-c", program, str(world.path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8") as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "listening\n"
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=60)
    assert (child.returncode, said.splitlines()[-1]) == (-signal.SIGINT, "KeyboardInterrupt")
    assert said.count("Traceback") == 1


def test_threads_share_a_connection(world: World) -> None:
    row = {"kind": "trade", "floor": "XLON", "symbol": "MANY", "price": 1, "quantity": 1}
    with isocast.connect(world.path) as market, ThreadPoolExecutor(8) as threads:
        done = list(threads.map(lambda number: market.publish({**row, "id": number}), range(1, 41)))
        assert len({label for each in done for label in each.labels}) == 40
        with market.listen("MANY", start="beginning") as listening:
            heard: list[int] = []
            while len(heard) < 40:
                heard += [row["id"] for row in next(listening).rows()]
            assert sorted(heard) == list(range(1, 41))
            assert listening.next_if_any() is None


def forms() -> dict[str, Any]:
    """The same two rows in every form."""
    frame = pl.DataFrame(
        {
            "kind": ["trade", "quote"],
            "floor": ["XLON", "XLON"],
            "symbol": ["SAME", "SAME"],
            "side": [None, "buy"],
            "price": [72.5, 72.4],
            "quantity": [100, 500],
            "flags": ["auction late", None],
            "time": [1_700_000_000_000_000_001, 1_700_000_000_000_000_002],
        }
    )
    rows = frame.to_dicts()
    return {
        "dicts": rows,
        "dataclasses": [Row(**row) for row in rows],
        "pandas": pd.DataFrame(rows),
        "polars": frame,
        "arrow": frame.to_arrow(),
        "numpy": pd.DataFrame(rows).to_records(index=False),
        "records": events_of(rows),
    }


@dataclass
class Row:
    kind: str
    floor: str
    symbol: str
    side: str | None
    price: float
    quantity: int
    flags: str | None
    time: int


def test_the_same_rows_in_any_form_are_the_same_journal(world: World) -> None:
    with isocast.connect(world.path) as market:
        for rows in forms().values():
            market.publish(rows)
    wait_until(lambda: world.holds("SAME", 2 * len(forms())))
    payloads = [payload for _, payload in world.released("archive") if events_view(payload)["symbol"][0] == b"SAME"]
    assert payloads == [events_of(forms()["dicts"]).tobytes()] * len(forms())


def test_a_wrong_row_is_named_and_nothing_of_its_batch_is_published(world: World) -> None:
    good = {"kind": "trade", "floor": "XLON", "symbol": "BAD", "price": 1, "quantity": 1}
    with isocast.connect(world.path) as market:
        for wrong, column in (
            ({"price": 0.1 + 0.2}, "price"),
            ({"kind": "trad"}, "kind"),
            ({"quantity": -1}, "quantity"),
        ):
            with pytest.raises(isocast.RowError, match=rf"^row 99 \(from 0\), column {column}: ") as caught:
                market.publish([good] * 99 + [{**good, **wrong}] + [good] * 99)
            assert (caught.value.row, caught.value.column) == (99, column)
        market.publish({**good, "symbol": "END"})
        with market.listen(["BAD", "END"], start="beginning", timeout_s=60) as listening:
            assert {row["symbol"] for row in next(listening).rows()} == {"END"}


def test_a_book_follows_the_orders_of_a_symbol_while_others_speak(world: World) -> None:
    order = {"kind": "order", "floor": "XLON", "symbol": "BOOK", "quantity": 10}
    with isocast.connect(world.path) as market:
        market.publish(
            [{**order, "side": "buy", "price": "1.5", "id": 1}, {**order, "side": "sell", "price": 2, "id": 2}]
        )
        market.publish({"kind": "trade", "floor": "XLON", "symbol": "ELSE", "price": 1, "quantity": 1})
        market.publish({**order, "side": "buy", "price": "1.5", "id": 3})
        wait_until(lambda: world.holds("BOOK", 3))
        with market.tape("BOOK", timeout_s=60) as tape:
            best = isocast.BookLevel(Decimal("1.5"), 20, 2, ("XLON",))
            assert tape.book("BOOK", 1).bids == (best,)
            assert tape["BOOK"].bid == Decimal("1.5")
            market.publish({**order, "kind": "execution", "price": "1.5", "id": 1, "quantity": 10, "reference": 7})
            next(tape)
            book = tape.book("BOOK")
            assert isinstance(book, isocast.BookRow)
            assert ([level.size for level in book.bids], book.incomplete) == ([10], ()), "messages of others are no gap"
            with pytest.raises(KeyError):
                tape.book("NONE")


def test_the_tape_and_snapshots_say_how_things_stand_and_stood(world: World) -> None:
    sale = {"kind": "trade", "floor": "XLON", "symbol": "TAPE", "quantity": 10}
    with isocast.connect(world.path) as market, market.listen("TAPE", timeout_s=60) as listening:
        market.publish([{**sale, "price": "1.5", "id": 1}])
        first = next(listening)
        market.publish([{**sale, "price": "1.75", "id": 2}])
        second = next(listening)
        wait_until(lambda: world.holds("TAPE", 2))
        (now,) = market.snapshot(symbols="TAPE").rows()
        (then,) = market.snapshot(first.last_sequence, symbols="TAPE").rows()
        moment = datetime.fromtimestamp((int(second.releases[0]) - 1_000) / SECOND, UTC)
        (before,) = market.snapshot(moment, symbols="TAPE").rows()
        assert market.snapshot(symbols="TAPE").kind is isocast.BatchKind.SNAPSHOT
        assert (now["price"], then["price"], before["price"]) == (Decimal("1.75"), Decimal("1.5"), Decimal("1.5"))
        with pytest.raises(isocast.IsocastError, match="is in the future"):
            market.snapshot("2999-01-01")
        with market.tape("TAPE", timeout_s=60) as tape:
            assert (tape["TAPE"].last, tape["TAPE"].volume, tape["TAPE"].trades) == (Decimal("1.75"), 20, 2)
            market.publish([{**sale, "price": "2", "id": 3}])
            (changed,) = next(tape)
            assert isinstance(tape, isocast.LiveTape)
            assert isinstance(changed, isocast.TapeRow)
            assert (changed.last, changed.volume) == (Decimal(2), 30)
            assert [row.symbol for row in tape.rows()] == ["TAPE"]
            with pytest.raises(KeyError):
                tape["NONE"]


def test_several_stripes_are_one_market(tmp_path: Path) -> None:
    symbols = [f"S{number}" for number in range(12)]
    rows = [{"kind": "trade", "floor": "XLON", "symbol": name, "price": 1, "quantity": 5, "id": 1} for name in symbols]
    path = market_file(tmp_path, NODES, settings={"ring": {"stripes": [0, 1]}})
    with running(path) as world, isocast.connect(path) as market:
        with market.listen(timeout_s=60) as listening:
            assert market.publish(rows).messages == 2
            heard = [next(listening), next(listening)]
        kept = [f"{name}{stripe}" for name in ("a", "b", "c", "archive") for stripe in ("", ".s1")]
        wait_until(lambda: all(world.count(name) for name in kept))
        assert {batch.stripe for batch in heard} == {0, 1}
        now = market.snapshot().rows()
        assert sorted(row["symbol"] for row in now) == sorted(symbols)
        assert sorted(row["symbol"] for row in market.snapshot(datetime.now(UTC)).rows()) == sorted(symbols)
        with pytest.raises(isocast.IsocastError, match="no common sequence: give a time"):
            market.snapshot(1)
        with market.tape() as tape:
            assert [(row.symbol, row.volume) for row in tape.rows()] == [(name, 5) for name in sorted(symbols)]


def test_a_file_is_replayed_once(world: World, tmp_path: Path) -> None:
    events = trades(60, first_id=1, symbols=(b"FILE",))
    (tmp_path / "day.events").write_bytes(events.tobytes())
    with isocast.connect(world.path) as market:
        report = market.replay(tmp_path / "day.events")
        assert isinstance(report, isocast.ReplayReport)
        assert repr(report) == "<ReplayReport of 60 events in 3 messages at floor>"
        again = market.replay(tmp_path / "day.events")
        assert (again.events, again.known_messages) == (60, again.messages)


def test_the_asynchronous_face_is_the_same(world: World) -> None:
    async def work() -> None:
        async with isocast.connect_async(world.path) as market:
            assert isinstance(market, isocast.AsyncConnection)
            async with market.listen("LOOP", timeout_s=60) as listening:
                assert isinstance(listening, isocast.AsyncListening)
                await market.publish({"kind": "trade", "floor": "XLON", "price": 3, "quantity": 1}, symbol="LOOP")
                (row,) = (await anext(listening)).rows()
            assert row["price"] == 3
            await eventually(lambda: world.holds("LOOP"))
            for _ in range(2):  # Whoever leaves a loop has closed it: there are two places.
                async for batch in market.listen("LOOP", start="beginning", customer="desk"):
                    assert len(batch) == 1
                    break
            assert len((await market.snapshot(symbols="LOOP")).rows()) == 1
            async with market.tape("LOOP") as tape:
                assert isinstance(tape, isocast.AsyncTape)
                assert tape["LOOP"].last == 3
            assert not market.is_closed
        assert market.is_closed

    asyncio.run(work())


def test_whoever_calls_hears_what_to_do(world: World, tmp_path: Path) -> None:
    down = market_file(tmp_path, {**NODES, "other": {"role": "primary-source"}})
    with isocast.connect(down, patience_s=0.3) as market:
        assert repr(market).endswith("sources floor, other; customers desk, desk-2>")
        with pytest.raises(isocast.IsocastError, match=r"which source publishes\? Give source=.*has floor, other"):
            market.publish(ROWS)
        with pytest.raises(isocast.IsocastError, match="is the market up"):
            market.publish(ROWS, source="floor")
        with pytest.raises(isocast.IsocastError, match="is the market up"):
            market.listen()
        with pytest.raises(isocast.ConfigurationError, match='did you mean "floor"'):
            market.publish(ROWS, source="flor")
    with pytest.raises(isocast.ConfigurationError, match='did you mean "floor"'):
        isocast.connect(down, source="flor")
    with pytest.raises(isocast.ConfigurationError, match='did you mean "desk"'):
        isocast.connect(down, customer="dsek")
    stranger = replace(world.market, keys_directory=tmp_path / "other keys")
    init_keys(stranger)
    with (
        isocast.connect(stranger, patience_s=30) as market,
        pytest.raises(isocast.PublishRefusedError, match="floor: "),
    ):
        market.publish(ROWS)
    with (
        isocast.connect(stranger, patience_s=5) as market,  # All of it is waited for.
        pytest.raises(isocast.IsocastError, match=r"that edge\.key did not make"),
    ):
        market.listen()
    with isocast.connect(world.path) as market:
        assert isinstance(market, isocast.Connection)
        assert repr(market.publish(ROWS[:1])) == "<Published 1 event in 1 message at floor>"
        assert market.publish([]).events == 0
        wrong: list[tuple[Any, str]] = [
            ("VOD,BP", "as a list"),
            (5, "symbols: 5 is no text"),
            ([None], "None is no text"),
        ]
        for given, rule in wrong:
            with pytest.raises(isocast.IsocastError, match=rule):
                market.listen(given)
        with pytest.raises(isocast.IsocastError, match="topics: 5 is no text"):
            market.listen(topics=wrong[1][0])
        assert len(market.publish(ROWS, key="monday").labels) == len(market.publish(ROWS, key="monday").labels) == 1
