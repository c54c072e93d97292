"""LOBSTER's message files."""

import numpy as np
import pytest

from isocast.feeds.lobster import LobsterDecoder, lobster_name
from isocast.feeds.outcomes import FeedFault, FeedLog
from isocast.terms.errors import FeedError
from isocast.terms.market import EventFlag, EventKind, MarketStatus, Mic, Side, Symbol
from isocast.wire.events import EVENT_DTYPE, EventArray

TEXT = """34200.004241176,1,16113575,18,5853300,1
34200.1,1,16113584,20,5859100,-1
34200.2,2,16113584,5,5859100,-1
34200.3,4,16113575,10,5853300,1
34200.4,5,0,7,5855000,-1
34200.5,3,16113584,15,5859100,-1
34200.6,6,-1,500,5856000,-1
34200.7,7,0,0,-1,-1
34200.8,7,0,0,0,-1
34200.9,7,0,0,1,-1
"""
MIDNIGHT = 1_340_251_200_000_000_000


def decode(text: str, *, strict: bool = False) -> tuple[EventArray, FeedLog]:
    log = FeedLog("l.csv", strict=strict)
    decoder = LobsterDecoder(Mic("XNAS"), Symbol("AAPL"), "2012-06-21", log)
    return np.concatenate([np.empty(0, EVENT_DTYPE), *decoder.blocks([text.encode()])]), log


def test_the_name_says_symbol_and_day() -> None:
    found = lobster_name("AAPL_2012-06-21_34200000_57600000_message_1.csv")
    assert found == (Symbol("AAPL"), "2012-06-21")
    assert lobster_name("AAPL_2012-06-21_34200000_57600000_orderbook_1.csv") is None


def test_every_type_becomes_its_event() -> None:
    events, log = decode(TEXT, strict=True)
    names = ["kind", "side", "flags", "price", "quantity", "reference", "id"]
    assert events[names].tolist() == [
        (EventKind.ORDER, Side.BUY, 0, 5_853_300, 18, 0, 16_113_575),
        (EventKind.ORDER, Side.SELL, 0, 5_859_100, 20, 0, 16_113_584),
        (EventKind.CANCEL, Side.NONE, 0, 0, 5, 0, 16_113_584),
        (EventKind.EXECUTION, Side.BUY, 0, 5_853_300, 10, 4, 16_113_575),
        (EventKind.TRADE, Side.SELL, 0, 5_855_000, 7, 0, 5),
        (EventKind.CANCEL, Side.NONE, 0, 0, 0, 0, 16_113_584),
        (EventKind.TRADE, Side.SELL, EventFlag.AUCTION, 5_856_000, 500, 0, 7),
        (EventKind.STATUS, Side.NONE, 0, 0, 0, MarketStatus.HALTED, 0),
        (EventKind.STATUS, Side.NONE, 0, 0, 0, MarketStatus.QUOTING, 0),
        (EventKind.STATUS, Side.NONE, 0, 0, 0, MarketStatus.TRADING, 0),
    ]
    assert events["time"][0] == MIDNIGHT + 34_200_004_241_176
    assert set(events["symbol"]) == {b"AAPL"}
    assert log.messages["visible execution"] == 1


@pytest.mark.parametrize(
    "row, kind",
    [
        ("34201,9,1,1,1,1", FeedFault.UNKNOWN_TYPE),
        ("34201,1,1,1,1", FeedFault.BAD_ROW),
        ("34201,1,x,1,1,1", FeedFault.BAD_ROW),
        ("34201,1,1,-5,1,1", FeedFault.BAD_ROW),
        ("34100,1,1,5,1,1", FeedFault.BACKWARD_TIME),
    ],
)
def test_what_is_wrong_is_named_with_its_byte(row: str, kind: FeedFault) -> None:
    events, log = decode(TEXT + row + "\n")
    assert len(events) == 10 + (kind is FeedFault.BACKWARD_TIME)
    assert log.faults[kind]["first_offset"] == len(TEXT)
    with pytest.raises(FeedError, match=f"byte {len(TEXT)}: {kind}"):
        decode(TEXT + row + "\n", strict=True)
