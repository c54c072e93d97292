"""The operator's door of a node or a lab: a Unix socket in its directory, for users that may read and write there.

One request is one line of JSON, and so is its answer:

    {"do": "drain"}                           {"ok": true, …}
    {"do": "dance"}                           {"ok": false, "error": "…"}

Who may come in is the file system's to say: the socket has mode 0600, so it is the user that runs it, and root.
Everything is bounded, as at every door: the length of a line, the time it takes, and how many visitors there are.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

from isocast.runtime.net.lobby import Lobby
from isocast.runtime.watch.logs import get_log
from isocast.terms.errors import ConfigurationError, IsocastError, TransportError
from isocast.terms.quantities import suggestion

__all__ = ["SOCKET", "NobodyListensError", "Operation", "OperatorDoor", "OperatorError", "ask"]

SOCKET = "operator.sock"
_LINE_BYTES_MAX = 1 << 20
_VISITORS_MAX = 8
"""Whose requests are under way."""
_WAITING_MAX = 64
"""That have asked nothing yet. All come from one address: whoever asks at once must not be the oldest among few."""
_READ_S = 5.0
_ANSWER_S = 30.0

Request: TypeAlias = Mapping[str, Any]
Operation: TypeAlias = Callable[[Request], Awaitable[Mapping[str, object] | None]]
"""Does what a request asks for, and says what came of it; IsocastError, with its text, if it cannot be done."""


class OperatorError(IsocastError):
    """A node does not do what it was asked; the message is the node's own."""


class NobodyListensError(OperatorError):
    """The node is down, or on another machine."""


class OperatorDoor:
    """Listens in one directory. `operations` are what can be asked, by name; `owner` is whom messages speak of."""

    def __init__(self, directory: Path, operations: Mapping[str, Operation], owner: str = "node") -> None:
        """Nothing is opened yet."""
        self._directory = directory
        self._operations = operations
        self._owner = owner
        self._server: asyncio.Server | None = None
        self._visitors = 0
        self._lobby = Lobby(_WAITING_MAX)

    async def open(self) -> None:
        """Listen; ConfigurationError where the same node listens already."""
        self._directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            os.fchmod(listener.fileno(), 0o600)  # Before there is a name: nobody comes in between.
            with _short_path(self._directory) as path:
                _remove_stale(path, self._directory)
                listener.bind(path)
            self._server = await asyncio.start_unix_server(self._visit, sock=listener, limit=_LINE_BYTES_MAX)
        except OSError as reason:
            listener.close()
            raise TransportError(f"{self._directory / SOCKET}: cannot listen: {reason.strerror}") from reason
        except BaseException:
            listener.close()
            raise

    async def close(self) -> None:
        """Stop listening, and take the name away."""
        if self._server is not None:
            self._server.close()
            self._server = None
            (self._directory / SOCKET).unlink(missing_ok=True)

    async def _visit(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            return
        if self._lobby.enter(task, "this machine") is not None:
            get_log().warning("a connection to the operator's door gave way to another", door=self._directory)
        try:
            line = await _line_of(reader)
            self._lobby.leave(task)
            writer.write(json.dumps(await self._answered(line)).encode() + b"\n")
            async with asyncio.timeout(_READ_S):
                await writer.drain()
        except TimeoutError:
            writer.transport.abort()  # It does not read.
        except (OSError, asyncio.CancelledError):
            pass  # The client has gone, or somebody else needs its place.
        finally:
            self._lobby.leave(task)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answered(self, line: bytes | None) -> dict[str, object]:
        if line is None:
            return _refusal("no request came")
        if self._visitors >= _VISITORS_MAX:
            return _refusal(f"{_VISITORS_MAX} requests are under way: ask again when one is done")
        self._visitors += 1
        try:
            return await self._answer(line)
        finally:
            self._visitors -= 1

    async def _answer(self, line: bytes) -> dict[str, object]:
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            return _refusal("a request is one line of JSON")
        if not isinstance(request, dict) or not isinstance(request.get("do"), str):
            return _refusal('a request is an object with "do", the name of what to do')
        name = request["do"]
        operation = self._operations.get(name)
        if operation is None:
            known = ", ".join(sorted(self._operations))
            return _refusal(f'this {self._owner} cannot "{name}"{suggestion(name, self._operations)}; it can {known}')
        try:
            async with asyncio.timeout(_ANSWER_S):
                return {"ok": True, **(await operation(request) or {})}
        except IsocastError as reason:
            return _refusal(str(reason))
        except TimeoutError:
            return _refusal(f'"{name}" is not done after {_ANSWER_S:g} s')
        except Exception as reason:  # noqa: BLE001 - an operator's request must not end a market
            get_log().error("an operator's request failed", do=name, exc_info=reason)
            return _refusal(f"{type(reason).__name__}: {reason}; the {self._owner}'s log has more")


async def _line_of(reader: StreamReader) -> bytes | None:
    """What a visitor asks; empty if that is too long, None if nothing came."""
    try:
        async with asyncio.timeout(_READ_S):
            return await reader.readline()
    except TimeoutError:
        return None
    except ValueError:
        return b""


def _refusal(reason: str) -> dict[str, object]:
    return {"ok": False, "error": reason}


async def ask(directory: Path, do: str, *, seconds: float = _ANSWER_S, **arguments: object) -> dict[str, Any]:
    """Ask the node of a directory; OperatorError with its reason, or ours where nobody answers."""
    where = directory / SOCKET
    try:
        async with asyncio.timeout(seconds):
            with _short_path(directory) as path:
                reader, writer = await asyncio.open_unix_connection(path, limit=_LINE_BYTES_MAX)
            try:
                writer.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
                await writer.drain()
                line = await reader.readline()
            finally:
                writer.close()
        answer = json.loads(line)
    except (FileNotFoundError, NotADirectoryError):
        raise NobodyListensError(f"{where}: no process listens; is the node up, and on this machine?") from None
    except ConnectionRefusedError:
        raise NobodyListensError(f"{where}: the node that created it is down; start it again") from None
    except PermissionError:
        raise OperatorError(f"{where}: permission denied; only the user that runs the node may send requests") from None
    except (OSError, TimeoutError) as reason:
        text = (
            os.strerror(reason.errno) if isinstance(reason, OSError) and reason.errno else f"silent for {seconds:g} s"
        )
        raise OperatorError(f"{where}: {text}") from None
    except ValueError:
        raise OperatorError(f"{where}: the node closed the connection; see its log") from None
    if not isinstance(answer, dict) or answer.get("ok") is not True:
        error = answer.get("error") if isinstance(answer, dict) else None
        raise OperatorError(str(error or "the answer has no reason"))
    return answer


@contextmanager
def _short_path(directory: Path) -> Iterator[str]:
    """The socket's name below an open directory: the kernel takes 107 bytes, and a directory may be deeper."""
    handle = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{handle}/{SOCKET}"
    finally:
        os.close(handle)


def _remove_stale(path: str, directory: Path) -> None:
    """What a killed process left behind; not what a living one listens on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except FileNotFoundError:
            return
        except OSError:
            with suppress(FileNotFoundError):
                os.unlink(path)  # noqa: PTH108  A path that is valid only while the directory is open.
            return
    raise ConfigurationError(str(directory), "node", "runs already: stop it first, or give this one another name")
