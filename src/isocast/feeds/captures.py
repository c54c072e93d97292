"""Captures of networks: the UDP datagrams of pcap and pcapng files.

Read are Ethernet (with VLAN tags), Linux cooked and raw IP links, and IPv4 without fragments, as multicast feeds
are. Everything else is counted and skipped. A file that ends in the middle of a packet ends there, with a fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct, unpack_from
from typing import NamedTuple

from isocast.feeds.outcomes import FeedFault, FeedLog
from isocast.terms.errors import FeedError

__all__ = ["CAPTURE_MAGICS", "Datagram", "read_capture", "write_capture"]

_LITTLE_MICRO, _LITTLE_NANO = b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1"
_BIG_MICRO, _BIG_NANO = _LITTLE_MICRO[::-1], _LITTLE_NANO[::-1]
_SECTION = b"\x0a\x0d\x0d\x0a"
CAPTURE_MAGICS = (_LITTLE_MICRO, _LITTLE_NANO, _BIG_MICRO, _BIG_NANO, _SECTION)
"""How such files begin."""

_PACKET_MAX = 1 << 18
"""No link carries more; a larger length is damage."""
_ETHERNET, _RAW_IP, _RAW_IPV4, _COOKED, _LOOP = 1, 101, 228, 113, 0
_RAW_OTHER = 12
_IPV4_TYPE = 0x0800
_VLAN_TYPES = (0x8100, 0x88A8, 0x9100)
_UDP = 17
_INTERFACE_BLOCK, _SIMPLE_BLOCK, _ENHANCED_BLOCK = 1, 3, 6
_RESOLUTION_OPTION = 9
_GLOBAL = Struct("<IHHiIII")
_RECORD = Struct("<IIII")


class Datagram(NamedTuple):
    """One UDP datagram, when it was captured (nanoseconds since 1970), and where its record stands in the file."""

    time: int
    source: str
    target: str
    port: int
    payload: bytes
    offset: int


class _Bytes:
    """Chunks as one stream of bytes that knows where it is."""

    def __init__(self, chunks: Iterable[bytes], log: FeedLog) -> None:
        self._chunks = iter(chunks)
        self._held = b""
        self._at = 0
        self._log = log
        self.offset = 0

    def take(self, count: int) -> bytes:
        """The next bytes; fewer at the end."""
        while len(self._held) - self._at < count:
            chunk = next(self._chunks, b"")
            if not chunk:
                break
            self._log.bytes_read += len(chunk)
            self._held = self._held[self._at :] + chunk
            self._at = 0
        taken = self._held[self._at : self._at + count]
        self._at += len(taken)
        self.offset += len(taken)
        return taken


def read_capture(chunks: Iterable[bytes], log: FeedLog) -> Iterator[Datagram]:
    """The UDP datagrams of a capture, in its order; FeedError if it is none at all."""
    stream = _Bytes(chunks, log)
    magic = stream.take(4)
    if magic == _SECTION:
        frames = _read_pcapng(stream, log)
    elif magic in CAPTURE_MAGICS:
        frames = _read_pcap(stream, log, magic)
    else:
        raise FeedError(log.file, "is no capture: neither pcap nor pcapng begins like this", 0)
    for time, link, frame, offset in frames:
        datagram = _datagram(time, link, frame, offset, log)
        if datagram is not None:
            yield datagram


def _read_pcap(stream: _Bytes, log: FeedLog, magic: bytes) -> Iterator[tuple[int, int, bytes, int]]:
    order = "<" if magic in (_LITTLE_MICRO, _LITTLE_NANO) else ">"
    unit = 1 if magic in (_LITTLE_NANO, _BIG_NANO) else 1_000
    rest = stream.take(20)
    if len(rest) < 20:  # noqa: PLR2004
        log.fault(FeedFault.TRUNCATED, stream.offset, "the capture ends in its header")
        return
    link = int(unpack_from(f"{order}I", rest, 16)[0]) & 0xFFFF
    record = Struct(f"{order}IIII")
    while head := stream.take(16):
        offset = stream.offset - len(head)
        if len(head) < 16:  # noqa: PLR2004
            log.fault(FeedFault.TRUNCATED, offset, "the capture ends in the header of a packet")
            return
        seconds, fraction, size, _ = record.unpack(head)
        if size > _PACKET_MAX:
            log.fault(FeedFault.BAD_LENGTH, offset, f"a packet of {size} bytes: the rest of the capture is not read")
            return
        frame = stream.take(size)
        if len(frame) < size:
            log.fault(FeedFault.TRUNCATED, offset, f"the capture ends {len(frame)} bytes into a packet of {size}")
            return
        yield seconds * 1_000_000_000 + fraction * unit, link, frame, offset


def _read_pcapng(stream: _Bytes, log: FeedLog) -> Iterator[tuple[int, int, bytes, int]]:
    order = "<"
    links: list[tuple[int, int, int]] = []
    kind_bytes = _SECTION
    while kind_bytes:
        offset = stream.offset - 4
        size_bytes = stream.take(4)
        if kind_bytes == _SECTION:
            order_mark = stream.take(4)
            order = "<" if order_mark == b"\x4d\x3c\x2b\x1a" else ">"
            links = []
        if len(kind_bytes) < 4 or len(size_bytes) < 4:  # noqa: PLR2004
            log.fault(FeedFault.TRUNCATED, offset, "the capture ends in the header of a block")
            return
        kind, size = unpack_from(f"{order}I", kind_bytes)[0], unpack_from(f"{order}I", size_bytes)[0]
        had = 12 if kind_bytes == _SECTION else 8
        if size < had + 4 or size % 4 or size > _PACKET_MAX:
            log.fault(FeedFault.BAD_LENGTH, offset, f"a block of {size} bytes: the rest of the capture is not read")
            return
        body = stream.take(size - had)
        if len(body) < size - had:
            log.fault(FeedFault.TRUNCATED, offset, f"the capture ends {len(body)} bytes into a block of {size}")
            return
        if kind == _INTERFACE_BLOCK and len(body) >= 12:  # noqa: PLR2004
            links.append(_interface(order, body))
        elif kind in (_ENHANCED_BLOCK, _SIMPLE_BLOCK):
            packet = _packet_of_block(order, kind, body, links)
            if packet is None:
                log.fault(
                    FeedFault.BAD_PACKET, offset, "a block with a packet of wrong length, or without an interface"
                )
            else:
                yield *packet, offset
        kind_bytes = stream.take(4)


def _interface(order: str, body: bytes) -> tuple[int, int, int]:
    """Its link type, and its units of time as a fraction of seconds: multiply, then divide."""
    link = int(unpack_from(f"{order}H", body)[0])
    at, end = 8, len(body) - 4
    multiply, divide = 1_000, 1
    while at + 4 <= end:
        code, length = unpack_from(f"{order}HH", body, at)
        if code == _RESOLUTION_OPTION and length == 1 and at + 4 < end:
            value = body[at + 4]
            units = 2 ** (value & 0x7F) if value & 0x80 else 10 ** min(value, 18)
            multiply, divide = (1_000_000_000 // units, 1) if 1_000_000_000 % units == 0 else (1_000_000_000, units)
        if code == 0:
            break
        at += 4 + length + (-length % 4)
    return link, multiply, divide


def _packet_of_block(
    order: str, kind: int, body: bytes, links: list[tuple[int, int, int]]
) -> tuple[int, int, bytes] | None:
    if kind == _SIMPLE_BLOCK:
        if not links or len(body) < 8:  # noqa: PLR2004
            return None
        size = min(int(unpack_from(f"{order}I", body)[0]), len(body) - 8)
        return 0, links[0][0], body[4 : 4 + size]
    if len(body) < 24:  # noqa: PLR2004
        return None
    interface, high, low, size, _ = unpack_from(f"{order}IIIII", body)
    if interface >= len(links) or size > len(body) - 24:
        return None
    link, multiply, divide = links[interface]
    return (high << 32 | low) * multiply // divide, link, body[20 : 20 + size]


def _datagram(time: int, link: int, frame: bytes, offset: int, log: FeedLog) -> Datagram | None:
    """The UDP datagram in a frame, or nothing, which is counted."""
    packet = _network_layer(link, frame)
    if packet is None:
        log.skip("frames of no IPv4 packet")
        return None
    if len(packet) < 20 or packet[0] >> 4 != 4:  # noqa: PLR2004
        log.skip("frames of no IPv4 packet")
        return None
    header = (packet[0] & 0xF) * 4
    total = int.from_bytes(packet[2:4])
    if packet[9] != _UDP:
        log.skip("IP packets that are not UDP")
        return None
    if int.from_bytes(packet[6:8]) & 0x3FFF:
        log.skip("fragments of IP packets")
        return None
    size = int.from_bytes(packet[header + 4 : header + 6])
    if header < 20 or size < 8 or header + size > min(total, len(packet)):  # noqa: PLR2004
        log.fault(FeedFault.BAD_PACKET, offset, "a datagram with lengths that do not match its frame")
        return None
    source, target = (".".join(map(str, packet[at : at + 4])) for at in (12, 16))
    port = int.from_bytes(packet[header + 2 : header + 4])
    return Datagram(time, source, target, port, packet[header + 8 : header + size], offset)


def _network_layer(link: int, frame: bytes) -> bytes | None:
    """The IPv4 packet of a frame."""
    if link in (_RAW_IP, _RAW_IPV4, _RAW_OTHER):
        return frame
    if link == _LOOP:
        return frame[4:]
    if link == _COOKED:
        return frame[16:] if int.from_bytes(frame[14:16]) == _IPV4_TYPE else None
    if link != _ETHERNET:
        return None
    at = 12
    kind = int.from_bytes(frame[at : at + 2])
    while kind in _VLAN_TYPES:
        at += 4
        kind = int.from_bytes(frame[at : at + 2])
    return frame[at + 2 :] if kind == _IPV4_TYPE else None


def write_capture(packets: Iterable[tuple[int, bytes]], target: str, port: int) -> Iterator[bytes]:
    """A pcap file of UDP datagrams to one multicast group: (nanoseconds since 1970, payload) each."""
    yield _GLOBAL.pack(0xA1B23C4D, 2, 4, 0, 0, _PACKET_MAX, _ETHERNET)
    group = bytes(int(part) for part in target.split("."))
    ethernet = b"\x01\x00\x5e" + bytes([group[1] & 0x7F]) + group[2:] + b"\x02\0\0\0\0\1" + b"\x08\x00"
    for number, (time, payload) in enumerate(packets):
        udp = Struct(">HHHH").pack(port, port, 8 + len(payload), 0)
        head = Struct(">BBHHHBBH4s4s")
        fields = (0x45, 0, 28 + len(payload), number & 0xFFFF, 0x4000, 16, _UDP)
        plain = head.pack(*fields, 0, b"\x0a\0\0\1", group)
        frame = ethernet + head.pack(*fields, _checksum(plain), b"\x0a\0\0\1", group) + udp + payload
        yield _RECORD.pack(time // 1_000_000_000, time % 1_000_000_000, len(frame), len(frame)) + frame


def _checksum(header: bytes) -> int:
    total = int(sum(unpack_from(f">{len(header) // 2}H", header)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
