"""A planet's file: what is left out is the paper's, and a mistake is named by file, key and rule."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.studies.planet.worlds import small

from isocast.cli.world_options import EXAMPLE
from isocast.reformation.scopes.plan import KM_PER_MILE
from isocast.studies.planet.settings import load_planet, planet_from_mapping, with_counts
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import MILLISECOND

ROOT = Path(__file__).parents[3]


def test_an_empty_file_is_the_paper_s_planet() -> None:
    world = planet_from_mapping({})
    assert (world.receivers.count, world.receivers.primaries) == (10_000, 100)
    assert world.customers.count == 10_000_000
    timing = world.core.timing
    assert (timing.retry_ns, timing.token_period_ns) == (800 * MILLISECOND, 2_775 * MILLISECOND)
    assert timing.secondary_retry_ns == 2 * timing.secondary_detect_ns + timing.process_ns
    assert timing.release_delay_ns == 2_775 * MILLISECOND + 375 * MILLISECOND + 3 * 800 * MILLISECOND
    assert world.edge.reach_km / KM_PER_MILE == pytest.approx(81.5, abs=0.1), "81.1 on the paper's land"


def test_the_planet_of_the_repository_and_the_example(tmp_path: Path) -> None:
    planet = load_planet(ROOT / "worlds" / "planet.toml")
    assert (planet.receivers.count, planet.customers.count) == (10_000, 10_000_000)
    assert planet.core.tree
    assert planet.core.timing.skew_bound_ns == 10 * MILLISECOND
    file = tmp_path / "example.toml"
    file.write_text(EXAMPLE, encoding="utf-8")
    assert load_planet(file).receivers.count == 400


@pytest.mark.parametrize(
    "mapping, key, rule",
    [
        ({"reciever": {}}, "reciever", "unknown table"),
        ({"receivers": {"cuont": 5}}, "receivers.cuont", 'did you mean "count"?'),
        ({"receivers": {"count": 10, "primaries": 11}}, "receivers.primaries", "must not be more than count, 10"),
        ({"receivers": {"count": 1}}, "receivers.count", "from 2 to 200,000"),
        ({"receivers": {"latitudes": [-62, -60]}}, "receivers.latitudes", "no land"),
        ({"customers": {"count": 0}}, "customers.count", "from 1"),
        ({"customers": {"cities": ["London"]}}, "customers.cities", 'means nothing with pattern = "land"'),
        ({"customers": {"pattern": "cities", "cities": ["Lodnon"]}}, "customers.cities", "unknown city"),
        ({"times": {"detect": 5}}, "times.detect", "a time with its unit"),
        ({"times": {"detect": "5ms", "clock_error": "5ms"}}, "times.detect", "at least 2·clock_error"),
        ({"times": {"retry": "10ms"}}, "times.retry", "2δ_N+X+P"),
        ({"times": {"token_period": "1s"}}, "times.token_period", "δ_N+2ε+k_r·τ_r"),
        ({"times": {"release_delay": "1s"}}, "times.release_delay", "at least"),
        ({"times": {"secondary_retry": "1ms"}}, "times.secondary_retry", "2δ_S+X+P"),
        ({"times": {"gate": "total"}}, "times.gate", 'must be one of "timed", "majority"'),
        ({"receivers": {"count": 9, "primaries": 9}, "times": {"secondary_detect": "1ms"}},
         "times.secondary_detect", "means nothing"),
        ({"core": {"loss": 1.0}}, "core.loss", "a probability"),
        ({"core": {"loss_model": "bush"}}, "core.loss_model", 'must be one of "independent", "tree"'),
        ({"core": {"branches": 101}}, "core.branches", "from 1 to 100"),
        ({"core": {"nack_sets": 100}}, "core.nack_sets", "at most primaries-1 = 99"),
        ({"edge": {"lines": 9}}, "edge.lines", "from 1 to 8"),
        ({"receivers": {"count": 2, "primaries": 2}, "edge": {"lines": 3}}, "edge.lines", "not be more than receivers"),
        ({"edge": {"reach": -1}}, "edge.reach", "from 0.1"),
        ({"edge": {"deadline": "soon"}}, "edge.deadline", "a time with its unit"),
        ({"seed": -1}, "seed", "from 0"),
        ({"core": 3}, "core", "must be a table"),
        ({"scopes": {}}, "file", "is a world of `isocast plan coverage`"),
    ],
)  # fmt: skip
def test_a_mistake_names_file_key_and_rule(mapping: dict[str, Any], key: str, rule: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        planet_from_mapping(mapping, "planet.toml")
    assert caught.value.file == "planet.toml"
    assert caught.value.key == key
    assert rule in caught.value.rule


@pytest.mark.parametrize(
    "data, rule",
    [(None, "cannot be read"), (b"\xff", "UTF-8"), (b"a = = 1", "not valid TOML"), (b"#" * 2**21, "longer")],
)
def test_a_file_that_is_none(data: bytes | None, rule: str, tmp_path: Path) -> None:
    file = tmp_path / "planet.toml"
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(ConfigurationError, match=rule):
        load_planet(file)


def test_other_counts_keep_the_shape() -> None:
    world = replace(planet_from_mapping({}), seed=3)
    fewer = with_counts(world, receivers=400, customers=7, tokens=9, seed=None)
    assert (fewer.receivers.count, fewer.receivers.primaries) == (400, 4)
    assert fewer.edge.reach_km == pytest.approx(5 * world.edge.reach_km)
    assert (fewer.core.reduction_sets, fewer.core.branches) == (3, 4)
    assert (fewer.customers.count, fewer.core.tokens, fewer.seed) == (7, 9, 3)
    assert with_counts(world, receivers=None, customers=None, tokens=None, seed=None) == world
    assert small().core.tokens == 12
