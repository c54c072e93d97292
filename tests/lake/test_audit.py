"""The audit: what is planted in one journal is found and named; what cannot be read is never called clean."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest
from tests.lake.markets import DELAY, Market, write_market
from tests.lake.planted import block_with, flip_in_place, flipped, offset_of, released, rewrite, with_message
from tests.runtime.disk.test_floor_journal import computed, written

from isocast.checks.journals import Copy, JournalWalk, differences
from isocast.lake import audit_walk
from isocast.lake.audit import audit, run_here
from isocast.lake.audit_terms import AuditReport, Finding, FindingKind, Verdict
from isocast.lake.audit_walk import SegmentTask, find_journals, plan_tasks, read_segment
from isocast.runtime.disk.journal import prune
from isocast.runtime.disk.journal_reader import read_blocks
from isocast.runtime.disk.journal_record import JournalRecord, record_path, write_record
from isocast.runtime.disk.journal_segments import segment_files
from isocast.terms.errors import ConfigurationError
from isocast.wire.journal import BLOCK_HEADER_BYTES, JOURNAL_VERSION
from isocast.wire.journal_blocks import JournalMessage, ReleasedBlock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BLOCK = 32
LATE = 70


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Market:
    """Three receivers, two stripes, several segments each."""
    return write_market(tmp_path_factory.mktemp("market"), events=3_000, segment_bytes=40_000)


@pytest.fixture
def market(whole: Market, tmp_path: Path) -> Market:
    """A copy to be spoilt."""
    shutil.copytree(whole.path, tmp_path / "market")
    return replace(whole, path=tmp_path / "market")


def found(report: AuditReport, kind: FindingKind) -> list[Finding]:
    return [finding for finding in report.findings if finding.kind is kind]


def look(market: Market) -> AuditReport:
    """Read segment by segment; in parts as small as they can be it must find the same."""
    whole = audit(market.path, block_messages=BLOCK)
    parts = audit(market.path, block_messages=BLOCK, part_bytes=1).as_json()
    assert parts == whole.as_json()
    return whole


def once(market: Market) -> AuditReport:
    """The same, where parts make no difference."""
    return audit(market.path, block_messages=BLOCK)


def an_event_message(journal: Path, behind: int) -> int:
    """The sequence of a message with several events."""
    return next(
        block.first_sequence + place
        for block in released(journal)
        for place, (_, _, _, payload) in enumerate(block.messages)
        if block.first_sequence > behind and len(payload) % 48 == 0 and len(payload) > 96
    )


def test_journals_that_agree_are_clean_whatever_their_segments(whole: Market, tmp_path: Path) -> None:
    cut = replace(whole, path=tmp_path, segment_bytes=7_000)
    cut.write({})
    for site in whole.receivers[1:]:
        shutil.rmtree(cut.journal(site, 0))
        shutil.copytree(whole.journal(site, 0), cut.journal(site, 0))
    report = audit(tmp_path, block_messages=BLOCK)
    assert report.verdict is Verdict.CLEAN, report.findings
    assert report.counts == {}
    assert report.blocks_different == 0
    total = sum(cover.messages for cover in report.covers)
    assert report.messages_compared == total // 3
    assert report.messages_alone == 0
    assert {cover.digest for cover in report.covers if cover.stripe == 0} == {
        next(cover.digest for cover in report.covers if cover.stripe == 0)
    }
    assert any(note.code == "opaque" for note in report.notes)
    assert len({len(list(cut.journal(site, 0).iterdir())) for site in whole.receivers}) == 2, "cut differently"


def test_a_flipped_bit_with_its_checksum_made_right_is_named(market: Market) -> None:
    journal = market.journal(2, 1)
    sequence = an_event_message(journal, LATE)
    path = rewrite(journal, lambda blocks: with_message(blocks, sequence, lambda old: flipped(old, 1, "price")))
    report = look(market)
    assert report.verdict is Verdict.FINDINGS
    (finding,) = report.findings
    assert finding.kind is FindingKind.DIFFERENT
    assert (finding.stripe, finding.receiver, finding.sequence, finding.index, finding.field) == (
        1,
        2,
        sequence,
        1,
        "price",
    )
    assert finding.others == (1, 3)
    blocks = released(journal)
    assert (finding.file, finding.offset) == (str(path), offset_of(blocks, block_with(blocks, sequence)))
    assert "1 bit of byte 64 of the payload" in finding.text
    assert "its own digest says that the others are right" in finding.text


def test_a_flipped_bit_that_breaks_its_checksum_is_named_as_deeply(market: Market) -> None:
    journal = market.journal(3, 0)
    sequence = an_event_message(journal, LATE)
    path, offset = flip_in_place(journal, sequence, 2, "quantity")
    report = look(market)
    assert set(report.counts) == {FindingKind.DAMAGE}
    block, message = report.findings
    assert (block.receiver, block.file, block.offset) == (3, str(path), offset)
    assert block.sequence is not None
    assert block.last_sequence is not None
    assert block.sequence <= sequence <= block.last_sequence
    assert "checksum" in block.text
    assert (message.sequence, message.index, message.field) == (sequence, 2, "quantity")
    assert (message.file, message.offset, message.others) == (str(path), offset, (1, 2))


def test_a_flipped_bit_is_told_by_its_digest_where_nobody_else_has_it(market: Market) -> None:
    for site in (2, 3):
        shutil.rmtree(market.journal(site, 0))
    journal = market.journal(1, 0)
    sequence = an_event_message(journal, LATE)
    rewrite(journal, lambda blocks: with_message(blocks, sequence, lambda old: flipped(old, 0, "id")))
    report = look(market)
    (finding,) = report.findings
    assert (finding.kind, finding.sequence, finding.field) == (FindingKind.FORGED, sequence, "digest")
    assert report.messages_alone > 0


def early(blocks: list[ReleasedBlock], at: int, *, due: bool) -> list[ReleasedBlock]:
    block = blocks[at]
    instant = block.due - 50_000_000
    return [
        *blocks[:at],
        replace(block, released_at=instant, due=instant if due else block.due),
        *blocks[at + 1 :],
    ]


def test_an_early_release_is_named(market: Market) -> None:
    journal = market.journal(1, 1)
    path = rewrite(journal, lambda blocks: early(blocks, 9, due=False))
    report = look(market)
    (finding,) = found(report, FindingKind.EARLY)
    blocks = released(journal)
    assert (finding.stripe, finding.receiver, finding.sequence) == (1, 1, blocks[9].first_sequence)
    assert finding.last_sequence == blocks[10].first_sequence - 1
    assert (finding.file, finding.offset) == (str(path), offset_of(blocks, 9))
    assert "50,000,000 ns before its instant" in finding.text
    assert set(report.counts) <= {FindingKind.EARLY, FindingKind.ORDER}, "the clock goes back beside it"


def test_an_early_release_that_lies_about_its_instant_is_named(market: Market) -> None:
    journal = market.journal(1, 1)
    rewrite(journal, lambda blocks: early(blocks, 0, due=True))
    report = look(market)
    (finding,) = report.findings
    assert (finding.kind, finding.receiver, finding.field) == (FindingKind.EARLY, 1, "due")
    assert "50,000,000 ns before T_t+Δ_A" in finding.text


SOONER = 5
"""Blocks at the beginning that all receivers release 9 ns too early, and say that it was due."""


def all_sooner(market: Market) -> None:
    def sooner(blocks: list[ReleasedBlock]) -> list[ReleasedBlock]:
        early = [replace(block, due=block.due - 9, released_at=block.released_at - 9) for block in blocks[:SOONER]]
        return early + blocks[SOONER:]

    for site in market.receivers:
        rewrite(market.journal(site, 1), sooner)


def test_an_early_release_that_all_receivers_share_is_found_without_the_markets_file(market: Market) -> None:
    all_sooner(market)
    report = once(market)
    assert report.counts == {FindingKind.EARLY: SOONER * 3}
    assert {(finding.receiver, finding.field) for finding in report.findings} == {(1, "due"), (2, "due"), (3, "due")}
    assert "9 ns before T_t+Δ_A (Δ_A = 250,000,000 ns)" in report.findings[0].text


def test_a_delay_that_the_market_had_for_a_while_is_no_early_release(market: Market) -> None:
    all_sooner(market)
    then = released(market.journal(1, 1))[SOONER].first_sequence
    for site in market.receivers:
        record = JournalRecord(delays=((1, DELAY - 9), (then, DELAY)))
        write_record(market.journal(site, 1), 1, site, record, sync=False)
    assert once(market).verdict is Verdict.CLEAN, "the journals' own records say so"
    report = audit(market.path, block_messages=BLOCK, release_delay_ns=DELAY)
    assert report.counts == {FindingKind.EARLY: SOONER * 3}, "unless the market's file says otherwise"


def without_records(market: Market) -> None:
    for site in market.receivers:
        for stripe in market.stripes:
            record_path(market.journal(site, stripe), stripe, site).unlink()


def test_release_times_that_nobody_can_judge_are_not_called_clean(market: Market) -> None:
    """Neither the market's file nor the journals say what Δ_A was: a lie that all share looks like a setting."""
    all_sooner(market)
    without_records(market)
    report = once(market)
    assert (report.verdict, report.counts) == (Verdict.UNJUDGED, {})
    early = [each for each in report.unjudged if each.decides]
    assert [(each.rule, each.law) for each in early] == [("nothing early", "S12")] * 2
    assert sum(each.count for each in early) == sum(cover.blocks for cover in report.covers)
    assert "name the market's file by --config" in report.sentence
    assert [each["count"] for each in report.as_json()["not_judged"] if each["decides"]] == [
        each.count for each in early
    ]
    assert audit(market.path, block_messages=BLOCK, release_delay_ns=DELAY - 9).verdict is Verdict.CLEAN


def test_who_alone_was_sooner_is_found_without_any_record(market: Market) -> None:
    without_records(market)
    rewrite(market.journal(1, 1), lambda blocks: early(blocks, 0, due=True))
    report = once(market)
    (finding,) = report.findings
    assert (finding.kind, finding.receiver, finding.field) == (FindingKind.EARLY, 1, "due")


def test_another_delay_in_a_record_is_told(market: Market) -> None:
    write_record(market.journal(2, 0), 0, 2, JournalRecord(delays=((1, DELAY - 7),)), sync=False)
    report = once(market)
    assert [(note.stripe, note.receiver, note.count) for note in report.notes if note.code == "another-delay"] == [
        (0, 2, DELAY - 7)
    ]


def test_a_sequence_that_was_released_twice_is_named(market: Market) -> None:
    journal = market.journal(2, 0)
    rewrite(journal, lambda blocks: [*blocks[:6], blocks[5], *blocks[6:]])
    report = look(market)
    first = released(journal)[5].first_sequence
    finding = found(report, FindingKind.DUPLICATE)[0]
    assert (finding.receiver, finding.sequence) == (2, first)
    assert finding.offset == offset_of(released(journal), 6)


def test_a_sources_number_that_occurs_twice_is_named(market: Market) -> None:
    journal = market.journal(2, 0)
    blocks = released(journal)
    first = blocks[7].first_sequence
    source, number = next(
        (message[0], message[1]) for message in reversed(blocks[6].messages) if message[0] == blocks[7].messages[0][0]
    )
    rewrite(journal, lambda old: with_message(old, first, lambda message: (source, number, *message[2:])))
    report = look(market)
    duplicate = found(report, FindingKind.DUPLICATE)[0]
    assert (duplicate.receiver, duplicate.sequence) == (2, first)
    assert f"message {number} of" in duplicate.text
    (forged,) = found(report, FindingKind.FORGED)
    assert (forged.receiver, forged.sequence, forged.field, forged.others) == (2, first, "number", (1, 3))


def test_a_missing_message_is_named(market: Market) -> None:
    journal = market.journal(3, 1)
    blocks = released(journal)
    gone = blocks[8].first_sequence + 3

    def without(old: list[ReleasedBlock]) -> list[ReleasedBlock]:
        block = old[8]
        head = replace(block, messages=list(block.messages[:3]))
        tail = replace(block, messages=list(block.messages[4:]), place=4, first_sequence=gone + 1)
        return [*old[:8], head, tail, *old[9:]]

    path = rewrite(journal, without)
    report = look(market)
    (finding,) = found(report, FindingKind.GAP)
    assert (finding.stripe, finding.receiver, finding.sequence, finding.last_sequence) == (1, 3, gone, gone)
    assert (finding.file, finding.offset) == (str(path), offset_of(released(journal), 9))
    assert set(report.counts) == {FindingKind.GAP}


def test_a_message_cut_out_with_all_later_ones_moved_up_is_named(market: Market) -> None:
    """Sequences have no gap then; the source's numbers and the other receivers tell."""
    journal = market.journal(3, 1)

    def moved(old: list[ReleasedBlock]) -> list[ReleasedBlock]:
        block = old[8]
        short = replace(block, messages=[*block.messages[:3], *block.messages[4:]], token_count=len(block.messages) - 1)
        return [*old[:8], short, *(replace(each, first_sequence=each.first_sequence - 1) for each in old[9:])]

    gone = released(journal)[8].first_sequence + 3
    rewrite(journal, moved)
    report = look(market)
    assert found(report, FindingKind.SOURCE)[0].receiver == 3
    first = min(
        (each for each in report.findings if each.kind in (FindingKind.FORGED, FindingKind.DIFFERENT)),
        key=lambda each: each.sequence or 1 << 60,
    )
    assert (first.receiver, first.sequence) == (3, gone)
    assert found(report, FindingKind.BEHIND)[0].receiver == 3


def test_a_whole_segment_that_is_missing_is_a_gap(market: Market) -> None:
    files = segment_files(market.journal(1, 0))
    files[1].path.unlink()
    report = look(market)
    (finding,) = found(report, FindingKind.GAP)
    assert (finding.sequence, finding.last_sequence) == (files[1].first_sequence, files[2].first_sequence - 1)


def test_rules_hold_from_one_segment_to_the_next(market: Market) -> None:
    """Each segment is read by itself; what lies between two of them is judged all the same."""
    one, two, three = (segment_files(market.journal(site, 0)) for site in market.receivers)
    before = released(one[0].path)[-1]
    repeated = released(one[1].path)[0].messages[0]
    rewrite(one[1].path, lambda old: with_message(old, old[0].first_sequence, lambda it: (it[0], it[1] - 1, *it[2:])))
    rewrite(two[1].path, lambda old: [replace(old[0], token_number=before.token_number - 1), *old[1:]])
    rewrite(three[0].path, lambda old: [*old, released(three[1].path)[0]])
    report = look(market)
    duplicate, again = found(report, FindingKind.DUPLICATE)[:2]
    assert (duplicate.receiver, duplicate.sequence, duplicate.file) == (1, one[1].first_sequence, str(one[1].path))
    assert f"message {repeated[1] - 1} of" in duplicate.text
    order = next(each for each in found(report, FindingKind.ORDER) if each.receiver == 2)
    assert (order.sequence, order.text) == (
        two[1].first_sequence,
        f"token {before.token_number - 1} follows {before.token_number}",
    )
    assert (again.receiver, again.sequence, again.file) == (3, three[1].first_sequence, str(three[1].path))


DIFFERS = "S1, S4"
Told: TypeAlias = set[tuple[str, int, int, int | None]]
"""Property, stripe, receiver and sequence."""


def told_by_audit(market: Market) -> Told:
    """Where a token is another than elsewhere, the audit names each of its messages too: left out here."""
    differing, schedule = (FindingKind.DIFFERENT, FindingKind.FORGED), ("token", "shuffle_key")
    return {
        (DIFFERS if each.kind in differing else each.broken, each.stripe, each.receiver, each.sequence)
        for each in look(market).findings
        if each.kind not in differing or (each.field not in schedule and each.sequence is not None)
    }


def told_by_checks(market: Market) -> Told:
    """What the pure functions make of the same journals, each read from its first block to its last."""
    told: Told = set()
    for stripe in market.stripes:
        folders = {site: market.journal(site, stripe) for site in market.receivers}
        copies = {
            site: Copy.of(str(site), read_blocks(folder), JournalWalk(1, DELAY)) for site, folder in folders.items()
        }
        for site, copy in copies.items():
            told |= {(breach.law, stripe, site, breach.sequence) for breach in copy.breaches}
        for other in differences(list(copies.values())):
            told |= {(DIFFERS, stripe, int(other.name), sequence) for sequence in other.sequences}
    return told


def plant_contradiction(blocks: list[ReleasedBlock]) -> list[ReleasedBlock]:
    head, tail = blocks[0].messages[:1], blocks[0].messages[1:]
    first = blocks[0].first_sequence
    begun = replace(blocks[0], messages=head)
    rest = replace(blocks[0], messages=tail, place=1, first_sequence=first + 1, shuffle_key=bytes(16))
    return [begun, rest, *blocks[1:]]


PLANTS: dict[str, tuple[str, Callable[[list[ReleasedBlock]], list[ReleasedBlock]]]] = {
    "gap": ("S2", lambda blocks: [blocks[0], *blocks[2:]]),
    "duplicate": ("S2", lambda blocks: [blocks[0], *blocks]),
    "source": (
        "S3",
        lambda blocks: with_message(blocks, blocks[0].first_sequence, lambda it: (it[0], it[1] + 1, *it[2:])),
    ),
    "repeated": (
        "S2",
        lambda blocks: with_message(blocks, blocks[0].first_sequence, lambda it: (it[0], it[1] - 1, *it[2:])),
    ),
    "contradiction": ("S5", plant_contradiction),
    "token": ("S11", lambda blocks: [replace(blocks[0], token_number=1), *blocks[1:]]),
    "early": ("S12", lambda blocks: early(blocks, 0, due=True)),
    "content": (DIFFERS, lambda blocks: with_message(blocks, blocks[1].first_sequence, lambda it: (*it[:3], b"other"))),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_the_audit_says_what_the_checks_say_of_the_same_journals(market: Market, plant: str) -> None:
    """In tasks that know nothing of each other, over two segments, and in parts: the same property, the same place."""
    law, change = PLANTS[plant]
    second = segment_files(market.journal(2, 0))[1]
    rewrite(second.path, change)
    audited = told_by_audit(market)
    assert law in {each[0] for each in audited}
    assert audited == told_by_checks(market)


def test_a_forged_source_is_named(market: Market) -> None:
    journal = market.journal(1, 0)
    sequence = an_event_message(journal, LATE)

    def forge(message: JournalMessage) -> JournalMessage:
        return (message[0] + (5 << 32), *message[1:])

    rewrite(journal, lambda blocks: with_message(blocks, sequence, forge))
    report = look(market)
    (forged,) = found(report, FindingKind.FORGED)
    assert (forged.receiver, forged.sequence, forged.field) == (1, sequence, "source")


def test_another_token_for_a_message_is_a_difference(market: Market) -> None:
    journal = market.journal(1, 0)
    rewrite(journal, lambda old: [*old[:5], replace(old[5], instant=old[5].instant - 1), *old[6:]])
    (finding, *_) = look(market).findings
    assert (finding.kind, finding.field) == (FindingKind.DIFFERENT, "instant")


def test_fetched_and_uncertified_blocks_are_told_and_compared(market: Market) -> None:
    journal = market.journal(1, 0)
    rewrite(
        journal,
        lambda old: [replace(old[0], fetched=True), replace(old[1], uncertified=True), *old[2:]],
    )
    report = look(market)
    notes = {note.code: note.count for note in report.notes if (note.stripe, note.receiver) == (0, 1)}
    assert notes["fetched"] == len(released(journal)[0].messages)
    assert notes["uncertified"] == len(released(journal)[1].messages)


def test_numbers_need_not_follow_over_messages_whose_sources_nobody_told(market: Market) -> None:
    """What a site fetched from a retransmit server, at the beginning of a segment, has no labels."""

    def unlabelled(block: ReleasedBlock) -> ReleasedBlock:
        return replace(block, fetched=True, messages=[(0, 0, *message[2:]) for message in block.messages])

    second = segment_files(market.journal(2, 0))[1].path
    rewrite(second, lambda old: [*map(unlabelled, old[:2]), *old[2:]])
    report = look(market)
    assert report.findings == []
    assert "fetched" in {note.code for note in report.notes}


def test_long_segments_are_read_in_parts_that_cover_every_byte_once(market: Market) -> None:
    journals = find_journals(market.path)
    tasks = plan_tasks(journals, BLOCK, 10_000)
    assert len(tasks) > 2 * sum(len(journal.files) for journal in journals)
    read: Counter[str] = Counter()
    for task in tasks:
        read[task.start.path] += read_segment(SegmentTask.from_json(task.to_json())).bytes
    assert read == {path: Path(path).stat().st_size for journal in journals for path in journal.paths}


# ---- where journals begin and end


@pytest.mark.parametrize("sites", [(2,), (1, 2, 3)])
def test_a_journal_without_its_first_block_is_never_clean(market: Market, sites: tuple[int, ...]) -> None:
    """Whoever removes it writes the file again, name, header and checksums: nothing inside tells."""
    first = released(market.journal(1, 0))[1].first_sequence
    for site in sites:
        rewrite(segment_files(market.journal(site, 0))[0].path, lambda old: old[1:])
    report = once(market)
    assert report.counts == {FindingKind.GAP: len(sites)}
    for finding, site in zip(report.findings, sites, strict=True):
        assert (finding.receiver, finding.sequence, finding.last_sequence) == (site, 1, first - 1)
        assert "by its own record the journal begins with 1 (first)" in finding.text


@pytest.mark.parametrize("place", [0, 1])
def test_a_first_block_cut_out_of_its_segment_is_one_gap(market: Market, place: int) -> None:
    file = segment_files(market.journal(2, 0))[place]
    blocks = released(file.path)
    raw, length = file.path.read_bytes(), offset_of(blocks, 1) - offset_of(blocks, 0)
    file.path.write_bytes(raw[:64] + raw[64 + length :])
    report = look(market)
    assert report.counts == {FindingKind.GAP: 1}
    (finding,) = report.findings
    assert (finding.sequence, finding.last_sequence) == (file.first_sequence, blocks[1].first_sequence - 1)


def test_first_segments_that_are_missing_are_a_gap_unless_retention_removed_them(market: Market) -> None:
    journal = market.journal(2, 0)
    files = segment_files(journal)
    prune(journal, keep_bytes=sum(file.path.stat().st_size for file in files[1:]), keep_seconds=0, now=0)
    report = once(market)
    assert report.verdict is Verdict.CLEAN, report.findings
    assert [(note.receiver, note.count) for note in report.notes if note.code == "begins-later"] == [
        (2, files[1].first_sequence - 1)
    ]
    files[1].path.unlink()
    report = once(market)
    (finding,) = report.findings
    assert (finding.kind, finding.sequence, finding.last_sequence) == (
        FindingKind.GAP,
        files[1].first_sequence,
        files[2].first_sequence - 1,
    )
    assert "(retention)" in finding.text
    record_path(journal, 0, 2).unlink()
    assert "no record says why" in once(market).findings[0].text


def test_a_record_that_was_changed_is_damage(market: Market) -> None:
    path = record_path(market.journal(2, 0), 0, 2)
    path.write_bytes(path.read_bytes().replace(b'"first_sequence": 1', b'"first_sequence": 9'))
    report = once(market)
    (finding,) = report.findings
    assert (finding.kind, finding.file) == (FindingKind.DAMAGE, str(path))


@pytest.mark.parametrize("cut", [0, 40])
def test_last_blocks_that_are_missing_are_told_from_a_torn_end(market: Market, cut: int) -> None:
    path = segment_files(market.journal(2, 0))[-1].path
    blocks = released(path)
    path.write_bytes(path.read_bytes()[: offset_of(blocks, len(blocks) - 1) + cut])
    report = once(market)
    assert report.verdict is Verdict.INCOMPLETE
    assert set(report.counts) == {FindingKind.BEHIND} | ({FindingKind.UNREAD} if cut else set())
    (behind,) = found(report, FindingKind.BEHIND)
    assert (behind.receiver, behind.sequence) == (2, blocks[-1].first_sequence)


# ---- what is not judged


def test_what_could_not_be_judged_is_listed_with_its_count(market: Market) -> None:
    def heard(block: ReleasedBlock) -> ReleasedBlock:
        return replace(block, fetched=True, messages=[(0, 0, *message[2:]) for message in block.messages])

    journal = market.journal(1, 0)
    rewrite(journal, lambda old: [*map(heard, old[:2]), *old[2:]])
    count = sum(len(block.messages) for block in released(journal)[:2])
    (journal / f"{segment_files(journal)[0].path.name}.damaged").write_bytes(b"")
    report = audit(market.path, block_messages=BLOCK, live=True)
    assert report.verdict is Verdict.CLEAN
    told = {(each.rule, each.law, each.count) for each in report.unjudged if "stripe 0" in each.text}
    assert told == {
        ("source order, no forged message", "S3, S4", count),
        ("nothing early", "S12", count),
        ("no gap, no duplicate", "S2", 3),
        ("every byte", "", 1),
    }


def test_one_journal_alone_is_compared_with_nobody_and_not_clean(market: Market) -> None:
    for site in (2, 3):
        shutil.rmtree(market.journal(site, 0))
    report = once(market)
    assert (report.verdict, report.counts) == (Verdict.UNJUDGED, {})
    (alone,) = [each for each in report.unjudged if each.decides]
    assert (alone.law, alone.count) == ("S1", report.messages_alone)


def test_payloads_that_all_differ_from_their_digests_are_not_passed_over(
    market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A market seals everything or nothing: where parts of it match, others are not simply excused."""
    monkeypatch.setattr(audit_walk, "_SEALED_AFTER", 8)
    second = released(segment_files(market.journal(1, 0))[1].path)

    def other(block: ReleasedBlock) -> ReleasedBlock:
        return replace(block, messages=[(*message[:2], bytes(32), message[3]) for message in block.messages])

    for site in market.receivers:
        rewrite(segment_files(market.journal(site, 0))[1].path, lambda old: [other(block) for block in old])
    report = once(market)
    assert (report.verdict, report.counts) == (Verdict.UNJUDGED, {})
    (sealed,) = [each for each in report.unjudged if each.decides]
    assert (sealed.law, sealed.count) == ("S4", 3 * sum(len(block.messages) for block in second))


def test_receivers_without_a_journal_are_named(market: Market) -> None:
    expected = [(stripe, site, f"site{site}") for stripe in (0, 1) for site in (1, 2, 3)]
    assert audit(market.path, block_messages=BLOCK, expected=expected).verdict is Verdict.CLEAN
    shutil.rmtree(market.journal(3, 0))
    assert once(market).verdict is Verdict.CLEAN, "nobody knows of it"
    report = audit(market.path, block_messages=BLOCK, expected=expected)
    assert report.verdict is Verdict.UNJUDGED
    assert "1 receivers of the market have no journal here: site3" in report.sentence


# ---- what cannot be read


def test_a_damaged_block_at_the_beginning_of_a_segment_is_no_gap_besides(market: Market) -> None:
    journal = market.journal(3, 0)
    second = segment_files(journal)[1].first_sequence
    flip_in_place(journal, second, 0, "price")
    assert set(look(market).counts) == {FindingKind.DAMAGE}


def test_a_torn_end_is_never_called_clean(market: Market) -> None:
    path = segment_files(market.journal(2, 0))[-1].path
    raw = path.read_bytes()
    path.write_bytes(raw + raw[64 : 64 + BLOCK_HEADER_BYTES + 9])
    report = look(market)
    assert report.verdict is Verdict.INCOMPLETE
    (finding,) = report.findings
    assert (finding.kind, finding.file, finding.offset) == (FindingKind.UNREAD, str(path), len(raw))
    assert f"{BLOCK_HEADER_BYTES + 9} bytes" in finding.text
    assert audit(market.path, block_messages=BLOCK, live=True).verdict is Verdict.CLEAN


def test_a_torn_segment_in_the_middle_is_named_with_what_it_lacks(market: Market) -> None:
    path = segment_files(market.journal(2, 0))[1].path
    raw = path.read_bytes()
    path.write_bytes(raw[:-9])
    report = look(market)
    assert set(report.counts) == {FindingKind.UNREAD, FindingKind.GAP}
    assert report.verdict is Verdict.FINDINGS


def test_a_newer_version_is_named_and_not_clean(market: Market) -> None:
    file = segment_files(market.journal(2, 0))[1]
    raw = bytearray(file.path.read_bytes())
    raw[8:10] = (JOURNAL_VERSION + 1).to_bytes(2, "little")
    file.path.write_bytes(raw)
    report = look(market)
    assert report.verdict is Verdict.INCOMPLETE
    (finding,) = report.findings
    assert (finding.kind, finding.file, finding.sequence) == (FindingKind.UNREAD, str(file.path), file.first_sequence)
    assert "version 4; this program reads versions 2 and 3" in finding.text
    assert sum(cover.unread_bytes for cover in report.covers) == len(raw)


def test_a_receiver_that_ends_early_is_behind_unless_the_market_runs(market: Market) -> None:
    rewrite(market.journal(2, 0), lambda old: old[:-1])
    report = look(market)
    assert report.verdict is Verdict.INCOMPLETE
    assert found(report, FindingKind.BEHIND)[0].receiver == 2
    assert audit(market.path, block_messages=BLOCK, live=True).verdict is Verdict.CLEAN


def test_two_markets_in_one_folder_are_refused(market: Market, tmp_path: Path) -> None:
    shutil.copytree(market.journal(1, 0), market.path / "copy" / "journal")
    with pytest.raises(ConfigurationError, match="has two journals of stripe 0"):
        look(market)
    shutil.rmtree(market.path / "copy")
    for site, name in ((1, "alpha"), (2, "beta")):
        log = market.journal(site, 0).parent / "log"
        log.mkdir()
        (log / "identity.json").write_text(json.dumps({"market": name}), encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r'two markets are mixed here: "alpha".*"beta"'):
        look(market)
    with pytest.raises(ConfigurationError, match="holds no segment"):
        audit(tmp_path / "market" / ".." / "market" / "tokyo-0" / "log")


def test_a_journal_of_another_market_is_a_stranger(market: Market, tmp_path: Path) -> None:
    other = write_market(tmp_path / "other", receivers=3, stripes=(0,), events=3_000, seed=99)
    shutil.rmtree(market.journal(3, 0))
    shutil.copytree(other.journal(3, 0), market.journal(3, 0))
    report = look(market)
    (stranger,) = found(report, FindingKind.STRANGER)
    assert stranger.receiver == 3
    assert all(finding.receiver == 3 for finding in report.findings if finding.kind is not FindingKind.BEHIND)


# ---- on Spark


def test_spark_finds_the_same(spark: SparkSession, tmp_path: Path) -> None:
    from isocast.lake.audit import run_on  # noqa: PLC0415 - Spark loads when a test needs it

    market = write_market(tmp_path, stripes=(0,), events=1_500, segment_bytes=40_000)
    sequence = an_event_message(market.journal(1, 0), LATE)
    flip_in_place(market.journal(2, 0), sequence, 0, "price")
    rewrite(market.journal(3, 0), lambda old: [*old[:4], *old[5:]])
    here = audit(market.path, run_here, block_messages=BLOCK)
    assert set(here.counts) == {FindingKind.DAMAGE, FindingKind.GAP}
    assert audit(market.path, run_on(spark), block_messages=BLOCK).as_json() == here.as_json()


def test_a_journal_with_a_trading_floor_is_told(tmp_path: Path) -> None:
    """The audit compares its messages; its trades are judged by `isocast floor verify`."""
    written(tmp_path / "a" / "journal", computed())
    report = audit(tmp_path, block_messages=BLOCK)
    (note,) = [note for note in report.notes if note.code == "floors"]
    assert (note.count, report.covers[0].floors) == (1, ("XISO",))
    assert "isocast floor verify" in note.text
