"""A customer of narrow stripes: what anybody can send to its groups, and a program that does not read."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from random import SystemRandom
from time import time_ns

import pytest
from tests.runtime.edge.narrow.edge_worlds import PLAN, edge_market
from tests.runtime.worlds import run

from isocast.feeds.days import day_at
from isocast.feeds.mold import heartbeat, packet_of, session_name
from isocast.feeds.release_stamps import stamp_milliseconds
from isocast.runtime.edge.narrow.choosing import choose
from isocast.runtime.edge.narrow.ears import Heard
from isocast.runtime.edge.narrow.listener import StripeListener
from isocast.runtime.market.model import Market


@pytest.fixture
def market(tmp_path: Path) -> Market:
    draw = SystemRandom()
    place = f"127.{draw.randrange(16, 240)}.{draw.randrange(256)}"
    customer = {"role": "customer", "address": f"{place}.9", "lines": ["a"], "start": False}
    edge = {"plan": "stripes.toml", "span": 16, "port": draw.randrange(30_000, 32_000)}
    return edge_market(tmp_path, {"edge": edge, "nodes.modem": customer})


def listener_of(market: Market, told: list[str]) -> StripeListener:
    seat = market.node("modem")
    return StripeListener(market, seat, choose(market, seat, PLAN), told=told.append)


def session(days: int = 0, stripe: int = 1) -> bytes:
    return session_name(day_at(time_ns(), "UTC") + timedelta(days=days), stripe).encode()


def message(name: bytes, first: int) -> bytes:
    return packet_of(name, first, 1, (12).to_bytes(2) + b"S" + bytes(10) + b"O")


def test_sessions_and_numbers_that_nobody_can_be_at_are_counted_and_change_nothing(market: Market) -> None:
    async def work() -> None:
        told: list[str] = []
        async with listener_of(market, told) as listener:
            sender = market.node("a").address
            rubbish = [
                message(b"notadate01", 1),
                message(b"9913990001", 1),
                message(session(days=30), 1),
                message(session(days=-30), 1),
                message(session(stripe=5), 1),
                message(session()[:6] + b"\xff\xff\xff\xff", 1),
                heartbeat(session(), 2**64 - 1),
                b"",
            ]
            for raw in rubbish:
                listener.hear(Heard(time_ns(), sender, raw))
            assert listener.counts.strange == len(rubbish)
            listener.hear(Heard(time_ns(), "127.0.0.1", message(session(), 1)))
            assert listener.counts.strange == len(rubbish) + 1
            for number in (1, 2, 3):
                listener.hear(Heard(time_ns(), sender, message(session(), number)))
            assert (listener.counts.total.messages, listener.counts.total.lost) == (3, 0)

    run(work())


def test_a_time_cut_is_answered_once_every_stripe_has_passed_it(market: Market) -> None:
    async def work() -> None:
        async with listener_of(market, []) as listener:
            sender, begun = market.node("a").address, time_ns() // 10**9 * 10**9
            seconds = range(6)
            for second in seconds:
                at = begun + second * 10**9
                for stripe in [one.number for one in listener.chosen.stripes][: 1 if second == seconds[-1] else None]:
                    body = stamp_milliseconds((12).to_bytes(2) + b"S" + bytes(10) + b"O", at)
                    listener.hear(Heard(at + 5, sender, packet_of(session(0, stripe), second + 1, 1, body)))
            assert listener.cut(begun + 4 * 10**9) is None, "in this millisecond more may come"
            cut = listener.cut(begun + 4 * 10**9 - 10**6)
            assert cut is not None
            assert cut.last == tuple([(one.number, 4) for one in listener.chosen.stripes])

    run(work())


def test_what_a_program_does_not_read_is_counted_and_told(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isocast.runtime.edge.narrow.listener._BATCHES_MAX", 4)

    async def work() -> None:
        told: list[str] = []
        async with listener_of(market, told) as listener:
            for number in range(1, 11):
                listener.hear(Heard(time_ns(), market.node("a").address, message(session(), number)))
            assert listener.counts.unread == 6
            assert told == ["more than 4 batches wait to be read: the oldest are dropped"]
            assert (await anext(listener)).first == 7

    run(work())
