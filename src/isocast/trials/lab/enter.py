"""Run a command inside a site: enter its namespaces, then become the command.

A program of its own, without the rest of the package, so that a node starts as soon as it would outside:
``enter.py USER NETWORK COMMAND…``. USER and NETWORK are files that stand for namespaces, such as /proc/PID/fd/N;
USER is "-" where the lab needed no user namespace.
"""

from __future__ import annotations

import ctypes
import os
import sys

__all__ = ["main"]

_KINDS = (0x1000_0000, 0x4000_0000)
"""CLONE_NEWUSER first: it is what permits to enter CLONE_NEWNET."""
_NONE = "-"
_INTERFACE = b"wan0"
_CANNOT_RUN = 126
_NOT_FOUND = 127


def main(arguments: list[str]) -> int:
    """Become the command; what is returned is the exit code of a failure, as shells have it."""
    files, command = arguments[:2], arguments[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        # Both before we enter either: from inside, files of the process outside are out of reach.
        fds = [-1 if file == _NONE else os.open(file, os.O_RDONLY | os.O_CLOEXEC) for file in files]
    except OSError as error:
        sys.stderr.write(f"lab: the site is gone: {error.strerror}\n")
        return _CANNOT_RUN
    for fd, kind in zip(fds, _KINDS, strict=True):
        if fd >= 0 and libc.setns(fd, kind) != 0:
            sys.stderr.write(f"lab: cannot enter the site: {os.strerror(ctypes.get_errno())}\n")
            return _CANNOT_RUN
    if libc.if_nametoindex(_INTERFACE) == 0:
        # The switch closes its devices before it looks for residents: it sees us, or we see that it is gone.
        sys.stderr.write("lab: the site is gone\n")
        return _CANNOT_RUN
    try:
        os.execvp(command[0], command)  # noqa: S606  # what the caller of the lab wants to run, without a shell
    except FileNotFoundError:
        sys.stderr.write(f"lab: {command[0]}: no such command\n")
        return _NOT_FOUND
    except OSError as error:
        sys.stderr.write(f"lab: {command[0]}: {error.strerror}\n")
        return _CANNOT_RUN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
