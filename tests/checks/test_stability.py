"""S10: what leaves memory is held by every member."""

from tests.checks.traces import (
    E1,
    E2,
    MS,
    completed,
    crashed,
    in_order,
    installed,
    instant,
    quiet_run,
    restarted,
    ring,
    texts,
    unsafe,
    until,
)

from isocast.checks.facts import Collected, Fact
from isocast.terms.ids import NO_EPOCH
from isocast.terms.instants import SECOND

GOOD = quiet_run()
AT = instant(4) + 10 * MS
"""Token 4 is on its way: its owner, site 1, holds it, and the others hold 3."""


def test_s10_a_member_lacks_what_is_collected() -> None:
    """S10: "a payload collected implies all members hold it"."""
    facts = until(GOOD, AT)
    assert unsafe([*facts, Collected(AT, 1, 3)]) == []
    assert unsafe([*facts, Collected(AT, 1, 4)]) == ["S10"]
    text = "site1 collected token 4 in epoch 1.1, but site2 holds 3"
    assert texts([*facts, Collected(AT, 1, 4)], "S10") == [text]


def test_s10_a_member_holds_the_token_without_its_messages() -> None:
    hollow = completed(2, 4, at=AT)._replace(messages=1)
    full: list[Fact] = [completed(2, 4, at=AT), completed(3, 4, at=AT), Collected(AT, 1, 4)]
    assert unsafe([*until(GOOD, AT), *full]) == []
    assert unsafe([*until(GOOD, AT), hollow, *full[1:]]) == ["S10"]


def test_s10_stability_is_not_carried_into_a_new_epoch() -> None:
    """Protocol §12.8: site 3 is on the new ring, and has not reached its cut."""
    second = ring(E2, start=100 * SECOND, cut_epoch=E1, cut_token=4)
    facts = [*until(GOOD, AT), installed(1, second, at=AT)]
    assert unsafe([*facts, Collected(AT, 1, 3)]) == []
    assert unsafe([*facts, Collected(AT, 1, 4)]) == ["S10"]


def test_s10_another_token_of_the_same_number_does_not_count() -> None:
    second = ring(E2, start=100 * SECOND, cut_epoch=E1, cut_token=3)
    facts = until(GOOD, AT)
    for site in (1, 2):
        facts.extend([installed(site, second, at=AT), completed(site, 4, second, at=AT)])
    stale = completed(3, 4, at=AT)
    assert unsafe([*facts, stale, Collected(AT, 1, 4)]) == ["S10"]
    caught_up: list[Fact] = [installed(3, second, at=AT), completed(3, 4, second, at=AT)]
    assert unsafe([*facts, *caught_up, Collected(AT, 1, 4)]) == []


def test_s10_outside_any_ring_nothing_is_collected() -> None:
    assert unsafe([Collected(AT, 1, 1)]) == ["S10"]


def test_s10_a_member_that_lost_its_disk_is_no_longer_asked() -> None:
    lost: list[Fact] = [crashed(2, AT), restarted(2, AT, 0, NO_EPOCH, disk_kept=False)]
    assert unsafe(in_order([*until(GOOD, AT), *lost, Collected(AT, 1, 3)])) == []
    kept: list[Fact] = [crashed(2, AT), restarted(2, AT, 3, E1)]
    assert unsafe(in_order([*until(GOOD, AT), *kept, Collected(AT, 1, 3)])) == []
