"""The property test of trading under every rule of a symbol: calls, halts and pauses, and every kind of order."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from tests.runtime.accounts.sequence import IBM, LISTED, MS, USD
from tests.runtime.accounts.test_trading_states import PRICES, QUANTITIES, Trading

from isocast.floor.events import Directory, MarketKind, OwnRule, Phase, PriceRule, Share, Status
from isocast.orders.accounts import UNITS
from isocast.orders.desk import Lifetime, NewOrder, OrderKind, ReplaceRequest
from isocast.orders.needs import Side

TERMS = st.builds(
    LISTED._replace,
    lot=st.sampled_from([1, 1, 7]),
    market=st.sampled_from(MarketKind),
    price_rule=st.sampled_from(PriceRule),
    own_rule=st.sampled_from(OwnRule),
    share=st.sampled_from(Share),
    collar_bp=st.sampled_from([0, 400]),
    band_bp=st.sampled_from([0, 150]),
    pause_ns=st.sampled_from([0, 3 * MS]),
)
ORDERS = st.builds(
    NewOrder,
    client_id=st.just(""),
    symbol=st.just("IBM"),
    side=st.sampled_from(Side),
    quantity=QUANTITIES,
    kind=st.sampled_from([OrderKind.LIMIT, OrderKind.MARKET, OrderKind.STOP, OrderKind.STOP_LIMIT]),
    price=PRICES,
    trigger=PRICES,
    lifetime=st.sampled_from(Lifetime),
    is_post_only=st.integers(0, 9).map(lambda number: number == 0),
    display=st.sampled_from([0, 0, 0, 1, 20]),
    owner=st.integers(0, 1),
)


class TradingByRules(Trading):
    """Rules that change while it trades."""

    lot = 1

    @initialize(terms=TERMS, credit=st.booleans())
    def begin(self, terms: Directory, credit: bool) -> None:  # noqa: FBT001
        self.lists(terms)
        for gateway in self.gateways if credit else ():
            gateway.book.set_limit(gateway.accounts[0], USD, 500 * UNITS)
            gateway.book.set_limit(gateway.accounts[1], IBM, 100)

    @rule(terms=TERMS)
    def lists(self, terms: Directory) -> None:
        self.lot = terms.lot
        self.market.say(terms)

    @rule(at=st.integers(0, 3), wanted=ORDERS, price=PRICES, quantity=QUANTITIES)
    def meet(self, at: int, wanted: NewOrder, price: int, quantity: int) -> None:
        """A limit for somebody of the other gateway, at once: without it, most orders meet nothing."""
        for gateway, side in zip(
            self.gateways, (Side.BUY, Side.SELL) if at % 2 else (Side.SELL, Side.BUY), strict=True
        ):
            account = gateway.accounts[at // 2]
            limit = NewOrder("", "IBM", side, quantity // 10 * self.lot, price=price, owner=wanted.owner)
            self.ask(gateway, account, limit._replace(client_id=self.next_id(account), display=wanted.display))
            gateway.publish(self.market)
        self.market.step()

    @rule(at=st.integers(0, 3), wanted=ORDERS, tokens=st.integers(1, 9))
    def enter_any(self, at: int, wanted: NewOrder, tokens: int) -> None:
        """What does not go together is left out, but for a few orders that are refused."""
        gateway = self.gateways[at // 2]
        account = gateway.accounts[at % 2]
        order = wanted._replace(
            client_id=self.next_id(account),
            quantity=wanted.quantity * self.lot,
            display=wanted.display * self.lot if wanted.kind is OrderKind.LIMIT else 0,
            price=wanted.price if wanted.kind in (OrderKind.LIMIT, OrderKind.STOP_LIMIT) else None,
            trigger=wanted.trigger if wanted.kind in (OrderKind.STOP, OrderKind.STOP_LIMIT) else None,
            until=(len(self.market.tokens) + tokens) * MS if wanted.lifetime is Lifetime.UNTIL_DATE else None,
        )
        self.ask(gateway, account, order)

    @rule(
        at=st.integers(0, 3),
        which=st.integers(0, 9),
        quantity=st.none() | QUANTITIES,
        price=st.none() | PRICES,
        trigger=st.none() | PRICES,
    )
    def replace_any(self, at: int, which: int, quantity: int | None, price: int | None, trigger: int | None) -> None:
        gateway = self.gateways[at // 2]
        account = gateway.accounts[at % 2]
        if self.ids[account]:
            meant = self.ids[account][-1 - which % len(self.ids[account])]
            total = None if quantity is None else (1 + quantity // self.lot) * self.lot
            self.ask(gateway, account, ReplaceRequest(self.next_id(account), meant, total, price, trigger))

    @rule(phase=st.sampled_from([one for one in Phase if one is not Phase.PAUSE] + 3 * [Phase.OPEN]))
    def say_phase(self, phase: Phase) -> None:
        self.market.say(Status("IBM", phase))


TradingByRules.TestCase.settings = settings(
    max_examples=4,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestTradingByRules = TradingByRules.TestCase
