"""After a crash: every whole block is kept, an unfinished one is cut off, and damage is never cut off silently."""

import os
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from random import Random

import pytest
from tests.runtime.disk.journals import TINY, journal, segments, starts, write
from tests.wire.journal_samples import SITE, STRIPE, block, blocks, segment

from isocast.cli.main import main
from isocast.runtime.disk.journal_reader import read_blocks
from isocast.runtime.disk.journal_segments import TornEnd
from isocast.runtime.disk.journal_verify import verify
from isocast.terms.errors import JournalError
from isocast.wire.journal import BLOCK_HEADER_BYTES, segment_name

RELEASED = [*blocks(2), block(3, 5, (None, b"ten bytes!"))]
WHOLE = segment(RELEASED)
STARTS = starts(RELEASED)

WRITING = textwrap.dedent(
    """
    import os, sys
    from pathlib import Path
    from tests.runtime.disk.journals import journal
    from tests.wire.journal_samples import block
    from isocast.runtime.market.model import JournalSettings

    payload = os.urandom(1_300)
    with journal(Path(sys.argv[1]), JournalSettings(segment_bytes=8 << 20)) as opened:
        position = opened.position
        cut = opened.cut.removed_bytes if opened.cut else 0
        os.write(1, f"{position.next_sequence} {cut}\\n".encode())
        token, sequence = position.released, position.next_sequence
        while True:
            token += 1
            opened.append(block(token, sequence, (payload,) * 600))
            sequence += 600
            os.write(1, f"{sequence} 0\\n".encode())
    """
)


def test_kill_9_loses_nothing_that_was_appended_and_leaves_whole_blocks(tmp_path: Path) -> None:
    """A real process is killed while it writes, again and again; each start goes on exactly where the journal ends."""
    random = Random(11)
    sequence = 1
    torn = 0
    for _ in range(6):
        with subprocess.Popen(
            [sys.executable, "-c", WRITING, str(tmp_path)],
            stdout=subprocess.PIPE,
            env={"PYTHONPATH": ":".join(sys.path)},
        ) as child:
            assert child.stdout is not None
            started, cut = map(int, child.stdout.readline().split())
            assert started >= sequence, "what append() returned for is there"
            torn += cut > 0
            sequence = started
            for _ in range(random.randrange(1, 12)):
                sequence = int(child.stdout.readline().split()[0])
            child.kill()
            # The block may have been written before its acknowledgement; it was not, if it is in the pipe.
            for line in child.stdout.read().splitlines():
                sequence = int(line.split()[0])
        report = verify(tmp_path)
        assert report.is_sound, report.faults[:1]
        assert report.first_sequence == 1
        assert report.next_sequence is not None
        assert report.next_sequence >= sequence
        assert report.next_sequence <= sequence + 600, "at most the block that was being written"
    with journal(tmp_path) as opened:
        assert opened.position.next_sequence >= sequence


@pytest.mark.parametrize("place", range(3), ids=["first", "middle", "last"])
def test_a_tail_torn_at_any_byte_is_cut_back_to_the_last_whole_block(tmp_path: Path, place: int) -> None:
    path = tmp_path / segment_name(STRIPE, SITE, 1)
    begin, end = STARTS[place], STARTS[place + 1]
    for length in range(begin, end, 1 if end == STARTS[-1] else 11):
        path.write_bytes(WHOLE[:length])
        assert [view.header.token_number for view in read_blocks(tmp_path)] == list(range(1, place + 1))
        report = verify(tmp_path)
        assert report.is_sound
        assert report.unfinished_bytes == length - begin
        with journal(tmp_path) as opened:
            if length == begin:
                assert opened.cut is None
            else:
                assert opened.cut == (path, begin, length - begin)
            assert path.stat().st_size == begin
            assert opened.position.released == place
            for one in RELEASED[place:]:
                opened.append(one)
        assert path.read_bytes() == WHOLE


def test_what_was_cut_is_said() -> None:
    assert str(TornEnd(Path("a.isoj"), 640, 17)) == "a.isoj: cut back to byte 640: 17 bytes of an unfinished block"


def test_a_segment_that_was_only_begun_is_gone_on_with(tmp_path: Path) -> None:
    """The first block of a new segment was torn: the position is that of the segment before."""
    write(tmp_path, RELEASED, TINY)
    last = segments(tmp_path)[-1]
    os.truncate(last, 100)
    with journal(tmp_path, TINY) as opened:
        assert opened.position.released == 2
        assert opened.cut == (last, 64, 36)
        opened.append(RELEASED[2])
    assert [path.name for path in segments(tmp_path)] == [segment_name(STRIPE, SITE, first) for first in (1, 3, 5)]
    assert [view.released() for view in read_blocks(tmp_path)] == RELEASED


@pytest.mark.parametrize("remains", [b"", b"ISOC", bytes(64), bytes(5_000)], ids=["nothing", "half", "zeros", "many"])
def test_a_segment_without_a_header_is_removed(tmp_path: Path, remains: bytes) -> None:
    write(tmp_path, RELEASED[:2], TINY)
    empty = tmp_path / segment_name(STRIPE, SITE, 5)
    empty.write_bytes(remains)
    with journal(tmp_path, TINY) as opened:
        assert not empty.exists()
        assert opened.cut == (empty, 0, len(remains))
        opened.append(RELEASED[2])
    assert [view.released() for view in read_blocks(tmp_path)] == RELEASED


def test_half_a_new_segment_is_swept_away(tmp_path: Path) -> None:
    write(tmp_path, RELEASED[:2])
    leftover = tmp_path / (segment_name(STRIPE, SITE, 5) + ".new")
    leftover.write_bytes(b"ISOC")
    assert len(list(read_blocks(tmp_path))) == 2
    write(tmp_path, RELEASED[2:])
    assert not leftover.exists()


# ---- power


def test_zeros_where_a_block_should_begin_are_cut_off(tmp_path: Path) -> None:
    path = tmp_path / segment_name(STRIPE, SITE, 1)
    path.write_bytes(WHOLE + bytes(4_096))
    assert len(list(read_blocks(tmp_path))) == 3
    assert verify(tmp_path).is_sound
    with journal(tmp_path) as opened:
        assert opened.cut == (path, len(WHOLE), 4_096)
    assert path.read_bytes() == WHOLE


def test_a_last_block_whose_last_sectors_are_zeros_is_cut_off(tmp_path: Path) -> None:
    released = [*blocks(2), block(3, 5, (None,) * 30)]
    raw = segment(released)
    path = tmp_path / segment_name(STRIPE, SITE, 1)
    sector = (len(raw) - 1) // 512 * 512
    path.write_bytes(raw[:sector] + bytes(len(raw) - sector))
    with journal(tmp_path) as opened:
        assert opened.cut == (path, starts(released)[2], len(raw) - starts(released)[2])
        assert opened.position.released == 2


# ---- damage


@pytest.mark.parametrize("at", range(STARTS[0], STARTS[-1], 23))
def test_a_flipped_bit_is_an_error_and_nothing_is_cut(tmp_path: Path, at: int) -> None:
    damaged = bytearray(WHOLE)
    damaged[at] ^= 1 << at % 8
    path = tmp_path / segment_name(STRIPE, SITE, 1)
    path.write_bytes(damaged)
    begin = max(start for start in STARTS if start <= at)
    with pytest.raises(JournalError) as caught:
        journal(tmp_path)
    assert (caught.value.file, caught.value.offset) == (str(path), begin)
    assert path.read_bytes() == damaged
    advice = shlex.split(str(caught.value).partition("run: ")[2])
    assert advice == ["isocast", "journal", "repair", str(tmp_path)]
    assert main(advice[1:]) == 0
    assert path.with_name(f"{path.name}.damaged").read_bytes() == damaged
    with journal(tmp_path) as opened:
        assert opened.position.released == STARTS.index(begin)


def test_a_damaged_header_of_the_newest_segment_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / segment_name(STRIPE, SITE, 1)
    path.write_bytes(WHOLE[:20] + b"\xff" + WHOLE[21:])
    with pytest.raises(JournalError, match="byte 0: the checksum of the segment header"):
        journal(tmp_path)


def test_an_older_segment_that_ends_within_a_block_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, RELEASED, TINY)
    os.truncate(segments(tmp_path)[1], 64 + BLOCK_HEADER_BYTES)
    os.truncate(segments(tmp_path)[2], 64)
    with pytest.raises(JournalError, match="although a later one exists"):
        journal(tmp_path)
    with pytest.raises(JournalError, match="although a later one exists"):
        list(read_blocks(tmp_path))
    assert not verify(tmp_path).is_sound


def test_a_renamed_segment_is_an_error(tmp_path: Path) -> None:
    (tmp_path / segment_name(STRIPE, SITE, 2)).write_bytes(WHOLE)
    with pytest.raises(JournalError, match="was it renamed"):
        journal(tmp_path)
