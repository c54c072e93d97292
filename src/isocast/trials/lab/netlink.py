"""rtnetlink, as much of it as a site needs: links, addresses, routes and neighbours, without the `ip` command."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

__all__ = [
    "RouteSocket",
    "add_address",
    "add_neighbour",
    "add_route",
    "delete_address",
    "link_up",
    "shape_link",
    "silence_ipv6",
]

_NLMSG_ERROR = 2
_F_REQUEST = 0x1
_F_ACK = 0x4
_F_REPLACE = 0x100
_F_CREATE = 0x400
_HEADER = struct.Struct("=IHHII")
_RTM_SETLINK = 19
_RTM_NEWADDR = 20
_RTM_DELADDR = 21
_RTM_NEWROUTE = 24
_RTM_NEWNEIGH = 28

_LINK = struct.Struct("=BxHiII")
_ADDRESS = struct.Struct("=BBBBI")
_ROUTE = struct.Struct("=BBBBBBBBI")
_NEIGHBOUR = struct.Struct("=BxxxiHBB")
_ATTRIBUTE = struct.Struct("=HH")

_IFLA_ADDRESS, _IFLA_MTU, _IFLA_TXQLEN, _IFLA_AF_SPEC = 1, 4, 13, 26
_IFLA_INET_CONF = 1
_IFLA_INET6_ADDR_GEN_MODE = 8
_ADDR_GEN_NONE = b"\x01"
_DEVCONF_ROUTE_LOCALNET = 26
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_DST, _RTA_OIF, _RTA_PRIORITY, _RTA_PREFSRC = 1, 4, 6, 7
_NDA_DST, _NDA_LLADDR = 1, 2
_NUD_PERMANENT = 0x80
_IFF_UP = 1
_TABLE_MAIN, _PROTOCOL_STATIC, _SCOPE_LINK, _TYPE_UNICAST = 254, 4, 253, 1
_ALONE = 32
"""The prefix of a single address."""

_BATCH = 64
"""Requests in one datagram: their answers, 64 times 36 bytes and overhead, fit the default receive buffer."""

Request = tuple[int, int, bytes]
"""Message type, flags, body."""


def _attribute(kind: int, value: bytes) -> bytes:
    padding = -len(value) % 4
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + b"\0" * padding


def _number(value: int) -> bytes:
    return struct.pack("=I", value)


def link_up(index: int) -> Request:
    """Switch an interface on."""
    return _RTM_SETLINK, 0, _LINK.pack(socket.AF_UNSPEC, 0, index, _IFF_UP, _IFF_UP)


def shape_link(index: int, mac: bytes, mtu: int, queue: int, *, loopback_addresses: bool) -> Request:
    """Hardware address, largest packet and queue; 127/8 is let through on demand, where else it never leaves a host."""
    body = _LINK.pack(socket.AF_UNSPEC, 0, index, 0, 0)
    body += _attribute(_IFLA_ADDRESS, mac) + _attribute(_IFLA_MTU, _number(mtu))
    body += _attribute(_IFLA_TXQLEN, _number(queue))
    if loopback_addresses:
        conf = _attribute(_IFLA_INET_CONF, _attribute(_DEVCONF_ROUTE_LOCALNET, _number(1)))
        body += _attribute(_IFLA_AF_SPEC, _attribute(socket.AF_INET, conf))
    return _RTM_SETLINK, 0, body


def silence_ipv6(index: int) -> Request:
    """No link-local address, hence no solicitations between the frames that matter."""
    mode = _attribute(_IFLA_INET6_ADDR_GEN_MODE, _ADDR_GEN_NONE)
    body = _LINK.pack(socket.AF_UNSPEC, 0, index, 0, 0)
    return _RTM_SETLINK, 0, body + _attribute(_IFLA_AF_SPEC, _attribute(socket.AF_INET6, mode))


def add_address(index: int, address: str, prefix: int = _ALONE) -> Request:
    """Give an interface an address; by itself it brings no route to others."""
    return _RTM_NEWADDR, _F_CREATE | _F_REPLACE, _address_body(index, address, prefix)


def delete_address(index: int, address: str, prefix: int) -> Request:
    """Take it away again."""
    return _RTM_DELADDR, 0, _address_body(index, address, prefix)


def _address_body(index: int, address: str, prefix: int) -> bytes:
    packed = socket.inet_aton(address)
    body = _ADDRESS.pack(socket.AF_INET, prefix, 0, 0, index)
    return body + _attribute(_IFA_LOCAL, packed) + _attribute(_IFA_ADDRESS, packed)


def add_route(index: int, destination: str, prefix: int, source: str, *, priority: int = 0) -> Request:
    """Reach an address or a network directly by an interface, from `source` unless the socket says otherwise.

    Routes that differ in nothing but their destination are one to the kernel, with one cache: a multicast packet then
    leaves its mark on unicast routes, and TCP is told that the network is unreachable. Another priority parts them.
    """
    body = _ROUTE.pack(socket.AF_INET, prefix, 0, 0, _TABLE_MAIN, _PROTOCOL_STATIC, _SCOPE_LINK, _TYPE_UNICAST, 0)
    body += _attribute(_RTA_DST, socket.inet_aton(destination)) + _attribute(_RTA_OIF, _number(index))
    if priority:
        body += _attribute(_RTA_PRIORITY, _number(priority))
    return _RTM_NEWROUTE, _F_CREATE | _F_REPLACE, body + _attribute(_RTA_PREFSRC, socket.inet_aton(source))


def add_neighbour(index: int, address: str, mac: bytes) -> Request:
    """Say which station has an address, for good: nobody asks by ARP, and the first packet is as fast as the rest."""
    body = _NEIGHBOUR.pack(socket.AF_INET, index, _NUD_PERMANENT, 0, 0)
    body += _attribute(_NDA_DST, socket.inet_aton(address)) + _attribute(_NDA_LLADDR, mac)
    return _RTM_NEWNEIGH, _F_CREATE | _F_REPLACE, body


class RouteSocket:
    """A conversation with the kernel about the network namespace in which it was opened."""

    def __init__(self) -> None:
        """Open it."""
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def perform(self, requests: Sequence[Request]) -> None:
        """All requests in order; OSError with the kernel's number at the first that it refuses."""
        for start in range(0, len(requests), _BATCH):
            batch = requests[start : start + _BATCH]
            self._socket.send(b"".join(_message(place, *request) for place, request in enumerate(batch)))
            left = len(batch)
            while left:
                for number in _answers(self._socket.recv(1 << 16)):
                    if number:
                        raise OSError(number, f"rtnetlink: {os.strerror(number)}")
                    left -= 1


def _message(sequence: int, kind: int, flags: int, body: bytes) -> bytes:
    return _HEADER.pack(_HEADER.size + len(body), kind, flags | _F_REQUEST | _F_ACK, sequence, 0) + body


def _answers(data: bytes) -> Iterator[int]:
    """The error number of each acknowledgement; 0 for success."""
    place = 0
    while place + _HEADER.size <= len(data):
        length, kind, *_ = _HEADER.unpack_from(data, place)
        if kind == _NLMSG_ERROR:
            yield -struct.unpack_from("=i", data, place + _HEADER.size)[0]
        place += max(length + 3 & ~3, _HEADER.size)
