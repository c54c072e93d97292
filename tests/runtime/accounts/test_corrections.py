"""Two operators correct a confirmed trade: gateways reverse what they settled, once, and nothing is made or lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.runtime.accounts.sequence import (
    IBM,
    LISTED,
    ROUND,
    USD,
    MemoryGateway,
    MemorySequence,
    limit,
    sqlite_place,
)

from isocast.cli.main import main
from isocast.orders.accounts import UNITS
from isocast.orders.desk import Login, OrderStatus, ReplaceRequest, ReportKind, Scope, TradeReport
from isocast.orders.ledger import Balance, deposit
from isocast.orders.needs import Side
from isocast.runtime.accounts.audit import audit, clearing_of_all, net_between
from isocast.runtime.accounts.book import AccountBook
from isocast.runtime.accounts.desk import DeskPace, GatewayDesk
from isocast.runtime.accounts.posting import rows_of
from isocast.runtime.accounts.tables import AccountsDatabase
from isocast.runtime.accounts.trading import DeskSettings, TradingBooks

SETTINGS = DeskSettings(stable_tokens=ROUND, snapshot_tokens=2, fee_bp=(5, 20))
MONEY = 2_000 * UNITS


class Two:
    """Ada buys 40 of Bob's 100 shares at 10.00 at another gateway: 0.20 and 0.80 are their fees."""

    def __init__(self, folder: Path) -> None:
        self.market = MemorySequence(LISTED)
        self.east = MemoryGateway(sqlite_place(folder, "east"), 1, ["Ada"], SETTINGS)
        self.west = MemoryGateway(sqlite_place(folder, "west"), 2, ["Bob"], SETTINGS)
        self.ada, self.bob = self.east.accounts[0], self.west.accounts[0]
        self.east.fund(self.ada, USD, MONEY)
        self.west.fund(self.bob, IBM, 100)
        self.follow()
        self.west.ask(self.bob, limit("1", Side.SELL, 100, 10))
        self.step()
        self.east.ask(self.ada, limit("1", Side.BUY, 40, 10))
        self.step()

    def follow(self) -> None:
        for gateway in (self.east, self.west):
            gateway.follow(self.market)

    def step(self) -> None:
        for gateway in (self.east, self.west):
            gateway.publish(self.market)
        self.market.step()
        self.follow()

    def confirm(self) -> None:
        self.market.step()
        self.market.confirm()
        self.follow()

    def ticks(self, tokens: int = ROUND) -> None:
        self.market.tick(tokens)
        self.follow()

    def check(self) -> None:
        """Sound books; nothing is left between the gateways; money and shares are as many as were brought."""
        for gateway in (self.east, self.west):
            gateway.check()
        audits = [audit(gateway.database) for gateway in (self.east, self.west)]
        assert clearing_of_all(audits) == {}
        netted = net_between([self.east.database, self.west.database])
        assert not netted.unmatched
        fees = self.east.gateway_fees() + self.west.gateway_fees()
        everything = [(self.east, self.ada), (self.west, self.bob)]
        assert sum(sum(gateway.balance(one, USD)) for gateway, one in everything) + fees == MONEY
        held = [sum(gateway.balance(one, IBM)) for gateway, one in everything]
        assert held == [self.market.bought(self.ada), 100 + self.market.bought(self.bob)], "each trade once"

    def told(self, kind: ReportKind) -> list[TradeReport]:
        both = self.east.reports(self.ada) + self.west.reports(self.bob)
        return [report for report in both if report.kind is kind]

    def close(self) -> None:
        for gateway in (self.east, self.west):
            gateway.close()


def test_through_desks_to_statements_and_the_audit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two gateways as processes run them: traders hear of it, the command line shows it, and everything adds up."""
    urls = [sqlite_place(tmp_path, name) for name in ("east", "west")]
    market = MemorySequence(LISTED)
    logins, databases = [], [AccountsDatabase(url) for url in urls]
    for number, (database, name, what) in enumerate(
        zip(databases, ("Ada", "Bob"), ((USD, MONEY), (IBM, 100)), strict=True), 1
    ):
        AccountBook.create(database, number)
        account = AccountBook(database).open(name).number
        AccountBook(database).post(deposit("1", account, *what))
        logins.append(Login(account, name, frozenset(Scope), f"session of {name}"))

    async def story() -> list[list[TradeReport]]:
        async with AsyncExitStack() as stack:
            pace = DeskPace(group_s=0.0, answer_s=60.0, look_s=3_600.0)
            desks = [
                await stack.enter_async_context(
                    GatewayDesk(one, TradingBooks(one, SETTINGS), market.send, pace=pace, clock=lambda: 10**9)
                )
                for one in databases
            ]
            heard = 0

            async def follow() -> None:
                nonlocal heard
                for token, instant, messages in market.tokens[heard:]:
                    for desk in desks:
                        for message in messages:
                            await desk.take(token, instant, message)
                        await desk.end_token(token)
                heard = len(market.tokens)
                for desk in desks:
                    await desk.until_taken()

            await follow()
            for place, side, quantity in ((1, Side.SELL, 100), (0, Side.BUY, 40)):
                report = await desks[place].submit(logins[place], limit("1", side, quantity, 10))
                assert report.kind is ReportKind.ACCEPTED
                market.step()
                await follow()
            market.step()
            market.confirm()
            market.correct(market.correction(1, 9 * UNITS, 30))
            market.correct(market.correction(1))
            market.step()
            market.tick(ROUND)
            await follow()
            alarms = [(await desk.status()).alarms for desk in desks]
            assert alarms[0] == alarms[1]
            assert [alarm.startswith("corrections of trades") for alarm in alarms[0]] == [True], "the second paper"
            return [list(await desk.reports(login, 0)) for desk, login in zip(desks, logins, strict=True)]

    told = asyncio.run(story())
    for database in databases:
        database.close()
    assert [[report.kind for report in some][-2:] for some in told] == [
        [ReportKind.CONFIRMED, ReportKind.CORRECTED]
    ] * 2
    assert main(["accounts", "audit", *urls, "--settled"]) == 0
    assert main(["accounts", "statement", "Ada", "--database", urls[0]]) == 0
    said = capsys.readouterr().out
    assert "correction" in said
    assert "trade 1 is 30 at 9.00" in said


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    made = Two(tmp_path)
    made.confirm()
    yield made
    made.close()


def test_a_void_trade_gives_everybody_back_what_he_had_with_fees(two: Two) -> None:
    assert two.east.balance(two.ada, IBM) == Balance(40, 0)
    assert (two.east.gateway_fees(), two.west.gateway_fees()) == (8_000, 2_000)
    two.market.correct(two.market.correction(1))
    two.step()
    assert two.told(ReportKind.CORRECTED) == [], "the token may still be lost"
    two.ticks()
    assert two.east.balance(two.ada, USD) == Balance(MONEY, 0)
    assert two.east.balance(two.ada, IBM) == Balance(0, 0)
    assert two.west.balance(two.bob, IBM) == Balance(40, 60), "what is back is not bound again"
    assert (two.east.gateway_fees(), two.west.gateway_fees()) == (0, 0)
    first, second = two.told(ReportKind.CORRECTED)
    assert (first.trade, first.last_quantity, first.status, first.filled) == (1, 0, OrderStatus.FILLED, 40)
    assert second.text == "trade 1 is void, by two operators"
    two.check()
    assert net_between([two.east.database, two.west.database]).debts() == []


def test_a_replace_after_a_correction_counts_from_what_the_floor_has_filled(two: Two) -> None:
    """40 of Bob's 100 traded and are void now: a total of 60 leaves 20, on the floor and for him alike."""
    two.market.correct(two.market.correction(1))
    two.step()
    two.ticks()
    two.west.ask(two.bob, ReplaceRequest("2", "1", 60))
    two.step()
    two.ticks()
    (told,) = two.told(ReportKind.REPLACED)
    assert (told.quantity, told.filled, told.left) == (60, 40, 20)
    assert [order.left for _, order in two.market.floor.orders.values()] == [20]
    assert two.west.balance(two.bob, IBM) == Balance(80, 20), "what is back is free, what works is bound"
    two.check()


def test_another_price_and_quantity_is_settled_behind_a_reversal_with_the_fees_of_its_rates(two: Two) -> None:
    two.market.correct(two.market.correction(1, 9 * UNITS, 30))
    two.step()
    two.ticks()
    two.check()
    assert two.east.balance(two.ada, USD) == Balance(MONEY - 270 * UNITS - 5_400, 0)
    assert two.east.balance(two.ada, IBM) == Balance(30, 0)
    assert two.west.balance(two.bob, USD) == Balance(270 * UNITS - 1_350, 0)
    assert two.west.balance(two.bob, IBM) == Balance(10, 60)
    with two.east.database.reading() as connection:
        entries = rows_of(connection, "SELECT key, kind, memo FROM entries WHERE key LIKE 'XISO%' ORDER BY number")
    assert [tuple(row) for row in entries] == [
        ("XISO/1/buy", "trade", ""),
        ("XISO/1v1/buy-reversed", "correction", "trade 1 is 30 at 9.00, by two operators"),
        ("XISO/1v1/buy", "correction", "trade 1 is 30 at 9.00"),
    ]
    owed = {(debt.asset, debt.amount) for debt in net_between([two.east.database, two.west.database]).debts()}
    assert owed == {(USD, 270 * UNITS), (IBM, 30)}


def test_a_trade_is_corrected_again_from_how_it_stands_and_a_replay_changes_nothing(two: Two) -> None:
    first = two.market.correction(1, 9 * UNITS, 30)
    two.market.correct(first)
    two.market.correct(first)
    two.step()
    second = two.market.correction(1, 8 * UNITS, 30)
    assert second.version == 2
    two.market.correct(first._replace(price=7 * UNITS))
    two.market.correct(second)
    two.step()
    for gateway in (two.east, two.west):
        gateway.restart()
        gateway.follow(two.market)
    two.ticks()
    two.market.correct(second)
    two.step()
    two.ticks()
    two.check()
    assert two.east.balance(two.ada, USD) == Balance(MONEY - 240 * UNITS - 4_800, 0)
    told = [report for report in two.told(ReportKind.CORRECTED) if report.account == two.ada]
    assert [(report.last_quantity, report.last_price) for report in told] == [(30, 9 * UNITS), (30, 8 * UNITS)]
    assert two.east.books.view.refused_corrections >= 1, "since it started again"
    two.market.correct(two.market.correction(1))
    two.step()
    two.ticks()
    two.check()
    assert two.east.balance(two.ada, USD) == Balance(MONEY, 0)


def test_what_was_spent_meanwhile_is_owed_and_the_audit_says_nothing_else(two: Two) -> None:
    two.east.ask(two.ada, limit("2", Side.SELL, 40, 11))
    two.step()
    two.market.correct(two.market.correction(1))
    two.step()
    two.ticks()
    assert two.east.balance(two.ada, IBM) == Balance(-40, 40), "they are in an order"
    two.check()
    [refused] = two.east.ask(two.ada, limit("3", Side.SELL, 1, 11))
    assert refused.kind is ReportKind.REFUSED


def test_a_tentative_trade_is_not_corrected(tmp_path: Path) -> None:
    two = Two(tmp_path)
    two.market.correct(two.market.correction(1))
    two.step()
    two.confirm()
    two.ticks()
    two.check()
    assert two.told(ReportKind.CORRECTED) == []
    assert two.east.balance(two.ada, IBM) == Balance(40, 0)
    assert two.east.books.view.refused_corrections == 1
    two.close()


def test_a_correction_in_a_token_that_is_lost_is_settled_once_when_it_comes_again(two: Two) -> None:
    two.ticks()
    two.market.correct(two.market.correction(1, 9 * UNITS, 40))
    two.step()
    assert two.market.cut(1) == 1
    two.market.tick()
    two.follow()
    for gateway in (two.east, two.west):
        gateway.restart()
        gateway.follow(two.market)
    two.ticks()
    two.check()
    assert [report.trade for report in two.told(ReportKind.CORRECTED)] == [1, 1]
    assert two.east.balance(two.ada, USD) == Balance(MONEY - 360 * UNITS - 7_200, 0)
