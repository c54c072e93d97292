"""`isocast demo` as a user meets it: a whole market of real processes, judged by its journals."""

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from isocast.cli.main import main
from isocast.runtime.market.file import load_market

pytestmark = pytest.mark.xdist_group("demo")
"""Twenty-one processes: one market at a time."""

DEMO = (sys.executable, "-m", "isocast", "demo", "--no-lake")
"""Without Spark, whose own test is elsewhere."""
PATIENCE_S = 240.0


def processes_of(folder: Path) -> list[str]:
    """Who on this machine still works for the market of a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if (entry / "cwd").readlink().is_relative_to(folder):
                    found.append(entry.name)
    return found


def test_a_real_market_loses_nothing_through_losses_and_a_kill(tmp_path: Path) -> None:
    command = (*DEMO, "--headless", "--seconds", "8", "--loss", "0.02", "--seed", "7", "--json", "--keep", "kept")
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, cwd=tmp_path, timeout=PATIENCE_S)
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert (done.returncode, found["faults"], found["lake"]) == (0, [], None)
    assert (found["gaps"], found["early"]) == (0, 0)
    by_floor = {floor: found["events_by_floor"][floor] for floor in ("XNYS", "XLON", "XTKS", "XFRA")}
    assert found["events_published"] == sum(by_floor.values()) > 1_000
    assert found["packets_lost"] > 0
    assert found["repairs"] > 0
    assert found["rings"] >= 3, "the first, one without the city that was killed, one with it again"
    assert found["killed"]["on_the_ring_again_s"] > found["killed"]["ring_without_it_s"] > 0
    complete = [customer for customer in found["customers"] if customer["grade"] == "complete"]
    assert [(customer["messages"], customer["gaps"]) for customer in complete] == [(found["messages"], 0)] * 2
    (latest,) = [customer for customer in found["customers"] if customer["grade"] == "latest"]
    assert latest["messages"] + latest["skipped"] == found["messages"]
    check_trading(found["trading"])
    # What it measures depends on the machine; that it is measured does not.
    assert found["skew"]["count"] > 0
    assert found["latency"]["ratio"] > 0.5
    market = load_market(tmp_path / "kept" / "market.toml")
    journal = str(market.directory_of("london") / "journal")
    assert main(["journal", "verify", journal]) == 0
    assert main(["floor", "verify", journal]) == 0
    assert processes_of(tmp_path) == []


def check_trading(found: dict[str, Any]) -> None:
    """How much is traded depends on the machine; that nothing is lost on the way does not."""
    assert [line["city"] for line in found["traders"]] == ["London", "New York", "Tokyo"]
    assert found["orders"] == found["sequenced"] == sum(line["orders"] for line in found["traders"])
    assert (found["trades"], found["busted"]) == (found["confirmed"], 0)
    assert (found["settled"], found["unsettled"]) == (2 * found["confirmed"], 0)
    assert (found["clearing"], found["reserved"]) == ({}, {})
    assert (found["agreeing"], found["receivers"]) == (7, 7)


def test_ctrl_c_while_processes_start_ends_it_at_once(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": os.fspath(tmp_path)}
    with subprocess.Popen(
        (*DEMO, "--no-traders", "--headless"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        cwd=tmp_path,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert "17 processes" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        text = process.stdout.read()
        assert process.wait(PATIENCE_S) == 130, text
    assert text == "isocast: interrupted\n"
    assert processes_of(tmp_path) == []
    assert list(tmp_path.iterdir()) == [], "the market's directory is removed"


def test_a_terminal_gets_frames_and_after_ctrl_c_its_own_screen_and_one_line(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    environment = os.environ | {"TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", "TMPDIR": os.fspath(tmp_path)}
    environment |= {"COLUMNS": "100", "LINES": "40"}  # Whatever the tests themselves run in.
    chunks: list[bytes] = []

    def read() -> None:
        with suppress(OSError):  # Linux says so when the other end has closed.
            while chunk := os.read(ours, 65_536):
                chunks.append(chunk)

    with subprocess.Popen(
        DEMO, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=tmp_path, start_new_session=True
    ) as process:
        os.close(theirs)
        reading = threading.Thread(target=read)
        reading.start()
        end = monotonic() + PATIENCE_S
        while b"nodes are ready" not in b"".join(chunks) and monotonic() < end:
            sleep(0.1)
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)
        reading.join(PATIENCE_S)
    os.close(ours)
    shown, _, after = b"".join(chunks).decode().partition("\x1b[?1049l")
    assert (process.returncode, after.split()) == (130, ["isocast:", "interrupted"])
    assert "\x1b[?1049h" in shown, "the other screen, so that nothing of the user's is lost"
    assert "The world" in shown
    assert "Hong Kong" in shown
    assert "The floor XISO" in shown
    assert processes_of(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


# ---- interrupted

STAGES = {
    "its directory is made": "scratch.new_directory",
    "keys are made": "staging.init_keys",
    "books are made": "books.found_books",
    "the nursery starts": "nursery.Nursery.__aenter__",
    "nodes start": "supervisor.Supervisor.start",
    "nodes are not ready yet": "staging.DemoStage.all_ready",
    "floors publish": "show.Show._perform",
    "a city is killed": "staging.DemoStage.kill",
    "a batch is published": "publisher.Publisher.publish",
    "the trading floor opens": "traders.TradingSession.run",
    "trades become final": "traders.TradingSession.settle",
    "nodes stop": "supervisor.Supervisor.stop_all",
    "the nursery ends": "nursery.Nursery.close",
    "journals are read": "summary.read_proof",
    "books are read": "trading_summary.judge_trading",
    "the summary is written": "demo_run.summary_lines",
}
"""What is interrupted, by the function whose call begins it."""
CAUSES = {
    "Ctrl-C": "os.kill(os.getpid(), signal.SIGINT)",
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
    "a closed terminal": "os.kill(os.getpid(), signal.SIGHUP)",
    "a closed pipe": "os.close(1); os.dup2(broken, 1); print('x' * 10_000, flush=True)",
}
INTERRUPTED = """
import functools, importlib, os, signal, sys
from isocast.__main__ import main
from isocast.cli import demo_run
from isocast.runtime.client import publisher
from isocast.runtime.disk import scratch
from isocast.runtime.operate import nursery, supervisor
from isocast.trials.demo import books, show, staging, summary, traders, trading_summary

reading, broken = os.pipe()
os.close(reading)
path, sys.argv = sys.argv[1], ["isocast", *sys.argv[2:]]
*owner, name = path.split(".")
holder = functools.reduce(getattr, owner[1:], globals()[owner[0]])
real = getattr(holder, name)
calls = 0

def interrupting(*arguments, **options):
    global calls
    calls += 1
    if calls == 1:
        {cause}
    return real(*arguments, **options)

for place in (holder, demo_run, show, staging):
    if getattr(place, name, None) is real:
        setattr(place, name, interrupting)
sys.exit(main())
"""


def interrupted(stage: str, cause: str, folder: Path) -> tuple[int, str, float]:
    """The exit code of a demo that is interrupted there, what it said then, and how long it took from its start."""
    script = INTERRUPTED.format(cause=CAUSES[cause])
    command = [sys.executable, "-c", script, STAGES[stage], "demo", "--no-lake", "--headless", "--seconds", "5"]
    began = monotonic()
    done = subprocess.run(
        command,
        capture_output=True,
        encoding="utf-8",
        check=False,
        cwd=folder,
        env=os.environ | {"TMPDIR": os.fspath(folder)},
        timeout=PATIENCE_S,
    )
    return done.returncode, done.stderr, monotonic() - began


def check_end(stage: str, cause: str, folder: Path) -> None:
    code, said, _ = interrupted(stage, cause, folder)
    if cause == "a closed pipe":
        assert (code, said) == (141, "")
    else:
        assert (code, said) == (130, "isocast: interrupted\n")
    assert processes_of(folder) == []
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "stage, cause",
    [("keys are made", "a closed terminal"), ("nodes start", "a closed pipe")],
)
def test_whatever_interrupts_it_while_it_starts_leaves_nothing(stage: str, cause: str, tmp_path: Path) -> None:
    check_end(stage, cause, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(
    "stage, cause",
    [*zip(STAGES, cycle(["a closed pipe", "Ctrl-C", "a closed terminal", "SIGTERM"]), strict=False)],
)
def test_whatever_interrupts_it_at_any_stage_leaves_nothing(stage: str, cause: str, tmp_path: Path) -> None:
    check_end(stage, cause, tmp_path)


@pytest.mark.parametrize("option", ["--loss 0.5", "--loss -1", "--seconds 1", "--seed -1", "--sites 5"])
def test_a_bad_option_is_one_line_and_exit_2(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", *option.split()]) == 2
    got = capsys.readouterr()
    assert got.out == ""
    assert got.err.count("\n") == 1


def test_what_is_kept_overwrites_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "precious").touch()
    for place, rule in ((tmp_path, "is not empty"), (tmp_path / "precious", "cannot be made")):
        assert main(["demo", "--keep", str(place)]) == 2
        assert rule in capsys.readouterr().err
