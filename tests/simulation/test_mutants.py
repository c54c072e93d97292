"""Mutants: one rule switched off each, out of reach of any configuration."""

from __future__ import annotations

from dataclasses import fields

import pytest

from isocast.simulation.mutants import MUTANTS
from isocast.simulation.scenario_keys import KEYS_BY_NAME
from isocast.simulation.world import PRODUCT


def test_the_ten_mistakes_to_expect_are_covered() -> None:
    """Protocol §12."""
    assert {mutant.mistake for mutant in MUTANTS.values()} >= set(range(1, 11))


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_differs_from_the_product_and_says_which_rule_it_breaks(name: str) -> None:
    mutant = MUTANTS[name]
    assert mutant.name == name
    assert mutant.build != PRODUCT
    assert len(mutant.rule) > 20


def test_no_key_of_a_scenario_makes_a_mutant() -> None:
    assert not [key for key in KEYS_BY_NAME if "mutant" in key]


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_changes_no_more_than_one_role(name: str) -> None:
    build = MUTANTS[name].build
    changed = [field.name for field in fields(build) if getattr(build, field.name) != getattr(PRODUCT, field.name)]
    assert len(changed) == 1
