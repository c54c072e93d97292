"""The control socket: one line of JSON in, one line out, for whoever may enter the run directory."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from isocast.terms.errors import ConfigurationError, IsocastError
from isocast.trials.lab.run_directory import control_path

__all__ = ["ControlServer", "ask_lab"]

_LINE_MAX = 1 << 16
"""Bytes of a request: the longest has two names and three numbers."""
_REQUEST_S = 1.0
"""A client that says nothing for so long keeps the others waiting no longer."""
_ANSWER_S = 60.0
_BACKLOG = 16

Answer = Callable[[Mapping[str, Any]], object]
"""What a request gets; IsocastError or OSError becomes the client's."""


class ControlServer:
    """Listens at a path; `serve` answers whoever has come."""

    def __init__(self, path: Path, answer: Answer) -> None:
        """Listen."""
        self._answer = answer
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            self._socket.bind(str(path))
            self._socket.listen(_BACKLOG)
            self._socket.settimeout(0)
        except OSError:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """For `select`."""
        return self._socket.fileno()

    def serve(self) -> None:
        """One client, if there is one: a request, an answer, goodbye."""
        try:
            client, _ = self._socket.accept()
        except BlockingIOError:
            return
        with client, suppress(OSError):  # It went away, or said nothing.
            client.settimeout(_REQUEST_S)
            client.sendall(json.dumps(self._reply(_line(client, _LINE_MAX))).encode() + b"\n")

    def _reply(self, line: bytes) -> dict[str, object]:
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            request = None
        if not isinstance(request, dict):
            return {"bad": ["control socket", "request", "must be one JSON object on one line"]}
        try:
            return {"answer": self._answer(request)}
        except ConfigurationError as error:
            return {"bad": [error.file, error.key, error.rule]}
        except (IsocastError, OSError) as error:
            return {"refused": str(error)}


def _line(peer: socket.socket, limit: int) -> bytes:
    """Up to the end of a line; what is longer than `limit` is cut there, and no JSON any more."""
    received = b""
    while b"\n" not in received and len(received) <= limit:
        data = peer.recv(1 << 16)
        if not data:
            break
        received += data
    return received[:limit]


def ask_lab(directory: Path, command: str, **parts: object) -> Any:  # noqa: ANN401  # JSON
    """One command to the lab that runs in a directory; its own errors are raised here."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as peer:
        peer.settimeout(_ANSWER_S)
        try:
            peer.connect(str(control_path(directory)))
        except OSError as error:
            rule = f"no lab runs in {directory} (`isocast lab up` and `isocast lab run` say where theirs does)"
            raise ConfigurationError("command line", "--run", rule) from error
        peer.sendall(json.dumps({"command": command, **parts}).encode() + b"\n")
        received = _line(peer, 1 << 26)
    if not received.endswith(b"\n"):
        raise ConnectionResetError(f"the lab in {directory} ended before it answered")
    reply = json.loads(received)
    if "bad" in reply:
        raise ConfigurationError(*reply["bad"])
    if "refused" in reply:
        raise ChildProcessError(reply["refused"])
    return reply["answer"]
