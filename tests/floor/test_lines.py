"""The floor as a filter over JSON lines."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.floor.lines import FloorLines
from isocast.terms.errors import RemoteProtocolError

DIRECTORY = {"kind": "directory", "symbol": "X", "tick": 1, "lot": 1, "phase": "open"}
SELL = {"kind": "order", "id": 1, "account": 1, "symbol": "X", "side": "sell", "quantity": 100, "price": 1002}
COMMIT = {"kind": "commit", "id": 1, "account": 1, "lot": 2, "ceiling": 5}
BUY = {**SELL, "id": 2, "account": 2, "side": "buy", "quantity": 120, "price": 1005}


def told(*events: dict[str, Any]) -> list[dict[str, Any]]:
    floor = FloorLines()
    lines = [line for event in events for line in floor.read(json.dumps(event))]
    return [*lines, *floor.end()]


def test_a_case_prints_trades_as_they_happen_and_then_the_books() -> None:
    assert told({"kind": "case", "name": "one"}, DIRECTORY, {"kind": "token", "t": 1, "T": 5}, SELL, BUY) == [
        {"case": "one"},
        {"trade": 1, "symbol": "X", "price": 1002, "quantity": 100, "buy": 2, "sell": 1},
        {
            "book": {
                "symbols": {"X": {"phase": "open", "reference": 1002, "buy": [[2, 1005, 20]], "sell": [], "stops": []}},
                "lots": [],
                "offers": [],
            }
        },
    ]


def test_a_new_case_forgets_everything_after_the_books_of_the_last() -> None:
    lines = told({"kind": "case", "name": 1}, DIRECTORY, SELL, {"kind": "case", "name": 2})
    assert [list(line) for line in lines] == [["case"], ["book"], ["case"], ["book"]]
    assert lines[-1]["book"]["symbols"] == {}


def test_nothing_in_nothing_out() -> None:
    assert told() == []


def test_every_kind_of_line() -> None:
    lines = told(
        {**DIRECTORY, "phase": "pre-open"},
        {"kind": "token", "t": 1, "T": 0},
        {**BUY, "id": 3, "account": 3, "price": 0, "market": True},
        {**BUY, "id": 4, "account": 4, "trigger": 1003, "day": True},
        {**SELL, "id": 5, "account": 5, "open": True},
        {"kind": "take", "id": 6, "account": 6, "offer": 5, "quantity": 30},
        {"kind": "lot", "id": 7, "account": 7, "symbol": "X", "auction": "dutch", "quantity": 9, "reserve": 5}
        | {"start": 9, "step": 1},
        {"kind": "lot", "id": 8, "account": 8, "symbol": "X", "auction": "second-price", "quantity": 1}
        | {"reserve": 5, "T_close": 10, "window_ns": 10, "forfeit": 3},
        {"kind": "commit", "id": 9, "account": 9, "lot": 8, "ceiling": 20, "hash": "00" * 32},
        {"kind": "bid", "id": 10, "account": 10, "lot": 7, "quantity": 2, "ceiling": 9},
        {"kind": "cancel", "id": 3, "account": 3, "quantity": 20},
        {"kind": "replace", "id": 4, "account": 4, "quantity": 50},
        {"kind": "reveal", "id": 9, "account": 9, "price": 6, "nonce": "00" * 16},
        {"kind": "token", "t": 2, "T": 20},
        {"kind": "status", "symbol": "X", "phase": "closed"},
    )
    assert lines[:-1] == [
        {"trade": 1, "symbol": "X", "price": 1002, "quantity": 30, "buy": 6, "sell": 5},
        {"trade": 2, "symbol": "X", "price": 9, "quantity": 2, "buy": 10, "sell": 7},
        {"report": "cancelled", "id": 3, "detail": 20},
        {"report": "replaced", "id": 4, "detail": 50},
        {"report": "refused", "id": 9, "detail": "wrong phase"},
        {"report": "unsold", "id": 8, "detail": 1},
        {"report": "forfeit", "id": 9, "detail": 3},
        {"report": "expired", "id": 4, "detail": 50},
    ]
    assert lines[-1]["book"] == {
        "symbols": {"X": {"phase": "closed", "reference": None, "buy": [[3, None, 100]], "sell": [], "stops": []}},
        "lots": [[7, 7]],
        "offers": [[5, 70]],
    }


@pytest.mark.parametrize(
    "line, reason",
    [
        ("", "JSON"),
        ("[]", "JSON"),
        ("[" * 100_000, "JSON"),
        ('{"kind": "swap"}', "kind must be one of"),
        ('{"kind": ["order"]}', "kind must be one of"),
        ('{"kind": "case", "name": NaN}', "not a JSON object"),
        (json.dumps({**SELL, "side": "both"}), "side must be"),
        (json.dumps({**SELL, "quantity": 1.5}), "quantity must be"),
        (json.dumps({**SELL, "quantity": True}), "quantity must be"),
        (json.dumps({**SELL, "price": 1 << 63}), "price must be"),
        (json.dumps({**SELL, "account": 1 << 32}), "account must be"),
        (json.dumps({**SELL, "id": -1}), "id must be"),
        (json.dumps({**SELL, "symbol": ""}), "symbol must be"),
        (json.dumps({**SELL, "symbol": "\u00e9"}), "symbol must be"),
        (json.dumps({**SELL, "market": 1}), "market must be"),
        (json.dumps({**DIRECTORY, "lot": 0}), "lot must be"),
        (json.dumps({**DIRECTORY, "phase": "noon"}), "phase must be one of"),
        (json.dumps({**DIRECTORY, "phase": "pause"}), "phase must be one of"),
        ('{"kind": "status", "phase": "pause"}', "phase must be one of"),
        ('{"kind": "status", "phase": ["open"]}', "phase must be one of"),
        ('{"kind": "status"}', "phase must be one of"),
        ('{"kind": "reveal", "id": 1, "account": 1, "price": 1, "nonce": "xy"}', "nonce must be"),
        ('{"kind": "reveal", "id": 1, "account": 1, "price": 1, "nonce": "00"}', "nonce must be 32 hexadecimal digits"),
        (json.dumps({**COMMIT, "hash": "00"}), "hash must be 64 hexadecimal digits"),
        (json.dumps(COMMIT), "hash must be 64 hexadecimal digits"),
        (json.dumps({**DIRECTORY, "reference": 0}), "reference must be 1 or more"),
        ('{"kind": "token", "t": 1}', "T must be"),
    ],
)
def test_a_line_that_is_no_event_says_why_and_changes_nothing(line: str, reason: str) -> None:
    floor = FloorLines()
    with pytest.raises(RemoteProtocolError, match=reason):
        list(floor.read(line))
    assert list(floor.end()) == []


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 20),
    st.sampled_from((1 << 63, -(1 << 63), 1 << 64, 1.5, "", "X", "buy", "sell", "open", "dutch", "second-price", "00")),
    st.lists(st.integers(), max_size=2),
)
FIELDS = (
    *("id", "account", "owner", "symbol", "side", "quantity", "price", "trigger", "market", "immediate", "all", "open"),
    *("lot", "offer", "ceiling", "hash", "nonce", "reserve", "start", "step", "auction", "T_close", "t", "T", "phase"),
)
KINDS = ("case", "token", "directory", "status", "order", "cancel", "replace", "lot", "commit", "reveal", "bid", "take")


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(FIELDS), VALUES)), max_size=12))
def test_whatever_is_read_a_floor_goes_on(rows: list[tuple[str, dict[str, Any]]]) -> None:
    floor, count = FloorLines(), 0
    list(floor.read(json.dumps(DIRECTORY)))
    for kind, fields in rows:
        base = {"order": SELL, "directory": DIRECTORY}.get(kind, {"id": 1, "account": 1, "quantity": 1})
        try:
            list(floor.read(json.dumps({**base, **fields, "kind": kind})))
        except RemoteProtocolError:
            count += 1
    assert list(floor.end())
    assert count <= len(rows)


def test_a_field_that_may_be_left_out_may_be_null_and_one_that_no_event_has_is_ignored() -> None:
    plain = told(DIRECTORY, {"kind": "token", "t": 1, "T": 5}, SELL, BUY)
    names = ("owner", "trigger", "until", "at", "display", "deadline", "market", "immediate", "all", "day", "open")
    nulls = {**dict.fromkeys(names), "colour": "red"}
    rules = dict.fromkeys(("market", "price_rule", "own_rule", "share", "collar_bp", "band_bp", "reference"))
    assert told({**DIRECTORY, **rules}, {"kind": "token", "t": 1, "T": 5}, {**SELL, **nulls}, {**BUY, **nulls}) == plain
