"""From the till to the line: what a box office sold opens the lines of a running market, and nothing else does."""

import asyncio
from pathlib import Path

import pytest
from tests.runtime.worlds import SMALL, World, eventually, market_file, run, trades

from isocast.runtime.box_office.client import write_package
from isocast.runtime.box_office.database import OfficeDatabase
from isocast.runtime.box_office.office import BoxOffice, OfficePlan
from isocast.runtime.box_office.payments import TEST_ACCEPTED
from isocast.runtime.box_office.running import database_url, load_office_keys, open_office
from isocast.runtime.client.listener import Listener
from isocast.runtime.market.subscription import Subscription
from isocast.security.packages import write_secret
from isocast.terms.errors import PackageError

NODES = {name: node for name, node in SMALL.items() if name != "bank"}


def opened_office(world: World) -> BoxOffice:
    market = world.market
    database = OfficeDatabase(database_url(market, None))
    length = market.subscriptions.period_ns
    assert BoxOffice.create(database, load_office_keys(market, make=True), length, length // 4)
    database.close()
    office = open_office(market, database_url(market, None))
    office.set_plan(OfficePlan("lines", "Lines and repairs", ("base", "repair"), 1_250, "EUR"))
    return office


def test_whoever_buys_hears_the_market_and_a_copy_without_the_secret_is_deaf(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(
            market_file(tmp_path, NODES, settings={"subscriptions": {"enabled": True, "period": "24h"}})
        ) as world:
            office = opened_office(world)
            secret = office.enrol("desk").secret
            office.buy("desk", "lines", key="k1", instrument=TEST_ACCEPTED, periods=2)
            package = tmp_path / "desk.package"
            write_package(package, office.package("desk"))
            office.close()
            with pytest.raises(PackageError, match="the secret does not open the package of desk"):
                Subscription(world.market, package, lambda: write_secret(bytes(16)))
            await world.start()
            heard: list[int] = []

            async def collect() -> None:
                async for batch in listener:
                    heard.extend(int(number) for number in batch.events["id"])

            async with Listener(
                world.market, subscription=Subscription(world.market, package, lambda: secret)
            ) as listener:
                task = asyncio.create_task(collect())
                await eventually(lambda: listener.silence() is None and listener.snapshot().joined)
                await world.publish("floor", trades(10))
                await eventually(lambda: len(heard) >= 10)
            await task
            assert heard == list(range(1, 11))
            assert listener.counters.unpaid == 0

    run(work())
