"""The switch seen from outside: start it, ask it, end it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any

from isocast.trials.lab.world import LabWorld

__all__ = ["SwitchProcess"]

_FDS_MAX = 128
"""More than the namespaces of the largest world."""
_START_S = 60.0
_ANSWER_S = 30.0
"""Seconds on a machine that is hardly ever ours; without any limit a switch that hangs would hang us too."""
_END_S = 10.0
_GONE = "the lab's switch has ended by itself"


class SwitchProcess:
    """A switch in a process of its own, and the namespaces that it made."""

    def __init__(self, world: LabWorld, *, user_namespace: bool | None) -> None:
        """Build the world; OSError says what the machine refused."""
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(_START_S)
        self._received = b""
        self.user_namespace: int | None = None
        self.namespaces: list[int] = []
        with theirs:
            command = [sys.executable, "-m", "isocast.trials.lab.switch", str(theirs.fileno())]
            try:
                # Its own session: a terminal's Ctrl-C reaches us alone, and the report survives it.
                self.process = subprocess.Popen(  # noqa: S603  # our own module
                    command, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, start_new_session=True
                )
            except OSError:
                self._socket.close()
                raise
        try:
            self._build(world, user_namespace=user_namespace)
        except BaseException:
            self.close()
            raise
        self._socket.settimeout(_ANSWER_S)

    def _build(self, world: LabWorld, *, user_namespace: bool | None) -> None:
        request = {"world": world.as_json(), "user_namespace": user_namespace}
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        data, fds, _, _ = socket.recv_fds(self._socket, 1 << 16, _FDS_MAX)
        for fd in fds:
            os.set_inheritable(fd, False)  # noqa: FBT003  # it has no other form
        self.namespaces = fds
        self._received = data
        answer = json.loads(self._line())
        refused = answer.get("refused")
        if refused is not None:
            reason = f"the lab cannot be built: {refused['reason']}; `isocast lab check` says what to change"
            raise OSError(refused["number"], reason)
        if answer["ready"]["user_namespace"]:
            self.user_namespace, *self.namespaces = fds

    def ask(self, command: str, **parts: object) -> Any:  # noqa: ANN401  # JSON
        """One command, one answer."""
        with self._lock:
            try:
                self._socket.sendall(json.dumps({"command": command, **parts}).encode() + b"\n")
                return json.loads(self._line())
            except ConnectionError as error:
                raise ChildProcessError(_GONE) from error
            except TimeoutError as error:
                raise ChildProcessError("the lab's switch does not answer") from error

    def _line(self) -> bytes:
        while b"\n" not in self._received:
            data = self._socket.recv(1 << 16)
            if not data:
                raise ChildProcessError(_GONE)
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line

    def end(self) -> None:
        """End the process; the namespaces stay until `close`, so that one can see who is left in them."""
        self._socket.close()
        try:
            self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def close(self) -> None:
        """End the process and let go of the namespaces: the kernel removes them with all that is in them."""
        self.end()
        held = [*self.namespaces, *([] if self.user_namespace is None else [self.user_namespace])]
        self.namespaces, self.user_namespace = [], None
        for fd in held:
            with suppress(OSError):
                os.close(fd)
