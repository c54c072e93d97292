"""The formulas against another derivation of them, and against the protocol page's numbers."""

from __future__ import annotations

import numpy as np
import pytest
from tests.paper import closed_forms as other

from isocast.studies.planet import closed_forms

CASES = [(10, 30, 0.02, 3), (100, 100, 0.01, 3), (5, 10, 0.05, 6), (3, 0, 0.3, 1)]


@pytest.mark.parametrize("m, k, p, retries", CASES)
def test_requests_repairs_and_false_reformations(m: int, k: int, p: float, retries: int) -> None:
    assert (m - 1) * closed_forms.nacks_of_one(k, p, retries) == pytest.approx(other.attempts(m, k, p, retries))
    assert (m - 1) * closed_forms.repairs_of_one(k, p) == pytest.approx(other.repairs(m, k, p))
    found = closed_forms.false_reformation(m - 1, k + 1, p, retries)
    assert found == pytest.approx(other.false_reformation(m, k, p, retries), rel=1e-6)


def test_the_numbers_of_the_page() -> None:
    assert 9 * closed_forms.nacks_of_one(30, 0.02, 3) == pytest.approx(4.39, rel=0.005)
    assert 9 * closed_forms.repairs_of_one(30, 0.02) == pytest.approx(5.69, rel=0.005)
    assert closed_forms.false_reformation(99, 101, 0.01, 3) == pytest.approx(7.5e-4, rel=0.02)


def test_who_shares_edges_with_the_owner_asks_less() -> None:
    whole, half = (closed_forms.nacks_of_one(30, 0.02, 3, loss) for loss in (0.02, 0.01))
    assert closed_forms.nacks_of_one(30, 0.02, 3) == pytest.approx(whole)
    assert half < 0.65 * whole
    assert closed_forms.repairs_of_one(30, 0.02, 0.0) == pytest.approx(0.02 / 0.98)


def test_nothing_is_lost_without_loss() -> None:
    assert closed_forms.nacks_of_one(30, 0.0, 3) == 0
    assert closed_forms.some_missing(31, 0.0) == 0
    assert closed_forms.false_reformation(9, 31, 0.0, 3) == 0


def test_the_mean_spread_of_clocks() -> None:
    draws = np.random.default_rng(1).uniform(-5, 5, (20_000, 10))
    assert float(np.ptp(draws, axis=1).mean()) == pytest.approx(closed_forms.expected_skew_ns(10, 5), rel=0.01)
