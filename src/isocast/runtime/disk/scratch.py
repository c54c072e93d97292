"""Temporary directories that are gone with their process: at its end in order, at a forced one, and after kill -9.

A process holds a lock on each of its directories, which the kernel takes back whenever and however it ends. Whoever
makes the next one removes those that nobody holds. A lock holds across containers that share a directory, where the
number of a process says nothing. Their names end with a tilde, so that nothing else is ever taken for one of them, and
are short: paths of sockets have 107 bytes at most.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from isocast.runtime.operate import shutdown

__all__ = ["new_directory", "remove", "remove_all", "scratch_directory", "sweep"]

_PREFIX = "isocast-"
_NAME = re.compile(r"isocast-[a-z]+-[a-z0-9_]{8}~")
_TRIES = 100

_held: dict[Path, int] = {}
"""The directories of this process, and the descriptors that hold their locks."""
_owner = [0]


@contextmanager
def scratch_directory(purpose: str, parent: Path | None = None) -> Iterator[Path]:
    """A new directory, until the block ends."""
    place = new_directory(purpose, parent)
    try:
        yield place
    finally:
        remove(place)


def new_directory(purpose: str, parent: Path | None = None) -> Path:
    """A new directory, until the process ends; `parent` is the system's place for such things."""
    parent = Path(tempfile.gettempdir()) if parent is None else parent
    sweep(parent)
    for _ in range(_TRIES):
        place = Path(tempfile.mkdtemp("~", f"{_PREFIX}{purpose}-", parent))
        lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with suppress(OSError):  # Where locks are not known nobody sweeps either.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if place.exists():  # Else somebody swept it before it was ours.
            if _owner[0] != os.getpid():
                _owner[0] = os.getpid()
                _held.clear()
                atexit.register(remove_all)
            shutdown.at_forced_end(remove_all)
            _held[place] = lock
            return place
        os.close(lock)
    raise FileExistsError(f"{parent}: every new directory was taken away")


def remove(place: Path) -> None:
    """What is in it goes, too; what does not is left for the next sweep."""
    shutil.rmtree(place, ignore_errors=True)
    lock = _held.pop(place, None)
    if lock is not None:
        with suppress(OSError):
            os.close(lock)


def remove_all() -> None:
    """Remove the directories of this process; a fork leaves them to its parent."""
    if _owner[0] == os.getpid():
        for place in list(_held):
            remove(place)


def sweep(parent: Path) -> None:
    """Remove directories of ours whose process is gone."""
    for place in parent.glob(f"{_PREFIX}*"):
        if place in _held or not _NAME.fullmatch(place.name):
            continue
        with suppress(OSError):
            if place.is_symlink() or not place.is_dir() or place.stat().st_uid != os.geteuid():
                continue
            lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(place, ignore_errors=True)
            finally:
                os.close(lock)
