"""Small programs of our own, in the user's cache, by which Spark starts Java and Python: made when they are needed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType

__all__ = ["cache_directory", "placed_script"]

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
