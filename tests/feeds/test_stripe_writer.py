"""ITCH of narrow stripes: the messages that were counted beforehand, and nothing that depends on what came earlier."""

from itertools import pairwise

import numpy as np
import pytest

from isocast.feeds.itch_layout import LENGTHS
from isocast.feeds.itch_reader import ItchDecoder
from isocast.feeds.mold import message_places
from isocast.feeds.outcomes import FeedLog
from isocast.feeds.stripe_writer import KIND_MESSAGES, StripeWriter, are_sayable, plan_version_of
from isocast.terms.market import EventFlag, EventKind, MarketStatus, Mic, Side, Symbol
from isocast.wire.events import EventArray, MarketEvent, build_events

MIDNIGHT = 20_000 * 86_400 * 10**9
XNYS, XLON, IBM, VOD = Mic("XNYS"), Mic("XLON"), Symbol("IBM"), Symbol("VOD")
NUMBERS = {(b"XNYS", b""): 65_535, (b"XLON", b""): 65_534, (b"XNYS", b"IBM"): 1, (b"XLON", b"VOD"): 2}
TIME = MIDNIGHT + 36_000 * 10**9


def one(kind: EventKind, **more: object) -> MarketEvent:
    floor = more.pop("floor", XNYS)
    symbol = more.pop("symbol", IBM if floor == XNYS else VOD)
    return MarketEvent(kind, floor, symbol, time=TIME, **more)  # type: ignore[arg-type]


EVERYTHING = [
    one(EventKind.DIRECTORY, quantity=100),
    one(EventKind.DIRECTORY, floor=XLON),
    one(EventKind.TRADE, price=10_000, quantity=5, id=7),
    one(EventKind.TRADE, price=10_001, quantity=6, id=8, floor=XLON, flags=EventFlag.AUCTION, reference=ord("O")),
    one(EventKind.ORDER, side=Side.BUY, price=9_000, quantity=10, id=9),
    one(EventKind.ORDER, side=Side.SELL, price=9_100, quantity=10, id=10, reference=int.from_bytes(b"GSCO")),
    one(EventKind.CANCEL, id=9, quantity=4),
    one(EventKind.CANCEL, id=9),
    one(EventKind.EXECUTION, id=10, price=9_100, quantity=2, reference=11),
    one(EventKind.CORRECTION, id=7, price=10_100, quantity=5),
    one(EventKind.TRADE_CANCEL, id=8, floor=XLON),
    one(EventKind.STATUS, reference=int(MarketStatus.HALTED)),
    one(EventKind.STATUS, reference=int(MarketStatus.CLOSED), floor=XLON),
    MarketEvent(EventKind.MARK, XNYS, reference=ord("Q"), time=TIME),
    MarketEvent(EventKind.MARK, XLON, reference=(ord("W") << 8) | ord("1"), time=TIME),
]


def decoded(framed: bytes) -> EventArray:
    return np.concatenate([*ItchDecoder(Mic("XXXX"), MIDNIGHT, FeedLog("test", strict=True)).blocks([framed])])


@pytest.mark.parametrize("event", EVERYTHING, ids=lambda event: event.kind.name.lower())
def test_every_kind_has_the_messages_that_were_counted(event: MarketEvent) -> None:
    events = build_events([event])
    assert are_sayable(events).all()
    places = message_places(StripeWriter(MIDNIGHT).messages(events, NUMBERS))
    assert len(places) - 1 == len(KIND_MESSAGES[event.kind])
    assert places[-1] <= sum(2 + size for size in KIND_MESSAGES[event.kind])


def test_what_is_written_at_once_is_what_is_written_one_by_one() -> None:
    writer = StripeWriter(MIDNIGHT)
    whole = writer.messages(build_events(EVERYTHING), NUMBERS, 3)
    assert whole == b"".join([writer.messages(build_events([event]), NUMBERS, 3) for event in EVERYTHING])


def test_a_decoder_gets_the_events_back() -> None:
    got = decoded(StripeWriter(MIDNIGHT).messages(build_events(EVERYTHING), NUMBERS))
    wanted = [event for event in EVERYTHING if event.kind is not EventKind.CORRECTION]
    expected = build_events(
        [
            *wanted[:9],
            one(EventKind.TRADE_CANCEL, id=7),
            one(EventKind.TRADE, id=7, price=10_100, quantity=5),
            *wanted[9:],
        ]
    )
    for field in ("kind", "floor", "symbol", "quantity", "time"):
        assert got[field].tolist() == expected[field].tolist(), field
    prices = np.isin(expected["kind"], (EventKind.TRADE, EventKind.ORDER, EventKind.EXECUTION))
    assert got["price"][prices].tolist() == expected["price"][prices].tolist()


def test_the_plan_stands_where_funds_have_their_leverage() -> None:
    framed = StripeWriter(MIDNIGHT).messages(build_events(EVERYTHING[:3]), NUMBERS, 70_000)
    places = message_places(framed).tolist()
    versions = [plan_version_of(framed[a:b]) for a, b in pairwise(places)]
    assert versions == [0, 0, 70_000, 0, 0, 70_000, 0]
    assert LENGTHS["R"] == 39


def test_an_event_of_another_day_keeps_its_hour() -> None:
    yesterday = build_events([one(EventKind.TRADE, price=1, quantity=1, id=1)])
    yesterday["time"] -= np.uint64(86_400 * 10**9)
    assert decoded(StripeWriter(MIDNIGHT).messages(yesterday, NUMBERS))["time"][0] == TIME


@pytest.mark.parametrize(
    "event",
    [
        one(EventKind.QUOTE, side=Side.BUY, price=1),
        one(EventKind.REPLACE, price=1, quantity=1, id=1),
        one(EventKind.TRADE, price=1 << 32, quantity=1),
        one(EventKind.ORDER, price=1, quantity=1, id=1),
        one(EventKind.STATUS, reference=77),
        MarketEvent(EventKind.MARK, XNYS, reference=ord("z")),
        MarketEvent(EventKind.STATUS, XNYS, reference=int(MarketStatus.HALTED)),
    ],
    ids=["quote", "replace", "dear", "sideless", "status", "mark", "whole-floor"],
)
def test_what_itch_cannot_say_is_known_beforehand(event: MarketEvent) -> None:
    assert not are_sayable(build_events([event])).any()
