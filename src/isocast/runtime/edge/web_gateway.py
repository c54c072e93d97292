"""A gateway for browsers: a customer whose events go out as JSON over WebSockets; slow clients get less.

Everything about a client is bounded: how many there are, what one may ask for, what waits for it, and how long it may
take nothing. The market is heard whether or not anybody reads.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from itertools import pairwise
from time import time_ns
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.typing import Origin

from isocast.hierarchy.latest import LatestTable
from isocast.runtime.client.received import ReceivedBatch
from isocast.terms.errors import LocalProtocolError, RemoteProtocolError, TransportError
from isocast.terms.market import Symbol
from isocast.wire.events import EventArray

__all__ = [
    "CLIENTS_MAX",
    "LOCAL_PAGES",
    "ROWS_MAX",
    "SNAPSHOT_ROWS",
    "SYMBOLS_MAX",
    "Batches",
    "EventNaming",
    "WebClient",
    "WebCounts",
    "WebGateway",
    "read_wish",
]


# ---- What one WebSocket client is to be told next: a snapshot, then events; less of them when it does not keep up.
#
# Rows wait in a bounded queue. When it is full it is emptied: the client is told how many rows it did not get and gets
# a snapshot instead, as soon as it takes anything at all. So nobody's slowness costs memory, or touches anybody else.


EventNaming: TypeAlias = Callable[[tuple[int, int, int, bytes, bytes, int, int, int, int, int]], dict[str, object]]
"""An event of `events.tolist()` by names, as programs read it."""

ROWS_MAX = 20_000
"""Rows that wait for one client: some 5 MB."""
SNAPSHOT_ROWS = 2_000
"""In one message."""
SYMBOLS_MAX = 10_000
"""For one client; more is everything."""
_EVERYTHING = "*"
_WORDS = ("subscribe", "unsubscribe")
_NOTICES_MAX = 16


class _Waiting(NamedTuple):
    first: int
    last: int
    rows: list[str]


def read_wish(raw: str | bytes) -> dict[str, list[str]]:
    """Symbols under subscribe and unsubscribe, as a client asks for them; RemoteProtocolError for anything else."""
    if isinstance(raw, bytes):
        raise RemoteProtocolError("expected text, got bytes")
    try:
        wish = json.loads(raw)
    except (ValueError, RecursionError):
        raise RemoteProtocolError("this is not JSON") from None
    if not isinstance(wish, dict) or not wish or not set(wish) <= set(_WORDS):
        raise RemoteProtocolError('expected an object such as {"subscribe": ["IBM"]}')
    return {word: _symbols(names) for word, names in wish.items()}


def _symbols(names: object) -> list[str]:
    if names == _EVERYTHING:
        return [_EVERYTHING]
    if not isinstance(names, list) or len(names) > SYMBOLS_MAX:
        raise RemoteProtocolError(f'expected a list of at most {SYMBOLS_MAX:,} symbols, or "*"')
    try:
        return [str(Symbol(name)) for name in names if isinstance(name, str) or _refuse(name)]
    except LocalProtocolError as reason:
        raise RemoteProtocolError(str(reason)) from None


def _refuse(name: object) -> bool:
    raise RemoteProtocolError(f"{name!r} is not a symbol")


class WebClient:
    """One client's wishes and what waits for it."""

    def __init__(self, row: EventNaming, rows_max: int = ROWS_MAX) -> None:
        """It has asked for nothing yet."""
        self.missed = 0
        """Rows that it did not get, in all."""
        self._row = row
        self._rows_max = rows_max
        self._everything = False
        self._symbols: set[str] = set()
        self._wanted: npt.NDArray[np.bytes_] = np.empty(0, "S8")
        self._waiting: deque[_Waiting] = deque()
        self._rows = 0
        self._missed: tuple[int, int, int] | None = None
        self._snapshot_wanted = False
        self._parts: Iterator[str] | None = None
        self._notices: deque[str] = deque(maxlen=_NOTICES_MAX)
        self._beat: str | None = None

    @property
    def is_subscribed(self) -> bool:
        """Whether it wants anything."""
        return self._everything or bool(self._symbols)

    # ---- what it says

    def wish(self, raw: str | bytes) -> None:
        """A message of the client; one that is wrong is answered, and changes nothing."""
        try:
            wish = read_wish(raw)
            symbols = self._after(wish)
        except RemoteProtocolError as reason:
            self._notices.append(json.dumps({"type": "error", "text": str(reason)}))
            return
        if _EVERYTHING in wish.get("unsubscribe", ()):
            self._everything, symbols = False, set()
        if _EVERYTHING in wish.get("subscribe", ()):
            self._everything = True
        self._symbols = symbols
        self._wanted = np.array(sorted(symbols), "S8")
        self._waiting.clear()
        self._rows, self._parts, self._missed = 0, None, None
        self._snapshot_wanted = self.is_subscribed

    def _after(self, wish: dict[str, list[str]]) -> set[str]:
        symbols = self._symbols | (set(wish.get("subscribe", ())) - {_EVERYTHING})
        symbols -= set(wish.get("unsubscribe", ()))
        if len(symbols) > SYMBOLS_MAX:
            raise RemoteProtocolError(f'more than {SYMBOLS_MAX:,} symbols: subscribe to "*"')
        return symbols

    # ---- what happens

    def chosen(self, events: EventArray) -> npt.NDArray[np.bool_]:
        """Which of them it wants; events of a whole floor are everybody's."""
        if self._everything:
            return np.ones(len(events), np.bool_)
        found: npt.NDArray[np.bool_] = np.isin(events["symbol"], self._wanted) | (events["symbol"] == b"")
        return found

    def add(self, first: int, last: int, rows: Sequence[str]) -> None:
        """Rows of messages that followed; kept if there is room and no snapshot will tell them anyway."""
        if not rows or self._snapshot_wanted:
            return
        if self._missed or self._rows + len(rows) > self._rows_max:
            lost = self._rows + len(rows)
            begun, count = (self._missed[0], self._missed[2]) if self._missed else (self._first(first), 0)
            self._missed = begun, last, count + lost
            self.missed += lost
            self._waiting.clear()
            self._rows = 0
            return
        self._waiting.append(_Waiting(first, last, list(rows)))
        self._rows += len(rows)

    def _first(self, otherwise: int) -> int:
        return self._waiting[0].first if self._waiting else otherwise

    def beat(self, text: str) -> None:
        """Something to say if nothing else is."""
        self._beat = text

    # ---- what it is told

    def next_text(self, table: LatestTable) -> str | None:
        """The next message for it; None if there is nothing."""
        beat, self._beat = self._beat, None
        if self._notices:
            return self._notices.popleft()
        if self._parts is not None:
            part = next(self._parts, None)
            if part is not None:
                return part
            self._parts = None
        if self._missed is not None:
            first, last, count = self._missed
            self._missed, self._parts = None, None
            self._snapshot_wanted = True
            return json.dumps({"type": "conflated", "first": first, "last": last, "rows": count})
        if self._snapshot_wanted:
            # Everything that waits is in the table already.
            self._snapshot_wanted = False
            self._waiting.clear()
            self._rows = 0
            self._parts = self._snapshot(table)
            return next(self._parts)
        return self._events() or beat

    def _events(self) -> str | None:
        if not self._waiting:
            return None
        rows: list[str] = []
        first, last = self._waiting[0].first, 0
        while self._waiting and len(rows) < SNAPSHOT_ROWS:
            some = self._waiting.popleft()
            rows += some.rows
            last = some.last
        self._rows -= len(rows)
        return f'{{"type": "events", "first": {first}, "last": {last}, "rows": [{", ".join(rows)}]}}'

    def _snapshot(self, table: LatestTable) -> Iterator[str]:
        snapshot = table.snapshot()
        events = snapshot.events
        events = events[self.chosen(events)]
        parts = max(-(-len(events) // SNAPSHOT_ROWS), 1)
        for part in range(parts):
            rows = [self._row(event) for event in events[part * SNAPSHOT_ROWS : (part + 1) * SNAPSHOT_ROWS].tolist()]
            head = {"type": "snapshot", "sequence": snapshot.next_sequence - 1, "part": part + 1, "parts": parts}
            yield json.dumps({**head, "rows": rows})


CLIENTS_MAX = 256
MESSAGE_BYTES_MAX = 1 << 17
"""Of a client: ten thousand symbols with their quotes."""
TAKE_S = 20.0
"""For which a client may take nothing."""
BEAT_S = 1.0
LOCAL_PAGES = re.compile(r"https?://(localhost|127\.0\.0\.1)(:\d+)?")
"""Pages of this machine; those of others must be named, or any site that somebody visits could read along."""
_TRY_LATER = 1013


class Batches(Protocol):
    """What a listener gives."""

    def __aiter__(self) -> AsyncIterator[ReceivedBatch]:
        """Batches, for ever."""


@dataclass(slots=True)
class WebCounts:
    """What happened so far."""

    events: int = 0
    clients: int = 0
    """That ever came."""
    refused: int = 0
    """For whom there was no place."""
    too_slow: int = 0
    """That took nothing for too long."""
    rows_missed: int = 0
    """Rows that clients did not get, and a snapshot instead."""
    messages: int = 0


class WebGateway:
    """Runs until it is cancelled."""

    def __init__(
        self,
        address: str,
        port: int,
        row: EventNaming,
        *,
        origins: Sequence[str] = (),
        rows_max: int = ROWS_MAX,
        clients_max: int = CLIENTS_MAX,
        take_s: float = TAKE_S,
    ) -> None:
        """`origins` are pages of other machines that may connect; port 0 takes a free one."""
        self.counts = WebCounts()
        self.place = address, port
        """Where it is heard, once it runs."""
        self.table = LatestTable()
        self.ready = asyncio.Event()
        self._row = row
        self._origins: list[Origin | re.Pattern[str] | None] = [None, LOCAL_PAGES, *map(Origin, origins)]
        self._rows_max = rows_max
        self._clients_max = clients_max
        self._take_s = take_s
        self._clients: dict[WebClient, asyncio.Event] = {}

    async def run(self, listening: AbstractAsyncContextManager[Batches]) -> None:
        """Hear the market, and serve: nobody is let in before there is something to tell."""
        async with listening as listener, await self._open() as server:
            self._note_place(server)
            beating = asyncio.create_task(self._beat())
            try:
                self.ready.set()
                async for batch in listener:
                    self.receive(batch)
            finally:
                beating.cancel()
                with suppress(asyncio.CancelledError):
                    await beating

    async def _open(self) -> Server:
        try:
            return await serve(
                self.attend,
                *self.place,
                origins=self._origins,
                max_size=MESSAGE_BYTES_MAX,
                compression=None,
                close_timeout=2,
            )
        except OSError as reason:
            address, port = self.place
            raise TransportError(f"cannot listen on {address}:{port}: {reason.strerror}") from None

    def _note_place(self, server: Server) -> None:
        for listener in server.sockets:
            self.place = listener.getsockname()[:2]

    # ---- the market

    def receive(self, batch: ReceivedBatch) -> None:
        """Everything to those who want it."""
        self.counts.events += len(batch)
        if not len(batch):
            return
        events = batch.events
        bounds = [0, *(np.flatnonzero(np.diff(batch.sequences)) + 1).tolist(), len(events)]
        sequences = [int(batch.sequences[at]) for at in bounds[:-1]]
        payloads = [events[at:end].tobytes() for at, end in pairwise(bounds)]
        self.table.apply(sequences, payloads)
        wanting = [client for client in self._clients if client.is_subscribed]
        if not wanting:
            return
        rows = self._rows_of(batch)
        for client in wanting:
            chosen = np.flatnonzero(client.chosen(events)).tolist()
            before = client.missed
            client.add(batch.first_sequence, batch.last_sequence, [rows[place] for place in chosen])
            self.counts.rows_missed += client.missed - before
            self._clients[client].set()

    def _rows_of(self, batch: ReceivedBatch) -> list[str]:
        columns = batch.sequences.tolist(), batch.releases.tolist(), batch.events.tolist()
        return [
            json.dumps({"sequence": sequence, "release_ns": release or None, **self._row(event)})
            for sequence, release, event in zip(*columns, strict=True)
        ]

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            said = {"type": "heartbeat", "sequence": self.table.next_sequence - 1, "time_ns": time_ns()}
            for client, news in self._clients.items():
                client.beat(json.dumps(said))
                news.set()

    # ---- clients

    async def attend(self, connection: ServerConnection) -> None:
        """One client, until it goes."""
        if len(self._clients) >= self._clients_max:
            self.counts.refused += 1
            await connection.close(_TRY_LATER, "there is no place left")
            return
        self.counts.clients += 1
        client, news = WebClient(self._row, self._rows_max), asyncio.Event()
        self._clients[client] = news
        telling = asyncio.create_task(self._tell(connection, client, news))
        try:
            async for raw in connection:
                client.wish(raw)
                news.set()
        except ConnectionClosed:
            pass
        finally:
            del self._clients[client]
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    async def _tell(self, connection: ServerConnection, client: WebClient, news: asyncio.Event) -> None:
        try:
            while True:
                await news.wait()
                news.clear()
                while (text := client.next_text(self.table)) is not None:
                    async with asyncio.timeout(self._take_s):
                        await connection.send(text)
                    self.counts.messages += 1
        except TimeoutError:
            self.counts.too_slow += 1
            # A closing handshake would wait behind what the client does not take.
            connection.transport.abort()
        except ConnectionClosed:
            pass
