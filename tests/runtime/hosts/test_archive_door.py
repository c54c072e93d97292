"""Ranges of the past at a receiver's door, from the journal as it lies there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.runtime.doorways import enter
from tests.runtime.hosts.contexts import Surroundings, new_market, run
from tests.wire.journal_samples import blocks, events_payload

from isocast.runtime.disk.journal import Journal
from isocast.runtime.disk.journal_segments import segment_files
from isocast.runtime.hosts import retransmit as module
from isocast.runtime.hosts.retransmit import ArchiveDoor
from isocast.runtime.market.model import Market
from isocast.runtime.net.door import DoorError, Visit, visit
from isocast.runtime.net.door_keys import edge_visitor
from isocast.wire.door import Block, End, Publish, RangeWanted, Refused, SnapshotWanted
from isocast.wire.journal_blocks import view_block


@pytest.fixture
def market(tmp_path: Path) -> Market:
    return new_market(tmp_path)


def served(market: Market, work: Callable[[Visit], Awaitable[None]]) -> Surroundings:
    """Visit the door of receiver a, whose journal is there already, as the customer bank."""
    around = Surroundings(market, "a")

    async def both() -> None:
        context = around.context()
        door = ArchiveDoor(context, market.directory_of("a") / "journal", lambda: None)
        await door.open()
        try:
            key = context.edge_door_key(edge_visitor(market.node("bank")))
            assert key is not None
            guest = await enter(market, "a", "edge/bank", key, by="bank")
            assert door.visitors == 1
            await work(guest)
            await guest.close()
        finally:
            await door.close()

    run(both)
    return around


def write(market: Market, count: int = 10, size: int = 2) -> None:
    with Journal.open(market.directory_of("a") / "journal", 3, 7) as journal:
        for released in blocks(count, size):
            journal.append(released)


async def fetched(guest: Visit, first: int, last: int) -> tuple[list[tuple[int, bytes]], End]:
    """(sequence, payload) of what is given for a range, and its end."""
    await guest.send(RangeWanted(first, last))
    found: list[tuple[int, bytes]] = []
    while isinstance(message := await guest.receive(), Block):
        block = view_block(message.body)
        found += zip(block.sequences, [payload for _, _, _, payload in block.messages()], strict=True)
    assert isinstance(message, End), message
    return found, message


def test_a_range_is_given_in_whole_blocks_with_what_the_archive_has(market: Market) -> None:
    write(market)

    async def work(guest: Visit) -> None:
        found, end = await fetched(guest, 5, 8)
        assert [sequence for sequence, _ in found] == [5, 6, 7, 8]
        assert found[0] == (5, events_payload(5))
        assert end == End(1, 21)
        found, _ = await fetched(guest, 1, 1 << 60)
        assert [sequence for sequence, _ in found] == list(range(1, 21))
        assert await fetched(guest, 21, 30) == ([], End(1, 21))

    around = served(market, work)
    assert around.counters.ranges_served == 3
    assert around.alarms == []


def test_an_archive_without_anything_says_so(market: Market) -> None:
    (market.directory_of("a") / "journal").mkdir()

    async def work(guest: Visit) -> None:
        assert await fetched(guest, 1, 10) == ([], End(1, 1))

    served(market, work)


def test_a_long_block_comes_in_slices_that_are_the_same_messages(
    market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LARGE_BYTES", 1_000)
    monkeypatch.setattr(module, "_SLICE", 8)
    write(market, count=2, size=50)

    async def work(guest: Visit) -> None:
        await guest.send(RangeWanted(1, 100))
        sizes: list[int] = []
        found: list[tuple[int, bytes]] = []
        while isinstance(message := await guest.receive(), Block):
            block = view_block(message.body)
            sizes.append(len(block.sequences))
            found += zip(block.sequences, [payload for _, _, _, payload in block.messages()], strict=True)
        assert max(sizes) == 8
        assert found == [(sequence, events_payload(sequence)) for sequence in range(1, 101)]

    served(market, work)


def test_a_damaged_journal_is_told_in_words_and_counted(market: Market) -> None:
    write(market)
    (segment,) = [file.path for file in segment_files(market.directory_of("a") / "journal")]
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(bytes(content))

    async def work(guest: Visit) -> None:
        await guest.send(RangeWanted(1, 20))
        while isinstance(message := await guest.receive(), Block):
            pass
        assert isinstance(message, Refused)
        assert "byte" in message.reason

    around = served(market, work)
    assert (around.counters.journal_alarms, around.counters.ranges_served) == (1, 0)


def test_there_are_no_snapshots_here(market: Market) -> None:
    write(market)

    async def work(guest: Visit) -> None:
        await guest.send(SnapshotWanted())
        assert "ask a retransmit server" in (await guest.expect(Refused)).reason

    served(market, work)


def test_nothing_is_published_here(market: Market) -> None:
    async def work(guest: Visit) -> None:
        await guest.send(Publish(((b"key", b"payload"),)))
        assert "publish at a source" in (await guest.expect(Refused)).reason

    served(market, work)


def test_the_core_s_visitors_and_strangers_are_turned_away_and_named(market: Market) -> None:
    around = Surroundings(market, "a")

    async def work() -> None:
        door = ArchiveDoor(around.context(), market.directory_of("a") / "journal", lambda: None)
        await door.open()
        plan = market.node("a")
        for name in ("edge/floor", "source/floor", "edge/nobody"):
            with pytest.raises(DoorError, match="unknown name or wrong key"):
                await visit(plan.address, plan.tcp_port, name, bytes(32))
        await door.close()

    run(work)
    assert around.counters.ranges_refused == 3
    assert set(around.codes) == {"visitor-a stranger at 127.0.0.1"}


def test_a_node_without_a_port_has_no_door(tmp_path: Path) -> None:
    nodes: dict[str, dict[str, object]] = {
        "a": {"role": "primary-receiver", "tcp_port": 0},
        "b": {"role": "primary-receiver"},
        "x": {"role": "reformation-server"},
    }
    market = new_market(tmp_path, nodes)

    async def work() -> None:
        door = ArchiveDoor(Surroundings(market, "a").context(), market.directory_of("a") / "journal", lambda: None)
        await door.open()
        assert door.visitors == 0
        await door.close()

    run(work)
