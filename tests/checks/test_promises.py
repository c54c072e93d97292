"""S7 and S9: what a site has promised, and what a majority therefore remembers."""

from dataclasses import replace

import pytest
from tests.checks.traces import (
    E1,
    E2,
    E3,
    MS,
    SITES,
    TIMING,
    changed,
    completed,
    crashed,
    digest,
    installed,
    instant,
    law,
    quiet_run,
    release_at,
    released,
    restarted,
    ring,
    sent,
    submitted,
    texts,
    unsafe,
    until,
    without,
)

from isocast.checks.facts import Completed, Fact, Promised, ReceiptSent, Restarted
from isocast.terms.ids import NO_EPOCH
from isocast.terms.instants import SECOND
from isocast.terms.timing import Gate

GOOD = quiet_run()
AT = instant(2) + 50 * MS
BEFORE = [*[submitted(number, SECOND) for number in range(5, 9)], *until(GOOD, AT)]
"""Two tokens are complete everywhere, and the messages of two more are submitted."""
SECOND_RING = ring(E2, start=100 * SECOND, cut_epoch=E1, cut_token=2)


def test_s7_a_promise_goes_back() -> None:
    """S7: "prom and e_acc never go back"."""
    good = [*BEFORE, Promised(AT, 1, E2), Promised(AT, 1, E3)]
    assert unsafe(good) == []
    assert unsafe([*good, Promised(AT, 1, E2)]) == ["S7"]
    assert texts([*good, Promised(AT, 1, E2)], "S7") == ["site1 promised 2.1 after 3.1"]


def test_s7_a_ring_below_a_promise_is_entered() -> None:
    assert unsafe([*BEFORE, Promised(AT, 1, E2), installed(1, SECOND_RING, at=AT)]) == []
    assert unsafe([*BEFORE, Promised(AT, 1, E3), installed(1, SECOND_RING, at=AT)]) == ["S7"]


def test_s7_a_ring_is_entered_twice() -> None:
    """Entering an epoch again would cut the log back to its beginning."""
    assert unsafe([*BEFORE, installed(1, at=AT)]) == ["S7"]


def test_s7_a_restart_forgets_a_promise() -> None:
    """S7: "restarts included"."""
    before = [*BEFORE, Promised(AT, 1, E2), crashed(1, AT)]
    back = Restarted(AT, 1, disk_kept=True, promised=E2, accepted=E1, held=2)
    assert unsafe([*before, back]) == []
    assert unsafe([*before, back._replace(promised=E1)]) == ["S7"]


def test_s7_a_restart_forgets_an_epoch() -> None:
    before = [*BEFORE, installed(1, SECOND_RING, at=AT), crashed(1, AT)]
    back = Restarted(AT, 1, disk_kept=True, promised=E2, accepted=E2, held=2)
    assert unsafe([*before, back]) == []
    assert unsafe([*before, back._replace(accepted=E1)]) == ["S7"]


@pytest.mark.parametrize("vote", [sent(3), ReceiptSent(instant(3), 3, E1, 2)], ids=["token", "receipt"])
def test_s7_a_site_votes_for_an_epoch_that_it_promised_to_leave(vote: Fact) -> None:
    """S7: "no TOKEN or RECEIPT(e) after prom > e"."""
    before = [*until(GOOD, instant(3) - MS), completed(3, 3, at=instant(3))]
    assert unsafe([*before, vote]) == []
    facts = [*before, Promised(instant(3), 3, E2), vote]
    assert unsafe(facts) == ["S7"]
    assert "after it had promised 2.1" in texts(facts, "S7")[0]


VOTES: dict[str, Fact] = {
    "promise": Promised(AT, 1, E2),
    "install": installed(1, SECOND_RING, at=AT),
    "receipt": ReceiptSent(AT, 1, E1, 2),
}


@pytest.mark.parametrize("vote", VOTES)
def test_s7_a_site_that_lost_its_disk_votes_again(vote: str) -> None:
    """Protocol §5: "A site that lost its disk ... comes back under a new site id"."""
    good = [*BEFORE, crashed(1, AT), restarted(1, AT, 0, NO_EPOCH, disk_kept=False)]
    assert unsafe(good) == []
    facts = [*good, VOTES[vote]]
    assert unsafe(facts) == ["S7"]
    assert "lost its disk" in texts(facts, "S7")[0]
    assert unsafe([*good, crashed(1, AT), restarted(1, AT, 0, NO_EPOCH), VOTES[vote]]) == ["S7"]


def test_s7_a_token_of_a_site_that_lost_its_disk() -> None:
    at = instant(3) - 50 * MS
    facts = [*until(GOOD, at), crashed(3, at), restarted(3, at, 2), completed(3, 3, at=instant(3)), sent(3)]
    assert unsafe(facts) == []
    facts[facts.index(restarted(3, at, 2))] = restarted(3, at, 2, disk_kept=False)
    assert unsafe(facts) == ["S7"]


def test_s9_a_release_that_only_a_minority_holds() -> None:
    """S9: "a majority-gate release of t in e implies that a majority held its prefix in e"."""
    both = [*BEFORE, completed(1, 3), completed(2, 3), released(1, 1), released(1, 2), released(1, 3)]
    assert unsafe(both) == []
    facts = without(both, lambda fact: fact == completed(2, 3))
    assert unsafe(facts) == ["S9"]
    assert texts(facts, "S9") == [
        "site1 released token 3 in epoch 1.1, which only site1 held there, 2 being needed",
    ]


def test_s9_a_token_without_its_messages_is_not_held() -> None:
    both = [*BEFORE, completed(1, 3), completed(2, 3), released(1, 1), released(1, 2), released(1, 3)]
    assert unsafe(changed(both, completed(2, 3), completed(2, 3)._replace(messages=1))) == ["S9"]


def test_s9_holding_after_a_promise_does_not_count() -> None:
    """S9: "before promising more"."""
    releases = [released(1, 1), released(1, 2), released(1, 3)]
    promise, late = Promised(instant(3), 2, E2), completed(2, 3)
    assert unsafe([*BEFORE, completed(1, 3), late, promise, *releases]) == []
    assert unsafe([*BEFORE, completed(1, 3), promise, late, *releases]) == ["S9"]


def test_s9_a_cut_that_a_majority_entered_is_held() -> None:
    """Backlog up to the cut is released in the new epoch, once a majority has entered that."""
    second = ring(E2, start=release_at(3), cut_epoch=E1, cut_token=3)
    entered: list[Fact] = []
    for site in (1, 2):
        entered.append(installed(site, second, at=AT, keep=2))
        entered.append(Completed(AT, site, E2, 3, digest(E1, 3), 2, 2))
    promised = [Promised(AT, site, E2) for site in SITES]
    releases = [released(1, 1), released(1, 2), released(1, 3)._replace(epoch=E2)]
    assert unsafe([*BEFORE, *promised, *entered, *releases]) == []
    assert unsafe([*BEFORE, *promised, *entered[:2], *releases]) == ["S9"]


def test_s9_what_an_older_epoch_certified_stays_certified() -> None:
    """Even when so many epochs have followed that their holdings are no longer remembered."""
    facts = list(BEFORE)
    for number in range(2, 80):
        later = ring(E1._replace(number=number), start=release_at(2), cut_epoch=E1, cut_token=2)
        facts.append(installed(1, later, at=AT))
    newest = E1._replace(number=79)
    facts.extend([released(1, number, at=release_at(2))._replace(epoch=newest) for number in (1, 2)])
    assert unsafe(facts) == []
    alone = completed(1, 3)._replace(epoch=newest)
    assert unsafe([*facts, alone, released(1, 3)._replace(epoch=newest)]) == ["S9"]


def test_s9_a_majority_of_a_later_epoch_does_not_vouch_for_an_earlier_one() -> None:
    """A stale site releases its own token 3, while the others have another one under that number."""
    facts = [*BEFORE, completed(3, 3, at=AT)]
    for site in (1, 2):
        facts.extend([installed(site, SECOND_RING, at=AT), Completed(AT, site, E2, 3, digest(E2, 3), 2, 2)])
    facts.extend([released(3, 1), released(3, 2)])
    assert unsafe(facts) == []
    assert unsafe([*facts, released(3, 3)]) == ["S9"]


def test_s9_a_later_ring_forgets_what_a_majority_held() -> None:
    """Protocol §12.3: a stale site with the greater number overrides the live epoch."""
    two = ring(E2, start=100 * SECOND, cut_epoch=E1, cut_token=2)
    one = ring(E2, start=100 * SECOND, cut_epoch=E1, cut_token=1)
    assert unsafe([*BEFORE, installed(1, two, at=AT)]) == []
    facts = [*BEFORE, installed(1, one, at=AT)]
    assert unsafe(facts) == ["S9"]
    assert texts(facts, "S9") == [
        "epoch 2.1 begins after token 1 of epoch 1.1 and forgets token 2, which a majority held in epoch 1.1",
    ]
    minority = without(BEFORE, lambda fact: fact in (completed(1, 2), completed(3, 2)))
    assert unsafe([*minority, installed(1, one, at=AT)]) == []


def test_s9_a_later_ring_holds_another_token_under_that_number() -> None:
    """Epoch 2 ended with token 3 at sites 1 and 2; epoch 3 continues token 3, or 4, of site 3 and epoch 1."""
    facts = [*BEFORE, completed(3, 3, at=AT), completed(3, 4, at=AT)]
    for site in (1, 2):
        facts.extend([installed(site, SECOND_RING, at=AT), Completed(AT, site, E2, 3, digest(E2, 3), 2, 2)])
    live = ring(E3, start=100 * SECOND, cut_epoch=E2, cut_token=3)
    assert unsafe([*facts, installed(1, live, at=AT)]) == []
    for cut in (3, 4):
        stale = ring(E3, start=100 * SECOND, cut_epoch=E1, cut_token=cut)._replace(holders=(3,))
        assert unsafe([*facts, installed(3, stale, at=AT)]) == ["S9"]


def test_s9_is_about_the_majority_gate() -> None:
    facts = [*BEFORE, completed(1, 3), released(1, 1), released(1, 2), released(1, 3)]
    assert unsafe(facts) == ["S9"]
    assert unsafe(facts, law(timing=replace(TIMING, gate=Gate.TIMED))) == []


def test_s9_a_restart_holds_less_than_was_receipted() -> None:
    assert unsafe([*BEFORE, crashed(1, AT), restarted(1, AT, held=2)]) == []
    facts = [*BEFORE, crashed(1, AT), restarted(1, AT, held=1)]
    assert unsafe(facts) == ["S9"]
    assert texts(facts, "S9") == ["site1 restarted with token 1, but had receipted 2 in epoch 1.1"]
