"""A source's store: what it owes, which numbers it used, and under which incarnation."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime.disk.disks import flipping_bits, quick_directory, segment_paths

from isocast.ring.effects import BallotChosen, OutboxAppended, OutboxFreed, Record
from isocast.ring.source import OutboxState
from isocast.runtime.disk.outbox_store import InDoubt, OutboxStore, open_outbox_store
from isocast.runtime.disk.store_marker import StoreIdentity
from isocast.runtime.market.model import Durability, StoreSettings
from isocast.terms.errors import LocalProtocolError, StoreError
from isocast.terms.ids import Epoch, Label, source_id

FLOOR = StoreIdentity("test market", "floor", source_id(3, 0))
SMALL = StoreSettings(segment_bytes=1_000)
POWER = StoreSettings(Durability.POWER, segment_bytes=1_000)
IN_2026 = 1_577_836_800 + 216_000_000
INCARNATION = 216_000_000


def blank() -> OutboxState:
    return OutboxState(keys_max=12)


def open_floor(
    directory: Path, settings: StoreSettings = SMALL, *, boot: str = "boot 1", now: float = IN_2026
) -> OutboxStore:
    return open_outbox_store(directory, FLOOR, blank, settings, boot=boot, clock=lambda: now)


def appended(number: int) -> OutboxAppended:
    return OutboxAppended(f"key {number}".encode(), number, f"payload {number} ".encode() * 5)


Steps = list[tuple[str, int]]
STEPS: st.SearchStrategy[Steps] = st.lists(
    st.tuples(st.sampled_from(["append", "append", "free", "kill", "close"]), st.integers(1, 6)), max_size=40
)


@settings(max_examples=80)
@given(STEPS)
def test_after_any_restart_the_outbox_is_what_the_records_say(steps: Steps) -> None:
    reference, base = blank(), 1
    with quick_directory() as name:
        directory = Path(name) / "floor"
        store = open_floor(directory)
        for kind, count in [*steps, ("kill", 1), ("close", 1)]:
            if kind in ("kill", "close"):
                if kind == "close":
                    store.close()
                else:
                    store.abandon()
                store = open_floor(directory, now=IN_2026 + 99)
                assert store.incarnation == INCARNATION
                assert store.in_doubt == ()
            else:
                records: list[Record]
                if kind == "append":
                    following = reference.next_number
                    records = [appended(number) for number in range(following, following + count)]
                else:
                    base = min(base + count, reference.next_number)
                    records = [OutboxFreed(base)]
                store.append_many(records)
                for record in records:
                    reference.apply(record)
            assert store.state == reference
            assert list(store.state.keys.items()) == list(reference.keys.items())
        store.close()


def test_segments_go_when_their_messages_are_stable(tmp_path: Path) -> None:
    with open_floor(tmp_path) as store:
        for number in range(1, 200):
            store.append(appended(number))
            if number > 5:
                store.append(OutboxFreed(number - 5))
        assert len(segment_paths(tmp_path)) <= 3
        assert store.counters.segments_removed > 10
    with open_floor(tmp_path) as store:
        assert sorted(store.state.messages) == list(range(194, 200))
        assert list(store.state.keys) == [f"key {number}".encode() for number in range(188, 200)]


def test_what_is_not_stable_stays_however_much_there_is(tmp_path: Path) -> None:
    with open_floor(tmp_path) as store:
        for number in range(1, 100):
            store.append(appended(number))
    with open_floor(tmp_path) as store:
        assert store.state.messages == {
            number: (appended(number).key, appended(number).payload) for number in range(1, 100)
        }


def test_fewer_keys_are_remembered_if_the_settings_say_so(tmp_path: Path) -> None:
    with open_floor(tmp_path) as store:
        store.append_many([appended(number) for number in range(1, 9)])
    with open_outbox_store(tmp_path, FLOOR, lambda: OutboxState(keys_max=3), SMALL, boot="boot 1") as store:
        assert list(store.state.keys) == [b"key 6", b"key 7", b"key 8"]


# ---- incarnations


def test_the_first_incarnation_comes_from_the_clock(tmp_path: Path) -> None:
    """Whether the directory is new or lost: a number that was used before must never meet its nonce again."""
    with open_floor(tmp_path / "a") as store:
        assert (store.incarnation, store.source) == (INCARNATION, source_id(3, INCARNATION))
    with open_floor(tmp_path / "b", now=IN_2026 + 7.9) as store:
        assert store.incarnation == INCARNATION + 7


@pytest.mark.parametrize(
    "settings, closed, boot",
    [(SMALL, False, "boot 1"), (SMALL, True, "boot 2"), (POWER, False, "boot 2")],
    ids=["same boot", "closed in order", "power"],
)
def test_the_same_incarnation_goes_on_where_everything_is_there(
    tmp_path: Path, settings: StoreSettings, boot: str, *, closed: bool
) -> None:
    store = open_floor(tmp_path, settings)
    store.append_many([appended(1), appended(2)])
    if closed:
        store.close()
    else:
        store.abandon()
    with open_floor(tmp_path, settings, boot=boot, now=IN_2026 + 99) as store:
        assert (store.incarnation, store.state.next_number, store.in_doubt) == (INCARNATION, 3, ())


def test_where_the_end_may_be_missing_a_new_one_begins_and_the_rest_is_in_doubt(tmp_path: Path) -> None:
    store = open_floor(tmp_path)
    store.append_many([appended(1), appended(2), appended(3), OutboxFreed(2)])
    store.abandon()
    with open_floor(tmp_path, boot="boot 2", now=IN_2026 + 99) as store:
        assert (store.incarnation, store.state) == (INCARNATION + 99, blank())
        old = source_id(3, INCARNATION)
        assert store.in_doubt == tuple(
            InDoubt(Label(old, number), appended(number).key, appended(number).payload) for number in (2, 3)
        )
        store.append(appended(1))
    assert len(segment_paths(tmp_path / "set-aside-1")) == 1
    with open_floor(tmp_path, boot="boot 2") as store:
        assert (store.incarnation, store.in_doubt, list(store.state.messages)) == (INCARNATION + 99, (), [1])


def test_what_a_power_failure_damaged_is_reported_as_far_as_it_goes(tmp_path: Path) -> None:
    store = open_floor(tmp_path)
    for number in (1, 2, 3):
        store.append(appended(number))
    store.abandon()
    path = segment_paths(tmp_path)[0]
    path.write_bytes(path.read_bytes()[:-40] + bytes(40))
    with open_floor(tmp_path, boot="boot 2", now=IN_2026 + 99) as store:
        assert [message.label.number for message in store.in_doubt] == [1, 2]


def test_a_clock_that_was_set_back_never_gives_an_incarnation_again(tmp_path: Path) -> None:
    open_floor(tmp_path).abandon()
    with open_floor(tmp_path, boot="boot 2", now=IN_2026 - 999_999) as store:
        assert store.incarnation == INCARNATION + 1


@pytest.mark.parametrize("now", [0.0, 1_577_836_800.0, 1_577_836_800.0 + (1 << 32)])
def test_a_clock_that_cannot_be_right_is_an_error(tmp_path: Path, now: float) -> None:
    with pytest.raises(StoreError, match="set the clock"):
        open_floor(tmp_path, now=now)
    open_floor(tmp_path).close()


def test_an_incarnation_that_was_interrupted_at_its_birth_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the marker and the first segment: the old messages are reported when it starts again."""
    store = open_floor(tmp_path)
    store.append(appended(1))
    store.abandon()

    def killed(_path: Path, _target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            open_floor(tmp_path, boot="boot 2", now=IN_2026 + 50)
    with open_floor(tmp_path, boot="boot 2", now=IN_2026 + 50) as store:
        assert store.incarnation == INCARNATION + 51
        assert [message.label for message in store.in_doubt] == [Label(source_id(3, INCARNATION), 1)]


# ---- what does not fit


@pytest.mark.parametrize(
    "records, rule",
    [
        ([appended(3)], "message 3 does not follow message 1"),
        ([appended(2), appended(2)], "message 2 does not follow message 2"),
        ([OutboxFreed(3)], "messages below 3 of 1 to 1 are freed"),
        ([OutboxFreed(2), OutboxFreed(1)], "messages below 1 of 2 to 1 are freed"),
        ([BallotChosen(Epoch(1, 65_537))], "BallotChosen is not a record of a source"),
    ],
)
def test_records_that_do_not_continue_the_outbox_are_refused(tmp_path: Path, records: list[Record], rule: str) -> None:
    with open_floor(tmp_path) as store:
        store.append(appended(1))
        with pytest.raises(LocalProtocolError, match=rule):
            store.append_many(records)
        store.append(appended(2))
    with open_floor(tmp_path) as store:
        assert list(store.state.messages) == [1, 2]


def test_a_source_is_named_without_its_incarnation(tmp_path: Path) -> None:
    with pytest.raises(LocalProtocolError, match="not a source without an incarnation"):
        open_outbox_store(tmp_path, StoreIdentity("m", "floor", source_id(3)))


def test_a_bit_that_flips_anywhere_is_an_error() -> None:
    with quick_directory() as name:
        directory = Path(name)
        store = open_floor(directory)
        store.append_many([appended(1), appended(2), OutboxFreed(2)])
        store.abandon()
        path = segment_paths(directory)[0]
        for _ in flipping_bits(path):
            with pytest.raises(StoreError, match="starts a new incarnation"):
                open_floor(directory)
        open_floor(directory).close()


def test_missing_messages_are_missed(tmp_path: Path) -> None:
    store = open_floor(tmp_path)
    for number in range(1, 40):
        store.append(appended(number))
    store.abandon()
    segment_paths(tmp_path)[0].unlink()
    with pytest.raises(StoreError, match="of the messages 1 to 39 some are missing"):
        open_floor(tmp_path)
