"""A sequence in memory, for tests: what gateways publish becomes tokens, which everybody follows; with an arbiter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tests.floor.keys import key_in_order
from tests.orders.report_paths import path_faults

from isocast.floor.codec import encode_event, floor_topic
from isocast.floor.corrections import Correction, correction_topic, encode_correction
from isocast.floor.events import Directory, Event, Phase, Status, Trade
from isocast.floor.following import REPORT_EVERY, FloorMessage
from isocast.floor.machine import Floor
from isocast.floor.reporting import FloorReport, encode_report, report_topic
from isocast.floor.state import state_hash
from isocast.orders.accounts import FEES, UNITS, account_number, cash, shares
from isocast.orders.desk import NewOrder, TradeReport, TradingRequest
from isocast.orders.ledger import Balance, deposit
from isocast.orders.needs import Side
from isocast.runtime.accounts.audit import audit
from isocast.runtime.accounts.book import AccountBook
from isocast.runtime.accounts.floor_view import FloorView, TokenOutcome, tick_topic
from isocast.runtime.accounts.order_store import Batch, reports_of
from isocast.runtime.accounts.posting import rows_of
from isocast.runtime.accounts.requests import Answered, Asked
from isocast.runtime.accounts.tables import AccountsDatabase
from isocast.runtime.accounts.trading import DeskSettings, TradingBooks
from isocast.runtime.disk.database import sqlite_url
from isocast.wire.opaque import OpaqueMessage

FLOOR = "XISO"
USD, IBM = cash("USD"), shares("IBM")
MS = 1_000_000
ROUND = 3
"""Tokens after which one is stable, for those who believe it."""
LISTED = Directory("IBM", tick=100, phase=Phase.OPEN, reference=10 * UNITS)
TokenMessages = tuple[int, int, list[FloorMessage]]


class MemorySequence:
    """Tokens, and the arbiter who reports them: a trade is confirmed by the report of a later token."""

    def __init__(self, *events: Event, clock: Callable[[], int] | None = None) -> None:
        """The events are the operator's: what can be traded. Tokens are a millisecond apart, or by a clock."""
        self.cuts: int = 0
        self._clock = clock or (lambda: (len(self.tokens) + 1) * MS + self.cuts)
        self.tokens: list[TokenMessages] = []
        self.keys: list[bytes] = []
        """Of what was published, each once."""
        self.published: list[bytes] = []
        """Payloads, in the order of the sequence."""
        self._next: list[tuple[str, bytes]] = []
        self._arbiter = FloorView(FLOOR)
        self._standing = 0
        """The last trade of the tokens before."""
        self._steps = 0
        self._last: FloorReport | None = None
        """Of a token with trades."""
        self._sequence = 0
        self._longest = 0
        self._confirmed_at = 0
        """The token of the last trade that a report calls confirmed: it cannot be lost."""
        self._trades_at: dict[int, int] = {}
        self._trades: dict[int, Trade] = {}
        self.say(*events)
        if events:
            self.step()

    @property
    def floor(self) -> Floor:
        """As the arbiter has it."""
        return self._arbiter.floor

    def say(self, *events: Event) -> None:
        """An operator's events, for the next token."""
        self._next += [(floor_topic(FLOOR), encode_event(event)) for event in events]

    def tick(self, tokens: int = 1) -> None:
        """Tokens that say nothing but that they are there."""
        for _ in range(tokens):
            self._next.append((tick_topic(FLOOR), b"tick"))
            self.step()

    def publish(self, payloads: Iterable[bytes], key: bytes) -> None:
        """A batch enters once."""
        if key not in self.keys:
            self.keys.append(key)
            self.published += payloads
            self._next += [(floor_topic(FLOOR), payload) for payload in payloads]

    @property
    def confirmed(self) -> int:
        """All trades up to this number are, as everybody has heard."""
        return self._arbiter.confirmed

    def correction(self, number: int, price: int = 0, quantity: int = 0) -> Correction:
        """The next correction of a trade as it stands; void without a quantity. Nobody asks for signatures here."""
        known = self._arbiter.corrections.standing.get(number)
        version = 1 if known is None else known.version + 1
        trade = self._arbiter.corrections.of(self._trades[number])
        return Correction(trade, version, price, quantity, 1 << 62, "a test")

    def bought(self, account: int) -> int:
        """Shares that all confirmed trades have brought an account, less those that they took, as they stand now."""
        every = [self._arbiter.corrections.of(self._trades[number]) for number in range(1, self.confirmed + 1)]
        sides = [(trade.buy, trade.quantity) for trade in every] + [(trade.sell, -trade.quantity) for trade in every]
        return sum(quantity for order, quantity in sides if order >> 32 == account)

    def correct(self, correction: Correction) -> None:
        """Two operators' correction, for the next token."""
        self._next.append((correction_topic(FLOOR), encode_correction(correction)))

    async def send(self, messages: Sequence[OpaqueMessage], key: bytes) -> None:
        """The same as a publisher does it."""
        assert {message.topic for message in messages} == {floor_topic(FLOOR)}
        self.publish([message.payload for message in messages], key)

    def step(self) -> TokenMessages:
        """The next token, with all that waits; the arbiter hears it, and reports in the one after."""
        token = len(self.tokens) + 1
        self._sequence += 1
        key = key_in_order(floor_topic(FLOOR), self._next)
        made = token, self._clock(), [FloorMessage(self._sequence, *one, key) for one in self._next]
        self.tokens.append(made)
        self._next = []
        outcome = self._heard(made)
        if outcome is None:
            return made
        self._steps += any(message.topic == floor_topic(FLOOR) for message in made[2])
        if self._judged(token, outcome):
            assert self._last is not None
            self._next.append((report_topic(FLOOR), encode_report(self._last)))
        self._standing = self._arbiter.floor.next_trade - 1
        return made

    def _judged(self, token: int, outcome: TokenOutcome) -> bool:
        """Whether a report is due for a token, which is the last one then."""
        trades = tuple([one for step in outcome.steps for one in step.reports if isinstance(one, Trade)])
        if trades:
            self._last = FloorReport(token, state_hash(self._arbiter.floor), self._standing, trades)
        return bool(trades)

    def _heard(self, made: TokenMessages) -> TokenOutcome | None:
        for message in made[2]:
            self._arbiter.hear(made[0], made[1], message)
        outcome = self._arbiter.finish()
        for step in () if outcome is None else outcome.steps:
            trades = [one for one in step.reports if isinstance(one, Trade)]
            self._trades_at |= {one.number: made[0] for one in trades}
            self._trades |= {one.number: one for one in trades}
        for report in () if outcome is None else outcome.believed:
            self._confirmed_at = max(self._confirmed_at, self._trades_at.get(report.confirmed, 0))
        return outcome

    def cut(self, tokens: int) -> int:
        """A reformation loses the last tokens, as far as they may be lost: how many. Sources send all of it again."""
        self._longest = max(self._longest, len(self.tokens))
        keep = max(len(self.tokens) - tokens, self._confirmed_at, self._longest - ROUND + 1)
        lost, self.tokens = self.tokens[keep:], self.tokens[:keep]
        if not lost:
            return 0
        again = [(one.topic, one.payload) for _, _, messages in lost for one in messages] + self._next
        self._next = [one for one in again if one[0] in (floor_topic(FLOOR), correction_topic(FLOOR))]
        self.cuts += 1
        self._arbiter, self._last, self._sequence = FloorView(FLOOR), None, keep
        for made in self.tokens:
            outcome = self._heard(made)
            if outcome is not None:  # Its report may be among what was lost, and is due all the same.
                self._judged(made[0], outcome)
        self._steps = sum(any(one.topic == floor_topic(FLOOR) for one in made[2]) for made in self.tokens)
        self._standing = min(self._standing, self._arbiter.floor.next_trade - 1)
        return len(lost)

    def settle(self) -> None:
        """Tokens until everything is confirmed, and everything before is stable."""
        if self._next:
            self.step()
        # Every hundredth step is reported, whatever it did.
        while self._steps % REPORT_EVERY:
            self.say(Status("NONE", Phase.OPEN))
            self.step()
        last = FloorReport(len(self.tokens), state_hash(self._arbiter.floor), self._standing)
        self._next.append((report_topic(FLOOR), encode_report(last)))
        self.step()

    def confirm(self) -> None:
        """A word that all trades are confirmed, and tokens until what was before is a round old."""
        if self._next:
            self.step()
        if self._last is not None:
            word = self._last._replace(confirmed=self._standing, trades=())
            self._next.append((report_topic(FLOOR), encode_report(word)))
            self.step()
        self.tick(ROUND)


class MemoryGateway:
    """The trading of one gateway on a sequence in memory."""

    def __init__(self, url: str, number: int, names: Sequence[str], settings: DeskSettings | None = None) -> None:
        """Books with some accounts."""
        self.database = AccountsDatabase(url)
        AccountBook.create(self.database, number)
        self.book = AccountBook(self.database)
        self.accounts = [self.book.open(name).number for name in names]
        self.settings = settings
        self.now = 0
        self.pace_ns = 1_000 * MS
        """Between two requests, by its clock."""
        self.restart()

    def restart(self) -> None:
        """As a process that was killed and started again."""
        self.books = TradingBooks(self.database, self.settings)
        self._at = self.books.open(self.now).token
        self._cuts = -1

    def fund(self, account: int, asset: str, amount: int) -> None:
        self.book.post(deposit(f"fund/{account}/{asset}/{amount}", account, asset, amount))

    def ask(self, account: int, *requests: TradingRequest) -> list[TradeReport]:
        """Requests that share a transaction."""
        return [one.report for one in self.answers(account, *requests)]

    def answers(self, account: int, *requests: TradingRequest) -> list[Answered]:
        self.now += self.pace_ns
        return self.books.submit([Asked(account, "s", request) for request in requests], self.now)

    def publish(self, sequence: MemorySequence) -> None:
        for batch in list(self.books.waiting):
            sequence.publish(batch.payloads, batch.key)
            self.books.note_published(batch.number)

    def follow(self, sequence: MemorySequence) -> None:
        """All tokens that it has not heard, in one transaction."""
        outcomes = []
        if sequence.cuts != self._cuts:
            self._at, self._cuts = self.books.rewind().token, sequence.cuts
        for token, instant, messages in sequence.tokens[self._at :]:
            for message in messages:
                self.books.view.hear(token, instant, message)
            outcome = self.books.view.finish()
            outcomes += [] if outcome is None else [outcome]
        self._at = len(sequence.tokens)
        if outcomes:
            self.books.take(outcomes, outcomes[-1].instant)

    def reports(self, account: int) -> list[TradeReport]:
        with self.database.reading() as connection:
            query = "SELECT body FROM reports WHERE account = ? ORDER BY number"
            return [report for (body,) in rows_of(connection, query, (account,)) for report in reports_of(body)]

    def balance(self, account: int, asset: str) -> Balance:
        return {one.asset: one.balance for one in self.book.holdings(account)}.get(asset, Balance(0, 0))

    def gateway_fees(self) -> int:
        return self.balance(account_number(self.book.gateway, FEES), USD).available

    def waiting(self) -> list[Batch]:
        return list(self.books.waiting)

    def check(self) -> None:
        """Balanced, nothing negative, reserved = what lives, reports without gaps, each order's a legal path."""
        self.books.check()
        found = audit(self.database)
        assert found.is_sound, found.findings
        assert not self.books.foreign
        for account in self.accounts:
            told = self.reports(account)
            assert [report.number for report in told] == list(range(1, len(told) + 1))
            by_order: dict[int, list[TradeReport]] = {}
            for report in told:
                if report.order:
                    by_order.setdefault(report.order, []).append(report)
            for reports in by_order.values():
                faults = list(path_faults(reports))
                assert faults == [], [(one.kind, one.status, one.trade) for one in reports]

    def close(self) -> None:
        self.database.close()


def sqlite_place(folder: Path, name: str) -> str:
    return sqlite_url(folder / f"{name}.db")


def trader(gateway: int, place: int = 0) -> int:
    return account_number(gateway, 16 + place)


def limit(client_id: str, side: Side, quantity: int, price: int, symbol: str = "IBM") -> NewOrder:
    """A limit order, at a price in whole units."""
    return NewOrder(client_id, symbol, side, quantity, price=price * UNITS)
