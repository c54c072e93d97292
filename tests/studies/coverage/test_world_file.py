"""World files: what they say, and what is wrong with them by file, key and rule."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest

from isocast.reformation.scopes.world import CoverageWorld, Surface
from isocast.studies.coverage.world_file import load_world, world_from_mapping
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import MILLISECOND, SECOND

ROOT = Path(__file__).parents[3]
TWO = '[[receiver]]\ncity = "London"\n[[receiver]]\nname = "b"\nlatitude = 1\nlongitude = 2.5\n'


def world(text: str) -> CoverageWorld:
    return world_from_mapping(tomllib.loads(text), "w.toml").world


def test_listed_places_come_by_city_or_by_coordinates() -> None:
    got = world(TWO + '[[customer]]\ncity = "NYC"\n')
    assert got.receivers.names == ("London", "b")
    assert got.receivers.where.tolist() == [[51.5074, -0.1278], [1.0, 2.5]]
    assert got.customers.names == ("New York",)


def test_rules_paths_and_addresses_are_read() -> None:
    got = world(
        '[scopes]\nlines = 3\ndelay_max = "5ms"\nloss_max = 0.1\nradius_max = 900\nmargin = 2\nuniform = true\n'
        '[addresses]\nfirst = "239.1.2.0"\ncount = 12\nstripes = 4\ndrain = "90s"\ndrain_everywhere = true\n'
        '[paths]\nkm_per_ms = 100\nkm_per_hop = 10\nhop = "1ms"\nloss = 0.01\nloss_per_1000_km = 0.02\n' + TWO
    )
    rules, pool, paths = got.rules, got.pool, got.paths
    assert (rules.lines, rules.delay_max_ns, rules.loss_max, rules.radius_max_km) == (3, 5 * MILLISECOND, 0.1, 900)
    assert (rules.margin_km, rules.uniform) == (2, True)
    assert (str(pool.first), pool.usable, pool.drain_ns, pool.drain_everywhere) == ("239.1.2.0", 3, 90 * SECOND, True)
    assert (paths.km_per_ms, paths.km_per_hop, paths.hop_ns) == (100, 10, MILLISECOND)
    assert (paths.loss, paths.loss_per_1000_km) == (0.01, 0.02)


def test_links_are_read() -> None:
    (link,) = world(
        TWO + '[[customer]]\ncity = "Paris"\n[[link]]\nreceiver = "b"\ncustomer = "Paris"\ndelay = "7ms"\nloss = 0.5\n'
    ).links
    assert (link.receiver, link.customer, link.delay_ns, link.loss, link.cut) == (
        "b",
        "Paris",
        7 * MILLISECOND,
        0.5,
        False,
    )


def test_one_seed_decides_everything_and_customers_do_not_move_receivers() -> None:
    text = 'seed = {}\n[receivers]\ncount = 30\n[customers]\ncount = {}\npattern = "cities"\n'
    first, again = world(text.format(5, 40)), world(text.format(5, 40))
    other, more = world(text.format(6, 40)), world(text.format(5, 70))
    assert np.array_equal(first.receivers.where, again.receivers.where)
    assert np.array_equal(first.customers.where, again.customers.where)
    assert not np.array_equal(first.receivers.where, other.receivers.where)
    assert np.array_equal(first.receivers.where, more.receivers.where)


def test_a_plane_has_grids_and_keeps_customers_from_its_edges() -> None:
    got = world(
        'surface = "plane"\n[area]\nwidth = 300\nheight = 200\ninset = 50\n[receivers]\npattern = "hexagonal"\n'
        'spacing = 50\n[customers]\npattern = "random"\ncount = 200\n[[receiver]]\nname = "extra"\nx = 7\ny = 8\n'
    )
    assert got.surface is Surface.PLANE
    assert got.receivers.names[:2] == ("extra", "r001")
    assert got.customers.where.min() >= 50
    assert got.customers.where[:, 1].max() <= 150
    assert got.area_km2 == 60_000


def test_without_drawn_customers_the_ground_is_not_known() -> None:
    assert world(TWO).area_km2 == 0
    assert world(TWO + "[customers]\ncount = 3\n").area_km2 == pytest.approx(149e6, rel=0.01)


@pytest.mark.parametrize(
    "text, key, rule",
    [
        ("", "receivers", "there is none"),
        ("reciever = 1\n", "reciever", 'unknown key; did you mean "receiver"?'),
        ('surface = "earht"\n', "surface", 'did you mean "earth"?'),
        ("seed = -1\n", "seed", "from 0"),
        ("seed = true\n", "seed", "not true"),
        ("scopes = 3\n", "scopes", "must be a table, [scopes], not 3"),
        ("[scopes]\nline = 2\n", "scopes.line", 'did you mean "lines"?'),
        ("[scopes]\nlines = 9\n", "scopes.lines", "from 1 to 8, not 9"),
        ("[scopes]\ndelay_max = 20\n", "scopes.delay_max", 'such as "5ms" or "1.5s", in quotes, not 20'),
        ("[scopes]\nloss_max = 1\n", "scopes.loss_max", "less than 1"),
        ("[scopes]\nradius_max = 0\n", "scopes.radius_max", "more than 0"),
        ("[scopes]\nmargin = nan\n", "scopes.margin", "a number of km from 0"),
        ('[addresses]\nfirst = "10.0.0.1"\n', "addresses.first", "multicast group"),
        ('[addresses]\nfirst = "x"\n', "addresses.first", "must be a multicast group"),
        ('[addresses]\nfirst = "239.255.255.250"\ncount = 9\n', "addresses.count", "only 6 multicast groups"),
        ("[addresses]\ncount = 4\nstripes = 5\n", "addresses.stripes", "count, 4"),
        ("[paths]\nloss = 2\n", "paths.loss", "probability"),
        ("[paths]\nkm_per_ms = 0\n", "paths.km_per_ms", "more than 0"),
        ('[[receiver]]\ncity = "Lodnon"\n', "receiver[1].city", 'did you mean "London"?'),
        ('[[receiver]]\ncity = "Xyzzyx"\n', "receiver[1].city", "give latitude and longitude"),
        ('[[receiver]]\ncity = "London"\nlatitude = 1\n', "receiver[1].city", "either"),
        ('[[receiver]]\nname = "a"\nlatitude = 1\n', "receiver[1].longitude", "missing"),
        ('[[receiver]]\nname = "a"\nlatitude = 91\nlongitude = 0\n', "receiver[1].latitude", "from -90 to 90"),
        ('[[receiver]]\nname = " "\nlatitude = 9\nlongitude = 0\n', "receiver[1].name", "1 to 100 letters"),
        (TWO + TWO, "receiver", '"London" occurs twice'),
        ("[receivers]\ncount = 0\n", "receivers.count", "from 1"),
        ("[receivers]\n", "receivers.count", "must be given"),
        ('[receivers]\npattern = "hexagonal"\n', "receivers.pattern", '"land", "even", "cities"'),
        ("[receivers]\ncount = 5\nspread = 3\n", "receivers.spread", 'nothing with pattern = "land"'),
        ("[receivers]\ncount = 5\nlatitudes = [5, 1]\n", "receivers.latitudes", "lower first"),
        ("[receivers]\ncount = 5\nlatitudes = [-58, -57]\n", "receivers.latitudes", "no land"),
        ('surface = "plane"\n[receivers]\ncount = 5\n', "receivers.pattern", "[area]"),
        ("[area]\nwidth = 1\nheight = 1\n", "area", "plane"),
        ('surface = "plane"\n[area]\nwidth = 9\n', "area.height", "must be given"),
        ('surface = "plane"\n[area]\nwidth = 9\nheight = 9\ninset = 5\n', "area.inset", "middle"),
        (
            'surface = "plane"\n[area]\nwidth = 9e5\nheight = 9e5\n[receivers]\npattern = "square"\nspacing = 1\n',
            "receivers.spacing",
            "more than",
        ),
        (TWO + '[[link]]\nreceiver = "Lodon"\ncustomer = "x"\n', "link[1].receiver", 'did you mean "London"?'),
        (TWO + '[[link]]\nreceiver = "b"\ncustomer = "x"\n', "link[1].customer", "unknown customer"),
    ],
)
def test_what_is_wrong_is_named_by_file_key_and_rule(text: str, key: str, rule: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        world(text)
    assert (caught.value.file, caught.value.key) == ("w.toml", key)
    assert rule in caught.value.rule


@pytest.mark.parametrize("data, rule", [(b"\xff", "UTF-8"), (b"a = = 1", "not valid TOML"), (None, "cannot be read")])
def test_a_file_that_is_none_is_one_line(tmp_path: Path, data: bytes | None, rule: str) -> None:
    path = tmp_path / "w.toml"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(ConfigurationError, match=rule):
        load_world(path)


@pytest.mark.parametrize("name", ["cities", "hexagonal"])
def test_the_worlds_of_the_repository_are_valid(name: str) -> None:
    assert load_world(ROOT / "worlds" / f"{name}.toml").title
