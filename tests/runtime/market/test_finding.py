"""The market that is meant: by argument, environment, working directory, or because it is the only one that runs."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.runtime.worlds import market_file

import isocast
from isocast.cli.main import main
from isocast.runtime.market.finding import find_market, is_running, running_markets
from isocast.terms.errors import ConfigurationError


@pytest.fixture(autouse=True)
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who runs nothing, in a directory without a market."""
    monkeypatch.delenv("ISOCAST_MARKET", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def test_what_is_given_goes_before_the_environment_the_directory_and_what_runs(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match=r"which market\?.*none runs here.*ISOCAST_MARKET.*up --example"):
        find_market()
    with is_running(empty / "runs.toml"):
        assert find_market() == empty / "runs.toml"
        with pytest.raises(ConfigurationError, match=r"which market\?"):
            find_market(running=False)
        Path("market.toml").touch()
        assert find_market() == Path("market.toml")
        monkeypatch.setenv("ISOCAST_MARKET", "other.toml")
        assert find_market() == Path("other.toml")
        assert find_market("given.toml") == Path("given.toml")


def test_of_several_that_run_none_is_guessed(empty: Path) -> None:
    one, two = empty / "one.toml", empty / "two.toml"
    with is_running(one), is_running(two), is_running(two):
        assert set(running_markets()) == {one, two}
        with pytest.raises(ConfigurationError, match=r"2 markets run here .*one\.toml"):
            find_market()
    assert running_markets() == []
    assert list((empty / "run").iterdir()) == [], "and nothing is left behind"


def test_a_process_that_is_ended_at_once_takes_its_note_away_first(empty: Path) -> None:
    with is_running(empty / "runs.toml") as end:
        assert running_markets() == [empty / "runs.toml"]
        end()
        assert running_markets() == []
        end()


def test_a_market_that_was_killed_runs_no_more(empty: Path) -> None:
    program = """
import sys
from isocast.runtime.market.finding import is_running
with is_running(sys.argv[1]):
    print("up", flush=True)
    sys.stdin.read()
"""
    words = [sys.executable, "-c", program, str(empty / "killed.toml")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        assert running_markets() == [empty / "killed.toml"]
        child.kill()
        child.wait()
        assert running_markets() == []


def test_notes_behind_a_link_are_not_believed(empty: Path) -> None:
    with is_running(empty / "runs.toml"):
        (empty / "run" / "isocast").rename(empty / "elsewhere")
        (empty / "run" / "isocast").symlink_to(empty / "elsewhere")
        assert running_markets() == []


def test_commands_and_programs_find_the_same_market(
    empty: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for command in ("publish --source floor", "listen", "tape", "top --once", "keys check", "ring"):
        assert main(command.split()) == 2
        assert "which market?" in capsys.readouterr().err
    path = market_file(empty)
    monkeypatch.setenv("ISOCAST_MARKET", str(path))
    assert main(["keys", "check"]) == 0
    with isocast.connect() as market:
        assert market.file == path
