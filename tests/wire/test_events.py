"""Events are viewed, never parsed one by one; what is no event is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.samples import EVENT

from isocast.terms.errors import LocalProtocolError, RemoteProtocolError
from isocast.terms.market import EventFlag, EventKind, Mic, Side, Symbol
from isocast.wire.events import (
    EVENT_DTYPE,
    EVENTS_PER_PAYLOAD,
    MarketEvent,
    build_events,
    events_view,
    pack_events,
)
from isocast.wire.limits import EVENT_BYTES

SYMBOLS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=8).map(Symbol)
MICS = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", min_size=4, max_size=4).map(Mic)
EVENTS = st.builds(
    MarketEvent,
    st.sampled_from(EventKind),
    MICS,
    st.none() | SYMBOLS,
    st.sampled_from(Side),
    price=st.integers(-(1 << 63), (1 << 63) - 1),
    quantity=st.integers(0, (1 << 32) - 1),
    time=st.integers(0, (1 << 64) - 1),
    id=st.integers(0, (1 << 64) - 1),
    reference=st.integers(0, (1 << 32) - 1),
    flags=st.integers(0, 0xFFFF).map(lambda bits: EventFlag(bits & sum(EventFlag))),
)


@given(rows=st.lists(EVENTS, max_size=EVENTS_PER_PAYLOAD))
def test_events_survive_the_wire(rows: list[MarketEvent]) -> None:
    events = build_events(rows)
    payload = pack_events(events)
    viewed = events_view(payload)
    assert len(payload) == EVENT_BYTES * len(rows)
    assert np.array_equal(viewed, events)
    for row, event in zip(rows, viewed.tolist(), strict=True):
        kind, side, flags, floor, symbol, price, quantity, reference, time, number = event
        assert (kind, side, flags, floor) == (row.kind, row.side, row.flags, row.floor.fixed)
        assert symbol.decode() == (row.symbol or "")
        assert (price, quantity, reference) == (row.price, row.quantity, row.reference)
        assert (time, number) == (row.time, row.id)


def test_a_view_is_no_copy_and_cannot_be_written() -> None:
    payload = pack_events(build_events([EVENT] * 3))
    viewed = events_view(payload)
    assert not viewed.flags.writeable
    assert np.shares_memory(viewed, np.frombuffer(payload, np.uint8))
    assert viewed["price"].tolist() == [1_812_500] * 3


def test_every_field_lies_on_its_own_alignment_without_gaps() -> None:
    at = 0
    for name in EVENT_DTYPE.names or ():
        field, offset = EVENT_DTYPE.fields[name][:2]  # type: ignore[index]
        assert offset == at
        if field.kind != "S":
            assert offset % field.itemsize == 0
            assert field.isnative or field.str.startswith("<")
        at += field.itemsize
    assert at == EVENT_DTYPE.itemsize


def test_no_events_are_no_bytes() -> None:
    assert pack_events(build_events([])) == b""
    assert len(events_view(b"")) == 0


@pytest.mark.parametrize("length", [1, 47, 49, 95])
def test_a_broken_record_is_refused(length: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"{length} bytes"):
        events_view(pack_events(build_events([EVENT] * 2))[:1] * length)


@pytest.mark.parametrize(
    "at, value, message",
    [
        (0, 0, "kind"),
        (0, max(EventKind) + 1, "kind"),
        (0, 255, "kind"),
        (1, 3, "side"),
        (2, 128, "flags"),
        (3, 128, "flags"),
        (3, 255, "flags"),
        (4, 0, "floor"),
        (7, ord("x"), "floor"),
        (8, 0xE9, "symbol"),
        (15, 0x20, "symbol"),
        (8, 0x0A, "symbol"),
    ],
)
@pytest.mark.parametrize("place", [0, 1, 26])
def test_one_bad_event_among_good_ones_is_refused(at: int, value: int, message: str, place: int) -> None:
    payload = bytearray(pack_events(build_events([EVENT] * EVENTS_PER_PAYLOAD)))
    payload[place * EVENT_BYTES + at] = value
    with pytest.raises(RemoteProtocolError, match=message):
        events_view(bytes(payload))
    forged = np.frombuffer(bytes(payload), EVENT_DTYPE)
    with pytest.raises(LocalProtocolError, match=message):
        pack_events(forged)


def test_a_payload_holds_no_more_than_its_limit() -> None:
    events = build_events([EVENT] * (EVENTS_PER_PAYLOAD + 1))
    assert len(events_view(pack_events(events[1:]))) == EVENTS_PER_PAYLOAD
    with pytest.raises(LocalProtocolError, match="more than 27"):
        pack_events(events)


def test_only_a_row_of_events_is_packed() -> None:
    events = build_events([EVENT] * 4)
    with pytest.raises(LocalProtocolError, match="2 dimensions"):
        pack_events(events.reshape(2, 2))
    with pytest.raises(LocalProtocolError, match="not a row"):
        pack_events(events["price"])
    assert events_view(pack_events(events[::2]))["id"].tolist() == [77, 77]


@pytest.mark.parametrize(
    "row",
    [
        EVENT._replace(quantity=1 << 32),
        EVENT._replace(quantity=-1),
        EVENT._replace(price=1 << 63),
        EVENT._replace(id=1 << 64),
        EVENT._replace(time=-1),
        EVENT._replace(floor="xnys"),  # type: ignore[arg-type]
        EVENT._replace(symbol="too long a symbol"),  # type: ignore[arg-type]
        EVENT._replace(symbol="é"),  # type: ignore[arg-type]
    ],
)
def test_a_value_that_does_not_fit_its_field_is_not_written(row: MarketEvent) -> None:
    with pytest.raises(LocalProtocolError):
        build_events([row])
