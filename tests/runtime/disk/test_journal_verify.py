"""Verifying a journal: every damaged byte is found, and everything that a release must not do."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.runtime.disk.journals import TINY, journal, segments, starts, write
from tests.wire.journal_samples import DELAY, SITE, STRIPE, block, blocks, message, segment

from isocast.checks.journals import FaultKind
from isocast.runtime.disk.journal import prune
from isocast.runtime.disk.journal_reader import summarise
from isocast.runtime.disk.journal_record import Beginning, JournalRecord, record_path, write_record
from isocast.runtime.disk.journal_verify import verify
from isocast.terms.ids import Epoch, source_id
from isocast.wire.journal import segment_name
from isocast.wire.journal_blocks import ReleasedBlock

RELEASED = [*blocks(3), block(4, 7, (None, b"ten bytes!"))]


def raw_journal(folder: Path, released: list[ReleasedBlock]) -> Path:
    """A segment that no writer refused."""
    path = folder / segment_name(STRIPE, SITE, released[0].first_sequence)
    path.write_bytes(segment(released))
    begins = JournalRecord(released[0].first_sequence, Beginning.RETENTION)
    write_record(folder, STRIPE, SITE, begins, sync=False)
    return path


def test_a_sound_journal_is_counted(tmp_path: Path) -> None:
    write(tmp_path, RELEASED, TINY)
    report = verify(tmp_path)
    assert report.is_sound
    assert (report.segments, report.blocks, report.messages, report.events) == (4, 4, 8, 14)
    assert (report.first_sequence, report.next_sequence, report.unfinished_bytes) == (1, 9, 0)
    assert report.bytes == sum(path.stat().st_size for path in segments(tmp_path))
    assert report.faults == []


def test_digests_do_not_depend_on_blocks_segments_or_clocks(tmp_path: Path) -> None:
    one = [block(1, 1, (None,) * 6), block(2, 7, (None,) * 2)]
    steps = [block(1, 1 + 2 * at, (None,) * 2, place=2 * at, count=6) for at in range(3)]
    two = [replace(part, released_at=part.released_at + 5) for part in [*steps, one[1]]]
    write(tmp_path / "one", one)
    write(tmp_path / "two", two, TINY)
    first, second = verify(tmp_path / "one"), verify(tmp_path / "two")
    assert second.is_sound
    assert (first.labels_digest, first.events_digest) == (second.labels_digest, second.events_digest)
    write(tmp_path / "three", [one[0], block(2, 7, (None, b"opaque"))])
    third = verify(tmp_path / "three")
    assert third.labels_digest != first.labels_digest
    assert third.events_digest != first.events_digest


def test_a_flipped_bit_anywhere_is_found(tmp_path: Path) -> None:
    released = [block(1, 1), block(2, 2, (b"ten bytes!",))]
    path = raw_journal(tmp_path, released)
    whole = path.read_bytes()
    begins = [0, *starts(released)]
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes((whole[at] ^ (1 << at % 8),)) + whole[at + 1 :])
        report = verify(tmp_path)
        assert report.counts[FaultKind.DAMAGE] == 1, at
        fault = report.faults[0]
        assert (fault.kind, fault.file) == (FaultKind.DAMAGE, str(path))
        assert fault.offset == max(begin for begin in begins if begin <= at)


def test_what_lies_behind_damage_is_read_too(tmp_path: Path) -> None:
    path = raw_journal(tmp_path, RELEASED)
    raw = bytearray(path.read_bytes())
    raw[starts(RELEASED)[1] + 40] ^= 1
    path.write_bytes(raw)
    report = verify(tmp_path)
    assert (report.blocks, report.messages) == (3, 6)
    assert [fault.kind for fault in report.faults] == [FaultKind.DAMAGE, FaultKind.GAP]
    assert report.faults[1].text == "sequences 3 to 4 are missing"


def test_a_segment_that_is_lost_altogether_is_a_gap(tmp_path: Path) -> None:
    write(tmp_path, RELEASED, TINY)
    segments(tmp_path)[1].unlink()
    report = verify(tmp_path)
    assert report.counts == {FaultKind.GAP: 1}
    assert str(report.faults[0]) == f"gap (S2): {segments(tmp_path)[1]}: byte 64: sequences 3 to 4 are missing"


# ---- where a journal begins


def test_the_first_segments_are_not_missed_silently(tmp_path: Path) -> None:
    write(tmp_path, RELEASED, TINY)
    segments(tmp_path)[0].unlink()
    segments(tmp_path)[0].unlink()
    report = verify(tmp_path)
    assert report.counts == {FaultKind.GAP: 1}
    assert report.faults[0].text.startswith(
        "sequences 1 to 4 are missing: the journal begins after them, and no record"
    )
    assert (report.faults[0].file, report.faults[0].sequence) == (str(segments(tmp_path)[0]), 1)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_block_cut_out_of_a_segment_is_a_gap_wherever_it_was(tmp_path: Path, place: int) -> None:
    path = raw_journal(tmp_path, RELEASED)
    raw, at = path.read_bytes(), starts(RELEASED)
    path.write_bytes(raw[: at[place]] + raw[at[place + 1] :])
    for where in (tmp_path, path):
        report = verify(where)
        assert report.counts == {FaultKind.GAP: 1}, "the segment by itself tells too"
        assert report.faults[0].text == f"sequences {1 + 2 * place} to {2 + 2 * place} are missing"


def test_what_retention_removed_is_told_from_what_somebody_else_removed(tmp_path: Path) -> None:
    write(tmp_path, RELEASED, TINY)
    assert prune(tmp_path, keep_bytes=2 * segments(tmp_path)[0].stat().st_size, keep_seconds=0, now=0)
    report = verify(tmp_path)
    assert report.is_sound
    assert report.record is not None
    first = report.first_sequence
    assert (report.record.first_sequence, report.record.why) == (first, Beginning.RETENTION)
    segments(tmp_path)[0].unlink()
    report = verify(tmp_path)
    assert report.counts == {FaultKind.GAP: 1}
    assert f"by its own record the journal begins with {first} (retention)" in report.faults[0].text


def test_retention_that_was_killed_before_it_removed_anything_leaves_a_sound_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, RELEASED, TINY)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "unlink", killed)
    with pytest.raises(KeyboardInterrupt):
        prune(tmp_path, keep_bytes=1, keep_seconds=0, now=0)
    assert verify(tmp_path).is_sound
    assert verify(tmp_path).first_sequence == 1


@pytest.mark.parametrize("skipped", [False, True])
def test_a_journal_that_begins_later_says_why(tmp_path: Path, skipped: bool) -> None:  # noqa: FBT001 - a parameter
    with journal(tmp_path, TINY) as opened:
        if skipped:
            opened.skip_to(5)
        for one in RELEASED[2:]:
            opened.append(one)
    report = verify(tmp_path)
    assert report.is_sound
    assert report.record == JournalRecord(5, Beginning.ABSENT if skipped else Beginning.BEGUN)


def test_a_gap_in_the_middle_stays_a_gap_whoever_left_it(tmp_path: Path) -> None:
    with journal(tmp_path, TINY) as opened:
        opened.append(RELEASED[0])
        opened.skip_to(5)
        for one in RELEASED[2:]:
            opened.append(one)
    assert verify(tmp_path).counts == {FaultKind.GAP: 1}
    assert not record_path(tmp_path, STRIPE, SITE).exists()


@pytest.mark.parametrize(
    "change", [(b'"first_sequence": 5', b'"first_sequence": 7'), (b"{", b""), (b'"why"', b'"who"')]
)
def test_a_record_that_was_changed_is_damage(tmp_path: Path, change: tuple[bytes, bytes]) -> None:
    write_record(tmp_path, STRIPE, SITE, JournalRecord(5, Beginning.RETENTION), sync=True)
    write(tmp_path, RELEASED[2:], TINY)
    path = record_path(tmp_path, STRIPE, SITE)
    path.write_bytes(path.read_bytes().replace(*change))
    report = verify(tmp_path)
    assert report.counts == {FaultKind.DAMAGE: 1}
    assert report.faults[0].file == str(path)


# ---- Δ_A


def test_releases_are_held_to_the_delay_that_their_journal_records(tmp_path: Path) -> None:
    settings = replace(TINY, release_delay_ns=DELAY)
    write(tmp_path, RELEASED[:2], settings)
    write(tmp_path, RELEASED[2:3], settings)
    sooner = replace(RELEASED[3], due=RELEASED[3].due - 9, released_at=RELEASED[3].released_at - 9)
    write(tmp_path, [sooner], settings)
    report = verify(tmp_path)
    assert report.record == JournalRecord(delays=((1, DELAY),)), "written when it changes"
    assert (report.counts, report.unjudged_delays) == ({FaultKind.EARLY: 1}, 0)
    assert report.faults[0].text == "due 249,999,991 ns after T_t, 9 ns before T_t+Δ_A (Δ_A = 250,000,000 ns)"
    assert verify(segments(tmp_path)[3]).counts == {FaultKind.EARLY: 1}, "a segment by itself too"


def test_a_delay_that_changes_counts_from_then_on(tmp_path: Path) -> None:
    write(tmp_path, RELEASED[:2], TINY)
    write(tmp_path, RELEASED[2:3], replace(TINY, release_delay_ns=DELAY))
    write(tmp_path, RELEASED[3:], replace(TINY, release_delay_ns=DELAY - 5))
    report = verify(tmp_path)
    assert report.record == JournalRecord(delays=((5, DELAY), (7, DELAY - 5)))
    assert (report.counts, report.unjudged_delays) == ({}, 2)
    assert prune(tmp_path, keep_bytes=1, keep_seconds=0, now=0)
    assert verify(tmp_path).record == JournalRecord(7, Beginning.RETENTION, ((7, DELAY - 5),)), "what is gone goes"


def test_blocks_of_others_are_held_to_no_delay(tmp_path: Path) -> None:
    write_record(tmp_path, STRIPE, SITE, JournalRecord(delays=((1, 2 * DELAY),)), sync=False)
    write(tmp_path, [replace(one, fetched=True) for one in RELEASED])
    assert verify(tmp_path).is_sound


def test_a_file_that_is_no_segment_inside_is_damage(tmp_path: Path) -> None:
    write(tmp_path, RELEASED, TINY)
    segments(tmp_path)[2].write_bytes(b"something else")
    report = verify(tmp_path)
    assert report.counts[FaultKind.DAMAGE] == 1
    assert report.messages == 6


FIRST, SECOND = block(4, 10, (None,) * 2), block(5, 12, (None,) * 2)


@pytest.mark.parametrize(
    "second, kinds, text",
    [
        (block(5, 13), [FaultKind.GAP], "sequences 12 to 12"),
        (block(5, 11), [FaultKind.OVERLAP], "sequences 11 to 11 are repeated"),
        (replace(SECOND, token_number=3, instant=FIRST.instant + 1), [FaultKind.ORDER], "token 3 follows 4"),
        (replace(SECOND, instant=FIRST.instant), [FaultKind.ORDER], "not after the one before"),
        (replace(SECOND, epoch=Epoch(1, 65_537)), [FaultKind.ORDER], "epoch 1.1 follows 2.1"),
        (
            replace(SECOND, due=0, released_at=FIRST.released_at - 7),
            [FaultKind.ORDER],
            "the clock went back by 7 ns",
        ),
        (replace(SECOND, released_at=SECOND.due - 3), [FaultKind.EARLY], "released 3 ns before its instant"),
        (
            replace(block(4, 12, (None,) * 2, place=2), instant=FIRST.instant + 1, shuffle_key=FIRST.shuffle_key),
            [FaultKind.ORDER],
            "token 4 contradicts itself",
        ),
        (
            replace(SECOND, messages=[message(12), (source_id(1), 6, bytes(32), b"")]),
            [FaultKind.SOURCE],
            "message 6 of source1 follows 4",
        ),
        (
            replace(SECOND, messages=[(source_id(9), 4, bytes(32), b""), (source_id(9), 4, bytes(32), b"")]),
            [FaultKind.SOURCE],
            "message 4 of source9 follows 4",
        ),
    ],
    ids=["gap", "overlap", "token", "instant", "epoch", "clock", "early", "contradiction", "skipped", "repeated"],
)
def test_what_a_release_must_not_do_is_named(
    tmp_path: Path, second: ReleasedBlock, kinds: list[FaultKind], text: str
) -> None:
    raw_journal(tmp_path, [FIRST, SECOND])
    assert verify(tmp_path).is_sound
    path = raw_journal(tmp_path, [FIRST, second])
    report = verify(tmp_path)
    assert [fault.kind for fault in report.faults] == kinds
    assert text in report.faults[0].text
    assert (report.faults[0].file, report.faults[0].offset) == (str(path), starts([FIRST])[1])


def test_a_token_in_steps_is_sound(tmp_path: Path) -> None:
    write(tmp_path, [block(4, 1, (None,) * 2, count=3), block(4, 3, place=2, count=3), block(6, 4)])
    assert verify(tmp_path).is_sound


def test_many_faults_are_counted_and_the_first_thousand_kept(tmp_path: Path) -> None:
    raw_journal(tmp_path, [block(token, token * 2) for token in range(1, 1_203)])
    report = verify(tmp_path)
    assert report.counts == {FaultKind.GAP: 1_201}
    assert len(report.faults) == 1_000


def test_progress_ends_with_all_bytes(tmp_path: Path) -> None:
    write(tmp_path, RELEASED, TINY)
    told: list[tuple[int, int]] = []
    report = verify(tmp_path, lambda done, total: told.append((done, total)))
    assert told[-1] == (report.bytes, report.bytes)


# ---- summaries


def test_a_summary_of_each_segment(tmp_path: Path) -> None:
    write(tmp_path, RELEASED, TINY)
    found = summarise(tmp_path)
    assert [(one.first_sequence, one.last_sequence) for one in found] == [(1, 2), (3, 4), (5, 6), (7, 8)]
    last = found[-1]
    assert (last.stripe, last.site, last.blocks, last.messages, last.events) == (STRIPE, SITE, 1, 2, 2)
    assert (last.first_token, last.last_token, last.first_epoch, last.last_epoch) == (4, 4, (2, 65_537), (2, 65_537))
    assert (last.first_release, last.last_release) == (RELEASED[3].released_at,) * 2
    assert last.latest_ns == 41_004
    assert (last.bytes, last.unfinished_bytes, last.damage) == (segments(tmp_path)[3].stat().st_size, 0, None)


def test_a_summary_of_damage_and_of_an_unfinished_block(tmp_path: Path) -> None:
    path = raw_journal(tmp_path, RELEASED)
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    found = summarise(path)[0]
    assert (found.blocks, found.damage) == (3, None)
    assert found.unfinished_bytes == len(whole) - 9 - starts(RELEASED)[3]
    path.write_bytes(whole[: starts(RELEASED)[2]] + b"\xff" + whole[starts(RELEASED)[2] + 1 :])
    found = summarise(path)[0]
    assert found.blocks == 2
    assert found.damage is not None
    assert f"byte {starts(RELEASED)[2]}" in found.damage
