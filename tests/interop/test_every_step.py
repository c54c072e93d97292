"""§7.2: a gateway and a source that die by SIGKILL between any two of their steps; nothing else changes.

Each trading day has fresh books, and one death: of the gateway, of its source, or of both at once, at one of the steps
that a day without a death has named (`stepping`). Whoever died is started again at once on what it left. In the end
the sequence, what traders were told, every answer that they ever had, balances, ledger and all other tables must be
those of the day without a death.

Real are: the gateway's desk and its books, in a process of its own (`stepped_desk`) on a file of SQLite; the source,
an `isocast node` with its outbox on the disk, under `durability = "power"`; the door between them; the datagrams that
the source sends and hears; SIGKILL. Scripted are: the ring, which is this test, hears the source's messages from a
socket, orders each number once, and answers by tokens; the arbiter and the tokens that the gateway hears
(`MemorySequence`); the traders, who ask the gateway by a local socket and, where it dies before it has answered, ask
the next life the same.

`test_walk` walks the same way through a whole market of real processes. It takes seconds for a step, and so all of them
in `make soak` alone; here a step takes a third of a second of one core, and each is walked to by `make test-long`.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_bytes
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import pytest
from tests.interop.places import QUICKEST, new_market, own_place
from tests.interop.step_mutants import WITHOUT
from tests.interop.stepped_desk import read_object, write_object
from tests.interop.test_walk import ROOT, Process
from tests.orders.report_paths import path_faults
from tests.ring.makers import EPOCH, Chain
from tests.runtime.accounts.sequence import FLOOR, IBM, LISTED, USD, MemorySequence, limit, trader
from tests.runtime.hosts.contexts import Surroundings
from tests.runtime.postgres import PostgreSQL, postgresql_missing

from isocast.floor.codec import floor_topic
from isocast.orders.accounts import UNITS
from isocast.orders.desk import (
    CancelRequest,
    Login,
    Reason,
    ReplaceRequest,
    Scope,
    TradeReport,
    TradingRequest,
)
from isocast.orders.ledger import deposit
from isocast.orders.needs import Side
from isocast.runtime.accounts.audit import audit
from isocast.runtime.accounts.book import AccountBook
from isocast.runtime.accounts.order_store import reports_of
from isocast.runtime.accounts.tables import TABLES, AccountsDatabase
from isocast.runtime.client.publisher import Publisher
from isocast.runtime.disk.database import sqlite_url
from isocast.runtime.market.model import Market
from isocast.runtime.net.channels import NodeKeys
from isocast.runtime.operate.nursery import Nursery
from isocast.runtime.operate.supervisor import node_command
from isocast.terms.ids import NodeId
from isocast.wire.opaque import OpaqueMessage, read_opaque
from isocast.wire.packets import Data, Standing

PATIENCE_S: Final = 90.0
BUY, SELL = Side.BUY, Side.SELL
NODES: Final[dict[str, dict[str, object]]] = {
    "a": {"role": "primary-receiver"},
    "b": {"role": "primary-receiver"},
    "c": {"role": "primary-receiver"},
    "floor": {"role": "primary-source"},
    "x": {"role": "reformation-server"},
}
_IMPORTED: Final = (
    "isocast.cli.main",
    "isocast.runtime.hosts.process",
    "isocast.runtime.hosts.source",
    "isocast.striping.routing",
    "tests.interop.step_mutants",
)
"""Once for all lives of those who die: a fork comes before anything is opened."""
_BELL: Final = "bell"
"""The topic of what says that everything before it has been heard."""
_LOOK_S: Final = 0.001
_AGAIN: Final = 3
"""Days in which a step of the source may be missed: when it frees a message depends on when it hears a token."""
_ROUND: Final = 4
"""Tokens after which everybody holds one, and a source has heard so."""
TRADERS: Final = {"Ada": (USD, 5_000 * UNITS), "Bob": (IBM, 200)}
"""And what they bring."""


# The sequence -------------------------------------------------------------------------------------------------------


class Ring:
    """Stands in for a ring's receivers: hears what the source sends, orders each number once, and says so by tokens."""

    def __init__(self, market: Market) -> None:
        self._around = Surroundings(market, "a").context()
        self._own = self._around.plan.node
        self._channels = self._around.channels(self._own, NodeKeys(self._around.keys.core_ring()))
        self._opener = self._around.keys.opener()
        self._chain = Chain()
        self._heard: dict[NodeId, dict[int, bytes]] = {}
        """Sealed payloads by number, of each incarnation of the source."""
        self.day = MemorySequence()
        """What gateways published today."""
        self.bells: set[bytes] = set()
        self.faults: list[str] = []
        for fileno in self._channels.filenos():
            asyncio.get_running_loop().add_reader(fileno, self._hear)

    def close(self) -> None:
        for fileno in self._channels.filenos():
            asyncio.get_running_loop().remove_reader(fileno)
        self._channels.close()

    def _hear(self) -> None:
        heard = [one for one in self._channels.receive(self._around.clock.now()) if isinstance(one, Data)]
        for source in dict.fromkeys([one.sender for one in heard]):
            try:
                self._order(source, [one for one in heard if one.sender == source])
            except Exception as fault:  # noqa: BLE001 - an event loop would only log it
                self._fault(repr(fault))

    def _fault(self, what: str) -> None:
        if what not in self.faults:
            self.faults.append(what)

    def _order(self, source: NodeId, heard: Sequence[Data]) -> None:
        known = self._heard.setdefault(source, {})
        if len(self._heard) > 1:
            self._fault("the source has begun another incarnation")
        for one in heard:
            if known.setdefault(one.number, one.payload) != one.payload:
                self._fault(f"message {one.number} of the source has two contents")
        following = self._chain.head.next_number.get(source, 1)
        new = []
        while following in known:
            new.append(Data(0, EPOCH, source, following, 1, known[following]))
            following += 1
        token = self._chain.add(*new).token
        self._channels.multicast(token)
        if len(new) < len(heard):  # It has not heard, or has forgotten, that they are in.
            standing = Standing(0, EPOCH, self._own, source, following, token.token_number)
            self._channels.unicast(source, standing)
        self._channels.flush()
        for one in new:
            self._release(one)

    def _release(self, message: Data) -> None:
        opened = self._opener.open(0, message.label, message.payload)
        for place, one in enumerate(read_opaque(opened.payload)):
            if one.topic == _BELL:
                self.bells.add(one.payload)
            else:
                assert one.topic == floor_topic(FLOOR), one.topic
                self.day.publish([one.payload], b"%d/%d" % (message.number, place))


# A day --------------------------------------------------------------------------------------------------------------


class Left(NamedTuple):
    """What a day left."""

    published: list[bytes]
    """In the sequence."""
    told: list[list[TradeReport]]
    """To each trader; without the gateway's clock."""
    tables: dict[str, list[tuple[object, ...]]]
    """Of the books; without instants, and what says which process wrote it."""

    def but(self, other: Left) -> str:
        """What another day left otherwise; empty: nothing."""
        pairs: list[tuple[str, Sequence[object], Sequence[object]]] = [("sequence", self.published, other.published)]
        pairs += [("told", *two) for two in zip(self.told, other.told, strict=True)]
        pairs += [(name, rows, other.tables[name]) for name, rows in self.tables.items()]
        lines = []
        for name, ours, theirs in pairs:
            if ours != theirs:
                lines += [f"{name}: {len(ours)} rows, and now {len(theirs)}"]
                lines += [f"    no more {row}" for row in ours if row not in theirs]
                lines += [f"    but {row}" for row in theirs if row not in ours]
        return "\n".join(lines)


_UNLIKE: Final = {"settings", "lease", "outbox", "floor_snapshots", "reports"}
"""Tables that differ: keys, generations, what shares a batch. The outbox is compared in the sequence, reports as they
are told."""


def without_clock(report: TradeReport) -> TradeReport:
    """A report that no token made has the gateway's time."""
    return report if report.sequence else report._replace(at=0)


def contents(database: AccountsDatabase) -> dict[str, list[tuple[object, ...]]]:
    """All tables that are the same whenever the day was."""
    found = {}
    with database.reading() as connection:
        for table in TABLES.sorted_tables:
            if table.name not in _UNLIKE:
                columns = [column for column in table.columns if not column.name.endswith("_ns")]
                rows = connection.execute(table.select().with_only_columns(*columns))
                found[table.name] = sorted([tuple(row) for row in rows], key=repr)
    return found


class Line:
    """To one life of the gateway."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.ended = asyncio.create_task(self._listen(reader, writer))
        self._writer = writer
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._count = 0
        self._turn = asyncio.Lock()
        self._heard: int | None = None
        """Up to which token; None: it was not asked where it begins."""

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                number, found = await read_object(reader)
                self._asked.pop(number).set_result(found)
        for answer in self._asked.values():
            answer.set_exception(ConnectionResetError())
        writer.close()

    async def call(self, method: str, *values: object) -> Any:  # noqa: ANN401 - as the method says
        """ConnectionResetError where it dies before the answer."""
        if self.ended.done():
            raise ConnectionResetError
        self._count += 1
        answer = self._asked[self._count] = asyncio.get_running_loop().create_future()
        write_object(self._writer, (self._count, method, values))
        return await answer

    async def follow(self, day: MemorySequence) -> None:
        """Let it hear the sequence as far as there is one, token by token."""
        async with self._turn:
            if self._heard is None:
                self._heard = await self.call("start")
            while self._heard < len(day.tokens):
                await self.call("take", *day.tokens[self._heard])
                self._heard += 1


@dataclass
class Day:
    """A gateway with fresh books and two traders, at a source."""

    folder: Path
    url: str
    """Of the books."""
    ring: Ring
    bell: Publisher
    """Of somebody else, at the same source."""
    processes: Callable[[], None]
    """Raises where one has ended by itself."""
    answers: list[TradeReport] = field(default_factory=list)
    """That traders have had, whatever came of the gateway then."""
    told: dict[str, list[TradeReport]] = field(default_factory=dict)
    unsound: list[str] = field(default_factory=list)
    """What was wrong with the books that a dead gateway left."""
    _line: asyncio.Future[Line] = field(init=False)

    def __post_init__(self) -> None:
        self.sequence = self.ring.day = MemorySequence(LISTED)
        self.ada, self.bob = (
            Login(trader(1, place), name, frozenset(Scope), f"session of {name}") for place, name in enumerate(TRADERS)
        )
        self._line = asyncio.get_running_loop().create_future()

    # The gateway, whichever life of it ---------------------------------------------------------------

    async def come(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A life of the gateway begins."""
        line = Line(reader, writer)
        if self._line.done():
            self._line = asyncio.get_running_loop().create_future()
        self._line.set_result(line)
        await line.ended

    def mourn(self) -> None:
        """Look at what a dead gateway left; a file in a copy, because its next life is to find it as it is."""
        url, files = self.url, [self.folder / name for name in ("books.db", "books.db-wal")]
        if files[0].exists():
            copy = self.folder / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            copy.mkdir()
            for file in filter(Path.exists, files):
                shutil.copy(file, copy)
            url = sqlite_url(copy / "books.db")
        database = AccountsDatabase(url)
        self.unsound += audit(database).findings
        database.close()

    async def call(self, method: str, *values: object) -> Any:  # noqa: ANN401 - as the method says
        """Of a gateway that has heard the sequence; again of its next life where it dies before it answers."""
        while True:
            line = await self._line
            try:
                await line.follow(self.sequence)
                return await line.call(method, *values)
            except ConnectionResetError:
                await self._until(lambda line=line: self._line.done() and self._line.result() is not line)  # type: ignore[misc]

    async def _until(self, true: Callable[[], bool]) -> None:
        while not true():
            self.processes()
            await asyncio.sleep(_LOOK_S)

    async def ask(self, login: Login, *requests: TradingRequest) -> list[TradeReport]:
        """The answers; the same again as long as the gateway is not available."""
        while True:
            answers: list[TradeReport] = await self.call("ask", login, requests)
            if not any(one.reason is Reason.UNAVAILABLE for one in answers):
                self.answers += answers
                return answers

    async def token(self) -> None:
        """One with all that was accepted: what the source has taken before the bell is in the sequence before it."""
        await self.call("until_published")
        await self.ring_bell()
        self.sequence.step()
        await self.listen()

    async def ring_bell(self) -> None:
        """Until everything has been heard that was published before."""
        bell = token_bytes(8)
        await self.bell.send([OpaqueMessage(_BELL, bell)])
        while bell not in self.ring.bells:  # noqa: ASYNC110 - as `eventually`
            await asyncio.sleep(_LOOK_S)

    async def listen(self) -> None:
        """What traders are told since."""
        for login in (self.ada, self.bob):
            told = self.told.setdefault(login.name, [])
            told += await self.call("reports", login, len(told))

    # What happens ------------------------------------------------------------------------------------

    async def trade(self) -> None:
        """Orders, refusals, a replace, cancels, a batch, fills, a deposit; then everything is settled.

        No new order is refused for lack of money: it has used up a number where the gateway lives on, and none where it
        dies before another was taken, and both are right.
        """
        ada, bob = self.ada, self.bob
        await self.ask(ada, limit("rest", BUY, 100, 10))
        await self.ask(ada, ReplaceRequest("dear", "rest", 900_000))
        await self.ask(bob, limit("hit", SELL, 60, 10))
        await self.token()
        await self.ask(ada, ReplaceRequest("more", "rest", 150))
        self.deposit()
        await self.token()
        await self.ask(bob, limit("sell", SELL, 50, 9), limit("huge", SELL, 2_000_000, 9), limit("high", SELL, 5, 11))
        await self.ask(ada, CancelRequest("end", "more"))
        await self.token()
        await self.two_at_a_time()
        await self.call("cancel_all", bob, "all")
        await self.token()
        self.sequence.confirm()
        await self.listen()

    def deposit(self) -> None:
        """By an operator, beside the gateway."""
        database = AccountsDatabase(self.url)
        AccountBook(database).post(deposit("late", self.ada.account, USD, 100 * UNITS))
        database.close()

    async def two_at_a_time(self) -> None:
        """The second is committed before the first is published."""
        await self.call("hold")
        first = asyncio.create_task(self.ask(self.ada, limit("one", BUY, 20, 9)))
        await self.call("until_held", 1)
        second = asyncio.create_task(self.ask(self.bob, limit("two", SELL, 20, 9)))
        await self.call("until_held", 2)
        await self.call("let_go")
        await asyncio.gather(first, second)

    # What is left ------------------------------------------------------------------------------------

    async def until_dead(self) -> None:
        """Until the gateway that serves now has ended."""
        await self._line.result().ended

    def left(self) -> Left:
        """Of a day whose gateway has ended. AssertionError where it says two things."""
        assert not self.unsound, self.unsound
        assert not self.ring.faults, self.ring.faults
        database = AccountsDatabase(self.url)
        try:
            found = audit(database)
            assert found.is_sound, found.findings
            tables = contents(database)
            with database.reading() as connection:
                rows = connection.exec_driver_sql("SELECT body FROM reports ORDER BY account, number")
                kept = [report for (body,) in rows for report in reports_of(body)]
        finally:
            database.close()
        told = [report for reports in self.told.values() for report in reports]
        assert kept == told, "who asks again is told the same"
        assert [one for one in self.answers if one not in told] == [], "an answer that nobody knows of any more"
        for reports in self.told.values():
            assert [report.number for report in reports] == list(range(1, len(reports) + 1))
            for order in {report.order for report in reports} - {0}:
                assert list(path_faults(report for report in reports if report.order == order)) == []
        plain = [[without_clock(report) for report in reports] for reports in self.told.values()]
        return Left(list(self.sequence.published), plain, tables)


# The walk -----------------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """Where somebody dies."""

    process: str
    name: str
    passes: int
    """How often it is passed before."""

    @property
    def kind(self) -> str:
        what, _, about = self.name.partition(": ")
        return f"{self.process} {self.name if what == _DESK else what}{' freeing' * about.startswith('freeing')}"

    def __str__(self) -> str:
        return f"{self.process} {self.name}, {self.passes + 1}"


_DESK: Final = "in the desk"
_SAME: Final = (
    "in the desk: books written",
    "in the desk: books committed",
    "in the desk: taken",
    "in the desk: answered",
    "before the outbox's sync",
    "before the datagram",
    "before the acknowledgement to the gateway",
)
"""Beginnings of steps before which nothing has happened, since the last, that lasts or that others see."""
_PUBLISHING: Final = (
    "after the commit",
    "before the frame",
    "after the frame",
    "after hearing",
    "in the desk: published",
)
"""Of a gateway's steps, those that its source has to do with."""


def steps_of(process: str, names: Sequence[str]) -> list[Step]:
    """Where a process can die, of all that it named: what it does for several at once is one point."""
    passed: Counter[str] = Counter()
    found, last = [], ""
    for name in names:
        what, _, about = name.partition(": ")
        is_new = what == _DESK or what != last
        if is_new and not name.startswith(_SAME) and about.removeprefix("freeing ") != _BELL:
            found.append(Step(process, name, passed[name]))
        passed[name] += 1
        last = what
    return found


def until(names: Sequence[str], last: str) -> list[str]:
    """Up to the first of this beginning."""
    places = [place for place, name in enumerate(names) if name.startswith(last)]
    return list(names[: places[0] + 1]) if places else list(names)


def found_books(url: str) -> None:
    """Of a gateway, with what its traders bring."""
    database = AccountsDatabase(url)
    AccountBook.create(database, 1)
    book = AccountBook(database)
    for name, (asset, amount) in TRADERS.items():
        book.post(deposit(name, book.open(name).number, asset, amount))
    database.close()


class Theatre:
    """A source that lives, and dies, over many days, and who hears it."""

    def __init__(self, folder: Path, market: Market, socket: Path) -> None:
        """`socket` is where gateways meet their traders."""
        self.server: PostgreSQL | None = None
        """Where gateways have their books; None: in a file."""
        self._folder = folder
        self._market = market
        self._socket = socket
        self._books = folder / "books.db"
        words = node_command(Path(market.file), "floor")[3:]
        self._source = Process("source", folder / "source", words, lambda: self._mourn(self._source))
        self._deaths: list[Step] = []
        """That are still to come today."""
        self._marks: list[int] = []
        """How many steps whoever died today had named."""
        self.days = 0
        self.without = ""
        """Which rule the gateway, or the source, lacks."""
        self.calm: Left
        self.steps: list[Step] = []

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Theatre]:
        """Start the source, and have two days without a death: the second begins like all that follow."""
        found_books(sqlite_url(self._books))
        async with AsyncExitStack() as stack:
            self._nursery = await stack.enter_async_context(Nursery(_IMPORTED, Path(self._market.file)))
            self._ring = Ring(self._market)
            stack.callback(self._ring.close)
            self._source.live(self._nursery)
            stack.push_async_callback(self._source.end)
            server = await asyncio.start_unix_server(self._come, self._socket)
            stack.callback(server.close)
            self._bell = await stack.enter_async_context(Publisher(self._market, "floor"))
            self.calm = await self.day()
            mark = len(self._source.steps())
            assert self.calm.but(await self.day()) == ""
            self.steps = steps_of("gateway", self._gateway.steps()) + steps_of("source", self._source.steps()[mark:])
            yield self

    async def _come(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._day.come(reader, writer)

    async def day(self, *deaths: Step, both: bool = False) -> Left:
        """A day with these deaths, one after the other; with `both` the source dies, too, whenever the gateway does."""
        self.days += 1
        folder = self._folder / f"day {self.days}"
        folder.mkdir()
        if self.server is None:
            url = sqlite_url(folder / "books.db")
            shutil.copy(self._books, folder)
        else:
            url = self.server.url
            self.server.empty()
            found_books(url)
        day = self._day = Day(folder, url, self._ring, self._bell, self._check)
        words = (self._market.file, "floor", day.url, str(self._socket))
        self._gateway = Process(
            "gateway", folder / "gateway", words, lambda: self._mourn(self._gateway), "tests.interop.stepped_desk"
        )
        lacking = {WITHOUT: self.without}
        self._gateway.environment = lacking if self.without.startswith("gateway") else {}
        self._deaths, self._marks, self._both = list(deaths), [], both
        self._arm()
        self._gateway.live(self._nursery)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await day.trade()
                for _ in range(_ROUND):  # Then all of it is stable, and the source lets it go today.
                    await day.ring_bell()
        except TimeoutError:
            pytest.fail(f"a request is never answered\n{self._story()}")
        await self._gateway.end()
        self._gateway.kill()
        await day.until_dead()
        return day.left()

    def _check(self) -> None:
        self._gateway.check()
        self._source.check()

    def _process(self, step: Step) -> Process:
        return self._gateway if step.process == "gateway" else self._source

    def _arm(self) -> None:
        if self._deaths:
            step = self._deaths.pop(0)
            pids = (self._source.pid, 0) if self._both else ()
            self._process(step).arm(step.name, 1, *pids, passes=step.passes)

    def _mourn(self, process: Process) -> None:
        """Before its next life."""
        if process is self._gateway:
            self._day.mourn()
        if self._both and process is self._source:
            return
        self._marks.append(len(process.steps()))
        self._arm()

    def _story(self) -> str:
        lines = []
        for process in (self._gateway, self._source):
            lines += [f"--- {process.name}, deaths {process.deaths}", *process.steps()[-15:], process.log()]
        return "\n".join(lines)

    # Deaths ------------------------------------------------------------------------------------------

    async def over(self, steps: Sequence[Step], *first: Step, both: bool = False) -> None:
        """A day for each step, and a death at it, behind these others."""
        waiting = [(step, 1) for step in steps]
        while waiting:
            step, tried = waiting.pop(0)
            try:
                left = await self.day(*first, step, both=both)
                missed = [self._process(one).disarm() for one in (*first, step)]
                assert self.calm.but(left) == ""
            except BaseException as reason:
                reason.add_note(f"after a death at {' and '.join(map(str, (*first, step)))}\n{self._story()}")
                raise
            shutil.rmtree(self._day.folder)
            if any(missed) or self._deaths:
                assert tried < _AGAIN, f"nobody comes to {step}"
                waiting.append((step, tried + 1))

    async def lacks(self, rule: str) -> None:
        """From now on the gateway, or the source, does without a rule."""
        self.without = rule
        if rule.startswith("source"):
            self._source.environment = {WITHOUT: rule}
            self._source.kill()

    async def next_life(self, first: Step, last: str) -> list[Step]:
        """The steps of whoever has died at one, up to some other."""
        assert self.calm.but(await self.day(first)) == ""
        [mark] = self._marks
        return steps_of(first.process, until(self._process(first).steps()[mark:], last))

    def of(self, process: str) -> list[Step]:
        """Its steps."""
        return [step for step in self.steps if step.process == process]

    def step(self, process: str, name: str) -> Step:
        """The first of that name."""
        return next(step for step in self.of(process) if step.name == name)


@pytest.fixture
def theatre(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Theatre]:
    monkeypatch.chdir(ROOT)
    with own_place() as place, TemporaryDirectory(prefix="isocast-", dir="/tmp") as short:
        # Tokens of this ring are not signed: nobody is a receiver.
        security = {"signatures": False}
        clock = {"realtime": False}
        market = new_market(
            tmp_path / "market", place, NODES, timing=QUICKEST, clock=clock, durability="power", security=security
        )
        yield Theatre(tmp_path, market, Path(short) / "traders")


def walk(theatre: Theatre, chosen: Callable[[Theatre], Awaitable[None]]) -> None:
    async def story() -> None:
        async with theatre.open():
            await chosen(theatre)
            print(f"\n{len(theatre.steps)} steps, {theatre.days} days")  # noqa: T201

    asyncio.run(story())


def of_each_kind(steps: Sequence[Step]) -> list[Step]:
    """One, about ever other things."""
    kinds: dict[str, list[Step]] = {}
    for step in steps:
        kinds.setdefault(step.kind, []).append(step)
    return [some[place % len(some)] for place, some in enumerate(kinds.values())]


def test_a_death_at_a_step_of_each_kind_changes_nothing(theatre: Theatre) -> None:
    """Of the gateway, or of its source."""
    walk(theatre, lambda theatre: theatre.over(of_each_kind(theatre.steps)))


@pytest.mark.long
def test_a_death_of_a_gateway_whose_books_are_on_a_server_changes_nothing(theatre: Theatre) -> None:
    """The server may still have what the dead gateway began, when the next life comes."""
    missing = postgresql_missing()
    if missing:
        pytest.skip(missing)
    with TemporaryDirectory(prefix="isocast-pg-", dir="/tmp") as folder:
        theatre.server = PostgreSQL(Path(folder))
        theatre.server.start()
        try:
            walk(theatre, lambda theatre: theatre.over(of_each_kind(theatre.of("gateway"))))
        finally:
            theatre.server.stop()


@pytest.mark.long
@pytest.mark.parametrize("process", ["gateway", "source"])
def test_a_death_at_any_step_changes_nothing(theatre: Theatre, process: str) -> None:
    walk(theatre, lambda theatre: theatre.over(theatre.of(process)))


@pytest.mark.long
def test_a_death_of_both_where_they_meet_changes_nothing(theatre: Theatre) -> None:
    """Wherever the gateway has something for the source, or the source has told of it."""

    async def both(theatre: Theatre) -> None:
        await theatre.over([step for step in theatre.of("gateway") if step.name.startswith(_PUBLISHING)], both=True)

    walk(theatre, both)


@pytest.mark.long
def test_a_second_death_before_the_first_is_mended_changes_nothing(theatre: Theatre) -> None:
    """A gateway with two batches to publish again, and a source with a message that it has neither sent nor told of."""

    async def again(theatre: Theatre) -> None:
        for process, name, last in (
            ("gateway", "after the commit: accepted two", "after the answer"),
            ("source", "after the outbox's mark: order to sell 50", "after the acknowledgement"),
        ):
            first = theatre.step(process, name)
            await theatre.over(await theatre.next_life(first, last), first)

    walk(theatre, again)


SEEN_AT: Final = {
    "gateway: a batch is marked once it is published": "after the commit: accepted rest",
    "gateway: a batch counts as published once it is": "after the commit: accepted two",
    "gateway: a batch is repeated under its key": "after the frame to the source: order to buy 100",
    "gateway: an answer comes after the commit": "before the commit: accepted rest",
    "gateway: a token is applied in one transaction": "before the commit: working rest",
    "source: a message is sent once it is written": "before the outbox's write: order to buy 100",
    "source: a batch is acknowledged once it is written": "after the acknowledgement to the gateway: order to buy 100",
    "source: a key is known for ever": "after the datagram: order to buy 100",
}
"""Rules, and for each a step at which a death shows that it is missing."""


@pytest.mark.long
@pytest.mark.parametrize("rule", SEEN_AT)
def test_a_death_shows_that_a_rule_is_missing(theatre: Theatre, rule: str) -> None:
    async def lacking(theatre: Theatre) -> None:
        await theatre.lacks(rule)
        assert theatre.calm.but(await theatre.day()) == "", "it takes a death to see it"
        with pytest.raises(AssertionError) as seen:
            await theatre.over([theatre.step(rule.partition(":")[0], SEEN_AT[rule])])
        print(f"\n{rule}: {str(seen.value)[:300]}")  # noqa: T201 - how it was seen

    walk(theatre, lacking)
