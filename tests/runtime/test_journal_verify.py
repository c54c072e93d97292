"""Verifying a journal: every damaged byte is found, and everything that a release must not do."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.runtime.journals import TINY, segments, starts, write
from tests.wire.journal_samples import SITE, STRIPE, block, blocks, message, segment

from isocast.runtime.journal_summary import summarise
from isocast.runtime.journal_verify import FaultKind, verify
from isocast.terms.ids import Epoch, source_id
from isocast.wire.journal import segment_name
from isocast.wire.journal_blocks import ReleasedBlock

RELEASED = [*blocks(3), block(4, 7, (None, b"ten bytes!"))]


def raw_journal(folder: Path, released: list[ReleasedBlock]) -> Path:
    """A segment that no writer refused."""
    path = folder / segment_name(STRIPE, SITE, released[0].first_sequence)
    path.write_bytes(segment(released))
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
    assert str(report.faults[0]) == f"gap: {segments(tmp_path)[1]}: byte 64: sequences 3 to 4 are missing"


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
        (block(5, 11), [FaultKind.OVERLAP], "sequence 11 follows 11"),
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
            replace(SECOND, messages=[message(12), (source_id(1), 6, bytes(16), b"")]),
            [FaultKind.SOURCE],
            "message 6 of source1 follows 4",
        ),
        (
            replace(SECOND, messages=[(source_id(9), 4, bytes(16), b""), (source_id(9), 4, bytes(16), b"")]),
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
