"""A customer as a machine: when it is slow, when its clock is set, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from tests.hierarchy.edge_makers import (
    FIRE,
    GAP,
    MS,
    NOW,
    X1,
    C,
    arrive,
    asked,
    beat,
    customer,
    of,
    rel,
    rels,
    settings,
)

from isocast.hierarchy.customer import Customer
from isocast.hierarchy.customer_settings import CustomerSettings, CustomerState, Grade, JoinPoint
from isocast.hierarchy.edge import (
    CustomerCaughtUp,
    CustomerSlow,
    Deliver,
    FetchRange,
    LineSilent,
    RangeArrived,
    Slowness,
)
from isocast.terms.errors import LocalProtocolError
from isocast.terms.instants import SECOND
from isocast.terms.timing import Timing


def test_a_customer_that_did_not_run_says_so() -> None:
    machine = customer()
    due = machine.next_deadline()
    effects = machine.step(FIRE, due + 301 * MS)
    assert of(effects, CustomerSlow) == [CustomerSlow(C, Slowness.STOPPED, 301 * MS)]
    assert machine.snapshot().slow == (Slowness.STOPPED,)
    effects = machine.step(FIRE, machine.next_deadline())
    assert of(effects, CustomerCaughtUp) == [CustomerCaughtUp(C, Slowness.STOPPED)]
    assert machine.snapshot().counters.slow == 1


def test_a_customer_that_did_not_run_accuses_no_line() -> None:
    """What the lines sent meanwhile waits in its sockets."""
    machine = customer()
    machine.step(arrive(beat(1, 1, NOW), beat(1, 2, NOW)), NOW)
    effects = machine.step(FIRE, NOW + 10 * SECOND)
    assert of(effects, CustomerSlow) != []
    assert of(effects, LineSilent) == []
    silent: list[LineSilent] = []
    while not silent:
        assert machine.next_deadline() < NOW + 11 * SECOND
        silent = of(machine.step(FIRE, machine.next_deadline()), LineSilent)
    assert [line.line for line in silent] == [1, 2], "but if nothing comes now, they are"


def test_what_was_missed_by_this_customer_alone_is_fetched_and_not_asked_for() -> None:
    """A repair that is multicast to all would be for nothing."""
    machine = customer()
    machine.step(arrive(rel(1)), NOW)
    stopped = NOW + 10 * SECOND
    machine.step(arrive(rel(40)), stopped)
    effects = machine.step(FIRE, stopped + GAP)
    assert asked(effects) == []
    assert of(effects, FetchRange) == [FetchRange(X1, 2, 39)]
    machine.step(RangeArrived(X1, rels(2, 39, X1), 1, 40), stopped + GAP)
    while machine.snapshot().slow:
        machine.step(FIRE, machine.next_deadline())
    later = machine.next_deadline()
    machine.step(arrive(rel(42)), later)
    assert asked(machine.step(FIRE, later + GAP)) == [(X1, 41, 41)], "what is lost later, others may have lost too"


def test_who_comes_back_fetches_what_was_sent_meanwhile() -> None:
    machine = Customer(C, settings(), CustomerState(40))
    machine.step(arrive(rel(45)), NOW)
    effects = machine.step(FIRE, NOW + GAP)
    assert asked(effects) == []
    assert of(effects, FetchRange) == [FetchRange(X1, 40, 44)]


def test_a_first_step_is_never_late() -> None:
    assert of(Customer(C, settings()).step(FIRE, NOW), CustomerSlow) == []


def test_a_customer_that_reads_late_on_every_line_says_so() -> None:
    machine = customer()
    machine.step(arrive(beat(1, 1, NOW), beat(1, 2, NOW)), NOW + MS)
    late = NOW + 501 * MS
    for place in range(1, 5):
        machine.step(FIRE, NOW + place * 100 * MS)
    effects = machine.step(arrive(beat(1, 1, NOW + 100 * MS), beat(1, 2, NOW + 100 * MS)), late)
    assert of(effects, CustomerSlow) == [CustomerSlow(C, Slowness.LAGGING, 400 * MS)]
    effects = machine.step(arrive(beat(1, 1, late), beat(1, 2, late)), late + 100 * MS)
    assert of(effects, CustomerCaughtUp) == [CustomerCaughtUp(C, Slowness.LAGGING)]


def test_one_congested_line_does_not_make_a_customer_slow() -> None:
    machine = customer()
    machine.step(arrive(beat(1, 1, NOW), beat(1, 2, NOW)), NOW + MS)
    for place in range(1, 5):
        machine.step(FIRE, NOW + place * 100 * MS)
    effects = machine.step(arrive(beat(1, 1, NOW + 100 * MS), beat(1, 2, NOW + 500 * MS)), NOW + 501 * MS)
    assert of(effects, CustomerSlow) == []


def test_a_customer_whose_buffer_overflows_says_so_until_it_has_caught_up() -> None:
    machine = customer(hold_max=20, fetch_max=100, servers=(X1,))
    effects = machine.step(arrive(rel(1), rel(90), rel(90, 2)), NOW)
    assert of(effects, CustomerSlow) == [CustomerSlow(C, Slowness.OVERFLOW, 88)]
    machine.step(RangeArrived(X1, rels(2, 90, X1), 1, 90), NOW + 50 * MS)
    assert machine.snapshot().slow == (Slowness.OVERFLOW,)
    assert of(machine.step(FIRE, NOW + 100 * MS), CustomerCaughtUp) == [CustomerCaughtUp(C, Slowness.OVERFLOW)]


def test_one_lines_word_does_not_make_a_customer_slow() -> None:
    machine = customer(hold_max=20)
    assert of(machine.step(arrive(rel(1), rel(1, 2), rel(1 << 60)), NOW), CustomerSlow) == []
    assert of(machine.step(FIRE, NOW + 100 * MS), CustomerSlow) == []


def test_a_clock_that_is_set_back_makes_nothing_wait() -> None:
    machine = customer()
    machine.step(arrive(rel(2)), NOW)
    machine.step(FIRE, NOW - 3_600 * SECOND)
    assert machine.next_deadline() <= NOW - 3_600 * SECOND + 20 * MS
    effects = machine.step(FIRE, machine.next_deadline())
    assert asked(effects) == [(X1, 1, 1)]
    assert of(effects, CustomerSlow) == []


@pytest.mark.parametrize("grade, join", [(Grade.COMPLETE, JoinPoint.SNAPSHOT), (Grade.LATEST, JoinPoint.SNAPSHOT)])
def test_a_clock_set_back_while_joining_makes_nothing_wait(grade: Grade, join: JoinPoint) -> None:
    machine = Customer(C, settings(grade, join=join))
    machine.step(arrive(beat(5), beat(5, 2)), NOW)
    back = NOW - 3_600 * SECOND
    machine.step(FIRE, back)
    assert machine.next_deadline() <= back + 100 * MS


def test_a_silent_line_is_told_by_the_customer() -> None:
    machine = customer()
    for place in range(1, 8):
        now = NOW + place * 100 * MS
        told = of(machine.step(arrive(beat(1, 1, now)), now), LineSilent)
        if told:
            assert told == [LineSilent(2, 600 * MS)]
            return
    pytest.fail("nobody noticed")


def test_the_same_inputs_give_the_same_effects() -> None:
    one, other = customer(), customer()
    for event, now in (
        (arrive(*rels(1, 3)), NOW),
        (arrive(rel(7), rel(9, 2), beat(12)), NOW + MS),
        (FIRE, NOW + MS + GAP),
        (arrive(*rels(4, 11, X1)), NOW + 20 * MS),
    ):
        assert one.step(event, now) == other.step(event, now)
        assert one.next_deadline() == other.next_deadline()
    assert one.snapshot() == other.snapshot()
    assert one.snapshot().next_sequence == 12


def test_what_was_delivered_can_be_recalled_while_it_is_in_memory() -> None:
    machine = customer(recent_max=4)
    machine.step(arrive(*rels(1, 6), rel(8)), NOW)
    assert machine.recall(3, 6) == tuple(rels(3, 6))
    assert machine.recall(2, 6) is None
    assert machine.recall(5, 8) is None


def test_an_empty_burst_is_nothing() -> None:
    assert customer().step(arrive(), NOW) == ()


def test_times_follow_the_rings_own() -> None:
    timing = Timing(40 * MS, process_ns=4 * MS, clock_error_ns=MS)
    given = CustomerSettings.from_timing(timing, (1, 2), (X1,))
    assert (given.gap_ns, given.retry_ns, given.retries_max) == (42 * MS, 84 * MS, 4)
    assert (given.heartbeat_ns, given.silent_ns, given.join) == (40 * MS, 200 * MS, JoinPoint.NOW)
    latest = CustomerSettings.from_timing(timing, (1, 2), (X1,), Grade.LATEST)
    assert (latest.join, CustomerSettings.from_timing(timing, (1,), (), Grade.LATEST).join) == (
        JoinPoint.SNAPSHOT,
        JoinPoint.NOW,
    )


@pytest.mark.parametrize(
    "changes, rule",
    [
        ({"lines": ()}, "needs a line"),
        ({"lines": (1, 1)}, "twice"),
        ({"servers": (X1, X1)}, "twice"),
        ({"servers": ()}, "need a retransmit server"),
        ({"servers": (), "grade": Grade.LATEST, "join": JoinPoint.SNAPSHOT}, "need a retransmit server"),
        ({"grade": Grade.LATEST, "join": JoinPoint.SEQUENCE}, "never asks for the past"),
        ({"recent_max": 100}, "power of two"),
        ({"recent_max": 0}, "power of two"),
        ({"gap_ns": 0}, "positive"),
        ({"hold_max": 0}, "positive"),
    ],
)
def test_what_cannot_work_is_refused(changes: dict[str, Any], rule: str) -> None:
    with pytest.raises(LocalProtocolError, match=rule):
        settings(**changes)


def test_a_delivery_carries_its_packets_as_they_came() -> None:
    packet = rel(1, 2)
    assert customer().step(arrive(packet), NOW) == (Deliver((packet,)),)
