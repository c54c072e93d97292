"""Status pages over real connections on loopback; whoever breaks a bound is counted and closed."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress

import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs
from tests.runtime.worlds import eventually

from isocast.runtime.market.model import NodeRole
from isocast.runtime.net.http import HEAD_BYTES_MAX, Answer
from isocast.runtime.watch.counters import NodeCounters, NodeGauges
from isocast.runtime.watch.http import StatusServer, monitor_pages
from isocast.runtime.watch.metrics import NodeIdentity
from isocast.runtime.watch.status import Monitor
from isocast.terms.errors import TransportError

WHO = NodeIdentity("london", NodeRole.PRIMARY_RECEIVER, 3, city="London")
READY = NodeGauges(epoch="2.1", epoch_number=2, mode="normal", token_age_ns=1, clock_trusted=True)
OPEN = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


class Stage:
    """A node's server, and what it counted."""

    def __init__(
        self,
        gauges: NodeGauges = READY,
        request_seconds: float = 5.0,
        connections_max: int = 16,
        token: str = "",
    ) -> None:
        self.counters = NodeCounters()
        self.gauges = gauges
        self.monitor = Monitor(WHO, self.counters, lambda: self.gauges)
        self.server = StatusServer(
            monitor_pages(self.monitor),
            self.counters,
            request_seconds=request_seconds,
            connections_max=connections_max,
            token=token,
        )

    async def ask(self, request: bytes) -> bytes:
        """Everything that comes back until the server closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        try:
            writer.write(request)
            return await reader.read()
        finally:
            writer.transport.abort()

    async def get(self, path: str) -> tuple[int, dict[str, str], bytes]:
        answer = await self.ask(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        head, _, body = answer.partition(b"\r\n\r\n")
        line, *rest = head.decode("ascii").split("\r\n")
        fields = dict(field.split(": ", 1) for field in rest)
        assert int(fields["Content-Length"]) == len(body)
        assert fields["Connection"] == "close"
        return int(line.split()[1]), fields, body


def run(act: Callable[[Stage], Awaitable[None]], stage: Stage | None = None) -> Stage:
    stage = stage or Stage()

    async def play() -> None:
        async with asyncio.timeout(120):
            await stage.server.start()
            try:
                await act(stage)
            finally:
                await stage.server.stop()

    asyncio.run(play())
    return stage


# ---- what is served


def test_metrics_are_what_prometheus_reads() -> None:
    async def act(stage: Stage) -> None:
        for path in ("/metrics", "/metrics/detail"):
            status, fields, body = await stage.get(path)
            assert status == 200
            assert fields["Content-Type"].startswith("text/plain; version=0.0.4")
            names = {family.name for family in text_string_to_metric_families(body.decode())}
            assert "isocast_ring_epoch" in names
            assert ("isocast_suspicions_by_reason" in names) == (path == "/metrics/detail")

    stage = run(act)
    assert (stage.counters.http_requests, stage.counters.http_refused) == (2, 0)


def test_status_is_one_json_object() -> None:
    async def act(stage: Stage) -> None:
        status, fields, body = await stage.get("/statusz?pretty=1")
        assert (status, fields["Content-Type"]) == (200, "application/json")
        told = json.loads(body)
        assert (told["name"], told["role"], told["city"]) == ("london", "primary-receiver", "London")
        assert told["ready"] is True
        assert told["gauges"]["epoch"] == "2.1"

    run(act)


def test_readiness_follows_the_role_and_gives_its_reasons() -> None:
    async def act(stage: Stage) -> None:
        assert await stage.get("/readyz") == (200, *(await stage.get("/readyz"))[1:])
        stage.gauges = NodeGauges(epoch="2.1", epoch_number=2, mode="sealed", clock_trusted=False)
        status, _, body = await stage.get("/readyz")
        assert status == 503
        first, *reasons = body.decode().splitlines()
        assert first == "not ready"
        assert [reason.split(":")[0] for reason in reasons] == ["sealed", "the clock is proven outside its bound"]
        assert (await stage.get("/healthz"))[0] == 200, "alive all the same"

    run(act)


def test_the_index_links_every_page_and_escapes_the_name() -> None:
    async def act(stage: Stage) -> None:
        status, fields, body = await stage.get("/")
        assert (status, fields["Content-Type"]) == (200, "text/html; charset=utf-8")
        for path in ("/healthz", "/readyz", "/statusz", "/metrics"):
            assert f'href="{path}"' in body.decode()

    run(act)
    odd = Monitor(NodeIdentity("<script>", NodeRole.CUSTOMER, 1), NodeCounters(), NodeGauges)
    body = monitor_pages(odd)["/"]().body
    assert b"&lt;script&gt;" in body
    assert b"<script>" not in body


def test_a_page_that_fails_is_an_answer_and_not_the_end() -> None:
    def broken() -> Answer:
        raise ZeroDivisionError

    async def act(stage: Stage) -> None:
        assert (await stage.get("/"))[0] == 500
        assert (await stage.get("/fine"))[2] == b"fine\n"

    stage = Stage()
    stage.server = StatusServer({"/": broken, "/fine": lambda: Answer(b"fine\n")}, stage.counters)
    with capture_logs() as logs:
        assert run(act, stage).counters.http_refused == 1
    assert [line["event"] for line in logs] == ["a request failed"]


def test_others_run_between_the_parts_of_a_long_answer() -> None:
    turns: list[int] = []

    async def turn() -> None:
        while True:
            turns.append(len(turns))
            await asyncio.sleep(0)

    def parts() -> Iterator[bytes]:
        for _ in range(3):
            yield b"%d\n" % len(turns)

    async def act(stage: Stage) -> None:
        task = asyncio.create_task(turn())
        _, fields, body = await stage.get("/")
        task.cancel()
        assert int(fields["Content-Length"]) == len(body)
        first, second, third = map(int, body.split())
        assert first < second < third

    stage = Stage()
    stage.server = StatusServer({"/": lambda: Answer(parts=parts())}, stage.counters)
    run(act, stage)


# ---- what is refused


@pytest.mark.parametrize(
    "request_bytes, status",
    [
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", 405),
        (b"GET /nothing HTTP/1.1\r\n\r\n", 404),
        (b"GET /../etc/passwd HTTP/1.1\r\n\r\n", 404),
        (b"GET http://elsewhere/ HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
        ("GET /é HTTP/1.1\r\n\r\n".encode(), 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nName : value\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 400),
        (b"GET / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", 411),
        (b"GET /" + b"a" * 2_000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * HEAD_BYTES_MAX + b"\r\n\r\n", 431),
        (b"G" * (2 * HEAD_BYTES_MAX), 431),
    ],
)
def test_a_hostile_request_is_counted_and_closed(request_bytes: bytes, status: int) -> None:
    async def act(stage: Stage) -> None:
        answer = await stage.ask(request_bytes)
        assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer[:80]
        assert (b"Allow: GET" in answer) == (status == 405)

    counters = run(act).counters
    assert (counters.http_requests, counters.http_refused) == (0, 1)


def test_a_client_that_goes_away_is_counted() -> None:
    async def act(stage: Stage) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", stage.server.port)
        writer.write(b"GET / HT")
        await writer.drain()
        writer.close()
        # Whoever is served after it was accepted after it.
        assert (await stage.get("/healthz"))[0] == 200
        await eventually(lambda: stage.counters.http_refused)

    assert run(act).counters.http_refused == 1


def test_a_client_that_says_nothing_loses_its_place() -> None:
    async def act(stage: Stage) -> None:
        answer = await stage.ask(b"GET / HTTP/1.1\r\n")
        assert answer.startswith(b"HTTP/1.1 408 ")

    assert run(act, Stage(request_seconds=0.05)).counters.http_refused == 1


def test_whoever_says_nothing_gives_way_to_the_next_request() -> None:
    """Slow-loris: all places are held by mutes, and everybody who asks is answered at once."""

    async def act(stage: Stage) -> None:
        mutes = [await asyncio.open_connection("127.0.0.1", stage.server.port) for _ in range(20)]
        for _, writer in mutes:
            writer.write(b"G")
        for _ in range(5):
            assert (await stage.ask(OPEN)).startswith(b"HTTP/1.1 200 ")
        assert stage.counters.http_refused >= 18
        for reader, writer in mutes[:18]:
            with suppress(ConnectionError):
                assert await reader.read() == b"", "its place was needed"
            writer.transport.abort()
        for _, writer in mutes[18:]:
            writer.transport.abort()

    run(act, Stage(connections_max=2))


# ---- away from loopback: a token

TOKEN = "3b1f" * 16


@pytest.mark.parametrize(
    "shown, status",
    [
        (f"Authorization: Bearer {TOKEN}\r\n", 200),
        (f"authorization: bearer   {TOKEN}  \r\n", 200),
        ("", 401),
        ("Authorization: Bearer\r\n", 401),
        (f"Authorization: Basic {TOKEN}\r\n", 401),
        (f"Authorization: Bearer {TOKEN[:-1]}\r\n", 401),
        (f"Authorization: Bearer {TOKEN}x\r\n", 401),
        (f"X-Authorization: Bearer {TOKEN}\r\n", 401),
    ],
)
@pytest.mark.parametrize("path", ["/", "/healthz", "/metrics", "/statusz", "/nowhere"])
def test_with_a_token_nothing_is_told_without_it(path: str, shown: str, status: int) -> None:
    async def act(stage: Stage) -> None:
        answer = await stage.ask(f"GET {path} HTTP/1.1\r\nHost: x\r\n{shown}\r\n".encode())
        head, _, body = answer.partition(b"\r\n\r\n")
        assert int(head.split()[1]) == (404 if status == 200 and path == "/nowhere" else status)
        if status == 401:
            assert body == b"not authorised\n"
            assert b"WWW-Authenticate: Bearer" in head
            assert b"london" not in answer
        assert TOKEN.encode() not in answer

    run(act, Stage(token=TOKEN))


def test_a_pipelined_second_request_is_not_answered() -> None:
    async def act(stage: Stage) -> None:
        answer = await stage.ask(OPEN + OPEN)
        assert answer.count(b"HTTP/1.1 ") == 1

    assert run(act).counters.http_requests == 1


def test_stopping_cuts_off_whoever_is_being_served() -> None:
    async def act(stage: Stage) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", stage.server.port)
        writer.write(b"G")
        await writer.drain()
        assert (await stage.get("/healthz"))[0] == 200
        await stage.server.stop()
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.transport.abort()
        with pytest.raises(ConnectionError):
            await asyncio.open_connection("127.0.0.1", stage.server.port)

    run(act)


def test_a_port_that_is_taken_is_named() -> None:
    async def act(stage: Stage) -> None:
        other = StatusServer({}, NodeCounters())
        with pytest.raises(TransportError, match=f"127.0.0.1:{stage.server.port}: "):
            await other.start("127.0.0.1", stage.server.port)

    run(act)


def test_it_listens_on_loopback_unless_told_otherwise() -> None:
    async def act(stage: Stage) -> None:
        with socket.socket() as trial:
            trial.bind(("127.0.0.2", stage.server.port))

    run(act)
