"""The large bounds: minutes each. `make soak` runs them."""

from __future__ import annotations

import pytest

from isocast.simulation.exploration.properties import FOUND_AT, Bounds
from isocast.simulation.exploration.verdict import explore

pytestmark = pytest.mark.soak

EVERYTHING = {
    "two racing ballots, two tokens, a log that is cut": Bounds(tokens=2, shorter_logs=1, more_votes=False),
    "two racing ballots over two tokens": Bounds(tokens=2, more_votes=False),
    "two racing ballots, any number of votes": Bounds(tokens=1),
    "two racing ballots and a restart": Bounds(tokens=1, restarts=1, more_votes=False),
    "two ballots of one server": Bounds(servers=1, tokens=1, ballots=2),
    "one ballot over three tokens": Bounds(servers=1, tokens=3),
    "a restart in any state": Bounds(servers=1, tokens=2, restarts=1),
    "a lost disk": Bounds(servers=1, tokens=1, lost_disks=1),
    "a shorter log": Bounds(servers=1, tokens=1, shorter_logs=1),
    "receivers that ask": Bounds(servers=1, tokens=1, requests=True),
    "receipts under way": Bounds(servers=1, tokens=1, eager=False, gathered_votes=False),
}
BEGINNING = {
    "messages under way": Bounds(servers=1, tokens=1, flying=True),
    "sources that send again": Bounds(servers=1, tokens=1, flying=True, sources=True),
    "servers that hear one another": Bounds(tokens=1, rivals=True, gathered_votes=False),
    "two racing ballots over three tokens, a log that is cut": Bounds(tokens=3, shorter_logs=1, more_votes=False),
    "two racing ballots, two tokens, a restart of every kind": Bounds(
        tokens=2, restarts=1, shorter_logs=1, lost_disks=1, more_votes=False
    ),
}
"""Too large to be sure of an end: as far as these states reach."""
STATES_MAX = 3_000_000


@pytest.mark.parametrize("bounds", EVERYTHING.values(), ids=list(EVERYTHING))
def test_the_full_rules_hold_in_every_state(bounds: Bounds) -> None:
    verdict = explore(bounds)
    assert verdict.found.broken is None, verdict.trace
    assert verdict.found.exhausted


@pytest.mark.parametrize("bounds", BEGINNING.values(), ids=list(BEGINNING))
def test_the_full_rules_hold_as_far_as_the_search_goes(bounds: Bounds) -> None:
    verdict = explore(bounds, states_max=STATES_MAX)
    assert verdict.found.broken is None, verdict.trace


def test_the_greatest_token_number_tells_two_stories() -> None:
    verdict = explore(FOUND_AT["greatest-held"], "greatest-held", stories_only=True)
    assert verdict.found.broken is not None
    assert len(verdict.found.trace) == 15
