"""The processes of a lab by name, started and stopped by command; and whether this machine can run a lab."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from isocast.terms.errors import ConfigurationError
from isocast.terms.quantities import suggestion
from isocast.trials.lab.lab import Lab

__all__ = ["LabNode", "LabNodeStatus", "LabNodes", "NodeState"]


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
        """SIGTERM to all, so that they end properly; SIGKILL to those that are still there after so long."""
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
        """Sockets to wait for; call `hear` soon after, since nodes that are not heard are kept waiting."""
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
