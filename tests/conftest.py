"""What all tests share."""

import atexit
import gc
import logging
import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
import structlog
import xdist
from _pytest.runner import runtestprotocol
from _pytest.threadexception import collect_thread_exception
from _pytest.unraisableexception import collect_unraisable
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

ROOT = Path(__file__).parents[1]

# A busy machine is slow, not wrong. A run tries the same examples as the run before it, so that whoever changes one
# thing hears of that thing; `--hypothesis-profile search` looks for new ones. A failure prints what reproduces
# it.
settings.register_profile("isocast", deadline=None, print_blob=True, derandomize=True, max_examples=50)
settings.register_profile("search", deadline=None, print_blob=True, max_examples=500)
settings.load_profile("isocast")

# Tests start hundreds of processes, and each would compile everything again where the environment says to keep no
# bytecode. `make clean` removes it.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A command that is given no market means the only one that runs on this machine. Markets of other processes that test,
# or of whoever works here, are none of a test's: each process has a directory of its own for what runs.
_RUNNING = tempfile.TemporaryDirectory(prefix="isocast-tests-")
os.environ["XDG_RUNTIME_DIR"] = _RUNNING.name

# Under nohup, or in the background of a shell, some signals are ignored, and whatever is started ignores them, too. A
# handler of our own is not inherited: commands that tests start hear every signal, and the tests go on ignoring them.
for _number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        with suppress(ValueError):  # Not in the first thread.
            signal.signal(_number, lambda *_: None)
signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests, and what they import, stay to the end: no search for garbage looks at them again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


# At the end of a process they are garbage, and libraries complain of what is left.
atexit.register(gc.unfreeze)


@pytest.fixture
def own_logs() -> Iterator[None]:
    """For tests that configure the logs of a process, which is this one: afterwards they are as they were."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    root.handlers[:] = handlers
    root.setLevel(level)


# ---- which tests run in which process, and in which order

REAL_TIME = (
    "tests/interop/",
    "tests/cli/test_demo.py",
    "tests/trials/",
    "tests/cli/test_up.py",
    "tests/cli/test_lab.py",
    "tests/cli/test_gateway.py",
    "tests/cli/test_listen.py",
    "tests/cli/test_publish.py",
    "tests/cli/test_stripes.py",
    "tests/cli/test_tape.py",
    "tests/cli/test_top.py",
    "tests/cli/test_replay.py",
    "tests/cli/test_node.py",
    "tests/cli/test_ring.py",
    "tests/cli/test_edge.py",
    "tests/cli/test_box_office.py",
    "tests/cli/test_order.py",
    "tests/ticker/test_real_market.py",
    "tests/packaging/",
    "tests/runtime/market/test_slots.py",
    *(
        f"tests/runtime/{part}/"
        for part in (
            "operate",
            "hosts",
            "roles",
            "client",
            "edge",
            "net",
            "watch",
            "box_office",
            "accounts",
            "exchange",
        )
    ),
)
"""Tests over real sockets, clocks and processes: they mostly wait. The first processes run them, the longest first."""

SPARK = "tests/lake/"
"""They share one Java, and some run a market beside it. A Java was seen to break: it could serialize no task any more
("Illegal size 5 of collection, expected 6"), in six tests of one run, and never again."""

HEAVY = ("tests/lake/", "tests/swarm/", "tests/properties/", "tests/paper/", "tests/simulation/", "tests/cli/")
"""What computes for long starts early in the other processes, so that no process ends long before another."""

WAITING_PROCESSES = frozenset({"gw0", "gw1"})
"""Two: a market that is tested waits for two thirds of the time."""
NICENESS = 10
"""Of the processes that compute: what has to be in time goes before."""


def rank(nodeid: str) -> tuple[int, int]:
    """Where a test is in the queue: what waits in front, what computes at the back, the longest at both ends."""
    for place, prefix in enumerate(REAL_TIME):
        if nodeid.startswith(prefix):
            return 0, place
    for place, prefix in enumerate(HEAVY):
        if nodeid.startswith(prefix):
            return 2, -place
    return 1, 0


class TogetherScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Tests of one scope run in one process: what they share is made once, and nothing heavy runs beside itself.

    A file says `xdist_group("name")`; all that is in tests/lake shares one Java; a file with a fixture for the whole
    module is a scope of its own. (`--dist loadgroup` would do the first, but since pytest 9.2 it finds no group.)

    The first two processes take scopes from the front of the queue, where tests wait for real time; the others from
    its back, where tests compute, at a lower priority. So two markets at most run at a time, their processes get the
    processor when they need it, and the others compute while they wait. They meet in the middle of the queue.
    """

    def __init__(self, config: pytest.Config, log: object) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return scope_of(file) or nodeid

    def _assign_work_unit(self, node: WorkerController) -> None:
        if node.gateway.id not in WAITING_PROCESSES:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Forget a scope that is done: it would be counted again after each of thousands of tests."""
        super().mark_test_complete(node, item_index, duration)
        scope = self._split_scope(self.registered_collections[node][item_index])
        assigned = self.assigned_work[node]
        if all(assigned[scope].values()):
            del assigned[scope]


@cache
def scope_of(file: str) -> str:
    """The scope of a test file; empty where each test may run anywhere."""
    if file.startswith("tests/lake/"):
        return "spark"
    try:
        text = (ROOT / file).read_text(encoding="utf-8")
    except OSError:
        return ""
    group = re.search(r'xdist_group\("([\w-]+)"\)', text)
    if group:
        return group[1]
    return file if 'scope="module"' in text else ""


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> TogetherScheduling:
    """Instead of those that xdist has."""
    return TogetherScheduling(config, log)


def pytest_sessionstart(session: pytest.Session) -> None:
    """A process that computes lets those that wait go before."""
    if xdist.get_xdist_worker_id(session) not in {"master", *WAITING_PROCESSES}:
        os.nice(NICENESS)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Processes queue up their tests by rank; a process alone runs them as they are."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: rank(item.nodeid))


# ---- a second chance for tests in real time, and with Spark

SECOND_CHANCES = 0 if os.environ.get("ISOCAST_SECOND_CHANCE") == "0" else 10
"""For each process that tests: a product that broke is not run twice for an hour."""
LINES_KEPT = 2_000
"""Of a first failure, in the report of the second attempt."""
LINES_SHOWN = 40
"""Of a first failure, at the end of the run."""
FIRST_ATTEMPT = "first_attempt"
"""The attribute of a report that holds the text of the first failure."""

_timer = pytest.StashKey[object]()
_used = pytest.StashKey[int]()


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """A test in real time that fails is run once more, because a busy machine may not have run a process in time.

    So is a test with Spark, by another Java. The second attempt counts. It shares nothing with the first, and its
    reports carry what failed then.
    """
    has_another = item.nodeid.startswith((*REAL_TIME, SPARK))
    if not SECOND_CHANCES or not has_another or item.config.getoption("usepdb"):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    stops = item.session.shouldfail or item.session.shouldstop
    if any(report.failed for report in reports) and not stops:
        reports = second_attempt(item, nextitem, reports)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: object) -> None:
    """Remember how long a test may take: a second attempt may take as long again."""
    item.stash[_timer] = settings


def second_attempt(
    item: pytest.Item, nextitem: pytest.Item | None, first: list[pytest.TestReport]
) -> list[pytest.TestReport]:
    """The reports of the second attempt; those of the first where the process has no chance left."""
    used = item.config.stash.get(_used, 0)
    if used == SECOND_CHANCES:
        for report in first:
            report.sections.append(("second chance", f"None: this process has given {used} already."))
        return first
    item.config.stash[_used] = used + 1
    failure = "\n".join(failure_text(report) for report in first if report.failed)
    failure = "\n".join([failure, *clear_away(item)])
    failure = "\n".join(failure.splitlines()[-LINES_KEPT:])
    start_timer(item)
    second = runtestprotocol(item, log=False, nextitem=nextitem)
    for report in second:
        report.sections.append(("first attempt", failure))
        setattr(report, FIRST_ATTEMPT, failure)  # Only what is plain in a report gets from process to process.
    return second


def failure_text(report: pytest.TestReport) -> str:
    """What a phase printed, and how it failed, which comes last."""
    printed = [f"---- {name} ----\n{text}" for name, text in report.sections]
    return "\n".join([*printed, f"---- {report.when} failed ----\n{report.longreprtext}"])


def clear_away(item: pytest.Item) -> Iterator[str]:
    """Tear down all that tests share, and let go of what the first attempt left; give what fails then."""
    start_timer(item)
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        vars(sys).pop(name, None)  # They keep the frames of the failure, with all that was open in them.
    item._report_sections.clear()  # noqa: SLF001 (pytest runs no test twice, so it has no public way)
    steps: tuple[Callable[[], object], ...] = (
        lambda: item.session._setupstate.teardown_exact(None),  # noqa: SLF001
        gc.collect,
        lambda: collect_unraisable(item.config),
        lambda: collect_thread_exception(item.config),
    )
    for step in steps:
        try:
            step()
        except pytest.exit.Exception:
            raise
        except (Exception, pytest.fail.Exception, BaseExceptionGroup) as error:  # noqa: BLE001 (a fixture's own)
            yield f"---- then, cleared away ----\n{error!r}"


def start_timer(item: pytest.Item) -> None:
    """Start to count the time of a test anew; a failure has stopped it."""
    if _timer in item.stash:
        item.config.hook.pytest_timeout_cancel_timer(item=item)
        item.config.hook.pytest_timeout_set_timer(item=item, settings=item.stash[_timer])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name every test that had a second chance, with the end of its first failure where it passed then."""
    reports = [report for kind in terminalreporter.stats.values() for report in kind if hasattr(report, FIRST_ATTEMPT)]
    if not reports:
        return
    first = {report.nodeid: getattr(report, FIRST_ATTEMPT) for report in reports}
    failed = {report.nodeid for report in reports if report.failed}
    terminalreporter.section("second chances")
    terminalreporter.line(
        f"{len(first)} used (at most {SECOND_CHANCES} in each process): "
        f"{len(first) - len(failed)} passed at the second attempt, {len(failed)} failed again"
    )
    for nodeid, failure in first.items():
        if nodeid not in failed:
            terminalreporter.line(f"PASSED AT THE SECOND ATTEMPT {nodeid}", yellow=True)
            for line in failure.splitlines()[-LINES_SHOWN:]:
                terminalreporter.line(f"    {line}")
