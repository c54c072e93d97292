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
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from isocast.runtime.net import kernel
from isocast.terms.errors import TransportError

__all__ = ["Nursery", "NurseryProcess", "main"]


_CHILD = "isocast.runtime.operate.nursery"
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

    def __init__(self, modules: Sequence[str] = ()) -> None:
        """`modules` are imported before the first fork."""
        self._modules = tuple(modules)
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
        """End whatever still runs, and the nursery."""
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


# ---- The nursery's own process: `python -m isocast.runtime.operate.nursery FILENO MODULE…`.
#
# One thread, no event loop. It reads requests from its socket, forks, and tells who has ended. When the socket ends it
# asks its children to stop, then makes them, then ends.


_STOP_S = 10.0
"""From SIGTERM to SIGKILL, for children whose parent's parent has gone."""
_LOOK_S = 0.05
_ENDING = (signal.SIGTERM, signal.SIGINT)
_FAILED = 70
"""Exit code of a process that ended by an exception; its traceback is in its log."""


class _Nursery:
    """Forks, and counts who lives."""

    def __init__(self, asker: socket.socket) -> None:
        self._asker = asker
        self._pid = os.getpid()
        self._living: set[int] = set()
        self._woken, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def serve(self) -> None:
        """Until the socket ends."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        while True:
            ready, _, _ = select.select([self._asker.fileno(), self._woken], [], [])
            if self._woken in ready:
                with suppress(BlockingIOError):
                    os.read(self._woken, _MESSAGE_MAX)
                self._tell_ended()
            if self._asker.fileno() in ready:
                raw = self._asker.recv(_MESSAGE_MAX)
                if not raw:
                    return
                self._fork(json.loads(raw))

    def end_all(self) -> None:
        """SIGTERM, then SIGKILL."""
        self._signal(signal.SIGTERM)
        until = time.monotonic() + _STOP_S
        while self._living and time.monotonic() < until:
            self._reap()
            time.sleep(_LOOK_S)
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        for pid in self._living:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _tell_ended(self) -> None:
        for pid, code in self._reap():
            self._say({"pid": pid, "code": code})

    def _reap(self) -> list[tuple[int, int]]:
        found = []
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._living.discard(ended[0])
                found.append((ended[0], os.waitstatus_to_exitcode(ended[1])))
        return found

    def _say(self, message: dict[str, object]) -> None:
        with suppress(OSError):
            self._asker.send(json.dumps(message).encode())

    def _fork(self, request: dict[str, Any]) -> None:
        # Until it is a process of its own, a signal to the child must not run the nursery's handler.
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        pid = os.fork()
        if pid == 0:
            self._become(request)
        with suppress(OSError):  # Both do it: whoever hears of the child may signal its group at once.
            os.setpgid(pid, pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        self._living.add(pid)
        self._say({"number": request["number"], "pid": pid})

    def _become(self, request: dict[str, Any]) -> NoReturn:
        """In the child: forget the nursery, and run the command as the interpreter would have."""
        code = _FAILED
        try:
            os.setpgid(0, 0)
            kernel.signal_at_parents_end(signal.SIGTERM)
            if os.getppid() != self._pid:
                os._exit(_FAILED)  # It ended meanwhile.
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
            self._asker.close()
            os.close(self._woken)
            os.close(self._wake)
            os.environ.update(request["environment"])
            if request["output"] is not None:
                log = os.open(request["output"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
                os.dup2(log, 1)
                os.dup2(log, 2)
            code = _run(request["command"])
        finally:
            # Whatever is buffered goes out, and nothing of the nursery's own runs at this exit.
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):
                    stream.flush()
            os._exit(code)


def _run(command: Sequence[str]) -> int:
    module, *arguments = command
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        sys.stderr.write(f"{end.code}\n")
        return 1
    except BaseException:  # noqa: BLE001
        sys.excepthook(*sys.exc_info())
        return _FAILED
    return 0


def _end(*_: object) -> NoReturn:
    raise SystemExit


def main(arguments: Sequence[str]) -> None:
    """Import, then serve."""
    fileno, *modules = arguments
    signal.signal(signal.SIGTERM, _end)
    with socket.socket(fileno=int(fileno)) as asker:
        for module in modules:
            importlib.import_module(module)
        gc.collect()
        gc.freeze()  # What all have in common is not looked at, and so not copied, by any of them.
        nursery = _Nursery(asker)
        try:
            nursery.serve()
        finally:
            nursery.end_all()


if __name__ == "__main__":
    main(sys.argv[1:])
