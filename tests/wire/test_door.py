"""What is said at a door: every message comes back, and hostile bytes give RemoteProtocolError only."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.terms.errors import ForgeryError, LocalProtocolError, RemoteProtocolError
from isocast.terms.ids import Label
from isocast.wire.door import (
    MAX_BATCH,
    Accepted,
    Block,
    CheckpointGiven,
    CheckpointWanted,
    DoorKind,
    DoorMessage,
    End,
    Hello,
    Login,
    Publish,
    RangeWanted,
    Refused,
    Session,
    Snapshot,
    SnapshotWanted,
    Welcome,
    decode_message,
    encode_message,
    proof,
)
from isocast.wire.limits import MAX_PAYLOAD

U64 = st.integers(0, (1 << 64) - 1)
NONCE = st.binary(min_size=32, max_size=32)
TAG = st.binary(min_size=16, max_size=16)
MESSAGES: st.SearchStrategy[DoorMessage] = st.one_of(
    st.builds(Hello, NONCE),
    st.builds(Login, st.text(max_size=40), NONCE, TAG),
    st.builds(Welcome, TAG),
    st.builds(Refused, st.text(max_size=200)),
    st.builds(
        Publish,
        st.lists(st.tuples(st.binary(min_size=1, max_size=64), st.binary(max_size=200)), max_size=5).map(tuple),
    ),
    st.lists(st.tuples(st.builds(Label, U64, U64), st.booleans()), max_size=5).map(
        lambda pairs: Accepted(tuple([label for label, _ in pairs]), sum([old for _, old in pairs]))
    ),
    st.builds(RangeWanted, U64, U64),
    st.builds(Block, st.binary(max_size=100)),
    st.builds(End, U64, U64),
    st.just(SnapshotWanted()),
    st.builds(Snapshot, U64, st.binary(max_size=100)),
    st.just(CheckpointWanted()),
    st.builds(CheckpointGiven, st.binary(max_size=100)),
)


def test_no_more_can_be_repeated_than_there_are() -> None:
    with pytest.raises(RemoteProtocolError, match="more repeated than there are"):
        decode_message(encode_message(Accepted((Label(1, 1),), 2)))


@given(message=MESSAGES)
def test_every_message_comes_back(message: DoorMessage) -> None:
    assert decode_message(encode_message(message)) == message


@given(kind=st.integers(0, 255), body=st.binary(max_size=200))
def test_hostile_bytes_are_a_remote_protocol_error_or_a_message(kind: int, body: bytes) -> None:
    try:
        message = decode_message(bytes((kind,)) + body)
    except RemoteProtocolError:
        return
    assert type(message) in DoorMessage.__args__


@pytest.mark.parametrize("message", [SnapshotWanted(), CheckpointWanted()], ids=lambda message: type(message).__name__)
@given(more=st.binary(min_size=1, max_size=40))
def test_a_wish_without_a_body_has_none(message: DoorMessage, more: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="WANTED: bytes where there is nothing to say"):
        decode_message(encode_message(message) + more)


@given(data=st.data())
def test_a_publish_cut_short_is_refused(data: st.DataObject) -> None:
    whole = encode_message(Publish(((b"key", b"payload"), (b"other", b""))))
    with pytest.raises(RemoteProtocolError):
        decode_message(whole[: data.draw(st.integers(0, len(whole) - 1))])


def test_nothing_is_no_message() -> None:
    with pytest.raises(RemoteProtocolError, match="empty"):
        decode_message(b"")
    with pytest.raises(RemoteProtocolError):
        decode_message(bytes((max(DoorKind) + 1,)))


@pytest.mark.parametrize(
    "batches",
    [((b"", b"x"),), ((b"k" * 65, b"x"),), ((b"k", bytes(MAX_PAYLOAD + 1)),), ((b"k", b""),) * (MAX_BATCH + 1)],
    ids=["no key", "a long key", "a long payload", "too many"],
)
def test_what_a_door_would_refuse_is_not_written(batches: tuple[tuple[bytes, bytes], ...]) -> None:
    with pytest.raises(LocalProtocolError):
        encode_message(Publish(batches))


KEY = bytes(range(32))


def test_a_session_takes_its_messages_in_order_and_once() -> None:
    nonces = (b"a" * 32, b"b" * 32)
    sends, takes = Session(KEY, b"client", *nonces), Session(KEY, b"client", *nonces)
    first, second = sends.sealed(b"one"), sends.sealed(b"two")
    with pytest.raises(ForgeryError):
        Session(KEY, b"client", *nonces).unsealed(second)
    assert takes.unsealed(first) == b"one"
    with pytest.raises(ForgeryError):
        takes.unsealed(first)


def test_the_two_directions_and_other_nonces_share_no_key() -> None:
    nonces = (b"a" * 32, b"b" * 32)
    sealed = Session(KEY, b"client", *nonces).sealed(b"one")
    for other in (
        Session(KEY, b"server", *nonces),
        Session(KEY, b"client", *nonces[::-1]),
        Session(KEY[::-1], b"client", *nonces),
    ):
        with pytest.raises(ForgeryError):
            other.unsealed(sealed)
    assert proof(KEY, b"client", *nonces) != proof(KEY, b"server", *nonces)
