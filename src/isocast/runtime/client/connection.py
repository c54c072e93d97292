"""A market from Python, for programs with an event loop: publish, listen, replay, the tape and snapshots.

    async with isocast.connect_async() as market:
        await market.publish({"kind": "trade", "floor": "XLON", "symbol": "VOD", "price": "72.5", "quantity": 100})
        async for batch in market.listen(start="beginning", timeout_s=5):
            print(batch.to_pandas())

`blocking` has the same for programs without one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Self

import numpy as np

from isocast.runtime.client.message_rows import Sendable, as_bytes, opaque_of
from isocast.runtime.client.publisher import Publisher, source_plans
from isocast.runtime.client.rows import Rows, events_of
from isocast.runtime.market.file import open_market
from isocast.runtime.market.model import Market, NodeRole
from isocast.runtime.net.door import DoorError
from isocast.terms.errors import IsocastError
from isocast.terms.ids import Label
from isocast.terms.instants import read_instant
from isocast.terms.instruments import Instrument
from isocast.terms.market import SYMBOL_BYTES, Mic, Symbol
from isocast.terms.quantities import counted
from isocast.wire.names import InstrumentNames, name_events

if TYPE_CHECKING:
    # Whoever only publishes waits for none of it.
    from isocast.runtime.client.listener import Conflict, Listener, Start
    from isocast.runtime.client.live_tape import BookRow, TapeRow
    from isocast.runtime.client.received import ReceivedBatch
    from isocast.runtime.client.replay import ReplayReport
    from isocast.runtime.market.subscription import SecretSource, Subscription

__all__ = ["PATIENCE_S", "AsyncConnection", "AsyncListening", "AsyncTape", "Published", "connect_async"]

PATIENCE_S = 10.0
"""How long a market may be away, unless somebody says otherwise."""
_LOOK_S = 0.02
"""Between two looks whether a line is heard."""
_QUIET_S = 0.1
"""After so long without a batch it is asked whether there is more."""
_COMPACT_EVENTS = 100_000
"""Events of a snapshot under way before old ones are dropped."""


@dataclass(frozen=True, slots=True)
class Published:
    """What `publish` did: all of it is in the source's outbox, on disk, and will be in the sequence."""

    source: str
    events: int
    labels: tuple[Label, ...]
    """Of the messages that carry it: the source's id and the number that it gave each."""
    opaque: int = 0
    """Opaque messages, by `send`."""

    @property
    def messages(self) -> int:
        """How many messages of the sequence carry it."""
        return len(self.labels)

    def __repr__(self) -> str:
        what = counted(self.opaque, "opaque message") if self.opaque else counted(self.events, "event")
        return f"<Published {what} in {counted(self.messages, 'message')} at {self.source}>"


def _names(given: str | Iterable[str] | None, what: str) -> tuple[str, ...] | None:
    if given is None:
        return None
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else (given,)
    for name in names:
        if not isinstance(name, str):
            raise IsocastError(f"{what}: {name!r} is no text; give one, or a list of them")
    return names


def connect_async(
    market: str | Path | Market | None = None,
    *,
    source: str | None = None,
    customer: str | None = None,
    patience_s: float = PATIENCE_S,
    package: str | Path | None = None,
    secret: SecretSource | None = None,
) -> AsyncConnection:
    """Open a market from a program with an event loop; use it in an `async with` block. See `connect`.

    async with isocast.connect_async() as market:
        await market.publish(rows)
        async for batch in market.listen():
            print(batch.to_pandas())
    """
    whole = market if isinstance(market, Market) else open_market(market)
    return AsyncConnection(
        whole, source=source, customer=customer, patience_s=patience_s, package=package, secret=secret
    )


class AsyncConnection:
    """A market, for programs with an event loop. `connect_async` makes it."""

    def __init__(
        self,
        market: Market,
        *,
        source: str | None = None,
        customer: str | None = None,
        patience_s: float = PATIENCE_S,
        package: str | Path | None = None,
        secret: SecretSource | None = None,
    ) -> None:
        """Nothing is opened before it is needed."""
        if (package is None) != (secret is None):
            raise IsocastError("a package needs its secret: give package=FILE and secret=a function that gives it")
        if source is not None:
            source_plans(market, source)
        if customer is not None:
            from isocast.runtime.client.listener import places_of_customers  # noqa: PLC0415 - for those who listen

            places_of_customers(market, customer)
        self._package = package
        self._secret = secret
        self._subscription: Subscription | None = None
        self._market = market
        self._source = source
        self._customer = customer
        self._patience_s = patience_s
        self._doors: dict[str, Publisher] = {}
        self._opening = asyncio.Lock()
        self._places = _Places(patience_s)
        self._names = InstrumentNames()
        self._is_closed = False

    def __repr__(self) -> str:
        places = f"sources {', '.join(self.sources) or 'none'}; customers {', '.join(self.customers) or 'none'}"
        return f"<AsyncConnection to {self.name} ({self.file}): {places}>"

    @property
    def is_closed(self) -> bool:
        """Whether it can be used no more."""
        return self._is_closed

    @property
    def name(self) -> str:
        """The market's name."""
        return self._market.name

    @property
    def file(self) -> Path:
        """The market's file."""
        return Path(self._market.file)

    @property
    def sources(self) -> tuple[str, ...]:
        """Where one can publish."""
        return tuple(dict.fromkeys([plan.origin for plan in self._market.nodes if plan.role.is_source]))

    @property
    def customers(self) -> tuple[str, ...]:
        """As whom one can listen."""
        return tuple(dict.fromkeys([plan.origin for plan in self._market.by_role(NodeRole.CUSTOMER)]))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection and socket; what was published is safe."""
        self._is_closed = True
        await self._places.leave_all()
        for door in self._doors.values():
            await door.close()
        self._doors.clear()

    # ---- in

    async def publish(
        self,
        rows: Rows,
        *,
        source: str | None = None,
        key: bytes | str | None = None,
        kind: str | None = None,
        floor: str | None = None,
        symbol: str | None = None,
    ) -> Published:
        """As `Connection.publish`."""
        events = events_of(rows, kind=kind, floor=floor, symbol=symbol, names=self._names)
        name = self._source_name(source)
        if not len(events):
            return Published(name, 0, ())
        door = await self._door(name)
        try:
            labels = await door.publish(events, None if key is None else as_bytes(key))
        except DoorError as reason:
            raise self._down(reason) from reason
        return Published(name, len(events), labels)

    async def define(self, instruments: Instrument | Iterable[Instrument], *, source: str | None = None) -> Published:
        """As `Connection.define`."""
        some = [instruments] if isinstance(instruments, Instrument) else list(instruments)
        for one in some:
            self._names.add(one)
        return await self.publish(name_events(some), source=source)

    async def instruments(self, *, customer: str | None = None) -> list[Instrument]:
        """As `Connection.instruments`."""
        await self.snapshot(customer=customer)
        return list(self._names)

    async def send(
        self,
        topic: str,
        payload: bytes | str,
        *,
        key: bytes | str = b"",
        source: str | None = None,
        idempotency_key: bytes | str | None = None,
    ) -> Published:
        """As `Connection.send`."""
        return await self.send_many([(topic, payload, key)], source=source, idempotency_key=idempotency_key)

    async def send_many(
        self,
        messages: Iterable[Sendable],
        *,
        source: str | None = None,
        idempotency_key: bytes | str | None = None,
    ) -> Published:
        """As `Connection.send_many`."""
        whole = [opaque_of(place, message) for place, message in enumerate(messages)]
        name = self._source_name(source)
        if not whole:
            return Published(name, 0, ())
        door = await self._door(name)
        try:
            labels = await door.send(whole, None if idempotency_key is None else as_bytes(idempotency_key))
        except DoorError as reason:
            raise self._down(reason) from reason
        return Published(name, 0, labels, len(whole))

    async def replay(  # noqa: PLR0913 - what files do not say themselves
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
        """As `Connection.replay`."""
        from isocast.feeds.days import read_day  # noqa: PLC0415 - readers of feeds, for those who replay
        from isocast.runtime.client.feed_files import FeedFile, FeedOptions, load_mapping  # noqa: PLC0415
        from isocast.runtime.client.replay import Replay  # noqa: PLC0415
        from isocast.runtime.client.replay_messages import FloorFeed  # noqa: PLC0415

        if not files:
            raise IsocastError("no file to replay: give at least one")
        options = FeedOptions(
            floor=None if floor is None else Mic(floor),
            day=read_day(day) if isinstance(day, str) else day,
            symbol=None if symbol is None else Symbol(symbol),
            mapping=None if mapping is None else load_mapping(mapping),
            strict=strict,
        )
        self._insist_on_open()
        feed = FloorFeed(self._source_name(source), tuple([FeedFile(Path(file), options) for file in files]), run)
        work = Replay(self._market, [feed], speed=speed, patience_s=self._patience_s, told=told)
        try:
            return await work.run()
        except DoorError as reason:
            raise self._down(reason) from reason

    # ---- out

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
    ) -> AsyncListening:
        """As `Connection.listen`; it is opened by `async with`, or by the loop."""
        from isocast.runtime.client.listener import Listener  # noqa: PLC0415 - for those who listen

        self._insist_on_open()
        names, subjects = self._symbols(symbols), _names(topics, "topics")
        listener = Listener(
            self._market,
            customer or self._customer,
            latest=latest,
            start=start,
            told=told,
            conflict=conflict,
            stripes=stripes,
            symbols=names,
            topics=subjects,
            merged=merged,
            names=self._names,
            subscription=self._bought(),
        )
        return AsyncListening(self._places, listener, names, subjects, timeout_s)

    async def snapshot(
        self,
        at: int | str | datetime | None = None,
        *,
        symbols: str | Iterable[str] | None = None,
        customer: str | None = None,
    ) -> ReceivedBatch:
        """As `Connection.snapshot`."""
        if at is None:
            async with self.listen(symbols, start="snapshot", latest=False, customer=customer) as listening:
                return await _newest_of_all(listening, self._patience_s)
        sequence, moment = _moment(at)
        if sequence is not None and len(self._market.stripes) > 1:
            raise IsocastError(f"{self.name} has several stripes and no common sequence: give a time")
        if moment is not None and moment > time_ns():
            raise IsocastError(f"{at} is in the future: nothing has been released up to then")
        async with self.listen(symbols, start="beginning", latest=False, customer=customer) as listening:
            return await _newest_until(listening, sequence, moment)

    def tape(
        self,
        symbols: str | Iterable[str] | None = None,
        *,
        floors: str | Iterable[str] | None = None,
        timeout_s: float | None = None,
        customer: str | None = None,
    ) -> AsyncTape:
        """As `Connection.tape`; it is opened by `async with`."""
        names, places = self._symbols(symbols), _names(floors, "floors")
        listening = self.listen(names, start="beginning", latest=False, timeout_s=timeout_s, customer=customer)
        listening.listener.show_books()
        return AsyncTape(listening, names, places)

    # ---- inside

    def _bought(self) -> Subscription | None:
        """The package, opened once."""
        if self._subscription is None and self._package is not None and self._secret is not None:
            from isocast.runtime.market.subscription import Subscription  # noqa: PLC0415 - most markets sell nothing

            self._subscription = Subscription(self._market, self._package, self._secret)
        return self._subscription

    def _symbols(self, given: str | Iterable[str] | None) -> tuple[str, ...] | None:
        """Symbols as they travel; IsocastError for a full name that is not known, and for several in one text."""
        called = _names(given, "symbols")
        if called is None:
            return None
        found: list[str] = []
        for name in called:
            codes = self._names.symbols_of(name)
            if not codes and "," in name:
                raise IsocastError(f'symbols: "{name}" is one text: give several symbols as a list of texts')
            if not codes and len(name) > SYMBOL_BYTES:
                rule = "is no symbol, and no instrument that is known here: instruments() asks the market for its own"
                raise IsocastError(f"{name} {rule}")
            found += codes or (name,)
        return tuple(found)

    def _insist_on_open(self) -> None:
        if self._is_closed:
            raise IsocastError(f"this connection to {self.name} is closed: connect again")

    def _source_name(self, given: str | None) -> str:
        name = given or self._source
        if name is not None:
            return name
        if len(self.sources) == 1:
            return self.sources[0]
        names = ", ".join(self.sources) or "none"
        raise IsocastError(f"which source publishes? Give source=…, here or to connect; {self.name} has {names}")

    async def _door(self, name: str) -> Publisher:
        """The one door to a source, however many publish at once."""
        self._insist_on_open()
        async with self._opening:
            if name not in self._doors:
                door = Publisher(self._market, name, patience_s=self._patience_s)
                try:
                    await door.__aenter__()
                except DoorError as reason:
                    raise self._down(reason) from reason
                self._doors[name] = door
            return self._doors[name]

    def _down(self, reason: DoorError) -> DoorError:
        remedy = f"is the market up? isocast up --config {self._market.file} starts it, isocast doctor looks"
        return type(reason)(f"{reason}: {remedy}")


class _Places:
    """The customers' places that a connection has taken; what was forgotten is left when it is closed."""

    def __init__(self, patience_s: float) -> None:
        self.patience_s = patience_s
        self._taken: set[Listener] = set()
        self._leaving: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def enter(self, listener: Listener) -> None:
        """Begin to listen."""
        if self._is_closed:
            raise IsocastError("this connection is closed: connect again")
        await listener.open()
        self._taken.add(listener)

    async def leave(self, listener: Listener) -> None:
        """End it, if it was begun."""
        if listener in self._taken:
            self._taken.discard(listener)
            await listener.close()

    def leave_soon(self, listener: Listener) -> None:
        """Leave in the background, for callers that cannot wait."""
        task = asyncio.ensure_future(self.leave(listener))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def leave_all(self) -> None:
        """Refuse new listeners, and let all that there are leave."""
        self._is_closed = True
        await asyncio.gather(*self._leaving)
        for listener in list(self._taken):
            await self.leave(listener)


class AsyncListening:
    """Batches of a market as they are released; `AsyncConnection.listen` makes it."""

    def __init__(
        self,
        places: _Places,
        listener: Listener,
        symbols: tuple[str, ...] | None,
        topics: tuple[str, ...] | None,
        timeout_s: float | None,
    ) -> None:
        """Nothing is opened yet."""
        self._places = places
        self._loop: asyncio.AbstractEventLoop | None = None
        self.listener = listener
        """Counters, alarms and the state of its lines, for whoever looks closer."""
        self._symbols = symbols
        self.gives_empty = False
        """Whether a batch without an event of the symbols is given too."""
        self._topics = topics
        self._timeout_s = timeout_s
        self._is_open = self._is_closed = False

    def __del__(self) -> None:
        # Whoever left a loop by `break` has closed it.
        loop = getattr(self, "_loop", None)
        if loop is not None and not self._is_closed:
            with suppress(RuntimeError):  # The loop is closed: then nothing is open.
                loop.call_soon_threadsafe(self._places.leave_soon, self.listener)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open" if self._is_open else "not open yet"
        return f"<{type(self).__name__} of {self.listener.market.name}, {state}>"

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Take a place, and wait until a line of every stripe is heard; IsocastError says why none is."""
        if self._is_open or self._is_closed:
            return
        self._loop = asyncio.get_running_loop()
        await self._places.enter(self.listener)
        self._is_open = True
        try:
            async with asyncio.timeout(self._places.patience_s):
                while self.listener.silence() is not None or not self._has_joined():  # noqa: ASYNC110 - a machine's state
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            reason = self.listener.silence() or "the lines of the market are heard, but not how far they are"
            await self.close()
            raise IsocastError(reason) from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Leave the place."""
        self._is_closed = True
        await self._places.leave(self.listener)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedBatch:
        await self.open()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._next()
        except TimeoutError:
            await self.close()
            raise StopAsyncIteration from None

    async def _next(self) -> ReceivedBatch:
        while True:
            whole = await anext(self.listener)
            batch = whole.only(self._symbols, self._topics)
            if len(batch) or batch.opaque or not (len(whole) or whole.opaque) or self.gives_empty:
                return batch

    async def next_if_any(self) -> ReceivedBatch | None:
        """The next batch; None once everything that the market has released was given, and for now there is no more."""
        await self.open()
        while True:
            is_complete = self.listener.has_all
            try:
                async with asyncio.timeout(_QUIET_S):
                    return await self._next()
            except TimeoutError:
                if is_complete:
                    return None

    def _has_joined(self) -> bool:
        return all(view.joined for view in self.listener.snapshots().values())


class AsyncTape:
    """The consolidated tape of a market as it goes on; `AsyncConnection.tape` makes it."""

    def __init__(
        self,
        listening: AsyncListening,
        symbols: Collection[str] | None,
        floors: Collection[str] | None,
    ) -> None:
        """Empty until it is opened."""
        from isocast.ticker.tape import Tape  # noqa: PLC0415 - for those who have one

        self.tape = Tape()
        """The state behind it, with prices in ticks: `isocast.ticker` says what it can."""
        self._listening = listening
        # Messages of other symbols count: without them the sequence would seem to have gaps.
        listening.gives_empty = True
        self._symbols = symbols
        self._floors = floors
        self.opaque = 0
        """Opaque messages that passed: they are on no tape."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {counted(len(self.rows()), 'symbol')}, {counted(self.tape.events, 'event')}>"

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Read everything that the market has released; from then on the tape is up to date."""
        while (batch := await self._listening.next_if_any()) is not None:
            self._take(batch)

    async def close(self) -> None:
        """Stop to listen; what is on the tape stays."""
        await self._listening.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[TapeRow]:
        while True:
            batch = await anext(self._listening)
            self._take(batch)
            if len(batch) or (self._symbols is None and not batch.opaque):
                names = [name.decode("ascii") for name in np.unique(batch.events["symbol"]).tolist() if name]
                return self._rows(names)

    def rows(self) -> list[TapeRow]:
        """Each symbol as it stands now, by name."""
        return self._rows(self._symbols)

    def __getitem__(self, symbol: str) -> TapeRow:
        for row in self._rows(self.tape.names.symbols_of(symbol) or [symbol]):
            return row
        raise KeyError(symbol)

    def book(self, symbol: str, levels: int = 10) -> BookRow:
        """The displayed orders of a symbol on all floors, by price; KeyError if no floor has published any."""
        from isocast.runtime.client.live_tape import book_row  # noqa: PLC0415
        from isocast.ticker.views import depth_views  # noqa: PLC0415

        for depth in depth_views(self.tape, levels, [symbol], self._floors):
            return book_row(depth)
        raise KeyError(symbol)

    def _rows(self, names: Collection[str] | None) -> list[TapeRow]:
        from isocast.runtime.client.live_tape import tape_rows  # noqa: PLC0415
        from isocast.ticker.views import symbol_views  # noqa: PLC0415

        return tape_rows(symbol_views(self.tape, names, self._floors))

    def _take(self, batch: ReceivedBatch) -> None:
        from isocast.runtime.client.live_tape import take_batch  # noqa: PLC0415

        self.opaque += len(batch.opaque)
        take_batch(self.tape, batch, len(batch), several=len(self._listening.listener.stripes) > 1)


async def _newest_of_all(listening: AsyncListening, patience_s: float) -> ReceivedBatch:
    """The snapshots of all stripes together."""
    from isocast.runtime.client.received import BatchKind  # noqa: PLC0415 - for those who listen

    missing = set(listening.listener.stripes)
    found: list[ReceivedBatch] = []
    try:
        async with asyncio.timeout(patience_s):
            async for batch in listening:
                if batch.kind is BatchKind.SNAPSHOT and batch.stripe in missing:
                    missing.discard(batch.stripe)
                    found.append(batch)
                if not missing:
                    break
    except TimeoutError:
        raise IsocastError(f"no retransmit server gives a snapshot of stripe {min(missing)}: is one up?") from None
    return _together(found)


def _together(batches: list[ReceivedBatch]) -> ReceivedBatch:
    first, *others = sorted(batches, key=lambda batch: batch.stripe)
    if not others:
        return first
    last = max(batch.last_sequence for batch in batches)
    return replace(
        first,
        first_sequence=last,
        last_sequence=last,
        events=np.concatenate([first.events, *[batch.events for batch in others]]),
        sequences=np.concatenate([first.sequences, *[batch.sequences for batch in others]]),
        instants=np.concatenate([first.instants, *[batch.instants for batch in others]]),
    )


async def _newest_until(listening: AsyncListening, sequence: int | None, moment: int | None) -> ReceivedBatch:
    """The newest event of every key among those that were released by then."""
    found: list[ReceivedBatch] = []
    last = dict.fromkeys(listening.listener.stripes, 0)
    while (batch := await listening.next_if_any()) is not None:
        kept = batch.sequences <= sequence if sequence is not None else batch.releases <= (moment or 0)
        part = batch.part(kept)
        found.append(part)
        if len(part):
            last[batch.stripe] = int(part.sequences[-1])
        if sum(map(len, found)) > _COMPACT_EVENTS:
            found = [_newest(found)]
        if len(part) < len(batch):
            break
    if not found:
        raise IsocastError("nothing was published yet: there is no snapshot")
    newest = max(last.values())
    whole = _newest(found)
    from isocast.runtime.client.received import BatchKind  # noqa: PLC0415 - for those who listen

    return replace(whole, kind=BatchKind.SNAPSHOT, first_sequence=newest, last_sequence=newest, opaque=())


def _newest(batches: list[ReceivedBatch]) -> ReceivedBatch:
    events = np.concatenate([batch.events for batch in batches])
    from isocast.hierarchy.latest import last_of_each_key  # noqa: PLC0415 - for those who ask for a snapshot

    kept = last_of_each_key(events.tobytes())
    sequences = np.concatenate([batch.sequences for batch in batches])[kept]
    instants = np.concatenate([batch.instants for batch in batches])[kept]
    return replace(batches[-1], events=events[kept], sequences=sequences, instants=instants)


def _moment(at: int | str | datetime) -> tuple[int | None, int | None]:
    """A sequence, or a time in nanoseconds since 1970."""
    if isinstance(at, int):
        return at, None
    try:
        return None, read_instant(at if isinstance(at, str) else at.isoformat())
    except ValueError:
        raise IsocastError(f'"{at}" is neither a sequence nor a time such as 2026-03-02T14:30:00Z') from None
