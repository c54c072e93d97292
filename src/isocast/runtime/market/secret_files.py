"""Files of secrets: 32 bytes in one line of hexadecimal digits, made whole or not at all, read by their owner alone.

No message, log or exception ever shows what is in them.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from secrets import token_bytes
from typing import Final

from isocast.terms.errors import ConfigurationError

__all__ = [
    "OTHERS",
    "OTHERS_WRITE",
    "SECRET_BYTES",
    "check_directory",
    "create_file",
    "create_secret",
    "read_file",
    "read_secret",
    "replace_file",
]

SECRET_BYTES: Final = 32
OTHERS: Final = 0o077
OTHERS_WRITE: Final = 0o022

_DIGITS = re.compile(rb"[0-9a-fA-F]{%d}" % (2 * SECRET_BYTES))
_FILE_BYTES_MAX = 1_024
_PRIVATE = 0o600


def check_directory(directory: Path, forbidden: int) -> None:
    """ConfigurationError for a directory that is not there, or open to others in one of these ways."""
    try:
        info = directory.stat()
    except FileNotFoundError as error:
        rule = "is missing: isocast keys init makes it, or copy it from where it was made"
        raise ConfigurationError(str(directory), "keys", rule) from error
    except OSError as error:
        raise ConfigurationError(str(directory), "keys", f"cannot be read: {error.strerror}") from error
    if not stat.S_ISDIR(info.st_mode):
        raise ConfigurationError(str(directory), "keys", "is not a directory")
    if info.st_mode & forbidden:
        rule = f"the directory's mode {stat.S_IMODE(info.st_mode):04o} lets others in: chmod 700 {directory}"
        raise ConfigurationError(str(directory), "mode", rule)


def create_secret(path: Path, comment: str) -> None:
    """A new secret, after a line that says what it is; OSError where a file of that name exists."""
    create_file(path, f"# {comment}\n{token_bytes(SECRET_BYTES).hex()}\n".encode())


def create_file(path: Path, content: bytes) -> None:
    """All of the file or nothing, for its owner alone from the start, and never over another."""
    draft = _draft(path, content, _PRIVATE)
    try:
        os.link(draft, path)
    finally:
        draft.unlink()


def replace_file(path: Path, content: bytes, mode: int = _PRIVATE) -> None:
    """All of the file, in the place of the one before, or nothing."""
    draft = _draft(path, content, mode)
    try:
        draft.replace(path)
    except OSError:
        draft.unlink()
        raise


def _draft(path: Path, content: bytes, mode: int) -> Path:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(handle, left) :]
        os.fchmod(handle, mode)
        os.fsync(handle)
    except OSError:
        draft.unlink()
        raise
    finally:
        os.close(handle)
    return draft


def read_secret(path: Path) -> bytes:
    """The 32 bytes of a file; ConfigurationError, which does not show them, for one that is not safe or not whole."""
    content = read_file(path, _FILE_BYTES_MAX, OTHERS)
    lines = [line.strip() for line in content.splitlines()]
    digits = [line for line in lines if line and not line.startswith(b"#")]
    if len(digits) != 1 or not _DIGITS.fullmatch(digits[0]):
        rule = f"must be one line of {2 * SECRET_BYTES} hexadecimal digits, and comments"
        raise ConfigurationError(str(path), "key", rule)
    return bytes.fromhex(digits[0].decode())


def read_file(path: Path, most: int, forbidden: int) -> bytes:
    """Up to so many bytes of a file; ConfigurationError for one that others may reach in one of these ways."""

    def error(key: str, rule: str) -> ConfigurationError:
        return ConfigurationError(str(path), key, rule)

    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise error("file", "is missing: isocast keys init makes it, or copy it from where it was made") from None
    except OSError as reason:
        raise error("file", f"cannot be read: {reason.strerror}") from None
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            raise error("file", "is not a file")
        if info.st_mode & forbidden:
            mode, verb = f"{stat.S_IMODE(info.st_mode):04o}", "read" if forbidden == OTHERS else "change"
            way = f"chmod 600 {path}, or a new key" if forbidden == OTHERS else f"chmod 644 {path}"
            raise error("mode", f"{mode} lets others {verb} it: {way}")
        if info.st_uid not in (os.geteuid(), 0) and os.geteuid() != 0:
            raise error("owner", "is another user, who can read it: run as that user, or copy the file")
        parts, left = [], most
        while left and (part := os.read(handle, left)):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    finally:
        os.close(handle)
