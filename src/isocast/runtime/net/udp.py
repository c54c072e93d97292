"""Open the sockets of a node: bind, join, size the buffers; and say in words why this machine refuses.

A multicast inlet is bound to its group, so that it never hears groups which other programs joined. Not hearing oneself
costs nothing: the inlet blocks its own node's address in the kernel (IP_BLOCK_SOURCE), so own datagrams neither wake
the process nor fill its buffer nor count as drops. That is one reason why every node has an address of its own.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from ipaddress import AddressValueError, IPv4Address

from isocast.runtime.net.datagrams import Endpoint, Inlet, Outlet, Traffic
from isocast.terms.errors import TransportError

__all__ = [
    "BUFFER_BYTES",
    "SOURCES_MAX",
    "TTL",
    "Endpoint",
    "Inlet",
    "Outlet",
    "Traffic",
    "fanout_outlet",
    "multicast_inlet",
    "multicast_outlet",
    "unicast_inlet",
    "unicast_outlet",
]

BUFFER_BYTES = 8 << 20
"""What a socket asks for: 30 ms of 6 million events a second, while the process does not get to run."""
TTL = 1
"""Multicast stays on its own network unless the configuration says otherwise."""
SOURCES_MAX = 10
"""Sources of one group: Linux, net.ipv4.igmp_max_msf as delivered."""

# From linux/in.h and asm-generic/socket.h; the module `socket` of Python 3.11 names none of them.
_IP_BLOCK_SOURCE = 38
_IP_ADD_SOURCE_MEMBERSHIP = 39
_IP_MULTICAST_ALL = 49
_SO_SNDBUFFORCE = 32
_SO_RCVBUFFORCE = 33

_BUFFER_MAX = (1 << 30) - 1
"""The kernel doubles a request and keeps the result in 31 bits."""
_TTL_MAX = 255
_PORT_MAX = 65_535

_ADVICE = {
    errno.EADDRINUSE: "another process listens there; stop it, or choose another port",
    errno.EADDRNOTAVAIL: "this machine does not have that address; see `ip -brief address`",
    errno.ENODEV: "no interface of this machine has that address; see `ip -brief address`",
    errno.EACCES: "ports below 1024 need privilege; choose another",
    errno.ENOBUFS: f"a group has at most {SOURCES_MAX} sources unless net.ipv4.igmp_max_msf is raised",
    errno.EMFILE: "this process has too many files open; raise `ulimit -n`",
}


def multicast_inlet(
    group: str,
    port: int,
    interface: str,
    *,
    sources: Sequence[str] = (),
    deaf_to: str | None = None,
    buffer_bytes: int = BUFFER_BYTES,
    kind: type[socket.socket] = socket.socket,
) -> Inlet:
    """Listen to a group: to everybody except `deaf_to`, or only to `sources` (source-specific multicast)."""
    place = _group(group) + _packed(interface)
    heard = [source for source in dict.fromkeys(sources) if source != deaf_to]
    named = f" with {len(heard)} sources" if sources else ""
    if sources and not heard:
        raise TransportError(f"cannot listen to group {group}: the only source named is this node itself")
    with _opening(f"cannot listen to group {group}:{port} on {interface}{named}", port, kind) as receiver:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _size_buffer(receiver, _SO_RCVBUFFORCE, socket.SO_RCVBUF, buffer_bytes)
        receiver.bind((group, port))
        with suppress(OSError):
            # Otherwise the group's datagrams on interfaces that other programs joined are heard as well.
            receiver.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
        for source in heard:
            receiver.setsockopt(socket.IPPROTO_IP, _IP_ADD_SOURCE_MEMBERSHIP, place + _packed(source))
        if not heard:
            receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, place)
            if deaf_to is not None:
                receiver.setsockopt(socket.IPPROTO_IP, _IP_BLOCK_SOURCE, place + _packed(deaf_to))
        return Inlet(receiver, buffer_wanted=buffer_bytes)


def unicast_inlet(
    address: str,
    port: int,
    *,
    sources: Sequence[str] = (),
    buffer_bytes: int = BUFFER_BYTES,
    kind: type[socket.socket] = socket.socket,
) -> Inlet:
    """Listen on an own address; port 0 takes a free one. Datagrams from others than `sources`, if any, are dropped."""
    _packed(address)
    with _opening(f"cannot listen on {address}:{port}", port, kind) as receiver:
        # No SO_REUSEADDR: a second process on the same port must fail, not share the datagrams.
        _size_buffer(receiver, _SO_RCVBUFFORCE, socket.SO_RCVBUF, buffer_bytes)
        receiver.bind((address, port))
        return Inlet(receiver, sources, buffer_wanted=buffer_bytes)


def multicast_outlet(
    group: str, port: int, interface: str, *, ttl: int = TTL, kind: type[socket.socket] = socket.socket
) -> Outlet:
    """Send to a group by the interface that has this address, and from this address."""
    _group(group)
    if not 0 <= ttl <= _TTL_MAX:
        raise TransportError(f"cannot send to group {group}: a TTL of {ttl} is not in 0..{_TTL_MAX}")
    with _opening(f"cannot send to group {group}:{port} by {interface}", port, kind) as sender:
        _bind_sender(sender, interface)
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, _packed(interface))
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
        # Other nodes on this machine listen too; this node's own inlet is deaf to it.
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
        return Outlet(sender, (Endpoint(group, port),))


def fanout_outlet(address: str, members: Sequence[Endpoint], *, kind: type[socket.socket] = socket.socket) -> Outlet:
    """Send a copy to each member, from this address."""
    with _opening(f"cannot send from {address}", 0, kind) as sender:
        _bind_sender(sender, address)
        return Outlet(sender, members)


def unicast_outlet(address: str, *, kind: type[socket.socket] = socket.socket) -> Outlet:
    """Send to anybody by `send_to`, from this address."""
    return fanout_outlet(address, (), kind=kind)


@contextmanager
def _opening(purpose: str, port: int, kind: type[socket.socket]) -> Iterator[socket.socket]:
    """A new socket, which is closed again unless all goes well; one line says what went wrong and what to change."""
    if not 0 <= port <= _PORT_MAX:
        raise TransportError(f"{purpose}: a port is in 1..{_PORT_MAX}")
    opened: socket.socket | None = None
    try:
        opened = kind(socket.AF_INET, socket.SOCK_DGRAM)
        yield opened
    except BaseException as reason:
        if opened is not None:
            opened.close()
        if isinstance(reason, OSError):
            advice = _ADVICE.get(reason.errno or 0, "")
            text = f"{reason.strerror or reason}; {advice}".removesuffix("; ")
            raise TransportError(f"{purpose}: {text}") from reason
        raise


def _bind_sender(sender: socket.socket, address: str) -> None:
    """To an own address, so that receivers can tell nodes by their source."""
    _packed(address)
    _size_buffer(sender, _SO_SNDBUFFORCE, socket.SO_SNDBUF, BUFFER_BYTES)
    sender.bind((address, 0))


def _size_buffer(endpoint: socket.socket, force: int, ask: int, wanted: int) -> None:
    """With privilege the whole, otherwise what the system's limit leaves."""
    wanted = min(wanted, _BUFFER_MAX)
    try:
        endpoint.setsockopt(socket.SOL_SOCKET, force, wanted)
    except OSError:
        endpoint.setsockopt(socket.SOL_SOCKET, ask, wanted)


def _packed(address: str) -> bytes:
    """The four bytes of an address in dots."""
    try:
        return IPv4Address(address).packed
    except AddressValueError as reason:
        raise TransportError(f"{address!r} is not an IPv4 address; names are not looked up here") from reason


def _group(group: str) -> bytes:
    """The four bytes of a group."""
    packed = _packed(group)
    if not IPv4Address(packed).is_multicast:
        raise TransportError(f"{group} is not a multicast group (224.0.0.0 to 239.255.255.255)")
    return packed
