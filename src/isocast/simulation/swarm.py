"""Many seeds, each a random world under faults; a failing one is shrunk until a person can read it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from isocast.checks.facts import Fact, ReceiptSent, Submitted
from isocast.simulation.chaos import chaos, floors, liars
from isocast.simulation.mutants import MUTANTS
from isocast.simulation.scenario import scenario_from_mapping
from isocast.simulation.scenario_keys import EDGE_KEYS, LAYER_KEYS
from isocast.simulation.timed import TimedRun
from isocast.simulation.transcript import describe_fact
from isocast.simulation.world import PRODUCT, Build
from isocast.terms.errors import ConfigurationError

__all__ = ["SeedResult", "Shrunk", "SwarmProgress", "SwarmReport", "run_seed", "run_swarm", "shrink", "world_of"]


# A failing world made small: fewer faults, fewer messages, a calmer network, as long as it fails the same way.


RUNS_MAX = 60
"""Worlds tried: at a quarter of a second each, fifteen seconds."""
LAYER_KEY_NAMES = tuple([key.name for key in LAYER_KEYS])
EDGE_KEY_NAMES = tuple([key.name for key in EDGE_KEYS if key.name not in ("narrow_stripes", "stripe_bytes")])
"""Of those that say how many nodes there are."""
LINES_MAX = 60
"""Of the transcript: a screenful, ending with the violation."""


@dataclass(frozen=True)
class Shrunk:
    """The smallest world that was found, what it breaks, and what led there."""

    seed: int
    scenario: dict[str, Any]
    violations: list[str]
    transcript: list[str] = field(default_factory=list)


def shrink(seed: int, world: dict[str, Any], build: Build) -> Shrunk:
    """Try smaller worlds, the largest steps first, and keep each that breaks the same property."""
    smallest = world
    violations, lines = _try(seed, world, build)
    wanted = _property(violations)
    runs = 1
    progress = True
    while progress and runs < RUNS_MAX:
        progress = False
        for candidate in _smaller(smallest):
            runs += 1
            found, told = _try(seed, candidate, build)
            if wanted in {_property([violation]) for violation in found}:
                smallest, violations, lines, progress = candidate, found, told, True
                break
            if runs >= RUNS_MAX:
                break
    return Shrunk(seed, smallest, violations, lines)


def _property(violations: list[str]) -> str:
    return violations[0].partition(":")[0] if violations else ""


def _smaller(world: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Candidates: one fault less, half the messages, one disturbance less."""
    faults = list(world.get("faults", []))
    for place in range(len(faults)):
        yield world | {"faults": faults[:place] + faults[place + 1 :]}
    if world["messages"] >= 16:  # noqa: PLR2004 (halving ends somewhere)
        yield world | {"messages": world["messages"] // 2}
    for key in ("loss", "duplicate", "jitter", "wake_lateness", "drift_ppm", "clock_error", "release_rate"):
        if world.get(key):
            yield world | {key: 0}
    for key in ("nack_sets", "token_period"):
        if key in world:
            yield {name: value for name, value in world.items() if name != key}
    if "secondaries" in world:
        # A fault that names a secondary receiver keeps its world: the loader refuses the one without.
        yield {name: value for name, value in world.items() if name not in LAYER_KEY_NAMES}
        if world.get("layers", 2) > 2:  # noqa: PLR2004 (fewer are no layers)
            yield world | {"layers": 2}
    for key in EDGE_KEY_NAMES:
        if world.get(key):
            yield world | {key: world[key] - 1}


def _try(seed: int, world: dict[str, Any], build: Build) -> tuple[list[str], list[str]]:
    """One run: violations, and the last lines of its transcript up to the first of them."""
    lines: deque[str] = deque(maxlen=LINES_MAX)

    def tell(fact: Fact) -> None:
        if not run.suite.violations and not isinstance(fact, Submitted | ReceiptSent):
            lines.append(describe_fact(fact))

    try:
        run = TimedRun(scenario_from_mapping(world, f"seed {seed}"), seed, build, transcript=tell)
    except ConfigurationError:
        return [], []
    failed: list[str] = []
    try:
        run.run()
    except Exception as error:  # noqa: BLE001 (a machine that raises has failed, whatever it raises)
        failed.append(f"crash: {type(error).__name__}: {error}")
    violations = failed + run.violations()
    return violations, [*lines, *[f"{'':10}  violated {violation}" for violation in violations[:3]]]


JOBS_MAX = 256
"""Worker processes at most: each takes some 40 MB."""


@dataclass(frozen=True)
class SeedResult:
    """What one seed gave."""

    seed: int
    trace_digest: str
    tokens: int
    messages: int
    rings: int
    deliveries: int
    violations: list[str]


@dataclass(frozen=True)
class SwarmProgress:
    """How far a swarm is."""

    done: int
    total: int
    failed: int


@dataclass(frozen=True)
class SwarmReport:
    """The verdict over all seeds that ran; with a mutant, the swarm ends at the first seed that catches it."""

    first_seed: int
    seeds: int
    """How many ran."""
    mutant: str | None
    tokens: int
    messages: int
    rings: int
    deliveries: int
    failures: list[SeedResult] = field(default_factory=list)
    caught_by: str | None = None
    """The first property that was broken."""
    shrunk: Shrunk | None = None
    """The first failure, made as small as it stays one."""

    def as_json(self) -> dict[str, object]:
        """One object, names as here."""
        return asdict(self)


def world_of(seed: int, *, lying: bool = False, floor: bool = False) -> dict[str, object]:
    """The scenario of a seed; `lying`: one with an attacker; `floor`: one with a trading floor."""
    if floor:
        return floors(seed)
    return liars(seed) if lying else chaos(seed)


def run_seed(seed: int, mutant: str | None = None, *, lying: bool = False, floor: bool = False) -> SeedResult:
    """One world, to its verdict; an exception inside a machine is a verdict too."""
    world = world_of(seed, lying=lying, floor=floor)
    run = TimedRun(scenario_from_mapping(world, f"seed {seed}"), seed, build_of(mutant))
    violations: list[str] = []
    try:
        run.run()
    except Exception as error:  # noqa: BLE001 (a machine that raises has failed, whatever it raises)
        violations.append(f"crash: {type(error).__name__}: {error}")
    recorder = run.recorder
    violations.extend(run.violations())
    return SeedResult(
        seed,
        recorder.trace_digest,
        recorder.tokens,
        recorder.messages,
        recorder.rings,
        run.world.network.deliveries,
        violations,
    )


def build_of(mutant: str | None) -> Build:
    """The product, or one of its mutants."""
    return PRODUCT if mutant is None else MUTANTS[mutant].build


def run_swarm(
    seeds: range,
    jobs: int = 1,
    mutant: str | None = None,
    progress: Callable[[SwarmProgress], None] = lambda _: None,
    *,
    explain: bool = True,
    lying: bool = False,
    floor: bool = False,
) -> SwarmReport:
    """Run the seeds on `jobs` processes; the report does not depend on how many. `explain` shrinks a failure.

    `lying`: only worlds in which somebody lies; `floor`: only worlds whose receivers are a trading floor.
    """
    results: list[SeedResult] = []
    failures: list[SeedResult] = []
    for result in _results(seeds, jobs, partial(run_seed, mutant=mutant, lying=lying, floor=floor)):
        results.append(result)
        if result.violations:
            failures.append(result)
        progress(SwarmProgress(len(results), len(seeds), len(failures)))
        if mutant is not None and failures:
            break
    shrunk = None
    if failures and explain:
        shrunk = shrink(failures[0].seed, world_of(failures[0].seed, lying=lying, floor=floor), build_of(mutant))
    return SwarmReport(
        first_seed=seeds.start,
        seeds=len(results),
        mutant=mutant,
        tokens=sum([result.tokens for result in results]),
        messages=sum([result.messages for result in results]),
        rings=sum([result.rings for result in results]),
        deliveries=sum([result.deliveries for result in results]),
        failures=failures,
        caught_by=failures[0].violations[0].partition(":")[0] if failures else None,
        shrunk=shrunk,
    )


def _results(seeds: range, jobs: int, judge: Callable[[int], SeedResult]) -> Iterator[SeedResult]:
    """Results in the order of the seeds, from any number of processes."""
    jobs = min(jobs, len(seeds), JOBS_MAX)
    if jobs <= 1:
        yield from map(judge, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        step = 16 * jobs
        for start in range(0, len(seeds), step):
            yield from pool.map(judge, seeds[start : start + step], chunksize=2)
