"""Links: delay, jitter, bandwidth, loss of two kinds, duplication, cuts."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from isocast.simulation.network import Agenda, LinkModel, Network
from isocast.terms.ids import NodeId

NODES = tuple(range(1, 7))


class Wire:
    """Six nodes, 10 ns per step of number between them; three behind each branch of the tree."""

    def __init__(self, model: LinkModel | None = None, seed: int = 1) -> None:
        self.agenda = Agenda()
        self.network = Network(
            self.agenda, seed, model or LinkModel(), lambda a, b: 10 * abs(a - b), lambda node: (node - 1) // 3
        )
        self.heard: list[tuple[int, NodeId, tuple[object, ...]]] = []
        self.lost: Counter[NodeId] = Counter()
        self.network.lost_hook = lambda to, burst: self.lost.update({to: len(burst)})
        for node in NODES:
            self.network.attach(node, partial(self._hear, node))

    def _hear(self, node: NodeId, burst: tuple[object, ...]) -> None:
        self.heard.append((self.agenda.now, node, burst))

    def run(self) -> list[tuple[int, NodeId, tuple[object, ...]]]:
        self.agenda.run(10**12)
        return self.heard


def test_a_unicast_arrives_after_the_pairs_delay() -> None:
    wire = Wire()
    wire.network.unicast(1, 4, ("a", "b"))
    assert wire.run() == [(30, 4, ("a", "b"))]


def test_a_multicast_reaches_the_audience_and_not_its_sender() -> None:
    wire = Wire()
    wire.network.multicast(2, NODES[:4], ("a",))
    assert sorted(wire.run()) == [(10, 1, ("a",)), (10, 3, ("a",)), (20, 4, ("a",))]
    assert wire.network.deliveries == 3


def test_loss_is_independent_per_destination() -> None:
    wire = Wire(LinkModel(loss=0.25))
    for number in range(8_000):
        wire.network.multicast(1, NODES, (number,))
    got = {node: {burst[0] for _, to, burst in wire.run() if to == node} for node in (2, 3)}
    shares = [len(got[node]) / 8_000 for node in (2, 3)]
    assert shares == [pytest.approx(0.75, abs=0.02)] * 2
    assert len(got[2] & got[3]) / 8_000 == pytest.approx(0.75**2, abs=0.02)
    assert wire.lost[2] == 8_000 - len(got[2])


def test_loss_along_a_tree_hits_everybody_behind_a_branch() -> None:
    """§5.2: receivers behind one branch lose the same packets; each still loses with probability p."""
    wire = Wire(LinkModel(loss=0.25, tree=True))
    for number in range(8_000):
        wire.network.multicast(1, NODES, (number,))
    lost = {node: set(range(8_000)) - {burst[0] for _, to, burst in wire.run() if to == node} for node in (2, 3, 4)}
    assert [len(lost[node]) / 8_000 for node in (2, 3, 4)] == [pytest.approx(0.25, abs=0.02)] * 3
    edge = 1 - 0.75**0.5
    assert len(lost[2] & lost[3]) / 8_000 == pytest.approx(edge + (1 - edge) * edge**2, abs=0.02)
    assert len(lost[2] & lost[4]) / 8_000 == pytest.approx(0.25**2, abs=0.02)


def test_adding_a_link_leaves_the_draws_of_others_alone() -> None:
    def heard_by_2(audience: tuple[NodeId, ...]) -> list[object]:
        wire = Wire(LinkModel(loss=0.3))
        for number in range(200):
            wire.network.multicast(1, audience, (number,))
        return [burst[0] for _, to, burst in wire.run() if to == 2]

    assert heard_by_2((1, 2)) == heard_by_2(NODES)


def test_jitter_reorders() -> None:
    wire = Wire(LinkModel(jitter_ns=1_000))
    for number in range(50):
        wire.network.unicast(1, 2, (number,))
    order = [burst[0] for _, _, burst in wire.run()]
    assert order != sorted(order, key=str)
    assert {int(str(number)) for number in order} == set(range(50))
    assert min(at for at, _, _ in wire.heard) >= 10


def test_a_duplicate_comes_later() -> None:
    wire = Wire(LinkModel(duplicate=1.0))
    wire.network.unicast(1, 2, ("a",))
    assert wire.run() == [(10, 2, ("a",)), (21, 2, ("a",))]


def test_an_uplink_sends_one_packet_after_the_other() -> None:
    wire = Wire(LinkModel(bandwidth_bps=8_000_000_000))
    wire.network.unicast(1, 2, ("a",), 100)
    wire.network.unicast(1, 3, ("b",), 50)
    wire.network.unicast(2, 3, ("c",), 50)
    assert sorted(wire.run()) == [(60, 3, ("c",)), (110, 2, ("a",)), (170, 3, ("b",))]


def test_a_cut_is_one_way() -> None:
    wire = Wire()
    wire.network.cut([(1, 2)])
    wire.network.unicast(1, 2, ("lost",))
    wire.network.unicast(2, 1, ("heard",))
    wire.network.multicast(1, NODES[:3], ("most",))
    assert sorted(wire.run()) == [(10, 1, ("heard",)), (20, 3, ("most",))]


def test_cuts_are_counted() -> None:
    wire = Wire()
    wire.network.cut([(1, 2)])
    wire.network.cut([(1, 2)])
    wire.network.heal([(1, 2)])
    wire.network.unicast(1, 2, ("lost",))
    wire.network.heal([(1, 2)])
    wire.network.unicast(1, 2, ("heard",))
    assert [burst for _, _, burst in wire.run()] == [("heard",)]


def test_what_is_under_way_when_a_link_is_cut_arrives() -> None:
    wire = Wire()
    wire.network.unicast(1, 6, ("a",))
    wire.network.cut([(1, 6)])
    assert wire.run() == [(50, 6, ("a",))]


def test_the_loss_of_all_links_can_change() -> None:
    wire = Wire()
    wire.network.unicast(1, 2, ("before",))
    wire.network.set_loss(1.0)
    wire.network.unicast(1, 2, ("lost",))
    wire.network.unicast(3, 2, ("lost on a new link",))
    wire.network.set_loss(0.0)
    wire.network.unicast(1, 2, ("after",))
    assert [burst for _, _, burst in wire.run()] == [("before",), ("after",)]


def test_some_packets_are_late_and_of_some_only_a_copy_is() -> None:
    wire = Wire()
    wire.network.set_late(0.5, 10_000)
    for number in range(200):
        wire.network.unicast(1, 2, (number,))
    arrivals: dict[object, list[int]] = {}
    for at, _, (packet,) in wire.run():
        arrivals.setdefault(packet, []).append(at)
    assert len(arrivals) == 200, "none is lost"
    late = [times for times in arrivals.values() if max(times) > 10]
    copied = [times for times in late if len(times) == 2]
    assert 60 < len(late) < 140
    assert 20 < len(copied) < len(late) - 20
    assert max(at for times in late for at in times) <= 10_010


def test_lateness_ends() -> None:
    wire = Wire()
    wire.network.set_late(0.9, 10_000)
    wire.network.set_late(0.0, 0)
    wire.network.unicast(1, 2, ("a",))
    assert wire.run() == [(10, 2, ("a",))]
