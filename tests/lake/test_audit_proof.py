"""S17 in the audit: the rule of `journal verify --roster`, for all journals of a market."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.checks.proven_journals import FLOORS, ROOT, ROSTER, SITES, SignedMarket
from tests.checks.test_source_words import ROSTER_OF_ALL, SigningMarket
from tests.runtime.disk.journals import TINY, write_of

from isocast.lake.audit import audit
from isocast.lake.audit_proof import ProofTask, plan_proofs, prove
from isocast.lake.audit_terms import AuditReport, FindingKind, Verdict
from isocast.lake.audit_walk import find_journals
from isocast.ring.settings import OrderRule
from isocast.security.roster import sign_roster
from isocast.terms.errors import ConfigurationError
from isocast.wire.journal_blocks import ReleasedBlock


@pytest.fixture
def blocks() -> list[ReleasedBlock]:
    market = SignedMarket(behind=1)
    for floors in ((1, 2), (), (2, 1), (1,), (2,), ()):
        market.add(*floors)
    return market.finish().blocks


@pytest.fixture
def roster(tmp_path: Path) -> Path:
    path = tmp_path / "roster.bin"
    path.write_bytes(sign_roster(ROSTER, ROOT))
    return path


def written(folder: Path, journals: Sequence[Sequence[ReleasedBlock]]) -> Path:
    for site, blocks in zip(SITES, journals, strict=True):
        write_of(folder / f"site{site}" / "journal", 0, site, blocks, TINY)
    return folder


def look(folder: Path, roster: Path) -> AuditReport:
    return audit(folder, rosters=[roster], release_delay_ns=1)


def test_journals_of_a_market_that_signs_are_proven(blocks: list[ReleasedBlock], roster: Path, tmp_path: Path) -> None:
    report = look(written(tmp_path / "data", [blocks] * 3), roster)
    assert report.verdict is Verdict.CLEAN, (report.findings, report.unjudged)
    assert not [each for each in report.unjudged if "S4" in each.law], "seal keys show what the sealed digests are of"


@pytest.mark.parametrize("order, stand", [(OrderRule.SHUFFLE, 2), (OrderRule.ARRIVAL, 0)])
def test_the_audit_says_how_many_shuffles_it_verified(
    order: OrderRule, stand: int, roster: Path, tmp_path: Path
) -> None:
    market = SignedMarket(order=order, behind=1)
    for floors in ((1, 2, 1, 2), (2, 1, 2, 1), (1,), (2,), ()):
        market.add(*floors)
    report = look(written(tmp_path / "data", [market.finish().blocks] * 3), roster)
    told = [note for note in report.notes if note.code == "shuffles"]
    assert [(note.receiver, note.count) for note in told] == [(site, 4) for site in SITES]
    assert all(f"{stand} of 2 tokens with messages of several sources" in note.text for note in told)


def test_a_key_that_somebody_chose_is_a_finding(roster: Path, tmp_path: Path) -> None:
    """F5: all disks agree on the key, and the nonces that the owners signed make another."""
    market = SignedMarket(order=OrderRule.SHUFFLE, behind=1)
    for floors in ((1, 2, 1), (2, 1), (1,), (2,), ()):
        market.add(*floors)
    blocks = market.finish().blocks
    chosen = [replace(blocks[0], shuffle_key=b"k" * 16), *blocks[1:]]
    report = look(written(tmp_path / "data", [chosen] * 3), roster)
    proofs = [finding for finding in report.findings if finding.kind is FindingKind.PROOF]
    assert [(finding.receiver, finding.sequence, finding.broken) for finding in proofs] == [
        (site, 1, "F5") for site in SITES
    ]


def test_what_all_journals_share_is_found_if_nobody_signed_it(
    blocks: list[ReleasedBlock], roster: Path, tmp_path: Path
) -> None:
    """Whoever holds all the disks can make them agree."""
    source, number, digest, payload = blocks[1].messages[1]
    lie = replace(blocks[1], messages=[blocks[1].messages[0], (source, number, digest, payload[:48])])
    forged = [blocks[0], lie, *blocks[2:]]
    folder = written(tmp_path / "data", [forged] * 3)
    report = look(folder, roster)
    proofs = [finding for finding in report.findings if finding.kind is FindingKind.PROOF]
    assert [(finding.receiver, finding.sequence, finding.broken) for finding in proofs] == [
        (site, 4, "S17") for site in SITES
    ]
    assert all(Path(finding.file).parent.parent == folder / f"site{finding.receiver}" for finding in proofs)
    assert report.verdict is Verdict.FINDINGS
    without = audit(folder, release_delay_ns=1)
    assert [(finding.kind, finding.sequence) for finding in without.findings] == [(FindingKind.FORGED, 4)] * 3, (
        "without a roster the seal keys tell"
    )


def test_a_journal_that_lost_its_proofs_leaves_the_audit_unjudged(
    blocks: list[ReleasedBlock], roster: Path, tmp_path: Path
) -> None:
    bare = [replace(block, proof=None) for block in blocks]
    report = look(written(tmp_path / "data", [blocks, bare, blocks]), roster)
    assert report.verdict is Verdict.UNJUDGED
    [left] = [each for each in report.unjudged if each.law == "S17"]
    assert (left.count, left.decides) == (4, True)
    assert "site2, from sequence 1 on, are not proven: the journal keeps no proof of it" in left.text


def test_tasks_travel_as_text_and_bad_rosters_are_named(
    blocks: list[ReleasedBlock], roster: Path, tmp_path: Path
) -> None:
    folder = written(tmp_path / "data", [blocks] * 3)
    [task, _, _] = plan_proofs(find_journals(folder), [roster])
    assert ProofTask.from_json(task.to_json()) == task
    assert prove(task).proven_tokens == 4
    assert plan_proofs(find_journals(folder), []) == []
    (tmp_path / "other.bin").write_bytes(sign_roster(replace(ROSTER, name="other"), ROOT))
    with pytest.raises(ConfigurationError, match="several markets"):
        plan_proofs(find_journals(folder), [roster, tmp_path / "other.bin"])


# ---- what sources signed for (S21)


def of_sources(folder: Path, market: SigningMarket) -> AuditReport:
    market.add(1, 2)
    for _ in range(70):
        market.add()
    market.add(2)
    blocks = market.finish().blocks
    (folder / "roster.bin").write_bytes(sign_roster(ROSTER_OF_ALL, ROOT))
    return look(written(folder / "data", [blocks] * 3), folder / "roster.bin")


def test_what_sources_signed_for_is_clean(tmp_path: Path) -> None:
    report = of_sources(tmp_path, SigningMarket())
    assert report.verdict is Verdict.CLEAN, (report.findings, report.unjudged)


def test_what_a_receiver_put_into_a_sources_name_is_found(tmp_path: Path) -> None:
    """A majority ordered it and signed for it."""
    market = SigningMarket()
    market.own = lambda message: bytes(32) if message.label == (FLOORS[0], 1) else message.digest  # type: ignore[method-assign]
    report = of_sources(tmp_path, market)
    assert report.verdict is Verdict.FINDINGS
    assert {(finding.kind, finding.broken) for finding in report.findings} == {(FindingKind.PROOF, "S21")}


def test_what_no_source_signed_for_is_not_judged(tmp_path: Path) -> None:
    market = SigningMarket()
    market.silent = {1}
    report = of_sources(tmp_path, market)
    assert (report.verdict, report.findings) == (Verdict.UNJUDGED, [])
    assert any("nothing that it signed covers them" in each.text for each in report.unjudged if each.law == "S21")
