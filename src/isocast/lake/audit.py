"""The audit of a market's journals: every receiver holds the same sequence, whole, and nothing was early.

These are S1 to S5, S11 and S12 of the protocol's properties, as far as journals can show them.

    report = audit(Path("data"), run_on(spark))
    report.verdict, report.findings

Segments, and parts of long ones, are read by tasks that know nothing of each other. The driver sees digests of blocks
of messages and compares them; only blocks in which receivers differ are read a second time, message by message.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from isocast.lake.audit_compare import (
    Comparison,
    judge_contents,
    judge_delays,
    judge_ends,
    judge_records,
    tell_unjudged,
)
from isocast.lake.audit_journals import PART_BYTES, HeldJournal, SegmentTask, find_journals, plan_tasks
from isocast.lake.audit_judge import Journal, judge
from isocast.lake.audit_terms import AuditReport
from isocast.lake.audit_walk import SegmentRecord, read_segment
from isocast.lake.audit_zoom import ZoomResult, ZoomTask, zoom
from isocast.terms.errors import ConfigurationError

__all__ = ["BLOCK_MESSAGES", "Run", "Work", "audit", "run_here", "work_on"]

BLOCK_MESSAGES = 4_096
"""Messages that share a digest: some 5 MB of full payloads, which is what a difference costs to look into."""
ZOOMS_MAX = 64
"""Blocks of one stripe that are looked into; what differs beyond is counted."""

Work: TypeAlias = str
"""`segment` or `zoom`."""
Run: TypeAlias = Callable[[Work, Sequence[str]], Iterable[str]]
"""Does the work on each cell, somewhere, and gives the results in any order."""


def work_on(work: Work, cell: str) -> str:
    """One task, from its cell to the cell of its result."""
    if work == "segment":
        return read_segment(SegmentTask.from_json(cell)).to_json()
    return zoom(ZoomTask.from_json(cell)).to_json()


def run_here(work: Work, cells: Sequence[str]) -> Iterable[str]:
    """In this process, one after the other."""
    return [work_on(work, cell) for cell in cells]


def audit(
    where: Path,
    run: Run = run_here,
    *,
    block_messages: int = BLOCK_MESSAGES,
    part_bytes: int = PART_BYTES,
    release_delay_ns: int | None = None,
    live: bool = False,
    expected: Collection[tuple[int, int, str]] = (),
) -> AuditReport:
    """Audit everything below a folder. ConfigurationError if there is nothing, or two markets.

    `release_delay_ns` is Δ_A by the market's file; without it that of each journal's own record. `live`: the journals
    are being written, so that ends which differ, or are not whole yet, are no findings. `expected` are stripe, node and
    name of every receiver that keeps a journal, if that is known.
    """
    if block_messages < 1:
        raise ConfigurationError("command line", "--block", f"must be at least 1, not {block_messages}")
    folders = find_journals(where)
    tasks = plan_tasks(folders, block_messages, part_bytes, release_delay_ns)
    records = [SegmentRecord.from_json(cell) for cell in run("segment", [task.to_json() for task in tasks])]
    journals = _assembled(folders, records)
    report = AuditReport(str(where), block_messages)
    for journal in journals:
        judge(journal, report, live=live)
    by_stripe: dict[int, list[Journal]] = defaultdict(list)
    for journal in journals:
        by_stripe[journal.folder.stripe].append(journal)
    comparisons = {stripe: Comparison(stripe, group, block_messages) for stripe, group in by_stripe.items()}
    zooms = [task for comparison in comparisons.values() for task in comparison.compare(report, ZOOMS_MAX)]
    found = [ZoomResult.from_json(cell) for cell in run("zoom", [task.to_json() for task in zooms])] if zooms else []
    for stripe, comparison in comparisons.items():
        comparison.take([result for result in found if result.stripe == stripe], report)
    for stripe, group in by_stripe.items():
        judge_ends([cover for cover in report.covers if cover.stripe == stripe], report, live=live)
        judge_delays(group, report)
        judge_records(group, report)
        judge_contents(group, report)
        tell_unjudged(group, report)
    _tell_absent(journals, report, expected)
    return report


def _tell_absent(journals: Sequence[Journal], report: AuditReport, expected: Collection[tuple[int, int, str]]) -> None:
    """Receivers of whose journals nothing is here: somebody removed them, or they are on other machines."""
    here = {(journal.folder.stripe, journal.folder.receiver) for journal in journals}
    absent = sorted({name for stripe, receiver, name in expected if (stripe, receiver) not in here})
    text = f"receivers of the market have no journal here: {', '.join(absent)}; copy theirs into one folder"
    report.leave("same sequence", "S1", len(absent), text, decides=True)


def _assembled(folders: Sequence[HeldJournal], records: Iterable[SegmentRecord]) -> list[Journal]:
    by_path: dict[str, list[SegmentRecord]] = defaultdict(list)
    for record in sorted(records, key=lambda record: record.offset):
        by_path[record.path].append(record)
    return [Journal(folder, [record for path in folder.paths for record in by_path[path]]) for folder in folders]
