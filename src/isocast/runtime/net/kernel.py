"""The few calls of the C library that Python 3.11 does not offer. Elsewhere than on Linux they are simply missing."""

from __future__ import annotations

import ctypes
import os
import resource
from typing import NamedTuple

from isocast.terms.instants import MICROSECOND, SECOND

__all__ = [
    "KernelClock",
    "arm_timer",
    "create_timer",
    "forbid_dumps",
    "keep_freed_memory",
    "read_kernel_clock",
    "set_timer_slack",
    "signal_at_parents_end",
]

_CLOCK_REALTIME = 0
_TFD_FLAGS = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)
_ABSOLUTE_AND_CANCEL_ON_SET = 3

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_TIMERSLACK = 29

_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3

_TIME_ERROR = 5
_STA_UNSYNC = 0x0040

_libc = ctypes.CDLL(None, use_errno=True)


class KernelClock(NamedTuple):
    """What the kernel says of CLOCK_REALTIME."""

    synchronised: bool
    max_error_ns: int
    """The bound that the kernel keeps: set by the daemon that steers the clock, growing by 500 ppm in between."""


class _Timex(ctypes.Structure):
    """struct timex up to what is read here; the rest is room."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    )


def read_kernel_clock() -> KernelClock | None:
    """Ask without changing anything (modes = 0), which needs no privilege; None where the kernel will not say."""
    timex = _Timex()
    try:
        state = _libc.adjtimex(ctypes.byref(timex))
    except AttributeError:
        return None
    if state < 0:
        return None
    synchronised = state != _TIME_ERROR and not timex.status & _STA_UNSYNC
    return KernelClock(synchronised, timex.maxerror * MICROSECOND)


def create_timer() -> int | None:
    """A timer on CLOCK_REALTIME that is read as a file; None where there is no such thing. Never shared by a fork."""
    try:
        descriptor = _libc.timerfd_create(_CLOCK_REALTIME, _TFD_FLAGS)
    except AttributeError:
        return None
    return descriptor if descriptor >= 0 else None


def arm_timer(descriptor: int, instant_ns: int) -> None:
    """Readable from an absolute instant on, or when the clock is set. OSError(ECANCELED): it has been set already."""
    seconds, nanoseconds = divmod(instant_ns, SECOND)
    value = (ctypes.c_long * 4)(0, 0, seconds, nanoseconds)
    if _libc.timerfd_settime(descriptor, _ABSOLUTE_AND_CANCEL_ON_SET, value, None) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def set_timer_slack(nanoseconds: int) -> bool:
    """How late the kernel may wake this thread to save wake-ups: 50 µs unless changed."""
    try:
        return bool(_libc.prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(nanoseconds), 0, 0, 0) == 0)
    except AttributeError:
        return False


def forbid_dumps() -> bool:
    """Keep this process's memory, which holds keys, from core dumps and from debuggers of the same user."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        return bool(_libc.prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(0), 0, 0, 0) == 0)
    except AttributeError:
        return False


def signal_at_parents_end(number: int) -> bool:
    """Be sent this signal when the thread that started this process ends."""
    try:
        return bool(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(number), 0, 0, 0) == 0)
    except AttributeError:
        return False


def keep_freed_memory(amount: int) -> bool:
    """Let the allocator keep this much freed memory for the next burst, instead of giving it back to the kernel."""
    try:
        mallopt = _libc.mallopt
    except AttributeError:
        return False
    settings = ((_M_TRIM_THRESHOLD, amount), (_M_TOP_PAD, amount >> 4), (_M_MMAP_THRESHOLD, amount >> 3))
    return all(mallopt(name, value) == 1 for name, value in settings)
