"""Two stripes of the core on real sockets: rings of their own, floors on both, and customers who hear one sequence.

Three floors publish in both stripes. A receiver of stripe 1 is killed meanwhile: stripe 1 re-forms, stripe 0 does not
notice, and two customers have the same merged tape in the end, with everything in it.
"""

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import time_ns

import numpy as np
from tests.interop.stalls import Stalls
from tests.runtime.worlds import Nodes, World, eventually, market_file, run
from tests.ticker.test_digest import digest_of

from isocast.feeds.tape_digest import TapeDigest
from isocast.runtime.client.listener import Listener
from isocast.runtime.client.publisher import Publisher
from isocast.runtime.market.routes import core_routes
from isocast.striping.routing import CoreRoutes
from isocast.terms.market import EventKind
from isocast.wire.events import EVENT_DTYPE, EventArray

FLOORS = {"nyse": b"XNYS", "lse": b"XLON", "tse": b"XTKS"}
CUSTOMERS = {"desk": 1_000, "fund": 1_000, "slow": 1}
"""With the room of their inboxes: one reads late, falls behind, and fetches what it had no room for."""
NODES: Nodes = {
    **{name: {"role": "primary-receiver"} for name in "abc"},
    **{name: {"role": "primary-source"} for name in FLOORS},
    "x": {"role": "reformation-server"},
    "archive": {"role": "retransmit-server", "lines": ["a", "b"]},
    "desk": {"role": "customer", "lines": ["a", "b"], "retransmit": ["archive"], "start": False},
    "fund": {"role": "customer", "lines": ["b", "c"], "retransmit": ["archive"], "start": False},
    "slow": {"role": "customer", "lines": ["a", "c"], "retransmit": ["archive"], "start": False},
}
STRIPES: dict[str, dict[str, object]] = {"ring": {"stripes": [0, 1]}, "timing": {"detect": "60ms", "process": "200ms"}}
"""Times that a busy machine keeps: a ring that re-forms because of them says nothing about stripes."""
VICTIM = "c.s1"
SYMBOLS = [f"SYM{number}".encode() for number in range(24)]
ROUNDS, EACH = 12, 40


def batch(code: bytes, number: int) -> EventArray:
    """Trades of all symbols, and at first what is true of the whole floor."""
    events = np.zeros(EACH, EVENT_DTYPE)
    events["kind"], events["floor"] = EventKind.TRADE, code
    events["symbol"] = np.resize(np.roll(np.array(SYMBOLS, "S8"), number), EACH)
    events["id"] = np.arange(EACH) + number * EACH + 1
    events["price"] = 10_000 + events["id"]
    events["time"] = events["id"]
    if number == 0:
        events["kind"][0], events["symbol"][0], events["id"][0] = EventKind.MARK, b"", ord("O")
    return events


@dataclass
class Heard:
    """What one customer was given, in its order."""

    places: list[tuple[int, int, int]] = field(default_factory=list)
    """Token instant, stripe and sequence of each message."""
    whole: TapeDigest = field(default_factory=TapeDigest)
    stripes: dict[int, TapeDigest] = field(default_factory=lambda: {0: TapeDigest(), 1: TapeDigest()})

    async def hear(self, listener: Listener) -> None:
        async for got in listener:
            instants = dict(zip(got.sequences.tolist(), got.instants.tolist(), strict=True))
            self.places += [(instant, got.stripe, sequence) for sequence, instant in instants.items()]
            self.whole.update(got.events)
            self.stripes[got.stripe].update(got.events)


async def publish_all(floors: Mapping[str, Publisher], rounds: range) -> None:
    for number in rounds:
        await asyncio.gather(
            *[floor.publish(batch(FLOORS[name], number), f"{name}/{number}".encode()) for name, floor in floors.items()]
        )


def epochs(world: World, stripe: int) -> set[str | None]:
    names = [name for name in ("a", "b", "c") if stripe == 0 or f"{name}.s{stripe}" in world.nodes]
    hosts = [world.nodes[name if stripe == 0 else f"{name}.s{stripe}"].host for name in names]
    return {host.gauges().epoch for host in hosts if host is not None}


def published(routes: CoreRoutes, stripe: int) -> TapeDigest:
    """What floors published in a stripe, without the copies that another counts."""
    blocks = [batch(code, number) for code in FLOORS.values() for number in range(ROUNDS)]
    symbols = [block[(routes.stripes_of(block["symbol"]) == stripe)] for block in blocks]
    return digest_of(symbols)


def test_a_killed_receiver_of_one_stripe_disturbs_no_other_and_no_tape(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, NODES, settings=STRIPES)) as world:
            stalls = opened.enter_context(Stalls())
            await world.start_apart(VICTIM)
            started = [plan.name for plan in world.market.nodes if plan.start and plan.name != VICTIM]
            await world.start(*started)
            await eventually(lambda: all(len(ring) == 3 for ring in rings(world)))
            heard = {name: Heard() for name in CUSTOMERS}
            listeners = {
                name: Listener(world.market, name, start="beginning", inbox_messages=room)
                for name, room in CUSTOMERS.items()
            }
            floors = {name: Publisher(world.market, name) for name in FLOORS}
            for listener in listeners.values():
                await listener.open()
            hearing = [asyncio.create_task(heard[name].hear(listeners[name])) for name in ("desk", "fund")]
            try:
                await publish_all(floors, range(ROUNDS // 3))
                before, other, began = epochs(world, 0), epochs(world, 1), time_ns()
                await world.kill(VICTIM)
                await publish_all(floors, range(ROUNDS // 3, 2 * ROUNDS // 3))
                await eventually(lambda: not epochs(world, 1) & other)
                await publish_all(floors, range(2 * ROUNDS // 3, ROUNDS))
                await eventually(lambda: "slow-reader" in codes(listeners["slow"]))
                hearing.append(asyncio.create_task(heard["slow"].hear(listeners["slow"])))
                total = ROUNDS * EACH * len(FLOORS)
                await eventually(lambda: all(one.whole.events >= total for one in heard.values()))
                stalled = stalls.longest_ns(began, time_ns()) > world.market.timing.process_ns // 2
                assert stalled or epochs(world, 0) == before, "stripe 0 noticed"
                last = max(heard["desk"].places)[0]
                await eventually(lambda: all(listener.cut(last) for listener in listeners.values()))
                check_cuts(listeners, heard)
            finally:
                for task in hearing:
                    task.cancel()
                await asyncio.gather(*hearing, return_exceptions=True)
                for listener in listeners.values():
                    await listener.close()
                for floor in floors.values():
                    await floor.close()
            check_tapes(heard, core_routes(world.market))

    with ExitStack() as opened:
        run(work())


def codes(listener: Listener) -> set[str]:
    return {alarm.code for alarm in listener.alarms.list()}


def rings(world: World) -> list[tuple[str, ...]]:
    hosts = [world.nodes[name].host for name in ("a", "a.s1")]
    return [host.gauges().ring or () for host in hosts if host is not None]


def check_cuts(listeners: Mapping[str, Listener], heard: Mapping[str, Heard]) -> None:
    """Both know the same of every instant: what came before it in their tapes."""
    places = heard["desk"].places
    for instant in {places[len(places) * share // 10][0] for share in range(1, 9)}:
        cuts = [listener.cut(instant) for listener in listeners.values()]
        assert cuts[0] is not None
        assert cuts[0] == cuts[1] == cuts[2]
        for stripe in (0, 1):
            existed = [sequence for at, number, sequence in places if number == stripe and at <= instant]
            assert cuts[0].of(stripe) == max(existed, default=0)


def check_tapes(heard: Mapping[str, Heard], routes: CoreRoutes) -> None:
    desk = heard["desk"]
    for other in heard.values():
        assert desk.places == other.places == sorted(desk.places), "one order, that of instants, for everybody"
        assert desk.whole.hex == other.whole.hex
    for stripe in (0, 1):
        sequences = [sequence for _, number, sequence in desk.places if number == stripe]
        assert sequences == sorted(set(sequences)), "each once, in order"
        assert desk.stripes[stripe].floors == published(routes, stripe).floors
