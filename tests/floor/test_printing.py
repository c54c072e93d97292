"""Confirmed trades as market events: each on the tape once, whoever is lost on the way."""

import numpy as np
import pytest
from tests.floor.cases import SYMBOL
from tests.floor.rings import CODE, OPEN, Ring

from isocast.floor.arbiter import PublishPrints, TradesConfirmed, Truncated
from isocast.floor.corrections import Correction
from isocast.floor.events import AuctionKind, Bid, Directory, Lot, Order, Phase, Status, Take, Trade
from isocast.floor.machine import Floor
from isocast.floor.printing import FirstPrints, amends, is_on_tape, print_key, printed, prints, tape_topic
from isocast.floor.reporting import FloorReport, decode_report, encode_report
from isocast.terms.market import EventFlag, EventKind, Side
from isocast.ticker.records import TapeFault, TradeState
from isocast.ticker.tape import Tape

LONG = "ISOCAST.LONG"


def on_tape(ring: Ring) -> Tape:
    """All market events of the sequence, as every reader of the tape has them."""
    tape = Tape()
    for event in ring.log:
        for message in event.messages:
            if message.topic == tape_topic(CODE):
                tape.take(printed(CODE, message.payload))
    return tape


def numbers(ring: Ring) -> list[int]:
    return [int(number) for number in on_tape(ring).trades.all["id"]]


def said(ring: Ring) -> set[bytes]:
    """Under which keys sites have printed."""
    return {one.key for site in ring.sites.values() for one in site.effects if isinstance(one, PublishPrints)}


def test_the_owner_of_the_confirming_token_prints_and_the_ring_is_quiet_after_it() -> None:
    ring = Ring()
    ring.issue(OPEN)
    token = ring.trade()
    ring.idle(12)
    (row,) = on_tape(ring).trades.all
    assert (int(row["id"]), int(row["price"]), int(row["quantity"])) == (1, 100, 5)
    assert int(row["time"]) == 10 * token, "the time of the trade's token"
    who = [number for number, site in ring.sites.items() for _ in site.of(PublishPrints)]
    (confirmed,) = ring.sites[1].of(TradesConfirmed)
    assert isinstance(confirmed, TradesConfirmed)
    assert who == [(confirmed.token - 1) % 4 + 1], "once, by the owner of that token"
    before = [site.arbiter.retained for site in ring.sites.values()]
    ring.idle(20)
    assert [site.arbiter.retained for site in ring.sites.values()] == before, "nothing is owed any more"


@pytest.mark.parametrize("window", range(14))
def test_whoever_is_lost_at_whatever_token_each_trade_is_printed_once(window: int) -> None:
    """The owner of the confirming token is lost in every window, with what waits in its outbox, and comes back."""
    for lost in (1, 2, 3, 4):
        ring = Ring()
        ring.issue(OPEN)
        ring.trade()
        ring.idle(window)
        ring.crash(lost)
        ring.reform(*[site for site in (1, 2, 3, 4) if site != lost])
        ring.trade(3)
        ring.idle(14)
        assert sorted(set(numbers(ring))) == [1, 2]
        assert len(numbers(ring)) == 2
        assert ring.customer.confirmed == 2


def test_a_print_that_two_sources_took_counts_once() -> None:
    ring = Ring()
    ring.issue(OPEN)
    ring.trade()
    ring.idle(12)
    (again,) = [one for event in ring.log for one in event.messages if one.topic == tape_topic(CODE)]
    ring.issue(foreign=[(again.topic, again.payload, None)])
    tape = on_tape(ring)
    assert len(tape.trades) == 1
    assert tape.faults.counts == {TapeFault.DUPLICATE_TRADE: 1}


def test_a_cut_takes_no_print_away_for_good() -> None:
    """The token with the print is cut off after its release: the next owner prints again, under the same key."""
    ring = Ring()
    ring.issue(OPEN)
    ring.trade()
    while not numbers(ring):
        ring.issue()
    last, keys = ring.token - 1, said(ring)
    for site in ring.sites.values():
        site.arbiter.step(Truncated(last))
        site.keys.clear()
        site.journal = [event for event in site.journal if event.token <= last]
    del ring.log[last:]
    ring.token = last
    assert not numbers(ring)
    ring.idle(10)
    assert set(numbers(ring)) == {1}
    assert said(ring) == keys


def test_a_restart_from_any_snapshot_prints_nothing_twice_and_loses_nothing() -> None:
    for window in range(12):
        ring = Ring()
        ring.issue(OPEN)
        ring.trade()
        ring.idle(window)
        for number in ring.universe:
            ring.restart(number)
        ring.trade(3)
        ring.idle(14)
        assert set(numbers(ring)) == {1, 2}, window
        assert len(on_tape(ring).trades) == 2


def test_a_lie_on_the_tape_does_not_stand_for_the_print() -> None:
    ring = Ring()
    ring.issue(OPEN)
    token = ring.trade()
    false = prints(CODE, 10 * token, [Trade(1, SYMBOL, 99, 5, 2, 1)])
    ring.issue(foreign=[(tape_topic(CODE), false.tobytes(), None)])
    ring.idle(12)
    assert any(site.of(PublishPrints) for site in ring.sites.values())


def test_events_say_condition_time_and_full_name() -> None:
    trades = [
        Trade(7, SYMBOL, 100, 5, 1, 2, is_auction=True),
        Trade(8, LONG, 200, 6, 3, 4, is_off_book=True),
        Trade(9, SYMBOL, 300, 1 << 32, 5, 6),
        Trade(10, SYMBOL, 400, (1 << 32) - 1, 5, 6),
    ]
    events = prints(CODE, 77, trades)
    tape = Tape()
    tape.take(events)
    tape.names.take(events)
    found = events[events["kind"] == EventKind.TRADE]
    assert found["id"].tolist() == [7, 8, 10], "a record has no room for more than 32 bits of quantity"
    assert found["flags"].tolist() == [EventFlag.AUCTION, EventFlag.NOT_LAST | EventFlag.NOT_HIGH_LOW, 0]
    assert set(events["time"].tolist()) == {77}
    assert [one.name for one in tape.names] == [LONG]
    assert not tape.faults.counts


def test_trades_of_lots_and_offers_are_off_the_book() -> None:
    floor = Floor()
    floor.step(1, 1, [Directory(SYMBOL, phase=Phase.OPEN)])
    lot = Lot(1, 1, SYMBOL, AuctionKind.DUTCH, 5, 1, start=9, step=1)
    offer = Order(2, 2, SYMBOL, Side.SELL, 5, 7, is_offer=True)
    told = floor.step(2, 2, [lot, offer, Bid(3, 3, 1, 5, 9), Take(4, 4, 2, 5), Order(5, 5, SYMBOL, Side.SELL, 1, 8)])
    told += floor.step(3, 3, [Order(6, 6, SYMBOL, Side.BUY, 1, 8), Status(None, Phase.CLOSED)])
    trades = [one for one in told if isinstance(one, Trade)]
    assert [one.is_off_book for one in trades] == [True, True, False]
    report = FloorReport(2, bytes(32), 0, tuple(trades))
    assert decode_report(encode_report(report)) == report


def test_keys_are_of_the_floor_and_its_trades_alone() -> None:
    trades = [Trade(number, SYMBOL, 1, 1, 1, 2) for number in (1, 2, 3)]
    keys = {print_key(code, trades[:count]) for code in (CODE, "XXXX") for count in (1, 2, 3)}
    assert len(keys) == 6
    assert len(printed("YYYY", prints(CODE, 1, trades).tobytes())) == 0
    assert len(printed(CODE, b"XISO")) == 0
    assert np.array_equal(printed(CODE, prints(CODE, 1, trades).tobytes()), prints(CODE, 1, trades))


@pytest.mark.parametrize(
    "order", [[1, 2, 3, 4, 5], [5, 4, 3, 2, 1], [9, 3, 5, 4, 1, 2, 8, 7, 6], [1, 1, 2, 1, 2, 3, 3]]
)
def test_a_reader_knows_the_first_print_of_each_trade_in_whatever_order_they_come(order: list[int]) -> None:
    firsts, seen = FirstPrints([CODE]), set()
    for number in order * 2:
        events = prints(CODE, 1, [Trade(number, SYMBOL, 1, 1, 1, 2)])
        assert len(firsts.first(events)) == (number not in seen)
        seen.add(number)
    assert [len(run) for run in firsts._runs[CODE.encode()]] == [1, 1], "what has no hole is one run"  # noqa: SLF001
    others = prints("XXXX", 1, [Trade(1, SYMBOL, 1, 1, 1, 2)])
    assert firsts.first(others) is others


def test_a_correction_counts_once_on_the_tape_and_for_readers() -> None:
    trade = Trade(1, SYMBOL, 100, 60, 1, 2)
    first = Correction(trade, 1, 90, 50, 1 << 62)
    void = Correction(first.corrected, 2, 0, 0, 1 << 62)
    firsts, tape = FirstPrints([CODE]), Tape()
    standing = []
    for events in (
        prints(CODE, 1, [trade]),
        amends(CODE, 2, [first]),
        amends(CODE, 2, [first]),
        amends(CODE, 3, [void]),
        amends(CODE, 3, [void]),
    ):
        tape.take(firsts.first(events))
        (row,) = tape.trades.all
        standing.append((int(row["price"]), int(row["quantity"]), bool(row["state"] & TradeState.CANCELLED)))
    assert standing == [(100, 60, False), (90, 50, False), (90, 50, False), (90, 50, True), (90, 50, True)]
    assert not any(tape.faults.counts.values())


def test_prints_and_corrections_of_a_floor_are_told_from_everything_else() -> None:
    """By the code where it belongs, and the kind: other bytes may have the same letters."""
    trade = Trade(7, "ISO", 100, 60, 1, 2)
    right, void = Correction(trade, 1, 90, 50, 0), Correction(trade, 1, 0, 0, 0)
    own = [prints(CODE, 1, [trade]), amends(CODE, 2, [right]), amends(CODE, 2, [void])]
    assert all(is_on_tape(CODE, events.tobytes()) for events in own)
    quote = own[0].copy()
    quote["kind"] = EventKind.QUOTE
    elsewhere = prints("XLON", 1, [trade])
    elsewhere["symbol"] = CODE.encode()
    others = [quote.tobytes(), elsewhere.tobytes(), CODE.encode(), b""]
    assert not any(is_on_tape(CODE, payload) for payload in others)
