"""What a scenario file may say, what it means, and what is refused by which rule."""

from pathlib import Path
from typing import Any

import pytest

from isocast.simulation.fault_plan import PlannedFault
from isocast.simulation.scenario import Scenario, load_scenario, scenario_from_mapping
from isocast.simulation.scenario_keys import FAULT_KEYS, FAULT_KINDS, KEYS
from isocast.terms.errors import ConfigurationError
from isocast.terms.ids import server_id, source_id
from isocast.terms.instants import MILLISECOND, NEVER, SECOND
from isocast.terms.timing import Gate
from isocast.terms.toml_files import Faults, Values
from isocast.terms.topology import PAPER_RING

SCENARIOS = Path(__file__).parents[2] / "scenarios"
FILES = sorted(SCENARIOS.rglob("*.toml"))


def read(**keys: Any) -> Scenario:  # noqa: ANN401  # as TOML has them
    return scenario_from_mapping(keys, "test.toml")


def refused(**keys: Any) -> ConfigurationError:  # noqa: ANN401  # as TOML has them
    with pytest.raises(ConfigurationError) as caught:
        read(**keys)
    assert caught.value.file == "test.toml"
    return caught.value


def fault(**keys: Any) -> PlannedFault:  # noqa: ANN401  # as TOML has them
    return read(receivers=5, ring=["NYC", "LDN", "Tokyo", "Sydney", "BOM"], faults=[keys]).faults[0]


def fault_refused(**keys: Any) -> ConfigurationError:  # noqa: ANN401  # as TOML has them
    return refused(receivers=5, ring=["NYC", "LDN", "Tokyo", "Sydney", "BOM"], faults=[keys])


# ---- defaults


def test_an_empty_scenario_has_the_papers_values() -> None:
    scenario = read()
    timing = scenario.timing
    assert (timing.retries_max, timing.gate, scenario.receivers) == (3, Gate.TIMED, 10)
    assert (timing.retry_ns, timing.token_period_ns) == (800 * MILLISECOND, 2775 * MILLISECOND)
    assert timing.release_delay_ns == 2775 * MILLISECOND
    assert timing.ring_size == 10
    assert (scenario.protocol, scenario.arrival_rate, scenario.loss) == ("timed", 10.0, 0.0)
    assert (scenario.one_way_delay_ns, scenario.jitter_ns) == (50 * MILLISECOND, 0)


def test_times_follow_from_the_times_that_are_given() -> None:
    timing = read(detect=0.1, process=0.01, retries_max=4, clock_error=0.005, gate="majority").timing
    assert timing.retry_ns == 210 * MILLISECOND
    assert timing.token_period_ns == (110 + 4 * 210) * MILLISECOND
    assert timing.release_delay_ns == timing.token_period_ns + 110 * MILLISECOND


def test_a_longer_period_leaves_the_release_delay_alone() -> None:
    timing = read(token_period=3).timing
    assert (timing.token_period_ns, timing.release_delay_ns) == (3 * SECOND, 2775 * MILLISECOND)


def test_a_longer_retry_lengthens_the_period() -> None:
    assert read(retry=1.0).timing.token_period_ns == 3375 * MILLISECOND


def test_the_original_protocol_has_its_own_defaults() -> None:
    scenario = read(protocol="original")
    assert scenario.arrival_rate == 1.0
    assert (scenario.token_ack_ns, scenario.token_resend_ns) == (SECOND, 1200 * MILLISECOND)
    assert (scenario.source_resend_ns, scenario.nack_resend_ns) == (SECOND, 250 * MILLISECOND)
    assert scenario.sources == 0


def test_a_duration_bounds_a_run_of_any_number_of_messages() -> None:
    assert read(messages=10_000_000, arrival_rate=0.001, duration=60).messages == 10_000_000


def test_times_of_the_other_protocol_are_left_alone() -> None:
    assert read(token_ack=3.0).token_ack_ns == 3 * SECOND


def test_messages_per_token_spread_evenly() -> None:
    scenario = read(messages_per_token=30)
    assert scenario.even_arrivals
    assert scenario.arrival_rate == pytest.approx(30 / 2.775)
    assert not read(arrival_rate=3).even_arrivals


@pytest.mark.parametrize("rate, sources", [(1, 10), (10, 27), (100, 64)])
def test_sources_are_so_many_that_a_lost_message_holds_few_back(rate: float, sources: int) -> None:
    assert read(arrival_rate=rate).sources == sources


@pytest.mark.parametrize("rate, sources", [(10, 110), (0.1, 10), (10_000, 1000)])
def test_a_trader_is_so_many_sources_that_few_have_two_orders_in_a_token(rate: float, sources: int) -> None:
    assert read(arrival_rate=rate, traders=["London", "Sydney"], token_period=2.775).sources == sources


def test_a_window_has_room_for_what_a_source_submits_in_some_tokens() -> None:
    assert read().window == 64
    assert read(sources=1, arrival_rate=100).window == 1110
    assert read(burst=50).window == 200


def test_a_duration_decides_how_many_messages_there_are() -> None:
    assert read(duration=60, arrival_rate=10).messages == 600
    assert read(duration=60, messages=7).messages == 7


def test_a_ring_of_cities_counts_its_receivers() -> None:
    scenario = read(ring=["new york", "LDN", "Sao Paulo"])
    assert scenario.receivers == 3
    assert [place.name for place in scenario.ring] == ["New York", "London", "São Paulo"]


def test_an_exchange_stands_alone_and_jitters() -> None:
    scenario = read(exchange="London", traders=["London", "Sydney"])
    assert scenario.exchange is not None
    assert scenario.exchange.name == "London"
    assert (scenario.receivers, scenario.jitter_ns, scenario.ring) == (1, 20 * MILLISECOND, ())
    assert scenario.messages == 200_000


def test_traders_without_a_ring_meet_on_the_ten_cities() -> None:
    scenario = read(traders=["London", "Sydney"])
    assert tuple(place.name for place in scenario.ring) == PAPER_RING
    assert scenario.sources % 2 == 0


# ---- faults


def test_a_fault_names_sites_by_city_by_number_and_by_name() -> None:
    found = fault(kind="crash", at=1, sites=["London", 1, "site5", "server1", "source2", "syd"])
    assert found.sites == (2, 1, 5, server_id(1), source_id(2), 4)
    assert (found.at_ns, found.until_ns, found.disk_kept) == (SECOND, NEVER, True)


def test_a_node_may_lose_its_disk() -> None:
    assert not fault(kind="crash", at=1, sites=["London", "server1", "source1"], disk="lost").disk_kept


def test_a_crash_may_fall_inside_a_step() -> None:
    assert fault(kind="crash", at=1, duration=2, sites=[1], inside=3).inside == 3
    assert fault(kind="crash", at=1, sites=[1]).inside == 0


def test_a_fault_ends_after_its_duration_or_at_an_instant() -> None:
    assert fault(kind="loss", at=2, duration=0.5, loss=0.3).until_ns == 2500 * MILLISECOND
    assert fault(kind="isolate", at=2, until=9, sites=[1]).until_ns == 9 * SECOND


def test_groups_of_a_partition() -> None:
    assert fault(kind="partition", at=2, groups=[["NYC", 2], ["Tokyo"]]).groups == ((1, 2), (3,))


def test_a_clock_may_step_back() -> None:
    assert fault(kind="clock-step", at=2, sites=[1], step=-0.25).step_ns == -250 * MILLISECOND
    assert fault(kind="clock-drift", at=2, sites=[1], rate=-0.0005).rate_ppm == -500


@pytest.mark.parametrize(
    "table, key, rule",
    [
        ({"at": 1, "sites": [1]}, "kind", "must be given"),
        ({"kind": "crash", "sites": [1]}, "at", "must be given: a time in seconds"),
        ({"kind": "crahs", "at": 1, "sites": [1]}, "kind", 'did you mean "crash"?'),
        ({"kind": "crash", "at": 1, "site": [1]}, "site", 'unknown key; did you mean "sites"?'),
        ({"kind": "crash", "at": 1}, "sites", 'required by kind = "crash"'),
        ({"kind": "crash", "at": 1, "sites": []}, "sites", "at least one"),
        ({"kind": "crash", "at": 1, "sites": [6]}, "sites", "unknown site 6: sites are 1 to 5"),
        ({"kind": "crash", "at": 1, "sites": [True]}, "sites", "a number or a name"),
        ({"kind": "crash", "at": 1, "sites": ["Londn"]}, "sites", 'did you mean "London"?'),
        ({"kind": "crash", "at": 1, "sites": ["Paris"]}, "sites", 'unknown site "Paris"'),
        ({"kind": "crash", "at": 1, "sites": ["server3"]}, "sites", "servers are 1 to 2"),
        ({"kind": "crash", "at": 1, "sites": ["LDN", 2]}, "sites", "twice"),
        ({"kind": "crash", "at": -1, "sites": [1]}, "at", "must not be negative"),
        ({"kind": "crash", "at": 1, "sites": [1], "loss": 0.5}, "loss", "means nothing"),
        ({"kind": "crash", "at": 1, "sites": [1], "disk": "gone"}, "disk", 'one of "kept", "lost"'),
        ({"kind": "crash", "at": 1, "sites": [1], "until": 1}, "until", "later than at"),
        ({"kind": "crash", "at": 1, "sites": [1], "until": 2, "inside": 1}, "inside", "needs duration"),
        ({"kind": "crash", "at": 1, "sites": [1], "duration": 2, "inside": 1, "disk": "lost"}, "inside", "leave out"),
        ({"kind": "late", "at": 1, "late": 0.5}, "by", "required"),
        ({"kind": "lie", "at": 1, "sites": ["source1"]}, "sites", "for primary receivers"),
        ({"kind": "crash", "at": 1, "sites": [1], "until": 3, "duration": 2}, "until", "not both"),
        ({"kind": "clock-step", "at": 1, "sites": [1]}, "step", "required"),
        ({"kind": "clock-drift", "at": 1, "sites": [1]}, "rate", "required"),
        ({"kind": "clock-drift", "at": 1, "sites": [1], "rate": -0.06}, "rate", "at most 0.05 seconds"),
        ({"kind": "loss", "at": 1, "loss": 1.0}, "loss", "less than 1"),
        ({"kind": "partition", "at": 1, "groups": [[1, 2]]}, "groups", "at least two groups"),
        ({"kind": "partition", "at": 1, "groups": [[1, 2], [2]]}, "groups", "twice"),
        ({"kind": "partition", "at": 1, "groups": [[1], []]}, "groups", "at least one node"),
        ({"kind": "one-way", "at": 1, "groups": [[1], [2], [3]]}, "groups", "from and to"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(table: dict[str, object], key: str, rule: str) -> None:
    error = fault_refused(**table)
    assert error.key == f"faults[1].{key}"
    assert rule in error.rule


def test_faults_are_tables_of_an_array() -> None:
    error = refused(faults={"kind": "crash"})
    assert error.key == "faults"
    assert "[[faults]]" in error.rule


# ---- rules


@pytest.mark.parametrize(
    "keys, key, rule",
    [
        ({"los": 0.1}, "los", 'unknown key; did you mean "loss"?'),
        ({"xyzzy": 1}, "xyzzy", "unknown key"),
        ({"link": {"loss": 1}}, "link", "unknown key"),
        ({"receivers": "ten"}, "receivers", 'must be a whole number, not "ten"'),
        ({"receivers": 10.5}, "receivers", "must be a whole number, not 10.5"),
        ({"receivers": True}, "receivers", "must be a whole number, not true"),
        ({"receivers": 1}, "receivers", "at least 2"),
        ({"receivers": -4}, "receivers", "from 1 to 256"),
        ({"receivers": 257}, "receivers", "from 1 to 256"),
        ({"messages": 0}, "messages", "from 1"),
        ({"seed": -1}, "seed", "from 0"),
        ({"title": 3}, "title", "in quotes"),
        ({"loss": "1%"}, "loss", "must be a probability"),
        ({"loss": 1.0}, "loss", "0 or more and less than 1, not 1.0"),
        ({"loss": -0.1}, "loss", "0 or more"),
        ({"duplicate": 1}, "duplicate", "less than 1"),
        ({"loss": float("nan")}, "loss", "not nan"),
        ({"loss_model": "bush"}, "loss_model", 'one of "independent", "tree"'),
        ({"protocol": "timd"}, "protocol", 'did you mean "timed"?'),
        ({"gate": "all"}, "gate", '"majority"'),
        ({"detect": -1}, "detect", "must not be negative"),
        ({"detect": 0}, "detect", "more than 0"),
        ({"detect": 1e-12}, "detect", "to the nanosecond"),
        ({"jitter": -0.001}, "jitter", "must not be negative"),
        ({"duration": float("inf")}, "duration", "not inf"),
        ({"duration": 1e12}, "duration", "at most"),
        ({"token_period": 1e9}, "token_period", "at most 10,000,000 s"),
        ({"token_period": 1e7, "receivers": 100}, "token_period", "a run of 1.63e+10 s or more of virtual time"),
        ({"detect": 1e7}, "detect", "virtual time"),
        ({"messages": 10_000_000, "arrival_rate": 0.001}, "messages", "at most 1,000,000,000 s are possible"),
        ({"arrival_rate": 0}, "arrival_rate", "more than 0"),
        ({"retry": 0.7}, "retry", "2δ_N+X+P = 2·0.375+0+0.05 = 0.8 s, not 0.7 s"),
        ({"token_period": 2.7}, "token_period", "δ_N+2ε+k_r·τ_r = 0.375+2·0+3·0.8 = 2.775 s, not 2.7 s"),
        ({"token_period": 2.774999999}, "token_period", "= 2.775 s, not 2.774999999 s"),
        ({"token_period": 0}, "token_period", "more than 0"),
        ({"token_period": 3, "retries_max": 4}, "token_period", "0.375+2·0+4·0.8 = 3.575 s"),
        ({"release_delay": 2.7}, "release_delay", "at least δ_N+2ε+k_r·τ_r = 0.375+2·0+3·0.8 = 2.775 s"),
        ({"release_delay": 3, "gate": "majority"}, "release_delay", "+(δ_N+2ε)"),
        ({"detect": 0.1, "clock_error": 0.06}, "detect", "2·0.06 = 0.12 s, not 0.1 s"),
        ({"clock_error": 0.2}, "clock_error", "2·0.2 = 0.4 s) is 0.375 s unless given"),
        ({"nack_sets": 10}, "nack_sets", "receivers-1 = 9, not 10"),
        ({"nack_sets": 0}, "nack_sets", "from 1"),
        ({"protocol": "original", "token_ack": 1.2}, "token_ack", "less than token_resend (R_t) = 1.2 s"),
        ({"messages_per_token": 3, "arrival_rate": 1}, "messages_per_token", "leave out one"),
        ({"messages_per_token": 3, "protocol": "original"}, "messages_per_token", "no token period"),
        ({"protocol": "original", "burst": 2}, "burst", "original protocol is simulated without it"),
        ({"protocol": "original", "faults": [{"kind": "crash"}]}, "faults", "without faults"),
        ({"sources": 0}, "sources", "at least 1"),
        ({"ring": ["London"]}, "ring", "at least 2 cities, not 1"),
        ({"ring": []}, "ring", "at least 2 cities"),
        ({"ring": "London"}, "ring", "must be a list of cities"),
        ({"ring": ["London", 3]}, "ring", "name of a city"),
        ({"ring": ["London", "Tokio"]}, "ring", 'unknown city "Tokio"; did you mean "Tokyo"?'),
        ({"ring": ["London", "Tokyo", "LDN"]}, "ring", "London is named twice"),
        ({"ring": ["London", "Tokyo"], "receivers": 3}, "receivers", "as many as ring has cities, 2"),
        ({"ring": ["London", "Tokyo"], "one_way_delay": 0.1}, "one_way_delay", "follow from the distances"),
        ({"traders": ["London"]}, "traders", "exactly two different cities"),
        ({"traders": ["London", "LDN"]}, "traders", "exactly two different cities"),
        ({"traders": ["London", "Paris", "Tokyo"]}, "traders", "exactly two"),
        ({"traders": ["London", "Paris"], "messages": 3}, "messages", "must be even"),
        ({"traders": ["London", "Paris"], "sources": 3}, "sources", "must be even"),
        ({"traders": ["London", "Paris"], "burst": 2}, "burst", "in pairs"),
        ({"exchange": "London"}, "exchange", "two traders"),
        ({"exchange": "Lodnon", "traders": ["London", "Paris"]}, "exchange", 'did you mean "London"?'),
        (
            {"exchange": "London", "traders": ["London", "Paris"], "ring": ["London", "Tokyo"]},
            "exchange",
            "instead of a ring",
        ),
    ],
)
def test_a_key_that_breaks_a_rule_is_named_with_it(keys: dict[str, object], key: str, rule: str) -> None:
    error = refused(**keys)
    assert error.key == key
    assert rule in error.rule
    assert str(error) == f"test.toml: {key}: {error.rule}"


def test_the_shortest_times_are_allowed_exactly() -> None:
    assert read(retry=0.8, token_period=2.775, release_delay=2.775).timing == read().timing


# ---- files


def test_a_syntax_error_names_its_line(tmp_path: Path) -> None:
    file = tmp_path / "broken.toml"
    file.write_text('title = "x"\nloss = = 1\n', encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        load_scenario(file)
    assert caught.value.file == str(file)
    assert caught.value.key.startswith("line 2")
    assert "not valid TOML" in caught.value.rule


@pytest.mark.parametrize(
    "text, line", [(b"loss = ", "line 1"), (b'\n\ntitle = "x', "line 3"), (b"\na = \xff", "line 2")]
)
def test_an_unfinished_or_foreign_file_names_its_line(tmp_path: Path, text: bytes, line: str) -> None:
    file = tmp_path / "broken.toml"
    file.write_bytes(text)
    with pytest.raises(ConfigurationError) as caught:
        load_scenario(file)
    assert caught.value.key.startswith(line)


def test_a_missing_file_is_no_traceback(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        load_scenario(tmp_path / "missing.toml")
    with pytest.raises(ConfigurationError, match="is longer than 1,048,576 bytes"):
        load_scenario("/dev/zero")
    with pytest.raises(ConfigurationError, match="cannot be read: Is a directory"):
        load_scenario(tmp_path)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_scenario_of_the_repository_is_valid_and_says_what_it_shows(file: Path) -> None:
    scenario = load_scenario(file)
    assert scenario.title
    assert file.read_text(encoding="utf-8").startswith("# ")


def test_the_paper_has_a_scenario_for_each_figure() -> None:
    assert {file.stem for file in (SCENARIOS / "paper").glob("*.toml")} >= {
        "original-p0",
        "original-loss",
        "timed-p0-rate10",
        "timed-loss-rate100",
        "recovery-k30",
        "false-reformation",
        "false-reformation-small",
        "exchange-london",
        "ring-arrival",
        "ring-shuffle",
        "clock-error",
    }


# ---- the table of keys


def test_every_key_is_explained_and_has_a_default() -> None:
    names = [key.name for key in KEYS]
    assert len(set(names)) == len(names)
    for key in (*KEYS, *FAULT_KEYS):
        assert key.explanation.endswith("."), key.name
        assert not key.default_text.endswith("."), key.name
        assert key.default is not None or key.otherwise or key.required, key.name
        if key.default is not None:
            Values({key.name: key.default}, (key,), Faults("x", collect=False))
    for text in FAULT_KINDS.values():
        assert text.endswith(".")


def test_every_parameter_of_the_paper_has_a_key() -> None:
    symbols = {key.symbol for key in KEYS}
    assert {"m", "p", "λ", "k", "d", "δ_N", "X", "P", "τ_r", "k_r", "τ_t", "Δ_A", "ε", "k_p"} <= symbols
    assert {"T_a", "R_t", "R_s", "R_n", "L", "W", "K_max"} <= symbols


def test_a_rate_below_all_use_is_refused() -> None:
    assert refused(arrival_rate=1e-300).key == "arrival_rate"
