"""`[coverage]` of a market file: off unless asked for, and every fault names its key."""

import pytest
from tests.runtime.market.markets import faults_of, market_of

from isocast.reformation.scopes.adjustment import plan_scopes
from isocast.reformation.scopes.coverage import cover
from isocast.runtime.market.coverage_world import coverage_world
from isocast.runtime.market.model import CoverageTable, line_listeners, line_receivers
from isocast.terms.instants import MILLISECOND, SECOND

CITIES: dict[str, object] = {
    "nodes.a.city": "London",
    "nodes.b.city": "Frankfurt",
    "nodes.c.city": "New York",
    "nodes.a2.city": "Paris",
    "nodes.archive.city": "Zurich",
    "nodes.bank.city": "London",
}
ON: dict[str, object] = {"coverage.enabled": True, **CITIES}


def test_lines_are_not_planned_unless_the_file_says_so() -> None:
    assert not market_of().coverage.enabled


def test_the_table_is_read() -> None:
    table = market_of(
        ON
        | {
            "coverage.lines": 3,
            "coverage.delay_max": "20ms",
            "coverage.groups": "239.1.0.0",
            "coverage.addresses": 8,
            "coverage.drain": "5s",
            "coverage.drain_everywhere": True,
            "coverage.notices": "239.2.0.0",
            "coverage.km_per_hop": 100,
        }
    ).coverage
    assert table == CoverageTable(True, 3, 20 * MILLISECOND, "239.1.0.0", 8, 5 * SECOND, True, "239.2.0.0", 100)  # noqa: FBT003
    assert str(table.first_group(2)) == "239.1.0.16"
    assert table.notice_group(2) == "239.2.0.2"


def test_a_radius_makes_a_ttl() -> None:
    table = market_of().coverage
    assert table.km_per_hop == 250
    assert [table.ttl(metres) for metres in (1, 250_000, 250_001, 20_000_000, 4_000_000_000)] == [2, 2, 3, 81, 255]


@pytest.mark.parametrize(
    "changes, key, rule",
    [
        ({"nodes.bank.city": ""}, "nodes.bank.city", "must be given, since coverage.enabled plans lines by place"),
        ({"nodes.a.city": ""}, "nodes.a.city", "must be given, since coverage.enabled plans lines by place"),
        ({"coverage.lines": 5}, "coverage.lines", "must be at most 4, the number of receivers with a line, not 5"),
        ({"coverage.groups": "10.0.0.0"}, "coverage.groups", "10.0.0.0 to 10.0.0.255 are not all groups"),
        ({"coverage.notices": "224.0.0.5"}, "coverage.notices", "224.0.0.5 to 224.0.0.5 are not all groups"),
        ({"coverage.groups": "239.255.78.0"}, "coverage.groups", "has the group of the line of a: move one"),
        ({"coverage.notices": "239.255.77.1"}, "coverage.notices", "has the group of control of stripe 0: move one"),
        ({"coverage.notices": "239.224.1.9"}, "coverage.notices", "239.224.1.9 is a group of the pool"),
        ({"coverage.drain": "10ms"}, "coverage.drain", "1s"),
        ({"coverage.drian": "10s"}, "coverage.drian", "drain"),
    ],
)
def test_what_a_plan_cannot_do_with_is_a_fault(changes: dict[str, object], key: str, rule: str) -> None:
    faults = faults_of(ON | changes)
    assert [name for name, _ in faults] == [key]
    assert rule in faults[0][1]


def test_places_do_not_matter_where_lines_are_not_planned() -> None:
    assert market_of({"coverage.lines": 16}).coverage.lines == 16


def test_the_world_has_the_sites_of_the_ring_and_whoever_listens() -> None:
    market = market_of(ON)
    assert [plan.name for plan in line_receivers(market)] == ["a", "b", "c", "a2"]
    assert [plan.name for plan in line_listeners(market)] == ["archive", "bank"]
    world = coverage_world(market, 0, (market.node("a").node, market.node("c").node))
    assert world.receivers.names == ("1", "3", "4")
    assert world.customers.names == ("archive", "bank")
    assert not cover(world, plan_scopes(world)).short
