"""A first start, a lost disk, another boot, a power failure: what a store makes of its past."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.runtime.disk.disks import (
    ENTRY,
    LARGE,
    POWER,
    SITE,
    SMALL,
    Author,
    blank_site,
    fill,
    folded,
    open_site,
    segment_paths,
    state_of,
    told_up_to,
)

from isocast.runtime.disk.site_store import open_site_store
from isocast.runtime.market.model import Durability, StoreSettings
from isocast.terms.errors import StoreError

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
    told_up_to(directory, lengths[1])
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
    told_up_to(directory, lengths[0])
    assert state_of(directory, POWER, "boot 2") == folded(blank_site(), records[:3], 0)


class Syncs:
    """Remembers which files were brought to the disk, in order."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._fsync = os.fsync

    def fsync(self, fd: int) -> None:
        self.names.append(Path(f"/proc/self/fd/{fd}").readlink().name)
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
