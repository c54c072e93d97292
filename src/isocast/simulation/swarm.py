"""Many seeds, each a random world under faults; a failing one is shrunk until a person can read it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial

from isocast.simulation.build import PRODUCT, Build
from isocast.simulation.chaos import chaos
from isocast.simulation.mutants import MUTANTS
from isocast.simulation.scenario import scenario_from_mapping
from isocast.simulation.shrink import Shrunk, shrink
from isocast.simulation.timed import TimedRun

__all__ = ["SeedResult", "SwarmProgress", "SwarmReport", "run_seed", "run_swarm"]


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


def run_seed(seed: int, mutant: str | None = None) -> SeedResult:
    """One world, to its verdict; an exception inside a machine is a verdict too."""
    run = TimedRun(scenario_from_mapping(chaos(seed), f"seed {seed}"), seed, build_of(mutant))
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
) -> SwarmReport:
    """Run the seeds on `jobs` processes; the report does not depend on how many. `explain` shrinks a failure."""
    results: list[SeedResult] = []
    failures: list[SeedResult] = []
    for result in _results(seeds, jobs, mutant):
        results.append(result)
        if result.violations:
            failures.append(result)
        progress(SwarmProgress(len(results), len(seeds), len(failures)))
        if mutant is not None and failures:
            break
    shrunk = None
    if failures and explain:
        shrunk = shrink(failures[0].seed, chaos(failures[0].seed), build_of(mutant))
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


def _results(seeds: range, jobs: int, mutant: str | None) -> Iterator[SeedResult]:
    """In the order of the seeds, whatever the number of processes."""
    jobs = min(jobs, len(seeds), JOBS_MAX)
    if jobs <= 1:
        yield from map(partial(run_seed, mutant=mutant), seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        step = 16 * jobs
        for start in range(0, len(seeds), step):
            yield from pool.map(partial(run_seed, mutant=mutant), seeds[start : start + step], chunksize=2)
