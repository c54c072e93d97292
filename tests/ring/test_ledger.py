"""What one receiver holds (§2.1), and that everything else follows from the log."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ring.makers import S1, S2, Chain, founding, message

from isocast.ring.ledger import Checkpoint, Ledger, Stored, universe_after
from isocast.ring.settings import OrderRule
from isocast.terms.errors import LocalProtocolError
from isocast.wire.packets import NO_DIGEST, NO_NONCE, ControlEntry, ControlKind, Data, NextNumber
from isocast.wire.token_body import token_digest


def ledger(chain: Chain | None = None, order: OrderRule = OrderRule.ARRIVAL) -> Ledger:
    found = Ledger(order, 8, Checkpoint(universe=(1, 2, 3)))
    for entry in chain.entries if chain else ():
        found.append(entry)
    return found


def three_tokens() -> Chain:
    """1: S1/1; 2: S1/2, S2/1; 3: S1/3."""
    chain = Chain()
    chain.add(message(1))
    chain.add(message(2), message(1, S2))
    chain.add(message(3))
    return chain


# Messages


def test_a_message_at_or_above_the_next_number_is_kept() -> None:
    found = ledger(three_tokens())
    assert (found.store(message(4)), found.store(message(6)), found.store(message(2, S2))) == (Stored.KEPT,) * 3
    assert list(found.waiting) == [(S1, 4), (S1, 6), (S2, 2)]


def test_a_message_below_the_next_number_is_a_duplicate() -> None:
    """Protocol §3: M < nextM is a duplicate."""
    found = ledger(three_tokens())
    assert (found.store(message(3)), found.store(message(1, S2))) == (Stored.DUPLICATE,) * 2
    assert not found.waiting


def test_a_message_that_waits_already_is_a_duplicate() -> None:
    found = ledger()
    assert (found.store(message(1)), found.store(message(1))) == (Stored.KEPT, Stored.DUPLICATE)


def test_a_message_outside_the_window_is_dropped_and_counted() -> None:
    """Protocol §3: M ≥ nextM+W is dropped and counted."""
    found = ledger()
    assert (found.store(message(8)), found.store(message(9))) == (Stored.KEPT, Stored.OUTSIDE_WINDOW)
    assert (list(found.waiting), found.dropped) == ([(S1, 8)], 1)


def test_a_base_above_the_next_number_says_that_the_site_is_behind() -> None:
    """Protocol §3: base > nextM means that the site is behind `stable`."""
    found = ledger()
    assert found.store(message(4, base=3)) is Stored.BEHIND
    assert (S1, 4) in found.waiting


# Tokens


def test_what_is_missing_of_a_token_is_named() -> None:
    entry = Chain().add(message(1), message(2), message(1, S2))
    found = ledger()
    found.store(message(2))
    assert found.missing(entry.token) == [(S1, 1), (S2, 1)]


def test_a_token_is_gathered_only_with_all_its_messages() -> None:
    """Protocol §12, mistake 2: accepting a token without its payloads."""
    entry = Chain().add(message(1), message(1, S2), message(2))
    found = ledger()
    for held in entry.messages[:2]:
        found.store(held)
    assert found.gather(entry.token) is None
    found.store(entry.messages[2])
    assert found.gather(entry.token) == entry


def test_a_copy_that_differs_from_the_owners_is_dropped_and_asked_for_again() -> None:
    entry = Chain().add(message(1), message(2))
    found = ledger()
    found.store(message(1))
    found.store(replace(message(2), payload=b"forged"))
    assert found.gather(entry.token) is None
    assert found.missing(entry.token) == [(S1, 1), (S1, 2)]


def test_messages_stand_in_the_rings_order() -> None:
    chain = Chain(order=OrderRule.SHUFFLE)
    batch = [message(number, source) for number in range(1, 6) for source in (S1, S2)]
    entry = chain.add(*batch)
    found = ledger(order=OrderRule.SHUFFLE)
    for held in reversed(batch):
        found.store(held)
    assert found.gather(entry.token) == entry
    assert list(entry.messages) != batch


@pytest.mark.parametrize(
    "wrong", [{"token_number": 5}, {"prev_digest": NO_DIGEST}, {"first_sequence": 4}, {"token_number": 3}]
)
def test_a_token_follows_by_number_chain_and_sequence(wrong: dict[str, int]) -> None:
    chain = three_tokens()
    found = ledger(chain)
    token = chain.add().token
    assert found.follows(token)
    assert not found.follows(replace(token, **wrong))  # type: ignore[arg-type]


def test_a_token_that_repeats_or_skips_a_number_of_a_source_does_not_follow() -> None:
    """Protocol §5, step 5: only M = nextM is ever acknowledged."""
    chain = three_tokens()
    found = ledger(chain)
    for number in (3, 5):
        assert not found.follows(chain.fork().add(message(number)).token)
    assert found.follows(chain.add(message(4)).token)


# The log


def test_everything_follows_from_the_log() -> None:
    chain = three_tokens()
    found = ledger(chain)
    assert (found.held, found.digest) == (3, token_digest(chain.entries[2].token))
    assert found.next_number == {S1: 4, S2: 2}
    assert found.head.next_sequence == 5


def test_an_entry_takes_its_messages_out_of_the_store() -> None:
    found = ledger()
    found.store(message(1))
    found.store(message(2))
    found.append(Chain().add(message(1)))
    assert list(found.waiting) == [(S1, 2)]


def test_an_entry_out_of_turn_is_our_own_mistake() -> None:
    chain = three_tokens()
    with pytest.raises(LocalProtocolError, match="token 2 does not follow 0"):
        ledger().append(chain.entries[1])


def test_cutting_back_rolls_back_next_numbers_and_lets_messages_wait_again() -> None:
    """Protocol §12, mistake 9: ack, truncate, resubmit, "duplicate", lost."""
    chain = three_tokens()
    found = ledger(chain)
    found.truncate(1)
    assert (found.held, found.next_number, found.head.next_sequence) == (1, {S1: 2}, 2)
    assert found.digest == token_digest(chain.entries[0].token)
    assert sorted(found.waiting) == [(S1, 2), (S1, 3), (S2, 1)]
    assert found.store(message(2)) is Stored.DUPLICATE, "it waits already"
    other = chain.fork()
    assert not found.follows(other.add().token), "the old end is not ours any more"


def test_cutting_back_to_where_the_log_ends_changes_nothing() -> None:
    found = ledger(three_tokens())
    found.truncate(3)
    found.truncate(7)
    assert (found.held, found.waiting) == (3, {})


def test_what_is_collected_leaves_memory_and_stays_part_of_the_log() -> None:
    chain = three_tokens()
    found = ledger(chain)
    found.collect(2)
    assert (found.collected, found.held, list(found.entries)) == (2, 3, [3])
    assert found.next_number == {S1: 4, S2: 2}
    assert [found.digest_at(number) is None for number in (1, 2, 3, 4)] == [True, False, False, True]
    assert found.follows(chain.add().token)


def test_nothing_beyond_the_log_is_collected() -> None:
    found = ledger(three_tokens())
    found.collect(99)
    assert (found.collected, found.held) == (3, 3)


def test_what_is_collected_cannot_be_cut_back() -> None:
    found = ledger(three_tokens())
    found.collect(2)
    with pytest.raises(LocalProtocolError, match="everything up to 2 is stable"):
        found.truncate(1)


@given(st.integers(0, 6), st.integers(0, 6), st.integers(0, 6))
def test_a_log_cut_back_and_grown_again_is_the_log_that_never_was_cut(grown: int, cut: int, kept: int) -> None:
    chain = Chain()
    for number in range(1, grown + 1):
        chain.add(message(number))
    found = ledger(chain)
    found.collect(min(kept, cut))
    found.truncate(cut)
    for entry in chain.entries[cut:]:
        found.append(entry)
    assert (found.held, found.digest, found.next_number) == (grown, chain.head.digest, chain.head.next_number)
    assert not found.waiting


def test_the_token_that_acknowledged_a_message_is_found_while_in_memory() -> None:
    chain = three_tokens()
    found = ledger(chain)
    assert found.acknowledging(S2, 1) == chain.entries[1].token
    assert found.acknowledging(S2, 2) is None
    found.collect(2)
    assert found.acknowledging(S2, 1) is None


def test_nonces_are_known_back_to_the_floor() -> None:
    chain = three_tokens()
    found = ledger(chain)
    assert found.reveal_at(0) == NO_NONCE
    found.collect(1)
    assert [found.reveal_at(number) for number in (1, 3)] == [chain.entries[0].token.reveal, chain.head.reveal]


def test_a_vote_names_the_next_numbers_of_sources_in_memory() -> None:
    found = ledger(three_tokens())
    assert found.unstable_next_numbers(9) == (NextNumber(S1, 4), NextNumber(S2, 2))
    assert found.unstable_next_numbers(1) == (NextNumber(S1, 4),)
    found.collect(2)
    assert found.unstable_next_numbers(9) == (NextNumber(S1, 4),)


# The universe


def change(kind: ControlKind, site: int) -> ControlEntry:
    return ControlEntry(kind, site, b"")


def test_u_grows_and_shrinks_by_control_entries() -> None:
    """Protocol §2: U plus or minus one site."""
    chain = Chain()
    added = chain.add(control=(change(ControlKind.ADD_SITE, 4),)).token
    removed = chain.add(control=(change(ControlKind.REMOVE_SITE, 1), change(ControlKind.MARK, 2))).token
    assert universe_after((1, 2, 3), added) == (1, 2, 3, 4)
    assert universe_after((1, 2, 3, 4), removed) == (2, 3, 4)
    assert universe_after((1, 2, 3, 4), added) == (1, 2, 3, 4)
    assert ledger(chain).universe == (2, 3, 4)


def test_cutting_back_takes_a_change_of_u_back() -> None:
    chain = Chain().grow(1)
    chain.add(control=(change(ControlKind.ADD_SITE, 4),))
    found = ledger(chain)
    found.truncate(1)
    assert found.universe == (1, 2, 3)


def test_a_change_of_u_is_uncertified_until_its_token_is_certified() -> None:
    chain = Chain().grow(1)
    chain.add(control=(change(ControlKind.ADD_SITE, 4),))
    found = ledger(chain.grow(1))
    assert found.uncertified_change(1) == (2, (1, 2, 3))
    assert found.uncertified_change(2) == (0, (1, 2, 3, 4))


def test_checkpoints_are_independent() -> None:
    one = Checkpoint(next_number={S1: 3})
    other = one.copy()
    other.next_number[S1] = 9
    assert one.next_number == {S1: 3}


def test_a_message_keeps_its_content_through_a_cut() -> None:
    chain = Chain(founding())
    held = Data(0, chain.ring.ballot, S1, 1, 1, b"content")
    chain.add(held)
    found = ledger(chain)
    found.truncate(0)
    assert found.waiting[S1, 1] is held
