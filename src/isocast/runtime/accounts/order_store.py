"""Orders, client ids, reports and the outbox in their tables; and one transaction's changes to them.

A transaction (`Work`) changes the orders that the gateway remembers, notes how each was before, and writes at its end
what is another. One that fails leaves nothing in the database, and memory in doubt: whoever ran it reads all again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from json.encoder import encode_basestring_ascii as quoted
from secrets import token_bytes
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from isocast.orders.accounts import shares
from isocast.orders.controls import Block, Limits
from isocast.orders.desk import Lifetime, OrderKind, OrderStatus, Reason, ReportKind, TradeReport
from isocast.orders.ledger import Entry, Ledger, Leg, Move, Reservation
from isocast.orders.life import Change, ChangeKind, OrderLife
from isocast.orders.needs import Side
from isocast.runtime.accounts.posting import (
    execute,
    execute_many,
    ledger_at,
    lookup,
    posted_before,
    rows_of,
    scalar,
    write_entries,
)
from isocast.terms.errors import LocalProtocolError

__all__ = [
    "ORDER_COLUMNS",
    "REFUSED_KINDS",
    "REPLACE_KINDS",
    "REPORTS_TOGETHER",
    "Batch",
    "Due",
    "Image",
    "KnownRequest",
    "OpenOrder",
    "OrderMemory",
    "PastToken",
    "Position",
    "Work",
    "holder_of",
    "is_order",
    "order_id",
    "order_of",
    "put_in_outbox",
    "read_batches",
    "report_body",
    "reports_of",
    "split_id",
]

_NUMBER_BITS: Final = 32
_PLAIN: Final[Mapping[str, str]] = {
    str(member): str(member) for kind in (Side, OrderKind, Lifetime, OrderStatus) for member in kind
}
"""The text of an enumeration's member, as drivers take it without asking what it is."""
REFUSED_KINDS: Final = ("refused", "declined")
"""Of a client id whose request the gateway refused: any, and a replace."""
REPLACE_KINDS: Final = (ChangeKind.REPLACE.value, REFUSED_KINDS[1])
"""Of one that was a replace: taken, and refused."""
_NO, _YES = 0, 1
"""Of a new row, for the same reason."""
_HOLDER: Final = "order/"
_NEVER: Final = 1 << 64
_ENCODE: Final = json.JSONEncoder(separators=(",", ":")).encode
_ASK: Final = (
    "INSERT INTO requests (account, client_id, kind, digest, number, answer, is_pending) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_ASK_CHANGE: Final = (
    "INSERT INTO requests (account, client_id, kind, digest, number, answer, is_pending, quantity, bound_price, price,"
    " trigger_price) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_ANSWER: Final = "UPDATE requests SET is_pending = FALSE WHERE account = ? AND client_id = ?"
_REOPEN: Final = "UPDATE requests SET is_pending = TRUE WHERE account = ? AND client_id = ?"
_MOVE: Final = "UPDATE orders SET status = ?, filled = ?, filled_value = ? WHERE account = ? AND number = ?"
_END: Final = (
    "UPDATE orders SET status = ?, filled = ?, filled_value = ?, is_open = FALSE WHERE account = ? AND number = ?"
)
_CHANGE: Final = (
    "UPDATE orders SET client_id = ?, total = ?, bound_price = ?, price = ?, trigger_price = ?, is_open = ?,"
    " status = ?, filled = ?, filled_value = ? WHERE account = ? AND number = ?"
)
"""Of most orders the sequence changes no more than the first of these writes, and the index of open ones stays."""
_TELL: Final = "INSERT INTO reports (account, number, batch, body) VALUES (?, ?, ?, ?)"
REPORTS_TOGETHER: Final = 64
"""Reports of one row: some 16 KB, which whoever asks for one of them reads."""


def order_id(account: int, number: int) -> int:
    """An order's id in the sequence (settlement 11)."""
    return account << _NUMBER_BITS | number


def split_id(order: int) -> tuple[int, int]:
    """Account and number of an order."""
    return order >> _NUMBER_BITS, order & (1 << _NUMBER_BITS) - 1


def holder_of(order: int) -> str:
    """Whose reservation it is, as the ledger says it."""
    return f"{_HOLDER}{order}"


def is_order(holder: str) -> bool:
    """Whether a reservation is an order's."""
    return holder.startswith(_HOLDER)


# What is remembered -------------------------------------------------------------------------------------------------


class Due(NamedTuple):
    """What the sequence has decided about an order and is not stable: a trade to settle, or something to free."""

    place: int
    token: int
    trade: int
    """Its number; 0: nothing was traded, `amount` is to be freed."""
    quantity: int
    price: int
    fee: int
    amount: int
    """Bound for it until then."""
    forfeit: int = 0
    """Money that goes to the seller of a lot because a bid was not revealed; negative: that comes to him."""
    bid: int = 0
    """Whose forfeit it is."""
    version: int = 0
    """Of a settled trade that operators have corrected: which one it makes, with this quantity and price."""

    @property
    def waits_for_token(self) -> bool:
        """Whether it is posted once its token is stable; else, once its trade is confirmed."""
        return not self.trade or self.version > 0

    def is_stable(self, confirmed: int, stable_token: int) -> bool:
        """Whether it may be posted."""
        return self.token <= stable_token if self.waits_for_token else self.trade <= confirmed


@dataclass(slots=True)
class OpenOrder:
    """An order that lives, or of which something is not settled."""

    life: OrderLife
    currency: str
    """The asset: cash:USD."""
    maker_bp: int
    taker_bp: int
    owner: int
    session: str
    entered_ns: int
    dues: tuple[Due, ...] = ()
    places: int = 0
    """How many dues it ever had."""
    target: int = 0
    """The offer that it takes, or the lot that it bids for; 0: neither."""

    @property
    def assets(self) -> tuple[str, str]:
        """What it moves when it trades."""
        return self.currency, shares(self.life.symbol)

    @property
    def asset(self) -> str:
        """What it binds: money, or shares."""
        return self.currency if self.life.side is Side.BUY else shares(self.life.symbol)

    @property
    def terms(self) -> tuple[str, int, int, int | None, int | None]:
        """What a replace changes, as its row and its image have it."""
        life = self.life
        return life.client_id, life.total, life.bound_price, life.price, life.trigger

    @property
    def reserved(self) -> int:
        """All that it binds: for what is left, and for what is not stable."""
        return self.life.bound + sum([due.amount for due in self.dues])

    @property
    def waits_for(self) -> tuple[int, int]:
        """The first trade of which it is to be said that it is confirmed, and the first token to be stable."""
        trade = token = _NEVER
        for due in self.dues:
            if due.waits_for_token:
                token = min(token, due.token)
            else:
                trade = min(trade, due.trade)
        return trade, token

    @property
    def is_open(self) -> bool:
        """Whether anything is to come: a trade, a settlement, or the answer to a change."""
        return self.life.is_live or bool(self.dues) or bool(self.life.changes)

    def copy(self) -> OpenOrder:
        """To be changed, and thrown away if the transaction fails."""
        return OpenOrder(
            self.life.copy(),
            self.currency,
            self.maker_bp,
            self.taker_bp,
            self.owner,
            self.session,
            self.entered_ns,
            self.dues,
            self.places,
            self.target,
        )

    def add_due(
        self, token: int, amount: int, *, trade: int = 0, quantity: int = 0, price: int = 0, fee: int = 0
    ) -> None:
        """Something becomes due once its token is stable."""
        if trade or amount:
            self._add(Due(0, token, trade, quantity, price, fee, amount))

    def add_forfeit(self, token: int, amount: int, forfeit: int, bid: int) -> None:
        """A forfeit goes, or comes where it is negative, once its token is stable."""
        self._add(Due(0, token, 0, 0, 0, 0, amount, forfeit, bid))

    def add_correction(self, token: int, trade: int, version: int, quantity: int, price: int) -> None:
        """A settled trade gets another quantity and price, once its token is stable; it binds nothing."""
        self._add(Due(0, token, trade, quantity, price, 0, 0, version=version))

    def _add(self, due: Due) -> None:
        self.places += 1
        self.dues = (*self.dues, due._replace(place=self.places))

    # What may be lost -------------------------------------------------------------------------------------------

    def image(self) -> Image:
        """It as it is, as far as tokens change it."""
        life = self.life
        return Image(
            life.client_id,
            life.total,
            life.bound_price,
            life.price,
            life.trigger,
            life.status,
            life.filled,
            life.filled_value,
            life.changes,
            self.dues,
        )

    def differs(self, image: Image) -> bool:
        """Whether tokens have changed it since; what most of them change is asked first."""
        life = self.life
        return (
            life.status is not image.status
            or life.filled != image.filled
            or self.dues != image.dues
            or life.changes != image.changes
            or life.filled_value != image.filled_value
            or self.terms != image[:_TERMS]
        )

    def put_back(self, image: Image, changes: tuple[Change, ...]) -> None:
        """As it was before some tokens, with these changes under way; what was settled since stays settled."""
        life, before = self.life, replace(self.life)
        before.client_id, before.total, before.bound_price, before.price, before.trigger = image[:5]
        before.status, before.filled, before.filled_value = image[5:8]
        life.put_back(before, changes)
        self.dues = tuple([due for due in image.dues if due in self.dues])


class Image(NamedTuple):
    """An order before a token that is not stable."""

    client_id: str
    total: int
    bound_price: int
    price: int | None
    trigger: int | None
    status: OrderStatus
    filled: int
    filled_value: int
    changes: tuple[Change, ...]
    dues: tuple[Due, ...]


_TERMS, _STEPS = 5, 8
"""The first fields of an image: what a replace changes; and behind them, what most steps of the sequence change."""


class PastToken(NamedTuple):
    """A token that was applied and is not stable."""

    digest: str
    """Of what it carried."""
    images: dict[int, Image]
    """How the orders were before it that it changed."""

    def body(self) -> str:
        """As its table has it."""
        return _ENCODE([[number, *image] for number, image in self.images.items()])

    @classmethod
    def read(cls, digest: str, body: str) -> PastToken:
        """The same from its table."""
        images = {}
        for number, *fields in json.loads(body):
            changes = tuple([Change(one[0], ChangeKind(one[1]), *one[2:]) for one in fields[8]])
            dues = tuple([Due(*one) for one in fields[9]])
            raw = Image(*fields)
            images[number] = raw._replace(status=OrderStatus(raw.status), changes=changes, dues=dues)
        return cls(digest, images)


class Position(NamedTuple):
    """How far the sequence was applied."""

    stripe: int = 0
    sequence: int = 0
    token: int = 0
    confirmed: int = 0
    """All trades up to this number are confirmed."""
    stable_token: int = 0
    """An arbiter has reported this token, or a later one: what it freed may be freed."""


class Batch(NamedTuple):
    """Events for the sequence, under a key."""

    number: int
    key: bytes
    payloads: tuple[bytes, ...]


class KnownRequest(NamedTuple):
    """A client id that was used."""

    kind: str
    digest: str
    number: int
    """Of the order; 0: none."""
    answer: int
    """The number of the report that was the answer; of a cancel of all orders, how many."""


@dataclass(slots=True)
class OrderMemory:
    """What a gateway remembers of its tables, as of the last commit."""

    orders: dict[int, OpenOrder] = field(default_factory=dict)
    """All that are open, by id, oldest first."""
    live: dict[int, dict[int, None]] = field(default_factory=dict)
    """The ids of live orders of each account."""
    due: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The ids of orders with something due, and what is waited for first: which trade's confirmation, which token."""
    numbers: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Of accounts that were asked for: the last order's number, the last report's."""
    position: Position = field(default_factory=Position)
    past: dict[int, PastToken] = field(default_factory=dict)
    """Tokens that are not stable, oldest first."""
    last_batch: int = 0
    ledger: Ledger = field(default_factory=Ledger)
    """What accounts have, may owe, and who is frozen, of those that were asked for: nobody else posts unseen."""
    places: dict[tuple[int, str], None] = field(default_factory=dict)
    """Of which accounts and assets the ledger knows that."""
    last_entry: int = 0
    """The newest entry that is in the ledger's balances."""
    mark: str = ""
    """What the database was marked with when these were read: another one says that an operator has changed it."""
    limits: dict[int, Limits | None] = field(default_factory=dict)
    """Controls of accounts that were asked for; None: they have none of their own."""
    blocks: list[Block] | None = None
    """Kill switches that are on; None: not read."""

    def forget_accounts(self, mark: str, last_entry: int) -> None:
        """Somebody else has written, or too much is known: accounts are read again."""
        self.ledger, self.places = Ledger(), {}
        self.limits, self.blocks = {}, None
        self.mark, self.last_entry = mark, last_entry

    def take(self, order: OpenOrder) -> None:
        """An order as a commit left it."""
        life = order.life
        number, is_live = life.id, life.is_live
        if is_live or order.is_open:
            self.orders[number] = order
        else:
            self.orders.pop(number, None)
        of_account = self.live.get(life.account)
        if is_live:
            if of_account is None:
                of_account = self.live[life.account] = {}
            of_account[number] = None
        elif of_account is not None:
            of_account.pop(number, None)
            if not of_account:
                del self.live[life.account]
        if order.dues:
            self.due[number] = order.waits_for
        else:
            self.due.pop(number, None)

    @property
    def awaits_token(self) -> bool:
        """Whether something is due that a later token makes stable."""
        return any(token != _NEVER for _, token in list(self.due.values()))

    @classmethod
    def read(cls, connection: Connection, floor: str) -> OrderMemory:
        """All that is open."""
        memory = cls()
        for order in _read_orders(connection):
            memory.take(order)
        query = "SELECT stripe, sequence, token, confirmed, stable_token FROM position WHERE floor = ?"
        for row in rows_of(connection, query, (floor,)):
            memory.position = Position(*row)
        query = "SELECT token, digest, body FROM past WHERE floor = ? ORDER BY token"
        for token, digest, body in rows_of(connection, query, (floor,)):
            memory.past[token] = PastToken.read(digest, body)
        memory.last_batch = scalar(connection, "SELECT max(batch) FROM outbox") or 0
        return memory


ORDER_COLUMNS: Final = (
    "account, number, client_id, symbol, side, kind, lifetime, total, price, trigger_price, bound_price, currency,"
    " maker_bp, taker_bp, owner, session, entered_ns, status, filled, filled_value, target"
)


def _read_orders(connection: Connection) -> Iterator[OpenOrder]:
    changes: dict[int, list[Change]] = {}
    pending = (
        "SELECT account, number, client_id, kind, quantity, bound_price, price, trigger_price FROM requests"
        " WHERE is_pending ORDER BY account, answer"
    )
    for account, number, client_id, kind, *values in rows_of(connection, pending):
        changes.setdefault(order_id(account, number), []).append(Change(client_id, ChangeKind(kind), *values))
    dues: dict[int, list[Due]] = {}
    query = (
        "SELECT account, number, place, token, trade, quantity, price, fee, amount, forfeit, bid, version FROM dues"
        " ORDER BY place"
    )
    for account, number, *rest in rows_of(connection, query):
        dues.setdefault(order_id(account, number), []).append(Due(*rest))
    query = f"SELECT {ORDER_COLUMNS} FROM orders WHERE is_open ORDER BY account, number"  # noqa: S608 - our own names
    for row in rows_of(connection, query):
        number = order_id(row[0], row[1])
        yield order_of(row, tuple(changes.get(number, ())), tuple(dues.get(number, ())))


def order_of(row: Sequence[Any], changes: tuple[Change, ...] = (), dues: tuple[Due, ...] = ()) -> OpenOrder:
    """An order as its table has it."""
    account, number, client_id, symbol, side, kind, lifetime, total, price, trigger, bound_price = row[:11]
    currency, maker, taker, owner, session, entered, status, filled, filled_value, target = row[11:]
    life = OrderLife(
        id=order_id(account, number),
        account=account,
        client_id=client_id,
        symbol=symbol,
        side=Side(side),
        total=total,
        bound_price=bound_price,
        kind=OrderKind(kind),
        lifetime=Lifetime(lifetime),
        price=price,
        trigger=trigger,
        fee_bp=max(maker, taker),
        status=OrderStatus(status),
        filled=filled,
        filled_value=filled_value,
        changes=changes,
    )
    places = max((due.place for due in dues), default=0)
    return OpenOrder(life, currency, maker, taker, owner, session, entered, dues, places, target)


# Reports as text ----------------------------------------------------------------------------------------------------


def report_body(report: TradeReport) -> str:
    """A report as its table has it: a row of JSON, written by hand because every step of every order is one."""
    number, account, kind, status, client_id, original, order, symbol, side, kind_of_order, lifetime = report[:11]
    quantity, filled, value, left, price, trigger, at, sequence, trade, last_quantity, last_price = report[11:22]
    reason, text = report[22:]
    return (
        f'[{number},{account},"{kind}","{status}",{quoted(client_id)},{quoted(original)},{order},{quoted(symbol)},'
        f'"{side}","{kind_of_order}","{lifetime}",{quantity},{filled},{value},{left},'
        f"{'null' if price is None else price},{'null' if trigger is None else trigger},{at},{sequence},{trade},"
        f"{last_quantity},{last_price},{'null' if reason is None else quoted(reason)},{quoted(text)}]"
    )


def _report_rows(told: Iterable[tuple[TradeReport, int]]) -> list[tuple[object, ...]]:
    """Reports with the batches that they wait for, as rows: what an account is told at once is one of them."""
    rows: list[tuple[int, int, list[int], list[str]]] = []
    last: dict[int, tuple[int, int, list[int], list[str]]] = {}
    for report, batch in told:
        number, account = report[:2]
        row = last.get(account)
        if row is None or row[1] != batch or len(row[2]) == REPORTS_TOGETHER:
            row = last[account] = account, batch, [], []
            rows.append(row)
        row[2].append(number)
        row[3].append(report_body(report))
    return [(account, numbers[-1], batch, f"[{','.join(bodies)}]") for account, batch, numbers, bodies in rows]


def reports_of(body: str) -> list[TradeReport]:
    """The reports of a row, in order. Until version 0006 a row was one report, without a list around it."""
    rows = json.loads(body)
    return [_report_of(row) for row in (rows if isinstance(rows[0], list) else [rows])]


def _report_of(row: list[Any]) -> TradeReport:
    raw = TradeReport(*row)
    return raw._replace(
        kind=ReportKind(raw.kind),
        status=OrderStatus(raw.status),
        side=Side(raw.side),
        kind_of_order=OrderKind(raw.kind_of_order),
        lifetime=Lifetime(raw.lifetime),
        reason=None if raw.reason is None else Reason(raw.reason),
    )


# The outbox ---------------------------------------------------------------------------------------------------------


def put_in_outbox(connection: Connection, payloads: Sequence[bytes]) -> Batch:
    """A batch for the sequence, behind all others, under a key that nobody else has."""
    number = (scalar(connection, "SELECT max(batch) FROM outbox") or 0) + 1
    batch = Batch(number, token_bytes(16), tuple(payloads))
    body = b"".join([len(payload).to_bytes(2) + payload for payload in payloads])
    statement = "INSERT INTO outbox (batch, key, body, published) VALUES (?, ?, ?, ?)"
    execute(connection, statement, (number, batch.key.hex(), body, False))
    return batch


def read_batches(connection: Connection, after: int) -> list[Batch]:
    """What is not marked as published, beyond a batch, oldest first."""
    query = "SELECT batch, key, body FROM outbox WHERE NOT published AND batch > ? ORDER BY batch"
    return [
        Batch(number, bytes.fromhex(key), tuple(_payloads(bytes(body))))
        for number, key, body in rows_of(connection, query, (after,))
    ]


def _payloads(body: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(body):
        end = at + 2 + int.from_bytes(body[at : at + 2])
        yield body[at + 2 : end]
        at = end


# One transaction ----------------------------------------------------------------------------------------------------


class Work:
    """What one transaction changes."""

    def __init__(self, connection: Connection, memory: OrderMemory, floor: str, now: int) -> None:
        """Nothing yet."""
        self.connection = connection
        self.now = now
        self.position = memory.position
        self.events: list[bytes] = []
        """For the sequence, in this order."""
        self.batch: Batch | None = None
        """Once it is written: what `events` became."""
        self.reports: list[tuple[TradeReport, bool]] = []
        """With whether they wait for the batch."""
        self.past = dict(memory.past)
        self._images: dict[int, Image] | None = None
        self._reopened: list[tuple[int, str]] = []
        self._memory = memory
        self._floor = floor
        self._orders: dict[int, OpenOrder] = {}
        """Those that this transaction has touched, changed where the gateway remembers them."""
        self._before: dict[int, Image] = {}
        """How they were, as the tables have them."""
        self._new: dict[int, OpenOrder] = {}
        self._added: dict[int, int] = {}
        """New orders of each account."""
        self._numbers: dict[int, tuple[int, int]] = {}
        self._requests: list[tuple[object, ...]] = []
        self._changes: list[tuple[object, ...]] = []
        self._asked: dict[tuple[int, str], KnownRequest] = {}
        self._answered: list[tuple[int, str]] = []
        self._ledger = memory.ledger
        """The gateway's own: a transaction that fails leaves it in doubt, and all is read again."""
        self._ledger.begin()
        self._entries: list[Entry | Move] = []

    # Orders -----------------------------------------------------------------------------------------------------

    def order(self, number: int) -> OpenOrder | None:
        """An open order, to be changed; None: there is none of this id."""
        found, image = self._orders.get(number), None
        if found is None:
            found = self._memory.orders.get(number)
            if found is None:
                return None
            self._orders[number] = found
            image = self._before[number] = found.image()
        if self._images is not None and number not in self._images:
            self._images[number] = image or found.image()
        return found

    def closed_order(self, number: int) -> OpenOrder | None:
        """An order of the tables that has ended, to be changed: something of it is corrected. None: there is none."""
        query = f"SELECT {ORDER_COLUMNS} FROM orders WHERE account = ? AND number = ?"  # noqa: S608 - our own names
        for row in rows_of(self.connection, query, split_id(number)):
            self._orders[number] = order_of(row)
        return self.order(number)

    def hold(self, order: OpenOrder) -> None:
        """The ledger learns what an order has bound: before anything is posted for it, and before that is changed."""
        if reserved := order.reserved:
            bound = Reservation(order.life.account, order.asset, reserved)
            self._ledger.reservations.setdefault(holder_of(order.life.id), bound)

    def add(self, order: OpenOrder) -> None:
        """A new order."""
        self._orders[order.life.id] = self._new[order.life.id] = order
        self._added[order.life.account] = self._added.get(order.life.account, 0) + 1

    def put(self, order: OpenOrder) -> None:
        """A copy of an order, changed, takes its place."""
        self._orders[order.life.id] = order
        if order.life.id in self._new:
            self._new[order.life.id] = order

    # Tokens that may be lost ------------------------------------------------------------------------------------

    @contextmanager
    def token(self, number: int, digest: str) -> Iterator[None]:
        """Note how orders were before a token."""
        images = self._images = {}
        yield
        self._images = None
        changed = {one: image for one, image in images.items() if self._orders[one].differs(image)}
        self.past[number] = PastToken(digest, changed)

    def forget_past(self) -> None:
        """What is stable cannot be lost."""
        stable = self.position.stable_token
        self.past = {token: past for token, past in self.past.items() if token > stable}

    def most_needed(self, order: OpenOrder) -> int:
        """What an order may need, whichever of the tokens that are not stable are lost."""
        need, changes = order.reserved, list(order.life.changes)
        for past in reversed(self.past.values()):
            image = past.images.get(order.life.id)
            if image is not None:
                changes = [*image.changes, *[change for change in changes if change not in image.changes]]
                before = order.copy()
                before.put_back(image, tuple(changes))
                need = max(need, before.reserved)
        return need

    def lose(self, after: int) -> dict[int, tuple[Image, tuple[Change, ...]]]:
        """All tokens behind this one are gone: how their orders were, and the changes that were under way since."""
        found: dict[int, tuple[Image, list[Change]]] = {}
        for token in [token for token in self.past if token > after]:
            for number, image in self.past.pop(token).images.items():
                _, changes = found.setdefault(number, (image, []))
                changes += [change for change in image.changes if change not in changes]
        lost = {}
        for number, (image, changes) in found.items():
            order = self.order(number)
            if order is None:
                raise LocalProtocolError(f"order {number} was decided by a token that is gone, and has ended")
            changes += [change for change in order.life.changes if change not in changes]
            self._reopened += [
                (order.life.account, change.client_id) for change in changes if change not in order.life.changes
            ]
            lost[number] = image, tuple(changes)
        return lost

    def with_stable_dues(self) -> list[OpenOrder]:
        """Orders with something that may be posted, to be changed."""
        confirmed, stable, held = self.position.confirmed, self.position.stable_token, self._orders
        known, wanted = self._memory.due, []
        # All that wait are looked at in every token, and most of them wait for many.
        for number, waits in known.items():
            trade, token = held[number].waits_for if number in held else waits
            if trade <= confirmed or token <= stable:
                wanted.append(number)
        for number, order in held.items():
            if order.dues and number not in known:
                trade, token = order.waits_for
                if trade <= confirmed or token <= stable:
                    wanted.append(number)
        orders = [found for number in wanted if (found := self.order(number)) is not None]
        for order in orders:
            self.hold(order)
        # What they will be posted to is read at once: who buys a symbol for the first time would ask for it alone.
        self.know_balances([(order.life.account, asset) for order in orders for asset in order.assets])
        return orders

    def live_orders(self, account: int | None = None) -> list[OpenOrder]:
        """Live orders, of an account or of all, to be looked at."""
        accounts = self._memory.live if account is None else [account]
        known = [number for one in accounts for number in self._memory.live.get(one, ())]
        every = [self._orders.get(number) or self._memory.orders[number] for number in known]
        every += [order for order in self._new.values() if account in (None, order.life.account)]
        return [order for order in every if order.life.is_live]

    def count_live(self, account: int) -> int:
        """How many orders of an account live."""
        return len(self._memory.live.get(account, ())) + self._added.get(account, 0)

    # Numbers ----------------------------------------------------------------------------------------------------

    def know_numbers(self, accounts: Iterable[int]) -> None:
        """Read the last numbers of accounts that were not asked for before."""
        known = self._memory.numbers
        unknown = [(account,) for account in dict.fromkeys(accounts) if account not in known]
        query = (
            "SELECT k0, (SELECT max(number) FROM orders WHERE account = k0),"
            " (SELECT max(number) FROM reports WHERE account = k0) FROM wanted"
        )
        for account, order, report in lookup(self.connection, query, unknown):
            known[account] = order or 0, report or 0

    def next_order(self, account: int, at_least: int) -> int:
        """The number of an account's next order."""
        order, report = self._last(account)
        order = max(order + 1, at_least)
        self._numbers[account] = order, report
        return order

    def next_report(self, account: int) -> int:
        """The number of an account's next report."""
        order, report = self._last(account)
        self._numbers[account] = order, report + 1
        return report + 1

    def _last(self, account: int) -> tuple[int, int]:
        if account not in self._numbers and account not in self._memory.numbers:
            self.know_numbers([account])
        return self._numbers.get(account) or self._memory.numbers[account]

    def tell(self, report: TradeReport, *, waits: bool = False) -> TradeReport:
        """A report under its account's next number, unless it has one."""
        told = report if report.number else report._replace(number=self.next_report(report.account))
        self.reports.append((told, waits))
        return told

    # Requests ---------------------------------------------------------------------------------------------------

    def know_requests(self, ids: Iterable[tuple[int, str]]) -> None:
        """Read which client ids were used, of some (account, client id)."""
        query = (
            "SELECT r.account, r.client_id, r.kind, r.digest, r.number, r.answer FROM wanted"
            " JOIN requests r ON r.account = k0 AND r.client_id = k1"
        )
        for account, client_id, *rest in lookup(self.connection, query, ids):
            self._asked[account, client_id] = KnownRequest(*rest)

    def request(self, account: int, client_id: str) -> KnownRequest | None:
        """What a client id was used for, among those that were read and those of this transaction."""
        return self._asked.get((account, client_id))

    def ask(self, account: int, client_id: str, known: KnownRequest, change: Change | None = None) -> None:
        """A client id is used, and its answer known; that of a change waits for the sequence."""
        self._asked[account, client_id] = known
        if change is None:
            self._requests.append((account, client_id, *known, _NO))
        else:
            self._changes.append((account, client_id, *known, _YES, *change[2:]))

    def answer(self, account: int, client_id: str) -> None:
        """The sequence has answered a change."""
        self._answered.append((account, client_id))

    # The ledger -------------------------------------------------------------------------------------------------

    def know_balances(self, places: Iterable[tuple[int, str]]) -> None:
        """Read what some accounts have of some assets."""
        known = self._memory.places
        unknown = dict.fromkeys([place for place in places if place not in known])
        if unknown:
            known.update(unknown)
            self._ledger.learn(ledger_at(self.connection, unknown))

    def legs_of(self, key: str) -> tuple[Leg, ...]:
        """What was posted under a key, now or before; nothing: it was not."""
        entry = self._ledger.posted(key)
        if entry is not None:
            return entry.legs
        _, legs = posted_before(self.connection, [key]).get(key, ("", []))
        return tuple(legs)

    def limits(self, accounts: Iterable[int]) -> Mapping[int, Limits | None]:
        """The controls of some accounts, among others'."""
        known = self._memory.limits
        unknown = dict.fromkeys([account for account in accounts if account not in known])
        if unknown:
            known.update(unknown)
            query = (
                "SELECT c.account, c.quantity, c.value, c.collar_bp, c.rate, c.open_orders FROM wanted"
                " JOIN controls c ON c.account = k0"
            )
            for account, *rest in lookup(self.connection, query, [(account,) for account in unknown]):
                known[account] = Limits(*rest)
        return known

    def bind(self, move: Move) -> None:
        """Bind what a new order needs, or raise LedgerError and change nothing."""
        if move[1:3] in self._memory.places and self._ledger.bind(move):
            self._entries.append(move)
        else:
            self.post(move.entry())

    def post(self, entry: Entry) -> None:
        """Post an entry, or raise LedgerError and change nothing."""
        self.know_balances([leg[:2] for leg in entry.legs])
        if self._ledger.post(entry):
            self._entries.append(entry)

    # The end ----------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Write everything; the caller commits."""
        if self.events:
            self.batch = put_in_outbox(self.connection, self.events)
        write_entries(self.connection, self._entries, self._ledger, self.now, self._memory.last_entry + 1)
        self._write_orders()
        batch = 0 if self.batch is None else self.batch.number
        told = _report_rows([(report, batch * waits) for report, waits in self.reports])
        for statement, rows in (
            (_ASK, self._requests),
            (_ASK_CHANGE, self._changes),
            (_REOPEN, self._reopened),
            (_ANSWER, self._answered),
            (_TELL, told),
        ):
            execute_many(self.connection, statement, rows)
        if self.past != self._memory.past:
            self._write_past()
        if self.position != self._memory.position:
            self._write_position()

    def _write_position(self) -> None:
        execute(
            self.connection,
            "INSERT INTO position (floor, stripe, sequence, token, confirmed, stable_token) VALUES (?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (floor) DO UPDATE SET stripe = excluded.stripe, sequence = excluded.sequence,"
            " token = excluded.token, confirmed = excluded.confirmed, stable_token = excluded.stable_token",
            (self._floor, *self.position),
        )

    def _write_past(self) -> None:
        before = self._memory.past
        gone = [(self._floor, token) for token in before if self.past.get(token) is not before[token]]
        new = [
            (self._floor, token, past.digest, past.body())
            for token, past in self.past.items()
            if before.get(token) is not past
        ]
        execute_many(self.connection, "DELETE FROM past WHERE floor = ? AND token = ?", gone)
        execute_many(self.connection, "INSERT INTO past (floor, token, digest, body) VALUES (?, ?, ?, ?)", new)

    def _write_orders(self) -> None:
        if self._new:
            execute_many(
                self.connection,
                f"INSERT INTO orders ({ORDER_COLUMNS}, is_open) VALUES ({', '.join('?' * 22)})",  # noqa: S608 - the same
                [_order_row(order) for order in self._new.values()],
            )
        moved, ended, other = [], [], []
        for number, order in self._orders.items():
            if number in self._new:
                continue
            life, before = order.life, self._before.get(number)
            if before is None or order.terms != before[:_TERMS]:
                other.append(_changed_row(order))
            elif not order.is_open:
                ended.append(_step_row(order))
            elif (life.status, life.filled, life.filled_value) != before[_TERMS:_STEPS]:
                moved.append(_step_row(order))
        for statement, rows in ((_MOVE, moved), (_END, ended), (_CHANGE, other)):
            execute_many(self.connection, statement, rows)
        self._write_dues()

    def _write_dues(self) -> None:
        gone: list[tuple[int, ...]] = []
        come: list[tuple[int, ...]] = []
        for number, order in self._orders.items():
            known = self._before.get(number)
            before = () if known is None else known.dues
            if order.dues == before:
                continue
            place = split_id(number)
            gone += [(*place, due.place) for due in before if due not in order.dues]
            come += [(*place, *due) for due in order.dues if due not in before]
        if gone:
            execute_many(self.connection, "DELETE FROM dues WHERE account = ? AND number = ? AND place = ?", gone)
        if come:
            execute_many(
                self.connection,
                "INSERT INTO dues (account, number, place, token, trade, quantity, price, fee, amount, forfeit, bid,"
                " version) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                come,
            )

    def remember(self) -> None:
        """It is committed: what was changed is what the gateway remembers."""
        for order in self._orders.values():
            self._memory.take(order)
        self._memory.numbers.update(self._numbers)
        self._memory.position = self.position
        self._memory.past = self.past
        self._memory.last_entry += len(self._entries)
        if self.batch is not None:
            self._memory.last_batch = self.batch.number


def _order_row(order: OpenOrder) -> tuple[object, ...]:
    life = order.life
    return (
        *split_id(life.id),
        life.client_id,
        life.symbol,
        _PLAIN[life.side],
        _PLAIN[life.kind],
        _PLAIN[life.lifetime],
        life.total,
        life.price,
        life.trigger,
        life.bound_price,
        order.currency,
        order.maker_bp,
        order.taker_bp,
        order.owner,
        order.session,
        order.entered_ns,
        _PLAIN[life.status],
        life.filled,
        life.filled_value,
        order.target,
        _YES,
    )


def _step_row(order: OpenOrder) -> tuple[object, ...]:
    """What most steps of the sequence change."""
    life = order.life
    return _PLAIN[life.status], life.filled, life.filled_value, *split_id(life.id)


def _changed_row(order: OpenOrder) -> tuple[object, ...]:
    return (*order.terms, order.is_open, *_step_row(order))
