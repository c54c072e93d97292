"""The tape against a slow one that looks at one event after the other, and the stories of §7.1 one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ticker.slow_tape import SlowTape, ends_of

from isocast.terms.conditions import TAPE_CONDITIONS
from isocast.terms.errors import LocalProtocolError
from isocast.terms.market import EventFlag, EventKind, MarketStatus, Mic, Side, Symbol
from isocast.ticker import quotes as lines_module
from isocast.ticker import tape as tape_module
from isocast.ticker.quotes import floor_name, symbol_name
from isocast.ticker.records import NAMES_KEPT, TapeFault
from isocast.ticker.tape import Tape
from isocast.ticker.views import busiest, day_rows, left_out, symbol_views, tentative, unlisted
from isocast.wire.events import EVENT_DTYPE, EventArray, MarketEvent, build_events

HOUR = 3_600 * 10**9
NYSE, LSE = Mic("XNYS"), Mic("XLON")
ISO = Symbol("ISO")


def trade(number: int, price: int, quantity: int = 100, floor: Mic = NYSE, **more: int) -> MarketEvent:
    return MarketEvent(EventKind.TRADE, floor, ISO, price=price, quantity=quantity, id=number, **more)  # type: ignore[arg-type]


def correct(number: int, price: int, quantity: int = 100, floor: Mic = NYSE) -> MarketEvent:
    return MarketEvent(EventKind.CORRECTION, floor, ISO, price=price, quantity=quantity, id=number)


def cancel(number: int, floor: Mic = NYSE) -> MarketEvent:
    return MarketEvent(EventKind.TRADE_CANCEL, floor, ISO, id=number)


def quote(side: Side, price: int, quantity: int = 100, floor: Mic = NYSE, flags: int = 0) -> MarketEvent:
    return MarketEvent(EventKind.QUOTE, floor, ISO, side, price, quantity, flags=EventFlag(flags))


def status(what: MarketStatus, floor: Mic = NYSE, symbol: Symbol | None = ISO, time: int = 0) -> MarketEvent:
    return MarketEvent(EventKind.STATUS, floor, symbol, reference=what, time=time)


def tape_of(*rows: MarketEvent) -> Tape:
    tape = Tape()
    tape.take(build_events(rows))
    return tape


def figures(tape: Tape) -> list[tuple[object, ...]]:
    return [
        ((row.open, row.high, row.low, row.close, row.volume, row.vwap, row.trades, row.cancelled, row.corrected))
        for row in day_rows(tape)
    ]


# ---- against the slow tape

_FLOORS = st.sampled_from([b"XNYS"] * 6 + [b"XLON", b"XTKS"])
_SYMBOLS = st.sampled_from([b"A"] * 8 + [b"B", b"B", b""])
_PRICES = st.sampled_from([100, 101, 102, 103] * 3 + [-5, 0, 1 << 50, 1 << 44])
_QUANTITIES = st.sampled_from([1, 10] * 4 + [(1 << 32) - 1, 0])
_IDS = st.sampled_from([1, 2, 3] * 3 + [4, 5, 0])
_NOTHING = st.just(0)
_SIDED = (EventKind.QUOTE, EventKind.ORDER, EventKind.REPLACE)


def _events(
    kind: EventKind,
    flags: Sequence[int] = (0,),
    references: Sequence[int] = (0,),
    times: Sequence[int] = (1,),
    symbols: st.SearchStrategy[bytes] = _SYMBOLS,
) -> st.SearchStrategy[tuple[object, ...]]:
    """Few values, so that ids, lines and prices meet again and again."""
    sides = st.sampled_from([1, 2, 1, 2, 1, 2, 0]) if kind in _SIDED else _NOTHING
    numbers = st.sampled_from(flags), st.sampled_from(references), st.sampled_from(times)
    return st.tuples(st.just(int(kind)), sides, numbers[0], _FLOORS, symbols, _PRICES, _QUANTITIES, *numbers[1:], _IDS)


_TRADES = _events(EventKind.TRADE, flags=[0] * 8 + [8, 16, 32, 256, 512, 768, 256], times=[1] * 5 + [2])
_EVENT = st.one_of(
    _TRADES,
    _TRADES,
    _events(EventKind.EXECUTION, references=[1, 2, 3]),
    _events(EventKind.QUOTE, flags=[0] * 4 + [1]),
    _events(EventKind.CORRECTION, flags=[0] * 6 + [32]),
    _events(EventKind.TRADE_CANCEL),
    _events(EventKind.STATUS, references=[1, 2, 3, 5, 0]),
    _events(EventKind.MARK, references=[ord("O")], times=[HOUR, 2 * HOUR, 14 * HOUR, 30 * HOUR], symbols=st.just(b"")),
    _events(EventKind.DIRECTORY),
    _events(EventKind.ORDER, flags=[0] * 5 + [1, 1, 2, 4]),
    _events(EventKind.ORDER),
    _events(EventKind.CANCEL, flags=[0, 0, 0, 1]),
    _events(EventKind.REPLACE),
    _events(EventKind.MARK, references=[ord("R")]),
)
_EVENTS = st.lists(_EVENT, max_size=80).map(lambda rows: np.array(rows, EVENT_DTYPE))
_CUTS = st.lists(st.integers(0, 80), max_size=6).map(sorted)


def in_parts(events: EventArray, cuts: Sequence[int]) -> Tape:
    tape = Tape()
    for part in np.split(events, [cut for cut in cuts if cut <= len(events)]):
        tape.take(part)
        tape.settle()
    return tape


def check_against(slow: SlowTape, tape: Tape) -> None:
    assert Counter(fault for fault, _ in slow.faults) == tape.faults.counts
    for fault, names in tape.faults.names.items():
        assert [at for kind, at in slow.faults if kind is fault][:NAMES_KEPT] == [name.sequence for name in names]
    views = {view.symbol: view for view in symbol_views(tape)}
    assert sorted(views) == sorted({symbol for symbol, _ in slow.lines})
    rows = {(row.symbol, row.floor): row for row in day_rows(tape)}
    for line in slow.lines:
        row = rows[line]
        got = (row.open, row.high, row.low, row.close, row.volume, row.vwap, row.trades, row.cancelled, row.corrected)
        assert got == slow.day(line), line
        assert row.listed == (line in slow.listed)
        assert row.status == slow.status(line)
    for symbol, view in views.items():
        lines = [line for line in slow.lines if line[0] == symbol]
        assert (view.volume, view.trades) == (slow.day(*lines)[4], slow.day(*lines)[6])
        standing = ends_of(slow.standing(*lines))
        assert (view.last is None) == (not standing)
        if view.last is not None:
            newest = standing[-1]
            assert (view.last.price, view.last.quantity, view.last.floor) == (
                newest.price,
                newest.quantity,
                newest.line[1],
            )
            assert view.change == newest.price - slow.previous.get(newest.line, standing[0].price)
        for best, side in ((view.bid, Side.BUY), (view.ask, Side.SELL)):
            found = slow.best(symbol, side, books=True)
            assert (None if best is None else (best.price, best.size, best.floors)) == found
        shown = [line for line in lines if line in slow.books and not slow.quotes.get(line)]
        if not shown:
            assert view.market == slow.markets.get(symbol, "")
        assert view.incomplete == tuple(line[1] for line in shown if not slow.books[line].sound)
    books = {(symbol_name(book.symbol), floor_name(book.floor)): book for book in tape.books.books}
    assert sorted(books) == sorted(slow.books)
    for line, book in books.items():
        assert list(book.bids) == slow.books[line].depth(Side.BUY)
        assert list(book.asks) == slow.books[line].depth(Side.SELL)
        assert book.is_sound == slow.books[line].sound


@settings(max_examples=300, deadline=None)
@given(_EVENTS, _CUTS)
def test_a_tape_says_what_a_slow_one_says_however_events_are_cut(events: EventArray, cuts: list[int]) -> None:
    slow = SlowTape()
    slow.take(events)
    whole = in_parts(events, [])
    check_against(slow, whole)
    assert in_parts(events, cuts).snapshot() == whole.snapshot()


@settings(max_examples=120, deadline=None)
@given(_EVENTS, _CUTS, st.integers(0, 80))
def test_a_tape_restored_anywhere_and_given_the_rest_is_a_tape_given_all(
    events: EventArray, cuts: list[int], joined: int
) -> None:
    late = Tape.restore(in_parts(events[:joined], cuts).snapshot())
    late.take(events[joined:])
    assert late.snapshot() == in_parts(events, []).snapshot()


def test_pieces_inside_a_block_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(5)
    events = np.zeros(3_000, EVENT_DTYPE)
    events["kind"] = random.choice([1, 2, 7, 8], len(events), p=[0.5, 0.4, 0.05, 0.05])
    events["side"] = random.integers(1, 3, len(events))
    events["floor"] = random.choice(np.array([b"XNYS", b"XLON"]), len(events))
    events["symbol"] = random.choice(np.array([b"A", b"B", b"C"]), len(events))
    events["price"], events["quantity"] = random.integers(90, 110, len(events)), random.integers(1, 9, len(events))
    events["id"] = random.integers(1, 400, len(events))
    whole = in_parts(events, [])
    slow = SlowTape()
    slow.take(events)
    check_against(slow, whole)
    monkeypatch.setattr(tape_module, "PIECE_EVENTS", 7)
    assert in_parts(events, []).snapshot() == whole.snapshot()


# ---- corrections and cancels


def test_a_correction_of_the_high_gives_the_high_before_it() -> None:
    tape = tape_of(trade(1, 100), trade(2, 130), trade(3, 110), correct(2, 105, 50))
    assert figures(tape) == [(100, 110, 100, 110, 250, Decimal("0.010500"), 3, 0, 1)]


def test_a_cancel_of_the_last_sale_gives_the_one_before_it_on_every_floor() -> None:
    tape = tape_of(trade(1, 100), trade(1, 120, floor=LSE), trade(2, 90), cancel(2))
    (view,) = symbol_views(tape)
    assert view.last is not None
    assert (view.last.price, view.last.floor) == (120, LSE)
    tape.take(build_events([cancel(1, LSE)]))
    (view,) = symbol_views(tape)
    assert view.last is not None
    assert (view.last.price, view.last.floor) == (100, NYSE)


def test_a_symbol_whose_only_trade_is_cancelled_has_no_prices() -> None:
    tape = tape_of(trade(1, 100), cancel(1))
    assert figures(tape) == [(None, None, None, None, 0, None, 0, 1, 0)]
    assert symbol_views(tape)[0].last is None


def test_a_trade_without_a_price_counts_once_it_is_corrected() -> None:
    tape = tape_of(trade(1, 0), trade(2, 100))
    assert figures(tape)[0][:5] == (100, 100, 100, 100, 100)
    tape.take(build_events([correct(1, 99)]))
    assert figures(tape)[0][:5] == (99, 100, 99, 100, 200)
    assert tape.faults.counts == {TapeFault.NO_PRICE: 1}


def test_references_that_refer_to_nothing_are_counted_by_name() -> None:
    tape = tape_of(correct(7, 100), trade(7, 100), cancel(7), cancel(7), correct(7, 101), correct(8, 100))
    assert tape.faults.counts == {
        TapeFault.UNKNOWN_REFERENCE: 2,
        TapeFault.DUPLICATE_REFERENCE: 1,
        TapeFault.CANCELLED_REFERENCE: 1,
    }
    name = tape.faults.names[TapeFault.UNKNOWN_REFERENCE][1]
    assert (name.sequence, name.floor, name.symbol, name.id) == (6, "XNYS", "ISO", 8)


def test_turnover_is_exact_beyond_64_bits() -> None:
    price, quantity = 1 << 44, (1 << 32) - 1
    tape = tape_of(*[trade(number, price, quantity) for number in range(1, 40)], trade(40, 1, 1))
    exact = Decimal(39 * price * quantity + 1) / (39 * quantity + 1) / 10_000
    assert figures(tape)[0][5] == exact.quantize(Decimal("0.000001"))


def test_a_tentative_trade_counts_once_a_correction_confirms_it() -> None:
    tape = tape_of(trade(1, 100, flags=EventFlag.TENTATIVE))
    assert (tentative(tape), symbol_views(tape)[0].last) == (1, None)
    tape.take(build_events([correct(1, 100)]))
    assert (tentative(tape), symbol_views(tape)[0].volume) == (0, 100)
    assert not tape.faults.counts


def test_an_execution_is_a_trade_by_its_number_and_an_unprinted_one_does_not_count_again() -> None:
    executed = MarketEvent(EventKind.EXECUTION, NYSE, ISO, price=100, quantity=10, id=77, reference=5)
    hidden = executed._replace(reference=6, flags=EventFlag.UNPRINTED)
    tape = tape_of(executed, hidden, cancel(6))
    assert (symbol_views(tape)[0].volume, tape.faults.total) == (10, 0)
    tape.take(build_events([cancel(5)]))
    assert symbol_views(tape)[0].volume == 0


def sold(number: int, price: int, letters: str, quantity: int = 100) -> MarketEvent:
    flags = 0
    for letter in letters:
        flags |= TAPE_CONDITIONS[letter].flags
    return trade(number, price, quantity, flags=EventFlag(flags))


def test_official_prints_count_in_no_figure_and_are_told() -> None:
    opening, closing = sold(1, 100, "O", 5_000), sold(2, 120, "6", 7_000)
    tape = tape_of(opening, sold(3, 100, "Q", 5_000), closing, sold(4, 120, "M", 7_000))
    (row,) = day_rows(tape)
    assert (row.open, row.close, row.volume, row.trades) == (100, 120, 12_000, 2)
    assert left_out(tape) == {"official open": (1, 5_000), "official close": (1, 7_000)}


@pytest.mark.parametrize("letters", ["T", "U", "I", "B", "W", "C", "N", "R", "H", "V", "7", "TI", "FI", "ZT"])
def test_a_trade_that_is_not_at_the_markets_price_sets_no_price_and_counts_in_volume(letters: str) -> None:
    tape = tape_of(trade(1, 100), sold(2, 999, letters), sold(3, 1, letters))
    (row,) = day_rows(tape)
    assert (row.open, row.high, row.low, row.close, row.volume) == (100, 100, 100, 100, 300)
    assert sum(count for count, _ in left_out(tape).values()) == 2
    only = tape_of(sold(2, 999, letters))
    assert (symbol_views(only)[0].last, symbol_views(only)[0].volume) == (None, 100)


@pytest.mark.parametrize("letter", "ZLPG4")
def test_a_late_trade_may_be_high_or_low_and_last_only_while_there_is_none(letter: str) -> None:
    tape = tape_of(sold(1, 90, letter), sold(2, 95, letter))
    assert [(row.open, row.high, row.low, row.close) for row in day_rows(tape)] == [(90, 95, 90, 90)]
    tape.take(build_events([trade(3, 100), sold(4, 120, letter)]))
    assert [(row.open, row.high, row.low, row.close) for row in day_rows(tape)] == [(100, 120, 90, 100)]
    tape.take(build_events([cancel(3)]))
    assert [(row.open, row.close) for row in day_rows(tape)] == [(90, 90)]


# ---- status, quotes, directory


def test_a_halt_is_shown_with_its_floors_until_trading_resumes() -> None:
    tape = tape_of(trade(1, 100), trade(1, 100, floor=LSE), status(MarketStatus.TRADING, LSE))
    tape.take(build_events([status(MarketStatus.HALTED, time=5)]))
    (view,) = symbol_views(tape)
    assert (view.status, view.status_floors, view.status_time) == (MarketStatus.HALTED, (NYSE,), 5)
    tape.take(build_events([status(MarketStatus.TRADING)]))
    assert symbol_views(tape)[0].status is MarketStatus.TRADING


def test_what_a_floor_says_of_itself_holds_for_its_symbols_until_it_says_otherwise() -> None:
    tape = tape_of(trade(1, 100), status(MarketStatus.TRADING), status(MarketStatus.CLOSED, symbol=None))
    assert symbol_views(tape)[0].status is MarketStatus.CLOSED
    tape.take(build_events([status(MarketStatus.PAUSED)]))
    assert symbol_views(tape)[0].status is MarketStatus.PAUSED


def test_the_best_prices_of_all_floors_have_their_floors_and_sizes_together() -> None:
    tape = tape_of(
        quote(Side.BUY, 100, 300),
        quote(Side.BUY, 100, 200, LSE),
        quote(Side.SELL, 102, 50),
        quote(Side.SELL, 103, 1, LSE),
    )
    (view,) = symbol_views(tape)
    assert view.bid is not None
    assert view.ask is not None
    assert (view.bid.price, view.bid.size, view.bid.floors) == (100, 500, (NYSE, LSE))
    assert (view.ask.price, view.ask.size, view.ask.floors) == (102, 50, (NYSE,))
    tape.take(build_events([quote(Side.BUY, 0, 0)]))
    (view,) = symbol_views(tape, floors=[NYSE])
    assert view.bid is None


def test_locked_and_crossed_markets_are_flagged_when_they_become_so_and_linked_quotes_together() -> None:
    tape = tape_of(quote(Side.BUY, 100), quote(Side.SELL, 100, floor=LSE))
    assert symbol_views(tape)[0].market == "locked"
    tape.take(build_events([quote(Side.BUY, 101), quote(Side.BUY, 102)]))
    assert symbol_views(tape)[0].market == "crossed"
    assert tape.faults.counts == {TapeFault.LOCKED_MARKET: 1, TapeFault.CROSSED_MARKET: 1}
    tape.take(build_events([quote(Side.BUY, 110, flags=EventFlag.LINKED), quote(Side.SELL, 111)]))
    tape.take(build_events([quote(Side.SELL, 112, floor=LSE)]))
    assert symbol_views(tape)[0].market == ""
    tape.take(build_events([quote(Side.SELL, 90, flags=EventFlag.LINKED), quote(Side.BUY, 89)]))
    assert tape.faults.total == 2


def test_symbols_without_a_directory_are_counted() -> None:
    listed = MarketEvent(EventKind.DIRECTORY, NYSE, ISO, price=100, quantity=10)
    tape = tape_of(listed, trade(1, 100), trade(1, 100, floor=LSE))
    assert unlisted(tape) == 1
    assert [row.listed for row in day_rows(tape)] == [True, False, True]


# ---- floors that restart, and days


def test_a_floor_that_restarts_and_repeats_itself_changes_no_figure() -> None:
    start = MarketEvent(EventKind.MARK, NYSE, reference=ord("O"), time=8 * HOUR)
    morning = [start, trade(1, 100, time=9 * HOUR), trade(2, 110, time=9 * HOUR), correct(2, 105)]
    tape = tape_of(*morning)
    before = figures(tape)
    again = start._replace(time=10 * HOUR)
    tape.take(build_events([again, *morning[1:], trade(3, 104, time=10 * HOUR)]))
    assert before == [(100, 105, 100, 105, 200, Decimal("0.010250"), 2, 0, 1)]
    assert figures(tape) == [(100, 105, 100, 104, 300, Decimal("0.010300"), 3, 0, 1)]
    assert tape.faults.counts == {TapeFault.DUPLICATE_TRADE: 2, TapeFault.DUPLICATE_REFERENCE: 1}


def test_another_day_starts_anew_and_references_to_the_day_before_are_late() -> None:
    start = MarketEvent(EventKind.MARK, NYSE, reference=ord("O"), time=8 * HOUR)
    tape = tape_of(start, trade(1, 100), trade(1, 500, floor=LSE), start._replace(time=32 * HOUR), cancel(1))
    assert tape.faults.counts == {TapeFault.LATE_REFERENCE: 1}
    tape.take(build_events([trade(2, 103)]))
    row = day_rows(tape, floors=[NYSE])[0]
    assert (row.open, row.volume, row.trades) == (103, 100, 1)
    assert symbol_views(tape, floors=[NYSE])[0].change == 3
    assert day_rows(tape, floors=[LSE])[0].volume == 100
    tape.take(build_events([start._replace(time=56 * HOUR), cancel(1)]))
    assert tape.faults.counts[TapeFault.UNKNOWN_REFERENCE] == 1
    assert len(tape.trades) == 2


def test_ids_of_rows_that_begin_anew_are_other_trades_and_references_mean_the_newest() -> None:
    tape = tape_of(trade(1, 100, time=1), trade(1, 200, time=2), cancel(1))
    assert figures(tape) == [(100, 100, 100, 100, 100, Decimal("0.010000"), 1, 1, 0)]
    assert tape.faults.counts == {TapeFault.REUSED_ID: 1}


def test_a_floor_that_invents_symbols_fills_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "LINES_MAX", 3)
    events = np.zeros(20, EVENT_DTYPE)
    events["kind"], events["floor"], events["price"], events["quantity"] = 1, b"XNYS", 100, 1
    events["symbol"] = np.array([b"A", b"B", b"", b"C", b"D", b"A", b"E", b"F", b"C", b"G"] * 2)
    events["floor"][11:], events["kind"][14] = b"XLON", EventKind.STATUS
    tape = in_parts(events, [])
    assert [view.symbol for view in symbol_views(tape)] == ["A", "B", "C"]
    assert tape.faults.counts == {TapeFault.TOO_MANY_LINES: 12, TapeFault.NO_SYMBOL: 2}
    assert in_parts(events, [3, 5, 12, 13]).snapshot() == tape.snapshot()


def test_only_rows_of_events_are_taken() -> None:
    with pytest.raises(LocalProtocolError, match="not a row of events"):
        Tape().take(np.zeros(3, np.int64))


def test_sequences_name_messages_and_a_message_without_events_moves_the_tape_too() -> None:
    tape = Tape()
    events = build_events([trade(1, 100), trade(2, 101), cancel(9)])
    tape.take(events, np.array([7, 7, 8], np.uint64))
    (view,) = symbol_views(tape)
    assert view.last is not None
    assert (view.last.sequence, tape.sequence) == (7, 8)
    assert tape.faults.names[TapeFault.UNKNOWN_REFERENCE][0].sequence == 8
    tape.take(events[:0], last_sequence=9)
    assert tape.sequence == 9


def test_blocks_that_wait_are_not_those_of_the_caller_any_more() -> None:
    tape, events = Tape(), build_events([trade(1, 100), trade(2, 101)])
    tape.take(events)
    events["price"] = 7
    assert (tape.events, symbol_views(tape)[0].volume) == (2, 200)
    assert figures(tape)[0][:4] == (100, 101, 100, 101)


def test_each_event_has_a_sequence() -> None:
    with pytest.raises(LocalProtocolError, match="1 sequences for 2 events"):
        Tape().take(build_events([trade(1, 100), trade(2, 101)]), np.ones(1, np.uint64))


def test_the_busiest_symbols_come_first_and_equal_ones_by_name() -> None:
    rows = [trade(1, 100, 5), trade(2, 100, 90, LSE)]
    for name, quantity in (("AB", 7), ("B", 95), ("ABA", 7), ("A", 7)):
        rows.append(rows[0]._replace(symbol=Symbol(name), quantity=quantity))
    tape = tape_of(*rows)
    assert busiest(tape, 9) == ["B", "ISO", "A", "AB", "ABA"]
    assert busiest(tape, 2, floors=[NYSE]) == ["B", "A"]
    assert busiest(tape, 9, floors=[LSE]) == ["ISO"]
    assert busiest(Tape(), 3) == []
