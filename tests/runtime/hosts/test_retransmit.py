"""Retransmit servers: an archive that survives, answers in shares, snapshots for those who come late."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.runtime.doorways import enter
from tests.runtime.worlds import SMALL, World, eventually, market_file, run, trades

from isocast.runtime.disk.journal_reader import JournalReader, packets_of
from isocast.runtime.hosts.retransmit import RetransmitHost
from isocast.runtime.market.key_files import load_keys
from isocast.runtime.net.door import DoorError, Visit, visit
from isocast.runtime.net.door_keys import edge_door_key, edge_visitor
from isocast.wire.door import Block, DoorMessage, End, Publish, RangeWanted, Refused, Snapshot, SnapshotWanted
from isocast.wire.events import events_view
from isocast.wire.journal_blocks import view_block

BRIEF = {"journal": {"segment_bytes": "64KiB", "keep_bytes": "128KiB"}}
"""Journals that soon forget."""
CORE = ("a", "b", "c", "x", "floor")


async def visit_archive(world: World, name: str = "bank") -> Visit:
    market = world.market
    plan = market.node(name)
    key = edge_door_key(market, load_keys(market, plan), edge_visitor(plan))
    return await enter(market, "archive", edge_visitor(plan), key, by=name)


async def ask(guest: Visit, wanted: DoorMessage) -> tuple[list[int], DoorMessage | None]:
    """The sequences that came, and what came last."""
    await guest.send(wanted)
    sequences: list[int] = []
    while True:
        answer = await guest.receive()
        if not isinstance(answer, Block):
            return sequences, answer
        sequences += [packet.sequence for packet in packets_of([view_block(answer.body)], 0, 1, 0)]


def host_of(world: World) -> RetransmitHost:
    host = world.nodes["archive"].host
    assert isinstance(host, RetransmitHost)
    return host


def test_ranges_and_snapshots_at_the_door(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path)) as world:
            await world.start(*CORE, "archive")
            await world.publish("floor", trades(270, symbols=(b"ISO", b"CAST")))
            await world.until_journals_have(range(1, 271), "archive")
            guest = await visit_archive(world)
            assert await ask(guest, RangeWanted(3, 7)) == ([3, 4, 5, 6, 7], End(1, 11))
            assert await ask(guest, RangeWanted(9, 500)) == ([9, 10], End(1, 11))
            assert await ask(guest, RangeWanted(500, 600)) == ([], End(1, 11))
            assert await ask(guest, RangeWanted(0, 2**64 - 1)) == ([], End(1, 11))
            _, latest = await ask(guest, SnapshotWanted())
            assert isinstance(latest, Snapshot)
            assert latest.next_sequence == 11
            assert sorted(events_view(latest.events)["id"].tolist()) == [269, 270]
            _, refused = await ask(guest, Publish(((b"key", b""),)))
            assert isinstance(refused, Refused)
            await guest.close()

    run(work())


def test_an_archive_survives_its_server_and_fills_what_it_missed(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, loss=0.02)) as world:
            await world.start()
            await world.publish("floor", trades(200))
            await world.until_journals_have(range(1, 201), "archive", "bank")
            await world.stop("archive")
            await world.publish("floor", trades(200, 201))
            await world.until_journals_have(range(1, 401), "a")
            await world.start("archive")
            await world.publish("floor", trades(200, 401))
            await world.until_journals_have(range(1, 601), "archive", "bank")
            assert world.released("archive") == world.released("a")
            guest = await visit_archive(world)
            assert (await ask(guest, RangeWanted(1, 5)))[0] == [1, 2, 3, 4, 5]
            _, latest = await ask(guest, SnapshotWanted())
            assert isinstance(latest, Snapshot)
            assert events_view(latest.events)["id"].tolist() == [600]
            await guest.close()

    run(work())


def test_what_retention_took_is_below_the_low_water_mark_and_nobody_waits_for_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, settings=BRIEF)) as world:
            await world.start(*CORE, "archive")
            for first in range(1, 8_001, 2_000):
                await world.publish("floor", trades(2_000, first))
                await world.until_journals_end_with(first + 1_999, "archive")
            await eventually(lambda: host_of(world).machine.low_water > 1)
            archive = host_of(world)
            span = JournalReader(world.market.directory_of("archive") / "journal").span()
            assert span is not None
            low_water, following = span
            assert archive.machine.low_water == low_water
            guest = await visit_archive(world)
            assert await ask(guest, RangeWanted(1, 5)) == ([], End(low_water, following))
            assert (await ask(guest, RangeWanted(low_water, low_water + 2)))[0] == [
                low_water,
                low_water + 1,
                low_water + 2,
            ]
            await guest.close()
            await world.start("bank")
            await world.until_journals_end_with(8_000, "bank")
            assert world.released("bank")[0][0] > 1
            assert "lost" not in world.alarms("bank"), "it had nothing before it began"

    run(work())


def test_a_customer_that_was_away_for_too_long_is_told_what_is_lost(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, settings=BRIEF)) as world:
            await world.start()
            await world.publish("floor", trades(27))
            await world.until_journals_have(range(1, 28), "bank")
            await world.stop("bank")
            for first in range(28, 8_028, 2_000):
                await world.publish("floor", trades(2_000, first))
                await world.until_journals_end_with(first + 1_999, "archive")
            await eventually(lambda: host_of(world).machine.low_water > 1)
            await world.start("bank")
            await world.until_journals_end_with(8_027, "bank")
            assert "lost" in world.alarms("bank")
            assert world.nodes["bank"].counters.messages_skipped > 0

    run(work())


def test_who_asks_for_more_than_its_share_is_named_and_others_are_served(tmp_path: Path) -> None:
    nodes = {**SMALL, "greedy": {"role": "customer", "lines": ["b"], "retransmit": ["archive"]}}

    async def work() -> None:
        async with World(market_file(tmp_path, nodes)) as world:
            await world.start(*CORE, "archive", "bank")
            await world.publish("floor", trades(27 * 400))
            await world.until_journals_have(range(1, 27 * 400 + 1), "archive", "bank")
            # Shares that a busy machine can use up, too.
            door = host_of(world).machine.door
            door.limits = replace(door.limits, customer_rate=100, customer_burst=600)
            greedy, honest = await visit_archive(world, "greedy"), await visit_archive(world)
            while "throttled-greedy" not in world.alarms("archive"):
                await ask(greedy, RangeWanted(1, 400))
            given = len((await ask(greedy, RangeWanted(1, 400)))[0])
            assert given < 400, "its share is used up"
            assert (await ask(honest, RangeWanted(1, 400)))[0] == list(range(1, 401))
            await greedy.close()
            await honest.close()
            assert not [code for code in world.alarms("archive") if "bank" in code]

    run(work())


def test_who_asks_again_is_answered_and_not_refused_for_the_visit_before(tmp_path: Path) -> None:
    """A customer was killed with a request under way; its next life asks from another connection."""

    async def work() -> None:
        async with World(market_file(tmp_path)) as world:
            await world.start(*CORE, "archive")
            await world.publish("floor", trades(270))
            await world.until_journals_have(range(1, 271), "archive")
            machine = host_of(world).machine
            machine.door.limits = replace(machine.door.limits, customer_rate=4, customer_burst=4, quantum=4)
            dead, alive = await visit_archive(world), await visit_archive(world)
            assert (await ask(dead, RangeWanted(1, 4)))[0] == [1, 2, 3, 4]
            await dead.send(RangeWanted(1, 4))
            await eventually(lambda: machine.door.accounts[world.market.node("bank").node].pending)
            assert (await ask(alive, RangeWanted(5, 8)))[0][:1] == [5]
            assert isinstance(await dead.receive(), Refused)
            await dead.close()
            await alive.close()

    run(work())


def test_a_stranger_is_not_let_in(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path)) as world:
            await world.start("archive", ready=False)
            archive = world.market.node("archive")
            for name, key in (("edge/bank", bytes(32)), ("source/floor", bytes(32)), ("edge/nobody", bytes(32))):
                with pytest.raises(DoorError, match="unknown name or wrong key"):
                    await visit(archive.address, archive.tcp_port, name, key)
            await eventually(lambda: world.nodes["archive"].counters.ranges_refused == 3)

    run(work())


@pytest.mark.parametrize("damage", [b"", b"no snapshot at all"])
def test_a_damaged_snapshot_is_made_again_from_the_archive(tmp_path: Path, damage: bytes) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path)) as world:
            await world.start(*CORE, "archive")
            await world.publish("floor", trades(100))
            await world.until_journals_have(range(1, 101), "archive")
            await world.stop("archive")
            (world.market.directory_of("archive") / "snapshot").write_bytes(damage)
            await world.start("archive")
            guest = await visit_archive(world)
            latest: DoorMessage | None = None
            while not isinstance(latest, Snapshot):
                _, latest = await ask(guest, SnapshotWanted())
            assert events_view(latest.events)["id"].tolist() == [100]
            await guest.close()

    run(work())
