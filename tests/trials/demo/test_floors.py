"""Synthetic floors: a function of the seed, sound events, and bursts."""

import numpy as np
import pytest

from isocast.runtime.client.publisher import as_bytes
from isocast.terms.market import EventFlag, EventKind, Side
from isocast.trials.demo.floors import FLOORS, FloorPlan, SyntheticFloor
from isocast.wire.events import EventArray

SECONDS = 20.0
each_floor = pytest.mark.parametrize("plan", FLOORS, ids=lambda plan: str(plan.mic))


def of(plan: FloorPlan, seed: int = 7, seconds: float = SECONDS) -> EventArray:
    return SyntheticFloor(plan, seed).until(seconds)


@each_floor
def test_the_same_seed_gives_the_same_events_however_they_are_asked_for(plan: FloorPlan) -> None:
    floor = SyntheticFloor(plan, 7)
    cut = np.concatenate([floor.until(step / 7) for step in range(1, round(SECONDS * 7) + 1)])
    assert cut.tobytes() == of(plan).tobytes()


@each_floor
def test_another_seed_gives_other_events(plan: FloorPlan) -> None:
    assert of(plan, 7).tobytes() != of(plan, 8).tobytes()


def test_two_floors_of_one_seed_have_nothing_to_do_with_each_other() -> None:
    instants = [len(of(plan)) for plan in FLOORS]
    assert len(set(instants)) == len(FLOORS)


@each_floor
def test_numbers_run_from_one_without_a_hole(plan: FloorPlan) -> None:
    numbers = of(plan)["id"].tolist()
    assert numbers == list(range(1, len(numbers) + 1))


@each_floor
def test_what_is_drawn_can_be_published(plan: FloorPlan) -> None:
    events = of(plan)
    assert len(as_bytes(events, now=1)) == events.nbytes
    assert set(events["floor"].tolist()) == {plan.mic.fixed}
    assert {symbol.decode() for symbol in set(events["symbol"].tolist())} <= set(plan.symbols)
    assert (events["price"] > 0).all()
    assert (events["price"] % plan.step == 0).all()
    assert (events["quantity"] > 0).all()


@each_floor
def test_quotes_come_in_linked_pairs_that_do_not_cross(plan: FloorPlan) -> None:
    events = of(plan)
    quotes = events[events["kind"] == EventKind.QUOTE]
    bids, offers = quotes[::2], quotes[1::2]
    assert (bids["side"] == Side.BUY).all()
    assert (bids["flags"] == EventFlag.LINKED).all()
    assert (offers["side"] == Side.SELL).all()
    assert (offers["flags"] == 0).all()
    assert (bids["symbol"] == offers["symbol"]).all()
    assert (bids["price"] < offers["price"]).all()


def test_the_show_has_fifty_symbols_and_a_few_hundred_events_a_second() -> None:
    assert sum(len(plan.symbols) for plan in FLOORS) == 50
    assert len({symbol for plan in FLOORS for symbol in plan.symbols}) == 50
    assert 250 < sum(len(of(plan, seconds=60)) for plan in FLOORS) / 60 < 450


def test_events_come_in_bursts() -> None:
    """A Poisson process has a variance of its mean in every second; one that excites itself has several times that."""
    floor = SyntheticFloor(FLOORS[0], 7)
    counts = [int((floor.until(second)["flags"] == EventFlag.LINKED).sum()) for second in range(1, 301)]
    assert np.var(counts) > 2.5 * np.mean(counts)
