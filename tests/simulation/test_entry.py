"""London and Sydney react to the same ticker: who is first, by the protocol's own machines in virtual time (T8)."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest
from tests.runtime.disk.journals import write_of

from isocast.nodes.primary_receiver import PrimaryReceiver, PrimaryReceiverInput
from isocast.ring.effects import ReceiverEffect, Release
from isocast.runtime.disk.journal import released_block
from isocast.simulation.scenario import Scenario, load_scenario
from isocast.simulation.timed import TimedRun
from isocast.simulation.world import Build
from isocast.studies.entry.figures import entry_figures
from isocast.studies.entry.journals import ContestKey, read_journals
from isocast.terms.entry import EntryRule, entry_groups

SCENARIOS = Path(__file__).parents[2] / "scenarios" / "paper"
SITE = 1


def scenario(order: str, **changes: object) -> Scenario:
    return replace(load_scenario(SCENARIOS / f"ring-{order}.toml"), **changes)  # type: ignore[arg-type]


def simulated(scene: Scenario, seed: int = 1) -> tuple[TimedRun, list[Release]]:
    """A run, and what one of its receivers released."""
    released: list[Release] = []

    class HeardReceiver(PrimaryReceiver):
        def step(self, event: PrimaryReceiverInput, now: int) -> tuple[ReceiverEffect, ...]:
            effects = super().step(event, now)
            if self.receiver.site == SITE:
                released.extend(effect for effect in effects if isinstance(effect, Release))
            return effects

    run = TimedRun(scene, seed, Build(receiver=HeardReceiver))
    run.run()
    assert run.violations() == []
    return run, released


def share_of_first(released: list[Release], rule: EntryRule) -> float:
    """How often the first trader of a pair enters before the second: each pair of orders is of two traders."""
    entered: dict[int, float] = {}
    place = 0
    for _, parts in groupby(released, lambda release: release.entry.token.token_number):
        releases = list(parts)
        keys = [int.from_bytes(message.payload[:8]) for release in releases for message in release.messages]
        for group in entry_groups(keys, releases[0].entry.shuffle_key, rule):
            place += 1
            entered |= {keys[at]: place for at in group}
    pairs = [(entered[key], entered[key + 1]) for key in range(1, len(entered), 2)]
    return sum((first < second) + (first == second) / 2 for first, second in pairs) / len(pairs)


@pytest.mark.long
def test_a_market_by_arrival_whose_floor_shuffles_events() -> None:
    """Protocol §11 within .01: the ring orders packets by arrival, the application events by the token's key.

    8,000 pairs have a standard error of .0056; the run is a function of its seed.
    """
    run, released = simulated(scenario("arrival", messages=16_000))
    assert run.pairs is not None
    assert run.pairs.shares()["London"] == pytest.approx(0.600, abs=0.01)
    assert share_of_first(released, EntryRule.ARRIVAL) == run.pairs.shares()["London"]
    assert share_of_first(released, EntryRule.SHUFFLE) == pytest.approx(0.503, abs=0.01)
    assert share_of_first(released, EntryRule.BATCH) == pytest.approx(0.503, abs=0.01)


@pytest.mark.parametrize("order", ["arrival", "shuffle"])
def test_journals_of_a_simulated_market_tell_the_same(order: str, tmp_path: Path) -> None:
    """Who was first, by the journal, is who was first in the run; and every shuffle is computed again."""
    run, released = simulated(scenario(order, messages=1_200, arrival_rate=4.0, sources=2))
    write_of(
        tmp_path, 0, SITE, [released_block(release, release.due, 1_000) for release in released if release.messages]
    )
    first, second = run.scenario.traders
    found = read_journals([tmp_path], {1: first, 2: second}, ContestKey.NUMBER, 0)
    pair = entry_figures(found.stream, found.sequences, "released").pair("London", "Sydney")
    assert run.pairs is not None
    assert pair is not None
    assert (pair.contests, pair.share) == (600, run.pairs.shares()["London"])
    [shuffles] = found.shuffles.values()
    assert shuffles.is_shuffled is (order == "shuffle")
    if order == "shuffle":
        assert shuffles.verified > 100
