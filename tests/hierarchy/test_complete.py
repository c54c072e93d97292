"""Grade complete: every message, in order, each of them once."""

from __future__ import annotations

import pytest
from tests.hierarchy.edge_makers import (
    EPOCH,
    FIRE,
    GAP,
    MS,
    NOW,
    X1,
    C,
    arrive,
    beat,
    customer,
    of,
    rel,
    rels,
)

from isocast.hierarchy.edge import ConflictFound, Deliver, GapClosed, GapOpened
from isocast.terms.ids import Epoch
from isocast.wire.packets import NO_DIGEST, Packet, Receipt, ReleasedPacket, short_digest_of


def test_the_first_copy_is_delivered_and_the_second_is_not() -> None:
    """Protocol §7: "the first copy per (stripe, sequence) from two or more addresses wins (A/B arbitration)"."""
    machine = customer()
    assert machine.step(arrive(*rels(1, 3)), NOW) == (Deliver(tuple(rels(1, 3))),)
    assert machine.step(arrive(*rels(1, 3, 2)), NOW) == ()
    assert machine.step(arrive(*rels(4, 5, 2)), NOW) == (Deliver(tuple(rels(4, 5, 2))),)
    assert machine.step(arrive(*rels(4, 5)), NOW) == ()


def test_a_run_has_its_bounds_and_its_events() -> None:
    run = Deliver(tuple(rels(4, 9)))
    assert (run.first, run.last, run.events()["price"].tolist()) == (4, 9, [4, 5, 6, 7, 8, 9])


def test_copies_of_another_epoch_are_copies() -> None:
    """Protocol §5: "customers arbitrate by (stripe, sequence) whatever the epoch"."""
    machine = customer()
    machine.step(arrive(rel(1)), NOW)
    again = rel(1, 2, epoch=Epoch(2, EPOCH.server))
    assert machine.step(arrive(again), NOW) == ()
    assert machine.snapshot().counters.conflicts == 0


def test_order_is_restored_within_a_burst() -> None:
    effects = customer().step(arrive(rel(3), rel(1), rel(2)), NOW)
    assert effects == (Deliver(tuple(rels(1, 3))),)


def test_a_hole_is_filled_by_the_other_line_in_silence() -> None:
    machine = customer()
    assert machine.step(arrive(rel(1), rel(3), rel(4)), NOW) == (Deliver((rel(1),)),)
    assert machine.next_deadline() == NOW + GAP
    filled = machine.step(arrive(*rels(1, 4, 2)), NOW + GAP - MS)
    assert filled == (Deliver((rel(2, 2), rel(3), rel(4))),)
    assert machine.snapshot().counters.gaps == 0
    assert machine.step(FIRE, NOW + GAP) == ()


def test_a_gap_that_outlives_the_lines_difference_is_told_and_so_is_its_end() -> None:
    machine = customer()
    machine.step(arrive(rel(1), rel(4), rel(7)), NOW)
    told = of(machine.step(FIRE, NOW + GAP), GapOpened)
    assert told == [GapOpened(2, 3, 2), GapOpened(5, 6, 2)]
    repaired = machine.step(arrive(*rels(2, 3, X1), *rels(5, 6, X1)), NOW + 2 * GAP)
    assert repaired[0] == Deliver((*rels(2, 3, X1), rel(4), *rels(5, 6, X1), rel(7)))
    assert repaired[1:] == (GapClosed(2, 3, 2 * GAP), GapClosed(5, 6, 2 * GAP))
    assert machine.snapshot().counters.repaired == 4


def test_a_gap_that_the_lines_filled_in_part_is_told_as_it_is() -> None:
    machine = customer()
    machine.step(arrive(rel(10)), NOW)
    machine.step(arrive(*rels(3, 5, 2)), NOW + MS)
    assert of(machine.step(FIRE, NOW + GAP), GapOpened) == [GapOpened(1, 9, 6)]


def test_the_loss_of_the_last_message_shows_by_a_heartbeat() -> None:
    machine = customer()
    machine.step(arrive(*rels(1, 3)), NOW)
    assert machine.step(arrive(beat(6)), NOW + MS) == ()
    assert of(machine.step(FIRE, NOW + MS + GAP), GapOpened) == [GapOpened(4, 5, 2)]


def test_a_heartbeat_that_overtakes_its_messages_is_no_alarm() -> None:
    machine = customer()
    machine.step(arrive(beat(4)), NOW)
    machine.step(arrive(*rels(1, 3)), NOW + MS)
    assert machine.step(FIRE, NOW + GAP) == ()
    assert machine.snapshot().counters.gaps == 0


def test_two_contents_for_one_sequence_are_an_alarm_and_the_first_stands() -> None:
    """Protocol §5: "a differing digest is an alarm"."""
    machine = customer()
    machine.step(arrive(rel(1)), NOW)
    [alarm] = machine.step(arrive(rel(1, 2, b"forged")), NOW)
    assert alarm == ConflictFound(1, 1, 2, short_digest_of(rel(1).payload), short_digest_of(b"forged"))
    counters = machine.snapshot().counters
    assert (counters.conflicts, counters.delivered) == (1, 1)
    assert [line.conflicts for line in machine.snapshot().lines if line.line == 2] == [1]


def test_two_shuffle_keys_for_one_sequence_are_an_alarm_too() -> None:
    """By the key a floor's events enter: who changes it changes who trades."""
    machine = customer()
    other = rel(1, 2)._replace(shuffle_key=b"another key 1234")
    machine.step(arrive(rel(1)), NOW)
    [alarm] = machine.step(arrive(other), NOW)
    assert isinstance(alarm, ConflictFound)
    assert alarm.first_digest != alarm.other_digest
    machine.step(arrive(rel(3)), NOW)
    [alarm] = of(machine.step(arrive(rel(3, 2)._replace(shuffle_key=b"another key 1234")), NOW), ConflictFound)
    assert machine.snapshot().counters.conflicts == 2


def test_a_message_that_waits_is_compared_too() -> None:
    machine = customer()
    machine.step(arrive(rel(3)), NOW)
    [alarm] = machine.step(arrive(rel(3, 2, b"forged")), NOW)
    assert isinstance(alarm, ConflictFound)
    run = of(machine.step(arrive(*rels(1, 2)), NOW), Deliver)
    assert run == [Deliver(tuple(rels(1, 3)))]


def test_a_line_that_lies_about_everything_does_not_flood_the_log() -> None:
    machine = customer()
    machine.step(arrive(*rels(1, 100)), NOW)
    forged = [rel(sequence, 2, b"forged") for sequence in range(1, 101)]
    assert len(machine.step(arrive(*forged), NOW)) == 16
    assert machine.snapshot().counters.conflicts == 100
    assert len(machine.step(arrive(*forged), NOW)) == 16


def test_a_copy_older_than_memory_is_counted_and_not_compared() -> None:
    machine = customer(recent_max=4)
    machine.step(arrive(*rels(1, 10)), NOW)
    assert machine.step(arrive(rel(1, 2, b"forged"), rel(8, 2)), NOW) == ()
    assert machine.snapshot().counters.old == 1


@pytest.mark.parametrize(
    "packet",
    [
        rel(1, 9),
        rel(1)._replace(stripe=1),
        rel(1)._replace(count=2),
        beat(0),
        Receipt(0, EPOCH, 1, 4, NO_DIGEST),
    ],
    ids=["unknown line", "other stripe", "two messages", "heartbeat of nothing", "no packet of the edge"],
)
def test_what_does_not_belong_here_is_counted_and_dropped(packet: Packet) -> None:
    machine = customer()
    assert machine.step(arrive(packet), NOW) == ()
    snapshot = machine.snapshot()
    assert (snapshot.counters.strange, snapshot.next_sequence, snapshot.gaps) == (1, 1, 0)


def test_ones_own_packets_are_not_strange() -> None:
    machine = customer()
    machine.step(arrive(rel(1, C)), NOW)
    assert machine.snapshot().counters.strange == 0


def test_a_burst_of_several_lines_is_accounted_to_each() -> None:
    machine = customer()
    machine.step(arrive(rel(1), rel(1, 2), rel(2, 2), rel(2), rel(3)), NOW)
    wins = {line.line: (line.wins, line.duplicates) for line in machine.snapshot().lines}
    assert (wins[1], wins[2]) == ((2, 1), (1, 1))


def test_more_gaps_than_are_told_apart_become_one() -> None:
    machine = customer(gaps_max=3)
    machine.step(arrive(*[rel(sequence) for sequence in range(2, 21, 2)]), NOW)
    assert machine.snapshot().gaps == 3
    opened = of(machine.step(FIRE, NOW + GAP), GapOpened)
    assert sum([gap.missing for gap in opened]) == 10
    filled: list[ReleasedPacket] = [rel(sequence, X1) for sequence in range(1, 21, 2)]
    [run] = of(machine.step(arrive(*filled), NOW + 2 * GAP), Deliver)
    assert (run.first, run.last) == (1, 20)


def test_nothing_is_held_beyond_the_bound_whatever_a_line_sends() -> None:
    machine = customer(hold_max=50)
    for start in range(2, 100_000, 1_000):
        machine.step(arrive(*[rel(sequence, payload=b"") for sequence in range(start, start + 100)]), NOW)
    snapshot = machine.snapshot()
    assert snapshot.held <= 50
    assert snapshot.counters.beyond > 9_000
    # The other line goes on as if nothing had been.
    effects = machine.step(arrive(*rels(1, 40, 2)), NOW)
    assert of(effects, Deliver)[0].first == 1


def test_a_claim_beyond_reach_opens_no_gap_beyond_reach() -> None:
    """What is looked through for missing messages is bounded, too."""
    machine = customer(hold_max=50)
    machine.step(arrive(beat(10**9), beat(10**9, 2)), NOW)
    assert of(machine.step(FIRE, NOW + GAP), GapOpened) == [GapOpened(1, 50, 50)]
