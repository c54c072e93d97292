"""Sources whose windows size themselves, in whole worlds: more is offered than tokens take, or losses come and go."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.simulation.worlds import facts_of, run

from isocast.checks.facts import Submitted
from isocast.wire.packets import Data

BUSY = {"window": 4_096, "sources": 2, "arrival_rate": 3_000, "messages": 6_000}


def test_two_sources_that_offer_too_much_are_served_alike_and_send_little_twice() -> None:
    """Tokens take 100 messages of the 324 that come in a period: the ring grants each source its share."""
    found, facts = facts_of(batch_max=100, **BUSY)
    assert found.violations() == []
    assert found.recorder.rejected > 1_000
    accepted = Counter(fact.source for fact in facts if isinstance(fact, Submitted))
    shares = sorted(accepted.values())
    assert len(shares) == 2
    assert shares[1] <= 1.1 * shares[0]
    sent = found.recorder.sent[Data]
    assert sent <= 8 * sum(shares), "what waits behind a full token is not sent for ever"


@pytest.mark.parametrize("window", [1, 2, 64, 4_096])
def test_everything_comes_out_whatever_the_window_under_losses_and_a_crash(window: int) -> None:
    crash = {"kind": "crash", "at": 1.5, "sites": [2]}
    found = run(crash, loss=0.05, window=window, messages=400, arrival_rate=300)
    assert found.violations() == []
