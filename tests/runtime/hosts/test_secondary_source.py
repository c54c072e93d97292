"""Secondary sources: what they accepted is in the sequence once, whoever is down in between."""

import asyncio
from pathlib import Path

import pytest
from tests.runtime.worlds import SMALL, World, eventually, market_file, run, trades

from isocast.runtime.client.publisher import Publisher
from isocast.runtime.hosts.process import NodeProcess
from isocast.runtime.hosts.publish_door import PublishError
from isocast.runtime.hosts.secondary_source import SecondarySourceHost
from isocast.runtime.market.file import load_market
from isocast.terms.errors import ConfigurationError
from isocast.wire.limits import EVENT_BYTES

NODES = {**SMALL, "broker": {"role": "secondary-source", "parent": "floor"}}
RING = ("a", "b", "c", "x")


def host_of(world: World) -> SecondarySourceHost:
    host = world.nodes["broker"].host
    assert isinstance(host, SecondarySourceHost)
    return host


async def until_parent_took_some(host: SecondarySourceHost) -> None:
    base = host.machine.snapshot().base
    await eventually(lambda: host.machine.snapshot().base > base)


def test_batches_are_accepted_while_the_parent_is_down_and_come_into_the_sequence_later(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, NODES)) as world:
            await world.start("broker", ready=False)
            assert world.nodes["broker"].monitor.not_ready()
            await world.publish("broker", trades(100))
            assert host_of(world).machine.snapshot().held == 4
            await eventually(lambda: "parent-floor" in world.alarms("broker"))
            await world.stop("broker")
            await world.start(*RING, "floor", "broker")
            await world.publish("broker", trades(100, 101))
            await world.until_journals_have(range(1, 201), "a", "b", "c")
            assert host_of(world).machine.snapshot().held == 0
            assert not world.nodes["broker"].monitor.not_ready()

    run(work())


def test_a_parent_that_is_killed_and_comes_back_takes_everything_once(tmp_path: Path) -> None:
    """kill -9, while batches are under way, twice; the journals say what came of it."""

    async def work() -> None:
        async with World(market_file(tmp_path, NODES)) as world:
            await world.start(*RING)
            await world.start_apart("floor")
            await world.start("broker")
            for first in (1, 20_001):
                publishing = asyncio.create_task(world.publish("broker", trades(20_000, first)))
                await until_parent_took_some(host_of(world))
                await world.kill("floor")
                await publishing
                await world.start_apart("floor")
            await eventually(lambda: host_of(world).machine.snapshot().held == 0)
            await world.until_journals_have(range(1, 40_001), "a", "b", "c")

    run(work())


def test_the_same_key_twice_is_one_batch_even_over_a_restart(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, NODES)) as world:
            await world.start(*RING, "floor", "broker")
            await world.publish("broker", trades(100), b"monday")
            await world.publish("broker", trades(100), b"monday")
            await world.publish("floor", trades(100, 1_001), b"monday")
            await world.stop("broker")
            await world.start("broker")
            await world.publish("broker", trades(100), b"monday")
            await world.publish("broker", trades(1, 9_999))
            await world.until_journals_end_with(9_999, "a")
            assert sorted(world.ids("a")) == [*range(1, 101), *range(1_001, 1_101), 9_999]

    run(work())


def test_two_secondary_sources_whose_clients_count_alike_do_not_meet(tmp_path: Path) -> None:
    nodes = {**NODES, "dealer": {"role": "secondary-source", "parent": "floor"}}

    async def work() -> None:
        async with World(market_file(tmp_path, nodes)) as world:
            await world.start(*RING, "floor", "broker", "dealer")
            await world.publish("broker", trades(1, 1), b"1")
            await world.publish("dealer", trades(1, 2), b"1")
            await eventually(lambda: sorted(world.ids("a")) == [1, 2])

    run(work())


def test_a_batch_that_fits_no_message_is_refused_and_the_door_stays_open(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, NODES)) as world:
            await world.start("broker", ready=False)
            limit = world.market.events_per_payload * EVENT_BYTES
            with pytest.raises(PublishError, match=f"at most {limit}"):
                await host_of(world).publish([(b"key", bytes(limit + 1))])
            async with Publisher(world.market, "broker") as source:
                assert len(await source.publish(trades(28))) == 2
            assert world.nodes["broker"].counters.events_published == 28

    run(work())


def test_a_parent_without_a_door_is_a_fault_of_the_file(tmp_path: Path) -> None:
    market = load_market(market_file(tmp_path, {**NODES, "floor": {"role": "primary-source", "tcp_port": 0}}))

    async def work() -> None:
        with pytest.raises(ConfigurationError, match=r"nodes\.floor\.tcp_port: must not be 0: broker"):
            await NodeProcess(market, market.node("broker")).start()

    run(work())
