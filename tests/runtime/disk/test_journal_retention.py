"""Retention: whole segments go, oldest first, by size and by age; the newest never goes."""

import os
from pathlib import Path

import pytest
from tests.runtime.disk.journals import TINY, journal, segments, starts, write
from tests.wire.journal_samples import DELAY, PERIOD, SITE, STRIPE, blocks

from isocast.runtime.disk.journal import prune
from isocast.runtime.disk.journal_reader import JournalReader, read_blocks
from isocast.runtime.disk.journal_record import record_path
from isocast.runtime.disk.journal_verify import verify
from isocast.runtime.market.model import JournalSettings
from isocast.terms.instants import SECOND

RELEASED = blocks(6)
LENGTH = starts(RELEASED)[1]


def kept(folder: Path) -> list[int]:
    """The tokens that are left."""
    return [view.header.token_number for view in read_blocks(folder)]


@pytest.mark.parametrize(
    "keep_bytes, tokens",
    [(0, 6), (6 * LENGTH, 6), (6 * LENGTH - 1, 5), (3 * LENGTH, 3), (LENGTH, 1), (1, 1)],
)
def test_the_oldest_go_while_all_together_are_too_long(tmp_path: Path, keep_bytes: int, tokens: int) -> None:
    write(tmp_path, RELEASED, TINY)
    before = segments(tmp_path)
    gone = prune(tmp_path, keep_bytes=keep_bytes, keep_seconds=0, now=1 << 62)
    assert gone == before[: 6 - tokens]
    assert kept(tmp_path) == list(range(7 - tokens, 7))
    assert verify(tmp_path).is_sound


def test_a_segment_goes_when_its_newest_block_is_too_old(tmp_path: Path) -> None:
    write(tmp_path, RELEASED, TINY)
    created = [one.released_at for one in RELEASED]
    assert prune(tmp_path, keep_bytes=0, keep_seconds=10, now=created[1] + 10 * SECOND) == []
    prune(tmp_path, keep_bytes=0, keep_seconds=10, now=created[1] + 10 * SECOND + 1)
    assert kept(tmp_path) == [2, 3, 4, 5, 6]
    prune(tmp_path, keep_bytes=0, keep_seconds=10, now=1 << 62)
    assert kept(tmp_path) == [6], "the newest stays, however old it is"


def test_either_limit_is_enough(tmp_path: Path) -> None:
    write(tmp_path, RELEASED, TINY)
    prune(tmp_path, keep_bytes=5 * LENGTH, keep_seconds=10, now=RELEASED[3].released_at + 10 * SECOND + 1)
    assert kept(tmp_path) == [4, 5, 6]


def test_a_journal_keeps_its_limits_by_itself(tmp_path: Path) -> None:
    with journal(tmp_path, JournalSettings(segment_bytes=1, keep_bytes=2 * LENGTH + 100)) as opened:
        for one in RELEASED:
            opened.append(one)
        assert (opened.counters.pruned, opened.counters.segments) == (3, 6)
    assert kept(tmp_path) == [4, 5, 6], "a segment that has just begun has only its header"
    assert JournalReader(tmp_path).span() == (7, 13)


def test_a_quiet_journal_ages_too(tmp_path: Path) -> None:
    with journal(tmp_path, JournalSettings(segment_bytes=1, keep_seconds=60)) as opened:
        for one in RELEASED:
            opened.append(one)
        assert opened.prune(7 * PERIOD + DELAY) == []
        gone = opened.prune(100 * PERIOD)
        assert (len(gone), opened.counters.pruned) == (5, 5)
        assert kept(tmp_path) == [6]
        opened.append(blocks(1, first_token=7, first_sequence=13)[0])
    with journal(tmp_path) as opened:
        assert opened.position.released == 7


def test_nothing_is_looked_at_when_everything_is_kept(tmp_path: Path) -> None:
    write(tmp_path, RELEASED, TINY)
    with journal(tmp_path) as opened:
        assert opened.prune(1 << 62) == []
    assert len(kept(tmp_path)) == 6


def test_a_failure_of_retention_does_not_stop_the_journal(tmp_path: Path) -> None:
    with journal(tmp_path, JournalSettings(segment_bytes=1, keep_seconds=1)) as opened:
        opened.append(RELEASED[0])
        opened.append(RELEASED[1])
        segments(tmp_path)[1].write_bytes(b"damaged")
        opened.append(RELEASED[2])
        assert opened.counters.prune_failures == 1
        assert opened.position.released == 3


def test_what_goes_is_written_down_on_the_disk_before_it_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, RELEASED, TINY)
    done: list[str] = []
    fsync, unlink = os.fsync, Path.unlink

    def syncing(fd: int) -> None:
        done.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        fsync(fd)

    def unlinking(path: Path, missing_ok: bool = False) -> None:  # noqa: FBT001, FBT002 - as pathlib has it
        done.append(f"gone {path.name}")
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(Path, "unlink", unlinking)
    (gone,) = prune(tmp_path, keep_bytes=5 * LENGTH, keep_seconds=0, now=0, sync=True)
    name = record_path(tmp_path, STRIPE, SITE).name
    assert done == [f"{name}.new", tmp_path.name, f"gone {gone.name}"]
