"""From one program to another, through a market: numpy, bytes and Arrow in; numpy and Arrow out."""

from contextlib import aclosing
from pathlib import Path

import numpy as np
import pyarrow as pa
from tests.runtime.worlds import SMALL, World, market_file, run, trades

import isocast
from isocast.runtime.client.arrow import to_arrow

NODES = {
    **SMALL,
    "desk": {"role": "customer", "lines": ["a", "b"], "retransmit": ["archive"], "start": False},
}


def test_whatever_form_events_are_published_in_they_come_out_the_same(tmp_path: Path) -> None:
    events = trades(90, symbols=(b"ISO", b"CAST"))
    events["time"] = 1_700_000_000_000_000_000 + events["id"]

    async def work() -> None:
        async with World(market_file(tmp_path, NODES)) as world:
            await world.start()
            async with isocast.Source(world.path, "floor") as source:
                labels = await source.publish(events[:30])
                labels += await source.publish(events[30:60].tobytes())
                labels += await source.publish(to_arrow(events[60:]))
                assert [label.number for label in labels] == [1, 2, 3, 4, 5, 6]
            heard: list[isocast.ReceivedBatch] = []
            async with aclosing(isocast.listen(world.path, start="beginning")) as listening:
                async for batch in listening:
                    heard.append(batch)
                    if sum(map(len, heard)) == 90:
                        break
            assert np.concatenate([batch.events for batch in heard]).tobytes() == events.tobytes()
            table = pa.Table.from_batches([batch.to_arrow() for batch in heard])
            assert table.drop_columns(["sequence", "instant"]).equals(pa.Table.from_batches([to_arrow(events)]))
            assert sorted(set(table.column("sequence").to_pylist())) == [1, 2, 3, 4, 5, 6]

    run(work())
