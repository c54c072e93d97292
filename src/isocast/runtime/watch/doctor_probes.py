"""What the doctor measures and tries on this machine; judging it is `doctor`'s.

Everything here leaves the machine as it was. Trials that could change this process run in a short one of their own.
"""

from __future__ import annotations

import asyncio
import os
import resource
import select
import shutil
import socket
import stat
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from isocast.runtime.net.kernel import KernelClock, arm_timer, create_timer, read_kernel_clock, set_timer_slack
from isocast.runtime.watch.status_poll import Target, poll
from isocast.terms.instants import SECOND

__all__ = ["KeyFile", "Probes"]

_GROUP = "239.255.77.254"
"""Of the scope that stays within an organisation, and apart from the groups that a market uses by default."""
_LOOPBACK = "127.0.0.1"
_ANSWER_SECONDS = 1.0
_TRIAL_SECONDS = 10.0
_SOL_UDP, _UDP_SEGMENT, _UDP_GRO = 17, 103, 104
_PROBE_EVERY_NS = 2_000_000
_SYNC_BYTES = 4_096

_TRY_NAMESPACE = "import ctypes; raise SystemExit(ctypes.CDLL(None).unshare(0x50000000) != 0)"
_TRY_FIFO = "import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))"


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A file that holds a secret, and who may read it."""

    path: Path
    mode: int
    owned: bool


class Probes:
    """The real machine. A method that finds nothing to measure says None; one that is refused says why."""

    def python_version(self) -> tuple[int, int, int]:
        """The interpreter's."""
        return sys.version_info[:3]

    def platform(self) -> str:
        """`linux`, or something that has no timerfd."""
        return sys.platform

    def cpu_count(self) -> int:
        """Processors that this process may use."""
        return len(os.sched_getaffinity(0))

    def kernel_clock(self) -> KernelClock | None:
        """The kernel's word on its own clock."""
        return read_kernel_clock()

    def multicast_trouble(self, address: str = _LOOPBACK) -> str:
        """Send one datagram to a group by an interface and hear it; empty if it came."""
        packed = socket.inet_aton(address)
        word = os.urandom(16)
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as hears, _datagrams() as sends:
                hears.settimeout(_ANSWER_SECONDS)
                hears.bind((_GROUP, 0))
                hears.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(_GROUP) + packed)
                sends.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, packed)
                sends.bind((address, 0))
                sends.sendto(word, (_GROUP, hears.getsockname()[1]))
                return "" if hears.recv(64) == word else "something else was heard"
        except TimeoutError:
            return f"what was sent was not heard within {_ANSWER_SECONDS:g} s"
        except OSError as error:
            return error.strerror or str(error)

    def segmentation_trouble(self) -> str:
        """Send two datagrams in one call, by UDP_SEGMENT; empty if both came."""
        try:
            with _datagrams() as hears, _datagrams() as sends:
                hears.settimeout(_ANSWER_SECONDS)
                hears.bind((_LOOPBACK, 0))
                sends.setsockopt(_SOL_UDP, _UDP_SEGMENT, 8)
                sends.sendto(b"12345678abcdefgh", hears.getsockname())
                came = [hears.recv(64), hears.recv(64)]
        except OSError as error:
            return error.strerror or str(error)
        return "" if came == [b"12345678", b"abcdefgh"] else "the datagrams were not cut as asked"

    def coalescing_trouble(self) -> str:
        """Ask for UDP_GRO; empty if the kernel has it."""
        try:
            with _datagrams() as hears:
                hears.setsockopt(_SOL_UDP, _UDP_GRO, 1)
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def receive_buffer_max(self) -> int | None:
        """net.core.rmem_max."""
        return _number("/proc/sys/net/core/rmem_max")

    def may_force_buffers(self) -> bool:
        """Whether SO_RCVBUFFORCE goes past rmem_max: CAP_NET_ADMIN."""
        with suppress(OSError, OverflowError), _datagrams() as hears:
            hears.setsockopt(socket.SOL_SOCKET, 33, 1 << 16)
            return True
        return False

    def sync_ns(self, directory: Path, writes: int = 16) -> list[int] | None:
        """How long the disk takes for a small write to be safe, some in a row; sorted. None where it takes none."""
        there = next((place for place in (directory, *directory.parents) if place.is_dir()), None)
        took = []
        try:
            with TemporaryFile(dir=there) as file:
                for _ in range(writes):
                    file.write(bytes(_SYNC_BYTES))
                    file.flush()
                    began = time.perf_counter_ns()
                    os.fdatasync(file.fileno())
                    took.append(time.perf_counter_ns() - began)
        except OSError:
            return None
        return sorted(took)

    def timer_lateness_ns(self, span_ns: int = SECOND // 5) -> list[int]:
        """How late absolute timers fire, one after the other for `span_ns`; sorted."""
        timer = create_timer()
        if timer is None:
            return []
        late = []
        try:
            set_timer_slack(1)  # As a node does.
            end = time.monotonic_ns() + span_ns
            while time.monotonic_ns() < end:
                due = time.time_ns() + _PROBE_EVERY_NS
                arm_timer(timer, due)
                if select.select([timer], [], [], _ANSWER_SECONDS)[0]:
                    late.append(time.time_ns() - due)
        except OSError:
            pass  # Somebody set the clock: what was measured before counts.
        finally:
            os.close(timer)
        return sorted(late)

    def has_address(self, address: str) -> bool:
        """Whether the address is one of this machine."""
        with suppress(OSError), _datagrams() as trial:
            trial.bind((address, 0))
            return True
        return False

    def port_trouble(self, kind: str, address: str, port: int) -> str:
        """Bind a UDP or TCP port for a moment; empty if it is free."""
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM) as trial:
                if kind == "tcp":  # As a server does: connections that have just ended are nobody's.
                    trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                trial.bind((address, port))
                if kind == "tcp":
                    trial.listen(1)
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def running_node(self, address: str, port: int) -> str | None:
        """The name of the node that serves its status there."""
        (answer,) = asyncio.run(poll([Target(address, port)], seconds=_ANSWER_SECONDS))
        return answer.status.name if answer.status else None

    def open_files_max(self) -> int:
        """The limit that counts for a process started now."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return sys.maxsize if soft == resource.RLIM_INFINITY else soft

    def free_bytes(self, directory: Path) -> int | None:
        """On the disk that holds the directory, or will."""
        existing = next((path for path in (directory, *directory.absolute().parents) if path.is_dir()), None)
        if existing is None or not os.access(existing, os.W_OK):
            return None
        return shutil.disk_usage(existing).free

    def key_files(self, directory: Path) -> list[KeyFile] | None:
        """Every key file with its mode; None without the directory."""
        try:
            paths = sorted(path for path in directory.rglob("*.key") if path.is_file())
        except OSError:
            return None
        if not directory.is_dir():
            return None
        found = []
        for path in paths:
            info = path.stat()
            found.append(KeyFile(path, stat.S_IMODE(info.st_mode), info.st_uid == os.geteuid()))
        return found

    def may_use_namespaces(self) -> bool:
        """Make a user and a network namespace, in a process that ends at once."""
        return _succeeds(_TRY_NAMESPACE)

    def tun_trouble(self) -> str:
        """Open /dev/net/tun; empty if it opens."""
        try:
            os.close(os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC))
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def may_use_fifo(self) -> bool:
        """Ask for a real-time priority, in a process that ends at once."""
        return _succeeds(_TRY_FIFO)


def _datagrams() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _succeeds(program: str) -> bool:
    try:
        done = subprocess.run(  # noqa: S603  # Our own interpreter and our own program.
            [sys.executable, "-I", "-S", "-c", program], capture_output=True, timeout=_TRIAL_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
