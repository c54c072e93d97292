"""Which market a program or a command means: by argument, `ISOCAST_MARKET`, `./market.toml`, or the only one that runs.

Whatever runs a market on this machine holds a lock on a small file that names the market's file. The kernel takes the
lock back however the process ends, so a market that is listed runs.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path

from isocast.terms.errors import ConfigurationError

__all__ = ["VARIABLE", "find_market", "is_running", "known_market", "running_markets"]

VARIABLE = "ISOCAST_MARKET"
"""Of the environment: the path of a market's file."""
_HERE = Path("market.toml")
_TRIES = 100


def find_market(given: str | Path | None = None, *, running: bool = True) -> Path:
    """The market's file; ConfigurationError says how to name one, and which ones run here.

    What is given counts, then the environment, then `market.toml` of the working directory, and last the only market
    that runs on this machine, unless `running` is false.
    """
    if given is not None:
        return Path(given)
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE])
    if _HERE.exists():
        return _HERE
    found = running_markets() if running else []
    if len(found) == 1:
        return found[0]
    ways = f"give its file, set {VARIABLE}, or work where a market.toml is"
    if found:
        listed = ", ".join(map(str, found))
        raise ConfigurationError("market", "file", f"{len(found)} markets run here ({listed}): {ways}")
    begin = "isocast up --example makes one and runs it"
    nobody = "and none runs here " if running else ""
    raise ConfigurationError("market", "file", f"which market? No file was named {nobody}({ways}); {begin}")


def known_market(given: str | Path | None = None) -> Path | None:
    """As `find_market`, for a command that can do without one: None where it is not clear which is meant."""
    try:
        return find_market(given)
    except ConfigurationError:
        return None


@contextmanager
def is_running(file: str | Path) -> Iterator[Callable[[], None]]:
    """While the block lasts, the market of this file is one that runs on this machine.

    It gives what ends that before the block does: for a process that is ended without its `finally`.
    """
    held = [lock for lock in [_held(Path(file).resolve())] if lock is not None]

    def end() -> None:
        if held:
            os.close(held.pop())
            running_markets()  # The last one takes the name away.

    try:
        yield end
    finally:
        end()


def running_markets() -> list[Path]:
    """The files of the markets that this user runs on this machine."""
    found: list[Path] = []
    directory = _directory()
    for note in sorted(directory.glob("*.market")) if _is_ours(directory) else ():
        with suppress(OSError):
            lock = os.open(note, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                note.unlink(missing_ok=True)  # Nobody holds it.
            except BlockingIOError:
                found += [Path(name) for name in filter(None, [os.fsdecode(note.read_bytes())])]
            finally:
                os.close(lock)
    if not found:
        with suppress(OSError):  # Another market may just have begun.
            directory.rmdir()
    return found


def _held(path: Path) -> int | None:
    """A descriptor whose lock says that the market runs; None where no such thing can be said."""
    directory = _directory()
    note = directory / f"{blake2b(os.fsencode(path), digest_size=8).hexdigest()}.market"
    with suppress(OSError):
        for _ in range(_TRIES):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_ours(directory):
                return None
            try:
                lock = os.open(note, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:
                continue  # Somebody took the directory away in between.
            fcntl.flock(lock, fcntl.LOCK_SH)
            if note.exists() and note.stat().st_ino == os.fstat(lock).st_ino:
                os.pwrite(lock, os.fsencode(path), 0)
                return lock
            os.close(lock)  # Somebody took the name away in between.
    return None


def _is_ours(directory: Path) -> bool:
    """Whether what lies there was put there by this user."""
    try:
        return not directory.is_symlink() and directory.stat().st_uid == os.geteuid()
    except OSError:
        return False


def _directory() -> Path:
    """Of this user alone."""
    own = os.environ.get("XDG_RUNTIME_DIR")
    return Path(own) / "isocast" if own else Path(tempfile.gettempdir()) / f"isocast-running-{os.geteuid()}"
