"""What everyone is known to hold (§2.1, corrected; protocol §6)."""

from __future__ import annotations

import pytest
from tests.ring.makers import PERIOD, Chain, following, founding

from isocast.ring.release import groups_floor, possession_floor
from isocast.ring.settings import Schedule
from isocast.wire.packets import NO_LIMIT

TEN = Schedule(founding(*range(1, 11)), PERIOD)
SECOND = Schedule(following(Chain().grow(20)), PERIOD)


@pytest.mark.parametrize("token, floor", [(9, 0), (10, 1), (11, 2), (30, 21)])
def test_when_t_is_sent_every_member_holds_t_minus_m_plus_1(token: int, floor: int) -> None:
    """Protocol §11: m=10: 9 passes until all have."""
    assert possession_floor(token, TEN) == floor


def test_a_new_epoch_restarts_the_count() -> None:
    """Protocol §12, mistake 8: carrying stability across epochs."""
    assert [possession_floor(token, SECOND) for token in (21, 22, 23, 24)] == [0, 0, 21, 22]


THREE = Schedule(founding(), PERIOD)


def test_what_all_groups_hold_is_the_least_of_what_the_heads_report() -> None:
    """Protocol §7: global stability is the minimum over heads."""
    assert groups_floor({1: 7, 2: NO_LIMIT, 3: 5}, THREE) == 5
    assert groups_floor({1: NO_LIMIT, 2: NO_LIMIT, 3: NO_LIMIT}, THREE) == NO_LIMIT


def test_until_every_member_has_reported_nothing_is_known_of_the_groups() -> None:
    assert groups_floor({1: 7, 2: 9}, THREE) == 0
    assert groups_floor({}, THREE) == 0


def test_the_report_of_a_site_that_is_off_the_ring_counts_for_nothing() -> None:
    assert groups_floor({1: 7, 2: 9, 3: 8, 4: 2}, THREE) == 7
