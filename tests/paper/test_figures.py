"""The figures of the design, from `scenarios/paper/*.toml`, and other parameters against closed forms.

Every run is a function of its seed, so nothing here is a matter of luck; sizes are chosen so that the tolerance is four
standard deviations of the figure or more, or else the full file runs under `soak`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from math import exp, sqrt
from pathlib import Path

import pytest
from tests.paper import closed_forms

from isocast.ring.recovery import nack_sets
from isocast.simulation.run import RunReport, run_scenario
from isocast.simulation.scenario import load_scenario, scenario_from_mapping
from isocast.terms.instants import MILLISECOND
from isocast.terms.timing import passes_all_have, passes_all_know, trade_confirmed
from isocast.terms.topology import PAPER_RING

SCENARIOS = Path(__file__).parents[2] / "scenarios" / "paper"
SIGMAS = 4

EAST_AND_WEST = (
    "New York", "Toronto", "Chicago", "San Francisco", "Mexico City", "São Paulo", "London", "Paris", "Tokyo", "Seoul",
)  # fmt: skip
"""Eight of ten nearer to New York than to Tokyo."""


def figure(name: str, messages: int = 0) -> RunReport:
    """Run a file of scenarios/paper, as it is or with fewer messages; nothing may be violated."""
    scenario = load_scenario(SCENARIOS / f"{name}.toml")
    if messages:
        scenario = replace(scenario, messages=messages)
    report = run_scenario(scenario, scenario.seed)
    assert report.violations == []
    return report


def run(**keys: object) -> RunReport:
    """Run a scenario of a few keys."""
    scenario = scenario_from_mapping(keys)
    report = run_scenario(scenario, scenario.seed)
    assert report.violations == []
    return report


def share_tolerance(share: float, pairs: int) -> float:
    """Four standard deviations of a share."""
    return SIGMAS * sqrt(share * (1 - share) / pairs)


# ---- the rows of the table


def test_the_times_of_the_paper() -> None:
    """δ_N = .375, X = 0, P = .05, k_r = 3: τ_r = .8, τ_t = 2.775."""
    timing = scenario_from_mapping({"detect": 0.375, "transmit": 0, "process": 0.05, "retries_max": 3}).timing
    assert (timing.retry_ns, timing.token_period_ns) == (800 * MILLISECOND, 2_775 * MILLISECOND)
    assert scenario_from_mapping({}).timing == timing


def test_original_without_loss() -> None:
    assert figure("original-p0").control_per_message == pytest.approx(1.350, abs=0.02)


@pytest.mark.long
def test_original_with_loss() -> None:
    assert figure("original-loss").control_per_message == pytest.approx(1.391, rel=0.03)


@pytest.mark.long
def test_timed_without_loss() -> None:
    report = figure("timed-p0-rate10", messages=30_000)
    assert report.control_per_message == pytest.approx(0.0360, rel=0.03)
    assert (report.nacks_per_token, report.repairs_per_token) == (0, 0)


def test_timed_with_loss() -> None:
    assert figure("timed-loss-rate100", messages=20_000).control_per_message == pytest.approx(0.127, rel=0.08)


@pytest.mark.long
def test_requests_and_repairs() -> None:
    report = figure("recovery-k30", messages=24_000)
    assert report.nacks_per_token == pytest.approx(4.39, rel=0.07)
    assert report.repairs_per_token == pytest.approx(5.69, rel=0.07)


@pytest.mark.long
def test_false_reformations_of_a_small_ring() -> None:
    report = figure("false-reformation-small", messages=16_000)
    expected = closed_forms.false_reformation(10, 20, 0.01, 1)
    assert expected == pytest.approx(0.0353, rel=0.005)
    events = expected * report.tokens
    assert report.false_reformations_per_token == pytest.approx(expected, rel=SIGMAS / sqrt(events))


def test_passes_until_all_have_and_all_know_and_a_trade_is_confirmed() -> None:
    """m = 10: 9, 18, t+10."""
    assert (passes_all_have(10).value, passes_all_know(10).value, trade_confirmed(10).value) == (9, 18, 10)


def test_the_sets_of_ten_receivers_with_four_turns() -> None:
    """m = 10, k_p = 4, r = 0."""
    assert nack_sets(10, 4) == [[1, 5, 9], [2, 6], [3, 7], [4, 8]]


def test_london_against_sydney_at_an_exchange_in_london() -> None:
    assert figure("exchange-london").first_wins["London"] == pytest.approx(0.993, abs=0.005)


@pytest.mark.parametrize(
    "order, expected", [pytest.param("arrival", 0.600, marks=pytest.mark.long), ("shuffle", 0.503)]
)
def test_london_against_sydney_on_a_ring_in_short(order: str, expected: float) -> None:
    report = figure(f"ring-{order}", messages=8_000)
    assert report.first_wins["London"] == pytest.approx(expected, abs=share_tolerance(expected, 4_000))


def test_skew_under_clock_error() -> None:
    report = figure("clock-error", messages=4_000)
    scenario = load_scenario(SCENARIOS / "clock-error.toml")
    assert scenario.timing.clock_error_ns == 5 * MILLISECOND
    assert scenario.timing.release_delay_ns == 2_785 * MILLISECOND
    assert 0 < report.release_skew_ns_max <= 10 * MILLISECOND
    assert report.fairness_faults == 0


@pytest.mark.long
def test_nack_reduction_on_a_tree() -> None:
    scenario = replace(load_scenario(SCENARIOS / "tree-loss.toml"), messages=10_000)
    alone = replace(scenario, timing=replace(scenario.timing, nack_sets=1, release_delay_ns=0))
    reduced, plain = (run_scenario(one, 1) for one in (scenario, alone))
    assert reduced.violations == plain.violations == []
    assert reduced.nacks_per_loss_p99 < plain.nacks_per_loss_p99
    assert reduced.nacks_per_token < plain.nacks_per_token
    assert reduced.fairness_faults == 0


def test_the_command_reports_the_same_figures() -> None:
    """`isocast sim run FILE --json`, in another process."""
    program = Path(sys.executable).parent / "isocast"
    command = [str(program), "sim", "run", str(SCENARIOS / "exchange-london.toml"), "--json"]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": "7"}
    )
    got = json.loads(done.stdout)
    assert got == figure("exchange-london").as_json()
    assert got["first_wins"]["London"] == pytest.approx(0.993, abs=0.005)


# ---- other values


@pytest.mark.parametrize("rate, token_ack", [(0.3, 1.0), (2.0, 0.5), (4.0, 0.2), (0.5, 2.0)])
def test_original_without_loss_at_other_rates(rate: float, token_ack: float) -> None:
    """1+e^(-λ(d+T_a)) is the first-order form of the exact 1+(1-λd)e^(-λT_a)."""
    report = run(
        protocol="original", receivers=4, messages=6_000, arrival_rate=rate, one_way_delay=0.02, token_ack=token_ack,
        token_resend=token_ack + 0.2,
    )  # fmt: skip
    expected = closed_forms.original_control(rate, 0.02, token_ack)
    assert expected == pytest.approx(1 + exp(-rate * (0.02 + token_ack)), abs=0.005)
    assert report.control_per_message == pytest.approx(expected, abs=share_tolerance(expected - 1, 6_000))


@pytest.mark.parametrize("rate, period", [(2.0, 2.775), (40.0, 2.775), (10.0, 6.0)])
def test_timed_without_loss_at_other_rates(rate: float, period: float) -> None:
    """1/(λ·τ_t): one token for all that arrived in its period."""
    messages = round(600 * max(rate * period, 1) ** 0.5)
    report = run(receivers=3, messages=messages, arrival_rate=rate, token_period=period)
    expected = 1 / (rate * period)
    # The run is as long as the last of Poisson arrivals takes, and at most two tokens are cut off or idle.
    assert report.control_per_message == pytest.approx(
        expected, rel=SIGMAS / sqrt(messages) + 2 / (messages * expected)
    )


@pytest.mark.long
@pytest.mark.parametrize(
    "m, p, k, retries, tokens",
    [(5, 0.05, 10, 6, 1_200), (20, 0.01, 15, 5, 600), (3, 0.05, 5, 6, 2_000), (10, 0.05, 28, 5, 300)],
)
def test_requests_and_repairs_of_other_rings(m: int, p: float, k: int, retries: int, tokens: int) -> None:
    """(m-1)·E[attempts] and (m-1)·(lacking items)/(1-p), the recursion done exactly; with the usual sources."""
    report = run(receivers=m, loss=p, messages_per_token=k, retries_max=retries, messages=k * tokens, servers=1)
    assert report.rings == 1
    assert report.nacks_per_token == pytest.approx(closed_forms.attempts(m, k, p, retries), rel=0.08)
    assert report.repairs_per_token == pytest.approx(closed_forms.repairs(m, k, p), rel=0.08)


@pytest.mark.long
def test_false_reformations_of_another_ring() -> None:
    report = run(
        receivers=5, loss=0.02, messages_per_token=10, sources=10, retries_max=1, messages=12_000, one_way_delay=0.05
    )
    expected = closed_forms.false_reformation(5, 10, 0.02, 1)
    assert report.false_reformations_per_token == pytest.approx(expected, rel=SIGMAS / sqrt(expected * report.tokens))


@pytest.mark.parametrize("jitter", [0.005, 0.02, 0.1, 0.5])
@pytest.mark.parametrize("exchange, traders", [("London", ("London", "Sydney")), ("Tokyo", ("New York", "Mumbai"))])
def test_other_exchanges(exchange: str, traders: tuple[str, str], jitter: float) -> None:
    """1-½e^(-(d_B-d_A)/j)."""
    report = run(exchange=exchange, traders=list(traders), jitter=jitter, messages=40_000)
    place, first, second = closed_forms.cities(exchange, *traders)
    expected = closed_forms.exchange_share(place, first, second, jitter)
    tolerance = max(share_tolerance(expected, 20_000), 1e-4)
    assert report.first_wins[traders[0]] == pytest.approx(expected, abs=tolerance)


@pytest.mark.long
@pytest.mark.parametrize("order", ["arrival", "shuffle"])
@pytest.mark.parametrize(
    "ring, traders, nearer", [(EAST_AND_WEST, ("New York", "Tokyo"), 0.8), (PAPER_RING, ("Mumbai", "Chicago"), 0.6)]
)
def test_other_pairs_of_traders(ring: tuple[str, ...], traders: tuple[str, str], nearer: float, order: str) -> None:
    """Rotation alone is not fair: with order by arrival the share of owners that are nearer decides."""
    report = run(
        ring=list(ring), traders=list(traders), order_in_token=order, token_period=3.0, arrival_rate=10, messages=4_000
    )
    first, second = closed_forms.cities(*traders)
    places = closed_forms.cities(*ring)
    expected = {"arrival": closed_forms.arrival_share, "shuffle": closed_forms.shuffle_share}[order](
        places, first, second, 3.0
    )
    assert expected == pytest.approx(nearer if order == "arrival" else 0.5, abs=0.01)
    assert report.first_wins[traders[0]] == pytest.approx(expected, abs=share_tolerance(expected, 2_000))


@pytest.mark.parametrize("error_ms", [0, 1, 20, 100])
def test_skew_and_delay_at_other_clock_errors(error_ms: int) -> None:
    """Δ_A = δ_N+2ε+k_r·τ_r, and releases at most 2ε apart."""
    keys = {"receivers": 6, "messages": 1_500, "arrival_rate": 10, "loss": 0.01, "retries_max": 3}
    report = run(clock_error=error_ms / 1000, drift_ppm=50, **keys)
    timing = scenario_from_mapping({**keys, "clock_error": error_ms / 1000}).timing
    assert timing.release_delay_ns == (2_775 + 2 * error_ms) * MILLISECOND
    assert report.release_skew_ns_max <= 2 * error_ms * MILLISECOND
    assert report.release_skew_ns_max >= error_ms * MILLISECOND // 2
    assert report.fairness_faults == 0


@pytest.mark.parametrize("loss, delay", [pytest.param(0.0, 0.05, marks=pytest.mark.long), (0.0, 0.3), (0.1, 0.05)])
@pytest.mark.parametrize("gate", ["timed", "majority", "total"])
def test_latency(loss: float, delay: float, gate: str) -> None:
    """d+τ_t/2+τ_t·p/(1-p)+Δ_A."""
    keys = {"receivers": 4, "messages": 3_000, "arrival_rate": 10, "retries_max": 6, "servers": 1, "sources": 64}
    report = run(loss=loss, one_way_delay=delay, gate=gate, **keys)
    timing = scenario_from_mapping({"gate": gate, **keys}).timing
    wait = timing.token_period_ns / 1e9 / sqrt(12)
    expected = timing.latency_ns(round(delay * 1e9), loss) / 1e9
    # A message that the owner lacks also holds back those that follow it: a second-order share of the period.
    slack = loss**2 * timing.token_period_ns / 1e9
    assert report.latency_s_mean == pytest.approx(
        expected, abs=SIGMAS * wait * sqrt(1 + 12 * loss) / sqrt(3_000) + slack
    )


# ---- full size


@pytest.mark.soak
@pytest.mark.parametrize("order, expected", [("arrival", 0.600), ("shuffle", 0.503)])
def test_london_against_sydney_on_a_ring(order: str, expected: float) -> None:
    assert figure(f"ring-{order}").first_wins["London"] == pytest.approx(expected, abs=0.005)


@pytest.mark.soak
def test_timed_without_loss_in_full() -> None:
    assert figure("timed-p0-rate10").control_per_message == pytest.approx(0.0360, rel=0.03)


@pytest.mark.soak
def test_timed_with_loss_in_full() -> None:
    assert figure("timed-loss-rate100").control_per_message == pytest.approx(0.127, rel=0.03)


@pytest.mark.soak
def test_requests_and_repairs_in_full() -> None:
    report = figure("recovery-k30")
    assert report.nacks_per_token == pytest.approx(4.39, rel=0.03)
    assert report.repairs_per_token == pytest.approx(5.69, rel=0.03)


@pytest.mark.soak
def test_false_reformations_of_a_small_ring_in_full() -> None:
    report = figure("false-reformation-small")
    assert report.false_reformations_per_token == pytest.approx(0.0353, rel=0.1)
