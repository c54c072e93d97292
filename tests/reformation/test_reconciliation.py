"""Bringing one log to the cut of a new ring (protocol §5, step 4)."""

from __future__ import annotations

from dataclasses import replace

from tests.ring.makers import NEXT_EPOCH, SETTINGS, Chain, following, ledger_of, message, point_at

from isocast.reformation.reconciliation import (
    CutFetch,
    Fetched,
    Reconciled,
    Reconciliation,
    WantedMessages,
    WantedTokens,
)
from isocast.ring.ledger import Checkpoint, Ledger
from isocast.ring.settings import OrderRule
from isocast.terms.ids import NodeId
from isocast.wire.packets import Range, RangeReply, RangeRequest


def numbered(*numbers: int) -> Chain:
    chain = Chain()
    for number in numbers:
        chain.add(message(number))
    return chain


def work(towards: Chain, own: Ledger) -> Reconciliation:
    return Reconciliation(following(towards), own)


def labels(wanted: WantedTokens | WantedMessages) -> list[tuple[NodeId, int]]:
    assert isinstance(wanted, WantedMessages)
    return list(wanted.labels)


def test_a_site_at_the_cut_is_done_at_once() -> None:
    chain = numbered(1, 2)
    assert work(chain, ledger_of(chain)).result() == Reconciled(2, ())


def test_a_site_beyond_the_cut_is_cut_back_to_it() -> None:
    chain = numbered(1)
    longer = chain.fork()
    longer.add(message(2))
    assert work(chain, ledger_of(longer)).result() == Reconciled(1, ())


def test_a_site_behind_fetches_tokens_and_messages() -> None:
    chain = numbered(1, 2, 3)
    work_on = work(chain, ledger_of(numbered(1)))
    assert work_on.wanted() == WantedTokens(Range.HEADS, 2, 3)
    for entry in reversed(chain.entries[1:]):
        work_on.offer(entry.token)
    assert work_on.result() is None
    assert labels(work_on.wanted()) == [(message(2).sender, 2)]
    work_on.offer(message(2))
    assert work_on.result() is None, "half a reconciliation is worth nothing"
    work_on.offer(message(3))
    assert work_on.result() == Reconciled(1, tuple(chain.entries[1:]))


def test_divergent_tokens_below_the_cut_are_found_by_the_chained_digest() -> None:
    """Protocol §5, step 4: a stale site may hold divergent tokens *below* the cut."""
    common = numbered(1)
    stale, alive = common.fork(), common.fork()
    for _ in range(3):
        stale.add()
    alive.add(message(2))
    alive.add()
    work_on = work(alive, ledger_of(stale))
    assert work_on.result() is None, "it holds token 3, but another one"
    work_on.offer(alive.entries[2].token)
    work_on.offer(alive.entries[1].token)
    work_on.offer(message(2))
    assert work_on.result() == Reconciled(1, tuple(alive.entries[1:]))


def test_messages_of_tokens_that_are_cut_need_not_be_fetched_again() -> None:
    common = numbered(1)
    stale, alive = common.fork(), common.fork()
    stale.add(message(2), message(3))
    alive.add(message(2))
    work_on = work(alive, ledger_of(stale))
    work_on.offer(alive.entries[1].token)
    assert work_on.result() == Reconciled(1, (alive.entries[1],))


def test_messages_that_wait_need_not_be_fetched_either() -> None:
    chain = numbered(1, 2)
    own = ledger_of(numbered(1))
    own.store(message(2))
    work_on = work(chain, own)
    work_on.offer(chain.entries[1].token)
    assert work_on.result() == Reconciled(1, (chain.entries[1],))


def test_a_token_that_is_not_of_the_chain_is_not_taken() -> None:
    chain = numbered(1, 2)
    work_on = work(chain, ledger_of(numbered(1)))
    work_on.offer(replace(chain.entries[1].token, stable=7))
    work_on.offer(message(2))
    assert work_on.result() is None
    work_on.offer(chain.entries[1].token)
    assert work_on.result() is not None


def test_a_site_that_was_away_asks_for_whole_ranges() -> None:
    chain = Chain().grow(80)
    wanted = work(chain, ledger_of(Chain())).wanted()
    assert isinstance(wanted, WantedTokens)
    assert (wanted.kind, wanted.last) == (Range.TOKENS, 80)
    assert wanted.last - wanted.first < 32


def test_a_copy_of_ours_that_differs_is_fetched_again() -> None:
    chain = numbered(1, 2)
    own = ledger_of(numbered(1))
    own.store(replace(message(2), payload=b"forged"))
    work_on = work(chain, own)
    work_on.offer(chain.entries[1].token)
    assert work_on.result() is None
    work_on.offer(message(2))
    assert work_on.result() == Reconciled(1, (chain.entries[1],))


def parted(common: int, own: int, others: int) -> tuple[Ledger, Chain]:
    """A log that went its own way behind a common prefix, and that of the others."""
    stale = Chain().grow(common)
    alive = stale.fork()
    stale.grow(own)
    alive.add(message(1))
    return ledger_of(stale), alive.grow(others - 1)


def test_down_through_tokens_of_its_own_a_site_goes_twice_as_far_each_time() -> None:
    """Seed 2123: one by one took longer than a ring waits for its members."""
    own, alive = parted(2, 20, 24)
    work_on = work(alive, own)
    asked = []
    while work_on.result() is None:
        wanted = work_on.wanted()
        assert isinstance(wanted, WantedTokens)
        asked.append((wanted.first, wanted.last))
        for entry in alive.entries[wanted.first - 1 : wanted.last]:
            work_on.offer(entry.token)
            for data in entry.messages:
                work_on.offer(data)
    assert asked == [(23, 26), (22, 22), (20, 21), (16, 19), (8, 15), (1, 7)]


def test_what_was_fetched_on_the_way_to_one_ring_counts_on_the_way_to_the_next() -> None:
    """Seed 2123: each ring began anew, and none waited long enough."""
    chain = numbered(1, 2, 3, 4, 5)
    own, fetched = ledger_of(numbered(1)), Fetched()
    before = Reconciliation(following(chain), own, fetched)
    for entry in chain.entries[1:4]:
        before.offer(entry.token)
        before.offer(entry.messages[0])
    chain.add(message(6))
    work_on = Reconciliation(following(chain), own, fetched)
    for entry in chain.entries[4:]:
        assert work_on.result() is None
        work_on.offer(entry.token)
        work_on.offer(entry.messages[0])
    assert work_on.result() == Reconciled(1, tuple(chain.entries[1:]))


def test_what_was_fetched_and_is_not_of_the_next_rings_chain_is_fetched_anew() -> None:
    own, alive = parted(1, 0, 2)
    other = Chain().grow(1)
    other.add(replace(message(1), payload=b"another"))
    fetched = Fetched()
    before = Reconciliation(following(other), own, fetched)
    before.offer(other.entries[1].token)
    for entry in other.entries[1:]:
        before.offer(entry.messages[0])
    work_on = Reconciliation(following(alive), own, fetched)
    work_on.offer(alive.entries[2].token)
    work_on.offer(alive.entries[1].token)
    assert [work_on.result(), work_on.result()] == [None, None], (
        "neither its own copy nor what was fetched is the owner's"
    )
    assert labels(work_on.wanted()) == [message(1).label]
    work_on.offer(message(1))
    assert work_on.result() == Reconciled(1, tuple(alive.entries[1:]))


def test_a_holder_that_has_the_next_token_of_the_way_down_has_not_let_go_what_is_lacking() -> None:
    """A site that goes down through tokens of its own asks for more than it may need."""
    own, alive = parted(2, 20, 20)
    fetch = CutFetch(1, SETTINGS, Reconciliation)
    ring = following(alive)
    fetch.begin(ring, own)
    work_on = fetch.reconciliation
    assert work_on is not None
    for entry in alive.entries[12:]:
        fetch.offer(entry.token)
    request = fetch.request(work_on)
    assert isinstance(request, RangeRequest)
    assert (request.first, request.last) == (2, 12)

    def told(low_water: int) -> bool:
        return fetch.gone(RangeReply(0, ring.ballot, 2, Range.TOKENS, request.first, 22, low_water), [2], 0)

    assert not told(12)
    assert not fetch.rejoin.wanting
    assert told(13)
    assert fetch.rejoin.wanting


# Checkpoints


def test_a_checkpoint_takes_the_place_of_the_common_prefix() -> None:
    chain = numbered(*range(1, 9))
    work_on = work(chain, ledger_of(numbered(1)))
    assert work_on.adopt(point_at(chain, 5))
    assert work_on.wanted() == WantedTokens(Range.TOKENS, 6, 8)
    for entry in reversed(chain.entries[5:]):
        work_on.offer(entry.token)
        for data in entry.messages:
            work_on.offer(data)
    assert work_on.result() == Reconciled(5, tuple(chain.entries[5:]), point_at(chain, 5))


def test_a_checkpoint_at_the_cut_needs_nothing_else() -> None:
    chain = numbered(1, 2, 3)
    work_on = work(chain, ledger_of(numbered(1)))
    assert work_on.adopt(point_at(chain, 3))
    assert work_on.result() == Reconciled(3, (), point_at(chain, 3))


def test_a_checkpoint_that_the_walk_does_not_end_in_is_refused() -> None:
    chain = numbered(*range(1, 9))
    work_on = work(chain, ledger_of(numbered(1)))
    assert work_on.adopt(replace(point_at(chain, 7), digest=bytes(16)))
    work_on.offer(chain.entries[7].token)
    assert not work_on.has_checkpoint
    assert work_on.result() is None
    assert work_on.adopt(point_at(chain, 7)), "another one may be right"
    work_on.offer(chain.entries[7].token)
    work_on.offer(message(8))
    assert work_on.result() == Reconciled(7, tuple(chain.entries[7:]), point_at(chain, 7))


def test_a_checkpoint_beyond_the_cut_is_proven_by_the_token_that_continues_it() -> None:
    chain = numbered(1, 2, 3)
    ring = following(chain)
    longer = chain.enter(ring)
    for number in range(4, 9):
        longer.add(message(number))
    work_on = Reconciliation(ring, ledger_of(numbered(1)))
    assert work_on.adopt(point_at(longer, 6))
    assert work_on.wanted() == WantedTokens(Range.TOKENS, 7, 38)
    work_on.offer(longer.entries[7].token)
    assert work_on.result() is None, "of the token after that one nothing follows"
    work_on.offer(longer.entries[6].token)
    assert work_on.result() == Reconciled(6, (), point_at(longer, 6), longer.entries[6].token)


def test_a_checkpoint_beyond_the_cut_that_is_not_continued_is_refused() -> None:
    chain = numbered(1, 2, 3)
    ring = following(chain)
    longer = chain.enter(ring)
    for number in range(4, 9):
        longer.add(message(number))
    work_on = Reconciliation(ring, ledger_of(numbered(1)))
    assert work_on.adopt(replace(point_at(longer, 6), digest=bytes(16)))
    work_on.offer(longer.entries[6].token)
    assert not work_on.has_checkpoint


def test_absurd_checkpoints_are_refused() -> None:
    chain = numbered(*range(1, 9))
    work_on = work(chain, ledger_of(numbered(1, 2, 3)))
    assert not work_on.adopt(point_at(chain, 3)), "not ahead of what is held"
    assert not work_on.adopt(replace(point_at(chain, 5), universe=())), "a log without U"
    assert not work_on.adopt(replace(point_at(chain, 5), epoch=NEXT_EPOCH)), "below the cut, of an epoch after it"
    assert not work_on.adopt(replace(point_at(chain, 8), token_number=9)), "beyond the cut, of an epoch before it"
    assert not work(chain, ledger_of(chain)).adopt(point_at(chain, 8)), "nothing is lacking"


def test_what_the_chain_does_not_prove_the_ring_tells() -> None:
    """U is in no token: a checkpoint whose U does not lead to the ring's is refused."""
    chain = numbered(1, 2, 3)
    work_on = work(chain, ledger_of(numbered(1)))
    assert work_on.adopt(replace(point_at(chain, 3), universe=(1, 2)))
    assert work_on.result() is None
    assert not work_on.has_checkpoint


def test_a_log_that_shares_nothing_with_the_cut_needs_a_checkpoint() -> None:
    """Another history was released and has left memory: only where rings without a majority are allowed."""
    alive, stale = numbered(1, 2, 3), Chain()
    for _ in range(5):
        stale.add()
    own = ledger_of(stale)
    own.collect(4)
    work_on = work(alive, own)
    assert work_on.lost
    assert work_on.above == -1
    assert work_on.adopt(point_at(alive, 3)), "though it lies below what is held"
    assert work_on.result() == Reconciled(3, (), point_at(alive, 3))


def test_what_the_walk_has_passed_of_a_history_that_lost_keeps_no_checkpoint_out() -> None:
    """The holders have let go what lies below the point that the walk has reached, and their checkpoint is there."""
    alive, stale = numbered(*range(1, 9)), Chain()
    for _ in range(7):
        stale.add()
    work_on = work(alive, ledger_of(stale))
    for entry in reversed(alive.entries[5:]):
        work_on.offer(entry.token)
    assert not work_on.lost
    assert work_on.above == -1
    assert work_on.adopt(point_at(alive, 5)), "though it lies below what is held"
    assert work_on.parted == 5


def test_a_log_that_was_never_begun_needs_a_checkpoint() -> None:
    """U as of the first token is known to those who founded the market, not to a file that has changed since."""
    chain = numbered(1, 2, 3)
    work_on = Reconciliation(following(chain), Ledger(OrderRule.ARRIVAL, 8, Checkpoint()))
    assert work_on.lost
    for entry in chain.entries:
        work_on.offer(entry.token)
        for data in entry.messages:
            work_on.offer(data)
    assert work_on.result() is None
    assert work_on.adopt(point_at(chain, 0)), "a log that has just begun is one too"
    assert work_on.result() == Reconciled(0, tuple(chain.entries), point_at(chain, 0))


def test_a_site_that_is_merely_behind_is_not_lost() -> None:
    work_on = work(numbered(*range(1, 9)), ledger_of(numbered(1, 2)))
    assert not work_on.lost
    assert work_on.above == 2


def test_a_checkpoint_within_a_history_that_is_to_be_cut_helps() -> None:
    """The site holds a token of that number, and another one: how far the two agree nobody can tell any more."""
    alive, stale = numbered(1, 2, 3), numbered(1)
    stale.add()
    work_on = work(alive, ledger_of(stale))
    work_on.offer(alive.entries[2].token)
    assert work_on.above == -1
    assert work_on.adopt(point_at(alive, 2))
    work_on.offer(message(3))
    assert work_on.result() == Reconciled(2, tuple(alive.entries[2:]), point_at(alive, 2))


def test_a_checkpoint_helps_when_the_messages_behind_the_common_prefix_are_gone() -> None:
    """The tokens came in time and proved the chain down to what this site holds; their messages did not."""
    chain = numbered(*range(1, 7))
    work_on = work(chain, ledger_of(numbered(1)))
    for entry in reversed(chain.entries[1:]):
        work_on.offer(entry.token)
    assert work_on.above == 1
    assert not work_on.adopt(point_at(chain, 1))
    assert work_on.adopt(point_at(chain, 5))
    work_on.offer(message(6))
    assert work_on.result() == Reconciled(5, tuple(chain.entries[5:]), point_at(chain, 5))
