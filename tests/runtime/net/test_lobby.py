"""Connections that say nothing: bounded, and the loudest address gives way."""

import asyncio

from isocast.runtime.net import lobby
from isocast.runtime.net.lobby import Lobby


async def waiting(hall: Lobby, *addresses: str) -> list[asyncio.Task[None]]:
    tasks = []
    for address in addresses:
        tasks.append(asyncio.create_task(asyncio.sleep(60)))
        hall.enter(tasks[-1], address)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


def test_the_oldest_of_the_loudest_address_gives_way() -> None:
    async def work() -> None:
        hall = Lobby(4)
        tasks = await waiting(hall, "quiet", "loud", "loud", "loud", "new", "newer")
        assert [task.cancelled() for task in tasks] == [False, True, True, False, False, False]
        assert hall.waiting == 4
        assert hall.loudest == "loud"
        assert hall.ended["loud"] == 2
        for task in tasks:
            task.cancel()

    asyncio.run(work())


def test_whoever_has_said_who_it_is_keeps_its_place() -> None:
    async def work() -> None:
        hall = Lobby(1)
        (known,) = await waiting(hall, "a")
        hall.leave(known)
        assert hall.waiting == 0
        (stranger,) = await waiting(hall, "b")
        assert not known.cancelled()
        assert hall.loudest == ""
        known.cancel()
        stranger.cancel()

    asyncio.run(work())


def test_what_is_remembered_of_addresses_is_bounded() -> None:
    async def work() -> None:
        hall = Lobby(1)
        for number in range(2 * lobby._NAMED_MAX):  # noqa: SLF001
            await waiting(hall, f"address {number}")
        assert len(hall.ended) == lobby._NAMED_MAX  # noqa: SLF001

    asyncio.run(work())
