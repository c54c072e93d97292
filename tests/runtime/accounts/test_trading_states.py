"""Any sequence of orders, offers, lots, bids, fills, busts, corrections, cancels and crashes leaves sound books."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import mkdtemp

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.runtime.accounts.sequence import IBM, LISTED, MS, ROUND, USD, MemoryGateway, MemorySequence, sqlite_place

from isocast.floor.codec import decode_event
from isocast.floor.events import Bid, Commit, Lot, Order, Phase, Status, Take
from isocast.floor.rules.dutch_clock import DutchLot
from isocast.floor.rules.second_price import commitment
from isocast.orders.accounts import UNITS
from isocast.orders.controls import DEFAULT_LIMITS, Block, BlockScope
from isocast.orders.desk import (
    BidRequest,
    CancelRequest,
    Lifetime,
    LotKind,
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
    TradingRequest,
)
from isocast.orders.needs import Side
from isocast.runtime.accounts.audit import audit, clearing_of_all
from isocast.runtime.accounts.trading import DeskSettings

PRICES = st.integers(95, 105).map(lambda tenths: tenths * UNITS // 10)
QUANTITIES = st.integers(1, 300)
MONEY, SHARES = 3_000 * UNITS, 400


class Crash(Exception):  # noqa: N818 - it is what happens
    """The process dies here."""


class Trading(RuleBasedStateMachine):
    """Two gateways with two traders each, who are short of money and shares."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(mkdtemp(prefix="isocast-states-"))
        self.market = MemorySequence(LISTED)
        fees = DeskSettings(
            fee_bp=(5, 20), snapshot_tokens=5, stable_tokens=ROUND, limits=DEFAULT_LIMITS._replace(rate=0)
        )
        self.gateways = [
            MemoryGateway(sqlite_place(self.folder, str(number)), number, ["one", "two"], fees) for number in (1, 2)
        ]
        for gateway in self.gateways:
            gateway.pace_ns = 0  # Its clock is behind the floor's: T_t decides what lots do.
            for account in gateway.accounts:
                gateway.fund(account, USD, MONEY)
                gateway.fund(account, IBM, SHARES)
            gateway.follow(self.market)
        self.asked = 0
        self.steps = 0
        self.ids: dict[int, list[str]] = {one: [] for gateway in self.gateways for one in gateway.accounts}
        self.crash_at = ""
        self.secrets: dict[tuple[int, str], int] = {}
        self.known: list[tuple[MemoryGateway, int, TradingRequest, TradeReport]] = []

    def teardown(self) -> None:
        for gateway in self.gateways:
            gateway.check()
            gateway.close()
        shutil.rmtree(self.folder)

    def reach(self, step: str) -> None:
        if step == self.crash_at:
            self.crash_at = ""
            raise Crash

    def answer(self, gateway: MemoryGateway, account: int, request: TradingRequest) -> TradeReport:
        """As a client does that repeats itself until it is answered."""
        gateway.books.reached = self.reach
        try:
            [report] = gateway.ask(account, request)
        except Crash:
            self.restart(gateway)
            [report] = gateway.ask(account, request)
        return report

    def ask(self, gateway: MemoryGateway, account: int, request: TradingRequest) -> None:
        report = self.answer(gateway, account, request)
        assert report.reason is not Reason.CLIENT_ID_USED
        self.known.append((gateway, account, request, report))

    def restart(self, gateway: MemoryGateway) -> None:
        gateway.restart()
        self.hear(gateway)

    def hear(self, gateway: MemoryGateway) -> None:
        """All there is; after tokens were lost, until as many have come again: before, it accepts nothing."""
        gateway.follow(self.market)
        while gateway.books.is_behind:
            self.market.tick()
            gateway.follow(self.market)

    def next_id(self, account: int) -> str:
        self.asked += 1
        self.ids[account].append(str(self.asked))
        return str(self.asked)

    @rule(
        at=st.integers(0, 3),
        side=st.sampled_from(Side),
        quantity=QUANTITIES,
        price=PRICES,
        kind=st.sampled_from([OrderKind.LIMIT] * 4 + list(OrderKind)),
        lifetime=st.sampled_from([Lifetime.DAY, Lifetime.UNTIL_CANCELLED, Lifetime.IMMEDIATE, Lifetime.ALL_OR_NOTHING]),
    )
    def enter(self, at: int, side: Side, quantity: int, price: int, kind: OrderKind, lifetime: Lifetime) -> None:
        gateway = self.gateways[at // 2]
        account = gateway.accounts[at % 2]
        limit = price if kind in (OrderKind.LIMIT, OrderKind.STOP_LIMIT) else None
        trigger = price if kind in (OrderKind.STOP, OrderKind.STOP_LIMIT) else None
        order = NewOrder(self.next_id(account), "IBM", side, quantity, kind, limit, trigger, lifetime)
        self.ask(gateway, account, order)

    @rule(at=st.integers(0, 3), which=st.integers(0, 50), quantity=st.just(0) | QUANTITIES)
    def cancel(self, at: int, which: int, quantity: int) -> None:
        gateway = self.gateways[at // 2]
        account = gateway.accounts[at % 2]
        if self.ids[account]:
            meant = self.ids[account][-1 - which % len(self.ids[account])]
            self.ask(gateway, account, CancelRequest(self.next_id(account), meant, quantity))

    @rule(at=st.integers(0, 3), which=st.integers(0, 50), quantity=st.none() | QUANTITIES, price=st.none() | PRICES)
    def replace(self, at: int, which: int, quantity: int | None, price: int | None) -> None:
        gateway = self.gateways[at // 2]
        account = gateway.accounts[at % 2]
        if self.ids[account]:
            meant = self.ids[account][-1 - which % len(self.ids[account])]
            self.ask(gateway, account, ReplaceRequest(self.next_id(account), meant, quantity, price))

    @rule(at=st.integers(0, 3), side=st.sampled_from(Side), quantity=QUANTITIES, price=PRICES)
    def offer(self, at: int, side: Side, quantity: int, price: int) -> None:
        gateway = self.gateways[at // 2]
        account = gateway.accounts[at % 2]
        order = NewOrder(self.next_id(account), "IBM", side, quantity, price=price, is_open_offer=True)
        self.ask(gateway, account, order)

    @rule(at=st.integers(0, 3), which=st.integers(0, 9), quantity=QUANTITIES)
    def take(self, at: int, which: int, quantity: int) -> None:
        gateway = self.gateways[at // 2]
        account = gateway.accounts[at % 2]
        offers = list(self.market.floor.offers)
        if offers:
            self.ask(gateway, account, TakeRequest(self.next_id(account), offers[which % len(offers)], quantity))

    @rule(at=st.integers(0, 3), quantity=QUANTITIES, reserve=PRICES, tokens=st.integers(2, 6), forfeit=PRICES)
    def open_lot(self, at: int, quantity: int, reserve: int, tokens: int, forfeit: int) -> None:
        gateway = self.gateways[at // 2]
        account = gateway.accounts[at % 2]
        closes = (len(self.market.tokens) + tokens) * MS
        kind = LotKind.SECOND_PRICE
        lot = LotRequest(self.next_id(account), "IBM", kind, quantity, reserve, closes, tokens * MS, forfeit)
        self.ask(gateway, account, lot)

    @rule(at=st.integers(0, 3), quantity=QUANTITIES, reserve=PRICES, tokens=st.integers(1, 5))
    def open_clock(self, at: int, quantity: int, reserve: int, tokens: int) -> None:
        gateway = self.gateways[at // 2]
        account = gateway.accounts[at % 2]
        start, step = reserve + tokens * 1_000, 1_000
        lot = LotRequest(self.next_id(account), "IBM", LotKind.DUTCH, quantity, reserve, start=start, step=step)
        self.ask(gateway, account, lot)

    @rule(at=st.integers(0, 3), which=st.integers(0, 9), quantity=QUANTITIES, price=PRICES)
    def bid(self, at: int, which: int, quantity: int, price: int) -> None:
        gateway = self.gateways[at // 2]
        account = gateway.accounts[at % 2]
        lots = list(self.market.floor.lots.values())
        if not lots:
            return
        lot, client_id = lots[which % len(lots)], self.next_id(account)
        number = lot.lot.id
        if isinstance(lot, DutchLot):
            self.ask(gateway, account, BidRequest(client_id, number, quantity, price))
            return
        digest = commitment(price, bytes(16), account, number).hex()
        self.secrets[account, client_id] = price
        self.ask(gateway, account, SealedBidRequest(client_id, number, price + 1_000, digest))

    @rule(which=st.integers(0, 9))
    def reveal(self, which: int) -> None:
        if not self.secrets:
            return
        (account, client_id), price = list(self.secrets.items())[-1 - which % len(self.secrets)]
        gateway = next(gateway for gateway in self.gateways if account in gateway.accounts)
        self.ask(gateway, account, RevealRequest(self.next_id(account), client_id, price, "00" * 16))

    @precondition(lambda self: self.known)
    @rule(which=st.integers(0, 200))
    def repeat(self, which: int) -> None:
        gateway, account, request, report = self.known[which % len(self.known)]
        assert self.answer(gateway, account, request) == report

    @rule(at=st.integers(0, 1))
    def publish(self, at: int) -> None:
        self.gateways[at].publish(self.market)

    @rule(at=st.integers(0, 1))
    def publish_and_die(self, at: int) -> None:
        """The market has it, and the gateway does not know."""
        for batch in self.gateways[at].waiting():
            self.market.publish(batch.payloads, batch.key)
        self.restart(self.gateways[at])

    @rule()
    def token(self) -> None:
        self.market.step()

    @rule(tokens=st.integers(1, ROUND - 1))
    def lose(self, tokens: int) -> None:
        """A reformation cuts the newest tokens off; everything in them is sequenced again."""
        self.market.cut(tokens)

    @rule(which=st.integers(0, 9), price=PRICES, quantity=st.just(0) | QUANTITIES, again=st.booleans())
    def correct(self, which: int, price: int, quantity: int, again: bool) -> None:  # noqa: FBT001
        """Two operators correct a confirmed trade, one of its quantity at most, or make it void; twice at times."""
        if self.market.confirmed:
            number = 1 + which % self.market.confirmed
            correction = self.market.correction(number, price if quantity else 0, quantity)
            if correction.trade.quantity:
                for _ in range(1 + again):
                    self.market.correct(correction._replace(quantity=min(quantity, correction.trade.quantity)))

    @rule()
    def close_and_open(self) -> None:
        self.market.say(Status("IBM", Phase.CLOSED))
        self.market.step()
        self.market.say(Status("IBM", Phase.OPEN))

    @rule(at=st.integers(0, 1))
    def follow(self, at: int) -> None:
        gateway = self.gateways[at]
        gateway.books.reached = self.reach
        try:
            self.hear(gateway)
        except Crash:
            self.restart(gateway)

    @rule(step=st.sampled_from(["begin", "written", "committed"]))
    def crash_soon(self, step: str) -> None:
        self.crash_at = step

    @rule(at=st.integers(0, 3))
    def kill(self, at: int) -> None:
        gateway = self.gateways[at // 2]
        self.crash_at = ""
        block = Block(BlockScope.ACCOUNT, gateway.accounts[at % 2])
        gateway.books.kill(block, gateway.now)
        with gateway.database.making() as connection:
            connection.exec_driver_sql("DELETE FROM kills")

    @invariant()
    def is_sound(self) -> None:
        self.steps += 1
        for gateway in self.gateways:
            gateway.books.check()
            assert not gateway.books.foreign
            assert not gateway.books.view.differing
            if not self.steps % 5:  # All of it takes a while, and what is wrong stays wrong.
                gateway.check()

    @rule()
    def end_of_day(self) -> None:
        """Everything is published, released, confirmed and settled: what is left is conserved over both gateways."""
        self.crash_at = ""
        for gateway in self.gateways:
            gateway.publish(self.market)
        self.market.step()
        self.market.confirm()
        total = {USD: 0, IBM: 0}
        for gateway in self.gateways:
            gateway.follow(self.market)
            gateway.publish(self.market)
            for account in gateway.accounts:
                told = gateway.reports(account)
                ended = ReportKind.CONFIRMED, ReportKind.BUSTED
                traded = [report.trade for report in told if report.kind is ReportKind.TRADED]
                assert sorted(traded) == sorted(one.trade for one in told if one.kind in ended)
                held = sum(gateway.balance(account, IBM))
                assert held == SHARES + self.market.bought(account), "each trade is settled once, as it stands"
                for asset in total:
                    total[asset] += sum(gateway.balance(account, asset))
            fees = gateway.gateway_fees()
            total[USD] += fees
        # T5: what was accepted is in the sequence once, and what was refused is not.
        entering = Order | Take | Lot | Commit | Bid
        entered = [event.id for event in map(decode_event, self.market.published) if isinstance(event, entering)]
        accepted = [report.order for _, _, _, report in self.known if report.kind is ReportKind.ACCEPTED]
        assert sorted(entered) == sorted(accepted)
        assert total == {USD: 4 * MONEY, IBM: 4 * SHARES}
        assert clearing_of_all([audit(gateway.database) for gateway in self.gateways]) == {}


Trading.TestCase.settings = settings(
    max_examples=6,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestTrading = Trading.TestCase
