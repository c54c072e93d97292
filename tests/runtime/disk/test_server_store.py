"""A reformation server's store: no ballot is used twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.ring.makers import EPOCH, NEXT_EPOCH, Chain, following, founding
from tests.runtime.disk.disks import flipping_bits, quick_directory, segment_paths

from isocast.reformation.forming import ServerState
from isocast.ring.effects import BallotChosen, PromiseMade, RingDecided
from isocast.runtime.disk.server_store import ServerStore, open_server_store
from isocast.runtime.disk.store_marker import StoreIdentity
from isocast.runtime.market.model import Durability, StoreSettings
from isocast.terms.errors import LocalProtocolError, StoreError
from isocast.terms.ids import Epoch, server_id

SERVER = StoreIdentity("test market", "geneva", server_id(1))
SMALL = StoreSettings(segment_bytes=600)


def open_geneva(directory: Path, settings: StoreSettings = SMALL, *, boot: str = "boot 1") -> ServerStore:
    return open_server_store(directory, SERVER, ServerState, settings, fresh=True, boot=boot)


def test_ballots_and_rings_survive_every_restart(tmp_path: Path) -> None:
    reference = ServerState()
    ring = founding()
    for number in range(1, 30):
        store = open_geneva(tmp_path)
        assert store.state == reference
        records = (
            BallotChosen(Epoch(number, server_id(1))),
            RingDecided(ring._replace(ballot=Epoch(number, server_id(1)))),
        )
        for record in records:
            store.append(record)
            reference.apply(record)
        assert store.state == reference
        if number % 2:
            store.close()
        else:
            store.abandon()
    assert len(segment_paths(tmp_path)) <= 2


def test_a_group_is_one_write(tmp_path: Path) -> None:
    with open_server_store(tmp_path, SERVER, fresh=True, boot="boot 1") as store:
        store.append_many([BallotChosen(EPOCH), RingDecided(founding()), BallotChosen(NEXT_EPOCH)])
        assert store.counters.syncs == 1
    with open_geneva(tmp_path) as store:
        assert store.state == ServerState(NEXT_EPOCH, founding())


def test_a_server_syncs_unless_told_otherwise(tmp_path: Path) -> None:
    """Ballots are rare, and a server that may have forgotten one must come back under a new id."""
    store = open_server_store(tmp_path, SERVER, fresh=True, boot="boot 1")
    store.append(BallotChosen(EPOCH))
    store.abandon()
    with open_server_store(tmp_path, SERVER, boot="boot 2") as store:
        assert (store.forgot, store.state.ballot) == (False, EPOCH)


def test_a_server_without_its_disk_has_forgotten(tmp_path: Path) -> None:
    with open_server_store(tmp_path, SERVER, boot="boot 1") as store:
        assert store.forgot
        with pytest.raises(StoreError, match=r"forgotten its ballots: .* under a new id"):
            store.append(BallotChosen(EPOCH))
    with open_geneva(tmp_path) as store:
        assert store.forgot


@pytest.mark.parametrize("durability, forgot", [(Durability.PROCESS, True), (Durability.POWER, False)])
def test_another_boot_is_a_lost_end_unless_it_was_on_the_disk(
    tmp_path: Path, durability: Durability, *, forgot: bool
) -> None:
    settings = StoreSettings(durability)
    store = open_geneva(tmp_path, settings)
    store.append(BallotChosen(EPOCH))
    store.abandon()
    with open_geneva(tmp_path, settings, boot="boot 2") as store:
        assert store.forgot == forgot
        assert store.state == (ServerState() if forgot else ServerState(EPOCH))


def test_records_of_other_roles_are_refused(tmp_path: Path) -> None:
    with open_geneva(tmp_path) as store:
        with pytest.raises(LocalProtocolError, match="PromiseMade is not a record of a server"):
            store.append(PromiseMade(EPOCH))
        assert store.counters.records == 0


def test_a_bit_that_flips_anywhere_is_an_error() -> None:
    with quick_directory() as name:
        directory = Path(name)
        store = open_geneva(directory, StoreSettings())
        store.append(BallotChosen(EPOCH))
        store.append(RingDecided(following(Chain())))
        store.abandon()
        path = segment_paths(directory)[0]
        for _ in flipping_bits(path):
            with pytest.raises(StoreError, match=f"{path.name}: byte .* under a new id"):
                open_geneva(directory)
