"""Late joiners of every kind."""

from __future__ import annotations

from typing import Any

import pytest
from tests.hierarchy.edge_makers import (
    FIRE,
    GAP,
    MS,
    NOW,
    RETRY,
    X1,
    X2,
    C,
    arrive,
    asked,
    beat,
    of,
    quote,
    rel,
    rels,
    settings,
)

from isocast.hierarchy.customer import Customer
from isocast.hierarchy.customer_settings import CustomerState, Grade, JoinPoint
from isocast.hierarchy.edge import (
    ConflictFound,
    CustomerInput,
    Deliver,
    DeliverSnapshot,
    FetchFailed,
    FetchSnapshot,
    LinesPlanned,
    LineSwitched,
    RangeArrived,
    RepairUnanswered,
    SnapshotArrived,
)
from isocast.hierarchy.latest import LatestSnapshot

SNAPSHOT = LatestSnapshot(0, 50, 50, 0, quote(49))
FOLLOWS = LineSwitched(1, None)
"""Told once, with the first look at the lines."""


def joiner(join: JoinPoint = JoinPoint.NOW, **changes: Any) -> Customer:  # noqa: ANN401 (any field)
    return Customer(C, settings(join=join, **changes))


def test_from_now_on_begins_where_two_lines_are() -> None:
    machine = joiner()
    assert machine.step(arrive(*rels(100, 102)), NOW) == (FOLLOWS,)
    assert not machine.snapshot().joined
    effects = machine.step(arrive(*rels(101, 103, 2)), NOW + MS)
    assert effects == (Deliver((*rels(100, 102), rel(103, 2))),)
    assert machine.snapshot().joined


def test_one_line_is_enough_after_a_while() -> None:
    machine = joiner()
    machine.step(arrive(*rels(100, 102)), NOW)
    assert machine.next_deadline() == NOW + GAP
    assert machine.step(FIRE, NOW + GAP) == (Deliver(tuple(rels(100, 102))),)


def test_a_customer_of_one_line_begins_at_once() -> None:
    assert joiner(lines=(1,)).step(arrive(rel(100)), NOW) == (Deliver((rel(100),)), FOLLOWS)


def test_an_idle_market_is_joined_by_its_heartbeats() -> None:
    machine = joiner()
    machine.step(arrive(beat(100), beat(100, 2)), NOW)
    assert machine.snapshot().next_sequence == 100
    assert machine.step(arrive(rel(100)), NOW + MS) == (Deliver((rel(100),)),)


def test_a_line_that_is_far_off_does_not_decide() -> None:
    machine = joiner(lines=(1, 2, 3), hold_max=50)
    machine.step(arrive(beat(1 << 60)), NOW)
    effects = machine.step(arrive(beat(100, 2)), NOW + MS)
    assert (effects, machine.snapshot().next_sequence) == ((), 100)
    other = joiner(lines=(1, 2, 3), hold_max=50)
    other.step(arrive(beat(1, 1), beat(1_000, 2), beat(990, 3)), NOW)
    assert other.snapshot().next_sequence == 990


def test_a_retransmit_servers_line_does_not_decide() -> None:
    machine = joiner()
    machine.step(arrive(rel(100), beat(3, X1)), NOW)
    assert not machine.snapshot().joined


def test_what_comes_while_joining_is_held_within_bounds_and_compared() -> None:
    machine = joiner(JoinPoint.SNAPSHOT, hold_max=5)
    machine.step(arrive(*rels(100, 199)), NOW)
    assert machine.snapshot().held == 5
    for other in (rel(100, 2, b"forged"), rel(100, 2)._replace(shuffle_key=b"another key 1234")):
        [alarm] = machine.step(arrive(other), NOW)
        assert isinstance(alarm, ConflictFound)
    machine.step(arrive(rel(1, 9), rel(1)._replace(stripe=1), rel(1)._replace(count=2), beat(0)), NOW)
    assert machine.snapshot().counters.strange == 4


def test_from_a_sequence_on_the_past_is_fetched() -> None:
    machine = joiner(JoinPoint.SEQUENCE, first_sequence=40)
    assert machine.step(arrive(rel(100)), NOW) == (FOLLOWS,)
    assert asked(machine.step(FIRE, NOW + GAP)) == [(X1, 40, 99)]


def test_an_earlier_run_is_continued_whatever_the_settings_say() -> None:
    machine = Customer(C, settings(join=JoinPoint.SNAPSHOT), CustomerState(70))
    assert machine.snapshot().joined
    assert machine.step(arrive(rel(70)), NOW) == (Deliver((rel(70),)), FOLLOWS)


def test_a_snapshot_is_delivered_and_continued() -> None:
    machine = joiner(JoinPoint.SNAPSHOT)
    assert machine.next_deadline() <= NOW
    assert machine.step(FIRE, NOW) == (FetchSnapshot(X1),)
    assert machine.step(arrive(*rels(48, 52)), NOW + MS) == ()
    effects = machine.step(SnapshotArrived(X1, SNAPSHOT), NOW + 2 * MS)
    assert effects == (DeliverSnapshot(SNAPSHOT), Deliver(tuple(rels(50, 52))))
    assert machine.snapshot().counters.old == 0


def test_a_snapshot_older_than_what_was_heard_leaves_a_gap_that_is_repaired() -> None:
    machine = joiner(JoinPoint.SNAPSHOT)
    machine.step(FIRE, NOW)
    machine.step(arrive(*rels(55, 56)), NOW)
    machine.step(SnapshotArrived(X1, SNAPSHOT), NOW + MS)
    assert asked(machine.step(FIRE, NOW + MS + GAP)) == [(X1, 50, 54)]


def test_servers_without_a_snapshot_are_asked_in_turn_for_ever() -> None:
    machine = joiner(JoinPoint.SNAPSHOT)
    machine.step(FIRE, NOW)
    assert machine.step(FetchFailed(X2), NOW) == ()
    assert machine.step(FetchFailed(X1), NOW) == (FetchSnapshot(X2),)
    assert machine.next_deadline() == NOW + 2 * RETRY
    assert machine.step(FIRE, NOW + 2 * RETRY) == (RepairUnanswered(0, 0, 1),)
    again = NOW + 4 * RETRY
    assert machine.step(FIRE, again) == (FetchSnapshot(X1),)


def test_a_snapshot_of_another_stripe_is_strange() -> None:
    machine = joiner(JoinPoint.SNAPSHOT)
    machine.step(FIRE, NOW)
    machine.step(SnapshotArrived(X1, LatestSnapshot(1, 50, 50, 0, b"")), NOW)
    assert (machine.snapshot().joined, machine.snapshot().counters.strange) == (False, 1)


@pytest.mark.parametrize("event", [SnapshotArrived(X1, SNAPSHOT), RangeArrived(X1, (), 1, 100), LinesPlanned(())])
def test_what_was_not_asked_for_is_ignored(event: CustomerInput) -> None:
    machine = joiner()
    machine.step(FIRE, NOW)
    assert machine.step(event, NOW) == ()
    following = Customer(C, settings(), CustomerState(1))
    following.step(FIRE, NOW)
    assert of(following.step(event, NOW), DeliverSnapshot) == []
    assert following.snapshot().next_sequence == 1


def test_grade_latest_joins_without_waiting_for_its_snapshot() -> None:
    machine = joiner(JoinPoint.SNAPSHOT, grade=Grade.LATEST)
    effects = machine.step(arrive(rel(100), beat(100, 2)), NOW)
    assert [type(effect).__name__ for effect in effects] == ["DeliverLatest", "FetchSnapshot", "LineSwitched"]
