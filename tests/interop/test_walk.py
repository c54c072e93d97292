"""§7.2: gateway, source and database die by SIGKILL before and after each of their steps; nothing else changes.

A market of real processes trades one round after the other, always the same: orders, a batch with one that is refused,
a replace, open offers and parts that are taken, a cancel of a part, a cancel of everything; by two traders at two
gateways, over HTTP, each request under an id of its own and again under that id until it is answered. A first round is
undisturbed, and names every step of the gateway `east` and of its source (`stepping`). Then each further round has one
death, at one of these steps; whoever died is started again at once. `make soak` walks twice: the second time who died
dies again where the step comes again. Every round must leave what the first one left:
in the sequence, in what traders were told, in their balances, and in the ledgers.

To walk to one step alone, by the name that a failure prints:

    ISOCAST_STEP="before the commit: accepted rest" pytest -n 0 -m soak tests/interop/test_walk.py
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

import pytest
from tests.interop.places import QUICKEST, Place, new_market, own_place
from tests.interop.stage import Stage
from tests.interop.stepping import ARMED, STEPS, said
from tests.interop.test_floor import FLOOR, NODES, check_agreement, heard
from tests.interop.test_trading import Gateway
from tests.runtime.postgres import PostgreSQL, postgresql_missing

import isocast
from isocast.floor.codec import decode_event, floor_topic
from isocast.floor.events import Cancel, Order, Replace, Take
from isocast.orders.accounts import UNITS, cash, shares
from isocast.runtime.accounts.audit import BooksAudit, audit, clearing_of_all
from isocast.runtime.accounts.posting import rows_of
from isocast.runtime.accounts.tables import AccountsDatabase
from isocast.runtime.client.trading_answers import OrderReport
from isocast.runtime.operate.floor_change import find_floor, opening, publish_events
from isocast.runtime.operate.nursery import Nursery
from isocast.runtime.operate.supervisor import node_command
from isocast.terms.errors import LedgerError, LedgerFault

pytestmark = pytest.mark.xdist_group("floor")

PATIENCE_S = 90.0
_LOOK_S = 0.01
_AGAIN = 3
"""Rounds in which a step that depends on the clock may be missed."""
_SAMPLE = (0, 5)
"""Which of its kind, in `make test-long`."""
_IMPORTED = (
    "isocast.cli.main",
    "isocast.cli.trading_gateway",
    "isocast.runtime.accounts.serving",
    "isocast.runtime.accounts.watching",
    "isocast.runtime.accounts.ways_in",
    "isocast.runtime.hosts.process",
    "isocast.runtime.hosts.source",
)
"""Once for all lives of those who die."""
ROOT = Path(__file__).parents[2]
SubjectT = TypeVar("SubjectT")
FoundT = TypeVar("FoundT")
ISO, USD = shares("ISO"), cash("USD")
TRADED = Counter({"traded": 3, "confirmed": 3})
"""What each trader hears of the trades of a round: he has a part of each."""
MOVED = {"Ada": {ISO: 55, USD: -550 * UNITS}, "Ben": {ISO: -55, USD: 550 * UNITS}}
"""By a round: Ada takes 20 and buys 60 of Ben at 10, and he takes 25 of hers."""


class Process:
    """A process of the product that is started again whenever it dies."""

    def __init__(
        self,
        name: str,
        folder: Path,
        words: Sequence[str],
        mourn: Callable[[], None] = lambda: None,
        module: str = "tests.interop.stepping",
    ) -> None:
        self.name = name
        self.folder = folder
        self.deaths: list[int] = []
        self._command = (sys.executable, "-m", module, str(folder), *words)
        self.environment: dict[str, str] = {}
        """Of its next lives, beside ours."""
        self._mourn = mourn
        self.pid = 0
        self._alive: asyncio.Task[None] | None = None
        folder.mkdir(parents=True)
        (folder / STEPS).touch()

    def live(self, nursery: Nursery) -> None:
        self._alive = asyncio.create_task(self._live(nursery))

    async def _live(self, nursery: Nursery) -> None:
        while True:
            process = await nursery.launch(self._command, {**os.environ, **self.environment}, self.folder / "log")
            self.pid = process.pid
            self.deaths.append(await process.wait())
            await asyncio.to_thread(self._mourn)

    def check(self) -> None:
        """It lives, and has never ended but by SIGKILL."""
        assert self._alive is not None
        if self._alive.done():
            self._alive.result()
        assert set(self.deaths) <= {-9}, f"{self.name} ended by itself: {self.log()}"

    def kill(self) -> None:
        os.kill(self.pid, 9)

    async def end(self) -> None:
        if self._alive is not None:
            self._alive.cancel()
            await asyncio.gather(self._alive, return_exceptions=True)

    # Its steps ----------------------------------------------------------------------------------

    def arm(self, step: str, times: int = 1, *pids: int, passes: int = 0) -> None:
        """Whoever has one of these numbers dies when this process comes to the step, so many times; none: itself.

        So often it passes the step before that.
        """
        fresh = self.folder / "arming"
        fresh.write_text(f"{','.join(map(str, pids or (0,)))} {times} {passes} {step}", encoding="utf-8")
        fresh.rename(self.folder / ARMED)

    def disarm(self) -> bool:
        """Whether the step was not met."""
        armed = self.folder / ARMED
        is_there = armed.exists()
        armed.unlink(missing_ok=True)
        return is_there

    @property
    def is_armed(self) -> bool:
        return (self.folder / ARMED).exists()

    def steps(self) -> list[str]:
        """Of all its lives so far."""
        return (self.folder / STEPS).read_text(encoding="utf-8").splitlines()

    def log(self) -> str:
        file = self.folder / "log"
        return "\n".join(file.read_text(encoding="utf-8", errors="replace").splitlines()[-30:]) if file.exists() else ""


@dataclass
class Voice:
    """A trader, and all that he is told, over all lives of his gateway."""

    name: str
    trader: isocast.Trader
    heard: list[OrderReport] = field(default_factory=list)
    first: int = 0
    """Of this round."""

    async def listen(self) -> None:
        async with aclosing(self.trader.reports()) as reports:
            async for report in reports:
                self.heard.append(report)

    @property
    def told(self) -> list[OrderReport]:
        """In this round."""
        return self.heard[self.first :]

    def has(self, order: int, kind: str, quantity: int | None = None) -> bool:
        wanted = [one for one in self.told if (one.order, one.kind) == (order, kind)]
        return any(quantity in (None, one.last_quantity) for one in wanted)

    def view(self) -> dict[str, list[tuple[object, ...]]]:
        """What he was told in this round of each order, in order; trades are confirmed whenever that is."""
        found: dict[str, list[tuple[object, ...]]] = {}
        names: dict[int, str] = {}
        for one in self.told:
            name = names.setdefault(one.order, _tail(one.client_id)) if one.order else _tail(one.client_id)
            said_of = (one.kind, _tail(one.client_id), _tail(one.original_id), one.quantity, one.reason)
            if one.kind == "confirmed":
                found.setdefault(f"{name}, confirmed", []).append((one.last_quantity, one.last_price))
            else:
                now = (one.status, one.filled, one.left, one.last_quantity, one.last_price)
                found.setdefault(name, []).append((*said_of, *now))
        return {name: sorted(rows) if name.endswith("confirmed") else rows for name, rows in sorted(found.items())}


def _tail(client_id: str) -> str:
    """Without the round."""
    return client_id.rpartition(".")[2]


class Left(NamedTuple):
    """What a round left."""

    events: Counter[tuple[int, str]]
    """In the sequence: account, and what it says."""
    views: list[dict[str, list[tuple[object, ...]]]]
    moved: dict[str, dict[str, int]]
    """What each trader has more of, or less."""
    entries: list[Counter[str]]
    """New in each ledger, by kind."""


@dataclass
class Hall:
    """The market, its two gateways, their traders, and who may die."""

    stage: Stage
    east: Gateway
    west: Gateway
    gateway: Process
    source: Process
    server: PostgreSQL | None = None
    """The PostgreSQL of the gateway east, if it has one."""
    voices: list[Voice] = field(default_factory=list)
    rounds: int = 0
    unsound: list[str] = field(default_factory=list)

    async def until(self, true: Callable[[], bool], what: str) -> None:
        end = asyncio.get_running_loop().time() + PATIENCE_S
        while not true():
            for process in (self.gateway, self.source):
                process.check()
            assert not self.unsound, self.unsound
            assert asyncio.get_running_loop().time() < end, f"never: {what}\n{self.story()}"
            await asyncio.sleep(_LOOK_S)

    def story(self) -> str:
        lines = [f"{one.name}: {[(r.kind, _tail(r.client_id), r.order) for r in one.told]}" for one in self.voices]
        for process in (self.gateway, self.source):
            lines += [f"--- {process.name}, deaths {process.deaths}", *process.steps()[-15:], process.log()]
        return "\n".join([*lines, self.stage.story()])

    # One round ----------------------------------------------------------------------------------

    async def round(self) -> Left:
        self.rounds += 1
        for voice in self.voices:
            voice.first = len(voice.heard)
        before = [await self.holdings(gateway) for gateway in (self.east, self.west)]
        journal = len(self.stage.watches["london"].look())
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self.trade(f"{self.rounds}.")
        except TimeoutError:
            pytest.fail(f"a request is never answered\n{self.story()}")
        ada, ben = self.voices
        await self.until(lambda: all(self.is_settled(voice) for voice in self.voices), "all trades are confirmed")
        while True:
            after = [await self.holdings(gateway) for gateway in (self.east, self.west)]
            if not any(reserved for balances, _ in after for _, reserved in balances.values()):
                break
            await asyncio.sleep(_LOOK_S)
        moved = {}
        for voice, (was, _), (now, _) in zip((ada, ben), before, after, strict=True):
            moved[voice.name] = {asset: now[asset][0] - was[asset][0] for asset in now}
        entries = [now - was for (_, was), (_, now) in zip(before, after, strict=True)]
        for voice in self.voices:
            again = await voice.trader.past_reports(after=voice.told[0].number - 1)
            assert again == voice.told, "who asks anew is told the same"
        await self.check_books()
        return Left(self.events(journal), [voice.view() for voice in self.voices], moved, entries)

    async def trade(self, prefix: str) -> None:
        ada, ben = self.voices
        buy, offer, low = f"{prefix}rest", f"{prefix}offer", f"{prefix}low"
        rest = (await ada.trader.buy("ISO", 100, "10.00", client_id=buy)).report.order
        hers = (await ada.trader.sell("ISO", 40, "10.00", open_offer=True, client_id=offer)).report.order
        his = (await ben.trader.sell("ISO", 30, "10.00", open_offer=True, client_id=f"{prefix}his")).report.order
        batch = [
            {"side": "buy", "symbol": "ISO", "quantity": 7, "price": "9.00", "client_id": low},
            {"side": "buy", "symbol": "ISO", "quantity": 900_000, "price": "9.00", "client_id": f"{prefix}dear"},
        ]
        taken, refused = await ada.trader.send_many(batch)
        assert isinstance(refused, isocast.TraderRefusedError)
        assert not isinstance(taken, isocast.TraderRefusedError)
        bid = taken.report.order
        await self.until(
            lambda: all(ada.has(order, "working") for order in (rest, hers, bid)) and ben.has(his, "working"),
            "four orders wait in the floor",
        )
        await ada.trader.replace(buy, quantity=150, client_id=f"{prefix}more")
        bought = (await ada.trader.take(his, 20, client_id=f"{prefix}take")).report.order
        given = (await ben.trader.take(hers, 25, client_id=f"{prefix}part")).report.order
        await self.until(
            lambda: ada.has(rest, "replaced") and ada.has(bought, "traded", 20) and ada.has(hers, "traded", 25)
            and ben.has(his, "traded", 20) and ben.has(given, "traded", 25),
            "the offers are taken in part",
        )  # fmt: skip
        await ben.trader.sell("ISO", 60, "10.00", lifetime="ioc", client_id=f"{prefix}hit")
        await ada.trader.cancel(offer, 15, client_id=f"{prefix}shrink")
        await ben.trader.cancel(f"{prefix}his", client_id=f"{prefix}end")
        await self.until(
            lambda: ada.has(rest, "traded", 60) and ada.has(hers, "cancelled") and ben.has(his, "cancelled"),
            "a part is bought, and the offers are gone",
        )
        assert await ada.trader.cancel_all("ISO", client_id=f"{prefix}all") == 2
        await self.until(lambda: ada.has(rest, "cancelled") and ada.has(bid, "cancelled"), "nothing is left")

    def is_settled(self, voice: Voice) -> bool:
        kinds = Counter(report.kind for report in voice.told)
        return all(kinds[kind] >= count for kind, count in TRADED.items())

    # What is left -------------------------------------------------------------------------------

    def events(self, first: int) -> Counter[tuple[int, str]]:
        """Of the two traders, in the sequence from this message of the journal on: each once."""
        found: Counter[tuple[int, str]] = Counter()
        every: Counter[bytes] = Counter()
        for released in self.stage.watches["london"].look()[first:]:
            for (_, one), what in zip(heard([released]), said(released.payload), strict=False):
                event = decode_event(one.payload) if one.topic == floor_topic("XISO") else None
                if isinstance(event, Order | Replace | Cancel | Take):
                    found[event.account, what] += 1
                    every[one.payload] += 1
        twice = [decode_event(payload) for payload, count in every.items() if count > 1]
        assert not twice, f"twice in the sequence: {twice}"
        return found

    async def holdings(self, gateway: Gateway) -> tuple[dict[str, tuple[int, int]], Counter[str]]:
        """What a trader has, and how many entries of each kind there are."""
        return await self._read(self._holdings, gateway)

    async def _read(self, work: Callable[[SubjectT], FoundT], *values: SubjectT) -> FoundT:
        """Of books; again while their database is away."""
        while True:
            try:
                return await asyncio.to_thread(work, *values)
            except LedgerError as error:
                if self.server is None or error.fault is not LedgerFault.UNAVAILABLE:
                    raise
            await asyncio.sleep(_LOOK_S)

    def _holdings(self, gateway: Gateway) -> tuple[dict[str, tuple[int, int]], Counter[str]]:
        database = AccountsDatabase(gateway.database)
        try:
            with database.reading() as connection:
                query = "SELECT asset, available, reserved FROM balances WHERE account = ?"
                held = {asset: (has, bound) for asset, has, bound in rows_of(connection, query, (gateway.account,))}
                kinds = rows_of(connection, "SELECT kind, count(*) FROM entries GROUP BY kind")
                return {asset: held.get(asset, (0, 0)) for asset in (ISO, USD)}, Counter(dict(kinds))
        finally:
            database.close()

    async def check_books(self) -> None:
        """Both gateways' books add up, and nothing is left between them."""
        reports = [await self._read(_audited, gateway.database) for gateway in (self.east, self.west)]
        assert [report.findings for report in reports] == [[], []]
        assert clearing_of_all(reports) == {}

    def mourn(self) -> None:
        """What the dead gateway's books say, before anybody touches them."""
        self.unsound += _audited(self.east.database).findings


def _audited(place: str) -> BooksAudit:
    database = AccountsDatabase(place)
    try:
        return audit(database)
    finally:
        database.close()


# The walk -----------------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """Where somebody dies."""

    process: str
    name: str
    is_of_start: bool
    """It comes when the process starts: this is a second death."""

    @property
    def kind(self) -> str:
        return f"{self.process} {self.name.partition(':')[0]}"


class Walk:
    """A hall, its undisturbed round, and a death at each step of it."""

    def __init__(self, hall: Hall) -> None:
        self.hall = hall
        self.calm: Left | None = None
        self.steps: list[Step] = []

    async def begin(self) -> None:
        """Two undisturbed rounds: the steps are those that both have."""
        every: dict[Process, list[set[str]]] = {self.hall.gateway: [], self.hall.source: []}
        order: dict[Process, list[str]] = {}
        at_start = {process: process.steps() for process in every}
        for _ in range(2):
            marks = {process: len(process.steps()) for process in every}
            left = await self.hall.round()
            assert left.moved == MOVED
            assert self.calm in (None, left)
            self.calm = left
            for process, sets in every.items():
                order[process] = process.steps()[marks[process] :]
                sets.append(set(order[process]))
        for process, sets in every.items():
            known = sets[0] & sets[1]
            once = [name for name in dict.fromkeys(at_start[process]) if name not in known]
            self.steps += [Step(process.name, name, is_of_start=True) for name in once]
            often = [name for name in dict.fromkeys(order[process]) if name in known]
            self.steps += [Step(process.name, name, is_of_start=False) for name in often]

    async def die(self, step: Step, times: int) -> bool:
        """A round with one death, or more: whether the step was met. A server dies in the gateway's place."""
        hall = self.hall
        process = hall.gateway if step.process == hall.gateway.name else hall.source
        deaths = len(process.deaths)
        server = hall.server if process is hall.gateway else None
        process.arm(step.name, times, *([server.pid] if server else []))
        if step.is_of_start:
            process.kill()
        mending = asyncio.create_task(self._mend(process, server))
        try:
            left = await hall.round()
        finally:
            if process.is_armed:
                mending.cancel()
            await asyncio.gather(mending, return_exceptions=True)
        missed = process.disarm()
        assert left == self.calm
        died = len(process.deaths) - deaths - step.is_of_start
        assert missed or server or died == times, f"{died} deaths"
        return not missed or died > 0

    async def _mend(self, process: Process, server: PostgreSQL | None) -> None:
        """Start the database again once it was killed."""
        if server is None:
            return
        while process.is_armed:  # noqa: ASYNC110 - another process disarms it
            await asyncio.sleep(_LOOK_S)
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)

    async def over(self, chosen: Sequence[Step], times: int = 1) -> list[Step]:
        """Die at each, so many times where it comes again after a death; which steps did not come at all."""
        waiting = [(step, 1) for step in chosen]
        never = []
        while waiting:
            step, tried = waiting.pop(0)
            try:
                met = await self.die(step, times)
            except BaseException as reason:
                alone = f'ISOCAST_STEP="{step.name}" pytest -n 0 -m soak tests/interop/test_walk.py'
                reason.add_note(f"after a death of {step.process} {step.name}. This step alone: {alone}")
                raise
            if not met and tried < _AGAIN:
                waiting.append((step, tried + 1))
            elif not met:
                never.append(step)
        return never


def chosen(steps: Sequence[Step], *, whole: bool) -> list[Step]:
    """All, the one that somebody asks for, or two of each kind, about ever other things."""
    only = os.environ.get("ISOCAST_STEP")
    if only is not None:
        found = [step for step in steps if step.name == only]
        assert found, "no such step; there are\n" + "\n".join(step.name for step in steps)
        return found
    if whole:
        return list(steps)
    kinds: dict[str, list[Step]] = {}
    for step in steps:
        kinds.setdefault(step.kind, []).append(step)
    return [some[(place + more) % len(some)] for place, some in enumerate(kinds.values()) for more in _SAMPLE]


@asynccontextmanager
async def opened(stage: Stage, place: Place, folder: Path, server: PostgreSQL | None) -> AsyncIterator[Hall]:
    """Everybody is there, and has heard of the floor."""
    east = ServedGateway(stage, folder / "books east", 1, "east", "Ada", server=server)
    west = Gateway(stage, folder / "books west", 2, "west", "Ben")
    for gateway in (east, west):
        gateway.found("1000000.00 USD", "ISO", 100_000)
    config = stage.market.file

    def words(gateway: Gateway, port: int) -> list[str]:
        way = ["--database", gateway.database, "--https", f"{place.address(200)}:{port}"]
        gateway.url = f"http://{place.address(200)}:{port}"
        return ["trading-gateway", "run", "--config", config, "--source", gateway.source, *way]

    source = Process("source", folder / "source", node_command(Path(config), "east")[3:])
    dying = Process("gateway", folder / "gateway", words(east, 8_444), lambda: hall.mourn())  # noqa: PLW0108 - made below
    other = Process("other gateway", folder / "other", words(west, 8_445))
    hall = Hall(stage, east, west, dying, source, server)
    async with AsyncExitStack() as stack:
        nursery = await stack.enter_async_context(Nursery(_IMPORTED))
        for process in (source, dying, other):
            stack.push_async_callback(process.end)
            process.live(nursery)
        for one in (east, west):
            trader = isocast.Trader(one.url, token=one.token, patience_s=PATIENCE_S)
            voice = Voice(one.trader, await stack.enter_async_context(trader))
            listening = asyncio.create_task(voice.listen())
            stack.callback(listening.cancel)
            await trader.symbols()
            hall.voices.append(voice)
        yield hall


class ServedGateway(Gateway):
    """A gateway whose books may be in a PostgreSQL."""

    def __init__(self, *values: Any, server: PostgreSQL | None) -> None:  # noqa: ANN401
        super().__init__(*values)
        self._server = server

    @property
    def database(self) -> str:
        return super().database if self._server is None else self._server.url


async def walk(stage: Stage, place: Place, folder: Path, server: PostgreSQL | None, *, whole: bool) -> None:
    async with opened(stage, place, folder, server) as hall:
        walking = Walk(hall)
        await walking.begin()
        some = chosen(walking.steps, whole=whole)
        if server is not None:
            some = [step for step in some if step.process == "gateway" and not step.is_of_start]
        never = await walking.over(some)
        if whole and server is None:
            never += await walking.over(some, times=2)
        print(f"\n{len(some)} of {len(walking.steps)} steps, {hall.rounds} rounds")  # noqa: T201
        assert never == []
    check_agreement(stage)


@pytest.fixture
def market(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Stage, Place]]:
    """A ring of three with a floor; the source `east` is started by whoever kills it."""
    monkeypatch.chdir(ROOT)
    with own_place() as place:
        made = new_market(tmp_path / "market", place, NODES, timing=QUICKEST, durability="power", more=FLOOR)
        with Stage(made, without=["east"]) as stage:
            stage.until_whole()
            stage.call(publish_events(made, find_floor(made, None), opening(find_floor(made, None))))
            yield stage, place


SIZES = [
    pytest.param(False, marks=pytest.mark.long, id="one of each kind"),
    pytest.param(True, marks=pytest.mark.soak, id="all"),
]


@pytest.mark.parametrize("whole", SIZES)
def test_a_gateway_and_its_source_that_are_killed_at_each_step_change_nothing(
    market: tuple[Stage, Place], tmp_path: Path, *, whole: bool
) -> None:
    asyncio.run(walk(*market, tmp_path, None, whole=whole))


@pytest.mark.parametrize("whole", SIZES)
def test_a_database_that_is_killed_at_each_step_of_its_gateway_changes_nothing(
    market: tuple[Stage, Place], tmp_path: Path, *, whole: bool
) -> None:
    missing = postgresql_missing()
    if missing:
        pytest.skip(missing)
    with TemporaryDirectory(prefix="isocast-pg-", dir="/tmp") as folder:
        server = PostgreSQL(Path(folder))
        server.start()
        try:
            asyncio.run(walk(*market, tmp_path, server, whole=whole))
        finally:
            server.stop()
