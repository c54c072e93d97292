"""A gateway's books, in SQLite and in PostgreSQL."""

from __future__ import annotations

import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text
from tests.orders.test_ledger import entry_of

from isocast.orders.accounts import CLEARING, UNITS, WORLD, account_number, cash, shares
from isocast.orders.desk import ReportKind
from isocast.orders.ledger import (
    Balance,
    Entry,
    Fill,
    Ledger,
    deposit,
    free,
    reserve,
    settle_buy,
    settle_sell,
    withdraw,
)
from isocast.orders.life import OrderLife
from isocast.orders.needs import Side
from isocast.runtime.accounts import migrations
from isocast.runtime.accounts.audit import audit, check_reserved, clearing_of_all
from isocast.runtime.accounts.book import AccountBook, Holding
from isocast.runtime.accounts.order_store import report_body, reports_of
from isocast.runtime.accounts.tables import TABLES, AccountsDatabase
from isocast.runtime.box_office.database import OfficeDatabase
from isocast.runtime.disk.database import sqlite_url
from isocast.terms.errors import ConfigurationError, LedgerError, LedgerFault

USD, IBM = cash("USD"), shares("IBM")
ADA, BOB = account_number(1, 16), account_number(1, 17)
REPORT = OrderLife(ADA << 32 | 1, ADA, "a", "IBM", Side.BUY, 10, 5, price=5).report(ReportKind.ACCEPTED, 7, 1)


@pytest.fixture
def database(database_url: str) -> Iterator[AccountsDatabase]:
    made = AccountsDatabase(database_url)
    yield made
    made.close()


@pytest.fixture
def book(database: AccountsDatabase) -> AccountBook:
    """Gateway 1, with Ada and Bob."""
    ticks = iter(range(1, 1_000_000))
    assert AccountBook.create(database, 1)
    made = AccountBook(database, clock=lambda: next(ticks))
    assert [made.open("Ada").number, made.open("Bob").number] == [ADA, BOB]
    return made


def balances(book: AccountBook, account: int) -> dict[str, Balance]:
    return {holding.asset: holding.balance for holding in book.holdings(account)}


def execute(database: AccountsDatabase, statement: str) -> None:
    with database.making() as connection:
        connection.execute(text(statement))


def test_a_trade_from_deposit_to_settlement(book: AccountBook, database: AccountsDatabase) -> None:
    fill = Fill(quantity=100, price=10 * UNITS)
    entries = [
        deposit("d1", ADA, USD, 5_000 * UNITS, "wire 77"),
        deposit("d2", BOB, IBM, 100),
        reserve("r1", "1", ADA, USD, 1_000 * UNITS),
        reserve("r2", "2", BOB, IBM, 100),
    ]
    assert book.post_each(entries) == [True] * 4
    check_reserved(database)
    assert balances(book, ADA) == {USD: Balance(4_000 * UNITS, 1_000 * UNITS)}
    assert book.post(settle_buy("t1b", "1", ADA, USD, IBM, fill, 1_000 * UNITS))
    assert book.post(settle_sell("t1s", "2", BOB, USD, IBM, fill))
    assert balances(book, ADA) == {USD: Balance(4_000 * UNITS, 0), IBM: Balance(100, 0)}
    assert balances(book, BOB) == {USD: Balance(1_000 * UNITS, 0), IBM: Balance(0, 0)}
    report = audit(database)
    assert report.is_sound, report.findings
    assert (report.accounts, report.entries, report.postings, report.reservations) == (5, 6, 16, 0)
    assert report.clearing == {USD: 0, IBM: 0}
    lines = list(book.statement(ADA))
    assert [
        (line.kind, line.amount, line.after) for line in lines if line.asset == USD and line.pot == "available"
    ] == [
        ("deposit", 5_000 * UNITS, 5_000 * UNITS),
        ("reservation", -1_000 * UNITS, 4_000 * UNITS),
    ]
    assert lines[0].memo == "wire 77"
    assert [line.kind for line in book.statement(ADA, lines[-1].at_ns)] == ["trade", "trade"]


def test_each_entry_of_a_batch_is_posted_or_refused_by_itself(book: AccountBook) -> None:
    answers = book.post_each(
        [
            deposit("1", ADA, USD, 100),
            withdraw("2", ADA, USD, 101),
            deposit("1", ADA, USD, 100),
            deposit("1", ADA, USD, 99),
            reserve("3", "o", ADA, USD, 100),
            withdraw("4", ADA, USD, 1),
            deposit("5", account_number(1, 99), USD, 1),
            deposit("", ADA, USD, 1),
        ]
    )
    faults = [answer.fault if isinstance(answer, LedgerError) else answer for answer in answers]
    short, used, unknown = LedgerFault.SHORT, LedgerFault.KEY_USED, LedgerFault.UNKNOWN
    assert faults == [True, short, False, used, True, short, unknown, used]
    assert balances(book, ADA) == {USD: Balance(0, 100)}
    assert book.post_each([deposit("1", ADA, USD, 100), deposit("1", ADA, USD, 7)])[0] is False
    with pytest.raises(LedgerError, match="posted before with other contents"):
        book.post(deposit("1", ADA, USD, 7))


def test_a_second_process_goes_on_where_the_first_was(book: AccountBook, database_url: str) -> None:
    book.post(deposit("1", ADA, USD, 100))
    book.post(reserve("2", "o", ADA, USD, 60))
    other = AccountsDatabase(database_url)
    again = AccountBook(other)
    assert not again.post(deposit("1", ADA, USD, 100))
    with pytest.raises(LedgerError, match="can spend"):
        again.post(withdraw("3", ADA, USD, 41))
    assert again.post(free("4", "o", ADA, USD, 60))
    assert balances(book, ADA) == {USD: Balance(100, 0)}
    other.close()


def test_writers_take_turns(book: AccountBook) -> None:
    """Eight threads spend the same money: it is spent once."""
    book.post(deposit("1", ADA, USD, 10))
    done: list[bool | LedgerError] = []

    def spend(first: int) -> None:
        for index in range(first, first + 5):
            done.extend(book.post_each([withdraw(f"w{index}", ADA, USD, 1)]))

    threads = [threading.Thread(target=spend, args=(index * 5,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done.count(True) == 10
    assert balances(book, ADA) == {USD: Balance(0, 0)}


@pytest.mark.parametrize("seed", range(3))
def test_the_database_keeps_what_the_rules_say(book: AccountBook, database: AccountsDatabase, seed: int) -> None:
    """Any entries, in batches of any size: balances and reservations are those of the rules alone."""
    random, model = Random(seed), Ledger()
    kinds = ["deposit", "withdraw", "reserve", "free", "buy", "sell"]
    for batch in range(30):
        entries: list[Entry] = []
        for index in range(random.randint(1, 12)):
            step = (
                random.choice(kinds), random.choice([ADA, BOB]), random.choice([USD, IBM]), random.randint(0, 3),
                random.randint(1, 1_000), random.randint(1, 20),
            )  # fmt: skip
            entries.append(entry_of(1_000 * batch + index, step))
        expected: list[bool | LedgerFault] = []
        for entry in entries:
            try:
                expected.append(model.post(entry))
            except LedgerError as refusal:
                expected.append(refusal.fault)
        answers = book.post_each(entries)
        assert [answer.fault if isinstance(answer, LedgerError) else answer for answer in answers] == expected
    for account in (ADA, BOB, account_number(1, WORLD), account_number(1, CLEARING)):
        kept = {asset: model.balance(account, asset) for asset in balances(book, account)}
        assert balances(book, account) == kept
    report = audit(database)
    assert report.is_sound, report.findings
    assert report.reservations == len(model.reservations)
    check_reserved(database)


DAMAGE = {
    "UPDATE balances SET available = available + 1 WHERE account = 1048592": "its entries add up to -0.0001 USD more",
    "UPDATE balances SET available = -1, reserved = 101 WHERE account = 1048592": "beyond its limit",
    "UPDATE postings SET amount = amount + 1 WHERE entry = 1 AND leg = 0": "entry 1 does not balance: 0.0001 USD",
    "DELETE FROM postings WHERE entry = 1": "entry 1 has no legs",
    "DELETE FROM balances WHERE account = 1048592": "more available than it has",
    "DELETE FROM reservations": "its orders need 0.00 USD",
    "UPDATE reservations SET amount = 61": "its orders need 0.0061 USD",
}


@pytest.mark.parametrize("statement", DAMAGE)
def test_an_audit_finds_what_somebody_changed(book: AccountBook, database: AccountsDatabase, statement: str) -> None:
    book.post(deposit("1", ADA, USD, 100))
    book.post(reserve("2", "o", ADA, USD, 60))
    assert audit(database).is_sound
    execute(database, statement)
    assert any(DAMAGE[statement] in finding for finding in audit(database).findings), audit(database).findings


def test_nothing_is_traded_on_reservations_that_nobody_can_explain(
    book: AccountBook, database: AccountsDatabase
) -> None:
    book.post(deposit("1", ADA, USD, 100))
    book.post(reserve("2", "o", ADA, USD, 60))
    execute(database, "DELETE FROM reservations")
    with pytest.raises(LedgerError, match="nothing is traded until that is explained") as caught:
        check_reserved(database)
    assert caught.value.fault is LedgerFault.UNSOUND


def test_an_entry_that_was_taken_out_whole_leaves_a_gap(book: AccountBook, database: AccountsDatabase) -> None:
    for key in "12":
        book.post(deposit(key, ADA, USD, 100))
    execute(database, "DELETE FROM postings WHERE entry = 1")
    execute(database, "DELETE FROM entries WHERE number = 1")
    execute(database, "UPDATE balances SET available = available / 2")
    assert audit(database).findings == ["entries are numbered up to 2, and there are 1: some were removed"]


def test_limits_and_freezing(book: AccountBook) -> None:
    book.set_limit(ADA, IBM, 5)
    book.post(reserve("1", "short", ADA, IBM, 5))
    assert book.holdings(ADA) == [Holding(IBM, Balance(-5, 5), 5)]
    book.set_limit(ADA, IBM, 0)
    with pytest.raises(LedgerError, match="can spend 0 IBM"):
        book.post(reserve("2", "shorter", ADA, IBM, 1))
    book.post(free("3", "short", ADA, IBM, 5))
    book.post(deposit("4", ADA, USD, 10))
    book.freeze(ADA, "a court's order")
    assert book.account("Ada").reason == "a court's order"
    with pytest.raises(LedgerError, match="is frozen"):
        book.post(withdraw("5", ADA, USD, 1))
    book.freeze(ADA, "", frozen=False)
    assert book.post(withdraw("5", ADA, USD, 1)), "a refused key is free again"
    with pytest.raises(LedgerError, match="there is no account 99"):
        book.freeze(account_number(0, 99), "")
    with pytest.raises(LedgerError, match="own accounts"):
        book.freeze(account_number(1, WORLD), "")


@pytest.mark.parametrize("name", ["", "17", " x", "a\nb", "a" * 65, "Ada'; DROP TABLE accounts"])
def test_names(book: AccountBook, name: str) -> None:
    with pytest.raises(LedgerError, match="cannot be a name"):
        book.open(name)


def test_a_name_is_used_once_and_an_unknown_one_is_told(book: AccountBook) -> None:
    with pytest.raises(LedgerError, match="already"):
        book.open("Ada")
    for wrong in ("Eve", "17", "9" * 30):
        with pytest.raises(LedgerError, match="isocast accounts show lists them"):
            book.account(wrong)
    assert book.account(str(ADA)) == book.account("Ada")


def test_clearing_of_two_gateways(book: AccountBook, database: AccountsDatabase, tmp_path: Path) -> None:
    other = AccountsDatabase(sqlite_url(tmp_path / "second.db"))
    AccountBook.create(other, 2)
    there = AccountBook(other)
    eve = there.open("Eve").number
    fill = Fill(quantity=1, price=7)
    book.post_each(
        [deposit("1", ADA, USD, 7), reserve("2", "o", ADA, USD, 7), settle_buy("t", "o", ADA, USD, IBM, fill, 7)]
    )
    assert clearing_of_all([audit(database), audit(other)]) == {USD: 7, IBM: -1}
    there.post_each(
        [deposit("1", eve, IBM, 1), reserve("2", "o", eve, IBM, 1), settle_sell("t", "o", eve, USD, IBM, fill)]
    )
    assert clearing_of_all([audit(database), audit(other)]) == {}
    other.close()


# The database


def test_migrations_end_in_the_tables_that_the_program_uses(book: AccountBook, database: AccountsDatabase) -> None:
    assert not AccountBook.create(database, 1), "a second time changes nothing"
    assert not database.upgrade()
    with database.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), TABLES) == []
    assert book.account("Ada").number == ADA


def test_books_of_a_newer_program_are_left_alone(book: AccountBook, database: AccountsDatabase) -> None:
    assert book.gateway == 1
    execute(database, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(ConfigurationError, match="version 9999"):
        AccountBook(database)
    with pytest.raises(ConfigurationError, match="made by a newer program"):
        database.upgrade()


def test_a_gateway_does_not_open_the_books_of_another(book: AccountBook, database: AccountsDatabase) -> None:
    assert book.gateway == 1
    with pytest.raises(ConfigurationError, match="has the books of gateway 1, not 2"):
        AccountBook.create(database, 2)
    for wrong in (0, 4096):
        with pytest.raises(ConfigurationError, match="from 1 to 4,095"):
            AccountBook.create(database, wrong)


def test_a_database_without_books_says_what_to_do(database: AccountsDatabase) -> None:
    with pytest.raises(ConfigurationError, match="isocast accounts open makes the first"):
        AccountBook(database)


def test_accounts_do_not_move_in_with_a_box_office(database: AccountsDatabase, database_url: str) -> None:
    office = OfficeDatabase(database_url)
    office.create({})
    office.close()
    with pytest.raises(ConfigurationError, match="a database of their own"):
        AccountBook.create(database, 1)


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    database = AccountsDatabase(sqlite_url(tmp_path / "kept" / "books.db"))
    AccountBook.create(database, 1)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "kept").iterdir()}
    assert set(modes.values()) == {0o600}
    database.close()


def test_a_database_that_is_gone_is_an_error_without_its_password() -> None:
    database = AccountsDatabase("postgresql://gateway:hunter2@127.0.0.1:1/none")
    with pytest.raises(LedgerError) as caught:
        AccountBook(database)
    assert caught.value.fault is LedgerFault.UNAVAILABLE
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("version", ["0001", "0002", "0003", "0004", "0005"])
def test_books_of_every_version_become_those_of_today(database: AccountsDatabase, version: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    with database.making() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, version)
        for statement in (
            "INSERT INTO settings (name, value) VALUES ('writer', ''), ('gateway', '1')",
            "INSERT INTO accounts (number, name, frozen, reason, opened_ns) VALUES (1048592, 'Ada', FALSE, '', 1)",
            "INSERT INTO accounts (number, name, frozen, reason, opened_ns) VALUES (1048593, 'Bob', TRUE, 'late', 1)",
            "INSERT INTO balances (account, asset, available, reserved) VALUES (1048592, 'cash:USD', 7, 3)",
        ):
            connection.execute(text(statement))
        if version > "0001":
            told = "INSERT INTO reports (account, number, batch, order_number, body) VALUES (1048592, 1, 0, 1, :body)"
            connection.execute(text(told), {"body": report_body(REPORT)})
    with pytest.raises(ConfigurationError, match="isocast accounts upgrade"):
        database.gateway()
    assert database.upgrade()
    assert not database.upgrade()
    book = AccountBook(database)
    assert book.account(ADA).name == "Ada"
    assert book.holdings(ADA) == [Holding(USD, Balance(7, 3), 0)]
    with database.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), TABLES) == []
        kept = connection.execute(text("SELECT account, number, batch, body FROM reports")).all()
    assert [(*row[:3], reports_of(row[3])) for row in kept] == [(ADA, 1, 0, [REPORT])] * (version > "0001")
