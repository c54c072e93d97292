"""One network namespace for each site: made, furnished, watched, emptied.

A namespace has no name and no mount: open files and the processes in it keep it alive, so that nothing is left when
they are gone, however they went.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from isocast.trials.lab.frames import site_mac
from isocast.trials.lab.kernel import CLONE_NEWNET, open_tap, unshare, unshare_user
from isocast.trials.lab.netlink import (
    Request,
    RouteSocket,
    add_address,
    add_neighbour,
    add_route,
    delete_address,
    link_up,
    shape_link,
    silence_ipv6,
)
from isocast.trials.lab.world import World

__all__ = [
    "INTERFACE",
    "SiteNamespace",
    "device_drops",
    "evict",
    "gain_privilege",
    "holders",
    "make_namespaces",
    "namespace_number",
    "residents",
]

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


def make_namespaces(world: World) -> list[SiteNamespace]:
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


def _furniture(world: World, place: int, index: int) -> Iterator[Request]:
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


# ---- who is in there


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
    """Kill whoever lives in these namespaces, stopped or not: who is still there after so long."""
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
