"""Events to ITCH and back are the same events; what ITCH cannot carry is counted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.feeds import itch_samples as itch
from tests.feeds.event_streams import MIDNIGHT, itch_streams
from tests.feeds.itch_samples import frame
from tests.feeds.test_itch_decoder import decode

from isocast.feeds.itch_writer import ItchWriter
from isocast.feeds.outcomes import FeedLog
from isocast.terms.errors import LocalProtocolError
from isocast.terms.market import EventFlag, EventKind, MarketStatus, Mic, Side, Symbol
from isocast.wire.events import EVENT_DTYPE, EventArray, MarketEvent, build_events

XNAS, ISO = Mic("XNAS"), Symbol("ISO")


def write(events: EventArray) -> tuple[bytes, FeedLog]:
    log = FeedLog("out")
    return ItchWriter(MIDNIGHT, log).write(events), log


@settings(max_examples=80)
@given(events=itch_streams(), chunk=st.integers(1, 400), cut=st.integers(1, 60))
def test_events_to_itch_and_back(events: EventArray, chunk: int, cut: int) -> None:
    log = FeedLog("out")
    writer = ItchWriter(MIDNIGHT, log)
    # A linked pair is one message: it is not cut.
    edges = [at for at in range(cut, len(events), cut) if not events["flags"][at - 1] & EventFlag.LINKED]
    raw = b"".join(writer.write(part) for part in np.split(events, edges))
    again, _ = decode(raw, chunk, strict=True)
    assert again.tobytes() == events.tobytes()
    assert not log.skipped


def test_a_day_written_again_is_the_same_bytes_but_for_what_events_do_not_carry() -> None:
    """Tracking numbers, the side of P and the texts of the directory are not in an event."""
    carried = [each for each in itch.day() if chr(each[0]) not in "RIh"]
    directories = [each for each in itch.day() if chr(each[0]) == "R"]
    events, _ = decode(frame(*directories, *carried))
    raw, log = write(events[2:])
    blank = [each[:3] + b"\0\0" + each[5:] for each in carried]
    written = [message for message in messages(raw) if chr(message[0]) != "R"]
    assert written == blank
    assert log.messages["R"] == 2, "both symbols were announced before their first message"


def messages(raw: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(raw):
        size = int.from_bytes(raw[at : at + 2])
        found.append(raw[at + 2 : at + 2 + size])
        at += 2 + size
    return found


def test_a_correction_breaks_the_trade_and_tells_it_anew() -> None:
    rows = [
        MarketEvent(EventKind.TRADE, XNAS, ISO, price=100, quantity=5, time=MIDNIGHT, id=1),
        MarketEvent(EventKind.CORRECTION, XNAS, ISO, price=200, quantity=4, time=MIDNIGHT + 1, id=1),
    ]
    again, _ = decode(write(build_events(rows))[0], strict=True)
    assert again["kind"].tolist() == [EventKind.DIRECTORY, EventKind.TRADE, EventKind.TRADE_CANCEL, EventKind.TRADE]
    assert again["price"].tolist() == [100, 100, 0, 200]
    assert again["id"].tolist() == [1, 1, 1, 1]


def test_a_closed_symbol_comes_back_closed() -> None:
    row = MarketEvent(EventKind.STATUS, XNAS, ISO, time=MIDNIGHT, reference=MarketStatus.CLOSED)
    raw, _ = write(build_events([row]))
    assert messages(raw)[1][19:25] == b"H CLSD"
    assert decode(raw)[0]["reference"][-1] == MarketStatus.CLOSED


def test_what_itch_cannot_carry_is_counted() -> None:
    base = MarketEvent(EventKind.TRADE, XNAS, ISO, price=1, quantity=1, time=MIDNIGHT)
    rows = [
        base,
        base._replace(kind=EventKind.QUOTE, side=Side.BUY),
        base._replace(kind=EventKind.REPLACE, side=Side.BUY),
        base._replace(kind=EventKind.ORDER),
        base._replace(kind=EventKind.MARK, symbol=None, reference=17),
        base._replace(kind=EventKind.STATUS, symbol=None, reference=2),
        base._replace(price=1 << 32),
        base._replace(price=-1),
        base._replace(time=MIDNIGHT - 1),
        base._replace(kind=EventKind.STATUS, reference=99),
        base._replace(quantity=0, flags=EventFlag.AUCTION),
    ]
    raw, log = write(build_events(rows))
    assert [chr(each[0]) for each in messages(raw)] == ["R", "P"]
    assert log.skipped == {
        "the time is not of this day": 1,
        "the price does not fit 32 bits": 2,
        "ITCH has no quotes": 1,
        "ITCH gives a replaced order a new number": 1,
        "a mark that ITCH has no message for": 1,
        "an order without a side": 1,
        "an event of the whole floor": 1,
        "a status that ITCH has no letter for": 1,
        "a cross of no shares": 1,
    }


def test_what_events_are_written_without_is_counted() -> None:
    base = MarketEvent(EventKind.TRADE, XNAS, ISO, price=1, quantity=1, time=MIDNIGHT, id=1)
    rows = [
        base._replace(side=Side.BUY, reference=5, flags=EventFlag.UNPRINTED | EventFlag.CLOSING),
        base._replace(flags=EventFlag.AUCTION, reference=5),
        base._replace(kind=EventKind.CORRECTION),
        base._replace(kind=EventKind.ORDER, side=Side.BUY, reference=17),
        base._replace(kind=EventKind.EXECUTION, side=Side.BUY, id=9, flags=EventFlag.UNPRINTED),
        base._replace(kind=EventKind.CANCEL, id=9),
        base._replace(kind=EventKind.MARK, symbol=None, reference=ord("O"), id=3),
        base._replace(kind=EventKind.DIRECTORY, price=1),
    ]
    kept = {
        "an order that was entered before it is cancelled: readers of ITCH call that a fault": 1,
        "a correction: it comes back as a broken trade and a new one": 1,
        "the owner of an order, which is not four letters": 1,
        "the reference of a trade in an auction: it comes back as the letter of a cross": 1,
        "the number of a mark": 1,
        "the smallest step of a symbol": 1,
    }
    _, log = write(build_events(rows))
    assert log.lacking == kept | {
        "the side of a trade": 1,
        "the reference of a trade": 1,
        "the side of an execution whose order was never entered": 1,
        "the flag unprinted": 1,
        "the flag closing": 1,
    }
    telling = FeedLog("out")
    ItchWriter(MIDNIGHT, telling, name_floors=True, tell_flags=True).write(build_events(rows))
    assert telling.lacking == kept, "a file of ours tells flags, sides and references"


@settings(max_examples=60)
@given(events=itch_streams(), data=st.data())
def test_a_feed_that_tells_flags_brings_all_of_them_back(events: EventArray, data: st.DataObject) -> None:
    """Any flags and sides, which real feeds have no place for; cancels keep theirs, which decide their message."""
    free = np.isin(events["kind"], [EventKind.TRADE, EventKind.TRADE_CANCEL, EventKind.STATUS])
    bits = data.draw(st.lists(st.integers(0, 0xFFFF), min_size=len(events), max_size=len(events)))
    extra = np.array(bits, np.uint16) & np.uint16(sum(EventFlag) & ~EventFlag.AUCTION)
    events["flags"] |= np.where(free, extra, 0).astype(np.uint16)
    events["side"][free] = np.array(bits)[free] % 3
    raw = ItchWriter(MIDNIGHT, FeedLog("out"), name_floors=True, tell_flags=True).write(events)
    again, _ = decode(raw, strict=True)
    carried = EVENT_DTYPE.names or ()
    assert again[again["kind"] != EventKind.DIRECTORY][list(carried)].tolist() == [
        row for row in events.tolist() if row[0] != EventKind.DIRECTORY
    ]


def test_a_replacement_of_an_order_that_nobody_entered_is_two_messages() -> None:
    order = MarketEvent(EventKind.ORDER, XNAS, ISO, Side.BUY, 1, 1, MIDNIGHT, 5)
    gone = MarketEvent(EventKind.CANCEL, XNAS, ISO, time=MIDNIGHT, id=4, flags=EventFlag.LINKED)
    raw, log = write(build_events([gone, order]))
    assert [chr(each[0]) for each in messages(raw)] == ["R", "D", "A"]
    assert log.lacking["the flag linked"] == 1


def test_an_owner_that_is_no_text_is_left_out() -> None:
    order = MarketEvent(EventKind.ORDER, XNAS, ISO, Side.BUY, 1, 1, MIDNIGHT, 5, reference=17)
    assert [chr(each[0]) for each in messages(write(build_events([order]))[0])] == ["R", "A"]


def test_two_floors_with_the_same_symbol_have_two_numbers() -> None:
    rows = [
        MarketEvent(EventKind.TRADE, Mic(floor), ISO, price=1, quantity=1, time=MIDNIGHT) for floor in ("XNAS", "XNYS")
    ]
    written = messages(write(build_events(rows))[0])
    assert [(chr(each[0]), int.from_bytes(each[1:3])) for each in written] == [("R", 1), ("P", 1), ("R", 2), ("P", 2)]


def test_more_symbols_than_numbers_are_refused() -> None:
    events = np.zeros(70_000, EVENT_DTYPE)
    events["kind"], events["floor"], events["time"] = EventKind.TRADE, b"XNAS", MIDNIGHT
    events["symbol"] = np.char.add(b"S", np.arange(70_000).astype("S6"))
    with pytest.raises(LocalProtocolError, match="more than 65,535 symbols"):
        write(events)


def test_nothing_is_written_for_nothing() -> None:
    assert write(np.empty(0, EVENT_DTYPE))[0] == b""
