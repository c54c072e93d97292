"""A disk that takes no more: an error and a stop, not a corruption."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from copy import copy
from pathlib import Path

import pytest
from tests.runtime.disk.disks import (
    ENTRY,
    LARGE,
    POWER,
    SMALL,
    Author,
    blank_site,
    folded,
    open_site,
    quick_directory,
    segment_paths,
    state_of,
)

from isocast.ring.effects import EntryAppended
from isocast.runtime.disk.store_marker import StoreRole, read_marker
from isocast.terms.errors import IsocastError, StoreError, StoreFull


@pytest.fixture
def directory() -> Iterator[Path]:
    with quick_directory() as name:
        yield Path(name) / "london"


class FullDisk:
    """A writev that takes some bytes and then none."""

    def __init__(self, room: int, number: int) -> None:
        self.room = room
        self.number = number
        self._write = os.write

    def writev(self, fd: int, buffers: Sequence[bytes]) -> int:
        return self.write(fd, b"".join(buffers))

    def write(self, fd: int, data: bytes | memoryview) -> int:
        if not self.room:
            raise OSError(self.number, os.strerror(self.number))
        done = self._write(fd, data[: self.room])
        self.room -= done
        return done


@pytest.mark.parametrize("room", [0, 1, 40, 150])
@pytest.mark.parametrize(
    "number, kind", [(errno.ENOSPC, StoreFull), (errno.EDQUOT, StoreFull), (errno.EIO, StoreError)]
)
def test_a_disk_that_takes_no_more_keeps_what_it_has(
    directory: Path, monkeypatch: pytest.MonkeyPatch, room: int, number: int, kind: type[IsocastError]
) -> None:
    author = Author()
    store = open_site(directory, LARGE)
    records = [author.record(ENTRY) for _ in range(3)]
    store.append_many(records)
    length = segment_paths(directory)[0].stat().st_size
    disk = FullDisk(room, number)
    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", disk.writev)
        patch.setattr(os, "write", disk.write)
        with pytest.raises(kind, match=r"segment-00000001\.log: .*") as caught:
            store.append(author.record(ENTRY))
    assert os.strerror(number) in str(caught.value)
    assert segment_paths(directory)[0].stat().st_size == length
    with pytest.raises(StoreError, match="stopped at a write that failed"):
        store.append(EntryAppended(author.chain.entries[3]))
    store.close()
    marker = read_marker(directory, StoreRole.SITE)
    assert marker is not None
    assert not marker.closed
    assert state_of(directory) == folded(blank_site(), records, 0)


def test_a_disk_that_is_full_when_a_segment_begins_keeps_the_one_before(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    author, records = Author(), []
    store = open_site(directory, SMALL)
    while segment_paths(directory)[-1].stat().st_size < SMALL.segment_bytes:
        records.append(author.record(ENTRY))
        store.append(records[-1])
    disk = FullDisk(20, errno.ENOSPC)
    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", disk.writev)
        patch.setattr(os, "write", disk.write)
        with pytest.raises(StoreFull, match=r"segment-00000002\.log: the disk takes no more"):
            store.append(author.record(ENTRY))
    store.close()
    assert [path.name for path in segment_paths(directory)] == ["segment-00000001.log"]
    assert state_of(directory, SMALL) == folded(blank_site(), records, 0)


def test_a_sync_that_fails_is_not_tried_again(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel forgets what it could not write: a second fdatasync would succeed and mean nothing."""

    def broken(_fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    author = Author()
    store = open_site(directory, POWER)
    records = [author.record(ENTRY)]
    store.append(records[0])
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", broken)
        with pytest.raises(StoreError, match="cannot be written: Input/output error"):
            store.append(author.record(ENTRY))
    with pytest.raises(StoreError, match="stopped"):
        store.append(EntryAppended(author.chain.entries[1]))
    store.close()
    assert state_of(directory, POWER, "boot 2") == folded(blank_site(), records, 0)


_LIMITED = """
import resource, sys
from copy import copy
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.runtime.disk.disks import Author, open_site
from isocast.runtime.market.model import StoreSettings
from isocast.terms.errors import StoreFull
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
author, store = Author(payload_bytes=1_300), open_site(Path(sys.argv[1]), StoreSettings())
try:
    for number in range(1, 1_000):
        store.append(author.record(("entry", 9, 0)))
        print(number, flush=True)
except StoreFull as error:
    print(error)
"""


def test_a_limit_of_the_kernel_is_a_full_disk_too(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED, str(tmp_path), str(root)], capture_output=True, text=True, check=True
    )
    *acknowledged, last = done.stdout.splitlines()
    assert "the disk takes no more (File too large): make room, then start again" in last
    assert state_of(tmp_path).held == len(acknowledged) > 3
    assert segment_paths(tmp_path)[0].stat().st_size < 100_000


def test_an_interrupted_write_stops_the_store(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C between two parts of a record must not leave half of it before the next one."""
    author = Author()
    store = open_site(directory, LARGE)
    records = [author.record(ENTRY)]
    store.append(records[0])

    def interrupted(fd: int, buffers: Sequence[bytes]) -> int:
        os.write(fd, buffers[0])
        raise KeyboardInterrupt(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.append(author.record(ENTRY))
    with pytest.raises(StoreError, match="stopped"):
        store.append(EntryAppended(author.chain.entries[1]))
    store.abandon()
    assert state_of(directory) == folded(blank_site(), records, 0)


@pytest.mark.parametrize(
    "error", [StoreError("a file", "a rule", 7), StoreError("a file", "a rule"), StoreFull("a", "b")]
)
def test_errors_pass_between_processes_with_all_their_parts(error: StoreError | StoreFull) -> None:
    again = copy(error)
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
