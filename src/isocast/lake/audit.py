"""The audit of a market's journals: receivers compared block by block, one sequence, nothing early.

These are S1 to S5, S11 and S12 of the protocol's properties, as far as journals can show them; with a roster S17 and
S21, too.

    report = audit(Path("data"), run_on(spark))
    report.verdict, report.findings

Segments, and parts of long ones, are read by tasks that know nothing of each other. The driver sees digests of blocks
of messages and compares them; only blocks in which receivers differ are read a second time, message by message.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from isocast.lake.audit_judge import JournalParts, ZoomResult, ZoomTask, judge, zoom
from isocast.lake.audit_proof import ProofResult, ProofTask, plan_proofs, prove, tell_proofs
from isocast.lake.audit_terms import AuditReport, Cover, Finding, FindingKind, Note
from isocast.lake.audit_walk import (
    PART_BYTES,
    BlockDigest,
    HeldJournal,
    SegmentRecord,
    SegmentTask,
    find_journals,
    plan_tasks,
    read_segment,
)
from isocast.terms.errors import ConfigurationError
from isocast.terms.ids import describe, is_site
from isocast.terms.quantities import counted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = [
    "BLOCK_MESSAGES",
    "BlockComparison",
    "RunWork",
    "Work",
    "audit",
    "judge_contents",
    "judge_delays",
    "judge_ends",
    "judge_records",
    "run_here",
    "run_on",
    "tell_unjudged",
    "work_on",
]

# Receivers against each other: digests block by block, ends, delays and the ring's own digests.


class BlockComparison:
    """The blocks of one stripe at all its receivers."""

    def __init__(self, stripe: int, journals: Sequence[JournalParts], block_messages: int) -> None:
        """Nothing is compared yet."""
        self._stripe = stripe
        self._journals = {journal.folder.receiver: journal for journal in journals}
        self._size = block_messages
        self._agreeing: set[int] = set()
        """Receivers that were part of a block in which all agreed."""
        self._blocks: dict[int, dict[int, list[BlockDigest]]] = defaultdict(lambda: defaultdict(list))
        for journal in journals:
            for record in journal.records:
                for digest in record.digests:
                    self._blocks[digest.block][journal.folder.receiver].append(digest)

    def compare(self, report: AuditReport, zooms_max: int) -> list[ZoomTask]:
        """Count what agrees; what must be looked into."""
        tasks: list[ZoomTask] = []
        skipped: Counter[int] = Counter()
        for number, held in sorted(self._blocks.items()):
            if len(held) == 1:
                alone = sum(digest.messages for digest in next(iter(held.values())))
                report.messages_alone += alone
                report.alone[self._stripe] += alone
            elif _is_one(held):
                report.blocks_compared += 1
                report.messages_compared += next(iter(held.values()))[0].messages
                self._agreeing |= set(held)
            elif len(tasks) < zooms_max:
                tasks.append(self._zoom(number, held))
            else:
                skipped.update(_deviating(held))
        for receiver, count in sorted(skipped.items()):
            text = (
                f"{count:,} more blocks of {self._size:,} messages differ, or are not whole, and were not looked into"
            )
            report.add(Finding(FindingKind.DIFFERENT, self._stripe, receiver, text, count=count))
        return tasks

    def _zoom(self, number: int, held: Mapping[int, Sequence[BlockDigest]]) -> ZoomTask:
        first, last = number * self._size, (number + 1) * self._size - 1
        paths = {str(receiver): self._paths(receiver, first, last) for receiver in sorted(held)}
        return ZoomTask(self._stripe, first, last, paths)

    def _paths(self, receiver: int, first: int, last: int) -> tuple[str, ...]:
        files = self._journals[receiver].folder.files
        ends = [file.first_sequence for file in files[1:]] + [last + 1]
        return tuple(
            str(file.path)
            for file, end in zip(files, ends, strict=True)
            if file.first_sequence <= last and (end > first or file is files[-1])
        )

    def take(self, results: Iterable[ZoomResult], report: AuditReport) -> None:
        """What was found by looking; a receiver with which nothing agrees is no receiver of this market."""
        results = sorted(results, key=lambda result: result.first_sequence)
        compared: Counter[int] = Counter()
        different: Counter[int] = Counter()
        for result in results:
            compared.update({int(receiver): count for receiver, count in result.compared.items()})
            different.update({int(receiver): count for receiver, count in result.different.items()})
        strangers = {
            receiver
            for receiver, count in different.items()
            if count and count == compared[receiver] and receiver not in self._agreeing
        }
        told: set[int] = set()
        for result in results:
            report.blocks_compared += 1
            report.blocks_different += any(result.different.values())
            report.messages_compared += max(result.compared.values(), default=0)
            for finding in result.findings:
                if finding.receiver in strangers and finding.receiver in told:
                    continue
                if finding.receiver in strangers:
                    report.add(_stranger(finding, different[finding.receiver]))
                told.add(finding.receiver)
                report.add(finding)
            self._count_the_rest(result, report, strangers)

    def _count_the_rest(self, result: ZoomResult, report: AuditReport, strangers: set[int]) -> None:
        named = Counter(finding.receiver for finding in result.findings)
        for receiver, count in result.different.items():
            more = count - named[int(receiver)]
            if more > 0 and int(receiver) not in strangers:
                text = f"{more:,} more messages differ among the {self._size:,} from {result.first_sequence} on"
                report.add(Finding(FindingKind.DIFFERENT, self._stripe, int(receiver), text, count=more))


def _is_one(held: Mapping[int, Sequence[BlockDigest]]) -> bool:
    """Whether all hold the same messages, as far as each of them can know."""
    digests = [each for several in held.values() for each in several]
    if len(digests) != len(held):
        return False  # Somebody went back: a sequence is there twice.
    same = {(each.first_sequence, each.last_sequence, each.messages, each.contents, each.schedule) for each in digests}
    labels = {each.labels for each in digests if each.labels}
    return len(same) == 1 and len(labels) <= 1


def _deviating(held: Mapping[int, Sequence[BlockDigest]]) -> list[int]:
    """Receivers that do not hold what most hold."""
    counts = Counter(tuple(several) for several in held.values())
    most = counts.most_common(1)[0][0]
    return [receiver for receiver, several in held.items() if tuple(several) != most] or list(held)


def _stranger(first: Finding, count: int) -> Finding:
    different = f"{counted(count, 'message')} different"
    text = f"nothing of this journal agrees with the others ({different}): is it another market's?"
    return Finding(
        FindingKind.STRANGER, first.stripe, first.receiver, text, first.file, first.offset, first.sequence, count=1
    )


def _messages(count: int) -> str:
    return f"{count:,} message{'s' * (count != 1)}"


# Ends -------------------------------------------------------------------------------------------------


def judge_ends(covers: Sequence[Cover], report: AuditReport, *, live: bool) -> None:
    """Of one stripe: who ends before the others."""
    ends = [cover.last_sequence for cover in covers if cover.last_sequence is not None]
    for cover in covers:
        if cover.last_sequence is None:
            text = "the journal holds no message that could be read"
            report.add(Finding(FindingKind.BEHIND, cover.stripe, cover.receiver, text, cover.directory))
            continue
        if cover.last_sequence < max(ends) and not live:
            first, last = cover.last_sequence + 1, max(ends)
            text = f"the journal ends {_messages(last - first + 1)} before others do"
            report.add(
                Finding(FindingKind.BEHIND, cover.stripe, cover.receiver, text, cover.directory, None, first, last)
            )
    if live:
        report.leave("S2", len(covers), f"journals of stripe {covers[0].stripe} end where they end: they grow")


# Instants ---------------------------------------------------------------------------------------------


def judge_delays(journals: Sequence[JournalParts], report: AuditReport) -> None:
    """S12 where a journal lies about its instant too, and nobody says what Δ_A was: neither a market's file nor it.

    A receiver that alone was sooner than nearly all tokens are is found. What several share may have been the market's
    setting once, or may be a lie that they share: that is not judged, and said.
    """
    delays: dict[int, Counter[int]] = {}
    unjudged = 0
    for journal in journals:
        if not is_site(journal.folder.receiver):
            continue  # A follower's instant is at most that of the arrival, by a clock of its own.
        own = delays.setdefault(journal.folder.receiver, Counter())
        for record in journal.records:
            unjudged += record.unjudged_delays
            own.update({int(delay): count for delay, count in record.delays.items()})
    together = sum(delays.values(), Counter())
    usual_ns = together.most_common(1)[0][0] if together else 0
    for journal in journals:
        receiver = journal.folder.receiver
        least_of: dict[str, Sequence[int]] = {}
        for record in journal.records if is_site(receiver) else ():
            found = record.least_delay
            if found is not None and (record.path not in least_of or found[0] < least_of[record.path][0]):
                least_of[record.path] = found
        for path, (least, sequence, offset) in least_of.items():
            if least >= usual_ns or any(least in delays[other] for other in delays if other != receiver):
                continue
            text = f"due {least:,} ns after T_t, {usual_ns - least:,} ns before T_t+Δ_A (Δ_A = {usual_ns:,} ns)"
            stripe = journal.folder.stripe
            report.add(Finding(FindingKind.EARLY, stripe, receiver, text, path, offset, sequence, field="due"))
    text = (
        f"blocks of stripe {journals[0].folder.stripe} were not checked against Δ_A:"
        " no record beside their journals says what it was"
    )
    report.leave("S12", unjudged, f"{text}: name the market's file by --config", decides=True)


def judge_records(journals: Sequence[JournalParts], report: AuditReport) -> None:
    """Of one stripe: receivers that recorded another Δ_A for the newest messages release at other instants."""
    newest = {
        journal.folder.receiver: journal.folder.record.delays[-1][1]
        for journal in journals
        if is_site(journal.folder.receiver) and journal.folder.record is not None and journal.folder.record.delays
    }
    most = Counter(newest.values()).most_common(1)
    for receiver, delay_ns in sorted(newest.items()):
        if delay_ns != most[0][0]:
            text = f"ns is its Δ_A, and {most[0][0]:,} ns that of most: each was held to its own"
            stripe = journals[0].folder.stripe
            report.notes.append(Note("another-delay", stripe, receiver, delay_ns, text))


def tell_unjudged(journals: Sequence[JournalParts], report: AuditReport) -> None:
    """Of one stripe: what could not be held to a rule, and how much of it."""
    stripe = journals[0].folder.stripe
    records = [record for journal in journals for record in journal.records]
    messages = sum(record.messages for record in records)
    if len(journals) == 1:
        text = f"messages of stripe {stripe} are held by {journals[0].folder.name} alone: nothing to compare them with"
        report.leave("S1", messages, text, decides=True)
    else:
        text = f"messages of stripe {stripe} are held by one journal alone: nothing to compare them with"
        report.leave("S1", report.alone[stripe], text)
    unlabelled = sum(record.unlabelled for record in records)
    text = f"messages of stripe {stripe} came by lines, which do not tell who published them"
    report.leave("S3, S4", unlabelled, text)
    is_open = any(record.own_digests for record in records)
    sealed = sum(record.sealed if is_open else record.sealed + len(record.foreign_digests) for record in records)
    text = f"payloads of stripe {stripe} seem to have been sealed: their digests are of the sealed bytes"
    if is_open:
        text = f"payloads of stripe {stripe} match no digest in whole parts of the journals, and match them elsewhere"
    report.leave("S4", sealed, text, decides=is_open)
    fetched = sum(record.fetched for record in records)
    text = f"messages of stripe {stripe} were fetched later: their times are those of the site that released them"
    report.leave("S12", fetched, text)
    followers = sum(
        record.blocks for journal in journals if not is_site(journal.folder.receiver) for record in journal.records
    )
    text = f"blocks of stripe {stripe} were received on a line: their instant is the time of arrival by another clock"
    report.leave("S12", followers, text)
    aside = sum(len(journal.folder.aside) for journal in journals)
    report.leave("", aside, f"{counted(aside, 'file')} beside journals of stripe {stripe} not read")


def judge_contents(journals: Sequence[JournalParts], report: AuditReport) -> None:
    """Of one stripe: payloads that are not what the ring ordered (S4).

    Known wherever the market does not seal, and where a journal keeps the keys that its messages were sealed with.
    """
    is_open = any(record.own_digests for journal in journals for record in journal.records)
    named = {(finding.stripe, finding.receiver, finding.sequence) for finding in report.findings}
    for journal in journals:
        folder = journal.folder
        for record in journal.records:
            for sequence, offset in [*record.forged, *(record.foreign_digests if is_open else ())]:
                if (folder.stripe, folder.receiver, sequence) not in named:
                    text = f"the payload is not what the digest of {describe(folder.receiver)}'s own directory says"
                    report.add(
                        Finding(
                            FindingKind.FORGED,
                            folder.stripe,
                            folder.receiver,
                            text,
                            record.path,
                            offset,
                            sequence,
                            sequence,
                            field="digest",
                        )
                    )
            count = record.forged_more + (record.foreign_more if is_open else 0)
            if count:
                more = f"{count:,} more payloads are not what their digests say"
                stripe, receiver = folder.stripe, folder.receiver
                report.add(Finding(FindingKind.FORGED, stripe, receiver, more, record.path, count=count))


BLOCK_MESSAGES = 4_096
"""Messages that share a digest: some 5 MB of full payloads, which is what a difference costs to look into."""
ZOOMS_MAX = 64
"""Blocks of one stripe that are looked into; what differs beyond is counted."""

Work: TypeAlias = str
"""`segment`, `proof` or `zoom`."""
RunWork: TypeAlias = Callable[[Work, Sequence[str]], Iterable[str]]
"""Does the work on each cell, somewhere, and gives the results in any order."""


def work_on(work: Work, cell: str) -> str:
    """One task, from its cell to the cell of its result."""
    if work == "segment":
        return read_segment(SegmentTask.from_json(cell)).to_json()
    if work == "proof":
        return prove(ProofTask.from_json(cell)).to_json()
    return zoom(ZoomTask.from_json(cell)).to_json()


def run_here(work: Work, cells: Sequence[str]) -> Iterable[str]:
    """In this process, one after the other."""
    return [work_on(work, cell) for cell in cells]


def audit(
    where: Path,
    run: RunWork = run_here,
    *,
    block_messages: int = BLOCK_MESSAGES,
    part_bytes: int = PART_BYTES,
    release_delay_ns: int | None = None,
    live: bool = False,
    expected: Collection[tuple[int, int, str]] = (),
    rosters: Sequence[Path] = (),
) -> AuditReport:
    """Audit everything below a folder. ConfigurationError if there is nothing, or two markets.

    `release_delay_ns` is Δ_A by the market's file; without it that of each journal's own record. `live`: the journals
    are being written, so that ends which differ, or are not whole yet, are no findings. `expected` are stripe, node and
    name of every receiver that keeps a journal, if that is known. By `rosters` it is proven what a majority signed.
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
    by_stripe: dict[int, list[JournalParts]] = defaultdict(list)
    for journal in journals:
        by_stripe[journal.folder.stripe].append(journal)
    comparisons = {stripe: BlockComparison(stripe, group, block_messages) for stripe, group in by_stripe.items()}
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
    if rosters:
        sites = [journal.folder for journal in journals if is_site(journal.folder.receiver)]
        cells = [task.to_json() for task in plan_proofs(sites, rosters)]
        tell_proofs([ProofResult.from_json(cell) for cell in run("proof", cells)], report)
    _tell_absent(journals, report, expected)
    return report


def _tell_absent(
    journals: Sequence[JournalParts], report: AuditReport, expected: Collection[tuple[int, int, str]]
) -> None:
    """Receivers without any journal here: it was removed, or is on another machine."""
    here = {(journal.folder.stripe, journal.folder.receiver) for journal in journals}
    absent = sorted({name for stripe, receiver, name in expected if (stripe, receiver) not in here})
    text = f"receivers of the market have no journal here: {', '.join(absent)}; copy theirs into one folder"
    report.leave("S1", len(absent), text, decides=True)


def _assembled(folders: Sequence[HeldJournal], records: Iterable[SegmentRecord]) -> list[JournalParts]:
    by_path: dict[str, list[SegmentRecord]] = defaultdict(list)
    for record in sorted(records, key=lambda record: record.offset):
        by_path[record.path].append(record)
    return [JournalParts(folder, [record for path in folder.paths for record in by_path[path]]) for folder in folders]


# ---- on Spark


_PARTITIONS = 64
_FOR_EACH_CORE = 4
"""A Spark task costs a tenth of a second by itself: small segments share one."""


def run_on(spark: SparkSession) -> RunWork:
    """Spread the work over a session's executors, which must see the files."""
    import pyarrow as pa  # noqa: PLC0415 - audits without Spark do without it

    def run(work: Work, cells: Sequence[str]) -> Iterable[str]:
        def batches(incoming: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in incoming:
                for cell in batch.column("task").to_pylist():
                    yield pa.RecordBatch.from_pydict({"result": [work_on(work, cell)]})

        context = spark.sparkContext
        slices = min(max(len(cells), 1), max(_PARTITIONS, _FOR_EACH_CORE * context.defaultParallelism))
        rows = context.parallelize([(cell,) for cell in cells], slices)
        frame = spark.createDataFrame(rows, "task string")
        return [row.result for row in frame.mapInArrow(batches, "result string").collect()]

    return run
