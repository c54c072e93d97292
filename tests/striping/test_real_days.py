"""Two real days of the US tape: stripes planned from the first, followed on the second.

ISOCAST_DATA=/path/to/data pytest tests/striping/test_real_days.py
"""

import os
from pathlib import Path

import numpy as np
import pytest
from tests.striping.edge_streams import insist_on_contiguous_numbers, insist_on_rate

from isocast.runtime.client.feed_files import FeedFile
from isocast.striping.comparing import judge
from isocast.striping.edge import EdgeSettings, EdgeStriper
from isocast.striping.edge_queue import EdgePacket
from isocast.striping.history import make_history
from isocast.striping.making import MakingSettings, make_plan
from isocast.striping.rates import budget_bytes
from isocast.striping.released import ReleasedPart
from isocast.terms.instants import SECOND
from isocast.wire.events import EventArray

DATA = os.environ.get("ISOCAST_DATA", "")
pytestmark = pytest.mark.skipif(not DATA, reason="ISOCAST_DATA does not say where the real files are")
RATE = 512_000


def day(date: str) -> EventArray:
    """All trades of four stocks on a dozen venues."""
    files = sorted((Path(DATA) / "lean_us_tick").glob(f"*_{date}_trade.zip"))
    assert len(files) == 4
    events = np.concatenate([block for file in files for block in FeedFile(file).blocks()])
    return events[np.argsort(events["time"], kind="stable")]


def test_a_plan_of_one_day_holds_on_the_next_which_was_busier() -> None:
    first, second = day("20131007"), day("20131008")
    assert len(second) > 1.3 * len(first)
    plan = make_plan(make_history([first]), MakingSettings(rate=RATE)).plan
    verdict = judge(plan, make_history([second]))
    assert verdict.holds

    busiest = np.bincount((second["time"] - second["time"][0]).astype(np.int64) // (3_600 * SECOND)).argmax()
    hour = second["time"][0] + np.uint64(busiest * 3_600 * SECOND)
    second = second[(second["time"] >= hour) & (second["time"] < hour + np.uint64(3_600 * SECOND))]
    striper = EdgeStriper(plan, 0, EdgeSettings(SECOND, 3 * SECOND))
    periods = second["time"] // np.uint64(SECOND)
    packets: list[EdgePacket] = []
    sequence = 1
    for number, period in enumerate(np.unique(periods).tolist(), 1):
        start, stop = np.searchsorted(periods, [period, period + 1]).tolist()
        counts = np.array([stop - start], np.int64)
        token = ReleasedPart(number, (period + 1) * SECOND, 1, 0, sequence, second[start:stop], counts)
        packets += striper.step(token)
        sequence += 1
    insist_on_contiguous_numbers(packets)
    insist_on_rate(packets, budget_bytes(RATE, SECOND), SECOND)
    assert {count for counts in striper.conflated.values() for count in counts.values()} == {0}
    assert sum(len(packet.events) for packet in packets) == len(second)
