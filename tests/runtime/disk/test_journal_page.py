"""docs/reference/journal.md says what the code does: offsets, lengths, names and kinds."""

from tests.reference_pages import page, rows, section
from tests.wire.journal_samples import block

from isocast.checks.journals import FaultKind
from isocast.runtime.market.keys import SETTINGS
from isocast.runtime.market.model import JournalSettings
from isocast.wire.journal import (
    BLOCK_HEADER_BYTES,
    BLOCK_MARKER,
    DIRECTORY_BYTES,
    JOURNAL_VERSION,
    SEGMENT_HEADER_BYTES,
    SEGMENT_MAGIC,
    BlockHeader,
    SegmentHeader,
    pack_block_header,
    pack_segment_header,
    segment_name,
)
from isocast.wire.journal_blocks import DIRECTORY_DTYPE, encode_block
from isocast.wire.limits import EVENT_BYTES

PAGE = page("journal")


def layout(title: str) -> list[tuple[int, int, str]]:
    fields = [(int(at), int(size), field) for at, size, field, *_ in rows(section(PAGE, title), "offset")]
    expected = 0
    for at, size, _ in fields:
        assert at == expected
        expected += size
    return fields


def fields_of(header: BlockHeader) -> list[int | bytes]:
    return list(header)


def test_the_segment_header_is_drawn_as_it_is() -> None:
    fields = layout("Segment header")
    assert fields[-1][0] + fields[-1][1] == SEGMENT_HEADER_BYTES
    raw = pack_segment_header(SegmentHeader(0x0102, 0x1111111111111111, 0x2222222222222222, 0x3333333333333333))
    where = {field.partition(":")[0].partition(",")[0]: raw[at : at + size] for at, size, field in fields}
    assert where["magic"] == SEGMENT_MAGIC
    assert f"`{SEGMENT_MAGIC.decode()}`" in section(PAGE, "Segment header")
    assert where["version"] == JOURNAL_VERSION.to_bytes(2, "little")
    assert f"version {JOURNAL_VERSION} of the format" in PAGE
    assert (where["stripe"], where["site"]) == (b"\x02\x01", b"\x11" * 8)
    assert (where["created"], where["first sequence"]) == (b"\x22" * 8, b"\x33" * 8)


def test_the_block_header_is_drawn_as_it_is() -> None:
    fields = layout("Block header")
    header = encode_block(block(5, 9, (None, None), place=1, count=4)).header
    raw = pack_block_header(header)
    assert fields[-1][0] + fields[-1][1] == BLOCK_HEADER_BYTES == len(raw)
    values = [raw[at : at + size] for at, size, _ in fields]
    assert values[0] == BLOCK_MARKER
    assert f"`{BLOCK_MARKER.decode()}`" in section(PAGE, "Block header")
    for value, expected in zip(values[1:-1], fields_of(header), strict=True):
        assert value == (expected if isinstance(expected, bytes) else int(expected).to_bytes(len(value), "little"))


def test_the_directory_is_drawn_as_it_is() -> None:
    listed = [(name, at, size) for at, size, name in layout("Directory")]
    fields = DIRECTORY_DTYPE.fields
    assert fields
    assert listed == [(name, fields[name][1], fields[name][0].itemsize) for name in DIRECTORY_DTYPE.names or ()]


def test_lengths_and_names_are_those_of_the_code() -> None:
    assert f"| header {SEGMENT_HEADER_BYTES} | block |" in PAGE
    assert (
        f"| header {BLOCK_HEADER_BYTES} | directory: {DIRECTORY_BYTES} for each message | events: {EVENT_BYTES}" in PAGE
    )
    assert segment_name(0, 1, 1) in PAGE


def test_settings_and_faults_are_listed() -> None:
    listed = {name.strip("`"): default for name, default, _ in rows(section(PAGE, "Retention"), "key")}
    table = next(table for table in SETTINGS if table.name == "journal")
    assert listed == {key.name: key.default for key in table.keys}
    assert JournalSettings().segment_bytes == 64 << 20
    assert JournalSettings().keep_bytes == JournalSettings().keep_seconds == 0
    (durability,) = [key.default for key in SETTINGS[0].keys if key.name == "durability"]
    assert f"`{durability}`, the default" in section(PAGE, "Durability")
    assert [kind for kind, _ in rows(section(PAGE, "What verify finds"), "fault")] == [kind.value for kind in FaultKind]
