"""A snapshot comes back whole, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.floor.test_following import followed, sequences

from isocast.floor.fast import FastFloor
from isocast.floor.following import FloorFollower, FloorMessage
from isocast.floor.machine import Floor
from isocast.floor.snapshot import floor_of, fold, rows_of, unfold
from isocast.floor.state import state_hash
from isocast.terms.errors import RemoteProtocolError


class _ReadableFollower(FloorFollower):
    floor_class = Floor


@pytest.mark.parametrize("before", [FloorFollower, _ReadableFollower])
@pytest.mark.parametrize("after", [FastFloor, Floor])
@given(tokens=sequences())
def test_either_floor_comes_back_from_the_rows_of_either(
    before: type[FloorFollower], after: type[Floor], tokens: list[tuple[int, int, list[FloorMessage]]]
) -> None:
    follower = before("XISO")
    followed(follower, tokens)
    again = floor_of(unfold(fold(rows_of(follower.floor))), after)
    assert state_hash(again) == state_hash(follower.floor)
    assert rows_of(again) == rows_of(follower.floor)
    if type(again) is type(follower.floor):
        assert {name: type(value) for name, value in vars(again).items()} == {
            name: type(value) for name, value in vars(follower.floor).items()
        }


@given(sequences(), st.integers(0), st.integers(0, 255))
def test_a_changed_byte_is_noticed(tokens: list[tuple[int, int, list[FloorMessage]]], at: int, byte: int) -> None:
    follower = FloorFollower("XISO")
    followed(follower, tokens)
    whole = follower.snapshot()
    damaged = bytearray(whole)
    damaged[at % len(damaged)] = byte
    if damaged != whole:
        with pytest.raises(RemoteProtocolError):
            FloorFollower.restored(bytes(damaged))


@given(st.binary(max_size=100))
def test_whatever_else_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        FloorFollower.restored(data)


@pytest.mark.parametrize("rows", [{}, {"code": "XISO"}, {"code": "XISO", "steps": 1, "sequence": 1, "floor": {}}])
def test_rows_of_another_version_are_refused(rows: dict[str, object]) -> None:
    with pytest.raises(RemoteProtocolError, match="another version"):
        FloorFollower.restored(fold(rows))
