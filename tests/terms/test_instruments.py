"""Instruments with full names and scales of their own: symbols say the scale, and nothing is rounded."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.terms.errors import LocalProtocolError
from isocast.terms.instruments import PLAIN, Instrument, Scale, has_name, scale_of, to_whole

NAMES = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=12)


@given(NAMES, st.integers(0, 18), st.integers(0, 9))
def test_a_symbol_says_the_scale_of_its_instrument(name: str, price: int, quantity: int) -> None:
    one = Instrument("XBIN", name, price, quantity)
    assert scale_of(one.symbol) == Scale(price, quantity)
    assert one.symbol == name or has_name(one.symbol, name)


def test_a_plain_name_is_its_own_symbol_and_codes_are_stable() -> None:
    assert Instrument("XLON", "VOD").symbol == "VOD"
    assert Instrument("XLON", "VOD", 6).symbol == "~60NEhKb"
    assert Instrument("XBIN", "BTC-USDT-PERPETUAL", 8, 3).symbol == "~83aqxcD"
    assert Instrument("XBIN", "BTC-USDT-PERPETUAL").symbol.startswith("~40")
    assert Instrument("XLON", "~60NEhKb").symbol != "~60NEhKb"
    for plain in ("VOD", "~", "~Z0abcde", "~6xabcde", "~60abcd", "~60abc-e", ""):
        assert scale_of(plain) == PLAIN


@pytest.mark.parametrize(
    "arguments, rule",
    [
        (("XBIN", "é" * 25), "1 to 48 bytes"),
        (("XBIN", ""), "1 to 48 bytes"),
        (("XBIN", "two words"), "without blanks"),
        (("XBIN", "bell\a"), "control characters"),
        (("BIN", "BTC"), "four capital letters"),
        (("XBIN", "BTC", 19), "price_decimals 19: 0 to 18"),
        (("XBIN", "BTC", 4, 10), "quantity_decimals 10: 0 to 9"),
    ],
)
def test_what_no_record_can_carry_is_refused(arguments: tuple[str, str], rule: str) -> None:
    with pytest.raises(LocalProtocolError, match=rule):
        Instrument(*arguments)


@given(st.integers(-(1 << 63) + 1, (1 << 63) - 1), st.integers(0, 18))
def test_whole_numbers_and_units_are_the_same(ticks: int, decimals: int) -> None:
    price = Scale(decimals, 0).to_price(ticks)
    assert to_whole(price, decimals) == to_whole(f"{price:f}", decimals) == ticks


@pytest.mark.parametrize(
    "value, decimals, rule",
    [
        ("0.000000001", 8, "is finer than 10"),
        ("0." + "1" * 40, 18, "is finer than 10"),
        ("1e30", 2, "too large for 2 decimals"),
        (Decimal("NaN"), 2, "too large|not a number"),
        ("many", 2, "'many' is not a number"),
    ],
)
def test_nothing_is_rounded(value: str, decimals: int, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        to_whole(value, decimals)
