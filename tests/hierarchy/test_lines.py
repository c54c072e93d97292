"""The receiving end of the lines: statistics, silence, lateness, and whom to believe."""

from __future__ import annotations

from typing import Any

import pytest
from tests.hierarchy.edge_makers import MS, NOW, X1, arrive, beat, customer, following, of, rel, rels, settings

from isocast.hierarchy.edge import ClaimRefuted, LineBack, LineLate, LineSilent, LinesPlanned
from isocast.hierarchy.lines import CustomerLines, Line, Recent
from isocast.terms.instants import SECOND
from isocast.terms.market import Grade


def lines(**changes: Any) -> CustomerLines:  # noqa: ANN401 (any field)
    return CustomerLines(settings(**changes))


def test_recent_messages_are_found_until_their_slot_is_needed() -> None:
    recent = Recent(4)
    for packet in rels(1, 6):
        recent.packets[packet.sequence & recent.mask] = packet
    assert recent.find(2) is None
    assert recent.find(3) == rel(3)
    assert recent.recall(3, 6) == tuple(rels(3, 6))
    assert recent.recall(2, 4) is None
    assert recent.recall(1, 8) is None
    assert recent.recall(5, 4) is None


def test_the_first_copy_wins_and_the_other_is_measured_against_it() -> None:
    machine = customer()
    machine.step(arrive(*rels(1, 4)), NOW)
    machine.step(arrive(*rels(1, 4, 2)), NOW + 16 * MS)
    first, second = [line for line in machine.snapshot().lines if not line.repairs]
    assert (first.wins, first.duplicates, first.lag_ns) == (4, 0, 0)
    assert (second.wins, second.duplicates, second.lag_ns, second.lag_max_ns) == (0, 4, MS, 16 * MS)


@pytest.mark.parametrize("grade", Grade)
def test_a_copy_older_than_memory_is_as_late_as_memory_is_long(grade: Grade) -> None:
    machine = customer(recent_max=4) if grade is Grade.COMPLETE else following(recent_max=4)
    for sequence in range(1, 11):
        machine.step(arrive(rel(sequence)), NOW + sequence * MS)
    machine.step(arrive(rel(2, 2)), NOW + 23 * MS)
    [late] = [line for line in machine.snapshot().lines if line.line == 2]
    assert late.lag_max_ns == 16 * MS


def test_a_line_that_is_first_again_recovers() -> None:
    line = Line(1, repairs=False)
    line.burst(0, 3, 160, NOW)
    assert line.lag_ns == 10
    line.burst(1, 3, 160, NOW)
    assert line.lag_ns < 10


def test_a_line_that_brings_nothing_is_named_once_and_so_is_its_return() -> None:
    both = lines()
    one, two = both.by_owner[1], both.by_owner[2]
    assert both.tick(NOW) == []
    one.heartbeat(beat(1), NOW + 400 * MS)
    assert both.tick(NOW + 501 * MS) == [LineSilent(2, 501 * MS)]
    assert both.tick(NOW + 600 * MS) == []
    two.burst(1, 0, 0, NOW + 700 * MS)
    assert both.tick(NOW + 700 * MS) == [LineBack(2)]


def test_a_servers_line_may_be_silent() -> None:
    both = lines()
    both.tick(NOW)
    assert X1 not in [told.line for told in of(both.tick(NOW + SECOND), LineSilent)]


def test_a_late_line_is_named_and_is_back_at_half_the_lag() -> None:
    both = lines()
    line = both.by_owner[2]
    line.lag_ns = 11 * MS
    assert both.tick(NOW) == [LineLate(2, 11 * MS)]
    line.lag_ns = 6 * MS
    assert both.tick(NOW) == []
    line.lag_ns = 5 * MS
    assert both.tick(NOW) == [LineBack(2)]


def test_reading_late_shows_whatever_the_clocks_differ() -> None:
    """The least delay is journey and offset; what comes on top is the queue."""
    both = lines()
    for line, offset in ((both.by_owner[1], -3 * SECOND), (both.by_owner[2], 40 * SECOND)):
        line.heartbeat(beat(1, line.owner, NOW), NOW + offset)
        line.heartbeat(beat(1, line.owner, NOW + 100 * MS), NOW + offset + 600 * MS)
        assert line.queued_ns == 500 * MS
    assert both.reader_lag_ns() == 500 * MS
    both.by_owner[1].heartbeat(beat(1, 1, NOW + 200 * MS), NOW - 3 * SECOND + 210 * MS)
    assert both.reader_lag_ns() == 10 * MS


def test_a_drifting_clock_is_followed() -> None:
    line = Line(1, repairs=False)
    for minute in range(10):
        line.heartbeat(beat(1, 1, NOW + minute * 60 * SECOND), NOW + minute * 61 * SECOND)
    assert line.queued_ns <= 2 * SECOND


def test_one_lines_word_is_enough_only_while_no_other_speaks() -> None:
    both = lines(hold_max=100)
    both.by_owner[1].heartbeat(beat(10_000), NOW)
    assert both.corroborated(9_999)
    both.by_owner[2].heartbeat(beat(5, 2), NOW)
    assert not both.corroborated(9_999)
    both.by_owner[2].heartbeat(beat(9_900, 2), NOW)
    assert both.corroborated(9_999)


def test_a_refuted_line_is_not_believed_for_a_while() -> None:
    both = lines(hold_max=100)
    both.by_owner[1].heartbeat(beat(10_000), NOW)
    both.by_owner[2].heartbeat(beat(150, 2), NOW)
    assert list(both.refute(100, NOW)) == [ClaimRefuted(1, 9_999, 100)]
    assert both.by_owner[1].distrusted_until > NOW
    assert list(both.refute(100, NOW)) == []


def test_a_clock_that_was_ahead_when_a_line_was_refuted_does_not_prolong_the_distrust() -> None:
    both, hour = lines(hold_max=100), 3_600 * SECOND
    both.by_owner[1].heartbeat(beat(10_000), NOW + hour)
    both.by_owner[2].heartbeat(beat(150, 2), NOW + hour)
    both.refute(100, NOW + hour)
    until = both.by_owner[1].distrusted_until
    both.set_back(NOW)
    assert NOW < both.by_owner[1].distrusted_until == until - hour


def test_what_two_lines_say_is_not_refuted() -> None:
    both = lines(hold_max=100)
    both.by_owner[1].heartbeat(beat(10_000), NOW)
    assert list(both.refute(100, NOW)) == []
    both.by_owner[2].heartbeat(beat(9_950, 2), NOW)
    assert list(both.refute(100, NOW)) == []


def test_a_plan_of_lines_takes_effect_at_once_and_blames_nobody_for_the_past() -> None:
    """§4.3: a line that is new to a customer was not silent before, and one that was left is not missed."""
    found = lines()
    silent_ns = settings().silent_ns
    found.tick(NOW)
    later = NOW + 10 * silent_ns
    assert {effect.line for effect in of(found.tick(later), LineSilent)} == {1, 2}
    found.by_owner[1].heartbeat(beat(1, 1, later), later)
    found.plan((3, 1), later)
    assert not of(found.tick(later + silent_ns), LineSilent)
    views = {view.line: view.left for view in found.views() if not view.repairs}
    assert views == {1: False, 2: True, 3: False}
    assert [effect.line for effect in of(found.tick(later + 2 * silent_ns), LineSilent)] == [3, 1]
    assert [line.owner for line in found.main] == [3, 1]


def test_a_customer_whose_plan_has_no_line_keeps_those_that_it_has() -> None:
    machine = customer()
    machine.step(LinesPlanned((2, 7)), NOW)
    machine.step(LinesPlanned(()), NOW)
    assert [view.line for view in machine.snapshot().lines if not view.repairs and not view.left] == [2, 7]
