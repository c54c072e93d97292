"""A gateway for browsers: a customer whose events go out as JSON rows over WebSockets.

Everything about a client is bounded: how many there are, what one may ask for, what waits for it, and how long it may
take nothing. The market is heard whether or not anybody reads.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from itertools import pairwise
from time import time_ns
from typing import Protocol

import numpy as np
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.typing import Origin

from isocast.hierarchy.latest import LatestTable
from isocast.runtime.client.received import ReceivedBatch
from isocast.runtime.edge.web_client import ROWS_MAX, Row, WebClient
from isocast.terms.errors import TransportError

__all__ = ["CLIENTS_MAX", "LOCAL_PAGES", "Batches", "WebCounts", "WebGateway"]

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
        row: Row,
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
