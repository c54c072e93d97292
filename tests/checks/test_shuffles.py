"""A journal's own keys say where its messages stand: computed again, and every departure counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.checks.proven_journals import SignedMarket, views

from isocast.checks.shuffles import Shuffles, ShuffleWalk
from isocast.ring.settings import OrderRule
from isocast.wire.journal_blocks import ReleasedBlock


def market(order: OrderRule, mixed: int = 12) -> list[ReleasedBlock]:
    """Tokens with five messages of two floors, and one whose messages are all of one."""
    made = SignedMarket(order=order, is_sealed=False)
    for _ in range(mixed):
        made.add(1, 2, 1, 2, 2)
    made.add(1, 1)
    return made.finish().blocks


def judged(blocks: Sequence[ReleasedBlock]) -> Shuffles:
    walk = ShuffleWalk()
    for view in views(blocks):
        walk.take(view)
    walk.end()
    return walk.report


def test_every_token_of_a_market_that_shuffles_is_verified() -> None:
    found = judged(market(OrderRule.SHUFFLE))
    assert found == Shuffles(verified=12, alone=1)
    assert found.is_shuffled


def test_a_market_that_orders_by_arrival_departs_from_its_keys() -> None:
    found = judged(market(OrderRule.ARRIVAL))
    assert found.other > 0
    assert found.verified + found.other == 12
    assert found.is_shuffled is False


def test_without_messages_of_several_sources_nothing_is_shown() -> None:
    found = judged(market(OrderRule.SHUFFLE, mixed=0))
    assert found == Shuffles(alone=1)
    assert found.is_shuffled is None


def test_messages_that_changed_places_are_named() -> None:
    blocks = market(OrderRule.SHUFFLE)
    at = 7
    messages = list(blocks[at].messages)
    swapped = next(place for place in range(4) if messages[place][0] != messages[place + 1][0])
    messages[swapped : swapped + 2] = reversed(messages[swapped : swapped + 2])
    found = judged([*blocks[:at], replace(blocks[at], messages=messages), *blocks[at + 1 :]])
    assert (found.verified, found.first_other) == (at, blocks[at].token_number)


def test_another_key_is_another_order() -> None:
    blocks = market(OrderRule.SHUFFLE)
    found = judged([replace(block, shuffle_key=b"k" * 16) for block in blocks])
    assert found.first_other is not None


def test_what_was_released_in_steps_is_one_token() -> None:
    blocks = market(OrderRule.SHUFFLE)
    steps = [part for block in blocks for part in (block.part(0, 2), block.part(2)) if part.messages]
    assert judged(steps) == judged(blocks)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_token_of_which_a_part_is_not_here_is_unknown(lost: int) -> None:
    blocks = market(OrderRule.SHUFFLE, mixed=2)
    steps = [part for block in blocks for part in (block.part(0, 2), block.part(2)) if part.messages]
    del steps[lost]
    assert judged(steps) == Shuffles(verified=1, alone=1, unknown=1)


def test_what_was_fetched_from_others_has_no_key() -> None:
    blocks = [replace(block, shuffle_key=bytes(16), fetched=True) for block in market(OrderRule.SHUFFLE, mixed=3)]
    assert judged(blocks) == Shuffles(unknown=4)
