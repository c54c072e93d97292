"""§4 and §4.1 of the paper, receivers: what the ring owes to nobody, and the arithmetic of layers.

What secondary rings, lines and customers do is tested beside their machines; docs/reference/paper-map.md leads there.
"""

from __future__ import annotations

from math import isqrt

import pytest
from tests.paper.worlds import world
from tests.runtime.market.markets import market_of

from isocast.checks.facts import Completed, StabilityClaimed, Stalled, Suspected
from isocast.simulation.timed import TimedRun
from isocast.terms.ids import NodeId
from isocast.terms.instants import SECOND
from isocast.terms.timing import Timing, detection_worst, passes_all_have, passes_to_certify
from isocast.wire.packets import Invite, Nack, Packet, RangeRequest, Suspicion


def test_a_stable_group_is_never_reformed_whatever_is_sent() -> None:
    """§4.1: "it is only necessary to reform the receiver group when a network based receiver fails"."""
    seen = world(receivers=5, messages=600, arrival_rate=10, sources=40)
    assert seen.run.recorder.rings == 1
    assert seen.run.recorder.sent[Invite] == 1


def test_customers_that_join_or_leave_change_nothing_of_the_group() -> None:
    """§4.1: "The set of receivers in the RMP protocol ... does not change as individual traders join or leave"."""
    few = market_of()
    fund = {"role": "customer", "lines": ["a", "c"], "retransmit": ["archive"]}
    many = market_of({f"nodes.fund{number}": fund for number in range(50)})
    assert len(many.nodes) == len(few.nodes) + 50
    assert (many.universe, many.servers, many.ring_settings(0)) == (few.universe, few.servers, few.ring_settings(0))
    assert many.control_senders(0) == few.control_senders(0)
    assert many.control_members(0) == few.control_members(0)
    assert many.data_members(0) == few.data_members(0)


@pytest.mark.parametrize("size", [2, 10, 100])
def test_more_receivers_take_longer_to_detect_a_failure_and_to_guarantee_delivery(size: int) -> None:
    """§4.1: "as m increases, the time to detect failed R_P and the time to guarantee ... increases"."""
    now, more = (Timing(SECOND, ring_size=m) for m in (size, size + 1))
    assert detection_worst(more).value > detection_worst(now).value
    assert passes_all_have(size + 1).value > passes_all_have(size).value


CITY = {"receivers": 4, "messages": 300, "arrival_rate": 40, "detect": 0.02, "process": 0.004, "one_way_delay": 0.002,
        "retries_max": 3, "sources": 4}  # fmt: skip
BELOW = {"secondaries": 5, "secondary_delay": 0.001, "secondary_detect": 0.01}


def asked_of(seen: list[tuple[NodeId, NodeId, Packet]]) -> dict[NodeId, set[NodeId]]:
    """Whom each node sends its requests to."""
    asked: dict[NodeId, set[NodeId]] = {}
    for sender, to, packet in seen:
        if isinstance(packet, Nack | RangeRequest):
            asked.setdefault(sender, set()).add(to)
    return asked


def test_secondary_receivers_do_not_add_to_the_requests_on_the_global_tree() -> None:
    """§4.1: "the R_S do not increase the time required to detect a failed R_P or add to the NACK implosion"."""
    sent: list[tuple[NodeId, NodeId, Packet]] = []

    def watch(run: TimedRun) -> None:
        unicast = run.world.network.unicast

        def note(sender: NodeId, to: NodeId, burst: tuple[Packet, ...], size: int = 0) -> None:
            sent.extend([(sender, to, packet) for packet in burst])
            unicast(sender, to, burst, size)

        run.world.network.unicast = note  # type: ignore[method-assign, assignment]

    seen = world(watch, **CITY, **BELOW, loss=0.02)
    tree = seen.run.scenario.tree
    asked = asked_of(sent)
    assert len([site for site in tree.secondary_sites if site in asked]) > 10
    for site in tree.secondary_sites:
        assert asked.get(site, set()) <= {tree.parent(site)}


def test_secondary_receivers_do_not_delay_the_detection_of_a_failed_primary_one() -> None:
    """§4.1, the same sentence: the ring is as long as before."""
    crash = {"kind": "crash", "at": 2.0, "sites": [2]}
    first: list[tuple[int, NodeId, Suspicion]] = []
    for keys in (CITY, CITY | BELOW):
        seen = world(**keys, faults=[crash])
        found = [fact for fact in seen.of(Suspected) if fact.at > 2 * SECOND]
        first.append((found[0].at, found[0].suspect, found[0].reason))
    assert first[0] == first[1]


def test_a_secondary_ring_detects_a_member_that_fails() -> None:
    """§4.1: "The R_S in a region pass a secondary token between themselves to detect failures"."""
    crash = {"kind": "crash", "at": 1.0, "until": 9.0, "sites": [6]}
    seen = world(**CITY | {"messages": 600}, **BELOW, stall_tokens=4, faults=[crash])
    assert [(fact.site, fact.member) for fact in seen.of(Stalled)] == [(1, 6)]


def test_what_is_stable_is_held_in_every_layer() -> None:
    """§4.1: "guarantee that all of the source messages are received by all of the R_S"; the world checks S8 and S10."""
    seen = world(**CITY, **BELOW, loss=0.02)
    stable = max(fact.stable for fact in seen.of(StabilityClaimed))
    held = {fact.site: fact.token_number for fact in seen.of(Completed)}
    assert 0 < stable <= min(held.values())
    assert len(held) == 24


@pytest.mark.parametrize("receivers, passes", [(100, 10), (10_000, 100)])
def test_two_layers_reduce_the_cycle_to_the_square_root(receivers: int, passes: int) -> None:
    """§4.1: "L_1 = 100 ... L_2 = 10", "L_1 = 10,000 and L_2 = 100": a cycle of each ring."""
    assert passes_to_certify((receivers,)).value == receivers
    assert passes_to_certify((isqrt(receivers),)).value == passes


@pytest.mark.parametrize("rings, passes", [((10, 10), 19), ((100, 100), 199), ((10, 10, 10), 28)])
def test_certifying_every_receiver_chains_the_rings(rings: tuple[int, ...], passes: int) -> None:
    """§4.1: "to detect failures or guarantee delivery, L_2". Corrected: for delivery the rings add up, a+b-1."""
    assert passes_to_certify(rings).value == passes
