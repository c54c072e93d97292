"""Requests to the kernel about a network, byte by byte where no kernel is asked."""

import struct

import pytest

from isocast.trials.lab import fabric as netlink
from isocast.trials.lab.fabric import RouteSocket, add_neighbour, add_route, link_up


def test_a_route_says_where_to_by_what_and_from_where() -> None:
    kind, flags, body = add_route(7, "10.77.2.1", 32, "10.77.1.1")
    assert kind == 24
    assert flags == 0x500, "made or replaced"
    assert body[:12] == bytes([2, 32, 0, 0, 254, 4, 253, 1, 0, 0, 0, 0])
    assert body[12:20] == struct.pack("=HH", 8, 1) + bytes([10, 77, 2, 1])
    assert body[20:28] == struct.pack("=HHI", 8, 4, 7)
    assert body[28:] == struct.pack("=HH", 8, 7) + bytes([10, 77, 1, 1])


def test_a_neighbour_is_permanent_and_its_address_padded() -> None:
    kind, _, body = add_neighbour(7, "10.77.2.1", b"\x02IC\x00\x00\x01")
    assert kind == 28
    assert struct.unpack_from("=BxxxiH", body) == (2, 7, 0x80)
    assert body[20:] == struct.pack("=HH", 10, 2) + b"\x02IC\x00\x00\x01\x00\x00"


def test_each_message_says_how_long_it_is_and_asks_for_an_answer() -> None:
    kind, flags, body = link_up(1)
    message = netlink._message(5, kind, flags, body)  # noqa: SLF001
    assert struct.unpack_from("=IHHI", message) == (len(message), 19, 0x5, 5)


def test_answers_are_read_one_by_one_whatever_stands_between() -> None:
    def answer(kind: int, number: int) -> bytes:
        return struct.pack("=IHHII", 36, kind, 0, 0, 0) + struct.pack("=i", -number) + b"\0" * 16

    data = answer(2, 0) + answer(16, 99) + answer(2, 17)
    assert list(netlink._answers(data)) == [0, 17]  # noqa: SLF001
    assert list(netlink._answers(b"\0" * 16)) == [], "a length of nothing does not hang"  # noqa: SLF001


def test_what_the_kernel_refuses_is_an_error_with_its_number() -> None:
    with RouteSocket() as kernel, pytest.raises(OSError, match="rtnetlink") as refused:
        kernel.perform([link_up(2**31 - 1)])
    assert refused.value.errno
