"""A journal's record: written whole, read back, and never believed where it is damaged."""

import json
from pathlib import Path
from typing import Any

import pytest

from isocast.runtime.disk import journal_record
from isocast.runtime.disk.journal_record import Beginning, JournalRecord, read_record, record_path, write_record
from isocast.terms.errors import JournalError

RECORD = JournalRecord(7, Beginning.RETENTION, ((3, 100), (9, 200)))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read_record(tmp_path, 3, 7) is None
    write_record(tmp_path, 3, 7, RECORD, sync=True)
    assert read_record(tmp_path, 3, 7) == RECORD
    assert [path.name for path in tmp_path.iterdir()] == ["s0003-site00007.record.json"]
    assert read_record(tmp_path, 3, 8) is None, "each journal has its own"


def test_a_record_under_another_journals_name_is_not_its_own(tmp_path: Path) -> None:
    write_record(tmp_path, 3, 7, RECORD, sync=False)
    record_path(tmp_path, 3, 7).rename(record_path(tmp_path, 3, 8))
    with pytest.raises(JournalError, match="damaged"):
        read_record(tmp_path, 3, 8)


@pytest.mark.parametrize(
    "change",
    [
        {"first_sequence": 0},
        {"first_sequence": 1e400},
        {"first_sequence": None},
        {"why": "because"},
        {"why": []},
        {"delays": 7},
        {"delays": [[9, 1], [3, 1]]},
        {"delays": [[3, 1], [3, 2]]},
        {"delays": [[1, 2, 3]]},
        {"version": 2},
    ],
)
def test_a_record_that_cannot_be_is_damaged_whoever_made_its_digest(tmp_path: Path, change: dict[str, Any]) -> None:
    write_record(tmp_path, 3, 7, RECORD, sync=False)
    path = record_path(tmp_path, 3, 7)
    fields = {name: value for name, value in json.loads(path.read_bytes()).items() if name != "digest"} | change
    path.write_text(json.dumps({**fields, "digest": journal_record._digest(fields)}), encoding="utf-8")  # noqa: SLF001
    with pytest.raises(JournalError, match="the journal's record is damaged"):
        read_record(tmp_path, 3, 7)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"7", b"\xff\xfe", b"[" * 100_000, b'{"digest": ""}'])
def test_any_other_bytes_are_damage_and_no_crash(tmp_path: Path, content: bytes) -> None:
    record_path(tmp_path, 3, 7).write_bytes(content)
    with pytest.raises(JournalError, match=r"record\.json: the journal's record is damaged"):
        read_record(tmp_path, 3, 7)
