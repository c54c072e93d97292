"""The one figure of the design that is a rare event: how often a ring of 100 gives up although nobody failed (§5.1).

Counting alone would take a day for a few per cent. So the last step is weighed instead of awaited, as
`simulation.timed` tells. That the machines do give up then, no more and no less often, is seen from the count
of those that did.

Every chunk is a function of its seed and is taken in the order of seeds, so the estimate is a function of the source
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
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.paper import closed_forms

import isocast
from isocast.simulation.run import run_scenario
from isocast.simulation.scenario import load_scenario

if TYPE_CHECKING:
    from collections.abc import Iterator


SCENARIO = Path(__file__).parents[2] / "scenarios" / "paper" / "false-reformation.toml"
SMALL = SCENARIO.with_name("false-reformation-small.toml")
PACKAGES = ("checks", "hierarchy", "nodes", "reformation", "ring", "simulation", "terms", "wire")
"""What a simulated run is made of."""
CHUNK_TOKENS = 1_000
LAST_REQUESTS = 2_500
"""A standard deviation of 2 %."""
SIGMAS = 3


class Chunk(NamedTuple):
    """What some tokens showed."""

    tokens: int = 0
    given_up: float = 0.0
    last_requests: int = 0
    failing: float = 0.0
    """Of the last requests, by their chances."""

    def with_more(self, more: Chunk) -> Chunk:
        """Both together."""
        return Chunk(
            self.tokens + more.tokens,
            self.given_up + more.given_up,
            self.last_requests + more.last_requests,
            self.failing + more.failing,
        )


def run_chunk(seed: int, file: Path = SCENARIO) -> Chunk:
    """Some tokens of a scenario."""
    scenario = load_scenario(file)
    report = run_scenario(replace(scenario, messages=scenario.messages_per_token * CHUNK_TOKENS), seed)
    assert report.violations == []
    assert report.false_reformations_weighed_per_token is not None
    given_up, failing = report.false_reformations_per_token, report.false_reformations_weighed_per_token
    return Chunk(report.tokens, given_up * report.tokens, report.last_requests, failing * report.tokens)


def digest_of_source() -> str:
    """Of everything that the outcome of a seed depends on."""
    state = blake2b(SCENARIO.read_bytes(), digest_size=8)
    package = Path(isocast.__file__).parent
    for file in (Path(__file__), *[file for name in PACKAGES for file in sorted((package / name).rglob("*.py"))]):
        state.update(file.name.encode())
        state.update(file.read_bytes())
    return state.hexdigest()


def chunks(cache: pytest.Cache) -> Iterator[Chunk]:
    """One after the other in the order of seeds: known ones at once, the others by all processors."""
    key = f"isocast/false-reformations/{digest_of_source()}"
    done: dict[str, list[float]] = cache.get(key, {})
    workers = os.cpu_count() or 1
    with ProcessPoolExecutor(workers) as pool:
        running = {}
        seed = 0
        try:
            while True:
                seed += 1
                for ahead in range(seed, seed + 2 * workers):
                    if str(ahead) not in done and ahead not in running:
                        running[ahead] = pool.submit(run_chunk, ahead)
                if str(seed) not in done:
                    done[str(seed)] = list(running.pop(seed).result())
                    cache.set(key, done)
                tokens, given_up, requests, failing = done[str(seed)]
                yield Chunk(int(tokens), given_up, int(requests), failing)
        finally:
            pool.shutdown(cancel_futures=True)


@pytest.mark.long
def test_last_requests_of_a_small_ring_weigh_as_much_as_the_closed_form() -> None:
    """m = 10, k = 20, k_r = 1, where the first request is the last."""
    seen = run_chunk(1, SMALL)
    expected = closed_forms.false_reformation(10, 20, 0.01, 1)
    assert seen.last_requests > 1_000
    assert seen.failing / seen.tokens == pytest.approx(expected, rel=SIGMAS / sqrt(seen.last_requests))
    assert seen.given_up == pytest.approx(seen.failing, abs=SIGMAS * sqrt(seen.failing))


@pytest.mark.soak
def test_false_reformations_of_a_ring_of_100(pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]) -> None:
    """7.5e-4 for each token (10 %): seed after seed, the estimate printed as it grows."""
    expected = closed_forms.false_reformation(100, 100, 0.01, 3)
    assert expected == pytest.approx(7.5e-4, rel=0.01)
    assert pytestconfig.cache is not None
    seen = Chunk()
    for more in chunks(pytestconfig.cache):
        seen = seen.with_more(more)
        with capsys.disabled():
            estimate, spread = seen.failing / seen.tokens, 100 / sqrt(max(seen.last_requests, 1))
            text = f"{seen.tokens} tokens, {seen.given_up:.0f} given up, {seen.last_requests} last requests"
            # To standard error, which reaches the terminal from a test process of `make soak` too.
            print(f"{text}: {estimate:.3e} ± {spread:.0f} %", file=sys.stderr)  # noqa: T201
        if seen.last_requests >= LAST_REQUESTS:
            break
    assert seen.failing / seen.tokens == pytest.approx(7.5e-4, rel=0.1)
    assert seen.given_up == pytest.approx(seen.failing, abs=SIGMAS * sqrt(seen.failing))
