"""What a token acknowledges, and in which order (§5; protocol §2 and §3)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ring.makers import EPOCH, S1, S2, message

from isocast.ring.settings import OrderRule
from isocast.ring.token import choose, fair_shares, grants, label_order, nonce, run_digest, runs_of, shuffle_key
from isocast.terms.ids import NodeId, source_id
from isocast.wire.limits import MAX_GRANTS
from isocast.wire.packets import NO_DIGEST, NO_NONCE, Data, Grant, Token, digest_of

SOURCES = [source_id(number) for number in range(1, 5)]


def waiting(*messages: Data) -> dict[tuple[NodeId, int], Data]:
    """Messages in order of arrival."""
    return {(held.sender, held.number): held for held in messages}


def labels(messages: list[Data]) -> list[tuple[NodeId, int]]:
    return [(held.sender, held.number) for held in messages]


def token_of(messages: list[Data], reveal: bytes = b"r" * 16) -> Token:
    runs, interleave = runs_of(messages)
    return Token(0, EPOCH, 1, 1, 0, 1, runs, interleave, (), NO_NONCE, reveal, 0, 0, (), NO_DIGEST)


@st.composite
def batches(draw: st.DrawFn) -> list[Data]:
    """Batches in which each source's numbers ascend, as `choose` makes them."""
    first = {source: draw(st.integers(1, 5)) for source in SOURCES}
    order = draw(st.lists(st.sampled_from(SOURCES), max_size=24))
    batch = []
    for source in order:
        batch.append(message(first[source], source))
        first[source] += 1
    return batch


# Choosing


def test_what_waits_is_taken_in_order_of_arrival() -> None:
    arrived = [message(1, S2), message(1, S1), message(2, S2), message(2, S1)]
    assert choose(waiting(*arrived), {}, 9) == arrived


def test_a_prefix_ends_at_the_first_gap() -> None:
    """Protocol §3: each source's contiguous prefix from nextM."""
    assert labels(choose(waiting(message(1), message(2), message(4)), {}, 9)) == [(S1, 1), (S1, 2)]


def test_a_prefix_starts_at_the_next_number() -> None:
    assert labels(choose(waiting(message(3), message(4)), {S1: 3}, 9)) == [(S1, 3), (S1, 4)]
    assert choose(waiting(message(3), message(4)), {S1: 2}, 9) == []


def test_a_message_that_overtook_its_predecessor_takes_its_place_behind_it() -> None:
    """Protocol §12, mistake 6: M+1 overtakes M, and that proves nothing."""
    arrived = waiting(message(2), message(3), message(1, S2), message(1), message(2, S2))
    assert labels(choose(arrived, {}, 9)) == [(S2, 1), (S1, 1), (S1, 2), (S1, 3), (S2, 2)]


def test_a_token_takes_no_more_than_its_maximum_and_keeps_each_prefix() -> None:
    arrived = [message(number) for number in range(1, 9)] + [message(1, S2), message(2, S2)]
    assert labels(choose(waiting(*arrived), {}, 5)) == [(S1, 1), (S1, 2), (S1, 3), (S2, 1), (S2, 2)]


# Shares and grants


def test_who_asks_for_little_gets_it_and_the_rest_is_shared() -> None:
    assert fair_shares({S1: 2, S2: 20, SOURCES[2]: 20}, 12) == {S1: 2, S2: 5, SOURCES[2]: 5}


@given(st.dictionaries(st.sampled_from(SOURCES), st.integers(0, 30), min_size=1), st.integers(0, 60))
def test_shares_are_max_min_fair(demand: dict[NodeId, int], capacity: int) -> None:
    """Protocol §7: `grants` sets each source's window by max-min share."""
    shares = fair_shares(demand, capacity)
    assert sum(shares.values()) == min(sum(demand.values()), capacity)
    assert all(shares[source] <= demand[source] for source in demand)
    hungry = [shares[source] for source in demand if shares[source] < demand[source]]
    assert not hungry or max(shares.values()) <= min(hungry) + 1


def test_nobody_is_held_back_while_everything_fits() -> None:
    assert grants({S1: 9, S2: 7}, 16) == ()


def test_whoever_offers_more_than_its_share_gets_a_window() -> None:
    assert grants({S1: 2, S2: 30}, 16) == (Grant(S2, 14),)


def test_a_window_is_never_shut() -> None:
    demand = dict.fromkeys(SOURCES, 3)
    assert grants(demand, 2) == tuple([Grant(source, 1) for source in SOURCES])


def test_windows_are_granted_to_as_many_sources_as_a_token_carries() -> None:
    """Protocol §7: an overload of very many sources must slow them down, not stop the owner."""
    crowd = {source_id(number): 10 for number in range(1, MAX_GRANTS + 400)}
    assert len(grants(crowd, 16_384)) <= MAX_GRANTS


# Runs


def test_a_run_is_one_sources_stretch_with_its_digest() -> None:
    batch = [message(4), message(5)]
    runs, interleave = runs_of(batch)
    assert [(run.source, run.first, run.count) for run in runs] == [(S1, 4, 2)]
    assert runs[0].digest == run_digest(batch) == digest_of(batch[0].digest, batch[1].digest)
    assert interleave == ()


def test_runs_that_follow_one_another_need_no_interleaving() -> None:
    assert runs_of([message(1), message(2), message(7, S2)])[1] == ()
    assert runs_of([message(1), message(7, S2), message(2)])[1] == ((0, 1), (1, 1), (0, 1))


@given(batches())
def test_runs_and_interleaving_restore_the_order_of_arrival(batch: list[Data]) -> None:
    """Protocol §2: the order of messages inside a token follows from the runs and the ring's order rule."""
    assert label_order(token_of(batch), OrderRule.ARRIVAL, b"") == labels(batch)


# Shuffle


@given(batches(), st.binary(min_size=16, max_size=16))
def test_a_shuffle_keeps_every_message_and_each_sources_order(batch: list[Data], key: bytes) -> None:
    """Protocol §2: labels are sorted by keyed hash, each source's order kept."""
    order = label_order(token_of(batch), OrderRule.SHUFFLE, key)
    assert sorted(order) == sorted(labels(batch))
    for source in SOURCES:
        own = [number for sender, number in order if sender == source]
        assert all(later == number + 1 for number, later in pairwise(own))


def test_a_shuffle_is_a_function_of_the_key_and_not_of_the_order_of_arrival() -> None:
    batch = [message(number, source) for number in range(1, 6) for source in SOURCES]
    other = [message(number, source) for source in reversed(SOURCES) for number in range(1, 6)]
    key = b"k" * 16
    assert label_order(token_of(batch), OrderRule.SHUFFLE, key) == label_order(token_of(other), OrderRule.SHUFFLE, key)
    assert label_order(token_of(batch), OrderRule.SHUFFLE, b"l" * 16) != label_order(
        token_of(batch), OrderRule.SHUFFLE, key
    )


def test_under_the_shuffle_arrival_is_worth_nothing() -> None:
    """Protocol §11: rotation alone is not fair, a keyed shuffle inside each token is."""
    token = token_of([message(1, S1), message(1, S2)])
    firsts = [label_order(token, OrderRule.SHUFFLE, nonce(b"", draw))[0][0] for draw in range(2_000)]
    assert firsts.count(S1) / 2_000 == pytest.approx(0.5, abs=0.04)


def test_the_key_depends_on_both_owners_nonces() -> None:
    """Protocol §2: a hash of the nonces revealed in t and t-1: no single site chooses it."""
    token, other = token_of([], b"a" * 16), token_of([], b"b" * 16)
    keys = {shuffle_key(token, b"p" * 16), shuffle_key(other, b"p" * 16), shuffle_key(token, b"q" * 16)}
    assert len(keys) == 3


def test_a_nonce_is_the_same_after_a_restart_and_another_for_every_token() -> None:
    assert nonce(b"secret", EPOCH, 3) == nonce(b"secret", EPOCH, 3)
    assert len({nonce(b"secret", EPOCH, 3), nonce(b"secret", EPOCH, 4), nonce(b"other", EPOCH, 3)}) == 3
