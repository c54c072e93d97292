"""A plan file that somebody edited: named by file, key and rule, never a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.reformation.scopes.independent import places

from isocast.reformation.scopes.adjustment import adjust, plan_scopes
from isocast.reformation.scopes.plan import Plan
from isocast.reformation.scopes.world import CoverageWorld, Surface
from isocast.terms.errors import ConfigurationError

WORLD = CoverageWorld(
    Surface.PLANE, places("r", [(0.0, 0.0), (9.0, 0.0), (5.0, 5.0)]), places("c", [(1.0, 0.0), (8.0, 0.0)])
)


def plan_json() -> dict[str, Any]:
    plan = adjust(plan_scopes(WORLD, 3), WORLD.without(("r0",)), 9)
    assert plan.draining
    value: dict[str, Any] = json.loads(json.dumps(plan.to_json()))
    return value


def test_it_comes_back_as_it_was() -> None:
    value = plan_json()
    assert Plan.from_json(value).to_json() == value


def test_it_names_the_groups() -> None:
    value = plan_json()
    assert {scope["group"] for scope in value["scopes"]} <= {"239.192.0.0", "239.192.0.1", "239.192.0.2", None}


@pytest.mark.parametrize(
    "spoil, key, rule",
    [
        (lambda value: value.update(version=2), "plan version", "must be 1, not 2"),
        (lambda value: value.update(surface="moon"), "plan surface", "earth, plane"),
        (lambda value: value.update(lines=0), "plan lines", "from 1"),
        (lambda value: value.update(first="home"), "plan first", "IPv4"),
        (lambda value: value.update(scopes={}), "plan scopes", "list"),
        (lambda value: value.update(scopes=[7]), "scopes 1", "object"),
        (lambda value: value["scopes"].append(value["scopes"][0]), "plan scopes", "twice"),
        (lambda value: value["scopes"][0].update(radius_km=-1), "scopes 1 radius_km", "0 or more"),
        (lambda value: value["scopes"][0].update(radius_km=float("nan")), "scopes 1 radius_km", "0 or more"),
        (lambda value: value["scopes"][0].update(place=[1]), "scopes 1 place", "two numbers"),
        (lambda value: value["scopes"][0].update(place=["a", "b"]), "scopes 1 place", "two numbers"),
        (lambda value: value["scopes"][0].update(address=None, radius_km=4), "scopes 1 address", "silent"),
        (lambda value: value["scopes"][0].update(address=True, radius_km=4), "scopes 1 address", "whole number"),
        (lambda value: value["scopes"][0].update(radios=4), "scopes 1 radios", 'did you mean "radius_km"?'),
        (lambda value: value["scopes"][0].update(receiver=""), "scopes 1 receiver", "name"),
        (lambda value: value["draining"][0].pop("free_at_ns"), "draining 1 free_at_ns", "whole number"),
    ],
)
def test_what_is_wrong_is_named(spoil: Callable[[dict[str, Any]], object], key: str, rule: str) -> None:
    value = plan_json()
    spoil(value)
    with pytest.raises(ConfigurationError) as caught:
        Plan.from_json(value, "plan.json")
    assert (caught.value.file, caught.value.key) == ("plan.json", key)
    assert rule in caught.value.rule


def test_it_must_be_an_object() -> None:
    with pytest.raises(ConfigurationError, match="must be an object"):
        Plan.from_json([])
