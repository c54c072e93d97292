"""S12 and F1 to F3: what happens when."""

from tests.checks.traces import (
    E1,
    E2,
    END,
    MS,
    SITES,
    broken,
    changed,
    completed,
    crashed,
    faulted,
    in_order,
    installed,
    instant,
    judge,
    law,
    owner,
    quiet_end,
    quiet_run,
    release_at,
    released,
    restarted,
    ring,
    sent,
    suspected,
    texts,
    until,
    without,
)

from isocast.checks.facts import (
    ClockStepped,
    Collected,
    Completed,
    Fact,
    Paused,
    Promised,
    ReceiptHeard,
    ReceiptSent,
    Resumed,
)
from isocast.terms.instants import SECOND
from isocast.wire.packets import Suspicion

GOOD = quiet_run()


def about(token_number: int, site: int) -> list[Fact]:
    """Everything that a site says of a token that it completed."""
    return [
        fact
        for fact in GOOD
        if (isinstance(fact, Completed) and (fact.site, fact.token_number) == (site, token_number))
        or (isinstance(fact, ReceiptSent) and (fact.site, fact.held) == (site, token_number))
    ]


def test_a_quiet_run_breaks_nothing() -> None:
    suite = judge(GOOD, end=quiet_end())
    assert suite.violations == []
    assert suite.max_skew_ns == 2 * MS // 10


# S12 --------------------------------------------------------------------------------------------


def test_s12_a_release_before_its_time() -> None:
    """S12: "nothing is released before T_t+Δ_A-ε"."""
    brink = released(3, 4, at=release_at(4) - 1 * MS)
    assert broken(changed(GOOD, released(3, 4), brink)) == []
    early = brink._replace(at=brink.at - 1)
    assert broken(changed(GOOD, released(3, 4), early)) == ["S12"]
    assert "before it is allowed" in texts(changed(GOOD, released(3, 4), early), "S12")[0]


def test_s12_a_paced_release_before_its_own_time() -> None:
    paced = released(3, 4)._replace(due=release_at(4) + 5 * MS)
    assert broken(changed(GOOD, released(3, 4), paced)) == ["S12"]


def test_s12_a_clock_out_of_its_bound_is_not_judged() -> None:
    early = released(3, 4, at=release_at(4) - 50 * MS)
    assert broken(changed(GOOD, released(3, 4), early._replace(clock_kept=False))) == []


# F1 ---------------------------------------------------------------------------------------------


def late(span_ns: int, token_number: int = 6) -> list[Fact]:
    """Site 3 releases a token later than it should."""
    return changed(GOOD, released(3, token_number), released(3, token_number, at=release_at(token_number) + span_ns))


def test_f1_a_site_releases_late_without_a_fault() -> None:
    """F1: "no SUSPECT and no fairness fault by T_t+Δ_A implies release skew <= 2ε"."""
    brink = 2 * MS + 1 * MS + MS // 10
    assert broken(late(brink)) == []
    assert judge(late(brink)).max_skew_ns == 3 * MS
    facts = late(brink + 1)
    assert broken(facts) == ["F1"]
    assert "sequence 11 (token 6) was released at site3 3 ms away" in texts(facts, "F1")[0]


def test_f1_a_recorded_fault_excuses() -> None:
    facts = in_order([faulted(3, 6), *late(20 * MS)])
    assert broken(facts) == []
    assert judge(facts).max_skew_ns < MS


def test_f1_a_fault_that_is_recorded_too_late_does_not_excuse() -> None:
    """F1: "by T_t+Δ_A"."""
    assert broken(in_order([faulted(3, 6, release_at(6) + 2 * MS), *late(20 * MS)])) == []
    tardy = [faulted(3, 6, release_at(6) + 2 * MS + 1), *late(20 * MS)]
    assert broken(in_order(tardy)) == ["F1"]
    # By its own clock it was in time.
    slow: list[Fact] = [ClockStepped(release_at(6) - MS, 3, kept=False), *tardy]
    assert broken([*in_order(slow)]) == []


def test_f1_a_paced_token_that_is_still_going_out_keeps_the_next_one_from_its_fault() -> None:
    """Only when the last part of the token in front is out, a site asks for the next one."""
    out = release_at(6) + 10 * MS
    moved = [released(site, token) for site in SITES for token in (5, 6)]
    facts = without(GOOD, lambda fact: fact in moved)
    paced: list[Fact] = [released(site, 5, at=out)._replace(due=out) for site in SITES]
    late: list[Fact] = [released(site, 6, at=out + (30 * MS if site == 3 else MS)) for site in SITES]
    story = [*facts, *paced, *late]
    assert "F1" in broken(in_order(story))
    assert "F1" not in broken(in_order([*story, faulted(3, 6, out + 2 * MS)]))
    assert "F1" in broken(in_order([*story, faulted(3, 6, out + 3 * MS)]))


def test_f1_the_fault_of_one_token_excuses_those_that_it_blocks() -> None:
    """Releases keep their order, and an empty token is blocked without a trace."""
    later = release_at(6) + 20 * MS
    facts = without(GOOD, lambda fact: fact in (released(3, 5), released(3, 6)))
    held: list[Fact] = [released(3, 5, at=later), released(3, 6, at=later)]
    assert broken(in_order([*facts, *held])) == ["F1"]
    assert broken(in_order([faulted(3, 5), *facts, *held])) == []
    empty = without(in_order([faulted(3, 5), *facts, held[1]]), lambda fact: fact in (released(1, 5), released(2, 5)))
    assert "F1" not in broken(empty)


def test_f1_backlog_of_an_earlier_epoch_is_a_fault() -> None:
    """Protocol §5.4: "released ... from T0 on, and counted as a fairness fault"."""
    second = ring(E2, start=release_at(6) + 10 * MS, cut_epoch=E1, cut_token=6)
    at = instant(6) + 30 * MS
    moved: list[Fact] = [installed(site, second, at=at) for site in SITES]
    facts = until(in_order([*late(20 * MS), *moved]), release_at(6) + 20 * MS)
    assert "F1" in broken(facts)
    assert "F1" not in broken(in_order([*facts, faulted(3, 6, release_at(6) + 15 * MS)]))


def test_f1_a_site_that_was_away_is_not_judged() -> None:
    away = release_at(6) - 20 * MS
    back = release_at(6) + 10 * MS
    crash: list[Fact] = [crashed(3, away), restarted(3, back, 7)]
    assert broken(in_order([*late(20 * MS), *crash])) == []
    pause: list[Fact] = [Paused(away, 3), Resumed(back, 3)]
    assert broken(in_order([*late(20 * MS), *pause])) == []
    clock: list[Fact] = [ClockStepped(away, 3, kept=False), ClockStepped(back, 3, kept=True)]
    assert broken(in_order([*late(20 * MS), *clock])) == []
    early_enough: list[Fact] = [Paused(away, 3), Resumed(away + MS, 3)]
    assert broken(in_order([*late(20 * MS), *early_enough])) == ["F1"]


# F2 ---------------------------------------------------------------------------------------------

LACK = about(5, 3)
"""Site 3 completes token 5 only when it must send its own."""
GIVE_UP = instant(5) + 522 * MS


def lacking() -> list[Fact]:
    """Site 3 lacks token 5 and everything after it; what others do about that is not told."""
    facts = without(GOOD, lambda fact: fact in [*LACK, *about(6, 3), *about(7, 3)])
    return until(facts, instant(6) - 2 * MS)


def test_f2_a_site_neither_holds_nor_suspects() -> None:
    """F2: "at Δ_A: h >= t or SUSPECT"."""
    judged = instant(5) + 522 * MS + 2 * MS + 4 * MS
    facts = until(lacking(), judged)
    assert broken([*facts, ReceiptSent(judged, 1, E1, 5)]) == []
    facts.append(ReceiptSent(judged + 1, 1, E1, 5))
    assert broken(facts) == ["F2"]
    assert "site3 holds 4 and not token 5 of epoch 1.1" in texts(facts, "F2")[0]


def over(*extra: Fact) -> list[str]:
    """The verdict once the time for token 5 is over."""
    return broken([*in_order([*lacking(), *extra]), ReceiptSent(instant(6) - 2 * MS, 1, E1, 5)])


def test_f2_a_suspicion_is_enough() -> None:
    assert over() == ["F2"]
    assert over(suspected(3, 5, GIVE_UP, 2, Suspicion.UNRECOVERED)) == []
    assert over(suspected(3, 4, GIVE_UP, 1, Suspicion.UNRECOVERED)) == []
    assert over(suspected(3, 6, GIVE_UP, 3, Suspicion.UNRECOVERED)) == ["F2"]
    assert over(suspected(3, 5, instant(5) - 50 * MS, 2, Suspicion.UNRECOVERED)) == ["F2"]
    assert over(suspected(2, 5, GIVE_UP, 3, Suspicion.UNRECOVERED)) == ["F2"]
    assert over(suspected(3, 5, GIVE_UP, 2, Suspicion.OUTSIDE)) == ["F2"]


def test_f2_a_late_token_is_enough() -> None:
    assert over(completed(3, 5, at=GIVE_UP)) == []
    assert over(completed(3, 5, at=GIVE_UP)._replace(messages=1)) == ["F2"]


def test_f2_a_site_that_was_away_is_not_judged() -> None:
    at = instant(5) + 50 * MS
    assert over(Promised(at, 3, E2)) == []
    assert "F2" not in over(installed(3, ring(E2, start=100 * SECOND, cut_epoch=E1, cut_token=4), at=at))
    assert over(crashed(3, at)) == []
    assert over(crashed(3, at), restarted(3, at, 4)) == []
    assert over(Paused(at, 3)) == []
    assert over(Paused(at, 3), Resumed(at, 3)) == []
    assert over(ClockStepped(at, 3, kept=False)) == []
    early = instant(5) - 50 * MS
    assert over(crashed(3, early), restarted(3, early, 4)) == ["F2"]
    assert over(Paused(early, 3), Resumed(early, 3)) == ["F2"]


def test_f2_a_site_that_catches_up_is_given_time() -> None:
    """It was three tokens behind before this one was due, and fetches ranges."""
    gone = [fact for number in (2, 3, 4) for fact in about(number, 3)]
    facts = without(lacking(), lambda fact: fact in gone or fact in (sent(3), sent(4), sent(5)))
    facts = without(facts, lambda fact: isinstance(fact, Collected))
    facts.append(ReceiptSent(instant(6) - 2 * MS, 1, E1, 5))
    assert "F2" in broken(facts)
    tokens_given_up = [
        suspected(3, number, instant(number) + 522 * MS, 1, Suspicion.UNRECOVERED) for number in (2, 3, 4)
    ]
    waiting = in_order([*facts, *tokens_given_up])
    assert [text for text in texts(waiting, "F2") if "token 5" in text]
    for at in (instant(5) + 100 * MS, instant(5) - 100 * MS):
        assert texts(in_order([*waiting, completed(3, 2, at=at)]), "F2") == []


def test_f2_a_site_outside_the_ring_is_given_time_as_soon_as_it_lags() -> None:
    inner = ring(members=(1, 2))
    facts: list[Fact] = [installed(site, inner) for site in SITES]
    for number in (1, 2):
        facts.extend([completed(site, number, inner) for site in (1, 2)])
        facts.append(sent(number, inner))
    judged = ReceiptSent(instant(3) - 2 * MS, 1, E1, 2)
    first = suspected(3, 1, instant(1) + 522 * MS, 1, Suspicion.UNRECOVERED)
    assert broken(in_order([*facts, first, judged])) == ["F2"]
    assert broken(in_order([*facts, first, completed(3, 1, inner, at=instant(2) + 100 * MS), judged])) == []


# F3 ---------------------------------------------------------------------------------------------


def silent(*extra: Fact) -> list[str]:
    """The owner of token 5, site 2, does not send it; the verdict shortly after."""
    facts = without(until(GOOD, instant(5) + 16 * MS), lambda fact: fact == sent(5) or fact in about(5, 2))
    return broken([*in_order([*facts, *extra]), ReceiptSent(instant(5) + 16 * MS, 1, E1, 4)])


def test_f3_an_owner_neither_sends_nor_suspects_itself() -> None:
    """F3: "the owner is on time or SUSPECT"."""
    assert owner(5) == 2
    assert silent(completed(2, 5), sent(5)) == []
    assert silent() == ["F3"]
    at = instant(5) + 10 * MS
    assert silent(suspected(2, 5, at, 2, Suspicion.BEHIND)) == []
    assert silent(suspected(2, 5, at, 2, Suspicion.LATE)) == []
    assert silent(suspected(2, 5, at, 1, Suspicion.UNRECOVERED)) == ["F3"]
    assert silent(suspected(1, 5, at, 2, Suspicion.LATE)) == ["F3"]
    assert silent(suspected(2, 4, at, 2, Suspicion.LATE)) == ["F3"]


def test_f3_an_owner_that_is_away_is_not_judged() -> None:
    at = instant(5) + 1 * MS
    assert silent(crashed(2, at)) == []
    assert silent(Promised(at, 2, E2)) == []
    assert silent(Paused(at, 2)) == []
    assert silent(ClockStepped(at, 2, kept=False)) == []


def test_f3_an_owner_whose_clock_jumped_may_have_given_up_too_early() -> None:
    early = instant(5) - 50 * MS
    jump: list[Fact] = [ClockStepped(early, 2, kept=False), ClockStepped(early + MS, 2, kept=True)]
    assert silent(*jump) == ["F3"]
    assert silent(*jump, suspected(2, 5, early, 2, Suspicion.BEHIND)) == []


def test_f3_a_late_owner_must_stay_silent() -> None:
    """Protocol §12.10: "a late owner sending anyway"."""
    brink = 10 * MS + 1 * MS + 1 * MS
    for span, verdict in ((brink, []), (brink + 1, ["F3"])):
        facts = in_order(without(GOOD, lambda fact: fact == sent(5) or fact in about(5, 2)))
        at = instant(5) + span
        facts = until(in_order([*facts, completed(2, 5, at=at), sent(5)._replace(at=at)]), at)
        assert broken(facts) == verdict


def test_f3_a_paused_owner_must_notice_that_it_is_late() -> None:
    at = instant(5) + 200 * MS
    facts = without(GOOD, lambda fact: fact == sent(5) or fact in [*about(5, 2), *about(5, 1), *about(5, 3)])
    pause: list[Fact] = [Paused(instant(5) - 5 * MS, 2), Resumed(at, 2)]
    facts = until(in_order([*facts, *pause]), at)
    assert broken(facts) == []
    late_token: list[Fact] = [completed(2, 5, at=at), sent(5)._replace(at=at)]
    assert broken([*facts, *late_token]) == ["F3"]
    assert "after the last instant at which it may" in texts([*facts, *late_token], "F3")[0]


def test_f3_a_token_before_its_instant() -> None:
    for span, verdict in ((1 * MS, []), (1 * MS + 1, ["F3"])):
        facts = without(until(GOOD, instant(5)), lambda fact: fact == sent(5) or fact in about(5, 2))
        at = instant(5) - span
        early: list[Fact] = [completed(2, 5, at=at), sent(5)._replace(at=at)]
        assert broken(in_order([*facts, *early])) == verdict
        assert broken([*until(facts, at), ClockStepped(at, 2, kept=False), *early]) == []


def test_f3_a_doubt_about_a_clock_in_a_run_without_bad_clocks() -> None:
    doubt = suspected(3, 5, instant(5), 2, Suspicion.CLOCK)
    assert broken(in_order([*GOOD, doubt])) == []
    assert broken(in_order([*GOOD, doubt]), law(faultless=True)) == ["F3"]


def test_an_epoch_that_everybody_left_is_no_longer_watched() -> None:
    second = ring(E2, start=1_000 * SECOND, cut_epoch=E1, cut_token=7)
    facts = [*GOOD, *[installed(site, second, at=END, keep=7) for site in SITES]]
    assert broken([*facts, Promised(100 * SECOND, 1, E2)]) == []
    # Who comes late to an epoch is held to its tokens from then on.
    third = ring(E2, start=END + SECOND, cut_epoch=E1, cut_token=7)
    late_comer: list[Fact] = [installed(1, third, at=END + 10 * SECOND), Promised(END + 20 * SECOND, 1, E2)]
    assert broken([*until(GOOD, END), *[Promised(END, site, E2) for site in SITES], *late_comer]) == ["F2", "F3"]


def test_s12_backlog_of_an_earlier_ring_goes_out_before_the_present_one_starts() -> None:
    """Protocol §5, step 4: released token after token from T0 on."""
    start = release_at(2) + 50 * MS
    second = ring(E2, start=start, cut_epoch=E1, cut_token=2)
    before = [*until(GOOD, instant(2) + 50 * MS), installed(1, second, at=instant(2) + 60 * MS)]
    backlog = released(1, 1, at=start)._replace(epoch=E2)
    assert "S12" not in broken([*before, backlog])
    assert "S12" in broken([*before, backlog._replace(at=start - 2 * MS)])


def test_f1_a_fault_of_what_goes_out_in_time_would_excuse_anything() -> None:
    on_time = released(1, 1)
    before = until(GOOD, on_time.at - 1)
    assert "F1" not in broken([*before, on_time])
    needless = [*before, faulted(1, 1, on_time.at), on_time]
    assert texts(needless, "F1") == ["site1 recorded a fairness fault of token 1, which it released in time"]
    opened = [*before, faulted(1, 1, on_time.at), ReceiptHeard(on_time.at, 1, 2, E1, 1), on_time]
    assert texts(opened, "F1") == [], "the gate opened at that very moment"
