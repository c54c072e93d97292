"""Every packet survives the wire, and a frame that is damaged in any way does not."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.hostile import resealed
from tests.wire.samples import KEY, KEYS, MARKET, SAMPLES, SharedKey
from tests.wire.strategies import PACKETS, packets

from isocast.terms.errors import AnotherMarketError, LocalProtocolError, RemoteProtocolError
from isocast.terms.ids import Epoch
from isocast.wire.codec import NO_KEYS, VERSION, PacketKind, decode, encode, peek_kind
from isocast.wire.frame import MAGIC, NO_MARKET, market_id
from isocast.wire.limits import HEADER_BYTES, MARKET_ID_BYTES, MAX_PAYLOAD, TAG_BYTES
from isocast.wire.packets import (
    Data,
    Invite,
    Join,
    NewRing,
    Packet,
    Receipt,
    ReleasedPacket,
    Repair,
    SourceChain,
    Token,
    payload_digest,
)
from isocast.wire.token_body import token_body, token_digest


@pytest.mark.parametrize("kind", PACKETS, ids=lambda kind: kind.__name__)
@settings(max_examples=60)
@given(data=st.data())
def test_a_packet_survives_the_wire(kind: type[Packet], data: st.DataObject) -> None:
    packet = data.draw(PACKETS[kind])
    frame = encode(packet, KEYS)
    got = decode(frame, KEYS)
    assert type(got) is kind
    assert got == packet
    assert decode(memoryview(frame), KEYS) == packet
    assert encode(got, KEYS) == frame


def test_every_packet_of_the_union_has_a_strategy_and_a_sample() -> None:
    members = set(Packet.__args__)
    assert set(PACKETS) == members
    assert {type(packet) for packet in SAMPLES.values()} == members


@given(packet=PACKETS[Token])
def test_a_token_that_travelled_has_the_same_digest(packet: Token) -> None:
    got = decode(encode(packet))
    assert isinstance(got, Token)
    assert token_digest(got) == token_digest(packet)
    assert token_body(got) == token_body(packet)


@pytest.mark.parametrize("kind", PacketKind, ids=lambda kind: kind.name)
def test_the_kind_is_seen_without_reading_on(kind: PacketKind) -> None:
    frame = encode(SAMPLES[kind], KEYS)
    assert peek_kind(frame) is kind
    assert peek_kind(memoryview(frame)) is kind


@pytest.mark.parametrize("kind", PacketKind, ids=lambda kind: kind.name)
def test_a_frame_cut_short_anywhere_is_refused(kind: PacketKind) -> None:
    frame = encode(SAMPLES[kind], KEYS)
    for length in range(len(frame)):
        with pytest.raises(RemoteProtocolError):
            decode(frame[:length], KEYS)


def unsigned(packet: Packet) -> Packet | None:
    match packet:
        case Token():
            return replace(packet, signature=b"")
        case Receipt() | Invite() | Join() | NewRing() | SourceChain():
            return packet._replace(signature=b"")
        case _:
            return None


@pytest.mark.parametrize("kind", PacketKind, ids=lambda kind: kind.name)
def test_a_body_cut_short_or_continued_behind_a_right_tag_is_refused_or_another_packet(kind: PacketKind) -> None:
    """DATA, TOKENPART, PROOF and DISCLOSE end where the frame ends: a shorter one is another packet, not a broken one.

    A signature is there whole or not at all: cut off whole, it leaves the packet that was never signed.
    """
    packet = SAMPLES[kind]
    frame = encode(packet)
    signed = frame[:-TAG_BYTES]
    changed = [signed[:length] for length in range(HEADER_BYTES, len(signed))] + [signed + b"\0", signed + bytes(17)]
    for other in changed:
        try:
            got = decode(resealed(other + bytes(TAG_BYTES)))
        except RemoteProtocolError:
            continue
        ends_with_frame = kind in {PacketKind.DATA, PacketKind.TOKENPART, PacketKind.PROOF, PacketKind.DISCLOSE}
        assert ends_with_frame or got == unsigned(packet)
        assert got != packet


@pytest.mark.parametrize("kind", PacketKind, ids=lambda kind: kind.name)
def test_every_flipped_bit_is_refused(kind: PacketKind) -> None:
    frame = encode(SAMPLES[kind], KEYS)
    for bit in range(len(frame) * 8):
        flipped = bytearray(frame)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RemoteProtocolError):
            decode(bytes(flipped), KEYS)


@given(packet=packets())
def test_another_key_is_refused(packet: Packet) -> None:
    frame = encode(packet, KEYS)
    for keys in (NO_KEYS, SharedKey(KEY[::-1])):
        with pytest.raises(RemoteProtocolError, match="tag"):
            decode(frame, keys)


@pytest.mark.parametrize("kind", PacketKind, ids=lambda kind: kind.name)
def test_a_stranger_is_refused_and_nobody_sends_without_a_key(kind: PacketKind) -> None:
    packet = SAMPLES[kind]
    with pytest.raises(RemoteProtocolError, match="no key of sender"):
        decode(encode(packet, KEYS), {})
    with pytest.raises(LocalProtocolError, match="no key to send as"):
        encode(packet, {})


def test_each_sender_has_its_own_key() -> None:
    """A repair is its sender's; the DATA in it is its source's, and only the source could have made it."""
    repair = SAMPLES[PacketKind.REPAIR]
    assert isinstance(repair, Repair)
    keys = {repair.sender: b"a" * 32, repair.item.sender: b"b" * 32}
    frame = encode(repair, keys)
    assert decode(frame, keys) == repair
    with pytest.raises(RemoteProtocolError, match="tag"):
        decode(frame, {repair.sender: b"a" * 32, repair.item.sender: b"a" * 32})


@pytest.mark.parametrize("version", [0, VERSION + 1, 255])
def test_another_version_is_refused(version: int) -> None:
    for packet in SAMPLES.values():
        frame = bytearray(encode(packet))
        frame[2] = version
        with pytest.raises(RemoteProtocolError, match=f"version {version}"):
            decode(resealed(bytes(frame)))


@pytest.mark.parametrize("number", [0, max(PacketKind) + 1, 255])
def test_an_unknown_kind_is_refused(number: int) -> None:
    frame = bytearray(encode(SAMPLES[PacketKind.PENDING]))
    frame[3] = number
    with pytest.raises(RemoteProtocolError, match=f"kind {number}"):
        decode(resealed(bytes(frame)))


def test_another_magic_is_refused() -> None:
    frame = encode(SAMPLES[PacketKind.PENDING])
    with pytest.raises(RemoteProtocolError, match="magic"):
        decode(resealed(MAGIC[::-1] + frame[2:]))


@pytest.mark.parametrize("kind", PacketKind, ids=lambda kind: kind.name)
def test_a_packet_of_another_market_is_refused_before_its_tag_is_looked_at(kind: PacketKind) -> None:
    """Neither the tag nor the sender decides: both are wrong here as well."""
    frame = encode(SAMPLES[kind], KEYS, MARKET)
    forged = frame[:-1] + bytes((frame[-1] ^ 1,))
    for keys, came in ((KEYS, frame), (KEYS, forged), ({}, frame)):
        with pytest.raises(AnotherMarketError, match=f"another market: {MARKET.hex()}, not {market_id('b').hex()}"):
            decode(came, keys, market_id("b"))
    assert decode(frame, KEYS, MARKET) == SAMPLES[kind]


def test_the_item_of_a_repair_is_of_the_same_market() -> None:
    repair = SAMPLES[PacketKind.REPAIR]
    assert isinstance(repair, Repair)
    frame = encode(repair, KEYS, MARKET)
    strange = frame[:HEADER_BYTES] + encode(repair.item, KEYS, market_id("b")) + bytes(TAG_BYTES)
    with pytest.raises(AnotherMarketError):
        decode(resealed(strange, KEY), KEYS, MARKET)


def test_markets_are_told_apart_by_their_names() -> None:
    assert market_id("floor") == market_id("floor") != market_id("Floor")
    assert len(market_id("")) == len(NO_MARKET) == MARKET_ID_BYTES


@pytest.mark.parametrize(
    "kind", [PacketKind.DATA, PacketKind.RECEIPT, PacketKind.JOIN, PacketKind.NEWRING, PacketKind.REL]
)
@pytest.mark.parametrize("at", [10, 11])
def test_unknown_flags_are_refused(kind: PacketKind, at: int) -> None:
    frame = bytearray(encode(SAMPLES[kind]))
    frame[at] = 0x80
    with pytest.raises(RemoteProtocolError, match="unknown flags"):
        decode(resealed(bytes(frame)))


@pytest.mark.parametrize(
    "changes",
    [
        {"stripe": 1 << 16},
        {"stripe": -1},
        {"sender": 1 << 64},
        {"epoch": Epoch(1 << 32, 0)},
        {"epoch": Epoch(0, 1 << 32)},
    ],
)
def test_a_header_out_of_range_is_not_written(changes: dict[str, Any]) -> None:
    for packet in (SAMPLES[PacketKind.RECEIPT], SAMPLES[PacketKind.JOIN]):
        assert isinstance(packet, tuple)
        with pytest.raises(LocalProtocolError):
            encode(packet._replace(**changes))
    fields: dict[str, Any] = {"stripe": 1, "epoch": Epoch(1, 1), "sender": 1} | changes
    data = Data(**fields, number=1, base=1, payload=b"")
    with pytest.raises(LocalProtocolError):
        encode(data)
    with pytest.raises(LocalProtocolError):
        encode(Repair(**fields, item=data))


def test_numbers_and_payloads_out_of_range_are_not_written() -> None:
    epoch = Epoch(1, 1)
    for data in (
        Data(1, epoch, 1, 1 << 64, 0, b""),
        Data(1, epoch, 1, 0, -1, b""),
        Data(1, epoch, 1, 0, 0, bytes(MAX_PAYLOAD + 1)),
    ):
        with pytest.raises(LocalProtocolError):
            encode(data)
    with pytest.raises(LocalProtocolError, match="of 15 bytes"):
        encode(Receipt(1, epoch, 1, 1, bytes(15)))


def test_a_changed_release_has_the_digest_of_what_it_carries_now() -> None:
    """The digest is computed once for a packet, and never taken over by another one."""
    read = decode(encode(SAMPLES[PacketKind.REL], KEYS), KEYS)
    assert isinstance(read, ReleasedPacket)
    changed = read._replace(payload=b"another")
    assert (read.digest, changed.digest) == (payload_digest(read.payload), payload_digest(b"another"))
    assert changed != read == SAMPLES[PacketKind.REL]
    assert decode(encode(changed, KEYS), KEYS) == changed


def test_a_stranger_is_not_written() -> None:
    stranger: Any = "not a packet"
    with pytest.raises(LocalProtocolError, match="str is not a packet"):
        encode(stranger)
