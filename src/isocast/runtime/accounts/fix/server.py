"""FIX sessions over TCP or TLS: who may connect, one live connection for each session, durable before sent.

A stranger gets no byte: a first message that is no good Logon, an unknown name, a wrong password and a session that is
live already all end in a closed connection, and our log alone says why. What is behind a session is an `Application`:
it admits whoever logs on, answers messages, and tells reports.

Each connection has one order of things: a step of the session, its changes made durable, its bytes written. A message
is counted as heard (`next_in`) only when the application is done with it; after a crash the other side is asked for it
again, and the application must recognize it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from itertools import takewhile
from typing import Final, NamedTuple, Protocol

from isocast.runtime.accounts.fix.messages import Field, Framer, Message, decode
from isocast.runtime.accounts.fix.session import (
    Close,
    Deliver,
    Effect,
    Forget,
    Keep,
    Resend,
    Send,
    Session,
    logon_fault,
)
from isocast.runtime.accounts.fix.store import Change, Kept, SessionName, SessionStore
from isocast.runtime.net.lobby import Lobby
from isocast.runtime.watch.logs import get_log
from isocast.terms.errors import ConfigurationError, IsocastError, TransportError

__all__ = [
    "Application",
    "FixBounds",
    "FixServer",
    "LoopTime",
    "Outgoing",
    "SessionState",
    "TimeSource",
    "Visitor",
    "is_loopback",
]

_READ_BYTES: Final = 65_536
_TURN_FRAMES: Final = 64
"""Messages of one connection that are handled before others have their turn, and that share a transaction."""
_PAGE: Final = 500
"""Messages that are resent at a time."""
_KEEP_ALIVE: Final = ((4, 10), (5, 5), (6, 4))
"""TCP_KEEPIDLE, _INTVL and _CNT of Linux: also a session without heartbeats notices a machine that vanished."""
_ENDING_S: Final = 5.0
_LINGER_S: Final = 2.0
_WAITED_NS: Final = 1_000_000_000
"""A write that took so long was held up by a slow reader."""


@dataclass(frozen=True, slots=True)
class FixBounds:
    """What a server allows."""

    sessions_max: int = 256
    """Logged on at once."""
    half_open_max: int = 64
    """Connections that have not logged on."""
    per_address_max: int = 64
    """Connections of one address, whatever they do."""
    logon_bytes_max: int = 4_096
    """Before the Logon is complete."""
    logon_seconds: float = 10.0
    """From the connection to the answer of the application, TLS included."""
    write_seconds: float = 20.0
    """For the other side to take what is sent; then it is closed, and asks for the rest when it comes back."""
    buffer_bytes: int = 262_144
    """Sent and not taken, here and in the kernel each, before we stop to read and to report: some 1,000 reports."""
    pending_max: int = 64
    """Messages of one session that the application is busy with."""


class Outgoing(NamedTuple):
    """An application message to send."""

    kind: str
    body: Sequence[Field]
    report: int = 0
    """The number of the account's report that it tells: it is sent once."""


class Visitor(Protocol):
    """What is behind one session."""

    @property
    def account(self) -> int:
        """Whose session it is."""

    async def handle(self, message: Message) -> Sequence[Outgoing]:
        """The answers to a message. It is begun in the order of the messages; answers are sent in that order."""

    def reports(self, after: int) -> AsyncGenerator[Outgoing, None]:
        """What the account is told after the report of this number, and from now on."""

    async def leave(self) -> None:
        """The session has no connection any more."""


class Application(Protocol):
    """Who is behind the server."""

    async def admit(self, logon: Message, address: str, *, is_private: bool) -> Visitor | None:
        """Whoever logs on; None, late and without a reason, if not. `is_private`: nobody else reads the password."""


class TimeSource(Protocol):
    """A clock that wakes."""

    def now(self) -> int:
        """Nanoseconds since 1970."""

    def call_at(self, instant: int, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back then; what is returned calls it off."""


class LoopTime:
    """The machine's clock, and the event loop's timers."""

    def now(self) -> int:
        """Nanoseconds since 1970."""
        return time.time_ns()

    def call_at(self, instant: int, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back then; what is returned calls it off."""
        return asyncio.get_running_loop().call_later(max(0.0, (instant - self.now()) / 1e9), callback).cancel


class SessionState(NamedTuple):
    """A session that is logged on."""

    name: SessionName
    next_in: int
    next_out: int
    report: int
    """The last report of the account that was sent."""
    pending: int
    """Messages that the application is busy with."""
    garbled: int


class FixServer:
    """Listens on one address."""

    def __init__(
        self,
        comp_id: str,
        application: Application,
        store: SessionStore,
        *,
        tls: ssl.SSLContext | None = None,
        bounds: FixBounds | None = None,
        times: TimeSource | None = None,
    ) -> None:
        """`comp_id` is ours, as others write it into TargetCompID."""
        self.port = 0
        self.refused = 0
        self._comp_id = comp_id
        self._application = application
        self._store = store
        self._tls = tls
        self.bounds = bounds or FixBounds()
        self._times = times or LoopTime()
        self._lobby = Lobby(self.bounds.half_open_max)
        self._open: dict[asyncio.Task[None], str] = {}
        self._live: dict[SessionName, _Connection] = {}
        self._server: asyncio.Server | None = None
        self._is_stopped = False

    @property
    def live(self) -> int:
        """Sessions that are logged on."""
        return len(self._live)

    @property
    def open(self) -> int:
        """Connections at this moment."""
        return len(self._open)

    def sessions(self) -> list[SessionState]:
        """Where each session that is logged on stands."""
        return [connection.state for connection in self._live.values()]

    async def start(self, address: str, port: int) -> None:
        """Listen; port 0 takes any that is free. Away from loopback only with TLS, because passwords travel here."""
        if self._tls is None and not is_loopback(address):
            rule = f"{address} is not loopback, and a Logon has a password in it: give it a certificate"
            raise ConfigurationError("fix", "address", rule)
        self._is_stopped = False
        try:
            self._server = await asyncio.start_server(self._enter, address, port, limit=_READ_BYTES)
        except OSError as error:
            trouble = error.strerror or str(error)
            raise TransportError(f"cannot serve FIX on {address}:{port}: {trouble}") from error
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self, text: str = "the gateway stops") -> None:
        """Log everybody out, wait for their answers a moment, and close."""
        self._is_stopped = True
        if self._server is not None:
            self._server.close()
        live = list(self._live.values())
        with suppress(TimeoutError):
            async with asyncio.timeout(_ENDING_S):
                await asyncio.gather(*(connection.log_out(text) for connection in live))
                await asyncio.gather(*(connection.ended.wait() for connection in live))
        await self.cut()

    async def cut(self) -> None:
        """Close all connections without a word."""
        self._is_stopped = True
        if self._server is not None:
            self._server.close()
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task, peer = asyncio.current_task(), writer.get_extra_info("peername")
        address = str(peer[0]) if peer else ""
        if task is None or self._is_stopped or not address or self._is_crowded(address):
            self.refused += 1
            writer.transport.abort()
            return
        self._open[task] = address
        ended = self._lobby.enter(task, address)
        if ended is not None:
            self._open.pop(ended, None)  # Its place is free at once, though it has yet to unwind.
            self.refused += 1
        try:
            # Whoever cancels needs the place, or waits for the end.
            with suppress(asyncio.CancelledError):
                await self._serve(reader, writer, address, task)
        except (IsocastError, OSError, TimeoutError) as error:
            get_log().warning("a FIX connection ended", address=address, reason=str(error) or "timed out")
        except Exception as error:  # noqa: BLE001 - one connection that fails is not the service's end.
            get_log().error("a FIX connection failed", address=address, exc_info=error)
        finally:
            self._open.pop(task, None)
            self._lobby.leave(task)
            await _closed(writer)

    def _is_crowded(self, address: str) -> bool:
        places = self.bounds.sessions_max + self.bounds.half_open_max
        return len(self._open) >= places or Counter(self._open.values())[address] >= self.bounds.per_address_max

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str, task: asyncio.Task[None]
    ) -> None:
        framer = Framer()
        async with asyncio.timeout(self.bounds.logon_seconds):
            if self._tls is not None:
                await writer.start_tls(self._tls, ssl_handshake_timeout=self.bounds.logon_seconds)
            frames = await self._first_frames(reader, framer)
            logon = decode(frames[0]) if frames else None
            trouble = logon_fault(logon, self._comp_id, self._times.now()) if frames else "no Logon"
            is_private = self._tls is not None or is_loopback(address)
            visitor = None
            if logon is not None and trouble is None:
                visitor = await self._application.admit(logon, address, is_private=is_private)
        if logon is None or visitor is None:
            self.refused += 1
            get_log().warning("a FIX Logon was refused", address=address, reason=trouble or "not admitted")
            return
        self._lobby.leave(task)
        await self._run(logon, visitor, _Stream(reader, writer, framer, frames[1:]))

    async def _first_frames(self, reader: asyncio.StreamReader, framer: Framer) -> list[bytes]:
        read = 0
        while read < self.bounds.logon_bytes_max:
            data = await reader.read(self.bounds.logon_bytes_max - read)
            if not data:
                break
            read += len(data)
            if frames := framer.feed(data):
                return frames
        return []

    async def _run(self, logon: Message, visitor: Visitor, stream: _Stream) -> None:
        """One connection of a session, from its Logon to its end."""
        connection: _Connection | None = None
        name = SessionName(visitor.account, logon.first[49], self._comp_id)
        try:
            await self._ended(name)
            if name in self._live or len(self._live) >= self.bounds.sessions_max or self._is_stopped:
                self.refused += 1
                get_log().warning("a FIX session is live already", theirs=name.theirs)
                return
            connection = self._live[name] = _Connection(name, visitor, stream, self._store, self)
            kept = await self._store.load(name)
            if kept is None:
                get_log().warning("an account has too many FIX sessions", account=name.account)
                return
            await connection.run(logon, kept)
        finally:
            try:
                await visitor.leave()
            finally:
                if connection is not None:
                    self._live.pop(name, None)
                    connection.ended.set()

    async def _ended(self, name: SessionName) -> None:
        """A connection that is about to end makes room for the next."""
        before = self._live.get(name)
        if before is not None and before.is_ending:
            with suppress(TimeoutError):
                async with asyncio.timeout(_ENDING_S):
                    await before.ended.wait()

    @property
    def times(self) -> TimeSource:
        """The clock of all sessions."""
        return self._times


class _Stream(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    framer: Framer
    frames: list[bytes]
    """That came with the Logon."""


class _Pending(NamedTuple):
    """A message that the application is busy with."""

    number: int
    answer: asyncio.Task[Sequence[Outgoing]]


class _Connection:
    """Performs the effects of one session on one connection."""

    def __init__(
        self, name: SessionName, visitor: Visitor, stream: _Stream, store: SessionStore, server: FixServer
    ) -> None:
        self.ended = asyncio.Event()
        self.is_ending = False
        self._name = name
        self._visitor = visitor
        self._stream = stream
        self._store = store
        self._bounds = server.bounds
        self._times = server.times
        self._lock = asyncio.Lock()
        self._session = Session(name.ours, name.theirs)
        self._id = 0
        self._report = 0
        self._pending: deque[_Pending] = deque()
        self._pending_changed = asyncio.Event()
        self._armed_at: int | None = None
        self._call_off: Callable[[], None] = lambda: None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def state(self) -> SessionState:
        """Where it stands."""
        session = self._session
        pending = len(self._pending)
        return SessionState(self._name, session.next_in, session.next_out, self._report, pending, session.garbled)

    async def run(self, logon: Message, kept: Kept) -> None:
        """Serve until the connection ends."""
        self._id, self._report = kept.id, kept.report
        self._session = Session(self._name.ours, self._name.theirs, kept.next_in, kept.next_out)
        writer = self._stream.writer
        _tune(writer, self._bounds.buffer_bytes)
        writer.transport.set_write_buffer_limits(high=self._bounds.buffer_bytes)
        try:
            async with self._lock:
                await self._perform(self._session.log_on(logon, self._times.now()))
            if self._session.is_open:
                self._spawn(self._answer())
                self._spawn(self._tell())
                await self._read()
        finally:
            self.is_ending = True
            await self._end()

    async def log_out(self, text: str) -> None:
        """Say that we leave; the other side's answer ends the connection."""
        try:
            async with self._lock:
                await self._perform(self._session.log_out(text, self._times.now()))
        except (IsocastError, OSError, TimeoutError):
            self._stream.writer.transport.abort()

    async def _read(self) -> None:
        """Frames, in turns of some, until the stream ends or the session does."""
        frames = self._stream.frames
        while self._session.is_open and not self.is_ending:
            for start in range(0, len(frames), _TURN_FRAMES):
                await self._has_room()
                async with self._lock:
                    await self._perform(self._stepped(frames[start : start + _TURN_FRAMES]))
            if not self._session.is_open:
                return
            data = await self._stream.reader.read(_READ_BYTES)
            if not data:
                return
            frames = self._stream.framer.feed(data)

    def _stepped(self, frames: Iterable[bytes]) -> list[Effect]:
        effects: list[Effect] = []
        for frame in frames:
            effects += self._session.receive(frame, self._times.now())
        return effects

    async def _has_room(self) -> None:
        while len(self._pending) >= self._bounds.pending_max and not self.is_ending:
            self._pending_changed.clear()
            await self._pending_changed.wait()

    async def _answer(self) -> None:
        """Send the application's answers in the order of what they answer."""
        while self._session.is_open:
            while not self._pending:
                self._pending_changed.clear()
                await self._pending_changed.wait()
            await asyncio.wait([self._pending[0].answer])  # Which goes on if we are cancelled.
            done = list(takewhile(lambda pending: pending.answer.done(), self._pending))
            await self._send([answer for pending in done for answer in pending.answer.result()], answered=len(done))
            self._pending_changed.set()

    async def _tell(self) -> None:
        """Send reports in order; those that are there at once share a transaction."""
        queue: asyncio.Queue[Outgoing] = asyncio.Queue(_PAGE)
        self._spawn(self._hear(queue))
        while self._session.is_open:
            reports = [await queue.get()]
            while not queue.empty():
                reports.append(queue.get_nowait())
            await self._send(reports)

    async def _hear(self, queue: asyncio.Queue[Outgoing]) -> None:
        async with aclosing(self._visitor.reports(self._report)) as reports:
            async for report in reports:
                await queue.put(report)
        raise TransportError("there are no more reports: the gateway cannot go on")

    async def _send(self, messages: Iterable[Outgoing], answered: int = 0) -> None:
        """Messages of ours; with them so many of what is pending is done."""
        async with self._lock:
            if not self._session.is_open:
                return  # What was not answered is asked for again.
            for _ in range(answered):
                self._pending.popleft()
            effects: list[Effect] = []
            now = self._times.now()
            for message in messages:
                effects += self._session.send(message.kind, message.body, now, message.report)
            await self._perform(effects)

    # ---- effects

    async def _perform(self, effects: Iterable[Effect]) -> None:
        """All of them, in order, with the lock held."""
        sends: list[bytes] = []
        change: Change | None = None
        is_closing = False
        for effect in effects:
            match effect:
                case Send():
                    sends.append(effect.frame)
                case Keep():
                    change = change or self._change()
                    change.frames.append((effect.number, effect.frame))
                    self._report = max(self._report, effect.report)
                case Forget():
                    change = self._change()  # What this step kept before is forgotten, too.
                    change.forgets = True
                case Deliver():
                    self._begin(effect.message)
                case Resend():
                    await self._flush(change, sends)
                    sends, change = [], None
                    await self._resend(effect)
                case Close():
                    is_closing = True
                    get_log().info("a FIX session ends", theirs=self._name.theirs, reason=effect.reason)
        await self._flush(change, sends)
        if is_closing:
            self.is_ending = True
            self._stream.writer.close()
        self._arm()

    def _change(self) -> Change:
        return Change(self._id, 1, 1, 0)

    async def _flush(self, change: Change | None, sends: list[bytes]) -> None:
        """Make durable what was changed, then write: a number that somebody has seen is never used again."""
        if not sends and change is None:
            return
        change = change or self._change()
        change.next_out, change.report = self._session.next_out, self._report
        change.next_in = self._done_in()
        await self._store.write(change)
        await self._write(sends)

    async def _write(self, sends: list[bytes]) -> None:
        if not sends:
            return
        self._stream.writer.write(b"".join(sends))
        began = self._times.now()
        async with asyncio.timeout(self._bounds.write_seconds):
            await self._stream.writer.drain()
        now = self._times.now()
        if now >= began + _WAITED_NS:
            self._session.took(now)

    def _done_in(self) -> int:
        """The number up to which everything is done: what the application is busy with may come again."""
        return min([self._session.next_in, *(pending.number for pending in self._pending)])

    def _begin(self, message: Message) -> None:
        self._pending.append(_Pending(message.number, asyncio.create_task(self._handled(message))))
        self._pending_changed.set()

    async def _handled(self, message: Message) -> Sequence[Outgoing]:
        try:
            return await self._visitor.handle(message)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with an answer must not end the service.
            get_log().error("a FIX message failed", exc_info=error)
            text = "this failed; the gateway's log says why"
            body = [(45, message.first[34]), (58, text), (372, message.kind), (380, "4")]
            return [Outgoing("j", body)]

    async def _resend(self, effect: Resend) -> None:
        first = effect.first
        while first <= effect.last:
            kept = await self._store.read(self._id, first, effect.last, _PAGE)
            if not kept:
                break
            first, effects = self._session.resent(first, kept, self._times.now())
            await self._write([sent.frame for sent in effects if isinstance(sent, Send)])
        tail = self._session.gap_filled(first, effect.last + 1, self._times.now())
        await self._write([sent.frame for sent in tail if isinstance(sent, Send)])

    # ---- timers and the end

    def _arm(self) -> None:
        """Wake at the session's deadline. One that has moved on is found out when the old one fires."""
        deadline = self._session.next_deadline()
        if deadline is None or self.is_ending:
            self._call_off()
            self._armed_at = None
        elif self._armed_at is None or deadline < self._armed_at:
            self._call_off()
            self._armed_at = deadline
            self._call_off = self._times.call_at(deadline, self._due)

    def _due(self) -> None:
        self._armed_at = None
        self._call_off = lambda: None
        self._spawn(self._tick())

    async def _tick(self) -> None:
        async with self._lock:
            await self._perform(self._session.tick(self._times.now()))

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Awaitable[None]) -> None:
        """A part that fails ends the connection, and the other side goes on from its numbers."""
        try:
            await work
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, this connection cannot go on.
            reason = str(error) or type(error).__name__
            get_log().warning("a FIX connection is cut", theirs=self._name.theirs, reason=reason)
            self.is_ending = True
            self._pending_changed.set()
            self._stream.writer.transport.abort()

    async def _end(self) -> None:
        self._call_off()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # What the application has begun it ends. What was not answered is not counted: we ask for it again.
        if self._pending:
            await asyncio.wait([pending.answer for pending in self._pending], timeout=_ENDING_S)
        for pending in self._pending:
            pending.answer.cancel()
        change = Change(self._id, self._done_in(), self._session.next_out, self._report)
        await self._store.write(change)


async def _closed(writer: asyncio.StreamWriter) -> None:
    """The other side may take what was sent last; not for ever."""
    writer.close()
    with suppress(OSError, TimeoutError, asyncio.CancelledError):
        async with asyncio.timeout(_LINGER_S):
            await writer.wait_closed()
    writer.transport.abort()


def is_loopback(address: str) -> bool:
    """Whether nobody but this machine can be there."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _tune(writer: asyncio.StreamWriter, buffer_bytes: int) -> None:
    """The kernel holds no more than we do, and notices a machine that vanished."""
    connection = writer.get_extra_info("socket")
    if connection is None:
        return
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEP_ALIVE:
            connection.setsockopt(socket.IPPROTO_TCP, name, value)
