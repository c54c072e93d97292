"""A market from Python: what is published is heard, in every form, and a `with` block leaves nothing behind."""

import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal

import pytest
from tests.runtime.worlds import SMALL, World, market_file, running

import isocast
from isocast.terms.instants import SECOND

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
import os, sys, threading, warnings
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
assert not os.path.exists(f"/proc/self/task/{os.getpid()}/children") or not open(
    f"/proc/self/task/{os.getpid()}/children"
).read()
assert next(left_open, None) is None
"""


def test_what_is_published_is_heard(world: World) -> None:
    with isocast.connect(world.path) as market:
        assert market.sources == ("floor",)
        with market.listen(timeout_s=20) as listening:
            done = market.publish(ROWS)
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
    assert (done.returncode, done.stderr) == (0, "")
