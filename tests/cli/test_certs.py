"""`isocast certs`: init, node and show, and no secret in any output."""

import json
from pathlib import Path

import pytest

from isocast.cli.main import main
from isocast.runtime.market.example import example_text
from isocast.runtime.market.file import load_market


@pytest.fixture
def market(tmp_path: Path) -> Path:
    file = tmp_path / "market.toml"
    file.write_text(example_text(), encoding="utf-8")
    return file


def run(arguments: str, market: Path, capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    assert main([*arguments.split(), "--config", str(market)]) == code
    got = capsys.readouterr()
    secrets = [*(market.parent / "keys").rglob("*.key"), market.parent / "keys" / "status.token"]
    for path in secrets:
        for secret in path.read_text(encoding="ascii").splitlines():
            assert secret.startswith(("-----", "#")) or secret not in got.out + got.err
    return got.out + got.err


@pytest.mark.parametrize("command", ["certs", "certs init", "certs node", "certs show"])
def test_every_help_shows_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--help"]) == 0
    assert capsys.readouterr().out.count(f"isocast {command}") >= (1 if command == "certs" else 2)


def test_certificates_are_made_once_renewed_by_name_and_shown(market: Path, capsys: pytest.CaptureFixture[str]) -> None:
    count = 1 + len(load_market(market).nodes)
    assert f"{count} made, 0 kept." in run("certs init", market, capsys)
    assert f"0 made, {count} kept." in run("certs init", market, capsys)
    before = json.loads(run("certs show --json", market, capsys))["certificates"]
    name = before[1]["name"]
    assert f"{name}.crt is new: copy it and {name}.key" in run(f"certs node {name} --days 90", market, capsys)
    after = json.loads(run("certs show --json", market, capsys))["certificates"]
    changed = [one["name"] for one, two in zip(before, after, strict=True) if one != two]
    assert changed == [name]
    assert f"{count} certificates, none with a fault." in run("certs show", market, capsys)


def test_a_market_that_leaves_the_machine_gets_certificates_with_its_keys(
    market: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    market.write_text(market.read_text().replace("[network]", '[network]\ntls = "on"', 1))
    assert main(["keys", "init", "--config", str(market)]) == 0
    assert "none with a fault" in run("certs show", market, capsys)


def test_what_is_missing_is_told_by_the_exit_code(market: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certs", "show", "--config", str(market)]) == 1
    assert "is missing: isocast certs init makes it" in " ".join(capsys.readouterr().out.split())
    assert main(["certs", "node", "nobody", "--config", str(market)]) == 2
    assert "there is no node 'nobody'" in " ".join(capsys.readouterr().err.split())
