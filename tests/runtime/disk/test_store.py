"""Directories of state: torn ends are cut, damage stops the node, nobody opens one twice."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.runtime.disk.disks import (
    ENTRY,
    LARGE,
    SHORT,
    SITE,
    SMALL,
    Author,
    Step,
    blank_site,
    fill,
    flipping_bits,
    folded,
    open_site,
    quick_directory,
    segment_paths,
    state_of,
    told_up_to,
)

from isocast.runtime.disk.site_store import open_site_store
from isocast.runtime.disk.store_marker import StoreIdentity, StoreRole, read_marker
from isocast.terms.errors import StoreError

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
        told_up_to(directory, lengths[-2])
        with open_site(directory, LARGE) as store:
            assert store.state == folded(blank_site(), records[:-1], 0)
            assert store.counters.torn_bytes == length - lengths[-2]
        assert path.stat().st_size == lengths[-2]
    path.write_bytes(whole)
    marker.write_bytes(unclosed)
    assert state_of(directory) == folded(blank_site(), records, 0)


def test_after_the_cut_the_log_goes_on(directory: Path) -> None:
    _, lengths = fill(directory, ENTRY, ENTRY, ENTRY)
    path = segment_paths(directory)[0]
    path.write_bytes(path.read_bytes()[:-1])
    told_up_to(directory, lengths[1])
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
        told_up_to(directory, before.stat().st_size, int(before.stem[-8:]))
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
        *_, last = segment_paths(copy)
        told_up_to(copy, last.stat().st_size, int(last.stem[-8:]))
        return state_of(copy, SMALL).held


# ---- damage


def test_a_bit_that_flips_anywhere_is_an_error_with_file_and_place(directory: Path) -> None:
    """Headers, tokens, directories, payloads: also in the last record, which no killed process can have left so."""
    fill(directory, SHORT, ("promise", 1, 0), ("ring", 0, 1), SHORT)
    path = segment_paths(directory)[0]
    for byte in flipping_bits(path):
        with pytest.raises(StoreError, match="under a new id") as caught:
            open_site(directory, LARGE)
        assert caught.value.file == str(path)
        assert caught.value.offset is not None
        assert caught.value.offset <= byte
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
    """No process died while it wrote: somebody has added to the file. (Shorter ones: `test_store_short`.)"""
    fill(directory, ENTRY, ENTRY)
    state_of(directory)
    path = segment_paths(directory)[0]
    path.write_bytes(path.read_bytes() + b"I")
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
    with open_site(directory) as store:
        assert store.forgot
        assert "ends at byte 0 of segment 0" in store.loss


def test_a_store_that_was_never_finished_is_made_again(directory: Path) -> None:
    """A process that was killed while it made its store has acknowledged nothing."""
    fill(directory)
    marker = read_marker(directory, StoreRole.SITE)
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
