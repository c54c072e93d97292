"""A floor's market data: what a reader of the tape, or of ITCH, builds from it is the floor's own book."""

from random import Random

import numpy as np
import pytest
from tests.floor.keys import in_order

from isocast.feeds.itch_reader import ItchDecoder
from isocast.feeds.itch_writer import ItchWriter
from isocast.feeds.outcomes import FeedLog
from isocast.floor.codec import floor_topic
from isocast.floor.events import (
    Cancel,
    Crossing,
    Directory,
    Event,
    MarketKind,
    Order,
    Phase,
    PriceRule,
    Replace,
    Status,
)
from isocast.floor.market_data import DAY_BEGINS, INDICATIVE, FloorMarketData
from isocast.terms.market import EventFlag, EventKind, MarketStatus, Mic, Side
from isocast.ticker.records import TapeFault
from isocast.ticker.tape import Tape
from isocast.ticker.views import depth_views
from isocast.wire.events import EventArray

CODE = "XISO"
SYMBOLS = ("ISO", "CAST", "BATCH")
SECOND = 10**9
DAY = 86_400 * SECOND
START = 20_000 * DAY
CROSSINGS = {TapeFault.LOCKED_BOOK, TapeFault.CROSSED_BOOK}


class Feed:
    """A floor, and its market data as token after token gives them."""

    def __init__(self) -> None:
        self.data = FloorMarketData(CODE, lambda instant: instant // DAY)
        self.token = 0
        self.at = START

    def take(self, *events: Event, later: int = SECOND) -> EventArray:
        self.token += 1
        self.at += later
        messages = in_order(floor_topic(CODE), *events)
        for message in messages:
            assert not len(self.data.hear(self.token, self.at, message)), "told when the token is over"
        return self.data.finish()

    def book(self, symbol: str, side: Side) -> list[tuple[int, int, int]]:
        """Price, what is shown and orders of each level, while the symbol trades."""
        state = self.data.follower.floor.symbols.get(symbol)
        if state is None or state.phase is not Phase.OPEN:
            return []
        levels = [list(level) for level in state.book.side(side).levels()]
        return [(level[0].price, sum(one.shown for one in level), len(level)) for level in levels]


def depth(tape: Tape, symbol: str) -> tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]:
    for found in depth_views(tape, 1_000, [symbol]):
        assert not found.incomplete
        bids, asks = ([(one.price, one.size, one.orders) for one in side] for side in (found.bids, found.asks))
        return bids, asks
    return [], []


def flow(seed: int, tokens: int) -> list[tuple[list[Event], int]]:
    """Orders of all kinds, cancels, replaces, phases and days."""
    random, number = Random(seed), 0
    listed: list[Event] = [
        Directory("ISO", phase=Phase.OPEN, band_bp=300, pause_ns=5 * SECOND, reference=100),
        Directory("CAST", phase=Phase.PRE_OPEN, price_rule=PriceRule.MIDPOINT),
        Directory("BATCH", phase=Phase.OPEN, market=MarketKind.BATCH),
    ]
    found: list[tuple[list[Event], int]] = [(listed, SECOND)]
    live: list[tuple[int, int]] = [(1, 1)]
    for _ in range(tokens):
        events: list[Event] = []
        for _ in range(random.randint(1, 6)):
            kind, symbol = random.random(), random.choice(SYMBOLS)
            if kind < 0.12:
                events.append(Cancel(*random.choice(live), random.choice([0, 0, 1])))
            elif kind < 0.24:
                total, price = random.choice([None, 1, 5, 30]), random.choice([None, random.randint(95, 105)])
                events.append(Replace(*random.choice(live), total, price))
            elif kind < 0.29:
                events.append(Status(random.choice([symbol, None]), random.choice([*Phase][:5] + [Phase.OPEN] * 6)))
            else:
                number += 1
                account = random.randint(1, 6)
                side, price = random.choice([Side.BUY, Side.SELL]), random.randint(95, 105)
                one = Order(account << 32 | number, account, symbol, side, random.randint(1, 20), price)
                more = random.choice(["", "", "", "now", "ice", "ice", "stop", "day", "market", "close"])
                one = {
                    "now": one._replace(is_immediate=True),
                    "ice": one._replace(display=3),
                    "stop": one._replace(trigger=price),
                    "day": one._replace(is_day=True),
                    "market": one._replace(is_market=True, price=0),
                    "close": one._replace(at=Crossing.CLOSE),
                }.get(more, one)
                live = [*live[-30:], (one.id, account)]
                events.append(one)
        found.append((events, random.choice([SECOND, SECOND, SECOND, 10 * SECOND, DAY // 3])))
    return found


@pytest.mark.parametrize("seed", range(6))
def test_a_tape_built_from_it_has_the_floors_books_after_every_token(seed: int) -> None:
    feed, tape, shown = Feed(), Tape(), 0
    for events, later in flow(seed, 150):
        tape.take(feed.take(*events, later=later))
        for symbol in SYMBOLS:
            bids, asks = depth(tape, symbol)
            assert (bids, asks) == (feed.book(symbol, Side.BUY), feed.book(symbol, Side.SELL)), symbol
            shown += len(bids) + len(asks)
    assert shown > 200
    # Stops that an auction wakes wait for the next one, so that a book of batches may be locked or crossed meanwhile.
    doubtful = [(fault, one) for fault, names in tape.faults.names.items() for one in names]
    assert all(fault in CROSSINGS and one.symbol == "BATCH" for fault, one in doubtful), doubtful
    assert not [row for row in tape.trades.all if not int(row["state"])], "trades are printed when they are confirmed"


@pytest.mark.parametrize("seed", range(3))
def test_the_same_books_come_back_from_itch(seed: int) -> None:
    """Each day is a session of its own, and a reader has no order in it that was not entered there."""
    feed = Feed()
    days: dict[int, list[EventArray]] = {}
    for events, later in flow(seed, 120):
        made = feed.take(*events, later=later)
        days.setdefault(feed.at // DAY, []).append(made)
    assert len(days) > 3
    for day, blocks in days.items():
        log, read = FeedLog("written"), FeedLog("read")
        writer = ItchWriter(day * DAY, log, name_floors=True)
        raw = [writer.write(block) for block in blocks if len(block)]
        decoder = ItchDecoder(Mic("XNAS"), day * DAY, read)
        straight, through = Tape(), Tape()
        for block in blocks:
            straight.take(block)
        for block in decoder.blocks(raw):
            through.take(block)
        assert set(through.faults.counts) <= CROSSINGS
        for symbol in SYMBOLS:
            assert depth(through, symbol) == depth(straight, symbol)
        strangers = [reason for reason in log.lacking if "entered before" in reason and log.lacking[reason]]
        assert not strangers


def test_a_call_tells_its_indicative_price_and_no_book() -> None:
    feed = Feed()
    feed.take(Directory("ISO", phase=Phase.PRE_OPEN))
    made = feed.take(Order(1, 1, "ISO", Side.BUY, 30, 101), Order(2, 2, "ISO", Side.SELL, 10, 99))
    (mark,) = made
    assert (mark["kind"], mark["reference"]) == (EventKind.MARK, INDICATIVE)
    assert (mark["price"], mark["quantity"], mark["id"], mark["side"]) == (101, 10, 20, Side.BUY)
    assert mark["flags"] == EventFlag.OPENING
    made = feed.take(Status(None, Phase.OPEN))
    assert made["kind"].tolist() == [EventKind.STATUS, EventKind.ORDER], "the auction's trades are printed later"
    assert made["reference"][0] == MarketStatus.TRADING
    assert (made["quantity"][1], made["price"][1]) == (20, 101)
    made = feed.take(Status(None, Phase.CLOSING), Order(3, 3, "ISO", Side.BUY, 1, 90))
    assert made["kind"].tolist() == [EventKind.STATUS, EventKind.CANCEL, EventKind.MARK]
    assert made["price"][2] == 0, "nothing would trade"
    assert made["flags"][2] == EventFlag.CLOSING


def test_a_surplus_without_bound_is_told_as_far_as_a_record_has_room() -> None:
    feed, most = Feed(), (1 << 63) - 1
    feed.take(Directory("ISO", phase=Phase.PRE_OPEN))
    buys = [Order(number, number, "ISO", Side.BUY, most, 100) for number in range(1, 4)]
    (mark,) = feed.take(*buys, Order(4, 4, "ISO", Side.SELL, 1, 100))
    assert (mark["price"], mark["quantity"], mark["id"]) == (100, 1, (1 << 64) - 1)


def test_numbers_do_not_say_whose_orders_they_are() -> None:
    feed = Feed()
    feed.take(Directory("ISO", phase=Phase.OPEN))
    made = feed.take(*[Order(7 << 32 | number, 7, "ISO", Side.BUY, 1, 90 + number) for number in (1, 2)])
    assert made["id"].tolist() == [1, 2]
    assert not made["reference"].any()
    made = feed.take(Replace(7 << 32 | 1, 7, 5))
    assert made["kind"].tolist() == [EventKind.CANCEL, EventKind.ORDER]
    assert (made["flags"][0], made["id"].tolist()) == (EventFlag.LINKED, [1, 3]), "a lost place is a new number"


def test_a_day_begins_with_a_mark_and_all_that_stands() -> None:
    feed = Feed()
    made = feed.take(Directory("ISO.LONGNAME", phase=Phase.OPEN), Order(1, 1, "ISO.LONGNAME", Side.BUY, 5, 90))
    assert made["reference"][made["kind"] == EventKind.MARK].tolist() == [DAY_BEGINS]
    again = feed.take(Cancel(9, 9), later=DAY)
    told = [kind for kind in made["kind"].tolist() if kind != EventKind.DIRECTORY]
    assert [kind for kind in again["kind"].tolist() if kind != EventKind.DIRECTORY] == told
    tape = Tape()
    for block in (made, again):
        tape.names.take(block)
        tape.take(block)
    assert depth(tape, "ISO.LONGNAME") == ([(90, 5, 1)], [])
    assert np.array_equal(feed.take(Cancel(9, 9)), made[:0]), "nothing has changed"
