"""Senders and customers of narrow stripes in a simulated world."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.worlds import facts_of, scenario

from isocast.checks.facts import Released, StripeArchived, StripeDatagramSent, StripeDelivered, StripeLeftOut
from isocast.simulation.chaos import chaos
from isocast.simulation.layers import narrow_id, stripe_sender_id
from isocast.terms.errors import ConfigurationError

NARROW: dict[str, Any] = {"stripe_senders": 2, "narrow_customers": 2}
COMPLETE, NEWEST = narrow_id(1), narrow_id(2)


def numbers(facts: list[Any], node: int, stripe: int) -> list[int]:
    runs = [fact for fact in facts if isinstance(fact, StripeDelivered) and (fact.node, fact.stripe) == (node, stripe)]
    return [number for run in runs for number in range(run.first, run.first + len(run.messages))]


def made(facts: list[Any], stripe: int) -> int:
    """The highest number of a stripe."""
    packets = [fact for fact in facts if isinstance(fact, StripeArchived) and fact.stripe == stripe]
    return max([fact.number + len(fact.messages) - 1 for fact in packets], default=0)


def test_customers_of_narrow_stripes_get_each_number_once_in_order() -> None:
    world, facts = facts_of(**NARROW)
    for stripe in (1, 2, 3):
        assert made(facts, stripe) > 5
        assert numbers(facts, COMPLETE, stripe) == list(range(1, made(facts, stripe) + 1))
    assert world.violations() == []


def test_what_both_lines_lose_a_sender_gives_again() -> None:
    world, facts = facts_of(loss=0.3, messages=200, **NARROW)
    for stripe in (1, 2, 3):
        assert numbers(facts, COMPLETE, stripe) == list(range(1, made(facts, stripe) + 1))
    assert any(isinstance(fact, StripeLeftOut) and fact.node == NEWEST for fact in facts)
    assert world.violations() == []


def test_an_overfull_stripe_conflates_prices_and_nothing_else() -> None:
    world, facts = facts_of(stripe_bytes=200, messages=300, arrival_rate=100, **NARROW)
    sent = sum([len(fact.events or b"") // 48 for fact in facts if isinstance(fact, StripeArchived)])
    assert sent < 2 * 300
    assert world.violations() == []


@pytest.mark.parametrize("disk", ["kept", "lost"])
@pytest.mark.parametrize("node", ["sender1", "narrow1"])
def test_who_was_down_goes_on(node: str, disk: str) -> None:
    fault = {"kind": "crash", "at": 0.7, "until": 1.1, "sites": [node], "disk": disk}
    world, facts = facts_of(fault, **NARROW)
    for stripe in (1, 2, 3):
        assert sorted(dict.fromkeys(numbers(facts, COMPLETE, stripe))) == list(range(1, made(facts, stripe) + 1))
    assert world.violations() == []


def test_a_sender_that_comes_late_makes_the_same_numbers() -> None:
    late = {"kind": "crash", "at": 0, "until": 1.0, "sites": ["sender2"]}
    world, facts = facts_of(late, **NARROW)
    sent = [fact for fact in facts if isinstance(fact, StripeDatagramSent) and fact.node == stripe_sender_id(2)]
    assert any(fact.count for fact in sent)
    assert world.violations() == []


def test_narrow_stripes_change_nothing_for_the_ring() -> None:
    late = {"kind": "late", "at": 0.01, "until": 3.0, "late": 0.1, "by": 0.5}
    edge = {"archives": 1, "customers": 1}
    _, alone = facts_of(late, loss=0.05, jitter=0.001, **edge)
    _, watched = facts_of(late, loss=0.05, jitter=0.001, **edge, **NARROW)
    instants = [
        [(fact.at, fact.site, fact.first_sequence) for fact in facts if isinstance(fact, Released)]
        for facts in (alone, watched)
    ]
    assert instants[0] == instants[1]


def test_keys_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="stripe_senders"):
        scenario(narrow_customers=1)
    with pytest.raises(ConfigurationError, match="3 receivers"):
        scenario(stripe_senders=4)
    with pytest.raises(ConfigurationError, match="senders are 1 to 2"):
        scenario({"kind": "crash", "at": 1, "sites": ["sender3"]}, **NARROW)


def test_some_random_worlds_have_narrow_stripes_where_sites_must_agree() -> None:
    worlds = [world for world in map(chaos, range(1, 301)) if "stripe_senders" in world]
    assert 30 <= len(worlds) <= 70
    assert all(world["gate"] != "timed" and "policy" not in world for world in worlds)
