"""An exchange: takes its orders by FIX in the order of the sequence, matches them, and reports.

    python examples/exchange.py FOLDER PORT SYMBOL...

`isocast exchange run` connects to it. What it was given is a log, and everything else a function of that log: killed at
any moment, it comes back with the same books and the same reports, and FIX says which of them are still to be sent. An
order that comes twice, by its ClOrdID, is answered with its state and changes nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import isocast
from isocast.floor.events import Cancelled, Refused, Replaced, Trade
from isocast.runtime.accounts.fix.connection import Outgoing
from isocast.runtime.accounts.fix.messages import Field, Message
from isocast.runtime.accounts.fix.server import FixServer
from isocast.runtime.accounts.fix.store import SessionStore

COMP_ID = "XLON"
SIDES = {"1": "buy", "2": "sell"}
KEPT = (1, 11, 38, 40, 41, 44, 54, 55, 59, 60)
"""What of a request the log keeps: account, ids, quantity, kind, price, side, symbol, lifetime, time."""


@dataclass
class Resting:
    """An order, as FIX calls it and as the book does."""

    client_id: str
    number: int
    first: dict[int, str]
    total: int
    filled: int = 0
    status: str = "0"

    @property
    def left(self) -> int:
        """What may still trade."""
        return 0 if self.status in "248" else self.total - self.filled


class Exchange:
    """Books, and every report that was ever made."""

    account = 1

    def __init__(self, folder: Path, symbols: Sequence[str]) -> None:
        """Do again what the log says."""
        self.floor = isocast.Floor(symbols=symbols)
        self.told: list[Outgoing] = []
        self.orders: dict[str, Resting] = {}
        self.by_number: dict[int, Resting] = {}
        self.has_news = asyncio.Event()
        path = folder / "requests.jsonl"
        lines = path.read_text(encoding="ascii").splitlines(keepends=True) if path.exists() else []
        whole = [line for line in lines if line.endswith("\n")]
        self.log = path.open("w", encoding="ascii")
        self.log.writelines(whole)  # Half a line was not answered: it comes again.
        for line in whole:
            self.apply({int(tag): value for tag, value in json.loads(line).items()})

    # What FIX asks of it ----------------------------------------------------------------------------------------

    async def admit(self, logon: Message, address: str, *, is_private: bool) -> Exchange | None:
        """Whoever is on this machine; elsewhere a password (554) would be looked at."""
        del logon, address
        return self if is_private else None

    async def handle(self, message: Message) -> Sequence[Outgoing]:
        """A request: durable, then done. Reports tell what came of it."""
        known = self.orders.get(message.first[11])
        if known is not None:
            return [self.report(known, "I")]
        fields = {tag: message.first[tag] for tag in KEPT if tag in message.first} | {35: message.kind}
        self.log.write(json.dumps(fields) + "\n")
        self.log.flush()
        os.fsync(self.log.fileno())
        self.apply(fields)
        self.has_news.set()
        self.has_news = asyncio.Event()
        return []

    async def newest_report(self) -> int:
        """Whoever comes for the first time hears everything."""
        return 0

    async def until_ended(self) -> str:
        """Nothing that let the other side in ends before its connection does."""
        await asyncio.Event().wait()
        return ""

    async def reports(self, after: int) -> AsyncGenerator[Outgoing, None]:
        """Everything that the other side has not been sent, and what is to come."""
        while True:
            news = self.has_news
            for number, report in enumerate(self.told[after:], after + 1):
                after = number
                yield report._replace(report=number)
            await news.wait()

    async def leave(self) -> None:
        """The connection has ended: orders stay."""

    # What an exchange does --------------------------------------------------------------------------------------

    def apply(self, first: dict[int, str]) -> None:
        """One request, and what comes of it."""
        number = len(self.orders) + 1
        target = self.orders.get(first.get(41, ""))
        if first[35] == "D":
            order = Resting(first[11], number, first, int(first[38]))
            self.by_number[number] = order
            row: dict[str, Any] = {"kind": "order", "id": number, "account": int(first[1]), "symbol": first[55]}
            row |= {"side": SIDES[first[54]], "quantity": order.total, "price": first[44]}
            row["immediate"] = first.get(59) in ("3", "4")
        else:
            order = target or Resting(first[11], number, first, 0, status="8")
            row = {"kind": "cancel" if first[35] == "F" else "replace", "id": order.number, "account": int(first[1])}
            if first[35] == "G":
                row |= {"quantity": int(first[38]), "price": first[44]}
        self.orders[first[11]] = order
        reports = list(self.floor.apply(row).raw_reports())
        if first[35] == "D" and not any(isinstance(one, Refused) for one in reports):
            self.told.append(self.report(order, "0"))
        for one in reports:
            self.tell(one, order, first)

    def tell(self, report: object, order: Resting, first: dict[int, str]) -> None:
        """What the floor says, as FIX says it."""
        match report:
            case Trade():
                for side in (self.by_number[report.buy], self.by_number[report.sell]):
                    side.filled += report.quantity
                    side.status = "2" if side.filled >= side.total else "1"
                    last = [(31, str(Decimal(report.price).scaleb(-4))), (32, str(report.quantity))]
                    self.told.append(self.report(side, "F", last))
            case Cancelled():
                gone = self.by_number[report.id]
                gone.status = "4"
                asked = [(41, gone.client_id)] if first[35] == "F" else []
                self.told.append(self.report(gone, "4", asked, first[11] if asked else None))
            case Replaced():
                order.total, original = report.total, order.client_id
                order.client_id = first[11]
                self.told.append(self.report(order, "5", [(41, original)]))
            case Refused() if first[35] == "D":
                order.status = "8"
                self.told.append(self.report(order, "8", [(58, str(report.reason)), (103, "99")]))
            case Refused():
                body = [(11, first[11]), (37, str(order.number)), (39, order.status), (41, first[41])]
                body += [(58, str(report.reason)), (102, "1"), (434, "1" if first[35] == "F" else "2")]
                self.told.append(Outgoing("9", body))
            case _:
                pass

    def report(self, order: Resting, kind: str, more: Sequence[Field] = (), client_id: str | None = None) -> Outgoing:
        """An ExecutionReport."""
        body: list[Field] = [
            (6, "0"),
            (11, client_id or order.client_id),
            (14, str(order.filled)),
            (17, "0" if kind == "I" else f"{COMP_ID}-{len(self.told) + 1}"),
            (37, str(order.number)),
            (39, order.status),
            (54, order.first[54]),
            (55, order.first[55]),
            (60, order.first[60]),
            (150, kind),
            (151, str(order.left)),
            *more,
        ]
        return Outgoing("8", sorted(body))


async def main(folder: Path, port: int, symbols: Sequence[str]) -> None:
    """Serve until it is stopped."""
    numbers = folder / "fix.db"
    store = SessionStore(numbers, is_new=not numbers.exists())
    server = FixServer(COMP_ID, Exchange(folder, symbols), store)
    await server.start("127.0.0.1", port)
    print(f"{COMP_ID} listens at 127.0.0.1:{server.port}", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        await server.stop()
        await store.close()


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
