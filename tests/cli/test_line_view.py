"""`isocast ring status` and `top` on lines: group, scope, plan, who hears too few, what rests."""

from collections.abc import Mapping

import pytest
from rich.console import Console
from tests.runtime.market.markets import market_of
from tests.runtime.market.test_coverage_table import ON

from isocast.cli.ring import line_report, line_watchers, show_lines
from isocast.cli.top_view import frame
from isocast.runtime.watch.counters import NodeCounters, NodeGauges
from isocast.runtime.watch.line_gauges import DrainingGroup, LineGauges
from isocast.runtime.watch.metrics import METRICS, NodeIdentity, NodeReading
from isocast.runtime.watch.status import NodeStatus, StatusAnswer, Target, status_from_json

MARKET = market_of(ON)
REST = DrainingGroup("239.224.1.3", "b", 12.4)
PLANS: dict[str, LineGauges] = {
    "a": LineGauges("2.1/1", 2, "239.224.1.0", 640.25, 4, wanted=2, draining=(REST,)),
    "c": LineGauges("1.1/1", 1, None, 0.0, None, wanted=2),
    "a2": LineGauges("2.1/1", 2, wanted=2),
    "bank": LineGauges("2.1/1", 2, sources=("a",), wanted=2),
    "archive": LineGauges("2.1/1", 2, sources=("a", "a2"), wanted=2),
}


def answers(plans: Mapping[str, LineGauges]) -> dict[str, StatusAnswer]:
    return {
        name: StatusAnswer(
            Target("127.0.0.1", 1, name),
            NodeStatus(name, MARKET.node(name).role.value, 1, gauges=NodeGauges(line_plan=plan)),
        )
        for name, plan in plans.items()
    }


def test_a_market_that_plans_no_lines_has_nothing_to_tell() -> None:
    assert line_report(market_of(), {}) is None
    assert line_watchers(market_of()) == ()


def test_lines_listeners_and_what_rests_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    report = line_report(MARKET, answers(PLANS))
    assert report is not None
    assert report["version"] == "2.1/1"
    assert report["lines"][0] == {
        "name": "a",
        "version": "2.1/1",
        "group": "239.224.1.0",
        "radius_km": 640.25,
        "ttl": 4,
    }
    assert report["listeners"][1]["sources"] == ["a"]
    assert report["draining"] == [{"group": "239.224.1.3", "receiver": "b", "free_in_s": 12.4}]
    show_lines(report)
    shown = " ".join(capsys.readouterr().out.split())
    assert "a 239.224.1.0 640 km 4 2.1/1" in shown
    assert "b – – – –" in shown
    assert "c silent, in reserve – – 1.1/1" in shown
    assert "a2 not in the plan – – 2.1/1" in shown
    assert "bank London a (too few) 2.1/1" in shown
    assert "archive Zurich a, a2 2.1/1" in shown
    assert "239.224.1.3 b 12 s" in shown


def test_before_the_first_plan_this_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    report = line_report(MARKET, {})
    assert report is not None
    show_lines(report)
    assert "no plan yet" in capsys.readouterr().out


def test_a_status_page_carries_the_plan() -> None:
    status = NodeStatus("a", "primary-receiver", 1, gauges=NodeGauges(line_plan=PLANS["a"]))
    assert status_from_json(status.as_json()).gauges.line_plan == PLANS["a"]


def test_top_shows_the_lines(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(width=240, force_terminal=False)
    console.print(frame("test", list(answers(PLANS).values()), width=240))
    shown = capsys.readouterr().out
    assert "239.224.1.0 640 km" in shown
    assert "silent" in shown
    assert "1/2" in shown


def test_metrics_count_what_the_plan_says() -> None:
    identity = NodeIdentity("a", MARKET.node("a").role, 1)
    reading = NodeReading(identity, NodeCounters(out_of_reach=3), NodeGauges(line_plan=PLANS["a"]))
    found = {metric.name: metric.read(reading) for metric in METRICS}
    assert found["line_plan_epoch"] == 2
    assert found["line_scope_km"] == 640.25
    assert found["line_groups_draining"] == 1
    assert found["lines_planned"] == 0
    assert found["customers_short"] == 0
    assert found["out_of_reach_total"] == 3
