"""The one figure of the design that needs hours: how often a ring of 100 gives up although nobody failed (§5.1).

Every chunk is a function of its seed and is counted in the order of seeds, so the estimate is a function of the source
alone. Chunks that are done are kept in pytest's cache, by a digest of that source: a run that was interrupted goes on
where it stopped.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from hashlib import blake2b
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.paper import closed_forms

import isocast
from isocast.simulation.run import run_scenario
from isocast.simulation.scenario import load_scenario

if TYPE_CHECKING:
    from collections.abc import Iterator

SCENARIO = Path(__file__).parents[2] / "scenarios" / "paper" / "false-reformation.toml"
PACKAGES = ("checks", "hierarchy", "nodes", "reformation", "ring", "simulation", "terms", "wire")
"""What a simulated run is made of."""
CHUNK_TOKENS = 1_000
EVENTS = 300
"""A standard deviation of 6 %."""


def false_reformations(seed: int) -> tuple[int, int]:
    """Tokens and false reformations of one chunk of the full scenario."""
    scenario = load_scenario(SCENARIO)
    report = run_scenario(replace(scenario, messages=scenario.messages_per_token * CHUNK_TOKENS), seed)
    assert report.violations == []
    return report.tokens, round(report.false_reformations_per_token * report.tokens)


def digest_of_source() -> str:
    """Of everything that the outcome of a seed depends on."""
    state = blake2b(SCENARIO.read_bytes(), digest_size=8)
    package = Path(isocast.__file__).parent
    for name in PACKAGES:
        for file in sorted((package / name).rglob("*.py")):
            state.update(file.relative_to(package).as_posix().encode())
            state.update(file.read_bytes())
    return state.hexdigest()


def chunks(cache: pytest.Cache) -> Iterator[tuple[int, int]]:
    """One after the other in the order of seeds: known ones at once, the others by all processors."""
    key = f"isocast/false-reformations/{digest_of_source()}"
    done: dict[str, list[int]] = cache.get(key, {})
    workers = os.cpu_count() or 1
    with ProcessPoolExecutor(workers) as pool:
        running = {}
        seed = 0
        try:
            while True:
                seed += 1
                for ahead in range(seed, seed + 2 * workers):
                    if str(ahead) not in done and ahead not in running:
                        running[ahead] = pool.submit(false_reformations, ahead)
                if str(seed) not in done:
                    done[str(seed)] = list(running.pop(seed).result())
                    cache.set(key, done)
                tokens, events = done[str(seed)]
                yield tokens, events
        finally:
            pool.shutdown(cancel_futures=True)


@pytest.mark.soak
def test_false_reformations_of_a_ring_of_100(pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]) -> None:
    """7.5e-4 for each token (10 %): seed after seed until 300 events are seen, the estimate printed as it grows."""
    expected = closed_forms.false_reformation(100, 100, 0.01, 3)
    assert expected == pytest.approx(7.5e-4, rel=0.01)
    assert pytestconfig.cache is not None
    tokens = events = 0
    for more, found in chunks(pytestconfig.cache):
        tokens, events = tokens + more, events + found
        with capsys.disabled():
            spread = 100 / sqrt(max(events, 1))
            # To standard error, which reaches the terminal from a test process of `make soak` too.
            print(f"{tokens} tokens, {events} events: {events / tokens:.3e} ± {spread:.0f} %", file=sys.stderr)  # noqa: T201
        if events >= EVENTS:
            break
    assert events / tokens == pytest.approx(7.5e-4, rel=0.1)
