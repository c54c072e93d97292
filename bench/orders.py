"""Orders a second that a gateway accepts: checked, reserved, durable and published, with group commit.

    python bench/orders.py [--orders 20000] [--accounts 1000 100000] [--clients 512] [--json]

So many clients send limit orders for random accounts, each the next one when it has its answer. The market behind the
desk takes every batch at once, so that the figures are the gateway's own. Measured are accepted orders a second, the
time of an answer (p50, p99), orders that shared a transaction, and where the time of a transaction goes: reading and
rules, writing, commit. SQLite always; PostgreSQL where its programs are on the path, with its durable defaults.

The yardstick of the same run is the driver alone: rows a second by `executemany`, and commits a second of one row.
Afterwards the books are audited, and every order must be reserved and in the outbox once.
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import mean, quantiles
from tempfile import gettempdir
from typing import Any

from scratch import folder

from isocast.floor.events import Directory, Phase
from isocast.orders.accounts import UNITS, account_number, cash, shares
from isocast.orders.controls import Limits
from isocast.orders.desk import Login, NewOrder, ReportKind, Scope
from isocast.orders.ledger import deposit
from isocast.orders.needs import Side
from isocast.runtime.disk.database import sqlite_url
from isocast.wire.opaque import OpaqueMessage

try:
    from isocast.runtime.accounts.audit import audit
    from isocast.runtime.accounts.book import AccountBook
    from isocast.runtime.accounts.desk import DeskPace, GatewayDesk
    from isocast.runtime.accounts.order_store import Work
    from isocast.runtime.accounts.tables import AccountsDatabase
    from isocast.runtime.accounts.trading import DeskSettings, TradingBooks
except ModuleNotFoundError as missing:  # Not everybody has a database.
    print(f"not measured: {missing.name} is missing, pip install isocast[accounts]")
    sys.exit(0)

FIRST = account_number(1, 16)
BYTES_PER_ORDER = 4_000
BYTES_PER_ACCOUNT = 1_500


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
    """So many accounts with money and shares."""
    AccountBook.create(database, 1)
    with database.making() as connection:
        place = "?" if database.is_sqlite else "%s"
        statement = f"INSERT INTO accounts (number, name, frozen, reason, opened_ns) VALUES ({place}, {place}, {place}, {place}, {place})"  # noqa: S608, E501
        rows = [(FIRST + number, f"trader {number:06}", False, "", 0) for number in range(count)]
        connection.exec_driver_sql(statement, rows)
    book = AccountBook(database)
    for start in range(0, count, 2_000):
        some = range(start, min(count, start + 2_000))
        book.post_each([deposit(f"m{one}", FIRST + one, cash("USD"), 10**9 * UNITS) for one in some])
        book.post_each([deposit(f"s{one}", FIRST + one, shares("IBM"), 10**9) for one in some])


async def offer(desk: GatewayDesk, orders: int, accounts: int, clients: int) -> tuple[float, float, list[float]]:
    """Seconds in all, seconds of the processor, and seconds of each answer."""
    random, took, sent = Random(1), list[float](), iter(range(orders))
    logins = [Login(FIRST + one, "", frozenset(Scope), "bench") for one in range(accounts)]

    async def client() -> None:
        for number in sent:
            side = Side.BUY if number % 2 else Side.SELL
            order = NewOrder(f"order {number}", "IBM", side, 100, price=(1_000 + number % 10) * UNITS // 100)
            began = time.perf_counter()
            report = await desk.submit(logins[random.randrange(accounts)], order)
            took.append(time.perf_counter() - began)
            if report.kind is not ReportKind.ACCEPTED:
                raise SystemExit(f"refused: {report}")

    began, used = time.perf_counter(), time.process_time()
    await asyncio.gather(*[client() for _ in range(clients)])
    return time.perf_counter() - began, time.process_time() - used, took


async def measure(url: str, given: argparse.Namespace, accounts: int) -> dict[str, Any]:
    """One database with so many accounts."""
    database = AccountsDatabase(url)
    make_accounts(database, accounts)
    clock, published = Clock(), 0

    async def publish(messages: Sequence[OpaqueMessage], _: bytes) -> None:
        nonlocal published
        published += len(messages)

    write = Work.write

    def timed(work: Work) -> None:
        with clock.writing():
            write(work)

    books = TradingBooks(database, DeskSettings(limits=Limits(rate=0, open_orders=0)), clock.reached)
    Work.write = timed  # type: ignore[assignment, method-assign]
    try:
        async with GatewayDesk(database, books, publish, pace=DeskPace(look_s=3_600.0)) as desk:
            books.view.floor.step(1, 1, [Directory("IBM", tick=100, phase=Phase.OPEN, reference=10 * UNITS)])
            clock.__init__()  # type: ignore[misc]  # without the start
            seconds, used, took = await offer(desk, given.orders, accounts, given.clients)
            transactions, parts = clock.transactions, dict(clock.parts)
    finally:
        Work.write = write  # type: ignore[method-assign]
    found = audit(database)
    if not found.is_sound or found.reservations != given.orders or published != given.orders:
        raise SystemExit(f"wrong: {found.findings[:3]}, {found.reservations} reserved, {published} published")
    database.close()
    cuts = quantiles(took, n=100)
    return {
        "accounts": accounts,
        "orders_per_s": given.orders / seconds,
        "cpu_us": 1e6 * used / given.orders,
        "p50_ms": 1e3 * cuts[49],
        "p99_ms": 1e3 * cuts[98],
        "orders_per_transaction": given.orders / transactions,
        **{f"{name.replace(' ', '_')}_us": 1e6 * spent / given.orders for name, spent in parts.items()},
        "outside_us": 1e6 * (seconds - sum(parts.values())) / given.orders,
    }


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


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=20_000)
    parser.add_argument("--accounts", type=int, nargs="+", default=[1_000, 100_000])
    parser.add_argument("--clients", type=int, default=512)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found: dict[str, Any] = {}
    need = sum(given.accounts) * BYTES_PER_ACCOUNT + len(given.accounts) * given.orders * BYTES_PER_ORDER
    with folder(None, 2 * need, within=Path(gettempdir())) as place:  # On a disk: a commit is to cost what it costs.
        found["yardstick"] = yardstick(place)
        found["sqlite"] = [
            asyncio.run(measure(sqlite_url(place / f"{count}.db"), given, count)) for count in given.accounts
        ]
        missing = [name for name in ("initdb", "postgres") if shutil.which(name) is None]
        found["postgresql"] = [] if not missing else f"not measured: {', '.join(missing)} not on the path"
        for count in [] if missing else given.accounts:
            (place / f"pg{count}").mkdir()
            with postgresql(place / f"pg{count}") as url:
                found["postgresql"].append(asyncio.run(measure(url, given, count)))
    if given.json:
        print(json.dumps(found))
        return 0
    print("yardstick  " + "  ".join(f"{name} {value:,.0f}" for name, value in found["yardstick"].items()))
    for name in ("sqlite", "postgresql"):
        for row in found[name] if isinstance(found[name], list) else []:
            print(f"{name:11}" + "  ".join(f"{key} {value:,.1f}" for key, value in row.items()))
    if isinstance(found["postgresql"], str):
        print(f"postgresql  {found['postgresql']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
