"""`isocast config check` on `[coverage]`: the plan with every receiver on the ring, and what is wrong with it."""

import pytest
from tests.runtime.market.markets import market_of
from tests.runtime.market.test_coverage_table import ON

from isocast.cli.config import coverage_as_json, coverage_text, show_coverage


def shown(market_changes: dict[str, object], capsys: pytest.CaptureFixture[str]) -> str:
    show_coverage(market_of(market_changes))
    return " ".join(capsys.readouterr().out.split())


def test_where_lines_are_not_planned_there_is_nothing_to_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown({}, capsys) == ""
    assert coverage_as_json(market_of()) == {"enabled": False}
    assert coverage_text(market_of()).startswith("off")


def test_the_plan_of_all_receivers_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    found = coverage_as_json(market_of(ON))
    (stripe,) = found["stripes"]
    lines = {one["name"]: one for one in stripe["lines"]}
    assert set(lines) == {"a", "b", "c", "a2"}
    assert sum(one["listeners"] for one in lines.values()) >= 4
    assert lines["c"] == {"name": "c", "group": None, "radius_km": 0.0, "ttl": None, "listeners": 0}
    assert stripe["short"] == []
    text = shown(ON, capsys)
    assert "Lines with every receiver on the ring" in text
    assert "c silent, in reserve – – 0" in text
    assert "2 lines; 256 groups from 239.224.1.0, drain 30s" in coverage_text(market_of(ON))


def test_customers_out_of_reach_and_a_pool_that_is_too_small_are_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    far = shown(ON | {"nodes.bank.city": "Tokyo", "coverage.delay_max": "10ms"}, capsys)
    assert "warning: coverage: bank hears 0:" in far
    small = shown(ON | {"coverage.addresses": 1}, capsys)
    assert "warning: coverage: the plan needs 2 addresses, and the pool has 1" in small
