"""London and Sydney react to the same ticker in the lab: the journals say who was first, and by which rule.

The ring is in London, Paris and Frankfurt: Sydney's orders come some 83 ms after London's to every owner. By arrival
London is first nearly always; under the keyed shuffle only where a token's cut falls between the two, which is
½+mean(d_B-d_A)/(2τ_t). A contest counts if the machine let both traders decide within 20 ms; how far apart they were on
average is part of the expected figure. With n contests, about one for each token, chance is off by 1/(2√n): four times
that is allowed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from time import monotonic, sleep

import pytest
from tests.interop.places import new_market, own_place
from tests.interop.released import whole_journal

from isocast.cli.main import main
from isocast.runtime.market.model import Market
from isocast.studies.entry.figures import arrival_share, shuffle_share
from isocast.studies.entry.journals import market_ring
from isocast.studies.entry.stream import cities_of
from isocast.terms.errors import IsocastError
from isocast.terms.instants import MILLISECOND
from isocast.trials.lab.readiness import check_machine, missing
from isocast.trials.lab.session import ask_lab
from isocast.wire.events import events_view

ROOT = Path(__file__).parents[2]
NODES: dict[str, dict[str, object]] = {
    "london": {"role": "primary-receiver", "city": "London"},
    "paris": {"role": "primary-receiver", "city": "Paris"},
    "frankfurt": {"role": "primary-receiver", "city": "Frankfurt"},
    "lse": {"role": "primary-source", "city": "London"},
    "asx": {"role": "primary-source", "city": "Sydney"},
    "xray": {"role": "reformation-server", "city": "London"},
}
RECEIVERS = ("london", "paris", "frankfurt")
TRADERS = {"lse": "london", "asx": "sydney"}
"""Doors, and the sites of the lab that they are at."""
TIMING: dict[str, object] = {"profile": "world", "detect": "110ms", "process": "40ms", "retries_max": 1}
TOGETHER_NS = 20 * MILLISECOND
WANTED = 150
"""Contests: a standard error of .04."""
STEP_TOKENS = (1 + sqrt(5)) / 2
"""Between two contests: the golden ratio meets all parts of a token period alike."""
PATIENCE_S = 240.0
LOOK_S = 0.2

pytestmark = [pytest.mark.xdist_group("kill"), pytest.mark.long]


@dataclass(frozen=True)
class Contests:
    """What two traders did who reacted to the same instants."""

    total: int
    won: int
    """By London."""
    ahead_ns: float
    """How much earlier London decided than Sydney, on average."""

    @property
    def share(self) -> float:
        return self.won / self.total

    @property
    def tolerance(self) -> float:
        return 4 * 0.5 / sqrt(self.total)


def contests(market: Market) -> Contests:
    """From the journal of one receiver: orders that react to one instant, if they were sent together."""
    numbers = {market.node(name).number: name for name in TRADERS}
    heard: dict[int, dict[str, tuple[int, int]]] = {}
    for message in whole_journal(market.directory_of("london")):
        [order] = events_view(message.payload)
        source = numbers[message.label.source >> 32]
        heard.setdefault(int(order["id"]), {})[source] = (message.sequence, int(order["time"]))
    pairs = [(found["lse"], found["asx"]) for found in heard.values() if len(found) == 2]
    kept = [(one, two) for one, two in pairs if abs(one[1] - two[1]) <= TOGETHER_NS]
    ahead = [two[1] - one[1] for one, two in kept]
    return Contests(len(kept), sum(one[0] < two[0] for one, two in kept), sum(ahead) / max(len(ahead), 1))


class LabRun:
    """`isocast lab up`, and a trader at each of two doors."""

    def __init__(self, market: Market, folder: Path) -> None:
        self.market = market
        self.run = folder / "run"
        self._errors = (folder / "stderr").open("w+", encoding="utf-8")
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
        self._traders: list[subprocess.Popen[str]] = []
        self.process = self._start("lab", "up", "--config", market.file, "--run", str(self.run), "--json")

    def _start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "isocast", *arguments],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            encoding="utf-8",
            cwd=ROOT,
            env=self._environment,
        )

    def until(self, true: Callable[[], bool], what: str) -> None:
        end = monotonic() + PATIENCE_S
        while not true():
            assert self.process.poll() is None, f"the lab has ended: {self.story()}"
            assert monotonic() < end, f"not within {PATIENCE_S:.0f} s: {what}\n{self.story()}"
            sleep(LOOK_S)

    def states(self) -> set[str]:
        try:
            nodes = ask_lab(self.run, "status")["nodes"]
        except (IsocastError, OSError):
            return set()
        return {node["state"] for node in nodes if node["name"] in NODES}

    def trade(self, step_ns: int) -> None:
        """Let both traders react, a little more seldom than there are tokens."""
        for door, site in TRADERS.items():
            trader = [sys.executable, "-m", "tests.interop.traders", self.market.file, door, str(step_ns)]
            self._traders.append(self._start("lab", "exec", site, "--run", str(self.run), "--", *trader))

    def end(self) -> None:
        for trader in self._traders:
            trader.terminate()
            trader.communicate(timeout=PATIENCE_S)
        ask_lab(self.run, "down")
        self.process.communicate(timeout=PATIENCE_S)

    def story(self) -> str:
        self._errors.seek(0)
        lines = [self._errors.read()]
        for log in sorted(self.run.glob("*.log")):
            lines += [f"--- {log.name}", *log.read_text(encoding="utf-8", errors="replace").splitlines()[-10:]]
        return "\n".join(lines)

    def close(self) -> None:
        for process in (*self._traders, self.process):
            if process.poll() is None:
                process.terminate()
                process.communicate(timeout=PATIENCE_S)
        self._errors.close()


@contextmanager
def lab_run(folder: Path, order: str) -> Iterator[LabRun]:
    refused = missing(check_machine())
    if refused:
        pytest.skip(f"no lab on this machine: {refused}")
    with own_place() as place:
        market = new_market(folder, place, NODES, timing=TIMING, ring={"order": order}, clock={"bound": "5ms"})
        run = LabRun(market, folder)
        try:
            yield run
        finally:
            run.close()


@pytest.mark.parametrize("order", ["shuffle", "arrival"])
def test_who_is_first_follows_the_formula(order: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with lab_run(tmp_path, order) as run:
        market, period_ns = run.market, run.market.timing.token_period_ns
        run.until(lambda: run.states() == {"ready"}, "everybody is ready")
        run.trade(round(STEP_TOKENS * period_ns))
        run.until(lambda: contests(market).total >= WANTED, f"{WANTED} contests")
        run.end()
    found = contests(market)
    ring, (london, sydney) = market_ring(market), cities_of(("London", "Sydney"))
    assert ring is not None
    formula = {"shuffle": shuffle_share, "arrival": arrival_share}[order](ring, london, sydney, period_ns)
    expected = formula + (found.ahead_ns / (2 * period_ns) if order == "shuffle" else 0.0)
    with capsys.disabled():
        print(f"{order}: {found}, share {found.share:.3f}, expected {expected:.3f} ± {found.tolerance:.3f}")  # noqa: T201
    assert found.share == pytest.approx(expected, abs=found.tolerance)

    # The command says the same from all journals, and that every shuffle is the one of its key.
    capsys.readouterr()
    arguments = ["--config", market.file, "--within", "20ms", "--json"]
    journals = [part for name in RECEIVERS for part in ("--journal", str(market.directory_of(name) / "journal"))]
    assert main(["fairness", "entry", *journals, *arguments]) == 0
    got = json.loads(capsys.readouterr().out)
    [pair] = got["rules"][0]["pairs"]
    share = pair["share"] if pair["first"] == "London" else 1 - pair["share"]
    assert share == pytest.approx(found.share, abs=found.tolerance)
    shuffles = list(got["journals"]["shuffles"].values())
    assert len(shuffles) == len(RECEIVERS)
    if order == "shuffle":
        assert all(one["verified"] > 0 and one["other"] == 0 for one in shuffles)
