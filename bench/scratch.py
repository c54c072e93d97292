"""Room for what benches write: never more than a share of what is free, and gone afterwards, however a bench ends.

A folder is locked for as long as its bench runs. It is removed at the end, on an exception, and on SIGINT, SIGTERM and
SIGHUP; what a killed bench left behind has no lock any more, and the next bench removes it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from types import FrameType
from typing import NoReturn

__all__ = ["SHARE", "Room", "folder", "room_at", "sweep"]

SHARE = 0.5
"""Of what is free: a bench must leave the rest of the machine alive."""
PREFIX = "isocast-bench-"
MEMORY = Path("/dev/shm")  # noqa: S108
_LOCK = ".lock"
_UNLOCKED_S = 86_400.0
"""A folder without a lock is one that is just being made, unless it is that old."""
_PIECE = 64 << 20
_GB = 10**9
_ENDING = (signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Room:
    """What a file system may be filled with."""

    place: Path
    free: int
    """Bytes that nobody uses."""

    @property
    def most(self) -> int:
        """Bytes that a bench may write."""
        return int(self.free * SHARE)

    def insist(self, needed: float) -> None:
        """End with one line if so many bytes are too many."""
        if needed > self.most:
            have = f"{self.place} has {_size(self.free)} free, of which a bench takes at most {SHARE:.0%}"
            _refuse(f"this run writes some {_size(needed)}, and {have}: make it shorter, or give it a larger place")

    def insist_left(self) -> None:
        """End with one line if more is gone by now than a bench may write."""
        left = room_at(self.place).free
        if left < self.free - self.most:
            had = f"of {_size(self.free)} that were free at {self.place}, {_size(left)} are left"
            _refuse(f"stopped: {had}; make it shorter, or give it a larger place")

    def warm(self, wanted: float) -> int:
        """Bytes to touch beforehand: as many as will be written, within what may be."""
        return max(min(int(wanted), self.most), 0)


def room_at(place: Path) -> Room:
    """What is free there; a file system in memory has no more than the memory that is available."""
    found = os.statvfs(place)
    free = found.f_bavail * found.f_frsize
    if place.is_relative_to(MEMORY):
        free = min(free, _available_memory())
    return Room(place, free)


def _available_memory() -> int:
    """Bytes, as the kernel estimates them."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            name, _, rest = line.partition(":")
            if name == "MemAvailable":
                return int(rest.split()[0]) * 1_024
    return sys.maxsize


@contextmanager
def folder(
    keep: Path | None = None, needed: float = 0, *, within: Path | None = None, warm: bool = False
) -> Iterator[Path]:
    """A folder for some `needed` bytes, removed in the end; `keep` is one that stays.

    It is in memory where there is a file system for that, so that no disk is measured, or `within` a directory. With
    `warm` its pages are touched once: a virtual machine's first use of a page costs many times the second.
    """
    base = within or (MEMORY if MEMORY.is_dir() else Path(gettempdir()))
    with _signals():
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            _prepare(keep, needed, warm=warm)
            yield keep
            return
        sweep(base)
        path = Path(mkdtemp(prefix=PREFIX, dir=base))
        lock = os.open(path / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _prepare(path, needed, warm=warm)
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _prepare(path: Path, needed: float, *, warm: bool) -> None:
    room = room_at(path)
    room.insist(needed)
    if not warm:
        return
    left = room.warm(needed)
    piece = bytes(min(_PIECE, left))
    try:
        with (path / "warm").open("wb", buffering=0) as file:
            while left > 0:
                left -= file.write(piece[:left])
    finally:
        (path / "warm").unlink(missing_ok=True)


def sweep(base: Path) -> list[Path]:
    """Remove what benches left there that do not run any more; what was removed."""
    gone = []
    for path in sorted(base.glob(f"{PREFIX}*")):
        with suppress(OSError):
            if path.is_symlink() or not path.is_dir() or path.stat().st_uid != os.getuid() or not _is_stale(path):
                continue
            shutil.rmtree(path)
            gone.append(path)
            print(f"removed {path}, which a bench that was killed left behind", file=sys.stderr)
    return gone


def _is_stale(path: Path) -> bool:
    try:
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return time.time() - path.stat().st_mtime > _UNLOCKED_S
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


@contextmanager
def _signals() -> Iterator[None]:
    """A signal that would end the process at once becomes an exception, so that everything is cleaned up."""

    def end(number: int, _: FrameType | None) -> NoReturn:
        for other in _ENDING:
            signal.signal(other, signal.SIG_IGN)
        sys.exit(128 + number)

    heard = [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]  # Else as under nohup.
    before = {number: signal.signal(number, end) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _size(count: float) -> str:
    return f"{count / _GB:,.1f} GB" if count >= _GB else f"{count / 1e6:,.0f} MB"


def _refuse(text: str) -> NoReturn:
    print(f"{Path(sys.argv[0]).name}: {text}", file=sys.stderr)
    sys.exit(2)
