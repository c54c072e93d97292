"""Customers as processes: everything, once and in order, whatever the lines lose and whoever stops in between."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from tests.runtime.forged_line import send_on_line
from tests.runtime.worlds import LAYERED, SMALL, World, eventually, market_file, run, trades

from isocast.cli.top_view import frame
from isocast.runtime.disk.journal_reader import read_blocks
from isocast.runtime.disk.journal_verify import verify
from isocast.runtime.hosts.customer import CustomerHost
from isocast.runtime.hosts.process import NodeProcess
from isocast.runtime.market.file import load_market
from isocast.runtime.watch.status import StatusAnswer, Target
from isocast.terms.errors import ConfigurationError
from isocast.terms.ids import Epoch, server_id
from isocast.wire.events import events_view

SYMBOLS = (b"ISO", b"CAST", b"RING")


def latest_of(world: World, name: str) -> dict[bytes, int]:
    """What a customer of the grade latest has in its table: ids by symbol."""
    host = world.nodes[name].host
    assert isinstance(host, CustomerHost)
    newest = host.machine._newest  # noqa: SLF001 - nobody else is told
    assert newest is not None
    return {bytes(event["symbol"]): int(event["id"]) for event in newest.table.snapshot().events}


@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_all_customers_hear_the_same_as_the_receivers_released(tmp_path: Path, loss: float) -> None:
    """L5: a customer of guaranteed service gets every sequence; whoever wants the newest has the newest of each."""

    async def work() -> None:
        async with World(market_file(tmp_path, LAYERED, loss=loss)) as world:
            await world.start()
            for first in (1, 101, 201, 301):
                await world.publish("floor", trades(50, first, SYMBOLS))
                await world.publish("broker", trades(50, first + 50, SYMBOLS))
            await eventually(lambda: len(world.ids("a")) == 400)
            released = world.released("a")
            assert sorted(world.ids("a")) == list(range(1, 401))
            await eventually(lambda: all(world.released(name) == released for name in ("bank", "fund", "archive")))
            assert "lost" not in world.alarms("bank") + world.alarms("fund")
            counters = world.nodes["bank"].counters
            assert (counters.messages_received, counters.events_received) == (len(released), 400)
            events = [event for _, payload in released for event in events_view(payload)]
            newest = {bytes(event["symbol"]): int(event["id"]) for event in events}
            if not loss:
                await eventually(lambda: latest_of(world, "ticker") == newest)
            await eventually(lambda: latest_of(world, "ticker").keys() == newest.keys())

    run(work())


def test_a_customers_journal_is_sound_and_names_no_source(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path)) as world:
            await world.start()
            await world.publish("floor", trades(300))
            await world.until_journals_have(range(1, 301), "bank", "a")
            site, own = (verify(world.market.directory_of(name) / "journal") for name in ("a", "bank"))
            assert own.is_sound, own.faults
            assert own.events_digest == site.events_digest
            assert own.labels_digest != site.labels_digest

    run(work())


def test_a_customer_that_starts_again_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """It missed more than it may ask for by datagram, so it fetches at the archive's door."""

    async def work() -> None:
        async with World(market_file(tmp_path, loss=0.01)) as world:
            await world.start()
            await world.publish("floor", trades(100))
            await world.until_journals_have(range(1, 101), "bank")
            await world.stop("bank")
            await world.publish("floor", trades(30_000, 101))
            await world.until_journals_have(range(1, 30_101), "archive")
            await world.start("bank")
            await world.publish("floor", trades(100, 30_101))
            await world.until_journals_have(range(1, 30_201), "bank")
            assert world.released("bank") == world.released("archive")
            assert world.nodes["archive"].counters.ranges_served > 0

    run(work())


def test_a_customer_that_comes_late_gets_everything_that_is_kept(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path)) as world:
            await world.start("a", "b", "c", "x", "floor", "archive")
            await world.publish("floor", trades(500))
            await world.until_journals_have(range(1, 501), "archive")
            await world.start("bank")
            await world.until_journals_have(range(1, 501), "bank")

    run(work())


def test_without_a_retransmit_server_a_customer_asks_the_receivers_it_hears(tmp_path: Path) -> None:
    nodes = {name: node for name, node in SMALL.items() if name != "archive"}
    nodes["bank"] = {"role": "customer", "lines": ["b", "c"]}

    async def work() -> None:
        async with World(market_file(tmp_path, nodes, loss=0.1)) as world:
            await world.start("a", "b", "c", "x", "floor")
            await world.publish("floor", trades(400))
            await world.until_journals_have(range(1, 401), "a")
            await world.start("bank")
            await world.publish("floor", trades(400, 401))
            await world.until_journals_have(range(1, 801), "bank")

    run(work())


def test_a_customer_whom_nobody_can_answer_is_refused_by_its_file(tmp_path: Path) -> None:
    nodes = {name: node for name, node in SMALL.items() if name != "archive"}
    nodes["bank"] = {"role": "customer", "lines": ["b", "c"]}
    for name in "bc":
        nodes[name] = {**nodes[name], "tcp_port": 0}
    market = load_market(market_file(tmp_path, nodes))

    async def work() -> None:
        with pytest.raises(ConfigurationError, match=r"nodes\.bank\.retransmit: no server that it may ask has a door"):
            await NodeProcess(market, market.node("bank")).start()

    run(work())


def test_a_line_that_falls_silent_is_named_and_nobody_misses_anything(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path)) as world:
            await world.start()
            await world.publish("floor", trades(50))
            await world.until_journals_have(range(1, 51), "bank")
            await world.stop("c")
            await world.publish("floor", trades(50, 51))
            await world.until_journals_have(range(1, 101), "bank")
            await eventually(lambda: "silent-c" in world.alarms("bank"))

    run(work())


def test_two_contents_of_one_message_are_an_alarm_wherever_one_looks_and_the_first_stands(tmp_path: Path) -> None:
    """The line of `c`, which holds the right key, says something else than `b` did, where nobody signs."""

    async def work() -> None:
        async with World(market_file(tmp_path, settings={"security": {"signatures": False}})) as world:
            await world.start()
            await world.publish("floor", trades(50))
            await world.until_journals_have(range(1, 51), "bank", "a")
            (sequence, true), *_ = world.released("bank")
            bank = world.nodes["bank"]
            counters, later = bank.counters, Epoch(9, server_id(1))
            before = copies_of(bank)
            (block, *_) = read_blocks(world.market.directory_of("bank") / "journal")
            send_on_line(world.market, "c", sequence, true, later, block.header.shuffle_key)
            await eventually(lambda: copies_of(bank) > before)
            assert counters.conflicts == 0, "the same again, under a later epoch"
            send_on_line(world.market, "c", sequence, trades(1, 666).tobytes(), later)
            await eventually(lambda: counters.conflicts == 1)
            assert world.released("bank")[0] == (sequence, true)
            status = bank.monitor.status()
            [alarm] = [alarm for alarm in status.alarms if alarm.code.startswith("conflict-")]
            assert f"carry different messages as sequence {sequence}" in alarm.text
            assert status.totals["line_conflicts_total"] == 1
            assert (
                b'isocast_line_conflicts_total{node="bank",role="customer",stripe="0"} 1' in bank.monitor.metrics.page()
            )
            console = Console(width=200, record=True, file=StringIO())
            console.print(frame("", [StatusAnswer(Target("127.0.0.1", 1, "bank"), status)], width=200))
            shown = console.export_text()
            assert alarm.text in shown
            assert "conflicts" in shown

    run(work())


def copies_of(node: NodeProcess) -> int:
    """Later copies that a customer got, as of now."""
    assert isinstance(node.host, CustomerHost)
    return sum(line.duplicates for line in node.host.machine.snapshot().lines)


def test_a_ring_that_stands_still_is_told_as_such_and_its_return_too(tmp_path: Path) -> None:
    """Two of three receivers stop: no majority, no token. The third one's line goes on saying so."""

    async def work() -> None:
        async with World(market_file(tmp_path)) as world:
            await world.start()
            await world.publish("floor", trades(10))
            await world.until_journals_have(range(1, 11), "bank")
            bank = world.nodes["bank"]
            await eventually(lambda: bank.monitor.status().gauges.waiting is None)
            await world.stop("a")
            await world.stop("c")
            await eventually(lambda: "ring is reforming since" in (bank.monitor.status().gauges.waiting or ""))
            await eventually(lambda: bank.monitor.status().gauges.line_followed == "b")
            assert b'isocast_ring_waiting{node="bank",role="customer",stripe="0"} 1' in bank.monitor.metrics.page()
            await world.start("a", "c")
            await eventually(lambda: bank.monitor.status().gauges.waiting is None)
            await world.publish("floor", trades(10, 11))
            await world.until_journals_have(range(1, 21), "bank")

    run(work())


def test_a_network_without_multicast_serves_customers_alike(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, loss=0.05, settings={"network": {"mode": "fanout"}})) as world:
            await world.start()
            await world.publish("floor", trades(500))
            await world.until_journals_have(range(1, 501), "bank", "archive")

    run(work())
