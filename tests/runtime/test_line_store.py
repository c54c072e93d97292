"""What a node keeps of plans of lines comes back, and a damaged file is not believed."""

from pathlib import Path

import pytest
from tests.wire.samples import BALLOT, SAMPLES, SERVER

from isocast.reformation.scopes.line_effects import LineState
from isocast.runtime.line_store import LineStore
from isocast.terms.errors import StoreError
from isocast.terms.ids import Epoch
from isocast.wire.frame import Kind
from isocast.wire.packets import Lines, PlanVersion

HELD = SAMPLES[Kind.LINES]
assert isinstance(HELD, Lines)
NEXT = HELD._replace(version=PlanVersion(Epoch(9, SERVER), 1, SERVER))
HIGH = PlanVersion(Epoch(12, SERVER), 3, SERVER)

STATES = [
    LineState(),
    LineState(promised=HIGH),
    LineState(HIGH, HELD),
    LineState(HIGH, HELD, HELD),
    LineState(HIGH, NEXT, HELD),
]


@pytest.mark.parametrize("state", STATES)
def test_a_state_comes_back(tmp_path: Path, state: LineState) -> None:
    LineStore(tmp_path).keep(LineState(promised=PlanVersion(BALLOT, 1, SERVER)))
    LineStore(tmp_path).keep(state)
    assert LineStore(tmp_path).read() == state
    assert [path.name for path in tmp_path.iterdir()] == ["lines"]


def test_without_a_file_nothing_was_kept(tmp_path: Path) -> None:
    assert LineStore(tmp_path).read() == LineState()


def test_every_flipped_bit_and_every_cut_is_found(tmp_path: Path) -> None:
    """A receiver that forgot what it promised must not go on as if it had promised nothing."""
    store = LineStore(tmp_path)
    store.keep(LineState(HIGH, NEXT, HELD))
    whole = store.path.read_bytes()
    assert store.read() == LineState(HIGH, NEXT, HELD)
    boundaries = []
    for cut in range(1, len(whole)):
        store.path.write_bytes(whole[:cut])
        try:
            store.read()
            boundaries.append(cut)
        except StoreError:
            pass
    # Only a file that ends with a whole frame is whole, and it is written in one piece.
    assert len(boundaries) == 1
    for place in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        store.path.write_bytes(damaged)
        with pytest.raises(StoreError):
            store.read()


def test_a_disk_that_takes_nothing_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be written"):
        LineStore(tmp_path / "nowhere").keep(LineState(promised=HIGH))
