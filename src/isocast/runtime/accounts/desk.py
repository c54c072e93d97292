"""The desk of a gateway: everything that FIX, HTTPS and Python programs ask, over one database and one market.

Requests that arrive within some milliseconds share a transaction (group commit). The batch that it leaves is published
under its key, and only then are they answered. What waits for the disk does so in a thread of its own, one transaction
after the other; the event loop waits for nothing but the market.

A database that does not answer makes a request UNAVAILABLE, and loses nothing: what was committed is answered when the
same request comes again, what was not is forgotten, and the sequence is taken once the database is back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from time import time_ns
from typing import Final, NamedTuple, Self, TypeAlias, TypeVar

from isocast.floor.following import FloorMessage
from isocast.orders.accounts import name_of
from isocast.orders.controls import Block
from isocast.orders.desk import (
    BalanceLine,
    GatewayStatus,
    Login,
    LotLine,
    OfferLine,
    Reason,
    ReportKind,
    Scope,
    SymbolTerms,
    TradeReport,
    TradingRequest,
)
from isocast.runtime.accounts.floor_view import TokenOutcome
from isocast.runtime.accounts.logins import LoginDelays, Logins, Sessions, token_digest
from isocast.runtime.accounts.order_store import (
    ORDER_COLUMNS,
    REFUSED_KINDS,
    REPLACE_KINDS,
    REPORTS_TOGETHER,
    Batch,
    Position,
    order_of,
    reports_of,
)
from isocast.runtime.accounts.posting import rows_of, scalar
from isocast.runtime.accounts.requests import Answered, Asked, refused
from isocast.runtime.accounts.tables import AccountsDatabase
from isocast.runtime.accounts.trading import FencedError, TradingBooks
from isocast.runtime.watch.logs import get_log
from isocast.terms.errors import IsocastError, LedgerError, LedgerFault, LocalProtocolError
from isocast.wire.opaque import OpaqueMessage

__all__ = ["DeskPace", "GatewayDesk", "Publish"]

Publish: TypeAlias = Callable[[Sequence[OpaqueMessage], bytes], Awaitable[object]]
"""Puts messages into the market, once for each key: `Publisher.send`."""
ResultT = TypeVar("ResultT")

_AT_ONCE: Final = 512
"""Requests of one transaction: some ten milliseconds."""
_WAITING_MAX: Final = 16_384
"""Requests, and messages of the sequence, that wait for the disk: a second's; beyond that there is backpressure."""
_AGAIN: Final = "the gateway cannot take this now: send the same again"
_BACKOFF_S: Final = (0.05, 5.0)
_FOREIGN: Final = "events in this gateway's name that it did not send, or that contradict its books"
_DIFFERING: Final = "reports of arbiters that name another state of the floor, or tokens of two keys"
_BUSTED: Final = "trades that became void"
_UNCORRECTED: Final = "corrections of trades that came too late, twice, or for other trades, and change nothing"
_PAGE: Final = 1_000
_NUMBER_MAX: Final = (1 << 63) - 1
"""Of a database."""


@dataclass(frozen=True, slots=True)
class DeskPace:
    """How long a desk waits for what."""

    group_s: float = 0.002
    """For more requests to share a transaction."""
    answer_s: float = 10.0
    """For the database to answer, and for the market to take a batch, before a request is UNAVAILABLE."""
    grace_s: float = 0.0
    """After a session ends, before its orders are cancelled."""
    look_s: float = 1.0
    """Between looks at what operators have put into the outbox."""
    session_s: float = 12 * 3_600.0


class _Heard(NamedTuple):
    token: int
    instant: int
    message: FloorMessage | None
    """None: the token is over."""


@dataclass(slots=True)
class _Call:
    """Requests of one trader that came together."""

    asked: list[Asked]
    answered: asyncio.Future[list[TradeReport]]
    answers: list[Answered] = field(default_factory=list)
    """Once they are committed."""
    batch: int = 0
    """The newest for which an answer waits."""
    committed_at: float = 0.0

    def take(self, answers: list[Answered], now: float) -> None:
        """They are on the disk."""
        self.answers, self.committed_at = answers, now
        self.batch = max([answer.batch for answer in answers])


class GatewayDesk:
    """A gateway, as its ways in see it (`isocast.orders.desk.Desk`)."""

    def __init__(
        self,
        database: AccountsDatabase,
        books: TradingBooks,
        publish: Publish,
        *,
        logins: Logins | None = None,
        pace: DeskPace | None = None,
        clock: Callable[[], int] = time_ns,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        reached: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Use it in an `async with` block. `reached` hears of every step between which a process can die."""
        self.failure: BaseException | None = None
        """Why it trades no more; None: it does."""
        self.start = Position()
        """Once it is open: from where it wants the sequence."""
        self._database = database
        self.books = books
        """For its writer alone: one transaction at a time."""
        self._publish = publish
        self.logins = logins or Logins(database, clock)
        self._pace = pace or DeskPace()
        self._clock = clock
        self._sleep = sleep
        self._reached = reached
        self._sessions = Sessions(self._pace.session_s)
        self._delays = LoginDelays()
        self._writer = ThreadPoolExecutor(1, "isocast-desk-writer")
        self._readers = ThreadPoolExecutor(2, "isocast-desk-reader")
        self._guards = ThreadPoolExecutor(2, "isocast-desk-guard")
        """Passwords are slow on purpose, and nobody else waits for them."""
        self._calls: deque[_Call] = deque()
        """Not committed, oldest first."""
        self._waiting = 0
        """Requests of those."""
        self._asked = self._decided = 0
        """Calls that came, and those of them that are committed or never will be, since the start."""
        self._held: list[int] = []
        """Of cancels of all orders that wait: how many calls came before each; what came behind it waits, too."""
        self._committed: deque[_Call] = deque()
        """Not published, oldest first."""
        self._has_asked = asyncio.Event()
        self._heard: deque[_Heard] = deque()
        self._has_heard = asyncio.Event()
        self._has_room = asyncio.Event()
        self._given = self._taken = 0
        """Messages, since the start."""
        self._outcomes: list[TokenOutcome] = []
        """Applied to the floor, and not on the disk."""
        self._has_batch = asyncio.Event()
        self._turned = asyncio.Event()
        """Set, and replaced, whenever something was published or told."""
        self._said: dict[str, int] = {}
        """Alarms that are in the log, with how often."""
        self._tasks: list[asyncio.Task[None]] = []
        self._leaving: set[asyncio.Task[None]] = set()

    # Begin and end ----------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Take the books over, check them, and publish what was committed and not published."""
        self.start = await self._write(self.books.open, self._clock())
        self._has_batch.set()
        for work in (self._commit_all, self._publish_all, self._take_all, self._look):
            task = asyncio.create_task(work(), name=f"desk {work.__name__}")
            task.add_done_callback(self._done)
            self._tasks.append(task)

    def _done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._fail(task.exception())

    def _fail(self, reason: BaseException | None) -> None:
        """Trade no more: whoever waits hears it."""
        self.failure = self.failure or reason
        self._has_room.set()
        for call in (*self._committed, *self._calls):
            self._answer(call)
        self._calls.clear()
        self._committed.clear()
        self._waiting = 0
        self._decided = self._asked
        self._turn()

    async def close(self) -> None:
        """Stop; what is not answered is answered after the next start. The floor is kept as it is."""
        every = [*self._tasks, *self._leaving]
        for task in every:
            task.cancel()
        await asyncio.gather(*every, return_exceptions=True)
        if self.failure is None and not self._outcomes:
            with suppress(IsocastError):
                await self._write(self.books.keep_floor, self._clock())
        self._fail(LedgerError(LedgerFault.UNAVAILABLE, "the desk is closed"))
        for pool in (self._writer, self._readers, self._guards):
            pool.shutdown(wait=True)

    async def _write(self, work: Callable[..., ResultT], *values: object) -> ResultT:
        return await asyncio.get_running_loop().run_in_executor(self._writer, partial(work, *values))

    async def _read(self, work: Callable[..., ResultT], *values: object) -> ResultT:
        return await asyncio.get_running_loop().run_in_executor(self._readers, partial(work, *values))

    def _turn(self) -> None:
        self._turned.set()
        self._turned = asyncio.Event()

    # Coming in --------------------------------------------------------------------------------------------------

    async def log_in(self, name: str, password: str, address: str) -> Login | None:
        """Who this is; None, after the same time, for an unknown name and for a wrong password, or too many tries."""
        wait = self._delays.begin(name, address, self._clock())
        if wait is None:
            return None
        account: int | None = None
        is_judged = True
        try:
            if wait:
                await self._sleep(wait)
            loop = asyncio.get_running_loop()
            account = await loop.run_in_executor(self._guards, self.logins.account_by_password, name, password)
        except LedgerError as error:
            if error.fault is LedgerFault.UNAVAILABLE:  # The password may be right.
                is_judged = False
                raise
        finally:
            self._delays.end(name, address, self._clock(), failed=account is None if is_judged else None)
        return None if account is None else self._sessions.begin(account, name, self._clock())

    async def log_in_by_token(self, token: str, address: str) -> Login | None:  # noqa: ARG002 - nobody guesses 256 bits
        """The same for an API token, or for the session of a login."""
        found = self._sessions.find(token, self._clock())
        if found is not None:
            return found
        return await self._read(self.logins.login_by_token, token)

    async def log_out(self, login: Login, *, cancels: bool) -> None:
        """A session ends; with `cancels` all live orders that it entered are cancelled after its grace."""
        self._sessions.end(login)
        if cancels:
            task = asyncio.create_task(self._cancel_session(login))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def _cancel_session(self, login: Login) -> None:
        if self._pace.grace_s:
            await self._sleep(self._pace.grace_s)
        await self._patiently(partial(self._cancel_some, login.account, "", None, _session_name(login.session)))

    async def _patiently(self, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Again until the database answers."""
        wait, longest = _BACKOFF_S
        while True:
            try:
                return await work()
            except FencedError:
                raise
            except LedgerError as error:
                if error.fault is not LedgerFault.UNAVAILABLE:
                    raise
            await self._sleep(wait)
            wait = min(longest, 2 * wait)

    # Asking -----------------------------------------------------------------------------------------------------

    async def submit(self, login: Login, request: TradingRequest) -> TradeReport:
        """The answer, once the order is reserved, durable and published; or why it is refused."""
        [report] = await self.submit_many(login, [request])
        return report

    async def submit_many(self, login: Login, requests: Sequence[TradingRequest]) -> list[TradeReport]:
        """The answer to each, in their order, once all that were taken are reserved, durable and published.

        Each is judged by itself, in this order, and one that is refused refuses no other. They share the desk's cost.
        """
        session = _session_name(login.session)
        asked = [Asked(login.account, session, request) for request in requests]
        if Scope.TRADE not in login.scopes:
            return [refused(one, Reason.BLOCKED, "this login may read, not trade", self._clock()) for one in asked]
        if not asked or self.failure is not None or self._waiting >= _WAITING_MAX:
            return [self._unavailable(one) for one in asked]
        loop = asyncio.get_running_loop()
        call = _Call(asked, loop.create_future())
        # The database may hang, and then the market: each has its time.
        timer = loop.call_later(self._pace.answer_s, self._give_up, call)
        self._calls.append(call)
        self._asked += 1
        self._waiting += len(asked)
        self._has_asked.set()
        try:
            told = await call.answered
        finally:
            timer.cancel()
        self._reached("answered")
        return told

    def _unavailable(self, asked: Asked) -> TradeReport:
        return refused(asked, Reason.UNAVAILABLE, _AGAIN, self._clock())

    def _give_up(self, call: _Call) -> None:
        """Nobody waits longer for the database, nor for the market; what they do later, the same again tells."""
        now = asyncio.get_running_loop().time()
        if call.committed_at and now < call.committed_at + self._pace.answer_s:
            asyncio.get_running_loop().call_at(call.committed_at + self._pace.answer_s, self._give_up, call)
        else:
            self._answer(call)

    def _answer(self, call: _Call) -> None:
        """Tell what can be told: what is published, or was refused; for the rest the gateway is not available."""
        if call.answered.done():
            return
        published = self.books.published
        answers = call.answers or [Answered(self._unavailable(one), 0) for one in call.asked]
        told = [
            answer.report if answer.batch <= published else self._unavailable(one)
            for one, answer in zip(call.asked, answers, strict=True)
        ]
        call.answered.set_result(told)

    async def _until_decided(self) -> None:
        """Until everything that was asked before is committed, or never will be.

        What came later must not overtake it: a cancel of all orders would miss those that wait for their transaction,
        and a look at one of them would say that there is none.
        """
        asked = self._asked
        while self._decided < asked:
            await self._turned.wait()

    def _answer_published(self) -> None:
        """Answer all whose batches are in the market by now."""
        published = self.books.published
        while self._committed and self._committed[0].batch <= published:
            self._answer(self._committed.popleft())

    async def _commit_all(self) -> None:
        """Group commit."""
        while True:
            await self._has_asked.wait()
            if self._waiting < _AT_ONCE:
                await asyncio.sleep(self._pace.group_s)
            some: list[_Call] = []
            count = 0
            most = self._held[0] - self._decided if self._held else len(self._calls)
            while self._calls and count < _AT_ONCE and len(some) < most:
                some.append(self._calls.popleft())
                count += len(some[-1].asked)
            if self._held and not some:
                await self._turned.wait()
                continue
            self._waiting -= count
            if not self._calls:
                self._has_asked.clear()
            try:
                await self._commit(some)
            except BaseException as reason:
                self._calls.extendleft(reversed(some))
                self._fail(reason)
                raise

    async def _commit(self, some: list[_Call]) -> None:
        asked = [one for call in some for one in call.asked]
        try:
            answers = await self._write(self.books.submit, asked, self._clock())
        except FencedError:
            raise
        except LedgerError as error:
            if error.fault is not LedgerFault.UNAVAILABLE:
                raise
            answers = []
        self._decided += len(some)
        now, at = asyncio.get_running_loop().time(), 0
        for call in some:
            if answers:
                call.take(answers[at : at + len(call.asked)], now)
                at += len(call.asked)
            if call.batch <= self.books.published:
                self._answer(call)  # Refused, or as it was answered before.
            else:
                self._committed.append(call)
        self._has_batch.set()
        self._turn()

    async def _publish_all(self) -> None:
        """Publish batches in their order, each until the market has it."""
        topic = self.books.view.topics[0]
        while True:
            await self._has_batch.wait()
            self._has_batch.clear()
            while self.books.waiting:
                batch: Batch = self.books.waiting[0]
                messages = [OpaqueMessage(topic, payload) for payload in batch.payloads]
                await self._publish_one(messages, batch.key)
                self._reached("published")
                self.books.note_published(batch.number)
                self._answer_published()
                self._turn()

    async def _publish_one(self, messages: Sequence[OpaqueMessage], key: bytes) -> None:
        wait, longest = _BACKOFF_S
        while True:
            try:
                await self._publish(messages, key)
            except (IsocastError, OSError):
                await self._sleep(wait)
                wait = min(longest, 2 * wait)
            else:
                return

    async def _look(self) -> None:
        """Mark what is published, and see what operators have put into the outbox."""
        while True:
            await asyncio.sleep(self._pace.look_s)
            with suppress(LedgerError):
                await self._refresh()

    async def _refresh(self) -> None:
        try:
            await self._write(self.books.refresh, self._clock())
        except FencedError as reason:
            self._fail(reason)
            raise
        if self.books.waiting:
            self._has_batch.set()

    # The sequence -----------------------------------------------------------------------------------------------

    async def take(self, token: int, instant: int, message: FloorMessage) -> None:
        """The next message of the sequence, of whatever topic; waits where the disk does not keep up."""
        await self._take(_Heard(token, instant, message))

    async def end_token(self, token: int) -> None:
        """Everything of this token has been given to `take`."""
        await self._take(_Heard(token, 0, None))

    async def _take(self, heard: _Heard) -> None:
        while len(self._heard) >= _WAITING_MAX and self.failure is None:
            self._has_room.clear()
            await self._has_room.wait()
        if self.failure is not None:
            raise LedgerError(LedgerFault.UNAVAILABLE, f"the desk has stopped: {self.failure}")
        self._heard.append(heard)
        self._given += 1
        self._has_heard.set()

    async def _take_all(self) -> None:
        while True:
            await self._has_heard.wait()
            some = [self._heard.popleft() for _ in range(min(_AT_ONCE, len(self._heard)))]
            if not self._heard:
                self._has_heard.clear()
            self._has_room.set()
            await self._write(self._apply, some)
            if self._outcomes:
                await self._patiently(self._keep)
                self._has_batch.set()
            self._watch_out()
            self._taken += len(some)
            self._turn()

    def _apply(self, some: list[_Heard]) -> None:
        for token, instant, message in some:
            view = self.books.view
            if message is not None and token > view.newest:
                outcome = view.hear(token, instant, message)
            elif message is None and view.open_token is not None and view.open_token <= token:
                outcome = view.finish()
            else:
                continue
            if outcome is not None:
                self._outcomes.append(outcome)

    async def _keep(self) -> None:
        await self._write(self.books.take, self._outcomes, self._clock(), self.start.stripe)
        self._reached("taken")
        self._outcomes = []

    def _watch_out(self) -> None:
        """Say what somebody should look at, once for each time that it grows."""
        found = self._alarming()
        for name, count in found.items():
            if count > self._said.get(name, 0):
                get_log().error("alarm of the gateway", what=name, count=count)
        self._said = found

    def _alarming(self) -> dict[str, int]:
        books = self.books
        counts = {_FOREIGN: books.foreign, _DIFFERING: books.view.differing, _BUSTED: books.busted}
        counts[_UNCORRECTED] = books.view.refused_corrections
        return {name: count for name, count in counts.items() if count}

    @property
    def doubts(self) -> int:
        """How often an arbiter has named another state of the floor than this gateway has."""
        return self.books.view.differing

    async def rewind(self) -> Position:
        """Hear the sequence again from what cannot be lost: from where it is wanted. Until then nothing is accepted.

        Everything that was given to `take` must be on the disk (`until_taken`).
        """
        self.start = await self._patiently(partial(self._write, self.books.rewind))
        return self.start

    async def status(self) -> GatewayStatus:
        """How the gateway is."""
        position, books = self.books.position, self.books
        alarms = [f"{name}: {count:,}" for name, count in self._alarming().items()]
        return GatewayStatus(books.settings.floor, position.token, position.confirmed, books.busted, tuple(alarms))

    @property
    def wants_token(self) -> bool:
        """Whether a later token, of whatever contents, would let it go on: it is open, not stable, or lost."""
        books = self.books
        return books.view.open_token is not None or books.has_frees or books.is_behind

    async def until_taken(self) -> None:
        """Until everything that was given to `take` is on the disk."""
        given = self._given
        while self._taken < given and self.failure is None:
            await self._turned.wait()

    async def until_applied(self, token: int) -> None:
        """Until the floor has this token behind it, which the next one tells."""
        while self.books.view.newest < token and self.failure is None:
            await self._turned.wait()

    async def until_failed(self) -> BaseException:
        """Why it trades no more, once it does not."""
        while self.failure is None:
            await self._turned.wait()
        return self.failure

    # Stopping ---------------------------------------------------------------------------------------------------

    async def cancel_all(self, login: Login, client_id: str, symbol: str | None = None) -> int:
        """Cancel all live orders of the account, or those of a symbol: how many."""
        if Scope.TRADE not in login.scopes:
            raise LocalProtocolError("this login may read, not trade")
        if not client_id:
            raise LocalProtocolError("a client id has from 1 to 64 printable ASCII characters")
        return await self._cancel_some(login.account, client_id, symbol, None)

    async def _cancel_some(self, account: int, client_id: str, symbol: str | None, session: str | None) -> int:
        work = partial(self.books.cancel_all, client_id=client_id, symbol=symbol, session=session)
        asked = self._asked
        self._held.append(asked)
        try:
            await self._until_decided()
            # From here on it is the next transaction of the one writer.
            count = asyncio.get_running_loop().run_in_executor(self._writer, partial(work, account, self._clock()))
        finally:
            self._held.remove(asked)
            self._turn()
        found = await count
        self._has_batch.set()
        return found

    async def kill(self, block: Block) -> int:
        """Stop an account, a customer or the gateway, and cancel what lives of it: how many orders."""
        count = await self._write(self.books.kill, block, self._clock())
        self._has_batch.set()
        return count

    # Looking ----------------------------------------------------------------------------------------------------

    async def order(self, login: Login, client_id: str) -> TradeReport | None:
        """An order of the account as it is now (`ReportKind.STATUS`)."""
        await self._until_decided()
        where = (
            "number = (SELECT r.number FROM requests r WHERE r.account = ? AND r.client_id = ?"
            " AND r.kind NOT IN (?, ?)) AND account = ?"
        )
        found = await self._read(self._orders, where, (login.account, client_id, *REFUSED_KINDS, login.account), 1)
        return found[0] if found else None

    async def is_replace(self, login: Login, client_id: str) -> bool:
        """Whether a request of the account was a replace; not, where it was something else, or there was none."""
        return await self._read(self._is_replace, login.account, client_id)

    def _is_replace(self, account: int, client_id: str) -> bool:
        query = "SELECT kind FROM requests WHERE account = ? AND client_id = ?"
        with self._database.reading() as connection:
            return scalar(connection, query, (account, client_id)) in REPLACE_KINDS

    async def orders(self, login: Login, *, live: bool = True, limit: int = _PAGE) -> Sequence[TradeReport]:
        """The account's orders as they are now, newest last."""
        ended = " AND is_open AND status NOT IN ('filled', 'cancelled', 'expired', 'refused')" if live else ""
        return await self._read(self._orders, f"account = ?{ended}", (login.account,), limit)

    def _orders(self, where: str, values: tuple[object, ...], limit: int) -> list[TradeReport]:
        query = f"SELECT {ORDER_COLUMNS} FROM orders WHERE {where} ORDER BY number DESC LIMIT ?"  # noqa: S608 - our own
        with self._database.reading() as connection:
            rows = rows_of(connection, query, (*values, limit))
        return [order_of(row).life.report(ReportKind.STATUS, self._clock()) for row in reversed(rows)]

    async def reports(self, login: Login, after: int, limit: int = _PAGE) -> Sequence[TradeReport]:
        """What the account was told after the report of this number, in order."""
        return await self._read(self._reports, login.account, after, limit)

    def _reports(self, account: int, after: int, limit: int) -> list[TradeReport]:
        published = self.books.published
        # Numbers have no gaps, and a row that is under a number beyond these begins behind them.
        query = "SELECT batch, body FROM reports WHERE account = ? AND number > ? AND number < ? ORDER BY number"
        beyond = min(_NUMBER_MAX, after + limit + REPORTS_TOGETHER)
        told: list[TradeReport] = []
        with self._database.reading() as connection:
            for batch, body in rows_of(connection, query, (account, after, beyond)):
                if batch > published:
                    break  # Nobody hears of an order before the market has it.
                told += [report for report in reports_of(body) if report.number > after]
        return told[:limit]

    async def newest_report(self, login: Login) -> int:
        """The number of the last report that the account was told; 0: none yet."""
        return await self._read(self._newest_report, login.account)

    def _newest_report(self, account: int) -> int:
        query = "SELECT number FROM reports WHERE account = ? AND batch <= ? ORDER BY number DESC LIMIT 1"
        with self._database.reading() as connection:
            return next((number for (number,) in rows_of(connection, query, (account, self.books.published))), 0)

    async def watch(self, login: Login, after: int) -> AsyncIterator[TradeReport]:
        """All reports after this number, those to come too, until the iterator is closed; a slow reader loses none."""
        while True:
            turned = self._turned
            for report in await self._patiently(partial(self.reports, login, after)):
                after = report.number
                yield report
            if turned.is_set():
                continue
            if self.failure is not None:
                return
            await turned.wait()

    async def balances(self, login: Login) -> Sequence[BalanceLine]:
        """What the account has."""
        query = "SELECT asset, available, reserved FROM balances WHERE account = ? ORDER BY asset"
        return await self._read(self._balances, query, login.account)

    def _balances(self, query: str, account: int) -> list[BalanceLine]:
        with self._database.reading() as connection:
            return [BalanceLine(*row) for row in rows_of(connection, query, (account,))]

    async def offers(self) -> Sequence[OfferLine]:
        """Open offers of all gateways that somebody can take."""
        return await self._write(self.books.view.offer_lines)

    async def lots(self) -> Sequence[LotLine]:
        """Lots of all gateways that are for sale."""
        return await self._write(self.books.view.lot_lines)

    async def symbols(self) -> Sequence[SymbolTerms]:
        """What can be traded."""
        return [
            SymbolTerms(
                name,
                name_of(self.books.currency_of(name)),
                state.terms.tick,
                state.terms.lot,
                state.phase.value,
                state.reference,
            )
            for name, state in list(self.books.view.floor.symbols.items())
        ]


@lru_cache(4_096)
def _session_name(session: str) -> str:
    """What the database keeps of a session: its name is a token, and nobody's to read there."""
    return token_digest(session)[:32]
