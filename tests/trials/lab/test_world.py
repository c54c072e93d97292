"""The world of a lab as values."""

import json
from collections.abc import Mapping, Sequence

import pytest

from isocast.terms.errors import ConfigurationError
from isocast.terms.topology import City, city, delay_ns
from isocast.trials.lab.world import (
    LabWorld,
    LinkChange,
    LinkImpairment,
    WorldSettings,
    make_world,
    site_address,
    world_from_json,
)

CITIES: dict[str, City | str | None] = {
    "ny": "New York",
    "ldn": "LDN",
    "moon": City("Moon", "MUN", 0.0, 0.0),
    "nowhere": None,
}


def world(settings: WorldSettings | None = None) -> LabWorld:
    return make_world(CITIES, settings or WorldSettings())


def test_sites_are_as_far_apart_as_light_in_fibre_takes() -> None:
    new_york, london = city("New York"), city("London")
    assert new_york is not None
    assert london is not None
    assert world().impairments[0, 1] == world().impairments[1, 0] == LinkImpairment(delay_ns(new_york, london))


def test_a_site_without_a_place_is_at_no_distance() -> None:
    assert world().impairments[0, 3].delay_ns == 0


def test_a_smaller_earth_has_the_same_jitter_and_loss() -> None:
    small = world(WorldSettings(scale=0.1, jitter_ns=5, loss=0.25)).impairments[0, 1]
    assert small.delay_ns == pytest.approx(world().impairments[0, 1].delay_ns / 10, abs=1)
    assert (small.jitter_ns, small.loss) == (5, 0.25)


def test_every_site_has_addresses_of_its_own() -> None:
    addresses = [address for site in world().sites for address in site.addresses]
    assert len(set(addresses)) == 4 * 8
    assert world().sites[1].addresses[2] == site_address(1, 3) == "10.77.2.3"


def test_it_survives_the_way_to_the_switch() -> None:
    there = world(WorldSettings(loss=0.5, seed=9, mtu=9000))
    assert world_from_json(json.loads(json.dumps(there.as_json()))) == there


def test_a_site_is_found_by_its_name_and_by_its_city() -> None:
    assert [world().place_of(name) for name in ("ldn", "London", "london")] == [1, 1, 1]


def test_a_stranger_is_told_what_there_is() -> None:
    with pytest.raises(ConfigurationError, match='unknown site; did you mean "ldn"'):
        world().place_of("lnd")
    with pytest.raises(ConfigurationError, match="there are ny, ldn, moon, nowhere"):
        world().place_of("Tokyo")


def test_a_link_has_two_directions_unless_told_otherwise() -> None:
    assert world().pairs("ny", "ldn") == [(0, 1), (1, 0)]
    assert world().pairs("ldn", "ny", one_way=True) == [(1, 0)]
    with pytest.raises(ConfigurationError, match="two different sites"):
        world().pairs("ldn", "London")


def test_a_change_leaves_what_it_does_not_name() -> None:
    before = world(WorldSettings(loss=0.1, jitter_ns=7))
    after = before.with_changes([LinkChange("ny", "ldn", delay_ns=5, one_way=True)])
    assert after.impairments[0, 1] == LinkImpairment(5, 7, 0.1)
    assert after.impairments[1, 0] == before.impairments[1, 0]


@pytest.mark.parametrize(
    "settings, key",
    [
        (WorldSettings(loss=1.5), "loss"),
        (WorldSettings(loss=-0.1), "loss"),
        (WorldSettings(loss=float("nan")), "loss"),
        (WorldSettings(jitter_ns=-1), "jitter"),
        (WorldSettings(jitter_ns=61 * 10**9), "jitter"),
        (WorldSettings(scale=-1.0), "scale"),
        (WorldSettings(scale=float("inf")), "scale"),
        (WorldSettings(mtu=100), "mtu"),
        (WorldSettings(mtu=10_000), "mtu"),
    ],
)
def test_a_setting_that_no_world_has_is_refused_by_name(settings: WorldSettings, key: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        make_world(CITIES, settings, file="mine")
    assert (refused.value.file, refused.value.key) == ("mine", key)


@pytest.mark.parametrize(
    "cities, addresses, rule",
    [
        ({}, None, "from 1 to 64 sites, not 0"),
        ({f"s{number}": None for number in range(65)}, None, "from 1 to 64 sites, not 65"),
        ({"../etc": None}, None, "a name begins with"),
        ({"a": "Lundon"}, None, 'unknown city "Lundon"; did you mean "London"'),
        ({"a": None}, {"a": ["10.0.0"]}, '"10.0.0" is not an IPv4 address'),
        ({"a": None}, {"a": ["239.1.1.1"]}, "no address of a host"),
        ({"a": None}, {"a": []}, "at least one address"),
        ({"a": None, "b": None}, {"a": ["10.0.0.1"], "b": ["10.0.0.1"]}, "already at a"),
    ],
)
def test_a_world_that_cannot_be_is_refused(
    cities: Mapping[str, str | None], addresses: Mapping[str, Sequence[str]] | None, rule: str
) -> None:
    with pytest.raises(ConfigurationError, match=rule):
        make_world(cities, WorldSettings(), addresses)
