"""A gateway's desk in a process of its own, which names its steps (`stepping`) and kills itself at the one armed.

    python -m tests.interop.stepped_desk FOLDER MARKET SOURCE DATABASE SOCKET

The desk, its books in a database, and its way to the door of a source are the product's, whole. Traders and the
sequence come through SOCKET, from the test: a call is (number, method, arguments), an answer (number, what it
returned), pickled.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.interop.step_mutants import WITHOUT, mutate
from tests.interop.stepping import Frames, Steps, watch_commits

from isocast.floor.following import FloorMessage
from isocast.orders.desk import Login, TradeReport, TradingRequest
from isocast.runtime.accounts.desk import DeskPace, GatewayDesk
from isocast.runtime.accounts.logins import Logins
from isocast.runtime.accounts.tables import AccountsDatabase
from isocast.runtime.accounts.trading import DeskSettings, TradingBooks
from isocast.runtime.client.publisher import Publisher
from isocast.security.packages import Stretching
from isocast.wire.opaque import OpaqueMessage

__all__ = ["read_object", "write_object"]

STABLE_TOKENS: Final = 3
"""As in a ring of three."""
SNAPSHOT_TOKENS: Final = 2
"""So that some are written within a day, and a later life begins with one."""
QUICK: Final = Stretching(memory_kib=64, passes=1, lanes=1)
"""Nobody comes in by a password here."""
_SIZE: Final = 4
_LOOK_S: Final = 0.001


def write_object(writer: asyncio.StreamWriter, what: object) -> None:
    """To the other end of the socket."""
    body = pickle.dumps(what)
    writer.write(len(body).to_bytes(_SIZE) + body)


async def read_object(reader: asyncio.StreamReader) -> Any:  # noqa: ANN401 - whatever the other end has said
    """The next; IncompleteReadError or ConnectionError where the other end is dead."""
    return pickle.loads(await reader.readexactly(int.from_bytes(await reader.readexactly(_SIZE))))  # noqa: S301


class Served:
    """What the test asks of the desk."""

    def __init__(self, gate: asyncio.Event) -> None:
        self.desk: GatewayDesk
        self._gate = gate
        self.publishing = 0
        """Batches that are on their way."""
        self.committed = 0
        """Transactions, in this life."""
        self._held_at = 0

    async def start(self) -> int:
        """Behind which token it wants the sequence."""
        return self.desk.start.token

    async def ask(self, login: Login, requests: Sequence[TradingRequest]) -> list[TradeReport]:
        return await self.desk.submit_many(login, requests)

    async def cancel_all(self, login: Login, client_id: str) -> int:
        return await self.desk.cancel_all(login, client_id)

    async def take(self, token: int, instant: int, messages: Sequence[FloorMessage]) -> None:
        """A token of the sequence; returns when the books have it."""
        for message in messages:
            await self.desk.take(token, instant, message)
        await self.desk.end_token(token)
        await self.desk.until_taken()
        if self.desk.failure is not None:
            raise self.desk.failure

    async def reports(self, login: Login, after: int) -> list[TradeReport]:
        return list(await self.desk.reports(login, after))

    async def hold(self) -> None:
        """Let no batch go to the source until `let_go`, or the end of this life."""
        self._held_at = self.committed
        self._gate.clear()

    async def until_held(self, count: int) -> None:
        """Until so many transactions are committed since; at once where nothing is held."""
        while not self._gate.is_set() and self.committed < self._held_at + count:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)

    async def until_published(self) -> None:
        """Until the source has everything: a cancel of all is answered before."""
        await self.desk._until_decided()  # noqa: SLF001 - for a desk that answers too early
        while self.publishing or self.desk.books.waiting:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)

    async def let_go(self) -> None:
        self._gate.set()


ANSWERED: Final = ("ask", "cancel_all")
"""Calls whose answers are steps: of others nothing is in doubt."""


async def serve(steps: Steps, config: str, source: str, url: str, place: str) -> None:
    """Until it is killed, or the test has gone."""
    reader, writer = await asyncio.open_unix_connection(place)
    gate = asyncio.Event()
    gate.set()
    served = Served(gate)
    database = AccountsDatabase(url)
    settings = DeskSettings(stable_tokens=STABLE_TOKENS, snapshot_tokens=SNAPSHOT_TOKENS)
    books = TradingBooks(database, settings, lambda step: reached(f"books {step}"))
    books.refuses_unknown = True
    pace = DeskPace(group_s=0.0, answer_s=60.0, look_s=3_600.0)

    def reached(step: str) -> None:
        steps.reach("in the desk", [step])
        served.committed += step == "books committed"

    async with Publisher(config, source) as publisher:

        async def publish(messages: Sequence[OpaqueMessage], key: bytes) -> None:
            served.publishing += 1
            try:
                await gate.wait()
                await publisher.send(messages, key)
            finally:
                served.publishing -= 1

        logins = Logins(database, stretching=QUICK)
        async with GatewayDesk(database, books, publish, logins=logins, pace=pace, reached=reached) as desk:
            served.desk = desk

            async def answer(number: int, method: str, values: tuple[Any, ...]) -> None:
                found = await getattr(served, method)(*values)
                if method in ANSWERED:
                    steps.reach("before the answer", [method])
                write_object(writer, (number, found))  # The kernel has it now: this socket was empty.
                if method in ANSWERED:
                    steps.reach("after the answer", [method])

            async with asyncio.TaskGroup() as group:
                while True:
                    group.create_task(answer(*await read_object(reader)))


def main(arguments: Sequence[str]) -> None:
    """Serve, stepping."""
    folder, *words = arguments
    mutate(os.environ.get(WITHOUT, ""))
    steps = Steps(Path(folder))
    Frames(steps).watch()
    watch_commits(steps)
    asyncio.run(serve(steps, *words))


if __name__ == "__main__":
    main(sys.argv[1:])
