"""`isocast node` as a person meets it: it runs, it stops, and whatever keeps it from running is one line."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import structlog
from tests.runtime.worlds import SMALL, market_file

from isocast.cli.app import app
from isocast.cli.main import main
from isocast.cli.node_run import NodeWish, plain_node
from isocast.runtime.market.file import load_market
from isocast.runtime.market.founding import found_market, is_new
from isocast.terms.errors import NodeFailedError

RING = {name: SMALL[name] for name in ("a", "b", "c", "x", "floor")}


pytestmark = pytest.mark.usefixtures("own_logs")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return market_file(tmp_path, RING)


def refused(capsys: pytest.CaptureFixture[str], code: int, *arguments: str) -> str:
    """The only line that the command prints."""
    assert main(["node", *arguments]) == code
    got = capsys.readouterr()
    assert got.out == ""
    assert got.err.count("\n") == 1, got.err
    assert got.err.startswith("isocast: ")
    return got.err.removeprefix("isocast: ").rstrip("\n")


def test_the_help_shows_a_first_start_and_the_next(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["node", "--help"]) == 0
    out = capsys.readouterr().out
    assert "isocast node --config market.toml --name london --new" in out
    assert out.count("isocast node --config market.toml --name london") == 3


# ---- what keeps it from running


def test_a_name_that_is_not_there(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, 2, "--config", str(config), "--name", "flor") == (
        f'{config}: nodes.flor: there is no such node; did you mean "floor"?'
    )
    assert refused(capsys, 2, "--config", str(config), "--name", "zzz").endswith("there are a, b, c, x, floor")


def test_a_file_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "cannot be read: No such file" in refused(capsys, 2, "--config", str(tmp_path / "none"), "--name", "a")
    assert "cannot be read: Is a directory" in refused(capsys, 2, "--config", str(tmp_path), "--name", "a")
    broken = tmp_path / "broken.toml"
    broken.write_text("name = = 1\n", encoding="utf-8")
    assert f"{broken}: line 1, column 8: not valid TOML" in refused(capsys, 2, "--config", str(broken), "--name", "a")


def test_a_file_with_a_fault(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = config.read_text(encoding="utf-8").replace('role = "primary-source"', 'role = "primary-sauce"')
    config.write_text(text, encoding="utf-8")
    assert "nodes.floor.role" in refused(capsys, 2, "--config", str(config), "--name", "a")


def test_keys_that_are_missing(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = load_market(config).keys_directory
    (keys / "core.key").unlink()
    said = refused(capsys, 2, "--config", str(config), "--name", "floor")
    assert said.startswith(f"{keys / 'core.key'}: file: is missing: isocast keys init makes it")
    shutil.rmtree(keys)
    assert "isocast keys init" in refused(capsys, 2, "--config", str(config), "--name", "floor")


def test_a_port_that_is_taken_may_be_free_the_next_time(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = load_market(config).node("floor")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind((plan.address, plan.port))
        said = refused(capsys, 3, "--config", str(config), "--name", "floor")
    assert said == (
        f"cannot listen on {plan.address}:{plan.port}: Address already in use; another process listens there; stop it,"
        " or choose another port"
    )


@pytest.mark.parametrize("name", ["a", "x"])
def test_a_node_that_votes_and_has_no_data_says_what_that_may_mean(
    config: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, 2, "--config", str(config), "--name", name)
    assert "If it has never run, start it with --new" in said
    assert "with another number" in said
    assert not load_market(config).directory_of(name).exists()


def test_a_node_that_has_run_is_not_new(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = load_market(config).directory_of("a")
    (directory / "log").mkdir(parents=True)
    assert "has run before" in refused(capsys, 2, "--config", str(config), "--name", "a", "--new")


def test_a_node_is_declared_to_join(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["node", "--config", str(config), "--name", "a", "--join", "--declare"]) == 0
    directory = load_market(config).directory_of("a")
    assert capsys.readouterr().out.strip() == f"a is declared to join, in {directory}"
    assert (directory / "joins").exists()
    said = refused(capsys, 2, "--config", str(config), "--name", "a", "--new", "--join")
    assert "--new founds a market, --join enters one that runs" in said


def test_a_node_that_failed_while_it_ran_may_be_started_again(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fails(*_: object) -> None:
        raise NodeFailedError("floor: outbox/segment-1.log: No space left on device")

    monkeypatch.setattr("isocast.runtime.hosts.process.run_node", fails)
    said = refused(capsys, 3, "--config", str(config), "--name", "floor")
    assert said == "floor: outbox/segment-1.log: No space left on device"


# ---- what it is given


def test_the_node_of_that_name_runs_without_what_a_demo_injects(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = '[impairment]\nenabled = true\nloss = 0.1\ndelay = "none"\n'
    config.write_text(config.read_text(encoding="utf-8") + text, encoding="utf-8")
    ran: list[tuple[str, bool]] = []

    async def runs(market: object, plan: object, _: object) -> None:
        ran.append((plan.name, market.impairment.enabled))  # type: ignore[attr-defined]

    monkeypatch.setattr("isocast.runtime.hosts.process.run_node", runs)
    assert main(["node", "--config", str(config), "--name", "a", "--new"]) == 0
    assert main(["node", "-c", str(config), "-n", "floor", "--without-impairment"]) == 0
    assert ran == [("a", True), ("floor", False)]
    assert is_new(load_market(config).directory_of("a"))


def test_a_node_is_declared_new_without_being_started(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = load_market(config).directory_of("a")
    assert main(["node", "--config", str(config), "--name", "a", "--declare"]) == 0
    assert capsys.readouterr().out == f"a is declared new, in {directory}\n"
    assert is_new(directory)
    (directory / "new").unlink()
    (directory / "log").mkdir()
    assert "has run before" in refused(capsys, 2, "--config", str(config), "--name", "a", "--declare")


def test_how_much_it_logs(config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    async def runs(*_: object) -> None:
        log = structlog.get_logger()
        log.debug("a detail")
        log.info("an event")
        log.warning("an alarm")

    monkeypatch.setattr("isocast.runtime.hosts.process.run_node", runs)
    for option, expected in (("--quiet", 1), ("--log-json", 2), ("--verbose", 3)):
        assert main(["node", "--config", str(config), "--name", "floor", option]) == 0
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == expected
        assert json.loads(lines[-1])["event"] == "an alarm"
        assert json.loads(lines[-1])["node"] == "floor"


# ---- a process of its own


def test_it_says_when_it_is_ready_and_ends_in_order_at_sigterm(config: Path, tmp_path: Path) -> None:
    found_market(load_market(config))
    path = str(tmp_path / "ear")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(path)
        ear.settimeout(60)
        command = [sys.executable, "-m", "isocast", "node", "--config", str(config), "--name", "x"]
        environment = {**os.environ, "NOTIFY_SOCKET": path}
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, encoding="utf-8") as process:
            while ear.recv(100) != b"READY=1":
                pass
            process.send_signal(signal.SIGTERM)
            assert ear.recv(100) == b"STOPPING=1"
            _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    events = [json.loads(line)["event"] for line in err.splitlines()]
    assert events[0] == "started"
    assert events[-1] == "stopped"
    assert "ready" in events
    assert not is_new(load_market(config).directory_of("x"))


def test_a_node_without_a_journal_does_not_import_what_only_journals_need() -> None:
    """Dozens start at once on one machine: what the role does not need costs them seconds."""
    script = (
        "import sys, isocast.cli.main, isocast.runtime.hosts.process, isocast.runtime.hosts.source,"
        " isocast.runtime.hosts.reformation\n"
        "heavy = {'numpy', 'pyarrow', 'prometheus_client', 'cyclopts', 'isocast.cli.sim', 'isocast.simulation'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, encoding="utf-8", check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    "words, wish",
    [
        ("--config m.toml --name a", NodeWish(Path("m.toml"), "a")),
        ("--config m.toml --name a --quiet --log-json", NodeWish(Path("m.toml"), "a", quiet=True, log_json=True)),
        ("--config m.toml --name a --without-impairment", NodeWish(Path("m.toml"), "a", without_impairment=True)),
        ("--config m.toml --name a --quite", None),
        ("--config m.toml --name a b", None),
        ("--config m.toml --name --quiet", None),
        ("--name a --config m.toml", None),
        ("--help", None),
    ],
)
def test_what_supervisors_write_needs_no_parser_and_means_the_same(words: str, wish: NodeWish | None) -> None:
    assert plain_node(words.split()) == wish
    if wish is not None:
        _, bound, _ = app.parse_args(["node", *words.split()], exit_on_error=False)
        given = {name: value for name, value in wish._asdict().items() if value}
        assert dict(bound.arguments) == given
