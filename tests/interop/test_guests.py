"""Listeners without seats in a running market: they come and go, catch up, and have a fair share by address and key."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest
from tests.runtime.doorways import enter
from tests.runtime.worlds import SMALL, World, eventually, market_file, run, trades

from isocast.runtime.client.listener import Listener
from isocast.runtime.market.key_files import load_keys
from isocast.runtime.market.model import GuestTable
from isocast.runtime.net.door import DoorRefusedError, Visit, visit
from isocast.runtime.net.door_keys import edge_door_key, guest_visitor
from isocast.wire.door import Block, End, RangeWanted, Refused
from isocast.wire.journal_blocks import view_block

EVENTS = 108
"""Four messages of 27 events."""


async def heard(world: World, events: int, start: str = "beginning") -> list[int]:
    """The ids of so many events, as a guest hears them."""
    found: list[int] = []
    async with Listener(world.market, start=start) as listener:
        async for batch in listener:
            found += [int(number) for number in batch.events["id"]]
            if len(found) >= events:
                break
    return found


@pytest.mark.parametrize("guests", [6, pytest.param(50, marks=pytest.mark.long)])
def test_listeners_come_and_go_and_nobody_is_told(tmp_path: Path, guests: int) -> None:
    path = market_file(tmp_path, SMALL)
    before = path.read_bytes()

    async def work() -> None:
        async with World(path) as world:
            await world.start()
            await world.publish("floor", trades(EVENTS))
            await world.until_journals_have(range(1, EVENTS + 1), "archive")
            processes = dict(world.nodes)
            for wave in range(2):
                last = EVENTS * (wave + 2)
                some = [asyncio.create_task(heard(world, last)) for _ in range(guests)]
                # Those who are there hear what comes while others catch up.
                await world.publish("floor", trades(EVENTS, last - EVENTS + 1))
                for ids in await asyncio.gather(*some):
                    assert ids == list(range(1, last + 1))
            door = world.nodes["archive"].host.door  # type: ignore[union-attr]
            await eventually(lambda: door.guests.present == 0)
            assert world.nodes == processes, "no node was started again"
            assert path.read_bytes() == before

    run(work())


async def visited(world: World, name: str, own: str) -> Visit:
    """The door of a node, as a guest that comes from this address."""
    keys = load_keys(world.market, world.market.node("bank"))
    key = edge_door_key(world.market, keys, guest_visitor(keys))
    return await enter(world.market, name, guest_visitor(keys), key, by="bank", own=own)


async def taken(guest: Visit, first: int, last: int) -> int | None:
    """Ask once: how many messages came; None if the door refused."""
    await guest.send(RangeWanted(first, last))
    number = 0
    while isinstance(message := await guest.receive(), Block):
        number += len(view_block(message.body).sequences)
    assert isinstance(message, End | Refused), message
    return number if isinstance(message, End) else None


@pytest.mark.parametrize("name", ["archive", "a"])
def test_a_greedy_guest_is_named_and_throttled_alone(tmp_path: Path, name: str) -> None:
    path = market_file(tmp_path, SMALL, settings={"guests": {"share": 40, "total": 4_000}})

    async def work() -> None:
        async with World(path) as world:
            await world.start()
            for first in range(1, 5_401, 540):  # 200 messages.
                await world.publish("floor", trades(540, first))
            await world.until_journals_end_with(5_400, "archive", "a")
            greedy = [await visited(world, name, "127.0.0.66") for _ in range(3)]
            over = asyncio.Event()
            amount = [0]

            async def ask(guest: Visit) -> None:
                while not over.is_set():
                    amount[0] += await taken(guest, 1, 200) or 0

            began = monotonic()
            asking = [asyncio.create_task(ask(guest)) for guest in greedy]
            await eventually(lambda: [code for code in world.alarms(name) if code.startswith("throttled-127.0.0.66-")])
            # Neither another address nor a seat has to wait for it.
            for _ in range(3):
                other = await visited(world, name, "127.0.0.77")
                assert (await taken(other, 1, 20) or 0) >= 20
                await other.close()
            assert await heard(world, 5_400) == list(range(1, 5_401))
            over.set()
            await asyncio.gather(*asking)
            spent_s = monotonic() - began
            for guest in greedy:
                await guest.close()
            # A burst of a turn at once, then its rate; one block more than granted may be under way for each.
            assert amount[0] <= 1_024 + 40 * spent_s + 3 * 200
            status = world.nodes[name].monitor.status()
            keys = load_keys(world.market, world.market.node("bank"))
            assert keys.edge is not None
            who = ("127.0.0.66", keys.edge.fingerprint)
            assert status.gauges.guests_throttled is not None
            assert f"guest {who[0]} (key {who[1]})" in status.gauges.guests_throttled
            assert not [named for named in status.gauges.guests_throttled if "127.0.0.77" in named]
            assert world.nodes[name].counters.guest_throttles[who] > 0

    run(work())


def test_a_guest_needs_the_edge_key_and_a_market_that_allows_guests(tmp_path: Path) -> None:
    path = market_file(tmp_path, SMALL)

    async def work() -> None:
        async with World(path) as world:
            await world.start("a", "b", "c", "x", "archive")
            plan = world.market.node("archive")
            keys = load_keys(world.market, world.market.node("bank"))
            for name, key in ((guest_visitor(keys), bytes(32)), ("guest/00000000", bytes(32))):
                with pytest.raises(DoorRefusedError, match="unknown name or wrong key"):
                    await visit(plan.address, plan.tcp_port, name, key)
            closed = replace(world.market, guests=GuestTable(allowed=False))
            assert edge_door_key(world.market, keys, guest_visitor(keys)) is not None
            assert edge_door_key(closed, keys, guest_visitor(keys)) is None

    run(work())
