"""Everything that a socket gives is judged once: taken, or counted under one name and dropped."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.samples import DATA, KEYS, SAMPLES, SITE, SOURCE, STRIPE, SharedKey

from isocast.runtime.net.channels import Reception
from isocast.runtime.watch.counters import Channel, NodeCounters, packet_slot
from isocast.security.sealing import CHANGES_HEARD, CHANGES_REPAIRED
from isocast.wire.codec import NO_KEYS, Keys, PacketKind, encode
from isocast.wire.frame import MAGIC, VERSION, market_id, tag_of
from isocast.wire.limits import TAG_BYTES
from isocast.wire.packets import Data, Repair

OWN = 1
TAKEN = (PacketKind.TOKEN, PacketKind.DATA, PacketKind.REPAIR, PacketKind.NEWRING, PacketKind.JOIN)
FRAMES = {kind: encode(packet, KEYS) for kind, packet in SAMPLES.items()}
TOKEN = FRAMES[PacketKind.TOKEN]
REFUSALS = ("authentication_failures", "malformed", "unknown_senders", "another_market", "unaddressed")


def reception(keys: Keys = KEYS, own: int = OWN) -> tuple[Reception, NodeCounters]:
    counters = NodeCounters()
    return Reception(Channel.CONTROL, STRIPE, own, TAKEN, keys, counters), counters


def refused(counters: NodeCounters) -> dict[str, int]:
    """Every counter of refusals that is not zero."""
    return {name: getattr(counters, name) for name in REFUSALS if getattr(counters, name)}


def flipped(frame: bytes, place: int) -> bytes:
    return frame[:place] + bytes([frame[place] ^ 1]) + frame[place + 1 :]


def data_of(sender: int) -> bytes:
    return encode(replace(DATA, sender=sender), KEYS)


@pytest.mark.parametrize("kind", TAKEN)
def test_what_is_genuine_and_meant_is_taken_and_counted_by_kind(kind: PacketKind) -> None:
    reader, counters = reception()
    assert reader.packets([FRAMES[kind]]) == [SAMPLES[kind]]
    assert counters.packets_received[packet_slot(Channel.CONTROL, kind)] == 1
    assert sum(counters.packets_received) == 1
    assert refused(counters) == {}


@pytest.mark.parametrize(
    "frame, counter",
    [
        (b"", "malformed"),
        (MAGIC + bytes([VERSION]), "malformed"),
        (b"IC\x01\x04", "malformed"),
        (TOKEN[:43], "malformed"),
        (b"XX" + FRAMES[PacketKind.RECEIPT][2:], "malformed"),
        (b"XX" + TOKEN[2:], "malformed"),
        (TOKEN[:2] + bytes([VERSION + 1]) + TOKEN[3:], "malformed"),
        (TOKEN[:3] + b"\xff" + TOKEN[4:], "malformed"),
        (TOKEN + bytes(2_000), "malformed"),
        (flipped(TOKEN, 10), "malformed"),
        (flipped(TOKEN, 30), "authentication_failures"),
        (flipped(TOKEN, len(TOKEN) - 1), "authentication_failures"),
        (flipped(FRAMES[PacketKind.DATA], 50), "authentication_failures"),
        (TOKEN[:-1], "authentication_failures"),
        (TOKEN + b"\0", "authentication_failures"),
        (encode(SAMPLES[PacketKind.TOKEN], SharedKey(b"another key")), "authentication_failures"),
        (encode(SAMPLES[PacketKind.TOKEN], SharedKey(b"another key"), market_id("b")), "another_market"),
        (encode(SAMPLES[PacketKind.DATA], KEYS, market_id("b")), "another_market"),
        (encode(SAMPLES[PacketKind.RECEIPT], KEYS, market_id("b")), "another_market"),
        (FRAMES[PacketKind.RECEIPT], "unaddressed"),
        (FRAMES[PacketKind.REL], "unaddressed"),
        (encode(replace(DATA, stripe=STRIPE + 1), KEYS), "unaddressed"),
        (data_of(OWN), "unaddressed"),
        (flipped(data_of(OWN), 50), "authentication_failures"),
    ],
    ids=str,
)
def test_every_refusal_has_one_name_and_is_counted_once(frame: bytes, counter: str) -> None:
    reader, counters = reception()
    assert reader.packets([frame]) == []
    assert refused(counters) == {counter: 1}
    assert sum(counters.packets_received) == 0


def test_a_sender_without_a_key_is_a_stranger() -> None:
    reader, counters = reception({SITE: b"key"})
    frames = [encode(SAMPLES[PacketKind.TOKEN], {SITE: b"key"}), encode(SAMPLES[PacketKind.DATA], {SOURCE: b"other"})]
    assert reader.packets(frames) == [SAMPLES[PacketKind.TOKEN]]
    assert refused(counters) == {"unknown_senders": 1}


def test_a_repair_is_believed_only_with_a_genuine_item() -> None:
    """The item's own sender must have sealed it, whoever passes it on."""
    forged = encode(SAMPLES[PacketKind.REPAIR], {SITE: b"key", SOURCE: b"guessed"})
    reader, counters = reception({SITE: b"key", SOURCE: b"real"})
    assert reader.packets([forged]) == []
    assert refused(counters) == {"authentication_failures": 1}


def test_a_burst_keeps_its_order_and_loses_only_what_is_refused() -> None:
    reader, counters = reception()
    numbers = [1, 2, 3, 4, 5]
    frames = [encode(replace(DATA, number=number), KEYS) for number in numbers]
    frames[2] = flipped(frames[2], 60)
    taken = reader.packets([b"noise", *frames, FRAMES[PacketKind.RECEIPT]])
    assert [packet.number for packet in taken if isinstance(packet, Data)] == [1, 2, 4, 5]
    assert refused(counters) == {"malformed": 1, "authentication_failures": 1, "unaddressed": 1}


def test_bytes_are_counted_whether_they_are_believed_or_not() -> None:
    reader, counters = reception()
    frames = [TOKEN, b"noise", flipped(TOKEN, 30)]
    reader.packets(frames)
    assert counters.bytes_received[Channel.CONTROL] == sum(map(len, frames))


def sealed(body: bytes) -> bytes:
    """Random bytes with the tag that everybody has who has no key: past authentication, into the decoders."""
    return body + tag_of(body, b"")


hostile = st.one_of(
    st.binary(max_size=200),
    st.builds(
        lambda kind, rest: MAGIC + bytes([VERSION]) + bytes([kind]) + rest, st.integers(0, 255), st.binary(max_size=300)
    ),
    st.builds(
        lambda kind, rest: sealed(MAGIC + bytes([VERSION]) + bytes([kind]) + rest),
        st.sampled_from(TAKEN),
        st.binary(max_size=300),
    ),
    st.builds(
        lambda kind, place, value, cut: sealed(_changed(encode(SAMPLES[kind])[:-TAG_BYTES], place, value)[:cut]),
        st.sampled_from(TAKEN),
        st.integers(0, 400),
        st.integers(0, 255),
        st.integers(28, 400),
    ),
)


def _changed(body: bytes, place: int, value: int) -> bytes:
    place %= len(body)
    return body[:place] + bytes([value]) + body[place + 1 :]


@given(st.lists(hostile, max_size=20))
def test_whatever_the_bytes_nothing_is_raised_and_everything_is_accounted_for(frames: list[bytes]) -> None:
    reader, counters = reception(NO_KEYS)
    taken = reader.packets(frames)
    assert len(taken) + sum(refused(counters).values()) == len(frames)
    assert sum(counters.packets_received) == len(taken)


class OfOneGeneration:
    """Knows payloads that begin so."""

    def __init__(self, name: bytes) -> None:
        self._name = name
        self.asked: list[int] = []

    def knows(self, stripe: int, label: tuple[int, int], sealed: bytes, changes: int) -> bool:
        self.asked.append(changes)
        return (stripe, label) == (STRIPE, DATA.label) and sealed.startswith(self._name)


@pytest.mark.parametrize("repaired", [False, True])
def test_a_message_of_a_generation_of_seals_that_is_not_known_is_refused(repaired: bool) -> None:  # noqa: FBT001
    reader, counters = reception()
    packet = Repair(STRIPE, DATA.epoch, OWN + 1, DATA) if repaired else DATA
    frame = encode(packet, KEYS)
    reader.seals = seals = OfOneGeneration(DATA.payload[:4])
    assert reader.packets([frame]) == [packet]
    assert seals.asked == [CHANGES_REPAIRED if repaired else CHANGES_HEARD]
    reader.seals = OfOneGeneration(b"another")
    assert reader.packets([frame]) == []
    assert reader.refused == [0]
    assert refused(counters) == {"authentication_failures": 1}
    assert reader.packets([TOKEN]) == [SAMPLES[PacketKind.TOKEN]], "what is no message has no seal"
