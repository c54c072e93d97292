"""An unmodified QuickFIX client against our server: it trades, loses its connection in the middle, and reconciles.

`quickfix` is found in this environment, or in the one whose interpreter ISOCAST_QUICKFIX_PYTHON names:

    python -m venv qf && qf/bin/pip install quickfix-ssl && export ISOCAST_QUICKFIX_PYTHON=$PWD/qf/bin/python
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

import pytest
from tests.runtime.accounts.fake_desk import FakeDesk
from tests.runtime.worlds import market_file

from isocast.orders.desk import ReportKind
from isocast.runtime.accounts.fix import dictionary
from isocast.runtime.accounts.fix.connection import LoopTime
from isocast.runtime.accounts.fix.orders_door import OrdersDoor
from isocast.runtime.accounts.fix.server import FixServer
from isocast.runtime.accounts.fix.store import SessionStore
from isocast.runtime.market.certificates import init_certificates
from isocast.runtime.market.file import load_market
from isocast.runtime.market.tls_files import CA, certificate_paths
from isocast.runtime.net.tls import server_tls

CLIENT = Path(__file__).with_name("quickfix_client.py")
LIMIT_S = 60.0
PAGE = Path(__file__).parents[2] / "docs/how-to/fix.md"


def dictionary_path() -> Path:
    prefix = subprocess.run([str(PYTHON), "-c", "import sys; print(sys.prefix)"], capture_output=True, check=True)
    return Path(prefix.stdout.decode().strip()) / "share/quickfix/FIX44.xml"


def settings(folder: Path, port: int, authority: Path | None) -> str:
    """The file of the how-to, with this test's places in it; QuickFIX checks all messages of ours by its dictionary."""
    text, secure = re.findall(r"```ini\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    path = dictionary_path()
    places = {
        "FileStorePath": folder / "fix-store",
        "FileLogPath": folder / "fix-log",
        "SocketConnectPort": port,
        "DataDictionary": path,
        "UseDataDictionary": "Y" if path.exists() else "N",
    }
    if authority is not None:
        places["CertificationAuthoritiesFile"] = authority
        text = text.replace("[DEFAULT]\n", f"[DEFAULT]\n{secure}")
    for name, value in places.items():
        text, count = re.subn(rf"^{name}=.*$", f"{name}={value}", text, flags=re.MULTILINE)
        assert count == 1
    return str(text)


def interpreter() -> str | None:
    named = os.environ.get("ISOCAST_QUICKFIX_PYTHON")
    return named or (sys.executable if importlib.util.find_spec("quickfix") is not None else None)


PYTHON = interpreter()
pytestmark = pytest.mark.skipif(
    PYTHON is None, reason="quickfix is not installed: pip install quickfix-ssl, or set ISOCAST_QUICKFIX_PYTHON"
)


class Heard(NamedTuple):
    event: str
    fields: dict[int, str]


class Trader:
    """The process, and what it heard."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.heard: list[Heard] = []
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if not line.startswith(b"{"):
                continue  # QuickFIX says something of its own about certificates.
            told = json.loads(line)
            self.heard.append(Heard(told["event"], {int(tag): value for tag, value in told["fields"]}))
            self._news.set()
        self._news.set()

    def reports(self) -> list[dict[int, str]]:
        return [fields for event, fields in self.heard if event == "application"]

    def count(self, event: str) -> int:
        return sum(heard.event == event for heard in self.heard)

    async def until(self, what: str, count: int) -> None:
        """So many events, or so many different ExecIDs for `reports`."""
        async with asyncio.timeout(LIMIT_S):
            while (len({each.get(17) for each in self.reports()}) if what == "reports" else self.count(what)) < count:
                assert not self._task.done(), "the client has ended"
                self._news.clear()
                await self._news.wait()

    async def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        await self._process.stdin.drain()

    async def stop(self) -> None:
        with suppress(ConnectionError):
            await self.say("stop")
        with suppress(TimeoutError):
            async with asyncio.timeout(LIMIT_S):
                await self._process.wait()
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        await self._task


class Wire:
    """Between both: it lets so many bytes of the server through, and can be cut."""

    def __init__(self) -> None:
        self.to_port = 0
        self.left: int | None = None
        """Bytes that still go to the client; None: any number."""
        self._server: asyncio.Server | None = None
        self._pairs: list[asyncio.StreamWriter] = []
        self.is_open = True

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._meet, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._pairs.append(writer)
        if not self.is_open:
            writer.transport.abort()
            return
        try:
            there_reader, there = await asyncio.open_connection("127.0.0.1", self.to_port)
        except OSError:
            writer.transport.abort()
            return
        self._pairs.append(there)
        ends = (self._pass(reader, there, counts=False), self._pass(there_reader, writer, counts=True))
        with suppress(OSError):
            await asyncio.gather(*ends)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counts: bool) -> None:
        with suppress(OSError):
            while data := await reader.read(4096):
                if counts and self.left is not None:
                    data, self.left = data[: self.left], self.left - len(data)
                writer.write(data)
                await writer.drain()
                if counts and self.left is not None and self.left <= 0:
                    self.is_open = False
                    self.cut()
        writer.close()

    def cut(self) -> None:
        for writer in self._pairs:
            writer.close()
        self._pairs.clear()

    async def end(self) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()


class Gateway:
    """A server that can be started again on the same store."""

    def __init__(self, folder: Path, tls: ssl.SSLContext | None = None) -> None:
        self.desk = FakeDesk({"anna": ("secret", 7)}, now=LoopTime().now)
        self._tls = tls
        self._path = folder / "fix.db"
        self.wire = Wire()

    async def start(self) -> None:
        self.store = SessionStore(self._path, is_new=not self._path.exists())
        self.server = FixServer("ISOCAST", OrdersDoor(self.desk, LoopTime().now), self.store, tls=self._tls)
        await self.server.start("127.0.0.1", 0)
        self.wire.to_port = self.server.port

    async def end(self) -> None:
        await self.server.cut()
        await self.store.close()


@asynccontextmanager
async def trading(
    folder: Path, tls: ssl.SSLContext | None = None, authority: Path | None = None
) -> AsyncIterator[tuple[Gateway, Trader]]:
    gateway = Gateway(folder, tls)
    await gateway.start()
    port = await gateway.wire.start()
    path = folder / "client.cfg"
    path.write_text(settings(folder, port, authority), encoding="utf-8")
    command = (str(PYTHON), str(CLIENT), str(path), "anna", "secret", *(["tls"] if tls is not None else []))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    trader = Trader(process)
    try:
        await trader.until("logon", 1)
        yield gateway, trader
    finally:
        await trader.stop()
        await gateway.end()
        await gateway.wire.end()


def reconciled(gateway: Gateway, trader: Trader) -> None:
    """The client heard every report of the account, in order, and none as new twice."""
    new = [fields for fields in trader.reports() if fields[35] in ("8", "9") and fields.get(17, "9") != "0"]
    ids = [fields[17] for fields in new if fields[35] == "8"]
    told = gateway.desk.told[7]
    assert ids == [f"7-{report.number}" for report in told if report.kind is not ReportKind.CHANGE_REFUSED]
    filled = {report.client_id: report.filled for report in told if report.kind is ReportKind.TRADED}
    assert {fields[11]: int(fields[14]) for fields in new if fields.get(150) == "F"} == filled
    assert not [fields for fields in trader.heard if fields.fields.get(35) in ("3", "j")]


def test_an_unmodified_client_logs_on_and_trades(tmp_path: Path) -> None:
    async def story() -> None:
        async with trading(tmp_path) as (gateway, trader):
            await trader.say("order o1 1 100 10.05")
            await trader.until("reports", 2)
            gateway.desk.settle(ReportKind.CONFIRMED, gateway.desk.trade("o1", 40, 100_400))
            await trader.until("reports", 4)
            await trader.say("replace r1 o1 1 150 10.1")
            await trader.until("reports", 6)
            await trader.say("cancel c1 r1 1")
            await trader.until("reports", 8)
            await trader.say("cancel c2 r1 1")
            await trader.until("application", 9)
            assert [fields[35] for fields in trader.reports()] == ["8"] * 8 + ["9"]
            assert [fields.get(150) for fields in trader.reports()] == [*"A0FDE564", None]
            reconciled(gateway, trader)

    asyncio.run(story())


def test_an_unmodified_client_trades_over_tls(tmp_path: Path) -> None:
    market = load_market(market_file(tmp_path, settings={"network": {"tls": "on"}}))
    init_certificates(market)
    tls = server_tls(market, next(iter(market.nodes)))
    assert tls is not None
    tls.context.minimum_version = ssl.TLSVersion.TLSv1_2  # The OpenSSL of its wheel is 1.0.2.

    async def story() -> None:
        async with trading(tmp_path, tls.context, certificate_paths(market, CA)[0]) as (gateway, trader):
            await trader.say("order o1 1 100 10.05")
            await trader.until("reports", 2)
            reconciled(gateway, trader)

    asyncio.run(story())


def test_a_client_whose_connection_is_cut_in_the_middle_asks_for_the_rest(tmp_path: Path) -> None:
    async def story() -> None:
        async with trading(tmp_path) as (gateway, trader):
            wire = gateway.wire
            await trader.say("order o1 1 1000 10.05")
            await trader.until("reports", 2)
            wire.left = 700  # In the middle of the third or fourth report.
            for price in range(100_000, 100_010):
                gateway.desk.trade("o1", 10, price)
            await trader.until("logout", 1)
            await trader.say("order o2 2 100 10.5")  # Nobody is there: QuickFIX keeps it.
            gateway.desk.trade("o1", 10, 100_500)
            wire.left, wire.is_open = None, True
            await trader.until("logon", 2)
            await trader.until("reports", 2 + 10 + 1 + 2)
            reconciled(gateway, trader)
            orders = [request.client_id for _, request in gateway.desk.submitted]
            assert orders == ["o1", "o2"]

    asyncio.run(story())


def test_a_server_that_starts_again_goes_on_with_its_client(tmp_path: Path) -> None:
    async def story() -> None:
        async with trading(tmp_path) as (gateway, trader):
            for turn in range(1, 4):
                await trader.say(f"order o{turn} 1 100 10.05")
                await trader.until("reports", 4 * turn - 2)
                await gateway.end()
                gateway.desk.trade(f"o{turn}", 40, 100_400)
                gateway.desk.trade(f"o{turn}", 60, 100_500)
                await gateway.start()
                await trader.until("logon", turn + 1)
                await trader.until("reports", 4 * turn)
            reconciled(gateway, trader)

    asyncio.run(story())


def test_the_program_of_the_how_to_trades(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(import quickfix.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "trader.py").write_text(program.replace('"ISO"', '"XISO"'), encoding="utf-8")
    (tmp_path / "password").write_text("secret\n", encoding="utf-8")

    async def story() -> None:
        gateway = Gateway(tmp_path)
        await gateway.start()
        config = settings(tmp_path, gateway.server.port, None)
        await asyncio.to_thread((tmp_path / "fix.cfg").write_text, config, encoding="utf-8")
        pipe = asyncio.subprocess.PIPE
        command = (str(PYTHON), "-u", "trader.py")
        process = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, stdin=pipe, stdout=pipe)
        assert process.stdout is not None
        async with asyncio.timeout(LIMIT_S):
            printed = [(await process.stdout.readline()).decode() for _ in range(2)]
        process.kill()
        await process.communicate()
        assert ["|150=A|" in printed[0], "|150=0|" in printed[1]] == [True, True]
        await gateway.end()

    asyncio.run(story())


def test_our_tables_are_those_of_its_dictionary() -> None:
    """Tags, header, types, values, groups and message types of FIX 4.4, as far as a gateway reads them."""
    path = dictionary_path()
    if not path.exists():
        pytest.skip("this QuickFIX came without FIX44.xml")
    root = ET.parse(path).getroot()  # noqa: S314 - a file of the environment.
    fields = {int(field.attrib["number"]): field for field in part(root, "fields")}
    numbers = {field.attrib["name"]: number for number, field in fields.items()}
    components = {each.attrib["name"]: each for each in part(root, "components")}
    groups: dict[int, set[int]] = {}

    def tags_of(element: ET.Element) -> set[int]:
        found: set[int] = set()
        for child in element:
            if child.tag == "component":
                found |= tags_of(components[child.attrib["name"]])
                continue
            number = numbers[child.attrib["name"]]
            found.add(number)
            if child.tag == "group":
                groups.setdefault(number, set()).update(tags_of(child))
                found |= groups[number]
        return found

    messages = {each.attrib["msgtype"]: each for each in part(root, "messages")}
    assert set(messages) == dictionary.KNOWN
    assert set(fields) == dictionary._TAGS  # noqa: SLF001
    assert tags_of(part(root, "header")) == dictionary._HEADER  # noqa: SLF001
    for kind, body in dictionary._BODIES.items():  # noqa: SLF001
        assert tags_of(messages[kind]) == body, kind
    for counter, members in dictionary._GROUPS.items():  # noqa: SLF001
        assert groups[counter] == set(members), counter
    for tag, values in dictionary._VALUES.items():  # noqa: SLF001
        assert {value.attrib["enum"] for value in fields[tag]} == values, tag
    for tag in set().union(*dictionary._ALLOWED.values()):  # noqa: SLF001
        kinds = [kind for kind, tags in dictionary._TYPES.items() if tag in tags]  # noqa: SLF001
        assert kinds == TYPES.get(fields[tag].attrib["type"], []), tag


TYPES = {
    name: [ours]
    for ours, theirs in {
        "count": "SEQNUM LENGTH NUMINGROUP",
        "decimal": "AMT QTY PRICE PRICEOFFSET PERCENTAGE FLOAT",
        "int": "INT",
        "char": "CHAR",
        "currency": "CURRENCY",
        "values": "MULTIPLEVALUESTRING",
        "boolean": "BOOLEAN",
        "date": "LOCALMKTDATE",
        "month": "MONTHYEAR",
    }.items()
    for name in theirs.split()
}
"""Of QuickFIX, and ours; text has none."""


def part(root: ET.Element, name: str) -> ET.Element:
    found = root.find(name)
    assert found is not None
    return found
