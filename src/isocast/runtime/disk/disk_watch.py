"""Whether the files that a running node has open are still those that its directory names.

A process goes on writing to a file that somebody removed, or moved away, and the kernel says nothing: everything is
gone with the process. So stores and journals look, about once a second, whether the path still leads to the open file,
whether the file is as long as what was written to it, and whether the file system takes writes at all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

__all__ = ["OpenFile", "first_trouble"]


class OpenFile(NamedTuple):
    """A file, or directory, that a node relies on."""

    path: Path
    fd: int = -1
    """-1: it is not open, and only has to be there."""
    least: int = 0
    """Bytes that it has at least."""


def first_trouble(files: Iterable[OpenFile]) -> tuple[Path, str] | None:
    """The first file with which something is wrong, and what; None if all is well."""
    for file in files:
        trouble = _trouble(file)
        if trouble:
            return file.path, trouble
    return None


def _trouble(file: OpenFile) -> str:
    try:
        named = file.path.stat()
        if file.fd < 0:
            return ""
        opened = os.fstat(file.fd)
        if (named.st_dev, named.st_ino) != (opened.st_dev, opened.st_ino):
            return "was replaced by another one while this process had it open"
        if named.st_size < file.least:
            return f"was cut to {named.st_size} bytes while this process had it open: it had {file.least}"
        if os.fstatvfs(file.fd).f_flag & os.ST_RDONLY:
            return "is on a file system that takes no writes any more"
    except FileNotFoundError:
        return "was removed, or moved away, while this process had it open"
    except OSError as reason:
        return f"cannot be reached any more: {reason.strerror}"
    return ""
