"""A gateway's trading, transaction by transaction: requests in, the sequence's answers in, reports and events out.

    submit      orders, cancels and replaces of some milliseconds: client ids, controls, reservations, the outbox
    take        tokens of the sequence: refusals, fills, cancels, expiries; settlement of what is confirmed
    kill        a block, and a CANCEL for every live order

Each is one transaction, which no other process can have at the same time: a lease with a generation fences off a
gateway that was replaced. Nothing here waits for the market or knows an event loop; `desk` does.

Money moves when it cannot be taken back (settlement 14). A trade is settled once an arbiter's report says that it is
confirmed. What a refusal, a cancel, an expiry or a replace frees is freed once a token has come that is a round of the
ring later (`DeskSettings.stable_tokens`): a customer does not see `stable` itself, and on an unchanged ring every
member holds a token a round later.

A reformation may cut off a token that is not stable, under the timed gate or with a forced ring. The gateway hears the
sequence again from its last stable snapshot, at every start and when something does not fit (`rewind`), and compares
each token with what it noted of it. Where one is gone or another, its orders are as they were before it, its trades are
void, and the trader hears so once: nothing of it was settled or freed.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple, assert_never

from sqlalchemy import Connection

from isocast.floor.codec import encode_event
from isocast.floor.events import (
    Cancel,
    Event,
    Replace,
    Reveal,
)
from isocast.floor.rules.dutch_clock import DutchLot
from isocast.orders.accounts import WORLD, account_number, cash, shares
from isocast.orders.controls import DEFAULT_LIMITS, Block, Limits, RateLimit, Wanted, first_refusal
from isocast.orders.desk import (
    BidRequest,
    CancelRequest,
    LotRequest,
    NewOrder,
    OrderKind,
    Reason,
    ReplaceRequest,
    ReportKind,
    RevealRequest,
    SealedBidRequest,
    TakeRequest,
    TradeReport,
    Unchanged,
)
from isocast.orders.ledger import Move, reserve
from isocast.orders.life import Change, ChangeKind, OrderLife
from isocast.orders.needs import Side, protection_price
from isocast.runtime.accounts.audit import check_reserved
from isocast.runtime.accounts.entering import EnteringRequest, plan_entry
from isocast.runtime.accounts.floor_view import FloorView, TokenOutcome
from isocast.runtime.accounts.kills import blocks_in, kill_in
from isocast.runtime.accounts.lost_tokens import take_back_lost
from isocast.runtime.accounts.order_store import (
    ORDER_COLUMNS,
    REFUSED_KINDS,
    Batch,
    KnownRequest,
    OpenOrder,
    OrderMemory,
    Position,
    Work,
    holder_of,
    order_id,
    order_of,
    read_batches,
    reports_of,
    split_id,
)
from isocast.runtime.accounts.posting import execute, rows_of, scalar
from isocast.runtime.accounts.requests import (
    Answered,
    Asked,
    RefusedError,
    check_form,
    content_digest,
    is_client_id,
    refused,
)
from isocast.runtime.accounts.sequence_steps import SequenceSteps
from isocast.runtime.accounts.tables import AccountsDatabase
from isocast.runtime.disk.database import WRITER
from isocast.terms.errors import LedgerError, LedgerFault, LocalProtocolError

__all__ = ["DeskSettings", "FencedError", "TradingBooks"]

_LEASE: Final = "gateway"
_NUMBERS: Final = 1 << 32
_CHANGES_OPEN: Final = 64
"""Cancels and replaces of one order that are under way: beyond that the answers are to be waited for."""
_CANCEL_ALL: Final = "all"
_KNOWN_MAX: Final = 1 << 18
"""Balances that are remembered: some 100 MB. Beyond that they are read again, as they are asked for."""


class FencedError(LedgerError):
    """Another process has taken over these books: this one trades no more."""

    def __init__(self, place: str) -> None:
        """Say whose they are now."""
        super().__init__(LedgerFault.UNAVAILABLE, f"another gateway process has taken over {place}")


@dataclass(frozen=True, slots=True)
class DeskSettings:
    """What an operator decides for a gateway."""

    floor: str = "XISO"
    currency: str = "USD"
    """Of symbols that have no other."""
    currencies: Mapping[str, str] = field(default_factory=dict)
    fees: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Of symbols: basis points that makers pay, and takers."""
    fee_bp: tuple[int, int] = (0, 0)
    """Of all other symbols."""
    collar_bp: int = 500
    """How far a market order may go from the reference where its symbol has no collar."""
    limits: Limits = DEFAULT_LIMITS
    """Of accounts that have none of their own."""
    deadline: Callable[[int], int | None] = lambda _: None
    """Until when an order that is accepted at an instant may enter the floor, such as the end of the session's day."""
    stable_tokens: int = 0
    """A token so much later says that one is stable: the members of the ring; 0: only arbiters' reports do."""
    snapshot_tokens: int = 10_000
    """So many tokens of the floor are applied again at most after a restart."""


class TradingBooks:
    """Orders and money of one gateway. One thread at a time."""

    def __init__(
        self,
        database: AccountsDatabase,
        settings: DeskSettings | None = None,
        reached: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Nothing is read before `open`."""
        self.settings = settings or DeskSettings()
        self.gateway = database.gateway()
        self.view = FloorView(self.settings.floor)
        self.waiting: deque[Batch] = deque()
        """Committed and not published, in order."""
        self.published = 0
        """All batches up to this one are published."""
        chosen = self.settings
        self._steps = SequenceSteps(self.gateway, chosen.floor, chosen.stable_tokens, self._insist_on)
        self.busted = 0
        """Trades of its accounts that became void."""
        self._followed = 0
        """Up to which token this view's sequence was compared with the books."""
        self.refuses_unknown = False
        """While what happened before the start is heard: an order of this gateway that the books do not have is more
        than somebody's forgery, because the books may be older than the sequence."""
        self._currency = cash(self.settings.currency)
        self._currencies = {symbol: cash(currency) for symbol, currency in self.settings.currencies.items()}
        self._database = database
        self.reached = reached
        """Hears of every step between which a process can die."""
        self._memory = OrderMemory()
        self._is_stale = True
        self._marked = 0
        self._generation = 0
        self._rate = RateLimit()
        self._snapshot_at = 0

    # Begin and end ----------------------------------------------------------------------------------------------

    def open(self, now: int) -> Position:
        """Take the books over from whoever had them, and check them: from where the sequence is wanted.

        LedgerError where what is reserved is not what orders need: then nothing may be traded.
        """
        with self._database.writing(marked=False) as connection:
            self._generation = (_state_of(connection).generation or 0) + 1
            holder = f"process {os.getpid()} on {socket.gethostname()}"
            execute(
                connection,
                "INSERT INTO lease (name, generation, holder, taken_ns) VALUES (?, ?, ?, ?) ON CONFLICT (name) DO"
                " UPDATE SET generation = excluded.generation, holder = excluded.holder, taken_ns = excluded.taken_ns",
                (_LEASE, self._generation, holder, now),
            )
            first = scalar(connection, "SELECT min(batch) FROM outbox WHERE NOT published")
            last = scalar(connection, "SELECT max(batch) FROM outbox") or 0
            self.published = self._marked = last if first is None else first - 1
            self._load(connection)
            start = self._restored(connection)
        self.check()
        return start

    def rewind(self) -> Position:
        """Begin to hear the sequence again, from the last snapshot that is stable: from where it is wanted."""
        with self._database.reading() as connection:
            if self._is_stale:
                raise LedgerError(LedgerFault.UNAVAILABLE, "the last transaction is in doubt: try again")
            return self._restored(connection)

    def _restored(self, connection: Connection) -> Position:
        """The floor as it was kept at a token that cannot be lost; where to hear the sequence from."""
        view, position, start = FloorView(self.settings.floor), self._memory.position, Position()
        view.differing, view.unreadable = self.view.differing, self.view.unreadable
        query = (
            "SELECT sequence, token, state, body FROM floor_snapshots WHERE floor = ? AND token <= ?"
            " ORDER BY token DESC LIMIT 1"
        )
        start = Position(position.stripe)
        for sequence, token, state, body in rows_of(connection, query, (self.settings.floor, position.stable_token)):
            view.restore(bytes(body), token, bytes.fromhex(state))
            start = position._replace(sequence=sequence, token=token)
        self.view, self._snapshot_at, self._followed = view, start.token, start.token
        return start

    def check(self) -> None:
        """LedgerError unless what is reserved is what live orders and unsettled trades need."""
        check_reserved(self._database)

    def _load(self, connection: Connection) -> None:
        self._is_stale = True  # Until all of it is read.
        self._memory = OrderMemory.read(connection, self.settings.floor)
        state = _state_of(connection)
        self._memory.forget_accounts(state.mark, state.last_entry)
        self.waiting = deque(read_batches(connection, self.published))
        self._is_stale = False

    @contextmanager
    def _work(self, now: int) -> Iterator[Work]:
        """One transaction; what it did is remembered after the commit, and read again if that is in doubt."""
        self.reached("begin")
        with self._database.writing(marked=False) as connection:
            state, memory = _state_of(connection), self._memory
            if state.generation != self._generation:
                raise FencedError(self._database.place)
            if self._is_stale or state.last_batch != memory.last_batch:
                self._load(connection)  # An operator's kill is in the outbox, or the last commit is in doubt.
            elif (state.mark, state.last_entry) != (memory.mark, memory.last_entry) or len(memory.places) > _KNOWN_MAX:
                memory.forget_accounts(state.mark, state.last_entry)
            work = Work(connection, self._memory, self.settings.floor, now)
            self._is_stale = True
            yield work
            work.write()
            published = self.published
            if published > self._marked:
                done = "UPDATE outbox SET published = TRUE, body = ? WHERE batch <= ? AND NOT published"
                execute(connection, done, (b"", published))
            self.reached("written")
        self.reached("committed")
        work.remember()
        self._marked = published
        if work.batch is not None:
            self.waiting.append(work.batch)
        self._is_stale = False

    def note_published(self, batch: int) -> None:
        """A batch is in the market's outbox; the next transaction marks it."""
        self.published = max(self.published, batch)
        while self.waiting and self.waiting[0].number <= self.published:
            self.waiting.popleft()

    def refresh(self, now: int) -> None:
        """Mark what is published, and see what others have put into the outbox; wake the floor where a lot waits."""
        with self._work(now) as work:
            if any(self._waits(order, now) for order in work.live_orders()):
                # Refused by the floor, and yet a token: on a quiet floor nothing else would end the lot.
                work.events.append(encode_event(Cancel(0, account_number(self.gateway, WORLD))))
        self._rate.forget_full(now)

    def _waits(self, order: OpenOrder, now: int) -> bool:
        """Whether an order is a lot, or a bid for one, that the next token of the floor may end."""
        if order.life.kind not in (OrderKind.LOT, OrderKind.SEALED_BID):
            return False
        lot = self.view.floor.lots.get(order.target or order.life.id)
        return isinstance(lot, DutchLot) or (lot is not None and now >= lot.decided_at)

    # Requests ---------------------------------------------------------------------------------------------------

    def submit(self, asked: Sequence[Asked], now: int) -> list[Answered]:
        """Answer requests in one transaction, each by itself."""
        if self.is_behind:
            raise LedgerError(LedgerFault.UNAVAILABLE, "this gateway has not heard again what it knew of the sequence")
        with self._work(now) as work:
            context = self._context(work, asked)
            answers = [self._answer(work, one, context) for one in asked]
        batch = work.batch.number if work.batch is not None else 0
        return [Answered(report, batch if waits is True else int(waits)) for report, waits in answers]

    def _context(self, work: Work, asked: Sequence[Asked]) -> _Context:
        """Read what all of them need, at once."""
        ids = [(one.account, one.request.client_id) for one in asked if is_client_id(one.request.client_id)]
        ids += [
            (one.account, one.request.original_id)
            for one in asked
            if isinstance(one.request, CancelRequest | ReplaceRequest | RevealRequest)
            and is_client_id(one.request.original_id)
        ]
        work.know_requests(ids)
        accounts = dict.fromkeys([one.account for one in asked])
        work.know_numbers(accounts)
        assets = {name: (self.currency_of(name), shares(name)) for name in self.view.floor.symbols}
        work.know_balances(
            [
                (one.account, bound[request.side is Side.SELL])
                for one in asked
                if isinstance(request := one.request, NewOrder) and (bound := assets.get(request.symbol)) is not None
            ]
        )
        if self._memory.blocks is None:
            self._memory.blocks = blocks_in(work.connection)
        return _Context(work.limits(accounts), self._memory.blocks, self.settings.deadline(work.now))

    def currency_of(self, symbol: str) -> str:
        """What a symbol is paid in, as an asset."""
        return self._currencies.get(symbol, self._currency)

    def _answer(self, work: Work, asked: Asked, context: _Context) -> tuple[TradeReport, bool | int]:
        """The report, and whether it waits for this transaction's batch, or for which other."""
        request = asked.request
        if not is_client_id(request.client_id):
            text = "client id: from 1 to 64 printable ASCII characters"
            return refused(asked, Reason.MALFORMED, text, work.now), False
        digest = content_digest(request)
        asked = Asked(asked.account, asked.session, request, digest)
        known = work.request(asked.account, request.client_id)
        if known is not None:
            if known.digest != digest:
                text = "this client id was used for something else: take another"
                return refused(asked, Reason.CLIENT_ID_USED, text, work.now), False
            return self._first_answer(work, asked.account, known)
        try:
            check_form(request)
            match request:
                case NewOrder() | TakeRequest() | LotRequest() | SealedBidRequest() | BidRequest():
                    report = self._enter(work, asked, request, context)
                case CancelRequest():
                    report = self._cancel(work, asked, request)
                case RevealRequest():
                    report = self._reveal(work, asked, request)
                case ReplaceRequest():
                    report = self._replace(work, asked, request, context)
                case _:
                    assert_never(request)
        except RefusedError as refusal:
            order = refusal.order
            if refusal.reason is Reason.UNAVAILABLE:
                return refused(asked, refusal.reason, refusal.text, work.now, order), False
            report = work.tell(refused(asked, refusal.reason, refusal.text, work.now, order))
            number = 0 if order is None else split_id(order.id)[1]
            kind = REFUSED_KINDS[isinstance(request, ReplaceRequest)]
            work.ask(asked.account, request.client_id, KnownRequest(kind, digest, number, report.number))
            return report, False
        return report, True

    def _first_answer(self, work: Work, account: int, known: KnownRequest) -> tuple[TradeReport, bool | int]:
        for report, waits in work.reports:
            if (report.account, report.number) == (account, known.answer):
                return report, waits
        query = "SELECT body, batch FROM reports WHERE account = ? AND number >= ? ORDER BY number LIMIT 1"
        [(body, batch)] = rows_of(work.connection, query, (account, known.answer))
        return next(report for report in reports_of(body) if report.number == known.answer), batch

    def _enter(self, work: Work, asked: Asked, request: EnteringRequest, context: _Context) -> TradeReport:
        """Something new: reserved, told, and on its way; or RefusedError."""
        account, settings = asked.account, self.settings
        plan = plan_entry(self.view, account, request, settings.collar_bp, context.deadline, work.now)
        self._control(work, plan.wanted(account), context)
        if plan.bound_price is None:
            raise RefusedError(Reason.REFERENCE, "a market order needs a reference price, and there is none yet")
        number = work.next_order(account, self.view.floor.highest.get(account, 0) - order_id(account, 0) + 1)
        if number >= _NUMBERS:
            raise RefusedError(Reason.OPEN_ORDERS, "this account has used up its numbers: open another")
        maker, taker = settings.fees.get(plan.symbol, settings.fee_bp)
        life = OrderLife(
            order_id(account, number),
            account,
            request.client_id,
            plan.symbol,
            plan.side,
            plan.quantity,
            plan.bound_price,
            plan.kind,
            plan.lifetime,
            plan.price,
            plan.trigger,
            max(maker, taker),
        )
        payload = _payload(plan.event(life.id))
        currency = self.currency_of(plan.symbol)
        order = OpenOrder(life, currency, maker, taker, plan.owner, asked.session, work.now, target=plan.target)
        try:
            work.bind(Move(holder_of(life.id), account, order.asset, life.bound))
        except LedgerError as error:
            raise _refusal(error, life.side) from None
        work.add(order)
        return self._sent(work, asked, payload, life, ReportKind.ACCEPTED)

    def _sent(
        self, work: Work, asked: Asked, payload: bytes, life: OrderLife, kind: ReportKind, change: Change | None = None
    ) -> TradeReport:
        """Put an event into the outbox, and tell its trader."""
        work.events.append(payload)
        request = asked.request
        report = life.report(kind, work.now, work.next_report(life.account))
        if change is not None:
            report = report._replace(client_id=change.client_id, original_id=life.client_id)
        report = work.tell(report, waits=True)
        name = "new" if change is None else change.kind.value
        known = KnownRequest(name, asked.digest, split_id(life.id)[1], report.number)
        work.ask(asked.account, request.client_id, known, change)
        return report

    def _control(self, work: Work, wanted: Wanted, context: _Context, order: OrderLife | None = None) -> None:
        limits = context.limits.get(wanted.account) or self.settings.limits
        found = first_refusal(
            wanted,
            limits,
            work.count_live(wanted.account),
            context.blocks,
            lambda: self._rate.allows(wanted.account, limits.rate, work.now),
        )
        if found is not None:
            raise RefusedError(found.reason, found.text, order)

    def _reserve(self, work: Work, order: OpenOrder, key: str, amount: int) -> None:
        life = order.life
        try:
            work.post(reserve(key, holder_of(life.id), life.account, order.asset, amount))
        except LedgerError as error:
            raise _refusal(error, life.side) from None

    # Changes ----------------------------------------------------------------------------------------------------

    def _meant(self, work: Work, account: int, original_id: str) -> OpenOrder:
        """The live order that a change is about, as a copy; or RefusedError."""
        known = work.request(account, original_id)
        unknown = "there is no live order of that id"
        if known is None or not known.number:
            raise RefusedError(Reason.UNKNOWN_ORDER, unknown)
        order = work.order(order_id(account, known.number))
        if order is None or not order.life.is_live:
            life = order.life if order is not None else self._closed(work.connection, account, known.number)
            raise RefusedError(Reason.UNKNOWN_ORDER, unknown, life)
        if len(order.life.changes) >= _CHANGES_OPEN:
            text = "too many changes of this order are under way: wait for their answers"
            raise RefusedError(Reason.UNAVAILABLE, text, order.life)
        work.hold(order)
        return order.copy()

    def _closed(self, connection: Connection, account: int, number: int) -> OrderLife | None:
        query = f"SELECT {ORDER_COLUMNS} FROM orders WHERE account = ? AND number = ?"  # noqa: S608 - our own names
        return next((order_of(row).life for row in rows_of(connection, query, (account, number))), None)

    def _insist_on(self, work: Work, order: int) -> None:
        """LedgerError where an order of this gateway stands in the sequence, and was never in these books."""
        account, number = split_id(order)
        if self.refuses_unknown and self._closed(work.connection, account, number) is None:
            place = self._database.place
            text = (
                f"the sequence has order {number} of account {account}, which {place} does not: these books are older"
                " than the sequence, such as from a backup. Restore the newest copy; what it lacks, nobody has reserved"
            )
            raise LedgerError(LedgerFault.UNSOUND, text)

    def _cancel(self, work: Work, asked: Asked, request: CancelRequest) -> TradeReport:
        order = self._meant(work, asked.account, request.original_id)
        _check_unchanged(order.life, request.unchanged, "is it the order that is meant?")
        change = Change(request.client_id, ChangeKind.CANCEL, request.quantity or None)
        order.life.begin_change(change)
        payload = _payload(Cancel(order.life.id, asked.account, request.quantity))
        work.put(order)
        return self._sent(work, asked, payload, order.life, ReportKind.CANCEL_PENDING, change)

    def _reveal(self, work: Work, asked: Asked, request: RevealRequest) -> TradeReport:
        """Open a sealed bid; never before its lot is closed, because then everybody could read it."""
        order = self._meant(work, asked.account, request.original_id)
        life, lot = order.life, self.view.floor.lots.get(order.target)
        if life.kind is not OrderKind.SEALED_BID:
            raise RefusedError(Reason.MALFORMED, f"original_id: a {life.kind} has nothing to reveal", life)
        if lot is None or max(work.now, self.view.floor.at) < lot.lot.closes_at:
            raise RefusedError(Reason.WRONG_PHASE, "the lot still takes bids: reveal when it is closed", life)
        change = Change(request.client_id, ChangeKind.REVEAL, price=request.price)
        life.begin_change(change)
        payload = _payload(Reveal(life.id, asked.account, request.price, bytes.fromhex(request.nonce)))
        work.put(order)
        return self._sent(work, asked, payload, life, ReportKind.REVEAL_PENDING, change)

    def _replace(self, work: Work, asked: Asked, request: ReplaceRequest, context: _Context) -> TradeReport:
        order = self._meant(work, asked.account, request.original_id)
        life = order.life
        if life.kind in (OrderKind.OFFER, OrderKind.TAKE, OrderKind.LOT, OrderKind.BID, OrderKind.SEALED_BID):
            raise RefusedError(Reason.MALFORMED, f"a {life.kind} cannot be replaced: cancel it, and give another", life)
        _check_unchanged(life, request.unchanged, "a replace does not change it: cancel it, and give another")
        has_price = life.kind in (OrderKind.LIMIT, OrderKind.STOP_LIMIT)
        if request.price is not None and not has_price:
            raise RefusedError(Reason.MALFORMED, f"price: a {life.kind} order has none", life)
        if request.trigger is not None and life.kind not in (OrderKind.STOP, OrderKind.STOP_LIMIT):
            raise RefusedError(Reason.MALFORMED, f"trigger: a {life.kind} order has none", life)
        price = request.price
        if request.trigger is not None and not has_price:
            price = self._protection(life, request.trigger)
        self._control_change(work, order, request, price, context)
        change = Change(request.client_id, ChangeKind.REPLACE, request.quantity, price, request.price, request.trigger)
        try:
            more = life.begin_change(change)
        except LocalProtocolError as error:
            raise RefusedError(Reason.UNAVAILABLE, str(error), life) from None
        payload = _payload(Replace(life.id, asked.account, request.quantity, price, request.trigger))
        # Trades that are not stable may be lost: then this replace meets an order of which less is filled.
        slack = work.most_needed(order) - order.reserved
        if slack > 0:
            order.add_due(work.position.token, slack)
            more += slack
        if more:
            try:
                self._reserve(work, order, f"order/{life.id}/{request.client_id}", more)
            except RefusedError as refusal:
                refusal.order = work.order(life.id).life  # type: ignore[union-attr]  # as it was found above
                raise
        work.put(order)
        return self._sent(work, asked, payload, life, ReportKind.REPLACE_PENDING, change)

    def _protection(self, life: OrderLife, trigger: int) -> int:
        state = self.view.symbol(life.symbol)
        if state is None:
            raise RefusedError(Reason.UNKNOWN_SYMBOL, "there is no such symbol on this floor", life)
        collar = state.terms.collar_bp or self.settings.collar_bp
        return max(state.terms.tick, protection_price(life.side, trigger, collar, state.terms.tick))

    def _control_change(
        self, work: Work, order: OpenOrder, request: ReplaceRequest, price: int | None, context: _Context
    ) -> None:
        life, state = order.life, self.view.symbol(order.life.symbol)
        trigger = life.trigger if request.trigger is None else request.trigger
        reference = state.reference if state is not None else None
        wanted = Wanted(
            life.account,
            order.owner,
            life.side,
            life.total if request.quantity is None else request.quantity,
            life.bound_price if price is None else price,
            request.price is not None,
            reference if trigger is None else trigger,
            is_new=False,
        )
        self._control(work, wanted, context, life)

    def cancel_all(
        self, account: int, now: int, *, client_id: str = "", symbol: str | None = None, session: str | None = None
    ) -> int:
        """A CANCEL for every live order of an account, or those of a symbol or a session: how many, once per id."""
        if client_id and not is_client_id(client_id):
            raise LocalProtocolError("a client id has from 1 to 64 printable ASCII characters")
        digest = blake2b(f"all/{symbol or ''}".encode(), digest_size=16).hexdigest()
        known: KnownRequest | None = None
        with self._work(now) as work:
            if client_id:
                work.know_requests([(account, client_id)])
                known = work.request(account, client_id)
            meant = [
                order.life.id
                for order in (work.live_orders(account) if known is None else ())
                if symbol in (None, order.life.symbol) and session in (None, order.session)
            ]
            work.events += [encode_event(Cancel(number, account)) for number in meant]
            if client_id and known is None:
                work.ask(account, client_id, KnownRequest(_CANCEL_ALL, digest, 0, len(meant)))
        if known is None:
            return len(meant)
        # Behind the transaction: one that fails is read again, with all orders that are open.
        if (known.kind, known.digest) != (_CANCEL_ALL, digest):
            raise LocalProtocolError(f"client id {client_id} was used for something else: take another")
        return known.answer

    def kill(self, block: Block, now: int) -> int:
        """Stop an account, a customer or the gateway, and cancel what lives of it: how many orders."""
        with self._work(now) as work:
            count = kill_in(work.connection, block, now)
        self._memory.blocks = None
        self.refresh(now)
        return count

    # The sequence -----------------------------------------------------------------------------------------------

    @property
    def position(self) -> Position:
        """How far the sequence was applied, and is on the disk."""
        return self._memory.position

    @property
    def is_behind(self) -> bool:
        """Whether the sequence has not been heard again as far as it was known."""
        return self.view.newest < self._memory.position.token

    @property
    def foreign(self) -> int:
        """Events about this gateway's accounts that it has not sent, and steps that contradict its books: an alarm."""
        return self._steps.foreign

    @property
    def has_frees(self) -> bool:
        """Whether a later token would free something."""
        return bool(self.settings.stable_tokens) and self._memory.awaits_token

    def take(self, outcomes: Sequence[TokenOutcome], now: int, stripe: int = 0) -> list[int]:
        """Apply tokens, each once however often it is given: the accounts that have something to hear."""
        with self._work(now) as work:
            last, followed = 0, self._followed
            for outcome in outcomes:
                take_back_lost(work, self.settings.floor, outcome, followed)
                followed = outcome.token
                if outcome.token > work.position.token:
                    with work.token(outcome.token, outcome.digest):
                        self._steps.apply(work, outcome, self.view.floor.next_trade - 1)
                    last = outcome.token
                    work.position = work.position._replace(
                        stripe=stripe, sequence=outcome.sequence, token=outcome.token
                    )
            if last:
                self._steps.settle(work, outcomes[-1].instant)
                work.forget_past()
                if last >= self._snapshot_at + self.settings.snapshot_tokens:
                    self._keep_floor(work)
        self._followed = followed
        self.busted += sum(report.kind is ReportKind.BUSTED for report, _ in work.reports)
        return list(dict.fromkeys(report.account for report, _ in work.reports))

    def keep_floor(self, now: int) -> None:
        """Keep the floor as it is: a restart goes on from here."""
        with self._work(now) as work:
            self._keep_floor(work)

    def _keep_floor(self, work: Work) -> None:
        body, state = self.view.snapshot()
        if self.view.newest != work.position.token:
            return  # The floor is ahead of the tables: the next time.
        floor, stable = self.settings.floor, work.position.stable_token
        token = work.position.token
        # Those that may be lost go with what is newer than the newest that may not.
        stale = (
            "DELETE FROM floor_snapshots WHERE floor = ? AND (token >= ? OR token <"
            " (SELECT max(s.token) FROM floor_snapshots s WHERE s.floor = ? AND s.token <= ?))"
        )
        execute(work.connection, stale, (floor, token, floor, stable))
        execute(
            work.connection,
            "INSERT INTO floor_snapshots (floor, token, sequence, state, body) VALUES (?, ?, ?, ?, ?)",
            (floor, token, work.position.sequence, state.hex(), body),
        )
        self._snapshot_at = token


def _check_unchanged(life: OrderLife, said: Unchanged | None, advice: str) -> None:
    """RefusedError where a change says that its order is another than it is: it would not be what was meant."""
    if said is None:
        return
    pairs = (
        ("symbol", said.symbol, life.symbol),
        ("side", said.side, life.side),
        ("kind", said.kind or life.kind, life.kind),
        ("lifetime", said.lifetime or life.lifetime, life.lifetime),
    )
    for name, wanted, is_now in pairs:
        if wanted != is_now:
            text = f"{name}: the order's is {is_now}, not {wanted}: {advice}"
            raise RefusedError(Reason.MALFORMED, text, life)


def _refusal(error: LedgerError, side: Side) -> Exception:
    """Why nothing can be reserved, in a trader's words; the error itself where it is none of his."""
    reason = {
        LedgerFault.SHORT: Reason.FUNDS if side is Side.BUY else Reason.SHARES,
        LedgerFault.FROZEN: Reason.BLOCKED,
        LedgerFault.AMOUNT: Reason.VALUE,
    }.get(error.fault)
    return error if reason is None else RefusedError(reason, str(error))


class _Context(NamedTuple):
    limits: Mapping[int, Limits | None]
    blocks: list[Block]
    deadline: int | None
    """Until when what is accepted now may enter the floor."""


def _payload(event: Event) -> bytes:
    """As it goes into the sequence; RefusedError where it does not fit."""
    try:
        return encode_event(event)
    except LocalProtocolError as reason:
        raise RefusedError(Reason.MALFORMED, "a field is out of the floor's range") from reason


class _BooksState(NamedTuple):
    """What a transaction compares with what the gateway remembers."""

    generation: int | None
    last_batch: int
    last_entry: int
    mark: str


def _state_of(connection: Connection) -> _BooksState:
    query = (
        "SELECT (SELECT generation FROM lease WHERE name = ?), (SELECT max(batch) FROM outbox),"
        " (SELECT max(number) FROM entries), (SELECT value FROM settings WHERE name = ?)"
    )
    [(generation, batch, entry, mark)] = rows_of(connection, query, (_LEASE, WRITER))
    return _BooksState(generation, batch or 0, entry or 0, mark or "")
