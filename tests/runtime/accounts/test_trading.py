"""A gateway's trading: the worked example, client ids, controls, changes, settlement."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from sqlalchemy import Engine, event
from tests.runtime.accounts.sequence import IBM, LISTED, USD, MemoryGateway, MemorySequence, limit, sqlite_place

from isocast.floor.events import Phase, Status
from isocast.orders.accounts import CLEARING, FEES, UNITS, account_number
from isocast.orders.controls import Block, BlockScope, Limits
from isocast.orders.desk import (
    CancelRequest,
    Lifetime,
    NewOrder,
    OrderKind,
    OrderStatus,
    Reason,
    ReplaceRequest,
    ReportKind,
    TradingRequest,
)
from isocast.orders.ledger import Balance
from isocast.orders.needs import Side
from isocast.orders.netting import Debt
from isocast.runtime.accounts import trading
from isocast.runtime.accounts.audit import audit, clearing_of_all, net_between
from isocast.runtime.accounts.kills import kill_in
from isocast.runtime.accounts.order_store import OrderMemory
from isocast.runtime.accounts.trading import DeskSettings, FencedError, TradingBooks
from isocast.terms.errors import LedgerError, LedgerFault, LocalProtocolError

BUY, SELL = Side.BUY, Side.SELL


@pytest.fixture
def gateway(database_url: str) -> Iterator[MemoryGateway]:
    """Ada has 5,000.00, Bob 100 shares."""
    made = MemoryGateway(database_url, 1, ["Ada", "Bob"])
    ada, bob = made.accounts
    made.fund(ada, USD, 5_000 * UNITS)
    made.fund(bob, IBM, 100)
    yield made
    made.close()


@pytest.fixture
def market() -> MemorySequence:
    return MemorySequence(LISTED)


def run(market: MemorySequence, *gateways: MemoryGateway) -> None:
    """One token with all that is waiting; everybody hears it."""
    for gateway in gateways:
        gateway.publish(market)
    market.step()
    for gateway in gateways:
        gateway.follow(market)


def settle(market: MemorySequence, *gateways: MemoryGateway) -> None:
    market.settle()
    for gateway in gateways:
        gateway.follow(market)
        gateway.check()


def kinds(gateway: MemoryGateway, account: int) -> list[ReportKind]:
    return [report.kind for report in gateway.reports(account)]


def test_two_gateways_settle_a_trade(tmp_path: Path, market: MemorySequence) -> None:
    """Worked example 8."""
    one = MemoryGateway(sqlite_place(tmp_path, "one"), 1, ["A"])
    two = MemoryGateway(sqlite_place(tmp_path, "two"), 2, ["B"])
    [buyer], [seller] = one.accounts, two.accounts
    one.fund(buyer, USD, 5_000 * UNITS)
    two.fund(seller, IBM, 100)
    for gateway in (one, two):
        gateway.follow(market)
    one.ask(buyer, limit("1", BUY, 100, 10))
    two.ask(seller, limit("1", SELL, 100, 10))
    assert one.balance(buyer, USD) == Balance(4_000 * UNITS, 1_000 * UNITS)
    assert two.balance(seller, IBM) == Balance(0, 100)
    run(market, one, two)
    assert [report.status for report in one.reports(buyer)][-1] is OrderStatus.FILLED
    assert one.balance(buyer, USD) == Balance(4_000 * UNITS, 1_000 * UNITS)  # Tentative: unchanged.
    assert two.balance(seller, IBM) == Balance(0, 100)
    settle(market, one, two)
    assert one.balance(buyer, USD) == Balance(4_000 * UNITS, 0)
    assert one.balance(buyer, IBM) == Balance(100, 0)
    assert two.balance(seller, USD) == Balance(1_000 * UNITS, 0)
    assert one.balance(account_number(1, CLEARING), USD).available == 1_000 * UNITS
    assert two.balance(account_number(2, CLEARING), USD).available == -1_000 * UNITS
    assert clearing_of_all([audit(one.database), audit(two.database)]) == {}
    debts = net_between([one.database, two.database]).debts()
    assert debts == [Debt(1, 2, USD, 1_000 * UNITS), Debt(2, 1, IBM, 100)]
    held = audit(one.database).holdings[USD]
    assert held == {"traders": 4_000 * UNITS, "fees": 0, "clearing": 1_000 * UNITS, "world": -5_000 * UNITS}
    story = [ReportKind.ACCEPTED, ReportKind.WORKING, ReportKind.TRADED, ReportKind.CONFIRMED]
    assert kinds(one, buyer) == kinds(two, seller) == story
    one.close()
    two.close()


def test_a_better_price_and_fees(database_url: str, market: MemorySequence) -> None:
    """Settlement 18: maker and taker pay from the reservation and the proceeds."""
    gateway = MemoryGateway(database_url, 1, ["Ada", "Bob"], DeskSettings(fee_bp=(10, 30)))
    ada, bob = gateway.accounts
    gateway.fund(ada, USD, 5_000 * UNITS)
    gateway.fund(bob, IBM, 100)
    gateway.follow(market)
    gateway.ask(bob, limit("1", SELL, 100, 10))
    run(market, gateway)
    gateway.ask(ada, limit("1", BUY, 100, 11))
    assert gateway.balance(ada, USD).reserved == 1_100 * UNITS + 33_000  # 30 basis points of 1,100.
    run(market, gateway)
    settle(market, gateway)
    assert gateway.balance(ada, USD) == Balance(4_000 * UNITS - 30_000, 0)
    assert gateway.balance(bob, USD) == Balance(1_000 * UNITS - 10_000, 0)
    assert gateway.balance(account_number(1, FEES), USD).available == 40_000
    gateway.close()


def test_settling_asks_the_database_as_often_for_many_accounts_as_for_one(tmp_path: Path) -> None:
    """Each buys the symbol for the first time, and his balance of it was never read."""
    asked: dict[int, int] = {}
    for count in (1, 8):
        names = ["Bob", *[f"buyer {number}" for number in range(count)]]
        gateway, market = MemoryGateway(sqlite_place(tmp_path, f"{count}"), 1, names), MemorySequence(LISTED)
        seller, *buyers = gateway.accounts
        gateway.fund(seller, IBM, 10 * count)
        gateway.follow(market)
        gateway.ask(seller, limit("1", SELL, 10 * count, 10))
        for buyer in buyers:
            gateway.fund(buyer, USD, 1_000 * UNITS)
            gateway.ask(buyer, limit("1", BUY, 10, 10))
        run(market, gateway)
        statements: list[str] = []

        def note(_: object, __: object, statement: str, *___: object, of: list[str] = statements) -> None:
            of.append(statement)

        event.listen(Engine, "before_cursor_execute", note)
        try:
            market.settle()
            gateway.follow(market)
        finally:
            event.remove(Engine, "before_cursor_execute", note)
        assert [gateway.balance(buyer, IBM) for buyer in buyers] == [Balance(10, 0)] * count
        asked[count] = len([one for one in statements if "JOIN balances" in one])
        gateway.close()
    assert asked[8] == asked[1] > 0


REFUSALS: list[tuple[TradingRequest, Reason]] = [
    (limit("x", BUY, 501, 10), Reason.FUNDS),
    (limit("x", SELL, 1, 10), Reason.SHARES),
    (limit("x", BUY, 0, 10), Reason.QUANTITY),
    (limit("x", BUY, -5, 10), Reason.QUANTITY),
    (limit("x", BUY, 1 << 70, 10), Reason.QUANTITY),
    (limit("x", BUY, 1_000_000, 11), Reason.VALUE),
    (limit("x", BUY, 1, 13), Reason.COLLAR),
    (limit("x", BUY, 1, 10, "NONE"), Reason.UNKNOWN_SYMBOL),
    (limit("x", BUY, 1, 10, "x" * 500), Reason.UNKNOWN_SYMBOL),
    (limit("", BUY, 1, 10), Reason.MALFORMED),
    (limit("é", BUY, 1, 10), Reason.MALFORMED),
    (limit("y" * 65, BUY, 1, 10), Reason.MALFORMED),
    (NewOrder("x", "IBM", BUY, 1), Reason.MALFORMED),
    (limit("x", BUY, 1, 0), Reason.MALFORMED),
    (limit("x", BUY, 1, -3), Reason.MALFORMED),
    (limit("x", BUY, 1, 1 << 70), Reason.MALFORMED),
    (NewOrder("x", "IBM", BUY, 1, OrderKind.STOP), Reason.MALFORMED),
    (limit("x", BUY, 1, 10)._replace(lifetime=Lifetime.UNTIL_DATE), Reason.MALFORMED),
    (limit("x", BUY, 1, 10)._replace(owner=1 << 32), Reason.MALFORMED),
    (CancelRequest("x", "nothing"), Reason.UNKNOWN_ORDER),
    (ReplaceRequest("x", "nothing", 5), Reason.UNKNOWN_ORDER),
    (ReplaceRequest("x", "nothing"), Reason.MALFORMED),
]


@pytest.mark.parametrize("request_, reason", REFUSALS, ids=range(len(REFUSALS)))
def test_what_is_refused_is_told_why_and_binds_nothing(
    tmp_path: Path, market: MemorySequence, request_: TradingRequest, reason: Reason
) -> None:
    gateway = MemoryGateway(sqlite_place(tmp_path, "one"), 1, ["Ada"])
    [ada] = gateway.accounts
    gateway.fund(ada, USD, 5_000 * UNITS)
    gateway.follow(market)
    [report] = gateway.ask(ada, request_)
    assert report.reason is reason
    assert report.text
    assert report.kind is (ReportKind.REFUSED if isinstance(request_, NewOrder) else ReportKind.CHANGE_REFUSED)
    assert gateway.balance(ada, USD) == Balance(5_000 * UNITS, 0)
    assert not gateway.waiting()
    gateway.check()
    if report.number:  # The id is used up: the same answer again, and nothing else under it.
        assert gateway.ask(ada, request_) == [report]
        assert gateway.ask(ada, limit("x", BUY, 1, 9))[0].reason is Reason.CLIENT_ID_USED
    gateway.close()


def test_the_same_id_again_gets_the_first_answer(gateway: MemoryGateway, market: MemorySequence) -> None:
    """Settlement 12."""
    ada, bob = gateway.accounts
    gateway.follow(market)
    first, again, other = gateway.answers(
        ada, limit("1", BUY, 10, 10), limit("1", BUY, 10, 10), limit("1", BUY, 11, 10)
    )
    assert first.report.kind is ReportKind.ACCEPTED
    assert again == first
    assert first.batch == 1
    assert (other.report.reason, other.report.number, other.batch) == (Reason.CLIENT_ID_USED, 0, 0)
    run(market, gateway)
    gateway.restart()
    gateway.follow(market)
    assert gateway.answers(ada, limit("1", BUY, 10, 10)) == [first]
    assert gateway.ask(ada, CancelRequest("1", "1"))[0].reason is Reason.CLIENT_ID_USED
    assert gateway.ask(bob, limit("1", SELL, 10, 11))[0].kind is ReportKind.ACCEPTED
    assert len(market.published) == 1
    gateway.check()


def test_cancel_and_replace_through_the_sequence(gateway: MemoryGateway, market: MemorySequence) -> None:
    ada, bob = gateway.accounts
    gateway.follow(market)
    gateway.ask(ada, limit("1", BUY, 100, 10))
    run(market, gateway)
    [asked] = gateway.ask(ada, ReplaceRequest("2", "1", 200, 9 * UNITS))
    assert (asked.kind, asked.original_id, asked.quantity) == (ReportKind.REPLACE_PENDING, "1", 100)
    # All of the old at 10, then 100 more at 9.
    assert gateway.balance(ada, USD).reserved == 1_900 * UNITS
    run(market, gateway)
    replaced = gateway.reports(ada)[-1]
    assert (replaced.kind, replaced.quantity, replaced.price) == (ReportKind.REPLACED, 200, 9 * UNITS)
    assert (replaced.client_id, replaced.original_id) == ("2", "1")
    settle(market, gateway)
    assert gateway.balance(ada, USD).reserved == 1_800 * UNITS
    gateway.ask(ada, CancelRequest("3", "2", 50))
    run(market, gateway)
    shrunk = gateway.reports(ada)[-1]
    assert (shrunk.kind, shrunk.status, shrunk.quantity) == (ReportKind.REPLACED, OrderStatus.WORKING, 150)
    gateway.ask(bob, limit("1", SELL, 30, 9))
    run(market, gateway)
    gateway.ask(ada, CancelRequest("4", "1"))  # An older id of the same order.
    gateway.ask(ada, CancelRequest("5", "2"))
    run(market, gateway)
    cancelled, late = gateway.reports(ada)[-2:]
    assert (cancelled.kind, cancelled.client_id, cancelled.left, cancelled.filled) == (
        ReportKind.CANCELLED,
        "4",
        0,
        30,
    )
    assert (late.kind, late.client_id, late.reason) == (ReportKind.CHANGE_REFUSED, "5", Reason.UNKNOWN_ORDER)
    settle(market, gateway)
    assert gateway.balance(ada, USD) == Balance((5_000 - 270) * UNITS, 0)
    assert gateway.balance(ada, IBM) == Balance(30, 0)
    assert gateway.ask(ada, CancelRequest("6", "1"))[0].status is OrderStatus.CANCELLED


def test_a_replace_without_the_money_leaves_the_order_as_it_was(gateway: MemoryGateway, market: MemorySequence) -> None:
    ada, _ = gateway.accounts
    gateway.follow(market)
    gateway.ask(ada, limit("1", BUY, 100, 10))
    run(market, gateway)
    [refused] = gateway.ask(ada, ReplaceRequest("2", "1", 501))
    assert (refused.kind, refused.reason, refused.status) == (
        ReportKind.CHANGE_REFUSED,
        Reason.FUNDS,
        OrderStatus.WORKING,
    )
    assert gateway.balance(ada, USD).reserved == 1_000 * UNITS
    gateway.check()


def test_a_sale_that_is_filled_before_its_replace_gives_back_what_the_replace_bound(
    gateway: MemoryGateway, market: MemorySequence
) -> None:
    ada, bob = gateway.accounts
    gateway.follow(market)
    gateway.ask(bob, limit("1", SELL, 50, 10))
    gateway.ask(ada, limit("1", BUY, 50, 10))
    gateway.ask(bob, ReplaceRequest("2", "1", 90))
    assert gateway.balance(bob, IBM) == Balance(10, 90)
    run(market, gateway)
    assert kinds(gateway, bob)[-1] is ReportKind.CHANGE_REFUSED
    settle(market, gateway)
    assert gateway.balance(bob, IBM) == Balance(50, 0)


def test_a_market_order_is_bound_at_its_protection_price(gateway: MemoryGateway, market: MemorySequence) -> None:
    """Settlements 15, 16."""
    ada, bob = gateway.accounts
    assert gateway.ask(ada, NewOrder("0", "IBM", BUY, 1, OrderKind.MARKET))[0].reason is Reason.UNKNOWN_SYMBOL
    gateway.follow(market)
    gateway.ask(ada, NewOrder("1", "IBM", BUY, 100, OrderKind.MARKET))
    assert gateway.balance(ada, USD).reserved == 1_050 * UNITS
    gateway.ask(ada, NewOrder("2", "IBM", BUY, 100, OrderKind.STOP, trigger=12 * UNITS))
    assert gateway.balance(ada, USD).reserved == (1_050 + 1_260) * UNITS
    gateway.ask(bob, NewOrder("1", "IBM", SELL, 100, OrderKind.STOP_LIMIT, 8 * UNITS, 9 * UNITS))
    assert gateway.balance(bob, IBM).reserved == 100
    run(market, gateway)
    assert gateway.reports(ada)[-2].kind is ReportKind.CANCELLED  # Nothing to meet.
    settle(market, gateway)
    assert gateway.balance(ada, USD).reserved == 1_260 * UNITS
    gateway.ask(ada, ReplaceRequest("3", "2", trigger=11 * UNITS))
    run(market, gateway)
    settle(market, gateway)
    assert gateway.balance(ada, USD).reserved == 1_155 * UNITS


def test_without_a_reference_a_market_order_is_refused(gateway: MemoryGateway) -> None:
    market = MemorySequence(LISTED._replace(reference=None))
    gateway.follow(market)
    report = gateway.ask(gateway.accounts[0], NewOrder("1", "IBM", BUY, 1, OrderKind.MARKET))[0]
    assert report.reason is Reason.REFERENCE


def test_what_the_floor_refuses_comes_back_once_it_is_stable(gateway: MemoryGateway, market: MemorySequence) -> None:
    ada, _ = gateway.accounts
    gateway.follow(market)
    gateway.ask(ada, NewOrder("1", "IBM", BUY, 10, price=10 * UNITS + 1))
    run(market, gateway)
    refused = gateway.reports(ada)[-1]
    assert (refused.kind, refused.reason, refused.sequence) == (ReportKind.REFUSED, Reason.TICK, 2)
    assert gateway.balance(ada, USD).reserved > 0
    settle(market, gateway)
    assert gateway.balance(ada, USD) == Balance(5_000 * UNITS, 0)


def test_a_token_a_round_later_frees_what_no_arbiter_reports(database_url: str, market: MemorySequence) -> None:
    gateway = MemoryGateway(database_url, 1, ["Ada"], DeskSettings(stable_tokens=3))
    [ada] = gateway.accounts
    gateway.fund(ada, USD, 5_000 * UNITS)
    gateway.follow(market)
    gateway.ask(ada, limit("1", BUY, 10, 10))
    gateway.ask(ada, CancelRequest("2", "1"))
    run(market, gateway)
    assert gateway.books.has_frees
    market.tick(2)
    gateway.follow(market)
    assert gateway.balance(ada, USD).reserved > 0
    market.tick()
    gateway.follow(market)
    assert not gateway.books.has_frees
    assert gateway.balance(ada, USD) == Balance(5_000 * UNITS, 0)
    gateway.check()
    gateway.close()


def test_rate_and_open_orders(database_url: str, market: MemorySequence) -> None:
    settings = DeskSettings(limits=Limits(rate=3, open_orders=2))
    gateway = MemoryGateway(database_url, 1, ["Ada"], settings)
    [ada] = gateway.accounts
    gateway.fund(ada, USD, 5_000 * UNITS)
    gateway.follow(market)
    told = gateway.ask(ada, *[limit(str(n), BUY, 1, 10) for n in range(4)], *[CancelRequest("c", "0")])
    assert [report.reason for report in told] == [None, None, Reason.OPEN_ORDERS, Reason.RATE, None]
    run(market, gateway)
    assert gateway.ask(ada, limit("later", BUY, 1, 10))[0].kind is ReportKind.ACCEPTED
    gateway.check()
    gateway.close()


def test_a_kill_cancels_and_blocks_until_an_operator_lifts_it(gateway: MemoryGateway, market: MemorySequence) -> None:
    """Settlement 24: one transaction; live orders and those not yet published."""
    ada, bob = gateway.accounts
    gateway.follow(market)
    gateway.ask(ada, limit("1", BUY, 10, 10))
    gateway.ask(bob, limit("1", SELL, 10, 11))
    run(market, gateway)
    gateway.ask(ada, limit("2", BUY, 10, 9))
    assert gateway.books.kill(Block(BlockScope.ACCOUNT, ada, reason="fat finger"), 1) == 2
    assert len(gateway.waiting()) == 2
    [refused] = gateway.ask(ada, limit("3", BUY, 1, 10))
    assert refused.reason is Reason.BLOCKED
    assert "fat finger" in refused.text
    assert gateway.ask(ada, CancelRequest("4", "1"))[0].kind is ReportKind.CANCEL_PENDING  # Settlement 23.
    assert gateway.ask(bob, limit("2", SELL, 10, 11))[0].kind is ReportKind.ACCEPTED
    run(market, gateway)
    settle(market, gateway)
    assert gateway.balance(ada, USD) == Balance(5_000 * UNITS, 0)
    assert {report.status for report in gateway.reports(ada) if report.kind is ReportKind.CANCELLED} == {
        OrderStatus.CANCELLED
    }


def test_a_cancel_of_all_that_is_refused_costs_nobody_else_anything(
    tmp_path: Path, market: MemorySequence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that fails is read again, with all open orders of all accounts: no trader may have that done."""
    gateway = MemoryGateway(sqlite_place(tmp_path, "books"), 1, ["Ada"])
    gateway.fund(gateway.accounts[0], USD, 5_000 * UNITS)
    gateway.follow(market)
    gateway.ask(gateway.accounts[0], limit("1", BUY, 10, 10))
    monkeypatch.setattr(OrderMemory, "read", lambda *_: pytest.fail("all is read again"))
    for client_id, text in (("1", "used for something else"), ("\n", "from 1 to 64 printable")):
        with pytest.raises(LocalProtocolError, match=text):
            gateway.books.cancel_all(gateway.accounts[0], 1, client_id=client_id)
    assert gateway.books.cancel_all(gateway.accounts[0], 1, client_id="2") == 1
    gateway.close()


def test_an_operators_kill_is_published_where_reading_it_failed_at_first(
    tmp_path: Path, market: MemorySequence, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = MemoryGateway(sqlite_place(tmp_path, "books"), 1, ["Ada"])
    gateway.fund(gateway.accounts[0], USD, 5_000 * UNITS)
    gateway.follow(market)
    gateway.ask(gateway.accounts[0], limit("1", BUY, 10, 10))
    run(market, gateway)
    with gateway.database.writing() as connection:
        assert kill_in(connection, Block(BlockScope.GATEWAY, reason="storm"), 1) == 1
    with monkeypatch.context() as broken:
        gone = LedgerError(LedgerFault.UNAVAILABLE, "the database is gone")
        broken.setattr(trading, "read_batches", Mock(side_effect=gone))
        with pytest.raises(LedgerError, match="is gone"):
            gateway.books.refresh(2)
    gateway.books.refresh(3)
    assert len(gateway.books.waiting) == 1
    gateway.close()


def test_all_orders_of_a_symbol_or_a_session_are_cancelled_once(gateway: MemoryGateway, market: MemorySequence) -> None:
    ada, _ = gateway.accounts
    gateway.follow(market)
    gateway.ask(ada, limit("1", BUY, 10, 10), limit("2", BUY, 10, 9))
    run(market, gateway)
    assert gateway.books.cancel_all(ada, 1, client_id="all", symbol="MSFT") == 0
    assert gateway.books.cancel_all(ada, 1, client_id="every") == 2
    assert gateway.books.cancel_all(ada, 1, client_id="every") == 2
    assert gateway.books.cancel_all(ada, 1, session="another") == 0
    run(market, gateway)
    settle(market, gateway)
    assert gateway.balance(ada, USD) == Balance(5_000 * UNITS, 0)
    assert len(market.published) == 4


def test_a_second_process_takes_over_and_the_first_can_do_nothing_more(
    gateway: MemoryGateway, market: MemorySequence
) -> None:
    ada, _ = gateway.accounts
    gateway.follow(market)
    first = gateway.books
    gateway.restart()
    gateway.follow(market)
    gateway.ask(ada, limit("1", BUY, 10, 10))
    gateway.books, second = first, gateway.books
    with pytest.raises(FencedError):
        gateway.ask(ada, limit("2", BUY, 10, 10))
    with pytest.raises(FencedError):
        first.refresh(1)
    gateway.books = second
    assert gateway.ask(ada, limit("2", BUY, 10, 10))[0].order == (ada << 32) + 2
    gateway.check()


def test_a_difference_of_what_is_reserved_stops_all_trading(gateway: MemoryGateway, market: MemorySequence) -> None:
    ada, _ = gateway.accounts
    gateway.follow(market)
    gateway.ask(ada, limit("1", BUY, 10, 10))
    with gateway.database.making() as connection:
        connection.exec_driver_sql("UPDATE orders SET total = 11")
    with pytest.raises(LedgerError, match="nothing is traded"):
        TradingBooks(gateway.database).open(1)
    [finding] = audit(gateway.database).findings
    assert finding == f"order/{(ada << 32) + 1} has 1,000,000 bound and needs 1,100,000"


def test_an_order_that_enters_after_its_deadline_comes_back(database_url: str, market: MemorySequence) -> None:
    """Settlement 22."""
    gateway = MemoryGateway(database_url, 1, ["Ada"], DeskSettings(deadline=lambda _: 1))
    [ada] = gateway.accounts
    gateway.fund(ada, USD, 5_000 * UNITS)
    gateway.follow(market)
    gateway.ask(ada, limit("1", BUY, 10, 10))
    run(market, gateway)
    assert gateway.reports(ada)[-1].reason is Reason.TOO_LATE
    settle(market, gateway)
    assert gateway.balance(ada, USD) == Balance(5_000 * UNITS, 0)
    gateway.close()


def test_a_frozen_account_orders_nothing_new_and_credit_lets_it_owe(
    gateway: MemoryGateway, market: MemorySequence
) -> None:
    ada, bob = gateway.accounts
    gateway.follow(market)
    gateway.book.freeze(ada, "court order")
    assert gateway.ask(ada, limit("1", BUY, 1, 10))[0].reason is Reason.BLOCKED
    gateway.book.freeze(ada, "", frozen=False)
    gateway.book.set_limit(ada, USD, 1_000 * UNITS)
    gateway.book.set_limit(bob, IBM, 50)
    assert gateway.ask(ada, limit("2", BUY, 600, 10))[0].kind is ReportKind.ACCEPTED
    assert gateway.ask(ada, limit("3", BUY, 1, 10))[0].reason is Reason.FUNDS
    assert gateway.ask(bob, limit("1", SELL, 150, 11))[0].kind is ReportKind.ACCEPTED
    assert gateway.ask(bob, limit("2", SELL, 1, 11))[0].reason is Reason.SHARES
    gateway.check()


def test_a_broker_passes_on_whose_order_it_is(gateway: MemoryGateway, market: MemorySequence) -> None:
    """Own orders are those of one owner; the broker's limits hold for all of his customers."""
    ada, _ = gateway.accounts
    gateway.fund(ada, IBM, 10)
    gateway.follow(market)
    gateway.ask(ada, limit("1", BUY, 10, 10)._replace(owner=5), limit("2", SELL, 10, 10)._replace(owner=6))
    run(market, gateway)
    assert [report.kind for report in gateway.reports(ada)].count(ReportKind.TRADED) == 2
    settle(market, gateway)
    assert gateway.balance(ada, USD) == Balance(5_000 * UNITS, 0)
    assert gateway.balance(ada, IBM) == Balance(10, 0)


def test_a_restart_goes_on_from_a_snapshot_of_the_floor(gateway: MemoryGateway, market: MemorySequence) -> None:
    ada, bob = gateway.accounts
    gateway.follow(market)
    gateway.ask(ada, limit("1", BUY, 10, 10))
    run(market, gateway)
    gateway.books.keep_floor(1)
    gateway.restart()
    assert gateway.books.view.newest == 0  # Token 2 may still be lost.
    settle(market, gateway)
    gateway.books.keep_floor(1)
    stable = gateway.books.position.token
    market.say(Status("NONE", Phase.OPEN))  # A step of the floor, so that there is another hundredth to report.
    settle(market, gateway)
    gateway.ask(bob, limit("1", SELL, 4, 10))
    run(market, gateway)
    gateway.restart()
    assert gateway.books.view.newest == stable
    assert gateway.books.position.token > stable
    gateway.follow(market)  # The last tokens again: the floor hears them, the books do not.
    gateway.ask(bob, limit("2", SELL, 6, 10))
    run(market, gateway)
    settle(market, gateway)
    assert gateway.balance(ada, IBM) == Balance(10, 0)
    assert gateway.balance(bob, USD) == Balance(100 * UNITS, 0)


def test_what_others_send_in_this_gateways_name_changes_no_books(
    gateway: MemoryGateway, market: MemorySequence
) -> None:
    from isocast.floor.events import Order  # noqa: PLC0415 - the floor's word, not the desk's
    from isocast.terms.market import Side as MarketSide  # noqa: PLC0415

    ada, bob = gateway.accounts
    gateway.follow(market)
    gateway.ask(bob, limit("1", SELL, 50, 10))
    market.say(Order((ada << 32) + 99, ada, "IBM", MarketSide.BUY, 50, 10 * UNITS))
    run(market, gateway)
    market.settle()
    gateway.follow(market)
    assert gateway.books.foreign == 1
    assert gateway.balance(ada, USD) == Balance(5_000 * UNITS, 0)
    assert gateway.reports(ada) == []
    assert gateway.ask(ada, limit("1", BUY, 1, 10))[0].order == (ada << 32) + 100  # Ids rise over the forged one.
