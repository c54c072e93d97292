"""Numbers of accounts, assets and sums of money."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.orders.accounts import (
    FIRST_TRADER,
    GATEWAYS_MAX,
    TRADERS_MAX,
    account_number,
    amount_text,
    cash,
    gateway_of,
    is_house,
    parse_amount,
    parse_sum,
    shares,
)

USD = cash("USD")


@given(st.integers(0, GATEWAYS_MAX - 1), st.integers(0, TRADERS_MAX - 1))
def test_a_number_tells_its_gateway(gateway: int, local: int) -> None:
    """Settlement 11: the gateway is in the upper 12 of 32 bits."""
    number = account_number(gateway, local)
    assert number < 1 << 32
    assert gateway_of(number) == gateway
    assert is_house(number) == (local < FIRST_TRADER)


@pytest.mark.parametrize("gateway, local", [(-1, 1), (GATEWAYS_MAX, 1), (1, -1), (1, TRADERS_MAX)])
def test_no_number_reaches_into_another_gateway(gateway: int, local: int) -> None:
    with pytest.raises(ValueError, match="gateway"):
        account_number(gateway, local)


@given(st.integers(-(10**18), 10**18))
def test_a_sum_is_read_as_it_is_written(units: int) -> None:
    assert parse_sum(amount_text(USD, units)) == (USD, units)


@pytest.mark.parametrize(
    "text, units",
    [
        ("1 USD", 10_000),
        ("1250.50 USD", 12_505_000),
        ("1,250.5USD", 12_505_000),
        ("1,234,567.00 USD", 12_345_670_000),
        ("0.0001 USD", 1),
        ("-2 USD", -20_000),
    ],
)
def test_sums(text: str, units: int) -> None:
    assert parse_sum(text) == (USD, units)


@pytest.mark.parametrize(
    "text",
    [
        *("", "USD", "1", "1 usd", "1.00001 USD", "1e3 USD", "+1 USD", "1 USDT", "٣ USD", "1\nUSD", "5,00 USD"),
        *("1,2345 USD", "1,00.00 USD", ",100 USD", "1,,000 USD", "1,000, USD", "1000,000 USD", "1.0,00 USD"),
    ],
)
def test_what_is_no_sum_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a sum has"):
        parse_sum(text)


def test_shares_are_whole() -> None:
    assert parse_amount("1,300", shares("IBM")) == 1300
    assert amount_text(shares("IBM"), 1300) == "1,300 IBM"
    for text in ("1.5", "-1", "1 IBM", "²", "1,30", "13,00", ",130", "1,300,"):
        with pytest.raises(ValueError, match="whole number"):
            parse_amount(text, shares("IBM"))
    assert parse_amount("2", USD) == parse_amount("2.00 USD", USD) == 20_000
    with pytest.raises(ValueError, match="a sum has"):
        parse_amount("2 EUR", USD)


@pytest.mark.parametrize("symbol", ["", "ibm", "I BM", "-A", "A" * 13, "A\n"])
def test_what_is_no_symbol_is_refused(symbol: str) -> None:
    with pytest.raises(ValueError, match="a symbol has"):
        shares(symbol)
    with pytest.raises(ValueError, match="a currency has"):
        cash(symbol)
