"""What the switch of a lab is made of: frames and when they come out, namespaces, TAP devices, rtnetlink."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import signal
import socket
import struct
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path
from typing import Self

from isocast.runtime.net.kernel import set_timer_slack
from isocast.simulation.network import stream
from isocast.trials.lab.world import LabWorld, Link, LinkImpairment

__all__ = [
    "CLONE_NEWNET",
    "CLONE_NEWUSER",
    "HEADER_BYTES",
    "INTERFACE",
    "TUN_DEVICE",
    "Departure",
    "Fabric",
    "MacTable",
    "RouteSocket",
    "SiteNamespace",
    "add_address",
    "add_neighbour",
    "add_route",
    "become_real_time",
    "delete_address",
    "device_drops",
    "evict",
    "gain_privilege",
    "holders",
    "link_up",
    "make_namespaces",
    "namespace_number",
    "open_tap",
    "residents",
    "shape_link",
    "silence_ipv6",
    "site_mac",
    "unshare",
    "unshare_user",
]


# Ethernet, as much of it as a switch reads: who a frame is for, and behind which port that station is.


HEADER_BYTES = 14
"""Destination, source and type; nothing shorter is a frame."""
_GROUP_BIT = 1
"""In the first byte of an address: multicast or broadcast."""
_LOCAL_PREFIX = b"\x02IC\x00"
"""Locally administered, so that no station outside the lab has such an address."""
_STATIONS_MAX = 4096
"""Attack: a site that sends from ever new addresses. Far more than the stations of any lab."""


def site_mac(port: int) -> bytes:
    """The hardware address of the site behind a port."""
    return _LOCAL_PREFIX + port.to_bytes(2)


class MacTable:
    """Which port a station is behind: given at the start, learned from what it sends."""

    __slots__ = ("_everybody_but", "_port_of")

    def __init__(self, ports: int) -> None:
        """A switch with that many ports and the lab's own site behind each."""
        self._port_of = {site_mac(port): port for port in range(ports)}
        self._everybody_but = [tuple(other for other in range(ports) if other != port) for port in range(ports)]

    def __len__(self) -> int:
        return len(self._port_of)

    def destinations(self, frame: bytes, port: int) -> tuple[int, ...]:
        """The ports that a frame from `port` leaves by: one for a known station, all others for the rest.

        Nothing for a frame that is too short, or that is for a station on its own side.
        """
        if len(frame) < HEADER_BYTES:
            return ()
        source = frame[6:12]
        if self._port_of.get(source) != port:
            self._learn(source, port)
        if frame[0] & _GROUP_BIT:
            return self._everybody_but[port]
        found = self._port_of.get(frame[:6])
        if found is None:
            return self._everybody_but[port]
        return () if found == port else (found,)

    def _learn(self, source: bytes, port: int) -> None:
        """Remember a station; a group never sends, and a full table floods instead."""
        if source[0] & _GROUP_BIT == 0 and (source in self._port_of or len(self._port_of) < _STATIONS_MAX):
            self._port_of[source] = port


_IN_FLIGHT_MAX = 400_000
"""Bounds memory at some 600 MB of full frames: 115,000 a second, the most that a switch here carries, for 3 s."""

Departure = tuple[int, int, int, bytes]
"""Instant, counter (so that equal instants leave in order), port, frame."""


class Fabric:
    """A link for each ordered pair of ports, and the frames on their way."""

    def __init__(self, impairments: Mapping[tuple[int, int], LinkImpairment], ports: int, seed: int) -> None:
        """All links open; a pair without an impairment passes frames at once."""
        self._table = MacTable(ports)
        self._links = [
            [
                Link(impairments.get((here, there), LinkImpairment()), stream(seed, here, there))
                for there in range(ports)
            ]
            for here in range(ports)
        ]
        self._on_the_way: list[Departure] = []
        self._counter = 0
        self.frames_in = 0
        self.frames_ignored = 0
        """Too short to be frames, or for the sender's own side."""
        self.frames_refused = 0
        """Beyond what may be on its way at once: the lab's own limit, not a loss of the world."""

    def __len__(self) -> int:
        return len(self._on_the_way)

    def enter(self, frame: bytes, port: int, now: int) -> None:
        """A frame came in by a port."""
        self.frames_in += 1
        destinations = self._table.destinations(frame, port)
        if not destinations:
            self.frames_ignored += 1
        links = self._links[port]
        for destination in destinations:
            leaves = links[destination].take(now)
            if leaves < 0:
                continue
            if len(self._on_the_way) >= _IN_FLIGHT_MAX:
                self.frames_refused += 1
                continue
            self._counter += 1
            heappush(self._on_the_way, (leaves, self._counter, destination, frame))

    def next_departure(self) -> int | None:
        """When the next frame is due."""
        return self._on_the_way[0][0] if self._on_the_way else None

    def leave(self, now: int) -> Departure | None:
        """The next frame, if it is due: never before its instant."""
        if not self._on_the_way or self._on_the_way[0][0] > now:
            return None
        return heappop(self._on_the_way)

    def links(self) -> Iterator[tuple[int, int, Link]]:
        """Every direction between two ports."""
        for here, row in enumerate(self._links):
            for there, link in enumerate(row):
                if here != there:
                    yield here, there, link

    def select(self, pairs: Iterable[tuple[int, int]]) -> list[Link]:
        """The directions of these pairs."""
        return [self._links[here][there] for here, there in pairs]

    @property
    def frames_lost(self) -> int:
        """Taken by chance, as the world says."""
        return sum(link.frames_lost for _, _, link in self.links())

    @property
    def frames_cut(self) -> int:
        """Sent into cut links."""
        return sum(link.frames_cut for _, _, link in self.links())


# What a lab asks of the kernel: namespaces, TAP devices, a punctual process.


CLONE_NEWUSER = 0x1000_0000
CLONE_NEWNET = 0x4000_0000

TUN_DEVICE = "/dev/net/tun"
_TUNSETIFF = 0x4004_54CA
_IFF_TAP = 0x0002
_IFF_NO_PI = 0x1000
_INTERFACE_REQUEST = struct.Struct("16sH22x")
_PRIORITY = 20
"""Above the market's own real-time nodes: a switch that waits for them would be late for all."""

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Leave the namespaces of these kinds for new ones."""
    _checked(_libc.unshare(flags), "unshare")


def unshare_user() -> None:
    """A user namespace of our own, in which this user is root: no privilege is needed outside."""
    user, group = os.geteuid(), os.getegid()
    unshare(CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1", encoding="ascii")


def open_tap(name: str) -> int:
    """A TAP device in the present network namespace; it lives as long as the file that is returned."""
    fd = os.open(TUN_DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(fd, _TUNSETIFF, _INTERFACE_REQUEST.pack(name.encode(), _IFF_TAP | _IFF_NO_PI))
    except OSError:
        os.close(fd)
        raise
    return fd


def become_real_time() -> bool:
    """Wake-ups to the microsecond, and a real-time priority if the machine permits it: whether it did."""
    set_timer_slack(1)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(_PRIORITY))
    except OSError:
        return False
    return True


# Rtnetlink, as much of it as a site needs: links, addresses, routes and neighbours, without the `ip` command.


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


def add_address(index: int, address: str) -> Request:
    """Give an interface an address; by itself it brings no route to others."""
    return _RTM_NEWADDR, _F_CREATE | _F_REPLACE, _address_body(index, address, _ALONE)


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

    def __exit__(self, *_: object) -> None:
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


# One network namespace for each site: made, furnished, watched, emptied.
#
# A namespace has no name and no mount: open files and the processes in it keep it alive, so that nothing is left when
# they are gone, however they went.


INTERFACE = "wan0"
"""The TAP device of every site: the way to all the others."""
_QUEUE_FRAMES = 10_000
"""At a device that the switch has not read yet: 90 ms of all that it can forward."""
_LOOPBACK_INDEX = 1
"""The kernel makes `lo` first in every namespace."""
_MULTICAST = "224.0.0.0"
_MULTICAST_PREFIX = 4
_RECEIVE_DROPS, _SEND_DROPS = 3, 11
"""Columns of /proc/net/dev."""


@dataclass(frozen=True, slots=True)
class SiteNamespace:
    """The files that keep a site alive, as its switch holds them."""

    name: str
    namespace: int
    tap: int
    statistics: int
    """/proc/net/dev of this namespace."""


def gain_privilege(*, user_namespace: bool | None) -> bool:
    """Become able to make network namespaces: whether it took a user namespace.

    True insists on one, as if we were not root; None takes one if there is no other way.
    """
    if not user_namespace:
        try:
            unshare(CLONE_NEWNET)
        except PermissionError:
            if user_namespace is False:
                raise
        else:
            return False
    unshare_user()
    return True


def make_namespaces(world: LabWorld) -> list[SiteNamespace]:
    """A namespace for each site, its device up and furnished; the caller ends in one of its own, without any."""
    made = []
    for place, site in enumerate(world.sites):
        unshare(CLONE_NEWNET)
        tap = open_tap(INTERFACE)
        with RouteSocket() as kernel:
            with suppress(OSError):  # A kernel without IPv6 is silent anyway.
                kernel.perform([silence_ipv6(socket.if_nametoindex(INTERFACE))])
            kernel.perform(list(_furniture(world, place, socket.if_nametoindex(INTERFACE))))
        namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        statistics = os.open("/proc/thread-self/net/dev", os.O_RDONLY | os.O_CLOEXEC)
        made.append(SiteNamespace(site.name, namespace, tap, statistics))
    unshare(CLONE_NEWNET)
    return made


def _furniture(world: LabWorld, place: int, index: int) -> Iterator[Request]:
    """What a site's namespace needs: loopback, device, addresses, and the way to everybody else."""
    own = world.sites[place].addresses
    everywhere = [address for site in world.sites for address in site.addresses]
    on_loopback = any(address.startswith("127.") for address in everywhere)
    yield link_up(_LOOPBACK_INDEX)
    if on_loopback:
        # Of 127/8 only what is nobody's stays inside the host; the rest is as far away as its site.
        yield delete_address(_LOOPBACK_INDEX, "127.0.0.1", 8)
        if "127.0.0.1" not in everywhere:
            yield add_address(_LOOPBACK_INDEX, "127.0.0.1")
    yield shape_link(index, site_mac(place), world.mtu, _QUEUE_FRAMES, loopback_addresses=on_loopback)
    yield link_up(index)
    for address in own:
        yield add_address(index, address)
    yield add_route(index, _MULTICAST, _MULTICAST_PREFIX, own[0], priority=1)
    for other, site in enumerate(world.sites):
        if other != place:
            for address in site.addresses:
                yield add_neighbour(index, address, site_mac(other))
                yield add_route(index, address, 32, own[0])


def device_drops(namespaces: Sequence[SiteNamespace]) -> int:
    """Frames that the kernel dropped at the sites' devices, either way, for want of room."""
    total = 0
    for site in namespaces:
        text = os.pread(site.statistics, 1 << 16, 0).decode("ascii")
        for row in text.splitlines():
            name, colon, figures = row.partition(":")
            if colon and name.strip() == INTERFACE:
                columns = figures.split()
                total += int(columns[_RECEIVE_DROPS]) + int(columns[_SEND_DROPS])
    return total


def namespace_number(fd: int) -> int:
    """What tells a namespace from all others while a file keeps it alive."""
    return os.fstat(fd).st_ino


def _processes() -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            yield int(entry.name)


def _network_of(process: int) -> int | None:
    """The network namespace of a process; None if it is gone, or another user's."""
    try:
        return Path(f"/proc/{process}/ns/net").stat().st_ino
    except OSError:
        return None


def residents(numbers: Collection[int]) -> list[int]:
    """The processes that live in these namespaces."""
    return [process for process in _processes() if _network_of(process) in numbers]


def holders(numbers: Collection[int]) -> list[int]:
    """The other processes that hold one of these namespaces open by a file."""
    targets = {f"net:[{number}]" for number in numbers}
    found = []
    for process in _processes():
        if process == os.getpid():
            continue
        with suppress(OSError):  # It is gone, or another user's.
            if any(_target(file) in targets for file in Path(f"/proc/{process}/fd").iterdir()):
                found.append(process)
    return found


def _target(file: Path) -> str:
    try:
        return str(file.readlink())
    except OSError:
        return ""


def evict(numbers: Collection[int], seconds: float) -> list[int]:
    """Kill all processes in these namespaces, stopped or not; returns those that are still there after so long."""
    deadline = time.monotonic() + seconds
    while (left := residents(numbers)) and time.monotonic() < deadline:
        for process in left:
            _kill(process, numbers)
        time.sleep(0.005)
    return left


def _kill(process: int, numbers: Collection[int]) -> None:
    """Kill a process, but not one that got its number meanwhile."""
    try:
        handle = os.pidfd_open(process)
    except OSError as error:
        if error.errno != errno.ESRCH:
            raise
        return
    try:
        if _network_of(process) in numbers:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)
