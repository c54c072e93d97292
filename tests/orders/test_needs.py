"""What orders bind."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from isocast.orders.needs import Side, fee, need, protection_price

PRICES = st.integers(1, 10**10)


def test_a_buy_binds_its_limit_and_the_largest_fee_and_a_sale_its_shares() -> None:
    assert need(Side.BUY, price=100_000, quantity=100, fee_bp=5) == 10_005_000
    assert need(Side.SELL, price=100_000, quantity=100, fee_bp=5) == 100


@given(PRICES, st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 10**10)), min_size=1), st.integers(0, 500))
def test_parts_at_better_prices_never_cost_more_than_was_bound(
    price: int, parts: list[tuple[int, int]], fee_bp: int
) -> None:
    """Settlement 18: fees are rounded down for each trade."""
    bound = need(Side.BUY, price=price, quantity=sum(quantity for quantity, _ in parts), fee_bp=fee_bp)
    values = [quantity * min(price, paid) for quantity, paid in parts]
    assert sum(value + fee(value, fee_bp) for value in values) <= bound


@given(PRICES, st.integers(0, 9_999), st.integers(1, 1_000))
def test_protection_is_a_whole_tick_within_the_collar(reference: int, collar_bp: int, tick: int) -> None:
    """Settlement 15: a buy's down to a tick, a sale's up."""
    buy = protection_price(Side.BUY, reference, collar_bp, tick)
    sell = protection_price(Side.SELL, reference, collar_bp, tick)
    assert buy % tick == sell % tick == 0
    assert 0 <= reference * (10_000 + collar_bp) - buy * 10_000 < tick * 10_000 + 10_000
    assert 0 <= sell * 10_000 - reference * (10_000 - collar_bp) < tick * 10_000
