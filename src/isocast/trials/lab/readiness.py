"""Can this machine run a lab? Each step that a switch takes, tried in a process of its own, with what to change.

``python -m isocast.trials.lab.readiness`` prints the checks as JSON.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

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

__all__ = ["Check", "check_machine", "missing"]

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
    command = [sys.executable, "-m", "isocast.trials.lab.readiness", *(["user"] if user_namespace else [])]
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
