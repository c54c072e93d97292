from typing import Any

import pytest

from isocast.runtime.market.file import market_from_mapping
from isocast.runtime.market.floors import FloorHours, FloorSymbol, FloorTable


def market_with(floor: object, **ring: object) -> dict[str, Any]:
    receivers = {name: {"role": "primary-receiver"} for name in ("a", "b", "c")}
    others = {"nyse": {"role": "primary-source"}, "x": {"role": "reformation-server"}}
    return {"nodes": receivers | others, "timing": {"profile": "lan"}, "floor": floor, "ring": ring}


def test_a_floor_has_its_symbols_and_their_rules() -> None:
    symbols = [{"symbol": "ISO", "reference": "10.05", "collar_bp": 500}, {"symbol": "CAST", "market": "batch"}]
    reading = market_from_mapping(market_with({"XISO": {"sources": ["nyse"], "symbols": symbols}}))
    assert reading.market is not None, reading.faults
    iso = FloorSymbol("ISO", 100, 1, "continuous", "resting", "cancel-newest", "time", 500, 0, 300_000_000_000, 100_500)
    cast = FloorSymbol("CAST", 100, 1, "batch", "resting", "cancel-newest", "time", 0, 0, 300_000_000_000, None)
    assert reading.market.floors == (FloorTable("XISO", "USD", ("nyse",), 0, 0, (iso, cast)),)


SYMBOLS = [{"symbol": "ISO"}]


def test_a_floor_says_its_sessions() -> None:
    floor = {"sources": ["nyse"], "opens": "08:00", "closes": "16:30:30", "zone": "Europe/London", "symbols": SYMBOLS}
    market = market_from_mapping(market_with({"XISO": floor | {"pre_open": "1h", "weekdays": [0, 5]}})).market
    assert market is not None
    second = 10**9
    hours = FloorHours("", 28_800 * second, 59_430 * second, "Europe/London", (0, 5), 3_600 * second, 300 * second)
    assert market.floors[0].hours == hours
    assert hours.has_sessions


def test_a_floor_says_who_may_speak_to_it() -> None:
    floor = {"sources": ["nyse"], "operators": ["nyse"], "gateways": {"nyse": 7}, "symbols": SYMBOLS}
    market = market_from_mapping(market_with({"XISO": floor})).market
    assert market is not None
    assert (market.floors[0].operators, market.floors[0].gateways) == (("nyse",), (("nyse", 7),))
    assert market.source_rights is not None
    assert market_from_mapping(market_with({})).market.source_rights is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "floor, key, rule",
    [
        (1, "floor", "must be tables, [floor.CODE], not 1"),
        ({"iso": {}}, "floor.iso", "must have a code of four capital letters or digits, such as [floor.XISO]"),
        ({"XISO": 1}, "floor.XISO", "must be a table, [floor.XISO], not 1"),
        ({"XISO": {"symbols": SYMBOLS}}, "floor.XISO.sources", "must be given: a list of names of nodes"),
        (
            {"XISO": {"sources": ["nysa"], "symbols": SYMBOLS}},
            "floor.XISO.sources",
            'nysa is no primary source of this market; did you mean "nyse"?',
        ),
        (
            {"XISO": {"sources": ["a"], "symbols": SYMBOLS}},
            "floor.XISO.sources",
            "a is no primary source of this market",
        ),
        (
            {"XISO": {"sources": ["nyse"], "opens": "8", "closes": "16:00", "symbols": SYMBOLS}},
            "floor.XISO.opens",
            'must be a time of the day such as 09:30, not "8"',
        ),
        (
            {"XISO": {"sources": ["nyse"], "opens": "08:00", "symbols": SYMBOLS}},
            "floor.XISO.closes",
            "must be given with opens, and be another time",
        ),
        (
            {"XISO": {"sources": ["nyse"], "opens": "08:00", "closes": "9:00", "symbols": SYMBOLS}},
            "floor.XISO.closes",
            'must be a time of the day such as 09:30, not "9:00"',
        ),
        (
            {"XISO": {"sources": ["nyse"], "zone": "Atlantis", "symbols": SYMBOLS}},
            "floor.XISO.zone",
            'must be a place such as Europe/London, not "Atlantis"',
        ),
        (
            {"XISO": {"sources": ["nyse"], "operators": ["a"], "symbols": SYMBOLS}},
            "floor.XISO.operators",
            "a is no primary source of this market",
        ),
        (
            {"XISO": {"sources": ["nyse"], "gateways": {"nysa": 1}, "symbols": SYMBOLS}},
            "floor.XISO.gateways.nysa",
            'is no primary source of this market; did you mean "nyse"?',
        ),
        (
            {"XISO": {"sources": ["nyse"], "gateways": {"nyse": 4096}, "symbols": SYMBOLS}},
            "floor.XISO.gateways.nyse",
            "must be a gateway's number, 0 to 4,095, not 4096",
        ),
        (
            {"XISO": {"sources": ["nyse"], "gateways": 1, "symbols": SYMBOLS}},
            "floor.XISO.gateways",
            "must be a table, [floor.XISO.gateways], not 1",
        ),
        (
            {"XISO": {"sources": ["nyse"], "currency": "usd", "symbols": SYMBOLS}},
            "floor.XISO.currency",
            'must be three capital letters, such as USD, not "usd"',
        ),
        (
            {"XISO": {"sources": ["nyse"]}},
            "floor.XISO.symbols",
            "nothing trades there: add a table [[floor.XISO.symbols]]",
        ),
        (
            {"XISO": {"sources": ["nyse"], "symbols": [{"symbol": "iso"}]}},
            "floor.XISO.symbols[1].symbol",
            'must be 1 to 12 capital letters, digits and .+-=/^, not "iso"',
        ),
        (
            {"XISO": {"sources": ["nyse"], "symbols": SYMBOLS * 2}},
            "floor.XISO.symbols[2].symbol",
            "ISO is there twice",
        ),
        (
            {"XISO": {"sources": ["nyse"], "symbols": [{"symbol": "ISO", "tick": "0"}]}},
            "floor.XISO.symbols[1].tick",
            'must be a decimal above 0 with at most four decimals, such as 0.01, not "0"',
        ),
        (
            {"XISO": {"sources": ["nyse"], "symbols": [{"symbol": "ISO", "reference": "1.005"}]}},
            "floor.XISO.symbols[1].reference",
            "must be whole ticks of 0.01",
        ),
    ],
)
def test_what_is_wrong_with_a_floor_is_named(floor: object, key: str, rule: str) -> None:
    faults = market_from_mapping(market_with(floor)).faults
    assert any((fault.key, fault.rule.split(" (")[0]) == (key, rule) for fault in faults), faults


def test_a_floor_needs_a_core_of_one_stripe() -> None:
    floor = {"XISO": {"sources": ["nyse"], "symbols": SYMBOLS}}
    faults = market_from_mapping(market_with(floor, stripes=[0, 1])).faults
    rule = "needs ring.stripes of one: the orders of a floor and its reports are one sequence"
    assert ("floor", rule) in [(fault.key, fault.rule) for fault in faults]
