"""§4.4 Striping: narrow stripes for customers, wide ones for the network's own receivers."""

import numpy as np
from tests.striping.busy_days import day_of, events_of, sectors_of
from tests.striping.edge_streams import insist_on_contiguous_numbers, insist_on_rate

from isocast.feeds.synthetic import HOUR_NS
from isocast.striping.edge import EdgeSettings, EdgeStriper
from isocast.striping.edge_queue import EdgePacket
from isocast.striping.history import make_history
from isocast.striping.making import MakingSettings, make_plan
from isocast.striping.plan import EdgeStripe, StripePlan
from isocast.striping.rates import MODEM, budget_bytes, stripes_that_fit
from isocast.striping.released import ReleasedPart
from isocast.striping.routing import choose_stripes
from isocast.terms.instants import SECOND
from isocast.wire.events import EventArray

SYMBOLS, TRADES = 4_500, 330_000
PERIOD, DELAY = SECOND, 3 * SECOND
MESSAGE = 20


def busy_half_hour() -> EventArray:
    """America opens while Europe trades, on a day a third busier than the one that the plan was made from."""
    day = day_of(2, SYMBOLS, TRADES * 4 // 3)
    opens = day.world.midnight + 14 * HOUR_NS + HOUR_NS // 2
    events = np.concatenate([block for block in day.blocks() if opens - HOUR_NS < block["time"][-1] < opens + HOUR_NS])
    return events[(events["time"] >= opens - HOUR_NS // 60) & (events["time"] < opens + HOUR_NS // 3)]


def tokens(events: EventArray) -> list[ReleasedPart]:
    """Everything that happened in a token period, in one token, a score of events in each message."""
    periods = events["time"] // np.uint64(PERIOD)
    made, sequence = [], 1
    for number, period in enumerate(np.unique(periods).tolist(), 1):
        start, stop = np.searchsorted(periods, [period, period + 1]).tolist()
        count = -(-(stop - start) // MESSAGE)
        counts = np.full(count, MESSAGE, np.int64)
        counts[-1] = stop - start - MESSAGE * (count - 1)
        made.append(ReleasedPart(number, (period + 1) * PERIOD, count, 0, sequence, events[start:stop], counts))
        sequence += count
    return made


def busiest(packets: list[EdgePacket]) -> int:
    """IP bytes of the busiest token period of everything together."""
    ordered = sorted(packets, key=lambda packet: packet.due)
    dues = np.array([packet.due for packet in ordered])
    sums = np.concatenate([[0], np.cumsum([packet.ip_bytes for packet in ordered])])
    return int((sums[np.searchsorted(dues, dues + PERIOD)] - sums[: len(dues)]).max())


def test_a_modem_follows_one_stripe_and_a_primary_rate_line_twenty_six_on_a_busy_day() -> None:
    """§4.4: "a customer with a 56 Kbps modem may select any one remulticast address" """
    history = make_history([events_of(1, SYMBOLS, TRADES)])
    plan = make_plan(history, MakingSettings(headroom=1.0), sectors_of(SYMBOLS)).plan
    striper = EdgeStriper(plan, 0, EdgeSettings(PERIOD, DELAY))
    packets = [packet for token in tokens(busy_half_hour()) for packet in striper.step(token)]
    insist_on_contiguous_numbers(packets)
    insist_on_rate(packets, budget_bytes(MODEM, PERIOD), PERIOD)
    left_out = {number: sum(counts.values()) for number, counts in striper.conflated.items()}
    assert {number for number, count in left_out.items() if count} <= {s.number for s in plan.stripes if s.conflated}

    broker = choose_stripes(plan, 1_500_000)
    assert len(broker.stripes) == 26
    chosen = set(broker.numbers)
    assert 0 < busiest([packet for packet in packets if packet.stripe in chosen]) <= budget_bytes(1_500_000, PERIOD)
    modem = choose_stripes(plan, MODEM)
    assert len(modem.stripes) == 1
    own = [packet for packet in packets if packet.stripe == modem.numbers[0]]
    assert 0 < busiest(own) <= budget_bytes(MODEM, PERIOD)


def test_a_broker_with_45_megabits_views_eight_hundred_stripes() -> None:
    """§4.4: "a broker with a 45 Mbps connection may simultaneously view … 800 different stripes" (803)"""
    assert stripes_that_fit(45_000_000, MODEM) == 803
    assert stripes_that_fit(1_500_000, MODEM) == 26
    stripes = [EdgeStripe(number, 0, f"s{number}", MODEM, (f"A{number}",)) for number in range(1, 901)]
    plan = StripePlan(1, (*stripes, EdgeStripe(901, 0, "spare", MODEM, spare=True)))
    assert len(choose_stripes(plan, 45_000_000).stripes) == 803


def test_core_stripes_are_few_and_edge_stripes_many() -> None:
    """§4.4: "a relatively small number of wide stripes in the core", "a relatively large number … at the edge" """
    history = make_history([events_of(1, 300, 20_000)])
    plan = make_plan(history, MakingSettings(rate=16_000, cores=2), sectors_of(300)).plan
    assert plan.cores == (0, 1)
    for core in plan.cores:
        narrow = plan.of_core(core)
        assert len(narrow) > 4
        assert sum(stripe.spare for stripe in narrow) == 1
