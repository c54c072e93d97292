"""`[edge]` of a market file: off unless there is a plan; groups of their own for every receiver and stripe."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.runtime.edge.narrow.edge_worlds import edge_market
from tests.runtime.market.markets import fault_of, market_of

from isocast.runtime.market.key_files import REPAIR, init_keys, key_names, load_keys, load_repair_key, needed_by
from isocast.runtime.market.model import EdgeTable
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import MILLISECOND, SECOND


def edge_of(changes: dict[str, object]) -> EdgeTable:
    edge = market_of({"edge.plan": "p.toml", **changes}).edge
    assert edge is not None
    return edge


def test_without_a_plan_there_is_no_edge() -> None:
    assert market_of().edge is None
    assert market_of({"edge.port": 5_000}).edge is None


def test_what_is_left_out_has_its_default() -> None:
    edge = edge_of({"edge.delay": "5ms", "edge.zone": "America/New_York"})
    assert (edge.plan, edge.plans) == (Path("p.toml"), Path("plans"))
    assert (edge.delay_ns, edge.introduce_ns, edge.patience) == (5 * MILLISECOND, 60 * SECOND, 4)
    assert (edge.requests, edge.zone) == (False, "America/New_York")


@pytest.mark.parametrize(
    "changes, key, rule",
    [
        ({"edge.groups": "10.0.0.1"}, "edge.groups", "must be a multicast group, from 224.0.1.0"),
        ({"edge.repairs": "10.0.0.1"}, "edge.repairs", "must be a multicast group, from 224.0.1.0"),
        ({"edge.zone": "Atlantis"}, "edge.zone", "no time zone"),
        ({"edge.span": 1}, "edge.span", "must be from 2"),
        ({"network.mode": "fanout"}, "edge.plan", "narrow stripes are multicast"),
        ({"edge.portt": 1}, "edge.portt", "unknown key"),
    ],
)
def test_faults_are_named(changes: dict[str, object], key: str, rule: str) -> None:
    found, text = fault_of({"edge.plan": "p.toml", **changes})
    assert found == key
    assert rule in text


def test_groups_of_all_receivers_and_stripes_differ() -> None:
    edge = edge_of({"edge.span": 16})
    groups = [edge.group(site, stripe) for site in range(1, 9) for stripe in range(1, 16)]
    groups += [edge.repair_group(server, stripe) for server in range(1, 9) for stripe in range(1, 16)]
    assert len(set(groups)) == len(groups)
    assert edge.group(1, 1) == "239.192.0.17"
    for stripe in (0, 16):
        with pytest.raises(ConfigurationError, match=r"edge\.span: is 16"):
            edge.group(1, stripe)
    with pytest.raises(ConfigurationError, match="has no room"):
        edge_of({"edge.groups": "239.255.255.0"}).group(1, 1)


def test_repairs_have_a_key_of_their_own_that_receivers_and_customers_need_not_have(tmp_path: Path) -> None:
    market = edge_market(tmp_path)
    assert REPAIR in key_names(market)
    assert [plan.name for plan in market.nodes if REPAIR in needed_by(market, plan)] == ["archive"]
    init_keys(market)
    keys = load_keys(market, market.node("archive"))
    assert load_repair_key(market) != keys.edge
    assert REPAIR not in key_names(market_of())
