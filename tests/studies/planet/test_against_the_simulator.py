"""The same small worlds as arrays and under the simulator, which runs the protocol's own machines packet by packet.

What is compared are means over tokens. Both sides are drawn, so they differ by chance: four standard deviations of the
difference are allowed. On top comes what the arrays leave out: a message that its owner lacks is sent again and comes
in a later token, when most receivers had two chances and one had none; that changes a mean by p or less for
independent losses. Under tree loss it is a whole branch that had none, up to a few hundredths of the mean.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from random import Random
from typing import Any

import numpy as np
import pytest
from tests.simulation.worlds import EdgeRun

from isocast.hierarchy.archive import AnswerLimits
from isocast.nodes.retransmit_server import RetransmitServer
from isocast.reformation.scopes.world import Surface
from isocast.simulation.layers import archive_id, customer_id
from isocast.simulation.network import LossProcess
from isocast.simulation.run import run_scenario
from isocast.simulation.scenario import Scenario, scenario_from_mapping
from isocast.studies.planet.core import CoreNet, TokenFigures, run_token, with_sets
from isocast.studies.planet.edge import EdgeInputs, Ground, run_servers
from isocast.studies.planet.report import ring_of
from isocast.studies.planet.settings import CoreSettings, CountColumn, PlanetEdgeSettings
from isocast.terms.instants import MILLISECOND
from isocast.terms.topology import FIBRE_KM_PER_MS

SIGMAS = 4
TOKENS = 1_500

sizes = pytest.mark.parametrize("size", [1, pytest.param(20, marks=pytest.mark.soak)])
"""Times as many tokens: the statistical bound becomes as narrow as what the arrays leave out."""


@dataclass(frozen=True)
class Figures:
    """Means per token, and the standard deviation of one token's count."""

    nacks: float
    nacks_deviation: float
    repairs: float
    repairs_deviation: float
    per_lost_p99: float
    skew_ns: float


def by_arrays(scenario: Scenario, net: CoreNet, tokens: int) -> Figures:
    core = CoreSettings(
        replace(scenario.timing, nack_sets=1, release_delay_ns=0),
        batch=scenario.messages_per_token,
        loss=scenario.loss,
        tree=scenario.loss_model == "tree",
        jitter_ns=scenario.jitter_ns,
    )
    core = with_sets(core, scenario.timing.nack_sets)
    got: list[TokenFigures] = [run_token(net, core, 1, number) for number in range(tokens)]
    nacks = np.array([one.ring_nacks + one.lower_nacks for one in got])
    repairs = np.array([one.ring_repairs + one.lower_repairs for one in got])
    return Figures(
        float(nacks.mean()),
        float(nacks.std()),
        float(repairs.mean()),
        float(repairs.std()),
        float(np.quantile(np.concatenate([one.per_lost for one in got]), 0.99, method="higher")),
        max(float(np.ptp(one.release_ns[one.punctual])) for one in got),
    )


def ring_of_cities(scenario: Scenario) -> CoreNet:
    places = np.array([(place.latitude, place.longitude) for place in scenario.ring])
    everybody = np.arange(len(places))
    return CoreNet(Surface.EARTH.to_space(places), everybody, everybody, (), MILLISECOND / FIBRE_KM_PER_MS, 0.0)


def compare(keys: dict[str, Any], net: CoreNet | None, left_out: float, size: int) -> tuple[Figures, Any]:
    """Both sides; `left_out` is the share of a mean that the arrays may miss."""
    scenario = scenario_from_mapping({"servers": 1, **keys, "messages": size * keys["messages"]})
    exact = run_scenario(scenario, 1)
    assert exact.violations == []
    assert exact.rings == 1
    model = by_arrays(scenario, net or ring_of_cities(scenario), size * TOKENS)
    spread = SIGMAS * sqrt(1 / exact.tokens + 1 / (size * TOKENS))
    for got, mean, deviation in (
        (exact.nacks_per_token, model.nacks, model.nacks_deviation),
        (exact.repairs_per_token, model.repairs, model.repairs_deviation),
    ):
        assert got == pytest.approx(mean, abs=spread * deviation + left_out * mean)
    return model, exact


TEN = ["New York", "Chicago", "London", "Frankfurt", "Tokyo", "Hong Kong", "Singapore", "Sydney", "São Paulo", "Mumbai"]


@sizes
def test_ten_cities_with_jitter_and_clock_error(size: int) -> None:
    keys = {"ring": TEN, "messages_per_token": 20, "sources": 20, "messages": 4_000, "retries_max": 4}
    model, exact = compare({**keys, "loss": 0.02, "jitter": 0.01, "clock_error": 0.005}, None, 0.02, size)
    # The simulator's clocks keep their errors for the whole run, the arrays draw them for each token.
    assert exact.release_skew_ns_max <= 10 * MILLISECOND
    assert 9 * MILLISECOND < model.skew_ns <= 10 * MILLISECOND


@sizes
@pytest.mark.parametrize("sets", [1, 3])
def test_a_tree_with_and_without_nack_sets(sets: int, size: int) -> None:
    """§5.2: the same means, and the same peak of requests for one lost packet, give or take one."""
    keys = {"receivers": 12, "messages_per_token": 20, "sources": 20, "messages": 4_000, "retries_max": 4}
    more = {"loss": 0.02, "loss_model": "tree", "tree_branches": 3, "nack_sets": sets}
    model, exact = compare({**keys, **more}, ring_of(12, branches=3), 0.04, size)
    assert abs(model.per_lost_p99 - exact.nacks_per_loss_p99) <= 1


@sizes
@pytest.mark.parametrize("tree", [False, True])
def test_secondary_receivers(tree: bool, size: int) -> None:  # noqa: FBT001
    keys = {"receivers": 5, "secondaries": 3, "secondary_delay": 0.005, "secondary_detect": 0.03, "detect": 0.2}
    load = {"messages_per_token": 15, "sources": 15, "messages": 1_800, "retries_max": 4, "clock_error": 0.001}
    model = {"loss_model": "tree", "tree_branches": 2} if tree else {}
    net = ring_of(5, branches=2 if tree else 0, secondaries=3)
    compare({**keys, **load, **model, "loss": 0.02}, net, 0.06 if tree else 0.03, size)


# ---- customers, against their own machines

CUSTOMERS, MESSAGES, LOSS = 40, 200, 0.2
PATIENCE_NS, RETRY_NS = 10 * MILLISECOND, 20 * MILLISECOND
DELAY_NS = 2 * MILLISECOND


def exact_requests() -> tuple[float, float, float]:
    """Messages that a customer lacks, requests and repairs, per message: real customers and a real server."""
    limits = AnswerLimits(quiet_ns=10 * MILLISECOND, customer_burst=100_000, burst=100_000)
    keys: dict[str, Any] = {"arrival_rate": None, "messages_per_token": 1, "messages": MESSAGES, "sources": 1}
    spans = {"gap_ns": PATIENCE_NS, "retry_ns": RETRY_NS, "retries_max": 2}
    world = EdgeRun(customer=spans, limits={"line": limits}, archives=1, customers=CUSTOMERS, edge_loss=LOSS, **keys)
    # Our customers listen to the lines and to the server's repairs; the server itself loses nothing.
    for site in world.world.sites:
        world.world.network._link(site, archive_id(1)).losses = LossProcess(0.0, Random(1))  # noqa: SLF001
    world.run()
    counters = [world.view(customer_id(number)).counters for number in range(1, CUSTOMERS + 1)]
    lacking = sum(counter.gaps for counter in counters)
    requests = sum(counter.requests for counter in counters)
    server = world.world.hosts[archive_id(1)].machine
    assert isinstance(server, RetransmitServer)
    return lacking / MESSAGES, requests / MESSAGES, server.snapshot().answered / MESSAGES


def test_customers_lack_ask_and_are_repaired_as_their_machines_do() -> None:
    point = Surface.EARTH.to_space(np.array([[0.1, 0.1], [0.1, 0.1]]))
    here = Ground(
        np.array([[0.1, 0.1], [0.1, 0.1]]), point, np.array([0, 1]), np.array([0, 1]), np.array([[0, 1], [1, 0]]),
        np.full(2, np.inf), np.array([[0.0, 0.0]]), np.array([CUSTOMERS]), np.array([0, 1, 1]),
    )  # fmt: skip
    edge = PlanetEdgeSettings(
        loss=LOSS,
        jitter_ns=0.0,
        patience_ns=PATIENCE_NS,
        retry_ns=RETRY_NS,
        retries_max=2,
        messages=1_000,
        deadline_ns=MILLISECOND,
    )
    world = EdgeInputs(here, edge, 1, np.zeros((edge.messages, 2)), 0.0, float(DELAY_NS))
    row = run_servers(world, np.array([0])).table[0] / edge.messages
    lacking, requests, repairs = exact_requests()
    per_message = sqrt(1 / MESSAGES + 1 / edge.messages)
    assert lacking == pytest.approx(row[CountColumn.LOST_ALL], abs=SIGMAS * sqrt(CUSTOMERS * LOSS**2) * per_message)
    assert requests == pytest.approx(
        row[CountColumn.REQUESTS], abs=2 * SIGMAS * sqrt(CUSTOMERS * LOSS**2) * per_message
    )
    assert repairs == pytest.approx(row[CountColumn.REPAIRS], abs=SIGMAS * per_message)
