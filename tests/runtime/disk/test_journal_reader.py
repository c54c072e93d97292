"""Reading a journal: by sequence, without copies, and while somebody writes it."""

import os
import subprocess
import sys
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime.disk.journals import TINY, journal, segments, starts, write
from tests.wire.journal_samples import SITE, STRIPE, block, blocks, segment

from isocast.runtime.disk import journal_segments
from isocast.runtime.disk.journal_reader import JournalCursor, JournalReader, read_blocks
from isocast.runtime.disk.journal_segments import Segment, segment_files
from isocast.runtime.market.model import JournalSettings
from isocast.terms.errors import JournalError
from isocast.wire.journal import SEGMENT_HEADER_BYTES, segment_name
from isocast.wire.journal_blocks import BlockView

RELEASED = blocks(40, size=3)
"""Sequences 1 to 120, three a block."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty blocks in segments of six or seven."""
    made = tmp_path_factory.mktemp("journal")
    write(made, RELEASED, JournalSettings(segment_bytes=starts(RELEASED)[6]))
    assert len(segments(made)) == 7
    return made


def firsts(views: list[BlockView]) -> list[int]:
    return [view.header.first_sequence for view in views]


@given(first=st.none() | st.integers(0, 130), last=st.none() | st.integers(0, 130))
def test_a_range_gives_every_block_that_has_a_message_of_it(folder: Path, first: int | None, last: int | None) -> None:
    low, high = first or 0, 200 if last is None else last
    expected = [one.first_sequence for one in RELEASED if one.first_sequence + 2 >= low and one.first_sequence <= high]
    assert firsts(list(read_blocks(folder, first, last))) == (expected if low <= high else [])


@settings(max_examples=30)
@given(asked=st.lists(st.tuples(st.integers(0, 130), st.integers(0, 10)), max_size=6))
def test_a_reader_that_remembers_reads_the_same(folder: Path, asked: list[tuple[int, int]]) -> None:
    reader = JournalReader(folder)
    for first, more in asked:
        assert firsts(list(reader.blocks(first, first + more))) == firsts(
            list(read_blocks(folder, first, first + more))
        )
        assert reader.span() == (1, 121)


def test_a_segment_is_read_by_itself(folder: Path) -> None:
    assert firsts(list(read_blocks(segments(folder)[1], 22, 25))) == [22, 25]


def test_what_is_viewed_is_the_file_itself(folder: Path) -> None:
    view = next(read_blocks(folder))
    assert not view.events.flags.writeable
    assert not view.events.flags.owndata
    assert view.events["id"].tolist() == [1_000, 1_001, 2_000, 2_001, 3_000, 3_001]
    assert view.events.ctypes.data % 8 == 0


def test_views_outlive_the_reader_and_the_file(tmp_path: Path) -> None:
    write(tmp_path, RELEASED[:3])
    views = list(read_blocks(tmp_path))
    events = np.concatenate([view.events for view in views])
    segments(tmp_path)[0].unlink()
    assert np.array_equal(np.concatenate([view.events for view in views]), events)


def test_large_and_small_groups_of_blocks_are_mapped_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, RELEASED)
    expected = [bytes(view.raw) for view in read_blocks(tmp_path)]
    for first, most in ((1, 1), (1, 3_000), (1 << 30, 1 << 30)):
        monkeypatch.setattr(journal_segments, "_FIRST_GROUP_BYTES", first)
        monkeypatch.setattr(journal_segments, "_GROUP_BYTES", most)
        assert [bytes(view.raw) for view in read_blocks(tmp_path)] == expected


def test_a_block_is_found_without_reading_all_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released = blocks(600, size=3)
    write(tmp_path, released)
    reader = JournalReader(tmp_path)
    assert len(list(reader.blocks())) == 600
    walked = 0
    real = Segment.headers

    def counted(self: Segment, start: int = SEGMENT_HEADER_BYTES) -> object:
        nonlocal walked
        for found in real(self, start):
            walked += 1
            yield found

    monkeypatch.setattr(Segment, "headers", counted)
    assert firsts(list(reader.blocks(1_600, 1_600))) == [1_600]
    assert 0 < walked < 400, "an index leads near it"


def test_a_damaged_body_is_an_error_when_it_is_reached(tmp_path: Path) -> None:
    raw = bytearray(segment(RELEASED[:4]))
    raw[starts(RELEASED)[3] - 1] ^= 1
    path = tmp_path / segment_name(STRIPE, SITE, 1)
    path.write_bytes(raw)
    reading = read_blocks(tmp_path)
    assert firsts([next(reading), next(reading)]) == [1, 4]
    with pytest.raises(JournalError, match=f"{path}: byte {starts(RELEASED)[2]}: the checksum of the block's body"):
        next(reading)
    assert len(list(read_blocks(tmp_path, check=False))) == 4


def test_a_damaged_header_is_an_error_behind_the_blocks_before_it(tmp_path: Path) -> None:
    raw = bytearray(segment(RELEASED[:4]))
    raw[starts(RELEASED)[2] + 5] ^= 1
    (tmp_path / segment_name(STRIPE, SITE, 1)).write_bytes(raw)
    reading = read_blocks(tmp_path, check=False)
    assert firsts([next(reading), next(reading)]) == [1, 4]
    with pytest.raises(JournalError, match="the checksum of the block header"):
        next(reading)


@pytest.mark.parametrize("name", ["nowhere", "notes.txt"])
def test_what_is_no_journal_is_said(tmp_path: Path, name: str) -> None:
    (tmp_path / "notes.txt").write_text("not a segment")
    with pytest.raises(JournalError, match=name):
        list(read_blocks(tmp_path / name))


def test_an_empty_journal_has_no_span(tmp_path: Path) -> None:
    assert JournalReader(tmp_path).span() is None
    assert list(read_blocks(tmp_path)) == []
    assert segment_files(tmp_path) == []


def test_the_reader_is_light_enough_for_a_worker() -> None:
    code = (
        "import sys; import isocast.runtime.disk.journal_reader; print(sorted({n.split('.')[0] for n in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True)
    for heavy in ("asyncio", "socket", "cryptography", "rich", "cyclopts", "structlog", "prometheus_client"):
        assert f"'{heavy}'" not in done.stdout


# ---- while it is written


def test_a_cursor_gives_what_has_come_since(tmp_path: Path) -> None:
    with JournalCursor(tmp_path / "later") as cursor, journal(tmp_path / "later", TINY) as opened:
        assert cursor.read() == []
        got = []
        for one in RELEASED[:9]:
            opened.append(one)
            if one.token_number % 3 == 0:
                while views := cursor.read():
                    got += [view.released() for view in views]
                assert cursor.next_sequence == one.first_sequence + 3
        assert got == RELEASED[:9]
        assert cursor.read() == []


@pytest.mark.parametrize("first", [1, 2, 60, 61, 119, 120])
def test_a_cursor_begins_with_the_block_of_a_sequence(folder: Path, first: int) -> None:
    with JournalCursor(folder, first) as cursor:
        got: list[BlockView] = []
        while views := cursor.read():
            got += views
    assert firsts(got) == firsts(list(read_blocks(folder, first)))


def test_a_cursor_that_is_ahead_waits(tmp_path: Path) -> None:
    write(tmp_path, RELEASED[:2])
    with JournalCursor(tmp_path, 9) as cursor:
        assert cursor.read() == []
        write(tmp_path, RELEASED[2:4])
        assert firsts(cursor.read()) == [7, 10]


def test_an_unfinished_block_is_not_shown_until_it_is_whole(tmp_path: Path) -> None:
    whole = segment(RELEASED[:2])
    path = tmp_path / segment_name(STRIPE, SITE, 1)
    begin = starts(RELEASED)[1]
    path.write_bytes(whole[:begin])
    with JournalCursor(tmp_path) as cursor, path.open("ab", buffering=0) as file:
        assert firsts(cursor.read()) == [1]
        for at in range(begin, len(whole)):
            assert cursor.read() == []
            file.write(whole[at : at + 1])
        assert firsts(cursor.read()) == [4]


def test_a_writer_that_restarts_is_followed(tmp_path: Path) -> None:
    """Its unfinished block is cut off and written again; the cursor never saw it."""
    write(tmp_path, RELEASED[:2])
    with JournalCursor(tmp_path) as cursor:
        assert len(cursor.read()) == 2
        with segments(tmp_path)[0].open("ab") as file:
            file.write(b"ISOB" + bytes(range(60)))
        assert cursor.read() == []
        write(tmp_path, RELEASED[2:4])
        assert firsts(cursor.read()) == [7, 10]


def test_reader_and_writer_at_the_same_time(tmp_path: Path) -> None:
    """Every block arrives once, whole and in order, across many segments."""
    released = blocks(1_500, size=3)
    writer = Thread(target=write, args=(tmp_path, released, JournalSettings(segment_bytes=40_000)))
    got: list[int] = []
    with JournalCursor(tmp_path) as cursor:
        writer.start()
        is_done = False
        while True:
            views = cursor.read()
            got += firsts(views)
            if is_done and not views:
                break
            is_done = not writer.is_alive()
    writer.join()
    assert got == [one.first_sequence for one in released]


def test_a_cursor_that_retention_overtook_sees_the_jump(tmp_path: Path) -> None:
    write(tmp_path, RELEASED[:5], TINY)
    with JournalCursor(tmp_path) as cursor:
        assert firsts(cursor.read()) == [1]
        for path in segments(tmp_path)[:3]:
            path.unlink()
        expected = cursor.next_sequence
        assert firsts(cursor.read()) == [10]
        assert expected == 4


def test_a_segment_that_goes_while_it_is_looked_for_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, RELEASED[:3], TINY)
    files = segment_files(tmp_path)
    files[0].path.unlink()
    monkeypatch.setattr("isocast.runtime.disk.journal_reader.segment_files", lambda _: files)
    assert firsts(list(read_blocks(tmp_path))) == [4, 7]


def test_a_later_segment_proves_that_the_one_before_is_whole(tmp_path: Path) -> None:
    write(tmp_path, RELEASED[:2], TINY)
    os.truncate(segments(tmp_path)[0], SEGMENT_HEADER_BYTES + 100)
    with JournalCursor(tmp_path) as cursor, pytest.raises(JournalError, match="although a later one exists"):
        cursor.read()


def test_a_damaged_block_is_met_again_at_the_next_read(tmp_path: Path) -> None:
    raw = bytearray(segment([block(1, 1), block(2, 2)]))
    raw[-1] ^= 1
    (tmp_path / segment_name(STRIPE, SITE, 1)).write_bytes(raw)
    with JournalCursor(tmp_path) as cursor:
        for _ in range(2):
            with pytest.raises(JournalError, match="checksum"):
                cursor.read()
