"""A reformation cuts off tokens that a gateway has applied: void trades, orders as before, nothing settled or freed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.floor.keys import KEY
from tests.runtime.accounts.sequence import (
    FLOOR,
    IBM,
    LISTED,
    ROUND,
    USD,
    MemoryGateway,
    MemorySequence,
    limit,
    sqlite_place,
)
from tests.runtime.worlds import eventually

from isocast.floor.reporting import FloorReport, encode_report, report_topic
from isocast.orders.accounts import UNITS
from isocast.orders.desk import CancelRequest, OrderStatus, ReplaceRequest, ReportKind
from isocast.orders.ledger import Balance
from isocast.orders.needs import Side
from isocast.runtime.accounts.desk import DeskPace, GatewayDesk
from isocast.runtime.accounts.order_store import Position
from isocast.runtime.accounts.serving import MessageBatch, NextBatch, follow_always
from isocast.runtime.accounts.trading import DeskSettings, TradingBooks
from isocast.runtime.client.received import ReceivedMessage

BUY, SELL = Side.BUY, Side.SELL
SETTINGS = DeskSettings(stable_tokens=ROUND, snapshot_tokens=2, fee_bp=(5, 20))
_K = ReportKind


@pytest.fixture
def gateway(database_url: str) -> Iterator[MemoryGateway]:
    made = funded(database_url)
    yield made
    made.close()


def funded(url: str) -> MemoryGateway:
    """Ada has 2,000.00, Bob 100 shares."""
    made = MemoryGateway(url, 1, ["Ada", "Bob"], SETTINGS)
    ada, bob = made.accounts
    made.fund(ada, USD, 2_000 * UNITS)
    made.fund(bob, IBM, 100)
    return made


def run(market: MemorySequence, gateway: MemoryGateway) -> None:
    gateway.publish(market)
    market.step()
    gateway.follow(market)


def story(gateway: MemoryGateway, account: int) -> list[tuple[ReportKind, OrderStatus, int]]:
    return [(report.kind, report.status, report.filled) for report in gateway.reports(account)]


def end(market: MemorySequence, gateway: MemoryGateway) -> None:
    market.step()
    market.confirm()
    gateway.follow(market)
    gateway.check()


def test_a_trade_that_is_lost_is_busted_once_and_decided_again(gateway: MemoryGateway) -> None:
    market = MemorySequence(LISTED)
    ada, bob = gateway.accounts
    gateway.follow(market)
    gateway.ask(bob, limit("1", SELL, 100, 10))
    run(market, gateway)
    gateway.ask(ada, limit("1", BUY, 40, 10))
    run(market, gateway)
    before = gateway.balance(ada, USD), gateway.balance(bob, IBM)
    assert market.cut(1) == 1
    gateway.follow(market)
    assert gateway.reports(bob)[-1].kind is _K.TRADED  # Nothing says yet that the token is gone.
    market.step()
    for _ in range(2):
        gateway.restart()
        gateway.follow(market)
        gateway.check()
        assert [kind for kind, _, _ in story(gateway, bob)] == [
            _K.ACCEPTED, _K.WORKING, _K.TRADED, _K.BUSTED, _K.TRADED,
        ]  # fmt: skip
        assert story(gateway, ada)[2:] == [
            (_K.TRADED, OrderStatus.FILLED, 40),
            (_K.BUSTED, OrderStatus.PENDING, 0),
            (_K.WORKING, OrderStatus.WORKING, 0),
            (_K.TRADED, OrderStatus.FILLED, 40),
        ]
        assert (gateway.balance(ada, USD), gateway.balance(bob, IBM)) == before
    end(market, gateway)
    assert [report.trade for report in gateway.reports(ada) if report.kind is _K.CONFIRMED] == [1]
    assert gateway.balance(ada, IBM) == Balance(40, 0)
    assert gateway.balance(bob, IBM) == Balance(0, 60)


def test_what_was_cancelled_expired_replaced_or_refused_in_a_lost_token_is_decided_again(
    gateway: MemoryGateway,
) -> None:
    market = MemorySequence(LISTED)
    ada, bob = gateway.accounts
    gateway.follow(market)
    gateway.ask(ada, limit("1", BUY, 10, 9), limit("2", BUY, 10, 8))
    run(market, gateway)
    reserved = gateway.balance(ada, USD)
    gateway.ask(ada, CancelRequest("3", "1"), ReplaceRequest("4", "2", 5))
    run(market, gateway)
    assert gateway.balance(ada, USD) == reserved
    market.cut(1)
    market.step()
    gateway.follow(market)
    gateway.check()
    assert [(one.kind, one.client_id) for one in gateway.reports(ada)[6:]] == [
        (_K.CANCELLED, "3"), (_K.REPLACED, "4"), (_K.RESTORED, "1"), (_K.RESTORED, "2"), (_K.CANCELLED, "3"),
        (_K.REPLACED, "4"),
    ]  # fmt: skip
    end(market, gateway)
    assert gateway.balance(ada, USD).reserved == 5 * 8 * UNITS + 800
    del bob


def test_a_replace_of_an_order_that_may_lose_its_fills_binds_enough_for_all_of_it(gateway: MemoryGateway) -> None:
    market = MemorySequence(LISTED)
    ada, bob = gateway.accounts
    gateway.follow(market)
    gateway.ask(bob, limit("1", SELL, 90, 10))
    gateway.ask(ada, limit("1", BUY, 100, 10))
    run(market, gateway)
    [asked] = gateway.ask(ada, ReplaceRequest("2", "1", None, 12 * UNITS))
    assert asked.kind is _K.REPLACE_PENDING
    all_of_it = 1_200 * UNITS + 24_000
    assert gateway.balance(ada, USD).reserved == all_of_it  # 90 are filled at 10, and may not be.
    market.cut(1)
    market.step()
    gateway.follow(market)
    gateway.check()
    assert gateway.balance(ada, USD).reserved == all_of_it
    gateway.publish(market)
    end(market, gateway)
    assert gateway.balance(ada, USD).reserved == 120 * UNITS + 2_400


class Crash(Exception):  # noqa: N818 - it is what happens
    """The process dies here."""


def test_a_crash_at_any_step_of_taking_back_changes_nothing(tmp_path: Path) -> None:
    def day(name: str, crash_at: int) -> tuple[object, int]:
        gateway, market = funded(sqlite_place(tmp_path, name)), MemorySequence(LISTED)
        steps = 0

        def reached(_: str) -> None:
            nonlocal steps
            steps += 1
            if steps == crash_at:
                raise Crash

        def alive(work: Callable[[], object]) -> None:
            gateway.books.reached = reached
            try:
                work()
            except Crash:
                gateway.restart()
                gateway.books.reached = reached
                gateway.follow(market)

        ada, bob = gateway.accounts
        gateway.follow(market)
        gateway.ask(bob, limit("1", SELL, 100, 10))
        run(market, gateway)
        gateway.ask(ada, limit("1", BUY, 40, 10), limit("2", BUY, 10, 10))
        run(market, gateway)
        gateway.ask(bob, CancelRequest("2", "1", 10))
        run(market, gateway)
        market.cut(2)
        market.step()
        alive(lambda: gateway.follow(market))
        market.cut(1)
        market.step()
        alive(lambda: gateway.follow(market))
        market.step()
        market.confirm()
        alive(lambda: gateway.follow(market))
        gateway.check()
        found = (
            [gateway.balance(ada, USD), gateway.balance(bob, IBM), gateway.balance(bob, USD)],
            [[one[2:4] + one[11:13] for one in gateway.reports(account)] for account in (ada, bob)],
        )
        gateway.close()
        return found, steps

    calm, steps = day("calm", 0)
    assert steps >= 6
    for crash_at in range(1, steps + 1):
        assert day(f"crash {crash_at}", crash_at)[0] == calm


class _Batch:
    def __init__(self, messages: list[ReceivedMessage]) -> None:
        self._messages = messages

    def messages(self) -> list[ReceivedMessage]:
        return self._messages


def test_a_report_of_another_state_makes_a_running_gateway_listen_again(tmp_path: Path) -> None:
    """What it hears then differs from what it knew: the trade is void, the alarm is in the gateway's status."""
    gateway, market = funded(sqlite_place(tmp_path, "one")), MemorySequence(LISTED)
    ada, bob = gateway.accounts
    gateway.follow(market)
    gateway.ask(bob, limit("1", SELL, 100, 10))
    gateway.ask(ada, limit("1", BUY, 40, 10))
    gateway.publish(market)
    market.step()
    asked: list[int] = []
    liars: asyncio.Queue[None] = asyncio.Queue()

    @asynccontextmanager
    async def listening(start: Position, _: Callable[[], None]) -> AsyncIterator[NextBatch]:
        asked.append(start.token)
        batches: asyncio.Queue[MessageBatch] = asyncio.Queue()
        for token, instant, messages in market.tokens[start.token :]:
            batches.put_nowait(_Batch([received(token, instant, one.sequence, *one[1:3]) for one in messages]))

        async def following() -> MessageBatch:
            if batches.empty():
                await liars.get()
                token = len(market.tokens) + 5
                other = encode_report(FloorReport(2, bytes(32), 0))
                return _Batch([received(token, token, 99, report_topic(FLOOR), other),
                               received(token + 1, token + 1, 100, report_topic(FLOOR), b"")])  # fmt: skip
            return await batches.get()

        yield following

    async def story() -> None:
        books = TradingBooks(gateway.database, SETTINGS)

        async def publish(*_: object) -> None:
            return

        async def tick() -> None:
            return

        async with GatewayDesk(gateway.database, books, publish, pace=DeskPace(look_s=3_600.0)) as desk:
            task = asyncio.create_task(follow_always(desk, listening, tick, (0.0, 0.0)))
            await eventually(lambda: books.position.token == 1 and books.view.open_token == 2)
            liars.put_nowait(None)
            await eventually(lambda: len(asked) == 2)
            market.cut(1)
            market.step()
            assert (await desk.status()).alarms
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(story())
    gateway.close()


def received(token: int, instant: int, sequence: int, topic: str, payload: bytes) -> ReceivedMessage:
    return ReceivedMessage(topic, b"", payload, 0, sequence, 0, instant, instant, 0, token, KEY)
