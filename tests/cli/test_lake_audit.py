"""`isocast lake audit`: verdicts, exit codes and files; what Spark does with it is tested beside the lake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.lake.markets import Market, write_market
from tests.lake.planted import flip_in_place

from isocast.cli.main import main
from isocast.runtime.disk.journal_record import record_path


@pytest.fixture
def market(tmp_path: Path) -> Market:
    return write_market(tmp_path / "market", events=600, stripes=(0,))


def test_a_clean_market_exits_with_0_and_says_so(market: Market, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lake", "audit", "--journals", str(market.path), "--plain"]) == 0
    out = capsys.readouterr().out
    assert "CLEAN: 3 journal keepers, 1 stripe" in out
    assert "tokyo-0 (site1)" in out


def test_a_flipped_bit_exits_with_1_and_is_named_in_every_form(
    market: Market, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, offset = flip_in_place(market.journal(2, 0), 20, 1, "price")
    words = ["lake", "audit", "--journals", str(market.path), "--plain", "--block", "16"]
    assert main([*words, "--json", "--report", str(tmp_path / "audit.md")]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "findings"
    finding = next(each for each in told["findings"] if each["index"] is not None)
    assert (finding["file"], finding["offset"], finding["sequence"], finding["index"], finding["field"]) == (
        str(path),
        offset,
        20,
        1,
        "price",
    )
    page = (tmp_path / "audit.md").read_text(encoding="utf-8")
    assert "stripe 0, sequence 20, event 1, price" in page
    assert main([*words, "--report", str(tmp_path / "audit.html")]) == 1
    assert "london-0 (site2)" in (tmp_path / "audit.html").read_text(encoding="utf-8")
    assert "FINDINGS: " in capsys.readouterr().out


def test_what_cannot_be_judged_exits_with_1_and_is_named_in_every_form(
    market: Market, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for site in market.receivers:
        record_path(market.journal(site, 0), 0, site).unlink()
    words = ["lake", "audit", "--journals", str(market.path), "--plain"]
    assert main([*words, "--report", str(tmp_path / "audit.md")]) == 1
    out = capsys.readouterr().out
    assert "Not judged\n" in out
    assert "UNJUDGED: nothing that was judged is wrong; not judged: nothing early (S12): " in out
    assert "name the market's file by --config" in out
    assert "name the market's file by --config" in (tmp_path / "audit.md").read_text(encoding="utf-8")
    assert main([*words, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["verdict"], told["findings"]) == ("unjudged", [])
    assert [each["law"] for each in told["not_judged"] if each["decides"]] == ["S12"]


@pytest.mark.parametrize(
    "words, rule",
    [
        ([], "--journals: is missing"),
        (["--journals", "/nowhere/at/all"], "no such folder"),
        (["--journals", ".", "--config", "/nowhere.toml"], "cannot be read"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(words: list[str], rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lake", "audit", "--plain", *words]) == 2
    got = capsys.readouterr()
    assert got.out == ""
    assert got.err.count("\n") == 1
    assert rule in got.err


def test_a_block_of_nothing_is_refused(market: Market, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lake", "audit", "--journals", str(market.path), "--plain", "--block", "0"]) == 2
    assert "must be at least 1" in capsys.readouterr().err
