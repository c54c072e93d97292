"""What doors give, sealed: repair or history of its period opens it, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.journal_samples import blocks

from isocast.security.door_seals import DoorOpener, DoorSealer
from isocast.security.keys import SecretKey
from isocast.security.line_seals import BoughtKeys, RegionKeys
from isocast.security.subscriptions import BASE, HISTORY, REPAIR, period_of, service_key
from isocast.terms.errors import ForgeryError, RemoteProtocolError, UnpaidError
from isocast.terms.instants import SECOND
from isocast.wire.door import Block, DoorMessage, End, Sealed, Snapshot
from isocast.wire.journal_blocks import encode_block, view_block

REGION = SecretKey(bytes(range(32)))
MARKET = b"m" * 32
P = 60 * SECOND
BODY = b"".join(encode_block(blocks(1)[0]).pieces)
HEADER = view_block(BODY).header
PERIOD = period_of(HEADER.instant, P)
SERVER = 131_073


def drawn(count: int) -> bytes:
    drawn.state += 1  # type: ignore[attr-defined]
    return bytes([drawn.state % 256]) * count  # type: ignore[attr-defined]


drawn.state = 0  # type: ignore[attr-defined]


BLOCK = Block(BODY)


def sealed(message: DoorMessage = BLOCK, instant: int = 0, server: int = SERVER) -> Sealed:
    found = DoorSealer(RegionKeys(REGION, P), MARKET, 0, server, drawn).seal(message, instant)
    assert isinstance(found, Sealed)
    return found


def opener(*what: tuple[str, int], market: bytes = MARKET, server: int = SERVER) -> DoorOpener:
    keys = BoughtKeys([service_key(REGION, service, period, P) for service, period in what])
    return DoorOpener(keys, market, 0, server)


@pytest.mark.parametrize("service", [REPAIR, HISTORY])
def test_either_service_opens_a_block_of_its_period(service: str) -> None:
    message = sealed()
    assert (message.period, message.first) == (PERIOD, HEADER.first_sequence)
    assert message.last == HEADER.first_sequence + HEADER.messages - 1
    assert BODY[100:140] not in message.box
    assert opener((service, PERIOD)).open(message) == Block(BODY)


def test_what_was_not_bought_is_told_apart_from_what_was_forged() -> None:
    message = sealed()
    for what in ((BASE, PERIOD), (REPAIR, PERIOD + 1), (HISTORY, PERIOD + 2)):
        with pytest.raises(UnpaidError, match=f"neither repair nor history of period {PERIOD}"):
            opener(what).open(message)
    for other in (opener((REPAIR, PERIOD), market=b"n" * 32), opener((REPAIR, PERIOD), server=SERVER + 1)):
        with pytest.raises(ForgeryError):
            other.open(message)


def test_what_is_said_in_the_clear_cannot_be_changed() -> None:
    message = sealed()
    for changed in (message._replace(first=message.first + 1), message._replace(last=message.last + 1)):
        with pytest.raises(ForgeryError):
            opener((REPAIR, PERIOD)).open(changed)
    with pytest.raises(ForgeryError):
        opener((REPAIR, PERIOD), (REPAIR, PERIOD + 1)).open(message._replace(period=PERIOD + 1))


def test_a_snapshot_is_of_the_period_in_which_it_is_given() -> None:
    message = sealed(Snapshot(17, b"events"), instant=9 * P + 1)
    assert message.period == 9
    assert opener((HISTORY, 9)).open(message) == Snapshot(17, b"events")


def test_what_is_not_sold_passes_as_it_is() -> None:
    door = DoorSealer(RegionKeys(REGION, P), MARKET, 0, SERVER, drawn)
    assert door.seal(End(1, 2), 0) == End(1, 2)


@given(st.binary(max_size=300), st.integers(0, 300))
def test_whatever_the_box_it_is_refused_in_one_way(junk: bytes, kept: int) -> None:
    message = sealed()
    with pytest.raises(RemoteProtocolError):
        opener((REPAIR, PERIOD), (HISTORY, PERIOD)).open(message._replace(box=message.box[:kept] + junk))


def test_every_flipped_bit_of_a_box_is_refused() -> None:
    message = sealed(Snapshot(17, b"events"), instant=HEADER.instant)
    for place in range(8 * 12, 8 * len(message.box), 5):
        changed = bytearray(message.box)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises(ForgeryError):
            opener((REPAIR, PERIOD), (HISTORY, PERIOD)).open(message._replace(box=bytes(changed)))
