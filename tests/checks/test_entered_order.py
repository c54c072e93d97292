"""T8: a token whose events do not enter by its key is told; who is first is computed twice, in two ways."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from isocast.checks.entered_order import EnteredOrder
from isocast.checks.floor_acts import FloorAct, FloorMoment, FloorTranscript
from isocast.terms.entry import EntryRule, entry_order

KEYS = st.binary(min_size=16, max_size=16)
ACCOUNTS = st.lists(st.one_of(st.none(), st.integers(0, 4)), max_size=12)


def token(accounts: list[int | None], entered: list[int], key: bytes) -> FloorTranscript:
    fields = [{} if accounts[place] is None else {"account": accounts[place]} for place in entered]
    acts = [FloorAct(FloorMoment.EVENT, "", one, (), place) for one, place in zip(fields, entered, strict=True)]
    begin, end = FloorAct(FloorMoment.BEGIN, "", {}, ()), FloorAct(FloorMoment.END, "", {}, ())
    return FloorTranscript(7, 70, (begin, *acts, end), key)


@given(ACCOUNTS, KEYS)
def test_the_order_of_the_key_is_right(accounts: list[int | None], key: bytes) -> None:
    order = entry_order(accounts, key, EntryRule.SHUFFLE)
    assert not list(EnteredOrder().step(token(accounts, order, key)))


@given(ACCOUNTS, KEYS, st.data())
def test_any_other_order_is_told(accounts: list[int | None], key: bytes, data: st.DataObject) -> None:
    order = entry_order(accounts, key, EntryRule.SHUFFLE)
    other = data.draw(st.permutations(order))
    found = list(EnteredOrder().step(token(accounts, other, key)))
    assert [one.property for one in found] == ["T8"] * (other != order)


def test_it_is_told_with_both_orders() -> None:
    key = next(
        key for key in map(int.to_bytes, range(1, 99), [16] * 99) if entry_order([5, 6], key, EntryRule.SHUFFLE)[0]
    )
    (wrong,) = EnteredOrder().step(token([5, 6], [0, 1], key))
    assert wrong.token == 7
    assert wrong.text == "its events enter in the order 1, 2 of the sequence, and by its key in 2, 1"


def test_a_token_of_which_the_key_is_not_known_is_not_judged() -> None:
    assert not list(EnteredOrder().step(token([5, 6], [1, 0], b"")))
