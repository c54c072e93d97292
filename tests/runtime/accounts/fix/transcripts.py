"""Transcripts of FIX sessions against a real server on loopback, in virtual time.

    == a name that says what is shown
    connect
    > 35=A|34=1|98=0|108=30          send: 49, 52 and 56 are added after 34, 8, 9 and 10 around it; 49=- leaves it out
    < 35=A|34=1|98=0|108=30          the next message is this, in this order; 8, 9, 10, 49, 52, 56 are checked
    >> 8=FIX.4.4|9=5|35=0|10=000     send these bytes; 9=# and 10=# are computed
    wait 3                           seconds of virtual time
    heard 5                          the server expects this number next
    garbled 2                        the server has ignored so many messages
    closed                           the connection ends, without another byte
    disconnect                       we go
    restart                          the server is cut off in the middle of whatever it does, and another takes over
    stop                             the server says that it leaves
    desk trade o1 40 10.04           what happens at the desk
    2: connect                       another connection

`{T}` is the time now, `{T-121}` seconds before; `*` in what is expected is any value, `~` is SOH inside a value.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import AsyncGenerator, Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from pathlib import Path

from tests.runtime.accounts.fake_desk import START_NS, FakeDesk

from isocast.orders.desk import Reason, ReportKind, TradeReport
from isocast.runtime.accounts.fix.connection import FixBounds, Outgoing
from isocast.runtime.accounts.fix.messages import Field, Message, utc_text
from isocast.runtime.accounts.fix.orders_door import OrdersDoor, units_of
from isocast.runtime.accounts.fix.server import Application, FixServer
from isocast.runtime.accounts.fix.store import SessionStore

OURS, THEIRS = "ISOCAST", "TRADER"
LIMIT_S = 60.0
"""For a machine that stalls: a passing test never waits that long."""
_SECOND = 1_000_000_000
_CHECKED = (8, 9, 10, 49, 52, 56)
PATIENT = FixBounds(logon_seconds=LIMIT_S, write_seconds=LIMIT_S)
"""For tests that are not about these bounds."""


class VirtualTime:
    """Goes only when a test says so."""

    def __init__(self) -> None:
        self._now = START_NS
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._count = count()
        self._off: set[int] = set()

    def now(self) -> int:
        return self._now

    def call_at(self, instant: int, callback: Callable[[], None]) -> Callable[[], None]:
        number = next(self._count)
        if instant <= self._now:
            return asyncio.get_running_loop().call_soon(callback).cancel
        heappush(self._due, (instant, number, callback))
        return lambda: self._off.add(number)

    def advance(self, nanoseconds: int) -> None:
        self._now += nanoseconds
        while self._due and self._due[0][0] <= self._now:
            _, number, callback = heappop(self._due)
            if number not in self._off:
                callback()


class EchoVisitor:
    """Sends orders back, as QuickFIX's acceptance tests have it; the same ClOrdID with 97=Y is ignored."""

    account = 1

    def __init__(self) -> None:
        self._seen: set[str] = set()

    async def handle(self, message: Message) -> Sequence[Outgoing]:
        client_id = message.first[11]
        if message.get(97) == "Y" and client_id in self._seen:
            return []
        self._seen.add(client_id)
        header = {8, 9, 10, 34, 35, 43, 49, 52, 56, 97, 122}
        body: list[Field] = sorted((field for field in message.fields if field[0] not in header), key=lambda f: f[0])
        return [Outgoing(message.kind, body)]

    async def newest_report(self) -> int:
        return 0

    async def reports(self, after: int) -> AsyncGenerator[Outgoing, None]:
        if after < 0:
            yield Outgoing("8", [])
        await asyncio.Event().wait()

    async def until_ended(self) -> str:
        await asyncio.Event().wait()
        return ""

    async def leave(self) -> None:
        pass


class EchoApplication:
    async def admit(self, logon: Message, address: str, *, is_private: bool) -> EchoVisitor | None:
        assert address
        assert is_private
        return EchoVisitor() if logon.first[49] == THEIRS else None


class Stage:
    """A server, its store and its clock."""

    def __init__(self, folder: Path, application: Application | None = None, bounds: FixBounds | None = None) -> None:
        self.times = VirtualTime()
        self.desk = FakeDesk(
            {"anna": ("secret", 7), "ben": ("hidden", 8), "copy": ("reads", 7)}, readers=["copy"], now=self.times.now
        )
        door = OrdersDoor(self.desk, self.times.now, lambda _login, comp_id: comp_id == "CANCELS")
        self.application = application or door
        self.bounds = bounds or PATIENT
        self._path = folder / "fix.db"
        self.store: SessionStore
        self.server: FixServer

    async def start(self) -> None:
        self.store = SessionStore(self._path, is_new=not self._path.exists())
        self.server = FixServer(OURS, self.application, self.store, times=self.times, bounds=self.bounds)
        await self.server.start("127.0.0.1", 0)

    async def end(self) -> None:
        await self.server.cut()
        await self.store.close()

    async def restart(self) -> None:
        await self.end()
        await self.start()


def framed(body: str, *, sender: str = THEIRS, now: int = START_NS) -> bytes:
    """The bytes of a line that is sent."""
    fields = [tuple(part.split("=", 1)) for part in body.split("|")]
    given = {tag for tag, _ in fields}
    added = [(tag, value) for tag, value in (("49", sender), ("52", utc_text(now)), ("56", OURS)) if tag not in given]
    at = next((index for index, (tag, _) in enumerate(fields) if tag == "34"), 0) + 1
    fields[at:at] = added
    kept = [(tag, value) for tag, value in fields if value != "-" and tag != "8"]
    begin = next((value for tag, value in fields if tag == "8"), "FIX.4.4")
    return summed(f"8={begin}|9=#|" + "|".join(f"{tag}={value}" for tag, value in kept) + "|10=#")


def summed(text: str) -> bytes:
    """With 9 and 10 computed where they are #."""
    raw = text.replace("|", "\x01").replace("~", "\x01").rstrip("\x01") + "\x01"
    if "9=#" in raw:
        head, body = raw.split("9=#\x01", 1)
        end = body.rfind("\x0110=") + 1
        raw = f"{head}9={end}\x01{body}"
    if "10=#" in raw:
        end = raw.rfind("10=#")
        raw = raw[:end] + f"10={sum(raw[:end].encode('latin-1')) % 256:03}\x01"
    return raw.encode("latin-1")


class Client:
    """One connection, which reads strictly."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, times: VirtualTime) -> None:
        self.reader, self.writer, self.times = reader, writer, times
        self.sender = THEIRS

    @classmethod
    async def connect(cls, stage: Stage) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", stage.server.port)
        return cls(reader, writer, stage.times)

    async def send(self, body: str) -> None:
        self.sender = next(
            (part[3:] for part in body.split("|") if part.startswith("49=") and "35=A" in body), self.sender
        )
        self.writer.write(framed(body, sender=self.sender, now=self.times.now()))
        await self.writer.drain()

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def frame(self) -> bytes:
        """The next message, by 9= alone: whoever sends a wrong one is found out."""
        async with asyncio.timeout(LIMIT_S):
            head = await self.reader.readuntil(b"\x019=")
            assert head == b"8=FIX.4.4\x019=", head
            length = await self.reader.readuntil(b"\x01")
            body = await self.reader.readexactly(int(length[:-1]))
            tail = await self.reader.readexactly(7)
        frame = head + length + body + tail
        assert tail == f"10={sum(frame[:-7]) % 256:03}\x01".encode(), frame
        return frame

    async def next(self) -> list[tuple[int, str]]:
        """Its fields without those that are the same everywhere, which are checked."""
        text = (await self.frame()).decode("latin-1")
        if data := re.search(r"\x01354=(\d+)\x01355=", text):
            end = data.end() + int(data[1])
            text = text[: data.end()] + text[data.end() : end].replace("\x01", "~") + text[end:]
        parts = text.split("\x01")[:-1]
        fields = [(int(part.split("=", 1)[0]), part.split("=", 1)[1]) for part in parts]
        header = dict(reversed(fields))
        assert (header[49], header[56]) == (OURS, self.sender), fields
        assert re.fullmatch(r"\d{8}-\d\d:\d\d:\d\d\.\d{3}", header[52]), fields
        head = [tag for tag, _ in fields[3:] if tag in (34, 43, 49, 52, 56, 115, 116, 122, 128, 129, 144, 145)]
        assert head == sorted(head), fields
        return [field for field in fields if field[0] not in _CHECKED]

    async def expect(self, wanted: str) -> None:
        got = await self.next()
        shown = "|".join(f"{tag}={value}" for tag, value in got)
        pattern = "|".join(part.split("=", 1)[0] + "=*" if part.endswith("=*") else part for part in wanted.split("|"))
        parts = list(zip(pattern.split("|"), shown.split("|"), strict=False))
        same = len(got) == len(wanted.split("|")) and all(
            want == have or (want.endswith("=*") and have.split("=")[0] == want.split("=")[0]) for want, have in parts
        )
        assert same, f"\nexpected {wanted}\ngot      {shown}"

    async def closed(self) -> None:
        try:
            async with asyncio.timeout(LIMIT_S):
                rest = await self.reader.read()
        except ConnectionResetError:
            rest = b""
        assert rest == b"", rest
        await self.gone()

    async def gone(self) -> None:
        self.writer.close()
        try:
            async with asyncio.timeout(LIMIT_S):
                await self.writer.wait_closed()
        except OSError:
            pass


async def eventually(is_so: Callable[[], bool]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(LIMIT_S):
        while not is_so():  # noqa: ASYNC110 - the condition has no event.
            await asyncio.sleep(0.002)


class Transcript:
    """Plays the lines of one case."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._clients: dict[str, Client] = {}
        self._trades: dict[str, TradeReport] = {}

    async def play(self, lines: Sequence[str]) -> None:
        try:
            for line in lines:
                try:
                    await self._line(line)
                except (AssertionError, TimeoutError, EOFError, OSError) as error:
                    raise AssertionError(f"at: {line}\n{error!s:.800} ({type(error).__name__})") from error
        finally:
            for client in self._clients.values():
                await client.gone()

    async def _line(self, line: str) -> None:
        who, colon, rest = line.partition(": ")
        name, line = (who, rest) if colon and who.isdigit() else ("1", line)
        word, _, rest = line.partition(" ")
        rest = re.sub(r"\{T([+-]\d+)?\}", self._time, rest.strip())
        if word == "connect":
            if name in self._clients:
                await self._clients[name].gone()
            self._clients[name] = await Client.connect(self._stage)
        elif word in {"wait", "restart", "stop", "desk", "heard", "garbled", "left"}:
            await self._happens(word, rest)
        else:
            await self._talk(self._clients[name], word, rest)

    async def _talk(self, client: Client, word: str, rest: str) -> None:
        match word:
            case ">":
                await client.send(rest)
            case ">>":
                await client.raw(summed(rest))
            case "<":
                await client.expect(rest)
            case "closed":
                await client.closed()
            case "disconnect":
                await client.gone()
                await eventually(lambda: not self._stage.server.sessions())
            case _:
                raise AssertionError(f"no such step: {word}")

    async def _happens(self, word: str, rest: str) -> None:
        stage = self._stage
        match word:
            case "wait":
                stage.times.advance(round(float(rest) * _SECOND))
            case "heard":
                wanted = int(rest)
                await eventually(lambda: [state.next_in for state in stage.server.sessions()] == [wanted])
            case "garbled":
                wanted = int(rest)
                await eventually(lambda: [state.garbled for state in stage.server.sessions()] == [wanted])
            case "left":
                wanted = int(rest)
                await eventually(lambda: len(stage.desk.left) == wanted)
            case "restart":
                await stage.restart()
            case "stop":
                self._stopping = asyncio.create_task(stage.server.stop())
            case _:
                self._at_desk(shlex.split(rest))

    def _at_desk(self, words: list[str]) -> None:
        desk = self._stage.desk
        match words:
            case ["trade", client_id, quantity, price]:
                self._trades[client_id] = desk.trade(client_id, int(quantity), units_of(price, "price"))
            case ["confirm", client_id]:
                desk.settle(ReportKind.CONFIRMED, self._trades[client_id])
            case ["bust", client_id]:
                desk.settle(ReportKind.BUSTED, self._trades[client_id])
            case ["correct", client_id, quantity, price]:
                right = self._trades[client_id]._replace(
                    last_quantity=int(quantity), last_price=units_of(price, "price") if int(quantity) else 0
                )
                desk.settle(ReportKind.CORRECTED, right)
            case ["expire", client_id]:
                desk.end(client_id, ReportKind.EXPIRED)
            case ["refuse", client_id, reason]:
                desk.end(client_id, ReportKind.REFUSED, Reason(reason))
            case ["hold"]:
                desk.is_auto = False
            case ["away"]:
                desk.is_available = False
            case ["fail"]:
                desk.trouble = RuntimeError("a disk")
            case _:
                raise AssertionError(f"no such event: {words}")

    def _time(self, found: re.Match[str]) -> str:
        return utc_text(self._stage.times.now() + int(found[1] or 0) * _SECOND)


def cases(folder: Path) -> list[tuple[str, str, list[str]]]:
    """Of all files: the application, the name, the lines."""
    found: list[tuple[str, str, list[str]]] = []
    for path in sorted(folder.glob("*.txt")):
        application = "echo" if not path.stem.startswith("orders") else "orders"
        for part in re.split(r"^== ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
            title, *lines = part.splitlines()
            steps = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
            found.append((application, f"{path.stem}: {title}", steps))
    return found
