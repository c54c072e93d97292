"""A reformation server's host: a ballot is on disk before anybody hears of it."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest
from tests.ring.makers import founding
from tests.runtime.hosts.contexts import Surroundings, new_market, run
from tests.runtime.worlds import SMALL, World, eventually, market_file

from isocast.ring.effects import BallotChosen, RingDecided
from isocast.runtime.hosts.reformation import ReformationHost
from isocast.runtime.market.founding import is_new
from isocast.runtime.market.model import Market
from isocast.terms.errors import StoreError, TransportError
from isocast.terms.ids import Epoch
from isocast.terms.instants import NEVER, SECOND
from isocast.wire.codec import PacketKind

RING = {name: SMALL[name] for name in ("a", "b", "c", "x", "floor")} | {"y": {"role": "reformation-server"}}


@pytest.fixture
def market(tmp_path: Path) -> Market:
    return new_market(tmp_path)


def test_ballots_and_rings_survive_a_restart(market: Market) -> None:
    server = market.node("x").node
    around = Surroundings(market, "x")

    async def first_life() -> None:
        host = ReformationHost(around.context())
        await host.start()
        host.persist([BallotChosen(Epoch(3, server)), RingDecided(founding(epoch=Epoch(3, server)))])
        host.persist([BallotChosen(Epoch(5, server))])
        await host.stop()

    async def second_life() -> None:
        host = ReformationHost(around.context())
        assert host.store.state.ballot == Epoch(5, server)
        assert host.store.state.ring == founding(epoch=Epoch(3, server))
        assert host.next_deadline() == NEVER
        await host.stop()

    run(first_life)
    assert around.counters.reformations == 1
    assert not is_new(market.directory_of("x"))
    run(second_life)
    assert around.alarms == []


def test_a_server_whose_clock_the_votes_contradict_says_so(market: Market) -> None:
    around = Surroundings(market, "x")

    async def life() -> None:
        host = ReformationHost(around.context())
        await host.start()
        assert host.gauges().clock_trusted is True
        host.machine.clock_ahead_ns = -3 * SECOND
        host.tick(0)
        assert host.gauges().clock_trusted is False
        host.machine.clock_ahead_ns = 0
        host.tick(0)
        assert host.gauges().clock_trusted is True
        await host.stop()

    run(life)
    [(code, text, _)] = around.alarms
    assert (code, text) == ("clock", "this server's clock is 3.000 s behind most receivers' clocks")


def test_a_server_that_lost_its_disk_says_so_and_stays_silent(tmp_path: Path) -> None:
    """It may have used any ballot before; the other one serves."""

    async def work() -> None:
        async with World(market_file(tmp_path, RING)) as world:
            await world.start("x", ready=False)
            await world.stop("x")
            shutil.rmtree(world.market.directory_of("x") / "ballots")
            await world.start("x", ready=False)
            silent = world.nodes["x"]
            assert world.alarms("x") == ["forgot"]
            await world.start("a", "b", "c", ready=False)
            await eventually(lambda: world.nodes["a"].counters.sent_of(PacketKind.SUSPECT) > 2)
            assert sum(silent.counters.packets_sent) == 0
            await world.start("y", ready=False)
            await eventually(lambda: all(not world.nodes[name].monitor.not_ready() for name in "abc"))
            assert sum(silent.counters.packets_sent) == 0
            assert silent.failure is None

    run(work)


def test_what_cannot_be_opened_whole_leaves_nothing_open(market: Market) -> None:
    plan = market.node("x")

    async def work() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            taken.bind((plan.address, plan.port))
            with pytest.raises(TransportError, match="another process listens there"):
                ReformationHost(Surroundings(market, "x").context())
        host = ReformationHost(Surroundings(market, "x").context())
        with pytest.raises(StoreError, match="has this store open"):
            ReformationHost(Surroundings(market, "x").context())
        await host.stop()

    run(work)


def test_it_tells_its_ring_by_name(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, RING)) as world:
            await world.start()
            host = world.nodes["x"].host
            assert host is not None
            await eventually(lambda: {*(host.gauges().ring or ())} == {"a", "b", "c"})
            assert host.gauges().ring_configured == 3

    run(work)
