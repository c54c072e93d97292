"""A change of format is seen: the bytes are kept as files (see `golden_vectors` for how to renew them)."""

import numpy as np
import pytest
from tests.wire.door_samples import DOOR_SAMPLES, NONCES
from tests.wire.golden_vectors import FOLDER, door_name, read_vector, vectors
from tests.wire.samples import EVENT, FORCED_RING, KEY, KEYS, MARKET, ORDERED_TOKEN, SAMPLES, TOKEN

from isocast.wire.codec import decode
from isocast.wire.door import DoorKind, Session, decode_message, encode_message
from isocast.wire.events import build_events, events_view
from isocast.wire.frame import PacketKind
from isocast.wire.limits import TAG_BYTES
from isocast.wire.token_body import decode_token_body


def test_every_kind_has_a_vector_and_nothing_else_lies_there() -> None:
    assert set(SAMPLES) == set(PacketKind)
    assert set(DOOR_SAMPLES) == set(DoorKind)
    assert {path.stem for path in FOLDER.glob("*.hex")} == set(vectors())


@pytest.mark.parametrize("name", vectors())
def test_the_bytes_are_those_of_the_file(name: str) -> None:
    assert vectors()[name].hex(" ", 8) == read_vector(name).hex(" ", 8)


@pytest.mark.parametrize("kind", PacketKind, ids=lambda kind: kind.name)
def test_the_file_is_read_as_the_packet(kind: PacketKind) -> None:
    assert decode(read_vector(kind.name.lower()), KEYS, MARKET) == SAMPLES[kind]


@pytest.mark.parametrize("kind", DoorKind, ids=lambda kind: kind.name)
def test_the_file_is_read_as_the_message_at_a_door(kind: DoorKind) -> None:
    assert decode_message(read_vector(door_name(kind))) == DOOR_SAMPLES[kind]


def test_the_tags_at_a_door_are_found_right() -> None:
    raw, door = read_vector("door_tagged"), Session(KEY, b"client", *NONCES)
    end = len(encode_message(DOOR_SAMPLES[DoorKind.RANGE])) + TAG_BYTES
    said = [decode_message(door.unsealed(message)) for message in (raw[:end], raw[end:])]
    assert said == [DOOR_SAMPLES[DoorKind.RANGE], DOOR_SAMPLES[DoorKind.SNAPSHOT_WANTED]]


def test_the_token_body_is_read_as_the_token() -> None:
    assert decode_token_body(TOKEN.stripe, read_vector("token_body")) == TOKEN
    assert decode_token_body(TOKEN.stripe, read_vector("token_body_ordered")) == ORDERED_TOKEN


def test_a_forced_ring_is_read_with_its_order() -> None:
    assert decode(read_vector("newring_forced"), KEYS, MARKET) == FORCED_RING


def test_the_event_record_is_viewed_as_the_event() -> None:
    assert np.array_equal(events_view(read_vector("event_record")), build_events([EVENT]))
