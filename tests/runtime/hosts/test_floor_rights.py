"""A floor in a market: what a source may not send is refused and void, and instants come though nobody writes."""

from contextlib import suppress
from pathlib import Path
from time import time_ns

import pytest
from tests.runtime.worlds import SMALL, World, eventually, market_file, run, trades

from isocast.floor.codec import encode_event, floor_topic
from isocast.floor.events import Event, Order, Phase, Schedule, Status
from isocast.floor.printing import amended
from isocast.runtime.client.publisher import Publisher, PublishRefusedError
from isocast.runtime.disk.floor_journal import JournalFloor
from isocast.runtime.hosts.publish_door import PublishDoor
from isocast.runtime.operate.floor_change import listing, opening, publish_events
from isocast.runtime.operate.floor_correction import (
    countersigned,
    proposed,
    publish_correction,
    signed,
    standing_trade,
)
from isocast.terms.errors import JournalError
from isocast.terms.ids import GATEWAY_SHIFT
from isocast.terms.market import Side
from isocast.wire.opaque import OpaqueMessage

CODE = "XISO"
NODES = {name: node for name, node in SMALL.items() if name not in ("archive", "bank")}
NODES |= {"east": {"role": "primary-source"}, "broker": {"role": "secondary-source", "parent": "east"}}
FLOOR: dict[str, dict[str, object]] = {
    f"floor.{CODE}": {"sources": ["floor"]},
    f"floor.{CODE}.gateways": {"east": 1},
    f"[floor.{CODE}.symbols]": {"symbol": "ISO"},
}
HALT = Status(None, Phase.HALTED)
RECEIVERS = ("a", "b", "c")


def order(gateway: int, number: int) -> Order:
    account = gateway << GATEWAY_SHIFT | 16
    return Order(account << 32 | number, account, "ISO", Side.BUY, 1, 100_000)


async def send(world: World, source: str, *events: Event) -> None:
    async with Publisher(world.market, source) as publisher:
        await publisher.send([OpaqueMessage(floor_topic(CODE), encode_event(event)) for event in events])


def status(world: World, name: str) -> dict[str, object]:
    (floor,) = world.nodes[name].host.floors  # type: ignore[union-attr]
    state = floor.arbiter.floor.floor
    symbols = {name: one.phase.value for name, one in state.symbols.items()}
    return {"token": floor.arbiter.token, "orders": len(state.orders), "symbols": symbols}


def test_a_forged_halt_and_forged_orders_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with World(market_file(tmp_path, NODES, settings=FLOOR)) as world:
            await world.start()
            (floor,) = world.market.floors
            await publish_events(world.market, floor, opening(floor))
            for events in ((HALT,), (order(2, 1),), (order(1, 1), order(2, 1))):
                with pytest.raises(PublishRefusedError, match=r"floor XISO.* must not come through east"):
                    await send(world, "east", *events)
            with pytest.raises(PublishRefusedError, match=r"operator .* must not come through east"):
                await send(world, "broker", HALT)
            with monkeypatch.context() as patched:
                # A source that asks nobody: its door lets everything through.
                patched.setattr(PublishDoor, "_unrightful", lambda *_: "")
                await send(world, "east", HALT)
                await send(world, "east", order(2, 1))
                prints = trades(2)
                prints["floor"] = CODE.encode()
                await world.publish("east", prints)
            await send(world, "broker", order(1, 1))
            await eventually(lambda: all(status(world, name)["orders"] for name in RECEIVERS))
            for name in RECEIVERS:
                assert status(world, name)["symbols"] == {"ISO": "open"}
                assert status(world, name)["orders"] == 1
                assert world.nodes[name].counters.floor_messages_refused == 3
                assert world.alarms(name).count("floor-refused-east") == 1
                assert [payload for _, payload in world.released(name)].count(b"") == 3, "their places stay"
                assert world.ids(name) == []

    run(story())


def test_a_floor_that_nobody_writes_to_goes_through_its_day(tmp_path: Path) -> None:
    async def story() -> None:
        async with World(market_file(tmp_path, NODES, settings=FLOOR)) as world:
            await world.start()
            (floor,) = world.market.floors
            soon, later = time_ns() + 10**9, time_ns() + 2 * 10**9
            day = Schedule(((soon, Phase.PRE_OPEN), (later, Phase.OPEN)))
            await publish_events(world.market, floor, [*listing(floor), day])
            for name in RECEIVERS:
                await eventually(lambda name=name: status(world, name)["symbols"] == {"ISO": "open"})  # type: ignore[misc]
            tokens = {status(world, name)["token"] for name in RECEIVERS}
            assert all(tokens)
            assert not [code for name in RECEIVERS for code in world.alarms(name) if code.startswith("floor-")]

    run(story())


def test_two_operators_correct_a_trade_at_every_receiver_and_on_the_tape(tmp_path: Path) -> None:
    own: dict[str, object] = {"sources": ["floor"], "correctors": ["anna", "ben"]}
    settings = {**FLOOR, f"floor.{CODE}": own}

    async def story() -> None:
        async with World(market_file(tmp_path, NODES, settings=settings)) as world:
            await world.start()
            market = world.market
            (floor,) = market.floors
            await publish_events(market, floor, opening(floor))
            seller = order(1, 1)._replace(side=Side.SELL, quantity=5)
            buyer = order(1, 1)._replace(id=seller.id + (1 << 32), account=seller.account + 1, quantity=5)
            await send(world, "east", seller)
            await send(world, "east", buyer)
            journals = [market.directory_of(name) / "journal" for name in RECEIVERS]
            await eventually(lambda: all(stands(journal) == ["confirmed"] for journal in journals))
            paper = proposed(standing_trade(JournalFloor(journals[0], CODE), 1), None, None, 10**12, "a test")
            once, _ = signed(market, floor, paper, market.keys_directory / "identity-anna.key")
            with pytest.raises(PublishRefusedError, match="1 signature, and two operators must sign"):
                await publish_correction(market, floor, once)
            standing = standing_trade(JournalFloor(journals[1], CODE), 1)
            twice, names = countersigned(market, floor, once, standing, market.keys_directory / "identity-ben.key")
            assert names == ("anna", "ben")
            for _ in range(2):
                await publish_correction(market, floor, twice)
            await eventually(lambda: all(stands(journal) == ["void"] for journal in journals))
            await eventually(lambda: all(1 in cancelled(world, name) for name in RECEIVERS))
            assert [len(cancelled(world, name)) for name in RECEIVERS] == [1, 1, 1]
            for name in RECEIVERS:
                assert not [code for code in world.alarms(name) if code.startswith("floor-")]

    def stands(journal: Path) -> list[str]:
        """How trades stand; nothing while the journal has none."""
        with suppress(JournalError):  # It is empty at first.
            return [one.state for one in JournalFloor(journal, CODE).trades()]
        return []

    def cancelled(world: World, name: str) -> list[int]:
        found = [amended(CODE, payload) for _, payload in world.released(name)]
        return [int(event["id"]) for events in found for event in events]

    run(story())
