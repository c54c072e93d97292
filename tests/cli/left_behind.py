"""What an interrupted command may have left on this machine: whoever has inherited a mark, in whatever session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

__all__ = ["Place", "own_place"]

_MARK = "ISOCAST_TESTED"


class Place(NamedTuple):
    """Where a command makes what it needs for a while."""

    path: Path
    """Short, for Spark's sockets."""

    @property
    def environment(self) -> dict[str, str]:
        """For the command: its descendants inherit it, Java and nodes too."""
        path = os.fspath(self.path)
        return os.environ | {"TMPDIR": path, "XDG_RUNTIME_DIR": path, _MARK: path}

    def left(self) -> list[str]:
        """Command lines of who still runs, and names of what is still there."""
        mark = f"{_MARK}={self.path}".encode()
        found = [path.name for path in self.path.iterdir()]
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):  # It has just ended.
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        return found


@contextmanager
def own_place() -> Iterator[Place]:
    """An empty one."""
    with TemporaryDirectory(prefix="left-") as made:
        yield Place(Path(made))
