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


@pytest.fixture
def pinned(market: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A market that leaves its machine, with keys: its roster pins its certificates."""
    market.write_text(market.read_text().replace("[network]", '[network]\ntls = "on"', 1))
    assert main(["keys", "init", "--config", str(market)]) == 0
    capsys.readouterr()
    return market


def test_a_renewed_certificate_is_pinned_beside_the_old_one_where_the_root_is(
    pinned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = load_market(pinned).nodes[0].origin

    def pins() -> list[str]:
        members = json.loads(run("keys show --json", pinned, capsys))["members"]
        return next(str(one["certificate"]).split() for one in members if one["name"] == name)

    (old,) = pins()
    said = run(f"certs node {name}", pinned, capsys)
    assert "Roster 2 pins it beside the one before. First: roster.bin to every machine; isocast keys apply" in said
    new, kept = pins()
    assert kept == old != new
    run(f"keys roster --pin {name} --pin-only", pinned, capsys)
    assert pins() == [new]
    assert "none with a fault" in run("certs show", pinned, capsys)
    (pinned.parent / "keys" / "root.key").unlink()
    assert f"First, where root.key is, with {name}.crt: isocast keys roster --pin {name}" in run(
        f"certs node {name}", pinned, capsys
    )
    assert "is not one that roster 3 pins" in " ".join(run("certs show", pinned, capsys, 1).split())


def test_a_market_that_pins_nothing_is_told_by_config_check_and_how_to_pin(
    pinned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def warnings() -> str:
        assert main(["config", "check", str(pinned), "--json"]) == 0
        return " ".join(json.loads(capsys.readouterr().out)["warnings"])

    assert "pins no certificate" not in warnings()
    run("keys roster --unpin", pinned, capsys)
    assert "It pins no certificate." in run("keys show", pinned, capsys)
    assert "the roster pins no certificate: whoever has the authority's key can show one" in warnings()
    assert "isocast keys roster --pin all" in warnings()
    run("keys roster --pin all", pinned, capsys)
    assert "pins no certificate" not in warnings()


@pytest.mark.parametrize(
    "options, rule",
    [
        ("--pin-only", "--pin-only: needs --pin"),
        ("--pin all --unpin", "--unpin: pins nothing any more: leave out --pin"),
        ("--pin nobody", 'has the name "nobody"'),
        ("--pin operator", "copy the certificate of operator here, without its key"),
    ],
)
def test_pins_that_cannot_be_are_refused_in_one_sentence(
    pinned: Path, capsys: pytest.CaptureFixture[str], options: str, rule: str
) -> None:
    assert rule in run(f"keys roster {options}", pinned, capsys, 2)


def test_without_certificates_there_is_nothing_to_pin(market: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "init", "--config", str(market)]) == 0
    assert main(["keys", "roster", "--pin", "all", "--config", str(market)]) == 2
    assert "no certificate is here to pin: isocast certs init makes them" in capsys.readouterr().err


def test_what_is_missing_is_told_by_the_exit_code(market: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certs", "show", "--config", str(market)]) == 1
    assert "is missing: isocast certs init makes it" in " ".join(capsys.readouterr().out.split())
    assert main(["certs", "node", "nobody", "--config", str(market)]) == 2
    assert "there is no node 'nobody'" in " ".join(capsys.readouterr().err.split())
