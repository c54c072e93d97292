"""The desk: group commit, answers after publication, crashes between any two steps, sessions, a database that fails."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest
from tests.orders.report_paths import path_faults
from tests.runtime.accounts.sequence import IBM, LISTED, USD, MemorySequence, limit, sqlite_place
from tests.runtime.worlds import eventually

from isocast.orders.accounts import UNITS
from isocast.orders.controls import Block, BlockScope
from isocast.orders.desk import (
    BalanceLine,
    CancelRequest,
    Desk,
    Login,
    OrderStatus,
    Reason,
    ReplaceRequest,
    ReportKind,
    Scope,
    TradeReport,
    TradingRequest,
)
from isocast.orders.ledger import deposit
from isocast.orders.needs import Side
from isocast.runtime.accounts import desk as desk_module
from isocast.runtime.accounts.audit import audit
from isocast.runtime.accounts.book import AccountBook
from isocast.runtime.accounts.desk import DeskPace, GatewayDesk
from isocast.runtime.accounts.kills import kill_in
from isocast.runtime.accounts.logins import LoginDelays, Logins
from isocast.runtime.accounts.tables import AccountsDatabase
from isocast.runtime.accounts.trading import FencedError, TradingBooks
from isocast.security.packages import Stretching
from isocast.terms.errors import TransportError
from isocast.wire.opaque import OpaqueMessage

BUY, SELL = Side.BUY, Side.SELL
QUICK = Stretching(memory_kib=64, passes=1, lanes=1)
PASSWORD = "correct horse battery"  # noqa: S105 - of a test
SECOND = 1_000_000_000
ResultT = TypeVar("ResultT")


class Outcome(NamedTuple):
    """What a day left."""

    balances: list[Sequence[BalanceLine]]
    told: list[list[tuple[object, ...]]]
    published: list[bytes]


class Crash(Exception):  # noqa: N818 - it is what happens
    """The process dies here."""


class Hall:
    """A desk on a sequence in memory, which can die and start again."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.market = MemorySequence(LISTED)
        self.publish: Callable[[Sequence[OpaqueMessage], bytes], Awaitable[None]] = self.market.send
        self.now = SECOND
        self.slept: list[float] = []
        self.steps = 0
        self.crash_at = 0
        self.pace = DeskPace(group_s=0.0, answer_s=60.0, look_s=3_600.0)
        database = AccountsDatabase(url)
        AccountBook.create(database, 1)
        book = AccountBook(database)
        self.ada, self.bob = (
            Login(book.open(name).number, name, frozenset(Scope), f"session of {name}") for name in ("Ada", "Bob")
        )
        book.post(deposit("1", self.ada.account, USD, 5_000 * UNITS))
        book.post(deposit("2", self.bob.account, IBM, 200))
        Logins(database, self.clock, QUICK).set_password("ada", self.ada.account, PASSWORD)
        database.close()

    def clock(self) -> int:
        self.now += SECOND // 10
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)

    def reached(self, _: str) -> None:
        self.steps += 1
        if self.steps == self.crash_at:
            raise Crash

    async def open(self) -> None:
        self.database = AccountsDatabase(self.url)
        books = TradingBooks(self.database, reached=self.reached)
        self.desk = GatewayDesk(
            self.database,
            books,
            self.send,
            logins=Logins(self.database, self.clock, QUICK),
            pace=self.pace,
            clock=self.clock,
            sleep=self.sleep,
            reached=self.reached,
        )
        await self.desk.open()
        self.heard = self.desk.start.token

    async def send(self, messages: Sequence[OpaqueMessage], key: bytes) -> None:
        await self.publish(messages, key)

    async def close(self) -> None:
        await self.desk.close()
        self.database.close()

    async def alive(self, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Do it again, after a restart, until nobody dies."""
        while True:
            try:
                await self.follow()
                found = await work()
                if self.desk.failure is None:
                    return found
            except Crash as crash:
                self.desk.failure = self.desk.failure or crash
            await self.close()
            await self.open()

    async def ask(self, login: Login, request: TradingRequest) -> TradeReport:
        while True:
            report = await self.alive(lambda: self.desk.submit(login, request))
            if report.reason is not Reason.UNAVAILABLE:
                return report

    async def token(self) -> None:
        """One token with all that was published."""
        self.market.step()
        await self.alive(self.follow)

    async def follow(self) -> None:
        for token, instant, messages in self.market.tokens[self.heard :]:
            if self.desk.failure is not None:
                return
            for message in messages:
                await self.desk.take(token, instant, message)
            await self.desk.end_token(token)
        await self.desk.until_taken()
        if self.desk.failure is None:
            self.heard = len(self.market.tokens)

    async def settle(self) -> None:
        self.market.settle()
        await self.alive(self.follow)

    async def told(self, login: Login) -> list[TradeReport]:
        return list(await self.desk.reports(login, 0))


@asynccontextmanager
async def hall_at(url: str) -> AsyncIterator[Hall]:
    hall = Hall(url)
    await hall.open()
    try:
        await hall.follow()
        yield hall
    finally:
        await hall.close()


async def day(hall: Hall, before_reading: Callable[[], None] | None = None) -> Outcome:
    """Orders, a replace, fills, a cancel; then everything is settled. Return the balances, and what traders were told.

    `before_reading` returns once the database answers: reads, unlike orders, are not tried again.
    """
    await hall.ask(hall.ada, limit("1", BUY, 100, 10))
    await hall.ask(hall.bob, limit("1", SELL, 60, 10))
    await hall.token()
    await hall.ask(hall.ada, ReplaceRequest("2", "1", 150))
    await hall.token()
    await hall.ask(hall.bob, limit("2", SELL, 50, 9))
    await hall.ask(hall.ada, CancelRequest("3", "2"))
    await hall.token()
    await hall.settle()
    if before_reading is not None:
        before_reading()
    told = [await hall.told(login) for login in (hall.ada, hall.bob)]
    for reports in told:
        assert [report.number for report in reports] == list(range(1, len(reports) + 1))
        for order in {report.order for report in reports}:
            assert list(path_faults(report for report in reports if report.order == order)) == []
    balances = [await hall.desk.balances(login) for login in (hall.ada, hall.bob)]
    found = audit(hall.database)
    assert found.is_sound, found.findings
    outline: list[list[tuple[object, ...]]] = [
        [(one.kind, one.status, one.filled, one.left, one.trade) for one in reports] for reports in told
    ]
    return Outcome(balances, outline, hall.market.published)


def test_a_day(database_url: str) -> None:
    async def story() -> None:
        async with hall_at(database_url) as hall:
            desk: Desk = hall.desk
            outcome = await day(hall)
            assert outcome.balances == [
                [BalanceLine(USD, 3_900 * UNITS, 0), BalanceLine(IBM, 110, 0)],
                [BalanceLine(USD, 1_100 * UNITS, 0), BalanceLine(IBM, 90, 0)],
            ]
            assert len(outcome.published) == 5
            assert [one.status for one in await desk.orders(hall.ada, live=False)] == [OrderStatus.CANCELLED]
            assert await desk.orders(hall.bob) == []
            status = await desk.order(hall.ada, "1")
            assert status is not None
            assert (status.kind, status.client_id, status.filled) == (ReportKind.STATUS, "2", 110)
            assert await desk.order(hall.bob, "7") is None
            assert [one.symbol for one in await desk.symbols()] == ["IBM"]

    asyncio.run(story())


def test_a_crash_between_any_two_steps_changes_nothing(tmp_path: Path) -> None:
    """Commit, publish, mark, answer, take, settle: the process dies once at each step of the day."""

    async def disturbed(name: str, crash_at: int) -> tuple[Outcome, int]:
        async with hall_at(sqlite_place(tmp_path, name)) as hall:
            hall.crash_at = hall.steps + crash_at if crash_at else 0
            first = hall.steps
            found = await day(hall)
            assert not crash_at or hall.steps >= hall.crash_at
            return found, hall.steps - first

    async def story() -> None:
        expected, steps = await disturbed("calm", 0)
        assert steps > 30
        for crash_at in range(1, steps + 1):
            found, _ = await disturbed(f"crash {crash_at}", crash_at)
            assert found == expected, f"after a crash at step {crash_at}"

    asyncio.run(story())


@pytest.mark.parametrize("has_taken", [pytest.param(False, id="before"), pytest.param(True, id="after")])
def test_a_source_that_dies_before_or_after_it_takes_a_batch_changes_nothing(
    tmp_path: Path, *, has_taken: bool
) -> None:
    """Once at each batch of the day; the gateway says the same again, under the same key."""

    async def disturbed(name: str, dies_at: int) -> tuple[Outcome, int]:
        async with hall_at(sqlite_place(tmp_path, name)) as hall:
            calls = 0

            async def taken(messages: Sequence[OpaqueMessage], key: bytes) -> None:
                nonlocal calls
                calls += 1
                if calls != dies_at or has_taken:
                    await hall.market.send(messages, key)
                if calls == dies_at:
                    raise TransportError("the source was killed")

            hall.publish = taken
            found = await day(hall)
            return found, calls

    async def story() -> None:
        expected, calls = await disturbed("calm", 0)
        assert calls > 3
        for dies_at in range(1, calls + 1):
            found, again = await disturbed(f"death {dies_at}", dies_at)
            assert found == expected, f"after a death at batch {dies_at}"
            assert again == calls + 1

    asyncio.run(story())


def test_requests_of_some_milliseconds_share_a_transaction(database_url: str) -> None:
    async def story() -> None:
        async with hall_at(database_url) as hall:
            orders = [limit(str(number), BUY, 1, 10) for number in range(50)]
            told = await asyncio.gather(*[hall.desk.submit(hall.ada, order) for order in orders])
            assert {report.kind for report in told} == {ReportKind.ACCEPTED}
            assert [report.number for report in told] == list(range(1, 51))
            assert len(hall.market.keys) < 5

    asyncio.run(story())


def test_nobody_hears_of_an_order_before_the_market_has_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with hall_at(sqlite_place(tmp_path, "one")) as hall:
            gate = asyncio.Event()

            async def slow(messages: Sequence[OpaqueMessage], key: bytes) -> None:
                await gate.wait()
                await hall.market.send(messages, key)

            hall.publish = slow
            answer = asyncio.create_task(hall.desk.submit(hall.ada, limit("1", BUY, 1, 10)))
            await eventually(lambda: bool(hall.desk.books.waiting))
            again = asyncio.create_task(hall.desk.submit(hall.ada, limit("1", BUY, 1, 10)))
            watched = asyncio.ensure_future(anext(aiter(hall.desk.watch(hall.ada, 0))))
            await asyncio.sleep(0.02)
            assert await hall.told(hall.ada) == []
            assert not any(task.done() for task in (answer, again, watched))
            gate.set()
            assert await answer == await again == await watched
            assert len(hall.market.published) == 1

    asyncio.run(story())


def test_a_market_that_does_not_answer_makes_it_unavailable_and_loses_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with hall_at(sqlite_place(tmp_path, "one")) as hall:
            await hall.close()
            hall.pace = DeskPace(group_s=0.0, answer_s=0.05, look_s=3_600.0)
            await hall.open()
            await hall.follow()
            closed = True

            async def broken(messages: Sequence[OpaqueMessage], key: bytes) -> None:
                if closed:
                    raise TransportError("no way")
                await hall.market.send(messages, key)

            hall.publish = broken
            refused = await hall.desk.submit(hall.ada, limit("1", BUY, 1, 10))
            assert (refused.reason, refused.number) == (Reason.UNAVAILABLE, 0)
            closed = False
            while (report := await hall.desk.submit(hall.ada, limit("1", BUY, 1, 10))).reason is not None:
                assert report.reason is Reason.UNAVAILABLE
            assert report.kind is ReportKind.ACCEPTED
            assert len(hall.market.published) == 1

    asyncio.run(story())


def test_a_slow_reader_loses_nothing_and_goes_on_where_it_was(tmp_path: Path) -> None:
    async def story() -> None:
        async with hall_at(sqlite_place(tmp_path, "one")) as hall:
            reader = aiter(hall.desk.watch(hall.ada, 0))
            for number in range(30):
                await hall.ask(hall.ada, limit(str(number), BUY, 1, 10))
            await hall.token()
            got = [await anext(reader) for _ in range(60)]
            assert [report.number for report in got] == list(range(1, 61))
            waiting = asyncio.ensure_future(anext(reader))
            await hall.ask(hall.ada, CancelRequest("c", "3"))
            assert (await waiting).kind is ReportKind.CANCEL_PENDING
            later = aiter(hall.desk.watch(hall.ada, 55))
            assert (await anext(later)).number == 56

    asyncio.run(story())


# The database ------------------------------------------------------------------------------------------------------


def test_a_locked_database_makes_it_unavailable_and_loses_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with hall_at(sqlite_place(tmp_path, "one")) as hall:
            hall.database.wait_at_most(0.02)
            other = sqlite3.connect(tmp_path / "one.db", isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            refused = await hall.desk.submit(hall.ada, limit("1", BUY, 1, 10))
            assert (refused.reason, refused.number) == (Reason.UNAVAILABLE, 0)
            hall.market.step()
            follow = asyncio.create_task(hall.follow())
            await asyncio.sleep(0)
            other.execute("ROLLBACK")
            other.close()
            assert (await hall.desk.submit(hall.ada, limit("1", BUY, 1, 10))).kind is ReportKind.ACCEPTED
            await follow
            assert hall.desk.failure is None
            await day_is_sound(hall)

    asyncio.run(story())


def test_a_full_database_makes_it_unavailable_and_loses_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with hall_at(sqlite_place(tmp_path, "one")) as hall:
            database = hall.database
            with database.reading() as connection:
                pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
                connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
            told = []
            for number in range(400):
                told.append(await hall.desk.submit(hall.ada, limit(str(number), BUY, 1, 9)))
                if told[-1].reason is Reason.UNAVAILABLE:
                    break
            assert told[-1].reason is Reason.UNAVAILABLE
            with database.reading() as connection:
                connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
            again = await hall.desk.submit(hall.ada, limit(str(len(told) - 1), BUY, 1, 9))
            assert again.kind is ReportKind.ACCEPTED
            assert len(hall.market.published) == len(told)
            await day_is_sound(hall)

    asyncio.run(story())


async def day_is_sound(hall: Hall) -> None:
    await hall.token()
    found = audit(hall.database)
    assert found.is_sound, found.findings
    hall.desk.books.check()


def test_a_server_that_vanishes_makes_it_unavailable_and_loses_nothing(
    postgresql_url: str, request: pytest.FixtureRequest
) -> None:
    import psycopg  # noqa: PLC0415 - where there is a server

    with psycopg.connect(postgresql_url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    del request

    async def story() -> None:
        async with hall_at(postgresql_url) as hall:
            told = []
            for number in range(20):
                if number % 5 == 2:
                    with psycopg.connect(postgresql_url, autocommit=True) as connection:
                        connection.execute(
                            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                        )
                report = await hall.desk.submit(hall.ada, limit(str(number), BUY, 1, 9))
                while report.reason is Reason.UNAVAILABLE:
                    report = await hall.desk.submit(hall.ada, limit(str(number), BUY, 1, 9))
                told.append(report.kind)
            assert set(told) == {ReportKind.ACCEPTED}
            assert len(hall.market.published) == 20
            await day_is_sound(hall)

    asyncio.run(story())


# Who comes in, and how it ends -------------------------------------------------------------------------------------


def test_passwords_tokens_and_scopes(tmp_path: Path) -> None:
    async def story() -> None:
        async with hall_at(sqlite_place(tmp_path, "one")) as hall:
            login = await hall.desk.log_in("ada", PASSWORD, "127.0.0.1")
            assert login is not None
            assert (login.account, login.scopes) == (hall.ada.account, frozenset(Scope))
            assert await hall.desk.log_in_by_token(login.session, "127.0.0.1") == login
            assert (await hall.desk.submit(login, limit("1", BUY, 1, 10))).kind is ReportKind.ACCEPTED
            await hall.desk.log_out(login, cancels=False)
            assert await hall.desk.log_in_by_token(login.session, "127.0.0.1") is None
            made = hall.desk.logins
            token = made.make_token(hall.ada.account, "reader", [Scope.READ], hall.now + 100 * SECOND)
            reader = await hall.desk.log_in_by_token(token, "127.0.0.1")
            assert reader is not None
            assert (await hall.desk.submit(reader, limit("2", BUY, 1, 10))).reason is Reason.BLOCKED
            assert len(await hall.desk.reports(reader, 0)) == 1
            hall.now += 101 * SECOND
            assert await hall.desk.log_in_by_token(token, "127.0.0.1") is None
            assert await hall.desk.log_in_by_token("", "127.0.0.1") is None
            raw = (tmp_path / "one.db").read_bytes() + (tmp_path / "one.db-wal").read_bytes()
            for secret in (token, login.session, PASSWORD):
                assert secret.encode() not in raw

    asyncio.run(story())


def test_a_wrong_password_a_hundred_times(tmp_path: Path) -> None:
    async def story() -> None:
        async with hall_at(sqlite_place(tmp_path, "one")) as hall:
            for name in ("ada", "nobody"):
                hall.slept.clear()
                for number in range(100):
                    assert await hall.desk.log_in(name, f"wrong {number}", f"10.0.0.{number}") is None
                assert hall.slept[:3] == [0.5, 1.0, 2.0]  # The same for a name that nobody has.
                assert hall.slept[-1] == LoginDelays.LONGEST_S
            tries = [hall.desk.log_in("ada", "wrong", "10.0.1.1") for _ in range(50)]
            assert await asyncio.gather(*tries) == [None] * 50
            hall.slept.clear()
            assert await hall.desk.log_in("ada", PASSWORD, "10.0.2.1") is not None  # Late, not locked out.
            assert hall.slept == [LoginDelays.LONGEST_S]
            hall.slept.clear()
            assert await hall.desk.log_in("ada", PASSWORD, "10.0.2.1") is not None
            assert hall.slept == []

    asyncio.run(story())


def test_the_orders_of_a_session_end_with_it(tmp_path: Path) -> None:
    """Settlement 25: those that it entered, and no others."""

    async def story() -> None:
        async with hall_at(sqlite_place(tmp_path, "one")) as hall:
            login = await hall.desk.log_in("ada", PASSWORD, "127.0.0.1")
            assert login is not None
            await hall.ask(login, limit("1", BUY, 1, 10))
            await hall.ask(hall.ada, limit("2", BUY, 1, 10))
            await hall.token()
            await hall.desk.log_out(login, cancels=True)
            await eventually(lambda: len(hall.market.published) == 3)
            await hall.token()
            assert [one.client_id for one in await hall.desk.orders(hall.ada)] == ["2"]
            assert await hall.desk.cancel_all(hall.ada, "all") == 1
            assert await hall.desk.cancel_all(hall.ada, "all") == 1

    asyncio.run(story())


def test_what_comes_after_an_order_does_not_overtake_it(tmp_path: Path) -> None:
    """A look, a cancel of all and the end of a session find the order that waits for its transaction."""

    async def story() -> None:
        async with hall_at(sqlite_place(tmp_path, "one")) as hall:
            login = await hall.desk.log_in("ada", PASSWORD, "127.0.0.1")
            assert login is not None
            asked: list[asyncio.Task[TradeReport]] = []

            async def ask() -> None:
                """Ask, and let the desk have it, not the database."""
                asked.append(asyncio.create_task(hall.desk.submit(login, limit(f"a-{len(asked)}", BUY, 10, 9))))
                await asyncio.sleep(0)

            await ask()
            looked = await hall.desk.order(hall.ada, "a-0")
            assert looked is not None
            assert looked.status is OrderStatus.PENDING
            await ask()
            assert await hall.desk.cancel_all(hall.ada, "all") == 2
            await ask()
            await hall.desk.log_out(login, cancels=True)
            await asyncio.gather(*asked)
            # Three orders, a cancel of the first two, and one of all: those are still on their way.
            await eventually(lambda: len(hall.market.published) == 8)
            await hall.token()
            assert await hall.desk.orders(hall.ada) == []

    asyncio.run(story())


@pytest.mark.parametrize("at_once", [1, 2, 512])
def test_a_cancel_of_all_is_not_overtaken_either(tmp_path: Path, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever cancels his quotes and gives others right behind keeps the others, however busy the desk is."""
    monkeypatch.setattr(desk_module, "_AT_ONCE", at_once)

    async def story() -> None:
        async with hall_at(sqlite_place(tmp_path, "one")) as hall:
            before = [hall.desk.submit(hall.ada, limit(f"old-{number}", BUY, 1, 9)) for number in range(5)]
            every = hall.desk.cancel_all(hall.ada, "all")
            behind = [hall.desk.submit(hall.ada, limit(f"new-{number}", BUY, 1, 9)) for number in range(5)]
            again = hall.desk.cancel_all(hall.ada, "none", "MSFT")
            told = await asyncio.gather(*before, every, *behind, again)
            assert (told[5], told[-1]) == (5, 0)
            await eventually(lambda: len(hall.market.published) == 15)
            await hall.token()
            assert [one.client_id for one in await hall.desk.orders(hall.ada)] == [f"new-{n}" for n in range(5)]

    asyncio.run(story())


def test_an_operators_kill_beside_the_gateway_is_seen(tmp_path: Path) -> None:
    async def story() -> None:
        async with hall_at(sqlite_place(tmp_path, "one")) as hall:
            await hall.ask(hall.ada, limit("1", BUY, 1, 10))
            await hall.token()
            other = AccountsDatabase(hall.url)
            with other.writing() as connection:
                assert kill_in(connection, Block(BlockScope.GATEWAY, reason="storm"), 1) == 1
            other.close()
            refused = await hall.desk.submit(hall.bob, limit("1", SELL, 1, 10))
            assert (refused.reason, refused.text) == (Reason.BLOCKED, "the gateway is stopped: storm")
            await eventually(lambda: len(hall.market.published) == 2)
            await hall.token()
            assert await hall.desk.orders(hall.ada) == []
            assert await hall.desk.kill(Block(BlockScope.ACCOUNT, hall.ada.account)) == 0

    asyncio.run(story())


def test_what_operators_change_beside_the_gateway_counts_with_the_next_order(tmp_path: Path) -> None:
    """The gateway remembers balances, limits and freezes; a deposit, a limit or a freeze by others ends that."""

    async def story() -> None:
        async with hall_at(sqlite_place(tmp_path, "one")) as hall:
            other = AccountsDatabase(hall.url)
            book, ada = AccountBook(other), hall.ada
            assert (await hall.ask(ada, limit("1", BUY, 500, 10))).kind is ReportKind.ACCEPTED
            assert (await hall.ask(ada, limit("2", BUY, 1, 10))).reason is Reason.FUNDS
            book.post(deposit("3", ada.account, USD, 10 * UNITS))
            assert (await hall.ask(ada, limit("3", BUY, 1, 10))).kind is ReportKind.ACCEPTED
            assert (await hall.ask(ada, limit("4", BUY, 1, 10))).reason is Reason.FUNDS
            book.set_limit(ada.account, USD, 25 * UNITS)
            assert (await hall.ask(ada, limit("5", BUY, 2, 10))).kind is ReportKind.ACCEPTED
            book.freeze(ada.account, "storm")
            assert (await hall.ask(ada, limit("6", BUY, 1, 1))).reason is Reason.BLOCKED
            book.freeze(ada.account, "", frozen=False)
            assert (await hall.ask(ada, limit("7", BUY, 1, 5))).kind is ReportKind.ACCEPTED
            assert audit(other).is_sound
            other.close()

    asyncio.run(story())


def test_many_at_once_are_judged_one_by_one_and_repeated_done_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with hall_at(sqlite_place(tmp_path, "one")) as hall:
            await hall.follow()
            some: list[TradingRequest] = [
                limit("1", BUY, 100, 10),
                limit("2", BUY, 10_000_000, 10),  # beyond the largest quantity
                limit("3", BUY, 500, 10),  # more than is left
                limit("1", BUY, 100, 10),  # the first again
                limit("4", BUY, 400, 10),
                CancelRequest("5", "1"),
            ]
            answers = await hall.desk.submit_many(hall.ada, some)
            first = [ReportKind.ACCEPTED, Reason.QUANTITY, Reason.FUNDS, ReportKind.ACCEPTED, ReportKind.ACCEPTED]
            assert [one.reason or one.kind for one in answers] == [*first, ReportKind.CANCEL_PENDING]
            assert [one.client_id for one in answers] == [one.client_id for one in some]
            assert answers[3] == answers[0]
            assert len(hall.market.published) == 3
            assert await hall.desk.submit_many(hall.ada, some) == answers
            assert len(hall.market.published) == 3
            assert await hall.desk.submit_many(hall.ada, []) == []
            reader = hall.ada._replace(scopes=frozenset({Scope.READ}))
            assert {one.reason for one in await hall.desk.submit_many(reader, some)} == {Reason.BLOCKED}
            found = audit(hall.database)
            assert (found.findings, found.reservations) == ([], 2)

    asyncio.run(story())


def test_what_was_told_at_once_is_kept_together_and_read_from_any_number_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with hall_at(sqlite_place(tmp_path, "one")) as hall:
            await hall.follow()
            some: list[TradingRequest] = [limit(f"{number}", BUY, 1, 1) for number in range(150)]
            answers = await hall.desk.submit_many(hall.ada, some)
            await hall.desk.submit(hall.ada, limit("too many", BUY, 10_000_000, 10))
            with hall.database.reading() as connection:
                counted = "SELECT count(*) FROM reports WHERE account = ?"
                assert connection.exec_driver_sql(counted, (hall.ada.account,)).scalar() == 4
            every = await hall.told(hall.ada)
            assert every[:150] == answers
            assert [one.number for one in every] == list(range(1, 152))
            for after, most in ((0, 1), (0, 64), (63, 2), (64, 64), (100, 1_000), (150, 1), (151, 5), (1 << 63, 1)):
                found = await hall.desk.reports(hall.ada, min(after, (1 << 63) - 1), most)
                assert found == every[after : after + most]
            assert await hall.desk.newest_report(hall.ada) == 151
            assert await hall.desk.submit_many(hall.ada, some[70:90]) == answers[70:90]

    asyncio.run(story())


def test_a_second_desk_on_the_same_books_ends_the_first(tmp_path: Path) -> None:
    async def story() -> None:
        async with hall_at(sqlite_place(tmp_path, "one")) as hall:
            first, first_database = hall.desk, hall.database
            await hall.open()
            await hall.follow()
            assert (await first.submit(hall.ada, limit("1", BUY, 1, 10))).reason is Reason.UNAVAILABLE
            assert isinstance(first.failure, FencedError)
            assert (await hall.desk.submit(hall.ada, limit("1", BUY, 1, 10))).kind is ReportKind.ACCEPTED
            await first.close()
            first_database.close()

    asyncio.run(story())
