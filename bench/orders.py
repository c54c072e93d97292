"""Orders a second that a gateway accepts, one by one and many at once, at its desk and at its doors; and what it costs.

    python bench/orders.py [--orders 20000] [--accounts 1000 1000000] [--clients 512] [--batch 64] [--json]

The market behind the desk takes every batch at once and gives it back as the sequence, so that the figures are the
gateway's own. Accepted means checked, reserved, on the disk with `synchronous = FULL`, published and answered.

    single       so many clients, each the next order of a random account when it has its answer
    batch        the same orders, so many in one call of one account
    https        the same batches through the trading service, from a request's bytes to its answer's, without a socket
    delivered    all of that heard again as the sequence, in tokens of 512 orders: applied to the floor, told, durable
    settled      as many orders of another gateway that sell to them, and reports of an arbiter: traded, posted

Measured are orders a second, the processor's time of an order, the time of an answer (p50, p99), orders that shared a
transaction, and where the time of a transaction goes. Growth is the processor's time of an order with the most accounts
over that with the fewest: 1 is flat. Accounts are made by the database itself, in bulk. SQLite always; PostgreSQL where
its programs are on the path, with its durable defaults, and with the fewest accounts alone.

The yardstick of the same run is the driver alone: rows a second by `executemany`, and commits a second of one row.
Afterwards the books are audited, and every order must be published, reserved and settled once. The collector of
garbage is set as a gateway sets it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import mean, quantiles
from tempfile import gettempdir
from typing import Any

from scratch import folder

from isocast.floor.codec import encode_event
from isocast.floor.events import Directory, Order, Phase
from isocast.floor.following import FloorMessage
from isocast.floor.reporting import FloorReport, cut_report, encode_report
from isocast.orders.accounts import UNITS, WORLD, account_number, cash
from isocast.orders.controls import Limits
from isocast.orders.desk import Login, NewOrder, ReportKind, Scope, TradeReport
from isocast.orders.json_forms import request_fields
from isocast.orders.needs import Side
from isocast.runtime.disk.database import sqlite_url
from isocast.runtime.net.clock import become_punctual
from isocast.terms.market import Side as MarketSide
from isocast.wire.opaque import OpaqueMessage

try:
    from isocast.runtime.accounts.audit import audit
    from isocast.runtime.accounts.book import AccountBook
    from isocast.runtime.accounts.desk import DeskPace, GatewayDesk
    from isocast.runtime.accounts.floor_view import FloorView
    from isocast.runtime.accounts.order_store import Work
    from isocast.runtime.accounts.tables import AccountsDatabase
    from isocast.runtime.accounts.trading import DeskSettings, TradingBooks
    from isocast.runtime.accounts.web import TradingService
    from isocast.runtime.net.http import Answer, Request
except ModuleNotFoundError as missing:  # Not everybody has a database.
    print(f"not measured: {missing.name} is missing, pip install isocast[accounts]")
    sys.exit(0)

FIRST = account_number(1, 16)
BYTES_PER_ORDER = 6_000
BYTES_PER_ACCOUNT = 450
MONEY = 10**11
"""Of each account, in price units: a million of them fit into the world's 62 bits."""
WAYS = ("single", "batch", "https", "delivered", "settled")
TOKEN_ORDERS = 512
STRANGER = account_number(2, 16)
"""At another gateway."""
REPORT_BYTES = 1_200
KEY = bytes(range(32))
"""Of the shuffle of every token."""
LISTED = Directory("IBM", tick=100, phase=Phase.OPEN, reference=10 * UNITS)


class Clock:
    """What each part of transactions took, in seconds."""

    def __init__(self) -> None:
        self.parts = {"read and rules": 0.0, "write": 0.0, "commit": 0.0}
        self.transactions = 0
        self._at = 0.0

    def reached(self, step: str) -> None:
        """A step of a transaction."""
        now = time.perf_counter()
        if step == "committed":
            self.parts["commit"] += now - self._at
            self.transactions += 1
        self._at = now

    @contextmanager
    def writing(self) -> Iterator[None]:
        """What stands before it in a transaction is reading and rules."""
        began = time.perf_counter()
        self.parts["read and rules"] += began - self._at
        yield
        self.parts["write"] += time.perf_counter() - began


def make_accounts(database: AccountsDatabase, count: int) -> None:
    """So many accounts with money, all of one deposit: some statements, whatever the number."""
    AccountBook.create(database, 1)
    asset, world, last = cash("USD"), account_number(1, WORLD), FIRST + count - 1
    # One statement for both databases: both have recursion.
    numbers = (
        f"WITH RECURSIVE n(v) AS (SELECT CAST({FIRST} AS bigint) UNION ALL"  # noqa: S608 - numbers
        f" SELECT v + 1 FROM n WHERE v < {last})"
    )
    leg, has = "postings (entry, leg, account, asset, pot, amount)", "balances (account, asset, available, reserved)"
    rows = {
        "accounts (number, name, frozen, reason, opened_ns)": "v, 'trader ' || v, FALSE, '', 0",
        leg: f"1, v - {FIRST} + 1, v, '{asset}', 'available', {MONEY}",
        has: f"v, '{asset}', {MONEY}, 0",
    }
    with database.making() as connection:
        deposit = "INSERT INTO entries (number, key, kind, at_ns, memo) VALUES (1, 'all', 'deposit', 0, '')"
        connection.exec_driver_sql(deposit)
        for table, row in rows.items():
            connection.exec_driver_sql(f"INSERT INTO {table} {numbers} SELECT {row} FROM n")  # noqa: S608 - our own
        paid = -MONEY * count
        connection.exec_driver_sql(f"INSERT INTO {leg} VALUES (1, 0, {world}, '{asset}', 'available', {paid})")  # noqa: S608
        connection.exec_driver_sql(f"INSERT INTO {has} VALUES ({world}, '{asset}', {paid}, 0)")  # noqa: S608


def order(number: int) -> NewOrder:
    """Buys at ten prices."""
    return NewOrder(f"order {number}", "IBM", Side.BUY, 100, price=(990 + number % 10) * UNITS // 100)


def insist(reports: Sequence[TradeReport]) -> None:
    """All of them are accepted."""
    for report in reports:
        if report.kind is not ReportKind.ACCEPTED:
            raise SystemExit(f"refused: {report}")


class Doors:
    """The desk of one database, and what its clients took."""

    def __init__(self, desk: GatewayDesk, given: argparse.Namespace, accounts: int) -> None:
        self.desk, self.given, self.accounts = desk, given, accounts
        self.random, self.next = Random(1), 0
        self.sent = 0

    def login(self) -> Login:
        """Of a random account."""
        return Login(FIRST + self.random.randrange(self.accounts), "", frozenset(Scope), "bench")

    def some(self, count: int) -> list[NewOrder]:
        """The next orders; none when all are sent."""
        count = min(count, self.sent + self.given.orders - self.next)
        self.next += count
        return [order(number) for number in range(self.next - count, self.next)]

    async def single(self, took: list[float]) -> None:
        """One order after the other."""
        while some := self.some(1):
            began = time.perf_counter()
            insist([await self.desk.submit(self.login(), some[0])])
            took.append(time.perf_counter() - began)

    async def batch(self, took: list[float]) -> None:
        """Many at once."""
        while some := self.some(self.given.batch):
            began = time.perf_counter()
            insist(await self.desk.submit_many(self.login(), some))
            took.append(time.perf_counter() - began)

    def https(self, service: TradingService) -> Callable[[list[float]], Any]:
        """The same through the service, from the bytes of a request to the bytes of its answer."""

        async def client(took: list[float]) -> None:
            while some := self.some(self.given.batch):
                body = json.dumps({"orders": [request_fields(one) for one in some]}).encode()
                token = str(FIRST + self.random.randrange(self.accounts))
                heads, address = {"authorization": f"Bearer {token}"}, f"10.0.{len(took) % 250}.1"
                began = time.perf_counter()
                answer = await service.respond(Request("POST", "/v1/orders/batch", "", heads, body, address))
                took.append(time.perf_counter() - began)
                if not isinstance(answer, Answer) or json.loads(answer.body).get("refused") != 0:
                    raise SystemExit(f"refused: {answer}")

        return client

    async def run(self, client: Callable[[list[float]], Any], clients: int, clock: Clock) -> dict[str, float]:
        """What one way of asking gives."""
        took: list[float] = []
        clock.__init__()  # type: ignore[misc]
        began, used = time.perf_counter(), time.process_time()
        await asyncio.gather(*[client(took) for _ in range(clients)])
        seconds, cpu = time.perf_counter() - began, time.process_time() - used
        orders, self.sent = self.given.orders, self.next
        cuts = quantiles(took, n=100)
        return {
            "orders_per_s": orders / seconds,
            "cpu_us": 1e6 * cpu / orders,
            "p50_ms": 1e3 * cuts[49],
            "p99_ms": 1e3 * cuts[98],
            "orders_per_transaction": orders / max(1, clock.transactions),
            **{f"{name.replace(' ', '_')}_us": 1e6 * spent / orders for name, spent in clock.parts.items()},
            "outside_us": 1e6 * (seconds - sum(clock.parts.values())) / orders,
        }


def resting(view: FloorView, payloads: list[bytes]) -> Iterator[list[tuple[str, bytes]]]:
    """The messages of each token: what was published."""
    for start in range(0, len(payloads), TOKEN_ORDERS):
        yield [(view.topics[0], payload) for payload in payloads[start : start + TOKEN_ORDERS]]


def sold(view: FloorView, count: int) -> Iterator[list[tuple[str, bytes]]]:
    """As many orders of another gateway, each of which sells to one that rests; behind them what an arbiter reports."""
    for start in range(0, count, TOKEN_ORDERS):
        numbers = range(start, min(count, start + TOKEN_ORDERS))
        yield reported(view) + [(view.topics[0], encode_event(sale(number))) for number in numbers]
    yield reported(view)


def sale(number: int) -> Order:
    """At the lowest price at which anybody buys."""
    return Order((STRANGER << 32) + number + 1, STRANGER, "IBM", MarketSide.SELL, 100, 990 * UNITS // 100)


def reported(view: FloorView) -> list[tuple[str, bytes]]:
    """What the arbiter of the newest token says of it, if it made trades."""
    own = view.results.get(view.newest)
    if own is None:
        return []
    report = FloorReport(own.token, own.state, own.last, own.trades)
    return [(view.topics[1], encode_report(part)) for part in cut_report(report, REPORT_BYTES)]


async def heard(desk: GatewayDesk, tokens: Iterator[list[tuple[str, bytes]]], count: int) -> dict[str, float]:
    """So many orders heard, token by token: until everything of each is on the disk."""
    token, took, seconds, cpu = desk.books.view.newest, [], 0.0, 0.0
    for messages in tokens:
        token, began, used = token + 1, time.perf_counter(), time.process_time()
        for place, (topic, payload) in enumerate(messages):
            await desk.take(token, token, FloorMessage(token * 2 * TOKEN_ORDERS + place, topic, payload, KEY))
        await desk.end_token(token)
        await desk.until_taken()
        cpu += time.process_time() - used
        took.append(time.perf_counter() - began)
        seconds += took[-1]
    cuts = quantiles(took, n=100)
    return {
        "orders_per_s": count / seconds,
        "cpu_us": 1e6 * cpu / count,
        "p50_ms": 1e3 * cuts[49],
        "p99_ms": 1e3 * cuts[98],
    }


class _Anybody:
    """Whoever says the number of an account is it: the desk behind a door, without passwords."""

    def __init__(self, desk: GatewayDesk) -> None:
        self._desk = desk

    def __getattr__(self, name: str) -> object:
        return getattr(self._desk, name)

    async def log_in_by_token(self, token: str, _: str) -> Login:
        """The account of this number."""
        return Login(int(token), token, frozenset(Scope), "bench")


async def measure(url: str, given: argparse.Namespace, accounts: int) -> dict[str, Any]:
    """One database with so many accounts."""
    database = AccountsDatabase(url)
    began = time.perf_counter()
    make_accounts(database, accounts)
    made_s, clock = time.perf_counter() - began, Clock()
    published: list[bytes] = []

    async def publish(messages: Sequence[OpaqueMessage], _: bytes) -> None:
        published.extend([message.payload for message in messages])

    write = Work.write

    def timed(work: Work) -> None:
        with clock.writing():
            write(work)

    books = TradingBooks(database, DeskSettings(limits=Limits(rate=0, open_orders=0)), clock.reached)
    found: dict[str, Any] = {"accounts": accounts, "made_s": made_s}
    Work.write = timed  # type: ignore[method-assign]
    try:
        async with GatewayDesk(database, books, publish, pace=DeskPace(look_s=3_600.0)) as desk:
            await desk.take(1, 1, FloorMessage(1, books.view.topics[0], encode_event(LISTED), KEY))
            await desk.end_token(1)
            await desk.until_taken()
            doors, several = Doors(desk, given, accounts), max(1, 2 * TOKEN_ORDERS // given.batch)
            service: Any = TradingService(_Anybody(desk), lambda: 0.0)  # type: ignore[arg-type]
            service._by_account = service._by_address = service._strangers = _Unlimited()  # noqa: SLF001
            found["single"] = await doors.run(doors.single, given.clients, clock)
            found["batch"] = await doors.run(doors.batch, several, clock)
            found["https"] = await doors.run(doors.https(service), several, clock)
            view, orders = books.view, len(published)
            found["delivered"] = await heard(desk, resting(view, published), orders)
            found["settled"] = await heard(desk, sold(view, orders), orders)
    finally:
        Work.write = write  # type: ignore[method-assign]
    checked, wanted = audit(database), 3 * given.orders
    # A deposit; of each order what bound its money, and what settled it.
    if not checked.is_sound or checked.reservations or checked.entries != 1 + 2 * wanted or orders != wanted:
        raise SystemExit(f"wrong: {checked.findings[:3]}, {checked.entries} entries of {wanted} orders")
    database.close()
    return found


class _Unlimited:
    """A limit that nobody reaches."""

    def allows(self, *_: object) -> bool:
        """Always."""
        return True


def yardstick(place: Path) -> dict[str, float]:
    """The driver alone."""
    raw = sqlite3.connect(place / "yardstick.db", isolation_level=None)
    raw.execute("PRAGMA journal_mode = WAL")
    raw.execute("PRAGMA synchronous = FULL")
    raw.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT, c INTEGER)")
    rows = [(number, "some text", number) for number in range(200_000)]
    began = time.perf_counter()
    raw.execute("BEGIN IMMEDIATE")
    raw.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    raw.execute("COMMIT")
    inserted = len(rows) / (time.perf_counter() - began)
    spent = []
    for number in range(200):
        began = time.perf_counter()
        raw.execute("INSERT INTO t VALUES (?, ?, ?)", (len(rows) + number, "", 0))
        spent.append(time.perf_counter() - began)
    raw.close()
    return {"rows_per_s": inserted, "commits_per_s": 1 / mean(spent)}


@contextmanager
def postgresql(place: Path) -> Iterator[str]:
    """A server of our own, durable, on a socket in a folder; the URL of its database."""
    data, sockets = place / "data", place / "socket"
    as_other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    for made in (data, sockets):
        made.mkdir()
        if as_other:
            os.chown(made, 65_534, 65_534)
    if as_other:
        place.chmod(0o711)
        place.parent.chmod(0o711)
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/"}
    initdb: list[str | Path] = [
        *as_other,
        "initdb",
        "-D",
        data,
        "-U",
        "office",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--locale=C",
    ]
    subprocess.run(initdb, check=True, **quiet)  # noqa: S603 - our own words
    options = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={sockets}"]
    server = subprocess.Popen([*as_other, "postgres", "-D", data, *options], **quiet)  # noqa: S603 - the same
    try:
        import psycopg  # noqa: PLC0415 - where there is a server

        url = f"postgresql://office@/postgres?host={sockets}"
        for _ in range(600):
            try:
                psycopg.connect(url).close()
                break
            except psycopg.OperationalError:
                time.sleep(0.05)
        yield url
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()


def growth(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The processor's time of an order with the most accounts over that with the fewest."""
    return {way: rows[-1][way]["cpu_us"] / rows[0][way]["cpu_us"] for way in WAYS} if len(rows) > 1 else {}


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=20_000)
    parser.add_argument("--accounts", type=int, nargs="+", default=[1_000, 1_000_000])
    parser.add_argument("--clients", type=int, default=512)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    become_punctual(realtime=False)
    found: dict[str, Any] = {"load": os.getloadavg()[0]}
    need = sum(given.accounts) * BYTES_PER_ACCOUNT + len(given.accounts) * 3 * given.orders * BYTES_PER_ORDER
    with folder(None, 2 * need, within=Path(gettempdir())) as place:  # On a disk: a commit is to cost what it costs.
        found["yardstick"] = yardstick(place)
        found["sqlite"] = []
        for count in sorted(given.accounts):
            file = place / f"{count}.db"
            found["sqlite"].append(asyncio.run(measure(sqlite_url(file), given, count)))
            file.unlink()
        found["growth"] = growth(found["sqlite"])
        missing = [name for name in ("initdb", "postgres") if shutil.which(name) is None]
        found["postgresql"] = [] if not missing else f"not measured: {', '.join(missing)} not on the path"
        if not missing:
            (place / "pg").mkdir()
            with postgresql(place / "pg") as url:
                found["postgresql"].append(asyncio.run(measure(url, given, min(given.accounts))))
    if given.json:
        print(json.dumps(found))
    else:
        show(found)
    return 0


def show(found: dict[str, Any]) -> None:
    """For people."""
    print(f"load of the machine before: {found['load']:.1f}")
    print("yardstick  " + "  ".join(f"{name} {value:,.0f}" for name, value in found["yardstick"].items()))
    for name in ("sqlite", "postgresql"):
        for row in found[name] if isinstance(found[name], list) else []:
            print(f"{name}, {row['accounts']:,} accounts (made in {row['made_s']:.1f} s)")
            for way in WAYS:
                print(f"  {way:10}" + "  ".join(f"{key} {value:,.1f}" for key, value in row[way].items()))
    if found["growth"]:
        print("growth     " + "  ".join(f"{way} {value:.2f}" for way, value in found["growth"].items()))
    if isinstance(found["postgresql"], str):
        print(f"postgresql  {found['postgresql']}")


if __name__ == "__main__":
    sys.exit(main())
