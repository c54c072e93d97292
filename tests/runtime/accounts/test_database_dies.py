"""A gateway's database that is killed, full, locked, or restored from an older copy."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest
from tests.runtime.accounts.sequence import LISTED, USD, MemoryGateway, MemorySequence, limit, sqlite_place, trader
from tests.runtime.accounts.test_desk import Hall, Outcome, day, day_is_sound, hall_at
from tests.runtime.postgres import PostgreSQL
from tests.runtime.worlds import eventually

from isocast.orders.accounts import UNITS
from isocast.orders.desk import CancelRequest, Reason, ReportKind
from isocast.orders.needs import Side
from isocast.runtime.accounts.book import AccountBook
from isocast.runtime.accounts.desk import DeskPace
from isocast.runtime.accounts.tables import AccountsDatabase
from isocast.terms.errors import LedgerError, LedgerFault

BUY = Side.BUY
STEPS = ("begin", "written", "committed", "published", "answered", "taken")


class Killer:
    """Kills the server at a step of a gateway, and starts it again beside what goes on."""

    def __init__(self, server: PostgreSQL, step: str, times: int) -> None:
        self._server = server
        self._step = step
        self._times = times
        self._restart: Thread | None = None
        self.told: list[str] = []

    def at(self, reached: Callable[[str], None]) -> Callable[[str], None]:
        def reach(step: str) -> None:
            reached(step)
            self.told.append(step)
            if step == self._step and self.told.count(step) == self._times:
                self._server.kill()
                self._restart = Thread(target=self._server.start)
                self._restart.start()

        return reach

    def end(self) -> None:
        """Wait until the server that was killed is there again."""
        assert self._restart is not None, f"{self._step} was reached {self.told.count(self._step)} times"
        self._restart.join()


async def traded(server: PostgreSQL, killer: Killer | None) -> Outcome:
    server.empty()
    hall = Hall(server.url)
    if killer is not None:
        hall.reached = killer.at(hall.reached)  # type: ignore[method-assign, assignment]
    await hall.open()
    try:
        await hall.follow()
        found = await day(hall, None if killer is None else killer.end)
        assert hall.desk.failure is None
    finally:
        if killer is not None:
            killer.end()
        await hall.close()
    return found


@pytest.fixture(scope="module")
def calm(postgresql: PostgreSQL) -> Outcome:
    return asyncio.run(traded(postgresql, None))


QUICK = [("written", 2), ("committed", 3), ("taken", 2)]
"""In the middle of a transaction, behind one, and while the sequence is taken; the others take their time."""


@pytest.mark.parametrize(
    "step, times",
    [
        pytest.param(step, times, marks=[] if (step, times) in QUICK else pytest.mark.long)
        for times in (2, 3)
        for step in STEPS
    ],
)
def test_a_server_that_is_killed_between_any_two_steps_changes_nothing(
    step: str, times: int, postgresql: PostgreSQL, calm: Outcome
) -> None:
    """The day goes on over it: no order lost, doubled or in doubt, and the same balances as without it."""
    assert asyncio.run(traded(postgresql, Killer(postgresql, step, times))) == calm


def test_while_the_server_is_gone_everybody_is_told_and_nobody_waits(postgresql: PostgreSQL) -> None:
    async def story() -> None:
        postgresql.empty()
        async with hall_at(postgresql.url) as hall:
            assert (await hall.desk.submit(hall.ada, limit("1", BUY, 1, 9))).kind is ReportKind.ACCEPTED
            postgresql.kill()
            try:
                for number in range(2, 6):
                    refused = await hall.desk.submit(hall.ada, limit(str(number), BUY, 1, 9))
                    assert (refused.reason, refused.number) == (Reason.UNAVAILABLE, 0)
                for _ in range(5):  # A password that nobody could judge is not a wrong one.
                    with pytest.raises(LedgerError):
                        await hall.desk.log_in("ada", "whatever it is", "127.0.0.1")
                with pytest.raises(LedgerError):
                    await hall.desk.log_in_by_token("none", "127.0.0.1")
            finally:
                postgresql.start()
            told = [await hall.desk.submit(hall.ada, limit(str(number), BUY, 1, 9)) for number in range(1, 6)]
            assert {report.kind for report in told} == {ReportKind.ACCEPTED}
            assert len(hall.market.published) == 5
            await day_is_sound(hall)

    asyncio.run(story())


def test_a_lock_that_somebody_holds_makes_it_unavailable_and_loses_nothing(postgresql: PostgreSQL) -> None:
    import psycopg  # noqa: PLC0415 - where there is a server

    async def story() -> None:
        postgresql.empty()
        async with hall_at(postgresql.url) as hall:
            hall.database.wait_at_most(0.05)
            with psycopg.connect(postgresql.url) as other:
                other.execute("SELECT * FROM settings FOR UPDATE")
                refused = await hall.desk.submit(hall.ada, limit("1", BUY, 1, 9))
                assert (refused.reason, refused.number) == (Reason.UNAVAILABLE, 0)
                other.rollback()
            assert (await hall.desk.submit(hall.ada, limit("1", BUY, 1, 9))).kind is ReportKind.ACCEPTED
            assert len(hall.market.published) == 1
            await day_is_sound(hall)

    asyncio.run(story())


def test_a_database_that_hangs_answers_nobody_and_nobody_waits_for_it(postgresql: PostgreSQL) -> None:
    """The statement itself waits; the request does not, and is answered as it was once the database is back."""
    import psycopg  # noqa: PLC0415 - where there is a server

    async def story() -> None:
        postgresql.empty()
        async with hall_at(postgresql.url) as hall:
            await hall.close()
            hall.pace = DeskPace(group_s=0.0, answer_s=0.1, look_s=3_600.0)
            await hall.open()
            await hall.follow()
            with psycopg.connect(postgresql.url) as other:
                other.execute("SELECT * FROM settings FOR UPDATE")
                refused = await hall.desk.submit(hall.ada, limit("1", BUY, 1, 9))
                assert (refused.reason, refused.number) == (Reason.UNAVAILABLE, 0)
                other.rollback()
            while (report := await hall.desk.submit(hall.ada, limit("1", BUY, 1, 9))).reason is not None:
                assert report.reason is Reason.UNAVAILABLE
            assert report.kind is ReportKind.ACCEPTED
            assert len(hall.market.published) == 1
            await day_is_sound(hall)

    asyncio.run(story())


FULL = """
CREATE FUNCTION full_disk() RETURNS trigger AS $$
BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$ LANGUAGE plpgsql;
CREATE TRIGGER full_disk BEFORE INSERT ON orders EXECUTE FUNCTION full_disk();
"""


def test_a_full_server_makes_it_unavailable_and_loses_nothing(postgresql: PostgreSQL) -> None:
    import psycopg  # noqa: PLC0415 - where there is a server

    async def story() -> None:
        postgresql.empty()
        async with hall_at(postgresql.url) as hall:
            with psycopg.connect(postgresql.url, autocommit=True) as other:
                other.execute(FULL)
                refused = await hall.desk.submit(hall.ada, limit("1", BUY, 1, 9))
                assert (refused.reason, refused.number) == (Reason.UNAVAILABLE, 0)
                assert hall.desk.failure is None
                other.execute("DROP TRIGGER full_disk ON orders")
            assert (await hall.desk.submit(hall.ada, limit("1", BUY, 1, 9))).kind is ReportKind.ACCEPTED
            assert len(hall.market.published) == 1
            await day_is_sound(hall)

    asyncio.run(story())


# Older copies ------------------------------------------------------------------------------------------------------


class Restored:
    """A gateway whose books are put back to an older copy, while the sequence goes on."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "books.db"
        self._copy = folder / "copy.db"
        self._url = sqlite_place(folder, "books")
        self.market = MemorySequence(LISTED)
        self.gateway = MemoryGateway(self._url, 1, ["Ada"])
        self.ada = trader(1)
        self.gateway.fund(self.ada, USD, 1_000 * UNITS)
        self.gateway.follow(self.market)

    def trade(self, client_id: str) -> None:
        """An order into the sequence, and what came of it into the books."""
        self.gateway.ask(self.ada, limit(client_id, BUY, 1, 10))
        self.gateway.publish(self.market)
        self.market.step()
        self.gateway.follow(self.market)

    def back_up(self) -> None:
        self.gateway.close()
        shutil.copy(self._file, self._copy)
        self._open()

    def restore(self) -> None:
        self.gateway.close()
        shutil.copy(self._copy, self._file)
        self._open()

    def _open(self) -> None:
        self.gateway.database = AccountsDatabase(self._url)
        self.gateway.book = AccountBook(self.gateway.database)
        self.gateway.restart()
        self.gateway.books.refuses_unknown = True


def test_books_that_are_older_than_the_sequence_do_not_trade(tmp_path: Path) -> None:
    one = Restored(tmp_path)
    one.trade("1")
    one.back_up()
    one.gateway.follow(one.market)
    one.trade("2")
    one.restore()
    with pytest.raises(LedgerError, match="older than the sequence") as refused:
        one.gateway.follow(one.market)
    assert refused.value.fault is LedgerFault.UNSOUND
    assert "Restore the newest copy" in str(refused.value)
    one.gateway.close()


def test_a_copy_that_lacks_nothing_goes_on(tmp_path: Path) -> None:
    """Orders that have ended, and those that the outbox still has, are no reason to refuse."""
    one = Restored(tmp_path)
    one.trade("1")
    one.gateway.ask(one.ada, CancelRequest("c", "1"))
    one.gateway.publish(one.market)
    one.market.step()
    one.gateway.follow(one.market)
    one.gateway.ask(one.ada, limit("2", BUY, 1, 10))
    one.back_up()
    one.gateway.follow(one.market)
    one.gateway.publish(one.market)
    one.market.step()
    one.restore()
    one.gateway.follow(one.market)
    one.gateway.publish(one.market)
    assert one.gateway.books.foreign == 0
    assert one.gateway.ask(one.ada, limit("3", BUY, 1, 10))[0].kind is ReportKind.ACCEPTED
    one.gateway.check()
    one.gateway.close()


def test_a_desk_on_older_books_ends_with_the_reason(tmp_path: Path) -> None:
    async def story() -> None:
        async with hall_at(sqlite_place(tmp_path, "books")) as hall:
            await hall.close()
            shutil.copy(tmp_path / "books.db", tmp_path / "copy.db")
            await hall.open()
            await hall.follow()
            await hall.ask(hall.ada, limit("1", BUY, 1, 10))
            await hall.token()
            await hall.close()
            shutil.copy(tmp_path / "copy.db", tmp_path / "books.db")
            await hall.open()
            hall.desk.books.refuses_unknown = True
            await hall.follow()
            await eventually(lambda: hall.desk.failure is not None or not hall.desk.wants_token)
            assert "older than the sequence" in str(hall.desk.failure)
            assert (await hall.desk.submit(hall.ada, limit("2", BUY, 1, 10))).reason is Reason.UNAVAILABLE

    asyncio.run(story())
