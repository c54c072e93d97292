"""Introductions on narrow stripes: before the first event, again after a while and each day, from everybody alike."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.striping.edge_streams import (
    PERIOD,
    PLAN,
    RATE,
    SETTINGS,
    SYMBOLS,
    cut,
    insist_on_contiguous_numbers,
    insist_on_rate,
    plan_of,
    random_tokens,
    run,
    told,
)

from isocast.striping.directory import StripeDirectory
from isocast.striping.edge import EdgeStriper
from isocast.striping.edge_queue import EdgePacket
from isocast.striping.edge_snapshot import read_striper_snapshot, write_striper_snapshot
from isocast.striping.plan import plan_entry
from isocast.striping.rates import budget_bytes
from isocast.striping.released import ReleasedPart
from isocast.striping.sizes import FEED_SIZES
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.instants import SECOND
from isocast.terms.market import EventKind
from isocast.wire.events import EVENT_DTYPE, EventArray

CLEAR = replace(SETTINGS, sizes=FEED_SIZES, introduce_ns=2 * SECOND)
DAY = 86_400 * SECOND
NEXT = plan_of(2, SYMBOLS[3:9], SYMBOLS[:3])


def trades(*names: str, floor: str = "XNYS") -> EventArray:
    events = np.zeros(len(names), EVENT_DTYPE)
    events["kind"], events["floor"], events["symbol"] = EventKind.TRADE, floor, names
    return events


def kinds(events: EventArray) -> list[tuple[str, str]]:
    return [(EventKind(kind).name[0], symbol.decode()) for kind, symbol in events[["kind", "symbol"]].tolist()]


def introduced(directory: StripeDirectory, events: EventArray, at: int, stripe: int = 1) -> EventArray:
    return directory.introduce(stripe, events, np.arange(len(events), dtype=np.uint64), at)[0]


def test_a_stock_is_introduced_before_its_first_event_and_after_a_while_again() -> None:
    directory = StripeDirectory(10 * SECOND)
    first = introduced(directory, trades("A", "B", "A"), SECOND)
    assert kinds(first) == [("D", "A"), ("T", "A"), ("D", "B"), ("T", "B"), ("T", "A")]
    assert kinds(introduced(directory, trades("A"), 10 * SECOND)) == [("T", "A")]
    assert kinds(introduced(directory, trades("A"), 11 * SECOND)) == [("D", "A"), ("T", "A")]
    assert kinds(introduced(directory, trades("A"), SECOND, stripe=2)) == [("D", "A"), ("T", "A")]
    assert kinds(introduced(directory, trades("A", floor="XLON"), 12 * SECOND)) == [("D", "A"), ("T", "A")]


def test_who_introduces_himself_is_not_introduced() -> None:
    own = trades("A", "A")
    own["kind"][0] = EventKind.DIRECTORY
    assert kinds(introduced(StripeDirectory(SECOND), own, 1)) == [("D", "A"), ("T", "A")]


def test_a_new_day_begins_with_introductions() -> None:
    directory = StripeDirectory(DAY, "America/New_York")
    introduced(directory, trades("A"), 4 * 3_600 * SECOND)
    assert len(introduced(directory, trades("A"), 28 * 3_600 * SECOND + 5 * SECOND)) == 2
    assert len(introduced(directory, trades("A"), 28 * 3_600 * SECOND + 6 * SECOND)) == 1


def test_numbers_of_stocks_rise_and_those_of_floors_fall() -> None:
    directory = StripeDirectory(SECOND)
    introduced(directory, np.concatenate([trades("A", "B"), trades("A", floor="XLON")]), 1)
    assert directory.numbers(1) == {
        (b"XNYS", b""): 65_535, (b"XNYS", b"A"): 1, (b"XNYS", b"B"): 2, (b"XLON", b""): 65_534, (b"XLON", b"A"): 3,
    }  # fmt: skip
    again = StripeDirectory(SECOND)
    again.restore(directory.state(), 1)
    introduced(again, trades("C"), 2)
    introduced(directory, trades("C"), 2)
    assert again.state() == directory.state()
    with pytest.raises(RemoteProtocolError, match="cut"):
        again.restore(directory.state()[:-1], 1)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 40), st.data())
def test_cuts_restarts_and_a_new_plan_make_no_difference(seed: int, tokens: int, data: st.DataObject) -> None:
    stream = random_tokens(seed, tokens + 1, 20)
    at = data.draw(st.integers(0, tokens))
    stream[at] = replace(stream[at], control=(plan_entry(NEXT),))
    whole = EdgeStriper(PLAN, 0, CLEAR)
    whole.learn(NEXT)
    packets = run(whole, stream)
    insist_on_contiguous_numbers(packets)
    insist_on_rate(packets, budget_bytes(RATE, PERIOD))
    other = EdgeStriper(PLAN, 0, CLEAR)
    other.learn(NEXT)
    again: list[EdgePacket] = []
    for part in stream:
        places = data.draw(st.lists(st.integers(1, max(1, len(part.counts))), max_size=2))
        for piece in cut(part, places):
            if data.draw(st.booleans()):
                frozen = read_striper_snapshot(write_striper_snapshot(other.snapshot()))
                other = EdgeStriper(PLAN, 0, CLEAR)
                other.learn(NEXT)
                other.restore(frozen)
            again += other.step(piece)
    assert told(again) == told(packets)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 40), st.data())
def test_who_never_heard_of_empty_tokens_says_the_same(seed: int, tokens: int, data: st.DataObject) -> None:
    """A receiver that starts again has its journal, and that has none."""
    stream = random_tokens(seed, tokens, 20)
    for place in data.draw(st.sets(st.integers(0, tokens - 1), max_size=tokens)):
        empty = stream[place]
        stream[place] = replace(empty, token_count=0, events=empty.events[:0], counts=empty.counts[:0])
    sequence = 1
    for place, part in enumerate(stream):
        stream[place] = replace(part, first_sequence=sequence)
        sequence += part.token_count
    at = data.draw(st.integers(0, tokens - 1))
    stream[at] = replace(stream[at], control=(plan_entry(NEXT),))
    stripers = [EdgeStriper(PLAN, 0, CLEAR), EdgeStriper(PLAN, 0, CLEAR)]
    for striper in stripers:
        striper.learn(NEXT)
    whole = run(stripers[0], stream)
    rest = run(stripers[1], [part for part in stream if part.token_count or part.control])
    assert Counter(told(rest)) <= Counter(told(whole))


def test_every_stripe_introduces_before_it_speaks() -> None:
    """§7.1: what a customer of one stripe hears explains itself."""
    known: dict[int, set[tuple[bytes, bytes]]] = {}
    count: Counter[EventKind] = Counter()
    for packet in run(EdgeStriper(PLAN, 0, CLEAR), random_tokens(7, 300, 30)):
        met = known.setdefault(packet.stripe, set())
        for kind, floor, symbol in packet.events[["kind", "floor", "symbol"]].tolist():
            count[EventKind(kind)] += 1
            if kind == EventKind.DIRECTORY:
                met.add((floor, symbol))
            assert not symbol or (floor, symbol) in met
    assert count[EventKind.DIRECTORY] > 2 * len(SYMBOLS)
    assert not count[EventKind.QUOTE], "ITCH has none"


def test_a_plan_tells_itself_by_introductions() -> None:
    striper = EdgeStriper(PLAN, 0, CLEAR)
    striper.learn(NEXT)

    def token(number: int, *control: object) -> ReleasedPart:
        counts = np.array([2], np.int64)
        events = trades("S1", "S4")
        return ReleasedPart(number, number * PERIOD, 1, 0, number, events, counts, control)  # type: ignore[arg-type]

    assert kinds(striper.step(token(1))[0].events) == [("D", "S1"), ("T", "S1"), ("D", "S4"), ("T", "S4")]
    assert kinds(striper.step(token(2, plan_entry(NEXT)))[0].events) == [("T", "S1"), ("T", "S4")]
    after = striper.step(token(3))
    assert {packet.stripe: kinds(packet.events) for packet in after} == {
        1: [("D", "S4"), ("T", "S4")],
        2: [("D", "S1"), ("T", "S1")],
    }
