"""A receiver whose journal is not whole goes on where another's edge is; only receivers are given that state."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from time import time_ns

import pytest
from tests.runtime.doorways import enter
from tests.runtime.edge.narrow.edge_worlds import PLAN, block, trades_of, write_journal
from tests.runtime.hosts.contexts import Surroundings, new_market, run
from tests.runtime.worlds import eventually

from isocast.runtime.edge.narrow.service import EdgeService, newest_state
from isocast.runtime.hosts.retransmit import ArchiveDoor
from isocast.runtime.market.model import Market
from isocast.runtime.net.door import DoorError
from isocast.runtime.net.door_keys import edge_visitor
from isocast.striping.plan import plan_text
from isocast.terms.instants import SECOND
from isocast.wire.door import Snapshot, SnapshotWanted


@pytest.fixture
def market(tmp_path: Path) -> Market:
    (tmp_path / "stripes.toml").write_text(plan_text(PLAN), encoding="utf-8")
    return new_market(tmp_path, settings={"edge": {"plan": "stripes.toml", "span": 16}})


def service(market: Market, name: str, alarms: list[tuple[str, str, str]]) -> EdgeService:
    return EdgeService(market, market.node(name), time_ns, lambda *said: alarms.append(said))


def test_one_with_a_gap_takes_over_and_makes_the_same_from_there_on(market: Market) -> None:
    start = time_ns() - 100 * SECOND
    whole = [block(n, n, trades_of("ABCX", 10 * n, start), start + n * SECOND) for n in range(1, 31)]
    write_journal(market.directory_of("a"), whole)
    fetched = [block(n, n, trades_of("ABCX", 10 * n, start), start + n * SECOND, fetched=n < 15) for n in range(1, 31)]
    write_journal(market.directory_of("b"), fetched)

    async def work() -> None:
        alarms: list[tuple[str, str, str]] = []
        first = service(market, "a", alarms)
        while first.advance():
            pass
        first.close()
        context = Surroundings(market, "a").context()
        door = ArchiveDoor(context, market.directory_of("a") / "journal", lambda: None)
        await door.open()
        second = service(market, "b", alarms)
        running = asyncio.create_task(second.run())
        try:
            await eventually(lambda: second.engine.next_sequence == 31)
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            second.close()
            await door.close()
        assert [code for code, _, _ in alarms] == ["edge-taken-over"]
        assert second.engine.snapshot() == first.engine.snapshot()

    run(work)


def test_customers_are_not_given_it(market: Market) -> None:
    async def work() -> None:
        context = Surroundings(market, "a").context()
        (context.directory / "edge").mkdir(parents=True)
        (context.directory / "edge" / "state").write_bytes(b"secret")
        door = ArchiveDoor(context, market.directory_of("a") / "journal", lambda: None)
        await door.open()
        try:
            name = edge_visitor(market.node("bank"))
            guest = await enter(market, "a", name, context.edge_door_key(name), by="bank")
            await guest.send(SnapshotWanted())
            with pytest.raises(DoorError, match="ask a retransmit server"):
                await guest.expect(Snapshot)
            await guest.close()
            assert await newest_state(market, market.node("b"), 0) is None, "what is given is no state"
        finally:
            await door.close()

    run(work)
