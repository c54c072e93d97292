"""Columns of text, read a digit of all rows at a time, against Python's own reading of each cell."""

from __future__ import annotations

import csv
import io
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isocast.feeds.cells import Cells, read_cells
from isocast.feeds.outcomes import FeedFault, FeedLog

NUMBERS = st.one_of(
    st.decimals(-(10**9), 10**9, places=4).map(lambda value: format(value, "f")),
    st.integers(-(10**12), 10**12).map(str),
    st.sampled_from(
        ["", "-", "+", ".", "1.", ".5", "+7", "00012", "1.0000000", "1e5", "0x1", "nan", "1 2", "٣", "--1"]
    ),
)


def read(raw: bytes, columns: int, delimiter: bytes = b",", size: int = 1 << 20) -> tuple[list[Cells], FeedLog]:
    log = FeedLog("t.csv")
    chunks = [raw[at : at + size] for at in range(0, len(raw), size)]
    return list(read_cells(chunks, log, columns, delimiter)), log


def wanted(text: str, places: int) -> int | None:
    """What a cell is as an integer of 10^-places; None if it is none."""
    digits = text.removeprefix("-") if text.startswith("-") else text.removeprefix("+")
    if not digits.replace(".", "", 1).isdigit() or not digits.isascii() or (digits[0] == "." and places == 0):
        return None
    value = Decimal(text).scaleb(places)
    fits = abs(value) < 1 << 63 and len(digits.replace(".", "")) <= 19
    return int(value) if fits and value == int(value) else None


@settings(max_examples=100)
@given(texts=st.lists(NUMBERS, min_size=1, max_size=20), places=st.sampled_from([0, 4, 9]), size=st.integers(1, 80))
def test_decimal_numbers(texts: list[str], places: int, size: int) -> None:
    raw = "".join(f"{text},x\n" for text in texts).encode()
    found = []
    for cells in read(raw, 2, size=size)[0]:
        column = cells.decimal(0, places)
        found += [
            value if good else None for value, good in zip(column.values.tolist(), column.good.tolist(), strict=True)
        ]
    assert found == [wanted(text, places) for text in texts]


def test_finer_digits_can_be_cut_off() -> None:
    (cells,), _ = read(b"35821.088778456004\n1.5\n", 1)
    assert cells.decimal(0, 9, cut=True).values.tolist() == [35_821_088_778_456, 1_500_000_000]
    assert cells.decimal(0, 9).good.tolist() == [False, True]


def test_numbers_that_are_too_long_are_bad_and_wrap_nothing() -> None:
    (cells,), _ = read(
        b"9" * 18 + b"\n9223372036854775807\n9223372036854775808\n" + b"9" * 19 + b"\n" + b"9" * 400 + b"\n", 1
    )
    assert cells.integer(0).good.tolist() == [True, True, False, False, False]


@given(
    rows=st.lists(
        st.lists(st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=6), min_size=2, max_size=2),
        min_size=1,
        max_size=12,
    )
)
def test_quotes_are_read_as_the_csv_module_reads_them(rows: list[list[str]]) -> None:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    found = []
    for cells in read(out.getvalue().encode(), 2)[0]:
        columns = [cells.text(place, 6).values.tolist() for place in (0, 1)]
        found += [list(row) for row in zip(*columns, strict=True)]
    assert found == [[cell.strip(" ").encode() for cell in row] for row in rows]


def test_rows_of_another_width_are_named_with_their_byte() -> None:
    found, log = read(b"1,2\n1,2,3\n\n4,5\r\n6\n", 2)
    assert sum(len(cells) for cells in found) == 2
    assert found[0].offsets.tolist() == [0, 11]
    assert found[0].integer(1).values.tolist() == [2, 5]
    assert log.faults[FeedFault.BAD_ROW] == {
        "count": 2,
        "first_offset": 4,
        "first": "a row of 3 cells where 2 are wanted",
    }


@pytest.mark.parametrize("size", [1, 5, 100])
def test_a_last_line_without_its_end_counts(size: int) -> None:
    found, _ = read(b"1,2\n3,4", 2, size=size)
    assert [value for cells in found for value in cells.integer(0).values.tolist()] == [1, 3]


def test_a_line_without_end_is_given_up() -> None:
    _, log = read(b"x" * 200_000, 2, size=1_000)
    assert log.faults[FeedFault.BAD_ROW]["first"] == "a line of more than 65536 bytes"


def test_hexadecimal() -> None:
    (cells,), _ = read(b"2000\nfF\n\ng\n20002020\n1234567890abcdef0\n", 1)
    column = cells.hexadecimal(0)
    good = column.good.tolist()
    assert good == [True, True, False, True, False]
    assert [value for value, is_good in zip(column.values.tolist(), good, strict=True) if is_good] == [
        0x2000,
        0xFF,
        0x20002020,
    ]
