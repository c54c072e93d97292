"""A lab that runs by itself, commanded through its control socket."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.trials.lab.programs import ECHO, python

from isocast.terms.errors import ConfigurationError
from isocast.trials.lab.lab import RunDirectory
from isocast.trials.lab.nodes import LabNode, NodeState
from isocast.trials.lab.session import LabSession, SessionReport, ask_lab, run_session
from isocast.trials.lab.world import LabWorld, WorldSettings, make_world

PATIENCE_S = 90.0

pytestmark = pytest.mark.usefixtures("machine")

READY = """
import os, signal, socket, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("hello", flush=True)
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
    s.sendto(b"STATUS=looking round\\nREADY=1", os.environ["NOTIFY_SOCKET"])
while True:
    signal.pause()
"""
STUBBORN = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
while True:
    signal.pause()
"""


def two_sites() -> LabWorld:
    return make_world({"ny": "New York", "ldn": "London"}, WorldSettings(scale=0.1))


def commanded(directory: Path, nodes: list[LabNode], story: Callable[[Callable[..., Any]], None]) -> SessionReport:
    """Run a session here while a story commands it from another thread; its failure is ours."""
    failures: list[BaseException] = []

    def tell() -> None:
        try:
            story(lambda command, **parts: ask_lab(directory, command, **parts))
        except BaseException as error:  # noqa: BLE001  # handed over
            failures.append(error)
        finally:
            ask_lab(directory, "down")

    teller = threading.Thread(target=tell)
    report = run_session(two_sites(), nodes, directory, began=lambda _: teller.start())
    teller.join()
    if failures:
        raise failures[0]
    return report


def state_of(ask: Callable[..., Any], name: str) -> str:
    return str(next(node["state"] for node in ask("status")["nodes"] if node["name"] == name))


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def process_state(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]


def test_nodes_live_and_die_by_command(tmp_path: Path) -> None:
    nodes = [LabNode("a", "ny", tuple(python(READY))), LabNode("b", "ldn", tuple(python(ECHO, "10.77.2.1")))]

    def story(ask: Callable[..., Any]) -> None:
        eventually(lambda: state_of(ask, "a") == "ready")
        assert state_of(ask, "b") == "running"
        first = next(node["process"] for node in ask("status")["nodes"] if node["name"] == "a")
        ask("stop", node="a")
        assert state_of(ask, "a") == "stopped"
        eventually(lambda: process_state(first) == "T")
        with pytest.raises(ConfigurationError, match="is stopped: continue it"):
            ask("start", node="a")
        ask("continue", node="a")
        assert process_state(first) != "T"
        with pytest.raises(ConfigurationError, match="is not stopped"):
            ask("continue", node="a")
        ask("kill", node="a")
        assert state_of(ask, "a") == "killed"
        with pytest.raises(ConfigurationError, match="does not run"):
            ask("kill", node="a")
        ask("start", node="a")
        eventually(lambda: state_of(ask, "a") == "ready")
        with pytest.raises(ConfigurationError, match="runs already"):
            ask("start", node="a")
        with pytest.raises(ConfigurationError, match='unknown node; did you mean "a"'):
            ask("kill", node="A")

    report = commanded(tmp_path / "run", nodes, story)
    a, b = report.nodes
    assert (a.state, a.exit_code, a.starts) == (NodeState.FINISHED, 0, 2)
    assert (b.state, b.exit_code, b.starts) == (NodeState.FINISHED, -signal.SIGTERM, 1)
    assert not report.failed
    assert (tmp_path / "run" / "a.log").read_text(encoding="ascii") == "hello\nhello\n"
    assert sorted(file.name for file in (tmp_path / "run").iterdir()) == ["a.log", "b.log"]


def test_links_are_cut_healed_and_changed_by_command(tmp_path: Path) -> None:
    def link(ask: Callable[..., Any], here: str) -> Any:  # noqa: ANN401  # JSON
        return next(link for link in ask("status", links=True)["links"] if link["here"] == here)

    def story(ask: Callable[..., Any]) -> None:
        ask("cut", here="sleeper", there="London")  # A node's name and a city's.
        assert [link(ask, site)["cut"] for site in ("ny", "ldn")] == [True, True]
        ask("heal", here="ny", there="ldn", one_way=True)
        assert [link(ask, site)["cut"] for site in ("ny", "ldn")] == [False, True]
        ask("heal", all=True)
        ask("cut", here="ldn", there="ny", one_way=True)
        assert [link(ask, site)["cut"] for site in ("ny", "ldn")] == [False, True]
        ask("change", here="ny", there="ldn", delay_ns=7, loss=0.5, one_way=True)
        assert [link(ask, "ny")[key] for key in ("delay_ns", "jitter_ns", "loss")] == [7, 0, 0.5]
        assert link(ask, "ldn")["delay_ns"] > 7
        assert ask("status")["links"] == []
        assert ask("lateness")["wakeups"]["count"] >= 0
        assert ask("enter", site="sleeper")[-1].startswith(f"/proc/{os.getpid()}/fd/")

    commanded(tmp_path / "run", [LabNode("sleeper", "ny", ("sleep", "1000"))], story)


def test_it_ends_when_all_nodes_have_ended_and_names_those_that_failed(tmp_path: Path) -> None:
    report = run_session(
        two_sites(), [LabNode("good", "ny", ("true",)), LabNode("bad", "ldn", ("false",))], tmp_path / "run"
    )
    assert [node.name for node in report.failed] == ["bad"]
    assert [node.exit_code for node in report.nodes] == [0, 1]


def test_it_ends_in_time_and_does_not_wait_for_the_stubborn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isocast.trials.lab.session._GRACE_S", 0.1)
    directory = tmp_path / "run"

    def wait(_session: LabSession) -> None:
        log = directory / "mule.log"
        eventually(lambda: log.read_text(encoding="ascii") == "up\n")

    nodes = [LabNode("mule", "ny", tuple(python(STUBBORN)))]
    report = run_session(two_sites(), nodes, directory, seconds=0.05, began=wait)
    assert (report.nodes[0].state, report.nodes[0].exit_code) == (NodeState.FINISHED, -signal.SIGKILL)
    assert report.failed == report.nodes


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_ends_it_with_its_report(number: signal.Signals, tmp_path: Path) -> None:
    before = signal.getsignal(number)
    nodes = [LabNode("sleeper", "ny", ("sleep", "1000"))]
    report = run_session(two_sites(), nodes, tmp_path / "run", began=lambda _: os.kill(os.getpid(), number))
    assert report.nodes[0].state is NodeState.FINISHED
    assert report.lab.frames_in == 0
    assert signal.getsignal(number) is before
    with RunDirectory(tmp_path / "run"):
        pass


def test_a_command_in_front_decides_when_it_is_over(tmp_path: Path) -> None:
    nodes = [LabNode("sleeper", "ny", ("sleep", "1000"))]
    report = run_session(two_sites(), nodes, tmp_path / "run", foreground=("ldn", ["sh", "-c", "exit 7"]))
    assert report.exit_code == 7
    assert report.as_json()["nodes"][0]["state"] == "finished"


def test_a_switch_that_dies_ends_it(tmp_path: Path) -> None:
    def murder(session: LabSession) -> None:
        assert session.lab._switch is not None  # noqa: SLF001
        session.lab._switch.process.kill()  # noqa: SLF001

    nodes = [LabNode("sleeper", "ny", ("sleep", "1000"))]
    with pytest.raises(ChildProcessError, match="switch has ended by itself"):
        run_session(two_sites(), nodes, tmp_path / "run", began=murder)
