"""What `isocast lab up` says of the journals."""

from dataclasses import replace

import pytest

from isocast.checks.journals import Difference
from isocast.checks.skew import Quantiles, ReleaseSkew
from isocast.cli.lab import show_verdict
from isocast.trials.evidence import FollowerEvidence, LateRelease, MarketEvidence
from isocast.trials.lab.report import Episode
from isocast.trials.lab.verdict import LabVerdict, LateInLab

MS = 1_000_000
GOOD = MarketEvidence(
    sites=5,
    messages=1_234,
    tokens=20,
    early=0,
    lateness=Quantiles(100, MS, 4 * MS, 5 * MS),
    late=(),
    late_after_ns=50 * MS,
    skew=ReleaseSkew(1_229, 2 * MS, 4 * MS, 5 * MS, 4 * MS, faulted=5, late=3, backlog=2),
    skew_bound_ns=4 * MS,
    missing=0,
    repeated=0,
    differences=(),
    followers=(FollowerEvidence("bank", "customer", 1_234, 1_234, 0, 0, 0),),
)
LATE = LateRelease("tokyo", 17, 100, 130, 1_000 * MS, 2_000 * MS, 2_060 * MS)


def shown(verdict: LabVerdict, capsys: pytest.CaptureFixture[str]) -> str:
    show_verdict(verdict)
    return capsys.readouterr().out


def row(text: str, begin: str) -> str:
    return next(" ".join(line.split()) for line in text.splitlines() if line.startswith(begin))


def test_a_good_run(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(LabVerdict(GOOD, (), 1_234, 0, ()), capsys)
    assert row(text, "messages released").endswith("1,234 in 20 tokens, at 5 sites")
    assert row(text, "early releases") == "early releases (S12) 0 0"
    assert (
        row(text, "skew between sites") == "skew between sites (F1): p50 / p99 / max 2 ms / 4 ms / 5 ms p50 ≤ 2ε = 4 ms"
    )
    assert "5 fairness faults (3 too late, 2 owed to an earlier ring)" in text
    assert row(text, "gaps of customers").endswith("0 0")
    assert row(text, "bank") == "bank customer 1,234 0 0 0"
    assert "As it should be" in text
    assert "beside the lab's own lateness" not in text


def test_late_releases_stand_beside_the_labs_lateness(capsys: pytest.CaptureFixture[str]) -> None:
    late = (
        LateInLab(LATE, 58 * MS, (), 50 * MS),
        LateInLab(replace(LATE, site="london"), 0, (Episode(1, 2, 7 * MS, 3),), 50 * MS),
        LateInLab(replace(LATE, site="mumbai"), None, (), 50 * MS),
    )
    text = shown(LabVerdict(replace(GOOD, late=tuple(one.release for one in late)), late, 0, 0, ()), capsys)
    assert row(text, "00:00:02.000  tokyo") == "00:00:02.000 tokyo 17 100–130 60 ms 58 ms late punctual"
    assert row(text, "00:00:02.000  london").endswith("60 ms in time 1 time late, by up to 7 ms")
    assert row(text, "00:00:02.000  mumbai").endswith("60 ms not known punctual")
    assert row(text, "later than P = 50 ms") == "later than P = 50 ms 3"
    assert row(text, "… that neither").endswith("1 0")


@pytest.mark.parametrize(
    "changes",
    [
        {"early": 1},
        {"missing": 1},
        {"repeated": 1},
        {"differences": (Difference("tokyo", "london", (7,), (7, 8)),)},
        {"followers": (FollowerEvidence("bank", "customer", 9, 10, 1, 0, 0),)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_whatever_is_wrong_is_said(changes: dict[str, object], capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(LabVerdict(replace(GOOD, **changes), (), 0, 0, ()), capsys)  # type: ignore[arg-type]
    assert "NOT as it should be" in text
    assert ("tokyo and london differ (S1) from sequence 7 on, 2 times." in text) == ("differences" in changes)


def test_what_was_promised_and_lost_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(LabVerdict(GOOD, (), 10, 1, ()), capsys)
    assert row(text, "published, and not").endswith("1 0")
    assert "NOT as it should be" in text


def test_who_did_not_catch_up_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(LabVerdict(GOOD, (), 10, 0, ("bank", "fund")), capsys)
    assert row(text, "… that did not catch up").endswith("bank, fund none")
    assert "NOT as it should be" in text


def test_sites_that_are_apart_are_no_violation_but_told(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(LabVerdict(replace(GOOD, skew=ReleaseSkew(9, 5 * MS, 6 * MS, 7 * MS)), (), 0, 0, ()), capsys)
    assert "further apart than their clocks" in text


def test_a_run_without_messages_proves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(LabVerdict(replace(GOOD, messages=0), (), 0, 0, ()), capsys)
    assert text.count("\n") == 1
    assert "--publish" in text
