"""The processes of a lab by name: started, stopped, killed and started again by command."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

from isocast.terms.errors import ConfigurationError
from isocast.terms.quantities import suggestion
from isocast.trials.lab.fabric import (
    CLONE_NEWNET,
    INTERFACE,
    TUN_DEVICE,
    RouteSocket,
    add_address,
    become_real_time,
    gain_privilege,
    link_up,
    open_tap,
    unshare,
)
from isocast.trials.lab.lab import Lab

__all__ = ["Check", "LabNode", "LabNodeStatus", "LabNodes", "NodeState", "check_machine", "missing"]


_NOTIFY_BYTES = 4096


class NodeState(StrEnum):
    """Where a node's process stands."""

    RUNNING = "running"
    READY = "ready"
    """It runs, and said so by NOTIFY_SOCKET."""
    STOPPED = "stopped"
    """By SIGSTOP: it is there and does nothing."""
    KILLED = "killed"
    """By command; it can be started again."""
    ENDED = "ended"
    """By itself."""
    FINISHED = "finished"
    """By SIGTERM when the lab ended; by SIGKILL if it did not obey."""


@dataclass(frozen=True, slots=True)
class LabNode:
    """One process and where it runs."""

    name: str
    site: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LabNodeStatus:
    """A node as it is now."""

    name: str
    site: str
    state: NodeState
    process: int
    """0 where there is none."""
    exit_code: int | None
    """Of the last life, once it is over; negative: the signal."""
    starts: int

    @property
    def failed(self) -> bool:
        """Whether it ended badly, though nobody wanted that."""
        if self.state is NodeState.FINISHED:
            return self.exit_code not in (0, -signal.SIGTERM)
        return self.state is NodeState.ENDED and self.exit_code != 0


@dataclass(slots=True)
class _Life:
    """What is known of one node."""

    node: LabNode
    process: subprocess.Popen[bytes] | None = None
    stopped: bool = False
    killed: bool = False
    asked_to_end: bool = False
    ready: bool = False
    starts: int = 0
    ear: socket.socket | None = field(default=None, repr=False)
    """Where it says that it is ready."""


class LabNodes:
    """All nodes of a lab; their output goes to one file each in `directory`."""

    def __init__(self, lab: Lab, nodes: Iterable[LabNode], directory: Path) -> None:
        """Nothing runs yet."""
        self._lab = lab
        self._directory = directory
        self._lives = {node.name: _Life(node) for node in nodes}

    def __len__(self) -> int:
        return len(self._lives)

    def site_of(self, name: str) -> str | None:
        """Where a node is; None for a stranger."""
        life = self._lives.get(name)
        return None if life is None else life.node.site

    def log_of(self, name: str) -> Path:
        """The file with what a node printed, in all its lives."""
        return self._directory / f"{name}.log"

    # ---- commands

    def start_all(self) -> None:
        """Start every node, its file of output empty."""
        for name in self._lives:
            self.log_of(name).unlink(missing_ok=True)
            self.start(name)

    def start(self, name: str) -> None:
        """Start a node that does not run."""
        life = self._life(name)
        if self._runs(life):
            raise ConfigurationError("lab", name, "is stopped: continue it" if life.stopped else "runs already")
        self.hear()  # What its former life said.
        with self.log_of(name).open("ab") as log:
            life.process = self._lab.spawn(
                life.node.site, life.node.command, stdout=log, stderr=log, env=os.environ | self._notify_to(life)
            )
        life.starts += 1
        life.stopped = life.killed = life.ready = False

    def kill(self, name: str) -> None:
        """SIGKILL: it has no chance to tidy up."""
        life, process = self._running(name)
        life.killed = True
        process.kill()
        process.wait()

    def stop(self, name: str) -> None:
        """SIGSTOP: it is there, but nothing happens in it."""
        life, process = self._running(name)
        process.send_signal(signal.SIGSTOP)
        life.stopped = True

    def resume(self, name: str) -> None:
        """SIGCONT after `stop`."""
        life, process = self._running(name)
        if not life.stopped:
            raise ConfigurationError("lab", name, "is not stopped")
        process.send_signal(signal.SIGCONT)
        life.stopped = False

    def end_all(self, seconds: float) -> None:
        """SIGTERM to all, so that they end properly; SIGKILL to whoever is still there after so long."""
        self.end(self._lives, seconds)

    def end(self, names: Iterable[str], seconds: float) -> None:
        """The same for some of them."""
        lives = [self._life(name) for name in names]
        running = [(life, life.process) for life in lives if life.process and self._runs(life)]
        for life, process in running:
            life.asked_to_end = True
            for number in (signal.SIGTERM, signal.SIGCONT):
                process.send_signal(number)
        deadline = time.monotonic() + seconds
        for _, process in running:
            try:
                process.wait(max(deadline - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def close(self) -> None:
        """Forget where they say that they are ready."""
        for life in self._lives.values():
            if life.ear is not None:
                path = life.ear.getsockname()
                life.ear.close()
                life.ear = None
                Path(path).unlink(missing_ok=True)

    # ---- state

    def statuses(self) -> list[LabNodeStatus]:
        """Every node as it is now."""
        self.hear()
        return [self._status(life) for life in self._lives.values()]

    def all_over(self) -> bool:
        """Whether every node ended by itself; one that was killed by command may be started again."""
        return all(not self._runs(life) and not life.killed for life in self._lives.values())

    def _status(self, life: _Life) -> LabNodeStatus:
        node, process = life.node, life.process
        runs = self._runs(life)
        if runs:
            state = NodeState.STOPPED if life.stopped else NodeState.READY if life.ready else NodeState.RUNNING
        elif life.asked_to_end:
            state = NodeState.FINISHED
        else:
            state = NodeState.KILLED if life.killed else NodeState.ENDED
        code = None if process is None else process.returncode
        number = process.pid if process is not None and runs else 0
        return LabNodeStatus(node.name, node.site, state, number, code, life.starts)

    def _life(self, name: str) -> _Life:
        life = self._lives.get(name)
        if life is None:
            raise ConfigurationError("lab", name, f"unknown node{suggestion(name, self._lives)}")
        return life

    @staticmethod
    def _runs(life: _Life) -> bool:
        return life.process is not None and life.process.poll() is None

    def _running(self, name: str) -> tuple[_Life, subprocess.Popen[bytes]]:
        life = self._life(name)
        if life.process is None or not self._runs(life):
            raise ConfigurationError("lab", name, "does not run")
        return life, life.process

    # ---- readiness, by systemd's convention

    def _notify_to(self, life: _Life) -> dict[str, str]:
        """The variable that tells a node where to say that it is ready."""
        path = str(self._directory / f"{life.node.name}.notify")
        if life.ear is None:
            Path(path).unlink(missing_ok=True)
            life.ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
            life.ear.bind(path)
        return {"NOTIFY_SOCKET": path}

    def ears(self) -> list[socket.socket]:
        """Sockets to wait for: whoever waits calls `hear` soon, since nodes that are not heard are kept waiting."""
        return [life.ear for life in self._lives.values() if life.ear is not None]

    def hear(self) -> None:
        """Take what nodes said of themselves."""
        for life in self._lives.values():
            while life.ear is not None:
                try:
                    text = life.ear.recv(_NOTIFY_BYTES)
                except BlockingIOError:
                    break
                if b"READY=1" in text.splitlines():
                    life.ready = True


# ---- Can this machine run a lab? Each step that a switch takes, tried in a process of its own, with what to change.
#
# ``python -m isocast.trials.lab.nodes`` prints the checks as JSON.


_TRIAL_S = 60.0
_SYSTEM = Path("/proc/sys")
_NOT_TRIED = "not tried: see above"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that a lab needs, or would like."""

    name: str
    passed: bool
    needed: bool
    found: str
    remedy: str = ""
    """What to change; empty where nothing needs to be."""


def check_machine(*, user_namespace: bool | None = None) -> tuple[Check, ...]:
    """Try everything; nothing of it outlasts the trial."""
    command = [sys.executable, "-m", "isocast.trials.lab.nodes", *(["user"] if user_namespace else [])]
    done = subprocess.run(  # noqa: S603  # our own module
        command, capture_output=True, stdin=subprocess.DEVNULL, timeout=_TRIAL_S, check=False
    )
    if done.returncode != 0:
        return (Check("trial", passed=False, needed=True, found=done.stderr.decode(errors="replace")[-200:]),)
    return tuple(Check(**parts) for parts in json.loads(done.stdout))


def missing(checks: tuple[Check, ...]) -> str:
    """What keeps a lab from running here, in one line; empty if nothing does."""
    refused = [check for check in checks if check.needed and not check.passed and check.found != _NOT_TRIED]
    return "; ".join(f"{check.name}: {check.found}" for check in refused)


def _checks(*, user_namespace: bool | None) -> Iterator[Check]:
    """In the order in which a switch needs them; what rests on a failed step is not tried."""
    if sys.platform != "linux":
        yield Check("Linux", passed=False, needed=True, found=sys.platform, remedy="run it in a virtual machine")
        return
    real_time = become_real_time()
    steps: list[tuple[str, Callable[[], str], Callable[[OSError], str]]] = [
        ("device of virtual networks", _open_device, _device_remedy),
        ("network namespaces", lambda: _namespaces(user_namespace=user_namespace), _namespace_remedy),
        ("TAP device in a namespace", _tap, _tap_remedy),
        ("addresses in a namespace", _addresses, lambda _: "the kernel must have IPv4 and rtnetlink"),
    ]
    failed = False
    for name, step, remedy in steps:
        if failed and step in (_tap, _addresses):
            yield Check(name, passed=False, needed=True, found=_NOT_TRIED)
            continue
        try:
            found = step()
        except OSError as error:
            failed = True
            yield Check(name, passed=False, needed=True, found=error.strerror or str(error), remedy=remedy(error))
        else:
            yield Check(name, passed=True, needed=True, found=found)
    if real_time:
        yield Check("real-time priority", passed=True, needed=False, found="SCHED_FIFO")
    else:
        remedy_text = "run as root, or raise `ulimit -r`; else a loaded machine makes the lab late, and it says so"
        yield Check("real-time priority", passed=False, needed=False, found="not permitted", remedy=remedy_text)


# ---- the steps


def _open_device() -> str:
    os.close(os.open(TUN_DEVICE, os.O_RDWR | os.O_CLOEXEC))
    return TUN_DEVICE


def _device_remedy(error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.ENODEV, errno.ENXIO):
        make = f"mkdir -p /dev/net && mknod {TUN_DEVICE} c 10 200 && chmod 666 {TUN_DEVICE}"
        return f"as root: modprobe tun; if the file is missing still: {make}; for a container: --device {TUN_DEVICE}"
    return f"as root: chmod 666 {TUN_DEVICE}; what it may do is bounded by the namespace, not by this file"


def _namespaces(*, user_namespace: bool | None) -> str:
    own = gain_privilege(user_namespace=user_namespace)
    unshare(CLONE_NEWNET)
    return "in a user namespace, without root" if own else "as root"


def _namespace_remedy(error: OSError) -> str:
    """The settings that distributions forbid user namespaces with, or else the container we are in."""
    switches = {
        "user/max_user_namespaces": ("0", "user.max_user_namespaces=10000"),
        "kernel/unprivileged_userns_clone": ("0", "kernel.unprivileged_userns_clone=1"),
        "kernel/apparmor_restrict_unprivileged_userns": ("1", "kernel.apparmor_restrict_unprivileged_userns=0"),
    }
    for file, (forbids, setting) in switches.items():
        try:
            value = (_SYSTEM / file).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if value == forbids:
            return f"as root: sysctl -w {setting}"
    if error.errno == errno.EINVAL:
        return "the kernel must be built with CONFIG_NET_NS and CONFIG_USER_NS"
    return "run as root; for a container: --cap-add SYS_ADMIN --cap-add NET_ADMIN, or --security-opt seccomp=unconfined"


def _tap() -> str:
    open_tap(INTERFACE)  # It ends with this process.
    return INTERFACE


def _tap_remedy(error: OSError) -> str:
    if error.errno == errno.EPERM:
        return "for a container: --cap-add NET_ADMIN"
    return "as root: modprobe tun; the kernel must be built with CONFIG_TUN"


def _addresses() -> str:
    index = socket.if_nametoindex(INTERFACE)
    with RouteSocket() as kernel:
        kernel.perform([link_up(index), add_address(index, "10.77.1.1")])
    return "rtnetlink"


if __name__ == "__main__":
    trial = list(_checks(user_namespace=True if "user" in sys.argv[1:] else None))
    sys.stdout.write(json.dumps([asdict(check) for check in trial]))
