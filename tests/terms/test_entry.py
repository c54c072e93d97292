"""Who is first inside a token: by arrival, by keyed shuffle over events, or nobody."""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.terms.entry import EntryRule, entry_groups, entry_order

KEY = bytes(range(16))
ACCOUNTS = st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=40)
KEYS = st.binary(min_size=16, max_size=16)
RULES = st.sampled_from(EntryRule)


def key_of(number: int) -> bytes:
    """As many keys as one likes, the same in every run."""
    return blake2b(number.to_bytes(8, "little"), digest_size=16).digest()


def of_account(order: list[int], accounts: list[int | None], account: int | None) -> list[int]:
    return [place for place in order if accounts[place] == account]


@given(ACCOUNTS, KEYS, RULES, st.data())
def test_every_event_enters_once(accounts: list[int | None], key: bytes, rule: EntryRule, data: st.DataObject) -> None:
    linked = data.draw(st.lists(st.booleans(), min_size=len(accounts), max_size=len(accounts)))
    assert sorted(entry_order(accounts, key, rule, linked)) == list(range(len(accounts)))


@given(ACCOUNTS, KEYS, RULES, st.data())
def test_each_account_keeps_its_own_order(
    accounts: list[int | None], key: bytes, rule: EntryRule, data: st.DataObject
) -> None:
    """T8: every trader's order kept."""
    linked = data.draw(st.lists(st.booleans(), min_size=len(accounts), max_size=len(accounts)))
    order = entry_order(accounts, key, rule, linked)
    for account in [None, *range(6)]:
        own = of_account(order, accounts, account)
        assert own == sorted(own)


@given(ACCOUNTS, KEYS, st.sampled_from([EntryRule.SHUFFLE, EntryRule.BATCH]))
def test_events_without_an_account_come_first(accounts: list[int | None], key: bytes, rule: EntryRule) -> None:
    order = entry_order(accounts, key, rule)
    ahead = [place for place, account in enumerate(accounts) if account is None]
    assert order[: len(ahead)] == ahead


@given(ACCOUNTS, KEYS)
def test_by_arrival_the_order_is_that_of_the_sequence(accounts: list[int | None], key: bytes) -> None:
    assert entry_order(accounts, key, EntryRule.ARRIVAL) == list(range(len(accounts)))


@given(ACCOUNTS, KEYS, st.data())
def test_linked_events_move_as_one(accounts: list[int | None], key: bytes, data: st.DataObject) -> None:
    linked = data.draw(st.lists(st.booleans(), min_size=len(accounts), max_size=len(accounts)))
    order = entry_order(accounts, key, EntryRule.SHUFFLE, linked)
    for place in range(len(accounts) - 1):
        if linked[place] and accounts[place] == accounts[place + 1]:
            assert order.index(place + 1) == order.index(place) + 1


def test_nobody_links_an_event_to_another_accounts() -> None:
    found = {tuple(entry_order([1, 2, 3], key_of(n), EntryRule.SHUFFLE, [True, False, False])) for n in range(200)}
    assert found == set(permutations(range(3)))


@given(st.permutations([1, 1, 1, 2, 2, 3, 4, 5]), KEYS)
def test_the_order_of_arrival_is_worth_nothing(accounts: list[int | None], key: bytes) -> None:
    """Whose turn it is follows from the key alone, however the accounts' events were mixed when they came."""
    plain: list[int | None] = [1, 1, 1, 2, 2, 3, 4, 5]
    turns = [accounts[place] for place in entry_order(accounts, key, EntryRule.SHUFFLE)]
    assert turns == [plain[place] for place in entry_order(plain, key, EntryRule.SHUFFLE)]


def test_every_order_is_equally_likely() -> None:
    """Chi-square over 12,000 keys: 23 degrees of freedom exceed 49.7 once in a thousand draws."""
    counts = Counter(tuple(entry_order([7, 8, 9, 10], key_of(n), EntryRule.SHUFFLE)) for n in range(12_000))
    expected = 12_000 / 24
    assert len(counts) == 24
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < 49.7


def test_every_mixture_is_equally_likely_where_accounts_have_several_events() -> None:
    """3 of one account, 2 of another: 10 sets of places; 9 degrees of freedom exceed 27.9 once in a thousand."""
    accounts: list[int | None] = [1, 1, 1, 2, 2]
    counts: Counter[tuple[int | None, ...]] = Counter()
    for number in range(10_000):
        counts[tuple([accounts[place] for place in entry_order(accounts, key_of(number), EntryRule.SHUFFLE)])] += 1
    assert len(counts) == 10
    assert sum((count - 1_000) ** 2 / 1_000 for count in counts.values()) < 27.9


@pytest.mark.parametrize(
    "accounts, linked, expected",
    [
        ([1, 2, 3, 4, 5], [], [2, 1, 4, 3, 0]),
        ([1, 1, 2, 2, None, 3], [], [4, 5, 0, 2, 3, 1]),
        ([1, 1, 2, 2, 2, 3], [True, False, False, True, False, False], [5, 2, 3, 4, 0, 1]),
        ([2**32 - 1, 0, None, 2**32 - 1], [], [2, 0, 1, 3]),
    ],
)
def test_golden_orders(accounts: list[int | None], linked: list[bool], expected: list[int]) -> None:
    """The same on every machine and in every release: a journal of today is checked in ten years."""
    assert entry_order(accounts, KEY, EntryRule.SHUFFLE, linked) == expected


def test_in_a_batch_all_accounts_have_one_time() -> None:
    accounts = [1, None, 2, 1, None]
    groups = entry_groups(accounts, KEY, EntryRule.BATCH)
    assert groups[:2] == [[1], [4]]
    assert len(groups) == 3
    shuffled = entry_order(accounts, KEY, EntryRule.SHUFFLE)
    assert groups[2] == shuffled[2:]
    assert [len(group) for group in entry_groups(accounts, KEY, EntryRule.SHUFFLE)] == [1] * 5


def test_nothing_enters_from_an_empty_token() -> None:
    assert [entry_groups([], KEY, rule) for rule in EntryRule] == [[], [], []]
