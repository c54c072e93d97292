"""Files and folders that are still there after a loss of power: bytes first, then names, then whatever names them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from isocast.terms.errors import ConfigurationError

__all__ = ["create_json", "make_folder", "sync_file", "sync_folder"]


def sync_file(path: Path) -> None:
    """What was written to a file, by whichever process, is on the disk when this returns."""
    _sync(path, os.O_RDONLY)


def sync_folder(path: Path) -> None:
    """The names in a folder are on the disk when this returns."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    opened = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def make_folder(path: Path) -> None:
    """A folder, and those above it that are missing; their names are on the disk when this returns."""
    missing = [folder for folder in (path, *path.parents) if not folder.is_dir()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def create_json(path: Path, content: Mapping[str, Any]) -> None:
    """A file that is there whole, or not at all, and on the disk when this returns; an older one is never replaced."""
    aside = path.with_suffix(f".{os.getpid()}.tmp")
    with aside.open("w", encoding="utf-8") as out:
        json.dump(content, out)
        out.flush()
        os.fsync(out.fileno())
    try:
        os.link(aside, path)
    except FileExistsError:
        raise ConfigurationError(str(path), "--lake", "another job has written this version") from None
    finally:
        with suppress(FileNotFoundError):
            aside.unlink()
    sync_folder(path.parent)
