"""The server: who gets in, bounds, TLS, slow readers, and a server that is cut off between any two messages."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.runtime.accounts.fix.transcripts import (
    LIMIT_S,
    OURS,
    PATIENT,
    Client,
    EchoApplication,
    Stage,
    eventually,
    framed,
)
from tests.runtime.worlds import market_file

from isocast.orders.desk import Login, NewOrder, TradeReport, TradingRequest
from isocast.runtime.accounts.fix.connection import FixBounds, LoopTime
from isocast.runtime.accounts.fix.messages import decode
from isocast.runtime.accounts.fix.orders_door import OrdersDoor
from isocast.runtime.accounts.fix.server import FixServer
from isocast.runtime.accounts.fix.store import Change, SessionStore
from isocast.runtime.market.certificates import init_certificates
from isocast.runtime.market.file import load_market
from isocast.runtime.net.tls import client_tls, server_tls
from isocast.terms.errors import ConfigurationError, LedgerError, LedgerFault, StoreError

LOGON = "35=A|34=1|98=0|108=0|553=anna|554=secret"


def on_stage(
    folder: Path, story: Callable[[Stage], Awaitable[None]], *, bounds: FixBounds | None = None, echo: bool = False
) -> None:
    async def all_of_it() -> None:
        stage = Stage(folder, EchoApplication() if echo else None, bounds)
        await stage.start()
        try:
            await story(stage)
        finally:
            await stage.end()

    asyncio.run(all_of_it())


def order(number: int, client_id: str) -> str:
    return f"35=D|34={number}|11={client_id}|38=100|40=2|44=10|54=1|55=XISO|60=20231114-22:13:20"


async def logged_on(stage: Stage, number: int = 1) -> Client:
    client = await Client.connect(stage)
    await client.send(LOGON.replace("34=1", f"34={number}"))
    fields = dict(await client.next())
    assert fields[35] == "A"
    return client


def test_away_from_loopback_only_with_tls(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        server = FixServer(OURS, stage.application, stage.store)
        with pytest.raises(ConfigurationError, match="not loopback"):
            await server.start("0.0.0.0", 0)  # noqa: S104 - refused.

    on_stage(tmp_path, story)


def test_a_password_that_others_could_read_is_not_tried(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        logon = decode(framed(LOGON))
        assert logon is not None
        door = OrdersDoor(stage.desk, stage.times.now)
        assert await door.admit(logon, "10.0.0.1", is_private=False) is None
        assert stage.desk.tries == []
        assert await door.admit(logon, "127.0.0.1", is_private=True) is not None

    on_stage(tmp_path, story)


def test_while_the_books_are_away_nobody_logs_on_and_the_log_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def away(token: str, address: str) -> Login | None:  # noqa: ARG001 - of the desk
        raise LedgerError(LedgerFault.UNAVAILABLE, "the database is away")

    async def story(stage: Stage) -> None:
        logon = decode(framed(LOGON))
        assert logon is not None
        door = OrdersDoor(stage.desk, stage.times.now)
        with monkeypatch.context() as patch:
            patch.setattr(stage.desk, "log_in_by_token", away)
            assert await door.admit(logon, "127.0.0.1", is_private=True) is None
        assert "the database is away" in "".join(capsys.readouterr())
        assert await door.admit(logon, "127.0.0.1", is_private=True) is not None

    on_stage(tmp_path, story)


def test_a_session_over_tls(tmp_path: Path) -> None:
    market = load_market(market_file(tmp_path, settings={"network": {"tls": "on"}}))
    init_certificates(market)
    plan = next(iter(market.nodes))
    tls, trust = server_tls(market, plan), client_tls(market, plan.address)
    assert tls is not None

    async def story(stage: Stage) -> None:
        server = FixServer(OURS, stage.application, stage.store, tls=tls.context, times=stage.times)
        await server.start(plan.address, 0)
        reader, writer = await asyncio.open_connection(plan.address, server.port, ssl=trust)
        client = Client(reader, writer, stage.times)
        await client.send(LOGON)
        await client.expect("35=A|34=1|98=0|108=0")
        await client.send("35=5|34=2")
        await client.expect("35=5|34=2")
        await client.closed()
        # Whoever does not speak TLS gets nothing that is FIX.
        reader, writer = await asyncio.open_connection(plan.address, server.port)
        writer.write(framed(LOGON))
        assert b"FIX" not in await reader.read()
        writer.close()
        await server.cut()

    on_stage(tmp_path, story)


def test_so_many_bytes_before_the_logon(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        client = await Client.connect(stage)
        await client.raw(b"8=FIX.4.4\x019=16000\x0135=A\x01" + b"58=" + b"x" * 5_000)
        await client.closed()
        await (await logged_on(stage)).gone()

    on_stage(tmp_path, story)


def test_so_much_time_before_the_logon(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        client = await Client.connect(stage)
        await client.raw(b"8=FIX.4.4\x01")
        await client.closed()

    on_stage(tmp_path, story, bounds=FixBounds(logon_seconds=0.05))


def test_connections_that_say_nothing_give_way(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        silent = [await Client.connect(stage) for _ in range(6)]
        honest = await logged_on(stage)
        await honest.send("35=1|34=2|112=HELLO")
        await honest.expect("35=0|34=2|112=HELLO")
        await eventually(lambda: stage.server.open <= 4)
        for client in (*silent, honest):
            await client.gone()

    on_stage(tmp_path, story, bounds=replace(PATIENT, half_open_max=3))


def test_one_address_does_not_take_all_places(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        clients = [await Client.connect(stage) for _ in range(2)]
        await eventually(lambda: stage.server.open == 2)
        third = await Client.connect(stage)
        await third.closed()
        for client in clients:
            await client.gone()

    on_stage(tmp_path, story, bounds=replace(PATIENT, per_address_max=2))


def test_so_many_sessions_at_once(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        first = await logged_on(stage)
        second = await Client.connect(stage)
        await second.send("35=A|34=1|49=OTHER|98=0|108=0|553=anna|554=secret")
        await second.closed()
        await first.gone()

    on_stage(tmp_path, story, bounds=replace(PATIENT, sessions_max=1))


def test_hostile_bytes_in_a_session_are_dropped(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        client = await logged_on(stage)
        for piece in (
            b"8=" * 20_000,
            bytes(range(256)) * 100,
            b"8=FIX.4.4\x019=0\x01" * 5_000,
            b"\x0110=000\x01" * 3_000,
        ):
            await client.raw(piece)
        await client.raw(b"\x01" * 40_000)
        await client.send("35=1|34=2|112=STILL HERE")
        await client.expect("35=0|34=2|112=STILL HERE")
        await client.gone()

    on_stage(tmp_path, story)


def test_a_thousand_orders_in_one_piece_are_answered_in_order(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        client = await logged_on(stage)
        await client.raw(b"".join(framed(order(number, f"o{number}")) for number in range(2, 1_002)))
        heard = [dict(await client.next()) for _ in range(2_000)]
        assert [fields[11] for fields in heard if fields[150] == "A"] == [f"o{number}" for number in range(2, 1_002)]
        assert [fields[17] for fields in heard] == [f"7-{number}" for number in range(1, 2_001)]
        assert [request.client_id for _, request in stage.desk.submitted] == [f"o{n}" for n in range(2, 1_002)]
        await client.gone()

    on_stage(tmp_path, story)


def test_a_reader_that_does_not_read_is_closed_and_loses_nothing(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        deaf = socket.socket()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        deaf.connect(("127.0.0.1", stage.server.port))
        reader, writer = await asyncio.open_connection(sock=deaf, limit=4_096)
        client = Client(reader, writer, stage.times)
        await client.send(LOGON)
        await client.send(order(2, "o1"))
        await eventually(lambda: len(stage.desk.told.get(7, [])) == 2)
        # Its window is full: everything after is kept for later, and the server holds no more than its bound.
        for _ in range(4_000):
            stage.desk.trade("o1", 0, 100_000)
        await eventually(lambda: stage.server.live == 0)
        await client.gone()
        stage.bounds = PATIENT
        await stage.restart()
        again = await Client.connect(stage)
        await again.send("35=A|34=3|98=0|108=0|553=anna|554=secret|789=2")
        ids: list[str] = []
        while len(ids) < 4_002:
            fields = dict(await again.next())
            if fields[35] == "8" and fields.get(17) not in ids[-1:]:
                ids.append(fields[17])
        assert ids == [f"7-{number}" for number in range(1, 4_003)]
        await again.gone()

    on_stage(tmp_path, story, bounds=replace(PATIENT, write_seconds=0.3, buffer_bytes=16_384))


@pytest.mark.parametrize("cut_after", range(8))
def test_a_server_that_is_cut_off_between_any_two_messages_goes_on(cut_after: int, tmp_path: Path) -> None:
    """Numbers go on, and every message is resent as it was first sent."""

    async def story(stage: Stage) -> None:
        client = await logged_on(stage)
        first: dict[str, list[tuple[int, str]]] = {}
        number, ours, expected = 2, 2, 0
        for turn in range(8):
            if turn == cut_after:
                await stage.restart()
                await client.gone()
                stage.times.advance(1_000_000)
                client = await Client.connect(stage)
                await client.send(LOGON.replace("34=1", f"34={number}"))
                assert dict(await client.next())[34] == str(ours)
                number, ours = number + 1, ours + 1
            await client.send(order(number, f"o{turn}") if turn % 3 else f"35=1|34={number}|112=x")
            number += 1
            for _ in range(2 if turn % 3 else 1):
                fields = await client.next()
                assert dict(fields)[34] == str(ours)
                ours += 1
                if dict(fields)[35] == "8":
                    first[dict(fields)[34]] = fields
                    expected += 1
        await client.send(f"35=2|34={number}|7=1|16=0")
        again: dict[str, list[tuple[int, str]]] = {}
        position = 1
        while position < ours:
            fields = await client.next()
            values = dict(fields)
            assert values[34] == str(position)
            position = int(values[36]) if values[35] == "4" else position + 1
            if values[35] == "8":
                again[values[34]] = [field for field in fields if field[0] not in (43, 122)]
        assert again == first
        assert len(first) == expected
        await client.gone()

    on_stage(tmp_path, story)


class SlowDesk:
    """A desk whose answers a test lets go."""

    def __init__(self, stage: Stage) -> None:
        self._submit = stage.desk.submit
        self.gate = asyncio.Event()
        self.begun = 0

    async def submit(self, login: Login, request: TradingRequest) -> TradeReport:
        self.begun += 1
        await self.gate.wait()
        return await self._submit(login, request)


def test_an_order_that_was_not_done_when_the_server_fell_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is counted when the desk has it: not lost, and not entered twice."""
    monkeypatch.setattr("isocast.runtime.accounts.fix.connection.ENDING_S", 0.01)

    async def story(stage: Stage) -> None:
        slow = SlowDesk(stage)
        monkeypatch.setattr(stage.desk, "submit", slow.submit)
        client = await logged_on(stage)
        await client.send(order(2, "o1"))
        await client.send(order(3, "o2"))
        await client.send("35=1|34=4|112=x")
        await client.expect("35=0|34=2|112=x")
        await eventually(lambda: slow.begun == 2)
        await stage.restart()
        await client.gone()
        slow.gate.set()
        again = await Client.connect(stage)
        await again.send(LOGON.replace("34=1", "34=5"))
        await again.expect("35=A|34=3|98=0|108=0")
        await again.expect("35=2|34=4|7=2|16=0")
        await again.send(order(2, "o1").replace("34=2", "34=2|43=Y|122=20231114-22:13:20"))
        await again.send(order(3, "o2").replace("34=3", "34=3|43=Y|122=20231114-22:13:20"))
        await again.send("35=4|34=4|43=Y|122=20231114-22:13:20|36=5|123=Y")
        assert [dict(await again.next())[17] for _ in range(4)] == ["7-1", "7-2", "7-3", "7-4"]
        assert [request.client_id for _, request in stage.desk.submitted] == ["o1", "o2"]
        await again.gone()

    on_stage(tmp_path, story)


def test_a_report_that_the_disk_did_not_take_is_told_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full for a message, and not for the two numbers that are written at the end of the connection."""

    async def story(stage: Stage) -> None:
        async def full(change: Change) -> None:
            if change.frames:
                raise StoreError("fix.db", "is full")
            await write(change)

        client = await logged_on(stage)
        write = stage.store.write
        monkeypatch.setattr(stage.store, "write", full)
        await client.send(order(2, "o1"))
        await eventually(lambda: stage.server.live == 0)
        await client.gone()
        monkeypatch.setattr(stage.store, "write", write)
        again = await Client.connect(stage)
        await again.send(LOGON.replace("34=1", "34=3"))
        ids: list[str] = []
        while len(ids) < 2:  # The order may be asked for again, and what was not kept is filled.
            fields = dict(await again.next())
            ids += [fields[17]] if fields[35] == "8" else []
        assert ids == ["7-1", "7-2"]
        await again.gone()

    on_stage(tmp_path, story)


def test_an_order_behind_a_resend_that_fails_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both come in one piece, and the other side has gone before all was sent again: the order was counted."""

    async def story(stage: Stage) -> None:
        async def gone(*_: object) -> list[tuple[int, bytes]]:
            raise ConnectionResetError

        client = await logged_on(stage)
        monkeypatch.setattr(stage.store, "read", gone)
        await client.raw(framed("35=2|34=2|7=1|16=0") + framed(order(3, "o1")))
        await eventually(lambda: stage.server.live == 0)
        await client.gone()
        assert [request.client_id for _, request in stage.desk.submitted] == ["o1"]

    on_stage(tmp_path, story)


def test_a_session_without_reports_is_no_session(tmp_path: Path) -> None:
    """A desk that fails ends its watch: whoever is logged on must notice."""

    async def story(stage: Stage) -> None:
        client = await logged_on(stage)
        stage.desk.is_broken = True
        await client.send(order(2, "o1"))
        await eventually(lambda: stage.server.live == 0)
        await client.gone()
        stage.desk.is_broken = False
        again = await Client.connect(stage)
        await again.send("35=A|34=3|98=0|108=0|553=anna|554=secret|789=2")
        ids: list[str] = []
        while len(ids) < 2:  # The order may be asked for again: its answer was not sent.
            fields = dict(await again.next())
            ids += [fields[17]] if fields[35] == "8" else []
        assert ids == ["7-1", "7-2"]
        await again.gone()

    on_stage(tmp_path, story)


def test_nothing_is_sent_that_is_not_durable(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        client = await logged_on(stage)
        (tmp_path / "fix.db").rename(tmp_path / "elsewhere.db")
        await client.send("35=1|34=2|112=HELLO")
        await client.closed()
        (tmp_path / "elsewhere.db").rename(tmp_path / "fix.db")

    on_stage(tmp_path, story)


def test_the_log_says_why_and_has_no_password(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logging.captureWarnings(capture=False)

    async def story(stage: Stage) -> None:
        for logon in (LOGON.replace("secret", "wr0ng-passw0rd"), LOGON.replace("108=0", "108=-9")):
            client = await Client.connect(stage)
            await client.send(logon)
            await client.closed()

    on_stage(tmp_path, story)
    said = "".join(capsys.readouterr())
    assert "not admitted" in said
    assert "HeartBtInt" in said
    assert "wr0ng" not in said
    assert "secret" not in said


def test_where_each_session_stands(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        client = await logged_on(stage)
        await client.send(order(2, "o1"))
        await client.next()
        await client.next()
        await eventually(lambda: stage.server.sessions()[0].pending == 0)
        (state,) = stage.server.sessions()
        assert (state.next_in, state.next_out, state.report, state.garbled) == (3, 4, 2, 0)
        assert state.name == (7, "TRADER", OURS)
        await client.gone()
        await eventually(lambda: stage.server.sessions() == [])

    on_stage(tmp_path, story)


def test_the_clock_of_the_machine_drives_a_session(tmp_path: Path) -> None:
    """One heartbeat in real time; everything else about time is in the transcripts."""

    async def story(stage: Stage) -> None:
        store = SessionStore(tmp_path / "other.db", is_new=True)
        server = FixServer(OURS, EchoApplication(), store)
        await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(framed("35=A|34=1|98=0|108=1", now=LoopTime().now()))
        async with asyncio.timeout(LIMIT_S):
            await reader.readuntil(b"35=A\x01")
            await reader.readuntil(b"35=0\x01")
        stopping = asyncio.create_task(server.stop())
        async with asyncio.timeout(LIMIT_S):
            await reader.readuntil(b"58=the gateway stops\x01")
        writer.close()
        await stopping
        await store.close()
        assert stage.server.live == 0

    on_stage(tmp_path, story)


def test_a_broker_names_its_customer(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        client = await logged_on(stage)
        await client.send(order(2, "o1") + "|453=2|448=42|447=D|452=3|448=desk|447=D|452=24")
        await client.next()
        (_, request) = stage.desk.submitted[0]
        assert isinstance(request, NewOrder)
        assert request.owner == 42
        await client.gone()

    on_stage(tmp_path, story)


def test_all_orders_are_cancelled(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        client = await logged_on(stage)
        for number in (2, 3):
            await client.send(order(number, f"o{number}"))
        for _ in range(4):
            await client.next()
        await client.send("35=q|34=4|11=m1|530=7|60=20231114-22:13:20")
        heard = [dict(await client.next()) for _ in range(3)]
        (answer,) = [fields for fields in heard if fields[35] == "r"]
        assert (answer[531], answer[533], answer[11]) == ("7", "2", "m1")
        assert sorted(fields[41] for fields in heard if fields[35] == "8") == ["o2", "o3"]
        await client.gone()

    on_stage(tmp_path, story)
