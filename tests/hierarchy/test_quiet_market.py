"""L5 in a market where nobody publishes: what is missing is known, and is fetched from whoever has it.

An archive may be alive and behind, because the receivers that it hears are dead. Its answer says what it has, and
nothing about what there is: a gap moves on to the next door and stays known until it is filled.
"""

from __future__ import annotations

from tests.hierarchy.door_world import DoorWorld
from tests.hierarchy.edge_makers import FIRE, GAP, MS, NOW, RETRY, X1, X2, C, arrive, beat, customer, of, rel, rels
from tests.hierarchy.edge_makers import settings as edge_settings
from tests.hierarchy.edge_world import Host, Link, World

from isocast.hierarchy.archive import AnswerLimits, CustomerThrottled
from isocast.hierarchy.customer import Customer
from isocast.hierarchy.customer_settings import JoinPoint
from isocast.hierarchy.edge import Deliver, FetchFailed, FetchRange, GapClosed, RangeArrived, RepairUnanswered
from isocast.nodes.retransmit_server import RetransmitSettings
from isocast.terms.instants import SECOND

NEVER_BACK = 10_000 * SECOND


def market(*, archive_resorts: tuple[int, ...] = (), customer_resorts: tuple[int, ...] = (3, 4)) -> DoorWorld:
    """Four receivers: the archive X1 hears 1 and 2, the customer C hears 3 and 4 and asks X1."""
    world = DoorWorld(1, Link(), (1, 2, 3, 4))
    own = edge_settings(
        lines=(1, 2), servers=(1, 2), by_datagram=False, join=JoinPoint.SEQUENCE, last_resorts=archive_resorts
    )
    world.add_server_with(X1, RetransmitSettings(own, AnswerLimits(quiet_ns=10 * MS)))
    world.add_customer(
        C, edge_settings(lines=(3, 4), servers=(X1,), last_resorts=customer_resorts, join=JoinPoint.SEQUENCE)
    )
    return world


def archive_left_behind(world: DoorWorld, *, customer_away: bool) -> Host:
    """2,460 messages reach everybody; then the archive's receivers die, 5,600 more are published, and it is quiet."""
    world.publish(world.now + 200 * MS, 2_460)
    world.run(world.now + 1 * SECOND)
    if customer_away:
        world.kill(C, 500 * MS)
    else:
        world.links[3, C] = world.links[4, C] = Link(loss=1.0)
    world.kill(1, NEVER_BACK)
    world.kill(2, NEVER_BACK)
    world.publish(world.now + 100 * MS, 5_600)
    world.run(world.now + 200 * MS)
    world.links.clear()
    return world.hosts[C]


def test_a_returning_customer_gets_everything_although_its_archive_is_behind() -> None:
    world = market()
    host = archive_left_behind(world, customer_away=True)
    world.run(world.now + 5 * SECOND)
    assert host.sequences() == list(range(1, 8_061))


def test_a_customer_that_lost_packets_gets_everything_although_its_archive_is_behind() -> None:
    world = market()
    host = archive_left_behind(world, customer_away=False)
    world.run(world.now + 5 * SECOND)
    assert host.sequences() == list(range(1, 8_061))


def test_an_archive_whose_receivers_are_all_dead_asks_the_doors_of_others() -> None:
    """Nobody tells it that it is behind: silence on every line is a reason to ask."""
    world = market(archive_resorts=(3, 4))
    archive_left_behind(world, customer_away=False)
    world.run(world.now + 10 * SECOND)
    assert sorted(world.archives[X1]) == list(range(1, 8_061))


def test_a_customer_that_hears_nobody_asks_doors_and_learns_what_it_lacks() -> None:
    world = market(archive_resorts=(3, 4), customer_resorts=())
    world.links = {(line, C): Link(loss=1.0) for line in (3, 4, X1)}
    world.publish(world.now + 200 * MS, 10_000)
    world.run(world.now + 10 * SECOND)
    assert world.hosts[C].sequences() == list(range(1, 10_001))


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
    world = World(1, Link())
    server = world.add_server()
    host = world.add_customer(C, edge_settings(servers=(X1,), retries_max=5, join=JoinPoint.SEQUENCE))
    world.publish(world.now + 200 * MS, 10)
    world.run(world.now + 1 * SECOND)
    for _ in range(4):
        world.links = {(line, C): Link(loss=1.0) for line in (1, 2, X1)}
        world.publish(world.now + 10 * MS, 1_000)
        world.run(world.now + 20 * MS)
        world.links = {(X1, C): Link(loss=1.0)}
        world.publish(world.now + 10 * MS, 1)
        world.run(world.now + 20 * RETRY)
    assert host.sequences() == list(range(1, world.sent + 1))
    assert server.effects(CustomerThrottled) == []
