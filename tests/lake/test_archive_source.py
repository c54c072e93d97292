"""`format("isocast")` from the doors of a running market: the network itself as a source that can be read again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from tests.lake.direct import columns_of, read_stream, read_table
from tests.runtime.worlds import SMALL, World, market_file, running, trades, wait_until

from isocast.lake.source import archive as source_archive
from isocast.lake.source.journal import IsocastSource
from isocast.runtime.client.publisher import Publisher
from isocast.runtime.disk.journal_reader import read_blocks
from isocast.runtime.market.file import load_market
from isocast.runtime.market.model import Market, NodePlan, NodeRole
from isocast.runtime.net.door import Visit, visit_node
from isocast.security.door_identities import DoorHand
from isocast.terms.errors import ConfigurationError, JournalError
from isocast.wire.events import EventArray
from isocast.wire.journal_blocks import view_block

NODES = {**SMALL, "lake": {"role": "customer", "lines": ["b", "c"], "retransmit": ["archive"], "start": False}}
EVENTS = 4_000
ALL = ReadAllAvailable()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A market that has released some events, and whose archive has them all."""
    path = market_file(tmp_path_factory.mktemp("market"), NODES)
    with running(path) as alive:
        publish(alive, trades(EVENTS))
        wait_until(lambda: all(alive.count(name) == EVENTS for name in ("a", "b", "c", "archive")))
        yield alive


def publish(world: World, events: EventArray) -> None:
    async def work() -> None:
        async with Publisher(world.market, "floor") as door:
            await door.publish(events)

    asyncio.run(work())


def rows(world: World, columns: list[str] | None = None, **options: object) -> pa.Table:
    given = {"market": world.path, "as": "lake", **options}
    return read_table(None, columns, IsocastSource, **given)


def ids(table: pa.Table) -> list[int]:
    return [int(number) for number in table["id"].to_pylist()]


def test_a_retransmit_server_gives_the_whole_sequence(world: World) -> None:
    table = rows(world)
    assert ids(table) == list(range(1, EVENTS + 1))
    assert set(table["receiver"].to_pylist()) == {world.market.node("archive").node}
    assert set(table["source"].to_pylist()) == {0}, "customers are not told who published"


def test_a_receiver_gives_the_same_with_the_sources(world: World) -> None:
    table = rows(world, server="b", minPartitions=3)
    assert ids(table) == list(range(1, EVENTS + 1))
    journal = read_table(world.market.directory_of("b") / "journal")
    assert table.to_pylist() == journal.to_pylist()


def test_a_range_is_asked_for_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_archive, "_ASK", 16)
    whole = rows(world, ["sequence", "id"])
    part = rows(world, ["sequence", "id"], fromSequence=10, toSequence=99)
    assert part.to_pylist() == [row for row in whole.to_pylist() if 10 <= row["sequence"] <= 99]


def test_a_stream_goes_on_by_sequence(world: World) -> None:
    given = CaseInsensitiveDict({"market": str(world.path), "as": "lake"})
    source = IsocastSource(given)
    reader = source.streamReader(columns_of(source, None))
    start = reader.initialOffset()
    assert start == {"0": 1}
    first = reader.latestOffset(start, ReadMaxRows(200))
    batch = pa.Table.from_batches(list(read_stream(reader, start, first)))
    assert 0 < batch.num_rows <= 200
    end = reader.latestOffset(first, ALL)
    rest = pa.Table.from_batches(list(read_stream(reader, first, end)))
    assert ids(batch) + ids(rest) == list(range(1, EVENTS + 1))
    assert reader.latestOffset(end, ALL) == end
    with pytest.raises(JournalError, match="the checkpoint has read stripe 0 up to sequence"):
        reader.latestOffset({"0": end["0"] + 7}, ALL)


def test_what_no_server_has_is_an_error_that_names_it(world: World) -> None:
    source = IsocastSource(CaseInsensitiveDict({"market": str(world.path), "as": "lake"}))
    reader = source.streamReader(columns_of(source, None))
    end = reader.latestOffset({"0": 1}, ALL)
    with pytest.raises(JournalError, match=rf"sequences {end['0']} to {end['0'] + 3} of stripe 0 are on none"):
        list(read_stream(reader, {"0": 1}, {"0": end["0"] + 4}))


def test_a_server_that_leaves_a_message_out_is_not_believed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = source_archive._range_once  # noqa: SLF001

    async def holed(here: Visit, first: int, last: int) -> tuple[list[bytes], int, int]:
        bodies, low, stop = await honest(here, first, last)
        return [body for body in bodies if view_block(body).header.first_sequence != lost], low, stop

    lost = next(iter(read_blocks(world.market.directory_of("b") / "journal", 50))).header.first_sequence
    monkeypatch.setattr(source_archive, "_range_once", holed)
    with pytest.raises(JournalError, match=f"b: has nothing from sequence {lost} on; .* sequences {lost} to "):
        rows(world, server="b", minPartitions=1)


@pytest.mark.parametrize(
    "options, rule",
    [
        ({"as": "lak"}, 'did you mean "lake"'),
        ({"server": "floor"}, "no retransmit server or receiver"),
        ({"stripe": 4}, "there are"),
        ({"path": "data"}, "either a folder"),
    ],
)
def test_a_wrong_option_is_named(world: World, options: dict[str, object], rule: str) -> None:
    with pytest.raises(ConfigurationError, match=rule):
        rows(world, None, **options)


def test_a_seat_that_is_kept_for_programs_is_taken_by_itself(world: World, tmp_path: Path) -> None:
    assert read_table(None, ["id"], IsocastSource, market=world.path).num_rows == EVENTS
    closed = market_file(tmp_path, SMALL, settings={"guests": {"allowed": False}})
    with pytest.raises(ConfigurationError, match="option as: is missing: the name of a customer"):
        read_table(None, None, IsocastSource, market=closed)


def test_without_a_seat_a_lake_is_a_guest(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each server sees a guest by its key, and gives the same sequence as to a customer."""
    alive = load_market(world.path)
    seatless = replace(alive, nodes=tuple(plan for plan in alive.nodes if plan.role is not NodeRole.CUSTOMER))
    monkeypatch.setattr(source_archive, "load_market", lambda _: seatless)
    seen: list[str] = []

    async def visiting(market: Market, there: NodePlan, name: str, key: bytes, hand: DoorHand | None) -> Visit:
        seen.append(name)
        return await visit_node(market, there, name, key, hand)

    monkeypatch.setattr(source_archive, "visit_node", visiting)
    for server in ("archive", "b"):
        table = read_table(None, ["id"], IsocastSource, market=world.path, server=server)
        assert ids(table) == list(range(1, EVENTS + 1))
    assert {name.partition("/")[0] for name in seen} == {"guest"}


def test_a_server_that_is_down_is_named(tmp_path: Path) -> None:
    path = market_file(tmp_path, NODES)
    with pytest.raises(JournalError, match=r"no server of stripe 0 answers; archive: no connection to"):
        read_table(None, None, IsocastSource, **{"market": path, "as": "lake"})
