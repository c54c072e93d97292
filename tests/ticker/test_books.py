"""Books that follow a feed: against a list of orders, against other people's books, and what makes one unsound.

ISOCAST_DATA=/path/to/data pytest tests/ticker/test_books.py
"""

from __future__ import annotations

import bisect
import gzip
import os
import zipfile
from pathlib import Path
from struct import unpack_from

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ticker.slow_tape import SlowTape

from isocast.feeds.lobster import LobsterDecoder
from isocast.feeds.outcomes import FeedLog
from isocast.runtime.client.feed_files import FeedFile, FeedOptions
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.market import EventFlag, EventKind, Mic, Side, Symbol
from isocast.ticker.books import BookChange, Level, OrderBooks
from isocast.ticker.records import TapeFault
from isocast.ticker.tape import Tape, pack_state, unpack_state
from isocast.ticker.views import depth_views, symbol_views
from isocast.wire.events import EVENT_DTYPE, EventArray, MarketEvent, build_events

NYSE, LSE, ISO = Mic("XNYS"), Mic("XLON"), Symbol("ISO")
HOUR = 3_600 * 10**9
DATA = os.environ.get("ISOCAST_DATA", "")
real = pytest.mark.skipif(not DATA, reason="ISOCAST_DATA does not say where the real files are")


def order(number: int, side: Side, price: int, quantity: int = 100, floor: Mic = NYSE, flags: int = 0) -> MarketEvent:
    return MarketEvent(EventKind.ORDER, floor, ISO, side, price, quantity, id=number, flags=EventFlag(flags))


def cancel(number: int, quantity: int = 0, flags: int = 0) -> MarketEvent:
    return MarketEvent(EventKind.CANCEL, NYSE, ISO, quantity=quantity, id=number, flags=EventFlag(flags))


def execute(number: int, quantity: int, price: int = 100) -> MarketEvent:
    return MarketEvent(EventKind.EXECUTION, NYSE, ISO, price=price, quantity=quantity, id=number, reference=number)


def mark(code: str, time: int = HOUR, symbol: Symbol | None = None) -> MarketEvent:
    return MarketEvent(EventKind.MARK, NYSE, symbol, reference=ord(code), time=time)


def tape_of(*rows: MarketEvent) -> Tape:
    tape = Tape()
    tape.take(build_events(rows))
    return tape


BUYS = [order(1, Side.BUY, 100), order(2, Side.BUY, 101, 50), order(3, Side.BUY, 101, 25)]


def test_orders_at_a_price_are_one_level_and_the_best_comes_first() -> None:
    (depth,) = depth_views(tape_of(*BUYS, order(4, Side.SELL, 103, 10)), 5)
    assert [(level.price, level.size, level.orders) for level in depth.bids] == [(101, 75, 2), (100, 100, 1)]
    assert [(level.price, level.size) for level in depth.asks] == [(103, 10)]
    assert (depth.market, depth.incomplete) == ("", ())


def test_executions_cancels_and_replacements_change_the_rest() -> None:
    replaced = MarketEvent(EventKind.REPLACE, NYSE, ISO, price=102, quantity=7, id=1)
    tape = tape_of(*BUYS, execute(2, 20, 101), cancel(2, 5), cancel(3), replaced)
    (book,) = tape.books.books
    assert book.bids == (Level(102, 7, 1), Level(101, 25, 1))
    assert book.is_sound
    assert not tape.faults.total


def test_the_tape_has_the_best_price_of_quotes_and_of_books() -> None:
    quote = MarketEvent(EventKind.QUOTE, LSE, ISO, Side.BUY, 101, 30, time=5)
    stale = MarketEvent(EventKind.QUOTE, LSE, ISO, Side.SELL, 102, 40, time=5)
    (view,) = symbol_views(tape_of(*BUYS, quote, stale))
    assert view.bid is not None
    assert (view.bid.price, view.bid.size, set(view.bid.floors)) == (101, 105, {NYSE, LSE})
    assert view.ask is not None
    assert (view.ask.price, view.ask.floors) == (102, (LSE,))


def test_a_floor_that_quotes_is_believed_by_its_quotes() -> None:
    quote = MarketEvent(EventKind.QUOTE, NYSE, ISO, Side.BUY, 90, 30, time=5)
    (view,) = symbol_views(tape_of(*BUYS, quote))
    assert view.bid is not None
    assert view.bid.price == 90


@pytest.mark.parametrize(
    "rows, fault",
    [
        ([cancel(9)], TapeFault.UNKNOWN_ORDER),
        ([execute(9, 1)], TapeFault.UNKNOWN_ORDER),
        ([execute(2, 51)], TapeFault.BEYOND_REST),
        ([cancel(2, 51)], TapeFault.BEYOND_REST),
        ([order(2, Side.BUY, 99)], TapeFault.REUSED_ORDER),
    ],
)
def test_what_contradicts_a_book_is_counted_and_the_book_is_not_sound(
    rows: list[MarketEvent], fault: TapeFault
) -> None:
    tape = tape_of(*BUYS, *rows)
    assert tape.faults.counts[fault] == 1
    assert depth_views(tape, 1)[0].incomplete == (NYSE,)
    assert symbol_views(tape)[0].incomplete == (NYSE,)


def test_executions_of_a_floor_that_shows_no_orders_are_trades_and_nothing_else() -> None:
    tape = tape_of(execute(7, 5))
    assert (tape.books.books, tape.faults.total, symbol_views(tape)[0].volume) == ([], 0, 5)


def test_a_locked_and_a_crossed_book_are_counted_once_while_they_last() -> None:
    tape = tape_of(*BUYS, order(4, Side.SELL, 101), order(5, Side.SELL, 101), order(6, Side.SELL, 99), cancel(6))
    assert tape.faults.counts == {TapeFault.LOCKED_BOOK: 2, TapeFault.CROSSED_BOOK: 1}
    assert depth_views(tape, 1)[0].market == symbol_views(tape)[0].market == "locked"


def test_a_replacement_with_a_new_id_is_one_change() -> None:
    """Between the two events the book would be crossed, or empty."""
    changes: list[BookChange] = []
    books = OrderBooks()
    books.take(build_events(BUYS), changes, 1)
    del changes[:]
    faults = books.take(build_events([cancel(1, flags=1), order(8, Side.BUY, 105)]), changes, 1)
    assert [(change.place, change.bids, change.bid_sizes) for change in changes] == [(1, [105], [100])]
    assert not faults


def test_a_gap_makes_every_book_unsound_until_its_floor_begins_another_day() -> None:
    tape = tape_of(mark("O"), *BUYS)
    tape.gap()
    tape.take(build_events([order(9, Side.BUY, 5, floor=LSE)]))
    assert depth_views(tape, 1)[0].incomplete == (NYSE, LSE)
    assert tape.faults.counts == {TapeFault.GAP: 1}
    tape.take(build_events([mark("O", 24 * HOUR), order(1, Side.BUY, 100)]))
    (depth,) = depth_views(tape, 5)
    assert depth.incomplete == (LSE,)
    assert [level.size for level in depth.bids] == [100, 100], "orders of the day before are gone"
    again = Tape.restore(tape.snapshot())
    again.take(build_events([order(2, Side.BUY, 7, floor=Mic("XTKS"))]))
    assert depth_views(again, 1)[0].incomplete == (LSE, Mic("XTKS"))


def test_a_floor_that_restarts_within_its_day_keeps_its_books_and_a_clearing_mark_empties_one() -> None:
    tape = tape_of(mark("O"), *BUYS, cancel(77), mark("O", 2 * HOUR))
    assert len(tape.books.books[0].orders) == 3
    tape.take(build_events([mark("R", symbol=ISO), order(1, Side.SELL, 9)]))
    (depth,) = depth_views(tape, 5)
    assert (depth.bids, len(depth.asks), depth.incomplete) == ((), 1, ())


@pytest.mark.parametrize("name, value", [("side", 0), ("side", 3), ("quantity", 0), ("id", 2), ("price", 1 << 60)])
def test_a_snapshot_with_an_order_that_cannot_be_is_refused(name: str, value: int) -> None:
    state = unpack_state(tape_of(*BUYS).snapshot())
    state.tables[-1][name][0] = value
    with pytest.raises(RemoteProtocolError):
        unpack_state(pack_state(state))


# ---- against a list of orders

_ROWS = st.tuples(
    st.sampled_from([3, 3, 3, 4, 5, 6]),
    st.sampled_from([1, 2]),
    st.sampled_from([0, 0, 0, 0, 1, 4]),
    st.just(b"XNYS"),
    st.sampled_from([b"A", b"A", b"B"]),
    st.integers(100, 112),
    st.integers(0, 4),
    st.just(0),
    st.just(1),
    st.integers(1, 12),
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(_ROWS.map(lambda row: (*row[:6], row[6] or row[0] == 3, *row[7:])), max_size=60),
    st.integers(1, 4),
    st.integers(0, 60),
)
def test_changes_tell_the_best_levels_behind_every_event(rows: list[tuple[object, ...]], depth: int, cut: int) -> None:
    events = np.array(rows, EVENT_DTYPE)
    books, slow = OrderBooks(), SlowTape()
    changes: list[BookChange] = []
    books.take(events[:cut], changes, depth)
    rest: list[BookChange] = []
    books.take(events[cut:], rest, depth)
    changes += [change._replace(place=change.place + cut) for change in rest]
    told = {change.place: change for change in changes}
    assert len(told) == len(changes)
    last: dict[bytes, BookChange] = {}
    for place, event in enumerate(events):
        slow.take(events[place : place + 1])
        symbol = event["symbol"]
        last[symbol] = told.get(place, last.get(symbol, BookChange(0, [], [], [], [], 0, is_sound=True)))
        if event["flags"] & EventFlag.LINKED or (symbol.decode(), "XNYS") not in slow.books:
            continue
        book, found = slow.books[symbol.decode(), "XNYS"], last[symbol]
        for side, prices, sizes in (
            (Side.BUY, found.bids, found.bid_sizes),
            (Side.SELL, found.asks, found.ask_sizes),
        ):
            assert list(zip(prices, sizes, strict=True)) == [level[:2] for level in book.depth(side)[:depth]]


# ---- against LOBSTER's own book

_Rows = list[list[str]]


def _restored(events: EventArray, rows: _Rows) -> tuple[EventArray, list[int]]:
    """Events with the orders that the file has left out, and the row of each.

    It has the events within 50 levels of the best price from 09:30 on. Orders that it cancels or executes and never
    enters were entered before, or farther away: ids rise with time, so that each has its place.
    """
    entered = [(int(row[2]), place) for place, row in enumerate(rows) if row[1] == "1"]
    known, rest = {number for number, _ in entered}, dict[int, tuple[int, int, int]]()
    for row in rows:
        number = int(row[2])
        if row[1] in "234" and number not in known:
            before = rest.get(number, (0, 0, 0))[0]
            rest[number] = before + int(row[3]), int(row[4]), 1 if row[5] == "1" else 2
    highest = np.maximum.accumulate([number for number, _ in entered])
    missing = sorted(rest)
    places = [entered[at][1] for at in np.searchsorted(highest, missing)]
    lost = np.array(
        [(3, rest[n][2], 0, b"XNAS", b"AAPL", rest[n][1], rest[n][0], 0, 1, n) for n in missing], EVENT_DTYPE
    )
    origin = np.insert(np.arange(len(events)), places, -1)
    return np.insert(events, places, lost), np.maximum.accumulate(origin).tolist()


@real
def test_best_prices_agree_with_lobsters_own_orderbook_row_by_row() -> None:
    folder = Path(DATA) / "lobster"
    raw = gzip.decompress((folder / "AAPL_2012-06-21_34200000_37800000_message_50.csv.gz").read_bytes())
    rows = [line.split(",") for line in raw.decode().split()]
    decoder = LobsterDecoder(Mic("XNAS"), Symbol("AAPL"), "2012-06-21", FeedLog("x"))
    events, origin = _restored(np.concatenate(list(decoder.blocks([raw]))), rows)
    changes: list[BookChange] = []
    books = OrderBooks()
    assert books.take(events, changes, 1) == {}, "no unknown order, none beyond its rest, never locked or crossed"
    assert books.books[0].is_sound
    places = [origin[change.place] for change in changes]
    at: dict[tuple[object, ...], list[int]] = {}
    for place, row in enumerate(rows):
        at.setdefault((round(float(row[0]), 6), *row[1:]), []).append(place)
    with zipfile.ZipFile(folder / "LOBSTER_SampleFile_AAPL_2012-06-21_1.zip") as archive:
        parts = {
            name.split("_")[4]: archive.read(name).decode().split() for name in archive.namelist() if "34200" in name
        }
    before, compared, others = -1, 0, []
    for message, wanted in zip(parts["message"], parts["orderbook"], strict=True):
        row = message.split(",")
        found = [place for place in at.get((round(float(row[0]), 6), *row[1:]), []) if place > before]
        if not found:
            break  # The first hour is over.
        before, compared = found[0], compared + 1
        change = changes[bisect.bisect_right(places, before) - 1]
        got = change.asks[0], change.ask_sizes[0], change.bids[0], change.bid_sizes[0]
        if list(got) != list(map(int, wanted.split(","))):
            others.append(got)
    assert compared == 25_641
    # Those that were looked at have an order too many, for which the file has no end: it may lie beyond its 50 levels.
    assert len(others) == 18


# ---- against a count of ITCH messages that knows nothing of ours


def _count_itch(raw: bytes) -> tuple[int, dict[int, tuple[int, bytes, int, int]]]:
    """Messages about orders that do not stand, and the orders that stand: locate, side, shares, price."""
    orders: dict[int, tuple[int, bytes, int, int]] = {}
    unknown = at = 0
    messages = []
    while at + 2 <= len(raw):
        size = int.from_bytes(raw[at : at + 2])
        messages.append(raw[at + 2 : at + 2 + size])
        at += 2 + size
    # The file is made up: some orders are replaced before they are entered.
    ever = {
        int.from_bytes(body[11:19]): (int.from_bytes(body[1:3]), body[19:20]) for body in messages if body[0] in b"AF"
    }
    for body in messages:
        kind, locate = body[:1], int.from_bytes(body[1:3])
        if kind in b"AF":
            number, side, shares, _, price = unpack_from(">QcI8sI", body, 11)
            orders[number] = locate, side, shares, price
        elif kind in b"ECXDU":
            number = int.from_bytes(body[11:19])
            if number not in orders:
                unknown += 1
            old = orders.pop(number, None)
            if kind == b"U":
                new, shares, price = unpack_from(">QII", body, 19)
                ever[new] = ever[number]
                orders[new] = *ever[number], shares, price
            elif old is not None and kind != b"D":
                left = old[2] - int.from_bytes(body[19:23])
                if left > 0:
                    orders[number] = *old[:2], left, old[3]
    return unknown, orders


@real
def test_the_books_of_an_itch_file_are_those_of_an_independent_count() -> None:
    path = Path(DATA) / "itch_ritch_artificial" / "ex20101224.framed.ITCH50.gz"
    tape = Tape()
    for block in FeedFile(path, FeedOptions()).blocks():
        tape.take(block)
    unknown, orders = _count_itch(gzip.decompress(path.read_bytes()))
    assert tape.faults.counts[TapeFault.UNKNOWN_ORDER] == unknown
    mine = sorted(
        (number, "BS"[way].encode(), quantity, key if way else -(key or 0))
        for book in tape.books.books
        for number, (way, key, quantity) in book.orders.items()
    )
    assert mine == sorted((number, *rest) for number, (_, *rest) in orders.items())
    assert len(mine) > 3_000
