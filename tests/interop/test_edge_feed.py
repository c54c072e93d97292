"""The clear edge feed of a running market, as other people's decoders see it: tshark and itchfeed."""

from __future__ import annotations

import asyncio
import io
import socket
from contextlib import closing, suppress
from pathlib import Path
from random import SystemRandom
from time import time_ns
from typing import Any

import numpy as np
import pytest
from tests.interop.pcap import needs_tshark, tshark_json, write_pcap
from tests.runtime.worlds import SMALL, World, eventually, market_file, run

from isocast.feeds.mold import MoldPacket, SessionEnd, parse_packet, request
from isocast.feeds.release_stamps import read_release
from isocast.runtime.client.listener import Listener
from isocast.runtime.edge.feed import EdgeFeed
from isocast.runtime.edge.gateway import ItchGateway
from isocast.runtime.net.sockets import Endpoint
from isocast.terms.errors import TransportError
from isocast.terms.market import EventKind, MarketStatus
from isocast.wire.events import EVENT_DTYPE, EventArray

itchfeed = pytest.importorskip("itch.parser", reason="itchfeed is not installed: pip install itchfeed")

SEAT = {"role": "customer", "lines": ["a", "b"], "retransmit": ["archive"], "start": False}
NODES = {
    **{name: SMALL[name] for name in ("a", "b", "c", "x", "archive", "floor")},
    "london": {"role": "primary-source"},
    "edge": SEAT,
    "edge2": SEAT,
}
PORT = SystemRandom().randrange(30_000, 32_000)
GROUPS = {"edge": f"239.{PORT % 200 + 16}.77.1", "edge2": f"239.{PORT % 200 + 16}.77.2"}


def tape(floor: bytes, count: int, first_id: int, now: int) -> EventArray:
    """A directory, trades, a halt, a mark, and quotes that ITCH cannot say."""
    events = np.zeros(count, EVENT_DTYPE)
    events["kind"], events["floor"] = EventKind.TRADE, floor
    events["symbol"] = np.resize(np.array([b"ISO", b"CAST"]), count)
    events["price"] = 10_000 + np.arange(count)
    events["quantity"], events["id"] = 100, first_id + np.arange(count)
    events["time"] = now + np.arange(count, dtype=np.uint64)
    for place, kind in ((0, EventKind.DIRECTORY), (5, EventKind.STATUS), (7, EventKind.QUOTE), (9, EventKind.MARK)):
        events["kind"][place] = kind
        events["id"][place] = events["price"][place] = 0
    events["reference"][5], events["reference"][9] = MarketStatus.HALTED, ord("Q")
    events["symbol"][9] = b""
    events["quantity"][[5, 9]] = 0
    return events


class Ears:
    """Hears a group, and keeps what comes with its place."""

    def __init__(self, group: str, interface: str) -> None:
        self.heard: list[tuple[str, int, bytes]] = []
        self._group = group
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.settimeout(0)
        self._socket.bind((group, PORT))
        membership = socket.inet_aton(group) + socket.inet_aton(interface)
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)

    def listen(self) -> None:
        while True:
            try:
                raw = self._socket.recv(9_000)
            except BlockingIOError:
                return
            self.heard.append((self._group, PORT, raw))

    def messages(self) -> list[MoldPacket]:
        self.listen()
        return [packet for packet in [parse_packet(raw) for _, _, raw in self.heard] if packet.messages]

    def close(self) -> None:
        self._socket.close()


def gateway(world: World, name: str, folder: Path) -> ItchGateway:
    def listening(start: int | str) -> Listener:
        return Listener(world.market, name, latest=False, start=start)

    address = world.market.node(name).address
    group = Endpoint(GROUPS[name], PORT)
    return ItchGateway(EdgeFeed(folder), listening, {0: group}, Endpoint(address, 0), interface=address)


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def asked(where: Endpoint, first: int, count: int, session: bytes) -> bytes:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as client:
        client.settimeout(0)
        client.connect((where.address, where.port))
        client.send(request(session, first, count))
        answers: list[bytes] = []

        def answered() -> bool:
            with suppress(BlockingIOError):
                answers.append(client.recv(9_000))
            return bool(answers)

        await eventually(answered)
        return answers[0]


def parsed(packets: list[MoldPacket]) -> list[Any]:
    """Every message, by itchfeed."""
    raw = b"".join(packet.body for packet in packets)
    return list(itchfeed.MessageParser().parse_file(io.BytesIO(raw)))


def check_messages(packets: list[MoldPacket], lists: list[EventArray]) -> None:
    """What itchfeed reads is what the floors said; each floor's order is kept."""
    messages = parsed(packets)
    midnight = int(lists[0]["time"][0]) // (86_400 * 10**9) * 86_400 * 10**9
    said = np.concatenate(lists)
    trades = said[said["kind"] == EventKind.TRADE]
    got = [one for one in messages if one.message_type == b"P"]
    rows = {(one.match_number, one.stock.rstrip(), one.price, one.shares, one.timestamp) for one in got}
    wanted = {
        (int(one["id"]), bytes(one["symbol"]), int(one["price"]), int(one["quantity"]), int(one["time"]) - midnight)
        for one in trades
    }
    assert rows == wanted
    for events in lists:
        own = set(events["id"][events["kind"] == EventKind.TRADE].tolist())
        order = [one.match_number for one in got if one.match_number in own]
        assert order == sorted(own)
    kinds = [one.message_type for one in messages]
    assert kinds.count(b"P") == len(trades)
    assert kinds.count(b"H") == len(lists)
    assert kinds.count(b"S") == len(lists)
    assert kinds.count(b"R") == 2 * len(lists), "two symbols on each floor"


def check_tshark(path: Path, heard: list[tuple[str, int, bytes]], requests: int, session: str) -> None:
    """Session, number and count of each packet, and no complaint."""
    write_pcap(path, [(1_700_000_000_000_000_000 + place, *datagram) for place, datagram in enumerate(heard)])
    options = [word for port in (PORT, requests) for word in ("-d", f"udp.port=={port},moldudp64")]
    shown = tshark_json(path, *options, layer="moldudp64")
    assert "invalid" not in str(shown).lower()
    following = 1
    for fields, (_, port, raw) in zip(shown, heard, strict=True):
        assert fields["moldudp64.session"] == session
        number, count = int(fields["moldudp64.sequence"]), int(fields["moldudp64.count"])
        if port != PORT or count in (0, 65_535):
            continue
        packet = parse_packet(raw)
        assert (number, count) == (following, packet.count) == (packet.sequence, packet.count)
        blocks = fields["moldudp64.msgblock"]
        sizes = [int(block["moldudp64.msglen"]) for block in (blocks if isinstance(blocks, list) else [blocks])]
        assert sum(sizes) + 2 * count == len(packet.body)
        following += count


async def half(world: World, running: dict[str, ItchGateway], lists: list[EventArray], start: int) -> None:
    """Thirty events of each floor, until both gateways have sent them."""
    for source, events in zip(("floor", "london"), lists, strict=True):
        await world.publish(source, events[start : start + 30])
    await eventually(lambda: all(one.counts.events == 60 for one in running.values()))


@needs_tshark
def test_the_edge_feed_of_a_market(tmp_path: Path) -> None:
    """Two gateways, one of them stopped and started: tshark and itchfeed read what both floors published."""

    async def work() -> None:
        async with World(market_file(tmp_path, NODES)) as world:
            await world.start()
            ears = {name: Ears(GROUPS[name], world.market.node(name).address) for name in GROUPS}
            running = {name: gateway(world, name, tmp_path / name) for name in GROUPS}
            tasks = {name: asyncio.create_task(one.run()) for name, one in running.items()}
            for one in running.values():
                await one.ready.wait()
            lists = [tape(b"XNYS", 60, 1, time_ns()), tape(b"XLON", 60, 1_001, time_ns())]
            await half(world, running, lists, 0)
            await stop(tasks["edge2"])
            running["edge2"] = gateway(world, "edge2", tmp_path / "edge2")
            tasks["edge2"] = asyncio.create_task(running["edge2"].run())
            running["edge"].counts.events = 0
            await half(world, running, lists, 30)
            one = running["edge"]
            packets = ears["edge"].messages()
            assert [packet.body for packet in ears["edge2"].messages()] == [packet.body for packet in packets]
            check_messages(packets, lists)
            check_releases(packets, world)
            session = packets[0].session
            answer = await asked(one.requests, packets[1].sequence, 5, session)
            assert parse_packet(answer).body == packets[1].body[: len(parse_packet(answer).body)]
            one.beat()
            one.beat()
            number = packets[-1].sequence + packets[-1].count
            one._send_all([SessionEnd(0, session.decode(), number)])  # noqa: SLF001 - a day does not end in a test
            ears["edge"].listen()
            kinds = [parse_packet(raw).count for _, _, raw in ears["edge"].heard[-2:]]
            assert kinds == [0, 65_535]
            here = one.requests
            heard = [
                *ears["edge"].heard,
                (here.address, here.port, request(session, 3, 5)),
                ("127.0.0.1", here.port, answer),
            ]
            for ear in ears.values():
                ear.close()
            for task in tasks.values():
                await stop(task)
            check_tshark(tmp_path / "edge.pcap", heard, here.port, session.decode())

    run(work())


def check_releases(packets: list[MoldPacket], world: World) -> None:
    """Each packet tells when its message was released: an instant at which the market released something."""
    from isocast.runtime.disk.journal_reader import read_blocks  # noqa: PLC0415

    where = world.market.directory_of("a") / "journal"
    delay = world.market.timing.release_delay_ns
    due = {int(block.header.instant) + delay for block in read_blocks(where)}
    for packet in packets:
        read = {instant: read_release(packet.body, packet.sequence, instant) for instant in due}
        assert any(0 <= instant - release < exactly for instant, (release, exactly) in read.items())


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    async def work() -> None:
        with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as other:
            other.bind(("127.0.0.1", 0))
            taken = Endpoint(*other.getsockname())
            feed = EdgeFeed(tmp_path)
            made = ItchGateway(feed, lambda _: None, {}, taken, interface="127.0.0.1")  # type: ignore[arg-type, return-value]
            with pytest.raises(TransportError, match=f"cannot hear requests at {taken}"):
                await made.run()

    run(work())
