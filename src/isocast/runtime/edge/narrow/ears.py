"""Hears many groups with few sockets, and knows when the kernel got each datagram.

Linux lets a socket join twenty groups unless net.ipv4.igmp_max_memberships says otherwise, so each socket takes that
many. All are bound to the port of the groups, and hear only what they joined.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import suppress
from struct import Struct, error
from time import time_ns
from typing import NamedTuple

from isocast.terms.errors import TransportError
from isocast.terms.instants import SECOND

__all__ = ["Heard", "StripeEars"]

_GROUPS_MAX = 20
_DATAGRAM = 9_216
_AT_ONCE = 512
_BUFFER = 1 << 20
# From linux/in.h and asm-generic/socket.h; the module `socket` of Python 3.11 does not name them.
_IP_MULTICAST_ALL = 49
_SO_TIMESTAMPNS = 35
_TIMESPEC = Struct("@ll")


class Heard(NamedTuple):
    """A datagram."""

    at: int
    """When the kernel got it."""
    sender: str
    raw: bytes


class StripeEars:
    """Joined to groups by the interface with one address; more can be joined, and some left, at any time."""

    def __init__(self, interface: str, port: int) -> None:
        """No group yet."""
        self._interface = interface
        self._port = port
        self._sockets: list[socket.socket] = []
        self._groups: dict[str, socket.socket] = {}

    @property
    def groups(self) -> frozenset[str]:
        """Those that are joined."""
        return frozenset(self._groups)

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """For the event loop."""
        return tuple(self._sockets)

    def hear(self, groups: Iterable[str]) -> list[socket.socket]:
        """Be joined to these groups and no others; the sockets that are new."""
        wanted = dict.fromkeys(groups)
        for group in [group for group in self._groups if group not in wanted]:
            with suppress(OSError):
                self._groups.pop(group).setsockopt(socket.IPPROTO_IP, socket.IP_DROP_MEMBERSHIP, self._place(group))
        fresh = []
        for group in [group for group in wanted if group not in self._groups]:
            room = next((one for one in self._sockets if self._joined(one) < _GROUPS_MAX), None)
            if room is None:
                room = self._open(group)
                fresh.append(room)
                self._sockets.append(room)
            self._join(room, group)
        return fresh

    def read(self, one: socket.socket) -> list[Heard]:
        """What has come at a socket."""
        heard: list[Heard] = []
        for _ in range(_AT_ONCE):
            try:
                raw, ancillary, _, sender = one.recvmsg(_DATAGRAM, 64)
            except OSError:
                break
            heard.append(Heard(_instant(ancillary), sender[0], raw))
        return heard

    def close(self) -> None:
        """Hear nothing."""
        for one in self._sockets:
            one.close()
        self._sockets.clear()
        self._groups.clear()

    def _joined(self, one: socket.socket) -> int:
        return sum(1 for joined in self._groups.values() if joined is one)

    def _place(self, group: str) -> bytes:
        return socket.inet_aton(group) + socket.inet_aton(self._interface)

    def _join(self, one: socket.socket, group: str) -> None:
        try:
            one.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, self._place(group))
        except OSError as reason:
            raise TransportError(f"cannot join {group} on {self._interface}: {reason.strerror}") from None
        self._groups[group] = one

    def _open(self, group: str) -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            made.settimeout(0)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            with suppress(OSError):
                made.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            with suppress(OSError):
                # Otherwise it hears what other programs of this machine joined.
                made.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
            made.bind(("", self._port))
        except OSError as reason:
            made.close()
            raise TransportError(f"cannot listen to {group}:{self._port}: {reason.strerror}") from None
        return made


def _instant(ancillary: list[tuple[int, int, bytes]]) -> int:
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
            with suppress(error):
                seconds, rest = _TIMESPEC.unpack_from(data)
                return int(seconds * SECOND + rest)
    return time_ns()
