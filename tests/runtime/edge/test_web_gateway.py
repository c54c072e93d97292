"""The WebSocket gateway on a loopback port: clients, strangers, a client that takes nothing, a whole market."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.worlds import SMALL, World, eventually, market_file, run, trades
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from isocast.runtime.client.listener import Listener
from isocast.runtime.client.received import ReceivedBatch, batch_of
from isocast.runtime.client.rows import fields_of
from isocast.runtime.edge import web_gateway
from isocast.runtime.edge.web_gateway import Batches, WebGateway
from isocast.runtime.market.file import load_market
from isocast.runtime.net.tls import client_tls, server_tls
from isocast.terms.errors import TransportError
from isocast.terms.ids import NO_EPOCH
from isocast.terms.market import EventKind, Mic, Side, Symbol
from isocast.wire.events import EventArray, MarketEvent, build_events
from isocast.wire.opaque import OpaqueMessage, cut_opaque
from isocast.wire.packets import ReleasedPacket

INSTANT, DELAY = 1_700_000_000_000_000_000, 5_000


def batch(sequence: int, first_id: int, count: int = 3) -> ReceivedBatch:
    return message(sequence, trades(count, first_id, (b"AAA", b"BBB")))


def message(sequence: int, events: EventArray) -> ReceivedBatch:
    packet = ReleasedPacket(0, NO_EPOCH, 1, 1, sequence, INSTANT, 0, sequence, 1, events.tobytes(), b"")
    return batch_of([packet], DELAY, INSTANT)


class _Silent:
    """A market in which nothing happens but what a test says."""

    def __aiter__(self) -> AsyncIterator[ReceivedBatch]:
        return self

    async def __anext__(self) -> ReceivedBatch:
        await asyncio.Event().wait()
        raise StopAsyncIteration


@asynccontextmanager
async def silent() -> AsyncIterator[Batches]:
    yield _Silent()


@asynccontextmanager
async def served(gateway: WebGateway) -> AsyncIterator[str]:
    task = asyncio.create_task(gateway.run(silent()))
    await gateway.ready.wait()
    address, port = gateway.place
    try:
        yield f"ws://{address}:{port}"
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def test_nobody_is_let_in_before_the_market_is_heard() -> None:
    """A client that came earlier would take an empty market for what there is."""

    async def work() -> None:
        with closing(socket.socket()) as probe:
            probe.bind(("127.0.0.1", 0))
            place: tuple[str, int] = probe.getsockname()
        gateway, refused = WebGateway(*place, fields_of), []

        @asynccontextmanager
        async def slow() -> AsyncIterator[Batches]:
            try:
                await asyncio.open_connection(*place)
            except ConnectionRefusedError as reason:
                refused.append(reason)
            yield _Silent()

        task = asyncio.create_task(gateway.run(slow()))
        await eventually(gateway.ready.is_set)
        async with connect(f"ws://{place[0]}:{place[1]}"):
            pass
        task.cancel()
        await asyncio.wait([task])
        assert len(refused) == 1

    run(work())


async def heard(client: ClientConnection) -> dict[str, Any]:
    """The next message that is no heartbeat."""
    while True:
        message: dict[str, Any] = json.loads(await asyncio.wait_for(client.recv(), 90))
        if message["type"] != "heartbeat":
            return message


def test_two_clients_with_different_symbols() -> None:
    async def work() -> None:
        gateway = WebGateway("127.0.0.1", 0, fields_of)
        async with served(gateway) as place, connect(place) as one, connect(place) as two:
            gateway.receive(batch(1, 1))
            await one.send('{"subscribe": ["AAA"]}')
            await two.send('{"subscribe": "*"}')
            assert [row["id"] for row in (await heard(one))["rows"]] == [3]
            assert sorted(row["id"] for row in (await heard(two))["rows"]) == [2, 3]
            gateway.receive(batch(2, 11))
            (first, third) = (await heard(one))["rows"]
            assert (first["id"], third["id"], first["sequence"]) == (11, 13, 2)
            assert first["release_ns"] == INSTANT + DELAY
            assert [row["id"] for row in (await heard(two))["rows"]] == [11, 12, 13]
            await two.send("?")
            assert await heard(two) == {"type": "error", "text": "this is not JSON"}
        assert (gateway.counts.clients, gateway.counts.events) == (2, 6)

    run(work())


def orders(*rows: tuple[int, Side, int]) -> EventArray:
    return build_events(
        MarketEvent(EventKind.ORDER, Mic("XNYS"), Symbol("AAA"), side, price, 100, id=number)
        for number, side, price in rows
    )


def test_a_client_hears_books_as_they_are_and_what_it_may_not_ask_for() -> None:
    async def work() -> None:
        gateway = WebGateway("127.0.0.1", 0, fields_of, depth_max=2)
        async with served(gateway) as place, connect(place) as client:
            gateway.receive(message(1, orders((1, Side.BUY, 100), (2, Side.BUY, 101), (3, Side.SELL, 103))))
            await client.send('{"subscribe": ["AAA"], "depth": 3}')
            assert "up to 2" in (await heard(client))["text"]
            await client.send('{"subscribe": ["AAA"], "depth": 1}')
            assert (await heard(client))["type"] == "snapshot"
            books = await heard(client)
            (row,) = books["rows"]
            assert (books["type"], row["symbol"], row["incomplete"]) == ("books", "AAA", [])
            assert row["bids"] == [{"price": "0.0101", "size": 100, "orders": 1, "floors": ["XNYS"]}]
            gateway.receive(message(3, orders((4, Side.BUY, 102))))
            assert (await heard(client))["type"] == "events"
            (row,) = (await heard(client))["rows"]
            assert (row["bids"][0]["price"], row["incomplete"]) == ("0.0102", ["XNYS"]), "message 2 is missing"

    run(work())


def test_opaque_messages_come_between_events_in_sequence() -> None:
    async def scene() -> None:
        gateway = WebGateway("127.0.0.1", 0, fields_of)
        async with served(gateway) as place, connect(place) as client:
            await client.send('{"subscribe": "*", "topics": ["quiz"]}')
            assert (await heard(client))["type"] == "snapshot"
            [block] = cut_opaque([OpaqueMessage("quiz", b"\xff", b"k", 7), OpaqueMessage("other", b"")], 1_296)
            payloads = [trades(1).tobytes(), block, trades(1, 2).tobytes()]
            packets = [
                ReleasedPacket(0, NO_EPOCH, 1, 1, sequence, INSTANT, 0, sequence, 1, payload, b"")
                for sequence, payload in enumerate(payloads, 1)
            ]
            gateway.receive(batch_of(packets, DELAY, INSTANT))
            told = await heard(client)
            assert [(row["sequence"], row["kind"]) for row in told["rows"]] == [
                (1, "trade"),
                (2, "opaque"),
                (3, "trade"),
            ]
            opaque = told["rows"][1]
            assert (opaque["topic"], opaque["key"], opaque["payload_base64"]) == ("quiz", "k", "/w==")
            assert (gateway.counts.opaque, gateway.counts.events) == (2, 2)

    run(scene())


def test_strangers_pages_and_too_many_are_refused() -> None:
    async def work() -> None:
        gateway = WebGateway("127.0.0.1", 0, fields_of, origins=["https://desk.example"], clients_max=2)
        async with served(gateway) as place:
            with pytest.raises(InvalidStatus, match="403"):
                await connect(place, origin="https://elsewhere.example")  # type: ignore[arg-type]
            for page in ("http://localhost.elsewhere.example", "null"):
                with pytest.raises(InvalidStatus, match="403"):
                    await connect(place, origin=page)  # type: ignore[arg-type]
            async with (
                connect(place, origin="http://localhost:8000"),  # type: ignore[arg-type]
                connect(place, origin="https://desk.example"),  # type: ignore[arg-type]
                connect(place) as third,
            ):
                with pytest.raises(ConnectionClosed, match="there is no place left"):
                    await asyncio.wait_for(third.recv(), 90)
        assert gateway.counts.refused == 1

    run(work())


def test_a_client_that_takes_nothing_is_sent_away_and_others_notice_nothing() -> None:
    async def work() -> None:
        gateway = WebGateway("127.0.0.1", 0, fields_of, rows_max=2_000, take_s=0.3)
        async with served(gateway) as place, connect(place) as good, connect(place, max_queue=1) as bad:
            await good.send('{"subscribe": ["BBB"]}')
            assert (await heard(good))["type"] == "snapshot"
            await bad.send('{"subscribe": "*"}')
            sequence = 0

            def is_gone() -> bool:
                nonlocal sequence
                sequence += 1
                gateway.receive(batch(sequence, 1, 1_000))
                return gateway.counts.too_slow == 1

            reading = asyncio.create_task(drained(good))
            await eventually(is_gone)
            reading.cancel()
            assert gateway.counts.clients == 2
            bad.transport.abort()

    run(work())


async def drained(client: ClientConnection) -> None:
    async for _ in client:
        pass


def test_a_port_that_is_taken_is_named() -> None:
    async def work() -> None:
        gateway = WebGateway("127.0.0.1", 0, fields_of)
        async with served(gateway):
            with pytest.raises(TransportError, match=f"cannot listen on 127.0.0.1:{gateway.place[1]}"):
                await WebGateway(*gateway.place, fields_of).run(silent())

    run(work())


def test_a_market_in_a_browser(tmp_path: Path) -> None:
    async def work() -> None:
        nodes = {**SMALL, "web": {"role": "customer", "lines": ["a", "b"], "retransmit": ["archive"], "start": False}}
        async with World(market_file(tmp_path, nodes)) as world:
            await world.start("a", "b", "c", "floor", "x", "archive")
            gateway = WebGateway("127.0.0.1", 0, fields_of)
            listener = Listener(world.market, "web", latest=False, start="snapshot")
            task = asyncio.create_task(gateway.run(listener))
            await gateway.ready.wait()
            async with connect(f"ws://127.0.0.1:{gateway.place[1]}") as client:
                await client.send('{"subscribe": ["ISO"]}')
                assert (await heard(client))["rows"] == []
                await world.publish("floor", trades(100))
                rows: list[int] = []
                while len(rows) < 100:
                    rows += [row["id"] for row in (await heard(client))["rows"]]
                assert rows == list(range(1, 101))
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    run(work())


# ---- away from loopback: TLS; and whoever says nothing


def test_with_tls_only_wss_is_spoken(tmp_path: Path) -> None:
    market = load_market(market_file(tmp_path, settings={"network": {"tls": "on"}}))
    seat = market.node("bank")
    tls = server_tls(market, seat)
    assert tls is not None

    async def work() -> None:
        gateway = WebGateway(seat.address, 0, fields_of, tls=tls.context)
        async with served(gateway) as place:
            gateway.receive(batch(1, 1))
            trusted = client_tls(market, seat.address)
            async with connect(place.replace("ws://", "wss://"), ssl=trusted) as client:
                await client.send('{"subscribe": "*"}')
                assert (await heard(client))["type"] == "snapshot"
            with pytest.raises((OSError, WebSocketException)):
                await connect(place)

    run(work())


def test_connections_that_say_nothing_are_ended_and_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_gateway, "_OPEN_S", 3.0)

    async def work() -> None:
        gateway = WebGateway("127.0.0.1", 0, fields_of, clients_max=4)
        async with served(gateway) as place:
            mutes = [await asyncio.open_connection(*gateway.place) for _ in range(40)]
            for _, writer in mutes:
                writer.write(b"GET / HTTP/1.1\r\nX: ")
            async with connect(place) as client:
                gateway.receive(batch(1, 1))
                await client.send('{"subscribe": "*"}')
                assert (await heard(client))["type"] == "snapshot"
                for reader, writer in mutes:
                    async with asyncio.timeout(90):
                        while await reader.read(4_096):
                            pass
                    writer.transport.abort()

    run(work())
