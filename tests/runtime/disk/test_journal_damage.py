"""Damage in a journal is set aside, and nothing is thrown away."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.wire.journal_samples import blocks

from isocast.runtime.disk.journal import Journal
from isocast.runtime.disk.journal_segments import segment_files
from isocast.runtime.disk.journal_verify import set_aside_blocks, set_aside_end, set_damage_aside, verify
from isocast.runtime.market.model import JournalSettings
from isocast.terms.errors import JournalError
from isocast.wire.journal import SEGMENT_HEADER_BYTES

SMALL = JournalSettings(segment_bytes=2_000)
"""Some four blocks."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Journal.open(tmp_path / "journal", 3, 7, SMALL) as journal:
        for block in blocks(20):
            journal.append(block)
    return tmp_path / "journal"


def flip(path: Path, offset: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[offset] ^= 16
    path.write_bytes(raw)


def next_sequence(folder: Path) -> int:
    with Journal.open(folder, 3, 7, SMALL) as journal:
        return journal.position.next_sequence


def sequences(folder: Path, first: int = 0) -> list[int]:
    return [sequence for block in set_aside_blocks(folder, first) for sequence in block.sequences]


def test_a_sound_journal_stays_as_it_is(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert set_damage_aside(folder) is None
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert set_aside_end(folder) == 0


@pytest.mark.parametrize("place", [0, 1, -1], ids=["the oldest", "one between", "the newest"])
@pytest.mark.parametrize("part", ["header", "body"])
def test_the_journal_ends_before_the_damage_and_everything_whole_is_kept(folder: Path, place: int, part: str) -> None:
    """Of the second block of a segment."""
    files = segment_files(folder)
    file = files[place]
    block_bytes = len(b"".join(next(iter(set_of_blocks(folder)))))
    flip(file.path, SEGMENT_HEADER_BYTES + block_bytes + (8 if part == "header" else 150))
    done = set_damage_aside(folder)
    assert done is not None
    assert done.damage.file == str(file.path)
    assert [path.name for path in done.files] == [f"{other.path.name}.damaged" for other in files[files.index(file) :]]
    ends_at = file.first_sequence + 2
    assert next_sequence(folder) == ends_at
    assert verify(folder).is_sound
    lost = {ends_at, ends_at + 1}
    assert sequences(folder, ends_at) == [number for number in range(ends_at, 41) if number not in lost]
    assert set_aside_end(folder) == (41 if max(lost) < 40 else ends_at)
    assert set_damage_aside(folder) is None, "done"


def set_of_blocks(folder: Path) -> list[list[bytes]]:
    from isocast.runtime.disk.journal_reader import read_blocks  # noqa: PLC0415

    return [[bytes(block.raw)] for block in read_blocks(folder)]


def test_a_segment_whose_first_bytes_are_damaged_goes_whole(folder: Path) -> None:
    files = segment_files(folder)
    flip(files[1].path, 3)
    done = set_damage_aside(folder)
    assert done is not None
    assert next_sequence(folder) == files[1].first_sequence
    assert sequences(folder)[0] == files[2].first_sequence, "of the damaged one nothing can be believed"


def test_names_that_are_taken_are_left_alone(folder: Path) -> None:
    files = segment_files(folder)
    flip(files[-1].path, 3)
    set_damage_aside(folder)
    with Journal.open(folder, 3, 7, SMALL) as journal:
        for block in blocks(20)[(files[-1].first_sequence - 1) // 2 :]:
            journal.append(block)
    flip(files[-1].path, 3)
    done = set_damage_aside(folder)
    assert done is not None
    assert done.files[0].name.endswith(".isoj.damaged-2")
    assert len(list(folder.glob("*.damaged*"))) == 2


def test_an_interruption_between_two_renames_is_gone_on_from(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often: in the end the journal is sound, and no whole block is lost."""
    files = segment_files(folder)
    flip(files[1].path, SEGMENT_HEADER_BYTES + 150)
    rename, allowed = Path.rename, 0
    for _ in range(20):
        done = 0

        def interrupted(path: Path, target: Path, limit: int = allowed) -> Path:
            nonlocal done
            if done == limit:
                raise KeyboardInterrupt
            done += 1
            return rename(path, target)

        monkeypatch.setattr(Path, "rename", interrupted)
        try:
            set_damage_aside(folder)
            break
        except KeyboardInterrupt:
            allowed += 1
    monkeypatch.setattr(Path, "rename", rename)
    ends_at = next_sequence(folder)
    assert ends_at == files[1].first_sequence
    assert verify(folder).is_sound
    assert sorted({*range(1, ends_at), *sequences(folder)}) == [
        number for number in range(1, 41) if number not in (ends_at, ends_at + 1)
    ]


def test_a_journal_in_use_is_left_alone(folder: Path) -> None:
    flip(segment_files(folder)[0].path, SEGMENT_HEADER_BYTES + 150)
    with Journal.open(folder, 3, 7, SMALL), pytest.raises(JournalError, match="stop it first"):
        set_damage_aside(folder)
