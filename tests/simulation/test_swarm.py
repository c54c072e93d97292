"""Many seeds: the report, and that it does not depend on how it was computed."""

from __future__ import annotations

from isocast.simulation.swarm import SwarmProgress, run_seed, run_swarm


def test_a_swarm_adds_up_its_seeds_and_tells_its_progress_whatever_the_number_of_processes() -> None:
    seen: list[SwarmProgress] = []
    report = run_swarm(range(3, 6), jobs=1, progress=seen.append)
    assert [(step.done, step.total, step.failed) for step in seen] == [(1, 3, 0), (2, 3, 0), (3, 3, 0)]
    assert report == run_swarm(range(3, 6), jobs=2)
    results = [run_seed(seed) for seed in (3, 4, 5)]
    assert (report.first_seed, report.seeds, report.failures) == (3, 3, [])
    assert report.tokens == sum(result.tokens for result in results)
    assert report.deliveries == sum(result.deliveries for result in results)


def test_a_mutants_swarm_ends_where_it_is_caught_and_says_by_what() -> None:
    report = run_swarm(range(2, 61), mutant="source-order-lost", explain=False)
    assert report.seeds < 59
    assert report.caught_by == "S3"
    assert len(report.failures) == 1


def test_a_failure_is_explained() -> None:
    report = run_swarm(range(1, 60), mutant="skip-empty-tokens")
    assert report.shrunk is not None
    assert report.shrunk.violations
    assert report.shrunk.transcript
