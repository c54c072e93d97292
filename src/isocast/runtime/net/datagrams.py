"""Datagrams in bursts: an inlet receives them, an outlet sends them, to one or to many.

An inlet never blocks, reads at most a budget of bytes, and knows what the kernel dropped because its buffer was full.
An outlet waits at most `PATIENCE_NS` for room and counts what it could not send: the protocol repairs losses, so the
network never raises. What raises is a frame that no datagram can carry (`LocalProtocolError`).
"""

from __future__ import annotations

import errno
import select
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address
from struct import Struct
from time import monotonic_ns
from typing import NamedTuple, Self

from isocast.runtime.net.offload import (
    SOL_UDP,
    UDP_GRO,
    Burst,
    Segmentation,
    bursts_of,
    cut,
    segment_control,
    segment_of,
)
from isocast.terms.errors import LocalProtocolError
from isocast.terms.instants import MILLISECOND
from isocast.wire.limits import MAX_UDP

__all__ = ["PATIENCE_NS", "Endpoint", "Inlet", "Outlet", "Traffic", "checked"]

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
_HEADERS_BYTES = 28
"""IP 20 + UDP 8: what an empty datagram costs of a budget, so that a flood of them ends a read as well."""
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


class Inlet:
    """One receiving socket."""

    def __init__(self, receiver: socket.socket, sources: Sequence[str] = (), *, buffer_wanted: int = 0) -> None:
        """Take over a bound socket; `sources` names the only addresses to hear, where the kernel does not filter."""
        self._socket = receiver
        self._sources = frozenset(sources)
        self.buffer_wanted = buffer_wanted
        self.buffer_bytes = receiver.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
        """What the kernel granted, in the unit of the request: it doubles every request for its own overhead."""
        self.foreign = 0
        """Datagrams from addresses that are not among the sources."""
        self.failures = 0
        """Reads that failed for another reason than an empty socket."""
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
    def buffer_shortfall(self) -> int:
        """Bytes of buffer that were asked for and refused: net.core.rmem_max limits those without privilege."""
        return max(0, self.buffer_wanted - self.buffer_bytes)

    @property
    def drops(self) -> int:
        """What the kernel threw away because this socket's buffer was full, up to this moment.

        Datagrams, exactly, while `aggregates` is false. Otherwise the kernel counts each aggregate of up to 64
        datagrams as one, so this is the least that was lost.
        """
        with suppress(OSError):
            counted: int = _MEMINFO.unpack(self._socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size))[
                _MEMINFO_DROPS
            ]
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
            budget -= length + _HEADERS_BYTES
            found = cut(self._buffer, length, segment)
            if self._sources and address[0] not in self._sources:
                self.foreign += len(found)
                continue
            self._bytes += length
            frames += found
        self._datagrams += len(frames)
        return frames

    def _read_singles(self, budget: int) -> list[bytes]:
        frames: list[bytes] = []
        while budget > 0:
            try:
                if self._sources:
                    frame, address = self._socket.recvfrom(_DATAGRAM_BYTES)
                else:
                    frame, address = self._socket.recv(_DATAGRAM_BYTES), None
            except BlockingIOError:
                break
            except OSError as reason:
                self._failed(reason)
                break
            budget -= len(frame) + _HEADERS_BYTES
            if address is not None and address[0] not in self._sources:
                self.foreign += 1
                continue
            self._bytes += len(frame)
            frames.append(frame)
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

    @property
    def offload(self) -> str:
        """Whether bursts leave in single calls, and if not, why."""
        return self.segmentation.state

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
