"""The figures of the paper's §5.1 and §5.2, and those that its corrections give."""

from dataclasses import replace

import pytest

from isocast.terms import timing as formulas
from isocast.terms.errors import LocalProtocolError
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.terms.timing import Gate, Timing

PAPER = Timing(detect_ns=375 * MILLISECOND, process_ns=50 * MILLISECOND, retries_max=3, ring_size=10, gate=Gate.TIMED)


def test_retry_interval_of_the_paper_is_800_ms() -> None:
    """§5.1: "The interval between requests is at least 2δ_N + X + P"."""
    assert PAPER.retry_ns == 800 * MILLISECOND


def test_token_period_of_the_paper_is_2775_ms() -> None:
    """§5.1: "With these parameters, the token transfer time is about 3 seconds"."""
    assert PAPER.token_period_ns == 2775 * MILLISECOND


def test_token_period_is_the_printed_closed_form() -> None:
    """§5.1: "τ_t = (1+2k_r)δ_N + k_r(X+P)"."""
    for retries in range(1, 8):
        timing = replace(PAPER, retries_max=retries, transmit_ns=7, retry_ns=0, token_period_ns=0, release_delay_ns=0)
        printed = (1 + 2 * retries) * timing.detect_ns + retries * (timing.transmit_ns + timing.process_ns)
        assert timing.token_period_ns == printed


def test_release_delay_covers_the_clock_error() -> None:
    skewed = Timing(
        detect_ns=PAPER.detect_ns,
        process_ns=PAPER.process_ns,
        retries_max=3,
        clock_error_ns=5 * MILLISECOND,
        ring_size=10,
        gate=Gate.TIMED,
    )
    assert skewed.release_delay_ns == 2785 * MILLISECOND
    assert skewed.skew_bound_ns == 10 * MILLISECOND


@pytest.mark.parametrize(
    "gate, added",
    [
        (Gate.TIMED, 0),
        (Gate.MAJORITY, 375 * MILLISECOND),
        (Gate.NEXT, 2 * 2775 * MILLISECOND),
        (Gate.TOTAL, 9 * 2775 * MILLISECOND),
    ],
)
def test_a_gate_adds_what_its_knowledge_needs(gate: Gate, added: int) -> None:
    timing = replace(PAPER, gate=gate, next_tokens=2, release_delay_ns=0)
    assert timing.release_delay_ns == 2775 * MILLISECOND + added


def test_nack_sets_delay_the_release_by_a_pass_each() -> None:
    """§5.2: "we have to wait for k_p token passes, instead of one, for complete fairness"."""
    timing = replace(PAPER, nack_sets=4, release_delay_ns=0)
    assert timing.release_delay_ns == 4 * 2775 * MILLISECOND


def test_a_second_layer_adds_its_own_recovery() -> None:
    timing = replace(PAPER, secondary_detect_ns=SECOND, secondary_retry_ns=3 * SECOND, release_delay_ns=0)
    assert timing.release_delay_ns == 2775 * MILLISECOND + 10 * SECOND


def test_mean_latency_with_the_papers_numbers() -> None:
    assert PAPER.latency_ns(50 * MILLISECOND, 0.0) == pytest.approx(4.2125 * SECOND)
    assert PAPER.latency_ns(50 * MILLISECOND, 0.02) == pytest.approx(4.27 * SECOND, rel=1e-3)


@pytest.mark.parametrize(
    "change",
    [
        {"detect_ns": 0},
        {"retries_max": 0},
        {"nack_sets": 0},
        {"next_tokens": 0},
        {"clock_error_ns": 200 * MILLISECOND},
        {"retry_ns": 799 * MILLISECOND},
        {"token_period_ns": 2774 * MILLISECOND},
        {"release_delay_ns": 2774 * MILLISECOND},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_the_protocol_does_not_allow_is_refused(change: dict[str, int]) -> None:
    with pytest.raises(LocalProtocolError):
        replace(PAPER, **change)  # type: ignore[arg-type]  # all of them are numbers


def test_another_ring_size_changes_only_the_gate_that_counts_a_cycle() -> None:
    total = replace(PAPER, gate=Gate.TOTAL, release_delay_ns=0)
    assert replace(PAPER, ring_size=5, release_delay_ns=0).release_delay_ns == PAPER.release_delay_ns
    assert replace(total, ring_size=5, release_delay_ns=0).release_delay_ns == (1 + 4) * 2775 * MILLISECOND


# ---- the formulas for people say what Timing computes


def test_formulas_show_symbols_numbers_and_value() -> None:
    assert str(formulas.retry(PAPER)) == "2δ_N+X+P = 2·0.375+0+0.05 = 0.8"
    assert str(formulas.token_period(PAPER)) == "δ_N+2ε+k_r·τ_r = 0.375+2·0+3·0.8 = 2.775"


@pytest.mark.parametrize("lower", [1, 2])
@pytest.mark.parametrize("gate", list(Gate))
def test_the_numbers_of_a_formula_add_up_to_its_value(gate: Gate, lower: int) -> None:
    timing = replace(
        PAPER, clock_error_ns=5 * MILLISECOND, gate=gate, next_tokens=2, nack_sets=3, secondary_detect_ns=SECOND,
        secondary_retry_ns=3 * SECOND, secondary_layers=lower, retry_ns=0, token_period_ns=0, release_delay_ns=0,
    )  # fmt: skip
    shown = [
        formulas.retry(timing),
        formulas.secondary_retry(timing),
        formulas.token_period(timing),
        formulas.release_delay(timing),
        formulas.skew(timing),
        formulas.all_complete(timing),
        formulas.latency(timing, 50 * MILLISECOND, 0.25),
        formulas.detection_worst(timing),
        formulas.detection_with_receipts(timing),
        formulas.reformation(timing),
        formulas.passes_all_have(10),
        formulas.passes_all_know(10),
        formulas.passes_to_certify((10, 12)),
        formulas.passes_to_certify((10, 12, 14)),
    ]
    for formula in shown:
        computed = eval(formula.numbers.replace("·", "*"), {})  # noqa: S307  # our own arithmetic
        assert computed == pytest.approx(formula.value, abs=1e-9), formula


def test_passes_until_all_have_it_and_all_know_it() -> None:
    """§2.1, corrected: possession after m-1 passes, common knowledge after 2m-2."""
    assert formulas.passes_all_have(10).value == 9
    assert formulas.passes_all_know(10).value == 18
    assert formulas.trade_confirmed(10).value == 10


def test_chained_rings_add_up() -> None:
    """§4.1, corrected: certifying every R_T of 10 × 10 takes 10+10-1 passes, not √ of anything."""
    assert formulas.passes_to_certify((10, 10)).value == 19
    assert formulas.passes_to_certify((7,)).value == 7


def test_failure_detection_and_reformation() -> None:
    assert formulas.detection_worst(PAPER).value == pytest.approx(11 * 2.775)
    assert formulas.detection_with_receipts(PAPER).value == pytest.approx(5.55)
    assert formulas.reformation(PAPER).value == pytest.approx(4 * 0.375 + 0.375 + 2.775)


def test_nack_sets_of_the_figure() -> None:
    """§5.2 with m = 10, k_p = 4, r = 0, corrected so that no set contains the sender."""
    assert formulas.nack_sets(10, 4) == ((1, 5, 9), (2, 6), (3, 7), (4, 8))


@pytest.mark.parametrize("size", range(2, 14))
def test_nack_sets_partition_everybody_but_the_sender(size: int) -> None:
    for sets in range(1, size):
        for sender in range(size):
            sites = [site for group in formulas.nack_sets(size, sets, sender) for site in group]
            assert sorted(sites) == [site for site in range(size) if site != sender]


def test_where_nothing_is_lost_no_term_speaks_of_it() -> None:
    timing = Timing(detect_ns=150 * MILLISECOND)
    without, lossy = (formulas.latency(timing, 50 * MILLISECOND, loss) for loss in (0.0, 0.25))
    assert without.symbols == "d+τ_t/2+Δ_A"
    assert "·0/1" not in without.numbers
    assert lossy.symbols == "d+τ_t/2+τ_t·p/(1-p)+Δ_A"
