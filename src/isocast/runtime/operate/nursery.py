"""Starts many Python processes quickly: one process imports everything once, and each of the others is a fork of it.

A node needs half a second of processor time to import its modules, and a market on one machine has dozens of nodes.
The nursery runs `python -m MODULE …` commands in forks of itself, so that a node costs some milliseconds instead. What
it starts are processes like any others, each with a group of its own: Ctrl-C in a terminal does not reach them. If
whoever asked the nursery dies, by SIGKILL too, the nursery ends them, and then itself.

    async with Nursery(("isocast.runtime.hosts.process",)) as nursery:
        process = await nursery.launch(node_command(config, "london"), environment, None)
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

from isocast.terms.errors import TransportError

__all__ = ["Nursery", "NurseryProcess"]

_CHILD = "isocast.runtime.operate.nursery_child"
_MESSAGE_MAX = 1 << 16
"""Bytes of one request: a command and an environment."""
_END_S = 15.0
"""For the nursery to end what is left and itself."""
_PYTHON_M = (sys.executable, "-m")


@dataclass(slots=True)
class NurseryProcess:
    """One process, as `asyncio.subprocess.Process` is one."""

    pid: int
    returncode: int | None = None
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self) -> int:
        """Its exit code, negative for a signal."""
        await self._ended.wait()
        return 0 if self.returncode is None else self.returncode

    def ended(self, code: int) -> None:
        """The nursery says so."""
        self.returncode = code
        self._ended.set()


class Nursery:
    """The asking side, in an event loop."""

    def __init__(self, modules: Sequence[str] = (), market: Path | None = None) -> None:
        """Before the first fork `modules` are imported, without rich, and a `market`'s file is read."""
        self._modules = tuple(modules)
        self._market = "" if market is None else str(market)
        self._socket: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[NurseryProcess]] = {}
        self._children: dict[int, NurseryProcess] = {}

    async def __aenter__(self) -> Self:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *_PYTHON_M,
                    _CHILD,
                    str(theirs.fileno()),
                    self._market,
                    *self._modules,
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                    # A fork has one thread; a library that started more before would miss them.
                    env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
                )
            except BaseException:
                ours.close()
                raise
        ours.setblocking(False)  # noqa: FBT003
        self._socket = ours
        asyncio.get_running_loop().add_reader(ours.fileno(), self._hear)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End all children that still run, and the nursery."""
        self._gone()
        if self._process is not None:
            try:
                async with asyncio.timeout(_END_S):
                    await self._process.wait()
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    self._process.kill()
                await self._process.wait()
            self._process = None

    async def launch(
        self, command: Sequence[str], environment: Mapping[str, str], output: Path | None
    ) -> NurseryProcess:
        """Run `python -m MODULE …`; what it prints is appended to `output`, or goes where ours goes."""
        if tuple(command[:2]) != _PYTHON_M:
            raise TransportError(f"a nursery runs `{' '.join(_PYTHON_M)} MODULE …`, not {command[0]}")
        if self._socket is None:
            raise TransportError("the nursery has ended")
        number = next(self._numbers)
        # A nursery's process differs from its environment in what it was told beyond ours.
        added = {name: value for name, value in environment.items() if os.environ.get(name) != value}
        request = {"number": number, "command": list(command[2:]), "environment": added}
        request["output"] = None if output is None else str(output)
        asked: asyncio.Future[NurseryProcess] = asyncio.get_running_loop().create_future()
        self._asked[number] = asked
        try:
            await asyncio.get_running_loop().sock_sendall(self._socket, json.dumps(request).encode())
            return await asked
        except OSError as reason:
            raise TransportError(f"the nursery has ended: {reason.strerror}") from reason
        finally:
            self._asked.pop(number, None)

    # What the nursery says ------------------------------------------------------------------------

    def _hear(self) -> None:
        if self._socket is None:
            return
        while True:
            try:
                raw = self._socket.recv(_MESSAGE_MAX)
            except BlockingIOError:
                return
            except OSError:
                raw = b""
            if not raw:
                self._gone()
                return
            said = json.loads(raw)
            if "number" in said:
                child = self._children[said["pid"]] = NurseryProcess(said["pid"])
                asked = self._asked.get(said["number"])
                if asked is not None and not asked.done():
                    asked.set_result(child)
            else:
                ended = self._children.pop(said["pid"], None)
                if ended is not None:
                    ended.ended(said["code"])

    def _gone(self) -> None:
        """No more is heard; what still runs is ended by the nursery."""
        if self._socket is None:
            return
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()
        self._socket = None
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(TransportError("the nursery has ended"))
        for child in self._children.values():
            with contextlib.suppress(OSError):
                os.kill(child.pid, signal.SIGTERM)  # For the case that the nursery is not there to do it.
            child.ended(-signal.SIGTERM)
        self._children.clear()
