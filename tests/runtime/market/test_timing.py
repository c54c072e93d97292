"""Times: the profile's, the file's, and the formulas between them."""

import pytest
from tests.runtime.market.markets import SMALL, fault_of, faults_of, market_of

from isocast.terms.instants import MILLISECOND
from isocast.terms.timing import PROFILES, Gate

DELAY = "0.003+2·0.0001+4·0.011+(0.003+2·0.0001)"
ONE_LAYER = {"nodes.a2": None, "nodes.bank.lines": ["a", "b"]}


@pytest.mark.parametrize("name", PROFILES)
def test_a_market_has_the_times_of_its_profile(name: str) -> None:
    assert market_of({"timing.profile": name}).timing == PROFILES[name].timing(3, layers=2)
    assert market_of({"timing.profile": name, **ONE_LAYER}).timing == PROFILES[name].timing(3)


def test_without_a_profile_the_world_is_assumed() -> None:
    assert "profile" in SMALL["timing"]
    assert market_of({"timing": {}}).timing == PROFILES["world"].timing(3, layers=2)


def test_every_time_can_be_given() -> None:
    timing = market_of(
        {
            "timing": {
                "detect": "10ms",
                "transmit": "1ms",
                "process": "2ms",
                "retries_max": 5,
                "retry": "30ms",
                "token_period": "0.2s",
                "release_delay": "3s",
                "gate": "next",
                "next_tokens": 2,
                "nack_sets": 2,
                "secondary_detect": "4ms",
                "secondary_retry": "20ms",
            },
            "clock.bound": "0.5ms",
        }
    ).timing
    ms = MILLISECOND
    assert (timing.detect_ns, timing.transmit_ns, timing.process_ns, timing.retries_max) == (10 * ms, ms, 2 * ms, 5)
    assert (timing.retry_ns, timing.token_period_ns, timing.release_delay_ns) == (30 * ms, 200 * ms, 3000 * ms)
    assert (timing.gate, timing.next_tokens, timing.nack_sets) == (Gate.NEXT, 2, 2)
    assert (timing.secondary_detect_ns, timing.secondary_retry_ns, timing.secondary_layers) == (4 * ms, 20 * ms, 1)
    assert (timing.clock_error_ns, timing.ring_size) == (ms // 2, 3)


def test_what_is_not_given_follows_from_what_is() -> None:
    timing = market_of({"timing.detect": "10ms", "timing.secondary_detect": "7ms"}).timing
    assert timing.retry_ns == 25 * MILLISECOND
    assert timing.secondary_retry_ns == 19 * MILLISECOND


@pytest.mark.parametrize(
    "changes, key, rule",
    [
        (
            {"clock.bound": "2ms"},
            "timing.detect",
            "δ_N must be at least 2ε = 2·0.002 = 0.004 s (ε is clock.bound), not 0.003 s",
        ),
        (
            {"timing.retry": "10ms"},
            "timing.retry",
            "τ_r must be at least 2δ_N+X+P = 2·0.003+0+0.005 = 0.011 s, not 0.01 s",
        ),
        (
            {"timing.token_period": "40ms"},
            "timing.token_period",
            "τ_t must be at least δ_N+2ε+k_r·τ_r = 0.003+2·0.0001+4·0.011 = 0.0472 s, not 0.04 s",
        ),
        (
            {"timing.release_delay": "50ms", **ONE_LAYER},
            "timing.release_delay",
            f"Δ_A must be at least δ_N+2ε+k_r·τ_r+(δ_N+2ε) = {DELAY} = 0.0504 s, not 0.05 s",
        ),
        (
            {"timing.secondary_retry": "10ms"},
            "timing.secondary_retry",
            "τ_{r,S} must be at least 2δ_S+X+P = 2·0.003+0+0.005 = 0.011 s, not 0.01 s",
        ),
        (
            {"timing.secondary_detect": "1ms", **ONE_LAYER},
            "timing.secondary_detect",
            "needs a secondary receiver, and there is none: remove the key",
        ),
        (
            {"timing.nack_sets": 3},
            "timing.nack_sets",
            "k_p must be at most one less than primary receivers, 2, not 3",
        ),
    ],
)
def test_a_time_that_the_protocol_forbids_is_told_its_formula(changes: dict[str, object], key: str, rule: str) -> None:
    assert fault_of(changes) == (key, rule)


def test_several_short_times_are_told_together() -> None:
    found = faults_of({"timing.retry": "1ms", "timing.token_period": "1ms", "timing.release_delay": "1ms"})
    assert [key for key, _ in found] == ["timing.retry", "timing.token_period", "timing.release_delay"]


def test_times_are_not_judged_by_a_bound_that_is_wrong() -> None:
    assert [key for key, _ in faults_of({"clock.bound": 5, "nodes.a.clock_bound": "1s"})] == ["clock.bound"]
