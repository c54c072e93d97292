"""Whether this machine can run a market: what is measured, how it is judged, and what to change.

Each check judges what a probe found: `ok`, `warn` (it works, slower or less precisely) or `fail` (it does not), with
the words of what was found and of what to change. Probes look at the machine; tests put other finds there.
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
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryFile

from isocast.runtime.market.model import PORT_BLOCK, ClockSource, Durability, Market, NetworkMode, NodePlan, NodeRole
from isocast.runtime.market.pins import PinningState, pinning_state
from isocast.runtime.net.kernel import KernelClock, arm_timer, create_timer, read_kernel_clock, set_timer_slack
from isocast.runtime.watch.status import Target, node_target, poll
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import MICROSECOND, MILLISECOND, SECOND
from isocast.terms.quantities import counted

__all__ = ["CheckOutcome", "DoctorFinding", "ListeningNode", "Probes", "SecretFile", "Wants", "examine", "wants_of"]


# What the doctor measures and tries on this machine; judging it is `doctor`'s.
#
# Everything here leaves the machine as it was. Trials that could change this process run in a short one of their own.


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
class SecretFile:
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
                return "" if hears.recv(64) == word else "another datagram arrived"
        except TimeoutError:
            return f"the datagram did not arrive within {_ANSWER_SECONDS:g} s"
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

    def running_node(self, address: str, port: int, page: Target | None = None) -> str | None:
        """The name of the node that serves its status there."""
        (answer,) = asyncio.run(poll([page or Target(address, port)], seconds=_ANSWER_SECONDS))
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

    def key_files(self, directory: Path) -> list[SecretFile] | None:
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
            found.append(SecretFile(path, stat.S_IMODE(info.st_mode), info.st_uid == os.geteuid()))
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


_PYTHON_MIN = (3, 11)
_CPUS_GOOD = 2
_BUFFER_WANTED = 4 << 20
_TIMER_GOOD_NS = 1 * MILLISECOND
"""p99: releases of an idle machine stay within a fifth of this."""
_FILES_MIN, _FILES_GOOD = 64, 1_024
"""A node has some ten sockets and files; one with many customers has as many connections."""
_DISK_MIN, _DISK_GOOD = 256 << 20, 4 << 30
_OTHERS = 0o077
_MEBI = 1 << 20


class CheckOutcome(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One check: what was found, and what to change unless all is well."""

    check: str
    outcome: CheckOutcome
    found: str
    change: str = ""


@dataclass(frozen=True, slots=True)
class ListeningNode:
    """A node of this market, and where it listens: (`udp` or `tcp`, port)."""

    node: str
    address: str
    ports: tuple[tuple[str, int], ...]
    http_port: int = 0
    is_seat: bool = False
    """A customer's place: a program that listens takes its UDP ports, and serves no status."""
    page: Target | None = field(default=None, compare=False, repr=False)
    """How to ask it for its status, where that takes more than an address."""


@dataclass(frozen=True, slots=True)
class Wants:
    """What a market asks of the machine; without one, what any market would."""

    nodes: tuple[ListeningNode, ...] = ()
    receive_buffer: int = _BUFFER_WANTED
    clock_bound_ns: int | None = None
    kernel_clock_counts: bool = False
    """Whether the kernel's own bound is what releases rest on."""
    timer_limit_ns: int | None = None
    """δ_N: timers later than this lose tokens."""
    multicast: bool = True
    realtime: bool = True
    data_directory: Path | None = None
    disk_min: int = _DISK_MIN
    durability: Durability | None = None
    is_trial: bool = False
    """Whether the whole market is on loopback."""
    process_ns: int | None = None
    """P: a node that waits longer for its disk is late with its token."""
    keys_directory: Path | None = None
    pinning: PinningState | None = None
    """How certificates are pinned; None where no door speaks TLS."""
    interfaces: tuple[str, ...] = field(default=("127.0.0.1",))


def wants_of(market: Market) -> Wants:
    """What this market asks."""
    return Wants(
        nodes=tuple(_listening(market, plan) for plan in market.nodes),
        receive_buffer=market.network.receive_buffer,
        clock_bound_ns=market.clock.bound_ns,
        kernel_clock_counts=market.clock.source is ClockSource.KERNEL,
        timer_limit_ns=market.timing.detect_ns,
        multicast=market.network.mode is NetworkMode.MULTICAST,
        realtime=market.clock.realtime,
        data_directory=market.data_directory,
        disk_min=2 * market.journal.segment_bytes,
        durability=market.durability,
        is_trial=market.on_loopback,
        process_ns=market.timing.process_ns,
        keys_directory=market.keys_directory,
        pinning=pinning_state(market),
        interfaces=("127.0.0.1",)
        if market.on_loopback
        else tuple(dict.fromkeys(plan.address for plan in market.nodes)),
    )


def _listening(market: Market, plan: NodePlan) -> ListeningNode:
    block = PORT_BLOCK if market.network.mode is NetworkMode.FANOUT else 1
    udp = [("udp", plan.port + place) for place in range(block)]
    tcp = [("tcp", port) for port in (plan.http_port, plan.tcp_port) if port]
    page = None
    if market.uses_tls(plan.address):
        with suppress(ConfigurationError):  # Certificates are not made yet: nothing of this market runs.
            page = node_target(market, plan)
    return ListeningNode(plan.name, plan.address, (*udp, *tcp), plan.http_port, plan.role is NodeRole.CUSTOMER, page)


def examine(wants: Wants | None = None, probes: Probes | None = None) -> Iterator[DoctorFinding]:
    """Every check, one after the other."""
    wants = Wants() if wants is None else wants
    probes = Probes() if probes is None else probes
    yield _python(probes)
    yield _processors(probes)
    yield _clock(wants, probes)
    if wants.multicast:
        yield from _multicast(wants, probes)
    yield _segmentation(probes)
    yield _coalescing(probes)
    yield _receive_buffer(wants, probes)
    yield _timers(wants, probes)
    if wants.realtime:
        yield _priority(probes)
    if wants.nodes:
        yield from _ports(wants, probes)
    yield _open_files(probes)
    if wants.data_directory is not None:
        yield _disk(wants.data_directory, wants.disk_min, probes)
        if wants.durability is not None:
            yield _durability(wants.durability, wants.data_directory, wants, probes)
    if wants.keys_directory is not None:
        yield _keys(wants.keys_directory, probes)
    if wants.pinning is not None:
        yield _certificates(wants.pinning)
    yield _namespaces(probes)
    yield _tun(probes)


def _judged(check: str, found: str, *, good: bool, otherwise: CheckOutcome, change: str) -> DoctorFinding:
    return DoctorFinding(check, CheckOutcome.OK, found) if good else DoctorFinding(check, otherwise, found, change)


# The machine --------------------------------------------------------------------------------------


def _python(probes: Probes) -> DoctorFinding:
    version = probes.python_version()
    good = version >= _PYTHON_MIN and probes.platform() == "linux"
    found = f"{'.'.join(map(str, version))} on {probes.platform()}"
    change = "run it on Linux with Python 3.11 or newer"
    return _judged("python", found, good=good, otherwise=CheckOutcome.FAIL, change=change)


def _processors(probes: Probes) -> DoctorFinding:
    count = probes.cpu_count()
    change = "give a receiver two: with one, whatever else runs makes its releases late"
    found = f"{count} usable"
    return _judged("processors", found, good=count >= _CPUS_GOOD, otherwise=CheckOutcome.WARN, change=change)


def _clock(wants: Wants, probes: Probes) -> DoctorFinding:
    clock, bound_ns = probes.kernel_clock(), wants.clock_bound_ns
    if clock is None:
        return DoctorFinding(
            "clock", CheckOutcome.WARN, "the kernel does not say", "configure clock.bound, and keep it true"
        )
    if not clock.synchronised:
        counts = "" if bound_ns is None else f"; the configured bound of {_span(bound_ns)} counts"
        change = "run chrony, ntpd or a PTP client, and wait until it says synchronised"
        if bound_ns is not None:
            change += "; or make sure by other means that the configured bound is true"
        return DoctorFinding("clock", CheckOutcome.WARN, f"the kernel calls it unsynchronised{counts}", change)
    found = f"synchronised within {_span(clock.max_error_ns)}"
    if bound_ns is not None and wants.kernel_clock_counts and clock.max_error_ns > bound_ns:
        change = f"configure a clock bound of at least {_span(clock.max_error_ns)}, or a better time source"
        return DoctorFinding("clock", CheckOutcome.FAIL, f"{found}; the market promises {_span(bound_ns)}", change)
    return DoctorFinding("clock", CheckOutcome.OK, found)


def _open_files(probes: Probes) -> DoctorFinding:
    most = probes.open_files_max()
    change = f"ulimit -n {_FILES_GOOD}, or LimitNOFILE={_FILES_GOOD} in the systemd unit"
    otherwise = CheckOutcome.FAIL if most < _FILES_MIN else CheckOutcome.WARN
    return _judged("open files", f"at most {most:,}", good=most >= _FILES_GOOD, otherwise=otherwise, change=change)


def _timers(wants: Wants, probes: Probes) -> DoctorFinding:
    late = probes.timer_lateness_ns()
    if not late:
        return DoctorFinding("timers", CheckOutcome.FAIL, "no timerfd", "use a Linux kernel that has timerfd")
    middle_ns, high_ns = late[len(late) // 2], late[min(len(late) * 99 // 100, len(late) - 1)]
    found = f"late by {_span(middle_ns)} at p50, {_span(high_ns)} at p99 of {len(late)}"
    if wants.timer_limit_ns is not None and high_ns > wants.timer_limit_ns:
        change = f"stop what else runs, or choose a timing profile with more than δ_N = {_span(wants.timer_limit_ns)}"
        return DoctorFinding("timers", CheckOutcome.FAIL, found, change)
    change = "stop what else runs, add processors, or allow real-time priority: releases will be as late"
    return _judged("timers", found, good=high_ns <= _TIMER_GOOD_NS, otherwise=CheckOutcome.WARN, change=change)


def _priority(probes: Probes) -> DoctorFinding:
    allowed = probes.may_use_fifo()
    change = "LimitRTPRIO=50 in the systemd unit, or `rtprio 50` in /etc/security/limits.conf"
    found = "SCHED_FIFO is allowed" if allowed else "SCHED_FIFO is not allowed: a loaded machine delays releases"
    return _judged("real-time priority", found, good=allowed, otherwise=CheckOutcome.WARN, change=change)


# The network --------------------------------------------------------------------------------------


def _multicast(wants: Wants, probes: Probes) -> Iterator[DoctorFinding]:
    """On every interface of this machine that the market uses."""
    local = [address for address in wants.interfaces if probes.has_address(address)]
    for address in local or ["127.0.0.1"]:
        trouble = probes.multicast_trouble(address)
        found = f"a datagram to a group on {address}: {trouble or 'sent and received'}"
        change = 'bring the interface up (`ip link set lo up` for loopback), or set mode = "fanout" under [network]'
        yield _judged("multicast", found, good=not trouble, otherwise=CheckOutcome.FAIL, change=change)


def _segmentation(probes: Probes) -> DoctorFinding:
    trouble = probes.segmentation_trouble()
    found = trouble or "many datagrams leave in one call"
    change = "use Linux 4.18 or newer; without it sending costs more, and still works"
    return _judged("UDP segmentation", found, good=not trouble, otherwise=CheckOutcome.WARN, change=change)


def _coalescing(probes: Probes) -> DoctorFinding:
    trouble = probes.coalescing_trouble()
    found = trouble or "many datagrams are read in one call"
    change = "use Linux 5.0 or newer; without it receiving costs more, and still works"
    return _judged("UDP coalescing", found, good=not trouble, otherwise=CheckOutcome.WARN, change=change)


def _receive_buffer(wants: Wants, probes: Probes) -> DoctorFinding:
    most, wanted = probes.receive_buffer_max(), wants.receive_buffer
    if most is None:
        return DoctorFinding(
            "receive buffer", CheckOutcome.WARN, "the limit cannot be read", "look at net.core.rmem_max"
        )
    found = f"at most {most:,} bytes for a socket, {wanted:,} wanted"
    if most < wanted and probes.may_force_buffers():
        return DoctorFinding("receive buffer", CheckOutcome.OK, f"{found}; this user may go past the limit")
    change = f"sysctl -w net.core.rmem_max={wanted}   (a line in /etc/sysctl.d keeps it)"
    return _judged("receive buffer", found, good=most >= wanted, otherwise=CheckOutcome.WARN, change=change)


def _ports(wants: Wants, probes: Probes) -> Iterator[DoctorFinding]:
    """Of the nodes whose address is this machine's; one that runs already has its ports, as it should."""
    here = [node for node in wants.nodes if probes.has_address(node.address)]
    away = len(wants.nodes) - len(here)
    free = running = listening = 0
    for node in here:
        taken = [(kind, port) for kind, port in node.ports if probes.port_trouble(kind, node.address, port)]
        if not taken:
            free += 1
            continue
        who = probes.running_node(node.address, node.http_port, node.page) if node.http_port else None
        if who == node.node:
            running += 1
            continue
        if node.is_seat and who is None and {kind for kind, _ in taken} == {"udp"}:
            listening += 1
            continue
        kind, port = taken[0]
        trouble = probes.port_trouble(kind, node.address, port) or "in use a moment ago"
        told = f" (a node called {who} answers there)" if who else ""
        found = f"{node.node}: {kind} {node.address}:{port}: {trouble}{told}"
        change = "stop what holds it (`ss -lnp` names it), or give the node another port"
        yield DoctorFinding("ports", CheckOutcome.FAIL, found, change)
    taken_by_programs = "taken by a program that listens" if listening == 1 else "taken by programs that listen"
    parts = [
        (free, "free"), (running, "running already"), (listening, taken_by_programs), (away, "on other machines")
    ]  # fmt: skip
    found = ", ".join(f"{count} {word}" for count, word in parts if count)
    if not here:
        change = "check the addresses if a node should run here; `ip -brief address` lists this machine's"
        yield DoctorFinding("ports", CheckOutcome.WARN, "no node of the market has an address of this machine", change)
    elif found:
        yield DoctorFinding("ports", CheckOutcome.OK, f"of {counted(len(wants.nodes), 'node')} {found}")


# Disks and secrets --------------------------------------------------------------------------------


def _disk(directory: Path, least: int, probes: Probes) -> DoctorFinding:
    free = probes.free_bytes(directory)
    if free is None:
        return DoctorFinding(
            "disk", CheckOutcome.FAIL, f"{directory} cannot be written", "choose another data directory"
        )
    change = "make room, or set keep_bytes or keep_time under [journal]: a full disk stops releases"
    otherwise = CheckOutcome.FAIL if free < least else CheckOutcome.WARN
    found = f"{free // _MEBI:,} MiB free for {directory}"
    return _judged("disk", found, good=free >= max(_DISK_GOOD, least), otherwise=otherwise, change=change)


def _durability(durability: Durability, directory: Path, wants: Wants, probes: Probes) -> DoctorFinding:
    """What the market's setting survives on this machine, and what it costs here."""
    found = f"{durability}: {durability.meaning}"
    if durability is Durability.PROCESS:
        change = 'set durability = "power" unless all of it may be lost with the power supply'
        return _judged("durability", found, good=wants.is_trial, otherwise=CheckOutcome.WARN, change=change)
    waits = probes.sync_ns(directory)
    if not waits:
        return DoctorFinding(
            "durability", CheckOutcome.WARN, f"{found}; the disk was not measured", "see the check 'disk'"
        )
    middle_ns, high_ns = waits[len(waits) // 2], waits[-1]
    found += f". The disk of {directory} takes {_span(middle_ns)} for a write, {_span(high_ns)} at most of {len(waits)}"
    limit_ns = wants.process_ns
    change = (
        f"a node that waits longer than P = {_span(limit_ns or 0)} is late with its token: use a faster disk, one whose"
        " write cache survives power cuts, or raise timing.process"
    )
    return _judged(
        "durability", found, good=not limit_ns or high_ns <= limit_ns, otherwise=CheckOutcome.WARN, change=change
    )


def _keys(directory: Path, probes: Probes) -> DoctorFinding:
    files = probes.key_files(directory)
    if not files:
        found = f"no key files in {directory}"
        return DoctorFinding("keys", CheckOutcome.WARN, found, "isocast keys init makes them")
    loose = [file.path for file in files if file.mode & _OTHERS]
    if loose:
        names = ", ".join(path.name for path in loose)
        found = f"others may read {names}"
        return DoctorFinding(
            "keys", CheckOutcome.FAIL, found, f"chmod 600 {' '.join(map(str, loose))}; then make new keys"
        )
    strange = [file.path.name for file in files if not file.owned]
    if strange:
        change = "run as the user who owns them, or give them to this one"
        return DoctorFinding("keys", CheckOutcome.WARN, f"another user owns {', '.join(strange)}", change)
    return DoctorFinding(
        "keys", CheckOutcome.OK, f"{counted(len(files), 'file')} in {directory} that only their owner reads"
    )


def _certificates(pinning: PinningState) -> DoctorFinding:
    good = not pinning.change
    return _judged("certificates", pinning.found, good=good, otherwise=CheckOutcome.WARN, change=pinning.change)


# The lab ------------------------------------------------------------------------------------------


def _namespaces(probes: Probes) -> DoctorFinding:
    allowed = probes.may_use_namespaces()
    found = "user and network namespaces can be made" if allowed else "namespaces are refused: no `isocast lab`"
    change = "sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000, or run the lab as root"
    return _judged("lab: namespaces", found, good=allowed, otherwise=CheckOutcome.WARN, change=change)


def _tun(probes: Probes) -> DoctorFinding:
    trouble = probes.tun_trouble()
    found = f"/dev/net/tun: {trouble or 'opens'}"
    change = "modprobe tun, and chmod 666 /dev/net/tun; only `isocast lab` needs it"
    return _judged("lab: tun", found, good=not trouble, otherwise=CheckOutcome.WARN, change=change)


def _span(span_ns: int) -> str:
    """A span as people write it."""
    if span_ns >= SECOND:
        return f"{span_ns / SECOND:.3g} s"
    if span_ns >= MILLISECOND:
        return f"{span_ns / MILLISECOND:.3g} ms"
    return f"{span_ns / MICROSECOND:.3g} µs"
