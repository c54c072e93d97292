"""Runs the nodes of a market as processes of this machine, watches them, and starts again what died.

Each node is started with the command that a person would type, says by `notify` when it is ready, and gets SIGTERM
when all shall stop. One that ends by itself is started again after a pause that doubles; one that ends because its
input is bad (exit code 2) is not: it would only fail again.

Each node leads a process group of its own. So Ctrl-C reaches the supervisor alone, which stops the nodes in order, and
whatever a node started ends with it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from time import monotonic
from typing import Protocol, TypeAlias

from isocast.runtime.disk import scratch
from isocast.runtime.net import kernel

__all__ = [
    "Child",
    "ChildState",
    "Launch",
    "Life",
    "Supervisor",
    "end_with_supervisor",
    "launch_anew",
    "node_command",
]

FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 10.0
STEADY_S = 30.0
"""A node that ran for so long before it ended is started again after the first pause."""
STOP_S = 8.0
"""From SIGTERM to SIGKILL: all are gone within ten seconds."""
_KILL_S = 2.0
"""From SIGKILL to giving up on a process that the kernel does not let go."""
_BAD_INPUT = 2
_NOT_STARTED = 126
"""As a shell says of a command that it cannot run."""
_DATAGRAM = 4_096
_LAST_BYTES = 4_096
_PARENT = "ISOCAST_SUPERVISOR"


class ChildState(StrEnum):
    """Where a process stands."""

    STARTING = "starting"
    READY = "ready"
    PAUSING = "pausing"
    """It ended, and is started again soon."""
    REFUSED = "refused"
    """It ended because its input is bad; a person must act."""
    STOPPED = "stopped"


class Life(Protocol):
    """A process that was started, and leads a group of its own: asyncio's kind, or a nursery's."""

    @property
    def pid(self) -> int:
        """The operating system's number of it."""

    @property
    def returncode(self) -> int | None:
        """None while it runs."""

    async def wait(self) -> int:
        """Its exit code, once it has one."""


Launch: TypeAlias = Callable[[Sequence[str], Mapping[str, str], "Path | None"], Awaitable[Life]]
"""Starts a command in an environment, with its output at the end of a file, or where ours goes."""


@dataclass(slots=True, eq=False)
class Child:
    """One node's process, over all its lives."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    log: Path | None = None
    """Where its output goes; None: to ours."""
    state: ChildState = ChildState.STARTING
    process: Life | None = None
    starts: int = 0
    status: str = ""
    """What it said last of itself."""
    exit_code: int | None = None
    """Of its last life; negative: the signal that ended it."""
    pause_s: float = 0.0
    """Before its next life."""
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    unwanted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it shall not be started again."""

    @property
    def pid(self) -> int | None:
        """Of the life that is running."""
        return None if self.process is None or self.process.returncode is not None else self.process.pid

    def last_line(self) -> str:
        """The end of its log: why it ended, if it ended by itself."""
        if self.log is None:
            return ""
        with suppress(OSError), self.log.open("rb") as log:
            log.seek(max(log.seek(0, os.SEEK_END) - _LAST_BYTES, 0))
            lines = log.read().decode(errors="replace").strip().splitlines()
            return lines[-1] if lines else ""
        return ""


class Supervisor:
    """Starts, watches and stops children. `told` hears every change of a child's state."""

    def __init__(
        self,
        told: Callable[[Child], None] | None = None,
        *,
        restart: bool = True,
        log_directory: Path | None = None,
        launch: Launch | None = None,
    ) -> None:
        """With `restart` false a child that ends stays down. Output goes to one file a child, or to ours.

        `launch` starts the processes, if not the operating system alone; it may take its time.
        """
        self.children: dict[str, Child] = {}
        self._told = told
        self._restart = restart
        self._logs = log_directory
        self._launch = launch or launch_anew
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._directory = scratch.new_directory("up")
        self._ears: dict[str, socket.socket] = {}

    async def start(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Child:
        """Start a child; await `child.ready` to know that it is up."""
        path = str(self._directory / f"{len(self._ears)}.notify")
        told = {"NOTIFY_SOCKET": path, _PARENT: str(os.getpid())}
        log = None if self._logs is None else self._logs / f"{name}.log"
        child = Child(name, tuple(command), {**os.environ, **(environment or {}), **told}, log)
        ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        self._ears[name] = ear
        ear.bind(path)
        self.children[name] = child
        self._tasks[name] = asyncio.create_task(self._live(child), name=f"supervise {name}")
        return child

    async def stop_all(self) -> None:
        """SIGTERM to all, SIGKILL to those that do not end, and wait for every one."""
        for child in self.children.values():
            self._dismiss(child)
        if self._tasks:
            _, slow = await asyncio.wait(self._tasks.values(), timeout=STOP_S)
            if slow:
                self.kill_all()
                await asyncio.wait(slow, timeout=_KILL_S)
        loop = asyncio.get_running_loop()
        for ear in self._ears.values():
            loop.remove_reader(ear.fileno())
            ear.close()
        self._ears.clear()
        scratch.remove(self._directory)

    async def stop(self, name: str) -> None:
        """SIGTERM to one child, SIGKILL if it does not obey, and wait for it; it is not started again."""
        self._dismiss(self.children[name])
        task = self._tasks[name]
        _, slow = await asyncio.wait([task], timeout=STOP_S)
        if slow:
            _send(self.children[name].pid, signal.SIGKILL)
            await asyncio.wait([task], timeout=_KILL_S)

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to one child, as a drill does; one that it ends by is started again."""
        _send(self.children[name].pid, number)

    def start_again(self, name: str) -> None:
        """Start a child again that refused its input, once the input is repaired."""
        if self._tasks[name].done():
            child = self.children[name]
            self._tasks[name] = asyncio.create_task(self._live(child), name=f"supervise {name}")

    def kill_all(self) -> None:
        """End everything at once, and start nothing again."""
        for child in self.children.values():
            child.unwanted.set()
            _send(child.pid, signal.SIGKILL)

    # One child ----------------------------------------------------------------------------------

    async def _live(self, child: Child) -> None:
        while not child.unwanted.is_set():
            began = monotonic()
            await self._one_life(child)
            if child.unwanted.is_set():
                break
            if child.exit_code == _BAD_INPUT:
                self._now(child, ChildState.REFUSED)
                return
            if not self._restart:
                break
            steady = monotonic() - began > STEADY_S
            child.pause_s = FIRST_PAUSE_S if steady or not child.pause_s else min(2 * child.pause_s, LONGEST_PAUSE_S)
            self._now(child, ChildState.PAUSING)
            with suppress(TimeoutError):
                async with asyncio.timeout(child.pause_s):
                    await child.unwanted.wait()
        self._now(child, ChildState.STOPPED)

    async def _one_life(self, child: Child) -> None:
        child.starts += 1
        self._forget_last_words(child)
        try:
            child.process = await self._launch(child.command, child.environment, child.log)
        except OSError as reason:
            child.exit_code = _NOT_STARTED
            child.status = f"cannot be started: {reason.strerror or reason}"
            return
        self._now(child, ChildState.STARTING)
        self._listen(child)
        pid = child.process.pid
        if child.unwanted.is_set():
            self._dismiss(child)  # It was dismissed before there was a process.
        child.exit_code = await child.process.wait()
        child.ready.clear()
        _send(pid, signal.SIGKILL)  # What it started and left behind.

    def _dismiss(self, child: Child) -> None:
        child.unwanted.set()
        _send(child.pid, signal.SIGTERM)
        _send(child.pid, signal.SIGCONT)  # A stopped process does not hear.

    # What children say --------------------------------------------------------------------------

    def _forget_last_words(self, child: Child) -> None:
        """What the life before said does not count for the next, which is not heard before it is known."""
        ear = self._ears.get(child.name)
        if ear is not None:
            asyncio.get_running_loop().remove_reader(ear.fileno())
            with suppress(OSError):
                while True:
                    ear.recv(_DATAGRAM)
        child.ready.clear()
        child.status = ""
        child.state = ChildState.STARTING

    def _listen(self, child: Child) -> None:
        ear = self._ears.get(child.name)
        if ear is not None:
            asyncio.get_running_loop().add_reader(ear.fileno(), self._hear, child)

    def _hear(self, child: Child) -> None:
        """A child said something of itself."""
        try:
            text = self._ears[child.name].recv(_DATAGRAM).decode(errors="replace")
        except OSError:
            return
        for line in text.splitlines():
            key, _, value = line.partition("=")
            if key == "STATUS":
                child.status = value
            elif line == "READY=1" and child.state is ChildState.STARTING:
                child.ready.set()
                self._now(child, ChildState.READY)

    def _now(self, child: Child, state: ChildState) -> None:
        child.state = state
        if self._told is not None:
            self._told(child)


async def launch_anew(command: Sequence[str], environment: Mapping[str, str], output: Path | None) -> Life:
    """Start a process from nothing."""
    file = None if output is None else output.open("ab")
    try:
        return await asyncio.create_subprocess_exec(
            *command,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            process_group=0,
        )
    finally:
        if file is not None:
            file.close()


def _send(pid: int | None, number: signal.Signals) -> None:
    """To a child's whole group, if it is still there."""
    if pid is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)


def end_with_supervisor() -> None:
    """For a child: get SIGTERM when the supervisor that started it ends, even by kill -9."""
    parent = os.environ.get(_PARENT, "")
    if parent.isdigit() and int(parent) == os.getppid():
        kernel.signal_at_parents_end(signal.SIGTERM)
        if int(parent) != os.getppid():
            os.kill(os.getpid(), signal.SIGTERM)  # It ended meanwhile.


def node_command(config: Path, name: str, *options: str) -> tuple[str, ...]:
    """What a person would type to run one node, by the interpreter that runs us."""
    return (sys.executable, "-m", "isocast", "node", "--config", str(config), "--name", name, *options)
