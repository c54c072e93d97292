"""A running node notices that its files were removed, replaced or cut, and stops relying on them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.runtime.disk.disks import (
    ENTRY,
    LARGE,
    SITE,
    SMALL,
    Author,
    blank_site,
    open_site,
    quick_directory,
    segment_paths,
)
from tests.runtime.disk.journals import journal, segments
from tests.runtime.disk.test_outbox_store import appended, open_floor
from tests.wire.journal_samples import blocks

from isocast.runtime.disk.disk_watch import OpenFile, first_trouble
from isocast.runtime.disk.site_store import SiteStore, open_site_store
from isocast.runtime.disk.store_marker import MARKER_NAME, StoreRole, read_marker
from isocast.terms.errors import JournalFull, StoreError, StoreGone

Harm = Callable[[Path], object]


@pytest.fixture
def directory() -> Iterator[Path]:
    with quick_directory() as name:
        yield Path(name) / "london" / "log"


def remove(directory: Path) -> None:
    shutil.rmtree(directory)


def remove_parent(directory: Path) -> None:
    shutil.rmtree(directory.parent)


def move(directory: Path) -> None:
    directory.rename(directory.with_name("elsewhere"))


def copy_over(directory: Path) -> None:
    """The same bytes in other files, as a restored backup has them."""
    shutil.copytree(directory, directory.with_name("copy"))
    move(directory)
    directory.with_name("copy").rename(directory)


def remove_segment(directory: Path) -> None:
    segment_paths(directory)[-1].unlink()


def cut_segment(directory: Path) -> None:
    os.truncate(segment_paths(directory)[-1], 50)


def remove_marker(directory: Path) -> None:
    (directory / MARKER_NAME).unlink()


HARMS: list[Harm] = [remove, remove_parent, move, copy_over, remove_segment, cut_segment, remove_marker]


@pytest.mark.parametrize("harm", HARMS)
def test_a_site_that_is_robbed_of_its_log_promises_nothing_more(directory: Path, harm: Harm) -> None:
    author = Author()
    store = open_site(directory, LARGE)
    store.append(author.record(ENTRY))
    store.check()
    harm(directory)
    with pytest.raises(StoreGone, match=r"this process had it open.*under a new id"):
        store.check()
    with pytest.raises(StoreError, match="this process had it open"):
        store.append(author.record(ENTRY))
    store.close()
    assert not (directory / MARKER_NAME).exists() or not _closed(directory)


def _closed(directory: Path) -> bool:
    marker = read_marker(directory, StoreRole.SITE)
    return marker is not None and marker.closed


def test_who_closes_in_order_over_other_files_changes_nothing_in_them(directory: Path) -> None:
    """Within the second before it is noticed: the end of our log must not be noted in somebody else's directory."""
    store = open_site(directory, LARGE)
    store.append(Author().record(ENTRY))
    copy_over(directory)
    with pytest.raises(StoreGone, match="was replaced by another one"):
        store.close()
    assert not _closed(directory)
    with open_site(directory, LARGE) as again:
        assert again.held == 1


def test_a_source_says_what_becomes_of_its_messages(directory: Path) -> None:
    store = open_floor(directory)
    store.append(appended(1))
    remove(directory)
    with pytest.raises(StoreGone, match=r"nothing more is accepted.*new incarnation"):
        store.check()
    store.close()


def test_who_has_forgotten_relies_on_its_marker_alone(directory: Path) -> None:
    store: SiteStore = open_site_store(directory, SITE, blank_site, LARGE, boot="boot 1")
    store.check()
    remove_marker(directory)
    with pytest.raises(StoreGone):
        store.check()
    store.close()


def test_segments_that_the_store_removes_itself_are_not_missed(directory: Path) -> None:
    author = Author()
    with open_site(directory, SMALL) as store:
        for number in range(1, 60):
            store.append(author.record(ENTRY))
            store.collected(max(number - 20, 0))
            store.check()
        assert store.counters.segments_removed > 0


def test_a_file_system_that_takes_no_writes_is_noticed_before_the_next_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "file").open("wb") as file:
        here = OpenFile(tmp_path / "file", file.fileno())
        assert first_trouble([here]) is None

        class ReadOnly:
            f_flag = os.ST_RDONLY

        monkeypatch.setattr(os, "fstatvfs", lambda _: ReadOnly)
        assert first_trouble([here]) == (here.path, "is on a file system that takes no writes any more")


# ---- journals


def cut_journal(directory: Path) -> None:
    os.truncate(segments(directory)[-1], 10)


@pytest.mark.parametrize("harm", [remove, remove_parent, move, copy_over, cut_journal])
def test_a_journal_that_is_gone_takes_nothing_more(directory: Path, harm: Harm) -> None:
    first, second = blocks(2)
    opened = journal(directory)
    opened.check()
    opened.append(first)
    opened.check()
    harm(directory)
    with pytest.raises(StoreGone, match=r"this process had it open.*fills its journal"):
        opened.check()
    with pytest.raises(JournalFull):
        opened.append(second)
    opened.close()
