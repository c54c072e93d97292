"""One connection of a FIX session, on either side: each step of the session made durable, then written.

Each connection has one order of things: a step of the session, its changes made durable, its bytes written. A message
is counted as heard (`next_in`) only when the application is done with it; after a crash the other side is asked for it
again, and the application must recognize it. `server` takes connections, `initiator` makes them.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Final, NamedTuple, Protocol

from isocast.runtime.accounts.fix.dictionary import APPLICATION
from isocast.runtime.accounts.fix.messages import Field, Framer, Message
from isocast.runtime.accounts.fix.session import Close, Deliver, Effect, Forget, Keep, Resend, Send, Session
from isocast.runtime.accounts.fix.store import Change, Kept, SessionName, SessionStore
from isocast.runtime.watch.logs import get_log
from isocast.terms.errors import IsocastError, TransportError

__all__ = [
    "ENDING_S",
    "READ_BYTES",
    "Connection",
    "FixBounds",
    "LoopTime",
    "Outgoing",
    "SessionState",
    "Stream",
    "TimeSource",
    "Visitor",
]

READ_BYTES: Final = 65_536
_TURN_FRAMES: Final = 64
"""Messages of one connection that are handled before others have their turn, and that share a transaction."""
_PAGE: Final = 500
"""Messages that are resent at a time."""
_KEEP_ALIVE: Final = ((4, 10), (5, 5), (6, 4))
"""TCP_KEEPIDLE, _INTVL and _CNT of Linux: also a session without heartbeats notices a machine that vanished."""
ENDING_S: Final = 5.0
"""For what was begun to end."""
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
    """From the connection to the Logon, TLS included."""
    admit_seconds: float = 60.0
    """From there to the answer of the application. Whoever guesses passwords waits up to 30 s: a right one after wrong
    ones must still be heard, or a stranger who guesses would lock its owner out."""
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
    is_again: bool = False
    """Under another number it may have been sent before (PossResend)."""


class Visitor(Protocol):
    """What is behind one session."""

    @property
    def account(self) -> int:
        """Whose session it is."""

    async def handle(self, message: Message) -> Sequence[Outgoing]:
        """The answers to a message. It is begun in the order of the messages; answers are sent in that order."""

    def reports(self, after: int) -> AsyncGenerator[Outgoing, None]:
        """What the account is told after the report of this number, and from now on. Asked for before any `handle`."""

    async def leave(self) -> None:
        """The session has no connection any more."""


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


class Stream(NamedTuple):
    """A connection as it was found."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    framer: Framer
    frames: list[bytes]
    """That came with the Logon."""


class _Pending(NamedTuple):
    """A message that the application is busy with."""

    number: int
    answer: asyncio.Task[Sequence[Outgoing]]


class Connection:
    """Performs the effects of one session on one connection."""

    def __init__(
        self,
        name: SessionName,
        visitor: Visitor,
        stream: Stream,
        store: SessionStore,
        bounds: FixBounds,
        times: TimeSource,
        takes: frozenset[str] = APPLICATION,
    ) -> None:
        """`takes` are the types of messages that the visitor is given."""
        self.ended = asyncio.Event()
        self.is_ending = False
        self._name = name
        self._visitor = visitor
        self._stream = stream
        self._store = store
        self._bounds = bounds
        self._times = times
        self._takes = takes
        self._is_telling = False
        self.reason = ""
        """Why the session ended its connection."""
        self._lock = asyncio.Lock()
        self._session = Session(name.ours, name.theirs, takes=takes)
        self._id = 0
        self._report = 0
        self._reports: AsyncGenerator[Outgoing, None]
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

    async def run(self, begin: Callable[..., Sequence[Effect]], kept: Kept) -> None:
        """Serve until the connection ends. `begin(session, now=…)` is the session's first step."""
        self._id, self._report = kept.id, kept.report
        self._reports = self._visitor.reports(kept.report)
        numbers = kept.next_in, kept.next_out
        self._session = Session(self._name.ours, self._name.theirs, *numbers, takes=self._takes)
        writer = self._stream.writer
        _tune(writer, self._bounds.buffer_bytes)
        writer.transport.set_write_buffer_limits(high=self._bounds.buffer_bytes)
        try:
            async with self._lock:
                await self._perform(begin(self._session, now=self._times.now()))
            if self._session.is_open:
                self._spawn(self._answer)
                await self._read()
        finally:
            self.is_ending = True
            await self._end()

    @property
    def is_logged_on(self) -> bool:
        """Whether both sides have logged on."""
        return self._session.is_logged_on

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
            data = await self._stream.reader.read(READ_BYTES)
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
        self._spawn(partial(self._hear, queue))
        while self._session.is_open:
            reports = [await queue.get()]
            while not queue.empty():
                reports.append(queue.get_nowait())
            await self._send(reports)

    async def _hear(self, queue: asyncio.Queue[Outgoing]) -> None:
        async with aclosing(self._reports) as reports:
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
                effects += self._session.send(
                    message.kind, message.body, now, message.report, is_again=message.is_again
                )
            await self._perform(effects)

    # ---- effects

    async def _perform(self, effects: Sequence[Effect]) -> None:
        """All of them, in order, with the lock held.

        What is delivered is counted already, so that it is begun before anything can fail.
        """
        for effect in effects:
            if isinstance(effect, Deliver):
                self._begin(effect.message)
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
                    change.report = max(change.report, effect.report)
                case Forget():
                    change = self._change()  # What this step kept before is forgotten, too.
                    change.forgets = True
                case Deliver():
                    pass  # It is begun.
                case Resend():
                    await self._flush(change, sends)
                    sends, change = [], None
                    await self._resend(effect)
                case Close():
                    is_closing = True
                    self.reason = effect.reason
                    get_log().info("a FIX session ends", theirs=self._name.theirs, reason=effect.reason)
        await self._flush(change, sends)
        if is_closing:
            self.is_ending = True
            self._stream.writer.close()
        elif self._session.is_logged_on and not self._is_telling:
            self._is_telling = True
            self._spawn(self._tell)
        self._arm()

    def _change(self) -> Change:
        return Change(self._id, 1, 1, 0)

    async def _flush(self, change: Change | None, sends: list[bytes]) -> None:
        """Make durable what was changed, then write: a number that somebody has seen is never used again."""
        if not sends and change is None:
            return
        change = change or self._change()
        change.next_out, change.report = self._session.next_out, max(self._report, change.report)
        change.next_in = self._done_in()
        await self._store.write(change)
        self._report = max(self._report, change.report)  # Not before: what cannot be kept is told again.
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
        self._spawn(self._tick)

    async def _tick(self) -> None:
        async with self._lock:
            await self._perform(self._session.tick(self._times.now()))

    def _spawn(self, work: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.ensure_future(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        """A part that fails ends the connection, and the other side goes on from its numbers."""
        try:
            await work()
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
            await asyncio.wait([pending.answer for pending in self._pending], timeout=ENDING_S)
        for pending in self._pending:
            pending.answer.cancel()
        change = Change(self._id, self._done_in(), self._session.next_out, self._report)
        await self._store.write(change)


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
