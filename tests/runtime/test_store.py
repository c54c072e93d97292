"""Directories of state: torn ends are cut, damage stops the node, a full disk corrupts nothing."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.runtime.disks import (
    SITE,
    SMALL,
    Author,
    Step,
    blank_site,
    folded,
    open_site,
    quick_directory,
    segment_paths,
)

from isocast.ring.effects import EntryAppended, Record
from isocast.ring.storage import SiteState
from isocast.runtime.market import Durability
from isocast.runtime.site_store import open_site_store
from isocast.runtime.store_marker import Role, StoreIdentity, read_marker
from isocast.runtime.store_settings import StoreSettings
from isocast.terms.errors import IsocastError, StoreError, StoreFull

ENTRY: Step = ("entry", 2, 0)
SHORT: Step = ("entry", 1, 0)
POWER = StoreSettings(Durability.POWER, segment_bytes=4_096, keep_bytes=8_192)
LARGE = StoreSettings()


@pytest.fixture
def directory() -> Iterator[Path]:
    with quick_directory() as name:
        yield Path(name) / "london"


def fill(
    directory: Path, *steps: Step, settings: StoreSettings = LARGE, payload_bytes: int = 40
) -> tuple[list[Record], list[int]]:
    """Write these records, as a process that is killed then; and say how long the newest segment was after each."""
    author, records, lengths = Author(payload_bytes), [], []
    store = open_site(directory, settings)
    for step in steps:
        records.append(author.record(step))
        store.append(records[-1])
        lengths.append(segment_paths(directory)[-1].stat().st_size)
    store.abandon()
    return records, lengths


def state_of(directory: Path, settings: StoreSettings = LARGE, boot: str = "boot 1") -> SiteState:
    with open_site(directory, settings, boot=boot) as store:
        return store.state


# ---- torn ends


@pytest.mark.parametrize("last", [SHORT, ("promise", 1, 0), ("ring", 1, 1)], ids=["entry", "promise", "ring"])
def test_a_record_that_is_torn_anywhere_is_cut_off(directory: Path, last: Step) -> None:
    """The ring's two frames are one record: it is there with its suffix, or neither is."""
    records, lengths = fill(directory, SHORT, SHORT, last, payload_bytes=1)
    path = segment_paths(directory)[0]
    marker = directory / "identity.json"
    whole, unclosed = path.read_bytes(), marker.read_bytes()
    for length in range(lengths[-2], lengths[-1]):
        path.write_bytes(whole[:length])
        marker.write_bytes(unclosed)
        with open_site(directory, LARGE) as store:
            assert store.state == folded(blank_site(), records[:-1], 0)
            assert store.counters.torn_bytes == length - lengths[-2]
        assert path.stat().st_size == lengths[-2]
    path.write_bytes(whole)
    marker.write_bytes(unclosed)
    assert state_of(directory) == folded(blank_site(), records, 0)


def test_after_the_cut_the_log_goes_on(directory: Path) -> None:
    fill(directory, ENTRY, ENTRY, ENTRY)
    path = segment_paths(directory)[0]
    path.write_bytes(path.read_bytes()[:-1])
    author = Author()
    records = [author.record(ENTRY), author.record(ENTRY), author.record(("entry", 5, 0)), author.record(ENTRY)]
    with open_site(directory) as store:
        store.append_many(records[2:])
    assert state_of(directory) == folded(blank_site(), records, 0)


def test_a_segment_that_was_only_begun_is_dropped(directory: Path) -> None:
    records, _ = fill(directory, *[ENTRY] * 40, settings=SMALL)
    *_, before, newest = segment_paths(directory)
    whole, unclosed = newest.read_bytes(), (directory / "identity.json").read_bytes()
    kept = records[: _entries_before(directory, newest)]
    for length in (0, 10, 36, 60):
        newest.write_bytes(whole[:length])
        (directory / "identity.json").write_bytes(unclosed)
        assert state_of(directory, SMALL) == folded(blank_site(), kept, 0)
        assert segment_paths(directory)[-1] == before


def _entries_before(directory: Path, newest: Path) -> int:
    """How many entries the log has without its newest segment."""
    with quick_directory() as name:
        copy = Path(name) / "copy"
        copy.mkdir()
        for path in directory.iterdir():
            if path != newest:
                (copy / path.name).write_bytes(path.read_bytes())
        return state_of(copy, SMALL).held


# ---- damage


def test_a_bit_that_flips_anywhere_is_an_error_with_file_and_place(directory: Path) -> None:
    """Headers, tokens, directories, payloads: also in the last record, which no killed process can have left so."""
    fill(directory, SHORT, ("promise", 1, 0), ("ring", 0, 1), SHORT)
    path = segment_paths(directory)[0]
    whole = path.read_bytes()
    for byte in range(len(whole)):
        damaged = bytearray(whole)
        damaged[byte] ^= 1 << byte % 8
        path.write_bytes(damaged)
        with pytest.raises(StoreError, match="under a new id") as caught:
            open_site(directory, LARGE)
        assert caught.value.file == str(path)
        assert caught.value.offset is not None
        assert caught.value.offset <= byte
    path.write_bytes(whole)
    assert state_of(directory).held == 3


def test_an_entry_that_is_damaged_while_the_site_runs_is_found_when_it_is_read(directory: Path) -> None:
    author = Author()
    with open_site(directory, LARGE) as store:
        store.append(author.record(ENTRY))
        path = segment_paths(directory)[0]
        data = path.read_bytes()
        path.write_bytes(data.replace(b"1/1/1/", b"1/1/2/"))
        with pytest.raises(StoreError, match=r"a payload of source .* in token 1 is damaged"):
            store.read(1, 1)
        path.write_bytes(data)
        assert store.read(1, 1) == tuple(author.chain.entries)


def test_an_older_segment_that_is_too_short_is_damage(directory: Path) -> None:
    fill(directory, *[ENTRY] * 40, settings=SMALL)
    first = segment_paths(directory)[0]
    first.write_bytes(first.read_bytes()[:-1])
    with pytest.raises(StoreError, match=f"{first.name}: byte .* ends within a frame"):
        open_site(directory, SMALL)


def test_a_store_that_was_closed_ends_where_it_ended(directory: Path) -> None:
    """No process died while it wrote: whoever shortened the file has taken something away."""
    fill(directory, ENTRY, ENTRY)
    state_of(directory)
    path = segment_paths(directory)[0]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StoreError, match="was closed when this segment was its last and had"):
        open_site(directory, LARGE)


def test_segments_without_the_marker_are_no_first_start(directory: Path) -> None:
    fill(directory, ENTRY)
    (directory / "identity.json").unlink()
    with pytest.raises(StoreError, match=r"there are segments but no identity\.json: .* under a new id"):
        open_site(directory)


def test_a_marker_without_its_segments_is_no_first_start(directory: Path) -> None:
    fill(directory, ENTRY)
    segment_paths(directory)[0].unlink()
    with pytest.raises(StoreError, match="the segments are missing"):
        open_site(directory)


def test_a_store_that_was_never_finished_is_made_again(directory: Path) -> None:
    """A process that was killed while it made its store has acknowledged nothing."""
    fill(directory)
    marker = read_marker(directory, Role.SITE)
    assert marker is not None
    replace(marker, begun=False).write(directory)
    path = segment_paths(directory)[0]
    path.write_bytes(path.read_bytes()[:50])
    with open_site_store(directory, SITE, blank_site, boot="boot 2") as store:
        assert (store.forgot, store.state) == (False, blank_site())


# ---- who may open it


def test_nobody_opens_a_store_twice(directory: Path) -> None:
    with open_site(directory), pytest.raises(StoreError, match=f"process {os.getpid()} has this store open"):
        open_site(directory)
    open_site(directory).close()


@pytest.mark.parametrize(
    "other",
    [
        StoreIdentity("other", "london", 2),
        StoreIdentity("test market", "paris", 2),
        StoreIdentity("test market", "london", 3),
    ],
)
def test_a_store_is_its_nodes_alone(directory: Path, other: StoreIdentity) -> None:
    fill(directory, ENTRY)
    with pytest.raises(StoreError, match="belongs to the site london, node 2, of the market test market"):
        open_site_store(directory, other, blank_site, boot="boot 1")
    assert state_of(directory).held == 1


def test_a_directory_that_cannot_be_made_is_an_error_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(StoreError, match="lock: cannot be opened"):
        open_site(tmp_path / "file")


# ---- a first start, a lost disk, another boot


def test_an_empty_directory_is_a_lost_one_unless_the_node_may_be_new(directory: Path) -> None:
    store = open_site_store(directory, SITE, blank_site, LARGE, boot="boot 1")
    assert (store.forgot, store.state) == (True, blank_site())
    with pytest.raises(StoreError, match=r"forgotten what it promised: .* under a new id"):
        store.append(Author().record(ENTRY))
    store.close()


def test_who_has_forgotten_stays_so(directory: Path) -> None:
    open_site_store(directory, SITE, blank_site, boot="boot 1").close()
    for boot in ("boot 1", "boot 2"):
        with open_site_store(directory, SITE, blank_site, fresh=True, boot=boot) as store:
            assert store.forgot


def test_what_makes_no_promises_begins_anew(directory: Path) -> None:
    """A secondary receiver votes for nothing, so that it has nothing to forget."""
    with open_site_store(directory, SITE, blank_site, votes=False, boot="boot 1") as store:
        assert not store.forgot
        store.append(Author().record(ENTRY))


@pytest.mark.parametrize(
    "settings, closed, forgot",
    [(SMALL, False, True), (SMALL, True, False), (POWER, False, False), (POWER, True, False)],
    ids=["process, killed", "process, closed", "power, killed", "power, closed"],
)
def test_on_another_boot_the_end_counts_only_if_it_was_on_the_disk(
    directory: Path, settings: StoreSettings, *, closed: bool, forgot: bool
) -> None:
    records, _ = fill(directory, *[ENTRY] * 5, settings=settings)
    if closed:
        open_site(directory, settings).close()
    with open_site(directory, settings, boot="boot 2") as store:
        assert store.forgot == forgot
        assert store.state == (blank_site() if forgot else folded(blank_site(), records, 0))


def test_a_store_that_changes_to_power_is_on_the_disk_from_then_on(directory: Path) -> None:
    records, _ = fill(directory, ENTRY, ENTRY, settings=SMALL)
    open_site(directory, POWER).abandon()
    assert state_of(directory, SMALL, boot="boot 2") == folded(blank_site(), records, 0)


def test_a_store_that_changes_to_process_is_not(directory: Path) -> None:
    fill(directory, ENTRY, settings=POWER)
    open_site(directory, SMALL).abandon()
    with open_site(directory, POWER, boot="boot 2") as store:
        assert store.forgot


def test_a_secondary_receiver_goes_on_from_what_a_power_failure_left(directory: Path) -> None:
    records, lengths = fill(directory, *[ENTRY] * 5)
    path = segment_paths(directory)[0]
    path.write_bytes(path.read_bytes()[: lengths[2]] + bytes(500))
    with open_site_store(directory, SITE, blank_site, votes=False, boot="boot 2") as store:
        assert store.state == folded(blank_site(), records[:3], 0)


def test_and_begins_anew_where_nothing_of_it_makes_sense(directory: Path) -> None:
    _, lengths = fill(directory, *[ENTRY] * 5)
    path = segment_paths(directory)[0]
    damaged = bytearray(path.read_bytes())
    damaged[lengths[0] - 1] ^= 1
    path.write_bytes(damaged)
    with open_site_store(directory, SITE, blank_site, votes=False, boot="boot 2") as store:
        assert store.state == blank_site()
    assert (directory / "set-aside-1" / path.name).read_bytes() == damaged


# ---- power failures, under the durability `power`


def power_failed(directory: Path, tail: bytes) -> None:
    path = segment_paths(directory)[-1]
    path.write_bytes(path.read_bytes() + tail)


@pytest.mark.parametrize("tail", [bytes(700), b"IF" + bytes(50), os.urandom(300)], ids=["zeros", "begun", "garbage"])
def test_what_a_power_failure_left_of_the_last_write_is_cut_off(directory: Path, tail: bytes) -> None:
    records, _ = fill(directory, *[ENTRY] * 3, settings=POWER)
    power_failed(directory, tail)
    with open_site(directory, POWER, boot="boot 2") as store:
        assert store.state == folded(blank_site(), records, 0)
        assert store.counters.torn_bytes == len(tail)
    power_failed(directory, tail)
    with pytest.raises(StoreError, match="was closed when"):
        open_site(directory, POWER, boot="boot 2")


def test_a_last_write_whose_payloads_never_came_is_cut_off(directory: Path) -> None:
    records, lengths = fill(directory, *[ENTRY] * 3, settings=StoreSettings(Durability.POWER))
    path = segment_paths(directory)[0]
    data = path.read_bytes()
    path.write_bytes(data[:-30] + bytes(30))
    with open_site(directory, POWER, boot="boot 2") as store:
        assert store.state == folded(blank_site(), records[:2], 0)
    assert path.stat().st_size == lengths[1]


def test_damage_before_something_that_was_written_later_is_damage_on_any_boot(directory: Path) -> None:
    _, lengths = fill(directory, *[ENTRY] * 3, settings=StoreSettings(Durability.POWER))
    path = segment_paths(directory)[0]
    for byte in (lengths[0] + 3, lengths[1] - 1):
        data = bytearray(path.read_bytes())
        data[byte] ^= 16
        path.write_bytes(data)
        with pytest.raises(StoreError, match="byte"):
            open_site(directory, POWER, boot="boot 2")
        data[byte] ^= 16
        path.write_bytes(data)


def test_of_a_group_that_was_not_finished_the_whole_records_before_the_fault_stay(directory: Path) -> None:
    """That records of the same group lie behind it does not mean that anybody was told of them."""
    author = Author()
    records = [author.record(ENTRY) for _ in range(5)]
    with open_site(directory, StoreSettings(Durability.POWER)) as store:
        store.append_many(records[:2])
        lengths = [segment_paths(directory)[0].stat().st_size]
        store.append_many(records[2:])
        lengths.append(segment_paths(directory)[0].stat().st_size)
        store.abandon()
    path = segment_paths(directory)[0]
    each = (lengths[1] - lengths[0]) // 3
    data = bytearray(path.read_bytes())
    data[lengths[0] + each + 5] ^= 1
    path.write_bytes(data)
    assert state_of(directory, POWER, "boot 2") == folded(blank_site(), records[:3], 0)


class Syncs:
    """Remembers which files were brought to the disk, in order."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._fsync = os.fsync

    def fsync(self, fd: int) -> None:
        self.names.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name)
        self._fsync(fd)


def test_what_the_marker_says_is_on_the_disk_before_it(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(directory, *[ENTRY] * 20, settings=SMALL)
    segments = [path.name for path in segment_paths(directory)]
    assert len(segments) > 1
    marked = ["identity.json.new", "london"]
    for settings, opened in ((SMALL, marked), (POWER, [*segments, "london", *marked])):
        syncs = Syncs()
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", syncs.fsync)
            store = open_site(directory, settings)
            assert syncs.names == opened
            syncs.names.clear()
            store.close()
            assert syncs.names == [*segments, "london", *marked]


def test_power_syncs_each_group_once(directory: Path) -> None:
    author = Author()
    with open_site(directory, StoreSettings(Durability.POWER)) as store:
        store.append(author.record(ENTRY))
        store.append_many([author.record(ENTRY) for _ in range(10)])
        store.append_many([])
        assert (store.counters.syncs, store.counters.records) == (2, 11)
    with open_site(directory, LARGE) as store:
        store.append(author.record(ENTRY))
        assert store.counters.syncs == 0


# ---- full disks


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
    marker = read_marker(directory, Role.SITE)
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
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.runtime.disks import Author, open_site
from isocast.runtime.store_settings import StoreSettings
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
    root = Path(__file__).parents[2]
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


# ---- sizes


def test_an_entry_of_more_messages_than_one_writev_takes(directory: Path) -> None:
    author = Author(payload_bytes=30)
    records = [author.record(("entry", 5_000, 0)), author.record(ENTRY)]
    with open_site(directory, LARGE) as store:
        store.append_many(records)
    assert state_of(directory) == folded(blank_site(), records, 0)


def test_segments_are_as_long_as_the_settings_say(directory: Path) -> None:
    author = Author()
    with open_site(directory, SMALL) as store:
        for _ in range(60):
            store.append(author.record(ENTRY))
        *full, _ = [path.stat().st_size for path in segment_paths(directory)]
        assert len(full) == store.counters.segments_begun - 1 >= 3
        assert all(SMALL.segment_bytes <= size < SMALL.segment_bytes + 600 for size in full)
        assert store.counters.bytes == sum(path.stat().st_size for path in segment_paths(directory))
