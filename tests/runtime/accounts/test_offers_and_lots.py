"""Open offers, TAKE, lots and bids at a gateway: reserved, decided by the sequence, settled, forfeited."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.runtime.accounts.sequence import IBM, LISTED, MS, ROUND, USD, MemoryGateway, MemorySequence, limit

from isocast.floor.rules.second_price import commitment
from isocast.orders.accounts import UNITS
from isocast.orders.desk import (
    BidRequest,
    CancelRequest,
    Lifetime,
    LotKind,
    LotRequest,
    NewOrder,
    OrderKind,
    OrderStatus,
    Reason,
    ReplaceRequest,
    ReportKind,
    RevealRequest,
    SealedBidRequest,
    Taken,
    TakeRequest,
)
from isocast.orders.ledger import Balance
from isocast.orders.needs import Side
from isocast.runtime.accounts.audit import audit, clearing_of_all
from isocast.runtime.accounts.trading import DeskSettings

BUY, SELL = Side.BUY, Side.SELL
SETTINGS = DeskSettings(stable_tokens=ROUND, fee_bp=(10, 30))
NONCE = "00" * 16
CLOSE = 20 * MS


@pytest.fixture
def gateway(database_url: str) -> Iterator[MemoryGateway]:
    """Ada and Cid have 5,000.00, Bob 100 shares."""
    made = MemoryGateway(database_url, 1, ["Ada", "Bob", "Cid"], SETTINGS)
    ada, bob, cid = made.accounts
    made.fund(ada, USD, 5_000 * UNITS)
    made.fund(cid, USD, 5_000 * UNITS)
    made.fund(bob, IBM, 100)
    yield made
    made.close()


@pytest.fixture
def market(gateway: MemoryGateway) -> MemorySequence:
    made = MemorySequence(LISTED)
    gateway.follow(made)
    return made


def run(market: MemorySequence, gateway: MemoryGateway) -> None:
    gateway.publish(market)
    market.step()
    gateway.follow(market)


def settle(market: MemorySequence, gateway: MemoryGateway) -> None:
    run(market, gateway)
    market.confirm()
    gateway.follow(market)
    gateway.check()
    assert clearing_of_all([audit(gateway.database)]) == {}


def offer(client_id: str, side: Side, quantity: int, price: int) -> NewOrder:
    return limit(client_id, side, quantity, price)._replace(is_open_offer=True)


# Open offers -------------------------------------------------------------------------------------------------------


def test_an_offer_is_taken_in_parts_by_the_first_in_the_sequence(
    gateway: MemoryGateway, market: MemorySequence
) -> None:
    """Settlement 27."""
    ada, bob, cid = gateway.accounts
    [made] = gateway.ask(bob, offer("o", SELL, 100, 10))
    assert (made.kind_of_order, made.lifetime) == (OrderKind.OFFER, Lifetime.UNTIL_CANCELLED)
    assert gateway.balance(bob, IBM) == Balance(0, 100)
    run(market, gateway)
    [line] = gateway.books.view.offer_lines()
    assert (line.offer, line.account, line.symbol, line.side, line.left) == (made.order, bob, "IBM", SELL, 100)
    gateway.ask(ada, TakeRequest("1", made.order, 70))
    gateway.ask(cid, TakeRequest("1", made.order, 50))
    assert gateway.balance(cid, USD).reserved == 500 * UNITS + 15_000  # At the offer's price, with the largest fee.
    assert gateway.ask(bob, TakeRequest("1", made.order, 1))[0].reason is Reason.OWN
    assert gateway.ask(cid, TakeRequest("2", 17, 1))[0].reason is Reason.UNKNOWN_ORDER
    assert gateway.ask(bob, ReplaceRequest("2", "o", 50))[0].reason is Reason.MALFORMED
    gateway.publish(market)
    run(market, gateway)
    assert gateway.books.view.offer_lines() == []
    settle(market, gateway)
    assert gateway.balance(ada, USD) == Balance(4_300 * UNITS - 21_000, 0)  # Takers pay as takers.
    assert gateway.balance(ada, IBM) == Balance(70, 0)
    assert gateway.balance(cid, IBM) == Balance(30, 0)
    assert gateway.balance(cid, USD) == Balance(4_700 * UNITS - 9_000, 0)
    assert gateway.balance(bob, USD) == Balance(1_000 * UNITS - 10_000, 0)
    told = [(one.kind, one.status) for one in gateway.reports(cid) if one.client_id == "1"]
    assert told[:4] == [
        (ReportKind.ACCEPTED, OrderStatus.PENDING),
        (ReportKind.WORKING, OrderStatus.WORKING),
        (ReportKind.TRADED, OrderStatus.PART_FILLED),
        (ReportKind.CANCELLED, OrderStatus.CANCELLED),
    ]


def test_everybody_sees_who_took_what_also_after_a_restart(gateway: MemoryGateway, market: MemorySequence) -> None:
    ada, bob, cid = gateway.accounts
    [made] = gateway.ask(ada, offer("o", BUY, 60, 10))
    run(market, gateway)
    gateway.ask(bob, TakeRequest("1", made.order, 20))
    assert gateway.balance(bob, IBM) == Balance(80, 20)
    run(market, gateway)
    gateway.ask(bob, TakeRequest("2", made.order, 10))
    run(market, gateway)
    gateway.books.keep_floor(1)
    settle(market, gateway)
    gateway.restart()
    gateway.follow(market)
    [line] = gateway.books.view.offer_lines()
    assert (line.left, line.taken) == (30, (Taken(bob, 20, 1), Taken(bob, 10, 2)))
    gateway.ask(ada, CancelRequest("c", "o", 10))
    run(market, gateway)
    gateway.ask(ada, CancelRequest("d", "o"))
    settle(market, gateway)
    assert gateway.balance(ada, USD).reserved == 0
    assert gateway.balance(bob, USD) == Balance(300 * UNITS - 9_000, 0)
    del cid


def test_what_is_no_plain_limit_is_no_offer(gateway: MemoryGateway, market: MemorySequence) -> None:
    _, bob, _ = gateway.accounts
    plain = offer("1", SELL, 10, 10)
    wrong = [
        plain._replace(client_id="a", lifetime=Lifetime.IMMEDIATE),
        plain._replace(client_id="b", is_post_only=True),
        plain._replace(client_id="c", display=5),
        plain._replace(client_id="d", kind=OrderKind.MARKET, price=None),
        plain._replace(client_id="e", kind=OrderKind.TAKE),
    ]
    assert {report.reason for report in gateway.ask(bob, *wrong)} == {Reason.MALFORMED}
    gateway.check()
    del market


# Sealed bids -------------------------------------------------------------------------------------------------------


def sealed(client_id: str, account: int, lot: int, ceiling: int, price: int) -> SealedBidRequest:
    digest = commitment(price * UNITS, bytes(16), account, lot).hex()
    return SealedBidRequest(client_id, lot, ceiling * UNITS, digest)


def until(market: MemorySequence, gateway: MemoryGateway, instant: int) -> None:
    """Tokens of the floor until T_t is so late; the gateway's clock goes with them."""
    from isocast.floor.events import Phase, Status  # noqa: PLC0415 - the floor's word, not the desk's

    while not market.tokens or market.tokens[-1][1] < instant:
        market.say(Status("NONE", Phase.OPEN))
        run(market, gateway)


def second_price(client_id: str, forfeit: int = 0) -> LotRequest:
    return LotRequest(client_id, "IBM", LotKind.SECOND_PRICE, 10, 50 * UNITS, CLOSE, 10 * MS, forfeit * UNITS)


def test_a_sealed_sale_at_the_second_price(gateway: MemoryGateway, market: MemorySequence) -> None:
    """Reserved at the ceiling, which tells nobody the price; the winner pays the second price, the loser gets all."""
    ada, bob, cid = gateway.accounts
    gateway.now = -(10**12)  # The gateway's clock is behind the floor's, so that T_t decides.
    [lot] = gateway.ask(bob, second_price("lot"))
    run(market, gateway)
    [line] = gateway.books.view.lot_lines()
    assert (line.lot, line.auction, line.bids, line.price) == (lot.order, LotKind.SECOND_PRICE, 0, None)
    gateway.ask(ada, sealed("b", ada, lot.order, 200, 80))
    gateway.ask(cid, sealed("b", cid, lot.order, 100, 60))
    assert gateway.balance(ada, USD).reserved == 2_000 * UNITS + 60_000
    run(market, gateway)
    early = gateway.ask(ada, RevealRequest("early", "b", 80 * UNITS, NONCE))[0]
    assert (early.kind, early.reason) == (ReportKind.CHANGE_REFUSED, Reason.WRONG_PHASE)
    published = len(market.published)
    gateway.publish(market)
    assert len(market.published) == published  # A price that is revealed too early is told to nobody.
    until(market, gateway, CLOSE)
    gateway.ask(ada, RevealRequest("wrong", "b", 81 * UNITS, NONCE), RevealRequest("r", "b", 80 * UNITS, NONCE))
    gateway.ask(cid, RevealRequest("r", "b", 60 * UNITS, NONCE))
    run(market, gateway)
    kinds = {one.client_id: one.kind for one in gateway.reports(ada)}
    assert (kinds["wrong"], kinds["r"]) == (ReportKind.CHANGE_REFUSED, ReportKind.REVEALED)
    until(market, gateway, CLOSE + 10 * MS)
    settle(market, gateway)
    assert gateway.balance(ada, USD) == Balance(4_400 * UNITS - 6_000, 0)  # 10 at 60; auctions: all pay as makers.
    assert gateway.balance(ada, IBM) == Balance(10, 0)
    assert gateway.balance(cid, USD) == Balance(5_000 * UNITS, 0)
    assert gateway.balance(bob, USD) == Balance(600 * UNITS - 6_000, 0)
    assert gateway.reports(cid)[-1].text == "the lot is sold at 60.00"
    assert gateway.ask(cid, sealed("late", cid, lot.order, 100, 60))[0].reason is Reason.UNKNOWN_ORDER


def test_a_bid_that_is_not_revealed_forfeits_to_the_seller(gateway: MemoryGateway, market: MemorySequence) -> None:
    ada, bob, cid = gateway.accounts
    gateway.now = -(10**12)
    [lot] = gateway.ask(bob, second_price("lot", forfeit=25))
    run(market, gateway)
    gateway.ask(ada, sealed("1", ada, lot.order, 200, 95))
    run(market, gateway)
    gateway.ask(ada, sealed("2", ada, lot.order, 100, 90))  # Takes the place of the first.
    gateway.ask(cid, sealed("1", cid, lot.order, 70, 60))
    run(market, gateway)
    assert gateway.reports(ada)[-1].text == "a later bid takes its place"
    gateway.ask(cid, CancelRequest("w", "1"))
    run(market, gateway)
    assert gateway.reports(cid)[-1].kind is ReportKind.CANCELLED
    until(market, gateway, CLOSE + 10 * MS)
    settle(market, gateway)
    assert gateway.balance(ada, USD) == Balance(4_975 * UNITS, 0)
    assert gateway.balance(bob, USD) == Balance(25 * UNITS, 0)
    assert gateway.balance(bob, IBM) == Balance(100, 0)
    assert gateway.balance(cid, USD) == Balance(5_000 * UNITS, 0)
    assert gateway.reports(ada)[-1].text == "not revealed: 25.00 goes to the seller"


def test_a_lot_without_bids_may_be_withdrawn(gateway: MemoryGateway, market: MemorySequence) -> None:
    _, bob, _ = gateway.accounts
    gateway.now = -(10**12)
    [lot] = gateway.ask(bob, second_price("lot"))
    assert gateway.ask(bob, sealed("x", bob, lot.order, 9, 9))[0].reason is Reason.UNKNOWN_ORDER  # Not open yet.
    run(market, gateway)
    assert gateway.ask(bob, sealed("y", bob, lot.order, 9, 9))[0].reason is Reason.OWN
    gateway.ask(bob, CancelRequest("c", "lot"))
    settle(market, gateway)
    assert gateway.balance(bob, IBM) == Balance(100, 0)
    gateway.now = 10**12
    assert gateway.ask(bob, second_price("late"))[0].reason is Reason.TOO_LATE


# The Dutch clock ---------------------------------------------------------------------------------------------------


def test_a_dutch_clock(gateway: MemoryGateway, market: MemorySequence) -> None:
    ada, bob, cid = gateway.accounts
    clock = LotRequest("lot", "IBM", LotKind.DUTCH, 30, 70 * UNITS, start=100 * UNITS, step=5 * UNITS)
    [lot] = gateway.ask(bob, clock)
    run(market, gateway)
    gateway.ask(ada, BidRequest("1", lot.order, 10, 95 * UNITS))  # In the next token the price is 95.
    gateway.ask(cid, BidRequest("1", lot.order, 25, 90 * UNITS))
    run(market, gateway)
    [line] = gateway.books.view.lot_lines()
    assert (line.left, line.price) == (20, 95 * UNITS)
    assert gateway.reports(cid)[-1].reason is Reason.PRICE
    gateway.ask(cid, BidRequest("2", lot.order, 25, 90 * UNITS))
    run(market, gateway)
    settle(market, gateway)
    assert gateway.balance(ada, USD) == Balance(5_000 * UNITS - 950 * UNITS - 9_500, 0)
    assert gateway.balance(cid, USD) == Balance(5_000 * UNITS - 1_800 * UNITS - 18_000, 0)
    assert gateway.balance(cid, IBM) == Balance(20, 0)
    assert gateway.balance(bob, USD) == Balance(2_750 * UNITS - 27_500, 0)
    assert gateway.balance(bob, IBM) == Balance(70, 0)


def test_what_a_clock_does_not_sell_comes_back(gateway: MemoryGateway, market: MemorySequence) -> None:
    _, bob, _ = gateway.accounts
    gateway.ask(bob, LotRequest("lot", "IBM", LotKind.DUTCH, 30, 90 * UNITS, start=100 * UNITS, step=5 * UNITS))
    run(market, gateway)
    until(market, gateway, 10 * MS)
    assert gateway.reports(bob)[-1].text == "the lot is not sold"
    settle(market, gateway)
    assert gateway.balance(bob, IBM) == Balance(100, 0)


@pytest.mark.parametrize(
    "change",
    [{"reserve": 0}, {"closes_at": 0}, {"window_ns": 0}, {"start": 5}, {"forfeit": -1}, {"auction": LotKind.DUTCH}],
)
def test_a_lot_of_a_wrong_form_is_refused(
    gateway: MemoryGateway, market: MemorySequence, change: dict[str, object]
) -> None:
    _, bob, _ = gateway.accounts
    gateway.now = -(10**12)
    wrong = second_price("lot")._replace(**change)  # type: ignore[arg-type]
    assert gateway.ask(bob, wrong)[0].reason is Reason.MALFORMED
    del market
