"""The kernel's filters: the program judges as the reader would, in an interpreter and on real sockets."""

import socket
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.net.bpf import datagram, passes
from tests.wire.samples import KEYS, SAMPLES

from isocast.runtime.net.filters import ADDRESSES_MAX, FullBuffers, assembled, attach, frame_filter, stripe_filter
from isocast.runtime.net.sockets import Inlet, multicast_inlet, multicast_outlet, unicast_inlet, unicast_outlet
from isocast.wire.codec import PacketKind, encode
from isocast.wire.frame import MAGIC, VERSION, market_id
from isocast.wire.limits import FRAME_BYTES

MARKET = market_id("filtered")
STRIPE = SAMPLES[PacketKind.TOKEN].stripe
FRAME = encode(SAMPLES[PacketKind.TOKEN], KEYS, MARKET)
HERE, THERE, ELSEWHERE = "127.0.0.141", "127.0.0.142", "127.0.0.143"
GROUP = "239.255.77.61"


def number(address: str) -> int:
    return int(IPv4Address(address))


def believable(frame: bytes) -> bool:
    """What the reader's first checks say, in the reader's own words."""
    head = MAGIC + bytes((VERSION,))
    stripe = STRIPE.to_bytes(2, "little")
    return len(frame) >= FRAME_BYTES and frame[:3] == head and frame[4:8] == MARKET and frame[8:10] == stripe


def changed(frame: bytes, at: int, value: int) -> bytes:
    return frame[:at] + bytes((value,)) + frame[at + 1 :]


STRANGE = {
    "another magic": changed(FRAME, 0, 0x58),
    "another version": changed(FRAME, 2, VERSION + 1),
    "an old version": changed(FRAME, 2, VERSION - 1),
    "another market": encode(SAMPLES[PacketKind.TOKEN], KEYS, market_id("other")),
    "another stripe": changed(FRAME, 8, STRIPE + 1 & 0xFF),
    "another stripe's high byte": changed(FRAME, 9, 1),
    "too short for a frame": FRAME[: FRAME_BYTES - 1],
    "a single byte": b"I",
    "nothing": b"",
    "other people's": b"GET / HTTP/1.1\r\n\r\n" + bytes(60),
}

mutated = st.one_of(
    st.binary(max_size=100),
    st.builds(changed, st.just(FRAME), st.integers(0, 15), st.integers(0, 255)),
    st.builds(lambda length: FRAME[:length], st.integers(0, len(FRAME))),
    st.sampled_from([*STRANGE.values(), FRAME, FRAME + bytes(3_000)]),
)
addresses = st.integers(0, (1 << 32) - 1)


@given(mutated, addresses)
def test_without_senders_a_program_judges_the_frame_alone(frame: bytes, sender: int) -> None:
    assert passes(frame_filter(MARKET, STRIPE), datagram(frame, sender)) is believable(frame)


@given(mutated, st.sets(addresses, min_size=1, max_size=700), st.data())
def test_with_senders_it_judges_both(frame: bytes, senders: set[int], data: st.DataObject) -> None:
    sender = data.draw(st.one_of(st.sampled_from(sorted(senders)), addresses))
    program = frame_filter(MARKET, STRIPE, [str(IPv4Address(one)) for one in senders])
    assert passes(program, datagram(frame, sender)) is (believable(frame) and sender in senders)
    assert max(max(step.if_true, step.if_false) for step in program) < 256


def test_every_kind_passes() -> None:
    program = frame_filter(MARKET, STRIPE, [HERE])
    for packet in SAMPLES.values():
        if packet.stripe == STRIPE:
            assert passes(program, datagram(encode(packet, KEYS, MARKET), number(HERE)))


def test_with_more_senders_than_the_kernel_takes_frames_are_judged_alone() -> None:
    many = [str(IPv4Address(index)) for index in range(1, ADDRESSES_MAX + 2)]
    assert frame_filter(MARKET, STRIPE, many) == frame_filter(MARKET, STRIPE)
    assert len(assembled(frame_filter(MARKET, STRIPE, many[:-1]))) < 16_384


stripes = st.one_of(
    st.binary(max_size=60),
    st.builds(lambda rest: b"ICSS" + rest, st.binary(max_size=60)),
    st.integers(0, 60).map(bytes),
)


@given(stripes, st.sets(addresses, max_size=5), st.sampled_from([b"", b"ICSS"]), st.data())
def test_narrow_stripes_are_judged_by_length_magic_and_sender(
    raw: bytes, senders: set[int], magic: bytes, data: st.DataObject
) -> None:
    sender = data.draw(st.one_of(st.sampled_from(sorted(senders)), addresses) if senders else addresses)
    program = stripe_filter([str(IPv4Address(one)) for one in senders], magic)
    ours = len(raw) >= 20 and raw.startswith(magic)
    assert passes(program, datagram(raw, sender)) is (ours and (not senders or sender in senders))


@pytest.mark.parametrize("magic", [b"", b"ICSS"])
def test_the_shortest_packet_of_a_stripe_passes_and_a_shorter_one_does_not(magic: bytes) -> None:
    program = stripe_filter([HERE], magic)
    for length, passed in ((19, False), (20, True)):
        assert passes(program, datagram(magic.ljust(length, b"0"), number(HERE))) is passed


# ---- on real sockets


def arrived(inlet: Inlet, count: int) -> list[bytes]:
    """So many frames; datagrams to loopback are in the socket when they are sent."""
    found = inlet.read(1 << 20)
    assert len(found) == count
    return found


def test_the_kernel_judges_as_the_interpreter_does() -> None:
    program = frame_filter(MARKET, STRIPE, [HERE, ELSEWHERE])
    cases = [*STRANGE.values(), FRAME, FRAME + bytes(500)]
    with unicast_inlet(THERE, 0, guard=program) as inlet:
        for sender in (HERE, THERE, ELSEWHERE):
            with unicast_outlet(sender) as outlet:
                for frame in cases:
                    outlet.send_to(inlet.endpoint, [frame])
                    expected = passes(program, datagram(frame, number(sender)))
                    assert arrived(inlet, int(expected)) == [frame] * expected
        assert inlet.unfiltered == ""
        assert inlet.drops == 2 * len(STRANGE) + len(cases)


def test_a_group_is_filtered_as_well() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    program = frame_filter(MARKET, STRIPE, [HERE])
    with (
        multicast_inlet(GROUP, port, THERE, guard=program) as inlet,
        multicast_outlet(GROUP, port, HERE) as outlet,
        multicast_outlet(GROUP, port, ELSEWHERE) as stranger,
    ):
        outlet.send([*STRANGE.values()][:4])
        stranger.send([FRAME] * 5)
        outlet.send([FRAME] * 3)
        arrived(inlet, 3)


def test_a_filter_is_there_before_the_socket_is_bound() -> None:
    order: list[str] = []

    class Noted(socket.socket):
        def bind(self, address: object) -> None:
            order.append("bound")
            super().bind(address)  # type: ignore[arg-type]

        def setsockopt(self, level: int, name: int, *value: object) -> None:
            if name == 26 and level == socket.SOL_SOCKET:
                order.append("filtered")
            super().setsockopt(level, name, *value)  # type: ignore[call-overload]

    program = frame_filter(MARKET, STRIPE)
    unicast_inlet(THERE, 0, guard=program, kind=Noted).close()
    multicast_inlet(GROUP, 26_999, THERE, guard=program, kind=Noted).close()
    assert order == ["filtered", "bound"] * 2


def test_a_kernel_that_refuses_leaves_a_socket_without_a_filter() -> None:
    class Refusing(socket.socket):
        def setsockopt(self, level: int, name: int, *value: object) -> None:
            if name == 26 and level == socket.SOL_SOCKET:
                raise PermissionError(1, "Operation not permitted")
            super().setsockopt(level, name, *value)  # type: ignore[call-overload]

    with unicast_inlet(THERE, 0, guard=frame_filter(MARKET, STRIPE), kind=Refusing) as inlet:
        assert inlet.unfiltered == "Operation not permitted"
        with unicast_outlet(HERE) as outlet:
            outlet.send_to(inlet.endpoint, [b"anything"])
        assert arrived(inlet, 1) == [b"anything"]


def test_elsewhere_than_on_linux_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        assert attach(one, frame_filter(MARKET, STRIPE)) == "darwin has no filters of this kind"


# ---- full buffers and filters told apart


def snmp(path: Path, errors: int) -> None:
    path.write_text(f"Udp: InDatagrams InErrors RcvbufErrors\nUdp: 5 9 {errors}\nUdpLite: InDatagrams\nUdpLite: 0\n")


def test_what_no_full_buffer_explains_was_a_filter(tmp_path: Path) -> None:
    file = tmp_path / "snmp"
    snmp(file, 100)
    full = FullBuffers(file)
    assert full.split([7, 0]) == ([0, 0], 7)
    snmp(file, 103)
    assert full.split([5, 2]) == ([3, 2], 2), "counted rather too often than too rarely"


def test_a_drop_between_two_readings_is_no_filters(tmp_path: Path) -> None:
    file = tmp_path / "snmp"
    snmp(file, 0)
    full = FullBuffers(file)
    snmp(file, 4)
    assert full.split([1]) == ([1], 0)
    assert full.split([3]) == ([3], 0)
    assert full.split([3]) == ([0], 3)


@pytest.mark.parametrize("text", ["", "Udp: a\n", "Udp: RcvbufErrors\nUdp: many\n", "Udp: x\nUdp: 1\nUdp: 2\n"])
def test_where_the_kernel_does_not_tell_all_are_full_buffers(tmp_path: Path, text: str) -> None:
    file = tmp_path / "snmp"
    file.write_text(text)
    assert FullBuffers(file).split([4, 1]) == ([4, 1], 0)
    assert FullBuffers(tmp_path / "none").split([4]) == ([4], 0)


def test_on_this_machine_full_buffers_are_told_from_filters() -> None:
    """Other programs of this machine may overflow meanwhile, and count as ours: so a few tries."""
    counted = FullBuffers()
    with (
        unicast_inlet(THERE, 0, buffer_bytes=1 << 12, guard=frame_filter(MARKET, STRIPE)) as inlet,
        unicast_outlet(HERE) as outlet,
    ):
        told = []
        for attempt in range(20):
            for _ in range(20):
                outlet.send_to(inlet.endpoint, [b"no frame"])
            told.append(counted.split([inlet.drops - 20 * attempt]))
            if told[-1] == ([0], 20):
                break
        assert ([0], 20) in told
        before = inlet.drops
        for _ in range(200):
            outlet.send_to(inlet.endpoint, [FRAME])
        overflown = inlet.drops - before
        assert overflown > 0
        assert counted.split([overflown]) == ([overflown], 0)
