"""What gateways owe each other."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from isocast.orders.netting import Debt, Netting

TRADES = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 500), st.integers(1, 50)), max_size=40)


def test_worked_example_8_is_one_debt_each_way() -> None:
    netting = Netting()
    netting.add({1: {"cash:USD": 1_000, "shares:IBM": -100}, 2: {"cash:USD": -1_000, "shares:IBM": 100}})
    assert netting.debts() == [Debt(1, 2, "cash:USD", 1_000), Debt(2, 1, "shares:IBM", 100)]


def test_a_trade_of_which_one_side_is_missing_is_owed_by_nobody() -> None:
    netting = Netting()
    netting.add({1: {"cash:USD": 1_000}})
    assert netting.debts() == []
    assert netting.unmatched == {(1, "cash:USD"): 1_000}


@given(TRADES)
def test_debts_are_what_is_in_clearing_and_each_pair_has_one_for_an_asset(
    trades: list[tuple[int, int, int, int]],
) -> None:
    netting, clearing = Netting(), Counter[tuple[int, str]]()
    for buyer, seller, value, quantity in trades:
        sides: dict[int, Counter[str]] = {buyer: Counter(), seller: Counter()}
        for gateway, sign in ((buyer, 1), (seller, -1)):
            sides[gateway].update({"cash:USD": sign * value, "shares:IBM": -sign * quantity})
            clearing.update({(gateway, "cash:USD"): sign * value, (gateway, "shares:IBM"): -sign * quantity})
        netting.add(sides)
    owed: Counter[tuple[int, str]] = Counter()
    debts = netting.debts()
    for debt in debts:
        assert debt.amount > 0
        owed.update({(debt.debtor, debt.asset): debt.amount})
        owed.subtract({(debt.creditor, debt.asset): debt.amount})
    assert {place: amount for place, amount in owed.items() if amount} == {
        place: amount for place, amount in clearing.items() if amount
    }
    assert len({(*sorted((one.debtor, one.creditor)), one.asset) for one in debts}) == len(debts)
