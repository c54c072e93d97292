"""Starts Spark's Python workers, as `pyspark.daemon` does, but without a traceback of those whose reader has left.

When a query has enough rows, or its session ends, Spark closes the connection to workers that still have something to
say. That is how it stops them; the worker's last words, a BrokenPipeError with its traceback, would be on the terminal.
On a cluster they are in files.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from socket import socket

from isocast.lake.session_scripts import placed_script

__all__ = ["main", "worker_python"]

Worker = Callable[[socket, bool], int]

_SCRIPT = """#!/bin/sh
# Runs Python; in place of pyspark.daemon, which Spark starts by this name alone, the one that does not fill terminals.
if [ "$1 $2" = "-m pyspark.daemon" ]; then
  shift 2
  set -- -m isocast.lake.worker_daemon "$@"
fi
exec {python} "$@"
"""


def worker_python() -> str:
    """The program to start workers with: this Python by a script, or itself where there is no place for a script."""
    try:
        return str(placed_script("python", "python", _SCRIPT.format(python=shlex.quote(sys.executable))) / "bin/python")
    except OSError:
        return sys.executable


def main() -> None:
    """Run the daemon until Spark closes its input."""
    from pyspark import daemon  # noqa: PLC0415 - whoever wants the script alone does not need it

    daemon.worker = _silent(daemon.worker)  # type: ignore[assignment]
    daemon.manager()


def _silent(worker: Worker) -> Worker:
    def run(connection: socket, authenticated: bool) -> int:  # noqa: FBT001 - as the daemon calls it
        try:
            return worker(connection, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            os._exit(1)  # As the daemon would, after the traceback.

    return run


if __name__ == "__main__":
    main()
