"""What everyone is known to hold (§2.1, corrected; protocol §6)."""

from __future__ import annotations

import pytest
from tests.ring.makers import PERIOD, Chain, following, founding

from isocast.ring.schedule import Schedule
from isocast.ring.stability import knowledge_floor, possession_floor

TEN = Schedule(founding(*range(1, 11)), PERIOD)
SECOND = Schedule(following(Chain().grow(20)), PERIOD)


@pytest.mark.parametrize("token, floor", [(9, 0), (10, 1), (11, 2), (30, 21)])
def test_when_t_is_sent_every_member_holds_t_minus_m_plus_1(token: int, floor: int) -> None:
    """Protocol §11: m=10: 9 passes until all have."""
    assert possession_floor(token, TEN) == floor


@pytest.mark.parametrize("token, floor", [(18, 0), (19, 1), (30, 12)])
def test_every_member_knows_that_all_hold_t_minus_2m_plus_2(token: int, floor: int) -> None:
    """Protocol §0, correction 1: the paper prints t-m+2. §11: m=10: 18 passes until all know."""
    assert knowledge_floor(token, TEN) == floor


def test_a_new_epoch_restarts_the_count() -> None:
    """Protocol §12, mistake 8: carrying stability across epochs."""
    assert [possession_floor(token, SECOND) for token in (21, 22, 23, 24)] == [0, 0, 21, 22]
    assert [knowledge_floor(token, SECOND) for token in (24, 25)] == [0, 21]
