"""The floor's record: what any receiver's journal says, once, and nothing behind a gap."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.trials.demo.canned_trading import CannedTrading, seat_of, trading_market

from isocast.floor.events import Phase
from isocast.runtime.disk.journal_reader import read_blocks
from isocast.runtime.operate.floor_change import phase_change
from isocast.trials.demo.floor_record import FloorRecord
from isocast.trials.evidence import journal_of


@pytest.fixture
def trading(tmp_path: Path) -> Iterator[CannedTrading]:
    """London sold to New York and to Tokyo; both trades are final, and the floor is closed."""
    made = CannedTrading(trading_market(tmp_path))
    made.trade()
    made.sequence.confirm()
    made.sequence.say(*phase_change(made.market.floors[0], Phase.CLOSED))
    made.step()
    made.write()
    yield made
    made.close()


def test_two_journals_are_one_record(trading: CannedTrading) -> None:
    record = FloorRecord("XISO")
    london, tokyo = (list(read_blocks(journal_of(trading.market, name))) for name in ("london", "tokyo"))
    for ours, theirs in zip(london, tokyo, strict=True):
        record.take(ours)
        record.take(theirs)
    assert [life.trade.quantity for life in record.trades.values()] == [40, 60]
    assert all(life.is_confirmed for life in record.trades.values())
    assert (record.confirmed, record.differing, record.refused, record.resting) == (2, 0, 0, 0)
    assert set(record.orders.values()) == {1}
    assert {order >> 32 for order in record.orders} == {
        seat_of(city).account for city in ("London", "New York", "Tokyo")
    }
    assert not record.is_open
    assert record.last is not None
    assert record.last.number == 2


def test_what_is_behind_a_gap_waits_for_somebody_who_has_it(trading: CannedTrading) -> None:
    record = FloorRecord("XISO")
    blocks = list(read_blocks(journal_of(trading.market, "london")))
    for block in blocks[2:]:
        record.take(block)
    assert not record.symbols
    assert not record.trades
    for block in blocks:
        record.take(block)
    assert len(record.trades) == 2


def test_prices_are_those_of_the_last_token(trading: CannedTrading) -> None:
    record = FloorRecord("XISO")
    for block in list(read_blocks(journal_of(trading.market, "london")))[:2]:
        record.take(block)
    iso, *others = record.prices()
    assert (iso.symbol, iso.phase, iso.bid, iso.ask, iso.last) == ("ISO", Phase.OPEN, None, 1_000_000, None)
    assert [one.symbol for one in others] == ["CAST", "RING"]
    assert record.is_open
    assert record.resting == 1
