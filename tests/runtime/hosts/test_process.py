"""One node as a process: from its market file to a clean end, or to a failure with a reason."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.disk.journals import journal, segments
from tests.runtime.hosts.contexts import Surroundings, new_market, run
from tests.runtime.worlds import eventually
from tests.wire.journal_samples import blocks

from isocast.runtime.hosts import process as module
from isocast.runtime.hosts.process import NodeProcess, run_node
from isocast.runtime.hosts.reformation import ReformationHost
from isocast.runtime.market.founding import insist_on_past
from isocast.runtime.market.model import JournalSettings, Market, NodeRole
from isocast.runtime.net.clock import Granted
from isocast.runtime.watch.counters import NodeGauges
from isocast.runtime.watch.metrics import METRICS, NodeIdentity, NodeReading
from isocast.terms.errors import ConfigurationError, JournalFull, NodeFailedError, StoreFull, StoreGone, TransportError

NODES: dict[str, dict[str, object]] = {
    "a": {"role": "primary-receiver"},
    "b": {"role": "primary-receiver"},
    "x": {"role": "reformation-server", "http_port": 7_780},
    "floor": {"role": "primary-source"},
}


@pytest.fixture
def market(tmp_path: Path) -> Market:
    return new_market(tmp_path, NODES)


@pytest.fixture
def ear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[str]]]:
    """All that a supervisor has heard so far."""
    path = str(tmp_path / "ear")
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as listening:
        listening.bind(path)

        said: list[str] = []

        def heard() -> list[str]:
            while True:
                try:
                    said.append(listening.recv(4_096).decode())
                except BlockingIOError:
                    return said

        yield heard


@pytest.fixture(autouse=True)
def leave_the_tests_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No priority, no frozen collector in the process that runs the tests."""
    monkeypatch.setattr(module, "become_punctual", lambda **_: Granted(False, False, False, "not asked for"))  # noqa: FBT003


def process_of(market: Market, name: str) -> NodeProcess:
    return NodeProcess(market, market.node(name))


# ---- starting


def test_what_cannot_start_leaves_nothing_open(market: Market) -> None:
    """Its status page's port is taken: store, sockets and door are closed again."""
    plan = market.node("x")

    async def work() -> None:
        with socket.socket() as taken:
            taken.bind((plan.address, plan.http_port))
            taken.listen()
            with pytest.raises(TransportError, match=f"cannot serve status pages on {plan.address}:{plan.http_port}"):
                await process_of(market, "x").start()
        second = process_of(market, "x")
        await second.start()
        await second.stop()
        assert second.failure is None

    run(work)


def test_missing_keys_come_up_before_anything_is_opened(market: Market) -> None:
    (market.keys_directory / "core.key").unlink()

    async def work() -> None:
        with pytest.raises(ConfigurationError, match=r"core\.key: file: is missing: isocast keys init makes it"):
            await process_of(market, "x").start()

    run(work)
    assert not (market.directory_of("x") / "ballots").exists()


def test_several_nodes_live_in_one_loop_and_stop_in_any_order(market: Market) -> None:
    async def work() -> None:
        nodes = [process_of(market, name) for name in market.by_name]
        for node in nodes:
            await node.start()
        await eventually(lambda: not any(node.monitor.not_ready() for node in nodes))
        for node in nodes:
            await node.stop()
            assert node.failure is None

    run(work)


# ---- telling


def test_the_supervisor_hears_each_change_once(
    market: Market, ear: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TICK_S", 0.001)
    monkeypatch.setattr(module, "_EAGER_TICK_S", 0.001)
    ticks = 0

    def counted() -> None:
        nonlocal ticks
        ticks += 1

    async def work() -> None:
        node = process_of(market, "x")
        node.each_second = counted
        reasons: tuple[str, ...] = ("no token has arrived yet",)
        monkeypatch.setattr(node.monitor, "not_ready", lambda *_: reasons)
        await node.start()
        for following in ((), ("no token for 9 s", "another reason"), ()):
            seen = ticks
            await eventually(lambda seen=seen: ticks > seen + 2)  # type: ignore[misc]
            reasons = following
        seen = ticks
        await eventually(lambda: ticks > seen + 2)
        await node.stop()

    run(work)
    assert ear() == [
        "STATUS=no token has arrived yet",
        "STATUS=ready",
        "READY=1",
        "STATUS=no token for 9 s",
        "STATUS=ready",
    ]


def test_a_watchdog_hears_of_every_turn(
    market: Market, ear: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    monkeypatch.setattr(module, "_TICK_S", 0.001)

    async def work() -> None:
        node = process_of(market, "x")
        await node.start()
        await eventually(lambda: ear().count("WATCHDOG=1") > 3)
        await node.stop()

    run(work)


def test_a_node_runs_until_sigterm_and_says_so(market: Market, ear: Callable[[], list[str]]) -> None:
    async def work() -> None:
        running = asyncio.create_task(run_node(market, market.node("x")))
        await eventually(lambda: "READY=1" in ear())
        os.kill(os.getpid(), signal.SIGTERM)
        await running

    run(work)
    said = [line for line in ear() if not line.startswith("STATUS=") or line == "STATUS=ready"]
    assert said == ["STATUS=ready", "READY=1", "STOPPING=1"]


def test_sigterm_before_the_start_is_over_is_not_lost(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    start = NodeProcess.start

    async def slow(node: NodeProcess) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.01)
        await start(node)

    monkeypatch.setattr(NodeProcess, "start", slow)
    run(lambda: run_node(market, market.node("x")))


# ---- failing


def failing(market: Market, monkeypatch: pytest.MonkeyPatch, trouble: Exception) -> NodeFailedError:
    """What `run_node` raises when the role's regular look at itself does."""

    def tick(_: ReformationHost, __: int) -> None:
        raise trouble

    monkeypatch.setattr(ReformationHost, "tick", tick)
    with pytest.raises(NodeFailedError) as caught:
        run(lambda: run_node(market, market.node("x")))
    assert caught.value.__cause__ is trouble
    return caught.value


@pytest.mark.parametrize(
    "trouble, text",
    [
        (StoreFull("log/1", "no space left"), "x: log/1: no space left"),
        (KeyError("a mistake of ours"), "x: KeyError: 'a mistake of ours'"),
    ],
)
def test_a_node_whose_regular_work_fails_ends_with_the_reason(
    market: Market, monkeypatch: pytest.MonkeyPatch, trouble: Exception, text: str
) -> None:
    assert str(failing(market, monkeypatch, trouble)) == text


@pytest.mark.parametrize("kind, counter", [(JournalFull, "journal_alarms"), (StoreFull, "store_alarms")])
def test_a_full_disk_is_an_alarm(
    market: Market, monkeypatch: pytest.MonkeyPatch, kind: type[Any], counter: str
) -> None:
    async def work() -> None:
        node = process_of(market, "x")
        await node.start()
        host = node.host
        assert host is not None

        def step(*_: object) -> tuple[object, ...]:
            raise kind("segment-1", "no space left")

        monkeypatch.setattr(host.driver.machine, "step", step)
        host.driver.feed("anything")
        await asyncio.wait_for(node.stopping.wait(), 60)
        assert isinstance(node.failure, kind)
        assert getattr(node.counters, counter) == 1
        assert [(alarm.code, alarm.text) for alarm in node.monitor.alarms.list()] == [
            ("disk-full", "segment-1: no space left")
        ]
        await node.stop()

    run(work)


def test_what_fails_at_the_end_never_hides_the_first_failure(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = ReformationHost.stop

    async def fails_too(host: ReformationHost) -> None:
        await stop(host)
        raise StoreFull("identity.json", "cannot be written")

    monkeypatch.setattr(ReformationHost, "stop", fails_too)
    assert "no space left" in str(failing(market, monkeypatch, StoreFull("log/1", "no space left")))
    monkeypatch.undo()


def test_an_end_that_fails_is_a_failure(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = ReformationHost.stop

    async def fails(host: ReformationHost) -> None:
        await stop(host)
        raise StoreFull("identity.json", "cannot be written")

    monkeypatch.setattr(ReformationHost, "stop", fails)

    async def work() -> None:
        node = process_of(market, "x")
        await node.start()
        await node.stop()
        assert isinstance(node.failure, StoreFull)

    run(work)


def test_an_alarm_is_logged_once_and_counted_always(market: Market, capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> None:
        node = process_of(market, "x")
        for _ in range(3):
            node.alarm("clock", "the clock moved", "set it back")
        assert [(alarm.code, alarm.count) for alarm in node.monitor.alarms.list()] == [("clock", 3)]

    run(work)
    assert capsys.readouterr().out.count("the clock moved") == 1


# ---- a disk that is taken away


@pytest.mark.parametrize("name", ["x", "a"])
def test_a_node_whose_data_is_removed_stops_and_says_what_to_do(market: Market, name: str) -> None:
    async def work() -> None:
        process = process_of(market, name)
        await process.start()
        try:
            shutil.rmtree(market.directory_of(name))
            await asyncio.wait_for(process.stopping.wait(), 60)
        finally:
            await process.stop()
        assert isinstance(process.failure, StoreGone)
        assert "was removed, or moved away" in str(process.failure)
        assert "disk-gone" in [alarm.code for alarm in process.monitor.alarms.list()]

    run(work)
    with pytest.raises(ConfigurationError, match="If its data was lost, so were its promises"):
        insist_on_past(market, market.node(name))


def test_a_failure_of_retention_is_a_metric(tmp_path: Path) -> None:
    here = Surroundings(new_market(tmp_path), "a")
    released = blocks(3)

    async def maintain() -> None:
        with journal(tmp_path / "journal", JournalSettings(segment_bytes=1, keep_seconds=1 << 20)) as kept:
            for block in released:
                kept.append(block)
            segments(tmp_path / "journal")[1].write_bytes(b"damaged")
            assert not here.context().maintain_journal(kept, 1 << 62)

    run(maintain)
    (row,) = [row for row in METRICS if row.name == "journal_prune_failures_total"]
    identity = NodeIdentity("a", NodeRole.PRIMARY_RECEIVER, 1)
    assert row.read(NodeReading(identity, here.counters, NodeGauges())) == 1
    assert here.counters.journal_bytes > 0
