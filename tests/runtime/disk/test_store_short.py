"""A store that ends before what it acknowledged has lost something: that is said, and no number or vote is used again.

What a killed process had not come to acknowledge is another matter: it is cut off, and nobody misses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime.disk.disks import ENTRY, LARGE, SITE, SMALL, blank_site, fill, folded, open_site, segment_paths
from tests.runtime.disk.disks import quick_directory as quick
from tests.runtime.disk.test_outbox_store import IN_2026, INCARNATION, POWER, appended, open_floor
from tests.runtime.disk.test_outbox_store import SMALL as FLOOR_SMALL

from isocast.reformation.forming import ServerState
from isocast.ring.effects import BallotChosen, OutboxFreed
from isocast.runtime.disk.outbox_store import OutboxStore
from isocast.runtime.disk.server_store import open_server_store
from isocast.runtime.disk.site_store import open_site_store
from isocast.runtime.disk.store_marker import StoreIdentity, StoreRole, read_marker
from isocast.runtime.market.model import StoreSettings
from isocast.terms.errors import StoreError
from isocast.terms.ids import Epoch, server_id

HIGH_WATER = "high-water"


@pytest.fixture
def directory() -> Iterator[Path]:
    with quick() as name:
        yield Path(name) / "node"


def filled_floor(directory: Path, count: int, *, closed: bool, given: StoreSettings = FLOOR_SMALL) -> None:
    """Every message is accepted; some are freed."""
    store = open_floor(directory, given)
    for number in range(1, count + 1):
        store.append(appended(number))
        if number % 4 == 0:
            store.append(OutboxFreed(number - 2))
    if closed:
        store.close()
    else:
        store.abandon()


def cut(directory: Path, length: int) -> int:
    """So many bytes of the newest segment stay; how many there were."""
    path = segment_paths(directory)[-1]
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(min(length, size))
    return size


def check_nothing_is_used_again(store: OutboxStore) -> None:
    assert store.incarnation > INCARNATION
    assert store.state.next_number == 1
    assert "acknowledged" in store.loss


# ---- sources


@settings(max_examples=120)
@given(count=st.integers(1, 30), share=st.floats(0, 1, exclude_max=True), closed=st.booleans())
def test_wherever_accepted_messages_are_cut_off_no_number_is_used_again(count: int, share: float, closed: bool) -> None:  # noqa: FBT001 (a drawn value)
    with quick() as name:
        directory = Path(name) / "floor"
        filled_floor(directory, count, closed=closed)
        size = segment_paths(directory)[-1].stat().st_size
        cut(directory, int(size * share))
        with open_floor(directory, now=IN_2026 + 99) as store:
            check_nothing_is_used_again(store)


def test_every_byte_of_the_last_message_counts(directory: Path) -> None:
    filled_floor(directory, 1, closed=False)
    kept = {path: path.read_bytes() for path in directory.iterdir()}
    path = segment_paths(directory)[-1]
    for length in range(len(kept[path])):
        for other, content in kept.items():
            other.write_bytes(content)
        for newer in set(segment_paths(directory)) - set(kept):
            newer.unlink()
        cut(directory, length)
        with open_floor(directory, now=IN_2026 + 99) as store:
            check_nothing_is_used_again(store)


def test_a_missing_newest_segment_is_missed(directory: Path) -> None:
    filled_floor(directory, 60, closed=False, given=FLOOR_SMALL)
    assert len(segment_paths(directory)) > 1
    segment_paths(directory)[-1].unlink()
    with open_floor(directory, now=IN_2026 + 99) as store:
        check_nothing_is_used_again(store)


@pytest.mark.parametrize("content", [None, b"", b"ISOW", bytes(1_024)], ids=["gone", "empty", "cut", "zeros"])
def test_without_its_mark_nobody_can_tell_what_was_accepted(directory: Path, content: bytes | None) -> None:
    filled_floor(directory, 3, closed=False)
    if content is None:
        (directory / HIGH_WATER).unlink()
    else:
        (directory / HIGH_WATER).write_bytes(content)
    with open_floor(directory, now=IN_2026 + 99) as store:
        check_nothing_is_used_again(store)


def test_one_of_the_marks_slots_may_be_torn(directory: Path) -> None:
    filled_floor(directory, 3, closed=False)
    whole = (directory / HIGH_WATER).read_bytes()
    for place in (0, 512):
        (directory / HIGH_WATER).write_bytes(whole[:place] + bytes(28) + whole[place + 28 :])
        with open_floor(directory) as store:
            assert (store.incarnation, store.state.next_number, store.loss) == (INCARNATION, 4, "")
            store.abandon()


def test_what_is_left_of_the_old_incarnation_is_in_doubt_and_set_aside(directory: Path) -> None:
    store = open_floor(directory, LARGE)
    lengths = []
    for number in (1, 2, 3):
        store.append(appended(number))
        lengths.append(segment_paths(directory)[-1].stat().st_size)
    store.abandon()
    cut(directory, lengths[1])
    with open_floor(directory, LARGE, now=IN_2026 + 99) as store:
        assert [message.label.number for message in store.in_doubt] == [1, 2]
    assert (directory / "set-aside-1" / HIGH_WATER).exists()
    with open_floor(directory, LARGE) as store:
        assert (store.incarnation, store.loss, store.in_doubt) == (INCARNATION + 99, "", ())


@settings(max_examples=60)
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_write_that_was_cut_short_before_anybody_was_told_is_forgiven(share: float) -> None:
    """As after kill -9 in the middle of a write: all that was accepted is there, and the numbers go on."""
    with quick() as name:
        directory = Path(name) / "floor"
        store = open_floor(directory, LARGE)
        store.append(appended(1))
        accepted, mark = segment_paths(directory)[-1].stat().st_size, (directory / HIGH_WATER).read_bytes()
        store.append(appended(2))
        store.abandon()
        written = cut(directory, accepted + int((segment_paths(directory)[-1].stat().st_size - accepted) * share))
        (directory / HIGH_WATER).write_bytes(mark)
        assert written > accepted
        with open_floor(directory, LARGE, now=IN_2026 + 99) as store:
            assert (store.incarnation, store.state.next_number, store.loss) == (INCARNATION, 2, "")
            store.append(appended(2))


def test_a_failed_write_moves_no_mark(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_floor(directory, POWER)
    store.append(appended(1))

    def fails(_: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr("os.fdatasync", fails)
        with pytest.raises(StoreError):
            store.append(appended(2))
    store.abandon()
    with open_floor(directory, POWER, now=IN_2026 + 99) as store:
        assert (store.incarnation, store.state.next_number, store.loss) == (INCARNATION, 2, "")


def test_a_store_of_before_there_was_a_mark_goes_on_and_has_one_from_then_on(directory: Path) -> None:
    filled_floor(directory, 3, closed=False)
    marker = read_marker(directory, StoreRole.OUTBOX)
    assert marker is not None
    replace(marker, high_water=False).write(directory)
    (directory / HIGH_WATER).unlink()
    open_floor(directory).abandon()
    cut(directory, segment_paths(directory)[-1].stat().st_size - 1)
    with open_floor(directory, now=IN_2026 + 99) as store:
        check_nothing_is_used_again(store)


def test_numbers_that_the_ring_knows_and_the_outbox_does_not_end_an_incarnation(directory: Path) -> None:
    """An older copy was put in its place, mark and all: the ring says so, and the next start believes it."""
    store = open_floor(directory)
    store.append(appended(1))
    store.renounce("the ring has numbers up to 9")
    store.abandon()
    with open_floor(directory, now=IN_2026 + 99) as store:
        assert store.incarnation == INCARNATION + 99
        assert store.loss == "the ring has numbers up to 9"
        assert [message.label.number for message in store.in_doubt] == [1]


# ---- receivers and reformation servers


@settings(max_examples=60)
@given(share=st.floats(0, 1, exclude_max=True), closed=st.booleans())
def test_wherever_its_log_is_cut_off_a_site_has_forgotten(share: float, closed: bool) -> None:  # noqa: FBT001 (a drawn value)
    with quick() as name:
        directory = Path(name) / "london"
        fill(directory, ENTRY, ("promise", 1, 0), ENTRY, settings=SMALL)
        if closed:
            open_site(directory).close()
        cut(directory, int(segment_paths(directory)[-1].stat().st_size * share))
        for _ in range(2):
            with open_site(directory) as store:
                assert store.forgot
                assert "acknowledged" in store.loss, "and it goes on saying why"


def test_a_secondary_receiver_says_what_it_lacks_and_goes_on(directory: Path) -> None:
    records, lengths = fill(directory, ENTRY, ENTRY, ENTRY)
    cut(directory, lengths[1] + 7)
    with open_site_store(directory, SITE, blank_site, LARGE, votes=False, boot="boot 1") as store:
        assert store.state == folded(blank_site(), records[:2], 0)
        assert "acknowledged" in store.loss


@settings(max_examples=40)
@given(share=st.floats(0, 1, exclude_max=True), closed=st.booleans())
def test_wherever_its_ballots_are_cut_off_a_server_has_forgotten(share: float, closed: bool) -> None:  # noqa: FBT001 (a drawn value)
    identity = StoreIdentity("test market", "x", server_id(1))
    with quick() as name:
        directory = Path(name) / "x"
        store = open_server_store(directory, identity, ServerState, fresh=True, boot="boot 1")
        for number in (1, 2, 3):
            store.append(BallotChosen(Epoch(number, server_id(1))))
        if closed:
            store.close()
        else:
            store.abandon()
        cut(directory, int(segment_paths(directory)[-1].stat().st_size * share))
        with open_server_store(directory, identity, ServerState, boot="boot 1") as store:
            assert store.forgot
            assert "acknowledged" in store.loss


def test_damage_to_what_was_acknowledged_is_no_torn_end_on_another_boot(directory: Path) -> None:
    """Under `power` it had reached the disk before anybody was told: a disk that lies, or hands, did this."""
    _, lengths = fill(directory, ENTRY, ENTRY, settings=StoreSettings(POWER.durability))
    path = segment_paths(directory)[0]
    path.write_bytes(path.read_bytes()[:-30] + bytes(30))
    with pytest.raises(StoreError, match="byte"):
        open_site(directory, StoreSettings(POWER.durability), boot="boot 2")
    assert path.stat().st_size == lengths[1]
