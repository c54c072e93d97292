"""One stream under every rule: the figures of protocol §11, and what each rule must and must not do."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import sqrt

import numpy as np
import pytest
from tests.paper.closed_forms import exchange_share

from isocast.studies.entry.figures import EntryFigures, arrival_share, entry_figures, shuffle_share
from isocast.studies.entry.replay import EntryReplay, ReplayRule, ReplaySettings
from isocast.studies.entry.stream import OrderStream, cities_of, draw_stream
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.terms.topology import City

RING = cities_of()
LONDON, SYDNEY = cities_of(("London", "Sydney"))
SETTINGS = ReplaySettings(RING, LONDON)


def stream(cities: tuple[City, ...], contests: int, reaction_ns: float = 0.0) -> OrderStream:
    window_ns = len(RING) * SETTINGS.token_period_ns
    return draw_stream(cities, contests, np.random.default_rng(7), window_ns=window_ns, reaction_ns=reaction_ns)


def figures(orders: OrderStream, rule: ReplayRule, settings: ReplaySettings = SETTINGS, seed: int = 1) -> EntryFigures:
    return entry_figures(orders, EntryReplay(orders, settings, seed).ranks(rule), rule.value)


@cache
def ten_cities() -> OrderStream:
    return stream(RING, 4_000, 1.0 * MILLISECOND)


@pytest.mark.parametrize(
    "rule, expected",
    [
        (ReplayRule.EXCHANGE, 0.993),
        (ReplayRule.ARRIVAL, 0.600),
        (ReplayRule.SHUFFLE, 0.503),
        (ReplayRule.BATCH, 0.503),
        (ReplayRule.CHANCE, 0.500),
    ],
)
def test_london_before_sydney(rule: ReplayRule, expected: float) -> None:
    """Protocol §11, within its .005: 100,000 pairs have a standard error of .0016."""
    found = figures(stream((LONDON, SYDNEY), 100_000), rule)
    assert found.pairs[0].share == pytest.approx(expected, abs=0.005)


def test_every_pair_of_the_ten_cities_follows_its_formula() -> None:
    """45 pairs, 4,000 contests: within five standard errors each."""
    orders = stream(RING, 4_000)
    for rule, formula in ((ReplayRule.ARRIVAL, arrival_share), (ReplayRule.SHUFFLE, shuffle_share)):
        found = figures(orders, rule)
        assert len(found.pairs) == 45
        for pair in found.pairs:
            one, two = cities_of((pair.first, pair.second))
            expected = formula(RING, one, two, SETTINGS.token_period_ns)
            assert pair.share == pytest.approx(expected, abs=5 * 0.5 / sqrt(4_000)), (rule, pair)
    for pair in figures(orders, ReplayRule.EXCHANGE).pairs:
        one, two = cities_of((pair.first, pair.second))
        assert pair.share == pytest.approx(exchange_share(LONDON, one, two, 0.02), abs=0.04)


def test_rotation_alone_is_not_fair() -> None:
    """By arrival some pair is far from ½, under the shuffle none is further than chance and distance allow."""
    arrival, shuffle = (figures(ten_cities(), rule).worst for rule in (ReplayRule.ARRIVAL, ReplayRule.SHUFFLE))
    assert arrival is not None
    assert shuffle is not None
    assert abs(arrival.distance) > 0.25
    assert abs(shuffle.distance) < 0.01 + 4 * 0.5 / sqrt(4_000)


def test_a_replay_is_a_function_of_its_seed() -> None:
    for rule in ReplayRule:
        one, same, other = (EntryReplay(ten_cities(), SETTINGS, seed).ranks(rule).tolist() for seed in (1, 1, 2))
        assert one == same
        assert (one == other) == (rule in (ReplayRule.ARRIVAL, ReplayRule.BATCH)), "these two draw nothing here"


def test_no_order_enters_before_a_token_that_could_have_it() -> None:
    """Both ring rules agree on tokens; under the shuffle tokens follow one another as under the batch."""
    replay = EntryReplay(ten_cities(), SETTINGS, 1)
    batch, shuffle, arrival = (
        replay.ranks(rule) for rule in (ReplayRule.BATCH, ReplayRule.SHUFFLE, ReplayRule.ARRIVAL)
    )
    assert (np.diff(batch[np.argsort(shuffle)]) >= 0).all()
    assert (np.diff(batch[np.argsort(arrival)]) >= 0).all()
    assert sorted(shuffle.tolist()) == list(range(ten_cities().orders))
    assert len(set(batch.tolist())) < ten_cities().orders


def test_an_order_is_in_the_first_token_whose_owner_has_it() -> None:
    """One owner, in London, and a token each second: Sydney's orders are 85 ms under way."""
    settings = replace(SETTINGS, ring=(LONDON,), token_period_ns=SECOND)
    instants = np.array([900, 900, 950, 950, 1_000, 1_001], np.int64) * MILLISECOND
    city = np.array([0, 1, 0, 1, 0, 0], np.int64)
    orders = OrderStream(("London", "Sydney"), (LONDON, SYDNEY), instants, city, city + 1, np.zeros(6, np.int64))
    assert EntryReplay(orders, settings, 1).ranks(ReplayRule.BATCH).tolist() == [0, 0, 0, 1, 0, 1]


def test_each_accounts_own_order_is_kept_in_a_token() -> None:
    """T8. Five orders of each city within a millisecond."""
    count = 400
    instants = np.sort(np.random.default_rng(3).integers(0, MILLISECOND, count)) + SECOND
    city = np.arange(count) % 10
    orders = OrderStream(tuple(place.name for place in RING), RING, instants, city, city + 1, np.zeros(count, np.int64))
    ranks = EntryReplay(orders, SETTINGS, 1).ranks(ReplayRule.SHUFFLE)
    for place in range(10):
        assert (np.diff(ranks[city == place]) > 0).all()


def test_a_hold_that_is_long_enough_and_good_clocks_leave_nothing_out_of_sequence() -> None:
    exact = replace(SETTINGS, clock_error_ns=0.0, hold_ns=2.0 * SECOND)
    assert figures(ten_cities(), ReplayRule.HOLD, exact).out_of_sequence == 0.0


def test_without_a_hold_timestamps_are_worth_nothing() -> None:
    """Every order comes after its timestamp: an exchange with a hold of 0 is an exchange by arrival."""
    none = replace(SETTINGS, clock_error_ns=0.0, hold_ns=0.0)
    london = figures(stream((LONDON, SYDNEY), 20_000), ReplayRule.HOLD, none).pairs[0].share
    assert london == pytest.approx(0.993, abs=0.005)


def test_a_clocks_error_puts_orders_out_of_sequence_and_favours_nobody() -> None:
    long = replace(SETTINGS, hold_ns=2.0 * SECOND)
    shares = []
    for error_ns in (0.0, 0.1 * MILLISECOND, 5.0 * MILLISECOND):
        found = figures(ten_cities(), ReplayRule.HOLD, replace(long, clock_error_ns=error_ns))
        shares.append(found.out_of_sequence)
        assert found.worst is not None
        assert abs(found.worst.standard_errors) < 4.5
    assert shares == sorted(shares)
    assert shares[0] == 0.0
    assert shares[2] > 0.3


def test_pure_chance_is_fair_and_out_of_sequence() -> None:
    """Of ten orders in a random order nine have one before them, which is the later one half of the time."""
    found = figures(ten_cities(), ReplayRule.CHANCE)
    assert found.out_of_sequence == pytest.approx(0.45, abs=0.01)
    assert found.worst is not None
    assert abs(found.worst.standard_errors) < 4.5


def test_with_jitter_each_owner_is_an_exchange_of_its_own() -> None:
    """The mean over owners of 1-½e^(-|D|/J), but for what falls between two tokens."""
    jittered = replace(SETTINGS, ring_jitter_ns=20.0 * MILLISECOND)
    found = figures(stream((LONDON, SYDNEY), 20_000), ReplayRule.ARRIVAL, jittered)
    expected = sum(exchange_share(owner, LONDON, SYDNEY, 0.02) for owner in RING) / len(RING)
    assert abs(expected - 0.6) > 0.015
    assert found.pairs[0].share == pytest.approx(expected, abs=0.015)


def test_an_order_that_is_longer_under_way_than_a_token_period_waits_for_its_token() -> None:
    short = replace(SETTINGS, token_period_ns=10 * MILLISECOND)
    found = figures(stream((LONDON, SYDNEY), 2_000), ReplayRule.SHUFFLE, short)
    assert 0.0 < found.pairs[0].share < 1.0


def test_a_city_whose_place_is_not_known_cannot_be_replayed() -> None:
    orders = replace(stream((LONDON, SYDNEY), 10), places=(LONDON, None))
    with pytest.raises(ConfigurationError, match="Sydney"):
        EntryReplay(orders, SETTINGS, 1)
