"""Runs the nodes of a market as processes of this machine, watches them, and starts again what died.

Each node is started with the command that a person would type, says by `notify` when it is ready, and gets SIGTERM
when all shall stop. One that ends by itself is started again after a pause that doubles; one that ends because its
input is bad (exit code 2) is not: it would only fail again.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

__all__ = ["Child", "ChildState", "Supervisor", "node_command"]

FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 10.0
STEADY_S = 30.0
"""A node that ran for so long before it ended is started again after the first pause."""
STOP_S = 10.0
"""From SIGTERM to SIGKILL."""
_BAD_INPUT = 2
_DATAGRAM = 4_096


class ChildState(StrEnum):
    """Where a process stands."""

    STARTING = "starting"
    READY = "ready"
    PAUSING = "pausing"
    """It ended, and is started again soon."""
    REFUSED = "refused"
    """It ended because its input is bad; a person must act."""
    STOPPED = "stopped"


@dataclass(slots=True)
class Child:
    """One node's process, over all its lives."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    state: ChildState = ChildState.STARTING
    process: Process | None = None
    starts: int = 0
    status: str = ""
    """What it said last of itself."""
    exit_code: int | None = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    wanted: bool = True
    """False once somebody stopped it by name."""

    @property
    def pid(self) -> int | None:
        """Of the life that is running."""
        return None if self.process is None or self.process.returncode is not None else self.process.pid


class Supervisor:
    """Starts, watches and stops children. `told` hears every change of a child's state."""

    def __init__(
        self, told: Callable[[Child], None] | None = None, *, restart: bool = True, log_directory: Path | None = None
    ) -> None:
        """With `restart` false a child that ends stays down. Output goes to one file a child, or to ours."""
        self.children: dict[str, Child] = {}
        self._told = told
        self._restart = restart
        self._logs = log_directory
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._directory = TemporaryDirectory(prefix="isocast-")
        self._ears: list[socket.socket] = []

    async def start(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Child:
        """Start a child; await `child.ready` to know that it is up."""
        path = str(Path(self._directory.name) / f"{len(self._ears)}.notify")
        child = Child(name, tuple(command), {**os.environ, **(environment or {}), "NOTIFY_SOCKET": path})
        ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        ear.bind(path)
        self._ears.append(ear)
        asyncio.get_running_loop().add_reader(ear.fileno(), self._hear, ear, child)
        self.children[name] = child
        self._tasks[name] = asyncio.create_task(self._live(child), name=f"supervise {name}")
        return child

    async def stop_all(self) -> None:
        """SIGTERM to all, SIGKILL to whoever does not obey, and wait for every one."""
        for child in self.children.values():
            child.wanted = False
            self._signal(child, signal.SIGTERM)
        if self._tasks:
            _, slow = await asyncio.wait(self._tasks.values(), timeout=STOP_S)
            for child in self.children.values():
                self._signal(child, signal.SIGKILL)
            if slow:
                await asyncio.wait(slow, timeout=STOP_S)
        loop = asyncio.get_running_loop()
        for ear in self._ears:
            loop.remove_reader(ear.fileno())
            ear.close()
        self._ears.clear()
        self._directory.cleanup()

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to one child, as a drill does."""
        self._signal(self.children[name], number)

    # One child ----------------------------------------------------------------------------------

    async def _live(self, child: Child) -> None:
        pause = FIRST_PAUSE_S
        while child.wanted:
            began = monotonic()
            await self._one_life(child)
            if not child.wanted or not self._restart:
                break
            if child.exit_code == _BAD_INPUT:
                self._now(child, ChildState.REFUSED)
                return
            pause = FIRST_PAUSE_S if monotonic() - began > STEADY_S else min(2 * pause, LONGEST_PAUSE_S)
            self._now(child, ChildState.PAUSING)
            await asyncio.sleep(pause)
        self._now(child, ChildState.STOPPED)

    async def _one_life(self, child: Child) -> None:
        child.starts += 1
        child.ready.clear()
        self._now(child, ChildState.STARTING)
        output = None
        if self._logs is not None:
            output = (self._logs / f"{child.name}.log").open("ab")
        try:
            child.process = await asyncio.create_subprocess_exec(
                *child.command, env=child.environment, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output
            )
        finally:
            if output is not None:
                output.close()
        child.exit_code = await child.process.wait()
        child.ready.clear()

    def _hear(self, ear: socket.socket, child: Child) -> None:
        """A child said something of itself."""
        try:
            text = ear.recv(_DATAGRAM).decode(errors="replace")
        except OSError:
            return
        for line in text.splitlines():
            key, _, value = line.partition("=")
            if key == "STATUS":
                child.status = value
            elif line == "READY=1":
                child.ready.set()
                self._now(child, ChildState.READY)

    def _now(self, child: Child, state: ChildState) -> None:
        if child.state is not state or state is ChildState.STARTING:
            child.state = state
            if self._told is not None:
                self._told(child)

    def _signal(self, child: Child, number: signal.Signals) -> None:
        if child.pid is not None and child.process is not None:
            try:
                child.process.send_signal(number)
            except ProcessLookupError:
                return


def node_command(config: Path, name: str, *options: str) -> tuple[str, ...]:
    """What a person would type to run one node, by the interpreter that runs us."""
    return (sys.executable, "-m", "isocast", "node", "--config", str(config), "--name", name, *options)
