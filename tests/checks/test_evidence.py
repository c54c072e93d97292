"""S9 by evidence: what a site may count as certified, and release, from what it has heard."""

from tests.checks.traces import E1, E2, MS, completed, installed, instant, law, quiet_run, released, ring, unsafe, until

from isocast.checks.facts import Certified, Fact, ReceiptHeard

LAW = law(hears=True)
AT = instant(2) + 50 * MS
BEFORE = until(quiet_run(), AT)
"""Two tokens are complete everywhere."""


def heard(sender: int, held: int, epoch: object = E1, site: int = 1) -> ReceiptHeard:
    return ReceiptHeard(AT, site, sender, epoch, held)  # type: ignore[arg-type]


def certified(number: int, epoch: object = E1) -> Certified:
    return Certified(AT, 1, epoch, number)  # type: ignore[arg-type]


def test_a_majority_with_the_site_itself_is_evidence() -> None:
    assert unsafe([*BEFORE, heard(2, 2), certified(2)], LAW) == []
    assert unsafe([*BEFORE, heard(2, 1), certified(2)], LAW) == ["S9"]
    assert unsafe([*BEFORE, heard(2, 1), certified(1)], LAW) == []


def test_a_release_needs_it_too() -> None:
    assert unsafe([*BEFORE, heard(2, 1), released(1, 1)], LAW) == []
    assert unsafe([*BEFORE, released(1, 1)], LAW) == ["S9"]


def test_that_others_really_hold_it_is_not_enough() -> None:
    assert unsafe([*BEFORE, certified(1)], LAW) == ["S9"]
    assert unsafe([*BEFORE, certified(1)]) == [], "where nobody tells what sites hear"


def test_a_receipt_from_outside_u_is_none() -> None:
    assert unsafe([*BEFORE, heard(9, 2), certified(2)], LAW) == ["S9"]


def test_a_receipt_of_an_older_epoch_is_none() -> None:
    second = ring(E2, start=instant(9), cut_epoch=E1, cut_token=2)
    entered: list[Fact] = [*BEFORE, heard(2, 1), installed(1, second, at=AT)]
    assert unsafe([*entered, heard(2, 2), certified(2, E2)], LAW) == ["S9"]
    assert unsafe([*entered, heard(2, 2, E2), certified(2, E2)], LAW) == []
    assert unsafe([*entered, certified(1, E2)], LAW) == [], "what was certified stays so"


def test_a_change_of_hearing_is_of_one_site_alone() -> None:
    facts = [*BEFORE, heard(2, 2, site=3), completed(1, 2), certified(2)]
    assert unsafe(facts, LAW) == ["S9"]
