"""Captures: the UDP datagrams of pcap and pcapng files, whatever else is in them."""

from __future__ import annotations

from struct import pack

import pytest

from isocast.feeds.captures import Datagram, read_capture, write_capture
from isocast.feeds.outcomes import FeedFault, FeedLog
from isocast.terms.errors import FeedError

TIME = 1_548_860_400_123_456_789
UDP = pack(">HHHH", 1, 26_477, 13, 0) + b"hello"
IP = pack(">BBHHHBBH4s4s", 0x45, 0, 33, 0, 0x4000, 9, 17, 0, bytes([10, 0, 0, 1]), bytes([239, 1, 2, 3])) + UDP
ETHERNET = bytes(12) + b"\x08\x00" + IP


def read(raw: bytes, size: int = 1 << 20, *, strict: bool = False) -> tuple[list[Datagram], FeedLog]:
    log = FeedLog("test.pcap", strict=strict)
    return list(read_capture((raw[at : at + size] for at in range(0, len(raw), size)), log)), log


def pcap(*frames: bytes, order: str = "<", magic: int = 0xA1B2C3D4, link: int = 1) -> bytes:
    fraction = TIME % 10**9 // (1 if magic == 0xA1B23C4D else 1_000)
    head = pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 65_535, link)
    return head + b"".join(
        pack(f"{order}IIII", TIME // 10**9, fraction, len(each), len(each)) + each for each in frames
    )


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    size = 12 + len(body)
    return pack(f"{order}II", kind, size) + body + pack(f"{order}I", size)


def pcapng(frame: bytes, order: str = "<", resolution: int = 9, units: int = TIME) -> bytes:
    section = block(0x0A0D0D0A, pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1), order)
    option = pack(f"{order}HHB3xHH", 9, 1, resolution, 0, 0)
    interface = block(1, pack(f"{order}HHI", 1, 0, 65_535) + option, order)
    padded = frame + bytes(-len(frame) % 4)
    high, low = units >> 32, units & 0xFFFFFFFF
    packet = block(6, pack(f"{order}IIIII", 0, high, low, len(frame), len(frame)) + padded, order)
    return section + interface + block(5, b"counts..", order) + packet


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("magic, grain", [(0xA1B2C3D4, 1_000), (0xA1B23C4D, 1)])
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_pcap_in_both_orders_and_both_units(order: str, magic: int, grain: int, size: int) -> None:
    found, log = read(pcap(ETHERNET, ETHERNET, order=order, magic=magic), size, strict=True)
    assert [each.payload for each in found] == [b"hello", b"hello"]
    first = found[0]
    assert first == (TIME // grain * grain, "10.0.0.1", "239.1.2.3", 26_477, b"hello", 24)
    assert found[1].offset == 24 + 16 + len(ETHERNET)
    assert log.bytes_read == len(pcap(ETHERNET, ETHERNET))


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("resolution, units, time", [(9, TIME, TIME), (6, TIME // 1_000, TIME // 1_000 * 1_000)])
def test_pcapng_in_both_orders_and_several_units(order: str, resolution: int, units: int, time: int) -> None:
    found, _ = read(pcapng(ETHERNET, order, resolution, units), strict=True)
    assert [(each.time, each.payload) for each in found] == [(time, b"hello")]


def test_pcapng_counts_in_powers_of_two_too() -> None:
    found, _ = read(pcapng(ETHERNET, resolution=0x80 | 10, units=1_024 * 77 + 512), strict=True)
    assert found[0].time == 77_500_000_000


@pytest.mark.parametrize(
    "link, frame",
    [
        (1, bytes(12) + b"\x81\x00\0\5\x08\x00" + IP),
        (1, bytes(12) + b"\x88\xa8\0\5\x81\x00\0\5\x08\x00" + IP),
        (1, ETHERNET + b"trailer"),
        (101, IP),
        (113, bytes(14) + b"\x08\x00" + IP),
        (0, b"\2\0\0\0" + IP),
    ],
)
def test_links_of_other_kinds(link: int, frame: bytes) -> None:
    found, _ = read(pcap(frame, link=link), strict=True)
    assert [each.payload for each in found] == [b"hello"]


def test_what_is_no_udp_is_counted() -> None:
    tcp = ETHERNET[:23] + b"\6" + ETHERNET[24:]
    fragment = ETHERNET[:20] + b"\x20\x00" + ETHERNET[22:]
    arp = bytes(12) + b"\x08\x06" + bytes(28)
    found, log = read(pcap(tcp, fragment, arp, b"", ETHERNET), strict=True)
    assert len(found) == 1
    assert log.skipped == {
        "IP packets that are not UDP": 1,
        "fragments of IP packets": 1,
        "frames of no IPv4 packet": 2,
    }


def test_lengths_that_do_not_fit_are_a_fault() -> None:
    long = ETHERNET[:38] + b"\xff\xff" + ETHERNET[40:]
    found, log = read(pcap(long, ETHERNET))
    assert len(found) == 1
    assert log.faults[FeedFault.BAD_PACKET]["first_offset"] == 24


@pytest.mark.parametrize("whole", [pcap(ETHERNET, ETHERNET), pcapng(ETHERNET) + pcapng(ETHERNET)])
def test_a_cut_capture_ends_at_its_last_whole_packet(whole: bytes) -> None:
    for cut in range(1, 30):
        found, log = read(whole[:-cut])
        assert len(found) == 1
        assert FeedFault.TRUNCATED in log.faults


def test_a_damaged_length_ends_the_capture_with_a_fault() -> None:
    raw = bytearray(pcap(ETHERNET, ETHERNET))
    raw[24 + 16 + len(ETHERNET) + 8 :][:4] = b"\xff" * 4
    at = 24 + 16 + len(ETHERNET) + 8
    raw[at : at + 4] = b"\xff" * 4
    found, log = read(bytes(raw))
    assert len(found) == 1
    assert log.faults[FeedFault.BAD_LENGTH]["first_offset"] == at - 8


def test_another_file_is_no_capture() -> None:
    with pytest.raises(FeedError, match=r"test\.pcap: byte 0: is no capture"):
        read(b"not a capture at all")


def test_what_is_written_is_read() -> None:
    packets = [(TIME + place, bytes([place]) * place) for place in range(5)]
    found, _ = read(b"".join(write_capture(packets, "239.255.77.1", 26_477)), strict=True)
    assert [(each.time, each.payload) for each in found] == packets
    assert {(each.target, each.port) for each in found} == {("239.255.77.1", 26_477)}
