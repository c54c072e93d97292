"""Runs that end: by their duration, after losses that keep a ring from resting, and when nothing can be ordered."""

from __future__ import annotations

import pytest

from isocast.simulation.run import run_scenario
from isocast.simulation.scenario import scenario_from_mapping
from isocast.simulation.timed import TimedRun


def test_no_message_is_submitted_after_the_duration() -> None:
    run = TimedRun(scenario_from_mapping({"duration": 5.0, "messages": 2_000, "arrival_rate": 10.0}), 1)
    run.run()
    assert 0 < run.recorder.submitted < 100
    assert run.violations() == []


def test_an_exchange_takes_no_order_after_the_duration() -> None:
    keys = {"exchange": "London", "traders": ["London", "Sydney"], "arrival_rate": 10.0}
    report = run_scenario(scenario_from_mapping({**keys, "duration": 50.0, "messages": 2_000}), 1)
    assert 400 < report.messages < 600


def test_a_loss_that_keeps_a_ring_from_resting_is_no_violation() -> None:
    """The last messages meet a reformation; once nothing is lost any more, they come out."""
    keys = {"receivers": 5, "messages": 1_000, "loss": 0.4, "gate": "majority", "sources": 10}
    run = TimedRun(scenario_from_mapping(keys), 3)
    run.run()
    assert run.violations() == []
    assert run.world.network.model.loss == 0


@pytest.mark.long
def test_a_world_in_which_no_ring_can_form_ends_and_says_so() -> None:
    """Packets that take ten seconds cannot be recovered within a token period of three."""
    run = TimedRun(scenario_from_mapping({"one_way_delay": 10.0, "messages": 10}), 1)
    run.run()
    assert {violation.partition(":")[0] for violation in run.violations()} == {"L2"}


def test_one_clock_far_ahead_does_not_stop_the_others() -> None:
    """Four sites of five go on while the fifth is wrong, and it comes back afterwards."""
    step = {"kind": "clock-step", "at": 2.0, "until": 8.0, "sites": [2], "step": 2.0}
    world = {
        "receivers": 5, "detect": 0.02, "process": 0.004, "one_way_delay": 0.002, "clock_error": 0.001,
        "gate": "majority", "messages_per_token": 4, "messages": 300, "faults": [step],
    }  # fmt: skip
    run = TimedRun(scenario_from_mapping(world), 1)
    run.run()
    assert run.violations() == []
    assert run.recorder.rings < 12


@pytest.mark.parametrize("keys", [{"nack_sets": 2}, {"faults": [{"kind": "crash", "at": 5.0, "sites": [1]}]}])
def test_last_requests_are_weighed_only_where_losses_decide_alone(keys: dict[str, object]) -> None:
    lossy = {"receivers": 4, "messages": 200, "loss": 0.1}
    assert run_scenario(scenario_from_mapping(lossy), 1).false_reformations_weighed_per_token
    report = run_scenario(scenario_from_mapping({**lossy, **keys}), 1)
    assert (report.last_requests, report.false_reformations_weighed_per_token) == (0, None)
