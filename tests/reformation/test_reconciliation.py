"""Bringing one log to the cut of a new ring (protocol §5, step 4)."""

from __future__ import annotations

from dataclasses import replace

from tests.ring.makers import Chain, following, message

from isocast.reformation.reconciliation import Reconciled, Reconciliation, WantedMessages, WantedTokens
from isocast.ring.ledger import Checkpoint, Ledger
from isocast.ring.settings import OrderRule
from isocast.terms.ids import NodeId
from isocast.wire.packets import Range


def ledger(chain: Chain) -> Ledger:
    found = Ledger(OrderRule.ARRIVAL, 8, Checkpoint(universe=(1, 2, 3)))
    for entry in chain.entries:
        found.append(entry)
    return found


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
    assert work(chain, ledger(chain)).result() == Reconciled(2, ())


def test_a_site_beyond_the_cut_is_cut_back_to_it() -> None:
    chain = numbered(1)
    longer = chain.fork()
    longer.add(message(2))
    assert work(chain, ledger(longer)).result() == Reconciled(1, ())


def test_a_site_behind_fetches_tokens_and_messages() -> None:
    chain = numbered(1, 2, 3)
    work_on = work(chain, ledger(numbered(1)))
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
    work_on = work(alive, ledger(stale))
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
    work_on = work(alive, ledger(stale))
    work_on.offer(alive.entries[1].token)
    assert work_on.result() == Reconciled(1, (alive.entries[1],))


def test_messages_that_wait_need_not_be_fetched_either() -> None:
    chain = numbered(1, 2)
    own = ledger(numbered(1))
    own.store(message(2))
    work_on = work(chain, own)
    work_on.offer(chain.entries[1].token)
    assert work_on.result() == Reconciled(1, (chain.entries[1],))


def test_a_token_that_is_not_of_the_chain_is_not_taken() -> None:
    chain = numbered(1, 2)
    work_on = work(chain, ledger(numbered(1)))
    work_on.offer(replace(chain.entries[1].token, stable=7))
    work_on.offer(message(2))
    assert work_on.result() is None
    work_on.offer(chain.entries[1].token)
    assert work_on.result() is not None


def test_a_site_that_was_away_asks_for_whole_ranges() -> None:
    chain = Chain().grow(80)
    wanted = work(chain, ledger(Chain())).wanted()
    assert isinstance(wanted, WantedTokens)
    assert (wanted.kind, wanted.last) == (Range.TOKENS, 80)
    assert wanted.last - wanted.first < 32


def test_a_copy_of_ours_that_differs_is_fetched_again() -> None:
    chain = numbered(1, 2)
    own = ledger(numbered(1))
    own.store(replace(message(2), payload=b"forged"))
    work_on = work(chain, own)
    work_on.offer(chain.entries[1].token)
    assert work_on.result() is None
    work_on.offer(message(2))
    assert work_on.result() == Reconciled(1, (chain.entries[1],))
