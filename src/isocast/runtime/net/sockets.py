"""The sockets of a node: opened, joined, sized; datagrams in bursts; groups by multicast or by a copy to each.

A multicast inlet is bound to its group, so that it never hears groups which other programs joined. Not hearing oneself
costs nothing: the inlet blocks its own node's address in the kernel (IP_BLOCK_SOURCE), so own datagrams neither wake
the process nor fill its buffer nor count as drops. That is one reason why every node has an address of its own.
"""

from __future__ import annotations

import errno
import select
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address
from struct import Struct
from time import monotonic_ns
from typing import NamedTuple, Self, TypeAlias

from isocast.runtime.market.model import NetworkMode
from isocast.runtime.net.filters import Filter, attach
from isocast.terms.errors import LocalProtocolError, TransportError
from isocast.terms.instants import MILLISECOND
from isocast.wire.limits import MAX_UDP

__all__ = [
    "BUFFER_BYTES",
    "MAX_SEGMENTS",
    "PATIENCE_NS",
    "SOL_UDP",
    "SOURCES_MAX",
    "TTL",
    "UDP_GRO",
    "UDP_SEGMENT",
    "Burst",
    "Endpoint",
    "Inlet",
    "Outlet",
    "Segmentation",
    "Traffic",
    "bursts_of",
    "checked",
    "cut",
    "fanout_outlet",
    "multicast_inlet",
    "multicast_outlet",
    "open_group_inlet",
    "open_group_outlet",
    "segment_control",
    "segment_of",
    "unicast_inlet",
    "unicast_outlet",
]


# Many datagrams in one system call: how bursts are put together for UDP_SEGMENT and taken apart after UDP_GRO.
#
# The kernel cuts one long buffer into datagrams of equal length, of which the last may be shorter, and hands datagrams
# of one flow that it received together to the reader in the same form. Per datagram that costs a twentieth of a call.


SOL_UDP = 17
UDP_SEGMENT = 103
UDP_GRO = 104
"""From linux/udp.h; the module `socket` names none of them."""

MAX_SEGMENTS = 64
"""Datagrams in one call: the limit of kernels before 6.9; later ones take 128."""

_CUTTERS = 512
"""Shapes of aggregates that are remembered; a forgotten one costs half a microsecond, which bounds hostile variety."""

Ancillary: TypeAlias = tuple[tuple[int, int, bytes], ...]

_U16 = Struct("=H")
_I32 = Struct("=i")


class Burst(NamedTuple):
    """Consecutive frames that one call can send: all of `segment` bytes, the last perhaps shorter."""

    frames: Sequence[bytes]
    segment: int


def bursts_of(frames: Sequence[bytes]) -> list[Burst]:
    """Cut frames, in their order, into the longest bursts that UDP_SEGMENT allows."""
    bursts: list[Burst] = []
    lengths = list(map(len, frames))
    total = len(lengths)
    at = 0
    while at < total:
        segment = lengths[at]
        if segment > MAX_UDP:
            raise LocalProtocolError(f"a frame of {segment} bytes; a UDP datagram has at most {MAX_UDP}")
        end = min(at + min(MAX_SEGMENTS, MAX_UDP // segment), total) if segment else at + 1
        # Counting is fast, and nearly every run is even; the search for the first odd length is the exception.
        if lengths[at:end].count(segment) != end - at:
            odd = next(place for place in range(at, end) if lengths[place] != segment)
            end = odd + (0 < lengths[odd] < segment)
        bursts.append(Burst(frames[at:end], segment))
        at = end
    return bursts


@lru_cache(maxsize=256)
def segment_control(segment: int) -> Ancillary:
    """The control message that asks the kernel to cut a buffer into datagrams of `segment` bytes."""
    return ((SOL_UDP, UDP_SEGMENT, _U16.pack(segment)),)


def segment_of(control: Sequence[tuple[int, int, bytes]], length: int) -> int:
    """How long the datagrams of a received buffer are; its whole length when the kernel put none together."""
    for level, kind, value in control:
        if level == SOL_UDP and kind == UDP_GRO and len(value) >= _I32.size:
            segment: int = _I32.unpack_from(value)[0]
            return segment if 0 < segment < length else length
    return length


def cut(buffer: bytearray, length: int, segment: int) -> tuple[bytes, ...]:
    """The datagrams in the first `length` bytes of a buffer, each copied once."""
    return _cutter(length, segment).unpack_from(buffer)


@lru_cache(maxsize=_CUTTERS)
def _cutter(length: int, segment: int) -> Struct:
    """A struct with one field for each datagram: its one call replaces a loop of slices."""
    if not length:
        return Struct("0s")
    whole, rest = divmod(length, segment)
    return Struct(f"{segment}s" * whole + (f"{rest}s" if rest else ""))


class Segmentation:
    """Whether the kernel cuts bursts for a socket, learnt from what it refuses."""

    __slots__ = ("limit", "refusal")

    def __init__(self) -> None:
        """Believe that it does."""
        self.limit = MAX_UDP
        """The longest segment worth trying; 0 when the kernel has refused for good."""
        self.refusal = ""
        """What it said, in words."""

    @property
    def state(self) -> str:
        """One line for a person."""
        if not self.limit:
            return f"off: {self.refusal}"
        return f"on, up to {self.limit} bytes: {self.refusal}" if self.refusal else "on"

    def refused(self, reason: OSError, segment: int) -> bool:
        """Whether this error is about segmentation at all; if so, never try again what failed."""
        match reason.errno:
            case errno.EIO | errno.ENOPROTOOPT | errno.EOPNOTSUPP:
                # No checksum offload on the way out, or a kernel without the option: no length will pass.
                self.limit = 0
            case errno.EINVAL | errno.EMSGSIZE:
                # The segment exceeds the path's MTU. Shorter ones still pass; this one IP fragments, sent alone.
                self.limit = min(self.limit, segment - 1)
            case _:
                return False
        self.refusal = f"{reason.strerror or reason} for segments of {segment} bytes"
        return True


# Datagrams in bursts: an inlet receives them, an outlet sends them, to one or to many.
#
# An inlet never blocks, reads at most a budget of bytes, and knows what the kernel dropped because its buffer was full.
# An outlet waits at most `PATIENCE_NS` for room and counts what it could not send: the protocol repairs losses, so the
# network never raises. What raises is a frame that no datagram can carry (`LocalProtocolError`).


PATIENCE_NS = 2 * MILLISECOND
"""How long one call may wait for room in the send buffer: a tick of the paced release."""

# From asm-generic/socket.h; the module `socket` does not name it.
_SO_MEMINFO = 55

_MEMINFO = Struct("=9I")
_MEMINFO_DROPS = 8
_U32 = 0xFFFF_FFFF
_DATAGRAM_BYTES = 65_536
"""Holds the largest datagram and the largest aggregate."""
_CONTROL_BYTES = 64
"""Room for the one control message of 4 bytes that UDP_GRO adds."""
_DATAGRAM_COST = 512
"""What a datagram costs of a budget beside its bytes: judging a small one takes as long as reading 500 bytes, so that
a flood of small ones ends a read as well."""
_HIGHEST_PORT = 65_535


class Endpoint(NamedTuple):
    """Where a datagram goes: an IPv4 address in dots, never a name that would have to be looked up."""

    address: str
    port: int

    def __str__(self) -> str:
        """As people write it."""
        return f"{self.address}:{self.port}"


class Traffic(NamedTuple):
    """Datagrams and the bytes in them."""

    datagrams: int
    bytes: int


def dropped_of(receiver: socket.socket) -> int:
    """What the kernel threw away of a socket's datagrams, modulo 2^32; OSError where it does not tell."""
    return int(_MEMINFO.unpack(receiver.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size))[_MEMINFO_DROPS])


class Inlet:
    """One receiving socket."""

    def __init__(self, receiver: socket.socket, sources: Sequence[str] = (), *, unfiltered: str = "") -> None:
        """Take over a bound socket; `sources` names the only addresses to hear, where the kernel does not filter."""
        self._socket = receiver
        self.unfiltered = unfiltered
        """Why the kernel does not filter this socket, though it was asked to."""
        self._sources = frozenset(sources)
        self.buffer_bytes = receiver.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
        """What the kernel granted, in the unit of the request: it doubles every request for its own overhead."""
        self.foreign = 0
        """Datagrams from addresses that are not among the sources."""
        self.failures = 0
        """Reads that failed for another reason than an empty socket."""
        self.origins: list[tuple[str, int]] = []
        """Of the last read: where datagrams came from, and how many in a row."""
        self._datagrams = 0
        self._bytes = 0
        self._drops = 0
        self._last_drops = 0
        self._buffer = bytearray(_DATAGRAM_BYTES)
        self._buffers = (self._buffer,)
        receiver.settimeout(0)
        self.aggregates = _aggregated(receiver)
        """Whether the kernel hands over several datagrams at once."""
        self._read: Callable[[int], list[bytes]] = self._read_aggregates if self.aggregates else self._read_singles

    @property
    def endpoint(self) -> Endpoint:
        """Where this inlet listens."""
        address, port = self._socket.getsockname()
        return Endpoint(address, port)

    @property
    def received(self) -> Traffic:
        """What was handed to the caller."""
        return Traffic(self._datagrams, self._bytes)

    @property
    def drops(self) -> int:
        """What the kernel threw away, because this socket's buffer was full or its filter said so, up to this moment.

        Datagrams, exactly, while `aggregates` is false. Otherwise the kernel counts each aggregate of up to 64
        datagrams as one, so this is the least that was lost.
        """
        with suppress(OSError):
            counted = dropped_of(self._socket)
            self._drops += (counted - self._last_drops) & _U32
            self._last_drops = counted
        return self._drops

    def fileno(self) -> int:
        """For the event loop; -1 once closed."""
        return self._socket.fileno()

    def read(self, budget_bytes: int) -> list[bytes]:
        """What has arrived, in order, one item for each datagram. At most one aggregate beyond the budget."""
        return self._read(budget_bytes)

    def _read_aggregates(self, budget: int) -> list[bytes]:
        frames: list[bytes] = []
        origins = self.origins = []
        receive = self._socket.recvmsg_into
        while budget > 0:
            try:
                length, control, _, address = receive(self._buffers, _CONTROL_BYTES)
            except BlockingIOError:
                break
            except OSError as reason:
                self._failed(reason)
                break
            segment = segment_of(control, length) if control else length
            found = cut(self._buffer, length, segment)
            budget -= length + _DATAGRAM_COST * len(found)
            if self._sources and address[0] not in self._sources:
                self.foreign += len(found)
                continue
            self._bytes += length
            frames += found
            origins.append((address[0], len(found)))
        self._datagrams += len(frames)
        return frames

    def _read_singles(self, budget: int) -> list[bytes]:
        frames: list[bytes] = []
        origins = self.origins = []
        while budget > 0:
            try:
                frame, address = self._socket.recvfrom(_DATAGRAM_BYTES)
            except BlockingIOError:
                break
            except OSError as reason:
                self._failed(reason)
                break
            budget -= len(frame) + _DATAGRAM_COST
            if self._sources and address[0] not in self._sources:
                self.foreign += 1
                continue
            self._bytes += len(frame)
            frames.append(frame)
            origins.append((address[0], 1))
        self._datagrams += len(frames)
        return frames

    def _failed(self, reason: OSError) -> None:
        """Count what the network did; our own mistakes are raised."""
        if reason.errno == errno.EBADF:
            raise LocalProtocolError("reads from a closed inlet") from reason
        self.failures += 1

    def close(self) -> None:
        """Give the socket back; the counts stay readable."""
        _ = self.drops
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Outlet:
    """One sending socket: to all its destinations by `send`, to anybody by `send_to`."""

    def __init__(
        self, sender: socket.socket, destinations: Sequence[Endpoint] = (), *, patience_ns: int = PATIENCE_NS
    ) -> None:
        """Take over a bound socket. Multicast is one destination, the group; fan-out is the list of members."""
        sender.settimeout(0)
        self._socket = sender
        self.destinations = tuple(checked(endpoint) for endpoint in destinations)
        self.segmentation = Segmentation()
        self.unsent = 0
        """Datagrams that were given up, for any of the reasons in `failures`."""
        self.failures: dict[str, int] = {}
        """How many datagrams each reason cost: the kernel's name of the error, such as ECONNREFUSED."""
        self._datagrams = 0
        self._bytes = 0
        self._patience_ns = patience_ns
        self._until = 0
        self._room = select.poll()
        self._room.register(sender, select.POLLOUT)

    @property
    def endpoint(self) -> Endpoint:
        """Where receivers see this outlet's datagrams come from."""
        address, port = self._socket.getsockname()
        return Endpoint(address, port)

    @property
    def sent(self) -> Traffic:
        """What the kernel took, once for each destination."""
        return Traffic(self._datagrams, self._bytes)

    def send(self, frames: Sequence[bytes]) -> None:
        """Each frame as one datagram, in order, to every destination."""
        self._send(frames, self.destinations)

    def send_to(self, endpoint: Endpoint, frames: Sequence[bytes]) -> None:
        """Each frame as one datagram, in order, to one endpoint."""
        self._send(frames, (checked(endpoint),))

    def _send(self, frames: Sequence[bytes], destinations: Sequence[Endpoint]) -> None:
        self._until = 0
        if len(frames) == 1 and len(frames[0]) <= MAX_UDP:
            # Most control packets leave alone; there is nothing to cut.
            for endpoint in destinations:
                self._send_singly(frames, endpoint)
            return
        for burst in bursts_of(frames):
            # All destinations get a burst before any gets the next: nobody is served last by a whole batch.
            if len(burst.frames) > 1 and burst.segment <= self.segmentation.limit:
                whole = b"".join(burst.frames)
                for endpoint in destinations:
                    if not self._send_whole(burst, whole, endpoint):
                        self._send_singly(burst.frames, endpoint)
            else:
                for endpoint in destinations:
                    self._send_singly(burst.frames, endpoint)

    def _send_whole(self, burst: Burst, whole: bytes, endpoint: Endpoint) -> bool:
        """One call for the burst; false when the kernel will not cut it, and has sent nothing."""
        control = segment_control(burst.segment)
        while True:
            try:
                self._socket.sendmsg((whole,), control, 0, endpoint)
            except BlockingIOError as reason:
                if self._wait():
                    continue
                self._lost(reason, len(burst.frames))
            except OSError as reason:
                if self.segmentation.refused(reason, burst.segment):
                    return False
                self._lost(reason, len(burst.frames))
            else:
                self._datagrams += len(burst.frames)
                self._bytes += len(whole)
            return True

    def _send_singly(self, frames: Sequence[bytes], endpoint: Endpoint) -> None:
        """One call for each frame."""
        send = self._socket.sendto
        for frame in frames:
            while True:
                try:
                    send(frame, endpoint)
                except BlockingIOError as reason:
                    if self._wait():
                        continue
                    self._lost(reason, 1)
                except OSError as reason:
                    self._lost(reason, 1)
                else:
                    self._datagrams += 1
                    self._bytes += len(frame)
                break

    def _wait(self) -> bool:
        """Until there is room in the send buffer; false once this call's patience is at its end."""
        now = monotonic_ns()
        self._until = self._until or now + self._patience_ns
        return now < self._until and bool(self._room.poll(-(-(self._until - now) // MILLISECOND)))

    def _lost(self, reason: OSError, count: int) -> None:
        """Count what the network did; our own mistakes are raised."""
        if reason.errno == errno.EBADF:
            raise LocalProtocolError("sends through a closed outlet") from reason
        name = errno.errorcode.get(reason.errno or 0, "unknown")
        self.failures[name] = self.failures.get(name, 0) + count
        self.unsent += count

    def close(self) -> None:
        """Give the socket back; the counts stay readable."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@lru_cache(maxsize=4096)
def checked(endpoint: Endpoint) -> Endpoint:
    """The endpoint, if it is an IPv4 address and a port: a name would be looked up, and block, at every send."""
    address, port = endpoint
    try:
        IPv4Address(address)
    except AddressValueError as reason:
        raise LocalProtocolError(f"{address!r} is not an IPv4 address") from reason
    if not 0 < port <= _HIGHEST_PORT:
        raise LocalProtocolError(f"port {port} is not in 1..{_HIGHEST_PORT}")
    return endpoint


def _aggregated(receiver: socket.socket) -> bool:
    """Ask for UDP_GRO; whether the kernel agrees."""
    try:
        receiver.setsockopt(SOL_UDP, UDP_GRO, 1)
    except OSError:
        return False
    return True


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
    guard: Filter | None = None,
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
        unfiltered = "" if guard is None else attach(receiver, guard)
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
        return Inlet(receiver, unfiltered=unfiltered)


def unicast_inlet(
    address: str,
    port: int,
    *,
    sources: Sequence[str] = (),
    buffer_bytes: int = BUFFER_BYTES,
    guard: Filter | None = None,
    kind: type[socket.socket] = socket.socket,
) -> Inlet:
    """Listen on an own address; port 0 takes a free one. Datagrams from others than `sources`, if any, are dropped."""
    _packed(address)
    with _opening(f"cannot listen on {address}:{port}", port, kind) as receiver:
        # No SO_REUSEADDR: a second process on the same port must fail, not share the datagrams.
        _size_buffer(receiver, _SO_RCVBUFFORCE, socket.SO_RCVBUF, buffer_bytes)
        # Before it is bound: what comes in between would pass unseen.
        unfiltered = "" if guard is None else attach(receiver, guard)
        receiver.bind((address, port))
        return Inlet(receiver, sources, unfiltered=unfiltered)


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


def unicast_outlet(address: str) -> Outlet:
    """Send to anybody by `send_to`, from this address."""
    return fanout_outlet(address, ())


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


# A group of nodes, reached by IP multicast or by a copy to each: the rest of the program does not know which.
#
# Both modes give the same: each member but the sender hears each datagram once, in the sender's order; with `sources`,
# from those addresses only. What differs is who pays. Multicast sends once, and the kernel keeps the sender's own
# datagrams and strangers' from the inlet; fan-out sends once for each member, leaves out the sender's own endpoint, and
# tells strangers by the address that every read brings along.


def open_group_outlet(
    mode: NetworkMode,
    group: str,
    port: int,
    *,
    interface: str,
    members: Sequence[Endpoint] = (),
    alone: bool = True,
    ttl: int = TTL,
) -> Outlet:
    """Send to a group from the node whose address is `interface`.

    Multicast uses group, port and TTL; fan-out the members, except the one with this node's own address. Where it is
    not `alone` at its address, the members are others already.
    """
    match mode:
        case NetworkMode.MULTICAST:
            return multicast_outlet(group, port, interface, ttl=ttl)
        case NetworkMode.FANOUT:
            others = [member for member in dict.fromkeys(members) if not alone or member.address != interface]
            return fanout_outlet(interface, others)


def open_group_inlet(  # noqa: PLR0913 - where, as whom, to whom and how much: nothing of it follows from the rest
    mode: NetworkMode,
    group: str,
    port: int,
    *,
    interface: str,
    own: Endpoint,
    alone: bool = True,
    sources: Sequence[str] = (),
    buffer_bytes: int = BUFFER_BYTES,
    guard: Filter | None = None,
    kind: type[socket.socket] = socket.socket,
) -> Inlet:
    """Hear a group at the node whose address is `interface`.

    Multicast joins group and port; fan-out listens at `own`, the endpoint under which senders list this member. Where
    it is not `alone` at its address, multicast brings it its own datagrams too: the kernel tells nodes by address.
    """
    match mode:
        case NetworkMode.MULTICAST:
            deaf_to = interface if alone else None
            return multicast_inlet(
                group,
                port,
                interface,
                sources=sources,
                deaf_to=deaf_to,
                buffer_bytes=buffer_bytes,
                guard=guard,
                kind=kind,
            )
        case NetworkMode.FANOUT:
            return unicast_inlet(
                own.address, own.port, sources=sources, buffer_bytes=buffer_bytes, guard=guard, kind=kind
            )
