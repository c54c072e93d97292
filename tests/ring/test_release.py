"""Held until the instant and the gate, released in order, paced (§5; protocol §4)."""

from __future__ import annotations

from tests.ring.makers import EPOCH, MS, NEXT_EPOCH, PERIOD, Chain, T, following, founding, message, settings

from isocast.ring.effects import FairnessFaulted, Release
from isocast.ring.ledger import LogEntry
from isocast.ring.release import Releaser
from isocast.ring.settings import Schedule
from isocast.terms.instants import NEVER
from isocast.terms.timing import Gate

DELAY = settings().timing.release_delay_ns
FIRST = Schedule(founding(), PERIOD)


class Site:
    """A releaser with a log and a gate that the test opens."""

    def __init__(self, *entries: LogEntry, rate: int = 0, gate: int = 99) -> None:
        self.entries = {entry.token.token_number: entry for entry in entries}
        self.gate = gate
        self.releaser = Releaser(settings(release_rate=rate), lambda: self.entries, lambda number: number <= self.gate)

    def poll(self, now: int, schedule: Schedule = FIRST) -> list[tuple[object, ...]]:
        """(first sequence, how many, due) of each release, or the number of a fault."""
        found: list[tuple[object, ...]] = []
        for effect in self.releaser.poll(schedule, EPOCH, now):
            match effect:
                case Release():
                    found.append((effect.first_sequence, len(effect.messages), effect.due))
                case FairnessFaulted(number):
                    found.append((f"fault {number}",))
                case _:
                    raise AssertionError(effect)
        return found


def entries(*sizes: int) -> list[LogEntry]:
    chain, number = Chain(), 1
    for size in sizes:
        chain.add(*[message(number + place) for place in range(size)])
        number += size
    return chain.entries


def test_a_token_is_released_at_its_instant_and_not_before() -> None:
    """§5; protocol §3: at T_t+Δ_A."""
    site = Site(*entries(2))
    assert site.releaser.next_deadline(FIRST) == T(1) + DELAY
    assert site.poll(T(1) + DELAY - 1) == []
    assert site.poll(T(1) + DELAY) == [(1, 2, T(1) + DELAY)]
    assert site.releaser.released == 1


def test_tokens_are_released_in_sequence_and_empty_ones_pass_silently() -> None:
    site = Site(*entries(2, 0, 1))
    site.poll(T(1) + DELAY)
    assert site.poll(T(2) + DELAY) == []
    assert site.releaser.released == 2
    assert site.poll(T(3) + DELAY) == [(3, 1, T(3) + DELAY)]


def test_a_release_waits_for_its_gate_and_the_wait_is_a_fairness_fault() -> None:
    """Protocol §3: else hold until it opens and record a fairness fault."""
    site = Site(*entries(1), gate=0)
    assert site.poll(T(1) + DELAY) == [("fault 1",)]
    assert site.poll(T(1) + DELAY + 1) == []
    assert site.releaser.next_deadline(FIRST) == NEVER
    site.gate = 1
    assert site.poll(T(1) + DELAY + 2) == [(1, 1, T(1) + DELAY)]


def test_a_token_that_is_not_here_at_its_instant_is_a_fault_once() -> None:
    site = Site()
    assert site.releaser.next_deadline(FIRST) == T(1) + DELAY
    assert [site.poll(T(1) + DELAY), site.poll(T(2) + DELAY)] == [[("fault 1",)], []]


def test_a_later_token_waits_for_an_earlier_one() -> None:
    both = entries(1, 1)
    site = Site(both[1])
    assert site.poll(T(2) + DELAY) == [("fault 1",)]
    site.entries[1] = both[0]
    assert site.poll(T(2) + DELAY) == [(1, 1, T(1) + DELAY), (2, 1, T(2) + DELAY)]


def test_a_site_that_slept_over_the_instant_owns_up_to_it() -> None:
    """P is what a process may take; a release later than that is late for customers too."""
    process = settings().timing.process_ns
    assert Site(*entries(1)).poll(T(1) + DELAY + process) == [(1, 1, T(1) + DELAY)]
    assert Site(*entries(1)).poll(T(1) + DELAY + process + 1) == [("fault 1",), (1, 1, T(1) + DELAY)]


# Pacing


def test_a_large_token_is_spread_over_milliseconds() -> None:
    """Protocol §4: T_t+Δ_A plus its place in the token divided by the rate, in 1 ms steps."""
    site, at = Site(*entries(5), rate=2), T(1) + DELAY
    assert site.poll(at) == [(1, 2, at)]
    assert site.releaser.next_deadline(FIRST) == at + MS
    assert site.poll(at + MS - 1) == []
    assert site.poll(at + MS) == [(3, 2, at + MS)]
    assert site.poll(at + 2 * MS) == [(5, 1, at + 2 * MS)]
    assert (site.releaser.released, site.releaser.offset) == (1, 0)


def test_a_small_token_goes_out_at_once_whatever_the_rate() -> None:
    at = T(1) + DELAY
    assert Site(*entries(2), rate=2).poll(at) == [(1, 2, at)]


def test_a_restart_goes_on_in_the_middle_of_a_token() -> None:
    site, at = Site(*entries(5), rate=2), T(1) + DELAY
    site.releaser.restore(0, 2)
    assert site.poll(at + MS) == [(3, 2, at + MS)]


# A new ring


def test_the_backlog_of_an_earlier_ring_goes_out_from_the_new_start_on_as_a_fault() -> None:
    """Protocol §5, step 4: backlog ≤ cut is released from T0 on, and counted as a fairness fault."""
    chain = Chain()
    chain.add(message(1))
    second = Schedule(following(chain, start=T(1) + 10 * PERIOD), PERIOD)
    site = Site(*chain.entries)
    assert site.poll(T(1) + DELAY, second) == []
    assert site.poll(second.start, second) == [("fault 1",), (1, 1, second.start)]


def test_what_is_due_after_the_new_start_keeps_its_own_instant() -> None:
    chain = Chain()
    chain.add(message(1))
    second = Schedule(following(chain, start=T(1) + PERIOD), PERIOD)
    assert Site(*chain.entries).poll(T(1) + DELAY, second) == [(1, 1, T(1) + DELAY)]


def test_a_backlog_of_several_tokens_is_paced_one_after_the_other() -> None:
    """Protocol §5, step 4: paced, token after token from T0 on. A burst would flood every receive buffer (§4)."""
    both = entries(4, 4)
    chain = Chain()
    second = Schedule(following(chain, start=T(9)), PERIOD)
    second.first_token = 3
    site = Site(*both, rate=2)
    released = [site.poll(second.start + step * MS, second) for step in range(4)]
    assert [sum(int(str(out[1])) for out in step if len(out) > 1) for step in released] == [2, 2, 2, 2]


def test_a_site_that_was_late_comes_back_to_the_instants_that_all_share() -> None:
    """Protocol §4: at the same instants at every R_T. Timers that fire a little late must not add up."""
    site = Site(*entries(2, 12), rate=2)
    site.poll(T(1) + DELAY + 50 * MS)
    at, late = T(2) + DELAY, MS // 10
    steps = [site.poll(at + step * MS + late) for step in range(6)]
    assert steps == [[(3 + 2 * step, 2, at + step * MS)] for step in range(6)]


def test_a_token_that_is_issued_anew_can_be_at_fault_anew() -> None:
    """A fault of an old token of that number was another's (seed 111)."""
    site = Site()
    site.poll(T(2) + DELAY)
    site.releaser.enter(1)
    assert site.poll(T(2) + DELAY) == [("fault 1",)]


def test_a_release_says_in_which_epoch_the_site_is() -> None:
    [entry] = entries(1)
    site = Site(entry)
    [effect] = site.releaser.poll(FIRST, NEXT_EPOCH, T(1) + DELAY)
    assert effect == Release(NEXT_EPOCH, entry, 1, entry.messages, T(1) + DELAY)


def test_the_gates_share_of_the_delay_is_part_of_it() -> None:
    """Protocol §1: majority adds δ_N+2ε, next-L adds L·τ_t, total adds (m-1)·τ_t."""
    delays = {gate: settings(gate).timing.release_delay_ns for gate in Gate}
    assert delays == {
        Gate.TIMED: 110 * MS, Gate.MAJORITY: 132 * MS, Gate.NEXT: 220 * MS, Gate.TOTAL: 330 * MS,
    }  # fmt: skip


def test_a_step_that_comes_late_does_not_hold_up_the_next_of_an_earlier_rings_token() -> None:
    """Its instants lie behind the new start, so all sites share them: only backlog goes from step to step."""
    [entry] = entries(6)
    start = Schedule(following(Chain().grow(1), start=T(1) + DELAY), PERIOD)
    site = Site(entry, rate=2)
    due = T(1) + DELAY
    assert site.poll(due + MS // 4, start) == [(1, 2, due)]
    assert site.poll(due + MS, start) == [(3, 2, due + MS)]
    assert site.poll(due + 2 * MS, start) == [(5, 2, due + 2 * MS)]
