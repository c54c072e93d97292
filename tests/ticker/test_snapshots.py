"""Snapshots of tapes: whole, of a known version, and never believed otherwise."""

from __future__ import annotations

import json
from hashlib import sha256
from struct import Struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isocast.terms.errors import RemoteProtocolError
from isocast.terms.instruments import Instrument
from isocast.ticker.tape import Tape
from isocast.ticker.views import day_rows, symbol_views
from isocast.wire.events import EVENT_DTYPE
from isocast.wire.names import name_events

HEADER = Struct("<8sIIQ32s")


def a_tape() -> Tape:
    events = np.zeros(40, EVENT_DTYPE)
    events["kind"], events["floor"], events["symbol"] = 1, b"XNYS", b"ISO"
    events["id"], events["price"], events["quantity"] = np.arange(1, 41), 100, 5
    events["kind"][30], events["id"][30], events["price"][30] = 7, 3, 90
    events["kind"][31], events["id"][31] = 8, 99
    tape = Tape()
    tape.take(events)
    return tape


WHOLE = a_tape().snapshot()


def sealed(body: bytes, description: int, version: int = 1) -> bytes:
    """A header that fits whatever follows."""
    return HEADER.pack(b"ISOTAPE\n", version, 5, description, sha256(body).digest()) + body


def altered(change: dict[str, object]) -> bytes:
    length = HEADER.unpack_from(WHOLE)[3]
    description = json.loads(WHOLE[HEADER.size : HEADER.size + length]) | change
    text = json.dumps(description).encode()
    return sealed(text + WHOLE[HEADER.size + length :], len(text))


def test_a_snapshot_gives_the_same_tape_with_its_faults_and_names() -> None:
    again = Tape.restore(WHOLE)
    assert again.snapshot() == WHOLE
    assert (again.faults.counts, again.faults.names) == (a_tape().faults.counts, a_tape().faults.names)
    assert (again.sequence, again.events, again.kinds.tolist()) == (40, 40, a_tape().kinds.tolist())


COIN = Instrument("XBIN", "BTC-USDT-PERPETUAL", price_decimals=8, quantity_decimals=3)


def a_named_tape() -> Tape:
    tape = a_tape()
    tape.take(name_events([COIN]))
    return tape


def test_a_snapshot_keeps_full_names_of_its_own_symbols() -> None:
    tape = a_named_tape()
    tape.names.add(Instrument("XLON", "A-NAME-THAT-IT-NEVER-HEARD"))
    again = Tape.restore(tape.snapshot())
    assert list(again.names) == [COIN]
    assert [view.name for view in symbol_views(again, [COIN.name])] == [COIN.name]
    assert [row.name for row in day_rows(again, [COIN.name])] == [COIN.name]
    assert again.snapshot() == tape.snapshot()
    assert a_tape().snapshot()[8] == 1, "without names it is what older programs read"


@pytest.mark.parametrize(
    "field, value",
    [("symbol", b"~83AAAAA"), ("symbol", b"ISO"), ("side", 0), ("floor", b"\xff\xff"), ("kind", 200), ("time", 1)],
)
def test_names_that_a_symbol_cannot_have_are_refused(field: str, value: object) -> None:
    raw = a_named_tape().snapshot()
    names = np.frombuffer(raw[-3 * EVENT_DTYPE.itemsize :], EVENT_DTYPE).copy()
    names[field] = value
    body = raw[HEADER.size : -names.nbytes] + names.tobytes()
    head = HEADER.pack(b"ISOTAPE\n", 3, 8, HEADER.unpack_from(raw)[3], sha256(body).digest())
    with pytest.raises(RemoteProtocolError, match="names that cannot be"):
        Tape.restore(head + body)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
def test_any_changed_byte_is_found(place: int, change: int) -> None:
    raw = bytearray(WHOLE)
    raw[place] ^= change
    with pytest.raises(RemoteProtocolError):
        Tape.restore(bytes(raw))


@pytest.mark.parametrize("length", [0, 1, HEADER.size - 1, HEADER.size, len(WHOLE) - 1])
def test_a_cut_snapshot_is_refused(length: int) -> None:
    with pytest.raises(RemoteProtocolError):
        Tape.restore(WHOLE[:length])


def test_another_version_is_named() -> None:
    body = WHOLE[HEADER.size :]
    with pytest.raises(RemoteProtocolError, match="version 9"):
        Tape.restore(sealed(body, HEADER.unpack_from(WHOLE)[3], version=9))


@pytest.mark.parametrize(
    "change",
    [
        {"records": [1, 1, 1, 39]},
        {"records": [1, 1, 1, 1 << 40, 1]},
        {"records": [1, 1, 1, -1, 1]},
        {"records": "five"},
        {"counts": []},
        {"counts": {"no-such-fault": 1}},
        {"names": {"no-price": [[1]]}},
        {"names": {"no-price": [[1, 99, "XNYS", "ISO", 1, 1]]}},
        {"kinds": "none"},
        {"kinds": [1 << 70]},
        {"kinds": [-1]},
        {"kinds": [0] * 500},
        {"sequence": None},
    ],
)
def test_a_description_that_nobody_wrote_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(RemoteProtocolError):
        Tape.restore(altered(change))


@pytest.mark.parametrize(
    "back, value",
    [
        (24 + 38 * 48, 7),  # A trade of a line that is not there.
        (24 + 8, 200),  # An earlier trade of the same id that is not there.
        (24, 1),  # What another trade was at first.
    ],
)
def test_what_points_at_nothing_is_refused(back: int, value: int) -> None:
    raw = bytearray(WHOLE)
    length = HEADER.unpack_from(WHOLE)[3]
    raw[len(WHOLE) - back] = value
    with pytest.raises(RemoteProtocolError, match="points at"):
        Tape.restore(sealed(bytes(raw[HEADER.size :]), length))
