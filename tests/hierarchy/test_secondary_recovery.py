"""Whom a secondary receiver asks for what it lacks, and when (§4.1; protocol §1, §7)."""

from __future__ import annotations

from dataclasses import replace

from tests.hierarchy.layer_makers import LAYERED, RETRY_S
from tests.ring.makers import LATE, MS, PERIOD, TIMING, T, founding

from isocast.hierarchy.follower import AWAY_PERIODS, PATIENT_TURNS, SecondaryRecovery, Support
from isocast.ring.recovery import AskForRange, AskForToken, GiveUp
from isocast.ring.settings import Schedule

TIMES = LAYERED.timing
AWAY = AWAY_PERIODS * PERIOD
FIRST = LATE + 10 * MS + 16 * MS
"""T_t+δ_N+2ε+δ_S, and 16 ms more to the grid that ends at T_t+168 ms."""


def support(backup: int | None = 2, others: tuple[int, ...] = (1, 2, 3, 6)) -> Support:
    found = Support(1, backup, TIMES)
    found.others = others
    return found


def recovery(helpers: Support | None = None) -> SecondaryRecovery:
    return SecondaryRecovery(4, Schedule(founding(), PERIOD), TIMES, helpers or support())


def history(machine: SecondaryRecovery, held: int, until: int) -> list[tuple[int, object]]:
    done: list[tuple[int, object]] = []
    while (now := machine.next_deadline(held)) <= until:
        done.extend([(now - T(1), action) for action in machine.due(held, now)])
    return done


def tokens_of(action: AskForToken | AskForRange) -> range:
    """The tokens that a request is about."""
    if isinstance(action, AskForToken):
        return range(action.token_number, action.token_number + 1)
    return range(action.first, action.last + 1)


# Whom


def test_the_parent_is_asked_then_the_backup_then_a_member_of_the_ring() -> None:
    helpers = support()
    asked = [helpers.asked(0)]
    for _ in range(5):
        helpers.move_on(0)
        asked.append(helpers.asked(0))
    assert asked == [1, 2, 3, 1, 2, 6]


def chain_of(helpers: Support, turns: int) -> list[int]:
    asked = [helpers.asked(0)]
    for _ in range(turns):
        helpers.move_on(0)
        asked.append(helpers.asked(0))
    return asked


def test_another_head_is_asked_at_once_then_the_backup_then_a_member_of_the_ring() -> None:
    helpers = support()
    helpers.move_on(0)
    helpers.follow(6)
    assert chain_of(helpers, 3) == [6, 2, 1, 6]


def test_a_backup_that_heads_the_group_is_not_asked_twice_and_is_the_backup_again_later() -> None:
    helpers = support()
    helpers.follow(2)
    assert chain_of(helpers, 2) == [2, 1, 2]
    helpers.follow(1)
    assert chain_of(helpers, 2) == [1, 2, 6]


def test_a_silent_parent_is_spared_for_a_while_and_then_asked_again() -> None:
    helpers = support()
    assert helpers.move_on(0) == 1
    assert helpers.asked(AWAY - 1) == 2
    assert helpers.asked(AWAY) == 1


def test_a_clock_that_was_set_back_does_not_keep_the_parent_away() -> None:
    helpers = support()
    helpers.move_on(10 * AWAY)
    assert helpers.asked(0) == 1


def test_one_that_answers_is_not_called_silent_and_only_parent_and_backup_are_asked_in_turn() -> None:
    helpers = support()
    asked = []
    for _ in range(4):
        asked.append(helpers.asked(0))
        helpers.heard(helpers.asked(0), 0)
        assert helpers.move_on(0) is None
    assert asked == [1, 2, 1, 2]


def test_an_answer_of_somebody_else_counts_for_nothing() -> None:
    helpers = support()
    helpers.heard(2, 0)
    assert helpers.move_on(0) == 1


def test_what_it_answered_before_the_last_requests_does_not_excuse_it() -> None:
    helpers = support()
    helpers.heard(1, 0)
    assert helpers.move_on(TIMES.retries_max * RETRY_S) == 1


def test_those_who_answer_and_never_help_are_passed_over_in_the_end() -> None:
    """Both may have lost their disks: then only the ring has what is missing."""
    helpers = support()
    asked = []
    for _ in range(2 * PATIENT_TURNS + 1):
        asked.append(helpers.asked(0))
        helpers.heard(helpers.asked(0), 0)
        helpers.move_on(0)
    assert asked == [1, 2] * PATIENT_TURNS + [3]


def test_without_a_backup_the_ring_comes_after_the_parent() -> None:
    helpers = support(backup=None, others=(1, 2))
    assert [helpers.asked(0), helpers.move_on(0), helpers.asked(0), helpers.move_on(0), helpers.asked(0)] == [
        1, 1, 2, 2, 1,
    ]  # fmt: skip


def test_a_new_ring_may_leave_nobody_else_to_turn_to() -> None:
    helpers = support()
    helpers.move_on(0)
    helpers.move_on(0)
    assert helpers.asked(0) == 3
    helpers.others = (1, 2)
    assert helpers.asked(0) == 2


# When


def test_requests_lie_on_a_grid_that_ends_where_the_gates_share_begins() -> None:
    """Protocol §1: δ_S+k_r·τ_{r,S} after the last moment at which a parent becomes complete: 110 ms after T_t."""
    done = history(recovery(), 0, T(1) + 168 * MS)
    asked = [at for at, action in done if isinstance(action, AskForToken | AskForRange) and 1 in tokens_of(action)]
    assert asked == [FIRST + step * RETRY_S for step in range(6)]
    complete = TIMES.completion_ns + TIMES.secondary_ns
    assert asked[-1] == complete
    late = [at for at in asked if TIMES.completion_ns + TIMES.secondary_detect_ns <= at < complete]
    assert len(late) == TIMES.retries_max


def test_nothing_is_asked_for_before_the_parent_could_know() -> None:
    machine = recovery()
    assert machine.next_deadline(0) == T(1) + FIRST
    assert machine.due(0, T(1) + FIRST - 1) == []


def test_without_times_of_its_own_a_layer_uses_those_of_the_ring() -> None:
    machine = SecondaryRecovery(4, Schedule(founding(), PERIOD), TIMING, support())
    assert machine.ask_from(1) == T(1) + LATE


def test_requests_go_to_the_parent_and_after_silence_to_the_backup() -> None:
    """§4.1: "it requests the message from a specific R_P that is assigned to support it, rather than from the token
    site"."""
    assert history(recovery(), 0, T(1) + FIRST + 3 * RETRY_S) == [
        (FIRST, AskForToken(1, 1)),
        (FIRST + RETRY_S, AskForToken(1, 1)),
        (FIRST + 2 * RETRY_S, GiveUp(1, 1)),
        (FIRST + 2 * RETRY_S, AskForToken(1, 2)),
        (FIRST + 3 * RETRY_S, AskForToken(1, 2)),
    ]


def test_when_nobody_answers_ranges_catch_up() -> None:
    done = history(recovery(), 0, T(1) + FIRST + 5 * RETRY_S)
    assert [action for _, action in done if isinstance(action, GiveUp)] == [GiveUp(1, 1), GiveUp(1, 2)]
    assert done[-1] == (FIRST + 5 * RETRY_S, AskForRange(1, 2, 3))


# Pending


def test_pending_starts_the_count_anew() -> None:
    """Protocol §7: PENDING resets their attempts."""
    helpers = support()
    machine = recovery(helpers)
    for step in range(5):
        now = T(1) + FIRST + step * RETRY_S
        assert machine.due(0, now) == [AskForToken(1, 1)]
        helpers.heard(1, now + MS)
        machine.pending(1, now + MS)


def test_after_the_instant_by_which_it_must_have_had_an_answer_pending_changes_nothing() -> None:
    helpers = support()
    machine = recovery(helpers)
    complete = T(1) + TIMES.completion_ns + TIMES.secondary_ns
    machine.due(0, complete - 2 * RETRY_S)
    machine.due(0, complete - RETRY_S)
    helpers.heard(1, complete)
    machine.pending(1, complete)
    assert machine.due(0, complete)[0] == AskForToken(1, 2)


def test_pending_for_a_token_that_nobody_asked_for_is_nothing() -> None:
    machine = recovery()
    machine.pending(1, T(1))
    assert machine.due(0, T(1) + FIRST) == [AskForToken(1, 1)]


# Ranges


def test_one_that_was_away_asks_its_parent_for_ranges() -> None:
    machine = recovery()
    assert machine.due(0, T(9) + LATE) == [AskForRange(1, 9, 1)]
    assert machine.catching_up
    assert machine.next_deadline(0) == T(9) + LATE + RETRY_S


def test_silence_moves_ranges_to_the_backup_too() -> None:
    machine = recovery()
    now = T(9) + LATE
    done = [machine.due(0, now + attempt * RETRY_S) for attempt in range(3)]
    assert done == [[AskForRange(1, 9, 1)], [AskForRange(1, 9, 1)], [GiveUp(1, 1), AskForRange(1, 9, 2)]]


def test_every_layer_has_its_share_of_the_time() -> None:
    """Three layers: the lowest asks a parent that itself needs the second layer's share."""
    timing = replace(TIMES, secondary_layers=2, release_delay_ns=0)
    machine = SecondaryRecovery(4, Schedule(founding(), PERIOD), timing, support())
    assert timing.secondary_ns == 2 * 58 * MS
    first = machine.ask_from(1) - T(1)
    assert LATE + 10 * MS <= first < LATE + 10 * MS + RETRY_S
    assert (timing.completion_ns + timing.secondary_ns - first) % RETRY_S == 0
