"""The door on a real TCP connection: keys both ways, hostile visitors, slow readers."""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable

import pytest
from tests.runtime.worlds import eventually

from isocast.runtime.net import door
from isocast.runtime.net.door import Door, DoorError, Visit, visit
from isocast.wire.door import (
    Block,
    DoorMessage,
    End,
    Hello,
    Publish,
    RangeWanted,
    Refused,
    decode_message,
    encode_message,
)

KEY = bytes(range(32))


async def echo(guest: Visit) -> None:
    """Answers a range with one block and its end, anything else with the same."""
    while (message := await guest.receive()) is not None:
        if isinstance(message, RangeWanted):
            await guest.send(Block(b"x" * message.last))
            await guest.send(End(message.first, message.last))
        else:
            await guest.send(message)


async def with_door(
    work: Callable[[Door], Awaitable[None]], serve: Callable[[Visit], Awaitable[None]] = echo
) -> list[tuple[str, str]]:
    complaints: list[tuple[str, str]] = []
    here = Door({"edge/tokyo": KEY}.get, serve, lambda name, text: complaints.append((name, text)))
    await here.open("127.0.0.1", 0)
    try:
        await asyncio.wait_for(work(here), 90)
    finally:
        await here.close()
    return complaints


def test_who_knows_the_key_comes_in_and_is_served() -> None:
    async def work(here: Door) -> None:
        guest = await visit("127.0.0.1", here.port, "edge/tokyo", KEY)
        await guest.send(RangeWanted(3, 100_000))
        assert (await guest.expect(Block)).body == b"x" * 100_000
        assert await guest.expect(End) == End(3, 100_000)
        await guest.send(Publish(((b"key", b"payload"),)))
        assert await guest.expect(Publish) == Publish(((b"key", b"payload"),))
        assert here.visitors == 1
        await guest.close()

    assert asyncio.run(with_door(work)) == []


@pytest.mark.parametrize("name, key", [("edge/tokyo", KEY[::-1]), ("edge/nobody", KEY)])
def test_who_does_not_is_told_no_and_named(name: str, key: bytes) -> None:
    async def work(here: Door) -> None:
        with pytest.raises(DoorError, match="unknown name or wrong key"):
            await visit("127.0.0.1", here.port, name, key)
        assert here.refused == 1

    complaints = asyncio.run(with_door(work))
    assert "wrong proof" in complaints[0][1]
    assert name in complaints[0][1]
    assert KEY.hex() not in str(complaints)


def test_a_door_that_does_not_know_the_key_is_found_out() -> None:
    async def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = encode_message(Hello(bytes(32)))
        writer.write(struct.pack("<I", len(hello)) + hello)
        await reader.readexactly(4)
        welcome = b"\x03" + bytes(16)
        writer.write(struct.pack("<I", len(welcome)) + welcome)
        await writer.drain()
        await reader.read(100)
        writer.close()

    async def work() -> None:
        server = await asyncio.start_server(impostor, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(DoorError, match="does not have the key"):
            await visit("127.0.0.1", port, "edge/tokyo", KEY)
        server.close()

    asyncio.run(asyncio.wait_for(work(), 60))


@pytest.mark.parametrize(
    "bytes_sent",
    [b"\xff\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n", struct.pack("<I", 5) + b"hello", struct.pack("<I", 0)],
    ids=["too long", "a browser", "no message", "empty"],
)
def test_a_stranger_is_sent_away_and_others_are_still_served(bytes_sent: bytes) -> None:
    async def work(here: Door) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
        writer.write(bytes_sent)
        await writer.drain()
        greeting = await reader.read()
        assert isinstance(decode_message(greeting[4:]), Hello)
        writer.close()
        guest = await visit("127.0.0.1", here.port, "edge/tokyo", KEY)
        await guest.send(RangeWanted(1, 1))
        assert await guest.expect(Block) == Block(b"x")
        await guest.close()

    assert len(asyncio.run(with_door(work))) == 1


def test_a_message_that_was_changed_on_its_way_ends_the_visit() -> None:
    async def work(here: Door) -> None:
        guest = await visit("127.0.0.1", here.port, "edge/tokyo", KEY)
        sealed = bytearray(guest._sends.sealed(encode_message(RangeWanted(1, 1))))  # noqa: SLF001
        sealed[3] ^= 1
        guest._writer.write(struct.pack("<I", len(sealed)) + bytes(sealed))  # noqa: SLF001
        with pytest.raises(DoorError, match="ended"):
            await guest.expect(Block)
        await guest.close()

    complaints = asyncio.run(with_door(work))
    assert complaints == [("edge/tokyo", "a message at the door has a wrong tag")]


def test_a_visitor_that_does_not_read_is_sent_away_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "WRITE_S", 0.2)
    done = asyncio.Event()
    sockets: list[socket.socket] = []

    async def flood(guest: Visit) -> None:
        sockets.append(guest._writer.get_extra_info("socket"))  # noqa: SLF001
        try:
            while True:
                await guest.send(Block(bytes(1 << 20)))
        finally:
            done.set()

    async def work(here: Door) -> None:
        slow = await visit("127.0.0.1", here.port, "edge/tokyo", KEY)
        await done.wait()
        # What it did not take is not kept, nor is its socket, for as long as it stays.
        await eventually(lambda: sockets[0].fileno() < 0)
        await slow.close()

    complaints = asyncio.run(with_door(work, flood))
    assert complaints[0][0] == "edge/tokyo"
    assert "does not read" in complaints[0][1]


def test_nobody_home_says_what_to_do() -> None:
    async def work() -> None:
        with pytest.raises(DoorError, match="is the node up"):
            await visit("127.0.0.1", 1, "edge/tokyo", KEY)

    asyncio.run(work())


def test_the_reason_of_the_other_side_reaches_the_caller() -> None:
    async def refuse(guest: Visit) -> None:
        message: DoorMessage | None = await guest.receive()
        assert message is not None
        await guest.send(Refused("the outbox is full: try again in a second"))

    async def work(here: Door) -> None:
        guest = await visit("127.0.0.1", here.port, "edge/tokyo", KEY)
        await guest.send(RangeWanted(1, 1))
        with pytest.raises(DoorError, match="the outbox is full"):
            await guest.expect(Block)
        await guest.close()

    asyncio.run(with_door(work, refuse))


def test_a_cancellation_that_meets_the_end_of_a_write_is_not_lost() -> None:
    """Else a floor publishes on after its show was ended, and whoever waits for it waits forever."""

    async def work(here: Door) -> None:
        guest = await visit("127.0.0.1", here.port, "edge/tokyo", KEY)

        class Cancelling:
            """A connection that takes everything, at the very moment when its writer is cancelled."""

            def write(self, data: bytes) -> None:
                """Nobody reads it."""

            async def drain(self) -> None:
                sending.cancel()

            def close(self) -> None:
                """Nothing is open."""

        guest.leave()
        guest._writer = Cancelling()  # type: ignore[assignment]  # noqa: SLF001

        async def send_twice() -> None:
            await guest.send(Publish(((b"key", b"payload"),)))
            await asyncio.sleep(0)

        sending = asyncio.create_task(send_twice())
        await asyncio.wait([sending])
        assert sending.cancelled()

    assert asyncio.run(with_door(work)) == []
