"""Narrow stripes over two stripes of the core on real sockets: one plan for both, and customers who hear of both."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import SystemRandom
from time import time_ns

import numpy as np
from tests.interop.narrow import MODEM, Customer, archived, tape
from tests.runtime.worlds import Nodes, World, eventually, market_file, run

from isocast.feeds.mold import parse_packet
from isocast.runtime.edge.narrow.choosing import choose
from isocast.runtime.edge.narrow.listener import StripeListener
from isocast.striping.plan import EdgeStripe, StripePlan, plan_text
from isocast.terms.instants import SECOND
from isocast.terms.market import EventKind

NODES: Nodes = {
    **{name: {"role": "primary-receiver"} for name in "ab"},
    "floor": {"role": "primary-source"},
    "x": {"role": "reformation-server"},
    "archive": {"role": "retransmit-server", "lines": ["a", "b"]},
    "desk": {"role": "customer", "lines": ["a"], "retransmit": ["archive"], "start": False},
    "fund": {"role": "customer", "lines": ["b"], "retransmit": ["archive"], "start": False},
}
SYMBOLS = {1: ("A1", "A2"), 2: ("A3",), 3: ("B1", "B2"), 4: ("B3",)}
CORES = {1: 0, 2: 0, 3: 1, 4: 1}
ALL = [symbol for symbols in SYMBOLS.values() for symbol in symbols]
PLAN = StripePlan(
    1,
    (
        *[EdgeStripe(number, CORES[number], f"s{number}", MODEM, symbols) for number, symbols in SYMBOLS.items()],
        *[EdgeStripe(8 + core, core, f"spare {core}", MODEM, spare=True) for core in (0, 1)],
    ),
    10**9,
)
HEARD = {f"{number:04}".encode() for number in SYMBOLS}
ROUNDS, EACH = 4, 12


def two_cores(folder: Path) -> Path:
    (folder / "stripes.toml").write_text(plan_text(PLAN), encoding="utf-8")
    draw = SystemRandom()
    base = draw.randrange(192, 232) & ~7
    edge = {
        "plan": "stripes.toml",
        "span": 16,
        "groups": f"239.{base + 2}.{draw.randrange(200)}.0",
        "repairs": f"239.{base + 3}.{draw.randrange(200)}.0",
        "proofs": f"239.{base + 4}.{draw.randrange(200)}.0",
        "port": draw.randrange(32_000, 36_000),
        "request_port": draw.randrange(36_000, 39_000),
    }
    timing = {"detect": "60ms", "process": "200ms"}
    return market_file(folder, NODES, settings={"ring": {"stripes": [0, 1]}, "timing": timing, "edge": edge})


def by_stripe(who: Customer) -> dict[int, list[tuple[int, int]]]:
    """Of each stripe (id, price) of its trades, in the order of numbers, which have no hole from 1 on."""
    found: dict[int, list[tuple[int, int]]] = {}
    following = dict.fromkeys(SYMBOLS, 1)
    for batch in who.batches:
        assert batch.first == following[batch.stripe]
        following[batch.stripe] = batch.last + 1
        trades = batch.events[batch.events["kind"] == EventKind.TRADE]
        assert {symbol.decode() for symbol in trades["symbol"].tolist()} <= set(SYMBOLS[batch.stripe])
        found.setdefault(batch.stripe, []).extend(zip(trades["id"].tolist(), trades["price"].tolist(), strict=True))
    return found


def check_receivers(world: World) -> None:
    """Two receivers of a core stripe made the same packets, with numbers from one on, and of its own stripes only."""
    for core, names in enumerate((("a", "b"), ("a.s1", "b.s1"))):
        made = [archived(world.market, name) for name in names]
        assert made[0] == made[1]
        assert {int(session[6:], 36) for session in made[0]} == {n for n, own in CORES.items() if own == core}
        for rows in made[0].values():
            following = 1
            for _, raw in rows:
                packet = parse_packet(raw)
                assert packet.sequence == following
                following += packet.count


def test_a_customer_hears_narrow_stripes_of_two_core_stripes_and_nothing_is_missing(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(two_cores(tmp_path)) as world:
            market = world.market
            await world.start()
            customers = []
            for name in ("desk", "fund"):
                seat = market.node(name)
                chosen = choose(market, seat, PLAN, symbols=ALL, complete=True)
                assert {stripe.number: stripe.core for stripe in chosen.stripes} == CORES
                customers.append(Customer(StripeListener(market, seat, chosen)))
            desk, fund = customers
            async with desk.listening(), fund.listening():
                await eventually(lambda: all({one.raw[6:10] for one in who.heard} >= HEARD for who in customers))
                for number in range(ROUNDS):
                    await world.publish("floor", tape(ALL, EACH, 1 + EACH * number))
                    await asyncio.sleep(0.2)
                total = ROUNDS * EACH
                await eventually(lambda: all(len(who.trades) >= total for who in customers))
                # A packet counts once its proof is there, and a cut is known from two seconds after the first of each
                # stripe: all stripes have been proven by now, not when their first packets came.
                proven = time_ns()
                await eventually(lambda: time_ns() > proven + 2 * SECOND)
                instant = time_ns()
                await world.publish("floor", tape(ALL, EACH, 1 + total))
                await eventually(lambda: all(who.listener.cut(instant) for who in customers))
                await eventually(lambda: all(len(who.trades) == total + EACH for who in customers))
                assert desk.listener.cut(instant) == fund.listener.cut(instant)
                assert sorted(desk.trades) == list(range(1, total + EACH + 1))
                assert by_stripe(desk) == by_stripe(fund)
                for stripe, rows in by_stripe(desk).items():
                    ids = [number for number, _ in rows]
                    places = np.array(ids) - 1
                    assert ids == sorted(ids)
                    assert {ALL[place % len(ALL)] for place in places.tolist()} == set(SYMBOLS[stripe])
                assert [who.listener.counts.total.lost for who in customers] == [0, 0]
            await eventually(lambda: archived(market, "a") == archived(market, "b"))
            check_receivers(world)

    run(work())
