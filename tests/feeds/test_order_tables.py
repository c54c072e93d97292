"""Tables of orders by a mapping: sides, new numbers, prices of executions."""

from __future__ import annotations

import numpy as np
import pytest
from tests.feeds.test_tables import DAY, decode

from isocast.feeds.mappings import TableMapping, TimeForm, read_mapping
from isocast.feeds.outcomes import FeedFault
from isocast.terms.errors import ConfigurationError
from isocast.terms.market import EventFlag, EventKind, Mic, Side
from isocast.wire.events import EventArray

MAPPING = TableMapping(
    kind="order",
    time="time",
    time_form=TimeForm.MIDNIGHT_MS,
    symbol="symbol",
    kinds="what",
    id="order",
    new_id="new",
    side="side",
    price="price",
    execution_price="done_at",
    quantity="shares",
)
HEADER = "time,symbol,what,order,new,side,price,done_at,shares\n"
FIELDS = ("kind", "side", "flags", "price", "quantity", "id")


def rows(events: EventArray) -> list[tuple[object, ...]]:
    return [tuple(row) for row in events[list(FIELDS)].tolist()]


def read(text: str, mapping: TableMapping = MAPPING, header: str = HEADER) -> tuple[EventArray, dict[str, int]]:
    events, log = decode(mapping, header + text, strict=True, floor=Mic("XNYS"))
    return events, log.messages


def test_the_life_of_orders() -> None:
    events, counts = read(
        "1,IBM,order,7,,B,12.34,,100\n"
        "2,IBM,replace,7,,B,12.35,,90\n"
        "3,IBM,replace,7,8,B,12.36,,80\n"
        "4,IBM,execution,8,,B,12.36,12.30,10\n"
        "5,IBM,execution,8,,,12.36,,10\n"
        "6,IBM,cancel,8,,B,12.36,,5\n"
        "7,IBM,cancel,8,,,,,\n"
        "8,IBM,trade,9,,S,12.00,,1\n"
        "9,IBM,trade_cancel,9,,,,,\n"
    )
    assert rows(events) == [
        (EventKind.ORDER, Side.BUY, 0, 123_400, 100, 7),
        (EventKind.REPLACE, Side.BUY, 0, 123_500, 90, 7),
        (EventKind.CANCEL, Side.NONE, EventFlag.LINKED, 0, 0, 7),
        (EventKind.ORDER, Side.BUY, 0, 123_600, 80, 8),
        (EventKind.EXECUTION, Side.BUY, 0, 123_000, 10, 8),
        (EventKind.EXECUTION, Side.NONE, 0, 123_600, 10, 8),
        (EventKind.CANCEL, Side.NONE, 0, 0, 5, 8),
        (EventKind.CANCEL, Side.NONE, 0, 0, 0, 8),
        (EventKind.TRADE, Side.SELL, 0, 120_000, 1, 9),
        (EventKind.TRADE_CANCEL, Side.NONE, 0, 0, 0, 9),
    ]
    assert counts == {"order": 1, "cancel": 2, "replace": 2, "execution": 2, "trade": 1, "trade_cancel": 1}
    assert np.all(np.diff(events["time"].astype(np.int64)) >= 0)


def test_codes_of_the_table_itself() -> None:
    mapping = read_mapping(
        'kind = "order"\ntime = "time"\ntime_form = "midnight-ms"\nsymbol = "symbol"\nkinds = "what"\nid = "order"\n'
        'side = "side"\nprice = "price"\nquantity = "shares"\nside_codes = { "+" = "buy", "-" = "sell" }\n'
        'kind_codes = { N = "order", X = "cancel" }\n',
        "orders.toml",
    )
    events, _ = read("1,IBM,N,7,,-,12.34,,100\n2,IBM,X,7,,+,,,\n", mapping)
    assert rows(events) == [(EventKind.ORDER, Side.SELL, 0, 123_400, 100, 7), (EventKind.CANCEL, 0, 0, 0, 0, 7)]


@pytest.mark.parametrize("text, side", [("B", 1), ("sell", 2), ("Bid", 1), ("ASK", 2), ("1", 1), ("-1", 2)])
def test_usual_names_of_sides(text: str, side: int) -> None:
    events, _ = read(f"1,IBM,order,7,,{text},12.34,,100\n")
    assert events["side"].tolist() == [side]


@pytest.mark.parametrize(
    "row, what, example",
    [
        ("2,IBM,born,7,,B,1,,1", "what: not what the mapping says it is", "born"),
        ("2,IBM,order,7,,?,1,,1", "side: not what the mapping says it is", "?"),
        ("2,IBM,order,7,,,1,,1", "side: not what the mapping says it is", ""),
        ("2,IBM,order,7,,B,,,1", "price: not what the mapping says it is", ""),
        ("2,IBM,execution,7,,B,1,x,1", "done_at: not what the mapping says it is", "x"),
        ("2,IBM,execution,7,,B,,,1", "price: not what the mapping says it is", ""),
        ("2,IBM,replace,7,y,B,1,,1", "new: not what the mapping says it is", "y"),
        ("2,IBM,order,7,,B,1,,0", "shares: must be more than 0", "0"),
        ("2,IBM,order,7,,B,1,,", "shares: not what the mapping says it is", ""),
        ("2,IBM,order,z,,B,1,,1", "order: not what the mapping says it is", "z"),
    ],
)
def test_a_bad_row_is_named_by_line_byte_and_column(row: str, what: str, example: str) -> None:
    good = "1,IBM,order,7,,B,12.34,,100\n"
    events, log = decode(MAPPING, HEADER + good + row + "\n" + good, floor=Mic("XNYS"), day=DAY)
    assert len(events) == 2
    reason = log.reasons[FeedFault.BAD_ROW][what]
    assert (reason["count"], reason["first_row"], reason["example"]) == (1, 3, example)
    assert reason["first_offset"] == len(HEADER + good)


@pytest.mark.parametrize(
    "line, key, rule",
    [
        ('side = ""', "side", "a table of orders needs this column"),
        ('kind_codes = { N = "quote" }', "kind_codes.N", '"quote" is none of order, cancel'),
        ('side_codes = { B = "long" }', "side_codes.B", 'neither "buy" nor "sell"'),
    ],
)
def test_wrong_mappings_say_what_is_wrong(line: str, key: str, rule: str) -> None:
    base = 'kind = "order"\ntime = "t"\ntime_form = "iso"\nkinds = "k"\nid = "i"\nprice = "p"\nquantity = "q"\n'
    text = base + line if line.startswith("side =") else base + 'side = "s"\n' + line
    with pytest.raises(ConfigurationError) as caught:
        read_mapping(text, "m.toml")
    assert key in str(caught.value)
    assert rule in str(caught.value)


def test_trades_have_no_columns_of_orders() -> None:
    text = 'kind = "trade"\ntime = "t"\ntime_form = "iso"\nprice = "p"\nquantity = "q"\nnew_id = "n"\n'
    with pytest.raises(ConfigurationError, match='only a table of kind "order"'):
        read_mapping(text, "m.toml")


def test_a_block_without_a_good_row_has_no_events() -> None:
    events, log = decode(MAPPING, HEADER + "1,IBM,born,7,,B,1,,1\n", floor=Mic("XNYS"))
    assert not len(events)
    assert log.faults[FeedFault.BAD_ROW]["count"] == 1
