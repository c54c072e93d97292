"""Delivery to an exchange: in the order of the sequence, exactly once, whatever dies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.exchange.halls import CODE, PACE, Hall, Sequence_, example, flow, order
from tests.runtime.worlds import eventually

from isocast.floor.codec import floor_topic
from isocast.floor.events import Cancel, Event
from isocast.orders.delivery import Place
from isocast.orders.desk import OrderStatus, ReportKind
from isocast.orders.exchange import ExchangeAnswer
from isocast.runtime.accounts.fix.connection import Outgoing
from isocast.runtime.accounts.fix.messages import Message
from isocast.runtime.exchange.delivery import DeliveryPace
from isocast.runtime.exchange.serving import open_stores
from isocast.terms.errors import StoreError
from isocast.terms.market import Side

Work = Callable[[Hall], Awaitable[None]]


class Crash(Exception):  # noqa: N818 - it is what happens
    """A process dies here."""


def story(folder: Path, work: Work, pace: DeliveryPace = PACE, exchange: Callable[[Path], Any] | None = None) -> None:
    async def all_of_it() -> None:
        hall = Hall(folder, Sequence_(), pace)
        (folder / "exchange").mkdir()
        await hall.open_exchange(exchange(folder / "exchange") if exchange is not None else None)
        await hall.open_delivery()
        try:
            await work(hall)
        finally:
            if hall.delivery is not None:
                await hall.kill_delivery()
            if hall.server is not None:
                await hall.kill_exchange()

    asyncio.run(all_of_it())


def outcome(hall: Hall) -> tuple[list[Outgoing], list[ExchangeAnswer], list[ExchangeAnswer]]:
    """All that the exchange did, and what everybody knows of it; what was declined comes between as it likes."""
    answers = hall.sequence.answers()
    declined = sorted([one for one in answers if one.is_declined], key=lambda one: one.order)
    return list(hall.exchange.told), [one for one in answers if not one.is_declined], declined


def outline(hall: Hall) -> tuple[list[tuple[str, ...]], list[str]]:
    """The same without places, which say when it was; each report by its name."""
    told = [tuple(dict(one.body).get(tag, "") for tag in (17, 31, 32, 37, 39, 14, 150)) for one in hall.exchange.told]
    return told, [one.execution for one in hall.sequence.answers()]


async def until_told(hall: Hall, requests: int) -> None:
    """The exchange has taken so many requests, and every report of it is in the sequence."""

    def is_done() -> bool:
        answers = [one for one in hall.sequence.answers() if not one.is_declined]
        has_all = hall.exchange is not None and len(hall.exchange.orders) >= requests
        return has_all and len(answers) >= len(hall.exchange.told) and hall.spool.waiting() == 0

    await eventually(is_done)


DIRECTED = len(flow()) - 2
"""Two of the flow are declined."""


def test_orders_in_their_order_and_reports_that_name_them(tmp_path: Path) -> None:
    async def work(hall: Hall) -> None:
        hall.sequence.say(*flow())
        await until_told(hall, DIRECTED)
        told, answers, declined = outcome(hall)
        assert [(str(one.order), one.text) for one in declined] == [
            ("4", "unknown order"),
            ("6.1", "FIX 4.4 cancels orders whole: replace the order by a smaller total"),
        ]
        assert len(answers) == len(told) == 20
        first: dict[Place, ExchangeAnswer] = {}
        for one in answers:
            first.setdefault(one.order, one)
        assert [str(place) for place in first] == [
            *("1", "1.1", "2", "2.1", "3", "3.1"),
            *("4.1", "5", "5.1", "6", "7", "7.1"),
        ]
        assert (first[Place(5)].kind, first[Place(5)].text) == (ReportKind.REFUSED, "unknown symbol")
        trade = answers[2]
        assert (trade.kind, trade.status, trade.last_quantity, trade.last_price) == (
            ReportKind.TRADED,
            OrderStatus.FILLED,
            60,
            100_000,
        )
        found = hall.sequence.audit()
        assert (found.is_kept, found.orders, found.taken, found.waiting) == (True, DIRECTED, DIRECTED, 0)
        state = hall.spool.state()
        assert (state.waiting, state.oldest, state.unreadable) == (0, None, 0)
        assert state.live == 1, "the one that rests"
        assert hall.delivery is not None
        assert (hall.delivery.strays, hall.delivery.sent_again) == (0, 0)

    story(tmp_path, work)


def test_a_crash_between_any_two_steps_changes_nothing(tmp_path: Path) -> None:
    """Taken, given, published, answered: the delivery dies once at each of them."""
    expected: list[object] = []
    steps = 0

    async def run(hall: Hall, crash_at: int) -> None:
        nonlocal steps
        reached = 0

        def reach(_: str) -> None:
            nonlocal reached
            reached += 1
            if reached == crash_at:
                raise Crash

        hall.reached = reach
        hall.sequence.say(*flow())
        if crash_at:
            await eventually(lambda: reached >= crash_at)
            await hall.kill_delivery()
            hall.reached = lambda _: None
            await hall.open_delivery()
        await until_told(hall, DIRECTED)
        found = outcome(hall)
        assert hall.sequence.audit().is_kept
        if not crash_at:
            expected.append(found)
            steps = reached
        assert found == expected[0], f"after a crash at step {crash_at}"

    def at(crash_at: int) -> None:
        folder = tmp_path / str(crash_at)
        folder.mkdir()
        story(folder, lambda hall: run(hall, crash_at))

    at(0)
    assert steps >= DIRECTED
    for crash_at in (1, 2, 3, 5, 8, 12, 15, 17):
        at(crash_at)


def test_both_sides_die_again_and_again(tmp_path: Path) -> None:
    """Some hundred orders; neither side ever sees the other for long."""
    sides = (Side.BUY, Side.SELL)
    events: list[Event] = [order(1 + n, sides[n % 2], 5, 10 + n % 2, account=1 + n % 2) for n in range(120)]
    calm: list[object] = []

    async def undisturbed(hall: Hall) -> None:
        hall.sequence.say(*events)
        await until_told(hall, len(events))
        calm.append(outline(hall))

    async def disturbed(hall: Hall) -> None:
        for turn in range(6):
            hall.sequence.say(*events[turn * 20 : turn * 20 + 20])
            wanted = turn * 20 + 3
            await eventually(lambda wanted=wanted: len(hall.exchange.orders) >= wanted)  # type: ignore[misc]
            if turn % 2:
                await hall.kill_exchange()
                await hall.open_exchange()
            else:
                await hall.kill_delivery()
                await hall.open_delivery()
        await until_told(hall, len(events))
        assert outline(hall) == calm[0]
        assert hall.sequence.audit().is_kept

    for name, work in (("calm", undisturbed), ("storm", disturbed)):
        (tmp_path / name).mkdir()
        story(tmp_path / name, work)


class Forgetful(example().Exchange):  # type: ignore[misc]  # of a file
    """Loses the first request after it was counted, as one does that is killed between session and books."""

    lost: Message | None = None

    async def handle(self, message: Message) -> Sequence[Outgoing]:
        if self.lost is None:
            self.lost = message
            return []
        return await super().handle(message)  # type: ignore[no-any-return]


def test_what_an_exchange_forgot_is_sent_again_under_the_same_id(tmp_path: Path) -> None:
    async def work(hall: Hall) -> None:
        hall.sequence.say(order(1, Side.BUY, 1, 10), order(2, Side.BUY, 1, 10))
        await eventually(lambda: len(hall.exchange.orders) == 1)
        await hall.kill_exchange()
        await hall.open_exchange()
        await until_told(hall, 2)
        assert hall.delivery is not None
        assert hall.delivery.sent_again >= 1
        assert list(hall.exchange.orders) == ["1.1", "1"]
        # And the audit sees what it did to the one that it forgot.
        assert [str(one) for one in hall.sequence.audit().departures] == [
            "order 1 was taken at report 2.1, after the later order 1.1"
        ]

    story(tmp_path, work, exchange=lambda folder: Forgetful(folder, ["ISO"]))


class Silent(example().Exchange):  # type: ignore[misc]  # of a file
    """Takes, and says nothing until it is asked to."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, ["ISO"])
        self.taken = 0
        self.gate = asyncio.Event()

    async def handle(self, message: Message) -> Sequence[Outgoing]:
        self.taken += 1
        await self.gate.wait()
        return await super().handle(message)  # type: ignore[no-any-return]


def test_a_slow_exchange_has_a_window_then_its_spool_fills_then_its_place_in_the_sequence_waits(tmp_path: Path) -> None:
    pace = DeliveryPace(window=4, spool_max=10, again_s=60.0, silent_s=0.05, retry_s=(0.01, 0.05))

    async def work(hall: Hall) -> None:
        hall.sequence.say(*[order(1 + n, Side.BUY, 1, 10) for n in range(60)])
        await eventually(lambda: hall.spool.waiting() >= 10 and hall.exchange.taken == 4)
        await eventually(lambda: "exchange-silent" in [code for code, _ in hall.alarms])
        assert hall.exchange.taken == 4
        assert hall.spool.waiting() <= 10 + 6, "a batch more than the bound at most"
        assert hall.heard < 30
        hall.exchange.gate.set()
        await until_told(hall, 60)
        assert hall.sequence.audit().is_kept

    story(tmp_path, work, pace, Silent)


def test_an_exchange_that_is_gone_is_an_alarm_and_what_it_missed_waits(tmp_path: Path) -> None:
    async def work(hall: Hall) -> None:
        await hall.kill_exchange()
        hall.sequence.say(*flow())
        await eventually(lambda: "exchange-down" in [code for code, _ in hall.alarms])
        await eventually(lambda: hall.spool.waiting() == DIRECTED)
        assert hall.failure is None
        await hall.open_exchange()
        await until_told(hall, DIRECTED)
        assert hall.sequence.audit().is_kept

    story(tmp_path, work)


def test_a_market_that_does_not_take_reports_is_an_alarm_and_loses_none(tmp_path: Path) -> None:
    async def work(hall: Hall) -> None:
        hall.sequence.broken = True
        hall.sequence.say(*flow())
        await eventually(lambda: "exchange-market" in [code for code, _ in hall.alarms])
        await hall.kill_delivery()
        hall.sequence.broken = False
        await hall.open_delivery()
        await until_told(hall, DIRECTED)
        assert hall.sequence.audit().is_kept

    story(tmp_path, work)


def test_an_exchange_that_lost_its_numbers_is_served_again_after_a_reset(tmp_path: Path) -> None:
    async def work(hall: Hall) -> None:
        hall.sequence.say(*flow())
        await until_told(hall, DIRECTED)
        before = outcome(hall)
        await hall.kill_exchange()
        for name in ("fix.db", "fix.db-wal", "fix.db-shm"):
            (tmp_path / "exchange" / name).unlink(missing_ok=True)
        await hall.open_exchange()
        await eventually(lambda: any("MsgSeqNum too low" in text for _, text in hall.alarms))
        await hall.kill_delivery()
        await hall.open_delivery(resets=True)
        hall.sequence.say(order(8, Side.BUY, 1, 10), order(9, Side.BUY, 1, 10))
        # Whatever the exchange tells again is published once.
        await until_told(hall, DIRECTED + 2)
        told, answers, _ = outcome(hall)
        assert answers[: len(before[1])] == before[1]
        assert len(answers) == len(told) == len(before[0]) + 2

    story(tmp_path, work)


class Rejecting(example().Exchange):  # type: ignore[misc]  # of a file
    """Answers with what FIX has for messages that nobody understands, and with nonsense."""

    async def handle(self, message: Message) -> Sequence[Outgoing]:
        body = [(45, message.first[34]), (58, "not today"), (372, message.kind), (380, "4")]
        nonsense = [(6, "0"), (11, "hello"), (14, "0"), (17, "x"), (37, "1"), (39, "0"), (54, "1"), (55, "ISO")]
        garbage = [*nonsense[:2], (14, "1e999999"), *nonsense[3:]]
        ends = [(60, message.first[60]), (150, "0"), (151, "0")]
        about = [(11, message.first[11]) if field[0] == 11 else field for field in garbage]
        self.orders[message.first[11]] = None
        return [Outgoing("8", [*nonsense, *ends]), Outgoing("8", [*about, *ends]), Outgoing("j", body)]


def test_a_business_reject_refuses_the_request_and_nonsense_is_counted(tmp_path: Path) -> None:
    async def work(hall: Hall) -> None:
        hall.sequence.say(order(1, Side.BUY, 1, 10), Cancel(1 << 32 | 1, 1))
        await eventually(lambda: len(hall.sequence.answers()) == 2)
        one, two = hall.sequence.answers()
        assert (one.order, one.kind, one.text) == (Place(1), ReportKind.REFUSED, "not today")
        assert (two.order, two.kind, two.original) == (Place(1, 1), ReportKind.CHANGE_REFUSED, Place(1))
        assert hall.delivery is not None
        assert hall.delivery.strays == 4
        assert hall.failure is None

    story(tmp_path, work, exchange=lambda folder: Rejecting(folder, ["ISO"]))


def test_bytes_that_are_no_event_are_counted_and_passed_over(tmp_path: Path) -> None:
    async def work(hall: Hall) -> None:
        hall.sequence.put(floor_topic(CODE), b"\xff\x00")
        hall.sequence.say(order(1, Side.BUY, 1, 10))
        await until_told(hall, 1)
        assert hall.spool.state().unreadable == 1

    story(tmp_path, work)


def test_a_spool_that_is_gone_is_not_made_up_again(tmp_path: Path) -> None:
    spool, store = open_stores(tmp_path, CODE, 0)
    spool.close()
    asyncio.run(store.close())
    with pytest.raises(StoreError, match="of exchange XLON"):
        open_stores(tmp_path, "XPAR", 0)
    (tmp_path / "spool.db").unlink()
    with pytest.raises(StoreError, match="would deliver every order again"):
        open_stores(tmp_path, CODE, 0)
