import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.floor.events import Trade
from isocast.floor.reporting import FloorReport, cut_report, decode_report, encode_report, joined
from isocast.terms.errors import LocalProtocolError, RemoteProtocolError

NUMBERS = st.integers(0, 2**63 - 1)
SYMBOLS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=12)
TRADES = st.builds(Trade, NUMBERS, SYMBOLS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.booleans(), st.booleans())
REPORTS = st.builds(
    FloorReport,
    NUMBERS,
    st.binary(min_size=32, max_size=32),
    NUMBERS,
    st.lists(TRADES, max_size=30).map(tuple),
    st.just(0),
    st.just(1),
)


@given(REPORTS, st.integers(150, 1_296))
def test_a_report_comes_back_whole_from_its_parts(report: FloorReport, most: int) -> None:
    encoded = [encode_report(part) for part in cut_report(report, most)]
    assert all(len(data) <= most for data in encoded)
    assert joined([decode_report(data) for data in encoded]) == report


@given(st.binary(max_size=200))
def test_whatever_is_read_has_one_spelling(data: bytes) -> None:
    try:
        report = decode_report(data)
    except RemoteProtocolError:
        return
    assert encode_report(report) == data


@given(REPORTS)
def test_nothing_may_be_missing_or_follow(report: FloorReport) -> None:
    data = encode_report(report)
    for wrong in (data[:-1], data + b"\0", b""):
        with pytest.raises(RemoteProtocolError):
            decode_report(wrong)


def test_what_does_not_fit_is_refused_by_the_sender() -> None:
    state = bytes(32)
    for report in (FloorReport(1, b"short", 0), FloorReport(-1, state, 0), FloorReport(1, state, 0, part=1)):
        with pytest.raises(LocalProtocolError):
            encode_report(report)
