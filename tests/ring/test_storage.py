"""What a site's disk says after its records."""

from __future__ import annotations

from tests.ring.makers import EPOCH, NEXT_EPOCH, Chain, blank, following, message

from isocast.ring.effects import BallotChosen, EntryAppended, PromiseMade, Release, RingInstalled
from isocast.ring.storage import SiteState


def chain_of(tokens: int) -> Chain:
    chain = Chain()
    for number in range(1, tokens + 1):
        chain.add(message(2 * number - 1), message(2 * number))
    return chain


def written(chain: Chain, state: SiteState) -> SiteState:
    for entry in chain.entries:
        state.apply(EntryAppended(entry))
    return state


def test_a_promise_is_remembered() -> None:
    state = blank()
    state.apply(PromiseMade(NEXT_EPOCH))
    assert (state.promised, state.ring) == (NEXT_EPOCH, None)


def test_entries_are_the_log() -> None:
    chain = chain_of(3)
    state = written(chain, blank())
    assert (state.held, list(state.entries.values())) == (3, chain.entries)


def test_installing_a_ring_cuts_continues_and_promises_in_one_record() -> None:
    """Protocol §5, step 4: install suffix, prom = e_acc = b, h and nextM in one atomic record."""
    common = chain_of(2)
    ours, theirs = common.fork().grow(2), common.fork()
    entry = theirs.add(message(5))
    state = written(ours, blank())
    ring = following(theirs)
    state.apply(RingInstalled(ring, 2, (entry,)))
    assert (state.held, state.entries[3], state.ring, state.promised) == (3, entry, ring, NEXT_EPOCH)


def test_old_entries_are_folded_into_the_checkpoint() -> None:
    chain = chain_of(5)
    state = blank()
    state.retain, state.released = 2, 5
    written(chain, state)
    assert (sorted(state.entries), state.checkpoint.token_number, state.held) == ([4, 5], 3, 5)
    assert state.checkpoint.next_number == {message(1).sender: 7}
    assert state.read(2, 9) == tuple(chain.entries[3:])


def test_what_is_not_released_is_kept_however_old() -> None:
    state = blank()
    state.retain, state.released = 2, 1
    written(chain_of(5), state)
    assert (sorted(state.entries), state.held) == ([2, 3, 4, 5], 5)


def test_releases_are_remembered_by_token_and_place() -> None:
    entry = chain_of(1).entries[0]
    state = blank()
    state.release(Release(EPOCH, entry, 1, entry.messages[:1], 0))
    assert (state.released, state.offset) == (0, 1)
    state.release(Release(EPOCH, entry, 2, entry.messages[1:], 0))
    assert (state.released, state.offset) == (1, 0)


def test_records_of_other_roles_mean_nothing_to_it() -> None:
    state = blank()
    state.apply(BallotChosen(NEXT_EPOCH))
    assert state == blank()
