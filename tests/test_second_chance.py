"""A test in real time that fails is run once more, and the run says so."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")

ONCE = """
import pytest
from pathlib import Path

MARK = Path(__file__).with_name("attempts")

def attempt():
    with MARK.open("a") as file:
        file.write("x")
    return len(MARK.read_text())
"""
"""Attempts are counted in a file: processes may differ."""

FAILS_ONCE = f"""{ONCE}
def test_late():
    print("printed", "meanwhile")
    assert attempt() > 1, "the machine was busy"

def test_punctual():
    pass
"""

in_each_way = pytest.mark.parametrize(
    "processes", [pytest.param("0", id="alone"), pytest.param("3", id="three", marks=pytest.mark.long)]
)
"""In one process, and by the scheduler of this project."""


class Project:
    """A folder with this project's conftest and a few test files, which pytest runs in a process of its own."""

    def __init__(self, folder: Path, processes: str) -> None:
        self.folder = folder
        self.processes = processes
        (folder / "tests").mkdir()
        (folder / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\nfilterwarnings = error\n")
        shutil.copy(CONFTEST, folder / "tests")

    def write(self, file: str, text: str) -> None:
        path = self.folder / "tests" / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def attempts(self, folder: str = "interop") -> int:
        return len((self.folder / "tests" / folder / "attempts").read_text(encoding="utf-8"))

    def run(self, *options: str, **environment: str) -> tuple[int, str]:
        """The exit code and what was printed."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "ISOCAST"))}
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", self.processes, *options, "tests"]
        done = subprocess.run(
            command, cwd=self.folder, env=kept | environment, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def processes() -> str:
    """Unless a test says otherwise."""
    return "0"


@pytest.fixture
def project(tmp_path: Path, processes: str) -> Project:
    return Project(tmp_path, processes)


@in_each_way
def test_a_test_that_fails_once_passes_and_is_named(project: Project) -> None:
    project.write("interop/test_it.py", FAILS_ONCE)
    code, printed = project.run()
    assert code == 0, printed
    assert "2 passed" in printed
    assert "1 used (at most 10 in each process): 1 passed at the second attempt, 0 failed again" in printed
    assert "PASSED AT THE SECOND ATTEMPT tests/interop/test_it.py::test_late" in printed
    assert "the machine was busy" in printed
    assert "printed meanwhile" in printed
    assert project.attempts() == 2


def test_a_run_without_failures_says_nothing(project: Project) -> None:
    project.write("interop/test_it.py", "def test_it():\n    pass\n")
    code, printed = project.run()
    assert code == 0, printed
    assert "1 passed" in printed
    assert "second" not in printed.lower()


@in_each_way
def test_a_test_that_always_fails_fails_and_shows_both_failures(project: Project) -> None:
    project.write("interop/test_it.py", f'{ONCE}\ndef test_it():\n    pytest.fail(f"failure {{attempt()}}")\n')
    code, printed = project.run()
    assert code == 1, printed
    assert "1 failed" in printed
    assert "first attempt" in printed
    assert "failure 1" in printed
    assert "failure 2" in printed
    assert "0 passed at the second attempt, 1 failed again" in printed
    assert project.attempts() == 2


@in_each_way
def test_what_tests_share_is_made_anew(project: Project) -> None:
    """Even if it fails when it is torn down; the tests after it go on with what the second attempt made."""
    project.write(
        "interop/test_it.py",
        f"""{ONCE}
@pytest.fixture(scope="module")
def market():
    number = attempt()
    yield number
    assert number > 1, "a wreck"

@pytest.fixture
def own():
    yield
    assert attempt() != 2, "its own wreck"

def test_it(market, own):
    assert market > 1

def test_next(market):
    assert market == 3
""",
    )
    code, printed = project.run()
    assert code == 0, printed
    assert "2 passed" in printed
    assert "a wreck" in printed
    assert "its own wreck" in printed
    assert "1 passed at the second attempt" in printed


@pytest.mark.parametrize("phase", ["setup", "teardown"])
def test_a_fixture_that_fails_once_is_a_failure_too(project: Project, phase: str) -> None:
    fails = 'assert attempt() > 1, "no market"'
    body = f"{fails}\n    yield" if phase == "setup" else f"yield\n    {fails}"
    project.write(
        "interop/test_it.py",
        f'{ONCE}\n@pytest.fixture(scope="module")\ndef market():\n    {body}\n\ndef test_it(market):\n    pass\n',
    )
    code, printed = project.run()
    assert code == 0, printed
    assert f"---- {phase} failed ----" in printed
    assert "1 passed at the second attempt" in printed
    assert project.attempts() == 2


def test_what_a_failure_left_open_is_not_held_against_the_second_attempt(project: Project) -> None:
    project.write(
        "interop/test_it.py",
        f"""{ONCE}
import gc
import socket
import threading

def test_it():
    number = attempt()
    if number == 1:
        left = socket.socket()
        left.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
    gc.collect()
    assert number > 1
""",
    )
    code, printed = project.run()
    assert code == 0, printed
    assert "Exception ignored in: <socket.socket" in printed
    assert "PytestUnhandledThreadExceptionWarning" in printed


def test_a_second_attempt_has_its_own_time(project: Project) -> None:
    project.write(
        "interop/test_it.py",
        f"""{ONCE}
import time

def test_slow_once():
    if attempt() == 1:
        time.sleep(60)

@pytest.mark.timeout(3)
def test_slow_always():
    time.sleep(60)
""",
    )
    code, printed = project.run("--timeout", "2")
    assert code == 1, printed
    assert "1 failed, 1 passed" in printed
    assert "1 passed at the second attempt, 1 failed again" in printed
    assert "Timeout (>2.0s)" in printed
    assert printed.count("Timeout (>3.0s)") >= 2


def test_a_test_that_computes_gets_none(project: Project) -> None:
    project.write("ring/test_it.py", FAILS_ONCE)
    code, printed = project.run()
    assert code == 1, printed
    assert "1 failed, 1 passed" in printed
    assert "second attempt" not in printed
    assert project.attempts("ring") == 1


def test_chances_come_to_an_end(project: Project) -> None:
    """Twelve in one process, because they share a fixture."""
    project.write(
        "interop/test_it.py",
        f"""{ONCE}
@pytest.fixture(scope="module")
def market():
    pass

@pytest.mark.parametrize("number", range(12))
def test_it(market, number):
    attempt()
    raise AssertionError
""",
    )
    code, printed = project.run()
    assert code == 1, printed
    assert "12 failed" in printed
    assert "10 used (at most 10 in each process): 0 passed at the second attempt, 10 failed again" in printed
    assert "None: this process has given 10 already." in printed
    assert project.attempts() == 22


def test_who_hunts_races_turns_it_off(project: Project) -> None:
    project.write("interop/test_it.py", FAILS_ONCE)
    code, printed = project.run(ISOCAST_SECOND_CHANCE="0")
    assert code == 1, printed
    assert "1 failed, 1 passed" in printed
    assert project.attempts() == 1


@in_each_way
def test_every_test_is_complete_once(project: Project) -> None:
    """Scopes, failures and single tests beside each other: the scheduler hands out everything, and ends."""
    shared = '@pytest.fixture(scope="module")\ndef market():\n    pass\n'
    for number in range(3):
        project.write(
            f"interop/test_shared_{number}.py",
            f"import pytest\n{shared}\nTRIED = []\n\n@pytest.mark.parametrize('number', range(6))\n"
            "def test_it(market, number):\n    TRIED.append(number)\n"
            "    assert number % 2 or TRIED.count(number) == 2\n",
        )
        project.write(
            f"ring/test_single_{number}.py",
            "import pytest\n@pytest.mark.parametrize('number', range(6))\ndef test_it(number):\n    pass\n",
        )
    code, printed = project.run()
    assert code == 0, printed
    assert "36 passed" in printed
    assert "9 used" in printed
