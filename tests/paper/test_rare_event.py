"""The one figure of the design that is a rare event: how often a ring of 100 gives up although nobody failed (§5.1).

Counting alone would take a day for a few per cent. So the last step is weighed instead of awaited: a receiver's k_r-th
request for a token fails, by independent losses, with probability 1-(1-p)^(j+1), where j is what it still lacks then.
There are thirty such requests for each ring that is given up. That the machines do give up then, no more and no less
often, is seen from the count of those that did.

Every chunk is a function of its seed and is taken in the order of seeds, so the estimate is a function of the source
alone. Chunks that are done are kept in pytest's cache, by a digest of that source: a run that was interrupted goes on
where it stopped.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from hashlib import blake2b
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.paper import closed_forms

import isocast
from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.simulation.scenario import load_scenario
from isocast.simulation.timed import TimedRun
from isocast.terms.ids import is_site
from isocast.wire.packets import Nack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from isocast.ring.receiver import Receiver
    from isocast.terms.ids import Epoch, NodeId
    from isocast.wire.packets import Packet

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
    given_up: int = 0
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


class LastRequests:
    """Watches a run for receivers' k_r-th requests, and weighs each."""

    def __init__(self, run: TimedRun) -> None:
        """Nobody has asked."""
        self.count = 0
        self.failing = 0.0
        self._run = run
        self._asked: Counter[tuple[NodeId, Epoch, int]] = Counter()
        self._sent = run.recorder.unicast
        run.recorder.unicast = self._unicast  # type: ignore[method-assign]

    def _unicast(self, node: NodeId, packet: Packet) -> None:
        self._sent(node, packet)
        if not isinstance(packet, Nack) or not is_site(node):
            return
        request = (node, packet.epoch, packet.token_number)
        self._asked[request] += 1
        if self._asked[request] == self._run.timing.retries_max:
            self._weigh(self._receiver(node), packet)

    def _weigh(self, receiver: Receiver, request: Nack) -> None:
        assert receiver.schedule is not None
        owner = self._receiver(receiver.schedule.owner(request.token_number))
        entry = owner.ledger.entries.get(request.token_number)
        if entry is None or entry.token.epoch != request.epoch:
            # The ring was reformed before its owner sent it: there is nothing to lose on the way.
            return
        lacking = len(receiver.ledger.missing(entry.token)) + (not request.has_token)
        self.count += 1
        self.failing += 1 - (1 - self._run.scenario.loss) ** (lacking + 1)

    def _receiver(self, node: NodeId) -> Receiver:
        machine = self._run.world.hosts[node].machine
        assert isinstance(machine, PrimaryReceiver)
        return machine.receiver


def run_chunk(seed: int, file: Path = SCENARIO) -> Chunk:
    """Some tokens of a scenario."""
    scenario = load_scenario(file)
    run = TimedRun(replace(scenario, messages=scenario.messages_per_token * CHUNK_TOKENS), seed)
    requests = LastRequests(run)
    run.run()
    assert run.violations() == []
    return Chunk(run.figures.tokens, run.recorder.false_reformations, requests.count, requests.failing)


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
                yield Chunk(int(tokens), int(given_up), int(requests), failing)
        finally:
            pool.shutdown(cancel_futures=True)


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
            text = f"{seen.tokens} tokens, {seen.given_up} given up, {seen.last_requests} last requests"
            # To standard error, which reaches the terminal from a test process of `make soak` too.
            print(f"{text}: {estimate:.3e} ± {spread:.0f} %", file=sys.stderr)  # noqa: T201
        if seen.last_requests >= LAST_REQUESTS:
            break
    assert seen.failing / seen.tokens == pytest.approx(7.5e-4, rel=0.1)
    assert seen.given_up == pytest.approx(seen.failing, abs=SIGMAS * sqrt(seen.failing))
