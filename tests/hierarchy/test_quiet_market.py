"""L5 in a market where nobody publishes: what is missing is known, and is fetched from whoever has it.

An archive may be alive and behind, because the receivers that it hears are dead. Its answer says what it has, and
nothing about what there is: a gap moves on to the next door and stays known until it is filled.
"""

from __future__ import annotations

from typing import Any

from tests.hierarchy.edge_makers import FIRE, GAP, MS, NOW, X1, X2, arrive, beat, customer, of, rel, rels
from tests.simulation.worlds import EdgeRun

from isocast.hierarchy.archive import AnswerLimits, CustomerThrottled
from isocast.hierarchy.customer import Customer
from isocast.hierarchy.edge import (
    Deliver,
    FetchFailed,
    FetchRange,
    GapClosed,
    GapOpened,
    RangeArrived,
    RepairUnanswered,
)
from isocast.ring.effects import Unicast
from isocast.simulation.layers import archive_id, customer_id
from isocast.wire.packets import RangeRequest

CUSTOMER, ARCHIVE = customer_id(1), archive_id(1)


def archive_left_behind(*faults: dict[str, Any], **given: Any) -> EdgeRun:  # noqa: ANN401 (see EdgeRun)
    """The archive hears receivers 1 and 2, which die in the midst of traffic; the customer hears 5 and 4."""
    dead = {"kind": "crash", "at": 0.9, "sites": [1, 2]}
    keys: dict[str, Any] = {"receivers": 5, "messages": 100, "arrival_rate": 70, "archives": 1, "customers": 1}
    return EdgeRun(dead, *faults, **keys, **given)


def everything_though_behind(fault: dict[str, Any]) -> None:
    """The archive asks nobody else; the customer lacks what came meanwhile, and asks."""
    world = archive_left_behind(fault, archive={"last_resorts": ()}, customer={"last_resorts": (4, 5)})
    world.timed.run()
    got = world.sequences(CUSTOMER)
    assert len(got) >= 100
    assert got == list(range(1, len(got) + 1))
    assert len(world.sequences(ARCHIVE)) < 100, "the archive was behind"


def test_a_returning_customer_gets_everything_although_its_archive_is_behind() -> None:
    everything_though_behind({"kind": "crash", "at": 0.8, "until": 3.0, "sites": ["customer1"]})


def test_a_customer_that_lost_packets_gets_everything_although_its_archive_is_behind() -> None:
    everything_though_behind({"kind": "one-way", "at": 0.8, "until": 3.0, "groups": [[4, 5], ["customer1"]]})


def test_an_archive_whose_receivers_are_all_dead_asks_the_doors_of_others() -> None:
    """Nobody tells it that it is behind: silence on every line is a reason to ask."""
    world = archive_left_behind().run()
    assert len(world.sequences(ARCHIVE)) >= 100
    assert world.sequences(ARCHIVE) == world.sequences(CUSTOMER)


def test_an_archive_whose_only_living_receiver_has_a_wrong_clock_asks_the_doors_of_others() -> None:
    """That receiver speaks, holds every token and releases none: it announces nothing new. Swarm seed 3872."""
    faults: list[dict[str, Any]] = [
        {"kind": "crash", "at": 0.5, "sites": [1]},
        {"kind": "clock-step", "at": 0.6, "sites": [2], "step": -0.03},
    ]
    world = EdgeRun(*faults, receivers=5, messages=100, arrival_rate=70, archives=1, customers=1).run()
    assert len(world.sequences(ARCHIVE)) >= 100
    assert world.sequences(ARCHIVE) == world.sequences(CUSTOMER)


def fetched(machine: Customer, now: int) -> tuple[list[FetchRange], int]:
    """What is fetched next, and when."""
    for _ in range(100):
        now = max(now, machine.next_deadline())
        fetches = of(machine.step(FIRE, now), FetchRange)
        if fetches:
            return fetches, now
    raise AssertionError("nothing is fetched")


def gap_of_two(servers: tuple[int, ...], last_resorts: tuple[int, ...] = ()) -> Customer:
    """1 came, and line 1 has spoken of 2 and 3; the first door has been asked."""
    machine = customer(by_datagram=False, servers=servers, last_resorts=last_resorts)
    machine.step(arrive(rel(1), beat(4)), NOW)
    assert of(machine.step(FIRE, NOW + GAP), FetchRange) == [FetchRange(X1, 2, 3)]
    return machine


def test_a_server_that_is_behind_is_followed_by_the_next_door_at_once() -> None:
    machine = gap_of_two(servers=(X1, X2), last_resorts=(1, 2))
    now = NOW + GAP + MS
    for server, following in ((X1, X2), (X2, 1), (1, 2)):
        effects = machine.step(RangeArrived(server, (), 1, 1), now)
        assert of(effects, FetchRange) == [FetchRange(following, 2, 3)]
        assert machine.snapshot().gaps == 1
    effects = machine.step(RangeArrived(2, rels(2, 3, 2), 1, 3), now)
    assert [packet.sequence for run in of(effects, Deliver) for packet in run.packets] == [2, 3]


def test_a_gap_outlives_doors_that_are_behind_and_doors_that_are_shut() -> None:
    """One that did not answer may have it: the gap is known until it is filled."""
    machine = gap_of_two(servers=(X1,), last_resorts=(1,))
    now = NOW + GAP
    for _ in range(20):
        assert of(machine.step(RangeArrived(X1, (), 1, 1), now), FetchRange) == [FetchRange(1, 2, 3)]
        effects = machine.step(FetchFailed(1), now)
        assert of(effects, RepairUnanswered)
        assert of(effects, GapClosed) == []
        assert machine.snapshot().gaps == 1
        fetches, now = fetched(machine, now)
        assert fetches == [FetchRange(X1, 2, 3)]


def test_a_far_claim_is_refuted_by_all_doors_not_by_the_first_that_is_behind() -> None:
    """Line 2 is behind as well: what line 1 alone says may be true, and its own door knows."""
    machine = customer(hold_max=20, servers=(X1,), last_resorts=(1, 2))
    machine.step(arrive(*rels(1, 5), beat(6, 2)), NOW)
    assert of(machine.step(arrive(rel(100)), NOW), FetchRange)[0].server == X1
    effects = machine.step(RangeArrived(X1, (), 1, 5), NOW + MS)
    assert of(effects, FetchRange)[0].server == 1
    effects = machine.step(RangeArrived(1, rels(6, 100), 1, 100), NOW + 2 * MS)
    assert of(effects, Deliver)[-1].last == 100


def test_what_a_door_has_is_known_to_exist() -> None:
    """The line that spoke of it may be dead by now."""
    machine = gap_of_two(servers=(X1, X2))
    machine.step(RangeArrived(X1, rels(2, 3, X1), 1, 9), NOW + GAP + MS)
    assert machine.snapshot().newest == 9
    assert of(machine.step(FIRE, NOW + 2 * GAP + MS), FetchRange) == [FetchRange(X1, 4, 9)]


def test_an_honest_customer_never_asks_for_more_than_its_share() -> None:
    """Repairs on the server's line are lost again and again: it goes to the door before its share is used up."""
    faults = [
        {"kind": "one-way", "at": at, "until": at + span, "groups": [senders, ["customer1"]]}
        for at in (0.6, 1.2)
        for senders, span in (([1, 2, 3], 0.3), (["archive1"], 0.6))
    ]
    line = AnswerLimits(quiet_ns=10 * MS)
    keys: dict[str, Any] = {"arrival_rate": 2_000, "burst": 100, "messages": 6_000, "archives": 1, "customers": 1}
    world = EdgeRun(*faults, customer={"retries_max": 5}, limits={"line": line}, **keys).run()
    assert world.sequences(CUSTOMER) == list(range(1, 6_001))
    widest = max([gap.last - gap.first + 1 for gap in world.effects(CUSTOMER, GapOpened)])
    requests = [sent.packet for sent in world.effects(CUSTOMER, Unicast) if isinstance(sent.packet, RangeRequest)]
    assert sum([request.last - request.first + 1 for request in requests]) >= widest, "it asked by datagram"
    assert 5 * widest > line.customer_burst, "and all attempts would have been too much"
    assert world.effects(ARCHIVE, CustomerThrottled) == []
