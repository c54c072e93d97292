"""§4.4: a plan made from one day, offered another: no stripe exceeds its rate, and what was left out is told."""

from __future__ import annotations

import numpy as np
import pytest
from tests.striping.busy_days import events_of, sectors_of
from tests.striping.edge_streams import insist_on_contiguous_numbers, insist_on_rate

from isocast.striping.comparing import judge
from isocast.striping.edge import EdgeSettings, EdgeStriper
from isocast.striping.edge_queue import EdgePacket
from isocast.striping.history import make_history
from isocast.striping.making import MakingSettings, make_plan
from isocast.striping.plan import StripePlan
from isocast.striping.rates import budget_bytes
from isocast.striping.released import ReleasedPart
from isocast.striping.sizes import FEED_SIZES, PACKET_BYTES
from isocast.terms.instants import SECOND
from isocast.terms.market import EventKind
from isocast.wire.events import EventArray

SYMBOLS = 300
RATE = 56_000
HOUR = 3_600 * SECOND
SETTINGS = EdgeSettings(SECOND, 3 * SECOND, sizes=FEED_SIZES, introduce_ns=600 * SECOND)


def busiest_hour(day: EventArray) -> EventArray:
    hours = (day["time"] - day["time"].min()).astype(np.int64) // HOUR
    chosen: EventArray = day[hours == np.bincount(hours).argmax()]
    chosen.sort(order="time", kind="stable")
    return chosen


def carried(plan: StripePlan, day: EventArray) -> tuple[EdgeStriper, list[EdgePacket]]:
    """Events through the striper, a token a second."""
    striper = EdgeStriper(plan, 0, SETTINGS)
    periods = day["time"] // np.uint64(SECOND)
    packets: list[EdgePacket] = []
    starts = np.flatnonzero(np.append(np.True_, periods[1:] != periods[:-1])).tolist()
    for number, (start, stop) in enumerate(zip(starts, [*starts[1:], len(day)], strict=True), 1):
        instant = (int(periods[start]) + 1) * SECOND
        counts = np.array([stop - start], np.int64)
        packets += striper.step(ReleasedPart(number, instant, 1, 0, number, day[start:stop], counts))
    return striper, packets


@pytest.mark.parametrize("busier, conflates", [(1.4, False), (6, True)])
def test_a_plan_on_a_day_that_it_was_not_made_from(
    busier: float,
    conflates: bool,  # noqa: FBT001
    capsys: pytest.CaptureFixture[str],
) -> None:
    trades = 20_000
    plan = make_plan(make_history([events_of(1, SYMBOLS, trades)]), MakingSettings(rate=RATE), sectors_of(SYMBOLS)).plan
    day = events_of(2, SYMBOLS, round(busier * trades))
    hour = busiest_hour(day)
    striper, packets = carried(plan, hour)
    insist_on_contiguous_numbers(packets)
    insist_on_rate(packets, budget_bytes(RATE, SECOND) - PACKET_BYTES, SECOND)
    left_out = sum(sum(by.values()) for by in striper.conflated.values())
    sold = int(np.count_nonzero(hour["kind"] == EventKind.TRADE))
    out = sum(int(np.count_nonzero(packet.events["kind"] == EventKind.TRADE)) for packet in packets)
    waiting = sum(striper.waiting.values())
    assert out + left_out <= sold <= out + left_out + waiting
    with capsys.disabled():
        share = f"{out} of {sold} trades carried, {left_out} conflated"
        print(f"\n{busier} times as busy: {len(plan.stripes)} stripes of {RATE} b/s, {share}", end="")  # noqa: T201 - a figure that is asked for
    assert (left_out > 0) == conflates
    assert judge(plan, make_history([day])).holds or conflates
