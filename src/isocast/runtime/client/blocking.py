"""A market from Python, for programs without an event loop: everything waits until it is done.

    with isocast.connect() as market:
        market.publish({"kind": "trade", "floor": "XLON", "symbol": "VOD", "price": "72.5", "quantity": 100})
        for batch in market.listen(start="beginning", timeout_s=5):
            print(batch.to_pandas())

`connection` does the work, in an event loop of its own, in a thread that ends with the `with` block.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from datetime import date, datetime
from pathlib import Path
from threading import Thread, current_thread
from types import TracebackType
from typing import Any, Self, TypeVar

from isocast.runtime.client.connection import (
    PATIENCE_S,
    AsyncConnection,
    AsyncListening,
    AsyncTape,
    Published,
    connect_async,
)
from isocast.runtime.client.listener import Conflict, Listener, Start
from isocast.runtime.client.live_tape import TapeRow
from isocast.runtime.client.received import ReceivedBatch
from isocast.runtime.client.replay import ReplayReport
from isocast.runtime.client.rows import Rows
from isocast.runtime.market.model import Market
from isocast.terms.errors import IsocastError
from isocast.ticker.tape import Tape

__all__ = ["Connection", "Listening", "LiveTape", "connect"]

ResultT = TypeVar("ResultT")


def connect(
    market: str | Path | Market | None = None,
    *,
    source: str | None = None,
    customer: str | None = None,
    patience_s: float = PATIENCE_S,
) -> Connection:
    """Open a market; use it in a `with` block, which closes everything.

    `market` is its file. Left out, it is that of the variable ISOCAST_MARKET, `market.toml` of the working directory,
    or the only market that runs on this machine. `source` is where to publish, `customer` as whom to listen, if the
    calls do not say. `patience_s` is how long a market may be away before a call raises an error.

        with isocast.connect() as market:
            market.publish({"kind": "trade", "floor": "XLON", "symbol": "VOD", "price": "72.5", "quantity": 100})
    """
    return Connection(connect_async(market, source=source, customer=customer, patience_s=patience_s))


class _LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # A program that forgets to close it ends all the same.
        self._thread = Thread(target=self._loop.run_forever, name="isocast", daemon=True)
        self._thread.start()

    def wait_for(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """What comes of it; whoever is interrupted meanwhile leaves nothing under way."""
        if self._loop.is_closed() or current_thread() is self._thread:
            work.close()
            raise IsocastError("this connection is closed: connect again")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()

    def next_of(self, stream: AsyncIterator[ResultT]) -> ResultT:
        """Its next one; StopIteration at its end, and when the loop is closed."""
        if self._loop.is_closed():
            raise StopIteration

        async def following() -> ResultT | None:
            return await anext(stream, None)

        found = self.wait_for(following())
        if found is None:
            raise StopIteration
        return found

    def end(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Close something; with the loop everything was closed."""
        if not self._loop.is_closed():
            self.wait_for(close())

    def close(self) -> None:
        """End what is under way, and the thread."""
        if self._loop.is_closed():
            return
        self.wait_for(self._settle())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _settle(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._loop.shutdown_asyncgens()
        await self._loop.shutdown_default_executor()


class Connection:
    """A market, to be used in a `with` block. `connect` makes it."""

    def __init__(self, market: AsyncConnection) -> None:
        """`market` does the work, in a thread."""
        self._async = market
        self._loop = _LoopThread()

    def __repr__(self) -> str:
        return repr(self._async).replace("Async", "", 1)

    @property
    def name(self) -> str:
        """The market's name."""
        return self._async.name

    @property
    def file(self) -> Path:
        """The market's file."""
        return self._async.file

    @property
    def sources(self) -> tuple[str, ...]:
        """Where one can publish."""
        return self._async.sources

    @property
    def customers(self) -> tuple[str, ...]:
        """As whom one can listen."""
        return self._async.customers

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection and socket, and end the thread; what was published is safe."""
        if not self._async.is_closed:
            self._loop.wait_for(self._async.close())
        self._loop.close()

    def publish(
        self,
        rows: Rows,
        *,
        source: str | None = None,
        key: bytes | str | None = None,
        kind: str | None = None,
        floor: str | None = None,
        symbol: str | None = None,
    ) -> Published:
        """Put events into the sequence, in this order; returns once all of them are safe on the source's disk.

        `rows` are dicts or dataclasses (one or many), a DataFrame of pandas or polars, an Arrow table or a structured
        numpy array, with the columns kind, floor, symbol, side, price, quantity, id, reference, flags and time. Kind
        and floor must be there, or be given for all rows by `kind`, `floor` and `symbol`; a time left out is now. A
        price is in units, as text, Decimal or int; a float must be a whole number of ticks of 0.0001. An array of
        `isocast.EVENT_DTYPE` is taken as it is, with prices in ticks.

        All rows are checked first: RowError names the row and the column, and nothing was published. `source` is one of
        `sources`; a market with one needs no name. With a `key` of yours (at most 60 bytes) the same call may be
        repeated after any failure: it publishes once.
        """
        return self._loop.wait_for(
            self._async.publish(rows, source=source, key=key, kind=kind, floor=floor, symbol=symbol)
        )

    def replay(  # noqa: PLR0913 - what files do not say themselves
        self,
        *files: str | Path,
        source: str | None = None,
        speed: float | None = None,
        floor: str | None = None,
        day: date | str | None = None,
        symbol: str | None = None,
        mapping: str | None = None,
        run: str = "",
        strict: bool = False,
        told: Callable[[ReplayReport], None] | None = None,
    ) -> ReplayReport:
        """Publish files of feeds (ITCH, captures, tables, Parquet, LOBSTER) at a source; each message once.

        `speed` is market time to real time, such as 10; left out, it goes as fast as the source takes it. Repeated
        after an interruption it goes on; under another name (`run`) the same files are published again. `floor`, `day`,
        `symbol` and `mapping` say what the files do not. `told` hears how far it is.
        """
        return self._loop.wait_for(
            self._async.replay(
                *files,
                source=source,
                speed=speed,
                floor=floor,
                day=day,
                symbol=symbol,
                mapping=mapping,
                run=run,
                strict=strict,
                told=told,
            )
        )

    def listen(  # noqa: PLR0913 - what, from where, until when, and who hears of trouble
        self,
        symbols: str | Iterable[str] | None = None,
        *,
        start: Start | None = None,
        latest: bool | None = None,
        timeout_s: float | None = None,
        customer: str | None = None,
        stripes: Iterable[int] | None = None,
        merged: bool = True,
        told: Callable[[str], None] | None = None,
        conflict: Callable[[Conflict], None] | None = None,
    ) -> Listening:
        """Hear the market from now on: batches as they are released, every message once and in sequence.

            for batch in market.listen("VOD"):
                print(batch.to_pandas())

        It hears from the moment of this call; IsocastError says why, if no line is heard. `start` is now, beginning,
        snapshot or a sequence. With `latest` only the newest event of each key comes. The loop ends after `timeout_s`
        without a batch, or by `break`; a `with` block closes it at once. `customer` is the place to take, the first
        free one if left out. Of several stripes all, or `stripes`, or those of `symbols` are heard, `merged` into one
        order. `told` hears of trouble in words, `conflict` of lines that contradict each other.
        """
        listening = self._async.listen(
            symbols,
            start=start,
            latest=latest,
            timeout_s=timeout_s,
            customer=customer,
            stripes=stripes,
            merged=merged,
            told=told,
            conflict=conflict,
        )
        return Listening(listening, self._loop)

    def snapshot(
        self,
        at: int | str | datetime | None = None,
        *,
        symbols: str | Iterable[str] | None = None,
        customer: str | None = None,
    ) -> ReceivedBatch:
        """The newest event of each floor, symbol, kind and side: now, or of what was released by a time or a sequence.

        `at` is a sequence, a datetime, or a text such as "2026-03-02T14:30:00Z" (UTC if it names no zone).
        """
        return self._loop.wait_for(self._async.snapshot(at, symbols=symbols, customer=customer))

    def tape(
        self,
        symbols: str | Iterable[str] | None = None,
        *,
        floors: str | Iterable[str] | None = None,
        timeout_s: float | None = None,
        customer: str | None = None,
    ) -> LiveTape:
        """The consolidated tape: last sale, best bid and offer, volume and status of each symbol over all floors.

        It has everything that the market has released so far, and a loop over it goes on with what comes:

            with market.tape() as tape:
                print(tape["VOD"].last)
                for changed in tape:
                    print(changed)
        """
        return LiveTape(self._async.tape(symbols, floors=floors, timeout_s=timeout_s, customer=customer), self._loop)


class Listening:
    """Batches of a market as they are released; `Connection.listen` makes it."""

    def __init__(self, listening: AsyncListening, loop: _LoopThread) -> None:
        """Listens at once."""
        self._async = listening
        self._loop = loop
        loop.wait_for(listening.open())

    def __repr__(self) -> str:
        return repr(self._async).replace("Async", "", 1)

    @property
    def listener(self) -> Listener:
        """Counters, alarms and the state of its lines, for whoever looks closer."""
        return self._async.listener

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave the place."""
        self._loop.end(self._async.close)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedBatch:
        return self._loop.next_of(self._async)

    def next_if_any(self) -> ReceivedBatch | None:
        """The next batch; None once everything that the market has released was given, and for now there is no more."""
        return self._loop.wait_for(self._async.next_if_any())


class LiveTape:
    """The consolidated tape of a market as it goes on; `Connection.tape` makes it."""

    def __init__(self, tape: AsyncTape, loop: _LoopThread) -> None:
        """Reads everything that was released so far."""
        self._async = tape
        self._loop = loop
        loop.wait_for(tape.open())

    def __repr__(self) -> str:
        return repr(self._async).replace("Async", "Live", 1)

    @property
    def tape(self) -> Tape:
        """The state behind it, with prices in ticks: `isocast.ticker` says what it can."""
        return self._async.tape

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop to listen; what is on the tape stays."""
        self._loop.end(self._async.close)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> list[TapeRow]:
        return self._loop.next_of(self._async)

    def rows(self) -> list[TapeRow]:
        """Each symbol as it stands now, by name."""
        return self._async.rows()

    def __getitem__(self, symbol: str) -> TapeRow:
        return self._async[symbol]
