"""Double entry: what may be posted, and what it leaves."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isocast.orders.accounts import AMOUNT_MAX, CLEARING, FEES, UNITS, account_number, cash, shares
from isocast.orders.ledger import (
    Balance,
    Entry,
    EntryKind,
    Fill,
    Ledger,
    Leg,
    Move,
    Pot,
    Reservation,
    deposit,
    free,
    reserve,
    settle_buy,
    settle_sell,
    withdraw,
)
from isocast.terms.errors import LedgerError, LedgerFault

A, B = account_number(1, 16), account_number(2, 16)
USD, IBM = cash("USD"), shares("IBM")


def faulted(ledger: Ledger, entry: Entry) -> LedgerFault:
    """The reason of a refusal, which has changed nothing."""
    before = dict(ledger.balances), dict(ledger.reservations)
    with pytest.raises(LedgerError) as caught:
        ledger.post(entry)
    assert (ledger.balances, ledger.reservations) == before
    return caught.value.fault


def test_two_gateways_settle_a_trade() -> None:
    """Worked example 8."""
    ledger = Ledger()
    fill = Fill(quantity=100, price=10 * UNITS)
    for entry in (
        deposit("1", A, USD, 5_000 * UNITS),
        deposit("2", B, IBM, 100),
        reserve("3", "order A", A, USD, 1_000 * UNITS),
        reserve("4", "order B", B, IBM, 100),
    ):
        assert ledger.post(entry)
    assert ledger.balance(A, USD) == Balance(4_000 * UNITS, 1_000 * UNITS)
    assert ledger.balance(B, IBM) == Balance(0, 100)
    ledger.post(settle_buy("5", "order A", A, USD, IBM, fill, 1_000 * UNITS))
    ledger.post(settle_sell("6", "order B", B, USD, IBM, fill))
    assert ledger.balance(A, USD) == Balance(4_000 * UNITS, 0)
    assert ledger.balance(A, IBM) == Balance(100, 0)
    assert ledger.balance(B, USD) == Balance(1_000 * UNITS, 0)
    assert ledger.balance(account_number(1, CLEARING), USD).available == 1_000 * UNITS
    assert ledger.balance(account_number(2, CLEARING), USD).available == -1_000 * UNITS
    assert ledger.balance(account_number(1, CLEARING), IBM).available == -100
    assert ledger.balance(account_number(2, CLEARING), IBM).available == 100
    assert ledger.reservations == {}


def test_a_better_price_gives_the_rest_back_with_the_settlement() -> None:
    ledger = Ledger()
    ledger.post(deposit("1", A, USD, 2_000 * UNITS))
    ledger.post(reserve("2", "o", A, USD, 1_001 * UNITS))
    ledger.post(settle_buy("3", "o", A, USD, IBM, Fill(100, 9 * UNITS, fee=UNITS), 1_001 * UNITS))
    assert ledger.balance(A, USD) == Balance((2_000 - 901) * UNITS, 0)
    assert ledger.balance(account_number(1, FEES), USD).available == UNITS


def test_nobody_spends_what_he_has_not() -> None:
    ledger = Ledger(limits={(A, IBM): 10})
    ledger.post(deposit("1", A, USD, 100))
    assert faulted(ledger, withdraw("2", A, USD, 101)) is LedgerFault.SHORT
    assert faulted(ledger, reserve("3", "o", A, USD, 101)) is LedgerFault.SHORT
    ledger.post(reserve("4", "o", A, USD, 60))
    assert faulted(ledger, withdraw("5", A, USD, 41)) is LedgerFault.SHORT
    assert faulted(ledger, free("6", "o", A, USD, 61)) is LedgerFault.UNRESERVED
    ledger.post(reserve("7", "short", A, IBM, 10))
    assert ledger.balance(A, IBM) == Balance(-10, 10)
    assert faulted(ledger, reserve("8", "shorter", A, IBM, 1)) is LedgerFault.SHORT


def test_an_order_cannot_spend_what_another_has_bound() -> None:
    ledger = Ledger()
    ledger.post(deposit("1", A, USD, 100))
    ledger.post(deposit("2", A, IBM, 5))
    ledger.post(reserve("3", "first", A, USD, 60))
    ledger.post(reserve("4", "second", A, USD, 40))
    assert faulted(ledger, free("5", "second", A, USD, 41)) is LedgerFault.UNRESERVED
    assert faulted(ledger, reserve("6", "first", A, IBM, 5)) is LedgerFault.UNRESERVED
    assert faulted(ledger, settle_buy("7", "third", A, USD, IBM, Fill(1, 1), 1)) is LedgerFault.UNRESERVED


def test_a_frozen_account_spends_nothing_new_and_settles_what_is_under_way() -> None:
    ledger = Ledger({(A, USD): Balance(100, 50)}, {"o": Reservation(A, USD, 50)}, frozen=[A])
    assert faulted(ledger, withdraw("1", A, USD, 1)) is LedgerFault.FROZEN
    assert faulted(ledger, reserve("2", "p", A, USD, 1)) is LedgerFault.FROZEN
    ledger.post(deposit("3", A, USD, 1))
    ledger.post(settle_buy("4", "o", A, USD, IBM, Fill(5, 5), 25))
    ledger.post(free("5", "o", A, USD, 25))
    assert ledger.balance(A, USD) == Balance(126, 0)


def test_a_key_is_posted_once() -> None:
    ledger = Ledger()
    assert ledger.post(deposit("1", A, USD, 100))
    assert not ledger.post(deposit("1", A, USD, 100))
    assert ledger.balance(A, USD) == Balance(100, 0)
    assert faulted(ledger, deposit("1", A, USD, 101)) is LedgerFault.KEY_USED


@pytest.mark.parametrize("amount", [0, -1, AMOUNT_MAX, -AMOUNT_MAX])
def test_amounts_are_positive_and_can_be_counted(amount: int) -> None:
    for make in (deposit, withdraw):
        with pytest.raises(LedgerError, match=r"2\^62"):
            make("1", A, USD, amount)
    for move in (reserve, free):
        with pytest.raises(LedgerError, match=r"2\^62"):
            move("1", "o", A, USD, amount)
    ledger = Ledger()
    ledger.post(deposit("1", A, USD, AMOUNT_MAX - 1))
    assert faulted(ledger, deposit("2", A, USD, 1)) is LedgerFault.AMOUNT


UNBALANCED = [
    (),
    (Leg(A, USD, Pot.AVAILABLE, 1),),
    (Leg(A, USD, Pot.AVAILABLE, 1), Leg(A, IBM, Pot.AVAILABLE, -1)),
]


@pytest.mark.parametrize("legs", UNBALANCED)
def test_an_entry_that_does_not_balance_cannot_be_made(legs: tuple[Leg, ...]) -> None:
    with pytest.raises(LedgerError, match="sum to zero"):
        Entry("1", EntryKind.DEPOSIT, legs)


def test_a_fee_is_no_more_than_the_value() -> None:
    for wrong in (-1, 26):
        with pytest.raises(LedgerError, match="a fee of"):
            settle_sell("1", "o", A, USD, IBM, Fill(5, 5, fee=wrong))


AMOUNTS = st.integers(1, 1_000)
STEPS = st.lists(
    st.tuples(st.sampled_from(["deposit", "withdraw", "reserve", "free", "buy", "sell"]), st.sampled_from([A, B]),
              st.sampled_from([USD, IBM]), st.integers(0, 3), AMOUNTS, AMOUNTS),
    max_size=60,
)  # fmt: skip


def entry_of(index: int, step: tuple[str, int, str, int, int, int]) -> Entry:
    what, account, asset, order, amount, price = step
    key, holder = str(index), f"{account} {order}"
    match what:
        case "deposit" | "withdraw":
            return (deposit if what == "deposit" else withdraw)(key, account, asset, amount)
        case "reserve" | "free":
            return (reserve if what == "reserve" else free)(key, holder, account, asset, amount)
        case "buy":
            return settle_buy(key, holder, account, USD, IBM, Fill(amount, price, fee=amount // 3), amount * price * 2)
        case _:
            return settle_sell(key, holder, account, USD, IBM, Fill(amount, price, fee=amount // 3))


@settings(max_examples=300)
@given(STEPS)
def test_whatever_is_posted_the_books_balance(steps: list[tuple[str, int, str, int, int, int]]) -> None:
    """T3: sums are zero, nobody is below nothing, and what is reserved is what orders have bound."""
    ledger = Ledger()
    for index, step in enumerate(steps):
        try:
            ledger.post(entry_of(index, step))
        except LedgerError:
            continue
    for asset in (USD, IBM):
        assert sum(sum(balance) for (_, of), balance in ledger.balances.items() if of == asset) == 0
    for account in (A, B):
        for asset in (USD, IBM):
            available, reserved = ledger.balance(account, asset)
            bound = [kept.amount for kept in ledger.reservations.values() if kept[:2] == (account, asset)]
            assert available >= 0
            assert reserved == sum(bound)
            assert all(amount > 0 for amount in bound)


@settings(max_examples=200)
@given(
    st.integers(-3, 12),
    st.sampled_from([0, 5, AMOUNT_MAX - 3]),
    st.sampled_from([0, 4]),
    st.sampled_from([[], [A]]),
    st.sampled_from([A, account_number(1, CLEARING)]),
    st.sampled_from(["", "order/1"]),
)
def test_binding_for_a_new_order_decides_as_posting_the_same_entry_would(
    amount: int, reserved: int, credit: int, frozen: list[int], account: int, known: str
) -> None:
    def fresh() -> Ledger:
        bound = {known: Reservation(account, USD, 1)} if known else {}
        return Ledger({(account, USD): Balance(6, reserved)}, bound, {(account, USD): credit}, frozen)

    def posted(ledger: Ledger) -> LedgerFault | bool:
        try:
            return ledger.post(move.entry())
        except LedgerError as error:
            return error.fault

    one, other, move = fresh(), fresh(), Move("order/1", account, USD, amount)
    outcome = posted(other)
    if one.bind(move):
        assert outcome is True
        assert posted(one) is False  # It is known under its key.
    else:
        assert (one.balances, one.reservations) == (fresh().balances, fresh().reservations)
        assert posted(one) == outcome
    assert (one.balances, one.reservations) == (other.balances, other.reservations)
