"""The nursery's own process: `python -m isocast.runtime.operate.nursery_child FILENO MARKET MODULE…`.

One thread, no event loop. It reads requests from its socket, forks, and tells who has ended. When the socket ends it
asks its children to stop, then makes them, then ends.
"""

from __future__ import annotations

import asyncio
import codecs
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
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from isocast.runtime.net import kernel
from isocast.runtime.watch.plain_structlog import import_structlog

__all__ = ["main"]

_MESSAGE_MAX = 1 << 16
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


def _warm_up() -> None:
    """Do here once what each fork would do first and keep for itself: with its first key cryptography loads OpenSSL."""
    from isocast.security.identities import IDENTITY_BYTES, Identity  # noqa: PLC0415 - if nodes are started

    codecs.lookup("ascii")
    Identity(bytes(IDENTITY_BYTES)).sign(b"")
    asyncio.run(asyncio.sleep(0))


def _end(*_: object) -> NoReturn:
    raise SystemExit


def main(arguments: Sequence[str]) -> None:
    """Import, read, then serve."""
    fileno, market, *modules = arguments
    signal.signal(signal.SIGTERM, _end)
    with socket.socket(fileno=int(fileno)) as asker:
        import_structlog()
        for module in modules:
            importlib.import_module(module)
        if market:
            from isocast.runtime.market.file import remember_market  # noqa: PLC0415 - if there is one

            remember_market(Path(market))
        _warm_up()
        sys._clear_type_cache()  # noqa: SLF001 - what a fork looks up would displace names, and copy the pages they are on
        gc.collect()
        gc.freeze()  # What all have in common is not looked at, and so not copied, by any of them.
        nursery = _Nursery(asker)
        try:
            nursery.serve()
        finally:
            nursery.end_all()


if __name__ == "__main__":
    main(sys.argv[1:])
