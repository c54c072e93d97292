"""A market's file as a lab."""

import tomllib
from dataclasses import replace

import pytest

from isocast.runtime.market.example import example_text
from isocast.runtime.market.file import market_from_mapping
from isocast.runtime.market.model import Impairment, Market
from isocast.terms.errors import ConfigurationError
from isocast.terms.topology import City, city, delay_ns
from isocast.trials.lab.world import WorldSettings
from isocast.trials.lab.world_file import market_settings, market_world, site_name


@pytest.fixture(scope="module")
def market() -> Market:
    found = market_from_mapping(tomllib.loads(example_text(loss=0.03, seed=5))).market
    assert found is not None
    return found


def command_of(name: str) -> tuple[str, ...]:
    return ("run", name)


def test_every_city_is_a_site_and_every_node_runs_in_its_own(market: Market) -> None:
    world, nodes = market_world(market, WorldSettings(), command_of)
    assert len(world.sites) == len({plan.place for plan in market.nodes})
    started = [plan for plan in market.nodes if plan.start]
    assert [node.name for node in nodes] == [plan.name for plan in started]
    assert {plan.address for plan in market.nodes} == {address for site in world.sites for address in site.addresses}
    for node, plan in zip(nodes, started, strict=True):
        site = world.sites[world.place_of(node.site)]
        assert site.place == plan.place
        assert plan.address in site.addresses
        assert node.command == ("run", plan.name)


def test_cities_are_as_far_apart_as_in_the_market(market: Market) -> None:
    world, _ = market_world(market, WorldSettings(), command_of)
    london, tokyo = city("London"), city("Tokyo")
    assert london is not None
    assert tokyo is not None
    pair = world.place_of("london"), world.place_of("Tokyo")
    assert world.impairments[pair].delay_ns == delay_ns(london, tokyo)


def test_what_is_not_said_comes_from_the_file(market: Market) -> None:
    settings = market_settings(market, loss=None, jitter_ns=None, seed=None, scale=1.0)
    assert (settings.loss, settings.seed, settings.mtu) == (0.03, 5, market.network.mtu)
    settings = market_settings(market, loss=0.0, jitter_ns=7, seed=9, scale=0.5)
    assert (settings.loss, settings.jitter_ns, settings.seed, settings.scale) == (0.0, 7, 9, 0.5)


def test_an_impairment_that_is_off_says_nothing(market: Market) -> None:
    off = replace(market, impairment=Impairment(enabled=False, loss=0.5, jitter_ns=3))
    settings = market_settings(off, loss=None, jitter_ns=None, seed=None, scale=1.0)
    assert (settings.loss, settings.jitter_ns) == (0.0, 0)


def test_nodes_without_a_place_are_near_everybody(market: Market) -> None:
    nodes = (market.nodes[0], replace(market.nodes[1], place=None))
    world, placed = market_world(replace(market, nodes=nodes), WorldSettings(), command_of)
    assert placed[1].site == "nowhere"
    assert world.impairments[0, 1].delay_ns == 0


def test_an_address_in_two_cities_is_refused_with_the_markets_file(market: Market) -> None:
    nodes = (market.nodes[0], replace(market.nodes[1], address=market.nodes[0].address, place=city("Lagos")))
    with pytest.raises(ConfigurationError, match="already at") as refused:
        market_world(replace(market, nodes=nodes), WorldSettings(), command_of)
    assert refused.value.file == market.file


def test_two_places_of_one_name_are_two_sites(market: Market) -> None:
    here, there = City("Paris", "PAR", 48.9, 2.4), City("Paris", "PRX", 33.7, -95.6)
    nodes = (replace(market.nodes[0], place=here), replace(market.nodes[1], place=there))
    _, placed = market_world(replace(market, nodes=nodes), WorldSettings(), command_of)
    assert [node.site for node in placed] == ["paris", "paris-2"]


def test_names_are_as_one_types_them() -> None:
    assert site_name(city("São Paulo")) == "sao-paulo"
    assert site_name(city("New York")) == "new-york"
    assert site_name(City("東京", "X", 0.0, 0.0)) == "site"
