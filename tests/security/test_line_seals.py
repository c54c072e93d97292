"""Sealed lines: who paid for a period reads it, and nothing else; nobody's packet passes for another's."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.security.keys import SecretKey
from isocast.security.line_seals import BoughtKeys, LineOpener, LineSealer, RegionKeys
from isocast.security.subscriptions import BASE, HISTORY, REPAIR, service_key
from isocast.terms.errors import (
    AnotherMarketError,
    ForgeryError,
    LocalProtocolError,
    RemoteProtocolError,
    StrangerError,
    UnpaidError,
)
from isocast.terms.ids import Epoch, server_id
from isocast.terms.instants import SECOND
from isocast.wire.codec import decode, encode, line_packet
from isocast.wire.frame import FLAGS_AT
from isocast.wire.limits import (
    FRAME_BYTES,
    HEADER_BYTES,
    MAX_PAYLOAD,
    MAX_PROOF,
    RELEASED_BYTES,
    SEAL_BYTES,
    SEALED_LINE_BYTES,
    TAG_BYTES,
)
from isocast.wire.packets import Packet, Pending, Proof, ReleasedPacket

REGION = SecretKey(bytes(range(32)))
MARKET, ID = b"m" * 32, b"MKT1"
P = 60 * SECOND
DELAY = 2 * SECOND
T = 1_000 * P
EPOCH = Epoch(3, server_id(1))
LONDON, PARIS, ARCHIVE = 1, 2, 131_073
SENDERS = {LONDON: BASE, PARIS: BASE, ARCHIVE: REPAIR}


def rel(instant: int = T, sender: int = LONDON, payload: bytes = b"a trade", count: int = 1) -> ReleasedPacket:
    return ReleasedPacket(0, EPOCH, sender, 7, 50, instant, 0, 50, count, payload, b"", uncertified=False)


def sealer(sender: int = LONDON, service: str = BASE, counter: int = 0, drawn: bytes = b"draw") -> LineSealer:
    return LineSealer(RegionKeys(REGION, P), MARKET, sender, service, DELAY, drawn, counter)


def bought(*what: tuple[str, int]) -> BoughtKeys:
    return BoughtKeys([service_key(REGION, service, period, P) for service, period in what])


def opener(keys: BoughtKeys | None = None) -> LineOpener:
    return LineOpener(keys or bought((BASE, 1_000)), MARKET, SENDERS, P, DELAY)


def test_who_paid_reads_the_packet_again() -> None:
    for packet in (rel(), rel()._replace(uncertified=True), rel(T + DELAY, payload=b"", count=0)):
        assert opener().open(sealer().seal(packet, ID), ID) == packet


def test_it_is_17_bytes_longer_than_a_tagged_one_and_shows_nothing() -> None:
    frame = sealer().seal(rel(), ID)
    assert len(frame) == len(encode(rel(), market=ID)) + SEALED_LINE_BYTES
    assert b"a trade" not in frame
    assert encode(rel(), market=ID)[HEADER_BYTES : HEADER_BYTES + 24] not in frame


def test_the_longest_payload_fits_and_a_proof_too() -> None:
    assert opener().open(sealer().seal(rel(payload=bytes(MAX_PAYLOAD - SEAL_BYTES)), ID), ID) == rel(
        payload=bytes(MAX_PAYLOAD - SEAL_BYTES)
    )
    proof = Proof(0, EPOCH, LONDON, 7, T, 0, 0, 50, 0, 1, bytes(16), (bytes(16),) * 80, bytes(72))
    frame = sealer().seal(proof, ID)
    assert len(frame) <= 1_472
    assert opener().open(frame, ID) == proof


def test_a_burst_is_sealed_as_each_of_its_packets_would_be() -> None:
    """Messages of several tokens, epochs and periods, marked ones, heartbeats and a proof between them."""
    proof = Proof(0, EPOCH, LONDON, 7, T, 0, 0, 50, 0, 1, bytes(16), (bytes(16),) * 80, bytes(72))
    burst: list[Packet] = [
        *(proof, rel(), rel(payload=b"another"), rel()._replace(uncertified=True), rel(T + P - 1), rel(T + P)),
        *(rel(T + P + DELAY, payload=b"", count=0), rel(), rel()._replace(epoch=Epoch(4, server_id(1)), stripe=1)),
        *(rel(payload=b"", count=27), rel()._replace(shuffle_key=b"k" * 16), rel(payload=b"")),
    ]
    one, other = sealer(), sealer()
    assert one.seal_all(burst, ID) == [other.seal(packet, ID) for packet in burst]
    assert one.seal_all(burst[:2], ID) == [other.seal(packet, ID) for packet in burst[:2]], "nonces go on"
    assert sealer().seal_all([], ID) == []


@pytest.mark.parametrize("wrong", [rel(payload=bytes(MAX_PAYLOAD)), rel(instant=-1), rel()._replace(shuffle_key=b"")])
def test_a_burst_with_what_readers_would_refuse_is_refused_and_no_nonce_is_used_again(wrong: ReleasedPacket) -> None:
    one = sealer()
    before = one.seal_all([rel()], ID)
    with pytest.raises(LocalProtocolError):
        one.seal_all([rel(), wrong], ID)
    frames = [*before, *one.seal_all([rel()], ID)]
    nonces = {frame[HEADER_BYTES + 5 : HEADER_BYTES + 17] for frame in frames}
    assert nonces == {b"draw" + number.to_bytes(8, "big") for number in (1, 3)}


def test_the_same_packet_is_never_sealed_twice_alike() -> None:
    one = sealer()
    frames = {one.seal(rel(), ID) for _ in range(10)} | {sealer(drawn=b"next").seal(rel(), ID)}
    assert len(frames) == 11
    nonces = {frame[HEADER_BYTES + 5 : HEADER_BYTES + 17] for frame in frames}
    assert len(nonces) == 11


# ---- periods


def test_the_period_is_that_of_the_token() -> None:
    keys = bought((BASE, 1_000))
    assert opener(keys).open(sealer().seal(rel(T + P - 1), ID), ID) == rel(T + P - 1)
    for outside in (T - 1, T + P):
        with pytest.raises(UnpaidError, match=f"base of period {outside // P} was not bought"):
            opener(keys).open(sealer().seal(rel(outside), ID), ID)


def test_heartbeats_are_heard_until_the_last_message_of_the_period_is_released() -> None:
    one, two = opener(), sealer()
    last = rel(T + P + DELAY - 1, count=0, payload=b"")
    assert one.open(two.seal(last, ID), ID) == last
    with pytest.raises(UnpaidError):
        one.open(two.seal(last._replace(instant=T + P + DELAY), ID), ID)


def test_a_renewal_while_it_runs_leaves_no_gap() -> None:
    keys = bought((BASE, 1_000))
    one = opener(keys)
    one.open(sealer().seal(rel(T + P - 1), ID), ID)
    keys.add([service_key(REGION, BASE, 1_001, P)])
    assert one.open(sealer().seal(rel(T + P), ID), ID) == rel(T + P)


def test_until_when_it_is_paid() -> None:
    keys = bought((BASE, 1_000), (BASE, 1_001), (BASE, 1_003), (REPAIR, 1_000))
    assert keys.ends(BASE, T) == T + 2 * P
    assert keys.ends(BASE, T + P + 5) == T + 2 * P
    assert keys.ends(BASE, T + 2 * P) == 0
    assert keys.ends(REPAIR, T) == T + P
    assert keys.ends(HISTORY, T) == 0
    assert keys.has(REPAIR)
    assert not keys.has(HISTORY)


def test_a_key_of_one_period_does_not_speak_for_another() -> None:
    """Somebody who had paid for yesterday seals today's news with yesterday's key: named as today's, or as it is."""

    class Yesterday(RegionKeys):
        def find(self, service: str, _: int) -> bytes | None:
            return super().find(service, 999)

    forger = LineSealer(Yesterday(REGION, P), MARKET, LONDON, BASE, DELAY, b"draw", 0)
    with pytest.raises(ForgeryError, match="under another key"):
        opener().open(forger.seal(rel(), ID), ID)
    longer = LineSealer(RegionKeys(REGION, 2 * P), MARKET, LONDON, BASE, DELAY, b"draw", 0)
    keys = BoughtKeys([service_key(REGION, BASE, 500, 2 * P), service_key(REGION, BASE, 1_000, P)])
    with pytest.raises(ForgeryError, match="of period 1000 under the key of period 500"):
        opener(keys).open(longer.seal(rel(), ID), ID)


# ---- services and senders


def test_base_does_not_open_repairs() -> None:
    frame = sealer(ARCHIVE, REPAIR).seal(rel(sender=ARCHIVE), ID)
    with pytest.raises(UnpaidError, match="repair of period 1000"):
        opener().open(frame, ID)
    assert opener(bought((REPAIR, 1_000))).open(frame, ID) == rel(sender=ARCHIVE)


def test_a_line_has_one_service_and_one_sender() -> None:
    keys = bought((BASE, 1_000), (REPAIR, 1_000))
    with pytest.raises(StrangerError):
        opener(keys).open(sealer(LONDON, REPAIR).seal(rel(), ID), ID)
    with pytest.raises(StrangerError):
        opener(keys).open(sealer(77).seal(rel(sender=77), ID), ID)
    with pytest.raises(ForgeryError):
        opener(keys).open(sealer(PARIS).seal(rel(sender=LONDON), ID), ID)


def test_another_market_region_or_secret_opens_nothing() -> None:
    frame = sealer().seal(rel(), ID)
    with pytest.raises(ForgeryError):
        LineOpener(bought((BASE, 1_000)), b"n" * 32, SENDERS, P, DELAY).open(frame, ID)
    other = BoughtKeys([service_key(SecretKey(bytes(32)), BASE, 1_000, P)])
    with pytest.raises(ForgeryError):
        opener(other).open(frame, ID)
    with pytest.raises(AnotherMarketError):
        opener().open(frame, b"MKT2")


# ---- hostile bytes


def test_what_is_not_sealed_is_refused_there_and_what_is_sealed_elsewhere() -> None:
    with pytest.raises(RemoteProtocolError):
        opener().open(encode(rel(payload=bytes(99)), market=ID), ID)
    with pytest.raises(RemoteProtocolError, match="unknown flags 0x8000"):
        decode(sealer().seal(rel(), ID), market=ID)


def test_every_flipped_bit_is_refused() -> None:
    frame = sealer().seal(rel(), ID)
    for place in range(8 * len(frame)):
        changed = bytearray(frame)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises(RemoteProtocolError):
            opener().open(bytes(changed), ID)


@given(st.binary(max_size=200), st.integers(0, 90))
def test_whatever_the_bytes_it_is_refused_in_one_way(junk: bytes, kept: int) -> None:
    frame = sealer().seal(rel(), ID)[:kept] + junk
    with pytest.raises(RemoteProtocolError):
        opener().open(frame, ID)


def test_senders_cannot_make_it_remember_more_and_more() -> None:
    many = dict.fromkeys(range(1, 1000), BASE)
    one = LineOpener(RegionKeys(REGION, P), MARKET, many, P, DELAY)
    for node in many:
        assert one.open(sealer(node).seal(rel(sender=node), ID), ID).sender == node
    assert len(one._ciphers) == 256  # noqa: SLF001


def test_only_a_lines_packets_are_sealed_and_no_secret_is_shown() -> None:
    with pytest.raises(LocalProtocolError, match="Pending is not sealed"):
        sealer().seal(Pending(0, EPOCH, LONDON, 1), ID)
    with pytest.raises(LocalProtocolError):
        LineSealer(RegionKeys(REGION, P), MARKET, LONDON, HISTORY, DELAY, b"draw", 0)
    for secret in (sealer(), opener(), bought((BASE, 1)), RegionKeys(REGION, P)):
        with pytest.raises(TypeError):
            pickle.dumps(secret)
        with pytest.raises(TypeError):
            copy.deepcopy(secret)
    assert repr(bought((BASE, 1))) == "BoughtKeys(1 keys)"
    assert len(sealer().seal(rel(payload=b""), ID)) > FRAME_BYTES


@pytest.mark.parametrize(
    "body",
    [
        b"",
        bytes(RELEASED_BYTES - 1),
        encode(rel(), market=ID)[HEADER_BYTES:-TAG_BYTES] + b"x",
        encode(rel(), market=ID)[HEADER_BYTES : -TAG_BYTES - 1],
        encode(rel(), market=ID)[HEADER_BYTES : HEADER_BYTES + 42]
        + (MAX_PROOF + 1).to_bytes(2, "little")
        + encode(rel(), market=ID)[HEADER_BYTES + 44 : -TAG_BYTES]
        + bytes(MAX_PROOF + 1),
    ],
    ids=["nothing", "cut", "longer", "shorter", "a long proof"],
)
def test_an_authentic_body_that_no_writer_spells_is_refused(body: bytes) -> None:
    """Its sender has the key of the line, and lies."""
    with pytest.raises(RemoteProtocolError):
        line_packet(encode(rel(), market=ID)[:HEADER_BYTES], body)


def test_flags_that_no_message_has_are_refused() -> None:
    frame = encode(rel(), market=ID)
    for flags in (2, 0x40):
        header = frame[:FLAGS_AT] + bytes((flags,)) + frame[FLAGS_AT + 1 : HEADER_BYTES]
        with pytest.raises(RemoteProtocolError, match="unknown flags"):
            line_packet(header, frame[HEADER_BYTES:-TAG_BYTES])
