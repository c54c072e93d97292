"""Delivery to one exchange: hears the sequence, gives the exchange its orders by FIX, publishes what it says of them.

    sequence ── take ──► spool ── window ──► FIX out ──► exchange ──► FIX in ── once per key ──► sequence

Exactly once, by place. What is heard is on the disk with the position behind it; a message that was sent is on the disk
with its FIX number before it leaves; a report counts as heard once it is published under a key made of its contents. So
either side may die at any moment: numbers and places say what is missing. An exchange that forgot what it had is
given it again with PossResend, under the same ClOrdID.

A slow exchange has at most a window of requests without an answer. Behind that its spool fills, then its place in the
market rests and fetches the rest later; nobody else notices. An exchange that is gone is an alarm, and is tried again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Final, NamedTuple, TypeAlias, TypeVar

from isocast.orders.desk import OrderStatus, ReportKind
from isocast.orders.exchange import ExchangeAnswer, answers_topic, encode_answer
from isocast.runtime.accounts.fix.connection import Outgoing
from isocast.runtime.accounts.fix.initiator import FixInitiator
from isocast.runtime.accounts.fix.messages import Message, decode, sanitized
from isocast.runtime.exchange.directing import Declined
from isocast.runtime.exchange.fix_orders import answer_of, outgoing, refusal_of
from isocast.runtime.exchange.spool import HeardMessage, Spool, SpoolState
from isocast.terms.errors import IsocastError, LocalProtocolError, RemoteProtocolError, StoreError, TransportError
from isocast.wire.opaque import OpaqueMessage

__all__ = ["Alarm", "DeliveryPace", "ExchangeDelivery", "Publish", "stay_connected"]

Publish: TypeAlias = Callable[[Sequence[tuple[bytes, OpaqueMessage]]], Awaitable[object]]
"""Puts messages into the sequence in this order, each once for its key."""
Alarm: TypeAlias = Callable[[str, str, str], None]
"""Hears a code, what is wrong and what to do about it."""
ResultT = TypeVar("ResultT")

_PAGE: Final = 500
_AT_ONCE: Final = 64
"""Reports that are published together."""
_BACKOFF_S: Final = (0.2, 10.0)
_TOO_LOW: Final = "MsgSeqNum too low"


@dataclass(frozen=True, slots=True)
class DeliveryPace:
    """How much an exchange may have before it answers, and how long that may take."""

    window: int = 1_000
    """Requests without an answer that the exchange has."""
    spool_max: int = 65_536
    """Requests without an answer altogether; then the sequence waits."""
    again_s: float = 5.0
    """After a Logon, for the exchange to answer what it had before, until that is sent again."""
    silent_s: float = 30.0
    """Without an answer, while one is due, before it is an alarm."""
    retry_s: tuple[float, float] = _BACKOFF_S
    """Between two tries to connect: at first, and at most."""


class _Heard(NamedTuple):
    what: Message | ExchangeAnswer
    done: asyncio.Future[None]


class ExchangeDelivery:
    """One exchange, as the sequence and as its FIX session see it (`fix.connection.Visitor`)."""

    account = 0

    def __init__(
        self,
        spool: Spool,
        publish: Publish,
        *,
        find_sent: Callable[[int], Awaitable[bytes | None]],
        pace: DeliveryPace | None = None,
        alarm: Alarm = lambda _code, _text, _remedy: None,
        reached: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`find_sent` gives a message that was sent, by its FIX number; `reached` hears of every durable step."""
        self.code = spool.state().exchange
        self.strays = 0
        """Messages of the exchange that are about no request."""
        self.published = 0
        """Reports that are in the sequence's outbox."""
        self.sent_again = 0
        """Requests that were sent again by PossResend."""
        self.is_logged_on = False
        self.logons = 0
        self._spool = spool
        self._publish = publish
        self._find_sent = find_sent
        self._pace = pace or DeliveryPace()
        self._alarm = alarm
        self._reached = reached
        self._topic = answers_topic(self.code)
        self._disk = ThreadPoolExecutor(1, "isocast-exchange-spool")
        self._heard: deque[_Heard] = deque()
        self._has_heard = asyncio.Event()
        self._changed = asyncio.Event()
        """Set, and replaced, whenever something was taken or answered."""
        self._backlog = 0
        self._publishing: asyncio.Task[None] | None = None

    # Begin and end ----------------------------------------------------------------------------------------------

    async def open(self) -> SpoolState:
        """Begin; what was declined and not published comes first. Where the sequence goes on."""
        self._publishing = asyncio.create_task(self._publish_all(), name=f"reports of {self.code}")
        state = await self._run(self._spool.state)
        self._backlog = state.waiting
        for declined in await self._run(self._spool.declined):
            self._enqueue(_declined(declined))
        return state

    async def close(self) -> None:
        """End; what is not done is done after the next start."""
        if self._publishing is not None:
            self._publishing.cancel()
            await asyncio.gather(self._publishing, return_exceptions=True)
        for one in self._heard:
            one.done.cancel()
        await asyncio.to_thread(self._disk.shutdown)

    async def until_failed(self) -> None:
        """Raises why nothing can be published any more; while all is well it does not return."""
        if self._publishing is not None:
            await asyncio.shield(self._publishing)

    async def _run(self, work: Callable[..., ResultT], *values: object) -> ResultT:
        return await asyncio.get_running_loop().run_in_executor(self._disk, partial(work, *values))

    async def _patiently(self, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Again until the disk and the market do it."""
        wait, longest = _BACKOFF_S
        while True:
            try:
                return await work()
            except LocalProtocolError:
                raise
            except (IsocastError, OSError) as reason:
                what = "disk" if isinstance(reason, StoreError) else "market"
                self._alarm(f"exchange-{what}", f"{self.code}: {reason}", "it is tried again until it works")
            await asyncio.sleep(wait)
            wait = min(longest, 2 * wait)

    def _turn(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # The sequence -----------------------------------------------------------------------------------------------

    async def take(self, messages: Sequence[HeardMessage], sequence: int) -> None:
        """What the sequence has for the exchange, up to a sequence; waits where the exchange does not keep up."""
        while self._backlog >= self._pace.spool_max:
            await self._changed.wait()
        declined = await self._patiently(lambda: self._run(self._spool.take, messages, sequence))
        self._reached("taken")
        if messages:
            self._backlog = await self._run(self._spool.waiting)
        for one in declined:
            self._enqueue(_declined(one))
        self._turn()

    # What is sent -----------------------------------------------------------------------------------------------

    async def reports(self, after: int) -> AsyncGenerator[Outgoing, None]:
        """Requests in the order of the sequence, behind the place of this number; first what may have been lost."""
        self.is_logged_on = True
        self.logons += 1
        async with aclosing(self._again(after)) as again:
            async for one in again:
                yield one
        while True:
            changed = self._changed
            room = self._pace.window - await self._run(self._spool.waiting, after)
            page = await self._run(self._spool.requests, after, min(room, _PAGE)) if room > 0 else []
            for directed, instant in page:
                after = directed.place.number
                yield outgoing(directed, instant, self.code)
                self._reached("given")
            if not page:
                await self._quiet(changed)

    async def _again(self, after: int) -> AsyncGenerator[Outgoing, None]:
        """What was sent before this Logon and is not answered, before anything new.

        FIX resends what the exchange's session lacks; what has no answer then, the exchange may have forgotten.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pace.again_s):
                while True:
                    changed = self._changed
                    if not await self._run(self._spool.requests, 0, 1, after + 1):
                        return
                    await changed.wait()
        before = 0
        while page := await self._run(self._spool.requests, before, _PAGE, after + 1):
            for directed, instant in page:
                before = directed.place.number
                self.sent_again += 1
                yield outgoing(directed, instant, self.code, is_again=True)

    async def _quiet(self, changed: asyncio.Event) -> None:
        """Until something happens; an exchange that owes an answer for too long is an alarm."""
        try:
            async with asyncio.timeout(self._pace.silent_s):
                await changed.wait()
        except TimeoutError:
            if self._backlog:
                text = f"{self.code} has not answered for {self._pace.silent_s:g} s: {self._backlog:,} requests wait"
                self._alarm("exchange-silent", text, "ask the exchange; nothing is lost, and nobody else waits")
            await self._changed.wait()

    # What is heard ----------------------------------------------------------------------------------------------

    async def handle(self, message: Message) -> Sequence[Outgoing]:
        """A report of the exchange; done once it is published."""
        await self._enqueue(message)
        return []

    async def leave(self) -> None:
        """The connection has ended."""
        self.is_logged_on = False

    def _enqueue(self, what: Message | ExchangeAnswer) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._heard.append(_Heard(what, done))
        self._has_heard.set()
        return done

    async def _publish_all(self) -> None:
        """Reports into the sequence, in their order; then what they answer is done with."""
        while True:
            await self._has_heard.wait()
            some = [self._heard[place] for place in range(min(_AT_ONCE, len(self._heard)))]
            answers = [answer for one in some if (answer := await self._read(one.what)) is not None]
            messages = [(self._key(raw), OpaqueMessage(self._topic, raw)) for raw in map(encode_answer, answers)]
            if messages:
                await self._patiently(partial(self._publish, messages))
                self._reached("published")
                await self._patiently(lambda answers=tuple(answers): self._run(self._spool.answered, answers))  # type: ignore[misc]
                self._reached("answered")
                self.published += len(messages)
                self._backlog = await self._run(self._spool.waiting)
            for one in some:
                self._heard.popleft()
                if not one.done.done():
                    one.done.set_result(None)
            if not self._heard:
                self._has_heard.clear()
            self._turn()

    def _key(self, raw: bytes) -> bytes:
        """Of a report: the same however often the exchange sends it."""
        return blake2b(self._topic.encode("ascii") + b"\0" + raw, digest_size=32).digest()

    async def _read(self, what: Message | ExchangeAnswer) -> ExchangeAnswer | None:
        """A report that is to be published; None for what is none, which is counted."""
        if isinstance(what, ExchangeAnswer):
            return what
        try:
            answer = await self._rejected(what) if what.kind in ("3", "j") else answer_of(what)
            if answer.kind is ReportKind.STATUS and not await self._run(self._spool.is_waiting, answer.order):
                return None  # An answer to what we sent again: everybody knows it.
            encode_answer(answer)
        except (RemoteProtocolError, LocalProtocolError) as reason:
            self.strays += 1
            text = f"{self.code} sent a message of type {sanitized(what.kind, 2)} that is about no request: {reason}"
            self._alarm("exchange-stray", text, "its reports must have the ClOrdID (11) of the request")
            return None
        return answer

    async def _rejected(self, message: Message) -> ExchangeAnswer:
        number = message.first.get(45, "")
        frame = await self._find_sent(int(number)) if number.isdecimal() and len(number) < 18 else None  # noqa: PLR2004
        sent = None if frame is None else decode(frame)
        if sent is None:
            raise RemoteProtocolError(f"a reject of message {sanitized(number, 20)}, which is no request of ours")
        return refusal_of(message, sent)


def _declined(declined: Declined) -> ExchangeAnswer:
    kind, status = ReportKind.CHANGE_REFUSED, OrderStatus.REFUSED
    return ExchangeAnswer(declined.place, kind, status, text=declined.reason, is_declined=True)


async def stay_connected(
    delivery: ExchangeDelivery, initiator: FixInitiator, pace: DeliveryPace, alarm: Alarm, *, resets: bool = False
) -> None:
    """Connect, and connect again whenever the exchange is gone; with `resets` the first Logon begins at 1 again."""
    wait, longest = pace.retry_s
    while True:
        logons = delivery.logons
        try:
            reason = await initiator.connect(resets=resets)
        except (TransportError, StoreError) as error:
            reason = str(error)
        if delivery.logons > logons:
            resets, wait = False, pace.retry_s[0]
        remedy = f"it is tried again every {longest:g} s at most; orders wait for it, and nobody else does"
        if _TOO_LOW in reason:
            remedy = "one side has lost its numbers: agree on a reset, and start once with --reset"
        alarm("exchange-down", f"{delivery.code} is not connected: {reason}", remedy)
        await asyncio.sleep(wait)
        wait = min(longest, 2 * wait)
