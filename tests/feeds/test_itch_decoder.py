"""Every message of ITCH 5.0 becomes the event that it means."""

import numpy as np
import pytest
from tests.feeds import itch_samples as itch
from tests.feeds.itch_samples import MIDNIGHT, OPEN, frame

from isocast.feeds.itch_layout import LAYOUTS, LENGTHS
from isocast.feeds.itch_reader import ItchDecoder
from isocast.feeds.outcomes import FeedFault, FeedLog
from isocast.terms.errors import FeedError
from isocast.terms.market import EventFlag, EventKind, MarketStatus, Mic, Side
from isocast.wire.events import EVENT_DTYPE, EventArray, are_events

XNAS = Mic("XNAS")


def decode(raw: bytes, size: int = 1 << 20, *, strict: bool = False) -> tuple[EventArray, FeedLog]:
    log = FeedLog("test.itch", strict=strict)
    decoder = ItchDecoder(XNAS, MIDNIGHT, log)
    blocks = list(decoder.blocks([raw[at : at + size] for at in range(0, len(raw), size)]))
    events = np.concatenate([np.empty(0, EVENT_DTYPE), *blocks])
    assert are_events(events.tobytes()), "whatever the bytes were, what comes out are events"
    return events, log


def rows(events: EventArray) -> list[tuple[object, ...]]:
    """Kind, side, flags, symbol, price, quantity, reference, id of each."""
    names = ["kind", "side", "flags", "symbol", "price", "quantity", "reference", "id"]
    return [
        (EventKind(row[0]), Side(row[1]), EventFlag(row[2]), row[3].decode(), *row[4:])
        for row in events[names].tolist()
    ]


NONE = EventFlag(0)
EXPECTED = [
    (EventKind.MARK, Side.NONE, NONE, "", 0, 0, ord("O"), 0),
    (EventKind.DIRECTORY, Side.NONE, NONE, "ISO", 100, 100, 0, 1),
    (EventKind.DIRECTORY, Side.NONE, NONE, "CAST", 100, 10, 0, 2),
    (EventKind.STATUS, Side.NONE, NONE, "ISO", 0, 0, MarketStatus.TRADING, 0),
    (EventKind.MARK, Side.NONE, NONE, "", 0, 0, ord("Q"), 0),
    (EventKind.ORDER, Side.BUY, NONE, "ISO", 1_000_000, 500, 0, 11),
    (EventKind.ORDER, Side.SELL, NONE, "CAST", 55_500, 300, int.from_bytes(b"NITE"), 12),
    (EventKind.EXECUTION, Side.BUY, NONE, "ISO", 1_000_000, 100, 9_001, 11),
    (EventKind.EXECUTION, Side.BUY, NONE, "ISO", 1_000_100, 50, 9_002, 11),
    (EventKind.EXECUTION, Side.BUY, EventFlag.UNPRINTED, "ISO", 999_900, 50, 9_003, 11),
    (EventKind.CANCEL, Side.NONE, NONE, "ISO", 0, 100, 0, 11),
    (EventKind.CANCEL, Side.NONE, EventFlag.LINKED, "CAST", 0, 0, int.from_bytes(b"NITE"), 12),
    (EventKind.ORDER, Side.SELL, NONE, "CAST", 55_600, 250, int.from_bytes(b"NITE"), 13),
    (EventKind.EXECUTION, Side.SELL, NONE, "CAST", 55_600, 250, 9_004, 13),
    (EventKind.CANCEL, Side.NONE, NONE, "ISO", 0, 0, 0, 11),
    (EventKind.TRADE, Side.NONE, NONE, "ISO", 1_000_050, 75, 0, 9_005),
    (EventKind.TRADE, Side.NONE, EventFlag.AUCTION, "ISO", 1_000_200, 10_000, ord("C"), 9_006),
    (EventKind.TRADE_CANCEL, Side.NONE, NONE, "ISO", 0, 0, 0, 9_005),
    (EventKind.MARK, Side.NONE, NONE, "", 0, 0, int.from_bytes(b"W1"), 0),
    (EventKind.STATUS, Side.NONE, NONE, "CAST", 0, 0, MarketStatus.HALTED, 0),
    (EventKind.MARK, Side.NONE, NONE, "", 0, 0, ord("C"), 0),
]


def test_the_lengths_are_those_of_the_specification() -> None:
    assert "".join(LENGTHS) == "SRHYLVWKJhAFECXDUPQBINO"
    assert list(LENGTHS.values()) == [
        *(12, 39, 25, 20, 26, 35, 12, 28, 35, 21, 36, 40, 31, 36, 23, 19, 35, 44, 40, 19, 50, 20, 48)
    ]
    assert LAYOUTS["R"].fields is not None
    assert LAYOUTS["R"].fields["leverage"][1] == 34


def test_every_message_becomes_its_event() -> None:
    events, log = decode(frame(*itch.day()), strict=True)
    assert rows(events) == EXPECTED
    assert set(events["floor"]) == {b"XNAS"}
    assert events["time"][0] == MIDNIGHT + OPEN
    assert (np.diff(events["time"].astype(np.int64)) >= 0).all()
    assert log.skipped == {"I imbalance: no event carries it": 1}
    assert log.messages["E"] == 2
    assert log.total_messages == len(itch.day())


@pytest.mark.parametrize("size", [1, 2, 3, 17, 40, 64, 1000])
def test_how_a_file_is_cut_into_chunks_changes_nothing(size: int) -> None:
    raw = frame(*itch.day())
    assert decode(raw, size)[0].tobytes() == decode(raw)[0].tobytes()


def test_the_directory_names_what_was_announced_and_what_was_met() -> None:
    decoder = ItchDecoder(XNAS, MIDNIGHT, FeedLog("x"))
    list(decoder.blocks([frame(itch.directory(5, 1, "ISO", 10), itch.trade(9, 2, 1, "CAST", 10_000, 1))]))
    assert [(each.number, each.symbol, each.round_lot) for each in decoder.directory] == [
        (5, "ISO", 10),
        (9, "CAST", 0),
    ]


def test_orders_replaced_again_and_again_in_one_block_keep_their_side() -> None:
    chain = [itch.add(1, 1, 100, "S", 10, "ISO", 50_000)]
    chain += [itch.replace(1, 2, number, number + 1, 10, 50_000 + number) for number in range(100, 400)]
    chain.append(itch.executed(1, 3, 400, 10, 1))
    events, _ = decode(frame(*chain), strict=True)
    assert events["side"][-1] == Side.SELL
    assert events["price"][-1] == 50_399


def test_a_ring_of_replacements_ends() -> None:
    raw = frame(itch.trade(1, 1, 1, "ISO", 1, 1), itch.replace(1, 2, 7, 8, 1, 1), itch.replace(1, 3, 8, 7, 1, 1))
    events, log = decode(raw)
    assert len(events) == 1
    assert log.faults[FeedFault.UNKNOWN_ORDER]["count"] == 2


def test_messages_of_orders_that_nobody_entered_are_counted_with_their_place() -> None:
    known = itch.add(1, 1, 1, "B", 10, "ISO", 10_000)
    raw = frame(known, itch.executed(1, 2, 99, 5, 1), itch.delete(1, 3, 98), itch.cancel(1, 4, 97, 1))
    events, log = decode(raw)
    assert rows(events)[1:] == [
        (EventKind.CANCEL, Side.NONE, NONE, "ISO", 0, 0, 0, 98),
        (EventKind.CANCEL, Side.NONE, NONE, "ISO", 0, 1, 0, 97),
    ], "an execution needs the price of its order, a cancel nothing"
    assert log.faults[FeedFault.UNKNOWN_ORDER]["count"] == 3
    assert log.faults[FeedFault.UNKNOWN_ORDER]["first_offset"] in [38, 38 + 33, 38 + 33 + 21]
    with pytest.raises(FeedError, match=r"test\.itch: byte \d+: unknown-order: .* not entered"):
        decode(raw, strict=True)


def test_a_print_with_its_price_counts_even_if_its_order_is_unknown() -> None:
    raw = frame(itch.directory(1, 1, "ISO"), itch.executed_at(1, 2, 99, 5, 1, "Y", 70_000))
    events, log = decode(raw, strict=True)
    assert rows(events)[1] == (EventKind.EXECUTION, Side.NONE, NONE, "ISO", 70_000, 5, 1, 99)
    assert not log.faults


def test_a_stock_that_nobody_announced_has_no_event() -> None:
    events, log = decode(frame(itch.broken(3, 1, 5)))
    assert not len(events)
    assert log.faults[FeedFault.UNKNOWN_SYMBOL] == {
        "count": 1,
        "first_offset": 0,
        "first": "a stock that was not announced",
    }


@pytest.mark.parametrize("name", ["A B", "\x01A", "A\xff"])
def test_a_name_that_is_no_symbol_has_no_event(name: str) -> None:
    raw = itch.message("R", 1, 1, name.encode("latin-1").ljust(8) + itch.directory(1, 1, "ISO")[19:])
    events, log = decode(frame(raw))
    assert not len(events)
    assert FeedFault.UNKNOWN_SYMBOL in log.faults


def test_a_stock_that_changes_its_name_is_a_fault() -> None:
    _, log = decode(frame(itch.directory(1, 1, "ISO"), itch.trade(1, 2, 1, "CAST", 1, 1)))
    assert log.faults[FeedFault.BAD_VALUE]["first"] == "the name of stock 1 changes"
    assert log.faults[FeedFault.BAD_VALUE]["first_offset"] == 41


def test_time_that_steps_back_is_counted_and_the_order_of_the_file_kept() -> None:
    raw = frame(*(itch.trade(1, clock, 1, "ISO", 1, clock) for clock in (100, 300, 200, 250, 400)))
    events, log = decode(raw)
    assert events["id"].tolist() == [100, 300, 200, 250, 400]
    assert log.faults[FeedFault.BACKWARD_TIME] == {"count": 2, "first_offset": 92, "first": "time steps back by 100 ns"}
    with pytest.raises(FeedError, match="byte 92: backward-time"):
        decode(raw, strict=True)


def test_time_that_steps_back_between_two_chunks_is_seen_too() -> None:
    raw = frame(itch.trade(1, 300, 1, "ISO", 1, 1), itch.trade(1, 200, 1, "ISO", 1, 2))
    _, log = decode(raw, 46)
    assert log.faults[FeedFault.BACKWARD_TIME]["count"] == 1


def test_values_without_room_are_refused() -> None:
    raw = frame(
        itch.cross(1, 1, 1 << 33, "ISO", 1, 1, "C"),
        itch.add(1, 2, 1, "Z", 1, "ISO", 1),
        itch.action(1, 3, "ISO", "?"),
    )
    events, log = decode(raw)
    assert not len(events)
    assert log.faults[FeedFault.BAD_VALUE]["count"] == 3


def test_a_cross_of_nothing_is_no_trade() -> None:
    events, log = decode(frame(itch.cross(1, 1, 0, "ISO", 0, 0, "O")), strict=True)
    assert not len(events)
    assert log.skipped == {"Q cross trade: nothing was traded in it": 1}


def test_a_match_number_above_32_bits_is_noted() -> None:
    raw = frame(itch.add(1, 1, 1, "B", 10, "ISO", 5), itch.executed(1, 2, 1, 5, (7 << 32) + 3))
    events, log = decode(raw)
    assert events["reference"][-1] == 3
    assert log.notes == ["match numbers above 32 bits: executions carry their low bits"]


def test_an_order_number_that_stands_already_is_a_fault() -> None:
    raw = frame(itch.add(1, 1, 1, "B", 10, "ISO", 5)) * 2
    _, log = decode(raw, 38)
    assert log.faults[FeedFault.REUSED_ORDER]["first"] == "order 1 exists already"


def test_orders_that_are_gone_make_room() -> None:
    decoder = ItchDecoder(XNAS, MIDNIGHT, FeedLog("x", strict=True))
    for start in range(0, 40_000, 4_000):
        orders = range(start, start + 4_000)
        messages = [itch.add(1, 1, order, "B", 10, "ISO", 5) for order in orders]
        messages += [itch.delete(1, 1, order) if order % 2 else itch.executed(1, 1, order, 10, 1) for order in orders]
        list(decoder.blocks([frame(*messages)]))
    assert decoder._book.orders.count < 20_000, "what has gone was forgotten"  # noqa: SLF001
