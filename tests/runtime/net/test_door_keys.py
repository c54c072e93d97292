"""Who may come in at which door, and by which key."""

from pathlib import Path

import pytest
from tests.runtime.worlds import LAYERED, market_file

from isocast.runtime.market.file import load_market
from isocast.runtime.market.key_files import load_keys, load_source_key
from isocast.runtime.market.model import Market
from isocast.runtime.net.door_keys import edge_door_key, edge_visited, edge_visitor, publish_door_key, publish_visitor
from isocast.security.keys import Purpose


@pytest.fixture
def market(tmp_path: Path) -> Market:
    return load_market(market_file(tmp_path, LAYERED))


def test_the_edge_comes_in_by_the_edge_key_each_node_by_its_own(market: Market) -> None:
    keys = load_keys(market, market.node("archive"))
    bank, fund = market.node("bank"), market.node("fund")
    assert edge_visitor(bank) == "edge/bank"
    assert edge_visited(market, "edge/bank") is bank
    at_server = edge_door_key(market, keys, "edge/bank")
    at_home = load_keys(market, bank)
    assert at_server == edge_door_key(market, at_home, "edge/bank")
    assert at_server is not None
    assert at_server != edge_door_key(market, keys, edge_visitor(fund))


@pytest.mark.parametrize("visitor", ["edge/floor", "edge/x", "edge/nobody", "bank", "source/bank", "", "edge/"])
def test_strangers_and_the_core_have_no_edge_key(market: Market, visitor: str) -> None:
    assert edge_door_key(market, load_keys(market, market.node("a")), visitor) is None


def test_a_node_without_the_edge_key_lets_nobody_in(market: Market) -> None:
    assert edge_door_key(market, load_keys(market, market.node("floor")), "edge/bank") is None


def test_a_floor_publishes_by_its_source_key_and_a_child_by_its_own(market: Market) -> None:
    floor, broker = market.node("floor"), market.node("broker")
    keys = load_keys(market, floor)
    expected = load_source_key(market, floor).derive(Purpose.DOOR, floor.node)
    assert publish_door_key(market, keys, publish_visitor(floor)) == expected
    assert publish_visitor(broker) == "source/broker"
    by_parent = publish_door_key(market, keys, "source/broker")
    assert by_parent == publish_door_key(market, load_keys(market, broker), "source/broker")
    assert by_parent not in (None, expected)


@pytest.mark.parametrize("visitor", ["source/a", "source/nobody", "edge/floor", "floor", "", "source/"])
def test_nobody_else_publishes(market: Market, visitor: str) -> None:
    assert publish_door_key(market, load_keys(market, market.node("floor")), visitor) is None


def test_a_source_does_not_let_its_parent_s_floor_in(market: Market) -> None:
    assert publish_door_key(market, load_keys(market, market.node("broker")), "source/floor") is None
