"""Archives, customers and secondary sources of a simulated world."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.worlds import facts_of, run, scenario

from isocast.checks.facts import Delivered, Entrusted, Given, LatestDelivered, Released, SnapshotTaken
from isocast.simulation.chaos import chaos
from isocast.simulation.edge import SimulatedJournal, event_payload
from isocast.simulation.layers import Edge, archive_id, customer_id
from isocast.terms.errors import ConfigurationError
from isocast.terms.ids import NO_EPOCH
from isocast.wire.events import events_view
from isocast.wire.packets import ReleasedPacket

EDGE: dict[str, Any] = {"archives": 1, "customers": 3, "latest_customers": 1}
FIRST, NOW, SNAPSHOT, LATEST = map(customer_id, range(1, 5))


def got(facts: list[Any], node: int) -> list[int]:
    return [packet.sequence for fact in facts if isinstance(fact, Delivered) and fact.node == node
            for packet in fact.packets]  # fmt: skip


def test_complete_customers_and_archives_get_everything_from_their_start_on() -> None:
    world, facts = facts_of(**EDGE)
    everything = list(range(1, 61))
    assert got(facts, archive_id(1)) == got(facts, FIRST) == everything
    assert got(facts, NOW)[-1] == 60
    begun = next(fact.next_sequence for fact in facts if isinstance(fact, SnapshotTaken))
    assert got(facts, SNAPSHOT) == everything[begun - 1 :]
    assert any(isinstance(fact, LatestDelivered) for fact in facts)
    assert world.violations() == []


def test_what_lines_lose_an_archive_gives_again() -> None:
    """A request by datagram, answered on the archive's line; or a visit at its door."""
    world, facts = facts_of(loss=0.3, messages=200, **EDGE)
    assert any(isinstance(fact, Given) for fact in facts)
    assert got(facts, FIRST) == list(range(1, 201))
    assert world.violations() == []


@pytest.mark.parametrize("node", ["customer1", "archive1"])
@pytest.mark.parametrize("disk", ["kept", "lost"])
def test_who_was_down_gets_what_it_missed(node: str, disk: str) -> None:
    fault = {"kind": "crash", "at": 0.5, "until": 1.2, "sites": [node], "disk": disk}
    world, facts = facts_of(fault, **EDGE)
    number = FIRST if node == "customer1" else archive_id(1)
    assert sorted(dict.fromkeys(got(facts, number))) == list(range(1, 61))
    assert world.violations() == []


def test_a_customer_whose_receivers_are_silent_asks_others() -> None:
    """Its lines are dead for ever, and so is the archive: the doors of other receivers are left."""
    parted = {"kind": "partition", "at": 0.4, "groups": [[1, 2], ["customer1"]]}
    down = {"kind": "crash", "at": 0.4, "sites": ["archive1"]}
    world, facts = facts_of(parted, down, archives=1, customers=1)
    assert scenario(archives=1, customers=1).edge.lines(FIRST, (1, 2, 3)) == (3, 2)
    assert got(facts, FIRST) == list(range(1, 61))
    assert world.violations() == []


def test_a_customer_that_arrives_late_begins_then() -> None:
    late = {"kind": "crash", "at": 0, "until": 1.0, "sites": ["customer2"]}
    _, facts = facts_of(late, **EDGE)
    assert got(facts, NOW)[0] > 1
    assert got(facts, NOW)[-1] == 60


def test_what_secondary_sources_take_is_released_once_whatever_happens_to_their_parent() -> None:
    faults = [
        {"kind": "crash", "at": 0.4, "until": 0.9, "sites": ["source1"]},
        {"kind": "one-way", "at": 1.0, "until": 1.5, "groups": [["source1"], ["source3"]]},
        {"kind": "crash", "at": 1.2, "until": 1.4, "sites": ["source3"]},
    ]
    world, facts = facts_of(*faults, secondary_sources=1, messages=100)
    taken = [fact.digest for fact in facts if isinstance(fact, Entrusted)]
    entered = [message.digest for fact in facts if isinstance(fact, Released) and fact.site == 1
               for message in fact.messages if message.digest in taken]  # fmt: skip
    assert len(taken) >= 5
    assert entered == taken
    assert world.violations() == []


def test_the_edge_changes_nothing_for_the_ring() -> None:
    """Each link draws from a stream of its own."""
    late = {"kind": "late", "at": 0.01, "until": 3.0, "late": 0.1, "by": 0.5}
    _, alone = facts_of(late, loss=0.05, jitter=0.001)
    _, watched = facts_of(late, loss=0.05, jitter=0.001, **EDGE)
    instants = [
        [(fact.at, fact.site, fact.first_sequence) for fact in facts if isinstance(fact, Released)]
        for facts in (alone, watched)
    ]
    assert instants[0] == instants[1]


def test_messages_are_market_events() -> None:
    assert len(events_view(event_payload(7, 96))) == 2
    with pytest.raises(ConfigurationError, match="multiple"):
        scenario(payload_bytes=100, **EDGE)


def test_complete_customers_need_an_archive() -> None:
    with pytest.raises(ConfigurationError, match="archive"):
        scenario(customers=1)


def test_a_fault_names_nodes_of_the_edge() -> None:
    fault = {"kind": "crash", "at": 1, "sites": ["customer4", "archive1", "source3"]}
    made = scenario(fault, secondary_sources=1, **EDGE)
    assert made.faults[0].sites == (LATEST, archive_id(1), *made.edge.secondary_source_nodes(2))
    with pytest.raises(ConfigurationError, match="customers are 1 to 4"):
        scenario({"kind": "crash", "at": 1, "sites": ["customer5"]}, **EDGE)


def test_a_journal_behind_a_hole_begins_again() -> None:
    journal = SimulatedJournal()
    packets = [ReleasedPacket(0, NO_EPOCH, 1, 1, place, 0, 0, place, 1, b"", b"") for place in range(6)]
    journal.append((packets[1], packets[2]))
    assert journal.read(1, 9) == (packets[1], packets[2])
    journal.append((packets[5],))
    assert (journal.low_water, journal.next_sequence) == (5, 6)
    assert not journal.has(1, 4)


def test_some_random_worlds_have_an_edge() -> None:
    worlds = [chaos(seed) for seed in range(1, 301)]
    watched = [world for world in worlds if "archives" in world]
    forwarding = [world for world in worlds if "secondary_sources" in world]
    assert 75 <= len(watched) <= 115
    assert 20 <= len(forwarding) <= 55
    assert Edge(1)
    assert not Edge()


def test_a_calm_world_of_both_grades_is_judged_clean() -> None:
    assert run(archives=2, customers=2, latest_customers=2, secondary_sources=2).violations() == []
