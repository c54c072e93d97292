"""The gateways' books: made before the show with what each trader begins with, read while it runs and at its end."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import time_ns
from typing import Final, NamedTuple

from sqlalchemy import func, select

from isocast.orders.accounts import FEES, WORLD, account_number, is_house, parse_sum, shares
from isocast.orders.desk import ReportKind, Scope
from isocast.orders.ledger import EntryKind, deposit
from isocast.runtime.accounts.audit import BooksAudit, audit
from isocast.runtime.accounts.book import AccountBook
from isocast.runtime.accounts.logins import Logins
from isocast.runtime.accounts.order_store import order_id, reports_of
from isocast.runtime.accounts.tables import (
    ACCOUNTS,
    BALANCES,
    ENTRIES,
    ORDERS,
    REPORTS,
    REQUESTS,
    AccountsDatabase,
)
from isocast.runtime.disk.database import sqlite_url
from isocast.runtime.market.model import Market
from isocast.runtime.market.secret_files import create_file
from isocast.security.packages import Stretching
from isocast.terms.instants import SECOND
from isocast.trials.demo.trading import DEPOSIT, SHARES, SYMBOLS, DemoGateway, gateway_url, token_file

__all__ = ["GatewayBooks", "OrderMade", "found_books", "gateway_command", "has_settled", "read_books"]

_DAY_NS: Final = 86_400 * SECOND
_NO_PASSWORDS: Final = Stretching(memory_kib=64, passes=1, lanes=1)
"""The show's traders have tokens; nobody of them logs in by a password."""


# Before the show ----------------------------------------------------------------------------------


def found_books(market: Market, gateways: Sequence[DemoGateway]) -> None:
    """New books, an account for each trader with money and shares, and a file with its token."""
    for gateway in gateways:
        gateway.folder(market).mkdir(mode=0o700, parents=True, exist_ok=True)
        with _opened(gateway.database(market)) as database:
            AccountBook.create(database, gateway.number)
            book, logins = AccountBook(database), Logins(database, stretching=_NO_PASSWORDS)
            for seat in gateway.traders:
                account = book.open(seat.city).number
                book.post(deposit(f"begin/{seat.city}", account, *parse_sum(DEPOSIT)))
                for symbol in SYMBOLS:
                    name = str(symbol["symbol"])
                    book.post(deposit(f"begin/{seat.city}/{name}", account, shares(name), SHARES))
                token = logins.make_token(account, "demo", Scope, time_ns() + _DAY_NS)
                create_file(token_file(market, seat), f"{token}\n".encode())


def gateway_command(market: Market, gateway: DemoGateway) -> tuple[str, ...]:
    """What a person would type to run it; who may come in, and with how much, is in its books alone."""
    place = gateway_url(market, gateway.name).removeprefix("http://")
    words = ("trading-gateway", "run", "--config", market.file, "--source", gateway.source)
    ways = ("--customer", gateway.name, "--https", place, "--database", sqlite_url(gateway.database(market)))
    return (sys.executable, "-m", "isocast", *words, *ways)


@contextmanager
def _opened(file: Path) -> Iterator[AccountsDatabase]:
    with closing(AccountsDatabase(sqlite_url(file))) as database:
        yield database


# While it runs ------------------------------------------------------------------------------------


def has_settled(file: Path) -> bool:
    """Whether nothing of any order is to come: none lives, and every trade and every reservation is posted."""
    with _opened(file) as database, database.reading() as connection:
        return not connection.execute(select(func.count()).select_from(ORDERS).where(ORDERS.c.is_open)).scalar_one()


# At the end ---------------------------------------------------------------------------------------


class OrderMade(NamedTuple):
    """An order that a gateway took."""

    id: int
    account: int
    entered_ns: int


@dataclass(slots=True)
class GatewayBooks:
    """What one gateway wrote down."""

    name: str
    audit: BooksAudit
    cities: dict[int, str] = field(default_factory=dict)
    """Traders' accounts by number."""
    orders: list[OrderMade] = field(default_factory=list)
    requests: Counter[tuple[int, str]] = field(default_factory=Counter)
    """Requests of each account, by kind; a refused one is of the kind refused."""
    reports: Counter[tuple[int, ReportKind]] = field(default_factory=Counter)
    """What each account was told, by kind."""
    settled: list[str] = field(default_factory=list)
    """The keys of settled legs: floor, trade, side."""
    holdings: Counter[str] = field(default_factory=Counter)
    """Of each asset, what traders and the gateway's own fees have, reserved or not."""
    reserved: Counter[str] = field(default_factory=Counter)
    """Of that, what orders and trades have bound."""
    deposits: Counter[str] = field(default_factory=Counter)
    """What came from outside."""

    def told(self, kind: ReportKind, account: int | None = None) -> int:
        """How many reports of a kind one account, or all, were sent."""
        return sum([count for (who, said), count in self.reports.items() if said == kind and account in (None, who)])


def read_books(market: Market, gateway: DemoGateway) -> GatewayBooks:
    """All that is needed of a gateway's books, which nobody else has open."""
    with _opened(gateway.database(market)) as database:
        found = GatewayBooks(gateway.name, audit(database))
        with database.reading() as connection:
            for row in connection.execute(select(ACCOUNTS).order_by(ACCOUNTS.c.number)):
                if not is_house(row.number):
                    found.cities[row.number] = row.name
            for row in connection.execute(select(ORDERS).order_by(ORDERS.c.account, ORDERS.c.number)):
                found.orders.append(OrderMade(order_id(row.account, row.number), row.account, row.entered_ns))
            for row in connection.execute(select(REQUESTS.c.account, REQUESTS.c.kind)):
                found.requests[row.account, row.kind] += 1
            for row in connection.execute(select(REPORTS.c.account, REPORTS.c.body)):
                found.reports.update([(row.account, report.kind) for report in reports_of(row.body)])
            trades = select(ENTRIES.c.key).where(ENTRIES.c.kind == EntryKind.TRADE.value).order_by(ENTRIES.c.number)
            found.settled = [row.key for row in connection.execute(trades)]
            for row in connection.execute(select(BALANCES)):
                if row.account == account_number(gateway.number, WORLD):
                    found.deposits[row.asset] -= row.available
                elif not is_house(row.account) or row.account == account_number(gateway.number, FEES):
                    found.holdings[row.asset] += row.available + row.reserved
                    found.reserved[row.asset] += row.reserved
    return found
