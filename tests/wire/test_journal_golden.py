"""A change of the journal's format is seen: the bytes of a segment are kept (see `journal_vector` to renew them)."""

from tests.wire.journal_samples import SITE, STRIPE, segment
from tests.wire.journal_vector import RELEASED, read_vector

from isocast.wire.journal import SEGMENT_HEADER_BYTES, SegmentHeader, read_segment_header
from isocast.wire.journal_blocks import view_block


def test_the_bytes_are_those_of_the_file() -> None:
    assert segment(RELEASED).hex(" ", 8) == read_vector().hex(" ", 8)


def test_the_file_is_read_as_what_was_released() -> None:
    raw = read_vector()
    assert read_segment_header(raw) == SegmentHeader(STRIPE, SITE, RELEASED[0].released_at, 41)
    at = SEGMENT_HEADER_BYTES
    for one in RELEASED:
        view = view_block(raw, at)
        assert view.released() == one
        at += view.header.block_bytes
    assert at == len(raw)
