"""The file to start from: sound for any cities, and every key stands in it with its meaning."""

import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.runtime.market.example import EXAMPLE_CITIES, example_text
from isocast.runtime.market.file import Reading, market_from_mapping, read_market
from isocast.runtime.market.keys import SETTINGS
from isocast.runtime.market.model import NodeRole
from isocast.terms.errors import ConfigurationError
from isocast.terms.topology import CITIES


def reading(text: str) -> Reading:
    return market_from_mapping(tomllib.loads(text), "example.toml")


def test_it_is_sound_without_a_warning_and_has_every_role(tmp_path: Path) -> None:
    file = tmp_path / "market.toml"
    file.write_text(example_text(), encoding="utf-8")
    got = read_market(file)
    assert (got.faults, got.warnings) == ((), ())
    assert got.market is not None
    assert {plan.role for plan in got.market.nodes} == set(NodeRole)
    assert len(got.market.universe) == len(EXAMPLE_CITIES) >= 5
    assert len(got.market.servers) == 2
    assert {plan.grade for plan in got.market.by_role(NodeRole.CUSTOMER)} == {"complete", "latest"}
    assert got.market.on_loopback
    assert got.market.impairment.enabled
    assert got.market.layers == 2


def test_every_key_of_every_table_is_explained_in_it() -> None:
    text = example_text()
    for table in SETTINGS:
        for key in table.keys:
            assert re.search(rf"^#?{key.name} = ", text, flags=re.MULTILINE), key.name


def test_a_key_behind_a_hash_has_the_value_that_it_would_have_anyway() -> None:
    """Taking every such hash away changes nothing."""
    text = example_text()
    opened = re.sub(r"^#(\w+ = )", r"\1", text, flags=re.MULTILINE)
    assert opened.count("\n") == text.count("\n") != 0
    assert opened != text
    assert reading(opened).faults == ()
    assert reading(opened).market == reading(text).market


@given(st.lists(st.sampled_from([place.name for place in CITIES]), min_size=2, max_size=22, unique=True))
def test_it_is_sound_for_any_cities(cities: list[str]) -> None:
    got = reading(example_text(cities))
    assert got.faults == ()
    assert got.market is not None
    assert [plan.place.name for plan in got.market.nodes[: len(cities)] if plan.place] == cities


def test_near_cities_need_no_world() -> None:
    got = reading(example_text(["LDN", "PAR", "FRA"]))
    assert got.market is not None
    assert got.market.profile == "continent"


def test_loss_and_seed_are_passed_on() -> None:
    got = reading(example_text(loss=0.02, seed=9, name="mine"))
    assert got.market is not None
    assert (got.market.name, got.market.impairment.loss, got.market.impairment.seed) == ("mine", 0.02, 9)


@pytest.mark.parametrize(
    "cities, rule",
    [
        (["London"], "must be 2 to 22 cities, each with a primary receiver, not 1"),
        ([place.name for place in CITIES], "must be 2 to 22 cities, each with a primary receiver, not 24"),
        (["London", "Pari"], 'unknown city "Pari"; did you mean "Paris"?'),
        (["London", "LDN"], "London is named twice"),
    ],
)
def test_cities_that_make_no_ring(cities: list[str], rule: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        example_text(cities)
    assert (caught.value.file, caught.value.key, caught.value.rule) == ("command line", "--cities", rule)
