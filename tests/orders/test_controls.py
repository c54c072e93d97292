"""Controls before the market."""

from __future__ import annotations

import pytest

from isocast.orders.controls import Block, BlockScope, Limits, RateLimit, Wanted, first_refusal
from isocast.orders.desk import Reason
from isocast.orders.needs import Side

SECOND = 1_000_000_000
LIMITS = Limits(quantity=1_000, value=100_000, collar_bp=500, rate=10, open_orders=3)
FINE = Wanted(1, 0, Side.BUY, 100, 100, is_limit=True, reference=100, is_new=True)
KILLED = Block(BlockScope.ACCOUNT, 1, reason="fat finger")


def refusal(wanted: Wanted, *, opened: int = 0, blocks: tuple[Block, ...] = (), rate: bool = True) -> Reason | None:
    found = first_refusal(wanted, LIMITS, opened, blocks, lambda: rate)
    return None if found is None else found.reason


@pytest.mark.parametrize(
    "wanted, reason",
    [
        (FINE, None),
        (FINE._replace(quantity=0), Reason.QUANTITY),
        (FINE._replace(quantity=-5), Reason.QUANTITY),
        (FINE._replace(quantity=1_001), Reason.QUANTITY),
        (FINE._replace(quantity=1_000), None),
        (FINE._replace(quantity=1_000, price=101), Reason.VALUE),
        (FINE._replace(price=105), None),
        (FINE._replace(price=106), Reason.COLLAR),
        (FINE._replace(price=1), None),
        (FINE._replace(side=Side.SELL, price=95), None),
        (FINE._replace(side=Side.SELL, price=94), Reason.COLLAR),
        (FINE._replace(price=106, reference=None), None),
        (FINE._replace(price=106, is_limit=False), None),
    ],
)
def test_quantity_value_and_collar(wanted: Wanted, reason: Reason | None) -> None:
    assert refusal(wanted) is reason


def test_the_first_that_fails_is_named() -> None:
    """Settlement 26: in the order listed."""
    bad = FINE._replace(quantity=1_000, price=106)
    everything = {"opened": 3, "blocks": (KILLED,), "rate": False}
    assert refusal(bad._replace(quantity=2_000), **everything) is Reason.QUANTITY  # type: ignore[arg-type]
    assert refusal(bad, **everything) is Reason.VALUE  # type: ignore[arg-type]
    assert refusal(bad._replace(quantity=10), **everything) is Reason.COLLAR  # type: ignore[arg-type]
    assert refusal(FINE, **everything) is Reason.RATE  # type: ignore[arg-type]
    assert refusal(FINE, opened=3, blocks=(KILLED,)) is Reason.OPEN_ORDERS
    assert refusal(FINE, opened=2, blocks=(KILLED,)) is Reason.BLOCKED
    assert refusal(FINE._replace(is_new=False), opened=3) is None


def test_a_refusal_says_money_as_people_write_it() -> None:
    limits = LIMITS._replace(value=20_000_000)
    dear = FINE._replace(price=105_500, reference=100_000)
    asked = [dear._replace(quantity=1_000), dear]
    texts = [found.text for one in asked if (found := first_refusal(one, limits, 0, (), lambda: True))]
    assert texts == ["a value of 10550.00: at most 2000.00", "more than 500 basis points from 10.00"]


def test_whom_a_kill_switch_stops() -> None:
    customer = Block(BlockScope.CUSTOMER, 1, 5)
    assert refusal(FINE, blocks=(customer,)) is None
    assert refusal(FINE._replace(owner=5), blocks=(customer,)) is Reason.BLOCKED
    assert refusal(FINE._replace(account=2), blocks=(KILLED, customer)) is None
    assert refusal(FINE._replace(account=2), blocks=(Block(BlockScope.GATEWAY),)) is Reason.BLOCKED
    found = first_refusal(FINE, LIMITS, 0, [KILLED], lambda: True)
    assert found is not None
    assert "fat finger" in found.text


def test_no_limit_is_no_limit() -> None:
    none = Limits(0, 0, 0, 0, 0)
    wanted = FINE._replace(quantity=10**15, price=10**15)
    assert first_refusal(wanted, none, 10**6, [], lambda: RateLimit().allows(1, 0, 0)) is None


def test_a_bucket_fills_by_the_second_and_holds_one() -> None:
    rate = RateLimit()
    assert [rate.allows(1, 10, 5) for _ in range(12)] == [True] * 10 + [False] * 2
    assert rate.allows(2, 10, 5)
    assert not rate.allows(1, 10, 5 + SECOND // 10 - 1)
    assert rate.allows(1, 10, 5 + SECOND // 10)
    assert not rate.allows(1, 10, 5 + SECOND // 10)
    assert not rate.allows(1, 10, 0)  # A clock that goes back gives nothing.
    later = 5 + 100 * SECOND
    assert [rate.allows(1, 10, later) for _ in range(11)] == [True] * 10 + [False]
    rate.forget_full(later + SECOND)
    assert [rate.allows(1, 10, later + SECOND) for _ in range(11)] == [True] * 10 + [False]
