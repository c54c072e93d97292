"""A market as values: who is who, which groups, how far."""

from pathlib import Path

import pytest
from tests.runtime.market.markets import market_of

from isocast.ring.settings import OrderRule
from isocast.runtime.market.model import NodeRole
from isocast.terms.ids import other_id, server_id, source_id
from isocast.terms.topology import city, delay_ns
from isocast.wire.limits import MAX_PAYLOAD, STANDARD_PAYLOAD

MARKET = market_of()


def names(plans: object) -> list[str]:
    return [plan.name for plan in plans]  # type: ignore[attr-defined]


def test_every_kind_of_node_has_its_share_of_the_ids() -> None:
    ids = {plan.name: plan.node for plan in MARKET.nodes}
    assert ids == {
        "a": 1,
        "b": 2,
        "c": 3,
        "a2": 4,
        "floor": source_id(1, 0),
        "broker": source_id(2, 0),
        "x": server_id(1),
        "y": server_id(2),
        "archive": other_id(1),
        "bank": other_id(2),
    }


def test_the_universe_is_the_primary_receivers() -> None:
    assert MARKET.universe == (1, 2, 3)
    assert MARKET.servers == (server_id(1), server_id(2))
    assert names(MARKET.receivers) == ["a", "b", "c", "a2"]


def test_a_node_is_found_by_name_and_by_id_whatever_its_incarnation() -> None:
    assert MARKET.node("bank").role is NodeRole.CUSTOMER
    assert MARKET.name_of(source_id(1, 77)) == "floor"
    assert MARKET.name_of(server_id(2)) == "y"
    assert MARKET.name_of(99) == "99"
    assert MARKET.find(source_id(9, 1)) is None
    with pytest.raises(KeyError):
        MARKET.node("nobody")


def test_groups_follow_from_stripes_and_numbers() -> None:
    market = market_of({"ring.stripes": [0, 7], "network.lines": "239.1.0.255"})
    assert (market.data_group(0), market.control_group(0)) == ("239.255.77.0", "239.255.77.1")
    assert (market.data_group(7), market.control_group(7)) == ("239.255.77.14", "239.255.77.15")
    assert market.line_group("a") == "239.1.1.0"
    assert market.line_group("archive") == "239.255.79.1"


def test_who_sends_and_who_listens() -> None:
    assert names(MARKET.data_members()) == ["a", "b", "c", "a2"]
    assert names(MARKET.data_senders()) == ["floor"]
    assert names(MARKET.control_members()) == ["a", "b", "c", "a2", "floor", "x", "y"]
    assert names(MARKET.control_senders()) == ["a", "b", "c", "a2", "x", "y"]
    assert names(MARKET.line_listeners("b")) == ["archive", "bank"]
    assert names(MARKET.line_listeners("archive")) == ["bank"]
    assert names(MARKET.line_listeners("c")) == []


def test_a_source_publishes_in_its_stripe_only() -> None:
    market = market_of({"ring.stripes": [0, 1], "nodes.floor.stripes": [1], "nodes.broker.stripes": [1]})
    assert names(market.data_senders(0)) == []
    assert names(market.data_senders(1)) == ["floor.s1"]
    assert "floor" not in names(market.control_members(0))
    assert market.node("a").stripes == (0,)


def test_families() -> None:
    assert names(MARKET.children("a")) == ["a2"]
    assert names(MARKET.children("floor")) == ["broker"]
    assert (MARKET.layers, MARKET.node("a2").layer, MARKET.node("a").layer) == (2, 2, 1)


def test_the_ring_gets_the_settings_of_the_file() -> None:
    ring = {"order": "shuffle", "window": 9, "batch_max": 99, "release_rate": 5, "stripes": [3]}
    market = market_of({"ring": ring})
    settings = market.ring_settings(3)
    assert (settings.stripe, settings.order) == (3, OrderRule.SHUFFLE)
    assert (settings.window, settings.batch_max, settings.release_rate) == (9, 99, 5)
    assert settings.timing is market.timing
    assert settings.payload_max == STANDARD_PAYLOAD


@pytest.mark.parametrize(
    "mtu, payload, events", [(1500, STANDARD_PAYLOAD, 27), (9000, MAX_PAYLOAD, 183), (1600, 1468, 29)]
)
def test_payloads_are_as_large_as_the_mtu_allows(mtu: int, payload: int, events: int) -> None:
    market = market_of({"network.mtu": mtu})
    assert (market.payload_bytes, market.events_per_payload) == (payload, events)
    assert market.ring_settings().payload_max == payload


def test_delays_are_those_of_light_between_the_places() -> None:
    market = market_of({"nodes.a.city": "London", "nodes.b.city": "TYO", "timing.profile": "world"})
    london, tokyo = city("London"), city("Tokyo")
    assert london is not None
    assert tokyo is not None
    assert market.delay_ns("a", "b") == market.delay_ns("b", "a") == delay_ns(london, tokyo)
    assert market.delay_ns("a", "c") == 0, "a place that is not known"


def test_a_node_has_a_block_of_four_ports_and_a_directory() -> None:
    plan = MARKET.node("a")
    assert (plan.port, plan.control_port, plan.data_port, plan.line_port) == (7710, 7711, 7712, 7713)
    assert MARKET.directory_of("a") == Path("data/a")


def test_only_some_roles_have_a_door() -> None:
    doors = {plan.name for plan in MARKET.nodes if plan.tcp_port}
    assert doors == {"a", "b", "c", "a2", "floor", "broker", "archive"}
    assert all(plan.http_port == 7780 for plan in MARKET.nodes)
