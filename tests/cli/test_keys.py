"""`isocast keys`: init and check, and no key in any output."""

import json
from pathlib import Path

import pytest

from isocast.cli.main import main
from isocast.runtime.market.example import example_text

NAMES = [
    "core.key",
    "edge.key",
    "source-london-floor.key",
    "source-new-york-floor.key",
    "source-tokyo-floor.key",
    "source-london-broker.key",
]


@pytest.fixture
def market(tmp_path: Path) -> Path:
    file = tmp_path / "market.toml"
    file.write_text(example_text(), encoding="utf-8")
    return file


def run(arguments: str, market: Path, capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    assert main(["keys", *arguments.split(), "--config", str(market)]) == code
    got = capsys.readouterr()
    for path in (market.parent / "keys").glob("*.key"):
        secret = path.read_text(encoding="ascii").splitlines()[-1]
        assert secret not in got.out + got.err
    assert got.err == ""
    return got.out


@pytest.mark.parametrize("command", ["keys", "keys init", "keys check"])
def test_every_help_shows_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--help"]) == 0
    assert capsys.readouterr().out.count(f"isocast {command}") >= (1 if command == "keys" else 2)


def test_keys_are_made_once_and_then_kept(market: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "6 made, 0 kept." in run("init", market, capsys)
    before = {name: (market.parent / "keys" / name).read_bytes() for name in NAMES}
    out = run("init", market, capsys)
    assert "0 made, 6 kept." in out
    assert out.count("kept: it exists") == 6
    assert {name: (market.parent / "keys" / name).read_bytes() for name in NAMES} == before


def test_init_for_programs(market: Path, capsys: pytest.CaptureFixture[str]) -> None:
    got = json.loads(run("init --json", market, capsys))
    assert got["directory"] == str(market.parent / "keys")
    assert [(file["name"], file["made"]) for file in got["files"]] == [(name, True) for name in NAMES]
    assert got["files"][5]["nodes"] == ["london-floor", "london-broker"]


def test_check_is_fine_or_exit_1(market: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "6 files, 6 with a fault." in run("check", market, capsys, code=1)
    run("init", market, capsys)
    assert "6 files, none with a fault." in run("check", market, capsys)
    (market.parent / "keys" / "edge.key").chmod(0o644)
    assert "0644 lets others read it: chmod 600" in run("check", market, capsys, code=1)
    run("check --node reformer-1", market, capsys)
    got = json.loads(run("check --node bank --json", market, capsys, code=1))
    assert [file["name"] for file in got["files"]] == ["edge.key"]


def test_a_node_that_is_not_there(market: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "check", "--config", str(market), "--node", "lodnon"]) == 2
    expected = f'isocast: command line: --node: there is no node "lodnon" in {market}; did you mean "london"?\n'
    assert capsys.readouterr().err == expected


def test_a_bad_market_has_no_keys(market: Path, capsys: pytest.CaptureFixture[str]) -> None:
    market.write_text("seal = 1\n", encoding="utf-8")
    assert main(["keys", "init", "--config", str(market)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"isocast: {market}: seal: must be true or false, not 1 (and 2 more: ")
    assert err.count("\n") == 1
    assert not (market.parent / "keys").exists()
