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
SIGNING = ["root.key", "revoke.key", "roster.bin"]


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


def test_keys_are_made_once_and_then_kept(market: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "25 made, 0 kept." in run("init", market, capsys)
    before = {name: (market.parent / "keys" / name).read_bytes() for name in NAMES}
    out = run("init", market, capsys)
    assert "0 made, 25 kept." in out
    assert out.count("kept: it exists") == 25
    assert {name: (market.parent / "keys" / name).read_bytes() for name in NAMES} == before


def test_init_for_programs(market: Path, capsys: pytest.CaptureFixture[str]) -> None:
    got = json.loads(run("init --json", market, capsys))
    assert got["directory"] == str(market.parent / "keys")
    assert all(file["made"] for file in got["files"])
    names = [file["name"] for file in got["files"]]
    assert (names[:6], names[-3:]) == (NAMES, SIGNING)
    assert got["files"][5]["nodes"] == ["london-floor", "london-broker"]


def test_check_is_fine_or_exit_1(market: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "25 files, 25 with a fault." in run("check", market, capsys, code=1)
    run("init", market, capsys)
    out = run("check", market, capsys)
    assert "25 files, none with a fault." in out
    assert "take it offline: no node needs it" in out
    (market.parent / "keys" / "edge.key").chmod(0o644)
    assert "0644 lets others read it: chmod 600" in run("check", market, capsys, code=1)
    run("check --node reformer-1", market, capsys)
    got = json.loads(run("check --node bank --json", market, capsys, code=1))
    assert [file["name"] for file in got["files"]] == ["edge.key", "roster.bin"]


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


# ---- rosters


def keys_of(market: Path) -> Path:
    return market.parent / "keys"


def members(market: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, str]]:
    got = json.loads(run("show --json", market, capsys))
    return {member["name"]: member for member in got["members"]}


def test_show_says_who_is_who(market: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("init", market, capsys)
    out = run("show", market, capsys)
    assert "example: roster 1, root " in out
    assert "16 identities, 0 keys revoked for good." in out
    london = members(market, capsys)["london"]
    assert (london["role"], london["stripes"], london["state"]) == ("primary-receiver", "0", "fine")


def test_a_rotated_key_is_listed_and_used(market: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("init", market, capsys)
    before = members(market, capsys)["london"]["fingerprint"]
    assert "in roster 2. Next: isocast keys apply" in run("rotate london", market, capsys)
    after = members(market, capsys)["london"]["fingerprint"]
    assert after != before
    got = json.loads(run("check --node london --json", market, capsys))
    assert after in [file["fingerprint"] for file in got["files"]]
    run("rotate london", market, capsys)
    assert members(market, capsys)["london"]["fingerprint"] not in (before, after)
    run("check --node london", market, capsys)


def test_a_revoked_key_is_of_no_use_until_another_is_made(market: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("init", market, capsys)
    out = run("revoke tokyo", market, capsys)
    assert "The key of tokyo is revoked: " in out
    assert "No node of this market runs here: they read it when they start." in out
    assert members(market, capsys)["tokyo"]["state"] == "revoked"
    assert "the key of tokyo was revoked: isocast keys rotate tokyo" in run("check --node tokyo", market, capsys, 1)
    run("rotate tokyo", market, capsys)
    assert members(market, capsys)["tokyo"]["state"] == "fine"
    assert "1 key revoked for good." in run("show", market, capsys)
    run("check", market, capsys)


def test_a_root_that_is_offline_signs_elsewhere(
    market: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run("init", market, capsys)
    stick = tmp_path / "stick" / "root.key"
    stick.parent.mkdir(mode=0o700)
    (keys_of(market) / "root.key").rename(stick)
    assert main(["keys", "roster", "--extend", "all", "--config", str(market)]) == 2
    assert "root.key: root: is not here, and the roster has to change: bring it" in capsys.readouterr().err
    assert "its request is london.request" in run("rotate london", market, capsys)
    out = run("roster --add london.request --unsigned next.roster", market, capsys)
    assert "Wrote roster 2 to next.roster. Next, where root.key is: isocast keys sign next.roster" in out
    assert main(["keys", "apply", "next.roster", "--config", str(market)]) == 2
    assert "roster 2 is not signed: isocast keys sign signs it" in capsys.readouterr().err
    assert main(["keys", "sign", "next.roster", "--root", str(stick)]) == 0
    assert "Signed roster 2: next.roster. Next, on each machine:" in capsys.readouterr().out
    run("apply next.roster", market, capsys)
    assert json.loads(run("show --json", market, capsys))["serial"] == 2
    run("check --node london", market, capsys)


def test_the_first_roster_from_requests_of_other_machines(
    market: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No private key travels: each is made where it is used."""
    monkeypatch.chdir(tmp_path)
    elsewhere = tmp_path / "elsewhere" / "market.toml"
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(market.read_bytes())
    names = ["london", "new-york", "tokyo", "singapore", "sao-paulo", "paris", "toronto", "reformer-1", "reformer-2"]
    names += ["operator", "archive", "box-office", "london-floor", "new-york-floor", "tokyo-floor", "london-broker"]
    for name in names[1:]:
        run(f"rotate {name}", elsewhere, capsys)
    (keys_of(market)).mkdir(mode=0o700)
    asked = " ".join(f"--add {name}.request" for name in names[1:])
    assert main(["keys", "roster", *asked.split(), "--config", str(market)]) == 2
    assert (
        "no key of london is here: isocast keys rotate NODE makes a request on its machine" in capsys.readouterr().err
    )
    run("rotate london", elsewhere, capsys)
    run(f"roster {asked} --add london.request", market, capsys)
    assert sorted(path.name for path in keys_of(market).glob("*.key")) == ["revoke.key", "root.key"]
    run(f"apply {keys_of(market) / 'roster.bin'}", elsewhere, capsys)
    run("init", elsewhere, capsys)
    run("check", elsewhere, capsys)


def test_a_new_revoke_key_lifts_what_the_stolen_one_revoked(market: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("init", market, capsys)
    run("revoke tokyo", market, capsys)
    run("roster --new-revoke-key", market, capsys)
    assert members(market, capsys)["tokyo"]["state"] == "fine"
    run("revoke tokyo", market, capsys)
    assert members(market, capsys)["tokyo"]["state"] == "revoked"


def test_validity_is_extended(market: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("init", market, capsys)
    run("roster --extend london --days 2000", market, capsys)
    found = members(market, capsys)
    assert found["london"]["until"] > found["tokyo"]["until"]
    assert "nothing to change" in run("roster", market, capsys)
    run("roster --extend all --days 10", market, capsys)
    assert {member["state"] for member in members(market, capsys).values()} == {"ends soon"}
    assert "16 keys end within 10 days" in run("check", market, capsys)


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        ("rotate lodnon", 'nobody who signs in {market} has the name "lodnon"; did you mean "london"?'),
        ("rotate bank", 'nobody who signs in {market} has the name "bank"'),
        ("revoke lodnon", 'roster 1 lists nobody with the name "lodnon"; did you mean "london"?'),
        ("revoke tokyo --key {keys}/identity-paris.key", "is neither the root of the roster nor its revoke key"),
        ("roster --add {keys}/roster.bin", "this is no request of an identity: isocast keys rotate makes one"),
        ("roster --add {keys}/nothing", "is missing: copy it from where it was made"),
        ("roster --extend lodnon", 'nobody who signs in {market} has the name "lodnon"'),
        ("apply {keys}/core.key", "this is no roster: it begins otherwise"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: str, sentence: str, market: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("init", market, capsys)
    words = arguments.format(keys=keys_of(market)).split()
    assert main(["keys", *words, "--config", str(market)]) == 2
    err = capsys.readouterr().err
    assert sentence.format(market=market) in err
    assert err.count("\n") == 1


def test_without_signatures_there_is_no_roster(market: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = example_text()
    assert "#signatures = true" in text
    market.write_text(text.replace("#signatures = true", "signatures = false"), encoding="utf-8")
    assert main(["keys", "show", "--config", str(market)]) == 2
    assert "security.signatures: is false: this market has no roster" in capsys.readouterr().err
