"""First places, pairs, and orders out of their true order: small streams, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from tests.paper import closed_forms

from isocast.studies.entry.figures import arrival_share, entry_figures, shuffle_share
from isocast.studies.entry.stream import OrderStream, cities_of
from isocast.terms.instants import SECOND

NAMES = ("London", "Sydney", "Tokyo")


def stream(*rows: tuple[int, int, int]) -> OrderStream:
    """Instant, city and contest of each order."""
    instants, city, contest = np.array(rows, np.int64).T
    return OrderStream(NAMES, (None,) * 3, instants, city, city + 1, contest)


TWO = stream((10, 0, 0), (11, 1, 0), (12, 2, 0), (50, 0, 1), (50, 1, 1))


def test_first_places_and_pairs() -> None:
    found = entry_figures(TWO, np.array([2, 0, 1, 4, 3]), "by hand")
    assert (found.orders, found.contests) == (5, 2)
    assert found.first == {"London": 0.0, "Sydney": 1.0, "Tokyo": 0.0}
    assert [(pair.first, pair.second, pair.contests, pair.share) for pair in found.pairs] == [
        ("London", "Sydney", 2, 0.0),
        ("London", "Tokyo", 1, 0.0),
        ("Sydney", "Tokyo", 1, 1.0),
    ]
    turned = found.pair("Sydney", "London")
    assert turned is not None
    assert (turned.share, turned.distance) == (1.0, 0.5)
    assert turned.standard_errors == pytest.approx(2**0.5)
    assert found.pair("Sydney", "Rome") is None


def test_who_enters_at_the_same_time_shares_the_place() -> None:
    found = entry_figures(TWO, np.array([0, 0, 1, 2, 2]), "batch")
    assert found.first == {"London": 0.5, "Sydney": 0.5, "Tokyo": 0.0}
    assert [pair.share for pair in found.pairs] == [0.5, 1.0, 1.0]


def test_the_worst_pair_is_the_furthest_from_a_half_either_way() -> None:
    many = stream(*[(n, city, n) for n in range(4) for city in (0, 1, 2)])
    ranks = np.array([0, 1, 2, 0, 1, 2, 2, 1, 0, 0, 2, 1])
    worst = entry_figures(many, ranks, "by hand").worst
    assert worst is not None
    assert (worst.first, worst.second, worst.share) == ("London", "Sydney", 0.75)


def test_of_a_citys_orders_the_first_counts() -> None:
    found = entry_figures(stream((1, 0, 0), (2, 0, 0), (3, 1, 0)), np.array([2, 0, 1]), "by hand")
    assert found.first["London"] == 1.0


def test_a_contest_of_one_city_is_none() -> None:
    found = entry_figures(stream((1, 0, 0), (2, 0, 0)), np.array([0, 1]), "by hand")
    assert (found.contests, found.pairs, found.worst) == (0, (), None)


@pytest.mark.parametrize(
    "ranks, share",
    [
        ([0, 1, 2, 3, 4], 0.0),
        ([1, 0, 2, 3, 4], 0.2),
        ([2, 1, 0, 3, 4], 0.4),
        ([0, 0, 0, 3, 3], 0.0),
        ([4, 3, 2, 0, 1], 0.6),
    ],
)
def test_out_of_sequence_is_an_order_earlier_than_the_one_processed_before_it(ranks: list[int], share: float) -> None:
    """CloudEx's inbound unfairness ratio; the last two orders of the stream have one instant, and are in no order."""
    assert entry_figures(TWO, np.array(ranks), "by hand").out_of_sequence == pytest.approx(share)


def test_the_formulas_are_those_of_the_page() -> None:
    """Against the same formulas, derived apart for the paper's claims."""
    ring, (london, sydney) = cities_of(), cities_of(("London", "Sydney"))
    assert closed_forms.exchange_share(london, london, sydney, 0.02) == pytest.approx(0.993, abs=0.0005)
    assert arrival_share(ring, london, sydney, 3 * SECOND) == pytest.approx(0.600, abs=0.0005)
    assert shuffle_share(ring, london, sydney, 3 * SECOND) == pytest.approx(0.503, abs=0.0005)
    for one in ring:
        for two in ring:
            assert shuffle_share(ring, one, two, SECOND) == pytest.approx(closed_forms.shuffle_share(ring, one, two, 1))
            arrival = closed_forms.arrival_share(ring, one, two, 1)
            assert arrival_share(ring, one, two, SECOND) == pytest.approx(arrival)
