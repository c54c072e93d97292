"""Who submits what, and when."""

from __future__ import annotations

from itertools import pairwise
from statistics import mean, pvariance
from typing import Any

import pytest
from tests.simulation.worlds import facts_of

from isocast.checks.facts import Submitted
from isocast.simulation.timed import PairCounter
from isocast.terms.ids import NO_EPOCH, source_id
from isocast.terms.instants import SECOND
from isocast.wire.packets import Data


def submissions(**keys: Any) -> list[Submitted]:  # noqa: ANN401 (values of a scenario file)
    _, facts = facts_of(**keys)
    return [fact for fact in facts if isinstance(fact, Submitted)]


def test_as_many_messages_as_the_scenario_says() -> None:
    assert len(submissions(messages=37)) == 37


def test_poisson_arrivals_have_exponential_gaps() -> None:
    found = submissions(messages=2_000, arrival_rate=200)
    gaps = [later.at - earlier.at for earlier, later in pairwise(found)]
    assert mean(gaps) == pytest.approx(SECOND / 200, rel=0.1)
    assert pvariance(gaps) ** 0.5 == pytest.approx(SECOND / 200, rel=0.15)


def test_sources_take_turns() -> None:
    assert [fact.source for fact in submissions()[:4]] == [source_id(1), source_id(2)] * 2


def test_a_burst_is_one_sources() -> None:
    found = submissions(burst=4)
    assert [fact.source for fact in found[:4]] == [source_id(1)] * 4
    assert len({fact.at for fact in found[:4]}) == 1


def pair(key: int) -> Data:
    return Data(0, NO_EPOCH, source_id(1), 1, 1, key.to_bytes(8))


def test_of_a_pair_the_first_in_the_sequence_wins() -> None:
    counter = PairCounter(("London", "Sydney"))
    for key in (1, 2, 4, 3, 5, 6):
        counter.sequenced(pair(key), 0)
    assert counter.wins == {"London": 2, "Sydney": 1}
    assert counter.shares() == {"London": pytest.approx(2 / 3), "Sydney": pytest.approx(1 / 3)}
