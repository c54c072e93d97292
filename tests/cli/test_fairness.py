"""`isocast fairness entry`: tables, JSON, pictures, and one line for bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.disk.journals import write_of
from tests.studies.entry.test_journals import TOKENS, shuffled, swapped, written
from tests.studies.entry.test_reactions import PAIRS, by_turns

from isocast.cli.main import main

RULES = ["exchange", "arrival", "shuffle", "batch", "hold", "chance"]
CSV = "time_ns,city,release\n0,London,a\n500000,Sydney,a\n9000000000,Sydney,b\n9000000001,Tokyo,b\n"


def answer(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:  # noqa: ANN401  JSON
    assert main(["fairness", "entry", *arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_the_figures_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    """Protocol §11, from the command itself, within .01 of each."""
    got = answer(capsys, "--cities", "London,Sydney", "--reaction", "0ms", "--releases", "60000")
    shares = {one["rule"]: one["pairs"][0]["share"] for one in got["rules"]}
    assert list(shares) == RULES
    expected = {"exchange": 0.993, "arrival": 0.600, "shuffle": 0.503, "batch": 0.503, "hold": 0.5, "chance": 0.5}
    assert shares == pytest.approx(expected, abs=0.01)
    assert got["settings"]["token_period_ns"] == 3_000_000_000


def test_tables_say_who_is_first_and_how_far_from_a_half_each_pair_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fairness", "entry", "--releases", "200"]) == 0
    out = capsys.readouterr().out
    assert "Entry: 2,000 orders in 200 contests" in out
    assert "London before Sydney" in out
    assert "an even share is 0.100" in out
    assert "chance alone is off by 0.0354" in out
    assert sum(line.startswith(("Frankfurt", "Singapore", "Mumbai")) for line in out.splitlines()) > 3
    assert main(["fairness", "entry", "--releases", "200", "--rows", "3"]) == 0
    assert "Distance from ½ of each pair, 3 of 45" in capsys.readouterr().out


def test_the_same_seed_gives_the_same_answer(capsys: pytest.CaptureFixture[str]) -> None:
    one, same, other = (answer(capsys, "--releases", "50", "--seed", seed) for seed in ("4", "4", "5"))
    assert one == same
    assert one["rules"] != other["rules"]


def test_orders_from_a_table(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text(CSV, encoding="utf-8")
    got = answer(capsys, "--orders", str(tmp_path / "orders.csv"), "--jitter", "0ms")
    assert (got["orders"], got["contests"], got["cities"]) == (4, 2, ["London", "Sydney", "Tokyo"])
    exchange = got["rules"][0]
    assert exchange["pairs"][0] == {
        "first": "London", "second": "Sydney", "contests": 1, "share": 1.0, "distance": 0.5, "standard_errors": 1.0,
    }  # fmt: skip


def test_pictures(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    svg, png = tmp_path / "entry.svg", tmp_path / "entry.png"
    arguments = ["fairness", "entry", "--releases", "50", "--cities", "London,Sydney,Tokyo"]
    assert main([*arguments, "--svg", str(svg), "--png", str(png)]) == 0
    text = svg.read_text(encoding="utf-8")
    assert all(f"<!-- {code} -->" in text for code in ("LDN", "SYD", "TYO"))
    assert png.read_bytes().startswith(b"\x89PNG")
    assert f"Written: {svg}" in capsys.readouterr().err
    before = svg.read_bytes()
    assert main([*arguments, "--svg", str(svg)]) == 0
    assert svg.read_bytes() == before, "the same run draws the same file"


@pytest.mark.parametrize(
    "arguments, told",
    [
        (["--cities", "London"], "name two or more"),
        (["--cities", "London,Atlantis"], 'unknown city "Atlantis"'),
        (["--exchange", "Atlantis"], 'unknown city "Atlantis"'),
        (["--pair", "London", "--releases", "2"], "is two cities"),
        (["--hold", "soon"], "--hold"),
        (["--token-period", "0s"], "--token-period"),
        (["--journal", "nowhere"], "no such directory"),
        (["--orders", "nowhere.csv"], "cannot be read"),
        (["--orders", "a.csv", "--journal", "b"], "either --orders FILE or --journal DIR"),
        (["--svg", "no/such/folder/a.svg"], "there is no directory"),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], told: str) -> None:
    assert main(["fairness", "entry", *arguments]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert len(error.strip().splitlines()) == 1


def market(folder: Path) -> str:
    """A file of a market that shuffles, with sources in London and Sydney."""
    nodes = {
        "a": ("primary-receiver", "London"),
        "b": ("primary-receiver", "Frankfurt"),
        "c": ("primary-receiver", "New York"),
        "lse": ("primary-source", "London"),
        "asx": ("primary-source", "Sydney"),
        "x": ("reformation-server", "London"),
    }
    lines = ['name = "entry"', "[timing]", 'profile = "world"', "[ring]", 'order = "shuffle"']
    for place, (name, (role, city)) in enumerate(nodes.items(), 1):
        lines += [f"[nodes.{name}]", f'role = "{role}"', f'city = "{city}"', f'address = "127.9.9.{place}"']
    path = folder / "market.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def test_journals_say_who_was_first_and_what_was_verified(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = str(written(tmp_path / "data", [shuffled()]))
    got = answer(capsys, "--journal", data, "--config", market(tmp_path))
    assert [one["rule"] for one in got["rules"]] == ["released", *RULES]
    assert got["rules"][0]["contests"] == TOKENS
    [found] = got["journals"]["shuffles"].values()
    assert (found["verified"], found["other"], got["journals"]["tokens"]) == (TOKENS, 0, TOKENS)
    [expected] = got["journals"]["expected"]
    assert (expected["first"], expected["second"]) in {("London", "Sydney"), ("Sydney", "London")}
    assert 0.5 < abs(expected["share"] - 0.5) + 0.5 < 0.6
    assert main(["fairness", "entry", "--journal", data, "--config", market(tmp_path)]) == 0
    assert f"{TOKENS} of {TOKENS} tokens with messages of several sources" in capsys.readouterr().out


def test_orders_by_id_are_told_for_every_rule_with_the_error_of_whole_tokens(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_of(tmp_path / "data" / "a" / "journal", 0, 1, by_turns(2))
    arguments = ["--journal", str(tmp_path / "data"), "--config", market(tmp_path), "--by", "id"]
    got = answer(capsys, *arguments, code=1)["journals"]
    assert [(one["rule"], one["contests"], one["tokens"]) for one in got["estimates"]] == [
        (rule, 2 * PAIRS, 2) for rule in ("released", "shuffle", "batch")
    ]
    assert {one["standard_error"] for one in got["estimates"]} == {None}, "three owners, and two tokens"
    assert len({one["expected"] for one in got["estimates"]}) == 1, "this market shuffles anyway"
    assert got["left_out"] == {"opaque_messages": 0, "other_events": 0, "alone": 0, "repeated": 0, "apart": 0}
    assert main(["fairness", "entry", *arguments]) == 1
    out = capsys.readouterr().out
    assert "contests of one token are not independent" in out
    assert "Left out: 0 orders that nobody competed with" in out


def test_journals_without_a_market_say_what_they_can(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = str(written(tmp_path / "data", [shuffled()]))
    got = answer(capsys, "--journal", data)
    assert [one["rule"] for one in got["rules"]] == ["released"]
    assert sorted(got["cities"]) == ["source1", "source2"]
    assert main(["fairness", "entry", "--journal", data]) == 0
    assert "With --config" in capsys.readouterr().out


def test_a_token_out_of_the_order_of_its_key_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    blocks = shuffled()
    data = str(written(tmp_path / "data", [[*blocks[:7], swapped(blocks[7]), *blocks[8:]]]))
    assert main(["fairness", "entry", "--journal", data, "--config", market(tmp_path)]) == 1
    assert "WRONG: the market shuffles, and token 8 is not where its key puts it (F5)" in capsys.readouterr().out
