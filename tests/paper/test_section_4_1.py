"""§4 and §4.1 of the paper, receivers: what the ring owes to nobody, and the arithmetic of layers.

What secondary rings, lines and customers do is tested beside their machines; docs/reference/paper-map.md leads there.
"""

from __future__ import annotations

from math import isqrt

import pytest
from tests.paper.worlds import world
from tests.runtime.markets import market_of

from isocast.terms.formulas import detection_worst, passes_all_have, passes_to_certify
from isocast.terms.instants import SECOND
from isocast.terms.timing import Timing
from isocast.wire.packets import Invite


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


@pytest.mark.parametrize("receivers, passes", [(100, 10), (10_000, 100)])
def test_two_layers_reduce_the_cycle_to_the_square_root(receivers: int, passes: int) -> None:
    """§4.1: "L_1 = 100 ... L_2 = 10", "L_1 = 10,000 and L_2 = 100": a cycle of each ring."""
    assert passes_to_certify((receivers,)).value == receivers
    assert passes_to_certify((isqrt(receivers),)).value == passes


@pytest.mark.parametrize("rings, passes", [((10, 10), 19), ((100, 100), 199), ((10, 10, 10), 28)])
def test_certifying_every_receiver_chains_the_rings(rings: tuple[int, ...], passes: int) -> None:
    """§4.1: "to detect failures or guarantee delivery, L_2". Corrected: for delivery the rings add up, a+b-1."""
    assert passes_to_certify(rings).value == passes
