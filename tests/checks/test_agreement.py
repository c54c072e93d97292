"""S1 to S4: what is released."""

from dataclasses import replace

from tests.checks.traces import (
    E1,
    E2,
    END,
    MS,
    SITES,
    SOURCE,
    TIMING,
    broken,
    changed,
    crashed,
    in_order,
    installed,
    instant,
    judge,
    law,
    message,
    quiet_end,
    quiet_run,
    release_at,
    released,
    restarted,
    ring,
    submitted,
    unsafe,
    until,
    without,
)

from isocast.checks.facts import Fact, Released, Strayed
from isocast.terms.ids import source_id
from isocast.terms.instants import SECOND
from isocast.terms.timing import Gate

GOOD = quiet_run()
ALONE = law(agreement=False, timing=replace(TIMING, gate=Gate.TIMED))


def split(release: Released) -> list[Fact]:
    """One release told as two."""
    one, two = release.messages
    return [
        release._replace(messages=(one,)),
        release._replace(messages=(two,), first_sequence=release.first_sequence + 1),
    ]


def test_a_quiet_run_breaks_nothing() -> None:
    assert broken(GOOD, end=quiet_end()) == []
    assert broken(GOOD, ALONE, quiet_end()) == []


def test_s1_two_sites_release_different_messages() -> None:
    """S1: "any two sites agree on the message at every released sequence"."""
    swapped = released(3, 2, [message(4), message(3)])
    facts = changed(GOOD, released(3, 2), swapped)
    assert broken(facts) == ["S1"]
    assert judge(facts).violations[0].text == (
        "sequence 3 is source1/4 at site3 (token 2, epoch 1.1) and source1/3 at site1 (token 2)"
    )


def test_s1_two_sites_release_different_contents_of_one_message() -> None:
    other = released(3, 2, [message(3), message(4, "forged")])
    facts = changed(GOOD, released(3, 2), other)
    assert broken(facts) == ["S1"]
    assert "with content" in judge(facts).violations[0].text


def test_s1_holds_for_a_message_that_its_source_sent_again() -> None:
    again = released(3, 2, [message(3, base=2), message(4)])
    assert broken(changed(GOOD, released(3, 2), again), end=quiet_end()) == []


def test_s1_is_judged_wherever_stretches_begin_and_end() -> None:
    halves = in_order([*without(GOOD, lambda fact: fact == released(1, 2)), *split(released(1, 2))])
    assert broken(halves, end=quiet_end()) == []
    wrong = released(3, 2, [message(3), message(5)])
    assert broken(changed(halves, released(3, 2), wrong)) == ["S1"]


def test_s1_a_longer_stretch_goes_on_where_the_reference_ends() -> None:
    later = [released(1, 2, [message(3)]), released(1, 2, [message(4)], first_sequence=4, at=release_at(2) + MS)]
    facts = in_order([*without(GOOD, lambda fact: fact == released(1, 2)), *later])
    assert broken(facts, end=quiet_end()) == []
    strange = changed(facts, released(2, 2), released(2, 2, [message(3), message(4, "forged")]))
    assert broken(strange) == ["S1", "S4"]


def test_s1_is_not_asserted_where_a_gate_does_not_promise_it() -> None:
    assert broken(changed(GOOD, released(3, 6), released(3, 6, [message(11), message(12)])), ALONE) == []
    other = [submitted(99, SECOND), *GOOD]
    assert "S1" not in broken(changed(other, released(3, 6), released(3, 6, [message(11), message(99)])), ALONE)


def test_s2_a_site_skips_a_stretch() -> None:
    """S2: "released sequences are contiguous"."""
    facts = without(GOOD, lambda fact: fact == released(2, 3))
    assert broken(facts) == ["S2"]
    assert broken(facts, ALONE) == ["S2", "S3"]
    assert "site2 released onwards from sequence 7 (token 4) after 4" in judge(facts).violations[0].text


def test_s2_a_site_begins_in_the_middle() -> None:
    facts = without(GOOD, lambda fact: isinstance(fact, Released) and fact.site == 2 and fact.token_number < 3)
    assert broken(facts) == ["S2"]


def test_s2_a_site_repeats_itself_after_a_restart() -> None:
    at = release_at(3) + 100 * MS
    restart: list[Fact] = [crashed(2, at), restarted(2, at, held=4)]
    good = in_order([*GOOD, *restart])
    assert broken(good) == []
    again = released(2, 3, at=at + MS)
    assert broken(in_order([*good, again])) == ["S2"]


def test_s2_one_message_has_two_sequences() -> None:
    """S2: "each (source, incarnation, M) occurs once"."""
    facts = list(GOOD)
    for site in SITES:
        facts = changed(facts, released(site, 6), released(site, 6, [message(10), message(11)]))
    assert broken(facts) == ["S2"]
    assert broken(facts, ALONE) == ["S2"]
    assert judge(facts).violations[0].text == (
        "site1 released source1/10 as sequence 11 (token 6), and it had been released before"
    )


def test_s3_a_source_is_reordered_alike_everywhere() -> None:
    """S3: "source order kept"."""
    facts = list(GOOD)
    for site in SITES:
        facts = changed(facts, released(site, 2), released(site, 2, [message(4), message(3)]))
    assert broken(facts) == ["S3"]
    assert [violation.text for violation in judge(facts).violations] == [
        "site1 released source1/4 as sequence 3 (token 2), but of source1 only 2 messages came before it",
        "site1 released source1/3 as sequence 4 (token 2), after source1/4",
    ]
    assert broken(facts, ALONE) == ["S3"]


def test_s4_nobody_submitted_it() -> None:
    """S4: "released implies submitted"."""
    facts = without(GOOD, lambda fact: fact == submitted(7, release_at(4) - 750 * MS))
    assert len(facts) == len(GOOD) - 1
    assert broken(facts) == ["S4"]
    assert broken(facts, ALONE) == ["S4"]
    assert judge(facts).violations[0].text == "site1 released source1/7 as sequence 7, which nobody submitted"


def test_s4_the_content_is_not_what_was_submitted() -> None:
    """S4: "digests equal"."""
    facts = list(GOOD)
    for site in SITES:
        facts = changed(facts, released(site, 2), released(site, 2, [message(3), message(4, "forged")]))
    assert broken(facts) == ["S4"]
    assert "but what was submitted is" in judge(facts).violations[0].text


def test_a_site_whose_releases_were_cut_back_is_held_to_s4_and_releases_no_sequence_twice() -> None:
    """Protocol §4: under the timed gate a partitioned token site may release one divergent batch."""
    second = ring(E2, start=100 * SECOND, cut_epoch=E1, cut_token=2)
    at = release_at(3) + 50 * MS
    facts: list[Fact] = [
        *[submitted(number, SECOND) for number in (5, 6)],
        *until(GOOD, instant(3)),
        *[released(3, number) for number in (2, 3)],
        installed(3, second, at=at),
        released(3, 4, [message(5)], at=at + SECOND),
    ]
    assert unsafe(facts, ALONE) == []
    assert unsafe([*facts[:-1], released(3, 3, at=at + MS)], ALONE) == ["S2"]
    assert unsafe([*facts[:-2], released(3, 3, at=at + MS)], ALONE) == ["S2"]
    assert unsafe([*facts, released(3, 5, [message(5, "forged")], at=at + 2 * SECOND)], ALONE) == ["S4"]


def strayed(at: int) -> Strayed:
    return Strayed(at, 3, E2, 3, 7)


def test_s1_a_site_that_says_that_its_history_lost_has_broken_the_promise() -> None:
    assert "S1" in unsafe([*GOOD, strayed(END)])
    assert unsafe([*GOOD, strayed(END)], ALONE) == []


def test_where_rings_without_a_majority_are_allowed_two_contents_are_counted_and_not_blamed() -> None:
    law = replace(ALONE, may_diverge=True)
    other = changed(list(GOOD), released(3, 2), released(3, 2, [message(3), message(4, source=SOURCE)]))
    assert judge(other, law).divergent == 0
    extra = [submitted(1, SECOND, source_id(2)), *GOOD]
    parted = changed(extra, released(3, 2), released(3, 2, [message(3), message(1, source=source_id(2))]))
    suite = judge(parted, law)
    assert suite.divergent == 1
    assert "S1" not in [violation.property for violation in suite.violations]


def test_a_client_that_repeats_itself_owes_nothing_new() -> None:
    assert broken(in_order([*GOOD, submitted(1, release_at(3))]), end=quiet_end()) == []
