"""Tokens too large for a datagram, put together again."""

from __future__ import annotations

from itertools import permutations

import pytest
from tests.ring.makers import NEXT_EPOCH, Chain

from isocast.ring.token import TOKENS_MAX, PartStore
from isocast.wire.packets import ControlEntry, ControlKind, Token, TokenPart
from isocast.wire.token_body import split_token

MARK = ControlEntry(ControlKind.MARK, 1, bytes(3_000))


def large_token(number: int = 1) -> Token:
    """A token of three parts."""
    return Chain().grow(number - 1).add(control=(MARK,)).token


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_parts_in_any_order_make_the_token(order: tuple[int, ...]) -> None:
    """Protocol §2: fragments are requested individually."""
    token, store = large_token(), PartStore()
    parts = split_token(token)
    assert [store.add(parts[place]) for place in order] == [None, None, token]
    assert store.held(1) == 0


def test_a_part_twice_counts_once() -> None:
    parts, store = split_token(large_token()), PartStore()
    assert [store.add(parts[0]), store.add(parts[0]), store.add(parts[1])] == [None, None, None]
    assert store.held(1) == 0b011


def test_what_is_held_is_a_bitmap_for_the_next_request() -> None:
    parts, store = split_token(large_token()), PartStore()
    store.add(parts[2])
    assert (store.held(1), store.held(2)) == (0b100, 0)


def test_parts_of_another_epoch_displace_the_old_ones() -> None:
    parts, store = split_token(large_token()), PartStore()
    store.add(parts[0])
    store.add(parts[1]._replace(epoch=NEXT_EPOCH))
    assert store.held(1) == 0b010


def test_parts_that_make_no_token_are_dropped_and_counted() -> None:
    parts, store = split_token(large_token()), PartStore()
    for part in parts[:2]:
        store.add(part)
    assert store.add(parts[2]._replace(body=b"junk")) is None
    assert (store.refused, store.held(1)) == (1, 0)


def test_the_store_is_bounded() -> None:
    store = PartStore()
    for number in range(1, TOKENS_MAX + 5):
        store.add(split_token(large_token())[0]._replace(token_number=number))
    assert sum(store.held(number) for number in range(1, TOKENS_MAX + 5)) == TOKENS_MAX


def test_many_tokens_under_way_do_not_keep_the_oldest_from_completing() -> None:
    """Protocol §3: h+1 is what a receiver needs; nothing after it can be used before."""
    store, token = PartStore(), large_token()
    for number in range(2, TOKENS_MAX + 2):
        store.add(TokenPart(0, token.epoch, 1, number, 0, 2, b""))
    assert [store.add(part) for part in split_token(token)][-1] == token


def test_forgetting_drops_up_to_a_number_and_clearing_drops_all() -> None:
    part, store = split_token(large_token())[0], PartStore()
    for number in (1, 2, 3):
        store.add(part._replace(token_number=number))
    store.forget(2)
    assert [store.held(number) for number in (1, 2, 3)] == [0, 0, 1]
    store.clear()
    assert store.held(3) == 0


def test_a_source_follows_the_newest_token_whatever_became_of_older_ones() -> None:
    """A store full of tokens whose parts never come must not shut out every later token."""
    store = PartStore(newest_first=True)
    for number in range(1, TOKENS_MAX + 1):
        store.add(split_token(large_token(number))[0])
    token = large_token(TOKENS_MAX + 1)
    assert [store.add(part) for part in split_token(token)][-1] == token
