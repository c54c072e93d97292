"""Where a running lab is found: a directory of its user alone, with its control socket and its nodes' output."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from isocast.terms.errors import ConfigurationError

__all__ = ["RunDirectory", "control_path", "default_run_directory"]

_SOCKET = "control"
_PATH_MAX = 107
"""Bytes of a path that a socket can be bound to: 108 with the zero at its end."""


def default_run_directory() -> Path:
    """One for each user, so that commands find the lab without being told where it is."""
    return Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"isocast-lab-{os.getuid()}"


def control_path(directory: Path) -> Path:
    """The control socket of the lab that runs there."""
    return directory / _SOCKET


class RunDirectory:
    """Ours while we have it open; what nodes printed stays when we leave."""

    def __init__(self, path: Path, *, longest_name: str = _SOCKET) -> None:
        """Claim it: ConfigurationError if another lab has it, or another user."""
        self.path = path.absolute()
        needed = len(os.fsencode(self.path / longest_name))
        if needed > _PATH_MAX:
            raise ConfigurationError("command line", "--run", f"is {needed - _PATH_MAX} bytes too long for a socket")
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise ConfigurationError("command line", "--run", f"{self.path}: {error.strerror}") from error
        try:
            self._claim()
        except BaseException:
            os.close(self._fd)
            raise

    def _claim(self) -> None:
        state = os.fstat(self._fd)
        if state.st_uid != os.geteuid() or stat.S_IMODE(state.st_mode) & 0o077:
            # Attack: whoever can write here can command the lab, and nodes write their output here.
            raise ConfigurationError("command line", "--run", f"{self.path} must be yours alone (mode 0700)")
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            rule = f"a lab runs in {self.path} already; choose another directory"
            raise ConfigurationError("command line", "--run", rule) from error
        self.control.unlink(missing_ok=True)  # Of a lab that was killed.

    @property
    def control(self) -> Path:
        """The control socket."""
        return control_path(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.control.unlink(missing_ok=True)
        os.close(self._fd)
