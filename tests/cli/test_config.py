"""`isocast config`: check, example, keys."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from isocast.cli.config import PROFILE_HEADERS, config_page, profile_rows
from isocast.cli.main import main
from isocast.runtime.market.file import market_from_mapping
from isocast.runtime.market.keys import FILE_TABLES
from isocast.terms.timing import PROFILES

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "config.md"


@pytest.fixture
def market(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    file = tmp_path / "market.toml"
    assert main(["config", "example", "--slot", "0", "--out", str(file)]) == 0
    assert str(file) in capsys.readouterr().err
    return file


def checked(file: Path, capsys: pytest.CaptureFixture[str], code: int = 0) -> Any:  # noqa: ANN401  # JSON
    assert main(["config", "check", str(file), "--json"]) == code
    return json.loads(capsys.readouterr().out)


# ---- check


def test_the_example_passes_its_check(market: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", str(market)]) == 0
    got = capsys.readouterr()
    assert got.err == ""
    for text in (
        "example: 17 nodes",
        "127.1.0.1",
        "7710-7713",
        "239.255.78.1",
        "δ_N+2ε+k_r·τ_r",
        "2.358 s",
        "27 events",
    ):
        assert text in got.out, text
    assert got.out.endswith(f"{market} is sound; no warnings.\n")


def test_the_same_for_programs(market: Path, capsys: pytest.CaptureFixture[str]) -> None:
    got = checked(market, capsys)
    assert got["sound"] is True
    assert got["warnings"] == []
    london = next(node for node in got["nodes"] if node["name"] == "london")
    assert (london["role"], london["id"], london["address"], london["line"]) == (
        "primary-receiver",
        1,
        "127.1.0.1",
        "239.255.78.1",
    )
    assert {"what": "control of stripe 0", "address": "239.255.77.1"} in got["groups"]
    assert got["times"]["token_period_ns"] == 1_554_000_000
    assert got["times"]["release_delay_ns"] == 2_358_000_000
    values = {entry["symbol"]: entry["value"] for entry in got["formulas"]}
    assert values["Δ_A"] == pytest.approx(2.358)
    assert (got["payload_bytes"], got["events_per_payload"]) == (1368, 27)


def test_warnings_are_shown_and_change_no_exit_code(market: Path, capsys: pytest.CaptureFixture[str]) -> None:
    market.write_text("seal = false\n" + market.read_text(encoding="utf-8"), encoding="utf-8")
    assert main(["config", "check", str(market)]) == 0
    out = capsys.readouterr().out
    assert "warning: seal: payloads travel unencrypted" in out
    assert out.endswith("is sound; 1 warning.\n")
    assert len(checked(market, capsys)["warnings"]) == 1


def test_each_fault_is_one_line_with_file_key_and_rule(market: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = market.read_text(encoding="utf-8").replace('city = "Tokyo"', 'city = "Tokio"').replace("order =", "oder =")
    market.write_text(text, encoding="utf-8")
    assert main(["config", "check", str(market)]) == 2
    got = capsys.readouterr()
    assert got.out == ""
    assert got.err.splitlines() == [
        f'isocast: {market}: ring.oder: unknown key; did you mean "order"?',
        f'isocast: {market}: nodes.tokyo.city: unknown city "Tokio"; did you mean "Tokyo"?',
        f'isocast: {market}: nodes.tokyo-floor.city: unknown city "Tokio"; did you mean "Tokyo"?',
    ]
    faults = checked(market, capsys, code=2)
    assert faults["sound"] is False
    assert [fault["key"] for fault in faults["faults"]] == ["ring.oder", "nodes.tokyo.city", "nodes.tokyo-floor.city"]


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", str(tmp_path / "x.toml")]) == 2
    assert (
        capsys.readouterr().err == f"isocast: {tmp_path / 'x.toml'}: file: cannot be read: No such file or directory\n"
    )


def test_without_multicast_there_are_no_groups_to_show(market: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = market.read_text(encoding="utf-8").replace('#mode = "multicast"', 'mode = "fanout"')
    market.write_text(text, encoding="utf-8")
    assert main(["config", "check", str(market)]) == 0
    assert "Groups" not in capsys.readouterr().out


# ---- example


def test_an_example_never_overwrites(market: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = market.read_bytes()
    assert main(["config", "example", "--out", str(market), "--cities", "London,Paris"]) == 2
    assert "exists already and is not overwritten" in capsys.readouterr().err
    assert market.read_bytes() == before


def test_an_example_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "example", "--out", str(tmp_path / "no" / "x.toml")]) == 2
    assert "cannot be written: No such file or directory" in capsys.readouterr().err


def test_an_example_of_other_cities_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "example", "--cities", "London, Paris,FRA", "--loss", "0.01", "--seed", "4"]) == 0
    got = market_from_mapping(tomllib.loads(capsys.readouterr().out))
    assert got.market is not None
    assert [plan.name for plan in got.market.nodes[:3]] == ["london", "paris", "frankfurt"]
    assert (got.market.impairment.loss, got.market.impairment.seed) == (0.01, 4)


def test_an_unknown_city_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "example", "--cities", "London,Pariss"]) == 2
    assert capsys.readouterr().err == 'isocast: command line: --cities: unknown city "Pariss"; did you mean "Paris"?\n'


# ---- keys and their page


def test_the_page_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "keys", "--markdown"]) == 0
    assert capsys.readouterr().out == PAGE.read_text(encoding="utf-8") == config_page()


def test_every_key_is_listed_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "keys"]) == 0
    table = capsys.readouterr().out
    assert main(["config", "keys", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    page = config_page()
    for known, shown in zip(FILE_TABLES, listed["tables"], strict=True):
        assert [key.name for key in known.keys] == [key["name"] for key in shown["keys"]]
        for key in known.keys:
            assert f"| `{key.name}` |" in page
            assert re.search(rf"^{key.name} ", table, flags=re.MULTILINE)


def test_the_table_of_profiles_is_worked_out_again() -> None:
    """From the numbers on the page alone, by the formulas that stand above them."""
    units = {"s": 1000.0, "ms": 1.0, "µs": 0.001}

    def ms(cell: str) -> float:
        found = re.fullmatch(r"([0-9.]+)(s|ms|µs)", cell)
        assert found, cell
        return float(found[1]) * units[found[2]]

    rows = re.findall(r"^\| (lan|continent|world|ci) \| (.*) \|$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert [name for name, _ in rows] == list(PROFILES) == [row[0] for row in profile_rows()]
    for _, cells in rows:
        row = dict(zip(PROFILE_HEADERS[1:], cells.split(" | "), strict=True))
        retries = int(row["k_r"])
        late = ms(row["δ_N"]) + 2 * ms(row["ε"])
        retry = 2 * ms(row["δ_N"]) + ms(row["P"])
        period = late + retries * retry
        lower = ms(row["δ_S"]) + retries * (2 * ms(row["δ_S"]) + ms(row["P"]))
        assert ms(row["τ_r"]) == pytest.approx(retry)
        assert ms(row["τ_t"]) == pytest.approx(period)
        assert ms(row["Δ_A"]) == pytest.approx(period + late)
        assert ms(row["Δ_A, two layers"]) == pytest.approx(period + late + lower)
        assert ms(row["latency"]) == pytest.approx(ms(row["d"]) + period / 2 + period + late)


def test_the_smallest_market_of_the_page_is_sound() -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", config_page(), flags=re.DOTALL)
    assert market_from_mapping(tomllib.loads(block)).faults == ()
