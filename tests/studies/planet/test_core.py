"""Tokens as arrays, against the formulas and against what the protocol forbids."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

from isocast.ring.recovery import nack_sets
from isocast.studies.planet import closed_forms
from isocast.studies.planet.core import (
    CoreNet,
    CorePart,
    CoreWorld,
    TokenFigures,
    TreeLevel,
    joined,
    run_token,
    run_tokens,
    with_sets,
)
from isocast.studies.planet.report import ring_of
from isocast.studies.planet.settings import PAPER_TIMES, CoreSettings
from isocast.terms.instants import MILLISECOND
from isocast.terms.timing import Timing

TWO_LAYERS = Timing(
    detect_ns=200 * MILLISECOND,
    process_ns=50 * MILLISECOND,
    retries_max=4,
    clock_error_ns=5 * MILLISECOND,
    gate=PAPER_TIMES.gate,
    secondary_detect_ns=30 * MILLISECOND,
    secondary_retry_ns=110 * MILLISECOND,
)


def outcomes(net: CoreNet, settings: CoreSettings, tokens: int) -> list[TokenFigures]:
    return [run_token(net, settings, 1, number) for number in range(tokens)]


def mean(values: list[int]) -> tuple[float, float]:
    """The mean, and four standard deviations of it."""
    return float(np.mean(values)), 4 * float(np.std(values)) / sqrt(len(values))


@pytest.mark.parametrize("m, k, p, retries", [(10, 30, 0.02, 3), (4, 5, 0.1, 6), (20, 0, 0.05, 2)])
def test_requests_and_repairs_of_independent_losses(m: int, k: int, p: float, retries: int) -> None:
    timing = replace(PAPER_TIMES, retries_max=retries, token_period_ns=0, release_delay_ns=0)
    got = outcomes(ring_of(m), CoreSettings(timing, batch=k, loss=p, jitter_ns=0), 1_000)
    nacks, tolerance = mean([one.ring_nacks for one in got])
    assert nacks == pytest.approx((m - 1) * closed_forms.nacks_of_one(k, p, retries), abs=tolerance)
    repairs, tolerance = mean([one.ring_repairs for one in got])
    # Repairs of attempts that k_r forbids are in the formula: p^k_r of them at most.
    expected = (m - 1) * closed_forms.repairs_of_one(k, p)
    assert repairs == pytest.approx(expected, abs=tolerance + expected * 2 * p**retries)


def test_false_reformations() -> None:
    timing = replace(PAPER_TIMES, retries_max=1, token_period_ns=0, release_delay_ns=0)
    got = outcomes(ring_of(10), CoreSettings(timing, batch=20, loss=0.01, jitter_ns=0), 2_500)
    share, tolerance = mean([int(one.gave_up > 0) for one in got])
    assert share == pytest.approx(closed_forms.false_reformation(9, 21, 0.01, 1), abs=tolerance)


def test_a_tree_changes_who_loses_together_and_not_how_often() -> None:
    net, settings = ring_of(12, branches=3), CoreSettings(batch=20, loss=0.04, tree=True, jitter_ns=0)
    lost = np.zeros(12, dtype=np.int64)
    together = 0
    for number in range(3_000):
        pairs = net.losses(np.random.default_rng(number), 1, settings.loss, owner=0, tree=True)
        lost[pairs.receiver] += 1
        together += {4, 5, 6, 7} <= set(pairs.receiver.tolist())
    assert lost[0] == 0, "the owner has its own token"
    assert lost[1:] == pytest.approx(np.full(11, 120), abs=4 * sqrt(120))
    assert together > 30, "of independent losses four together are one in 10^5"


def test_messages_that_the_owner_lacks_are_not_in_its_token() -> None:
    net = ring_of(12, branches=3)
    for number in range(400):
        pairs = net.losses(np.random.default_rng(number), 30, 0.2, owner=5, tree=True)
        assert not (pairs.receiver == 5).any()
        sharing = (pairs.receiver >= 4) & (pairs.receiver < 8) & (pairs.item > 0)
        counts = np.bincount(pairs.item[sharing], minlength=30)
        # Three neighbours behind the owner's branch lose by their own edges only: seldom all three.
        assert (counts == 3).sum() <= 2


def test_sets_take_turns_and_repairs_are_for_all() -> None:
    net = ring_of(12, branches=3)
    plain = CoreSettings(batch=30, loss=0.02, tree=True, jitter_ns=0)
    reduced = outcomes(net, with_sets(plain, 3), 600)
    alone = outcomes(net, plain, 600)
    assert sum(one.ring_nacks for one in reduced) < 0.85 * sum(one.ring_nacks for one in alone)
    assert max(one.wave for one in reduced) <= max(map(len, nack_sets(12, 3)))
    assert max(one.wave for one in alone) > 4
    per_lost = [np.quantile(np.concatenate([one.per_lost for one in part]), 0.99) for part in (reduced, alone)]
    assert per_lost[0] < per_lost[1]
    delay = with_sets(plain, 3).timing.release_delay_ns - plain.timing.release_delay_ns
    assert delay == 2 * plain.timing.token_period_ns


def test_the_next_owner_may_ask_first() -> None:
    """§5.2: nobody must send a token before it could ask for what it lacks."""
    settings = with_sets(CoreSettings(batch=30, loss=0.1, jitter_ns=0), 4)
    for number in range(200):
        one = run_token(ring_of(10), settings, 1, number)
        following = (number + 1) % 10
        if one.complete_ns[following] < np.inf:
            assert one.complete_ns[following] <= settings.timing.token_period_ns


def test_releases_are_within_the_bound_of_the_clocks() -> None:
    settings = CoreSettings(TWO_LAYERS, batch=20, loss=0.02)
    world = CoreWorld(ring_of(5, secondaries=7), settings, 1, reduced=False)
    tally = joined([run_tokens(world, CorePart(0, 300))])
    bound = TWO_LAYERS.skew_bound_ns
    assert 0.8 * bound < int(tally.skews.max()) <= bound
    expected = closed_forms.expected_skew_ns(40, TWO_LAYERS.clock_error_ns)
    assert float(tally.skews.mean()) == pytest.approx(expected, rel=0.01)
    assert tally.late == tally.unfinished == 0


def test_whoever_is_complete_too_late_is_a_fairness_fault() -> None:
    settings = CoreSettings(replace(PAPER_TIMES, retries_max=1, token_period_ns=0, release_delay_ns=0), loss=0.2)
    got = outcomes(ring_of(6), settings, 100)
    late = [one for one in got if one.gave_up]
    assert late
    for one in late:
        assert not one.punctual.all()
        assert np.isinf(one.release_ns[~one.punctual]).all()


def test_a_late_token_is_asked_for_and_comes() -> None:
    """δ_N is only long enough for a reasonable fraction of the packets (§5.1)."""
    settings = CoreSettings(batch=0, loss=0.0, jitter_ns=200 * MILLISECOND)
    got = outcomes(ring_of(10), settings, 300)
    share = np.exp(-(375 - 50) / 200)
    nacks, tolerance = mean([one.ring_nacks for one in got])
    assert nacks >= 9 * share - tolerance
    assert all(one.gave_up == 0 for one in got)
    assert max(float(one.complete_ns.max()) for one in got) < settings.timing.recovery_ns


def test_secondary_receivers_ask_their_parent_and_wait_for_it() -> None:
    """§4.1: they "do not add to the NACK implosion on the global multicast tree"."""
    settings = CoreSettings(TWO_LAYERS, batch=20, loss=0.02, jitter_ns=0)
    alone = outcomes(ring_of(5), settings, 800)
    below = outcomes(ring_of(5, secondaries=4), settings, 800)
    for name in ("ring_nacks", "ring_repairs"):
        (without, tolerance), (with_them, _) = (mean([getattr(one, name) for one in part]) for part in (alone, below))
        assert without == pytest.approx(with_them, abs=1.5 * tolerance)
    repairs, tolerance = mean([one.lower_repairs for one in below])
    assert repairs == pytest.approx(20 * closed_forms.repairs_of_one(20, 0.02), abs=tolerance)
    asks = 20 * closed_forms.nacks_of_one(20, 0.02, 4)
    assert mean([one.lower_nacks for one in below])[0] > asks, "some parents answer PENDING"
    for one in below[:50]:
        children = np.arange(5, 25)
        behind = one.complete_ns[children] > one.complete_ns[np.repeat(np.arange(5), 4)]
        asked = one.complete_ns[children] > TWO_LAYERS.late_ns + TWO_LAYERS.secondary_detect_ns
        assert behind[asked].all(), "nobody is repaired by a parent that lacks something itself"


def test_parts_add_up_to_the_whole() -> None:
    world = CoreWorld(ring_of(8, branches=2, secondaries=2), CoreSettings(TWO_LAYERS, tree=True), 3, kept=5)
    whole = run_tokens(world, CorePart(0, 24))
    parts = joined([run_tokens(world, CorePart(first, last)) for first, last in ((0, 1), (1, 8), (8, 24))])
    assert parts.ring.nacks == whole.ring.nacks
    assert parts.reduced is not None
    assert whole.reduced is not None
    assert np.array_equal(parts.reduced.per_lost, whole.reduced.per_lost)
    for name in ("asked", "skews", "offsets", "completions", "releases_ns"):
        assert np.array_equal(getattr(parts, name), getattr(whole, name)), name
    assert whole.releases_ns.shape == (5, 24)


def test_a_multicast_repair_is_lost_for_everybody_behind_the_same_edge() -> None:
    """Three branches of forty, two copies: behind a lost edge nobody gets the copy, elsewhere most do."""
    net = ring_of(120, branches=3)
    receiver, copy = np.tile(np.arange(120), 2), np.repeat([0, 1], 120)
    shares = []
    for seed in range(60):
        passed = net.copies_passed(np.random.default_rng(seed), receiver, copy, 2, 0.51, tree=True)
        shares += passed.reshape(6, 40).mean(axis=1).tolist()
    # Each edge loses 1-√0.49 = 0.3; forty leaves do not all fail by themselves.
    assert all(share == 0 or share > 0.3 for share in shares)
    assert sum(share == 0 for share in shares) / len(shares) == pytest.approx(0.3, abs=4 * sqrt(0.21 / len(shares)))
    alone = net.copies_passed(np.random.default_rng(1), receiver, copy, 2, 0.5, tree=False)
    assert 0.3 < alone.mean() < 0.7


def test_everybody_behind_an_edge() -> None:
    level = TreeLevel(np.array([0, 1, 0, 2, 1]))
    place, receiver = level.behind(np.array([1, 0]))
    assert list(zip(place.tolist(), receiver.tolist(), strict=True)) == [(0, 1), (0, 4), (1, 0), (1, 2)]
    assert [part.tolist() for part in level.behind(np.zeros(0, dtype=np.int64))] == [[], []]
