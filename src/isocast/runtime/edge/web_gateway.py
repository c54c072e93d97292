"""A gateway for browsers: a customer whose events go out as JSON over WebSockets; slow clients get less.

Everything about a client is bounded: how many there are, what one may ask for, what waits for it, and how long it may
take nothing. The market is heard whether or not anybody reads.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from time import time_ns
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.typing import Origin

from isocast.hierarchy.latest import LatestTable
from isocast.runtime.client.live_tape import depth_fields
from isocast.runtime.client.received import BatchKind, ReceivedBatch
from isocast.terms.errors import LocalProtocolError, RemoteProtocolError, TransportError
from isocast.terms.market import EventKind, Symbol
from isocast.ticker.books import DAY_MARK, OrderBooks, is_of_books
from isocast.ticker.views import depth_of
from isocast.wire.events import EventArray
from isocast.wire.names import InstrumentNames
from isocast.wire.opaque import check_topic

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


_Event: TypeAlias = tuple[int, int, int, bytes, bytes, int, int, int, int, int]
EventNaming: TypeAlias = Callable[[_Event], dict[str, object]]
"""An event of `events.tolist()` by names, as programs read it."""

ROWS_MAX = 20_000
"""Rows that wait for one client: some 5 MB."""
SNAPSHOT_ROWS = 2_000
"""In one message."""
SYMBOLS_MAX = 10_000
"""For one client; more is everything."""
_EVERYTHING = "*"
_WORDS = ("subscribe", "unsubscribe")
_DEPTH = "depth"
_BOOKS_AT_ONCE = 100
"""Books in one message."""
_TOPICS = "topics"
_NOTICES_MAX = 16


class _Waiting(NamedTuple):
    first: int
    last: int
    rows: list[str]
    opaque: list[str]
    """Those of them that no snapshot tells."""


def read_wish(raw: str | bytes) -> dict[str, list[str]]:
    """Symbols under subscribe and unsubscribe, topics under topics; RemoteProtocolError for anything else."""
    if isinstance(raw, bytes):
        raise RemoteProtocolError("expected text, got bytes")
    try:
        wish = json.loads(raw)
    except (ValueError, RecursionError):
        raise RemoteProtocolError("this is not JSON") from None
    if not isinstance(wish, dict) or not wish or not set(wish) <= {*_WORDS, _TOPICS, _DEPTH}:
        raise RemoteProtocolError('expected an object such as {"subscribe": ["IBM"]}')
    return {word: _names(names, is_topic=word == _TOPICS) for word, names in wish.items() if word != _DEPTH}


def read_depth(raw: str | bytes, most: int) -> int | None:
    """How many levels of books a message that `read_wish` has read asks for; None if it does not say."""
    depth = json.loads(raw).get(_DEPTH)
    if depth is None:
        return None
    if not most:
        raise RemoteProtocolError("this gateway serves no books: it was started without --depth")
    if not isinstance(depth, int) or isinstance(depth, bool) or not 0 <= depth <= most:
        raise RemoteProtocolError(f"depth must be a whole number up to {most}")
    return depth


def _names(names: object, *, is_topic: bool) -> list[str]:
    if names == _EVERYTHING:
        return [_EVERYTHING]
    what = _TOPICS if is_topic else "symbols"
    if not isinstance(names, list) or len(names) > SYMBOLS_MAX:
        raise RemoteProtocolError(f'expected a list of at most {SYMBOLS_MAX:,} {what}, or "*"')
    for name in names:
        if not isinstance(name, str):
            raise RemoteProtocolError(f"{name!r} is not a {what.removesuffix('s')}")
    try:
        return [check_topic(name) if is_topic else str(Symbol(name)) for name in names]
    except LocalProtocolError as reason:
        raise RemoteProtocolError(str(reason)) from None


class WebClient:
    """One client's wishes and what waits for it."""

    def __init__(self, row: EventNaming, rows_max: int = ROWS_MAX, depth_max: int = 0) -> None:
        """It has asked for nothing yet; it may ask for so many levels of books."""
        self._depth_max = depth_max
        self._depth = 0
        self._books: dict[bytes, None] = {}
        """Symbols whose books have changed since it was told."""
        self.missed = 0
        """Rows that it did not get, in all."""
        self._row = row
        self._rows_max = rows_max
        self._everything = False
        self._symbols: set[str] = set()
        self._topics: set[str] = set()
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
        return self._everything or bool(self._symbols or self._topics)

    # ---- what it says

    def wish(self, raw: str | bytes) -> None:
        """A message of the client; one that is wrong is answered, and changes nothing."""
        try:
            wish = read_wish(raw)
            depth = read_depth(raw, self._depth_max)
            symbols = self._after(wish)
        except RemoteProtocolError as reason:
            self._notices.append(json.dumps({"type": "error", "text": str(reason)}))
            return
        self._topics = set(wish.get(_TOPICS, self._topics))
        if not set(wish) & set(_WORDS):
            return
        if _EVERYTHING in wish.get("unsubscribe", ()):
            self._everything, symbols = False, set()
        if _EVERYTHING in wish.get("subscribe", ()):
            self._everything = True
        self._depth = self._depth if depth is None else depth
        self._symbols = symbols
        self._wanted = np.array(sorted(symbols), "S8")
        self._drop_events()
        self._parts, self._missed = None, None
        self._snapshot_wanted = self._everything or bool(symbols)
        self._books.clear()

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
        if not self._symbols:
            return np.zeros(len(events), np.bool_)
        found: npt.NDArray[np.bool_] = np.isin(events["symbol"], self._wanted) | (events["symbol"] == b"")
        return found

    def wants_topic(self, topic: str) -> bool:
        """Whether it asked for the opaque messages of a topic."""
        return topic in self._topics or _EVERYTHING in self._topics

    def add(self, first: int, last: int, rows: Sequence[str], opaque: Sequence[str] = ()) -> None:
        """Rows of messages that followed; kept if there is room and no snapshot will tell them anyway.

        `opaque` are those of them that no snapshot tells.
        """
        if self._snapshot_wanted:
            rows = opaque
        if not rows:
            return
        if self._missed or self._rows + len(rows) > self._rows_max:
            lost = self._rows + len(rows)
            begun, count = (self._missed[0], self._missed[2]) if self._missed else (self._first(first), 0)
            self._missed = begun, last, count + lost
            self.missed += lost
            self._waiting.clear()
            self._rows = 0
            return
        self._waiting.append(_Waiting(first, last, list(rows), list(opaque)))
        self._rows += len(rows)

    def note_books(self, symbols: Iterable[bytes]) -> None:
        """The books of these have changed; it hears how they are when it takes the next message, not each change."""
        if self._depth:
            wanted = symbols if self._everything else (name for name in symbols if name.decode() in self._symbols)
            self._books.update(dict.fromkeys(wanted))

    def _drop_events(self) -> None:
        """A snapshot tells them; opaque messages stay."""
        kept = [_Waiting(some.first, some.last, some.opaque, some.opaque) for some in self._waiting if some.opaque]
        self._waiting = deque(kept)
        self._rows = sum(len(some.rows) for some in kept)

    def _first(self, otherwise: int) -> int:
        return self._waiting[0].first if self._waiting else otherwise

    def beat(self, text: str) -> None:
        """Something to say if nothing else is."""
        self._beat = text

    # ---- what it is told

    def next_text(self, table: LatestTable, books: OrderBooks | None = None) -> str | None:
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
            # Every event that waits is in the table already.
            self._snapshot_wanted = False
            self._drop_events()
            self._parts = self._snapshot(table)
            return next(self._parts)
        return self._events() or self._changed_books(books, table.next_sequence - 1) or beat

    def _changed_books(self, books: OrderBooks | None, sequence: int) -> str | None:
        if not self._books or books is None:
            return None
        rows = []
        for name in list(self._books)[:_BOOKS_AT_ONCE]:
            del self._books[name]
            own = books.of_symbol(int.from_bytes(name, "little"))
            rows.append(depth_fields(depth_of(name.decode("ascii"), own, self._depth)))
        return json.dumps({"type": "books", "sequence": sequence, "rows": rows})

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
_OPEN_S = 5.0
"""For TLS and the request of a client together."""


class Batches(Protocol):
    """What a listener gives."""

    def __aiter__(self) -> AsyncIterator[ReceivedBatch]:
        """Batches, for ever."""


@dataclass(slots=True)
class WebCounts:
    """What happened so far."""

    events: int = 0
    opaque: int = 0
    """Opaque messages, wanted or not."""
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

    def __init__(  # noqa: PLR0913 - where, for whom, and a bound on everything
        self,
        address: str,
        port: int,
        row: Callable[[_Event, InstrumentNames | None], dict[str, object]],
        *,
        origins: Sequence[str] = (),
        rows_max: int = ROWS_MAX,
        clients_max: int = CLIENTS_MAX,
        take_s: float = TAKE_S,
        depth_max: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`origins` are pages of other machines that may connect; port 0 takes a free one; with `tls`, by wss alone.

        `row` names the fields of an event, and calls instruments by their full names, as far as those are known. With
        `depth_max` it follows the books of floors that publish orders, and clients may ask for so many levels.
        """
        self.books = OrderBooks() if depth_max else None
        self._depth_max = depth_max
        self._heard = 0
        self.counts = WebCounts()
        self.place = address, port
        """Where it is heard, once it runs."""
        self.table = LatestTable()
        self.ready = asyncio.Event()
        self._row = row
        self._names: InstrumentNames | None = None
        self._origins: list[Origin | re.Pattern[str] | None] = [None, LOCAL_PAGES, *map(Origin, origins)]
        self._rows_max = rows_max
        self._clients_max = clients_max
        self._take_s = take_s
        self._tls = tls
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
                open_timeout=_OPEN_S,
                ssl=self._tls,
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
        self._names = batch.names
        self.counts.events += len(batch)
        self.counts.opaque += len(batch.opaque)
        self._follow_books(batch)
        if not len(batch) and not batch.opaque:
            return
        if len(batch):
            self._apply(batch)
        wanting = [client for client in self._clients if client.is_subscribed]
        if not wanting:
            return
        rows, sequences = self._rows_of(batch), batch.sequences.tolist()
        messages = [(one.topic, one.sequence, json.dumps(one.fields())) for one in batch.opaque]
        for client in wanting:
            some = [(sequences[place], rows[place]) for place in np.flatnonzero(client.chosen(batch.events)).tolist()]
            also = [(sequence, text) for topic, sequence, text in messages if client.wants_topic(topic)]
            if also:
                some = sorted([*some, *also], key=itemgetter(0))
            before = client.missed
            rows_of_topics = [text for _, text in also]
            client.add(batch.first_sequence, batch.last_sequence, [text for _, text in some], rows_of_topics)
            self.counts.rows_missed += client.missed - before
            self._clients[client].set()

    def _follow_books(self, batch: ReceivedBatch) -> None:
        """The books go on; clients hear which of them changed."""
        if self.books is None:
            return
        if batch.kind is not BatchKind.MESSAGES or batch.first_sequence > self._heard + 1:
            self.books.gap()
        self._heard = batch.last_sequence
        self.books.follow(batch.events)
        changed = np.unique(batch.events["symbol"][is_of_books(batch.events)]).tolist()
        is_other_day = bool(((batch.events["kind"] == EventKind.MARK) & (batch.events["reference"] == DAY_MARK)).any())
        for client in self._clients:
            client.note_books(name for name in changed if self.books.of_symbol(int.from_bytes(name, "little")))
            if is_other_day:
                self._books_of(client)

    def _books_of(self, client: WebClient) -> None:
        """A client that has just asked for books hears of all that it wants."""
        if self.books is not None:
            client.note_books(book.symbol.to_bytes(8, "little").rstrip(b"\0") for book in self.books.books)

    def _named(self, event: _Event) -> dict[str, object]:
        return self._row(event, self._names)

    def _apply(self, batch: ReceivedBatch) -> None:
        events = batch.events
        bounds = [0, *(np.flatnonzero(np.diff(batch.sequences)) + 1).tolist(), len(events)]
        sequences = [int(batch.sequences[at]) for at in bounds[:-1]]
        self.table.apply(sequences, [events[at:end].tobytes() for at, end in pairwise(bounds)])

    def _rows_of(self, batch: ReceivedBatch) -> list[str]:
        columns = batch.sequences.tolist(), batch.releases.tolist(), batch.events.tolist()
        return [
            json.dumps({"sequence": sequence, "release_ns": release or None, **self._named(event)})
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
        client, news = WebClient(self._named, self._rows_max, self._depth_max), asyncio.Event()
        self._clients[client] = news
        telling = asyncio.create_task(self._tell(connection, client, news))
        try:
            async for raw in connection:
                client.wish(raw)
                self._books_of(client)
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
                while (text := client.next_text(self.table, self.books)) is not None:
                    async with asyncio.timeout(self._take_s):
                        await connection.send(text)
                    self.counts.messages += 1
        except TimeoutError:
            self.counts.too_slow += 1
            # A closing handshake would wait behind what the client does not take.
            connection.transport.abort()
        except ConnectionClosed:
            pass
