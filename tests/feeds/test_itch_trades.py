"""The short way for trades: the bytes of `ItchWriter`, or none."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from isocast.feeds.itch_writer import TRADE_BYTES, ItchWriter, plain_trades
from isocast.feeds.outcomes import FeedLog
from isocast.terms.market import EventFlag, EventKind
from isocast.wire.events import EVENT_DTYPE, EventArray

MIDNIGHT = 1_700_006_400 * 10**9
SYMBOLS = [b"A", b"ISO", b"EIGHTLTR"]
FLOORS = [b"XNYS", b"XLON"]

rows = st.lists(
    st.tuples(
        st.sampled_from(FLOORS),
        st.sampled_from(SYMBOLS),
        st.integers(0, (1 << 32) - 1),
        st.integers(0, (1 << 32) - 1),
        st.integers(0, 86_400 * 10**9 - 1),
        st.integers(0, (1 << 64) - 1),
        st.sampled_from([0, EventFlag.UNPRINTED, EventFlag.TENTATIVE]),
    ),
    min_size=1,
    max_size=30,
)


def events_of(values: list[tuple[bytes, bytes, int, int, int, int, int]]) -> EventArray:
    events = np.zeros(len(values), EVENT_DTYPE)
    events["kind"] = EventKind.TRADE
    for name, column in zip(
        ("floor", "symbol", "price", "quantity", "time", "id", "flags"), zip(*values, strict=True), strict=True
    ):
        events[name] = column
    events["time"] += np.uint64(MIDNIGHT)
    return events


def writer() -> ItchWriter:
    """One that has numbered every stock."""
    made = ItchWriter(MIDNIGHT, FeedLog("trades"), name_floors=True)
    made.write(events_of([(floor, symbol, 1, 1, 0, 0, 0) for floor in FLOORS for symbol in SYMBOLS]))
    return made


@given(rows)
def test_the_same_bytes(values: list[tuple[bytes, bytes, int, int, int, int, int]]) -> None:
    events = events_of(values)
    one, other = writer(), writer()
    short = plain_trades(one, events)
    assert short == other.write(events)
    assert short is not None
    assert len(short) == TRADE_BYTES * len(events)
    assert one.log.messages == other.log.messages


def test_whatever_is_not_plain_goes_the_long_way() -> None:
    plain = events_of([(b"XNYS", b"ISO", 7, 5, 9, 3, 0)] * 3)
    for field, value in {
        "kind": EventKind.STATUS,
        "flags": EventFlag.AUCTION,
        "price": -1,
        "symbol": b"NEW",
        "floor": b"XPAR",
        "time": MIDNIGHT - 1,
    }.items():
        events = plain.copy()
        events[field][1] = value
        assert plain_trades(writer(), events) is None, field
    for field, value in {
        "flags": EventFlag.LINKED,
        "price": 1 << 32,
        "symbol": b"",
        "time": MIDNIGHT + (1 << 48),
    }.items():
        events = plain.copy()
        events[field][1] = value
        assert plain_trades(writer(), events) is None, field
    assert plain_trades(writer(), plain) is not None
