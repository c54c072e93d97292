"""The named timings, worked out by hand from the formulas of §5.1."""

import pytest

from isocast.terms import timing as formulas
from isocast.terms.instants import MICROSECOND, MILLISECOND
from isocast.terms.timing import PROFILES, Gate

#            τ_r, τ_t, Δ_A, Δ_A of two layers and of three, mean submit to release: all in microseconds
BY_HAND = {
    "lan": (11_000, 47_200, 50_400, 97_400, 144_400, 74_100),
    "continent": (120_000, 532_000, 584_000, 934_000, 1_284_000, 875_000),
    "world": (350_000, 1_554_000, 1_708_000, 2_358_000, 3_008_000, 2_560_000),
    "ci": (200_000, 652_000, 704_000, 1_354_000, 2_004_000, 1_031_000),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_a_profile_gives_these_times(name: str) -> None:
    profile = PROFILES[name]
    one, two, three = (profile.timing(5, layers) for layers in (1, 2, 3))
    got = (one.retry_ns, one.token_period_ns, one.release_delay_ns, two.release_delay_ns, three.release_delay_ns)
    latency = round(one.latency_ns(profile.one_way_delay_ns, 0))
    assert tuple(value / MICROSECOND for value in (*got, latency)) == BY_HAND[name]


@pytest.mark.parametrize("name", BY_HAND)
def test_a_profile_obeys_the_formulas(name: str) -> None:
    """§5.1, corrected: τ_r = 2δ_N+X+P, τ_t = δ_N+2ε+k_r·τ_r, Δ_A = τ_t+(δ_N+2ε)+(layers-1)·(δ_S+k_r·τ_{r,S})."""
    profile = PROFILES[name]
    late = profile.detect_ns + 2 * profile.clock_error_ns
    retry = 2 * profile.detect_ns + profile.transmit_ns + profile.process_ns
    lower = 2 * profile.secondary_detect_ns + profile.transmit_ns + profile.process_ns
    for layers in (1, 2, 3):
        timing = profile.timing(7, layers)
        assert timing.retry_ns == retry
        assert timing.token_period_ns == late + profile.retries_max * retry
        below = profile.secondary_detect_ns + profile.retries_max * lower
        assert timing.release_delay_ns == timing.token_period_ns + late + (layers - 1) * below
        assert timing.gate is Gate.MAJORITY
        assert timing.ring_size == 7


def test_the_four_networks_are_named_and_the_test_machine_has_50_ms() -> None:
    assert list(PROFILES) == list(BY_HAND)
    assert PROFILES["ci"].detect_ns == 50 * MILLISECOND


def test_detection_leaves_room_for_the_distance_that_a_profile_is_for() -> None:
    for profile in PROFILES.values():
        assert profile.one_way_delay_ns < profile.detect_ns
    assert PROFILES["world"].detect_ns > 100 * MILLISECOND, "half-way round the earth"


def test_three_layers_add_the_second_layers_time_twice_and_the_formula_says_so() -> None:
    text = str(formulas.release_delay(PROFILES["lan"].timing(5, layers=3)))
    assert text.startswith("δ_N+2ε+k_r·τ_r+(δ_N+2ε)+2·(δ_S+k_r·τ_{r,S}) = ")
    assert text.endswith("+2·(0.003+4·0.011) = 0.1444")
