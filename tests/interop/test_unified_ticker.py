"""A dozen floors at once, replayed through the real network: every customer's tape is the same, whole, and the input.

ISOCAST_DATA=/path/to/data pytest -m long tests/interop/test_unified_ticker.py
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.runtime.worlds import SMALL, World, eventually, market_file, run

from isocast.feeds.synthetic import SyntheticDay, SyntheticPlan
from isocast.feeds.tape_digest import TapeDigest
from isocast.runtime.client.feed_files import FeedFile, FeedOptions
from isocast.runtime.client.replay import Replay, ReplayReport
from isocast.runtime.client.replay_messages import FloorFeed
from isocast.terms.market import Mic
from isocast.wire.events import events_view

FLOORS = 12
CUSTOMERS = {"bank": ["a", "b"], "fund": ["b", "c"], "broker": ["c", "a"]}
DATA = os.environ.get("ISOCAST_DATA", "")
real = pytest.mark.skipif(not DATA, reason="ISOCAST_DATA does not say where the real files are")

Floors = Mapping[str, tuple[int, str]]
"""For each market identifier code: its events, and the digest of their records."""


def market(folder: Path, floors: int) -> Path:
    nodes: dict[str, Mapping[str, object]] = {name: SMALL[name] for name in ("a", "b", "c", "x", "archive")}
    nodes |= {f"floor{number}": {"role": "primary-source"} for number in range(floors)}
    nodes |= {
        name: {"role": "customer", "lines": lines, "retransmit": ["archive"]} for name, lines in CUSTOMERS.items()
    }
    return market_file(folder, nodes)


def tape_of(world: World, customer: str) -> TapeDigest:
    tape = TapeDigest()
    for _, payload in world.released(customer):
        tape.update(events_view(payload))
    return tape


async def replayed(world: World, feeds: list[FloorFeed], *, restart: str | None = None) -> ReplayReport:
    """Everything through the market; one floor is stopped and started on the way."""
    replay = Replay(world.market, feeds)
    task = asyncio.create_task(replay.run())
    if restart is not None:
        await eventually(lambda: replay.report.messages > 100)
        await world.stop(restart)
        await world.start(restart, ready=False)
    report = await task
    await eventually(lambda: all(world.count(name) >= report.events for name in CUSTOMERS), 120)
    return report


def check_tapes(world: World, report: ReplayReport, wanted: Floors) -> None:
    tapes = [tape_of(world, name) for name in CUSTOMERS]
    assert len({tape.hex for tape in tapes}) == 1, "every customer has the same tape"
    assert tapes[0].floors == wanted, "complete, and equal to the input"
    assert sum(count for count, _ in wanted.values()) == report.events


def test_a_generated_day_of_a_dozen_floors(tmp_path: Path) -> None:
    async def work() -> None:
        day = SyntheticDay(SyntheticPlan(seed=7, floors=FLOORS, symbols=40, trades=1_200))
        written = TapeDigest()
        files: dict[str, Path] = {}
        for block in day.blocks():
            written.update(block)
            for code in sorted(set(block["floor"].tolist())):
                file = files.setdefault(code.decode(), tmp_path / f"{code.decode()}.events")
                with file.open("ab") as out:
                    out.write(block[block["floor"] == code].tobytes())
        assert len(files) == FLOORS
        feeds = [FloorFeed(f"floor{place}", (FeedFile(file),)) for place, file in enumerate(files.values())]
        async with World(market(tmp_path, FLOORS)) as world:
            await world.start()
            report = await replayed(world, feeds, restart="floor3")
            check_tapes(world, report, written.floors)

    run(work())


@real
@pytest.mark.long
def test_real_files_of_a_dozen_floors(tmp_path: Path) -> None:
    """A day of IBM on the US tape, each venue a floor of its own, and an ITCH file as one more."""

    async def work() -> None:
        tape_file = Path(DATA) / "lean_us_tick" / "ibm_20131007_trade.zip"
        itch_file = Path(DATA) / "itch_ritch_artificial" / "ex20101224.framed.ITCH50.gz"
        written = TapeDigest()
        for block in FeedFile(tape_file).blocks():
            written.update(block)
        codes = [*written.floors]
        assert len(codes) >= FLOORS
        named = [(tape_file, Mic(code)) for code in codes]
        for block in FeedFile(itch_file, FeedOptions(floor=Mic("XTST"))).blocks():
            written.update(block)
        feeds = [
            FloorFeed(f"floor{place}", (FeedFile(file, FeedOptions(floor=code)),))
            for place, (file, code) in enumerate([*named, (itch_file, Mic("XTST"))])
        ]
        async with World(market(tmp_path, len(feeds))) as world:
            await world.start()
            report = await replayed(world, feeds)
            check_tapes(world, report, written.floors)

    asyncio.run(asyncio.wait_for(work(), 280))
