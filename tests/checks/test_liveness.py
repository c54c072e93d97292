"""L1 to L4: that something good happens, once faults stop."""

import pytest
from tests.checks.traces import (
    E1,
    E2,
    END,
    MS,
    SITES,
    SOURCE,
    broken,
    crashed,
    in_order,
    installed,
    instant,
    judge,
    law,
    quiet_end,
    quiet_run,
    released,
    restarted,
    ring,
    submitted,
    suspected,
    without,
)

from isocast.checks.facts import Crashed, Cut, Fact, Healed, Paused, Promised, Restarted
from isocast.checks.suite import Law
from isocast.terms.ids import NO_EPOCH, server_id, source_id
from isocast.terms.instants import SECOND
from isocast.wire.packets import Suspicion

GOOD = quiet_run()
ALONE = law(agreement=False)


def test_l1_a_submission_is_released_nowhere() -> None:
    """L1: "every submission is released at every correct R_T"."""
    facts = in_order([*GOOD, submitted(13, END - 10 * MS)])
    assert broken(facts, end=quiet_end()) == ["L1"]
    assert broken(facts, ALONE, quiet_end()) == ["L1"]
    assert "source1/13" in judge(facts, end=quiet_end()).violations[0].text


def test_l1_a_submission_that_is_not_due_yet() -> None:
    facts = in_order([*GOOD, submitted(13, END - 10 * MS)])
    end = quiet_end()._replace(submissions_due=END - 10 * MS)
    assert broken(facts, end=end) == []
    assert broken(facts, ALONE, end) == []


@pytest.mark.parametrize("rules", [law(), ALONE], ids=["agreement", "alone"])
def test_l1_a_correct_site_did_not_release(rules: Law) -> None:
    facts = without(GOOD, lambda fact: fact == released(2, 6))
    assert broken(facts, rules, quiet_end()) == ["L1"]
    others = quiet_end()._replace(correct=(1, 3))
    assert broken(facts, rules, others) == []
    early = quiet_end()._replace(submissions_due=instant(6) - 50 * MS)
    assert broken(facts, rules, early) == []


def test_l1_names_what_a_site_lacks() -> None:
    facts = without(GOOD, lambda fact: fact == released(2, 6))
    assert judge(facts, end=quiet_end()).violations[0].text == "site2 did not release sequences 11 to 12 (token 6)"


def test_l1_a_source_that_is_gone_owes_nothing() -> None:
    lost = in_order([*GOOD, submitted(13, END - 10 * MS), Crashed(END - 5 * MS, SOURCE)])
    assert broken(lost, end=quiet_end()) == []
    assert broken(lost, ALONE, quiet_end()) == []
    again = source_id(1, 2)
    assert (
        broken([*lost, Restarted(END, again, disk_kept=False, promised=E1, accepted=E1, held=0)], end=quiet_end()) == []
    )
    kept = Restarted(END, SOURCE, disk_kept=True, promised=NO_EPOCH, accepted=NO_EPOCH, held=0)
    assert broken([*lost, kept], end=quiet_end()) == ["L1"]


def test_l2_a_site_is_still_sealed() -> None:
    """L2: "ballot races end"."""
    sealed = {**quiet_end().epochs, 2: (E2, E1, True)}
    assert broken(GOOD, end=quiet_end()._replace(epochs=sealed)) == ["L2"]
    assert broken(GOOD, end=quiet_end()._replace(epochs=sealed, correct=(1, 3))) == []
    assert broken(GOOD, end=quiet_end()._replace(epochs={**quiet_end().epochs, 2: (E2, E1, False)})) == ["L2"]


def test_l2_two_sites_are_in_two_epochs() -> None:
    apart = {**quiet_end().epochs, 2: (E2, E2, False)}
    assert broken(GOOD, end=quiet_end()._replace(epochs=apart)) == ["L2"]


# L3 ---------------------------------------------------------------------------------------------

CRASH = instant(2) + 100 * MS
NOTICED = CRASH + 4 * 600 * MS + 522 * MS + 2 * MS + 4 * MS
"""(m+1)·τ_t, a recovery and the slack of clocks and late awakenings."""


def downed(*extra: Fact, at: int = NOTICED + 1) -> list[str]:
    """Site 3 crashed; the verdict of L3 at an instant."""
    facts = [fact for fact in GOOD if fact.at <= CRASH]
    told = in_order([*facts, crashed(3, CRASH), *extra, Promised(at, 9, E1)])
    return [name for name in broken(told) if name == "L3"]


def test_l3_nobody_notices_a_crash() -> None:
    """L3: "a crash is suspected within (m+1)τ_t"."""
    assert downed(at=NOTICED) == []
    assert downed() == ["L3"]


def test_l3_somebody_notices() -> None:
    assert downed(suspected(1, 3, NOTICED, 3, Suspicion.NO_RECEIPTS)) == []
    assert downed(suspected(1, 3, NOTICED, 3, Suspicion.UNRECOVERED)) == []
    assert downed(suspected(1, 3, NOTICED, 2, Suspicion.OUTSIDE)) == ["L3"]
    assert downed(suspected(1, 3, CRASH - MS, 3, Suspicion.NO_RECEIPTS)) == ["L3"]
    assert downed(suspected(1, 3, NOTICED + 1, 3, Suspicion.NO_RECEIPTS)) == ["L3"]


def test_l3_a_new_ring_is_enough() -> None:
    second = ring(E2, (1, 2), start=100 * SECOND, cut_epoch=E1, cut_token=2)
    assert downed(Promised(NOTICED, 1, E2)) == []
    assert downed(installed(1, second, at=NOTICED)) == []


def test_l3_is_not_asserted_without_a_majority_that_works_and_hears() -> None:
    at = CRASH + 50 * MS
    assert downed(crashed(2, at)) == []
    assert downed(crashed(2, at), restarted(2, at, 2)) == []
    assert downed(Paused(at, 1)) == []
    assert downed(Cut(at)) == []
    assert downed(Cut(at), Healed(at)) == []
    assert downed(Cut(CRASH - MS)) == []
    assert downed(Cut(CRASH - 2 * MS), Cut(CRASH - 2 * MS), Healed(CRASH - MS)) == []
    assert downed(Cut(CRASH - 2 * MS), Healed(CRASH - MS)) == ["L3"]


def test_l3_a_site_that_comes_back_need_not_be_noticed() -> None:
    assert downed(restarted(3, CRASH + SECOND, 2)) == []
    assert downed(restarted(3, CRASH + MS, 2), crashed(3, CRASH + 2 * MS)) == []


def test_l3_is_about_members_of_the_newest_ring() -> None:
    second = ring(E2, (1, 2), start=100 * SECOND, cut_epoch=E1, cut_token=2)
    left = [installed(site, second, at=CRASH - MS) for site in (1, 2)]
    assert downed(*left) == []
    passive = installed(3, second, at=CRASH - MS)
    assert downed(*left, passive) == []
    assert downed(crashed(source_id(9), CRASH + MS)) == ["L3"]


# L4 ---------------------------------------------------------------------------------------------


def test_l4_messages_still_wait_for_a_token() -> None:
    """L4: "backlog is bounded iff λτ_t < K_max"."""
    end = quiet_end()._replace(unacknowledged=3)
    assert broken(GOOD, end=end) == ["L4"]
    assert broken(GOOD, law(backlog_bounded=False), end) == []
    assert broken(GOOD, end=end._replace(submissions_due=instant(6) - 50 * MS)) == []
    assert broken(GOOD, end=end._replace(correct=SITES[:2])) == ["L4"]


# L7


def test_l7_what_does_not_hold_while_somebody_stays_dead_or_wrong_is_told_as_such() -> None:
    """L7: dead nodes and wrong clocks that stay for ever stop nobody else."""
    facts = in_order([*GOOD, submitted(13, END - 10 * MS)])
    end = quiet_end()._replace(lasting=(3, server_id(1)), correct=SITES[:2], unacknowledged=1)
    found = judge(facts, end=end).violations
    assert {violation.property for violation in found} == {"L7"}
    assert "source1/13" in found[0].text
    assert "while site3, server1 stay dead or wrong" in found[0].text


def test_l7_a_ballot_that_never_ends_while_somebody_stays_dead_or_wrong() -> None:
    sealed = dict.fromkeys(SITES, (E1, NO_EPOCH, True))
    end = quiet_end()._replace(lasting=(server_id(1),), epochs=sealed)
    assert set(broken(GOOD, end=end)) == {"L7"}


def test_l7_whoever_is_wrong_owes_nothing() -> None:
    end = quiet_end()._replace(lasting=(3,), correct=SITES[:2])
    assert broken(GOOD, end=end) == []
