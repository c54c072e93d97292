"""Events as text: what is written can be read again, and what is wrong is named by line and column."""

import json
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.cli.event_rows import RowFault, RowFormat, RowReader, guess_format
from isocast.runtime.client.rows import FIELDS, fields_of
from isocast.terms.market import MAX_TICKS, EventFlag, EventKind, MarketStatus, Side
from isocast.wire.events import EVENT_DTYPE, EventArray

HEADER = "kind,floor,symbol,side,price,quantity,id,time_ns"
ROW = {"kind": "trade", "floor": "XNYS", "symbol": "IBM", "price": "143.2", "quantity": 100}


def read(form: RowFormat, *pieces: bytes) -> EventArray:
    reader = RowReader(form)
    found = [events for piece in pieces for events in reader.events(piece)]
    found += list(reader.end())
    return np.concatenate(found) if found else np.zeros(0, EVENT_DTYPE)


def fault_of(form: RowFormat, text: str) -> tuple[int, str, str]:
    with pytest.raises(RowFault) as caught:
        read(form, text.encode())
    return caught.value.line, caught.value.column, caught.value.rule


@st.composite
def arrays(draw: st.DrawFn) -> EventArray:
    """Any events that can be written."""
    letters = st.text("ABCXYZ019", min_size=1, max_size=8)
    rows = draw(
        st.lists(
            st.tuples(
                st.sampled_from(EventKind),
                st.sampled_from(Side),
                st.integers(0, 0xFFFF).map(lambda bits: bits & sum(EventFlag)),
                st.just("XNYS"),
                letters,
                st.integers(-MAX_TICKS, MAX_TICKS),
                st.integers(0, 2**32 - 1),
                st.sampled_from([0, 1, 5, 77]),
                st.integers(0, 2**63 - 1),
                st.integers(0, 2**64 - 1),
            ),
            min_size=1,
            max_size=5,
        )
    )
    return np.array(rows, EVENT_DTYPE)


@given(arrays(), st.integers(1, 400))
def test_json_lines_that_we_write_are_the_same_events_again(events: EventArray, cut: int) -> None:
    events["reference"][events["kind"] == EventKind.STATUS] = MarketStatus.HALTED
    text = "".join([json.dumps({"sequence": 7, **fields_of(event)}) + "\n" for event in events.tolist()]).encode()
    again = read(RowFormat.JSON, text[:cut], text[cut:])
    assert again.tobytes() == events.tobytes()


@given(arrays(), st.integers(1, 400))
def test_csv_too(events: EventArray, cut: int) -> None:
    events["reference"][events["kind"] == EventKind.STATUS] = MarketStatus.HALTED
    rows = [fields_of(event) for event in events.tolist()]
    lines = [",".join(FIELDS)]
    lines += [",".join(" ".join(v) if isinstance(v, list) else str(v) for v in row.values()) for row in rows]
    text = "\n".join(lines).encode()
    assert read(RowFormat.CSV, text[:cut], text[cut:]).tobytes() == events.tobytes()


@given(arrays(), st.integers(1, 200))
def test_records_as_they_are(events: EventArray, cut: int) -> None:
    raw = events.tobytes()
    assert read(RowFormat.RAW, raw[:cut], raw[cut:]).tobytes() == raw


def test_a_row_may_say_little_and_in_several_ways() -> None:
    (event,) = read(RowFormat.JSON, json.dumps({"kind": "trade", "floor": "XNYS"}).encode())
    assert event.tolist() == (1, 0, 0, b"XNYS", b"", 0, 0, 0, 0, 0)
    lines = [
        {**ROW, "kind": 1, "side": "B", "price": 143.2},
        {**ROW, "kind": "TRADE", "side": "buy", "price": "143.2000"},
        {**ROW, "kind": " trade ", "side": 1, "qty": 100, "flags": ""},
        {**ROW, "side": "buy", "flags": [], "time": 0},
    ]
    del lines[2]["quantity"]
    events = read(RowFormat.JSON, "\n".join(map(json.dumps, lines)).encode())
    assert len({event.tobytes() for event in events}) == 1
    assert events[0]["price"] == 1_432_000
    flags = [{**ROW, "flags": flags} for flags in (["linked", "auction"], "linked|auction", "auction, linked", 9)]
    assert set(read(RowFormat.JSON, "\n".join(map(json.dumps, flags)).encode())["flags"].tolist()) == {9}


@pytest.mark.parametrize(
    "text, nanoseconds",
    [
        ("1700000000000000001", 1_700_000_000_000_000_001),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000_000_000),
        ("2023-11-14T23:13:20.000001+01:00", 1_700_000_000_000_001_000),
        ("2023-11-14 22:13:20", 1_700_000_000_000_000_000),
    ],
)
def test_times(text: str, nanoseconds: int) -> None:
    (event,) = read(RowFormat.JSON, json.dumps({**ROW, "time": text}).encode())
    assert event["time"] == nanoseconds


@pytest.mark.parametrize(
    "changes, column, rule",
    [
        ({"kind": "trad"}, "kind", 'did you mean "trade"?'),
        ({"kind": 99}, "kind", "99 is not one of trade, quote"),
        ({"kind": None}, "kind", "must be given"),
        ({"floor": "NYSE!"}, "floor", "four capital letters or digits"),
        ({"floor": ""}, "floor", "must be given"),
        ({"symbol": "TOO LONG A NAME"}, "symbol", "1 to 8 printable"),
        ({"side": "long"}, "side", "is not one of none, buy, sell"),
        ({"price": "1.23456"}, "price", "price 1.23456 has more than 4 decimals"),
        ({"price": 10**15}, "price", "is too large: the limit is 922337203685477.5807"),
        ({"time": 1763532000}, "time", "1763532000 ns since 1970 is 1970-01-01T00:00:01.763: give a datetime"),
        ({"price": True}, "price", "is not a price"),
        ({"price": "NaN"}, "price", "is not a number that ticks can carry"),
        ({"quantity": -1}, "quantity", "-1 is not a whole number from 0 on"),
        ({"quantity": 2**32}, "quantity", "does not fit 32 bits"),
        ({"quantity": 1.5}, "quantity", "is not a whole number"),
        ({"id": 2**64}, "id", "does not fit 64 bits"),
        ({"flags": "linkd"}, "flags", 'did you mean "linked"?'),
        ({"flags": 128}, "flags", "bits that no flag has"),
        ({"time": "noon"}, "time_ns", "neither nanoseconds since 1970 nor ISO 8601"),
        ({"time": "1969-12-31T00:00:00Z"}, "time_ns", "before 1970"),
        ({"kind": "status", "reference": "openish"}, "reference", "is not one of closed, halted"),
        ({"prise": "1"}, "prise", 'unknown column; did you mean "price"?'),
    ],
)
def test_a_bad_value_is_named_by_line_and_column(changes: dict[str, object], column: str, rule: str) -> None:
    text = json.dumps(ROW) + "\n" + json.dumps({**ROW, **changes}) + "\n"
    line, found, said = fault_of(RowFormat.JSON, text)
    assert (line, found) == (2, column)
    assert rule in said


@pytest.mark.parametrize(
    "form, text, line, rule",
    [
        (RowFormat.JSON, "{}\n", 1, "must be given"),
        (RowFormat.JSON, "\n\nnot json", 3, "not JSON"),
        (RowFormat.JSON, "[1]\n", 1, "one JSON object"),
        (RowFormat.JSON, "[" * 100_000, 1, "more than 65536 bytes"),
        (RowFormat.JSON, '{"kind": ' + "[" * 60_000 + "\n", 1, "not JSON"),
        (RowFormat.CSV, "a,b\n", 1, "unknown column"),
        (RowFormat.CSV, "kind;floor;symbol\n", 1, "its columns are separated by ';': separate them by commas"),
        (RowFormat.CSV, "kind\tfloor\n", 1, "separate them by commas"),
        (RowFormat.CSV, "kind,symbol\n", 1, "with floor"),
        (RowFormat.CSV, "kind,floor,kind\n", 1, "occurs twice"),
        (RowFormat.CSV, "\nkind,floor\n", 1, "first line"),
        (RowFormat.CSV, "kind,floor\ntrade\n", 2, "1 cells under 2 columns"),
        (RowFormat.CSV, 'kind,floor\ntrade,"XN\n', 2, "not CSV"),
        (RowFormat.RAW, "x" * 48, 1, "this record is no event"),
        (RowFormat.RAW, "x" * 47, 1, "47 bytes are left over"),
    ],
)
def test_a_bad_row(form: RowFormat, text: str, line: int, rule: str) -> None:
    found, _, said = fault_of(form, text)
    assert found == line
    assert rule in said


def test_what_is_not_text_is_named() -> None:
    with pytest.raises(RowFault, match="line 1: is not UTF-8 text"):
        read(RowFormat.JSON, b"\xff\xfe{}\n")


def test_the_rows_in_front_of_a_bad_one_come_out_first() -> None:
    reader = RowReader(RowFormat.JSON)
    good = json.dumps(ROW)
    piece = f"{good}\n{good}\nbad\n{good}\n".encode()
    found = reader.events(piece)
    assert len(next(found)) == 2
    with pytest.raises(RowFault, match="line 3"):
        next(found)
    raw = RowReader(RowFormat.RAW)
    event = read(RowFormat.JSON, good.encode()).tobytes()
    found = raw.events(event * 2 + b"x" * 48 + event)
    assert len(next(found)) == 2
    with pytest.raises(RowFault, match="line 3"):
        next(found)


def test_a_list_with_an_object_on_each_line_will_do() -> None:
    """As `isocast journal cat --json` writes it."""
    good = json.dumps(ROW)
    assert len(read(RowFormat.JSON, f"[{good}\n,{good}\n]\n".encode())) == 2
    assert len(read(RowFormat.JSON, b"[]\n")) == 0
    assert len(read(RowFormat.JSON, f"\ufeff{good}\r\n".encode())) == 1


@pytest.mark.parametrize(
    "start, name, form",
    [
        (b'{"kind"', "", RowFormat.JSON),
        (b"\n  {", "", RowFormat.JSON),
        (b"[{", "x.csv", RowFormat.JSON),
        (b"kind,floor", "", RowFormat.CSV),
        (b"\x01\x00\x00\x00XNYS", "", RowFormat.RAW),
        (b"\tkind", "x.csv", RowFormat.CSV),
        (b"", "x.jsonl", RowFormat.JSON),
        (b"", "", RowFormat.CSV),
    ],
)
def test_the_format_shows_in_the_first_bytes(start: bytes, name: str, form: RowFormat) -> None:
    assert guess_format(start, name) is form


def test_prices_are_exact() -> None:
    (event,) = read(RowFormat.JSON, b'{"kind": "trade", "floor": "XNYS", "price": 0.1}')
    assert Decimal(int(event["price"])) == 1_000


@pytest.mark.parametrize("column", ["symbol", "price", "quantity"])
def test_an_empty_cell_is_refused_in_a_trade_and_nothing_in_a_quote(column: str) -> None:
    given = {"kind": "trade", "floor": "XLON", "symbol": "VOD", "price": "72.5", "quantity": "100"}
    cells = given | {column: ""}
    header = ",".join(cells)
    line, named, rule = fault_of(RowFormat.CSV, f"{header}\n{','.join(cells.values())}\n")
    assert (line, named) == (2, column)
    assert "is empty in a trade" in rule
    quote = ",".join((cells | {"kind": "quote"}).values())
    assert read(RowFormat.CSV, f"{header}\n{quote}\n".encode())[column].tolist() == [b"" if column == "symbol" else 0]
