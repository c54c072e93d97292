"""Starts Spark's Python workers, without a traceback of those whose reader has left; and the small programs for it.

When a query has enough rows, or ends, Spark closes the connection to workers that still have something to say. That is
how it stops them; their last words, a BrokenPipeError with its traceback, would be on the terminal. On a cluster they
are in files.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path
from runpy import run_module
from socket import socket
from types import MappingProxyType, TracebackType

__all__ = ["cache_directory", "main", "placed_script", "worker_python"]


# Small programs of our own, in the user's cache, by which Spark starts Java and Python: made when they are
# needed.


_MODE = 0o755
_NOTHING: Mapping[str, str] = MappingProxyType({})


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Where things are kept that can be made again."""
    named = environment.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path(environment.get("HOME") or Path.home()) / ".cache") / "isocast"


def placed_script(
    kind: str, name: str, script: str, environment: Mapping[str, str] = os.environ, beside: Mapping[str, str] = _NOTHING
) -> Path:
    """A directory with the script as `bin/NAME` and files beside `bin`; made once, and again if it is not ours."""
    directory = cache_directory(environment) / f"{kind}-{blake2b(script.encode(), digest_size=8).hexdigest()}"
    (directory / "bin").mkdir(parents=True, exist_ok=True, mode=0o700)
    for place, text in {**beside, f"bin/{name}": script}.items():
        if not _is(directory / place, text):
            _write(directory / place, text)
    return directory


def _is(program: Path, script: str) -> bool:
    """Whether the file has this content, is ours, and not writable by others."""
    try:
        status = program.stat()
        return (
            program.read_text(encoding="utf-8") == script
            and status.st_mode & 0o777 == _MODE
            and status.st_uid == os.geteuid()
        )
    except (OSError, UnicodeDecodeError):
        return False


def _write(program: Path, script: str) -> None:
    """In one step, so that another process never sees half of it."""
    new = program.with_name(f"{program.name}.{os.getpid()}.new")
    new.write_text(script, encoding="utf-8")
    new.chmod(_MODE)
    new.replace(program)


Worker = Callable[[socket, bool], int]

_SCRIPT = """#!/bin/sh
# Runs Python; modules of Spark, which it starts by their names alone, by the one that keeps them from the terminal.
case "$1 $2" in
  "-m pyspark."*) shift; set -- -m isocast.lake.worker_daemon "$@" ;;
esac
exec {python} "$@"
"""
_LEFT = (BrokenPipeError, ConnectionResetError)
_NO_READER = "[CANNOT_OPEN_SOCKET]"


def worker_python() -> str:
    """The program to start workers with: this Python by a script, or itself where there is no place for a script."""
    try:
        return str(placed_script("python", "python", _SCRIPT.format(python=shlex.quote(sys.executable))) / "bin/python")
    except OSError:
        return sys.executable


def main() -> None:
    """Run the module of Spark that the first argument names, as Python itself would."""
    module = sys.argv.pop(1)
    sys.excepthook = _told_unless_left
    if module != "pyspark.daemon":
        run_module(module, run_name="__main__", alter_sys=True)
        return
    from pyspark import daemon  # noqa: PLC0415 - whoever wants the script alone does not need it

    daemon.worker = _silent(daemon.worker)  # type: ignore[assignment]
    daemon.manager()


def _told_unless_left(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    # A worker that finds no reader when it starts: Spark itself says so, unless it has ended.
    if not issubclass(kind, _LEFT) and _NO_READER not in str(error):
        sys.__excepthook__(kind, error, trace)


def _silent(worker: Worker) -> Worker:
    def run(connection: socket, authenticated: bool) -> int:  # noqa: FBT001 - as the daemon calls it
        try:
            return worker(connection, authenticated)
        except _LEFT:
            os._exit(1)  # As the daemon would, after the traceback.

    return run


if __name__ == "__main__":
    main()
