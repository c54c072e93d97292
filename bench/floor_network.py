"""Orders through a whole floor: gateways, a ring of four, books, confirmation, settled accounts; real processes.

    python bench/floor_network.py [--json] [--orders N] [--traders N] [--batch N]

A market of four receivers that are one trading floor, two gateways with accounts in SQLite, and traders at each: those
of the one sell, those of the other buy at the same price, each in batches, one batch after the other, by HTTP on
loopback. Every order trades. Rates are of wall time: accepted, from the first request to the last answer; confirmed, to
the last token that confirms a trade; settled, until both gateways have posted all. So much is true of the whole
machine: beside them is the CPU time of an order by part, without starts, which a larger one would spend at once. Delays
are read from the journals, in tokens too, beside what the rules say. Nothing is measured unless every trade is
confirmed, settled and conserved.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import quantiles
from typing import Any

from markets import ring_market, run_with, usage
from scratch import folder

import isocast
from isocast.orders.accounts import cash, shares
from isocast.orders.controls import Limits
from isocast.orders.desk import Scope
from isocast.orders.ledger import deposit
from isocast.runtime.accounts.audit import audit
from isocast.runtime.accounts.book import AccountBook
from isocast.runtime.accounts.kills import set_limits_in
from isocast.runtime.accounts.logins import Logins
from isocast.runtime.accounts.tables import AccountsDatabase
from isocast.runtime.disk.database import sqlite_url
from isocast.runtime.disk.journal_reader import read_blocks
from isocast.runtime.market.file import load_market
from isocast.runtime.market.model import Market
from isocast.runtime.operate.floor_change import find_floor, opening, publish_events
from isocast.terms.instants import MILLISECOND
from isocast.trials.demo.floor_record import FloorRecord

RECEIVERS = 4
CODE, SYMBOL, PRICE = "XISO", "ISO", "10.00"
UNITS = 10_000
LOTS = 100
"""Shares of an order."""
FLOOR = f"""
[floor.{CODE}]
sources = ["s3", "s4"]
[[floor.{CODE}.symbols]]
symbol = "{SYMBOL}"
"""
PATIENCE_S = 120.0
HOUR_NS = 3_600 * 1_000_000_000
NO_LIMITS = Limits(rate=0, open_orders=0)
_CHILD = "--child"


# ---- one gateway


class Gateway:
    """Its books, its process and its traders' tokens."""

    def __init__(self, folder: Path, number: int, side: str) -> None:
        """Nothing is running yet."""
        self.side, self._folder, self._number = side, folder, number
        self._url = sqlite_url(folder / f"{side}.db")
        self._process: subprocess.Popen[str] | None = None
        self.tokens: list[str] = []
        self._accounts: list[int] = []
        self.door = ""
        self._started_s = 0.0

    def found(self, traders: int, orders: int) -> None:
        """Books of so many traders, each with enough for so many orders."""
        database = AccountsDatabase(self._url)
        try:
            AccountBook.create(database, self._number)
            book, logins = AccountBook(database), Logins(database)
            for number in range(traders):
                account = book.open(f"{self.side} {number}").number
                asset, enough = (cash("USD"), 10 * UNITS) if self.side == "buy" else (shares(SYMBOL), 1)
                book.post(deposit(f"{self.side} {number}", account, asset, orders * LOTS * enough))
                with database.writing() as connection:
                    set_limits_in(connection, account, NO_LIMITS)
                self._accounts.append(account)
                self.tokens.append(logins.make_token(account, "bench", Scope, time.time_ns() + HOUR_NS))
        finally:
            database.close()

    def start(self, config: Path, source: str) -> None:
        """Run it; returns when it takes orders."""
        words = ["trading-gateway", "run", "--config", str(config), "--source", source]
        words += ["--database", self._url, "--https", "127.0.0.1:0"]
        command = [sys.executable, "-m", "isocast", *words]
        out = subprocess.DEVNULL
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=out, text=True)  # noqa: S603 - our own
        said = []
        for line in self._process.stderr or ():
            said.append(line)
            if " at 127.0.0.1:" in line:
                self.door = f"http://127.0.0.1:{line.rpartition(':')[2].strip()}"
                self._started_s = self.cpu_s()
                return
        sys.exit(f"the gateway of {source} ended with {self._process.wait()}: {''.join(said)}")

    def cpu_s(self) -> float:
        """CPU time of the process since it takes orders: what a start costs is no order's."""
        return 0.0 if self._process is None else usage({self.side: self._process})[self.side] - self._started_s

    def stop(self) -> None:
        """End it in order."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(PATIENCE_S)

    def has_settled(self, quantity: int) -> bool:
        """Whether all that was to trade is in its traders' accounts and nothing is bound any more."""
        database = AccountsDatabase(self._url)
        try:
            book = AccountBook(database)
            held = [one for account in self._accounts for one in book.holdings(account)]
            has = sum([one.balance.available for one in held if one.asset == shares(SYMBOL)])
            return has == (quantity if self.side == "buy" else 0) and not any(one.balance.reserved for one in held)
        finally:
            database.close()

    def is_sound(self) -> bool:
        """What an audit of its books says."""
        database = AccountsDatabase(self._url)
        try:
            return audit(database).is_sound
        finally:
            database.close()


# ---- whoever trades, as a process of the bench's own


async def trade(gateway: Gateway, token: str, orders: int, batch: int) -> None:
    """Enter so many orders, a batch at a time."""
    one = {"side": gateway.side, "symbol": SYMBOL, "quantity": LOTS, "price": PRICE}
    async with isocast.Trader(gateway.door, token=token) as trader:
        for first in range(0, orders, batch):
            answers = await trader.send_many([one] * min(batch, orders - first))
            refused = [answer for answer in answers if isinstance(answer, isocast.TraderRefusedError)]
            if refused:
                raise refused[0]


async def drive(config: Path, orders: int, traders: int, batch: int) -> dict[str, float]:
    """All orders, until both gateways have settled all trades."""
    market = load_market(config)
    floor = find_floor(market, CODE)
    await publish_events(market, floor, opening(floor))
    gateways = [Gateway(config.parent, 1, "sell"), Gateway(config.parent, 2, "buy")]
    share = orders // 2 // traders
    with ExitStack() as opened:
        for gateway, source in zip(gateways, ("s1", "s2"), strict=True):
            gateway.found(traders, share)
            opened.callback(gateway.stop)
            gateway.start(config, source)
        began_ns, began, own = time.time_ns(), time.perf_counter(), time.process_time()
        async with asyncio.TaskGroup() as group:
            for gateway in gateways:
                for token in gateway.tokens:
                    group.create_task(trade(gateway, token, share, batch))
        accepted, own = time.perf_counter() - began, time.process_time() - own
        quantity = share * traders * LOTS
        while not all(gateway.has_settled(quantity) for gateway in gateways):
            if time.perf_counter() - began > PATIENCE_S + accepted:
                sys.exit(f"not settled within {PATIENCE_S:.0f} s of the last order")
            await asyncio.sleep(0.1)
        settled = time.perf_counter() - began
        gateways_cpu_s = sum([gateway.cpu_s() for gateway in gateways])
        if not all(gateway.is_sound() for gateway in gateways):
            sys.exit("an audit of the books finds something: isocast accounts audit")
    return {
        "began_ns": began_ns,
        "orders": 2 * share * traders,
        "accepted_s": accepted,
        "settled_s": settled,
        "gateways_cpu_s": gateways_cpu_s,
        "traders_cpu_s": own,
    }


# ---- what the journals say


def read_floor(market: Market) -> FloorRecord:
    """The floor as the first receiver has released it."""
    record = FloorRecord(CODE)
    for block in read_blocks(market.directory_of(market.receivers[0].name) / "journal"):
        record.take(block)
    return record


def delays(record: FloorRecord, began_ns: int, period_ns: int) -> dict[str, Any]:
    """From the release that makes a trade to the one that carries the word that it is final."""
    waits = [life.confirmed_due - life.due for life in record.trades.values()]
    tokens = [life.confirmed_token - life.token for life in record.trades.values()]
    cuts = quantiles(waits, n=100)
    return {
        "confirmed_s": (max(life.confirmed_due for life in record.trades.values()) - began_ns) / 1e9,
        "to_confirmed_ms_p50": cuts[49] / MILLISECOND,
        "to_confirmed_ms_p99": cuts[98] / MILLISECOND,
        "to_confirmed_tokens_p50": quantiles(tokens, n=100)[49],
        "token_ms": period_ns / MILLISECOND,
    }


def expected_tokens(market: Market) -> float:
    """Without losses: t is reported in token r, token r + m - 1 calls r stable, and the word of that is in a token.

    What is published when a token is released is in the next one that is issued, Δ_A/τ_t periods behind, and one.
    """
    timing = market.timing
    behind = timing.release_delay_ns // timing.token_period_ns + 1
    return 2 * behind + RECEIVERS - 1


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """One run."""
    words = [str(given.orders), str(given.traders), str(given.batch)]

    def offering(_: Market, config: Path) -> list[list[str]]:
        return [[sys.executable, __file__, _CHILD, str(config), *words]]

    text = ring_market(RECEIVERS, 4, mtu=1_500, window=4_096, lines=RECEIVERS, tables=FLOOR)
    with folder() as place:
        market, answers, cpu, _ = run_with(text, place, offering, PATIENCE_S, with_sources=True)
        if not answers[0]:
            sys.exit((place / "logs.txt").read_text(encoding="utf-8")[-4_000:])
        found: dict[str, Any] = json.loads(answers[0])
        record = read_floor(market)
        orders = found["orders"]
        if len(record.trades) != orders // 2 or record.confirmed != orders // 2 or record.differing:
            sys.exit(f"{len(record.trades)} trades, {record.confirmed} confirmed, of {orders // 2}")
        found |= delays(record, found["began_ns"], market.timing.token_period_ns)
        found["to_confirmed_tokens_expected"] = expected_tokens(market)
        for what in ("accepted", "confirmed", "settled"):
            found[f"{what}_per_s"] = orders / found[f"{what}_s"]
        parts = {"a gateway": found["gateways_cpu_s"] / 2, "the traders": found["traders_cpu_s"]}
        parts["a receiver"] = sum([used for name, used in cpu.items() if name.startswith("r")]) / RECEIVERS
        parts["a source"] = sum([used for name, used in cpu.items() if name.startswith("s")]) / 4
        found["cpu_us_by_part"] = {name: 1e6 * used / orders for name, used in parts.items()}
    return found


def show(found: dict[str, Any]) -> None:
    """For people."""
    print(f"{found['orders']:,} orders, all of which trade, through two gateways and a ring of {RECEIVERS}")
    for what in ("accepted", "confirmed", "settled"):
        print(f"  {what:<10} {found[f'{what}_per_s']:>10,.0f} orders a second")
    print("CPU time of an order, by process")
    for name, used in found["cpu_us_by_part"].items():
        print(f"  {name:<12} {used:>8,.0f} µs")
    print("from the release that makes a trade to the word that it is final")
    tokens, expected = found["to_confirmed_tokens_p50"], found["to_confirmed_tokens_expected"]
    print(f"  p50 {found['to_confirmed_ms_p50']:,.0f} ms, p99 {found['to_confirmed_ms_p99']:,.0f} ms", end="")
    print(f"; {tokens:.0f} tokens of {found['token_ms']:.0f} ms, {expected:.0f} by the formula")


def main(words: Sequence[str]) -> int:
    """One run, as a table or as JSON."""
    if words[:1] == [_CHILD]:
        config, orders, traders, batch = words[1:]
        print(json.dumps(asyncio.run(drive(Path(config), int(orders), int(traders), int(batch)))))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--orders", type=int, default=20_000)
    parser.add_argument("--traders", type=int, default=8, help="at each gateway")
    parser.add_argument("--batch", type=int, default=64)
    given = parser.parse_args(words)
    found = measure(given)
    if given.json:
        print(json.dumps(found))
    else:
        show(found)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
