"""§7.2 and §7.3 with real processes: from orders to settled accounts and tables of Spark; gateways killed."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from time import time_ns
from typing import Any, TypeVar

import pytest
from tests.interop.places import QUICK, new_market, own_place
from tests.interop.stage import Stage
from tests.interop.test_floor import FLOOR, NODES, RECEIVERS, check_agreement, trades

import isocast
from isocast.orders.accounts import CLEARING, account_number, cash, parse_sum, shares
from isocast.orders.desk import Scope
from isocast.orders.ledger import deposit
from isocast.runtime.accounts.audit import audit
from isocast.runtime.accounts.book import AccountBook
from isocast.runtime.accounts.logins import Logins
from isocast.runtime.accounts.tables import AccountsDatabase
from isocast.runtime.disk.database import sqlite_url
from isocast.runtime.operate.floor_change import find_floor, opening, publish_events

pytestmark = pytest.mark.xdist_group("floor")

PATIENCE_S = 90.0
HOUR_NS = 3_600 * 1_000_000_000
ResultT = TypeVar("ResultT")


@dataclass
class Gateway:
    """One gateway: its books, its process, and a trader with a token."""

    stage: Stage
    folder: Path
    number: int
    source: str
    trader: str
    process: subprocess.Popen[str] | None = None
    url: str = ""
    token: str = ""
    account: int = 0

    @property
    def database(self) -> str:
        return sqlite_url(self.folder / "accounts.db")

    def found(self, money: str, symbol: str, quantity: int) -> None:
        """Books with one trader who has something."""
        database = AccountsDatabase(self.database)
        try:
            AccountBook.create(database, self.number)
            book = AccountBook(database)
            self.account = book.open(self.trader).number
            book.post(deposit("money", self.account, *parse_sum(money)))
            if quantity:
                book.post(deposit("shares", self.account, shares(symbol), quantity))
            self.token = Logins(database).make_token(self.account, "test", Scope, time_ns() + HOUR_NS)
        finally:
            database.close()

    def start(self) -> None:
        words = ["trading-gateway", "run", "--config", self.stage.market.file, "--source", self.source]
        words += ["--database", self.database, "--https", "127.0.0.1:0"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "isocast", *words], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if " at 127.0.0.1:" in line:
                self.url = f"http://127.0.0.1:{line.rpartition(':')[2].strip()}"
                return
        pytest.fail(f"the gateway of {self.source} ended with {self.process.wait()}")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(PATIENCE_S)
            assert self.process.stderr is not None
            self.process.stderr.close()
            self.process = None

    def balance(self, asset: str, account: int | None = None) -> tuple[int, int]:
        database = AccountsDatabase(self.database)
        try:
            found = AccountBook(database).holdings(self.account if account is None else account)
            return next(((one.balance.available, one.balance.reserved) for one in found if one.asset == asset), (0, 0))
        finally:
            database.close()

    def check_books(self) -> None:
        database = AccountsDatabase(self.database)
        try:
            assert audit(database).is_sound
        finally:
            database.close()


CITIES = (*RECEIVERS, "sydney")
SPARK = """
import json, sys
from isocast.lake.session import QUICK_START, spark_session
from isocast.lake.transforms.floors import floor_orders, floor_trades

settings = {"spark.driver.extraJavaOptions": QUICK_START, "spark.driver.memory": "1g"}
spark = spark_session("isocast tests", master="local[2]", settings=settings)
messages = spark.read.format("isocast").option("frame", "messages").load(sys.argv[1])
found = [frame(messages, "XISO").collect() for frame in (floor_orders, floor_trades)]
print(json.dumps([[row.asDict() for row in rows] for rows in found]))
spark.stop()
"""
"""What anybody does with the journals of a market, in a process of its own: it brings Java."""


@pytest.fixture
def market(tmp_path: Path) -> Iterator[tuple[Stage, Gateway, Gateway]]:
    """A ring of four cities, and two gateways with a trader each."""
    with ExitStack() as opened:
        place = opened.enter_context(own_place())
        nodes: dict[str, dict[str, object]] = {**NODES, "sydney": {"role": "primary-receiver"}}
        made = new_market(tmp_path / "market", place, nodes, timing=QUICK, more=FLOOR)
        stage = opened.enter_context(Stage(made))
        stage.until_whole()
        stage.call(publish_events(made, find_floor(made, None), opening(find_floor(made, None))))
        east = Gateway(stage, tmp_path / "east", 1, "east", "Ada")
        west = Gateway(stage, tmp_path / "west", 2, "west", "Ben")
        east.found("5000.00 USD", "ISO", 0)
        west.found("10.00 USD", "ISO", 100)
        for gateway in (east, west):
            opened.callback(gateway.stop)
            gateway.start()
        yield stage, east, west


def run(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    async def bounded() -> ResultT:
        async with asyncio.timeout(PATIENCE_S):
            return await work

    return asyncio.run(bounded())


def told_to(gateway: Gateway, *words: str) -> str:
    """What `isocast order` complains of."""
    token = gateway.folder / "token"
    token.write_text(gateway.token, encoding="ascii")
    token.chmod(0o600)
    command = [sys.executable, "-m", "isocast", "order", *words, "--url", gateway.url, "--token-file", str(token)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert found.returncode == 2, found
    return found.stderr


async def trade(buyer: Gateway, seller: Gateway) -> None:
    """Ben sells 100 at 10.00, Ada buys them: both wait until the trade is final."""
    async with (
        isocast.Trader(seller.url, token=seller.token) as ben,
        isocast.Trader(buyer.url, token=buyer.token) as ada,
    ):
        offered = await ben.sell("ISO", 100, "10.00")
        await until_working(ben, offered.client_id)
        wanted = await ada.buy("ISO", 100, "10.50")
        for order in (offered, wanted):
            report = await order.confirmed()
            assert (report.status, report.filled, report.average_price) == ("filled", 100, Decimal(10))


async def until_working(trader: isocast.Trader, client_id: str) -> None:
    async for report in trader.reports(after=0):
        if report.client_id == client_id and report.kind == "working":
            return


def test_an_order_becomes_a_settled_trade_at_two_gateways(market: tuple[Stage, Gateway, Gateway]) -> None:
    """§5.8 of the trading rules: A buys 100 at 10 from B; clearing over both gateways is zero."""
    stage, east, west = market
    assert told_to(east, "sell", "ISO", "1", "10.00") == "isocast: account 1048592 can spend 0 ISO, not 1 ISO\n"
    run(trade(east, west))
    usd, iso = cash("USD"), shares("ISO")
    assert (east.balance(usd), east.balance(iso)) == ((40_000_000, 0), (100, 0))
    assert (west.balance(usd), west.balance(iso)) == ((10_100_000, 0), (0, 0))
    clearing = [gateway.balance(usd, account_number(gateway.number, CLEARING))[0] for gateway in (east, west)]
    assert clearing == [10_000_000, -10_000_000]
    for gateway in (east, west):
        gateway.check_books()
    assert len(trades(stage, "london")) == 1
    check_agreement(stage, CITIES)


@pytest.mark.long
def test_an_order_walks_from_its_trader_to_a_spark_table(
    market: tuple[Stage, Gateway, Gateway], tmp_path: Path
) -> None:
    """Two traders, two gateways, four cities: order, confirmed trade, settled accounts, tables of Spark."""
    stage, east, west = market
    run(trade(east, west))
    for gateway, money, held in ((east, 40_000_000, 100), (west, 10_100_000, 0)):
        assert (gateway.balance(cash("USD")), gateway.balance(shares("ISO"))) == ((money, 0), (held, 0))
        gateway.check_books()
    stage.until(lambda: all(len(trades(stage, city)) == 1 for city in CITIES), "every city has the trade")
    check_agreement(stage, CITIES)
    done = subprocess.run(
        [sys.executable, "-c", SPARK, str(stage.market.data_directory)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    orders, made = json.loads(done.stdout.splitlines()[-1])
    entered = {row["account"]: (row["kind"], row["side"], row["quantity"], row["price"]) for row in orders}
    assert entered == {
        str(west.account): ("order", "sell", 100, 100_000),
        str(east.account): ("order", "buy", 100, 105_000),
    }
    [row] = made
    by_account = {row["account"]: row["order"] for row in orders}
    assert (row["buy"], row["sell"]) == (by_account[str(east.account)], by_account[str(west.account)])
    assert (row["symbol"], row["price"], row["quantity"], row["state"]) == ("ISO", 100_000, 100, "confirmed")
    assert row["confirmed_token"] > row["token"]
    assert row["differing_reports"] == 0


def test_a_gateway_that_is_killed_comes_back_and_loses_nothing(market: tuple[Stage, Gateway, Gateway]) -> None:
    """It dies after an order was accepted; the trade happens while it is away, and is settled when it is back."""
    _, east, west = market

    async def offer() -> str:
        async with isocast.Trader(west.url, token=west.token) as ben:
            order = await ben.sell("ISO", 100, "10.00")
            await until_working(ben, order.client_id)
            return order.client_id

    async def take() -> None:
        async with isocast.Trader(east.url, token=east.token) as ada:
            order = await ada.buy("ISO", 100, "10.00")
            await order.confirmed()

    async def look(client_id: str) -> list[str]:
        """Everything that Ben is told, from the first report on, until his trade is final."""
        kinds = []
        async with isocast.Trader(west.url, token=west.token) as ben:
            async for report in ben.reports(after=0):
                assert report.client_id == client_id
                kinds.append(report.kind)
                if report.kind == "confirmed":
                    return kinds
        return kinds

    client_id = run(offer())
    west.stop(signal.SIGKILL)
    run(take())
    west.start()
    assert run(look(client_id)) == ["accepted", "working", "traded", "confirmed"]
    assert west.balance(shares("ISO")) == (0, 0)
    assert west.balance(cash("USD")) == (10_100_000, 0)
    for gateway in (east, west):
        gateway.check_books()
