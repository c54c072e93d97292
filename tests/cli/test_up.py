"""`isocast up` as a person and a program meet it, mostly with nodes of paper: what it says, and what it leaves."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep

import pytest
from tests.runtime.worlds import SMALL, market_file, trades

from isocast.cli.main import main
from isocast.cli.up import ending, next_steps
from isocast.runtime.client.publisher import Publisher
from isocast.runtime.market.file import load_market
from isocast.runtime.market.finding import is_running, running_markets
from isocast.runtime.market.founding import is_new, joins
from isocast.runtime.market.model import GuestTable
from isocast.runtime.operate.supervisor import Child

RING = {name: SMALL[name] for name in ("a", "b", "c", "x", "floor")}
NAMES = tuple(RING)
SAY = """
import os, signal, socket, sys, time
def say(text):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.sendto(text.encode(), os.environ["NOTIFY_SOCKET"])
def sleep():
    while True: time.sleep(60)
"""
READY = "say('READY=1')\nsleep()\n"
SILENT = "say('STATUS=not on a ring yet')\nsleep()\n"
REFUSES = "print('isocast: market.toml: nodes.a: a rule', file=sys.stderr)\nsys.exit(2)\n"
STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + READY
DRIVER = """
import json, sys
from isocast.runtime.operate import supervisor
roles = json.loads(sys.argv[1])
supervisor.node_command = lambda config, name, *options: (sys.executable, "-I", "-S", "-c", roles[name], *options)
from isocast.cli import up
up._NURSERY_FROM = 100  # Scripts start sooner than the nursery would.
from isocast.cli.main import main
sys.exit(main(["up", *sys.argv[2:]]))
"""
PATIENCE_S = 120


def test_the_example_is_made_once_with_its_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`isocast up --example` is all that a newcomer needs; what is there is kept."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ISOCAST_MARKET", raising=False)
    assert main(["up", "--example", "--only", "nobody"]) == 2
    assert "nodes.nobody" in capsys.readouterr().err
    made = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {path.name for path in made} >= {"market.toml", "core.key", "edge.key"}
    assert main(["up", "--example", "--only", "nobody"]) == 2
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == made


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return market_file(tmp_path, RING)


def command(config: Path, *options: str, nodes: Mapping[str, str] = {}) -> list[str]:
    """`isocast up` whose nodes are scripts: READY unless said otherwise."""
    scripts = {name: SAY + nodes.get(name, READY) for name in NAMES}
    return [sys.executable, "-c", DRIVER, json.dumps(scripts), "--config", str(config), *options]


class Up:
    """A running `isocast up --json`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.events: list[dict[str, object]] = []
        self.err = ""

    def until(self, event: str, count: int = 1) -> dict[str, object]:
        """Read on until an event was told so often in all."""
        assert self.process.stdout is not None
        while sum(one["event"] == event for one in self.events) < count:
            line = self.process.stdout.readline()
            assert line, f"ended before {event}: {self.events}"
            self.events.append(json.loads(line))
        return next(one for one in reversed(self.events) if one["event"] == event)

    def end(self, *signals: signal.Signals) -> int:
        for number in signals:
            self.process.send_signal(number)
        out, self.err = self.process.communicate(timeout=PATIENCE_S)
        self.events += [json.loads(line) for line in out.splitlines()]
        return self.process.returncode

    def told(self, event: str) -> list[object]:
        """The nodes of which an event was told, in order."""
        return [one.get("node") for one in self.events if one["event"] == event]


@contextmanager
def running(arguments: list[str]) -> Iterator[Up]:
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8") as process:
        up = Up(process)
        try:
            yield up
        finally:
            if process.poll() is None:
                process.terminate()
                process.communicate(timeout=PATIENCE_S)
    for pid in [one["pid"] for one in up.events if one["event"] == "starting"]:
        assert isinstance(pid, int)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


# ---- what it says


def test_a_program_hears_of_everything_in_lines_of_json(config: Path) -> None:
    with running(command(config, "--json")) as up:
        whole = up.until("all-ready")
        assert up.end(signal.SIGTERM) == 0
    assert [one["event"] for one in up.events[:2]] == ["founded", "begins"]
    assert sorted(map(str, up.told("starting"))) == sorted(map(str, up.told("ready"))) == sorted(NAMES)
    assert sorted(map(str, up.told("stopped"))) == sorted(NAMES)
    assert whole["next"] == next_steps(load_market(config), config, NAMES)
    assert all("time" in one for one in up.events)
    assert up.err == ""
    assert all(is_new(load_market(config).directory_of(name)) for name in NAMES)


def test_while_it_runs_its_market_is_found_without_a_name(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    with running(command(config, "--json")) as up:
        up.until("all-ready")
        assert running_markets() == [config]
        assert up.end(signal.SIGTERM) == 0
    assert running_markets() == []


def test_a_person_reads_sentences_and_what_to_try_next(config: Path) -> None:
    with subprocess.Popen(command(config), stderr=subprocess.PIPE, encoding="utf-8") as process:
        assert process.stderr is not None
        lines: list[str] = []
        while not lines or "Ctrl-C stops" not in lines[-1]:
            lines.append(process.stderr.readline())
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    said = "".join(lines)
    assert process.returncode == 0
    market = load_market(config)
    assert lines[0] == f"{market.name}: a new market, in {market.data_directory}\n"
    assert "5 nodes to start" in lines[1]
    assert lines[2] == f"durability {market.durability}: {market.durability.meaning}.\n"
    assert all(f"{name} is ready (" in said for name in NAMES)
    assert " is ready (5 of 5)" in said
    for step in next_steps(market, config, NAMES):
        assert f"    {step}\n" in said
    assert all(f"{name} has stopped\n" in rest for name in NAMES)


def test_next_steps_are_commands_that_exist_and_can_work(tmp_path: Path) -> None:
    path = market_file(tmp_path, SMALL)
    market = load_market(path)
    assert next_steps(market, path, list(market.by_name))[2] == f"isocast listen --config {path}"
    market = replace(market, guests=GuestTable(allowed=False))
    all_steps = next_steps(market, path, list(market.by_name))
    assert all_steps[0] == f"isocast top --config {path}"
    assert all_steps[1].endswith(f"| isocast publish --config {path} --source floor")
    assert all_steps[2] == f"isocast journal cat {market.directory_of('a') / 'journal'}", "bank has its own process"
    some = next_steps(market, path, ["a", "b"])
    assert some == [f"isocast top --config {path}", f"isocast listen --config {path}"]
    for step in [*all_steps, *some]:
        words = step.rpartition("| ")[2].split()
        assert words[0] == "isocast"
        assert main([*words[1 : 3 if words[1] == "journal" else 2], "--help"]) == 0


def test_who_is_waited_for_is_said_now_and_then(config: Path) -> None:
    script = DRIVER.replace("sys.exit(main", "up._LOOK_S = 0.1\nsys.exit(main")
    arguments = command(config, "--json", nodes={"b": SILENT})
    with running([*arguments[:2], script, *arguments[3:]]) as up:
        while up.until("waiting", len(up.told("waiting")) + 1)["why"] != "not on a ring yet":
            pass
        assert up.end(signal.SIGTERM) == 0
    assert up.told("ready").count("b") == 0
    assert "all-ready" not in [one["event"] for one in up.events]


# ---- what goes wrong with nodes


def test_a_node_that_dies_is_started_again(config: Path) -> None:
    with running(command(config, "--json")) as up:
        up.until("all-ready")
        pid = next(one["pid"] for one in up.events if one["event"] == "starting" and one["node"] == "b")
        assert isinstance(pid, int)
        os.kill(pid, signal.SIGKILL)
        ended = up.until("ended")
        assert (ended["node"], ended["exit_code"]) == ("b", -signal.SIGKILL)
        assert up.until("starting", 6)["node"] == "b"
        assert up.until("ready", 6)["node"] == "b"
        assert up.end(signal.SIGTERM) == 0


def test_a_node_that_refuses_is_named_with_its_reason_and_the_others_go_on(config: Path, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    with running(command(config, "--json", "--logs", str(logs), nodes={"a": REFUSES})) as up:
        refused = up.until("refused")
        assert (refused["node"], refused["why"]) == ("a", "isocast: market.toml: nodes.a: a rule")
        up.until("ready", 4)
        assert up.end(signal.SIGTERM) == 1
    assert up.told("starting").count("a") == 1
    assert sorted(path.name for path in logs.iterdir()) == sorted(f"{name}.log" for name in NAMES)


def test_when_all_refuse_there_is_nothing_to_watch(config: Path) -> None:
    with running(command(config, "--json", nodes=dict.fromkeys(NAMES, REFUSES))) as up:
        assert up.end() == 1
    assert len(up.told("refused")) == 5
    assert up.err.count("a rule") == 5


# ---- how it ends


def test_the_second_ctrl_c_does_not_wait(config: Path) -> None:
    arguments = command(config, "--json", nodes={"b": STUBBORN})
    endless = DRIVER.replace("sys.exit(main", "supervisor.STOP_S = 3_600\nsys.exit(main")
    with running([*arguments[:2], endless, *arguments[3:]]) as up:
        up.until("all-ready")
        up.process.send_signal(signal.SIGINT)
        up.until("stopped", 4)
        assert up.end(signal.SIGINT) == 0
    assert up.told("killing") == [None]
    assert next(one["exit_code"] for one in up.events if (one["event"], one.get("node")) == ("stopped", "b")) == -9


def test_it_can_be_stopped_while_it_starts(config: Path) -> None:
    with running(command(config, "--json", nodes=dict.fromkeys(NAMES, SILENT))) as up:
        up.until("starting", 2)
        assert up.end(signal.SIGTERM) == 0


def test_it_ends_by_itself_after_some_seconds(config: Path) -> None:
    with running(command(config, "--json", "--seconds", "0.2")) as up:
        assert up.end() == 0
    assert "stopping" in [one["event"] for one in up.events]


def test_a_terminal_that_is_closed_ends_it_in_order(config: Path) -> None:
    with running(command(config, "--json")) as up:
        up.until("all-ready")
        assert up.end(signal.SIGHUP) == 0
    assert len(up.told("stopped")) == 5


def test_when_nobody_reads_any_more_it_goes_on(config: Path, tmp_path: Path) -> None:
    """`isocast up --json | head -1`: the reader has gone, the market has not."""
    done = tmp_path / "done"
    late = f"time.sleep(0.3)\nsay('READY=1')\nopen({str(done)!r}, 'w').close()\nsleep()\n"
    with running(command(config, "--json", nodes={"c": late})) as up:
        up.until("starting", 1)
        assert up.process.stdout is not None
        up.process.stdout.close()
        until = monotonic() + PATIENCE_S
        while not done.exists():
            assert monotonic() < until
            assert up.process.poll() is None
            sleep(0.01)
        up.process.send_signal(signal.SIGTERM)
        assert up.process.stderr is not None
        err = up.process.stderr.read()
        assert up.process.wait(PATIENCE_S) == 0, err
    assert err == ""


def test_without_any_output_it_runs_all_the_same(config: Path) -> None:
    arguments = command(config, "--seconds", "0.3")
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" >&- 2>&- <&-', "sh", *arguments], check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 0


# ---- which nodes


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["up", *arguments]) == 2
    got = capsys.readouterr()
    assert got.out == ""
    assert got.err.count("\n") == 1, got.err
    return got.err


def test_only_some_nodes_and_only_if_somebody_said_that_they_are_new(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On one of several machines an empty disk may be a lost one."""
    assert "If it has never run, start it with --new" in refused(
        capsys, "--config", str(config), "--only", "a", "floor"
    )
    assert not load_market(config).data_directory.exists()
    with running(command(config, "--json", "--only", "a", "floor", "--new")) as up:
        up.until("all-ready")
        assert up.end(signal.SIGTERM) == 0
    assert set(up.told("starting")) == {"a", "floor"}
    market = load_market(config)
    assert [path.name for path in sorted(market.data_directory.iterdir())] == ["a", "floor"]


def test_new_nodes_that_have_run_are_refused(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (load_market(config).directory_of("b") / "log").mkdir(parents=True)
    assert "has run before" in refused(capsys, "--config", str(config), "--only", "a", "b", "--new")


def test_nodes_that_join_are_declared_and_refused_if_they_have_run(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    market = load_market(config)
    (market.directory_of("b") / "log").mkdir(parents=True)
    assert "start it without --join" in refused(capsys, "--config", str(config), "--only", "b", "--join", "b")
    assert 'did you mean "floor"?' in refused(capsys, "--config", str(config), "--join", "flor")
    # The others of this machine have no data either, and are not declared: the one that joins is.
    assert "a: has no data here" in refused(capsys, "--config", str(config), "--only", "a", "x", "--join", "x")
    assert joins(market.directory_of("x"))


def test_a_name_that_is_not_there_and_keys_that_are_missing(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 'did you mean "floor"?' in refused(capsys, "--config", str(config), "--only", "flor")
    (load_market(config).keys_directory / "edge.key").unlink()
    assert "edge.key: file: is missing: isocast keys init makes it" in refused(capsys, "--config", str(config))
    assert not load_market(config).data_directory.exists()


@pytest.mark.parametrize(
    "code, words",
    [(0, "ended with exit code 0"), (3, "ended with exit code 3 (no room)"), (-9, "was ended by SIGKILL")],
)
def test_how_a_process_ended_in_words(code: int, words: str) -> None:
    child = Child("a", (), {}, exit_code=code, status="no room" if code else "")
    assert ending(child) == words


# ---- the real thing


def test_a_real_market_runs_survives_a_kill_and_leaves_nothing(config: Path) -> None:
    arguments = [sys.executable, "-m", "isocast", "up", "--config", str(config), "--json"]
    with running(arguments) as up:
        up.until("all-ready")
        _publish(config, 1)
        pid = next(one["pid"] for one in up.events if one["event"] == "starting" and one["node"] == "floor")
        assert isinstance(pid, int)
        os.kill(pid, signal.SIGKILL)
        _publish(config, 101)
        up.until("ready", 6)
        assert up.end(signal.SIGTERM) == 0, up.err
    assert "Traceback" not in up.err
    stopped = [one["exit_code"] for one in up.events if one["event"] == "stopped"]
    assert stopped == [0] * 5


@pytest.mark.long
def test_when_what_nodes_are_forked_from_is_killed_they_come_back_without_it(config: Path) -> None:
    with running([sys.executable, "-m", "isocast", "up", "--config", str(config), "--json"]) as up:
        up.until("all-ready")
        pid = next(one["pid"] for one in up.events if one["event"] == "starting")
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        os.kill(int(stat[1]), signal.SIGKILL)
        up.until("ready", 10)
        _publish(config, 1)
        assert up.end(signal.SIGTERM) == 0, up.err


@pytest.mark.parametrize(
    "names, who", [(None, "every node of {} runs"), (("a", "b"), "a, b of {} run")], ids=["all", "some"]
)
def test_nodes_that_run_already_are_named_in_one_sentence(
    config: Path, names: tuple[str, ...] | None, who: str, capsys: pytest.CaptureFixture[str]
) -> None:
    market = load_market(config)
    with ExitStack() as opened:
        for plan in market.nodes:
            if plan.start and (names is None or plan.name in names):
                held = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                held.bind((plan.address, plan.port))
        with is_running(config):
            assert main(["up", "--config", str(config)]) == 3
    got = capsys.readouterr()
    assert got.err.count("\n") == 1
    assert f"{who.format(market.name)} already, by `isocast up` or `isocast node` of {config}" in got.err
    assert not market.data_directory.exists(), "and nothing was founded"


def test_a_seat_that_is_kept_for_listeners_is_not_started(tmp_path: Path) -> None:
    nodes = {**SMALL, "seat": {"role": "customer", "lines": ["a", "b"], "start": False}}
    path = market_file(tmp_path, nodes)
    scripts = json.dumps(dict.fromkeys(nodes, SAY + READY))
    with running([sys.executable, "-c", DRIVER, scripts, "--config", str(path), "--json"]) as up:
        whole = up.until("all-ready")
        assert up.end(signal.SIGTERM) == 0
    assert set(up.told("starting")) == set(SMALL)
    assert f"isocast listen --config {path}" in str(whole["next"])


def _publish(config: Path, first: int) -> None:
    async def work() -> None:
        async with Publisher(config, "floor") as publisher:
            await publisher.publish(trades(100, first_id=first))

    asyncio.run(asyncio.wait_for(work(), PATIENCE_S))
