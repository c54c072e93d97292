"""A market from Python, for programs without an event loop: everything waits until it is done.

    with isocast.connect() as market:
        market.publish({"kind": "trade", "floor": "XLON", "symbol": "VOD", "price": "72.5", "quantity": 100})
        for batch in market.listen(start="beginning", timeout_s=5):
            print(batch.to_pandas())

`connection` does the work, in an event loop of its own, in a thread that ends with the `with` block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from isocast.runtime.client.connection import (
    PATIENCE_S,
    AsyncConnection,
    AsyncListening,
    AsyncTape,
    Published,
    connect_async,
)
from isocast.runtime.client.loop_thread import LoopThread
from isocast.runtime.client.message_rows import Sendable
from isocast.runtime.client.rows import Rows
from isocast.runtime.market.model import Market
from isocast.terms.instruments import Instrument

if TYPE_CHECKING:
    from isocast.runtime.client.listener import Conflict, Listener, Start
    from isocast.runtime.client.live_tape import BookRow, TapeRow
    from isocast.runtime.client.received import ReceivedBatch
    from isocast.runtime.client.replay import ReplayReport
    from isocast.runtime.market.subscription import SecretSource
    from isocast.ticker.tape import Tape

__all__ = ["Connection", "Listening", "LiveTape", "connect"]


def connect(
    market: str | Path | Market | None = None,
    *,
    source: str | None = None,
    customer: str | None = None,
    patience_s: float = PATIENCE_S,
    package: str | Path | None = None,
    secret: SecretSource | None = None,
) -> Connection:
    """Open a market; use it in a `with` block, which closes everything.

    `market` is its file. Left out, it is that of the variable ISOCAST_MARKET, `market.toml` of the working directory,
    or the only market that runs on this machine. `source` is where to publish, `customer` as whom to listen, if the
    calls do not say. `patience_s` is how long a market may be away before a call raises an error. Of a market that
    sells its lines, `package` is the file that the box office gave, and `secret` a function that gives its secret.

        with isocast.connect() as market:
            market.publish({"kind": "trade", "floor": "XLON", "symbol": "VOD", "price": "72.5", "quantity": 100})
    """
    return Connection(
        connect_async(market, source=source, customer=customer, patience_s=patience_s, package=package, secret=secret)
    )


class Connection:
    """A market, to be used in a `with` block. `connect` makes it."""

    def __init__(self, market: AsyncConnection) -> None:
        """`market` does the work, in a thread."""
        self._async = market
        self._loop = LoopThread()

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

    def __exit__(self, *_: object) -> None:
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
        price is in units, as text, Decimal or int; a float must be a whole number of ticks of 0.0001, or of the last
        decimal of an instrument that `define` or `instruments` made known. An array of `isocast.EVENT_DTYPE` is taken
        as it is, with prices in ticks.

        All rows are checked first: RowError names the row and the column, and nothing was published. `source` is one of
        `sources`; a market with one needs no name. With a `key` of yours (at most 60 bytes) the same call may be
        repeated after any failure: it publishes once.
        """
        return self._loop.wait_for(
            self._async.publish(rows, source=source, key=key, kind=kind, floor=floor, symbol=symbol)
        )

    def define(self, instruments: Instrument | Iterable[Instrument], *, source: str | None = None) -> Published:
        """Put instruments into the directory of the market: full names, and how fine prices and quantities are.

            market.define(isocast.Instrument("XBIN", "BTC-USDT-PERPETUAL", price_decimals=8, quantity_decimals=3))
            market.publish({"kind": "trade", "floor": "XBIN", "symbol": "BTC-USDT-PERPETUAL",
                            "price": "0.00000123", "quantity": "0.125"})

        From then on this connection publishes and shows them by their full names; every snapshot of the market has
        them. Others learn the names as they hear them, from a snapshot or by `instruments`; decimals are right for
        everybody from the first event on.
        """
        return self._loop.wait_for(self._async.define(instruments, source=source))

    def instruments(self, *, customer: str | None = None) -> list[Instrument]:
        """The instruments of the market's directory that have a full name or a scale of their own.

        They are known to this connection from then on.
        """
        return self._loop.wait_for(self._async.instruments(customer=customer))

    def send(
        self,
        topic: str,
        payload: bytes | str,
        *,
        key: bytes | str = b"",
        source: str | None = None,
        idempotency_key: bytes | str | None = None,
    ) -> Published:
        """Put an opaque message into the sequence; returns once it is safe on the source's disk.

            market.send("quiz.buzzer", b"pressed", key="table 7")

        It is ordered, sealed and released as market events are: nobody reads it before everybody may. `topic` has 1 to
        64 printable ASCII characters without spaces and `key` up to 64 bytes; text is sent as UTF-8. A payload must fit
        one packet of the market (some 1,200 bytes, 8,700 with jumbo frames): an error names the limit. All messages of
        a topic are in one order, that of their stripe. With an `idempotency_key` (at most 60 bytes) the same call may
        be repeated after any failure: it sends once.
        """
        return self._loop.wait_for(
            self._async.send(topic, payload, key=key, source=source, idempotency_key=idempotency_key)
        )

    def send_many(
        self,
        messages: Iterable[Sendable],
        *,
        source: str | None = None,
        idempotency_key: bytes | str | None = None,
    ) -> Published:
        """Put many opaque messages into the sequence, in this order: (topic, payload), with a key as the third.

        All of them are checked first: if one is too large, nothing was sent. Small ones share a place in the sequence.
        """
        return self._loop.wait_for(self._async.send_many(messages, source=source, idempotency_key=idempotency_key))

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
        topics: str | Iterable[str] | None = None,
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
        snapshot, a sequence, or a time (a datetime, or a text such as "2026-03-02T14:30:00Z", in UTC if it names no
        zone): what was released then or later. With `latest` only the newest event of each key comes. The loop ends
        after `timeout_s` without a batch, or by `break`; a `with` block closes it at once. `customer` is a seat in the
        market's file with a share of its own; left out, one is a guest, who needs the edge key alone. Of several
        stripes all, or `stripes`, or those of `symbols` and `topics` are heard, `merged` into one order. With `topics`,
        `batch.messages()` are the opaque messages of these topics, and events come only for `symbols`; left out, both
        come. `told` hears of trouble in words, `conflict` of lines that contradict each other.
        """
        listening = self._async.listen(
            symbols,
            topics=topics,
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

        Of floors that publish orders, `tape.book("VOD")` gives the book by price.
        """
        return LiveTape(self._async.tape(symbols, floors=floors, timeout_s=timeout_s, customer=customer), self._loop)


StreamT = TypeVar("StreamT", AsyncListening, AsyncTape)


class _Stream(Generic[StreamT]):
    """What opens at once, and is closed by a `with` block."""

    def __init__(self, stream: StreamT, loop: LoopThread) -> None:
        """`stream` does the work, in the thread of `loop`."""
        self._async: StreamT = stream
        self._loop = loop
        loop.wait_for(stream.open())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.end(self._async.close)

    def __iter__(self) -> Self:
        return self


class Listening(_Stream[AsyncListening]):
    """Batches of a market as they are released; `Connection.listen` makes it."""

    def __repr__(self) -> str:
        return repr(self._async).replace("Async", "", 1)

    @property
    def listener(self) -> Listener:
        """Counters, alarms and the state of its lines, for whoever looks closer."""
        return self._async.listener

    def close(self) -> None:
        """Leave the place."""
        self._loop.end(self._async.close)

    def __next__(self) -> ReceivedBatch:
        return self._loop.next_of(self._async)

    def next_if_any(self) -> ReceivedBatch | None:
        """The next batch; None once everything that the market has released was given, and for now there is no more."""
        return self._loop.wait_for(self._async.next_if_any())


class LiveTape(_Stream[AsyncTape]):
    """The consolidated tape of a market as it goes on; `Connection.tape` makes it."""

    def __repr__(self) -> str:
        return repr(self._async).replace("Async", "Live", 1)

    @property
    def tape(self) -> Tape:
        """The state behind it, with prices in ticks: `isocast.ticker` says what it can."""
        return self._async.tape

    @property
    def opaque(self) -> int:
        """Opaque messages that passed: they are on no tape."""
        return self._async.opaque

    def close(self) -> None:
        """Stop to listen; what is on the tape stays."""
        self._loop.end(self._async.close)

    def __next__(self) -> list[TapeRow]:
        return self._loop.next_of(self._async)

    def rows(self) -> list[TapeRow]:
        """Each symbol as it stands now, by name."""
        return self._async.rows()

    def book(self, symbol: str, levels: int = 10) -> BookRow:
        """The displayed orders of a symbol on all floors, by price; KeyError if no floor has published any."""
        return self._async.book(symbol, levels)

    def __getitem__(self, symbol: str) -> TapeRow:
        return self._async[symbol]
