"""A site's store says after any restart what the records said."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from tests.runtime.disk.disks import (
    ENTRY,
    LARGE,
    SITE,
    SMALL,
    Author,
    Step,
    blank_site,
    folded,
    open_site,
    quick_directory,
    segment_paths,
    site_steps,
)

from isocast.ring.answers import ANSWERS_MAX
from isocast.ring.effects import BallotChosen, EntryAppended, PromiseMade, Record, RingInstalled
from isocast.runtime.disk.site_store import SiteStore, open_site_store
from isocast.runtime.market.model import StoreSettings
from isocast.terms.errors import LocalProtocolError, StoreError
from isocast.terms.ids import Epoch


def written(author: Author, *steps: Step) -> list[Record]:
    return [author.record(step) for step in steps]


def grow(store: SiteStore, author: Author, tokens: int) -> None:
    """So many entries of the log, each collected at once."""
    for number in range(1, tokens + 1):
        store.append(author.record(ENTRY))
        store.collected(number)


@settings(max_examples=80)
@given(site_steps())
@example([("entry", 1, 0)] * 6 + [("ring", 4, 2), ("kill", 0, 0), ("ring", 3, 0), ("close", 0, 0)])
def test_after_any_restart_the_state_is_what_the_records_say(steps: list[Step]) -> None:
    author = Author()
    records: list[Record] = []
    with quick_directory() as name:
        directory = Path(name) / "london"
        store = open_site(directory)
        for kind, one, two in [*steps, ("kill", 0, 0), ("close", 0, 0)]:
            if kind == "collect":
                author.floor = min(author.floor + one, author.chain.head.token_number)
                store.collected(author.floor)
            elif kind in ("close", "kill"):
                if kind == "close":
                    store.close()
                else:
                    store.abandon()
                store = open_site(directory)
                floor = store.state.checkpoint.token_number
                assert floor <= author.floor
                assert store.state == folded(blank_site(), records, floor)
                assert store.held == author.chain.head.token_number
            else:
                records.append(author.record((kind, one, two)))
                store.append(records[-1])
        store.close()


@settings(max_examples=40)
@given(site_steps())
def test_groups_and_single_records_leave_the_same_state(steps: list[Step]) -> None:
    author = Author()
    records = written(author, *[step for step in steps if step[0] in ("entry", "promise", "ring", "taken")])
    with quick_directory() as name:
        with open_site(Path(name) / "a") as store:
            store.append_many(records)
        with open_site(Path(name) / "a") as store:
            assert store.state == folded(blank_site(), records, 0)


def test_no_payload_stays_in_memory_and_every_entry_is_read_from_disk(tmp_path: Path) -> None:
    author = Author()
    records = written(author, *[ENTRY] * 30)
    with open_site(tmp_path, LARGE) as store:
        store.append_many(records)
        found = store.read(4, 9)
        assert found == tuple(author.chain.entries[3:9])
        assert all(one is not other for one, other in zip(found, author.chain.entries[3:9], strict=True))
        assert store.read(29, 99) == tuple(author.chain.entries[28:])
        assert store.read(31, 40) == ()
        assert store.counters.entries_read == 8


def test_a_cut_log_is_read_as_it_goes_on(tmp_path: Path) -> None:
    author = Author()
    with open_site(tmp_path) as store:
        for step in [ENTRY] * 8 + [("ring", 5, 3), ENTRY]:
            store.append(author.record(step))
        assert (store.held, store.read(1, 99)) == (7, tuple(author.chain.entries))


def test_one_answer_is_all_that_is_read(tmp_path: Path) -> None:
    author = Author(payload_bytes=1)
    with open_site(tmp_path, LARGE) as store:
        for _ in range(4):
            store.append(EntryAppended(author.entry(ANSWERS_MAX - 1000)))
        assert len(store.read(1, 4)) == 1
        assert [entry.token.token_number for entry in store.read(2, 4)] == [2]


def test_the_state_is_for_making_the_machine_only(tmp_path: Path) -> None:
    with open_site(tmp_path) as store:
        store.append(Author().record(ENTRY))
        with pytest.raises(LocalProtocolError, match="before anything is appended"):
            store.state  # noqa: B018


# ---- what goes and what stays


def test_old_segments_go_when_everything_in_them_is_stable(tmp_path: Path) -> None:
    author = Author()
    with open_site(tmp_path) as store:
        for number in range(1, 400):
            store.append(author.record(ENTRY))
            store.collected(number - 3)
        assert len(segment_paths(tmp_path)) <= SMALL.keep_segments + 1
        assert store.first <= 399 - 16, "whoever takes a checkpoint over needs what came after it"
        assert store.counters.segments_removed > 10
        assert 1 < store.first <= 397
        assert store.read(store.first, 396) == tuple(author.chain.entries[store.first - 1 : 396])
        assert store.read(1, store.first - 1) == ()


def test_nothing_that_is_not_stable_ever_goes(tmp_path: Path) -> None:
    author = Author()
    with open_site(tmp_path) as store:
        for _ in range(300):
            store.append(author.record(ENTRY))
            store.collected(5)
        assert store.first == 1
        assert len(segment_paths(tmp_path)) > 10 * SMALL.keep_segments
    with open_site(tmp_path) as store:
        assert sorted(store.state.entries) == list(range(store.state.checkpoint.token_number + 1, 301))


def test_a_restart_reads_little_of_a_long_log(tmp_path: Path) -> None:
    """An idle market's tokens are empty: thousands fit a segment, and each would become objects in memory."""
    author = Author()
    with open_site(tmp_path, LARGE) as store:
        for number in range(1, 2_001):
            store.append(author.record(("entry", 0, 0)))
            store.collected(number - 3)
    with open_site(tmp_path, LARGE) as store:
        assert len(store.state.entries) < 300
        assert store.state == folded(
            blank_site(), map(EntryAppended, author.chain.entries), 2_000 - len(store.state.entries)
        )
        assert store.first == 1


def test_the_log_begins_where_the_journal_ends(tmp_path: Path) -> None:
    """A journal with a weaker fsync than the store's may have lost releases of tokens that were stable."""
    author = Author()
    with open_site(tmp_path) as store:
        grow(store, author, 59)
        first = author.chain.entries[store.first + 2].token
    with open_site_store(
        tmp_path, SITE, blank_site, SMALL, next_sequence=first.first_sequence + 1, boot="boot 1"
    ) as store:
        assert store.state.checkpoint.token_number < first.token_number
        assert max(store.state.entries) == 59
        assert store.refill == 0
    with open_site_store(tmp_path, SITE, blank_site, SMALL, next_sequence=1, boot="boot 1") as store:
        point = store.state.checkpoint
        assert store.refill == point.next_sequence > 1, "what the journal lacks has left the log too"
        assert point.token_number + 1 >= store.first
        assert max(store.state.entries) == 59, "the promises are whole: the site votes as before"


def test_a_log_that_does_not_hold_what_the_site_released_has_forgotten(tmp_path: Path) -> None:
    """An older copy of the directory, or a log that somebody cut back: its promises are as old, and no marker tells."""
    author = Author()
    with open_site(tmp_path) as store:
        for _ in range(5):
            store.append(author.record(ENTRY))

    def opened(released_token: int, *, votes: bool = True) -> bool:
        with open_site_store(
            tmp_path, SITE, blank_site, SMALL, votes=votes, released_token=released_token, boot="boot 1"
        ) as store:
            return store.forgot

    assert not opened(5)
    assert not opened(6, votes=False), "a secondary receiver promised nothing"
    assert opened(6)
    assert opened(5), "that never ends"


def test_tokens_without_messages_are_not_missed_in_the_journal(tmp_path: Path) -> None:
    """A market that was idle since its last message: the log has moved on, and the journal has nothing to say."""
    author = Author()
    with open_site(tmp_path) as store:
        store.append(author.record(ENTRY))
        for number in range(2, 200):
            store.append(author.record(("entry", 0, 0)))
            store.collected(number)
    with open_site_store(tmp_path, SITE, blank_site, SMALL, next_sequence=3, boot="boot 1") as store:
        assert store.state.checkpoint.token_number > 190


def test_after_a_restart_below_the_newest_checkpoint_nothing_of_it_goes_too_early(tmp_path: Path) -> None:
    author = Author()
    with open_site(tmp_path) as store:
        grow(store, author, 59)
        low = author.chain.entries[store.first + 2].token.first_sequence
    with open_site_store(tmp_path, SITE, blank_site, SMALL, next_sequence=low, boot="boot 1") as store:
        floor = store.state.checkpoint.token_number
        for _ in range(60):
            store.append(author.record(ENTRY))
            store.collected(floor)
        assert store.first <= floor + 1


def test_nor_when_fewer_segments_are_to_be_kept_from_then_on(tmp_path: Path) -> None:
    author = Author()
    with open_site(tmp_path) as store:
        grow(store, author, 59)
        low = author.chain.entries[store.first + 2].token.first_sequence
    fewer = StoreSettings(segment_bytes=SMALL.segment_bytes, keep_bytes=0)
    with open_site_store(tmp_path, SITE, blank_site, fewer, next_sequence=low, boot="boot 1") as store:
        floor = store.state.checkpoint.token_number
        store.collected(floor)
        assert store.first <= floor + 1


# ---- what does not fit


@pytest.mark.parametrize(
    "record, rule",
    [
        (EntryAppended(Author().entry(1)), "token 1 does not follow 3"),
        (BallotChosen(Epoch(1, 65_537)), "BallotChosen is not a record of a site"),
    ],
    ids=["entry", "ballot"],
)
def test_a_record_that_does_not_fit_is_refused_and_nothing_is_written(
    tmp_path: Path, record: Record, rule: str
) -> None:
    author = Author()
    with open_site(tmp_path) as store:
        store.append_many(written(author, ENTRY, ENTRY, ENTRY))
        before = store.counters.bytes
        with pytest.raises(LocalProtocolError, match=rule):
            store.append_many([PromiseMade(Epoch(9, 65_537)), record])
        assert store.counters.bytes == before
    with open_site(tmp_path) as store:
        assert store.state == folded(blank_site(), map(EntryAppended, author.chain.entries), 0)


def test_the_log_is_never_cut_below_what_is_stable(tmp_path: Path) -> None:
    author, other = Author(), Author()
    with open_site(tmp_path) as store:
        for step in [ENTRY] * 6:
            store.append(author.record(step))
            other.record(step)
        store.collected(4)
        record = other.record(("ring", 3, 0))
        assert isinstance(record, RingInstalled)
        with pytest.raises(LocalProtocolError, match="from 4 to 6 cannot be cut back to 3"):
            store.append(record)


def test_a_missing_segment_is_named(tmp_path: Path) -> None:
    author = Author()
    with open_site(tmp_path) as store:
        for _ in range(60):
            store.append(author.record(ENTRY))
    paths = segment_paths(tmp_path)
    paths[2].unlink()
    with pytest.raises(StoreError, match=f"{paths[3].name}: the segment before it is missing.* new id"):
        open_site(tmp_path)


def test_segments_that_the_log_still_needs_are_missed(tmp_path: Path) -> None:
    author = Author()
    store = open_site(tmp_path)
    for _ in range(60):
        store.append(author.record(ENTRY))
    store.abandon()
    segment_paths(tmp_path)[0].unlink()
    with pytest.raises(StoreError, match=r"the tokens from 1 to .* are missing"):
        open_site(tmp_path)


def test_a_log_whose_chain_is_broken_is_not_taken(tmp_path: Path) -> None:
    author, other = Author(), Author(payload_bytes=9)
    with open_site(tmp_path) as store:
        store.append(author.record(ENTRY))
        other.record(ENTRY)
        store.append(other.record(ENTRY))
    with pytest.raises(StoreError, match="token 2 does not continue the chain"):
        open_site(tmp_path)
