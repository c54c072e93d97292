"""Writing a journal: what is appended stays, in order, once, and a full disk stops it without harm."""

import errno
import os
import resource
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.runtime.disk.journals import TINY, journal, segments, starts, write
from tests.wire.journal_samples import SITE, STRIPE, block, blocks, segment

from isocast.ring.effects import Release
from isocast.ring.ledger import Checkpoint, LogEntry
from isocast.ring.storage import SiteState
from isocast.runtime.disk.journal import Journal, ReleasedPosition, released_block
from isocast.runtime.disk.journal_reader import read_blocks
from isocast.runtime.disk.journal_verify import verify
from isocast.runtime.market.model import Durability, JournalSettings
from isocast.terms.errors import JournalError, JournalFull, LocalProtocolError
from isocast.terms.ids import Epoch, server_id, source_id
from isocast.wire.journal import segment_name
from isocast.wire.journal_blocks import ReleasedBlock
from isocast.wire.packets import NO_DIGEST, NO_NONCE, Data, Run, Token

EPOCH = Epoch(4, server_id(2))


def entry(token_number: int, count: int) -> LogEntry:
    """A token in the log, its first sequence 8."""
    messages = tuple(
        [Data(STRIPE, EPOCH, source_id(1), number, 1, b"sealed %d" % number) for number in range(1, count + 1)]
    )
    run = Run(source_id(1), 1, count, NO_DIGEST)
    token = Token(STRIPE, EPOCH, SITE, token_number, 40, 8, (run,), (), (), NO_NONCE, NO_NONCE, 0, 0, (), NO_DIGEST)
    return LogEntry(token, messages, bytes(range(16)))


def read(folder: Path) -> list[ReleasedBlock]:
    return [view.released() for view in read_blocks(folder)]


def test_what_is_appended_is_read_again(tmp_path: Path) -> None:
    released = blocks(5)
    write(tmp_path, released)
    assert read(tmp_path) == released
    assert segments(tmp_path)[0].read_bytes() == segment(released)


def test_a_closed_journal_is_continued(tmp_path: Path) -> None:
    released = blocks(6)
    for one in released:
        with journal(tmp_path) as opened:
            assert opened.cut is None
            assert opened.position.next_sequence == one.first_sequence
            opened.append(one)
    assert segments(tmp_path)[0].read_bytes() == segment(released)


def test_segments_begin_when_the_present_one_is_long_enough(tmp_path: Path) -> None:
    released = blocks(7)
    length = starts(released)[2]
    write(tmp_path, released, JournalSettings(segment_bytes=length))
    assert [path.name for path in segments(tmp_path)] == [segment_name(STRIPE, SITE, first) for first in (1, 5, 9, 13)]
    assert [path.read_bytes() for path in segments(tmp_path)] == [segment(released[at : at + 2]) for at in (0, 2, 4, 6)]
    assert read(tmp_path) == released


def test_a_block_longer_than_a_segment_gets_one_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, blocks(3), TINY)
    assert len(segments(tmp_path)) == 3


# ---- how far the site has released


def test_an_empty_journal_has_released_nothing(tmp_path: Path) -> None:
    with journal(tmp_path) as opened:
        assert opened.position == ReleasedPosition(0, 0, 1, 0)


@pytest.mark.parametrize("settings", [JournalSettings(), TINY], ids=["one-segment", "many"])
def test_the_position_is_that_of_the_last_block(tmp_path: Path, settings: JournalSettings) -> None:
    released = [block(4, 1, (None,) * 2), block(9, 3, (None,) * 2, count=5), block(9, 5, (None,) * 2, place=2, count=5)]
    expected = [(4, 0, 3), (8, 2, 5), (8, 4, 7)]
    for one, position in zip(released, expected, strict=True):
        with journal(tmp_path, settings) as opened:
            opened.append(one)
            assert opened.position[:3] == position
        with journal(tmp_path, settings) as opened:
            assert opened.position[:3] == position
            assert (opened.position.token_number, opened.position.epoch) == (one.token_number, one.epoch)
    with journal(tmp_path, settings) as opened:
        opened.append(block(9, 7, place=4, count=5))
        assert opened.position[:3] == (9, 0, 8)


def test_the_position_is_what_the_simulated_disk_says(tmp_path: Path) -> None:
    """`SiteState.release` and the journal must agree, or a restart releases twice, or never."""
    log = entry(3, 3)
    state = SiteState(Checkpoint())
    with journal(tmp_path) as opened:
        for at in range(3):
            release = Release(log.token.epoch, log, 8 + at, log.messages[at : at + 1], due=90)
            state.release(release)
            opened.append(released_block(release, 95, 5))
            assert (opened.position.released, opened.position.offset) == (state.released, state.offset)
    view = list(read_blocks(tmp_path))[1]
    assert (view.header.place, view.header.token_count, view.header.due, view.header.released_at) == (1, 3, 90, 95)
    assert view.messages() == [(log.messages[1].sender, 2, log.messages[1].digest, log.messages[1].payload)]


@pytest.mark.parametrize("uncertified", [False, True])
def test_a_block_says_whether_a_majority_stood_behind_it(tmp_path: Path, uncertified: bool) -> None:  # noqa: FBT001
    log = entry(3, 1)
    with journal(tmp_path) as opened:
        opened.append(released_block(Release(log.token.epoch, log, 8, log.messages, 90, uncertified), 95, 5))
    assert [view.header.uncertified for view in read_blocks(tmp_path)] == [uncertified]


def test_opened_payloads_are_kept_and_the_digest_is_the_rings() -> None:
    log = entry(3, 1)
    release = Release(log.token.epoch, log, 8, log.messages, due=90)
    made = released_block(release, 95, 5, [b"opened"])
    assert made.messages == [(log.messages[0].sender, 1, log.messages[0].digest, b"opened")]
    with pytest.raises(ValueError, match="shorter"):
        released_block(release, 95, 5, [])


@pytest.mark.parametrize(
    "again",
    [block(3, 5, (None,) * 2), block(2, 3), block(4, 7, (None,), count=3), block(4, 8, (None,), place=1, count=3)],
    ids=["same", "earlier", "same-place", "place-before"],
)
def test_nothing_is_released_twice(tmp_path: Path, again: ReleasedBlock) -> None:
    released = [*blocks(3), block(4, 7, (None,) * 2, count=3)]
    write(tmp_path, released)
    with journal(tmp_path) as opened:
        with pytest.raises(LocalProtocolError, match="has been released"):
            opened.append(again)
        opened.append(block(4, 9, (None,), place=2, count=3))
    assert [one.first_sequence for one in read(tmp_path)] == [1, 3, 5, 7, 9]


def test_gaps_and_overlaps_are_written_and_counted(tmp_path: Path) -> None:
    """A journal says what was released, not what should have been; names of segments grow all the same."""
    with journal(tmp_path, TINY) as opened:
        for one in (block(1, 10), block(2, 12), block(3, 11), block(4, 9), block(5, 13)):
            opened.append(one)
        assert (opened.counters.gaps, opened.counters.overlaps) == (2, 2)
    assert [path.name for path in segments(tmp_path)] == [segment_name(STRIPE, SITE, first) for first in (10, 12, 13)]
    assert [one.token_number for one in read(tmp_path)] == [1, 2, 3, 4, 5]


def test_it_counts_what_it_writes(tmp_path: Path) -> None:
    released = [*blocks(3), block(4, 7, (b"opaque",))]
    with journal(tmp_path, TINY) as opened:
        for one in released:
            opened.append(one)
        counters = opened.counters
    assert (counters.blocks, counters.messages, counters.events, counters.segments) == (4, 7, 12, 4)
    assert counters.bytes == starts(released)[-1] - starts(released)[0]
    assert (counters.gaps, counters.overlaps) == (0, 0)


# ---- who may write


def test_one_process_writes_a_journal(tmp_path: Path) -> None:
    with journal(tmp_path), pytest.raises(JournalError, match="another process writes this journal"):
        journal(tmp_path)
    journal(tmp_path).close()


def test_a_folder_holds_one_journal(tmp_path: Path) -> None:
    write(tmp_path, blocks(1))
    with pytest.raises(JournalError, match=f"holds the journal of stripe {STRIPE} of site {SITE}"):
        Journal.open(tmp_path, STRIPE, SITE + 1)
    (tmp_path / segment_name(STRIPE + 1, SITE, 50)).write_bytes(b"")
    with pytest.raises(JournalError, match="several journals"):
        journal(tmp_path)


def test_a_place_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(JournalError, match="file/journal: cannot be used"):
        journal(tmp_path / "file" / "journal")


def test_a_closed_journal_takes_nothing(tmp_path: Path) -> None:
    opened = journal(tmp_path)
    opened.close()
    opened.close()
    with pytest.raises(LocalProtocolError, match="closed"):
        opened.append(block(1, 1))


@pytest.mark.parametrize(
    "values", [{"segment_bytes": 0}, {"keep_bytes": -1}, {"keep_seconds": -1}, {"durability": "never"}]
)
def test_settings_are_checked(values: dict[str, int]) -> None:
    with pytest.raises(LocalProtocolError):
        JournalSettings(**values)  # type: ignore[arg-type]


# ---- durability


def test_power_syncs_many_blocks_at_once_when_it_is_asked_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A site releases without waiting for the disk, and syncs before its log forgets."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda fd: synced.append(os.fstat(fd).st_size))
    released = blocks(4)
    ends = starts(released)
    with journal(tmp_path, JournalSettings(durability=Durability.POWER)) as opened:
        for one in released[:3]:
            opened.append(one)
        assert synced == ends[:1], "the header"
        opened.sync()
        opened.sync()
        assert synced == [ends[0], ends[3]]
        opened.append(released[3])
    assert synced == [ends[0], ends[3], ends[4]], "and at the end"


def test_power_syncs_a_segment_before_the_next_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fdatasync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink().name))
    write(tmp_path, blocks(2), JournalSettings(segment_bytes=1, durability=Durability.POWER))
    first, second = [path.name for path in segments(tmp_path)]
    assert synced == [f"{first}.new", first, f"{second}.new", second]


def test_process_never_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(_: int) -> None:
        raise AssertionError

    monkeypatch.setattr(os, "fdatasync", never)
    monkeypatch.setattr(os, "fsync", never)
    write(tmp_path, blocks(3), TINY)


# ---- full disks


def test_a_disk_that_fails_half_way_leaves_whole_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released = blocks(4)
    write(tmp_path, released[:2])
    whole = segments(tmp_path)[0].read_bytes()
    real = os.pwritev

    def half(fd: int, pieces: Sequence[bytes], offset: int) -> int:
        return real(fd, [b"".join(pieces)[:100]], offset)

    def full(_fd: int, _rest: object, _offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with journal(tmp_path) as opened:
        before = opened.position
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwritev", half)
            patched.setattr(os, "pwrite", full)
            for _ in range(2):
                with pytest.raises(JournalFull, match="No space left on device"):
                    opened.append(released[2])
        assert opened.position == before
        assert segments(tmp_path)[0].read_bytes() == whole
        opened.append(released[2])
        opened.append(released[3])
    assert read(tmp_path) == released


def test_a_write_in_pieces_is_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, real_piece = os.pwritev, os.pwrite
    monkeypatch.setattr(os, "pwritev", lambda fd, pieces, at: real(fd, [b"".join(pieces)[:10]], at))
    monkeypatch.setattr(os, "pwrite", lambda fd, rest, at: real_piece(fd, rest[:97], at))
    released = blocks(3)
    write(tmp_path, released, TINY)
    assert read(tmp_path) == released


def test_after_a_failed_sync_nothing_more_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released = blocks(2)

    def broken(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with journal(tmp_path, JournalSettings(durability=Durability.POWER)) as opened:
        opened.append(released[0])
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", broken)
            with pytest.raises(JournalFull, match="Input/output error"):
                opened.sync()
        with pytest.raises(JournalFull, match="start the process again"):
            opened.append(released[1])
    assert read(tmp_path) == released[:1]


def test_a_segment_that_cannot_be_begun_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released = blocks(3)

    def full(_fd: int, _pieces: Sequence[bytes], _offset: int) -> int:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    with journal(tmp_path, TINY) as opened:
        opened.append(released[0])
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwritev", full)
            with pytest.raises(JournalFull, match="cannot be begun"):
                opened.append(released[1])
        assert [path.name for path in tmp_path.iterdir()] == [segment_name(STRIPE, SITE, 1)]
        opened.append(released[1])
    assert read(tmp_path) == released[:2]


def test_a_device_that_cannot_even_be_cut_back_stops_for_good(tmp_path: Path) -> None:
    opened = journal(tmp_path)
    opened.append(block(1, 1))
    device = os.open("/dev/full", os.O_WRONLY)
    os.dup2(device, opened._fd)  # noqa: SLF001  as if the device under it had filled up
    os.close(device)
    with pytest.raises(JournalFull, match="No space left on device"):
        opened.append(block(2, 2))
    with pytest.raises(JournalFull, match="start the process again"):
        opened.append(block(2, 2))
    opened.close()
    assert [one.token_number for one in read(tmp_path)] == [1]


FILLING = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from tests.runtime.disk.journals import journal
    from tests.wire.journal_samples import block
    from isocast.terms.errors import JournalFull
    {limit}
    with journal(Path(sys.argv[1])) as opened:
        token = opened.position.released
        try:
            while token < 10_000:
                token += 1
                opened.append(block(token, token, (None,)))
        except JournalFull as full:
            print(full)
            print(opened.position.next_sequence)
    """
)


def fill(folder: Path, limit: str, command: Sequence[str] = ()) -> tuple[str, int]:
    """Write until it is full, in a process of its own; what it said, and the sequence after the last block."""
    done = subprocess.run(
        [*command, sys.executable, "-c", FILLING.format(limit=limit), str(folder)],
        capture_output=True,
        encoding="utf-8",
        check=False,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert done.stderr == ""
    said, position = done.stdout.splitlines()
    return said, int(position)


def test_a_limit_of_the_kernel_stops_it_between_blocks(tmp_path: Path) -> None:
    """The kernel writes the part that fits and then refuses: the block that it tore is taken back."""
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (30_001, {resource.RLIM_INFINITY}))"
    said, after = fill(tmp_path, limit)
    assert "File too large" in said
    assert after > 2
    report = verify(tmp_path)
    assert report.is_sound
    assert (report.next_sequence, report.unfinished_bytes) == (after, 0)
    with journal(tmp_path) as opened:
        assert opened.position.next_sequence == after
        opened.append(block(after, after))
    assert verify(tmp_path).is_sound


def test_a_full_file_system_stops_it_between_blocks(tmp_path: Path) -> None:
    """A real one, of 64 KiB, where an ordinary user may mount one in a namespace of their own."""
    script = 'mount -t tmpfs -o size=64k none "$1" && shift && "$@" && cp -r "$0"/. "$KEEP"'
    small, keep = tmp_path / "small", tmp_path / "keep"
    small.mkdir()
    keep.mkdir()
    mounting = ["unshare", "-Urm", "env", f"KEEP={keep}", "sh", "-c", script, str(small), str(small)]
    possible = subprocess.run([*mounting, "true"], capture_output=True, check=False).returncode == 0
    if not possible:
        pytest.skip("no user namespaces here")
    said, after = fill(small, "", mounting)
    assert "No space left on device" in said
    assert after > 2
    report = verify(keep)
    assert report.is_sound
    assert (report.next_sequence, report.unfinished_bytes) == (after, 0)
