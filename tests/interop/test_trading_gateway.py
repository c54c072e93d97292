"""A gateway on a real market: orders go into the ring, and what becomes of them is read from the sequence."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from tests.runtime.worlds import PATIENCE_S, SMALL, World, eventually, market_file, run

from isocast.floor.codec import encode_event, floor_topic
from isocast.floor.events import Directory, Phase
from isocast.floor.reporting import FloorReport, encode_report, report_topic
from isocast.orders.accounts import UNITS, cash, shares
from isocast.orders.desk import BalanceLine, CancelRequest, Desk, Login, NewOrder, ReportKind, Scope
from isocast.orders.ledger import deposit
from isocast.orders.needs import Side
from isocast.runtime.accounts.audit import audit
from isocast.runtime.accounts.book import AccountBook
from isocast.runtime.accounts.desk import GatewayDesk
from isocast.runtime.accounts.serving import GatewayPlan, serve_gateway
from isocast.runtime.accounts.tables import AccountsDatabase
from isocast.runtime.client.publisher import Publisher
from isocast.runtime.disk.database import sqlite_url
from isocast.wire.opaque import OpaqueMessage

FLOOR = floor_topic("XISO")
NODES = {**SMALL, "gate": {"role": "primary-source"}, "bank": {**SMALL["bank"], "start": False}}


def books(path: Path) -> tuple[str, Login, Login]:
    """Ada with money, Bob with shares."""
    url = sqlite_url(path / "books.db")
    database = AccountsDatabase(url)
    AccountBook.create(database, 1)
    book = AccountBook(database)
    ada, bob = (Login(book.open(name).number, name, frozenset(Scope), name) for name in ("Ada", "Bob"))
    book.post(deposit("1", ada.account, cash("USD"), 5_000 * UNITS))
    book.post(deposit("2", bob.account, shares("IBM"), 100))
    database.close()
    return url, ada, bob


async def until_told(desk: Desk, login: Login, *kinds: ReportKind) -> None:
    """Until an account was told exactly this."""
    async with asyncio.timeout(PATIENCE_S):
        told = []
        async for report in desk.watch(login, 0):
            told.append(report.kind)
            if len(told) == len(kinds):
                break
    assert told == list(kinds)


def test_orders_trade_through_a_real_market_and_a_restarted_gateway_goes_on(tmp_path: Path) -> None:
    url, ada, bob = books(tmp_path)
    accepted, working = ReportKind.ACCEPTED, ReportKind.WORKING

    async def story() -> None:
        async with World(market_file(tmp_path, NODES)) as world, AsyncExitStack() as stack:
            await world.start()
            operator = await stack.enter_async_context(Publisher(world.market, "floor"))
            listed = Directory("IBM", tick=100, phase=Phase.OPEN, reference=10 * UNITS)
            await operator.send([OpaqueMessage(FLOOR, encode_event(listed))])
            plan = GatewayPlan(world.market, "gate", url, "bank")

            async def first(desk: Desk) -> None:
                assert await desk.symbols(), "a gateway lets traders in once it has caught up"
                buy = NewOrder("1", "IBM", Side.BUY, 100, price=10 * UNITS)
                assert (await desk.submit(ada, buy)).kind is accepted
                assert (await desk.submit(bob, NewOrder("1", "IBM", Side.SELL, 60, price=10 * UNITS))).kind is accepted
                await until_told(desk, bob, accepted, working, ReportKind.TRADED)
                done.set()

            async def second(desk: Desk) -> None:
                assert isinstance(desk, GatewayDesk)
                await eventually(lambda: desk.books.view.newest >= desk.books.position.token)
                assert (await desk.submit(ada, CancelRequest("2", "1"))).kind is ReportKind.CANCEL_PENDING
                story = accepted, working, ReportKind.TRADED, ReportKind.CANCEL_PENDING, ReportKind.CANCELLED
                await until_told(desk, ada, *story)
                [token] = list(desk.books.view.results)
                own = desk.books.view.results[token]
                word = FloorReport(token, own.state, 1)
                await operator.send([OpaqueMessage(report_topic("XISO"), encode_report(word))])
                await until_told(desk, ada, *story, ReportKind.CONFIRMED)
                assert BalanceLine(shares("IBM"), 60, 0) in await desk.balances(ada)
                done.set()

            for way in (first, second):
                done = asyncio.Event()
                serving = asyncio.create_task(serve_gateway(plan, [way]))
                finished = asyncio.create_task(done.wait())
                await asyncio.wait([serving, finished], return_when=asyncio.FIRST_COMPLETED)
                if serving.done():
                    serving.result()
                serving.cancel()
                await asyncio.wait([serving])
        database = AccountsDatabase(url)
        assert audit(database).is_sound
        database.close()

    run(story())
