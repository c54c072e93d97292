"""What a node keeps of plans of lines comes back, and a damaged file is not believed."""

from hashlib import blake2b
from pathlib import Path

import pytest
from tests.wire.samples import BALLOT, SAMPLES, SERVER

from isocast.reformation.scopes.line_keeper import LineState
from isocast.runtime.disk.server_store import LineStore
from isocast.runtime.market.model import Durability
from isocast.terms.errors import StoreError
from isocast.terms.ids import Epoch
from isocast.wire.frame import PacketKind
from isocast.wire.packets import Lines, PlanVersion


def _sample() -> Lines:
    packet = SAMPLES[PacketKind.LINES]
    assert isinstance(packet, Lines)
    return packet


HELD = _sample()
NEXT = HELD._replace(version=PlanVersion(Epoch(9, SERVER), 1, SERVER))
HIGH = PlanVersion(Epoch(12, SERVER), 3, SERVER)

STATES = [
    LineState(),
    LineState(promised=HIGH),
    LineState(HIGH, HELD),
    LineState(HIGH, HELD, HELD),
    LineState(HIGH, NEXT, HELD),
]


@pytest.mark.parametrize("durability", Durability)
@pytest.mark.parametrize("state", STATES)
def test_a_state_comes_back(tmp_path: Path, state: LineState, durability: Durability) -> None:
    LineStore(tmp_path).keep(LineState(HIGH, NEXT, HELD))
    LineStore(tmp_path).keep(LineState(promised=PlanVersion(BALLOT, 1, SERVER)))
    store = LineStore(tmp_path, durability)
    store.keep(state)
    assert store.read() == LineStore(tmp_path).read() == state


def test_without_a_file_nothing_was_kept(tmp_path: Path) -> None:
    assert LineStore(tmp_path).read() == LineState()


def test_a_file_whose_first_write_never_came_is_not_there(tmp_path: Path) -> None:
    store = LineStore(tmp_path)
    store.keep(LineState(HIGH, HELD))
    store.paths[0].touch()
    assert LineStore(tmp_path).read() == LineState(HIGH, HELD)


def test_a_rightly_digested_file_that_ends_within_a_length_is_not_believed(tmp_path: Path) -> None:
    store = LineStore(tmp_path)
    store.keep(LineState(HIGH, HELD))
    content = store.paths[1].read_bytes()
    signed = content[16:24] + (len(content) - 28 + 2).to_bytes(4, "little") + content[28:] + bytes(2)
    store.paths[1].write_bytes(blake2b(signed, digest_size=16).digest() + signed)
    with pytest.raises(StoreError):
        LineStore(tmp_path).read()


def test_the_newest_of_many_counts(tmp_path: Path) -> None:
    store = LineStore(tmp_path)
    for number in range(1, 8):
        store.keep(LineState(promised=PlanVersion(Epoch(number, SERVER), 1, SERVER)))
        assert LineStore(tmp_path).read().promised.ballot.number == number


def test_every_flipped_bit_and_every_cut_is_found(tmp_path: Path) -> None:
    """A receiver that forgot what it promised must not go on as if it had promised nothing."""
    store = LineStore(tmp_path)
    store.keep(LineState(HIGH, HELD))
    store.keep(LineState(HIGH, NEXT, HELD))
    path = store.paths[0]
    whole = path.read_bytes()
    for cut in range(1, len(whole)):
        path.write_bytes(whole[:cut])
        with pytest.raises(StoreError, match="is damaged"):
            store.read()
    for place in range(0, len(whole), 5):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(StoreError, match="is damaged"):
            store.read()
    path.write_bytes(whole + b"what lies behind is older")
    assert store.read() == LineState(HIGH, NEXT, HELD)


def test_a_write_that_the_power_supply_tore_was_not_relied_on(tmp_path: Path) -> None:
    store = LineStore(tmp_path, Durability.POWER)
    store.keep(LineState(HIGH, HELD))
    store.keep(LineState(HIGH, NEXT, HELD))
    store.paths[0].write_bytes(store.paths[0].read_bytes()[:-3])
    again = LineStore(tmp_path, Durability.POWER)
    assert again.read() == LineState(HIGH, HELD)
    again.keep(LineState(HIGH, NEXT))
    assert again.read() == LineState(HIGH, NEXT)
    store.paths[1].write_bytes(b"torn")
    store.paths[0].write_bytes(b"torn")
    with pytest.raises(StoreError, match="is damaged"):
        again.read()


def test_a_disk_that_takes_nothing_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be written"):
        LineStore(tmp_path / "nowhere").keep(LineState(promised=HIGH))
