"""The file that tells a first start from a lost disk."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.disk.disks import quick_directory

from isocast.runtime.disk.store_marker import (
    NO_BOOT,
    Marker,
    Past,
    StoreIdentity,
    StoreRole,
    boot_id,
    disk_error,
    read_marker,
)
from isocast.runtime.market.model import Durability
from isocast.terms.errors import StoreError, StoreFull

MARKER = Marker(StoreRole.SITE, "m", "london", 2, "2026-11-15T00:00:00+00:00", "boot 1", Durability.PROCESS, begun=True)
NAMES = st.text(st.characters(codec="utf-8"), max_size=20)


@given(
    st.builds(
        Marker,
        st.sampled_from(StoreRole),
        NAMES,
        NAMES,
        st.integers(0, (1 << 64) - 1),
        NAMES,
        NAMES,
        st.sampled_from(Durability),
        st.booleans(),
        st.booleans(),
        st.integers(0, (1 << 32) - 1),
        st.integers(0, 1 << 40),
        st.integers(0, 1 << 40),
    )
)
def test_a_marker_comes_back_as_it_was(marker: Marker) -> None:
    with quick_directory() as name:
        marker.write(Path(name))
        assert read_marker(Path(name), marker.role) == marker
        assert [path.name for path in Path(name).iterdir()] == ["identity.json"]


def test_a_directory_without_one_says_nothing(tmp_path: Path) -> None:
    assert read_marker(tmp_path, StoreRole.SITE) is None


def test_people_can_read_whose_it_is(tmp_path: Path) -> None:
    MARKER.write(tmp_path)
    fields = json.loads((tmp_path / "identity.json").read_text(encoding="utf-8"))
    assert (fields["market"], fields["name"], fields["node"], fields["boot"]) == ("m", "london", 2, "boot 1")
    assert MARKER.identity == StoreIdentity("m", "london", 2)


@pytest.mark.parametrize("digit", [1, 3])
def test_a_changed_number_is_an_error_that_says_what_to_do(tmp_path: Path, digit: int) -> None:
    MARKER.write(tmp_path)
    path = tmp_path / "identity.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"node": 2', f'"node": {digit}'), encoding="utf-8")
    with pytest.raises(StoreError, match=r"identity\.json: the checksum is wrong: .* under a new id"):
        read_marker(tmp_path, StoreRole.SITE)


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"format": 1}', '{"format": 1, "check": "0"}', "\udcff"])
def test_something_else_is_an_error_not_a_first_start(tmp_path: Path, text: str) -> None:
    (tmp_path / "identity.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(StoreError, match=r"identity\.json: .*new incarnation"):
        read_marker(tmp_path, StoreRole.OUTBOX)


def test_another_format_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "identity.json").write_text('{"format": 2, "check": ""}', encoding="utf-8")
    with pytest.raises(StoreError, match="format version 2; this program reads"):
        read_marker(tmp_path, StoreRole.SITE)


def test_a_marker_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    MARKER.write(tmp_path)
    (tmp_path / "identity.json.new").mkdir()
    with pytest.raises(StoreError, match="cannot be written: Is a directory"):
        replace(MARKER, incarnation=9).write(tmp_path)
    assert read_marker(tmp_path, StoreRole.SITE) == MARKER


def test_a_full_disk_is_told_apart() -> None:
    path = Path("x")
    assert isinstance(disk_error(path, "cannot be written", OSError(errno.ENOSPC, "No space")), StoreFull)
    assert str(disk_error(path, "cannot be read", OSError(errno.EIO, "Bad disk"))) == "x: cannot be read: Bad disk"


@pytest.mark.parametrize(
    "changes, boot, past",
    [
        ({}, "boot 1", Past.WHOLE),
        ({}, "boot 2", Past.DOUBTFUL),
        ({}, NO_BOOT, Past.DOUBTFUL),
        ({"boot": NO_BOOT}, NO_BOOT, Past.DOUBTFUL),
        ({"durability": Durability.POWER}, "boot 2", Past.WHOLE),
        ({"durability": Durability.POWER, "boot": NO_BOOT}, NO_BOOT, Past.WHOLE),
        ({"end_segment": 1, "end_bytes": 99}, "boot 2", Past.WHOLE),
        ({"begun": False}, "boot 2", Past.WHOLE),
    ],
    ids=["same", "other", "unknown now", "never known", "power", "power, unknown", "closed", "never begun"],
)
def test_the_end_is_in_doubt_on_another_boot_unless_it_was_on_the_disk(
    changes: dict[str, object], boot: str, past: Past
) -> None:
    assert replace(MARKER, **changes).past(boot) is past  # type: ignore[arg-type]


def test_the_machine_says_which_boot_this_is() -> None:
    assert boot_id() == boot_id() != NO_BOOT
