"""A slow-loris at every door: from many addresses it says nothing, half of something, or asks and takes no answer.

It has more connections than there are places, and comes again whenever one is ended. Without the defence, which is that
whoever says nothing gives way, an honest visitor finds no place; with it, everybody who asks is served.

| door | what names the loris |
|---|---|
| where floors publish, where ranges are given | an alarm with its address |
| status pages | http_refused, a line of the log with its address |
| box office, HTTPS of traders, FIX, the operator's door | a line of the log with its address |
| any door, from somebody who has a key | an alarm with its name |
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import NamedTuple, Self

import pytest
from structlog.testing import capture_logs
from tests.interop.weakened import without
from tests.runtime.accounts import traders
from tests.runtime.accounts.fix import transcripts
from tests.runtime.box_office.offices import Clock, close_all, office_at, sqlite_in
from tests.runtime.doorways import enter
from tests.runtime.worlds import PATIENCE_S, SMALL, World, eventually, market_file, run, trades

from isocast.runtime.accounts import web
from isocast.runtime.accounts.fix.connection import FixBounds
from isocast.runtime.box_office import running
from isocast.runtime.market.key_files import load_keys
from isocast.runtime.net import door
from isocast.runtime.net.door import DoorError, Visit
from isocast.runtime.net.door_keys import edge_door_key, edge_visitor, publish_door_key, publish_visitor
from isocast.runtime.operate.operator_door import SOCKET, ask
from isocast.terms.errors import IsocastError
from isocast.wire.door import Accepted, Publish, RangeWanted

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

ADDRESSES = 16
"""Of the loris: no bound for one address meets it."""
PAUSE_S = 0.1
"""Before it takes again a place that it lost."""
ASKS = 5
NODES = {**SMALL, "fund": SMALL["bank"], "archive": {**SMALL["archive"], "http_port": 7_900}}


class Way(NamedTuple):
    """One way in, as the loris and an honest visitor use it."""

    connect: Callable[[str], Awaitable[Streams]]
    """From an address."""
    says: tuple[bytes, ...]
    places: int
    """That the door has, at most."""
    honest: Callable[[], Awaitable[object]]
    """Comes in, and is served."""
    named: Callable[[], object]
    """Whether the loris was, and is counted where the door counts."""


def tcp(address: str, port: int, tls: ssl.SSLContext | None = None) -> Callable[[str], Awaitable[Streams]]:
    return lambda own: asyncio.open_connection(address, port, local_addr=(own, 0), ssl=tls)


class Loris:
    """Holds as many connections as it can."""

    def __init__(self, way: Way) -> None:
        self._came: dict[int, None] = {}
        self._way = way
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._hold(number)) for number in range(self._way.places + 8)]
        # All have come: whoever has no place was sent away, or sent somebody away.
        await eventually(lambda: len(self._came) == len(self._tasks))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _hold(self, number: int) -> None:
        own, says = f"127.77.0.{1 + number % ADDRESSES}", self._way.says[number % len(self._way.says)]
        while True:
            with suppress(OSError, IsocastError):
                try:
                    reader, writer = await self._way.connect(own)
                finally:
                    self._came[number] = None
                try:
                    writer.write(says)
                    await reader.read()  # It never says more, and never leaves.
                finally:
                    writer.transport.abort()
            await asyncio.sleep(PAUSE_S)


async def is_served(way: Way) -> bool:
    try:
        async with asyncio.timeout(60):
            await way.honest()
    except (IsocastError, OSError, asyncio.IncompleteReadError, AssertionError):
        return False
    return True


async def siege(way: Way, *, weak: bool) -> None:
    assert await is_served(way)
    async with Loris(way):
        if weak:
            # A place is free for a moment whenever the door ends a connection for its slowness.
            until = monotonic() + PATIENCE_S
            while monotonic() < until and await is_served(way):
                pass
            assert monotonic() < until, "everybody is served"
        else:
            assert [await is_served(way) for _ in range(ASKS)] == [True] * ASKS
            await eventually(way.named)


# ---- the ways in


@dataclass
class Scene:
    """Where ways are opened, and what is logged there."""

    folder: Path
    patch: pytest.MonkeyPatch
    logs: list[dict[str, object]]

    def logged(self, event: str, place: str = "127.77.0.") -> Callable[[], object]:
        return lambda: [
            one for one in self.logs if one["event"] == event and str(one.get("address", "")).startswith(place)
        ]


async def served_page(connect: Awaitable[Streams], path: bytes) -> None:
    reader, writer = await connect
    try:
        writer.write(b"GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % path)
        assert (await reader.read()).startswith(b"HTTP/1.1 ")
    finally:
        writer.transport.abort()


NOTHING = (b"", b"\x40\x00", b"\x40\x00\x00\x00half a greeting")
HALVES = (b"", b"GET / HT", b"GET /healthz HTTP/1.1\r\n\r\n", b"GET /healthz HTTP/1.1\r\n\r\n")
GAVE_WAY = "a connection gave way to another"


@asynccontextmanager
async def nodes(scene: Scene, *names: str) -> AsyncIterator[World]:
    async with World(market_file(scene.folder, NODES)) as world:
        await world.start(*names, ready=False)
        yield world


def alarmed(world: World, name: str) -> Callable[[], object]:
    return lambda: [code for code in world.alarms(name) if code.startswith("visitor-a stranger at 127.77.0.")]


@asynccontextmanager
async def publishing(scene: Scene) -> AsyncIterator[Way]:
    async with nodes(scene, "floor") as world:
        market, plan = world.market, world.market.node("floor")
        key = publish_door_key(market, load_keys(market, plan), publish_visitor(plan))

        async def honest() -> None:
            guest = await enter(market, "floor", publish_visitor(plan), key, by="floor")
            await guest.send(Publish(((b"key", trades(1).tobytes()),)))
            await guest.expect(Accepted)
            await guest.close()

        places = door.MAX_HALF_OPEN
        yield Way(tcp(plan.address, plan.tcp_port), NOTHING, places, honest, alarmed(world, "floor"))


async def as_customer(world: World, name: str) -> Visit:
    market = world.market
    visitor = edge_visitor(market.node(name))
    key = edge_door_key(market, load_keys(market, market.node(name)), visitor)
    guest = await enter(market, "archive", visitor, key, by=name)
    await guest.send(RangeWanted(1, 1))
    if await guest.receive() is None:
        guest.leave()
        raise DoorError("the door was shut again")
    return guest


@asynccontextmanager
async def ranges(scene: Scene) -> AsyncIterator[Way]:
    async with nodes(scene, "archive") as world:
        plan = world.market.node("archive")

        async def honest() -> None:
            await (await as_customer(world, "bank")).close()

        places = door.MAX_HALF_OPEN
        yield Way(tcp(plan.address, plan.tcp_port), NOTHING, places, honest, alarmed(world, "archive"))


@asynccontextmanager
async def ranges_with_a_key(scene: Scene) -> AsyncIterator[Way]:
    """One customer that pays, and comes in as often as there are places."""
    scene.patch.setattr(door, "MAX_VISITORS", 16)
    async with nodes(scene, "archive") as world:

        async def customer(_: str) -> Streams:
            guest = await as_customer(world, "bank")
            return guest._reader, guest._writer  # noqa: SLF001

        async def honest() -> None:
            await (await as_customer(world, "fund")).close()

        yield Way(customer, (b"",), 16, honest, lambda: "visitor-edge/bank" in world.alarms("archive"))


@asynccontextmanager
async def status_pages(scene: Scene) -> AsyncIterator[Way]:
    async with nodes(scene, "archive") as world:
        plan, counters = world.market.node("archive"), world.nodes["archive"].counters
        connect, logged = tcp(plan.address, plan.http_port), scene.logged(GAVE_WAY)
        yield Way(
            connect, HALVES, 32, lambda: served_page(connect("127.0.0.1"), b"/healthz"),
            lambda: logged() and counters.http_refused,
        )  # fmt: skip


@asynccontextmanager
async def operators_door(scene: Scene) -> AsyncIterator[Way]:
    """Only the node's own user gets so far: a command that hangs, not an enemy."""
    async with nodes(scene, "archive") as world:
        where = world.market.directory_of("archive")

        def connect(_: str) -> Awaitable[Streams]:
            return asyncio.open_unix_connection(where / SOCKET)

        named = scene.logged("a connection to the operator's door gave way to another", "")
        yield Way(connect, (b"", b'{"do"'), 64, lambda: ask(where, "roster"), named)


@asynccontextmanager
async def box_office(scene: Scene) -> AsyncIterator[Way]:
    scene.patch.setattr(running, "BOUNDS", replace(running.BOUNDS, connections_max=16, per_address_max=8))
    office = office_at(sqlite_in(scene.folder), scene.folder, Clock())
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(running.serve_office(office, None, "127.0.0.1", 0, ready.set_result))
    try:
        connect = tcp("127.0.0.1", await ready)
        yield Way(connect, HALVES, 32, lambda: served_page(connect("127.0.0.1"), b"/v1/office"), scene.logged(GAVE_WAY))
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        close_all()


@asynccontextmanager
async def traders_https(scene: Scene) -> AsyncIterator[Way]:
    scene.patch.setattr(web, "BOUNDS", replace(web.BOUNDS, connections_max=16, per_address_max=8))
    async with traders.on_stage(scene.folder) as stage:
        mute, asking = tcp("127.0.0.1", stage.port), tcp("127.0.0.1", stage.port, stage.client_tls)

        def connect(own: str) -> Awaitable[Streams]:
            # Half of its addresses end TLS and ask.
            return (asking if int(own.rpartition(".")[2]) % 2 else mute)(own)

        says = (b"GET /v1/openapi.json HTTP/1.1\r\nConnection: close\r\n\r\n", b"\x16\x03\x01", b"GET /", b"")
        yield Way(connect, says, 32, lambda: stage.ask("GET", "/v1/orders"), scene.logged(GAVE_WAY))


@asynccontextmanager
async def fix(scene: Scene) -> AsyncIterator[Way]:
    stage = transcripts.Stage(scene.folder, bounds=FixBounds(half_open_max=16))
    await stage.start()

    async def honest() -> None:
        client = await transcripts.Client.connect(stage)
        try:
            await client.send(f"35=A|34={stage.server.refused + 1}|98=0|108=0|553=anna|554=secret|141=Y")
            assert dict(await client.next())[35] == "A"
        finally:
            await client.gone()
        await eventually(lambda: not stage.server.live)

    try:
        connect, logged = tcp("127.0.0.1", stage.server.port), scene.logged("a FIX connection gave way to another")
        yield Way(connect, (b"", b"8=FIX.4.4\x019="), 16, honest, lambda: logged() and stage.server.refused)
    finally:
        await stage.end()


WAYS: tuple[Callable[[Scene], AbstractAsyncContextManager[Way]], ...] = (
    publishing,
    ranges,
    ranges_with_a_key,
    status_pages,
    operators_door,
    box_office,
    traders_https,
    fix,
)


@pytest.mark.parametrize("weak", [True, False], ids=["without", "with"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_slow_loris_keeps_people_out_only_where_it_need_not_give_way(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    way: Callable[[Scene], AbstractAsyncContextManager[Way]],
    weak: bool,  # noqa: FBT001
) -> None:
    async def story() -> None:
        with capture_logs() as logs, without("giving way") if weak else nullcontext():
            async with way(Scene(tmp_path, monkeypatch, logs)) as door_of:  # type: ignore[arg-type]
                await siege(door_of, weak=weak)

    run(story())
