"""Grade latest: the newest event of each key at once, and nothing that is stale."""

from __future__ import annotations

from collections.abc import Iterable

from tests.hierarchy.edge_makers import (
    EPOCH,
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
    following,
    of,
    quote,
    rel,
    rels,
)

from isocast.hierarchy.customer import Customer
from isocast.hierarchy.customer_settings import JoinPoint
from isocast.hierarchy.edge import (
    ClaimRefuted,
    ConflictFound,
    DeliverLatest,
    FetchFailed,
    FetchRange,
    FetchSnapshot,
    GapAbandoned,
    SnapshotArrived,
)
from isocast.hierarchy.latest import LatestSnapshot
from isocast.terms.instants import SECOND
from isocast.wire.packets import NO_DIGEST, Receipt


def news(effects: Iterable[object]) -> list[int]:
    """The prices handed on: each says which message it is of."""
    return [int(price) for effect in of(effects, DeliverLatest) for price in effect.events()["price"]]


def test_a_burst_is_conflated() -> None:
    machine = following()
    effects = machine.step(arrive(rel(1), rel(2, payload=quote(2, symbol="MSFT")), rel(3)), NOW)
    assert effects == (DeliverLatest(3, quote(2, symbol="MSFT") + quote(3), (2, 3), (rel(2).instant, rel(3).instant)),)
    counters = machine.snapshot().counters
    assert (counters.delivered, counters.events, machine.snapshot().keys) == (3, 2, 2)


def test_the_second_copy_brings_nothing() -> None:
    machine = following()
    machine.step(arrive(*rels(1, 3)), NOW)
    assert machine.step(arrive(*rels(1, 3, 2)), NOW + MS) == ()


def test_what_is_newest_goes_out_at_once_and_nothing_is_asked_for() -> None:
    """§7.1: "there is no reason for these customers to retrieve the previous price"."""
    machine = following()
    assert news(machine.step(arrive(rel(1), rel(5)), NOW)) == [5]
    effects = machine.step(FIRE, NOW + GAP)
    assert (asked(effects), of(effects, FetchRange)) == ([], [])
    assert effects == (GapAbandoned(2, 4, 3),)
    assert machine.snapshot().counters.abandoned == 3


def test_a_late_copy_counts_for_keys_that_nothing_newer_has_touched() -> None:
    machine = following()
    machine.step(arrive(rel(1), rel(3)), NOW)
    late = quote(2) + quote(2, symbol="MSFT")
    assert news(machine.step(arrive(rel(2, 2, late)), NOW + MS)) == [2]
    assert machine.step(FIRE, NOW + GAP) == ()


def test_a_burst_out_of_order_is_put_in_order() -> None:
    assert news(following().step(arrive(rel(3), rel(1), rel(2)), NOW)) == [3]


def test_the_loss_of_the_last_message_is_counted() -> None:
    machine = following()
    machine.step(arrive(rel(1), beat(4)), NOW)
    assert machine.step(FIRE, NOW + GAP) == (GapAbandoned(2, 3, 2),)
    # If it comes after all, it is still the newest.
    assert news(machine.step(arrive(rel(3, 2)), NOW + 2 * GAP)) == [3]


def test_a_copy_with_other_content_is_an_alarm() -> None:
    machine = following()
    machine.step(arrive(rel(1)), NOW)
    [alarm] = of(machine.step(arrive(rel(1, 2, quote(9))), NOW), ConflictFound)
    assert (alarm.sequence, alarm.first_line, alarm.other_line) == (1, 1, 2)


def test_a_copy_older_than_memory_is_left_alone() -> None:
    machine = following(recent_max=4)
    machine.step(arrive(*rels(1, 10)), NOW)
    assert machine.step(arrive(rel(6, 2), rel(1, 2, quote(1, symbol="MSFT"))), NOW) == ()
    assert machine.snapshot().counters.old == 2


def test_strange_and_unreadable_messages_are_counted_and_dropped() -> None:
    machine = following()
    strange = (
        rel(1, 9),
        rel(1)._replace(stripe=1),
        rel(1)._replace(count=2),
        beat(0),
        Receipt(0, EPOCH, 1, 1, NO_DIGEST),
    )
    assert machine.step(arrive(*strange), NOW) == ()
    assert news(machine.step(arrive(rel(1, payload=b"noise"), rel(2), rel(3, C)), NOW)) == [2]
    counters = machine.snapshot().counters
    assert (counters.strange, counters.unreadable) == (5, 1)


def test_more_gaps_than_are_told_apart_become_one() -> None:
    machine = following(gaps_max=2)
    machine.step(arrive(*[rel(sequence) for sequence in range(2, 21, 2)]), NOW)
    told = of(machine.step(FIRE, NOW + GAP), GapAbandoned)
    assert len(told) == 2
    assert machine.snapshot().counters.abandoned == 10


def test_a_far_jump_needs_a_second_line() -> None:
    machine = following(hold_max=50)
    machine.step(arrive(rel(1), rel(1, 2)), NOW)
    assert news(machine.step(arrive(rel(1_000)), NOW + MS)) == []
    effects = machine.step(arrive(rel(1_001, 2)), NOW + 2 * MS)
    assert GapAbandoned(2, 1_000, 999) in effects
    assert news(effects) == [1_001]


def test_a_lie_about_the_sequence_changes_nothing() -> None:
    machine = following(hold_max=50)
    machine.step(arrive(rel(1), rel(1, 2)), NOW)
    effects = machine.step(arrive(rel(1 << 60), beat(1 << 61)), NOW + MS)
    assert effects == (FetchSnapshot(X1),)
    effects = machine.step(SnapshotArrived(X1, LatestSnapshot(0, 2, 2, 0, quote(1))), NOW + 2 * MS)
    assert effects == (ClaimRefuted(1, (1 << 61) - 1, 1),)
    assert machine.step(arrive(rel(1 << 60)), NOW + 3 * MS) == ()
    assert news(machine.step(arrive(rel(2, 2)), NOW + 4 * MS)) == [2]


def lone_liar() -> tuple[Customer, int]:
    """A customer that followed the only line that spoke, to a sequence that there is not."""
    machine = following(hold_max=50)
    now = NOW
    for _ in range(7):
        now += 100 * MS
        machine.step(arrive(beat(1, 2, now)), now)
    assert of(machine.step(arrive(rel(1 << 60, 2, quote(7))), now), DeliverLatest)
    return machine, now


def test_who_followed_a_lone_liar_begins_again_once_the_other_line_speaks() -> None:
    machine, now = lone_liar()
    machine.step(SnapshotArrived(X1, LatestSnapshot(0, 9, 9, 0, quote(8))), now)
    assert machine.snapshot().newest == 1 << 60
    asking = []
    for _ in range(4):
        now += 100 * MS
        asking += of(machine.step(arrive(beat(10, 1, now), beat((1 << 60) + 1, 2, now)), now), FetchSnapshot)
    assert asking
    effects = machine.step(SnapshotArrived(X1, LatestSnapshot(0, 10, 10, 0, quote(9))), now)
    assert (news(effects), machine.snapshot().newest) == ([9], 9)
    assert news(machine.step(arrive(rel(10)), now)) == [10]


def test_a_server_that_is_behind_makes_nobody_begin_again() -> None:
    machine = following(hold_max=50)
    for place in range(10):
        now = NOW + place * 100 * MS
        machine.step(arrive(beat(1_000, 1, now), beat(1_000, 2, now)), now)
    effects = machine.step(SnapshotArrived(X1, LatestSnapshot(0, 10, 10, 0, quote(9))), NOW + SECOND)
    assert (machine.snapshot().newest, of(effects, ClaimRefuted)) == (999, [])


def test_an_absence_is_followed_by_a_snapshot_that_fills_in_what_did_not_change_since() -> None:
    machine = following(hold_max=50)
    machine.step(arrive(rel(1), rel(1, 2)), NOW)
    effects = machine.step(arrive(rel(1_000), rel(1_000, 2)), NOW + MS)
    assert of(effects, FetchSnapshot) == [FetchSnapshot(X1)]
    held = quote(500, symbol="MSFT") + quote(999)
    effects = machine.step(SnapshotArrived(X1, LatestSnapshot(0, 1_000, 1_000, 0, held)), NOW + 2 * MS)
    assert news(effects) == [500]
    assert machine.step(FIRE, NOW + 50 * MS) == ()


def test_the_first_snapshot_is_merged_below_what_came_meanwhile() -> None:
    machine = following(10, JoinPoint.SNAPSHOT)
    machine.step(arrive(*rels(10, 12)), NOW)
    effects = machine.step(
        SnapshotArrived(X1, LatestSnapshot(0, 11, 11, 0, quote(10) + quote(3, symbol="MSFT"))), NOW + MS
    )
    assert news(effects) == [3]
    assert machine.snapshot().newest == 12
    assert machine.step(arrive(rel(11, 2)), NOW + MS) == ()


def test_a_snapshot_from_before_the_lines_began_is_not_enough() -> None:
    """What lies between is in neither."""
    machine = following(10, JoinPoint.SNAPSHOT)
    effects = machine.step(SnapshotArrived(X1, LatestSnapshot(0, 8, 8, 0, quote(7))), NOW + MS)
    assert news(effects) == [7]
    assert of(effects, FetchSnapshot) == [FetchSnapshot(X2)]
    effects = machine.step(SnapshotArrived(X2, LatestSnapshot(0, 10, 10, 0, quote(9))), NOW + 2 * MS)
    assert (news(effects), of(effects, FetchSnapshot)) == ([9], [])


def test_snapshots_that_do_not_come_are_asked_for_in_turn_ever_less_often() -> None:
    machine = following(10, JoinPoint.SNAPSHOT)
    assert machine.step(FetchFailed(X2), NOW) == ()
    assert machine.step(FetchFailed(X1), NOW) == (FetchSnapshot(X2),)
    assert machine.next_deadline() == NOW + 2 * RETRY
    assert of(machine.step(FIRE, NOW + 2 * RETRY), FetchSnapshot) == []
    assert of(machine.step(FIRE, NOW + 4 * RETRY), FetchSnapshot) == [FetchSnapshot(X1)]
    assert news(machine.step(arrive(rel(10)), NOW + 4 * RETRY)) == [10]


def test_a_snapshot_of_another_stripe_is_strange() -> None:
    machine = following(10, JoinPoint.SNAPSHOT)
    machine.step(SnapshotArrived(X1, LatestSnapshot(1, 50, 50, 0, quote(1))), NOW)
    assert (machine.snapshot().counters.strange, machine.snapshot().keys) == (1, 0)


def test_without_servers_grade_latest_simply_follows() -> None:
    machine = following(servers=(), hold_max=50)
    effects = machine.step(arrive(rel(1_000), rel(1_000, 2)), NOW + MS)
    assert of(effects, FetchSnapshot) == []
    assert news(effects) == [1_000]
