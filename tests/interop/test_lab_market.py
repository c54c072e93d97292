"""A market of five cities in the lab, with 1 % loss: `isocast lab up` runs it, and its journals are read again here.

Never an early release; a median skew within twice the clock bound; late releases listed beside the lab's own lateness;
no gap for whoever must have everything. What the command says of itself is compared with what is found without it.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep, time_ns
from typing import Any

import pytest
from tests.interop.places import new_market, own_place
from tests.interop.released import JournalWatch, ReleasedMessage, whole_journal
from tests.interop.stalls import Stalls

from isocast.runtime.market.model import Market
from isocast.runtime.market.rules import slowest_pair
from isocast.terms.errors import IsocastError
from isocast.terms.ids import Label
from isocast.terms.instants import MILLISECOND
from isocast.trials.lab.floor import accepted_labels
from isocast.trials.lab.readiness import check_machine, missing
from isocast.trials.lab.session import ask_lab

LOSS = 0.01
JITTER_MS = 2
EVENTS_PER_S = 100
"""Of each of three floors."""
PATIENCE_S = 120.0
LOOK_S = 0.1

NODES: dict[str, dict[str, object]] = {
    "new-york": {"role": "primary-receiver", "city": "New York"},
    "london": {"role": "primary-receiver", "city": "London"},
    "mumbai": {"role": "primary-receiver", "city": "Mumbai"},
    "hong-kong": {"role": "primary-receiver", "city": "Hong Kong"},
    "tokyo": {"role": "primary-receiver", "city": "Tokyo"},
    "nyse": {"role": "primary-source", "city": "New York"},
    "lse": {"role": "primary-source", "city": "London"},
    "tse": {"role": "primary-source", "city": "Tokyo"},
    "xray": {"role": "reformation-server", "city": "London"},
    "yoke": {"role": "reformation-server", "city": "Mumbai"},
    "archive": {"role": "retransmit-server", "city": "London", "lines": ["new-york", "mumbai"]},
    "bank": {"role": "customer", "city": "London", "lines": ["new-york", "tokyo"], "retransmit": ["archive"]},
    # One line only, and that from afar: everything that it loses has to be repaired.
    "fund": {"role": "customer", "city": "Hong Kong", "lines": ["tokyo"], "retransmit": ["archive"]},
    "ticker": {
        "role": "customer",
        "city": "Tokyo",
        "lines": ["hong-kong", "mumbai"],
        "retransmit": ["archive"],
        "grade": "latest",
    },
}
RECEIVERS = ("new-york", "london", "mumbai", "hong-kong", "tokyo")
FLOORS = ("nyse", "lse", "tse")
FOLLOWERS = ("archive", "bank", "fund")

TIMING: dict[str, object] = {"profile": "world", "detect": "85ms", "process": "50ms", "retries_max": 4}
"""No two of these cities are farther apart than 65 ms; a jitter of 20 ms happens once in 22,000 packets."""

pytestmark = pytest.mark.xdist_group("kill")


@pytest.fixture(scope="module")
def bound_ms() -> int:
    """ε of one machine, whose clocks are one: what its scheduler does to five processes on two cores."""
    checks = check_machine()
    refused = missing(checks)
    if refused:
        pytest.skip(f"no lab on this machine: {refused}")
    real_time = any(check.passed for check in checks if check.name == "real-time priority")
    return 2 if real_time else 5


@dataclass
class Run:
    """What is left of a market that ran in the lab."""

    market: Market
    report: dict[str, Any]
    """What the command printed."""
    exit_code: int
    statuses: dict[str, dict[str, Any]]
    """What nodes said of themselves shortly before the end."""
    journals: dict[str, list[ReleasedMessage]]
    promised: dict[str, list[Label]]
    """By floor."""
    stalled_ns: int
    """For how long the machine let a thread wait that had nothing to do but wake up."""


class Command:
    """`isocast lab up`, watched from outside."""

    def __init__(self, market: Market, folder: Path) -> None:
        self.market = market
        self.run = folder / "run"
        self._errors = (folder / "stderr").open("w+", encoding="utf-8")
        arguments = ["--loss", str(LOSS), "--jitter", f"{JITTER_MS}ms", "--publish", str(EVENTS_PER_S)]
        self.process = subprocess.Popen(
            [*self._isocast("lab", "up", "--config", market.file), *arguments, "--run", str(self.run), "--json"],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            encoding="utf-8",
        )

    @staticmethod
    def _isocast(*arguments: str) -> list[str]:
        return [sys.executable, "-m", "isocast", *arguments]

    def wait_for(self, tokens: int) -> None:
        """Until everybody is ready, and so many more tokens with messages are in every receiver's journal."""
        self._until(lambda: self._states() == {"ready"}, "everybody is ready")
        watches = {name: JournalWatch(self.market.directory_of(name)) for name in RECEIVERS}
        try:
            begun = {name: len({message.token_number for message in watch.look()}) for name, watch in watches.items()}
            self._until(
                lambda: all(
                    len({message.token_number for message in watch.look()}) >= begun[name] + tokens
                    for name, watch in watches.items()
                ),
                f"{tokens} tokens with messages",
            )
        finally:
            for watch in watches.values():
                with watch:
                    pass

    def _states(self) -> set[str]:
        """Of all nodes; none before there is a lab to ask."""
        try:
            nodes = ask_lab(self.run, "status")["nodes"]
        except (IsocastError, OSError):
            return set()
        assert not [node for node in nodes if node["state"] == "ended"], self.story()
        return {node["state"] for node in nodes if node["name"] in NODES}

    def _until(self, true: Callable[[], bool], what: str) -> None:
        end = monotonic() + PATIENCE_S
        while not true():
            assert self.process.poll() is None, f"the lab has ended: {self.story()}"
            assert monotonic() < end, f"not within {PATIENCE_S:.0f} s: {what}\n{self.story()}"
            sleep(LOOK_S)

    def statuses(self) -> dict[str, dict[str, Any]]:
        """What `isocast top` shows to somebody who sits in London, once everybody has answered."""
        inside = self._isocast("lab", "exec", "london", "--run", str(self.run), "--")
        command = [*inside, *self._isocast("top", "--config", self.market.file, "--json")]
        found: dict[str, dict[str, Any]] = {}

        def answered() -> bool:
            done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=PATIENCE_S, check=False)
            found.update({one["name"]: one["status"] for one in json.loads(done.stdout) if one["status"]})
            return found.keys() == NODES.keys()

        self._until(answered, "every node tells its status")
        return found

    def end(self) -> dict[str, Any]:
        """End it; what it reports."""
        ask_lab(self.run, "down")
        out, _ = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode in (0, 1), self.story()
        report: dict[str, Any] = json.loads(out)
        return report

    def story(self) -> str:
        """What was printed last."""
        self._errors.seek(0)
        lines = [self._errors.read()]
        for log in sorted(self.run.glob("*.log")):
            lines += [f"--- {log.name}", *log.read_text(encoding="utf-8", errors="replace").splitlines()[-10:]]
        return "\n".join(lines)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.communicate(timeout=PATIENCE_S)
        self._errors.close()


@pytest.fixture(
    scope="module",
    params=[pytest.param(12, id="short"), pytest.param(60, id="minute", marks=pytest.mark.long)],
)
def run(request: pytest.FixtureRequest, bound_ms: int, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("lab")
    began = time_ns()
    with own_place() as place, Stalls() as stalls:
        market = new_market(folder, place, NODES, timing=TIMING, clock={"bound": f"{bound_ms}ms"})
        command = Command(market, folder)
        try:
            command.wait_for(request.param)
            statuses = command.statuses()
            report = command.end()
        finally:
            command.close()
        stalled_ns = stalls.longest_ns(began, time_ns())
    journals = {name: whole_journal(market.directory_of(name)) for name in (*RECEIVERS, *FOLLOWERS)}
    promised = {name: accepted_labels(command.run / f"{name}.floor.log") for name in FLOORS}
    return Run(market, report, command.process.returncode, statuses, journals, promised, stalled_ns)


def test_the_command_says_that_all_is_well(run: Run) -> None:
    assert run.report["journals"]["is_sound"]
    assert {(node["state"], node["exit_code"]) for node in run.report["nodes"]} == {("finished", 0)}
    assert run.exit_code == 0


def test_the_world_is_as_far_apart_and_as_lossy_as_it_should_be(run: Run) -> None:
    delay, _, _ = slowest_pair(run.market)
    assert 60 * MILLISECOND < delay < run.market.timing.detect_ns - JITTER_MS * MILLISECOND
    lab = run.report["lab"]
    share = lab["frames_lost"] / (lab["frames_lost"] + lab["frames_out"])
    assert 0.5 * LOSS < share < 2 * LOSS
    assert sum(status["totals"].get("nacks_sent_total", 0) for status in run.statuses.values()) > 0


def test_nothing_is_released_early(run: Run) -> None:
    for name in RECEIVERS:
        early = [
            message
            for message in run.journals[name]
            if message.released_at < max(message.due, message.instant + run.market.timing.release_delay_ns)
        ]
        assert not early, f"{name}: {early[:3]}"
    assert run.report["journals"]["early"] == 0


def test_everybody_releases_one_sequence_with_all_that_was_promised(run: Run) -> None:
    whole = [(message.sequence, message.label, message.payload) for message in run.journals[RECEIVERS[0]]]
    assert [sequence for sequence, _, _ in whole] == list(range(1, len(whole) + 1))
    for name in RECEIVERS:
        assert [(message.sequence, message.label, message.payload) for message in run.journals[name]] == whole, name
    promised = [label for labels in run.promised.values() for label in labels]
    assert len(promised) > 100
    assert sorted(label for _, label, _ in whole) == sorted(promised)
    found = run.report["journals"]
    assert (found["promised"], found["lost"], found["differences"]) == (len(promised), 0, [])


def test_whoever_must_have_everything_has_no_gap(run: Run) -> None:
    whole = [(message.sequence, message.payload) for message in run.journals[RECEIVERS[0]]]
    for name in FOLLOWERS:
        assert [(message.sequence, message.payload) for message in run.journals[name]] == whole, name
    found = {follower["name"]: follower for follower in run.report["journals"]["followers"]}
    assert found.keys() == set(FOLLOWERS)
    assert all(one["missing"] == one["repeated"] == one["behind"] == 0 for one in found.values())
    ticker = run.statuses["ticker"]["totals"]
    assert 0 < ticker["messages_received_total"] <= len(whole)


def test_receivers_release_together(run: Run) -> None:
    """§5, F1: the spread of releases is that of the clocks, not that of the distances.

    How near it comes to 2ε depends on the machine, and is told (`bench/skew.py` measures it): here it must be right.
    """
    instants: dict[int, list[int]] = {}
    for name in RECEIVERS:
        for message in run.journals[name]:
            instants.setdefault(message.sequence, []).append(message.released_at)
    skews = [max(released) - min(released) for released in instants.values() if len(released) == len(RECEIVERS)]
    median = statistics.median_high(skews)
    found = run.report["journals"]
    tell(run)
    assert len(skews) == len(instants)
    assert found["skew_bound_ns"] == run.market.timing.skew_bound_ns
    assert found["skew"]["count"] + found["skew"]["faulted"] + found["skew"]["alone"] == len(instants)
    bound = run.market.timing.skew_bound_ns
    if found["skew"]["count"] == len(instants):
        assert found["skew"]["p50_ns"] == median
        assert found["skew"]["exceeding"] == sum(skew > bound for skew in skews)
    # Without a common instant even the best of them would be as far apart as the cities are.
    best = sorted(skews)[len(skews) // 10]
    assert best < run.market.timing.detect_ns / 2, "messages are on their way for longer"


def test_what_is_late_is_listed_beside_the_labs_own_lateness(run: Run) -> None:
    allowed = run.market.timing.process_ns
    late = sorted(
        {
            (name, message.token_number)
            for name in RECEIVERS
            for message in run.journals[name]
            if message.released_at - message.due > allowed
        }
    )
    listed = run.report["journals"]["late"]
    assert sorted({(one["site"], one["token_number"]) for one in listed}) == late
    tell(run)
    unexplained = [one for one in listed if not one["is_explained"]]
    excused = run.stalled_ns > allowed // 2 or os.getloadavg()[0] > (os.cpu_count() or 1)
    released = sum(len({message.token_number for message in run.journals[name]}) for name in RECEIVERS)
    assert excused or len(unexplained) <= released // 50, "late without a reason, on a machine that is not busy"


def tell(run: Run) -> None:
    """The figures, for whoever reads the output of the tests."""
    found, lab = run.report["journals"], run.report["lab"]
    print(f"skew {found['skew']} within {found['skew_bound_ns']} ns; lateness {found['lateness']}")  # noqa: T201
    print(f"the lab: wake-ups {lab['wakeups']}, {len(lab['episodes'])} times late")  # noqa: T201
    for one in found["late"]:
        process, meanwhile = one["behind_ns"], one["lab"]
        print(f"{one['site']} token {one['token_number']} late {one['late_ns']} ns: {process} {meanwhile}")  # noqa: T201
