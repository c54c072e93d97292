"""What a lab asks of the kernel: namespaces, TAP devices, a punctual process."""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
from pathlib import Path

from isocast.runtime.net.kernel import set_timer_slack

__all__ = [
    "CLONE_NEWNET",
    "CLONE_NEWUSER",
    "TUN_DEVICE",
    "become_real_time",
    "open_tap",
    "setns",
    "unshare",
    "unshare_user",
]

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


def setns(fd: int, kind: int) -> None:
    """Enter the namespace that an open file stands for."""
    _checked(_libc.setns(fd, kind), "setns")


def unshare_user() -> None:
    """A user namespace of our own, in which whoever we are is root: no privilege is needed outside."""
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
