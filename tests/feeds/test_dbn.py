"""DBN records to events; every record is built by hand."""

from __future__ import annotations

import numpy as np
import pytest
from tests.feeds import dbn_samples as dbn
from tests.feeds.dbn_samples import NO_PRICE, NOON

from isocast.feeds.dbn import DbnDecoder, begins_like_dbn
from isocast.feeds.outcomes import FeedFault, FeedLog
from isocast.terms.errors import FeedError
from isocast.terms.market import EventFlag, EventKind, Mic, Side
from isocast.wire.events import EVENT_DTYPE, EventArray, are_events

UNIT = 10**9
CENT = UNIT // 100


def decode(raw: bytes, size: int = 1 << 20, floor: Mic | None = None) -> tuple[EventArray, FeedLog]:
    log = FeedLog("x.dbn")
    blocks = DbnDecoder(log, floor).blocks(raw[at : at + size] for at in range(0, len(raw), size))
    events = np.concatenate([np.empty(0, EVENT_DTYPE), *blocks])
    assert are_events(events.tobytes())
    return events, log


def rows(events: EventArray, *names: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in events[list(names)].tolist()]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_trades_of_every_version(version: int) -> None:
    raw = dbn.file(
        "trades",
        dbn.trade(5, NOON, 190 * UNIT + 25 * CENT, 100, "B", 77),
        dbn.trade(6, NOON + 1, 360 * UNIT, 7, "A", 78, publisher=9),
        dbn.trade(5, NOON + 2, CENT, 1, "N", 79),
        version=version,
    )
    events, log = decode(raw)
    assert rows(events, "floor", "symbol", "time", "price", "quantity", "side", "id", "reference") == [
        (b"XNAS", b"AAPL", NOON, 1_902_500, 100, Side.SELL, 1, 77),
        (b"XNYS", b"BRK.B", NOON + 1, 3_600_000, 7, Side.BUY, 2, 78),
        (b"XNAS", b"AAPL", NOON + 2, 100, 1, Side.NONE, 3, 79),
    ]
    assert set(events["kind"].tolist()) == {EventKind.TRADE}
    assert log.messages == {"trade": 3}
    assert not log.faults
    assert log.bytes_read == len(raw)


def test_quotes_are_pairs_and_trades_stand_behind_them() -> None:
    raw = dbn.file(
        "mbp-1",
        dbn.quote(5, NOON, (10 * UNIT, 3), (11 * UNIT, 4)),
        dbn.quote(5, NOON + 1, (10 * UNIT, 3), (NO_PRICE, 0), "T", 11 * UNIT),
    )
    events, _ = decode(raw)
    assert rows(events, "kind", "side", "flags", "price", "quantity", "id") == [
        (EventKind.QUOTE, Side.BUY, EventFlag.LINKED, 100_000, 3, 0),
        (EventKind.QUOTE, Side.SELL, 0, 110_000, 4, 0),
        (EventKind.QUOTE, Side.BUY, EventFlag.LINKED, 100_000, 3, 0),
        (EventKind.QUOTE, Side.SELL, 0, 0, 0, 0),
        (EventKind.TRADE, Side.BUY, 0, 110_000, 10, 2),
    ]


def test_the_best_of_ten_levels_is_read_and_the_rest_counted() -> None:
    events, log = decode(dbn.file("mbp-10", dbn.deep(5, NOON, (10 * UNIT, 3), (11 * UNIT, 4))))
    assert rows(events, "side", "price") == [(Side.BUY, 100_000), (Side.SELL, 110_000)]
    assert log.skipped == {"mbp-10: all prices below the best": 1}


def test_orders() -> None:
    raw = dbn.file(
        "mbo",
        dbn.order("R", NOON, 0, NO_PRICE, 0, "N"),
        dbn.order("A", NOON + 1, 71, 10 * UNIT, 30, "B"),
        dbn.order("M", NOON + 2, 71, 9 * UNIT, 20, "B"),
        dbn.order("C", NOON + 3, 71, 9 * UNIT, 5, "B"),
        dbn.order("T", NOON + 4, 0, 9 * UNIT, 2, "A", 500),
        dbn.order("N", NOON + 5, 0, NO_PRICE, 0, "N"),
    )
    events, log = decode(raw)
    assert rows(events, "kind", "side", "price", "quantity", "id", "reference") == [
        (EventKind.ORDER, Side.BUY, 100_000, 30, 71, 0),
        (EventKind.REPLACE, Side.BUY, 90_000, 20, 71, 0),
        (EventKind.CANCEL, Side.NONE, 0, 5, 71, 0),
        (EventKind.TRADE, Side.BUY, 90_000, 2, 5, 500),
    ]
    assert log.skipped == {
        "mbo R the book is cleared: no event carries it": 1,
        "mbo N nothing happens: no event carries it": 1,
    }


@pytest.mark.parametrize("size", [1 << 20, 64, 7])
def test_a_fill_is_one_execution_however_the_file_is_cut(size: int) -> None:
    """T, F and C say one thing three times; a C of more than the fill still cancels the rest."""
    raw = dbn.file(
        "mbo",
        dbn.order("A", NOON, 71, 10 * UNIT, 30, "B"),
        dbn.order("A", NOON, 72, 10 * UNIT, 30, "B"),
        dbn.order("T", NOON + 1, 0, 10 * UNIT, 50, "A", 9),
        dbn.order("F", NOON + 1, 71, 10 * UNIT, 30, "B", 9),
        dbn.order("C", NOON + 1, 71, 10 * UNIT, 30, "B", 9),
        dbn.order("F", NOON + 1, 72, 10 * UNIT, 20, "B", 9),
        dbn.order("C", NOON + 1, 72, 10 * UNIT, 30, "B", 9),
        dbn.order("C", NOON + 2, 71, 10 * UNIT, 30, "B", 10),
    )
    events, log = decode(raw, size)
    assert rows(events[2:], "kind", "side", "price", "quantity", "id", "reference") == [
        (EventKind.EXECUTION, Side.BUY, 100_000, 30, 71, 9),
        (EventKind.EXECUTION, Side.BUY, 100_000, 20, 72, 9),
        (EventKind.CANCEL, Side.NONE, 0, 10, 72, 0),
        (EventKind.CANCEL, Side.NONE, 0, 30, 71, 0),
    ]
    assert log.skipped == {"mbo T: fills carry the trade": 1, "mbo C: a fill took the shares away": 1}


def test_a_trade_whose_fills_are_of_other_shares_is_counted_by_itself() -> None:
    raw = dbn.file("mbo", dbn.order("T", NOON, 0, UNIT, 50, "A", 9), dbn.order("F", NOON, 71, UNIT, 30, "B", 9))
    events, log = decode(raw)
    assert events["quantity"].tolist() == [30]
    assert log.skipped == {"mbo T: fills carry the trade, of another number of shares": 1}


def test_symbols_of_a_live_session_and_of_days() -> None:
    raw = dbn.metadata("mixed", {}) + dbn.mapping(9, "LIVE A") + dbn.trade(9, NOON, UNIT, 1) + dbn.ohlcv(9, NOON)
    events, log = decode(raw)
    assert events["symbol"].tolist() == [b"LIVE.A"]
    assert log.skipped == {"ohlcv: no event carries it": 1}
    before = dbn.metadata("trades", {"OLD": 5}, days=(20231231, 20240102)) + dbn.trade(5, NOON, UNIT, 1)
    events, log = decode(before)
    assert log.faults[FeedFault.UNKNOWN_SYMBOL]["count"] == 1
    assert not len(events)


def test_times_of_sending_are_stepped_over() -> None:
    one = dbn.trade(5, NOON, UNIT, 1, length=56) + bytes(8)
    events, log = decode(dbn.metadata("trades", sent_time=True) + 3 * one)
    assert len(events) == 3
    assert not log.faults


@pytest.mark.parametrize(
    "record, kind, what",
    [
        (dbn.trade(5, NOON, UNIT + 1, 1), FeedFault.BAD_VALUE, "finer than 10^-4"),
        (dbn.trade(5, NOON, NO_PRICE, 1), FeedFault.BAD_VALUE, "a price is missing"),
        (dbn.trade(5, NOON, UNIT, 0), FeedFault.BAD_VALUE, "no shares"),
        (dbn.trade(5, NOON, UNIT, 1, action="A"), FeedFault.BAD_VALUE, "not T"),
        (dbn.trade(5, NOON, UNIT, 1, publisher=999), FeedFault.BAD_VALUE, "publisher 999 is not known; give --as"),
        (dbn.trade(44, NOON, UNIT, 1), FeedFault.UNKNOWN_SYMBOL, "no symbol"),
        (dbn.trade(5, (1 << 64) - 101, UNIT, 1), FeedFault.BAD_VALUE, "without a time"),
        (dbn.trade(5, NOON, UNIT, 1, kind=0x77), FeedFault.UNKNOWN_TYPE, "0x77"),
        (dbn.trade(5, NOON, UNIT, 1, length=44)[:44], FeedFault.BAD_LENGTH, "44 bytes, not 48"),
        (dbn.order("A", NOON, 1, UNIT, 1, "N"), FeedFault.BAD_VALUE, "neither A nor B"),
        (dbn.order("Z", NOON, 1, UNIT, 1), FeedFault.BAD_VALUE, "none of A, M, C"),
        (dbn.order("C", NOON, 1, UNIT, 0), FeedFault.BAD_VALUE, "no shares"),
    ],
)
def test_what_is_wrong_is_counted_where_it_stands(record: bytes, kind: FeedFault, what: str) -> None:
    """The records around it are read."""
    good = dbn.trade(5, NOON, UNIT, 1)
    raw = dbn.file("mixed", good, record, good)
    events, log = decode(raw)
    assert len(events) == 2
    assert set(log.faults) == {kind}
    assert log.faults[kind]["first_offset"] == len(raw) - len(record) - len(good)
    assert what in log.faults[kind]["first"]


def test_a_floor_can_be_given_for_a_publisher_that_is_not_known() -> None:
    events, log = decode(dbn.file("trades", dbn.trade(5, NOON, UNIT, 1, publisher=999)), floor=Mic("XLON"))
    assert events["floor"].tolist() == [b"XLON"]
    assert not log.faults


def test_long_symbols_are_refused_by_name() -> None:
    raw = dbn.metadata("trades", {"AAPL  240119C00150000": 5}) + dbn.trade(5, NOON, UNIT, 1)
    _, log = decode(raw)
    assert "AAPL..240119C00150000" in log.faults[FeedFault.BAD_VALUE]["first"]


def test_a_cut_file_and_a_record_without_length() -> None:
    good = dbn.trade(5, NOON, UNIT, 1)
    events, log = decode(dbn.file("trades", good, good[:30]))
    assert len(events) == 1
    assert log.faults[FeedFault.TRUNCATED]["first"] == "the file ends 30 bytes into a record"
    events, log = decode(dbn.file("trades", good, bytes(48), good))
    assert len(events) == 1
    assert "the rest of the file is not read" in log.faults[FeedFault.BAD_LENGTH]["first"]


@pytest.mark.parametrize(
    "raw, what",
    [
        (dbn.metadata("ohlcv-1m"), "holds ohlcv-1m, which is no stream of events"),
        (b"DBN\x09" + bytes(200), "version 9; 1 to 3 are read"),
        (b"DBN\x03\xff\xff\xff\xff", "metadata of 4,294,967,295 bytes"),
        (dbn.metadata("trades")[:-40], "metadata ends too early"),
        (dbn.metadata("trades", days=(20241301, 20240101)), "20241301, which is no day"),
        (b"DBN\x03", "does not begin like one"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(raw: bytes, what: str) -> None:
    with pytest.raises(FeedError, match=what):
        decode(raw)


def test_doubtful_books_and_aggregated_levels_are_said() -> None:
    raw = dbn.file("mixed", dbn.trade(5, NOON, UNIT, 1, flags=4), dbn.order("A", NOON, 0, UNIT, 1, flags=64))
    events, log = decode(raw)
    assert len(events) == 1
    assert log.notes == ["1 records are marked as of a book that may be wrong"]
    assert log.skipped == {"mbo: levels of a book that are no orders": 1}


def test_each_publisher_has_a_clock_of_its_own() -> None:
    mixed = [dbn.trade(5, NOON + at, UNIT, 1, publisher=2 + at % 2) for at in (5, 2, 7, 4)]
    assert not decode(dbn.file("trades", *mixed))[1].faults
    back = dbn.file("trades", dbn.trade(5, NOON + 5, UNIT, 1), dbn.trade(5, NOON, UNIT, 1))
    assert decode(back)[1].faults[FeedFault.BACKWARD_TIME]["count"] == 1


def test_begins_like_dbn() -> None:
    assert begins_like_dbn(dbn.metadata())
    assert not begins_like_dbn(b"DBN;text,of,a,table")
    assert not begins_like_dbn(b"DBN")
