"""Several floors in one ITCH feed, and numbers of stocks."""

from __future__ import annotations

from struct import pack

import numpy as np
from tests.feeds import itch_samples as itch
from tests.feeds.event_streams import MIDNIGHT
from tests.feeds.itch_samples import frame
from tests.feeds.test_itch_decoder import decode
from tests.feeds.test_itch_writer import messages

from isocast.feeds.itch_layout import salt_of
from isocast.feeds.itch_writer import ItchWriter
from isocast.feeds.outcomes import FeedLog
from isocast.terms.market import EventKind, Mic, Side, Symbol
from isocast.wire.events import MarketEvent, build_events

TRADE = MarketEvent(EventKind.TRADE, Mic("XNYS"), Symbol("ISO"), price=5, quantity=1, time=MIDNIGHT + 9, id=1)


def position(locate: int, participant: str, name: str) -> bytes:
    return itch.message("L", locate, 9, participant.encode() + itch.stock(name) + b"YNA")


def test_floors_are_named_before_their_stocks() -> None:
    writer = ItchWriter(MIDNIGHT, FeedLog("out"), name_floors=True)
    raw = writer.write(build_events([TRADE, TRADE._replace(floor=Mic("XLON"))]))
    tracked = [each[:3] + pack(">H", 7) + each[5:] for each in messages(raw)]  # As the samples are.
    assert tracked[:4] == [
        position(65_535, "XNYS", ""),
        position(65_534, "XLON", ""),
        position(1, "XNYS", "ISO"),
        position(2, "XLON", "ISO"),
    ]
    assert [chr(each[0]) for each in messages(writer.write(build_events([TRADE])))] == ["P"], "once is enough"


def test_participants_of_a_real_feed_are_no_floors() -> None:
    events, log = decode(frame(position(1, "GSCO", "ISO"), itch.trade(1, 10, 1, "ISO", 5, 1)), strict=True)
    assert events["floor"].tolist() == [b"XNAS"]
    assert log.skipped == {"L participant position: no event carries it": 1}


def test_in_a_feed_that_names_floors_other_participants_stay_participants() -> None:
    raw = frame(
        position(9, "XLON", ""),
        position(1, "XLON", "ISO"),
        position(2, "GSCO", "CAST"),
        itch.trade(1, 10, 1, "ISO", 5, 1),
        itch.trade(2, 10, 1, "CAST", 5, 1),
        itch.message("S", 9, 11, b"Q"),
    )
    events, log = decode(raw, strict=True)
    assert events["floor"].tolist() == [b"XLON", b"XNAS", b"XLON"]
    assert log.skipped == {"L participant position: no event carries it": 1}


def test_equal_numbers_of_orders_on_two_floors_are_two_orders() -> None:
    rows = []
    for floor, side, price in ((Mic("XNAS"), Side.BUY, 100), (Mic("XNYS"), Side.SELL, 900)):
        order = TRADE._replace(kind=EventKind.ORDER, floor=floor, side=side, price=price, quantity=10, id=7)
        rows += [order, order._replace(kind=EventKind.EXECUTION, quantity=10, reference=3)]
    events = build_events([rows[0], rows[2], rows[1], rows[3]])
    raw = ItchWriter(MIDNIGHT, FeedLog("out"), name_floors=True).write(events)
    assert [chr(each[0]) for each in messages(raw)][-2:] == ["E", "E"], "each at its own order's price"
    again, _ = decode(raw, strict=True)
    assert again[again["kind"] != EventKind.DIRECTORY].tobytes() == events.tobytes()
    assert len(set(salt_of(np.array([b"XNAS", b"XNYS", b"XLON"], "S4")).tolist())) == 3


def test_a_directory_keeps_its_number_where_it_is_free() -> None:
    listed = TRADE._replace(kind=EventKind.DIRECTORY, price=100, quantity=100)
    rows = [
        listed._replace(symbol=Symbol("A"), id=500),
        listed._replace(symbol=Symbol("B"), id=2),
        listed._replace(symbol=Symbol("C"), id=2),
        TRADE._replace(symbol=Symbol("D")),
        listed._replace(symbol=Symbol("E"), id=1 << 40),
    ]
    raw = ItchWriter(MIDNIGHT, FeedLog("out")).write(build_events(rows))
    numbers = [int.from_bytes(each[1:3]) for each in messages(raw) if each[:1] == b"R"]
    assert numbers == [500, 2, 1, 3, 65_535]
