"""The stories of a day through a market that runs: a correction, a halt, a floor that restarts, a late joiner."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tests.runtime.worlds import SMALL, World, eventually, market_file, run, trades
from tests.ticker.test_digest import digest_of

from isocast.runtime.client.listener import Listener
from isocast.runtime.disk.journal_reader import read_blocks
from isocast.terms.market import EventKind, MarketStatus
from isocast.ticker.records import TapeFault
from isocast.ticker.tape import Tape, state_digest
from isocast.ticker.views import day_rows, symbol_views
from isocast.wire.events import EventArray, events_view

NODES = {
    **SMALL,
    "other": {"role": "primary-source"},
    "desk": {"role": "customer", "lines": ["a", "b"], "retransmit": ["archive"], "start": False},
}

MORNING = trades(100)
ELSEWHERE = trades(40)
ELSEWHERE["floor"] = b"XLON"


def afternoon() -> EventArray:
    """The last trade of the morning was at 1.0050; then a halt."""
    events = trades(2)
    events["kind"], events["id"] = [EventKind.CORRECTION, EventKind.STATUS], [100, 0]
    events["price"], events["quantity"], events["reference"] = [10_050, 0], [60, 0], [0, MarketStatus.HALTED]
    return events


def tape_of(world: World, name: str) -> Tape:
    tape = Tape()
    for block in read_blocks(world.market.directory_of(name) / "journal"):
        for sequence, (*_, payload) in zip(block.sequences, block.messages(), strict=True):
            events = events_view(payload)
            tape.take(events, np.full(len(events), sequence, np.uint64), sequence)
    return tape


async def _day(path: Path) -> None:
    async with World(path) as world:
        await world.start()
        await world.publish("floor", MORNING, b"morning")
        await world.publish("other", ELSEWHERE)
        await eventually(lambda: world.count("archive") == 140)
        morning = tape_of(world, "archive")

        await world.stop("floor")
        await world.start("floor")
        await world.publish("floor", MORNING, b"morning")  # Under its key it is published once.
        await world.publish("floor", MORNING[-5:])  # Without one the tape knows it again.
        await world.publish("floor", afternoon())
        await eventually(lambda: all(world.count(name) == 147 for name in ("a", "b", "c", "archive", "bank")))

        whole = tape_of(world, "bank")
        assert {state_digest(tape_of(world, name)) for name in ("a", "b", "c", "archive")} == {state_digest(whole)}
        inputs = digest_of([MORNING, MORNING[-5:], afternoon(), ELSEWHERE])
        heard = digest_of([events_view(payload) for _, payload in world.released("bank")])
        assert inputs.floors == heard.floors
        _look_at(whole)

        late = Tape.restore(morning.snapshot())
        async with Listener(world.market, "desk", start=late.sequence + 1) as listener:
            async for batch in listener:
                late.take(batch.events, batch.sequences, batch.last_sequence)
                if late.sequence >= whole.sequence:
                    break
        assert late.snapshot() == whole.snapshot()


def _look_at(tape: Tape) -> None:
    assert tape.faults.counts == {TapeFault.DUPLICATE_TRADE: 5}
    (view,) = symbol_views(tape)
    assert (view.status, view.status_floors) == (MarketStatus.HALTED, ("XNYS",))
    row = day_rows(tape, floors=["XNYS"])[0]
    assert (row.open, row.high, row.low, row.close) == (10_001, 10_099, 10_001, 10_050)
    assert (row.volume, row.trades, row.corrected) == (9_960, 100, 1)
    assert view.volume == 9_960 + 4_000


def test_every_customer_and_site_has_the_tape_of_what_floors_published(tmp_path: Path) -> None:
    """§7.1: "every investor receives a list of the trades on every trading floor", "in the same order"."""
    run(_day(market_file(tmp_path, NODES)))
