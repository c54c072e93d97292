"""TLS at doors and pages: the market's own authority, certificates that are wrong, and proofs bound to the channel."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.runtime.worlds import SMALL, World, market_file, run, trades

from isocast.runtime.market import certificates
from isocast.runtime.market.certificates import init_certificates, read_certificates, renew_certificate
from isocast.runtime.market.file import load_market
from isocast.runtime.market.model import Market, NodePlan
from isocast.runtime.market.roster_making import RosterWish, renew_roster
from isocast.runtime.market.tls_files import CA, certificate_paths, read_status_token, token_path
from isocast.runtime.net import door
from isocast.runtime.net.door import Door, DoorError, DoorRefusedError, Visit, visit
from isocast.runtime.net.http import Answer
from isocast.runtime.net.tls import client_tls, server_tls
from isocast.runtime.watch.counters import NodeCounters
from isocast.runtime.watch.http import StatusServer
from isocast.runtime.watch.status import node_target, poll
from isocast.terms.errors import ConfigurationError
from isocast.wire.door import End, RangeWanted

KEY = bytes(range(32))
SECURE = {"network": {"tls": "on"}}


@pytest.fixture
def market(tmp_path: Path) -> Market:
    return load_market(market_file(tmp_path, settings=SECURE))


async def answer(guest: Visit) -> None:
    while (message := await guest.receive()) is not None:
        assert isinstance(message, RangeWanted)
        await guest.send(End(message.first, message.last))


@contextmanager
def issued(before: timedelta, days: int) -> Iterator[None]:
    """Certificates are made as if it were that much earlier."""
    with pytest.MonkeyPatch.context() as patched:

        class Past(datetime):
            @classmethod
            def now(cls, tz: object = None) -> datetime:  # type: ignore[override]  # noqa: ARG003
                return datetime.now(UTC) - before

        patched.setattr(certificates, "datetime", Past)
        patched.setattr(certificates, "NODE_DAYS", days)
        yield


def at_door(
    market: Market, plan: NodePlan, work: Callable[[Door, str], Awaitable[None]], *, presents: str = ""
) -> list[tuple[str, str]]:
    """A door of a node, with its own certificate or another node's."""
    complaints: list[tuple[str, str]] = []

    async def play() -> None:
        shown = market.node(presents) if presents else plan
        here = Door({"edge/bank": KEY}.get, answer, lambda *told: complaints.append(told), server_tls(market, shown))
        await here.open(plan.address, 0)
        try:
            async with asyncio.timeout(90):
                await work(here, plan.address)
        finally:
            await here.close()

    asyncio.run(play())
    return complaints


def enter(market: Market) -> Callable[[Door, str], Awaitable[None]]:
    async def work(here: Door, address: str) -> None:
        guest = await visit(address, here.port, "edge/bank", KEY, tls=client_tls(market, address))
        await guest.send(RangeWanted(3, 4))
        assert await guest.expect(End) == End(3, 4)
        await guest.close()

    return work


def test_a_door_with_tls_serves_whoever_trusts_the_markets_authority(market: Market) -> None:
    versions: list[str | None] = []

    async def work(here: Door, address: str) -> None:
        guest = await visit(address, here.port, "edge/bank", KEY, tls=client_tls(market, address))
        versions.append(guest._writer.get_extra_info("ssl_object").version())  # noqa: SLF001
        await guest.send(RangeWanted(1, 2))
        assert await guest.expect(End) == End(1, 2)
        await guest.close()

    assert at_door(market, market.node("a"), work) == []
    assert versions == ["TLSv1.3"]


def test_an_older_tls_is_refused(market: Market) -> None:
    async def work(here: Door, address: str) -> None:
        context = client_tls(market, address)
        assert context is not None
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(OSError):  # noqa: PT011 - of TLS, or a connection that was ended
            await asyncio.open_connection(address, here.port, ssl=context)

    at_door(market, market.node("a"), work)


# ---- certificates that are wrong: one sentence each, with what to do


def test_another_nodes_certificate_is_refused(market: Market) -> None:
    with pytest.raises(DoorError, match="is another node's, for another address: give that node its own"):
        at_door(market, market.node("a"), enter(market), presents="b")


def test_an_expired_certificate_is_refused(market: Market) -> None:
    with issued(timedelta(days=40), 30):
        renew_certificate(market, "a", days=30)
    renew_roster(market, RosterWish(pin=("a",)))
    with pytest.raises(DoorError, match="has expired: make a new one with isocast certs node NAME"):
        at_door(market, market.node("a"), enter(market))


def test_a_clock_before_the_certificates_time_is_named(market: Market) -> None:
    with issued(-timedelta(days=2), 30):
        renew_certificate(market, "a")
    renew_roster(market, RosterWish(pin=("a",)))
    with pytest.raises(DoorError, match=r"not valid yet by this machine's clock, which shows .*: set the clock"):
        at_door(market, market.node("a"), enter(market))


def test_another_authority_is_not_trusted(market: Market, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    other = load_market(market_file(folder, settings=SECURE))
    with pytest.raises(DoorError, match=r"not of this market's authority: copy tls/ca\.crt"):
        at_door(market, market.node("a"), enter(other))


def test_a_door_without_tls_is_named(market: Market) -> None:
    async def work(here: Door, address: str) -> None:
        here._tls = None  # noqa: SLF001
        with pytest.raises(DoorError, match=r"does not speak TLS as this side does: .*network\.tls"):
            await visit(address, here.port, "edge/bank", KEY, tls=client_tls(market, address))

    at_door(market, market.node("a"), work)


def test_without_files_the_sentence_says_where_they_come_from(market: Market) -> None:
    certificate_paths(market, "a")[1].unlink()
    with pytest.raises(ConfigurationError, match="its doors need a certificate: isocast certs init makes it"):
        server_tls(market, market.node("a"))
    certificate_paths(market, CA)[0].write_text("no certificate")
    with pytest.raises(ConfigurationError, match="copy it from where isocast certs init was run"):
        client_tls(market, market.node("a").address)


# ---- the handshake is bound to the channel


def test_a_middleman_with_a_certificate_of_this_market_is_found_out(market: Market) -> None:
    """It passes everything on; both ends have the right key, and yet no proof is believed: the channels differ."""
    own, real = market.node("b"), market.node("a")

    async def work(here: Door, address: str) -> None:
        async def between(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            theirs, ours = await asyncio.open_connection(address, here.port, ssl=client_tls(market, address))

            async def pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
                with suppress(OSError):
                    while some := await source.read(4_096):
                        sink.write(some)
                sink.close()

            await asyncio.gather(pass_on(reader, ours), pass_on(theirs, writer))

        shown = server_tls(market, own)
        assert shown is not None
        server = await asyncio.start_server(between, own.address, 0, ssl=shown.context)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(DoorRefusedError, match="unknown name or wrong key"):
            await visit(own.address, port, "edge/bank", KEY, tls=client_tls(market, own.address))
        server.close()

    complaints = at_door(market, real, work)
    assert "wrong proof" in complaints[0][1]


# ---- half-open connections and slow-loris


@pytest.mark.parametrize("says", [b"", b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.1\r\n"], ids=["nothing", "half", "http"])
def test_half_open_tls_keeps_nobody_out(market: Market, says: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "HANDSHAKE_S", 30.0)  # Nothing here waits for its end.

    async def work(here: Door, address: str) -> None:
        mutes = [await asyncio.open_connection(address, here.port) for _ in range(3 * door.MAX_HALF_OPEN)]
        for _, writer in mutes:
            writer.write(says)
        await enter(market)(here, address)
        assert here.lobby.waiting <= door.MAX_HALF_OPEN
        for _, writer in mutes:
            writer.transport.abort()

    at_door(market, market.node("a"), work)


def test_a_handshake_that_does_not_end_is_ended_and_named(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "HANDSHAKE_S", 0.1)

    async def work(here: Door, address: str) -> None:
        reader, writer = await asyncio.open_connection(address, here.port)
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()

    complaints = at_door(market, market.node("a"), work)
    assert complaints[0][0] == "a stranger at 127.0.0.1"


def test_a_page_with_tls_tells_only_who_shows_the_token(market: Market) -> None:
    plan = market.node("a")
    counters = NodeCounters()

    async def play() -> None:
        server = StatusServer(
            {"/statusz": lambda: Answer(b"{}")}, counters, tls=server_tls(market, plan), token=read_status_token(market)
        )
        await server.start(plan.address)
        try:
            async with asyncio.timeout(90):
                for token, said in ((read_status_token(market), "200"), ("wrong", "401")):
                    target = client_tls(market, plan.address)
                    reader, writer = await asyncio.open_connection(plan.address, server.port, ssl=target)
                    head = f"GET /statusz HTTP/1.1\r\nAuthorization: Bearer {token}\r\n\r\n"
                    writer.write(head.encode())
                    assert (await reader.read()).split()[1].decode() == said
                    writer.close()
                mutes = [await asyncio.open_connection(plan.address, server.port) for _ in range(40)]
                reader, writer = await asyncio.open_connection(
                    plan.address, server.port, ssl=client_tls(market, plan.address)
                )
                writer.write(b"GET / HTTP/1.1\r\n\r\n")
                assert b" 401 " in await reader.read()
                for _, mute in (*mutes, (reader, writer)):
                    mute.transport.abort()
        finally:
            await server.stop()

    asyncio.run(play())
    assert counters.http_requests == 1


# ---- files


def test_private_files_are_private_and_kept(market: Market) -> None:
    names = [file.name for file in read_certificates(market)]
    assert names == [CA, *market.by_name]
    before = {name: certificate_paths(market, name)[0].read_bytes() for name in names}
    assert not any(file.made for file in init_certificates(market))
    assert {name: certificate_paths(market, name)[0].read_bytes() for name in names} == before
    secret = [token_path(market), *[certificate_paths(market, name)[1] for name in names]]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in secret)
    assert all(not file.fault for file in read_certificates(market))
    assert read_status_token(market) not in str(node_target(market, market.node("a")))


def test_what_is_wrong_with_a_certificate_is_told(market: Market) -> None:
    def fault(name: str, now: datetime | None = None) -> str:
        return next(file.fault for file in read_certificates(market, now) if file.name == name)

    now = datetime.now(UTC)
    assert "renew it soon, with isocast certs node a" in fault("a", now + timedelta(days=800))
    assert "isocast certs node a makes a new one" in fault("a", now + timedelta(days=1_000))
    assert "set this machine's clock" in fault("a", now - timedelta(days=1))
    certificate_paths(market, "b")[1].chmod(0o644)
    assert "lets others read it: chmod 600" in fault("b")
    certificate_paths(market, "c")[0].write_text("nonsense")
    assert "is not a certificate" in fault("c")
    certificate_paths(market, "floor")[0].unlink()
    assert "is missing" in fault("floor")
    paths = certificate_paths(market, "a")
    certificate_paths(market, "x")[0].write_bytes(paths[0].read_bytes())
    assert f"does not name {market.node('x').address}" in fault("x")


@pytest.mark.parametrize("text", ["", "two words", "ab\x07"])
def test_a_token_that_is_none_is_refused(market: Market, text: str) -> None:
    token_path(market).write_text(text)
    with pytest.raises(ConfigurationError, match="one line without spaces"):
        read_status_token(market)


def test_a_token_that_others_may_read_is_refused_and_not_shown(market: Market) -> None:
    token = read_status_token(market)
    token_path(market).chmod(0o640)
    with pytest.raises(ConfigurationError, match="chmod 600") as caught:
        read_status_token(market)
    assert token not in str(caught.value)


def test_only_the_machine_with_the_authoritys_key_makes_certificates(market: Market) -> None:
    certificate_paths(market, CA)[1].unlink()
    with pytest.raises(ConfigurationError, match="run this where isocast certs init was run"):
        renew_certificate(market, "a")
    with pytest.raises(ConfigurationError, match="there is no node 'nobody'"):
        renew_certificate(market, "nobody")


@pytest.mark.parametrize("mode, address, expected", [
    ("auto", "127.0.0.1", False),
    ("auto", "10.0.0.1", True),
    ("on", "127.0.0.1", True),
    ("off", "10.0.0.1", False),
])  # fmt: skip
def test_the_rule_of_tls(tmp_path: Path, mode: str, address: str, expected: bool) -> None:  # noqa: FBT001
    found = load_market(market_file(tmp_path, settings={"network": {"tls": mode}}))
    assert found.uses_tls(address) is expected


def test_a_market_on_loopback_needs_no_certificates(tmp_path: Path) -> None:
    found = load_market(market_file(tmp_path))
    assert not token_path(found).exists()
    assert server_tls(found, found.node("a")) is None


# ---- a whole market


def test_a_whole_market_publishes_repairs_and_tells_through_tls(tmp_path: Path) -> None:
    """The customer starts late and hears nothing before: what it has of it came through a door."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    nodes = {name: {**node, "http_port": port} if name == "a" else node for name, node in SMALL.items()}

    async def play() -> None:
        async with World(market_file(tmp_path, nodes, settings=SECURE)) as world:
            await world.start("a", "b", "c", "floor", "x", "archive")
            await world.publish("floor", trades(5))
            await world.until_journals_have(range(1, 6), "a", "archive")
            await world.start("bank")
            await world.until_journals_have(range(1, 6), "bank")
            (told,) = await poll([node_target(world.market, world.market.node("a"))], seconds=10)
            assert told.status is not None, told.trouble
            assert told.status.name == "a"

    run(play())
