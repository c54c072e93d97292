"""Symbols, floors and prices keep their form both ways."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.terms.errors import LocalProtocolError
from isocast.terms.market import MAX_TICKS, EventFlag, EventKind, Mic, Side, Symbol, from_ticks, to_ticks


@pytest.mark.parametrize("text", ["A", "IBM", "BRK.A", "ZVZZT", "12345678", "a-b/c=d!"])
def test_a_symbol_survives_its_bytes(text: str) -> None:
    symbol = Symbol(text)
    assert symbol == text
    assert symbol.fixed == text.encode().ljust(8, b"\0")


@pytest.mark.parametrize("text", ["", "NINECHARS", "A B", " A", "é", "A\n", "A\0B", "\x7f"])
def test_what_is_no_symbol_is_refused(text: str) -> None:
    with pytest.raises(LocalProtocolError, match="symbol"):
        Symbol(text)


@pytest.mark.parametrize("text", ["XNYS", "XNAS", "BATS", "XLON", "360T", "24EX"])
def test_a_floor_survives_its_bytes(text: str) -> None:
    assert Mic(text).fixed.decode() == text


@pytest.mark.parametrize("text", ["", "XNY", "XNYSE", "xnys", "XN S", "XNÝS", "XNY\0"])
def test_what_is_no_floor_is_refused(text: str) -> None:
    with pytest.raises(LocalProtocolError, match="floor"):
        Mic(text)


@pytest.mark.parametrize(
    "price, ticks",
    [("12.34", 123_400), ("0.0001", 1), ("-1.5", -15_000), (7, 70_000), (Decimal("1e3"), 10_000_000), ("0", 0)],
)
def test_a_price_in_ticks(price: Decimal | int | str, ticks: int) -> None:
    assert to_ticks(price) == ticks
    assert from_ticks(ticks) == Decimal(price)


def test_a_price_that_32_bits_could_not_carry() -> None:
    assert from_ticks(to_ticks("700000.00")) == 700_000


@given(ticks=st.integers(-MAX_TICKS, MAX_TICKS))
def test_ticks_survive_being_a_price(ticks: int) -> None:
    assert to_ticks(from_ticks(ticks)) == ticks
    assert to_ticks(str(from_ticks(ticks))) == ticks


@pytest.mark.parametrize(
    "price",
    ["0.00001", "1.23456", "1e30", "", "ten", "NaN", "Infinity", "1e999999999", "1e999999", "1." + "0" * 40 + "1"],
)
def test_what_is_no_price_is_refused(price: str) -> None:
    with pytest.raises(LocalProtocolError, match="price"):
        to_ticks(price)


@pytest.mark.parametrize("enumeration, mask", [(EventKind, 0x7F), (Side, 0x7F), (EventFlag, 0x7F7F)])
def test_numbers_on_the_wire_fit_their_fields_and_leave_the_top_bit_of_each_byte(enumeration: Any, mask: int) -> None:  # noqa: ANN401
    assert all(member & mask == member for member in enumeration)
