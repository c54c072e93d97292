"""`isocast plan timing`: every derived time, with its formula."""

import json
from typing import Any

import pytest
from tests.runtime.market.markets import market_of

from isocast.cli.main import main
from isocast.cli.plan import TimingOptions, make_plan
from isocast.simulation.scenario import scenario_from_mapping
from isocast.terms.instants import to_seconds
from isocast.terms.timing import Timing

CHOSEN: list[dict[str, Any]] = [
    {},
    {"secondary_retry": 0.9},
    {"retry": 1.0, "token_period": 5.0, "release_delay": 20.0},
]
"""Times that are given instead of derived; those of lower layers count only where there are any."""
GIVEN: dict[str, Any] = {
    "detect": 0.11,
    "transmit": 0.002,
    "process": 0.005,
    "clock_error": 0.001,
    "gate": "majority",
    "nack_sets": 2,
}


def plan(arguments: str, capsys: pytest.CaptureFixture[str]) -> Any:  # noqa: ANN401  # JSON
    assert main(["plan", "timing", "--json", *arguments.split()]) == 0
    return json.loads(capsys.readouterr().out)


def test_without_options_it_plans_the_papers_ring(capsys: pytest.CaptureFixture[str]) -> None:
    derived = plan("", capsys)["derived"]
    assert derived["retry_s"] == 0.8
    assert derived["token_period_s"] == 2.775
    assert derived["release_delay_s"] == 2.775
    assert derived["latency_mean_s"] == pytest.approx(4.2125)
    assert (derived["passes_all_have"], derived["passes_all_know"], derived["trade_confirmed"]) == (9, 18, 10)
    assert derived["detection_worst_s"] == pytest.approx(30.525)
    assert derived["detection_with_receipts_s"] == pytest.approx(5.55)
    assert derived["reformation_s"] == pytest.approx(4.65)


def test_a_clock_error_enters_release_delay_and_skew(capsys: pytest.CaptureFixture[str]) -> None:
    derived = plan("--clock-error 0.005", capsys)["derived"]
    assert (derived["release_delay_s"], derived["skew_bound_s"]) == (2.785, 0.01)


def test_disclosed_keys_add_v_tokens_and_leave_so_much_to_early_readers(capsys: pytest.CaptureFixture[str]) -> None:
    sealed = plan("--gate majority", capsys)["derived"]
    assert not {"reveal_s", "early_reading_s"} & set(sealed)
    derived = plan("--gate majority --reveal chain --reveal-tokens 3", capsys)["derived"]
    assert derived["reveal_s"] == pytest.approx(3 * 2.775)
    assert derived["release_delay_s"] == pytest.approx(sealed["release_delay_s"] + 3 * 2.775)
    assert derived["early_reading_s"] == pytest.approx(2.775 + sealed["release_delay_s"])
    assert main(["plan", "timing", "--gate", "majority", "--reveal", "chain"]) == 0
    assert "reading early is bounded, not impossible" in " ".join(capsys.readouterr().out.split())


def test_the_sets_of_nack_reduction(capsys: pytest.CaptureFixture[str]) -> None:
    planned = plan("--nack-sets 4", capsys)
    assert planned["nack_sets"] == [[1, 5, 9], [2, 6], [3, 7], [4, 8]]
    assert planned["derived"]["release_delay_s"] == pytest.approx(4 * 2.775)


def test_two_layers_chain_their_rings_and_share_one_release_delay(capsys: pytest.CaptureFixture[str]) -> None:
    planned = plan("--layers 10,10 --secondary-detect 0.1 --secondary-retry 0.5", capsys)
    assert planned["derived"]["passes_to_certify"] == 19
    assert planned["derived"]["release_delay_s"] == pytest.approx(2.775 + 0.1 + 3 * 0.5)
    assert planned["given"]["layers"] == "10,10"


def test_a_second_layer_takes_the_first_ones_times_if_none_are_given(capsys: pytest.CaptureFixture[str]) -> None:
    given = plan("--layers 2 --receivers 7", capsys)["given"]
    assert (given["layers"], given["secondary_detect"], given["secondary_retry"]) == ("7,7", 0.375, 0.8)


def test_three_layers_add_their_recovery_twice_and_show_how(capsys: pytest.CaptureFixture[str]) -> None:
    planned = plan("--layers 10,9,8 --secondary-detect 0.1 --secondary-retry 0.5", capsys)
    assert planned["given"]["layers"] == "10,9,8"
    assert planned["derived"]["passes_to_certify"] == 10 + 9 + 8 - 2
    assert planned["derived"]["secondary_retry_s"] == 0.5
    assert planned["derived"]["release_delay_s"] == pytest.approx(2.775 + 2 * (0.1 + 3 * 0.5))
    shown = {entry["key"]: (entry["formula"], entry["numbers"]) for entry in planned["formulas"]}
    assert shown["release_delay_s"] == (
        "δ_N+2ε+k_r·τ_r+2·(δ_S+k_r·τ_{r,S})",
        "0.375+2·0+3·0.8+2·(0.1+3·0.5)",
    )
    assert shown["passes_to_certify"] == ("a+b+c-2", "10+9+8-2")
    assert shown["secondary_retry_s"] == ("2δ_S+X+P", "2·0.1+0+0.05")
    assert set(shown) == set(planned["derived"])


@pytest.mark.parametrize("chosen", CHOSEN, ids=lambda chosen: "+".join(chosen) or "derived")
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_times_are_those_of_a_scenario_and_of_a_market(layers: int, chosen: dict[str, Any]) -> None:
    """One ring of seven, planned, simulated and configured: every time is the same, to the nanosecond."""
    times = {"secondary_detect": 0.03, **chosen}
    if layers == 1:
        times = {key: time for key, time in times.items() if not key.startswith("secondary")}
    planned = make_plan(TimingOptions(retries=4, receivers=7, layers=str(layers), **GIVEN, **times))
    tree = {"secondaries": 2, "layers": layers} if layers > 1 else {}
    scenario = scenario_from_mapping({"retries_max": 4, "receivers": 7, **GIVEN, **tree, **times})
    assert planned.timing == scenario.timing
    assert planned.timing == market_timing(layers, times)
    derived = {entry.key: entry.value for entry in planned.derived}
    assert derived["release_delay_s"] == to_seconds(scenario.timing.release_delay_ns)
    assert derived["token_period_s"] == to_seconds(scenario.timing.token_period_ns)
    assert derived["retry_s"] == to_seconds(scenario.timing.retry_ns)


def market_timing(layers: int, times: dict[str, Any]) -> Timing:
    """Of a market with seven primary receivers, and one below another for each layer more."""
    nodes: dict[str, object] = {name: {"role": "primary-receiver"} for name in "abcdefg"}
    nodes["server"] = {"role": "reformation-server"}
    for layer, (name, parent) in enumerate([("second", "a"), ("third", "second")], start=2):
        if layer <= layers:
            nodes[name] = {"role": "secondary-receiver", "parent": parent}
    own = {key: value for key, value in GIVEN.items() if key != "clock_error"} | times
    timing = {key: f"{value}s" if isinstance(value, float) else value for key, value in own.items()}
    return market_of(
        {"nodes": nodes, "timing": {**timing, "retries_max": 4}, "clock": {"bound": f"{GIVEN['clock_error']}s"}}
    ).timing


def test_a_given_time_counts_and_its_least_is_still_shown(capsys: pytest.CaptureFixture[str]) -> None:
    planned = plan("--token-period 3", capsys)
    assert planned["derived"]["token_period_s"] == 3
    period = next(entry for entry in planned["formulas"] if entry["key"] == "token_period_s")
    assert (period["value"], period["least"], period["formula"]) == (3, 2.775, "δ_N+2ε+k_r·τ_r")


def test_the_table_shows_symbols_and_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "timing"]) == 0
    out = capsys.readouterr().out
    for text in ("δ_N+2ε+k_r·τ_r", "0.375+2·0+3·0.8", "2.775 s", "(m+1)·τ_t", "11·2.775", "4δ_N+grace+τ_t+2ε", "t+m"):
        assert text in out
    assert "\x1b" not in out, "plain when not a terminal"


@pytest.mark.parametrize(
    "arguments, option, rule",
    [
        ("--detect -1", "--detect", "must not be negative"),
        ("--detect nan", "--detect", "not nan"),
        ("--retries 0", "--retries", "from 1"),
        ("--delay -1", "--delay", "must not be negative"),
        ("--loss 1", "--loss", "less than 1"),
        ("--receivers 1", "--receivers", "at least 2"),
        ("--nack-sets 10", "--nack-sets", "receivers-1 = 9"),
        ("--clock-error 0.2", "--detect", "2·0.2 = 0.4 s"),
        ("--token-period 1", "--token-period", "2.775 s, not 1 s"),
        ("--layers 0", "--layers", "1 to 3 layers, not 0"),
        ("--layers 4", "--layers", "1 to 3 layers, not 4"),
        ("--layers ten", "--layers", "such as 10,10"),
        ("--layers 10,1", "--layers", "at least 2"),
        ("--layers 10,10,10,10", "--layers", "at most 3 ring sizes"),
        ("--reveal chain", "--reveal", 'goes with gate = "majority" alone'),
        ("--layers 9,9 --receivers 10", "--receivers", "first ring of --layers, 9"),
        ("--secondary-detect 1", "--secondary-detect", "add --layers 2"),
        ("--layers 2 --secondary-detect 0", "--secondary-detect", "more than 0"),
        ("--layers 2 --secondary-retry 0.1", "--secondary-retry", "2δ_S+X+P = 0.8 s"),
        ("--layers 2 --release-delay 3", "--release-delay", "5.55 s, not 3 s"),
        ("--layers 3 --release-delay 6", "--release-delay", "2·(0.375+3·0.8) = 8.325 s, not 6 s"),
    ],
)
def test_what_the_protocol_does_not_allow_names_option_and_rule(
    arguments: str, option: str, rule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "timing", *arguments.split()]) == 2
    got = capsys.readouterr()
    assert got.out == ""
    assert got.err.startswith(f"isocast: command line: {option}: ")
    assert rule in got.err
