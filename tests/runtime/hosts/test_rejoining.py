"""A checkpoint from another receiver's door, and everything that was released before it (protocol §5)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.ring.makers import EPOCH
from tests.runtime.doorways import enter
from tests.runtime.hosts.contexts import Surroundings, new_market, run
from tests.wire.journal_samples import blocks

from isocast.checks.journals import FaultKind
from isocast.ring.effects import FetchCheckpoint
from isocast.ring.inputs import CheckpointFetched
from isocast.ring.ledger import Checkpoint
from isocast.runtime.disk.journal import Journal
from isocast.runtime.disk.journal_reader import read_blocks, summarise
from isocast.runtime.disk.journal_verify import set_damage_aside, verify
from isocast.runtime.disk.records import checkpoint_bytes, read_checkpoint
from isocast.runtime.hosts.checkpoint_fetcher import CheckpointFetcher
from isocast.runtime.hosts.retransmit import ArchiveDoor
from isocast.runtime.market.model import JournalSettings, Market
from isocast.runtime.net.door import DoorError, DoorRefusedError, visit
from isocast.runtime.net.door_keys import core_visitor, edge_visitor
from isocast.terms.ids import Epoch
from isocast.wire.door import CheckpointGiven, CheckpointWanted

POINT = Checkpoint(40, EPOCH, b"d" * 32, 7, 81, b"r" * 16, (1, 2, 3), {1 << 32: 5, 2 << 32: 9})
"""Behind forty tokens of two messages each."""


@pytest.fixture
def market(tmp_path: Path) -> Market:
    return new_market(tmp_path)


def journal_of(market: Market, name: str, count: int, first: int = 1, settings: JournalSettings | None = None) -> None:
    """The journal of a receiver that released so many tokens, from one of them on."""
    node = market.node(name).node
    with Journal.open(market.directory_of(name) / "journal", 0, node, settings) as journal:
        for block in blocks(count, 2, first_token=first, first_sequence=2 * first - 1):
            journal.append(block)


def rejoining(
    market: Market,
    work: Callable[[CheckpointFetcher, Journal, list[object]], Awaitable[None]],
    doors: dict[str, Checkpoint | None],
) -> Surroundings:
    """Work at receiver c, while others keep their doors open."""
    around = Surroundings(market, "c")

    async def everything() -> None:
        fed: list[object] = []
        async with AsyncExitStack() as opened:
            for name, point in doors.items():
                context = Surroundings(market, name).context()
                door = ArchiveDoor(context, market.directory_of(name) / "journal", lambda point=point: point)  # type: ignore[misc]
                await door.open()
                opened.push_async_callback(door.close)
            with Journal.open(market.directory_of("c") / "journal", 0, market.node("c").node) as journal:
                fetcher = CheckpointFetcher(around.context(), journal, fed.append)
                fetcher.patience_s = 0.0
                await work(fetcher, journal, fed)
                fetcher.stop()

    run(everything)
    return around


async def granted(fetcher: CheckpointFetcher) -> None:
    while fetcher.busy:
        assert fetcher._task is not None  # noqa: SLF001 (a test may wait)
        await fetcher._task  # noqa: SLF001


def ids(market: Market, *names: str) -> tuple[int, ...]:
    return tuple([market.node(name).node for name in names])


# The checkpoint


def test_a_checkpoint_comes_after_what_was_released_before_it(market: Market) -> None:
    journal_of(market, "a", 45)
    journal_of(market, "c", 3)

    async def work(fetcher: CheckpointFetcher, journal: Journal, fed: list[object]) -> None:
        fetcher.want(FetchCheckpoint(ids(market, "b", "a"), 3))
        fetcher.want(FetchCheckpoint(ids(market, "a"), 3))
        assert not fed
        await granted(fetcher)
        assert fed == [CheckpointFetched(POINT, market.node("a").node)], "b is down; the second wish came too early"
        assert journal.position.next_sequence == 81

    around = rejoining(market, work, {"a": POINT})
    assert around.codes == []
    report = verify(market.directory_of("c") / "journal")
    assert (report.is_sound, report.messages, report.fetched_messages) == (True, 80, 74)
    (segment,) = summarise(market.directory_of("c") / "journal")
    assert segment.fetched_messages == 74
    ours = list(read_blocks(market.directory_of("c") / "journal"))
    theirs = list(read_blocks(market.directory_of("a") / "journal", 1, 80))
    assert [block.messages() for block in ours] == [block.messages() for block in theirs]
    assert [block.header.released_at for block in ours] == [block.header.released_at for block in theirs]
    assert [block.header.fetched for block in ours] == [False] * 3 + [True] * 37


def test_a_checkpoint_that_is_no_help_is_left(market: Market) -> None:
    async def work(fetcher: CheckpointFetcher, _: Journal, fed: list[object]) -> None:
        fetcher.want(FetchCheckpoint(ids(market, "a", "b"), 40))
        await granted(fetcher)
        assert fed == []

    rejoining(market, work, {"a": POINT, "b": None})


def test_only_receivers_get_checkpoints(market: Market) -> None:
    """The edge key opens the door for ranges, and no more; another's core name does not open it at all."""

    async def work() -> None:
        context = Surroundings(market, "a").context()
        door = ArchiveDoor(context, market.directory_of("a") / "journal", lambda: POINT)
        await door.open()
        plan = market.node("a")
        try:
            for visitor in ("bank", "b"):
                name = edge_visitor(market.node(visitor))
                guest = await enter(market, "a", name, context.archive_door_key(name), by=visitor)
                await guest.send(CheckpointWanted())
                with pytest.raises(DoorError, match="for receivers alone"):
                    await guest.expect(CheckpointGiven)
                await guest.close()
            edge = context.edge_door_key(edge_visitor(market.node("b"))) or b""
            with pytest.raises(DoorRefusedError):
                await visit(plan.address, plan.tcp_port, core_visitor(market.node("b")), edge)
            for stranger in ("floor", "bank", "archive", "x"):
                assert context.archive_door_key(core_visitor(market.node(stranger))) is None
        finally:
            await door.close()

    run(work)


# What was released before it


def test_what_one_archive_lacks_another_has(market: Market) -> None:
    journal_of(market, "a", 10, first=31)
    journal_of(market, "b", 35)

    async def work(fetcher: CheckpointFetcher, journal: Journal, _: list[object]) -> None:
        await fetcher.fill(81, market.node("a").node)
        assert journal.position.next_sequence == 81
        assert fetcher.gaps == []

    rejoining(market, work, {"a": None, "b": None})
    assert verify(market.directory_of("c") / "journal").is_sound


def test_what_nobody_has_any_more_is_a_gap_that_is_told(market: Market) -> None:
    """Never in silence: an alarm, a segment that begins anew, and a fault that `journal verify` names."""
    journal_of(market, "a", 10, first=31)
    journal_of(market, "b", 12, first=29)
    journal_of(market, "c", 3)

    async def work(fetcher: CheckpointFetcher, journal: Journal, _: list[object]) -> None:
        await fetcher.fill(81)
        assert fetcher.gaps == [(7, 56)]
        assert journal.counters.gaps == 1

    around = rejoining(market, work, {"a": None, "b": None})
    assert around.codes == ["journal-gap"]
    assert "sequences 7 to 56 are in no archive any more" in around.alarms[0][1]
    report = verify(market.directory_of("c") / "journal")
    assert report.counts == {FaultKind.GAP: 1}
    assert "sequences 7 to 56 are missing" in report.faults[0].text
    assert [segment.first_sequence for segment in summarise(market.directory_of("c") / "journal")] == [1, 57]


def test_a_door_that_does_not_open_is_waited_for(market: Market) -> None:
    """It may have what the others have not: a node restarts in less than the patience."""
    journal_of(market, "a", 10, first=31)
    journal_of(market, "b", 40)

    async def work(fetcher: CheckpointFetcher, journal: Journal, _: list[object]) -> None:
        fetcher.patience_s = 30.0
        door = ArchiveDoor(Surroundings(market, "b").context(), market.directory_of("b") / "journal", lambda: None)
        fetcher._context.loop.call_later(0.3, lambda: opening.append(fetcher._context.loop.create_task(door.open())))  # noqa: SLF001
        await fetcher.fill(81)
        assert journal.position.next_sequence == 81
        await door.close()

    opening: list[object] = []
    assert rejoining(market, work, {"a": None}).codes == []


def test_without_any_archive_the_journal_begins_at_the_checkpoint(market: Market) -> None:
    async def work(fetcher: CheckpointFetcher, journal: Journal, _: list[object]) -> None:
        await fetcher.fill(81)
        assert journal.position.next_sequence == 81
        for block in blocks(1, 2, first_token=41, first_sequence=81):
            journal.append(block)

    assert rejoining(market, work, {}).codes == ["journal-gap"]
    assert verify(market.directory_of("c") / "journal").first_sequence == 81


def test_what_was_set_aside_is_taken_before_anything_is_fetched(market: Market) -> None:
    journal_of(market, "a", 40)
    journal_of(market, "c", 30)
    directory = market.directory_of("c") / "journal"
    (path,) = directory.glob("*.isoj")
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    assert set_damage_aside(directory) is not None

    async def work(fetcher: CheckpointFetcher, journal: Journal, _: list[object]) -> None:
        assert 1 < journal.position.next_sequence < 61
        await fetcher.fill(61)
        assert fetcher.fetched == 2, "one block of two messages was damaged"

    rejoining(market, work, {"a": None})
    report = verify(directory)
    assert (report.is_sound, report.messages, report.fetched_messages) == (True, 60, 2)


# Bytes


def test_a_checkpoint_comes_back_from_its_bytes() -> None:
    assert read_checkpoint(checkpoint_bytes(POINT)) == POINT
    assert read_checkpoint(checkpoint_bytes(Checkpoint())) == Checkpoint()


@pytest.mark.parametrize("cut", [0, 1, 60, -1])
def test_half_a_checkpoint_is_none(cut: int) -> None:
    with pytest.raises(ValueError, match="a checkpoint"):
        read_checkpoint(checkpoint_bytes(POINT)[:cut])


def test_a_checkpoint_that_contradicts_itself_is_none() -> None:
    packed = bytearray(checkpoint_bytes(POINT))
    twice = Checkpoint(1, Epoch(1, 1), universe=(2, 2))
    for wrong in (bytes(packed) + b"\0", checkpoint_bytes(twice), checkpoint_bytes(Checkpoint(next_sequence=0))):
        with pytest.raises(ValueError, match="a checkpoint"):
            read_checkpoint(wrong)
